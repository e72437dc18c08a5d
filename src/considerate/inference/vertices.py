"""Sweeps over a graph whose vertices are of one kind (section 7): a_mn = u_m'S u_n + b_m + b_n + offset, g symmetric.

The offset is the same for all pairs (inference/hidden/merged.py).

A step of both ends of an edge at once may lower the bound. So each sweep puts the vertices into blocks of equal size at
random. It steps one block after the other, given all others, on the edges between blocks. Such an edge has the weight
1 / p(a pair is in two blocks), so that sums over them are right on average. A block is stepped like one side of a
bipartite graph, which never lowers the bound on the weighted edges between blocks. The next sweep has other blocks,
and its bound may be lower.

S is the identity, or with `signed` +1 for the first half of the coordinates and -1 for the others, which model links
between unlike vertices. The kernels do not know S: they read the other ends with the signs of these means changed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from considerate.data.edges import each_once, symmetric
from considerate.data.graph import BLOCK_EDGES, ITEMS, Adjacency, Graph, Range, ranges
from considerate.inference.bound import Bound, gamma_term, side_terms
from considerate.inference.hidden import Sampled, Terms
from considerate.inference.plan import FitPlan
from considerate.inference.posterior import Gamma, Posterior, Precisions, Side, mirrored
from considerate.inference.schedule import StepSize
from considerate.inference.sums import PassConstants, side_pass
from considerate.inference.sweep import BIAS_VARIANCE, State, Sweep, check_bound, check_rows
from considerate.inference.updates import Moments, Step, update_precision
from considerate.kernels import compiled
from considerate.kernels.arrays import add_in_order
from considerate.kernels.threads import Backend

BLOCKS = 16  # number of blocks in a sweep; docs/graphs.md


@dataclass(frozen=True)
class VertexBlocks:
    """Partition of the vertices into blocks of equal size."""

    block_of: NDArray[np.int32]  # [vertices]
    count: int  # number of blocks

    @classmethod
    def draw(cls, vertices: int, seed: int, sweep: int, blocks: int = BLOCKS) -> VertexBlocks:
        """Draw blocks at random: a function of (seed, sweep)."""
        blocks = min(blocks, vertices)
        random = np.random.Generator(np.random.Philox(key=[seed, sweep]))
        block_of = np.empty(vertices, np.int32)
        block_of[random.permutation(vertices)] = np.arange(vertices) * blocks // vertices
        return cls(block_of, blocks)

    @property
    def weight(self) -> float:
        """Weight of an edge between blocks: 1 / the chance that a pair is in two of them."""
        sizes, vertices = np.bincount(self.block_of), len(self.block_of)
        pairs = vertices * (vertices - 1)
        return float(pairs / (pairs - (sizes * (sizes - 1)).sum()))

    def between_blocks(self, edges: Adjacency) -> Adjacency:
        """Edges whose ends are in different blocks."""
        return edges.keep(np.repeat(self.block_of, edges.degrees) != self.block_of[edges.indices])

    def pieces(self, block: int, edges: NDArray[np.int64]) -> list[NDArray[np.int32]]:
        """Vertices of a block, in pieces of about as many edges each for the threads. The data decides the pieces."""
        rows = np.flatnonzero(self.block_of == block).astype(np.int32)
        ends = np.cumsum(edges[rows])
        count = max(1, -(-int(ends[-1]) // BLOCK_EDGES))
        pieces = np.split(rows, np.searchsorted(ends, np.arange(1, count) * (ends[-1] / count)))
        return [piece for piece in pieces if len(piece)]


def initial_vertices(vertices: int, settings: FitPlan) -> State:
    """State before the first sweep: vectors around zero, with a prior standard deviation of u'u of sqrt(2)."""
    factors, precision = settings.factors, math.sqrt(settings.factors / 2)
    random = np.random.Generator(np.random.Philox(key=settings.seed))
    side = Side.constant(vertices, factors, 0.125 / precision, BIAS_VARIANCE)
    side.mean[:] = np.float32(0.6 / math.sqrt(precision)) * random.standard_normal((vertices, factors), np.float32)

    def held(coordinates: int, mean: float) -> Gamma:
        shape = settings.prior_shape + 0.5 * coordinates
        return Gamma(shape, shape / mean)

    vectors, biases = held(vertices * factors, precision), held(vertices, settings.prior_shape / settings.prior_rate)
    return _state(0, side, (vectors, biases), Moments.of(side), StepSize(settings.step_delay), settings)


def _state(
    sweep: int, side: Side, taus: tuple[Gamma, Gamma], moments: Moments, step_size: StepSize, settings: FitPlan
) -> State:
    """Make a state whose items are the vertices, and whose users are the same vertices as `mirrored`."""
    (vectors, biases), seen = taus, mirrored(side, bool(settings.signed))
    posterior = Posterior(seen, side, Precisions(vectors, vectors, biases, biases))
    return State(sweep, posterior, step_size, moments, moments)


