"""Databases, through ADBC: the answer to a query comes as Arrow batches.

sqlite:///likes.db?table=likes           a file, relative; four slashes before an absolute path
postgresql://user@host/shop              with a query
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from considerate.data.inputs import StreamInput, hide_secrets, scheme_of, translate_errors
from considerate.errors import DataError, UsageError

_DRIVERS = {
    "sqlite": "adbc_driver_sqlite.dbapi",
    "postgresql": "adbc_driver_postgresql.dbapi",
    "postgres": "adbc_driver_postgresql.dbapi",
}
# A statement that only reads, after comments. SQLite's others can make files, even where the database is read-only.
_READS = re.compile(r"(?>\s+|--[^\n]*|/\*.*?\*/)*+(?:select|with|values)\b", re.IGNORECASE | re.DOTALL)


def open_sql(address: str, query: str | None) -> StreamInput:
    """The answer of a database to `query`, or all of the table that `?table=` names."""
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
        batches = _batches(reader, name, address)
        return StreamInput(name, reader.schema, batches, stack.pop_all().close)


def _batches(reader: Any, name: str, address: str) -> Iterator[Any]:
    with _database_errors(name, address):
        yield from reader


@contextmanager
def _database_errors(name: str, address: str) -> Iterator[None]:
    """An error of the driver or of the database as a DataError, which shows none of the address's passwords."""
    import pyarrow as pa
    from adbc_driver_manager import Error

    try:
        yield
    except (Error, pa.ArrowException, OSError) as error:
        text = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
        parts = urlsplit(address)
        passwords = [parts.password or "", *(value for key, value in parse_qsl(parts.query) if "pass" in key.lower())]
        for secret in {part for word in passwords for part in (word, unquote(word), *word.split("@")) if part}:
            text = text.replace(secret, "...")
        raise DataError(f"{name}: the database says: {text}; check the address and the query.") from error


def _select_all(table: str) -> str:
    """A query for a whole table; a dot parts the schema from the table."""
    if not table or "\0" in table:
        raise UsageError("?table= has no name of a table behind it.")
    return "SELECT * FROM " + ".".join('"' + part.replace('"', '""') + '"' for part in table.split("."))


def sqlite_file(path: str) -> Path:
    """The file that the path of an address means: relative, or absolute where only that is there."""
    relative = Path(unquote(path)[1:])
    return Path("/", relative) if not relative.is_file() and Path("/", relative).is_file() else relative


def _sqlite_uri(path: str, name: str) -> str:
    """The address of an SQLite file that is there, opened for reading only."""
    with translate_errors(name):
        file = sqlite_file(path)
        if not file.is_file():
            raise DataError(f"{name}: there is no file {str(file)!r}; check the path (now in {Path.cwd()}).")
        with file.open("rb") as opened:
            start = opened.read(16)
    if start != b"SQLite format 3\0":
        raise DataError(f"{name}: {str(file)!r} is not an SQLite database; give a file by its path alone.")
    return f"file:{quote(str(file.resolve()))}?mode=ro"
