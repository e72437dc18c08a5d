"""Updates of Algorithm 1: a side's rows (eq. 15-19) and the precisions (eq. 20)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import (
    Graph,
    GraphOutline,
    Range,
    add_along_tree,
    leaf_splits,
    light_rows,
    ranges,
    some_parts,
)
from considerate.inference.posterior import Gamma, Side
from considerate.inference.prior import SHARED, Prior
from considerate.inference.sums import CoordinateBlock, EdgeSums, edge_sums, fill_sums
from considerate.kernels import compiled
from considerate.kernels.arrays import Spare, add_in_order

if TYPE_CHECKING:
    from considerate.inference.features import FeatureWeights

CHUNK = 1 << 16  # rows whose moments are computed together, or whose first means are drawn together
TOGETHER = 2048  # most rows that are stepped together
NODE_BYTES = 4 << 20  # memory of the sums of some rows over one part


@dataclass(frozen=True)
class Moments:
    """Sums over the rows of a side that eq. 20 and the bound need, in float64.

    If rows have priors of their own, E[x^2] is E[(x - m)^2], times t if precisions are given.
    """

    square: float  # sum of E[x^2] over rows and coordinates
    log_variance: float
    bias_square: float = 0.0
    bias_log_variance: float = 0.0

    @classmethod
    def of(cls, side: Side, prior: Prior = SHARED) -> Moments:
        """Moments of a side's rows."""
        return cls.total([_moments(side.between(*chunk), prior.between(*chunk)) for chunk in _chunks(len(side))])

    def with_spread(self, weights: FeatureWeights | None) -> Moments:
        """Add the variance of the prior means A'f, which is K tr(F'F Lambda^-1), and likewise of the biases."""
        if weights is None:
            return self
        added = [part.mean.shape[1] * part.trace for part in weights.parts]
        bias_square = self.bias_square + (added[1] if len(added) > 1 else 0.0)
        return replace(self, square=self.square + added[0], bias_square=bias_square)

    @classmethod
    def of_alike(cls, rows: int, make: Callable[[int], Side]) -> Moments:
        """Moments of many equal rows. `make(count)` gives some of them, so not all are in memory at once."""
        chunk = _moments(make(min(rows, CHUNK)))
        return cls.total(
            [chunk if last - first == CHUNK else _moments(make(last - first)) for first, last in _chunks(rows)]
        )

    @classmethod
    def total(cls, parts: Sequence[Sequence[float]]) -> Moments:
        """Add moments in the order of the blocks."""
        sums = [0.0, 0.0, 0.0, 0.0]
        for part in parts:
            sums = [a + b for a, b in zip(sums, part)]
        return cls(*sums)


def _chunks(rows: int) -> list[Range]:
    return [(first, min(first + CHUNK, rows)) for first in range(0, rows, CHUNK)]


def _moments(side: Side, prior: Prior = SHARED) -> list[float]:
    centre, precision = (None if array is None else array[:, : side.factors] for array in (prior.mean, prior.precision))
    moments = _square_and_log(side.mean, side.variance, centre, precision)
    return moments + (_square_and_log(*side.biases, prior.bias_mean, prior.bias_precision) if side.has_bias else [0, 0])


def _square_and_log(
    mean: NDArray[Any], variance: NDArray[Any], centre: NDArray[Any] | None, precision: NDArray[Any] | None
) -> list[float]:
    mean, variance = mean.astype(np.float64), variance.astype(np.float64)
    square = (mean if centre is None else mean - centre) ** 2 + variance
    return [float((square if precision is None else precision * square).sum()), float(np.log(variance).sum())]


@dataclass(frozen=True)
class SideUpdate:
    """A side after its pass."""

    side: Side
    moments: Moments
    edge_bound: float = 0.0  # the edges' part of L_xi before the step
    bad_row: int = -1  # first row whose step was not finite


