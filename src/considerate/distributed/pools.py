"""Worker pools, which hold parts and call them; and the pool of one process.

A host counts the changes of its parts and keeps their states before the last one. A call gives the count that it
expects, so a change whose answer was lost is undone and made again.
"""

from __future__ import annotations

import pickle
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import reduce
from typing import Any, Protocol

from considerate.distributed.tasks import ClosedAtEnd
from considerate.fitting.stopping import held_interrupts

Merge = Callable[[Any, Any], Any]
Method = str | Callable[..., Any]


@dataclass(frozen=True)
class PerPart:
    """Argument with one value for each part, in order."""

    values: Sequence[Any]


class WorkerPool(Protocol):
    """Parts, and a way to call them. A runner knows no more about their place."""

    parts: int

    def share(self, value: Any, keep: bool = False) -> Any:
        """Handle to a value that many calls use, which travels once; the value itself if nothing travels. With `keep`,
        a process keeps the value and everything derived from it until the pool is closed."""
        return value

    def call(self, method: Method, *arguments: Any, merge: Merge | None = None, changes: bool = False) -> Any:
        """Call part.<method>(*arguments), or method(part, *arguments), for every part; handles are resolved.

        Returns the merged answer with `merge`, else a list in the order of the parts. `changes`: the call changes the
        state of the parts; a call that fails changes none.
        """
        ...

    def snapshot(self, write: Callable[[int, Any], Any], read: Callable[[int], Any] | None = None) -> list[Any]:
        """Call write(number, state) for every part, where it is; `read(number)` must return that state later."""
        ...

    def report(self) -> Any:
        """Cost of the calls since the last report; its text is for the progress line."""
        return ""

    def name_checkpoint(self, name: str | None) -> None:
        """Set the folder of the last complete checkpoint, for error messages after a loss of parts."""
        return

    def close(self) -> None: ...


@dataclass(frozen=True)
class SinglePartCall:
    """A method of one part alone. The other parts answer None."""

    number: int
    method: Method

    def __call__(self, part: Any, *arguments: Any) -> Any:
        return call_part(part, self.method, arguments, 0) if part.number == self.number else None


def call_part(
    part: Any, method: Method, arguments: Sequence[Any], place: int, resolve: Callable[[Any], Any] | None = None
) -> Any:
    """Call part.<method>(*arguments), or method(part, *arguments), with the value at `place` of each PerPart."""
    given = [one.values[place] if isinstance(one, PerPart) else one for one in arguments]
    if resolve is not None:
        given = [resolve(one) for one in given]
    return getattr(part, method)(*given) if isinstance(method, str) else method(part, *given)


# --- Parts in one process ---


@dataclass(frozen=True)
class CallTiming:
    """Cost of a call on one host."""

    seconds: float  # until the merged answer
    parts: dict[int, float]  # seconds by part
    size: int = 0  # bytes of the answer, if it is sent


def size_of(value: Any) -> int:
    """Bytes of a value that is sent: its pickle and its arrays."""
    buffers: list[pickle.PickleBuffer] = []
    written = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return len(written) + sum(buffer.raw().nbytes for buffer in buffers)


def in_order(
    pool: ThreadPoolExecutor | None, threads: int, function: Callable[[Any], Any], tasks: Iterable[Any]
) -> Generator[Any]:
    """Results in the order of the tasks. Few run or wait at a time, as each may be large."""
    if pool is None:
        yield from (function(task) for task in tasks)
        return
    waiting: deque[Future[Any]] = deque()
    try:
        for task in tasks:
            with held_interrupts():
                waiting.append(pool.submit(function, task))
            if len(waiting) > threads:
                yield _first_result(waiting)
        while waiting:
            yield _first_result(waiting)
    finally:
        with held_interrupts():  # after a failure or Ctrl-C: no task may run while states are restored
            for future in waiting:
                if not future.cancel():
                    future.exception()


