"""The items that some setting of the knobs can bring into the first n of a list.

A score is linear in the knobs. Inside a box of settings it therefore lies between its values at the corners. Find the
n-th largest of all items' smallest corner values: an item whose largest corner value is below it cannot be among the
first n anywhere in the box. The other items are candidates. Each box is cut into smaller ones, and its candidates are
checked again in each. The candidates of the smallest boxes contain all reachable items and few others.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

DEPTH = 4  # number of times that each range is halved
Floats = NDArray[np.float64]
Range = tuple[float, float]


def reachable(
    base: Floats, terms: list[Floats], ranges: Sequence[Range], count: int, depth: int = DEPTH
) -> NDArray[np.int64]:
    """Find the items whose score base + sum of w_i terms[i] may be among the `count` largest for some w_i in ranges[i].

    The items are row numbers, ascending.
    """
    reached = np.zeros(len(base), bool)
    boxes: list[tuple[NDArray[np.int64], Sequence[Range], int]] = [(np.arange(len(base)), ranges, depth)]
    while boxes:
        items, box, depth = boxes.pop()
        low, high = score_bounds(base[items], [term[items] for term in terms], box)
        if len(items) > count:
            items = items[high >= np.partition(low, len(low) - count)[len(low) - count]]
        if depth == 0 or len(items) <= count or all(first == last for first, last in box):
            reached[items] = True
        else:
            boxes += [(items, part, depth - 1) for part in product(*map(halves, box))]
    return np.flatnonzero(reached)


def score_bounds(base: Floats, terms: list[Floats], box: Sequence[Range]) -> tuple[Floats, Floats]:
    """Return the (smallest, largest) score of each item in a box of weights."""
    low, high = base.copy(), base.copy()
    for term, (first, last) in zip(terms, box):
        ends = first * term, last * term
        low, high = low + np.minimum(*ends), high + np.maximum(*ends)
    return low, high


def halves(interval: Range) -> list[Range]:
    """Cut a range into two halves, or return it whole if it is a single point."""
    first, last = interval
    middle = (first + last) / 2
    return [(first, middle), (middle, last)] if first < last else [interval]
