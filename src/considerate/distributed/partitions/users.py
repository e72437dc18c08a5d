"""Parts of users: the items travel, and get their natural gradients from here (eq. 21)."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from considerate.data.features import Features
from considerate.data.graph import Adjacency, Range, ranges, run_serially, transpose
from considerate.data.known import Known
from considerate.distributed.fans import Fans
from considerate.distributed.light import LightEdges
from considerate.distributed.messages import Broadcast, HiddenForm, Reply, Sums, SumsRequest
from considerate.distributed.partitions.partition import Partition, spares
from considerate.inference.features import FeatureRows
from considerate.inference.hidden import Draws, Inclusion, ItemGroups, Shares, Terms, UserGroups, user_offset
from considerate.inference.hidden.consideration import WalkSteps
from considerate.inference.posterior import Side
from considerate.inference.prior import SHARED
from considerate.kernels import compiled

SHARES = ("alpha", "floor", "curvature")


class UserPartition(Partition):
    """Consecutive users and their likes."""

    unliked_by_item: Adjacency | None = None  # of the sweep under way

    def forget(self) -> None:
        super().forget()
        self.unliked_by_item = None

    def visit(
        self, hidden: HiddenForm, down: Broadcast, request: SumsRequest, features: Features | None = None
    ) -> Reply:
        """Step the users, given the items; then sum over the new users for the items. features: of the users here."""
        self.forget()
        rows = None if features is None else FeatureRows(features)
        prior = SHARED if rows is None or down.weights is None else down.weights.prior(rows)
        terms, blocks = self.step(hidden, down, prior)
        users, light, classes = self.group_sums(self.side), None, self.setup.items
        if classes is not None and classes.light:
            light = LightEdges.of(self.side, self.graph.likes, terms, classes.is_light, self.user_offset)
        self.turn(terms.unliked)
        edges, _ = self.edge_sums(hidden, down, request)
        return self.reply(blocks, Sums(edges, users, features=None if rows is None else rows.sums(self.side)), light)

    # --- Terms of q(H) ---

    def unliked(self, hidden: HiddenForm, down: Broadcast) -> Adjacency | None:
        """Unliked edges of H^(sweep), by user; in the closed form those of known pairs. Tilted draws read the users
        before their step."""
        graph = self.graph
        if isinstance(hidden, Draws):
            users = self.side if self.sweep < down.sweep or self._before is None else self._before
            return self.draw(graph.likes, graph.first, hidden, down.sweep, (users, down.other), graph.known)
        if isinstance(hidden, Inclusion):
            return None if self._expanded is None else self._expanded.edges()
        assert graph.known is not None
        return graph.known.considered

    def resident_terms(self, hidden: HiddenForm, down: Broadcast) -> Terms:
        edges, groups = self.unliked(hidden, down), down.closed
        if not isinstance(hidden, Inclusion):
            return Terms(unliked=edges)
        assert isinstance(groups, ItemGroups)
        if self.temperature is None:
            graph, c = self.graph, self.setup.plan.negatives
            self.temperature = hidden.temperatures(graph.likes, graph.blocks, c, run_serially, self._expanded)
        shares = Shares.empty(self.temperature, groups.groups, spares.drawn)
        self.kept |= shares.arrays()
        return Terms(edges, shares.read(groups))

    def travelling_terms(self, hidden: HiddenForm, down: Broadcast, request: SumsRequest) -> Terms:
        if self.unliked_by_item is None:
            self.turn(self.unliked(hidden, down))
        return self.item_terms(down, request)

    def item_terms(self, down: Broadcast, request: SumsRequest) -> Terms:
        """Terms of the items' pass, from the edges and shares of the sweep under way."""
        edges, shares, groups = self.unliked_by_item, self._shares, down.closed
        unliked = None if edges is None else edges.between(*request.range)
        if shares is None:
            return Terms(unliked=unliked)
        assert isinstance(groups, ItemGroups)
        return Terms(unliked, shares.read(groups, items=request.rows))

    def turn(self, unliked: Adjacency | None) -> None:
        """Keep the unliked edges of the sweep by item."""
        if unliked is not None:
            self.unliked_by_item = transpose(unliked, self.setup.item_count, spare=spares.turned)

    @cached_property
    def _expanded(self) -> Known | None:
        """Known pairs of the users here, with the rules written out."""
        return None if self.graph.known is None else self.graph.known.expanded(self.graph.likes)

    @property
    def _shares(self) -> Shares | None:
        """Shares of the users here that the last users' pass made."""
        if "alpha" not in self.kept or self.temperature is None:
            return None
        return Shares(self.temperature, *(np.require(self.kept[name], requirements="W") for name in SHARES))

    def _offsets(self, weights: NDArray[np.float64]) -> NDArray[np.float32] | None:
        return user_offset(self.graph.likes, weights, self.setup.plan, self.graph.known)

    # --- Sums for the items ---

    def group_sums(self, users: Side) -> UserGroups | None:
        """Sums over these users by group of items, in the closed form."""
        shares = self._shares
        return None if shares is None else shares.add_up(users, self.graph.blocks, run_serially, self.user_offset)

    # --- Sums without a step ---

    def bound(self, hidden: HiddenForm, down: Broadcast) -> Reply:
        """Edges' part of the bound, without a step."""
        self.forget()
        self.learn_offsets(hidden)
        blocks = self.edge_bounds(self.resident_pass(down, self.resident_terms(hidden, down)))
        self.forget()
        return self.reply(blocks, Sums())

    def edge_bounds(self, kernel_pass: compiled.Pass) -> NDArray[np.float64]:
        """Edges' part of the bound per block, see Reply."""
        blocks = np.zeros((len(self.graph.blocks) - 1, 6))
        blocks[:, 0] = [compiled.edge_bound(kernel_pass, *block) for block in ranges(self.graph.blocks)]
        return blocks

    def feature_sums(self, features: Features) -> Reply:
        """F'E[U] of the users here."""
        return self.reply(None, Sums(features=FeatureRows(features).sums(self.side)))

    def feature_gram(self, features: Features) -> Reply:
        """F'F of the users here."""
        return self.reply(None, Sums(gram=FeatureRows(features).gram()))

    def masses(self, inclusion: Inclusion) -> Reply:
        """Inclusion sums over the users here, for the correction of pi."""
        masses = inclusion.masses(self.graph.likes, self.graph.blocks, self.setup.plan.negatives)
        return self.reply(None, Sums(masses=masses))

    def walk_work(self, pull: NDArray[np.float64]) -> NDArray[np.int64]:
        """Steps of each item's row of the walk through the users here."""
        return self._walk_steps(pull).work()

    def walk_sums(self, pull: NDArray[np.float64], items: Range) -> Reply:
        """Rows of the walk from these items, summed over the users here."""
        return self.reply(None, Sums(walk=self._walk_steps(pull).sums(items)))

    def fans(self, items: Range) -> Fans:
        """Users here who like any of these items, with all their likes."""
        return Fans.of(self.graph, items, self.setup.item_count)

    def _walk_steps(self, pull: NDArray[np.float64]) -> WalkSteps:
        return WalkSteps(self.graph.likes, self.turned_likes, pull, first_user=self.graph.first)
