"""Part: one feature of the model in one module.

A part owns its settings, its refusals, its tensors and its place in a fit. Every method has a default, so a part writes
only the methods that it needs. `inference/parts/__init__.py` lists the parts.

Modules of parts import nothing heavy, because the shell reads the settings for its help. So the tensors of the walk and
of known pairs are in parts of their own, beside their arrays; `FILES` in model/schema.py lists these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from considerate.errors import UsageError

if TYPE_CHECKING:  # help of the shell reads settings, and loads nothing heavy
    import numpy as np
    from numpy.typing import NDArray

    from considerate.data.column import Column
    from considerate.storage.layout import Check, Fields, Sizes, Tensor

    Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Where:
    """Place where a fit runs, with the facts that refusals depend on."""

    kind: str = "memory"  # or "disk", "ray"
    inner_sweeps: int = 1
    users_stay: bool = True  # divided by users, one sweep at a time: all items are in one place when a sweep starts

    @property
    def divided(self) -> bool:
        """True if the graph is in parts."""
        return self.kind != "memory"


class Part:
    """A feature of the model."""

    name: str = ""  # name of the object that the part keeps in a model, if it keeps one
    settings: type | None = None  # group of its settings
    fields: ClassVar[Fields] = {}  # fields of the description of a model file; those that are set are flags of tensors
    tensors: tuple[Tensor, ...] = ()  # tensors of a model file
    rules: tuple[Check, ...] = ()  # rules for these tensors
    columns: tuple[Column, ...] = ()  # columns of recommendations

    def contradictions(self, given: Any) -> Iterator[str]:
        """Yield a sentence for each contradiction between the settings that were given."""
        return iter(())

    def sizes(self, about: Mapping[str, Any]) -> Sizes:
        """Sizes in the shapes of the part's tensors, from the description of a file."""
        return {}

    def saved(self, model: Any) -> tuple[dict[str, Any], Mapping[str, Any]]:
        """Fields of the description, and tensors, of a model to save."""
        return {}, {}

    def loaders(self, file: Any) -> dict[str, Callable[[], Any]]:
        """Functions that read from a model file, by the field of a Model that each fills."""
        return {}

    def reweigh(self, plan: Any, weights: Floats, correct: Callable[[Floats], Floats]) -> Floats:
        """Change the histogram pi, for draws and for rankings; `correct` corrects it for popular items."""
        return weights

    def learned(self, plan: Any, session: Any) -> Any:
        """Object that the part keeps in a model, at the end of a fit; None if it keeps nothing."""
        return None

    def renewed(self, kept: Any, model: Any) -> Any:
        """Renew the object that the part keeps, after users, items or likes of the model have changed."""
        raise UsageError(f"a model fitted with {self.name!r} cannot be changed; fit again to all likes.")

    def kept_in(self, file: Any) -> Any:
        """Read the object that the part keeps from a model file; None if the file has none."""
        return None

    def refusals(self, request: Any, where: Where) -> Iterator[str]:
        """Yield a sentence for each reason why the requested fit cannot run there."""
        return iter(())
