"""Expected: the expectation over q(H) in closed form. Not in the paper.

The pairs of user m with the items of one group b that m has not liked share one xi_mb and one scale,
E[h_mn] = w_mn = alpha_mb beta_n with beta_n = pi_n. Sums over the items of a group, weighted by beta, then give the
users their part of eq. 15, and sums over all users, weighted by alpha and l = 2 lambda(xi_mb), give the items
theirs; what the sums hold of liked pairs is taken back edge by edge. alpha_mb is such that a group's mass is that
of draws without replacement (saturation.py), and never so large that a w_mn exceeds 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.graph import Adjacency, Range, ranges
from considerate.hidden.estimator import Terms
from considerate.hidden.saturation import GRID_STEP, Saturation
from considerate.kernels import compiled
from considerate.posterior import Posterior, Side

FREEZE_AFTER = 3  # sweeps after which the groups stay as they are
TASTES = 4


def popularity_bins(weights: NDArray[np.float64], bins: int) -> NDArray[np.int32]:
    """Bins of items by popularity that hold about the same mass each, so that those of the head are narrow."""
    order = np.argsort(weights, kind="stable")
    mass = np.cumsum(weights[order]) / weights.sum()
    bin_of = np.empty(len(weights), np.int32)
    bin_of[order] = np.minimum((mass * bins * (1 - 1e-12)).astype(np.int32), bins - 1)
    return bin_of


def taste_clusters(mean: NDArray[Any], tastes: int, rounds: int = 10) -> NDArray[np.int32]:
    """Clusters of items by the direction of their vectors: k-means from the items farthest from one another."""
    vectors = np.asarray(mean, np.float64)
    norms = np.sqrt((vectors**2).sum(axis=1))
    if not norms.any():
        return np.zeros(len(vectors), np.int32)
    vectors = vectors / np.maximum(norms, 1e-12)[:, None]
    centres = vectors[[int(np.argmax(norms))]]
    while len(centres) < tastes:
        nearest = np.einsum("nk,ck->nc", vectors, centres).max(axis=1)
        centres = np.concatenate([centres, vectors[[int(np.argmin(np.where(norms > 0, nearest, 2.0)))]]])
    cluster = np.full(len(vectors), -1, np.int32)
    for _ in range(rounds):
        before, cluster = cluster, np.argmax(np.einsum("nk,ck->nc", vectors, centres), axis=1).astype(np.int32)
        if (cluster == before).all():
            break
        for c in range(tastes):
            mine = vectors[cluster == c]
            if len(mine):
                centre = mine.mean(axis=0)
                centres[c] = centre / max(float(np.sqrt((centre**2).sum())), 1e-12)
    return cluster


class Expected:
    """E[h_mn] in place of draws; the groups follow the vectors in the first sweeps and then stay."""

    deterministic = True

    def __init__(
        self,
        by_user: Adjacency,
        user_blocks: NDArray[np.int64],
        weights: NDArray[np.float64],
        negatives: float,
        offset: float,
        groups: int,
        run: Any,
        saturation: Saturation | None = None,
    ) -> None:
        self.by_user, self.user_blocks, self.weights, self.offset = by_user, user_blocks, weights, offset
        self.tastes = TASTES if groups >= 2 * TASTES else 1
        self.bins = max(1, groups // self.tastes)
        self.saturation = saturation or Saturation(weights)
        self.temperature = self.saturation.temperatures(by_user, user_blocks, negatives, run)
        self._bin_of = popularity_bins(weights, self.bins)
        self.groups = self.bins * self.tastes
        self.alpha = np.zeros((by_user.rows, self.groups), np.float32)
        self.alpha_l = np.zeros((by_user.rows, self.groups), np.float32)
        self.group_of_item = self._bin_of
        self._table: NDArray[np.float64] | None = None
        self._shared: dict[str, Any] = {}

    def regroup(self, items: Side) -> None:
        """New groups: popularity bins times clusters of taste."""
        group = self._bin_of * self.tastes
        if self.tastes > 1:
            group = group + taste_clusters(items.mean, self.tastes)
        self.group_of_item = group.astype(np.int32)
        self._table = self.saturation.tabulate(self.group_of_item, self.groups)

    def user_terms(self, sweep: int, posterior: Posterior, run: Any) -> Terms:
        if self._table is None or sweep <= FREEZE_AFTER:
            self.regroup(posterior.items)
        items = posterior.items
        second, first, first_bias, scalars, sizes = compiled.item_group_sums(
            items.factors,
            items.rows,
            items.bias_mean,
            items.bias_variance,
            self.offset,
            self.weights,
            self.group_of_item,
            self.groups,
        )
        self._shared = {
            "factors": items.factors,
            "group_of_item": self.group_of_item,
            "beta": self.weights,
            "alpha": self.alpha,
            "alpha_l": self.alpha_l,
            "second": second,
            "first": first,
            "first_bias": first_bias,
            "scalars": scalars,
            "sizes": sizes,
            "temperature": self.temperature,
            "table": self._table,
            "grid_start": self.saturation.grid_start,
            "grid_step": GRID_STEP,
        }
        return Terms(expected=compiled.Expected(**self._shared))

    def item_terms(self, sweep: int, posterior: Posterior, run: Any) -> Terms:
        users = posterior.users
        reading = compiled.Pass(
            factors=users.factors,
            own=users.rows,
            own_bias_mean=users.bias_mean,
            own_bias_variance=users.bias_variance,
            other=posterior.items.rows,
            liked_starts=self.by_user.starts,
            liked=self.by_user.indices,
            expected=compiled.Expected(**self._shared),
        )

        def sums(block: Range) -> tuple[NDArray[Any], ...]:
            return tuple(compiled.group_sums(reading, *block))

        parts = run(sums, ranges(self.user_blocks))
        while len(parts) > 1:  # the same tree over blocks that the items' own sums follow
            pairs = [tuple(a + b for a, b in zip(*parts[i : i + 2])) for i in range(0, len(parts) - 1, 2)]
            parts = pairs + (parts[-1:] if len(parts) % 2 else [])
        second, first, scalars = parts[0]
        return Terms(
            expected=compiled.Expected(**self._shared, user_second=second, user_first=first, user_scalars=scalars)
        )

    def settled(self, sweep: int) -> bool:
        return sweep > FREEZE_AFTER

    def considered(self, user: int) -> NDArray[np.float64]:
        """E[h_mn] of one user for every item: 1 for what was liked, alpha_mb beta_n elsewhere."""
        expected = np.asarray(self.alpha[user, self.group_of_item] * self.weights, np.float64)
        expected[self.by_user.row(user)] = 1.0
        return expected
