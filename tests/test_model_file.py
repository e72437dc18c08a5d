"""A model to its file and back: the same answers bit for bit; what does not hold a model is refused."""

from __future__ import annotations

import copy
import json
import os
import pickle
import random
import re
import subprocess
import sys
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from considerate import Recommender, read_interactions
from considerate.cli import app
from considerate.errors import ConsiderateError, ModelFileError, OutputError, UsageError
from considerate.model import tensors as tensors_module
from considerate.model.file import load_model, save_model
from considerate.simulation.simulate import simulate_from_model
from considerate.storage import container as store
from considerate.storage.container import open_tensors, write_tensors
from likes import as_table, planted
from models import assert_same, random_model
from randomised import count

SETTINGS: list[dict[str, Any]] = [
    {},
    {"hidden": "expected", "groups": 8},
    {"user_bias": True, "likelihood_weight": 2.0},
    {"gamma": 0.5, "negatives": 0.7, "factors": 9},
    {"head_correction": True, "rate": 0.5, "threads": 1},
    {"consideration": "walk", "neighbours": 7, "mixing": 0.25, "lift": 1.5},
]


def small(**settings: Any) -> Recommender:
    return Recommender(**{"factors": 3, "sweeps": 5, **settings})


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with everything that a file can hold: string ids, titles, user biases, likes, the walk's table."""
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    titles = pa.table({"item": [f"i{n}" for n in range(40)], "title": [f"Title {n}" for n in range(40)]})
    likes = read_interactions(as_table(planted(users=60)), titles=titles)
    Recommender(factors=3, sweeps=3, user_bias=True, consideration="walk", neighbours=12).fit(likes).save(path)
    return path


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("ids", ["range", "strings", "integers"])
def test_round_trip_bit_for_bit(tmp_path: Path, settings: dict[str, Any], ids: str) -> None:
    likes: Any = planted()
    if ids != "range":
        likes = as_table(planted(), *(("u{}", "i{}") if ids == "strings" else ("9{}", "-4{}")))
    recommender = small(**settings).fit(likes)
    path = tmp_path / "model.safetensors"
    assert recommender.save(path) is None
    for verify in (None, True, False):
        assert_same(Recommender.load(path, verify=verify), recommender)
    loaded = Recommender.load(str(path))
    again = tmp_path / "again"
    loaded.save(again)
    assert again.read_bytes() == path.read_bytes()
    assert loaded.model_.user_ids.ids_of(range(200)) == recommender.model_.user_ids.ids_of(range(200))


def test_strings_titles_and_the_history(saved: Path) -> None:
    loaded = Recommender.load(saved)
    table = loaded.recommend_table(["u7"], N=2)
    assert [f"Title {item[1:]}" for item in table["item"].to_pylist()] == table["title"].to_pylist()
    assert loaded.bound_.shape == (4,)
    assert loaded.user_bias is True
    terms = {"edges", "users", "items", "user_biases", "item_biases", "precisions"}
    assert all(set(one) == terms for one in loaded.model_.bounds)
    stored = open_tensors(saved)
    assert stored.metadata["users"] == 60
    assert stored.metadata["parameters"]["factors"] == 3


def test_arrays_are_mapped_and_stay_when_the_file_goes(tmp_path: Path) -> None:
    recommender = small().fit(planted())
    path = tmp_path / "model"
    recommender.save(path)
    loaded = Recommender.load(path)
    assert not loaded.user_factors.flags.writeable
    assert not loaded.popularity_.flags.writeable
    path.unlink()
    assert_same(loaded, recommender)


def test_the_walks_table_is_mapped_and_its_pi_is_the_models(tmp_path: Path, saved: Path) -> None:
    model = load_model(saved)
    walk, mapped = model.consideration, open_tensors(saved)
    assert walk is not None
    assert walk.weights is model.popularity
    for name in ("starts", "items", "shares", "rest"):
        assert not getattr(walk, name).flags.owndata
        np.testing.assert_array_equal(getattr(walk, name), mapped[f"walk.{name}"])
    assert (walk.mix, model.plan.mixing, model.plan.neighbours, model.plan.lift_weight) == (0.05, 0.05, 12, 1.2)
    assert saved.stat().st_size > 8 * len(walk.items)
    likes = planted(users=60)
    again = Recommender(factors=3, sweeps=3, user_bias=True, consideration="walk", neighbours=12).fit(likes)
    order = np.argsort([f"i{n}" for n in range(40)])
    assert again.model_.consideration is not None
    np.testing.assert_array_equal(again.model_.consideration.rest[order], walk.rest)


def test_a_file_without_the_walk_is_one_of_popularity(saved: Path, tmp_path: Path) -> None:
    """As every file of release 0.1: no table, no setting of it, and no lift."""
    tensors, metadata = parts_of(saved)
    del metadata["walk"]
    for name in ("consideration", "neighbours", "mixing", "lift"):
        del metadata["parameters"][name]
    write_tensors(tmp_path / "old", {name: a for name, a in tensors.items() if "walk" not in name}, metadata)
    model = load_model(tmp_path / "old")
    assert model.consideration is None
    assert (model.plan.consideration, model.plan.lift_weight) == ("popularity", 0.0)
    assert Recommender.load(tmp_path / "old").consideration == "popularity"


