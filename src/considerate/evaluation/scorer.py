"""Scorers: anything that gives each user a score for every item, the higher the better."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency
from considerate.errors import DataError, UsageError
from considerate.inference.posterior import Side
from considerate.model.considered import logit_offset
from considerate.model.covariates import pair_covariates
from considerate.model.model import Model
from considerate.model.ranking import RankingOptions, tilt_term

Users = NDArray[np.int64]
Scores = NDArray[np.float32] | NDArray[np.float64]


@runtime_checkable
class Scorer(Protocol):
    """Anything that scores all items for some users. Several threads may call it at once."""

    name: str

    def scores(self, users: Users) -> Scores:
        """[users, items] scores, none of them NaN. Items at -infinity are last, and tie."""


class ModelScorer:
    """Scorer by a model: mean logit + popularity * log pi + lift * log(w / pi), or another score of the model.

    `users` and their likes `liked` replace the users of the model, such as users that were folded in.
    """

    def __init__(
        self,
        model: Model,
        popularity: float | None = None,
        score: str | None = None,
        name: str | None = None,
        users: Side | None = None,
        *,
        lift: float | None = None,
        liked: Adjacency | None = None,
    ) -> None:
        if model.one_kind:
            raise UsageError(
                "this model is of a graph of vertices, whose hidden edges are scored as pairs: "
                "GraphRecommender.evaluate(edges), or considerate evaluate-graph."
            )
        options = RankingOptions(popularity, score, lift=lift)
        self.model, self.score, self.options = model, score, options
        self.knob = model.plan.popularity if options.popularity is None else options.popularity
        self.users = model.posterior.users if users is None else users
        if liked is None and users is None and model.users.knows_likes:
            liked = model.users.whole().liked
        self.lift = 0.0 if score is not None else model.lift_weight(options.lift, liked is not None)
        self._liked = liked
        knobs = f"popularity weight {self.knob:g}" + (f", lift weight {self.lift:g}" if model.consideration else "")
        self.name = name or (score.replace("_", " ") if score is not None else knobs)
        columns = model.columns.mean  # computed before threads start
        if score is None:
            self._columns = columns.copy() if self.knob else columns
            if self.knob:
                self._columns[-1] += np.float32(self.knob) * model.log_popularity
        elif score != "popularity":
            _ = model.columns.variance
        self._half_weights = np.asarray(0.5 * model.popularity, np.float32)

    def of_model(self, model: Model) -> ModelScorer:
        """A scorer of another model with the same score."""
        return ModelScorer(model, self.options.popularity, self.score, self.name, lift=self.options.lift)

    def scores(self, users: Users) -> Scores:
        if self.score is None:
            rows = np.ones((len(users), self.users.factors + 1), np.float32)
            rows[:, :-1] = self.users.mean[users]
            answer = rows @ self._columns
            if self.users.has_bias:
                answer += self.users.biases[0][users, None]
            if self.lift and self._liked is not None and self.model.consideration is not None:
                lifts = self.model.log_lift(self._liked.take(users))
                lifts *= np.float32(self.lift)
                answer += lifts
            if self.model.plan.tilt != 0.0:
                mean = self.model.columns.means(self.users, users)
                answer += tilt_term(mean, self.model.plan, self._offset_of(users))
            return np.asarray(answer, np.float32)
        if self.score == "popularity":
            return np.ascontiguousarray(np.broadcast_to(self.model.popularity, (len(users), self.model.item_count)))
        mean = self.model.columns.means(self.users, users)
        variance = self.model.columns.variances(self.users, users)
        variance *= np.float32(self.model.variance_scale * math.pi / 8.0)  # from here in place, for speed: eq. 22
        variance += np.float32(1.0)
        mean /= np.sqrt(variance, out=variance)
        if self.score == "like":  # in the order of p(like); values of p that differ stay different
            return mean
        if self.score == "p_like":
            return np.asarray(self._recalibrated(mean, users))
        mean *= np.float32(0.5)
        np.tanh(mean, out=mean)
        mean += np.float32(1.0)
        mean *= self._half_weights
        return mean

    def _recalibrated(self, logits: Scores, users: Users) -> NDArray[np.float64]:
        """The logit of p(like) as the model reports it."""
        items, shape = np.arange(self.model.item_count), (len(users), self.model.item_count)
        pairs = np.repeat(np.arange(len(users)), len(items)), np.tile(items, len(users))
        liked = None if self._liked is None else self._liked.take(users)
        covariates = pair_covariates(self.model, liked, users, *pairs) or {}
        rows = {name: values.reshape(shape) for name, values in covariates.items()}
        return np.asarray(self.model.recalibration.line(logits, rows), np.float64)

    def _offset_of(self, users: Users) -> NDArray[np.float64]:
        """The offsets of the users' logits; -log c if their likes are not known."""
        if self._liked is None:
            return np.full(len(users), self.model.plan.offset)
        return logit_offset(self.model, self._liked.take(users))


