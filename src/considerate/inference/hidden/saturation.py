"""Inclusion probabilities of draws without replacement.

If user m draws k items without replacement from pi, item n is among them with a probability of nearly

    w_mn = 1 - exp(-T_m pi_n),    T_m such that the w_mn of the items not liked add up to k

which, unlike a plain alpha_m pi_n, cannot exceed 1. The sum over all items is tabulated in log T once, so the work for
a user is only in proportion to the user's likes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency, Range, map_along_tree, ranges, run_serially
from considerate.data.known import Known
from considerate.kernels import compiled
from considerate.kernels.arrays import Additive

GRID_STEP = 0.05
MOST_TERMS = 1 << 20  # most terms of the sums, 16 bytes each, that are kept and not computed again for other groups


@dataclass(frozen=True)
class Inclusion:
    """Table of F(T) = sum over n of 1 - exp(-T pi_n) in log T, from which T_m of any user is computed."""

    weights: NDArray[np.float64]  # [items]
    table: NDArray[np.float64]  # [grid, 2]
    grid_start: float

    def temperatures(
        self,
        by_user: Adjacency,
        user_blocks: NDArray[np.int64],
        negatives: float,
        run: Any = run_serially,
        known: Known | None = None,
        wanted: NDArray[np.float64] | None = None,
    ) -> NDArray[np.float64]:
        """T_m of every user, for c d_m unliked items or as many as `wanted`, known ones included, or all if there are
        fewer."""
        if known is not None and wanted is None:
            wanted = known.wanted(by_user.degrees, negatives)
        by_user = by_user if known is None else known.closed(by_user, len(self.weights))
        temperature = np.zeros(by_user.rows)
        edges = (by_user.starts, by_user.indices)

        def solve(block: Range) -> None:
            compiled.solve_temperatures(
                self.table, self.grid_start, GRID_STEP, self.weights, *edges, *block, negatives, temperature, wanted
            )

        run(solve, ranges(user_blocks))
        return temperature

    def masses(
        self, by_user: Adjacency, user_blocks: NDArray[np.int64], negatives: float, run: Any = run_serially
    ) -> Masses:
        """Sum the inclusion of items over these users; blocks of users are added along the tree."""
        temperature = self.temperatures(by_user, user_blocks, negatives, run)

        def of(block: Range) -> Masses:
            edges = slice(by_user.starts[block[0]], by_user.starts[block[1]])
            items, mine = by_user.indices[edges], temperature[slice(*block)]
            product = np.repeat(mine, by_user.degrees[slice(*block)]) * self.weights[items]
            liked: NDArray[Any] = np.bincount(items, np.expm1(-product), minlength=len(self.weights))
            return self.masses_at(mine, liked)

        total: Masses = map_along_tree(of, ranges(user_blocks), run, Masses.merge)
        return total

    def masses_at(self, temperature: NDArray[np.float64], liked: NDArray[np.float64]) -> Masses:
        """Sums over users with these T; `liked` has the sums over the items that they liked."""
        used = temperature[temperature > 1e-290]
        index = ((np.log(used) - self.grid_start) / GRID_STEP).astype(np.int64)
        index = np.clip(index, 0, len(self.table) - 1)
        totals: NDArray[Any] = np.bincount(index, used, minlength=len(self.table))
        return Masses(np.bincount(index, minlength=len(self.table)), totals, liked)

    def expected_per_item(self, masses: Masses) -> NDArray[np.float64]:
        """Sum of w_mn over the users who have not liked n, for every item n. Users of similar T are taken together."""
        distinct, which = np.unique(self.weights, return_inverse=True)
        expected = np.zeros(len(distinct))
        for count, total in zip(masses.counts, masses.totals):
            if count:
                expected -= count * np.expm1(-total / count * distinct)
        return np.maximum(expected[which] + masses.liked, 0.0)


@dataclass(frozen=True)
class Masses(Additive):
    """Sums over some users, by point of the grid of T, and over their likes, by item."""

    counts: NDArray[np.int64]  # [grid] number of users
    totals: NDArray[np.float64]  # [grid] sum of T
    liked: NDArray[np.float64]  # [items] sum of -w_mn over likes


class Saturation:
    """Table of F(T), for all items and for groups of them."""

    def __init__(self, weights: NDArray[np.float64]) -> None:
        self.weights, self.total = weights, float(weights.sum())
        positive = weights[weights > 0]
        self.support = len(positive)
        self.grid_start = float(np.log(1e-4 / positive.max()))
        grid_end = float(np.log(40.0 / positive.min()))
        self.grid = np.arange(int(np.ceil((grid_end - self.grid_start) / GRID_STEP)) + 2) * GRID_STEP
        self.grid += self.grid_start
        self._distinct, self._which = np.unique(weights, return_inverse=True)
        self._all_terms: NDArray[np.float64] | None = None
        if len(self._distinct) * len(self.grid) <= MOST_TERMS:
            self._all_terms = self._terms(np.arange(len(self._distinct)))
        self.table = self.tabulate(np.zeros(len(weights), np.int64), 1)[0]

    @property
    def inclusion(self) -> Inclusion:
        return Inclusion(self.weights, self.table, self.grid_start)

    def temperature_of(self, count: NDArray[np.float64]) -> NDArray[np.float64]:
        """T with F(T) = count, or the largest T of the table if there are no more items."""
        table = self.table[:, 0]
        inside = np.exp(np.interp(count, table, self.grid))
        linear = count / table[0] * np.exp(self.grid_start)  # below the table
        return np.asarray(np.where(count < table[0], linear, inside))

    def tabulate(self, group: NDArray[Any], groups: int) -> NDArray[np.float64]:
        """F of each group and its slope in log T, at every point of the grid: [groups, grid, 2]."""
        distinct = len(self._distinct)
        often = np.bincount(group.astype(np.int64) * distinct + self._which, minlength=groups * distinct)
        table = np.zeros((groups, len(self.grid), 2))
        for b, counts in enumerate(often.reshape(groups, distinct)):
            mine = np.flatnonzero(counts)
            for start in range(0, len(mine), 4096):
                part = mine[start : start + 4096]
                table[b] += np.einsum("w,wgs->gs", counts[part], self._terms(part))
        return table

    def _terms(self, which: NDArray[np.int64]) -> NDArray[np.float64]:
        """1 - exp(-T pi) and its slope in log T for some of the distinct weights: [weights, grid, 2]."""
        if self._all_terms is not None:
            return self._all_terms[which]
        product = self._distinct[which, None] * np.exp(self.grid)
        decay = np.exp(-product)
        return np.stack([1.0 - decay, product * decay], axis=2)
