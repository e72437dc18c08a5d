"""Held-out S_rank (eq. 23) over full rankings, for ours and peers alike."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.report import THREADS
from considerate import Recommender
from considerate.evaluation.metrics import rank_score
from considerate.evaluation.split import HeldOut

KNOB = 0.5  # of ours


def training_matrix(split: HeldOut) -> Any:
    """The likes to learn from, users by items."""
    import scipy.sparse

    users, items = split.train.pairs()
    shape = (split.train.user_count, split.train.item_count)
    return scipy.sparse.csr_matrix((np.ones(len(users), np.float32), (users, items)), shape)


def mean_rank(split: HeldOut, users: NDArray[Any], items: NDArray[Any], base: NDArray[Any] | None = None) -> float:
    """Mean S_rank of users' scores u'v + base, ties counted half; `rank_score` for many users at a time."""
    by_user = split.train.by_user

    def ranks(start: int) -> float:
        rows, held = split.users[start : start + 128], split.items[start : start + 128]
        scores = users[rows] @ items.T
        if base is not None:
            scores += base
        own = scores[np.arange(len(rows)), held][:, None]
        degrees = by_user.degrees[rows]
        seen = np.concatenate([by_user.row(int(row)) for row in rows])
        scores[np.repeat(np.arange(len(rows)), degrees), seen] = np.nan  # neither below nor equal
        below, ties = np.count_nonzero(scores < own, axis=1), np.count_nonzero(scores == own, axis=1) - 1
        return float(((below + 0.5 * ties) / (scores.shape[1] - degrees)).sum())

    with ThreadPoolExecutor(THREADS) as pool:
        return sum(pool.map(ranks, range(0, len(split.users), 128))) / len(split.users)


def our_rank(split: HeldOut, model: Recommender) -> float:
    """Mean S_rank of a recommender: the mean logit + knob * log pi."""
    fitted = model.model_
    q = fitted.posterior
    base = q.items.biases[0] + np.float32(KNOB) * fitted.log_popularity
    return mean_rank(split, q.users.mean, q.items.mean, base)


def check_mean_rank(split: HeldOut) -> None:
    """The fast form agrees with the library's."""
    random = np.random.default_rng(0)
    few = HeldOut(split.train, split.users[:50], split.items[:50])
    users = random.integers(-3, 4, (split.train.user_count, 3)).astype(np.float32)  # whole numbers: there are ties
    items = random.integers(-3, 4, (split.train.item_count, 3)).astype(np.float32)
    seen = split.train.by_user
    slow = [rank_score(users[m] @ items.T, int(n), seen.row(int(m))) for m, n in zip(few.users, few.items)]
    if not np.isclose(mean_rank(few, users, items), np.mean(slow), atol=1e-9):
        raise AssertionError(f"mean_rank gives {mean_rank(few, users, items)}, rank_score {np.mean(slow)}")
