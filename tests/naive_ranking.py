"""Brute force for metrics: every order of the items that agrees with the scores, one list at a time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

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
