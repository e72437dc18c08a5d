"""The items that any setting of the knobs can bring into the first n of a list.

A score is linear in the knobs, so inside a box of settings it lies between its values at the corners. An item whose
largest corner is below the n-th largest of all items' smallest corners cannot be among the first n anywhere in the box.
The box is cut into smaller ones, and the items that are left are looked at again in each: what remains in any of them
contains all that can be reached, and little else.
"""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
from numpy.typing import NDArray

DEPTH = 4  # each range is halved so many times
Floats = NDArray[np.float64]


def reachable(
    base: Floats, terms: list[Floats], ranges: list[tuple[float, float]], count: int, depth: int = DEPTH
) -> NDArray[np.int64]:
    """Items whose score base + sum of w_i terms[i] may be among the `count` largest, w_i in ranges[i]; ascending."""
    reached = np.zeros(len(base), bool)
    _mark(reached, np.arange(len(base)), base, terms, ranges, count, depth)
    return np.flatnonzero(reached)


def _mark(
    reached: NDArray[np.bool_],
    items: NDArray[np.int64],
    base: Floats,
    terms: list[Floats],
    ranges: list[tuple[float, float]],
    count: int,
    depth: int,
) -> None:
    low, high = base[items].copy(), base[items].copy()
    for term, (first, last) in zip(terms, ranges):
        ends = first * term[items], last * term[items]
        low, high = low + np.minimum(*ends), high + np.maximum(*ends)
    if len(items) > count:
        least = np.partition(low, len(low) - count)[len(low) - count]
        items = items[high >= least]
    wide = [first < last for first, last in ranges]
    if depth == 0 or len(items) <= count or not any(wide):
        reached[items] = True
        return
    halves = [list(pairwise((a, (a + b) / 2, b))) if cut else [(a, b)] for (a, b), cut in zip(ranges, wide)]
    for part in product(*halves):
        _mark(reached, items, base, terms, list(part), count, depth - 1)
