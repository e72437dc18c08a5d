"""Features in the hyperpriors: the prior mean of a row's vector and bias depends on its features (section 7).

    u_m ~ N(A'f_m, I / tau_u),    a_fk ~ N(0, 1 / tau_A),    tau_A ~ Gamma;    items likewise, biases with beta

q(A) is Gaussian, with one covariance for all columns:

    Lambda = E[tau_A] I + E[tau_u] F'F,    mean = Lambda^-1 E[tau_u] F'E[U]
    in eq. 20 of tau_u, the sum of E[u^2] is  sum |eta_m - A'f_m|^2 + sum 1 / omega + K tr(F'F Lambda^-1)
    in eq. 20 of tau_A, it is  |A|^2 + K tr(Lambda^-1)

With more than `DENSE` features Lambda is not inverted: q(A) is factorised, with the precision Lambda_ff of feature f.
Its mean is the same. Conjugate gradients find it, starting from the mean of the last sweep. Each of their iterations
raises the bound, so a few are enough, and no sweep lowers it. F'F is sparse then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from considerate.data.features import Features
from considerate.data.graph import ITEMS, USERS, Range, Run, map_along_tree
from considerate.errors import DataError, UsageError
from considerate.inference.plan import FitPlan
from considerate.inference.posterior import Gamma, Posterior, Side
from considerate.inference.prior import SHARED, Prior, Priors
from considerate.inference.updates import update_precision
from considerate.kernels import compiled

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

Doubles = NDArray[np.float64]

DENSE = 1024  # features up to which q(A) has a full covariance: F^3 / 3 multiplications in each sweep
MOST_PAIRS = 1 << 29  # pairs of features of one row, summed over rows: limit on the work and memory of F'F
DELAY = 2  # sweeps before the first step of q(A): vectors are still near their random start
RELAXATION = 1.5  # length of the means' step: 1 reaches the argmax, 2 leaves the bound as it was
ITERATIONS = 10  # of conjugate gradients, at most, in a sweep
TOLERANCE = 1e-7  # of their residual, relative


@dataclass(frozen=True)
class Regression:
    """q of all features' weights for some coordinates: N(mean_c, covariance) for each, and q(tau_A)."""

    mean: Doubles  # [F, C]
    spread: Doubles  # [F, F] L^-1, with covariance L^-T L^-1; or [F] the variances of a factorised q
    tau: Gamma
    trace: float  # tr(F'F covariance)

    @property
    def factorised(self) -> bool:
        return self.spread.ndim == 1

    @property
    def square(self) -> float:
        """sum of E[a^2]."""
        of_one = self.spread.sum() if self.factorised else (self.spread**2).sum()
        return float((self.mean**2).sum() + self.mean.shape[1] * of_one)

    @property
    def log_variance(self) -> float:
        """The log determinant of the covariance, for all coordinates."""
        of_one = np.log(self.spread).sum() if self.factorised else 2.0 * np.log(np.diagonal(self.spread)).sum()
        return float(self.mean.shape[1] * of_one)

    def variances(self, rows: FeatureRows) -> Doubles:
        """f'Lambda^-1 f of each row."""
        if self.factorised:
            return np.asarray(rows.matrix.power(2) @ self.spread)
        return np.asarray(((rows.matrix @ self.spread.T) ** 2).sum(axis=1))


def spread_shape(count: int) -> tuple[int, ...]:
    """Shape of `Regression.spread` with so many features."""
    return (count, count) if count <= DENSE else (count,)


@dataclass(frozen=True)
class FeatureWeights:
    """q of a side's feature weights: A of the vectors, beta of the biases if it has any."""

    vectors: Regression
    biases: Regression | None = None

    @property
    def parts(self) -> list[Regression]:
        return [self.vectors, *([] if self.biases is None else [self.biases])]

    def means(self) -> FeatureWeights:
        """Means without variances, which is all that priors need."""
        vectors, *biases = (replace(part, spread=part.spread[:0]) for part in self.parts)
        return FeatureWeights(vectors, *biases)

    def prior(self, rows: FeatureRows) -> Prior:
        """Prior means A'f and f'beta for rows of the fit; their precision stays tau."""
        bias_mean = None if self.biases is None else (rows.matrix @ self.biases.mean)[:, 0]
        return Prior.of(rows.matrix @ self.vectors.mean, bias_mean=bias_mean)

    def cold_prior(self, rows: FeatureRows, taus: tuple[float, float]) -> Prior:
        """Prior N(A'f, 1 / tau + f'Lambda^-1 f) for rows not in the fit; taus: E[tau] of vectors and of biases."""
        mean = rows.matrix @ self.vectors.mean
        precision = 1.0 / (1.0 / taus[0] + self.vectors.variances(rows))
        precision = np.repeat(precision[:, None], mean.shape[1], axis=1)
        if self.biases is None:
            return Prior.of(mean, precision)
        bias_mean = (rows.matrix @ self.biases.mean)[:, 0]
        return Prior.of(mean, precision, bias_mean, 1.0 / (1.0 / taus[1] + self.biases.variances(rows)))


