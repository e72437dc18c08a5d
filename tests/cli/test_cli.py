"""Every command, through the program itself: its answers, its JSON, its files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

from considerate import Recommender, __version__, read_interactions
from considerate.cli import app
from considerate.data import ReaderOptions
from considerate.inference.plan import Parameters
from considerate.settings import setting
from considerate.storage.container import open_tensors
from tests.helpers.likes import planted
from tests.helpers.shell import answer, run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """likes.csv with names for ids and two duplicates, titles.csv, and a model fitted to them by the shell."""
    place = tmp_path_factory.mktemp("cli")
    users, items = planted(60, 20, seed=1).nonzero()
    table = pa.table(
        {
            "user": [f"u{user:02d}" for user in [*users, *users[:2]]],
            "item": [f"i{item:02d}" for item in [*items, *items[:2]]],
        }
    )
    csv.write_csv(table, place / "likes.csv")
    csv.write_csv(
        pa.table({"item": [f"i{n:02d}" for n in range(20)], "title": [f"Film [{n}]" for n in range(20)]}),
        place / "titles.csv",
    )
    result = run(
        *("fit", place / "likes.csv", "-o", place / "model.safetensors", "--titles", place / "titles.csv"),
        *("--factors", 3, "--sweeps", 8, "--tolerance", 0, "--json"),
    )
    assert result.exit_code == 0, result.output
    (place / "fit.json").write_text(result.stdout)
    (place / "fit.notes").write_text(result.stderr)
    return place


def options_of(command: str) -> dict[str, Any]:
    from typer.main import get_command

    return {one.name: one for one in get_command(app).commands[command].params}  # type: ignore[attr-defined]


# --- The program ---


def test_version_and_help() -> None:
    assert run("--version").stdout.strip() == f"considerate {__version__}"
    for arguments in ([], ["--help"], ["-h"]):
        result = run(*arguments)
        assert result.exit_code == 0
        for name in ("fit", "recommend", "inspect", "simulate", "demo"):
            assert name in result.stdout


def test_help_loads_nothing_heavy() -> None:
    code = """
import sys
import considerate.cli
for arguments in (["--help"], ["fit", "--help"], ["recommend", "--help"], ["inspect", "--help"]):
    sys.argv = ["considerate", *arguments]
    try:
        considerate.cli.main()
    except SystemExit as end:
        assert end.code == 0
heavy = {"numpy", "pyarrow", "scipy", "considerate.recommender"} & set(sys.modules)
assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_options_of_fit_are_the_fields_of_the_recommender() -> None:
    options = options_of("fit")
    for one in fields(Recommender):
        option = options[one.name]
        assert option.opts == ["--" + one.name.replace("_", "-")]
        assert option.default == one.default
        assert one.metadata["text"][1:].replace("[", "\\[") in option.help
    assert {one.name for one in fields(Recommender)} == {one.name for one in fields(Parameters)}
    assert {one.name for one in fields(ReaderOptions)} - {"time_column"} <= set(options)


def test_a_setting_without_a_range_would_be_seen() -> None:
    for one in fields(Parameters):
        meta = one.metadata
        assert set(meta) == set(setting(0, "", "").metadata)
        ranged = (meta["low"] is not None or meta["above"] is not None) and meta["high"] is not None
        assert ranged or meta["choices"] or isinstance(one.default, bool), one.name


def test_a_user_who_is_named_twice_is_answered_twice(folder: Path, tmp_path: Path) -> None:
    model = folder / "model.safetensors"
    twice = answer("recommend", model, "u03", "u04", "u03", "-n", 2)
    assert [row["user"] for row in twice] == ["u03"] * 2 + ["u04"] * 2 + ["u03"] * 2
    assert twice[:2] == twice[4:]
    assert run("recommend", model, "u03", "u04", "u03", "-n", 2).stdout.count("user u03") == 2
    assert run("recommend", model, "u03", "u04", "u03", "-n", 2, "-o", tmp_path / "two.parquet").exit_code == 0
    assert pq.read_table(tmp_path / "two.parquet").to_pylist() == twice


