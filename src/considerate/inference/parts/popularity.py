"""Settings of the histogram pi that unliked edges are drawn from (eq. 7-9)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from considerate.inference.parts.base import Part
from considerate.settings import AUTO, OrWord, setting, settings_group

if TYPE_CHECKING:
    from considerate.inference.parts.base import Floats

FLATTER = (0.0, 0.25, 0.5)  # "auto" tries gamma minus these


@settings_group
class PopularitySettings:
    """The histogram pi that unliked edges are drawn from."""

    rate: float = setting(
        1.0,
        "what the most popular item gets of its share of unliked edges (r)",
        "1 draws unliked items in proportion to their likes",
        low=1e-9,
        high=1,
        place=4,
    )
    gamma: OrWord[float | None] = setting(
        None,
        "exponent of the popularity histogram; from `rate` if not given, auto tries flatter ones on likes held out",
        "0.9 and 1.1 only move quality between popular and rare items, which the popularity weight does too",
        low=-2,
        high=2,
        words=(AUTO,),
        place=5,
        tries=lambda plan: tuple((plan.gamma or 0.0) - less for less in FLATTER),
    )
    head_correction: bool = setting(
        False,
        "give popular items the unliked edges that discarded draws take from them",
        "rankings were worse with it",
        place=10,
    )


class PopularityPart(Part):
    """Part: the histogram of the draws."""

    settings = PopularitySettings

    def reweigh(self, plan: Any, weights: Floats, correct: Callable[[Floats], Floats]) -> Floats:
        return correct(weights) if plan.head_correction else weights
