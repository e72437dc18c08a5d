"""Reading of features: a table about items or users -> features by id.

    texts; integers in a column called ...id     a category: a feature for each value
    lists of texts or integers; texts with tags  a feature for each
    numbers, dates                               a number: standardised; 0, the mean, where it is missing
    lists of floating-point numbers              an embedding: such a number for each place
    booleans                                     a flag: 1 or 0

Texts have tags if any value of their column has a |, which then separates the tags; or if the column is called genres,
tags, categories or the like: then commas separate them. A value in fewer than `min_rows` rows is left out: a feature of
one row has no information on other rows. An id may have several rows, such as one for each of its tags.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.categories import SEVERAL
from considerate.data.encode import read_columns, read_numbers
from considerate.data.features import FeatureColumn, Features, FeatureTable
from considerate.data.inputs import Input, translate_errors, value_type
from considerate.data.options import TITLES, find, listed, pick_id, plain
from considerate.data.sources import is_sparse, open_input
from considerate.errors import DataError, UsageError

MIN_ROWS = 2
KINDS = ("category", "tags", "number", "embedding", "flag")
SIDES = ("item", "user")
Columns = Sequence[str] | Mapping[str, str] | None


def read_features(
    source: Any,
    side: str = "item",
    *,
    id_column: str | None = None,
    columns: Columns = None,
    min_rows: int = MIN_ROWS,
    query: str | None = None,
) -> FeatureTable:
    """Read features of items or users from a table with a column of ids, or from a matrix.

    source     a path of Parquet or text, a data frame, an Arrow table, a dict of columns, the address of a database; or
               a matrix of scipy or NumPy: its rows are those of the matrix of likes, its values are used as they are
    side       "item" or "user"
    id_column  the column of ids; guessed if not given
    columns    the columns to use; all but ids and titles if not given. "age:category", or {"age": "category"}, also
               gives the kind of a column: category, tags, number, embedding or flag
    min_rows   least number of rows with a value for it to be a feature
    query      query for a database
    """
    if isinstance(source, FeatureTable):
        return source
    if side not in SIDES:
        raise UsageError(f"side is {side!r}; features are those of an 'item' or of a 'user'.")
    if is_matrix(source):
        return FeatureTable(_of_matrix(source).with_intercept(), None, "the matrix of features")
    with closing(open_input(source, query, [id_column] if id_column else ())) as table:
        id_column = _id_column(table, side, id_column)
        chosen = _choose(table, id_column, columns)
        ids, rows, arrays = read_columns(table, side, id_column, [one.name for one in chosen], what="the features")
    with translate_errors(table.name):
        chosen = [_measured(column, array) for column, array in zip(chosen, arrays)]
        entries = [_entries(column, array, rows) for column, array in zip(chosen, arrays)]
    entries = [entry.of_at_least(min_rows) for entry in entries]
    names = tuple(name for entry in entries for name in entry.names)
    if not names:
        asked = listed([column.name for column in chosen]) or "any column except the ids"
        raise DataError(
            f"{table.name}: no value in {asked} has {min_rows} rows, so there is no feature; give columns with values "
            "that rows share, or numbers that are finite."
        )
    used = tuple(column for column, entry in zip(chosen, entries) if entry.names)
    note = f"{len(names):,} features of {len(ids):,} {side}s from {listed([column.name for column in used])}"
    rare = sum(entry.dropped for entry in entries)
    note += f"; {rare:,} values of fewer than {min_rows} rows are left out" if rare else ""
    return FeatureTable(_joined(entries, len(ids), names, used).with_intercept(), ids, table.name, (note,))


def read_more(
    source: Any, side: str, known: Features, id_column: str | None = None, in_order: bool = False
) -> FeatureTable:
    """Read the features of other items or users in the same way as the `known` ones; new values are left out.

    With `in_order`, row n of the table is row n of the answer, and the answer has no ids.
    """
    if is_matrix(source):
        features = _of_matrix(source).with_intercept()
        if features.count != known.count:
            count = features.count - 1
            raise DataError(f"the matrix has {count} features; the model's {side}s have {known.count - 1}.")
        return FeatureTable(replace(features, names=known.names), None, "the matrix of features")
    with closing(open_input(source, None, [id_column] if id_column else ())) as table:
        id_column = None if in_order else _id_column(table, side, id_column)
        there = {plain(name): name for name in reversed(table.names)}
        columns = [column for column in known.columns if plain(column.name) in there]
        if not columns:
            wanted = listed([column.name for column in known.columns]) or "a matrix of features"
            raise DataError(f"{table.name}: it has {listed(table.names)}; the model's features come from {wanted}.")
        names_here = [there[plain(column.name)] for column in columns]
        ids, rows, arrays = read_columns(table, side, id_column, names_here, what="the features")
    with translate_errors(table.name):
        entries = [_entries(column, array, rows) for column, array in zip(columns, arrays)]
    names = known.names[:-1]
    entries = [entry.of_names(names) for entry in entries]
    new = sum(entry.dropped for entry in entries)
    notes = (f"{new:,} values in {table.name} are not features of the model; they are left out",) if new else ()
    features = _joined(entries, len(rows) if in_order else len(ids), names, known.columns)
    return FeatureTable(features.with_intercept(), None if in_order else ids, table.name, notes)


# --- Matrices ---


def is_matrix(source: Any) -> bool:
    """True if a source of features is a matrix of scipy, or a matrix of numbers of NumPy."""
    return is_sparse(source) or (isinstance(source, np.ndarray) and source.ndim == 2 and source.dtype.kind in "biuf")


def _of_matrix(source: Any) -> Features:
    from scipy.sparse import csr_array

    with np.errstate(over="ignore"):
        matrix = csr_array(source, dtype=np.float32)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    if not np.isfinite(matrix.data).all():
        raise DataError(
            "the matrix of features has a value that is not finite in single precision; put 0 where nothing is known."
        )
    names = tuple(f"feature {at}" for at in range(matrix.shape[1]))
    return Features(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), matrix.data, names)


# --- Columns of a table ---


def _id_column(table: Input, side: str, given: str | None) -> str:
    """The column of ids: the given name, or a usual one."""
    if given is not None:
        return find(given, table.names, table.name, f"--{side}-feature-id-column")
    column = pick_id(side, table.names, table.name)
    if column is None:
        raise DataError(
            f"{table.name}: no column looks like the {side}s' ids; it has {listed(table.names)}. Name one with "
            f"--{side}-feature-id-column, or read_features(..., id_column=) in Python."
        )
    return column


def _choose(table: Input, id_column: str, given: Columns) -> list[FeatureColumn]:
    """Choose the columns that become features, each with its kind."""
    types = table.types([id_column])
    if given is None:
        names = [name for name in table.names if name != id_column and plain(name) not in TITLES]
        kinds = {name: _kind(name, types[name]) for name in names}
        return [FeatureColumn(name, kind) for name, kind in kinds.items() if kind is not None]
    pairs = given.items() if isinstance(given, Mapping) else [_named_kind(name, table.names) for name in given]
    chosen = []
    for name, kind in pairs:
        column = find(name, table.names, table.name, "--feature-columns")
        read_as = kind or _kind(column, types[column])
        if read_as not in KINDS:
            seen = kind or f"of type {types[column]}"
            raise UsageError(f"{table.name}: the column {column!r} is {seen}; it can be read as {listed(KINDS)}.")
        chosen.append(FeatureColumn(column, read_as))
    return chosen


def _named_kind(text: str, names: Sequence[str]) -> tuple[str, str]:
    """Split a name and its kind: "age:category" -> ("age", "category")."""
    name, _, kind = (text, "", "") if text in names else text.rpartition(":") if ":" in text else (text, "", "")
    return name.strip(), kind.strip()


def _kind(name: str, kind: Any) -> str | None:
    """The kind of feature of a column by its Arrow type, None if it is no feature."""
    import pyarrow.types as at

    kind = value_type(kind)
    if _is_list(kind):
        inner = value_type(kind.value_type)
        return "embedding" if at.is_floating(inner) else "tags" if at.is_integer(inner) or _is_text(inner) else None
    if _is_text(kind):
        return "tags" if plain(name) in SEVERAL else "category"
    if at.is_boolean(kind):
        return "flag"
    if at.is_integer(kind) and plain(name).endswith("id"):
        return "category"
    numbers = at.is_integer(kind) or at.is_floating(kind) or at.is_decimal(kind)
    return "number" if numbers or at.is_date(kind) or at.is_timestamp(kind) else None


def _is_list(kind: Any) -> bool:
    import pyarrow.types as at

    return bool(at.is_list(kind) or at.is_large_list(kind) or at.is_fixed_size_list(kind))


def _is_text(kind: Any) -> bool:
    import pyarrow.types as at

    return bool(at.is_string(kind) or at.is_large_string(kind))


# --- From columns to entries ---


@dataclass(frozen=True)
class _Entries:
    """Entries of some features: row, number of the feature among `names`, value. No entry is there twice."""

    rows: NDArray[np.int64]
    codes: NDArray[np.int64]
    values: NDArray[np.float64]
    names: list[str]
    are_values: bool = False  # features are values of a column, not numbers
    dropped: int = 0  # number of features left out

    def of_at_least(self, rows: int) -> _Entries:
        """Leave out values in fewer rows; numbers stay."""
        return self if not self.are_values else self._only(np.bincount(self.codes, minlength=len(self.names)) >= rows)

    def of_names(self, names: Sequence[str]) -> _Entries:
        """Leave out the features that are not among these."""
        known = set(names)
        return self._only(np.array([name in known for name in self.names], bool))

    def _only(self, kept: NDArray[np.bool_]) -> _Entries:
        inside = kept[self.codes]
        codes = (np.cumsum(kept) - 1)[self.codes[inside]]
        names = [name for name, keep in zip(self.names, kept) if keep]
        dropped = int(len(kept) - kept.sum())
        return replace(
            self, rows=self.rows[inside], codes=codes, values=self.values[inside], names=names, dropped=dropped
        )


def _measured(column: FeatureColumn, array: Any) -> FeatureColumn:
    """Add to a column how others are read in the same way: the separator of tags, or mean and deviation of numbers."""
    import pyarrow.compute as pc

    if column.kind in ("category", "tags"):
        if not _is_text(value_type(array.type)):
            return column
        texts = array.dictionary if hasattr(array, "dictionary") else array
        bar = pc.any(pc.match_substring(texts, "|")).as_py()
        return replace(column, mark="|" if bar else "," if column.kind == "tags" else "")
    values = _numbers(column, array)
    if column.kind == "flag":
        return replace(column, means=(0.0,), deviations=(1.0,))
    known = np.isfinite(values)
    count = np.maximum(known.sum(axis=0), 1)
    with np.errstate(over="ignore", invalid="ignore"):
        means = np.where(known, values, 0.0).sum(axis=0) / count
        deviations = np.sqrt((np.where(known, values - means, 0.0) ** 2).sum(axis=0) / count)
    if not np.isfinite(deviations).all():
        most = np.abs(np.where(known, values, 0.0)).max()
        raise DataError(f"the column {column.name!r} has numbers up to {most:g}; give them in a larger unit.")
    return replace(column, means=tuple(means.tolist()), deviations=tuple(deviations.tolist()))


def _entries(column: FeatureColumn, array: Any, rows: NDArray[np.int32]) -> _Entries:
    """Make the entries of one column; `rows` has the row of each of its values."""
    return (_value_entries if column.kind in ("category", "tags") else _number_entries)(column, array, rows)


def _value_entries(column: FeatureColumn, array: Any, rows: NDArray[np.int32]) -> _Entries:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if column.mark and _is_text(array.type):
        array = pc.split_pattern(array, column.mark)
    if _is_list(array.type):
        owners, array = rows[pc.list_parent_indices(array).to_numpy()], pc.list_flatten(array)
    else:
        owners = rows
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_floating(array.type) and pc.all(pc.equal(pc.trunc(array), array)).as_py():
        array = array.cast(pa.int64())  # 3, not 3.0, of a text file
    texts = pc.utf8_trim_whitespace(array.cast(pa.large_string()))
    there = pc.fill_null(pc.not_equal(pc.binary_length(texts), 0), False)
    encoded = texts.filter(there).dictionary_encode()
    order = np.argsort(np.array(encoded.dictionary.to_pylist(), object), kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    owners = owners[there.to_numpy(zero_copy_only=False)].astype(np.int64)
    pairs = np.unique(owners * max(len(order), 1) + rank[encoded.indices.to_numpy(zero_copy_only=False)])
    own, codes = np.divmod(pairs, max(len(order), 1))
    names = [f"{column.name}: {text}" for text in encoded.dictionary.take(pa.array(order)).to_pylist()]
    return _Entries(own, codes, np.ones(len(pairs)), names, are_values=True)


def _number_entries(column: FeatureColumn, array: Any, rows: NDArray[np.int32]) -> _Entries:
    """Make entries of standardised numbers; an id with several rows has their mean. A constant is left out."""
    values, count = _numbers(column, array), int(rows.max(initial=-1)) + 1
    if values.shape[1] != len(column.means):
        raise DataError(f"{column.name!r} has {values.shape[1]} numbers in a row; expected {len(column.means)}.")
    parts = []
    for at, (mean, deviation) in enumerate(zip(column.means, column.deviations)):
        known = np.isfinite(values[:, at]) & (deviation > 0.0)
        there = np.bincount(rows[known], minlength=count)
        with np.errstate(over="ignore"):
            total = np.bincount(rows[known], (values[known, at] - mean) / (deviation or 1.0), minlength=count)
        own = np.flatnonzero(total)
        parts.append((own, np.full(len(own), at), total[own] / there[own]))
    own, codes, scaled = (np.concatenate(arrays) for arrays in zip(*parts))
    if not (np.abs(scaled) <= np.finfo(np.float32).max).all():
        raise DataError(f"the column {column.name!r} has numbers beyond single precision; give them in a larger unit.")
    single = column.kind != "embedding" and len(column.means) == 1
    names = [column.name] if single else [f"{column.name}[{at}]" for at in range(len(column.means))]
    varies = np.array(column.deviations) > 0.0
    return _Entries(own, codes, scaled, names)._only(varies)


def _numbers(column: FeatureColumn, array: Any) -> NDArray[np.float64]:
    """[rows, places] numbers of a column, NaN if missing."""
    import pyarrow as pa

    try:
        if not _is_list(array.type):
            array = array.cast(pa.int8()) if pa.types.is_boolean(array.type) else array
            return read_numbers(array)[:, None]
        lists = [np.asarray(values, np.float64) for values in array.to_pylist() if values is not None]
        sizes = {len(values) for values in lists}
        if len(sizes) != 1:
            raise DataError(
                f"the lists in {column.name!r} have {listed([str(size) for size in sorted(sizes)])} numbers."
            )
        numbers = np.full((len(array), sizes.pop()), np.nan)
        numbers[array.is_valid().to_numpy(zero_copy_only=False)] = np.vstack(lists)
    except (pa.ArrowInvalid, TypeError) as error:
        raise DataError(f"the column {column.name!r} cannot be read as numbers ({error}); is it a category?") from error
    return numbers


def _joined(
    entries: Sequence[_Entries], count: int, names: tuple[str, ...], columns: tuple[FeatureColumn, ...]
) -> Features:
    """Join the entries of all columns to one matrix of `count` rows."""
    place = {name: at for at, name in enumerate(names)}
    rows, indices, values = [], [], []
    for entry in entries:
        rows.append(entry.rows)
        indices.append(np.array([place[name] for name in entry.names], np.int64)[entry.codes])
        values.append(entry.values)
    row, index = np.concatenate(rows), np.concatenate(indices)
    order = np.lexsort((index, row))
    starts = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=count))]).astype(np.int64)
    ordered = np.concatenate(values)[order].astype(np.float32)
    return Features(starts, index[order].astype(np.int32), ordered, names, columns)
