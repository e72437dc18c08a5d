"""The stages of a divided reading as the head sees them: it submits tasks, and is told sizes.

cut_pieces       files -> pieces
read_pieces      pieces -> their likes
exchange_likes   likes of pieces -> likes of shards of users
make_outline     what is known of the graph
parts_by_users   shards -> parts
parts_by_items
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from considerate.data.encode import check_missing, check_size
from considerate.data.graph import MOST_ITEM_BLOCKS, GraphOutline, block_ends, part_ranges, row_blocks
from considerate.data.options import ReaderOptions
from considerate.data.parquet import Fragment, ParquetInput
from considerate.data.pieces import (
    PieceSummary,
    ShardSize,
    choose_cuts,
    make_shard,
    merge_items,
    plan_pieces,
    read_piece,
    split_piece,
)
from considerate.data.read import check_rows
from considerate.data.vocabulary import Vocabulary
from considerate.distributed.exchange.shards import (
    add_arrays,
    find_boundaries,
    join_items,
    join_shards,
    join_users,
    slice_by_items,
    slice_shard,
)
from considerate.distributed.tasks import Tasks

Progress = Callable[[str, int, int], None]  # (stage, done, total)
Ref = Any
FAN_IN = 16  # values that one task puts together


class TaskStages:
    """Tasks, and someone to tell how far they are."""

    def __init__(self, tasks: Tasks, progress: Progress) -> None:
        self.tasks, self.progress = tasks, progress

    def gather(self, stage: str, refs: Sequence[Ref]) -> list[Any]:
        """What the tasks of a stage gave; the first failure comes out at once."""
        waiting = list(refs)
        self.progress(stage, 0, len(refs))
        while waiting:
            finished, waiting = self.tasks.wait(waiting)
            self.tasks.get(finished)
            self.progress(stage, len(refs) - len(waiting), len(refs))
        return list(self.tasks.get(list(refs)))

    def together(self, function: Callable[[list[Any]], Any], refs: Sequence[Ref]) -> Ref:
        """Values put together by tasks, some at a time."""
        level = list(refs)
        while len(level) > 1:
            level = [
                self.tasks.submit(function, level[place : place + FAN_IN]) for place in range(0, len(level), FAN_IN)
            ]
        return level[0]


@dataclass
class ReadPieces:
    """What reading gave: numbers, and references to the likes and the items of each piece."""

    options: ReaderOptions  # resolved
    summaries: list[PieceSummary]
    items: list[Ref]
    likes: list[Ref]

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.summaries)

    @property
    def kept(self) -> int:
        return sum(one.kept for one in self.summaries)


@dataclass(frozen=True)
class UserShards:
    """Likes by shards of users, in order."""

    sizes: list[ShardSize]
    degree: Ref  # likes of every item
    likes: list[Ref]  # of Likes
    first_users: list[int]  # [shards + 1]
    first_edges: list[int]  # [shards + 1]


def cut_pieces(table: ParquetInput, watch: TaskStages, most: int) -> list[ParquetInput]:
    """The pieces of an input; files that are larger than a piece are cut by their row groups."""
    table = table.absolute()
    large = [place for place, fragment in enumerate(table.fragments) if fragment.size > most]
    refs = [watch.tasks.submit(ParquetInput.cut, table.part([table.fragments[place]])) for place in large]
    cut = dict(zip(large, watch.gather("looking at files", refs) if refs else []))
    units: list[Fragment] = []
    for place, fragment in enumerate(table.fragments):
        units += cut.get(place, [fragment])
    return plan_pieces(table, units, most)


def read_pieces(pieces: list[ParquetInput], watch: TaskStages, options: ReaderOptions) -> ReadPieces:
    """Every piece read by a task; refused here what only all pieces together tell."""
    refs = [watch.tasks.submit(read_piece, piece, options, returns=3) for piece in pieces]
    summaries: list[PieceSummary] = watch.gather("reading", [one[0] for one in refs])
    read = ReadPieces(options, summaries, [one[1] for one in refs], [one[2] for one in refs])
    name = pieces[0].name
    check_rows(name, options.where, read.rows, read.kept, sum(one.nan for one in summaries))
    for at, (what, column) in enumerate((("user", str(options.user_column)), ("item", str(options.item_column)))):
        check_missing(name, what, column, sum(one.missing[at] for one in summaries))
    return read


def exchange_likes(read: ReadPieces, watch: TaskStages, name: str, shards: int) -> tuple[Vocabulary, UserShards]:
    """The likes of all pieces, sent to shards of users. The pieces' own are let go."""
    merged = watch.together(merge_items, read.items)
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
        refs.append(watch.tasks.submit(make_shard, [one.pop(0) for one in slices], len(item_ids), returns=3))
    sizes: list[ShardSize] = watch.gather("exchanging", [one[0] for one in refs])
    degree = watch.together(add_arrays, [one[1] for one in refs])
    first_users = np.cumsum([0, *(one.users for one in sizes)]).tolist()
    first_edges = np.cumsum([0, *(one.edges for one in sizes)]).tolist()
    check_size(name, "user", first_users[-1])
    return item_ids, UserShards(sizes, degree, [one[2] for one in refs], first_users, first_edges)


