"""An opened source: its columns as a stream of Arrow batches.

An input is opened once, tells the types of its columns, is scanned once with a projection and a filter, and is closed.
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
    quotes: bool = field(default=True, kw_only=True)  # there are no quotes around values, or they have been taken off
    notes: list[str] = field(default_factory=list, kw_only=True)
    rows: int = field(default=0, kw_only=True)  # rows read, once the scan is over
    from_text: ClassVar[bool] = False  # columns of ids come as strings, whatever they hold

    @property
    def names(self) -> list[str]:
        return list(self.schema.names)

    def types(self, ids: Sequence[str]) -> dict[str, Any]:
        """The Arrow type of every column if `ids` are read as ids."""
        return {column.name: _without_views(column.type) for column in self.schema}

    def batches(self, needed: Sequence[str], ids: Sequence[str]) -> Iterable[Any]:
        """All rows, with the needed columns at least."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go of what is open, whether the input was scanned or not."""

    def scan(self, needed: Sequence[str], ids: Sequence[str], columns: Mapping[str, Any], keep: Any) -> Iterator[Any]:
        """Batches of `columns` (name -> expression over the needed ones) of the rows that are kept, in order."""
        import pyarrow as pa
        import pyarrow.dataset as ds

        # One batch at a time: a scanner of a Python iterator goes on in threads of its own after a failure, which
        # aborts the process when it ends, or keeps it from going on (pyarrow 26.0.1).
        types = self.types(ids)
        schema = pa.schema([(name, types[name]) for name in needed])
        for batch in self.batches(needed, ids):
            self.rows += batch.num_rows
            if batch.num_rows:
                batch = batch.select(list(needed))
                batch = batch if batch.schema.types == schema.types else batch.cast(schema)
                scanner = ds.InMemoryDataset(batch).scanner(columns=dict(columns), filter=keep)
                yield from scanner.to_table().to_batches()


@dataclass
class StreamInput(Input):
    """Batches that can be had once: a table, a data frame, an answer from a database."""

    stream: Iterable[Any]
    close: Callable[[], None] = lambda: None

    def batches(self, needed: Sequence[str], ids: Sequence[str]) -> Iterable[Any]:
        return self.stream


def value_type(kind: Any) -> Any:
    """The type of the values of a dictionary; any other type as it is."""
    import pyarrow as pa

    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _without_views(kind: Any) -> Any:
    """A type with ordinary strings and bytes for views of them, which Arrow's filters do not know."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _without_views(kind.value_type))
    views = {"string_view": pa.large_string(), "binary_view": pa.large_binary()}
    return views.get(str(kind), kind)


@contextmanager
def translate_errors(name: str) -> Iterator[None]:
    """What foreign data makes the readers raise becomes a DataError of one sentence."""
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


# --- Addresses ---


def scheme_of(source: Any) -> str:
    """The scheme of an address such as s3://bucket/likes, in lower case; empty for a path and anything else."""
    match = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", source) if isinstance(source, str) else None
    return match[1].lower() if match else ""


def hide_secrets(address: str) -> str:
    """An address for messages, without passwords: neither user:password@host nor ?password=... is shown."""
    address = re.sub(r"(?<=://)([^/?#:]*):[^/?#]*@", r"\1:...@", address)
    base, mark, query = address.partition("?")
    options = [option.partition("=") for option in query.split("&")]
    secret = re.compile("passw|secret|token|key", re.IGNORECASE)
    return base + mark + "&".join(f"{k}{e}{'...' if secret.search(unquote(k)) else v}" for k, e, v in options)
