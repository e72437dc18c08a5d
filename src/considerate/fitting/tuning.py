"""Settings chosen on likes held out of the data: the knob, and the weight of the likelihood.

One like of every user is held out, a short fit is made to the others, and what ranks the held-out ones best is taken.
The fit that follows is to all likes and is not touched by this: its posterior is the one that the same settings give
when they are written down.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Graph
from considerate.evaluation.metrics import ndcg, rank_scores
from considerate.evaluation.ranks import Ranks, held_ranks
from considerate.evaluation.scorer import FunctionScorer
from considerate.evaluation.split import HeldOut, one_per_user
from considerate.fitting.session import make_estimator, make_popularity
from considerate.fitting.stopping import FitProgress, sweep_until_settled
from considerate.inference.posterior import Posterior
from considerate.inference.sweep import InMemory
from considerate.kernels.threads import Backend
from considerate.model.predict import ItemColumns
from considerate.model.ranking import log_popularity, utility
from considerate.parameters import AUTO, AUTO_TOP, FitPlan

logger = logging.getLogger("considerate")

KNOBS = tuple(0.25 * step for step in range(7))  # tried first; then finer around the best
FINER = 0.05
WEIGHTS = (1.0, 2.0, 4.0, 8.0)  # of the likelihood, as far as they help
SWEEPS = 12  # of a trial: past the start, before the steps shrink
LEAST_USERS = 100  # held-out likes that a choice can be made on
MOST_SCORES = 2e8  # of the held-out users against all items; beyond that, a sample of them
TOP = 20
FALLBACK_KNOB, FALLBACK_WEIGHT = 0.5, 1.5


class Trial(NamedTuple):
    """One short fit: its likelihood weight, the knob that ranked best what was held out, and how well it did."""

    weight: float
    knob: float
    score: float


def tune(graph: Graph, plan: FitPlan, backend: Backend) -> tuple[FitPlan, list[Trial]]:
    """The plan with the settings chosen that are words, and what they were chosen from; numbers stay. Weights are
    doubled from 1 on while that helps."""
    knob, weight = plan.popularity, plan.likelihood_weight
    held = held_out(graph, plan.seed)
    if len(held.users) < LEAST_USERS:
        knob = FALLBACK_KNOB if isinstance(knob, str) else float(knob)
        weight = FALLBACK_WEIGHT if isinstance(weight, str) else float(weight)
        logger.warning(
            "%d users have two likes or more, too few to choose settings by (%d are needed); the knob is %g and the "
            "likelihood's weight %g",
            len(held.users),
            LEAST_USERS,
            knob,
            weight,
        )
        return replace(plan, popularity=knob, likelihood_weight=weight), []
    # The mean rank hardly tells weights apart: what they change is the tail, and the first places.
    criterion = top_score if knob == AUTO_TOP or weight == AUTO else mean_rank
    given = None if isinstance(knob, str) else float(knob)
    trials: list[Trial] = []
    for value in WEIGHTS if isinstance(weight, str) else (float(weight),):
        posterior, log_pi = short_fit(held.train, replace(plan, likelihood_weight=value), backend)
        trials.append(Trial(value, *_best(knob_curve(posterior, log_pi, held, criterion, backend.map, given))))
        logger.info("likelihood weight %g: knob %g, score %.4f on validation", *trials[-1])
        if len(trials) > 1 and trials[-1].score <= trials[-2].score:
            break
        best_fit = posterior, log_pi
    chosen = max(trials, key=lambda trial: trial.score)
    if knob == AUTO and criterion is not mean_rank:
        chosen = chosen._replace(knob=_best(knob_curve(*best_fit, held, mean_rank, backend.map))[0])
    return replace(plan, popularity=chosen.knob, likelihood_weight=chosen.weight), trials


def _best(curve: dict[float, float]) -> tuple[float, float]:
    """The knob of the largest value, the smaller of two that tie; and the value."""
    return max(curve.items(), key=lambda point: (point[1], -point[0]))


def held_out(graph: Graph, seed: int) -> HeldOut:
    """One like of every user who has two; where there are very many scores to rank, only a sample is ranked."""
    held = one_per_user(graph, seed)
    most = max(LEAST_USERS, int(MOST_SCORES / max(1, graph.item_count)))
    if len(held.users) <= most:
        return held
    random = np.random.Generator(np.random.Philox(key=[seed, 0x7C4E]))
    some = np.sort(random.choice(len(held.users), most, replace=False))
    return HeldOut(held.train, held.users[some], held.items[some])


def short_fit(graph: Graph, plan: FitPlan, backend: Backend) -> tuple[Posterior, NDArray[np.float32]]:
    """The posterior of a few sweeps, and log pi."""
    popularity = make_popularity(graph, plan, backend)
    estimator = make_estimator(graph, plan, popularity.weights, backend)
    plan = replace(plan, sweeps=SWEEPS, tolerance=0.0)
    *_, last = sweep_until_settled(InMemory(graph, estimator, plan, backend), plan, FitProgress())
    return last.state.posterior, log_popularity(popularity.weights, popularity.gamma)


def knob_curve(
    posterior: Posterior,
    log_pi: NDArray[np.float32],
    held: HeldOut,
    criterion: Callable[[Ranks], float],
    run: Any,
    given: float | None = None,
) -> dict[float, float]:
    """The criterion at knobs from 0 to 1.5, and finer around the best of them; or at the given one alone."""
    columns = ItemColumns(posterior.items)
    _ = columns.mean  # made before there are threads
    curve: dict[float, float] = {}

    def measure(knob: float) -> None:
        def scores(users: NDArray[np.int64]) -> Any:
            return utility(columns.means(posterior.users, users), log_pi, knob)

        curve[knob] = criterion(held_ranks(FunctionScorer(scores, f"knob {knob:g}"), held, run))

    for knob in KNOBS if given is None else (given,):
        measure(knob)
    if given is None:
        around = [round(_best(curve)[0] + FINER * step, 2) for step in range(-4, 5) if step != 0]
        for knob in around:
            if KNOBS[0] <= knob <= KNOBS[-1]:
                measure(knob)
    return curve


def mean_rank(ranks: Ranks) -> float:
    """Mean S_rank: the whole ranking, the head and the end of it alike."""
    return float(rank_scores(ranks).mean())


def top_score(ranks: Ranks) -> float:
    """Mean NDCG at 20: the first places."""
    return float(ndcg(ranks, TOP).mean())
