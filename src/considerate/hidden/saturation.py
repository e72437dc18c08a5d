"""Inclusion probabilities of draws without replacement.

A user m who draws k items without replacement from pi has item n among them with a probability that

    w_mn = 1 - exp(-T_m pi_n),    T_m such that the w_mn of the items not liked add up to k

matches closely, and that cannot exceed 1, as a plain alpha_m pi_n would. The sum over all items is tabulated in
log T once, so that a user costs no more than the items liked.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.graph import Adjacency, Range, ranges

GRID_STEP = 0.05


class Saturation:
    """The table of F(T) = sum over n of 1 - exp(-T pi_n), and from it T_m of any user."""

    def __init__(self, weights: NDArray[np.float64]) -> None:
        self.weights = weights
        positive = weights[weights > 0]
        self.support = len(positive)
        self.grid_start = float(np.log(1e-4 / positive.max()))
        grid_end = float(np.log(40.0 / positive.min()))
        self.grid = np.arange(int(np.ceil((grid_end - self.grid_start) / GRID_STEP)) + 2) * GRID_STEP
        self.grid += self.grid_start
        self.table = self.tabulate(np.zeros(len(weights), np.int64), 1)[0]

    def temperatures(
        self, by_user: Adjacency, user_blocks: NDArray[np.int64], negatives: float, run: Any
    ) -> NDArray[np.float64]:
        """T_m of every user, who gets c d_m unliked items, or all that there are."""
        temperature = np.zeros(by_user.rows)

        def solve(block: Range) -> None:
            first, last = block
            starts = by_user.starts[first : last + 1]
            liked = self.weights[by_user.indices[starts[0] : starts[-1]]]
            temperature[first:last] = self._solve(starts - starts[0], liked, negatives)

        run(solve, ranges(user_blocks))
        return temperature

    def tabulate(self, group: NDArray[Any], groups: int) -> NDArray[np.float64]:
        """F_b and its slope in log T, at every point of the grid: [groups, grid, 2]."""
        drawn = self.weights > 0
        keys, counts = np.unique(np.stack([group[drawn], self.weights[drawn]]), axis=1, return_counts=True)
        table = np.zeros((groups, len(self.grid), 2))
        temperature = np.exp(self.grid)
        for b in range(groups):
            mine = keys[0] == b
            weights, often = keys[1][mine], counts[mine]
            for start in range(0, len(weights), 4096):
                part = slice(start, start + 4096)
                product = temperature[:, None] * weights[part]
                decay = np.exp(-product)
                table[b, :, 0] -= (np.expm1(-product) * often[part]).sum(axis=1)
                table[b, :, 1] += (product * decay * often[part]).sum(axis=1)
        return table

    def _total(self, temperature: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """F and dF/dT by cubic Hermite interpolation in log T; linear in T below the grid."""
        x = (np.log(temperature) - self.grid_start) / GRID_STEP
        i = np.clip(x.astype(np.int64), 0, len(self.grid) - 2)
        t = np.clip(x - i, 0.0, 1.0)
        f0, g0 = self.table[i, 0], self.table[i, 1] * GRID_STEP
        f1, g1 = self.table[i + 1, 0], self.table[i + 1, 1] * GRID_STEP
        value = (
            (2 * t**3 - 3 * t**2 + 1) * f0
            + (t**3 - 2 * t**2 + t) * g0
            + (3 * t**2 - 2 * t**3) * f1
            + (t**3 - t**2) * g1
        )
        slope = (6 * t**2 - 6 * t) * (f0 - f1) + (3 * t**2 - 4 * t + 1) * g0 + (3 * t**2 - 2 * t) * g1
        below = x < 0
        first = np.exp(self.grid_start)
        value = np.where(below, self.table[0, 0] * temperature / first, value)
        slope = np.where(below, self.table[0, 0] / first, slope / (GRID_STEP * temperature))
        return value, slope

    def _solve(self, starts: NDArray[np.int64], liked: NDArray[np.float64], negatives: float) -> NDArray[np.float64]:
        """T of the users of a block by Newton's method, which for a concave sum rises to the root from below."""
        degree = np.diff(starts)
        users = np.repeat(np.arange(len(degree)), degree)
        available = self.support - np.bincount(users, liked > 0, minlength=len(degree))
        target = np.minimum(negatives * degree, available)
        full = target >= available * (1 - 1e-9)
        most = np.exp(self.grid[-1])
        mass = self.weights.sum() - np.bincount(users, liked, minlength=len(degree))
        temperature = np.where(full | (target <= 0), 1.0, target / np.maximum(mass, 1e-300))
        temperature = np.clip(temperature, 1e-300, most)
        for _ in range(100):
            value, slope = self._total(temperature)
            product = temperature[users] * liked
            value -= np.bincount(users, -np.expm1(-product), minlength=len(degree))
            slope -= np.bincount(users, liked * np.exp(-product), minlength=len(degree))
            gap = np.where(full | (target <= 0), 0.0, target - value)
            if (np.abs(gap) <= 1e-9 * np.maximum(target, 1e-9)).all():
                break
            step = gap / np.maximum(slope, 1e-300)
            temperature = np.clip(temperature + np.maximum(step, -0.5 * temperature), 1e-300, most)
        temperature[full] = most
        temperature[target <= 0] = 1e-300
        return np.asarray(temperature, np.float64)

    def expected_per_item(self, by_user: Adjacency, temperature: NDArray[np.float64]) -> NDArray[np.float64]:
        """sum over the users who have not liked n of w_mn, for every item; users of like T are taken together."""
        used = temperature[temperature > 1e-290]
        edges = np.unique(np.quantile(used, np.linspace(0, 1, 513))) if len(used) > 513 else np.sort(used)
        place = np.clip(np.searchsorted(edges, used), 0, len(edges) - 1)
        counts = np.bincount(place, minlength=len(edges))
        totals = np.bincount(place, used, minlength=len(edges))
        centres = np.divide(totals, counts, out=np.ones(len(edges)), where=counts > 0)
        expected = np.zeros(len(self.weights))
        for centre, count in zip(centres, counts):
            if count:
                expected -= count * np.expm1(-centre * self.weights)
        users = np.repeat(np.arange(by_user.rows), by_user.degrees)
        product = temperature[users] * self.weights[by_user.indices]
        expected += np.bincount(by_user.indices, np.expm1(-product), minlength=len(self.weights))
        return np.maximum(expected, 0.0)