def test_a_terminal_without_unicode_is_no_trouble(folder: Path) -> None:
    code = """
import sys
from considerate.cli import main
for path, *options in ([sys.argv[1]], [sys.argv[2], "--json"]):
    sys.argv[1:] = ["inspect", path, *options]
    try:
        main()
    except SystemExit as end:
        assert end.code == 0
"""
    command = [sys.executable, "-c", code, str(folder / "likes.csv"), str(folder / "model.safetensors")]
    done = subprocess.run(command, capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii"}, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    assert b"degrees of items" in done.stdout
    assert b'"library_version"' in done.stdout


# --- fit ---


def test_fit_says_what_it_did(folder: Path) -> None:
    said = json.loads((folder / "fit.json").read_text())
    likes = read_interactions(folder / "likes.csv")
    fitted = Recommender(factors=3, sweeps=8, tolerance=0).fit(likes)
    assert said["users"] == 60
    assert said["items"] == 20
    assert said["duplicates"] == 2
    assert said["edges"] == likes.rows_kept - 2
    assert said["sweeps"] == 8
    assert said["converged"] is False
    assert said["interrupted"] is False
    assert said["bound"] == fitted.bound_[-1]
    assert said["precisions"] == fitted.precisions_
    assert said["path"] == str(folder / "model.safetensors")
    assert said["seconds"] > 0
    loaded = Recommender.load(folder / "model.safetensors")
    np.testing.assert_array_equal(loaded.user_factors, fitted.user_factors)
    assert loaded.get_params() == fitted.get_params()
    notes = (folder / "fit.notes").read_text()
    assert "titles for 20 of 20 items" in notes
    assert "2 duplicate pairs" in notes
    assert all(line.startswith(("note: ", "warning: ")) for line in notes.splitlines())


def test_fit_prints_a_summary_or_nothing(folder: Path, tmp_path: Path) -> None:
    some = ("fit", folder / "likes.csv", "-o", tmp_path / "m.safetensors", "--factors", 2, "--sweeps", 3)
    result = run(*some)
    assert result.exit_code == 0
    for words in ("60 users, 20 items", "2 duplicates folded", "3 sweeps", "E[tau]", "more may help"):
        assert words in result.stdout
    quiet = run(*some, "--quiet")
    assert quiet.exit_code == 0
    assert quiet.output == ""


def test_every_setting_reaches_the_model(folder: Path, tmp_path: Path) -> None:
    values = {
        "factors": 2,
        "hidden": "expected",
        "negatives": 1.5,
        "considered_are": "some",
        "rate": 0.9,
        "gamma": 0.7,
        "consideration": "walk",
        "neighbours": 7,
        "mixing": 0.2,
        "tilt": 0.0,
        "lift": 0.75,
        "sharpness": 3,
        "head_correction": True,
        "opening": 0,
        "groups": 5,
        "likelihood_weight": 0.5,
        "popularity": 0.25,
        "user_bias": True,
        "posterior": "factorised",
        "prior": "gamma",
        "logistic": "bound",
        "sweeps": 4,
        "tolerance": 0.01,
        "step_delay": 3,
        "precision_delay": 2,
        "prior_shape": 0.1,
        "prior_rate": 0.2,
        "seed": 7,
        "threads": 1,
    }
    assert set(values) == {one.name for one in fields(Recommender)}
    flags = []
    for name, value in values.items():
        flags += ["--" + name.replace("_", "-")] + ([] if value is True else [value])
    answer("fit", folder / "likes.csv", "-o", tmp_path / "m.safetensors", *flags)
    assert Recommender.load(tmp_path / "m.safetensors").get_params() == values


def test_a_model_without_likes_still_knows_its_users(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    answer("fit", folder / "likes.csv", "-o", path, "--factors", 2, "--sweeps", 3, "--no-likes")
    assert answer("inspect", path)["likes"] is False
    result = run("recommend", path, "u00", "-n", 20, "--json")
    assert result.exit_code == 0
    assert len(json.loads(result.stdout)) == 20
    assert "saved without likes" in result.stderr
    assert run("recommend", path, "u00", "--explain").exit_code == 2


@pytest.fixture
def ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every fit is interrupted after its third sweep."""
    whole = Recommender.fit_steps

    def interrupted(*arguments: Any, **options: Any) -> Iterator[Any]:
        with closing(whole(*arguments, **options)) as steps:
            for step in steps:
                yield step
                if step.sweep == 3:
                    raise KeyboardInterrupt

    monkeypatch.setattr(Recommender, "fit_steps", interrupted)


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("backend", [[], ["--out-of-core"]])
def test_ctrl_c_leaves_the_model_that_was_there(folder: Path, tmp_path: Path, backend: list[str]) -> None:
    path = tmp_path / "m.safetensors"
    fit = ("fit", folder / "likes.csv", "-o", path, "--factors", 2, *backend)
    for before in (None, (folder / "model.safetensors").read_bytes()):
        if before is not None:
            path.write_bytes(before)
        result = run(*fit, "--json")
        assert result.exit_code == 130
        assert result.stdout == ""
        assert f"considerate: interrupted; {path} is as it was." in result.stderr
        assert "--save-interrupted" in result.stderr
        assert "--checkpoint" in result.stderr
        assert os.listdir(tmp_path) == ([] if before is None else [path.name])
        assert before is None or path.read_bytes() == before


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_saves_the_last_finished_sweep_if_it_is_told_to(folder: Path, tmp_path: Path) -> None:
    path, checkpoint = tmp_path / "m.safetensors", tmp_path / "checkpoint"
    path.write_bytes((folder / "model.safetensors").read_bytes())
    fit = ("fit", folder / "likes.csv", "-o", path, "--factors", 2, "--save-interrupted", "--json")
    result = run(*fit, "--checkpoint", checkpoint, "--remove-checkpoint")
    assert result.exit_code == 130
    values = json.loads(result.stdout)
    assert (values["interrupted"], values["sweeps"]) == (True, 3)
    assert f"the posterior of sweep 3 is saved in {path}" in result.stderr
    assert os.listdir(checkpoint)  # of a fit that is not finished
    loaded = Recommender.load(path)
    assert loaded.n_iter_ == 3
    assert not loaded.converged_


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_in_a_sharded_fit_leaves_the_model_that_was_there(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "model"
    Recommender.load(folder / "model.safetensors").save(path, shards=2)
    before = {name: (path / name).read_bytes() for name in os.listdir(path)}
    fit = ("fit", folder / "likes.csv", "-o", path, "--factors", 2, "--out-of-core", "--sharded")
    assert run(*fit).exit_code == 130
    assert {name: (path / name).read_bytes() for name in os.listdir(path)} == before
    assert run(*fit, "--save-interrupted").exit_code == 130
    assert Recommender.load(path).n_iter_ == 3


def test_ctrl_c_before_the_first_sweep_saves_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("considerate.fitting.in_memory.make_popularity", interrupted)
    result = run("fit", folder / "likes.csv", "-o", tmp_path / "m.safetensors")
    assert result.exit_code == 130
    assert "interrupted" in result.stderr
    assert os.listdir(tmp_path) == []


# --- recommend ---


def test_recommend_is_what_python_answers(folder: Path) -> None:
    fitted = Recommender.load(folder / "model.safetensors")
    model = folder / "model.safetensors"
    best = fitted.recommend_table(["u03"], 1)["item"][0].as_py()
    assert answer("recommend", model, "u03", "u04", "-n", 4) == fitted.recommend_table(["u03", "u04"], 4).to_pylist()
    for flags, how in (
        (["--popularity", 0], {"popularity": 0.0}),
        (["--score", "popularity_x_like"], {"score": "popularity_x_like"}),
        (["--explore-kappa", 2], {"explore_kappa": 2.0}),
        (["--thompson-seed", 5], {"thompson_seed": 5}),
        (["--include-liked"], {"filter_already_liked_items": False}),
        (["--allow", "i01", "--allow", "i02"], {"allow": ["i01", "i02"]}),
        (["--deny", best], {"deny": [best]}),
    ):
        assert answer("recommend", model, "u03", *flags) == fitted.recommend_table(["u03"], **how).to_pylist()
    assert answer("recommend", model, "--items", "i01", "--items", "i03") == (
        fitted.recommend_for(["i01", "i03"]).to_pylist()
    )


def test_ids_may_come_from_a_file(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "ids").write_text("i01\n\ni02\n")
    model = folder / "model.safetensors"
    assert answer("recommend", model, "u03", "--allow", f"@{tmp_path}/ids") == (
        answer("recommend", model, "u03", "--allow", "i01", "--allow", "i02")
    )
    result = run("recommend", model, "u03", "--deny", f"@{tmp_path}/none")
    assert result.exit_code == 2
    assert "one id a line" in result.stderr


def test_recommend_shows_a_table(folder: Path) -> None:
    result = run("recommend", folder / "model.safetensors", "u03", "u04", "-n", 3, "--explain")
    assert result.exit_code == 0
    for words in ("user u03", "user u04", "p(like)", "90 % interval", "Film [", "because of"):
        assert words in result.stdout
    new = run("recommend", folder / "model.safetensors", "--items", "i01", "-n", 3, "--explain")
    assert "the new user" in new.stdout
    assert "Film [1]" in new.stdout
    liked = answer("recommend", folder / "model.safetensors", "u03", "-n", 20, "--explain")
    reasons = {one["item"] for row in liked for one in row["because"]}
    shown = {row["item"] for row in liked}
    assert reasons
    assert not reasons & shown


def test_a_cold_user_gets_popular_items_marked_as_such(folder: Path) -> None:
    result = run("recommend", folder / "model.safetensors", "nobody", "--cold", "popular")
    assert result.exit_code == 0
    assert "nothing is known of this user" in result.stdout
    assert all(row["cold"] for row in answer("recommend", folder / "model.safetensors", "nobody", "--cold", "popular"))


def test_everyone_goes_into_a_file(folder: Path, tmp_path: Path) -> None:
    model = folder / "model.safetensors"
    whole = Recommender.load(model).recommend_table(N=3)
    said = answer("recommend", model, "--all-users", "-n", 3, "-o", tmp_path / "all.parquet")
    assert said == {"path": str(tmp_path / "all.parquet"), "rows": whole.num_rows}
    assert whole.equals(pq.read_table(tmp_path / "all.parquet"))
    assert run("recommend", model, "--all-users", "-n", 3, "-o", tmp_path / "all.csv").exit_code == 0
    assert csv.read_csv(tmp_path / "all.csv")["item"].to_pylist() == whole["item"].to_pylist()
    answer("recommend", model, "--items", "i01", "-o", tmp_path / "one.parquet")
    assert pq.read_table(tmp_path / "one.parquet")["user"].null_count == 10


def test_vectors_are_exported_whose_products_are_scores(folder: Path, tmp_path: Path) -> None:
    model = folder / "model.safetensors"
    said = answer("recommend", model, "--export-vectors", tmp_path / "v.parquet", "--popularity", 0.25)
    assert (said["users"], said["items"], said["coordinates"]) == (60, 20, 5)
    rows = pq.read_table(tmp_path / "v.parquet").to_pylist()
    vectors = {(row["kind"], row["id"]): np.array(row["vector"]) for row in rows}
    for row in answer("recommend", model, "u07", "--popularity", 0.25, "--lift", 0):
        product = vectors["user", "u07"] @ vectors["item", row["item"]]
        assert product == pytest.approx(row["score"], abs=1e-4)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "say for whom"),
        (["u01", "--items", "i01"], "say for whom"),
        (["--all-users"], "--all-users writes a file"),
        (["u01", "-o", "x.txt"], "end it in .parquet or .csv"),
        (["u01", "-n", "0"], "N is 0"),
        (["u01", "--popularity", "nan"], "popularity is nan"),
        (["u01", "--popularity", "1", "--score", "like"], "do not go together"),
        (["u01", "--score", "best"], "--score"),
        (["u01", "--cold", "x"], "--cold"),
        (["nobody"], "user 'nobody' is not in the model"),
        (["--items", "i99"], "item 'i99' is not in the model"),
        (["u01", "--allow", "i99"], "item 'i99' is not in the model"),
        (["--all-users", "--export-vectors", "v.parquet"], "is for all users and items"),
        (["--export-vectors", "v.csv"], "end it in .parquet"),
        (["--export-vectors", "v.parquet", "--lift", "0.5"], "--lift is 0.5, and no inner product"),
        (["u01", "--explain", "-o", "x.csv"], "--explain is for the screen"),
    ],
)
def test_recommend_refuses_what_makes_no_sense(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("recommend", folder / "model.safetensors", *arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stderr.startswith("considerate: ")
    assert result.stderr.count("\n") == 1
    assert os.listdir(tmp_path) == []


# --- inspect ---


def test_inspect_data(folder: Path) -> None:
    said = answer("inspect", folder / "likes.csv", "--hidden", "--negatives", 1)
    edges = said["edges"]
    assert (said["users"], said["items"], said["duplicates"]) == (60, 20, 2)
    assert said["density"] == edges / (60 * 20)
    assert said["mean_constraint"]["mu_over_N"] == pytest.approx(said["mean_constraint"]["nu_over_M"])
    for side, count in (("user_degrees", 60), ("item_degrees", 20)):
        assert sum(row["count"] for row in said[side]["histogram"]) + said[side]["zeros"] == count
        assert sum(row["law"] for row in said[side]["histogram"]) == pytest.approx(count)
    hidden = said["hidden"]
    assert sum(row["liked"] for row in hidden["items_by_degree"]) == edges
    assert sum(row["unliked"] for row in hidden["items_by_degree"]) == hidden["edges"] - edges
    result = run("inspect", folder / "likes.csv", "--hidden")
    for words in ("density", "eq. 1", "degrees of users", "degrees of items", "exp(-d /", "█", "one drawn H", "of G"):
        assert words in result.stdout


def test_inspect_finds_the_laws_that_data_was_made_with(tmp_path: Path) -> None:
    answer("simulate", "-o", tmp_path / "likes.parquet", "--users", 20000, "--items", 2000)
    said = answer("inspect", tmp_path / "likes.parquet")
    assert said["user_degrees"]["law"]["exponent"] == pytest.approx(1.4, abs=0.05)
    assert said["user_degrees"]["law"]["cutoff"] == pytest.approx(70, rel=0.2)


def test_inspect_a_model(folder: Path) -> None:
    said = answer("inspect", folder / "model.safetensors")
    fitted = Recommender.load(folder / "model.safetensors")
    assert said["parameters"] == fitted.get_params()
    assert said["precisions"] == fitted.precisions_
    assert said["bound"] == pytest.approx(fitted.bound_.tolist())
    assert (said["users"], said["items"], said["titles"], said["likes"]) == (60, 20, True, True)
    assert said["library_version"] == __version__
    result = run("inspect", folder / "model.safetensors")
    for words in ("not converged", "prior spread", "E[tau]", "knob 0.3", "factors=3", "▁"):
        assert words in result.stdout
    assert run("inspect", folder / "model.safetensors", "--hidden").exit_code == 2


# --- simulate ---


def test_simulate_writes_a_graph(tmp_path: Path) -> None:
    small = ("--users", 500, "--items", 100)
    said = answer("simulate", *small, "-o", tmp_path / "likes.parquet")
    table = pq.read_table(tmp_path / "likes.parquet")
    assert table.num_rows == said["edges"]
    assert len(set(zip(table["user"].to_pylist(), table["item"].to_pylist()))) == table.num_rows
    answer("simulate", *small, "-o", tmp_path / "likes.csv")
    assert csv.read_csv(tmp_path / "likes.csv")["item"].to_pylist() == table["item"].to_pylist()
    answer("simulate", *small, "--seed", 1, "-o", tmp_path / "other.parquet")
    assert not pq.read_table(tmp_path / "other.parquet").equals(table)
    assert "law of users" in run("simulate", *small, "-o", tmp_path / "likes.parquet").stdout
    assert run("simulate", *small, "-q", "-o", tmp_path / "likes.parquet").output == ""


def test_simulate_from_the_model_keeps_the_truth(tmp_path: Path) -> None:
    said = answer(
        *("simulate", "--from-model", "--users", 200, "--items", 50, "--factors", 3, "--genres", 4),
        *("-o", tmp_path / "likes.parquet"),
    )
    truth = open_tensors(said["truth"])
    assert truth["user_vectors"].shape == (200, 3)
    table = pq.read_table(tmp_path / "likes.parquet")
    np.testing.assert_array_equal(table["user"].to_numpy(), truth["hidden_users"][truth["liked"]])
    assert said["considered"] == len(truth["liked"])
    likes = read_interactions(tmp_path / "likes.parquet", titles=said["titles"])
    assert likes.titles is not None
    assert likes.titles.of(0)
    assert sorted(os.listdir(tmp_path)) == ["likes.parquet", "likes.titles.parquet", "likes.truth.safetensors"]
    result = run("inspect", said["truth"])
    assert result.exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-o", "x.json"], "end it in .parquet or .csv"),
        (["-o", "x.csv", "--users", "10", "--items", "10000"], "eq. 1"),
        (["-o", "x.csv", "--users", "0"], "users is 0"),
        (["-o", "x.csv", "--xbox", "--users", "7"], "--xbox has its own sizes"),
        (["-o", "x.csv", "--user-cutoff", "-1"], "cutoff is -1"),
        (["-o", "x.csv", "--genres", "3"], "--genres goes with --from-model"),
        (["-o", "x.csv", "--from-model", "--genres", "1"], "genres is 1"),
        (["-o", "x.csv", "--from-model", "--tau-item", "0"], "tau_item is 0"),
        (["-o", "x.csv", "--from-model", "--factors", "0"], "factors is 0"),
        (["-o", "x.csv", "--seed", "-1"], "seed is -1"),
        (["-o", "nowhere/x.csv"], "folder does not exist"),
        ([], "--output"),
    ],
)
def test_simulate_refuses_what_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("simulate", *arguments)
    assert result.exit_code in (1, 2)
    assert words in result.stderr
    assert result.stderr.startswith("considerate: ")
    assert os.listdir(tmp_path) == []


@pytest.mark.data
def test_real_ratings_with_titles(data_dir: Path, tmp_path: Path) -> None:
    ratings, titles = data_dir / "ml-100k" / "ratings.parquet", data_dir / "ml-100k" / "items.parquet"
    refused = run("fit", ratings, "-o", tmp_path / "m.safetensors")
    assert refused.exit_code == 2
    assert "--where" in refused.stderr
    said = answer(
        *("fit", ratings, "--where", "rating >= 4", "--titles", titles, "-o", tmp_path / "m.safetensors"),
        *("--factors", 8, "--sweeps", 10),
    )
    assert said["edges"] == 55375
    assert all(row["title"] for row in answer("recommend", tmp_path / "m.safetensors", "1"))
