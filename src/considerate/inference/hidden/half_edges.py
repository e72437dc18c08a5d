"""Draws of H by half-edges: the first scheme of the paper's section 4.1, for study.

A user with d_m likes gets Poisson(c d_m) half-edges, an item Poisson(c |G| pi_n / sum of pi), which with pi_n = d_n is
Poisson(c d_n): in H both have (1 + c) d edges on average, unless they run out of partners. Half-edges are joined at
random, no pair twice and no pair of G. Half-edges that cannot be joined are exchanged with others.

Draws from pi without replacement (`Sampled`) give a user exactly c d_m edges, and a popular item fewer than c d_n. Here
an item keeps its degree on average, and a user's degree varies.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency, run_serially
from considerate.data.known import Known
from considerate.inference.hidden.sampled import Floats, Sampled
from considerate.inference.posterior import Side
from considerate.kernels import compiled

STREAM = 41  # random stream of the degrees
FAR = 10.0  # standard deviations above a Poisson mean at which a limit has no effect
TRIES = 50  # most exchanges that are tried for a pair


class HalfEdges(Sampled):
    """Estimator with unliked edges drawn by joining half-edges of users and items; a function of (seed, sweep)."""

    edge_bytes = 64  # the set of pairs, at most
    redraws = 0  # pairs of the last sweep that were exchanged
    left_out = 0  # half-edges of the last sweep without a partner

    @staticmethod
    def expected_unliked(likes: Adjacency, weights: Floats, negatives: float, known: Known | None = None) -> Floats:
        return _expected_half_edges(negatives * likes.degrees.astype(np.float64), len(weights) - likes.degrees)

    def draw(self, sweep: int, run: Any = run_serially, sides: tuple[Side, Side] | None = None) -> Adjacency:
        """Draw the unliked edges of H^(sweep), by user. One thread joins them."""
        likes, items = self.by_user, len(self.weights)
        random = np.random.Generator(np.random.Philox(key=[self.seed, STREAM], counter=[0, 0, 0, sweep]))
        of_item = np.bincount(likes.indices, minlength=items)
        share = self.weights / self.weights.sum()

        def half_edges(mean: NDArray[Any], room: NDArray[np.int64]) -> NDArray[np.int32]:
            return np.minimum(random.poisson(mean), room).astype(np.int32)

        counts = (
            half_edges(self.negatives * likes.degrees, items - likes.degrees),
            half_edges(self.negatives * likes.edges * share, likes.rows - of_item),
        )
        made = compiled.join_around(*counts, likes.starts, likes.indices, self.seed, sweep, TRIES)
        users_of, items_of, self.redraws, self.left_out = made
        self.drawn = len(users_of)
        return Adjacency.of_pairs(users_of, items_of, likes.rows, items)


def _expected_half_edges(mean: Floats, room: NDArray[np.int64]) -> Floats:
    """E[min(x, room)] of x ~ Poisson(mean): the mean itself if the limit is far above it."""
    near = room < mean + FAR * np.sqrt(mean) + FAR
    if not near.any():
        return mean
    from scipy.special import pdtr  # slow to import

    expected, m, most = mean.copy(), mean[near], room[near].astype(np.float64)

    def chance(count: Floats) -> Floats:  # P(x <= count)
        return np.where(count < 0, 0.0, pdtr(np.maximum(count, 0.0), m))

    expected[near] = m * chance(most - 2) + most * (1.0 - chance(most - 1))
    return expected
