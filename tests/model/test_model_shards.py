"""A model in shards: the same answers as from one file, only the shards that are asked for, damage refused."""

from __future__ import annotations

import gc
import json
import pickle
import random
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from considerate import Recommender, read_interactions
from considerate.cli import app
from considerate.data.vocabulary import Vocabulary
from considerate.errors import ModelFileError, OutputError, UsageError
from considerate.model import shards as model_shards
from considerate.model import shards as shards_module
from considerate.model.file import load_model, open_model, save_model, save_sharded
from considerate.model.model import Model
from considerate.model.shards import INDEX_NAME, ShardedUsers, ShardEntry, write_index, write_user_shard
from considerate.model.users import UserRows
from considerate.storage.container import open_tensors, write_tensors
from tests.helpers.likes import as_table, planted
from tests.helpers.models import assert_same, random_model
from tests.helpers.randomised import count

LIKES: dict[str, Any] = {
    "range": planted(),
    "strings": as_table(planted()),
    "integers": as_table(planted(), "9{}", "-4{}"),
}


def recommender_of(model: Model) -> Recommender:
    made = Recommender(factors=model.factors, threads=1)
    made._model = model
    return made


@pytest.fixture(scope="module")
def fitted() -> Recommender:
    """With everything that a file can hold: string ids, titles, user biases, likes."""
    titles = pa.table({"item": [f"i{n}" for n in range(40)], "title": [f"Title {n}" for n in range(40)]})
    return Recommender(factors=3, sweeps=3, user_bias=True).fit(read_interactions(LIKES["strings"], titles=titles))


@pytest.fixture
def folder(fitted: Recommender, tmp_path: Path) -> Path:
    """Its 200 users in five shards of 40."""
    fitted.save(tmp_path / "model", shards=5)
    return tmp_path / "model"


def shards_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("users-*.safetensors"))


def opened(recommender: Recommender) -> list[int]:
    users = recommender.model_.users
    assert isinstance(users, ShardedUsers)
    return sorted(users._open)


# --- The same answers ---


@pytest.mark.parametrize("ids", list(LIKES))
@pytest.mark.parametrize("settings", [{"hidden": "expected", "groups": 8}, {"user_bias": True}], ids=str)
def test_round_trip_bit_for_bit(tmp_path: Path, settings: dict[str, Any], ids: str) -> None:
    recommender = Recommender(factors=3, sweeps=4, **settings).fit(LIKES[ids])
    recommender.save(tmp_path / "one")
    for shards in (1, 3, 19):
        assert recommender.save(tmp_path / "model", shards=shards) is None
        assert len(shards_in(tmp_path / "model")) == shards
        loaded = Recommender.load(tmp_path / "model")
        assert_same(loaded, recommender)
        loaded.save(tmp_path / "again")
        assert (tmp_path / "again").read_bytes() == (tmp_path / "one").read_bytes()
    for verify in (True, False):
        assert_same(Recommender.load(str(tmp_path / "model"), verify=verify), recommender)
    model, other = recommender.model_, load_model(tmp_path / "model")
    everyone = model.user_ids.ids_of(range(200))
    assert other.user_ids.ids_of(range(200)) == everyone
    assert other.user_ids.rows_of(everyone[::-1]).tolist() == list(range(200))[::-1]
    assert other.user_ids.kind == model.user_ids.kind
    for name, array in model.users.whole().ids.tensors().items():
        np.testing.assert_array_equal(other.users.whole().ids.tensors()[name], array)


@pytest.mark.parametrize("ids", ["range", "strings", "integers"])
@pytest.mark.parametrize("bias", [False, True])
def test_rows_in_any_order_of_any_shards(tmp_path: Path, ids: str, bias: bool) -> None:
    model = random_model(301, ids=ids, bias=bias)
    save_sharded(model, tmp_path / "model", 7)
    one, other = recommender_of(model), recommender_of(load_model(tmp_path / "model"))
    draw = np.random.default_rng(0)
    names = model.user_ids.ids_of(range(301))
    for rows in (draw.integers(0, 301, 500), np.array([300, 0, 0]), np.arange(40, 47), np.empty(0, np.int64)):
        for how in ({}, {"score": "popularity_x_like"}, {"explore_kappa": 0.5}, {"thompson_seed": 3}):
            for a, b in zip(one.recommend(rows, **how, by="row"), other.recommend(rows, **how, by="row")):
                np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(*(each.predict_proba(rows, rows % 40, by="row") for each in (one, other)))
        some = [names[row] for row in rows]
        assert other.model_.user_ids.ids_of(rows) == some
        if some:
            table = one.recommend_table(some, cold="popular")
            assert other.recommend_table(some, cold="popular").equals(table)
    for batch in (10, 43, 500):
        tables = [pa.Table.from_batches(each.recommend_batches(batch=batch)) for each in (one, other)]
        assert tables[0].equals(tables[1])
        assert tables[0].num_rows == 10 * int((model.users.whole().degree > 0).sum())


