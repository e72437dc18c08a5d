"""Probability that a user considers an item: with p(like), the two halves of p(g = 1) (eq. 4).

H had k_m unliked edges of user m (inference/hidden/offsets.py), drawn without replacement, and the logit of a pair on H
was a - log(k_m / d_m). So, with w(c) = p(h = 1 | g = 0) in that H and s = sigma(a),

    odds of a like:   p(g = 1) / p(g = 0) = exp(a) w',    w' = w(c) d_m / k_m
    only considered items are liked:    p(h = 1) = w' / (1 - s + w' s),    p(h = 1) s = p(g = 1)

w' is at most 1 unless c < 1 or a user likes more items than are left. p(considered) is then cut to 1, and the product
is less than p(g = 1).

The walk is in w if H was drawn by it. The closed form and half-edges have pi alone in H, and so in w.
Either end of a pair of vertices of one kind draws it (inference/hidden/merged.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency
from considerate.data.known import Known
from considerate.inference.hidden import Consideration, expected_unliked, user_offset
from considerate.inference.hidden.drawers import drawer_of
from considerate.inference.hidden.merged import VertexDraws, either
from considerate.inference.hidden.pair_chances import PairChances
from considerate.kernels.threads import LocalBackend
from considerate.model.liking import sigmoid
from considerate.model.model import Model

BLOCK = 192  # users of one task


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
    """Factor w' of pairs, between the odds of liking and the odds of an observed like.

    Row i of `ids` has items for the user with row i of `liked` and of `limits`; -1 ends short rows. The result has the
    other items, one after the other.

        w'_mn = (1 - exp(-T_m w_n)) d_m / k_m,    T_m such that 1 - exp(-T_m w_n) over the open items adds up to k_m

    with w_n the user's own weights, or pi if H was not drawn by a walk; open items are neither liked nor impossible. w'
    is 1 for a like, which is always considered, 0 for impossible items, and NaN if unknown: if a user likes nothing,
    nobody could like the item, or the likes are not known. A tilt is not included.
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
    weights: NDArray[np.float64]
    if model.one_kind:
        weights = _either_end(model, liked, pairs, limits) * np.exp(model.plan.offset)
    else:
        plan = model.plan
        counts = drawer_of(plan.hidden).expected_unliked(liked, model.fold_in.weights, plan.negatives, limits)
        chances = chances_of(model).of(liked, pairs, counts, limits)
        offset = np.where(counts > 0, logit_offset(model, liked, limits, counts), 0.0)  # where k_m = 0 nothing is drawn
        weights = chances * np.exp(offset)[pairs.edge_rows]
    weights[liked.has(pairs)] = 1.0
    if len(model.cold_items):
        weights[np.isin(pairs.indices, model.cold_items)] = np.nan
    return weights


def logit_offset(
    model: Model, liked: Adjacency, limits: Known | None = None, unliked: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Offset of the logits of users with these likes: -log(k_m / d_m), or as in the model's fit."""
    extra = user_offset(liked, model.fold_in.weights, model.plan, limits, unliked)
    return np.full(liked.rows, model.plan.offset) if extra is None else model.plan.offset + extra.astype(np.float64)


def weights_of_all(model: Model, liked: Adjacency, limits: Known | None = None) -> NDArray[np.float64]:
    """Factors w' [users, items] of users with these likes; a like has the factor of an open item, by the same T_m.

    0 for impossible items that are not liked, and for items that nobody could like. Every user must like something.
    """
    counts = expected_unliked(liked, model.fold_in.weights, model.plan, limits)
    chances = chances_of(model).of_all(liked, counts, limits)
    with np.errstate(over="ignore"):  # infinite for users without items left
        factor = np.exp(logit_offset(model, liked, limits, counts))[:, None]
    return np.multiply(chances, factor, out=chances, where=chances > 0)


def drawn_by(model: Model) -> Consideration | None:
    """Table of the walk that H was drawn by; None if H was drawn by popularity.

    A model of 0.3 or before keeps its own rule: the walk, if it ranks by one.
    """
    plan = model.plan
    return model.consideration if plan.hidden == "sampled" or not plan.expected_offsets else None


def chances_of(model: Model) -> PairChances:
    """Chances that pairs are drawn into the model's H."""
    return PairChances(model.fold_in.saturation, drawn_by(model))


def _either_end(model: Model, linked: Adjacency, pairs: Adjacency, limits: Known | None) -> NDArray[np.float64]:
    """Chances r of pairs of vertices, as both ends draw.

    Only the vertex itself is impossible for it, so `limits` identifies it. A vertex that is not in the graph counts as
    drawn like it draws: walks lead both ways in proportion to the degrees.
    """
    draws = vertex_draws(model, linked, limits)
    own = draws.chances_of(pairs)
    vertices, itself = np.full(linked.rows, -1), draws.itself.impossible
    assert itself is not None
    vertices[itself.edge_rows] = itself.indices
    first, second = vertices[pairs.edge_rows], pairs.indices.astype(np.int64)
    theirs, known = own.copy(), np.flatnonzero(first >= 0)
    if len(known):
        others, other = np.unique(second[known], return_inverse=True)
        order = np.argsort(other, kind="stable")
        starts = np.concatenate([[0], np.cumsum(np.bincount(other, minlength=len(others)))])
        some, rows = model.users.some(others)
        itself = Adjacency(np.arange(len(others) + 1), others.astype(np.int32))
        of_others = replace(draws, edges=some.liked.take(rows), itself=Known(impossible=itself))
        theirs[known[order]] = of_others.chances_of(Adjacency(starts, first[known[order]].astype(np.int32)))
    return either(own, theirs)


def vertex_draws(model: Model, linked: Adjacency, limits: Known | None) -> VertexDraws:
    """Draws of vertices with these links, as in the model's fit."""
    if limits is None:  # none of them is in the graph
        limits = Known(impossible=Adjacency.of_rows([np.empty(0, np.int32)] * linked.rows))
    return VertexDraws(linked, chances_of(model), model.plan.negatives, limits)
