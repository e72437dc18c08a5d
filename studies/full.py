"""What covariances, a Normal-Wishart hyperprior and quadrature buy: the tables of docs/full-posterior.md.

    python -m studies.full [--set ml-100k] [--splits 2] [--only NAME] [--data FOLDER]

First, on data simulated from the model (studies/recovery.py): the share of true logits that 90 % intervals hold, with
the true H given and with H drawn, and the RMSE of the logit. Then, on real likes: the figures of studies/quality.py on
validation splits, the CPU seconds of a fit, and the megabytes of its posterior. With --set only the latter is done.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from considerate.data import read_interactions
from considerate.evaluation.protocol import graph_of
from considerate.evaluation.split import HeldOut
from considerate.inference.posterior import Posterior
from considerate.kernels.threads import LocalBackend
from studies.options import study_parser
from studies.quality import measure, validation_splits
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
            found = measure(settings, held, seed, backend)
        rows.append([*found.figures, posterior_bytes(found.model.posterior) / 1e6])
    rank, top, tail, sweeps, seconds, size = np.mean(rows, axis=0)
    print(f"| {name} | {rank:.4f} | {top:.4f} | {tail:.4f} | {sweeps:g} | {seconds:.1f} | {size:.1f} |", flush=True)


def main() -> None:
    parser = study_parser(__doc__, SETS, REAL)
    parser.add_argument("--splits", type=int, default=2)
    options = parser.parse_args()
    if not options.set:
        coverage()
    for name in options.set or SETS:
        graph = graph_of(read_interactions(options.data / name / "ratings.parquet", where="rating >= 4"))
        splits = validation_splits(graph, options.splits)
        print(f"\n{name}: {graph.user_count} users, {graph.item_count} items, {graph.edges} likes\n")
        print("| setting | S_rank | NDCG@20 | tail, by liking | sweeps | CPU s | MB of posterior |")
        print("|---|---|---|---|---|---|---|")
        for setting in options.only or REAL:
            ranking(setting, REAL[setting], splits)


if __name__ == "__main__":
    main()
