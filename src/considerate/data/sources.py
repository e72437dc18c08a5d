"""Sources: a path, an address, a table in memory or a database is opened as an input.

Databases are read through ADBC, in Arrow batches:

    sqlite:///likes.db?table=likes           a file, relative; four slashes before an absolute path
    postgresql://user@host/shop              with a query

In a sparse matrix of scipy, rows are users, columns are items, and every stored value is one like. The values can be
used as weights.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

import numpy as np
from numpy.typing import NDArray

from considerate.data.frames import open_table, translating
from considerate.data.inputs import REMOTE, Input, StreamInput, first_line, hide_secrets, scheme_of, translate_errors
from considerate.data.parquet import (
    PARQUET_ENDINGS,
    file_format,
    open_folder,
    open_parquet,
    open_remote,
    parquet_files,
)
from considerate.data.text import open_text
from considerate.data.vocabulary import MOST_ROWS
from considerate.data.weights import check_amounts
from considerate.errors import DataError, UsageError

_TEXT_ENDINGS = (".csv", ".tsv", ".tab", ".txt", ".dat", ".data")


def is_database(source: Any) -> bool:
    """True if a source is the address of a database, or an address of an unknown kind."""
    return scheme_of(source) not in ("", "file", *REMOTE)


def open_input(source: Any, query: str | None = None, headers: Sequence[str] = ()) -> Input:
    """Open a source as an input. `headers` are names that the first line of a text file may have."""
    if is_database(source):
        return open_sql(source, query)
    if query is not None:
        raise UsageError("--query goes with a database such as sqlite:///likes.db; the source is none.")
    if scheme_of(source) in REMOTE:
        return open_remote(source)
    if isinstance(source, str | os.PathLike):
        return _open_path(_local_path(os.fsdecode(source)), headers)
    return open_table(source)


def would_be_read(path: str, folder: str) -> bool:
    """True if a file of this name would be read with the folder."""
    inside = os.path.realpath(path).startswith(os.path.join(os.path.realpath(_local_path(folder)), ""))
    return inside and Path(path).suffix.lower() in PARQUET_ENDINGS


def files_of(source: str) -> list[Path]:
    """Local files that would be read: a file, the files of a folder, or an SQLite database."""
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
    """The path of a source: a path, or the path of an address file:///folder."""
    if scheme_of(source) == "file":
        parts = urlsplit(source)
        if parts.netloc not in ("", "localhost"):
            raise UsageError(f"{source}: the address of a file has three slashes, as in file:///data/likes; add one.")
        source = unquote(parts.path)
    return Path(source).expanduser()


def _open_path(path: Path, headers: Sequence[str]) -> Input:
    """Open a file or a folder by its content; a file with the wrong ending is refused."""
    name = str(path)
    with translate_errors(name):
        if path.is_dir():
            sizes = {str(file): file.stat().st_size for file in parquet_files(path)}
            return open_folder(name, sizes, {file.name for file in path.iterdir()}, name, None)
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
    held = file_format(start)
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


# --- Databases ---

_DRIVERS = {
    "sqlite": "adbc_driver_sqlite.dbapi",
    "postgresql": "adbc_driver_postgresql.dbapi",
    "postgres": "adbc_driver_postgresql.dbapi",
}
# A statement that only reads, after comments. Others can make SQLite write files, even if the database is read-only.
_READS = re.compile(r"(?>\s+|--[^\n]*|/\*.*?\*/)*+(?:select|with|values)\b", re.IGNORECASE | re.DOTALL)


def open_sql(address: str, query: str | None) -> StreamInput:
    """Open the answer of a database to `query`, or the table that `?table=` names."""
    name, scheme = hide_secrets(address), scheme_of(address)
    if scheme not in _DRIVERS:
        raise UsageError(
            f"{name}: {scheme}:// is not read; give a file, sqlite:///file.db, postgresql://host/database "
            "or a folder of Parquet such as s3://bucket/likes."
        )
    try:
        parts = urlsplit(address)
        options = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError as error:
        raise UsageError(f"{name!r} is not an address ({error}); write sqlite:///file.db.") from error
    tables = [value for key, value in options if key == "table"]
    if (query is None) == (not tables):
        raise UsageError(
            f'{name}: a database needs either --query "select user, item from likes" '
            "or ?table=likes at the end of its address, and not both."
        )
    statement = query if query is not None else _select_all(tables[0])
    if scheme == "sqlite":
        if not _READS.match(statement):
            raise UsageError(f"{name}: the query {statement[:60]!r} does not only read; it must begin with select.")
        target = _sqlite_uri(parts.path, name)
    else:
        target = urlunsplit(parts._replace(query=urlencode([(k, v) for k, v in options if k != "table"])))
    try:
        driver = importlib.import_module(_DRIVERS[scheme])
    except ImportError as error:
        raise UsageError(
            f"{name}: reading a database needs its ADBC driver; install it: pip install 'considerate[sql]'."
        ) from error
    with _database_errors(name, address), ExitStack() as stack:
        connection = stack.enter_context(closing(driver.connect(target)))
        cursor = stack.enter_context(closing(connection.cursor()))
        cursor.execute(statement)
        reader = stack.enter_context(closing(cursor.fetch_record_batch()))
        batches = translating(reader, _database_errors(name, address))
        return StreamInput(name, reader.schema, batches, stack.pop_all().close)


