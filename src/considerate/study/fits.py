"""One fit on one split: what is measured of it, as arrays that can be kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Graph
from considerate.evaluation.metrics import coverage, gini, mean_popularity, novelty, recall
from considerate.evaluation.ranks import Ranks, held_ranks, ranks_and_lists
from considerate.evaluation.report import TAIL
from considerate.evaluation.scorer import ModelScorer, Scorer
from considerate.evaluation.split import HeldOut
from considerate.model.model import Model
from considerate.model.predict import like_probability, logit_moments
from considerate.study.cache import Arrays
from considerate.study.material import Judged
from considerate.study.ours import choose_knob, fit_ours, our_steps
from considerate.study.peers import FitPlan, Peer, fit_peer

K = 20  # length of a list
TUNED_ON = 5000  # users of the validation split at most, drawn by the seed
TIE = 0.0005  # of mean S_rank: trials that differ by less are within the noise of a validation split
PATIENCE = 3  # snapshots without a better S_rank, and a trial is over
STREAM = 0x57D1
CODE = ("evaluation", "study/peers.py", "study/fits.py", "study/ours.py", "study/material.py")


@dataclass(frozen=True)
class Score:
    """A way in which one of our models ranks: with the knob, or by a score of the paper."""

    name: str
    knob: float | None = None
    paper: str | None = None

    def of(self, model: Model) -> Scorer:
        return ModelScorer(model, self.knob, self.paper, self.name)


@dataclass(frozen=True)
class Measured:
    """A scorer on the test edges of one split."""

    ranks: Ranks
    popularity: NDArray[np.float64]  # [tested users] mean degree of the list
    novelty: NDArray[np.float64]  # [tested users]
    coverage: float
    gini: float
    seconds: float  # of the fit


def measure(scorers: Sequence[Scorer], held: HeldOut, seconds: float, run: Any) -> Arrays:
    """Ranks and lists of several scorers of one fit."""
    degree = held.train.by_item.degrees
    arrays: Arrays = {"seconds": np.array(seconds)}
    for at, scorer in enumerate(scorers):
        ranks, lists = ranks_and_lists(scorer, held, K, run)
        assert lists is not None
        arrays |= {
            f"{at}.above": ranks.above.astype(np.int32),
            f"{at}.ties": ranks.ties.astype(np.int32),
            f"{at}.popularity": np.nan_to_num(mean_popularity(lists, degree)),
            f"{at}.novelty": np.nan_to_num(novelty(lists, degree, held.train.user_count)),
            f"{at}.lists": np.array(
                [coverage(lists, held.train.item_count), gini(lists, held.train.item_count)], np.float64
            ),
        }
    return arrays


def measured(arrays: Arrays, held: HeldOut, at: int) -> Measured:
    """The scorer of this number out of what `measure` gave."""
    candidates = held.train.item_count - held.seen.degrees[held.users]
    above, ties = (arrays[f"{at}.{name}"].astype(np.int64) for name in ("above", "ties"))
    ranks = Ranks(held.users, held.items, above, ties, candidates.astype(np.int64))
    lists = arrays[f"{at}.lists"]
    return Measured(
        ranks,
        arrays[f"{at}.popularity"],
        arrays[f"{at}.novelty"],
        float(lists[0]),
        float(lists[1]),
        float(arrays["seconds"]),
    )


def p_like(model: Model, users: NDArray[Any], items: NDArray[Any]) -> NDArray[np.float32]:
    """p(like) of pairs (eq. 22), without any recalibration."""
    mean, variance = logit_moments(model.posterior.users, model.posterior.items, users, items)
    return np.asarray(like_probability(mean, model.variance_scale * variance), np.float32)


def measure_ours(
    held: HeldOut,
    settings: Mapping[str, Any],
    scores: Sequence[Score],
    judged: Judged | None,
    seed: int,
    threads: int,
    run: Any,
) -> Arrays:
    """Our model on a split: its ranks, its p(like) of the held-out likes and of the pairs that were judged, E[tau]."""
    model, seconds = fit_ours(held.train, settings, seed, threads)
    arrays = measure([score.of(model) for score in scores], held, seconds, run)
    arrays["p_held"] = p_like(model, held.users, held.items)
    if judged is not None and not judged.apart:
        arrays["p_judged"] = p_like(model, judged.users, judged.items)
    taus = model.posterior.precisions
    arrays["taus"] = np.array(
        [taus.user.mean, taus.item.mean, np.nan if taus.item_bias is None else taus.item_bias.mean]
    )
    return arrays


def measure_peer(held: HeldOut, peer: Peer, settings: FitPlan, seed: int, threads: int, run: Any) -> Arrays:
    """A peer on a split."""
    fitted = fit_peer(peer, held.train, settings, seed, threads)
    return measure([fitted.scorer], held, fitted.seconds, run)


def judge_ours(graph: Graph, settings: Mapping[str, Any], judged: Judged, seed: int, threads: int) -> Arrays:
    """p(like) of pairs judged apart, of our model fitted to all likes."""
    model, _ = fit_ours(graph, settings, seed, threads)
    return {
        "p_liked": p_like(model, judged.liked_users, judged.liked_items),
        "p_judged": p_like(model, judged.users, judged.items),
    }


def some_users(held: HeldOut, seed: int, most: int = TUNED_ON) -> HeldOut:
    """The held-out likes of at most so many users, drawn by the seed."""
    people = np.unique(held.users)
    if len(people) <= most:
        return held
    random = np.random.Generator(np.random.Philox(key=[seed, STREAM]))
    kept = np.isin(held.users, random.permutation(people)[:most])
    return HeldOut(held.train, held.users[kept], held.items[kept])


def try_ours(valid: HeldOut, settings: Mapping[str, Any], seed: int, threads: int, run: Any) -> dict[str, Any]:
    """A trial of ours: the best knob and its mean S_rank on validation; and the tail's at knob 0."""
    model, seconds = fit_ours(valid.train, settings, seed, threads)
    knob, rank = choose_knob(model, valid, run)
    tail = _tail_mean(held_ranks(ModelScorer(model, 0.0), valid, run).scores, valid)
    return {"rank": rank, "tail": tail, "knob": knob, "seconds": seconds}


