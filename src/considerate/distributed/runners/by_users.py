"""The sweep over parts of users: items down, their natural gradients up, and the items stepped here (eq. 21).

It does what `fit.sweeps` does, with the same bits: a part's sums are a node of the tree along which one pass would add
them, and everything else is added in the order of the blocks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import ITEMS, USERS, Adjacency, Range, ranges
from considerate.distributed.messages import Broadcast, Reply, SumsRequest, merge_replies
from considerate.distributed.runners.base import PartitionedRunner
from considerate.inference.bound import Bound
from considerate.inference.hidden import Shares, Terms, UserGroups
from considerate.inference.posterior import Posterior
from considerate.inference.schedule import StepSize
from considerate.inference.sums import CoordinateBlock, EdgeSums, PassConstants, edge_sums, side_pass
from considerate.inference.sweep import (
    State,
    Sweep,
    bound_of,
    check_bound,
    check_rows,
    initial_items,
    initial_precisions,
    initial_side,
    next_state,
)
from considerate.inference.updates import Moments, SideSolver, SideUpdate, heavy_rows
from considerate.kernels import compiled


def shard_ranges(item_blocks: NDArray[np.int64], shards: int) -> list[Range]:
    """Ranges of items whose sums are asked for together: whole blocks of items, about as many blocks each."""
    blocks = len(item_blocks) - 1
    cuts = np.unique(np.linspace(0, blocks, min(shards, blocks) + 1).round().astype(int))
    return ranges(item_blocks[cuts])


class ByUsersRunner(PartitionedRunner):
    """Users live with the parts; the items are here, and travel."""

    def __init__(self, *arguments: Any, item_shards: int = 1, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.shards = shard_ranges(self.outline.item_blocks, item_shards)
        self.heavy = heavy_rows(self.outline.item_degree, self.outline.item_blocks)

    def begin(self) -> State:
        """The state before the first sweep, here and with the parts."""
        self.pool.call("begin", changes=True)
        items = initial_items(self.outline.item_count, self.settings, self._spare)
        posterior = Posterior(self._nobody(), items, initial_precisions(*self.counts, self.settings))
        users = Moments.of_alike(self.outline.user_count, lambda rows: initial_side(rows, self.settings, "users"))
        return State(0, posterior, StepSize(self.settings.step_delay), users, Moments.of(items))

    def evaluate_bound(self, state: State) -> Bound:
        """L_xi of a state, on the H of the sweep that would come next."""
        self._go_back(state)
        up: Reply = self.pool.call("bound", self._fixed, self.pool.share(self._down(state, 1.0)), merge=merge_replies)
        return bound_of(state, sum(up.in_order()[:, 0].tolist()), self.settings, self.counts)

    def _down(self, state: State, epsilon: float) -> Broadcast:
        q, number = state.posterior, state.sweep + 1
        groups = None
        if self.grouping is not None:
            if self.grouping.moves(number):
                self.grouping.regroup(q.items.mean)
            groups = self.grouping.of(q.items)
        return Broadcast(number, q.items, epsilon, *q.precisions.means_of(USERS), groups)

    def _sweep(self, state: State) -> Sweep:
        number, q = state.sweep + 1, state.posterior
        epsilon = 1.0 if self.deterministic else state.step_size.epsilon
        down = self._down(state, epsilon)
        shared = self.pool.share(down)
        sizes = compiled.coordinate_blocks(q.factors)
        asks = [(shard, block) for shard in self.shards for block in range(len(sizes))]
        solver = SideSolver(q.items.empty_like(self._spare), self.outline.item_blocks, self.heavy, self.run)
        blocks: list[list[float]] = []
        users: UserGroups | None = None
        for shard, block in asks:
            ask = SumsRequest(*shard, block, (shard, block) == asks[-1])
            if not blocks:
                up: Reply = self.pool.call("visit", self._fixed, shared, ask, merge=merge_replies, changes=True)
                blocks, users = up.in_order().tolist(), up.root().users
                bound = bound_of(state, sum(one[0] for one in blocks), self.settings, self.counts)
                bad = [int(one[1]) for one in blocks if one[1] >= 0]
                check_rows(min(bad, default=-1), "user", number, state)
            else:
                stepped = solver.new.between(*shard) if block else None
                given = None if stepped is None else self.pool.share(stepped)
                up = self.pool.call("sums", self._fixed, shared, ask, given, merge=merge_replies)
            edges = up.root().edges
            assert edges is not None
            del up
            self._solve(solver, down, state, edges, users, ask)
        items = solver.result()
        check_rows(items.bad_row, "item", number, state)
        stepped_users = SideUpdate(self._nobody(), Moments.total([block[2:] for block in blocks]))
        new = next_state(state, stepped_users, items, self.counts, self.settings, epsilon)
        check_bound(bound, number, state)
        return Sweep(new, bound, epsilon, self._settled(number))

    def _solve(
        self,
        solver: SideSolver,
        down: Broadcast,
        state: State,
        edges: EdgeSums,
        users: UserGroups | None,
        ask: SumsRequest,
    ) -> None:
        """Step the items that were asked for, from their sums over all users."""
        own, terms = down.other.between(ask.first, ask.last), Terms()
        if down.groups is not None:
            shares = Shares.empty(np.empty(0), down.groups.groups)
            terms = Terms(expected=shares.read(own.factors, down.groups, users, items=ask.rows))
        no_edges = Adjacency(np.zeros(len(own) + 1, np.int64), np.empty(0, np.int32))
        constants = PassConstants.of(self.settings, state.posterior.precisions.means_of(ITEMS), down.epsilon)
        kernel_pass = side_pass(own, self._nobody(), no_edges, terms, constants, own_is_user=False)
        if users is not None:
            rows, stepped = np.arange(len(own), dtype=np.int32), solver.new.between(ask.first, ask.last)
            block = CoordinateBlock.of(own.factors, ask.block, stepped)
            edges = edges.take_in(edge_sums(kernel_pass, rows, block, (0, 0), closed_form=True))
        solver.solve(kernel_pass, edges, ask.first, ask.last, ask.block)
