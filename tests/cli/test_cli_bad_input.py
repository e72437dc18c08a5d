"""Bad input gets one clear sentence and the right exit code, and nothing is lost or left half-written."""

from __future__ import annotations

import os
import sqlite3
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from considerate.inference.plan import Parameters
from considerate.settings import described_range
from tests.helpers.shell import run

LIKES = {"user": [1, 1, 2, 2, 3, 3], "item": [10, 20, 10, 30, 20, 30]}


def refused(result: Any, code: int, *words: str) -> None:
    """One line on stderr that begins with our name, has these words, and no traceback."""
    assert result.exit_code == code, result.output
    errors = [line for line in result.stderr.splitlines() if not line.startswith(("note: ", "warning: "))]
    assert len(errors) == 1, result.stderr
    assert errors[0].startswith("considerate: ")
    assert "Traceback" not in result.output
    assert result.stdout == ""
    for word in words:
        assert word in errors[0]


@pytest.fixture
def likes(tmp_path: Path) -> Path:
    """A small file of likes in a folder of its own; models go to tmp_path / "out"."""
    (tmp_path / "data").mkdir()
    (tmp_path / "out").mkdir()
    path = tmp_path / "data" / "likes.parquet"
    pq.write_table(pa.table(LIKES), path)
    return path


def fit(data: object, *more: object) -> Any:
    output = Path(str(data)).parents[1] / "out" / "model.safetensors"
    return run("fit", data, "-o", output, "--factors", 2, "--sweeps", 2, *more)


def write(likes: Path, name: str, content: Any) -> Path:
    path = likes.with_name(name)
    if isinstance(content, dict):
        pq.write_table(pa.table(content), path)
    else:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("empty.csv", "", ["the file is empty"]),
        ("empty.parquet", "", ["the file is empty"]),
        ("header.csv", "user,item\n", ["no rows"]),
        ("none.parquet", {"user": pa.array([], pa.int64()), "item": pa.array([], pa.int64())}, ["no rows"]),
        ("columns.csv", "who,what,how\n1,2,a\n3,4,b\n", ["who", "what", "--user-column"]),
        ("columns.parquet", {"who": [1, 2], "what": [3, 4], "how": [5, 6]}, ["who", "what", "--user-column"]),
        ("text.parquet", "user,item\n1,2\n", ["ends in .parquet but holds text"]),
        ("zip.csv", b"PK\x03\x04" + bytes(100), ["holds a zip archive"]),
        ("noise.parquet", b"PAR1" + bytes(range(256)), ["cannot be read"]),
        ("nulls.parquet", {"user": [1, None, 2], "item": [1, 2, 3]}, ["null", "user"]),
        ("nulls.csv", "user,item\n1,2\n,3\n2,2\n", ["user"]),
        ("one_user.csv", "user,item\n1,2\n1,3\n1,4\n", ["only one user"]),
        ("one_item.csv", "user,item\n1,2\n2,2\n3,2\n", ["only one item"]),
        ("ratings.csv", "user,item,rating\n1,2,5\n2,3,1\n", ["ratings", "--where"]),
    ],
)
def test_data_that_makes_no_graph(likes: Path, name: str, content: Any, words: list[str]) -> None:
    refused(fit(write(likes, name, content)), 2, *words)
    assert os.listdir(likes.parents[1] / "out") == []


def test_a_missing_column_is_named_with_those_there_are(likes: Path) -> None:
    refused(fit(likes, "--user-column", "customer"), 2, "customer", "user", "item")


def test_nan_ratings(likes: Path) -> None:
    path = write(likes, "nan.parquet", {**LIKES, "rating": [5.0, float("nan"), 4.0, 5.0, 1.0, 5.0]})
    refused(fit(path, "--where", "rating >= 4"), 2, "1 rows have NaN")


