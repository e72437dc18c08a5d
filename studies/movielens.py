"""MovieLens-1M as in the paper: likes are ratings of 4 and 5, one edge per user held out, the mean over splits.

    python -m studies.movielens [--splits 5] [--data FOLDER]

Prints mean S_rank (eq. 23) at three settings of the knob, the paper's scores, S_rank by the item's degree in
training, and the classification error on held-out likes by the user's degree.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate import Recommender, read_interactions
from considerate.data.graph import Graph
from considerate.evaluation.protocol import graph_of
from considerate.evaluation.ranks import held_ranks
from considerate.evaluation.scorer import ModelScorer
from considerate.evaluation.split import HeldOut, one_per_user
from considerate.kernels.threads import LocalBackend
from considerate.model.ranking import SCORES
from considerate.study.peers import training_matrix
from studies.options import study_parser

ITEM_BINS = np.array([1, 10, 32, 100, 316, 1000, 10**9])
USER_BINS = np.array([1, 10, 20, 80, 10**9])
KNOBS = (0.0, 0.5, 1.0)
PAPER: dict[str, Any] = {"factors": 20, "consideration": "popularity", "negatives": 1.0, "likelihood_weight": 1.0}
MODELS: dict[str, dict[str, Any]] = {
    "sampled, r = 1, c = 1": PAPER,
    "sampled, r = 1/2, c = 1": PAPER | {"rate": 0.5},
    "sampled, c = 3": PAPER | {"negatives": 3.0},
    "expected, c = 3": PAPER | {"negatives": 3.0, "hidden": "expected"},
    "default": {},
}


def mean_by_bin(
    values: NDArray[Any], by: NDArray[Any], edges: NDArray[Any]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """(means, counts) of the values whose `by` is in [edges[i], edges[i + 1]); NaN where a bin is empty."""
    bin = np.searchsorted(edges, by, side="right") - 1
    inside = (bin >= 0) & (bin < len(edges) - 1)
    counts = np.bincount(bin[inside], minlength=len(edges) - 1)
    totals = np.bincount(bin[inside], values[inside], minlength=len(edges) - 1)
    means = np.full(len(counts), np.nan)
    np.divide(totals, counts, out=means, where=counts > 0)
    return means, counts


def evaluate(model: Recommender, split: HeldOut) -> dict[str, NDArray[Any]]:
    """S_rank of every held-out edge by every score, and its p(like)."""
    fitted = model.model_
    scorers = {f"knob {knob:g}": ModelScorer(fitted, knob) for knob in KNOBS}
    scorers |= {name: ModelScorer(fitted, score=name) for name in SCORES}
    with LocalBackend() as backend:
        result = {name: held_ranks(scorer, split, backend.map).scores for name, scorer in scorers.items()}
    return result | {"p_like": model.predict_proba(split.users, split.items)}


def run(graph: Graph, name: str, splits: int) -> None:
    """Fit and evaluate one model on every split, and print the means."""
    settings = MODELS[name]
    means: dict[str, list[float]] = {}
    by_item: dict[str, list[NDArray[np.float64]]] = {}
    errors, tail, seconds, sweeps, taus = [], [], [], [], []
    for seed in range(splits):
        split = one_per_user(graph, seed)
        matrix = training_matrix(split.train)
        begun = time.perf_counter()
        model = Recommender(**settings).fit(matrix)
        seconds.append(time.perf_counter() - begun)
        sweeps.append(model.n_iter_)
        taus.append(list(model.precisions_.values()))
        found = evaluate(model, split)
        item_degree = split.train.by_item.degrees[split.items]
        user_degree = split.train.by_user.degrees[split.users]
        p_like = found.pop("p_like")
        errors.append(mean_by_bin((p_like < 0.5).astype(float), user_degree, USER_BINS)[0])
        tail.append(float(found["knob 0"][item_degree < 32].mean()))
        for score, ranks in found.items():
            means.setdefault(score, []).append(float(ranks.mean()))
            by_item.setdefault(score, []).append(mean_by_bin(ranks, item_degree, ITEM_BINS)[0])
    print(f"\n{name}: {splits} splits, {np.mean(sweeps):.0f} sweeps, {np.mean(seconds):.1f} s a fit")
    print("  E[tau] " + " ".join(f"{k} {v:.2f}" for k, v in zip(model.precisions_, np.mean(taus, axis=0))))
    print(f"  {'score':18} {'S_rank':>7} {'sd':>6}   items of degree <10 / 10-32 / 32-100 / 100-316 / 316-1000 / more")
    for score, values in means.items():
        bins = " ".join(f"{value:.3f}" for value in np.nanmean(by_item[score], axis=0))
        print(f"  {score:18} {np.mean(values):7.4f} {np.std(values):6.4f}   {bins}")
    print(f"  S_rank at knob 0 on items of degree under 32: {np.mean(tail):.4f}")
    rates = " / ".join(f"{100 * value:.1f} %" for value in np.nanmean(errors, axis=0))
    print(f"  classification error, users of degree <10 / 10-20 / 20-80 / more: {rates}")


def main() -> None:
    parser = study_parser(__doc__)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--model", choices=list(MODELS), action="append")
    options = parser.parse_args()
    graph = graph_of(read_interactions(options.data / "ml-1m" / "ratings.parquet", where="rating >= 4"))
    print(f"MovieLens-1M, rated 4 or 5: {graph.user_count} users, {graph.item_count} items, {graph.edges} edges")
    for name in options.model or MODELS:
        run(graph, name, options.splits)


if __name__ == "__main__":
    main()
