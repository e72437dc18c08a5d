"""The sweep, as a generator of steps (Algorithm 1).

A side's vectors and biases are updated together, from one pass over its edges. With everything else held, L_xi at
given xi is a concave quadratic of (u_m, b_m), and a simultaneous step of two blocks of such a function never lowers
it (the iteration matrix of two-block Jacobi is self-adjoint in the quadratic's own norm, with spectral radius below
1). Users and items are never stepped at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from considerate.data.graph import ITEMS, USERS, Graph, Range, ranges
from considerate.errors import DivergedError
from considerate.inference.bound import Bound, gamma_term, side_terms
from considerate.inference.hidden import Estimator, Terms
from considerate.inference.posterior import Gamma, Posterior, Precisions, Side
from considerate.inference.schedule import StepSize
from considerate.inference.sums import Step as PassStep
from considerate.inference.sums import side_pass
from considerate.inference.updates import Moments, Updated, heavy_rows, update_precision, update_side
from considerate.kernels import compiled
from considerate.kernels.arrays import Spare
from considerate.kernels.threads import Backend
from considerate.parameters import FitPlan

INITIAL_PRECISION = 10.0


@dataclass(frozen=True)
class State:
    """Between two sweeps: all that a checkpoint must keep."""

    sweep: int  # sweeps done
    posterior: Posterior
    step_size: StepSize
    user_moments: Moments
    item_moments: Moments


@dataclass(frozen=True)
class Sweep:
    """What one sweep gave. `bound` is L_xi of the posterior that the sweep *started* from, on the H that it drew: a
    fresh H, so the bound is not flattered by having been fitted to it."""

    state: State
    bound: Bound
    epsilon: float
    settled: bool


class Runner(Protocol):
    """Whoever can sweep: over a graph in memory (`InMemory`), or over its parts wherever they are (`Divided`)."""

    @property
    def settings(self) -> FitPlan: ...

    @property
    def deterministic(self) -> bool:
        """Whether the bound is exact: no draws."""
        ...

    @property
    def edges(self) -> int:
        """Of G."""
        ...

    def sweeps(self, state: State | None = None) -> Iterator[Sweep]: ...

    def evaluate_bound(self, state: State) -> Bound: ...


@dataclass(frozen=True)
class InMemory:
    """A runner over a graph that is here whole."""

    graph: Graph
    estimator: Estimator
    settings: FitPlan
    backend: Backend

    @property
    def deterministic(self) -> bool:
        return self.estimator.deterministic

    @property
    def edges(self) -> int:
        return self.graph.edges

    def sweeps(self, state: State | None = None) -> Iterator[Sweep]:
        return sweeps(self.graph, self.estimator, self.settings, self.backend, state)

    def evaluate_bound(self, state: State) -> Bound:
        return evaluate_bound(self.graph, self.estimator, self.settings, self.backend, state)


def initial_side(rows: int, settings: FitPlan, side: str, spare: Spare | None = None) -> Side:
    """Rows of one side at zero, as wide as the precisions that are held at first."""
    start = 1 / INITIAL_PRECISION
    has_bias = settings.user_bias if side == USERS else settings.item_bias
    return Side.constant(rows, settings.factors, start, start if has_bias else None, spare)


def initial_items(count: int, settings: FitPlan, spare: Spare | None = None) -> Side:
    """Items near zero, N(0, 0.1^2). (At zero they would stay there.)"""
    random = np.random.Generator(np.random.Philox(key=settings.seed))
    items = initial_side(count, settings, ITEMS, spare)
    items.mean[:] = np.float32(0.1) * random.standard_normal(items.mean.shape, np.float32)
    return items


def initial_precisions(users: int, items: int, settings: FitPlan) -> Precisions:
    """The vectors' precisions are held at 10 until they are learned, those of biases at their prior's mean. Each Gamma
    has the shape that eq. 20 will give it, or the first blend of its rate would be between two scales."""

    def held(count: int, mean: float) -> Gamma:
        shape = settings.prior_shape + 0.5 * count
        return Gamma(shape, shape / mean)

    prior_mean = settings.prior_shape / settings.prior_rate
    return Precisions(
        held(users * settings.factors, INITIAL_PRECISION),
        held(items * settings.factors, INITIAL_PRECISION),
        held(users, prior_mean) if settings.user_bias else None,
        held(items, prior_mean) if settings.item_bias else None,
    )


def initial_state(graph: Graph, settings: FitPlan, spare: Spare | None = None) -> State:
    """Items near zero; users at zero, as the first pass is theirs."""
    users = initial_side(graph.user_count, settings, USERS, spare)
    items = initial_items(graph.item_count, settings, spare)
    posterior = Posterior(users, items, initial_precisions(len(users), len(items), settings))
    return State(0, posterior, StepSize(settings.step_delay), Moments.of(users), Moments.of(items))


def bound_of(state: State, edges: float, settings: FitPlan, counts: tuple[int, int] | None = None) -> Bound:
    """L_xi of a state, given the part of the edges (eq. 12); counts of users and items, where rows are elsewhere."""
    q, taus = state.posterior, state.posterior.precisions
    m, n = counts or (len(q.users), len(q.items))
    users, user_biases = side_terms(m, q.factors, state.user_moments, taus.user, taus.user_bias)
    items, item_biases = side_terms(n, q.factors, state.item_moments, taus.item, taus.item_bias)
    gammas = [one for one in (taus.user, taus.item, taus.user_bias, taus.item_bias) if one is not None]
    precisions = sum(gamma_term(one, settings.prior_shape, settings.prior_rate) for one in gammas)
    return Bound(edges, users, items, user_biases, item_biases, precisions)


def update_precisions(
    old: Precisions,
    users: Moments,
    items: Moments,
    counts: tuple[int, int],
    settings: FitPlan,
    epsilon: float,
) -> Precisions:
    """The four Gamma posteriors (eq. 20)."""

    def one(gamma: Gamma, count: int, square: float) -> Gamma:
        return update_precision(gamma, settings.prior_shape, settings.prior_rate, count, square, epsilon)

    m, n = counts
    return Precisions(
        one(old.user, m * settings.factors, users.square),
        one(old.item, n * settings.factors, items.square),
        one(old.user_bias, m, users.bias_square) if old.user_bias is not None else None,
        one(old.item_bias, n, items.bias_square) if old.item_bias is not None else None,
    )


def sweeps(
    graph: Graph, estimator: Estimator, settings: FitPlan, backend: Backend, state: State | None = None
) -> Iterator[Sweep]:
    """One sweep after the other, without end; whoever asks decides when to stop."""
    spare = Spare()
    state = state or initial_state(graph, settings, spare)
    heavy = heavy_rows(graph.by_item.degrees, graph.item_blocks)
    while True:
        done = _sweep(graph, estimator, settings, backend, state, heavy, spare)
        yield done
        state = done.state
        del done


def _sweep(
    graph: Graph,
    estimator: Estimator,
    settings: FitPlan,
    backend: Backend,
    state: State,
    heavy: np.ndarray,
    spare: Spare,
) -> Sweep:
    number, q, taus = state.sweep + 1, state.posterior, state.posterior.precisions
    epsilon = 1.0 if estimator.deterministic else state.step_size.epsilon
    users = update_users(graph, estimator.user_terms(number, q, backend.map), settings, backend, q, epsilon, spare)
    bound = bound_of(state, users.edge_bound, settings)
    check_rows(users.bad_row, "user", number, state)
    q = replace(q, users=users.side)
    terms = estimator.item_terms(number, q, backend.map)
    reading = side_pass(
        q.items,
        q.users,
        graph.by_item,
        terms,
        PassStep(settings.offset, settings.weight, taus.item.mean, mean_of(taus.item_bias), epsilon),
        own_is_user=False,
        splits=graph.user_blocks,
    )
    items = update_side(
        reading,
        q.items,
        graph.item_blocks,
        backend.map,
        split=heavy,
        splits=graph.user_blocks,
        closed_form=terms.expected is not None,
        spare=spare,
    )
    check_rows(items.bad_row, "item", number, state)
    counts = (graph.user_count, graph.item_count)
    new = next_state(state, users.side, items.side, users.moments, items.moments, counts, settings, epsilon)
    check_bound(bound, number, state)
    return Sweep(new, bound, epsilon, estimator.settled(number))


def next_state(
    state: State,
    users: Side,
    items: Side,
    user_moments: Moments,
    item_moments: Moments,
    counts: tuple[int, int],
    settings: FitPlan,
    epsilon: float,
) -> State:
    """The state after both sides were stepped: the precisions (eq. 20) and the next step size."""
    number, taus = state.sweep + 1, state.posterior.precisions
    if number > settings.precision_delay:
        taus = update_precisions(taus, user_moments, item_moments, counts, settings, epsilon)
    return State(number, Posterior(users, items, taus), state.step_size.after(number), user_moments, item_moments)


def users_pass(graph: Graph, terms: Terms, settings: FitPlan, q: Posterior, epsilon: float) -> compiled.Pass:
    """What the users' pass reads: the items, H and the constants."""
    taus = q.precisions
    step = PassStep(settings.offset, settings.weight, taus.user.mean, mean_of(taus.user_bias), epsilon)
    return side_pass(q.users, q.items, graph.by_user, terms, step, own_is_user=True)


