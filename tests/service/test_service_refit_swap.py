"""How the model of a refit takes the place of the old one: unless it is worse, someone was erased, or another was
written."""

from __future__ import annotations

import sqlite3
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats

from considerate import Recommender
from considerate.model.model import LearnedEvents
from considerate.model.shards import replace_shards
from considerate.service import refit as module
from considerate.service.events import EventStore
from considerate.service.refit import is_worse, served_list
from tests.helpers.refit_fixtures import (
    DATA,
    SETTINGS,
    all_files,
    erase,
    folder,
    likes_of,
    likes_table,
    post,
    refit,
    store,
)

__all__ = ["folder", "store"]  # pytest's fixtures


YEAR = 365.25 * 86_400


def like_what_is_shown(store: EventStore, model: Recommender) -> None:
    """Users like what the model would show them first."""
    for name in (f"u{user}" for user in range(60)):
        post(store, (name, served_list(model, name, likes_of(model, name), [])[0], "like"))


def test_a_worse_model_is_not_swapped_in(folder: Path, store: EventStore, monkeypatch: pytest.MonkeyPatch) -> None:
    old = Recommender.load(folder / "model")
    before = (folder / "model").read_bytes()
    like_what_is_shown(store, old)
    fit = Recommender.fit

    def worse(self: Recommender, likes: Any, **options: Any) -> Recommender:
        shuffled = np.random.default_rng(0).permutation(likes.items)
        return fit(self, replace(likes, items=shuffled), **options)

    with monkeypatch.context() as patch:
        patch.setattr(Recommender, "fit", worse)
        result = refit(folder, data=DATA)
    assert result["new"] < result["old"]
    assert not result["swapped"]
    assert (folder / "model").read_bytes() == before
    assert refit(folder, data=DATA)["swapped"]  # the same without the damage
    new = Recommender.load(folder / "model").model_  # all new likes are held out: the data of the old, and its bits
    assert np.array_equal(new.items.rows, old.model_.items.rows)
    assert new.events == LearnedEvents(60, store.identity)
    assert sorted(file.name for file in folder.iterdir() if "refit" in file.name) == []


@pytest.mark.parametrize("how", ["fit", "update"])
@pytest.mark.parametrize("shards", [None, 3])
def test_no_byte_of_an_erased_user_is_in_the_new_model(
    folder: Path, store: EventStore, how: str, shards: int | None
) -> None:
    model = Recommender.load(folder / "model").update({"user": ["someone we forget"] * 3, "item": ["i1", "i2", "i3"]})
    model.save(folder / "served", shards=shards)
    assert b"someone we forget" in all_files(folder / "served")
    erase(store, "someone we forget")
    assert refit(folder, "--how", how, model="served")["swapped"]
    assert b"someone we forget" not in all_files(folder / "served")
    assert len(Recommender.load(folder / "served", verify=True).user_ids()) == 100
    left = {"model", "served", DATA, "events.db", "events.db-wal", "events.db-shm"}
    assert {file.name for file in folder.iterdir()} == left


@pytest.mark.parametrize("how", ["fit", "update"])
@pytest.mark.parametrize("shards", [None, 3])
def test_an_erasure_discards_a_refit_of_any_kind(
    folder: Path, store: EventStore, monkeypatch: pytest.MonkeyPatch, how: str, shards: int | None
) -> None:
    Recommender.load(folder / "model").save(folder / "served", shards=shards)
    post(store, ("new", "i1", "like"), ("new", "i3", "like"))
    before = all_files(folder / "served")
    judge = module.judge

    def interrupted(*given: Any) -> Any:
        erase(store, "u3")
        return judge(*given)

    with monkeypatch.context() as patch:
        patch.setattr(module, "judge", interrupted)
        result = refit(folder, "--how", how, model="served")
    assert "a user was erased during the refit" in result.stderr
    assert all_files(folder / "served") == before
    assert refit(folder, "--how", how, model="served")["swapped"]
    assert "u3" not in Recommender.load(folder / "served").user_ids()


@pytest.mark.parametrize("shards", [None, 3])
def test_a_model_that_is_written_meanwhile_is_kept(
    folder: Path, store: EventStore, monkeypatch: pytest.MonkeyPatch, shards: int | None
) -> None:
    model = Recommender.load(folder / "model")
    model.save(folder / "served", shards=shards)
    post(store, ("new", "i1", "like"), ("new", "i3", "like"))
    other = Recommender(**SETTINGS | {"seed": 1}).fit(likes_table())
    judge = module.judge

    def interrupted(*given: Any) -> Any:
        other.save(folder / "served", shards=shards)
        return judge(*given)

    monkeypatch.setattr(module, "judge", interrupted)
    assert "another model was written" in refit(folder, model="served").stderr
    assert Recommender.load(folder / "served", verify=True).seed == 1


@pytest.mark.parametrize("swapped", [False, True])
def test_shards_that_the_index_names_stay_whenever_it_is_cut_off(folder: Path, swapped: bool) -> None:
    Recommender.load(folder / "model").save(folder / "served", shards=3)
    Recommender(**SETTINGS | {"seed": 1}).fit(likes_table()).save(folder / "new", shards=2)

    def cut_off(act: Any) -> None:
        if swapped:
            act()
        sys.exit()

    with pytest.raises(SystemExit):
        replace_shards(str(folder / "new"), str(folder / "served"), cut_off)
    assert Recommender.load(folder / "served", verify=True).seed == int(swapped)
    assert len(list((folder / "served").iterdir())) == 1 + (2 if swapped else 3)


