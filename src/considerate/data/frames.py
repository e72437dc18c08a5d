"""Inputs from tables in memory: Arrow, data frames, lazy frames, dicts of columns, NumPy arrays."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from considerate.data.inputs import BATCH_ROWS, Input, StreamInput, first_line, translate_errors
from considerate.errors import DataError, UsageError

SOURCES = (
    "a path, a data frame (pandas from 2.2, polars), an Arrow table, a dict of columns {'user': ..., 'item': ...}, "
    "an array of two columns, a scipy sparse matrix or the address of a database"
)


def open_table(source: Any) -> Input:
    """Open a table in memory; UsageError says what to give instead of anything else."""
    name = f"the given {type(source).__name__}"
    if type(source).__module__.partition(".")[0] == "polars" and hasattr(source, "collect"):
        return _open_lazy(source, name)
    if type(source).__name__ == "Series":
        raise UsageError(f"{name} is one column; give a data frame with users and items, such as series.reset_index().")
    if hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_array__"):
        return _open_arrow(source, name)
    return _open_columns(_columns(source, name), name)


def _open_arrow(source: Any, name: str) -> Input:
    import pyarrow as pa

    with translate_errors(name):
        if isinstance(source, pa.RecordBatchReader):
            return StreamInput(name, source.schema, translating(source, translate_errors(name)))
        if hasattr(source, "__arrow_c_stream__"):
            try:
                table = pa.table(source)
            except (pa.ArrowInvalid, pa.ArrowTypeError) as error:  # a column of objects, in pandas
                raise _mixed(name, error) from error
        else:
            table = pa.Table.from_batches([pa.record_batch(source)])
        for at, column in enumerate(table.column_names):
            # Arrow turns pandas' NaN into null: make it NaN again, as the user sees it
            dtype = getattr(getattr(source, "dtypes", None), "get", lambda _: None)(column)
            if getattr(dtype, "kind", "") == "f" and pa.types.is_floating(table.schema.types[at]):
                filled = table.column(at).fill_null(pa.scalar(float("nan"), table.schema.types[at]))
                table = table.set_column(at, column, filled)
        table = table.drop_columns([name for name in table.column_names if re.fullmatch(r"__index_level_\d+__", name)])
        return StreamInput(name, table.schema, table.to_batches(max_chunksize=BATCH_ROWS))


def _mixed(name: str, error: Exception) -> DataError:
    """Make the error of a column whose values have different types."""
    seen = "; ".join(map(str, error.args)).splitlines()[0][:300].rstrip(".")
    return DataError(
        f"{name}: a column has values of more than one type ({seen}); make them one, such as with .astype(str)."
    )


def translating(batches: Iterable[Any], errors: AbstractContextManager[None]) -> Iterator[Any]:
    """Yield batches, with the errors of their source translated."""
    with errors:
        yield from batches


# --- Lazy frames ---


@dataclass
class LazyInput(Input):
    """A lazy frame of polars, of which only the needed columns are collected."""

    frame: Any

    def batches(self, needed: Sequence[str], ids: Sequence[str]) -> Iterable[Any]:
        import pyarrow as pa

        collected = _collected(self.frame.select(list(needed)), self.name)
        return list(pa.table(collected).to_batches(max_chunksize=BATCH_ROWS))


def _open_lazy(source: Any, name: str) -> LazyInput:
    import pyarrow as pa

    empty = _collected(source.head(0), name)
    return LazyInput(name, pa.table(empty).schema, source)


def _collected(frame: Any, name: str) -> Any:
    polars_error = sys.modules["polars"].exceptions.PolarsError
    try:
        return frame.collect()
    except (polars_error, OSError) as error:
        raise DataError(
            f"{name}: cannot be collected ({first_line(error)}); mend it until its collect() works."
        ) from error


# --- Columns ---


def _columns(source: Any, name: str) -> dict[str, Any]:
    """The columns of a dict, of an array of pairs or of fields, or of two arrays."""
    if isinstance(source, Mapping):
        return dict(source)
    if isinstance(source, tuple) and len(source) == 2 and all(isinstance(part, np.ndarray) for part in source):
        return {"user": source[0], "item": source[1]}
    if isinstance(source, np.ndarray):
        if source.dtype.names is not None and source.ndim == 1:
            return {field: source[field] for field in source.dtype.names}
        if source.ndim == 2 and source.shape[1] == 2:
            return {"user": source[:, 0], "item": source[:, 1]}
        raise UsageError(
            f"an array of shape {source.shape} is not read; a column of users and one of items are. Give a matrix of "
            "users by items as scipy.sparse.csr_array(array), and other columns in a dict {'user': ..., 'item': ...}."
        )
    for method in ("collect", "compute", "toArrow", "to_arrow"):
        if hasattr(source, method):
            raise UsageError(
                f"cannot read likes from {type(source).__name__!r} as it is; give what its {method}() returns."
            )
    raise UsageError(f"cannot read likes from {type(source).__name__!r}; give {SOURCES}.")


def _is_column(values: Any) -> bool:
    """True if values are a column: a list, which may have lists in it, or an array of rows."""
    return getattr(values, "ndim", 1) == 1 or (isinstance(values, np.ndarray) and values.ndim == 2)


def _open_columns(columns: Mapping[str, Any], name: str) -> Input:
    import pyarrow as pa

    arrays, expected = {}, "expected a dict of columns of one length, such as {'user': [...], 'item': [...]}"
    for column, values in columns.items():
        if isinstance(values, str | bytes | Mapping) or not hasattr(values, "__len__") or not _is_column(values):
            raise UsageError(f"{name}: {column!r} is no list of values; {expected}.")
        try:
            arrays[str(column)] = pa.array(list(values) if getattr(values, "ndim", 1) == 2 else values)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise _mixed(f"{name}, {column!r}", error) from error
    if len({len(array) for array in arrays.values()}) != 1:
        sizes = ", ".join(f"{column!r} has {len(array):,}" for column, array in list(arrays.items())[:5])
        raise DataError(f"{name}: {sizes or 'there are no'} values; {expected}.")
    table = pa.table(arrays)
    return StreamInput(name, table.schema, table.to_batches(max_chunksize=BATCH_ROWS))
