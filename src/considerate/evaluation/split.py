"""Splits of a graph into training edges and held-out edges.

A split is a function of the graph and the seed. No edge is in both parts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data import Interactions
from considerate.data.graph import Adjacency, Graph
from considerate.data.vocabulary import match_rows
from considerate.errors import DataError, UsageError

# Streams of random numbers: of the paper's split, and of the others.
STREAM, VALIDATION, SHARED, LAST = 0x591F, 0x7A11, 0x5A2E, 0x1A57
Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class HeldOut:
    """A training graph and the edges that were taken from it, with no edge in both and none twice."""

    train: Graph
    users: Rows  # [test edges]
    items: Rows  # [test edges]
    left_out: int = 0  # edges in neither part: their user or item is missing in training
    degrees: tuple[NDArray[Any], NDArray[Any]] | None = None  # of users and items, if `train` lacks their likes
    trained_users: int | None = None  # number of users in training, if `train` has others

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
        """Number of users in training."""
        return self.train.user_count if self.trained_users is None else self.trained_users

    @property
    def seen(self) -> Adjacency:
        """Training likes of each user; they are never candidates."""
        return self.train.by_user


def hold_out(graph: Graph, chosen: Mask) -> HeldOut:
    """Hold out the chosen edges and train on all others."""
    if chosen.all():
        raise DataError("nothing is left to train on; hold out less.")
    train = Graph.from_adjacency(graph.by_user.keep(~chosen), graph.item_count)
    return HeldOut(train, graph.by_user.edge_rows[chosen], graph.by_user.indices[chosen].astype(np.int64))


def one_per_user(graph: Graph, seed: int, stream: int = STREAM) -> HeldOut:
    """Hold out one random edge of every user who has at least two (the paper's split)."""
    return hold_out(graph, random_edges(graph, seed, stream))


def validation(held: HeldOut, seed: int, share: float | None = None) -> HeldOut:
    """Split the training edges of another split: hold out one edge per user, or a share of each user's edges."""
    if share is not None:
        return share_per_user(held.train, seed, share)
    return one_per_user(held.train, seed, VALIDATION)


def share_per_user(graph: Graph, seed: int, share: float) -> HeldOut:
    """Hold out a random share of every user's edges: rounded, at least one of a user who has two, and never all."""
    return hold_out(graph, shared_edges(graph, seed, share))


def last_per_user(graph: Graph, times: NDArray[Any], seed: int = 0) -> HeldOut:
    """Hold out the latest edge of every user who has at least two; `edge_times` gives the times.

    The seed decides between edges at the same last moment. An edge without a time (NaN) is never held out.
    """
    return hold_out(graph, last_edges(graph, times, seed))


# --- Choice of the held-out edges ---


def random_edges(graph: Graph, seed: int, stream: int = STREAM) -> Mask:
    """[edges] one random edge of every user who has at least two."""
    degrees = graph.by_user.degrees
    users = np.flatnonzero(degrees >= 2)
    random = _random(seed, stream).random(len(users))
    chosen = np.zeros(graph.edges, bool)
    chosen[graph.by_user.starts[users] + (random * degrees[users]).astype(np.int64)] = True
    return chosen


def shared_edges(graph: Graph, seed: int, share: float) -> Mask:
    """[edges] a random share of every user's edges, as `share_per_user` holds it out."""
    if not 0.0 < share < 1.0:
        raise UsageError(f"share is {share!r}; a share is a number between 0 and 1.")
    rows, degrees = graph.by_user, graph.by_user.degrees
    wanted = np.clip(np.round(share * degrees), 1, np.maximum(degrees - 1, 0)).astype(np.int64)
    order = np.lexsort((_random(seed, SHARED).random(rows.edges), rows.edge_rows))
    place = np.empty(rows.edges, np.int64)  # of each edge in the random order of its row
    place[order] = np.arange(rows.edges) - np.repeat(rows.starts[:-1], degrees)
    return place < np.repeat(wanted, degrees)


def last_edges(graph: Graph, times: NDArray[Any], seed: int = 0) -> Mask:
    """[edges] the latest edge of every user who has at least two, as `last_per_user` holds it out."""
    times = np.asarray(times, np.float64)
    if times.shape != (graph.edges,):
        raise UsageError(
            f"there are {times.size} times for {graph.edges} edges; make them with edge_times(graph, likes)."
        )
    users = graph.by_user.edge_rows
    several = np.flatnonzero(graph.by_user.degrees[users] >= 2)
    last = last_of_each(users, several, times, _random(seed, LAST).random(graph.edges))
    chosen = np.zeros(graph.edges, bool)
    chosen[last[~np.isnan(times[last])]] = True
    return chosen


def last_of_each(users: Rows, among: Rows, times: NDArray[np.float64], random: NDArray[np.float64]) -> Rows:
    """The latest edge of each user, of the edges `among`. NaN comes before all times; `random` decides ties."""
    known = np.where(np.isnan(times), -np.inf, times)
    order = among[np.lexsort((random[among], known[among], users[among]))]
    of = users[order]
    last: Rows = order[np.append(of[1:] != of[:-1], True)[: len(of)]]
    return last


def _random(seed: int, stream: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=[seed, stream]))


