"""The factorised posterior (eq. 6): Gaussians for vectors and biases, Gammas for their precisions.

A side's rows have the form that the kernels read: [mean | variance], each padded with zeros to a multiple of eight
floats; `mean` and `variance` are views of it. A precision omega is 1 / variance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import USERS
from considerate.kernels import compiled
from considerate.kernels.arrays import Spare, empty

Floats = NDArray[np.float32]


def padded(factors: int) -> int:
    """Round the factors up to a multiple of eight."""
    return -(-factors // 8) * 8


@dataclass(frozen=True)
class Side:
    """q(vectors) and q(biases) of all users, or of all items."""

    factors: int
    rows: Floats  # [rows, 2 * padded(factors)]
    bias_mean: Floats | None = None  # [rows]
    bias_variance: Floats | None = None  # [rows]
    covariance: Floats | None = None  # [rows, K (K + 1) / 2] Sigma by rows of its lower triangle; None: diagonal

    def __post_init__(self) -> None:
        assert self.rows.ndim == 2
        assert self.rows.shape[1] == 2 * padded(self.factors)
        assert (self.bias_mean is None) == (self.bias_variance is None)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def mean(self) -> Floats:  # [rows, K], eta
        return self.rows[:, : self.factors]

    @property
    def variance(self) -> Floats:  # [rows, K], 1 / omega
        start = padded(self.factors)
        return self.rows[:, start : start + self.factors]

    @property
    def has_bias(self) -> bool:
        return self.bias_mean is not None

    @property
    def biases(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """(mean, variance) of the biases; zeros if the side has none."""
        if self.bias_mean is None or self.bias_variance is None:
            return np.zeros(len(self), np.float32), np.zeros(len(self), np.float32)
        return self.bias_mean, self.bias_variance

    def arrays(self) -> tuple[Floats, Floats | None, Floats | None]:
        """(rows, means and variances of the biases)."""
        return self.rows, self.bias_mean, self.bias_variance

    def for_kernels(self) -> compiled.Side:
        """The side as the kernels read it."""
        return compiled.Side(self.factors, *self.arrays(), self.covariance)

    def between(self, first: int, last: int) -> Side:
        """Rows first .. last - 1: views."""
        return self.take(slice(first, last))

    def take(self, rows: NDArray[Any] | slice) -> Side:
        """Some rows, by number."""
        arrays = (*self.arrays(), self.covariance)
        return Side(self.factors, *(None if array is None else array[rows] for array in arrays))  # type: ignore[arg-type]

    def with_covariance(self) -> Side:
        """Add diagonal covariances, made of the variances, unless the side has covariances."""
        if self.covariance is not None:
            return self
        size = self.factors * (self.factors + 1) // 2
        covariance = np.zeros((len(self), size), np.float32)
        covariance[:, np.cumsum(np.arange(1, self.factors + 1)) - 1] = self.variance
        return replace(self, covariance=covariance)

    def copy(self) -> Side:
        """A copy, without covariances."""
        return Side(self.factors, *(None if array is None else array.copy() for array in self.arrays()))  # type: ignore[arg-type]

    def put(self, rows: NDArray[Any], values: Side) -> None:
        """Overwrite some rows, without their covariances."""
        for mine, theirs in zip(self.arrays(), values.arrays()):
            if mine is not None and theirs is not None:
                mine[rows] = theirs

    @classmethod
    def of(
        cls, mean: NDArray[Any], variance: NDArray[Any], bias: tuple[NDArray[Any], NDArray[Any]] | None = None
    ) -> Side:
        """Make a side from means and variances, [rows, K] each."""
        count, factors = mean.shape
        rows = empty((count, 2 * padded(factors)), np.float32)
        rows[:] = 0.0
        rows[:, :factors] = mean
        rows[:, padded(factors) : padded(factors) + factors] = variance
        if bias is None:
            return cls(factors, rows)
        return cls(factors, rows, np.array(bias[0], np.float32), np.array(bias[1], np.float32))

    @classmethod
    def constant(
        cls, rows: int, factors: int, variance: float, bias_variance: float | None = None, spare: Spare | None = None
    ) -> Side:
        """Make a side with means of zero and one variance for all coordinates."""
        packed = empty((rows, 2 * padded(factors)), np.float32, spare)
        packed[:] = 0.0
        packed[:, padded(factors) : padded(factors) + factors] = variance
        if bias_variance is None:
            return cls(factors, packed)
        return cls(factors, packed, np.zeros(rows, np.float32), np.full(rows, bias_variance, np.float32))

    def empty_like(self, spare: Spare | None = None) -> Side:
        """Make an unfilled side of the same shape, in spare memory if possible. A pass fills it, padding too."""
        rows = empty(self.rows.shape, np.float32, spare)
        covariance = None if self.covariance is None else np.empty_like(self.covariance)
        if self.bias_mean is None:
            return Side(self.factors, rows, covariance=covariance)
        return Side(self.factors, rows, np.empty_like(self.bias_mean), np.empty_like(self.bias_mean), covariance)


def mirrored(side: Side, signed: bool) -> Side:
    """S v of each vertex, so that u'S v is an inner product: with `signed` the means of the second half of the
    coordinates change sign, else nothing changes."""
    if not signed:
        return side
    rows = side.rows.copy()
    rows[:, (side.factors + 1) // 2 : side.factors] *= -1.0
    return Side(side.factors, rows, side.bias_mean, side.bias_variance)


@dataclass(frozen=True)
class Gamma:
    """q(tau) = Gamma(shape, rate)."""

    shape: float
    rate: float

    @property
    def mean(self) -> float:
        return self.shape / self.rate

    @property
    def mean_log(self) -> float:
        """E[log tau]"""
        from scipy.special import digamma

        return float(digamma(self.shape)) - math.log(self.rate)


@dataclass(frozen=True)
class Precisions:
    """Gamma posteriors of the precisions; a side without biases has no precision of biases."""

    user: Gamma
    item: Gamma
    user_bias: Gamma | None = None
    item_bias: Gamma | None = None

    def means(self) -> dict[str, float]:
        """E[tau] by name."""
        return {name: gamma.mean for name, gamma in vars(self).items() if gamma is not None}

    def means_of(self, side: str) -> tuple[float, float]:
        """E[tau] of a side's vectors and of its biases; 1 if it has no biases."""
        means, name = self.means(), "user" if side == USERS else "item"
        return means[name], means.get(f"{name}_bias", 1.0)


@dataclass(frozen=True)
class Posterior:
    """Whole posterior q(theta), factorised (eq. 6)."""

    users: Side
    items: Side
    precisions: Precisions
    # Any, as these modules import this one: FeatureWeights (features.py) of the sides that have features, and the
    # NormalWishart hyperpriors of users and items (wishart.py) that stand in for the precisions.
    user_weights: Any = None
    item_weights: Any = None
    hyperpriors: Any = None

    @property
    def factors(self) -> int:
        return self.users.factors

    def prior_spread(self) -> float:
        """sqrt(K / (E[tau_u] E[tau_v])), the prior standard deviation of u'v. The data fix only this of the taus."""
        return math.sqrt(self.factors / (self.precisions.user.mean * self.precisions.item.mean))
