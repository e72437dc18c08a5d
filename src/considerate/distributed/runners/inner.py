"""The sweep with inner sweeps: one part at a time, each from the messages of all, or all parts at once (eq. 21)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from considerate.data.graph import ITEMS
from considerate.distributed.messages import Broadcast, Reply, Sums, merge_replies
from considerate.distributed.partitions.inner import InnerBroadcast, InnerReply, step_items
from considerate.distributed.pools.pool import SinglePartCall
from considerate.distributed.runners.by_users import ByUsersRunner
from considerate.inference.posterior import Side
from considerate.inference.sums import PassConstants
from considerate.inference.sweep import State, Sweep, bound_of, check_bound, check_rows, next_state
from considerate.inference.updates import Moments, SideUpdate


class InnerSweepsRunner(ByUsersRunner):
    """A sweep is one visit of every part, which sweeps over its own users and the items several times."""

    def __init__(self, *arguments: Any, inner_sweeps: int, inner: str = "one", **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.inner_sweeps, self.inner = inner_sweeps, inner

    def _sweep(self, state: State) -> Sweep:
        number = state.sweep + 1
        epsilon = 1.0 if self.deterministic else state.step_size.epsilon
        down = self._down(state, epsilon)
        shared = self.pool.share(down)
        up: Reply = self.pool.call("messages", self._fixed, shared, merge=merge_replies, changes=True)
        bound = bound_of(state, sum(up.in_order()[:, 0].tolist()), self.settings, self.counts)
        visit = self._one_at_a_time if self.inner == "one" else self._together
        items, blocks, bad_item = visit(state, down, up.root())
        bad = [int(one[1]) for one in blocks if one[1] >= 0]
        check_rows(min(bad, default=-1), "user", number, state)
        check_rows(bad_item, "item", number, state)
        users = SideUpdate(self._nobody(), Moments.total([block[2:] for block in blocks]))
        stepped = SideUpdate(items, Moments.of(items))
        new = next_state(state, users, stepped, self.counts, self.settings, epsilon)
        check_bound(bound, number, state)
        return Sweep(new, bound, epsilon, self._settled(number))

    def _one_at_a_time(self, state: State, down: Broadcast, total: Sums) -> tuple[Side, list[list[float]], int]:
        """Each part from the items and the messages that the one before has left."""
        blocks: list[list[float]] = []
        bad = -1
        for number in range(self.setup.parts):
            given = self.pool.share(self._inner_down(state, down, total))
            answers = self.pool.call(SinglePartCall(number, "inner"), self._fixed, given, changes=True)
            made: InnerReply = next(one for one in answers if one is not None)
            down, total = replace(down, other=made.items), made.total
            blocks += made.blocks.tolist()
            bad = made.bad_item if bad < 0 else bad
        return down.other, blocks, bad

    def _together(self, state: State, down: Broadcast, total: Sums) -> tuple[Side, list[list[float]], int]:
        """All parts from the same items and messages; the items from the new messages of all."""
        given = self.pool.share(self._inner_down(state, down, total))
        up: Reply = self.pool.call("inner_together", self._fixed, given, merge=merge_replies, changes=True)
        all_items = np.arange(self.outline.item_count, dtype=np.int32)
        items, bad = step_items(down.other, up.root(), all_items, self._item_step(state, down), down.groups)
        return items, up.in_order().tolist(), bad

    def _inner_down(self, state: State, down: Broadcast, total: Sums) -> InnerBroadcast:
        step = self._item_step(state, down)
        return InnerBroadcast(down, total, step.tau, step.tau_bias, self.inner_sweeps)

    def _item_step(self, state: State, down: Broadcast) -> PassConstants:
        return PassConstants.of(self.settings, state.posterior.precisions.means_of(ITEMS), down.epsilon)
