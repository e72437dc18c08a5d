"""Changes to a fitted model: users or items added or updated, the other side held fixed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from considerate.data import Titles
from considerate.data.graph import Adjacency
from considerate.inference.posterior import Side
from considerate.model.model import Model
from considerate.model.rows import grown_ids, merged_side
from considerate.model.users import UserRows


def with_users(model: Model, rows: NDArray[np.int64], liked: Adjacency) -> Model:
    """The model with these users folded in, all of them in memory; row i of `liked` is of user rows[i]."""
    old = model.users.whole()
    side = merged_side(old.side, rows, model.fold_in.users(liked), "userids", liked.rows)
    place = {int(row): i for i, row in enumerate(rows)}
    nothing = np.empty(0, np.int32)

    def likes_of(row: int) -> NDArray[np.int32]:
        if row in place:
            return liked.row(place[row])
        return old.liked.row(row) if row < len(old) else nothing

    lists = [likes_of(row) for row in range(len(side))]
    degree = np.concatenate([old.degree, np.zeros(len(side) - len(old), np.int64)])
    degree[rows] = liked.degrees
    starts = np.zeros(len(side) + 1, np.int64)
    np.cumsum([len(one) for one in lists], out=starts[1:])
    likes = Adjacency(starts, np.concatenate([nothing, *lists]))
    return replace(model, users=UserRows(side, degree, likes, grown_ids(old.ids, len(side), "user")))


def folded_items(model: Model, liked_by: Adjacency) -> Side:
    """q of items liked by these users."""
    fold_in = replace(model.fold_in, posterior=model.posterior)
    return fold_in.items(liked_by, model.user_degree, model.gamma, model.settings.seed)


def with_items(model: Model, rows: NDArray[np.int64], liked_by: Adjacency) -> Model:
    """The model with these items folded in, all users in memory; row i of `liked_by` is of item rows[i]."""
    users = model.users.whole()
    items = merged_side(model.items, rows, folded_items(model, liked_by), "itemids", liked_by.rows)
    added = len(items) - model.item_count
    degree = np.concatenate([model.item_degree, np.zeros(added, np.int64)])
    degree[rows] = liked_by.degrees
    weights = np.concatenate([model.popularity, np.zeros(added)])
    weights[rows] = np.where(degree[rows] > 0, np.maximum(degree[rows], 1).astype(np.float64) ** model.gamma, 0.0)
    liked = _with_columns(users.liked, rows, liked_by) if users.knows_likes else users.liked
    titles = model.titles
    if titles is not None and added:
        titles = Titles(np.concatenate([titles.offsets, np.full(added, titles.offsets[-1])]), titles.text)
    return replace(
        model,
        users=replace(users, liked=liked, degree=users.degree + liked.degrees - users.liked.degrees),
        items=items,
        item_degree=degree,
        popularity=weights,
        titles=titles,
        item_ids=grown_ids(model.item_ids, len(items), "item"),
    )


def _with_columns(liked: Adjacency, items: NDArray[np.int64], liked_by: Adjacency) -> Adjacency:
    """The likes of all users with those of some items replaced, so that a new like is filtered out like an old one."""
    old = ~np.isin(liked.indices, items)
    users = np.concatenate([np.repeat(np.arange(liked.rows), liked.degrees)[old], liked_by.indices])
    columns = np.concatenate([liked.indices[old], np.repeat(items, liked_by.degrees)]).astype(np.int32)
    starts = np.zeros(liked.rows + 1, np.int64)
    np.cumsum(np.bincount(users, minlength=liked.rows), out=starts[1:])
    return Adjacency(starts, columns[np.lexsort((columns, users))])
