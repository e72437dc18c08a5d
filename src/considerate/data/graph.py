"""G, the observed graph: both orientations, degrees, and fixed blocks of rows.

Blocks are the unit of work. They depend on the data alone, never on the number of threads or machines. A part is a few
consecutive blocks; parts are the leaves of the tree along which an item's sums are added.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from considerate.data.weights import Amounts
from considerate.errors import DataError, UsageError
from considerate.kernels import compiled
from considerate.kernels.arrays import Spare, empty, take_lists

if TYPE_CHECKING:
    from considerate.data.known import Known

logger = logging.getLogger("considerate")
BLOCK_EDGES = 32_768  # least number of edges in a block
LARGE_BLOCK = 32  # a block with so many times BLOCK_EDGES is large
FEW_BLOCKS, MOST_BLOCKS = 256, 4096  # most blocks of users: while no block is large, and in any case
MOST_ITEM_BLOCKS = 64  # most blocks of items, whose sums are added together, a block of users at a time
FEW_PARTS, PART_BLOCKS = 64, 4  # if parts have several blocks: most parts, or else most blocks of a part
LEAF_EDGES = 16  # a row with fewer edges to each part of the other side, on average, is light
LIGHT_SHARE = 16  # most rows of the other side for each light row; if there are more, no row is light
MOST_SLICES = 32  # most slices of rows in a transposition by several threads
FEW_COLUMNS = 1 << 14  # so many columns are sorted in one go: their places stay in the near caches
BUCKET_BITS = 8  # bits of a column that choose its bucket, if there are more columns
USERS, ITEMS = "users", "items"  # the side whose rows stay in their parts when a graph is divided

Task = TypeVar("Task")
Result = TypeVar("Result")
Run = Callable[[Callable[[Task], Result], Sequence[Task]], list[Result]]
Range = tuple[int, int]


def run_serially(function: Callable[[Task], Result], tasks: Iterable[Task]) -> list[Result]:
    """Backend without threads: run one task after the other."""
    return [function(task) for task in tasks]


@dataclass(frozen=True)
class Adjacency:
    """Edges by row, as indices of the other side. Likes may have weights."""

    starts: NDArray[np.int64]  # [rows + 1]
    indices: NDArray[np.int32]  # [edges]
    weights: NDArray[np.float32] | None = None  # [edges] kappa; None: all are 1

    @classmethod
    def of_rows(cls, rows: Sequence[NDArray[np.int32]]) -> Adjacency:
        """Make an adjacency of single rows."""
        starts = np.zeros(len(rows) + 1, np.int64)
        np.cumsum([len(row) for row in rows], out=starts[1:])
        return cls(starts, np.concatenate([np.empty(0, np.int32), *rows]))

    @classmethod
    def joined(cls, pieces: Sequence[Adjacency]) -> Adjacency:
        """Concatenate the rows of several pieces."""
        if len(pieces) == 1:
            return pieces[0]
        degrees = np.concatenate([piece.degrees for piece in pieces])
        weights = [piece.weights for piece in pieces if piece.weights is not None]
        return cls(
            np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64),
            np.concatenate([piece.indices for piece in pieces]),
            np.concatenate(weights) if len(weights) == len(pieces) else None,
        )

    @classmethod
    def of_pairs(cls, rows: NDArray[Any], columns: NDArray[Any], count: int, width: int) -> Adjacency:
        """Sort pairs into `count` rows of indices below `width`; a pair that comes several times is kept once."""
        pairs = np.ascontiguousarray(rows, np.int32), np.ascontiguousarray(columns, np.int32)
        starts, indices, kept = compiled.sort_pairs(*pairs, count, width)
        few = kept < 7 * len(indices) // 8  # copy, to free the memory of many double pairs
        return cls(starts, indices[:kept].copy() if few else indices[:kept])

    def for_kernels(self) -> compiled.Edges:
        """The edges as the kernels read them."""
        return compiled.Edges(self.starts, self.indices, self.weights)

    @property
    def rows(self) -> int:
        return len(self.starts) - 1

    @property
    def edges(self) -> int:
        return len(self.indices)

    @cached_property
    def degrees(self) -> NDArray[np.int64]:
        return np.diff(self.starts)

    @property
    def edge_rows(self) -> NDArray[np.int64]:
        """[edges] the row of each edge."""
        return np.repeat(np.arange(self.rows), self.degrees)

    def between(self, first: int, last: int) -> Adjacency:
        """Rows first .. last - 1, as a view."""
        starts = self.starts[first : last + 1]
        edges = slice(starts[0], starts[-1])
        weights = None if self.weights is None else self.weights[edges]
        return Adjacency(starts - starts[0], self.indices[edges], weights)

    def take(self, rows: NDArray[np.int64]) -> Adjacency:
        """Select rows, in this order; row -1 is empty."""
        starts, indices = take_lists(self.starts, self.indices, rows)
        weights = None if self.weights is None else take_lists(self.starts, self.weights, rows)[1]
        return Adjacency(starts, indices, weights)

    def keep(self, kept: NDArray[np.bool_]) -> Adjacency:
        """Keep a selection of the edges."""
        starts = np.concatenate([[0], np.cumsum(kept)])[self.starts].astype(np.int64)
        return Adjacency(starts, self.indices[kept], None if self.weights is None else self.weights[kept])

    def without(self, other: Adjacency, width: int) -> Adjacency:
        """Remove the edges of another adjacency with as many rows; indices are below `width`."""
        if self.rows != other.rows:
            raise UsageError(f"{self.rows} rows of considered items for {other.rows} rows of likes; give one for each.")
        kept = ~other.has(self)
        return Adjacency.of_pairs(self.edge_rows[kept], self.indices[kept], self.rows, width)

    def has(self, pairs: Adjacency) -> NDArray[np.bool_]:
        """[edges of the pairs] whether each is an edge here; both have as many rows."""
        known, asked = (each.edge_rows << 32 | each.indices for each in (self, pairs))
        return np.asarray(np.append(known, -1)[np.searchsorted(known, asked)] == asked)

    def find(self, rows: NDArray[Any], columns: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Find pairs: (place of each in `indices`, or where it would be, and whether it is there).

        Only the rows of these pairs are read.
        """
        touched, which = np.unique(rows, return_inverse=True)
        some = self.take(touched)
        width = 1 + max(int(some.indices.max(initial=0)), int(columns.max(initial=0)))
        known = some.edge_rows * width + some.indices
        keys = which * width + columns
        at = np.searchsorted(known, keys)
        found = np.append(known, -1)[at] == keys
        return at + (self.starts[touched] - some.starts[:-1])[which], found

    def row(self, row: int) -> NDArray[np.int32]:
        return self.indices[self.starts[row] : self.starts[row + 1]]


