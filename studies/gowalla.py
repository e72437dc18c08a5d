"""Gowalla, LightGCN's train and test: Recall@20 and NDCG@20 of all test users, beside the walk alone, GF-CF and ALS.

    python -m studies.gowalla [--factors 64 128 256] [--als] [--graph-peers] [--data FOLDER]
    python -m studies.gowalla --tune [--factors 64]

With --tune, settings are tried on a tenth of each user's training likes, and nothing of the test is read; the settings
in OURS are what it chose at 64 factors, with more sweeps, and the larger sizes use the same. Otherwise each size is
fitted to the whole training part, and KNOB is the knob that did best on the held-out tenth. A peer's settings are the
best of at most six on that tenth, of 5,000 users; its first settings, as published, are printed beside them.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from considerate import Recommender
from considerate.data import read_interactions
from considerate.data.graph import Graph
from considerate.evaluation.metrics import ndcg, recall
from considerate.evaluation.ranks import held_ranks
from considerate.evaluation.scorer import ModelScorer, Scorer
from considerate.evaluation.split import HeldOut, given_likes, share_per_user
from considerate.kernels.threads import LocalBackend
from considerate.study.fits import some_users
from considerate.study.peers import ALS, GFCF, Peer, Walk, fit_peer, training_matrix
from studies.movielens import default_folder

K = 20  # places of a list that count
KNOBS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25)
OURS: dict[str, Any] = {"negatives": 10, "gamma": 0.75, "likelihood_weight": 4.0, "sweeps": 40, "tolerance": 0.0}
KNOB = 0.25
TRIALS: list[dict[str, Any]] = [
    {"negatives": 3, "likelihood_weight": 4.0, "sweeps": 25},
    {"negatives": 10, "likelihood_weight": 2.0, "sweeps": 25},
    {"negatives": 10, "likelihood_weight": 3.0, "sweeps": 25},
    {"negatives": 10, "likelihood_weight": 4.0, "sweeps": 25},
]
ALS_TRIALS = tuple(
    {"alpha": alpha, "regularization": weight, "iterations": 15}
    for alpha in (10.0, 40.0)
    for weight in (10.0, 50.0, 200.0)
)


def measure(scorer: Scorer, held: HeldOut) -> tuple[float, float]:
    """Recall and NDCG at 20 over all users with held-out likes."""
    with LocalBackend() as backend:
        ranks = held_ranks(scorer, held, backend.map)
    return float(recall(ranks, K).mean()), float(ndcg(ranks, K).mean())


def fit_ours(held: HeldOut, factors: int, settings: dict[str, Any]) -> tuple[Recommender, float]:
    begun = time.perf_counter()
    fitted = Recommender(factors=factors, **(OURS | settings)).fit(training_matrix(held.train))
    return fitted, time.perf_counter() - begun


def show(name: str, found: tuple[float, float], seconds: float, more: str = "") -> None:
    print(f"  {name:58} {found[0]:.4f} / {found[1]:.4f}   {seconds:6.0f} s  {more}", flush=True)


def tune_ours(graph: Graph, factors: int, trials: Iterable[dict[str, Any]]) -> None:
    held = share_per_user(graph, seed=0, share=0.1)
    print(f"validation: {len(held.users)} likes of the training part held out; K = {factors}; Recall@20 / NDCG@20")
    for settings in trials:
        fitted, seconds = fit_ours(held, factors, settings)
        curve = {knob: measure(ModelScorer(fitted.model_, knob), held) for knob in KNOBS}
        best = max(curve, key=lambda knob: curve[knob][0])
        listed = " ".join(f"{knob:g}: {found[0]:.4f}" for knob, found in curve.items())
        show(", ".join(f"{name} {value}" for name, value in settings.items()), curve[best], seconds, f"knob {listed}")


def run_peer(peer: Peer, graph: Graph, test: HeldOut) -> None:
    """A peer by its best trial on a tenth of some users' training likes; and by its first, where that is another."""
    threads = os.cpu_count() or 1
    held = some_users(share_per_user(graph, seed=0, share=0.1), seed=0)
    found = [measure(fit_peer(peer, held.train, settings, 0, threads).scorer, held)[0] for settings in peer.trials]
    best = int(np.argmax(found))
    for at in sorted({best, 0}):
        fitted = fit_peer(peer, test.train, peer.trials[at], 0, threads)
        size = "" if peer.factors is None else f", K = {peer.factors}"
        settings = ", ".join(f"{name} {value:g}" for name, value in peer.trials[at].items())
        more = f"validation recall {found[at]:.4f}, {'the best' if at == best else 'not chosen'}"
        show(f"{peer.name}{size}, {settings}", measure(fitted.scorer, test), fitted.seconds, more)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, default=default_folder())
    parser.add_argument("--factors", type=int, nargs="*", default=[64])
    parser.add_argument("--tune", action="store_true", help="try settings on a validation part of the training likes")
    parser.add_argument("--als", action="store_true", help="implicit's ALS too, up to 128 factors")
    parser.add_argument("--graph-peers", action="store_true", help="the walk alone and GF-CF too")
    options = parser.parse_args()
    folder = options.data / "gowalla-lightgcn"
    train = read_interactions(folder / "train.parquet")
    if options.tune:
        graph = Graph.from_pairs(train.users, train.items, len(train.user_ids), len(train.item_ids))
        for factors in options.factors:
            tune_ours(graph, factors, TRIALS)
        return
    test = given_likes(train, read_interactions(folder / "test.parquet"))
    users = len(np.unique(test.users))
    print(f"Gowalla: {test.train.edges} likes to train on, {len(test.users)} of {users} users to test; Recall, NDCG@20")
    if options.graph_peers:
        for peer in (Walk(), GFCF()):
            run_peer(peer, test.train, test)
    for factors in options.factors:
        fitted, seconds = fit_ours(test, factors, {})
        found = measure(ModelScorer(fitted.model_, KNOB), test)
        show(f"considerate, K = {factors}, {OURS}, knob {KNOB}", found, seconds)
        if options.als and factors <= 128:
            als = ALS(factors=factors)
            als.trials = ALS_TRIALS
            run_peer(als, test.train, test)


if __name__ == "__main__":
    main()
