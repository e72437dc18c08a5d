"""Users and items that are updated or added: degrees, pi and the walk's table follow the likes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow.fs import FileSystem

from considerate import Recommender
from considerate.distributed.backends.out_of_core import OutOfCore
from considerate.errors import DataError, OutputError
from considerate.inference.hidden import popularity_weights
from considerate.model.model import Model
from considerate.storage.filesystems import Folder
from tests.helpers.likes import as_table, skewed

USERS, ITEMS = 60, 25
LIKES = skewed(USERS, ITEMS, seed=4)


def fitted(**settings: Any) -> Recommender:
    data = as_table(LIKES, "u{:03}", "i{:03}")
    return Recommender(**{"factors": 2, "sweeps": 3, "threads": 1} | settings).fit(data)


def check_degrees(model: Model) -> None:
    """Degrees and pi against the likes, and the walk's table against pi."""
    liked = model.users.whole().liked
    np.testing.assert_array_equal(model.users.whole().degree, liked.degrees)
    np.testing.assert_array_equal(model.item_degree, np.bincount(liked.indices, minlength=model.item_count))
    np.testing.assert_array_equal(model.popularity, popularity_weights(model.item_degree, model.gamma))
    if model.consideration is not None:
        np.testing.assert_array_equal(model.consideration.weights, model.popularity)


@pytest.mark.parametrize("consideration", ["walk", "popularity"])
@pytest.mark.parametrize("count", [2, 10])
def test_new_users_can_be_forgotten(tmp_path: Path, count: int, consideration: str) -> None:
    """The likes of users who are added are those that are taken out again."""
    model, path = fitted(consideration=consideration), tmp_path / "model"
    before = model.model_
    new = [f"new{number}" for number in range(count)]
    model.partial_fit_users(new, [["i024"]] * count)
    check_degrees(model.model_)
    assert model.model_.item_degree[24] == before.item_degree[24] + count
    model.save(path)
    model.forget(new[:1]).update(None, removed={"user": new[1:], "item": ["i024"] * (count - 1)})
    check_degrees(model.model_)
    np.testing.assert_array_equal(model.model_.item_degree, before.item_degree)
    model.save(path)
    again = Recommender.load(path, verify=True)
    assert again.recommend_table(N=5).equals(model.recommend_table(N=5))


def test_a_user_who_is_updated_leaves_no_old_like() -> None:
    """The last like of an item, given up: nothing leads to the item any more."""
    data = as_table(LIKES, "u{:03}", "i{:03}").to_pydict()
    data = {"user": [*data["user"], "u001"], "item": [*data["item"], "rare"]}
    model = Recommender(factors=2, sweeps=3, threads=1).fit(data)
    row = int(model.item_rows("rare"))
    walk = model.model_.consideration
    assert walk is not None
    assert (walk.items == row).any()
    model.partial_fit_users("u001", ["i003", "i004"])
    after = model.model_
    check_degrees(after)
    assert after.consideration is not None
    assert after.item_degree[row] == after.popularity[row] == 0
    assert not (after.consideration.items == row).any()
    assert after.consideration.rest[row] == 1.0


def test_a_user_who_was_folded_in_has_the_vector_of_a_fold_in() -> None:
    model = fitted()
    likes = [["i001", "i002"], ["i007"]]
    model.partial_fit_users(["u005", "zoe"], likes)
    rows = model.user_rows(["u005", "zoe"])
    np.testing.assert_array_equal(model.user_factors[rows], model.fold_in(likes).mean)


def test_weights_of_likes_stay_when_others_change() -> None:
    data = as_table(LIKES, "u{:03}", "i{:03}").to_pydict()
    data["times"] = [1 + number % 3 for number in range(len(data["user"]))]
    model = Recommender(factors=2, sweeps=3, threads=1).fit(data, weight_column="times")

    def weights() -> dict[tuple[Any, Any], float]:
        users = model.model_.users.whole()
        assert users.liked.weights is not None
        pairs = zip(users.ids.ids_of(users.liked.edge_rows), model.model_.item_ids.ids_of(users.liked.indices))
        return dict(zip(pairs, users.liked.weights.tolist()))

    before = weights()
    model.partial_fit_users(["aaa", "u002"], [["i001"], ["i003", "i024"]])
    model.partial_fit_items(["aaa", "i004"], [["u001"], ["u002", "u003"]])
    after = weights()
    kept = {pair for pair in before if pair[0] != "u002" and pair[1] != "i004"}
    assert {pair: after[pair] for pair in kept} == {pair: before[pair] for pair in kept}
    gained = {("aaa", "i001"), ("u002", "i003"), ("u002", "i024"), ("u001", "aaa"), ("u002", "i004"), ("u003", "i004")}
    assert after.keys() == kept | gained


def test_a_change_that_leaves_no_like_is_refused() -> None:
    model = Recommender(factors=2, sweeps=2, threads=1).fit({"user": ["a", "b"], "item": ["x", "y"]})
    with pytest.raises(DataError, match="no like would be left"):
        model.partial_fit_users(["a", "b"], [[], []])
    with pytest.raises(DataError, match="no like would be left"):
        model.partial_fit_items(["x", "y"], [[], []])
    check_degrees(model.model_)


