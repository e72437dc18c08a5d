"""Walk from a user's likes to items near them, which models what the user considers. Not in the paper."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from considerate.inference.hidden.consideration import Consideration, Rows, unknown_of, without_cold
from considerate.inference.parts.base import Part
from considerate.settings import setting, settings_group
from considerate.storage.layout import (
    COUNT,
    MISSING,
    WEIGHT,
    Arrays,
    Check,
    Fields,
    Sizes,
    Tensor,
    below,
    described_fields,
    divides,
    each,
    rising,
)

_TENSORS = ("starts", "items", "shares", "rest")  # arrays of a Consideration
_WALK = "walk.starts", "walk.items"
_AT_ONCE = 1 << 14  # rows that are checked together


def _without_walk(plan: Any, given: Any) -> bool:
    return bool(plan.consideration == "popularity")


def _adds_up(starts: NDArray[Any], shares: NDArray[Any], rest: NDArray[Any], _: Sizes) -> bool:
    """True if the shares of each row and the rest that was cut from it add up to 1, within float32."""
    for first in range(0, len(rest), _AT_ONCE):
        ends = starts[first : first + _AT_ONCE + 1]
        total = np.append(0.0, np.cumsum(shares[ends[0] : ends[-1]], dtype=np.float64))
        if np.any(np.abs(np.diff(total[ends - ends[0]]) + rest[first : first + _AT_ONCE] - 1.0) > 1e-4):
            return False
    return True


def _all_liked(items: NDArray[Any], pi: NDArray[Any], _: Sizes) -> bool:
    return all((pi[items[first : first + _AT_ONCE]] > 0).all() for first in range(0, len(items), _AT_ONCE))


_are_shares = each(lambda part, _: ((part > 0) & (part <= 1)).all())
_are_fractions = each(lambda part, _: ((part >= 0) & (part <= 1)).all())


@settings_group
class WalkSettings:
    """Settings of the walk that finds items near those that a user likes."""

    consideration: str = setting(
        "walk",
        "whom the unliked edges lead to: what a short walk from the user's likes meets (walk), or popular items, the "
        "same for everyone (popularity, the paper's way)",
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


_FIELDS = {
    "entries": COUNT,
    "neighbours": vars(WalkSettings)["neighbours"],
    "mix": vars(WalkSettings)["mixing"],
    "lift_weight": WEIGHT,
}


def _parse(given: Any) -> dict[str, Any] | None:
    """Description of the walk's table; None without a walk, as in a file from before the walk existed."""
    return None if given is MISSING or given is None else described_fields(given, _FIELDS, "the walk")


class MappedConsideration(Consideration):
    """Walk's table in a large file. A row is verified when it is first read; all rows when whole arrays are read."""

    def __init__(self, rows: Any, weights: NDArray[np.float64], mix: float, unknown: NDArray[np.int32] | None) -> None:
        small = {name: rows.arrays[f"walk.{name}"] for name in ("starts", "rest")}
        for name in small:
            rows.stored.verify_rows(f"walk.{name}")
        rows.form.check(rows.stored, {"walk.rest": small["rest"]})
        vars(self).update(small, weights=weights, mix=mix, unknown=unknown, _rows=rows)

    def __getattr__(self, name: str) -> Any:
        if name not in ("items", "shares"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self._rows.whole()
        value = vars(self)[name] = self._rows.arrays[f"walk.{name}"]
        return value

    def arrays(self, rows: NDArray[Any]) -> Rows:
        self._rows.read(rows)
        starts, items, shares, rest = (self._rows.arrays[f"walk.{name}"] for name in _TENSORS)
        return starts, items, shares, rest


class WalkPart(Part):
    """Part: draws by a walk on G, and its lift in the score."""

    settings = WalkSettings
    fields: ClassVar[Fields] = {"walk": _parse, "walk_degree": lambda given: given is True}
    tensors = (
        Tensor("walk.starts", np.int64, ("items+1",), "walk"),
        Tensor("walk.items", np.int32, ("walk",), "walk"),
        Tensor("walk.shares", np.float32, ("walk",), "walk"),
        Tensor("walk.rest", np.float32, ("items",), "walk"),
        Tensor("walk_degree", np.int64, ("items",), "walk_degree"),
    )
    rules = (
        Check(_WALK, "the table of the walk is not divided into items", divides),
        Check(_WALK[1:], "the table of the walk names an item that is not there", below("items")),
        Check(("walk.shares",), "the table of the walk has a share that is not above 0 and at most 1", _are_shares),
        Check(("walk.rest",), "the table of the walk has a rest that is not from 0 to 1", _are_fractions),
        Check(("walk_degree",), "the tensor 'walk_degree' does not hold degrees", below(2**31)),
        Check(_WALK, "a row of the walk's table does not have distinct items in ascending order", rising),
        Check(
            ("walk.starts", "walk.shares", "walk.rest"),
            "a row of the walk's table does not add up to 1",
            _adds_up,
            True,
        ),
        Check(
            ("walk.items", "popularity"), "the table of the walk leads to an item that nobody liked", _all_liked, True
        ),
    )

    def sizes(self, about: Mapping[str, Any]) -> Sizes:
        return {"walk": about["walk"]["entries"]} if about.get("walk") else {}

    def saved(self, model: Any) -> tuple[dict[str, Any], Arrays]:
        about: dict[str, Any] = {}
        tensors: Arrays = {}
        walk = model.consideration
        if walk is not None:
            tensors |= {f"walk.{name}": getattr(walk, name) for name in _TENSORS}
            about["walk"] = {
                "entries": len(walk.items),
                "neighbours": model.plan.neighbours,
                "mix": walk.mix,
                "lift_weight": model.plan.lift,
            }
        if model.walk_degree is not None:
            about["walk_degree"], tensors["walk_degree"] = True, model.walk_degree
        return about, tensors

    def loaders(self, file: Any) -> dict[str, Callable[[], Any]]:
        def consideration() -> Consideration | None:
            walk, pi = file.about["walk"], file.part("popularity")["popularity"]
            if walk is None:
                return None
            unknown = None
            if file.about["item_features"] is not None:
                cold = np.flatnonzero((file.part("item_degree")["item_degree"] == 0) & (pi > 0))
                pi, unknown = without_cold(pi, cold), unknown_of(cold)
            if file.stored.thorough:
                rows = {name: file.arrays[f"walk.{name}"] for name in _TENSORS}
                return Consideration(**rows, weights=pi, mix=float(walk["mix"]), unknown=unknown)
            return MappedConsideration(file.lazy_rows("walk"), pi, float(walk["mix"]), unknown)

        return {
            "consideration": consideration,
            "walk_degree": lambda: file.part("walk_degree").get("walk_degree"),
        }
