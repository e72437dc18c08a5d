"""Refits: a new model from the likes and the events, which replaces the old one unless it is worse.

The likes come from the data, or from the model itself, and the events change them. A refit fits to them from the start,
or updates the model with the changes. It holds out the latest new like of some users, and both models rank it, with the
user's other likes as in the service. Later the service folds this like in like any event.
"""

from __future__ import annotations

import logging
import math
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data import Interactions, ReaderOptions, Titles
from considerate.data.features import FeatureTable
from considerate.data.known_tables import PairTable, StoredLimits, read_pairs
from considerate.data.vocabulary import Ids, Vocabulary, match_rows
from considerate.errors import ConsiderateError, DataError, UsageError
from considerate.evaluation.recalibration import JudgedPairs, recalibrate
from considerate.fitting.update import UpdateOptions, updated
from considerate.model.file import load_model, save_model, save_sharded
from considerate.model.model import LearnedEvents, Model
from considerate.model.removal import without_users
from considerate.model.shards import ShardedUsers, replace_shards
from considerate.model.users import Users
from considerate.recommender import Recommender
from considerate.service.event_likes import Keys, LikesAfter, LikesBefore, apply_events
from considerate.service.events import EventLog, EventStore
from considerate.service.honesty import ENOUGH, MOST_EVENTS, MOST_PAIRS
from considerate.service.scoring import MOST_CONSIDERED
from considerate.service.state import file_signature
from considerate.storage.filesystems import scratch_folder

logger = logging.getLogger("considerate.service")
MOST_JUDGED = 2_000  # users whose latest like is held out
LIST = 20  # places of the lists that are judged
SURE = 0.95  # confidence, one-sided, at which the new model counts as worse
DAY = 86_400.0  # seconds
MOST_DAYS = 90.0  # of drift in one update; after a longer time a fit is better
KEPT = 0.9  # share of the likes among the old model's first items that an update must keep


class RefitDiscarded(ConsiderateError):
    """Raised if the new model must not be used: a user was erased, or another model was written, during the refit."""


@dataclass(frozen=True)
class RefitResult:
    """Outcome of a refit."""

    sequence: int  # number of the last event
    likes: int  # of the new model
    added: int  # pairs that events added, without held-out pairs
    removed: int  # pairs that events or erasures removed
    ignored: int  # events with text ids, if the ids of the data are integers
    judged: int  # held-out likes
    old: float | None  # mean NDCG@20 of the held-out likes by the old model; None: there were none
    new: float | None
    swapped: bool  # whether the new model replaced the old one


