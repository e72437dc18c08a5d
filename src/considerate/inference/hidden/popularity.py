"""Histogram pi of the draws of unliked edges of H (eq. 7-9), and its correction for popular items."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency, run_serially
from considerate.inference.hidden.saturation import Inclusion, Masses, Saturation

ROUNDS = 20  # most rounds of the correction


def popularity_exponent(item_degree: NDArray[Any], rate: float) -> float:
    """Exponent gamma of eq. 9, with which the most popular item has weight r d_max (eq. 8).

        gamma = 1 + log r / log d_max

    With d_max = 1 every item has the same weight for any gamma; it is then 1.
    """
    largest = int(np.max(item_degree, initial=0))
    return 1.0 if largest <= 1 else 1.0 + math.log(rate) / math.log(largest)


def popularity_weights(item_degree: NDArray[Any], gamma: float) -> NDArray[np.float64]:
    """Weights pi_n = d_n^gamma (eq. 7). An item that nobody liked has weight 0 for any gamma: it is never drawn."""
    degree = np.asarray(item_degree, np.float64)
    weights = np.zeros_like(degree)
    np.power(degree, gamma, out=weights, where=degree > 0)
    return weights


def correct_head(
    weights: NDArray[np.float64],
    by_user: Adjacency,
    user_blocks: NDArray[np.int64],
    negatives: float,
    run: Any = run_serially,
) -> NDArray[np.float64]:
    """Compute a histogram pi' with which each item's *expected* unliked edges follow pi.

    Draws that hit liked items are discarded, so popular items get fewer unliked edges than in proportion to pi (the
    note to the paper's figure 3). With the chance w_mn = 1 - exp(-T_m pi'_n) that m draws n, this scales

        pi'_n <- pi'_n * target_n / sum over m that have not liked n of w_mn,    target_n = c |G| pi_n / sum pi

    until they agree. An item with so many likes that its target is out of reach keeps the most that it can have.
    """

    def masses(inclusion: Inclusion) -> Masses:
        return inclusion.masses(by_user, user_blocks, negatives, run)

    item_degree = np.bincount(by_user.indices, minlength=len(weights))
    return correct_head_by(weights, item_degree, by_user.rows, negatives, masses)


def correct_head_by(
    weights: NDArray[np.float64],
    item_degree: NDArray[Any],
    users: int,
    negatives: float,
    masses: Callable[[Inclusion], Masses],
) -> NDArray[np.float64]:
    """Correct a histogram like `correct_head`, with a function `masses` that sums over the likes (Inclusion.masses)."""
    target = negatives * int(item_degree.sum()) * weights / weights.sum()
    target = np.minimum(target, 0.95 * (users - item_degree))
    corrected = weights.copy()
    drawn = weights > 0
    for _ in range(ROUNDS):
        inclusion = Saturation(corrected).inclusion
        expected = inclusion.expected_per_item(masses(inclusion))
        factor = np.ones_like(corrected)
        np.divide(target, expected, out=factor, where=drawn & (expected > 0))
        corrected *= np.clip(factor, 0.25, 4.0)
        corrected *= weights.sum() / corrected.sum()
        if np.abs(factor[drawn] - 1.0).max() < 1e-3:
            break
    return corrected
