"""Nodes that are killed, on a cluster of three on this machine."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from considerate.data.graph import GraphPart
from considerate.distributed.assignment import assign_parts
from considerate.distributed.backends.ray import RayBackend
from considerate.distributed.messages import PartitionSetup
from considerate.distributed.partitions import make_partition
from considerate.errors import ClusterError
from tests.helpers import ray_cluster, ray_fits
from tests.helpers.ray_cluster import MEMORY, Tally, alive, downs, expected_tally, three_nodes, together
from tests.helpers.ray_fits import fit_over, plain_fit, same_bits, settings_of, small_graph

ray = pytest.importorskip("ray")

PARTS = 7


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Three nodes of one processor each; tests kill two of them, one after the other."""
    for module in (ray_cluster, ray_fits, sys.modules[__name__]):
        ray.cloudpickle.register_pickle_by_value(module)
    with three_nodes() as made:
        yield made


def heavy(part: GraphPart, log: str) -> tuple[GraphPart, np.ndarray]:
    """Too large to travel within messages: it stays on its node."""
    with open(log, "a") as file:
        file.write(f"{part.number}\n")
    return part, np.zeros(50_000)


def part_of(given: tuple[GraphPart, np.ndarray], setup: PartitionSetup) -> Any:
    return make_partition(given[0], setup)


def kill_node(cluster: Any, pool: Any) -> Any:
    """Kill a node with a worker, but not the one that this process has joined; the worker that was there."""
    here = ray.get_runtime_context().get_node_id()
    handle = next(handle for handle in pool.workers.all if handle.location.node != here)
    node = next(node for node in cluster.worker_nodes if node.node_id == handle.location.node)
    cluster.remove_node(node, allow_graceful=False)
    return handle


def wait_for_death(pid: int) -> None:
    """A worker whose node was killed still answers for a moment."""
    end = time.monotonic() + 60
    while alive(pid):
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_worker_moves_to_room_that_was_reserved_and_is_not_used(cluster: Any) -> None:
    """Room for three workers is reserved, one a node; two parts need two of them."""
    with RayBackend(address=cluster.address, patience=120).open() as session:
        assert session.workers == 3
        pool = session.make_pool(Tally, {"parts": 2}, [0, 1])
        sent = downs(2)
        pool.call("visit", sent[0], merge=together, changes=True)
        pids = [handle.location.pid for handle in pool.workers.all]
        wait_for_death(pids[kill_node(cluster, pool).index])
        answer = pool.call("visit", sent[1], merge=together, changes=True)
    np.testing.assert_array_equal(answer, expected_tally(2, sent))
    cluster.add_node(node_ip_address="127.0.0.5", num_cpus=1, object_store_memory=MEMORY, include_dashboard=False)


def test_a_node_that_is_killed(cluster: Any, tmp_path: Path, capfd: Any) -> None:
    graph, settings, log = small_graph(), settings_of(False), tmp_path / "made"
    seats: list[Any] = []
    lost: list[Any] = []

    def make_pool(setup: PartitionSetup, parts: list[GraphPart]) -> Any:
        from considerate.distributed.ray.tasks import in_group

        make, shares = ray.remote(heavy), assign_parts([1] * len(parts), 2)
        given = [  # each made where its worker will be, and nowhere else
            make.options(num_cpus=1, scheduling_strategy=in_group(session.group, int(part.number in shares[1]))).remote(
                part, str(log)
            )
            for part in parts
        ]
        pool = session.make_pool(part_of, setup, given)
        assert [handle.parts for handle in pool.workers.all] == shares
        seats.extend(handle.location for handle in pool.workers.all)
        assert seats[0].node != seats[1].node
        return pool

    def seen(pool: Any, done: Any) -> None:
        if done.state.sweep == 2:
            made = sorted(map(int, log.read_text().split()))
            assert made == list(range(pool.parts))
            lost.append(kill_node(cluster, pool))
            wait_for_death(seats[lost[0].index].pid)
            log.write_text("")
        if done.state.sweep == 4:
            handle, before = lost[0], seats[lost[0].index]
            assert sorted(map(int, log.read_text().split())) == list(handle.parts)  # made again, by tasks
            assert handle.location.node not in [location.node for location in seats]
            assert handle.location.pid != before.pid
            pids = {part: one.location.pid for one in pool.workers.all for part in one.parts}
            assert pool.call(pid_of) == [pids[part] for part in range(pool.parts)]
            down = pool.share(np.zeros(1000))
            pool.report()
            pool.call(ignore, down)
            assert pool.report().down == 2 * down.size  # once for each of two nodes

    with RayBackend(address=cluster.address, workers=2, patience=60).open() as session:
        assert session.describe() == f"Ray {ray.__version__} on 3 nodes: 2 workers of 1 thread"
        assert 1e8 < session.memory < 1e13
        found = fit_over(make_pool, graph, "sampled", settings, 4, seen=seen)
    same_bits(found, plain_fit(graph, "sampled", settings, 4))
    assert len(lost) == 1
    assert not ray.is_initialized()
    printed = capfd.readouterr()
    assert printed.out == ""
    assert all(":info_message: Attempting to recover" in line for line in printed.err.splitlines())


def pid_of(part: Any) -> int:
    return os.getpid()


def ignore(part: Any, message: Any) -> None:
    pass


def test_no_room_for_a_replacement_ends_with_one_sentence(cluster: Any) -> None:
    with RayBackend(address=cluster.address, workers=2, patience=8).open() as session:
        pool = session.make_pool(Tally, {"parts": PARTS}, list(range(PARTS)), checkpoint="/data/kept/sweep-000003")
        pool.call("visit", downs(1)[0], merge=together, changes=True)
        pid = {handle.index: handle.location.pid for handle in pool.workers.all}
        lost = kill_node(cluster, pool)
        wait_for_death(pid[lost.index])
        with pytest.raises(ClusterError) as caught:
            pool.call("visit", downs(1)[0], merge=together, changes=True)
    assert str(caught.value) == (
        f"Worker {lost.index + 1} of 2 found no room on the cluster within 8 s (it needs a node with 1 free "
        "processor), so the fit cannot go on; the last checkpoint is /data/kept/sweep-000003, go on from it with "
        "--resume."
    )