@dataclass(frozen=True)
class Refit:
    """A refit of a model with the events of a service."""

    model: str  # the path of its file, or of its folder of shards
    store: EventStore
    how: str = "fit"  # to all likes from the start, or "update" with the changes
    data: Any = None  # likes before the events; None: the likes in the model
    reader: ReaderOptions = field(default_factory=ReaderOptions)
    considered: bool | None = None  # whether events of the kind `considered` go into a fit; None: as in the last fit

    def __post_init__(self) -> None:
        if "://" in self.model:
            raise UsageError(f"{self.model}: a refit replaces a model on a disk of this machine; give its path.")

    def has_news(self) -> bool:
        """Return whether there is an event or an erasure that the model has not learned."""
        learned = load_model(self.model).events
        known = (learned.sequence, learned.erasures) if learned.log == self.store.identity else (0, 0)
        return self.store.mark() != known

    def run(self) -> RefitResult:
        """Refit, compare both models, and replace the old one unless the new one is worse."""
        signature, old, log = file_signature(self.model), self.check(), self.store.everything()
        model = with_own_ids(old.model_)
        likes = LikesBefore.of_model(model) if self.data is None else self._read(model)
        after = apply_events(likes, log, self.store)
        trained = after.of(model.users.whole().liked, model.user_ids, model.item_ids)
        held = after.held_out(trained, MOST_JUDGED)
        kept = np.setdiff1d(after.keys, held, assume_unique=True)
        learned = self._learned(model, log)
        if self.how == "update":
            days = days_since(log, model.events.up_to(self.store.identity), time.time())
            new = update(model, after, kept, trained, days)
        else:
            new = fit_again(old, model, likes, after.weighted(kept), self._considered(after, learned.considered))
        new = with_recalibration(new, model, self.store)
        path = os.path.realpath(self.model)
        with scratch_folder(os.path.dirname(path)) as folder:
            new_path = os.path.join(folder, "model")
            save(replace(new, events=learned), new_path, old.model_.users)
            saved = Recommender.load(new_path)
            gains = judge(old, saved, after, kept, held)
            swapped = not is_worse(gains) and (
                self.how == "fit" or keeps_likes(old, saved, after, np.intersect1d(trained, kept))
            )
            if swapped:
                swap(new_path, path, lambda act: self._publish(act, signature, log, after.users))
        means = [float(gain.mean()) if len(gain) else None for gain in gains]
        return RefitResult(
            sequence=learned.sequence,
            likes=new.users.edges,
            added=len(np.setdiff1d(kept, after.before, assume_unique=True)),
            removed=len(np.setdiff1d(after.before, after.keys, assume_unique=True)),
            ignored=after.ignored,
            judged=len(held),
            old=means[0],
            new=means[1],
            swapped=swapped,
        )

    def _read(self, model: Model) -> LikesBefore:
        """Read the likes of the data; raise UsageError if none of the items is in the model."""
        likes = LikesBefore.of_data(self.data, self.reader)
        if not (match_rows(likes.item_ids, model.item_ids) >= 0).any():
            found, known = (ids.id_of(0) for ids in (likes.item_ids, model.item_ids))
            raise UsageError(
                f"DATA has no item of the model ({found!r} and others, where the model has {known!r} and others); give "
                "the data that it was fitted to, with the same options for reading, or use fit."
            )
        return likes

    def _publish(self, act: Callable[[], None], signature: object, log: EventLog, users: Ids) -> None:
        """Call `act`, which puts the new model into its place; raise RefitDiscarded if it must not be used."""
        if file_signature(self.model) != signature:
            raise RefitDiscarded("another model was written during the refit, and is kept; run the refit again.")
        if not self.store.unless_erased(log, users, act):
            raise RefitDiscarded("a user was erased during the refit, so its model is discarded; run the refit again.")

    def check(self) -> Recommender:
        """Load the old model; raise UsageError if this refit is impossible with it."""
        old = Recommender.load(self.model)
        model = old.model_
        model.check_two_kinds()
        if self.data is None and not model.users.knows_likes:
            raise UsageError(f"{self.model}: was saved without likes; give the DATA that it was fitted to.")
        if self.how == "update":
            if self.data is not None or self.considered:
                raise UsageError(
                    "an update learns only from likes of events, and not from DATA or considered pairs; leave these "
                    "out, or refit with --how fit."
                )
            return old
        if model.user_features is not None:
            raise UsageError("the features of users are not in the model file; refit with --how update, or use fit.")
        if model.plan.observed and self.reader.considered_where is None:
            raise UsageError(
                f"the model was fitted with considered_are={model.plan.considered_are!r}, and its file does not have "
                "the considered pairs; give DATA with --considered-where."
            )
        return old

    def _learned(self, model: Model, log: EventLog) -> LearnedEvents:
        """Describe the events that the new model has learned."""
        considered = model.events.considered if self.considered is None else self.considered
        sequence, erasures = log.mark
        return LearnedEvents(sequence, self.store.identity, considered and self.how == "fit", erasures)

    def _considered(self, after: LikesAfter, of_events: bool) -> PairTable | None:
        """Collect the pairs that were considered and not liked, from the data and, if wanted, from events."""
        keys = after.considered if of_events else after.considered[:0]
        if self.reader.considered_where is not None:
            table = read_pairs(self.data, self.reader, self.reader.considered_where)
            pairs = after.of(table.by_left(), table.left_ids, table.right_ids)
            keys = np.concatenate([keys, pairs[~np.isin(pairs >> 32, after.erased)]])
        keys = np.setdiff1d(keys, after.keys)
        return after.pair_table(keys) if len(keys) else None


# --- The new model ---


