"""Degrees of G and of a drawn H with their laws (fig. 1), and positives to negatives of every item (fig. 3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Graph
from considerate.fitting.session import make_popularity
from considerate.inference.hidden import Sampled, positives_to_negatives
from considerate.kernels.threads import Backend
from considerate.parameters import FitPlan
from considerate.simulation.degrees import degree_histogram, fit_power_law, fit_power_law_cutoff
from considerate.study.results import Balance, Degrees

POINTS = 60  # of a drawn law
BINS_PER_DECADE = 5
RATES = {"r = 1": 1.0, "r = 1/2": 0.5}


def drawn_hidden(graph: Graph, plan: FitPlan, backend: Backend) -> Any:
    """The unliked edges of one drawn H, by user."""
    popularity = make_popularity(graph, plan, backend)
    sampled = Sampled(graph.by_user, graph.user_blocks, popularity.weights, plan.negatives, plan.seed)
    return sampled.draw(1, backend.map)


def study_degrees(graph: Graph, seed: int, backend: Backend) -> list[Degrees]:
    """Both sides of G, and of an H drawn as in the paper (a fair coin, r = 1)."""
    unliked = drawn_hidden(graph, FitPlan(seed=seed), backend)
    liked_of_item, unliked_of_item = positives_to_negatives(graph, unliked)
    return [
        _degrees("users", "G", graph.by_user.degrees),
        _degrees("items", "G", graph.by_item.degrees),
        _degrees("users", "H drawn", graph.by_user.degrees + unliked.degrees),
        _degrees("items", "H drawn", liked_of_item + unliked_of_item),
    ]


def _degrees(side: str, graph: str, degrees: NDArray[Any]) -> Degrees:
    """Users have a law with a cut-off, items one without, as in the paper's figure 1."""
    histogram = degree_histogram(degrees, bins_per_decade=BINS_PER_DECADE)
    fit = fit_power_law_cutoff(degrees) if side == "users" else fit_power_law(degrees)
    points = np.unique(np.round(np.geomspace(fit.law.minimum, int(degrees.max()), POINTS)).astype(np.int64))
    filled = histogram.counts > 0
    return Degrees(
        side,
        graph,
        histogram.centre[filled].tolist(),
        (fit.vertices * histogram.density[filled]).tolist(),
        fit.law.describe(),
        points.astype(float).tolist(),
        (fit.vertices * np.exp(fit.law.log_probability(points))).tolist(),
    )


def study_balance(graph: Graph, seed: int, backend: Backend) -> Iterator[Balance]:
    """Positives to negatives for two rates, with and without the correction of the head."""
    for name, rate in RATES.items():
        for corrected in (False, True):
            unliked = drawn_hidden(graph, FitPlan(rate=rate, head_correction=corrected, seed=seed), backend)
            liked, others = positives_to_negatives(graph, unliked)
            yield _balance(f"{name}, head corrected" if corrected else name, liked, others)


def _balance(name: str, liked: NDArray[Any], others: NDArray[Any]) -> Balance:
    histogram = degree_histogram(liked, bins_per_decade=BINS_PER_DECADE)
    centre, ratio = [], []
    for first, last, middle in zip(histogram.first, histogram.last, histogram.centre):
        inside = (liked >= first) & (liked <= last)
        if inside.any():
            drawn = int(others[inside].sum())
            centre.append(float(middle))
            ratio.append(float(liked[inside].sum() / drawn) if drawn else float("nan"))
    some = liked > 0
    return Balance(name, liked[some].tolist(), others[some].tolist(), centre, ratio)
