"""Pairs of users and items, with the numbers that an answer gives of each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency
from considerate.data.known import Known
from considerate.inference.posterior import Side
from considerate.model.considered import considered_probability
from considerate.model.covariates import Covariates, pair_covariates
from considerate.model.liking import STRUCTURAL, Liking
from considerate.model.model import Model
from considerate.model.predict import logit_moments, strangers


@dataclass(frozen=True)
class UserBatch:
    """Users who are answered together."""

    side: Side
    rows: NDArray[np.int64]  # [users] of the side
    keys: NDArray[np.int64]  # [users] rows of the model, or other numbers that tell users apart in Thompson draws
    liked: Adjacency | None = None  # row i is what user i liked; None: not needed, or not known
    warm: NDArray[np.bool_] | None = None  # [users] False: nothing is known, popular items; None: all are warm
    limits: Known | None = None  # row i is what is impossible for user i
    folded: bool = False  # whether `liked` was given, and is known even if the model's file has no likes
    names: Any = None  # a list or an Arrow array, as tables have them

    def part(self, first: int, last: int) -> UserBatch:
        """Users first .. last - 1."""
        last = min(last, len(self.rows))
        cut = slice(first, last)
        liked = None if self.liked is None else self.liked.between(first, last)
        warm = None if self.warm is None else self.warm[cut]
        limits = None if self.limits is None else self.limits.between(first, last)
        names = None if self.names is None else self.names[cut]
        return UserBatch(self.side, self.rows[cut], self.keys[cut], liked, warm, limits, self.folded, names)

    def known_likes(self, model: Model) -> Adjacency | None:
        """Likes of these users; None where the model's file has none and they were not given."""
        return self.liked if model.users.knows_likes or self.folded else None


class Pairs:
    """Items of the users of a batch, one user after the other, with all that columns are computed from.

    Row i of `ids` has the items of user i by their row numbers; -1 ends a short row. `weights` are their
    `consideration_weights`, and `scores` those that they were ranked by.
    """

    def __init__(
        self,
        model: Model,
        users: UserBatch,
        ids: NDArray[np.int32],
        weights: NDArray[np.float64],
        scores: NDArray[np.float32] | None = None,
        interval: str = STRUCTURAL,
    ) -> None:
        self.model, self.users, self.ids, self.scores, self.interval = model, users, ids, scores, interval
        self.filled = ids >= 0
        self.item = ids[self.filled]
        self.user = np.repeat(np.arange(len(ids)), self.filled.sum(axis=1))  # places in the batch
        self.cold = np.zeros(len(self.user), bool) if users.warm is None else ~users.warm[self.user]
        self.mean, variance = logit_moments(users.side, model.items, users.rows[self.user], self.item)
        if self.cold.any():  # they have the moments of the prior
            nobody = np.zeros(len(self.item), np.int64)
            prior = logit_moments(
                strangers(1, model.shared, model.plan.likelihood_weight), model.items, nobody, self.item
            )
            self.mean, variance = np.where(self.cold, prior[0], self.mean), np.where(self.cold, prior[1], variance)
        self.variance = model.variance_scale * variance
        self.weights = weights

    @property
    def rank(self) -> NDArray[np.int32]:
        """Place of each item in its list, from 1."""
        return np.broadcast_to(np.arange(1, self.ids.shape[1] + 1, dtype=np.int32), self.ids.shape)[self.filled]

    @property
    def score(self) -> NDArray[np.float32]:
        """Score that each item was ranked by."""
        assert self.scores is not None, "these pairs are not ranked"
        return self.scores[self.filled]

    @cached_property
    def covariates(self) -> Covariates | None:
        """Numbers that the recalibration reads; None if it reads none."""
        users = self.users
        return pair_covariates(self.model, users.known_likes(self.model), users.keys, self.user, self.item)

    @cached_property
    def liking(self) -> Liking:
        """p(like | considered) with its interval."""
        return self.model.liking(self.mean, self.variance, self.covariates, self.interval)

    @property
    def p_considered(self) -> NDArray[np.float64]:
        """p(considered); NaN where nothing tells how much the user considers."""
        return considered_probability(self.weights, self.mean)
