"""Moments of logits (eq. 22), and the fold-in of vertices that were not in training."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import ITEMS, USERS, Adjacency, row_blocks, run_serially
from considerate.data.known import Known
from considerate.inference.hidden import Terms, user_offset
from considerate.inference.hidden.expected import Shares
from considerate.inference.hidden.groups import Grouping, ItemGroups
from considerate.inference.hidden.offsets import offset_of
from considerate.inference.hidden.saturation import Saturation
from considerate.inference.plan import FitPlan
from considerate.inference.posterior import Posterior, Side
from considerate.inference.prior import SHARED, Prior
from considerate.inference.schedule import StepSize
from considerate.inference.sums import PassConstants, side_pass
from considerate.inference.updates import update_side
from considerate.kernels import compiled
from considerate.kernels.threads import locked_cached_property
from considerate.model.users import UserRows

PAIRS = 1 << 14  # pairs whose covariances are read together
STRIP = 16  # items that the kernel scores side by side
STILL = 1e-4  # a new user's vector that moves less in a round has converged


def logit_moments(
    users: Side, items: Side, user_rows: NDArray[Any], item_rows: NDArray[Any]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Mean and variance of a = u'v + b for pairs, on the fair-coin scale.

    mu = eta_u'eta_v + b,    sigma^2 = sum_k (eta_u^2 s_v + eta_v^2 s_u + s_u s_v) + var b

    With covariances, sigma^2 = eta_u'S_v eta_u + eta_v'S_u eta_v + tr(S_u S_v) + var b.
    """
    pairs = np.ascontiguousarray(user_rows, np.int64), np.ascontiguousarray(item_rows, np.int32)
    mean, variance = compiled.pair_moments(users.for_kernels(), items.for_kernels(), *pairs)
    if users.covariance is not None or items.covariance is not None:
        for first in range(0, len(mean), PAIRS):
            m, n = user_rows[first : first + PAIRS], item_rows[first : first + PAIRS]
            variance[first : first + PAIRS] += (user_products(users.take(m)) * item_products(items.take(n))).sum(axis=1)
    return mean, variance


def item_products(items: Side) -> NDArray[np.float32]:
    """Factors of sigma^2 of the coordinates i > j of items: covariances, and products of means, [items, K (K - 1)]."""
    mean, (i, j) = items.mean, np.tril_indices(items.factors, -1)
    return np.concatenate([covariances(items), mean[:, i] * mean[:, j]], axis=1)


def user_products(users: Side) -> NDArray[np.float32]:
    """Factors of sigma^2 like `item_products` for users. The product of both is sigma^2 without its variance terms."""
    mean, (i, j), covariance = users.mean, np.tril_indices(users.factors, -1), covariances(users)
    return np.float32(2.0) * np.concatenate([mean[:, i] * mean[:, j] + covariance, covariance], axis=1)


