"""`considerate refit`: the data with the events, judged against the model that is served."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from considerate import Recommender
from considerate.cli import app
from considerate.model.file import save_model, save_sharded
from considerate.model.model import LearnedEvents
from considerate.service.events import EventStore, NewEvent
from considerate.service.metrics import Metrics
from considerate.service.refit import served_list
from likes import planted
from service_fixtures import running, same_items

SETTINGS: dict[str, Any] = {"factors": 4, "sweeps": 4, "opening": 2, "threads": 1}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """likes.parquet with texts for ids, a model fitted to them, and events.db, still empty."""
    users, items = planted(100, 40).nonzero()
    likes = pa.table({"user": [f"u{user}" for user in users], "item": [f"i{item}" for item in items]})
    pa.parquet.write_table(likes, tmp_path / "likes.parquet")
    titles = {f"i{item}": f"Title {item}" for item in range(40)}
    Recommender(**SETTINGS).fit(likes, titles=titles).save(tmp_path / "model")
    return tmp_path


@pytest.fixture
def store(folder: Path) -> Iterator[EventStore]:
    opened = EventStore(str(folder / "events.db"), Metrics())
    yield opened
    opened.close()


def post(store: EventStore, *events: tuple[str, str, str]) -> None:
    answers: list[Any] = []
    store.append([NewEvent(*event, None) for event in events], lambda *answer: answers.append(answer))
    _flush(store)
    assert answers[0][1] is None


def erase(store: EventStore, user: str) -> None:
    store.erase(user, lambda *_: None)
    _flush(store)


def _flush(store: EventStore) -> None:
    from threading import Event

    ended = Event()
    store.probe(lambda *_: ended.set())
    ended.wait()


def run(folder: Path, *options: str) -> Any:
    given = ["refit", str(folder / "model"), str(folder / "likes.parquet"), "--events", str(folder / "events.db")]
    result = CliRunner().invoke(app, [*given, *options, "--json"], prog_name="considerate")
    return json.loads(result.stdout) if result.exit_code == 0 else result


def pairs(recommender: Recommender) -> set[tuple[str, str]]:
    users = recommender.model_.users.whole()
    names = recommender.item_ids()
    return {
        (str(user), str(names[item]))
        for row, user in enumerate(recommender.user_ids())
        for item in users.liked.row(row)
    }


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
    result = run(folder)
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
    result = run(folder)
    assert (result["ignored"], result["judged"]) == (1, 1)
    new = Recommender.load(folder / "model")
    assert int(new.user_rows(1000)) == 100
    assert new.model_.item_count == 40  # item 1000 is the like of user 7 that was held out


def test_a_worse_model_is_not_swapped_in(folder: Path, store: EventStore, monkeypatch: pytest.MonkeyPatch) -> None:
    old = Recommender.load(folder / "model")
    before = (folder / "model").read_bytes()
    for user in range(60):  # what the old model would have shown them
        name = f"u{user}"
        post(store, (name, served_list(old, name, [i for u, i in pairs(old) if u == name])[0], "like"))
    fit = Recommender.fit

    def worse(self: Recommender, likes: Any, **options: Any) -> Recommender:
        shuffled = np.random.default_rng(0).permutation(likes.items)
        return fit(self, replace(likes, items=shuffled), **options)

    with monkeypatch.context() as patch:
        patch.setattr(Recommender, "fit", worse)
        result = run(folder)
    assert result["new"] < result["old"]
    assert not result["swapped"]
    assert (folder / "model").read_bytes() == before
    assert run(folder)["swapped"]  # the same without the damage
    new = Recommender.load(folder / "model").model_  # all new likes are held out: the data of the old, and its bits
    assert np.array_equal(new.items.rows, old.model_.items.rows)
    assert new.events == LearnedEvents(60, store.identity)
    assert sorted(file.name for file in folder.iterdir() if "refit" in file.name) == []


def test_an_erasure_discards_a_refit_that_runs(
    folder: Path, store: EventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    erase(store, "u3")
    before = (folder / "model").read_bytes()
    fit = Recommender.fit

    def interrupted(self: Recommender, likes: Any, **options: Any) -> Recommender:
        erase(store, "u3")  # once more: the user had come back
        return fit(self, likes, **options)

    monkeypatch.setattr(Recommender, "fit", interrupted)
    result = run(folder)
    assert result.exit_code == 1
    assert "someone was erased while the refit ran" in result.stderr
    assert (folder / "model").read_bytes() == before


def test_a_service_swaps_the_refitted_model_in(folder: Path, store: EventStore) -> None:
    from service_fixtures import wait_for

    with running(folder / "model", events=str(folder / "events.db")) as client:
        before = client.get("/v1/model").json()
        client.post_events(("new", "i1"), ("new", "i3"), ("new", "i5"))
        assert run(folder)["swapped"]
        after = wait_for(lambda: (m := client.get("/v1/model").json())["digest"] != before["digest"] and m)
        assert after["users"] == before["users"] + 1
        assert (before["event_sequence"], after["event_sequence"]) == (0, 3)
        answer = client.recommendations("new")
        assert not {"i1", "i3", "i5"} & {item["item"] for item in answer["items"]}


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
        assert "of a service, up to 7, what was considered" in shown
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
    ("options", "reason"), [(["--every", "0"], "--every is 0"), (["--events", "none.db"], "no such file")]
)
def test_what_is_refused(folder: Path, store: EventStore, options: list[str], reason: str) -> None:
    result = run(folder, *options)
    assert result.exit_code == 2
    assert reason in result.stderr
