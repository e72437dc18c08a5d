"""Rows in, checked: row numbers, likes of some users, and sides with rows replaced or added."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency
from considerate.data.vocabulary import Vocabulary
from considerate.errors import UnknownIdError, UsageError
from considerate.inference.posterior import Side

MOST = 10_000_000  # items in a list of recommendations
Lists = tuple[NDArray[np.int32], NDArray[np.float32]]  # ids and scores [rows, N]; -1 and NaN end short rows


def likes_adjacency(likes: Any, columns: int) -> Adjacency:
    """Rows of likes from a scipy sparse matrix, or one row from a list of indices."""
    if hasattr(likes, "tocsr"):
        matrix = (likes.reshape(1, -1) if len(likes.shape) == 1 else likes).tocsr()
        if matrix.shape[1] > columns:
            raise UsageError(f"the matrix has {matrix.shape[1]} columns and the model knows {columns}.")
        if not (matrix.data > 0).all():
            raise UsageError("the matrix stores values that are zero, negative or NaN; each stored value is one like.")
        rows, items = matrix.nonzero()
        starts = np.zeros(matrix.shape[0] + 1, np.int64)
        unique = np.unique(rows.astype(np.int64) * columns + items)
        np.cumsum(np.bincount(unique // columns, minlength=matrix.shape[0]), out=starts[1:])
        return Adjacency(starts, (unique % columns).astype(np.int32))
    if np.ndim(likes) > 1:
        raise UsageError(
            f"likes of several rows are a scipy sparse matrix, and an array of {np.ndim(likes)} dimensions was given."
        )
    row = np.unique(checked_rows(likes, columns, "item").reshape(-1))
    return Adjacency(np.array([0, len(row)], np.int64), row.astype(np.int32))


def id_list(ids: Any, what: str) -> list[Any]:
    """One id or several, of any kind of sequence, as a list."""
    several = ids.to_pylist() if hasattr(ids, "to_pylist") else ids  # Arrow's arrays
    if isinstance(several, str | int | np.integer):
        return [several]
    try:
        return list(several)
    except TypeError:
        raise UsageError(f"{what} is {ids!r}; give an id or a list of ids.") from None


def row_numbers(rows: Any, what: str) -> NDArray[np.int64]:
    """Whole numbers, in whatever they come."""
    array = np.asarray(rows)
    if array.size and (array.dtype.kind not in "iu"):
        raise UsageError(
            f"{what}s are row numbers here, and {array.dtype} was given; recommend_table takes the data's own ids."
        )
    return array.astype(np.int64)


def checked_rows(rows: Any, count: int, what: str) -> NDArray[np.int64]:
    """Row numbers that the model has."""
    array = row_numbers(rows, what)
    if array.size and (array.min() < 0 or array.max() >= count):
        wrong = int(array[(array < 0) | (array >= count)].flat[0])
        raise UnknownIdError(f"{what} {wrong} is not in the model, which has {what}s 0 to {count - 1}.")
    return array


def check_count(count: Any) -> int:
    """N, if it is a possible length of a list."""
    if not isinstance(count, int | np.integer) or isinstance(count, bool) or not 1 <= count <= MOST:
        raise UsageError(f"N is {count!r}; it must be a whole number from 1 to {MOST}.")
    return int(count)


def item_rows(item_ids: Vocabulary, ids: Any) -> NDArray[np.int64]:
    """Row numbers of items by the data's own ids."""
    ids = id_list(ids, "items")
    rows = item_ids.rows_of(ids)
    if (rows < 0).any():
        unknown = ids[int(np.flatnonzero(rows < 0)[0])]
        raise UnknownIdError(f"item {unknown!r} is not in the model, which knows {len(item_ids)} items.")
    return rows


def excluded_rows(count: int, allowed: Any, denied: Any, what: str) -> NDArray[np.bool_] | None:
    """[count] whether a row is not among the allowed or is denied; None if neither list is given."""
    if allowed is None and denied is None:
        return None
    excluded = np.full(count, allowed is not None)
    if allowed is not None:
        excluded[checked_rows(allowed, count, what)] = False
    if denied is not None:
        excluded[checked_rows(denied, count, what)] = True
    return excluded


def merged_side(side: Side, rows: NDArray[np.int64], new: Side, what: str, given: int) -> Side:
    if len(rows) != given:
        raise UsageError(f"{what} has {len(rows)} entries for {given} rows of likes; give one row for each.")
    if len(np.unique(rows)) != len(rows) or (rows < 0).any():
        raise UsageError(f"{what} must be distinct row numbers, 0 or larger.")
    size = max(len(side), int(rows.max(initial=-1)) + 1)
    if size > len(side) + len(rows):
        raise UsageError(
            f"{what} would leave rows between {len(side)} and {size - 1} without likes; add them in order."
        )
    merged = np.zeros((size, side.rows.shape[1]), np.float32)
    merged[: len(side)] = side.rows
    merged[rows] = new.rows
    if side.bias_mean is None or side.bias_variance is None or new.bias_mean is None or new.bias_variance is None:
        return Side(side.factors, merged)
    bias = np.zeros((2, size), np.float32)
    bias[:, : len(side)] = side.bias_mean, side.bias_variance
    bias[:, rows] = new.bias_mean, new.bias_variance
    return Side(side.factors, merged, bias[0].copy(), bias[1].copy())


def grown_ids(ids: Vocabulary, size: int, what: str) -> Vocabulary:
    if size == len(ids):
        return ids
    if ids.kind != "range":
        raise UsageError(
            f"new {what}s cannot be added by row number to a model whose {what}s have ids of their own; fit again."
        )
    return Vocabulary.range(size)
