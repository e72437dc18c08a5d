"""Sweeps over parts of items: the users travel and are stepped at the head (eq. 21).

A sweep steps the users and then the items, as always. The users' sums need the items' new rows, so a visit steps the
items and goes on to the users' sums of the next sweep. In the closed form alpha needs a sum over all likes of a user,
which another call brings first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import ITEMS, USERS, ranges
from considerate.distributed.messages import Broadcast, ClosedForm, Sums, SumsRequest
from considerate.distributed.runners.runner import PartitionedRunner
from considerate.distributed.travelling import TravellingStep
from considerate.inference.hidden import Grouping, Shares
from considerate.inference.posterior import Side
from considerate.inference.sums import EdgeSums, PassConstants
from considerate.inference.sweep import State, Sweep, initial_items, initial_side
from considerate.inference.updates import Moments, RowClasses, SideSolver, SideUpdate
from considerate.kernels import compiled


@dataclass(frozen=True)
class NextSums:
    """Sums that a visit made for the next sweep."""

    sums: Sums
    edge_bound: float  # zero in the closed form
    state: State | None = None  # the state that the sweep ended with


class ByItemsRunner(PartitionedRunner):
    """Items live with the parts; the users travel."""

    _next: NextSums | None = None

    def begin(self) -> State:
        items = initial_items(self.outline.item_count, self.settings)
        self.pool.call("begin", self.pool.share(items), changes=True)
        users = initial_side(self.outline.user_count, self.settings, USERS, self._spare)
        return self._first_state(users, self._no_residents(), (Moments.of(users), Moments.of(items)))

    def _edge_bound(self, state: State) -> float:
        return self._block_sums(state, self._users_step(state, 1.0), self._request(0))[1]

    def _sweep(self, state: State) -> Sweep:
        swept = super()._sweep(state)
        if self._next is not None:
            self._next = replace(self._next, state=swept.state)
        return swept

    def _updates(self, state: State, epsilon: float) -> Iterator[SideUpdate]:
        step, edge_bound, shares = self._users_step(state, epsilon), 0.0, None
        for block in range(len(compiled.coordinate_blocks(self.settings.factors))):
            request = self._request(block)
            edges, bound, shares = self._block_sums(state, step, request)
            edge_bound = edge_bound if block else bound
            step.solve(edges, request)
        self._next = None
        users = step.solver.result()
        yield replace(users, edge_bound=edge_bound)
        number, taus = state.sweep + 1, state.posterior.precisions.means_of(ITEMS)
        down = Broadcast(number, users.side, epsilon, *taus, self._closed_form(shares, users.side))
        # The first sums of the next sweep come with the visit, unless groups move or the opening ends.
        goes_on = self.grouping is None or not (self.grouping.moves(number + 1) or number == self.settings.opening)
        request_now = self._request(0) if goes_on else None
        up = self._call("visit", self.pool.share(down), request_now, changes=True)
        items = self._resident_update(up.in_order().tolist())
        if goes_on:
            self._next = NextSums(up.root(), items.edge_bound)
        yield items

    def _users_step(self, state: State, epsilon: float) -> TravellingStep:
        q = state.posterior
        classes = RowClasses.all_alike(self.outline.user_blocks)
        solver = SideSolver(q.users.empty_like(self._spare), classes, self.run)
        offset = None if self.grouping is None else self._user_offsets
        constants = PassConstants.of(self.settings, q.precisions.means_of(USERS), epsilon, user_offset=offset)
        return TravellingStep(solver, q.users, constants, own_is_user=True)

    def _block_sums(
        self, state: State, step: TravellingStep, request: SumsRequest
    ) -> tuple[EdgeSums, float, Shares | None]:
        """(users' sums over all items, edges' part of the bound, alpha and l) of one block of coordinates."""
        is_next = request.block == 0 and self._next is not None and self._next.state is state
        ready = self._next if is_next else None
        if self.grouping is not None:
            return self._closed_block_sums(state, step, request, self.grouping, ready)
        if ready is None:
            return *self._edge_sums(Broadcast(state.sweep + 1, state.posterior.users), step, request), None
        assert ready.sums.edges is not None
        return ready.sums.edges, ready.edge_bound, None

    def _closed_block_sums(
        self, state: State, step: TravellingStep, request: SumsRequest, grouping: Grouping, ready: NextSums | None
    ) -> tuple[EdgeSums, float, Shares]:
        """`_block_sums` in the closed form: sums by group come first, alpha is made from them, then come edges."""
        users, number = state.posterior.users, state.sweep + 1
        if request.block == 0 and grouping.moves(number):
            grouping.regroup(np.concatenate(self.pool.call("means")))
        if ready is None:
            down = Broadcast(number, users, closed=self._closed_form())
            root = self._call("groups", self.pool.share(down)).root()
        else:
            root = ready.sums
        assert root.items is not None
        groups = grouping.with_sums(root.items)
        shares = Shares.empty(self._temperatures, groups.groups)
        pieces = [np.arange(*rows, dtype=np.int32) for rows in ranges(self.outline.user_blocks)]
        expected = shares.read(groups, liked=root.liked)
        closed, closed_bound = step.closed_sums(expected, request, pieces)
        edges, bound = self._edge_sums(Broadcast(number, users, closed=self._closed_form(shares)), step, request)
        return edges.take_in(closed), bound + closed_bound, shares

    def _edge_sums(self, down: Broadcast, step: TravellingStep, request: SumsRequest) -> tuple[EdgeSums, float]:
        """(sums over the edges, their part of the bound) from all parts."""
        stepped = self.pool.share(step.solver.new) if request.block else None
        up = self._call("sums", self.pool.share(down), request, stepped)
        return up.edges(), up.bound()

    def _closed_form(self, shares: Shares | None = None, stepped: Side | None = None) -> ClosedForm | None:
        """Closed form as the items read it; with the sums over the users once these are stepped."""
        if self.grouping is None:
            return None
        users = None
        if shares is not None and stepped is not None:
            users = shares.add_up(stepped, self.outline.user_blocks, self.run, self._user_offsets)
        return ClosedForm(self.grouping.group_of_item, self.grouping.groups, self._temperatures, shares, users)

    @cached_property
    def _temperatures(self) -> NDArray[np.float64]:
        return np.concatenate(self.pool.call("temperatures", self.hidden))

    @cached_property
    def _user_offsets(self) -> NDArray[np.float32]:
        return np.concatenate(self.pool.call("user_offsets", self.hidden))

    def _request(self, block: int) -> SumsRequest:
        return SumsRequest(0, self.outline.user_count, block, keep=True)
