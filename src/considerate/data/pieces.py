"""Reading of likes in pieces, which become shards of users, by functions that tasks run.

    plan_pieces   a Parquet input -> pieces of it
    read_piece    a piece -> its likes, by ids of its own, and a summary
    choose_cuts   summaries -> the ids at which shards of users begin
    split_piece   a piece's likes -> a slice for every shard, items by their final rows
    make_shard    the slices of all pieces -> the users of a shard, sorted, and their likes

The result does not depend on the division into pieces or shards: users are sorted within a shard, and shards follow one
another.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.encode import TimeColumn
from considerate.data.graph import Adjacency
from considerate.data.inputs import translate_errors
from considerate.data.options import ReaderOptions
from considerate.data.parquet import Fragment, ParquetInput
from considerate.data.read import choose_rule, collect, make_amounts
from considerate.data.vocabulary import Vocabulary, find_rows, merge_ids, slice_ids
from considerate.data.weights import Scaling, Weighting
from considerate.kernels import compiled

PIECE_BYTES = 32 << 20  # of Parquet; more if there would be more than MOST_PIECES
MOST_PIECES = 256
MOST_PIECE_BYTES = 256 << 20
MOST_SHARDS = 64
SAMPLE = 256  # users of a piece whose ids can begin a shard

Keys = list[Any]  # ids in the form that a vocabulary sorts: integers, or bytes of UTF-8


@dataclass(frozen=True)
class PieceSummary:
    """Counts of a piece, and a sample of its users."""

    rows: int
    kept: int
    nan: int  # rows with NaN in the rule
    missing: tuple[int, int]  # rows without a user, without an item
    sample: Keys  # users at equal steps of its likes, ascending


@dataclass(frozen=True)
class Likes:
    """Likes of some users: users by id, and the row numbers of the items that each likes, ascending, each once."""

    users: Vocabulary
    starts: NDArray[np.int64]  # [users + 1]
    items: NDArray[np.int32]
    duplicates: int  # rows that repeat another row
    amounts: NDArray[np.int64] | None = None  # of each like, where likes have weights

    def part(self, first: int, last: int) -> Likes:
        """Copy users first .. last - 1."""
        starts = self.starts[first : last + 1]
        edges = slice(int(starts[0]), int(starts[-1]))
        amounts = None if self.amounts is None else self.amounts[edges].copy()
        return Likes(slice_ids(self.users, first, last), starts - starts[0], self.items[edges].copy(), 0, amounts)

    def adjacency(self, scaling: Scaling | None) -> Adjacency:
        """The likes by row, with weights if they have amounts."""
        weights = None if self.amounts is None or scaling is None else scaling.weights(self.amounts, self.starts)
        return Adjacency(self.starts, self.items, weights)


@dataclass(frozen=True)
class ShardSize:
    """Counts of a shard, for the head."""

    users: int
    edges: int
    duplicates: int
    shaped: int = 0  # sum of the shaped amounts of likes, if they have weights


def piece_bytes(total: int) -> int:
    """Most bytes of a piece, from the size of the data."""
    return min(max(PIECE_BYTES, -(-total // MOST_PIECES)), MOST_PIECE_BYTES)


def shard_count(total: int) -> int:
    """Number of shards, from the size of the data."""
    return min(max(1, -(-total // PIECE_BYTES)), MOST_SHARDS)


def plan_pieces(table: ParquetInput, units: Iterable[Fragment], most: int) -> list[ParquetInput]:
    """Join consecutive fragments into pieces of up to `most` bytes; a larger fragment is a piece of its own."""
    pieces: list[list[Fragment]] = []
    size = 0
    for unit in units:
        if not pieces or size + unit.size > most:
            pieces.append([])
            size = 0
        size += unit.size
        last = pieces[-1][-1] if pieces[-1] else None
        if last is not None and last.path == unit.path and last.groups is not None and unit.groups is not None:
            pieces[-1][-1] = replace(last, size=last.size + unit.size, groups=last.groups + unit.groups)
        else:
            pieces[-1].append(unit)
    return [table.part(fragments) for fragments in pieces]


def latest_time(table: ParquetInput, options: ReaderOptions) -> float:
    """Time of the latest like of a piece, -inf if there is none."""
    import pyarrow.compute as pc

    times, rule = TimeColumn(str(options.time_column), table.name), choose_rule(table, options)
    needed = [times.column, *(() if rule is None else rule.columns)]
    fields, keep = {"time": pc.field(times.column)}, None if rule is None else rule.keep
    with translate_errors(table.name):
        for batch in table.scan(list(dict.fromkeys(needed)), [], fields, keep):
            times.add([batch.column("time")])
    return max((float(np.nanmax(part)) for part in times.parts if not np.isnan(part).all()), default=-np.inf)


def read_piece(
    table: ParquetInput, options: ReaderOptions, latest: float | None = None
) -> tuple[PieceSummary, Vocabulary, Likes]:
    """Read a piece by resolved options: (summary, items, likes), with items numbered as in this piece.

    `latest` is the time of the latest like of all pieces.
    """
    scan = collect(table, options)
    missing = (scan.users.missing, scan.items.missing)
    if scan.nan or any(missing) or not scan.kept:  # the head refuses it, or it is empty
        nobody = Vocabulary.of_integers(np.empty(0, np.int64))
        amounts = None if options.weighting is None else np.empty(0, np.int64)
        nothing = Likes(nobody, np.zeros(1, np.int64), np.empty(0, np.int32), 0, amounts)
        return PieceSummary(scan.rows, scan.kept, scan.nan, missing, []), nobody, nothing
    with translate_errors(table.name):
        users, user_ids = scan.users.finish()
        items, item_ids = scan.items.finish()
    times = None if scan.times is None else scan.times.finish()
    made = make_amounts(scan, options, times, table.name, latest)
    likes = _sorted_likes(user_ids, users, items, len(item_ids), None if made is None else made.values)
    edges = len(likes.items)
    steps = (np.arange(min(SAMPLE, edges)) + 0.5) * edges / min(SAMPLE, edges)
    sample = [user_ids.key_at(int(row)) for row in np.searchsorted(likes.starts, steps, side="right") - 1]
    return PieceSummary(scan.rows, scan.kept, 0, (0, 0), sample), item_ids, likes


def _sorted_likes(
    ids: Vocabulary,
    users: NDArray[np.int32],
    items: NDArray[np.int32],
    item_count: int,
    amounts: NDArray[np.int64] | None,
) -> Likes:
    """Sort and fold pairs of row numbers, and add their amounts."""
    likes = Adjacency.of_pairs(users, items, len(ids), item_count)
    if amounts is not None:
        amounts = compiled.add_to_edges(likes.starts, likes.indices, users, items, amounts)
    return Likes(ids, likes.starts, likes.indices, len(users) - likes.edges, amounts)


def merge_items(vocabularies: list[Vocabulary]) -> Vocabulary:
    """Merge the items of several pieces."""
    return merge_ids(vocabularies)[0]


def choose_cuts(summaries: Sequence[PieceSummary], shards: int) -> Keys:
    """Choose the ids at which all shards but the first begin, so that shards have about as many likes each."""
    weighted: list[tuple[Any, float]] = sorted(
        (key, piece.kept / len(piece.sample)) for piece in summaries for key in piece.sample
    )
    passed = np.cumsum([weight for _, weight in weighted])
    cuts = np.searchsorted(passed, passed[-1] * np.arange(1, shards) / shards)
    return sorted({weighted[int(cut)][0] for cut in cuts})


def split_piece(likes: Likes, items: Vocabulary, item_ids: Vocabulary, cuts: Keys) -> Likes | list[Likes]:
    """Cut a piece into a slice for each shard, with the final rows of items; a single slice is not in a list."""
    likes = replace(likes, items=find_rows(items, item_ids)[likes.items])
    if not cuts:
        return likes
    count, key_at = len(likes.users), likes.users.key_at
    rows = [0, *(bisect_left(range(count), key, key=key_at) for key in cuts), count]
    slices = [likes.part(first, last) for first, last in pairwise(rows)]
    return [replace(slices[0], duplicates=likes.duplicates), *slices[1:]]


def make_shard(
    slices: list[Likes], item_count: int, weighting: Weighting | None = None
) -> tuple[ShardSize, NDArray[np.int64], Likes]:
    """Make a shard from its slices of all pieces: (size, likes per item, likes)."""
    likes = slices[0]
    if len(slices) > 1:
        ids, ranks = merge_ids([part.users for part in slices])
        users = np.concatenate([np.repeat(rank, np.diff(part.starts)) for rank, part in zip(ranks, slices)])
        items, given = np.concatenate([part.items for part in slices]), [part.amounts for part in slices]
        amounts = None if weighting is None else np.concatenate([part for part in given if part is not None])
        likes = _sorted_likes(ids, users, items, item_count, amounts)
        likes = replace(likes, duplicates=likes.duplicates + sum(part.duplicates for part in slices))
    degree = np.zeros(item_count, np.int64)
    compiled.count_columns(likes.items, degree)
    shaped = 0 if weighting is None or likes.amounts is None else int(weighting.shaped(likes.amounts).sum())
    return ShardSize(len(likes.users), len(likes.items), likes.duplicates, shaped), degree, likes
