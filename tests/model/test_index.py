"""The index of items: its lists hold what is near, what is found is ranked exactly, files of others are refused."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from typer.testing import CliRunner

from considerate import RankingOptions, Recommender
from considerate.cli import app
from considerate.errors import ModelFileError, UsageError
from considerate.model import index as index_module
from considerate.model import serving
from considerate.model.index import ItemIndex
from considerate.storage.container import open_tensors, write_tensors

USERS, ITEMS, KINDS = 300, 600, 6


@pytest.fixture(scope="module")
def fitted() -> Recommender:
    """Six kinds of users and items, popular items in each."""
    random = np.random.default_rng(0)
    same = (np.arange(USERS)[:, None] % KINDS) == (np.arange(ITEMS) % KINDS)
    chance = np.where(same, 0.2, 0.01) * 2.0 / (1.0 + np.arange(ITEMS) / 100.0)
    likes = sp.csr_matrix(random.random((USERS, ITEMS)) < chance)
    return Recommender(factors=8, sweeps=8, neighbours=5, threads=1, user_bias=True).fit(likes)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """The index is used however many candidates there are."""
    monkeypatch.setattr(serving, "MOST_CANDIDATES", 2.0)


def test_the_nearest_are_those_of_the_largest_score(fitted: Recommender) -> None:
    model = fitted.model_
    places = index_module.item_places(model)
    for user, popularity in ((0, 0.0), (5, 0.75), (9, -2.0)):
        query = np.concatenate([fitted.user_factors[user], [1.0, popularity, 0.0]])
        distance = ((places - query) ** 2).sum(axis=1)
        score = fitted.item_factors @ fitted.user_factors[user] + model.items.biases[0]
        score = score + popularity * model.log_popularity
        np.testing.assert_allclose(distance, distance.min() + 2 * (score[distance.argmin()] - score), rtol=1e-3)


def test_every_item_is_in_the_list_of_its_nearest_centre(fitted: Recommender) -> None:
    made = fitted.build_index(lists=17)
    places = index_module.item_places(fitted.model_)
    nearest = ((places[:, None] - made.centres) ** 2).sum(axis=2).argmin(axis=1)
    assert (made.lists == nearest).mean() > 0.99  # rounding decides of those between two centres
    user = fitted.user_factors[3]
    np.testing.assert_array_equal(np.sort(replace(made, probes=17).near(user, 0.5, 2 * ITEMS)), np.arange(ITEMS))
    query = np.concatenate([user, [1.0, 0.5, 0.0]])
    closest = ((made.centres - query) ** 2).sum(axis=1).argsort()[:2]
    np.testing.assert_array_equal(
        np.sort(replace(made, probes=2).near(user, 0.5, ITEMS)), np.flatnonzero(np.isin(made.lists, closest))
    )


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(("popularity", "lift"), [(None, None), (0.0, 0.0), (1.0, 0.0), (0.3, 2.0), (0.5, -1.0)])
def test_with_all_lists_it_is_the_exact_ranking(
    fitted: Recommender, popularity: float | None, lift: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the last bit of the scores where all items are candidates; liked items filtered or not, some excluded."""
    made = fitted.build_index(lists=20, probes=20)
    knobs = {"popularity": popularity, "lift": lift, "N": 25, "filter_items": np.arange(0, ITEMS, 7)}
    for filtered in (True, False):
        knobs["filter_already_liked_items"] = filtered
        ids, scores = fitted.recommend(range(40), **knobs)
        found, found_scores = fitted.recommend(range(40), index=made, **knobs)
        np.testing.assert_array_equal(found, ids)
        np.testing.assert_allclose(found_scores, scores, rtol=1e-6)
        with monkeypatch.context() as patch:
            patch.setattr(serving, "SPARE", ITEMS)
            found, found_scores = fitted.recommend(range(40), index=made, **knobs)
        np.testing.assert_array_equal(found, ids)
        np.testing.assert_array_equal(found_scores, scores)


@pytest.mark.usefixtures("always")
def test_few_lists_find_most_and_all_that_the_likes_lead_to(fitted: Recommender) -> None:
    made, walk = fitted.build_index(lists=40, probes=6), fitted.model_.consideration
    assert walk is not None
    found = shared = wanted = 0
    for user in range(60):
        exact, near = fitted.recommend(user, N=20)[0], fitted.recommend(user, N=20, index=made)[0]
        found += len(np.intersect1d(exact, near))
        led = np.concatenate([walk.row(int(item))[0] for item in fitted.model_.users.whole().liked.row(user)])
        shared += len(np.intersect1d(np.intersect1d(exact, led), near))
        wanted += len(np.intersect1d(exact, led))
    assert 0 < wanted == shared
    assert found / (60 * 20) > 0.95
    blind = replace(made, probes=1)
    exact, near = (fitted.recommend(range(60), N=5, lift=0.0, index=index)[0] for index in (None, blind))
    assert (exact != near).any(), "one list of forty does not have it all"


