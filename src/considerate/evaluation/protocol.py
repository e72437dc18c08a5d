"""Test protocol: which likes recommenders are fitted to, which are folded in, and which are held out.

    random       one random like of every user who has two or more
    latest       the latest like of every user who has two or more
    0.2          that share of every user's likes, at random
    2024-05-01   likes from this date on
    users        one user in ten is new: all likes but the last are folded in, and the last is held out
    test         all likes: for models that were fitted to others

A user without a like in training is *new*. The last like of a new user is held out, and the earlier ones are folded in.
The last like is the latest if there are times, else a random one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data import Interactions, Titles
from considerate.data.graph import Adjacency, Graph
from considerate.data.vocabulary import Ids, Vocabulary, match_rows, union_ids
from considerate.errors import DataError, UsageError
from considerate.evaluation.split import (
    HeldOut,
    Mask,
    Rows,
    edge_keys,
    edge_times,
    is_among,
    last_edges,
    last_of_each,
    moment,
    pair_keys,
    random_edges,
    shared_edges,
)
from considerate.inference.posterior import Side
from considerate.kernels import compiled
from considerate.kernels.arrays import take_lists
from considerate.model.model import Model
from considerate.model.users import UserRows

WORDS = ("random", "latest", "users", "test")
NEW_USERS = 0.1  # of the split by users
STREAM = 0x0E7A
Split = str | float | date | datetime | None


@dataclass(frozen=True)
class Protocol:
    """Test for any number of recommenders. Rows are those of `user_ids` and `item_ids`.

    `held.train` has all known likes of each user: the likes of training, those to fold in, and those in the training of
    a fitted model. None of them is a candidate.
    """

    user_ids: Vocabulary  # of the data
    item_ids: Vocabulary  # of items with a like in training, or known to a fitted model
    train: Interactions | None  # likes that estimators are fitted to; None if all likes are a test
    held: HeldOut
    new: Rows  # tested users without a like in training
    left_out: dict[str, int]  # likes that cannot be tested, by the reason
    description: str


@dataclass(frozen=True)
class Marked:
    """The graph of some likes, with the purpose of each edge: training, test or neither."""

    graph: Graph
    times: NDArray[np.float64] | None  # [edges]
    fitted: Mask  # [edges] in training
    tested: Mask  # [edges] held out, or of a new user
    description: str
    repeated: int = 0  # likes of a given test that are also in training


def make_protocol(
    likes: Interactions,
    split: Split,
    seed: int = 0,
    models: Sequence[Model] = (),
    test: Interactions | None = None,
) -> Protocol:
    """Make the test of fitted `models` and of estimators that are not fitted yet.

    With `test`, these likes are held out and all of `likes` are trained on; otherwise `split` divides `likes`.
    """
    if test is not None:
        likes, marked = mark_given(likes, test)
    else:
        marked = mark(likes, split, seed)
    graph, fitted = marked.graph, marked.fitted
    known_to = [KnownLikes.of(model, likes, graph) for model in models]
    in_training = marked.tested & np.logical_or.reduce([np.zeros(graph.edges, bool), *(k.edges for k in known_to)])
    if in_training.any() and fitted.any():
        raise UsageError(
            f"a model was fitted to {int(in_training.sum()):,} of the {int(marked.tested.sum()):,} likes that are held "
            "out; give it unfitted, so that it is fitted to the others, or give likes that it was not fitted to."
        )
    ids = items_in(likes, graph, fitted, models)
    data_items = match_rows(likes.item_ids, ids)
    nameless = marked.tested & ~in_training & (data_items[graph.by_user.indices] < 0)
    tested = marked.tested & ~in_training & ~nameless
    users = graph.pairs()[0].astype(np.int64)
    trained = np.bincount(users[fitted], minlength=graph.user_count) > 0
    known = np.logical_and.reduce([k.known for k in known_to]) if known_to and not fitted.any() else trained
    of_new = tested & ~known[users]
    alone = of_new & (np.bincount(users[of_new], minlength=graph.user_count) == 1)[users]
    ranked = tested & ~of_new
    ranked[last_of_new(users, of_new & ~alone, marked.times, seed)] = True
    left_out = {
        "of new users with no earlier like": int(alone.sum()),
        "of items without a like in training": int(nameless.sum()),
        "that are also in training": int(in_training.sum()) + marked.repeated,
        "duplicates": graph.duplicates - marked.repeated,
    }
    if not ranked.any():
        reasons = ", ".join(f"{count:,} {why}" for why, count in left_out.items() if count) or "no user has two likes"
        raise DataError(f"{likes.source}: none of its {graph.edges:,} likes can be held out and ranked: {reasons}.")
    held = HeldOut(
        seen_graph(graph, fitted | (of_new & ~ranked & ~alone), ids, data_items, known_to),
        users[ranked],
        data_items[graph.by_user.indices[ranked]],
        sum(left_out.values()),
        trained_users=int(trained.sum()) if fitted.any() else models[0].user_count if models else None,
    )
    new = np.unique(users[ranked & of_new])
    train = some_likes(likes, graph, fitted, marked.times) if fitted.any() else None
    return Protocol(likes.user_ids, ids, train, held, new, left_out, marked.description)


# --- The purpose of each like ---


def mark(likes: Interactions, split: Split, seed: int) -> Marked:
    """Divide likes by a rule."""
    graph = graph_of(likes)
    times = None if likes.times is None else edge_times(graph, likes)
    if split is None:
        split = "random" if times is None else "latest"
    if split == "test":
        nothing = np.zeros(graph.edges, bool)
        return Marked(graph, times, nothing, ~nothing, "all of these likes")
    if split == "users":
        tested, text = edges_of_new_users(graph, seed), "one like of one user in ten, who are new"
    elif split == "random":
        tested, text = random_edges(graph, seed), "one random like of each user"
    elif split == "latest":
        tested, text = last_edges(graph, edge_times(graph, likes), seed), "each user's latest like"
    elif isinstance(split, float | int) and 0 < split < 1:
        tested, text = shared_edges(graph, seed, split), f"{split:.0%} of each user's likes, at random"
    else:
        tested, text = edges_from(graph, likes, split), f"likes from {split} on"
    return Marked(graph, times, ~tested, tested, text)


def edges_of_new_users(graph: Graph, seed: int) -> Mask:
    """[edges] those of one user in ten, of the users who have two likes or more."""
    able = np.flatnonzero(graph.by_user.degrees >= 2)
    random = np.random.Generator(np.random.Philox(key=[seed, STREAM]))
    chosen = np.zeros(graph.user_count, bool)
    chosen[random.permutation(able)[: max(1, round(NEW_USERS * len(able)))]] = True
    return chosen[graph.by_user.edge_rows]


def edges_from(graph: Graph, likes: Interactions, date: Any) -> Mask:
    """[edges] those from a date on; DataError if that is all of them or none."""
    first, times = first_moment(date), edge_times(graph, likes)
    tested = times >= first
    if not tested.any() or tested.all():
        how_many, ends = "every" if tested.any() else "no", (np.nanmin(times), np.nanmax(times))
        raise DataError(
            f"{likes.source}: {how_many} like is from {date} on; times go from {ends[0]:.10g} to {ends[1]:.10g}: "
            "choose a date, or a number, between them."
        )
    return tested


def is_rule(split: Any) -> bool:
    """True if a split is a rule that divides likes, False if it is the test likes themselves."""
    if isinstance(split, str):
        try:
            return split in WORDS or first_moment(split) is not None
        except UsageError:
            return False
    return split is None or isinstance(split, float | int | date)


def first_moment(split: Any) -> float:
    """The moment from which likes are held out, from a date in any form; UsageError if it is no split at all."""
    if isinstance(split, date) and not isinstance(split, datetime):
        split = datetime.combine(split, time())
    try:
        return moment(split)
    except (UsageError, TypeError):
        raise UsageError(
            f"split is {split!r}; expected one of {', '.join(map(repr, WORDS))}, a share such as 0.2, a date such as "
            "'2024-05-01' (or a number of the time column), or the test likes themselves."
        ) from None


def mark_given(likes: Interactions, test: Interactions) -> tuple[Interactions, Marked]:
    """Train on all likes of one source and hold out those of another; a pair that is in both is trained on."""
    both = join_likes(likes, test)
    graph = graph_of(both)
    keys = pair_keys(both.users, both.items, graph.item_count)
    trained, held = np.unique(keys[: len(likes.users)]), np.unique(keys[len(likes.users) :])
    fitted = is_among(edge_keys(graph), trained)
    times = None if both.times is None else edge_times(graph, both)
    repeated = int(is_among(held, trained).sum())
    return both, Marked(graph, times, fitted, ~fitted, f"the likes of {test.source}", repeated)


def join_likes(a: Interactions, b: Interactions) -> Interactions:
    """Concatenate the likes of two sources by their own ids."""
    user_ids, item_ids = union_ids([a.user_ids, b.user_ids]), union_ids([a.item_ids, b.item_ids])
    users = np.concatenate([match_rows(part.user_ids, user_ids)[part.users] for part in (a, b)]).astype(np.int32)
    items = np.concatenate([match_rows(part.item_ids, item_ids)[part.items] for part in (a, b)]).astype(np.int32)
    parts = [np.full(len(part.users), np.nan) if part.times is None else part.times for part in (a, b)]
    times = None if a.times is None and b.times is None else np.concatenate(parts)
    amounts = a.amounts and a.amounts.followed_by(b.amounts, len(b.users))
    return Interactions(
        users, items, user_ids, item_ids, None, a.source, len(users), len(users), (*a.notes, *b.notes), times, amounts
    )


def last_of_new(users: Rows, among: Mask, times: NDArray[np.float64] | None, seed: int) -> Rows:
    """The last of some edges of each user; a random one if times tie or there are none."""
    random = np.random.Generator(np.random.Philox(key=[seed, STREAM + 1])).random(len(users))
    return last_of_each(users, np.flatnonzero(among), np.zeros(len(users)) if times is None else times, random)


# --- Rows of the test ---


@dataclass(frozen=True)
class KnownLikes:
    """Training likes of a fitted model, for the users of some data."""

    model: Model
    known: Mask  # [users of the data] the model knows a like of theirs
    edges: Mask  # [edges of the data] the model was fitted to them
    users: Rows  # [likes of these users in the model's training] rows of the data
    items: NDArray[np.int32]  # [the same likes] rows of the model

    @classmethod
    def of(cls, model: Model, likes: Interactions, graph: Graph) -> KnownLikes:
        rows = rows_with_likes(model, likes.user_ids)
        people = np.flatnonzero(rows >= 0)
        some, at = model.users.some(rows[people])
        liked = some.liked.take(at)
        users = np.repeat(people, liked.degrees)
        columns = match_rows(model.item_ids, likes.item_ids)[liked.indices]
        keys = np.unique(pair_keys(users, columns, graph.item_count)[columns >= 0])
        return cls(model, rows >= 0, is_among(edge_keys(graph), keys), users, liked.indices)


def rows_with_likes(model: Model, user_ids: Ids) -> Rows:
    """[users] their rows in a model, -1 if it knows no like of theirs."""
    rows = match_rows(user_ids, model.user_ids)
    known = np.flatnonzero(rows >= 0)
    some, at = model.users.some(rows[known])
    rows[known[some.degree[at] == 0]] = -1
    return rows


def items_in(likes: Interactions, graph: Graph, fitted: Mask, models: Sequence[Model]) -> Vocabulary:
    """The items that are ranked: those with a like in training, and those that a fitted model knows."""
    trained = np.bincount(graph.by_user.indices[fitted], minlength=graph.item_count) > 0
    own = [] if models and not fitted.any() else [likes.item_ids.take(np.flatnonzero(trained))]
    return union_ids([*own, *(model.item_ids for model in models)])


def seen_graph(graph: Graph, seen: Mask, ids: Vocabulary, data_items: Rows, known_to: Sequence[KnownLikes]) -> Graph:
    """The known likes of each user, by the rows of the test."""
    items = data_items[graph.by_user.indices[seen]]
    pairs: list[tuple[NDArray[Any], Rows]] = [(graph.pairs()[0][seen][items >= 0], items[items >= 0])]
    pairs += [(known.users, match_rows(known.model.item_ids, ids)[known.items]) for known in known_to]
    rows, columns = (np.concatenate([pair[side] for pair in pairs]) for side in (0, 1))
    return Graph.from_adjacency(Adjacency.of_pairs(rows, columns, graph.user_count, len(ids)), len(ids))


def some_likes(likes: Interactions, graph: Graph, chosen: Mask, times: NDArray[np.float64] | None) -> Interactions:
    """The chosen edges as data of their own, whose users and items have a like among them."""
    users, items = graph.pairs()[0][chosen], graph.by_user.indices[chosen]
    people, things = np.unique(users), np.unique(items).astype(np.int64)
    titles = likes.titles and Titles(*take_lists(likes.titles.offsets, likes.titles.text, things))
    return Interactions(
        np.searchsorted(people, users).astype(np.int32),
        np.searchsorted(things, items).astype(np.int32),
        likes.user_ids.take(people.astype(np.int64)),
        likes.item_ids.take(things),
        titles,
        f"the training part of {likes.source}",
        len(users),
        len(users),
        (),
        None if times is None or np.isnan(times[chosen]).all() else times[chosen],
        None if likes.amounts is None else replace(likes.amounts, values=edge_amounts(likes, graph)[chosen]),
    )


def edge_amounts(likes: Interactions, graph: Graph) -> NDArray[np.int64]:
    """[edges] total amount of the rows of each edge."""
    assert likes.amounts is not None
    edges = (graph.by_user.starts, graph.by_user.indices)
    return compiled.add_to_edges(*edges, likes.users, likes.items, likes.amounts.values)


def graph_of(likes: Interactions) -> Graph:
    """The graph of likes as they were read, without warnings about its shape."""
    return Graph.from_pairs(likes.users, likes.items, len(likes.user_ids), len(likes.item_ids))


def with_test_users(model: Model, protocol: Protocol) -> Model:
    """Replace the users of a model by those of a test: it keeps those it knows and folds in the others."""
    rows = rows_with_likes(model, protocol.user_ids)
    known, others = np.flatnonzero(rows >= 0), np.flatnonzero(rows < 0)
    some, at = model.users.some(rows[known])
    earlier = renumbered(protocol.held.seen.take(others), match_rows(protocol.item_ids, model.item_ids))
    order = np.argsort(np.concatenate([known, others]))
    sides = (some.side.take(at), model.fold_in.users(earlier))
    if sides[0].covariance is not None:
        sides = (sides[0], sides[1].with_covariance())
    arrays: list[Any] = [
        None if own is None or new is None else np.concatenate([own, new])[order]
        for own, new in zip(*((*side.arrays(), side.covariance) for side in sides), strict=True)
    ]
    degree = np.concatenate([some.degree[at], earlier.degrees])[order]
    likes = Adjacency.joined([some.liked.take(at), earlier]).take(order)
    return model.with_same_items(users=UserRows(Side(model.factors, *arrays), degree, likes, protocol.user_ids))


def renumbered(rows: Adjacency, columns: Rows) -> Adjacency:
    """Replace each index n by columns[n]; edges whose new index is -1 are left out."""
    there = columns[rows.indices]
    owners = rows.edge_rows
    return Adjacency.of_pairs(owners[there >= 0], there[there >= 0], rows.rows, int(columns.max(initial=0)) + 1)
