"""How likely a user is to consider an item: with p(like), the two halves of p(g = 1) (eq. 4).

H had k_m unliked edges of user m (inference/hidden/offsets.py), drawn without replacement, and the logit of a pair on H
was a - log(k_m / d_m). So, with w(c) = p(h = 1 | g = 0) in that H and s = sigma(a),

    odds of a like:   p(g = 1) / p(g = 0) = exp(a) w',    w' = w(c) d_m / k_m
    only what is considered is liked:   p(h = 1) = w' / (1 - s + w' s),    p(h = 1) s = p(g = 1)

w' is at most 1 unless a user likes more than is left or c < 1; p(considered) is then at most 1, and the product is less
than p(g = 1).

The walk is in w where H was drawn by it. The closed form and half-edges have pi alone in H, and so in w.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency, row_blocks
from considerate.data.known import Known
from considerate.inference.hidden import Consideration, expected_unliked, user_offset
from considerate.inference.hidden.saturation import GRID_STEP
from considerate.kernels import compiled
from considerate.kernels.threads import LocalBackend
from considerate.model.liking import sigmoid
from considerate.model.model import Model

BLOCK = 192  # users of one task
MOST_TEMPERATURE = 1e300  # finite, so that its product with a weight of 0 is 0


def considered_probability(weight: NDArray[Any], mean: NDArray[Any]) -> NDArray[np.float64]:
    """p(h = 1) of pairs, from w' and the mean logit: w' / (1 - s + w' s), at most 1."""
    mean = np.asarray(mean, np.float64)
    return np.asarray(np.minimum(1.0, weight / (sigmoid(-mean) + weight * sigmoid(mean))))


def consideration_weights(
    model: Model,
    liked: Adjacency | None,
    ids: NDArray[np.int32],
    limits: Known | None = None,
    threads: int | None = 1,
) -> NDArray[np.float64]:
    """w' of pairs, which makes the odds of liking the odds of a like being observed.

    Row i of `ids` are items for the user who likes row i of `liked`, and of whom `limits` says what is impossible; -1
    ends short rows, and the answer is of the others, one after the other.

        w'_mn = (1 - exp(-T_m w_n)) d_m / k_m,    T_m such that 1 - exp(-T_m w_n) over the open items adds up to k_m

    with w_n the user's own weights, or pi where H was not drawn by a walk; open items are neither liked nor
    impossible. w' is 1 of a like, which is always considered, 0 of what is impossible, and NaN where nothing says how
    much is considered: where a user likes nothing, nobody could like the item, or the likes are not known. A tilt is
    not in it.
    """
    filled = ids >= 0
    if liked is None:
        return np.full(int(filled.sum()), np.nan)
    if liked.rows > BLOCK:
        users = liked

        def some(block: tuple[int, int]) -> NDArray[np.float64]:
            known = None if limits is None else limits.between(*block)
            return consideration_weights(model, users.between(*block), ids[slice(*block)], known)

        blocks = [(first, min(first + BLOCK, liked.rows)) for first in range(0, liked.rows, BLOCK)]
        with LocalBackend(threads) as backend:
            return np.concatenate(backend.map(some, blocks))
    pairs = Adjacency(np.concatenate([[0], np.cumsum(filled.sum(axis=1))]), ids[filled])
    counts = expected_unliked(liked, model.fold_in.weights, model.plan, limits)
    if (table := drawn_by(model)) is None:
        chances = _by_popularity(model, liked, pairs, counts, limits)
    else:
        chances = _by_walk(model, table, liked, pairs, counts, limits)
    offset = np.where(counts > 0, logit_offset(model, liked, limits, counts), 0.0)  # where k_m = 0 nothing is drawn
    weights = chances * np.exp(offset)[pairs.edge_rows]
    weights[liked.has(pairs)] = 1.0
    if len(model.cold_items):
        weights[np.isin(pairs.indices, model.cold_items)] = np.nan
    return weights


def logit_offset(
    model: Model, liked: Adjacency, limits: Known | None = None, unliked: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """[users] the offset of the logits of users with these likes: -log(k_m / d_m), or as the model's fit had it."""
    extra = user_offset(liked, model.fold_in.weights, model.plan, limits, unliked)
    return np.full(liked.rows, model.plan.offset) if extra is None else model.plan.offset + extra.astype(np.float64)


def weights_of_all(model: Model, liked: Adjacency, limits: Known | None = None) -> NDArray[np.float64]:
    """[users, items] w' of users with these likes against all items; of a like as if it were open, by the same T_m.

    0 of what is impossible and not liked, and of items that nobody could like. Every user must like something.
    """
    counts = expected_unliked(liked, model.fold_in.weights, model.plan, limits)
    table, weights = drawn_by(model), model.fold_in.weights
    if table is None:
        product = np.tile(weights, (liked.rows, 1))
        temperature = _temperatures(model, liked, counts, _closed(model, liked, limits))
    else:
        product, temperature = np.exp(table.log_ratios(liked).astype(np.float64)), np.empty(liked.rows)
        product *= weights / weights.sum()
        none = Adjacency(np.zeros(liked.rows + 1, np.int64), np.empty(0, np.int32))
        _by_walk(model, table, liked, none, counts, limits, temperature)
    product *= -np.minimum(temperature, MOST_TEMPERATURE)[:, None]
    chances = -np.expm1(product, out=product)
    if limits is not None:
        for user, own in enumerate(chances):
            shut = limits.impossible_items(user, model.item_count)
            shut[liked.row(user)] = False
            own[shut] = 0.0
    with np.errstate(over="ignore"):  # infinite of users who have nothing left
        factor = np.exp(logit_offset(model, liked, limits, counts))[:, None]
    return np.multiply(chances, factor, out=chances, where=chances > 0)


def drawn_by(model: Model) -> Consideration | None:
    """The table of the walk that H was drawn by; None where H was by popularity.

    A model of 0.3 or before answers by its own rule: by the walk, if it ranks by one.
    """
    plan = model.plan
    return model.consideration if plan.hidden == "sampled" or not plan.expected_offsets else None


def _by_walk(
    model: Model,
    table: Consideration,
    liked: Adjacency,
    pairs: Adjacency,
    counts: NDArray[np.float64],
    limits: Known | None,
    temperatures: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """The chances of pairs; T_m of each user goes to `temperatures`."""
    sums = model.fold_in.saturation
    by_popularity = sums.weights, sums.total, sums.table, sums.grid_start, GRID_STEP
    arrays = (liked.starts, liked.indices, pairs.starts, pairs.indices, counts)
    starts, closed = (None, None) if limits is None else _impossible(limits, model.item_count, liked.rows)
    return compiled.own_inclusion(table.table(liked.indices), *by_popularity, *arrays, starts, closed, temperatures)


def _impossible(limits: Known, items: int, users: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """(starts, items) of what is impossible for each user, rules written out."""
    rows = [np.flatnonzero(limits.impossible_items(user, items)).astype(np.int32) for user in range(users)]
    lists = Adjacency.of_rows(rows)
    return lists.starts, lists.indices


def _closed(model: Model, liked: Adjacency, limits: Known | None) -> Known | None:
    """What is impossible, rules written out; None where nothing is."""
    return None if limits is None else Known(None, Adjacency(*_impossible(limits, model.item_count, liked.rows)))


def _temperatures(
    model: Model, liked: Adjacency, counts: NDArray[np.float64], closed: Known | None
) -> NDArray[np.float64]:
    """T_m of users where H is by popularity."""
    inclusion, blocks = model.fold_in.saturation.inclusion, row_blocks(liked.starts)
    return inclusion.temperatures(liked, blocks, model.plan.negatives, known=closed, wanted=counts)


def _by_popularity(
    model: Model, liked: Adjacency, pairs: Adjacency, counts: NDArray[np.float64], limits: Known | None
) -> NDArray[np.float64]:
    closed = _closed(model, liked, limits)
    temperature = _temperatures(model, liked, counts, closed)
    temperature[liked.degrees == 0] = np.nan
    chances = -np.expm1(-temperature[pairs.edge_rows] * model.fold_in.weights[pairs.indices])
    if closed is not None:
        chances[closed.are_impossible(pairs.edge_rows, pairs.indices)] = 0.0
    return np.asarray(chances)
