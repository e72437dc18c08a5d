"""The compiled kernels against the reference, on every instruction set that this machine runs."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from considerate.data.graph import (
    Adjacency,
    Graph,
    add_along_tree,
    map_along_tree,
    row_blocks,
    run_serially,
    transpose,
)
from considerate.inference.hidden import Terms
from considerate.inference.posterior import Side
from considerate.inference.prior import Prior
from considerate.inference.sums import CoordinateBlock, PassConstants, edge_sums, side_pass
from considerate.inference.updates import Moments
from considerate.kernels import compiled, reference
from considerate.kernels.threads import LocalBackend
from tests.helpers import naive_draws
from tests.helpers.randomised import examples

INSTRUCTION_SETS = compiled.instruction_sets()
every_instruction_set = pytest.mark.parametrize("name", INSTRUCTION_SETS)


@contextmanager
def instruction_set(name: str) -> Iterator[None]:
    before = compiled.instruction_set()
    compiled.use_instruction_set(name)
    try:
        yield
    finally:
        compiled.use_instruction_set(before)


def test_the_baseline_is_always_there_and_others_are_refused():
    assert INSTRUCTION_SETS[-1] == "baseline"
    with pytest.raises(ValueError, match="does not run"):
        compiled.use_instruction_set("abacus")


# --- The logistic bound ---


@every_instruction_set
def test_logistic_functions_over_a_wide_range(name):
    xi = np.concatenate([[0.0], np.geomspace(1e-12, 1e4, 4000), np.linspace(0.39, 0.41, 201)])
    squared = (xi**2).astype(np.float32)
    with instruction_set(name):
        curvature, height = compiled.logistic(squared)
    exact = np.sqrt(squared.astype(np.float64))
    positive = exact > 1e-7
    expected = np.full(len(exact), 0.25)
    expected[positive] = np.tanh(exact[positive] / 2) / (2 * exact[positive])
    np.testing.assert_allclose(curvature, expected, rtol=6e-7)
    np.testing.assert_allclose(height, special.log_expit(exact) - exact / 2, rtol=4e-7)
    assert curvature[0] == 0.25
    assert height[0] == pytest.approx(-np.log(2), rel=2e-7)


def test_reference_curvature_is_smooth_where_its_two_forms_meet():
    xi = np.array([0.0, 1e-9, 0.9999e-4, 1.0001e-4, 1e-2, 1.0, 50.0, 1e4])
    with np.errstate(invalid="ignore"):
        paper = (special.expit(xi) - 0.5) / (2 * xi)
    paper[:2] = 0.125
    np.testing.assert_allclose(reference.logistic_curvature(xi), paper, rtol=1e-11)
    np.testing.assert_array_equal(reference.logistic_curvature(-xi), reference.logistic_curvature(xi))


# --- Sums and steps ---


@dataclass(frozen=True)
class Case:
    own: Side
    other: Side
    liked: Adjacency
    unliked: Adjacency
    step: PassConstants

    def row(self, side: Side, row: int) -> reference.Row:
        bias, variance = side.biases
        return reference.Row(
            side.mean[row].astype(np.float64),
            side.variance[row].astype(np.float64),
            float(bias[row]),
            float(variance[row]),
        )

    def reference_sums(self, row: int) -> reference.RowSums:
        edges = [(int(n), True) for n in self.liked.row(row)] + [(int(n), False) for n in self.unliked.row(row)]
        return reference.row_sums(
            self.row(self.own, row),
            [self.row(self.other, n) for n, _ in edges],
            [like for _, like in edges],
            offset=self.step.offset,
            likelihood_weight=self.step.likelihood_weight,
        )

    def prior_of(self, row: int) -> tuple[np.ndarray | float, np.ndarray | float, float, float]:
        """Mean and precision of a row's vector, and of its bias."""
        prior, factors = self.step.prior, self.own.factors
        return (
            0.0 if prior.mean is None else prior.mean[row, :factors].astype(np.float64),
            self.step.tau if prior.precision is None else prior.precision[row, :factors].astype(np.float64),
            0.0 if prior.bias_mean is None else float(prior.bias_mean[row]),
            self.step.tau_bias if prior.bias_precision is None else float(prior.bias_precision[row]),
        )

    def reading(self, splits: np.ndarray | None = None) -> compiled.Pass:
        terms = Terms(unliked=self.unliked)
        return side_pass(self.own, self.other, self.liked, terms, self.step, own_is_user=True, splits=splits)


