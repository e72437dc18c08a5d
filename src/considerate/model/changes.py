"""Changes to a fitted model: users or items added or updated, the other side held fixed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data import Titles
from considerate.data.graph import Adjacency, transpose
from considerate.data.vocabulary import Vocabulary
from considerate.errors import UsageError
from considerate.inference.hidden import Consideration, popularity_weights
from considerate.inference.posterior import Side
from considerate.kernels.threads import LocalBackend
from considerate.model.model import Model
from considerate.model.rows import likes_adjacency, row_numbers
from considerate.model.users import UserRows


def with_users(model: Model, userids: Any, user_items: Any) -> Model:
    """The model with users folded in, all of them in memory; row i of `user_items` is of userids[i].

    pi and the walk's table stay those of the fit: what a user considers follows from their own likes by them.
    """
    rows, liked = np.atleast_1d(row_numbers(userids, "user")), likes_adjacency(user_items, model.item_count)
    old = model.users.whole()
    side = _merged(old.side, rows, model.fold_in.users(liked), "userids")
    added = len(side) - len(old)
    degree = np.append(old.degree, np.zeros(added, np.int64))
    degree[rows] = liked.degrees
    fans = np.repeat(np.arange(len(old)), old.liked.degrees)
    stay = ~np.isin(np.arange(len(old)), rows)[fans]
    users = np.concatenate([fans[stay], np.repeat(rows, liked.degrees)])
    items = np.concatenate([old.liked.indices[stay], liked.indices])
    likes = Adjacency.of_pairs(users, items, len(side), model.item_count)
    return model.with_same_items(users=UserRows(side, degree, likes, _grown(old.ids, len(side), "user")))


def folded_items(model: Model, liked_by: Adjacency) -> tuple[Side, NDArray[np.float64]]:
    """q and pi of items liked by these users."""
    weights = popularity_weights(liked_by.degrees, model.gamma)
    if model.parameters.get("head_correction", False):
        weights *= _head_correction(model, liked_by.degrees)
    return model.fold_in.items(liked_by, model.users.whole().side, model.user_temperatures, weights), weights


def _head_correction(model: Model, degree: NDArray[np.int64]) -> NDArray[np.float64]:
    """pi'_n / pi_n of items of these degrees, interpolated between the model's items, for which the fit solved it.

    It depends on the degree above all: draws that hit likes are discarded, and popular items have more of them.
    """
    known = model.item_degree > 0
    degrees, which, often = np.unique(model.item_degree[known], return_inverse=True, return_counts=True)
    factor = model.popularity[known] / popularity_weights(model.item_degree[known], model.gamma)
    mean = np.bincount(which, factor) / often
    return np.asarray(np.interp(np.log(np.maximum(degree, 1)), np.log(degrees), mean))


def with_items(model: Model, itemids: Any, item_users: Any) -> Model:
    """The model with items folded in, all users in memory; row i of `item_users` is of itemids[i].

    The walk's table is made again from all likes. A model without likes keeps the rows that it has: nothing leads to a
    new item but pi, and a new item leads to nothing else.
    """
    rows, liked_by = np.atleast_1d(row_numbers(itemids, "item")), likes_adjacency(item_users, model.user_count)
    users = model.users.whole()
    new, new_weights = folded_items(model, liked_by)
    items = _merged(model.items, rows, new, "itemids")
    added = len(items) - model.item_count
    degree = np.append(model.item_degree, np.zeros(added, np.int64))
    weights = np.append(model.popularity, np.zeros(added))
    degree[rows], weights[rows] = liked_by.degrees, new_weights
    liked = users.liked
    if users.knows_likes:  # a new like is filtered out as an old one is
        old = ~np.isin(liked.indices, rows)
        fans = np.concatenate([np.repeat(np.arange(liked.rows), liked.degrees)[old], liked_by.indices])
        columns = np.concatenate([liked.indices[old], np.repeat(rows, liked_by.degrees)])
        liked = Adjacency.of_pairs(fans, columns, len(users), len(items))
    titles = model.titles
    if titles is not None and added:
        titles = Titles(np.concatenate([titles.offsets, np.full(added, titles.offsets[-1])]), titles.text)
    return replace(
        model,
        users=replace(users, liked=liked, degree=users.degree + liked.degrees - users.liked.degrees),
        items=items,
        item_degree=degree,
        popularity=weights,
        consideration=_grown_walk(model, liked, weights),
        titles=titles,
        item_ids=_grown(model.item_ids, len(items), "item"),
    )


def _grown_walk(model: Model, liked: Adjacency, weights: NDArray[np.float64]) -> Consideration | None:
    """Who considers what by these likes; where none are known, the rows of before, without items that lost theirs."""
    old = model.consideration
    if old is None:
        return None
    if model.users.knows_likes:
        by_item = transpose(liked, len(weights))
        with LocalBackend(model.plan.threads) as threads:
            return Consideration.of_graph(liked, by_item, weights, model.plan.neighbours, old.mix, threads.map)
    kept, rows = weights[old.items] > 0, np.repeat(np.arange(old.item_count), np.diff(old.starts))
    rest = np.ones(len(weights), np.float32)
    cut = np.bincount(rows[~kept], old.shares[~kept], old.item_count)
    rest[: old.item_count] = np.minimum(old.rest + cut, 1.0)
    starts = np.append(0, np.cumsum(np.bincount(rows[kept], minlength=len(weights))))
    return Consideration(starts, old.items[kept], old.shares[kept], rest, weights, old.mix)


def _merged(side: Side, rows: NDArray[np.int64], new: Side, what: str) -> Side:
    """The side with `rows` replaced by, or grown to have, those of `new`."""
    if len(rows) != len(new):
        raise UsageError(f"{what} has {len(rows)} entries for {len(new)} rows of likes; give one row for each.")
    if len(np.unique(rows)) != len(rows) or (rows < 0).any():
        raise UsageError(f"{what} must be distinct row numbers, 0 or larger.")
    size = max(len(side), int(rows.max(initial=-1)) + 1)
    if size > len(side) + len(rows):
        raise UsageError(
            f"{what} would leave rows between {len(side)} and {size - 1} without likes; add them in order."
        )

    merged = Side.constant(size, side.factors, 0.0, 0.0 if side.has_bias else None)
    for values, old, updated in zip(merged.arrays(), side.arrays(), new.arrays()):
        if values is not None:
            values[: len(side)], values[rows] = old, updated
    return merged


def _grown(ids: Vocabulary, size: int, what: str) -> Vocabulary:
    """Ids for rows that were added."""
    if size == len(ids):
        return ids
    if ids.kind != "range":
        raise UsageError(
            f"new {what}s cannot be added by row number to a model whose {what}s have ids of their own; fit again."
        )
    return Vocabulary.range(size)
