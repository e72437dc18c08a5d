"""The report, a model on test data, and `considerate evaluate`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
import pytest

import considerate
from considerate import Recommender, read_interactions
from considerate.data.graph import Adjacency, Graph
from considerate.errors import DataError
from considerate.evaluation import metrics
from considerate.evaluation.bootstrap import interval
from considerate.evaluation.calibration import EQUAL, reliability
from considerate.evaluation.fitted import evaluate_model
from considerate.evaluation.ranks import held_ranks, ranks_and_lists
from considerate.evaluation.report import evaluate
from considerate.evaluation.result import Bootstrap
from considerate.evaluation.scorer import FunctionScorer, ModelScorer
from considerate.evaluation.split import given_likes, one_per_user
from considerate.model.liking import like_probability, logit
from considerate.model.predict import logit_moments
from tests.helpers.likes import skewed
from tests.helpers.shell import answer, run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ratings of 4 and 5 and of 1 to 3, in train.parquet and test.parquet; a model fitted to the first."""
    place = tmp_path_factory.mktemp("evaluate")
    likes = skewed(users=200, items=40, seed=2).toarray() > 0
    random = np.random.default_rng(0)
    considered = likes | (random.random(likes.shape) < 0.15)
    users, items = considered.nonzero()
    rating = np.where(likes[users, items], random.integers(4, 6, len(users)), random.integers(1, 4, len(users)))
    table = pa.table({"user": [f"u{m:03d}" for m in users], "item": items, "rating": rating})
    tested = random.random(len(users)) < 0.3
    tested[np.unique(users, return_index=True)[1]] = False
    pq.write_table(table.filter(pa.array(~tested)), place / "train.parquet")
    strange = pa.table({"user": ["nobody", "u001", "u002"], "item": [3, 999, 998], "rating": [5, 5, 2]})
    test = table.filter(pa.array(tested))
    known = table.filter(pa.array(~tested)).slice(0, 1)
    liked = test.filter(pa.compute.greater(test["rating"], 3)).slice(0, 3)
    twice = liked.set_column(2, "rating", pa.array([1, 2, 3], liked["rating"].type))  # rated low as well: a like
    parts = [test, strange, test.slice(0, 2), known, twice]
    pq.write_table(pa.concat_tables(parts, promote_options="permissive"), place / "test.parquet")
    likes_read = read_interactions(place / "train.parquet", where="rating >= 4")
    Recommender(factors=4, sweeps=6).fit(likes_read).save(place / "model.safetensors")
    return place


RULE = ("--where", "rating >= 4")


def test_the_report_is_its_parts() -> None:
    users, items = skewed().nonzero()
    held = one_per_user(Graph.from_pairs(users.astype(np.int32), items.astype(np.int32), 300, 60), 0)
    table = np.random.default_rng(0).normal(size=(300, 60))
    scorer = FunctionScorer(lambda rows: table[rows], "table")
    p = np.random.default_rng(1).random(len(held.users))
    said = evaluate(scorer, held, (3, 7), p_like=p, resamples=200)
    ranks = held_ranks(scorer, held)
    assert said["name"] == "table"
    assert said["users"] == said["held_out"] == len(held.users)
    for name, values in metrics.user_metrics(ranks, (3, 7)).items():
        one = said["metrics"][name]
        assert one["mean"] == pytest.approx(values.mean())
        assert (one["low"], one["high"]) == pytest.approx(interval(values, resamples=200))
        assert one["low"] <= one["mean"] <= one["high"]
    _, lists = ranks_and_lists(scorer, held, 7)
    degree = held.train.by_item.degrees
    assert said["lists"] == {"k": 7, "coverage": metrics.coverage(lists, 60), "gini": metrics.gini(lists, 60)}
    assert said["metrics"]["popularity@7"]["mean"] == pytest.approx(metrics.mean_popularity(lists, degree).mean())
    tail = degree[held.items] < 100
    assert said["metrics"]["S_rank tail"]["mean"] == pytest.approx(ranks.scores[tail].mean())
    for side in ("user", "item"):
        rows = said["strata"][side]
        assert sum(row["count"] for row in rows) == len(held.users)
        total = sum(row["count"] * row["mean"] for row in rows) / len(held.users)
        assert total == pytest.approx(ranks.scores.mean())
    total = sum(row["count"] * row["mean"] for row in said["errors"]) / len(held.users)
    assert total == pytest.approx((p < 0.5).mean())
    json.dumps(said, allow_nan=False)


