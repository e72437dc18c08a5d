"""Brute force that every fast path is compared with: dense matrices over all M x N pairs, float64.

`considered` is h (zeros and ones) of a given H, or E[h] of the closed form; it is 1 wherever g is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from considerate.data.graph import Adjacency, Graph
from considerate.inference.hidden import Expected
from considerate.inference.posterior import Gamma, Posterior, Precisions, Side

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Factor:
    """q of one side, float64: vectors and biases, zeros where there are none."""

    mean: Array  # [rows, K]
    variance: Array  # [rows, K]
    bias: Array  # [rows]
    bias_variance: Array  # [rows]

    @classmethod
    def of(cls, side: Side) -> Factor:
        bias, bias_variance = side.biases
        parts = (side.mean, side.variance, bias, bias_variance)
        return cls(*(np.array(part, np.float64) for part in parts))

    def with_row(self, row: int, **parts: Any) -> Factor:
        """The same with one row's parts replaced."""
        changed = {}
        for name, value in parts.items():
            array = getattr(self, name).copy()
            array[row] = value
            changed[name] = array
        return replace(self, **changed)


@dataclass(frozen=True)
class Prior:
    """Everything that is given: the logit's offset, rho, and the Gamma prior."""

    offset: float | Array = 0.0  # of all, or of each user
    weight: float = 1.0
    shape: float = 0.01
    rate: float = 0.01


def dense(edges: Adjacency, columns: int) -> Array:
    """An adjacency as a matrix of zeros and ones."""
    matrix = np.zeros((edges.rows, columns))
    for row in range(edges.rows):
        matrix[row, edges.row(row)] = 1.0
    return matrix


def likes(graph: Graph) -> Array:
    """g, [M, N]."""
    return dense(graph.by_user, graph.item_count)


def counted(considered: Array, graph: Graph) -> Array:
    """`considered` with the weight of each like in place of 1."""
    weights = graph.by_user.weights
    if weights is None:
        return considered
    counted = considered.copy()
    counted[graph.pairs()] = weights
    return counted


def logit_moments(users: Factor, items: Factor, offset: float | Array) -> tuple[Array, Array]:
    """E[a] and E[a^2] of every pair, [M, N]: Var(u'v) = sum_k (E[u^2] E[v^2] - E[u]^2 E[v]^2), as in eq. 16. The offset
    is one for all, or one for each user."""
    mean, square = np.empty((2, len(users.mean), len(items.mean)))
    offset = np.broadcast_to(offset, len(users.mean))
    for m in range(len(users.mean)):
        for n in range(len(items.mean)):
            u, v = users.mean[m], items.mean[n]
            mean[m, n] = u @ v + users.bias[m] + items.bias[n] + offset[m]
            products = (u**2 + users.variance[m]) * (v**2 + items.variance[n]) - (u * v) ** 2
            square[m, n] = mean[m, n] ** 2 + products.sum() + users.bias_variance[m] + items.bias_variance[n]
    return mean, square


def curvature(xi: Array) -> Array:
    """lambda(xi) = (sigma(xi) - 1/2) / (2 xi), as the paper writes it."""
    safe = np.where(xi > 1e-6, xi, 1.0)
    return np.where(xi > 1e-6, (special.expit(safe) - 0.5) / (2.0 * safe), 0.125)


def best_xi(square: Array) -> Array:
    """Eq. 16: one xi for each pair."""
    return np.sqrt(square)


def shared_xi(square: Array, g: Array, considered: Array, group_of_item: NDArray[Any]) -> Array:
    """The liked pairs keep their own xi; those of one user and group that were not liked share the best for all."""
    xi = np.sqrt(square)
    for m in range(len(g)):
        for group in np.unique(group_of_item):
            mine = (group_of_item == group) & (g[m] == 0)
            mass = considered[m, mine].sum()
            if mass > 0:
                xi[m, mine] = math.sqrt((considered[m, mine] * square[m, mine]).sum() / mass)
    return xi


def edges_term(
    users: Factor, items: Factor, g: Array, considered: Array, prior: Prior, xi: Array | None = None
) -> float:
    """sum over pairs of E[h] times the logistic bound on E[log l] (eq. 11), times rho."""
    mean, square = logit_moments(users, items, prior.offset)
    xi = best_xi(square) if xi is None else xi
    pair = g * mean + special.log_expit(xi) - (mean + xi) / 2 - curvature(xi) * (square - xi**2)
    return float(prior.weight * (considered * pair).sum())


def gaussian_term(mean: Array, variance: Array, tau: Gamma) -> float:
    """E[log N(x; 0, 1/tau)] + entropy, one coordinate at a time."""
    log_tau = special.digamma(tau.shape) - math.log(tau.rate)
    total = 0.0
    for x, s in zip(mean.ravel(), variance.ravel()):
        total += 0.5 * log_tau - 0.5 * math.log(2 * math.pi) - 0.5 * tau.shape / tau.rate * (x * x + s)
        total += 0.5 * math.log(2 * math.pi * math.e * s)
    return total


def own_gaussian_term(mean: Array, variance: Array, centre: Array, precision: Array) -> float:
    """E[log N(x; m, 1/t)] + entropy, with m and t of each coordinate."""
    total = 0.0
    for x, s, m, t in zip(mean.ravel(), variance.ravel(), centre.ravel(), precision.ravel()):
        total += stats.norm.logpdf(x, m, t**-0.5) - 0.5 * t * s + 0.5 * math.log(2 * math.pi * math.e * s)
    return total


