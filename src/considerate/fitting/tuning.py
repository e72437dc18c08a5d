"""Choice of settings on held-out likes: the two weights of the ranking, and c, gamma and rho of the fit.

One like of every user is held out, the latest if the data has times. Short fits to the others are compared, and the
settings that rank the held-out likes best are chosen. The walk's table is also made of the others only, so it never saw
the held-out likes. The bound chooses nothing: it leaves out KL(q(H) || p(H)), so it cannot compare fits with different
H.

The fit that follows is to all likes. Its posterior is the same as if the chosen settings were given as numbers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency, Graph
from considerate.data.known import Known
from considerate.errors import DivergedError, MemoryLimitError
from considerate.evaluation.metrics import ndcg, rank_scores
from considerate.evaluation.ranks import Ranks, weighted_ranks
from considerate.evaluation.split import HeldOut, last_per_user, one_per_user
from considerate.fitting.memory import check_memory
from considerate.fitting.session import make_consideration, make_estimator, make_popularity
from considerate.fitting.stopping import FitProgress, sweep_until_settled
from considerate.inference.hidden import popularity_exponent, user_offset
from considerate.inference.hidden.consideration import Lift
from considerate.inference.plan import SETTINGS, TUNED, Chosen, FitPlan
from considerate.inference.posterior import Posterior
from considerate.inference.sweep import InMemory
from considerate.kernels.threads import Backend
from considerate.model.predict import ItemColumns
from considerate.model.ranking import log_popularity
from considerate.settings import AUTO

logger = logging.getLogger("considerate")

KNOBS = tuple(0.25 * step for step in range(7))  # first weights of log pi to try; larger with more lift
LIFTS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)  # weights of log lift; at the end the walk decides
FINER = (0.1, 0.05)  # steps around the best weights, on the same scale
ORDER = ("likelihood_weight", "negatives", "gamma")  # settings of the fit, in the order of the trials
SWEEPS = 12  # sweeps of a trial: past the start, before the steps shrink
LEAST_USERS = 100  # fewest held-out likes to choose on
MOST_SCORES = 2e8  # most scores of held-out users and all items; beyond that a sample of the users is ranked
TOP = 20
Criterion = Callable[[Ranks], float]


class Weights(NamedTuple):
    """Weights of log pi and of log lift in a score."""

    popularity: float
    lift: float

    def text(self) -> str:
        return f"popularity {self.popularity:g}, lift {self.lift:g}"


@dataclass(frozen=True)
class ScoreParts:
    """Terms of scores without weights: logits, log pi, and lift if there is a walk."""

    posterior: Posterior
    log_pi: NDArray[np.float32]
    lift: Lift | None = None

    def rows(self, likes: Adjacency) -> Callable[[NDArray[np.int64]], tuple[Any, Any]]:
        """Function from users with these likes to their logits and lifts for all items."""
        columns, lift = ItemColumns(self.posterior.items), self.lift
        _ = columns.mean  # computed before threads start

        def rows(users: NDArray[np.int64]) -> tuple[Any, Any]:
            lifts = None if lift is None else lift.log_ratios(likes.take(users))
            return columns.means(self.posterior.users, users), lifts

        return rows


@dataclass(frozen=True)
class Trial:
    """Trial of a short fit: its plan with the weights that ranked the held-out likes best, and their score."""

    plan: FitPlan
    parts: ScoreParts
    score: float


def tune(
    graph: Graph,
    plan: FitPlan,
    backend: Backend,
    times: NDArray[np.float64] | None = None,
    known: Known | None = None,
) -> FitPlan:
    """Choose the settings that the plan leaves open, and record the trials; the others stay. `times` are the times of
    the graph's edges."""
    if "gamma" in plan.tuned:
        plan = replace(plan, gamma=popularity_exponent(graph.by_item.degrees, plan.rate))
    times = known_times(graph, times)
    held = held_out(graph, plan.seed, times)
    if held is None:
        return fall_back(plan)
    search = Search(plan, held, backend, known)
    best, trials = search.climb()
    if search.fitted and search.weighed and plan.criterion == AUTO:
        best = search.weigh(best.plan, best.parts, mean_rank)
    chosen = Chosen(
        settings=search.values(best.plan),
        criteria={name: CRITERIA[search.criterion_of(name)] for name in search.names},
        likes=len(held.users),
        latest=times is not None,
        trials=tuple(search.values(trial.plan) | {"score": trial.score} for trial in trials),
    )
    return replace(best.plan, tuned=frozenset(), chosen=chosen)