def test_a_model_in_shards_has_the_walk_in_its_index(saved: Path, tmp_path: Path) -> None:
    loaded = Recommender.load(saved)
    loaded.save(tmp_path / "shards", shards=3)
    assert_same(Recommender.load(tmp_path / "shards"), loaded)
    walk, before = load_model(tmp_path / "shards").consideration, loaded.model_.consideration
    assert walk is not None
    assert before is not None
    np.testing.assert_array_equal(walk.shares, before.shares)
    for file in (tmp_path / "shards").iterdir():
        assert ("walk.shares" in open_tensors(file)) == (file.name == "index.safetensors")


def test_saving_over_the_mapped_file(tmp_path: Path) -> None:
    """The file that is replaced is the one whose pages are being read."""
    path = tmp_path / "model"
    small().fit(planted()).save(path)
    before = path.read_bytes()
    loaded = Recommender.load(path)
    loaded.save(path)
    assert path.read_bytes() == before
    loaded.partial_fit_users([200], planted()[:1], by="row")
    loaded.save(path)
    again = Recommender.load(path)
    assert len(again.user_factors) == 201
    assert np.array_equal(again.recommend(200, by="row")[0], loaded.recommend(200, by="row")[0])
    assert os.listdir(tmp_path) == ["model"]


@pytest.mark.parametrize("hidden", ["sampled", "expected"])
def test_a_mapped_model_can_be_changed_and_fitted(tmp_path: Path, hidden: str) -> None:
    likes = planted()
    recommender = small(hidden=hidden).fit(likes)
    recommender.save(tmp_path / "model")
    loaded = Recommender.load(tmp_path / "model")
    for one in (recommender, loaded):
        one.partial_fit_users([3, 200], likes[[4, 5]], by="row")
        one.partial_fit_items([7, 40], likes.T.tocsr()[[8, 9]].tocsr(), by="row")
    assert np.array_equal(loaded.user_factors, recommender.user_factors)
    assert np.array_equal(loaded.item_factors, recommender.item_factors)
    assert np.array_equal(
        loaded.recommend(np.arange(201), by="row")[0], recommender.recommend(np.arange(201), by="row")[0]
    )
    loaded.save(tmp_path / "changed")
    changed = Recommender.load(tmp_path / "changed")
    assert np.array_equal(
        changed.recommend(np.arange(201), by="row")[0], recommender.recommend(np.arange(201), by="row")[0]
    )
    assert np.array_equal(loaded.fit(likes).user_factors, small(hidden=hidden).fit(likes).user_factors)


def test_without_the_likes(tmp_path: Path) -> None:
    """Everything but what users liked: known users stay known, given likes are filtered, explain says what it needs."""
    likes = planted()
    recommender = small().fit(as_table(likes))
    recommender.save(tmp_path / "model", likes=False)
    recommender.save(tmp_path / "whole")
    assert (tmp_path / "model").stat().st_size < (tmp_path / "whole").stat().st_size
    assert not any(name.startswith("likes") for name in open_tensors(tmp_path / "model"))
    loaded = Recommender.load(tmp_path / "model")
    assert np.array_equal(loaded.user_factors, recommender.user_factors)
    assert len(loaded.recommend(0, N=40, by="row")[0]) == 40
    row = recommender.model_.users.whole().liked.row(0)
    assert np.array_equal(loaded.recommend(0, row, N=40, by="row")[0], recommender.recommend(0, N=40, by="row")[0])
    assert loaded.recommend_table(["u5"], N=3).num_rows == 3
    assert not any(loaded.recommend_table(N=1, cold="popular")["cold"].to_pylist())
    with pytest.raises(UsageError, match="saved without the likes; give the user's as user_items"):
        loaded.explain(0, 1, by="row")
    assert loaded.explain(0, 1, user_items=row, by="row")[1]
    loaded.save(tmp_path / "again")  # it does not come to have likes by being saved again
    assert (tmp_path / "again").read_bytes() == (tmp_path / "model").read_bytes()


def test_loading_needs_no_pickle_and_no_training_code(saved: Path) -> None:
    """With pickle made unusable a model loads and answers; nothing in a model file is code."""
    program = """
import sys, pickle
def refuse(*_, **__):
    raise SystemExit("pickle was used")
pickle.load = pickle.loads = pickle.Unpickler = refuse
import numpy as np
np.load = refuse
from considerate import Recommender
loaded = Recommender.load(sys.argv[1])
print(loaded.recommend(0, N=3, by="row")[0].shape, loaded.recommend_table("u5", N=2).num_rows)
"""
    done = subprocess.run([sys.executable, "-c", program, str(saved)], capture_output=True, text=True, check=False)
    assert done.stdout == "(3,) 2\n", done.stderr


