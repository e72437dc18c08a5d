"""Expectation over q(H) in closed form. Not in the paper.

The pairs of user m with the items of one group b that m has not liked share one xi_mb and one line,
E[h_mn] = w_mn = alpha_mb beta_n + floor_mb with beta_n = pi_n. Sums over the items of a group, weighted by beta and by
1, then give the users their part of eq. 15. Sums over all users, weighted by alpha and by the floor, each with and
without l = 2 lambda(xi_mb), give the items theirs. These sums include liked pairs, which are subtracted edge by edge.

The mass S of a group is the mass of draws without replacement (saturation.py). Over the `count` items that m has not
liked, w = (S / sum beta) beta has this mass. If that exceeds 1 for the largest beta, the line goes through 1 there,
with a floor: alpha = (count - S) / (count max beta - sum beta), floor = 1 - alpha max beta. As S <= count, and as
S max beta > sum beta in this case, both are at least 0: every w_mn is a probability, and the mass is S again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency, Range, map_along_tree, ranges, transpose
from considerate.data.known import Known
from considerate.inference.hidden.estimator import Terms
from considerate.inference.hidden.groups import FREEZE_AFTER, Grouping, ItemGroups, UserGroups
from considerate.inference.hidden.saturation import GRID_STEP
from considerate.inference.posterior import Posterior, Side
from considerate.kernels import compiled
from considerate.kernels.arrays import Spare, empty


@dataclass(frozen=True)
class Shares:
    """Values alpha, floor and l of some users. A pass over the users writes them, a pass over the items reads them."""

    temperature: NDArray[np.float64]  # [users]
    alpha: NDArray[np.float32]  # [users, groups]
    floor: NDArray[np.float32]  # [users, groups]
    curvature: NDArray[np.float32]  # [users, groups] l

    @classmethod
    def empty(cls, temperature: NDArray[np.float64], groups: int, spare: Spare | None = None) -> Shares:
        shape = (len(temperature), groups)
        return cls(temperature, *(empty(shape, np.float32, spare) for _ in range(3)))

    @classmethod
    def zeros(cls, temperature: NDArray[np.float64], groups: int) -> Shares:
        return cls(temperature, *np.zeros((3, len(temperature), groups), np.float32))

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """alpha, floor and curvature by name."""
        return {"alpha": self.alpha, "floor": self.floor, "curvature": self.curvature}

    def read(
        self,
        groups: ItemGroups,
        users: UserGroups | None = None,
        *,
        items: slice = slice(None),
        liked: NDArray[np.float64] | None = None,
        corrections: NDArray[np.float32] | None = None,
    ) -> compiled.Expected:
        """Closed form for a pass over these users or, with the sums over users, over (some) items.

        If the liked items are in other processes, `liked` has their sums (compiled.liked_sums), [users, groups, 7]. If
        alpha is in other processes, `corrections` has its effect on each edge (compiled.edge_corrections).
        """
        return compiled.Expected(
            compiled.Shares(self.temperature, self.alpha, self.floor, self.curvature),
            compiled.Groups(groups.group_of_item[items], groups.beta[items], groups.groups),
            items=compiled.ItemSums(**vars(groups.sums)),
            masses=compiled.MassTable(groups.table, groups.grid_start, GRID_STEP),
            users=None if users is None else users.for_kernels(),
            liked=liked,
            corrections=corrections,
        )

    def given(
        self, group_of_item: NDArray[np.int32], beta: NDArray[np.float64], users: UserGroups | None = None
    ) -> compiled.Expected:
        """Closed form of some items that only reads alpha, floor and l, and needs no sums over items."""
        return compiled.Expected(
            compiled.Shares.given(self.temperature, self.alpha, self.floor, self.curvature),
            compiled.Groups(group_of_item, beta, self.alpha.shape[1]),
            users=None if users is None else users.for_kernels(),
        )

    def add_up(
        self, users: Side, blocks: NDArray[np.int64], run: Any, user_offset: NDArray[np.float32] | None = None
    ) -> UserGroups:
        """Add up the sums over these users that items read, after a pass over them; blocks along the tree."""
        sums = self.adder(users, user_offset)
        total: UserGroups = map_along_tree(sums, ranges(blocks), run, UserGroups.merge)
        return total

    def adder(self, users: Side, user_offset: NDArray[np.float32] | None) -> Callable[[Range], UserGroups]:
        """Function from a block of these users to the sums over it that items read."""
        no_edges = Adjacency(np.zeros(len(users) + 1, np.int64), np.empty(0, np.int32))
        kernel_pass = compiled.Pass(
            users.for_kernels(),
            users.between(0, 0).for_kernels(),
            no_edges.for_kernels(),
            None,
            compiled.Constants(user_offset=user_offset),
            expected=self.given(np.empty(0, np.int32), np.empty(0)),
            own_is_user=True,
        )

        def sums(block: Range) -> UserGroups:
            return UserGroups(*compiled.group_sums(kernel_pass, *block))

        return sums


class Expected:
    """Estimator with E[h_mn] in place of draws. Known pairs have edges of their own, which subtract these pairs from
    the sums over groups, like likes do."""

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
        freeze_after: int = FREEZE_AFTER,
        known: Known | None = None,
        user_offset: NDArray[np.float32] | None = None,
    ) -> None:
        self.by_user, self.user_blocks, self.weights = by_user, user_blocks, weights
        self._user_offset = user_offset
        self.grouping = Grouping(weights, offset, groups, freeze_after=freeze_after)
        temperature = self.grouping.saturation.inclusion.temperatures(by_user, user_blocks, negatives, run, known)
        self.known_edges = None if known is None else known.edges()
        self.shares = Shares.zeros(temperature, self.grouping.groups)
        self._items: ItemGroups | None = None

    def user_terms(self, sweep: int, posterior: Posterior, run: Any) -> Terms:
        if self.grouping.moves(sweep):
            self.grouping.regroup(posterior.items.mean)
        self._items = self.grouping.of(posterior.items)
        return Terms(self.known_edges, self.shares.read(self._items))

    def item_terms(self, sweep: int, posterior: Posterior, run: Any) -> Terms:
        assert self._items is not None
        sums = self.shares.adder(posterior.users, self._user_offset)
        users = map_along_tree(sums, ranges(self.user_blocks), run, UserGroups.merge)
        known = None if self.known_edges is None else transpose(self.known_edges, len(self.weights), run)
        return Terms(known, self.shares.read(self._items, users))

    def settled(self, sweep: int) -> bool:
        return sweep > self.grouping.freeze_after