def test_popularity_validates_the_evaluator() -> None:
    """On likes that are drawn by popularity alone its score is best, its inverse worst, and guessing in between."""
    random = np.random.default_rng(0)
    appeal = 1.0 / np.arange(1, 81)
    likes = random.random((400, 80)) < 0.8 * appeal
    users, items = likes.nonzero()
    held = one_per_user(Graph.from_pairs(users.astype(np.int32), items.astype(np.int32), 400, 80), 0)
    scores = {"popular": appeal, "inverse": -appeal, "flat": np.zeros(80)}
    found = {
        name: evaluate(FunctionScorer(lambda rows, s=one: np.tile(s, (len(rows), 1)), name), held, (5,), resamples=50)
        for name, one in scores.items()
    }
    for name in ("S_rank", "Recall@5", "NDCG@5", "MRR"):
        means = [found[one]["metrics"][name]["mean"] for one in ("inverse", "flat", "popular")]
        assert means == sorted(means)
        assert means[2] > 1.2 * means[1]
    assert found["flat"]["metrics"]["S_rank"]["mean"] == pytest.approx(0.5, abs=0.01)


def test_a_model_on_test_data_is_the_report_on_the_same_split(folder: Path) -> None:
    model = Recommender.load(folder / "model.safetensors").model_
    train, test = (read_interactions(folder / f"{one}.parquet", where="rating >= 4") for one in ("train", "test"))
    said = evaluate_model(ModelScorer(model), test, bootstrap=Bootstrap(resamples=20))
    known = set(zip(train.user_ids.ids_of(train.users), train.item_ids.ids_of(train.items)))
    pairs = list(zip(test.user_ids.ids_of(test.users), test.item_ids.ids_of(test.items)))
    fresh = read_interactions(
        pa.table(
            {"user": [m for m, n in pairs if (m, n) not in known], "item": [n for m, n in pairs if (m, n) not in known]}
        )
    )
    held = given_likes(train, fresh)
    expected = evaluate(ModelScorer(model), held, resamples=20)
    assert said["metrics"] == {name: pytest.approx(one) for name, one in expected["metrics"].items()}
    assert [row["mean"] for row in said["strata"]["item"]] == [
        pytest.approx(row["mean"]) for row in expected["strata"]["item"]
    ]


def test_likes_that_cannot_be_tested_are_counted(folder: Path) -> None:
    said = answer("evaluate", folder / "model.safetensors", folder / "test.parquet", *RULE, "--resamples", 20)
    table = pq.read_table(folder / "test.parquet").to_pylist()
    train = pq.read_table(folder / "train.parquet").to_pylist()
    known_users = {row["user"] for row in train if row["rating"] >= 4}
    known_items = {row["item"] for row in train if row["rating"] >= 4}
    likes = [row for row in table if row["rating"] >= 4]
    counted = said["test"]
    assert counted["rows"] == len(likes)
    assert counted["unknown_users"] == sum(row["user"] not in known_users for row in likes) >= 1
    assert (
        counted["unknown_items"]
        == sum(row["user"] in known_users and row["item"] not in known_items for row in likes)
        >= 1
    )
    trained = {(row["user"], row["item"]) for row in train if row["rating"] >= 4}
    assert counted["in_training"] == sum((row["user"], row["item"]) in trained for row in likes)
    assert counted["tested"] == said["held_out"]
    names = ("tested", "folded_in", "unknown_users", "unknown_items", "in_training", "duplicates")
    total = sum(counted[name] for name in names)
    assert total == counted["rows"]


