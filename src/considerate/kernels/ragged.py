"""Lists laid end to end: list i of `values` is values[starts[i] : starts[i + 1]]."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def take_lists(
    starts: NDArray[np.int64], values: NDArray[Any], rows: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """(starts, values) of some of the lists, in the order of `rows`; list -1 is empty. Neighbours are not copied."""
    if is_run(rows):
        first, last = int(rows[0]), int(rows[-1]) + 1
        return starts[first : last + 1] - starts[first], values[starts[first] : starts[last]]
    known = np.flatnonzero(rows >= 0)
    begin, lengths = np.zeros((2, len(rows)), np.int64)
    begin[known] = starts[rows[known]]
    lengths[known] = starts[rows[known] + 1] - begin[known]
    ends = np.concatenate([[0], np.cumsum(lengths)])
    return ends, values[np.repeat(begin - ends[:-1], lengths) + np.arange(ends[-1])]


def is_run(rows: NDArray[np.int64]) -> bool:
    """Whether these are row numbers one after the other."""
    return len(rows) > 0 and rows[0] >= 0 and bool((np.diff(rows) == 1).all())
