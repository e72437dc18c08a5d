"""Parts of items, for far fewer users than items: the users travel.

A part draws the edges of all users again from the key (seed, sweep, user) and keeps those of its own items, for which
it needs the likes of all users. The parts of a process share the draws.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency, GraphPart, transpose
from considerate.distributed.messages import (
    Broadcast,
    ClosedForm,
    HiddenForm,
    PartitionSetup,
    Reply,
    SharedCache,
    Sums,
    SumsRequest,
)
from considerate.distributed.partitions.partition import Partition, spares
from considerate.inference.hidden import Draws, Inclusion, ItemSums, Shares, Terms, user_offset
from considerate.inference.hidden.consideration import Rows, WalkSteps
from considerate.kernels import compiled

USERS_PER_DRAW = 1 << 14  # users whose edges are drawn together out of core


class ItemPartition(Partition):
    """Consecutive items and the users who like them."""

    def __init__(self, graph: GraphPart, setup: PartitionSetup) -> None:
        super().__init__(graph, setup)
        self.splits = graph.blocks
        self._items = slice(graph.first, graph.first + graph.rows)
        self._unliked: tuple[int, Adjacency] | None = None  # of a sweep, by item

    def forget(self) -> None:
        super().forget()
        self._unliked = None

    def visit(self, hidden: HiddenForm, down: Broadcast, request: SumsRequest | None) -> Reply:
        """Step the items, given the users; then sum over the new items for the users of the next sweep if requested. In
        the closed form, the sums by group come before the sums over edges."""
        _, blocks = self.step(hidden, down)
        blocks[:, 0] = 0.0  # the bound comes with the users' pass
        self.forget()
        if request is None:
            return self.reply(blocks, Sums())
        if down.closed is not None:
            return self.reply(blocks, self._group_sums(hidden, down))
        edges, blocks[0, 0] = self.edge_sums(hidden, down, request)
        return self.reply(blocks, Sums(edges))

    # --- Terms of q(H) ---

    def resident_terms(self, hidden: HiddenForm, down: Broadcast) -> Terms:
        if isinstance(hidden, Draws):
            return Terms(unliked=self._drawn(hidden, down.once, down.sweep))
        return self._closed_terms(hidden, down)

    def travelling_terms(self, hidden: HiddenForm, down: Broadcast, request: SumsRequest) -> Terms:
        """Terms of the users' pass. After the step of a sweep, that pass belongs to the next sweep."""
        if isinstance(hidden, Draws):
            sweep = down.sweep + (self.sweep == down.sweep)
            drawn = self._drawn(hidden, down.once, sweep)
            return Terms(unliked=transpose(drawn, self.setup.user_count, spare=spares.turned))
        return self._closed_terms(hidden, down)

    def _closed_terms(self, hidden: HiddenForm, down: Broadcast) -> Terms:
        closed = down.closed
        assert isinstance(closed, ClosedForm)
        assert isinstance(hidden, Inclusion)
        shares = closed.shares or down.once.get("no shares", lambda: Shares.zeros(closed.temperature, closed.groups))
        mine, beta = closed.group_of_item[self._items], hidden.weights[self._items]
        return Terms(expected=shares.given(mine, beta, closed.users))

    def _drawn(self, draws: Draws, once: SharedCache, sweep: int) -> Adjacency:
        """Unliked edges of H^(sweep) to the items here, by item."""
        if self._unliked is None or self._unliked[0] != sweep:
            if self.setup.out_of_core:
                drawn = self._draw_in_slices(draws, sweep)
            else:
                whole = once.get(("drawn", sweep), lambda: self._draw_all(draws, sweep))
                drawn = whole.between(self._items.start, self._items.stop)
            self._unliked = sweep, drawn
        return self._unliked[1]

    def _draw_all(self, draws: Draws, sweep: int) -> Adjacency:
        drawn = self.draw(self._all_user_likes, 0, draws, sweep)
        return transpose(drawn, self.setup.item_count)

    def _draw_in_slices(self, draws: Draws, sweep: int) -> Adjacency:
        """Unliked edges to the items here, drawn for some users at a time so that few other edges are in memory."""
        all_user_likes, starts, indices = self._all_user_likes, [np.zeros(1, np.int64)], []
        for first in range(0, all_user_likes.rows, USERS_PER_DRAW):
            some = all_user_likes.between(first, min(first + USERS_PER_DRAW, all_user_likes.rows))
            drawn = self.draw(some, first, draws, sweep)
            mine = (drawn.indices >= self._items.start) & (drawn.indices < self._items.stop)
            before = np.concatenate([[0], np.cumsum(mine)])
            starts.append(starts[-1][-1] + before[drawn.starts[1:]])
            indices.append(drawn.indices[mine] - np.int32(self._items.start))
        edges = Adjacency(np.concatenate(starts), np.concatenate(indices))
        return transpose(edges, self.graph.rows)

    @property
    def _all_user_likes(self) -> Adjacency:
        assert self.graph.all_user_likes is not None, "a part of the items needs the likes of all users"
        return self.graph.all_user_likes

    def _offsets(self, weights: NDArray[np.float64]) -> NDArray[np.float32] | None:
        return user_offset(self._all_user_likes, weights, self.setup.plan)

    # --- Sums for the users ---

    def groups(self, hidden: HiddenForm, down: Broadcast) -> Reply:
        """Sums over the items here by group, and over the liked items of each user, in the closed form."""
        self.learn_offsets(hidden)
        return self.reply(None, self._group_sums(hidden, down))

    def _group_sums(self, hidden: HiddenForm, down: Broadcast) -> Sums:
        assert isinstance(down.closed, ClosedForm)
        assert isinstance(hidden, Inclusion)
        mine, users = down.closed.group_of_item[self._items], down.other
        items = ItemSums.of(self.side, self.setup.plan.offset, hidden.weights[self._items], mine, down.closed.groups)
        whole = SumsRequest(0, len(users))
        kernel_pass = self.travelling_pass(users, self.side, self._closed_terms(hidden, down), whole)
        return Sums(items=items, liked=compiled.liked_sums(kernel_pass, 0, len(users)))

    # --- Sums without a step ---

    def means(self) -> NDArray[np.float32]:
        """Means of the items here, for their groups."""
        return self.side.mean

    def temperatures(self, inclusion: Inclusion) -> NDArray[np.float64]:
        """T_m of this part's share of the users, in the order of the parts."""
        mine = self._share_of_users()
        return inclusion.temperatures(mine, np.array([0, mine.rows]), self.setup.plan.negatives)

    def user_offsets(self, hidden: HiddenForm) -> NDArray[np.float32]:
        """Offsets of this part's share of the users, in the order of the parts."""
        assert hidden is not None
        mine = self._share_of_users()
        offset = user_offset(mine, hidden.weights, self.setup.plan)
        return np.zeros(mine.rows, np.float32) if offset is None else offset

    def _share_of_users(self) -> Adjacency:
        shares = np.linspace(0, self.setup.user_count, self.setup.parts + 1).astype(np.int64)
        return self._all_user_likes.between(int(shares[self.number]), int(shares[self.number + 1]))

    def liked_masses(self, inclusion: Inclusion, temperature: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum of -w_mn over the users who like each item here, for the correction of pi."""
        likes = self.graph.likes
        items = likes.edge_rows
        product = temperature[likes.indices] * inclusion.weights[self._items][items]
        masses: NDArray[Any] = np.bincount(items, np.expm1(-product), minlength=likes.rows)
        return masses

    def walk_work(self, pull: NDArray[np.float64]) -> NDArray[np.int64]:
        """Steps of each row of the walk, zero for items of other parts."""
        work = np.zeros(self.setup.item_count, np.int64)
        work[self._items] = self._walk_steps(pull).work()
        return work

    def walk_rows(self, pull: NDArray[np.float64], weights: NDArray[np.float64], length: int) -> list[Rows]:
        """Rows of the walk from the items here, cut to `length` entries."""
        return list(self._walk_steps(pull).rows(weights, length))

    def _walk_steps(self, pull: NDArray[np.float64]) -> WalkSteps:
        return WalkSteps(self._all_user_likes, self.graph.likes, pull, first_item=self.graph.first)
