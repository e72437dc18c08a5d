"""Recommendations for all users as tasks: the rows of one call, a folder that is complete or not there."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from considerate import Recommender
from considerate.distributed import batch
from considerate.distributed.batch import UserSlice, recommend_all, write_slice
from considerate.distributed.tasks import LocalTasks
from considerate.errors import ModelFileError, OutputError, UnknownIdError, UsageError
from considerate.model.file import open_model, save_model, save_sharded
from considerate.model.ranking import RankingOptions
from considerate.storage.filesystems import Folder
from tests.helpers.models import random_model
from tests.helpers.shell import run

USERS = 1000
BATCH = 64  # in place of 4096: sixteen batches, the last of them short


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One model in both forms."""
    folder = tmp_path_factory.mktemp("models")
    model = random_model(USERS, ids="strings", bias=True)
    save_model(model, folder / "one")
    save_sharded(model, folder / "shards", 7)
    return {"one": folder / "one", "shards": folder / "shards"}


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "BATCH", BATCH)


@pytest.fixture
def tasks() -> Iterator[LocalTasks]:
    with LocalTasks(2) as made:
        yield made


def rows_in(folder: Path) -> pa.Table:
    """What anyone who reads a folder of Parquet files finds."""
    return ds.dataset(folder, format="parquet").to_table()


HOWS: list[dict[str, Any]] = [
    {},
    {"N": 3, "popularity": 0.0},
    {"cold": "popular"},
    {"score": "like", "filter_already_liked_items": False},
    {"thompson_seed": 4, "deny": [3, 4]},
    {"explore_kappa": 1.0, "allow": list(range(20))},
]


@pytest.mark.parametrize("how", HOWS, ids=str)
@pytest.mark.parametrize("form", ["one", "shards"])
def test_the_rows_of_one_call(
    models: dict[str, Path], tmp_path: Path, tasks: LocalTasks, form: str, how: dict[str, Any]
) -> None:
    wanted = pa.Table.from_batches(Recommender.load(models["one"]).recommend_batches(batch=BATCH, **how))
    options = RankingOptions(**{name: value for name, value in how.items() if name != "N"})
    rows = recommend_all(models[form], tmp_path / "out", tasks, how.get("N", 10), options, slice_users=2 * BATCH)
    found = rows_in(tmp_path / "out")
    assert found.equals(wanted)
    assert rows == wanted.num_rows > 0
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["_SUCCESS", *(f"part-{number:05d}.parquet" for number in range(8))]
    assert json.loads((tmp_path / "out" / "_SUCCESS").read_text()) == {"rows": rows, "parts": names[1:]}


@pytest.mark.parametrize("slice_users", [1, 3 * BATCH, 10**6])
@pytest.mark.parametrize("threads", [1, 3])
def test_any_slices_and_any_threads(models: dict[str, Path], tmp_path: Path, slice_users: int, threads: int) -> None:
    """Ranked by matrix products too, whose last bits could depend on who is ranked together."""
    wanted = pa.Table.from_batches(Recommender.load(models["one"]).recommend_batches(batch=BATCH, score="like"))
    done: list[int] = []
    with LocalTasks(threads) as tasks:
        options, output = RankingOptions(score="like"), f"{tmp_path}/out/"
        recommend_all(models["shards"], output, tasks, 10, options, slice_users=slice_users, progress=done.append)
    assert rows_in(tmp_path / "out").equals(wanted)
    assert sum(done) == USERS


def test_a_slice_is_of_whole_batches_and_pickles(models: dict[str, Path], tmp_path: Path) -> None:
    stored, _ = open_model(models["shards"])
    one = UserSlice(str(models["shards"]), stored.header_sha256, Folder.at(tmp_path), 3, 128, 256, 2, RankingOptions())
    part = write_slice(pickle.loads(pickle.dumps(one)))
    assert (part.name, part.users) == ("part-00003.parquet", 128)
    table = pq.read_table(tmp_path / "part-00003.parquet")
    assert part.rows == table.num_rows
    model = Recommender.load(models["one"]).model_
    warm = np.flatnonzero(model.users.whole().degree[128:256] > 0) + 128
    assert table["user"].to_pylist()[::2] == model.user_ids.ids_of(warm)


def test_an_address_that_is_no_disk(models: dict[str, Path], tasks: LocalTasks) -> None:
    rows = recommend_all(models["one"], "mock:///batch/out", tasks, slice_users=5 * BATCH)
    place = Folder.at("mock:///batch/out")
    assert place.names() == [
        "_SUCCESS",
        "part-00000.parquet",
        "part-00001.parquet",
        "part-00002.parquet",
        "part-00003.parquet",
    ]
    parts = [pq.read_table(pa.BufferReader(place.read(name))) for name in place.names()[1:]]
    wanted = pa.Table.from_batches(Recommender.load(models["one"]).recommend_batches(batch=BATCH))
    assert pa.concat_tables(parts).equals(wanted)
    assert rows == wanted.num_rows
    with pytest.raises(OutputError, match="mock:///batch/out: is a folder that is not empty"):
        recommend_all(models["one"], "mock:///batch/out", tasks)


# --- Complete, or not there ---


