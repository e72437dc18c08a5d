"""Is p(like) honest? By what users did after the model was trained, or by what was measured when it was recalibrated.

A pair is judged where the user liked an item, or was shown it and did not take it, after the last event that the model
was trained on. What the model said of it is p(like) by the posterior of training; of a user that the model does not
have, by their likes before the pair's first event, folded in as the service does. So no judgement is in its own p.
Every pair weighs the same: the share is that of likes among what was considered, as far as events say what was.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency
from considerate.evaluation.calibration import reliability_bins
from considerate.evaluation.split import is_among, pair_keys
from considerate.model.covariates import pair_covariates
from considerate.model.predict import logit_moments
from considerate.model.reliability import LikeReliability
from considerate.service.events import EventStore, JudgedPair
from considerate.service.schemas import JudgedBin, ReliabilityAnswer
from considerate.service.scoring import Taste, taste_after
from considerate.service.state import ServedModel

MOST_EVENTS = 200_000  # that are looked at, the latest
MOST_PAIRS = 20_000  # that are judged, the latest
MOST_FOLDED = 2_000  # of them, of users that the model does not have
MOST_HISTORY = 1_000  # events of such a user; those who have more are left out
ENOUGH = 200  # judged pairs; with fewer, what is stored in the model tells more
FRESH = 10.0  # seconds before events are looked at again


@dataclass
class Honesty:
    """The last answer. It is made anew where there are other events or another model, and not every moment."""

    _key: tuple[object, ...] = ()
    _made: float = 0.0
    _answer: ReliabilityAnswer | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, served: ServedModel, events: EventStore | None) -> ReliabilityAnswer:
        """Of a model and the events since it was trained."""
        with self._lock:
            old = self._answer
            if old is not None and old.model == served.digest and time.monotonic() - self._made < FRESH:
                return old
            key = (served.digest, None if events is None else events.mark())
            if old is None or self._key != key:
                self._answer = old = reliability_answer(served, events)
            self._key, self._made = key, time.monotonic()
            return old


def reliability_answer(served: ServedModel, events: EventStore | None) -> ReliabilityAnswer:
    """By events where they are enough, and by what the model has stored where not."""
    stored = served.model.reliability
    p, liked = np.empty(0), np.empty(0, bool)
    if events is not None:
        p, liked = said_and_seen(served, events)
    if 0 < liked.sum() < len(liked) and (len(liked) >= ENOUGH or stored is None):
        return _answer(served, "events", reliability_bins(p, liked, weights=None))
    if stored is not None:
        return _answer(served, "model", stored)
    return ReliabilityAnswer(served.digest, None, None, len(liked), None, [])


def _answer(served: ServedModel, source: str, found: LikeReliability) -> ReliabilityAnswer:
    bins = [JudgedBin(*bin) for bin in found.bins]
    return ReliabilityAnswer(served.digest, source, found.weights, found.pairs, found.error, bins)  # type: ignore[arg-type]


def said_and_seen(served: ServedModel, events: EventStore) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """(p(like) of judged pairs, whether each was liked). None of a model without likes, which may have been trained on
    any of them, or of a graph, which takes no events."""
    model = served.model
    if not model.users.knows_likes or model.one_kind:
        return np.empty(0), np.empty(0, bool)
    pairs = events.judged(model.events.up_to(events.identity), MOST_PAIRS, MOST_EVENTS)
    if not pairs:
        return np.empty(0), np.empty(0, bool)
    users = served.users.rows(np.array([pair.user for pair in pairs], object), unknown=True)
    items = served.items.rows(np.array([pair.item for pair in pairs], object), unknown=True)
    degree, is_like = _trained(served, users, items)
    trained, new = (items >= 0) & (degree > 0) & ~is_like, np.zeros(len(pairs), bool)
    new[np.flatnonzero((items >= 0) & (degree == 0))[:MOST_FOLDED]] = True
    p = np.full(len(pairs), np.nan)
    p[trained] = model.pair_probabilities(users[trained], items[trained])
    p[new] = _folded_in(served, events, [pairs[place] for place in np.flatnonzero(new).tolist()], items[new])
    told = ~np.isnan(p)
    return p[told], np.array([pair.liked for pair in pairs])[told]


def _trained(
    served: ServedModel, users: NDArray[np.int64], items: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Of each pair the likes of its user in training, 0 where the model does not have them, and whether it was one."""
    people, person = np.unique(users, return_inverse=True)
    some, places = served.model.users.some(people[people >= 0])
    count, liked = served.model.item_count, some.liked.take(places)
    strangers = len(people) - len(places)  # one, if there is -1
    degree = np.concatenate([np.zeros(strangers, np.int64), some.degree[places]])
    likes = pair_keys(liked.edge_rows + strangers, liked.indices, count)
    return degree[person], is_among(pair_keys(person, items, count), likes)


def _folded_in(
    served: ServedModel, events: EventStore, pairs: Sequence[JudgedPair], items: NDArray[np.int64]
) -> NDArray[np.float64]:
    """p(like) of pairs by what the user had done before; NaN where that is no like, or more than is worth the time."""
    model, tastes = served.model, list[Taste]()
    histories = events.of_users({pair.user for pair in pairs})
    histories = {user: history for user, history in histories.items() if len(history) <= MOST_HISTORY}
    rows = {
        user: served.items.rows(np.array([item for _, item, _ in history], object), unknown=True).tolist()
        for user, history in histories.items()
    }
    for pair in pairs:
        earlier = [event for event in histories.get(pair.user, []) if event[0] < pair.sequence]
        tastes.append(taste_after(set(), rows.get(pair.user, []), [kind for _, _, kind in earlier]))
    p = np.full(len(pairs), np.nan)
    for are_shown in (False, True):
        places = [place for place, taste in enumerate(tastes) if taste.likes and bool(taste.considered) == are_shown]
        if places:
            some = [tastes[place] for place in places]
            shown = Adjacency.of_rows([_rows(taste.considered) for taste in some]) if are_shown else None
            likes = Adjacency.of_rows([_rows(taste.likes) for taste in some])
            side = model.fold_in.users(likes, considered=shown)
            mean, variance = logit_moments(side, model.items, np.arange(len(some)), items[places])
            nobody = np.full(len(some), -1)
            covariates = pair_covariates(model, likes, nobody, np.arange(len(some)), items[places])
            p[places] = model.liking(mean, model.variance_scale * variance, covariates).p_like
    return p


def _rows(items: Iterable[int]) -> NDArray[np.int32]:
    return np.array(sorted(items), np.int32)
