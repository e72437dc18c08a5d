"""Large arrays, which begin at a cache line and whose memory is used again, and sums.

A sweep needs arrays as large as those of the sweep before it. Fresh memory for them would cost as much as a large part
of the arithmetic: the system clears each page at its first use, and a virtual machine may ask its host for it.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Iterable
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

LINE = 64  # bytes of a cache line; a row that is not aligned is in one more of them
LARGE = 1 << 20  # bytes; smaller arrays are not worth keeping


def empty(shape: tuple[int, ...], dtype: Any, spare: Spare | None = None) -> NDArray[Any]:
    """Make an array without filling it, in spare memory if there is some."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if spare is not None and size >= LARGE:
        return np.asarray(_Loan(spare, spare.find(size + LINE), shape, dtype))
    memory = np.empty(size + LINE, np.uint8)
    start = -memory.ctypes.data % LINE
    array: NDArray[Any] = memory[start : start + size].view(dtype).reshape(shape)
    return array


def add_in_order(values: Iterable[float]) -> float:
    """Add numbers from left to right. Python's sum() rounds in another way since 3.12, so bits would depend on it."""
    total = 0.0
    for value in values:
        total += value
    return total


def added(mine: NDArray[Any], other: NDArray[Any]) -> NDArray[Any]:
    """mine + other, in the memory of `mine` if that is writeable."""
    total: NDArray[Any] = np.add(mine, other, out=mine if mine.flags.writeable else None)
    return total


class Additive:
    """A dataclass of arrays, each a sum over some edges or rows."""

    def merge(self, other: Self) -> Self:
        """Add the sums of both."""
        return type(self)(*(mine + theirs for mine, theirs in zip(vars(self).values(), vars(other).values())))


def take_lists(
    starts: NDArray[np.int64], values: NDArray[Any], rows: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Select lists in the order of `rows`: (starts, values). List -1 is empty; consecutive lists are not copied.

    Lists are laid end to end: list i is values[starts[i] : starts[i + 1]].
    """
    if len(rows) > 0 and rows[0] >= 0 and (np.diff(rows) == 1).all():
        first, last = int(rows[0]), int(rows[-1]) + 1
        return starts[first : last + 1] - starts[first], values[starts[first] : starts[last]]
    known = np.flatnonzero(rows >= 0)
    begin, lengths = np.zeros((2, len(rows)), np.int64)
    begin[known] = starts[rows[known]]
    lengths[known] = starts[rows[known] + 1] - begin[known]
    ends = np.concatenate([[0], np.cumsum(lengths)])
    return ends, values[np.repeat(begin - ends[:-1], lengths) + np.arange(ends[-1])]


class Spare:
    """Memory of arrays that are no longer used, to be used again. Arrays may live longer than this, in any thread."""

    def __init__(self) -> None:
        self._memory: list[NDArray[np.uint8]] = []
        self._finding = threading.Lock()

    def find(self, size: int) -> NDArray[np.uint8]:
        """Find old memory of that many bytes or a few more, or make new memory."""
        with self._finding:  # meanwhile, more memory may be appended
            for i, memory in enumerate(self._memory):
                if size <= memory.nbytes <= 1.25 * size:
                    return self._memory.pop(i)
            self._memory.clear()  # otherwise it could grow beyond the memory in use
        return np.empty(size + size // 64, np.uint8)

    def take_back(self, memory: NDArray[np.uint8]) -> None:
        self._memory.append(memory)


class _Loan:
    """Base of an array, which gives its memory back when no view is left."""

    def __init__(self, spare: Spare, memory: NDArray[np.uint8], shape: tuple[int, ...], dtype: Any) -> None:
        self._spare, self._memory = weakref.ref(spare), memory
        address = memory.ctypes.data
        self.__array_interface__ = {
            "version": 3,
            "shape": shape,
            "typestr": np.dtype(dtype).str,
            "data": (address + -address % LINE, False),
        }

    def __del__(self) -> None:
        spare = self._spare()
        if spare is not None:
            spare.take_back(self._memory)
