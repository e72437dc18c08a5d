"""The bound L_xi (eq. 12), term by term. Sweeps raise it.

It leaves out -KL(q(H) || p(H)), which depends on c, pi and w alone: never choose these by the bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from considerate.inference.posterior import Gamma
from considerate.inference.prior import SHARED, Prior
from considerate.inference.updates import Moments
from considerate.kernels.arrays import add_in_order

if TYPE_CHECKING:
    from considerate.inference.features import FeatureWeights


@dataclass(frozen=True)
class Bound:
    """L_xi (eq. 12) and its terms. It is below L (eq. 10), which is below log p(G | H).

    `edges` is E[log p_xi(G | H, ...)] at the best xi, times rho. Each other term is E[log p] + entropy of one factor,
    its negative Kullback-Leibler divergence from the prior. Weights of features count with the side they predict.
    """

    edges: float
    users: float
    items: float
    user_biases: float
    item_biases: float
    precisions: float

    @property
    def total(self) -> float:
        return math.fsum(getattr(self, field.name) for field in fields(self))

    def terms(self) -> dict[str, float]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True)
class GivenPrecisions:
    """Given precisions t of single rows, in place of one tau. The squares are then sums of t E[(x - m)^2]."""

    mean_log: float
    mean: float = 1.0


def gaussian_term(count: int, square: float, log_variance: float, tau: Gamma | GivenPrecisions) -> float:
    """E[log N(x; 0, 1/tau)] + H[q(x)] over `count` coordinates.

    count/2 (E[log tau] - log 2 pi) - E[tau]/2 sum E[x^2]  +  1/2 sum (1 + log 2 pi + log variance)
    """
    return 0.5 * (count * (tau.mean_log + 1.0) - tau.mean * square + log_variance)


def gamma_term(tau: Gamma, prior_shape: float, prior_rate: float) -> float:
    """E[log Gamma(tau; alpha, beta)] + H[q(tau)]."""
    from scipy.special import digamma, gammaln

    prior = prior_shape * math.log(prior_rate) - float(gammaln(prior_shape))
    prior += (prior_shape - 1.0) * tau.mean_log - prior_rate * tau.mean
    entropy = tau.shape - math.log(tau.rate) + float(gammaln(tau.shape))
    return prior + entropy + (1.0 - tau.shape) * float(digamma(tau.shape))


def side_terms(
    counts: tuple[int, int], moments: Moments, tau: Gamma, tau_bias: Gamma | None, prior: Prior = SHARED
) -> tuple[float, float]:
    """Bound's terms of a side's vectors and of its biases; `counts` are rows and factors."""
    rows, factors = counts
    given = tau if prior.precision is None else GivenPrecisions(prior.log_precision / (rows * factors))
    vectors = gaussian_term(rows * factors, moments.square, moments.log_variance, given)
    if tau_bias is None:
        return vectors, 0.0
    given = tau_bias if prior.bias_precision is None else GivenPrecisions(prior.bias_log_precision / rows)
    return vectors, gaussian_term(rows, moments.bias_square, moments.bias_log_variance, given)


def weights_terms(weights: FeatureWeights | None) -> tuple[float, float]:
    """Bound's terms of a side's feature weights, for its vectors and for its biases."""
    if weights is None:
        return 0.0, 0.0
    terms = [gaussian_term(one.mean.size, one.square, one.log_variance, one.tau) for one in weights.parts]
    return terms[0], add_in_order(terms[1:])
