"""Data read by tasks, each its own piece, and exchanged once into the parts of the graph.

    pieces of Parquet  ->  users and items of each  ->  slices by shard of users  ->  shards  ->  parts

The head, which asks for it, sees sizes, samples of users, the items and their degrees; users and likes stay with the
tasks. The parts are those of `graph.divide` on the graph of the whole data, whatever the pieces and shards were.
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


@dataclass(frozen=True)
class DividedData:
    """Likes of which no one place holds all: what the head knows, and references to what tasks hold."""

    outline: GraphOutline
    resident: str  # "users" or "items"
    parts: list[Ref]  # of GraphPart, each without `all_user_likes`
    part_edges: list[int]  # of each part
    all_user_likes: Ref | None  # where items are resident: of the Adjacency by user, which every part is given
    user_ids: list[Ref]  # of Vocabulary: of each part's users, or one of all users where items are resident
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
    """Likes from any source that `read_interactions` reads, divided by users or by items.

    Parquet, a file or a folder, local or at an address such as s3://bucket/likes, is read by the tasks; a path must be
    the same on all of their machines. Anything else is read here.

    resident    the side whose rows stay with the parts, "users" or "items", or a function that chooses it when the
                outline of the graph is known
    progress    told (stage, done, total)
    most_bytes  of a piece, and the number of shards: chosen by the data; the result does not depend on them
    shards
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
    divided = (parts_by_users if resident == USERS else parts_by_items)(sorted_likes, outline, watch)
    parts, edges, all_user_likes, user_ids = divided
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
    """Likes that were read here, divided; what is odd about them is said."""
    sizes = len(likes.user_ids), len(likes.item_ids)
    graph = Graph.from_pairs(likes.users, likes.items, *sizes, amounts=likes.amounts)
    active = (int((graph.by_user.degrees > 0).sum()), int((graph.by_item.degrees > 0).sum()))
    check_sizes(likes.source, graph.user_count, graph.item_count, graph.duplicates, active)
    return from_graph(graph, likes, tasks, resident)


def from_graph(graph: Graph, likes: Interactions, tasks: Tasks, resident: Resident = USERS) -> DividedData:
    """A graph that is here, divided, its parts given to the tasks."""
    outline, parts = divide(graph, USERS)
    resident = _chosen(resident, outline)
    by_users = resident == USERS
    if not by_users:
        outline, parts = divide(graph, ITEMS)
    slices = [slice_ids(likes.user_ids, part.first, part.first + part.rows) for part in parts] if by_users else []
    return DividedData(
        outline=outline,
        resident=resident,
        parts=[tasks.put(replace(part, all_user_likes=None)) for part in parts],
        part_edges=[part.likes.edges for part in parts],
        all_user_likes=None if by_users else tasks.put(graph.by_user),
        user_ids=[tasks.put(ids) for ids in slices] if by_users else [tasks.put(likes.user_ids)],
        item_ids=likes.item_ids,
        titles=likes.titles,
        source=likes.source,
        rows_read=likes.rows_read,
        rows_kept=likes.rows_kept,
        notes=likes.notes,
    )


def _chosen(resident: Resident, outline: GraphOutline) -> str:
    chosen = resident(outline) if callable(resident) else resident
    if chosen not in (USERS, ITEMS):
        raise UsageError(f"resident is {chosen!r}; the side that stays with its parts is 'users' or 'items'.")
    return chosen