def gamma_term(tau: Gamma, prior: Prior) -> float:
    """E[log Gamma(tau; alpha, beta)] + entropy."""
    log_tau = special.digamma(tau.shape) - math.log(tau.rate)
    energy = prior.shape * math.log(prior.rate) - special.gammaln(prior.shape)
    energy += (prior.shape - 1.0) * log_tau - prior.rate * tau.shape / tau.rate
    return float(energy + stats.gamma.entropy(tau.shape, scale=1.0 / tau.rate))


def bound_terms(
    users: Factor,
    items: Factor,
    taus: Precisions,
    g: Array,
    considered: Array,
    prior: Prior,
    xi: Array | None = None,
) -> dict[str, float]:
    """L_xi (eq. 12) by the names of its terms; xi at its best where none is given."""
    gammas = [one for one in (taus.user, taus.item, taus.user_bias, taus.item_bias) if one is not None]
    return {
        "edges": edges_term(users, items, g, considered, prior, xi),
        "users": gaussian_term(users.mean, users.variance, taus.user),
        "items": gaussian_term(items.mean, items.variance, taus.item),
        "user_biases": gaussian_term(users.bias, users.bias_variance, taus.user_bias) if taus.user_bias else 0.0,
        "item_biases": gaussian_term(items.bias, items.bias_variance, taus.item_bias) if taus.item_bias else 0.0,
        "precisions": sum(gamma_term(one, prior) for one in gammas),
    }


def bound(posterior: Posterior, g: Array, considered: Array, prior: Prior, xi: Array | None = None) -> float:
    """L_xi of a posterior."""
    users, items = Factor.of(posterior.users), Factor.of(posterior.items)
    return math.fsum(bound_terms(users, items, posterior.precisions, g, considered, prior, xi).values())


def row_sums(
    users: Factor, items: Factor, g: Array, considered: Array, prior: Prior, xi: Array, row: int, *, of_user: bool
) -> tuple[Array, Array, float, float]:
    """P, z (eq. 15) and the bias's two sums (eq. 19) of one row, over every pair with its E[h]."""
    offset = np.broadcast_to(np.reshape(prior.offset, (-1, 1)), g.shape)
    if not of_user:
        users, items, g, considered, xi, offset = items, users, g.T, considered.T, xi.T, offset.T
    factors = users.mean.shape[1]
    P, z, bias_P, bias_z = np.zeros((factors, factors)), np.zeros(factors), 0.0, 0.0
    for n in range(len(items.mean)):
        h, twice = prior.weight * considered[row, n], 2.0 * float(curvature(xi[row, n]))
        bias = users.bias[row] + items.bias[n] + offset[row, n]
        P += h * twice * (np.outer(items.mean[n], items.mean[n]) + np.diag(items.variance[n]))
        z += h * (g[row, n] - 0.5 - twice * bias) * items.mean[n]
        bias_P += h * twice
        rest = users.mean[row] @ items.mean[n] + items.bias[n] + offset[row, n]
        bias_z += h * (g[row, n] - 0.5 - twice * rest)
    return P, z, bias_P, bias_z


def log_evidence(g: Array, h: Array, prior: Prior, *, item_bias: bool, points: int = 20, tau_points: int = 12) -> float:
    """log p(G | H) for K = 1 and two users, by quadrature over u, v, the items' biases and the three precisions.

    Given u and the precisions items are independent, so that each needs an integral over (v_n, b_n) alone.
    """
    assert len(g) == 2
    nodes, node_weights = special.roots_hermitenorm(points)
    node_weights = node_weights / node_weights.sum()
    taus, tau_weights = special.roots_genlaguerre(tau_points, prior.shape - 1.0)  # tau * rate ~ Gamma(shape, 1)
    taus, tau_weights = taus / prior.rate, tau_weights / tau_weights.sum()
    u_weights = np.outer(node_weights, node_weights)
    biases = list(zip(taus, tau_weights)) if item_bias else [(math.inf, 1.0)]
    total = 0.0
    for tau_u, weight_u in zip(taus, tau_weights):
        u = nodes / math.sqrt(tau_u)
        for tau_v, weight_v in zip(taus, tau_weights):
            v = nodes / math.sqrt(tau_v)
            for tau_b, weight_b in biases:
                b = nodes / math.sqrt(tau_b) if item_bias else np.zeros(1)
                b_weights = node_weights if item_bias else np.ones(1)
                logit = u[:, None, None] * v[:, None] + b  # [u, v, b]
                logits = [logit + offset for offset in np.broadcast_to(prior.offset, 2)]
                like, dislike = [special.expit(a) for a in logits], [special.expit(-a) for a in logits]
                both = u_weights.copy()
                for n in range(g.shape[1]):
                    sides = [np.where(h[m, n] == 0, 1.0, (like if g[m, n] else dislike)[m]) for m in (0, 1)]
                    both *= np.einsum("avb,cvb,v,b->ac", *sides, node_weights, b_weights, optimize=True)
                total += weight_u * weight_v * weight_b * both.sum()
    return math.log(total)


def expected_considered(estimator: Expected) -> np.ndarray:
    """E[h] as the last pass over the users left it: 1 for what was liked, alpha_mb beta_n + floor_mb elsewhere."""
    group, shares = estimator.grouping.group_of_item, estimator.shares
    considered = shares.alpha[:, group].astype(float) * estimator.weights + shares.floor[:, group]
    considered[:, estimator.weights == 0] = 0.0
    return np.where(dense(estimator.by_user, len(estimator.weights)) > 0, 1.0, considered)
