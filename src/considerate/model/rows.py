"""What callers name, checked: row numbers, ids, likes, lists of items."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency
from considerate.data.vocabulary import Vocabulary
from considerate.errors import UnknownIdError, UsageError

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
        return Adjacency.of_pairs(rows, items, matrix.shape[0], columns)
    if np.ndim(likes) > 1:
        raise UsageError(
            f"likes of several rows are a scipy sparse matrix, and an array of {np.ndim(likes)} dimensions was given."
        )
    return Adjacency.of_rows([np.unique(checked_rows(likes, columns, "item")).astype(np.int32)])


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