@dataclass(frozen=True)
class VertexSweeps:
    """Runner of sweeps over a symmetric graph in memory."""

    graph: Graph  # its two sides are the same
    sampled: Sampled  # c / 2 draws for each edge, as both its ends draw
    settings: FitPlan
    backend: Backend

    deterministic = False

    @property
    def edges(self) -> int:
        return self.graph.edges // 2

    def sweeps(self, state: State | None = None) -> Iterator[Sweep]:
        """Yield one sweep after the other, without end; the caller decides when to stop."""
        state = state or initial_vertices(self.graph.item_count, self.settings)
        while True:
            sweep = self._sweep(state)
            yield sweep
            state = sweep.state
            del sweep

    def _sweep(self, state: State) -> Sweep:
        number, q, epsilon = state.sweep + 1, state.posterior, state.step_size.epsilon
        hidden = self.draw(number)
        bound = self._bound(state, hidden)
        side, bad_row = self.step_blocks(
            q, hidden, VertexBlocks.draw(len(q.items), self.settings.seed, number), epsilon
        )
        check_rows(bad_row, "vertex", number, state)
        check_bound(bound, number, state)
        moments, taus = Moments.of(side), _taus(q)
        if number > self.settings.precision_delay:
            taus = self.update_precisions(taus, moments, epsilon)
        return Sweep(
            _state(number, side, taus, moments, state.step_size.after(number), self.settings), bound, epsilon, True
        )

    def draw(self, sweep: int) -> Adjacency:
        """Draw the edges of H^(sweep) without a link, by either end: each vertex draws c d / 2 others. A pair that both
        ends drew is one edge."""
        drawn = self.sampled.draw(sweep, self.backend.map)
        return symmetric(np.repeat(np.arange(drawn.rows, dtype=np.int32), drawn.degrees), drawn.indices, drawn.rows)

    def step_blocks(
        self, q: Posterior, hidden: Adjacency, partition: VertexBlocks, epsilon: float = 1.0
    ) -> tuple[Side, int]:
        """Step all vertices (eq. 15-19), one block after the other; return them and a row that is not finite, or -1."""
        signed = bool(self.settings.signed)
        linked, unlinked = partition.between_blocks(self.graph.by_item), partition.between_blocks(hidden)
        constants = PassConstants.of(self.settings, q.precisions.means_of(ITEMS), epsilon)
        constants = replace(constants, likelihood_weight=constants.likelihood_weight * partition.weight)
        side, edges, bad = q.items.copy(), linked.degrees + unlinked.degrees, list[int]()
        seen = mirrored(side, signed)
        kernel_pass = side_pass(side, seen, linked, Terms(unliked=unlinked), constants, own_is_user=False)
        new = side.empty_like()

        def step(piece: NDArray[np.int32]) -> Step:
            return compiled.update_rows(kernel_pass, 0, len(piece), *new.arrays(), which=piece)

        for block in range(partition.count):
            pieces = partition.pieces(block, edges)
            bad += [row for _, row, _ in self.backend.map(step, pieces) if row >= 0]
            rows = np.concatenate(pieces)
            stepped = new.take(rows)
            side.put(rows, stepped)
            if signed:
                seen.put(rows, mirrored(stepped, signed))
        return side, min(bad, default=-1)

    def update_precisions(self, taus: tuple[Gamma, Gamma], moments: Moments, epsilon: float) -> tuple[Gamma, Gamma]:
        """Step one Gamma posterior of all vectors and one of all biases (eq. 20)."""
        prior, vertices = (self.settings.prior_shape, self.settings.prior_rate), self.graph.item_count
        vectors = update_precision(taus[0], *prior, vertices * self.settings.factors, moments.square, epsilon)
        return vectors, update_precision(taus[1], *prior, vertices, moments.bias_square, epsilon)

    def evaluate_bound(self, state: State) -> Bound:
        """L_xi of a state, on the H of the next sweep."""
        return self._bound(state, self.draw(state.sweep + 1))

    def _bound(self, state: State, hidden: Adjacency) -> Bound:
        """L_xi (eq. 12), with every edge of H once and each vertex once."""
        q, constants = state.posterior, PassConstants.of(self.settings)
        linked, unlinked = each_once(self.graph.by_item), Terms(unliked=each_once(hidden))
        kernel_pass = side_pass(q.users, q.items, linked, unlinked, constants, own_is_user=True)

        def edge_bound(block: Range) -> float:
            return compiled.edge_bound(kernel_pass, *block)

        edges = add_in_order(self.backend.map(edge_bound, ranges(self.graph.user_blocks)))
        vectors, biases = side_terms((len(q.items), q.factors), state.item_moments, *_taus(q))
        prior = self.settings.prior_shape, self.settings.prior_rate
        return Bound(edges, 0.0, vectors, 0.0, biases, add_in_order(gamma_term(gamma, *prior) for gamma in _taus(q)))


def _taus(q: Posterior) -> tuple[Gamma, Gamma]:
    """Precisions of vectors and biases."""
    assert q.precisions.item_bias is not None
    return q.precisions.item, q.precisions.item_bias
