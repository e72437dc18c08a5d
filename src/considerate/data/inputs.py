"""What a source is, and its columns as a stream of Arrow batches.

An input is opened once, tells the types of its columns, and is scanned once with a projection and a filter.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from considerate.errors import DataError, UsageError

BATCH_ROWS = 131_072
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
PARQUET_ENDINGS = (".parquet", ".parq", ".pq")
_TEXT_ENDINGS = (".csv", ".tsv", ".tab", ".txt", ".dat", ".data")
_MAGIC = {
    b"PAR1": "Parquet",
    b"ARROW1": "an Arrow file",
    b"SQLite format 3": "an SQLite database",
    b"PK\x03\x04": "a zip archive",
    b"\x28\xb5\x2f\xfd": "zstandard-compressed data",
    b"BZh": "bzip2-compressed data",
    b"\xfd7zXZ": "xz-compressed data",
    b"\x1f\x8b": "gzip-compressed data",
}


class Input(Protocol):
    """An opened source."""

    name: str  # for messages
    notes: list[str]
    from_text: bool  # columns of ids come as strings, whatever they hold
    quotes: bool  # there are no quotes around values, or they have been taken off
    rows: int  # rows read, once the scan is over

    @property
    def names(self) -> list[str]:
        """The names of the columns."""

    def types(self, ids: Sequence[str]) -> dict[str, Any]:
        """The Arrow type of every column if `ids` are read as ids."""

    def scan(self, needed: Sequence[str], ids: Sequence[str], columns: Mapping[str, Any], keep: Any) -> Iterator[Any]:
        """Batches of `columns` (name -> expression over the needed ones) of the rows that are kept, in order."""


@contextmanager
def reading(name: str) -> Iterator[None]:
    """What foreign data makes the readers raise, as one sentence of ours."""
    import pyarrow as pa

    try:
        yield
    except (DataError, UsageError):
        raise
    except PermissionError as error:
        raise DataError(f"{name}: no permission to read it; give yourself read access.") from error
    except (pa.ArrowException, OSError, ValueError, TypeError, LookupError, EOFError, zlib.error) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise DataError(
            f"{name}: cannot be read ({lines[0][:300].rstrip('.')}); "
            "the data may be damaged or of another kind than expected: check it or write it again."
        ) from error
    except MemoryError as error:
        raise DataError(f"{name}: reading it needs more memory than there is, or it is damaged.") from error


def without_views(schema: Any) -> Any:
    """A schema with ordinary strings for string views, which Arrow's filters do not know."""
    import pyarrow as pa

    def ordinary(kind: Any) -> Any:
        if pa.types.is_dictionary(kind):
            return pa.dictionary(kind.index_type, ordinary(kind.value_type))
        return pa.large_string() if str(kind) == "string_view" else kind

    return pa.schema([pa.field(one.name, ordinary(one.type)) for one in schema])


@dataclass
class StreamInput:
    """Batches that can be had once: a table, a data frame, an answer from a database."""

    name: str
    schema: Any
    batches: Iterable[Any]
    from_text: bool = False
    quotes: bool = True
    notes: list[str] = field(default_factory=list)
    rows: int = 0

    def __post_init__(self) -> None:
        self.schema = without_views(self.schema)

    @property
    def names(self) -> list[str]:
        return list(self.schema.names)

    def types(self, ids: Sequence[str]) -> dict[str, Any]:
        return dict(zip(self.schema.names, self.schema.types))

    def scan(self, needed: Sequence[str], ids: Sequence[str], columns: Mapping[str, Any], keep: Any) -> Iterator[Any]:
        import pyarrow as pa
        import pyarrow.dataset as ds

        # One batch at a time: a scanner of a Python iterator goes on in threads of its own after a failure, which
        # aborts the process when it ends, or keeps it from going on (pyarrow 26.0.1).
        schema = pa.schema([self.schema.field(name) for name in needed])
        for batch in self.batches:
            self.rows += batch.num_rows
            if batch.num_rows:
                batch = batch.select(list(needed))
                batch = batch if batch.schema.types == schema.types else batch.cast(schema)
                scanner = ds.InMemoryDataset(batch).scanner(columns=dict(columns), filter=keep)
                yield from scanner.to_table().to_batches()


def is_database(source: Any) -> bool:
    """Whether a source is the address of a database, or of something that nobody here knows."""
    from considerate.data.parquet import is_remote

    if not isinstance(source, str) or not _ADDRESS.match(source):
        return False
    return not is_remote(source) and not source.lower().startswith("file://")