def test_paths_that_are_none(tmp_path: Path, saved: Path) -> None:
    recommender = Recommender.load(saved)
    with pytest.raises(OutputError, match="its folder does not exist"):
        recommender.save(tmp_path / "nowhere" / "model")
    with pytest.raises(OutputError, match="is a folder"):
        recommender.save(tmp_path)
    with pytest.raises(ModelFileError, match="no such file"):
        Recommender.load(tmp_path / "nothing")
    with pytest.raises(ModelFileError, match="is a folder"):
        Recommender.load(tmp_path)
    with (
        (tmp_path / "file").open("wb") as file,
        pytest.raises(UsageError, match="named by its path, not by BufferedWriter"),
    ):
        recommender.save(file)  # type: ignore[arg-type]
    with saved.open("rb") as file, pytest.raises(UsageError, match="named by its path, not by BufferedReader"):
        Recommender.load(file)  # type: ignore[arg-type]


# --- Damage ---


def test_flipped_bits_and_truncation(saved: Path, tmp_path: Path) -> None:
    content = saved.read_bytes()
    path = tmp_path / "damaged"
    places = random.Random(0)
    for _ in range(count(150, 60)):
        damaged = bytearray(content)
        damaged[places.randrange(len(content))] ^= 1 << places.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(ModelFileError):
            Recommender.load(path)
    for _ in range(60):
        path.write_bytes(content[: places.randrange(len(content))])
        with pytest.raises(ModelFileError):
            Recommender.load(path)
    path.write_bytes(content + b"\0")
    with pytest.raises(ModelFileError, match="bytes added at its end"):
        Recommender.load(path)
    path.write_bytes(content)
    Recommender.load(path)


Parts = tuple[dict[str, Any], dict[str, Any]]


def parts_of(path: Path) -> Parts:
    stored = open_tensors(path)
    return {name: stored[name].copy() for name in stored}, copy.deepcopy(stored.metadata)


def refused(path: Path, parts: Parts) -> str:
    """The reason why a valid container with these parts is no model."""
    write_tensors(path, *parts)
    with pytest.raises(ModelFileError) as caught:
        Recommender.load(path)
    return str(caught.value)


def test_the_parts_as_they_are_make_a_model(saved: Path, tmp_path: Path) -> None:
    write_tensors(tmp_path / "same", *parts_of(saved))
    assert (tmp_path / "same").read_bytes() == saved.read_bytes()


def test_every_tensor_is_needed_with_its_shape_and_type(saved: Path, tmp_path: Path) -> None:
    names = list(open_tensors(saved))
    assert set(names) >= {"user.rows", "item.rows", "popularity", "likes.starts", "user_ids.text", "titles.offsets"}
    changes: list[Callable[[Any], Any]] = [
        lambda array: array[:-1],
        lambda array: np.concatenate([array, array[:1]]),
        lambda array: array[None],
        lambda array: array.reshape(-1, 1),
        lambda array: array.astype(np.float64 if array.dtype != np.float64 else np.float32),
        lambda array: array.astype(np.uint8 if array.dtype != np.uint8 else np.int32),
        lambda array: array[:0],
        lambda array: array.reshape(-1)[0],
    ]
    for name in names:
        tensors, metadata = parts_of(saved)
        del tensors[name]
        assert name in refused(tmp_path / "changed", (tensors, metadata)) or "text" in name
        for change in changes:
            tensors, metadata = parts_of(saved)
            tensors[name] = change(tensors[name])
            if name == "bounds" and tensors[name].shape[1:] == (6,) and tensors[name].dtype == np.float64:
                continue  # a history may be of any length
            refused(tmp_path / "changed", (tensors, metadata))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("popularity", np.nan, "popularities"),
        ("popularity", np.inf, "popularities"),
        ("popularity", -1.0, "popularities"),
        ("popularity", 5e-324, "popularities"),
        ("popularity", 1e200, "popularities"),
        ("user_degree", 39, "not as many as 'user_degree' says"),
        *((f"{side}.bias_mean", value, "not finite") for side in ("user", "item") for value in (np.nan, -np.inf)),
        *(
            (f"{side}.bias_variance", value, "a variance that is not positive")
            for side in ("user", "item")
            for value in (np.nan, np.inf, 0.0, -1.0)
        ),
        ("user_degree", -1, "does not hold degrees"),
        ("item_degree", 2**40, "does not hold degrees"),
        ("likes.items", 40, "an item that is not there"),
        ("likes.items", -1, "an item that is not there"),
        ("likes.starts", 2**50, "not divided into users"),
        ("likes.starts", -5, "not divided into users"),
        ("walk.starts", 2**50, "not divided into items"),
        ("walk.starts", -5, "not divided into items"),
        ("walk.items", 40, "table of the walk names an item that is not there"),
        ("walk.items", -1, "table of the walk names an item that is not there"),
        *(("walk.shares", value, "not above 0 and at most 1") for value in (np.nan, np.inf, 0.0, -0.1, 1.001)),
        *(("walk.rest", value, "not from 0 to 1") for value in (np.nan, -np.inf, -0.1, 1.001)),
        ("walk.shares", 0.9, "does not add up to 1"),
        ("walk.rest", 0.0, "does not add up to 1"),
        ("user_ids.offsets", 2**50, ""),
        ("titles.offsets", -7, ""),
    ],
)
def test_values_that_no_model_has(saved: Path, tmp_path: Path, name: str, value: Any, message: str) -> None:
    tensors, metadata = parts_of(saved)
    tensors[name][5] = value
    assert message in refused(tmp_path / "changed", (tensors, metadata))


