"""What the runners over a divided graph share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import GraphOutline, Run, run_serially
from considerate.distributed.messages import PartitionSetup, Reply, merge_replies
from considerate.distributed.options import DivisionOptions
from considerate.distributed.pools import WorkerPool
from considerate.errors import DivergedError
from considerate.fitting.session import closed_form_groups
from considerate.fitting.stopping import held_interrupts
from considerate.inference.bound import Bound
from considerate.inference.hidden import Consideration, Draws, Grouping
from considerate.inference.plan import FitPlan
from considerate.inference.posterior import Posterior, Side
from considerate.inference.schedule import StepSize
from considerate.inference.sweep import (
    PrecisionStep,
    State,
    Sweep,
    bound_of,
    check_bound,
    check_rows,
    initial_precisions,
    initial_side,
    next_state,
)
from considerate.inference.updates import Moments, SideUpdate
from considerate.kernels.arrays import Spare


class PartitionedRunner:
    """A runner over parts: what both divisions share. The state has no row of the side that lives with them."""

    def __init__(
        self,
        outline: GraphOutline,
        setup: PartitionSetup,
        weights: NDArray[np.float64],
        pool: WorkerPool,
        options: DivisionOptions,
        run: Run[Any, Any] = run_serially,
        consideration: Consideration | None = None,
    ) -> None:
        self.options = options
        self.outline, self.setup, self.weights, self.pool, self.run = outline, setup, weights, pool, run
        self.counts = (outline.user_count, outline.item_count)
        plan = setup.plan
        self._groups: Grouping | None = None
        if plan.opens_closed:
            groups, freeze_after = closed_form_groups(plan, outline.item_count)
            self._groups = Grouping(weights, plan.offset, groups, freeze_after=freeze_after)
            self._inclusion = pool.share(self._groups.saturation.inclusion, keep=True)
        draws = None if plan.observed else Draws.of(weights, consideration, plan.tilt)
        if plan.hidden == "sampled":
            self._draws = pool.share(draws, keep=True)
        self._spare = Spare()
        self.fallen_back = 0.0  # the share of the draws made last for which the walk had no item left
        self._swept = 0  # the sweep that the parts are at, as far as they were called from here

    @property
    def settings(self) -> FitPlan:
        return self.setup.plan

    @property
    def deterministic(self) -> bool:
        return self.settings.hidden == "expected" or self.settings.observed

    @property
    def grouping(self) -> Grouping | None:
        """The groups of the sweep under way, where that is in closed form."""
        closed = self.settings.hidden == "expected" or self._swept < self.settings.opening
        return self._groups if closed else None

    @property
    def _fixed(self) -> Any:
        """What parts are given of q(H) in the sweep under way."""
        return self._draws if self.grouping is None else self._inclusion

    def _goes_on(self, number: int) -> bool:
        """Whether the sweep after this one has the same groups, or draws as this one does."""
        return self.grouping is None or not (self.grouping.moves(number + 1) or number == self.settings.opening)

    @property
    def edges(self) -> int:
        return self.outline.edges

    def begin(self) -> State:
        """The state before the first sweep, here and with the parts."""
        raise NotImplementedError

    def sweeps(self, state: State | None = None) -> Iterator[Sweep]:
        """One sweep after the other, without end; the parts must be where the state is."""
        state = state or self.begin()
        while True:
            self._go_back(state)
            try:
                swept = self._sweep(state)
            except (KeyboardInterrupt, DivergedError):
                self._swept = state.sweep + 1
                with suppress(Exception), held_interrupts():  # whoever asks for the bound will try again
                    self._go_back(state)
                raise
            state = swept.state
            self._swept = state.sweep
            yield swept
            del swept

    def evaluate_bound(self, state: State) -> Bound:
        """L_xi of a state, on the H of the sweep that would come next."""
        raise NotImplementedError

    def _go_back(self, state: State) -> None:
        """Undo the parts' last step where the state is the one before it."""
        if self._swept > state.sweep:
            self.pool.call("go_back", state.sweep, changes=True)
        self._swept = state.sweep

    def _sweep(self, state: State) -> Sweep:
        raise NotImplementedError

    def _first_state(self, users: Side, items: Side, moments: tuple[Moments, Moments]) -> State:
        """The state before the first sweep, of rows that are here and moments of both sides."""
        posterior = Posterior(users, items, initial_precisions(*self.counts, self.settings))
        return State(0, posterior, StepSize(self.settings.step_delay), *moments)

    def _bound(self, state: State, edge_bound: float) -> Bound:
        return bound_of(state, edge_bound, self.settings, self.counts)

    def _call(self, method: str, *arguments: Any, changes: bool = False) -> Reply:
        """The merged reply of all parts, which are given what q(H) makes of pi."""
        reply: Reply = self.pool.call(method, self._fixed, *arguments, merge=merge_replies, changes=changes)
        if reply.drawn:
            self.fallen_back = reply.fallbacks / reply.drawn
        return reply

    def _epsilon(self, state: State) -> float:
        return 1.0 if self.deterministic else state.step_size.epsilon

    def _residents(self, blocks: list[list[float]], state: State) -> SideUpdate:
        """The step of the residents, whose rows stay with the parts. blocks: as Reply has them."""
        bad = [int(block[1]) for block in blocks if block[1] >= 0]
        check_rows(min(bad, default=-1), self.setup.resident.removesuffix("s"), state.sweep + 1, state)
        return SideUpdate(self._nobody(), Moments.total([block[2:] for block in blocks]))

    def _end(
        self, state: State, users: SideUpdate, items: SideUpdate, bound: Bound, q: Posterior | None = None
    ) -> Sweep:
        """The sweep from a state whose bound this is, once both sides are stepped. q: with the weights of features
        stepped."""
        number, epsilon = state.sweep + 1, self._epsilon(state)
        at = state if q is None else replace(state, posterior=q)
        new = next_state(at, users, items, PrecisionStep(self.counts, self.settings, epsilon))
        check_bound(bound, number, state)
        return Sweep(new, bound, epsilon, self.grouping is None or not self.grouping.moves(number))

    def _nobody(self) -> Side:
        """No row of the side that lives with the parts."""
        return initial_side(0, self.settings, self.setup.resident)
