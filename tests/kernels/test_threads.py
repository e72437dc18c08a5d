"""The same bits for any number of threads, split or not, fused or by messages between blocks (eq. 21)."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest

from considerate.data.graph import Graph, light_rows, ranges, run_serially
from considerate.inference.hidden import Expected, Sampled, popularity_weights
from considerate.inference.plan import FitPlan
from considerate.inference.sums import CoordinateBlock, EdgeSums, PassConstants, add_blocks, edge_sums, side_pass
from considerate.inference.sweep import InMemory, State, initial_state
from considerate.inference.updates import RowClasses, TreePass, heavy_rows
from considerate.kernels import compiled
from considerate.kernels.threads import LocalBackend, locked_cached_property
from considerate.model.model import Model
from considerate.model.predict import ItemColumns

USERS, ITEMS, NEGATIVES = 2000, 150, 1.5


def pairs() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    same_taste = (np.arange(USERS)[:, None] % 3) == (np.arange(ITEMS) % 3)
    liked = random.random((USERS, ITEMS)) < np.clip(3.0 / np.arange(1, ITEMS + 1), 0.05, 0.2) * (0.1 + 2.5 * same_taste)
    liked[:, 7] = random.random(USERS) < 0.97  # one item that nearly everyone likes
    users, items = np.nonzero(liked)
    return users.astype(np.int32), items.astype(np.int32)


@pytest.fixture(scope="module")
def graph() -> Graph:
    made = Graph.from_pairs(*pairs(), USERS, ITEMS, block_edges=500)
    assert len(made.user_blocks) - 1 >= 16
    assert len(made.item_blocks) - 1 >= 16
    assert 7 in heavy_rows(made.by_item.degrees, made.item_blocks).tolist()
    return made


def settings_of(user_bias: bool) -> FitPlan:
    return FitPlan.of_paper(
        factors=9, negatives=NEGATIVES, user_bias=user_bias, step_delay=1, precision_delay=1, likelihood_weight=1.3
    )


def estimator_of(kind: str, graph: Graph, settings: FitPlan, run=run_serially):
    weights = popularity_weights(graph.by_item.degrees, 1.0)
    if kind == "sampled":
        return Sampled(graph.by_user, graph.user_blocks, weights, NEGATIVES, 3)
    return Expected(graph.by_user, graph.user_blocks, weights, NEGATIVES, settings.offset, 16, run)


def fitted(kind: str, graph: Graph, user_bias: bool, threads: int, count: int = 6) -> tuple[State, list[float]]:
    settings, bounds = settings_of(user_bias), []
    with LocalBackend(threads) as backend:
        estimator = estimator_of(kind, graph, settings, backend.map)
        for done in InMemory(graph, estimator, settings, backend).sweeps():
            bounds.append(done.bound.total)
            if done.state.sweep == count:
                return done.state, bounds
    raise AssertionError


def assert_same_bits(one: State, two: State) -> None:
    for mine, other in ((one.posterior.users, two.posterior.users), (one.posterior.items, two.posterior.items)):
        np.testing.assert_array_equal(mine.rows, other.rows)
        np.testing.assert_array_equal(mine.biases, other.biases)
    assert one.posterior.precisions == two.posterior.precisions


kinds = pytest.mark.parametrize("kind", ["sampled", "expected"])
biases = pytest.mark.parametrize("user_bias", [False, True])


@kinds
@biases
def test_posteriors_have_the_same_bits_for_any_number_of_threads(graph, kind, user_bias, monkeypatch):
    split = []
    solve = compiled.solve_rows
    monkeypatch.setattr(compiled, "solve_rows", lambda *a, **k: split.append(int(a[1][0])) or solve(*a, **k))
    one, bounds = fitted(kind, graph, user_bias, 1)
    assert split.count(7) == 6, "the heavy item was split in every sweep"
    assert np.abs(one.posterior.items.mean).max() > 0.05, "something was learned"
    for threads in (2, 3, 4):
        other, others = fitted(kind, graph, user_bias, threads)
        assert_same_bits(one, other)
        assert bounds == others


@kinds
def test_permuted_input_has_the_same_bits(graph, kind):
    users, items = pairs()
    order = np.random.default_rng(1).permutation(len(users))
    again = Graph.from_pairs(users[order], items[order], USERS, ITEMS, block_edges=500)
    assert_same_bits(fitted(kind, graph, False, 1, 2)[0], fitted(kind, again, False, 2, 2)[0])


def item_pass(kind: str, graph: Graph, user_bias: bool):
    """The items' pass of the third sweep, ready to be read."""
    settings = settings_of(user_bias)
    state, _ = fitted(kind, graph, user_bias, 1, 2)
    estimator = estimator_of(kind, graph, settings)
    q = state.posterior
    with LocalBackend(1) as backend:
        terms = estimator.user_terms(3, q, run_serially)
        q = replace(q, users=InMemory(graph, estimator, settings, backend).update_users(terms, q, 1.0).side)
    terms = estimator.item_terms(3, q, run_serially)
    step = PassConstants.of(settings, q.precisions.means_of("items"), 0.7)
    kernel_pass = side_pass(q.items, q.users, graph.by_item, terms, step, own_is_user=False, splits=graph.user_blocks)
    return kernel_pass, q.items, terms


