"""Why an item is recommended: which of the user's likes moved its logit."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.errors import UsageError
from considerate.inference.posterior import Posterior, Side
from considerate.kernels.reference import logistic_curvature
from considerate.model.model import Model
from considerate.model.predict import like_probability, logit_moments
from considerate.model.rows import checked_rows, likes_adjacency
from considerate.parameters import FitPlan

Explanation = tuple[float, list[tuple[int, float]]]  # p(like), and (item, share of the logit), the largest first


def explain(model: Model, userid: Any, itemid: Any, user_items: Any, N: int) -> Explanation:
    """p(like), and the N liked items that moved the logit most, each with its share; by row numbers."""
    if user_items is None:
        users, rows = model.users.some(checked_rows(userid, model.user_count, "user").reshape(1))
        liked, user = users.liked.row(int(rows[0])), users.side.take(rows)
        if len(liked) < users.degree[rows[0]]:
            raise UsageError("this model was saved without the likes; give the user's as user_items.")
    else:
        adjacency = likes_adjacency(user_items, model.item_count)
        liked, user = adjacency.row(0), model.fold_in.users(adjacency)
    item = int(checked_rows(itemid, model.item_count, "item"))
    mean, variance = logit_moments(user, model.items, np.zeros(1, np.int64), np.array([item]))
    shares = share_of_update(liked.astype(np.int64), user, model.shared, item, model.plan)
    order = np.lexsort((liked, -np.abs(shares)))[:N]
    probability = like_probability(mean, model.variance_scale * variance, model.recalibration)
    return float(probability[0]), [(int(liked[i]), float(shares[i])) for i in order]


def share_of_update(
    liked: NDArray[Any], users: Side, posterior: Posterior, item: int, plan: FitPlan
) -> NDArray[np.float64]:
    """How much each liked item moves the logit of `item`, by its share of the user's update (eq. 15).

    The user's mean is P^-1 z, and z is a sum over items; so u'v_item = sum over n of v_item' P^-1 z_n. Given are the
    shares of the liked items, with P's diagonal that of the posterior and off it the liked items' part alone.
    """
    v, vs = posterior.items.mean[liked].astype(np.float64), posterior.items.variance[liked].astype(np.float64)
    bias = posterior.items.biases[0][liked].astype(np.float64) + float(users.biases[0][0]) + plan.offset
    rows = np.zeros(len(liked), np.int64)
    mean, variance = logit_moments(users, posterior.items, rows, liked)
    xi = np.sqrt((mean.astype(np.float64) + plan.offset) ** 2 + variance)
    curvature = 2.0 * plan.weight * logistic_curvature(xi)
    P = np.einsum("n,nk,nl->kl", curvature, v, v) + np.diag((curvature[:, None] * vs).sum(axis=0))
    P += np.diag(1.0 / users.variance[0].astype(np.float64) - np.diag(P)).clip(min=0.0)
    pull = (plan.weight * 0.5 - curvature * bias)[:, None] * v
    return np.asarray(pull @ np.linalg.solve(P, posterior.items.mean[item].astype(np.float64)))
