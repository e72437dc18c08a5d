"""Recalibration of p(like) by judged pairs: considered pairs of which it is known whether they are liked.

    logit p' = slope x + shift + sum over covariates of weight (z - centre)        model/liking.py

x is the logit of p(like). The covariates log pi, lift and log(1 + d) are known for every pair and have much information
that p(like) lacks. The prior is centred on the line, which has x alone. With all numbers scaled to a variance of 1,

    slope ~ N(slope of the line, PRIOR_VARIANCE),    each weight ~ N(0, PRIOR_VARIANCE),    shift: flat

so that few pairs change little. The covariates are dropped if they raise the log loss on held-out users and items.
PRIOR_VARIANCE was chosen on validation draws alone (`python -m studies.recalibration --validate`): it is the largest
value tried with which 50, 100 or 300 pairs raised the mean log loss of others by at most .002 over the line's.

Structural variance: let r = liked - p'. The true logits of all pairs of a user differ from the model's by one shared
amount of variance s_user, those of an item by another, s_item. p' is the mean of sigma(true logit), so a step of the
true logit moves it by

    v = p' (1 - p') / sqrt(1 + pi t / 8),    t = slope^2 var(logit) + s_user + s_item

Two pairs i, j of a user have E[r_i r_j] = v_i v_j (s + slope^2 cov_ij) approximately, where cov_ij is the posterior
covariance of their logits. So over the pairs of each user

    s = sum of (r_i r_j - slope^2 v_i v_j cov_ij) / sum of v_i v_j

and the same for items; this is repeated until t is stable. The average over users has the weights of lowest variance,
sum of v_i v_j / 2 (sum of p' (1 - p') + s (sum of v)^2)^2: a user with few pairs counts by its pairs of pairs;
users with very many count the same. With equal weights for all pairs of pairs, the most popular items alone would
decide. The estimate is averaged with the constant of `liking.STRUCTURE` by precision. If both estimates are below the
constants, the difference is kept as the variance of single pairs: each pair is judged once, so no data rules it out.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from considerate.data import Interactions
from considerate.errors import ConsiderateError, DataError, UsageError
from considerate.evaluation.calibration import check_judged, class_weights, reliability_bins
from considerate.evaluation.split import is_among, pair_keys, rows_in
from considerate.inference.posterior import Side
from considerate.kernels.arrays import add_in_order
from considerate.model.covariates import known_of_pairs
from considerate.model.liking import (
    LEAST_SLOPE,
    MOST_SLOPE,
    STRUCTURE,
    Covariate,
    Recalibration,
    StructuralVariance,
    logit,
    moderated_logit,
    sigmoid,
)
from considerate.model.model import Model
from considerate.model.predict import covariances, logit_moments
from considerate.model.reliability import EQUAL, LikeReliability

PRIOR_VARIANCE = 0.05
FOLDS = 10
ENOUGH = 10  # least number of users, or items, to hold some of them out
FAMILIAR = 0.3  # prior standard deviation of a structural variance about its constant
AGAINST = -3.0  # a slope so many standard errors below zero is refused
STREAM = 0xCA1B  # of the random numbers that draw the folds
STEPS = 100  # most Newton steps
ROUNDS = 20  # most rounds for the structural variance
MOST_SHARED = 10.0  # most variance that pairs share; it would be infinite for users who like all or nothing
Floats = NDArray[np.float64]
Rows = NDArray[np.int64]


class Ends(NamedTuple):
    """The posterior at one end of each pair."""

    side: Side
    rows: Rows  # of the side, one for each pair


@dataclass(frozen=True)
class JudgedPairs:
    """Considered pairs with their outcome, and the numbers that a recalibration reads of each."""

    users: Rows
    items: Rows
    liked: NDArray[np.bool_]
    x: Floats  # logit of p(like) before any recalibration
    covariates: dict[str, Floats] = field(default_factory=dict)
    ends: tuple[Ends, Ends] | None = None  # users and items; None if the posterior is not known
    scale: float = 1.0  # factor of the posterior's variances
    training: int = 0  # pairs left out because they are likes of the training
    one_kind: bool = False  # both ends are vertices of a graph

    @classmethod
    def of(cls, model: Model, users: Rows, items: Rows, liked: NDArray[Any]) -> JudgedPairs:
        """Make judged pairs of rows of a model, sorted, without the likes of its training."""
        judged = np.asarray(liked)
        shapes = {np.shape(users), np.shape(items), judged.shape}
        if len(shapes) > 1 or judged.ndim != 1:
            raise UsageError(
                f"judged pairs have users of shape {np.shape(users)}, items of shape {np.shape(items)} and liked of "
                f"shape {judged.shape}; give one of each for every pair."
            )
        _, judged = check_judged(np.zeros(len(judged)), judged)
        order = np.lexsort((judged, items, users))
        users, items, judged = users[order], items[order], judged[order]
        people, person = np.unique(users, return_inverse=True)
        some, places = model.users.some(people)
        likes = some.liked.take(places)
        keys = pair_keys(likes.edge_rows, likes.indices, model.item_count)
        new = ~is_among(pair_keys(person, items, model.item_count), keys)
        person, n = person[new], items[new]
        ends = Ends(some.side, places[person]), Ends(model.items, n)
        mean, variance = logit_moments(some.side, model.items, places[person], n)
        x = moderated_logit(mean.astype(np.float64), model.variance_scale * variance.astype(np.float64))
        known = likes if model.users.knows_likes else None
        covariates = known_of_pairs(model, known, some.degree[places], person, n)
        training = int(len(new) - new.sum())
        scale = model.variance_scale
        return cls(users[new], n, judged[new], x, covariates, ends, scale, training, model.one_kind)

    def __len__(self) -> int:
        return len(self.x)

    def take(self, which: NDArray[Any]) -> JudgedPairs:
        """A selection of the pairs, without their posterior."""
        covariates = {name: values[which] for name, values in self.covariates.items()}
        return JudgedPairs(self.users[which], self.items[which], self.liked[which], self.x[which], covariates)

    def from_both_ends(self) -> JudgedPairs:
        """List each pair of vertices twice: from its first end and from its second."""
        users, items = np.append(self.users, self.items), np.append(self.items, self.users)
        ends = self.ends and (Ends(self.ends[1].side, users), Ends(self.ends[1].side, items))
        covariates = {name: np.tile(values, 2) for name, values in self.covariates.items()}
        liked, x = np.tile(self.liked, 2), np.tile(self.x, 2)
        return replace(self, users=users, items=items, liked=liked, x=x, covariates=covariates, ends=ends)

    def check(self) -> None:
        """Raise a DataError if all pairs are liked, or none."""
        positive, training = int(self.liked.sum()), ""
        if self.training:
            training = f" ({self.training:,} more are likes of the training, which say nothing new)"
        if positive in (0, len(self)):
            raise DataError(
                f"{positive:,} of {len(self):,} judged pairs are liked{training}; a recalibration needs pairs that "
                "were liked and pairs that were considered and not liked."
            )


@dataclass(frozen=True)
class Recalibrated:
    """Outcome of a recalibration."""

    recalibration: Recalibration
    structure: StructuralVariance
    reliability: LikeReliability | None  # of p(like) recalibrated by other users' pairs; None if too few users


def recalibrate(judged: JudgedPairs, equal_classes: bool = False, seed: int = 0) -> Recalibrated:
    """Fit a recalibration and the structural variance to judged pairs."""
    judged.check()
    weights = EQUAL if equal_classes else None
    fit = chosen_fit(judged, weights, seed)
    found = replace(
        fit(judged, weights), pairs=len(judged), training=judged.training, equal_classes=equal_classes, stale=False
    )
    reliability = None
    with suppress(ConsiderateError):
        p = sigmoid(held_out_logits(fit, judged, judged.users, weights, seed))
        reliability = reliability_bins(p, judged.liked, weights)
    return Recalibrated(found, structural_variance(judged, found), reliability)


def recalibrated_model(
    model: Model, users: Rows, items: Rows, liked: Any, equal_classes: bool = False, seed: int = 0
) -> Model:
    """Recalibrate a model by judged pairs, whose rows are broadcast."""
    people, things, truth = (np.atleast_1d(array) for array in (users, items, np.asarray(liked)))
    if len(truth) and truth.shape == np.broadcast_shapes(people.shape, things.shape):
        people, things = np.broadcast_arrays(people, things)
    found = recalibrate(JudgedPairs.of(model, people, things, truth), equal_classes, seed)
    return model.with_same_items(**vars(found))


def judged_rows(
    model: Model, liked: Interactions, not_liked: Interactions
) -> tuple[Rows, Rows, NDArray[np.bool_], int]:
    """(users, items, liked or not) of the judged pairs that the model knows, and the number of rows it does not know.

    Each pair is there once. A pair that is both liked and not liked is liked.
    """
    found = [rows_in(model, data) for data in (liked, not_liked)]
    users, items = (np.concatenate(rows) for rows in zip(*found))
    truth, known = np.arange(len(users)) < len(found[0][0]), (users >= 0) & (items >= 0)
    keys, first = np.unique(pair_keys(users[known], items[known], model.item_count), return_index=True)
    return keys // model.item_count, keys % model.item_count, truth[known][first], int((~known).sum())


# --- The line and the covariates ---

Fit = Callable[[JudgedPairs, str | None], Recalibration]


def fit_recalibration(
    p: NDArray[Any], liked: NDArray[Any], weights: str | NDArray[Any] | None = EQUAL
) -> Recalibration:
    """Fit the slope and shift of p' = sigma(slope logit(p) + shift) by maximum likelihood.

    With equal classes, p' = 1/2 means that liked and not liked are as likely, which is the model's fair coin.
    """
    p, liked = check_judged(p, liked)
    nobody = np.zeros(len(p), np.int64)
    judged = JudgedPairs(nobody, nobody, liked, logit(p))
    judged.check()
    return fit_line(judged, weights)


def fit_line(judged: JudgedPairs, weights: str | NDArray[Any] | None = None) -> Recalibration:
    """Fit slope and shift by maximum likelihood; the slope is between LEAST_SLOPE and MOST_SLOPE."""
    x, y, w = judged.x, judged.liked.astype(np.float64), _weights(judged, weights)
    scale, centre = float(x.std()), float(x.mean())
    if scale < 1e-9:
        raise DataError("p(like) is the same for all pairs; a slope cannot be fitted to it.")
    A = np.stack([(x - centre) / scale, np.ones(len(x))], axis=1)
    at, curvature = _most_probable(A, y, w, np.zeros(2), np.zeros(2))
    slope = float(at[0] / scale)
    if at[0] < AGAINST * np.sqrt(np.linalg.inv(curvature)[0, 0]):
        raise DataError(
            f"the best slope is {slope:.3g}: p(like) is lower for the liked pairs than for the others; check which "
            "pairs are liked."
        )
    bounded = float(np.clip(slope, LEAST_SLOPE, MOST_SLOPE))
    if bounded != slope:
        at, _ = _most_probable(A[:, 1:], y, w, np.zeros(1), np.zeros(1), bounded * scale * A[:, 0])
    return Recalibration(bounded, float(at[-1]) - bounded * centre)


def fit_covariates(judged: JudgedPairs, weights: str | None = None, variance: float = PRIOR_VARIANCE) -> Recalibration:
    """Fit slope, shift and weights of covariates: the most probable ones under the prior around the line."""
    line = fit_line(judged, weights)
    numbers = {name: values for name, values in judged.covariates.items() if np.ptp(values) > 1e-9}
    columns = np.stack([judged.x, *numbers.values()], axis=1)
    centre, scale = columns.mean(axis=0), columns.std(axis=0)
    A = np.append((columns - centre) / scale, np.ones((len(judged), 1)), axis=1)
    prior, precision = np.zeros(A.shape[1]), np.full(A.shape[1], 1.0 / variance)
    prior[0], precision[-1] = line.slope * scale[0], 0.0
    y, w = judged.liked.astype(np.float64), _weights(judged, weights)
    at, _ = _most_probable(A, y, w, prior, precision)
    slope = float(np.clip(at[0] / scale[0], LEAST_SLOPE, MOST_SLOPE))
    if slope != at[0] / scale[0]:
        at[1:], _ = _most_probable(A[:, 1:], y, w, prior[1:], precision[1:], slope * scale[0] * A[:, 0])
    covariates = {
        name: Covariate(float(weight), float(values.mean()), float(values.min()), float(values.max()))
        for (name, values), weight in zip(numbers.items(), at[1:-1] / scale[1:])
    }
    return Recalibration(slope, float(at[-1]) - slope * float(centre[0]), covariates)


def chosen_fit(judged: JudgedPairs, weights: str | None, seed: int) -> Fit:
    """Choose `fit_line` if covariates raise the log loss of held-out users and items by more than its standard error.

    Otherwise choose `fit_covariates`. With few pairs the standard error is large, and the prior keeps the change small.
    The fit with the lower loss would be a worse choice than either: it follows the noise.
    """
    if not any(np.ptp(values) > 1e-9 for values in judged.covariates.values()):
        return fit_line
    y, w, worse, tried = judged.liked.astype(np.float64), _weights(judged, weights), np.zeros(len(judged)), False
    for groups in (judged.users, judged.items):
        if len(np.unique(groups)) < ENOUGH:
            continue
        with suppress(DataError):  # the pairs outside a fold are all liked, or none is
            line, both = (held_out_logits(fit, judged, groups, weights, seed) for fit in (fit_line, fit_covariates))
            worse, tried = worse + _losses(both, y, w) - _losses(line, y, w), True
    of_users = np.bincount(np.unique(judged.users, return_inverse=True)[1], worse)
    return fit_covariates if tried and of_users.sum() <= np.sqrt(np.sum(of_users**2)) else fit_line


def held_out_logits(fit: Fit, judged: JudgedPairs, groups: Rows, weights: str | None, seed: int) -> Floats:
    """logit p' of every pair by a recalibration fitted to the pairs of other users, or of other items."""
    members, group = np.unique(groups, return_inverse=True)
    if len(members) < 2:
        raise UsageError(
            f"all judged pairs are of {len(members)} user or item; expected at least two, to hold one out."
        )
    random = np.random.Generator(np.random.Philox(key=[seed, STREAM]))
    fold = (random.permutation(len(members)) % min(FOLDS, len(members)))[group]
    answer = np.empty(len(judged))
    for number in np.unique(fold):
        own = fold == number
        others = judged.take(~own)
        others.check()
        answer[own] = fit(others, weights).line(judged.x[own], judged.take(own).covariates)
    return answer


