"""Part: one feature of the model in one module.

A part owns its settings, what it refuses, and its place in a fit. All methods have a default that does nothing, so a
part writes only what it needs. `inference/parts/__init__.py` lists the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from considerate.storage.layout import Check, Fields, Sizes, Tensor


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
    fields: ClassVar[Fields] = {}  # of the description of a model file; one that is set is a flag of tensors
    tensors: tuple[Tensor, ...] = ()  # of a model file
    rules: tuple[Check, ...] = ()  # that these obey

    def contradictions(self, given: Any) -> Iterator[str]:
        """Yield a sentence for each contradiction between the settings that were given."""
        return iter(())

    def sizes(self, about: Mapping[str, Any]) -> Sizes:
        """Sizes in the shapes of its tensors, from the description of a file."""
        return {}

    def saved(self, model: Any) -> tuple[dict[str, Any], Mapping[str, Any]]:
        """Fields of the description, and tensors, of a model that is saved."""
        return {}, {}

    def loaders(self, file: Any) -> dict[str, Callable[[], Any]]:
        """Functions that read from a model file, by the field of a Model that each is for."""
        return {}

    def refusals(self, request: Any, where: Where) -> Iterator[str]:
        """Yield a sentence for each reason that a fit as requested cannot run there."""
        return iter(())
