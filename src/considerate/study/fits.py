"""Work of a study on one fit, ours or a peer's: its trial on validation, its results on a split, its curve over time.

The last parameters of a function are the held-out likes, the settings of the model, and a `Compute`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data import ReaderOptions
from considerate.data.graph import Graph, Run, run_serially
from considerate.data.side_information import read_side
from considerate.evaluation.considered import considered_aucs, judged_split
from considerate.evaluation.fitted import p_like
from considerate.evaluation.metrics import coverage, gini, mean_popularity, novelty, rank_scores, recall
from considerate.evaluation.ranks import Ranks, held_ranks, ranks_and_lists
from considerate.evaluation.report import TAIL
from considerate.evaluation.scorer import ModelScorer, Scorer
from considerate.evaluation.split import HeldOut
from considerate.fitting.tuning import ScoreParts, Weights, best_weights, mean_rank, top_score, weight_curve
from considerate.model.model import Model
from considerate.recommender import Recommender
from considerate.study.cache import Arrays
from considerate.study.material import Judged
from considerate.study.peers import Peer, Settings, Stopwatch, fit_peer, training_matrix

K = 20  # length of a list
MOST_SCORES = 10**10  # scores of a split, at most: ten thousand users by a million items
TUNED_ON = 5000  # users of the validation split at most, drawn by the seed
TIE = 0.0005  # smaller differences of mean S_rank are within the noise of a validation split
PATIENCE = 3  # snapshots without a better S_rank that end a trial
STREAM = 0x57D1
EXAMPLE_SHARES = (0.1, 0.5, 0.9)  # quantiles of the number of likes of the users in the examples
EXAMPLE_LENGTH = 8  # items in the list of an example
KNOBS = tuple(round(0.1 * step, 1) for step in range(16))  # popularity weights of the curve: 0 to 1.5

# Code that a result depends on; a result is computed again when it changes.
OUR_CODE = ("kernels", "data/graph.py", "settings.py", "inference", "model", "fitting", "recommender.py")
CODE = ("evaluation", "study/peers.py", "study/fits.py", "study/material.py")

# Settings of the paper's experiments; all that matter are named, so defaults do not change them.
PAPER: dict[str, Any] = {
    "factors": 20,
    "hidden": "sampled",
    "consideration": "popularity",
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


@dataclass(frozen=True)
class Compute:
    """Seed and threads of a fit, and the map over blocks of users in its ranking."""

    seed: int
    threads: int
    run: Run[Any, Any]
    considered: Any = None  # considered pairs for our own fits, a scipy matrix

    def seeded(self, peer: Peer) -> Compute:
        """Settings for a seeded fit of a peer, which may be limited to one thread."""
        return replace(self, threads=1, run=run_serially) if peer.one_thread else self


@dataclass(frozen=True)
class Ranking:
    """Score that a model ranks by: with both weights, a score of the paper, or a peer's only score."""

    name: str
    weights: Weights | None = None
    paper: str | None = None

    def scorer(self, model: Model) -> ModelScorer:
        """Make the scorer; without a table of who considers what, it has no lift."""
        popularity, lift = self.weights or (None, None)
        return ModelScorer(model, popularity, self.paper, self.name, lift=lift if model.consideration else None)


@dataclass(frozen=True)
class SplitResult:
    """Results of a scorer on the held-out likes of one split."""

    ranks: Ranks
    popularity: NDArray[np.float64]  # [tested users] mean degree of the list
    novelty: NDArray[np.float64]  # [tested users]
    coverage: float
    gini: float
    seconds: float  # of the fit

    @classmethod
    def from_arrays(cls, arrays: Arrays, held: HeldOut, at: int) -> SplitResult:
        """Read the results of the scorer number `at` from the arrays of `measure`."""
        candidates = held.train.item_count - held.seen.degrees[held.users]
        above, ties = (arrays[f"{at}.{name}"].astype(np.int64) for name in ("above", "ties"))
        ranks = Ranks(held.users, held.items, above, ties, candidates.astype(np.int64))
        share, unevenness = arrays[f"{at}.lists"].tolist()
        popularity, novelty = arrays[f"{at}.popularity"], arrays[f"{at}.novelty"]
        return cls(ranks, popularity, novelty, share, unevenness, float(arrays["seconds"]))