def with_own_ids(model: Model) -> Model:
    """Give the model integer ids in place of row numbers, because rows change when users leave or join."""

    def own(ids: Vocabulary) -> Vocabulary:
        return ids.take(np.arange(len(ids))) if ids.kind == "range" else ids

    users = model.users.whole()
    return replace(model, users=replace(users, ids=own(users.ids)), item_ids=own(model.item_ids))


def fit_again(
    old: Recommender, model: Model, before: LikesBefore, likes: Interactions, considered: PairTable | None
) -> Model:
    """Fit to all likes with the settings, the impossible pairs and the item features of the old model."""
    users, features, limits = model.users.whole(), model.item_features, model.limits
    fitted = Recommender(**old.get_params()).fit(
        likes,
        considered=considered,
        impossible=None if limits is None else StoredLimits(limits, users.ids, model.item_ids),
        item_features=None if features is None else FeatureTable(features.features, model.item_ids, "the model"),
    )
    new = fitted.model_
    titles = find_titles(new.item_ids, [(before.item_ids, before.titles), (model.item_ids, model.titles)])
    return replace(new, titles=titles)


def with_recalibration(new: Model, old: Model, store: EventStore) -> Model:
    """Recalibrate the new model if the old one was: with the pairs that users judged since the old one was trained. If
    they are too few or cannot be fitted, keep the old recalibration, marked stale."""
    if old.recalibration.changes_nothing:
        return new
    stale = replace(
        new,
        recalibration=replace(old.recalibration, stale=True),
        structure=old.structure,
        reliability=old.reliability,
    )
    pairs = store.judged(old.events.up_to(store.identity), MOST_PAIRS, MOST_EVENTS)
    if len(pairs) < ENOUGH:
        return stale
    users = old.user_names().rows(np.array([pair.user for pair in pairs], object), unknown=True)
    items = old.item_names().rows(np.array([pair.item for pair in pairs], object), unknown=True)
    known, liked = (users >= 0) & (items >= 0), np.array([pair.liked for pair in pairs])
    judged = JudgedPairs.of(old, users[known], items[known], liked[known])
    if len(judged) < ENOUGH:
        return stale
    try:
        return replace(new, **vars(recalibrate(judged, old.recalibration.equal_classes, old.plan.seed)))
    except DataError:  # for example all pairs are liked, or more of those with a low p(like)
        return stale


def find_titles(ids: Vocabulary, known: list[tuple[Vocabulary, Titles | None]]) -> Titles | None:
    """Find the titles of items in several vocabularies; the first with a title counts."""
    found: list[str | None] = [None] * len(ids)
    for own, titles in known:
        if titles is not None:
            rows = match_rows(ids, own).tolist()
            found = [title or (titles.of(row) if row >= 0 else None) for title, row in zip(found, rows)]
    return Titles.of_strings(found) if any(found) else None


def update(model: Model, after: LikesAfter, kept: Keys, trained: Keys, days: float) -> Model:
    """Update the model with new and removed likes, and remove users who were erased and did not come back."""
    erased = after.users.take(after.erased[after.degrees[after.erased] == 0])
    gone = match_rows(erased, model.user_ids)
    model = without_users(model, gone[gone >= 0]) if (gone >= 0).any() else model
    new, removed = (np.setdiff1d(*keys, assume_unique=True) for keys in ((kept, trained), (trained, after.keys)))
    likes, others = (after.interactions(keys) if len(keys) else None for keys in (new, removed))
    return updated(model, likes, others, UpdateOptions(days=days), None)


def days_since(log: EventLog, sequence: int, now: float) -> float:
    """Days from the last learned event, or else the first event, to the last event; at most MOST_DAYS.

    A time in the future comes from a wrong clock, and counts as now.
    """
    if not log.rows:
        return 0.0
    times = [min(row[4], now) for row in log.rows]
    learned = [time for time, row in zip(times, log.rows) if row[0] <= sequence]
    days = (times[-1] - (learned[-1] if learned else times[0])) / DAY
    if days > MOST_DAYS:
        logger.warning("%d days between events count as %d; fit again after such a long time", days, MOST_DAYS)
    return min(max(days, 0.0), MOST_DAYS)


# --- Comparison with the old model ---


