"""Natural-gradient sums over edges (eq. 15, 19), and the kernel passes that compute them.

Sums of blocks add up to the sum of the whole (eq. 21): an item's sum over all users is the sum, along one fixed
tree, of its sums over the blocks of users. So adding the messages of blocks gives the same bits as one pass over
everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency, Range, add_along_tree
from considerate.inference.hidden import Terms
from considerate.inference.plan import FitPlan
from considerate.inference.posterior import Side
from considerate.inference.prior import SHARED, Prior
from considerate.kernels import compiled
from considerate.kernels.arrays import Additive, Spare, added, empty


@dataclass(frozen=True)
class EdgeSums(Additive):
    """Sums over the edges of some rows: the message between blocks (eq. 21).

    second = sum over edges of 2 lambda(xi) E[v v']      (the lower triangle)
    first  = sum over edges of (g - 1/2 - 2 lambda(xi) E[b_m + b_n]) E[v]
    bias   = the same two sums for the row's bias (eq. 19)
    """

    second: NDArray[np.float32]  # [rows, K (K + 1) / 2]
    first: NDArray[np.float32]  # [rows, K]
    bias: NDArray[np.float32]  # [rows, 2]

    @classmethod
    def empty(cls, rows: int, factors: int, spare: Spare | None = None) -> EdgeSums:
        """Make unfilled sums, in spare memory if possible. A pass fills them."""
        return cls(
            empty((rows, factors * (factors + 1) // 2), np.float32, spare),
            empty((rows, factors), np.float32, spare),
            empty((rows, 2), np.float32, spare),
        )

    def arrays(self) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
        return self.second, self.first, self.bias

    def take_in(self, other: EdgeSums) -> EdgeSums:
        """Add other sums to these, in place if this memory can be written."""
        return EdgeSums(*(added(mine, theirs) for mine, theirs in zip(self.arrays(), other.arrays())))

    def rows(self, first: int, last: int) -> EdgeSums:
        """Sums of rows first .. last - 1: views."""
        return EdgeSums(self.second[first:last], self.first[first:last], self.bias[first:last])


def add_blocks(parts: Sequence[EdgeSums]) -> EdgeSums:
    """Add the sums of consecutive blocks pairwise, along the fixed tree over blocks (eq. 21)."""
    return add_along_tree(parts, EdgeSums.merge)


@dataclass(frozen=True)
class PassConstants:
    """Constants of a pass over one side's rows."""

    offset: float  # -log c, inside the logit
    likelihood_weight: float  # rho, the power of the likelihood
    tau: float = 1.0  # E[tau] of the vectors
    tau_bias: float = 1.0  # E[tau] of the biases
    epsilon: float = 1.0
    prior: Prior = SHARED  # of rows that have priors of their own
    user_offset: NDArray[np.float32] | None = None  # [users] added to `offset`
    slope: bool = False  # make `first` the sum of 2 lambda(xi) E[v]: minus its derivative in the row's own bias

    @classmethod
    def of(
        cls,
        plan: FitPlan,
        taus: tuple[float, float] = (1.0, 1.0),
        epsilon: float = 1.0,
        prior: Prior = SHARED,
        user_offset: NDArray[np.float32] | None = None,
    ) -> PassConstants:
        """Constants of a fit; taus: E[tau] of the side's vectors and biases."""
        return cls(plan.offset, plan.likelihood_weight, *taus, epsilon, prior, user_offset)

    def for_kernels(self) -> compiled.Constants:
        """The constants as the kernels read them, without the prior."""
        return compiled.Constants(**{name: value for name, value in vars(self).items() if name != "prior"})


def side_pass(
    own: Side,
    other: Side,
    liked: Adjacency,
    terms: Terms,
    constants: PassConstants,
    *,
    own_is_user: bool,
    splits: NDArray[np.int64] | None = None,
) -> compiled.Pass:
    """Kernel pass over one side's rows, with all that it reads. Sums are added along the tree over the other side's
    blocks, `splits`."""
    return compiled.Pass(
        own.for_kernels(),
        other.for_kernels(),
        liked.for_kernels(),
        None if terms.unliked is None else terms.unliked.for_kernels(),
        constants.for_kernels(),
        prior=constants.prior.for_kernels(),
        expected=terms.expected,
        own_is_user=own_is_user,
        splits=splits,
    )


@dataclass(frozen=True)
class CoordinateBlock:
    """Coordinates of a row that are stepped together: all of them, unless there are many factors."""

    number: int
    size: int
    stepped: Side | None = None  # the rows after the steps of the blocks before

    @classmethod
    def of(cls, factors: int, number: int = 0, stepped: Side | None = None) -> CoordinateBlock:
        return cls(number, compiled.coordinate_blocks(factors)[number], stepped)

    def stepped_arrays(self) -> tuple[NDArray[np.float32] | None, ...]:
        return (None, None, None) if self.stepped is None else self.stepped.arrays()


def edge_sums(
    kernel_pass: compiled.Pass,
    rows: NDArray[np.int32],
    block: CoordinateBlock,
    edges: Range,
    *,
    closed_form: bool = False,
    spare: Spare | None = None,
) -> EdgeSums:
    """Sum some rows over their edges to a range of the other side's rows (eq. 15, 19)."""
    sums = EdgeSums.empty(len(rows), block.size, spare)
    fill_sums(kernel_pass, rows, block, edges, sums, closed_form=closed_form)
    return sums


def fill_sums(
    kernel_pass: compiled.Pass,
    rows: NDArray[np.int32],
    block: CoordinateBlock,
    edges: Range,
    sums: EdgeSums,
    closed_form: bool = False,
) -> float:
    """Fill given memory with `edge_sums`. Returns the edges' part of the bound if the rows are users."""
    return compiled.sum_rows(
        kernel_pass, rows, *edges, closed_form, *sums.arrays(), block.number, *block.stepped_arrays()
    )
