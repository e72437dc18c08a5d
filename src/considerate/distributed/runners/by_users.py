"""Sweeps over parts of users: the items travel and are stepped at the head (eq. 21).

They give the bits of `InMemory.sweeps`: the sums of a part are a leaf of the tree along which one pass would add them,
light items are stepped here from their edges, and everything else is added in the order of the blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import ITEMS, USERS, Range, ranges
from considerate.distributed.light import LightEdges
from considerate.distributed.messages import Broadcast, SumsRequest
from considerate.distributed.runners.runner import PartitionedRunner
from considerate.distributed.travelling import TravellingStep
from considerate.inference.hidden import ItemGroups, Shares, Terms, UserGroups
from considerate.inference.sums import PassConstants
from considerate.inference.sweep import State, begin_features, initial_items, initial_side
from considerate.inference.updates import Moments, SideSolver, SideUpdate
from considerate.kernels import compiled


class ByUsersRunner(PartitionedRunner):
    """Users live with the parts; the items travel."""

    @cached_property
    def shards(self) -> list[Range]:
        """Ranges of items whose sums come together: whole blocks of items, about equally many each."""
        item_blocks = self.outline.item_blocks
        blocks = len(item_blocks) - 1
        cuts = np.linspace(0, blocks, min(self.options.item_shards or 1, blocks) + 1).round().astype(int)
        return ranges(item_blocks[np.unique(cuts)])

    @cached_property
    def requests(self) -> list[SumsRequest]:
        """Requests of a sweep: each shard of items, one block of coordinates after the other."""
        assert self.setup.items is not None
        shards = [shard for shard in self.shards if self.setup.items.summed(*shard)] or [(0, 0)]
        blocks = range(len(compiled.coordinate_blocks(self.settings.factors)))
        requests = [SumsRequest(*shard, block, keep=True) for shard in shards for block in blocks]
        return [*requests[:-1], replace(requests[-1], keep=False)]

    def begin(self) -> State:
        self.pool.call("begin", changes=True)
        items = initial_items(self.outline.item_count, self.settings, self._spare)
        users = Moments.of_alike(self.outline.user_count, lambda rows: initial_side(rows, self.settings, "users"))
        state = self._first_state(self._no_residents(), items, (users, Moments.of(items)))
        return begin_features(state, self.features.begin(state.posterior, self.settings)) if self.features else state

    def _edge_bound(self, state: State) -> float:
        return self._call("bound", self.pool.share(self.broadcast(state, 1.0))).bound()

    def broadcast(self, state: State, epsilon: float) -> Broadcast:
        """Message of the next sweep to all parts."""
        q, number = state.posterior, state.sweep + 1
        groups = None
        if self.grouping is not None:
            if self.grouping.moves(number):
                self.grouping.regroup(q.items.mean)
            groups = self.grouping.of(q.items)
        weights = None if q.user_weights is None else q.user_weights.means()
        return Broadcast(number, q.items, epsilon, *q.precisions.means_of(USERS), groups, weights)

    def _updates(self, state: State, epsilon: float) -> Iterator[SideUpdate]:
        down = self.broadcast(state, epsilon)
        shared = self.pool.share(down)
        features = () if self.user_features is None else (self.user_features.by_part,)
        up = self._call("visit", shared, self.requests[0], *features, changes=True)
        if self.user_features is not None:
            self.user_features.known = state.sweep + 1, up.root().features
        yield self._resident_update(up.in_order().tolist())
        step, users = self._items_step(state, down), up.root().users
        light = up.light_edges()
        if light is not None:
            self._step_light(step, light, down, users)
        del light
        for request in self.requests:
            if request is not self.requests[0]:
                stepped = self.pool.share(step.solver.new.between(*request.range)) if request.block else None
                up = self._call("sums", shared, request, stepped)
            edges = up.edges()
            del up
            if (expected := self._closed_form(down, users, request.rows)) is not None:
                pieces = [rows - np.int32(request.first) for rows in step.solver.classes.summed(*request.range)]
                edges = edges.take_in(step.closed_sums(expected, request, pieces)[0])
            step.solve(edges, request)
        yield step.solver.result()

    def _items_step(self, state: State, down: Broadcast) -> TravellingStep:
        assert self.setup.items is not None
        solver = SideSolver(down.other.empty_like(self._spare), self.setup.items, self.run)
        prior = self.features.priors(state.posterior, self.run).items
        constants = replace(self.item_constants(state, down.epsilon), prior=prior)
        return TravellingStep(solver, down.other, constants, own_is_user=False)

    def item_constants(self, state: State, epsilon: float) -> PassConstants:
        """Constants of the items' pass."""
        return PassConstants.of(self.settings, state.posterior.precisions.means_of(ITEMS), epsilon)

    def _step_light(self, step: TravellingStep, light: LightEdges, down: Broadcast, users: UserGroups | None) -> None:
        """Step the light items from their edges."""
        count, unliked, expected = len(down.other), None, None
        if light.corrections is None:
            assert light.unliked is not None
            liked, unliked = light.liked.by_item(count, self.run), light.unliked.by_item(count, self.run)
        else:
            liked, corrections = light.liked.turned(light.corrections, count, self.run)
            if light.unliked is not None and light.unliked_corrections is not None:
                unliked, more = light.unliked.turned(light.unliked_corrections, count, self.run)
                corrections = np.concatenate([corrections, more])
            expected = self._closed_form(down, users, corrections=corrections)
        step.solve_light(light, liked, Terms(unliked, expected))

    def _closed_form(
        self,
        down: Broadcast,
        users: UserGroups | None,
        items: slice = slice(None),
        corrections: NDArray[np.float32] | None = None,
    ) -> compiled.Expected | None:
        """Closed form for the pass over some items, from the sums over all users."""
        if not isinstance(groups := down.closed, ItemGroups):
            return None
        shares = Shares.empty(np.empty(0), groups.groups)
        return shares.read(groups, users, items=items, corrections=corrections)
