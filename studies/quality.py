"""What was tried to rank better, on validation splits of two data sets: the first tables of docs/quality.md.

    python -m studies.quality [--set ml-1m] [--set anime-5k-users] [--splits 1] [--only NAME] [--data FOLDER]

The test likes of split s (one per user, as in the study) are left out of everything; of the training likes one per user
is held out again, and the tables are about those. For each setting: the best mean S_rank, the best S_rank of items of
under 100 likes and the best NDCG@20, each with its own weights of popularity and lift (in brackets, of the first
split), and the seconds of a fit.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from considerate.data import read_interactions
from considerate.data.graph import Graph
from considerate.evaluation.split import HeldOut, one_per_user, validation
from considerate.kernels.threads import LocalBackend
from considerate.study.fits import Compute, try_ours
from studies.movielens import default_folder

SETS = {"ml-1m": "rating >= 4", "anime-5k-users": "rating >= 8"}
TRIED: dict[str, dict[str, Any]] = {
    "H by popularity: the defaults of 0.1": {"consideration": "popularity"},
    "H by the walk: the defaults": {},
    "200 neighbours": {"neighbours": 200},
    "1,000 neighbours": {"neighbours": 1000},
    "mixing 0.5": {"mixing": 0.5},
    "rho 1": {"likelihood_weight": 1.0},
    "rho 1.5": {"likelihood_weight": 1.5},
    "rho 2": {"likelihood_weight": 2.0},
    "c 3": {"negatives": 3.0},
    "c 10": {"negatives": 10.0},
    "K 64": {"factors": 64},
    "*expected*": {"hidden": "expected"},
}


def load(folder: Path, name: str) -> Graph:
    likes = read_interactions(folder / name / "ratings.parquet", where=SETS[name])
    return Graph.from_pairs(likes.users, likes.items, len(likes.user_ids), len(likes.item_ids))


def run(name: str, settings: dict[str, Any], splits: list[HeldOut]) -> None:
    """One line: the means over the splits."""
    with LocalBackend() as backend:
        compute = [Compute(seed, backend.threads, backend.map) for seed in range(len(splits))]
        trials = [try_ours(split, settings, how) for split, how in zip(splits, compute)]

    def mean(key: str) -> str:
        weights = "{:g}, {:g}".format(*trials[0][f"{key} weights"])
        return f"{np.mean([trial[key] for trial in trials]):.4f} ({weights})"

    seconds = np.mean([trial["seconds"] for trial in trials])
    print(f"| {name} | {mean('rank')} | {mean('tail')} | {mean('top')} | {seconds:.1f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, default=default_folder())
    parser.add_argument("--set", choices=list(SETS), action="append")
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--only", choices=list(TRIED), action="append")
    options = parser.parse_args()
    for name in options.set or SETS:
        graph = load(options.data, name)
        splits = [validation(one_per_user(graph, seed), seed) for seed in range(options.splits)]
        print(f"\n{name}: {graph.user_count} users, {graph.item_count} items, {graph.edges} likes\n")
        print("| setting | S_rank (weights) | S_rank of the tail | NDCG@20 | s |")
        print("|---|---|---|---|---|")
        for tried in options.only or TRIED:
            run(tried, TRIED[tried], splits)


if __name__ == "__main__":
    main()
