"""What was tried to rank better, on validation splits of two data sets: the tables of docs/quality.md.

    python -m studies.quality [--set ml-1m] [--set anime-5k-users] [--splits 2] [--only NAME] [--data FOLDER]

The test likes of split s (one per user, as in the study) are left out of everything; of the training likes one per user
is held out again, and the tables are about those. For each setting: mean S_rank at its best knob; S_rank at knob 0 of
items of degree under 100 (all, and under 10 / 10-31 / 32-99); NDCG@20 at its best knob; E[tau_u] E[tau_v]; sweeps and
seconds of a fit.
"""

from __future__ import annotations

import argparse
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from considerate import Recommender
from considerate.data import read_interactions
from considerate.data.graph import Graph
from considerate.evaluation.metrics import ndcg
from considerate.evaluation.ranks import Ranks, held_ranks
from considerate.evaluation.scorer import ModelScorer
from considerate.evaluation.split import HeldOut, one_per_user, validation
from considerate.kernels.threads import LocalBackend
from considerate.study.peers import training_matrix
from studies.movielens import default_folder

SETS = {"ml-1m": "rating >= 4", "anime-5k-users": "rating >= 8"}
KNOBS = (0.0, 0.25, 0.5, 0.75, 1.0)
TAIL = (0, 10, 32, 100)
BEFORE: dict[str, Any] = {"factors": 20, "negatives": 3.0, "likelihood_weight": 1.0}
TRIED: dict[str, dict[str, Any]] = {
    "before: K 20, c 3, rho 1": BEFORE,
    "rho 1.5": BEFORE | {"likelihood_weight": 1.5},
    "rho 2": BEFORE | {"likelihood_weight": 2.0},
    "rho 3": BEFORE | {"likelihood_weight": 3.0},
    "c 10": BEFORE | {"negatives": 10.0},
    "c 10, rho 2": BEFORE | {"negatives": 10.0, "likelihood_weight": 2.0},
    "K 64, rho 2": BEFORE | {"factors": 64, "likelihood_weight": 2.0},
    "K 64, c 10, rho 2": BEFORE | {"factors": 64, "negatives": 10.0, "likelihood_weight": 2.0},
    "K 32, c 5, rho 1.5 (the defaults)": {},
    "the defaults, gamma 1.1": {"gamma": 1.1},
    "the defaults, gamma 0.9": {"gamma": 0.9},
    "the defaults, head correction": {"head_correction": True},
    "the defaults, t_tau 10": {"precision_delay": 10},
    "the defaults, 60 sweeps": {"sweeps": 60, "tolerance": 0.0},
    "the defaults, expected": {"hidden": "expected"},
    "the defaults, expected, 128 groups": {"hidden": "expected", "groups": 128},
    "K 20, c 2, rho 2, 50 sweeps": BEFORE
    | {"negatives": 2.0, "likelihood_weight": 2.0, "sweeps": 50, "tolerance": 0.0},
}


def load(folder: Path, name: str) -> Graph:
    likes = read_interactions(folder / name / "ratings.parquet", where=SETS[name])
    return Graph.from_pairs(likes.users, likes.items, len(likes.user_ids), len(likes.item_ids))


def ranked(model: Recommender, split: HeldOut) -> dict[float, Ranks]:
    with LocalBackend() as backend:
        return {knob: held_ranks(ModelScorer(model.model_, knob), split, backend.map) for knob in KNOBS}


def run(name: str, settings: dict[str, Any], splits: list[HeldOut]) -> None:
    """One line: the means over the splits."""
    means: dict[float, list[float]] = {knob: [] for knob in KNOBS}
    tops: dict[float, list[float]] = {knob: [] for knob in KNOBS}
    tails, degrees, taus, sweeps, seconds = [], [], [], [], []
    for split in splits:
        begun = time.perf_counter()
        model = Recommender(**settings).fit(training_matrix(split.train))
        seconds.append(time.perf_counter() - begun)
        sweeps.append(model.n_iter_)
        taus.append(model.precisions_["user"] * model.precisions_["item"])
        for knob, ranks in ranked(model, split).items():
            means[knob].append(float(ranks.scores.mean()))
            tops[knob].append(float(ndcg(ranks, 20).mean()))
            if knob == 0.0:
                tails.append(ranks.scores)
                degrees.append(split.train.by_item.degrees[split.items])
    best = max(KNOBS, key=lambda knob: np.mean(means[knob]))
    top = max(KNOBS, key=lambda knob: np.mean(tops[knob]))
    tail, degree = np.concatenate(tails), np.concatenate(degrees)
    bins = " ".join(f"{tail[(degree >= low) & (degree < high)].mean():.3f}" for low, high in pairwise(TAIL))
    print(
        f"| {name} | {np.mean(means[best]):.4f} ({best:g}) | {tail[degree < 100].mean():.4f} ({bins}) | "
        f"{np.mean(tops[top]):.4f} ({top:g}) | {np.mean(taus):.1f} | {np.mean(sweeps):.0f} | {np.mean(seconds):.1f} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, default=default_folder())
    parser.add_argument("--set", choices=list(SETS), action="append")
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--only", choices=list(TRIED), action="append")
    options = parser.parse_args()
    for name in options.set or SETS:
        graph = load(options.data, name)
        splits = [validation(one_per_user(graph, seed), seed) for seed in range(options.splits)]
        print(f"\n{name}: {graph.user_count} users, {graph.item_count} items, {graph.edges} likes\n")
        print("| setting | S_rank (knob) | S_rank of the tail at knob 0 | NDCG@20 (knob) | tau_u tau_v | sweeps | s |")
        print("|---|---|---|---|---|---|---|")
        for tried in options.only or TRIED:
            run(tried, TRIED[tried], splits)


if __name__ == "__main__":
    main()