@pytest.mark.parametrize("place", ["here", "mock"])
def test_a_task_that_fails_leaves_nothing(
    models: dict[str, Path], tmp_path: Path, tasks: LocalTasks, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    began, fail = [], threading.Event()

    def failing(one: UserSlice) -> Any:
        began.append(one.number)
        if one.number == 5:
            fail.set()
            raise OutputError("the disk is full; free some space.")
        return write_slice(one)

    monkeypatch.setattr(batch, "write_slice", failing)
    output = str(tmp_path / "out") if place == "here" else "mock:///fails/out"
    with pytest.raises(OutputError, match="the disk is full"):
        recommend_all(models["one"], output, tasks, slice_users=BATCH)
    assert fail.is_set()
    assert len(began) >= 5
    tasks.close()
    assert list(tmp_path.iterdir()) == []
    assert "_SUCCESS" not in Folder.at(output).names()


def test_ctrl_c_leaves_nothing(models: dict[str, Path], tmp_path: Path, tasks: LocalTasks) -> None:
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        recommend_all(models["shards"], tmp_path / "out", tasks, slice_users=BATCH, progress=interrupt)
    tasks.close()
    assert list(tmp_path.iterdir()) == []


def test_parts_that_another_machine_kept_to_itself(
    models: dict[str, Path], tmp_path: Path, tasks: LocalTasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    def elsewhere(one: UserSlice) -> Any:
        part = write_slice(one)
        if one.number == 1:
            one.folder.remove(one.name)
        return part

    monkeypatch.setattr(batch, "write_slice", elsewhere)
    with pytest.raises(OutputError, match=r"out/part-00001.parquet: .* give a folder that all machines share"):
        recommend_all(models["one"], tmp_path / "out", tasks, slice_users=BATCH)
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_is_replaced_meanwhile(tmp_path: Path) -> None:
    save_model(random_model(100), tmp_path / "model")
    sha256 = open_model(tmp_path / "model")[0].header_sha256
    save_model(random_model(101), tmp_path / "model")
    with pytest.raises(ModelFileError, match="was replaced by another model meanwhile"):
        write_slice(UserSlice(str(tmp_path / "model"), sha256, Folder.at(tmp_path), 0, 0, 10, 2, RankingOptions()))


def test_what_is_refused_before_a_task_begins(
    models: dict[str, Path], tmp_path: Path, tasks: LocalTasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "write_slice", None)
    (tmp_path / "file").write_text("x")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "part-00000.parquet").write_text("x")
    refusals: list[tuple[type[Exception], str, str, dict[str, Any]]] = [
        (OutputError, "is a file where a folder is needed", "file", {}),
        (OutputError, "is a folder that is not empty; remove it", "full", {}),
        (OutputError, "its folder does not exist; make the folder first", "nowhere/out", {}),
        (UsageError, "N is 0", "out", {"N": 0}),
        (UsageError, "slice_users is 0", "out", {"slice_users": 0}),
        (UnknownIdError, "item 999 is not in the model", "out", {"options": RankingOptions(allow=[999])}),
    ]
    for error, message, name, how in refusals:
        with pytest.raises(error, match=message):
            recommend_all(models["one"], tmp_path / name, tasks, **how)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "full"]
    (tmp_path / "empty").mkdir()
    monkeypatch.undo()
    assert recommend_all(models["one"], tmp_path / "empty", tasks) == rows_in(tmp_path / "empty").num_rows


# --- The command ---


@pytest.mark.parametrize("form", ["one", "shards"])
def test_the_command_writes_a_folder_or_a_file(models: dict[str, Path], tmp_path: Path, form: str) -> None:
    how = (models[form], "--all-users", "-n", 4, "--popularity", 0.2)
    done = run("recommend", *how, "-o", tmp_path / "all.parquet", "--json")
    assert done.exit_code == 0, done.output
    for number, where in enumerate([(), ("--backend", "local", "--workers", 2)]):
        made = run("recommend", *how, "-o", f"{tmp_path}/folder{number}/", *where, "--json")
        assert made.exit_code == 0, made.output
        assert json.loads(made.stdout)["rows"] == json.loads(done.stdout)["rows"]
        assert rows_in(tmp_path / f"folder{number}").equals(pq.read_table(tmp_path / "all.parquet"))


def test_bad_use_of_the_command(models: dict[str, Path], tmp_path: Path) -> None:
    model = models["one"]
    file, folder = tmp_path / "all.parquet", f"{tmp_path}/folder/"
    for arguments, message in [
        (("--all-users", "-o", file, "--backend", "ray"), "into a folder: -o FOLDER/"),
        (("u1", "--workers", 2), "into a folder: -o FOLDER/"),
        (("u1", "-o", folder), "end it in .parquet or .csv"),
        (("--all-users", "-o", folder, "--address", "auto"), "--address is for --backend ray"),
        (("--all-users", "-o", folder, "--workers", 0), "--workers is 0"),
        (("--all-users", "-o", folder, "--backend", "cloud"), "cloud"),
        (("--all-users", "-o", folder, "-n", 0, "--backend", "ray"), "N is 0"),
    ]:
        done = run("recommend", model, *arguments)
        assert done.exit_code == 2, arguments
        assert message in done.output.replace("\n", " "), done.output
    assert list(tmp_path.iterdir()) == []