@pytest.mark.parametrize("name", ["user.rows", "item.rows"])
@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        (0, np.nan, "not finite"),
        (2, np.inf, "not finite"),
        (8, np.nan, "not finite"),
        (8, 0.0, "a variance that is not positive"),
        (10, -1e-3, "a variance that is not positive"),
        (3, 1.0, "not padded with zeros"),
        (11, 1.0, "not padded with zeros"),
    ],
)
def test_rows_that_no_posterior_has(
    saved: Path, tmp_path: Path, name: str, column: int, value: float, message: str
) -> None:
    """Three factors: means in columns 0 to 2, variances in 8 to 10, zeros in the others."""
    tensors, metadata = parts_of(saved)
    tensors[name][-1, column] = value
    assert f"{name}' " in (reason := refused(tmp_path / "changed", (tensors, metadata)))
    assert message in reason


@pytest.mark.parametrize("how", ["descending", "repeated"])
def test_the_walks_rows_ascend(saved: Path, tmp_path: Path, how: str) -> None:
    tensors, metadata = parts_of(saved)
    items = tensors["walk.items"][:2]
    items[:] = items[::-1].copy() if how == "descending" else items[0]
    assert "distinct items in ascending order" in refused(tmp_path / "changed", (tensors, metadata))


def test_the_walk_leads_to_no_item_without_popularity(saved: Path, tmp_path: Path) -> None:
    tensors, metadata = parts_of(saved)
    tensors["popularity"][tensors["walk.items"][3]] = 0.0
    assert "leads to an item that nobody liked" in refused(tmp_path / "changed", (tensors, metadata))


@pytest.mark.parametrize("how", ["descending", "repeated"])
def test_likes_ascend_within_a_user(saved: Path, tmp_path: Path, how: str) -> None:
    """The kernel bisects them: in another order, what a user liked would be recommended."""
    tensors, metadata = parts_of(saved)
    starts, items = tensors["likes.starts"], tensors["likes.items"]
    user = int(np.flatnonzero(np.diff(starts) > 2)[-1])
    row = items[starts[user] : starts[user + 1]]
    row[:] = row[::-1].copy() if how == "descending" else row[[0, 0, *range(2, len(row))]]
    assert "not distinct and in ascending order" in refused(tmp_path / "changed", (tensors, metadata))


def test_string_ids_ascend(saved: Path, tmp_path: Path) -> None:
    tensors, metadata = parts_of(saved)
    tensors["user_ids.text"][:] = np.frombuffer(b"z" * len(tensors["user_ids.text"]), np.uint8)
    assert "the ids of 'user_ids' are not distinct" in refused(tmp_path / "changed", (tensors, metadata))


# --- Large files ---


