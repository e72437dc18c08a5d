"""Natural-gradient sums over edges (eq. 15, 19), and the passes that make them.

Sums of blocks add up to the sum of the whole (eq. 21): an item's sum over all users is the sum, along one fixed
tree, of its sums over the blocks of users. Adding the messages of blocks therefore gives the bits that one pass
over everything gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency, add_along_tree
from considerate.inference.hidden import Terms
from considerate.inference.posterior import Side
from considerate.kernels import compiled
from considerate.kernels.arrays import Spare, added, empty


@dataclass(frozen=True)
class EdgeSums:
    """What the edges say of some rows: the message between blocks (eq. 21).

    second = sum over edges of 2 lambda(xi) E[v v']      (the lower triangle)
    first  = sum over edges of (g - 1/2 - 2 lambda(xi) E[b_m + b_n]) E[v]
    bias   = the same two of the row's bias (eq. 19)
    """

    second: NDArray[np.float32]  # [rows, K (K + 1) / 2]
    first: NDArray[np.float32]  # [rows, K]
    bias: NDArray[np.float32]  # [rows, 2]

    @classmethod
    def empty(cls, rows: int, factors: int, spare: Spare | None = None) -> EdgeSums:
        """Room for sums, which a pass fills; in memory that is spare where there is some."""
        return cls(
            empty((rows, factors * (factors + 1) // 2), np.float32, spare),
            empty((rows, factors), np.float32, spare),
            empty((rows, 2), np.float32, spare),
        )

    def arrays(self) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
        return self.second, self.first, self.bias

    def merge(self, other: EdgeSums) -> EdgeSums:
        """The sums over both sets of edges."""
        return EdgeSums(self.second + other.second, self.first + other.first, self.bias + other.bias)

    def take_in(self, other: EdgeSums) -> EdgeSums:
        """The same in this one's memory, where it may be written to."""
        return EdgeSums(*(added(mine, theirs) for mine, theirs in zip(self.arrays(), other.arrays())))

    def rows(self, first: int, last: int) -> EdgeSums:
        """Those of some rows: views."""
        return EdgeSums(self.second[first:last], self.first[first:last], self.bias[first:last])


def add_blocks(parts: Sequence[EdgeSums]) -> EdgeSums:
    """The sums of consecutive blocks, added pairwise along the fixed tree over blocks (eq. 21)."""
    return add_along_tree(parts, EdgeSums.merge)


@dataclass(frozen=True)
class Step:
    """The constants of one side's pass."""

    offset: float  # -log c, inside the logit
    weight: float  # rho, the power of the likelihood
    tau: float  # E[tau] of the vectors
    tau_bias: float  # E[tau] of the biases
    epsilon: float


def side_pass(
    own: Side,
    other: Side,
    liked: Adjacency,
    terms: Terms,
    step: Step,
    *,
    own_is_user: bool,
    splits: NDArray[np.int64] | None = None,
    slope: bool = False,
) -> compiled.Pass:
    """All that the kernels read in a pass over one side's rows. `splits` are the blocks of the other side, along
    whose tree the sums are added. With `slope` the sum `first` is that of 2 lambda(xi) E[v], which is how `first`
    falls as the row's own bias grows."""
    unliked = terms.unliked
    return compiled.Pass(
        factors=own.factors,
        own=own.rows,
        own_bias_mean=own.bias_mean,
        own_bias_variance=own.bias_variance,
        other=other.rows,
        other_bias_mean=other.bias_mean,
        other_bias_variance=other.bias_variance,
        liked_starts=liked.starts,
        liked=liked.indices,
        unliked_starts=None if unliked is None else unliked.starts,
        unliked=None if unliked is None else unliked.indices,
        splits=splits,
        bias=own.has_bias,
        offset=step.offset,
        weight=step.weight,
        tau=step.tau,
        tau_bias=step.tau_bias,
        epsilon=step.epsilon,
        expected=terms.expected,
        own_is_user=own_is_user,
        slope=slope,
    )


def edge_sums(
    reading: compiled.Pass,
    rows: NDArray[np.int32],
    factors: int,
    low: int,
    high: int,
    closed_form: bool = False,
    *,
    block: int = 0,
    stepped: Side | None = None,
    spare: Spare | None = None,
) -> EdgeSums:
    """The sums of some rows over their edges to the other side's rows low..high (eq. 15, 19).

    Where rows are stepped in blocks of coordinates, those of one block, of `factors` coordinates; blocks after the
    first read the rows that the ones before have `stepped`.
    """
    return sums_and_bound(reading, rows, factors, low, high, closed_form, block, stepped, spare)[0]


def sums_and_bound(
    reading: compiled.Pass,
    rows: NDArray[np.int32],
    factors: int,
    low: int,
    high: int,
    closed_form: bool = False,
    block: int = 0,
    stepped: Side | None = None,
    spare: Spare | None = None,
) -> tuple[EdgeSums, float]:
    """The same, and the edges' part of the bound where the rows are users."""
    sums = EdgeSums.empty(len(rows), factors, spare)
    out = (None, None, None) if stepped is None else (stepped.rows, stepped.bias_mean, stepped.bias_variance)
    bound = compiled.sum_rows(reading, rows, low, high, closed_form, *sums.arrays(), block, *out)
    return sums, bound
