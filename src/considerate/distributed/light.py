"""Edges of light items, which travel in place of sums if the graph is divided by users.

A light item has few likes and is summed in one pass over its edges, in the order of users (graph.light_rows). A part
sends these edges, and once each the users with such an edge. The head joins the edges of all parts and makes the same
pass as a fit in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency, transpose
from considerate.inference.hidden import Terms
from considerate.inference.posterior import Side
from considerate.kernels import compiled
from considerate.kernels.arrays import empty

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class ItemLists:
    """Lists of items, one for each of some users, end to end."""

    counts: NDArray[np.int32]  # [users]
    items: NDArray[np.int32]  # [edges]
    weights: Floats | None = None  # [edges] of weighted likes

    @classmethod
    def among(cls, edges: Adjacency, items: NDArray[np.bool_]) -> ItemLists:
        """Edges to the chosen items."""
        weights = None if edges.weights is None else edges.weights[items[edges.indices]]
        return cls(*compiled.keep_columns(edges.starts, edges.indices, items), weights)

    @classmethod
    def joined(cls, pieces: Sequence[ItemLists]) -> ItemLists:
        """Concatenate the lists of consecutive users."""
        return cls(
            np.concatenate([piece.counts for piece in pieces]),
            np.concatenate([piece.items for piece in pieces]),
            _joined([piece.weights for piece in pieces]),
        )

    def by_item(self, count: int, run: Any) -> Adjacency:
        """Users of each of `count` items, in order."""
        starts = np.concatenate([[0], np.cumsum(self.counts, dtype=np.int64)])
        return transpose(Adjacency(starts, self.items, self.weights), count, run)

    def turned(self, corrections: Floats, count: int, run: Any) -> tuple[Adjacency, Floats]:
        """(users of each item, corrections of these edges)."""
        numbers = np.arange(len(self.items) + 1)
        edges = transpose(Adjacency(numbers, self.items, self.weights), count, run)  # numbers of the edges
        users = np.repeat(np.arange(len(self.counts), dtype=np.int32), self.counts)
        return Adjacency(edges.starts, users[edges.indices], edges.weights), corrections[edges.indices]


@dataclass(frozen=True)
class LightEdges:
    """Edges of H to light items, and the users at their other ends."""

    users: Side  # users with such an edge, in order
    liked: ItemLists
    unliked: ItemLists | None = None  # drawn or known
    corrections: Floats | None = None  # [liked edges, 2] in the closed form, see compiled.edge_corrections
    unliked_corrections: Floats | None = None  # [unliked edges, 2]
    user_offset: Floats | None = None  # [users] offset in addition to -log c

    @classmethod
    def of(
        cls, users: Side, likes: Adjacency, terms: Terms, light: NDArray[np.bool_], user_offset: Floats | None = None
    ) -> LightEdges:
        """Light-item edges of these users, after their update."""
        lists = [None if edges is None else ItemLists.among(edges, light) for edges in (likes, terms.unliked)]
        some = np.flatnonzero(sum(part.counts for part in lists if part is not None))
        liked, unliked = (None if part is None else replace(part, counts=part.counts[some]) for part in lists)
        assert liked is not None
        closed, more = (
            None
            if part is None or terms.expected is None
            else compiled.edge_corrections(terms.expected, part.counts, part.items)
            for part in lists
        )
        extra = None if user_offset is None else user_offset[some]
        return cls(users.take(some), liked, unliked, closed, more, extra)

    @classmethod
    def joined(cls, pieces: Sequence[LightEdges]) -> LightEdges:
        """Concatenate the edges of consecutive parts."""
        count, width = sum(len(piece.users) for piece in pieces), pieces[0].users.rows.shape[1]
        rows = np.concatenate([piece.users.rows for piece in pieces], out=empty((count, width), np.float32))
        biases = [
            np.concatenate(each) for each in zip(*(piece.users.arrays()[1:] for piece in pieces)) if each[0] is not None
        ]
        unliked = [piece.unliked for piece in pieces if piece.unliked is not None]
        offsets = [piece.user_offset for piece in pieces]
        if any(offset is not None for offset in offsets):
            zeros = [np.zeros(len(piece.users), np.float32) for piece in pieces]
            offsets = [zero if offset is None else offset for zero, offset in zip(zeros, offsets)]
        return cls(
            Side(pieces[0].users.factors, rows, *biases),
            ItemLists.joined([piece.liked for piece in pieces]),
            ItemLists.joined(unliked) if unliked else None,
            _joined([piece.corrections for piece in pieces]),
            _joined([piece.unliked_corrections for piece in pieces]),
            _joined(offsets),
        )


def _joined(pieces: Sequence[Floats | None]) -> Floats | None:
    given = [piece for piece in pieces if piece is not None]
    return np.concatenate(given) if given else None