def random_side(random: np.random.Generator, rows: int, factors: int, bias: bool, spread: float = 0.7) -> Side:
    mean = random.normal(0, spread, (rows, factors))
    variance = random.uniform(0.02, 0.6, (rows, factors))
    biases = (random.normal(0, spread, rows), random.uniform(0.02, 0.6, rows)) if bias else None
    return Side.of(mean, variance, biases)


def adjacency(matrix: np.ndarray) -> Adjacency:
    starts = np.concatenate([[0], np.cumsum(matrix.sum(axis=1))]).astype(np.int64)
    return Adjacency(starts, np.nonzero(matrix)[1].astype(np.int32))


def random_case(
    seed: int,
    rows: int,
    columns: int,
    factors: int,
    own_bias: bool,
    other_bias: bool,
    step: PassConstants,
    density: float,
) -> Case:
    random = np.random.default_rng(seed)
    considered = random.random((rows, columns)) < density
    liked = considered & (random.random((rows, columns)) < 0.5)
    return Case(
        random_side(random, rows, factors, own_bias),
        random_side(random, columns, factors, other_bias),
        adjacency(liked),
        adjacency(considered & ~liked),
        step,
    )


def packed(matrix: np.ndarray) -> np.ndarray:
    return matrix[np.tril_indices(len(matrix))]


def check_case(case: Case, splits: np.ndarray | None = None) -> None:
    """Sums, steps, bound and moments of every row against the reference."""
    factors, rows = case.own.factors, len(case.own)
    kernel_pass = case.reading(splits)
    sums = edge_sums(kernel_pass, np.arange(rows, dtype=np.int32), CoordinateBlock.of(factors), (0, len(case.other)))
    out = case.own.empty_like()
    bound, bad, moments = compiled.update_rows(kernel_pass, 0, rows, out.rows, out.bias_mean, out.bias_variance)
    assert bad == -1
    total = 0.0
    for row in range(rows):
        own, expected = case.row(case.own, row), case.reference_sums(row)
        scale = np.abs(expected.P).max() + 1e-3
        np.testing.assert_allclose(sums.second[row], packed(expected.P), rtol=1e-5, atol=2e-6 * scale)
        np.testing.assert_allclose(sums.first[row], expected.z, rtol=1e-5, atol=5e-6 * scale)
        np.testing.assert_allclose(sums.bias[row], [expected.bias_P, expected.bias_z], rtol=1e-5, atol=5e-6 * scale)
        centre, tau, bias_centre, tau_bias = case.prior_of(row)
        mean, variance = reference.recover_factorised(
            *reference.natural_step(own, expected, tau, case.step.epsilon, centre)
        )
        np.testing.assert_allclose(out.mean[row], mean, rtol=1e-4, atol=2e-5)
        np.testing.assert_allclose(out.variance[row], variance, rtol=2e-5)
        if case.own.has_bias:
            bias, bias_variance = reference.bias_step(own, expected, tau_bias, case.step.epsilon, bias_centre)
            assert out.biases[0][row] == pytest.approx(bias, rel=1e-4, abs=2e-5)
            assert out.biases[1][row] == pytest.approx(bias_variance, rel=2e-5)
        total += expected.bound
    assert bound == pytest.approx(total, rel=2e-6, abs=1e-6)
    start = out.rows.shape[1] // 2
    assert not out.rows[:, factors:start].any(), "padding stays zero"
    assert not out.rows[:, start + factors :].any()
    assert moments == pytest.approx(list(vars(Moments.of(out, case.step.prior)).values()), rel=1e-6, abs=1e-4)


steps = st.builds(
    PassConstants,
    offset=st.sampled_from([0.0, -1.0986, 0.7]),
    likelihood_weight=st.sampled_from([1.0, 0.5, 2.0]),
    tau=st.sampled_from([0.3, 3.0]),
    tau_bias=st.sampled_from([0.2, 2.0]),
    epsilon=st.sampled_from([1.0, 0.5, 0.1]),
)


@every_instruction_set
@examples(60)
@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(1, 11),
    columns=st.integers(1, 30),
    factors=st.sampled_from([1, 3, 7, 8, 20, 33]),
    own_bias=st.booleans(),
    other_bias=st.booleans(),
    density=st.sampled_from([0.0, 0.1, 0.5, 1.0]),  # empty rows, and rows that considered everything
    step=steps,
)
def test_rows_equal_the_reference(name, seed, rows, columns, factors, own_bias, other_bias, density, step):
    with instruction_set(name):
        check_case(random_case(seed, rows, columns, factors, own_bias, other_bias, step, density))


