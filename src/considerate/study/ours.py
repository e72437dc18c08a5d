"""Our model in the study: as given, as in the paper, and its six trials; the knob chosen on validation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from considerate.data.graph import Graph
from considerate.evaluation.split import HeldOut
from considerate.fitting.tuning import knob_curve, mean_rank
from considerate.model.model import Model
from considerate.recommender import Recommender
from considerate.study.cache import code_version
from considerate.study.peers import Clock, training_matrix

# What a fit depends on: when this code changes, models are fitted again.
ROOMS = ("kernels", "data/graph.py", "parameters.py", "inference", "model", "fitting", "recommender.py")
TIMES = (1 / 1.5, 2.0)  # the likelihood's weight that is given
WEIGHTS = (1.0, 3.0)  # in their place where it is auto
KNOBS = tuple(round(0.1 * step, 1) for step in range(16))  # 0 to 1.5: those of the curve that is drawn

# The paper's experiments; every setting that could matter is named, whatever the defaults are.
PAPER: dict[str, Any] = {
    "factors": 20,
    "hidden": "sampled",
    "negatives": 1.0,
    "gamma": None,
    "head_correction": False,
    "likelihood_weight": 1.0,
    "user_bias": False,
    "sweeps": 40,
    "tolerance": 5e-4,
    "step_delay": 10,
    "precision_delay": 5,
    "prior_shape": 0.01,
    "prior_rate": 0.01,
}
PAPERS = {"r = 1": PAPER | {"rate": 1.0}, "r = 1/2": PAPER | {"rate": 0.5}}


def our_version() -> str:
    """Changes when a fit would."""
    return code_version(*ROOMS)


def our_trials(given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Six settings: as given, two other weights of the likelihood, twice the negatives, and two other exponents of the
    popularity histogram."""
    as_given = Recommender(**given)
    rho, c, gamma = as_given.likelihood_weight, 2 * as_given.negatives, as_given.gamma or 1.0
    lower, higher = WEIGHTS if isinstance(rho, str) else [rho * times for times in TIMES]
    changes = [
        {},
        {"likelihood_weight": lower},
        {"likelihood_weight": higher},
        {"negatives": c},
        {"negatives": c, "gamma": gamma - 0.1},
        {"gamma": gamma + 0.1},
    ]
    return [dict(given) | {name: round(value, 6) for name, value in change.items()} for change in changes]


def our_recommender(settings: Mapping[str, Any], seed: int, threads: int) -> Recommender:
    """A recommender of these settings. The study chooses the knob, on the likes that it chooses all else on."""
    return Recommender(**(dict(settings) | {"popularity": 0.0, "seed": seed, "threads": threads}))


def fit_ours(train: Graph, settings: Mapping[str, Any], seed: int, threads: int) -> tuple[Model, float]:
    """(model, seconds)"""
    clock = Clock()
    recommender = our_recommender(settings, seed, threads)
    matrix = training_matrix(train)
    with clock:
        recommender.fit(matrix)
    return recommender.model_, clock.seconds


def our_steps(
    train: Graph, settings: Mapping[str, Any], seed: int, threads: int
) -> Iterator[tuple[int, Recommender, float]]:
    """(sweep, recommender, seconds) after every sweep; the clock stands while the caller looks."""
    recommender = our_recommender(settings, seed, threads)
    matrix, clock = training_matrix(train), Clock()
    steps = recommender.fit_steps(matrix)
    while True:
        with clock:
            step = next(steps, None)
        if step is None:
            return
        yield step.sweep, recommender, clock.seconds


def choose_knob(model: Model, held: HeldOut, run: Any) -> tuple[float, float]:
    """(knob, mean S_rank) of the best knob on these held-out likes; of equals the smaller."""
    curve = knob_curve(model.posterior, model.log_popularity, held, mean_rank, run)
    best = max(curve, key=lambda knob: (curve[knob], -knob))
    return best, curve[best]
