"""The sweep over parts of items: users down, their natural gradients up, and the users stepped here (eq. 21).

The order within a sweep is the same, users and then items. As the users' sums are made where the items are, they are
made at the end of the visit before: a visit steps the items and goes on to the sums of the next sweep. In expected mode
alpha needs a sum over all that a user liked, so that another call goes before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import ITEMS, USERS, Adjacency, Range, ranges
from considerate.distributed.messages import Broadcast, ClosedForm, Sums, SumsRequest
from considerate.distributed.runners.base import PartitionedRunner
from considerate.inference.bound import Bound
from considerate.inference.hidden import Shares, Terms
from considerate.inference.posterior import Side
from considerate.inference.sums import EdgeSums, PassConstants, side_pass
from considerate.inference.sweep import State, Sweep, check_rows, initial_items, initial_side
from considerate.inference.updates import Moments, RowClasses, SideSolver, SideUpdate
from considerate.kernels import compiled
from considerate.kernels.arrays import add_in_order

NONE = np.empty(0, np.int32)


@dataclass(frozen=True)
class Ahead:
    """What a visit has made for the sweep after it."""

    state: State
    sums: Sums
    edge_bound: float  # sampled mode: it comes with the sums


class ByItemsRunner(PartitionedRunner):
    """Items live with the parts; the users are here, and travel."""

    _ahead: Ahead | None = None
    _temperature: NDArray[np.float64] | None = None
    _offsets: NDArray[np.float32] | None = None

    def begin(self) -> State:
        """The state before the first sweep, here and with the parts."""
        items = initial_items(self.outline.item_count, self.settings)
        self.pool.call("begin", self.pool.share(items), changes=True)
        users = initial_side(self.outline.user_count, self.settings, USERS, self._spare)
        return self._first_state(users, self._nobody(), (Moments.of(users), Moments.of(items)))

    def evaluate_bound(self, state: State) -> Bound:
        """L_xi of a state, on the H of the sweep that would come next."""
        self._go_back(state)
        return self._bound(state, self._sums(state, 0, None)[1])

    def _sweep(self, state: State) -> Sweep:
        number, epsilon = state.sweep + 1, self._epsilon(state)
        users, edge_bound, shares = self._step_users(state, epsilon)
        self._ahead = None
        bound = self._bound(state, edge_bound)
        check_rows(users.bad_row, "user", number, state)
        taus, closed = state.posterior.precisions.means_of(ITEMS), self._closed(shares, users.side)
        down = Broadcast(number, users.side, epsilon, *taus, closed=closed)
        # What the next sweep begins with comes with the visit, but for groups that are about to move, or to be left.
        ask = self._ask(0) if self._goes_on(number) else None
        up = self._call("visit", self.pool.share(down), ask, changes=True)
        blocks = up.in_order().tolist()
        swept = self._end(state, users, self._residents(blocks, state), bound)
        if ask is not None:
            self._ahead = Ahead(swept.state, up.root(), add_in_order(block[0] for block in blocks))
        return swept

    def _step_users(self, state: State, epsilon: float) -> tuple[SideUpdate, float, Shares | None]:
        """(the users stepped, the edges' part of the bound before, alpha and l), a block of coordinates at a time."""
        q = state.posterior
        solver = SideSolver(q.users.empty_like(self._spare), RowClasses.all_alike(self.outline.user_blocks), self.run)
        constants = PassConstants.of(self.settings, q.precisions.means_of(USERS), epsilon)
        kernel_pass = side_pass(q.users, self._nobody(), self._no_edges(), Terms(), constants, own_is_user=True)
        edge_bound, shares = 0.0, None
        for block in range(len(compiled.coordinate_blocks(q.factors))):
            edges, bound, shares = self._sums(state, block, solver.new if block else None)
            edge_bound = edge_bound if block else bound
            solver.solve(kernel_pass, edges, 0, len(q.users), block)
        return solver.result(), edge_bound, shares

    def _sums(self, state: State, block: int, stepped: Side | None) -> tuple[EdgeSums, float, Shares | None]:
        """(the users' sums over all items, the edges' part of the bound, alpha and l), of a block of coordinates."""
        users, number, ask = state.posterior.users, state.sweep + 1, self._ask(block)
        ahead = self._ahead if block == 0 and self._ahead is not None and self._ahead.state is state else None
        given = None if stepped is None else self.pool.share(stepped)
        if self.grouping is None:
            if ahead is None:
                down = self.pool.share(Broadcast(number, users, 1.0, 1.0, 1.0))
                up = self._call("sums", down, ask, given)
                ahead = Ahead(state, up.root(), add_in_order(up.in_order()[:, 0].tolist()))
            assert ahead.sums.edges is not None
            return ahead.sums.edges, ahead.edge_bound, None
        if block == 0 and self.grouping.moves(number):
            self.grouping.regroup(np.concatenate(self.pool.call("means")))
        if ahead is not None:
            root = ahead.sums
        else:
            down = self.pool.share(Broadcast(number, users, 1.0, 1.0, 1.0, closed=self._closed()))
            root = self._call("groups", down).root()
        closed, bound, shares = self._closed_sums(root, users, block, stepped)
        down = self.pool.share(Broadcast(number, users, 1.0, 1.0, 1.0, closed=self._closed(shares)))
        up = self._call("sums", down, ask, given)
        edges = up.root().edges
        assert edges is not None
        return edges.take_in(closed), add_in_order(up.in_order()[:, 0].tolist()) + bound, shares

    def _closed_sums(self, root: Sums, users: Side, block: int, stepped: Side | None) -> tuple[EdgeSums, float, Shares]:
        """Expected mode: what the groups add to the users' sums and to the bound; alpha and l are made by it."""
        assert self.grouping is not None
        assert root.items is not None
        groups = self.grouping.with_sums(root.items)
        shares = Shares.empty(self._temperatures(), groups.groups)
        terms = Terms(expected=shares.read(users.factors, groups, liked=root.liked))
        constants = PassConstants.of(self.settings, user_offset=self._user_offsets())
        kernel_pass = side_pass(users, self._nobody(), self._no_edges(), terms, constants, own_is_user=True)
        sums = EdgeSums.empty(len(users), compiled.coordinate_blocks(users.factors)[block])
        out = (None, None, None) if stepped is None else stepped.arrays()

        def some(rows: Range) -> float:
            into = sums.rows(*rows).arrays()
            return compiled.sum_rows(kernel_pass, np.arange(*rows, dtype=np.int32), 0, 0, True, *into, block, *out)

        return sums, add_in_order(self.run(some, ranges(self.outline.user_blocks))), shares

    def _closed(self, shares: Shares | None = None, stepped: Side | None = None) -> ClosedForm | None:
        """Expected mode: what the items read; with the sums over users where these are stepped."""
        if self.grouping is None:
            return None
        of, groups, users = self.grouping.group_of_item, self.grouping.groups, None
        if shares is not None and stepped is not None:
            users = shares.add_up(stepped, self.outline.user_blocks, self.run, self._user_offsets())
        return ClosedForm(of, groups, self._temperatures(), shares, users)

    def _temperatures(self) -> NDArray[np.float64]:
        if self._temperature is None:
            self._temperature = np.concatenate(self.pool.call("temperatures", self._fixed))
        return self._temperature

    def _user_offsets(self) -> NDArray[np.float32]:
        if self._offsets is None:
            self._offsets = np.concatenate(self.pool.call("user_offsets", self._fixed))
        return self._offsets

    def _ask(self, block: int) -> SumsRequest:
        return SumsRequest(0, self.outline.user_count, block)

    def _no_edges(self) -> Adjacency:
        return Adjacency(np.zeros(self.outline.user_count + 1, np.int64), NONE)
