"""Fitted model: all that prediction and the model file need."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data import Titles
from considerate.data.graph import Adjacency
from considerate.data.known import Known
from considerate.data.vocabulary import Ids, Vocabulary, plain_text
from considerate.errors import UsageError
from considerate.inference.hidden import Consideration
from considerate.inference.hidden.consideration import Lift, without_cold
from considerate.inference.parts import PARTS
from considerate.inference.plan import FitPlan
from considerate.inference.posterior import Posterior, Precisions, Side
from considerate.kernels.threads import locked_cached_property
from considerate.model.covariates import Covariates, pair_covariates
from considerate.model.features import LearnedFeatures
from considerate.model.liking import (
    POSTERIOR,
    STRUCTURAL,
    STRUCTURE,
    UNCHANGED,
    Liking,
    Recalibration,
    StructuralVariance,
    check_interval,
    like_probability,
    liking_of,
)
from considerate.model.names import By, Names
from considerate.model.predict import FoldIn, ItemColumns, Passing, logit_moments
from considerate.model.ranking import log_popularity
from considerate.model.reliability import LikeReliability
from considerate.model.users import Users


@dataclass(frozen=True)
class Updates:
    """Record of a model's updates since the fit (fitting/update.py)."""

    count: int = 0
    likes: int = 0  # new likes
    days: float = 0.0
    passes: int = 0  # passes over new likes, in all
    removed: int = 0  # removed likes
    forgotten: int = 0  # removed users

    def after(self, **more: float) -> Updates:
        """Add the numbers of one more update."""
        return replace(self, **{name: getattr(self, name) + value for name, value in more.items()})


NO_UPDATES = Updates()


@dataclass(frozen=True)
class LearnedEvents:
    """Record of the service's events in a model after a refit (service/refit.py): events up to a sequence number,
    without erased users."""

    sequence: int = 0
    log: str = ""  # identity of the file of events that numbers them
    considered: bool = False  # True if events of considered and not liked items are among them
    erasures: int = 0  # number of erasures of users so far

    def up_to(self, log: str | None) -> int:
        """Last sequence number, if it belongs to this file of events; else 0."""
        return self.sequence if log == self.log else 0


NO_EVENTS = LearnedEvents()


