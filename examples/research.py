"""Research: simulate from the model, recover the truth, and compare with your own scorer.

python examples/research.py --users 2000 --items 500
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import scipy.sparse as sp

from considerate import Recommender, evaluate
from considerate.evaluation.calibration import reliability
from considerate.simulation.degrees import PowerLaw
from considerate.simulation.simulate import simulate_from_model


class Cosine:
    """Your own recommender: `fit` gets the training likes, `scores` rates all items for some users."""

    def fit(self, matrix: sp.csr_matrix) -> None:
        norms = np.sqrt(np.maximum(np.asarray(matrix.sum(axis=0)).ravel(), 1.0))
        self.likes, self.similarity = matrix, (matrix.T @ matrix).toarray() / np.outer(norms, norms)

    def scores(self, users: Any) -> Any:
        return self.likes[users] @ self.similarity


def main(arguments: list[str] | None = None) -> dict[str, float]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=2000)
    parser.add_argument("--items", type=int, default=500)
    given = parser.parse_args(arguments)

    law = PowerLaw(1.4, cutoff=70.0, minimum=min(40, given.items))  # how much people consider
    truth = simulate_from_model(given.users, given.items, 4, tau_user=0.8, tau_item=0.8, user_law=law, seed=0)
    edges = truth.hidden_users, truth.hidden_items
    likes = sp.csr_matrix(
        (np.ones(truth.liked.sum()), (edges[0][truth.liked], edges[1][truth.liked])), (given.users, given.items)
    )

    found = {}
    for hidden in ("sampled", "expected"):
        model = Recommender(factors=8, hidden=hidden, consideration="popularity", negatives=1).fit(likes)
        p = model.predict_proba(*edges)
        found[hidden] = reliability(p, truth.liked).calibration_error
        correlation = np.corrcoef(model.predict_logit(*edges)[0], truth.logit)[0, 1]
        print(f"{hidden}: calibration error {found[hidden]:.3f}, correlation with the true logits {correlation:.3f}")
        print(f"    bound {model.bound_[-1]:.0f} after {model.n_iter_} sweeps, E[tau] {model.precisions_}")

    recommenders = {"considerate": Recommender(factors=8), "cosine": Cosine(), "EASE": "EASE"}
    print(evaluate(recommenders, likes, "random", k=20, resamples=200))
    return found


if __name__ == "__main__":
    main()