def test_items_without_likes_keep_the_pi_that_is_predicted_when_a_user_leaves() -> None:
    """In memory as after a save: pi and the items that the walk cannot tell of."""
    data = as_table(LIKES, "u{:03}", "i{:03}")
    items = [f"i{item:03}" for item in range(ITEMS)] + ["new1", "new2"]
    features = {"item": items, "kind": [f"k{number % 3}" for number in range(ITEMS + 2)]}
    model = Recommender(factors=2, sweeps=3, threads=1).fit(data, item_features=features)
    cold = model.item_rows(["new1", "new2"])
    before = model.model_.popularity[cold]
    assert (before > 0).all()
    for change in (lambda: model.partial_fit_users(["zoe"], [["i001"]]), lambda: model.forget("zoe")):
        change()
        after = model.model_
        np.testing.assert_array_equal(after.popularity[cold], before)
        np.testing.assert_array_equal(after.cold_items, cold)
        assert after.consideration is not None
        np.testing.assert_array_equal(after.consideration.unknown, cold)
        assert not after.consideration.weights[cold].any()


def test_an_item_that_is_updated_keeps_its_title() -> None:
    data, items = as_table(LIKES, "u{:03}", "i{:03}"), [f"i{item:03}" for item in range(ITEMS)]
    features = {"item": [*items, "new"], "kind": [f"k{number % 3}" for number in range(ITEMS + 1)]}
    titles = {item: f"Title of {item}" for item in [*items[1:], "new"]}
    model = Recommender(factors=2, sweeps=2, threads=1).fit(data, item_features=features, titles=titles)
    model.partial_fit_items(["i003", "i000", "newer"], [["u001", "u002"], ["u003"], ["u004"]])
    wanted = titles | {"i000": "i000", "newer": "newer"}
    assert model.titles(list(wanted)) == list(wanted.values())
    model.add_items({"item": ["new", "newest"], "kind": ["k1", "k2"]})  # again, without a title
    assert model.titles(["new", "newest"]) == ["Title of new", "newest"]
    model.add_items({"item": ["new", "newest"], "kind": ["k1", "k2"]}, titles={"new": "Another title"})
    wanted |= {"new": "Another title", "newest": "newest"}
    assert model.titles(list(wanted)) == list(wanted.values())


# --- A good file is never replaced by one that cannot be loaded ---


def broken(model: Recommender, what: str) -> Model:
    """The model with something that no fit makes, and that `load` refuses."""
    of = model.model_
    if what == "degrees":
        return replace(of, item_degree=of.item_degree - 5)
    if what == "popularity":
        return replace(of, popularity=np.zeros(ITEMS))
    users = of.users.whole()
    mean = users.side.copy()
    mean.rows[3, 0] = np.nan
    return replace(of, users=replace(users, side=mean))


@pytest.mark.parametrize("what", ["degrees", "popularity", "user.rows"])
@pytest.mark.parametrize("shards", [None, 3])
@pytest.mark.parametrize("large", [False, True])
def test_a_model_that_could_not_be_loaded_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, shards: int | None, large: bool
) -> None:
    if large:
        monkeypatch.setattr("considerate.storage.container.VERIFY_WHOLE", 0)
    model, path = fitted(), tmp_path / "model"
    model.save(path, shards=shards)
    before = {file.name: file.read_bytes() for file in (tmp_path.rglob("*")) if file.is_file()}
    model._model = broken(model, what)
    with pytest.raises(OutputError, match=r"was not written, as it could not be loaded \(.*\); the old file is"):
        model.save(path, shards=shards)
    assert {file.name: file.read_bytes() for file in (tmp_path.rglob("*")) if file.is_file()} == before


def test_an_object_store_keeps_a_model_that_could_be_loaded(tmp_path: Path) -> None:
    """As files that are moved into their place by pyarrow, which has addresses of its own for a disk."""
    model, (filesystem, root) = fitted(), FileSystem.from_uri(tmp_path.as_uri())
    folder = Folder("memory://models")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("considerate.storage.filesystems._filesystem", lambda _: (filesystem, root))
        model.save(f"{folder.address}/model")
        before = (tmp_path / "model").read_bytes()
        model._model = broken(model, "degrees")
        with pytest.raises(OutputError, match="was not written"):
            model.save(f"{folder.address}/model")
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [before]


# --- Liked, and impossible ---


@pytest.mark.parametrize("how", ["forgotten at the fit", "learned later"])
@pytest.mark.parametrize("backend", [None, OutOfCore()])
def test_an_impossible_pair_is_not_recommended_once_its_like_is_removed(tmp_path: Path, how: str, backend: Any) -> None:
    """A like is a like while there is one; then the pair is what it was said to be."""
    pair = {"user": ["u001"], "item": ["zzz"]}
    data = as_table(LIKES, "u{:03}", "i{:03}").to_pydict()
    data = {"user": [*data["user"], "u002"], "item": [*data["item"], "zzz"]}
    if how == "forgotten at the fit":
        data = {name: [*data[name], *pair[name]] for name in data}
    model = Recommender(factors=2, sweeps=2, threads=1).fit(data, impossible=pair, backend=backend)
    if how == "learned later":
        assert "zzz" not in model.recommend("u001", N=ITEMS + 1).ids
        model.update(pair)
    kept = model.recommend("u001", N=ITEMS + 1, filter_already_liked_items=False).ids
    assert "zzz" in kept
    for step in ("in memory", "saved"):
        if step == "saved":
            model.save(tmp_path / "model")
            model = Recommender.load(tmp_path / "model")
        changed = Recommender()
        changed._model = model.model_
        changed.update(None, removed=pair)
        for asked in ({}, {"filter_already_liked_items": False}):
            assert "zzz" not in changed.recommend("u001", N=ITEMS + 1, **asked).ids
        assert "zzz" in changed.recommend("u001", N=ITEMS + 1, allow_impossible=True).ids