def open_input(source: Any, query: str | None = None, headers: Sequence[str] = ()) -> Input:
    """The input that a source is. `headers` are names that a text file's first line is expected to have."""
    from considerate.data.parquet import is_remote, local_path, open_remote

    if is_database(source):
        from considerate.data.sql import open_sql

        return open_sql(source, query)
    if query is not None:
        raise UsageError("--query goes with a database such as sqlite:///likes.db; the source is none.")
    if isinstance(source, str) and is_remote(source):
        return open_remote(source)
    if isinstance(source, str | os.PathLike):
        return _open_path(Path(local_path(os.fsdecode(source))).expanduser(), headers)
    if hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_array__"):
        return _open_arrow(source)
    raise UsageError(
        f"cannot read likes from {type(source).__name__!r}; give a path, an Arrow table, a data frame with "
        "__arrow_c_stream__ (pandas 2.2, polars), a scipy sparse matrix or the address of a database."
    )


def would_be_read(path: str, folder: str) -> bool:
    """Whether a file of this name is one that reading the folder takes."""
    from considerate.data.parquet import local_path

    folder = local_path(folder)
    inside = os.path.realpath(path).startswith(os.path.join(os.path.realpath(os.path.expanduser(folder)), ""))
    return inside and Path(path).suffix.lower() in PARQUET_ENDINGS


def files_of(source: str) -> list[Path]:
    """The files that are there and would be read: one, those of a folder, an SQLite database; none on a server."""
    from considerate.data.parquet import local_path, parquet_files

    source = local_path(source)
    if _ADDRESS.match(source):
        from considerate.data.sql import address_file

        path = address_file(source)
    else:
        path = Path(source).expanduser()
    try:
        if path is not None and path.is_dir():
            return parquet_files(path)
        return [path] if path is not None and path.exists() else []
    except (OSError, ValueError):  # reading it will say what is wrong
        return []


def _open_arrow(source: Any) -> Input:
    import pyarrow as pa

    name = f"the given {type(source).__name__}"
    with reading(name):
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
        table = table.drop_columns([one for one in table.column_names if re.fullmatch(r"__index_level_\d+__", one)])
        return StreamInput(name, table.schema, table.to_batches(max_chunksize=BATCH_ROWS))


def _read_all(reader: Any, name: str) -> Iterator[Any]:
    with reading(name):
        yield from reader


def held_by(start: bytes) -> str:
    """What the first bytes of a file say that it holds."""
    return next((what for magic, what in _MAGIC.items() if start.startswith(magic)), "text")


def _open_path(path: Path, headers: Sequence[str]) -> Input:
    """The input in a file or a folder, by what it holds; an ending that says otherwise is refused."""
    from considerate.data.parquet import open_local_folder, open_parquet

    name = str(path)
    with reading(name):
        if path.is_dir():
            return open_local_folder(path)
        if not path.exists():
            raise DataError(f"{name}: there is no such file; check the path (now in {Path.cwd()}).")
        if not path.is_file():
            raise DataError(f"{name}: neither a file nor a folder; save the data to a file first.")
        with path.open("rb") as file:
            start = file.read(16)
            size = os.fstat(file.fileno()).st_size
    endings = [ending.lower() for ending in path.suffixes]
    gzipped = bool(endings) and endings[-1] == ".gz"
    if not start:
        raise DataError(f"{name}: the file is empty; expected rows with users and items.")
    held = held_by(start)
    promised = endings[-1] if endings else ""
    if promised in PARQUET_ENDINGS and held != "Parquet":
        raise DataError(f"{name}: ends in {promised} but holds {held}; give it the ending of what it is.")
    if held == "Parquet":
        if promised in _TEXT_ENDINGS or gzipped:
            raise DataError(f"{name}: ends in {promised} but holds Parquet; rename it to end in .parquet.")
        return open_parquet(name, {name: size}, None, None)
    if held == "gzip-compressed data" or held == "text":
        if gzipped and held == "text":
            raise DataError(f"{name}: ends in .gz but is not gzip-compressed; rename it without .gz.")
        if not gzipped and held != "text" and promised in _TEXT_ENDINGS:
            raise DataError(f"{name}: ends in {promised} but holds {held}; rename it to end in {promised}.gz.")
        from considerate.data.text import open_text

        with reading(name):
            return open_text(path, held != "text", headers)
    advice = (
        f"read it with sqlite:///{name} and a query or ?table=" if "SQLite" in held else "convert it to Parquet or CSV"
    )
    raise DataError(f"{name}: holds {held}, which is not read directly; {advice}.")
