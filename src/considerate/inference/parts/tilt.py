"""Tilt: draws of H that lean away from items that the user would like, or towards them. Not in the paper."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from considerate.inference.parts.base import Part, Where
from considerate.settings import setting, settings_group


@settings_group
class TiltSettings:
    """Settings of the tilt."""

    tilt: float = setting(
        0.0,
        "how far draws (t) lean away from what the user would like (1: people consider first and flip coins after), or "
        "towards it (below 0: people look at what they like). Likes alone cannot tell: choose it on pairs known to be "
        "considered. hidden must be sampled",
        "likes alone do not say which way to lean",
        low=-1,
        high=1,
        place=9,
        idle=lambda plan, given: plan.tilt == 0,
        stored="tilt",
        before=0.0,
    )


class TiltPart(Part):
    """Part: weights of draws multiplied by exp(t B-), or by exp(-t B+) if t < 0."""

    settings = TiltSettings

    def contradictions(self, given: Any) -> Iterator[str]:
        if given.tilt != 0 and given.hidden != "sampled":
            yield f"tilt is {given.tilt} and hidden is {given.hidden!r}; only draws are tilted: set hidden='sampled'."

    def refusals(self, request: Any, where: Where) -> Iterator[str]:
        if request.plan.tilt != 0 and not where.users_stay:
            yield (
                f"tilt is {request.plan.tilt}, and tilted draws lean on all items as they are when a sweep starts; "
                "divide by users, with inner_sweeps=1, or set tilt=0."
            )
