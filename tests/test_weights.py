"""Weights of likes: a weight multiplies the like's part of the bound, and so what it adds to the sums."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import naive
from considerate.data.graph import Adjacency, Graph, leaf_splits, run_serially, transpose
from considerate.inference.hidden import Expected, Sampled, Terms
from considerate.inference.sums import CoordinateBlock, PassConstants, edge_sums, side_pass
from considerate.inference.sweep import InMemory, initial_state
from considerate.inference.updates import RowClasses, TreePass
from considerate.kernels import compiled, reference
from considerate.kernels.threads import LocalBackend
from considerate.parameters import FitPlan
from test_inference import (
    Problem,
    biases,
    check_row,
    kinds,
    library_bounds,
    planted,
    problem,
    reference_bounds,
    start,
    states,
    update_items,
)
from test_kernels import Case, check_case, random_case


def weigh(graph: Graph, weights: np.ndarray) -> Graph:
    """The graph whose likes have these weights, by user."""
    by_user = replace(graph.by_user, weights=weights.astype(np.float32))
    return replace(graph, by_user=by_user, by_item=transpose(by_user, graph.item_count))


def unequal(graph: Graph, seed: int = 3) -> Graph:
    """Weights from 0 to above 4; one in ten is 0."""
    random = np.random.default_rng(seed)
    weights = random.gamma(1.5, 1.0, graph.edges) * (random.random(graph.edges) > 0.1)
    return weigh(graph, weights / weights.mean())


# --- Kernels ---


class WeightedCase(Case):
    def reference_sums(self, row: int) -> reference.RowSums:
        liked = self.liked.between(row, row + 1)
        assert liked.weights is not None
        others = [*liked.indices, *self.unliked.row(row)]
        return reference.row_sums(
            self.row(self.own, row),
            [self.row(self.other, int(n)) for n in others],
            [True] * liked.edges + [False] * (len(others) - liked.edges),
            offset=self.step.offset,
            weight=self.step.weight,
            considered=[*liked.weights.tolist(), *[1.0] * (len(others) - liked.edges)],
        )


@pytest.mark.usefixtures("each_instruction_set")
@pytest.mark.parametrize("splits", [None, np.array([0, 40, 41, 97, 130])], ids=["in one go", "along a tree"])
@pytest.mark.parametrize("density", [0.05, 0.6], ids=["few edges", "many edges"])
@pytest.mark.parametrize("factors", [3, 8, 20, 40])
def test_sums_steps_and_the_bound_equal_the_reference(splits, density, factors):
    step = PassConstants(offset=-0.7, weight=1.5, tau=0.8, tau_bias=0.4, epsilon=0.6)
    case = random_case(7, 21, 130, factors, True, True, step, density)
    weights = np.random.default_rng(1).gamma(1.0, 1.5, case.liked.edges).astype(np.float32)
    weights[::9] = 0.0
    check_case(WeightedCase(**{**vars(case), "liked": replace(case.liked, weights=weights)}), splits)


def test_a_like_of_weight_two_is_the_like_twice():
    case = random_case(2, 9, 40, 12, True, True, PassConstants(-1.0, 1.3, 1.0, 1.0, 1.0), 0.5)
    twice = np.random.default_rng(4).integers(1, 4, case.liked.edges)
    starts = np.append(0, np.cumsum(twice))[case.liked.starts]
    repeated = Adjacency(starts, np.repeat(case.liked.indices, twice))
    weighted = replace(case.liked, weights=twice.astype(np.float32))
    everyone = np.arange(9, dtype=np.int32)

    def sums(liked: Adjacency) -> list[np.ndarray]:
        kernel_pass = side_pass(case.own, case.other, liked, Terms(case.unliked), case.step, own_is_user=True)
        found = edge_sums(kernel_pass, everyone, CoordinateBlock.of(12), (0, 40))
        return [*found.arrays(), np.array(compiled.edge_bound(kernel_pass, 0, 9))]

    for one, other in zip(sums(weighted), sums(repeated)):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-4)
    assert not np.allclose(sums(weighted)[0], sums(case.liked)[0], rtol=0.05)


@pytest.mark.parametrize("items", [50, 40_000], ids=["few columns", "buckets"])
def test_weights_go_with_their_edges(items):
    random = np.random.default_rng(0)
    pairs = random.integers(0, 300, 5000).astype(np.int32), random.integers(0, items, 5000).astype(np.int32)
    by_user = Adjacency.of_pairs(*pairs, 300, items)
    users = np.repeat(np.arange(300), by_user.degrees)
    by_user = replace(by_user, weights=(users + by_user.indices / 2**16).astype(np.float32))

    def check(edges: Adjacency, rows: np.ndarray, of_users: bool) -> None:
        users, items = (rows, edges.indices) if of_users else (edges.indices, rows)
        np.testing.assert_array_equal(edges.weights, (users + items / 2**16).astype(np.float32))

    by_item = transpose(by_user, items)
    check(by_item, np.repeat(np.arange(items), by_item.degrees), of_users=False)
    check(by_item.between(7, 19), np.repeat(np.arange(7, 19), by_item.degrees[7:19]), of_users=False)
    chosen = np.array([5, -1, 4, 250])
    check(by_user.take(chosen), np.repeat(chosen, by_user.take(chosen).degrees), of_users=True)
    kept = random.random(by_user.edges) < 0.3
    check(by_user.keep(kept), users[kept], of_users=True)
    assert by_user.keep(kept).edges == kept.sum()
    with pytest.raises(ValueError, match="begin elsewhere"):
        compiled.transpose_weights(by_user.indices, by_user.weights, by_item.starts + 1)


# --- The bound ---


@kinds
@biases
@pytest.mark.parametrize("after", [0, 8])
def test_the_bound_equals_brute_force(kind, user_bias, after):
    p = problem(kind, user_bias, 1.5, graph=unequal(planted()))
    state = states(p, after)[-1] if after else start(p)
    ours = p.runner.evaluate_bound(state)
    assert ours.total == pytest.approx(p.bound(state.posterior), rel=1e-5)
    once = replace(p, graph=planted()).runner.evaluate_bound(state)  # at the start all pairs are alike
    assert after == 0 or abs(once.total - ours.total) > 0.1


@kinds
@biases
def test_each_update_is_the_argmax_of_the_bound(kind, user_bias):
    p = problem(kind, user_bias, 1.5, graph=unequal(planted(8, 6)))
    q = states(p, 10)[-1].posterior
    taus, users, items = q.precisions, naive.Factor.of(q.users), naive.Factor.of(q.items)
    terms = p.estimator.user_terms(20, q, run_serially)
    stepped = p.runner.update_users(terms, q, 1.0).side
    new_users, shared, g, considered = naive.Factor.of(stepped), p.xi(users, items), p.g, p.considered

    def of_users(f: naive.Factor) -> float:
        return sum(naive.bound_terms(f, items, taus, g, considered, p.prior, shared).values())

    check_row(users, new_users, 5, of_users, user_bias)
    new_items = naive.Factor.of(update_items(p, replace(q, users=stepped)).side)
    xi = p.xi(new_users, items)
    xi = np.where(g > 0, xi, shared) if kind == "expected" else xi

    def of_items(f: naive.Factor) -> float:
        return sum(naive.bound_terms(new_users, f, taus, g, considered, p.prior, xi).values())

    check_row(items, new_items, 1, of_items, True)


@kinds
def test_the_bound_never_falls(kind):
    p = problem(kind, True, 1.5, graph=unequal(planted(60, 40, 3)), factors=3, precision_delay=5)
    bounds = library_bounds(p, states(p, 40))[9:]
    assert np.diff(bounds).min() > -2e-6 * abs(bounds[-1])
    assert bounds[-1] > bounds[0]


def test_wrong_updates_are_caught():
    """Likes whose weight is in one of the two sums alone."""
    p = problem("sampled", True, graph=unequal(planted()))

    def falls(change=None) -> float:
        return float(-np.diff(reference_bounds(p, 25, change=change)).min())

    def once(p: Problem, own, others, liked):
        return reference.row_sums(own, others, liked, offset=p.settings.offset, weight=p.settings.weight)

    def pull_alone(p, own, others, liked, sums):
        return replace(sums, P=once(p, own, others, liked).P)

    def precision_alone(p, own, others, liked, sums):
        return replace(sums, z=once(p, own, others, liked).z)

    assert falls() < 1e-9
    assert falls(pull_alone) > 1e-3
    assert falls(precision_alone) > 1e-3


# --- Bits ---


@kinds
@pytest.mark.parametrize("factors", [6, 70])
def test_weights_of_one_leave_every_bit_as_it_is(kind, factors):
    graph = planted(60, 40, 3)
    settings = FitPlan(factors=factors, negatives=1.5)

    def run(graph: Graph, threads: int) -> list[np.ndarray]:
        args = (graph.by_user, graph.user_blocks, graph.by_item.degrees.astype(float), 1.5)
        estimator = Sampled(*args, 5) if kind == "sampled" else Expected(*args, settings.offset, 3, run_serially)
        with LocalBackend(threads) as backend:
            sweeps = InMemory(graph, estimator, settings, backend).sweeps()
            done = [next(sweeps) for _ in range(4)][-1]
        q = done.state.posterior
        return [q.users.rows, *q.items.arrays(), np.array(done.bound.total)]

    plain = run(graph, 1)
    for one, other in zip(plain, run(weigh(graph, np.ones(graph.edges)), 1)):
        np.testing.assert_array_equal(one, other)
    weighted = run(unequal(graph), 1)
    assert not np.array_equal(plain[0], weighted[0])
    for one, other in zip(weighted, run(unequal(graph), 2)):
        np.testing.assert_array_equal(one, other)


@kinds
def test_rows_summed_together_have_the_bits_of_rows_summed_alone(kind):
    """As test_far_sides, where likes have weights."""
    random = np.random.default_rng(5)
    pairs = random.integers(0, 24_000, 30_000).astype(np.int32), random.integers(0, 60, 30_000).astype(np.int32)
    graph = unequal(Graph.from_pairs(*pairs, 24_000, 60, block_edges=3000))
    q = initial_state(graph, FitPlan(factors=20)).posterior
    q.users.mean[:] = 0.3 * random.standard_normal(q.users.mean.shape)
    args = (graph.by_user, graph.user_blocks, graph.by_item.degrees.astype(float), 1.0)
    estimator = Sampled(*args, 3) if kind == "sampled" else Expected(*args, 0.0, 8, run_serially)
    step = PassConstants(0.0, 1.0, 10.0, 1.0, 0.7)
    users_pass = side_pass(
        q.users, q.items, graph.by_user, estimator.user_terms(1, q, run_serially), step, own_is_user=True
    )
    compiled.edge_bound(users_pass, 0, 24_000)  # which makes alpha
    terms, leaves = estimator.item_terms(1, q, run_serially), leaf_splits(graph.user_blocks)
    kernel_pass = side_pass(q.items, q.users, graph.by_item, terms, step, own_is_user=False, splits=leaves)
    everyone = np.arange(60, dtype=np.int32)
    classes = RowClasses([everyone], everyone[:0], [])
    alone, by_parts = (
        TreePass(kernel_pass, kernel_pass, leaves, kind == "expected", far).update(q.items, classes, run_serially)
        for far in (False, True)
    )
    np.testing.assert_array_equal(by_parts.side.rows, alone.side.rows)
