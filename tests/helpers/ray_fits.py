"""Small fits that tests on Ray compare: plain, over parts in this process, and over a pool."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from considerate.data.graph import USERS, Graph, GraphPart, divide
from considerate.distributed.backends.base import PartitionedBackend
from considerate.distributed.messages import PartitionSetup
from considerate.distributed.partitions import make_partition
from considerate.distributed.pools import LocalPool
from considerate.distributed.runners import consideration_over, gather, make_runner
from considerate.fitting.checkpoint import Checkpoints
from considerate.fitting.session import make_consideration, make_estimator
from considerate.inference.hidden import popularity_weights
from considerate.inference.plan import FitPlan
from considerate.inference.sweep import InMemory, State, Sweep
from considerate.kernels.threads import LocalBackend
from tests.helpers.divided_fits import with_residents

compiled: Any = importlib.import_module("considerate.kernels.compiled")
NEGATIVES, GROUPS = 1.5, 16
Fitted = tuple[State, list[float]]  # and the bounds


def small_graph(users: int = 2000, items: int = 150) -> Graph:
    """Three tastes, items of very different degrees, one that nearly everyone likes and one that nobody does, a user
    without likes; many small blocks."""
    random = np.random.default_rng(0)
    same = (np.arange(users)[:, None] % 3) == (np.arange(items) % 3)
    liked = random.random((users, items)) < np.clip(3.0 / np.arange(1, items + 1), 0.05, 0.2) * (0.1 + 2.5 * same)
    liked[:, 7] = random.random(users) < 0.97
    liked[5] = liked[:, 11] = False
    found = np.nonzero(liked)
    made = Graph.from_pairs(found[0].astype(np.int32), found[1].astype(np.int32), users, items, block_edges=500)
    assert len(made.user_blocks) > 32
    assert len(made.item_blocks) > 16
    return made


def settings_of(user_bias: bool, factors: int = 9) -> FitPlan:
    return FitPlan.of_paper(
        factors=factors,
        negatives=NEGATIVES,
        user_bias=user_bias,
        step_delay=1,
        precision_delay=1,
        likelihood_weight=1.3,
        seed=3,
    )


def weights_of(graph: Graph) -> np.ndarray:
    return popularity_weights(graph.by_item.degrees, 1.0)


def plan_of(kind: str, settings: FitPlan) -> FitPlan:
    """The plan of a kind of fit: sampled, expected, or sampled by the walk."""
    if kind == "walk":
        return replace(settings, consideration="walk", neighbours=30)
    return replace(settings, hidden=kind, groups=GROUPS)


def plain_fit(graph: Graph, kind: str, settings: FitPlan, count: int) -> Fitted:
    """As `fit` does it, with two threads."""
    bounds = []
    with LocalBackend(2) as backend:
        plan, weights = plan_of(kind, settings), weights_of(graph)
        estimator = make_estimator(graph, plan, weights, backend, make_consideration(graph, plan, weights, backend))
        for done in InMemory(graph, estimator, plan, backend).sweeps():
            bounds.append(done.bound.total)
            if done.state.sweep == count:
                return done.state, bounds
    raise AssertionError


def fit_over(
    make_pool: Callable[[PartitionSetup, list[GraphPart]], Any],
    graph: Graph,
    kind: str,
    settings: FitPlan,
    count: int,
    resident: str = USERS,
    checkpoints: Checkpoints | None = None,
    seen: Callable[[Any, Sweep], None] = lambda pool, done: None,
    **options: Any,
) -> Fitted:
    """A fit over a pool, its residents gathered; a snapshot every third sweep where there are checkpoints."""
    outline, parts = divide(graph, resident)
    plan, weights = plan_of(kind, settings), weights_of(graph)
    setup = PartitionSetup.of(outline, plan, resident)
    pool = make_pool(setup, parts)
    bounds = []
    try:
        table = consideration_over(pool, outline, plan, weights, 1e5) if kind == "walk" else None
        runner = make_runner(outline, setup, weights, pool, PartitionedBackend(**options), consideration=table)
        for done in runner.sweeps():
            bounds.append(done.bound.total)
            sweep = done.state.sweep
            if checkpoints is not None and sweep % 3 == 0:
                pool.snapshot(Keep(checkpoints, sweep).write, Keep(checkpoints, sweep).read)
            seen(pool, done)
            if sweep == count:
                return with_residents(done.state, gather(pool, settings.factors)), bounds
    finally:
        pool.close()
    raise AssertionError


class Keep:
    """The parts of one checkpoint."""

    def __init__(self, checkpoints: Checkpoints, sweep: int) -> None:
        self.checkpoints, self.sweep = checkpoints, sweep

    def write(self, number: int, state: Any) -> Any:
        return self.checkpoints.write_part(self.sweep, number, state)

    def read(self, number: int) -> Any:
        return self.checkpoints.read_part(self.sweep, number)


def in_process(setup: PartitionSetup, parts: list[GraphPart]) -> LocalPool:
    return LocalPool([make_partition(part, setup) for part in parts], 2)


def same_bits(one: Fitted, other: Fitted) -> None:
    """Posteriors and bounds, to the last bit."""
    q, p = one[0].posterior, other[0].posterior
    for mine, theirs in ((q.users, p.users), (q.items, p.items)):
        np.testing.assert_array_equal(mine.rows, theirs.rows)
        np.testing.assert_array_equal(mine.biases, theirs.biases)
    assert q.precisions == p.precisions
    assert one[1] == other[1]


def counted_partition(part: GraphPart, setup: PartitionSetup) -> Any:
    """A part whose process counts how often it makes the alias tables of the walk."""
    if not hasattr(compiled, "tables_made"):
        compiled.tables_made, real = 0, compiled.walk_slots

        def counted(*rows: Any) -> Any:
            compiled.tables_made += 1
            return real(*rows)

        compiled.walk_slots = counted
    return make_partition(part, setup)


def tables_made(part: Any) -> int:
    return int(compiled.tables_made)


class Slowly:
    """A part that takes its time over a visit, so that it can be killed in the middle of one."""

    def __init__(self, part: GraphPart, setup: PartitionSetup) -> None:
        self._part = make_partition(part, setup)

    def visit(self, *arguments: Any) -> Any:
        time.sleep(0.01)
        return self._part.visit(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._part, name)
