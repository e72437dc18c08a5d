"""What pairs that are known to be considered are worth: is p(like) honest, and how well does it tell likes apart?

    python -m studies.known [--set ml-1m] [--set coat] [--seed 0] [--only NAME] [--data FOLDER]

ml-1m: a tenth of each user's likes (ratings of 4 and 5) is held out, and half of the ratings of 1 to 3 are given to the
fit as considered. Tested are the held-out likes against the other half. coat: its ratings of 1 to 3 of what users chose
to rate are given, and tested are the ratings of items that were assigned to them at random.

For each setting: the expected calibration error of p(like), classes weighed equally and not recalibrated; the AUC, and
that within users (mean over those with both kinds); the slope of the calibration line; the prior standard deviation of
u'v, which says whether the vectors have collapsed and biases alone are left; on ml-1m the mean S_rank of the held-out
likes among all items that a user has not liked in training.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from considerate import Recommender
from considerate.data import read_interactions, read_judged
from considerate.evaluation.calibration import auc, reliability
from considerate.evaluation.fitted import p_like
from considerate.evaluation.metrics import rank_scores
from considerate.evaluation.ranks import held_ranks
from considerate.evaluation.recalibration import fit_recalibration
from considerate.evaluation.scorer import ModelScorer
from considerate.evaluation.split import HeldOut, rows_in
from considerate.kernels.threads import LocalBackend
from considerate.model.model import Model
from considerate.study.peers import training_matrix
from studies.considered import load
from studies.options import study_parser

LIKES_ALONE = "likes alone"
SETTINGS: dict[str, dict[str, Any]] = {
    LIKES_ALONE: {},
    "some": {},
    "some, c 1": {"negatives": 1.0},
    "some, by popularity": {"consideration": "popularity"},
    "some, expected": {"hidden": "expected"},
    "sample": {"considered_are": "sample"},
    "sample, user biases": {"considered_are": "sample", "user_bias": True},
    "all, user biases": {"considered_are": "all", "user_bias": True},
}
COMMON: dict[str, dict[str, Any]] = {"ml-1m": {}, "coat": {"likelihood_weight": 3.0}}  # as in the report on Coat
LIKED = "rating >= 4"
STREAM = 0x4A1F  # which half is given


@dataclass(frozen=True)
class Data:
    """Likes and considered pairs that a fit is given, and pairs that it is tested on."""

    likes: sparse.csr_matrix
    considered: sparse.csr_matrix
    users: NDArray[np.int64]  # [pairs]
    items: NDArray[np.int64]
    liked: NDArray[np.bool_]
    held: HeldOut | None = None  # likes to be ranked


def matrix(users: NDArray[Any], items: NDArray[Any], shape: tuple[int, int]) -> sparse.csr_matrix:
    return sparse.csr_matrix((np.ones(len(users), np.float32), (users, items)), shape=shape)


def movielens(folder: Path, seed: int) -> Data:
    held, users, items = load(folder, "ml-1m", seed)
    given = np.random.Generator(np.random.Philox(key=[seed, STREAM])).random(len(users)) < 0.5
    likes = training_matrix(held.train)
    tested = [np.append(rows, others[~given]) for rows, others in ((held.users, users), (held.items, items))]
    liked = np.arange(len(tested[0])) < len(held.users)
    return Data(likes, matrix(users[given], items[given], likes.shape), *tested, liked, held)


def coat(folder: Path, seed: int) -> Data:
    """The items are those of the test, which has all of them."""
    every = read_interactions(folder / "coat" / "test.parquet", where="rating is not null")
    parts = [read_judged(folder / "coat" / f"{part}.parquet", where=LIKED) for part in ("train", "test")]
    rows = [rows_in(every, pairs) for part in parts for pairs in part if pairs is not None]
    shape = len(every.user_ids), len(every.item_ids)
    tested = [np.append(*both) for both in zip(*rows[2:])]
    return Data(matrix(*rows[0], shape), matrix(*rows[1], shape), *tested, np.arange(len(tested[0])) < len(rows[2][0]))


def within_users(data: Data, p: NDArray[Any]) -> float:
    """The mean AUC over users who have both kinds of pairs."""
    order = np.argsort(data.users, kind="stable")
    cuts = np.flatnonzero(np.diff(data.users[order])) + 1
    found = [auc(p[rows], data.liked[rows]) for rows in np.split(order, cuts)]
    return float(np.nanmean(found))


def mean_rank(model: Model, held: HeldOut) -> float:
    with LocalBackend() as backend:
        return float(rank_scores(held_ranks(ModelScorer(model), held, backend.map)).mean())


def run(label: str, settings: dict[str, Any], data: Data, seed: int) -> None:
    considered = None if label == LIKES_ALONE else data.considered
    model = Recommender(seed=seed, **settings).fit(data.likes, considered=considered).model_
    p = p_like(model, data.users, data.items, recalibrated=False)
    table, line = reliability(p, data.liked), fit_recalibration(p, data.liked)
    ranked = "" if data.held is None else f"{mean_rank(model, data.held):.4f}"
    figures = f"{table.calibration_error:.4f} | {table.auc:.4f} | {within_users(data, p):.4f} | {line.slope:.3f}"
    spread = model.posterior.prior_spread()
    print(f"| {label} | {figures} | {spread:.2f} | {ranked} | {len(model.bounds) - 1} |", flush=True)


def main() -> None:
    parser = study_parser(__doc__, COMMON, SETTINGS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for name in options.set or COMMON:
        data = (movielens if name == "ml-1m" else coat)(options.data, options.seed)
        counts = f"{data.likes.nnz} likes, {data.considered.nnz} considered, tested on {data.liked.sum()} likes"
        print(f"\n{name}: {counts} and {(~data.liked).sum()} others\n")
        print("| setting | ECE | AUC | AUC within users | slope | spread | S_rank | sweeps |")
        print("|---|---|---|---|---|---|---|---|")
        for label in options.only or SETTINGS:
            run(label, COMMON[name] | SETTINGS[label], data, options.seed)


if __name__ == "__main__":
    main()
