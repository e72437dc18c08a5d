"""The step sizes of Algorithm 1."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StepSize:
    """Step size epsilon_t and its accumulator. A checkpoint keeps both.

    epsilon is set *after* the sweep. With delay t_eps the first t_eps + 2 sweeps run at 1; then
    a <- (1 - Delta^-0.6) a + 1, epsilon <- 1 / a, with Delta = t - t_eps. As Delta grows, a grows like Delta^0.6,
    so the sum of epsilon diverges and that of its square converges (Robbins and Monro).
    """

    delay: int
    accumulator: float = 0.0
    epsilon: float = 1.0

    def after(self, sweep: int) -> StepSize:
        """Step size for the sweep after this one; sweeps count from 1."""
        elapsed = sweep - self.delay
        if elapsed <= 0:
            return self
        accumulator = (1.0 - elapsed**-0.6) * self.accumulator + 1.0
        return StepSize(self.delay, accumulator, 1.0 / accumulator)
