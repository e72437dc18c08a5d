"""Groups of items by popularity and taste, and the sums over groups that users and items read of one another."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.inference.hidden.saturation import Saturation
from considerate.inference.posterior import Side
from considerate.kernels import compiled
from considerate.kernels.arrays import Additive

FREEZE_AFTER = 3  # sweeps after which the groups stay as they are
TASTES = 4
CHUNK = 1 << 14  # items whose directions are taken together


def popularity_bins(weights: NDArray[np.float64], bins: int) -> NDArray[np.int32]:
    """Put items into popularity bins of about the same mass each, so that bins of popular items are narrow."""
    order = np.argsort(weights, kind="stable")
    mass = np.cumsum(weights[order]) / weights.sum()
    bin_of = np.empty(len(weights), np.int32)
    bin_of[order] = np.minimum((mass * bins * (1 - 1e-12)).astype(np.int32), bins - 1)
    return bin_of


def taste_clusters(mean: NDArray[Any], tastes: int, rounds: int = 10) -> NDArray[np.int32]:
    """Cluster items by the direction of their vectors: k-means from the items farthest from one another."""
    directions = Directions(mean)
    if not directions.norms.any():
        return np.zeros(len(mean), np.int32)
    centres = directions[[int(np.argmax(directions.norms))]]
    while len(centres) < tastes:
        nearest = np.where(directions.norms > 0, directions.cosines(centres).max(axis=1), 2.0)
        centres = np.concatenate([centres, directions[[int(np.argmin(nearest))]]])
    cluster = np.full(len(mean), -1, np.int32)
    for _ in range(rounds):
        before, cluster = cluster, np.argmax(directions.cosines(centres), axis=1).astype(np.int32)
        if (cluster == before).all():
            break
        for c in range(tastes):
            if len(mine := np.flatnonzero(cluster == c)):
                centre = directions.total(mine) / len(mine)
                centres[c] = centre / max(float(np.sqrt((centre**2).sum())), 1e-12)
    return cluster


@dataclass(frozen=True)
class Directions:
    """Vectors scaled to length 1, in double precision, computed on demand."""

    mean: NDArray[Any]  # [rows, K]

    @cached_property
    def norms(self) -> NDArray[np.float64]:
        chunks = (np.asarray(self.mean[rows], np.float64) for rows in self._chunks(len(self.mean)))
        return np.concatenate([np.sqrt((chunk**2).sum(axis=1)) for chunk in chunks])

    def __getitem__(self, rows: Any) -> NDArray[np.float64]:
        lengths = np.maximum(self.norms[rows], 1e-12)[:, None]
        return np.asarray(np.asarray(self.mean[rows], np.float64) / lengths)

    def cosines(self, centres: NDArray[np.float64]) -> NDArray[np.float64]:
        """Cosines [rows, centres]."""
        return np.concatenate([np.einsum("nk,ck->nc", self[rows], centres) for rows in self._chunks(len(self.mean))])

    def total(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Sum of the directions of some rows, one after the other."""
        total = np.zeros((1, self.mean.shape[1]))
        for chunk in self._chunks(len(rows)):
            total = np.concatenate([total, self[rows[chunk]]]).sum(axis=0, keepdims=True)
        return np.asarray(total[0])

    @staticmethod
    def _chunks(rows: int) -> list[slice]:
        return [slice(first, first + CHUNK) for first in range(0, rows, CHUNK)]


@dataclass(frozen=True)
class ItemGroups:
    """Groups of items and the sums over each that users read: the message to the users' parts."""

    group_of_item: NDArray[np.int32]  # [items]
    beta: NDArray[np.float64]  # [items]
    sums: ItemSums
    table: NDArray[np.float64]  # [groups, grid, 2] sum of the inclusion probabilities of a group's items
    grid_start: float

    @property
    def groups(self) -> int:
        return len(self.table)


@dataclass(frozen=True)
class ItemSums(Additive):
    """Sums over the items of each group with beta > 0, weighted by beta and then by 1; b~ = b_n + offset."""

    second: NDArray[np.float64]  # [2 groups, K (K + 1) / 2] E[v v'], off-diagonals doubled
    first: NDArray[np.float64]  # [2 groups, K] E[v]
    first_bias: NDArray[np.float64]  # [2 groups, K] b~ E[v]
    scalars: NDArray[np.float64]  # [2 groups, 4] the weight itself; b~; E[b~^2]; the largest weight

    @classmethod
    def of(
        cls, items: Side, offset: float, weights: NDArray[np.float64], group_of_item: NDArray[np.int32], groups: int
    ) -> ItemSums:
        about = compiled.Groups(group_of_item, weights, groups)
        return cls(*compiled.item_group_sums(items.for_kernels(), offset, about))

    def merge(self, other: ItemSums) -> ItemSums:
        """Add sums over other items."""
        total = super().merge(other)
        np.maximum(self.scalars[:, 3], other.scalars[:, 3], out=total.scalars[:, 3])
        return total


@dataclass(frozen=True)
class UserGroups(Additive):
    """Sums over users by group that items read, weighted by alpha and then by the floor, in float64."""

    second: NDArray[np.float64]  # [2 groups, K (K + 1) / 2]
    first: NDArray[np.float64]  # [2 groups, 3, K]
    scalars: NDArray[np.float64]  # [2 groups, 3]

    def arrays(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        return self.second, self.first, self.scalars

    def for_kernels(self) -> compiled.UserSums:
        """The sums as the kernels read them."""
        return compiled.UserSums(*self.arrays())


class Grouping:
    """Groups of items, which follow the vectors in the first sweeps and then stay."""

    def __init__(
        self,
        weights: NDArray[np.float64],
        offset: float,
        groups: int,
        saturation: Saturation | None = None,
        freeze_after: int = FREEZE_AFTER,
    ) -> None:
        self.weights, self.offset, self.freeze_after = weights, offset, freeze_after
        self.tastes = TASTES if groups >= 2 * TASTES else 1
        self.bins = max(1, groups // self.tastes)
        self.saturation = saturation or Saturation(weights)
        self._bin_of = popularity_bins(weights, self.bins)
        self.groups = self.bins * self.tastes
        self.group_of_item = self._bin_of
        self._table: NDArray[np.float64] | None = None

    def moves(self, sweep: int) -> bool:
        """True if this sweep makes new groups."""
        return self._table is None or sweep <= self.freeze_after

    def regroup(self, item_means: NDArray[Any]) -> None:
        """Make new groups: popularity bins times clusters of taste."""
        group = self._bin_of * self.tastes
        if self.tastes > 1:
            group = group + taste_clusters(item_means, self.tastes)
        self.use(group.astype(np.int32))

    def use(self, group_of_item: NDArray[np.int32]) -> None:
        """Use these groups from now on."""
        self.group_of_item = group_of_item
        self._table = self.saturation.tabulate(group_of_item, self.groups)

    def of(self, items: Side) -> ItemGroups:
        """Message to the users' parts, from these items."""
        return self.with_sums(ItemSums.of(items, self.offset, self.weights, self.group_of_item, self.groups))

    def with_sums(self, sums: ItemSums) -> ItemGroups:
        """Message to the users' parts, from sums over items in other processes."""
        assert self._table is not None
        return ItemGroups(self.group_of_item, self.weights, sums, self._table, self.saturation.grid_start)
