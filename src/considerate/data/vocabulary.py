"""Vocabularies: the data's own ids beside the row numbers that the model uses.

An id is an integer or a string. Ids are kept sorted, so that the same data gives the same rows whatever the
order of its lines, and one id is found by bisection in a mapped file without building a dictionary.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from considerate.kernels.arrays import take_lists

Id = int | str
_CANONICAL = re.compile(r"0|-?[1-9][0-9]{0,18}")  # an integer of 64 bits the way Python prints it


def integer_id(value: object) -> int | None:
    """An id as an integer of 64 bits, also of a text that is one as Python prints it; else None."""
    if isinstance(value, str):
        value = int(value) if _CANONICAL.fullmatch(value) else None
    if not isinstance(value, int | np.integer) or isinstance(value, bool):
        return None
    return int(value) if -(2**63) <= int(value) < 2**63 else None


class Ids(Protocol):
    """Ids by row and rows by id, wherever they are kept; `Vocabulary` says what each does."""

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
    first: int = 0  # of a range

    @classmethod
    def range(cls, size: int, first: int = 0) -> Vocabulary:
        """Ids that are the row numbers themselves, or those from `first` on."""
        return cls("range", size, first=first)

    @classmethod
    def of_integers(cls, ids: NDArray[np.int64]) -> Vocabulary:
        """Ids from an ascending array of distinct integers."""
        return cls("integer", len(ids), integers=np.ascontiguousarray(ids, np.int64))

    @classmethod
    def of_bytes(cls, offsets: NDArray[np.int64], text: NDArray[np.uint8]) -> Vocabulary:
        """Ids from distinct UTF-8 strings laid end to end, ascending by their bytes."""
        return cls("string", len(offsets) - 1, offsets=offsets, text=text)

    @classmethod
    def of_strings(cls, ids: Iterable[str]) -> Vocabulary:
        """Ids from distinct strings in any order."""
        encoded = sorted(name.encode() for name in ids)
        offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(name) for name in encoded], out=offsets[1:])
        return cls.of_bytes(offsets, np.frombuffer(b"".join(encoded), np.uint8))

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
        """The row of an id, or -1. An integer as Python prints it finds an integer id: a shell gives text."""
        row = self.last_up_to(value)
        return row if row >= 0 and self.key_at(row) == self._key(value) else -1

    def last_up_to(self, value: object) -> int:
        """The row of the largest id that is not above this one, or -1; also -1 of what cannot be an id."""
        key = self._key(value)
        if key is None:
            return -1
        if self.integers is not None:
            return int(np.searchsorted(self.integers, np.int64(key), side="right")) - 1
        if isinstance(key, int):
            return max(-1, min(key - self.first, self.size - 1))
        return bisect_right(range(self.size), key, key=self._bytes) - 1

    def _key(self, value: object) -> int | bytes | None:
        """What ids are ordered by; None of what cannot be one."""
        if self.kind == "string":
            return str(value).encode(errors="surrogatepass")
        return integer_id(value)

    def key_at(self, row: int) -> int | bytes:
        """The id of one row in the form that ids are sorted by: an integer, or UTF-8."""
        if self.kind == "string":
            return self._bytes(row)
        return self.first + row if self.integers is None else int(self.integers[row])

    def rows_of(self, ids: Iterable[object]) -> NDArray[np.int64]:
        """The rows of several ids, -1 where unknown."""
        return np.array([self.row_of(value) for value in ids], np.int64)

    def take(self, rows: NDArray[np.int64]) -> Vocabulary:
        """The ids of some rows, which ascend; those of a range become integers."""
        if self.offsets is not None and self.text is not None:
            return Vocabulary.of_bytes(*take_lists(self.offsets, self.text, rows))
        return Vocabulary.of_integers(self.first + rows if self.integers is None else self.integers[rows])

    def tensors(self) -> dict[str, NDArray[Any]]:
        """The arrays that a file keeps; `from_tensors` is the way back."""
        arrays = {"integers": self.integers, "offsets": self.offsets, "text": self.text}
        return {name: array for name, array in arrays.items() if array is not None}

    @classmethod
    def from_tensors(cls, kind: str, size: int, tensors: Mapping[str, NDArray[Any]]) -> Vocabulary:
        """A vocabulary from what `tensors` gave."""
        return cls(kind, size, tensors.get("integers"), tensors.get("offsets"), tensors.get("text"))
