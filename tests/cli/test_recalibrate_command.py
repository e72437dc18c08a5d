"""`considerate recalibrate`: files of judged pairs, what is printed and written, and what is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from considerate import Recommender
from tests.cli.test_cli_bad_input import refused
from tests.helpers.judged import fitted, judged_table
from tests.helpers.likes import as_table, skewed
from tests.helpers.refit_fixtures import all_files, assert_same_model
from tests.helpers.shell import answer, run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, the same in shards, and judged pairs."""
    path = tmp_path_factory.mktemp("recalibrate")
    model = fitted()
    model.save(path / "model")
    model.save(path / "shards", shards=3)
    pq.write_table(judged_table(), path / "judged.parquet")
    return path


def as_integers(table: pa.Table) -> pa.Table:
    return table.set_column(2, "liked", pc.cast(table["liked"], pa.int64()))


def as_ratings(table: pa.Table) -> pa.Table:
    return table.set_column(2, "rating", pc.if_else(table["liked"], 5, 2))


def write(table: pa.Table, path: Path) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    else:
        pyarrow.csv.write_csv(table, path)
    return path


@pytest.mark.parametrize("form", ["parquet", "csv"])
@pytest.mark.parametrize(
    ("change", "options"),
    [(lambda table: table, ()), (as_integers, ()), (as_ratings, ("--where", "rating >= 4"))],
    ids=["bool", "integer", "rule"],
)
def test_every_form_of_judged_pairs_gives_the_same_bytes(
    folder: Path, tmp_path: Path, form: str, change: Any, options: tuple[str, ...]
) -> None:
    judged = write(change(judged_table()), tmp_path / f"judged.{form}")
    assert run("recalibrate", folder / "model", judged, "-o", tmp_path / "new", *options).exit_code == 0
    table = judged_table()
    model = Recommender.load(folder / "model")
    model.recalibrate(table["user"].to_pylist(), table["item"].to_pylist(), table["liked"].to_numpy())
    loaded = Recommender.load(tmp_path / "new", verify=True)
    assert loaded.recalibration_ == model.recalibration_
    assert loaded.recalibration_.covariates, "or the test says nothing of them"
    assert loaded.model_.structure == model.model_.structure
    assert loaded.reliability_ == model.reliability_


def test_pairs_left_out_are_counted(folder: Path, tmp_path: Path) -> None:
    """Unknown users and items, and likes of the training; a pair both liked and not liked was liked."""
    table = as_integers(judged_table())
    known = as_table(skewed()).slice(0, 7).append_column("liked", pa.array([1] * 7))
    user, item = (table[name][0].as_py() for name in ("user", "item"))
    more = {"user": ["nobody", "u1", user, user], "item": ["i1", "nothing", item, item], "liked": [1, 0, 0, 1]}
    write(pa.concat_tables([table, known, pa.table(more)]), tmp_path / "judged.parquet")
    found = answer("recalibrate", folder / "model", tmp_path / "judged.parquet", "-o", tmp_path / "new")
    assert found["unknown"] == 2
    assert found["recalibration"]["training"] == 7
    assert found["recalibration"]["pairs"] == len(table)
    truth = table["liked"].to_numpy().copy()
    truth[0] = 1
    direct = Recommender.load(folder / "model")
    direct.recalibrate(table["user"].to_pylist(), table["item"].to_pylist(), truth)
    assert Recommender.load(tmp_path / "new").recalibration_.shift == direct.recalibration_.shift


def test_the_report_has_words_and_figures(folder: Path, tmp_path: Path) -> None:
    result = run("recalibrate", folder / "model", folder / "judged.parquet", "-o", tmp_path / "new", columns=100)
    assert result.exit_code == 0, result.output
    shown = " ".join(result.stdout.split())
    model = Recommender.load(tmp_path / "new")
    assert "900 judged pairs" in shown
    assert "each pair" in shown
    assert "log popularity" in shown
    assert "structural variance" in shown
    assert "recalibrated by other users" in shown
    found = answer("recalibrate", folder / "model", folder / "judged.parquet", "-o", tmp_path / "again")
    raw, others = (found["calibration"][name] for name in ("raw", "recalibrated by other users"))
    assert others["log_loss"] < raw["log_loss"]
    assert others["auc"] > raw["auc"]
    assert found["recalibration"] == model.recalibration_.to_dict()


def test_equal_classes_are_said_everywhere(folder: Path, tmp_path: Path) -> None:
    for options, words in (((), "each pair"), (("--equal-classes",), "equal classes")):
        found = answer("recalibrate", folder / "model", folder / "judged.parquet", "-o", tmp_path / "new", *options)
        assert found["weights"] == words
        assert words in found["recalibrated"]
        model = Recommender.load(tmp_path / "new")
        assert model.recalibration_.equal_classes == (words == "equal classes")
        assert model.reliability_ is not None
        assert model.reliability_.weights == words
        assert words in " ".join(run("inspect", tmp_path / "new").stdout.split())


