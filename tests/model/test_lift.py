"""Scores with lift: the kernels against NumPy, and one answer by every way to ask for it."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from typer.testing import CliRunner

from considerate import RankingOptions, Recommender, read_interactions
from considerate.cli import app
from considerate.data.graph import Adjacency
from considerate.data.vocabulary import Vocabulary
from considerate.distributed.batch import recommend_all
from considerate.distributed.tasks import LocalTasks
from considerate.errors import UsageError
from considerate.evaluation.fitted import mean_metric
from considerate.evaluation.scorer import ModelScorer
from considerate.inference.hidden import Consideration
from considerate.inference.posterior import Side
from considerate.kernels import compiled
from considerate.model.considered import consideration_weights
from considerate.model.names import Names
from considerate.model.predict import ItemColumns
from considerate.model.ranking import best
from tests.helpers.likes import as_table, skewed

LEAST = 2.0**-60  # a ratio below this counts as this


@lru_cache
def table_of(items: int, neighbours: int, mix: float, seed: int = 0) -> Consideration:
    """A table of random rows, some empty. Nobody liked item 3, and no row meets it."""
    random = np.random.default_rng(seed)
    weights = random.integers(1, 50, items).astype(float)
    weights[3] = 0.0
    rows, shares = [], []
    for n in range(items):
        count = 0 if n % 7 == 3 else int(random.integers(1, neighbours + 1))
        rows.append(np.setdiff1d(random.integers(0, items, count), [3]).astype(np.int32))
        shares.append(random.dirichlet(np.ones(len(rows[-1]) + 1))[:-1])
    adjacency = Adjacency.of_rows(rows)
    rest = np.array([1.0 - row.sum() for row in shares], np.float32)
    return Consideration(
        adjacency.starts, adjacency.indices, np.concatenate(shares).astype(np.float32), rest, weights, mix
    )


def likes_of(users: int, items: int, most: int, seed: int = 1) -> Adjacency:
    """Users 0, 5, 10, ... like nothing."""
    random = np.random.default_rng(seed)
    counts = [0 if user % 5 == 0 else int(random.integers(1, most + 1)) for user in range(users)]
    return Adjacency.of_rows([np.sort(random.choice(items, n, replace=False)).astype(np.int32) for n in counts])


def one_row(liked: NDArray[Any]) -> sp.csr_matrix:
    return sp.csr_matrix((np.ones(len(liked)), (np.zeros(len(liked), int), liked)), (1, 45))


def lifts_of(table: Consideration, liked: Adjacency, sharpness: int = 1) -> NDArray[np.float64]:
    ratios = [table.ratios(liked.row(user), sharpness) for user in range(liked.rows)]
    return np.stack([np.log(np.maximum(ratio, LEAST)) for ratio in ratios])


# --- Kernels ---


@pytest.mark.usefixtures("each_instruction_set")
def test_the_logarithm_is_accurate_to_float32() -> None:
    random = np.random.default_rng(0)
    near_one = 1.0 + random.uniform(-0.01, 0.01, 10_000)
    powers = np.concatenate([2.0 ** np.arange(-126, 128), np.nextafter(np.float32(2.0) ** np.arange(-125, 128), 0)])
    x = np.concatenate([np.exp(random.uniform(-87, 88, 100_000)), near_one, powers, [LEAST]]).astype(np.float32)
    exact, below = compiled.logarithms(x)
    truth = np.log(x.astype(np.float64))
    assert np.all(np.abs(exact - truth) <= 1.5 * np.spacing(np.abs(truth).astype(np.float32)) + 1e-9)
    assert np.all(below < truth)
    assert np.all(truth < below + 0.0601)


@pytest.mark.usefixtures("each_instruction_set")
@pytest.mark.parametrize("sharpness", [1, 2, 5])
@pytest.mark.parametrize(("items", "neighbours", "mix"), [(29, 28, 0.1), (203, 20, 0.0), (64, 5, 1.0)])
def test_dense_lifts_are_those_of_numpy(items: int, neighbours: int, mix: float, sharpness: int) -> None:
    table, liked = table_of(items, neighbours, mix), likes_of(23, items, items // 2)
    lifts = table.log_ratios(liked, sharpness)
    assert lifts.dtype == np.float32
    np.testing.assert_allclose(lifts, lifts_of(table, liked, sharpness), rtol=1e-6, atol=2e-6)
    np.testing.assert_array_equal(lifts[::5], 0.0)  # no likes: w = p
    some = np.array([7, 2, 22])
    np.testing.assert_array_equal(table.log_ratios(liked.take(some), sharpness), lifts[some])


@pytest.mark.usefixtures("each_instruction_set")
@pytest.mark.parametrize("sharpness", [1, 2, 5])
@pytest.mark.parametrize("most", [1, 3, 400])
def test_lifts_of_listed_pairs_have_the_same_bits(most: int, sharpness: int) -> None:
    """Users with few pairs, whose entries are searched for, and with so many that all are summed; in no order, some
    twice, of users without likes too."""
    table = replace(table_of(1203, 200, 0.1), unknown=np.array([0, 17, 1202], np.int32))
    liked, random = likes_of(23, 1203, 60), np.random.default_rng(most)
    users = random.permutation(np.repeat(np.arange(23), random.integers(0, most + 1, 23)))
    items = random.integers(0, 1203, len(users))
    items[:3] = [0, 1202, 1201][: len(items[:3])]
    found = table.log_ratios_of(liked, users, items, sharpness)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, table.log_ratios(liked, sharpness)[users, items])
    assert table.log_ratios_of(liked, users[:0], items[:0], sharpness).shape == (0,)


def test_what_no_walk_meets_is_lifted_like_anything_else_in_the_background() -> None:
    table = table_of(50, 6, 0.25)
    liked = Adjacency.of_rows([np.array([1, 10, 30], np.int32)])
    met = np.unique(np.concatenate([table.items[table.starts[n] : table.starts[n + 1]] for n in (1, 10, 30)]))
    background = 0.25 + 0.75 * table.rest[[1, 10, 30]].mean()
    unmet = np.setdiff1d(np.arange(50), met)
    assert 3 in unmet
    np.testing.assert_allclose(table.log_ratios(liked)[0, unmet], np.log(background), rtol=1e-5)


@pytest.mark.usefixtures("each_instruction_set")
def test_the_lift_of_an_item_of_which_no_walk_can_tell_is_zero() -> None:
    table, liked = table_of(50, 6, 0.25), likes_of(11, 50, 20)
    unknown = np.array([0, 3, 17, 49], np.int32)
    with_unknown, known = replace(table, unknown=unknown), np.setdiff1d(np.arange(50), unknown)
    lifts = with_unknown.log_ratios(liked)
    np.testing.assert_array_equal(lifts[:, unknown], 0.0)
    np.testing.assert_array_equal(lifts[:, known], table.log_ratios(liked)[:, known])
    np.testing.assert_allclose(lifts, lifts_of(with_unknown, liked), rtol=1e-6, atol=2e-6)


@pytest.mark.usefixtures("each_instruction_set")
@pytest.mark.parametrize("lift", [1.0, 7.5, -2.0])
@pytest.mark.parametrize(("items", "mix", "k"), [(37, 0.1, 4), (203, 0.0, 203), (9001, 0.3, 20)])
def test_the_kernels_best_with_lift(items: int, mix: float, k: int, lift: float) -> None:
    """In the order of base + u'v + lift * log(w / p), over more than one range of items, some of them excluded; the
    lift of some is 0."""
    random = np.random.default_rng(items)
    users, table = 16, replace(table_of(items, 30, mix), unknown=np.arange(5, items, 7, dtype=np.int32))
    liked = likes_of(users, items, 12)
    side = Side.constant(items, 3, 1.0, None)
    side.rows[:, :3] = random.standard_normal((items, 3))
    vectors = random.standard_normal((users, 3)).astype(np.float32)
    base = np.full(-(-items // 16) * 16, -np.inf, np.float32)
    base[:items] = np.where(random.random(items) < 0.1, -np.inf, random.standard_normal(items))
    scoring = 3, vectors, 3, np.arange(users), ItemColumns(side).strips, base, k, liked.starts, liked.indices
    rows = table.lift_table(liked.indices)
    ids, scores = compiled.top_items(*scoring, rows, lift, liked.starts, liked.indices)
    expected = vectors @ side.mean.T + base[:items] + lift * lifts_of(table, liked)
    for user in range(users):
        excluded = np.zeros(items, bool)
        excluded[liked.row(user)] = True
        chosen = best(expected[user], k, excluded)
        found = ids[user, : len(chosen)]
        tolerance = 1e-5 * abs(lift)
        np.testing.assert_allclose(expected[user, found], expected[user, chosen], rtol=1e-6, atol=tolerance)
        np.testing.assert_allclose(scores[user, : len(chosen)], expected[user, found], rtol=1e-6, atol=tolerance)
        assert len(np.unique(found)) == len(found)
        assert (np.diff(scores[user, : len(chosen)]) <= 0).all()
        assert (ids[user, len(chosen) :] == -1).all()
    without = compiled.top_items(*scoring)
    for same in (
        compiled.top_items(*scoring, table.lift_table(liked.indices), 0.0, liked.starts, liked.indices),
        without,
    ):
        np.testing.assert_array_equal(same[0], without[0])
        np.testing.assert_array_equal(same[1], without[1])


@pytest.mark.usefixtures("each_instruction_set")
@pytest.mark.parametrize("lift", [0.0, 1.5])
def test_scores_of_a_user_do_not_depend_on_who_else_is_asked_for(lift: float) -> None:
    """To the last bit, in any batch: alone, in tiles of every size, and in another order."""
    random = np.random.default_rng(5)
    items, users, factors, table = 4500, 13, 21, table_of(4500, 40, 0.1)
    side, liked = Side.constant(items, factors, 1.0, None), likes_of(users, items, 30)
    side.mean[:] = random.standard_normal((items, factors))
    vectors = random.standard_normal((users, factors)).astype(np.float32)
    base, strips = random.standard_normal(-(-items // 16) * 16).astype(np.float32), ItemColumns(side).strips
    base[items:] = -np.inf

    def asked(rows: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        rows = np.asarray(rows)
        likes = liked.take(rows)
        scoring = factors, vectors, factors, rows, strips, base, 30, likes.starts, likes.indices
        return compiled.top_items(*scoring, table.lift_table(likes.indices), lift, likes.starts, likes.indices)

    together = asked(range(users))
    for rows in ([4], [12, 1], [3, 2, 1], [1, 2, 3, 4], range(5), range(7, 13), range(11), range(12, -1, -1)):
        for alone, among in zip(asked(rows), together):
            np.testing.assert_array_equal(alone, among[list(rows)])


def test_tables_and_likes_that_cannot_be_are_refused() -> None:
    table = table_of(20, 5, 0.1)
    with pytest.raises(ValueError, match="mix"):
        compiled.LiftTable(table.starts, table.items, table.shares, table.rest, table.inverse, 1.5)
    with pytest.raises(ValueError, match="shares"):
        compiled.LiftTable(table.starts, table.items, table.shares[1:], table.rest, table.inverse, 0.1)
    with pytest.raises(ValueError, match="inverse"):
        compiled.LiftTable(table.starts, table.items, table.shares, table.rest, table.inverse[:20], 0.1)
    for starts, indices in (([0, 1], [20]), ([0, 2], [1]), ([1, 1], [1])):
        with pytest.raises(ValueError, match="liked"):
            table.lift_table(table.items).log_ratios(np.array(starts), np.array(indices, np.int32))
        one, pairs = (np.array([0, 1]), np.array([1], np.int32)), (np.array(starts), np.array(indices, np.int32))
        with pytest.raises(ValueError, match="pair_items"):
            table.lift_table(table.items).log_ratios_of(*one, *pairs)
    with pytest.raises(ValueError, match="pair_starts"):
        table.lift_table(table.items).log_ratios_of(*one, np.array([0, 1, 1]), one[1])


# --- One answer by every way to ask ---


@pytest.fixture(scope="module")
def fitted() -> Recommender:
    """Two clusters, one user without likes among them."""
    likes = sp.diags_array((np.arange(120) != 7).astype(float)).tocsr() @ skewed(users=120, items=45)
    likes.eliminate_zeros()
    settings: dict[str, Any] = {"factors": 3, "sweeps": 5, "threads": 2, "neighbours": 12}
    return Recommender(consideration="walk", **settings).fit(likes)


@pytest.fixture(scope="module")
def named() -> Recommender:
    return Recommender(consideration="walk", factors=3, sweeps=5, threads=1, neighbours=12, lift=1.5).fit(
        read_interactions(as_table(skewed(users=120, items=45)))
    )


def brute_force(recommender: Recommender, popularity: float, lift: float) -> NDArray[np.float64]:
    model = recommender.model_
    table = model.consideration
    assert table is not None
    liked, q = model.users.whole().liked, model.posterior
    mean = q.users.mean.astype(float) @ q.items.mean.T + q.items.biases[0]
    return mean + popularity * model.log_popularity + lift * lifts_of(table, liked, model.plan.sharpness)


@pytest.mark.parametrize(("popularity", "lift"), [(None, None), (0.5, 2.0), (0.0, -1.0), (1.0, 0.0)])
def test_recommend_is_in_the_order_of_the_score(
    fitted: Recommender, popularity: float | None, lift: float | None
) -> None:
    model = fitted.model_
    everyone = np.arange(model.user_count)
    expected = brute_force(fitted, 0.3 if popularity is None else popularity, 1.2 if lift is None else lift)
    for filtered in (True, False):
        ids, scores = fitted.recommend(
            everyone, N=45, popularity=popularity, lift=lift, filter_already_liked_items=filtered, by="row"
        )
        for user in everyone:
            excluded = np.zeros(45, bool)
            if filtered:
                excluded[model.users.whole().liked.row(user)] = True
            chosen = best(expected[user].astype(np.float32), 45, excluded)
            found = ids[user, : len(chosen)]
            np.testing.assert_allclose(expected[user, found], expected[user, chosen], atol=2e-5)
            np.testing.assert_allclose(scores[user, : len(chosen)], expected[user, found], atol=2e-5)
    if lift:
        assert not np.array_equal(ids, fitted.recommend(everyone, N=45, popularity=popularity, lift=0.0, by="row")[0])


def test_the_models_own_lift_is_the_default(named: Recommender) -> None:
    own, given = named.recommend(3, N=5, by="row"), named.recommend(3, N=5, lift=1.5, by="row")
    np.testing.assert_array_equal(own[1], given[1])
    assert not np.array_equal(own[1], named.recommend(3, N=5, lift=1.0, by="row")[1])


@pytest.mark.parametrize("lift", [None, 0.7])
def test_every_way_to_ask_has_one_answer(named: Recommender, lift: float | None, tmp_path: Path) -> None:
    model = named.model_
    everyone = np.arange(model.user_count)
    ids, scores = named.recommend(everyone, N=6, lift=lift, by="row")
    table = named.recommend_table(N=6, lift=lift)
    assert table["score"].to_numpy().tolist() == scores.reshape(-1).tolist()
    assert table["item"].to_pylist() == [model.item_ids.id_of(item) for item in ids.reshape(-1)]
    options = RankingOptions(lift=lift)
    for batch in (1, 7, 64):
        assert table == pa.Table.from_batches(named.recommend_batches(N=6, options=options, batch=batch))
    for user in (0, 5, 119):
        np.testing.assert_array_equal(named.recommend(user, N=6, lift=lift, by="row")[1], scores[user])
    named.save(tmp_path / "shards", shards=4)
    sharded = Recommender.load(tmp_path / "shards")
    assert sharded.recommend_table(N=6, lift=lift).equals(table)
    with LocalTasks(2) as tasks:
        recommend_all(tmp_path / "shards", tmp_path / "out", tasks, 6, options)
    assert table == ds.dataset(tmp_path / "out", format="parquet").to_table()
    flags = [] if lift is None else ["--lift", str(lift)]
    named.save(tmp_path / "model")
    result = CliRunner().invoke(app, ["recommend", str(tmp_path / "model"), "u5", "-n", "6", "--json", *flags])
    assert [row["score"] for row in json.loads(result.stdout)] == named.recommend_table("u5", 6, lift=lift)[
        "score"
    ].to_pylist()


def test_threads_change_nothing(fitted: Recommender) -> None:
    users = np.tile(np.arange(120), 5)  # more than one block of users
    expected = fitted.recommend(users, N=10, lift=1.3, by="row")
    for threads in (1, 3):
        again = fitted.set_params(threads=threads).recommend(users, N=10, lift=1.3, by="row")
        np.testing.assert_array_equal(again[0], expected[0])
        np.testing.assert_array_equal(again[1], expected[1])
    fitted.set_params(threads=2)
    np.testing.assert_array_equal(expected[1][:120], expected[1][120:240])


def test_a_new_user_is_lifted_by_the_likes_alone(named: Recommender) -> None:
    model = named.model_
    assert model.consideration is not None
    rows = model.users.whole().liked.row(11)
    likes = [model.item_ids.id_of(int(row)) for row in rows]
    matrix = one_row(rows)
    for lift in (None, 0.0, 2.0):
        table = named.recommend_for(likes, N=8, lift=lift)
        scores = named.recommend(0, matrix, N=8, recalculate_user=True, lift=lift, by="row")[1]
        assert table["score"].to_numpy().tolist() == scores.tolist()
    flat = named.recommend(0, matrix, N=45, recalculate_user=True, lift=0.0, by="row")
    lifted = named.recommend(0, matrix, N=45, recalculate_user=True, lift=2.0, by="row")
    moved = dict(zip(*lifted)), dict(zip(*flat))
    lifts = model.log_lift(Names("item", Vocabulary.range(45)).likes(rows))[0]
    for item in lifted[0]:
        assert moved[0][item] - moved[1][item] == pytest.approx(2.0 * lifts[item], abs=1e-5)
    # someone who is in the model, with other likes: these count
    other = named.recommend(0, matrix, N=8, lift=2.0, filter_already_liked_items=False, by="row")
    assert not np.array_equal(
        other[1], named.recommend(0, N=8, lift=2.0, filter_already_liked_items=False, by="row")[1]
    )


def test_sharpness_is_of_the_ranking_alone_and_is_saved(fitted: Recommender, tmp_path: Path) -> None:
    """The posterior and p(considered) are those of any other sharpness; scores are not."""
    model, blunt = fitted.model_, replace(fitted.model_.plan, sharpness=1)
    other = fitted.model_.with_same_items(plan=blunt)
    liked = model.users.whole().liked
    assert np.abs(model.log_lift(liked) - other.log_lift(liked)).max() > 0.1
    pairs = np.tile(np.arange(45, dtype=np.int32), (120, 1))
    np.testing.assert_array_equal(*(consideration_weights(one, liked, pairs) for one in (model, other)))
    fitted.save(tmp_path / "model.safetensors")
    loaded = Recommender.load(tmp_path / "model.safetensors").model_
    assert loaded.plan.sharpness == 2
    np.testing.assert_array_equal(loaded.log_lift(liked), model.log_lift(liked))


def test_exploring_goes_on_from_the_score(fitted: Recommender) -> None:
    plain = fitted.recommend(4, N=45, lift=1.5, by="row")
    explored = fitted.recommend(4, N=45, lift=1.5, explore_kappa=1e-9, by="row")
    np.testing.assert_array_equal(explored[0], plain[0])
    np.testing.assert_allclose(explored[1], plain[1], atol=1e-5)
    drawn, flat = (dict(zip(*fitted.recommend(4, N=45, lift=lift, thompson_seed=3, by="row"))) for lift in (1.5, 0.0))
    table, liked = fitted.model_.consideration, fitted.model_.users.whole().liked
    assert table is not None
    lifts = lifts_of(table, liked.take(np.array([4])), fitted.model_.plan.sharpness)[0]
    for item, score in drawn.items():
        assert score - flat[item] == pytest.approx(1.5 * lifts[item], abs=1e-5)


def test_who_liked_nothing_gets_popular_items(named: Recommender) -> None:
    for lift in (None, 3.0):
        table = named.recommend_table(["u1", "nobody"], N=4, cold="popular", lift=lift).to_pylist()
        assert [row["cold"] for row in table] == [False] * 4 + [True] * 4
        pi = np.sort(named.model_.log_popularity)[::-1]
        assert [row["score"] for row in table[4:]] == pi[:4].tolist()


def test_the_scorer_has_both_knobs(fitted: Recommender) -> None:
    model = fitted.model_
    users = np.array([3, 9, 7, 100])
    for popularity, lift in ((None, None), (0.5, 2.0), (1.0, 0.0)):
        scorer = ModelScorer(model, popularity, lift=lift)
        k, theta = 0.3 if popularity is None else popularity, 1.2 if lift is None else lift
        assert scorer.name == f"popularity weight {k:g}, lift weight {theta:g}"
        scores = scorer.scores(users)
        assert scores.dtype == np.float32
        np.testing.assert_allclose(scores, brute_force(fitted, k, theta)[users], atol=2e-5)
    likes = skewed(users=60, items=45, seed=8)
    without = replace(model, plan=replace(model.plan, lift=0.0))
    liked = Names("item", Vocabulary.range(45)).likes(likes)
    assert mean_metric(model, likes, "s_rank") != mean_metric(without, likes, "s_rank")
    folded = ModelScorer(model, users=model.fold_in.users(liked), liked=liked, lift=2.0).scores(users[:2])
    flat = ModelScorer(model, users=model.fold_in.users(liked), lift=0.0).scores(users[:2])
    assert model.consideration is not None
    lifts = lifts_of(model.consideration, liked, model.plan.sharpness)
    np.testing.assert_allclose(folded - flat, 2.0 * lifts[users[:2]], atol=2e-5)


def test_items_that_are_added_are_lifted(fitted: Recommender) -> None:
    grown = Recommender(**fitted.get_params())
    grown._model = fitted.model_
    grown.partial_fit_items([45, 46], skewed(users=120, items=45)[:, :2].T.tocsr(), by="row")
    ids, scores = grown.recommend(np.arange(120), N=47, lift=1.0, popularity=0.0, by="row")
    expected = brute_force(grown, 0.0, 1.0)
    for user in range(120):
        found = ids[user][ids[user] >= 0]
        np.testing.assert_allclose(scores[user, : len(found)], expected[user, found], atol=2e-5)
    assert np.isin([45, 46], ids).all()


# --- What cannot be ---


def test_lift_needs_the_table() -> None:
    plain = Recommender(factors=3, sweeps=3, consideration="popularity").fit(skewed(users=60, items=45))
    np.testing.assert_array_equal(plain.recommend(3, lift=0.0, by="row")[1], plain.recommend(3, by="row")[1])
    asked: list[Any] = [
        lambda: plain.recommend(3, lift=1.0, by="row"),
        lambda: plain.recommend_table(3, lift=1.0),
        lambda: plain.recommend_for([3], lift=-1.0),
        lambda: ModelScorer(plain.model_, lift=1.0),
    ]
    for ask in asked:
        with pytest.raises(UsageError, match="fit with consideration='walk'"):
            ask()
    assert ModelScorer(plain.model_).name == "popularity weight 0.5"


@pytest.mark.parametrize("wrong", [np.nan, np.inf, "much", 1e7])
def test_a_lift_is_a_number(fitted: Recommender, wrong: Any) -> None:
    with pytest.raises(UsageError, match=r"lift is .*; it must be a number from -1e6 to 1e6"):
        fitted.recommend(0, lift=wrong, by="row")


def test_the_papers_scores_have_no_lift(fitted: Recommender) -> None:
    with pytest.raises(UsageError, match="score and lift do not go together"):
        fitted.recommend(0, score="like", lift=1.0, by="row")
    ids, scores = fitted.recommend(0, score="like", N=5, by="row")  # the model's own lift is left out
    np.testing.assert_allclose(scores, fitted.predict_proba(0, ids, by="row"), rtol=1e-5)
    assert ModelScorer(fitted.model_, score="like").lift == 0.0


def test_without_likes_there_is_no_lift(named: Recommender, tmp_path: Path) -> None:
    named.save(tmp_path / "model", likes=False)
    bare = Recommender.load(tmp_path / "model")
    with pytest.warns(UserWarning, match="without lift"):
        scores = bare.recommend(5, N=5, filter_already_liked_items=False, by="row")[1]
    np.testing.assert_array_equal(
        scores, named.recommend(5, N=5, filter_already_liked_items=False, lift=0.0, by="row")[1]
    )
    with pytest.warns(UserWarning, match="without lift"):
        bare.recommend_table("u5")
    with pytest.warns(UserWarning, match="without lift"):
        assert ModelScorer(bare.model_).lift == 0.0
    for ask in (lambda: bare.recommend(5, lift=1.0, by="row"), lambda: bare.recommend_table("u5", lift=1.0)):
        with pytest.raises(UsageError, match="needs the user's likes"):
            ask()
    with pytest.raises(UsageError, match="needs the user's likes"):
        ModelScorer(bare.model_, lift=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        likes = named.model_.users.whole().liked.row(11)
        ids = [named.model_.item_ids.id_of(int(row)) for row in likes]
        assert bare.recommend_for(ids, lift=1.0).equals(named.recommend_for(ids, lift=1.0))
        matrix = one_row(named.model_.users.whole().liked.row(5))
        np.testing.assert_array_equal(bare.recommend([5], matrix, by="row")[1], named.recommend([5], by="row")[1])
        bare.recommend_table("u5", lift=0.0)