@pytest.mark.parametrize("limits", [{}, {"filter_users": [0, 7, 300]}, {"users": [5, 6, 299, 300, 12]}], ids=str)
def test_similar_users_shard_by_shard(tmp_path: Path, limits: dict[str, Any]) -> None:
    model = random_model(301)
    model.posterior.users.mean[150:] = model.posterior.users.mean[:151]  # equals, in other shards
    save_sharded(model, tmp_path / "model", 7)
    other = recommender_of(load_model(tmp_path / "model"))
    for rows in (7, np.array([0, 150, 300, 41])):
        for a, b in zip(
            recommender_of(model).similar_users(rows, N=20, **limits, by="row"),
            other.similar_users(rows, 20, **limits, by="row"),
        ):
            np.testing.assert_array_equal(a, b)
    ids, cosines = other.similar_users(7, N=2, by="row")
    assert ids.tolist() == [7, 157]
    assert cosines.tolist() == pytest.approx([1, 1])
    vectors = model.posterior.users.mean / np.linalg.norm(model.posterior.users.mean, axis=1)[:, None]
    assert set(other.similar_users(41, N=25, by="row")[0]) == set(
        np.argsort(-vectors @ vectors[41], kind="stable")[:25]
    )


def test_ids_that_are_not_there(folder: Path, fitted: Recommender) -> None:
    loaded = Recommender.load(folder)
    assert loaded.model_.user_ids.row_of(None) == -1
    for name in ("", "a", "u", "u1000", "u40x", "zz", 7):
        assert loaded.model_.user_ids.row_of(name) == -1
        popular = loaded.recommend_table([name, "u7"], N=2, cold="popular")
        assert popular.equals(fitted.recommend_table([name, "u7"], N=2, cold="popular"))
    with pytest.raises(IndexError):
        loaded.model_.user_ids.id_of(200)
    whole = random_model(60, ids="integers")
    save_sharded(whole, folder, 4)
    ids = load_model(folder).user_ids
    asked = [-1001, -1000, "-1000", "-993", "07", 2**70, 1e3, True, -587, -586, 10**9]
    assert ids.rows_of(asked).tolist() == whole.user_ids.rows_of(asked).tolist() == [-1, 0, 0, 1, *[-1] * 4, 59, -1, -1]


def test_nobody_who_is_known_opens_no_shard(folder: Path, fitted: Recommender) -> None:
    loaded = Recommender.load(folder)
    assert loaded.recommend_for(["i1", "i2"], N=4).equals(fitted.recommend_for(["i1", "i2"], N=4))
    assert loaded.recommend_table(["a stranger"], cold="popular").num_rows == 10
    np.testing.assert_array_equal(loaded.fold_in([1, 2], by="row").rows, fitted.fold_in([1, 2], by="row").rows)
    np.testing.assert_array_equal(loaded.similar_items(3, by="row")[0], fitted.similar_items(3, by="row")[0])
    assert loaded.precisions_ == fitted.precisions_
    assert opened(loaded) == []


# --- Only what is asked for ---


def test_only_the_shard_that_is_needed(folder: Path, fitted: Recommender) -> None:
    for number, path in enumerate(shards_in(folder)):
        if number != 3:
            path.unlink()
    loaded = Recommender.load(folder)
    rows = np.array([120, 159, 130])
    for a, b in zip(loaded.recommend(rows, by="row"), fitted.recommend(rows, by="row")):
        np.testing.assert_array_equal(a, b)
    names = fitted.model_.user_ids.ids_of(rows)
    assert loaded.recommend_table(names).equals(fitted.recommend_table(names))
    assert loaded.explain(120, 3, by="row") == fitted.explain(120, 3, by="row")
    assert loaded.predict_proba(159, 4, by="row") == fitted.predict_proba(159, 4, by="row")
    assert opened(loaded) == [3]
    missing = r"users-00004-[0-9a-f]{8}\.safetensors: is missing, and the index names it; copy the whole folder"
    with pytest.raises(ModelFileError, match=missing):
        loaded.recommend([120, 160], by="row")
    with pytest.raises(ModelFileError, match=r"users-00000-.* is missing"):
        loaded.user_factors  # noqa: B018
    with pytest.raises(ModelFileError, match="is missing"):
        Recommender.load(folder, verify=True)