class Search:
    """Search by at most eight short fits that changes one setting at a time, from the best so far, while it helps."""

    def __init__(self, plan: FitPlan, held: HeldOut, backend: Backend, known: Known | None = None) -> None:
        self.plan, self.held, self.backend, self.known = plan, held, backend, known
        self.names = [name for name in TUNED if name in plan.tuned]
        self.weighed = [name for name in self.names if name in Weights._fields]
        tries = {name: SETTINGS[name].metadata["tries"] for name in ORDER if name in plan.tuned}
        self.fitted: dict[str, tuple[float, ...]] = {name: values(plan) for name, values in tries.items()}

    def criterion_of(self, name: str) -> Criterion:
        """Criterion that chooses a setting. The mean rank hardly differs between fits, whose settings change the tail
        and the first places."""
        return mean_rank if name in self.weighed and self.plan.criterion == AUTO else top_score

    def climb(self) -> tuple[Trial, list[Trial]]:
        """Run trials; return the best one and all."""
        criterion = self.criterion_of([*self.fitted, *self.names][0])
        start = _with(self.plan, {name: ladder[0] for name, ladder in self.fitted.items()})
        trials = [best := self.weigh(start, short_fit(self.held.train, start, self.backend, self.known), criterion)]
        for name, (_, *ladder) in self.fitted.items():
            for value in ladder:
                plan = _with(best.plan, {name: value})
                try:
                    check_memory(self.held.train, plan)
                    parts = short_fit(self.held.train, plan, self.backend, self.known)
                except (MemoryLimitError, DivergedError) as error:
                    logger.info("%s %g is not tried: %s", name, value, error)
                    break
                trials.append(self.weigh(plan, parts, criterion))
                if trials[-1].score <= best.score:
                    break
                best = trials[-1]
        return best, trials

    def weigh(self, plan: FitPlan, parts: ScoreParts, criterion: Criterion) -> Trial:
        """Make the trial of a fit, and choose the weights that its plan leaves open."""
        weights: dict[str, Any] = {"popularity": plan.popularity, "lift": plan.lift}
        given = {name: None if name in self.weighed else value for name, value in weights.items()}
        curve = weight_curve(parts, self.held, criterion, self.backend.map, **given)
        best, score = best_weights(curve)
        plan = _with(plan, {name: getattr(best, name) for name in self.weighed})
        values = ", ".join(f"{name} {value:g}" for name, value in self.values(plan).items())
        logger.info("%s: %s %.4f on likes held out", values, CRITERIA[criterion], score)
        return Trial(plan, parts, score)

    def values(self, plan: FitPlan) -> dict[str, float]:
        """Values of the plan for the settings to choose."""
        return {name: float(getattr(plan, name)) for name in self.names}


def _with(plan: FitPlan, values: dict[str, Any]) -> FitPlan:
    return replace(plan, **values)


def fall_back(plan: FitPlan) -> FitPlan:
    """Keep the defaults of a plan, with a warning, when there are too few likes to choose on."""
    names = [name for name in TUNED if name in plan.tuned]
    plan = replace(plan, tuned=frozenset())
    chosen = Chosen({name: float(getattr(plan, name)) for name in names}, {}, 0, False, ())
    logger.warning("fewer than %d users have two likes or more; %s", LEAST_USERS, chosen.told())
    return replace(plan, chosen=chosen)


def known_times(graph: Graph, times: NDArray[np.float64] | None) -> NDArray[np.float64] | None:
    """Times, if enough users with two likes have any; else None."""
    if times is None:
        return None
    dated = np.bincount(graph.pairs()[0][~np.isnan(times)], minlength=graph.user_count) > 0
    return times if int((dated & (graph.by_user.degrees >= 2)).sum()) >= LEAST_USERS else None


def held_out(graph: Graph, seed: int, times: NDArray[np.float64] | None = None) -> HeldOut | None:
    """Hold out one like of every user with two, the latest if there are times; None if such users are too few. If the
    scores are very many, only a sample of the users is ranked."""
    if int((graph.by_user.degrees >= 2).sum()) < LEAST_USERS:
        return None
    held = one_per_user(graph, seed) if times is None else last_per_user(graph, times, seed)
    most = max(LEAST_USERS, int(MOST_SCORES / max(1, graph.item_count)))
    if len(held.users) <= most:
        return held
    random = np.random.Generator(np.random.Philox(key=[seed, 0x7C4E]))
    some = np.sort(random.choice(len(held.users), most, replace=False))
    return HeldOut(held.train, held.users[some], held.items[some])


def short_fit(graph: Graph, plan: FitPlan, backend: Backend, known: Known | None = None) -> ScoreParts:
    """Terms of scores after a few sweeps, all computed from this graph."""
    popularity = make_popularity(graph, plan, backend)
    consideration = make_consideration(graph, plan, popularity.weights, backend)
    extra = user_offset(graph.by_user, popularity.weights, plan, known)
    estimator = make_estimator(graph, plan, popularity.weights, backend, consideration, known, extra)
    plan = replace(plan, sweeps=SWEEPS, tolerance=0.0)
    runner = InMemory(graph, estimator, plan, backend, user_offset=extra)
    *_, last = sweep_until_settled(runner, plan, FitProgress())
    log_pi = log_popularity(popularity.weights, popularity.gamma)
    return ScoreParts(last.state.posterior, log_pi, Lift.of(consideration, plan))


def weight_curve(
    parts: ScoreParts,
    held: HeldOut,
    criterion: Criterion,
    run: Any,
    popularity: float | None = None,
    lift: float | None = None,
) -> dict[Weights, float]:
    """Compute the criterion on a grid of weights, then on finer ones around the best. A given weight stays."""
    lift = 0.0 if parts.lift is None else lift
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
        steps = [step * _scale(best.lift) * count for count in range(-2, 3)]
        around = (
            Weights(round(best.popularity + more, 2), round(best.lift + further, 2))
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
    """Factor of the steps of popularity's weight, which grows with lift: with much lift, small steps have no effect."""
    return max(1.0, abs(lift))


def best_weights(curve: dict[Weights, float]) -> tuple[Weights, float]:
    """Weights with the largest value, the smaller ones of a tie; and the value."""
    return max(curve.items(), key=lambda point: (point[1], -point[0].lift, -point[0].popularity))


def mean_rank(ranks: Ranks) -> float:
    """Mean S_rank, in which all places of the ranking count alike."""
    return float(rank_scores(ranks).mean())


def top_score(ranks: Ranks) -> float:
    """Mean NDCG at 20, in which the first places count."""
    return float(ndcg(ranks, TOP).mean())


CRITERIA: dict[Criterion, str] = {mean_rank: "S_rank", top_score: f"NDCG@{TOP}"}
