"""Vocabularies: the ids of the data by the row numbers that the model uses.

An id is an integer or a string. Ids are sorted, so the same data has the same rows whatever the order of its lines, and
an id is found by bisection in a mapped file without a dictionary. Titles have the same layout as strings.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from considerate.kernels.arrays import take_lists

Id = int | str
MOST_ROWS = 2**31 - 1
_CANONICAL = re.compile(r"0|-?[1-9][0-9]{0,18}")  # an integer of 64 bits the way Python prints it


def integer_id(value: object) -> int | None:
    """An id as an integer of 64 bits, or None; a text is one if Python would print the integer so."""
    if isinstance(value, str):
        value = int(value) if _CANONICAL.fullmatch(value) else None
    if not isinstance(value, int | np.integer) or isinstance(value, bool):
        return None
    return int(value) if -(2**63) <= int(value) < 2**63 else None


class Ids(Protocol):
    """Ids by row and rows by id, wherever they are stored; the methods are those of `Vocabulary`."""

    @property
    def kind(self) -> str: ...
    def __len__(self) -> int: ...
    def id_of(self, row: int) -> Id: ...
    def ids_of(self, rows: Sequence[int] | NDArray[Any]) -> list[Id]: ...
    def row_of(self, value: object) -> int: ...
    def rows_of(self, ids: Iterable[object]) -> NDArray[np.int64]: ...


@dataclass(frozen=True)
class Vocabulary:
    """Row number -> id, in one of three forms: a range, sorted integers, or sorted UTF-8 strings."""

    kind: str  # "range", "integer" or "string"
    size: int
    integers: NDArray[np.int64] | None = None  # [size], ascending
    offsets: NDArray[np.int64] | None = None  # [size + 1]
    text: NDArray[np.uint8] | None = None  # [offsets[-1]], ascending by bytes
    first: int = 0  # first id of a range

    @classmethod
    def range(cls, size: int, first: int = 0) -> Vocabulary:
        """Make ids of the row numbers themselves, or of numbers from `first` on."""
        return cls("range", size, first=first)

    @classmethod
    def of_integers(cls, ids: NDArray[np.int64]) -> Vocabulary:
        """Make ids of an ascending array of distinct integers."""
        return cls("integer", len(ids), integers=np.ascontiguousarray(ids, np.int64))

    @classmethod
    def of_bytes(cls, offsets: NDArray[np.int64], text: NDArray[np.uint8]) -> Vocabulary:
        """Make ids of distinct UTF-8 strings laid end to end, ascending by their bytes."""
        return cls("string", len(offsets) - 1, offsets=offsets, text=text)

    @classmethod
    def of_strings(cls, ids: Iterable[str]) -> Vocabulary:
        """Make ids of distinct strings in any order."""
        return cls.of_bytes(*_end_to_end(sorted(name.encode() for name in ids)))

    def __len__(self) -> int:
        return self.size

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_view"}  # a view does not pickle

    @cached_property
    def _view(self) -> memoryview:
        return np.ascontiguousarray(self.text).data if self.text is not None else memoryview(b"")

    def _bytes(self, row: int) -> bytes:
        assert self.offsets is not None
        return bytes(self._view[int(self.offsets[row]) : int(self.offsets[row + 1])])

    def id_of(self, row: int) -> Id:
        """The id of one row."""
        if not 0 <= row < self.size:
            raise IndexError(f"row {row} of a vocabulary of {self.size}")
        key = self.key_at(row)
        return key.decode() if isinstance(key, bytes) else key

    def ids_of(self, rows: Sequence[int] | NDArray[Any]) -> list[Id]:
        """The ids of several rows."""
        return [self.id_of(int(row)) for row in rows]

    def row_of(self, value: object) -> int:
        """The row of an id, or -1.

        A text finds an integer id that Python prints so, as ids from a shell are text. White space around a text is
        removed if it is not found, as the reader removes it.
        """
        row = self.last_up_to(value)
        if row >= 0 and self.key_at(row) == self._key(value):
            return row
        trimmed = value.strip() if self.kind == "string" and isinstance(value, str) else value
        return -1 if trimmed == value else self.row_of(trimmed)

    def last_up_to(self, value: object) -> int:
        """The row of the largest id that is not above this one, or -1; also -1 for a value that cannot be an id."""
        key = self._key(value)
        if key is None:
            return -1
        if self.integers is not None:
            return int(np.searchsorted(self.integers, np.int64(key), side="right")) - 1
        if isinstance(key, int):
            return max(-1, min(key - self.first, self.size - 1))
        return bisect_right(range(self.size), key, key=self._bytes) - 1

    def _key(self, value: object) -> int | bytes | None:
        """The sort key of an id; None for a value that cannot be an id."""
        if self.kind == "string":
            return str(value).encode(errors="surrogatepass")
        return integer_id(value)

    def key_at(self, row: int) -> int | bytes:
        """The sort key of a row's id: an integer, or UTF-8."""
        if self.kind == "string":
            return self._bytes(row)
        return self.first + row if self.integers is None else int(self.integers[row])

    def rows_of(self, ids: Iterable[object]) -> NDArray[np.int64]:
        """The rows of several ids, -1 if unknown."""
        if isinstance(ids, np.ndarray) and ids.dtype == np.int64 and self.kind != "string":
            if self.integers is None:
                return np.where((ids >= self.first) & (ids < self.first + self.size), ids - self.first, -1)
            rows = np.searchsorted(self.integers, ids, side="right") - 1
            return np.where((rows >= 0) & (self.integers[rows] == ids), rows, -1) if self.size else rows
        return np.array([self.row_of(value) for value in ids], np.int64)

    def take(self, rows: NDArray[np.int64]) -> Vocabulary:
        """Select the ids of ascending rows; a range becomes integers."""
        if self.offsets is not None and self.text is not None:
            return Vocabulary.of_bytes(*take_lists(self.offsets, self.text, rows))
        return Vocabulary.of_integers(self.first + rows if self.integers is None else self.integers[rows])

    def tensors(self) -> dict[str, NDArray[Any]]:
        """The arrays to store in a file."""
        arrays = {"integers": self.integers, "offsets": self.offsets, "text": self.text}
        return {name: array for name, array in arrays.items() if array is not None}