def try_peer(valid: HeldOut, peer: Peer, settings: FitPlan, seed: int, threads: int, run: Any) -> dict[str, Any]:
    """A trial of a peer: its best mean S_rank on validation along the way, and after how many iterations."""
    best: dict[str, Any] = {"rank": -1.0, "tail": -1.0, "iterations": 0, "seconds": 0.0}
    since = looks = 0
    for one in peer.snapshots(valid.train, settings, seed, threads):
        scores = held_ranks(one.scorer, valid, run).scores
        since, looks = since + 1, looks + 1
        if scores.mean() > best["rank"]:
            best = {"rank": float(scores.mean()), "tail": _tail_mean(scores, valid)}
            best |= {"iterations": one.iterations, "seconds": one.seconds}
            since = 0
        if since >= PATIENCE:
            break
    return best | {"rising": looks > 1 and since == 0}  # the last look was the best: more might help


def _tail_mean(scores: NDArray[np.float64], held: HeldOut) -> float:
    """Mean S_rank of held-out items of the tail; -1 where there is none."""
    tail = held.train.by_item.degrees[held.items] < TAIL
    return float(scores[tail].mean()) if tail.any() else -1.0


def best_trial(found: Sequence[Mapping[str, Any]]) -> int:
    """The trial of the highest mean S_rank; of those that cannot be told from it, the best in the tail."""
    highest = max(one["rank"] for one in found)
    return max(range(len(found)), key=lambda at: (found[at]["rank"] >= highest - TIE, found[at]["tail"], -at))


def trace_ours(
    valid: HeldOut, settings: Mapping[str, Any], knob: float, seed: int, threads: int, run: Any
) -> dict[str, Any]:
    """The bound, E[tau] and quality on validation after every sweep, against seconds of fitting."""
    found: dict[str, list[Any]] = {name: [] for name in ("sweep", "taus", "spread", "rank", "recall", "seconds")}
    for sweep, recommender, seconds in our_steps(valid.train, settings, seed, threads):
        model = recommender.model_
        ranks = held_ranks(ModelScorer(model, knob), valid, run)
        found["sweep"].append(sweep)
        found["taus"].append(model.posterior.precisions.means())
        found["spread"].append(model.posterior.prior_spread())
        found["rank"].append(float(ranks.scores.mean()))
        found["recall"].append(float(recall(ranks, K).mean()))
        found["seconds"].append(seconds)
    bounds = [float(sum(terms.values())) for terms in recommender.model_.bounds]
    return found | {"bound": bounds[1:]}  # the first is of the start


def trace_peer(valid: HeldOut, peer: Peer, settings: FitPlan, threads: int, run: Any) -> dict[str, Any]:
    """Quality on validation against seconds of fitting, with all threads."""
    found: dict[str, list[float]] = {name: [] for name in ("rank", "recall", "seconds")}
    for one in peer.snapshots(valid.train, settings, None, threads):
        ranks = held_ranks(one.scorer, valid, run)
        found["rank"].append(float(ranks.scores.mean()))
        found["recall"].append(float(recall(ranks, K).mean()))
        found["seconds"].append(one.seconds)
    return found


def knob_curve(
    held: HeldOut, settings: Mapping[str, Any], knobs: Iterable[float], seed: int, threads: int, run: Any
) -> dict[str, Any]:
    """What the knob does to the test edges of a split."""
    model, _ = fit_ours(held.train, settings, seed, threads)
    degree = held.train.by_item.degrees
    tail = degree[held.items] < TAIL
    found: dict[str, list[float]] = {
        name: [] for name in ("knob", "mean_rank", "tail_rank", "recall", "coverage", "popularity")
    }
    for knob in knobs:
        ranks, lists = ranks_and_lists(ModelScorer(model, knob), held, K, run)
        assert lists is not None
        found["knob"].append(knob)
        found["mean_rank"].append(float(ranks.scores.mean()))
        found["tail_rank"].append(float(ranks.scores[tail].mean()) if tail.any() else float("nan"))
        found["recall"].append(float(recall(ranks, K).mean()))
        found["coverage"].append(coverage(lists, held.train.item_count))
        found["popularity"].append(float(np.nanmean(mean_popularity(lists, degree))))
    return found
