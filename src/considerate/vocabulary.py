"""Vocabularies: the data's own ids beside the row numbers that the model uses.

An id is an integer or a string. Ids are kept sorted, so that the same data gives the same rows whatever the
order of its lines, and one id is found by bisection in a mapped file without building a dictionary.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Id = int | str
_CANONICAL = re.compile(r"0|-?[1-9][0-9]{0,18}")  # an integer of 64 bits the way Python prints it


@dataclass(frozen=True)
class Vocabulary:
    """Row number -> id, in one of three forms: a range, sorted integers, or sorted UTF-8 strings."""

    kind: str  # "range", "integer" or "string"
    size: int
    integers: NDArray[np.int64] | None = None  # [size], ascending
    offsets: NDArray[np.int64] | None = None  # [size + 1]
    text: NDArray[np.uint8] | None = None  # [offsets[-1]], ascending by bytes

    @classmethod
    def range(cls, size: int) -> Vocabulary:
        """Ids that are the row numbers themselves."""
        return cls("range", size)

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
        encoded = sorted(one.encode() for one in ids)
        offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(one) for one in encoded], out=offsets[1:])
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
        if self.kind == "integer":
            assert self.integers is not None
            return int(self.integers[row])
        return self._bytes(row).decode() if self.kind == "string" else row

    def ids_of(self, rows: Sequence[int] | NDArray[Any]) -> list[Id]:
        """The ids of several rows."""
        return [self.id_of(int(row)) for row in rows]

    def row_of(self, one: object) -> int:
        """The row of an id, or -1. An integer as Python prints it finds an integer id: a shell gives text."""
        if self.kind == "string":
            return self._row_of_text(str(one))
        if isinstance(one, str):
            if not _CANONICAL.fullmatch(one):
                return -1
            one = int(one)
        if not isinstance(one, int | np.integer) or isinstance(one, bool):
            return -1
        number = int(one)
        if self.kind == "range":
            return number if 0 <= number < self.size else -1
        assert self.integers is not None
        if not -(2**63) <= number < 2**63:
            return -1
        row = int(np.searchsorted(self.integers, np.int64(number)))
        return row if row < self.size and int(self.integers[row]) == number else -1

    def _row_of_text(self, one: str) -> int:
        wanted, low, high = one.encode(errors="surrogatepass"), 0, self.size
        while low < high:
            middle = (low + high) // 2
            if self._bytes(middle) < wanted:
                low = middle + 1
            else:
                high = middle
        return low if low < self.size and self._bytes(low) == wanted else -1

    def rows_of(self, ids: Iterable[object]) -> NDArray[np.int64]:
        """The rows of several ids, -1 where unknown."""
        return np.array([self.row_of(one) for one in ids], np.int64)

    def tensors(self) -> dict[str, NDArray[Any]]:
        """The arrays that a file keeps; `from_tensors` is the way back."""
        if self.kind == "integer":
            assert self.integers is not None
            return {"integers": self.integers}
        if self.kind == "string":
            assert self.offsets is not None
            assert self.text is not None
            return {"offsets": self.offsets, "text": self.text}
        return {}

    @classmethod
    def from_tensors(cls, kind: str, size: int, tensors: Mapping[str, NDArray[Any]]) -> Vocabulary:
        """A vocabulary from what `tensors` gave."""
        if kind == "integer":
            return cls("integer", size, integers=tensors["integers"])
        if kind == "string":
            return cls("string", size, offsets=tensors["offsets"], text=tensors["text"])
        return cls.range(size)