def random_prior(seed: int, rows: int, factors: int, given: tuple[bool, bool, bool, bool]) -> Prior:
    random = np.random.default_rng(seed)
    arrays = (
        random.normal(0, 1.0, (rows, factors)),
        random.uniform(0.2, 5.0, (rows, factors)),
        random.normal(0, 1.0, rows),
        random.uniform(0.2, 5.0, rows),
    )
    return Prior.of(*(array if wanted else None for array, wanted in zip(arrays, given)))


@every_instruction_set
@examples(40)
@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(1, 11),
    columns=st.integers(1, 30),
    factors=st.sampled_from([1, 3, 8, 20, 33]),
    density=st.sampled_from([0.0, 0.1, 0.5, 1.0]),  # rows of few edges, which are solved in the dual, and of many
    blocks=st.booleans(),  # sums along a tree: no row is solved in the dual
    step=steps,
    given_priors=st.tuples(*[st.booleans()] * 4),
)
def test_rows_with_priors_of_their_own_equal_the_reference(
    name, seed, rows, columns, factors, density, blocks, step, given_priors
):
    step = replace(step, prior=random_prior(seed, rows, factors, given_priors))
    case = random_case(seed, rows, columns, factors, True, True, step, density)
    with instruction_set(name):
        check_case(case, np.array([0, columns], np.int64) if blocks else None)


@every_instruction_set
def test_every_number_of_factors_from_1_to_40(name):
    with instruction_set(name):
        for factors in range(1, 41):
            check_case(random_case(factors, 3, 12, factors, True, True, PassConstants(-0.5, 1.5, 1.0, 1.0, 0.7), 0.8))


@every_instruction_set
@pytest.mark.parametrize("blocks", [1, 7])
def test_a_vertex_of_huge_degree_beside_empty_ones(name, blocks):
    """5,000 edges: several leaves of 2,048, in each block of the other side where it has blocks."""
    columns, factors = 5000, 5
    random = np.random.default_rng(1)
    liked = np.zeros((3, columns), bool)
    liked[1] = random.random(columns) < 0.6
    unliked = np.zeros_like(liked)
    unliked[1] = ~liked[1]
    unliked[2, 3] = True
    own, other = random_side(random, 3, factors, True), random_side(random, columns, factors, True)
    case = Case(own, other, adjacency(liked), adjacency(unliked), PassConstants(-0.3, 1.0, 1.0, 1.0, 1.0))
    with instruction_set(name):
        check_case(case, np.linspace(0, columns, blocks + 1).astype(np.int64) if blocks > 1 else None)


def test_a_row_without_edges_gets_the_prior():
    case = random_case(0, 4, 6, 3, True, True, PassConstants(-1.0, 2.0, 4.0, 5.0, 1.0), 0.0)
    out = case.own.empty_like()
    compiled.update_rows(case.reading(), 0, 4, out.rows, out.bias_mean, out.bias_variance)
    assert not out.mean.any()
    np.testing.assert_array_equal(out.variance, np.float32(0.25))
    np.testing.assert_array_equal(out.biases[1], np.float32(0.2))


@every_instruction_set
def test_sums_over_1e5_edges_keep_float32s_accuracy(name):
    """Adding one edge after the other in float32 would lose some ten times as much, so this can fail."""
    edges, factors = 100_000, 3
    random = np.random.default_rng(5)
    other = Side.of(random.normal(1.0, 0.2, (edges, factors)), random.uniform(0.1, 0.2, (edges, factors)))
    own = Side.of(np.full((1, factors), 0.3), np.full((1, factors), 0.1))
    everything = Adjacency(np.array([0, edges], np.int64), np.arange(edges, dtype=np.int32))
    nothing = Adjacency(np.zeros(2, np.int64), np.empty(0, np.int32))
    case = Case(own, other, nothing, everything, PassConstants(-0.5, 1.0, 1.0, 1.0, 1.0))
    with instruction_set(name):
        sums = edge_sums(case.reading(), np.zeros(1, np.int32), CoordinateBlock.of(factors), (0, edges))

    u, us = own.mean[0].astype(np.float64), own.variance[0].astype(np.float64)
    v, vs = other.mean.astype(np.float64), other.variance.astype(np.float64)
    _, squared = reference.logit_moments(u, us, v, vs, -0.5, 0.0)
    twice = 2 * reference.logistic_curvature(np.sqrt(squared))
    each_P = twice[:, None, None] * (v[:, :, None] * v[:, None, :] + vs[:, :, None] * np.eye(factors))
    each_z = (-0.5 + 0.5 * twice)[:, None] * v
    exact = np.concatenate([packed(each_P.sum(axis=0)), each_z.sum(axis=0)])
    ours = np.concatenate([sums.second[0], sums.first[0]])
    sequential = np.concatenate(
        [
            packed(np.cumsum(each_P.astype(np.float32), axis=0, dtype=np.float32)[-1]),
            np.cumsum(each_z.astype(np.float32), axis=0, dtype=np.float32)[-1],
        ]
    )
    error = np.abs(ours / exact - 1).max()
    naive_error = np.abs(sequential / exact - 1).max()
    assert error < 1e-6
    assert naive_error > 5 * error
    assert naive_error > 2e-6


