"""Tests of links: hidden edges against sampled pairs by AUC and hits@k."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data import Interactions
from considerate.data.edges import each_once, symmetric
from considerate.data.graph import Adjacency
from considerate.data.vocabulary import match_rows
from considerate.errors import UsageError
from considerate.model.model import Model

Rows = NDArray[np.int64]
Pairs = tuple[Rows, Rows]


def edge_pairs(edges: Adjacency) -> Pairs:
    """Each edge of a symmetric adjacency once, its lower end first."""
    once = each_once(edges)
    return once.edge_rows, once.indices.astype(np.int64)


def hide_edges(edges: Adjacency, share: float, seed: int) -> tuple[Pairs, Pairs]:
    """Hide a random share of the edges: (kept, hidden), at least one of each."""
    pairs = np.stack(edge_pairs(edges))
    order = np.random.default_rng([seed, 1]).permutation(pairs.shape[1])
    hidden = min(max(1, round(share * len(order))), len(order) - 1)
    kept, those = np.sort(order[hidden:]), np.sort(order[:hidden])
    return (pairs[0, kept], pairs[1, kept]), (pairs[0, those], pairs[1, those])


def sample_pairs(edges: Adjacency, count: int, seed: int) -> Pairs:
    """Sample pairs of vertices without an edge, uniformly and with replacement."""
    vertices, random = edges.rows, np.random.default_rng([seed, 2])
    first, second = edge_pairs(edges)
    known = first * vertices + second
    if 2 * len(known) >= vertices * (vertices - 1):
        raise UsageError("every pair of vertices has an edge; there are none without to compare with.")
    found = np.empty((2, 0), np.int64)
    while found.shape[1] < count:
        ends = np.sort(random.integers(0, vertices, (2, count)), axis=0)
        apart = (ends[0] != ends[1]) & ~np.isin(ends[0] * vertices + ends[1], known)
        found = np.concatenate([found, ends[:, apart]], axis=1)
    return found[0, :count], found[1, :count]


def auc(hidden: NDArray[Any], others: NDArray[Any]) -> float:
    """Probability that a hidden edge scores above a pair without an edge; ties count half."""
    others = np.sort(others)
    below = np.searchsorted(others, hidden, "left") + np.searchsorted(others, hidden, "right")
    return float(below.mean() / (2 * len(others)))


def hits(hidden: NDArray[Any], others: NDArray[Any], k: int = 50) -> float:
    """Share of hidden edges that score above the k-th best of the other pairs."""
    return float((hidden > np.sort(others)[-min(k, len(others))]).mean())


METRICS: dict[str, Callable[[NDArray[Any], NDArray[Any]], float]] = {"auc": auc, "hits@50": hits}


@dataclass(frozen=True)
class LinkTest:
    """Hidden edges and pairs without an edge, in one list: the hidden ones first."""

    first: Rows
    second: Rows
    hidden: int

    @classmethod
    def of(cls, hidden: Pairs, whole: Adjacency, seed: int, others: int = 100_000) -> LinkTest:
        """Join hidden edges and a sample of pairs that have no edge in the whole graph."""
        sampled = sample_pairs(whole, others, seed)
        first, second = (np.concatenate(ends) for ends in zip(hidden, sampled))
        return cls(first, second, len(hidden[0]))

    def value(self, scores: NDArray[Any], metric: str = "auc") -> float:
        """A metric of the scores of all pairs."""
        return METRICS[metric](scores[: self.hidden], scores[self.hidden :])


def new_edges(model: Model, edges: Interactions, pairs: int, seed: int) -> LinkTest:
    """Test a model on the edges between its vertices that were not in its training."""
    rows = match_rows(edges.item_ids, model.item_ids)
    ends = np.stack([rows[edges.users], rows[edges.items]])
    ends = np.sort(ends[:, (ends >= 0).all(axis=0)], axis=0)
    known = np.stack(edge_pairs(model.users.whole().liked))
    new = ends[:, ~np.isin(ends[0] * model.item_count + ends[1], known[0] * model.item_count + known[1])]
    if not new.size:
        raise UsageError("none of these edges is between known vertices and new; give edges that were held out.")
    first, second = np.concatenate([known, new], axis=1)
    return LinkTest.of((new[0], new[1]), symmetric(first, second, model.item_count), seed, pairs)
