"""Step of the travelling side at the head, from its sums over all parts (eq. 17-19)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency
from considerate.distributed.light import LightEdges
from considerate.distributed.messages import SumsRequest
from considerate.inference.hidden import Terms
from considerate.inference.posterior import Side
from considerate.inference.sums import CoordinateBlock, EdgeSums, PassConstants, fill_sums, side_pass
from considerate.inference.updates import SideSolver
from considerate.kernels import compiled
from considerate.kernels.arrays import add_in_order


def edgeless_pass(own: Side, terms: Terms, constants: PassConstants, own_is_user: bool) -> compiled.Pass:
    """Kernel pass over rows whose edges are elsewhere."""
    no_edges = Adjacency(np.zeros(len(own) + 1, np.int64), np.empty(0, np.int32))
    return side_pass(own, own.between(0, 0), no_edges, terms, constants, own_is_user=own_is_user)


@dataclass(frozen=True)
class TravellingStep:
    """Step of the travelling side, some rows at a time, as `TreePass.update` makes it in memory."""

    solver: SideSolver
    own: Side  # before the step
    constants: PassConstants
    own_is_user: bool

    def closed_sums(
        self, expected: compiled.Expected, request: SumsRequest, pieces: list[NDArray[np.int32]]
    ) -> tuple[EdgeSums, float]:
        """(sums of the closed form, its part of the bound) of rows counted from the first requested row, in pieces. A
        pass over users writes alpha and l to `expected`."""
        stepped = self.solver.new.between(*request.range) if request.block else None
        block = CoordinateBlock.of(self.own.factors, request.block, stepped)
        ends = np.cumsum([0, *map(len, pieces)]).tolist()
        kernel_pass, sums = self._pass(request, expected), EdgeSums.empty(ends[-1], block.size)

        def fill(at: int) -> float:
            mine = sums.rows(ends[at], ends[at + 1])
            return fill_sums(kernel_pass, pieces[at], block, (0, 0), mine, closed_form=True)

        return sums, add_in_order(self.solver.run(fill, range(len(pieces))))

    def solve(self, edges: EdgeSums, request: SumsRequest) -> None:
        """Step the requested rows from their sums."""
        self.solver.solve(self._pass(request), edges, request.first, request.last, request.block)

    def solve_light(self, light: LightEdges, liked: Adjacency, terms: Terms) -> None:
        """Step the light items from their edges to all users. liked: these edges by item."""
        constants = replace(self.constants, user_offset=light.user_offset)
        kernel_pass = side_pass(self.own, light.users, liked, terms, constants, own_is_user=False)
        self.solver.update([(kernel_pass, rows) for rows in self.solver.classes.light])

    def _pass(self, request: SumsRequest, expected: compiled.Expected | None = None) -> compiled.Pass:
        constants = replace(self.constants, prior=self.constants.prior.take(request.rows))
        own = self.own.between(*request.range)
        return edgeless_pass(own, Terms(expected=expected), constants, self.own_is_user)
