"""The users who like some items, gathered from parts on a disk: the walk from these items goes through no others.

A range of items is taken whose users, with all that they like, are within a given room; the parts are read once for
each range. Where the whole graph is within it, that is one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency, GraphOutline, GraphPart, Range, ranges
from considerate.distributed.light import ItemLists
from considerate.inference.hidden.consideration import WalkSteps, row_cuts
from considerate.kernels import compiled

LIKE_BYTES, LISTED_BYTES = 8, 10  # of a like that is gathered, and of one of the range: as it comes, joined, by item
WHOLE_BYTES = 12  # of a like where all are gathered


@dataclass(frozen=True)
class Likers:
    """Users who like some of a range of items."""

    users: NDArray[np.int32]  # their numbers among all, ascending
    likes: Adjacency  # all that they like
    listed: ItemLists  # and what of it is in the range

    @classmethod
    def of(cls, part: GraphPart, items: Range, item_count: int) -> Likers:
        """Those of a part of users."""
        inside = np.zeros(item_count, np.bool_)
        inside[slice(*items)] = True
        counts, listed = compiled.keep_columns(part.likes.starts, part.likes.indices, inside)
        some = np.flatnonzero(counts)
        numbers = (some + part.first).astype(np.int32)
        return cls(numbers, part.likes.take(some), ItemLists(counts[some], listed))

    @staticmethod
    def steps(pieces: list[Likers], pull: NDArray[np.float64], items: Range, run: Any) -> WalkSteps:
        """The walk from the items of the range, through the users of all parts, in order."""
        users = np.concatenate([piece.users for piece in pieces])
        likes, listed = [piece.likes for piece in pieces], [piece.listed for piece in pieces]
        pieces.clear()  # each of its lists goes when it is joined
        joined = ItemLists.joined(listed)
        listed.clear()
        by_item = joined.by_item(len(pull), run).between(*items)
        del joined
        by_user = Adjacency.joined(likes)
        return WalkSteps(by_user, by_item, pull, first_item=items[0], users=users)


def item_ranges(work: NDArray[np.int64], outline: GraphOutline, room: float) -> list[Range]:
    """Ranges of items whose users need at most so many bytes; an item that alone needs more than half is alone.

    work: steps of each item's row, at least as many as its users have likes but for those of very many.
    """
    if WHOLE_BYTES * outline.edges <= room:
        return [(0, outline.item_count)]
    needed = LIKE_BYTES * np.minimum(work, outline.edges) + LISTED_BYTES * outline.item_degree
    alone = np.flatnonzero(needed > room / 2)
    needed[alone] = 0
    cuts = row_cuts(needed, max(1, int(room / 2)))
    return ranges(np.unique(np.concatenate([cuts, alone, alone + 1])))
