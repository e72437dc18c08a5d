"""A pool on Ray: calls to all parts, their answers merged along a tree of workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import ray
from numpy.typing import NDArray

from considerate.distributed.assignment import merge_rounds
from considerate.distributed.pools import CallTiming, Merge, Method, PerPart, SinglePartCall, size_of
from considerate.distributed.ray.actor import KeptValue, PoolCall, ReadState, WriteState, nothing
from considerate.distributed.ray.tasks import LOSSES, reason, reraise
from considerate.distributed.ray.workers import ReplayLog, WorkerHandle, Workers
from considerate.errors import ClusterError

STRAYS = 120  # looks for an answer that is out of reach while all seem alive; a dead node is known after seconds
PAUSE = 0.5  # seconds between them


@dataclass
class PoolReport:
    """What the calls since the last report took."""

    workers: NDArray[np.float64]  # seconds that each worker was at work
    parts: NDArray[np.float64]  # and each part
    seconds: float = 0.0
    down: int = 0  # bytes sent to the workers' nodes
    up: int = 0  # bytes of answers that moved: from worker to worker along the tree, and to the head
    replaced: int = 0  # workers that were lost

    def words(self) -> str:
        """For a line of progress."""
        worker, part = int(np.argmax(self.workers)), int(np.argmax(self.parts))
        lost = f", {self.replaced} replaced" if self.replaced else ""
        return (
            f"slowest block {part} {self.parts[part]:.2f} s, worker {worker + 1} {self.workers[worker]:.2f} s{lost}  "
            f"{_bytes(self.down)} down, {_bytes(self.up)} up"
        )


@dataclass
class SharedValue:
    """A value that was put in the object store once."""

    ref: Any  # what is sent in its place
    size: int
    sent: bool = False


class RayPool:
    """See pools.WorkerPool. `parts` may be references made by tasks: what a lost node held is then made again by Ray.

    Every part of items is given `all_user_likes`. Workers have about as many `edges` each. `read(number)` returns the
    states to start from, and `checkpoint` names their folder.
    """

    def __init__(
        self,
        session: Any,
        build: Callable[[Any, Any], Any],
        setup: Any,
        parts: Sequence[Any],
        *,
        all_user_likes: Any = None,
        edges: Sequence[int] | None = None,
        read: ReadState | None = None,
        checkpoint: str | None = None,
    ) -> None:
        self.parts = len(parts)
        self.workers = Workers(session, build, setup, parts, all_user_likes, edges)
        self.workers.history.read, self.workers.checkpoint = read, checkpoint
        self._tasks = session.tasks
        self._begin_report()
        self._answers(PoolCall(0, nothing, ()), self.workers.all)

    def share(self, value: Any, keep: bool = False) -> SharedValue:
        """A handle to a value that goes to each node once, however many calls use it. Its arrays are those of the
        node's object store; the object is made for each call, or if workers `keep` it once for each of them."""
        ref = self._tasks.put(value)
        return SharedValue(KeptValue(ref) if keep else ref, size_of(value))

    def name_checkpoint(self, name: str | None) -> None:
        """The last checkpoint that is whole: whoever must give up names it."""
        self.workers.checkpoint = name

    def call(self, method: Method, *arguments: Any, merge: Merge | None = None, changes: bool = False) -> Any:
        """See pools.WorkerPool. The values of a PerPart may be references."""
        begun = time.perf_counter()
        plain = tuple(one.ref if isinstance(one, SharedValue) else one for one in arguments)
        call = PoolCall(self.workers.history.position, method, plain, merge, changes)
        answers = self._answers(call, self.workers.all)
        value = self._gathered(call, answers)
        if changes:
            self.workers.history.changes.append(call)
        self.workers.finished()
        self._count(method, arguments, [work for work, _ in answers])
        self._report.seconds += time.perf_counter() - begun
        return value

    def snapshot(self, write: WriteState, read: ReadState | None = None) -> list[Any]:
        """What `write(number, state)` gave for each part, where the part lives. With `read`, which must give that
        state back for a number, anywhere, earlier changes are not replayed any more."""
        history = self.workers.history
        written = self.workers.each(lambda handle: (handle.actor.snapshot.remote(history.position, write), None))
        if read is not None:
            self.workers.history = ReplayLog(read, history.position)
        self.workers.finished()
        return self._in_order([some for some, _ in written])

    def report(self) -> PoolReport:
        """What was done since the last report."""
        report = replace(self._report, replaced=self.workers.replaced)
        self._begin_report()
        return report

    def close(self) -> None:
        """End the workers and drop what was kept for them."""
        self.workers.close()

    def _answers(self, call: PoolCall, among: Sequence[WorkerHandle]) -> list[tuple[CallTiming, Any]]:
        """(work, reference to the answer) of workers; the answer stays where it was made."""

        def submit(handle: WorkerHandle) -> tuple[Any, Any]:
            made = handle.actor.call.options(num_returns=2)
            answer, work = made.remote(call.merge, call.changes, *call.sent_to(handle.parts))
            return work, answer

        return self.workers.each(submit, among)

    def _gathered(self, call: PoolCall, answers: list[tuple[CallTiming, Any]]) -> Any:
        """The answers here: merged, or one by one. Those that got lost on the way are made again."""
        for _ in range(STRAYS):
            try:
                if call.merge is None:
                    self._report.up += sum(work.size for work, _ in answers)
                    return self._in_order(ray.get([ref for _, ref in answers]))
                return self._merged(call.merge, answers)
            except LOSSES as error:
                missing = self.workers.missing([ref for _, ref in answers])
                for handle, why in missing:
                    self.workers.lose(handle, why)
                again = [handle for handle, _ in missing]
                for handle, answer in zip(again, self._answers(call, again)):
                    answers[handle.index] = answer
                last = error
                if not again:
                    time.sleep(PAUSE)
            except ray.exceptions.RayError as error:
                reraise(error)
        raise ClusterError(
            f"An answer of a worker cannot be fetched ({reason(last)}); {self.workers.last_checkpoint()}"
        ) from last

    def _merged(self, merge: Merge, answers: Sequence[tuple[CallTiming, Any]]) -> Any:
        """Pairs of workers merge their answers, then pairs of pairs; the last one comes here."""
        merged: list[tuple[Any, Any]] = [(ref, work.size) for work, ref in answers]  # and sizes, or references to them
        moved: list[Any] = []  # sizes of what went from one process to another
        for pairs in merge_rounds(len(merged)):
            for merger, sender in pairs:
                actor, (other, size) = self.workers.all[merger].actor, merged[sender]
                merged[merger] = actor.merge.options(num_returns=2).remote(merge, merged[merger][0], other)
                merged[sender] = (None, 0)  # an answer is let go when it is merged
                moved.append(size)
        value = ray.get(merged[0][0])
        self._report.up += sum(one if isinstance(one, int) else ray.get(one) for one in [*moved, merged[0][1]])
        return value

    def _in_order(self, answers: Sequence[Sequence[Any]]) -> list[Any]:
        """What workers answered of each of their parts, in the order of the parts."""
        held = zip(self.workers.all, answers)
        by_part = {part: one for handle, some in held for part, one in zip(handle.parts, some)}
        return [by_part[part] for part in range(self.parts)]

    def _count(self, method: Any, arguments: Sequence[Any], works: Sequence[CallTiming]) -> None:
        nodes, workers = (1, 1) if isinstance(method, SinglePartCall) else (self.workers.nodes(), len(works))
        for one in arguments:
            if isinstance(one, SharedValue):
                self._report.down += 0 if one.sent else one.size * nodes
                one.sent = True
            elif not isinstance(one, PerPart):
                self._report.down += size_of(one) * workers
        for handle, work in zip(self.workers.all, works):
            self._report.workers[handle.index] += work.seconds
            for part, seconds in work.parts.items():
                self._report.parts[part] += seconds

    def _begin_report(self) -> None:
        self._report = PoolReport(np.zeros(len(self.workers.all)), np.zeros(self.parts))
        self.workers.replaced = 0


def _bytes(size: int) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.2f} MB"
