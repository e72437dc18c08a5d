"""Where held-out likes are ranked among all items that their user did not like in training; and the best of each list.

Rankings are full, never sampled. Scores come from a Scorer in blocks of users, whose size depends on the number of
items alone; the kernels count in them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Run, run_serially
from considerate.errors import DataError, UsageError
from considerate.evaluation.scorer import Scorer, Scores
from considerate.evaluation.split import HeldOut
from considerate.kernels import compiled

BLOCK_SCORES = 1 << 22  # scores in one block of users, about


@dataclass(frozen=True)
class Ranks:
    """Where each held-out like is ranked. Its candidates are all items that its user did not like in training, itself
    and the user's other held-out items among them."""

    users: NDArray[np.int64]  # [test edges]
    items: NDArray[np.int64]  # [test edges]
    above: NDArray[np.int64]  # [test edges] candidates with a higher score
    ties: NDArray[np.int64]  # [test edges] other candidates with the same score
    candidates: NDArray[np.int64]  # [test edges]

    @property
    def scores(self) -> NDArray[np.float64]:
        """S_rank of each edge (eq. 23): the share of its candidates that it is ranked above; ties count half."""
        return np.asarray((self.candidates - 1 - self.above - 0.5 * self.ties) / self.candidates)

    @cached_property
    def people(self) -> NDArray[np.int64]:
        """[tested users] ascending: what the arrays of the metrics are aligned with."""
        return np.unique(self.users)

    @cached_property
    def user_index(self) -> NDArray[np.int64]:
        """[test edges] the index of each edge's user in `people`."""
        return np.searchsorted(self.people, self.users).astype(np.int64)

    @cached_property
    def held(self) -> NDArray[np.int64]:
        """[tested users] how many likes of each are held out."""
        return np.bincount(self.user_index, minlength=len(self.people)).astype(np.int64)


def held_ranks(scorer: Scorer, held: HeldOut, run: Run[Any, Any] = run_serially) -> Ranks:
    """The ranks of all held-out likes; `run` maps blocks of users (LocalBackend().map)."""
    return ranks_and_lists(scorer, held, None, run)[0]


def ranks_and_lists(
    scorer: Scorer, held: HeldOut, k: int | None, run: Run[Any, Any] = run_serially
) -> tuple[Ranks, NDArray[np.int32] | None]:
    """The ranks, and with k the lists of the tested users, [rows of `Ranks.people`, k], from one scoring of each user.

    A list holds the k best items that its user did not like in training; -1 where fewer remain. Of equal scores the
    lower row comes first, as in `recommend`.
    """
    if k is not None and k < 1:
        raise UsageError(f"k is {k}; a list has at least one item.")
    order = np.lexsort((held.items, held.users))
    users, items = held.users[order], held.items[order]
    people, first = np.unique(users, return_index=True)
    starts = np.append(first, len(users)).astype(np.int64)
    item_count = held.train.item_count

    def count(part: slice) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32] | None]:
        own = people[part]
        scores = _block_scores(scorer, own, item_count)
        seen = held.seen.take(own)
        edges = slice(int(starts[part.start]), int(starts[part.stop]))
        places = starts[part.start : part.stop + 1] - starts[part.start]
        above, ties, bad = compiled.count_ranks(
            scores, places, items[edges].astype(np.int32), seen.starts, seen.indices
        )
        if bad >= 0:
            raise DataError(
                f"{scorer.name} gives a score that is NaN (row {bad} of a block of users); a NaN has no rank."
            )
        return above, ties, None if k is None else compiled.best_of_rows(scores, k, seen.starts, seen.indices)[0]

    parts = run(count, _blocks(len(people), item_count))
    above, ties = np.empty((2, len(users)), np.int64)
    above[order] = np.concatenate([part[0] for part in parts])
    ties[order] = np.concatenate([part[1] for part in parts])
    candidates = item_count - held.seen.degrees[held.users]
    ranks = Ranks(held.users, held.items, above, ties, candidates.astype(np.int64))
    return ranks, None if k is None else np.concatenate([part[2] for part in parts if part[2] is not None])


def _block_scores(scorer: Scorer, users: NDArray[np.int64], item_count: int) -> Scores:
    """The scores of some users, of the right shape and one of the two types that the kernels take."""
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
    size = int(np.clip(BLOCK_SCORES // max(item_count, 1), 64, 1024))
    return [slice(first, min(first + size, users)) for first in range(0, users, size)]
