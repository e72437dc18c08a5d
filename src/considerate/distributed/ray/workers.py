"""Workers of a pool on Ray. A lost worker is replaced and brought up to date.

A new worker builds its parts again, restores them from the last snapshot, and replays the changes since then with
their original messages. Parts are deterministic, so it ends with the bits that were lost.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import ray

from considerate.distributed.assignment import Parts, assign_parts
from considerate.distributed.ray.actor import KernelSettings, PoolCall, RayWorker, ReadState, WorkerLocation
from considerate.distributed.ray.tasks import LOSSES, in_group, reason, reraise
from considerate.errors import ClusterError

logger = logging.getLogger("considerate")

TICK = 0.5  # seconds between checks of workers that have no room yet

Submit = Callable[["WorkerHandle"], tuple[Any, Any]]


@dataclass
class WorkerHandle:
    """A worker as the head knows it."""

    index: int
    parts: Parts
    actor: Any = None
    steps: list[Any] = field(default_factory=list)  # references: its location, then the calls that bring it up to date
    location: WorkerLocation | None = None
    requested: float = 0.0  # time of the request for it
    bundle: int = 0  # of the reserved room
    deaths: int = 0  # since the last finished call


@dataclass
class ReplayLog:
    """Snapshot and changes for a new worker."""

    read: ReadState | None = None  # reads a part's state at the last snapshot; None: there is no snapshot
    base: int = 0  # changes before the snapshot
    changes: list[PoolCall] = field(default_factory=list)  # since the snapshot

    @property
    def position(self) -> int:
        return self.base + len(self.changes)


class Workers:
    """One actor for each worker, with some parts in order."""

    def __init__(
        self,
        session: Any,
        build: Callable[[Any, Any], Any],
        setup: Any,
        parts: Sequence[Any],
        all_user_likes: Any = None,
        edges: Sequence[int] | None = None,
    ) -> None:
        """edges: of each part, for equal shares; None: all parts count the same."""

        def referred(value: Any) -> Any:
            return value if isinstance(value, ray.ObjectRef) else session.tasks.put(value)

        self._session, self._build = session, build
        self._setup = session.tasks.put(setup)
        held = [part.all_user_likes for part in parts if getattr(part, "all_user_likes", None) is not None]
        likes = held[0] if held else all_user_likes  # sent once, not with every part
        self._all_user_likes = None if likes is None else referred(likes)
        self._given = [referred(replace(part, all_user_likes=None) if held else part) for part in parts]
        self._kernels = KernelSettings.here()
        self.history = ReplayLog()
        self.checkpoint: str | None = None  # the last complete one, for error messages
        self.replaced = 0
        self.closed = False
        shares = assign_parts(edges or [1] * len(parts), session.workers)
        self.all = [WorkerHandle(i, held, bundle=i) for i, held in enumerate(shares)]

    def each(self, submit: Submit, among: Iterable[WorkerHandle] | None = None) -> list[tuple[Any, Any]]:
        """(result, other) of every worker; `submit` returns a reference to the result, and anything else. A lost worker
        is replaced and called again."""
        pending: dict[Any, tuple[WorkerHandle, Any]] = {}
        done: dict[int, tuple[Any, Any]] = {}

        def ask(handle: WorkerHandle) -> None:
            if handle.actor is None:
                self._start(handle)
            ref, other = submit(handle)
            pending[ref] = (handle, other)

        asked = self.all if among is None else list(among)
        for handle in asked:
            ask(handle)
        while pending:
            ready, _ = ray.wait(list(pending), num_returns=1, timeout=TICK)
            for ref in ready:
                handle, other = pending.pop(ref)
                try:
                    self._follow(handle)
                    done[handle.index] = (ray.get(ref), other)
                except LOSSES as error:
                    self.lose(handle, error)
                    ask(handle)
                except ray.exceptions.RayError as error:
                    reraise(error)
            for handle, _ in pending.values():
                self._look(handle)
        return [done[handle.index] for handle in asked]

    def missing(self, answers: Sequence[Any]) -> list[tuple[WorkerHandle, Exception]]:
        """Workers that are lost, or whose answer is lost."""
        asked = [(handle, handle.actor.holds.remote(ref)) for handle, ref in zip(self.all, answers)]
        gone = []
        for handle, ref in asked:
            try:
                ray.get(ref)
            except LOSSES as error:
                gone.append((handle, error))
        return gone

    def lose(self, handle: WorkerHandle, error: Exception) -> None:
        """Note the loss of a worker; raise if it was lost too often since the last finished call."""
        handle.deaths += 1
        self._end(handle)
        if getattr(error, "actor_init_failed", False):
            raise ClusterError(
                f"A worker could not start: {reason(error)}. The same version of considerate must be installed on "
                "every machine of the cluster."
            ) from error
        self.replaced += 1
        if handle.deaths > self._session.options.max_restarts:
            raise ClusterError(
                f"Worker {handle.index + 1} of {len(self.all)} was lost {handle.deaths} times in a row "
                f"({reason(error)}), so the fit cannot go on; {self.last_checkpoint()}"
            ) from error
        logger.warning("worker %d of %d was lost (%s); it is replaced", handle.index + 1, len(self.all), reason(error))

    def finished(self) -> None:
        """Note a finished call, which resets the count of losses."""
        for handle in self.all:
            handle.deaths = 0

    def last_checkpoint(self) -> str:
        if self.checkpoint is None:
            return "there is no checkpoint to go on from, --checkpoint FOLDER would keep one."
        return f"the last checkpoint is {self.checkpoint}, go on from it with --resume."

    def nodes(self) -> int:
        """Number of nodes with a worker."""
        return len({handle.location.node for handle in self.all if handle.location is not None})

    def close(self) -> None:
        self.closed = True
        for handle in self.all:
            self._end(handle)
        self.history = ReplayLog()
        self._given, self._setup, self._all_user_likes = [], None, None

    def _start(self, handle: WorkerHandle) -> None:
        """Request a new worker and the calls that bring it up to date."""
        handle.bundle = self._usable_bundle(handle)
        strategy = in_group(self._session.group, handle.bundle)
        options = {"num_cpus": 0, "max_restarts": 0, "scheduling_strategy": strategy}
        actor: Any = ray.remote(RayWorker).options(**options).remote(self._session.threads)
        given = [self._given[part] for part in handle.parts]
        steps = [
            actor.hello.remote(self._kernels),
            actor.load.remote(self._build, self._setup, self._all_user_likes, handle.parts, *given),
        ]
        if self.history.read is not None:
            steps.append(actor.restore.remote(self.history.base, self.history.read))
        steps += [actor.replay.remote(*change.sent_to(handle.parts)) for change in self.history.changes]
        handle.location, handle.requested = None, time.monotonic()
        handle.actor, handle.steps = actor, steps

    def _follow(self, handle: WorkerHandle) -> None:
        """Wait for all steps; raises the first error."""
        while handle.steps:
            done = ray.get(handle.steps[0])
            handle.location = done if isinstance(done, WorkerLocation) else handle.location
            handle.steps.pop(0)

    def _usable_bundle(self, handle: WorkerHandle) -> int:
        taken = {other.bundle for other in self.all if other is not handle}
        return int(self._session.usable_bundle(handle.bundle, taken))

    def _look(self, handle: WorkerHandle) -> None:
        """Raise if a worker finds no room in time."""
        if handle.location is not None or not handle.steps or handle.actor is None:
            return
        if ray.wait([handle.steps[0]], timeout=0)[0]:
            return
        if self._usable_bundle(handle) != handle.bundle:
            ray.kill(handle.actor)  # its node died before the start; it is requested again in a free bundle
            return
        waited = time.monotonic() - handle.requested
        if waited > self._session.options.patience:
            raise ClusterError(
                f"Worker {handle.index + 1} of {len(self.all)} found no room on the cluster within "
                f"{self._session.options.patience:g} s (it needs a node with {self._session.threads} free "
                f"processor{'s' * (self._session.threads > 1)}), "
                f"so the fit cannot go on; {self.last_checkpoint()}"
            )

    def _end(self, handle: WorkerHandle) -> None:
        actor, handle.actor, handle.steps, handle.location = handle.actor, None, [], None
        if actor is not None and ray.is_initialized():
            ray.kill(actor)
