"""Does data simulated from the model give back its like-probabilities, and do their intervals hold the truth?

    python -m studies.recovery [--results build/recovery.json]
    python -m studies.recovery --picture docs/images/coverage.svg [--totals build/totals.json]
    python -m studies.recovery --calibration
    python -m studies.recovery --tilt [--data FOLDER]

Vectors and coins come from `simulate_from_model(hidden="popularity")`: a user considers items in proportion to their
popularity, and likes each with the chance sigma(a). The fit sees the likes alone.

The first command fits each case with the defaults and as in the paper (c = 1, H drawn by popularity), with three seeds
each, and holds the intervals of p(like) against sigma(a): on considered pairs, on pairs never considered, and on the
ten items of highest p(like) of each user. Last it names the targets that are not met. With --results it writes the
figures, or reads them where the file is there.

With --calibration: p(like) against the *known* coins on every considered edge, liked or not, and against sigma(a).

q(H) draws what was considered and not liked from pi, whatever the user's taste. Given the likes that is right only
where a user considered most of the catalogue: P(considered | not liked) = w (1 - sigma(a)) / (1 - w sigma(a)), which
forgets a as w goes to 1. Where w is small the drawn negatives hold items that the user would have liked, and the
fitted odds tend to 2 sigma(a) in place of exp(a): half the slope at a = 0, and never above 2. Rows "drawn" show both
ends of this; rows "known" are fitted to the true H and tell what is due to q(H) and what to mean-field inference.

With --tilt: p(like) at several tilts of the draws, where people consider an eighth of the catalogue and flip coins
after, and on MovieLens-1M, held-out likes against ratings of 1 to 3, classes weighted equally.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate import Recommender
from considerate.data.graph import Adjacency, Graph
from considerate.evaluation.calibration import EQUAL, reliability
from considerate.evaluation.recalibration import fit_recalibration
from considerate.inference.full import FullInMemory
from considerate.inference.hidden import Observed
from considerate.inference.plan import FitPlan
from considerate.inference.sweep import InMemory
from considerate.kernels.threads import LocalBackend
from considerate.model.liking import INTERVAL, like_probability, sigmoid
from considerate.model.predict import logit_moments
from considerate.simulation.degrees import PowerLaw
from considerate.simulation.simulate import ModelSample, simulate_from_model
from considerate.study.peers import training_matrix
from studies import coverage, intervals, totals
from studies.considered import load
from studies.options import study_parser

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Case:
    """What is simulated."""

    name: str
    users: int = 4000
    items: int = 200
    factors: int = 3
    tau_user: float = 1.0
    tau_item: float = 1.0
    tau_item_bias: float = math.inf
    user_law: PowerLaw | None = None

    def sample(self, seed: int = 0) -> ModelSample:
        return simulate_from_model(
            self.users,
            self.items,
            self.factors,
            tau_user=self.tau_user,
            tau_item=self.tau_item,
            tau_item_bias=self.tau_item_bias,
            hidden="popularity",
            user_law=self.user_law,
            seed=seed,
        )


NEARLY_ALL = PowerLaw(0.5, minimum=180)  # of 200 items: w is near 1, and q(H) is right
EIGHTH = PowerLaw(1.4, cutoff=70.0, minimum=40)  # of 500 items
CASES = (
    Case("most considered", user_law=NEARLY_ALL),
    Case("most considered, item biases", user_law=NEARLY_ALL, tau_item_bias=2.0),
    Case("an eighth considered", items=500, user_law=EIGHTH),
    Case("an eighth, item biases", items=500, user_law=EIGHTH, tau_item_bias=2.0),
    Case("a twentieth considered", items=500),
    Case("a twentieth, the paper's taus", items=500, tau_user=2.0, tau_item=3.5),
    Case("a twentieth, item biases", items=500, tau_item_bias=2.0),
)


@dataclass(frozen=True)
class Figures:
    """Over the considered edges."""

    edges: int
    liked: float  # share
    ece_coins: float  # expected calibration error of p(like) against the coins
    ece_truth: float  # the same against sigma(a)
    auc: float  # of p(like), liked against considered and not liked
    rmse: float  # of the logit
    spread: float  # standard deviation of the true logit: the RMSE of knowing nothing
    coverage: float  # of the logit's 90 % interval
    widening: float  # by how much the interval would have to be wider to hold 90 %


def calibration_error(p: Floats, outcome: NDArray[Any], bins: int = 20) -> float:
    """sum over bins of |mean p - mean outcome|, weighted by the bins' shares."""
    place = np.minimum((p * bins).astype(np.int64), bins - 1)
    gaps = np.bincount(place, p, minlength=bins) - np.bincount(place, outcome, minlength=bins)
    return float(np.abs(gaps).sum() / len(p))


