"""Specification of the kernels in NumPy, written to be read: float64, one edge or one row at a time.

The compiled kernels compute the same in float32, many rows at a time; tests compare them with this file.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def log_likelihood(g: Array | float, a: Array | float, h: Array | float) -> Array:
    """log p(g | a, h) (eq. 3): of a considered pair, that of the coin (eq. 2); of any other pair 0, as g must be 0.

    log p = h (g log sigma(a) + (1 - g) log(1 - sigma(a)))
    """
    return np.asarray(-h * (g * np.logaddexp(0.0, -np.asarray(a)) + (1 - g) * np.logaddexp(0.0, np.asarray(a))))


def logistic_curvature(xi: Array | float) -> Array:
    """lambda(xi) = tanh(xi / 2) / (4 xi), and 1/8 at 0 (eq. 11)."""
    xi = np.abs(np.asarray(xi, np.float64))
    small = xi < 1e-4
    safe = np.where(small, 1.0, xi)
    return np.where(small, 0.125 - xi**2 / 96, np.tanh(safe / 2) / (4 * safe))


def log_logistic_bound(a: Array, a_squared: Array, g: Array | float, xi: Array | float) -> Array:
    """The logistic bound on E[log l] of an edge of H, from E[a] and E[a^2] (eq. 11).

    g a + log sigma(xi) - (a + xi) / 2 - lambda(xi) (a^2 - xi^2)
    """
    xi = np.asarray(xi, np.float64)
    return np.asarray(g * a - np.logaddexp(0.0, -xi) - (a + xi) / 2 - logistic_curvature(xi) * (a_squared - xi**2))


def logit_moments(
    u: Array,
    u_variance: Array,
    v: Array,
    v_variance: Array,
    bias: Array | float,
    bias_variance: Array | float,
) -> tuple[Array, Array]:
    """E[a] and E[a^2] of a = u'v + b (eq. 16). The last axis runs over the K coordinates.

    E[a^2] = E[a]^2 + sum_k (eta_u^2 s_v + eta_v^2 s_u + s_u s_v) + var b
    """
    mean = (u * v).sum(axis=-1) + bias
    spread = (u**2 * v_variance + v**2 * u_variance + u_variance * v_variance).sum(axis=-1)
    return mean, mean**2 + spread + bias_variance


def logistic_expectations(mean: Array, variance: Array, nodes: int = 10) -> tuple[Array, Array, Array]:
    """E[log sigma(a)], E[sigma(a)] and E[sigma'(a)] under a ~ N(mean, variance), by Gauss-Hermite quadrature."""
    x, weights = np.polynomial.hermite_e.hermegauss(nodes)
    a = np.asarray(mean)[..., None] + np.sqrt(variance)[..., None] * x
    sigma, weights = np.exp(-np.logaddexp(0.0, -a)), weights / weights.sum()
    return -np.logaddexp(0.0, -a) @ weights, sigma @ weights, (sigma * (1.0 - sigma)) @ weights


@dataclass(frozen=True)
class Row:
    """q of one vertex: vector and bias."""

    mean: Array  # [K]
    variance: Array  # [K]
    bias: float = 0.0
    bias_variance: float = 0.0


@dataclass(frozen=True)
class RowSums:
    """The natural-gradient sums of one row over its edges, without the prior."""

    P: Array  # [K, K]
    z: Array  # [K]
    bias_P: float
    bias_z: float
    bound: float


def row_sums(
    own: Row,
    others: Sequence[Row],
    liked: Sequence[bool],
    *,
    offset: float = 0.0,
    likelihood_weight: float = 1.0,
    considered: Sequence[float] | None = None,
    xi: Sequence[float] | None = None,
) -> RowSums:
    """Sums over the edges of H at one vertex (eq. 13, 15, 19), each at its best xi (eq. 16) or the one given.

        P = sum 2 lambda(xi) E[v v'],    z = sum (g - 1/2 - 2 lambda(xi) E[b]) E[v]

    `considered` is E[h] of each edge, 1 for a drawn H; `likelihood_weight` is rho.
    """
    factors = len(own.mean)
    P, z, bias_P, bias_z, bound = np.zeros((factors, factors)), np.zeros(factors), 0.0, 0.0, 0.0
    for e, (other, like) in enumerate(zip(others, liked)):
        h = likelihood_weight * (1.0 if considered is None else considered[e])
        bias = own.bias + other.bias + offset
        a, a_squared = logit_moments(
            own.mean, own.variance, other.mean, other.variance, bias, own.bias_variance + other.bias_variance
        )
        at = math.sqrt(float(a_squared)) if xi is None else xi[e]
        curvature = 2.0 * float(logistic_curvature(at))
        half = (1.0 if like else 0.0) - 0.5
        P += h * curvature * (np.outer(other.mean, other.mean) + np.diag(other.variance))
        z += h * (half - curvature * bias) * other.mean
        bias_P += h * curvature
        bias_z += h * (half - curvature * (float(a) - own.bias))
        bound += h * float(log_logistic_bound(a, a_squared, float(like), at))
    return RowSums(P, z, bias_P, bias_z, bound)


@dataclass(frozen=True)
class FullRow:
    """q of one vertex, with a covariance."""

    mean: Array  # [K]
    covariance: Array  # [K, K] Sigma
    bias: float = 0.0
    bias_variance: float = 0.0


def full_logit_moments(own: FullRow, other: FullRow, offset: float = 0.0) -> tuple[float, float]:
    """E[a] and var[a] of a = u'v + b (eq. 16 with covariances).

    var a = u'Sigma_v u + v'Sigma_u v + tr(Sigma_u Sigma_v) + var b
    """
    mean = own.mean @ other.mean + own.bias + other.bias + offset
    spread = own.mean @ other.covariance @ own.mean + other.mean @ own.covariance @ other.mean
    spread += np.trace(own.covariance @ other.covariance)
    return float(mean), float(spread + own.bias_variance + other.bias_variance)


def full_row_sums(
    own: FullRow,
    others: Sequence[FullRow],
    liked: Sequence[bool],
    *,
    offset: float = 0.0,
    likelihood_weight: float = 1.0,
    quadrature: bool = False,
) -> RowSums:
    """`row_sums` with E[v v'] = eta eta' + Sigma, by the logistic bound or by quadrature over a ~ N(E[a], var[a]).

    p = 2 lambda(xi), y = g - 1/2                                  by the bound
    p = E[sigma'(a)], y = g - E[sigma(a)] + p E[a]                 by quadrature
    P = sum p E[v v'],    z = sum (y - p E[b]) E[v]
    """
    factors = len(own.mean)
    P, z, bias_P, bias_z, bound = np.zeros((factors, factors)), np.zeros(factors), 0.0, 0.0, 0.0
    for other, like in zip(others, liked):
        a, variance = full_logit_moments(own, other, offset)
        if quadrature:
            log_sigma, sigma, slope = (float(part) for part in logistic_expectations(np.array(a), np.array(variance)))
            p, y, height = slope, float(like) - sigma + slope * a, log_sigma + (float(like) - 1.0) * a
        else:
            xi = math.sqrt(a**2 + variance)
            p, y = 2.0 * float(logistic_curvature(xi)), float(like) - 0.5
            height = float(log_logistic_bound(np.array(a), np.array(xi**2), float(like), xi))
        P += likelihood_weight * p * (np.outer(other.mean, other.mean) + other.covariance)
        z += likelihood_weight * (y - p * (own.bias + other.bias + offset)) * other.mean
        bias_P += likelihood_weight * p
        bias_z += likelihood_weight * (y - p * (a - own.bias))
        bound += likelihood_weight * height
    return RowSums(P, z, bias_P, bias_z, bound)


def full_step(
    own: FullRow, sums: RowSums, prior_precision: Array, prior_pull: Array, epsilon: float
) -> tuple[Array, Array]:
    """P and z after a step from the full q (eq. 17); then eta = P^-1 z, Sigma = P^-1.

    P_t = epsilon (P + E[Lambda]) + (1 - epsilon) Sigma^-1
    z_t = epsilon (z + E[Lambda mu]) + (1 - epsilon) Sigma^-1 eta
    """
    old = np.linalg.inv(own.covariance)
    P = epsilon * (sums.P + prior_precision) + (1.0 - epsilon) * old
    return P, epsilon * (sums.z + prior_pull) + (1.0 - epsilon) * old @ own.mean


def natural_step(
    own: Row, sums: RowSums, tau: Array | float, epsilon: float, prior_mean: Array | float = 0.0
) -> tuple[Array, Array]:
    """Natural parameters of q~ after a step from the *factorised* q (eq. 17).

    P_t = epsilon (P + tau I) + (1 - epsilon) diag(omega),    z_t = epsilon (z + tau m) + (1 - epsilon) omega eta

    The prior is N(m, 1 / tau), m = 0 in the paper; tau may be one number for each coordinate.
    """
    omega = 1.0 / own.variance
    P = epsilon * (sums.P + tau * np.eye(len(omega))) + (1.0 - epsilon) * np.diag(omega)
    return P, epsilon * (sums.z + tau * prior_mean) + (1.0 - epsilon) * omega * own.mean


def recover_factorised(P: Array, z: Array) -> tuple[Array, Array]:
    """Mean and variance of the factorised q nearest to q~ (eq. 18): the mean of q~, the diagonal of its precision."""
    return np.linalg.solve(P, z), 1.0 / np.diag(P)


def bias_step(own: Row, sums: RowSums, tau_bias: float, epsilon: float, prior_mean: float = 0.0) -> tuple[float, float]:
    """Mean and variance of a bias after a step (eq. 19)."""
    omega = 1.0 / own.bias_variance
    P = epsilon * (sums.bias_P + tau_bias) + (1.0 - epsilon) * omega
    z = epsilon * (sums.bias_z + tau_bias * prior_mean) + (1.0 - epsilon) * omega * own.bias
    return z / P, 1.0 / P