def test_a_rule_that_keeps_nothing_or_is_none(likes: Path) -> None:
    refused(fit(likes, "--where", "user > 100"), 2, "keeps none of its 6 rows")
    refused(fit(likes, "--where", "user >"), 2, "--where")
    refused(fit(likes, "--where", "stars > 3"), 2, "stars")


def test_no_such_file_or_database(likes: Path) -> None:
    refused(fit(likes.with_name("none.csv")), 2, "there is no such file")
    output = likes.parents[1] / "out" / "m"
    refused(run("fit", "mysql://here/likes", "-o", output), 2, "mysql:// is not read")
    refused(run("fit", "sqlite:///none.db?table=likes", "-o", output), 2, "there is no file")


def test_the_data_is_never_replaced_by_the_model(likes: Path) -> None:
    before = likes.read_bytes()
    refused(run("fit", likes, "-o", likes), 2, "is the file that is read")
    assert likes.read_bytes() == before


def test_no_input_of_a_fit_is_replaced(likes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = likes.parent
    titles = write(likes, "titles.csv", "item,title\n10,a\n20,b\n30,c\n")
    with sqlite3.connect(folder / "my likes.db") as connection:
        connection.execute("create table likes (user integer, item integer)")
        connection.executemany("insert into likes values (?, ?)", list(zip(*LIKES.values())))
    connection.close()
    (folder / "link").symlink_to(titles)
    os.link(titles, folder / "hard")
    (folder / "parts" / "day=1").mkdir(parents=True)
    part = folder / "parts" / "day=1" / "a.parquet"
    pq.write_table(pa.table(LIKES), part)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(folder))
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    read = "is the file that is read"
    for output in ("titles.csv", "link", "hard", "parts/../titles.csv"):
        refused(run("fit", likes, "--titles", titles, "-o", output), 2, read)
    refused(run("fit", "~/likes.parquet", "-o", "likes.parquet"), 2, read)
    for address in ("sqlite:///my%20likes.db", f"sqlite:///{folder}/my likes.db", f"SQLITE:////{folder}/my likes.db"):
        refused(run("fit", f"{address}?table=likes", "-o", "my likes.db"), 2, read)
        refused(run("fit", address, "--query", "select * from likes", "-o", "my likes.db"), 2, read)
    refused(run("fit", "parts", "-o", part), 2, read)
    refused(run("fit", "parts", "-o", "parts/day=1/new.parquet"), 2, "a folder whose Parquet files are read")
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert run("fit", "parts", "-o", "parts/model", "--factors", 2, "--sweeps", 2).exit_code == 0
    assert sorted(os.listdir("parts")) == ["day=1", "model"]


def test_no_input_of_recommend_is_replaced(likes: Path) -> None:
    assert fit(likes).exit_code == 0
    model = likes.with_name("model.parquet")
    (likes.parents[1] / "out" / "model.safetensors").rename(model)
    users, items = write(likes, "users.csv", "1\n2\n"), write(likes, "items.csv", "10\n20\n")
    before = {path: path.read_bytes() for path in likes.parent.iterdir()}
    read = "is the file that is read"
    refused(run("recommend", model, 1, "-o", model), 2, read)
    refused(run("recommend", model, "--export-vectors", model), 2, read)
    refused(run("recommend", model, f"@{users}", "-o", users), 2, read)
    for option in ("--allow", "--deny"):
        refused(run("recommend", model, 1, option, f"@{items}", "-o", items), 2, read)
    refused(run("recommend", model, "--items", f"@{items}", "-o", items), 2, read)
    assert {path: path.read_bytes() for path in likes.parent.iterdir()} == before


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["-n", "99999999999999999999"], ["N is 99999999999999999999", "from 1 to"]),
        (["-n", "9" * 5000], ["--count"]),
        (["--popularity", "1e38"], ["popularity is 1e+38"]),
        (["--popularity", "nan"], ["popularity is nan"]),
        (["--explore-kappa", "1e300"], ["explore_kappa is 1e+300"]),
        (["--explore-kappa", "-1e300"], ["explore_kappa is -1e+300"]),
    ],
)
def test_numbers_beyond_sense(likes: Path, options: list[str], words: list[str]) -> None:
    assert fit(likes).exit_code == 0
    model = likes.parents[1] / "out" / "model.safetensors"
    for more in ([], ["--json"], ["-o", str(model.with_name("out.csv"))]):
        refused(run("recommend", model, 1, *options, *more), 2, *words)
        refused(run("recommend", model, "--items", 10, *options, *more), 2, *words)
    assert not model.with_name("out.csv").exists()


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"item": [10, 20]}, ["any column except the ids"]),
        ({"item": [10, 20], "genre": ["a", "b"]}, ["no value in 'genre' has 2 rows"]),
        ({"item": [10, 20], "length": [np.nan, np.inf]}, ["no value in 'length' has 2 rows", "finite"]),
        ({"item": pa.array([], pa.int64()), "genre": pa.array([], pa.string())}, ["no rows"]),
    ],
)
def test_features_that_say_nothing(likes: Path, columns: Any, words: list[str]) -> None:
    refused(fit(likes, "--item-features", write(likes, "features.parquet", columns)), 2, *words)
    assert os.listdir(likes.parents[1] / "out") == []