def area_under_curve(score: Floats, positive: NDArray[np.bool_]) -> float:
    from scipy.stats import rankdata

    ranks, count = rankdata(score)[positive].sum(), int(positive.sum())
    return float((ranks - count * (count + 1) / 2) / (count * (len(score) - count)))


def figures(sample: ModelSample, mean: Floats, deviation: Floats) -> Figures:
    p = like_probability(mean, deviation**2)
    off = np.abs(mean - sample.logit) / deviation
    return Figures(
        edges=len(p),
        liked=float(sample.liked.mean()),
        ece_coins=calibration_error(p, sample.liked),
        ece_truth=calibration_error(p, sigmoid(sample.logit)),
        auc=area_under_curve(p, sample.liked),
        rmse=float(np.sqrt(np.mean((mean - sample.logit) ** 2))),
        spread=float(sample.logit.std()),
        coverage=float((off <= INTERVAL).mean()),
        widening=float(np.quantile(off, 0.9) / INTERVAL),
    )


PAPERS: dict[str, Any] = {
    "consideration": "popularity",
    "negatives": 1,
    "likelihood_weight": 1,
    "sweeps": 40,
    "tolerance": 0,
}


def likes_of(sample: ModelSample) -> Any:
    """The likes alone, users by items."""
    from scipy import sparse

    shape = (sample.user_count, sample.item_count)
    return sparse.csr_matrix((np.ones(len(sample.users)), (sample.users, sample.items)), shape=shape)


def fit_likes(sample: ModelSample, **settings: Any) -> Recommender:
    """The likes alone, c = 1, H drawn from popularity as in the paper."""
    factors = sample.user_vectors.shape[1]
    return Recommender(**{"factors": factors, **PAPERS, **settings}).fit(likes_of(sample))


def fit_drawn(sample: ModelSample, **settings: Any) -> Figures:
    """The likes alone, negatives drawn (or expected) under q(H), c = 1."""
    fitted = fit_likes(sample, **settings)
    mean, deviation = fitted.predict_logit(sample.hidden_users, sample.hidden_items)
    return figures(sample, mean.astype(np.float64), deviation.astype(np.float64))


def fit_known(sample: ModelSample, count: int = 40, **given: Any) -> Figures:
    """The likes and the true negatives."""
    users, items = sample.users.astype(np.int32), sample.items.astype(np.int32)
    graph = Graph.from_pairs(users, items, sample.user_count, sample.item_count)
    settings = FitPlan.of_paper(factors=sample.user_vectors.shape[1], **given)
    runner = FullInMemory if settings.is_full else InMemory
    with LocalBackend() as backend:
        unliked = sample.hidden_users[~sample.liked], sample.hidden_items[~sample.liked]
        true_h = Observed(
            Adjacency.of_pairs(*unliked, graph.user_count, graph.item_count), graph.item_count, backend.map
        )
        for done in runner(graph, true_h, settings, backend).sweeps():
            if done.state.sweep == count:
                break
    q = done.state.posterior
    mean, variance = logit_moments(q.users, q.items, sample.hidden_users, sample.hidden_items)
    return figures(sample, mean.astype(np.float64), np.sqrt(settings.likelihood_weight * variance.astype(np.float64)))


COLUMNS = ("case", "H", *Figures.__dataclass_fields__)


