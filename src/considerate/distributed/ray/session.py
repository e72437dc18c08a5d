"""Session on Ray: it joins a cluster or starts a local Ray, and reserves room for workers and tasks.

Room is reserved once: a bundle of processors for each worker, spread over the nodes. Tasks use these processors. The
workers live in the bundles too but take no processors, as workers and tasks never compute at the same time. So tasks
can always rebuild the data of a lost node in the same room.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

import ray
from ray._private import worker
from ray.util import placement_group, placement_group_table, remove_placement_group

from considerate.distributed.division import count_of
from considerate.distributed.ray.guard import CrashGuard
from considerate.distributed.ray.pool import RayPool
from considerate.distributed.ray.tasks import RayTasks, reason
from considerate.distributed.tasks import ClosedAtEnd
from considerate.errors import ClusterError
from considerate.kernels.threads import available_threads
from considerate.storage.files import UNFINISHED_FOLDERS

ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",  # Ray would print them, although they are handled here
}
TIMEOUT = 10.0  # seconds to connect to an address
LOOPBACK = "127.0.0.2"  # Ray replaces 127.0.0.1 by an address that others can reach


class RayOptions(Protocol):
    """Options that a session reads, see backends.ray.RayBackend."""

    @property
    def address(self) -> str | None: ...
    @property
    def workers(self) -> int | None: ...
    @property
    def threads(self) -> int | None: ...
    @property
    def max_restarts(self) -> int: ...
    @property
    def patience(self) -> float: ...


class RaySession(ClosedAtEnd):
    """A Ray in use, see options.BackendSession. Closing it frees the workers, and stops a Ray that was started here."""

    out_of_core = False

    def __init__(self, options: RayOptions) -> None:
        self.options = options
        self.started = self.joined = False
        self._pools: list[Any] = []
        self.group: Any = None
        self._session: str | None = None
        self._guard: CrashGuard | None = None
        self._unsilence: Callable[[], None] | None = None
        self._environment: list[str] = []  # variables set here
        try:
            self._join()
            atexit.register(self.close)
            self.workers, self.threads = self._shares()
            self._reserve()
        except BaseException:
            self.close()
            raise
        self.tasks = RayTasks(self.group)

    def make_pool(self, build: Callable[[Any, Any], Any], setup: Any, parts: Sequence[Any], **options: Any) -> Any:
        """Make a RayPool of build(part, setup) for these parts, which may be references."""
        self._pools.append(RayPool(self, build, setup, parts, **options))
        return self._pools[-1]

    @property
    def memory(self) -> float | None:
        """Bytes that each worker may use: its share of the smallest machine, with the object store."""
        nodes = list(placement_group_table(self.group)["bundles_to_node_id"].values())  # of each worker
        free = [
            sum(node["Resources"].get(name, 0.0) for name in ("memory", "object_store_memory"))
            / nodes.count(node["NodeID"])
            for node in ray.nodes()
            if node["NodeID"] in nodes
        ]
        return min(free, default=0.0) or None

    def usable_bundle(self, own: int, taken: set[int]) -> int:
        """The worker's own bundle if its node is alive, else a free bundle, else its own: Ray may find it another
        node."""
        alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
        nodes = placement_group_table(self.group)["bundles_to_node_id"]
        usable = [bundle for bundle, node in nodes.items() if node in alive and bundle not in taken]
        return own if own in usable else next(iter(usable), own)

    def _size(self) -> str:
        return f"{count_of(self.workers, 'worker')} of {count_of(self.threads, 'thread')}"

    def describe(self) -> str:
        """Short description of the place where the fit runs."""
        where = f"a local Ray {ray.__version__}"
        if not self.started:
            where = f"Ray {ray.__version__} on {count_of(len(_nodes()), 'node')}"
        return f"{where}: {self._size()}"

    def close(self) -> None:
        """Free the workers and the room; stop a Ray that was started here."""
        atexit.unregister(self.close)
        while self._pools:
            self._pools.pop().close()
        group, self.group = self.group, None
        if group is not None and ray.is_initialized():
            with suppress(ray.exceptions.RayError):  # the cluster may be gone
                remove_placement_group(group)
        if self.started or self.joined:
            started, self.started, self.joined = self.started, False, False
            ray.shutdown()
            if started and self._session is not None:
                shutil.rmtree(self._session, ignore_errors=True)
        if self._guard is not None:
            self._guard.close()
            self._guard = None
        unsilence, self._unsilence = self._unsilence, None
        if unsilence is not None:
            unsilence()
        while self._environment:
            os.environ.pop(self._environment.pop(), None)

    def _join(self) -> None:
        """Join or start a Ray, unless this process is part of one."""
        self._environment = [name for name in ENVIRONMENT if name not in os.environ]
        os.environ.update({name: ENVIRONMENT[name] for name in self._environment})
        if ray.is_initialized():
            return
        self._unsilence = _silence()
        address = self.options.address or os.environ.get("RAY_ADDRESS") or "local"
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        try:
            if address == "local":
                wanted = (self.options.workers or 1) * (self.options.threads or 1)
                loopback = LOOPBACK if sys.platform == "linux" else None
                self.started = True  # even if Ctrl-C interrupts the start
                context = ray.init(
                    address="local",
                    num_cpus=max(available_threads(), wanted),
                    include_dashboard=False,
                    _node_ip_address=loopback,
                    **quiet,
                )
                self._session = context.address_info.get("session_dir")
            else:
                host = _answering(address)
                self.joined = True
                context = ray.init(address=address, _node_ip_address=host if host.startswith("127.") else None, **quiet)
            about = context.address_info
            logs = os.path.join(about["session_dir"], "logs")
            self._guard = CrashGuard(about["raylet_socket_name"], about["gcs_address"], logs, UNFINISHED_FOLDERS)
        except (ConnectionError, RuntimeError, ValueError, TimeoutError, OSError, ray.exceptions.RayError) as error:
            what = "A local Ray could not be started" if address == "local" else f"There is no Ray to join at {address}"
            raise ClusterError(f"{what}: {reason(error)}; see `ray status`, or give another --address.") from error

    def _shares(self) -> tuple[int, int]:
        """(workers, threads of each)."""
        nodes = _nodes()
        if not nodes:
            raise ClusterError("The Ray cluster has no node with a processor; add worker nodes.")
        workers = self.options.workers or (sum(nodes) if self.started else len(nodes))
        if self.options.workers is None and self.started and self.options.threads is not None:
            workers = max(1, sum(nodes) // self.options.threads)
        threads = self.options.threads or max(1, min(min(nodes), sum(nodes) // workers))
        return workers, threads

    def _reserve(self) -> None:
        self.group = placement_group([{"CPU": self.threads}] * self.workers, strategy="SPREAD")
        ready, _ = ray.wait([self.group.ready()], timeout=self.options.patience)
        if not ready:
            nodes, free = _nodes(), ray.available_resources().get("CPU", 0.0)
            raise ClusterError(
                f"{self._size()} found no room within {self.options.patience:g} s on {count_of(len(nodes), 'node')} "
                f"with {count_of(sum(nodes), 'processor')}, {max(nodes, default=0)} on the largest and {free:g} free "
                "in all; ask for fewer workers or threads, or add nodes."
            )


def _answering(address: str) -> str:
    """Host of an address, after a connection to it. Ray itself would try to connect for minutes."""
    host, _, port = address.rpartition(":")
    if port.isdigit():
        with socket.create_connection((host.strip("[]"), int(port)), timeout=TIMEOUT):
            pass
    return host


def _silence() -> Callable[[], None]:
    """Stop Ray from printing deaths of workers on stdout, which may be JSON output; the pool reports them. Returns a
    function that undoes it."""
    printed = getattr(worker, "print_to_stdstream", None)
    if printed is not None:
        worker.print_to_stdstream = lambda *_, **__: None

    def undo() -> None:
        if printed is not None:
            worker.print_to_stdstream = printed

    return undo


def _nodes() -> list[int]:
    """Processors of each node that has any."""
    found = [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
    return sorted(cpus for cpus in found if cpus)