@pytest.mark.parametrize("option", ["--considered", "--impossible"])
def test_pairs_of_other_ids_are_warned_of(likes: Path, option: str) -> None:
    pairs = write(likes, "pairs.parquet", {"user": ["al", "bo"], "item": ["x", "y"]})
    result = fit(likes, option, pairs)
    assert result.exit_code == 0
    assert "warning: no " + option[2:] in result.stderr


def test_text_ids_compared_with_a_number(likes: Path) -> None:
    path = write(likes, "texts.csv", "user,item\nal,x\nbo,y\n")
    refused(fit(path, "--where", "user > 3"), 2, "compares 'user' with a number", "user = '3'")


def test_a_user_who_likes_everything_is_fitted(likes: Path) -> None:
    everything = {"user": [1, 1, 1, 2, 3], "item": [10, 20, 30, 10, 20]}
    path = write(likes, "everything.parquet", everything)
    assert fit(path).exit_code == 0
    model = likes.parents[1] / "out" / "model.safetensors"
    result = run("recommend", model, 1)
    assert result.exit_code == 0
    assert "no item is left to recommend" in result.stdout


def test_items_without_likes_are_no_trouble(likes: Path) -> None:
    ratings = {**LIKES, "rating": [5, 4, 5, 1, 4, 1]}  # nobody likes item 30
    assert fit(write(likes, "ratings.parquet", ratings), "--where", "rating >= 4").exit_code == 0


def test_swapped_columns_are_warned_of(likes: Path) -> None:
    random = np.random.default_rng(0)
    swapped = {"user": random.integers(0, 20, 5000), "item": random.integers(0, 3000, 5000)}
    path = write(likes, "swapped.parquet", swapped)
    result = fit(path)
    assert result.exit_code == 0
    warnings = [line for line in result.stderr.splitlines() if line.startswith("warning: ")]
    assert len(warnings) == 1
    assert "swap --user-column and --item-column" in warnings[0]
    assert "considerate inspect" in warnings[0]
    assert "swapped?" in run("inspect", path).stdout


def test_more_factors_than_items_are_warned_of(likes: Path) -> None:
    result = fit(likes, "--factors", 9)
    assert result.exit_code == 0
    assert "warning: factors=9 is more than the 3 users or items" in result.stderr


def _outside(one: Any) -> list[Any]:
    meta = one.metadata
    if meta["choices"]:
        return ["none-such"]
    found = [meta["above"] if meta["above"] is not None else meta["low"] - 1, meta["high"] + 1]
    return found if meta["integer"] else [*found, "nan", "inf"]


OUTSIDE = [(one, value) for one in fields(Parameters) if not isinstance(one.default, bool) for value in _outside(one)]


