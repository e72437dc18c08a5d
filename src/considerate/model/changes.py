"""Changes to a fitted model: users or items are added or updated, and the other side is held fixed."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data import ReaderOptions, Titles
from considerate.data.features import Features, FeatureTable
from considerate.data.graph import Adjacency, transpose
from considerate.data.known import Known
from considerate.data.read import find_titles
from considerate.data.read_features import read_more
from considerate.data.vocabulary import Vocabulary
from considerate.errors import DataError, UsageError
from considerate.inference.hidden import Consideration, popularity_weights
from considerate.inference.hidden.consideration import unknown_of, without_cold
from considerate.inference.posterior import Side
from considerate.inference.prior import SHARED, Prior
from considerate.kernels.arrays import take_lists
from considerate.kernels.threads import LocalBackend
from considerate.model.features import predicted_degree
from considerate.model.likes import NO_LIKE, head_correction, insert_likes, with_changed_likes
from considerate.model.model import Model, renewed
from considerate.model.names import By, Grown, Names
from considerate.model.predict import strangers
from considerate.model.users import UserRows

logger = logging.getLogger("considerate")


def with_users(model: Model, userids: Any, user_items: Any, by: By = "id") -> Model:
    """Fold users into the model, with all users in memory; row i of `user_items` belongs to userids[i].

    Degrees and pi follow all likes, and users are folded in with the new ones. The walk's table stays, except for rows
    through a user who lost a like; the next update makes the others again.
    """
    model.check_two_kinds()
    old, liked = model.users.whole(), model.item_names(by).likes(user_items)
    grown = _grown(Names.of("user", len(old), old.ids, by), userids, old.ids)
    side = _merged(old.side, grown, strangers(liked.rows, model.shared, model.variance_scale), "userids")
    given, before = liked.take(_places(grown)), old.liked.take(grown.before)
    gone = ~given.has(before) & np.isin(before.edge_rows, grown.rows)
    lost = np.arange(model.item_count)
    if old.knows_likes:
        lost = np.unique(before.take(np.unique(before.edge_rows[gone])).indices)
    likes, _ = insert_likes(before.keep(~gone), given)
    users = UserRows(side, grown.spread(old.degree, liked.degrees), likes, grown.ids)
    with LocalBackend(model.plan.threads) as threads:
        changed = with_changed_likes(
            model.with_same_items(users=users, limits=_grown_limits(model, users=grown)), users, lost, threads.map
        )
    side = _merged(old.side, grown, changed.fold_in.users(liked), "userids")
    return renewed(changed.with_same_items(users=replace(users, side=side), limits=changed.limits))


def folded_users(
    model: Model, liked: Adjacency, considered: Adjacency | None = None, user_features: Any = None
) -> Side:
    """Fold in users from their liked and considered items, and from features: a table or a matrix with a row each."""
    if user_features is None:
        return model.fold_in.users(liked, considered=considered)
    weights = model.user_features
    if weights is None:
        raise UsageError("this model was fitted without features of users; leave user_features out.")
    table = read_more(user_features, "user", weights.features, in_order=True)
    if table.features.rows != liked.rows:
        raise UsageError(f"user_features has {table.features.rows} rows for {liked.rows} users; give one row for each.")
    side = model.fold_in.users(liked, weights.prior(table.features), considered)
    nothing = np.flatnonzero((liked.degrees == 0) & (considered is None or considered.degrees == 0))
    cold = weights.cold_rows(table.features.take(nothing), model.precisions, "user", model.variance_scale)
    side.put(nothing, cold)
    return side


def with_cold_users(model: Model, table: FeatureTable) -> Model:
    """Add the users of a table of features to the model, with all users in memory. Users with likes stay the same."""
    weights, old = model.user_features, model.users.whole()
    if weights is None:
        raise UsageError("this model was fitted without features of users; fit it with user_features= to add users.")
    cold = _cold(table, model.user_names(), old.ids, old.degree)
    if cold is None:
        return model
    grown, features = cold
    new = weights.cold_rows(features, model.precisions, "user", model.variance_scale)
    side, liked = _merged(old.side, grown, new, "the table"), old.liked.take(grown.before)
    users = UserRows(side, grown.moved(old.degree), liked, grown.ids)
    return model.with_same_items(users=users, limits=_grown_limits(model, users=grown))


def _cold(
    table: FeatureTable, names: Names, ids: Vocabulary, degree: NDArray[np.int64]
) -> tuple[Grown, Features] | None:
    """Rows of a table with features and without likes, merged with the model's ids, and their features; None if there
    are none."""
    given = _ids_of(table, ids, f"{names.what}s")
    at = names.rows(given, unknown=True)
    rows = np.flatnonzero(((at < 0) | (degree[at] == 0)) & table.features.are_known)
    return (names.grown(given[rows]), table.features.take(rows)) if len(rows) else None


def folded_items(model: Model, liked_by: Adjacency, prior: Prior = SHARED) -> tuple[Side, NDArray[np.float64]]:
    """Fold in items liked by these users; returns q and pi."""
    weights = popularity_weights(liked_by.degrees, model.gamma)
    if model.parameters.get("head_correction", False):
        weights *= head_correction(model, liked_by.degrees)
    users = model.users.whole().side
    return model.fold_in.items(liked_by, users, model.passing, weights, prior), weights


def with_items(model: Model, itemids: Any, item_users: Any, by: By = "id") -> Model:
    """Fold items into the model, with all users in memory; row i of `item_users` belongs to itemids[i].

    The walk's table is made again from all likes. A model without likes keeps its rows: only pi leads to a new item,
    and a new item leads only to pi.
    """
    model.check_two_kinds()
    users, liked_by = model.users.whole(), model.user_names(by).likes(item_users)
    grown = _grown(model.item_names(by), itemids, model.item_ids)
    features, prior = model.item_features, SHARED
    if features is not None:  # a new item has none
        features = features.with_rows(features.features.take(grown.before))
        prior = features.prior(features.features.take(grown.rows))
    new, new_weights = folded_items(model, liked_by, prior)
    liked = users.liked
    if users.knows_likes:  # new likes are filtered out like old ones
        renumbered = Adjacency(liked.starts, grown.kept[liked.indices].astype(np.int32), liked.weights)
        given = transpose(liked_by.take(_places(grown)), len(users))
        gone = ~given.has(renumbered) & np.isin(renumbered.indices, grown.rows)
        liked, _ = insert_likes(renumbered.keep(~gone), given)
        if not liked.edges:
            raise DataError(NO_LIKE)
    changed = replace(
        model,
        users=replace(users, liked=liked, degree=users.degree + liked.degrees - users.liked.degrees),
        items=_merged(model.items, grown, new, "itemids"),
        item_degree=grown.spread(model.item_degree, liked_by.degrees),
        popularity=grown.spread(model.popularity, new_weights),
        walk_degree=None,
        titles=_grown_titles(model.titles, grown),
        item_ids=grown.ids,
        item_features=features,
        limits=_grown_limits(model, items=grown),
    )
    return renewed(replace(changed, consideration=_grown_walk(model, changed, grown.kept, again=users.knows_likes)))


def with_cold_items(model: Model, table: FeatureTable, titles: ReaderOptions) -> Model:
    """Add the items of a table of features to the model, with titles by these options. Items with likes, and rows
    without features, stay as they are.

    q of a new item is its prior, pi is predicted from the degrees of liked items, and lift is 0.
    """
    weights = model.item_features
    if weights is None:
        raise UsageError("this model was fitted without features of items; fit it with item_features= to add items.")
    cold = _cold(table, model.item_names(), model.item_ids, model.item_degree)
    if cold is None:
        return model
    grown, features = cold
    new = weights.cold_rows(features, model.precisions, "item", model.variance_scale)
    degree = predicted_degree(weights.features, model.item_degree, features)
    pi = popularity_weights(degree, model.gamma)
    if model.parameters.get("head_correction", False):
        pi *= head_correction(model, degree)
    users = model.users
    if not np.array_equal(grown.kept, np.arange(model.item_count)):
        users = users.whole()
        users = replace(users, liked=Adjacency(users.liked.starts, grown.kept[users.liked.indices].astype(np.int32)))
    ascending = grown._replace(rows=np.sort(grown.rows))
    found = _titles_of(grown.ids.take(ascending.rows), titles)
    changed = replace(
        model,
        users=users,
        items=_merged(model.items, grown, new, "the table"),
        item_degree=grown.moved(model.item_degree),
        popularity=grown.spread(model.popularity, pi),
        titles=_grown_titles(model.titles, ascending, found),
        item_ids=grown.ids,
        item_features=weights.with_rows(weights.features.joined(features).take(grown.sources)),
        limits=_grown_limits(model, items=grown),
        walk_degree=None if model.walk_degree is None else grown.moved(model.walk_degree),
    )
    return renewed(replace(changed, consideration=_grown_walk(model, changed, grown.kept, again=False)))


def _grown_limits(model: Model, users: Grown | None = None, items: Grown | None = None) -> Known | None:
    """Impossible pairs, by the rows that users and items have now."""
    if model.limits is None:
        return None
    counts = (
        model.user_count if users is None else len(users.ids),
        model.item_count if items is None else len(items.ids),
    )
    return model.limits.spread(*counts, *(None if grown is None else grown.kept for grown in (users, items)))


def _ids_of(table: FeatureTable, known: Vocabulary, what: str) -> NDArray[Any]:
    """Ids of a table in the form of the model's ids; rows of a matrix come after the model's rows."""
    rows = np.arange(table.features.rows)
    if table.ids is None:
        if known.kind != "range":
            raise UsageError(f"a matrix of features has no ids, and the {what} of this model have; give a table.")
        return rows + len(known)
    ids = table.ids.ids_of(rows)
    return np.array([str(own) for own in ids] if known.kind == "string" else ids, object)


def _places(grown: Grown) -> NDArray[np.int64]:
    """Place of each row among the updated or added ones; -1 for the others: [rows]."""
    places = np.full(len(grown.ids), -1, np.int64)
    places[grown.rows] = np.arange(len(grown.rows))
    return places


def _titles_of(ids: Vocabulary, options: ReaderOptions) -> Titles | None:
    """Titles of new items; None if the source has none of them."""
    try:
        return find_titles(ids, options)[0]
    except DataError:
        logger.warning("no title is found for the items that have features and no likes")
        return None


def _grown_titles(old: Titles | None, grown: Grown, new: Titles | None = None) -> Titles | None:
    """Merge the old titles with those of updated or added rows, if any."""
    if old is None and new is None:
        return None
    old = old or Titles.of_strings([""] * len(grown.kept))
    new = new or Titles.of_strings([])
    named = np.flatnonzero(np.diff(new.offsets))
    which = grown.before
    which[grown.rows[named]] = len(old) + named
    offsets = np.concatenate([old.offsets, old.offsets[-1] + new.offsets[1:]])
    return Titles(*take_lists(offsets, np.concatenate([old.text, new.text]), which))


def _grown_walk(model: Model, changed: Model, kept: NDArray[Any], again: bool) -> Consideration | None:
    """Make the walk's table of the changed model from its likes, or keep old rows without items that lost theirs."""
    old, cold = model.consideration, changed.cold_items
    if old is None:
        return None
    weights, unknown = without_cold(changed.popularity, cold), unknown_of(cold)
    if again:
        liked = changed.users.whole().liked
        by_item = transpose(liked, len(weights))
        with LocalBackend(model.plan.threads) as threads:
            walk = Consideration.of_graph(liked, by_item, weights, model.plan.neighbours, old.mix, threads.map)
        return replace(walk, unknown=unknown)
    items, rows = kept[old.items].astype(np.int32), np.repeat(kept, np.diff(old.starts))
    liked_by_some = weights[items] > 0
    rest = np.ones(len(weights), np.float32)
    cut = np.bincount(rows[~liked_by_some], old.shares[~liked_by_some], len(weights))
    rest[kept] = np.minimum(old.rest + cut[kept], 1.0)
    starts = np.append(0, np.cumsum(np.bincount(rows[liked_by_some], minlength=len(weights))))
    return Consideration(starts, items[liked_by_some], old.shares[liked_by_some], rest, weights, old.mix, unknown)


def _merged(side: Side, grown: Grown, new: Side, what: str) -> Side:
    """Replace rows of a side by the rows of `new`, or add them."""
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
    """Merge the given ids into the known ones. A row number can update a user or an item that has an id, but not add
    one."""
    grown = names.grown(given)
    if not names.are_rows or ids.kind == "range":
        return grown
    if len(grown.ids) > len(ids):
        raise UsageError(
            f"new {names.what}s cannot be added by row number to a model whose {names.what}s have ids of their own; "
            "give their ids, without by='row'."
        )
    return grown._replace(ids=ids)
