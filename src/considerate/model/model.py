"""A fitted model: all that prediction and the model file need."""

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
from considerate.inference.hidden.consideration import without_cold
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
    """What a model has learned since it was fitted (fitting/update.py)."""

    count: int = 0
    likes: int = 0  # that were new
    days: float = 0.0
    passes: int = 0  # over the new likes, in all
    removed: int = 0  # likes that were taken out
    forgotten: int = 0  # users who were

    def after(self, **more: float) -> Updates:
        """With what one more has added."""
        return replace(self, **{name: getattr(self, name) + value for name, value in more.items()})


NO_UPDATES = Updates()


@dataclass(frozen=True)
class LearnedEvents:
    """Which events of a service a refit has put into a model (service/refit.py): those up to a sequence number, without
    the users who had been erased."""

    sequence: int = 0
    log: str = ""  # the identity of the file of events that the numbers are of
    considered: bool = False  # whether those that say what was considered and not liked are among them
    erasures: int = 0  # how many times anyone had been erased

    def up_to(self, log: str | None) -> int:
        """The sequence number, if it is of this file of events; else 0."""
        return self.sequence if log == self.log else 0


NO_EVENTS = LearnedEvents()


@dataclass(frozen=True)
class Model:
    """The posterior, with the popularity, the ids and the likes that go with it. It speaks row numbers.

    `users` has q, degree, likes and id of each user, in memory or in shards. `posterior` is of all users; those in
    shards are then read into memory.
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
    bounds: tuple[dict[str, float], ...]  # the terms of L_xi before the first sweep, and after each
    converged: bool = False
    parameters: dict[str, Any] = field(default_factory=dict)  # as the estimator was given them
    recalibration: Recalibration = UNCHANGED  # of p(like)
    structure: StructuralVariance | None = STRUCTURE  # in the interval of p(like); None: a file of 0.3 or before
    # Who considers what; None: popular items, the same for everyone. (By a factory: a field that is read later, see
    # tensors.MappedModel, must not be found on the class.)
    consideration: Consideration | None = field(default_factory=lambda: None)
    # What is impossible, by the rows of all users, also where it is liked: see limits_of.
    limits: Known | None = field(default_factory=lambda: None)
    # [items] the likes that each had when its row of the walk's table was made; None: those that it has.
    walk_degree: NDArray[np.int64] | None = field(default_factory=lambda: None)
    updates: Updates = NO_UPDATES  # since the fit
    events: LearnedEvents = NO_EVENTS  # of a service
    # What features say of items, with the features of each; and of users.
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
        """Whether users and items are the same vertices, of a graph."""
        return self.plan.signed is not None

    def check_two_kinds(self) -> None:
        """UsageError of a graph of vertices: a change of users or items alone would make two kinds of them."""
        if self.one_kind:
            raise UsageError("this model is of a graph of vertices; to change it, fit again to the changed edges.")

    @property
    def user_ids(self) -> Ids:
        return self.users.ids

    def user_names(self, by: By = "id") -> Names:
        """How users are named in what is asked and answered: by the ids of the data, or by row numbers."""
        return Names.of("user", self.user_count, self.user_ids if by == "id" else None, by)

    def item_names(self, by: By = "id") -> Names:
        """The same of items."""
        return Names.of("item", self.item_count, self.item_ids if by == "id" else None, by)

    @property
    def posterior(self) -> Posterior:
        """Of all users and items."""
        return Posterior(self.users.whole().side, self.items, self.precisions)

    @locked_cached_property
    def shared(self) -> Posterior:
        """The posterior without any user's row: with a user's own it is all that a recommendation needs."""
        bias = 1.0 if self.users.has_bias else None
        return Posterior(Side.constant(0, self.factors, 1.0, bias), self.items, self.precisions)

    @property
    def variance_scale(self) -> float:
        """A likelihood raised to the power rho makes the variance too small by rho; predictions multiply it back."""
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
        """(low, high): the 90 % interval of p(like) of pairs."""
        mean, deviation = self.pair_logits(users, items)
        ends = self.liking(mean, np.square(deviation), self.covariates_of(users, items), interval)[1:]
        return tuple(map(float, ends)) if np.ndim(mean) == 0 else ends

    def liking(
        self, mean: Any, variance: Any, covariates: Covariates | None = None, interval: str = STRUCTURAL
    ) -> Liking:
        """p(like) and its interval from moments of logits, of which the variance is as predictions have it."""
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
        """Impossible pairs of the users of some rows, but for those that they like; None where there are none."""
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
        """The log lift of users with these likes against all items, as it is ranked by: [users, items]."""
        assert self.consideration is not None
        return self.consideration.log_ratios(liked, self.plan.sharpness)

    def lift_weight(self, given: float | None = None, likes_known: bool = True) -> float:
        """The weight of log lift in the score: the given one, or the model's own; 0 where there is no lift.

        Lift needs to know who considers what, and the user's likes. A UsageError if it was asked for and cannot be.
        """
        weight = given if given is not None else 0.0 if self.consideration is None else self.plan.lift
        if weight == 0.0 or (self.consideration is not None and likes_known):
            return weight
        if self.consideration is None:
            raise UsageError(
                f"lift is {weight:g}, and this model does not know who considers what; fit with consideration='walk' "
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
        """What tells the items of two models apart: all biases and popularities, and one vector in 64."""
        digest = hashlib.sha256(f"{self.item_count} {self.factors}".encode())
        for array in (*self.items.biases, self.popularity, self.items.rows[::64]):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    @locked_cached_property
    def columns(self) -> ItemColumns:
        return ItemColumns(self.items)

    @property
    def cold_items(self) -> NDArray[np.int64]:
        """The rows of items that nobody liked and that are known by their features: pi is predicted."""
        if self.item_features is None:
            return np.empty(0, np.int64)
        return np.flatnonzero((self.item_degree == 0) & (self.popularity > 0))

    @locked_cached_property
    def fold_in(self) -> FoldIn:
        """By the items that were liked: the others could not be passed over. A new vertex has as many pairs without a
        link as those of the graph have."""
        plan = replace(self.plan, negatives=self.plan.unlinked or self.plan.negatives)
        return FoldIn(self.shared, without_cold(self.popularity, self.cold_items), plan)

    @locked_cached_property
    def passing(self) -> Passing:
        """Chances of users to pass over items that they do not like."""
        return self.fold_in.passing(self.users.whole())

    def with_same_items(self, **changes: Any) -> Model:
        """The model with other users, say; what was made of its items is kept, as that takes longer than a fold-in.
        What is impossible for its users is not that of others."""
        changes = {"limits": None, **changes} if "users" in changes else changes
        changed = object.__new__(type(self))
        made_of_users = ("passing",)
        vars(changed).update({name: value for name, value in vars(self).items() if name not in made_of_users} | changes)
        return changed

    @locked_cached_property
    def plain_titles(self) -> list[str]:
        """The titles of all items, as they are searched."""
        return [plain_text(self.title(row)) for row in range(self.item_count)]

    def title(self, item: int) -> str:
        """An item's title, or its id where there is none."""
        title = self.titles.of(item) if self.titles is not None else None
        return title or str(self.item_ids.id_of(item))


def renewed(model: Model) -> Model:
    """The model, with what its parts keep renewed, after users, items or likes have changed."""
    if not model.kept:
        return model
    return replace(
        model,
        kept={part.name: part.renewed(model.kept[part.name], model) for part in PARTS if part.name in model.kept},
    )
