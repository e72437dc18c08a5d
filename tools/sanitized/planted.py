"""A fault that the sanitizers must report, made by the core itself: `python planted.py overrun|overflow|race|none`.

The kernels check what they are given; those of `overrun`, which writes past an array, and of `overflow`, which adds one
to the largest integer, trust whoever counted before. `race` is a fit in which two threads do every task. `none` are
fits as they are.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from itertools import islice, product

import numpy as np
import scipy.sparse as sp

from considerate import Recommender
from considerate.data.graph import Graph
from considerate.inference.hidden import Sampled, popularity_weights
from considerate.inference.plan import FitPlan
from considerate.inference.sweep import InMemory
from considerate.kernels import compiled
from considerate.kernels.threads import LocalBackend, Result, Task

LIKES = sp.csr_matrix((np.random.default_rng(0).random((2000, 300)) < 0.1).astype(np.float32))


def overrun() -> None:
    starts, indices, places = np.array([0, 1]), np.zeros(1, np.int32), np.array([100])
    compiled.scatter_rows(starts, indices, 0, 1, 0, places, np.zeros(100, np.int32))


def overflow() -> None:
    compiled.count_columns(np.zeros(1, np.int32), np.array([np.iinfo(np.int64).max]))


def none() -> None:
    """Fits of every kind by two threads, with every instruction set, and lists."""
    kinds = [{"hidden": "sampled"}, {"hidden": "expected"}, {"hidden": "half-edges"}, {"posterior": "full"}]
    for name, kind in product(compiled.instruction_sets(), kinds):
        compiled.use_instruction_set(name)
        model = Recommender(factors=8, sweeps=2, threads=2, **kind).fit(LIKES)
        model.recommend(np.arange(100))
    sweeps(LocalBackend)


class Twice(LocalBackend):
    """Gives every task to two threads."""

    def map(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
        return super().map(function, [task for task in tasks for _ in range(2)])[::2]


def sweeps(kind: type[LocalBackend]) -> None:
    """Three sweeps over many small blocks, by two threads."""
    users, items = (column.astype(np.int32) for column in LIKES.nonzero())
    graph = Graph.from_pairs(users, items, *LIKES.shape, block_edges=500)
    plan = FitPlan.of_paper(factors=9, negatives=1.5)
    draws = Sampled(graph.by_user, graph.user_blocks, popularity_weights(graph.by_item.degrees, 1.0), 1.5, 3)
    with kind(2) as backend:
        list(islice(InMemory(graph, draws, plan, backend).sweeps(), 3))


PLANTED = {"overrun": overrun, "overflow": overflow, "race": lambda: sweeps(Twice), "none": none}

if __name__ == "__main__":
    PLANTED[sys.argv[1]]()
