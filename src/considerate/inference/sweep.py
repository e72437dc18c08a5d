"""Sweeps, as a generator (Algorithm 1).

One pass over a side's edges updates its vectors and biases together. With everything else held, L_xi at given xi is
a concave quadratic of (u_m, b_m). A simultaneous step of two blocks of such a function never lowers it: the iteration
matrix of two-block Jacobi is self-adjoint in the quadratic's own norm, with spectral radius below 1. Users and items
are never stepped at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import ITEMS, USERS, Graph, Range, leaf_splits, ranges
from considerate.errors import DivergedError
from considerate.inference.bound import Bound, gamma_term, side_terms, weights_terms
from considerate.inference.features import DELAY, FitFeatures
from considerate.inference.hidden import Estimator, Opening, Terms
from considerate.inference.plan import FitPlan
from considerate.inference.posterior import Gamma, Posterior, Precisions, Side
from considerate.inference.prior import Priors
from considerate.inference.schedule import StepSize
from considerate.inference.sums import PassConstants, side_pass
from considerate.inference.updates import (
    CHUNK,
    Moments,
    RowClasses,
    SideUpdate,
    TreePass,
    update_precision,
    update_side,
)
from considerate.kernels import compiled
from considerate.kernels.arrays import Spare, add_in_order
from considerate.kernels.threads import Backend


@dataclass(frozen=True)
class Start:
    """Start of a fit: the precisions of the vectors, held at first; the standard deviation of the items' means; the
    variance of all coordinates."""

    precision: float
    deviation: float
    variance: float

    @classmethod
    def of(cls, settings: FitPlan) -> Start:
        """Start near zero. An opening, or a fit to a given H, starts where fits to good data end, at a prior standard
        deviation of u'v of sqrt(2), which saves an opening two sweeps of five."""
        if not settings.opening and not settings.observed:
            return cls(10.0, 0.1, 0.1)
        precision = math.sqrt(settings.factors / 2)
        return cls(precision, 0.6 / math.sqrt(precision), 0.125 / precision)


BIAS_VARIANCE = 0.1  # of all biases, at first
SHARED_PRIORS = Priors()
NO_FEATURES = FitFeatures()
NEAR_BYTES = 32 << 20  # users of at most this size stay in the caches while items are stepped one after the other


@dataclass(frozen=True)
class State:
    """State between two sweeps: all that a checkpoint must keep."""

    sweep: int  # number of sweeps so far
    posterior: Posterior
    step_size: StepSize
    user_moments: Moments
    item_moments: Moments


@dataclass(frozen=True)
class Sweep:
    """Result of one sweep. `bound` is L_xi of the posterior that the sweep *started* from, on the H that it drew: a
    fresh H, to which that posterior was not fitted."""

    state: State
    bound: Bound
    epsilon: float
    settled: bool


class Runner(Protocol):
    """Runner of sweeps over a graph in memory (`InMemory`), or over its parts (`PartitionedRunner`)."""

    @property
    def settings(self) -> FitPlan: ...

    @property
    def deterministic(self) -> bool:
        """True if the bound is exact: no draws."""
        ...

    @property
    def edges(self) -> int:
        """Number of observed edges."""
        ...

    def sweeps(self, state: State | None = None) -> Iterator[Sweep]: ...

    def evaluate_bound(self, state: State) -> Bound: ...


def initial_side(rows: int, settings: FitPlan, side: str, spare: Spare | None = None) -> Side:
    """Make the rows of one side, with means of zero."""
    has_bias = settings.user_bias if side == USERS else settings.item_bias
    variance = Start.of(settings).variance
    return Side.constant(rows, settings.factors, variance, BIAS_VARIANCE if has_bias else None, spare)


def initial_items(count: int, settings: FitPlan, spare: Spare | None = None) -> Side:
    """Make items with random means around zero. (At zero they would stay there.)"""
    random = np.random.Generator(np.random.Philox(key=settings.seed))
    items = initial_side(count, settings, ITEMS, spare)
    deviation = np.float32(Start.of(settings).deviation)
    for first in range(0, count, CHUNK):
        rows = items.mean[first : first + CHUNK]
        rows[:] = deviation * random.standard_normal(rows.shape, np.float32)
    return items


def initial_precisions(users: int, items: int, settings: FitPlan) -> Precisions:
    """Precisions before they are learned: of vectors as `Start` has them, of biases at their prior's mean. Each Gamma
    has the shape that eq. 20 will give it, or the first blend of its rate would mix two scales."""

    def held(count: int, mean: float) -> Gamma:
        shape = settings.prior_shape + 0.5 * count
        return Gamma(shape, shape / mean)

    start, prior_mean = Start.of(settings).precision, settings.prior_shape / settings.prior_rate
    return Precisions(
        held(users * settings.factors, start),
        held(items * settings.factors, start),
        held(users, prior_mean) if settings.user_bias else None,
        held(items, prior_mean) if settings.item_bias else None,
    )


