"""Estimator for a hidden graph that is given whole. Nothing is drawn, and the bound is exact."""

from __future__ import annotations

from typing import Any

from considerate.data.graph import Adjacency, transpose
from considerate.inference.hidden.estimator import Terms
from considerate.inference.posterior import Posterior


class Observed:
    """Estimator with the known considered pairs as all the unliked edges of H."""

    deterministic = True

    def __init__(self, considered: Adjacency, items: int, run: Any) -> None:
        self.by_user, self.by_item = considered, transpose(considered, items, run)

    def user_terms(self, sweep: int, posterior: Posterior, run: Any) -> Terms:
        return Terms(unliked=self.by_user)

    def item_terms(self, sweep: int, posterior: Posterior, run: Any) -> Terms:
        return Terms(unliked=self.by_item)

    def settled(self, sweep: int) -> bool:
        return True
