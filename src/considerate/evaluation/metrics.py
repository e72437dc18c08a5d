"""Metrics over full rankings, never sampled."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def rank_score(scores: NDArray[Any], held_out: int, seen: NDArray[Any]) -> float:
    """S_rank (eq. 23) of one held-out item: the share of the items not seen in training that it is ranked above.

    The held-out item is in its own denominator, as in the paper; an item that ties counts half (the paper's strict
    inequality would count it as a loss), so random guessing gives 1/2 up to 1/(2 n).
    """
    free = np.ones(len(scores), bool)
    free[seen] = False
    free[held_out] = True
    others = scores[free]
    own = scores[held_out]
    below, ties = int((others < own).sum()), int((others == own).sum()) - 1
    return (below + 0.5 * ties) / len(others)


def mean_by_bin(
    values: NDArray[Any], by: NDArray[Any], edges: NDArray[Any]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """(means, counts) of the values whose `by` is in [edges[i], edges[i + 1]); NaN where a bin is empty."""
    place = np.searchsorted(edges, by, side="right") - 1
    inside = (place >= 0) & (place < len(edges) - 1)
    counts = np.bincount(place[inside], minlength=len(edges) - 1)
    totals = np.bincount(place[inside], values[inside], minlength=len(edges) - 1)
    means = np.full(len(counts), np.nan)
    np.divide(totals, counts, out=means, where=counts > 0)
    return means, counts
