"""Numbers that are known of every pair of a user and an item, and that a recalibration of p(like) reads."""

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
    """The numbers of some pairs by name; None where the model's recalibration reads none.

    `liked` and `keys`, rows of the model or -1, have an entry for each user, and `users` are places among these.
    `liked` is None where the likes are not known: degrees are then the model's, and lift is NaN.
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
    """log pi_n, log(1 + d_m), and the lift where the model has a walk. A graph of vertices has none of them, as p(link)
    is the same from both ends."""
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
    """The log lift of each pair, as it is ranked by."""
    assert model.lift is not None
    return model.lift.log_ratios_of(liked, users, items).astype(np.float64)
