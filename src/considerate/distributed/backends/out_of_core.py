"""Out of core: a fit on one machine to a graph larger than its memory. Parts and intermediate data are files.

A few parts are in memory at a time. A change writes the new state of every part next to the old one, and counts once
all are written. The state before it stays, so that a step can be undone. Files are mapped, so unused pages may leave
the memory.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency, GraphPart
from considerate.distributed.backends.base import PartitionedBackend
from considerate.distributed.pools import Merge, Method, SinglePartCall, WorkerPool, call_part, in_order
from considerate.distributed.tasks import ClosedAtEnd, SpillingTasks
from considerate.fitting.memory import available_memory
from considerate.kernels import compiled
from considerate.kernels.threads import available_threads
from considerate.storage.container import StoredTensors, open_tensors, write_scratch
from considerate.storage.files import PathLike
from considerate.storage.filesystems import scratch_folder

Build = Callable[..., Any]  # (graph part, setup, state or None, the state before or None) -> part


@dataclass(frozen=True)
class OutOfCore(PartitionedBackend):
    """A fit whose parts are on a disk, with one part a thread in memory."""

    folder: PathLike | None = None  # on a disk with room for two graphs; None: the system's temporary folder
    threads: int | None = None

    def __post_init__(self) -> None:
        self.check_division()
        self.check_whole("threads")

    def open(self) -> OutOfCoreSession:
        return OutOfCoreSession(self)


class OutOfCoreSession(ClosedAtEnd):
    """A folder in use, see options.BackendSession; closing it removes its files."""

    workers, out_of_core = 1, True

    def __init__(self, options: OutOfCore) -> None:
        self.threads = options.threads or available_threads()
        self.memory = available_memory()  # before data is read
        with ExitStack() as stack:
            self._folder = stack.enter_context(scratch_folder(options.folder))
            self.tasks = SpillingTasks(self._folder, self.threads)
            stack.callback(self.tasks.close)
            self._closing = stack.pop_all()

    def make_pool(
        self,
        build: Callable[..., Any],
        setup: Any,
        parts: Sequence[Any],
        *,
        all_user_likes: Any = None,
        edges: Sequence[int] | None = None,
    ) -> DiskPool:
        give_back_memory()  # used for reading
        liked = None if all_user_likes is None else self.tasks.get(all_user_likes)
        each = (replace(self.tasks.get(ref), all_user_likes=liked) for ref in parts)
        return DiskPool(self._folder, build, setup, each, self.threads, self._resolve)

    def _resolve(self, value: Any) -> Any:
        return self.tasks.get(value) if isinstance(value, Future) else value

    def describe(self) -> str:
        return f"this machine, out of core: parts in {self._folder}, {self.threads} of them in memory at a time"

    def close(self) -> None:
        self._closing.close()


def give_back_memory() -> None:
    """Return the memory that allocators keep to the system."""
    if (arrow := sys.modules.get("pyarrow")) is not None:
        arrow.default_memory_pool().release_unused()
    compiled.give_back_memory()


class DiskPool(ClosedAtEnd, WorkerPool):
    """Pool of parts on a disk, see pools.WorkerPool. `resolve` returns the value of an argument."""

    def __init__(
        self,
        folder: PathLike,
        build: Build,
        setup: Any,
        parts: Iterable[GraphPart],
        threads: int = 1,
        resolve: Callable[[Any], Any] | None = None,
    ) -> None:
        """Write the parts, each before the next is taken from the iterable."""
        self._build, self._setup, self._threads, self._resolve = build, setup, threads, resolve
        os.makedirs(folder, exist_ok=True)
        self.folder = Path(tempfile.mkdtemp(prefix="parts-", dir=folder))
        self._graphs: list[GraphPart] = []
        all_user_likes: Adjacency | None = None
        for part in parts:
            if part.all_user_likes is not None and all_user_likes is None:
                all_user_likes = self._write_edges("all-user-likes", part.all_user_likes)[0]
            likes, blocks = self._write_edges(f"graph-{part.number:04}", part.likes, part.blocks)
            self._graphs.append(GraphPart(part.number, part.first, likes, blocks, all_user_likes, part.known))
        self.parts = len(self._graphs)
        self._versions = [0] * self.parts  # changes of each part
        self._seconds = np.zeros(self.parts)  # of each part since the last report
        self._pool = ThreadPoolExecutor(threads, "considerate-parts") if threads > 1 else None

    def call(self, method: Method, *arguments: Any, merge: Merge | None = None, changes: bool = False) -> Any:
        called = [method.number] if isinstance(method, SinglePartCall) else range(self.parts)

        def visit_part(number: int) -> Any:
            begun, version = time.perf_counter(), self._versions[number]
            states = [self._state(number, version), self._state(number, version - 1)]
            part = self._build(self._graphs[number], self._setup, *states)
            answer = call_part(part, method, arguments, number, self._resolve)
            if changes:
                write_scratch(self._file(number, version + 1), part.state())
            del part, states
            compiled.give_back_memory()  # or each thread's allocator keeps the memory of the largest part
            self._seconds[number] += time.perf_counter() - begun
            return answer

        with closing(in_order(self._pool, self._threads, visit_part, called)) as answers:
            answer = list(answers) if merge is None else reduce(merge, answers)
        if changes:  # in one assignment: Ctrl-C finds all parts before the change, or all after it
            before = self._versions
            self._versions = [version + (number in called) for number, version in enumerate(before)]
            for number in called:
                self._remove(number, before[number] - 1)
        return answer

    def snapshot(self, write: Callable[[int, Any], Any], read: Callable[[int], Any] | None = None) -> list[Any]:
        """Call write(number, state) for every part."""
        written: list[Any] = self.call("keep", write)
        return written

    def report(self) -> str:
        """Line with the seconds of the slowest part since the last report, and the size of the states."""
        slowest = int(np.argmax(self._seconds))
        written = sum(os.path.getsize(self._file(part, version)) for part, version in enumerate(self._versions))
        text = f"slowest block {slowest} {self._seconds[slowest]:.2f} s  {written / 1e6:.2f} MB written"
        self._seconds[:] = 0.0
        return text

    def close(self) -> None:
        """Remove the files."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        for number, version in enumerate(self._versions):
            self._remove(number, version - 1, version, version + 1)
        for name in ["all-user-likes", *(f"graph-{part.number:04}" for part in self._graphs)]:
            with suppress(OSError):
                os.unlink(self.folder / f"{name}.safetensors")
        self._graphs = []
        with suppress(OSError):
            self.folder.rmdir()

    def _file(self, number: int, version: int) -> Path:
        return self.folder / f"state-{number:04}-{version}.safetensors"

    def _state(self, number: int, version: int) -> StoredTensors | None:
        path = self._file(number, version)
        return open_tensors(path, verify=False) if path.exists() else None

    def _remove(self, number: int, *versions: int) -> None:
        for version in versions:
            with suppress(OSError):
                os.unlink(self._file(number, version))

    def _write_edges(
        self, name: str, edges: Adjacency, blocks: NDArray[np.int64] | None = None
    ) -> tuple[Adjacency, NDArray[np.int64]]:
        """Write edges and blocks of rows to a file, and map it."""
        path = self.folder / f"{name}.safetensors"
        blocks = np.zeros(1, np.int64) if blocks is None else blocks
        weights = {} if edges.weights is None else {"weights": edges.weights}
        write_scratch(path, {"starts": edges.starts, "indices": edges.indices, "blocks": blocks, **weights})
        stored = open_tensors(path, verify=False)
        kappa = stored["weights"] if weights else None
        return Adjacency(stored["starts"], stored["indices"], kappa), stored["blocks"]