def heavy_rows(degrees: NDArray[np.int64], blocks: NDArray[np.int64]) -> NDArray[np.int32]:
    """Rows that are split because they have more than twice the edges of a block."""
    count = len(blocks) - 1
    if count < 2:
        return np.empty(0, np.int32)
    return np.flatnonzero(degrees > 2 * max(1, int(degrees.sum()) // count)).astype(np.int32)


@dataclass(frozen=True)
class RowClasses:
    """Rows of a side by the way that they are summed, in the order in which their moments are added. Degrees decide."""

    blocks: list[NDArray[np.int32]]  # summed along the tree over parts of the other side; some rows of a block each
    heavy: NDArray[np.int32]  # summed along the same tree, each by itself
    light: list[NDArray[np.int32]]  # summed in one go; some rows of a block each

    @classmethod
    def of_items(cls, graph: Graph | GraphOutline, edges_per_like: float) -> RowClasses:
        """Classes of the items of a graph whose users are in parts."""
        leaves = len(leaf_splits(graph.user_blocks)) - 1
        light = light_rows(graph.item_degree, leaves, edges_per_like, graph.user_count)
        return cls.of(graph.item_degree, graph.item_blocks, light)

    @classmethod
    def of(cls, degrees: NDArray[np.int64], blocks: NDArray[np.int64], light: NDArray[np.bool_]) -> RowClasses:
        heavy = heavy_rows(degrees, blocks)
        heavy = heavy[~light[heavy]]
        middle = ~light
        middle[heavy] = False
        return cls(_by_block(middle, blocks), heavy, _by_block(light, blocks))

    @classmethod
    def all_alike(cls, blocks: NDArray[np.int64]) -> RowClasses:
        """Make classes without light or heavy rows."""
        return cls(_by_block(np.ones(int(blocks[-1]), np.bool_), blocks), np.empty(0, np.int32), [])

    @cached_property
    def is_light(self) -> NDArray[np.bool_]:
        """Mask of the light rows."""
        chosen = np.zeros(sum(map(len, (*self.blocks, self.heavy, *self.light))), np.bool_)
        chosen[np.concatenate([self.heavy[:0], *self.light])] = True
        return chosen

    def summed(self, first: int, last: int) -> list[NDArray[np.int32]]:
        """Pieces of the rows first .. last - 1, whole blocks, that are summed along the tree; each heavy row is a piece
        by itself."""
        inside = [rows[(rows >= first) & (rows < last)] for rows in (*self.blocks, *self.heavy[:, None])]
        return [rows for rows in inside if len(rows)]

    def rows_summed(self, first: int, last: int) -> NDArray[np.int32]:
        """Rows of `summed` in one array."""
        return np.concatenate([self.heavy[:0], *self.summed(first, last)])


def _by_block(chosen: NDArray[np.bool_], blocks: NDArray[np.int64]) -> list[NDArray[np.int32]]:
    """Chosen rows of each block, in pieces of at most `TOGETHER`."""
    rows = np.flatnonzero(chosen).astype(np.int32)
    pieces = np.split(rows, np.searchsorted(rows, blocks[1:-1]))
    return [piece[at : at + TOGETHER] for piece in pieces for at in range(0, len(piece), TOGETHER)]


Step = tuple[float, int, Sequence[float]]  # (the edges' part of the bound before, a bad row or -1, moments)


def update_side(
    kernel_pass: compiled.Pass, own: Side, blocks: NDArray[np.int64], run: Any, spare: Spare | None = None
) -> SideUpdate:
    """Sum (eq. 15, 16) and step (eq. 17, 19) every row and recover the factorised q (eq. 18). `run` maps over blocks
    of rows."""
    new = own.empty_like(spare)

    def update(block: Range) -> Step:
        first, last = block
        return compiled.update_rows(kernel_pass, first, last, *new.arrays())

    steps = run(update, ranges(blocks))
    bad = [row for _, row, _ in steps if row >= 0]
    moments = Moments.total([moments for _, _, moments in steps])
    return SideUpdate(new, moments, add_in_order(bound for bound, _, _ in steps), min(bad, default=-1))


@dataclass(frozen=True)
class TreePass:
    """Pass over the rows of a side that adds their sums along a tree over the other side."""

    along_tree: compiled.Pass
    in_one_go: compiled.Pass  # the same without the tree, for light rows
    leaves: NDArray[np.int64]  # boundaries of the parts of the other side
    closed_form: bool  # True if sums in closed form are added last
    far: bool  # True if the other side is larger than the caches

    def update(self, own: Side, classes: RowClasses, run: Any, spare: Spare | None = None) -> SideUpdate:
        """Update all rows like `update_side`, each by its class. A part of a far side is read once for many rows. The
        sums over parts are added along the tree that the kernel follows within a row, so the bits are the same."""
        solver = SideSolver(own.empty_like(spare), classes, run)
        along_tree = [] if self.far else [(self.along_tree, rows) for rows in classes.blocks]
        solver.update(along_tree + [(self.in_one_go, rows) for rows in classes.light])
        by_parts = [*([] if along_tree else classes.blocks), *classes.heavy[:, None]]
        for pieces in _some_at_a_time(by_parts, own.factors):
            self._update_by_parts(pieces, solver, spare)
        return solver.result()

    def _update_by_parts(self, pieces: list[NDArray[np.int32]], solver: SideSolver, spare: Spare | None) -> None:
        """Update rows from their sums over each part of the other side; each part is a task. With many factors, step
        one block of coordinates after the other."""
        rows = np.concatenate(pieces)
        for number in range(len(compiled.coordinate_blocks(solver.new.factors))):
            block = CoordinateBlock.of(solver.new.factors, number, solver.new)

            def sum_part(task: tuple[Range, EdgeSums], block: CoordinateBlock = block) -> EdgeSums:
                fill_sums(self.along_tree, rows, block, *task)
                return task[1]

            nodes = []
            for parts in some_parts(ranges(self.leaves)):
                tasks = [(part, EdgeSums.empty(len(rows), block.size, spare)) for part in parts]
                nodes.append(add_along_tree(solver.run(sum_part, tasks), EdgeSums.take_in))
            sums = add_along_tree(nodes, EdgeSums.take_in)
            if self.closed_form:
                sums = sums.take_in(edge_sums(self.along_tree, rows, block, (0, 0), closed_form=True))
            solver.solve_pieces(self.along_tree, sums, pieces, (0, len(solver.new)), number)


def _some_at_a_time(pieces: list[NDArray[np.int32]], factors: int) -> list[list[NDArray[np.int32]]]:
    """Group consecutive pieces whose sums take at most `NODE_BYTES`; a larger piece is a group by itself."""
    most, found, rows = NODE_BYTES // (2 * factors * (factors + 3)), list[list[NDArray[np.int32]]](), 0
    for piece in pieces:
        if not found or rows + len(piece) > most:
            found.append([])
            rows = 0
        found[-1].append(piece)
        rows += len(piece)
    return found


@dataclass
class SideSolver:
    """Solver that steps a side piece by piece, from sums that may come from other processes.

    Moments are added class by class and block by block, always in one order.
    """

    new: Side
    classes: RowClasses
    run: Any
    moments: dict[int, list[float]] = field(default_factory=dict)  # by the first row of a piece
    bad: list[int] = field(default_factory=list)

    def update(self, tasks: list[tuple[compiled.Pass, NDArray[np.int32]]]) -> None:
        """Step rows from their edges, which the pass has; each entry is a task."""

        def step(task: tuple[compiled.Pass, NDArray[np.int32]]) -> Step:
            kernel_pass, rows = task
            return compiled.update_rows(kernel_pass, 0, len(rows), *self.new.arrays(), which=rows)

        for (_, rows), (_, bad, moments) in zip(tasks, self.run(step, tasks)):
            self.note(rows, bad, moments)

    def solve(self, kernel_pass: compiled.Pass, sums: EdgeSums, first: int, last: int, block: int) -> None:
        """Step one block of coordinates of rows first .. last - 1, which the pass has. The sums are in the order of
        `classes.summed`."""
        self.solve_pieces(kernel_pass, sums, self.classes.summed(first, last), (first, last), block)

    def solve_pieces(
        self, kernel_pass: compiled.Pass, sums: EdgeSums, pieces: list[NDArray[np.int32]], own: Range, block: int
    ) -> None:
        """Step the rows of some pieces; `own` is the range of rows that the pass has."""
        first, out, ends = own[0], self.new.between(*own), np.cumsum([0, *map(len, pieces)])

        def solve(at: int) -> tuple[int, Sequence[float]]:
            mine = sums.rows(int(ends[at]), int(ends[at + 1]))
            return compiled.solve_rows(kernel_pass, pieces[at] - first, *mine.arrays(), *out.arrays(), block=block)

        for piece, (bad, moments) in zip(pieces, self.run(solve, range(len(pieces)))):
            if block > 0:  # moments of blocks of coordinates add up
                moments = [a + b for a, b in zip(self.moments[int(piece[0])], moments)]
            self.note(piece, first + bad if bad >= 0 else bad, moments)

    def note(self, rows: NDArray[np.int32], bad: int, moments: Sequence[float]) -> None:
        """Keep the moments of a piece, and its bad row unless that is -1."""
        self.moments[int(rows[0])] = list(moments)
        if bad >= 0:
            self.bad.append(bad)

    def result(self) -> SideUpdate:
        """Result after every row was stepped."""
        pieces = [*self.classes.blocks, *self.classes.heavy[:, None], *self.classes.light]
        in_order = [self.moments[int(piece[0])] for piece in pieces]
        return SideUpdate(self.new, Moments.total(in_order), bad_row=min(self.bad, default=-1))


def update_precision(
    old: Gamma, prior_shape: float, prior_rate: float, count: int, square: float, epsilon: float
) -> Gamma:
    """Step q(tau) from the sum of E[x^2] over `count` coordinates (eq. 20). The rate is blended with step epsilon.

    shape = alpha + count / 2,    rate = beta + sum of E[x^2] / 2
    """
    shape = prior_shape + 0.5 * count
    rate = prior_rate + 0.5 * square
    return Gamma(shape, epsilon * rate + (1.0 - epsilon) * old.rate)
