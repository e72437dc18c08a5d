"""Expected edges of H in a graph of one kind of vertex, where a pair is in H if either end draws it.

    r_mn = 1 - (1 - w_mn)(1 - w_nm),    w_mn = p(m draws n),    sum over n of w_mn = k_m
    K    = sum over pairs of r_mn = sum over m of k_m - 1/2 sum over m and n of w_mn w_nm

k_m is c d_m / 2, or all vertices that m may draw if they are fewer. With E links, K is less than c E if vertices run
out or both ends draw the same pair. The offset of every pair's logit is -log(K / E), so a logit of 0 means that links
and pairs without a link are equally likely. A vertex has no offset of its own, as it has a bias.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency, Range, ranges, run_serially
from considerate.data.known import Known
from considerate.inference.hidden.pair_chances import PairChances
from considerate.kernels import compiled
from considerate.kernels.arrays import add_in_order

Floats = NDArray[np.float64]

MOST_PAIRS = 1 << 22  # most pairs that are added up; in a larger graph a sample of vertices stands for all
LEAST_VERTICES = 512  # least size of a sample: K is then within about 1 %
AT_ONCE = 1 << 21  # pairs of one task
LEAST_UNLINKED = 2.0**-40  # K / E of a graph whose pairs are all linked


def either(own: Floats, theirs: Floats) -> Floats:
    """Chance that either end draws a pair."""
    return 1.0 - (1.0 - own) * (1.0 - theirs)


@dataclass(frozen=True)
class VertexDraws:
    """Draws of some vertices, c d / 2 each."""

    edges: Adjacency  # links of each vertex
    chances: PairChances
    negatives: float  # c
    itself: Known  # the pair of each vertex with itself, which is impossible

    @cached_property
    def counts(self) -> Floats:
        """Expected number of draws of each vertex."""
        weights = self.chances.weights
        about = self.itself.for_draws(self.edges.rows, weights)
        return compiled.expected_negatives(0.5 * self.negatives, weights, self.edges.starts, self.edges.indices, about)

    def chances_of(self, pairs: Adjacency) -> Floats:
        """Chances w of pairs, row i of vertex i; undefined for links."""
        return self.chances.of(self.edges, pairs, self.counts, self.itself)

    def all_chances(self, others: NDArray[np.int64]) -> Floats:
        """Chances w with some other vertices, [vertices, others]; 0 for links."""
        rows, count = self.edges.rows, len(others)
        pairs = Adjacency(np.arange(rows + 1) * count, np.tile(others.astype(np.int32), rows))
        chances = np.nan_to_num(self.chances_of(pairs))
        chances[self.edges.has(pairs)] = 0.0
        return chances.reshape(rows, count)

    def unlinked_per_link(self, seed: int, run: Any = run_serially) -> float:
        """K / E of the whole graph. With a sample of vertices it is a function of the seed."""
        drawn = float(self.counts.sum())
        if drawn == 0.0:
            return LEAST_UNLINKED
        merged = 0.5 * self._expected_repeats(seed, run)
        return max(LEAST_UNLINKED, (drawn - merged) / (0.5 * self.edges.edges))

    def _expected_repeats(self, seed: int, run: Any) -> float:
        """Sum over m and n of w_mn w_nm. A sample has vertices in proportion to their draws."""
        vertices = self.edges.rows
        which, weights = np.arange(vertices), np.ones(vertices)
        if vertices * vertices > MOST_PAIRS:
            size, drawn = max(LEAST_VERTICES, MOST_PAIRS // vertices), self.counts.sum()
            random = np.random.Generator(np.random.Philox(key=[seed, 0]))
            which, often = np.unique(random.choice(vertices, size, p=self.counts / drawn), return_counts=True)
            weights = often * drawn / (size * self.counts[which])
        sample = self._take(which)
        width = max(1, AT_ONCE // len(which))
        blocks = ranges(np.append(np.arange(0, vertices, width), vertices))
        return float(add_in_order(run(lambda block: float(self._repeats(sample, which, block) @ weights), blocks)))

    def _repeats(self, sample: VertexDraws, which: NDArray[np.int64], block: Range) -> Floats:
        """Sum of w_mn w_nm over a block of vertices n, for each vertex m of a sample."""
        others = np.arange(*block)
        mine = sample.all_chances(others)
        theirs = self._take(others).all_chances(which).T
        return np.asarray((mine * theirs).sum(axis=1))

    def _take(self, rows: NDArray[np.int64]) -> VertexDraws:
        return VertexDraws(self.edges.take(rows), self.chances, self.negatives, self.itself.take(rows))
