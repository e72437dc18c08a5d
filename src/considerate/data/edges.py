"""Edges between vertices of one kind: two columns with a common vocabulary, or a square matrix."""

from __future__ import annotations

import logging
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import MOST_ITEM_BLOCKS, Adjacency, Graph, row_blocks
from considerate.data.options import ReaderOptions, plain
from considerate.data.read import Interactions, find_titles, read_likes
from considerate.data.sources import is_sparse, open_input
from considerate.data.vocabulary import match_rows, union_ids
from considerate.errors import DataError

logger = logging.getLogger("considerate")

# The usual names of the two columns, as `plain` writes them.
ENDS = (
    *(("src", "dst"), ("source", "target"), ("source", "destination"), ("from", "to"), ("fromid", "toid")),
    *(("node1", "node2"), ("vertex1", "vertex2"), ("user1", "user2"), ("userid", "friendid"), ("user", "friend")),
)


def read_edges(source: Any, options: ReaderOptions) -> Interactions:
    """Read edges from any source that `read_interactions` reads, as pairs of row numbers of one vocabulary.

    Each edge is kept once, with its lower row first, however often and in whichever direction it is given. Edges from a
    vertex to itself are left out. Notes have the numbers of both.
    """
    if is_sparse(source) and source.shape[0] != source.shape[-1]:
        raise DataError(
            f"the matrix is {' x '.join(map(str, source.shape))}; edges between vertices of one kind are a square one."
        )
    options, notes = _name_ends(source, options)
    data = read_likes(source, options.untitled())
    ids = union_ids([data.user_ids, data.item_ids])
    first, second = (
        match_rows(own, ids)[rows] for own, rows in ((data.user_ids, data.users), (data.item_ids, data.items))
    )
    given, apart = len(first), first != second
    low, high = np.minimum(first, second)[apart], np.maximum(first, second)[apart]
    edges = np.unique(low * len(ids) + high)
    if loops := given - len(low):
        notes.append(f"{loops:,} edges from a vertex to itself are left out")
    if repeated := len(low) - len(edges):
        notes.append(f"{repeated:,} edges came again, in the same direction or the other; each counts once")
    low, high = (ends.astype(np.int32) for ends in np.divmod(edges, len(ids)))
    if len(np.union1d(low, high)) < 3:
        raise DataError(f"{data.source}: there are {len(edges)} edges; at least three vertices with edges are needed.")
    titles, more = find_titles(ids, options)
    return replace(
        data,
        users=low,
        items=high,
        user_ids=ids,
        item_ids=ids,
        titles=titles,
        rows_kept=len(low),
        notes=(*data.notes, *notes, *more),
        times=None,
    )


def _name_ends(source: Any, options: ReaderOptions) -> tuple[ReaderOptions, list[str]]:
    """Name the two columns in the options if they have usual names, or are the only ones; and a note about it."""
    once = hasattr(source, "read_next_batch")  # a stream, which cannot be opened twice
    if (
        isinstance(source, Interactions)
        or is_sparse(source)
        or once
        or None not in (options.user_column, options.item_column)
    ):
        return options, []
    headers = [*options.headers, *(word for pair in ENDS for word in pair)]
    with closing(open_input(source, options.query, headers)) as table:
        names = table.names
    words = {plain(name): name for name in reversed(names)}
    found = next((pair for pair in ENDS if words.keys() >= set(pair)), None)
    ends = names if len(names) == 2 else [] if found is None else [words[word] for word in found]
    if not ends or options.user_column is not None or options.item_column is not None:
        return options, []
    columns = replace(options, user_column=ends[0], item_column=ends[1])
    return columns, [f"edges are between the columns {ends[0]!r} and {ends[1]!r}"]


def symmetric(rows: NDArray[Any], others: NDArray[Any], count: int) -> Adjacency:
    """Make a symmetric adjacency of pairs, without repeated edges and without edges from a vertex to itself."""
    apart = rows != others
    rows, others = rows[apart], others[apart]
    return Adjacency.of_pairs(np.concatenate([rows, others]), np.concatenate([others, rows]), count, count)


def each_once(edges: Adjacency) -> Adjacency:
    """Keep each edge of a symmetric adjacency once, by its lower end."""
    return edges.keep(edges.edge_rows < edges.indices)


def symmetric_graph(edges: Interactions) -> Graph:
    """Make the graph of edges, whose two sides are the same vertices."""
    adjacency = symmetric(edges.users, edges.items, len(edges.item_ids))
    blocks = row_blocks(adjacency.starts), row_blocks(adjacency.starts, most=MOST_ITEM_BLOCKS)
    return Graph(adjacency, adjacency, *blocks)
