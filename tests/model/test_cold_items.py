"""Items and users that are known by their features alone: their posterior, ranking, reasons, and the model's file."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import considerate
from considerate import Recommender
from considerate.cli import app
from considerate.data.features import FeatureTable
from considerate.data.read_features import read_features
from considerate.errors import CheckpointError, ModelFileError, OutputError, UsageError
from considerate.evaluation.scorer import ModelScorer
from considerate.inference.features import FeatureRows, FeatureWeights, Regression
from considerate.inference.posterior import Gamma, Precisions, Side
from considerate.model.features import LearnedFeatures, predicted_degree
from considerate.model.model import Model

GENRES = ("drama", "sport", "news")
OWN = 0.5  # E[tau_A]
COLD = {"item": ["i0zz", "zz1", "i03"], "genre": ["sport", "drama", "news"], "year": [2000.0, 1990.0, 2020.0]}


def catalogue() -> dict[str, list[Any]]:
    """Thirty items, ten of a genre."""
    ids = [f"i{n:02d}" for n in range(30)]
    return {"item": ids, "genre": [GENRES[n % 3] for n in range(30)], "year": [1990.0 + n for n in range(30)]}


def likes(users: int = 60) -> dict[str, list[Any]]:
    """User m likes items of genre m mod 3, the first of it most often, and now and then another."""
    random, pairs = np.random.default_rng(0), []
    for m in range(users):
        for n in range(30):
            chance = (0.8 if n % 3 == m % 3 else 0.06) * (1.0 - n / 60)
            if random.random() < chance:
                pairs.append((f"u{m:02d}", f"i{n:02d}"))
    users_, items = zip(*pairs)
    return {"user": list(users_), "item": list(items)}


def learned_of(table: FeatureTable, side: Side, taus: Precisions, name: str, ids: Any) -> LearnedFeatures:
    """A ridge regression of vectors and biases on features, in place of what a fit learns."""
    features = table.align(ids)
    matrix, means = FeatureRows(features).matrix.toarray(), taus.means()

    def weights(columns: Any, tau: float) -> Regression:
        precision = OWN * np.eye(features.count) + tau * matrix.T @ matrix
        spread = np.linalg.inv(np.linalg.cholesky(precision))
        return Regression(np.linalg.solve(precision, tau * matrix.T @ columns), spread, Gamma(2.0 * OWN, 2.0), 0.0)

    biases = weights(side.biases[0][:, None], means[f"{name}_bias"]) if side.has_bias else None
    return LearnedFeatures(features, FeatureWeights(weights(side.mean.astype(np.float64), means[name]), biases))


@lru_cache
def fitted(user_bias: bool = False) -> Recommender:
    recommender = Recommender(factors=4, sweeps=15, user_bias=user_bias, likelihood_weight=1.5, seed=1)
    recommender.fit(likes(), titles={f"i{n:02d}": f"Title {n}" for n in range(30)})
    model = recommender.model_
    items = read_features(catalogue(), "item")
    users = read_features({"user": [f"u{m:02d}" for m in range(60)], "age": [float(m % 3) for m in range(60)]}, "user")
    of_users = learned_of(users, model.users.whole().side, model.precisions, "user", model.user_ids)
    recommender._model = replace(
        model,
        item_features=learned_of(items, model.items, model.precisions, "item", model.item_ids),
        user_features=of_users.with_rows(of_users.features.take(np.empty(0, np.int64))),
    )
    return recommender


def grown(**options: Any) -> Recommender:
    """The model with the cold items; one of the table has likes."""
    before = fitted(**options)
    recommender = Recommender(**before.get_params())
    recommender._model = before.model_
    return recommender.add_items(COLD, titles={"zz1": "New drama"})


def test_new_items_go_into_the_sorted_ids_and_leave_the_others_as_they_are() -> None:
    before, after = fitted(), grown()
    assert list(after.cold_items_) == ["i0zz", "zz1"]
    assert after.model_.item_count == 32
    ids = before.item_ids()
    rows = after.item_rows(ids)
    for old, new in zip(before.model_.items.arrays(), after.model_.items.arrays()):
        np.testing.assert_array_equal(new[rows], old)
    assert after.titles(["i04", "zz1", "i0zz"]) == ["Title 4", "New drama", "i0zz"]
    for user in ("u00", "u17"):
        old, new = before.recommend(user, N=30), after.recommend(user, N=32)
        known = ~np.isin(new.ids, after.cold_items_)
        np.testing.assert_array_equal(new.ids[known], old.ids)
        np.testing.assert_array_equal(new.scores[known], old.scores)
    liked = {user: set(before.item_ids(before.model_.users.whole().liked.row(0)).tolist()) for user in ["u00"]}
    assert not liked["u00"] & set(after.recommend("u00", N=32).ids.tolist())


@pytest.mark.parametrize("user_bias", [False, True])
def test_the_posterior_of_a_cold_item_is_its_prior_with_an_honest_variance(user_bias: bool) -> None:
    after = grown(user_bias=user_bias)
    model, learned = after.model_, fitted(user_bias=user_bias).model_.item_features
    assert learned is not None
    taus, row, weights = model.precisions.means(), int(after.item_rows("zz1")), learned.weights
    f = FeatureRows(model.item_features.features.take(np.array([row]))).matrix.toarray()[0]
    assert f[list(learned.names).index("genre: drama")] == 1.0
    np.testing.assert_allclose(model.items.mean[row], f @ weights.vectors.mean, rtol=1e-5)
    np.testing.assert_allclose(model.items.biases[0][row], f @ learned.bias_mean, rtol=1e-5)
    gram = FeatureRows(learned.features).matrix.toarray()
    gram = gram.T @ gram
    for tau, variance in (
        (taus["item"], model.items.variance[row]),
        (taus["item_bias"], model.items.biases[1][row]),
    ):
        spread = f @ np.linalg.inv(OWN * np.eye(len(f)) + tau * gram) @ f
        np.testing.assert_allclose(model.plan.likelihood_weight * variance, 1.0 / tau + spread, rtol=1e-4)
        assert spread * tau > 1e-3  # without it the test would fail


def test_degrees_are_predicted_by_a_ridge_regression_of_their_logarithm() -> None:
    random = np.random.default_rng(0)
    matrix, degree = random.standard_normal((50, 7)).astype(np.float32), random.integers(0, 100, 50)
    features, new = read_features(matrix).features, read_features(random.standard_normal((5, 7))).features
    liked = np.hstack([matrix, np.ones((50, 1))])[degree > 0]
    logs = np.log(degree[degree > 0])
    solved = np.linalg.solve(liked.T @ liked + 3.0 * np.eye(8), liked.T @ (logs - logs.mean()))
    expected = np.exp(logs.mean() + FeatureRows(new).matrix.toarray() @ solved)
    np.testing.assert_allclose(predicted_degree(features, degree, new), expected, rtol=1e-4)


def test_cold_items_are_ranked_by_taste_with_a_predicted_popularity_and_no_lift() -> None:
    after = grown()
    model, cold = after.model_, after.model_.cold_items
    scorer = ModelScorer(model)
    sport, drama = (int(after.item_rows(item)) for item in ("i0zz", "zz1"))
    for m in range(12):
        ids, scores = after.recommend(f"u{m:02d}", N=32)
        place = {item: at for at, item in enumerate(ids)}
        if m % 3 == 1:
            assert place["i0zz"] < place["zz1"]
        if m % 3 == 0:
            assert place["zz1"] < place["i0zz"]
        expected = scorer.scores(np.array([m]))[0]
        np.testing.assert_allclose(scores, expected[after.item_rows(ids)], rtol=1e-4, atol=1e-4)
        logit = after.predict_logit(f"u{m:02d}", "zz1")[0]
        without_lift = logit + model.plan.popularity * model.log_popularity[drama]
        assert expected[drama] == pytest.approx(without_lift, abs=1e-4)
    assert (model.popularity[cold] > 0).all()
    assert model.popularity[sport] == pytest.approx(
        predicted_degree(model.item_features.features, model.item_degree, model.item_features.features)[sport]
        ** model.gamma,
        rel=1e-6,
    )
    table = after.recommend_table(["u01"], N=32).to_arrow().to_pylist()
    assert {row["item"] for row in table if row["p_considered"] is None} == {"i0zz", "zz1"}


def test_a_new_user_is_folded_in_as_before_there_were_cold_items() -> None:
    before, after = fitted().fold_in(["i01", "i04"]), grown().fold_in(["i01", "i04"])
    np.testing.assert_array_equal(before.rows, after.rows)


def test_reasons_of_a_cold_item_are_its_features_and_add_up_to_its_logit() -> None:
    after = grown()
    why = after.explain("u01", "i0zz")
    assert {name for name, _ in why.because_of} == {"genre: sport", "year"}
    learned, user = after.model_.item_features, after.model_.users.whole().side.mean[1]
    common = learned.weights.vectors.mean[-1] @ user + learned.bias_mean[-1]  # to all items
    logit = after.predict_logit("u01", "i0zz")[0]
    assert sum(share for _, share in why.because_of) + common == pytest.approx(logit, abs=1e-4)
    assert why.because_of[0][0] == "genre: sport"
    assert why.because_of[0][1] > 0
    assert why.p_considered is None
    assert pickle.loads(pickle.dumps(why)).because_of == why.because_of


def test_similar_items_of_a_cold_item_are_of_its_genre() -> None:
    ids, _ = grown().similar_items("i0zz", N=6)
    assert ids[0] == "i0zz"
    assert all(int(item[1:]) % 3 == 1 for item in ids[1:])


def test_likes_of_a_cold_item_make_it_one_like_any_other_with_its_features_as_prior() -> None:
    after = grown()
    fans = [[f"u{m:02d}" for m in range(1, 60, 3)]]
    after.partial_fit_items(["i0zz"], fans)
    assert list(after.cold_items_) == ["zz1"]
    without = Recommender(**after.get_params())
    without._model = replace(fitted().model_, item_features=None)
    without.partial_fit_items(["i0zz"], fans)
    assert not np.array_equal(
        after.model_.items.mean[after.item_rows("i0zz")], without.model_.items.mean[without.item_rows("i0zz")]
    )


def test_users_are_folded_in_from_features_alone_and_with_likes() -> None:
    recommender = fitted()
    learned, taus = recommender.model_.user_features, recommender.model_.precisions.means()
    assert learned is not None
    A = learned.weights.vectors.mean
    alone = recommender.fold_in([[], []], user_features={"age": [0.0, 2.0]})
    f = (np.array([0.0, 2.0]) - 1.0) / np.std([0.0, 1.0, 2.0])
    np.testing.assert_allclose(alone.mean, f[:, None] * A[0] + A[1], rtol=1e-4, atol=1e-6)
    assert (alone.variance * recommender.model_.plan.likelihood_weight >= 1.0 / taus["user"] - 1e-6).all()
    both = recommender.fold_in([["i01", "i04"]], user_features={"age": [2.0]})
    assert not np.allclose(both.mean, recommender.fold_in([["i01", "i04"]]).mean)
    assert not np.allclose(both.mean, alone.mean[1])
    rows = recommender.recommend_for([], N=3, user_features={"age": [2.0]}).to_arrow()
    assert rows.num_rows == 3
    with pytest.raises(UsageError, match="2 rows for 1 users"):
        recommender.fold_in([["i01"]], user_features={"age": [2.0, 1.0]})
    with pytest.raises(UsageError, match="from features; none was given"):
        recommender.recommend_for([])


def test_what_a_model_without_features_is_asked_for_is_refused() -> None:
    plain = Recommender(factors=2, sweeps=2).fit(likes())
    with pytest.raises(UsageError, match="fitted without features of items"):
        plain.add_items(COLD)
    with pytest.raises(UsageError, match="fitted without features of users"):
        plain.fold_in([["i01"]], user_features={"age": [1.0]})
    assert plain.feature_importance() == []


def same(one: Model, other: Model) -> None:
    for name in ("item_features", "user_features"):
        left, right = getattr(one, name), getattr(other, name)
        assert left.features.columns == right.features.columns
        assert left.features.digest() == right.features.digest()
        for mine, theirs in zip(left.weights.parts, right.weights.parts, strict=True):
            assert mine.tau == theirs.tau
            np.testing.assert_array_equal(mine.mean, theirs.mean)
            np.testing.assert_array_equal(mine.spread, theirs.spread)


@pytest.mark.parametrize("shards", [None, 3])
def test_a_saved_model_answers_the_same_and_takes_new_items(tmp_path: Path, shards: int | None) -> None:
    after, path = grown(), tmp_path / "model"
    after.save(path, shards=shards)
    for verify in (True, False):
        loaded = Recommender.load(path, verify=verify)
        same(after.model_, loaded.model_)
        for user in ("u01", "u30"):
            for mine, theirs in zip(after.recommend(user, N=32), loaded.recommend(user, N=32)):
                np.testing.assert_array_equal(mine, theirs)
        assert loaded.explain("u01", "i0zz").because_of == after.explain("u01", "i0zz").because_of
    early = tmp_path / "early"
    fitted().save(early, shards=shards)
    added = Recommender.load(early).add_items(COLD, titles={"zz1": "New drama"})
    for mine, theirs in zip(after.recommend("u01", N=32), added.recommend("u01", N=32)):
        np.testing.assert_array_equal(mine, theirs)


def test_files_whose_features_are_not_possible_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recommender = grown()
    learned = recommender.model_.item_features
    assert learned is not None
    vectors, features = learned.weights.vectors, learned.features
    wrong = {
        "has a feature that is not there": learned.with_rows(replace(features, indices=features.indices + np.int32(9))),
        "not finite": FeatureWeights(replace(vectors, mean=vectors.mean * np.inf), learned.weights.biases),
        "shapes and rates": FeatureWeights(replace(vectors, tau=Gamma(0.0, 1.0)), learned.weights.biases),
    }
    for reason, changed in wrong.items():
        changed = changed if isinstance(changed, LearnedFeatures) else replace(learned, weights=changed)
        recommender._model = replace(recommender.model_, item_features=changed)
        with pytest.raises(OutputError, match=reason):
            recommender.save(tmp_path / "wrong.safetensors")
        with monkeypatch.context() as unchecked:
            unchecked.setattr("considerate.model.file.check_of", lambda *_: None)
            recommender.save(tmp_path / "wrong.safetensors")
        with pytest.raises(ModelFileError, match=reason):
            Recommender.load(tmp_path / "wrong.safetensors")


def test_a_model_fitted_on_matrices_takes_a_matrix_of_new_rows() -> None:
    from scipy.sparse import csr_matrix

    data = likes()
    users, items = ([int(name[1:]) for name in data[side]] for side in ("user", "item"))
    recommender = Recommender(factors=3, sweeps=5).fit(csr_matrix((np.ones(len(users)), (users, items))))
    matrix = np.eye(3, dtype=np.float32)[np.arange(30) % 3]
    model = recommender.model_
    learned = learned_of(read_features(matrix), model.items, model.precisions, "item", model.item_ids)
    recommender._model = replace(model, item_features=learned)
    recommender.add_items(np.eye(3)[[1]])
    assert recommender.cold_items_.tolist() == [30]
    assert recommender.similar_items(30, N=2).ids[1] % 3 == 1


def test_importance_tells_what_moves_vectors_from_what_does_not() -> None:
    importance = fitted().feature_importance()
    assert {feature.name for feature in importance} == {"genre: drama", "genre: news", "genre: sport", "year"}
    assert importance[-1].name == "year"
    assert importance[0].rows == 10
    assert importance[0].deviations > importance[-1].deviations


# --- A fit with features ---


def everything() -> dict[str, list[Any]]:
    """The catalogue with two items that nobody liked, and without one that has likes."""
    table = {name: [*values, *COLD[name][:2]] for name, values in catalogue().items()}
    return {name: values[1:] for name, values in table.items()}


def ages(users: int) -> dict[str, list[Any]]:
    """Users 60 and 61 like nothing; their age tells what they would."""
    return {"user": [f"u{m:02d}" for m in range(users)], "age": [str(m % 3) for m in range(users)]}


@pytest.fixture(scope="module")
def with_features() -> Recommender:
    settings = {"factors": 4, "sweeps": 30, "seed": 1, "likelihood_weight": 1.3}
    return Recommender(**settings).fit(likes(), item_features=everything(), user_features=ages(62))


def test_a_fit_with_features_has_cold_items_and_users_that_it_ranks_by_taste(with_features: Recommender) -> None:
    assert list(with_features.cold_items_) == ["i0zz", "zz1"]
    assert with_features.model_.user_count == 62
    for user, first, second in (("u01", "i0zz", "zz1"), ("u00", "zz1", "i0zz"), ("u60", "zz1", "i0zz")):
        ids = with_features.recommend(user, N=32).ids.tolist()
        assert ids.index(first) < ids.index(second)
    table = with_features.recommend_table(["u61"], N=5).to_arrow()
    assert not any(table["cold"].to_pylist())
    assert sum(int(item[1:3]) % 3 == 1 for item in table["item"].to_pylist() if item[1:3].isdigit()) >= 3


def test_genres_matter_more_than_the_year(with_features: Recommender) -> None:
    assert [feature.name for feature in with_features.feature_importance()][-1] == "year"
    assert {feature.name for feature in with_features.feature_importance("user")} == {"age: 0", "age: 1", "age: 2"}


def test_an_item_without_features_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    Recommender(factors=2, sweeps=1).fit(likes(), item_features=everything())
    assert "1 items have likes and no features" in caplog.text


def test_rows_without_likes_do_not_change_what_is_learned() -> None:
    """Bit for bit: items of the features that nobody liked, and rows of a matrix without likes."""
    plain, more = (
        Recommender(factors=3, sweeps=6).fit(likes(), item_features=table) for table in (catalogue(), everything())
    )
    assert plain.model_.item_count + 2 == more.model_.item_count
    few = {name: values[:-2] for name, values in everything().items()}
    few = read_features(few, columns=["genre"])
    many = read_features(everything(), columns=["genre"])
    one, other = (Recommender(factors=3, sweeps=6).fit(likes(), item_features=table) for table in (few, many))
    rows = other.item_rows(one.item_ids())
    np.testing.assert_array_equal(other.model_.items.rows[rows], one.model_.items.rows)
    np.testing.assert_array_equal(other.model_.users.whole().side.rows, one.model_.users.whole().side.rows)


def test_a_fit_goes_on_from_a_checkpoint_to_the_same_bits_and_not_with_other_features(tmp_path: Path) -> None:
    def fit(sweeps: int, table: Any, **where: Any) -> Recommender:
        return Recommender(factors=3, sweeps=sweeps, tolerance=0).fit(likes(), item_features=table, **where)

    fit(4, everything(), checkpoint=tmp_path)
    resumed, whole = fit(8, everything(), checkpoint=tmp_path, resume=True), fit(8, everything())
    np.testing.assert_array_equal(resumed.model_.items.rows, whole.model_.items.rows)
    with pytest.raises(CheckpointError, match="the items' features differ"):
        fit(9, COLD, checkpoint=tmp_path, resume=True)


def test_evaluate_fits_with_features(tmp_path: Path) -> None:
    """Items of which one like is left are ranked by genre where features are given, and hardly better than others
    without."""
    pairs = list(zip(*likes().values()))
    first = {item: user for user, item in reversed(pairs)}
    held = [item in ("i06", "i07", "i08") and first[item] != user for user, item in pairs]
    train, test = ([pair for pair, out in zip(pairs, held) if out == which] for which in (False, True))
    for name, some in (("train", train), ("test", test)):
        pq.write_table(pa.table({"user": [u for u, _ in some], "item": [n for _, n in some]}), tmp_path / name)
    pq.write_table(pa.table(catalogue()), tmp_path / "items.parquet")
    model, given = Recommender(factors=4, sweeps=15), (tmp_path / "train", tmp_path / "test")
    ranks = [
        considerate.evaluate(model, *given, resamples=5, item_features=features)["considerate"].metrics["S_rank"]
        for features in (None, tmp_path / "items.parquet")
    ]
    assert ranks[1].mean > ranks[0].mean + 0.05
    with pytest.raises(UsageError, match="fitted here"):
        considerate.evaluate("popularity", *given, item_features=catalogue())
    words = "evaluate", "considerate", tmp_path / "train", "--split", tmp_path / "test", "--resamples", 5, "--json"
    shown = [
        CliRunner().invoke(app, [str(word) for word in (*words, *more)])
        for more in ((), ("--item-features", tmp_path / "items.parquet"))
    ]
    assert [done.exit_code for done in shown] == [0, 0]
    assert shown[0].stdout != shown[1].stdout


def test_the_shell_fits_inspects_adds_and_explains(tmp_path: Path) -> None:
    runner, model, grown_model = CliRunner(), tmp_path / "model.safetensors", tmp_path / "grown.safetensors"
    for name, table in (("likes", likes()), ("items", catalogue()), ("new", COLD), ("users", ages(60))):
        pq.write_table(pa.table(table), tmp_path / f"{name}.parquet")

    def shell(*words: Any) -> str:
        done = runner.invoke(app, [str(word) for word in words])
        assert done.exit_code == 0, done.output
        return done.stdout

    features = "--item-features", tmp_path / "items.parquet", "--user-features", tmp_path / "users.parquet"
    columns = "--item-feature-columns", "genre", "--user-feature-columns", "age:category"
    shell("fit", tmp_path / "likes.parquet", *features, *columns, "--factors", 4, "--sweeps", 15, "-o", model)
    described = json.loads(shell("inspect", model, "--json"))["features"]
    assert [feature["name"] for feature in described["item"]["first"]].count("genre: sport") == 1
    assert "genre: sport" in shell("inspect", model)
    shell("add-items", model, tmp_path / "new.parquet", "-o", grown_model)
    rows = json.loads(shell("recommend", grown_model, "u01", "--allow", "i0zz", "--explain", "--json"))
    assert rows[0]["because_of"][0]["feature"] == "genre: sport"
    assert "genre: sport" in shell("recommend", grown_model, "u01", "--allow", "i0zz", "--explain")
    refused = runner.invoke(app, ["fit", str(tmp_path / "likes.parquet"), "--item-feature-columns", "x", "-o", "y"])
    assert refused.exit_code == 2
