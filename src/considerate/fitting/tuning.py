"""Settings chosen on likes held out of the data: the two weights of the ranking, and the weight of the likelihood.

One like of every user is held out, the latest where the data has times; a short fit is made to the others, and what
ranks the held-out ones best is taken. The table of who considers what is of the others too: it never saw what is held
out. The fit that follows is to all likes and is not touched by this: its posterior is the one that the same settings
give when they are written down.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency, Graph
from considerate.evaluation.metrics import ndcg, rank_scores
from considerate.evaluation.ranks import Ranks, weighted_ranks
from considerate.evaluation.split import HeldOut, last_per_user, one_per_user
from considerate.fitting.session import make_consideration, make_estimator, make_popularity
from considerate.fitting.stopping import FitProgress, sweep_until_settled
from considerate.inference.hidden import Consideration
from considerate.inference.posterior import Posterior
from considerate.inference.sweep import InMemory
from considerate.kernels.threads import Backend
from considerate.model.predict import ItemColumns
from considerate.model.ranking import log_popularity
from considerate.parameters import AUTO, AUTO_TOP, FitPlan

logger = logging.getLogger("considerate")

KNOBS = tuple(0.25 * step for step in range(7))  # of log pi, tried first; on a larger scale beside more lift
LIFTS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)  # of log lift; at the end the walk is alone
FINER = (0.1, 0.05)  # steps around the best, on the same scale
WEIGHTS = (1.0, 2.0, 4.0, 8.0)  # of the likelihood, as far as they help
SWEEPS = 12  # of a trial: past the start, before the steps shrink
LEAST_USERS = 100  # held-out likes that a choice can be made on
MOST_SCORES = 2e8  # of the held-out users against all items; beyond that, a sample of them
TOP = 20
FALLBACK_WEIGHT = 1.5


class Weights(NamedTuple):
    """The weights of log pi and of log lift in a score."""

    popularity: float
    lift: float


class Trial(NamedTuple):
    """One short fit: its likelihood weight, the weights that ranked best what was held out, and how well they did."""

    weight: float
    weights: Weights
    score: float


@dataclass(frozen=True)
class ScoreParts:
    """What scores are made of, whatever the weights: logits, log pi, and lift where there is the walk."""

    posterior: Posterior
    log_pi: NDArray[np.float32]
    consideration: Consideration | None = None

    def rows(self, likes: Adjacency) -> Callable[[NDArray[np.int64]], tuple[Any, Any]]:
        """Users with these likes -> their logits and lifts against all items."""
        columns, table = ItemColumns(self.posterior.items), self.consideration
        _ = columns.mean  # made before there are threads

        def rows(users: NDArray[np.int64]) -> tuple[Any, Any]:
            lifts = None if table is None else table.log_ratios(likes.take(users))
            return columns.means(self.posterior.users, users), lifts

        return rows


def tune(
    graph: Graph, plan: FitPlan, backend: Backend, times: NDArray[np.float64] | None = None
) -> tuple[FitPlan, list[Trial]]:
    """The plan with the settings chosen that are words, and what they were chosen from; numbers stay. Weights of the
    likelihood are doubled from 1 on while that helps. `times` are those of the graph's edges."""
    held = held_out(graph, plan.seed, times)
    if held is None:
        return fall_back(plan), []
    # The mean rank hardly tells weights of the likelihood apart: what they change is the tail, and the first places.
    word = plan.popularity if isinstance(plan.popularity, str) else plan.lift
    criterion = top_score if word == AUTO_TOP or plan.likelihood_weight == AUTO else mean_rank
    given = given_weights(plan)
    trials: list[Trial] = []
    for value in WEIGHTS if isinstance(plan.likelihood_weight, str) else (plan.weight,):
        parts = short_fit(held.train, replace(plan, likelihood_weight=value), backend)
        trials.append(Trial(value, *best_weights(weight_curve(parts, held, criterion, backend.map, *given))))
        logger.info(
            "likelihood weight %g: popularity %g, lift %g, score %.4f on validation",
            value,
            *trials[-1].weights,
            trials[-1].score,
        )
        if len(trials) > 1 and trials[-1].score <= trials[-2].score:
            break
        best_fit = parts
    chosen = max(trials, key=lambda trial: trial.score)
    weights = chosen.weights
    if word == AUTO and criterion is not mean_rank:
        weights = best_weights(weight_curve(best_fit, held, mean_rank, backend.map, *given))[0]
    return with_weights(plan, chosen.weight, weights), trials


def with_weights(plan: FitPlan, weight: float, weights: Weights) -> FitPlan:
    """The plan with these settings; without the walk it says nothing of lift."""
    lift = weights.lift if plan.consideration == "walk" else plan.lift
    return replace(plan, likelihood_weight=weight, popularity=weights.popularity, lift=lift)


def given_weights(plan: FitPlan) -> tuple[float | None, float | None]:
    """The weights of log pi and of lift that are numbers, None where one is to be chosen. Lift goes with popularity
    where nothing is said of it, and without the walk there is none."""
    popularity = None if isinstance(plan.popularity, str) else plan.popularity_weight
    chosen = isinstance(plan.lift, str) or (plan.lift is None and popularity is None)
    return popularity, None if chosen and plan.consideration == "walk" else plan.lift_weight