def recalibrate_by_fold(
    p: NDArray[Any], liked: NDArray[Any], fold: NDArray[Any], weights: str | None = EQUAL
) -> Floats:
    """p' of the pairs of each fold by a line fitted to the other folds."""
    answer = np.empty(len(p))
    for number in np.unique(fold):
        own = fold == number
        answer[own] = fit_recalibration(p[~own], liked[~own], weights).apply(p[own])
    return answer


def _weights(judged: JudgedPairs, weights: str | NDArray[Any] | None) -> Floats:
    """Weights of the pairs, with a mean of 1."""
    w = class_weights(judged.liked, weights)
    return np.asarray(w * (len(w) / w.sum()))


def _losses(a: Floats, y: Floats, w: Floats) -> Floats:
    """Weighted log loss of each pair."""
    return np.asarray(w * (np.logaddexp(0.0, a) - y * a))


def _most_probable(
    A: Floats, y: Floats, w: Floats, prior: Floats, precision: Floats, base: Floats | float = 0.0
) -> tuple[Floats, Floats]:
    """(coefficients, curvature) of a logistic regression on the columns of A under a Gaussian prior.

    Newton's method, with steps that are halved until the loss falls.
    """

    def loss(at: Floats) -> float:
        return float(_losses(A @ at + base, y, w).sum()) + 0.5 * float((precision * (at - prior) ** 2).sum())

    at = prior.copy()
    for _ in range(STEPS):
        q = sigmoid(A @ at + base)
        gradient = A.T @ (w * (q - y)) + precision * (at - prior)
        curvature = (A * (w * q * (1.0 - q))[:, None]).T @ A + np.diag(precision + 1e-9)
        step, size, before = np.linalg.solve(curvature, gradient), 1.0, loss(at)
        while size > 1e-10 and loss(at - size * step) > before:
            size *= 0.5
        at = at - size * step
        if float(np.abs(gradient).max()) < 1e-10 * len(y) or float(np.abs(size * step).max()) < 1e-12:
            break
    return at, curvature


