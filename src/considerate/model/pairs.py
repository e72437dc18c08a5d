"""Pairs of users and items, with the numbers that an answer gives of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency
from considerate.data.known import Known
from considerate.inference.posterior import Side
from considerate.model.considered import considered_probability
from considerate.model.covariates import pair_covariates
from considerate.model.liking import STRUCTURAL
from considerate.model.model import Model
from considerate.model.predict import logit_moments, strangers


@dataclass(frozen=True)
class UserBatch:
    """Batch of users who get answers together."""

    side: Side
    rows: NDArray[np.int64]  # [users] of the side
    keys: NDArray[np.int64]  # [users] rows of the model, or other numbers that identify users in Thompson draws
    liked: Adjacency | None = None  # row i has the likes of user i; None: not needed, or not known
    warm: NDArray[np.bool_] | None = None  # [users] False: nothing is known, popular items; None: all are warm
    limits: Known | None = None  # row i has the impossible items of user i
    folded: bool = False  # True if `liked` was given, and is known even if the model's file has no likes
    names: Any = None  # a list or an Arrow array, as in tables

    def part(self, first: int, last: int) -> UserBatch:
        """Users first .. last - 1."""
        last = min(last, len(self.rows))
        if (first, last) == (0, len(self.rows)):
            return self
        cut = slice(first, last)
        liked = None if self.liked is None else self.liked.between(first, last)
        warm = None if self.warm is None else self.warm[cut]
        limits = None if self.limits is None else self.limits.between(first, last)
        names = None if self.names is None else self.names[cut]
        return UserBatch(self.side, self.rows[cut], self.keys[cut], liked, warm, limits, self.folded, names)

    @property
    def likes(self) -> Adjacency:
        """Likes of the users, which must be known."""
        assert self.liked is not None, "these users have no likes"
        return self.liked

    def known_likes(self, model: Model) -> Adjacency | None:
        """Likes of these users; None if the model's file has none and they were not given."""
        return self.liked if model.users.knows_likes or self.folded else None


class Pairs:
    """Items of the users of a batch, one user after the other, with all that columns are computed from.

    Row i of `ids` has the items of user i by their row numbers; -1 ends a short row. `weights` are their
    `consideration_weights`, and `scores` the scores of the ranking.
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
        filled = ids >= 0
        self.model, self.users = model, users
        self.user = np.repeat(np.arange(len(ids)), filled.sum(axis=1))  # places in the batch
        self.rank = np.broadcast_to(np.arange(1, ids.shape[1] + 1, dtype=np.int32), ids.shape)[filled]
        self.item = ids[filled]
        self.score = None if scores is None else scores[filled]
        self.cold = np.zeros(len(self.user), bool) if users.warm is None else ~users.warm[self.user]
        self.mean, variance = logit_moments(users.side, model.items, users.rows[self.user], self.item)
        if self.cold.any():  # their logits are the prior's
            nobody = np.zeros(len(self.item), np.int64)
            prior = logit_moments(strangers(1, model.shared, model.variance_scale), model.items, nobody, self.item)
            self.mean, variance = np.where(self.cold, prior[0], self.mean), np.where(self.cold, prior[1], variance)
        self.variance = model.variance_scale * variance
        self.covariates = pair_covariates(model, users.known_likes(model), users.keys, self.user, self.item)
        self.liking = model.liking(self.mean, self.variance, self.covariates, interval)
        self.p_considered = considered_probability(weights, self.mean)  # NaN if unknown
