"""Stages of a divided reading: the head submits tasks and sees sizes alone.

cut_pieces       files -> pieces
read_pieces      pieces -> their likes
exchange_likes   likes of pieces -> likes of shards of users
make_outline     shards -> outline of the graph
parts_by_users   shards -> parts
parts_by_items
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.encode import check_missing, check_size
from considerate.data.graph import (
    MOST_ITEM_BLOCKS,
    Adjacency,
    GraphOutline,
    GraphPart,
    block_ends,
    part_ranges,
    ranges,
    row_blocks,
    transpose,
)
from considerate.data.options import ReaderOptions
from considerate.data.parquet import Fragment, ParquetInput
from considerate.data.pieces import (
    Likes,
    PieceSummary,
    ShardSize,
    choose_cuts,
    latest_time,
    make_shard,
    merge_items,
    plan_pieces,
    read_piece,
    split_piece,
)
from considerate.data.read import check_rows
from considerate.data.vocabulary import Vocabulary, join_ids
from considerate.data.weights import Scaling, Weighting
from considerate.distributed.tasks import Tasks
from considerate.kernels import compiled

Progress = Callable[[str, int, int], None]  # (stage, done, total)
Ref = Any
FAN_IN = 16  # values that one task merges


class TaskStages:
    """Tasks, and a callback for their progress."""

    def __init__(self, tasks: Tasks, progress: Progress) -> None:
        self.tasks, self.progress = tasks, progress

    def gather(self, stage: str, refs: Sequence[Ref]) -> list[Any]:
        """Results of the tasks of a stage; raises the first failure at once."""
        waiting = list(refs)
        self.progress(stage, 0, len(refs))
        while waiting:
            finished, waiting = self.tasks.wait(waiting)
            self.tasks.get(finished)
            self.progress(stage, len(refs) - len(waiting), len(refs))
        return list(self.tasks.get(list(refs)))

    def merge(self, function: Callable[[list[Any]], Any], refs: Sequence[Ref]) -> Ref:
        """Merge values by tasks, a few at a time."""
        level = list(refs)
        while len(level) > 1:
            level = [self.tasks.submit(function, level[at : at + FAN_IN]) for at in range(0, len(level), FAN_IN)]
        return level[0]


@dataclass
class ReadPieces:
    """Result of reading: numbers, and references to the likes and items of each piece."""

    summaries: list[PieceSummary]
    items: list[Ref]
    likes: list[Ref]

    @property
    def rows(self) -> int:
        return sum(piece.rows for piece in self.summaries)

    @property
    def kept(self) -> int:
        return sum(piece.kept for piece in self.summaries)


@dataclass(frozen=True)
class UserShards:
    """Likes in shards of consecutive users."""

    sizes: list[ShardSize]
    degree: Ref  # to the number of likes of every item
    likes: list[Ref]  # to Likes
    first_users: list[int]  # [shards + 1]
    first_edges: list[int]  # [shards + 1]
    scaling: Scaling | None = None  # of weighted likes


def cut_pieces(table: ParquetInput, watch: TaskStages, most: int) -> list[ParquetInput]:
    """Cut an input into pieces; files larger than a piece are cut at row groups."""
    table = table.absolute()
    large = [place for place, fragment in enumerate(table.fragments) if fragment.size > most]
    refs = [watch.tasks.submit(ParquetInput.cut, table.part([table.fragments[place]])) for place in large]
    cut = dict(zip(large, watch.gather("looking at files", refs) if refs else []))
    units: list[Fragment] = []
    for place, fragment in enumerate(table.fragments):
        units += cut.get(place, [fragment])
    return plan_pieces(table, units, most)


def read_pieces(pieces: list[ParquetInput], watch: TaskStages, options: ReaderOptions) -> ReadPieces:
    """Read every piece by a task, and check the sums over all pieces."""
    latest = None
    if options.half_life is not None:
        latest = max(watch.gather("looking at times", [watch.tasks.submit(latest_time, p, options) for p in pieces]))
    refs = [watch.tasks.submit(read_piece, piece, options, latest, returns=3) for piece in pieces]
    summaries, items, likes = map(list, zip(*refs))
    read = ReadPieces(watch.gather("reading", summaries), items, likes)
    name = pieces[0].name
    check_rows(name, options.rule, read.rows, read.kept, sum(piece.nan for piece in read.summaries))
    for at, (what, column) in enumerate((("user", str(options.user_column)), ("item", str(options.item_column)))):
        check_missing(name, what, column, sum(piece.missing[at] for piece in read.summaries))
    return read


def exchange_likes(
    read: ReadPieces, watch: TaskStages, name: str, shards: int, weighting: Weighting | None = None
) -> tuple[Vocabulary, UserShards]:
    """Send the likes of all pieces to shards of users. The likes of the pieces are freed."""
    merged = watch.merge(merge_items, read.items)
    item_ids: Vocabulary = watch.tasks.get(merged)
    check_size(name, "item", len(item_ids))
    cuts = choose_cuts(read.summaries, shards)
    slices: list[list[Ref]] = []
    while read.likes:
        likes, items = read.likes.pop(0), read.items.pop(0)
        sent = watch.tasks.submit(split_piece, likes, items, merged, cuts, returns=len(cuts) + 1)
        slices.append(sent if cuts else [sent])
        del likes, items, sent
    refs = []
    for _ in range(len(cuts) + 1):
        own = [piece.pop(0) for piece in slices]
        refs.append(watch.tasks.submit(make_shard, own, len(item_ids), weighting, returns=3))
        del own
    size_refs, degrees, shard_likes = map(list, zip(*refs))
    sizes: list[ShardSize] = watch.gather("exchanging", size_refs)
    degree = watch.merge(partial(np.sum, axis=0), degrees)
    first_users = np.cumsum([0, *(shard.users for shard in sizes)]).tolist()
    first_edges = np.cumsum([0, *(shard.edges for shard in sizes)]).tolist()
    check_size(name, "user", first_users[-1])
    whole = first_edges[-1], sum(shard.shaped for shard in sizes)
    scaling = None if weighting is None else Scaling(weighting, whole)
    return item_ids, UserShards(sizes, degree, shard_likes, first_users, first_edges, scaling)


def make_outline(shards: UserShards, watch: TaskStages, item_count: int) -> GraphOutline:
    """Outline of the graph, with the blocks that `row_blocks` gives for the whole graph."""
    users, edges = shards.first_users[-1], shards.first_edges[-1]
    ends = block_ends(edges)
    refs = []
    for shard, likes in enumerate(shards.likes):
        low, high = np.searchsorted(ends, shards.first_edges[shard : shard + 2], side="right")
        if low < high:
            place = (shards.first_users[shard], shards.first_edges[shard])
            refs.append(watch.tasks.submit(find_boundaries, likes, *place, ends[low:high]))
    inner = watch.tasks.get(refs)
    user_blocks = np.unique(np.concatenate([[0], *inner, [users]])).astype(np.int64)
    degree = watch.tasks.get(shards.degree)
    item_blocks = row_blocks(np.concatenate([[0], np.cumsum(degree)]), most=MOST_ITEM_BLOCKS)
    duplicates = sum(shard.duplicates for shard in shards.sizes)
    weighted = shards.scaling is not None
    return GraphOutline(users, item_count, edges, duplicates, degree, user_blocks, item_blocks, weighted)


DividedParts = tuple[list[Ref], list[int], Ref | None, list[Ref]]


def parts_by_users(shards: UserShards, outline: GraphOutline, watch: TaskStages) -> DividedParts:
    """(parts, their edges, None, users of each part). A part is joined from slices of the shards that it overlaps."""
    blocks = [outline.user_blocks[low : high + 1] for low, high in part_ranges(len(outline.user_blocks) - 1)]
    slices: list[list[Ref]] = [[] for _ in blocks]
    for shard, likes in enumerate(shards.likes):
        first, last = shards.first_users[shard], shards.first_users[shard + 1]
        overlaps = [
            (part, max(int(own[0]), first) - first, min(int(own[-1]), last) - first)
            for part, own in enumerate(blocks)
            if max(own[0], first) < min(own[-1], last)
        ]
        if overlaps:
            rows = tuple(overlap[1:] for overlap in overlaps)
            sent = watch.tasks.submit(slice_shard, likes, rows, returns=len(rows))
            for overlap, ref in zip(overlaps, sent if len(rows) > 1 else [sent]):
                slices[overlap[0]].append(ref)
    shards.likes.clear()
    refs = [
        watch.tasks.submit(join_users, number, own, slices[number], shards.scaling, returns=3)
        for number, own in enumerate(blocks)
    ]
    del slices
    edges, parts, user_ids = map(list, zip(*refs))
    return parts, watch.gather("dividing", edges), None, user_ids


def parts_by_items(shards: UserShards, outline: GraphOutline, watch: TaskStages) -> DividedParts:
    """(parts, their edges, likes of all users, [all users]). A part is joined from slices of all shards."""
    blocks = [outline.item_blocks[low : high + 1] for low, high in part_ranges(len(outline.item_blocks) - 1)]
    places = (*(int(own[0]) for own in blocks), outline.item_count)
    sent = [
        watch.tasks.submit(slice_by_items, likes, first, places, shards.scaling, returns=len(blocks))
        for likes, first in zip(shards.likes, shards.first_users)
    ]
    slices = sent if len(blocks) > 1 else [[ref] for ref in sent]
    refs = [
        watch.tasks.submit(join_items, number, own, outline.user_count, list(own_slices), returns=2)
        for number, (own, own_slices) in enumerate(zip(blocks, zip(*slices)))
    ]
    all_user_likes, users = watch.tasks.submit(join_shards, list(shards.likes), shards.scaling, returns=2)
    shards.likes.clear()
    edges, parts = map(list, zip(*refs))
    return parts, watch.gather("dividing", edges), all_user_likes, [users]


# --- Tasks on shards of users ---


def find_boundaries(likes: Likes, first_user: int, first_edge: int, ends: NDArray[np.float64]) -> NDArray[np.int64]:
    """First users of the blocks that follow these edge numbers; each user is in this shard or just after it."""
    return np.searchsorted(likes.starts + first_edge, ends, side="left") + first_user


def slice_shard(likes: Likes, rows: tuple[tuple[int, int], ...]) -> Likes | list[Likes]:
    """Ranges of a shard's users; a single range is not in a list."""
    slices = [likes.part(first, last) for first, last in rows]
    return slices if len(slices) > 1 else slices[0]


