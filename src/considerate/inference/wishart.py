"""Normal-Wishart hyperprior of a side's vectors, in place of N(0, I / tau) (section 3 of the paper).

    x_m ~ N(mu, Lambda^-1),    mu | Lambda ~ N(0, (beta0 Lambda)^-1),    Lambda ~ Wishart(W0, nu0)

q(mu, Lambda) has the same form. It reads only two messages from the rows, sum E[x] and sum E[x x'], which add up over
blocks like the sums of eq. 20. The rows read E[Lambda] and E[Lambda mu]: P += E[Lambda], z += E[Lambda mu].
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.inference.posterior import Side

CHUNK = 1 << 14  # rows whose messages are summed together
BETA = 1.0  # beta0: the prior has the weight of one row at zero

Array = NDArray[np.float64]


@dataclass(frozen=True)
class NormalWishart:
    """q(mu, Lambda) from the messages of `count` rows. nu0 = K, and W0^-1 = 2 rate I, like K Gammas of that rate."""

    count: int
    first: Array  # [K] sum E[x]
    second: Array  # [K, K] sum E[x x']
    prior_rate: float

    @classmethod
    def of(cls, side: Side, prior_rate: float) -> NormalWishart:
        """Maximize the bound exactly, given the rows."""
        return cls(len(side), *messages(side), prior_rate)

    def blended(self, old: NormalWishart | None, epsilon: float) -> NormalWishart:
        """Step of size epsilon, which averages the messages, as they are natural parameters (eq. 17)."""
        if old is None:
            return self
        first = epsilon * self.first + (1.0 - epsilon) * old.first
        return replace(self, first=first, second=epsilon * self.second + (1.0 - epsilon) * old.second)

    @property
    def factors(self) -> int:
        return len(self.first)

    @property
    def beta(self) -> float:
        return BETA + self.count

    @property
    def degrees(self) -> float:
        """nu, the degrees of freedom of q(Lambda)."""
        return float(self.factors + self.count)

    @property
    def mean(self) -> Array:
        """E[mu]"""
        return self.first / self.beta

    @cached_property
    def _scale(self) -> tuple[Array, float]:
        """W and log |W|: W^-1 = W0^-1 + sum E[x x'] - beta E[mu] E[mu]'."""
        inverse = 2.0 * self.prior_rate * np.eye(self.factors) + self.second
        return inverse_of(inverse - self.beta * np.multiply.outer(self.mean, self.mean))

    @property
    def precision(self) -> Array:
        """E[Lambda] = nu W"""
        return self.degrees * self._scale[0]

    @property
    def pull(self) -> Array:
        """E[Lambda mu] = E[Lambda] E[mu]"""
        return np.asarray((self.precision * self.mean).sum(axis=1))

    @property
    def mean_log_determinant(self) -> float:
        """E[log |Lambda|]"""
        from scipy.special import digamma

        halves = 0.5 * (self.degrees - np.arange(self.factors))
        return float(digamma(halves).sum()) + self.factors * math.log(2.0) + self._scale[1]

    @property
    def _centre_square(self) -> float:
        """E[mu' Lambda mu]"""
        return self.factors / self.beta + float((self.mean * self.pull).sum())

    def rows_term(self, messages: tuple[Array, Array], log_determinant: float) -> float:
        """E[log N(x; mu, Lambda^-1)] + H[q(x)] of all rows, from their messages and sum log |Sigma|."""
        first, second = messages
        square = float((self.precision * second).sum()) - 2.0 * float((self.pull * first).sum())
        square += self.count * self._centre_square
        return 0.5 * (self.count * (self.mean_log_determinant + self.factors) - square + log_determinant)

    def own_term(self) -> float:
        """E[log p(mu, Lambda)] + H[q(mu, Lambda)]."""
        K, nu, (_, log_scale) = self.factors, self.degrees, self._scale
        mean = 0.5 * (K * math.log(BETA / self.beta) - BETA * self._centre_square + K)
        prior_log_scale = -K * math.log(2.0 * self.prior_rate)
        trace = 2.0 * self.prior_rate * float(np.trace(self.precision))
        scale = log_normaliser(K, K, prior_log_scale) - log_normaliser(K, nu, log_scale)
        return mean + scale + 0.5 * ((K - nu) * self.mean_log_determinant - trace + nu * K)


def log_normaliser(factors: int, degrees: float, log_scale: float) -> float:
    """log B(W, nu) of the Wishart's density."""
    from scipy.special import multigammaln

    return -0.5 * degrees * (log_scale + factors * math.log(2.0)) - float(multigammaln(0.5 * degrees, factors))


def messages(side: Side) -> tuple[Array, Array]:
    """Sum E[x] and E[x x'] over the rows of a side, in float64 and always in the same order."""
    K = side.factors
    first, second = np.zeros(K), np.zeros((K, K))
    for start in range(0, len(side), CHUNK):
        rows = side.between(start, start + CHUNK)
        mean = rows.mean.astype(np.float64)
        first += mean.sum(axis=0)
        second += np.einsum("mk,ml->kl", mean, mean)
        second += summed_covariance(rows)
    return first, second


def summed_covariance(side: Side) -> Array:
    """Sum of Sigma over rows."""
    if side.covariance is None:
        return np.diag(side.variance.sum(axis=0, dtype=np.float64))
    return unpack(side.covariance.sum(axis=0, dtype=np.float64), side.factors)


def unpack(triangle: NDArray[Any], factors: int) -> Array:
    """Make a symmetric matrix from its lower triangle by rows."""
    matrix = np.zeros((factors, factors))
    matrix[np.tril_indices(factors)] = triangle
    return matrix + np.tril(matrix, -1).T


def inverse_of(matrix: Array) -> tuple[Array, float]:
    """Inverse of a positive matrix, and log of the inverse's determinant. No BLAS, so the bits are always the same."""
    size = len(matrix)
    work, log_determinant = np.concatenate([matrix, np.eye(size)], axis=1), 0.0
    for k in range(size):
        log_determinant -= math.log(work[k, k])
        work[k] /= work[k, k]
        others = np.arange(size) != k
        work[others] -= work[others, k, None] * work[k]
    inverse = work[:, size:]
    return 0.5 * (inverse + inverse.T), log_determinant