@pytest.mark.slow
def test_no_array_of_all_users_is_made(tmp_path: Path) -> None:
    """Ten times as many users in shards of the same size: the same memory, to load and to answer for some."""
    peaks = []
    for users in (10_000, 100_000):
        path = tmp_path / str(users)
        save_sharded(random_model(users, ids="strings"), path, users // 2000)
        gc.collect()
        tracemalloc.start()
        loaded = Recommender.load(path)
        loaded.recommend(np.array([5, users - 1]), by="row")
        loaded.recommend_table(["u17", "u9999"], cold="popular")
        loaded.predict_proba(77, 3, by="row")
        loaded.explain(3, 4, by="row")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert len(opened(loaded)) <= 5
    assert peaks[1] - peaks[0] < 90_000 / 2  # half a byte for each user more: the list of shards


@pytest.mark.slow
def test_saving_to_one_file_has_a_shard_in_memory_at_a_time(tmp_path: Path) -> None:
    model = random_model(40_000, factors=48)  # rows dwarf the ids
    save_sharded(model, tmp_path / "model", 40)
    save_model(model, tmp_path / "one")
    size = (tmp_path / "one").stat().st_size
    loaded = Recommender.load(tmp_path / "model")
    gc.collect()
    tracemalloc.start()
    loaded.save(tmp_path / "again")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (tmp_path / "again").read_bytes() == (tmp_path / "one").read_bytes()
    assert peak < size / 8


def test_no_more_shards_are_open_than_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards_module, "MAPPED", 3)
    model = random_model(200)
    save_sharded(model, tmp_path / "model", 20)
    loaded = recommender_of(load_model(tmp_path / "model"))
    rows = np.arange(0, 200, 7)
    np.testing.assert_array_equal(
        loaded.recommend(rows, by="row")[0], recommender_of(model).recommend(rows, by="row")[0]
    )
    assert opened(loaded) == [17, 18, 19]


def test_threads_that_ask_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards_module, "MAPPED", 2)
    model = random_model(200)
    save_sharded(model, tmp_path / "model", 10)
    loaded, wanted = (
        recommender_of(load_model(tmp_path / "model")),
        recommender_of(model).recommend(np.arange(200), by="row")[0],
    )
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda row: loaded.recommend(row % 200, by="row")[0], range(400)))
    for row, ids in enumerate(found):
        np.testing.assert_array_equal(ids, wanted[row % 200])


def test_a_loaded_model_goes_on_when_the_working_folder_changes(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fitted: Recommender
) -> None:
    monkeypatch.chdir(tmp_path)
    loaded = Recommender.load("model")
    monkeypatch.chdir("/")
    np.testing.assert_array_equal(loaded.user_factors, fitted.user_factors)


def test_a_model_in_shards_pickles_as_an_address(folder: Path, fitted: Recommender) -> None:
    loaded = Recommender.load(folder)
    loaded.recommend(np.arange(200), by="row")
    data = pickle.dumps(loaded)
    assert len(data) < len(pickle.dumps(fitted)) - fitted.user_factors.nbytes
    assert_same(pickle.loads(data), fitted)


def test_a_model_elsewhere_is_read_shard_by_shard(fitted: Recommender) -> None:
    """A filesystem of pyarrow's that is not a disk here: shards are read into memory, and few are kept."""
    fitted.save("mock:///shards/model", shards=9)
    loaded = Recommender.load("mock:///shards/model")
    loaded.recommend([0, 199], by="row")
    assert opened(loaded) == [0, 8]
    assert_same(loaded, fitted)
    assert len(opened(loaded)) == shards_module.COPIED
    with pytest.raises(ModelFileError, match="mock:///nothing/model: no such file"):
        Recommender.load("mock:///nothing/model")


