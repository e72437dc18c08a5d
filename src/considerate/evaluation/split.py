"""Splits of a graph into training and test edges. Which edges is a function of the seed, and none is in both."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data import Interactions
from considerate.data.graph import Adjacency, Graph
from considerate.errors import DataError, UsageError

STREAM = 0x591F  # of the paper's split; the others have their own
VALIDATION, SHARED, LAST, STRONG = 0x7A11, 0x5A2E, 0x1A57, 0x5720


@dataclass(frozen=True)
class HeldOut:
    """A training graph and the edges that were taken from it; checked when created: no edge is in both, none twice."""

    train: Graph
    users: NDArray[np.int64]  # [test edges]
    items: NDArray[np.int64]  # [test edges]
    left_out: int = 0  # edges that are in neither: of users without training, or with ids that training lacks
    degrees: tuple[NDArray[Any], NDArray[Any]] | None = None  # of users and items, where `train` lacks the likes
    trained_users: int | None = None  # users of training, where `train` has others

    def __post_init__(self) -> None:
        if self.users.shape != self.items.shape or self.users.ndim != 1:
            raise DataError(f"{len(self.users)} users and {len(self.items)} items are held out; expected pairs.")
        if len(self.users) == 0:
            raise DataError(
                "not a single like is held out; a test needs at least one (a user with two likes gives one)."
            )
        for rows, count, what in (
            (self.users, self.train.user_count, "user"),
            (self.items, self.train.item_count, "item"),
        ):
            if int(rows.min()) < 0 or int(rows.max()) >= count:
                raise DataError(f"a held-out {what} is not among the {count} {what}s of training.")
        keys = pair_keys(self.users, self.items, self.train.item_count)
        if len(np.unique(keys)) != len(keys):
            raise DataError("a pair is held out twice; fold duplicates first.")
        both = is_among(keys, edge_keys(self.train))
        if both.any():
            raise DataError(
                f"{int(both.sum())} of {len(keys)} held-out likes are also in training; take them out of one."
            )

    @property
    def training_users(self) -> int:
        return self.train.user_count if self.trained_users is None else self.trained_users

    @property
    def seen(self) -> Adjacency:
        """What each user liked in training: never a candidate."""
        return self.train.by_user


@dataclass(frozen=True)
class StrongSplit:
    """Strong generalisation: users of whom training knows nothing, some of their likes folded in, the others ranked.

    `fold.train` holds the likes to fold in, `fold.users` and `fold.items` those that are held out; its rows are those
    of `fold_users`. Score them with ModelScorer(model, users=model.fold_in.users(split.fold.train.by_user)).
    """

    train: Graph
    train_users: NDArray[np.int64]  # [rows of train] rows of the whole graph
    fold: HeldOut
    fold_users: NDArray[np.int64]  # [rows of fold.train] rows of the whole graph

    def __post_init__(self) -> None:
        if np.intersect1d(self.train_users, self.fold_users).size:
            raise DataError("a user is both trained on and folded in.")


def one_per_user(graph: Graph, seed: int, stream: int = STREAM) -> HeldOut:
    """One random edge of every user who has at least two (the paper's split). Which one is a function of the seed."""
    degrees = graph.by_user.degrees
    users = np.flatnonzero(degrees >= 2)
    random = np.random.Generator(np.random.Philox(key=[seed, stream]))
    places = graph.by_user.starts[users] + (random.random(len(users)) * degrees[users]).astype(np.int64)
    chosen = np.zeros(graph.edges, bool)
    chosen[places] = True
    return without(graph, chosen)


def validation(held: HeldOut, seed: int, share: float | None = None) -> HeldOut:
    """A split of the training edges of another: one per user, or a share of each user's. The test edges are in
    neither part."""
    if share is not None:
        return share_per_user(held.train, seed, share)
    return one_per_user(held.train, seed, VALIDATION)


def share_per_user(graph: Graph, seed: int, share: float) -> HeldOut:
    """A random share of every user's edges: rounded, at least one of a user who has two, and never all."""
    _check_share("share", share)
    degrees = graph.by_user.degrees
    wanted = np.clip(np.round(share * degrees), 1, np.maximum(degrees - 1, 0)).astype(np.int64)
    return without(graph, _random_places(graph.by_user, seed, SHARED) < np.repeat(wanted, degrees))


def last_per_user(graph: Graph, times: NDArray[Any], seed: int = 0) -> HeldOut:
    """The last edge in time of every user who has at least two, of `times` by `edge_times`.

    Of several at the same last moment one is drawn by the seed. An edge without a time (NaN) is never held out; a user
    whose edges have none is not tested.
    """
    times = _edge_values(graph, times)
    degrees = graph.by_user.degrees
    random = np.random.Generator(np.random.Philox(key=[seed, LAST])).random(graph.edges)
    users = graph.by_user.edge_rows
    known = np.where(np.isnan(times), -np.inf, times)
    order = np.lexsort((random, known, users))  # the last of a row is its latest
    last = order[graph.by_user.starts[1:][degrees >= 2] - 1]
    chosen = np.zeros(graph.edges, bool)
    chosen[last[~np.isnan(times[last])]] = True
    return without(graph, chosen)


def by_date(graph: Graph, times: NDArray[Any], date: float | str | datetime) -> HeldOut:
    """Edges from a date on are held out, those before it are trained on. An edge without a time (NaN) is trained on.

    Edges of users without any before the date are left out and counted. A text is ISO, such as 2024-05-01, in UTC
    where it names no zone; a number is in the unit of `times`.
    """
    times = _edge_values(graph, times)
    chosen = times >= moment(date)
    users = graph.by_user.edge_rows
    known = np.bincount(users[~chosen], minlength=graph.user_count) > 0
    return without(graph, chosen, dropped=chosen & ~known[users])


def moment(date: float | str | datetime) -> float:
    """A date in seconds since 1970 UTC, as a time column is read; a number as it is."""
    if isinstance(date, str):
        try:
            date = datetime.fromisoformat(date)
        except ValueError:
            raise UsageError(f"{date!r} is not a date; write it as 2024-05-01 or 2024-05-01T18:30:00.") from None
    if isinstance(date, datetime):
        return (date if date.tzinfo is not None else date.replace(tzinfo=UTC)).timestamp()
    if not math.isfinite(date):
        raise UsageError(f"the date is {date}; expected a finite number or an ISO date.")
    return float(date)


def edge_times(graph: Graph, likes: Interactions) -> NDArray[np.float64]:
    """The time of every edge of the graph of these likes, read with `time_column`; NaN where it has none.

    A pair that comes several times is a like since the first of them: it has the earliest of its known times.
    """
    if likes.times is None:
        raise UsageError(f"{likes.source} was read without times; name their column with time_column (--time-column).")
    keys = edge_keys(graph)
    wanted = pair_keys(likes.users, likes.items, graph.item_count)
    if not is_among(wanted, keys).all():
        raise DataError(f"{likes.source} has a pair that the graph lacks; make the graph of the same likes.")
    known = ~np.isnan(likes.times)
    answer = np.full(graph.edges, np.inf)
    np.minimum.at(answer, np.searchsorted(keys, wanted[known]), likes.times[known])
    answer[np.isinf(answer)] = np.nan
    return answer


def strong(graph: Graph, seed: int, users: float = 0.1, folded: float = 0.8) -> StrongSplit:
    """Held-out users: a share of those with two likes or more, drawn by the seed. A share of each one's likes is to be
    folded in (rounded, at least one and never all), the others are ranked."""
    _check_share("users", users)
    _check_share("folded", folded)
    degrees = graph.by_user.degrees
    able = np.flatnonzero(degrees >= 2)
    count = round(users * len(able))
    if count < 1 or count >= graph.user_count:
        raise UsageError(
            f"a share of {users} of {len(able)} users with two likes or more is {count}; expected at least one, and "
            "someone left to train on: change the share."
        )
    random = np.random.Generator(np.random.Philox(key=[seed, STRONG]))
    chosen = np.sort(random.permutation(able)[:count])
    others = np.setdiff1d(np.arange(graph.user_count), chosen)
    part = only_users(graph, chosen)
    wanted = np.clip(np.round(folded * part.by_user.degrees), 1, part.by_user.degrees - 1).astype(np.int64)
    places = _random_places(part.by_user, seed, STRONG + 1)
    fold = without(part, places >= np.repeat(wanted, part.by_user.degrees))
    return StrongSplit(only_users(graph, others), others.astype(np.int64), fold, chosen.astype(np.int64))


def given(
    train: tuple[NDArray[Any], NDArray[Any]],
    test: tuple[NDArray[Any], NDArray[Any]],
    user_count: int | None = None,
    item_count: int | None = None,
) -> HeldOut:
    """A given train and test, each (users, items) as row numbers; pairs given twice are folded, and a pair that is in
    both is refused."""
    (users, items), (test_users, test_items) = ([np.asarray(rows, np.int64) for rows in pair] for pair in (train, test))
    sizes = [
        count if count is not None else 1 + max(int(a.max(initial=-1)), int(b.max(initial=-1)))
        for count, a, b in ((user_count, users, test_users), (item_count, items, test_items))
    ]
    graph = Graph.from_pairs(users.astype(np.int32), items.astype(np.int32), *sizes)
    keys = np.unique(pair_keys(test_users, test_items, sizes[1]))
    return HeldOut(graph, keys // sizes[1], keys % sizes[1])


def given_likes(train: Interactions, test: Interactions) -> HeldOut:
    """A given train and test as they were read: by their own ids. Test likes of users or items that training lacks are
    left out and counted."""
    users, items = rows_in(train, test)
    known = (users >= 0) & (items >= 0)
    if not known.any():
        raise DataError(f"{test.source}: none of its likes has a user and an item of {train.source}.")
    sizes = len(train.user_ids), len(train.item_ids)
    held = given((train.users, train.items), (users[known], items[known]), *sizes)
    return HeldOut(held.train, held.users, held.items, int((~known).sum()))


def rows_in(train: Any, test: Interactions) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(users, items) of each row of `test` as row numbers of `train`, Interactions or a Model; -1 where unknown."""
    users = train.user_ids.rows_of(test.user_ids.ids_of(range(len(test.user_ids))))
    items = train.item_ids.rows_of(test.item_ids.ids_of(range(len(test.item_ids))))
    return users[test.users], items[test.items]


def without(graph: Graph, chosen: NDArray[np.bool_], dropped: NDArray[np.bool_] | None = None) -> HeldOut:
    """The edges that are chosen held out, all others trained on; edges dropped as well are in neither."""
    if chosen.all():
        raise DataError("nothing is left to train on; hold out less.")
    train = Graph.from_adjacency(graph.by_user.keep(~chosen), graph.item_count)
    tested = chosen if dropped is None else chosen & ~dropped
    users = graph.by_user.edge_rows[tested]
    return HeldOut(train, users, graph.by_user.indices[tested].astype(np.int64), int((chosen & ~tested).sum()))


def only_users(graph: Graph, rows: NDArray[Any]) -> Graph:
    """The graph of some users, in this order; items keep their numbers."""
    return Graph.from_adjacency(graph.by_user.take(rows), graph.item_count)


def _random_places(rows: Adjacency, seed: int, stream: int) -> NDArray[np.int64]:
    """The place of each edge in a random order of its row."""
    random = np.random.Generator(np.random.Philox(key=[seed, stream])).random(rows.edges)
    order = np.lexsort((random, rows.edge_rows))
    places = np.empty(rows.edges, np.int64)
    places[order] = np.arange(rows.edges)
    return places - np.repeat(rows.starts[:-1], rows.degrees)


def edge_keys(graph: Graph) -> NDArray[np.int64]:
    """One number per edge, ascending."""
    return pair_keys(graph.by_user.edge_rows, graph.by_user.indices, graph.item_count)


def pair_keys(users: NDArray[Any], items: NDArray[Any], item_count: int) -> NDArray[np.int64]:
    """One number per pair."""
    return np.asarray(users, np.int64) * item_count + np.asarray(items, np.int64)


def is_among(keys: NDArray[np.int64], ascending: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which keys are among others, which ascend."""
    if len(ascending) == 0:
        return np.zeros(len(keys), bool)
    at = np.searchsorted(ascending, keys)
    at[at == len(ascending)] = 0
    return np.asarray(ascending[at] == keys)


def _edge_values(graph: Graph, times: NDArray[Any]) -> NDArray[np.float64]:
    values = np.asarray(times, np.float64)
    if values.shape != (graph.edges,):
        raise UsageError(
            f"there are {values.size} times for {graph.edges} edges; make them with edge_times(graph, likes)."
        )
    return values


def _check_share(name: str, share: float) -> None:
    if not 0.0 < share < 1.0:
        raise UsageError(f"{name} is {share!r}; a share is a number between 0 and 1.")
