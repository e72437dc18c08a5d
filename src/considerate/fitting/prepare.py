"""What comes before the first sweep: the graph, the popularity histogram pi, the estimator of q(H)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from considerate.data import Interactions
from considerate.data.graph import Graph, check_sizes
from considerate.inference.hidden import (
    Estimator,
    Expected,
    Sampled,
    correct_head,
    popularity_exponent,
    popularity_weights,
)
from considerate.kernels.threads import Backend
from considerate.parameters import FitPlan


@dataclass(frozen=True)
class Histogram:
    """The popularity histogram pi and the exponent that it came from."""

    weights: NDArray[np.float64]  # [items]
    gamma: float


def make_graph(interactions: Interactions) -> Graph:
    """G, with a warning of what is odd about it: duplicates, a single user or item, users and items swapped."""
    graph = Graph.from_pairs(
        interactions.users, interactions.items, len(interactions.user_ids), len(interactions.item_ids)
    )
    active = (int((graph.by_user.degrees > 0).sum()), int((graph.by_item.degrees > 0).sum()))
    check_sizes(interactions.source, graph.user_count, graph.item_count, graph.duplicates, active)
    return graph


def make_popularity(graph: Graph, plan: FitPlan, backend: Backend) -> Histogram:
    """pi (eq. 7-9), corrected at the head where asked for."""
    degree = graph.by_item.degrees
    gamma = popularity_exponent(degree, plan.rate) if plan.gamma is None else plan.gamma
    weights = popularity_weights(degree, gamma)
    if plan.head_correction:
        weights = correct_head(weights, graph.by_user, graph.user_blocks, plan.negatives, run=backend.map)
    return Histogram(weights, gamma)


def make_estimator(graph: Graph, plan: FitPlan, weights: NDArray[np.float64], backend: Backend) -> Estimator:
    """One of the two estimators of the expectation over q(H)."""
    if plan.hidden == "sampled":
        return Sampled(graph.by_user, graph.user_blocks, weights, plan.negatives, plan.seed)
    groups = min(plan.groups, max(1, graph.item_count))
    return Expected(graph.by_user, graph.user_blocks, weights, plan.negatives, plan.offset, groups, backend.map)