def test_new_users_are_folded_in_and_counted(folder: Path, tmp_path: Path) -> None:
    """All likes but the latest are folded in; p(like) is held against what a new user did not like, too."""
    user = ["newcomer"] * 5
    rows = {"user": user, "item": [0, 2, 4, 6, 5], "rating": [5, 5, 4, 5, 1], "date": [1, 9, 2, 3, 4]}
    pq.write_table(pa.table(rows), tmp_path / "new.parquet")
    result = run("evaluate", folder / "model.safetensors", tmp_path / "new.parquet", *RULE, "--resamples", 5)
    assert "1 of them, not in the model: folded in from 3 earlier likes" in " ".join(result.stdout.split())
    said = answer("evaluate", folder / "model.safetensors", tmp_path / "new.parquet", *RULE, "--resamples", 5)
    assert (said["test"]["new_users"], said["test"]["folded_in"], said["test"]["tested"]) == (1, 3, 1)
    model = Recommender.load(folder / "model.safetensors").model_
    liked = Adjacency.of_rows([np.sort(model.item_ids.rows_of([0, 4, 6])).astype(np.int32)])
    side = model.fold_in.users(liked)
    scores = ModelScorer(model, users=side, liked=liked).scores(np.zeros(1, np.int64))[0]
    expected = metrics.rank_score(scores, model.item_ids.row_of(2), liked.indices)
    assert said["metrics"]["S_rank"]["mean"] == pytest.approx(expected)
    popular = metrics.rank_score(model.item_degree, model.item_ids.row_of(2), liked.indices)
    assert said["popularity"]["S_rank"]["mean"] == pytest.approx(popular)
    mean, variance = logit_moments(side, model.items, np.zeros(2, np.int64), model.item_ids.rows_of([2, 5]))
    p = like_probability(mean, model.variance_scale * variance)
    table = reliability(p, np.array([True, False]))
    assert said["calibration"]["raw"]["log_loss"] == pytest.approx(table.log_loss, rel=1e-5)


def test_rows_that_fail_the_rule_make_the_calibration_table(folder: Path) -> None:
    asked = "evaluate", folder / "model.safetensors", folder / "test.parquet", *RULE, "--resamples", 20
    recommender = Recommender.load(folder / "model.safetensors")
    model = recommender.model_
    train = {
        (row["user"], row["item"]) for row in pq.read_table(folder / "train.parquet").to_pylist() if row["rating"] >= 4
    }
    truth: dict[tuple[int, int], bool] = {}
    for row in pq.read_table(folder / "test.parquet").to_pylist():
        pair = model.user_ids.row_of(row["user"]), model.item_ids.row_of(row["item"])
        if min(pair) >= 0 and (row["user"], row["item"]) not in train:
            truth[pair] = truth.get(pair, False) or row["rating"] >= 4
    users, items = (np.array([pair[side] for pair in truth]) for side in (0, 1))
    p, liked = recommender.predict_proba(users, items, by="row"), np.array([*truth.values()])
    for options, weights, words in (((), None, "each pair"), (("--equal-classes",), EQUAL, "equal classes")):
        said, expected = answer(*asked, *options), reliability(p, liked, weights)
        raw = said["calibration"]["raw"]
        assert said["weights"] == words
        assert said["not_liked"]["tested"] == len(truth) - sum(truth.values())
        assert raw["count"] == expected.count.tolist()
        for name in ("calibration_error", "brier", "log_loss", "auc"):
            assert raw[name] == pytest.approx(getattr(expected, name), rel=1e-5)
        assert "recalibrated" not in said["calibration"]
        assert said["calibration"]["recalibrated by other users"]["auc"] == pytest.approx(expected.auc, abs=0.1)


def test_the_knob_and_the_papers_scores(folder: Path) -> None:
    def mean(*options: object) -> float:
        said = answer(
            "evaluate", folder / "model.safetensors", folder / "test.parquet", *RULE, "--resamples", 5, *options
        )
        return said["metrics"]["S_rank"]["mean"]

    model = Recommender.load(folder / "model.safetensors").model_
    assert mean("--popularity", model.plan.popularity) == mean()
    assert len({mean("--popularity", 0), mean("--popularity", 1), mean("--score", "popularity")}) == 3
    result = run(
        "evaluate", folder / "model.safetensors", folder / "test.parquet", *RULE, "--score", "like", "--popularity", 1
    )
    assert result.exit_code == 2


