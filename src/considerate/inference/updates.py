"""The updates of Algorithm 1: a side's rows (eq. 15-19) and the precisions (eq. 20)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Range, ranges
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
class HeavyRows:
    """Rows that are summed block by block of the other side: `splits` are these blocks."""

    rows: NDArray[np.int32]
    splits: NDArray[np.int64]
    closed_form: bool


def update_side(
    kernel_pass: compiled.Pass,
    own: Side,
    blocks: NDArray[np.int64],
    run: Any,
    *,
    heavy: HeavyRows | None = None,
    spare: Spare | None = None,
) -> SideUpdate:
    """Every row's sums (eq. 15, 16), step (eq. 17, 19) and recovery of the factorised q (eq. 18).

    Blocks of rows are mapped by `run`. The sums of heavy rows are added along the tree that the kernel follows within a
    row, so the bits are the same either way.
    """
    new = own.empty_like(spare)
    split = np.empty(0, np.int32) if heavy is None else heavy.rows

    def update(piece: Range) -> tuple[float, int, Sequence[float]]:
        first, last = piece
        return compiled.update_rows(kernel_pass, first, last, *new.arrays())

    results = run(update, [piece for block in ranges(blocks) for piece in _without(block, split)])
    edge_bound = sum(bound for bound, _, _ in results)
    steps = [step for _, *step in results]
    if heavy is not None:
        steps += [_update_heavy_row(kernel_pass, row, new, heavy, run) for row in split[:, None]]
    bad = [row for row, _ in steps if row >= 0]
    return SideUpdate(new, Moments.total([moments for _, moments in steps]), edge_bound, min(bad, default=-1))


def _update_heavy_row(
    kernel_pass: compiled.Pass, row: NDArray[np.int32], new: Side, heavy: HeavyRows, run: Any
) -> tuple[int, Sequence[float]]:
    """One heavy row: its sums over each block of the other side, added along the tree, then its step. Where there are
    many factors, one block of coordinates after the other."""
    bad, bias_moments, moments = -1, [0.0, 0.0], [0.0, 0.0, 0.0, 0.0]
    for number in range(len(compiled.coordinate_blocks(new.factors))):
        block = CoordinateBlock.of(new.factors, number, new)

        def sums_of(edges: Range, block: CoordinateBlock = block) -> EdgeSums:
            return edge_sums(kernel_pass, row, block, edges)

        sums = add_blocks(run(sums_of, ranges(heavy.splits)))
        if heavy.closed_form:
            sums = sums.merge(edge_sums(kernel_pass, row, block, (0, 0), closed_form=True))
        block_bad, moments = compiled.solve_rows(kernel_pass, row, *sums.arrays(), *new.arrays(), block=number)
        bad = max(bad, block_bad)
        bias_moments = moments[2:] if number == 0 else bias_moments
    return bad, [*moments[:2], *bias_moments]


@dataclass
class SideSolver:
    """Steps a side from sums that were computed elsewhere, some rows after the others, as `update_side` would.

    Rows are solved piece by piece of the same blocks, heavy rows after them, so that moments are added in one order.
    """

    new: Side
    blocks: NDArray[np.int64]
    heavy: NDArray[np.int32]
    run: Any
    pieces: dict[int, list[float]] = field(default_factory=dict)  # moments, by the first row
    heavy_moments: dict[int, list[float]] = field(default_factory=dict)
    bad: list[int] = field(default_factory=list)

    def solve(self, kernel_pass: compiled.Pass, sums: EdgeSums, first: int, last: int, block: int) -> None:
        """Step rows first .. last - 1, whose own rows the pass has: the coordinates of one block."""
        out = self.new.between(first, last)
        inside = [piece for piece in ranges(self.blocks) if first <= piece[0] and piece[1] <= last]
        assert inside[0][0] == first
        assert inside[-1][1] == last
        pieces = [piece for rows in inside for piece in _without(rows, self.heavy)]
        heavy = [(int(row), int(row) + 1) for row in self.heavy if first <= row < last]

        def solve(piece: Range) -> tuple[int, Sequence[float]]:
            low, high = piece[0] - first, piece[1] - first
            rows = np.arange(low, high, dtype=np.int32)
            return compiled.solve_rows(kernel_pass, rows, *sums.rows(low, high).arrays(), *out.arrays(), block=block)

        for (row, _), (bad, moments) in zip(pieces + heavy, self.run(solve, pieces + heavy)):
            moments_of = self.heavy_moments if (row, row + 1) in heavy else self.pieces
            biases = moments[2:] if block == 0 else moments_of[row][2:]  # they are stepped with the first block
            moments_of[row] = [*moments[:2], *biases]
            if bad >= 0:
                self.bad.append(first + bad)

    def result(self) -> SideUpdate:
        """The side, when every row was solved."""
        in_order = [moments[row] for moments in (self.pieces, self.heavy_moments) for row in sorted(moments)]
        return SideUpdate(self.new, Moments.total(in_order), bad_row=min(self.bad, default=-1))


def _without(block: Range, heavy: NDArray[np.int32]) -> list[Range]:
    """A block of rows less the heavy ones, as ranges."""
    first, last = block
    cuts = heavy[(heavy >= first) & (heavy < last)].tolist()
    pieces = zip([first, *(row + 1 for row in cuts)], [*cuts, last])
    return [(low, high) for low, high in pieces if low < high]


def update_precision(
    old: Gamma, prior_shape: float, prior_rate: float, count: int, square: float, epsilon: float
) -> Gamma:
    """q(tau) from the sum of E[x^2] over `count` coordinates (eq. 20), the rate blended like the rest.

    shape = alpha + count / 2,    rate = beta + sum of E[x^2] / 2
    """
    shape = prior_shape + 0.5 * count
    rate = prior_rate + 0.5 * square
    return Gamma(shape, epsilon * rate + (1.0 - epsilon) * old.rate)
