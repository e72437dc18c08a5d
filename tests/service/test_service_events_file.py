"""A file of events that is damaged, or removed while the service has it open."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest
from typer.testing import CliRunner

from considerate.cli import app
from considerate.errors import ConsiderateError
from considerate.service.events import EventsDamaged, EventsRemoved, EventStore, EventsUnavailable
from considerate.service.metrics import Metrics
from tests.helpers.refit_fixtures import erase, folder, post, store
from tests.helpers.service_fixtures import model, path, running

__all__ = ["folder", "model", "path", "store"]  # pytest's fixtures

DAMAGES = {
    "its salt is not 32 bytes": "update about set value = 5 where name = 'salt'",
    "its salt is not 32 bytes ": "update about set value = x'00ff' where name = 'salt'",
    "its version is 'one'": "update about set value = 'one' where name = 'version'",
    "its version is -1": "update about set value = -1 where name = 'version'",
    "its version is None": "pragma writable_schema=on; update sqlite_master set sql = replace(sql, ' not null', '') "
    "where name = 'about'; pragma writable_schema=reset; update about set value = null where name = 'version'",
    "its number of erasures is 'many'": "update about set value = 'many' where name = 'erasures'",
    "event 2 has a field of another kind": "update events set kind = 7 where sequence = 2",
    "event 1 has a field of another kind": "update events set user = x'ff' where sequence = 1",
    "a text in it is not UTF-8": "pragma writable_schema=on; update sqlite_master set name = cast(x'ff' as text), "
    "sql = 'nothing' where name = 'events'",
    "SQLite says: malformed database schema": "pragma writable_schema=on; update sqlite_master set sql = 'nothing' "
    "where name = 'events'",
}


@pytest.mark.parametrize("reason", DAMAGES)
def test_a_damaged_file_is_said_in_a_sentence(folder: Path, reason: str) -> None:
    file, metrics = str(folder / "events.db"), Metrics()
    store = EventStore(file, metrics)
    post(store, ("ann", "i1", "like"), ("ann", "i2", "like"))
    store.close()
    database = sqlite3.connect(file)
    database.executescript(DAMAGES[reason])
    database.commit()
    database.close()
    with pytest.raises(EventsDamaged, match=f"the file of events is damaged, {reason.strip()}.*; restore a copy"):
        EventStore(file, metrics)
    for command in (["serve", str(folder / "model"), "--port", "8999"], ["refit", str(folder / "model")]):
        result = CliRunner().invoke(app, [*command, "--events", file], prog_name="considerate")
        assert result.exit_code == 1, result.output
        assert reason.strip() in " ".join(result.stderr.split())
        assert "Traceback" not in result.output


def test_a_text_that_is_not_utf8_is_no_traceback(store: EventStore) -> None:
    post(store, ("ann", "i1", "like"))
    other = sqlite3.connect(store.path)
    other.execute("update events set item = cast(x'ff00ff' as text)")
    other.commit()
    other.close()
    for ask in (lambda: store.of_users(["ann"]), lambda: store.page("ann", 0, 5), store.everything):
        with pytest.raises(EventsUnavailable):
            ask()


@pytest.mark.parametrize("how", ["removed", "replaced", "without its log"])
def test_a_file_that_is_gone_stores_nothing(path: Path, tmp_path: Path, how: str) -> None:
    file = tmp_path / "events.db"
    with running(path, events=str(file)) as client:
        client.post_events(("ann", "i20", "like", "first"))
        assert client.get("/health/ready").status_code == 200
        os.unlink(f"{file}-wal" if how == "without its log" else file)
        if how == "replaced":
            file.touch()
        assert client.get("/health/ready").status_code == 503
        events = {"events": [{"user": "ann", "item": "i21", "key": "second"}]}
        for answer in (
            client.post("/v1/events", json=events),
            client.get("/v1/users/ann/events"),
            client.delete("/v1/users/ann/events"),
        ):
            assert (answer.status_code, answer.json()["type"]) == (503, "/docs#no-events")
            assert "The file of events was removed while the service used it" in answer.json()["detail"]
        assert client.get("/health/live").status_code == 200
        assert client.post("/v1/recommendations", json={"likes": ["i20"]}).status_code == 200  # what needs no events
    if how == "removed":
        assert not file.exists()


def test_a_refit_is_not_published_when_the_events_are_gone(store: EventStore) -> None:
    post(store, ("ann", "i1", "like"))
    log, acted = store.everything(), []
    os.unlink(store.path)
    with pytest.raises(EventsRemoved, match="was removed or replaced while it was in use"):
        store.unless_erased(log, [], lambda: acted.append(1))  # type: ignore[arg-type]
    assert not acted
    assert issubclass(EventsRemoved, ConsiderateError)


def test_an_erasure_counts_where_it_could_change_something(store: EventStore) -> None:
    post(store, ("ann", "i1", "like"))
    marks = [store.mark()]
    for user in ("nobody", "nobody", "ann", "ann"):
        erase(store, user)
        marks.append(store.mark())
    assert [mark[1] for mark in marks] == [0, 1, 1, 2, 2]