# --- Changes ---


def test_a_model_in_shards_can_be_changed_and_fitted(tmp_path: Path) -> None:
    likes = planted()
    recommender = Recommender(factors=3, sweeps=3).fit(likes)
    recommender.save(tmp_path / "model", shards=4)
    loaded = Recommender.load(tmp_path / "model")
    pairs = np.arange(200).repeat(2), np.tile([1, 2], 200), np.tile([True, False], 200)
    for one in (recommender, loaded):
        one.recalibrate(*pairs, by="row")
    assert loaded.recalibration_ == recommender.recalibration_
    assert isinstance(loaded.model_.users, ShardedUsers)  # whose users nothing has put together
    for one in (recommender, loaded):
        one.partial_fit_users([3, 200], likes[[4, 5]], by="row")
        one.partial_fit_items([7, 40], likes.T.tocsr()[[8, 9]].tocsr(), by="row")
    np.testing.assert_array_equal(loaded.user_factors, recommender.user_factors)
    np.testing.assert_array_equal(loaded.item_factors, recommender.item_factors)
    loaded.save(tmp_path / "model", shards=3)
    again = Recommender.load(tmp_path / "model")
    np.testing.assert_array_equal(
        again.recommend(np.arange(201), by="row")[0], recommender.recommend(np.arange(201), by="row")[0]
    )
    np.testing.assert_array_equal(
        loaded.fit(likes).user_factors, Recommender(factors=3, sweeps=3).fit(likes).user_factors
    )


def test_without_the_likes(tmp_path: Path, fitted: Recommender) -> None:
    fitted.save(tmp_path / "model", shards=3, likes=False)
    fitted.save(tmp_path / "one", likes=False)
    loaded = Recommender.load(tmp_path / "model")
    assert not any(name.startswith("likes") for path in shards_in(tmp_path / "model") for name in open_tensors(path))
    assert not loaded.model_.users.knows_likes
    assert len(loaded.recommend(0, N=40, by="row")[0]) == 40
    assert loaded.recommend_table(["u5"], N=3).num_rows == 3
    with pytest.raises(UsageError, match="saved without the likes"):
        loaded.explain(0, 1, by="row")
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "one").read_bytes()
    loaded.save(tmp_path / "other", shards=2)
    assert not Recommender.load(tmp_path / "other").model_.users.knows_likes


def test_the_same_model_gives_the_same_files(folder: Path, fitted: Recommender, tmp_path: Path) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    Recommender.load(folder).save(folder, shards=5)  # over the files that it reads from
    fitted.save(tmp_path / "again", shards=5)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert {path.name: path.read_bytes() for path in (tmp_path / "again").iterdir()} == before
    Recommender.load(folder).save(folder, shards=2)
    assert sorted(path.name for path in folder.iterdir())[1:] == [path.name for path in shards_in(folder)]
    assert len(shards_in(folder)) == 2
    assert_same(Recommender.load(folder), fitted)


def test_a_save_that_fails_leaves_the_model_that_was_there(
    folder: Path, fitted: Recommender, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    calls = []

    def failing(place: Any, number: int, *others: Any, likes: bool) -> ShardEntry:
        calls.append(number)
        if number == 2:
            raise KeyboardInterrupt
        return write_user_shard(place, number, *others, likes=likes)

    monkeypatch.setattr("considerate.model.file.write_user_shard", failing)
    with pytest.raises(KeyboardInterrupt):
        Recommender(factors=2, sweeps=1).fit(planted()).save(folder, shards=4)
    assert calls == [0, 1, 2]
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_shards_without_their_index_do_not_disturb_the_model_that_is_there(folder: Path, fitted: Recommender) -> None:
    """What a killed save leaves behind: the old model is whole, and the next save removes what it left."""
    other = random_model(50).users.whole()
    write_user_shard(str(folder), 0, 0, other)
    assert len(shards_in(folder)) == 6
    assert_same(Recommender.load(folder), fitted)
    fitted.save(folder, shards=5)
    assert len(shards_in(folder)) == 5


def test_places_that_are_none(tmp_path: Path, folder: Path, fitted: Recommender) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "likes.parquet").write_text("x")
    with pytest.raises(OutputError, match="is a file where a folder is needed"):
        fitted.save(tmp_path / "file", shards=2)
    with pytest.raises(OutputError, match=r"with other files in it \(likes.parquet\); give a new one"):
        fitted.save(tmp_path / "data", shards=2)
    with pytest.raises(OutputError, match="is a folder"):
        fitted.save(folder)
    for shards in (0, 201, -1, 2.5, True, "3"):
        with pytest.raises(UsageError, match="a whole number from 1 to the 200 users"):
            fitted.save(tmp_path / "new", shards=shards)  # type: ignore[arg-type]
    for name in (INDEX_NAME, shards_in(folder)[0].name):
        with pytest.raises(ModelFileError, match="is a part of a model in shards; give the folder that it is in"):
            load_model(folder / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "file", "model"]


