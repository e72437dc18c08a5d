"""How likely a user is to consider an item: with p(like), the two halves of p(g = 1) (eq. 4)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency
from considerate.inference.hidden.saturation import GRID_STEP
from considerate.kernels import compiled
from considerate.kernels.threads import LocalBackend
from considerate.model.model import Model
from considerate.model.predict import sigmoid

BLOCK = 192  # users of one task


def considered_probability(inclusion: NDArray[Any], mean: NDArray[Any]) -> NDArray[np.float64]:
    """p(h = 1) of a pair, from w = p(h = 1 | g = 0) and the mean logit.

    Only what is considered is liked, so w = p(h = 1) (1 - s) / (1 - p(h = 1) s) with s = sigma(mean); solved,

        p(h = 1) = w / (1 - s + w s),    and p(h = 1) s = p(g = 1) has the logit mean + log w
    """
    mean = np.asarray(mean, np.float64)
    return np.asarray(inclusion / (sigmoid(-mean) + inclusion * sigmoid(mean)))


def inclusion_probabilities(
    model: Model, liked: Adjacency, ids: NDArray[np.int32], threads: int | None = 1
) -> NDArray[np.float64]:
    """w of pairs: the chance that an item is among those that a user considers and does not like, as many as likes.

    Row i of `ids` are items for the user who likes row i of `liked`; -1 ends short rows, and the answer is of the
    others, one after the other. By draws without replacement (c = 1),

        w_mn = 1 - exp(-T_m w_n),    T_m such that those of the items not liked add up to d_m, or all that there are

    with w_n the user's own weights, or pi where the model has no walk. It is 1 of a like, which is always considered,
    and NaN where a user likes nothing, or nobody could like the item: nothing says how much is considered.
    """
    filled = ids >= 0
    pairs = Adjacency(np.concatenate([[0], np.cumsum(filled.sum(axis=1))]), ids[filled])
    chances_of = _by_popularity if model.consideration is None else _by_walk
    if liked.rows <= BLOCK:
        chances = chances_of(model, liked, pairs)
    else:
        blocks = [(first, min(first + BLOCK, liked.rows)) for first in range(0, liked.rows, BLOCK)]
        with LocalBackend(threads) as backend:
            parts = backend.map(lambda block: chances_of(model, liked.between(*block), pairs.between(*block)), blocks)
        chances = np.concatenate(parts)
    chances[liked.has(pairs)] = 1.0
    if len(model.cold_items):
        chances[np.isin(pairs.indices, model.cold_items)] = np.nan
    return chances


def _by_walk(model: Model, liked: Adjacency, pairs: Adjacency) -> NDArray[np.float64]:
    table = model.consideration
    assert table is not None
    sums = model.fold_in.saturation
    by_popularity = sums.weights, sums.total, sums.table, sums.grid_start, GRID_STEP
    arrays = (liked.starts, liked.indices, pairs.starts, pairs.indices)
    return compiled.own_inclusion(table.table(liked.indices), *by_popularity, *arrays)


def _by_popularity(model: Model, liked: Adjacency, pairs: Adjacency) -> NDArray[np.float64]:
    sums, temperature = model.fold_in.saturation.inclusion, np.zeros(liked.rows)
    edges = (liked.starts, liked.indices, 0, liked.rows)
    compiled.solve_temperatures(sums.table, sums.grid_start, GRID_STEP, sums.weights, *edges, 1.0, temperature)
    temperature[liked.degrees == 0] = np.nan
    return np.asarray(-np.expm1(-temperature[pairs.edge_rows] * sums.weights[pairs.indices]))