@every_instruction_set
@pytest.mark.parametrize("weights", [(1e14, 1e29), (1e29, 1e14)])
def test_the_logarithm_of_variances_whose_product_is_not_a_double(name, weights):
    """Eight rows of variances of about 1e-15, eight of 1e-30: a product of sixteen factors is 0 in float64."""
    case = random_case(6, 16, 40, 8, True, True, PassConstants(0.0, 1.0, 1.0, 1.0, 1.0), 1.0)
    starts, items = np.arange(0, 641, 40), np.tile(np.arange(40, dtype=np.int32), 16)
    everything = Adjacency(starts, items, np.repeat(np.array(weights, np.float32), 320))
    kernel_pass = side_pass(case.own, case.other, everything, Terms(), case.step, own_is_user=True)
    out = case.own.empty_like()
    with instruction_set(name):
        _, bad, moments = compiled.update_rows(kernel_pass, 0, 16, *out.arrays())
    assert bad == -1
    assert moments == pytest.approx(list(vars(Moments.of(out)).values()), rel=1e-6)


@every_instruction_set
def test_rows_that_are_not_finite_are_named(name):
    case = random_case(3, 20, 9, 4, True, True, PassConstants(0.0, 1.0, 1.0, 1.0, 1.0), 0.7)
    case.own.rows[13, 1] = np.nan
    out = case.own.empty_like()
    with instruction_set(name):
        _, bad, _ = compiled.update_rows(case.reading(), 0, 20, out.rows, out.bias_mean, out.bias_variance)
    assert bad == 13


def test_instruction_sets_agree_to_rounding():
    case = random_case(4, 50, 40, 20, True, True, PassConstants(-1.0, 1.0, 1.0, 1.0, 1.0), 0.6)
    answers = []
    for name in INSTRUCTION_SETS:
        out = case.own.empty_like()
        with instruction_set(name):
            compiled.update_rows(case.reading(), 0, 50, out.rows, out.bias_mean, out.bias_variance)
        answers.append(out.rows)
    for other in answers[1:]:
        np.testing.assert_allclose(other, answers[0], rtol=1e-4, atol=1e-5)


# --- Draws ---


def compiled_draws(seed, sweep, rate, weights, liked: Adjacency) -> tuple[Adjacency, int, int]:
    table = compiled.alias_table(weights)
    counts = np.zeros(liked.rows + 1, np.int64)
    key = (seed, sweep, rate, weights, *table, liked.starts, liked.indices, 0, liked.rows)
    compiled.count_negatives(*key, counts[1:])
    starts = np.cumsum(counts)
    out = np.full(int(starts[-1]), -1, np.int32)
    rejections, from_tree, _ = compiled.draw_negatives(*key, starts, out)
    return Adjacency(starts, out), rejections, from_tree


def assert_draws_equal(seed, sweep, rate, weights, liked: Adjacency) -> tuple[int, int]:
    drawn, rejections, from_tree = compiled_draws(seed, sweep, rate, weights, liked)
    thresholds, aliases = compiled.alias_table(weights)
    for user in range(liked.rows):
        expected = naive_draws.draw_negatives(
            seed, sweep, rate, weights, thresholds, aliases, user, liked.row(user).tolist()
        )
        assert drawn.row(user).tolist() == expected
    return rejections, from_tree


