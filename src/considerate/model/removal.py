"""Removal of likes and users from a fitted model: from its likes, degrees, pi, walk's table, vectors and ids.

An item's vector keeps a trace of a removed like until the model is fitted again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data import Interactions
from considerate.data.graph import run_serially
from considerate.data.vocabulary import match_rows
from considerate.inference.posterior import Side
from considerate.model.likes import with_changed_likes
from considerate.model.merge import known_likes
from considerate.model.model import Model, renewed
from considerate.model.predict import strangers
from considerate.model.users import UserRows


def without_likes(model: Model, removed: Interactions, run: Any = run_serially) -> Model:
    """Remove likes from a model. Their users are folded in again from the likes that are left."""
    users = known_likes(model, "taking likes out")
    fans = match_rows(removed.user_ids, users.ids)[removed.users]
    items = match_rows(removed.item_ids, model.item_ids)[removed.items]
    known = (fans >= 0) & (items >= 0)
    places, found = users.liked.find(fans[known], items[known])
    keep = np.ones(users.liked.edges, np.bool_)
    keep[places[found]] = False
    if keep.all():
        return model
    changed = np.unique(users.liked.edge_rows[~keep])
    left = _only(model, users, keep, run)
    liked = left.users.whole().liked
    folded = left.fold_in.users(liked.take(changed))
    side = with_rows(users.side, changed, folded)
    updates = model.updates.after(removed=len(keep) - int(keep.sum()))
    return renewed(replace(left, users=replace(left.users.whole(), side=side), updates=updates))


def without_users(model: Model, rows: NDArray[np.int64], run: Any = run_serially) -> Model:
    """Remove users from a model. If ids are row numbers, the rows of others stay, and the removed rows become empty."""
    users = known_likes(model, "forgetting a user")
    gone = np.zeros(len(users), np.bool_)
    gone[rows] = True
    left = _only(model, users, ~gone[users.liked.edge_rows], run)
    others, updates = left.users.whole(), model.updates.after(forgotten=int(gone.sum()))
    if users.ids.kind == "range":
        empty = strangers(int(gone.sum()), model.shared, model.variance_scale)
        others, kept = replace(others, side=with_rows(users.side, np.flatnonzero(gone), empty)), np.arange(len(users))
        kept[gone] = -1
    else:
        kept = np.flatnonzero(~gone)
        others = others.take(kept)
    limits = None if model.limits is None else model.limits.take(kept)
    return renewed(replace(left, users=others, updates=updates, limits=limits))


def with_rows(side: Side, rows: NDArray[np.int64], new: Side) -> Side:
    """Replace some rows of a side; the result has variances and no covariances."""
    changed = side.copy()
    changed.put(rows, new)
    return changed


def _only(model: Model, users: UserRows, keep: NDArray[np.bool_], run: Any) -> Model:
    """Keep only some of a model's likes. No vector changes."""
    losing = np.unique(users.liked.edge_rows[~keep])
    lost = np.unique(users.liked.take(losing).indices)
    liked = users.liked.keep(keep)
    return with_changed_likes(model, replace(users, liked=liked, degree=liked.degrees), lost, run)