# --- Structural variance ---


def structural_variance(judged: JudgedPairs, found: Recalibration) -> StructuralVariance:
    """Estimate the structural variances from judged pairs, shrunk to the constants; the total does not fall."""
    if judged.one_kind:
        judged = judged.from_both_ends()
    x = found.line(judged.x, judged.covariates)
    if found.equal_classes and found.pairs:  # back to the natural frequency of likes
        x = x + logit(judged.liked.mean())
    p = sigmoid(x)
    noise, posterior, scale = p * (1.0 - p), np.zeros(len(p)), judged.scale * found.slope**2
    if judged.ends is not None:
        users, items = judged.ends
        posterior = scale * logit_moments(users.side, items.side, users.rows, items.rows)[1].astype(np.float64)
    groups = {"user": Group.of(judged, 0), "item": Group.of(judged, 1)}
    values = {name: getattr(STRUCTURE, name) for name in groups}
    for _ in range(ROUNDS):
        before, v = values, noise / np.sqrt(1.0 + (np.pi / 8.0) * (posterior + add_in_order(values.values())))
        values = {
            name: _shrunk(*_component(judged.liked - p, v, noise, group, scale, before[name]), getattr(STRUCTURE, name))
            for name, group in groups.items()
        }
        if max(abs(values[name] - before[name]) for name in values) < 1e-4:
            break
    return StructuralVariance(**values, pair=max(0.0, STRUCTURE.total - add_in_order(values.values())))


