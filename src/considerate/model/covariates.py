"""Covariates of pairs of users and items, which a recalibration of p(like) reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency

if TYPE_CHECKING:
    from considerate.model.model import Model

Rows = NDArray[Any]
Covariates = dict[str, NDArray[np.float64]]


def pair_covariates(model: Model, liked: Adjacency | None, keys: Rows, users: Rows, items: Rows) -> Covariates | None:
    """Covariates of some pairs by name; None if the model's recalibration reads none.

    `liked` and `keys`, rows of the model or -1, have an entry for each user, and `users` are places among these.
    `liked` is None if the likes are not known: degrees are then the model's, and lift is NaN.
    """
    if not model.recalibration.covariates:
        return None
    if liked is not None:
        return known_of_pairs(model, liked, liked.degrees, users, items)
    degree, known = np.zeros(len(keys), np.int64), keys >= 0
    some, rows = model.users.some(keys[known])
    degree[known] = some.degree[rows]
    return known_of_pairs(model, None, degree, users, items)


def known_of_pairs(model: Model, liked: Adjacency | None, degree: Rows, users: Rows, items: Rows) -> Covariates:
    """Covariates log pi_n and log(1 + d_m), and lift if the model has a walk. A graph of vertices has none of them, as
    p(link) is the same from both ends."""
    if model.one_kind:
        return {}
    known = {
        "log_popularity": model.log_popularity[items].astype(np.float64),
        "log_likes": np.log1p(degree[users].astype(np.float64)),
    }
    if model.consideration is not None:
        known["lift"] = np.full(len(users), np.nan) if liked is None else _lift(model, liked, users, items)
    return known


def _lift(model: Model, liked: Adjacency, users: Rows, items: Rows) -> NDArray[np.float64]:
    """Log lift of each pair, in the form that rankings use."""
    assert model.lift is not None
    return model.lift.log_ratios_of(liked, users, items).astype(np.float64)
