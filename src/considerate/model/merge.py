"""Merge of new likes into a fitted model: its ids, likes, degrees, pi and walk's table.

Nothing is inferred here: rows of new users and items are at the prior.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from considerate.data import Interactions, Titles
from considerate.data.graph import Adjacency, Graph
from considerate.data.vocabulary import Vocabulary, integer_id, match_rows, merge_ids
from considerate.errors import UsageError
from considerate.inference.hidden import Consideration
from considerate.inference.posterior import Side
from considerate.kernels.arrays import take_lists
from considerate.model.likes import insert_likes, popularity_at, walk_degree
from considerate.model.model import Model
from considerate.model.names import Grown
from considerate.model.predict import prior_rows
from considerate.model.users import UserRows


@dataclass(frozen=True)
class Merged:
    """Model with likes merged into its own."""

    model: Model
    new: Adjacency  # [users] the new ones of these likes


def with_likes(model: Model, likes: Interactions) -> Merged:
    """Merge likes into a model. Ids stay sorted, so new ids move the rows of others."""
    users = known_likes(model, "an update")
    user_ids = _grown("user", users.ids, likes.user_ids)
    item_ids = _grown("item", model.item_ids, likes.item_ids)
    if model.item_features is not None and (len(item_ids.ids) > model.item_count or len(model.cold_items)):
        raise UsageError(
            "an update does not know of items without likes, nor of the features of new ones; fit again with all likes "
            "and features."
        )
    fans, items = user_ids.rows[likes.users].astype(np.int32), item_ids.rows[likes.items].astype(np.int32)
    given = Graph.from_pairs(fans, items, len(user_ids.ids), len(item_ids.ids), amounts=likes.amounts).by_user
    liked, new = insert_likes(_moved(users.liked, user_ids, item_ids), given)
    before = item_ids.moved(model.item_degree)
    degree = np.bincount(liked.indices, minlength=len(before))
    weights = popularity_at(model, item_ids.moved(model.popularity), before, degree)
    limits = model.limits
    if limits is not None:
        limits = limits.spread(len(user_ids.ids), len(item_ids.ids), user_ids.kept, item_ids.kept)
    grown = replace(
        model,
        users=UserRows(_spread(model, users.side, user_ids, "user"), liked.degrees, liked, user_ids.ids),
        items=_spread(model, model.items, item_ids, "item"),
        item_degree=degree,
        popularity=weights,
        consideration=_moved_walk(model.consideration, item_ids, weights),
        walk_degree=None if model.consideration is None else item_ids.moved(walk_degree(model)),
        titles=_titles(model.titles, likes.titles, item_ids),
        item_ids=item_ids.ids,
        limits=limits,
    )
    return Merged(grown, new)


def known_likes(model: Model, what: str) -> UserRows:
    """Get all users with their likes; raise UsageError if the file has no likes."""
    model.check_two_kinds()
    users = model.users.whole()
    if not users.knows_likes:
        raise UsageError(
            f"this model was saved without likes, and {what} needs them; save it with likes, or fit again."
        )
    return users


# --- Ids ---


def _grown(what: str, old: Vocabulary, new: Vocabulary) -> Grown:
    """Merge two vocabularies; returns the ids, and the rows of the new and of the old ones among them."""
    if old.kind == "range":
        return _longer_range(what, old, new)
    rows = match_rows(new, old)
    if (rows >= 0).all():
        return Grown(old, rows, np.arange(len(old)))
    ids, (kept, _) = merge_ids([old, _of_kind(what, new, old.kind)])
    return Grown(ids, match_rows(new, ids), kept)


def _longer_range(what: str, old: Vocabulary, new: Vocabulary) -> Grown:
    """Extend ids that are row numbers to include the new ones."""
    if new.kind == "string":
        raise UsageError(
            f"{what}s of this model are row numbers, as it was fitted on a matrix, and {new.id_of(0)!r} was given; "
            "give a matrix, or row numbers."
        )
    rows = np.arange(len(new)) + new.first if new.integers is None else new.integers
    if len(rows) and rows[0] < 0:
        raise UsageError(f"{what}s of this model are row numbers, 0 or larger, and {rows[0]} was given.")
    size = max(len(old), int(rows[-1]) + 1 if len(rows) else 0)
    return Grown(Vocabulary.range(size), rows, np.arange(len(old)))


def _of_kind(what: str, ids: Vocabulary, kind: str) -> Vocabulary:
    """Convert ids to texts or to integers; raise UsageError if that is impossible."""
    if ids.kind == kind:
        return ids
    if kind == "integer" and ids.kind == "range":
        return ids.take(np.arange(len(ids)))
    values = ids.ids_of(range(len(ids)))
    if kind == "string":
        return Vocabulary.of_strings(map(str, values))
    integers = [integer_id(value) for value in values]
    for value, integer in zip(values, integers):
        if integer is None:
            raise UsageError(f"{what} {value!r} cannot be added: the ids of this model are integers of 64 bits.")
    return Vocabulary.of_integers(np.sort(np.array(integers, np.int64)))


# --- Rows, likes and what follows from them ---


def _spread(model: Model, side: Side, grown: Grown, what: str) -> Side:
    """Move the rows of a side to their new places; rows of new ids are at the prior."""
    if len(grown.ids) == len(side):
        return side
    spread = prior_rows(len(grown.ids), model.shared, what)
    spread.put(grown.kept, side)
    return spread


def _moved(liked: Adjacency, users: Grown, items: Grown) -> Adjacency:
    """Renumber likes by the new row numbers."""
    indices = liked.indices
    if len(items.ids) > len(items.kept):
        indices = np.asarray(items.kept, np.int32)[indices]
    if len(users.ids) == len(users.kept):
        return Adjacency(liked.starts, indices, liked.weights)
    return Adjacency(np.append(0, np.cumsum(users.moved(liked.degrees))), indices, liked.weights)


def _moved_walk(walk: Consideration | None, items: Grown, weights: NDArray[np.float64]) -> Consideration | None:
    """Renumber the walk's table by the new row numbers. Only pi leads to a new item, and it leads only to pi."""
    if walk is None:
        return None
    if len(items.ids) == len(items.kept):
        return walk.with_weights(weights)
    lengths, rest = items.moved(np.diff(walk.starts)), items.moved(walk.rest, 1.0)
    to = np.asarray(items.kept, np.int32)[walk.items]
    return Consideration(np.append(0, np.cumsum(lengths)), to, walk.shares, rest, weights, walk.mix)


def _titles(old: Titles | None, new: Titles | None, items: Grown) -> Titles | None:
    """Merge the titles of old items with those of new ones, if the likes have titles."""
    if old is None and new is None:
        return None
    empty = Titles(np.zeros(1, np.int64), np.empty(0, np.uint8))
    old, new = old or empty, new or empty
    which = np.full(len(items.ids), -1, np.int64)
    if len(new):
        which[items.rows] = np.arange(len(new)) + len(old)
    if len(old):
        named = np.flatnonzero(np.diff(old.offsets))
        which[items.kept[named]] = named
    offsets = np.concatenate([old.offsets, new.offsets[1:] + old.offsets[-1]])
    return Titles(*take_lists(offsets, np.concatenate([old.text, new.text]), which))
