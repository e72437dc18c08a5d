"""Fits on Ray: the bits of the plain fit for any number of workers, whoever is killed and when."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from considerate.data.graph import ITEMS, USERS, Graph, divide
from considerate.distributed.backends.ray import RayBackend
from considerate.distributed.messages import PartitionSetup
from considerate.distributed.partitions import make_partition
from considerate.distributed.runners import gather, make_runner
from considerate.fitting.checkpoint import Checkpoints
from considerate.inference.updates import RowClasses
from considerate.kernels import compiled
from tests.helpers import ray_cluster, ray_fits
from tests.helpers.divided_fits import small_leaves, with_residents
from tests.helpers.randomised import share
from tests.helpers.ray_cluster import kill_worker, start_shared_ray
from tests.helpers.ray_fits import (
    GROUPS,
    NEGATIVES,
    Fitted,
    Slowly,
    counted_partition,
    fit_over,
    in_process,
    plain_fit,
    same_bits,
    settings_of,
    small_graph,
    tables_made,
    weights_of,
)

ray = pytest.importorskip("ray")

SWEEPS = 6


@pytest.fixture(scope="module", autouse=True)
def running() -> None:
    """A Ray that the backends of this file join and leave alone."""
    start_shared_ray(ray_cluster, ray_fits)


@pytest.fixture(scope="module", autouse=True)
def few_edges_to_a_leaf() -> Iterator[None]:
    """So small a graph has light items and others if a leaf has four edges."""
    with small_leaves(4):
        yield


@pytest.fixture(scope="module")
def graph() -> Graph:
    made = small_graph()
    for edges_per_like in (1.0, 1.0 + NEGATIVES):
        classes = RowClasses.of_items(made, edges_per_like)
        assert all(map(len, (classes.blocks, classes.heavy, classes.light))), "items of every class"
        assert classes.is_light[11]
    assert made.by_user.degrees[5] == made.by_item.degrees[11] == 0
    return made


@pytest.fixture(scope="module")
def plain(graph: Graph) -> dict[tuple[str, bool], Fitted]:
    return {
        (kind, user_bias): plain_fit(graph, kind, settings_of(user_bias), SWEEPS)
        for kind in ("sampled", "expected", "walk")
        for user_bias in (False, True)
    }


@pytest.mark.parametrize(
    ("kind", "workers", "threads"),
    share(
        [("walk", 3, 1), ("walk", 1, 1), ("walk", 2, 2), ("walk", 5, 1)]
        + [("expected", 1, 3), ("sampled", 3, 1), ("expected", 2, 1), ("expected", 3, 2), ("expected", 5, 1)],
        3,
    ),
)
def test_the_posterior_of_the_plain_fit_by_users(
    graph: Graph, plain: Any, kind: str, workers: int, threads: int
) -> None:
    with RayBackend(workers=workers, threads=threads).open() as session:
        user_bias = workers < 3
        made, settings = partial(session.make_pool, counted_partition), settings_of(user_bias)
        found = fit_over(made, graph, kind, settings, SWEEPS, seen=made_once(kind))
    same_bits(found, plain[kind, user_bias])


def made_once(kind: str) -> Any:
    """Looks, after every sweep, whether each worker has made the alias tables of the walk once."""

    def seen(pool: Any, done: Any) -> None:
        assert set(pool.call(tables_made)) == {int(kind == "walk")}

    return seen


@pytest.mark.parametrize(("kind", "workers"), [("walk", 2), ("expected", 3)])
def test_the_posterior_of_one_process_by_items(graph: Graph, kind: str, workers: int) -> None:
    settings = settings_of(workers == 2)
    here = fit_over(in_process, graph, kind, settings, SWEEPS, ITEMS)
    with RayBackend(workers=workers, threads=1).open() as session:
        made = partial(session.make_pool, counted_partition)
        found = fit_over(made, graph, kind, settings, SWEEPS, ITEMS, seen=made_once(kind))
    same_bits(found, here)


def test_blocks_of_coordinates_and_shards_of_items(graph: Graph) -> None:
    settings = settings_of(True, factors=40)
    before = compiled.step_together(32)  # as if there were many factors; workers are told
    try:
        plain = plain_fit(graph, "expected", settings, 3)
        with RayBackend(workers=2).open() as session:
            found = fit_over(partial(session.make_pool, make_partition), graph, "expected", settings, 3, item_shards=3)
    finally:
        compiled.step_together(before)
    same_bits(found, plain)
    assert not np.array_equal(
        plain[0].posterior.items.rows, plain_fit(graph, "expected", settings, 3)[0].posterior.items.rows
    )


@pytest.mark.parametrize("inner", ["one", "all"])
def test_inner_sweeps(graph: Graph, inner: str) -> None:
    settings, how = settings_of(True), {"inner_sweeps": 2, "inner": inner}
    here = fit_over(in_process, graph, "walk", settings, 3, **how)

    def kill_one(pool: Any, done: Any) -> None:
        if done.state.sweep == 2:
            kill_worker(pool.workers.all[1], "ray")

    with RayBackend(workers=2).open() as session:
        found = fit_over(partial(session.make_pool, make_partition), graph, "walk", settings, 3, seen=kill_one, **how)
    same_bits(found, here)


def test_ctrl_c_keeps_the_last_finished_sweep(graph: Graph) -> None:
    settings, finished = settings_of(True), 3
    outline, parts = divide(graph)
    setup = PartitionSetup.of(outline, replace(settings, groups=GROUPS))
    with RayBackend(workers=2).open() as session:
        pool = session.make_pool(Slowly, setup, parts)
        runner = make_runner(outline, setup, weights_of(graph), pool)
        sweeps = runner.sweeps()
        bounds = [next(sweeps).bound.total for _ in range(finished - 1)]
        last = next(sweeps)
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            next(sweeps)
        bound = runner.evaluate_bound(last.state).total
        state = with_residents(last.state, gather(pool, settings.factors))
    _, plain_bounds = plain_fit(graph, "sampled", settings, finished + 1)
    assert [*bounds, last.bound.total, bound] == plain_bounds
    same_bits((state, []), (plain_fit(graph, "sampled", settings, finished)[0], []))


# --- Killed at random moments ---


class Killer:
    """Kills workers, each a random time after a random sweep was begun; all before the last sweep ends."""

    def __init__(self, seed: int, kills: int) -> None:
        self.random = np.random.default_rng(seed)
        self.at = sorted(int(sweep) for sweep in self.random.integers(1, SWEEPS - 1, kills))
        self.killed: list[int] = []  # pids
        self.threads: list[threading.Thread] = []

    def seen(self, pool: Any, done: Any) -> None:
        """Called between sweeps."""
        while self.at and self.at[0] == done.state.sweep:
            self.at.pop(0)
            chosen = self.random.uniform(0.0, 0.4), self.random.permutation(len(pool.workers.all)), len(self.at) % 2
            self.threads.append(threading.Thread(target=self.kill, args=(pool, *chosen), daemon=True))
            self.threads[-1].start()
        if done.state.sweep == SWEEPS - 1:
            for thread in self.threads:
                thread.join()

    def kill(self, pool: Any, after: float, order: Any, by_ray: int) -> None:
        """The first in that order who is alive."""
        time.sleep(after)
        while not pool.workers.closed:
            for index in order:
                pid = kill_worker(pool.workers.all[index], "ray" if by_ray else "system")
                if pid is not None:
                    self.killed.append(pid)
                    return
            time.sleep(0.01)


@pytest.mark.parametrize(
    ("kind", "resident", "kept"),
    share(
        [
            ("sampled", USERS, True),
            ("sampled", USERS, False),
            ("expected", USERS, False),
            ("sampled", ITEMS, False),
            ("expected", ITEMS, True),
        ],
        2,
    ),
)
def test_workers_killed_at_random_moments(
    graph: Graph, plain: Any, kind: str, resident: str, kept: bool, tmp_path: Path
) -> None:
    """Two in each of five fits: ten in all, in a long run."""
    settings = settings_of(False)
    if resident == USERS:
        undisturbed = plain[kind, False]
    else:
        undisturbed = fit_over(in_process, graph, kind, settings, SWEEPS, ITEMS)
    checkpoints = Checkpoints(str(tmp_path), {}) if kept else None
    killer = Killer(seed=len(kind) + 2 * kept + 4 * (resident == USERS), kills=2)
    with RayBackend(workers=3, threads=1).open() as session:
        found = fit_over(
            partial(session.make_pool, Slowly), graph, kind, settings, SWEEPS, resident, checkpoints, killer.seen
        )
    same_bits(found, undisturbed)
    assert len(killer.killed) == 2
