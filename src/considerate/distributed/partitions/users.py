"""Parts of users: the items travel, and get their natural gradients from here (eq. 21)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency, GraphPart, ranges, run_serially, transpose
from considerate.distributed.messages import Broadcast, PartitionSetup, Reply, Sums, SumsRequest
from considerate.distributed.partitions.base import Fixed, Partition, spares
from considerate.inference.hidden import Draws, Inclusion, ItemGroups, Sampled, Shares, Terms
from considerate.inference.posterior import Side
from considerate.inference.sums import CoordinateBlock, EdgeSums, PassConstants, edge_sums, side_pass
from considerate.kernels import compiled
from considerate.kernels.arrays import Spare


class UserPartition(Partition):
    """Some users: their rows, and what they liked."""

    def __init__(self, graph: GraphPart, setup: PartitionSetup) -> None:
        super().__init__(graph, setup)
        self._liked_by_item: Adjacency | None = None
        self._unliked: Adjacency | None = None  # by item, of the sweep that is under way
        self._shares: Shares | None = None

    def state(self) -> dict[str, NDArray[Any]]:
        found = super().state()
        if self._shares is not None:  # the sweep is not over: items will read these
            found |= {"alpha": self._shares.alpha, "alpha_l": self._shares.alpha_l}
        return found

    def restore(self, tensors: Mapping[str, NDArray[Any]], before: Mapping[str, NDArray[Any]] | None = None) -> None:
        super().restore(tensors, before)
        if "alpha" in tensors and self.temperature is not None:
            self._shares = Shares(self.temperature, np.array(tensors["alpha"]), np.array(tensors["alpha_l"]))

    def visit(self, fixed: Fixed, down: Broadcast, ask: SumsRequest) -> Reply:
        """Step the users, given the items; then the sums for some items, given the users' new rows."""
        self._forget()
        terms = self._user_terms(fixed, down)
        new = self._room()
        blocks = self._step_users(self._users_pass(self.side, down, terms), new)
        self._step(new, down.sweep)
        users = None
        if self._shares is not None:
            users = self._shares.add_up(new, self.graph.likes, self.graph.blocks, run_serially)
        if terms.unliked is not None:
            self._unliked = self._by_item(terms.unliked, spares.turned)
        sums = Sums(self._sums(down, ask, None), users)
        return Reply.of(self.number, self.setup.parts, blocks, sums)

    def sums(self, fixed: Fixed, down: Broadcast, ask: SumsRequest, stepped: Side | None = None) -> Reply:
        """Further sums of the same sweep, for other items or other coordinates. From the second block of coordinates
        on, they read what the blocks before have `stepped` of the items asked for."""
        if self._unliked is None and isinstance(fixed, Draws):
            self._unliked = self._by_item(self._draw(fixed, down.sweep), spares.turned)
        sums = Sums(self._sums(down, ask, stepped))
        return Reply.of(self.number, self.setup.parts, np.empty((0, 6)), sums)

    def bound(self, fixed: Fixed, down: Broadcast) -> Reply:
        """The edges' part of the bound, with no step."""
        self._forget()
        blocks = self._bounds(self._users_pass(self.side, down, self._user_terms(fixed, down)))
        self._forget()
        return Reply.of(self.number, self.setup.parts, blocks, Sums())

    def masses(self, inclusion: Inclusion) -> Reply:
        """What the users here say of how often items are included: for the correction of pi at the head."""
        found = inclusion.masses(self.graph.likes, self.graph.blocks, self.setup.plan.negatives)
        return Reply.of(self.number, self.setup.parts, np.empty((0, 6)), Sums(masses=found))

    def _users_pass(self, users: Side, down: Broadcast, terms: Terms) -> compiled.Pass:
        constants = PassConstants.of(self.setup.plan, (down.tau, down.tau_bias), down.epsilon)
        return side_pass(users, down.other, self.graph.likes, terms, constants, own_is_user=True)

    def _bounds(self, kernel_pass: compiled.Pass) -> NDArray[np.float64]:
        """The edges' part of the bound, per block, as Up has it."""
        blocks = np.zeros((len(self.graph.blocks) - 1, 6))
        blocks[:, 0] = [compiled.edge_bound(kernel_pass, *block) for block in ranges(self.graph.blocks)]
        return blocks

    def _step_users(self, kernel_pass: compiled.Pass, new: Side) -> NDArray[np.float64]:
        """Step all users here into `new`: what is per block, as Up has it."""
        done = [compiled.update_rows(kernel_pass, a, b, *new.arrays()) for a, b in ranges(self.graph.blocks)]
        first = self.graph.first
        return np.array([[bound, bad if bad < 0 else first + bad, *moments] for bound, bad, moments in done])

    def _user_terms(self, fixed: Fixed, down: Broadcast) -> Terms:
        if isinstance(fixed, Draws):
            return Terms(unliked=self._draw(fixed, down.sweep))
        assert down.groups is not None
        if self.temperature is None:
            self.temperature = fixed.temperatures(self.graph.likes, self.graph.blocks, self.setup.plan.negatives)
        self._shares = Shares.empty(self.temperature, down.groups.groups, spares.drawn)
        return Terms(expected=self._shares.read(self.side.factors, down.groups))

    def _draw(self, draws: Draws, sweep: int) -> Adjacency:
        """The unliked edges of H^(sweep), by user."""
        sampled = Sampled(
            self.graph.likes,
            self.graph.blocks,
            draws,
            self.setup.plan.negatives,
            self.setup.plan.seed,
            first_user=self.graph.first,
            spare=spares.drawn,
        )
        return sampled.draw(sweep)

    def _by_item(self, edges: Adjacency, spare: Spare | None = None) -> Adjacency:
        return transpose(edges, self.setup.item_count, np.array([0, edges.rows]), run_serially, spare)

    def _sums(self, down: Broadcast, ask: SumsRequest, stepped: Side | None) -> EdgeSums:
        """The items' sums over the users here (eq. 15, 19): one node of the tree over blocks of users."""
        items = down.other.between(ask.first, ask.last)
        kernel_pass = self._items_pass(items, self.side, self._item_terms(down.groups, ask), down.epsilon, ask)
        all_rows = np.arange(len(items), dtype=np.int32)
        block = CoordinateBlock.of(self.side.factors, ask.block, stepped)
        found = edge_sums(kernel_pass, all_rows, block, (0, len(self.side)), spare=spares.sums)
        if ask.ends:
            self._forget()
        return found

    def _item_terms(self, groups: ItemGroups | None, ask: SumsRequest) -> Terms:
        if self._unliked is not None:
            return Terms(unliked=self._unliked.between(ask.first, ask.last))
        assert self._shares is not None
        assert groups is not None
        return Terms(expected=self._shares.read(self.side.factors, groups, items=ask.rows))

    def _items_pass(
        self, items: Side, users: Side, terms: Terms, epsilon: float, ask: SumsRequest, slope: bool = False
    ) -> compiled.Pass:
        if self._liked_by_item is None:
            self._liked_by_item = self._by_item(self.graph.likes)
        constants = replace(PassConstants.of(self.setup.plan, epsilon=epsilon), slope=slope)
        liked = self._liked_by_item.between(ask.first, ask.last)
        return side_pass(items, users, liked, terms, constants, own_is_user=False, splits=self.graph.blocks)

    def _forget(self) -> None:
        self._unliked = self._shares = None
