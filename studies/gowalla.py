"""Gowalla, LightGCN's train and test: Recall@20 and NDCG@20 of all test users, beside implicit's ALS.

    python -m studies.gowalla [--factors 64 128 256] [--als] [--data FOLDER]
    python -m studies.gowalla --tune [--factors 64]

With --tune, settings are tried on a tenth of each user's training likes, and nothing of the test is read; the settings
in OURS are what it chose at 64 factors, with more sweeps, and the larger sizes use the same. Otherwise each size is
fitted to the whole training part, and KNOB is the knob that did best on the held-out tenth.
"""

from __future__ import annotations

import argparse
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
from considerate.study.peers import training_matrix
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
ALS: list[dict[str, Any]] = [
    {"alpha": alpha, "regularization": weight} for alpha in (10.0, 40.0) for weight in (10.0, 50.0, 200.0)
]


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


def run_als(graph: Graph, test: HeldOut, factors: int) -> None:
    """implicit's ALS, its settings chosen on the same validation part."""
    from implicit.cpu.als import AlternatingLeastSquares

    def fitted(held: HeldOut, settings: dict[str, Any]) -> tuple[Scorer, float]:
        begun = time.perf_counter()
        model = AlternatingLeastSquares(factors=factors, iterations=15, random_state=0, **settings)
        model.fit(training_matrix(held.train), show_progress=False)
        users, items = model.user_factors, model.item_factors

        class Scores:
            name = "ALS"

            def scores(self, rows: Any) -> Any:
                return np.asarray(users[rows] @ items.T, np.float32)

        return Scores(), time.perf_counter() - begun

    held = share_per_user(graph, seed=0, share=0.1)
    found = [measure(fitted(held, settings)[0], held)[0] for settings in ALS]
    best = ALS[int(np.argmax(found))]
    scorer, seconds = fitted(test, best)
    show(f"implicit ALS, K = {factors}, {best}", measure(scorer, test), seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, default=default_folder())
    parser.add_argument("--factors", type=int, nargs="+", default=[64])
    parser.add_argument("--tune", action="store_true", help="try settings on a validation part of the training likes")
    parser.add_argument("--als", action="store_true", help="implicit's ALS too, up to 128 factors")
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
    for factors in options.factors:
        fitted, seconds = fit_ours(test, factors, {})
        found = measure(ModelScorer(fitted.model_, KNOB), test)
        show(f"considerate, K = {factors}, {OURS}, knob {KNOB}", found, seconds)
        if options.als and factors <= 128:
            run_als(test.train, test, factors)


if __name__ == "__main__":
    main()
