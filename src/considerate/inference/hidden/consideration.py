"""Short walks on G that model who considers which item, in place of one popularity histogram. Not in the paper.

From user m take one of m's likes n', then one of the users m' who like it, then one of that user's likes n:

    W_n'n   = (1 / d_n') sum over m' of g_m'n' g_m'n a_n / A_m'
    walk_mn = (1 / d_m) sum over n' liked by m of W_n'n
    w_mn    = (1 - eps) walk_mn + eps p_n,    p = pi / sum of pi

The last step goes to a like n with a chance in proportion to a_n = pi_n / d_n; A_m' is the sum of a over the likes of
m'.

With pi_n = d_n all likes have the same chance, and sum over m of d_m walk_mn = d_n: if users make c d_m steps, an item
is met c d_n times. H keeps the degrees of G, as in the paper, but its edges now depend on the user.

Rows of W keep the most informative entries, with the largest W log(W / p); the mass that is cut goes to pi. Rows are
shorter than the setting if the table would be much larger than the likes (`row_length`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency, Range, ranges, run_serially, transpose
from considerate.inference.parts.base import Part
from considerate.inference.parts.walk import WalkSettings
from considerate.kernels import compiled
from considerate.kernels.arrays import take_lists
from considerate.kernels.threads import locked_cached_property
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

MOST_LIKES = 4096  # steps through a user with more likes take a window of so many, so the cost is linear beyond
BLOCK_STEPS = 4_000_000  # steps of the walk in one task; its rows have at most as many entries
WAVE = 16  # blocks whose rows are made before they go into the table
ENTRIES_A_LIKE, ROOM = 8, 1 << 26  # limits on the table's entries, per like and in all; the larger one holds
FEW_ENTRIES = 1 << 17  # entries whose logarithms are computed at a time
LEAST_MIXING, NATS = 0.05, 0.5  # least eps, and most information of a step over popularity: docs/quality.md


@dataclass(frozen=True)
class Consideration:
    """Table of the walk from item to item, and its mixture with pi. A row belongs to the liked item where it starts."""

    starts: NDArray[np.int64]  # [items + 1]
    items: NDArray[np.int32]  # [entries], ascending within a row
    shares: NDArray[np.float32]  # [entries] W of the entries kept
    rest: NDArray[np.float32]  # [items] mass of a row that was cut and goes to pi; 1 if nobody liked the item
    weights: NDArray[np.float64]  # [items] pi
    mix: float  # eps
    unknown: NDArray[np.int32] | None = None  # ascending: items that nobody could have liked; their lift is 0

    @classmethod
    def of_graph(
        cls,
        by_user: Adjacency,
        by_item: Adjacency,
        weights: NDArray[np.float64],
        neighbours: int,
        mix: float | None,
        run: Any = run_serially,
    ) -> Consideration:
        """Make the table of a graph in memory. No step starts or ends at an item of weight 0."""
        likes = by_user.edges
        if np.any((weights == 0) & (by_item.degrees > 0)):
            kept = weights[by_user.indices] > 0
            by_user = by_user.keep(kept)
            by_item = transpose(by_user, len(weights))
        steps = WalkSteps(by_user, by_item, pull_of(weights, by_item.degrees))
        work = steps.work()
        length = row_length(work, neighbours, likes)
        return cls.of_rows(steps.rows(weights, length, run), int(np.minimum(work, length).sum()), weights, mix)

    @classmethod
    def of_rows(
        cls, blocks: Iterable[Rows], most: int, weights: NDArray[np.float64], mix: float | None
    ) -> Consideration:
        """Join rows of `compiled.cut_walk`, in order, to a table of at most `most` entries. Each block is copied into
        place and freed, so there is no second copy of the table. Without a `mix`, `mixing_of` chooses it."""
        items, shares, p = np.empty(most, np.int32), np.empty(most, np.float32), weights / weights.sum()
        lengths, rest, end = [np.zeros(1, np.int64)], [np.empty(0, np.float32)], 0
        nats = [np.empty(0)]
        for starts, block_items, block_shares, block_rest in blocks:
            here = slice(end, end := end + len(block_items))
            items[here], shares[here] = block_items, block_shares
            lengths.append(np.diff(starts))
            rest.append(block_rest)
            if mix is None:
                nats.append(nats_of(starts, block_items, block_shares, p))
        mix = mixing_of(np.concatenate(nats), p) if mix is None else mix
        return cls(np.cumsum(np.concatenate(lengths)), items[:end], shares[:end], np.concatenate(rest), weights, mix)

    def with_weights(self, weights: NDArray[np.float64], unknown: NDArray[np.int32] | None = None) -> Consideration:
        """Copy the table with another pi and other `unknown` items."""
        return Consideration(self.starts, self.items, self.shares, self.rest, weights, self.mix, unknown)

    def with_rows_of(
        self, by_user: Adjacency, rows: NDArray[Any], degree: NDArray[Any], neighbours: int, run: Any = run_serially
    ) -> Consideration:
        """Recompute some rows from the likes of a graph that has changed; the others stay. `degree` has all items."""
        renewed = np.zeros(self.item_count, np.bool_)
        renewed[rows] = True
        counts, items = compiled.keep_columns(by_user.starts, by_user.indices, renewed)
        fans = np.repeat(np.arange(by_user.rows, dtype=np.int32), counts)
        by_item = Adjacency.of_pairs(items, fans, self.item_count, by_user.rows)
        steps = WalkSteps(by_user, by_item, pull_of(self.weights, degree))
        room = max(ROOM, ENTRIES_A_LIKE * by_user.edges)
        length = neighbours if neighbours * self.item_count <= room else int(np.diff(self.starts).max(initial=1))
        most = int(np.minimum(steps.work(), length).sum())
        new = Consideration.of_rows(steps.rows(self.weights, length, run), most, self.weights, self.mix)
        which = np.arange(self.item_count) + self.item_count * renewed
        both = np.concatenate([self.starts, self.starts[-1] + new.starts[1:]])
        starts, places = take_lists(both, np.arange(both[-1]), which)
        to, shares = np.append(self.items, new.items)[places], np.append(self.shares, new.shares)[places]
        rest = np.where(renewed, new.rest, self.rest)
        return Consideration(starts, to, shares, rest, self.weights, self.mix, self.unknown)

    @property
    def item_count(self) -> int:
        return len(self.rest)

    @locked_cached_property
    def p(self) -> NDArray[np.float64]:
        """pi as a distribution."""
        return np.asarray(self.weights / self.weights.sum())

    @locked_cached_property
    def inverse(self) -> NDArray[np.float32]:
        """1 / p, which turns sums of W into sums of W / p: 0 if nobody liked an item, -1 for `unknown` items. Zeros pad
        it to a multiple of 16."""
        inverse = np.zeros(-(-self.item_count // 16) * 16, np.float32)
        liked = np.flatnonzero(self.p > 0)
        inverse[liked] = np.minimum(1.0 / self.p[liked], np.finfo(np.float32).max)
        if self.unknown is not None:
            inverse[self.unknown] = -1.0
        return inverse

    def arrays(self, rows: NDArray[Any]) -> Rows:
        """Arrays (starts, items, shares, rest), before a read of some rows; a table in a file verifies them here."""
        return self.starts, self.items, self.shares, self.rest

    def row(self, item: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Items and shares of one row."""
        starts, items, shares, _ = self.arrays(np.array([item]))
        entries = slice(starts[item], starts[item + 1])
        return items[entries], shares[entries]

    def table(self, liked: NDArray[Any]) -> compiled.WalkTable:
        """Rows as they are, for the kernels to read the rows of these items."""
        return compiled.WalkTable(*self.arrays(liked), self.mix)

    def lift_table(self, liked: NDArray[Any], sharpness: int = 1) -> compiled.LiftTable:
        """Rows in the form that scores read, for the rows of these items."""
        return compiled.LiftTable(*self.arrays(liked), self.inverse, self.mix, sharpness, self.unknown)

    @locked_cached_property
    def draw_table(self) -> compiled.WalkTable:
        """Rows with their alias tables, in the form that draws read."""
        rows = (self.starts, self.items, self.shares, self.rest)
        return compiled.WalkTable(*rows, self.mix, compiled.walk_slots(*rows, self.mix))

    def __reduce__(self) -> tuple[Any, ...]:
        rows = (self.starts, self.items, self.shares, self.rest)
        return Consideration, (*rows, self.weights, self.mix, self.unknown)  # cached properties are made again

    def ratios(self, liked: NDArray[Any], sharpness: int = 1) -> NDArray[np.float64]:
        """w_mn / p_n of one user, from the likes alone: the reference for the kernels. A sharpened row keeps its mass;
        its entries are in proportion to W to that power."""
        if len(liked) == 0:
            return np.ones(self.item_count)
        walked = np.zeros(self.item_count)
        for row in liked:
            items, shares = self.row(row)
            if sharpness != 1 and len(items):
                powers = shares.astype(np.float64) ** sharpness
                shares = (1.0 - self.rest[row]) * powers / powers.sum()
            p = self.p[items]
            walked[items] += np.divide(shares, p, out=np.zeros(len(p)), where=p > 0)
        background = self.mix + (1.0 - self.mix) * float(self.rest[liked].mean(dtype=np.float64))
        ratios = background + (1.0 - self.mix) / len(liked) * walked
        if self.unknown is not None:
            ratios[self.unknown] = 1.0
        return ratios

    def log_ratios(self, liked: Adjacency, sharpness: int = 1) -> NDArray[np.float32]:
        """Lift log(w_mn / p_n) of users and all items: [users, items]. Ratios below 2^-60 count as 2^-60."""
        return self.lift_table(liked.indices, sharpness).log_ratios(liked.starts, liked.indices)

    def log_ratios_of(
        self, liked: Adjacency, users: NDArray[Any], items: NDArray[Any], sharpness: int = 1
    ) -> NDArray[np.float32]:
        """Lift of listed pairs, rows of `liked` and items in any order, with the same bits as `log_ratios`."""
        order = np.argsort(users, kind="stable")
        people, first = np.unique(users[order], return_index=True)
        starts, own = np.append(first, len(users)), liked.take(people)
        found = np.empty(len(users), np.float32)
        table = self.lift_table(own.indices, sharpness)
        found[order] = table.log_ratios_of(
            own.starts, own.indices, starts.astype(np.int64), items[order].astype(np.int32)
        )
        return found