# --- Times ---


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
    """[edges] time of every edge of the graph of these likes, NaN if it has none.

    The likes must be read with `time_column`. A pair in several rows has the earliest of its known times.
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


# --- A given train and test ---


def given(
    train: tuple[NDArray[Any], NDArray[Any]],
    test: tuple[NDArray[Any], NDArray[Any]],
    user_count: int | None = None,
    item_count: int | None = None,
) -> HeldOut:
    """Make a split of a given train and test, each (users, items) as row numbers.

    A pair that is given twice counts once; a pair that is in both is refused.
    """
    (users, items), (test_users, test_items) = ([np.asarray(rows, np.int64) for rows in pair] for pair in (train, test))
    sizes = [
        count if count is not None else 1 + max(int(a.max(initial=-1)), int(b.max(initial=-1)))
        for count, a, b in ((user_count, users, test_users), (item_count, items, test_items))
    ]
    graph = Graph.from_pairs(users.astype(np.int32), items.astype(np.int32), *sizes)
    keys = np.unique(pair_keys(test_users, test_items, sizes[1]))
    return HeldOut(graph, keys // sizes[1], keys % sizes[1])


def given_likes(train: Interactions, test: Interactions) -> HeldOut:
    """Make a split of a given train and test by their own ids.

    Test likes whose user or item is missing in training are left out and counted.
    """
    users, items = rows_in(train, test)
    known = (users >= 0) & (items >= 0)
    if not known.any():
        raise DataError(f"{test.source}: none of its likes has a user and an item of {train.source}.")
    sizes = len(train.user_ids), len(train.item_ids)
    held = given((train.users, train.items), (users[known], items[known]), *sizes)
    return HeldOut(held.train, held.users, held.items, int((~known).sum()))


def rows_in(train: Any, test: Interactions) -> tuple[Rows, Rows]:
    """(users, items) of each row of `test` as row numbers of `train`, Interactions or a Model; -1 if unknown."""
    return match_rows(test.user_ids, train.user_ids)[test.users], match_rows(test.item_ids, train.item_ids)[test.items]


def only_users(graph: Graph, rows: NDArray[Any]) -> Graph:
    """The graph of some users, in this order; items keep their numbers."""
    return Graph.from_adjacency(graph.by_user.take(rows), graph.item_count)


# --- Pairs as numbers ---


def edge_keys(graph: Graph) -> Rows:
    """The key of each edge, ascending."""
    return pair_keys(graph.by_user.edge_rows, graph.by_user.indices, graph.item_count)


def pair_keys(users: NDArray[Any], items: NDArray[Any], item_count: int) -> Rows:
    """The key of each pair: user * item_count + item."""
    return np.asarray(users, np.int64) * item_count + np.asarray(items, np.int64)


def is_among(keys: Rows, ascending: Rows) -> Mask:
    """[keys] whether each is in an ascending array."""
    if len(ascending) == 0:
        return np.zeros(len(keys), bool)
    at = np.minimum(np.searchsorted(ascending, keys), len(ascending) - 1)
    return np.asarray(ascending[at] == keys)