def line(case: str, hidden: str, found: Figures) -> str:
    cells = [f"{value:>9.4f}" if isinstance(value, float) else f"{value:>9d}" for value in asdict(found).values()]
    return f"{case:<30} {hidden:<9}" + " ".join(cells)


def header() -> str:
    return f"{'case':<30} {'H':<9}" + " ".join(f"{name:>9}" for name in Figures.__dataclass_fields__)


TILTS = (-1.0, -0.5, -0.25, 0.0, 0.5, 1.0)


def print_calibration(name: str, p: Floats, liked: NDArray[np.bool_], weights: str | None) -> None:
    table, slope = reliability(p, liked, weights), fit_recalibration(p, liked, weights).slope
    print(f"{name:<44} ECE {table.calibration_error:.4f}  slope {slope:.3f}  AUC {table.auc:.4f}", flush=True)


def tilts(folder: Path) -> None:
    """p(like) at several tilts, on data simulated consider-first and on MovieLens-1M."""
    case = CASES[2]
    sample = case.sample()
    for tilt in TILTS:
        p = fit_likes(sample, tilt=tilt).predict_proba(sample.hidden_users, sample.hidden_items)
        print_calibration(f"{case.name}, tilt {tilt:g}", p, sample.liked, None)
    held, users, items = load(folder, "ml-1m", 0)
    matrix, liked = training_matrix(held.train), np.arange(len(held.users) + len(users)) < len(held.users)
    for negatives in (1.0, 5.0):
        for tilt in TILTS:
            fitted = Recommender(consideration="walk", negatives=negatives, tilt=tilt).fit(matrix)
            p = fitted.predict_proba(np.append(held.users, users), np.append(held.items, items))
            print_calibration(f"MovieLens-1M, the walk, c {negatives:g}, tilt {tilt:g}", p, liked, EQUAL)


SETTINGS: dict[str, dict[str, Any]] = {
    intervals.SHIPPED: {},
    "the paper's": {"factors": 3, **PAPERS},
}
SEEDS = 3


def interval_rows(cases: Iterable[Case] = CASES, seeds: int = SEEDS) -> Iterator[intervals.Row]:
    """Intervals of each case at each setting, one fit a seed, with one thread."""
    for case in cases:
        samples = [case.sample(seed) for seed in range(seeds)]
        for name, settings in SETTINGS.items():
            found = []
            for seed, sample in enumerate(samples):
                fitted = Recommender(seed=seed, threads=1, **settings).fit(likes_of(sample))
                found.append(intervals.measure(fitted, sample, seed))
            yield intervals.Row(case.name, name, intervals.mean_of(found))


def print_intervals(results: Path | None) -> list[intervals.Row]:
    if results is not None and results.exists():
        rows = intervals.read_rows(results)
    else:
        rows = list(interval_rows())
        if results is not None:
            intervals.write_rows(rows, results)
    intervals.print_rows(rows)
    intervals.print_targets(rows)
    return rows


def print_figures() -> None:
    print(header())
    for case in CASES:
        sample = case.sample()
        print(line(case.name, "drawn", fit_drawn(sample)))
        print(line(case.name, "expected", fit_drawn(sample, hidden="expected")))
        print(line(case.name, "known", fit_known(sample)), flush=True)
    print("\n`python -m studies.full` has the same with covariances, and without the logistic bound.")


def main() -> None:
    parser = study_parser(__doc__)
    parser.add_argument("--calibration", action="store_true", help="p(like) against known coins")
    parser.add_argument("--tilt", action="store_true", help="p(like) at several tilts")
    parser.add_argument("--results", type=Path, help="a file of JSON that the figures of intervals are kept in")
    parser.add_argument("--picture", type=Path, help="draw the coverage of intervals, as SVG")
    parser.add_argument("--totals", type=Path, help="results of studies.totals, for the picture")
    options = parser.parse_args()
    if options.tilt:
        tilts(options.data)
    elif options.calibration:
        print_figures()
    else:
        rows = print_intervals(options.results)
        if options.picture is not None:
            coverage.draw(rows, totals.read_lines(options.totals) if options.totals else [], options.picture)


if __name__ == "__main__":
    main()