# --- Shards that are written where the parts live ---


def written(folder: Path, model: Model, cuts: list[int], likes: bool = True) -> list[ShardEntry]:
    entries = []
    for number, (first, last) in enumerate(pairwise(cuts)):
        users, rows = model.users.some(np.arange(first, last))
        one = users.take(rows)
        if model.user_ids.kind == "range":
            one = replace(one, ids=Vocabulary.range(last - first))
        entries.append(write_user_shard(str(folder), number, first, one, likes=likes))
    return entries


@pytest.mark.parametrize("ids", ["range", "strings", "integers"])
def test_parts_of_any_size_and_an_index_without_users(tmp_path: Path, ids: str) -> None:
    model = random_model(100, ids=ids, bias=True)
    entries = [pickle.loads(pickle.dumps(one)) for one in written(tmp_path / "model", model, [0, 1, 60, 100])]
    nobody = UserRows(
        *(getattr(model.users.whole().take(np.empty(0, np.int64)), name) for name in ("side", "degree", "liked", "ids"))
    )
    write_index(str(tmp_path / "model"), replace(model, users=nobody), entries[::-1])
    save_model(load_model(tmp_path / "model"), tmp_path / "one")
    save_model(model, tmp_path / "wanted")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "wanted").read_bytes()


def test_entries_that_make_no_model(tmp_path: Path) -> None:
    model = random_model(100, ids="strings")
    entries = written(tmp_path / "model", model, [0, 30, 60, 100])

    def refuse(message: str, *given: ShardEntry) -> None:
        with pytest.raises((UsageError, OutputError), match=message):
            write_index(str(tmp_path / "model"), model, given)

    first, second, third = entries
    refuse("at least one")
    refuse("ends before row 30, the next begins at 60", first, third)
    refuse("ends before row 30, the next begins at 29", first, replace(second, first=29), third)
    refuse("begins at row 0", second, third)
    refuse("their forms differ", first, replace(second, likes=False), third)
    refuse("their forms differ", first, replace(second, kind="integer"), third)
    refuse("do not come after", first, replace(second, ids=first.ids), third)
    refuse("its own number", first, replace(second, number=0), third)
    refuse("not of a model of 5 factors", *(replace(one, bias=True) for one in entries))
    refuse("a folder that all machines share", first, replace(second, sha256="0" * 64), third)
    refuse("a folder that all machines share", first, replace(second, bytes=1), third)
    assert not (tmp_path / "model" / INDEX_NAME).exists()
    write_index(str(tmp_path / "model"), model, entries)
    load_model(tmp_path / "model", verify=True)
    users = model.users.whole()
    with pytest.raises(UsageError, match="give as many"):
        write_user_shard(str(tmp_path), 0, 0, replace(users, degree=users.degree[:-1]), likes=False)
    with pytest.raises(UsageError, match="not as many as its degree says"):
        write_user_shard(str(tmp_path), 0, 0, replace(users, degree=users.degree + 1))


# --- Damage ---


def ask(folder: Path) -> None:
    """Load, and use every user."""
    Recommender.load(folder).recommend(np.arange(200), N=3, by="row")


