"""A model to its file and back: the same answers bit for bit."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from considerate import Recommender
from considerate.errors import ModelFileError, OutputError, UsageError
from considerate.model.file import load_model
from considerate.storage.container import open_tensors, write_tensors
from tests.helpers.likes import as_table, planted
from tests.helpers.model_files import parts_of, save_everything, small
from tests.helpers.models import assert_same

SETTINGS: list[dict[str, Any]] = [
    {},
    {"hidden": "expected", "groups": 8},
    {"user_bias": True, "likelihood_weight": 2.0},
    {"gamma": 0.5, "negatives": 0.7, "factors": 9},
    {"head_correction": True, "rate": 0.5, "threads": 1},
    {"consideration": "walk", "neighbours": 7, "mixing": 0.25, "lift": 1.5},
]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_everything(tmp_path_factory.mktemp("model") / "model.safetensors")


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
    assert (walk.mix, model.plan.mixing, model.plan.neighbours, model.plan.lift) == (0.05, 0.05, 12, 1.2)
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
    assert (model.plan.consideration, model.plan.lift) == ("popularity", 0.0)
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


def test_parameters_of_another_version_are_left_aside(saved: Path, tmp_path: Path) -> None:
    tensors, metadata = parts_of(saved)
    metadata["parameters"] |= {"invented": 7}
    del metadata["parameters"]["rate"]
    write_tensors(tmp_path / "changed", tensors, metadata)
    loaded = Recommender.load(tmp_path / "changed")
    assert loaded.rate == 1.0
    assert not hasattr(loaded, "invented")


def test_the_history_of_the_longest_fit_is_saved(tmp_path: Path) -> None:
    """100,000 sweeps are allowed; their bounds are a tensor, as the header would have no room."""
    recommender = small().fit(planted())
    model = recommender.model_
    recommender._model = replace(model, bounds=model.bounds[:1] * 100_001)
    recommender.save(tmp_path / "model")
    assert Recommender.load(tmp_path / "model").n_iter_ == 100_000