def join_shards(slices: list[Likes], scaling: Scaling | None = None) -> tuple[Adjacency, Vocabulary]:
    """(likes, users) of consecutive slices of users."""
    return Adjacency.joined([part.adjacency(scaling) for part in slices]), join_ids([part.users for part in slices])


def join_users(
    number: int, blocks: NDArray[np.int64], slices: list[Likes], scaling: Scaling | None = None
) -> tuple[int, GraphPart, Vocabulary]:
    """(edges, part, users) of a part by users."""
    likes, ids = join_shards(slices, scaling)
    return likes.edges, GraphPart(number, int(blocks[0]), likes, blocks - blocks[0]), ids


def slice_by_items(
    likes: Likes, first_user: int, places: tuple[int, ...], scaling: Scaling | None = None
) -> Adjacency | list[Adjacency]:
    """A shard's users by item, for each range of items; a single range is not in a list."""
    by_item, slices = transpose(likes.adjacency(scaling), places[-1]), []
    for first, last in ranges(np.array(places)):
        own = by_item.between(first, last)
        weights = None if own.weights is None else own.weights.copy()
        slices.append(Adjacency(own.starts, own.indices + np.int32(first_user), weights))
    return slices if len(slices) > 1 else slices[0]


def join_items(number: int, blocks: NDArray[np.int64], users: int, slices: list[Adjacency]) -> tuple[int, GraphPart]:
    """(edges, part) of a part by items, from its slices of all shards of users."""
    count = int(blocks[-1] - blocks[0])
    rows = np.concatenate([np.repeat(np.arange(count, dtype=np.int32), part.degrees) for part in slices])
    both = Adjacency.joined(slices)
    starts, indices, _ = compiled.sort_pairs(rows, both.indices, count, users)
    weights = None if both.weights is None else both.weights[np.argsort(rows, kind="stable")]
    return len(indices), GraphPart(number, int(blocks[0]), Adjacency(starts, indices, weights), blocks - blocks[0])
