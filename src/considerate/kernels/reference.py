"""The specification, in NumPy, written to be read: float64, one edge or one row at a time.

The compiled kernels do the same in float32, many rows at a time; the tests hold them to this page.
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
    """log p(g | a, h) (eq. 3): of what was considered, the coin's (eq. 2); of what was not, 0, for g can only be 0.

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
    weight: float = 1.0,
    considered: Sequence[float] | None = None,
    xi: Sequence[float] | None = None,
) -> RowSums:
    """Sums over the edges of H at one vertex (eq. 13, 15, 19), each at its best xi (eq. 16) or the one given.

        P = sum 2 lambda(xi) E[v v'],    z = sum (g - 1/2 - 2 lambda(xi) E[b]) E[v]

    `considered` is E[h] of each edge, 1 for a drawn H; `weight` is rho.
    """
    factors = len(own.mean)
    P, z, bias_P, bias_z, bound = np.zeros((factors, factors)), np.zeros(factors), 0.0, 0.0, 0.0
    for e, (other, like) in enumerate(zip(others, liked)):
        h = weight * (1.0 if considered is None else considered[e])
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


def natural_step(own: Row, sums: RowSums, tau: float, epsilon: float) -> tuple[Array, Array]:
    """The natural parameters of q~ after a step (eq. 17). The old ones are those of the *factorised* q.

    P_t = epsilon (P + tau I) + (1 - epsilon) diag(omega),    z_t = epsilon z + (1 - epsilon) omega eta
    """
    omega = 1.0 / own.variance
    P = epsilon * (sums.P + tau * np.eye(len(omega))) + (1.0 - epsilon) * np.diag(omega)
    return P, epsilon * sums.z + (1.0 - epsilon) * omega * own.mean


def recover_factorised(P: Array, z: Array) -> tuple[Array, Array]:
    """Mean and variance of the factorised q nearest to q~ (eq. 18): the mean of q~, the diagonal of its precision."""
    return np.linalg.solve(P, z), 1.0 / np.diag(P)


def bias_step(own: Row, sums: RowSums, tau_bias: float, epsilon: float) -> tuple[float, float]:
    """Mean and variance of a bias after a step (eq. 19)."""
    omega = 1.0 / own.bias_variance
    P = epsilon * (sums.bias_P + tau_bias) + (1.0 - epsilon) * omega
    z = epsilon * sums.bias_z + (1.0 - epsilon) * omega * own.bias
    return z / P, 1.0 / P


