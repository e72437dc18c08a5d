"""Pool on Ray: calls to all parts, whose answers are merged along a tree of workers."""

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

STRAYS = 120  # attempts to fetch an answer while all workers seem alive; a dead node is known after seconds
PAUSE = 0.5  # seconds between attempts


@dataclass
class PoolReport:
    """Cost of the calls since the last report."""

    workers: NDArray[np.float64]  # seconds of each worker
    parts: NDArray[np.float64]  # seconds of each part
    seconds: float = 0.0
    down: int = 0  # bytes sent to the workers' nodes
    up: int = 0  # bytes of answers sent from worker to worker along the tree, and to the head
    replaced: int = 0  # lost workers

    def __str__(self) -> str:
        """Text for the progress line."""
        worker, part = int(np.argmax(self.workers)), int(np.argmax(self.parts))
        lost = f", {self.replaced} replaced" if self.replaced else ""
        return (
            f"slowest block {part} {self.parts[part]:.2f} s, worker {worker + 1} {self.workers[worker]:.2f} s{lost}  "
            f"{_bytes(self.down)} down, {_bytes(self.up)} up"
        )


@dataclass
class SharedValue:
    """Value in the object store."""

    ref: Any  # sent in its place
    size: int
    sent: bool = False


class RayPool:
    """Pool on Ray, see pools.WorkerPool. `parts` may be references to results of tasks, which Ray makes again after the
    loss of a node.

    Every part of items gets `all_user_likes`. Workers get about equal shares of `edges`. `read(number)` returns the
    first states, and `checkpoint` names their folder.
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
        """Handle to a value that goes to each node once. Its arrays stay in the node's object store; the object is made
        for each call, or once for each worker with `keep`."""
        ref = self._tasks.put(value)
        return SharedValue(KeptValue(ref) if keep else ref, size_of(value))

    def name_checkpoint(self, name: str | None) -> None:
        """Set the folder of the last complete checkpoint, for error messages."""
        self.workers.checkpoint = name

    def call(self, method: Method, *arguments: Any, merge: Merge | None = None, changes: bool = False) -> Any:
        """Call all parts, see pools.WorkerPool. The values of a PerPart may be references."""
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
        """Results of `write(number, state)` for each part, called where the part lives. With `read`, which must return
        that state on any machine, earlier changes are not replayed any more."""
        history = self.workers.history
        written = self.workers.each(lambda handle: (handle.actor.snapshot.remote(history.position, write), None))
        if read is not None:
            self.workers.history = ReplayLog(read, history.position)
        self.workers.finished()
        return self._in_order([some for some, _ in written])

    def report(self) -> PoolReport:
        """Report of the calls since the last report."""
        report = replace(self._report, replaced=self.workers.replaced)
        self._begin_report()
        return report

    def close(self) -> None:
        """End the workers and drop the values kept for them."""
        self.workers.close()

    def _answers(self, call: PoolCall, among: Sequence[WorkerHandle]) -> list[tuple[CallTiming, Any]]:
        """(timing, reference to the answer) of each worker; the answers stay with the workers."""

        def submit(handle: WorkerHandle) -> tuple[Any, Any]:
            made = handle.actor.call.options(num_returns=2)
            answer, work = made.remote(call.merge, call.changes, *call.sent_to(handle.parts))
            return work, answer

        return self.workers.each(submit, among)

    def _gathered(self, call: PoolCall, answers: list[tuple[CallTiming, Any]]) -> Any:
        """Fetch the answers, merged or one by one. Lost answers are made again."""
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
        """Merge the answers of pairs of workers, then of pairs of pairs, and fetch the last one."""
        merged: list[tuple[Any, Any]] = [(ref, work.size) for work, ref in answers]  # sizes may be references
        moved: list[Any] = []  # sizes of the answers that were sent
        for pairs in merge_rounds(len(merged)):
            for merger, sender in pairs:
                actor, (other, size) = self.workers.all[merger].actor, merged[sender]
                merged[merger] = actor.merge.options(num_returns=2).remote(merge, merged[merger][0], other)
                merged[sender] = (None, 0)  # frees the merged answer
                moved.append(size)
        value = ray.get(merged[0][0])
        self._report.up += sum(one if isinstance(one, int) else ray.get(one) for one in [*moved, merged[0][1]])
        return value

    def _in_order(self, answers: Sequence[Sequence[Any]]) -> list[Any]:
        """Answers of the parts, in order, from the answers of the workers."""
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
