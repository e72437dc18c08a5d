"""The updates of Algorithm 1 against the bound that they climb, and the bound against brute force.

The graph has planted clusters: on a small unstructured one everything is pruned to zero and wrong updates pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy import optimize

from considerate import Recommender
from considerate.data.graph import Graph, run_serially
from considerate.errors import DivergedError
from considerate.fitting.session import make_estimator, make_popularity
from considerate.inference.hidden import Estimator, Expected, Observed, Sampled, popularity_weights, user_offset
from considerate.inference.hidden.groups import FREEZE_AFTER
from considerate.inference.plan import FitPlan
from considerate.inference.posterior import Gamma, Posterior, Precisions, Side
from considerate.inference.schedule import StepSize
from considerate.inference.sweep import InMemory, PrecisionStep, State, initial_state, update_precisions
from considerate.inference.updates import Moments, SideUpdate, update_precision
from considerate.kernels import reference
from considerate.kernels.threads import LocalBackend
from tests.helpers import naive

BACKEND = LocalBackend(1)


def planted(users: int = 16, items: int = 12, clusters: int = 2, seed: int = 0, noise: float = 0.08) -> Graph:
    """Users like most items of their own cluster, and few others; some like more than others do."""
    random = np.random.default_rng(seed)
    same = (np.arange(users)[:, None] * clusters // users) == (np.arange(items) * clusters // items)
    liked = random.random((users, items)) < np.where(same, random.uniform(0.5, 0.95, (users, 1)), noise)
    liked[np.arange(users), np.arange(users) * items // users] = True
    user, item = np.nonzero(liked)
    return Graph.from_pairs(user.astype(np.int32), item.astype(np.int32), users, items, block_edges=20)


class FixedDraw(Observed):
    """The same H in every sweep, with the steps of one that is drawn."""

    deterministic = False


@dataclass(frozen=True)
class Problem:
    """A graph, its estimator, and what brute force needs to know of both."""

    graph: Graph
    estimator: Estimator
    settings: FitPlan
    user_offset: np.ndarray | None = None  # of users who run out of items

    @property
    def runner(self) -> InMemory:
        return InMemory(self.graph, self.estimator, self.settings, BACKEND, user_offset=self.user_offset)

    @property
    def offsets(self) -> np.ndarray:
        """The offset of each user's logits."""
        extra = 0.0 if self.user_offset is None else self.user_offset.astype(float)
        return np.broadcast_to(self.settings.offset + extra, self.graph.user_count)

    @property
    def prior(self) -> naive.Prior:
        s = self.settings
        return naive.Prior(self.offsets, s.likelihood_weight, s.prior_shape, s.prior_rate)

    @property
    def g(self) -> np.ndarray:
        return naive.likes(self.graph)

    @property
    def considered(self) -> np.ndarray:
        """h, or E[h] as the last pass over the users left it, and of likes their weights."""
        if isinstance(self.estimator, Expected):
            return naive.counted(naive.expected_considered(self.estimator), self.graph)
        return naive.counted(self.g + naive.dense(self.estimator.by_user, self.graph.item_count), self.graph)

    def xi(self, users: naive.Factor, items: naive.Factor) -> np.ndarray:
        """At their best for these factors: one for a pair, or shared in a group."""
        _, square = naive.logit_moments(users, items, self.offsets)
        if isinstance(self.estimator, Expected):
            return naive.shared_xi(square, self.g, self.considered, self.estimator.grouping.group_of_item)
        return naive.best_xi(square)

    def bound(self, q: Posterior) -> float:
        users, items = naive.Factor.of(q.users), naive.Factor.of(q.items)
        return naive.bound(q, self.g, self.considered, self.prior, self.xi(users, items))


def problem(kind: str, user_bias: bool = False, weight: float = 1.0, graph: Graph | None = None, **changes) -> Problem:
    graph = graph or planted()
    negatives = changes.pop("negatives", 1.5)
    settings = FitPlan.of_paper(
        **{
            "factors": 2,
            "negatives": negatives,
            "likelihood_weight": weight,
            "user_bias": user_bias,
            "precision_delay": 3,
            **changes,
        }
    )
    weights = popularity_weights(graph.by_item.degrees, 1.0)
    extra = user_offset(graph.by_user, weights, settings)
    if kind == "expected":
        how = weights, negatives, settings.offset, 3, run_serially
        estimator: Estimator = Expected(graph.by_user, graph.user_blocks, *how, user_offset=extra)
    else:
        drawn = Sampled(graph.by_user, graph.user_blocks, weights, negatives, 5).draw(1)
        estimator = FixedDraw(drawn, graph.item_count, run_serially)
    return Problem(graph, estimator, settings, extra)