@contextmanager
def _database_errors(name: str, address: str) -> Iterator[None]:
    """Turn an error of the driver or the database into a DataError without the passwords of the address."""
    import pyarrow as pa
    from adbc_driver_manager import Error

    try:
        yield
    except (Error, pa.ArrowException, OSError) as error:
        text = first_line(error)
        parts = urlsplit(address)
        passwords = [parts.password or "", *(value for key, value in parse_qsl(parts.query) if "pass" in key.lower())]
        for secret in {part for word in passwords for part in (word, unquote(word), *word.split("@")) if part}:
            text = text.replace(secret, "...")
        raise DataError(f"{name}: the database says: {text}; check the address and the query.") from error


def _select_all(table: str) -> str:
    """A query for a whole table; a dot separates the schema from the table."""
    if not table or "\0" in table:
        raise UsageError("?table= has no name of a table behind it.")
    return "SELECT * FROM " + ".".join('"' + part.replace('"', '""') + '"' for part in table.split("."))


def sqlite_file(path: str) -> Path:
    """The file of an SQLite address: the relative path, or the absolute one if only that exists."""
    relative = Path(unquote(path)[1:])
    return Path("/", relative) if not relative.is_file() and Path("/", relative).is_file() else relative


def _sqlite_uri(path: str, name: str) -> str:
    """The address of an existing SQLite file, for reading only."""
    with translate_errors(name):
        file = sqlite_file(path)
        if not file.is_file():
            raise DataError(f"{name}: there is no file {str(file)!r}; check the path (now in {Path.cwd()}).")
        with file.open("rb") as opened:
            start = opened.read(16)
    if start != b"SQLite format 3\0":
        raise DataError(f"{name}: {str(file)!r} is not an SQLite database; give a file by its path alone.")
    return f"file:{quote(str(file.resolve()))}?mode=ro"


# --- Sparse matrices ---


def is_sparse(source: Any) -> bool:
    """True if a source is a sparse matrix; this does not import scipy."""
    scipy_sparse = sys.modules.get("scipy.sparse")
    return scipy_sparse is not None and bool(scipy_sparse.issparse(source))


def matrix_pairs(
    matrix: Any, weighted: bool = False
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float64]]:
    """(users, items, values) of a matrix, perhaps its own arrays; warns about values that vary and are not used."""
    if len(matrix.shape) != 2:
        raise DataError(f"the matrix has {len(matrix.shape)} dimensions; expected two, users and items.")
    if max(matrix.shape) > MOST_ROWS:
        raise DataError(f"the matrix is {matrix.shape[0]} x {matrix.shape[1]}; at most {MOST_ROWS} rows fit.")
    pairs = matrix.tocoo(copy=False)
    values = pairs.data
    if not len(values):
        raise DataError(f"the {matrix.shape[0]} x {matrix.shape[1]} matrix stores no values; expected likes.")
    if values.dtype.kind not in "biuf":
        raise DataError(f"the matrix holds {values.dtype}; expected positive numbers, one per like.")
    wrong = int(len(values) - np.count_nonzero(values > 0))  # NaN is not above zero
    if wrong:
        raise DataError(
            f"{wrong} of the {len(values)} stored values of the matrix are zero, negative or NaN; "
            "each stored value is one like: call eliminate_zeros() or drop them."
        )
    if weighted:
        check_amounts("the given matrix", "data", values)
    elif values.min() != values.max():
        warnings.warn(
            "the stored values of the matrix vary; they are not used as weights, each is one like: weight='log1p' or "
            "'raw' uses them",
            UserWarning,
            stacklevel=4,
        )
    return pairs.row.astype(np.int32, copy=False), pairs.col.astype(np.int32, copy=False), values