def initial_state(graph: Graph, settings: FitPlan, spare: Spare | None = None, priors: Priors = SHARED_PRIORS) -> State:
    """State before the first sweep: items near zero; users at zero, as they are updated first."""
    users = initial_side(graph.user_count, settings, USERS, spare)
    items = initial_items(graph.item_count, settings, spare)
    posterior = Posterior(users, items, initial_precisions(len(users), len(items), settings))
    moments = Moments.of(users, priors.users), Moments.of(items, priors.items)
    return State(0, posterior, StepSize(settings.step_delay), *moments)


def begin_features(state: State, q: Posterior) -> State:
    """State before the first sweep, with the posterior q, which has weights of features."""
    moments = state.user_moments.with_spread(q.user_weights), state.item_moments.with_spread(q.item_weights)
    return State(state.sweep, q, state.step_size, *moments)


def bound_of(
    state: State, edges: float, settings: FitPlan, counts: tuple[int, int] | None = None, priors: Priors = SHARED_PRIORS
) -> Bound:
    """L_xi of a state, given the edges' term (eq. 12); `counts` of users and items if rows are in other processes."""
    q, taus, K = state.posterior, state.posterior.precisions, state.posterior.factors
    m, n = counts or (len(q.users), len(q.items))
    users, user_biases = side_terms((m, K), state.user_moments, taus.user, taus.user_bias, priors.users)
    items, item_biases = side_terms((n, K), state.item_moments, taus.item, taus.item_bias, priors.items)
    gammas = [gamma for gamma in (taus.user, taus.item, taus.user_bias, taus.item_bias) if gamma is not None]
    weights = [one for one in (q.user_weights, q.item_weights) if one is not None]
    gammas += [part.tau for one in weights for part in one.parts]
    precisions = add_in_order(gamma_term(gamma, settings.prior_shape, settings.prior_rate) for gamma in gammas)
    (users_A, user_beta), (items_A, item_beta) = weights_terms(q.user_weights), weights_terms(q.item_weights)
    sides = users + users_A, items + items_A, user_biases + user_beta, item_biases + item_beta
    return Bound(edges, *sides, precisions)


@dataclass(frozen=True)
class PrecisionStep:
    """Arguments of a step of the precisions, apart from the moments."""

    counts: tuple[int, int]  # of users and items
    settings: FitPlan
    epsilon: float
    priors: Priors = SHARED_PRIORS


def update_precisions(old: Precisions, moments: tuple[Moments, Moments], step: PrecisionStep) -> Precisions:
    """Step the four Gamma posteriors (eq. 20), from the moments of users and items. A tau is not learned if the rows'
    own precisions are given."""
    settings, priors = step.settings, step.priors

    def update(gamma: Gamma, count: int, square: float, given: object) -> Gamma:
        if given is not None:
            return gamma
        return update_precision(gamma, settings.prior_shape, settings.prior_rate, count, square, step.epsilon)

    def update_bias(gamma: Gamma | None, count: int, square: float, given: object) -> Gamma | None:
        return None if gamma is None else update(gamma, count, square, given)

    (users, items), (m, n), K = moments, step.counts, settings.factors
    return Precisions(
        update(old.user, m * K, users.square, priors.users.precision),
        update(old.item, n * K, items.square, priors.items.precision),
        update_bias(old.user_bias, m, users.bias_square, priors.users.bias_precision),
        update_bias(old.item_bias, n, items.bias_square, priors.items.bias_precision),
    )


def next_state(state: State, users: SideUpdate, items: SideUpdate, step: PrecisionStep) -> State:
    """State after both sides were stepped, with new precisions (eq. 20) and the next step size."""
    number, q = state.sweep + 1, state.posterior
    moments = users.moments.with_spread(q.user_weights), items.moments.with_spread(q.item_weights)
    taus = q.precisions
    if number > step.settings.precision_delay:
        taus = update_precisions(taus, moments, step)
    posterior = replace(q, users=users.side, items=items.side, precisions=taus)
    return State(number, posterior, state.step_size.after(number), *moments)


class ItemsPass(Protocol):
    """Pass that steps the items of a graph in memory."""

    def update(self, own: Side, classes: RowClasses, run: Any, spare: Spare | None = None) -> SideUpdate: ...


