"""Worker pools: parts, and a way to call them. Here are the parts that live in one process.

A host knows how many changes its parts have seen, and keeps what they were before the last one. A call says how many
it expects, so a change that was made but whose answer never arrived is taken back and made again.
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
    """An argument with a value for each part, in the order of the parts."""

    values: Sequence[Any]


class WorkerPool(Protocol):
    """Parts, and a way to call them. Whoever sweeps knows no more of where they are."""

    parts: int

    def share(self, value: Any, keep: bool = False) -> Any:
        """A handle to a value that many calls use; it travels once. Where nothing travels, the value itself. A process
        may `keep` it until the pool is closed, and with it what its parts have made of it."""
        return value

    def call(self, method: Method, *arguments: Any, merge: Merge | None = None, changes: bool = False) -> Any:
        """part.<method>(*arguments), or method(part, *arguments), of every part; handles are resolved.

        With `merge` the merged answer, else a list in the order of the parts. `changes` says that the parts' state
        changes; a call that fails changes none.
        """
        ...

    def snapshot(self, write: Callable[[int, Any], Any], read: Callable[[int], Any] | None = None) -> list[Any]:
        """write(number, state) of every part, where the part is; `read(number)` must return that state later."""
        ...

    def name_checkpoint(self, name: str | None) -> None:
        """Set the folder of the last complete checkpoint, which errors name where parts can be lost alone."""
        return

    def close(self) -> None: ...


@dataclass(frozen=True)
class SinglePartCall:
    """A method of one part alone; of the others nothing is asked, and they answer None."""

    number: int
    method: str

    def __call__(self, part: Any, *arguments: Any) -> Any:
        return getattr(part, self.method)(*arguments) if part.number == self.number else None


def call_part(
    part: Any, method: Method, arguments: Sequence[Any], place: int, resolve: Callable[[Any], Any] | None = None
) -> Any:
    """part.<method>(*arguments), or method(part, *arguments); of a PerPart the value at `place`, resolved."""
    given = [one.values[place] if isinstance(one, PerPart) else one for one in arguments]
    if resolve is not None:
        given = [resolve(one) for one in given]
    return getattr(part, method)(*given) if isinstance(method, str) else method(part, *given)


# --- Parts in one process ---


@dataclass(frozen=True)
class CallTiming:
    """What a call took on one host."""

    seconds: float  # from its beginning to the merged answer
    parts: dict[int, float]  # seconds by the number of the part
    size: int = 0  # bytes of the answer, where it is sent


def size_of(value: Any) -> int:
    """Bytes that a value has when it is sent: its pickle, with the arrays beside it."""
    buffers: list[pickle.PickleBuffer] = []
    written = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return len(written) + sum(buffer.raw().nbytes for buffer in buffers)


def in_order(
    pool: ThreadPoolExecutor | None, threads: int, function: Callable[[Any], Any], tasks: Iterable[Any]
) -> Generator[Any]:
    """The results in the order of the tasks. Few are under way or waiting at once, as each may be large."""
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
        with held_interrupts():  # after a failure or Ctrl-C: no task is left running when states are restored
            for future in waiting:
                if not future.cancel():
                    future.exception()


def _first_result(waiting: deque[Future[Any]]) -> Any:
    """The result of the first task, which is one of `waiting` until it has ended, well or not."""
    try:
        return waiting[0].result()
    finally:
        if waiting[0].done():
            waiting.popleft()


class PartitionHost:
    """Some parts, called together by a pool of threads."""

    def __init__(self, parts: Mapping[int, Any], threads: int = 1, position: int = 0) -> None:
        self.parts, self.threads = dict(parts), threads
        self.position = position  # changes that the parts have seen
        self._before: dict[int, Any] | None = None  # their states before the last change
        self._pool = ThreadPoolExecutor(threads, "considerate-parts") if threads > 1 else None

    @classmethod
    def built(
        cls, build: Callable[[Any, Any], Any], setup: Any, given: Mapping[int, Any], threads: int = 1
    ) -> PartitionHost:
        """A host of build(given, setup) by number."""
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
        """(answer, work): part.<method>(*arguments), or method(part, *arguments), of every part.

        The answer is the merged one, or a list in the order of the parts. If a part fails, none has changed.
        """
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
        """What `write(number, state)` gave for each part."""
        self._rewind(position)
        return list(self._over_parts(lambda number, _: write(number, self.parts[number].state())))

    def restore(self, position: int, read: Callable[[int], Mapping[str, Any]]) -> None:
        """The parts as they were when they had seen so many changes."""
        for _ in self._over_parts(lambda number, _: self.parts[number].restore(read(number))):
            pass
        self._before, self.position = None, position

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def _rewind(self, position: int) -> None:
        """Take back the last change where whoever calls does not know of it."""
        if self.position == position + 1 and self._before is not None:
            self._restore(self._before)
            self._before, self.position = None, position
        if self.position != position:
            raise RuntimeError(f"the parts have seen {self.position} changes, not {position}")

    def _restore(self, states: Mapping[int, Any]) -> None:
        for number, state in states.items():
            self.parts[number].restore(state)

    def _over_parts(self, function: Callable[[int, int], Any]) -> Generator[Any]:
        """The results in the order of the parts."""
        tasks = list(enumerate(self.parts))
        return in_order(self._pool, self.threads, lambda task: function(task[1], task[0]), tasks)


class LocalPool(ClosedAtEnd, WorkerPool):
    """Parts in this process, called by threads."""

    def __init__(self, parts: Sequence[Any], threads: int = 1) -> None:
        self.parts = len(parts)
        self._host = PartitionHost(dict(enumerate(parts)), threads)

    def call(self, method: Method, *arguments: Any, merge: Merge | None = None, changes: bool = False) -> Any:
        return self._host.call(self._host.position, method, arguments, merge, changes)[0]

    def snapshot(self, write: Callable[[int, Any], Any], read: Callable[[int], Any] | None = None) -> list[Any]:
        return self._host.snapshot(self._host.position, write)

    def close(self) -> None:
        self._host.close()
