"""The options of a fit on Ray. Ray is imported when a session is opened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from considerate.distributed.backends.base import PartitionedBackend
from considerate.errors import UsageError


@dataclass(frozen=True)
class RayBackend(PartitionedBackend):
    """A fit over workers on Ray. The posterior does not depend on these options."""

    kind = "ray"

    address: str | None = None  # of a cluster, or "auto"; None: RAY_ADDRESS, else a local Ray, stopped afterwards
    workers: int | None = None  # processes; None: one a node of a cluster, one a processor of a local Ray
    threads: int | None = None  # of each worker; None: an equal share of the processors
    max_restarts: int = 3  # of one worker between two finished calls
    patience: float = 120.0  # seconds to wait for room on the cluster

    def __post_init__(self) -> None:
        self.check_division()
        self.check_whole("workers", "threads")
        for name, kinds in (("max_restarts", int), ("patience", int | float)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, kinds) or not value >= 0:
                raise UsageError(f"{name} is {value!r}; it must be a number, 0 or more.")
        if self.address is not None and "://" in self.address:
            raise UsageError(
                f"address is {self.address!r}; a fit needs the cluster's own address, as HOST:6379 or 'auto' on one of "
                "its machines (`ray job submit` runs it there), not that of a Ray Client."
            )

    def open(self) -> Any:
        """Join the cluster or start a Ray, and reserve room for the workers."""
        try:
            from considerate.distributed.ray.session import RaySession
        except ImportError:
            raise UsageError("Ray is not installed; install it with: pip install 'considerate[ray]'") from None
        return RaySession(self)
