"""What all parts of a divided graph share: residents live with a part, the other side comes as a message (eq. 21).

A part is a function of its graph, its state and the messages: it knows nothing of threads, disks or machines. What it
is given it never writes to, and new rows go to new memory, so a state that was handed out stays as it was.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency, GraphPart, ranges
from considerate.data.known import Known
from considerate.distributed.light import LightEdges
from considerate.distributed.messages import PartitionSetup, Reply, Sums
from considerate.inference.hidden import Draws, Inclusion, Sampled
from considerate.inference.posterior import Side
from considerate.inference.sweep import initial_side
from considerate.kernels import compiled
from considerate.kernels.arrays import Spare

Fixed = Draws | Inclusion | None  # what q(H) makes of pi, once for a fit; None where H is given


class _Spares(threading.local):
    """Memory for what lives for one call, used again by the next part that the same thread works on."""

    def __init__(self) -> None:
        self.drawn, self.turned = Spare(), Spare()


spares = _Spares()
spare_sums = Spare()  # of all threads: sums wait to be merged, those of one thread now and those of another then


class Partition:
    """What both kinds of parts share: the residents, and their state."""

    side: Side  # the residents

    def __init__(self, graph: GraphPart, setup: PartitionSetup) -> None:
        self.graph, self.setup = graph, setup
        self.sweep = 0  # of the last step
        self.temperature: NDArray[np.float64] | None = None
        self._before: Side | None = None
        self._counts = np.zeros(2, np.int64)  # edges drawn since the last reply, and those of them from pi
        self._user_offset: NDArray[np.float32] | None = None  # of the users in passes here
        self._offsets_known = False
        self._spare = Spare()

    @property
    def number(self) -> int:
        return self.graph.number

    def resident(self) -> str:
        """The side that lives here."""
        return self.setup.resident

    def state(self) -> dict[str, NDArray[Any]]:
        """The residents' rows, and what else is needed to go on."""
        tensors: dict[str, NDArray[Any]] = {"rows": self.side.rows, "sweep": np.array([self.sweep], np.int64)}
        if self.side.bias_mean is not None and self.side.bias_variance is not None:
            tensors |= {"bias_mean": self.side.bias_mean, "bias_variance": self.side.bias_variance}
        return tensors if self.temperature is None else tensors | {"temperature": self.temperature}

    def restore(self, tensors: Mapping[str, NDArray[Any]], before: Mapping[str, NDArray[Any]] | None = None) -> None:
        """Put a state back; and the one before it, where the last step may yet be undone."""
        self.side = self._side_of(tensors)
        self.sweep = int(tensors["sweep"][0]) if "sweep" in tensors else 0
        self.temperature = tensors.get("temperature", self.temperature)
        self._before = None if before is None else self._side_of(before)
        self._forget()

    def begin(self, all_residents: Side | None = None) -> None:
        """The residents as they are before the first sweep: at zero, or those of all residents that are here."""
        first, rows = self.graph.first, self.graph.rows
        if all_residents is None:
            self.side = initial_side(rows, self.setup.plan, self.setup.resident)
        else:
            self.side = all_residents.between(first, first + rows)
        self._before, self.sweep = None, 0
        self._forget()

    def keep(self, write: Callable[[int, Mapping[str, NDArray[Any]]], Any]) -> Any:
        """What `write(number, state)` gives, where this part is."""
        return write(self.number, self.state())

    def take(self, read: Callable[[int], Mapping[str, NDArray[Any]]]) -> None:
        """Restore what `read(number)` gives, where this part is."""
        self.restore(read(self.number))

    def go_back(self, sweep: int) -> None:
        """Undo the last step if it was of a later sweep than this one."""
        if self._before is not None and self.sweep > sweep:
            assert self.sweep == sweep + 1, "only the last step can be undone"
            self.side, self._before, self.sweep = self._before, None, sweep
            self._forget()

    def _side_of(self, tensors: Mapping[str, NDArray[Any]]) -> Side:
        return Side(self.setup.plan.factors, tensors["rows"], tensors.get("bias_mean"), tensors.get("bias_variance"))

    def _step(self, new: Side, sweep: int) -> None:
        self._before, self.side, self.sweep = self.side, new, sweep

    def _room(self) -> Side:
        """Room for new rows; the ones before the last step are let go for it."""
        self._before = None
        return self.side.empty_like(self._spare)

    def _step_rows(self, kernel_pass: compiled.Pass, new: Side) -> NDArray[np.float64]:
        """Step all residents here into `new`: what is per block, as Reply has it."""
        steps = [compiled.update_rows(kernel_pass, a, b, *new.arrays()) for a, b in ranges(self.graph.blocks)]
        first = self.graph.first
        return np.array([[bound, bad if bad < 0 else first + bad, *moments] for bound, bad, moments in steps])

    def _draw_for(
        self,
        likes: Adjacency,
        first: int,
        draws: Draws,
        sweep: int,
        sides: tuple[Side, Side] | None = None,
        known: Known | None = None,
    ) -> Adjacency:
        """The unliked edges of H^(sweep) of the users whose likes these are, `first` and on; the reply counts them."""
        plan, blocks = self.setup.plan, np.array([0, likes.rows])
        sampled = Sampled(
            likes,
            blocks,
            draws,
            plan.negatives,
            plan.seed,
            first_user=first,
            known=known,
            user_offset=self._user_offset if sides is not None else None,
            spare=spares.drawn,
        )
        edges = sampled.draw(sweep, sides=sides)
        self._counts += (sampled.drawn, sampled.fallbacks)
        return edges

    def _learn_offsets(self, fixed: Fixed) -> None:
        """Make the users' offsets, once there is a pi; every call that makes a pass begins with it."""
        if self._offsets_known or fixed is None:
            return
        self._user_offset, self._offsets_known = self._offsets(fixed.weights), True

    def _offsets(self, weights: NDArray[np.float64]) -> NDArray[np.float32] | None:
        """Offsets of the users in passes here, beside -log c."""
        raise NotImplementedError

    def _reply(self, blocks: NDArray[np.float64] | None, sums: Sums, light: LightEdges | None = None) -> Reply:
        blocks = np.empty((0, 6)) if blocks is None else blocks
        (drawn, fallbacks), self._counts = self._counts.tolist(), np.zeros(2, np.int64)
        reply = Reply.of(self.number, self.setup.parts, blocks, sums, light)
        return replace(reply, drawn=drawn, fallbacks=fallbacks)

    def _forget(self) -> None:
        """Let go of what was kept between two calls of one sweep."""
