"""Chances that pairs are drawn into H: w_mn = 1 - exp(-T_m w_n), with w_n the user's own weights, or pi.

T_m is chosen so that the chances of a user's open items, neither liked nor impossible, add up to the expected number
of draws.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency, row_blocks
from considerate.data.known import Known
from considerate.inference.hidden.consideration import Consideration
from considerate.inference.hidden.saturation import GRID_STEP, Saturation
from considerate.kernels import compiled

Floats = NDArray[np.float64]

MOST_TEMPERATURE = 1e300  # finite, so that its product with a weight of 0 is 0


@dataclass(frozen=True)
class PairChances:
    """Chances of draws by the walk, or by pi without a walk."""

    saturation: Saturation  # of pi
    consideration: Consideration | None = None

    @property
    def weights(self) -> Floats:
        """pi."""
        return self.saturation.weights

    def of(self, liked: Adjacency, pairs: Adjacency, counts: Floats, limits: Known | None = None) -> Floats:
        """Chances of `pairs`, one user after the other; user i likes row i of `liked` and draws counts[i] items.

        0 for impossible pairs, NaN for a user without likes, undefined for likes.
        """
        if self.consideration is not None:
            return self._by_walk(self.consideration, liked, pairs, counts, limits)()
        closed = self._closed(liked, limits)
        temperature = self._temperatures(liked, counts, closed)
        temperature[liked.degrees == 0] = np.nan
        chances = -np.expm1(-temperature[pairs.edge_rows] * self.weights[pairs.indices])
        if closed is not None:
            chances[closed.are_impossible(pairs.edge_rows, pairs.indices)] = 0.0
        return np.asarray(chances)

    def of_all(self, liked: Adjacency, counts: Floats, limits: Known | None = None) -> Floats:
        """Chances [users, items] of all pairs; a like has the chance of an open item, by the same T_m.

        0 for impossible pairs that are not liked. Every user must like something.
        """
        if self.consideration is None:
            product = np.tile(self.weights, (liked.rows, 1))
            temperature = self._temperatures(liked, counts, self._closed(liked, limits))
        else:
            product = np.exp(self.consideration.log_ratios(liked).astype(np.float64))
            product *= self.weights / self.weights.sum()
            temperature, none = np.empty(liked.rows), np.empty(0, np.int32)
            no_pairs = Adjacency(np.zeros(liked.rows + 1, np.int64), none)
            self._by_walk(self.consideration, liked, no_pairs, counts, limits)(temperatures=temperature)
        product *= -np.minimum(temperature, MOST_TEMPERATURE)[:, None]
        chances = -np.expm1(product, out=product)
        if limits is not None:
            for user, own in enumerate(chances):
                shut = limits.impossible_items(user, len(self.weights))
                shut[liked.row(user)] = False
                own[shut] = 0.0
        return np.asarray(chances)

    def _by_walk(
        self, table: Consideration, liked: Adjacency, pairs: Adjacency, counts: Floats, limits: Known | None
    ) -> Callable[..., Floats]:
        """Kernel for chances of pairs, with its arguments. It writes T_m of the users to `temperatures` if given."""
        sums = self.saturation
        by_popularity = sums.weights, sums.total, sums.table, sums.grid_start, GRID_STEP
        arrays = (liked.starts, liked.indices, pairs.starts, pairs.indices, counts)
        starts, closed = (None, None) if limits is None else self._impossible(limits, liked.rows)
        return partial(compiled.own_inclusion, table.table(liked.indices), *by_popularity, *arrays, starts, closed)

    def _temperatures(self, liked: Adjacency, counts: Floats, closed: Known | None) -> Floats:
        """T_m of users whose H is drawn by popularity."""
        blocks, unused = row_blocks(liked.starts), 1.0  # c is not read, as the counts are given
        return self.saturation.inclusion.temperatures(liked, blocks, unused, known=closed, wanted=counts)

    def _closed(self, liked: Adjacency, limits: Known | None) -> Known | None:
        """Impossible pairs, with rules expanded; None without limits."""
        return None if limits is None else Known(None, Adjacency(*self._impossible(limits, liked.rows)))

    def _impossible(self, limits: Known, users: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Starts and items of the impossible pairs of each user, with rules expanded."""
        if limits.rules is None and limits.impossible is not None:
            return limits.impossible.starts, limits.impossible.indices
        items = len(self.weights)
        rows = [np.flatnonzero(limits.impossible_items(user, items)).astype(np.int32) for user in range(users)]
        lists = Adjacency.of_rows(rows)
        return lists.starts, lists.indices
