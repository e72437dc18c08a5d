"""Draws of the hidden graph H: the way to average over it, and its number of unliked edges."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from considerate.inference.parts.base import Part, Where
from considerate.settings import AUTO, OrWord, setting, settings_group


def _negatives_tried(plan: Any) -> tuple[float, ...]:
    return (5.0, 15.0, 45.0) if plan.hidden == "expected" else (5.0, 10.0, 20.0)  # in closed form, more cost nothing


@settings_group
class DrawSettings:
    """Settings of the draws of H: the way to draw, and the number of unliked edges."""

    hidden: str = setting(
        "sampled",
        "how to average over the hidden graph: draw it (sampled, the paper's way), in closed form (expected), or, for "
        "study, draw it by the paper's other scheme, from degrees of users and items (half-edges)",
        "draws rank better, and their p(like) is better calibrated; expected takes less time",
        words=("sampled", "expected", "half-edges"),
        place=1,
    )
    negatives: OrWord[float] = setting(
        5.0,
        "items considered and not liked, per like (c). Fractions are allowed, auto tries more on likes held out",
        "more help the first places of a list and hurt items of under ten likes; 5 is the compromise",
        above=0,
        high=1000,
        words=(AUTO,),
        paper=1.0,
        place=2,
        tries=_negatives_tried,
    )


class DrawsPart(Part):
    """Part: draws from pi, by the walk, or of half-edges."""

    settings = DrawSettings

    def refusals(self, request: Any, where: Where) -> Iterator[str]:
        if request.plan.hidden != "half-edges":
            return
        if where.divided:
            yield (
                "hidden is 'half-edges', which are joined over the whole graph, and the graph is divided; fit in "
                "memory, or set hidden to 'sampled' or 'expected'."
            )
        if request.side.known is not None:
            yield "hidden is 'half-edges', which knows the likes alone; leave considered and impossible out."
