"""The updates of Algorithm 1: a side's rows (eq. 15-19) and the precisions (eq. 20)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Range, ranges
from considerate.inference.posterior import Gamma, Side
from considerate.inference.sums import EdgeSums, add_blocks, edge_sums
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
        """The same from the rows themselves."""
        return cls.total([_moments(side.between(first, last)) for first, last in _chunks(len(side))])

    @classmethod
    def of_alike(cls, rows: int, make: Callable[[int], Side]) -> Moments:
        """Of many rows that are all the same, as `make(count)` gives them: without making them all."""
        whole = _moments(make(min(rows, CHUNK)))
        return cls.total(
            [whole if last - first == CHUNK else _moments(make(last - first)) for first, last in _chunks(rows)]
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
    found = [float((mean**2 + variance).sum()), float(np.log(variance).sum()), 0.0, 0.0]
    if side.has_bias:
        bias_mean, bias_variance = (one.astype(np.float64) for one in side.biases)
        found[2:] = float((bias_mean**2 + bias_variance).sum()), float(np.log(bias_variance).sum())
    return found


@dataclass(frozen=True)
class Updated:
    """A side after its pass."""

    side: Side
    moments: Moments
    edge_bound: float  # the edges' part of L_xi before the step
    bad_row: int  # a row whose step was not finite, or -1


def heavy_rows(degrees: NDArray[np.int64], blocks: NDArray[np.int64]) -> NDArray[np.int32]:
    """Rows so heavy that they are split: more than twice the edges of a block."""
    parts = max(1, len(blocks) - 1)
    return (
        np.flatnonzero(degrees > 2 * max(1, int(degrees.sum()) // parts)).astype(np.int32)
        if parts > 1
        else np.empty(0, np.int32)
    )


def update_side(
    reading: compiled.Pass,
    own: Side,
    blocks: NDArray[np.int64],
    run: Any,
    *,
    split: NDArray[np.int32] | None = None,
    splits: NDArray[np.int64] | None = None,
    closed_form: bool = False,
    spare: Spare | None = None,
) -> Updated:
    """Every row's sums (eq. 15, 16), step (eq. 17, 19) and recovery of the factorised q (eq. 18).

    Blocks of rows are mapped by `run`. The rows `split` are summed block by block of the other side, and those
    sums added along the tree that the kernel follows within a row, so the bits are the same either way.
    """
    new = own.empty_like(spare)
    out = (new.rows, new.bias_mean, new.bias_variance)
    heavy = np.empty(0, np.int32) if split is None or splits is None else split
    pieces = [piece for block in ranges(blocks) for piece in _without(block, heavy)]

    def update(piece: Range) -> tuple[float, int, Sequence[float]]:
        first, last = piece
        return compiled.update_rows(reading, first, last, *out)

    done = run(update, pieces)
    bound = sum(part[0] for part in done)
    bad = [part[1] for part in done if part[1] >= 0]
    moments = [part[2] for part in done]
    for row in heavy:
        assert splits is not None
        row_bad, row_moments = _update_split_row(reading, np.array([row], np.int32), new, splits, closed_form, run)
        moments.append(row_moments)
        if row_bad >= 0:
            bad.append(row_bad)
    return Updated(new, Moments.total(moments), bound, min(bad, default=-1))


def _update_split_row(
    reading: compiled.Pass,
    row: NDArray[np.int32],
    new: Side,
    splits: NDArray[np.int64],
    closed_form: bool,
    run: Any,
) -> tuple[int, Sequence[float]]:
    """One heavy row: its sums over each block of the other side, added along the tree, then its step. Where there are
    many factors, one block of coordinates after the other."""
    out = (new.rows, new.bias_mean, new.bias_variance)
    bad, bias_moments, moments = -1, [0.0, 0.0], [0.0, 0.0, 0.0, 0.0]
    for number, size in enumerate(compiled.coordinate_blocks(new.factors)):

        def sums_of(edges: Range, number: int = number, size: int = size) -> EdgeSums:
            return edge_sums(reading, row, size, *edges, block=number, stepped=new)

        sums = add_blocks(run(sums_of, ranges(splits)))
        if closed_form:
            sums = sums.merge(edge_sums(reading, row, size, 0, 0, closed_form=True, block=number, stepped=new))
        block_bad, moments = compiled.solve_rows(reading, row, sums.second, sums.first, sums.bias, *out, block=number)
        bad = max(bad, block_bad)
        bias_moments = moments[2:] if number == 0 else bias_moments
    return bad, [*moments[:2], *bias_moments]


@dataclass
class Solving:
    """A side that is stepped from sums that were made elsewhere, some rows after the others, as `update_side` would.

    Rows are solved piece by piece of the same blocks, heavy rows after them, so that moments are added in one order.
    """

    own: Side
    new: Side
    blocks: NDArray[np.int64]
    heavy: NDArray[np.int32]
    run: Any
    pieces: dict[int, list[float]] = field(default_factory=dict)  # moments, by the first row
    alone: dict[int, list[float]] = field(default_factory=dict)  # of heavy rows
    bad: list[int] = field(default_factory=list)

    def solve(self, reading: compiled.Pass, sums: EdgeSums, first: int, last: int, block: int) -> None:
        """Step rows first .. last - 1, whose own rows the pass has: the coordinates of one block."""
        out = self.new.between(first, last)
        inside = [piece for piece in ranges(self.blocks) if first <= piece[0] and piece[1] <= last]
        assert inside[0][0] == first
        assert inside[-1][1] == last
        pieces = [piece for one in inside for piece in _without(one, self.heavy)]
        alone = [(int(row), int(row) + 1) for row in self.heavy if first <= row < last]

        def solve(piece: Range) -> tuple[int, Sequence[float]]:
            low, high = piece[0] - first, piece[1] - first
            rows, some = np.arange(low, high, dtype=np.int32), sums.rows(low, high)
            return compiled.solve_rows(
                reading, rows, *some.arrays(), out.rows, out.bias_mean, out.bias_variance, block=block
            )

        for (row, _), (bad, moments) in zip(pieces + alone, self.run(solve, pieces + alone)):
            found = self.alone if (row, row + 1) in alone else self.pieces
            biases = moments[2:] if block == 0 else found[row][2:]  # they are stepped with the first block
            found[row] = [*moments[:2], *biases]
            if bad >= 0:
                self.bad.append(first + bad)

    def done(self) -> Updated:
        """The side, when every row was solved."""
        in_order = [found[row] for found in (self.pieces, self.alone) for row in sorted(found)]
        return Updated(self.new, Moments.total(in_order), 0.0, min(self.bad, default=-1))


def _without(block: Range, heavy: NDArray[np.int32]) -> list[Range]:
    """A block of rows less the heavy ones, as ranges."""
    first, last = block
    pieces = []
    for row in heavy[(heavy >= first) & (heavy < last)]:
        if first < row:
            pieces.append((first, int(row)))
        first = int(row) + 1
    return pieces + [(first, last)] if first < last else pieces


def update_precision(
    old: Gamma, prior_shape: float, prior_rate: float, count: int, square: float, epsilon: float
) -> Gamma:
    """q(tau) from the sum of E[x^2] over `count` coordinates (eq. 20), the rate blended like the rest.

    shape = alpha + count / 2,    rate = beta + sum of E[x^2] / 2
    """
    shape = prior_shape + 0.5 * count
    rate = prior_rate + 0.5 * square
    return Gamma(shape, epsilon * rate + (1.0 - epsilon) * old.rate)