@pytest.fixture
def as_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file is as one of more than 64 MB: tensors above 200 bytes have checksums of blocks of 64 bytes."""
    for name, size in (("VERIFY_WHOLE", 0), ("BLOCKWISE", 200), ("BLOCK", 64)):
        monkeypatch.setattr(store, name, size)
    monkeypatch.setattr(tensors_module, "_AT_ONCE", {"user": 4, "walk": 4})


def offset_in(path: Path, name: str, byte: int) -> int:
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    return 8 + length + json.loads(content[8 : 8 + length])[name]["data_offsets"][0] + byte


def flip(path: Path, place: int, bit: int = 6) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1 << bit
    path.write_bytes(content)


@pytest.fixture(params=["blocks", "whole"])
def large(request: pytest.FixtureRequest, saved: Path, tmp_path: Path, as_large: None) -> Path:
    """A large file, with checksums of blocks and as the release before wrote it."""
    path = tmp_path / "large"
    if request.param == "whole":
        path.write_bytes(saved.read_bytes())
    else:
        Recommender.load(saved).save(path)
    return path


def test_a_large_file_gives_the_same_answers(saved: Path, large: Path) -> None:
    assert_same(Recommender.load(large), Recommender.load(saved))
    assert_same(pickle.loads(pickle.dumps(Recommender.load(large))), Recommender.load(saved))
    Recommender.load(large).save(large.with_name("again"))
    again = open_tensors(large.with_name("again"), verify=True)
    assert {name: array.tobytes() for name, array in again.items()} == {
        name: array.tobytes() for name, array in open_tensors(saved).items()
    }


@pytest.mark.parametrize("name", ["user.rows", "user.bias_mean", "user_degree", "likes.items", "user_ids.text"])
def test_a_flipped_bit_of_a_user_is_never_shown(saved: Path, large: Path, name: str) -> None:
    """Users who are in other blocks are served. (Where the file has no blocks nobody is.)"""
    sizes = {key: array.nbytes for key, array in open_tensors(saved).items()}
    flip(large, offset_in(large, name, sizes[name] // 2), bit=0)
    loaded = Recommender.load(large)
    everything: list[Callable[[], Any]] = [
        lambda: loaded.recommend(np.arange(60), N=3, by="row"),
        lambda: loaded.recommend(30, N=3, by="row"),
        lambda: loaded.recommend_table([f"u{n}" for n in range(60)], N=3),
        lambda: loaded.export_vectors(),
        lambda: loaded.model_.users.whole(),
        lambda: loaded.save(large.with_name("copy")),
        lambda: loaded.model_.user_ids.ids_of(range(60)) if name.startswith("user_ids") else loaded.user_factors,
    ]
    for use in everything:
        with pytest.raises(ModelFileError, match=f"tensor '{name}' does not match its checksum"):
            use()
    if b"__crc32__" in large.read_bytes() and sizes[name] > store.BLOCKWISE:
        for row in (0, 59):
            np.testing.assert_array_equal(
                loaded.recommend(row, by="row")[0], Recommender.load(saved).recommend(row, by="row")[0]
            )
    with pytest.raises(ModelFileError):
        Recommender.load(large, verify=True)


@pytest.mark.parametrize(
    "name",
    [
        "item.rows",
        "item.bias_mean",
        "popularity",
        "item_ids.text",
        "titles.text",
        "walk.starts",
        "walk.items",
        "walk.shares",
        "walk.rest",
    ],
)
def test_a_flipped_bit_of_an_item_is_never_shown(large: Path, name: str) -> None:
    flip(large, offset_in(large, name, 60), bit=0)
    loaded, damaged = Recommender.load(large), f"tensor '{name}' does not match its checksum"
    everything: list[Callable[[], Any]] = [
        lambda: loaded.recommend_table(N=40),
        lambda: loaded.save(large.with_name("copy")),
        lambda: pickle.dumps(loaded),
        lambda: Recommender.load(large, verify=True),
    ]
    for use in everything:
        with pytest.raises(ModelFileError, match=damaged):
            use()


def test_rows_of_the_walk_that_nobody_asks_for_are_not_read(saved: Path, tmp_path: Path, as_large: None) -> None:
    """One damaged row: who likes its item is refused, and served without lift; who likes none beside it is served."""
    Recommender.load(saved).save(tmp_path / "large")
    whole = Recommender.load(saved)
    walk, likes = whole.model_.consideration, whole.model_.users.whole().liked
    assert walk is not None
    row = int(np.argmax(np.diff(walk.starts)))
    flip(
        tmp_path / "large",
        offset_in(tmp_path / "large", "walk.items", 4 * int(walk.starts[row] + walk.starts[row + 1]) // 2),
    )
    loaded, fans = Recommender.load(tmp_path / "large"), [row in likes.row(user) for user in range(60)]
    assert 0 < sum(fans) < 60
    with pytest.raises(ModelFileError, match=r"tensor 'walk.items' does not match its checksum"):
        loaded.recommend(fans.index(True), by="row")
    assert loaded.recommend(fans.index(True), lift=0.0, by="row")[0].size
    apart = [user for user in range(60) if (np.abs(likes.row(user) // 4 - row // 4) > 1).all()]
    assert apart
    for user in apart:
        np.testing.assert_array_equal(loaded.recommend(user, by="row")[0], whole.recommend(user, by="row")[0])


def test_a_flipped_bit_of_the_blocks_checksums_is_seen(saved: Path, tmp_path: Path, as_large: None) -> None:
    Recommender.load(saved).save(tmp_path / "large")
    flip(tmp_path / "large", offset_in(tmp_path / "large", "__crc32__", 9))
    with pytest.raises(ModelFileError, match="'__crc32__' does not match its checksum"):
        load_model(tmp_path / "large")


def test_only_what_is_asked_for_is_verified(
    saved: Path, tmp_path: Path, as_large: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    Recommender.load(saved).save(tmp_path / "large")
    read: list[int] = []
    crc32 = zlib.crc32
    monkeypatch.setattr(store.zlib, "crc32", lambda data: read.append(len(data)) or crc32(data))
    loaded = Recommender.load(tmp_path / "large")
    size = (tmp_path / "large").stat().st_size
    assert not read
    loaded.recommend(30, by="row")
    assert 0 < sum(read) < size / 2
    first = len(read)
    loaded.recommend(10, by="row")
    once = len(read)
    assert 0 < sum(read[first:]) < size / 5
    loaded.recommend(30, by="row")
    assert len(read) == once
    load_model(tmp_path / "large", verify=False).users.whole()
    assert len(read) == once


def test_a_real_large_file(tmp_path: Path) -> None:
    """More than 64 MB, by the shell: a flipped bit in the last user's vector."""
    model, path = random_model(360_000, factors=20), tmp_path / "model.safetensors"
    save_model(model, path)
    assert path.stat().st_size > 64_000_000
    flip(path, offset_in(path, "user.rows", model.posterior.users.rows.nbytes - 130))
    likes = tmp_path / "likes.csv"
    likes.write_text("user,item\n1,2\n")
    run = CliRunner().invoke
    assert run(app, ["recommend", str(path), "0", "--json"]).exit_code == 0
    done = run(app, ["recommend", str(path), "359999", "--json"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert "the model file is damaged, tensor 'user.rows' does not match its checksum; copy" in done.stderr
    for command in ("recommend", "inspect", "evaluate"):
        others = {"recommend": ["0"], "evaluate": [str(likes)], "inspect": []}[command]
        done = run(app, [command, str(path), *others, "--verify"])
        assert done.exit_code == 2
        assert "'user.rows' does not match its checksum" in done.stderr


def test_what_keeps_a_large_file_safe_is_checked_before_it_is_used(saved: Path, tmp_path: Path, as_large: None) -> None:
    """Some of it waits for verify=True. With or without checksums."""

    def with_change(change: Callable[[dict[str, Any]], Any]) -> Path:
        tensors, metadata = parts_of(saved)
        change(tensors)
        write_tensors(tmp_path / "large", tensors, metadata)
        return tmp_path / "large"

    expensive: dict[str, Callable[[dict[str, Any]], Any]] = {
        "not finite": lambda tensors: tensors["user.rows"].__setitem__((5, 0), np.nan),
        "variance": lambda tensors: tensors["item.rows"].__setitem__((5, 8), 0.0),
        "the likes of a user": lambda tensors: tensors["likes.items"].__setitem__(slice(0, 2), 39),
        "the ids of 'item_ids'": lambda tensors: tensors["item_ids.text"].__setitem__(slice(None), ord("z")),
        "not UTF-8": lambda tensors: tensors["titles.text"].__setitem__(3, 255),
        "add up to 1": lambda tensors: tensors["walk.rest"].__setitem__(5, 0.0),
        "nobody liked": lambda tensors: tensors["popularity"].__setitem__(5, 0.0),
    }
    for message, change in expensive.items():
        path = with_change(change)
        load_model(path)
        with pytest.raises(ModelFileError, match=message):
            load_model(path, verify=True)
    cheap: dict[str, Callable[[dict[str, Any]], Any]] = {
        "popularities": lambda tensors: tensors["popularity"].__setitem__(5, 5e-324),
        "not as many": lambda tensors: tensors["user_degree"].__setitem__(5, 39),
        "not there": lambda tensors: tensors["likes.items"].__setitem__(5, 40),
        "not divided": lambda tensors: tensors["likes.starts"].__setitem__(5, 2**50),
        "do not divide": lambda tensors: tensors["titles.offsets"].__setitem__(5, 2**50),
        "bias_mean": lambda tensors: tensors["item.bias_mean"].__setitem__(5, np.nan),
        "distinct items": lambda tensors: tensors["walk.items"].__setitem__(slice(0, 2), 39),
        "walk names": lambda tensors: tensors["walk.items"].__setitem__(5, 40),
        "divided into items": lambda tensors: tensors["walk.starts"].__setitem__(5, 2**50),
        "has a share": lambda tensors: tensors["walk.shares"].__setitem__(5, np.nan),
        "has a rest": lambda tensors: tensors["walk.rest"].__setitem__(5, -1.0),
    }
    for message, change in cheap.items():
        for verify in (None, False):
            loaded = Recommender.load(with_change(change), verify=verify)
            with pytest.raises(ModelFileError, match=message):
                loaded.recommend_table(N=40)
            with pytest.raises(ModelFileError, match=message):
                loaded.save(tmp_path / "copy")
    for name in (
        "likes.starts",
        "walk.starts",
    ):  # both ends of some rows are outside, and as far apart as they should be

        def far(tensors: dict[str, Any], name: str = name) -> None:
            tensors[name][1:-1] += 2**40

        with pytest.raises(ModelFileError, match=r"are not inside it|are not divided|is not divided"):
            Recommender.load(with_change(far)).recommend_table(N=40)


def test_the_truth_of_a_simulation_is_not_taken_for_a_model(tmp_path: Path) -> None:
    said = simulate_from_model(60, 20, 3, seed=0).write(tmp_path / "likes.parquet", seed=0)
    for load in (Recommender.load, load_model):
        with pytest.raises(ModelFileError, match="is the truth of a simulation, not a model; give a file") as caught:
            load(said["truth"])
        assert "save the model again" not in str(caught.value)


def test_a_popularity_of_nothing(saved: Path, tmp_path: Path) -> None:
    tensors, metadata = parts_of(saved)
    tensors["popularity"][:] = 0
    assert "popularities" in refused(tmp_path / "changed", (tensors, metadata))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"users": 59}, "user.rows"),
        ({"users": -1}, "'users' is out of range"),
        ({"items": 41}, "item.rows"),
        ({"factors": 4}, "not those of a model of [49] factors"),
        ({"factors": 9}, "not those of a model of [49] factors"),
        ({"factors": 0}, "'factors' is out of range"),
        ({"gamma": "1"}, "no number 'gamma'"),
        ({"gamma": 1e200}, "'gamma' is out of range"),
        ({"negatives": 0}, "'negatives' is out of range"),
        ({"negatives": 1001.0}, "'negatives' is out of range .negatives is 1001.0; it must be"),
        ({"negatives": 2.0}, "'offset' is out of range .it must be -log of 'negatives'"),
        ({"groups": 0}, "'groups' is out of range"),
        ({"groups": 2**39}, "'groups' is out of range .* at most 4096"),
        ({"groups": 8.5}, "'groups' is out of range"),
        ({"popularity_weight": 1e200}, "'popularity_weight' is out of range"),
        ({"walk": {"entries": 480, "mix": 0.1}}, "not described by entries, neighbours, mix, lift_weight"),
        ({"walk": {"entries": 3, "neighbours": 12, "mix": 0.1, "lift_weight": 1}}, "walk.items"),
        ({"walk": {"entries": -1, "neighbours": 12, "mix": 0.1, "lift_weight": 1}}, "'entries' of the walk is out of"),
        ({"walk": {"entries": 480, "neighbours": 0, "mix": 0.1, "lift_weight": 1}}, "'neighbours' of the walk is out"),
        ({"walk": {"entries": 480, "neighbours": 12, "mix": 2, "lift_weight": 1}}, "'mix' of the walk is out of range"),
        (
            {"walk": {"entries": 480, "neighbours": 12, "mix": 0, "lift_weight": 1e9}},
            "'lift_weight' of the walk is out",
        ),
        ({"walk": {"entries": 480, "neighbours": 12, "mix": 0, "lift_weight": "1"}}, "no number 'lift_weight'"),
        ({"events": 7}, "the field 'events' is not described"),
        ({"events": {"sequence": 0, "log": "", "considered": False}}, "its 'sequence' of the field 'events' is out of"),
        ({"events": {"sequence": 1, "log": 1, "considered": False}}, "no 'log' of the right kind"),
        ({"walk": 7}, "the walk is not described"),
        ({"converged": 1}, "'converged'"),
        ({"bound_terms": ["edges"]}, "bounds"),
        ({"bound_terms": [1, 2, 3, 4, 5, 6]}, "history of the bound"),
        ({"precisions": {}}, "precision 'user'"),
        ({"precisions": {"user": [1, 1], "item": [1, 1], "user_bias": [1, 1]}}, "'item_bias' says one thing"),
        ({"precisions": {"user": [1, 1], "item": [1, 1], "item_bias": [1, 1]}}, "'user_bias' says one thing"),
        ({"precisions": {"user": [1, 1], "item": [1, 0]}}, "precision 'item'"),
        ({"settings": None}, "'settings'"),
        ({"likes": 1}, "'likes'"),
        ({"edges": 3}, "likes.items"),
        ({"user_ids": {"kind": "range", "size": 59}}, "another size"),
        ({"parameters": []}, "'parameters'"),
        ({"parameters": {"sweeps": -1}}, "its parameters are not possible .sweeps is -1; it must be"),
        ({"parameters": {"factors": 4}}, "not those of a model of 3 factors"),
        ({"parameters": {"hidden": "guessed"}}, "its parameters are not possible"),
    ],
    ids=str,
)
def test_descriptions_that_lie(saved: Path, tmp_path: Path, change: dict[str, Any], message: str) -> None:
    tensors, metadata = parts_of(saved)
    reason = refused(tmp_path / "changed", (tensors, metadata | change))
    assert re.search(message, reason), reason
    assert str(tmp_path / "changed") in reason


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("factors", 3.0),
        ("seed", 1.5),
        ("seed", -1),
        ("seed", 2**63),
        ("weight", 0.0),
        ("weight", -1),
        ("weight", 100.5),
        ("offset", 50.0),
        ("offset", -1e9),
        ("prior_rate", 1e7),
        ("step_delay", 10**9),
        ("prior_shape", 0),
        ("user_bias", 1),
        ("step_delay", "10"),
        ("offset", None),
    ],
)
def test_settings_that_lie(saved: Path, tmp_path: Path, name: str, value: Any) -> None:
    tensors, metadata = parts_of(saved)
    metadata["settings"][name] = value
    assert f"setting {name!r} is out of range" in refused(tmp_path / "changed", (tensors, metadata))


