"""The updates of Algorithm 1: a side's rows (eq. 15-19) and the precisions (eq. 20)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Range, light_rows, ranges
from considerate.inference.posterior import Gamma, Side
from considerate.inference.sums import CoordinateBlock, EdgeSums, add_blocks, edge_sums
from considerate.kernels import compiled
from considerate.kernels.arrays import Spare

CHUNK = 1 << 16  # rows whose moments are taken together


@dataclass(frozen=True)
class Moments:
    """Sums over the rows of a side that eq. 20 and the bound need, in float64."""

    square: float  # sum of E[x^2] over rows and coordinates
    log_variance: float
    bias_square: float = 0.0
    bias_log_variance: float = 0.0

    @classmethod
    def of(cls, side: Side) -> Moments:
        """The moments of these rows."""
        return cls.total([_moments(side.between(first, last)) for first, last in _chunks(len(side))])

    @classmethod
    def of_alike(cls, rows: int, make: Callable[[int], Side]) -> Moments:
        """The moments of many equal rows, of which `make(count)` gives some: not all are in memory at once."""
        chunk = _moments(make(min(rows, CHUNK)))
        return cls.total(
            [chunk if last - first == CHUNK else _moments(make(last - first)) for first, last in _chunks(rows)]
        )

    @classmethod
    def total(cls, parts: Sequence[Sequence[float]]) -> Moments:
        """Added in the order of the blocks."""
        sums = [0.0, 0.0, 0.0, 0.0]
        for part in parts:
            sums = [a + b for a, b in zip(sums, part)]
        return cls(*sums)


def _chunks(rows: int) -> list[Range]:
    return [(first, min(first + CHUNK, rows)) for first in range(0, rows, CHUNK)]


def _moments(side: Side) -> list[float]:
    mean, variance = side.mean.astype(np.float64), side.variance.astype(np.float64)
    moments = [float((mean**2 + variance).sum()), float(np.log(variance).sum()), 0.0, 0.0]
    if side.has_bias:
        mean, variance = (array.astype(np.float64) for array in side.biases)
        moments[2:] = float((mean**2 + variance).sum()), float(np.log(variance).sum())
    return moments


@dataclass(frozen=True)
class SideUpdate:
    """A side after its pass."""

    side: Side
    moments: Moments
    edge_bound: float = 0.0  # the edges' part of L_xi before the step
    bad_row: int = -1  # a row whose step was not finite


def heavy_rows(degrees: NDArray[np.int64], blocks: NDArray[np.int64]) -> NDArray[np.int32]:
    """Rows so heavy that they are split: more than twice the edges of a block."""
    count = len(blocks) - 1
    if count < 2:
        return np.empty(0, np.int32)
    return np.flatnonzero(degrees > 2 * max(1, int(degrees.sum()) // count)).astype(np.int32)


@dataclass(frozen=True)
class RowClasses:
    """The rows of a side by how they are summed, in the order in which their moments are added. Degrees decide."""

    blocks: list[NDArray[np.int32]]  # along the tree over parts of the other side, a task for each block
    heavy: NDArray[np.int32]  # along the same tree, a task for each part
    light: list[NDArray[np.int32]]  # in one go, a task for each block

    @classmethod
    def of(
        cls, degrees: NDArray[np.int64], blocks: NDArray[np.int64], leaves: int = 0, edges_per_like: float = 1.0
    ) -> RowClasses:
        """With no leaves there is no light row."""
        light = light_rows(degrees, leaves, edges_per_like) if leaves else np.zeros(len(degrees), np.bool_)
        heavy = heavy_rows(degrees, blocks)
        heavy = heavy[~light[heavy]]
        middle = ~light
        middle[heavy] = False
        return cls(_by_block(middle, blocks), heavy, _by_block(light, blocks))

    @classmethod
    def all_alike(cls, blocks: NDArray[np.int64]) -> RowClasses:
        """No row is light or heavy."""
        rows = int(blocks[-1])
        return cls(_by_block(np.ones(rows, np.bool_), blocks), np.empty(0, np.int32), [])

    def summed(self, first: int, last: int) -> list[NDArray[np.int32]]:
        """The rows from first to last - 1, whole blocks, that are summed along the tree: some at a time, and each heavy
        row by itself."""
        inside = [rows[(rows >= first) & (rows < last)] for rows in (*self.blocks, *self.heavy[:, None])]
        return [rows for rows in inside if len(rows)]


def _by_block(chosen: NDArray[np.bool_], blocks: NDArray[np.int64]) -> list[NDArray[np.int32]]:
    """The chosen rows of each block that has some."""
    rows = np.flatnonzero(chosen).astype(np.int32)
    pieces = np.split(rows, np.searchsorted(rows, blocks[1:-1]))
    return [piece for piece in pieces if len(piece)]


Step = tuple[float, int, Sequence[float]]  # (the edges' part of the bound before, a bad row or -1, moments)


def update_side(
    kernel_pass: compiled.Pass, own: Side, blocks: NDArray[np.int64], run: Any, spare: Spare | None = None
) -> SideUpdate:
    """Every row's sums (eq. 15, 16), step (eq. 17, 19) and recovery of the factorised q (eq. 18), blocks of rows at a
    time, which `run` maps."""
    new = own.empty_like(spare)

    def update(block: Range) -> Step:
        first, last = block
        return compiled.update_rows(kernel_pass, first, last, *new.arrays())

    return _side_update(new, run(update, ranges(blocks)))


@dataclass(frozen=True)
class TreePass:
    """A pass over the rows of a side whose sums are added along a tree over the other side."""

    along_tree: compiled.Pass
    in_one_go: compiled.Pass  # the same without the tree, for light rows
    leaves: NDArray[np.int64]  # boundaries of the parts of the other side
    closed_form: bool  # whether there is one, which is added last

    def update(self, own: Side, classes: RowClasses, run: Any, spare: Spare | None = None) -> SideUpdate:
        """As `update_side`, each row by its class. The sums of heavy rows are added along the tree that the kernel
        follows within a row, so the bits do not depend on which rows are heavy."""
        new = own.empty_like(spare)

        def update(task: tuple[compiled.Pass, NDArray[np.int32]]) -> Step:
            kernel_pass, rows = task
            return compiled.update_rows(kernel_pass, 0, len(rows), *new.arrays(), which=rows)

        middle = [(self.along_tree, rows) for rows in classes.blocks]
        steps = run(update, middle + [(self.in_one_go, rows) for rows in classes.light])
        heavy = [self._update_heavy_row(row, new, run) for row in classes.heavy[:, None]]
        return _side_update(new, [*steps[: len(middle)], *heavy, *steps[len(middle) :]])

    def _update_heavy_row(self, row: NDArray[np.int32], new: Side, run: Any) -> Step:
        """One heavy row: its sums over each part of the other side, added along the tree, then its step. Where there
        are many factors, one block of coordinates after the other."""
        bad, bias_moments, moments = -1, [0.0, 0.0], [0.0, 0.0, 0.0, 0.0]
        for number in range(len(compiled.coordinate_blocks(new.factors))):
            block = CoordinateBlock.of(new.factors, number, new)

            def sums_of(edges: Range, block: CoordinateBlock = block) -> EdgeSums:
                return edge_sums(self.along_tree, row, block, edges)

            sums = add_blocks(run(sums_of, ranges(self.leaves)))
            if self.closed_form:
                sums = sums.merge(edge_sums(self.along_tree, row, block, (0, 0), closed_form=True))
            block_bad, moments = compiled.solve_rows(self.along_tree, row, *sums.arrays(), *new.arrays(), block=number)
            bad = max(bad, block_bad)
            bias_moments = moments[2:] if number == 0 else bias_moments
        return 0.0, bad, [*moments[:2], *bias_moments]


def _side_update(new: Side, steps: Sequence[Step]) -> SideUpdate:
    bad = [row for _, row, _ in steps if row >= 0]
    moments = Moments.total([moments for _, _, moments in steps])
    return SideUpdate(new, moments, sum(bound for bound, _, _ in steps), min(bad, default=-1))


@dataclass
class SideSolver:
    """Steps a side from sums that were computed elsewhere, some rows after the others, as `TreePass.update` would.

    Rows are solved class by class and block by block, so that moments are added in one order.
    """

    new: Side
    classes: RowClasses
    run: Any
    moments: dict[int, list[float]] = field(default_factory=dict)  # by the first row of those solved together
    bad: list[int] = field(default_factory=list)

    def solve(self, kernel_pass: compiled.Pass, sums: EdgeSums, first: int, last: int, block: int) -> None:
        """Step rows first .. last - 1, whose own rows the pass has: the coordinates of one block. The sums are those of
        `classes.summed`, in that order."""
        out = self.new.between(first, last)
        pieces = self.classes.summed(first, last)
        ends = np.cumsum([0, *map(len, pieces)])

        def solve(at: int) -> tuple[int, Sequence[float]]:
            own = sums.rows(int(ends[at]), int(ends[at + 1]))
            return compiled.solve_rows(kernel_pass, pieces[at] - first, *own.arrays(), *out.arrays(), block=block)

        for piece, (bad, moments) in zip(pieces, self.run(solve, range(len(pieces)))):
            row = int(piece[0])
            biases = moments[2:] if block == 0 else self.moments[row][2:]  # they are stepped with the first block
            self.moments[row] = [*moments[:2], *biases]
            if bad >= 0:
                self.bad.append(first + bad)

    def result(self) -> SideUpdate:
        """The side, when every row was solved."""
        pieces = self.classes.summed(0, len(self.new))
        in_order = [self.moments[int(piece[0])] for piece in pieces]
        return SideUpdate(self.new, Moments.total(in_order), bad_row=min(self.bad, default=-1))


def update_precision(
    old: Gamma, prior_shape: float, prior_rate: float, count: int, square: float, epsilon: float
) -> Gamma:
    """q(tau) from the sum of E[x^2] over `count` coordinates (eq. 20), the rate blended like the rest.

    shape = alpha + count / 2,    rate = beta + sum of E[x^2] / 2
    """
    shape = prior_shape + 0.5 * count
    rate = prior_rate + 0.5 * square
    return Gamma(shape, epsilon * rate + (1.0 - epsilon) * old.rate)
