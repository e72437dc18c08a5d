"""A part of a divided graph: its residents live here, and the travelling side comes as a message (eq. 21).

A part is a function of its graph, its state and the messages. It knows nothing of threads, disks or machines. It never
writes to an argument, and new rows go to new memory, so a state that was handed out stays as it was.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency, GraphPart, ranges, transpose
from considerate.data.known import Known
from considerate.distributed.light import LightEdges
from considerate.distributed.messages import Broadcast, HiddenForm, PartitionSetup, Reply, Sums, SumsRequest
from considerate.inference.hidden import Draws, Sampled, Terms
from considerate.inference.posterior import Side
from considerate.inference.prior import SHARED, Prior
from considerate.inference.sums import CoordinateBlock, EdgeSums, PassConstants, fill_sums, side_pass
from considerate.inference.sweep import initial_side
from considerate.kernels import compiled
from considerate.kernels.arrays import Spare


class _Spares(threading.local):
    """Memory for arrays that live for one call; the next part on the same thread uses it again."""

    def __init__(self) -> None:
        self.drawn, self.turned = Spare(), Spare()


spares = _Spares()
spare_sums = Spare()  # for all threads: sums of one thread wait to be merged with those of another


class Partition:
    """Consecutive rows of the resident side, with their edges. A subclass knows the terms of q(H)."""

    side: Side  # the residents
    splits: NDArray[np.int64] | None = None  # blocks of residents along whose tree sums are added; None: one leaf

    def __init__(self, graph: GraphPart, setup: PartitionSetup) -> None:
        self.graph, self.setup = graph, setup
        self.sweep = 0  # number of the last step
        self.temperature: NDArray[np.float64] | None = None  # T_m of resident users
        self.kept: dict[str, NDArray[Any]] = {}  # tensors for the next call of the same sweep
        self.user_offset: NDArray[np.float32] | None = None  # offsets of the users in passes here
        self._offsets_known = False
        self._before: Side | None = None
        self._draw_counts = np.zeros(2, np.int64)  # since the last reply: edges drawn, and those from pi as a fallback
        self._spare = Spare()

    # --- State ---

    @property
    def number(self) -> int:
        return self.graph.number

    def resident(self) -> str:
        """Side that lives here."""
        return self.setup.resident

    def state(self) -> dict[str, NDArray[Any]]:
        """Tensors that a restored part needs to go on."""
        tensors: dict[str, NDArray[Any]] = {"rows": self.side.rows, "sweep": np.array([self.sweep], np.int64)}
        if self.side.bias_mean is not None and self.side.bias_variance is not None:
            tensors |= {"bias_mean": self.side.bias_mean, "bias_variance": self.side.bias_variance}
        if self.temperature is not None:
            tensors["temperature"] = self.temperature
        return tensors | self.kept

    def restore(self, tensors: Mapping[str, NDArray[Any]], before: Mapping[str, NDArray[Any]] | None = None) -> None:
        """Restore a state, and the state before it if the last step may yet be undone."""
        self.side = self._side_of(tensors)
        self.sweep = int(tensors["sweep"][0]) if "sweep" in tensors else 0
        self.temperature = tensors.get("temperature", self.temperature)
        self._before = None if before is None else self._side_of(before)
        self.forget()
        own = ("rows", "sweep", "bias_mean", "bias_variance", "temperature")
        self.kept = {name: tensors[name] for name in tensors if name not in own}

    def begin(self, all_residents: Side | None = None) -> None:
        """Set the residents before the first sweep: to zero, or to their rows of `all_residents`."""
        first, last = self.graph.first, self.graph.first + self.graph.rows
        zero = initial_side(last - first, self.setup.plan, self.setup.resident)
        self.side = zero if all_residents is None else all_residents.between(first, last)
        self._before, self.sweep = None, 0
        self.forget()

    def keep(self, write: Callable[[int, Mapping[str, NDArray[Any]]], Any]) -> Any:
        """Call `write(number, state)` where this part is."""
        return write(self.number, self.state())

    def take(self, read: Callable[[int], Mapping[str, NDArray[Any]]]) -> None:
        """Restore `read(number)`, called where this part is."""
        self.restore(read(self.number))

    def go_back(self, sweep: int) -> None:
        """Undo the last step if it was of a later sweep than this one."""
        if self._before is not None and self.sweep > sweep:
            assert self.sweep == sweep + 1, "only the last step can be undone"
            self.side, self._before, self.sweep = self._before, None, sweep
        self.forget()

    def forget(self) -> None:
        """Drop the results that were kept for the next call of the same sweep."""
        self.kept = {}

    def _side_of(self, tensors: Mapping[str, NDArray[Any]]) -> Side:
        return Side(self.setup.plan.factors, tensors["rows"], tensors.get("bias_mean"), tensors.get("bias_variance"))

    # --- Steps and sums ---

    def step(self, hidden: HiddenForm, down: Broadcast, prior: Prior = SHARED) -> tuple[Terms, NDArray[np.float64]]:
        """Step the residents, given the travelling side; returns their terms of q(H), and the numbers per block."""
        self.learn_offsets(hidden)
        terms = self.resident_terms(hidden, down)
        self._before = None  # frees the rows before the last step
        new = self.side.empty_like(self._spare)
        blocks = self.step_rows(self.resident_pass(down, terms, prior), new)
        self.finish_step(new, down.sweep)
        return terms, blocks

    def sums(self, hidden: HiddenForm, down: Broadcast, request: SumsRequest, stepped: Side | None = None) -> Reply:
        """Sum for the travelling side without a step. From the second block of coordinates on, `stepped` has the
        requested rows with the earlier blocks stepped."""
        self.learn_offsets(hidden)
        edges, bound = self.edge_sums(hidden, down, request, stepped)
        return self.reply(np.array([[bound, -1.0, 0.0, 0.0, 0.0, 0.0]]), Sums(edges))

    def edge_sums(
        self, hidden: HiddenForm, down: Broadcast, request: SumsRequest, stepped: Side | None = None
    ) -> tuple[EdgeSums, float]:
        """Sums of the requested rows over the residents (eq. 15, 19), and the users' part of the bound if they are
        users."""
        terms = self.travelling_terms(hidden, down, request)
        kernel_pass = self.travelling_pass(down.other, self.side, terms, request)
        rows = np.arange(request.last - request.first, dtype=np.int32)
        if self.setup.items is not None:
            rows = self.setup.items.rows_summed(*request.range) - np.int32(request.first)
        block = CoordinateBlock.of(self.side.factors, request.block, stepped)
        sums = EdgeSums.empty(len(rows), block.size, spare_sums)
        bound = fill_sums(kernel_pass, rows, block, (0, len(self.side)), sums)
        if not request.keep:
            self.forget()
        return sums, bound

    def resident_pass(
        self, down: Broadcast, terms: Terms, prior: Prior = SHARED, residents: Side | None = None
    ) -> compiled.Pass:
        """Kernel pass over the residents, which reads the travelling side."""
        taus, own = (down.tau, down.tau_bias), self.side if residents is None else residents
        constants = PassConstants.of(self.setup.plan, taus, down.epsilon, prior, self.user_offset)
        return side_pass(own, down.other, self.graph.likes, terms, constants, own_is_user=self.setup.by_users)

    def travelling_pass(
        self, travelling: Side, residents: Side, terms: Terms, request: SumsRequest, slope: bool = False
    ) -> compiled.Pass:
        """Kernel pass over requested rows of the travelling side, which reads the residents."""
        constants = replace(PassConstants.of(self.setup.plan, user_offset=self.user_offset), slope=slope)
        own, likes = travelling.between(*request.range), self.turned_likes.between(*request.range)
        own_is_user = not self.setup.by_users
        return side_pass(own, residents, likes, terms, constants, own_is_user=own_is_user, splits=self.splits)

    @cached_property
    def turned_likes(self) -> Adjacency:
        """Likes by row of the travelling side."""
        return transpose(self.graph.likes, self.setup.travelling_rows)

    def step_rows(self, kernel_pass: compiled.Pass, new: Side) -> NDArray[np.float64]:
        """Step all residents into `new`; returns the numbers per block, see Reply."""
        steps = [compiled.update_rows(kernel_pass, a, b, *new.arrays()) for a, b in ranges(self.graph.blocks)]
        first = self.graph.first
        return np.array([[bound, bad if bad < 0 else first + bad, *moments] for bound, bad, moments in steps])

    def finish_step(self, new: Side, sweep: int) -> None:
        """Make the new rows the residents of this sweep."""
        self._before, self.side, self.sweep = self.side, new, sweep

    def draw(
        self,
        likes: Adjacency,
        first: int,
        draws: Draws,
        sweep: int,
        sides: tuple[Side, Side] | None = None,
        known: Known | None = None,
    ) -> Adjacency:
        """Unliked edges of H^(sweep) of the users with these likes, from `first` on; the next reply counts them."""
        plan, blocks = self.setup.plan, np.array([0, likes.rows])
        sampled = Sampled(
            likes,
            blocks,
            draws,
            plan.negatives,
            plan.seed,
            first_user=first,
            known=known,
            user_offset=self.user_offset if sides is not None else None,
            spare=spares.drawn,
        )
        edges = sampled.draw(sweep, sides=sides)
        self._draw_counts += (sampled.drawn, sampled.fallbacks)
        return edges

    def learn_offsets(self, hidden: HiddenForm) -> None:
        """Compute the users' offsets once pi is known. Every call that makes a pass begins with it."""
        if not self._offsets_known and hidden is not None:
            self.user_offset, self._offsets_known = self._offsets(hidden.weights), True

    def reply(self, blocks: NDArray[np.float64] | None, sums: Sums, light: LightEdges | None = None) -> Reply:
        """Reply of this part alone."""
        blocks = np.empty((0, 6)) if blocks is None else blocks
        (drawn, fallbacks), self._draw_counts = self._draw_counts.tolist(), np.zeros(2, np.int64)
        reply = Reply.of(self.number, self.setup.parts, blocks, sums, light)
        return replace(reply, drawn=drawn, fallbacks=fallbacks)

    # --- Defined by the resident side ---

    def resident_terms(self, hidden: HiddenForm, down: Broadcast) -> Terms:
        """Terms of q(H) in the residents' pass."""
        raise NotImplementedError

    def travelling_terms(self, hidden: HiddenForm, down: Broadcast, request: SumsRequest) -> Terms:
        """Terms of q(H) in the pass over requested rows of the travelling side."""
        raise NotImplementedError

    def _offsets(self, weights: NDArray[np.float64]) -> NDArray[np.float32] | None:
        """Offsets of the users in passes here, in addition to -log c."""
        raise NotImplementedError
