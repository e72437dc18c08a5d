"""`considerate.evaluate`: compare recommenders on held-out likes, in one call."""

from __future__ import annotations

import copy
import inspect
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack

import numpy as np

from considerate.data import Interactions, ReaderOptions, read_dated_likes
from considerate.data.options import ReaderKeywords
from considerate.data.side_information import SideInformation, read_side
from considerate.data.vocabulary import Vocabulary, match_rows
from considerate.errors import UsageError
from considerate.evaluation.bootstrap import RESAMPLES
from considerate.evaluation.protocol import (
    Protocol,
    Split,
    graph_of,
    is_rule,
    make_protocol,
    renumbered,
    rows_with_likes,
    with_test_users,
)
from considerate.evaluation.result import (
    BY_POPULARITY,
    FOLDED,
    POPULARITY,
    Bootstrap,
    Contestant,
    Evaluation,
    ModelResult,
    measure,
)
from considerate.evaluation.scorer import (
    FunctionScorer,
    ModelScorer,
    PlacedScorer,
    Scorer,
    as_scorer,
    likes_matrix,
)
from considerate.inference.parts.vertices import GraphParameters
from considerate.kernels.threads import LocalBackend, available_threads
from considerate.model.model import Model
from considerate.recommender import Recommender
from considerate.study.fits import most_users, some_users
from considerate.study.peers import (
    MostLiked,
    Peer,
    Stopwatch,
    as_peer,
    cornac_scorer,
    fit_peer,
    is_cornac,
    standard_peers,
)

logger = logging.getLogger("considerate")
OURS = "considerate"


def evaluate(
    models: Any,
    data: Any,
    split: Split | Any = None,
    *,
    k: int | Sequence[int] = (10, 20),
    seed: int = 0,
    resamples: int = RESAMPLES,
    considered: Any = None,
    impossible: Any = None,
    item_features: Any = None,
    user_features: Any = None,
    **reader: Unpack[ReaderKeywords],
) -> Evaluation:
    """Rank held-out likes by one recommender or several, and by popularity.

    models     one model, a list of models or of (name, model), or a mapping name -> model. Each is one of
               - an unfitted `Recommender(...)`, implicit or cornac model, or any object with fit(matrix) and recommend
                 or scores: a copy is fitted to the training part
               - a name: "considerate" with its defaults, "popularity", "EASE", "ALS", "BPR", "BPR-popularity", "walk",
                 "GF-CF", fitted likewise
               - a fitted Recommender, or the path of a model file: used as it is. Its training must not contain the
                 held-out likes, which is checked
               - another fitted object, or your own function: scores(users) or scores(users, likes) -> [users, items].
                 Users are ids (rows of a matrix), `likes` is a scipy matrix of their training likes, and columns are
                 the items of the data by ascending id
    data       likes: anything that `read_interactions` reads. If all models are fitted, likes outside their training
    split      the likes to hold out: "latest" or "random", one of each user; a share of each user's, such as 0.2; a
               date, such as "2024-05-01"; "users", one user in ten is new; "test", all of them; or the test likes
               themselves. If not given: "test" if all models are fitted Recommenders, else "latest" if there are
               times, else "random"
    k          lengths of the lists
    seed       seed of splits, fits of peers, and intervals
    resamples  resamples of the bootstrap over users
    considered, impossible, item_features, user_features   arguments of `Recommender.fit` for our models that are
               fitted here; held-out likes are removed from the considered pairs
    reader     options of `Recommender.fit`, such as where="rating >= 4" and time_column="timestamp"

    Rankings are over all items that the user did not like before. A user who is not in training is folded in from the
    user's earlier likes; the result has the number of such users. Differences are paired by user, against the first
    model.
    """
    cuts = tuple(sorted({k} if isinstance(k, int) else set(k)))
    if not cuts or cuts[0] < 1 or resamples < 1 or seed < 0:
        raise UsageError("k and resamples must be whole numbers at least 1, and seed at least 0.")
    entries = [Entry.of(name, model) for name, model in named(models)]
    fitted = [entry.model for entry in entries if isinstance(entry.model, Model)]
    all_fitted = fitted and all(isinstance(entry.model, Model | None) for entry in entries)
    options = ReaderOptions.of(reader)
    likes, test = read_dated_likes(data, options), None
    for note in likes.notes:
        logger.info("%s", note)
    if split is None and all_fitted:
        split = "test"
    elif not is_rule(split):
        split, test = None, read_dated_likes(split, options.untitled())
    if split == "test" and not all_fitted:
        raise UsageError("split='test' leaves no likes for training; give only fitted Recommenders, or another split.")
    protocol = make_protocol(likes, split, seed, fitted, test)
    side = read_side(data, options, considered, impossible).with_features(item_features, user_features)
    if side != SideInformation() and not any(isinstance(entry.model, Recommender) for entry in entries):
        raise UsageError("known pairs and features are for a Recommender that is fitted here, and there is none.")
    for known in (likes, test):
        if known is not None and side.considered is not None:
            side = replace(side, considered=side.considered.without(known))
    return Evaluator(protocol, likes, cuts, Bootstrap(seed, resamples), side).run(entries)


