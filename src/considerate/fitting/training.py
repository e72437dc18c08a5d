"""A fit from beginning to end: q(H), sweeps, stopping."""

from __future__ import annotations

import logging
import math
import time
import warnings
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data import Interactions
from considerate.data.graph import Graph
from considerate.data.sizes import check_sizes
from considerate.inference.bound import Bound
from considerate.inference.hidden import (
    Estimator,
    Expected,
    Sampled,
    correct_head,
    popularity_exponent,
    popularity_weights,
)
from considerate.inference.posterior import Posterior
from considerate.inference.sweep import Runner, State
from considerate.kernels.threads import Backend
from considerate.parameters import FitPlan

logger = logging.getLogger("considerate")

COLLAPSED = 0.6  # spread of u'v; data that holds up its vectors has 0.9 to 1.6
WINDOW = 5  # sweeps that are averaged to see whether a noisy bound still rises


@dataclass(frozen=True)
class Histogram:
    """The popularity histogram pi and the exponent that it came from."""

    weights: NDArray[np.float64]  # [items]
    gamma: float


@dataclass(frozen=True)
class FitStep:
    """What a caller sees after each sweep. `bound` is of the posterior that the sweep started from."""

    sweep: int
    state: State
    bound: Bound
    epsilon: float
    seconds: float  # of this sweep
    edges: int  # of H, summed over once for each side
    converged: bool
    recent: tuple[float, ...] = ()  # the bounds that the rule for stopping reads, this sweep's last
    note: str = ""  # what there is to say of where it ran


@dataclass(frozen=True)
class Start:
    """Where a fit goes on from."""

    state: State
    bounds: tuple[dict[str, float], ...]  # of the sweeps so far, by term
    recent: tuple[float, ...]  # those that the rule for stopping reads


def make_graph(interactions: Interactions) -> Graph:
    """G, with what is odd about it said: duplicates, a single user or item, users and items swapped."""
    graph = Graph.from_pairs(
        interactions.users, interactions.items, len(interactions.user_ids), len(interactions.item_ids)
    )
    active = (int((graph.by_user.degrees > 0).sum()), int((graph.by_item.degrees > 0).sum()))
    check_sizes(interactions.source, graph.user_count, graph.item_count, graph.duplicates, active)
    return graph


def make_popularity(graph: Graph, plan: FitPlan, backend: Backend) -> Histogram:
    """pi (eq. 7-9), corrected at the head where asked for."""
    degree = graph.by_item.degrees
    gamma = popularity_exponent(degree, plan.rate) if plan.gamma is None else plan.gamma
    weights = popularity_weights(degree, gamma)
    if plan.head_correction:
        weights = correct_head(weights, graph.by_user, graph.user_blocks, plan.negatives, run=backend.map)
    return Histogram(weights, gamma)


def make_estimator(graph: Graph, plan: FitPlan, weights: NDArray[np.float64], backend: Backend) -> Estimator:
    """One of the two estimators of the expectation over q(H)."""
    if plan.hidden == "sampled":
        return Sampled(graph.by_user, graph.user_blocks, weights, plan.negatives, plan.seed)
    groups = min(plan.groups, max(1, graph.item_count))
    return Expected(graph.by_user, graph.user_blocks, weights, plan.negatives, plan.offset, groups, backend.map)


def has_converged(history: Sequence[float], deterministic: bool, tolerance: float) -> bool:
    """Whether the bound has stopped rising: its relative change per sweep, of the last two sweeps where the bound is
    exact, of the means over two windows of sweeps where it is that of a drawn H."""
    window = 1 if deterministic else WINDOW
    if tolerance <= 0 or len(history) < 2 * window:
        return False
    now, before = np.mean(history[-window:]), np.mean(history[-2 * window : -window])
    return bool((now - before) / window < tolerance * abs(now))


def fit_steps(runner: Runner, *, most_sweeps: int, tolerance: float, start: Start | None = None) -> Generator[FitStep]:
    """Sweeps until the bound has settled or there were enough. The last step is marked as converged, or not. From a
    start that has come to its end there are none."""
    recent = start.recent if start is not None else ()
    if start is not None and (start.state.sweep >= most_sweeps or at_rest(runner, start, tolerance)):
        return
    settings = runner.settings
    begun = time.perf_counter()
    for done in runner.sweeps(start.state if start is not None else None):
        number = done.state.sweep
        # Bounds of different objectives do not compare: before the groups are frozen, or the precisions are learned.
        if done.settled and number > settings.precision_delay + 1:
            recent = (*recent, done.bound.total)[-2 * WINDOW :]
        converged = has_converged(recent, runner.deterministic, tolerance)
        now = time.perf_counter()
        edges = round(runner.edges * (1 + math.exp(-settings.offset)))
        yield FitStep(number, done.state, done.bound, done.epsilon, now - begun, edges, converged, recent)
        if converged or number >= most_sweeps:
            return
        begun = time.perf_counter()


def at_rest(runner: Runner, start: Start, tolerance: float) -> bool:
    """Whether a fit that is resumed had settled."""
    return has_converged(start.recent, runner.deterministic, tolerance)


def warn_of_factors(factors: int, users: int, items: int) -> None:
    """Warn where there are more factors than data for them."""
    if factors > min(users, items):
        warnings.warn(
            f"factors={factors} is more than the {min(users, items)} users or items there are; the posterior is "
            "proper, but fewer factors would say as much.",
            stacklevel=3,
        )


def warn_of_collapse(posterior: Posterior, weight: float) -> None:
    """Mean-field VB prunes what sparse data cannot hold up; where nearly all is pruned, say so and what to do."""
    spread = posterior.prior_spread()
    if spread < COLLAPSED:
        logger.warning(
            "the vectors have all but collapsed: the logits' part that is personal has a spread of %.2f. A larger "
            "likelihood_weight (it is %g), 'auto' among them, or fewer factors would keep more of the taste",
            spread,
            weight,
            extra={"once": True},
        )


def describe(step: FitStep) -> dict[str, Any]:
    """A step as plain numbers, for logs and progress bars."""
    return {
        "sweep": step.sweep,
        "bound": step.bound.total,
        "epsilon": step.epsilon,
        "seconds": step.seconds,
        "edges_per_second": step.edges / max(step.seconds, 1e-9),
        "precisions": step.state.posterior.precisions.means(),
        "prior_spread": step.state.posterior.prior_spread(),
    }