def _end_to_end(texts: Sequence[bytes]) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    offsets = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    return offsets, np.frombuffer(b"".join(texts), np.uint8)


@dataclass(frozen=True)
class Titles:
    """Row number -> title; an empty text is a missing title."""

    offsets: NDArray[np.int64]  # [items + 1]
    text: NDArray[np.uint8]  # [offsets[-1]], UTF-8

    @classmethod
    def of_strings(cls, titles: Sequence[str | None]) -> Titles:
        """Make titles of Python strings."""
        return cls(*_end_to_end([(title or "").encode() for title in titles]))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def of(self, row: int) -> str | None:
        """The title of one item, None if it is missing."""
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of {len(self)} titles")
        return self.text[int(self.offsets[row]) : int(self.offsets[row + 1])].tobytes().decode() or None

    def tensors(self) -> dict[str, NDArray[Any]]:
        """The arrays to store in a file."""
        return {"offsets": self.offsets, "text": self.text}


def plain_text(text: str) -> str:
    """Remove case, accents and punctuation of a text, and put a space before each word."""
    letters = (letter for letter in unicodedata.normalize("NFKD", text) if not unicodedata.combining(letter))
    return "".join(f" {word}" for word in "".join(c if c.isalnum() else " " for c in letters).casefold().split())


# --- Vocabularies cut, joined, merged and searched ---


def slice_ids(ids: Vocabulary, first: int, last: int) -> Vocabulary:
    """Copy rows first .. last - 1 to a vocabulary of their own; the whole is returned as it is."""
    if (first, last) == (0, len(ids)):
        return ids
    if ids.kind == "range":
        return Vocabulary.range(last - first, ids.first + first)
    some = ids.take(np.arange(first, last))
    return some if some.text is None else replace(some, text=some.text.copy())