@dataclass(frozen=True)
class Model:
    """Posterior with its popularity, ids and likes. Users and items are given by row numbers.

    `users` has q, degree, likes and id of each user, in memory or in shards. `posterior` has all users, and reads users
    in shards into memory.
    """

    users: Users
    items: Side
    precisions: Precisions
    popularity: NDArray[np.float64]  # [items] pi
    gamma: float
    item_degree: NDArray[np.int64]  # [items]
    item_ids: Vocabulary
    titles: Titles | None
    plan: FitPlan  # of the fit
    bounds: tuple[dict[str, float], ...]  # terms of L_xi before the first sweep, and after each
    converged: bool = False
    parameters: dict[str, Any] = field(default_factory=dict)  # the estimator's settings, as given
    recalibration: Recalibration = UNCHANGED  # of p(like)
    structure: StructuralVariance | None = STRUCTURE  # in the interval of p(like); None: a file of 0.3 or before
    # Table of the walk; None if H is drawn by popularity alone. (By a factory: a field that is read later, see
    # tensors.MappedModel, must not be found on the class.)
    consideration: Consideration | None = field(default_factory=lambda: None)
    # Impossible pairs, by the rows of all users, also those that are liked: see limits_of.
    limits: Known | None = field(default_factory=lambda: None)
    # [items] number of likes of each item when its row of the walk's table was made; None: its number now.
    walk_degree: NDArray[np.int64] | None = field(default_factory=lambda: None)
    updates: Updates = NO_UPDATES  # since the fit
    events: LearnedEvents = NO_EVENTS  # of a service
    # Learned features of items, with the features of each item; and of users.
    item_features: LearnedFeatures | None = field(default_factory=lambda: None)
    user_features: LearnedFeatures | None = field(default_factory=lambda: None)
    reliability: LikeReliability | None = None  # of p(like), measured when it was recalibrated
    kept: Mapping[str, Any] = field(default_factory=dict)  # of parts, by their names

    @property
    def user_count(self) -> int:
        return len(self.users)

    @property
    def item_count(self) -> int:
        return len(self.items)

    @property
    def factors(self) -> int:
        return self.items.factors

    @property
    def one_kind(self) -> bool:
        """True if users and items are the same vertices of a graph."""
        return self.plan.signed is not None

    def check_two_kinds(self) -> None:
        """Raise UsageError for a graph of vertices: a change of users or items alone would make two kinds of them."""
        if self.one_kind:
            raise UsageError("this model is of a graph of vertices; to change it, fit again to the changed edges.")

    @property
    def user_ids(self) -> Ids:
        return self.users.ids

    def user_names(self, by: By = "id") -> Names:
        """Names of users in questions and answers: the ids of the data, or row numbers."""
        return Names.of("user", self.user_count, self.user_ids if by == "id" else None, by)

    def item_names(self, by: By = "id") -> Names:
        """Names of items in questions and answers: the ids of the data, or row numbers."""
        return Names.of("item", self.item_count, self.item_ids if by == "id" else None, by)

    @property
    def posterior(self) -> Posterior:
        """Posterior of all users and items."""
        return Posterior(self.users.whole().side, self.items, self.precisions)

    @locked_cached_property
    def shared(self) -> Posterior:
        """Posterior without rows of users: with the user's own row it is all that a recommendation needs."""
        bias = 1.0 if self.users.has_bias else None
        return Posterior(Side.constant(0, self.factors, 1.0, bias), self.items, self.precisions)

    @property
    def variance_scale(self) -> float:
        """Factor rho of variances in predictions: a likelihood to the power rho makes the variance too small by rho."""
        return self.plan.likelihood_weight

    def pair_logits(self, users: NDArray[np.int64], items: NDArray[np.int64]) -> tuple[Any, Any]:
        """Mean and standard deviation of the logits of pairs, by row numbers that are broadcast."""
        m, n = users, items
        try:
            m, n = np.broadcast_arrays(users, items)
        except ValueError:
            raise UsageError(
                f"users of shape {m.shape} and items of shape {n.shape} do not make pairs; give as many of each."
            ) from None
        some, rows = self.users.some(m.reshape(-1))
        mean, variance = logit_moments(some.side, self.items, rows, n.reshape(-1))
        deviation = np.sqrt(self.variance_scale * variance)
        if m.ndim == 0:
            return float(mean[0]), float(deviation[0])
        return mean.reshape(m.shape), deviation.reshape(m.shape)

    def pair_probabilities(self, users: NDArray[np.int64], items: NDArray[np.int64], recalibrated: bool = True) -> Any:
        """p(like | considered) of pairs (eq. 22), recalibrated if the model was, unless `recalibrated` is False."""
        mean, deviation = self.pair_logits(users, items)
        if recalibrated:
            probability = self.liking(mean, np.square(deviation), self.covariates_of(users, items)).p_like
        else:
            probability = like_probability(np.asarray(mean), np.asarray(deviation) ** 2)
        return float(probability) if np.ndim(mean) == 0 else probability

    def pair_intervals(self, users: NDArray[np.int64], items: NDArray[np.int64], interval: str = STRUCTURAL) -> Any:
        """90 % interval (low, high) of p(like) of pairs."""
        mean, deviation = self.pair_logits(users, items)
        ends = self.liking(mean, np.square(deviation), self.covariates_of(users, items), interval)[1:]
        return tuple(map(float, ends)) if np.ndim(mean) == 0 else ends

    def liking(
        self, mean: Any, variance: Any, covariates: Covariates | None = None, interval: str = STRUCTURAL
    ) -> Liking:
        """Liking from moments of logits, with the variance of predictions."""
        check_interval(interval)
        structure = None if interval == POSTERIOR else self.structure
        return liking_of(np.asarray(mean), np.asarray(variance), self.recalibration, covariates, structure)

    def covariates_of(self, users: NDArray[np.int64], items: NDArray[np.int64]) -> Covariates | None:
        """Covariates of the recalibration for pairs of the model's users, in the shape of the pairs."""
        if not self.recalibration.covariates:
            return None
        m, n = np.broadcast_arrays(users, items)
        people, person = np.unique(m, return_inverse=True)
        some, rows = self.users.some(people)
        liked = some.liked.take(rows) if self.users.knows_likes else None
        found = pair_covariates(self, liked, people, person.reshape(-1), n.reshape(-1)) or {}
        return {name: values.reshape(m.shape) for name, values in found.items()}

    def limits_of(self, rows: NDArray[np.int64]) -> Known | None:
        """Impossible pairs of some users, without pairs that they like; None if there are none."""
        if self.limits is None:
            return None
        limits = self.limits.take(rows)
        if limits.impossible is None or not limits.impossible.edges or not self.users.knows_likes:
            return limits
        known = np.flatnonzero(rows >= 0)
        some, local = self.users.some(rows[known])
        places = np.full(len(rows), -1, np.int64)
        places[known] = local
        return limits.without_likes(some.liked.take(places), self.item_count)

    def log_lift(self, liked: Adjacency) -> NDArray[np.float32]:
        """Log lift of users with these likes for all items, in the form that rankings use: [users, items]."""
        assert self.lift is not None
        return self.lift.log_ratios(liked)

    @property
    def lift(self) -> Lift | None:
        """Lift as the model's scores have it; None without a walk."""
        return Lift.of(self.consideration, self.plan)

    def lift_weight(self, given: float | None = None, likes_known: bool = True) -> float:
        """Weight of log lift in the score: the given one, or the model's own; 0 without lift.

        Lift needs the walk's table and the user's likes. Raises UsageError if a weight is given and one is missing.
        """
        weight = given if given is not None else 0.0 if self.consideration is None else self.plan.lift
        if weight == 0.0 or (self.consideration is not None and likes_known):
            return weight
        if self.consideration is None:
            raise UsageError(
                f"lift is {weight:g}, and this model has no walk; fit with consideration='walk' "
                "(--consideration walk), or leave lift out."
            )
        if given is not None:
            raise UsageError(
                f"lift is {weight:g} and needs the user's likes, and this model was saved without them; give them as "
                "user_items of recommend or to recommend_for (--items), or set lift to 0."
            )
        warnings.warn("this model was saved without likes, so scores are without lift; give user_items.", stacklevel=4)
        return 0.0

    @locked_cached_property
    def log_popularity(self) -> NDArray[np.float32]:
        return log_popularity(self.popularity, self.gamma)

    @locked_cached_property
    def items_digest(self) -> str:
        """Content hash of the items: all biases and popularities, and one vector in 64."""
        digest = hashlib.sha256(f"{self.item_count} {self.factors}".encode())
        for array in (*self.items.biases, self.popularity, self.items.rows[::64]):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    @locked_cached_property
    def columns(self) -> ItemColumns:
        return ItemColumns(self.items)

    @property
    def cold_items(self) -> NDArray[np.int64]:
        """Rows of cold items: without likes, but with features, from which pi is predicted."""
        if self.item_features is None:
            return np.empty(0, np.int64)
        return np.flatnonzero((self.item_degree == 0) & (self.popularity > 0))

    @locked_cached_property
    def fold_in(self) -> FoldIn:
        """Fold-in of users by the liked items, as the others could not be passed over. A new vertex has as many pairs
        without a link as the vertices of the graph."""
        plan = replace(self.plan, negatives=self.plan.unlinked or self.plan.negatives)
        return FoldIn(self.shared, without_cold(self.popularity, self.cold_items), plan)

    @locked_cached_property
    def passing(self) -> Passing:
        """Chances that users pass over items that they do not like."""
        return self.fold_in.passing(self.users.whole())

    def with_same_items(self, **changes: Any) -> Model:
        """Change the model, such as its users, and keep values cached from its items, as these take longer than a
        fold-in. Impossible pairs of its users are dropped."""
        changes = {"limits": None, **changes} if "users" in changes else changes
        changed = object.__new__(type(self))
        made_of_users = ("passing",)
        vars(changed).update({name: value for name, value in vars(self).items() if name not in made_of_users} | changes)
        return changed

    @locked_cached_property
    def plain_titles(self) -> list[str]:
        """Titles of all items, in the form for searches."""
        return [plain_text(self.title(row)) for row in range(self.item_count)]

    def title(self, item: int) -> str:
        """Title of an item, or its id without a title."""
        title = self.titles.of(item) if self.titles is not None else None
        return title or str(self.item_ids.id_of(item))


def renewed(model: Model) -> Model:
    """Renew the objects that parts keep in a model, after users, items or likes have changed."""
    if not model.kept:
        return model
    return replace(
        model,
        kept={part.name: part.renewed(model.kept[part.name], model) for part in PARTS if part.name in model.kept},
    )
