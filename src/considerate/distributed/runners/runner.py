"""The runner over a divided graph: the parts step the residents, the head steps the travelling side (eq. 21)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import GraphOutline, Run, run_serially
from considerate.distributed.messages import HiddenForm, PartitionSetup, Reply, merge_replies
from considerate.distributed.options import DivisionOptions
from considerate.distributed.pools import PerPart, WorkerPool
from considerate.errors import DivergedError
from considerate.fitting.session import closed_form_groups
from considerate.fitting.stopping import held_interrupts
from considerate.inference.bound import Bound
from considerate.inference.features import DELAY, FitFeatures, Gram, SideFeatures
from considerate.inference.hidden import Consideration, Draws, Grouping
from considerate.inference.plan import FitPlan
from considerate.inference.posterior import Posterior, Side
from considerate.inference.schedule import StepSize
from considerate.inference.sweep import (
    NO_FEATURES,
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
from considerate.kernels.arrays import Spare, add_in_order


@dataclass
class UserFeatures:
    """Features of users, which stay with their parts. F'F comes up once, F'E[U] with every sweep."""

    pool: WorkerPool
    by_part: PerPart  # of Features
    sweep: int = 0  # sweep of the users
    known: tuple[int, NDArray[np.float64] | None] = (-1, None)  # (sweep, F'E[U] after it)

    @cached_property
    def gram(self) -> Gram:
        return Gram.of(self.pool.call("feature_gram", self.by_part, merge=merge_replies).root().gram)

    def sums(self, side: Side, run: Run[Any, Any]) -> NDArray[np.float64]:
        """F'E[U] of all users, none of whose rows are here."""
        known_at, sums = self.known
        if known_at != self.sweep or sums is None:
            sums = self.pool.call("feature_sums", self.by_part, merge=merge_replies).root().features
            self.known = self.sweep, sums
        assert sums is not None
        return sums


class PartitionedRunner:
    """Sweeps over parts, wherever they are. Its states have no row of the resident side. A subclass knows the order in
    which the parts and the head step their sides."""

    features: FitFeatures = NO_FEATURES
    user_features: UserFeatures | None = None

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
        draws: HiddenForm = None if plan.observed else Draws.of(weights, consideration, plan.tilt)
        if plan.hidden == "sampled":
            self._draws = pool.share(draws, keep=True)
        self._spare = Spare()
        self.fallen_back = 0.0  # share of the last draws for which the walk had no item left
        self._swept = 0  # sweep of the parts, as far as this runner called them

    @property
    def settings(self) -> FitPlan:
        return self.setup.plan

    @property
    def deterministic(self) -> bool:
        return self.settings.hidden == "expected" or self.settings.observed

    @property
    def edges(self) -> int:
        return self.outline.edges

    @property
    def grouping(self) -> Grouping | None:
        """Groups of the sweep under way, if it is in closed form."""
        closed = self.settings.hidden == "expected" or self._swept < self.settings.opening
        return self._groups if closed else None

    @property
    def hidden(self) -> Any:
        """Handle to the form of q(H) in the sweep under way."""
        return self._draws if self.grouping is None else self._inclusion

    def begin(self) -> State:
        """Set the state before the first sweep, here and at the parts."""
        raise NotImplementedError

    def sweeps(self, state: State | None = None) -> Iterator[Sweep]:
        """Sweep without end. The parts must be at the given state."""
        state = state or self.begin()
        while True:
            self._go_back(state)
            try:
                swept = self._sweep(state)
            except (KeyboardInterrupt, DivergedError):
                self._swept = state.sweep + 1
                with suppress(Exception), held_interrupts():  # evaluate_bound tries again
                    self._go_back(state)
                raise
            state = swept.state
            self._swept = state.sweep
            yield swept
            del swept

    def evaluate_bound(self, state: State) -> Bound:
        """L_xi of a state, on the H of the next sweep."""
        self._go_back(state)
        return self._bound(state, self._edge_bound(state))

    def _edge_bound(self, state: State) -> float:
        """Edges' part of the bound of a state, on the H of the next sweep."""
        raise NotImplementedError

    def _updates(self, state: State, epsilon: float) -> Iterator[SideUpdate]:
        """Step the users and yield their update, then the items. The users' update has the edges' part of the bound."""
        raise NotImplementedError

    def use_features(self, users: PerPart | None, items: SideFeatures | None) -> None:
        """Use features of the users by part, and of all items."""
        self.user_features = None if users is None else UserFeatures(self.pool, users)
        self.features = FitFeatures(self.user_features, items)

    def _with_features(self, state: State) -> State:
        """The state with the weights of features stepped."""
        if not self.features or state.sweep < DELAY:
            return state
        if self.user_features is not None:
            self.user_features.sweep = state.sweep
        return replace(state, posterior=self.features.step(state.posterior, self.settings, self.run))

    def _sweep(self, state: State) -> Sweep:
        number, epsilon = state.sweep + 1, 1.0 if self.deterministic else state.step_size.epsilon
        begun = self._with_features(state)
        updates = self._updates(begun, epsilon)
        users = next(updates)
        bound = self._bound(state, users.edge_bound)
        check_rows(users.bad_row, "user", number, state)
        items = next(updates)
        check_rows(items.bad_row, "item", number, state)
        new = next_state(begun, users, items, PrecisionStep(self.counts, self.settings, epsilon))
        check_bound(bound, number, state)
        return Sweep(new, bound, epsilon, self.grouping is None or not self.grouping.moves(number))

    def _go_back(self, state: State) -> None:
        """Undo the parts' last step if it came after this state."""
        if self._swept > state.sweep:
            self.pool.call("go_back", state.sweep, changes=True)
        self._swept = state.sweep

    def _first_state(self, users: Side, items: Side, moments: tuple[Moments, Moments]) -> State:
        """State before the first sweep, from the rows that are here and the moments of both sides."""
        posterior = Posterior(users, items, initial_precisions(*self.counts, self.settings))
        return State(0, posterior, StepSize(self.settings.step_delay), *moments)

    def _bound(self, state: State, edge_bound: float) -> Bound:
        return bound_of(state, edge_bound, self.settings, self.counts)

    def _call(self, method: Any, *arguments: Any, changes: bool = False) -> Reply:
        """Merged reply of all parts to a method that reads q(H)."""
        reply: Reply = self.pool.call(method, self.hidden, *arguments, merge=merge_replies, changes=changes)
        if reply.drawn:
            self.fallen_back = reply.fallbacks / reply.drawn
        return reply

    def _resident_update(self, blocks: list[list[float]]) -> SideUpdate:
        """Update of the residents, whose rows stay with the parts. blocks: see Reply."""
        bad = [int(block[1]) for block in blocks if block[1] >= 0]
        moments, bound = Moments.total([block[2:] for block in blocks]), add_in_order(block[0] for block in blocks)
        return SideUpdate(self._no_residents(), moments, bound, min(bad, default=-1))

    def _no_residents(self) -> Side:
        return initial_side(0, self.settings, self.setup.resident)