@dataclass(frozen=True)
class Group:
    """Judged pairs grouped by their user, or by their item."""

    of_pair: Rows  # [pairs] group of each pair
    first: Rows  # [groups] a pair of each group
    ends: tuple[Ends, Ends] | None  # the side of the groups, and the other side

    @classmethod
    def of(cls, judged: JudgedPairs, side: int) -> Group:
        """Group the pairs by their users (0) or items (1)."""
        rows = (judged.users, judged.items)[side]
        _, first, of_pair = np.unique(rows, return_index=True, return_inverse=True)
        return cls(of_pair, first, None if judged.ends is None else (judged.ends[side], judged.ends[1 - side]))

    def over_pairs(self, a: Floats, b: Floats) -> Floats:
        """[groups] sum of a_i b_j over all pairs i != j of a group."""
        sums, single = (np.bincount(self.of_pair, values) for values in (a, a * b))
        return np.asarray(sums * (sums if b is a else np.bincount(self.of_pair, b)) - single)

    def known(self, v: Floats) -> Floats:
        """[groups] sum of v_i v_j cov_ij, where cov_ij is the covariance of u'v_i + b and u'v_j + b."""
        if self.ends is None:
            return np.zeros(len(self.first))
        own, other = self.ends
        side = own.side.take(own.rows[self.first])
        answer = side.biases[1].astype(np.float64) * self.over_pairs(v, v)
        for k in range(side.factors):
            term = v * other.side.mean[other.rows, k]
            answer += side.variance[:, k] * self.over_pairs(term, term)
        if side.covariance is not None:
            for i, j, values in zip(*np.tril_indices(side.factors, -1), covariances(side).T):
                answer += 2.0 * values * self.over_pairs(*(v * other.side.mean[other.rows, k] for k in (i, j)))
        return answer


def _component(r: Floats, v: Floats, noise: Floats, group: Group, scale: float, about: float) -> tuple[float, float]:
    """(estimate, standard error) of the variance that the pairs of a group share; (0, infinity) if no group has two.

    The weight of a group is the inverse of its variance, if its pairs share a variance of `about`.
    """
    excess, room = group.over_pairs(r, r) - scale * group.known(v), group.over_pairs(v, v)
    if float(room.sum()) <= 0.0:
        return 0.0, np.inf
    noises, slopes = (np.bincount(group.of_pair, values) for values in (noise, v))
    weight = room / (2.0 * (noises + about * slopes**2) ** 2)
    total = float((weight * room).sum())
    estimate = float((weight * excess).sum()) / total
    spread = float(np.sum((weight * (excess - estimate * room)) ** 2))
    return min(MOST_SHARED, estimate), float(np.sqrt(max(spread, total))) / total


def _shrunk(estimate: float, error: float, constant: float) -> float:
    """The estimate and the constant, averaged by precision; at least 0."""
    share = FAMILIAR**2 / (FAMILIAR**2 + error**2) if np.isfinite(error) else 0.0
    return max(0.0, share * estimate + (1.0 - share) * constant)