@examples(150)
@given(
    seed=st.integers(0, 2**64 - 1),
    sweep=st.integers(0, 1000),
    rate=st.sampled_from([0.3, 1.0, 2.5, 7.0]),
    users=st.integers(1, 6),
    items=st.integers(1, 200),
    density=st.sampled_from([0.02, 0.3, 0.95, 1.0]),
    zeros=st.sampled_from([0.0, 0.3]),
    skew=st.sampled_from([0.0, 1.0, 4.0]),
)
def test_draws_equal_the_reference_bit_for_bit(seed, sweep, rate, users, items, density, zeros, skew):
    random = np.random.default_rng([seed % 1000, items])
    weights = (1.0 + np.arange(items)) ** skew * (random.random(items) >= zeros)
    weights[0] = 1.0  # some item must have weight
    assert_draws_equal(seed, sweep, rate, weights, adjacency(random.random((users, items)) < density))


def test_draws_equal_the_reference_where_the_tree_is_used():
    """Users who like nearly all of the mass: rejection stalls, and the tree takes over in the middle."""
    random = np.random.default_rng(0)
    weights = np.concatenate([np.full(400, 1e6), random.uniform(0.5, 2.0, 450), np.zeros(7)])
    liked = np.zeros((12, len(weights)), bool)
    liked[:, :400] = True
    liked[::3, 100:] = False  # every third likes a part only, and needs no tree
    for sweep in range(3):
        rejections, from_tree = assert_draws_equal(9, sweep, 0.9, weights, adjacency(liked))
        assert from_tree > 1000
        assert rejections > 100


def test_a_user_after_one_who_used_the_tree_is_not_changed_by_it():
    weights = np.concatenate([np.full(100, 1e5), np.ones(100)])
    liked = np.zeros((2, 200), bool)
    liked[:, :100] = True
    both, _, from_tree = compiled_draws(1, 1, 0.5, weights, adjacency(liked))
    assert from_tree > 50
    table = compiled.alias_table(weights)
    assert both.row(1).tolist() == naive_draws.draw_negatives(1, 1, 0.5, weights, *table, 1, list(range(100)))


@pytest.mark.parametrize(
    "weights",
    [
        np.array([1.0]),
        np.array([1.0, 2.0, 3.0, 4.0]),
        np.array([0.0, 5.0, 0.0, 1e-9, 3.0]),
        np.array([0.0, 0.0, 2.0]),
        np.arange(1000.0) ** 1.5,
        np.full(77, 0.1),
    ],
)
def test_alias_table_has_the_exact_probabilities(weights):
    """Summed in fractions over columns and heights, not by drawing."""
    thresholds, aliases = compiled.alias_table(weights)
    size = len(weights)
    chance = [Fraction(0)] * size
    for column in range(size):
        keep = Fraction(int(thresholds[column]), 2**64)
        chance[column] += keep / size
        chance[int(aliases[column])] += (1 - keep) / size
    assert sum(chance) == 1
    np.testing.assert_allclose([float(c) for c in chance], weights / weights.sum(), rtol=1e-12, atol=1e-15)
    for one, weight in zip(chance, weights):
        assert weight > 0 or one == 0


# --- Graphs ---


