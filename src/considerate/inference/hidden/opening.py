"""Opening: the first sweeps in closed form, the others with draws. Not in the paper.

With c = 5 a sweep in closed form has a sixth of the edges of a sweep with draws, and its step has no noise. It brings
the vectors most of the way. The draws, which follow the walk, go on from there, and their steps may shrink at once.
"""

from __future__ import annotations

from typing import Any

from considerate.inference.hidden.estimator import Terms
from considerate.inference.hidden.expected import Expected
from considerate.inference.hidden.sampled import Sampled
from considerate.inference.posterior import Posterior


class Opening:
    """Estimator with E[h_mn] for the first `sweeps` sweeps, then with H^(t); draws free the closed form."""

    deterministic = False

    def __init__(self, sweeps: int, expected: Expected, sampled: Sampled) -> None:
        self.sweeps, self.sampled = sweeps, sampled
        self._expected: Expected | None = expected

    def at(self, sweep: int) -> Expected | Sampled:
        """Estimator of this sweep."""
        if sweep > self.sweeps:
            self._expected = None
        return self._expected or self.sampled

    def user_terms(self, sweep: int, posterior: Posterior, run: Any) -> Terms:
        return self.at(sweep).user_terms(sweep, posterior, run)

    def item_terms(self, sweep: int, posterior: Posterior, run: Any) -> Terms:
        return self.at(sweep).item_terms(sweep, posterior, run)

    def settled(self, sweep: int) -> bool:
        return sweep > self.sweeps
