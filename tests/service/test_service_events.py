"""Events of the service: on disk when acknowledged, counted at the next request, and gone when erased."""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from considerate import Recommender
from considerate.errors import UsageError
from considerate.service import events as module
from considerate.service.events import EventStore, NewEvent
from considerate.service.logs import JsonLines
from considerate.service.metrics import Metrics
from tests.helpers.service_fixtures import Client, model, path, running, same_items, wait_for

__all__ = ["model", "path"]  # pytest's fixtures


@pytest.fixture
def client(path: Path, tmp_path: Path) -> Iterator[Client]:
    with running(path, events=str(tmp_path / "events.db")) as service:
        yield service


def liked(model: Recommender, user: str) -> list[str]:
    rows = model.model_.users.whole().liked.row(int(model.user_rows(user)))
    return list(model.item_ids(rows))


# --- What they change ---


def test_the_next_request_counts_a_like(client: Client, model: Recommender) -> None:
    before = client.recommendations("u20")
    new = before["items"][3]["item"]
    sequence = client.post_events(("u20", new))["events"][0]["sequence"]
    after = client.recommendations("u20")
    assert after["events"] == sequence
    same_items(after["items"], model.recommend_for([*liked(model, "u20"), new]))
    client.post_events(("u20", new, "unlike"))  # as in training again: so is the posterior
    same_items(client.recommendations("u20")["items"], model.recommend_table(["u20"]))
    client.post_events(("u20", liked(model, "u20")[0], "unlike"))
    same_items(client.recommendations("u20")["items"], model.recommend_for(liked(model, "u20")[1:]))


def test_what_was_shown_and_not_taken_counts_too(client: Client, model: Recommender) -> None:
    likes = liked(model, "u20")
    shown = [item for item in ("i21", "i22", "i23", "i24") if item not in likes][:2]
    client.post_events(*[("u20", item, "considered") for item in [*shown, likes[0]]], ("u20", "nothing that is known"))
    expected = model.recommend_for(likes, considered=shown)
    same_items(client.recommendations("u20")["items"], expected)
    assert expected != model.recommend_for(likes)
    body = {"likes": likes, "considered": [*shown, likes[0], "zzz"]}
    answer = client.post("/v1/recommendations", json=body).json()
    assert answer["ignored"] == ["zzz"]
    same_items(answer["items"], expected)
    client.post_events(("u20", shown[0], "like"))
    same_items(client.recommendations("u20")["items"], model.recommend_for([*likes, shown[0]], considered=shown[1:]))


def test_someone_new_by_events_alone(client: Client, model: Recommender) -> None:
    assert client.post_events((" new/one ", "i21"), ("new/one", "a/b"), ("new/one", "zzz"))["unknown_items"] == ["zzz"]
    answer = client.recommendations("new/one", explain=True)
    for item in answer["items"]:
        assert item.pop("why")["because"]
    same_items(answer["items"], model.recommend_for(["i21", "a/b"]))
    client.post_events(("new/one", "i21", "unlike"), ("new/one", "a/b", "unlike"))
    assert client.get("/v1/users/new%2Fone/recommendations").status_code == 404


def test_a_retry_with_the_same_key_is_stored_once(client: Client) -> None:
    first = client.post_events(("ann", "i20", "like", "k1"), ("ann", "i20", "like", "k1"), ("bob", "i20", "like", "k1"))
    assert [event["duplicate"] for event in first["events"]] == [False, True, False]
    again = client.post_events(("ann", "i20", "like", "k1"))
    assert again["events"] == [{"sequence": first["events"][0]["sequence"], "duplicate": True}]
    assert len(client.get("/v1/users/ann/events").json()["events"]) == 1


def test_the_audit_comes_in_pages(client: Client) -> None:
    client.post_events(*[("ann", f"i{number}", "considered") for number in range(5)], ("bob", "i1"))
    page = client.get("/v1/users/ann/events?n=3").json()
    assert (page["more"], [event["item"] for event in page["events"]]) == (True, ["i0", "i1", "i2"])
    rest = client.get("/v1/events", params={"user": "ann", "after": page["events"][-1]["sequence"]}).json()
    assert (rest["more"], [event["kind"] for event in rest["events"]]) == (False, ["considered"] * 2)


# --- Erasure ---


def traces(folder: Path, needle: str) -> list[str]:
    return [file.name for file in folder.iterdir() if needle.encode() in file.read_bytes()]


