"""Databases, through ADBC: the answer to a query comes as Arrow batches.

sqlite:///likes.db?table=likes           a file, relative; four slashes before an absolute path
postgresql://user@host/shop              with a query
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from considerate.data.inputs import StreamInput, reading
from considerate.errors import DataError, UsageError

_DRIVERS = {
    "sqlite": "adbc_driver_sqlite.dbapi",
    "postgresql": "adbc_driver_postgresql.dbapi",
    "postgres": "adbc_driver_postgresql.dbapi",
}


def open_sql(address: str, query: str | None) -> StreamInput:
    """The answer of a database to `query`, or all of the table that `?table=` names."""
    try:
        parts = urlsplit(address)
        password = parts.password
    except ValueError as error:
        raise UsageError(f"{address!r} is not an address ({error}); write sqlite:///file.db.") from error
    scheme = parts.scheme.lower()
    name = address.replace(f":{password}@", ":...@") if password else address
    if scheme not in _DRIVERS:
        raise UsageError(
            f"{name}: {scheme}:// is not read; give a file, sqlite:///file.db, postgresql://host/database "
            "or a folder of Parquet such as s3://bucket/likes."
        )
    options = parse_qsl(parts.query, keep_blank_values=True)
    tables = [value for key, value in options if key == "table"]
    if (query is None) == (not tables):
        raise UsageError(
            f'{name}: a database needs either --query "select user, item from likes" '
            "or ?table=likes at the end of its address, and not both."
        )
    statement = query if query is not None else _select_all(tables[0])
    rest = urlencode([(key, value) for key, value in options if key != "table"])
    target = urlunsplit(parts._replace(query=rest)) if scheme != "sqlite" else _sqlite_uri(parts.path, name)
    try:
        driver = importlib.import_module(_DRIVERS[scheme])
    except ImportError as error:
        raise UsageError(
            f"{name}: reading a database needs its ADBC driver; install it: pip install 'considerate[sql]'."
        ) from error
    return _ask(driver, target, str(statement), name)


def _select_all(table: str) -> str:
    """A query for a whole table; a dot parts the schema from the table."""
    if not table or "\0" in table:
        raise UsageError("?table= has no name of a table behind it.")
    return "SELECT * FROM " + ".".join('"' + part.replace('"', '""') + '"' for part in table.split("."))


def address_file(address: str) -> Path | None:
    """The file behind the address of an SQLite database, None for any other."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return None
    return sqlite_file(parts.path) if parts.scheme.lower() == "sqlite" else None


def sqlite_file(place: str) -> Path:
    """The file that the path of an address means: relative, or absolute where only that is there."""
    path = Path(unquote(place)[1:])
    return Path("/", path) if not path.is_file() and Path("/", path).is_file() else path


def _sqlite_uri(place: str, name: str) -> str:
    """The address of an SQLite file that is there, opened for reading only."""
    with reading(name):
        path = sqlite_file(place)
        if not path.is_file():
            raise DataError(f"{name}: there is no file {str(path)!r}; check the path (now in {Path.cwd()}).")
        with path.open("rb") as file:
            start = file.read(16)
    if start != b"SQLite format 3\0":
        raise DataError(f"{name}: {str(path)!r} is not an SQLite database; give a file by its path alone.")
    return f"file:{quote(str(path.resolve()))}?mode=ro"


def _ask(driver: Any, target: str, statement: str, name: str) -> StreamInput:
    """Run the query; the connection is closed after the last batch."""
    from adbc_driver_manager import Error

    def refused(error: Exception) -> DataError:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return DataError(f"{name}: the database says: {lines[0][:300]}; check the address and the query.")

    try:
        connection = driver.connect(target)
    except Error as error:
        raise refused(error) from error
    cursor = connection.cursor()
    try:
        with reading(name):
            cursor.execute(statement)
            reader = cursor.fetch_record_batch()
    except Error as error:
        cursor.close()
        connection.close()
        raise refused(error) from error
    except DataError:
        cursor.close()
        connection.close()
        raise

    def batches() -> Iterator[Any]:
        try:
            yield from reader
        except Error as error:
            raise refused(error) from error
        finally:
            reader.close()
            cursor.close()
            connection.close()

    return StreamInput(name, reader.schema, batches())
