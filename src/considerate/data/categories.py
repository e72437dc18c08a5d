"""Categories of items, such as genres, from a dict or from a table of items and categories."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

from considerate.data.encode import read_columns
from considerate.data.inputs import Input
from considerate.data.options import listed, pick_id, plain, usual_name
from considerate.data.sources import open_input
from considerate.data.vocabulary import Id
from considerate.errors import DataError, UsageError

SINGLE = ("category", "genre", "type", "department", "brand", "tag", "topic", "author", "artist", "label")
SEVERAL = ("categories", "genres", "tags", "topics", "authors", "artists", "labels")  # a text may list many
Categories = dict[Id, tuple[str, ...]]  # item id -> categories; items without any may be missing


def read_categories(source: Any) -> Categories:
    """Read the categories of items by id from a dict {id: category or list of categories}, or a table of the two.

    A table is anything that `read_interactions` reads. An item may have several rows, and a list in one. In a column
    `genres`, `categories` or `tags` a text has several with | between them, or commas where the column has no |.
    """
    if isinstance(source, Mapping):
        return {item: _texts(values) for item, values in source.items()}
    with closing(open_input(source)) as table:
        id_column, column = _pick(table)
        ids, codes, (read,) = read_columns(table, "item", id_column, [column])
    values = read.to_pylist()
    mark = "|" if any("|" in value for value in values if isinstance(value, str)) else ","
    several = plain(column) in SEVERAL
    found: dict[Id, dict[str, None]] = {}
    for code, value in zip(ids.ids_of(codes), values):
        texts = value.split(mark) if several and isinstance(value, str) else value
        found.setdefault(code, {}).update(dict.fromkeys(_texts(texts)))
    return {item: tuple(texts) for item, texts in found.items()}


def _pick(table: Input) -> tuple[str, str]:
    """The columns of items and categories, by their usual names."""
    id_column = pick_id("item", table.names, table.name)
    column = usual_name([name for name in table.names if name != id_column], (*SEVERAL, *SINGLE))
    if id_column is None or column is None:
        missing = "items; call it 'item'" if id_column is None else "categories; call it 'category'"
        raise DataError(f"{table.name}: it has {listed(table.names)}, and no column looks like the {missing}.")
    return id_column, column


def _texts(values: Any) -> tuple[str, ...]:
    """Categories as texts, each once; missing values and white space are skipped."""
    if isinstance(values, Mapping):
        raise UsageError(f"the categories {values!r} are a dict; give each item a category or a list of them.")
    several = values if isinstance(values, list | tuple | set | frozenset) or hasattr(values, "tolist") else [values]
    texts = (str(value).strip() for value in several if value is not None)
    return tuple(dict.fromkeys(text for text in texts if text))
