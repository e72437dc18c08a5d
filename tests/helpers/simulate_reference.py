"""The kernels of the simulation, written to be read: `src/core/simulate.hpp` gives the same bits.

Randomness is a function of (seed, stream, index).
Loops are plain Python: for tests and small graphs only.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tests.helpers.naive_draws import SplitMix64, key64

Ints = NDArray[np.int32]
Floats = NDArray[np.float64]

EQUALISE, JOIN, CONSIDER = 101, 102, 103  # streams of key64


def _inverse_cdf(cumulative: Floats, u: float) -> int:
    return min(int(np.searchsorted(cumulative, u * cumulative[-1], side="right")), len(cumulative) - 1)


def equalise_degrees(
    user_degrees: Ints,  # [M]
    item_degrees: Ints,  # [N]
    user_cdf: Floats,  # of the degrees user_minimum, user_minimum + 1, ...
    user_minimum: int,
    item_cdf: Floats,
    item_minimum: int,
    seed: int,
    attempt: int,
    free: int,
    homing: int,
) -> tuple[Ints, Ints, int, int]:
    """New degrees whose sums agree, the redraws made, and the gap (0 unless the redraws ran out).

    The paper's scheme for `free` redraws: one random user and one random item get new degrees. After that
    only redraws that do not widen the gap between the sums are kept, for at most `homing` more.
    """
    users, items = user_degrees.copy(), item_degrees.copy()
    random = SplitMix64(key64(seed, EQUALISE, attempt))
    gap = int(users.sum(dtype=np.int64)) - int(items.sum(dtype=np.int64))
    redraws = 0
    while gap != 0 and redraws < free + homing:
        m, n = random.below(len(users)), random.below(len(items))
        d_m = user_minimum + _inverse_cdf(user_cdf, random.uniform())
        d_n = item_minimum + _inverse_cdf(item_cdf, random.uniform())
        new = gap + (d_m - int(users[m])) - (d_n - int(items[n]))
        if redraws < free or abs(new) <= abs(gap):
            users[m], items[n], gap = d_m, d_n, new
        redraws += 1
    return users, items, redraws, gap


def join_half_edges(user_degrees: Ints, item_degrees: Ints, seed: int, attempt: int) -> tuple[Ints, Ints, int, bool]:
    """Edges (users, items) with these degrees, sorted, none twice; the swaps made; whether it was built.

    Half-edges are shuffled and joined, then each double edge is swapped with a uniformly drawn other edge,
    where that makes no new double. If more than a tenth of the edges are doubles, or tries run out, the graph
    is built as in the proof of Gale and Ryser's theorem and mixed with 10 M curveball trades.
    """
    random = SplitMix64(key64(seed, JOIN, attempt))
    row = np.concatenate([[0], np.cumsum(user_degrees, dtype=np.int64)])
    users = np.repeat(np.arange(len(user_degrees), dtype=np.int32), user_degrees)
    items = np.repeat(np.arange(len(item_degrees), dtype=np.int32), item_degrees)
    random.shuffle(items)
    doubles = [p for p in range(len(items)) if items[p] in items[row[users[p]] : p]]
    repaired, repairs = False, 0
    if len(doubles) * 10 <= len(items):
        repaired, repairs = _repair(doubles, users, items, row, random)
    if not repaired:
        _build(items, row, item_degrees)
        for _ in range(10 * len(user_degrees)):
            _trade(items, row, random)
    for m in range(len(user_degrees)):
        items[row[m] : row[m + 1]].sort()
    return users, items, repairs, not repaired


def _repair(
    doubles: list[int], users: Ints, items: Ints, row: NDArray[np.int64], random: SplitMix64
) -> tuple[bool, int]:
    tries, repairs = 2 * len(items) + 1000, 0
    for p in doubles:
        mine = items[row[users[p]] : row[users[p] + 1]]  # views: they follow the swaps
        while np.count_nonzero(mine == items[p]) > 1:
            if tries == 0:
                return False, repairs
            tries -= 1
            q = random.below(len(items))
            theirs = items[row[users[q]] : row[users[q] + 1]]
            if items[q] in mine or items[p] in theirs:
                continue
            items[p], items[q] = items[q], items[p]
            repairs += 1
    return True, repairs


def _build(items: Ints, row: NDArray[np.int64], item_degrees: Ints) -> None:
    """Each user takes the items with the most half-edges left; of a block of equals, the last ones."""
    order = np.argsort(-item_degrees, kind="stable").astype(np.int32)
    left = item_degrees[order]  # stays sorted, descending
    for m in range(len(row) - 1):
        taken = int(row[m + 1] - row[m])
        if taken == 0:
            continue
        last = left[taken - 1]
        before, end = int((left > last).sum()), int((left >= last).sum())
        chosen = np.concatenate([np.arange(before), np.arange(end - (taken - before), end)])
        items[row[m] : row[m + 1]] = order[chosen]
        left[chosen] -= 1


def _trade(items: Ints, row: NDArray[np.int64], random: SplitMix64) -> None:
    """Two random users pool the items that only one of them has, and deal them out again."""
    a, b = random.below(len(row) - 1), random.below(len(row) - 1)
    if a == b:
        return
    of_a, of_b = items[row[a] : row[a + 1]], items[row[b] : row[b + 1]]
    only_a, only_b = ~np.isin(of_a, of_b), ~np.isin(of_b, of_a)
    pool = np.concatenate([of_a[only_a], of_b[only_b]])
    random.shuffle(pool)
    split = int(only_a.sum())
    of_a[only_a], of_b[only_b] = pool[:split], pool[split:]


def draw_considered(counts: Ints, weights: Floats, seed: int) -> tuple[Ints, Ints]:
    """Edges (users, items): user m has counts[m] items, drawn without replacement in proportion to weights.

    Repeats are thrown away; after 4 counts[m] + 16 draws the items still wanted are those with the smallest
    keys Exp(1) / weight among the rest, which continues the same distribution and always ends.
    """
    cumulative = np.cumsum(weights)
    rows = []
    for m, wanted in enumerate(counts):
        random = SplitMix64(key64(seed, CONSIDER, m))
        drawn: set[int] = set()
        for _ in range(4 * int(wanted) + 16):
            if len(drawn) == wanted:
                break
            n = _inverse_cdf(cumulative, random.uniform())
            if weights[n] > 0:
                drawn.add(n)
        if len(drawn) < wanted:
            rest = [n for n in range(len(weights)) if n not in drawn and weights[n] > 0]
            keys = sorted((-math.log1p(-random.uniform()) / float(weights[n]), n) for n in rest)
            drawn.update(n for _, n in keys[: int(wanted) - len(drawn)])
        rows.append(np.array(sorted(drawn), dtype=np.int32))
    users = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    return users, np.concatenate([np.empty(0, dtype=np.int32), *rows])