def fall_back(plan: FitPlan) -> FitPlan:
    """The plan with its words replaced by what theory and the default have, and a warning."""
    walk = float(plan.consideration == "walk")
    popularity, lift = given_weights(plan)
    weights = Weights(max(0.5, walk) if popularity is None else popularity, walk if lift is None else lift)
    weight = FALLBACK_WEIGHT if isinstance(plan.likelihood_weight, str) else plan.weight
    logger.warning(
        "fewer than %d users have two likes or more, too few to choose settings by; popularity is %g, lift %g and the "
        "likelihood's weight %g",
        LEAST_USERS,
        *weights,
        weight,
    )
    return with_weights(plan, weight, weights)


def held_out(graph: Graph, seed: int, times: NDArray[np.float64] | None = None) -> HeldOut | None:
    """One like of every user who has two, the latest where enough of them have times; None where they are too few.
    Where there are very many scores to rank, only a sample is ranked."""
    able = graph.by_user.degrees >= 2
    if int(able.sum()) < LEAST_USERS:
        return None
    if times is not None:
        dated = np.bincount(graph.pairs()[0][~np.isnan(times)], minlength=graph.user_count) > 0
        times = times if int((able & dated).sum()) >= LEAST_USERS else None
    held = one_per_user(graph, seed) if times is None else last_per_user(graph, times, seed)
    most = max(LEAST_USERS, int(MOST_SCORES / max(1, graph.item_count)))
    if len(held.users) <= most:
        return held
    random = np.random.Generator(np.random.Philox(key=[seed, 0x7C4E]))
    some = np.sort(random.choice(len(held.users), most, replace=False))
    return HeldOut(held.train, held.users[some], held.items[some])


def short_fit(graph: Graph, plan: FitPlan, backend: Backend) -> ScoreParts:
    """What scores are made of after a few sweeps, all of it from this graph."""
    popularity = make_popularity(graph, plan, backend)
    consideration = make_consideration(graph, plan, popularity.weights, backend)
    estimator = make_estimator(graph, plan, popularity.weights, backend, consideration)
    plan = replace(plan, sweeps=SWEEPS, tolerance=0.0)
    *_, last = sweep_until_settled(InMemory(graph, estimator, plan, backend), plan, FitProgress())
    return ScoreParts(last.state.posterior, log_popularity(popularity.weights, popularity.gamma), consideration)


def weight_curve(
    parts: ScoreParts,
    held: HeldOut,
    criterion: Callable[[Ranks], float],
    run: Any,
    popularity: float | None = None,
    lift: float | None = None,
) -> dict[Weights, float]:
    """The criterion at weights up to the walk alone, then finer around the best of them. A weight given stays."""
    lift = 0.0 if parts.consideration is None else lift
    rows, curve = parts.rows(held.seen), dict[Weights, float]()

    def measure(some: Iterable[Weights]) -> None:
        new = [weights for weights in dict.fromkeys(some) if weights not in curve]
        curve.update(zip(new, map(criterion, weighted_ranks(rows, parts.log_pi, new, held, run))))

    measure(
        Weights(knob, theta)
        for theta in (LIFTS if lift is None else (lift,))
        for knob in ([knob * _scale(theta) for knob in KNOBS] if popularity is None else (popularity,))
    )
    for step in FINER:
        best, _ = best_weights(curve)
        steps = [round(step * _scale(best.lift) * count, 4) for count in range(-2, 3)]
        around = (
            Weights(round(best.popularity + more, 4), round(best.lift + further, 4))
            for further in (steps if lift is None else (0.0,))
            for more in (steps if popularity is None else (0.0,))
        )
        measure(
            weights
            for weights in around
            if (popularity is not None or 0.0 <= weights.popularity <= KNOBS[-1] * _scale(weights.lift))
            and (lift is not None or 0.0 <= weights.lift <= LIFTS[-1])
        )
    return curve


def _scale(lift: float) -> float:
    """What the steps of a weight grow with: beside much lift, a little more of popularity does nothing."""
    return max(1.0, abs(lift))


def best_weights(curve: dict[Weights, float]) -> tuple[Weights, float]:
    """The weights of the largest value, the smaller of those that tie; and the value."""
    return max(curve.items(), key=lambda point: (point[1], -point[0].lift, -point[0].popularity))


def knob_curve(
    posterior: Posterior,
    log_pi: NDArray[np.float32],
    held: HeldOut,
    criterion: Callable[[Ranks], float],
    run: Any,
    given: float | None = None,
) -> dict[float, float]:
    """The curve of popularity alone, without lift."""
    curve = weight_curve(ScoreParts(posterior, log_pi), held, criterion, run, given)
    return {weights.popularity: value for weights, value in curve.items()}


def mean_rank(ranks: Ranks) -> float:
    """Mean S_rank: the whole ranking, the head and the end of it alike."""
    return float(rank_scores(ranks).mean())


def top_score(ranks: Ranks) -> float:
    """Mean NDCG at 20: the first places."""
    return float(ndcg(ranks, TOP).mean())