@examples(100)
@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(1, 40),
    columns=st.integers(1, 40),
    pairs=st.integers(1, 400),
    block_edges=st.sampled_from([1, 5, 50, 10**6]),
)
def test_sorted_pairs_and_transposition_against_numpy(seed, rows, columns, pairs, block_edges):
    random = np.random.default_rng(seed)
    row = random.integers(rows, size=pairs).astype(np.int32)
    column = random.integers(columns, size=pairs).astype(np.int32)
    graph = Graph.from_pairs(row, column, rows, columns, block_edges=block_edges)
    unique = np.unique(row.astype(np.int64) * columns + column)
    assert graph.duplicates == pairs - len(unique)
    np.testing.assert_array_equal(graph.by_user.indices, unique % columns)
    np.testing.assert_array_equal(graph.by_user.degrees, np.bincount(unique // columns, minlength=rows))
    order = np.lexsort((unique // columns, unique % columns))
    np.testing.assert_array_equal(graph.by_item.indices, (unique // columns)[order])
    np.testing.assert_array_equal(graph.by_item.degrees, np.bincount(unique % columns, minlength=columns))
    backwards = lambda function, tasks: [function(task) for task in reversed(tasks)]  # noqa: E731
    for few, run in itertools.product((4, 1 << 14), (run_serially, backwards)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("considerate.data.graph.FEW_COLUMNS", few)
            patch.setattr("considerate.data.graph.BUCKET_BITS", 2)
            patch.setattr("considerate.data.graph.BLOCK_EDGES", block_edges)
            back = transpose(graph.by_item, rows, run)
        np.testing.assert_array_equal(back.indices, graph.by_user.indices)
        np.testing.assert_array_equal(back.starts, graph.by_user.starts)
    for blocks, side in ((graph.user_blocks, rows), (graph.item_blocks, columns)):
        assert blocks[0] == 0
        assert blocks[-1] == side
        assert (np.diff(blocks) > 0).all()


@pytest.mark.parametrize(("edges_per_item", "items"), [(0.5, 400_000), (5, 100_000), (50, 12_000)])
def test_transposition_takes_memory_in_proportion_to_edges_and_items(edges_per_item, items):
    """4 bytes an edge and 8 an item to keep; and on the way 2 bytes an edge, and counters that are few."""
    rows = 20_000
    random = np.random.default_rng(0)
    users, liked = (random.integers(n, size=int(edges_per_item * items), dtype=np.int32) for n in (rows, items))
    graph = Graph.from_pairs(users, liked, rows, items, block_edges=max(1, len(users) // 256))
    with LocalBackend(2) as backend:
        tracemalloc.start()
        back = transpose(graph.by_user, items, backend.map)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    np.testing.assert_array_equal(back.indices, graph.by_item.indices)
    assert peak < 6 * graph.edges + 8 * items + 500_000


def test_rows_of_a_bucket_are_sorted_by_column_and_stay_in_order():
    random = np.random.default_rng(0)
    low, rows = random.integers(5, size=40).astype(np.uint16), np.arange(40, dtype=np.int32)
    starts = np.empty(6, np.int64)
    compiled.sort_bucket(low, rows, 100, starts)
    np.testing.assert_array_equal(rows, np.argsort(low, kind="stable"))
    np.testing.assert_array_equal(starts, 100 + np.searchsorted(np.sort(low), np.arange(6)))
    with pytest.raises(ValueError, match="out of range"):
        compiled.sort_bucket(low, rows, 0, starts[:4].copy())


def test_some_results_at_a_time_are_added_along_the_same_tree():
    held, most = 0, 0

    def leaf(number):
        nonlocal held, most
        held, most = held + 1, max(most, held + 1)
        return str(number)

    def add(left, right):
        nonlocal held
        held -= 1
        return f"({left} {right})"

    for count in range(1, 70):
        held = 0
        whole = add_along_tree([str(number) for number in range(count)], lambda left, right: f"({left} {right})")
        assert map_along_tree(leaf, range(count), run_serially, add) == whole
    assert most <= 8 + 4


def test_places_of_slices_against_numpy():
    counts = np.random.default_rng(0).integers(0, 5, (3, 7))
    starts, places = np.empty(8, np.int64), counts.copy()
    compiled.counts_to_places(places, starts)
    np.testing.assert_array_equal(starts, np.concatenate([[0], np.cumsum(counts.sum(axis=0))]))
    np.testing.assert_array_equal(places, starts[:-1] + np.cumsum(counts, axis=0) - counts)
    with pytest.raises(ValueError, match="one entry more"):
        compiled.counts_to_places(places, starts[1:])


def test_edges_to_the_columns_that_are_kept():
    random = np.random.default_rng(0)
    counts, keep = random.integers(0, 5, 30), random.random(11) < 0.4
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    indices = random.integers(0, 11, starts[-1]).astype(np.int32)
    found = compiled.keep_columns(starts, indices, keep)
    rows = np.repeat(np.arange(30), counts)
    np.testing.assert_array_equal(found[0], np.bincount(rows[keep[indices]], minlength=30))
    np.testing.assert_array_equal(found[1], indices[keep[indices]])
    assert [len(one) for one in compiled.keep_columns(starts[:1], indices[:0], keep)] == [0, 0]
    with pytest.raises(ValueError, match="out of range"):
        compiled.keep_columns(starts, indices, keep[:5])
    with pytest.raises(ValueError, match="starts"):
        compiled.keep_columns(starts + 1, indices, keep)


def test_pairs_out_of_range_are_refused():
    with pytest.raises(ValueError, match="out of range"):
        compiled.sort_pairs(np.array([2], np.int32), np.array([0], np.int32), 2, 1)
    with pytest.raises(ValueError, match="out of range"):
        compiled.sort_pairs(np.array([0], np.int32), np.array([-1], np.int32), 2, 1)


def test_blocks_hold_about_as_many_edges_each():
    degrees = np.random.default_rng(0).integers(0, 50, 5000)
    starts = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)
    blocks = row_blocks(starts, 1000)
    held = np.diff(starts[blocks])
    assert len(held) == -(-starts[-1] // 1000)
    assert held.max() <= 1000 + 50
