"""Sweeps in closed form: all of them, or an opening before the draws. Not in the paper."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from considerate.inference.parts.base import Part
from considerate.settings import OrUnset, setting, settings_group

OPENING = 5  # sweeps; docs/quality.md


def opening_of(given: Any) -> int:
    """Number of sweeps of the opening: as given, else the default for draws by the walk."""
    if given.opening is not None:
        return int(given.opening)
    walks = (given.hidden, given.consideration, given.considered_are) == ("sampled", "walk", "some")
    return OPENING if walks else 0


@settings_group
class ClosedFormSettings:
    """Sweeps in closed form."""

    opening: OrUnset[int] = setting(
        None,
        "sweeps in closed form before H is drawn; 0 is the paper's way. If not given 5 with the walk, else 0",
        "a sweep in closed form is cheap and free of noise: five of them come near the final ranking",
        low=0,
        high=100_000,
        integer=True,
        paper=0,
        place=11,
        resolve=opening_of,
        idle=lambda plan, given: plan.opening == 0,
    )
    groups: int = setting(
        32,
        "groups of items that share a bound, where hidden is expected",
        "four times as many changed little and took longer",
        low=1,
        high=4096,
        integer=True,
        place=12,
    )


class ClosedFormPart(Part):
    """Part: expectation over H in closed form."""

    settings = ClosedFormSettings

    def contradictions(self, given: Any) -> Iterator[str]:
        if given.opening and given.hidden == "expected":
            yield (
                f"opening is {given.opening} and hidden is 'expected', which is in closed form to the end: leave "
                "opening out, or set hidden='sampled'."
            )
