"""What a source is: a path, an address, a table, a data frame; opened as an input."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from considerate.data.inputs import BATCH_ROWS, REMOTE, Input, StreamInput, scheme_of, translate_errors
from considerate.data.parquet import (
    PARQUET_ENDINGS,
    held_by,
    open_local_folder,
    open_parquet,
    open_remote,
    parquet_files,
)
from considerate.data.sql import open_sql, sqlite_file
from considerate.data.text import open_text
from considerate.errors import DataError, UsageError

_TEXT_ENDINGS = (".csv", ".tsv", ".tab", ".txt", ".dat", ".data")


def is_database(source: Any) -> bool:
    """Whether a source is the address of a database, or one of an unknown kind."""
    return scheme_of(source) not in ("", "file", *REMOTE)


def open_input(source: Any, query: str | None = None, headers: Sequence[str] = ()) -> Input:
    """The input that a source is. `headers` are names that a text file's first line is expected to have."""
    if is_database(source):
        return open_sql(source, query)
    if query is not None:
        raise UsageError("--query goes with a database such as sqlite:///likes.db; the source is none.")
    if scheme_of(source) in REMOTE:
        return open_remote(source)
    if isinstance(source, str | os.PathLike):
        return _open_path(_local_path(os.fsdecode(source)), headers)
    if hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_array__"):
        return _open_arrow(source)
    raise UsageError(
        f"cannot read likes from {type(source).__name__!r}; give a path, an Arrow table, a data frame with "
        "__arrow_c_stream__ (pandas 2.2, polars), a scipy sparse matrix or the address of a database."
    )


def would_be_read(path: str, folder: str) -> bool:
    """Whether a file of this name is one that reading the folder takes."""
    inside = os.path.realpath(path).startswith(os.path.join(os.path.realpath(_local_path(folder)), ""))
    return inside and Path(path).suffix.lower() in PARQUET_ENDINGS


def files_of(source: str) -> list[Path]:
    """The files that are there and would be read: one, those of a folder, an SQLite database; none on a server."""
    try:
        if scheme_of(source) in ("", "file"):
            path = _local_path(source)
        elif scheme_of(source) == "sqlite":
            path = sqlite_file(urlsplit(source).path)
        else:
            return []
        if path.is_dir():
            return parquet_files(path)
        return [path] if path.exists() else []
    except (OSError, ValueError):  # reading it will say what is wrong
        return []


def _local_path(source: str) -> Path:
    """A path as it is, and the path of an address file:///folder."""
    if scheme_of(source) == "file":
        parts = urlsplit(source)
        if parts.netloc not in ("", "localhost"):
            raise UsageError(f"{source}: the address of a file has three slashes, as in file:///data/likes; add one.")
        source = unquote(parts.path)
    return Path(source).expanduser()


def _open_arrow(source: Any) -> Input:
    import pyarrow as pa

    name = f"the given {type(source).__name__}"
    with translate_errors(name):
        if isinstance(source, pa.RecordBatchReader):
            return StreamInput(name, source.schema, _read_all(source, name))
        if hasattr(source, "__arrow_c_stream__"):
            table = pa.table(source)
        else:
            table = pa.Table.from_batches([pa.record_batch(source)])
        for at, column in enumerate(table.column_names):
            # pandas' NaN comes out of Arrow as null: make it the NaN that the user sees
            dtype = getattr(getattr(source, "dtypes", None), "get", lambda _: None)(column)
            if getattr(dtype, "kind", "") == "f" and pa.types.is_floating(table.schema.types[at]):
                filled = table.column(at).fill_null(pa.scalar(float("nan"), table.schema.types[at]))
                table = table.set_column(at, column, filled)
        table = table.drop_columns([name for name in table.column_names if re.fullmatch(r"__index_level_\d+__", name)])
        return StreamInput(name, table.schema, table.to_batches(max_chunksize=BATCH_ROWS))


def _read_all(reader: Any, name: str) -> Iterator[Any]:
    with translate_errors(name):
        yield from reader


def _open_path(path: Path, headers: Sequence[str]) -> Input:
    """The input in a file or a folder, by what it holds; an ending that says otherwise is refused."""
    name = str(path)
    with translate_errors(name):
        if path.is_dir():
            return open_local_folder(path)
        if not path.exists():
            raise DataError(f"{name}: there is no such file; check the path (now in {Path.cwd()}).")
        if not path.is_file():
            raise DataError(f"{name}: neither a file nor a folder; save the data to a file first.")
        with path.open("rb") as file:
            start = file.read(16)
            size = os.fstat(file.fileno()).st_size
    ending = path.suffix.lower()
    if not start:
        raise DataError(f"{name}: the file is empty; expected rows with users and items.")
    held = held_by(start)
    if ending in PARQUET_ENDINGS and held != "Parquet":
        raise DataError(f"{name}: ends in {ending} but holds {held}; give it the ending of what it is.")
    if held == "Parquet":
        if ending in (*_TEXT_ENDINGS, ".gz"):
            raise DataError(f"{name}: ends in {ending} but holds Parquet; rename it to end in .parquet.")
        return open_parquet(name, {name: size}, None, None)
    if held == "text" and ending == ".gz":
        raise DataError(f"{name}: ends in .gz but is not gzip-compressed; rename it without .gz.")
    if held == "gzip-compressed data" and ending in _TEXT_ENDINGS:
        raise DataError(f"{name}: ends in {ending} but holds {held}; rename it to end in {ending}.gz.")
    if held in ("text", "gzip-compressed data"):
        with translate_errors(name):
            return open_text(path, held != "text", headers)
    advice = (
        f"read it with sqlite:///{name} and a query or ?table=" if "SQLite" in held else "convert it to Parquet or CSV"
    )
    raise DataError(f"{name}: holds {held}, which is not read directly; {advice}.")