@dataclass(frozen=True)
class FeatureRows:
    """Features of some rows of a side, ready for products; no BLAS, so the bits do not depend on its threads."""

    features: Features

    @cached_property
    def matrix(self) -> csr_matrix:
        """[rows, F]"""
        from scipy.sparse import csr_matrix

        features = self.features
        shape = features.rows, features.count
        return csr_matrix((features.values.astype(np.float64), features.indices, features.starts), shape)

    def gram(self) -> csr_matrix:
        """F'F of these rows."""
        pairs = int((np.diff(self.features.starts) ** 2).sum())
        if pairs > MOST_PAIRS and self.features.count > DENSE:
            raise UsageError(
                f"the rows have {pairs:,} pairs of features in all, which is more than {MOST_PAIRS:,}; keep fewer "
                "features to a row, such as the tags that are given most often."
            )
        return (self.matrix.T @ self.matrix).tocsr()

    def sums(self, side: Side) -> Doubles:
        """F'E[U] of these rows, [F, K], and F'E[b] as one more column if the side has biases."""
        means = side.mean.astype(np.float64)
        if side.has_bias:
            means = np.concatenate([means, side.biases[0][:, None]], axis=1)
        return np.asarray(self.matrix.T @ means)


def _inverse_factor(precision: Doubles) -> Doubles:
    """L^-1 of a precision L L'. Raise DataError if rounding hides the differences of features."""
    diagonal = np.diagonal(precision)
    try:
        spread = compiled.inverse_factor(precision)
        lost = bool((diagonal * np.diagonal(spread) ** 2 * len(diagonal) * np.finfo(np.float64).eps > 1.0).any())
    except ValueError:  # not positive definite
        lost = True
    if lost:
        raise DataError(
            f"features of a length of up to {np.sqrt(diagonal.max()):.3g} are so nearly equal, or sums of others, that "
            "their weights cannot be told apart; leave out those that repeat others, or divide each by its deviation."
        )
    return spread


@dataclass(frozen=True)
class Gram:
    """F'F of a side: dense if q(A) has a full covariance, else sparse."""

    matrix: Any  # [F, F]

    @classmethod
    def of(cls, matrix: csr_matrix) -> Gram:
        return cls(matrix.toarray() if len(spread_shape(matrix.shape[0])) == 2 else matrix)

    @property
    def count(self) -> int:
        """Number of features F."""
        return int(self.matrix.shape[0])

    def posterior(self, old: Regression, sums: Doubles, tau: float) -> Regression:
        """q(A) from F'E[U] and E[tau], given E[tau_A]."""
        tau_A, target = old.tau.mean, tau * sums
        if isinstance(self.matrix, np.ndarray):
            spread = _inverse_factor(tau_A * np.eye(self.count) + tau * self.matrix)
            mean = np.einsum("ji,jc->ic", spread, np.einsum("ij,jc->ic", spread, target))
            trace = (self.count - tau_A * float((spread**2).sum())) / tau
            return replace(old, mean=mean, spread=spread, trace=trace)
        diagonal = self.matrix.diagonal()
        spread = 1.0 / (tau_A + tau * diagonal)
        mean = self._conjugate_gradients(old.mean, target, tau_A, tau, spread)
        return replace(old, mean=mean, spread=spread, trace=float((diagonal * spread).sum()))

    def _conjugate_gradients(
        self, start: Doubles, target: Doubles, tau_A: float, tau: float, inverse: Doubles
    ) -> Doubles:
        """Lambda^-1 target, all columns at once, from a start. Each iteration raises the bound."""

        def dot(a: Doubles, b: Doubles) -> Doubles:
            return np.asarray((a * b).sum(axis=0))

        mean, small = start, TOLERANCE**2 * dot(target, target)
        residual = target - (tau_A * start + tau * (self.matrix @ start))
        scaled = inverse[:, None] * residual
        direction, height = scaled, dot(residual, scaled)
        for _ in range(ITERATIONS):
            live = dot(residual, residual) > small
            if not live.any():
                break
            turned = tau_A * direction + tau * (self.matrix @ direction)
            step = np.where(live, height / np.where(live, dot(direction, turned), 1.0), 0.0)
            mean, residual = mean + step * direction, residual - step * turned
            scaled = inverse[:, None] * residual
            before, height = height, dot(residual, scaled)
            direction = scaled + np.where(live, height / np.where(live, before, 1.0), 0.0) * direction
        return mean