@kinds
@biases
def test_a_row_that_is_split_has_the_bits_of_one_that_is_not(graph, kind, user_bias):
    kernel_pass, items, terms = item_pass(kind, graph, user_bias)
    tree_pass = TreePass(kernel_pass, kernel_pass, graph.user_blocks, terms.expected is not None, far=False)
    everyone = np.arange(ITEMS, dtype=np.int32)
    whole = tree_pass.update(items, RowClasses([everyone], everyone[:0], []), run_serially)
    for heavy in (heavy_rows(graph.by_item.degrees, graph.item_blocks), everyone[::7]):
        classes = RowClasses([np.setdiff1d(everyone, heavy)], heavy, [])
        split = tree_pass.update(items, classes, run_serially)
        np.testing.assert_array_equal(split.side.rows, whole.side.rows)
        np.testing.assert_array_equal(split.side.biases, whole.side.biases)


@kinds
@biases
def test_light_rows_are_one_leaf_stepped_as_users_are(graph, kind, user_bias):
    """Their bits are those of a pass without the tree, whatever rows they are stepped with, and close to the tree's."""
    settings = settings_of(user_bias)
    state, _ = fitted(kind, graph, user_bias, 1, 2)
    with LocalBackend(1) as backend:
        runner = InMemory(graph, estimator_of(kind, graph, settings), settings, backend)
        terms = runner.estimator.user_terms(3, state.posterior, run_serially)
        q = replace(state.posterior, users=runner.update_users(terms, state.posterior).side)
        tree_pass = runner.items_pass(runner.estimator.item_terms(3, q, run_serially), q)
        classes = runner.item_classes()
        light = np.concatenate(classes.light)
        assert 0 < len(light) < ITEMS
        mixed = tree_pass.update(q.items, classes, run_serially).side
        one_go, along_tree = (
            TreePass(each, each, tree_pass.leaves, tree_pass.closed_form, far=False)
            .update(q.items, RowClasses([np.arange(ITEMS, dtype=np.int32)], light[:0], []), run_serially)
            .side
            for each in (tree_pass.in_one_go, tree_pass.along_tree)
        )
    np.testing.assert_array_equal(mixed.rows[light], one_go.rows[light])
    rest = np.setdiff1d(np.arange(ITEMS), light)
    np.testing.assert_array_equal(mixed.rows[rest], along_tree.rows[rest])
    assert not np.array_equal(mixed.rows[light], along_tree.rows[light])
    np.testing.assert_allclose(mixed.rows[light], along_tree.rows[light], rtol=1e-3, atol=1e-4)


def test_rows_by_class():
    degrees = np.array([3, 0, 400, 4, 5, 100, 1])
    light = light_rows(degrees, leaves=2, edges_per_like=8.0, others=64)  # up to 32 / 8 = 4 likes
    classes = RowClasses.of(degrees, np.array([0, 3, 6, 7]), light)
    assert np.array_equal(classes.is_light, light)
    assert [rows.tolist() for rows in classes.light] == [[0, 1], [3], [6]]
    assert [rows.tolist() for rows in classes.blocks] == [[4, 5]]
    assert classes.heavy.tolist() == [2]
    assert [rows.tolist() for rows in classes.summed(0, 3)] == [[2]]
    assert [rows.tolist() for rows in classes.summed(0, 7)] == [[4, 5], [2]]
    assert RowClasses.of(degrees, np.array([0, 7]), light & False).light == []


def test_no_row_is_light_where_the_other_side_is_far_larger():
    """Four rows are light, so that at most 64 of the other side may travel for them."""
    degrees = np.array([3, 0, 400, 4, 5, 100, 1])
    assert light_rows(degrees, 2, 8.0, 64).sum() == 4
    assert light_rows(degrees, 2, 8.0, 65).sum() == 0