def test_where_there_would_be_many_candidates_all_items_are_scored(fitted: Recommender) -> None:
    made = replace(fitted.build_index(lists=40, probes=1), probes=20)
    for one, other in zip(fitted.recommend(range(30), index=made), fitted.recommend(range(30)), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.usefixtures("always")
def test_tables_new_users_and_strangers(fitted: Recommender) -> None:
    made = fitted.build_index(lists=20, probes=20)
    exact, near = (fitted.recommend_table([3, 7], N=9, index=index) for index in (None, made))
    assert exact.equals(near)
    liked = fitted.model_.users.whole().liked.row(3).tolist()
    assert fitted.recommend_for(liked, index=made).equals(fitted.recommend_for(liked))
    cold = fitted.recommend_table([3, 9999], N=4, cold="popular", options=None)
    assert fitted.recommend_table([3, 9999], N=4, cold="popular", index=made).equals(cold)


@pytest.mark.usefixtures("always")
def test_where_too_few_are_found_all_items_are_scored(fitted: Recommender) -> None:
    """All but a few are denied, or the lists hold fewer than are wanted."""
    made = fitted.build_index(lists=40, probes=1)
    for knobs in ({"N": 25, "filter_items": np.arange(ITEMS - 30)}, {"N": 300}):
        for one, other in zip(
            fitted.recommend(range(20), index=made, **knobs), fitted.recommend(range(20), **knobs), strict=True
        ):
            np.testing.assert_array_equal(one, other)


def test_without_faiss_the_extra_is_named(fitted: Recommender, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted.save(tmp_path / "model")
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(UsageError, match=r"needs faiss.*pip install considerate\[ann\]"):
        fitted.build_index()
    shell = CliRunner().invoke(app, ["index", str(tmp_path / "model"), "-o", str(tmp_path / "items.index")])
    assert shell.exit_code == 2
    assert not (tmp_path / "items.index").exists()


def test_options_that_do_not_go_with_an_index_are_refused(fitted: Recommender) -> None:
    made = fitted.build_index(lists=5)
    for options in ({"score": "like"}, {"explore_kappa": 1.0}, {"thompson_seed": 0}, {"allow": [1]}):
        with pytest.raises(UsageError, match="index does not go with"):
            RankingOptions(index=made, **options)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="index does not go with a list of allowed items"):
        fitted.recommend(0, items=[1, 2], index=made)
    for lists in (0, ITEMS + 1, 1.5):
        with pytest.raises(UsageError, match="lists is"):
            fitted.build_index(lists=lists)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="probes is 0"):
        fitted.build_index(probes=0)
    tilted = Recommender(factors=2, sweeps=2, tilt=0.5, threads=1).fit(sp.csr_matrix(np.eye(20) + np.eye(20, k=1)))
    with pytest.raises(UsageError, match="tilt"):
        tilted.recommend(0, index=tilted.build_index())


def test_the_file_of_an_index_is_read_back_and_others_are_refused(fitted: Recommender, tmp_path: Path) -> None:
    made, path = fitted.build_index(lists=9), tmp_path / "items.index"
    made.save(path)
    again = fitted.load_index(path, probes=3)
    assert (again.digest, again.probes) == (made.digest, 3)
    for name in ("centres", "lists"):
        np.testing.assert_array_equal(getattr(again, name), getattr(made, name))
    for user in fitted.user_factors[:40]:
        np.testing.assert_array_equal(again.near(user, 0.5, 50), replace(made, probes=3).near(user, 0.5, 50))
    other = Recommender(factors=8, sweeps=1, threads=1).fit(sp.csr_matrix(np.ones((3, ITEMS))))
    with pytest.raises(ModelFileError, match="is the index of another model; make one"):
        other.load_index(path)
    with pytest.raises(UsageError, match="index is that of another model"):
        other.recommend(0, index=made)
    fitted.save(tmp_path / "model")
    with pytest.raises(ModelFileError, match="is not an index of items"):
        fitted.load_index(tmp_path / "model")
    with pytest.raises(ModelFileError):
        Recommender.load(path)
    stored = open_tensors(path)
    beyond, nowhere = stored["lists"].copy(), stored["centres"].copy()
    beyond[7], nowhere[1, 2] = 9, np.nan
    for wrong in ({"lists": beyond}, {"lists": beyond - 10}, {"centres": nowhere}):
        write_tensors(tmp_path / "wrong", {**stored, **wrong}, stored.metadata)
        with pytest.raises(ModelFileError, match="its lists are not lists of its items"):
            fitted.load_index(tmp_path / "wrong")
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match="does not match its checksum"):
        ItemIndex.load(path, fitted.model_)


def test_in_the_shell(fitted: Recommender, tmp_path: Path) -> None:
    model, path = str(tmp_path / "model"), str(tmp_path / "items.index")
    fitted.save(model)
    run = CliRunner().invoke
    made = run(app, ["index", model, "-o", path, "--lists", "12", "--json"])
    assert json.loads(made.stdout) == {"path": path, "items": ITEMS, "lists": 12}
    with_index = run(app, ["recommend", model, "3", "--index", path, "--probes", "12", "--json"])
    assert with_index.exit_code == 0
    assert with_index.stdout == run(app, ["recommend", model, "3", "--json"]).stdout
    assert run(app, ["recommend", model, "3", "--index", model]).exit_code == 2
    assert run(app, ["index", model, "-o", model]).exit_code == 2
