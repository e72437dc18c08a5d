"""Do plays help? hetrec-lastfm with and without them, beside implicit's ALS with and without them.

    python -m studies.weights [--splits 3] [--data FOLDER]

A fifth of each user's artists is held out, in several splits. NDCG@20 and S_rank among all artists that a user has not
played in training, each held-out artist once, however often it was played. Differences are paired, with 95 % intervals
by bootstrap over users.

ALS has as many factors and 15 iterations. Its alpha and regularization are the best of its trials on a tenth of each
user's artists, held out of the training part of the first split, for plays and for no plays apart. `1 + alpha x` is its
confidence, x being 1, log1p(plays), or plays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from considerate import Recommender, read_interactions
from considerate.data.graph import Graph
from considerate.evaluation.bootstrap import interval, paired_interval
from considerate.evaluation.metrics import ndcg, rank_scores
from considerate.evaluation.ranks import Ranks, held_ranks
from considerate.evaluation.scorer import ModelScorer, Scorer
from considerate.evaluation.split import HeldOut, share_per_user
from considerate.fitting.session import make_graph
from considerate.kernels.threads import LocalBackend
from considerate.study.peers import FactorScorer, blas_threads
from studies.options import study_parser

FACTORS = 64
OURS: dict[str, dict[str, Any]] = {
    "no plays": {},
    "log1p": {"weight": "log1p"},
    "log1p, each user's mean 1": {"weight": "log1p", "weight_scale": "user"},
    "square root": {"weight": "sqrt"},
    "square root, each user's mean 1": {"weight": "sqrt", "weight_scale": "user"},
    "raw": {"weight": "raw"},
    "raw, each user's mean 1": {"weight": "raw", "weight_scale": "user"},
}
ALS = {"ALS, no plays": np.ones_like, "ALS, log1p": np.log1p, "ALS, plays": np.asarray}
TRIALS = (
    *((alpha, ridge) for alpha in (0.01, 0.1, 1.0) for ridge in (1.0, 10.0)),
    (10.0, 30.0),
    (40.0, 100.0),
    (40.0, 300.0),
)


def plays_of(graph: Graph) -> sp.csr_matrix:
    """The plays of a graph's pairs, [users, items]."""
    likes = graph.by_user
    return sp.csr_matrix((likes.weights, likes.indices, likes.starts), (graph.user_count, graph.item_count))


def ours(train: Graph, options: dict[str, Any], seed: int) -> Scorer:
    matrix = plays_of(train)
    if not options:
        matrix.data = np.ones_like(matrix.data)
    return ModelScorer(Recommender(factors=FACTORS, seed=seed).fit(matrix, **options).model_)


def als(train: Graph, name: str, trial: tuple[float, float], seed: int) -> Scorer:
    from implicit.cpu.als import AlternatingLeastSquares

    alpha, ridge = trial
    matrix = plays_of(train)
    matrix.data = np.asarray(ALS[name](matrix.data), np.float32)
    with blas_threads(1):
        model = AlternatingLeastSquares(
            factors=FACTORS, alpha=alpha, regularization=ridge, iterations=15, random_state=seed
        )
        model.fit(matrix, show_progress=False)
    return FactorScorer(name, model.user_factors, model.item_factors)


def by_user(scorer: Scorer, held: HeldOut) -> Ranks:
    with LocalBackend() as backend:
        return held_ranks(scorer, held, backend.map)


def main() -> None:
    parser = study_parser(__doc__)
    parser.add_argument("--splits", type=int, default=3)
    options = parser.parse_args()
    path = options.data / "hetrec2011-lastfm-2k" / "plays.parquet"
    graph = make_graph(read_interactions(path, weight_column="plays", weight_scale="none"))
    splits = [share_per_user(graph, seed, 0.2) for seed in range(options.splits)]
    inner = share_per_user(splits[0].train, 100, 0.1)
    chosen = {}
    for name in ALS:
        tried = {trial: ndcg(by_user(als(inner.train, name, trial, 0), inner), 20).mean() for trial in TRIALS}
        chosen[name] = max(tried, key=lambda trial: tried[trial])
        print(f"{name}: alpha, regularization {chosen[name]}", flush=True)
    found: dict[str, NDArray[np.float64]] = {}
    groups = np.concatenate([np.unique(held.users) for held in splits])
    for name in [*OURS, *ALS]:
        ranks = []
        for seed, held in enumerate(splits):
            scorer = als(held.train, name, chosen[name], seed) if name in ALS else ours(held.train, OURS[name], seed)
            ranks.append(by_user(scorer, held))
        found[name] = np.concatenate([ndcg(one, 20) for one in ranks])
        low, high = interval(found[name], groups=groups)
        rank = np.concatenate([rank_scores(one) for one in ranks]).mean()
        base = found["no plays" if name in OURS else "ALS, no plays"]
        less = (found[name] - base).mean(), *paired_interval(found[name], base, groups=groups)
        print(
            f"| {name} | {found[name].mean():.4f} ({low:.4f}, {high:.4f}) | {rank:.4f} | "
            f"{less[0]:+.4f} ({less[1]:+.4f}, {less[2]:+.4f}) |",
            flush=True,
        )
    best = max(ALS, key=lambda name: found[name].mean())
    for name in OURS:
        difference = (found[name] - found[best]).mean(), *paired_interval(found[name], found[best], groups=groups)
        print(f"{name} less {best}: {difference[0]:+.4f} ({difference[1]:+.4f}, {difference[2]:+.4f})", flush=True)


if __name__ == "__main__":
    main()
