"""Stopping of a fit when its bound settles or Ctrl-C is pressed."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from considerate.inference.bound import Bound
from considerate.inference.plan import FitPlan
from considerate.inference.sweep import Runner, State

WINDOW = 5  # sweeps whose noisy bounds are averaged, to see if the bound still rises
MOST_RECENT = 2 * WINDOW  # bounds that are kept for that
SHORT_WINDOW = 3  # after an opening, when steps shrink from the first draws on


@dataclass(frozen=True)
class FitStep:
    """Report to the caller after each sweep. `bound` is of the posterior that the sweep started from."""

    sweep: int
    state: State
    bound: Bound
    epsilon: float
    seconds: float  # of this sweep
    edges: int  # edges of H, summed over once for each side
    converged: bool
    recent: tuple[float, ...] = ()  # bounds that the stopping rule reads, with this sweep's last
    note: str = ""  # times of the workers

    def summary(self) -> dict[str, Any]:
        """Plain numbers of the step, for logs."""
        q = self.state.posterior
        return {
            "sweep": self.sweep,
            "bound": self.bound.total,
            "epsilon": self.epsilon,
            "seconds": self.seconds,
            "edges_per_second": self.edges / max(self.seconds, 1e-9),
            "precisions": q.precisions.means(),
            "prior_spread": q.prior_spread(),
        }


@dataclass
class FitProgress:
    """Progress of a fit: the last finished sweep and the bounds so far."""

    state: State | None = None
    bounds: tuple[dict[str, float], ...] = ()  # of the posterior before each sweep, by term
    recent: tuple[float, ...] = ()  # bounds that the stopping rule reads
    converged: bool = False

    @property
    def sweep(self) -> int:
        return 0 if self.state is None else self.state.sweep

    def add(self, step: FitStep) -> None:
        self.state, self.recent, self.converged = step.state, step.recent, step.converged
        self.bounds = (*self.bounds, step.bound.terms())


def window_of(plan: FitPlan) -> int:
    """Number of sweeps whose bounds are averaged: one if the bound is exact, several if H is drawn."""
    return 1 if plan.hidden == "expected" or plan.observed else SHORT_WINDOW if plan.opening else WINDOW


def has_converged(history: Sequence[float], window: int, tolerance: float) -> bool:
    """True if the bound has stopped rising, by the relative change per sweep of its means over two windows."""
    if tolerance <= 0 or len(history) < 2 * window:
        return False
    now, before = np.mean(history[-window:]), np.mean(history[-2 * window : -window])
    return bool((now - before) / window < tolerance * abs(now))


def sweep_until_settled(runner: Runner, plan: FitPlan, start: FitProgress) -> Generator[FitStep]:
    """Sweep until the bound has settled or `plan.sweeps` are done; the last step says which. Yields no step if the
    start has ended already."""
    recent = start.recent
    if start.sweep >= plan.sweeps or start.converged:
        return
    edges = round(runner.edges * (1 + math.exp(-plan.offset)))
    begun = time.perf_counter()
    for done in runner.sweeps(start.state):
        number = done.state.sweep
        # Bounds before the groups are frozen, or the precisions are learned, cannot be compared with later ones.
        if done.settled and number > plan.precision_delay + 1:
            recent = (*recent, done.bound.total)[-MOST_RECENT:]
        converged = has_converged(recent, window_of(plan), plan.tolerance)
        seconds = time.perf_counter() - begun
        yield FitStep(number, done.state, done.bound, done.epsilon, seconds, edges, converged, recent)
        if converged or number >= plan.sweeps:
            return
        begun = time.perf_counter()


@contextmanager
def held_interrupts() -> Iterator[None]:
    """Delay Ctrl-C to the end of the block. Only the main thread ever sees it."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    held = False

    def hold(*_: object) -> None:
        nonlocal held
        held = True

    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if held:
        raise KeyboardInterrupt