@dataclass(frozen=True)
class Lift:
    """Log lift of scores, from the walk's rows raised to the power `sharpness`."""

    walk: Consideration
    sharpness: int

    @classmethod
    def of(cls, walk: Consideration | None, plan: Any) -> Lift | None:
        """Lift of a model with this walk, fitted by this plan; None without a walk."""
        return None if walk is None else cls(walk, plan.sharpness)

    def table(self, liked: NDArray[Any]) -> compiled.LiftTable:
        """Rows in the form that scores read, for users who like these items."""
        return self.walk.lift_table(liked, self.sharpness)

    def table_of(self, rows: Rows, inverse: NDArray[np.float32]) -> compiled.LiftTable:
        """Rows of some items in the form that scores read, with 1 / p of the items that they lead to."""
        unknown = np.flatnonzero(inverse < 0).astype(np.int32)
        return compiled.LiftTable(*rows, inverse, self.walk.mix, self.sharpness, unknown)

    def powers(self) -> NDArray[np.float64]:
        """Shares of all rows, raised to the power."""
        return np.asarray(self.walk.shares.astype(np.float64) ** self.sharpness)

    def ratios(self, liked: NDArray[Any]) -> NDArray[np.float64]:
        """Ratios w / p of one user, from the likes alone."""
        return self.walk.ratios(liked, self.sharpness)

    def log_ratios(self, liked: Adjacency) -> NDArray[np.float32]:
        """Log lift of users and all items: [users, items]."""
        return self.walk.log_ratios(liked, self.sharpness)

    def log_ratios_of(self, liked: Adjacency, users: NDArray[Any], items: NDArray[Any]) -> NDArray[np.float32]:
        """Log lift of listed pairs: rows of `liked`, and items."""
        return self.walk.log_ratios_of(liked, users, items, self.sharpness)


