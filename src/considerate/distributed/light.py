"""Edges of light items, which travel where the graph is divided by users.

An item of few likes is summed in one go, over its edges in the order of users, wherever these users are
(graph.light_rows). A part sends no sums of such items. It sends its users that have an edge to one, once each, and the
edges; the head puts those of all parts together and makes the same pass as a fit in memory.
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


@dataclass(frozen=True)
class ItemLists:
    """Some items of each of some users, one user's after the other's."""

    counts: NDArray[np.int32]  # [users]
    items: NDArray[np.int32]  # [edges]
    weights: NDArray[np.float32] | None = None  # [edges] of likes that have some

    @classmethod
    def among(cls, edges: Adjacency, items: NDArray[np.bool_]) -> ItemLists:
        """The edges to some items."""
        weights = None if edges.weights is None else edges.weights[items[edges.indices]]
        return cls(*compiled.keep_columns(edges.starts, edges.indices, items), weights)

    @classmethod
    def joined(cls, pieces: Sequence[ItemLists]) -> ItemLists:
        """Those of consecutive users."""
        weights = [piece.weights for piece in pieces if piece.weights is not None]
        return cls(
            np.concatenate([piece.counts for piece in pieces]),
            np.concatenate([piece.items for piece in pieces]),
            np.concatenate(weights) if weights else None,
        )

    def by_item(self, count: int, run: Any) -> Adjacency:
        """The users of each of `count` items, in order."""
        starts = np.concatenate([[0], np.cumsum(self.counts, dtype=np.int64)])
        return transpose(Adjacency(starts, self.items, self.weights), count, run)

    def edges_by_item(self, count: int, run: Any) -> Adjacency:
        """The same with the number of an edge in place of its user."""
        starts = np.arange(len(self.items) + 1)
        return transpose(Adjacency(starts, self.items, self.weights), count, run)


@dataclass(frozen=True)
class LightEdges:
    """Edges of H to light items, and the users at their other ends."""

    users: Side  # those with such an edge, in order
    liked: ItemLists
    unliked: ItemLists | None = None  # sampled mode, and where pairs are known
    corrections: NDArray[np.float32] | None = None  # expected mode: [liked edges, 2], as compiled.edge_corrections
    unliked_corrections: NDArray[np.float32] | None = None  # and of the unliked ones
    user_offset: NDArray[np.float32] | None = None  # [users] what their logits have beside -log c

    @classmethod
    def of(
        cls,
        users: Side,
        likes: Adjacency,
        terms: Terms,
        light: NDArray[np.bool_],
        user_offset: NDArray[np.float32] | None = None,
    ) -> LightEdges:
        """Those of these users, after a pass over them by these terms."""
        lists = [None if edges is None else ItemLists.among(edges, light) for edges in (likes, terms.unliked)]
        some = np.flatnonzero(sum(part.counts for part in lists if part is not None))
        liked, unliked = (None if part is None else replace(part, counts=part.counts[some]) for part in lists)
        assert liked is not None
        extra = None if user_offset is None else user_offset[some]
        if terms.expected is None:
            return cls(users.take(some), liked, unliked, user_offset=extra)
        closed, more = (
            None if part is None else compiled.edge_corrections(terms.expected, part.counts, part.items)
            for part in lists
        )
        return cls(users.take(some), liked, unliked, closed, more, extra)

    @classmethod
    def joined(cls, pieces: Sequence[LightEdges]) -> LightEdges:
        """Those of consecutive parts."""
        count, width = sum(len(piece.users) for piece in pieces), pieces[0].users.rows.shape[1]
        rows = np.concatenate([piece.users.rows for piece in pieces], out=empty((count, width), np.float32))
        biases = [
            np.concatenate(each) for each in zip(*(piece.users.arrays()[1:] for piece in pieces)) if each[0] is not None
        ]
        unliked = [piece.unliked for piece in pieces if piece.unliked is not None]
        offsets = None
        if any(piece.user_offset is not None for piece in pieces):
            nothing = [np.zeros(len(piece.users), np.float32) for piece in pieces]
            given = [none if piece.user_offset is None else piece.user_offset for none, piece in zip(nothing, pieces)]
            offsets = np.concatenate(given)
        return cls(
            Side(pieces[0].users.factors, rows, *biases),
            ItemLists.joined([piece.liked for piece in pieces]),
            ItemLists.joined(unliked) if unliked else None,
            _joined([piece.corrections for piece in pieces]),
            _joined([piece.unliked_corrections for piece in pieces]),
            offsets,
        )


def _joined(pieces: Sequence[NDArray[np.float32] | None]) -> NDArray[np.float32] | None:
    given = [piece for piece in pieces if piece is not None]
    return np.concatenate(given) if given else None
