"""Interface of the estimators of the expectation over q(H)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from considerate.data.graph import Adjacency
from considerate.inference.posterior import Posterior
from considerate.kernels import compiled


@dataclass(frozen=True)
class Terms:
    """Terms that q(H) adds to the liked edges in a pass over the rows of one side."""

    unliked: Adjacency | None = None  # edges of H with g = 0
    expected: compiled.Expected | None = None  # the expected sums over all other such edges, in closed form


class Estimator(Protocol):
    """Source of a sweep's terms: first for the users, then, from the users' new rows, for the items."""

    deterministic: bool  # True if the terms depend on the posterior alone

    def user_terms(self, sweep: int, posterior: Posterior, run: Any) -> Terms: ...

    def item_terms(self, sweep: int, posterior: Posterior, run: Any) -> Terms: ...

    def settled(self, sweep: int) -> bool:
        """True if this sweep has the objective that the fit ends with."""
        ...
