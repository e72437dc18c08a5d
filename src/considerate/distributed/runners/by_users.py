"""The sweep over parts of users: items down, their natural gradients up, and the items stepped here (eq. 21).

It does what `InMemory.sweeps` does, with the same bits: a part's sums are a leaf of the tree along which one pass would
add them, light items are stepped here from their edges, and everything else is added in the order of the blocks. With
inner sweeps a part sweeps several times on its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import ITEMS, USERS, Range, Run, ranges
from considerate.distributed.messages import Broadcast, Sums, SumsRequest, merge_replies
from considerate.distributed.partitions.inner import InnerBroadcast, InnerReply, step_items
from considerate.distributed.pools import PerPart, SinglePartCall, WorkerPool
from considerate.distributed.runners.base import PartitionedRunner
from considerate.distributed.runners.items_step import ItemsStep
from considerate.inference.bound import Bound
from considerate.inference.features import DELAY, FitFeatures, Gram, SideFeatures
from considerate.inference.hidden import UserGroups
from considerate.inference.posterior import Posterior, Side
from considerate.inference.prior import SHARED, Prior
from considerate.inference.sums import PassConstants
from considerate.inference.sweep import (
    NO_FEATURES,
    State,
    Sweep,
    begin_features,
    check_rows,
    initial_items,
    initial_side,
)
from considerate.inference.updates import Moments, SideSolver, SideUpdate
from considerate.kernels import compiled
from considerate.kernels.arrays import add_in_order


@dataclass
class UserFeatures:
    """The features of users, which are with their parts: F'F comes up once, F'E[U] with every sweep."""

    pool: WorkerPool
    by_part: PerPart  # of Features
    sweep: int = 0  # that the users are at
    known: tuple[int, NDArray[np.float64] | None] = (-1, None)  # F'E[U] after this sweep

    @cached_property
    def gram(self) -> Gram:
        return Gram.of(self.pool.call("feature_gram", self.by_part, merge=merge_replies).root().gram)

    def sums(self, side: Side, run: Run[Any, Any]) -> NDArray[np.float64]:
        """F'E[U] of all users; none of their rows is here."""
        known_at, sums = self.known
        if known_at != self.sweep or sums is None:
            sums = self.pool.call("feature_sums", self.by_part, merge=merge_replies).root().features
            self.known = self.sweep, sums
        assert sums is not None
        return sums


