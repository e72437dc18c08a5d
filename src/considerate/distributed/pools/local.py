"""How calls reach the parts of a divided graph in this process. (disk_crew.py: on its disk; ray_crew.py: elsewhere.)"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from considerate.distributed.pools.host import Merge, PartitionHost
from considerate.distributed.tasks import ClosedAtEnd


class LocalPool(ClosedAtEnd):
    """Parts in this process, called by threads."""

    def __init__(self, parts: Sequence[Any], threads: int = 1) -> None:
        self.parts = len(parts)
        self._host = PartitionHost(dict(enumerate(parts)), threads)

    def share(self, value: Any) -> Any:
        return value

    def call(
        self,
        method: str | Callable[..., Any],
        *arguments: Any,
        merge: Merge | None = None,
        changes: bool = False,
    ) -> Any:
        answer, _ = self._host.call(self._host.position, method, arguments, merge, changes)
        return answer

    def snapshot(self, write: Callable[[int, Any], Any], read: Callable[[int], Any] | None = None) -> list[Any]:
        """What `write(number, state)` gave for each part."""
        return self._host.snapshot(self._host.position, write)

    def name_checkpoint(self, name: str | None) -> None:
        """A pool in this process is never lost alone."""

    def close(self) -> None:
        self._host.close()
