"""Likes of the data or of a model, changed by the events of a service, without the likes of erased users."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data import Interactions, ReaderOptions, Titles, read_likes
from considerate.data.graph import Adjacency, Graph
from considerate.data.known_tables import PairTable
from considerate.data.vocabulary import Ids, Vocabulary, integer_id, match_rows, merge_ids
from considerate.data.weights import Amounts, Weighting, whole_amounts
from considerate.model.model import Model
from considerate.service.events import CONSIDERED, LIKE, UNLIKE, EventLog, EventStore

Keys = NDArray[np.int64]  # of pairs: row of the user << 32 | row of the item
ITEM = (1 << 32) - 1


@dataclass(frozen=True)
class LikesBefore:
    """Likes before the events."""

    liked: Adjacency
    user_ids: Vocabulary
    item_ids: Vocabulary
    titles: Titles | None

    @classmethod
    def of_data(cls, data: Any, reader: ReaderOptions) -> LikesBefore:
        likes = read_likes(data, reader)
        sizes = len(likes.user_ids), len(likes.item_ids)
        graph = Graph.from_pairs(likes.users, likes.items, *sizes, amounts=likes.amounts)
        return cls(graph.by_user, likes.user_ids, likes.item_ids, likes.titles)

    @classmethod
    def of_model(cls, model: Model) -> LikesBefore:
        users = model.users.whole()
        return cls(users.liked, users.ids, model.item_ids, model.titles)


@dataclass(frozen=True)
class LikesAfter:
    """Likes after the events, by rows of vocabularies with the ids of data and events."""

    users: Vocabulary
    items: Vocabulary
    before: Keys  # ascending; with those of erased users
    keys: Keys  # ascending
    weights: NDArray[np.float32] | None  # of the keys; a like of an event has the mean weight 1
    new: Keys  # likes of events that were no likes before, in the order of time
    considered: Keys  # pairs of events that were considered and are not liked, latest last
    erased: NDArray[np.int64]  # rows of erased users
    ignored: int  # events with text ids, if the ids of the data are integers

    @cached_property
    def degrees(self) -> NDArray[np.int64]:
        """Number of likes of each user."""
        return np.bincount(self.keys >> 32, minlength=len(self.users))

    def of(self, liked: Adjacency, user_ids: Ids, item_ids: Ids) -> Keys:
        """Return the keys of other likes, ascending, without unknown users and items."""
        users, items = match_rows(user_ids, self.users), match_rows(item_ids, self.items)
        rows, columns = users[liked.edge_rows], items[liked.indices]
        return np.sort((rows << 32 | columns)[(rows >= 0) & (columns >= 0)])

    def held_out(self, seen: Keys, most: int) -> Keys:
        """Hold out the latest new like of users with other likes, without `seen` keys; of at most `most` users."""
        new = self.new[(self.degrees[self.new >> 32] > 1) & ~np.isin(self.new, seen)]
        latest: Keys = new[_last_of(new >> 32)]
        return latest[-most:]

    def names(self, keys: Keys) -> list[Any]:
        """Return the item ids of some pairs."""
        return self.items.ids_of(keys & ITEM)

    def pair_table(self, keys: Keys) -> PairTable:
        """Make the table of considered pairs of a fit."""
        return PairTable(
            (keys >> 32).astype(np.int32), (keys & ITEM).astype(np.int32), self.users, self.items, "the events"
        )

    def interactions(self, keys: Keys) -> Interactions:
        """Make training likes of some keys, without users and items that have none of them."""
        users, user_rows = np.unique(keys >> 32, return_inverse=True)
        items, item_rows = np.unique(keys & ITEM, return_inverse=True)
        ids, count = (self.users.take(users), self.items.take(items)), len(keys)
        rows = user_rows.astype(np.int32), item_rows.astype(np.int32)
        return Interactions(*rows, *ids, None, "the events", count, count, ())

    def weighted(self, keys: Keys) -> Interactions:
        """Make training likes of some keys, with their weights if there are any."""
        likes = self.interactions(keys)
        if self.weights is None:
            return likes
        weights = self.weights[np.searchsorted(self.keys, keys)].astype(np.float64)
        return replace(likes, amounts=Amounts(whole_amounts(weights), Weighting("raw", "none")))


def apply_events(likes: LikesBefore, log: EventLog, store: EventStore) -> LikesAfter:
    """Apply the events to the likes. The last event of a pair decides whether it is liked."""
    changes = [row for row in log.rows if row[3] in (LIKE, UNLIKE)]
    rows = [row for row in changes if _may_be(row[1], likes.user_ids) and _may_be(row[2], likes.item_ids)]
    users, user_rows, fans = _grown(likes.user_ids, [row[1] for row in rows])
    items, item_rows, chosen = _grown(likes.item_ids, [row[2] for row in rows])
    before = user_rows[likes.liked.edge_rows] << 32 | item_rows[likes.liked.indices]
    known = range(len(users)) if log.erased else ()
    erased = np.array([row for row in known if store.is_among(log.erased, users.id_of(row))], np.int64)
    events, kinds = fans << 32 | chosen, np.array([row[3] for row in rows])
    last = _last_of(events)
    liked, unliked = (events[last[kinds[last] == kind]] for kind in (LIKE, UNLIKE))
    kept = ~np.isin(before, unliked) & ~np.isin(before >> 32, erased)
    new = liked[~np.isin(liked, before[kept])]
    keys = np.concatenate([before[kept], new])
    order = np.argsort(keys)
    weights = likes.liked.weights
    if weights is not None:
        weights = np.concatenate([weights[kept], np.ones(len(new), np.float32)])[order]
    shown = [row for row in log.rows if row[3] == CONSIDERED]
    passed = users.rows_of([row[1] for row in shown]) << 32 | items.rows_of([row[2] for row in shown])
    passed = passed[_last_of(passed)]
    passed = passed[(passed >= 0) & ~np.isin(passed, keys)]  # a row that is -1 makes a key below 0
    ignored = len(changes) - len(rows)
    return LikesAfter(users, items, np.sort(before), keys[order], weights, new, passed, erased, ignored)


def _last_of(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Indices of the last occurrence of each distinct value, ascending."""
    _, places = np.unique(values[::-1], return_index=True)
    return np.sort(len(values) - 1 - places)


def _may_be(text: str, ids: Vocabulary) -> bool:
    return ids.kind == "string" or integer_id(text) is not None


def _grown(ids: Vocabulary, texts: list[str]) -> tuple[Vocabulary, NDArray[np.int64], NDArray[np.int64]]:
    """Add the ids of events; return (all ids, new rows of the old ids, row of each text)."""
    if ids.kind == "range":
        ids = ids.take(np.arange(len(ids)))
    added: Vocabulary
    if ids.kind == "integer":
        added = Vocabulary.of_integers(np.unique(np.array([int(text) for text in texts], np.int64)))
    else:
        added = Vocabulary.of_strings(set(texts))
    merged, (kept, _) = merge_ids([ids, added]) if len(added) else (ids, (np.arange(len(ids)), None))
    return merged, np.asarray(kept, np.int64), merged.rows_of(texts)
