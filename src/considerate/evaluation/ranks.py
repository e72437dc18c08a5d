"""Ranks of held-out likes among all items that their user did not like in training, and the best items of each user.

Rankings are full, never sampled. A Scorer scores blocks of users, whose size depends on the number of items alone; the
kernels count in these scores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency, Run, run_serially
from considerate.errors import DataError, UsageError
from considerate.evaluation.scorer import Scorer, Scores
from considerate.evaluation.split import HeldOut
from considerate.kernels import compiled

BLOCK_SCORES = 1 << 22  # approximate number of scores in a block of users


@dataclass(frozen=True)
class Ranks:
    """Rank of each held-out like among its candidates: all items that its user did not like in training.

    The like itself and the user's other held-out likes are among the candidates.
    """

    users: NDArray[np.int64]  # [test edges]
    items: NDArray[np.int64]  # [test edges]
    above: NDArray[np.int64]  # [test edges] candidates with a higher score
    ties: NDArray[np.int64]  # [test edges] other candidates with the same score
    candidates: NDArray[np.int64]  # [test edges]

    @property
    def scores(self) -> NDArray[np.float64]:
        """[test edges] S_rank (eq. 23): the share of the candidates that the edge is ranked above; ties count half."""
        return np.asarray((self.candidates - 1 - self.above - 0.5 * self.ties) / self.candidates)

    @cached_property
    def people(self) -> NDArray[np.int64]:
        """[tested users] rows, ascending; arrays of metrics have this order."""
        return np.unique(self.users)

    @cached_property
    def user_index(self) -> NDArray[np.int64]:
        """[test edges] the index of each edge's user in `people`."""
        return np.searchsorted(self.people, self.users).astype(np.int64)

    @cached_property
    def held(self) -> NDArray[np.int64]:
        """[tested users] number of held-out likes of each."""
        return np.bincount(self.user_index, minlength=len(self.people)).astype(np.int64)


def held_ranks(scorer: Scorer, held: HeldOut, run: Run[Any, Any] = run_serially) -> Ranks:
    """Rank all held-out likes; `run` maps blocks of users (LocalBackend().map)."""
    return ranks_and_lists(scorer, held, None, run)[0]


def ranks_and_lists(
    scorer: Scorer, held: HeldOut, k: int | None, run: Run[Any, Any] = run_serially
) -> tuple[Ranks, NDArray[np.int32] | None]:
    """Rank all held-out likes; with k, also list the k best items of each tested user, [rows of `Ranks.people`, k].

    A list has the k best items that its user did not like in training, and -1 if fewer remain. Of equal scores the
    lower row comes first, as in `recommend`. Each user is scored once.
    """
    if k is not None and k < 1:
        raise UsageError(f"k is {k}; a list has at least one item.")
    by_user = _ByUser.of(held)

    def count(part: slice) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32] | None]:
        users, *rows = by_user.block(part, held.seen)
        scores = _block_scores(scorer, users, held.train.item_count)
        above, ties, bad = compiled.count_ranks(scores, *rows)
        _refuse_nan(scorer.name, bad)
        return above, ties, None if k is None else compiled.best_of_rows(scores, k, *rows[2:])[0]

    parts = run(count, _blocks(len(by_user.people), held.train.item_count))
    above, ties = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    lists = None if k is None else np.concatenate([part[2] for part in parts if part[2] is not None])
    return by_user.ranks(held, above, ties), lists


def weighted_ranks(
    rows: Callable[[NDArray[np.int64]], tuple[NDArray[np.float32], NDArray[np.float32] | None]],
    log_pi: NDArray[np.float32],
    weights: Sequence[tuple[float, float]],
    held: HeldOut,
    run: Run[Any, Any] = run_serially,
) -> list[Ranks]:
    """Rank by logit + k log pi + theta lift, for each (k, theta) of `weights`.

    `rows` returns the logits and the lifts of some users and all items, once for all weights; None if there is no lift.
    """
    by_user, pairs = _ByUser.of(held), np.array(weights, np.float32).reshape(-1, 2)

    def count(part: slice) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        users, *places = by_user.block(part, held.seen)
        logits, lifts = rows(users)
        above, ties, bad = compiled.count_weighted_ranks(logits, log_pi, lifts, pairs, *places)
        _refuse_nan("the score", bad)
        return above, ties

    parts = run(count, _blocks(len(by_user.people), held.train.item_count))
    above, ties = (np.concatenate([part[i] for part in parts], axis=1) for i in (0, 1))
    return [by_user.ranks(held, *one) for one in zip(above, ties)]


@dataclass(frozen=True)
class _ByUser:
    """The held-out likes by user, in the form that the kernels read."""

    order: NDArray[np.int64]  # [test edges] sorted by user, then item
    people: NDArray[np.int64]  # [tested users]
    starts: NDArray[np.int64]  # [tested users + 1] of items
    items: NDArray[np.int32]  # [test edges] in that order

    @classmethod
    def of(cls, held: HeldOut) -> _ByUser:
        order = np.lexsort((held.items, held.users))
        people, first = np.unique(held.users[order], return_index=True)
        starts = np.append(first, len(order)).astype(np.int64)
        return cls(order, people, starts, held.items[order].astype(np.int32))

    def block(self, part: slice, seen: Adjacency) -> tuple[NDArray[Any], ...]:
        """Some tested users with their lists: (users, starts, held, seen starts, seen)."""
        users, starts = self.people[part], self.starts[part.start : part.stop + 1]
        likes = seen.take(users)
        return users, starts - starts[0], self.items[starts[0] : starts[-1]], likes.starts, likes.indices

    def ranks(self, held: HeldOut, *counts: NDArray[np.int64]) -> Ranks:
        """Put the counts back in the order of the held-out likes."""
        above, ties = np.empty((2, len(self.order)), np.int64)
        above[self.order], ties[self.order] = counts
        candidates = held.train.item_count - held.seen.degrees[held.users]
        return Ranks(held.users, held.items, above, ties, candidates.astype(np.int64))


def _refuse_nan(name: str, bad: int) -> None:
    if bad >= 0:
        raise DataError(f"{name} gives a score that is NaN (row {bad} of a block of users); a NaN has no rank.")


def _block_scores(scorer: Scorer, users: NDArray[np.int64], item_count: int) -> Scores:
    """Score some users, and check the shape; the scores have one of the two types that the kernels read."""
    scores = np.asarray(scorer.scores(users))
    if scores.shape != (len(users), item_count):
        raise DataError(
            f"{scorer.name} gives scores of shape {scores.shape} for {len(users)} users; expected "
            f"({len(users)}, {item_count}), one for each item."
        )
    if scores.dtype not in (np.float32, np.float64):
        scores = scores.astype(np.float64)
    return np.ascontiguousarray(scores)


def _blocks(users: int, item_count: int) -> list[slice]:
    size = int(np.clip(BLOCK_SCORES // max(item_count, 1), 16, 1024))
    return [slice(first, min(first + size, users)) for first in range(0, users, size)]
