"""The workers of a crew on Ray, kept alive: who is lost is replaced and brought to where the others are.

A new worker builds its parts again, restores them from the last snapshot, and replays the changes made since then
with the messages that were sent then. Parts are deterministic, so it ends with the bits that were lost.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from considerate.distributed.backends.ray_losses import losses, reason, reraise
from considerate.distributed.backends.ray_worker import Call, Kernels, Read, Seat, Worker
from considerate.errors import ClusterError

logger = logging.getLogger("considerate")

TICK = 0.5  # seconds between looks at workers that have not found room yet

Submit = Callable[["Member"], tuple[Any, Any]]


@dataclass
class Member:
    """A worker as the head knows it."""

    index: int
    parts: range
    actor: Any = None
    steps: list[Any] = field(default_factory=list)  # references: its seat, then what brings it up to date
    seat: Seat | None = None
    since: float = 0.0  # when it was asked for
    deaths: int = 0  # since a call was last finished


@dataclass
class History:
    """What a new worker must go through."""

    read: Read | None = None  # a part's state at the last snapshot; None: as it was built
    base: int = 0  # changes before the snapshot
    changes: list[Call] = field(default_factory=list)  # since then

    @property
    def position(self) -> int:
        return self.base + len(self.changes)


class Members:
    """One actor a worker, each with a run of consecutive parts."""

    def __init__(
        self, opened: Any, build: Callable[[Any, Any], Any], setup: Any, parts: Sequence[Any], everyone: Any = None
    ) -> None:
        import ray

        def referred(value: Any) -> Any:
            return value if isinstance(value, ray.ObjectRef) else opened.tasks.put(value)

        self._opened, self._build = opened, build
        self._setup = opened.tasks.put(setup)
        everyone = next((part.everyone for part in parts if getattr(part, "everyone", None) is not None), everyone)
        self._everyone = None if everyone is None else referred(everyone)  # which parts would hold once each
        self._given = [
            referred(replace(part, everyone=None) if getattr(part, "everyone", None) is not None else part)
            for part in parts
        ]
        self._kernels, self._lost = Kernels.here(), losses()
        self.history = History()
        self.checkpoint: str | None = None  # the last whole one, named where a fit must end
        self.replaced = 0
        self.closed = False
        cuts = np.linspace(0, len(parts), min(opened.workers, len(parts)) + 1).round().astype(int).tolist()
        self.all = [Member(i, range(a, b)) for i, (a, b) in enumerate(itertools.pairwise(cuts))]

    def each(self, submit: Submit, among: Iterable[Member] | None = None) -> list[tuple[Any, Any]]:
        """(result, other) of every worker: `submit` gives a reference to wait for and anything else. A worker that is
        lost is replaced and asked again."""
        import ray

        pending: dict[Any, tuple[Member, Any]] = {}
        done: dict[int, tuple[Any, Any]] = {}

        def ask(member: Member) -> None:
            if member.actor is None:
                self._start(member)
            ref, other = submit(member)
            pending[ref] = (member, other)

        asked = self.all if among is None else list(among)
        for member in asked:
            ask(member)
        while pending:
            ready, _ = ray.wait(list(pending), num_returns=1, timeout=TICK)
            for ref in ready:
                member, other = pending.pop(ref)
                try:
                    self._follow(member)
                    done[member.index] = (ray.get(ref), other)
                except self._lost as error:
                    self.lose(member, error)
                    ask(member)
                except ray.exceptions.RayError as error:
                    reraise(error)
            for member, _ in pending.values():
                self._look(member)
        return [done[member.index] for member in asked]

    def missing(self, answers: Sequence[Any]) -> list[tuple[Member, Exception]]:
        """Workers who are gone, or whose answer is."""
        import ray

        asked = [(member, member.actor.holds.remote(ref)) for member, ref in zip(self.all, answers)]
        found = []
        for member, ref in asked:
            try:
                ray.get(ref)
            except self._lost as error:
                found.append((member, error))
        return found

    def lose(self, member: Member, error: Exception) -> None:
        """A worker is gone. Too often without a call finished in between, and the fit ends."""
        member.deaths += 1
        self._end(member)
        if getattr(error, "actor_init_failed", False):
            raise ClusterError(
                f"A worker could not start: {reason(error)}. The same version of considerate must be installed on "
                "every machine of the cluster."
            ) from error
        self.replaced += 1
        if member.deaths > self._opened.options.max_restarts:
            raise ClusterError(
                f"Worker {member.index + 1} of {len(self.all)} was lost {member.deaths} times in a row "
                f"({reason(error)}), so the fit cannot go on; {self.last_checkpoint()}"
            ) from error
        logger.warning("worker %d of %d was lost (%s); it is replaced", member.index + 1, len(self.all), reason(error))

    def finished(self) -> None:
        """A call was finished: earlier losses are forgiven."""
        for member in self.all:
            member.deaths = 0

    def last_checkpoint(self) -> str:
        if self.checkpoint is None:
            return "there is no checkpoint to go on from, --checkpoint FOLDER would keep one."
        return f"the last checkpoint is {self.checkpoint}, go on from it with --resume."

    def nodes(self) -> int:
        """Nodes that have a worker."""
        return len({member.seat.node for member in self.all if member.seat is not None})

    def close(self) -> None:
        self.closed = True
        for member in self.all:
            self._end(member)
        self.history = History()
        self._given, self._setup, self._everyone = [], None, None

    def _start(self, member: Member) -> None:
        """Ask for a new worker and for all that it must do before it is where the others are."""
        import ray

        strategy = self._opened.placed(member.index)
        made: Any = ray.remote(Worker).options(num_cpus=0, max_restarts=0, scheduling_strategy=strategy)
        actor = made.remote(self._opened.threads)
        given = self._given[member.parts.start : member.parts.stop]
        steps = [
            actor.hello.remote(self._kernels),
            actor.load.remote(self._build, self._setup, self._everyone, member.parts.start, *given),
        ]
        if self.history.read is not None:
            steps.append(actor.restore.remote(self.history.base, self.history.read))
        steps += [actor.replay.remote(*change.sent_to(member.parts)) for change in self.history.changes]
        member.seat, member.since = None, time.monotonic()
        member.actor, member.steps = actor, steps

    def _follow(self, member: Member) -> None:
        """All steps were taken; raises what the first that failed raised."""
        import ray

        while member.steps:
            done = ray.get(member.steps[0])
            member.seat = done if isinstance(done, Seat) else member.seat
            member.steps.pop(0)

    def _look(self, member: Member) -> None:
        """A worker that finds no room in time ends the fit."""
        import ray

        if member.seat is not None or not member.steps or member.actor is None:
            return
        if ray.wait([member.steps[0]], timeout=0)[0]:
            return
        waited = time.monotonic() - member.since
        if waited > self._opened.options.patience:
            raise ClusterError(
                f"Worker {member.index + 1} of {len(self.all)} found no room on the cluster within "
                f"{self._opened.options.patience:g} s (it needs a node with {self._opened.threads} free "
                f"processor{'s' * (self._opened.threads > 1)}), "
                f"so the fit cannot go on; {self.last_checkpoint()}"
            )

    def _end(self, member: Member) -> None:
        import ray

        actor, member.actor, member.steps, member.seat = member.actor, None, [], None
        if actor is not None and ray.is_initialized():
            ray.kill(actor)
