"""Weights of likes: a weight multiplies the like's part of the bound, and so what it adds to the sums."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from typer.testing import CliRunner

from considerate import Recommender, evaluate
from considerate.cli import app
from considerate.data import ReaderOptions, read_interactions, read_likes
from considerate.data.graph import ITEMS, USERS, Adjacency, Graph, leaf_splits, run_serially, transpose
from considerate.data.weights import Weighting
from considerate.distributed import OutOfCore
from considerate.distributed.exchange import read_divided
from considerate.distributed.tasks import LocalTasks
from considerate.errors import CheckpointError, DataError, UsageError
from considerate.fitting import in_memory, session
from considerate.fitting.session import make_graph
from considerate.inference.hidden import Expected, Sampled, Terms
from considerate.inference.plan import FitPlan
from considerate.inference.sums import CoordinateBlock, PassConstants, edge_sums, side_pass
from considerate.inference.sweep import InMemory, initial_state
from considerate.inference.updates import RowClasses, TreePass
from considerate.kernels import compiled, reference
from considerate.kernels.threads import LocalBackend
from considerate.model.explain import share_of_update
from tests.engine.test_inference import (
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
from tests.helpers import naive
from tests.kernels.test_kernels import Case, check_case, random_case


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
            likelihood_weight=self.step.likelihood_weight,
            considered=[*liked.weights.tolist(), *[1.0] * (len(others) - liked.edges)],
        )


@pytest.mark.usefixtures("each_instruction_set")
@pytest.mark.parametrize("splits", [None, np.array([0, 40, 41, 97, 130])], ids=["in one go", "along a tree"])
@pytest.mark.parametrize("density", [0.05, 0.6], ids=["few edges", "many edges"])
@pytest.mark.parametrize("factors", [3, 8, 20, 40])
def test_sums_steps_and_the_bound_equal_the_reference(splits, density, factors):
    step = PassConstants(offset=-0.7, likelihood_weight=1.5, tau=0.8, tau_bias=0.4, epsilon=0.6)
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


@pytest.mark.slow
def test_wrong_updates_are_caught():
    """Likes whose weight is in one of the two sums alone."""
    p = problem("sampled", True, graph=unequal(planted()))

    def falls(change=None) -> float:
        return float(-np.diff(reference_bounds(p, 25, change=change)).min())

    def once(p: Problem, own, others, liked):
        return reference.row_sums(
            own, others, liked, offset=p.settings.offset, likelihood_weight=p.settings.likelihood_weight
        )

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
    settings = FitPlan.of_paper(factors=factors, negatives=1.5)

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
    q = initial_state(graph, FitPlan.of_paper(factors=20)).posterior
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


# --- Reading ---

EVENTS = {
    "user": ["a", "a", "b", "b", "c", "a"],
    "item": [1, 2, 1, 3, 2, 1],
    "plays": [3.0, 1.0, 10.0, 2.0, 5.0, 4.0],
    "event": ["buy", "view", "view", "buy", None, "view"],
    "time": [0, 86_400, 172_800, 0, 86_400, 172_800],
}  # the pairs are a1 a2 b1 b3 c2, and a1 comes twice


@pytest.mark.parametrize(
    ("options", "amounts"),
    [
        ({"weight_column": "plays"}, [7, 1, 10, 2, 5]),
        ({"weight_column": "PLAYS", "weight": "log1p"}, np.log1p([7, 1, 10, 2, 5])),
        ({"weight_column": "plays", "weight": "sqrt"}, np.sqrt([7, 1, 10, 2, 5])),
        ({"half_life": "1d"}, [1.25, 0.5, 1, 0.25, 0.5]),
        ({"half_life": 86_400, "time_column": "time"}, [1.25, 0.5, 1, 0.25, 0.5]),
        ({"half_life": "24 h", "weight_column": "plays"}, [4.75, 0.5, 10, 0.5, 2.5]),
        ({"signals": {"event = 'buy'": 3, "event = 'view' or event is null": 0.5}}, [3.5, 0.5, 0.5, 3, 0.5]),
        ({"signals": ["plays > 4 : 2", "time >= 0:1"]}, [2, 1, 2, 1, 2]),
        ({"signals": {"time >= 0": 2}, "weight_column": "plays"}, [14, 2, 20, 4, 10]),
    ],
)
def test_amounts_of_rows_become_weights_of_pairs(options, amounts):
    amounts = np.array(amounts, float)
    weights = make_graph(read_interactions(EVENTS, **options)).by_user.weights
    np.testing.assert_allclose(weights, amounts / amounts.mean(), rtol=1e-6)
    weights = make_graph(read_interactions(EVENTS, **options, weight_scale="none")).by_user.weights
    np.testing.assert_allclose(weights, amounts, rtol=1e-6)
    weights = make_graph(read_interactions(EVENTS, **options, weight_scale="user")).by_user.weights
    for mine in (slice(0, 2), slice(2, 4), slice(4, 5)):
        np.testing.assert_allclose(weights[mine], amounts[mine] / amounts[mine].mean(), rtol=1e-6)


def test_rows_of_no_signal_are_no_likes():
    likes = read_interactions(EVENTS, signals={"event = 'buy'": 3})
    assert likes.rows_kept == 2
    likes = read_interactions(EVENTS, signals={"event = 'buy'": 3, "event = 'view'": 1}, where="plays > 2")
    assert likes.rows_kept == 3


def test_a_matrix_has_its_values_for_weights_if_asked():
    matrix = sp.csr_matrix(np.array([[3.0, 0.0, 1.0], [0.0, 8.0, 0.0]]))
    with pytest.warns(UserWarning, match="weight='log1p'"):
        assert read_interactions(matrix).amounts is None
    weights = make_graph(read_interactions(matrix, weight="log1p")).by_user.weights
    np.testing.assert_allclose(weights, np.log1p([3, 1, 8]) / np.log1p([3, 1, 8]).mean(), rtol=1e-6)
    assert make_graph(read_interactions(matrix, weight_scale="none")).by_user.weights.tolist() == [3.0, 1.0, 8.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weight_column": "play"}, "no column 'play'"),
        ({"weight": "log1p"}, "no column looks like the weights"),
        ({"weight_column": "plays", "weight": "log2"}, "expected one of raw, log1p, sqrt"),
        ({"weight_column": "plays", "weight_scale": "max"}, "expected one of mean, user, none"),
        ({"weight_column": "time"}, r"2 rows have no number above zero in the weight column 'time'.*--where"),
        ({"half_life": "3 fortnights"}, "expected a time such as 90d"),
        ({"half_life": 0}, "expected a time such as 90d"),
        ({"half_life": "1d", "time_column": "plays", "where": "plays > 20"}, "keeps none"),
        ({"signals": {"event = 'buy'": 0}}, "the weight '0'"),
        ({"signals": ["event = 'buy'"]}, "expected a rule, a colon"),
        ({"signals": {"event == ": 1}}, "--where"),
        ({"signals": "event = 'buy' : 3"}, "expected a mapping"),
    ],
)
def test_what_is_wrong_with_weights_is_said(options, message):
    with pytest.raises((DataError, UsageError), match=message):
        read_interactions(EVENTS, **options)


def test_times_that_a_half_life_cannot_take_are_refused():
    later = {**EVENTS, "time": [1.7e12 + when for when in EVENTS["time"]]}
    with pytest.raises(DataError, match="no seconds; give half_life as a number"):
        read_interactions(later, half_life="1d")
    assert read_interactions(later, half_life=1000).amounts is not None
    with pytest.raises(DataError, match="1 likes have no time"):
        read_interactions({**EVENTS, "time": [None, *EVENTS["time"][1:]]}, half_life="1d")
    with pytest.raises(DataError, match="no column looks like the times"):
        read_interactions({"user": [1, 2], "item": [1, 2]}, half_life="1d")


def plays_table(rows: int = 6000) -> pa.Table:
    random = np.random.default_rng(0)
    return pa.table(
        {
            "user": random.integers(0, 200, rows),
            "item": (120 * random.random(rows) ** 2).astype(int),
            "plays": random.integers(1, 50, rows) * 0.37,
            "time": random.random(rows) * 1e7,
        }
    )


@kinds
def test_out_of_core_the_bits_are_those_of_a_fit_in_memory(kind, tmp_path):
    path = tmp_path / "plays.parquet"
    pq.write_table(plays_table(), path, row_group_size=700)
    how: dict[str, Any] = {"weight_column": "plays", "weight": "log1p", "half_life": "30d"}
    model = Recommender(factors=4, sweeps=6, hidden=kind, threads=1)

    def rows(backend: Any = None, **options: Any) -> list[np.ndarray]:
        fitted = clone(model).fit(path, backend=backend, **how, **options)
        return [np.array(fitted.user_factors), np.array(fitted.item_factors)]

    for scale in ("mean", "user"):
        here = rows(weight_scale=scale)
        np.testing.assert_array_equal(rows(OutOfCore(folder=tmp_path), weight_scale=scale)[0], here[0])
    by_items = rows(OutOfCore(folder=tmp_path, division="items"), weight_scale="user")
    np.testing.assert_allclose(by_items[0], here[0], atol=2e-3)
    unweighted = clone(model).fit(path)
    assert not np.allclose(np.array(unweighted.user_factors), here[0], atol=2e-2)


def test_pieces_and_shards_do_not_change_a_weight(tmp_path):
    path = tmp_path / "plays.parquet"
    pq.write_table(plays_table(), path, row_group_size=500)
    options = ReaderOptions(weight_column="plays", weight="log1p", half_life="30d")
    whole = make_graph(read_likes(path, options))
    for most_bytes, shards in ((1, 5), (10**9, 1)):
        with LocalTasks(1) as tasks:
            for side, edges in ((USERS, whole.by_user), (ITEMS, whole.by_item)):
                data = read_divided(path, tasks, side, options, most_bytes=most_bytes, shards=shards)
                got = Adjacency.joined([tasks.get(part).likes for part in data.parts])
                np.testing.assert_array_equal(got.indices, edges.indices)
                np.testing.assert_array_equal(got.weights, edges.weights)


def test_checkpoints_know_the_weights(tmp_path):
    table, folder = plays_table(), tmp_path / "checkpoint"
    Recommender(factors=3, sweeps=4).fit(table, weight_column="plays", checkpoint=folder)
    with pytest.raises(CheckpointError, match="other data: the likes differ"):
        Recommender(factors=3, sweeps=6).fit(
            table, weight_column="plays", weight="log1p", checkpoint=folder, resume=True
        )
    resumed = Recommender(factors=3, sweeps=6).fit(table, weight_column="plays", checkpoint=folder, resume=True)
    once = Recommender(factors=3, sweeps=6).fit(table, weight_column="plays")
    np.testing.assert_array_equal(np.array(resumed.item_factors), np.array(once.item_factors))


def test_models_keep_the_weights_of_their_likes(tmp_path):
    table = plays_table()
    model = Recommender(factors=3, sweeps=3).fit(table, weight_column="plays", weight="log1p")
    kept = model.model_.users.liked.weights
    model.save(tmp_path / "whole")
    pq.write_table(table, tmp_path / "plays.parquet")
    divided = Recommender(factors=3, sweeps=3).fit(
        tmp_path / "plays.parquet", backend=OutOfCore(folder=tmp_path), weight_column="plays", weight="log1p"
    )
    divided.save(tmp_path / "shards")
    for path in ("whole", "shards"):
        loaded = Recommender.load(tmp_path / path)
        np.testing.assert_array_equal(loaded.model_.users.whole().liked.weights, kept)
        assert loaded.explain(3, 7) == model.explain(3, 7)
    model.save(tmp_path / "without", likes=False)
    assert Recommender.load(tmp_path / "without").model_.users.whole().liked.weights is None
    plain = Recommender(factors=3, sweeps=3).fit(table)
    plain.save(tmp_path / "plain")
    assert b"likes.weights" not in (tmp_path / "plain").read_bytes()


def test_reasons_follow_the_weights():
    """A like that is all the weight there is moves the logit; one of weight 0 does not."""
    graph = planted(30, 20, 2)
    users, items = graph.pairs()
    kappa = np.where(items == items[0], 4.0, 0.0).astype(np.float32)[: graph.by_user.degrees[0]]
    side = Recommender(factors=2, sweeps=5).fit((users, items)).model_
    liked = graph.by_user.row(0).astype(np.int64)
    posterior, plan = side.shared, side.plan
    user = side.users.side.take(np.array([0]))
    shares = share_of_update(liked, user, posterior, 1, plan, kappa)
    assert (shares[kappa == 0] == 0).all()
    assert shares[kappa > 0] != 0
    np.testing.assert_array_equal(
        share_of_update(liked, user, posterior, 1, plan, np.ones(len(liked), np.float32)),
        share_of_update(liked, user, posterior, 1, plan),
    )


def test_the_shell_takes_the_same_options(tmp_path):
    pq.write_table(plays_table(), tmp_path / "plays.parquet")
    here = Recommender(factors=3, sweeps=3, seed=1).fit(
        tmp_path / "plays.parquet", weight_column="plays", weight="sqrt", half_life="9d", signals={"plays > 2": 2}
    )
    words = "--factors 3 --sweeps 3 --seed 1 --weight-column plays --weight sqrt --half-life 9d --signal"
    run = ["fit", str(tmp_path / "plays.parquet"), "-o", str(tmp_path / "m"), *words.split(), "plays > 2 : 2"]
    done = CliRunner().invoke(app, run)
    assert done.exit_code == 0, done.output
    np.testing.assert_array_equal(np.array(Recommender.load(tmp_path / "m").item_factors), np.array(here.item_factors))


def test_evaluate_fits_with_weights(monkeypatch):
    seen = []
    make = session.make_graph
    monkeypatch.setattr(in_memory, "make_graph", lambda likes: seen.append(make(likes)) or seen[-1])
    evaluate(Recommender(factors=2, sweeps=2), plays_table(2000), "random", weight_column="plays", resamples=2)
    (graph,) = seen
    assert graph.by_user.weights.mean() == pytest.approx(1.0, rel=1e-5)
    assert graph.by_user.weights.std() > 0.3


# --- What weights are for ---


def test_recency_follows_a_taste_that_drifts():
    """Everybody changes from one half of the items to the other: with a half-life the later half is liked more."""
    random = np.random.default_rng(2)
    users, when = np.repeat(np.arange(80), 24), np.tile(np.arange(24), 80)
    own = (users % 2) ^ (when >= 16)  # of two clusters, each user's changes after two thirds of the likes
    items = own * 30 + random.integers(0, 30, len(users))
    likes = {"user": users, "item": items, "time": when.astype(float)}

    def lead(**options: Any) -> float:
        """How much more the cluster of the last likes is liked."""
        model = Recommender(factors=3, sweeps=15, seed=0, threads=1).fit(likes, **options)
        score = np.array(model.user_factors) @ np.array(model.item_factors).T
        now = score[:, :30].mean(axis=1) - score[:, 30:].mean(axis=1)
        return float(np.where(np.arange(80) % 2 == 1, now, -now).mean())

    assert lead() < 0.0  # most likes are of the former taste
    slower, faster = lead(half_life=3), lead(half_life=2)
    assert slower > 0.3
    assert faster > 1.0


@pytest.mark.parametrize("weights", [[1.0, 1.0, 1e-9], [1e-9, 1e-9, 1e-9]])
def test_weights_that_would_count_nothing_are_refused(weights: list[float]) -> None:
    likes = {"user": [1, 1, 2], "item": [1, 2, 3], "w": weights}
    with pytest.raises(DataError, match=r"less than 5\.96046e-08 in the weight column 'w', such as 1e-09"):
        read_interactions(likes, weight_column="w")
    with pytest.raises(DataError, match="less than"):
        read_likes(sp.csr_array((weights, ([0, 0, 1], [0, 1, 2]))), ReaderOptions(weight="raw"))
    with pytest.raises(UsageError, match="a number from"):
        read_interactions(likes, signals={"w > 0": 1e-9})
    read_interactions(likes | {"w": [1.0, 1.0, 6e-8]}, weight_column="w")


def test_likes_that_are_all_too_old_to_count_count_alike() -> None:
    amounts = np.zeros(3, np.int64)
    assert Weighting("raw", "mean").weights(amounts, np.array([0, 2, 3])).tolist() == [1.0, 1.0, 1.0]