def initial_weights(gram: Gram, taus: tuple[float, float | None], plan: FitPlan) -> FeatureWeights:
    """Feature weights with a mean of zero; taus: E[tau] of the side's vectors, and of its biases if it has any."""

    def of(columns: int, tau: float) -> Regression:
        shape = plan.prior_shape + 0.5 * gram.count * columns
        nothing = np.zeros((gram.count, columns))
        held = Gamma(shape, shape * plan.prior_rate / plan.prior_shape)
        return gram.posterior(Regression(nothing, np.empty(0), held, 0.0), nothing, tau)

    return FeatureWeights(of(plan.factors, taus[0]), None if taus[1] is None else of(1, taus[1]))


def step_weights(
    old: FeatureWeights, gram: Gram, sums: Doubles, taus: tuple[float, float], plan: FitPlan
) -> FeatureWeights:
    """Step q(A) and q(beta) given the side's means, F'E[U], then their precisions (eq. 20).

    The means go beyond the bound's argmax. The bound is a quadratic of them, so a step up to twice as long does not
    lower it. Rows with few likes, which follow A as A follows them, then settle sooner.
    """

    def step(weights: Regression, columns: Doubles, tau: float) -> Regression:
        new = gram.posterior(weights, columns, tau)
        if weights.mean.any():
            new = replace(new, mean=weights.mean + RELAXATION * (new.mean - weights.mean))
        return replace(
            new, tau=update_precision(new.tau, plan.prior_shape, plan.prior_rate, new.mean.size, new.square, 1.0)
        )

    vectors = step(old.vectors, sums[:, : plan.factors], taus[0])
    return FeatureWeights(vectors, None if old.biases is None else step(old.biases, sums[:, plan.factors :], taus[1]))


class FeatureSide(Protocol):
    """Features of a side, in this process or with its parts."""

    @property
    def gram(self) -> Gram: ...

    def sums(self, side: Side, run: Run[Any, Any]) -> Doubles: ...


@dataclass(frozen=True)
class SideFeatures:
    """Features of all rows of a side in this process, cut at the boundaries of its parts."""

    parts: Sequence[tuple[Range, FeatureRows]]
    gram: Gram

    @classmethod
    def of(cls, features: Features, parts: Sequence[Range], run: Run[Any, Any]) -> SideFeatures:
        rows = [(part, FeatureRows(features.take(np.arange(*part)))) for part in parts]
        return cls(rows, Gram.of(map_along_tree(lambda one: one[1].gram(), rows, run, lambda a, b: a + b)))

    def sums(self, side: Side, run: Run[Any, Any]) -> Doubles:
        """F'E[U], added along the tree over parts."""

        def of_part(part: tuple[Range, FeatureRows]) -> Doubles:
            return part[1].sums(side.between(*part[0]))

        return map_along_tree(of_part, self.parts, run, np.add)

    def prior(self, weights: FeatureWeights, run: Run[Any, Any]) -> Prior:
        """Priors A'f and f'beta of all rows."""
        return Prior.joined(run(lambda part: weights.prior(part[1]), self.parts))


@dataclass(frozen=True)
class FitFeatures:
    """Features of users and items; None for a side without any."""

    users: FeatureSide | None = None
    items: FeatureSide | None = None

    def __bool__(self) -> bool:
        return self.users is not None or self.items is not None

    def begin(self, q: Posterior, plan: FitPlan) -> Posterior:
        """Add the weights before the first sweep to a posterior."""
        taus = q.precisions

        def of(side: FeatureSide | None, tau: Gamma, tau_bias: Gamma | None) -> FeatureWeights | None:
            means = tau.mean, None if tau_bias is None else tau_bias.mean
            return None if side is None else initial_weights(side.gram, means, plan)

        users, items = of(self.users, taus.user, taus.user_bias), of(self.items, taus.item, taus.item_bias)
        return replace(q, user_weights=users, item_weights=items)

    def step(self, q: Posterior, plan: FitPlan, run: Run[Any, Any]) -> Posterior:
        """Step q(A) of both sides, given all vectors and biases."""

        def of(side: FeatureSide | None, name: str, rows: Side, old: FeatureWeights | None) -> FeatureWeights | None:
            if side is None or old is None:
                return old
            return step_weights(old, side.gram, side.sums(rows, run), q.precisions.means_of(name), plan)

        users = of(self.users, USERS, q.users, q.user_weights)
        return replace(q, user_weights=users, item_weights=of(self.items, ITEMS, q.items, q.item_weights))

    def priors(self, q: Posterior, run: Run[Any, Any]) -> Priors:
        """Priors of this process's rows, at the weights of q."""

        def of(side: FeatureSide | None, weights: FeatureWeights | None) -> Prior:
            return side.prior(weights, run) if isinstance(side, SideFeatures) and weights is not None else SHARED

        return Priors(of(self.users, q.user_weights), of(self.items, q.item_weights))