def our_trials(given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Six settings: as given; two other likelihood weights; twice the negatives, also with another exponent of the
    popularity; and H drawn mostly by popularity, which can help on sparse data (without the walk: H drawn by it)."""
    plan = Recommender(**given).plan()
    rho, c, gamma = (
        plan.likelihood_weight,
        2 * plan.negatives,
        plan.gamma or 1.0,
    )  # the default if gamma is to be chosen
    lower, higher, by_walk = rho / 1.3, rho * 1.5, plan.consideration == "walk"
    changes: list[dict[str, Any]] = [
        {},
        {"likelihood_weight": round(lower, 6)},
        {"likelihood_weight": round(higher, 6)},
        {"negatives": c},
        {"negatives": c, "gamma": round(gamma - 0.1, 6)},
        {"mixing": 0.9, "likelihood_weight": round(1.15 * rho, 6)} if by_walk else {"consideration": "walk"},
    ]
    return [dict(given) | change for change in changes]


def our_sweeps(train: Graph, settings: Settings, compute: Compute) -> Iterator[tuple[int, Recommender, float]]:
    """Yield (sweep, recommender, seconds) after every sweep; time in the caller does not count. The study itself
    chooses the knob, on the same likes as the other settings."""
    chosen = dict(settings) | {"popularity": 0.0, "seed": compute.seed, "threads": compute.threads}
    recommender, matrix, watch = Recommender(**chosen), training_matrix(train), Stopwatch()
    side = read_side(matrix, ReaderOptions(), compute.considered)
    steps = recommender.fit_steps(replace(recommender.fit_request(matrix), side=side))
    while True:
        with watch:
            step = next(steps, None)
        if step is None:
            return
        yield step.sweep, recommender, watch.seconds


def fit_ours(train: Graph, settings: Settings, compute: Compute) -> tuple[Model, float]:
    """Fit to the end; return (model, seconds)."""
    *_, (_, recommender, seconds) = our_sweeps(train, settings, compute)
    return recommender.model_, seconds


def most_users(items: int) -> int:
    """Largest number of users in a split, because every recommender scores all items for each."""
    return max(1, MOST_SCORES // items)


def some_users(held: HeldOut, seed: int, most: int = TUNED_ON) -> HeldOut:
    """Reduce a split to the held-out likes of at most `most` users, drawn by the seed; the training graph stays."""
    people = np.unique(held.users)
    if len(people) <= most:
        return held
    random = np.random.Generator(np.random.Philox(key=[seed, STREAM]))
    return held_of(held, random.permutation(people)[:most])


def held_of(held: HeldOut, people: NDArray[np.int64]) -> HeldOut:
    """Reduce a split to the held-out likes of some users."""
    kept = np.isin(held.users, people)
    return replace(held, users=held.users[kept], items=held.items[kept], left_out=0)


# --- Trials on validation ---


def try_ours(valid: HeldOut, settings: Settings, compute: Compute) -> dict[str, Any]:
    """Try ours on validation: find the best weights by mean S_rank, by NDCG@20 and by S_rank of the tail."""
    model, seconds = fit_ours(valid.train, settings, compute)
    parts = ScoreParts(model.posterior, model.log_popularity, model.lift)
    in_tail = _in_tail(valid)

    def tail_rank(ranks: Ranks) -> float:
        return float(ranks.scores[in_tail].mean()) if in_tail.any() else -1.0

    trial: dict[str, Any] = {"seconds": seconds}
    for name, criterion in (("rank", mean_rank), ("top", top_score), ("tail", tail_rank)):
        weights, value = best_weights(weight_curve(parts, valid, criterion, compute.run))
        trial |= {name: value, f"{name} weights": list(weights)}
    return trial


def try_peer(peer: Peer, valid: HeldOut, settings: Settings, compute: Compute) -> dict[str, Any]:
    """Try a peer on validation: its best mean S_rank and the iterations that reached it; the same for the tail."""
    best: dict[str, Any] = {"rank": -1.0, "iterations": 0, "seconds": 0.0, "tail": -1.0, "tail iterations": 0}
    compute, since_best, snapshots, in_tail = compute.seeded(peer), 0, 0, _in_tail(valid)
    for snapshot in peer.snapshots(valid.train, settings, compute.seed, compute.threads):
        scores = held_ranks(snapshot.scorer, valid, compute.run).scores
        since_best, snapshots = since_best + 1, snapshots + 1
        if scores.mean() > best["rank"]:
            best |= {"rank": float(scores.mean()), "iterations": snapshot.iterations, "seconds": snapshot.seconds}
            since_best = 0
        if in_tail.any() and scores[in_tail].mean() > best["tail"]:
            best |= {"tail": float(scores[in_tail].mean()), "tail iterations": snapshot.iterations}
        if since_best >= PATIENCE:
            break
    return best | {"rising": snapshots > 1 and since_best == 0}  # the last was the best: more might help


def best_trial(trials: Sequence[Mapping[str, Any]]) -> int:
    """Index of the trial with the highest mean S_rank; among ties the best in the tail."""
    highest = max(trial["rank"] for trial in trials)
    return max(range(len(trials)), key=lambda at: (trials[at]["rank"] >= highest - TIE, trials[at]["tail"], -at))


def _in_tail(held: HeldOut) -> NDArray[np.bool_]:
    """Select the held-out likes whose item is in the tail."""
    return np.asarray(held.train.by_item.degrees[held.items] < TAIL)


# --- Results on a split ---


def measure(scorers: Sequence[Scorer], seconds: float, held: HeldOut, run: Run[Any, Any]) -> Arrays:
    """Measure the ranks and lists of several scorers of one fit."""
    degree, item_count = held.train.by_item.degrees, held.train.item_count
    arrays: Arrays = {"seconds": np.array(seconds)}
    for at, scorer in enumerate(scorers):
        ranks, lists = ranks_and_lists(scorer, held, K, run)
        assert lists is not None
        arrays |= {
            f"{at}.above": ranks.above.astype(np.int32),
            f"{at}.ties": ranks.ties.astype(np.int32),
            f"{at}.popularity": np.nan_to_num(mean_popularity(lists, degree)),
            f"{at}.novelty": np.nan_to_num(novelty(lists, degree, held.train.user_count)),
            f"{at}.lists": np.array([coverage(lists, item_count), gini(lists, item_count)]),
        }
    return arrays


def measure_ours(
    rankings: Sequence[Ranking], judged: Judged | None, held: HeldOut, settings: Settings, compute: Compute
) -> Arrays:
    """Measure our model on a split: ranks, p(like) of held-out likes and judged pairs, E[tau]."""
    model, seconds = fit_ours(held.train, settings, compute)
    scorers = [ranking.scorer(model) for ranking in rankings]
    arrays = measure(scorers, seconds, held, compute.run)
    arrays["p_held"] = _raw_p_like(model, held.users, held.items)
    if judged is not None and not judged.apart:
        arrays["p_judged"] = _raw_p_like(model, judged.users, judged.items)
    taus = model.posterior.precisions
    bias = np.nan if taus.item_bias is None else taus.item_bias.mean
    return arrays | {"taus": np.array([taus.user.mean, taus.item.mean, bias])}


def measure_peer(peer: Peer, held: HeldOut, settings: Settings, compute: Compute) -> Arrays:
    """Measure a peer on a split."""
    compute = compute.seeded(peer)
    fitted = fit_peer(peer, held.train, settings, compute.seed, compute.threads)
    return measure([fitted.scorer], fitted.seconds, held, compute.run)


def judge_ours(judged: Judged, graph: Graph, settings: Settings, compute: Compute) -> Arrays:
    """Compute p(like) of judged pairs from another source, by our model of all likes."""
    model, _ = fit_ours(graph, settings, compute)
    return {
        "p_liked": _raw_p_like(model, judged.liked_users, judged.liked_items),
        "p_judged": _raw_p_like(model, judged.users, judged.items),
    }


def consider_ours(judged: Judged, held: HeldOut, settings: Settings, compute: Compute) -> Arrays:
    """Compute the AUC of each user's judged pairs against pairs never rated, [scores, users], and the users' degrees;
    no user if nobody has both kinds of pairs."""
    split = judged_split(held, judged.users, judged.items, compute.seed)
    if split is None:
        return {"names": np.empty(0, "U1"), "degree": np.empty(0, np.int64), "auc": np.empty((0, 0))}
    model, _ = fit_ours(held.train, settings, compute)
    aucs = considered_aucs(model, split, compute.run)
    degree = held.train.by_user.degrees[np.unique(split.users)]
    return {"names": np.array(list(aucs)), "degree": degree, "auc": np.stack(list(aucs.values()))}


def _raw_p_like(model: Model, users: NDArray[Any], items: NDArray[Any]) -> NDArray[np.float32]:
    """p(like) of pairs (eq. 22), without recalibration."""
    return p_like(model, users, items, recalibrated=False).astype(np.float32)


# --- Curves ---


def trace_ours(ranking: Ranking, valid: HeldOut, settings: Settings, compute: Compute) -> dict[str, Any]:
    """Trace the bound, E[tau] and quality on validation after every sweep, against seconds of fitting."""
    rows = []
    for sweep, recommender, seconds in our_sweeps(valid.train, settings, compute):
        model = recommender.model_
        ranks = held_ranks(ranking.scorer(model), valid, compute.run)
        about = {"sweep": sweep, "taus": model.posterior.precisions.means(), "spread": model.posterior.prior_spread()}
        rows.append(about | _quality(ranks, seconds))
    return _columns(rows) | {"bound": recommender.bound_[1:].tolist()}  # the first is the bound of the start


def trace_peer(peer: Peer, valid: HeldOut, settings: Settings, compute: Compute) -> dict[str, Any]:
    """Trace quality on validation against seconds of fitting; without a seed, so that all threads may be used."""
    snapshots = peer.snapshots(valid.train, settings, None, compute.threads)
    return _columns([_quality(held_ranks(each.scorer, valid, compute.run), each.seconds) for each in snapshots])


def knob_and_examples(
    knobs: Iterable[float], rankings: Sequence[Ranking], held: HeldOut, settings: Settings, compute: Compute
) -> dict[str, Any]:
    """Compute the curve of the popularity weight, with the first ranking's weight of lift, and lists of some users by
    the second ranking, all on the first split."""
    model, _ = fit_ours(held.train, settings, compute)
    lift = rankings[0].weights.lift if rankings[0].weights else 0.0
    curve = popularity_curve(model, held, knobs, lift, compute.run)
    return {"curve": curve, "examples": _example_lists(model, rankings[1], held)}


def _example_lists(model: Model, ranking: Ranking, held: HeldOut) -> list[dict[str, Any]]:
    """Collect rarest likes and lists of users with few, middling and many likes, as row numbers."""
    degree, likes = held.train.by_item.degrees, held.train.by_user
    people = np.unique(held.users)
    by_degree = people[np.argsort(likes.degrees[people], kind="stable")]
    chosen = np.unique(by_degree[[int(share * (len(people) - 1)) for share in EXAMPLE_SHARES]])
    few = held_of(held, chosen)
    rankings = (ranking, Ranking("taste alone", Weights(0.0, 0.0)), Ranking("most popular", paper="popularity"))
    lists = {each.name: ranks_and_lists(each.scorer(model), few, EXAMPLE_LENGTH)[1] for each in rankings}
    examples = []
    for at, user in enumerate(chosen.tolist()):
        own = {name: rows[at][rows[at] >= 0] for name, rows in lists.items() if rows is not None}
        liked = likes.row(user)
        rarest = liked[np.argsort(degree[liked], kind="stable")][:EXAMPLE_LENGTH]
        first = own[ranking.name]
        p = p_like(model, np.full(len(first), user), first, recalibrated=False)
        examples.append(
            {
                "user": user,
                "degree": len(liked),
                "liked": rarest.tolist(),
                "held_out": held.items[held.users == user].tolist(),
                "lists": {name: rows.tolist() for name, rows in own.items()},
                "p_like": p.tolist(),
            }
        )
    return sorted(examples, key=lambda example: (example["degree"], example["user"]))


def popularity_curve(
    model: Model, held: HeldOut, knobs: Iterable[float], lift: float, run: Run[Any, Any]
) -> dict[str, Any]:
    """Metrics on the held-out likes of a split for several popularity weights, with a fixed weight of lift."""
    degree = model.item_degree
    tail = degree[held.items] < TAIL
    rows = []
    for knob in knobs:
        scorer = Ranking(f"popularity {knob:g}", Weights(knob, lift)).scorer(model)
        ranks, lists = ranks_and_lists(scorer, held, K, run)
        assert lists is not None
        rows.append(
            {
                "knob": knob,
                "mean_rank": float(rank_scores(ranks).mean()),
                "tail_rank": float(ranks.scores[tail].mean()) if tail.any() else float("nan"),
                "recall": float(recall(ranks, K).mean()),
                "coverage": coverage(lists, model.item_count),
                "popularity": float(np.nanmean(mean_popularity(lists, degree))),
            }
        )
    return _columns(rows)


def _quality(ranks: Ranks, seconds: float) -> dict[str, float]:
    return {"rank": float(ranks.scores.mean()), "recall": float(recall(ranks, K).mean()), "seconds": seconds}


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in rows[0]}