@pytest.mark.parametrize(("one", "value"), OUTSIDE, ids=lambda value: getattr(value, "name", str(value)))
def test_a_setting_outside_its_range_is_named_with_the_range(likes: Path, one: Any, value: Any) -> None:
    output = likes.parents[1] / "out" / "m"
    result = run("fit", likes, "-o", output, f"--{one.name.replace('_', '-')}", value)
    refused(result, 2, one.name, described_range(one))
    assert not output.exists()


def test_bad_numbers_and_unknown_options_are_refused(likes: Path) -> None:
    refused(fit(likes, "--factors", "many"), 2, "--factors", "considerate fit --help")
    refused(fit(likes, "--factros", 3), 2, "--factros")
    refused(run("fiit"), 2, "fiit")
    refused(run("fit", likes), 2, "--output")
    refused(run("fit"), 2, "considerate fit --help")


def test_an_output_that_cannot_be_written_is_said_before_the_fit(likes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("the data was read first")

    monkeypatch.setattr("considerate.fitting.in_memory.read_likes", never)
    folder = likes.parents[1]
    refused(run("fit", likes, "-o", folder / "none" / "m.safetensors"), 1, "its folder does not exist")
    refused(run("fit", likes, "-o", folder / "out"), 1, "is a folder")
    refused(run("fit", likes, "-o", likes / "m.safetensors"), 1, "where a folder is needed")
    monkeypatch.setattr("os.access", lambda *_, **__: False)
    refused(run("fit", likes, "-o", folder / "out" / "m.safetensors"), 1, "no permission")


@pytest.mark.skipif(sys.platform == "win32", reason="no RLIMIT_FSIZE")
def test_a_full_disk_leaves_the_old_file(likes: Path) -> None:
    import resource

    assert fit(likes, "--factors", 1000, "--sweeps", 1).exit_code == 0
    out = likes.parents[1] / "out"
    model, old = out / "model.safetensors", out / "old.parquet"
    old.write_bytes(b"what was there before")
    before = model.read_bytes()
    for arguments in (
        ["fit", likes, "-o", model, "--factors", 300, "--sweeps", 1],
        ["recommend", model, "--export-vectors", old],
        ["simulate", "-o", old],
    ):
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
        try:
            result = run(*arguments)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        refused(result, 1, "ulimit -f")
        assert model.read_bytes() == before
        assert old.read_bytes() == b"what was there before"
        assert sorted(os.listdir(out)) == ["model.safetensors", "old.parquet"]


def test_a_model_file_from_another_program(likes: Path) -> None:
    foreign = likes.with_name("foreign.safetensors")
    from safetensors.numpy import save_file

    save_file({"weights": np.zeros(3)}, foreign)
    for command in ("recommend", "inspect"):
        refused(run(command, foreign, *(["1"] if command == "recommend" else [])), 2, "not a considerate model")
    refused(run("recommend", likes, 1), 2, "not a considerate model")
    refused(run("recommend", likes.with_name("none"), 1), 2, "no such file")
    fit(likes)
    model = likes.parents[1] / "out" / "model.safetensors"
    model.write_bytes(model.read_bytes()[:-7])
    refused(run("recommend", model, 1), 2, "was cut short")
    refused(run("inspect", model), 2, "was cut short")


def test_not_enough_memory_is_said_before_the_fit(likes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("considerate.fitting.memory.available_memory", lambda: 1000)
    refused(fit(likes), 1, "This fit needs about", "GB are free")
    assert os.listdir(likes.parents[1] / "out") == []


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError(), "ran out of memory"),
        (OSError(5, "Input/output error", "likes.csv"), "likes.csv: Input/output error"),
    ],
)
def test_trouble_that_no_one_foresaw_is_one_sentence(
    likes: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("considerate.fitting.in_memory.read_likes", fails)
    refused(fit(likes), 1, words)


def test_a_mistake_of_ours_is_not_hidden(likes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("considerate.fitting.in_memory.read_likes", fails)
    assert isinstance(fit(likes).exception, ZeroDivisionError)
