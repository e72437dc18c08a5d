"""Out of core: one machine, a graph larger than its memory. Parts are files, and so is what is read on the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from considerate.distributed.backends.base import PartitionedBackend
from considerate.distributed.pools.disk import DiskPool
from considerate.distributed.tasks import ClosedAtEnd, SpillingTasks
from considerate.kernels.threads import available_threads
from considerate.storage.files import PathLike
from considerate.storage.scratch import scratch_folder


@dataclass(frozen=True)
class OutOfCore(PartitionedBackend):
    """A fit whose parts are on a disk: as many are in memory at a time as there are threads."""

    folder: PathLike | None = None  # on a disk with room for the graph twice; None: the system's temporary folder
    threads: int | None = None

    def __post_init__(self) -> None:
        self.check_division()
        self.check_whole("threads")

    def open(self) -> OutOfCoreSession:
        return OutOfCoreSession(self)


class OutOfCoreSession(ClosedAtEnd):
    """A folder in use, see base.BackendSession; closing it removes what was written there."""

    workers, out_of_core, memory = 1, True, None

    def __init__(self, options: OutOfCore) -> None:
        self.threads = options.threads or available_threads()
        with ExitStack() as closing:
            self._folder = closing.enter_context(scratch_folder(options.folder))
            self.tasks = SpillingTasks(self._folder, self.threads)
            closing.callback(self.tasks.close)
            self._closing = closing.pop_all()

    def make_pool(
        self, build: Callable[..., Any], setup: Any, parts: Sequence[Any], *, all_user_likes: Any = None
    ) -> DiskPool:
        liked = None if all_user_likes is None else self.tasks.get(all_user_likes)
        each = (replace(self.tasks.get(ref), all_user_likes=liked) for ref in parts)
        return DiskPool(self._folder, build, setup, each, self.threads, self._resolve)

    def _resolve(self, value: Any) -> Any:
        return self.tasks.get(value) if isinstance(value, Future) else value

    def sweep_report(self, pool: DiskPool) -> str:
        return pool.report()

    def describe(self) -> str:
        return f"this machine, out of core: parts in {self._folder}, {self.threads} of them in memory at a time"

    def close(self) -> None:
        self._closing.close()
