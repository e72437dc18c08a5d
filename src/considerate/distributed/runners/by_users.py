"""The sweep over parts of users: items down, their natural gradients up, and the items stepped here (eq. 21).

It does what `fit.sweeps` does, with the same bits: a part's sums are a node of the tree along which one pass would add
them, and everything else is added in the order of the blocks. With inner sweeps a part sweeps several times on its own.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np

from considerate.data.graph import ITEMS, USERS, Adjacency, Range, ranges
from considerate.distributed.messages import Broadcast, Sums, SumsRequest
from considerate.distributed.partitions.inner import InnerBroadcast, InnerReply, step_items
from considerate.distributed.pools import SinglePartCall
from considerate.distributed.runners.base import PartitionedRunner
from considerate.inference.bound import Bound
from considerate.inference.hidden import Shares, Terms, UserGroups
from considerate.inference.posterior import Side
from considerate.inference.sums import CoordinateBlock, EdgeSums, PassConstants, edge_sums, side_pass
from considerate.inference.sweep import State, Sweep, check_rows, initial_items, initial_side
from considerate.inference.updates import Moments, RowClasses, SideSolver, SideUpdate
from considerate.kernels import compiled


class ByUsersRunner(PartitionedRunner):
    """Users live with the parts; the items are here, and travel."""

    @cached_property
    def shards(self) -> list[Range]:
        """Ranges of items whose sums are asked for together: whole blocks of items, about as many blocks each."""
        item_blocks = self.outline.item_blocks
        blocks = len(item_blocks) - 1
        cuts = np.linspace(0, blocks, min(self.options.item_shards or 1, blocks) + 1).round().astype(int)
        return ranges(item_blocks[np.unique(cuts)])

    @cached_property
    def classes(self) -> RowClasses:
        return RowClasses.of(self.outline.item_degree, self.outline.item_blocks)

    def begin(self) -> State:
        """The state before the first sweep, here and with the parts."""
        self.pool.call("begin", changes=True)
        items = initial_items(self.outline.item_count, self.settings, self._spare)
        users = Moments.of_alike(self.outline.user_count, lambda rows: initial_side(rows, self.settings, "users"))
        return self._first_state(self._nobody(), items, (users, Moments.of(items)))

    def evaluate_bound(self, state: State) -> Bound:
        """L_xi of a state, on the H of the sweep that would come next."""
        self._go_back(state)
        up = self._call("bound", self.pool.share(self._down(state, 1.0)))
        return self._bound(state, sum(up.in_order()[:, 0].tolist()))

    def _down(self, state: State, epsilon: float) -> Broadcast:
        q, number = state.posterior, state.sweep + 1
        groups = None
        if self.grouping is not None:
            if self.grouping.moves(number):
                self.grouping.regroup(q.items.mean)
            groups = self.grouping.of(q.items)
        return Broadcast(number, q.items, epsilon, *q.precisions.means_of(USERS), groups)

    def _sweep(self, state: State) -> Sweep:
        q, down = state.posterior, self._down(state, self._epsilon(state))
        shared = self.pool.share(down)
        sizes = compiled.coordinate_blocks(q.factors)
        asks = [(shard, block) for shard in self.shards for block in range(len(sizes))]
        solver = SideSolver(q.items.empty_like(self._spare), self.classes, self.run)
        blocks: list[list[float]] = []  # as Reply has them
        users: UserGroups | None = None
        for shard, coordinates in asks:
            ask = SumsRequest(*shard, coordinates, (shard, coordinates) == asks[-1])
            if not blocks:
                up = self._call("visit", shared, ask, changes=True)
                blocks, users = up.in_order().tolist(), up.root().users
                bound = self._bound(state, sum(block[0] for block in blocks))
                stepped_users = self._residents(blocks, state)
            else:
                stepped = solver.new.between(*shard) if coordinates else None
                given = None if stepped is None else self.pool.share(stepped)
                up = self._call("sums", shared, ask, given)
            edges = up.root().edges
            assert edges is not None
            del up
            self._solve(solver, down, state, edges, users, ask)
        items = solver.result()
        check_rows(items.bad_row, "item", state.sweep + 1, state)
        return self._end(state, stepped_users, items, bound)

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
        order = np.concatenate(self.classes.summed(ask.first, ask.last)) - ask.first
        edges = EdgeSums(*(array[order] for array in edges.arrays()))
        solver.solve(kernel_pass, edges, ask.first, ask.last, ask.block)


class InnerSweepsRunner(ByUsersRunner):
    """A sweep is one visit of every part, which sweeps over its own users and the items several times."""

    def _sweep(self, state: State) -> Sweep:
        down = self._down(state, self._epsilon(state))
        up = self._call("messages", self.pool.share(down), changes=True)
        bound = self._bound(state, sum(up.in_order()[:, 0].tolist()))
        visit = self._one_at_a_time if self.options.inner == "one" else self._together
        items, blocks, bad_item = visit(state, down, up.root())
        users = self._residents(blocks, state)
        check_rows(bad_item, "item", state.sweep + 1, state)
        return self._end(state, users, SideUpdate(items, Moments.of(items)), bound)

    def _one_at_a_time(self, state: State, down: Broadcast, total: Sums) -> tuple[Side, list[list[float]], int]:
        """Each part from the items and the messages that the one before has left."""
        blocks: list[list[float]] = []
        bad = -1
        for number in range(self.setup.parts):
            given = self.pool.share(self._inner_down(state, down, total))
            answers = self.pool.call(SinglePartCall(number, "inner"), self._fixed, given, changes=True)
            reply: InnerReply = next(answer for answer in answers if answer is not None)
            down, total = replace(down, other=reply.items), reply.total
            blocks += reply.blocks.tolist()
            bad = reply.bad_item if bad < 0 else bad
        return down.other, blocks, bad

    def _together(self, state: State, down: Broadcast, total: Sums) -> tuple[Side, list[list[float]], int]:
        """All parts from the same items and messages; the items from the new messages of all."""
        given = self.pool.share(self._inner_down(state, down, total))
        up = self._call("inner_together", given, changes=True)
        all_items = np.arange(self.outline.item_count, dtype=np.int32)
        items, bad = step_items(down.other, up.root(), all_items, self._item_step(state, down), down.groups)
        return items, up.in_order().tolist(), bad

    def _inner_down(self, state: State, down: Broadcast, total: Sums) -> InnerBroadcast:
        step = self._item_step(state, down)
        return InnerBroadcast(down, total, step.tau, step.tau_bias, self.options.inner_sweeps)

    def _item_step(self, state: State, down: Broadcast) -> PassConstants:
        return PassConstants.of(self.settings, state.posterior.precisions.means_of(ITEMS), down.epsilon)