def _first_result(waiting: deque[Future[Any]]) -> Any:
    """Result of the first task, which stays in `waiting` until it has finished or failed."""
    try:
        return waiting[0].result()
    finally:
        if waiting[0].done():
            waiting.popleft()


class PartitionHost:
    """Parts of one process, called by a pool of threads."""

    def __init__(self, parts: Mapping[int, Any], threads: int = 1, position: int = 0) -> None:
        self.parts, self.threads = dict(parts), threads
        self.position = position  # changes so far
        self._before: dict[int, Any] | None = None  # states before the last change
        self._pool = ThreadPoolExecutor(threads, "considerate-parts") if threads > 1 else None

    @classmethod
    def built(
        cls, build: Callable[[Any, Any], Any], setup: Any, given: Mapping[int, Any], threads: int = 1
    ) -> PartitionHost:
        """Build a host of build(given, setup), by number."""
        host = cls(given, threads)
        with closing(host._over_parts(lambda number, _: build(given[number], setup))) as parts:
            host.parts = dict(zip(given, list(parts)))
        return host

    def call(
        self,
        position: int,
        method: Method,
        arguments: Sequence[Any] = (),
        merge: Merge | None = None,
        changes: bool = False,
    ) -> tuple[Any, CallTiming]:
        """(answer, timing) of a call, see WorkerPool.call. If a part fails, none has changed."""
        begun = time.perf_counter()
        self._rewind(position)
        seconds: dict[int, float] = {}

        def timed(number: int, place: int) -> Any:
            started = time.perf_counter()
            answer = call_part(self.parts[number], method, arguments, place)
            seconds[number] = time.perf_counter() - started
            return answer

        before = None
        if changes:
            before = self._before = {number: part.state() for number, part in self.parts.items()}
        try:
            with closing(self._over_parts(timed)) as answers:
                answer = list(answers) if merge is None else reduce(merge, answers)
            if changes:
                self.position = position + 1
        except BaseException:
            if before is not None:
                with held_interrupts():
                    self._restore(before)
                    self._before, self.position = None, position
            raise
        return answer, CallTiming(time.perf_counter() - begun, seconds)

    def snapshot(self, position: int, write: Callable[[int, Mapping[str, Any]], Any]) -> list[Any]:
        """Results of `write(number, state)` for each part."""
        self._rewind(position)
        return list(self._over_parts(lambda number, _: write(number, self.parts[number].state())))

    def restore(self, position: int, read: Callable[[int], Mapping[str, Any]]) -> None:
        """Restore the parts as they were after `position` changes."""
        for _ in self._over_parts(lambda number, _: self.parts[number].restore(read(number))):
            pass
        self._before, self.position = None, position

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def _rewind(self, position: int) -> None:
        """Undo the last change if the caller does not know of it."""
        if self.position == position + 1 and self._before is not None:
            self._restore(self._before)
            self._before, self.position = None, position
        if self.position != position:
            raise RuntimeError(f"the parts have seen {self.position} changes, not {position}")

    def _restore(self, states: Mapping[int, Any]) -> None:
        for number, state in states.items():
            self.parts[number].restore(state)

    def _over_parts(self, function: Callable[[int, int], Any]) -> Generator[Any]:
        """Results in the order of the parts."""
        tasks = list(enumerate(self.parts))
        return in_order(self._pool, self.threads, lambda task: function(task[1], task[0]), tasks)


class LocalPool(ClosedAtEnd, WorkerPool):
    """Pool of parts in this process."""

    def __init__(self, parts: Sequence[Any], threads: int = 1) -> None:
        self.parts = len(parts)
        self._host = PartitionHost(dict(enumerate(parts)), threads)

    def call(self, method: Method, *arguments: Any, merge: Merge | None = None, changes: bool = False) -> Any:
        return self._host.call(self._host.position, method, arguments, merge, changes)[0]

    def snapshot(self, write: Callable[[int, Any], Any], read: Callable[[int], Any] | None = None) -> list[Any]:
        return self._host.snapshot(self._host.position, write)

    def close(self) -> None:
        self._host.close()
