"""`considerate refit`: the data with the events, judged against the model that is served."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from considerate import Recommender
from considerate.cli import app
from considerate.model.file import save_model, save_sharded
from considerate.model.model import LearnedEvents
from considerate.service import events as events_module
from considerate.service.events import EventStore
from tests.helpers.likes import planted
from tests.helpers.refit_fixtures import (
    DATA,
    SETTINGS,
    erase,
    folder,
    likes_of,
    pairs,
    post,
    refit,
    store,
)
from tests.helpers.service_fixtures import running, same_items, wait_for

__all__ = ["folder", "store"]  # pytest's fixtures


def test_the_data_and_the_events_make_the_new_model(folder: Path, store: EventStore) -> None:
    before = pairs(Recommender.load(folder / "model"))
    (gone,) = [pair for pair in sorted(before) if pair[0] == "u7"][:1]
    post(
        store,
        ("u1", "i39x", "like"),  # a new item, the latest of u1 but one
        ("new", "i1", "like"),
        ("new", "i3", "like"),
        ("new", "i5", "like"),  # held out: the latest of someone with others
        (*gone, "unlike"),
        ("u8", "i2", "considered"),
        ("u9", "i39x", "like"),
        ("u9", "i39x", "unlike"),
        ("u1", "i39y", "like"),  # held out, and nobody else has it
    )
    erase(store, "u3")
    result = refit(folder, data=DATA)
    new = Recommender.load(folder / "model")
    expected = {pair for pair in before if pair[0] != "u3" and pair != gone}
    expected |= {("u1", "i39x"), ("new", "i1"), ("new", "i3")}
    assert pairs(new) == expected
    assert result["likes"] == len(expected)
    assert (result["added"], result["judged"], result["sequence"]) == (3, 2, 9)
    assert result["removed"] == len(before) - len(expected & before)
    assert result["swapped"]
    assert new.titles(["i1"]) == ["Title 1"]
    assert {name: getattr(new, name) for name in SETTINGS} == SETTINGS


def test_integer_ids_and_texts_that_are_none(folder: Path, store: EventStore) -> None:
    users, items = planted(100, 40).nonzero()
    likes = pa.table({"user": users.astype(np.int64), "item": items.astype(np.int64)})
    pa.parquet.write_table(likes, folder / "likes.parquet")
    Recommender(**SETTINGS).fit(likes).save(folder / "model")
    post(store, ("7", "1000", "like"), ("seven", "1", "like"), ("1000", "1", "like"))
    result = refit(folder, data=DATA)
    assert (result["ignored"], result["judged"]) == (1, 1)
    new = Recommender.load(folder / "model")
    assert int(new.user_rows(1000)) == 100
    assert new.model_.item_count == 40  # item 1000 is the like of user 7 that was held out


def test_a_service_swaps_the_refitted_model_in(folder: Path, store: EventStore) -> None:
    with running(folder / "model", events=str(folder / "events.db")) as client:
        before = client.get("/v1/model").json()
        client.post_events(("new", "i1"), ("new", "i3"), ("new", "i5"))
        assert refit(folder, data=DATA)["swapped"]
        after = wait_for(lambda: (m := client.get("/v1/model").json())["digest"] != before["digest"] and m)
        assert after["users"] == before["users"] + 1
        assert (before["event_sequence"], after["event_sequence"]) == (0, 3)
        answer = client.recommendations("new")
        assert not {"i1", "i3", "i5"} & {item["item"] for item in answer["items"]}


# --- Without the data, and by what has changed ---


def test_the_likes_in_the_model_do_for_the_data(folder: Path, store: EventStore) -> None:
    (folder / "other").write_bytes((folder / "model").read_bytes())
    gone = likes_of(Recommender.load(folder / "model"), "u7")[0]
    post(store, ("u1", "i39x", "like"), ("new", "i1", "like"), ("new", "i3", "like"), ("u7", gone, "unlike"))
    erase(store, "u3")
    results = refit(folder, data=DATA), refit(folder, model="other")
    assert results[0] == results[1]
    assert results[0]["swapped"]
    assert (folder / "model").read_bytes() == (folder / "other").read_bytes()
    post(store, ("new", "i5", "like"))  # and on from a model that has learned events
    results = refit(folder, data=DATA), refit(folder, model="other")
    assert results[0]["likes"] == results[1]["likes"] == len(pairs(Recommender.load(folder / "model")))
    assert (folder / "model").read_bytes() == (folder / "other").read_bytes()


@dataclass
class Clock:
    """A module `time` whose days the test decides."""

    days: int
    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)

    def time(self) -> float:
        return 86_400.0 * self.days


def test_an_update_learns_what_has_changed(folder: Path, store: EventStore, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Recommender.load(folder / "model")
    gone = likes_of(model, "u7")[0]
    clock = Clock(days=1_000)
    monkeypatch.setattr(events_module, "time", clock)
    post(store, ("u1", "i39x", "like"), ("u2", "i39x", "like"), ("new", "i1", "like"), ("new", "i3", "like"))
    clock.days += 1
    post(store, ("u1", "i39y", "like"), ("u7", gone, "unlike"))
    erase(store, "u3")
    result = refit(folder, "--how", "update")
    # held out are the latest of u1 and of the new user; u2's is the latest, too
    assert (result["judged"], result["added"], result["swapped"]) == (3, 2, True)
    added = {"user": ["u1", "new"], "item": ["i39x", "i1"]}
    model.forget("u3").update(added, removed={"user": ["u7"], "item": [gone]}, days=1.0)
    updated = replace(model.model_, events=LearnedEvents(6, store.identity, erasures=1))
    save_model(updated, folder / "expected")
    assert (folder / "model").read_bytes() == (folder / "expected").read_bytes()
    # The next one learns what was held out before and is not the latest any more, and days go on from the events.
    clock.days += 2
    post(store, ("u1", "i39z", "like"))
    assert refit(folder, "--how", "update")["added"] == 1
    after = Recommender.load(folder / "model")
    assert pairs(after) == pairs(model) | {("u1", "i39y")}
    assert (after.model_.updates.count, after.model_.updates.days) == (2, 3.0)
    # One without a change leaves every bit.
    before = after.model_.items.rows.copy()
    post(store, ("u1", "i39z", "considered"))
    assert refit(folder, "--how", "update")["swapped"]
    last = Recommender.load(folder / "model").model_
    assert np.array_equal(last.items.rows, before)
    assert last.events.sequence == 8


def test_who_was_erased_and_comes_back_begins_anew(folder: Path, store: EventStore) -> None:
    erase(store, "u3")
    post(store, ("u3", "i1", "like"), ("u3", "i2", "like"), ("u3", "i3", "like"))
    for how, learned in (("update", 1), ("fit", 0), ("update", 0)):
        result = refit(folder, "--how", how)
        assert likes_of(Recommender.load(folder / "model"), "u3") == ["i1", "i2"]  # i3 is held out
        assert Recommender.load(folder / "model").model_.updates.count == learned  # not learned twice
        assert result["judged"] == 1


# --- Which events a model has learned ---


def test_the_model_file_says_which_events_it_has_learned(folder: Path, store: EventStore) -> None:
    fitted = Recommender.load(folder / "model")
    assert b'"events"' not in (folder / "model").read_bytes()
    learned = LearnedEvents(7, store.identity, considered=True)
    save_model(replace(fitted.model_, events=learned), folder / "one")
    save_sharded(replace(fitted.model_, events=learned), folder / "shards", 2)
    for name in ("one", "shards"):
        loaded = Recommender.load(folder / name)
        assert loaded.model_.events == learned
        loaded.update({"user": ["u1", "new"], "item": ["i39x", "i1"]}).forget(["u2"])
        loaded.partial_fit_users(["newer"], [["i1", "i2"]])
        assert loaded.model_.events == learned  # a change that is not of events leaves it
        shown = CliRunner().invoke(app, ["inspect", str(folder / name)], prog_name="considerate").stdout
        assert "of a service, up to 7, with pairs that were considered" in shown
    with running(folder / "one", events=str(folder / "others.db")) as client:
        assert (
            client.get("/v1/model").json()["event_sequence"] == 0
        )  # a number of another file says nothing of this one


def test_what_a_model_has_learned_is_not_folded_in_again(folder: Path, store: EventStore) -> None:
    model = Recommender.load(folder / "model")
    likes = sorted(item for user, item in pairs(model) if user == "u1")
    shown, other = [f"i{item}" for item in range(40) if f"i{item}" not in likes][:2]
    post(store, ("u1", shown, "considered"))
    learned = [LearnedEvents(1, store.identity, considered) for considered in (False, True)]
    for events, expected in zip(
        learned, (model.recommend_for(likes, considered=[shown]), model.recommend_table(["u1"]))
    ):
        save_model(replace(model.model_, events=events), folder / "model")
        with running(folder / "model", events=str(folder / "events.db")) as client:
            same_items(client.recommendations("u1")["items"], expected)
    with running(folder / "model", events=str(folder / "events.db")) as client:
        client.post_events(("u1", other, "considered"))  # after what it has learned
        same_items(client.recommendations("u1")["items"], model.recommend_for(likes, considered=[shown, other]))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--every", "0"], "--every is 0"),
        (["--events", "none.db"], "no such file"),
        (["--where", "rating >= 4"], "go with DATA"),
        (["--how", "update", "--considered"], "an update learns only from likes of events"),
    ],
)
def test_a_refit_that_cannot_be_is_refused_with_the_reason(
    folder: Path, store: EventStore, options: list[str], reason: str
) -> None:
    result = refit(folder, *options)
    assert result.exit_code == 2
    assert reason in result.stderr


def test_data_of_another_catalogue_is_refused(folder: Path, store: EventStore) -> None:
    before = (folder / "model").read_bytes()
    pa.parquet.write_table(pa.table({"user": ["u1", "u2"], "item": ["song 1", "song 2"]}), folder / "songs.parquet")
    result = refit(folder, data="songs.parquet")
    assert result.exit_code == 2
    assert "DATA has no item of the model ('song 1' and others, where the model has 'i0' and others)" in result.stderr
    assert (folder / "model").read_bytes() == before