class LikesScorer:
    """Scorer by a function of the users' likes, a scipy matrix [users, items]; no training is needed."""

    def __init__(self, function: Callable[[Any], Any], likes: Any, name: str) -> None:
        self.function, self.likes, self.name = function, likes, name

    def scores(self, users: Users) -> Scores:
        return np.asarray(self.function(self.likes[users]))

    def for_likes(self, likes: Any) -> LikesScorer:
        """A scorer for other users with these likes."""
        return LikesScorer(self.function, likes, self.name)


class FunctionScorer:
    """Scorer by a function of the users."""

    def __init__(self, function: Callable[[Users], Any], name: str) -> None:
        self.function, self.name = function, name

    def scores(self, users: Users) -> Scores:
        answer = np.asarray(self.function(users))
        return answer if answer.dtype == np.float32 else answer.astype(np.float64, copy=False)


class OrderScorer:
    """Scorer by an object with implicit's `recommend`: the order of all items; items left out tie at the bottom."""

    def __init__(self, recommender: Any, item_count: int, name: str, train: Adjacency | None = None) -> None:
        self.recommender, self.item_count, self.name = recommender, item_count, name
        self.likes = None if train is None else likes_matrix(train, item_count)
        self.options: dict[str, Any] = {}

    def for_likes(self, likes: Any) -> OrderScorer | None:
        """A scorer for users who were not in training, by `recalculate_user`; None if that is not possible."""
        folded = OrderScorer(self.recommender, self.item_count, self.name)
        folded.likes, folded.options = likes, {"recalculate_user": True}
        try:
            folded.scores(np.zeros(1, np.int64))
        except (NotImplementedError, TypeError):
            return None
        return folded

    def scores(self, users: Users) -> Scores:
        likes = None if self.likes is None else self.likes[users]
        more = {"N": self.item_count, "filter_already_liked_items": False, **self.options}
        ids, _ = self.recommender.recommend(users, likes, **more)
        ids = np.asarray(ids).reshape(len(users), -1)
        if ids.size and int(ids.max()) >= self.item_count:
            raise DataError(
                f"{self.name} recommends item {int(ids.max())}; there are items 0 to {self.item_count - 1}."
            )
        answer = np.full((len(users), self.item_count), -float(self.item_count), np.float32)
        rows, places = np.nonzero(ids >= 0)
        answer[rows, ids[rows, places]] = -places
        return answer


class PlacedScorer:
    """Translate the rows of a test into the rows of a scorer.

    Items that the scorer does not know get -infinity, so that they are last. Users that it does not know are scored by
    `others`, which has a row for each of them, in their order.
    """

    def __init__(self, inner: Scorer, users: Users, items: Users, item_count: int, others: Scorer | None) -> None:
        self.inner, self.users, self.items, self.item_count = inner, users, items, item_count
        self.others, self.name = others, inner.name
        self.place = np.cumsum(users < 0) - 1  # of each unknown user among the others
        self.same_items = np.array_equal(items, np.arange(item_count))

    def scores(self, users: Users) -> Scores:
        rows = self.users[users]
        known = rows >= 0
        if self.same_items and known.all():
            return self.inner.scores(rows)
        columns = np.flatnonzero(self.items >= 0)
        answer = np.full((len(users), self.item_count), -np.inf)
        parts = [(known, self.inner, rows)]
        if self.others is not None:
            parts.append((~known, self.others, self.place[users]))
        for chosen, scorer, numbers in parts:
            if chosen.any():
                answer[np.ix_(chosen, self.items[columns])] = scorer.scores(numbers[chosen])[:, columns]
        return answer


def likes_matrix(likes: Adjacency, item_count: int) -> Any:
    """Likes as a scipy matrix of users by items."""
    from scipy.sparse import csr_matrix

    return csr_matrix((np.ones(likes.edges, np.float32), likes.indices, likes.starts), (likes.rows, item_count))


def as_scorer(thing: Any, item_count: int, name: str | None = None, train: Adjacency | None = None) -> Scorer:
    """Make a scorer of a model, a fitted Recommender, an object with implicit's `recommend`, or a function of users.

    A scorer is returned as it is. `recommend` gets `train` as its `user_items`.
    """
    model = thing if isinstance(thing, Model) else getattr(thing, "model_", None)
    if isinstance(model, Model):
        return ModelScorer(model, name=name)
    if isinstance(thing, Scorer):
        return thing
    called = name or getattr(thing, "name", None) or getattr(thing, "__name__", None) or type(thing).__name__
    if hasattr(thing, "recommend"):
        return OrderScorer(thing, item_count, str(called), train)
    if hasattr(thing, "scores"):
        return FunctionScorer(thing.scores, str(called))
    if callable(thing):
        return FunctionScorer(thing, str(called))
    raise UsageError(
        f"{type(thing).__name__} cannot be evaluated; give an object with scores(users) and a name, one with "
        "implicit's recommend, or a function from row numbers of users to scores [users, items]."
    )
