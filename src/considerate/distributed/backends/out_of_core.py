"""Out of core: one machine, a graph larger than its memory. Parts are files, and so is what is read on the way."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from considerate.data.graph import GraphPart
from considerate.distributed.backends.base import PartitionedBackend
from considerate.distributed.pools.disk import DiskPool
from considerate.distributed.pools.host import Merge, PerPart
from considerate.distributed.pools.pool import SinglePartCall
from considerate.distributed.spilling import SpillingTasks
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


class OutOfCoreSession:
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
    ) -> TimedDiskPool:
        liked = None if all_user_likes is None else self.tasks.get(all_user_likes)

        def each() -> Iterator[GraphPart]:
            for ref in parts:
                yield replace(self.tasks.get(ref), all_user_likes=liked)

        return TimedDiskPool(self._folder, build, setup, each(), self.threads, self.tasks.get)

    def sweep_report(self, pool: TimedDiskPool) -> str:
        return pool.report()

    def describe(self) -> str:
        return f"this machine, out of core: parts in {self._folder}, {self.threads} of them in memory at a time"

    def close(self) -> None:
        self._closing.close()

    def __enter__(self) -> OutOfCoreSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class TimedDiskPool(DiskPool):
    """Parts in files, and what a fit asks of a pool beside its calls. An argument may be a PerPart, whose values may be
    references of tasks."""

    def __init__(
        self,
        folder: PathLike,
        build: Callable[..., Any],
        setup: Any,
        parts: Iterator[GraphPart],
        threads: int,
        get: Callable[[Any], Any],
    ) -> None:
        super().__init__(folder, build, setup, parts, threads)
        self._get = get
        self._seconds = np.zeros(self.parts)

    def call(
        self,
        method: str | Callable[..., Any],
        *arguments: Any,
        merge: Merge | None = None,
        changes: bool = False,
    ) -> Any:
        if not isinstance(method, SinglePartCall):
            method, arguments = partial(self._one, method, arguments), ()
        return super().call(method, *arguments, merge=merge, changes=changes)

    def name_checkpoint(self, name: str | None) -> None:
        """Nobody here is lost without the rest."""

    def report(self) -> str:
        """What the calls since the last report took, the parts' states written once."""
        slowest = int(np.argmax(self._seconds))
        written = sum(os.path.getsize(self._file(part, version)) for part, version in enumerate(self._versions))
        words = f"slowest block {slowest} {self._seconds[slowest]:.2f} s  {written / 1e6:.2f} MB written"
        self._seconds[:] = 0.0
        return words

    def _one(self, method: str | Callable[..., Any], arguments: Sequence[Any], part: Any) -> Any:
        begun = time.perf_counter()
        given = [self._get(one.values[part.number]) if isinstance(one, PerPart) else one for one in arguments]
        answer = getattr(part, method)(*given) if isinstance(method, str) else method(part, *given)
        self._seconds[part.number] += time.perf_counter() - begun
        return answer
