"""Data that tasks read piece by piece and exchange once into the parts of the graph.

    pieces of Parquet  ->  users and items of each  ->  slices by shard of users  ->  shards  ->  parts

The head sees sizes, samples of users, the items and their degrees; users and likes stay with the tasks. The parts are
those of `graph.divide` on the whole graph, whatever the pieces and shards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from considerate.data import Interactions, Titles
from considerate.data.graph import ITEMS, USERS, Graph, GraphOutline, check_sizes, divide
from considerate.data.options import ReaderOptions
from considerate.data.pieces import piece_bytes, shard_count
from considerate.data.read import find_titles, mention_weights, open_parquet_likes, read_likes
from considerate.data.vocabulary import Vocabulary, slice_ids
from considerate.distributed.stages import (
    Progress,
    Ref,
    TaskStages,
    cut_pieces,
    exchange_likes,
    make_outline,
    parts_by_items,
    parts_by_users,
    read_pieces,
)
from considerate.distributed.tasks import Tasks
from considerate.errors import UsageError

Resident = str | Callable[[GraphOutline], str]
CUTS = {USERS: parts_by_users, ITEMS: parts_by_items}


@dataclass(frozen=True)
class DividedData:
    """Likes that no single place holds: facts at the head, and references to values of tasks."""

    outline: GraphOutline
    resident: str  # "users" or "items"
    parts: list[Ref]  # to GraphPart, without `all_user_likes`
    part_edges: list[int]
    all_user_likes: Ref | None  # by items: to the Adjacency by user, which every part reads
    user_ids: list[Ref]  # to the Vocabulary of each part's users; by items one of all users
    item_ids: Vocabulary
    titles: Titles | None
    source: str
    rows_read: int
    rows_kept: int
    notes: tuple[str, ...]


def read_divided(
    source: Any,
    tasks: Tasks,
    resident: Resident = USERS,
    options: ReaderOptions | None = None,
    *,
    progress: Progress | None = None,
    most_bytes: int | None = None,
    shards: int | None = None,
) -> DividedData:
    """Read likes from any source of `read_interactions` and divide them by users or by items.

    Tasks read Parquet: a file or a folder, local or at an address such as s3://bucket/likes. A path must be the same on
    all of their machines. Anything else is read here.

    resident            side whose rows stay with the parts, or a function that chooses it from the outline of the graph
    progress            called with (stage, done, total)
    most_bytes, shards  size of a piece and number of shards, by default chosen from the data; the result does not
                        depend on them
    """
    options = options or ReaderOptions()
    opened = open_parquet_likes(source, options)
    if opened is None:
        return from_interactions(read_likes(source, options), tasks, resident)
    table, options, notes = opened
    mention_weights(table, options)
    watch = TaskStages(tasks, progress or (lambda stage, done, total: None))
    size = sum(fragment.size for fragment in table.fragments)
    pieces = cut_pieces(table, watch, most_bytes or piece_bytes(size))
    read = read_pieces(pieces, watch, options.untitled())
    del pieces
    item_ids, sorted_likes = exchange_likes(read, watch, table.name, shards or shard_count(size), options.weighting)
    titles, more = find_titles(item_ids, options)
    outline = make_outline(sorted_likes, watch, len(item_ids))
    check_sizes(table.name, outline.user_count, outline.item_count, outline.duplicates)
    resident = _chosen(resident, outline)
    parts, edges, all_user_likes, user_ids = CUTS[resident](sorted_likes, outline, watch)
    return DividedData(
        outline=outline,
        resident=resident,
        parts=parts,
        part_edges=edges,
        all_user_likes=all_user_likes,
        user_ids=user_ids,
        item_ids=item_ids,
        titles=titles,
        source=table.name,
        rows_read=read.rows,
        rows_kept=read.kept,
        notes=(*notes, *more),
    )


def from_interactions(likes: Interactions, tasks: Tasks, resident: Resident = USERS) -> DividedData:
    """Divide likes that are in memory; warn of odd sizes."""
    sizes = len(likes.user_ids), len(likes.item_ids)
    graph = Graph.from_pairs(likes.users, likes.items, *sizes, amounts=likes.amounts)
    active = (int((graph.by_user.degrees > 0).sum()), int((graph.by_item.degrees > 0).sum()))
    check_sizes(likes.source, graph.user_count, graph.item_count, graph.duplicates, active)
    return from_graph(graph, likes, tasks, resident)


def from_graph(graph: Graph, likes: Interactions, tasks: Tasks, resident: Resident = USERS) -> DividedData:
    """Divide a graph that is in memory; its parts become values of the tasks."""
    resident = _chosen(resident, divide(graph)[0])
    outline, parts = divide(graph, resident)
    liked, whole = parts[0].all_user_likes, [(0, graph.user_count)]
    users = [(part.first, part.first + part.rows) for part in parts] if liked is None else whole
    return DividedData(
        outline=outline,
        resident=resident,
        parts=[tasks.put(replace(part, all_user_likes=None)) for part in parts],
        part_edges=[part.likes.edges for part in parts],
        all_user_likes=None if liked is None else tasks.put(liked),
        user_ids=[tasks.put(slice_ids(likes.user_ids, *rows)) for rows in users],
        item_ids=likes.item_ids,
        titles=likes.titles,
        source=likes.source,
        rows_read=likes.rows_read,
        rows_kept=likes.rows_kept,
        notes=likes.notes,
    )


def _chosen(resident: Resident, outline: GraphOutline) -> str:
    chosen = resident(outline) if callable(resident) else resident
    if chosen not in CUTS:
        raise UsageError(f"resident is {chosen!r}; the side that stays with its parts is 'users' or 'items'.")
    return chosen