def test_parameters_of_another_version_are_left_aside(saved: Path, tmp_path: Path) -> None:
    tensors, metadata = parts_of(saved)
    metadata["parameters"] |= {"invented": 7}
    del metadata["parameters"]["rate"]
    write_tensors(tmp_path / "changed", tensors, metadata)
    loaded = Recommender.load(tmp_path / "changed")
    assert loaded.rate == 1.0
    assert not hasattr(loaded, "invented")


STRANGE: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 3, 7, 40, 60, 2**31, 2**40, 2**63, -(2**63), 10**99, 0.5, -0.5, 1e-320, 1e299),
    *(
        -1e308,
        "",
        "x",
        "range",
        "string",
        "integer",
        [],
        [0],
        [1, 1],
        [[]],
        {},
        {"kind": "range", "size": 60},
        {"x": 1},
    ),
]


def mutated(value: Any, draw: random.Random) -> Any:
    """The same JSON with one thing in it removed, replaced, repeated, added or exchanged."""
    if isinstance(value, dict) and value and draw.random() < 0.8:
        value, key = dict(value), draw.choice(sorted(value))
        action = draw.randrange(6)
        if action == 0:
            del value[key]
        elif action == 1:
            value[key] = draw.choice(STRANGE)
        elif action == 2:
            value[draw.choice(sorted(value))] = value[key]
        else:
            value[key] = mutated(value[key], draw)
        return value
    if isinstance(value, list) and value and draw.random() < 0.8:
        value, place = list(value), draw.randrange(len(value))
        action = draw.randrange(4)
        if action == 0:
            del value[place]
        elif action == 1:
            value.insert(place, draw.choice(STRANGE))
        else:
            value[place] = mutated(value[place], draw)
        return value
    if isinstance(value, int | float) and not isinstance(value, bool) and draw.random() < 0.5:
        return draw.choice([value + 1, value - 1, -value, value * 2, value / 3, float(value), str(value)])
    return draw.choice(STRANGE)