def test_a_model_may_be_replaced_by_itself(folder: Path, tmp_path: Path) -> None:
    """In a file and in shards: by the bytes that another name gets, and with the same pairs again as if it were raw."""
    for name in ("model", "shards"):
        Recommender.load(folder / name).save(tmp_path / name, shards=3 if name == "shards" else None)
        other = tmp_path / f"other {name}"
        assert run("recalibrate", folder / name, folder / "judged.parquet", "-o", other).exit_code == 0
        for _ in range(2):
            path = tmp_path / name
            assert run("recalibrate", path, folder / "judged.parquet", "-o", path).exit_code == 0
            assert Recommender.load(path, verify=True).recalibration_ == Recommender.load(other).recalibration_
            assert os.path.isdir(path) == (name == "shards")
        if name == "model":
            assert all_files(tmp_path / name) == all_files(other)
    assert_same_model(tmp_path / "model", tmp_path / "other model")


def test_inspect_and_explain_say_it_in_words(folder: Path, tmp_path: Path) -> None:
    assert run("recalibrate", folder / "model", folder / "judged.parquet", "-o", tmp_path / "new").exit_code == 0
    raw, shown = (" ".join(run("inspect", path).stdout.split()) for path in (folder / "model", tmp_path / "new"))
    model = Recommender.load(tmp_path / "new")
    assert "as the likes alone give it" in raw
    assert model.recalibration_.sentence() in shown
    assert "by 900 judged pairs" in shown
    assert "share that was liked" in shown or "liked" in shown
    why = run("recommend", tmp_path / "new", "u1", "--explain", "-n", 3).stdout
    assert "log popularity, by judged pairs" in why
    assert "by judged pairs" not in run("recommend", folder / "model", "u1", "--explain", "-n", 3).stdout
    rows = json.loads(run("recommend", tmp_path / "new", "u1", "--explain", "-n", 3, "--json").stdout)
    for row in rows:
        reasons = model.explain("u1", row["item"])
        told = row.get("recalibrated_by") or row["why"]["recalibrated_by"]
        assert told == [{"number": name, "logit": amount} for name, amount in reasons.recalibrated_by]
        assert len(told) == 1 + len(model.recalibration_.covariates)


# --- Bad input ---


@pytest.mark.parametrize(
    ("table", "options", "words"),
    [
        ({"user": ["u1", "u2"], "item": ["i1", "i2"]}, (), ["liked"]),
        ({"user": ["u1", "u2"], "item": ["i1", "i2"], "liked": ["yes", "no"]}, (), ["liked"]),
        ({"user": ["u1", "u2"], "item": ["i1", "i2"], "rating": [5, 1]}, ("--where", "rating >>= 4"), ["--where"]),
        ({"user": ["u1", "u2"], "item": ["i1", "i2"], "liked": [True, True]}, (), ["all 2 rows are liked"]),
        ({"user": ["u1", "u2"], "item": ["i1", "i2"], "liked": [False, False]}, (), []),
        ({"user": ["x", "y"], "item": ["i1", "i2"], "liked": [True, False]}, (), ["none of the 2 judged pairs"]),
        ({"who": ["u1"], "what": ["i1"], "why": ["x"], "liked": [True]}, (), ["--user-column"]),
    ],
    ids=["no column", "texts", "rule", "all liked", "none liked", "unknown", "columns"],
)
def test_pairs_that_say_nothing_are_refused(
    folder: Path, tmp_path: Path, table: dict[str, Any], options: tuple[str, ...], words: list[str]
) -> None:
    write(pa.table(table), tmp_path / "judged.parquet")
    (tmp_path / "out").mkdir()
    result = run("recalibrate", folder / "model", tmp_path / "judged.parquet", "-o", tmp_path / "out" / "new", *options)
    assert result.exit_code in (1, 2)
    refused(result, result.exit_code, *words)
    assert os.listdir(tmp_path / "out") == []


def test_turned_likes_are_refused_and_the_model_stays(tmp_path: Path) -> None:
    """Liked where p(like) is low: the columns are the wrong way round."""
    model = fitted()
    table = judged_table()
    table = table.set_column(2, "liked", pc.invert(table["liked"]))
    write(table, tmp_path / "judged.parquet")
    model.save(tmp_path / "model")
    before = (tmp_path / "model").read_bytes()
    result = run("recalibrate", tmp_path / "model", tmp_path / "judged.parquet", "-o", tmp_path / "model")
    refused(result, 2, "check which pairs are liked")
    assert (tmp_path / "model").read_bytes() == before


def test_files_that_are_not_there_or_would_be_lost(folder: Path, tmp_path: Path) -> None:
    judged = tmp_path / "judged.parquet"
    write(judged_table(), judged)
    before = judged.read_bytes()
    refused(run("recalibrate", folder / "model", judged, "-o", judged), 2, "is the file that is read")
    assert judged.read_bytes() == before
    refused(run("recalibrate", folder / "nothing", judged, "-o", tmp_path / "new"), 2, "no such file")
    refused(run("recalibrate", folder / "model", tmp_path / "no.parquet", "-o", tmp_path / "new"), 2, "no.parquet")
    refused(run("recalibrate", folder / "model", judged, "-o", tmp_path / "no" / "new"), 1, "make the folder first")
    refused(run("recalibrate", judged, judged, "-o", tmp_path / "new"), 2)
    assert run("recalibrate", folder / "model", judged).exit_code == 2
    assert sorted(os.listdir(tmp_path)) == ["judged.parquet"]
