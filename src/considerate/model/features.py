"""Learned features of a side, which predict rows and pi of items without likes, and their importance.

A row without likes is at its prior, with the variance of A included: N(A'f, 1 / tau + f'Lambda^-1 f) in each
coordinate, see inference/features.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from considerate.data.features import INTERCEPT, Features
from considerate.inference.features import FeatureRows, FeatureWeights
from considerate.inference.posterior import Precisions, Side
from considerate.inference.prior import Prior

RIDGE = 3.0  # penalty of the regression of log degree on features
TOLERANCE, MOST_STEPS = 1e-10, 500  # of conjugate gradients


class Importance(NamedTuple):
    """Importance of one feature."""

    name: str
    rows: int  # rows with the feature; 0 for users, whose features are not kept
    effect: float  # |A_f|: distance that the feature moves a vector
    deviations: float  # |A_f| / sqrt(K var): about 1 if the likes have no information on it
    bias: float  # beta_f


@dataclass(frozen=True)
class LearnedFeatures:
    """q(A) and q(beta) of the features of one side, and the features of its rows."""

    features: Features  # features of the items' rows; without rows for users, who may be in other processes
    weights: FeatureWeights

    @property
    def names(self) -> tuple[str, ...]:
        return self.features.names

    @property
    def bias_mean(self) -> NDArray[np.float64]:
        """E[beta], [F]; zeros without biases."""
        biases = self.weights.biases
        return np.zeros(len(self.names)) if biases is None else biases.mean[:, 0]

    def with_rows(self, features: Features) -> LearnedFeatures:
        return replace(self, features=features)

    def prior(self, features: Features) -> Prior:
        """Prior of rows with likes, as in the fit."""
        return self.weights.prior(FeatureRows(features))

    def cold_rows(self, features: Features, precisions: Precisions, side: str, weight: float) -> Side:
        """q of rows without likes. Predictions multiply variances by the likelihood's `weight`. No likelihood has
        narrowed these variances, so they are divided by it."""
        taus = precisions.means()
        prior = self.weights.cold_prior(FeatureRows(features), (taus[side], taus.get(f"{side}_bias", 1.0)))
        assert prior.mean is not None
        assert prior.precision is not None
        K = self.weights.vectors.mean.shape[1]
        vectors = prior.mean[:, :K], 1.0 / (weight * prior.precision[:, :K])
        if prior.bias_mean is None or prior.bias_precision is None:
            return Side.of(*vectors)
        return Side.of(*vectors, (prior.bias_mean, 1.0 / (weight * prior.bias_precision)))

    def importance(self) -> list[Importance]:
        """Importance of each feature, with the feature that moves vectors most first."""
        weights, rows = self.weights.vectors, np.bincount(self.features.indices, minlength=len(self.names))
        variance = weights.spread if weights.factorised else (weights.spread**2).sum(axis=0)
        length, chance = np.sqrt((weights.mean**2).sum(axis=1)), np.sqrt(weights.mean.shape[1] * variance)
        columns = (column.tolist() for column in (rows, length, length / chance, self.bias_mean))
        found = [Importance(*values) for values in zip(self.names, *columns) if values[0] != INTERCEPT]
        return sorted(found, key=lambda feature: -feature.effect)


def predicted_degree(features: Features, degree: NDArray[np.int64], new: Features) -> NDArray[np.float64]:
    """Predict the degrees of new items from their features: exp of a ridge regression of log degree on the items with
    likes. Conjugate gradients solve its normal equations, so F may be large."""
    liked = np.flatnonzero(degree > 0)
    matrix, logs = FeatureRows(features.take(liked)).matrix, np.log(degree[liked])
    centre = float(logs.mean())
    residual = np.asarray(matrix.T @ (logs - centre))
    weights, step = np.zeros(features.count), residual
    size = begun = float((residual * residual).sum())
    for _ in range(MOST_STEPS):
        if size <= TOLERANCE * begun:
            break
        pushed = matrix.T @ (matrix @ step) + RIDGE * step
        along = size / float((step * pushed).sum())
        weights, residual = weights + along * step, residual - along * pushed
        size, before = float((residual * residual).sum()), size
        step = residual + size / before * step
    return np.asarray(np.exp(centre + FeatureRows(new).matrix @ weights))