def covariances(side: Side) -> NDArray[np.float32]:
    """Covariances of the coordinates i > j of each row: [rows, K (K - 1) / 2]."""
    i, j = np.tril_indices(side.factors, -1)
    return (
        np.zeros((len(side), len(i)), np.float32)
        if side.covariance is None
        else side.covariance[:, i * (i + 1) // 2 + j]
    )


def strips_of(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Vectors of items for the kernel that scores and chooses in one pass, with zeros at the end: [strips, K, 16]."""
    count = -(-len(vectors) // STRIP)
    padded_items = np.zeros((count * STRIP, vectors.shape[1]), np.float32)
    padded_items[: len(vectors)] = vectors
    return np.ascontiguousarray(padded_items.reshape(count, STRIP, -1).transpose(0, 2, 1))


class ItemColumns:
    """Items' side in a layout for products with many users: mean and variance are each one matrix product."""

    def __init__(self, items: Side) -> None:
        self.items = items
        self.base = math.nan, np.empty(0, np.float32)  # (popularity weight, items' part of a score), the last in use

    @locked_cached_property
    def mean(self) -> NDArray[np.float32]:
        """Vectors, and the bias for a coordinate 1: [K + 1, N]."""
        return np.ascontiguousarray(np.concatenate([self.items.mean.T, self.items.biases[0][None, :]]), np.float32)

    @locked_cached_property
    def variance(self) -> NDArray[np.float32]:
        """Variances, squared means, and the bias's variance: [2 K + 1, N]."""
        parts = [self.items.variance.T, self.items.mean.T**2, self.items.biases[1][None, :]]
        return np.ascontiguousarray(np.concatenate(parts), np.float32)

    @locked_cached_property
    def products(self) -> NDArray[np.float32]:
        """Factors of sigma^2 of pairs of coordinates: [K (K - 1), N]."""
        return np.ascontiguousarray(item_products(self.items).T)

    @locked_cached_property
    def strips(self) -> NDArray[np.float32]:
        return strips_of(self.items.mean)

    def means(self, users: Side, rows: NDArray[Any]) -> NDArray[np.float32]:
        """Means mu of users and all items: [users, N]."""
        ones = np.ones((len(rows), 1), np.float32)
        answer = np.concatenate([users.mean[rows], ones], axis=1) @ self.mean
        if users.has_bias:
            answer += users.biases[0][rows, None]
        return np.asarray(answer, np.float32)

    def variances(self, users: Side, rows: NDArray[Any]) -> NDArray[np.float32]:
        """Variances sigma^2 of users and all items: [users, N]."""
        mean, variance = users.mean[rows], users.variance[rows]
        left = np.concatenate([mean * mean + variance, variance, np.ones((len(rows), 1), np.float32)], axis=1)
        answer = left @ self.variance
        if users.has_bias:
            answer += users.biases[1][rows, None]
        if users.covariance is not None or self.items.covariance is not None:
            answer += user_products(users.take(rows)) @ self.products
        return np.asarray(answer, np.float32)


def strangers(rows: int, posterior: Posterior, weight: float) -> Side:
    """Unknown users for predictions: rows at the prior, with the learned precisions."""
    return not_narrowed(prior_rows(rows, posterior, "user"), np.arange(rows), weight)


def not_narrowed(side: Side, rows: NDArray[np.int64], weight: float) -> Side:
    """Divide the variances of some rows at the prior by `weight`, rho.

    Predictions multiply variances by rho, as a likelihood raised to this power makes them too small. No likelihood has
    narrowed these rows.
    """
    if not len(rows) or weight == 1.0:
        return side
    some, scale = side.take(rows), np.float32(1.0 / weight)
    some.variance[:] *= scale
    if some.bias_variance is not None:
        some.bias_variance[:] *= scale
    if some.covariance is not None:
        some.covariance[:] *= scale
    new = side.copy()
    new.put(rows, some)
    return new


def prior_rows(rows: int, posterior: Posterior, side: str, own: Prior = SHARED) -> Side:
    """Unknown users or items: rows at the prior."""
    means, factors = posterior.precisions.means(), posterior.factors
    bias = f"{side}_bias"
    new = Side.constant(rows, factors, 1.0 / means[side], 1.0 / means[bias] if bias in means else None)
    if own.mean is not None:
        new.mean[:] = own.mean[:, :factors]
    if own.precision is not None:
        new.variance[:] = 1.0 / own.precision[:, :factors]
    if new.bias_mean is not None and own.bias_mean is not None:
        new.bias_mean[:] = own.bias_mean
    if new.bias_variance is not None and own.bias_precision is not None:
        new.bias_variance[:] = 1.0 / own.bias_precision
    return new


@dataclass(frozen=True)
class Passing:
    """Chances that users pass over items that they do not like."""

    temperature: NDArray[np.float64]  # [users] T_m, the scale of the chance to have considered an unliked item
    user_offset: NDArray[np.float32] | None = None  # [users] added to -log c in the logits


@dataclass
class FoldIn:
    """Fold-in of new users or items by the updates of a fit, with the other side held fixed.

    New users take the expectation over q(H) in closed form, with w from pi, for every kind of fit: the answer is then a
    function of the items alone, not of a draw. New items draw the users who passed them over, a user m with the chance
    1 - exp(-T_m pi_n), afresh in each round.

    The sums over items that all new users read are computed once, so this object lives as long as its items.
    """

    posterior: Posterior  # no row of its users is read
    weights: NDArray[np.float64]  # pi
    plan: FitPlan
    rounds: int = 20

    @locked_cached_property
    def saturation(self) -> Saturation:
        return Saturation(self.weights)

    @locked_cached_property
    def item_groups(self) -> ItemGroups:
        """Groups of items that all new users read: clusters, tables and sums."""
        grouping = Grouping(self.weights, self.plan.offset, self.plan.groups, self.saturation)
        grouping.regroup(self.posterior.items.mean)
        return grouping.of(self.posterior.items)

    def users(self, liked: Adjacency, prior: Prior = SHARED, considered: Adjacency | None = None) -> Side:
        """q(u) and q(b) of users who liked these items, and considered others that they did not like. Users without
        either get the prior."""
        users = prior_rows(liked.rows, self.posterior, "user", prior)
        blocks = row_blocks(liked.starts)
        known = None if considered is None else Known(considered.without(liked, len(self.weights)))
        terms, extra = self._user_terms(liked, blocks, known)
        means = self.posterior.precisions.means_of(USERS)
        constants = PassConstants.of(self.plan, means, prior=prior, user_offset=extra)
        moving = np.arange(liked.rows)  # each stops by itself, so answers do not depend on the other users
        for _ in range(self.rounds):
            kernel_pass = side_pass(users, self.posterior.items, liked, terms, constants, own_is_user=True)
            new = update_side(kernel_pass, users, blocks, run_serially).side
            moved = np.abs(new.mean - users.mean).max(axis=1, initial=0.0)
            users.put(moving, new.take(moving))
            moving = moving[moved[moving] >= STILL]
            if not len(moving):
                break
        nothing = (liked.degrees == 0) & (considered is None or considered.degrees == 0)
        return not_narrowed(users, np.flatnonzero(nothing), self.plan.likelihood_weight)

    def _user_terms(
        self, liked: Adjacency, blocks: NDArray[np.int64], known: Known | None
    ) -> tuple[Terms, NDArray[np.float32] | None]:
        """Terms that q(H) adds to the likes of new users, and the users' offsets, added to -log c. If the fit was given
        all unliked edges, so are new users; a new user without any gets expected ones."""
        if self.plan.observed and known is not None:
            return Terms(unliked=known.considered), None
        c = self.plan.negatives
        temperature = self.saturation.inclusion.temperatures(liked, blocks, c, run_serially, known)
        shares = Shares.zeros(temperature, self.item_groups.groups)
        closed = shares.read(self.item_groups)
        return Terms(None if known is None else known.considered, closed), self.user_offset(liked, known)

    def user_offset(self, liked: Adjacency, known: Known | None = None) -> NDArray[np.float32] | None:
        """Offsets of users by the mass that the closed form gives them, added to -log c."""
        return user_offset(liked, self.weights, replace(self.plan, hidden="expected"), known)

    def items(
        self,
        liked_by: Adjacency,
        users: Side,
        passing: Passing,
        weights: NDArray[np.float64],
        prior: Prior = SHARED,
    ) -> Side:
        """q(v) and q(b) of items liked by some of these users; weights are the items' pi."""
        items = prior_rows(liked_by.rows, self.posterior, "item", prior)
        random = np.random.Generator(np.random.Philox(key=self.plan.seed))
        step_size = StepSize(delay=4)
        for sweep in range(1, self.rounds + 1):
            rows = []
            for row, weight in enumerate(weights):
                chance = -np.expm1(-passing.temperature * weight)
                chance[liked_by.row(row)] = 0.0
                rows.append(np.flatnonzero(random.random(len(chance)) < chance).astype(np.int32))
            terms = Terms(unliked=Adjacency.of_rows(rows))
            taus = self.posterior.precisions.means_of(ITEMS)
            constants = PassConstants.of(self.plan, taus, step_size.epsilon, prior, passing.user_offset)
            kernel_pass = side_pass(items, users, liked_by, terms, constants, own_is_user=False)
            items = update_side(kernel_pass, items, row_blocks(liked_by.starts), run_serially).side
            step_size = step_size.after(sweep)
        return not_narrowed(
            items, np.flatnonzero((liked_by.degrees == 0) & (weights == 0)), self.plan.likelihood_weight
        )

    def passing(self, users: UserRows) -> Passing:
        """Chances that the model's users pass items over, as in training: c d_m of the items not liked are expected.

        If the file has no likes, only a user's degree is known. Likes and unliked pairs then count as (1 + c) d draws
        from pi without replacement, the likes first, so that with F(T), the sum of 1 - exp(-T pi_n) over all items,
        F(t) = d and F(t + T_m) = (1 + c) d. At gamma = 1 this is near the result from likes. At a smaller gamma likes
        are more popular than draws from pi, and T_m is somewhat too low.
        """
        if users.knows_likes:
            blocks = row_blocks(users.liked.starts)
            temperature = self.saturation.inclusion.temperatures(users.liked, blocks, self.plan.negatives)
            return Passing(temperature, self.user_offset(users.liked))
        degrees, which = np.unique(np.asarray(users.degree, np.float64), return_inverse=True)
        likes, both = (self.saturation.temperature_of(count * degrees) for count in (1.0, 1.0 + self.plan.negatives))
        return Passing(np.asarray((both - likes)[which]), self._offset_by_degree(users.degree))

    def _offset_by_degree(self, degree: NDArray[np.int64]) -> NDArray[np.float32] | None:
        """Offsets of users with a known degree and unknown likes; any item may then be drawn."""
        ratio = (self.saturation.support - degree) / (self.plan.negatives * np.maximum(degree, 1))
        if not self.plan.expected_offsets or self.plan.observed or (ratio >= 1.0).all():
            return None
        return offset_of(np.clip(ratio, 0.0, 1.0))