def make_outline(made: UserShards, watch: TaskStages, item_count: int) -> GraphOutline:
    """What is known of the graph; its blocks are those that `row_blocks` gives for the whole."""
    users, edges = made.first_users[-1], made.first_edges[-1]
    ends = block_ends(edges)
    refs = []
    for shard, likes in enumerate(made.likes):
        low, high = np.searchsorted(ends, made.first_edges[shard : shard + 2], side="right")
        if low < high:
            place = (made.first_users[shard], made.first_edges[shard])
            refs.append(watch.tasks.submit(find_boundaries, likes, *place, ends[low:high]))
    inner = watch.tasks.get(refs)
    user_blocks = np.unique(np.concatenate([[0], *inner, [users]])).astype(np.int64)
    degree = watch.tasks.get(made.degree)
    item_starts = np.concatenate([[0], np.cumsum(degree)])
    item_blocks = row_blocks(item_starts, most=MOST_ITEM_BLOCKS)
    duplicates = sum(one.duplicates for one in made.sizes)
    return GraphOutline(users, item_count, edges, duplicates, degree, user_blocks, item_blocks)


def parts_by_users(made: UserShards, outline: GraphOutline, watch: TaskStages) -> tuple[list[Ref], None, list[Ref]]:
    """(parts, None, users of each part): each part from the slices of the shards that it overlaps."""
    blocks = [outline.user_blocks[low : high + 1] for low, high in part_ranges(len(outline.user_blocks) - 1)]
    slices: list[list[Ref]] = [[] for _ in blocks]
    for shard, likes in enumerate(made.likes):
        first, last = made.first_users[shard], made.first_users[shard + 1]
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
    made.likes.clear()
    refs = [watch.tasks.submit(join_users, number, own, slices[number], returns=3) for number, own in enumerate(blocks)]
    del slices
    watch.gather("dividing", [one[0] for one in refs])
    return [one[1] for one in refs], None, [one[2] for one in refs]


def parts_by_items(made: UserShards, outline: GraphOutline, watch: TaskStages) -> tuple[list[Ref], Ref, list[Ref]]:
    """(parts, the likes of all users, [all users]): each part from the slices of all shards."""
    blocks = [outline.item_blocks[low : high + 1] for low, high in part_ranges(len(outline.item_blocks) - 1)]
    places = (*(int(own[0]) for own in blocks), outline.item_count)
    sent = [
        watch.tasks.submit(slice_by_items, likes, first, places, returns=len(blocks))
        for likes, first in zip(made.likes, made.first_users)
    ]
    slices = sent if len(blocks) > 1 else [[one] for one in sent]
    refs = [
        watch.tasks.submit(join_items, number, own, outline.user_count, [one[number] for one in slices], returns=2)
        for number, own in enumerate(blocks)
    ]
    all_user_likes, users = watch.tasks.submit(join_shards, list(made.likes), returns=2)
    made.likes.clear()
    watch.gather("dividing", [one[0] for one in refs])
    return [one[1] for one in refs], all_user_likes, [users]
