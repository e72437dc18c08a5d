"""What a backend is that divides the graph: how it is asked for, and what it gives while it is open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from considerate.distributed.pools import WorkerPool
from considerate.distributed.tasks import Tasks
from considerate.errors import UsageError
from considerate.fitting.session import FitRequest, FitSession

DIVISIONS = ("auto", "users", "items")
INNER = ("one", "all")


class BackendSession(Protocol):
    """A backend in use: where tasks and parts run."""

    tasks: Tasks
    workers: int
    threads: int  # of each worker
    memory: float | None  # bytes that each worker may take, where that is known
    out_of_core: bool  # whether parts come one at a time: nothing is then made for all of them

    def make_pool(
        self,
        build: Callable[..., Any],
        setup: Any,
        parts: Sequence[Any],
        *,
        all_user_likes: Any = None,
        edges: Sequence[int] | None = None,
    ) -> WorkerPool:
        """A pool of build(part, setup) of these parts, which are references of tasks, as is what parts of items are
        given as `all_user_likes`. Workers, where there are several, get about as many `edges` each."""
        ...

    def sweep_report(self, pool: Any) -> str:
        """What the last sweep took, for the line of progress."""
        ...

    def describe(self) -> str:
        """Where this runs, in a few words."""
        ...


@dataclass(frozen=True, kw_only=True)
class PartitionedBackend:
    """How the graph is divided. The posterior depends on the side and on the inner sweeps, on nothing else of it."""

    division: str = "auto"  # the side that stays with its parts: users or items; auto: users
    item_shards: int | None = None  # the items' sums are asked for in so many shards; None: as memory needs
    inner_sweeps: int = 1  # local sweeps of a part with the others' messages held (eq. 21); 1: the plain sweep
    inner: str = "one"  # a part at a time, or all at once

    def check_division(self) -> None:
        """UsageError with one sentence for what cannot be."""
        if self.division not in DIVISIONS:
            raise UsageError(f"division is {self.division!r}; it must be one of {', '.join(DIVISIONS)}.")
        if self.inner not in INNER:
            raise UsageError(f"inner is {self.inner!r}; it must be one of {', '.join(INNER)}.")
        self.check_whole("item_shards", "inner_sweeps")
        for name in ("item_shards", "inner_sweeps"):
            if self.division == "items" and (getattr(self, name) or 1) > 1:
                raise UsageError(f"{name} needs a division by users; give division='users' or leave it to 'auto'.")
        if self.inner_sweeps > 1 and (self.item_shards or 1) > 1:
            raise UsageError("inner_sweeps and item_shards do not go together; leave one of them at 1.")

    def check_whole(self, *names: str) -> None:
        """UsageError where one of these is not a whole number at least 1, nor None where that is its default."""
        for name in names:
            value = getattr(self, name)
            if value is None and getattr(type(self), name) is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UsageError(f"{name} is {value!r}; it must be a whole number at least 1.")

    @property
    def resident(self) -> str | None:
        """The side that stays with its parts; None: that of the checkpoint that is resumed, else users."""
        if self.division != "auto":
            return self.division
        return "users" if self.inner_sweeps > 1 or (self.item_shards or 1) > 1 else None

    def start(self, request: FitRequest) -> AbstractContextManager[FitSession]:
        """The session of a fit, see fitting.driver."""
        from considerate.distributed.session import start_session

        return start_session(self, request)

    def open(self) -> AbstractContextManager[Any]:
        """Start, or join, what it runs on."""
        raise NotImplementedError
