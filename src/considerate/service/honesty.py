"""The honesty of p(like), measured by events after training, or by the judged pairs of the recalibration.

A pair is judged if the user liked the item, or considered and did not take it, after the last event that the model has
learned. Its p(like) comes from the trained posterior. For a user outside the model it comes from the likes before the
pair's first event, folded in as in the service. So no judgement changes its own p(like). Pairs have equal weights.
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

MOST_EVENTS = 200_000  # latest events that are read
MOST_PAIRS = 20_000  # latest judged pairs that count
MOST_FOLDED = 2_000  # pairs of users outside the model among them
MOST_HISTORY = 1_000  # events of such a user; users with more are left out
ENOUGH = 200  # judged pairs; with fewer, the numbers stored in the model are better
FRESH = 10.0  # seconds that an answer is kept


@dataclass
class Honesty:
    """Cache of the last answer, for some seconds and until the events or the model change."""

    _key: tuple[object, ...] = ()
    _made: float = 0.0
    _answer: ReliabilityAnswer | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, served: ServedModel, events: EventStore | None) -> ReliabilityAnswer:
        """Compute the reliability of a model with the events since its training, or return it from the cache."""
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
    """Compute the reliability from events if there are enough, else from the model file."""
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
    """Collect (p(like) of judged pairs, whether each was liked).

    Both are empty for a graph, and for a model without likes, which could have been trained on any pair.
    """
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
    """Return for each pair (its user's number of likes in training, whether the pair was one of them)."""
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
    """Compute p(like) of pairs from their users' earlier events; NaN without earlier likes, or with too many events."""
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
