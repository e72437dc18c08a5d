"""The study where the truth is known: who considered and did not like."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from considerate import Recommender, read_interactions
from considerate.data import ReaderOptions
from considerate.data.graph import run_serially
from considerate.errors import DataError, UsageError
from considerate.evaluation.calibration import reliability
from considerate.evaluation.split import edge_keys, one_per_user
from considerate.study.fits import (
    Compute,
    consider_ours,
)
from considerate.study.material import Material, read_material
from considerate.study.results import Results
from considerate.study.summary import Judgement, considered_by_degree, recalibrate_on_others
from tests.helpers.study_fixtures import SMALL, studied, table

# --- The truth about p(like) ---


def test_rows_that_fail_the_rule_were_considered(tmp_path: Path) -> None:
    data = table(
        tmp_path / "ratings.parquet",
        user=["a", "a", "b", "b", "c", "c", "a", "d", "b", "c"],
        item=["x", "y", "x", "z", "y", "z", "z", "x", "w", "x"],
        rating=[5.0, 4.0, 4.0, 5.0, 5.0, 4.0, 1.0, 2.0, 2.0, None],
    )
    found = read_material(data, ReaderOptions(where="rating >= 4"))
    assert found.graph.edges == 6
    assert found.judged is not None
    assert list(zip(found.judged.users, found.judged.items)) == [
        (0, 2)
    ]  # a and z; d and w have no like, a null is none
    assert not found.judged.apart
    assert any("2 have users or items without a like" in note for note in found.notes)
    assert read_material(data, ReaderOptions(where="rating >= 0 or rating is null")).judged is None  # no row fails
    assert read_material(data, ReaderOptions(where="rating >= 0")).judged is None  # nothing is known of the other row
    assert found.name == tmp_path.name


def test_a_pair_that_is_also_a_like_was_liked(tmp_path: Path) -> None:
    data = table(
        tmp_path / "twice.parquet",
        user=[0, 0, 1, 1, 0, 0, 1],
        item=[0, 1, 0, 1, 0, 2, 2],
        rating=[5, 5, 5, 5, 1, 5, 1],
    )
    found = read_material(data, ReaderOptions(where="rating >= 4"))
    assert found.judged is not None
    assert list(zip(found.judged.users, found.judged.items)) == [(1, 2)]
    assert found.name == "twice"


def test_truth_from_a_set_of_its_own(ratings: Path, tmp_path: Path) -> None:
    everything = pq.read_table(ratings).to_pandas()
    random = np.random.default_rng(0)
    apart = random.random(len(everything)) < 0.3
    train, judged = tmp_path / "train.parquet", tmp_path / "judged.parquet"
    pq.write_table(pa.Table.from_pandas(everything[~apart]), train)
    pq.write_table(pa.Table.from_pandas(everything[apart].rename(columns={"rating": "stars"})), judged)
    with pytest.raises(DataError):
        read_material(str(train), ReaderOptions(where="rating >= 4"), judged=str(judged))
    found = read_material(str(train), ReaderOptions(where="rating >= 4"), judged=str(judged), judged_where="stars >= 4")
    truth = found.judged
    assert truth is not None
    assert truth.apart
    liked = int((everything[apart]["rating"] == 5).sum())
    assert len(truth.liked_users) <= liked
    assert len(truth.liked_users) > 0.9 * liked
    keys = np.concatenate([truth.users, truth.liked_users]) * found.graph.item_count
    keys += np.concatenate([truth.items, truth.liked_items])
    assert len(np.unique(keys)) == len(keys)
    assert not np.isin(keys, edge_keys(found.graph)).any()
    weighted = SMALL | {"likelihood_weight": 5.0}  # with less the vectors all but collapse on so few likes
    results, steps = studied(found, splits=1, settings=weighted)
    assert [stage for stage in steps if stage.startswith("judged")]
    assert all(sum(one.count) == len(keys) for one in results.reliability)
    assert results.considered == []  # what was assigned says nothing of what people consider
    # by the data's own ids, through the public door
    likes = read_interactions(train, where="rating >= 4")
    model = Recommender(**weighted).fit(likes)
    pairs = everything[apart]
    users, items = likes.user_ids.rows_of(pairs["user"]), likes.item_ids.rows_of(pairs["item"])
    known = (users >= 0) & (items >= 0)
    p = model.predict_proba(users[known], items[known], by="row")
    expected = reliability(p, (pairs["rating"] == 5).to_numpy()[known])
    default = next(one for one in results.reliability if one.name == "default")
    assert default.auc == pytest.approx(expected.auc, abs=1e-6)
    assert default.calibration_error == pytest.approx(expected.calibration_error, abs=1e-5)
    assert default.auc > 0.7
    assert default.calibration_error < 0.04, "most users run out of items, and their offsets say so"
    with pytest.raises(UsageError, match="--judged-where goes with --judged"):
        read_material(str(train), ReaderOptions(where="rating >= 4"), judged_where="stars >= 4")


def test_the_name_of_a_database_has_no_password(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "shop.db") as connection:
        connection.execute("create table likes as select 1 as user, 2 as item union select 2, 1 union select 2, 2")
    connection.close()
    material = read_material(f"sqlite:///{tmp_path}/shop.db?table=likes&password=se.cret", ReaderOptions())
    assert (material.name, "cret" in material.source) == ("shop", False)


def test_judged_pairs_need_a_rule(tmp_path: Path) -> None:
    data = table(tmp_path / "likes.parquet", user=[0, 0, 1, 1], item=[0, 1, 0, 1])
    with pytest.raises(UsageError, match="--judged needs a rule"):
        read_material(data, ReaderOptions(), judged=data)


def test_recalibration_is_fitted_on_other_users() -> None:
    """Where one half of the people are told the opposite of the truth, it is the other half that is misled."""
    random = np.random.default_rng(0)
    users = np.repeat(np.arange(400), 50)
    logit = random.normal(0, 1.5, len(users))
    liked = random.random(len(users)) < 1 / (1 + np.exp(-logit))
    bold = 1 / (1 + np.exp(-(2.5 * logit + 1.0)))
    before = reliability(bold, liked).calibration_error
    corrected = recalibrate_on_others(Judgement(users, bold, liked), 0)
    assert before > 0.1
    assert reliability(corrected, liked).calibration_error < 0.02
    people = np.unique(users)
    halves = [
        recalibrate_on_others(Judgement(users, bold, np.where(users == one, ~liked, liked)), 0) for one in people[:4]
    ]
    for one, changed in zip(people[:4], halves):
        same = changed == corrected
        assert same[users == one].all(), "a user's own truth changed the user's own correction"
        assert not same.all()
        assert same.sum() >= len(users) // 2


def test_the_reliability_of_simulated_coins(results: Results) -> None:
    tables = {one.name: one for one in results.reliability}
    assert tables["default"].auc > 0.7
    for name in ("default", "default, recalibrated"):
        assert tables[name].calibration_error < 0.05, "honest without judged pairs, too, though users run out of items"
    likes = 2 * 300  # a held-out one of each user, of two splits: a line of two numbers costs no more than 2 / likes
    assert tables["default, recalibrated"].log_loss < tables["default"].log_loss + 2 / likes


def test_who_considers_what_is_told_from_what_was_never_rated(material: Material, results: Results) -> None:
    held, judged = one_per_user(material.graph, 0), material.judged
    assert judged is not None
    found = consider_ours(judged, held, SMALL | {"consideration": "walk"}, Compute(0, 1, run_serially))
    assert found["names"].tolist() == ["pi", "w", "a", "a + log w"]
    popularity = held.train.by_item.degrees
    truth = np.zeros((held.train.user_count, held.train.item_count), np.int8)
    for pairs, kind in ((material.graph.pairs(), 1), ((judged.users, judged.items), 2)):
        truth[pairs] = kind
    people = [user for user, row in enumerate(truth) if (row == 2).any() and (row == 0).any()]
    assert found["degree"].tolist() == held.train.by_user.degrees[people].tolist()
    for at, user in enumerate(people):
        one, other = (popularity[truth[user] == kind] for kind in (2, 0))
        wins = (one[:, None] > other) + 0.5 * (one[:, None] == other)
        assert found["auc"][0, at] == pytest.approx(wins.mean())
    rows = considered_by_degree(found["names"].tolist(), found["auc"], found["degree"], resamples=20)
    for row, values in zip(rows, found["auc"]):
        assert row.auc == pytest.approx(values.mean())
        assert np.average(row.mean, weights=row.count) == pytest.approx(row.auc)
        assert row.auc_interval[0] <= row.auc <= row.auc_interval[1]
    pi = next(row for row in results.considered if row.name == "pi")  # of the whole study, the same users
    assert pi.auc == pytest.approx(rows[0].auc)
    assert {"a", "pi"} <= {row.name for row in results.considered}
    nobody = replace(judged, users=judged.users[:0], items=judged.items[:0])
    assert consider_ours(nobody, held, SMALL, Compute(0, 1, run_serially))["auc"].size == 0
