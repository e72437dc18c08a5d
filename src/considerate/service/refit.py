"""A new model from the data and the events; it takes the place of the old one unless it is worse.

The likes are those of the data with the events applied in their order, without the data of users who were erased. The
latest new like of some users is left out of the fit; both models rank it, as they would be served: with the user's
other likes. The one like that the new model lacks is folded in by the service, as any event is.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data import Interactions, ReaderOptions, Titles, read_likes
from considerate.data.vocabulary import Vocabulary, integer_id, merge_ids
from considerate.errors import ConsiderateError, UsageError
from considerate.model.file import save_model
from considerate.model.model import NO_EVENTS, LearnedEvents
from considerate.recommender import Recommender
from considerate.service.events import KINDS, EventLog, EventStore

LIKE, UNLIKE = KINDS.index("like"), KINDS.index("unlike")
MOST_JUDGED = 2_000  # users whose latest like is held out
LIST = 20  # places of the lists that are judged
ERRORS = 1.645  # standard errors below zero at which a difference counts as worse: 95 %, one-sided


class RefitDiscarded(ConsiderateError):
    """A refit whose model must not be used: someone was erased while it ran."""


@dataclass(frozen=True)
class RefitResult:
    """What came of it."""

    sequence: int  # of the last event that was read
    likes: int  # of the fit
    added: int  # pairs that events added to the data, those held out not among them
    removed: int  # pairs of the data that events or erasures removed
    ignored: int  # events of ids that cannot be in the data: texts where these are integers
    judged: int  # likes held out
    old: float | None  # mean NDCG@20 of the likes held out; None: there were none
    new: float | None
    swapped: bool  # whether the new model took the old one's place


@dataclass(frozen=True)
class Pairs:
    """Likes by rows of two vocabularies, in the order of time as far as it is known."""

    users: Vocabulary
    items: Vocabulary
    keys: NDArray[np.int64]  # user << 32 | item, ascending
    added: int
    removed: int
    ignored: int
    latest: dict[int, int]  # user -> the item of the user's latest like that is new


def refit(model_path: str, data: Any, reader: ReaderOptions, store: EventStore) -> RefitResult:
    """Fit anew with the settings of the model at the path, judge, and replace it unless the new one is worse."""
    old = Recommender.load(model_path)
    if old.model_.limits is not None or old.model_.plan.observed:
        raise UsageError("the model was told what is impossible or considered, which a refit does not know; use fit.")
    if old.model_.item_features is not None or old.model_.user_features is not None:
        raise UsageError("the model was fitted with features, which a refit does not read; use fit.")
    log = store.everything()
    likes = read_likes(data, reader)
    if likes.amounts is not None:
        raise UsageError("events have no weights, and these likes do; leave the options of weights out.")
    pairs = apply_events(likes, log, store)
    held = dict(list(pairs.latest.items())[-MOST_JUDGED:])
    kept = pairs.keys[~np.isin(pairs.keys, np.array([user << 32 | item for user, item in held.items()], np.int64))]
    new = Recommender(**old.get_params()).fit(interactions(likes, old, pairs, kept))
    gains = judged(old, new, pairs, kept, held)
    differences = gains[1] - gains[0]
    error = float(differences.std(ddof=1)) / math.sqrt(len(differences)) if len(differences) > 1 else 0.0
    sequence = log.rows[-1][0] if log.rows else 0
    swapped = len(differences) == 0 or float(differences.mean()) + ERRORS * error >= 0.0
    if swapped:
        beside = f"{model_path}.refit"
        try:
            events = LearnedEvents(sequence, store.identity) if sequence else NO_EVENTS
            save_model(replace(new.model_, events=events), beside, likes=old.model_.users.knows_likes)
            if not store.unless_erased(log, lambda: os.replace(beside, model_path)):
                raise RefitDiscarded("someone was erased while the refit ran, so its model is discarded; run it again.")
        finally:
            if os.path.exists(beside):
                os.remove(beside)
    means = [float(gain.mean()) if len(gain) else None for gain in gains]
    return RefitResult(
        sequence=sequence,
        likes=len(kept),
        added=pairs.added - len(held),
        removed=pairs.removed,
        ignored=pairs.ignored,
        judged=len(held),
        old=means[0],
        new=means[1],
        swapped=swapped,
    )


def apply_events(likes: Interactions, log: EventLog, store: EventStore) -> Pairs:
    """The pairs of the data and the events together."""
    rows = [row for row in log.rows if row[3] in (LIKE, UNLIKE)]
    known = [row for row in rows if _may_be(row[1], likes.user_ids) and _may_be(row[2], likes.item_ids)]
    users, user_rows, own_users = _grown(likes.user_ids, [row[1] for row in known])
    items, item_rows, own_items = _grown(likes.item_ids, [row[2] for row in known])
    data = np.unique(user_rows[likes.users] << 32 | item_rows[likes.items])
    if log.erased:
        gone = [row for row in range(len(users)) if store.hashed(str(users.id_of(row))) in log.erased]
        data = data[~np.isin(data >> 32, gone)]
    last: dict[int, int] = {}  # pair -> the kind of its last event, in the order of that
    for user, item, row in zip(own_users.tolist(), own_items.tolist(), known):
        key = user << 32 | item
        last.pop(key, None)
        last[key] = row[3]
    liked = np.array([key for key, kind in last.items() if kind == LIKE], np.int64)
    unliked = np.array([key for key, kind in last.items() if kind == UNLIKE], np.int64)
    kept = data[~np.isin(data, unliked)]
    new = liked[~np.isin(liked, kept)]
    keys = np.unique(np.concatenate([kept, new]))
    more_than_one = np.isin(new >> 32, np.flatnonzero(np.bincount(keys >> 32, minlength=1) > 1))
    latest: dict[int, int] = {}
    for key in new[more_than_one].tolist():
        latest.pop(key >> 32, None)
        latest[key >> 32] = key & 0xFFFFFFFF
    before = len(np.unique(likes.users.astype(np.int64) << 32 | likes.items))
    return Pairs(users, items, keys, len(new), before - len(kept), len(rows) - len(known), latest)


def interactions(likes: Interactions, old: Recommender, pairs: Pairs, keys: NDArray[np.int64]) -> Interactions:
    """Likes to fit to: those of the keys, users and items that have none left out; titles of the data or the model."""
    users, user_rows = np.unique(keys >> 32, return_inverse=True)
    items, item_rows = np.unique(keys & 0xFFFFFFFF, return_inverse=True)
    item_ids, model = pairs.items.take(items), old.model_
    ids, known = (likes.item_ids, likes.titles) if likes.titles is not None else (model.item_ids, model.titles)
    titles = None
    if known is not None:
        rows = ids.rows_of(item_ids.ids_of(range(len(item_ids)))).tolist()
        titles = Titles.of_strings([known.of(row) if row >= 0 else None for row in rows])
    return replace(
        likes,
        users=user_rows.astype(np.int32),
        items=item_rows.astype(np.int32),
        user_ids=pairs.users.take(users),
        item_ids=item_ids,
        titles=titles,
        rows_read=len(keys),
        rows_kept=len(keys),
        times=None,
    )


def judged(
    old: Recommender, new: Recommender, pairs: Pairs, keys: NDArray[np.int64], held: dict[int, int]
) -> NDArray[np.float64]:
    """[2, likes held out]: NDCG@20 of each, by the old and by the new model, as they would be served."""
    gains = np.zeros((2, len(held)))
    starts = np.searchsorted(keys, np.array(list(held), np.int64) << 32)
    ends = np.searchsorted(keys, (np.array(list(held), np.int64) + 1) << 32)
    for place, (user, item) in enumerate(held.items()):
        name, liked = pairs.users.id_of(user), keys[starts[place] : ends[place]] & 0xFFFFFFFF
        names = pairs.items.ids_of(liked)
        for model, recommender in enumerate((old, new)):
            listed = served_list(recommender, name, names)
            if (wanted := pairs.items.id_of(item)) in listed:
                gains[model, place] = 1.0 / math.log2(listed.index(wanted) + 2)
    return gains


def served_list(recommender: Recommender, user: Any, likes: list[Any]) -> list[Any]:
    """The best items of a user with these likes: by the posterior of training if they are its own, else folded in."""
    model = recommender.model_
    rows = set(model.item_names().rows(likes, unknown=True).tolist()) - {-1} if likes else set()
    row = int(model.user_names().rows(user, unknown=True))
    if row >= 0:
        users, local = model.users.some(np.array([row]))
        if set(users.liked.row(int(local[0])).tolist()) == rows or not model.users.knows_likes:
            return list(recommender.recommend_table([user], LIST)["item"].to_pylist())
    if not rows:
        return []
    return list(recommender.recommend_for(model.item_ids.ids_of(sorted(rows)), LIST)["item"].to_pylist())


def _may_be(text: str, ids: Vocabulary) -> bool:
    return ids.kind == "string" or integer_id(text) is not None


def _grown(ids: Vocabulary, texts: list[str]) -> tuple[Vocabulary, NDArray[np.int64], NDArray[np.int64]]:
    """(ids with those of the events among them, where the old rows are now, the row of each text)."""
    if ids.kind == "range":
        ids = Vocabulary.of_integers(np.arange(ids.first, ids.first + len(ids)))
    added: Vocabulary
    if ids.kind == "integer":
        added = Vocabulary.of_integers(np.unique(np.array([int(text) for text in texts], np.int64)))
    else:
        added = Vocabulary.of_strings(set(texts))
    merged, (kept, _) = merge_ids([ids, added]) if len(added) else (ids, (np.arange(len(ids)), None))
    return merged, np.asarray(kept, np.int64), merged.rows_of(texts)
