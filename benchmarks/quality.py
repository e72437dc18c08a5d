"""Held-out S_rank (eq. 23) over full rankings, for ours and peers alike."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.report import THREADS
from considerate import Recommender
from considerate.evaluation.ranks import held_ranks
from considerate.evaluation.scorer import FunctionScorer, ModelScorer, Scorer
from considerate.evaluation.split import HeldOut
from considerate.kernels.threads import LocalBackend

KNOB = 0.5  # of ours


def mean_of(split: HeldOut, scorer: Scorer) -> float:
    with LocalBackend(THREADS) as backend:
        return float(held_ranks(scorer, split, backend.map).scores.mean())


def mean_rank(split: HeldOut, users: NDArray[Any], items: NDArray[Any], base: NDArray[Any] | float = 0.0) -> float:
    """Mean S_rank of users' scores u'v + base, ties counted half."""
    return mean_of(split, FunctionScorer(lambda rows: users[rows] @ items.T + np.float32(base), "factors"))


def our_rank(split: HeldOut, model: Recommender) -> float:
    """Mean S_rank of a recommender: the mean logit + knob * log pi."""
    return mean_of(split, ModelScorer(model.model_, KNOB))
