"""The items' step at the head: from sums over all parts, or, where an item is light, from its edges."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from considerate.data.graph import Adjacency
from considerate.distributed.light import LightEdges
from considerate.distributed.messages import Broadcast, SumsRequest
from considerate.inference.hidden import Shares, Terms, UserGroups
from considerate.inference.posterior import Side
from considerate.inference.sums import CoordinateBlock, EdgeSums, PassConstants, edge_sums, side_pass
from considerate.inference.updates import SideSolver, SideUpdate
from considerate.kernels import compiled


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
        terms = Terms()
        if light.corrections is not None:
            edges = light.liked.edges_by_item(count, run)
            users = np.repeat(np.arange(len(light.users), dtype=np.int32), light.liked.counts)
            liked = Adjacency(edges.starts, users[edges.indices], edges.weights)
            terms = Terms(expected=self._closed_form(slice(None), light.corrections[edges.indices]))
        else:
            assert light.unliked is not None
            liked, terms = light.liked.by_item(count, run), Terms(unliked=light.unliked.by_item(count, run))
        kernel_pass = self._pass(self.down.other, light.users, liked, terms)
        self.solver.update([(kernel_pass, rows) for rows in self.solver.classes.light])

    def from_sums(self, edges: EdgeSums, ask: SumsRequest) -> None:
        """Step the other items that were asked for, from their sums over all users."""
        own, stepped = self.down.other.between(ask.first, ask.last), self.solver.new.between(ask.first, ask.last)
        no_edges = Adjacency(np.zeros(len(own) + 1, np.int64), np.empty(0, np.int32))
        terms = Terms(expected=self._closed_form(ask.rows))
        kernel_pass = self._pass(own, own.between(0, 0), no_edges, terms, (ask.first, ask.last))
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

    def _pass(
        self, own: Side, other: Side, liked: Adjacency, terms: Terms, rows: tuple[int | None, int | None] = (None, None)
    ) -> compiled.Pass:
        """Over these items, of which `own` are the rows."""
        constants = replace(self.constants, prior=self.constants.prior.take(slice(*rows)))
        return side_pass(own, other, liked, terms, constants, own_is_user=False)
