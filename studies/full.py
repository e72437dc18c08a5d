"""What covariances, a Normal-Wishart hyperprior and quadrature buy: the tables of docs/full-posterior.md.

    python -m studies.full [--set ml-100k] [--splits 2] [--only NAME] [--data FOLDER]

First, on data simulated from the model (studies/recovery.py): the share of true logits that 90 % intervals hold, with
the true H given and with H drawn, and the RMSE of the logit. Then, on real likes: the figures of studies/quality.py on
validation splits, the CPU seconds of a fit, and the megabytes of its posterior.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

from considerate.data import read_interactions
from considerate.data.graph import Graph
from considerate.evaluation.ranks import weighted_ranks
from considerate.evaluation.report import TAIL
from considerate.evaluation.split import HeldOut, one_per_user, validation
from considerate.fitting.tuning import ScoreParts, mean_rank, top_score
from considerate.inference.posterior import Posterior
from considerate.kernels.threads import LocalBackend
from considerate.parameters import RANKING_WEIGHTS
from considerate.study.fits import Compute, fit_ours, some_users
from studies.movielens import default_folder
from studies.recovery import CASES, fit_drawn, fit_known

KNOWN: dict[str, dict[str, Any]] = {
    "factorised, bound": {},
    "factorised, bound, rho 1.5": {"likelihood_weight": 1.5},
    "full, bound": {"posterior": "full"},
    "factorised, quadrature": {"logistic": "quadrature"},
    "full-items, quadrature": {"posterior": "full-items", "logistic": "quadrature"},
    "full, quadrature": {"posterior": "full", "logistic": "quadrature"},
    "full, quadrature, Wishart": {"posterior": "full", "logistic": "quadrature", "prior": "wishart"},
    "full, quadrature, rho 1.5": {"posterior": "full", "logistic": "quadrature", "likelihood_weight": 1.5},
}
DRAWN = ("factorised, bound", "full, quadrature")
SETS = ("ml-100k", "ml-1m")
REAL: dict[str, dict[str, Any]] = {
    "factorised, bound (the defaults)": {},
    "factorised, bound, rho 1": {"likelihood_weight": 1.0},
    "factorised, quadrature, rho 1": {"logistic": "quadrature", "likelihood_weight": 1.0},
    "full-items, bound": {"posterior": "full-items", "logistic": "bound"},
    "full, bound": {"posterior": "full", "logistic": "bound"},
    "full, quadrature, rho 1": {"posterior": "full", "likelihood_weight": 1.0},
    "factorised, bound, Wishart": {"prior": "wishart"},
    "factorised, quadrature, Wishart, rho 1": {"logistic": "quadrature", "prior": "wishart", "likelihood_weight": 1.0},
    "full, quadrature, Wishart, rho 1": {"posterior": "full", "prior": "wishart", "likelihood_weight": 1.0},
}


def coverage() -> None:
    """One line a setting: coverage and RMSE of each case."""
    samples = [case.sample() for case in CASES]
    print("Coverage of the logit's 90 % interval, and its RMSE\n")
    print("| H | setting | " + " | ".join(case.name for case in CASES) + " |")
    print("|---|---|" + "---|" * len(CASES))
    for hidden, names in (("known", tuple(KNOWN)), ("drawn", DRAWN)):
        fit = fit_known if hidden == "known" else fit_drawn
        for name in names:
            found = [fit(sample, **KNOWN[name]) for sample in samples]
            cells = " | ".join(f"{100 * each.coverage:.1f} % ({each.rmse:.3f})" for each in found)
            print(f"| {hidden} | {name} | {cells} |", flush=True)


def posterior_bytes(q: Posterior) -> int:
    arrays = [array for side in (q.users, q.items) for array in (*side.arrays(), side.covariance)]
    return sum(array.nbytes for array in arrays if array is not None)


def ranking(name: str, settings: dict[str, Any], splits: list[HeldOut]) -> None:
    """One line: the means over the splits."""
    rows = []
    for seed, held in enumerate(splits):
        with LocalBackend() as backend:
            begun = time.process_time()
            model, _ = fit_ours(held.train, settings, Compute(seed, backend.threads, backend.map))
            seconds = time.process_time() - begun
            parts = ScoreParts(model.posterior, model.log_popularity, model.consideration, model.plan.sharpness)
            weights = [RANKING_WEIGHTS[model.plan.consideration], (0.0, 0.0)]
            ranks, liking = weighted_ranks(parts.rows(held.seen), parts.log_pi, weights, held, backend.map)
        tail = liking.scores[held.train.by_item.degrees[held.items] < TAIL].mean()
        size = posterior_bytes(model.posterior) / 1e6
        rows.append([mean_rank(ranks), top_score(ranks), tail, len(model.bounds) - 1, seconds, size])
    rank, top, tail, sweeps, seconds, size = np.mean(rows, axis=0)
    print(f"| {name} | {rank:.4f} | {top:.4f} | {tail:.4f} | {sweeps:g} | {seconds:.1f} | {size:.1f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, default=default_folder())
    parser.add_argument("--set", choices=SETS, action="append", help="real likes alone, of these")
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--only", choices=list(REAL), action="append", help="of real likes, these settings alone")
    options = parser.parse_args()
    if not options.set:
        coverage()
    for name in options.set or SETS:
        likes = read_interactions(options.data / name / "ratings.parquet", where="rating >= 4")
        graph = Graph.from_pairs(likes.users, likes.items, len(likes.user_ids), len(likes.item_ids))
        splits = [some_users(validation(one_per_user(graph, seed), seed), seed) for seed in range(options.splits)]
        print(f"\n{name}: {graph.user_count} users, {graph.item_count} items, {graph.edges} likes\n")
        print("| setting | S_rank | NDCG@20 | tail, by liking | sweeps | CPU s | MB of posterior |")
        print("|---|---|---|---|---|---|---|")
        for setting in options.only or REAL:
            ranking(setting, REAL[setting], splits)


if __name__ == "__main__":
    main()
