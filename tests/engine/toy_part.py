"""Toy part: draws avoid items of odd rows. It shows all that a part can be, in one file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from considerate.data.column import DECIMALS, NUMBER, Column
from considerate.inference.parts.base import Part, Where
from considerate.settings import setting, settings_group
from considerate.storage.layout import Check, Fields, Tensor, are_finite, parse_flag

Floats = NDArray[np.float64]


@settings_group
class ToySettings:
    """Settings of the toy part."""

    oddness: float = setting(
        0.0,
        "how far draws avoid items of odd rows",
        "there is no reason to avoid them",
        low=0,
        high=1,
        idle=lambda plan, given: plan.oddness == 0,
    )


def _chances(pairs: Any) -> Floats:
    """The part of its draws that each recommended item keeps; NaN in a model without the part."""
    kept = pairs.model.kept.get("toy")
    return np.full(len(pairs.item), np.nan) if kept is None else np.asarray(kept[pairs.item])


class ToyPart(Part):
    """One setting, one change of the draws, one tensor, one column."""

    name = "toy"
    settings = ToySettings
    fields: ClassVar[Fields] = {"toy": parse_flag}
    tensors = (Tensor("toy.chance", np.float64, ("items",), "toy"),)
    rules = (Check(("toy.chance",), "the tensor 'toy.chance' holds a value that is not finite", are_finite),)
    columns = (
        Column("kept", NUMBER, "part of its draws that the item keeps", _chances, nullable=True, format=DECIMALS),
    )

    def contradictions(self, given: Any) -> Iterator[str]:
        if given.oddness and given.hidden == "half-edges":
            yield "oddness changes draws from pi, and half-edges are none: leave oddness out."

    def refusals(self, request: Any, where: Where) -> Iterator[str]:
        if request.plan.oddness and where.kind == "ray":
            yield f"oddness is {request.plan.oddness}, which is not for Ray; leave it out, or fit on this machine."

    def reweigh(self, plan: Any, weights: Floats, correct: Callable[[Floats], Floats]) -> Floats:
        return weights * _chance(plan, len(weights)) if plan.oddness else weights

    def learned(self, plan: Any, session: Any) -> Floats | None:
        return _chance(plan, len(session.item_degree)) if plan.oddness else None

    def saved(self, model: Any) -> tuple[dict[str, Any], dict[str, Floats]]:
        kept = model.kept.get("toy")
        return ({}, {}) if kept is None else ({"toy": True}, {"toy.chance": kept})

    def kept_in(self, file: Any) -> Floats | None:
        return file.part("toy.")["toy.chance"] if file.about["toy"] else None


def _chance(plan: Any, items: int) -> Floats:
    return np.where(np.arange(items) % 2 == 1, 1.0 - plan.oddness, 1.0)
