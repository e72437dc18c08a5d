"""Part: one feature of the model in one module.

A part owns its settings, what it refuses, and its place in a fit. All methods have a default that does nothing, so a
part writes only what it needs. `inference/parts/__init__.py` lists the parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Where:
    """The place that a fit runs at, as a part needs to know it to refuse."""

    kind: str = "memory"  # or "disk", "ray"
    inner_sweeps: int = 1
    users_stay: bool = True  # divided by users, one sweep at a time: all items are in one place when a sweep starts

    @property
    def divided(self) -> bool:
        """True if the graph is in parts."""
        return self.kind != "memory"


class Part:
    """A feature of the model."""

    settings: type | None = None  # the group of its settings

    def contradictions(self, given: Any) -> Iterator[str]:
        """Yield a sentence for each contradiction between the settings that were given."""
        return iter(())

    def refusals(self, request: Any, where: Where) -> Iterator[str]:
        """Yield a sentence for each reason that a fit as requested cannot run there."""
        return iter(())
