"""Translation between the names that callers use and row numbers. It happens in this module alone.

Arguments and answers of a model have the ids of the data that it was fitted on. The ids of a matrix are its row
numbers, and with `by="row"` every model takes row numbers. All code below the methods of a recommender has row numbers.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency
from considerate.data.vocabulary import Id, Ids, Vocabulary, integer_id, merge_ids
from considerate.errors import ConsiderateError, UnknownIdError, UsageError

MOST = 10_000_000  # items in a list of recommendations
NO_IDS = (bool, float, complex, bytes, list, tuple, dict, np.ndarray, np.bool_, np.floating)
By = Literal["id", "row"]
Lists = tuple[NDArray[np.int32], NDArray[np.float32]]  # rows and scores [rows, N]; -1 and NaN end short rows


class HasArray(Protocol):
    """An array of NumPy or Arrow, or a series of pandas or polars."""

    def __array__(self, dtype: Any = ..., /) -> NDArray[Any]: ...


One = int | str | np.integer[Any]  # an id, or a row number
Several = list[int] | list[str] | list[int | str] | tuple[int | str, ...] | range | HasArray
IdArray = NDArray[np.int32] | NDArray[np.int64] | NDArray[np.object_]  # row numbers, integers, texts


class Ranked(NamedTuple):
    """Ranked ids and scores, best first: `ids, scores = ...`. For several users or items, one row each.

    A short row of several ends in the score NaN, and the id -1, or None if ids are texts.
    """

    ids: IdArray  # integers, or texts as objects; row numbers are int32
    scores: NDArray[np.float32]


@dataclass(frozen=True)
class Names:
    """Names of the users, or of the items, of a model: ids, or row numbers, which are the ids of a range."""

    what: str  # "user" or "item"
    ids: Any  # Ids, or a Vocabulary if new ids may come
    reason: str = "this model was fitted on a matrix; one fitted on a file or a table takes ids"  # of row numbers

    @classmethod
    def of(cls, what: str, count: int, ids: Ids | None, by: By = "id") -> Names:
        """Make names from the ids, or from row numbers. Ids are loaded lazily."""
        if by not in ("id", "row"):
            raise UsageError(f"by is {by!r}; it must be 'id', for the ids of the data, or 'row', for row numbers.")
        if by == "row" or ids is None:
            return cls(what, Vocabulary.range(count), "by='row' takes them; leave it out to give ids")
        return cls(what, Vocabulary.range(count) if ids.kind == "range" else ids)

    @property
    def are_rows(self) -> bool:
        return bool(self.ids.kind == "range")

    # --- Rows of names ---

    def rows(self, given: Any, *, unknown: bool = False) -> NDArray[np.int64]:
        """Row numbers of one name or several, in their shape. An unknown name raises an error, or with `unknown` gives
        -1."""
        values = self._values(given)
        if values.dtype == object:  # each distinct one is looked up once
            places: dict[Any, int] = {}
            inverse = np.array([places.setdefault(value, len(places)) for value in values.flat], np.int64)
            rows: NDArray[np.int64] = self.ids.rows_of(list(places))[inverse].reshape(values.shape)
        else:
            rows = self.ids.rows_of(values.reshape(-1)).reshape(values.shape)
        if not unknown and (rows < 0).any():
            raise self.refusal(values[rows < 0].flat[0])
        return rows

    def keys(self, given: Any) -> NDArray[np.int64]:
        """Number for each name, known or not, in their shape: its row, or a number made from its id."""
        values = self._values(given)
        if not self.are_rows:
            rows = self.rows(values, unknown=True)
            hashes = [zlib.crc32(str(value).encode()) for value in values[rows < 0]]
            rows[rows < 0] = np.array(hashes, np.int64) + 2**32
            return rows
        if values.dtype == object or (values < 0).any():
            raise self.refusal(next(value for value in values.flat if not isinstance(value, np.integer) or value < 0))
        return values

    def row(self, given: Any) -> int:
        """Row number of one name."""
        rows = self.rows(given)
        if rows.size != 1:
            raise UsageError(f"{rows.size} {self.what}s were given where one is asked for.")
        return int(rows.flat[0])

    def _values(self, given: Any) -> NDArray[Any]:
        """Array of 64-bit integers, or of objects that may be ids."""
        if isinstance(given, Iterable) and not isinstance(given, str | bytes) and not hasattr(given, "__array__"):
            given = np.array(list(given), object)  # by itself NumPy would make texts of 7 and 'ann'
        array = np.asarray(
            given, object if isinstance(given, str) else None
        )  # NumPy's own texts lose "\0" at their end
        if array.dtype.kind in "iu" and (array.dtype != np.uint64 or int(array.max(initial=0)) < 2**63):
            return array.astype(np.int64)
        if array.size == 0:
            return array.astype(np.int64)
        objects = array.astype(object)
        for value in objects.flat:
            if array.dtype.kind not in "iuUOT" or value is None or isinstance(value, NO_IDS):
                raise UsageError(self._wrong(value))
        if all(type(value) is int and -(2**63) <= value < 2**63 for value in objects.flat):
            return objects.astype(np.int64)
        return objects

    def _wrong(self, value: object) -> str:
        """Message for a value that is no id."""
        seen = f"{value!r} ({type(value).__name__})"
        if self.are_rows:
            numbers = f"row numbers here, 0 to {len(self.ids) - 1}"
            return f"{self.what}s are {numbers}, and {seen} was given: {self.reason}."
        return (
            f"{self.what}s are named by their ids, such as {self.ids.id_of(0)!r}, and {seen} was given; an id is an "
            "integer or a text, and by='row' takes row numbers."
        )

    def refusal(self, value: Any, advice: str = "") -> ConsiderateError:
        """Error for a name that is not in the model, or cannot be."""
        value = value.item() if isinstance(value, np.generic) else value
        if self.are_rows and integer_id(value) is None:
            return UsageError(self._wrong(value).removesuffix(".") + f"{advice}.")
        count = len(self.ids)
        if self.are_rows:
            return UnknownIdError(
                f"{self.what} {value} is not in the model, which has {self.what}s 0 to {count - 1}{advice}."
            )
        if isinstance(value, int) and 0 <= value < count:
            advice = f", and {value} is none of their ids but may be a row number: give by='row' for those" + advice
        return UnknownIdError(f"{self.what} {value!r} is not in the model, which knows {count} {self.what}s{advice}.")

    def likes(self, given: Any) -> Adjacency:
        """Likes from a scipy sparse matrix over the rows of these names, from a list of names for one row, or from a
        list of such lists."""
        count = len(self.ids)
        if hasattr(given, "tocsr"):
            matrix = (given.reshape(1, -1) if len(given.shape) == 1 else given).tocsr()
            if matrix.shape[1] > count or (matrix.shape[1] < count and not self.are_rows):
                order = "" if self.are_rows else f" {self.what}s, in the order of {self.what}_ids()"
                raise UsageError(f"the matrix has {matrix.shape[1]} columns and the model knows {count}{order}.")
            if not (matrix.data > 0).all():
                raise UsageError(
                    "the matrix stores values that are zero, negative or NaN; each stored value is one like."
                )
            rows, columns = matrix.nonzero()
            return Adjacency.of_pairs(rows, columns, matrix.shape[0], count)
        if isinstance(given, np.ndarray) and given.ndim > 1:
            raise UsageError(
                f"likes of several rows are a scipy sparse matrix or a list of lists, and an array of {given.ndim} "
                "dimensions was given."
            )
        several = isinstance(given, list | tuple) and len(given) > 0 and all(map(_is_list, given))
        lists = given if several else [given]
        return Adjacency.of_rows([np.unique(self.rows(entry)).astype(np.int32) for entry in lists])

    def excluded(self, allowed: Any, denied: Any) -> NDArray[np.bool_] | None:
        """Mask of the rows that are denied or not among the allowed; None if neither list is given."""
        if allowed is None and denied is None:
            return None
        excluded = np.full(len(self.ids), allowed is not None)
        if allowed is not None:
            excluded[self.rows(allowed)] = False
        if denied is not None:
            excluded[self.rows(denied)] = True
        return excluded

    # --- Names of rows ---

    def name(self, row: int) -> Id:
        """Name of one row."""
        name: Id = self.ids.id_of(int(row))
        return name

    def names(self, rows: NDArray[Any]) -> IdArray:
        """Names of rows, in their shape. -1 stays -1, or becomes None if ids are texts."""
        if self.are_rows:
            return rows
        filled = rows >= 0
        distinct, inverse = np.unique(rows[filled], return_inverse=True)
        ids = np.array(self.ids.ids_of(distinct), np.int64 if self.ids.kind == "integer" else object)
        named = np.full(rows.shape, -1 if self.ids.kind == "integer" else None, ids.dtype)
        named[filled] = ids[inverse]
        return named

    def at(self, rows: Any = None) -> IdArray:
        """Names of some rows, or of all."""
        by_row = Names.of(self.what, len(self.ids), None, "row")
        return self.names(np.arange(len(self.ids)) if rows is None else by_row.rows(rows))

    def ranked(self, lists: Lists) -> Ranked:
        """Ranked names and scores, from rows and scores."""
        return Ranked(self.names(lists[0]), lists[1])

    # --- New ids ---

    def grown(self, given: Any) -> Grown:
        """Rows of updated or added ids. Ids stay sorted, so new ids move the rows of others."""
        values, ids = np.atleast_1d(self._values(given)), self.ids
        kept: NDArray[Any] = np.arange(len(ids))
        if self.are_rows:
            ids = self._longer_range(values)
        elif new := {self._new_id(value) for value in values[self.rows(values, unknown=True) < 0].tolist()}:
            added = Vocabulary.of_integers(np.sort(list(new))) if ids.kind == "integer" else Vocabulary.of_strings(new)
            ids, (kept, _) = merge_ids([ids, added])
        rows = ids.rows_of(values.tolist())
        if len(np.unique(rows)) != len(rows):
            raise UsageError(f"{self.what}ids must be distinct {'row numbers' if self.are_rows else 'ids'}.")
        return Grown(ids, rows, kept)

    def _longer_range(self, values: NDArray[Any]) -> Vocabulary:
        if values.dtype == object or (values < 0).any():
            wrong = next(value for value in values.tolist() if integer_id(value) is None or int(value) < 0)
            raise UsageError(f"{self.what}ids must be distinct row numbers, 0 or larger, and {wrong!r} was given.")
        count = len(self.ids)
        size = max(count, int(values.max(initial=-1)) + 1)
        if size > count + len(values):
            raise UsageError(
                f"{self.what}ids would leave rows between {count} and {size - 1} without likes; add them in order."
            )
        return Vocabulary.range(size)

    def _new_id(self, value: Any) -> Any:
        """A new id in the form of the others."""
        if self.ids.kind == "integer" and integer_id(value) is None:
            raise UsageError(f"{self.what} {value!r} cannot be added: the ids of this model are integers of 64 bits.")
        if self.ids.kind == "string" and isinstance(value, int):
            raise UsageError(
                f"{self.what} {value} is not in the model, whose ids are texts; give {str(value)!r} to add it, or "
                "by='row' for row numbers."
            )
        if self.ids.kind == "string" and not str(value).strip():
            raise UsageError(f"{self.what} {value!r} cannot be added: an id has a letter that is not white space.")
        return str(value).strip() if self.ids.kind == "string" else integer_id(value)  # as the reader has them


class Grown(NamedTuple):
    """Ids with new ones merged, rows that are updated or added, and new places of the old rows."""

    ids: Vocabulary
    rows: NDArray[np.int64]
    kept: NDArray[Any]

    def spread(self, old: NDArray[Any], new: NDArray[Any]) -> NDArray[Any]:
        """Merge one number for each old row with one for each updated or added row."""
        values = self.moved(old)
        values[self.rows] = new
        return values

    def moved(self, old: NDArray[Any], fill: float = 0) -> NDArray[Any]:
        """Move one number for each old row to the row's new place; `fill` for the others."""
        values = np.full(len(self.ids), fill, old.dtype)
        values[self.kept] = old
        return values

    @property
    def before(self) -> NDArray[np.int64]:
        """Old row of each row; -1 for a new one."""
        places = np.full(len(self.ids), -1, np.int64)
        places[self.kept] = np.arange(len(self.kept))
        return places

    @property
    def sources(self) -> NDArray[np.int64]:
        """Source of each row: its old row, or the place of the new one, counted from the end of the old rows."""
        places = self.before
        places[self.rows] = len(self.kept) + np.arange(len(self.rows))
        return places


def _is_list(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes) and getattr(value, "ndim", 1) == 1


def id_list(ids: Any, what: str) -> list[Any]:
    """One id or several, of any kind of sequence, as a list."""
    several = ids.to_pylist() if hasattr(ids, "to_pylist") else ids  # Arrow's arrays
    if isinstance(several, str | int | np.integer):
        return [several]
    if not isinstance(several, Iterable) or any(map(_is_list, values := list(several))):
        raise UsageError(f"{what} is {ids!r}; give an id or a list of ids.")
    return values


def check_count(count: Any, name: str = "N") -> int:
    """A number of items of a list, or UsageError."""
    if not isinstance(count, int | np.integer) or isinstance(count, bool) or not 1 <= count <= MOST:
        raise UsageError(f"{name} is {count!r}; it must be a whole number from 1 to {MOST}.")
    return int(count)
