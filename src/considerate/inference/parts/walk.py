"""The walk from a user's likes to items near to them: who considers what. Not in the paper.

`inference/hidden/consideration.py` has its table, the lift that follows from it, and their place in the model file.
"""

from __future__ import annotations

from typing import Any

from considerate.inference.parts.base import Part
from considerate.settings import setting, settings_group


def _without_walk(plan: Any, given: Any) -> bool:
    return bool(plan.consideration == "popularity")


@settings_group
class WalkSettings:
    """Settings of the walk that finds items near those that a user likes."""

    consideration: str = setting(
        "walk",
        "where the unliked edges lead: to items that a short walk from the user's likes meets (walk), or to popular "
        "items, the same for everyone (popularity, the paper's way)",
        "the walk tells what a user considered from what they never saw better than popularity does",
        words=("walk", "popularity"),
        paper="popularity",
        place=6,
        idle=_without_walk,
    )
    neighbours: int = setting(
        500,
        "entries kept of each item's row of the walk, fewer where the table would have more than 2^26 and more than "
        "eight a like; the rest is popularity's",
        "fewer hardly change the ranking, but p(like) is less well calibrated",
        low=1,
        high=100_000,
        integer=True,
        place=7,
        idle=_without_walk,
    )
    mixing: float | None = setting(
        None,
        "share of popularity that is mixed into the walk. If not given 0.05, or more where data is sparse and the walk "
        "tells much more than popularity does",
        "on sparse data a walk without enough popularity makes the vectors collapse",
        low=0,
        high=1,
        place=8,
        idle=_without_walk,
    )
    sharpness: int = setting(
        2,
        "the power that the walk's rows are raised to in log lift: larger ones count an item's nearest more. With 1, "
        "popularity 1 and lift 1 rank by the odds of a like being observed",
        "2 ranks better than 1 on MovieLens-1M, anime and goodbooks; 3 ranks goodbooks worse",
        low=1,
        high=8,
        integer=True,
        paper=1,
        place=16,
        before=1,
        idle=_without_walk,
    )


class WalkPart(Part):
    """Part: draws by a walk on G, and the lift that it gives a score."""

    settings = WalkSettings
