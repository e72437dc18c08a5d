"""Reading of data: Parquet, CSV, Arrow, data frames, matrices and SQL -> pairs of row numbers and vocabularies.

    read.py        likes from any source; titles of items
    options.py     ReaderOptions: columns, rule, titles, query, times; the usual names of columns
    sources.py     paths, addresses, tables, databases and matrices, opened as inputs
    frames.py      inputs from tables in memory: Arrow, data frames, dicts of columns, arrays
    inputs.py      inputs: columns as a stream of Arrow batches
    parquet.py     Parquet files and folders, local or at an address; whole or some of their row groups
    text.py        CSV and its relatives: delimiter, header, types
    rules.py       the small language of `where`
    encode.py      ids -> row numbers of a sorted vocabulary; times -> numbers
    pieces.py      reading in pieces by tasks, and shards of users made of them
    weights.py     weights of likes: amounts of rows, weights of pairs
    known.py       constraints on H by row: considered pairs, impossible pairs, rules
    known_tables.py  constraints on H by id, and their match with the rows of the likes
    graph.py       G, the graph of likes: both orientations, blocks, parts, sizes
    vocabulary.py  sorted ids and titles
    categories.py  categories of items, for caps in lists
    features.py    features of items or users, by id and by row
    read_features.py  features from the columns of a table: categories, tags, numbers
    side_information.py  inputs of a fit other than the likes
    fingerprint.py digests of likes and ids, and the differences between two fits
    output.py      Arrow tables to files
    result.py      results that are tables: Arrow, pandas, polars

numpy, pyarrow and scipy are imported when they are needed, so that `considerate --help` is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from considerate.data.known_tables import Impossible
    from considerate.data.options import ReaderOptions
    from considerate.data.read import Interactions, read_dated_likes, read_interactions, read_judged, read_likes
    from considerate.data.vocabulary import Titles

__all__ = [
    "Impossible",
    "Interactions",
    "ReaderOptions",
    "Titles",
    "read_dated_likes",
    "read_interactions",
    "read_judged",
    "read_likes",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = {"ReaderOptions": "options", "Titles": "vocabulary", "Impossible": "known_tables"}.get(name, "read")
    return getattr(import_module(f"{__name__}.{module}"), name)