def use(recommender: Recommender) -> None:
    """Questions to a model that was accepted: it may say no in our words, and must not break."""
    recommender.recommend([0, 1], N=3, by="row")
    recommender.recommend(0, [1, 2], recalculate_user=True, by="row")
    recommender.predict_proba(0, 1, by="row")
    recommender.recommend_table(N=1, cold="popular")
    recommender.explain(0, 1, by="row")
    recommender.bound_  # noqa: B018
    recommender.partial_fit_items([0], planted(users=60).T.tocsr()[:1], by="row")


def test_mutated_descriptions(saved: Path, tmp_path: Path) -> None:
    """Whatever the JSON says: a model that answers, or ModelFileError."""
    tensors, metadata = parts_of(saved)
    draw = random.Random(20)
    path = tmp_path / "mutated"
    loaded = 0
    for case in range(count(500, 150)):
        changed = metadata
        for _ in range(draw.choice([1, 1, 1, 2, 4])):
            changed = mutated(changed, draw)
        if not isinstance(changed, dict):
            continue
        write_tensors(path, tensors, changed)
        try:
            load_model(path)
            recommender = Recommender.load(path)
        except ModelFileError:
            continue
        loaded += 1
        try:
            with np.errstate(all="ignore"):
                use(recommender)
        except ConsiderateError:
            pass
        except Exception as error:
            raise AssertionError(f"case {case}: {json.dumps(changed)[:3000]}") from error
    assert 3 < loaded < 400  # both happen