def same_sums(one: EdgeSums, two: EdgeSums) -> bool:
    return all(np.array_equal(getattr(one, name), getattr(two, name)) for name in ("second", "first", "bias"))


@kinds
@biases
@pytest.mark.parametrize("name", compiled.instruction_sets())
def test_messages_of_blocks_add_up_to_the_fused_pass(graph, kind, user_bias, name):
    """Eq. 21, bit for bit; and another order of adding does change bits, so this can fail."""
    before = compiled.instruction_set()
    compiled.use_instruction_set(name)
    try:
        kernel_pass, items, terms = item_pass(kind, graph, user_bias)
        everyone, factors = np.arange(ITEMS, dtype=np.int32), items.factors
        parts = [
            edge_sums(kernel_pass, everyone, CoordinateBlock.of(factors), (low, high))
            for low, high in ranges(graph.user_blocks)
        ]
        assert len(parts) >= 16
        fused = edge_sums(kernel_pass, everyone, CoordinateBlock.of(factors), (0, USERS))
        assert same_sums(add_blocks(parts), fused)
        assert not same_sums(add_blocks(parts[::-1]), fused)
        in_sequence = parts[0]
        for part in parts[1:]:
            in_sequence = in_sequence.merge(part)
        assert not same_sums(in_sequence, fused)
        np.testing.assert_allclose(in_sequence.second, fused.second, rtol=1e-4, atol=1e-4)

        sums = add_blocks(parts)
        if terms.expected is not None:
            sums = sums.merge(edge_sums(kernel_pass, everyone, CoordinateBlock.of(factors), (0, 0), closed_form=True))
        out, whole = items.empty_like(), items.empty_like()
        compiled.solve_rows(
            kernel_pass, everyone, sums.second, sums.first, sums.bias, out.rows, out.bias_mean, out.bias_variance
        )
        compiled.update_rows(kernel_pass, 0, ITEMS, whole.rows, whole.bias_mean, whole.bias_variance)
        np.testing.assert_array_equal(out.rows, whole.rows)
        np.testing.assert_array_equal(out.biases, whole.biases)
    finally:
        compiled.use_instruction_set(before)


def test_another_order_of_adding_changes_the_posterior(graph):
    """The same sums from fewer, larger blocks are as right, and have other bits."""
    users, items = pairs()
    coarser = Graph.from_pairs(users, items, USERS, ITEMS, block_edges=5000)
    fine, coarse = fitted("sampled", graph, False, 1, 2)[0], fitted("sampled", coarser, False, 1, 2)[0]
    assert not np.array_equal(fine.posterior.items.rows, coarse.posterior.items.rows)
    np.testing.assert_allclose(fine.posterior.items.rows, coarse.posterior.items.rows, atol=1e-3)


def test_the_start_does_not_depend_on_blocks(graph):
    users, items = pairs()
    coarser = Graph.from_pairs(users, items, USERS, ITEMS)
    assert len(coarser.user_blocks) == 2
    assert_same_bits(initial_state(graph, settings_of(True)), initial_state(coarser, settings_of(True)))


@kinds
def test_the_padding_of_new_rows_is_zero(graph, kind):
    state, _ = fitted(kind, graph, False, 2)
    for side in (state.posterior.users, state.posterior.items):
        half = side.rows.shape[1] // 2
        assert side.factors < half
        assert not side.rows[:, side.factors : half].any()
        assert not side.rows[:, half + side.factors :].any()


def test_a_property_that_threads_share_is_made_once() -> None:
    """While one thread makes it, another that asks waits for it."""
    calls = []

    class Shared:
        @locked_cached_property
        def table(self) -> object:
            calls.append(threading.current_thread())
            if len(calls) == 1:
                other.start()
                other.join(timeout=0.1)
                assert len(calls) == 1
            return object()

    shared, seen = Shared(), []
    other = threading.Thread(target=lambda: seen.append(shared.table))
    made = shared.table
    other.join()
    assert seen == [made]
    assert shared.table is made
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("owner", "names"),
    [(Model, ("shared", "log_popularity", "columns", "fold_in")), (ItemColumns, ("mean", "variance", "strips"))],
)
def test_what_the_threads_of_a_server_share_is_locked(owner: type, names: tuple[str, ...]) -> None:
    assert all(isinstance(vars(owner)[name], locked_cached_property) for name in names)
