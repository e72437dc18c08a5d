"""What the tests on Ray share: a toy part, ways to kill, and a cluster of three nodes on this machine."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from considerate.distributed.ray.workers import WorkerHandle

MEMORY = 100 * 1024 * 1024  # bytes of a node's object store

# By default Ray takes some twenty seconds to call a node dead.
DEATH_KNOWN_SOON = {
    "health_check_initial_delay_ms": 500,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 2000,
    "health_check_failure_threshold": 3,
}


def start_shared_ray(*modules: Any) -> None:
    """The Ray of six processors that tests share: started by the first that needs it, it ends with the tests.

    Functions of these modules are sent by value: workers cannot import tests.
    """
    import ray

    for module in modules:
        ray.cloudpickle.register_pickle_by_value(module)
    if not ray.is_initialized():
        ray.init(address="local", num_cpus=6, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)


class Tally:
    """A toy part: an array that depends on all that was ever done to it, in order."""

    def __init__(self, number: int, setup: dict[str, Any]) -> None:
        self.number, self.setup = number, setup
        self.reset()

    def reset(self) -> None:
        self.values = np.full(3, float(self.number))
        self.visits = 0  # of this object: not of the state

    def state(self) -> dict[str, np.ndarray]:
        return {"values": self.values}

    def restore(self, tensors: Any) -> None:
        self.values = np.array(tensors["values"])

    def visit(self, down: np.ndarray) -> np.ndarray:
        self.visits += 1
        self.values = np.sin(1.7 * self.values + down)  # never in place: a host keeps what was before
        return self.look()

    def slow_visit(self, down: np.ndarray, seconds: float) -> np.ndarray:
        time.sleep(seconds)
        return self.visit(down)

    def look(self) -> np.ndarray:
        """The state by the number of the part: what `together` puts together."""
        out = np.full((self.setup["parts"], 3), np.nan)
        out[self.number] = self.values
        return out

    def fail(self, number: int) -> None:
        self.values = self.values + 1.0
        if self.number == number:
            raise ZeroDivisionError(f"part {number}")

    def die_while(self, flag: str, down: np.ndarray) -> np.ndarray:
        """Kills its own process for as long as the file has something in it, a byte a death."""
        if self.number == self.setup["parts"] - 1 and (left := Path(flag).read_bytes()):
            Path(flag).write_bytes(left[1:])
            os.kill(os.getpid(), signal.SIGKILL)
        return self.visit(down)

    def visited(self) -> int:
        return self.visits

    def ignore(self, message: Any) -> None:
        pass

    def pid(self) -> int:
        return os.getpid()


def together(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Both; a part that is in both is a fault."""
    assert not (~np.isnan(one) & ~np.isnan(other)).any()
    return np.where(np.isnan(one), other, one)


def expected_tally(parts: int, downs: list[np.ndarray]) -> np.ndarray:
    """The states after these messages, computed here."""
    tallies = [Tally(number, {"parts": parts}) for number in range(parts)]
    for down in downs:
        for tally in tallies:
            tally.visit(down)
    return np.array([tally.values for tally in tallies])


def downs(count: int, seed: int = 0) -> list[np.ndarray]:
    return list(np.random.default_rng(seed).standard_normal((count, 3)))


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def kill_worker(handle: WorkerHandle, how: str) -> int | None:
    """By Ray, or by the system as a crash would be; its pid, or None where it is just being replaced."""
    import ray

    location, actor = handle.location, handle.actor
    if location is None or actor is None or not alive(location.pid):
        return None
    if how == "ray":
        ray.kill(actor)
    else:
        with suppress(ProcessLookupError):
            os.kill(location.pid, signal.SIGKILL)
    return location.pid


@contextmanager
def three_nodes(cpus: tuple[int, int, int] = (1, 1, 1)) -> Iterator[Any]:
    """A cluster of three nodes; the driver joins the first, which is never killed."""
    import ray
    from ray.cluster_utils import Cluster

    ray.shutdown()  # of the Ray that other tests share
    cluster = Cluster()
    try:
        for i, count in enumerate(cpus):
            quick = {"_system_config": DEATH_KNOWN_SOON} if i == 0 else {}
            cluster.add_node(
                node_ip_address=f"127.0.0.{2 + i}",
                num_cpus=count,
                object_store_memory=MEMORY,
                include_dashboard=False,
                **quick,
            )
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()