def test_how_sure_it_must_be_that_a_model_is_worse() -> None:
    random = np.random.default_rng(0)
    for size in (2, 3, 10, 100):
        for shift in (-0.6, -0.3, -0.1, 0.0, 0.1):
            gains = np.zeros((2, size))
            gains[1] = random.normal(shift, 0.5, size)
            assert is_worse(gains) == (scipy.stats.ttest_1samp(gains[1], 0.0, alternative="less").pvalue < 0.05)
    assert not is_worse(np.array([[1.0], [0.0]]))  # one alone does not tell
    assert not is_worse(np.zeros((2, 0)))


def test_an_update_that_is_worse_is_kept_out(folder: Path, store: EventStore, monkeypatch: pytest.MonkeyPatch) -> None:
    old = Recommender.load(folder / "model")
    like_what_is_shown(store, old)
    before, updated = (folder / "model").read_bytes(), module.updated

    def worse(*given: Any) -> Any:
        new = updated(*given)
        order = np.random.default_rng(0).permutation(len(new.items))
        return replace(new, items=new.items.take(order))

    with monkeypatch.context() as patch:
        patch.setattr(module, "updated", worse)
        assert not refit(folder, "--how", "update")["swapped"]
    assert (folder / "model").read_bytes() == before
    assert refit(folder, "--how", "update")["swapped"]


# --- Erasures of others, and clocks ---


@pytest.mark.parametrize("how", ["fit", "update"])
def test_erasing_who_never_existed_discards_nothing(
    folder: Path, store: EventStore, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    post(store, ("new", "i1", "like"), ("new", "i3", "like"))
    judge = module.judge

    def interrupted(*given: Any) -> Any:
        for number in range(3):
            erase(store, f"nobody {number}")
        return judge(*given)

    monkeypatch.setattr(module, "judge", interrupted)
    assert refit(folder, "--how", how)["swapped"]


@pytest.mark.parametrize("who", ["erased before, and back", "new"])
def test_an_erasure_of_someone_whose_events_were_read_discards(
    folder: Path, store: EventStore, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    """Their hash was there before, or the data does not have them."""
    if who != "new":
        erase(store, who)
    post(store, (who, "i1", "like"), (who, "i3", "like"), ("other", "i3", "like"))
    judge = module.judge
    monkeypatch.setattr(module, "judge", lambda *given: (erase(store, who), judge(*given))[1])
    assert "a user was erased during the refit" in refit(folder).stderr


def at(store: EventStore, sequence: int, seconds: float) -> None:
    """Change the time of an event."""
    with sqlite3.connect(store.path) as other:
        other.execute("update events set time = ? where sequence = ?", (int(seconds), sequence))
    other.close()


@pytest.mark.parametrize(("first", "last"), [(0, 70 * YEAR), (-56 * YEAR, 0), (-30 * 86_400, 70 * YEAR)])
def test_a_wrong_clock_does_not_make_an_update_forget(
    folder: Path, store: EventStore, first: float, last: float
) -> None:
    """The first event has a clock decades behind, or the last one decades ahead."""
    before, now = Recommender.load(folder / "model"), time.time()
    post(store, ("u1", "i39x", "like"), ("u1", "i2", "like"), ("u1", "i3", "like"))
    at(store, 1, now + first)
    at(store, 3, now + last)
    assert refit(folder, "--how", "update")["swapped"]
    after = Recommender.load(folder / "model")
    days = after.model_.updates.days
    assert days == pytest.approx({0: 0, -56 * YEAR: module.MOST_DAYS, -30 * 86_400: 30}[first], abs=0.1)
    shown = [model.recommend_table(N=20)["item"].to_pylist() for model in (before, after)]
    assert np.mean([one == other for one, other in zip(*shown)]) > 0.3 or days > 0


def test_an_update_that_forgets_is_kept_out(folder: Path, store: EventStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """One new like, which tells nothing, and a model that has lost what it knew."""
    post(store, ("u1", "i39x", "like"))
    before, updated = (folder / "model").read_bytes(), module.updated

    def forgetful(*given: Any) -> Any:
        new = updated(*given)
        items = new.items.copy()
        items.mean[:] = np.random.default_rng(0).normal(size=items.mean.shape)
        return replace(new, items=items)

    with monkeypatch.context() as patch:
        patch.setattr(module, "updated", forgetful)
        result = refit(folder, "--how", "update")
    assert (result["judged"], result["swapped"]) == (1, False)
    assert (folder / "model").read_bytes() == before
    assert refit(folder, "--how", "update")["swapped"]


def test_an_update_of_few_items_is_compared(folder: Path, store: EventStore) -> None:
    """Lists are longer than the catalogue."""
    likes = {"user": ["a", "a", "b", "c", "c"], "item": ["x", "y", "x", "y", "z"]}
    Recommender(**SETTINGS).fit(likes).save(folder / "few")
    post(store, ("b", "z", "like"), ("a", "z", "like"), ("d", "x", "like"))
    assert refit(folder, "--how", "update", model="few")["swapped"]
