"""The one reader: Parquet, CSV, Arrow, data frames, matrices and SQL -> integer pairs and vocabularies.

    read.py        read_interactions and what it returns; a title per item
    options.py     ReaderOptions: columns, rule, titles, query, times; the usual names of columns
    sources.py     what a source is: a path, an address, a table, a database, a matrix; opened as an input
    frames.py      tables in memory: Arrow, data frames, dicts of columns, arrays
    inputs.py      an input: its columns as a stream of Arrow batches
    parquet.py     Parquet files and folders, local or at an address; whole or some of their row groups
    text.py        CSV and its relatives: delimiter, header, types
    rules.py       the small language of `where`
    encode.py      a column of ids -> row numbers of a sorted vocabulary; a time per like
    pieces.py      reading in pieces, which tasks share out, and shards of users made of them
    weights.py     how much each like counts: amounts of rows, weights of pairs
    known.py       what is known of H beside the likes, by row: considered and impossible pairs, rules
    known_tables.py  the same by id: read, and matched with the rows of the likes
    graph.py       G, the graph of likes: both orientations, blocks, parts, sizes
    vocabulary.py  sorted ids; cut, joined, merged; titles
    categories.py  categories of items, for caps in lists
    features.py    features of items or users, by id and by row
    read_features.py  columns of a table as features: categories, tags, numbers
    side_information.py  what a fit is given beside the likes
    fingerprint.py digests of likes and ids, and the differences between two fits
    output.py      Arrow tables to files
    result.py      results that are tables: Arrow, pandas, polars

numpy, pyarrow and scipy are imported when they are needed, so that `considerate --help` answers at once.
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
