"""The histogram pi that unliked edges of H are drawn from (eq. 7-9), and its correction at the head."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency, run_serially
from considerate.inference.hidden.saturation import Inclusion, Masses, Saturation

ROUNDS = 20  # of the correction at most


def popularity_exponent(item_degree: NDArray[Any], rate: float) -> float:
    """gamma of eq. 9, such that the most popular item has weight r d_max (eq. 8).

        gamma = 1 + log r / log d_max

    With d_max = 1 every item weighs the same for any gamma; it is then 1.
    """
    largest = int(np.max(item_degree, initial=0))
    return 1.0 if largest <= 1 else 1.0 + math.log(rate) / math.log(largest)


def popularity_weights(item_degree: NDArray[Any], gamma: float) -> NDArray[np.float64]:
    """pi_n = d_n^gamma (eq. 7). An item nobody liked weighs nothing, whatever gamma is: it is never drawn."""
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
    """Another histogram pi', such that each item's *expected* unliked edges follow pi.

    Draws that hit liked items are discarded, so popular items get fewer unliked edges than pi says (the note to
    the paper's figure 3). With w_mn = 1 - exp(-T_m pi'_n) the chance that m draws n, this scales

        pi'_n <- pi'_n * target_n / sum over m that have not liked n of w_mn,    target_n = c |G| pi_n / sum pi

    until they agree. An item liked by so many that its target is out of reach keeps the most that it can have.
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
    """The same, where the likes are elsewhere: `masses` sums over them (Inclusion.masses)."""
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