def test_a_recalibrated_model_is_written_and_says_so(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "recalibrated.safetensors"
    said = answer(
        "evaluate", folder / "model.safetensors", folder / "test.parquet", *RULE, "--resamples", 5, "--recalibrate", out
    )
    before, after = Recommender.load(folder / "model.safetensors"), Recommender.load(out)
    line = after.recalibration_
    assert said["recalibration"] == json.loads(json.dumps(line.to_dict()))
    assert (line.pairs, line.training) == (said["test"]["tested"] + said["not_liked"]["tested"], 0)
    assert not line.equal_classes
    assert line.covariates.keys() == {"log_popularity", "lift", "log_likes"}
    assert said["recalibrated"] == line.sentence()
    assert said["recalibrated_model"] == str(out)
    again = answer("evaluate", out, folder / "test.parquet", *RULE, "--resamples", 5)
    assert again["metrics"]["S_rank"] == said["metrics"]["S_rank"], "no ranking changes"
    assert again["calibration"]["raw"] == said["calibration"]["raw"]
    assert again["calibration"]["recalibrated"]["log_loss"] < again["calibration"]["raw"]["log_loss"]
    p = before.predict_proba([0, 1], [2, 3], by="row")
    covariates = after.model_.covariates_of(np.array([0, 1]), np.array([2, 3]))
    assert after.predict_proba([0, 1], [2, 3], by="row") == pytest.approx(line.apply(p, covariates), abs=1e-5)
    assert f"its logit x {line.slope:.3g}" in run("inspect", out).stdout
    assert "as the likes alone give it" in run("inspect", folder / "model.safetensors").stdout
    shown, raw = (
        json.loads(run("recommend", path, "u001", "--interval", "posterior", "--json").stdout)
        for path in (out, folder / "model.safetensors")
    )
    assert [row["item"] for row in shown] == [row["item"] for row in raw]
    user, items = after.model_.user_names().rows("u001"), after.model_.item_names().rows([row["item"] for row in shown])
    covariates = after.model_.covariates_of(user, items)
    for name in ("p_like", "low", "high"):
        wanted = line.apply(np.array([row[name] for row in raw]), covariates)
        assert [row[name] for row in shown] == pytest.approx(wanted, abs=1e-4)
    structure, rows = after.model_.structure, json.loads(run("recommend", out, "u001", "--json").stdout)
    assert said["structure"] == pytest.approx(asdict(structure))
    assert structure != before.model_.structure
    _, deviation = before.predict_logit("u001", [row["item"] for row in rows])
    centre = logit([row["p_like"] for row in rows])
    for name, sign in (("low", -1), ("high", 1)):
        end = centre + sign * 1.644854 * np.sqrt((line.slope * deviation) ** 2 + structure.total)
        assert [row[name] for row in rows] == pytest.approx(1 / (1 + np.exp(-end)), abs=1e-4)


def test_on_the_screen(folder: Path) -> None:
    result = run("evaluate", folder / "model.safetensors", folder / "test.parquet", *RULE, "-k", 5, "-k", 2)
    assert result.exit_code == 0, result.output
    for words in (
        "S_rank",
        "Recall@2",
        "NDCG@5",
        "left out",
        "by the degree of the item",
        "classification error",
        "AUC",
    ):
        assert words in result.stdout, words
    assert "Recall@10" not in result.stdout


def test_without_a_rule_there_are_likes_alone(folder: Path, tmp_path: Path) -> None:
    likes = pq.read_table(folder / "test.parquet", filters=[("rating", ">=", 4)]).drop_columns("rating")
    pq.write_table(likes, tmp_path / "likes.parquet")
    said = answer("evaluate", folder / "model.safetensors", tmp_path / "likes.parquet", "--resamples", 5)
    whole = answer("evaluate", folder / "model.safetensors", folder / "test.parquet", *RULE, "--resamples", 5)
    assert said["metrics"] == whole["metrics"]
    assert "calibration" not in said


def test_a_model_without_likes_warns(folder: Path, tmp_path: Path) -> None:
    Recommender.load(folder / "model.safetensors").save(tmp_path / "bare", likes=False)
    result = run("evaluate", tmp_path / "bare", folder / "test.parquet", *RULE, "--resamples", 5, "--json")
    assert result.exit_code == 0, result.output
    assert "without likes" in result.stderr
    said = json.loads(result.stdout)
    assert said["mean_candidates"] == said["items"]
    assert [row["low"] for row in said["strata"]["item"]] != [0], "degrees are in the file"


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("-k", 0), "whole numbers at least 1"),
        (("--resamples", 0), "whole numbers at least 1"),
        (("--seed", -1), "at least 0"),
        (("--popularity", "nan"), "popularity"),
    ],
)
def test_mistakes_are_one_sentence(folder: Path, arguments: tuple[object, ...], what: str) -> None:
    result = run("evaluate", folder / "model.safetensors", folder / "test.parquet", *RULE, *arguments)
    assert result.exit_code == 2
    assert what in result.stderr
    assert len(result.stderr.strip().splitlines()) <= 2