def row_blocks(starts: NDArray[np.int64], block_edges: int = BLOCK_EDGES, most: int | None = None) -> NDArray[np.int64]:
    """[blocks + 1] boundaries of blocks of rows with about as many edges each, from 0 to the number of rows."""
    rows = len(starts) - 1
    inner = np.searchsorted(starts, block_ends(int(starts[-1]), block_edges, most), side="left")
    return np.unique(np.concatenate([[0], np.minimum(inner, rows), [rows]])).astype(np.int64)


def block_ends(edges: int, block_edges: int = BLOCK_EDGES, most: int | None = None) -> NDArray[np.float64]:
    """[blocks - 1] numbers of edges at which blocks should end; a block ends with a whole row."""
    count = int(np.clip(-(-edges // block_edges), 1, most or most_blocks(edges, block_edges)))
    return np.arange(1, count) * edges / count


def most_blocks(edges: int, block_edges: int = BLOCK_EDGES) -> int:
    """Most blocks of users: 256, and twice as many as long as blocks would be large, up to 4096."""
    most = FEW_BLOCKS
    while most < MOST_BLOCKS and edges > most * LARGE_BLOCK * block_edges:
        most *= 2
    return most


def ranges(boundaries: NDArray[np.int64]) -> list[Range]:
    """Ranges between boundaries: [a, b, c] -> [(a, b), (b, c)]"""
    return [(int(a), int(b)) for a, b in pairwise(boundaries)]


def add_along_tree(parts: Sequence[Result], add: Callable[[Result, Result], Result]) -> Result:
    """Add the results of consecutive blocks pairwise, along the one fixed tree over blocks."""
    level = list(parts)
    while len(level) > 1:
        pairs = [add(level[i], level[i + 1]) for i in range(0, len(level) - 1, 2)]
        level = pairs + (level[-1:] if len(level) % 2 else [])
    return level[0]


def map_along_tree(
    function: Callable[[Task], Result], tasks: Sequence[Task], run: Run[Task, Result], add: Callable[..., Result]
) -> Result:
    """Map tasks and add the results along the tree, eight at a time, so that few results are in memory at once."""
    held: list[tuple[int, Result]] = []  # nodes of the tree that wait for their neighbour: (level, sum)
    for first in range(0, len(tasks), 8):
        level, node = 0, add_along_tree(run(function, tasks[first : first + 8]), add)
        while held and held[-1][0] == level:
            level, node = level + 1, add(held.pop()[1], node)
        held.append((level, node))
    total = held.pop()[1]
    while held:
        total = add(held.pop()[1], total)
    return total


def transpose(
    adjacency: Adjacency,
    columns: int,
    run: Callable[[Callable[[int], None], Sequence[int]], Iterable[None]] = map,
    spare: Spare | None = None,
) -> Adjacency:
    """Transpose: the rows of each column, ascending. It is a counting sort, whose slices of rows `run` maps.

    If there are many columns, edges first go into buckets of columns, usually at most 256, with the low bits of their
    columns, 2 bytes an edge; then each bucket is sorted. The result does not depend on slices and buckets.
    """
    shift = 0 if columns <= FEW_COLUMNS else min(16, (columns - 1).bit_length() - BUCKET_BITS)
    buckets = ((columns - 1) >> shift) + 1
    slices = ranges(row_blocks(adjacency.starts, max(BLOCK_EDGES, 4 * buckets), MOST_SLICES))
    places, bounds = np.zeros((len(slices), buckets), np.int64), np.empty(buckets + 1, np.int64)

    def count(number: int) -> None:
        first, last = adjacency.starts[list(slices[number])]
        compiled.count_columns(adjacency.indices[first:last], places[number], shift)

    list(run(count, range(len(slices))))
    compiled.counts_to_places(places, bounds)
    rows = empty((adjacency.edges,), np.int32, spare)
    low = empty((adjacency.edges,), np.uint16, spare) if shift else None

    def scatter(number: int) -> None:
        compiled.scatter_rows(adjacency.starts, adjacency.indices, *slices[number], shift, places[number], rows, low)

    list(run(scatter, range(len(slices))))
    if low is None:
        return Adjacency(bounds, rows, _turned_weights(adjacency, bounds))
    starts = np.full(columns + 1, adjacency.edges, np.int64)

    def sort(bucket: int) -> None:
        first, last = bounds[bucket : bucket + 2]
        inside = starts[bucket << shift : min((bucket + 1) << shift, columns)]
        compiled.sort_bucket(low[first:last], rows[first:last], first, inside)

    list(run(sort, range(buckets)))
    return Adjacency(starts, rows, _turned_weights(adjacency, starts))


def _turned_weights(adjacency: Adjacency, starts: NDArray[np.int64]) -> NDArray[np.float32] | None:
    if adjacency.weights is None:
        return None
    return compiled.transpose_weights(adjacency.indices, adjacency.weights, starts)


@dataclass(frozen=True)
class Graph:
    """The bipartite graph of likes, g_mn = 1."""

    by_user: Adjacency
    by_item: Adjacency
    user_blocks: NDArray[np.int64]
    item_blocks: NDArray[np.int64]
    duplicates: int = 0  # rows of the data that repeat a pair

    @property
    def user_count(self) -> int:
        return self.by_user.rows

    @property
    def item_count(self) -> int:
        return self.by_item.rows

    @property
    def edges(self) -> int:
        return self.by_user.edges

    @property
    def item_degree(self) -> NDArray[np.int64]:
        return self.by_item.degrees

    @classmethod
    def from_pairs(
        cls,
        users: NDArray[np.int32],
        items: NDArray[np.int32],
        user_count: int,
        item_count: int,
        *,
        block_edges: int = BLOCK_EDGES,
        amounts: Amounts | None = None,
    ) -> Graph:
        """Make the graph of pairs of row numbers.

        Repeated pairs are folded and counted. If likes have weights, their amounts are added.
        """
        if len(users) == 0:
            raise DataError("There is not a single like in the data; a graph needs at least one edge.")
        by_user = Adjacency.of_pairs(users, items, user_count, item_count)
        if amounts is not None:
            summed = compiled.add_to_edges(by_user.starts, by_user.indices, users, items, amounts.values)
            weighting = amounts.weighting
            by_user = replace(by_user, weights=weighting.weights(weighting.shaped(summed), by_user.starts))
        return cls.from_adjacency(by_user, item_count, block_edges=block_edges, duplicates=len(users) - by_user.edges)

    @classmethod
    def from_adjacency(
        cls, by_user: Adjacency, item_count: int, *, block_edges: int = BLOCK_EDGES, duplicates: int = 0
    ) -> Graph:
        """Make the graph of sorted rows without repeated edges."""
        user_blocks = row_blocks(by_user.starts, block_edges)
        by_item = transpose(by_user, item_count)
        item_blocks = row_blocks(by_item.starts, block_edges, MOST_ITEM_BLOCKS)
        return cls(by_user, by_item, user_blocks, item_blocks, duplicates)

    def pairs(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """(users, items) of all edges, by user."""
        users = np.repeat(np.arange(self.user_count, dtype=np.int32), self.by_user.degrees)
        return users, self.by_user.indices


# --- The graph in parts ---


def light_rows(degrees: NDArray[np.int64], leaves: int, edges_per_like: float, others: int) -> NDArray[np.bool_]:
    """Light rows: rows of so few edges that they are summed in one go, not along the tree over `leaves` parts.

    Every worker knows the degrees in G; a like stands for `edges_per_like` edges of H. If the graph is divided, the
    `others` at the ends of these edges are sent. If they are far more than the light rows, their vectors would be
    larger than any sums, and no row is light: then rows have several edges to a leaf, except for a few of low degree.
    """
    light = degrees * edges_per_like <= LEAF_EDGES * leaves
    return light if others <= LIGHT_SHARE * np.count_nonzero(light) else np.zeros(len(degrees), np.bool_)


def leaf_splits(blocks: NDArray[np.int64]) -> NDArray[np.int64]:
    """Boundaries of the parts of these blocks: the leaves of the tree of sums."""
    parts = part_ranges(len(blocks) - 1)
    return blocks[[0, *(last for _, last in parts)]]


def part_ranges(blocks: int) -> list[Range]:
    """The blocks of each part: 1, 2 or 4 consecutive ones, as few as make at most 64 parts; the last may have fewer.

    Only graphs of more than 256 blocks have more parts, up to 1,024. The data alone decides.
    """
    size = 1
    while size < PART_BLOCKS and -(-blocks // size) > FEW_PARTS:
        size *= 2
    return [(first, min(first + size, blocks)) for first in range(0, blocks, size)]


def some_parts(parts: Sequence[Range]) -> list[Sequence[Range]]:
    """Group parts by eight: each group is a node of the tree over parts."""
    return [parts[at : at + 8] for at in range(0, len(parts), 8)]


@dataclass(frozen=True)
class GraphPart:
    """One part of a divided graph: the edges of some consecutive rows of the resident side."""

    number: int
    first: int  # number of its first row in the whole graph
    likes: Adjacency  # rows are those of the part, from 0; indices are rows of the whole graph
    blocks: NDArray[np.int64]  # boundaries of its blocks, in rows of the part
    all_user_likes: Adjacency | None = None  # if items are resident: likes of all users, to repeat their draws
    known: Known | None = None  # if users are resident: constraints on H of its users

    @property
    def rows(self) -> int:
        return self.likes.rows


@dataclass(frozen=True)
class GraphOutline:
    """Sizes, degrees of items and blocks of a graph, without its edges or anything else that grows with users."""

    user_count: int
    item_count: int
    edges: int
    duplicates: int
    item_degree: NDArray[np.int64]  # [items]
    user_blocks: NDArray[np.int64]
    item_blocks: NDArray[np.int64]
    weighted: bool = False  # likes have weights

    def blocks_of(self, side: str) -> NDArray[np.int64]:
        return self.user_blocks if side == USERS else self.item_blocks


def divide(graph: Graph, resident: str = USERS) -> tuple[GraphOutline, list[GraphPart]]:
    """Divide a graph into parts by its users, or by its items. The edges of parts are views."""
    counts = graph.user_count, graph.item_count, graph.edges, graph.duplicates
    weighted = graph.by_user.weights is not None
    outline = GraphOutline(*counts, graph.by_item.degrees, graph.user_blocks, graph.item_blocks, weighted)
    edges = graph.by_user if resident == USERS else graph.by_item
    all_user_likes = None if resident == USERS else graph.by_user
    parts = []
    for number, (low, high) in enumerate(part_ranges(len(outline.blocks_of(resident)) - 1)):
        blocks = outline.blocks_of(resident)[low : high + 1]
        first, last = int(blocks[0]), int(blocks[-1])
        parts.append(GraphPart(number, first, edges.between(first, last), blocks - first, all_user_likes))
    return outline, parts


# --- Sizes ---


def looks_swapped(users: int, items: int) -> bool:
    """True if there are so many items for the users that the two may be swapped."""
    return items > 20 * users and items > 1000


def check_sizes(source: str, users: int, items: int, duplicates: int, active: tuple[int, int] | None = None) -> None:
    """Check the sizes of the data: log folded pairs, refuse a single user or item, warn if the two may be swapped.

    `active` is the number of users and of items with likes, if these are not all.
    """
    active_users, active_items = active or (users, items)
    if duplicates:
        logger.warning("%s: %d duplicate pairs were folded into one like each", source, duplicates)
    if active_items < 2:
        raise DataError(f"{source}: there is only one item with likes; at least two are needed to choose from.")
    if active_users < 2:
        raise DataError(f"{source}: there is only one user with likes; at least two are needed to learn from.")
    if looks_swapped(users, items):
        warnings.warn(
            f"{source}: {items} items for {users} users. If users and items are "
            "swapped, swap --user-column and --item-column (or transpose the matrix); see `considerate inspect`.",
            stacklevel=4,
        )
