"""Inputs: opened sources, whose columns are streams of Arrow batches.

An input is opened once, has the types of its columns, is scanned once with a projection and a filter, and is closed.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import unquote

from considerate.errors import DataError, UsageError

BATCH_ROWS = 131_072
REMOTE = ("s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss")  # schemes of pyarrow's filesystems


@dataclass
class Input:
    """An opened source."""

    name: str  # for messages
    schema: Any  # Arrow's names and types of the columns
    quotes: bool = field(default=True, kw_only=True)  # values have no quotes around them, or these were removed
    notes: list[str] = field(default_factory=list, kw_only=True)
    rows: int = field(default=0, kw_only=True)  # number of rows read, after the scan
    from_text: ClassVar[bool] = False  # columns of ids come as strings, even if they are numbers

    @property
    def names(self) -> list[str]:
        return list(self.schema.names)

    def types(self, ids: Sequence[str]) -> dict[str, Any]:
        """The Arrow type of each column, if `ids` are read as ids."""
        return {column.name: _without_views(column.type) for column in self.schema}

    def batches(self, needed: Sequence[str], ids: Sequence[str]) -> Iterable[Any]:
        """Read all rows, with the needed columns at least."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the source, whether it was scanned or not."""

    def scan(self, needed: Sequence[str], ids: Sequence[str], columns: Mapping[str, Any], keep: Any) -> Iterator[Any]:
        """Read `columns` (name -> expression over the needed ones) of the rows that are kept, in order, as batches."""
        import pyarrow as pa
        import pyarrow.dataset as ds

        # One batch at a time: after a failure, a scanner of a Python iterator keeps running in its own threads, which
        # aborts the process at its end, or blocks it (pyarrow 26.0.1).
        types = self.types(ids)
        schema = pa.schema([(name, types[name]) for name in needed])
        for batch in self.batches(needed, ids):
            self.rows += batch.num_rows
            if batch.num_rows:
                batch = batch.select(list(needed))
                batch = batch if batch.schema.types == schema.types else batch.cast(schema)
                scanner = ds.InMemoryDataset(batch).scanner(columns=dict(columns), filter=keep)
                yield from (kept for kept in scanner.to_table().to_batches() if kept.num_rows)


@dataclass
class StreamInput(Input):
    """Batches that can be read once: a table, a data frame, the answer of a database."""

    stream: Iterable[Any]
    close: Callable[[], None] = lambda: None

    def batches(self, needed: Sequence[str], ids: Sequence[str]) -> Iterable[Any]:
        return self.stream


def value_type(kind: Any) -> Any:
    """The value type of a dictionary type; any other type as it is."""
    import pyarrow as pa

    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _without_views(kind: Any) -> Any:
    """Replace views of strings and bytes by the ordinary types: Arrow's filters do not know views."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _without_views(kind.value_type))
    views = {"string_view": pa.large_string(), "binary_view": pa.large_binary()}
    return views.get(str(kind), kind)


@contextmanager
def translate_errors(name: str) -> Iterator[None]:
    """Turn the errors that foreign data causes in readers into a DataError of one sentence."""
    import pyarrow as pa

    try:
        yield
    except (DataError, UsageError):
        raise
    except PermissionError as error:
        raise DataError(f"{name}: no permission to read it; give yourself read access.") from error
    except (pa.ArrowException, OSError, ValueError, TypeError, LookupError, EOFError, zlib.error) as error:
        raise DataError(
            f"{name}: cannot be read ({first_line(error)}); "
            "the data may be damaged or of another kind than expected: check it or write it again."
        ) from error
    except MemoryError as error:
        raise DataError(f"{name}: reading it needs more memory than there is, or it is damaged.") from error


def first_line(error: Exception) -> str:
    """The first line of an error's message without its full stop, or the name of its class."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:300].rstrip(".")


# --- Addresses ---


def scheme_of(source: Any) -> str:
    """The scheme of an address such as s3://bucket/likes, in lower case; empty for anything else."""
    match = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", source) if isinstance(source, str) else None
    return match[1].lower() if match else ""


def hide_secrets(address: str) -> str:
    """Remove passwords from an address for messages: from user:password@host and from ?password=..."""
    address = re.sub(r"(?<=://)([^/?#:]*):[^/?#]*@", r"\1:...@", address)
    base, mark, query = address.partition("?")
    options = [option.partition("=") for option in query.split("&")]
    secret = re.compile("passw|secret|token|key", re.IGNORECASE)
    return base + mark + "&".join(f"{k}{e}{'...' if secret.search(unquote(k)) else v}" for k, e, v in options)
