"""Estimator that draws H^(t) and sums over its edges (Algorithm 1)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency, Graph, Range, ranges, run_serially, transpose
from considerate.data.known import Known
from considerate.inference.hidden.consideration import Consideration
from considerate.inference.hidden.estimator import Terms
from considerate.inference.posterior import Posterior, Side
from considerate.kernels import compiled
from considerate.kernels.arrays import Spare, empty

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Draws:
    """Distribution of the draws: pi with its alias table, the table of the walk if there is one, and the tilt."""

    weights: NDArray[np.float64]
    thresholds: NDArray[np.uint64]
    aliases: NDArray[np.int32]
    consideration: Consideration | None = None
    tilt: float = 0.0  # t: how far draws lean away from items that the user would like, or towards them if t < 0

    @classmethod
    def of(cls, weights: NDArray[np.float64], consideration: Consideration | None = None, tilt: float = 0.0) -> Draws:
        return cls(weights, *compiled.alias_table(weights), consideration, tilt)


class Sampled:
    """Estimator with unliked edges drawn from pi or by a walk, without replacement.

    The draws are a function of (seed, sweep, user). Tilted draws also depend on the posterior before the sweep.

    A tilt t multiplies the weights by exp(t B-), or exp(-t B+) if t < 0. Draws without replacement include item n with
    a chance r that satisfies log(-log(1 - r)) = log T + log w_n + t B-, with T from the number of draws. This is the
    exact step of q(h), logit r = logit w + t B-, only if r is small.

    A sum over all items weighted by E[h] is the average, over draws of H, of a sum over the edges drawn (eq. 14): one
    draw gives an unbiased step. Row 0 is user `first_user`: a part of the users has the same draws as among all users.
    Known considered pairs are edges of every H and count against c d_m; impossible pairs are never drawn. `counts` is
    the number of edges that each user draws, if not c for each like. `user_offset`, which a tilt reads, is added to
    -log c in the users' logits.
    """

    deterministic = False
    edge_bytes = 0  # memory of a draw for each edge of H, besides the edges

    @staticmethod
    def expected_unliked(likes: Adjacency, weights: Floats, negatives: float, known: Known | None = None) -> Floats:
        """Expected number k_m of unliked edges of each user."""
        about = None if known is None else known.for_draws(likes.rows, weights)
        return compiled.expected_negatives(negatives, weights, likes.starts, likes.indices, about)

    def __init__(
        self,
        by_user: Adjacency,
        user_blocks: NDArray[np.int64],
        weights: NDArray[np.float64] | Draws,
        negatives: float,
        seed: int,
        *,
        first_user: int = 0,
        known: Known | None = None,
        counts: NDArray[np.int64] | None = None,
        user_offset: NDArray[np.float32] | None = None,
        spare: Spare | None = None,
    ) -> None:
        self._counts, self._user_offset = counts, user_offset
        self.by_user, self.user_blocks, self.first_user = by_user, user_blocks, first_user
        self.draws = weights if isinstance(weights, Draws) else Draws.of(weights)
        self.weights, self.negatives, self.seed = self.draws.weights, negatives, seed
        self._known = None if known is None else known.for_draws(by_user.rows, self.weights)
        self._unliked: Adjacency | None = None
        self._spare = Spare() if spare is None else spare
        self.rejections = 0  # draws of the last sweep that hit an item liked or drawn already
        self.tree_draws = 0  # draws of the last sweep from a weighted tree
        self.fallbacks = 0  # draws of the last sweep from pi, as the walk had no item left
        self.drawn = 0  # edges of the last sweep

    def _key(self, sweep: int) -> tuple[int, int, float, NDArray[np.float64], NDArray[np.uint64], NDArray[np.int32]]:
        return self.seed, sweep, self.negatives, self.weights, self.draws.thresholds, self.draws.aliases

    def counts(self, sweep: int, run: Any = run_serially) -> NDArray[np.int64]:
        """Number of edges that each user draws: c for each like, or all items that are left."""
        counts = empty((self.by_user.rows,), np.int64, self._spare)

        def count(block: Range) -> None:
            edges = self.by_user.starts, self.by_user.indices
            compiled.count_negatives(*self._key(sweep), *edges, *block, counts, self.first_user, self._known)

        run(count, ranges(self.user_blocks))
        return counts

    def draw(self, sweep: int, run: Any = run_serially, sides: tuple[Side, Side] | None = None) -> Adjacency:
        """Draw the unliked edges of H^(sweep), by user. A tilt needs the users and items at the start of the sweep."""
        starts = empty((self.by_user.rows + 1,), np.int64, self._spare)
        starts[0], starts[1:] = 0, self.counts(sweep, run) if self._counts is None else self._counts
        key, edges = self._key(sweep), (self.by_user.starts, self.by_user.indices)
        np.cumsum(starts, out=starts)
        self.drawn = int(starts[-1])
        out = empty((self.drawn,), np.int32, self._spare)

        walk = None if self.draws.consideration is None else self.draws.consideration.draw_table
        tilt = self._tilt(sides)

        def fill(block: Range) -> tuple[int, int, int]:
            return compiled.draw_negatives(*key, *edges, *block, starts, out, self.first_user, walk, tilt, self._known)

        self.rejections, self.tree_draws, self.fallbacks = map(sum, zip(*run(fill, ranges(self.user_blocks))))
        return Adjacency(starts, out)

    def _tilt(self, sides: tuple[Side, Side] | None) -> compiled.Tilt | None:
        if self.draws.tilt == 0.0:
            return None
        assert sides is not None, "tilted draws lean on the posterior"
        users, items = sides
        offset = -math.log(self.negatives)  # as in the bound that q(H) raises
        constants = compiled.Constants(offset, user_offset=self._user_offset)
        return compiled.Tilt(self.draws.tilt, users.for_kernels(), items.for_kernels(), constants)

    def user_terms(self, sweep: int, posterior: Posterior, run: Any) -> Terms:
        self._unliked = self.draw(sweep, run, (posterior.users, posterior.items))
        return Terms(unliked=self._unliked)

    def item_terms(self, sweep: int, posterior: Posterior, run: Any) -> Terms:
        assert self._unliked is not None
        unliked, self._unliked = self._unliked, None
        return Terms(unliked=transpose(unliked, len(self.weights), run, self._spare))

    def settled(self, sweep: int) -> bool:
        return True


def positives_to_negatives(graph: Graph, unliked: Adjacency) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Numbers of liked and of unliked edges of every item in a drawn H: the paper's figure 3."""
    return graph.by_item.degrees, np.bincount(unliked.indices, minlength=graph.item_count)