def test_flipped_bits_and_truncation(folder: Path) -> None:
    draw = random.Random(0)
    files = [folder / INDEX_NAME, *shards_in(folder)]
    for _ in range(count(120, 40)):
        path = draw.choice(files)
        content = path.read_bytes()
        damaged = bytearray(content)
        damaged[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        path.write_bytes(damaged if draw.random() < 0.7 else content[: draw.randrange(len(content))])
        with pytest.raises(ModelFileError):
            ask(folder)
        with pytest.raises(ModelFileError):
            load_model(folder, verify=True)
        path.write_bytes(content)
    ask(folder)
    files[2].write_bytes(files[2].read_bytes() + b"\0")
    with pytest.raises(ModelFileError, match="bytes added at its end"):
        ask(folder)
    files[2].write_bytes(b"")
    with pytest.raises(ModelFileError, match=r"users-00001-.*: is empty"):
        ask(folder)


def test_an_index_of_another_model(folder: Path, tmp_path: Path, fitted: Recommender) -> None:
    other = Recommender(factors=3, sweeps=2, user_bias=True).fit(LIKES["strings"])
    other.save(tmp_path / "other", shards=5)
    (folder / INDEX_NAME).write_bytes((tmp_path / "other" / INDEX_NAME).read_bytes())
    loaded = Recommender.load(folder)
    with pytest.raises(ModelFileError, match=r"users-00001-.* is missing, and the index names it"):
        loaded.recommend(40, by="row")
    for wanted, given in zip(shards_in(tmp_path / "other"), shards_in(folder)):  # nor under the names that it has
        (folder / wanted.name).write_bytes(given.read_bytes())
    with pytest.raises(ModelFileError, match="is not the shard that the index names; copy or save the whole model"):
        loaded.recommend(40, by="row")
    one = shards_in(tmp_path / "other")[0]
    other.save(one)
    (folder / INDEX_NAME).write_bytes(one.read_bytes())
    with pytest.raises(ModelFileError, match="is not the index of a model in shards"):
        load_model(folder)


def parts_of(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    stored = open_tensors(path)
    return {name: stored[name].copy() for name in stored}, dict(stored.metadata)


INDEX_CHANGES: dict[str, Callable[[dict[str, Any], dict[str, Any]], Any]] = {
    "overlap, or leave users out .*": lambda tensors, _: tensors["shards.first"].__setitem__(2, 79),
    "overlap, or leave users out ..*": lambda tensors, _: tensors["shards.first"].__setitem__(0, 1),
    "overlap, or leave users out ...*": lambda tensors, _: tensors["shards.rows"].__setitem__(1, 41),
    "overlap, or leave users out ....*": lambda tensors, _: tensors["shards.rows"].__setitem__(slice(3, 5), [0, 80]),
    "a number out of range": lambda tensors, _: tensors["shards.rows"].__setitem__(4, 2**62),
    "a number out of range .*": lambda tensors, _: tensors["shards.number"].__setitem__(4, -1),
    "not have its numbers of users and likes": lambda tensors, _: tensors["shards.rows"].__setitem__(4, 41),
    "not have its numbers of users and likes .*": lambda tensors, _: tensors["shards.edges"].__setitem__(4, 1),
    "the ids of 'shards.ids' are not distinct": lambda tensors, _: tensors["shards.ids.text"].__setitem__(
        slice(None), ord("z")
    ),
    "shards.first": lambda tensors, _: tensors.pop("shards.first"),
    "shards.sha256": lambda tensors, _: tensors.update({"shards.sha256": tensors["shards.sha256"][:, :31]}),
    "shards.bytes": lambda tensors, _: tensors.update({"shards.bytes": tensors["shards.bytes"][:4]}),
    "item.rows": lambda tensors, _: tensors.pop("item.rows"),
    "not the index": lambda _, said: said.pop("kind"),
    "'shards' is out of range": lambda _, said: said.update(shards=0),
    "no number 'shards'": lambda _, said: said.update(shards="5"),
    "of another size": lambda _, said: said.update(user_ids={"kind": "string", "size": 199}),
    "the vocabulary 'user_ids' is": lambda _, said: said.update(user_ids={"kind": [], "size": 200}),
    "'users' is out of range": lambda _, said: said.update(users=0),
    "no 'likes'": lambda _, said: said.update(likes=1),
}


@pytest.mark.parametrize("message", list(INDEX_CHANGES))
def test_indexes_that_lie(folder: Path, message: str) -> None:
    tensors, said = parts_of(folder / INDEX_NAME)
    INDEX_CHANGES[message](tensors, said)
    write_tensors(folder / INDEX_NAME, tensors, said)
    with pytest.raises(ModelFileError, match=message.rstrip(" .*")) as caught:
        load_model(folder)
    assert str(folder / INDEX_NAME) in str(caught.value)


SHARD_CHANGES: dict[str, Callable[[dict[str, Any], dict[str, Any]], Any]] = {
    "users are not as in the index": lambda _, said: said.update(first=41),
    "users are not as in the index .*": lambda _, said: said.update(edges=said["edges"] - 1),
    "users are not as in the index ..*": lambda _, said: said.update(users=39),
    "form is not as in the index": lambda _, said: said.update(likes=False),
    "form is not as in the index .*": lambda _, said: said.update(user_ids={"kind": "range", "size": 40}),
    "not the shard that the index names": lambda _, said: said.update(kind="index"),
    "ids are out of their range in the index": lambda tensors, _: tensors["user_ids.text"].__setitem__(0, ord("t")),
    "ids are out of their range in the index .*": lambda tensors, _: tensors["user_ids.text"].__setitem__(-3, ord("z")),
    "not as many as 'user_degree' says": lambda tensors, _: tensors["user_degree"].__setitem__(3, 39),
    "an item that is not there": lambda tensors, _: tensors["likes.items"].__setitem__(3, 40),
    "a variance that is not positive": lambda tensors, _: tensors["user.rows"].__setitem__((3, 8), -1),
    "user.bias_mean": lambda tensors, _: tensors.pop("user.bias_mean"),
    "user.rows": lambda tensors, _: tensors.update({"user.rows": tensors["user.rows"][:, :8].copy()}),
}


@pytest.mark.parametrize("message", list(SHARD_CHANGES))
def test_shards_that_lie(folder: Path, message: str) -> None:
    """Whole files with checksums that the index knows, as a stranger could make them."""
    path = shards_in(folder)[1]
    tensors, said = parts_of(path)
    SHARD_CHANGES[message](tensors, said)
    write_tensors(path, tensors, said)
    sha256 = open_tensors(path).header_sha256
    path.rename(folder / model_shards.shard_name(1, sha256))
    tensors, said = parts_of(folder / INDEX_NAME)
    tensors["shards.sha256"][1] = list(bytes.fromhex(sha256))
    write_tensors(folder / INDEX_NAME, tensors, said)
    loaded = Recommender.load(folder)
    loaded.recommend(7, by="row")
    with pytest.raises(ModelFileError, match=message.rstrip(" .*")) as caught:
        loaded.recommend(47, by="row")
    assert "users-00001-" in str(caught.value)


def test_what_an_index_is_read_from_is_told(folder: Path) -> None:
    stored, model = open_model(folder)
    assert stored.path == str(folder / INDEX_NAME)
    assert isinstance(model.users, ShardedUsers)
    sizes = [path.stat().st_size for path in shards_in(folder)]
    assert model.users.arrays["shards.bytes"].tolist() == sizes


# --- The shell ---


def run(*arguments: object) -> str:
    done = CliRunner().invoke(app, [str(one) for one in arguments], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_commands_answer_alike_for_both_forms(folder: Path, fitted: Recommender, tmp_path: Path) -> None:
    fitted.save(tmp_path / "one.safetensors")
    both = folder, tmp_path / "one.safetensors"
    ask = ("u3", "u199", "--explain", "--json")
    assert json.loads(run("recommend", folder, *ask)) == json.loads(run("recommend", both[1], *ask))
    pq.write_table(as_table(planted(seed=5)), tmp_path / "test.parquet")
    said = [json.loads(run("evaluate", one, tmp_path / "test.parquet", "--json", "-q")) for one in both]
    assert said[0].pop("model") != said[1].pop("model")
    assert said[0] == said[1]
    for number, one in enumerate(both):
        run("recommend", one, "--export-vectors", tmp_path / f"vectors{number}.parquet")
    vectors = [pq.read_table(tmp_path / f"vectors{number}.parquet") for number in (0, 1)]
    assert vectors[0].equals(vectors[1])
    assert vectors[0]["id"].to_pylist()[:200] == fitted.model_.user_ids.ids_of(range(200))
    said = [json.loads(run("inspect", one, "--json")) for one in both]
    assert [one.pop("shards") for one in said] == [5, None]
    size = sum(path.stat().st_size for path in folder.iterdir())
    assert said[0].pop("megabytes") == size / 1e6 > said[1].pop("megabytes")
    assert said[0].pop("path") != said[1].pop("path")
    assert said[0] == said[1]
    assert "MB in 5 shards and an index, format 1" in run("inspect", folder)
