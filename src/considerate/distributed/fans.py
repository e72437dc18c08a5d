"""Users who like some items, gathered from parts on disk: the walk from these items visits no other users.

The items are taken in ranges whose users, with all their likes, fit a given size. The parts are read once for each
range; there is one range if the whole graph fits.
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

LIKE_BYTES, LISTED_BYTES = 8, 10  # of a gathered like, and more of one in the range: as sent, joined, by item
WHOLE_BYTES = 12  # of a like if all are gathered


@dataclass(frozen=True)
class Fans:
    """Users who like any of a range of items."""

    users: NDArray[np.int32]  # their numbers among all users, ascending
    likes: Adjacency  # all their likes
    listed: ItemLists  # their likes in the range

    @classmethod
    def of(cls, part: GraphPart, items: Range, item_count: int) -> Fans:
        """Fans in a part of users."""
        inside = np.zeros(item_count, np.bool_)
        inside[slice(*items)] = True
        counts, listed = compiled.keep_columns(part.likes.starts, part.likes.indices, inside)
        some = np.flatnonzero(counts)
        numbers = (some + part.first).astype(np.int32)
        return cls(numbers, part.likes.take(some), ItemLists(counts[some], listed))

    @staticmethod
    def steps(pieces: list[Fans], pull: NDArray[np.float64], items: Range, run: Any) -> WalkSteps:
        """Walk from the items of the range through the fans of all parts, in order."""
        users = np.concatenate([piece.users for piece in pieces])
        likes, listed = [piece.likes for piece in pieces], [piece.listed for piece in pieces]
        pieces.clear()  # so that each list is freed when it is joined
        joined = ItemLists.joined(listed)
        listed.clear()
        by_item = joined.by_item(len(pull), run).between(*items)
        del joined
        by_user = Adjacency.joined(likes)
        return WalkSteps(by_user, by_item, pull, first_item=items[0], users=users)


def item_ranges(work: NDArray[np.int64], outline: GraphOutline, room: float) -> list[Range]:
    """Ranges of items whose fans need at most `room` bytes; an item that needs more than half is a range by itself.

    work: steps of each item's row. Fans have at most as many likes, unless some have very many.
    """
    if WHOLE_BYTES * outline.edges <= room:
        return [(0, outline.item_count)]
    needed = LIKE_BYTES * np.minimum(work, outline.edges) + LISTED_BYTES * outline.item_degree
    alone = np.flatnonzero(needed > room / 2)
    needed[alone] = 0
    cuts = row_cuts(needed, max(1, int(room / 2)))
    return ranges(np.unique(np.concatenate([cuts, alone, alone + 1])))
