"""Ray: a cluster that is joined or a local Ray that is started, the room for the workers on it, and its tasks.

Room is reserved once, a bundle of processors a worker, spread over the nodes. Tasks use the bundles' processors;
the workers that hold parts live in them too but take none, as they and tasks never compute at the same time. So what
a lost node held can always be made again by tasks, in the same room.
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
from dataclasses import dataclass
from typing import Any

from considerate.distributed.backends.base import PartitionedBackend
from considerate.distributed.ray.failures import reason
from considerate.distributed.ray.guard import CrashGuard
from considerate.distributed.ray.tasks import RayTasks, in_group
from considerate.distributed.tasks import ClosedAtEnd
from considerate.errors import ClusterError, UsageError
from considerate.kernels.threads import available_threads
from considerate.storage.files import UNFINISHED_FOLDERS

logger = logging.getLogger("considerate")

ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",  # they are handled here; Ray would print them too
}
KNOCK = 10.0  # seconds
LOOPBACK = "127.0.0.2"  # Ray replaces 127.0.0.1 by an address that others can reach


@dataclass(frozen=True)
class RayBackend(PartitionedBackend):
    """Where a fit runs and how it is divided among workers. The posterior does not depend on any of it."""

    address: str | None = None  # of a cluster, or "auto"; None: RAY_ADDRESS, else a local Ray, stopped afterwards
    workers: int | None = None  # processes; None: one a node of a cluster, one a processor of a local Ray
    threads: int | None = None  # of each worker; None: the processors shared out
    max_restarts: int = 3  # of one worker, without a call finished in between
    patience: float = 120.0  # seconds to wait for room on the cluster

    def __post_init__(self) -> None:
        self.check_division()
        self.check_whole("workers", "threads")
        for name, kinds in (("max_restarts", int), ("patience", int | float)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, kinds) or not value >= 0:
                raise UsageError(f"{name} is {value!r}; it must be a number, 0 or more.")
        if self.address is not None and "://" in self.address:
            raise UsageError(
                f"address is {self.address!r}; a fit needs the cluster's own address, as HOST:6379 or 'auto' on one of "
                "its machines (`ray job submit` runs it there), not that of a Ray Client."
            )

    def open(self) -> RaySession:
        """Join the cluster or start a Ray, and reserve the room."""
        try:
            import ray  # noqa: F401
        except ImportError:
            raise UsageError("Ray is not installed; install it with: pip install 'considerate[ray]'") from None
        return RaySession(self)


class RaySession(ClosedAtEnd):
    """A Ray in use, see base.BackendSession. Closing it frees the workers; a Ray started here is stopped."""

    out_of_core = False

    def __init__(self, options: RayBackend) -> None:
        self.options = options
        self.started = self.joined = False
        self._pools: list[Any] = []
        self._group: Any = None
        self._session: str | None = None
        self._guard: CrashGuard | None = None
        self._heard: Callable[[], None] | None = None  # undoes the silence
        self._environment: dict[str, str | None] = {}  # as it was
        try:
            self._join()
            atexit.register(self.close)
            self.workers, self.threads = self._shares()
            self._reserve()
        except BaseException:
            self.close()
            raise
        self.tasks = RayTasks(self._group)

    def make_pool(self, build: Callable[[Any, Any], Any], setup: Any, parts: Sequence[Any], **options: Any) -> Any:
        """A RayPool: workers that hold build(part, setup) of all these parts, which may be references."""
        from considerate.distributed.ray.pool import RayPool

        made = RayPool(self, build, setup, parts, **options)
        self._pools.append(made)
        return made

    def sweep_report(self, pool: Any) -> str:
        """What the last sweep took."""
        words: str = pool.report().words()
        return words

    @property
    def memory(self) -> float | None:
        """Bytes that each worker may take: its share of the smallest machine, the object store included."""
        import ray

        places = self._places()
        found = [
            sum(node["Resources"].get(name, 0.0) for name in ("memory", "object_store_memory"))
            / places.count(node["NodeID"])
            for node in ray.nodes()
            if node["NodeID"] in places
        ]
        return min(found, default=0.0) or None

    def _places(self) -> list[str]:
        """The node of each worker."""
        from ray.util import placement_group_table

        return list(placement_group_table(self._group)["bundles_to_node_id"].values())

    def placed(self, bundle: int) -> Any:
        """The scheduling strategy of a worker in a bundle of the room that is reserved."""
        return in_group(self._group, bundle)

    def usable_bundle(self, own: int, taken: set[int]) -> int:
        """A worker's own bundle while its node is alive, else one that nobody has, else its own again: Ray may yet find
        another node for it."""
        import ray
        from ray.util import placement_group_table

        alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
        nodes = placement_group_table(self._group)["bundles_to_node_id"]
        usable = [bundle for bundle, node in nodes.items() if node in alive and bundle not in taken]
        return own if own in usable else next(iter(usable), own)

    def describe(self) -> str:
        """Where this runs, in a few words."""
        import ray

        where = f"a local Ray {ray.__version__}"
        if not self.started:
            where = f"Ray {ray.__version__} on {_count(len(_nodes()), 'node')}"
        return f"{where}: {_workers(self.workers, self.threads)}"

    def close(self) -> None:
        """Free the workers and the room; stop the Ray that was started here."""
        atexit.unregister(self.close)
        import ray

        while self._pools:
            self._pools.pop().close()
        group, self._group = self._group, None
        if group is not None and ray.is_initialized():
            from ray.util import remove_placement_group

            with suppress(ray.exceptions.RayError):  # a cluster that is gone has nothing to free
                remove_placement_group(group)
        if self.started or self.joined:
            started, self.started, self.joined = self.started, False, False
            ray.shutdown()
            if started and self._session is not None:
                shutil.rmtree(self._session, ignore_errors=True)
        if self._guard is not None:
            self._guard.close()
            self._guard = None
        heard, self._heard = self._heard, None
        if heard is not None:
            heard()
        for name in [name for name, value in self._environment.items() if value is None]:
            os.environ.pop(name, None)
        self._environment = {}

    def _join(self) -> None:
        """A Ray that this process is part of already is used as it is."""
        import ray

        for name in ENVIRONMENT:
            self._environment[name] = os.environ.get(name)
            os.environ.setdefault(name, ENVIRONMENT[name])
        if ray.is_initialized():
            return
        self._heard = _silence()
        address = self.options.address or os.environ.get("RAY_ADDRESS") or "local"
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        try:
            if address == "local":
                wanted = (self.options.workers or 1) * (self.options.threads or 1)
                loopback = LOOPBACK if sys.platform == "linux" else None
                self.started = True  # also if Ctrl-C comes while it starts
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
        import ray
        from ray.util import placement_group

        self._group = placement_group([{"CPU": self.threads}] * self.workers, strategy="SPREAD")
        ready, _ = ray.wait([self._group.ready()], timeout=self.options.patience)
        if not ready:
            nodes = _nodes()
            raise ClusterError(
                f"{_workers(self.workers, self.threads)} found no room within {self.options.patience:g} s on "
                f"{_count(len(nodes), 'node')} with {_count(sum(nodes), 'processor')}, {max(nodes, default=0)} on the "
                f"largest and {_free():g} free in all; ask for fewer workers or threads, or add nodes."
            )


def _answering(address: str) -> str:
    """The host of an address where something answers; Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if port.isdigit():
        with socket.create_connection((host.strip("[]"), int(port)), timeout=KNOCK):
            pass
    return host


def _silence() -> Callable[[], None]:
    """Ray prints that a worker died on stdout, which may be someone's JSON, whatever it was told about logs. A pool
    says it in its own words. What is given back ends the silence."""
    from ray._private import worker

    printed = getattr(worker, "print_to_stdstream", None)
    if printed is not None:
        worker.print_to_stdstream = lambda *_, **__: None

    def undo() -> None:
        if printed is not None:
            worker.print_to_stdstream = printed

    return undo


def _nodes() -> list[int]:
    """Processors of each node that has some."""
    import ray

    found = [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
    return sorted(cpus for cpus in found if cpus)


def _free() -> float:
    import ray

    return float(ray.available_resources().get("CPU", 0.0))


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _workers(workers: int, threads: int) -> str:
    return f"{_count(workers, 'worker')} of {_count(threads, 'thread')}"