@dataclass(frozen=True)
class Entry:
    """A recommender to evaluate."""

    name: str
    model: Any  # a fitted Model of ours, a Peer to fit, an unfitted Recommender, or a scorer; None: popularity
    given: Any  # the argument of the caller

    @classmethod
    def of(cls, name: str | None, given: Any) -> Entry:
        if isinstance(given, str | os.PathLike):
            peer, ours = peer_named(str(given)), str(given).lower() == OURS
            if isinstance(peer, MostLiked):
                return cls(name or POPULARITY, None, given)
            if peer is not None:
                return cls(name or str(given), peer, given)
            if not ours and not os.path.exists(given):
                peers = ", ".join(peer.name for peer in standard_peers())
                raise UsageError(f"{given!s} is neither a model file nor a recommender; there are {OURS}, {peers}.")
            name = name or os.path.splitext(os.path.basename(given))[0]
            given = Recommender() if ours else Recommender.load(given)
        if isinstance(given, Recommender):
            return cls(name or OURS, given.model_ if given.__sklearn_is_fitted__() else given, given)
        if isinstance(given, GraphParameters):
            raise UsageError(
                f"{type(given).__name__} scores pairs of vertices, not lists of items; use its own evaluate(edges), or "
                "considerate evaluate-graph."
            )
        model = given if isinstance(given, Model | Peer) or is_fitted(given) else as_peer(given)
        called = name or getattr(model, "name", None) or getattr(given, "__name__", None) or type(given).__name__
        return cls(str(called), model, given)


def peer_named(name: str) -> Peer | None:
    """Find a peer by its name, in any case; BPR is BPR-uniform."""
    peers = {peer.name.lower(): peer for peer in standard_peers()}
    return peers.get(name.lower(), peers["bpr-uniform"] if name.lower() == "bpr" else None)


def named(models: Any) -> Iterator[tuple[str | None, Any]]:
    """Yield (name, model) of one model, several models, or a mapping."""
    if isinstance(models, Mapping):
        yield from models.items()
    else:
        for model in models if isinstance(models, list | tuple) else [models]:
            yield model if isinstance(model, tuple) else (None, model)


def is_fitted(thing: Any) -> bool:
    """Return whether a recommender of any library is fitted; an object without `fit` is."""
    if not hasattr(thing, "fit"):
        return True
    if hasattr(thing, "__sklearn_is_fitted__"):
        return bool(thing.__sklearn_is_fitted__())
    if hasattr(thing, "is_fitted"):  # cornac
        return bool(thing.is_fitted)
    learned = [name for name in ("item_factors", "similarity") if hasattr(thing, name)]  # implicit
    if learned:
        return any(getattr(thing, name) is not None for name in learned)
    return any(
        name.endswith("_") and not name.startswith("_") for name in getattr(thing, "__dict__", {})
    )  # scikit-learn's habit


