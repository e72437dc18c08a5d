"""The items' step at the head: from sums over all parts, or, where an item is light, from its edges."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency
from considerate.distributed.light import ItemLists, LightEdges
from considerate.distributed.messages import Broadcast, SumsRequest
from considerate.inference.hidden import Shares, Terms, UserGroups
from considerate.inference.sums import CoordinateBlock, EdgeSums, PassConstants, edge_sums, side_pass
from considerate.inference.updates import SideSolver, SideUpdate
from considerate.kernels import compiled

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class ItemsStep:
    """Steps the items as `TreePass.update` would, some at a time."""

    solver: SideSolver
    down: Broadcast  # with the items before their step
    users: UserGroups | None  # expected mode: what items read of all users
    constants: PassConstants

    def from_edges(self, light: LightEdges) -> None:
        """Step the light items from their edges to all users."""
        count, run = len(self.down.other), self.solver.run
        unliked, closed = None, None
        if light.corrections is not None:
            liked, corrections = _turned(light.liked, light.corrections, count, run)
            if light.unliked is not None and light.unliked_corrections is not None:
                unliked, more = _turned(light.unliked, light.unliked_corrections, count, run)
                corrections = np.concatenate([corrections, more])
            closed = self._closed_form(slice(None), corrections)
        else:
            assert light.unliked is not None
            liked, unliked = light.liked.by_item(count, run), light.unliked.by_item(count, run)
        constants = replace(self.constants, user_offset=light.user_offset)
        terms = Terms(unliked, closed)
        kernel_pass = side_pass(self.down.other, light.users, liked, terms, constants, own_is_user=False)
        self.solver.update([(kernel_pass, rows) for rows in self.solver.classes.light])

    def from_sums(self, edges: EdgeSums, ask: SumsRequest) -> None:
        """Step the other items that were asked for, from their sums over all users."""
        own, stepped = self.down.other.between(ask.first, ask.last), self.solver.new.between(ask.first, ask.last)
        no_edges = Adjacency(np.zeros(len(own) + 1, np.int64), np.empty(0, np.int32))
        terms = Terms(expected=self._closed_form(ask.rows))
        constants = replace(self.constants, prior=self.constants.prior.take(slice(ask.first, ask.last)))
        kernel_pass = side_pass(own, own.between(0, 0), no_edges, terms, constants, own_is_user=False)
        if terms.expected is not None:
            rows = self.solver.classes.rows_summed(ask.first, ask.last) - np.int32(ask.first)
            block = CoordinateBlock.of(own.factors, ask.block, stepped)
            edges = edges.take_in(edge_sums(kernel_pass, rows, block, (0, 0), closed_form=True))
        self.solver.solve(kernel_pass, edges, ask.first, ask.last, ask.block)

    def result(self) -> SideUpdate:
        """The items, when all are stepped."""
        return self.solver.result()

    def _closed_form(self, items: slice, corrections: np.ndarray | None = None) -> compiled.Expected | None:
        groups = self.down.groups
        if groups is None:
            return None
        shares = Shares.empty(np.empty(0), groups.groups)
        return shares.read(self.down.other.factors, groups, self.users, items=items, corrections=corrections)


def _turned(lists: ItemLists, corrections: Floats, count: int, run: Any) -> tuple[Adjacency, Floats]:
    """(the users of each item, the corrections of these edges) in the order of the items."""
    edges = lists.edges_by_item(count, run)
    users = np.repeat(np.arange(len(lists.counts), dtype=np.int32), lists.counts)
    return Adjacency(edges.starts, users[edges.indices], edges.weights), corrections[edges.indices]