def start(p: Problem) -> State:
    """The library's start, but for precisions of 1: at 10, so small a graph is pruned before anything is learned."""
    state = initial_state(p.graph, p.settings)
    taus = state.posterior.precisions
    user, item = (Gamma(one.shape, one.shape) for one in (taus.user, taus.item))
    return replace(state, posterior=replace(state.posterior, precisions=replace(taus, user=user, item=item)))


def states(p: Problem, count: int, epsilon: float = 1.0, state: State | None = None) -> list[State]:
    """The state at the start and after each of so many sweeps, all at one step size."""
    state = state or start(p)
    state = replace(state, step_size=StepSize(delay=10**9, epsilon=epsilon))
    found = [state]
    for done in p.runner.sweeps(state):
        assert done.epsilon == (1.0 if p.estimator.deterministic else epsilon)
        found.append(done.state)
        if len(found) > count:
            return found
    raise AssertionError


def library_bounds(p: Problem, found: list[State]) -> np.ndarray:
    return np.array([p.runner.evaluate_bound(state).total for state in found])


def update_items(p: Problem, q: Posterior, sweep: int = 20) -> SideUpdate:
    terms = p.estimator.item_terms(sweep, q, run_serially)
    return p.runner.items_pass(terms, q).update(q.items, p.runner.item_classes(), run_serially)


kinds = pytest.mark.parametrize("kind", ["sampled", "expected"])
biases = pytest.mark.parametrize("user_bias", [False, True])
weights = pytest.mark.parametrize("weight", [1.0, 2.0])