Rows = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32], NDArray[np.float32]]  # from compiled.cut_walk


def nats_of(
    starts: NDArray[np.int64], items: NDArray[np.int32], shares: NDArray[np.float32], p: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Information of a step from each row's item over popularity: sum over n of W_n'n log(W_n'n / p_n)."""
    nats = np.zeros(len(starts) - 1)
    for first, last in ranges(row_cuts(np.diff(starts), FEW_ENTRIES)):
        part = slice(starts[first], starts[last])
        w, to = shares[part].astype(np.float64), p[items[part]]
        terms = w * np.log(np.divide(w, to, out=np.ones_like(w), where=(w > 0) & (to > 0)))
        rows = np.repeat(np.arange(last - first), np.diff(starts[first : last + 1]))
        nats[first:last] = np.bincount(rows, terms, minlength=last - first)
    return nats


def mixing_of(nats: NDArray[np.float64], p: NDArray[np.float64]) -> float:
    """Smallest eps, at least LEAST_MIXING, with which a step has at most NATS of information over popularity.

        I = sum over n' of p_n' nats_n',    eps = 1 - NATS / I

    A mixture has at most 1 - eps of the walk's information. With few likes the walk stays among the nearest items. If
    all unliked edges led to those, nothing would tell them from likes, and the vectors would collapse.
    """
    mean = float((p * nats).sum())
    # rounded, so that the last bits of log do not matter
    return max(LEAST_MIXING, round(1.0 - NATS / mean, 2)) if mean > 0 else LEAST_MIXING


def pull_of(weights: NDArray[np.float64], degree: NDArray[Any]) -> NDArray[np.float64]:
    """Weight a_n = pi_n / d_n of a like in the last step of the walk."""
    return np.asarray(np.divide(weights, degree, out=np.zeros_like(weights), where=degree > 0))


@dataclass(frozen=True)
class WalkSteps:
    """Steps of the walk from some items through some users: the likes of a part of the graph, by user and by item."""

    by_user: Adjacency
    by_item: Adjacency
    pull: NDArray[np.float64]  # [items] of the whole graph
    first_user: int = 0  # number of row 0 of `by_user` among all users
    first_item: int = 0  # number of row 0 of `by_item` among all items
    users: NDArray[np.int32] | None = None  # numbers of `by_user`'s rows, if they are not consecutive

    @locked_cached_property
    def graph(self) -> compiled.WalkGraph:
        both = (self.by_item.starts, self.by_item.indices, self.by_user.starts, self.by_user.indices)
        return compiled.WalkGraph(*both, self.pull, MOST_LIKES, self.first_user, self.first_item, self.users)

    def sums(self, items: Range) -> compiled.WalkSums:
        """Rows of the walk from these items, summed over the users in units of 2^-32."""
        return self.graph.sums(*items)

    def work(self) -> NDArray[np.int64]:
        """Number of steps to compute each item's row."""
        return self.graph.work()

    def rows(self, weights: NDArray[np.float64], length: int, run: Any = run_serially) -> Iterator[Rows]:
        """Yield all rows, cut, in blocks. All users must be in `by_user`."""
        p, blocks = weights / weights.sum(), ranges(row_cuts(self.work()))

        def cut(block: Range) -> Rows:
            return self.graph.cut_rows(*block, p, length)

        for first in range(0, len(blocks), WAVE):
            yield from run(cut, blocks[first : first + WAVE])


def row_length(work: NDArray[np.int64], neighbours: int, likes: int) -> int:
    """Most entries of a row: `neighbours`, or fewer to keep the table within its room.

    A function of the data alone. A row has at most as many entries as steps, `work`.
    """
    room, low, high = max(ROOM, ENTRIES_A_LIKE * likes), 1, neighbours
    while low < high:  # the longest that fits
        middle = (low + high + 1) // 2
        low, high = (middle, high) if np.minimum(work, middle).sum() <= room else (low, middle - 1)
    return low


def row_cuts(work: NDArray[np.int64], most: int | None = None) -> NDArray[np.int64]:
    """Boundaries of blocks of rows with about `most` steps each, or fewer: [blocks + 1]. BLOCK_STEPS if not given."""
    total = int(work.sum())
    count = max(1, -(-total // (most or BLOCK_STEPS)))
    inner = np.searchsorted(np.cumsum(work), np.arange(1, count) * (total / count))
    return np.unique(np.concatenate([[0], inner, [len(work)]])).astype(np.int64)


def without_cold(popularity: NDArray[np.float64], cold: NDArray[np.int64]) -> NDArray[np.float64]:
    """Copy pi with 0 for cold items, whose pi is only predicted."""
    if not len(cold):
        return popularity
    weights = popularity.copy()
    weights[cold] = 0.0
    return weights


def unknown_of(cold: NDArray[np.int64]) -> NDArray[np.int32] | None:
    """Cold items as the walk's `unknown`; None if there are none."""
    return cold.astype(np.int32) if len(cold) else None


# --- The model file ---

_TENSORS = ("starts", "items", "shares", "rest")  # arrays of a Consideration
_WALK = "walk.starts", "walk.items"
_AT_ONCE = 1 << 14  # rows that are checked together


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


class WalkFile(Part):
    """Part of a model file: the table of the walk."""

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
