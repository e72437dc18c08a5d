"""`considerate serve` as a process: workers, kill -9, and the end."""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from considerate.cli import app, serve
from tests.helpers.randomised import LONG
from tests.helpers.service_fixtures import Process, fitted, running, started, wait_for


def insist(service: Process, event: dict[str, Any]) -> int:
    """Send an event until it is acknowledged, with the same key."""
    while True:
        with suppress(httpx.HTTPError), service.client() as client:  # the worker was killed, or there is none yet
            response = client.post("/v1/events", json={"events": [event]}, timeout=10)
            if response.status_code == 200:
                return int(response.json()["events"][0]["sequence"])


def test_two_workers_and_what_kill_leaves(tmp_path: Path) -> None:
    fitted().save(tmp_path / "model")
    log, database = tmp_path / "log", tmp_path / "events.db"
    with started(log, tmp_path / "model", "--events", database, "--workers", 2) as service:
        wait_for(lambda: len(service.workers()) == 2, 120)
        # The next request of a user counts a like, whichever worker answers.
        for number in range(10):
            with service.client() as client:
                sequence = client.post_events(("ann", f"i{20 + number}"))["events"][0]["sequence"]
            for _ in range(4):
                with service.client() as client:  # a connection of its own, to any worker
                    assert client.recommendations("ann")["events"] == sequence
        with service.client() as client:
            metrics = client.get("/metrics").text
        assert 'considerate_events_total{kind="like"} 10.0' in metrics  # of both together
        requests = re.search(r'route="/v1/recommendations",status="200"} (\d+)', metrics)
        assert requests is not None
        assert int(requests[1]) == 40
        # Workers, and the whole service, are killed while events come in.
        events = [{"user": f"user {n % 7}", "item": f"i{n}", "key": f"{n}"} for n in range(3_000 if LONG else 100)]
        kills = 50 if LONG else 2
        with ThreadPoolExecutor(4) as pool:
            answers = [pool.submit(insist, service, event) for event in events]
            for kill in range(kills):
                wait_for(lambda share=(kill + 1) / (kills + 1): sum(a.done() for a in answers) >= share * len(answers))
                if kill % 2:
                    service.kill()
                    service.start()
                else:
                    before = len(service.workers())
                    os.kill(service.workers()[-1], signal.SIGKILL)
                    wait_for(lambda before=before: len(service.workers()) > before, 120)
            sequences = [answer.result() for answer in answers]
        assert len(set(sequences)) == len(events)  # none twice
        with service.client() as client:
            found = {
                event["sequence"]: (f"user {user}", event["item"])
                for user in range(7)
                for event in client.get(f"/v1/users/user%20{user}/events").json()["events"]
            }
        assert found == {
            sequence: (event["user"], event["item"]) for sequence, event in zip(sequences, events)
        }  # none lost
        # The end: what has begun is answered, and no file of the log is left behind.
        service.process.send_signal(signal.SIGTERM)
        service.process.wait()
        assert not database.with_name("events.db-wal").exists()


def test_a_worker_that_cannot_start_waits_and_the_others_go_on(tmp_path: Path) -> None:
    """uvicorn's supervisor would end the service if a worker ended at its start."""
    model, log = tmp_path / "model", tmp_path / "log"
    fitted().save(model)
    good = model.read_bytes()
    with started(log, model, "--workers", 2, "--poll", 0.05) as service:
        wait_for(lambda: len(service.workers()) == 2, 120)
        replace_by(model, good[:-9] + b"damage" + good[-3:])
        wait_for(lambda: log.read_text().count('"model refused"') == 2)
        os.kill(service.workers()[-1], signal.SIGKILL)
        wait_for(lambda: log.read_text().count('"model refused"') == 3, 120)
        with service.client() as client:
            assert client.get("/health/ready").status_code == 200
        replace_by(model, good)
        wait_for(lambda: len(service.workers()) == 3)
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait() == 0
        assert list(tmp_path.glob("considerate-serve-*")) == []  # what lived as long as the service


def replace_by(path: Path, content: bytes) -> None:
    beside = path.with_name("beside")
    beside.write_bytes(content)
    beside.replace(path)


