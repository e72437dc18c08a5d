"""What tasks do with shards of users: sums, boundaries of blocks, and the parts of the graph cut out of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency, GraphPart, ranges
from considerate.data.pieces import Likes
from considerate.data.vocabulary import Vocabulary, join_ids
from considerate.kernels import compiled


def add_arrays(arrays: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Arrays added up."""
    total: NDArray[np.int64] = np.sum(arrays, axis=0)
    return total


def find_boundaries(likes: Likes, first_user: int, first_edge: int, ends: NDArray[np.float64]) -> NDArray[np.int64]:
    """The users with whom blocks begin that are to end by these edges; each of them is in this shard or ends it."""
    return np.searchsorted(likes.starts + first_edge, ends, side="left") + first_user


def slice_shard(likes: Likes, rows: tuple[tuple[int, int], ...]) -> Likes | list[Likes]:
    """Ranges of a shard's users; one alone is not in a list."""
    slices = [likes.part(first, last) for first, last in rows]
    return slices if len(slices) > 1 else slices[0]


def _joined(slices: list[Likes]) -> tuple[Adjacency, Vocabulary]:
    """Consecutive slices of users as one."""
    degrees = np.concatenate([np.diff(one.starts) for one in slices])
    starts = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)
    items = np.concatenate([one.items for one in slices]) if len(slices) > 1 else slices[0].items
    return Adjacency(starts, items), join_ids([one.users for one in slices])


def join_users(number: int, blocks: NDArray[np.int64], slices: list[Likes]) -> tuple[int, GraphPart, Vocabulary]:
    """(edges, part, users) of a part by users."""
    likes, ids = _joined(slices)
    return likes.edges, GraphPart(number, int(blocks[0]), likes, blocks - blocks[0]), ids


def join_shards(shards: list[Likes]) -> tuple[Adjacency, Vocabulary]:
    """(likes, users) of all shards."""
    return _joined(shards)


def slice_by_items(likes: Likes, first_user: int, places: tuple[int, ...]) -> Adjacency | list[Adjacency]:
    """A shard's users by item, for each range of items; one range alone is not in a list."""
    users = np.repeat(np.arange(len(likes.users), dtype=np.int32), np.diff(likes.starts))
    starts, rows, _ = compiled.sort_pairs(likes.items, users, places[-1], len(likes.users))
    rows = rows + np.int32(first_user)
    slices = []
    for first, last in ranges(np.array(places)):
        own = starts[first : last + 1]
        slices.append(Adjacency(own - own[0], rows[int(own[0]) : int(own[-1])].copy()))
    return slices if len(slices) > 1 else slices[0]


def join_items(number: int, blocks: NDArray[np.int64], users: int, slices: list[Adjacency]) -> tuple[int, GraphPart]:
    """(edges, part) of a part by items, from what all shards of users have of it."""
    count = int(blocks[-1] - blocks[0])
    rows = [np.repeat(np.arange(count, dtype=np.int32), one.degrees) for one in slices]
    columns = [one.indices for one in slices]
    starts, indices, _ = compiled.sort_pairs(np.concatenate(rows), np.concatenate(columns), count, users)
    return len(indices), GraphPart(number, int(blocks[0]), Adjacency(starts, indices), blocks - blocks[0])
