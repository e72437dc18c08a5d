"""Expected: the expectation over q(H) in closed form. Not in the paper.

The pairs of user m with the items of one group b that m has not liked share one xi_mb and one scale,
E[h_mn] = w_mn = alpha_mb beta_n with beta_n = pi_n. Sums over the items of a group, weighted by beta, then give the
users their part of eq. 15, and sums over all users, weighted by alpha and l = 2 lambda(xi_mb), give the items
theirs; what the sums hold of liked pairs is taken back edge by edge. alpha_mb is such that a group's mass is that
of draws without replacement (saturation.py), and never so large that a w_mn exceeds 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency, Range, add_along_tree, ranges
from considerate.inference.hidden.estimator import Terms
from considerate.inference.hidden.groups import FREEZE_AFTER, Grouping, ItemGroups, ItemSums, UserGroups
from considerate.inference.hidden.saturation import GRID_STEP, Saturation
from considerate.inference.posterior import Posterior, Side
from considerate.kernels import compiled
from considerate.kernels.arrays import Spare, empty


def closed_form(
    factors: int,
    items: tuple[NDArray[np.int32], NDArray[np.float64]],
    sums: ItemSums,
    table: tuple[NDArray[np.float64], float],
    users: UserGroups | None,
    **arrays: Any,
) -> compiled.Expected:
    """What the kernels read. items: the group and beta of each; table: inclusion probabilities and the grid's start."""
    return compiled.Expected(
        factors=factors,
        group_of_item=items[0],
        beta=items[1],
        second=sums.second,
        first=sums.first,
        first_bias=sums.first_bias,
        scalars=sums.scalars,
        sizes=sums.sizes,
        table=table[0],
        grid_start=table[1],
        grid_step=GRID_STEP,
        user_second=None if users is None else users.second,
        user_first=None if users is None else users.first,
        user_scalars=None if users is None else users.scalars,
        **arrays,
    )


@dataclass(frozen=True)
class Shares:
    """alpha_mb and alpha_mb l_mb of some users. A pass over the users makes them, and one over the items reads them."""

    temperature: NDArray[np.float64]  # [users]
    alpha: NDArray[np.float32]  # [users, groups]
    alpha_l: NDArray[np.float32]  # [users, groups]

    @classmethod
    def empty(cls, temperature: NDArray[np.float64], groups: int, spare: Spare | None = None) -> Shares:
        shape = (len(temperature), groups)
        return cls(temperature, empty(shape, np.float32, spare), empty(shape, np.float32, spare))

    @classmethod
    def zeros(cls, temperature: NDArray[np.float64], groups: int) -> Shares:
        shape = (len(temperature), groups)
        return cls(temperature, np.zeros(shape, np.float32), np.zeros(shape, np.float32))

    def read(
        self,
        factors: int,
        groups: ItemGroups,
        users: UserGroups | None = None,
        items: slice = slice(None),
        liked: NDArray[np.float64] | None = None,
    ) -> compiled.Expected:
        """The closed form for a pass over these users; or, with the sums over users, for one over (some) items.

        Where the liked items are elsewhere, `liked` is what compiled.liked_sums made of them, [users, groups, 5].
        """
        return closed_form(
            factors,
            (groups.group_of_item[items], groups.beta[items]),
            groups.sums,
            (groups.table, groups.grid_start),
            users,
            temperature=self.temperature,
            alpha=self.alpha,
            alpha_l=self.alpha_l,
            liked=liked,
        )

    def given(
        self,
        factors: int,
        group_of_item: NDArray[np.int32],
        beta: NDArray[np.float64],
        users: UserGroups | None = None,
    ) -> compiled.Expected:
        """The closed form of some items where alpha and l are only read: they may be another process's."""
        groups = self.alpha.shape[1]
        return closed_form(
            factors,
            (group_of_item, beta),
            ItemSums.zeros(factors, groups),
            (np.zeros((groups, 2, 2)), 0.0),
            users,
            temperature=self.temperature,
            given_alpha=self.alpha,
            given_alpha_l=self.alpha_l,
        )

    def add_up(self, users: Side, liked: Adjacency, blocks: NDArray[np.int64], run: Any) -> UserGroups:
        """What items read of these users, from the alpha and l that the last pass left; blocks along the tree."""
        nothing = np.empty(0, np.int32), np.empty(0)
        reading = compiled.Pass(
            factors=users.factors,
            own=users.rows,
            own_bias_mean=users.bias_mean,
            own_bias_variance=users.bias_variance,
            other=users.rows[:0],
            liked_starts=liked.starts,
            liked=liked.indices,
            expected=self.given(users.factors, *nothing),
        )

        def sums(block: Range) -> UserGroups:
            return UserGroups(*compiled.group_sums(reading, *block))

        parts: list[UserGroups] = run(sums, ranges(blocks))
        return add_along_tree(parts, UserGroups.merge)


class Expected:
    """E[h_mn] in place of draws."""

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
        self.by_user, self.user_blocks, self.weights = by_user, user_blocks, weights
        self.grouping = Grouping(weights, offset, groups, saturation)
        temperature = self.grouping.saturation.temperatures(by_user, user_blocks, negatives, run)
        self.shares = Shares.zeros(temperature, self.groups)
        self._items: ItemGroups | None = None

    @property
    def offset(self) -> float:
        return self.grouping.offset

    @property
    def groups(self) -> int:
        return self.grouping.groups

    @property
    def bins(self) -> int:
        return self.grouping.bins

    @property
    def tastes(self) -> int:
        return self.grouping.tastes

    @property
    def group_of_item(self) -> NDArray[np.int32]:
        return self.grouping.group_of_item

    @property
    def alpha(self) -> NDArray[np.float32]:
        return self.shares.alpha

    def regroup(self, items: Side) -> None:
        """New groups: popularity bins times clusters of taste."""
        self.grouping.regroup(items.mean)

    def use_groups(self, group_of_item: NDArray[np.int32]) -> None:
        """These groups, until the next ones."""
        self.grouping.use(group_of_item)

    def user_terms(self, sweep: int, posterior: Posterior, run: Any) -> Terms:
        if self.grouping.moves(sweep):
            self.regroup(posterior.items)
        self._items = self.grouping.of(posterior.items)
        return Terms(expected=self.shares.read(posterior.factors, self._items))

    def item_terms(self, sweep: int, posterior: Posterior, run: Any) -> Terms:
        assert self._items is not None
        users = self.shares.add_up(posterior.users, self.by_user, self.user_blocks, run)
        return Terms(expected=self.shares.read(posterior.factors, self._items, users))

    def settled(self, sweep: int) -> bool:
        return sweep > FREEZE_AFTER

    def considered(self, user: int) -> NDArray[np.float64]:
        """E[h_mn] of one user for every item: 1 for what was liked, alpha_mb beta_n elsewhere."""
        expected = np.asarray(self.alpha[user, self.group_of_item] * self.weights, np.float64)
        expected[self.by_user.row(user)] = 1.0
        return expected
