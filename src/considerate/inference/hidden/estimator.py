"""The interface of the two estimators of the expectation over q(H)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from considerate.data.graph import Adjacency
from considerate.inference.posterior import Posterior
from considerate.kernels import compiled


@dataclass(frozen=True)
class Terms:
    """What q(H) adds to the liked edges in a pass over the rows of one side."""

    unliked: Adjacency | None = None  # the edges of H with g = 0
    expected: compiled.Expected | None = None  # or their sums in closed form, but for the edges that are given


class Estimator(Protocol):
    """Gives a sweep its terms: first for the users, then, from the users' new rows, for the items."""

    deterministic: bool  # whether the terms depend on the posterior alone

    def user_terms(self, sweep: int, posterior: Posterior, run: Any) -> Terms: ...

    def item_terms(self, sweep: int, posterior: Posterior, run: Any) -> Terms: ...

    def settled(self, sweep: int) -> bool:
        """Whether the objective of this sweep is the one that the fit ends with."""
        ...