def join_ids(vocabularies: Sequence[Vocabulary]) -> Vocabulary:
    """Concatenate vocabularies, each with ids above all ids of the one before it."""
    full = [ids for ids in vocabularies if len(ids)] or list(vocabularies[:1])
    if len(full) == 1:
        return full[0]
    if full[0].kind == "integer":
        return Vocabulary.of_integers(np.concatenate([ids.integers for ids in full if ids.integers is not None]))
    offsets, texts, end = [np.zeros(1, np.int64)], [], 0
    for ids in full:
        assert ids.offsets is not None
        assert ids.text is not None
        offsets.append(ids.offsets[1:] + end)
        texts.append(ids.text)
        end += int(ids.offsets[-1])
    return Vocabulary.of_bytes(np.concatenate(offsets), np.concatenate(texts))


def merge_ids(vocabularies: Sequence[Vocabulary]) -> tuple[Vocabulary, list[NDArray[np.int32]]]:
    """Merge vocabularies: (all ids, the new rows of the ids of each vocabulary)."""
    full = [ids for ids in vocabularies if len(ids)]
    if not full:
        return vocabularies[0], [np.empty(0, np.int32) for _ in vocabularies]
    if full[0].kind == "integer":
        integers, rows = rank_integers([ids.integers for ids in full if ids.integers is not None])
        merged = Vocabulary.of_integers(integers)
    else:
        dictionary, codes = distinct([string_array(ids) for ids in full])
        merged, rank = sort_strings(dictionary)
        rows = rank[codes]
    return merged, np.split(rows, np.cumsum([len(ids) for ids in vocabularies])[:-1])


def string_array(texts: Vocabulary | Titles) -> Any:
    """Make an Arrow array of strings laid end to end, without copying."""
    import pyarrow as pa

    assert texts.offsets is not None
    assert texts.text is not None
    offsets, text = np.ascontiguousarray(texts.offsets), np.ascontiguousarray(texts.text)
    return pa.LargeStringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(text))


def id_array(ids: Vocabulary, rows: NDArray[Any]) -> Any:
    """Make an Arrow array of the ids of rows."""
    import pyarrow as pa

    if ids.kind == "string":
        return string_array(ids).take(pa.array(rows)).cast(pa.string())
    return pa.array(ids.first + np.asarray(rows, np.int64) if ids.integers is None else ids.integers[rows])


def find_rows(ids: Vocabulary, among: Vocabulary) -> NDArray[np.int32]:
    """Find the rows of ids in a vocabulary that has all of them."""
    if ids.integers is not None and among.integers is not None:
        return np.searchsorted(among.integers, ids.integers).astype(np.int32)
    if not len(ids):
        return np.empty(0, np.int32)
    import pyarrow.compute as pc

    rows: NDArray[np.int32] = pc.index_in(string_array(ids), string_array(among)).to_numpy(zero_copy_only=False)
    return rows


def match_rows(ids: Ids, among: Ids) -> NDArray[np.int64]:
    """Find the row of each id in another vocabulary, -1 if it is missing. '7' and 7 are the same."""
    if isinstance(ids, Vocabulary) and isinstance(among, Vocabulary) and len(among):
        if "string" not in (ids.kind, among.kind):
            return among.rows_of(ids.first + np.arange(len(ids)) if ids.integers is None else ids.integers)
        if ids.kind == among.kind and len(ids):
            import pyarrow.compute as pc

            found = pc.fill_null(pc.index_in(string_array(ids), string_array(among)), -1)
            return np.asarray(found.to_numpy(zero_copy_only=False), np.int64)
    return among.rows_of(ids.ids_of(range(len(ids))))