def sockets(process: int) -> int:
    """Those that a process has open."""
    found = 0
    for handle in Path(f"/proc/{process}/fd").iterdir():
        with suppress(FileNotFoundError):
            found += os.readlink(handle).startswith("socket:")
    return found


def listeners(port: int) -> int:
    """Number of sockets that listen at a port of this machine."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(address.endswith(f":{port:04X}") and state == "0A" for _, address, _, state, *_ in rows)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux divides connections among workers")
def test_no_worker_takes_all_connections(tmp_path: Path) -> None:
    fitted().save(tmp_path / "model")
    with started(tmp_path / "log", tmp_path / "model", "--workers", 2) as service, ExitStack() as connections:
        wait_for(lambda: listeners(service.port) == 2, 120)
        before = {worker: sockets(worker) for worker in service.workers()}

        def taken_by_each() -> list[int]:
            return [sockets(worker) - count for worker, count in before.items()]

        for _ in range(64):  # they ask nothing: after an answer the service would close them while others are made
            connections.enter_context(socket.create_connection(("127.0.0.1", service.port)))
        taken = wait_for(
            lambda: (now := taken_by_each()) and sum(now) >= 64 - 2 and now
        )  # that of the last look may close
        assert min(taken) >= 8  # by chance alone once in 10^11 times


def test_the_demonstration(tmp_path: Path) -> None:
    with started(tmp_path / "log", "--demo") as service, service.client() as client:
        assert "text/html" in client.get("/").headers["content-type"]
        found = client.get("/v1/reliability").json()
        assert found["source"] == "events"
        assert found["pairs"] > 1_000
        assert found["error"] < 0.1
        item = client.get("/v1/items?n=1").json()["items"][0]["item"]
        assert len(client.post("/v1/recommendations", json={"likes": [item]}).json()["items"]) == 10


def test_the_page_opens_where_there_is_a_desktop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    serve.open_page("http://127.0.0.1:1/", tries=1)  # where nobody answers
    assert opened == []
    fitted().save(tmp_path / "model")
    with running(tmp_path / "model") as client:
        serve.open_page(f"{client.base_url}/")
        assert opened == [f"{client.base_url}/"]
    monkeypatch.setattr("sys.platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert not serve.has_desktop()
    monkeypatch.setenv("DISPLAY", ":0")
    assert serve.has_desktop()


def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    fitted().save(tmp_path / "model")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        for workers in ("1", "2"):
            given = ["serve", str(tmp_path / "model"), "--port", port, "--workers", workers]
            result = CliRunner().invoke(app, given, prog_name="considerate")
            assert result.exit_code == 2
            assert f"cannot listen at 127.0.0.1:{port} (Address already in use)" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "give MODEL, or --demo"),
        (["{}/model", "--demo"], "give MODEL, or --demo"),
        (["{}/nothing"], "no such file"),
        (["{}/model", "--api-key-file", "{}/none"], "cannot be read"),
        (["{}/model", "--api-key-file", "{}/short"], "16 or more"),
        (["{}/model", "--events", "{}/none/events.db"], "cannot be written"),
        (["{}/model", "--workers", "0"], "--workers is 0"),
        (["{}/model", "--timeout", "0"], "--timeout is 0"),
        (["{}/model", "--rate-limit", "nan"], "--rate-limit is nan"),
        (["{}/model", "--host", ""], "--host is empty"),
        (["{}/model", "--api-key-file", "{}/unknown"], "a line has no scope"),
        (["{}/model", "--allow-host", "https://shop.example"], "without scheme, port and path"),
        (["{}/model", "--cors-origin", "https://shop.example/"], "without a path"),
    ],
    ids=str,
)
def test_what_is_wrong_is_said_before_it_starts(tmp_path: Path, arguments: list[str], reason: str) -> None:
    fitted().save(tmp_path / "model")
    (tmp_path / "short").write_text("secret")
    (tmp_path / "unknown").write_text("serve:secret0123456789\nread:secret0123456789\n")
    given = ["serve", *(argument.format(tmp_path) for argument in arguments)]
    result = CliRunner().invoke(app, given, prog_name="considerate")
    assert result.exit_code == 2
    assert reason in result.stderr
    assert "secret" not in result.stderr