def test_mutated_tensors(saved: Path, tmp_path: Path) -> None:
    """Valid containers whose arrays are of other shapes, types and values."""
    original, metadata = parts_of(saved)
    draw = random.Random(21)
    path = tmp_path / "mutated"
    refusals = 0
    for case in range(count(200, 100)):
        tensors = {name: array.copy() for name, array in original.items()}
        name = draw.choice(sorted(tensors))
        array = tensors[name]
        action = draw.randrange(5)
        if action == 0:
            tensors[name] = tensors[draw.choice(sorted(tensors))]
        elif action == 1:
            tensors[name] = np.resize(array, (draw.randrange(100),))
        elif action == 2:
            tensors[name] = array.astype(draw.choice([np.float32, np.int32, np.int64, np.uint8]))
        elif action == 3 and array.dtype.kind != "f":
            array.reshape(-1)[draw.randrange(array.size)] = draw.choice([0, 1, 255, np.iinfo(array.dtype).max])
        else:
            draw.shuffle(rows := list(range(len(array))))
            tensors[name] = array[rows]
        write_tensors(path, tensors, metadata)
        try:
            recommender = Recommender.load(path)
        except ModelFileError:
            refusals += 1
            continue
        try:
            use(recommender)
        except ConsiderateError:
            pass
        except Exception as error:
            raise AssertionError(f"case {case}: {name}, action {action}") from error
    assert 25 < refusals < 200


def test_flipped_bits_of_the_walk_with_right_checksums(saved: Path, tmp_path: Path) -> None:
    """Checksums find accidents only: what gets past the rules still draws, ranks and answers."""
    original, metadata = parts_of(saved)
    draw, path, refusals = random.Random(22), tmp_path / "flipped", 0
    for _ in range(cases := count(400, 120)):
        name = draw.choice(["walk.starts", "walk.items", "walk.shares", "walk.rest"])
        flipped = bytearray(original[name].tobytes())
        flipped[draw.randrange(len(flipped))] ^= 1 << draw.randrange(8)
        write_tensors(path, original | {name: np.frombuffer(flipped, original[name].dtype)}, metadata)
        try:
            walk = load_model(path).consideration
        except ModelFileError:
            refusals += 1
            continue
        assert walk is not None
        ratios = walk.ratios(np.arange(20))
        assert np.isfinite(ratios).all()
        assert (walk.p * ratios).sum() == pytest.approx(1, abs=1e-3)
        assert walk.table is not None
    assert cases / 2 < refusals < cases


def test_the_history_of_the_longest_fit_is_saved(tmp_path: Path) -> None:
    """100,000 sweeps are allowed; their bounds are a tensor, as the header would have no room."""
    recommender = small().fit(planted())
    model = recommender.model_
    recommender._model = replace(model, bounds=model.bounds[:1] * 100_001)
    recommender.save(tmp_path / "model")
    assert Recommender.load(tmp_path / "model").n_iter_ == 100_000