class ByUsersRunner(PartitionedRunner):
    """Users live with the parts; the items are here, and travel."""

    features: FitFeatures = NO_FEATURES
    user_features: UserFeatures | None = None

    def use_features(self, users: PerPart | None, items: SideFeatures | None) -> None:
        """Features of the users by part, and of all items."""
        self.user_features = None if users is None else UserFeatures(self.pool, users)
        self.features = FitFeatures(self.user_features, items)

    def _with_features(self, state: State) -> Posterior:
        """The posterior with the weights of features stepped."""
        if not self.features or state.sweep < DELAY:
            return state.posterior
        if self.user_features is not None:
            self.user_features.sweep = state.sweep
        return self.features.step(state.posterior, self.settings, self.run)

    @cached_property
    def shards(self) -> list[Range]:
        """Ranges of items whose sums are asked for together: whole blocks of items, about as many blocks each."""
        item_blocks = self.outline.item_blocks
        blocks = len(item_blocks) - 1
        cuts = np.linspace(0, blocks, min(self.options.item_shards or 1, blocks) + 1).round().astype(int)
        return ranges(item_blocks[np.unique(cuts)])

    @cached_property
    def asks(self) -> list[SumsRequest]:
        """What is asked for in a sweep: the sums of each shard of items, a block of coordinates after the other."""
        assert self.setup.items is not None
        shards = [shard for shard in self.shards if self.setup.items.summed(*shard)] or [(0, 0)]
        blocks = range(len(compiled.coordinate_blocks(self.settings.factors)))
        asks = [SumsRequest(*shard, block, ends=False) for shard in shards for block in blocks]
        return [*asks[:-1], replace(asks[-1], ends=True)]

    def begin(self) -> State:
        """The state before the first sweep, here and with the parts."""
        self.pool.call("begin", changes=True)
        items = initial_items(self.outline.item_count, self.settings, self._spare)
        users = Moments.of_alike(self.outline.user_count, lambda rows: initial_side(rows, self.settings, "users"))
        state = self._first_state(self._nobody(), items, (users, Moments.of(items)))
        return begin_features(state, self.features.begin(state.posterior, self.settings)) if self.features else state

    def evaluate_bound(self, state: State) -> Bound:
        """L_xi of a state, on the H of the sweep that would come next."""
        self._go_back(state)
        up = self._call("bound", self.pool.share(self._down(state, 1.0)))
        return self._bound(state, add_in_order(up.in_order()[:, 0].tolist()))

    def _down(self, state: State, epsilon: float) -> Broadcast:
        q, number = state.posterior, state.sweep + 1
        groups = None
        if self.grouping is not None:
            if self.grouping.moves(number):
                self.grouping.regroup(q.items.mean)
            groups = self.grouping.of(q.items)
        weights = None if q.user_weights is None else q.user_weights.means()
        return Broadcast(number, q.items, epsilon, *q.precisions.means_of(USERS), groups, weights=weights)

    def _sweep(self, state: State) -> Sweep:
        q = self._with_features(state)
        down = self._down(replace(state, posterior=q), self._epsilon(state))
        shared = self.pool.share(down)
        about = () if self.user_features is None else (self.user_features.by_part,)
        up = self._call("visit", shared, self.asks[0], *about, changes=True)
        if self.user_features is not None:
            self.user_features.known = state.sweep + 1, up.root().features
        blocks = up.in_order().tolist()
        bound = self._bound(state, add_in_order(block[0] for block in blocks))
        users = self._residents(blocks, state)
        prior = self.features.priors(q, self.run).items
        step = self._items_step(state, down, up.root().users, prior)
        light = up.light_edges()
        if light is not None:
            step.from_edges(light)
        del light
        for ask in self.asks:
            if ask is not self.asks[0]:
                stepped = self.pool.share(step.solver.new.between(ask.first, ask.last)) if ask.block else None
                up = self._call("sums", shared, ask, stepped)
            edges = up.root().edges
            assert edges is not None
            del up
            step.from_sums(edges, ask)
        items = step.result()
        check_rows(items.bad_row, "item", state.sweep + 1, state)
        return self._end(state, users, items, bound, q)

    def _items_step(self, state: State, down: Broadcast, users: UserGroups | None, prior: Prior) -> ItemsStep:
        assert self.setup.items is not None
        solver = SideSolver(down.other.empty_like(self._spare), self.setup.items, self.run)
        return ItemsStep(solver, down, users, self._item_constants(state, down, prior))

    def _item_constants(self, state: State, down: Broadcast, prior: Prior = SHARED) -> PassConstants:
        return PassConstants.of(self.settings, state.posterior.precisions.means_of(ITEMS), down.epsilon, prior)


class InnerSweepsRunner(ByUsersRunner):
    """A sweep is one visit of every part, which sweeps over its own users and the items several times."""

    def _sweep(self, state: State) -> Sweep:
        down = self._down(state, self._epsilon(state))
        up = self._call("messages", self.pool.share(down), changes=True)
        bound = self._bound(state, add_in_order(up.in_order()[:, 0].tolist()))
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
        items, bad = step_items(down.other, up.root(), all_items, self._item_constants(state, down), down.groups)
        return items, up.in_order().tolist(), bad

    def _inner_down(self, state: State, down: Broadcast, total: Sums) -> InnerBroadcast:
        step = self._item_constants(state, down)
        return InnerBroadcast(down, total, step.tau, step.tau_bias, self.options.inner_sweeps)
