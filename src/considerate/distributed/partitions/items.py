"""Parts of items: a division for where there are far fewer users than items. The users' side travels.

A part redraws all users' rows from the key (seed, sweep, user) and keeps the edges of its own items: it needs what all
users liked for that. Parts of one process share the draws.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency, GraphPart, transpose
from considerate.distributed.messages import Broadcast, PartitionSetup, Reply, SharedCache, Sums, SumsRequest
from considerate.distributed.partitions.base import Fixed, Partition, spare_sums, spares
from considerate.inference.hidden import Draws, Inclusion, ItemSums, Shares, Terms, user_offset
from considerate.inference.hidden.consideration import Rows, WalkSteps
from considerate.inference.posterior import Side
from considerate.inference.sums import CoordinateBlock, EdgeSums, PassConstants, fill_sums, side_pass
from considerate.kernels import compiled

USERS_PER_DRAW = 1 << 14  # users whose rows are drawn together where parts come one at a time


class ItemPartition(Partition):
    """Some items: their rows, and who liked them."""

    def __init__(self, graph: GraphPart, setup: PartitionSetup) -> None:
        super().__init__(graph, setup)
        self._liked_by_user: Adjacency | None = None
        self._unliked: tuple[int, Adjacency] | None = None  # of a sweep, by item

    @property
    def _items(self) -> slice:
        return slice(self.graph.first, self.graph.first + self.graph.rows)

    def visit(self, fixed: Fixed, down: Broadcast, ask: SumsRequest | None) -> Reply:
        """Step the items, given the users' new rows; then the sums for the users of the next sweep, if they are asked
        for; or in expected mode what comes before those sums, if the groups have come to rest."""
        self._learn_offsets(fixed)
        taus = down.tau, down.tau_bias
        constants = PassConstants.of(self.setup.plan, taus, down.epsilon, user_offset=self._user_offset)
        terms = self._item_terms(fixed, down)
        kernel_pass = side_pass(self.side, down.other, self.graph.likes, terms, constants, own_is_user=False)
        new = self._room()
        blocks = self._step_rows(kernel_pass, new)
        blocks[:, 0] = 0.0  # the bound comes with the sums for the users
        self._step(new, down.sweep)
        self._unliked = None
        if ask is None:
            return self._reply(blocks, Sums())
        if down.closed is not None:
            return self._reply(blocks, self._group_sums(fixed, down))
        sums, blocks[0, 0] = self._sums(fixed, down, down.sweep + 1, ask, None)
        return self._reply(blocks, sums)

    def sums(self, fixed: Fixed, down: Broadcast, ask: SumsRequest, stepped: Side | None = None) -> Reply:
        """The sums for the users over the items here, and the edges' part of the bound."""
        self._learn_offsets(fixed)
        sums, bound = self._sums(fixed, down, down.sweep, ask, stepped)
        return self._reply(np.array([[bound, -1.0, 0.0, 0.0, 0.0, 0.0]]), sums)

    def groups(self, fixed: Fixed, down: Broadcast) -> Reply:
        """Expected mode: what users read of the items here, and what the groups hold of those they liked."""
        self._learn_offsets(fixed)
        return self._reply(None, self._group_sums(fixed, down))

    def means(self) -> NDArray[np.float32]:
        """The items' means, for their groups."""
        return self.side.mean

    def temperatures(self, inclusion: Inclusion) -> NDArray[np.float64]:
        """T_m of this part's share of the users, in the order of the parts."""
        mine = self._share_of_users()
        return inclusion.temperatures(mine, np.array([0, mine.rows]), self.setup.plan.negatives)

    def user_offsets(self, fixed: Fixed) -> NDArray[np.float32]:
        """Offsets of this part's share of the users, in the order of the parts."""
        assert fixed is not None
        mine = self._share_of_users()
        offset = user_offset(mine, fixed.weights, self.setup.plan)
        return np.zeros(mine.rows, np.float32) if offset is None else offset

    def _share_of_users(self) -> Adjacency:
        """Likes of the users whose numbers are worked out here."""
        shares = np.linspace(0, self.setup.user_count, self.setup.parts + 1).astype(np.int64)
        return self._all_user_likes().between(int(shares[self.number]), int(shares[self.number + 1]))

    def _offsets(self, weights: NDArray[np.float64]) -> NDArray[np.float32] | None:
        return user_offset(self._all_user_likes(), weights, self.setup.plan)

    def liked_masses(self, inclusion: Inclusion, temperature: NDArray[np.float64]) -> NDArray[np.float64]:
        """Of each item here, the sum of -w_mn over who liked it: for the correction of pi at the head."""
        likes = self.graph.likes
        items = likes.edge_rows
        product = temperature[likes.indices] * inclusion.weights[self._items][items]
        masses: NDArray[Any] = np.bincount(items, np.expm1(-product), minlength=likes.rows)
        return masses

    def walk_work(self, pull: NDArray[np.float64]) -> NDArray[np.int64]:
        """Steps that each row of the walk from the items here costs."""
        return self._walk_steps(pull).work()

    def walk_rows(self, pull: NDArray[np.float64], weights: NDArray[np.float64], length: int) -> list[Rows]:
        """The rows of the walk from the items here, cut to `length` entries."""
        return list(self._walk_steps(pull).rows(weights, length))

    def _walk_steps(self, pull: NDArray[np.float64]) -> WalkSteps:
        return WalkSteps(self._all_user_likes(), self.graph.likes, pull, first_item=self.graph.first)

    def _all_user_likes(self) -> Adjacency:
        assert self.graph.all_user_likes is not None, "a part of the items needs what all users liked"
        return self.graph.all_user_likes

    def _group_sums(self, fixed: Fixed, down: Broadcast) -> Sums:
        assert down.closed is not None
        assert isinstance(fixed, Inclusion)
        mine, users = down.closed.group_of_item[self._items], down.other
        items = ItemSums.of(self.side, self.setup.plan.offset, fixed.weights[self._items], mine, down.closed.groups)
        kernel_pass = self._users_pass(users, self._closed(fixed, down))
        return Sums(items=items, liked=compiled.liked_sums(kernel_pass, 0, len(users)))

    def _sums(
        self, fixed: Fixed, down: Broadcast, sweep: int, ask: SumsRequest, stepped: Side | None
    ) -> tuple[Sums, float]:
        if isinstance(fixed, Draws):
            drawn = self._drawn(fixed, down.once, sweep)
            terms = Terms(unliked=transpose(drawn, self.setup.user_count, spare=spares.turned))
        else:
            terms = self._closed(fixed, down)
        rows = np.arange(ask.first, ask.last, dtype=np.int32)
        block = CoordinateBlock.of(self.side.factors, ask.block, stepped)
        kernel_pass = self._users_pass(down.other, terms)
        sums = EdgeSums.empty(len(rows), block.size, spare_sums)
        bound = fill_sums(kernel_pass, rows, block, (0, len(self.side)), sums)
        return Sums(edges=sums), bound

    def _users_pass(self, users: Side, terms: Terms) -> compiled.Pass:
        if self._liked_by_user is None:
            self._liked_by_user = transpose(self.graph.likes, self.setup.user_count)
        constants, splits = PassConstants.of(self.setup.plan, user_offset=self._user_offset), self.graph.blocks
        return side_pass(users, self.side, self._liked_by_user, terms, constants, own_is_user=True, splits=splits)

    def _item_terms(self, fixed: Fixed, down: Broadcast) -> Terms:
        if isinstance(fixed, Draws):
            return Terms(unliked=self._drawn(fixed, down.once, down.sweep))
        return self._closed(fixed, down)

    def _closed(self, fixed: Fixed, down: Broadcast) -> Terms:
        assert down.closed is not None
        assert isinstance(fixed, Inclusion)
        closed = down.closed
        shares = closed.shares or down.once.get("no shares", lambda: Shares.zeros(closed.temperature, closed.groups))
        mine, beta = closed.group_of_item[self._items], fixed.weights[self._items]
        return Terms(expected=shares.given(self.side.factors, mine, beta, closed.users))

    def _drawn(self, draws: Draws, once: SharedCache, sweep: int) -> Adjacency:
        """The unliked edges of H^(sweep) that lead to the items here, by item."""
        if self._unliked is None or self._unliked[0] != sweep:
            if self.setup.out_of_core:
                drawn = self._draw_in_slices(draws, sweep)
            else:
                whole = once.get(("drawn", sweep), lambda: self._draw_all(draws, sweep))
                drawn = whole.between(self.graph.first, self.graph.first + self.graph.rows)
            self._unliked = sweep, drawn
        return self._unliked[1]

    def _draw_all(self, draws: Draws, sweep: int) -> Adjacency:
        drawn = self._draw_for(self._all_user_likes(), 0, draws, sweep)
        return transpose(drawn, self.setup.item_count)

    def _draw_in_slices(self, draws: Draws, sweep: int) -> Adjacency:
        """The same without holding anyone else's edges: some users after the others."""
        all_user_likes, starts, indices = self._all_user_likes(), [np.zeros(1, np.int64)], []
        for first in range(0, all_user_likes.rows, USERS_PER_DRAW):
            some = all_user_likes.between(first, min(first + USERS_PER_DRAW, all_user_likes.rows))
            drawn = self._draw_for(some, first, draws, sweep)
            mine = (drawn.indices >= self._items.start) & (drawn.indices < self._items.stop)
            before = np.concatenate([[0], np.cumsum(mine)])
            starts.append(starts[-1][-1] + before[drawn.starts[1:]])
            indices.append(drawn.indices[mine] - np.int32(self._items.start))
        edges = Adjacency(np.concatenate(starts), np.concatenate(indices))
        return transpose(edges, self.graph.rows)

    def _forget(self) -> None:
        self._unliked = None
