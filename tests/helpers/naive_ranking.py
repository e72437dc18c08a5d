"""Brute force for metrics: every order of the items that agrees with the scores, one list at a time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
METRICS = ("recall", "hit_rate", "ndcg", "mean_average_precision", "mrr")


def orders(scores: Sequence[float], seen: Sequence[int]) -> Iterator[list[int]]:
    """All rankings of the items that were not seen, highest score first, those that tie in any order."""
    free = [n for n in range(len(scores)) if n not in set(seen)]
    levels = sorted({scores[n] for n in free}, reverse=True)
    groups = [[n for n in free if scores[n] == level] for level in levels]
    for choice in itertools.product(*(itertools.permutations(group) for group in groups)):
        yield [n for group in choice for n in group]


def of_list(name: str, ranking: Sequence[int], held: Sequence[int], k: int) -> float:
    """One metric of one ranking, as textbooks write it."""
    hits = [n in set(held) for n in ranking[:k]]
    if name == "recall":
        return sum(hits) / len(held)
    if name == "hit_rate":
        return float(any(hits))
    if name == "ndcg":
        gain = sum(1 / math.log2(2 + at) for at, hit in enumerate(hits) if hit)
        return gain / sum(1 / math.log2(2 + at) for at in range(min(k, len(held))))
    if name == "mean_average_precision":
        return sum(sum(hits[: at + 1]) / (at + 1) for at, hit in enumerate(hits) if hit) / min(k, len(held))
    if name == "mrr":
        return next((1 / (at + 1) for at, hit in enumerate(hits) if hit), 0.0)
    raise AssertionError(name)


def expected(name: str, scores: Sequence[float], seen: Sequence[int], held: Sequence[int], k: int) -> float:
    """The mean over all orders."""
    return float(np.mean([of_list(name, order, held, k) for order in orders(scores, seen)]))


def rank_score(scores: Sequence[float], seen: Sequence[int], item: int) -> float:
    """Eq. 23: pairs won among the candidates, half a point for a tie, over the candidates."""
    free = [n for n in range(len(scores)) if n not in set(seen)]
    points = sum(
        1.0 if scores[n] < scores[item] else 0.5 if scores[n] == scores[item] else 0.0 for n in free if n != item
    )
    return points / len(free)


def gini(counts: Sequence[int]) -> float:
    """Half the mean absolute difference over the mean."""
    values: Any = np.asarray(counts, float)
    return float(np.abs(values[:, None] - values[None, :]).mean() / (2 * values.mean()))


def count_ranks(
    scores: Array, starts: Array, held: Array, seen_starts: Array, seen: Array
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """(above, ties, bad): for each held item of a row, how many others have a higher score, how many the same.

    Row i has the held items held[starts[i] : starts[i + 1]]; what it has seen, ascending, does not count, the held item
    itself never does, and the row's other held items do. `bad` is the first row with a NaN, else -1.
    """
    above, ties = np.zeros((2, len(held)), np.int64)
    for row in range(len(scores)):
        if np.isnan(scores[row]).any():
            return above, ties, row
        free = np.ones(scores.shape[1], bool)
        free[seen[seen_starts[row] : seen_starts[row + 1]]] = False
        for edge in range(starts[row], starts[row + 1]):
            own = scores[row, held[edge]]
            others = free.copy()
            others[held[edge]] = False
            above[edge] = (scores[row, others] > own).sum()
            ties[edge] = (scores[row, others] == own).sum()
    return above, ties, -1


def best_of_rows(scores: Array, k: int, seen_starts: Array, seen: Array) -> tuple[NDArray[np.int32], int]:
    """(ids [rows, k], bad): the k best items of every row, highest first, the lower index where scores tie; what was
    seen is left out, -1 where fewer remain. `bad` is the first row with a NaN, else -1."""
    ids = np.full((len(scores), k), -1, np.int32)
    for row in range(len(scores)):
        if np.isnan(scores[row]).any():
            return ids, row
        order = np.argsort(-scores[row], kind="stable")
        order = order[~np.isin(order, seen[seen_starts[row] : seen_starts[row + 1]])][:k]
        ids[row, : len(order)] = order
    return ids, -1
