"""Walks of two to four steps between vertices of one kind, which model who considers whom. Not in the paper.

    P       = D^-1 A,                                      one step
    W       = (P + P^2 + P^3) / 3
    walk_mn = (1 / d_m) sum over neighbours n' of m of W_n'n

The walk over likes has P^2 alone: an even number of steps leads from item to item. Here a neighbour's neighbour is two
steps away, and W has odd powers too. Each power keeps the degrees: sum over m of d_m walk_mn = d_n.

P^2 is cut to its most informative entries before the third step, and so is the sum of the three (consideration.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency, Range, ranges, run_serially
from considerate.inference.hidden.consideration import Consideration, Rows, row_cuts, row_length
from considerate.kernels import compiled

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

UNIT = 2.0**40  # the value of 1 in sums, which are whole numbers
NEAREST = 100  # entries of each row of P^2 that the third step starts from


def vertex_consideration(
    edges: Adjacency, neighbours: int, mix: float | None, run: Any = run_serially
) -> Consideration:
    """Make the walk's table of a symmetric adjacency. pi is the degree."""
    from scipy.sparse import csr_matrix

    degrees = edges.degrees.astype(np.float64)
    p, shape = degrees / degrees.sum(), (edges.rows, edges.rows)
    one = csr_matrix((np.repeat(1.0 / np.maximum(degrees, 1.0), edges.degrees), edges.indices, edges.starts), shape)
    work = np.add.reduceat(np.append(degrees[edges.indices], 0.0), edges.starts[:-1]) * (degrees > 0)  # steps of P^2
    work = np.minimum(work + NEAREST * degrees, 2**40).astype(np.int64)
    blocks, length = ranges(row_cuts(work)), row_length(work, neighbours, edges.edges)

    def two_steps(block: Range) -> Rows:
        return _cut(one[slice(*block)] @ one, p, NEAREST)

    def all_steps(block: Range) -> Rows:
        own = one[slice(*block)]
        return _cut(own + own @ one + own @ near, p, length)

    starts, others, shares, _ = zip(*run(two_steps, blocks))
    ends = np.cumsum(np.concatenate([[0], *map(np.diff, starts)]))
    near = csr_matrix((np.concatenate(shares), np.concatenate(others), ends), shape)
    return Consideration.of_rows(run(all_steps, blocks), int(np.minimum(work, length).sum()), degrees, mix)


def _cut(rows: csr_matrix, p: NDArray[np.float64], length: int) -> Rows:
    """Cut rows of sums to their most informative entries, as shares of 1."""
    rows.sort_indices()
    sums = np.maximum(1.0, np.rint(UNIT * rows.data)).astype(np.uint64)
    return compiled.cut_walk(rows.indptr.astype(np.int64), rows.indices.astype(np.int32), sums, p, length)