def test_no_byte_of_an_erased_user_is_left(path: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    handler = logging.FileHandler(log)
    handler.setFormatter(JsonLines())
    logger = logging.getLogger("considerate.service")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    name = "erase-me-please"
    try:
        with running(path, events=str(tmp_path / "events.db"), access_log=True) as client:
            client.post_events(*[("someone else", f"i{number}") for number in range(30)])
            for number in range(30):
                client.post_events((name, f"i{number}", "like", f"{name}-{number}"))
            client.recommendations(name)
            assert traces(tmp_path, name), "the test could not fail"
            assert client.delete(f"/v1/users/{name}/events").json()["erased"] == 30
            assert traces(tmp_path, name) == []
            assert client.get(f"/v1/users/{name}/recommendations").status_code == 404
            again = client.post_events((name, "i1", "like", f"{name}-1"))  # a late retry
            assert again["events"][0]["duplicate"]
            assert client.get(f"/v1/users/{name}/events").json()["events"] == []
            assert client.delete("/v1/events", params={"user": name}).json()["erased"] == 0
            assert len(client.get("/v1/users/someone%20else/events").json()["events"]) == 30
            assert client.post_events(("someone else", "i1"))["events"][0]["sequence"] > 60 - 1
        assert '"route": "/v1/users/{user}/recommendations"' in log.read_text()
        assert traces(tmp_path, name) == []
    finally:
        logger.removeHandler(handler)


def test_an_erasure_that_was_cut_short_is_ended_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with stored(tmp_path) as store:
        append(store, NewEvent("erase-me", "i1", "like", None))

        def fail(*_: object) -> None:
            raise sqlite3.OperationalError("cut short")

        with monkeypatch.context() as patch:
            patch.setattr(EventStore, "_empty_log", fail)
            with pytest.raises(module.EventsUnavailable):
                call(store.erase, "erase-me")
        assert traces(tmp_path, "erase-me")
        assert call(store.erase, "nobody") == 0
        assert traces(tmp_path, "erase-me") == []


# --- The store alone ---


def call(start: Any, *arguments: Any) -> Any:
    """The result of what answers by a callback."""
    answered, result = Event(), []

    def done(*outcome: Any) -> None:
        result.append(outcome)
        answered.set()

    start(*arguments, done)
    answered.wait()
    value, error = result[0]
    if error is not None:
        raise error
    return value


def append(store: EventStore, *events: NewEvent) -> Any:
    return call(store.append, events)


class stored:
    """A store in a folder, closed at the end."""

    def __init__(self, folder: Path) -> None:
        self.store = EventStore(str(folder / "events.db"), Metrics())

    def __enter__(self) -> EventStore:
        return self.store

    def __exit__(self, *_: object) -> None:
        self.store.close()


def test_all_that_wait_are_committed_together(tmp_path: Path) -> None:
    with stored(tmp_path) as store, ThreadPoolExecutor(20) as pool:
        append(store, NewEvent("ann", "i1", "like", None))
        before = store.metrics.commits._value.get()
        other = sqlite3.connect(store.path, isolation_level=None)
        other.execute("begin immediate")  # the writer waits for it
        answers = [pool.submit(append, store, NewEvent("ann", "i1", "like", "first"))]
        wait_for(lambda: store.waiting() == 0 and answers[0].running())
        answers += [pool.submit(append, store, NewEvent("ann", "i1", "like", f"{number}")) for number in range(19)]
        wait_for(lambda: store.waiting() >= 18)  # the first may still be on its way to the queue
        assert not any(answer.done() for answer in answers)
        other.execute("commit")
        other.close()
        assert sorted(answer.result()[0][0] for answer in answers) == list(range(2, 22))
        assert store.metrics.commits._value.get() - before <= 3  # the one that waited, and all others


def test_a_full_disk_is_said_and_nothing_is_lost(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connections = []
    connect = EventStore._connect

    def remembered(store: EventStore) -> sqlite3.Connection:
        connections.append(connect(store))
        return connections[-1]

    monkeypatch.setattr(EventStore, "_connect", remembered)
    with running(path, events=str(tmp_path / "events.db")) as client:
        client.post_events(("ann", "i20", "like", "first"))
        for connection in connections:
            connection.execute(f"pragma max_page_count={connection.execute('pragma page_count').fetchone()[0]}")
        events = [{"user": "ann", "item": "x" * 500, "key": f"{number}"} for number in range(200)]
        response = client.post("/v1/events", json={"events": events})
        assert (response.status_code, response.json()["type"]) == (503, "/docs#no-events")
        assert response.headers["retry-after"]
        assert client.get("/health/ready").status_code == 503
        assert len(client.get("/v1/users/ann/events").json()["events"]) == 1
        assert client.recommendations("ann")["events"] == 1  # answers go on
        assert "considerate_event_failures_total 2.0" in client.get("/metrics").text
        for connection in connections:
            connection.execute("pragma max_page_count=1000000")
        assert client.get("/health/ready").status_code == 200  # it tries by itself: an unready service gets no events
        assert client.post("/v1/events", json={"events": events}).status_code == 200
        assert len(client.get("/v1/users/ann/events").json()["events"]) == 201


def test_readers_see_what_another_process_committed(tmp_path: Path) -> None:
    with stored(tmp_path) as one, stored(tmp_path) as other:
        for number in range(20):
            writer, reader = (one, other) if number % 2 else (other, one)
            append(writer, NewEvent("ann", f"i{number}", "like", f"{number}"))
            assert [row[1] for row in reader.of_users(["ann"])["ann"]] == [f"i{n}" for n in range(number + 1)]
            (sequence, duplicate) = append(reader, NewEvent("ann", "again", "like", f"{number}"))[0]
            assert (sequence, duplicate) == (number + 1, True)


def test_what_waits_is_stored_at_the_end(tmp_path: Path) -> None:
    answers: list[Any] = []
    with stored(tmp_path) as store:
        for number in range(50):
            store.append([NewEvent("ann", f"i{number}", "like", None)], lambda result, _: answers.append(result))
    assert [result[0][0] for result in answers] == list(range(1, 51))


SERVICE = """
import sys
from considerate.service import events
from tests.helpers.service_fixtures import running

events.SYNCHRONOUS = sys.argv[3]
with running(sys.argv[1], events=sys.argv[2]) as client:
    for number in range(3):
        client.post_events(("ann", "i1"))
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize("synchronous", ["full", "off"])
def test_the_log_is_synced_before_200_is_written(path: Path, tmp_path: Path, synchronous: str) -> None:
    """What the kernel saw, in order; with synchronous=off the same test finds an answer without a sync before it."""
    trace = tmp_path / "trace"
    calls = "trace=fsync,fdatasync,write,writev,pwrite64,sendto,sendmsg"
    command = ["strace", "-f", "-y", "--seccomp-bpf", "-s", "64", "-e", calls, "-o", str(trace)]
    command += [sys.executable, "-c", SERVICE, str(path), str(tmp_path / "events.db"), synchronous]
    paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | paths)
    if "ptrace" in ran.stderr and ran.returncode:
        pytest.skip("strace may not trace here")
    assert ran.returncode == 0, ran.stderr
    unsynced, syncing, answers = False, "", []
    for thread, line in (line.split(maxsplit=1) for line in trace.read_text().splitlines()):
        if "sync(" in line and "events.db-wal>" in line and "unfinished" in line:
            syncing = thread
        elif ("sync(" in line and "events.db-wal>" in line) or ("sync resumed>" in line and thread == syncing):
            unsynced = False  # it has returned
        elif "write" in line and "events.db-wal>" in line:
            unsynced = True
        elif '"HTTP/1.1 200 OK' in line:
            answers.append(unsynced)
    assert answers == [synchronous == "off"] * 3


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "events.db").write_bytes(b"likes, but not in SQLite" * 100)
    with pytest.raises(UsageError, match="is no file of events"):
        EventStore(str(tmp_path / "events.db"), Metrics())
    with pytest.raises(UsageError, match="cannot be written"):
        EventStore(str(tmp_path / "nowhere" / "events.db"), Metrics())
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("create table likes (user, item)")
    other.close()
    before = (tmp_path / "other.db").read_bytes()
    with pytest.raises(UsageError, match="of another program"):
        EventStore(str(tmp_path / "other.db"), Metrics())
    assert len(before) == len((tmp_path / "other.db").read_bytes())
    (tmp_path / "new").mkdir()
    with stored(tmp_path / "new") as store:
        assert Path(store.path).stat().st_mode & 0o077 == 0
    database = sqlite3.connect(store.path)
    database.execute("update about set value = 2 where name = 'version'")
    database.commit()
    database.close()
    with pytest.raises(UsageError, match="newer version"):
        EventStore(store.path, Metrics())
