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
from considerate.model.names import By, Grown, Names
from considerate.model.users import UserRows


def with_users(model: Model, userids: Any, user_items: Any, by: By = "id") -> Model:
    """The model with users folded in, all of them in memory; row i of `user_items` is of userids[i].

    pi and the walk's table stay those of the fit: what a user considers follows from their own likes by them.
    """
    refuse_vertices(model)
    old, liked = model.users.whole(), model.item_names(by).likes(user_items)
    grown = _grown(Names.of("user", len(old), old.ids, by), userids, old.ids)
    side = _merged(old.side, grown, model.fold_in.users(liked), "userids")
    degree = grown.spread(old.degree, liked.degrees)
    fans = np.repeat(grown.kept, old.liked.degrees)
    stay = ~np.isin(fans, grown.rows)
    users = np.concatenate([fans[stay], np.repeat(grown.rows, liked.degrees)])
    items = np.concatenate([old.liked.indices[stay], liked.indices])
    likes = Adjacency.of_pairs(users, items, len(side), model.item_count)
    limits = None if model.limits is None else model.limits.spread(len(side), model.item_count, grown.kept)
    return model.with_same_items(users=UserRows(side, degree, likes, grown.ids), limits=limits)


def refuse_vertices(model: Model) -> None:
    """A change of one side alone would make two kinds of the vertices of a graph."""
    if model.one_kind:
        raise UsageError("this model is of a graph of vertices; to change it, fit again with the edges added.")


def folded_items(model: Model, liked_by: Adjacency) -> tuple[Side, NDArray[np.float64]]:
    """q and pi of items liked by these users."""
    weights = popularity_weights(liked_by.degrees, model.gamma)
    if model.parameters.get("head_correction", False):
        weights *= head_correction(model, liked_by.degrees)
    return model.fold_in.items(liked_by, model.users.whole().side, model.user_temperatures, weights), weights


def head_correction(model: Model, degree: NDArray[np.int64]) -> NDArray[np.float64]:
    """pi'_n / pi_n of items of these degrees, interpolated between the model's items, for which the fit solved it.

    It depends on the degree above all: draws that hit likes are discarded, and popular items have more of them.
    """
    known = model.item_degree > 0
    degrees, which, often = np.unique(model.item_degree[known], return_inverse=True, return_counts=True)
    factor = model.popularity[known] / popularity_weights(model.item_degree[known], model.gamma)
    mean = np.bincount(which, factor) / often
    return np.asarray(np.interp(np.log(np.maximum(degree, 1)), np.log(degrees), mean))


def with_items(model: Model, itemids: Any, item_users: Any, by: By = "id") -> Model:
    """The model with items folded in, all users in memory; row i of `item_users` is of itemids[i].

    The walk's table is made again from all likes. A model without likes keeps the rows that it has: nothing leads to a
    new item but pi, and a new item leads to nothing else.
    """
    refuse_vertices(model)
    users, liked_by = model.users.whole(), model.user_names(by).likes(item_users)
    grown = _grown(model.item_names(by), itemids, model.item_ids)
    new, new_weights = folded_items(model, liked_by)
    items = _merged(model.items, grown, new, "itemids")
    weights = grown.spread(model.popularity, new_weights)
    liked = users.liked
    if users.knows_likes:  # a new like is filtered out as an old one is
        renumbered = grown.kept[liked.indices]
        old = ~np.isin(renumbered, grown.rows)
        fans = np.concatenate([np.repeat(np.arange(liked.rows), liked.degrees)[old], liked_by.indices])
        columns = np.concatenate([renumbered[old], np.repeat(grown.rows, liked_by.degrees)])
        liked = Adjacency.of_pairs(fans, columns, len(users), len(items))
    titles = model.titles
    if titles is not None:
        lengths = np.zeros(len(items), np.int64)
        lengths[grown.kept] = np.diff(titles.offsets)
        titles = Titles(np.append(0, np.cumsum(lengths)), titles.text)
    return replace(
        model,
        users=replace(users, liked=liked, degree=users.degree + liked.degrees - users.liked.degrees),
        items=items,
        item_degree=grown.spread(model.item_degree, liked_by.degrees),
        popularity=weights,
        consideration=_grown_walk(model, liked, weights, grown.kept),
        walk_degree=None,
        titles=titles,
        item_ids=grown.ids,
        limits=None if model.limits is None else model.limits.spread(len(users), len(items), kept_items=grown.kept),
    )


def _grown_walk(
    model: Model, liked: Adjacency, weights: NDArray[np.float64], kept: NDArray[Any]
) -> Consideration | None:
    """Who considers what by these likes; where none are known, the rows of before, without items that lost theirs."""
    old = model.consideration
    if old is None:
        return None
    if model.users.knows_likes:
        by_item = transpose(liked, len(weights))
        with LocalBackend(model.plan.threads) as threads:
            return Consideration.of_graph(liked, by_item, weights, model.plan.neighbours, old.mix, threads.map)
    items, rows = kept[old.items].astype(np.int32), np.repeat(kept, np.diff(old.starts))
    liked_by_some = weights[items] > 0
    rest = np.ones(len(weights), np.float32)
    cut = np.bincount(rows[~liked_by_some], old.shares[~liked_by_some], len(weights))
    rest[kept] = np.minimum(old.rest + cut[kept], 1.0)
    starts = np.append(0, np.cumsum(np.bincount(rows[liked_by_some], minlength=len(weights))))
    return Consideration(starts, items[liked_by_some], old.shares[liked_by_some], rest, weights, old.mix)


def _merged(side: Side, grown: Grown, new: Side, what: str) -> Side:
    """The side with the rows replaced by, or grown to have, those of `new`."""
    if len(grown.rows) != len(new):
        raise UsageError(f"{what} has {len(grown.rows)} entries for {len(new)} rows of likes; give one row for each.")
    merged = Side.constant(len(grown.ids), side.factors, 0.0, 0.0 if side.has_bias else None)
    if side.covariance is not None:
        merged, new = merged.with_covariance(), new.with_covariance()
    arrays = [(*each.arrays(), each.covariance) for each in (merged, side, new)]
    for values, old, updated in zip(*arrays):
        if values is not None:
            values[grown.kept], values[grown.rows] = old, updated
    return merged


def _grown(names: Names, given: Any, ids: Vocabulary) -> Grown:
    """The ids with those that are given among them. A row number updates a user or an item that has an id, and cannot
    add one."""
    grown = names.grown(given)
    if not names.are_rows or ids.kind == "range":
        return grown
    if len(grown.ids) > len(ids):
        raise UsageError(
            f"new {names.what}s cannot be added by row number to a model whose {names.what}s have ids of their own; "
            "give their ids, without by='row'."
        )
    return grown._replace(ids=ids)
