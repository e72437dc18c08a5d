"""Gowalla, LightGCN's train and test: Recall@20 and NDCG@20 of all test users, beside the walk alone and GF-CF.

    python -m studies.gowalla [--factors 64] [--peers walk GF-CF ALS] [--threads 2] [--data FOLDER]
    python -m studies.gowalla --tune [--factors 64]

A tenth of each user's training likes is held out. Each of TRIALS is fitted to the others, and the table of the walk is
of the others too; the weights of log pi and of lift, up to the walk alone, are those of the highest Recall@20 of 5,000
users' held-out likes, and so is the trial. It is fitted again to all training likes, and the test is scored once.
With --tune nothing of the test is read. A peer's settings are the best of at most six by the same held-out likes; its
first settings, as published, are printed beside them.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from considerate import Recommender
from considerate.data import read_interactions
from considerate.data.graph import Graph
from considerate.evaluation.metrics import ndcg, recall
from considerate.evaluation.protocol import graph_of
from considerate.evaluation.ranks import Ranks, held_ranks
from considerate.evaluation.scorer import ModelScorer, Scorer
from considerate.evaluation.split import HeldOut, given_likes, share_per_user
from considerate.fitting.tuning import ScoreParts, Weights, best_weights, weight_curve
from considerate.kernels.threads import LocalBackend
from considerate.study.fits import some_users
from considerate.study.peers import ALS, GFCF, Peer, Walk, fit_peer, training_matrix
from studies.options import study_parser

K = 20  # places of a list that count
COMMON: dict[str, Any] = {"consideration": "walk", "neighbours": 500, "mixing": 0.05, "tolerance": 0.0}
EXPECTED = COMMON | {"hidden": "expected", "sweeps": 12}
SAMPLED = COMMON | {"hidden": "sampled", "sweeps": 15}
TRIALS: tuple[dict[str, Any], ...] = (
    EXPECTED | {"negatives": 5.0, "gamma": 1.0, "likelihood_weight": 8.0},
    EXPECTED | {"negatives": 15.0, "gamma": 0.5, "likelihood_weight": 8.0},
    SAMPLED | {"negatives": 3.0, "gamma": 1.0, "likelihood_weight": 4.0, "consideration": "popularity"},
    SAMPLED | {"negatives": 3.0, "gamma": 1.0, "likelihood_weight": 4.0},
    SAMPLED | {"negatives": 10.0, "gamma": 1.0, "likelihood_weight": 4.0},
    SAMPLED | {"negatives": 10.0, "gamma": 0.5, "likelihood_weight": 4.0},
)
ALS_TRIALS = tuple(
    {"alpha": alpha, "regularization": weight, "iterations": 15}
    for alpha in (10.0, 40.0)
    for weight in (10.0, 50.0, 200.0)
)


@dataclass(frozen=True)
class Found:
    """Recall@20 and NDCG@20, means over users."""

    recall: float
    ndcg: float

    @classmethod
    def of(cls, ranks: Ranks) -> Found:
        return cls(mean_recall(ranks), float(ndcg(ranks, K).mean()))

    def __str__(self) -> str:
        return f"{self.recall:.4f} / {self.ndcg:.4f}"


@dataclass(frozen=True)
class Trial:
    """Settings of ours, the weights that did best on likes held out, and how well they did there."""

    settings: dict[str, Any]
    weights: Weights
    found: Found


def mean_recall(ranks: Ranks) -> float:
    return float(recall(ranks, K).mean())


def measure(scorer: Scorer, held: HeldOut, threads: int) -> Found:
    with LocalBackend(threads) as backend:
        return Found.of(held_ranks(scorer, held, backend.map))


def show(name: str, found: Found, seconds: float, more: str = "") -> None:
    print(f"  {name}\n      {found}   {seconds:.0f} s  {more}", flush=True)


def words(settings: dict[str, Any]) -> str:
    values = {name: f"{value:g}" if isinstance(value, float) else value for name, value in settings.items()}
    return ", ".join(f"{name} {value}" for name, value in values.items())


def fit_ours(train: Graph, settings: dict[str, Any]) -> tuple[Recommender, float]:
    begun = time.perf_counter()
    return Recommender(**settings).fit(training_matrix(train)), time.perf_counter() - begun


def try_ours(settings: dict[str, Any], held: HeldOut, threads: int) -> Trial:
    """One trial: its fit to what is not held out, and the weights that rank the held-out likes best."""
    fitted, seconds = fit_ours(held.train, settings)
    model = fitted.model_
    parts = ScoreParts(model.posterior, model.log_popularity, model.lift)
    with LocalBackend(threads) as backend:
        curve = weight_curve(parts, held, mean_recall, backend.map)
    best, _ = best_weights(curve)
    found = measure(ModelScorer(model, best.popularity, lift=best.lift), held, threads)
    alone = best_weights({weights: value for weights, value in curve.items() if weights.lift == 0.0})
    more = f"popularity {best.popularity:g}, lift {best.lift:g}; without lift {alone[1]:.4f} at {alone[0].popularity:g}"
    show(words(settings), found, seconds, more)
    return Trial(settings, best, found)


def run_ours(factors: int, held: HeldOut, test: HeldOut | None, threads: int) -> None:
    """Ours by its best trial on validation, then on the test, where that is given."""
    print(
        f"considerate, {factors} factors: trials on {len(held.users)} held-out likes of the training part", flush=True
    )
    common = {"factors": factors, "threads": threads}
    best = max((try_ours(common | trial, held, threads) for trial in TRIALS), key=lambda trial: trial.found.recall)
    if test is not None:
        fitted, seconds = fit_ours(test.train, best.settings)
        found = measure(ModelScorer(fitted.model_, best.weights.popularity, lift=best.weights.lift), test, threads)
        print("on the test:")
        show(words(best.settings), found, seconds, "popularity {:g}, lift {:g}".format(*best.weights))


def run_peer(peer: Peer, held: HeldOut, test: HeldOut, threads: int) -> None:
    """A peer by its best trial on the held-out likes; and by its first, where that is another."""
    found = [measure(fit_peer(peer, held.train, trial, 0, threads).scorer, held, threads) for trial in peer.trials]
    best = int(np.argmax([one.recall for one in found]))
    for at in sorted({best, 0}):
        fitted = fit_peer(peer, test.train, peer.trials[at], 0, threads)
        size = "" if peer.factors is None else f", K = {peer.factors}"
        more = f"validation {found[at]}, {'the best' if at == best else 'not chosen'}"
        name = f"{peer.name}{size}, {words(dict(peer.trials[at]))}"
        show(name, measure(fitted.scorer, test, threads), fitted.seconds, more)


def make_peers(names: list[str], factors: list[int]) -> list[Peer]:
    als: list[Peer] = [ALS(factors=count) for count in factors if count <= 128]
    for peer in als:
        peer.trials = ALS_TRIALS
    known: dict[str, list[Peer]] = {"walk": [Walk()], "GF-CF": [GFCF()], "ALS": als}
    return [peer for name in names for peer in known[name]]


def main() -> None:
    parser = study_parser(__doc__)
    parser.add_argument("--factors", type=int, nargs="*", default=[64])
    parser.add_argument("--tune", action="store_true", help="only the trials; nothing of the test is read")
    parser.add_argument("--peers", nargs="*", choices=["walk", "GF-CF", "ALS"], default=["walk", "GF-CF"])
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    folder = options.data / "gowalla-lightgcn"
    train = read_interactions(folder / "train.parquet")
    graph = graph_of(train)
    held = some_users(share_per_user(graph, seed=0, share=0.1), seed=0)
    print("Gowalla, Recall@20 / NDCG@20 and seconds of the fit")
    test = None if options.tune else given_likes(train, read_interactions(folder / "test.parquet"))
    for factors in options.factors:
        run_ours(factors, held, test, options.threads)
    if test is not None:
        print(f"peers, on the test: {len(test.users)} likes of {len(np.unique(test.users))} users", flush=True)
        for peer in make_peers(options.peers, options.factors):
            run_peer(peer, held, test, options.threads)


if __name__ == "__main__":
    main()
