"""Parts of users: the items travel, and get their natural gradients from here (eq. 21)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.features import Features
from considerate.data.graph import Adjacency, GraphPart, Range, ranges, run_serially, transpose
from considerate.data.known import Known
from considerate.distributed.light import LightEdges
from considerate.distributed.likers import Likers
from considerate.distributed.messages import Broadcast, PartitionSetup, Reply, Sums, SumsRequest
from considerate.distributed.partitions.base import Fixed, Partition, spare_sums, spares
from considerate.distributed.partitions.inner import (
    InnerBroadcast,
    InnerReply,
    both,
    less,
    message_of,
    pack_message,
    step_items,
    unpack_message,
)
from considerate.inference.features import FeatureRows
from considerate.inference.hidden import (
    Draws,
    Inclusion,
    ItemGroups,
    ItemSums,
    Shares,
    Terms,
    UserGroups,
    user_offset,
)
from considerate.inference.hidden.consideration import WalkSteps
from considerate.inference.posterior import Side
from considerate.inference.prior import SHARED, Prior
from considerate.inference.sums import CoordinateBlock, EdgeSums, PassConstants, edge_sums, side_pass
from considerate.inference.updates import RowClasses
from considerate.kernels import compiled
from considerate.kernels.arrays import Spare


class UserPartition(Partition):
    """Some users: their rows, and what they liked."""

    def __init__(self, graph: GraphPart, setup: PartitionSetup) -> None:
        super().__init__(graph, setup)
        self._liked_by_item: Adjacency | None = None
        self._unliked: Adjacency | None = None  # by item, of the sweep that is under way
        self._shares: Shares | None = None
        self._message: Sums | None = None  # between `messages` and the inner sweeps

    def state(self) -> dict[str, NDArray[Any]]:
        tensors = super().state()
        if self._shares is not None:  # the sweep is not over: items will read these
            tensors |= self._shares.arrays()
        return tensors if self._message is None else tensors | pack_message(self._message)

    def restore(self, tensors: Mapping[str, NDArray[Any]], before: Mapping[str, NDArray[Any]] | None = None) -> None:
        super().restore(tensors, before)
        if "alpha" in tensors and self.temperature is not None:
            made = (np.array(tensors[name]) for name in ("alpha", "floor", "curvature"))
            self._shares = Shares(self.temperature, *made)
        if "message.slope" in tensors:
            self._message = unpack_message(tensors)

    def go_back(self, sweep: int) -> None:
        super().go_back(sweep)
        self._message = None

    def visit(self, fixed: Fixed, down: Broadcast, ask: SumsRequest, features: Features | None = None) -> Reply:
        """Step the users, given the items; then, given the users' new rows, the edges of light items and the sums for
        some of the others. features: of the users here."""
        self._forget()
        self._learn_offsets(fixed)
        terms = self._user_terms(fixed, down)
        new = self._room()
        about = None if features is None else FeatureRows(features)
        prior = SHARED if about is None or down.weights is None else down.weights.prior(about)
        blocks = self._step_rows(self._users_pass(self.side, down, terms, prior), new)
        self._step(new, down.sweep)
        users = self._group_sums(new)
        light = None
        if self._classes.light:
            light = LightEdges.of(new, self.graph.likes, terms, self._classes.is_light, self._user_offset)
        if terms.unliked is not None:
            self._unliked = self._by_item(terms.unliked, spares.turned)
        sums = Sums(self._sums(down, ask, None), users, features=None if about is None else about.sums(new))
        return self._reply(blocks, sums, light)

    def sums(self, fixed: Fixed, down: Broadcast, ask: SumsRequest, stepped: Side | None = None) -> Reply:
        """Further sums of the same sweep, for other items or other coordinates. From the second block of coordinates
        on, they read what the blocks before have `stepped` of the items asked for."""
        self._learn_offsets(fixed)
        if self._unliked is None and (edges := self._edges(fixed, down)) is not None:
            self._unliked = self._by_item(edges, spares.turned)
        return self._reply(None, Sums(self._sums(down, ask, stepped)))

    def bound(self, fixed: Fixed, down: Broadcast) -> Reply:
        """The edges' part of the bound, with no step."""
        self._forget()
        self._learn_offsets(fixed)
        blocks = self._bounds(self._users_pass(self.side, down, self._user_terms(fixed, down)))
        self._forget()
        return self._reply(blocks, Sums())

    def feature_sums(self, features: Features) -> Reply:
        """F'E[U] of the users here."""
        return self._reply(None, Sums(features=FeatureRows(features).sums(self.side)))

    def feature_gram(self, features: Features) -> Reply:
        """F'F of the users here."""
        return self._reply(None, Sums(gram=FeatureRows(features).gram()))

    def masses(self, inclusion: Inclusion) -> Reply:
        """What the users here say of how often items are included: for the correction of pi at the head."""
        masses = inclusion.masses(self.graph.likes, self.graph.blocks, self.setup.plan.negatives)
        return self._reply(None, Sums(masses=masses))

    def walk_work(self, pull: NDArray[np.float64]) -> NDArray[np.int64]:
        """Steps that each item's row of the walk costs through the users here."""
        return self._walk_steps(pull).work()

    def walk_sums(self, pull: NDArray[np.float64], items: Range) -> Reply:
        """Rows of the walk from these items, summed over the users here."""
        return self._reply(None, Sums(walk=self._walk_steps(pull).sums(items)))

    def likers(self, items: Range) -> Likers:
        """Who of the users here likes some of these items, and all that they like."""
        return Likers.of(self.graph, items, self.setup.item_count)

    def _walk_steps(self, pull: NDArray[np.float64]) -> WalkSteps:
        return WalkSteps(self.graph.likes, self._likers(), pull, first_user=self.graph.first)

    @property
    def _classes(self) -> RowClasses:
        assert self.setup.items is not None
        return self.setup.items

    def _users_pass(self, users: Side, down: Broadcast, terms: Terms, prior: Prior = SHARED) -> compiled.Pass:
        taus = (down.tau, down.tau_bias)
        constants = PassConstants.of(self.setup.plan, taus, down.epsilon, prior, self._user_offset)
        return side_pass(users, down.other, self.graph.likes, terms, constants, own_is_user=True)

    def _bounds(self, kernel_pass: compiled.Pass) -> NDArray[np.float64]:
        """The edges' part of the bound, per block, as Reply has it."""
        blocks = np.zeros((len(self.graph.blocks) - 1, 6))
        blocks[:, 0] = [compiled.edge_bound(kernel_pass, *block) for block in ranges(self.graph.blocks)]
        return blocks

    def _user_terms(self, fixed: Fixed, down: Broadcast) -> Terms:
        edges = self._edges(fixed, down)
        if not isinstance(fixed, Inclusion):
            return Terms(unliked=edges)
        assert down.groups is not None
        if self.temperature is None:
            graph, c = self.graph, self.setup.plan.negatives
            self.temperature = fixed.temperatures(graph.likes, graph.blocks, c, run_serially, self._expanded)
        self._shares = Shares.empty(self.temperature, down.groups.groups, spares.drawn)
        return Terms(edges, self._shares.read(self.side.factors, down.groups))

    def _edges(self, fixed: Fixed, down: Broadcast) -> Adjacency | None:
        """The unliked edges of H^(sweep), by user; or, where there is a closed form, those that are known."""
        if isinstance(fixed, Draws):
            return self._draw(fixed, down)
        if isinstance(fixed, Inclusion):
            return None if self._expanded is None else self._expanded.edges()
        assert self.graph.known is not None
        return self.graph.known.considered

    @cached_property
    def _expanded(self) -> Known | None:
        """What is known of the users here, with the rules written out."""
        return None if self.graph.known is None else self.graph.known.expanded(self.graph.likes)

    def _offsets(self, weights: NDArray[np.float64]) -> NDArray[np.float32] | None:
        return user_offset(self.graph.likes, weights, self.setup.plan, self.graph.known)

    def _draw(self, draws: Draws, down: Broadcast) -> Adjacency:
        """The unliked edges of H^(sweep), by user. Tilted ones lean on the users as they are before their step."""
        users = self.side if self.sweep < down.sweep or self._before is None else self._before
        graph, sides = self.graph, (users, down.other)
        return self._draw_for(graph.likes, graph.first, draws, down.sweep, sides, graph.known)

    def _by_item(self, edges: Adjacency, spare: Spare | None = None) -> Adjacency:
        return transpose(edges, self.setup.item_count, spare=spare)

    def _sums(self, down: Broadcast, ask: SumsRequest, stepped: Side | None) -> EdgeSums:
        """The items' sums over the users here (eq. 15, 19): one leaf of the tree over parts, in the classes' order."""
        items, rows = down.other.between(ask.first, ask.last), self._classes.rows_summed(ask.first, ask.last)
        kernel_pass = self._items_pass(items, self.side, self._item_terms(down.groups, ask), down.epsilon, ask)
        block = CoordinateBlock.of(self.side.factors, ask.block, stepped)
        sums = edge_sums(kernel_pass, rows - np.int32(ask.first), block, (0, len(self.side)), spare=spare_sums)
        if ask.ends:
            self._forget()
        return sums

    def _group_sums(self, users: Side) -> UserGroups | None:
        """Expected mode: what the items read of these users."""
        if self._shares is None:
            return None
        return self._shares.add_up(users, self.graph.blocks, run_serially, self._user_offset)

    def _item_terms(self, groups: ItemGroups | None, ask: SumsRequest) -> Terms:
        unliked = None if self._unliked is None else self._unliked.between(ask.first, ask.last)
        if self._shares is None:
            return Terms(unliked=unliked)
        assert groups is not None
        return Terms(unliked, self._shares.read(self.side.factors, groups, items=ask.rows))

    def _items_pass(
        self, items: Side, users: Side, terms: Terms, epsilon: float, ask: SumsRequest, slope: bool = False
    ) -> compiled.Pass:
        constants = PassConstants.of(self.setup.plan, epsilon=epsilon, user_offset=self._user_offset)
        constants = replace(constants, slope=slope)
        liked = self._likers().between(ask.first, ask.last)
        return side_pass(items, users, liked, terms, constants, own_is_user=False)

    def _likers(self) -> Adjacency:
        """Who of the users here liked each item."""
        if self._liked_by_item is None:
            self._liked_by_item = self._by_item(self.graph.likes)
        return self._liked_by_item

    def _forget(self) -> None:
        self._unliked = self._shares = self._message = None

    # --- Inner sweeps ---

    def messages(self, fixed: Fixed, down: Broadcast) -> Reply:
        """This part's message on the H of the sweep, which it keeps, and the edges' part of the bound."""
        self._forget()
        self._learn_offsets(fixed)
        terms = self._user_terms(fixed, down)
        blocks = self._bounds(self._users_pass(self.side, down, terms))  # which makes alpha and l too
        if terms.unliked is not None:
            self._unliked = self._by_item(terms.unliked, spares.turned)
        message = self._message_at(self.side, down)
        self._forget()
        self._message = message
        return self._reply(blocks, message)

    def inner(self, fixed: Fixed, given: InnerBroadcast) -> InnerReply:
        """Sweep over the users here and the items that they have edges to, the others' messages held."""
        assert self._message is not None
        others = less(given.total, self._message)
        items, own, blocks, bad = self._rounds(fixed, given, others)
        return InnerReply(items, both(others, own), blocks, bad)

    def inner_together(self, fixed: Fixed, given: InnerBroadcast) -> Reply:
        """The same of all parts at once: this part's new message."""
        assert self._message is not None
        _, own, blocks, _ = self._rounds(fixed, given, less(given.total, self._message))
        return self._reply(blocks, own)

    def _rounds(self, fixed: Fixed, given: InnerBroadcast, others: Sums) -> tuple[Side, Sums, NDArray[np.float64], int]:
        """(items, own message, what is per block, a bad item or -1) after the inner sweeps; the users are stepped."""
        self._learn_offsets(fixed)
        down, items, users = given.down, given.down.other, self.side
        constants = PassConstants.of(self.setup.plan, (given.item_tau, given.item_tau_bias), down.epsilon)
        drawn = self._draw(fixed, down) if isinstance(fixed, Draws) else None
        self._unliked = None if drawn is None else self._by_item(drawn)
        own, blocks, bad = Sums(), np.empty((0, 6)), -1
        for _ in range(given.rounds):
            down = replace(down, other=items, groups=self._groups_of(items, down.groups))
            terms = self._user_terms(fixed, down) if drawn is None else Terms(unliked=drawn)
            new = users.empty_like()
            blocks = self._step_rows(self._users_pass(users, down, terms), new)
            users = new
            own = self._message_at(users, down)
            items, bad_item = step_items(items, both(others, own), self._touched(), constants, down.groups)
            bad = bad_item if bad < 0 else bad
        self._step(users, down.sweep)
        self._forget()
        return items, own, blocks, bad

    def _message_at(self, users: Side, down: Broadcast) -> Sums:
        """The message of these users, at the items that came down."""
        items, ask = down.other, SumsRequest(0, self.setup.item_count)
        terms, rows = self._item_terms(down.groups, ask), np.arange(self.setup.item_count, dtype=np.int32)

        def sums(slope: bool) -> EdgeSums:
            kernel_pass = self._items_pass(items, users, terms, down.epsilon, ask, slope)
            return edge_sums(kernel_pass, rows, CoordinateBlock.of(items.factors), (0, len(users)))

        return message_of(sums(False), sums(True).first, items, self._group_sums(users))

    def _groups_of(self, items: Side, groups: ItemGroups | None) -> ItemGroups | None:
        """The sums over groups of these items."""
        if groups is None:
            return None
        offset = self.setup.plan.offset
        return replace(groups, sums=ItemSums.of(items, offset, groups.beta, groups.group_of_item, groups.groups))

    def _touched(self) -> NDArray[np.int32]:
        """The items that the users here have edges to; in expected mode that is all of them."""
        if self._unliked is None or self._liked_by_item is None:
            return np.arange(self.setup.item_count, dtype=np.int32)
        return np.flatnonzero(self._unliked.degrees + self._liked_by_item.degrees).astype(np.int32)