@dataclass(frozen=True)
class InMemory:
    """Sweeps over a whole graph in memory."""

    graph: Graph
    estimator: Estimator
    settings: FitPlan
    backend: Backend
    priors: Priors = SHARED_PRIORS  # of rows that have priors of their own
    features: FitFeatures = NO_FEATURES
    user_offset: NDArray[np.float32] | None = None  # [users] added to -log c in the logits

    @property
    def deterministic(self) -> bool:
        return self.estimator.deterministic

    @property
    def edges(self) -> int:
        return self.graph.edges

    def sweeps(self, state: State | None = None) -> Iterator[Sweep]:
        """Yield one sweep after the other, without end; the caller decides when to stop."""
        spare = Spare()
        state = state or self.begin(spare)
        classes = self.item_classes()
        while True:
            sweep = self._sweep(state, classes, spare)
            yield sweep
            state = sweep.state
            del sweep

    def begin(self, spare: Spare | None = None) -> State:
        """State before the first sweep."""
        state = initial_state(self.graph, self.settings, spare, self.priors)
        return begin_features(state, self.features.begin(state.posterior, self.settings)) if self.features else state

    def _sweep(self, state: State, classes: RowClasses, spare: Spare) -> Sweep:
        number, graph, run = state.sweep + 1, self.graph, self.backend.map
        epsilon = 1.0 if self.deterministic else state.step_size.epsilon
        estimator = self.estimator.at(number) if isinstance(self.estimator, Opening) else self.estimator
        q, given = self._with_features(state)
        at = replace(state, posterior=q)
        users = given.update_users(estimator.user_terms(number, q, run), q, epsilon, spare)
        bound = bound_of(state, users.edge_bound, self.settings, priors=self.priors)
        check_rows(users.bad_row, "user", number, state)
        q = replace(q, users=users.side)
        items_pass = given.items_pass(estimator.item_terms(number, q, run), q, epsilon)
        items = items_pass.update(q.items, classes, run, spare)
        check_rows(items.bad_row, "item", number, state)
        step = PrecisionStep((graph.user_count, graph.item_count), self.settings, epsilon, self.priors)
        new = next_state(at, users, items, step)
        check_bound(bound, number, state)
        return Sweep(new, bound, epsilon, self.estimator.settled(number))

    def _with_features(self, state: State) -> tuple[Posterior, InMemory]:
        """Posterior after a step of the features' weights, and this object with the priors that follow from them."""
        q, run = state.posterior, self.backend.map
        if not self.features:
            return q, self
        if state.sweep >= DELAY:
            q = self.features.step(q, self.settings, run)
        return q, replace(self, priors=self.features.priors(q, run))

    def users_pass(self, terms: Terms, q: Posterior, epsilon: float = 1.0) -> compiled.Pass:
        """Kernel pass over users, which reads the items, H and the constants."""
        priors, taus = self.priors.users, q.precisions.means_of(USERS)
        constants = PassConstants.of(self.settings, taus, epsilon, priors, self.user_offset)
        return side_pass(q.users, q.items, self.graph.by_user, terms, constants, own_is_user=True)

    def update_users(self, terms: Terms, q: Posterior, epsilon: float = 1.0, spare: Spare | None = None) -> SideUpdate:
        """Update q(u_m) and q(b_m) of all users, given the items."""
        kernel_pass = self.users_pass(terms, q, epsilon)
        return update_side(kernel_pass, q.users, self.graph.user_blocks, self.backend.map, spare)

    def item_classes(self) -> RowClasses:
        """Items by the way that they are summed."""
        return RowClasses.of_items(self.graph, self.settings.edges_per_like)

    def items_pass(self, terms: Terms, q: Posterior, epsilon: float = 1.0) -> ItemsPass:
        """Pass over items, which reads the users, H and the constants."""
        priors, taus = self.priors.items, q.precisions.means_of(ITEMS)
        constants = PassConstants.of(self.settings, taus, epsilon, priors, self.user_offset)
        leaves = leaf_splits(self.graph.user_blocks)

        def reading(splits: NDArray[np.int64] | None) -> compiled.Pass:
            return side_pass(q.items, q.users, self.graph.by_item, terms, constants, own_is_user=False, splits=splits)

        far = q.users.rows.nbytes > NEAR_BYTES
        return TreePass(reading(leaves), reading(None), leaves, terms.expected is not None, far)

    def evaluate_bound(self, state: State) -> Bound:
        """L_xi of a state, on the H of the next sweep."""
        terms = self.estimator.user_terms(state.sweep + 1, state.posterior, self.backend.map)
        kernel_pass = self.users_pass(terms, state.posterior)

        def edges(block: Range) -> float:
            return compiled.edge_bound(kernel_pass, *block)

        total = add_in_order(self.backend.map(edges, ranges(self.graph.user_blocks)))
        return bound_of(state, total, self.settings, priors=self.priors)


def check_rows(bad_row: int, side: str, sweep: int, state: State) -> None:
    """Raise DivergedError if a step gave a row a value that is not finite."""
    if bad_row >= 0:
        raise DivergedError(
            f"Sweep {sweep} gave {side} row {bad_row} a value that is not finite; the posterior of sweep {sweep - 1} "
            "is kept. A smaller likelihood_weight, fewer factors or a larger prior_shape would tame it.",
            state,
        )


def check_bound(bound: Bound, sweep: int, state: State) -> None:
    """Raise DivergedError if the bound of a sweep is not finite."""
    if not np.isfinite(bound.total):
        raise DivergedError(f"The bound stopped being finite in sweep {sweep}; the posterior before it is kept.", state)