def update_users(
    graph: Graph,
    terms: Terms,
    settings: FitPlan,
    backend: Backend,
    q: Posterior,
    epsilon: float,
    spare: Spare | None = None,
) -> Updated:
    """The users' pass: q(u_m) and q(b_m) of everyone, given the items."""
    reading = users_pass(graph, terms, settings, q, epsilon)
    return update_side(reading, q.users, graph.user_blocks, backend.map, spare=spare)


def evaluate_bound(graph: Graph, estimator: Estimator, settings: FitPlan, backend: Backend, state: State) -> Bound:
    """L_xi of a state, on the H of the sweep that would come next."""
    terms = estimator.user_terms(state.sweep + 1, state.posterior, backend.map)
    reading = users_pass(graph, terms, settings, state.posterior, 1.0)

    def edges(block: Range) -> float:
        return compiled.edge_bound(reading, *block)

    return bound_of(state, sum(backend.map(edges, ranges(graph.user_blocks))), settings)


def mean_of(gamma: Gamma | None) -> float:
    return 1.0 if gamma is None else gamma.mean


def check_rows(bad_row: int, side: str, sweep: int, state: State) -> None:
    """Refuse a step that gave a row a value that is not finite."""
    if bad_row >= 0:
        raise DivergedError(
            f"Sweep {sweep} gave {side} row {bad_row} a value that is not finite; the posterior of sweep {sweep - 1} "
            "is kept. A smaller likelihood_weight, fewer factors or a larger prior_shape would tame it.",
            state,
        )


def check_bound(bound: Bound, sweep: int, state: State) -> None:
    """Refuse a sweep whose bound is not finite."""
    if not np.isfinite(bound.total):
        raise DivergedError(f"The bound stopped being finite in sweep {sweep}; the posterior before it is kept.", state)
