"""Splits of a graph into training and test edges."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from considerate.graph import Adjacency, Graph

STREAM = 0x591F


@dataclass(frozen=True)
class HeldOut:
    """A training graph and the edges that were taken from it."""

    train: Graph
    users: NDArray[np.int64]  # [test edges]
    items: NDArray[np.int64]  # [test edges]


def one_per_user(graph: Graph, seed: int) -> HeldOut:
    """One random edge of every user who has at least two (the paper's split). Which one is a function of the seed."""
    degrees = graph.by_user.degrees
    users = np.flatnonzero(degrees >= 2)
    random = np.random.Generator(np.random.Philox(key=[seed, STREAM]))
    places = graph.by_user.starts[users] + (random.random(len(users)) * degrees[users]).astype(np.int64)
    keep = np.ones(graph.edges, bool)
    keep[places] = False
    left = degrees.copy()
    left[users] -= 1
    starts = np.zeros(graph.user_count + 1, np.int64)
    np.cumsum(left, out=starts[1:])
    train = Graph.from_adjacency(Adjacency(starts, graph.by_user.indices[keep]), graph.item_count)
    return HeldOut(train, users.astype(np.int64), graph.by_user.indices[places].astype(np.int64))