class MappedIds:
    """Ids of a dictionary {id: row}, like those of cornac."""

    kind = "dictionary"

    def __init__(self, rows: Mapping[Any, int]) -> None:
        self.rows, self.ids = rows, list(rows)

    def __len__(self) -> int:
        return len(self.ids)

    def id_of(self, row: int) -> Any:
        return self.ids[row]

    def ids_of(self, rows: Any) -> list[Any]:
        return [self.ids[int(row)] for row in rows]

    def row_of(self, value: object) -> int:
        return self.rows.get(value, self.rows.get(str(value), -1))

    def rows_of(self, ids: Any) -> Any:
        return np.array([self.row_of(value) for value in ids], np.int64)


class Evaluator:
    """Evaluates recommenders on one split."""

    def __init__(
        self,
        protocol: Protocol,
        likes: Interactions,
        k: tuple[int, ...],
        bootstrap: Bootstrap,
        side: SideInformation | None = None,
    ) -> None:
        self.protocol, self.likes, self.k, self.bootstrap = protocol, likes, k, bootstrap
        self.notes: list[str] = []
        self.side = {} if side is None else vars(side)  # further arguments of our fits
        self.item_count = len(protocol.item_ids)
        most = most_users(self.item_count)
        if len(np.unique(protocol.held.users)) > most:
            self.protocol = replace(protocol, held=some_users(protocol.held, bootstrap.seed, most))
            self.notes.append(f"{most:,} users are tested, drawn by the seed")
        self.people = np.unique(self.protocol.held.users)
        self.train = None if protocol.train is None else graph_of(protocol.train)

    def run(self, entries: Sequence[Entry]) -> Evaluation:
        names = [entry.name for entry in entries]
        entries = [
            replace(entry, name=name if names[:at].count(name) == 0 else f"{name} {names[:at].count(name) + 1}")
            for at, (name, entry) in enumerate(zip(names, entries))
        ]
        for entry in entries:
            if isinstance(entry.model, Model) and not entry.model.users.knows_likes:
                self.notes.append(f"{entry.name} has no likes in its file: it may have been fitted to what is held out")
        if POPULARITY not in names:
            entries = [*entries, Entry(POPULARITY, None, None)]
        self.item_degree = self.degrees([entry.model for entry in entries if isinstance(entry.model, Model)])
        results: list[ModelResult] = []
        with LocalBackend() as backend:
            for entry in entries:
                contestant = self.ready(entry)
                first = results[0] if results else None
                more = (self.protocol, self.item_degree, self.k, self.bootstrap, backend.map, first)
                results.append(measure(contestant, *more))
        protocol = self.protocol
        return Evaluation(
            tuple(results),
            self.likes.source,
            protocol.description,
            protocol.user_ids.ids_of(self.people),
            len(protocol.held.users),
            self.item_count,
            protocol.left_out,
            self.k,
            tuple(self.notes),
        )

    def degrees(self, models: Sequence[Model]) -> Any:
        """Likes of each item: in the training part, or in the first fitted model."""
        ids, degree = (
            (models[0].item_ids, models[0].item_degree)
            if self.protocol.train is None or self.train is None
            else (self.protocol.train.item_ids, self.train.by_item.degrees)
        )
        rows = match_rows(self.protocol.item_ids, ids)
        return np.where(rows >= 0, degree[rows], 0)

    def ready(self, entry: Entry) -> Contestant:
        """Make a contestant, and fit it if it is not fitted."""
        model = entry.model
        if model is None:
            return Contestant(entry.name, self.popularity(np.arange(self.item_count)), None)
        if isinstance(model, Recommender):
            model, watch = copy.deepcopy(model), Stopwatch()
            with watch:
                model.fit(self.protocol.train, **self.side)
            return self.ours(entry.name, model.model_, model, watch.seconds)
        if isinstance(model, Model):
            return self.ours(entry.name, model, entry.given, None)
        assert self.protocol.train is not None
        assert self.train is not None
        if isinstance(model, Peer):
            return self.peer(entry.name, model)
        return self.fitted_elsewhere(entry.name, model)

    def ours(self, name: str, model: Model, given: Any, seconds: float | None) -> Contestant:
        """Make a contestant of a model of ours, for the users of the test."""
        items = match_rows(model.item_ids, self.protocol.item_ids)
        rows, inner = np.arange(len(self.protocol.user_ids)), ModelScorer(with_test_users(model, self.protocol))
        new = int((rows_with_likes(model, self.protocol.user_ids)[self.people] < 0).sum())
        return Contestant(name, PlacedScorer(inner, rows, items, self.item_count, None), given, seconds, new)

    def peer(self, name: str, peer: Peer) -> Contestant:
        """Fit a peer to the training part."""
        assert self.protocol.train is not None
        assert self.train is not None
        why = peer.unavailable(self.train)
        if why is not None:
            raise UsageError(f"{name} cannot be evaluated: {why}.")
        threads = 1 if peer.one_thread else available_threads()
        fitted = fit_peer(peer, self.train, peer.usual, self.bootstrap.seed, threads)
        ids = self.protocol.train.user_ids, self.protocol.train.item_ids
        return self.placed(name, fitted.scorer, ids, fitted.scorer, fitted.seconds)

    def fitted_elsewhere(self, name: str, model: Any) -> Contestant:
        """Make a contestant of a recommender that its owner fitted, by the rows of the data or by ids."""
        data, count = self.likes, len(self.likes.item_ids)
        if is_cornac(model):
            ids = MappedIds(model.uid_map), MappedIds(model.iid_map)
            return self.placed(name, cornac_scorer(model, name), ids, model, None)
        likes = renumbered(self.protocol.held.seen, match_rows(self.protocol.item_ids, data.item_ids))
        everyone = self.protocol.user_ids  # users of a given test, too
        if callable(model) and not isinstance(model, Scorer):
            scorer = FunctionScorer(by_id(model, everyone, likes_matrix(likes, count)), name)
            return self.placed(name, scorer, (everyone, data.item_ids), model, None)
        own = as_scorer(model, count, name, likes.take(match_rows(data.user_ids, everyone)))
        return self.placed(name, own, (data.user_ids, data.item_ids), model, None)

    def placed(self, name: str, scorer: Any, ids: tuple[Any, Any], model: Any, seconds: float | None) -> Contestant:
        """Make a contestant of a scorer with its own ids; fold in unknown users, or score them by popularity."""
        users, items = match_rows(self.protocol.user_ids, ids[0]), match_rows(ids[1], self.protocol.item_ids)
        unknown = np.flatnonzero(users < 0)
        new, how, others = int((users[self.people] < 0).sum()), FOLDED, None
        if new:
            earlier = renumbered(self.protocol.held.seen.take(unknown), match_rows(self.protocol.item_ids, ids[1]))
            fold = getattr(scorer, "for_likes", None)
            others = None if fold is None else fold(likes_matrix(earlier, len(ids[1])))
            if others is None:
                how, others = BY_POPULARITY, self.popularity(items)
        return Contestant(name, PlacedScorer(scorer, users, items, self.item_count, others), model, seconds, new, how)

    def popularity(self, items: Any) -> Scorer:
        """Score items by their number of likes; 0 for items outside the test."""
        degree = np.where(items >= 0, self.item_degree[items], 0).astype(np.float64)
        return FunctionScorer(lambda users: np.tile(degree, (len(users), 1)), POPULARITY)


def by_id(function: Callable[..., Any], user_ids: Vocabulary, likes: Any) -> Callable[[Any], Any]:
    """Turn a function of ids, or of ids and likes, into a function of rows."""
    try:
        names = inspect.signature(function).parameters.values()
        both = sum(name.default is name.empty and name.kind <= name.POSITIONAL_OR_KEYWORD for name in names) > 1
    except ValueError:  # not written in Python
        both = False

    def scores(rows: Any) -> Any:
        ids = np.array(user_ids.ids_of(rows))
        return function(ids, likes[rows]) if both else function(ids)

    return scores
