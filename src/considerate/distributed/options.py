"""Options of a divided fit, and the interface of a backend in use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from considerate.data.graph import ITEMS, USERS
from considerate.distributed.pools import WorkerPool
from considerate.distributed.tasks import Tasks
from considerate.errors import UsageError

DIVISIONS = ("auto", USERS, ITEMS)
INNER = ("one", "all")


class BackendSession(Protocol):
    """A backend in use: it runs tasks and holds the parts."""

    tasks: Tasks
    workers: int
    threads: int  # of each worker
    memory: float | None  # bytes that each worker may use; None: unknown
    out_of_core: bool  # parts are loaded one at a time, so parts share no results

    def make_pool(
        self,
        build: Callable[..., Any],
        setup: Any,
        parts: Sequence[Any],
        *,
        all_user_likes: Any = None,
        edges: Sequence[int] | None = None,
    ) -> WorkerPool:
        """Make a pool of build(part, setup), from references to parts and to the likes of all users. Workers get about
        equal shares of `edges`."""
        ...

    def describe(self) -> str:
        """Short description of the place where the fit runs."""
        ...


@dataclass(frozen=True, kw_only=True)
class DivisionOptions:
    """Division of the graph. The posterior depends on the resident side and the inner sweeps alone."""

    division: str = "auto"  # resident side: users, items, or auto, which is users
    item_shards: int | None = None  # calls per sweep in which the items' sums are sent; None: as few as memory allows
    inner_sweeps: int = 1  # local sweeps of a part with the other parts' messages held fixed (eq. 21); 1: none
    inner: str = "one"  # inner sweeps of one part at a time, or of all at once

    def check_division(self) -> None:
        """Raise UsageError for options that are invalid or exclude each other."""
        if self.division not in DIVISIONS:
            raise UsageError(f"division is {self.division!r}; it must be one of {', '.join(DIVISIONS)}.")
        if self.inner not in INNER:
            raise UsageError(f"inner is {self.inner!r}; it must be one of {', '.join(INNER)}.")
        self.check_whole("item_shards", "inner_sweeps")
        for name in ("item_shards", "inner_sweeps"):
            if self.division == ITEMS and (getattr(self, name) or 1) > 1:
                raise UsageError(f"{name} needs a division by users; give division='users' or leave it to 'auto'.")
        if self.inner_sweeps > 1 and (self.item_shards or 1) > 1:
            raise UsageError("inner_sweeps and item_shards do not go together; leave one of them at 1.")

    def check_whole(self, *names: str) -> None:
        """Raise UsageError unless these options are whole numbers of at least 1, or None if that is the default."""
        for name in names:
            value = getattr(self, name)
            if value is None and getattr(type(self), name) is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UsageError(f"{name} is {value!r}; it must be a whole number at least 1.")

    @property
    def resident(self) -> str | None:
        """Side that stays with its parts; None: that of the resumed checkpoint, else users."""
        if self.division != "auto":
            return self.division
        return USERS if self.inner_sweeps > 1 or (self.item_shards or 1) > 1 else None

    def open(self) -> AbstractContextManager[Any]:
        """Start or join the place where the fit runs."""
        raise NotImplementedError
