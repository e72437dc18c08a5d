"""Actor of a pool on Ray: a host in a process of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ray

from considerate._version import __version__
from considerate.distributed.pools import CallTiming, Merge, Method, PartitionHost, PerPart, SinglePartCall, size_of
from considerate.distributed.ray.tasks import unflatten
from considerate.errors import ClusterError
from considerate.kernels import compiled

ReadState = Callable[[int], Mapping[str, Any]]
WriteState = Callable[[int, Mapping[str, Any]], Any]


@dataclass(frozen=True)
class KernelSettings:
    """Settings of the kernels. They must be equal everywhere, or bits would differ."""

    instruction_set: str
    together: int  # factors stepped together
    version: str  # of this library

    @classmethod
    def here(cls) -> KernelSettings:
        together = compiled.step_together(8)
        compiled.step_together(together)
        return cls(compiled.instruction_set(), together, __version__)

    def use(self) -> None:
        if self.version != __version__:
            raise ClusterError(
                f"A machine of the cluster has considerate {__version__} and the head has {self.version}; install the "
                "same version on all of them."
            )
        if self.instruction_set not in compiled.instruction_sets():
            raise ClusterError(
                f"A machine of the cluster cannot run the {self.instruction_set} kernels of the head, and others would "
                "give other bits; call considerate.kernels.compiled.use_instruction_set('baseline') before the fit."
            )
        compiled.use_instruction_set(self.instruction_set)
        compiled.step_together(self.together)


@dataclass(frozen=True)
class WorkerLocation:
    """Place of a worker."""

    node: str
    pid: int


@dataclass(frozen=True)
class PoolCall:
    """A call that can be repeated: shared values are references."""

    position: int  # changes of the parts before it
    method: Method
    arguments: tuple[Any, ...]
    merge: Merge | None = None
    changes: bool = False

    def sent_to(self, parts: Sequence[int]) -> list[Any]:
        """Position, method, layout and flat arguments for the worker with these parts."""
        if isinstance(self.method, SinglePartCall) and self.method.number not in parts:
            return [self.position, nothing, []]  # the message need not travel
        layout: list[int] = []
        given: list[Any] = []
        for one in self.arguments:
            mine = [one.values[part] for part in parts] if isinstance(one, PerPart) else [one]
            layout.append(len(mine) if isinstance(one, PerPart) else -1)
            given += mine
        return [self.position, self.method, layout, *given]


@dataclass(frozen=True)
class KeptValue:
    """Argument that a worker fetches once and keeps."""

    ref: Any


class RayWorker:
    """Worker process with some parts; the head calls its methods."""

    host: PartitionHost

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._kept: dict[Any, Any] = {}  # values by reference

    def hello(self, kernels: KernelSettings) -> WorkerLocation:
        kernels.use()
        return WorkerLocation(ray.get_runtime_context().get_node_id(), os.getpid())

    def load(
        self, build: Callable[[Any, Any], Any], setup: Any, all_user_likes: Any, numbers: Sequence[int], *given: Any
    ) -> None:
        """Build the parts with these numbers. Parts of items share `all_user_likes`."""
        parts = given if all_user_likes is None else [replace(part, all_user_likes=all_user_likes) for part in given]
        self.host = PartitionHost.built(build, setup, dict(zip(numbers, parts)), self._threads)

    def restore(self, position: int, read: ReadState) -> None:
        self.host.restore(position, read)

    def replay(self, position: int, method: Any, layout: Sequence[int], *given: Any) -> None:
        """Repeat a change; nobody waits for its answer."""
        self.host.call(position, method, self._arguments(layout, given), _first, changes=True)

    def call(
        self, merge: Merge | None, changes: bool, position: int, method: Any, layout: Sequence[int], *given: Any
    ) -> tuple[Any, CallTiming]:
        answer, work = self.host.call(position, method, self._arguments(layout, given), merge, changes)
        return answer, replace(work, size=size_of(answer))

    def merge(self, merge: Merge, mine: Any, other: Any) -> tuple[Any, int]:
        merged = merge(mine, other)
        return merged, size_of(merged)

    def snapshot(self, position: int, write: WriteState) -> list[Any]:
        return self.host.snapshot(position, write)

    def holds(self, answer: Any) -> bool:
        """True if the worker is alive and its own answer still exists."""
        return True

    def _arguments(self, layout: Sequence[int], given: Sequence[Any]) -> list[Any]:
        resolved = [self._value(one) if isinstance(one, KeptValue) else one for one in given]
        return [PerPart(one) if size >= 0 else one for size, one in zip(layout, unflatten(layout, resolved))]

    def _value(self, kept: KeptValue) -> Any:
        if kept.ref not in self._kept:
            self._kept[kept.ref] = ray.get(kept.ref)
        return self._kept[kept.ref]


def nothing(part: Any) -> None:
    """Call for parts that another call skips."""


def _first(one: Any, other: Any) -> Any:
    return one
