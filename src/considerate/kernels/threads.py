"""Threads that map a function over blocks. The kernels release the GIL."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, Protocol, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


class Backend(Protocol):
    """Anything that maps a function over blocks; results have the order of the tasks."""

    def map(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]: ...


class locked_cached_property(cached_property[Result]):
    """A cached property that threads share: the first thread computes it, and the others wait."""

    def __init__(self, make: Callable[[Any], Result]) -> None:
        super().__init__(make)
        self._making = threading.RLock()

    def __get__(self, instance: Any, owner: Any = None) -> Result:  # type: ignore[override]
        with self._making:
            return super().__get__(instance, owner)  # type: ignore[no-any-return]


def available_threads() -> int:
    """Number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class LocalBackend:
    """A pool of threads; with one thread, tasks run in the calling thread."""

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads or available_threads()
        self._pool = ThreadPoolExecutor(self.threads, "considerate") if self.threads > 1 else None

    def map(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
        if self._pool is None or len(tasks) < 2:
            return [function(task) for task in tasks]
        return list(self._pool.map(function, tasks))

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> LocalBackend:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