def union_ids(vocabularies: Sequence[Vocabulary]) -> Vocabulary:
    """Merge the ids of several vocabularies; they become texts if one of them has texts."""
    if all(ids.kind == "range" and ids.first == 0 for ids in vocabularies):
        return Vocabulary.range(max(map(len, vocabularies)))
    texts = any(ids.kind == "string" for ids in vocabularies)
    return merge_ids([_as_texts(ids) if texts else ids.take(np.arange(len(ids))) for ids in vocabularies])[0]


def _as_texts(ids: Vocabulary) -> Vocabulary:
    return ids if ids.kind == "string" else Vocabulary.of_strings(str(own) for own in ids.ids_of(range(len(ids))))


# --- Distinct values and their ranks ---


def string_bytes(strings: Any) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """(offsets, bytes) of an Arrow large_string array that begins at the start of its buffers."""
    _, offsets, text = strings.buffers()
    starts = np.frombuffer(offsets, np.int64, len(strings) + 1) if len(strings) else np.zeros(1, np.int64)
    return starts, np.frombuffer(text or b"", np.uint8, int(starts[-1]))


def sort_strings(strings: Any) -> tuple[Vocabulary, NDArray[np.int32]]:
    """Sort distinct strings, an Arrow large_string array: (vocabulary, row of each string)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    order = pc.sort_indices(strings).to_numpy()
    return Vocabulary.of_bytes(*string_bytes(strings.take(pa.array(order)))), inverse(order)


def distinct(chunks: list[Any]) -> tuple[Any, NDArray[np.int32]]:
    """(distinct values of arrays, index of every value among them). Dictionaries are not decoded."""
    import pyarrow as pa

    if pa.types.is_dictionary(chunks[0].type):
        values, codes = distinct([chunk.dictionary for chunk in chunks])
        parts = np.split(codes, np.cumsum([len(chunk.dictionary) for chunk in chunks])[:-1])
        codes = np.concatenate([part[chunk.indices.to_numpy()] for part, chunk in zip(parts, chunks)])
        used = np.zeros(len(values), bool)
        used[codes] = True
        return values.filter(pa.array(used)), (np.cumsum(used, dtype=np.int32) - np.int32(1))[codes]
    encoded = pa.chunked_array(chunks).dictionary_encode().chunks
    if not encoded:  # there were empty arrays only
        return chunks[0], np.empty(0, np.int32)
    codes = np.concatenate([chunk.indices.to_numpy(zero_copy_only=False) for chunk in encoded])
    return encoded[-1].dictionary, codes


def rank_integers(arrays: list[NDArray[Any]]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """(distinct integers of arrays, ascending; row of each integer among them). Empties the list."""
    low = min((int(array.min()) for array in arrays if len(array)), default=0)
    high = max((int(array.max()) for array in arrays if len(array)), default=-1)
    if high - low < 4 * sum(map(len, arrays)) + 65_536:  # they are dense: look them up in a table
        seen = np.zeros(high - low + 1, bool)
        for array in arrays:
            seen[array.astype(np.int64) - low] = True
        rank = np.cumsum(seen, dtype=np.int32) - np.int32(1)
        return np.flatnonzero(seen) + low, look_up([rank] * len(arrays), arrays, low)
    import pyarrow as pa

    dictionary, codes = distinct([pa.array(array.astype(np.int64, copy=False)) for array in arrays])
    arrays.clear()
    integers = dictionary.to_numpy()
    order = np.argsort(integers)
    return integers[order], inverse(order)[codes]


def look_up(tables: list[NDArray[np.int32]], parts: list[NDArray[Any]], low: int = 0) -> NDArray[np.int32]:
    """Look up the values of each part, less `low`, in its table. Empties the list, to free the parts one by one."""
    out = np.empty(sum(map(len, parts)), np.int32)
    start = 0
    for table in tables:
        part = parts.pop(0)
        np.take(table, part.astype(np.int64) - low if low else part, out=out[start : start + len(part)])
        start += len(part)
    return out


def inverse(order: NDArray[Any]) -> NDArray[np.int32]:
    """The inverse of a permutation."""
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    return rank
