"""A crew on Ray: calls to all parts, their answers merged along a tree of workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from considerate.distributed.backends.crew import OfPart
from considerate.distributed.backends.host import Each, Merge, Work, size_of
from considerate.distributed.backends.ray_losses import losses, reason, reraise
from considerate.distributed.backends.ray_members import History, Member, Members
from considerate.distributed.backends.ray_worker import Call, Read, Write, nothing
from considerate.errors import ClusterError

STRAYS = 120  # looks for an answer that is out of reach while all seem alive; a dead node is known after seconds
PAUSE = 0.5  # seconds between them


@dataclass(frozen=True)
class Report:
    """What the calls since the last report took."""

    seconds: float
    workers: tuple[float, ...]  # seconds that each was at work
    slowest_worker: int
    slowest_part: int
    slowest_part_seconds: float
    down: int  # bytes sent to the workers' nodes
    up: int  # bytes of answers that moved: from worker to worker along the tree, and to the head
    replaced: int  # workers that were lost

    def words(self) -> str:
        """For a line of progress."""
        lost = f", {self.replaced} replaced" if self.replaced else ""
        return (
            f"slowest block {self.slowest_part} {self.slowest_part_seconds:.2f} s, worker {self.slowest_worker + 1} "
            f"{self.workers[self.slowest_worker]:.2f} s{lost}  {_bytes(self.down)} down, {_bytes(self.up)} up"
        )


@dataclass
class Shared:
    """A value that was put in the object store once."""

    ref: Any
    size: int
    sent: bool = False


class RayCrew:
    """See crew.Crew. `parts` may be references made by tasks: what a lost node held is then made again by Ray.

    `everyone` is given to every part of items as its `everyone`. `read(number)` gives the states to start from, and
    `checkpoint` names where they are kept.
    """

    def __init__(
        self,
        opened: Any,
        build: Callable[[Any, Any], Any],
        setup: Any,
        parts: Sequence[Any],
        *,
        everyone: Any = None,
        read: Read | None = None,
        checkpoint: str | None = None,
    ) -> None:
        self.parts = len(parts)
        self.members = Members(opened, build, setup, parts, everyone)
        self.members.history.read, self.members.checkpoint = read, checkpoint
        self._tasks = opened.tasks
        self._lost = losses()
        self._forget()
        self._answers(Call(0, nothing, ()), self.members.all)

    def share(self, value: Any) -> Shared:
        """A handle to a value that goes to each node once, however many calls use it."""
        return Shared(self._tasks.put(value), size_of(value))

    def name_checkpoint(self, name: str | None) -> None:
        """The last checkpoint that is whole: whoever must give up names it."""
        self.members.checkpoint = name

    def call(
        self,
        method: str | Callable[..., Any],
        *arguments: Any,
        merge: Merge | None = None,
        changes: bool = False,
    ) -> Any:
        """part.<method>(*arguments), or method(part, *arguments), of every part; see crew.Crew. An Each has another
        argument for every part, which may be a reference."""
        begun = time.perf_counter()
        plain = tuple(one.ref if isinstance(one, Shared) else one for one in arguments)
        call = Call(self.members.history.position, method, plain, merge, changes)
        answers = self._answers(call, self.members.all)
        value = self._gathered(call, answers)
        if changes:
            self.members.history.changes.append(call)
        self.members.finished()
        self._count(method, arguments, [work for work, _ in answers])
        self._seconds += time.perf_counter() - begun
        return value

    def snapshot(self, write: Write, read: Read | None = None) -> list[Any]:
        """What `write(number, state)` gave for each part, where the part lives. With `read`, which must give that
        state back for a number, anywhere, earlier changes are not replayed any more."""
        history = self.members.history
        written = self.members.each(lambda member: (member.actor.snapshot.remote(history.position, write), None))
        if read is not None:
            self.members.history = History(read, history.position)
        self.members.finished()
        return [one for some, _ in written for one in some]

    def report(self) -> Report:
        """What was done since the last report."""
        worker, part = int(np.argmax(self._worker_seconds)), int(np.argmax(self._part_seconds))
        made = Report(
            self._seconds,
            tuple(self._worker_seconds.tolist()),
            worker,
            part,
            float(self._part_seconds[part]),
            self._down,
            self._up,
            self.members.replaced,
        )
        self._forget()
        return made

    def close(self) -> None:
        """End the workers and drop what was kept for them."""
        self.members.close()

    def _answers(self, call: Call, among: Sequence[Member]) -> list[tuple[Work, Any]]:
        """(work, reference to the answer) of workers; the answer stays where it was made."""

        def submit(member: Member) -> tuple[Any, Any]:
            made = member.actor.call.options(num_returns=2)
            answer, work = made.remote(call.merge, call.changes, *call.sent_to(member.parts))
            return work, answer

        return self.members.each(submit, among)

    def _gathered(self, call: Call, answers: list[tuple[Work, Any]]) -> Any:
        """The answers here: merged, or one by one. Those that got lost on the way are made again."""
        import ray

        for _ in range(STRAYS):
            try:
                if call.merge is None:
                    self._up += sum(work.size for work, _ in answers)
                    return [one for some in ray.get([ref for _, ref in answers]) for one in some]
                return self._merged(call.merge, answers)
            except self._lost as error:
                missing = self.members.missing([ref for _, ref in answers])
                for member, why in missing:
                    self.members.lose(member, why)
                again = [member for member, _ in missing]
                for member, answer in zip(again, self._answers(call, again)):
                    answers[member.index] = answer
                last = error
                if not again:
                    time.sleep(PAUSE)
            except ray.exceptions.RayError as error:
                reraise(error)
        raise ClusterError(
            f"An answer of a worker cannot be fetched ({reason(last)}); {self.members.last_checkpoint()}"
        ) from last

    def _merged(self, merge: Merge, answers: Sequence[tuple[Work, Any]]) -> Any:
        """Pairs of workers merge their answers, then pairs of pairs; the last one comes here."""
        import ray

        level = [(member, ref, work.size) for member, (work, ref) in zip(self.members.all, answers)]
        moved: list[Any] = []  # sizes of what went from one process to another, or references to them
        while len(level) > 1:
            above: list[tuple[Member, Any, Any]] = []
            for (member, mine, _), (_, other, size) in zip(level[::2], level[1::2]):
                merged, merged_size = member.actor.merge.options(num_returns=2).remote(merge, mine, other)
                above.append((member, merged, merged_size))
                moved.append(size)
            level = above + level[2 * len(above) :]
        value = ray.get(level[0][1])
        self._up += sum(one if isinstance(one, int) else ray.get(one) for one in [*moved, level[0][2]])
        return value

    def _count(self, method: Any, arguments: Sequence[Any], works: Sequence[Work]) -> None:
        nodes, workers = (1, 1) if isinstance(method, OfPart) else (self.members.nodes(), len(works))
        for one in arguments:
            if isinstance(one, Shared):
                self._down += 0 if one.sent else one.size * nodes
                one.sent = True
            elif not isinstance(one, Each):
                self._down += size_of(one) * workers
        for member, work in zip(self.members.all, works):
            self._worker_seconds[member.index] += work.seconds
            for part, seconds in work.parts.items():
                self._part_seconds[part] += seconds

    def _forget(self) -> None:
        self._seconds, self._down, self._up = 0.0, 0, 0
        self._worker_seconds = np.zeros(len(self.members.all))
        self._part_seconds = np.zeros(self.parts)
        self.members.replaced = 0


def _bytes(size: int) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.2f} MB"
