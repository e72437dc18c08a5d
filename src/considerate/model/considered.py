"""How likely a user is to consider an item: with p(like), the two halves of p(g = 1) (eq. 4)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency, Range, row_blocks, run_serially
from considerate.kernels import compiled
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
    model: Model, liked: Adjacency, pairs: Adjacency, run: Any = run_serially
) -> NDArray[np.float64]:
    """w of pairs: the chance that an item is among those that a user considers and does not like, as many as likes.

    Row i of `pairs` are items of the user who likes row i of `liked`. By draws without replacement (c = 1),

        w_mn = 1 - exp(-T_m w_n),    T_m such that those of the items not liked add up to d_m, or all that there are

    with w_n the user's own weights, or pi where the model has no walk. It is 1 of a like, which is always considered,
    and NaN where a user likes nothing: nothing says how much they consider.
    """
    user = np.repeat(np.arange(pairs.rows), pairs.degrees)
    table = model.consideration
    if table is None:
        inclusion = model.fold_in.saturation.inclusion
        temperature = inclusion.temperatures(liked, row_blocks(liked.starts), 1.0, run)
        chance = -np.expm1(-temperature[user] * model.popularity[pairs.indices])
        chance[liked.degrees[user] == 0] = np.nan
    else:

        def own(block: Range) -> NDArray[np.float64]:
            some, theirs = liked.between(*block), pairs.between(*block)
            arrays = (some.starts, some.indices, theirs.starts, theirs.indices)
            return compiled.own_inclusion(table.table, table.weights, *arrays)

        blocks = [(first, min(first + BLOCK, liked.rows)) for first in range(0, liked.rows, BLOCK)]
        chance = np.concatenate([np.empty(0), *run(own, blocks)])
    chance[_are_likes(liked, user, pairs.indices)] = 1.0
    return chance


def _are_likes(liked: Adjacency, users: NDArray[np.int64], items: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Whether each pair of a row and an item is in the adjacency, whose rows ascend."""
    owner = np.repeat(np.arange(liked.rows), liked.degrees)
    known, asked = (rows << 32 | columns for rows, columns in ((owner, liked.indices), (users, items)))
    at = np.searchsorted(known, asked)
    return np.asarray(np.append(known, -1)[at] == asked)