def test_the_planted_clusters_are_found():
    """Or none of the tests below would mean anything."""
    for kind in ("sampled", "expected"):
        q = states(problem(kind), 30)[-1].posterior
        logit = q.users.mean @ q.items.mean.T
        same = (np.arange(16)[:, None] * 2 // 16) == (np.arange(12) * 2 // 12)
        assert logit[same].mean() > 0.8
        assert logit[~same].mean() < -0.8


# --- The bound ---


@kinds
@biases
@weights
@pytest.mark.parametrize("after", [0, 2, 12])
def test_the_bound_equals_brute_force_term_by_term(kind, user_bias, weight, after):
    p = problem(kind, user_bias, weight)
    state = states(p, after)[-1] if after else start(p)
    ours = p.runner.evaluate_bound(state)
    q = state.posterior
    users, items = naive.Factor.of(q.users), naive.Factor.of(q.items)
    brute = naive.bound_terms(users, items, q.precisions, p.g, p.considered, p.prior, p.xi(users, items))
    assert ours.terms().keys() == brute.keys()
    for name, value in brute.items():
        assert ours.terms()[name] == pytest.approx(value, rel=1e-5, abs=1e-4), name
    assert ours.total == pytest.approx(sum(brute.values()), rel=1e-5)
    assert (brute["user_biases"] != 0.0) == user_bias
    done = next(p.runner.sweeps(state))
    assert done.bound == ours, "a sweep reports the bound of the state that it started from"


@pytest.mark.slow
@kinds
@pytest.mark.parametrize("item_bias", [False, True])
@pytest.mark.parametrize(("prior_shape", "prior_rate", "widest_gap"), [(3.0, 2.0, 0.7), (60.0, 6.0, 0.1)])
def test_the_bound_is_below_log_evidence(kind, item_bias, prior_shape, prior_rate, widest_gap):
    """K = 1, two users, two items: log p(G | H) by quadrature over vectors, biases and precisions.

    The gap is small enough that a constant forgotten in any term (log 2 pi / 2 is 0.92) would show.
    """
    graph = Graph.from_pairs(np.array([0, 1], np.int32), np.array([0, 1], np.int32), 2, 2)
    changes = {"factors": 1, "item_bias": item_bias, "prior_shape": prior_shape, "prior_rate": prior_rate}
    p = problem(kind, graph=graph, negatives=1.0, precision_delay=0, **changes)
    bounds = library_bounds(p, states(p, 60))
    assert p.considered.min() == pytest.approx(1.0), "all four pairs were considered"
    evidence = naive.log_evidence(p.g, np.ones((2, 2)), p.prior, item_bias=item_bias)
    coarser = naive.log_evidence(p.g, np.ones((2, 2)), p.prior, item_bias=item_bias, points=14, tau_points=9)
    assert evidence == pytest.approx(coarser, abs=2e-3), "the quadrature has converged"
    assert (bounds < evidence).all()
    assert evidence - bounds[-1] < widest_gap


# --- Monotone ---


@biases
@weights
@pytest.mark.parametrize("epsilon", [1.0, 0.5, 0.1])
def test_with_h_fixed_the_bound_never_falls(user_bias, weight, epsilon):
    p = problem("sampled", user_bias, weight)
    bounds = library_bounds(p, states(p, 60, epsilon))
    assert np.diff(bounds).min() > -2e-6 * abs(bounds[-1])
    assert bounds[-1] > bounds[0] + 3.0


@biases
@weights
def test_in_expected_mode_the_bound_rises_once_the_groups_are_frozen(user_bias, weight):
    p = problem("expected", user_bias, weight, graph=planted(60, 40, 3), factors=3, precision_delay=5)
    found = states(p, 60)
    groups = p.estimator.grouping.group_of_item.copy()
    bounds = np.array([p.bound(state.posterior) for state in found[9:30]])  # brute force, at the frozen groups
    assert np.diff(bounds).min() > -2e-6 * abs(bounds[-1])
    ours = library_bounds(p, found[9:])
    assert np.diff(ours).min() > -2e-6 * abs(ours[-1])
    assert ours[-1] > ours[0]
    np.testing.assert_array_equal(p.estimator.grouping.group_of_item, groups)
    assert not p.estimator.settled(FREEZE_AFTER)
    assert p.estimator.settled(FREEZE_AFTER + 1)


# Sweeps by the reference, in which the updates can be made wrong.

Change = Callable[[reference.Row, list[reference.Row], list[bool], reference.RowSums], reference.RowSums]


def as_rows(side: Side) -> list[reference.Row]:
    bias, variance = side.biases
    return [
        reference.Row(
            side.mean[i].astype(np.float64), side.variance[i].astype(np.float64), float(bias[i]), float(variance[i])
        )
        for i in range(len(side))
    ]


def reference_side(p: Problem, own, other, taus: tuple[Gamma, Gamma | None], of_user: bool, epsilon, change):
    g, h = (p.g, p.considered) if of_user else (p.g.T, p.considered.T)
    new = []
    offsets = np.broadcast_to(p.offsets[:, None], p.g.shape) if of_user else np.tile(p.offsets, (len(own), 1))
    for row, mine in enumerate(own):
        edges = np.flatnonzero(h[row])
        others = [replace(other[n], bias=other[n].bias + offsets[row, n]) for n in edges]
        liked = [bool(g[row, n]) for n in edges]
        about = {"likelihood_weight": p.settings.likelihood_weight, "considered": h[row, edges]}
        sums = reference.row_sums(mine, others, liked, **about)
        if change is not None:
            sums = change(p, mine, others, liked, sums)
        mean, variance = reference.recover_factorised(*reference.natural_step(mine, sums, taus[0].mean, epsilon))
        bias = (0.0, 0.0) if taus[1] is None else reference.bias_step(mine, sums, taus[1].mean, epsilon)
        new.append(reference.Row(mean, variance, *bias))
    return new


def reference_bounds(p: Problem, count: int, epsilon: float = 1.0, change=None, at_once: bool = False) -> np.ndarray:
    """The brute-force bound along sweeps of the reference, the precisions held."""
    q = start(p).posterior
    random = np.random.default_rng(2)
    users, items, taus = as_rows(q.users), as_rows(q.items), q.precisions
    users = [replace(row, mean=random.normal(0, 0.1, len(row.mean))) for row in users]

    def factor(rows: list[reference.Row]) -> naive.Factor:
        return naive.Factor(
            np.array([r.mean for r in rows]),
            np.array([r.variance for r in rows]),
            np.array([r.bias for r in rows]),
            np.array([r.bias_variance for r in rows]),
        )

    def bound() -> float:
        return sum(naive.bound_terms(factor(users), factor(items), taus, p.g, p.considered, p.prior).values())

    bounds = [bound()]
    for _ in range(count):
        old = users
        users = reference_side(p, users, items, (taus.user, taus.user_bias), True, epsilon, change)
        items = reference_side(p, items, old if at_once else users, (taus.item, taus.item_bias), False, epsilon, change)
        bounds.append(bound())
    return np.array(bounds)


def without_variance(p, own, others, liked, sums):
    """E[v v'] taken for E[v] E[v]'."""
    P = np.zeros_like(sums.P)
    for other in others:
        _, squared = reference.logit_moments(
            own.mean,
            own.variance,
            other.mean,
            other.variance,
            own.bias + other.bias + p.settings.offset,
            own.bias_variance + other.bias_variance,
        )
        twice = 2 * float(reference.logistic_curvature(np.sqrt(squared)))
        P += p.settings.likelihood_weight * twice * np.outer(other.mean, other.mean)
    return replace(sums, P=P)


def wrong_sign_of_bias(p, own, others, liked, sums):
    """+ 2 lambda E[b] in z, where it is subtracted."""
    z = sums.z.copy()
    for other in others:
        bias = own.bias + other.bias + p.settings.offset
        _, squared = reference.logit_moments(
            own.mean, own.variance, other.mean, other.variance, bias, own.bias_variance + other.bias_variance
        )
        z += (
            p.settings.likelihood_weight * 4 * float(reference.logistic_curvature(np.sqrt(squared))) * bias * other.mean
        )
    return replace(sums, z=z)


@pytest.mark.slow
@biases
@weights
def test_wrong_updates_are_caught(user_bias, weight):
    p = problem("sampled", user_bias, weight, expected_offsets=False)  # here each of them makes the bound fall
    right = reference_bounds(p, 25)
    assert np.diff(right).min() > -1e-9
    assert right[-1] > right[0] + 3.0

    def falls(**wrong) -> float:
        return float(-np.diff(reference_bounds(p, 25, **wrong)).min())

    assert falls(change=without_variance) > 1e-3
    assert falls(change=wrong_sign_of_bias) > 1e-3
    assert falls(at_once=True) > 1e-3


# --- Each update is the argmax on its coordinates ---


def numeric_argmax(value: Callable[[np.ndarray], float], start: np.ndarray) -> np.ndarray:
    """BFGS, twice, from the old values."""
    for _ in range(2):
        found = optimize.minimize(lambda x: -value(x), start, method="BFGS", jac="3-point", options={"gtol": 1e-7})
        start = found.x
    return start


def check_row(old: naive.Factor, new: naive.Factor, row: int, value: Callable[[naive.Factor], float], bias: bool):
    """The vector's step and the bias's step of one row, each with everything else at its old value."""
    factors = old.mean.shape[1]

    def of_vector(x: np.ndarray) -> float:
        return value(old.with_row(row, mean=x[:factors], variance=np.exp(x[factors:])))

    best = numeric_argmax(of_vector, np.concatenate([old.mean[row], np.log(old.variance[row])]))
    np.testing.assert_allclose(new.mean[row], best[:factors], rtol=2e-3, atol=3e-4)
    np.testing.assert_allclose(new.variance[row], np.exp(best[factors:]), rtol=2e-3)
    if bias:
        best = numeric_argmax(
            lambda x: value(old.with_row(row, bias=x[0], bias_variance=math.exp(x[1]))),
            np.array([old.bias[row], math.log(old.bias_variance[row])]),
        )
        assert new.bias[row] == pytest.approx(best[0], rel=2e-3, abs=3e-4)
        assert new.bias_variance[row] == pytest.approx(math.exp(best[1]), rel=2e-3)


@kinds
@biases
@weights
def test_each_update_is_the_argmax_of_the_bound(kind, user_bias, weight):
    p = problem(kind, user_bias, weight, graph=planted(8, 6))
    state = states(p, 10)[-1]
    q, taus = state.posterior, state.posterior.precisions
    users, items = naive.Factor.of(q.users), naive.Factor.of(q.items)

    terms = p.estimator.user_terms(20, q, run_serially)
    new_users = naive.Factor.of(p.runner.update_users(terms, q, 1.0).side)
    xi, g, considered = p.xi(users, items), p.g, p.considered
    for row in (0, 5):
        check_row(
            users,
            new_users,
            row,
            lambda f: sum(naive.bound_terms(f, items, taus, g, considered, p.prior, xi).values()),
            user_bias,
        )

    q = replace(q, users=p.runner.update_users(terms, q, 1.0).side)
    new_items = naive.Factor.of(update_items(p, q).side)
    shared = xi
    xi = p.xi(new_users, items)
    if kind == "expected":  # groups keep the xi of the users' pass; liked pairs have their own
        xi = np.where(g > 0, xi, shared)
    for row in (1, 4):
        check_row(
            items,
            new_items,
            row,
            lambda f: sum(naive.bound_terms(new_users, f, taus, g, considered, p.prior, xi).values()),
            True,
        )


@kinds
@biases
def test_the_precisions_update_is_the_argmax_of_the_bound(kind, user_bias):
    p = problem(kind, user_bias, prior_shape=0.5, prior_rate=0.3)
    state = states(p, 6)[-1]
    q = state.posterior
    users, items = naive.Factor.of(q.users), naive.Factor.of(q.items)
    counts = (p.graph.user_count, p.graph.item_count)
    step = PrecisionStep(counts, p.settings, 1.0)
    new = update_precisions(q.precisions, (Moments.of(q.users), Moments.of(q.items)), step)
    assert (new.user_bias is not None) == user_bias
    for name in ("user", "item", "user_bias", "item_bias"):
        gamma = getattr(new, name)
        if gamma is None:
            continue

        def value(x: np.ndarray, name: str = name) -> float:
            taus = replace(q.precisions, **{name: Gamma(math.exp(x[0]), math.exp(x[1]))})
            return sum(naive.bound_terms(users, items, taus, p.g, p.considered, p.prior).values())

        old = getattr(q.precisions, name)
        best = np.exp(numeric_argmax(value, np.log([old.shape, old.rate])))
        np.testing.assert_allclose([gamma.shape, gamma.rate], best, rtol=1e-3)


def test_the_rate_is_blended_and_the_first_blend_is_between_like_scales():
    old = Gamma(5.0, 10.0)
    new = update_precision(old, 1.0, 2.0, 8, 6.0, 0.25)
    assert new.shape == 5.0
    assert new.rate == pytest.approx(0.25 * (2.0 + 3.0) + 0.75 * 10.0)
    p = problem("sampled", True)
    taus = initial_state(p.graph, p.settings).posterior.precisions
    assert taus.means() == pytest.approx({"user": 10.0, "item": 10.0, "user_bias": 1.0, "item_bias": 1.0})
    step = PrecisionStep((16, 12), p.settings, 1.0)
    after = update_precisions(taus, (Moments(1, 0, 1), Moments(1, 0, 1)), step)
    for name in ("user", "item", "user_bias", "item_bias"):
        assert getattr(after, name).shape == getattr(taus, name).shape


def test_precisions_wait_for_their_delay():
    p = problem("sampled", precision_delay=4)
    means = [state.posterior.precisions.user.mean for state in states(p, 6, state=initial_state(p.graph, p.settings))]
    assert means[:5] == pytest.approx([10.0] * 5)
    assert means[5] != pytest.approx(10.0)


# --- Fixed points and steps ---


def coordinate_wise(p: Problem, count: int) -> tuple[naive.Factor, naive.Factor]:
    """One coordinate u_mk at a time, its xi's renewed after each: slow, and without any linear system."""
    q = start(p).posterior
    users, items, taus = naive.Factor.of(q.users), naive.Factor.of(q.items), q.precisions
    g, h, rho = p.g, p.considered, p.settings.likelihood_weight

    def side(own: naive.Factor, others: naive.Factor, tau: float, tau_bias: float | None, g, h, offset) -> naive.Factor:
        for row in range(len(own.mean)):
            other = replace(others, bias=others.bias + offset[row])
            for k in [*range(own.mean.shape[1]), *([-1] if tau_bias is not None else [])]:
                one = naive.Factor(own.mean[[row]], own.variance[[row]], own.bias[[row]], own.bias_variance[[row]])
                mean, square = naive.logit_moments(one, other, 0.0)
                twice = 2 * naive.curvature(np.sqrt(square[0]))
                if k >= 0:
                    v, vs = other.mean[:, k], other.variance[:, k]
                    rest = mean[0] - own.mean[row, k] * v
                    precision = tau + rho * (h[row] * twice * (v**2 + vs)).sum()
                    z = rho * (h[row] * (g[row] - 0.5 - twice * rest) * v).sum()
                    own.mean[row, k], own.variance[row, k] = z / precision, 1 / precision
                else:
                    precision = tau_bias + rho * (h[row] * twice).sum()
                    z = rho * (h[row] * (g[row] - 0.5 - twice * (mean[0] - own.bias[row]))).sum()
                    own.bias[row], own.bias_variance[row] = z / precision, 1 / precision
        return own

    offset = np.broadcast_to(p.offsets[:, None], g.shape)
    for _ in range(count):
        users = side(users, items, taus.user.mean, taus.user_bias and taus.user_bias.mean, g, h, offset)
        items = side(items, users, taus.item.mean, taus.item_bias and taus.item_bias.mean, g.T, h.T, offset.T)
    return users, items


@biases
def test_bulk_and_coordinate_wise_updates_reach_one_fixed_point(user_bias):
    """Signs and rotations of the vectors are free; logits and the bound are not."""
    p = problem("sampled", user_bias, weight=2.0, graph=planted(10, 8), factors=1, precision_delay=10**9)
    state = states(p, 400)[-1]
    q = state.posterior
    users, items = coordinate_wise(p, 150)
    bulk = q.users.mean @ q.items.mean.T + q.users.biases[0][:, None] + q.items.biases[0]
    slow = users.mean @ items.mean.T + users.bias[:, None] + items.bias
    assert np.abs(q.users.mean).max() > 0.1, "not pruned"
    np.testing.assert_allclose(bulk, slow, atol=2e-3)
    np.testing.assert_allclose(q.users.variance, users.variance, rtol=1e-3)
    value = sum(naive.bound_terms(users, items, q.precisions, p.g, p.considered, p.prior).values())
    assert p.bound(q) == pytest.approx(value, rel=1e-5)


@biases
def test_a_step_of_size_one_is_the_exact_answer_and_forgets_the_start(user_bias):
    """Given everything else, and xi from the old values: the solution of P mu = z with the precision diag(P)."""
    p = problem("sampled", user_bias)
    q = states(p, 6)[-1].posterior
    new = p.runner.update_users(p.estimator.user_terms(1, q, run_serially), q, 1.0).side
    users, items = naive.Factor.of(q.users), naive.Factor.of(q.items)
    xi = p.xi(users, items)
    for row in range(p.graph.user_count):
        P, z, bias_P, bias_z = naive.row_sums(users, items, p.g, p.considered, p.prior, xi, row, of_user=True)
        P = P + q.precisions.user.mean * np.eye(2)
        np.testing.assert_allclose(new.mean[row], np.linalg.solve(P, z), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(new.variance[row], 1 / np.diag(P), rtol=1e-5)
        if user_bias:
            bias_P += q.precisions.user_bias.mean
            assert new.biases[0][row] == pytest.approx(bias_z / bias_P, rel=1e-4, abs=1e-5)
            assert new.biases[1][row] == pytest.approx(1 / bias_P, rel=1e-5)


@pytest.mark.parametrize("epsilon", [0.5, 0.1])
def test_smaller_steps_have_the_same_fixed_point(epsilon):
    """The old natural parameters are those of the factorised q; with the full z it would move."""
    p = problem("sampled", True, weight=2.0, precision_delay=10**9)
    settled = states(p, 300)[-1]
    after = states(p, 5, epsilon, settled)[-1]
    np.testing.assert_allclose(after.posterior.users.mean, settled.posterior.users.mean, atol=2e-4)
    np.testing.assert_allclose(after.posterior.items.rows, settled.posterior.items.rows, atol=2e-4)


def step_sizes(delay: int, count: int) -> np.ndarray:
    """epsilon of sweeps 1..count."""
    size, found = StepSize(delay), []
    for sweep in range(1, count + 1):
        found.append(size.epsilon)
        size = size.after(sweep)
    return np.array(found)


@pytest.mark.parametrize("delay", [0, 5, 10])
def test_step_sizes_of_algorithm_1(delay):
    sizes = step_sizes(delay, delay + 40)
    np.testing.assert_array_equal(sizes[: delay + 2], 1.0)
    np.testing.assert_allclose(sizes[delay + 2 : delay + 4], [0.746, 0.607], atol=5e-4)
    assert (np.diff(sizes[delay + 2 :]) < 0).all()


def test_step_sizes_obey_robbins_and_monro():
    """epsilon_t ~ t^-0.6: the sum grows like t^0.4 without end, that of the squares stays below a limit."""
    sizes = step_sizes(10, 200_000)
    t = np.arange(1, len(sizes) + 1)
    late = slice(20_000, None)
    slope = np.polyfit(np.log(t[late]), np.log(sizes[late]), 1)[0]
    assert slope == pytest.approx(-0.6, abs=0.01)
    # Over each doubling of t the sum gains 2^0.4 times what it gained before, and the squares 2^-0.2 times.
    last, before = slice(len(t) // 2, None), slice(len(t) // 4, len(t) // 2)
    assert sizes[last].sum() / sizes[before].sum() == pytest.approx(2**0.4, rel=0.01)
    assert (sizes[last] ** 2).sum() / (sizes[before] ** 2).sum() == pytest.approx(2**-0.2, rel=0.01)


def test_a_fit_uses_those_step_sizes_when_it_draws_and_none_when_it_does_not():
    for kind, expected in (("sampled", [1, 1, 1, 0.746, 0.607]), ("expected", [1] * 5)):
        p = problem(kind, step_delay=1)
        steps = p.runner.sweeps()
        assert [next(steps).epsilon for _ in range(5)] == pytest.approx(expected, abs=5e-4)


# --- When it goes wrong ---


@kinds
def test_values_that_are_not_finite_stop_with_a_cause_and_the_last_good_state(kind):
    p = problem(kind)
    good = states(p, 2)[-1]
    broken = Side(2, good.posterior.items.rows.copy(), *good.posterior.items.biases)
    broken.rows[3, 0] = np.inf
    state = replace(good, posterior=replace(good.posterior, items=broken))
    with pytest.raises(DivergedError, match=r"Sweep 3 gave user row \d+ .*not finite.*sweep 2 is kept") as caught:
        next(p.runner.sweeps(state))
    assert caught.value.last is state


def test_a_gigantic_weight_of_the_likelihood_is_named_as_the_cause():
    p = problem("sampled", weight=1e38)
    with pytest.raises(DivergedError, match="likelihood_weight") as caught:
        states(p, 50)
    last = caught.value.last
    assert isinstance(last, State)
    for side in (last.posterior.users, last.posterior.items):
        assert np.isfinite(side.rows).all()


def test_items_at_zero_would_stay_there_so_they_do_not_start_there():
    p = problem("sampled")
    first = initial_state(p.graph, p.settings)
    assert np.abs(first.posterior.items.mean).max() > 0.01
    nothing = Side.of(np.zeros((12, 2)), np.full((12, 2), 0.1), first.posterior.items.biases)
    stuck = replace(first, posterior=replace(first.posterior, items=nothing))
    assert not states(p, 3, state=stuck)[-1].posterior.items.mean.any()


@kinds
def test_every_number_of_factors_from_1_to_40_runs(kind):
    graph = planted(20, 15)
    for factors in range(1, 41):
        p = problem(kind, True, graph=graph, factors=factors, precision_delay=1)
        state = states(p, 3)[-1]
        for side in (state.posterior.users, state.posterior.items):
            assert np.isfinite(side.rows).all()
            assert (side.variance > 0).all()


@pytest.mark.parametrize("negatives", [1.0, 3.0])
def test_the_estimator_and_the_passes_have_one_offset(negatives):
    """-log c goes into the logit in two places, the closed-form sums and the edges."""
    graph = planted()
    plan = Recommender(hidden="expected", negatives=negatives, groups=8).plan()
    estimator = make_estimator(graph, plan, make_popularity(graph, plan, BACKEND).weights, BACKEND)
    assert estimator.grouping.offset == plan.offset
    assert estimator.grouping.offset == -math.log(negatives)


def test_precisions_of_clamped_biases_are_dropped():
    p = problem("sampled", user_bias=False)
    q = states(p, 5)[-1].posterior
    assert isinstance(q.precisions, Precisions)
    assert set(q.precisions.means()) == {"user", "item", "item_bias"}
    assert q.users.bias_mean is None