# Draws. Python's integers, so that the bits are those of the compiled kernels.

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix64(x: int) -> int:
    """The finaliser of splitmix64."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def key64(seed: int, stream: int, index: int) -> int:
    """One key from three numbers."""
    key = mix64((seed + GOLDEN) & MASK)
    key = mix64((key + (stream + 1) * GOLDEN) & MASK)
    return mix64((key + (index + 1) * GOLDEN) & MASK)


class SplitMix64:
    """splitmix64 started at a key: the generator of `src/core/random.hpp`."""

    def __init__(self, key: int) -> None:
        self.state = key

    def next(self) -> int:
        self.state = (self.state + GOLDEN) & MASK
        return mix64(self.state)

    def uniform(self) -> float:
        """Uniform on [0, 1), 53 bits."""
        return (self.next() >> 11) * 2.0**-53

    def below(self, n: int) -> int:
        """Uniform on 0 .. n-1."""
        return self.next() * n >> 64

    def shuffle(self, values: NDArray[np.int32]) -> None:
        """Fisher and Yates, from the end, in place."""
        for i in range(len(values), 1, -1):
            j = self.below(i)
            values[i - 1], values[j] = values[j], values[i - 1]


def draw_negatives(
    seed: int,
    sweep: int,
    rate: float,
    weights: Array,
    thresholds: Array,
    aliases: Array,
    user: int,
    liked: Sequence[int],
) -> list[int]:
    """One user's unliked items: c d of them, drawn from pi without replacement, never one that was liked.

    Draws that hit a marked item are discarded. Should that stall, the rest is drawn from a weighted tree with the
    marked items taken out; the law of the next item does not depend on how many were discarded before it.
    """
    support = int((weights > 0).sum())
    available = support - sum(1 for n in liked if weights[n] > 0)
    wanted = rate * len(liked)
    count = int(wanted)
    count += SplitMix64(key64(seed, sweep * 2 + 1, user)).uniform() < wanted - count
    count = min(count, available)
    marked = set(liked)
    if count == available:
        return [n for n in range(len(weights)) if weights[n] > 0 and n not in marked]
    random, discarded = SplitMix64(key64(seed, sweep * 2, user)), 0
    drawn: list[int] = []
    while len(drawn) < count and discarded <= 4 * len(drawn) + 64:
        product = random.next() * len(weights)
        column, height = product >> 64, product & MASK
        n = column if height < int(thresholds[column]) else int(aliases[column])
        if n in marked:
            discarded += 1
        else:
            marked.add(n)
            drawn.append(n)
    tree = _tree([0.0 if n in marked else float(w) for n, w in enumerate(weights)]) if len(drawn) < count else []
    while len(drawn) < count:
        n = _draw_from_tree(tree, random)
        drawn.append(n)
        _clear(tree, n)
    return drawn


def _tree(weights: Sequence[float]) -> list[float]:
    leaves = 1
    while leaves < len(weights):
        leaves *= 2
    sums = [0.0] * leaves + list(weights) + [0.0] * (leaves - len(weights))
    for i in range(leaves - 1, 0, -1):
        sums[i] = sums[2 * i] + sums[2 * i + 1]
    return sums


def _draw_from_tree(sums: list[float], random: SplitMix64) -> int:
    x, i, leaves = random.uniform() * sums[1], 1, len(sums) // 2
    while i < leaves:
        left, right = sums[2 * i], sums[2 * i + 1]
        if right == 0.0 or (x < left and left > 0.0):
            i = 2 * i
        else:
            x -= left
            i = 2 * i + 1
    return i - leaves


def _clear(sums: list[float], n: int) -> None:
    i = len(sums) // 2 + n
    sums[i] = 0.0
    while i > 1:
        i //= 2
        sums[i] = sums[2 * i] + sums[2 * i + 1]


def temperature(weights: Array, liked: Sequence[int], count: float) -> float:
    """T such that 1 - exp(-T pi_n) over the items that are not liked adds up to `count`, by bisection in log T."""
    rest = np.delete(np.asarray(weights, np.float64), np.asarray(liked, np.int64))
    low, high = -700.0, 700.0
    while high - low > 1e-13 * max(1.0, abs(low)):
        middle = (low + high) / 2
        low, high = (middle, high) if -np.expm1(-math.exp(middle) * rest).sum() < count else (low, middle)
    return math.exp((low + high) / 2)


# Ranks of held-out items, and the best of a row.


def count_ranks(
    scores: Array, starts: Array, held: Array, seen_starts: Array, seen: Array
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """(above, ties, bad): for each held item of a row, how many others have a higher score, how many the same.

    Row i has the held items held[starts[i] : starts[i + 1]]; what it has seen, ascending, does not count, the held item
    itself never does, and the row's other held items do. `bad` is the first row with a NaN, else -1.
    """
    above, ties = np.zeros((2, len(held)), np.int64)
    for row in range(len(scores)):
        if np.isnan(scores[row]).any():
            return above, ties, row
        free = np.ones(scores.shape[1], bool)
        free[seen[seen_starts[row] : seen_starts[row + 1]]] = False
        for edge in range(starts[row], starts[row + 1]):
            own = scores[row, held[edge]]
            others = free.copy()
            others[held[edge]] = False
            above[edge] = (scores[row, others] > own).sum()
            ties[edge] = (scores[row, others] == own).sum()
    return above, ties, -1


def best_of_rows(scores: Array, k: int, seen_starts: Array, seen: Array) -> tuple[NDArray[np.int32], int]:
    """(ids [rows, k], bad): the k best items of every row, highest first, the lower index where scores tie; what was
    seen is left out, -1 where fewer remain. `bad` is the first row with a NaN, else -1."""
    ids = np.full((len(scores), k), -1, np.int32)
    for row in range(len(scores)):
        if np.isnan(scores[row]).any():
            return ids, row
        order = np.argsort(-scores[row], kind="stable")
        order = order[~np.isin(order, seen[seen_starts[row] : seen_starts[row + 1]])][:k]
        ids[row, : len(order)] = order
    return ids, -1
