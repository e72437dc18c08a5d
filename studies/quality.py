"""What was tried to rank better, on validation splits of three data sets: the first tables of docs/quality.md.

    python -m studies.quality [--set ml-1m] [--splits 1] [--only NAME] [--data FOLDER]

The test likes of split s (one per user, as in the study) are left out of everything; of the training likes one per user
is held out again, and the tables are about those, of 5,000 users at most. For each setting: mean S_rank and NDCG@20
with the weights of popularity and lift that are the defaults; S_rank of items of under 100 likes by liking alone; the
best mean S_rank, with its weights of the first split; sweeps, and CPU seconds of the fit.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from considerate.data import read_interactions
from considerate.data.graph import Graph
from considerate.evaluation.protocol import graph_of
from considerate.evaluation.ranks import weighted_ranks
from considerate.evaluation.report import TAIL
from considerate.evaluation.split import HeldOut, one_per_user, validation
from considerate.fitting.tuning import ScoreParts, best_weights, mean_rank, top_score, weight_curve
from considerate.inference.parts.ranking import WEIGHTS
from considerate.kernels.threads import LocalBackend
from considerate.model.model import Model
from considerate.study.fits import Compute, fit_ours, some_users
from studies.options import study_parser

SETS = {"ml-1m": "rating >= 4", "anime-5k-users": "rating >= 8", "goodbooks-10k-v1": "rating >= 4"}
TRIED: dict[str, dict[str, Any]] = {
    "the defaults": {},
    "the opening alone": {"sweeps": 5},
    "sharpness 1": {"sharpness": 1},
    "sharpness 3": {"sharpness": 3},
    "no opening": {"opening": 0},
    "no opening, 32 factors, rho 1.3": {"opening": 0, "factors": 32, "likelihood_weight": 1.3},
    "32 factors": {"factors": 32},
    "128 factors": {"factors": 128},
    "*expected*": {"hidden": "expected"},
    "mixing 0.05": {"mixing": 0.05},
    "mixing 0.9": {"mixing": 0.9},
    "H by popularity": {"consideration": "popularity"},
    "200 neighbours": {"neighbours": 200},
    "1,000 neighbours": {"neighbours": 1000},
    "rho 1": {"likelihood_weight": 1.0},
    "rho 2": {"likelihood_weight": 2.0},
    "c 3": {"negatives": 3.0},
    "c 10": {"negatives": 10.0},
}


@dataclass(frozen=True)
class Measured:
    """A fit to the training part of a split, and how it ranks what is held out."""

    model: Model
    parts: ScoreParts
    figures: tuple[float, ...]  # S_rank, NDCG@20, S_rank of the tail by liking, sweeps, CPU seconds


def validation_splits(graph: Graph, count: int) -> list[HeldOut]:
    return [some_users(validation(one_per_user(graph, seed), seed), seed) for seed in range(count)]


def measure(settings: dict[str, Any], held: HeldOut, seed: int, backend: LocalBackend) -> Measured:
    """Fit and rank, with the default weights of popularity and lift."""
    begun = time.process_time()
    model, _ = fit_ours(held.train, settings, Compute(seed, backend.threads, backend.map))
    seconds = time.process_time() - begun
    parts = ScoreParts(model.posterior, model.log_popularity, model.lift)
    weights = [WEIGHTS[model.plan.consideration], (0.0, 0.0)]
    ranks, liking = weighted_ranks(parts.rows(held.seen), parts.log_pi, weights, held, backend.map)
    tail = float(liking.scores[held.train.by_item.degrees[held.items] < TAIL].mean())
    return Measured(model, parts, (mean_rank(ranks), top_score(ranks), tail, len(model.bounds) - 1, seconds))


def run(name: str, settings: dict[str, Any], splits: list[HeldOut]) -> None:
    """One line: the means over the splits."""
    rows, best = [], ""
    for seed, held in enumerate(splits):
        with LocalBackend() as backend:
            found = measure(settings, held, seed, backend)
            weights, highest = best_weights(weight_curve(found.parts, held, mean_rank, backend.map))
        rows.append([*found.figures, highest])
        best = best or "{:g}, {:g}".format(*weights)
    rank, top, tail, sweeps, seconds, highest = np.mean(rows, axis=0)
    quality = f"{rank:.4f} | {top:.4f} | {tail:.4f} | {highest:.4f} ({best})"
    print(f"| {name} | {quality} | {sweeps:g} | {seconds:.1f} |", flush=True)


def main() -> None:
    parser = study_parser(__doc__, SETS, TRIED)
    parser.add_argument("--splits", type=int, default=1)
    options = parser.parse_args()
    for name in options.set or SETS:
        graph = graph_of(read_interactions(options.data / name / "ratings.parquet", where=SETS[name]))
        splits = validation_splits(graph, options.splits)
        print(f"\n{name}: {graph.user_count} users, {graph.item_count} items, {graph.edges} likes\n")
        print("| setting | S_rank | NDCG@20 | tail, by liking | best S_rank (weights) | sweeps | CPU s |")
        print("|---|---|---|---|---|---|---|")
        for tried in options.only or TRIED:
            run(tried, TRIED[tried], splits)


if __name__ == "__main__":
    main()
