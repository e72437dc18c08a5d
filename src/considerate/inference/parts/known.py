"""Known pairs: considered and not liked, or impossible to consider."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from considerate.inference.parts.base import Part, Where
from considerate.settings import AUTO, setting, settings_group


@settings_group
class KnownSettings:
    """Settings of the given considered pairs."""

    considered_are: str = setting(
        "some",
        "how complete the given considered pairs are. some: a part of what was considered; the rest is drawn. sample: "
        "a sample of what was not liked; H has no other unliked edges, and p(like) stays that of a fair coin. all: "
        "everything that was considered; p(like) is the share of likes in it",
        "a log rarely has all that a user considered",
        words=("some", "sample", "all"),
        place=3,
        idle=lambda plan, given: not plan.observed,
    )


class KnownPart(Part):
    """Part: known pairs besides the likes."""

    settings = KnownSettings

    def contradictions(self, given: Any) -> Iterator[str]:
        if given.considered_are == "some":
            return
        if (given.hidden, given.opening or 0, given.tilt) != ("sampled", 0, 0):
            yield (
                f"considered_are is {given.considered_are!r}, which leaves nothing of H to draw or to expect; leave "
                "hidden, opening and tilt out, or set considered_are='some'."
            )
        if given.negatives == AUTO:
            yield (
                f"negatives is 'auto' and considered_are is {given.considered_are!r}, where the pairs that are given "
                "decide how many there are to a like; leave negatives out."
            )

    def refusals(self, request: Any, where: Where) -> Iterator[str]:
        if request.side.known is not None and not where.users_stay:
            yield (
                "considered and impossible pairs stay with their users; divide by users, with inner_sweeps=1, or leave "
                "them out."
            )
