"""Arrow tables to files, whole or not at all: Parquet or CSV, by the ending of the name."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.sources import files_of, would_be_read
from considerate.data.vocabulary import Vocabulary
from considerate.errors import UsageError
from considerate.storage.files import atomic_write, check_writable

if TYPE_CHECKING:
    import pyarrow

PathLike = str | os.PathLike[str]
ENDINGS = (".parquet", ".csv")
CHUNK = 1 << 20  # rows of a batch


def check_output_file(path: PathLike, endings: tuple[str, ...] = ENDINGS) -> None:
    """Raise a UsageError if the ending of a path is none that we write, or an OutputError if it cannot be written."""
    if Path(path).suffix.lower() not in endings:
        raise UsageError(f"{os.fspath(path)}: the ending says how to write it; end it in {' or '.join(endings)}.")
    check_writable(path)


def check_apart(path: str, *sources: str | None) -> None:
    """Raise a UsageError if writing `path` would replace a file that is read, or add one to a folder that is."""
    for source in filter(None, sources):
        same = False
        for file in files_of(source):
            with suppress(OSError, ValueError):  # one of them is no file
                same = same or os.path.samefile(path, file)
        if same:
            raise UsageError(f"{path}: is the file that is read, and would be replaced; choose another name.")
        if would_be_read(path, source):
            raise UsageError(f"{path}: is in {source}, a folder whose Parquet files are read; choose another place.")


def write_batches(path: PathLike, schema: pyarrow.Schema, batches: Iterable[pyarrow.RecordBatch]) -> int:
    """Write batches as they come, and return the number of rows. If one fails, no file is left behind."""
    import pyarrow.csv as csv
    import pyarrow.parquet as pq

    check_output_file(path)
    rows = 0
    with atomic_write(path) as file:
        kind: Any = pq.ParquetWriter if Path(path).suffix.lower() == ".parquet" else csv.CSVWriter
        with kind(file, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
                rows += batch.num_rows
    return rows


def write_columns(path: PathLike, **columns: Any) -> int:
    """Write arrays or lists as the columns of a file, and return the number of rows."""
    import pyarrow as pa

    table = pa.table(columns)
    return write_batches(path, table.schema, table.to_batches(CHUNK))


def write_vectors(path: PathLike, length: int, sides: Iterable[tuple[str, Vocabulary, NDArray[np.float32]]]) -> int:
    """Write vectors for a vector store as Parquet: kind ("user" or "item"), id as text, vector."""
    import pyarrow as pa

    check_output_file(path, (".parquet",))
    kind = pa.list_(pa.float32(), length)
    schema = pa.schema([("kind", pa.string()), ("id", pa.string()), ("vector", kind)])

    def batches() -> Iterator[pyarrow.RecordBatch]:
        for side, ids, vectors in sides:
            for start in range(0, len(vectors), 1 << 16):
                part = np.ascontiguousarray(vectors[start : start + (1 << 16)])
                texts = [str(name) for name in ids.ids_of(range(start, start + len(part)))]
                flat = pa.FixedSizeListArray.from_arrays(pa.array(part.reshape(-1)), type=kind)
                yield pa.record_batch([pa.array([side] * len(part)), pa.array(texts), flat], schema=schema)

    return write_batches(path, schema, batches())