def judge(old: Recommender, new: Recommender, after: LikesAfter, kept: Keys, held: Keys) -> NDArray[np.float64]:
    """Compute the NDCG@20 of each held-out like by the old and the new model [2, likes], as they would be served."""
    gains = np.zeros((2, len(held)))
    shown = after.considered[np.argsort(after.considered >> 32, kind="stable")]
    for place, key in enumerate(held.tolist()):
        user = key >> 32
        liked, passed = (
            after.names(keys[slice(*np.searchsorted(keys >> 32, [user, user + 1]))]) for keys in (kept, shown)
        )
        name, wanted = after.users.id_of(user), after.names(held[place : place + 1])[0]
        for model, recommender in enumerate((old, new)):
            listed = served_list(recommender, name, liked, passed[-MOST_CONSIDERED:])
            if wanted in listed:
                gains[model, place] = 1.0 / math.log2(listed.index(wanted) + 2)
    return gains


def keeps_likes(old: Recommender, new: Recommender, after: LikesAfter, common: Keys) -> bool:
    """Return whether an update still ranks the likes that both models have. An update learns from few likes, and must
    not forget the others, which the held-out likes would not show."""
    users = np.unique(common >> 32)
    users = users[np.unique(np.linspace(0, len(users) - 1, MOST_JUDGED).astype(np.int64))] if len(users) else users
    hits = [likes_among_first(model, after, users, common) for model in (old, new)]
    return hits[1] >= KEPT * hits[0]


def likes_among_first(recommender: Recommender, after: LikesAfter, users: NDArray[np.int64], likes: Keys) -> int:
    """Count the likes that are among their users' first items, by liking alone."""
    if not len(users):
        return 0
    model = recommender.model_
    rows = model.user_names().rows(np.array(after.users.ids_of(users), object))
    lists = recommender.recommend(
        rows, N=LIST, filter_already_liked_items=False, popularity=0.0, lift=0.0, by="row"
    ).ids
    items = match_rows(model.item_ids, after.items)[lists]
    keys = users[:, None] << 32 | items
    return int(np.isin(keys[(lists >= 0) & (items >= 0)], likes).sum())


def served_list(recommender: Recommender, user: Any, likes: list[Any], considered: list[Any]) -> list[Any]:
    """List the best items of a user: by the trained posterior if it has learned these likes, else folded in."""
    model = recommender.model_
    liked, passed = (
        {row for row in model.item_ids.rows_of(items).tolist() if row >= 0} for items in (likes, considered)
    )
    row = int(model.user_names().rows(user, unknown=True))
    if row >= 0:
        users, local = model.users.some(np.array([row]))
        same = set(users.liked.row(int(local[0])).tolist()) == liked and (not passed or model.events.considered)
        if same or not model.users.knows_likes:
            return list(recommender.recommend_table([user], LIST)["item"].to_pylist())
    if not liked:
        return []
    names, others = (model.item_ids.ids_of(sorted(rows)) for rows in (liked, passed))
    return list(recommender.recommend_for(names, LIST, considered=others)["item"].to_pylist())


def is_worse(gains: NDArray[np.float64]) -> bool:
    """Return whether the new gains are lower by more than chance explains (Student's t); one like is not enough."""
    from scipy.special import stdtrit

    differences = gains[1] - gains[0]
    if len(differences) < 2:
        return False
    error = float(differences.std(ddof=1)) / math.sqrt(len(differences))
    return float(differences.mean()) + float(stdtrit(len(differences) - 1, SURE)) * error < 0.0


# --- Replacement ---


def save(model: Model, path: str, before: Users) -> None:
    """Save a model like the one with the users `before`: in shards or in one file, with likes or without."""
    if isinstance(before, ShardedUsers):
        save_sharded(model, path, min(len(before.first) - 1, model.user_count), likes=before.knows_likes)
    else:
        save_model(model, path, likes=before.knows_likes)


def swap(new: str, path: str, publish: Callable[[Callable[[], None]], None]) -> None:
    """Replace the model at `path` by the one at `new` in one atomic step, which `publish` calls or refuses."""
    if os.path.isdir(path):
        replace_shards(new, path, publish)
    else:
        shutil.copymode(path, new)
        publish(lambda: os.replace(new, path))
