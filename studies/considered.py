"""Is H right, and is p(like) honest? Where ratings below the rule tell who considered an item and did not like it.

    python -m studies.considered [--set ml-1m] [--set anime-5k-users] [--seed 0] [--data FOLDER]

A tenth of each user's likes is held out, and all ratings below the rule are judged pairs, which no fit sees. The
catalogue has every item that anyone rated, liked or not. For each setting: p(like) of held-out likes against judged
pairs, classes weighed equally and not recalibrated (expected calibration error, AUC, the slope of the calibration
line); and the AUC by user of judged pairs against pairs never rated, by pi, w, a and a + log w, with 95 % intervals by
bootstrap over users.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from considerate import Recommender
from considerate.data import read_interactions, read_judged
from considerate.data.graph import Graph
from considerate.evaluation.calibration import reliability
from considerate.evaluation.considered import considered_report, judged_split
from considerate.evaluation.fitted import p_like
from considerate.evaluation.recalibration import fit_recalibration
from considerate.evaluation.split import HeldOut, edge_keys, is_among, pair_keys, rows_in, share_per_user
from considerate.kernels.threads import LocalBackend
from considerate.model.model import Model
from considerate.study.peers import training_matrix
from studies.options import study_parser
from studies.quality import SETS

SETTINGS: dict[str, dict[str, Any]] = {
    "popularity, c 1": {"consideration": "popularity", "negatives": 1.0},
    "popularity": {"consideration": "popularity"},
    "walk, c 1": {"consideration": "walk", "negatives": 1.0},
    "walk": {"consideration": "walk"},
}


def load(
    folder: Path, name: str, seed: int, rule: str | None = None
) -> tuple[HeldOut, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The split of the likes, and (users, items) of the judged pairs; items are all that anyone rated. The rule of
    likes is the set's if not given."""
    path = folder / name / "ratings.parquet"
    rated = read_interactions(path, where="rating is not null")
    likes, others = read_judged(path, where=rule or SETS[name])
    assert others is not None
    sizes = len(rated.user_ids), len(rated.item_ids)
    users, items = (rows.astype(np.int32) for rows in rows_in(rated, likes))
    graph = Graph.from_pairs(users, items, *sizes)
    keys = np.unique(pair_keys(*rows_in(rated, others), sizes[1]))
    keys = keys[~is_among(keys, edge_keys(graph))]
    return share_per_user(graph, seed, 0.1), keys // sizes[1], keys % sizes[1]


def run(label: str, settings: dict[str, Any], held: HeldOut, users: Any, items: Any, seed: int) -> Model:
    model = Recommender(seed=seed, **settings).fit(training_matrix(held.train)).model_
    p = p_like(model, np.append(held.users, users), np.append(held.items, items), recalibrated=False)
    liked = np.arange(len(p)) < len(held.users)
    table = reliability(p, liked)
    slope = fit_recalibration(p, liked).slope
    print(f"{label:16} p(like): ECE {table.calibration_error:.4f}, AUC {table.auc:.4f}, slope {slope:.3f}", flush=True)
    judged = judged_split(held, users, items, seed)
    if judged is None:
        return model
    with LocalBackend() as backend:
        found = considered_report(model, judged, seed=seed, run=backend.map)
    for name, row in found["auc"].items():
        print(f"{'':16}   {name:9} {row['mean']:.4f} ({row['low']:.4f}, {row['high']:.4f})", flush=True)
    return model


def main() -> None:
    parser = study_parser(__doc__, SETS, SETTINGS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for name in options.set or ["ml-1m"]:
        held, users, items = load(options.data, name, options.seed)
        print(f"{name}, {SETS[name]}: {held.train.edges} likes, {len(held.users)} held out, {len(users)} judged")
        for label in options.only or SETTINGS:
            run(label, SETTINGS[label], held, users, items, options.seed)


if __name__ == "__main__":
    main()
