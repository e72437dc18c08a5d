"""Changes of likes in a fitted model, and all that follows from them: degrees, pi and the walk's table.

No vector is changed here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency, run_serially
from considerate.errors import DataError
from considerate.inference.hidden import popularity_weights
from considerate.inference.hidden.consideration import unknown_of, without_cold
from considerate.model.model import Model
from considerate.model.users import UserRows

NO_LIKE = "no like would be left in the model; a model needs at least one."


def with_changed_likes(model: Model, users: UserRows, lost: NDArray[Any], run: Any = run_serially) -> Model:
    """Put users with changed likes into a model; degrees, pi and the walk's table follow them.

    `lost` are the old likes of users who lost a like: the walk led through these users, so these rows of its table are
    made again. A row that only gained likes stays until the next update. If the likes are not known, the degrees and pi
    of items stay.
    """
    if not users.knows_likes:
        return model.with_same_items(users=users, limits=model.limits)
    degree = np.bincount(users.liked.indices, minlength=model.item_count)
    if not degree.any():
        raise DataError(NO_LIKE)
    if np.array_equal(degree, model.item_degree):
        changed = model.with_same_items(users=users, limits=model.limits)
    else:
        weights = popularity_at(model, model.popularity, model.item_degree, degree)
        made = None if model.consideration is None else walk_degree(model)
        changed = replace(model, users=users, item_degree=degree, popularity=weights, walk_degree=made)
        if model.consideration is not None:
            cold = changed.cold_items
            walk = model.consideration.with_weights(without_cold(weights, cold), unknown_of(cold))
            changed = replace(changed, consideration=walk)
    return renewed_walk(changed, lost, run)


def popularity_at(
    model: Model, weights: NDArray[np.float64], before: NDArray[np.int64], degree: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Compute pi at these degrees, with the gamma of the fit. A correction for popular items keeps its factor. An item
    with the same degree as before keeps its pi, which for an item without likes is predicted."""
    grown = popularity_weights(degree, model.gamma)
    if model.parameters.get("head_correction", False):
        factor = np.where(before > 0, 1.0, head_correction(model, degree))
        np.divide(weights, popularity_weights(before, model.gamma), out=factor, where=before > 0)
        grown *= factor
    return np.where(degree == before, weights, grown)


def head_correction(model: Model, degree: NDArray[Any]) -> NDArray[np.float64]:
    """Ratio pi'_n / pi_n of items of these degrees, interpolated between the model's items, where the fit solved it.

    It depends mostly on the degree: draws that hit likes are discarded, and popular items have more such draws.
    """
    known = model.item_degree > 0
    degrees, which, often = np.unique(model.item_degree[known], return_inverse=True, return_counts=True)
    factor = model.popularity[known] / popularity_weights(model.item_degree[known], model.gamma)
    mean = np.bincount(which, factor) / often
    return np.asarray(np.interp(np.log(np.maximum(degree, 1)), np.log(degrees), mean))


def walk_degree(model: Model) -> NDArray[np.int64]:
    """Number of likes that each item had when its row of the walk's table was made: [items]."""
    return model.item_degree if model.walk_degree is None else model.walk_degree


def renewed_walk(model: Model, rows: NDArray[np.int64], run: Any = run_serially) -> Model:
    """Recompute some rows of a model's walk table from the current likes."""
    walk, degree = model.consideration, model.item_degree
    if walk is None or not len(rows):
        return model
    walk = walk.with_rows_of(model.users.whole().liked, rows, degree, model.plan.neighbours, run)
    made = walk_degree(model).copy()
    made[rows] = degree[rows]
    return replace(model, consideration=walk, walk_degree=made)


def insert_likes(liked: Adjacency, given: Adjacency) -> tuple[Adjacency, Adjacency]:
    """Merge given likes into others; returns all likes, and the new ones with their weights."""
    places, known = liked.find(given.edge_rows, given.indices)
    new, at = given.keep(~known), places[~known]
    weights = liked.weights
    if weights is not None or new.weights is not None:
        weights = np.ones(liked.edges, np.float32) if weights is None else weights
        weights = np.insert(weights, at, 1.0 if new.weights is None else new.weights)
    return Adjacency(liked.starts + new.starts, np.insert(liked.indices, at, new.indices), weights), new