def test_a_recalibration_needs_a_rule_and_another_file(folder: Path, tmp_path: Path) -> None:
    model, test = folder / "model.safetensors", folder / "test.parquet"
    likes = pq.read_table(test, filters=[("rating", ">=", 4)])
    pq.write_table(likes.drop_columns("rating"), tmp_path / "likes.parquet")
    pq.write_table(likes, tmp_path / "good.parquet")
    cases = [
        ((tmp_path / "likes.parquet",), tmp_path / "out", "considered and not liked"),
        ((tmp_path / "good.parquet", *RULE), tmp_path / "out", "rows that fail the rule"),
        ((test, *RULE), model, ""),
        ((test, *RULE), test, ""),
    ]
    for given, out, what in cases:
        before = out.read_bytes() if out.exists() else None
        result = run("evaluate", model, *given, "--recalibrate", out)
        assert result.exit_code == 2, result.output
        assert what in result.stderr
        assert (out.read_bytes() if out.exists() else None) == before


def test_test_data_of_strangers_is_refused(folder: Path) -> None:
    model = Recommender.load(folder / "model.safetensors").model_
    with pytest.raises(DataError, match="1 of new users with no earlier like, 1 of items"):
        evaluate_model(ModelScorer(model), read_interactions(pa.table({"user": ["x", "u001"], "item": [1, 999]})))


def test_a_user_without_likes_is_not_tested() -> None:
    likes = skewed(users=60, items=20).tolil()
    likes[7] = 0
    model = Recommender(factors=2, sweeps=2).fit(likes.tocsr()).model_
    unseen = [(m, int(np.flatnonzero(likes[m].toarray()[0] == 0)[0])) for m in (7, 8, 9)]
    said = evaluate_model(
        ModelScorer(model),
        read_interactions(pa.table({"user": [7, 8, 9], "item": [n for _, n in unseen]})),
        bootstrap=Bootstrap(resamples=5),
    )
    assert said["test"]["unknown_users"] == 1
    assert said["users"] == 2


def test_several_recommenders_in_the_shell(folder: Path, tmp_path: Path) -> None:
    """Peers by name and model files, on any split, as `considerate.evaluate` has them."""
    table = pq.read_table(folder / "train.parquet")
    table = table.append_column("day", pa.array(np.arange(table.num_rows) % 97))
    pq.write_table(table, tmp_path / "dated.parquet")
    asked = ("considerate", "EASE", "Walk", tmp_path / "dated.parquet", *RULE, "--resamples", 20)
    for split in ("latest", "random", "0.3", "60", "users"):
        said = answer("evaluate", *asked, "--split", split, "--time-column", "day")
        assert [entry["name"] for entry in said["models"]] == ["considerate", "EASE", "Walk", "popularity"]
        number: Any = float(split) if split[0].isdigit() else split
        same = considerate.evaluate(
            "EASE", tmp_path / "dated.parquet", number, where="rating >= 4", time_column="day", resamples=20
        )
        assert said["models"][1]["metrics"]["NDCG@20"]["mean"] == same["EASE"].metrics["NDCG@20"].mean
    model = folder / "model.safetensors"
    again = run("evaluate", model, "EASE", tmp_path / "dated.parquet", *RULE, "--split", "random", "--refit")
    assert again.exit_code == 0, again.output
    assert max(map(len, again.stdout.splitlines())) <= 80
    assert "model" in again.stdout
    given = answer("evaluate", model, "EASE", folder / "train.parquet", *RULE, "--split", folder / "test.parquet")
    whole = answer("evaluate", model, folder / "test.parquet", *RULE)
    ours = given["models"][0]["metrics"]
    assert ours["NDCG@20"]["mean"] == pytest.approx(whole["metrics"]["NDCG@20"]["mean"])
    assert ours["novelty@20"]["mean"] == pytest.approx(whole["metrics"]["novelty@20"]["mean"])


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("model.safetensors", "EASE", "train.parquet", "--split", "random"), "fitted to"),
        (("model.safetensors", "EASE", "test.parquet", "--split", "test"), "no likes for training"),
        (("EASE", "train.parquet", "--split", "latest"), "--time-column"),
        (
            ("EAZE", "EASE", "train.parquet"),
            "neither a model file nor a recommender; there are considerate",
        ),
        (("EASE", "train.parquet", "--lift", "1"), "for one model file"),
        (("EASE", "train.parquet", "--split", "never"), "never"),
    ],
)
def test_mistakes_with_several_are_one_sentence(
    folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], what: str
) -> None:
    monkeypatch.chdir(folder)
    result = run("evaluate", *arguments, *RULE)
    assert result.exit_code == 2, result.output
    assert what in result.stderr
