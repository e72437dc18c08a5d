"""A service for tests: a model whose ids have every kind of character, and a uvicorn in a thread of this process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from considerate import Recommender
from tests.helpers.likes import planted
from tests.helpers.shell import PROGRAM

STRANGE = ["a/b", "a b", "ünï", "%2F", "a?b=c&d#e", "..", "007", "+", "null", "<img onerror=x>", '"', "'", "\\", "日本"]
USERS, ITEMS = 80, 40


def user_name(row: int) -> str:
    return STRANGE[row] if row < len(STRANGE) else f"u{row}"


def item_name(row: int) -> str:
    return STRANGE[row] if row < len(STRANGE) else f"i{row}"


def fitted(seed: int = 0, **settings: Any) -> Recommender:
    """A small model with texts for ids, titles of all items but one, and lift."""
    rows, columns = planted(USERS, ITEMS, seed=seed).nonzero()
    likes = {"user": [user_name(row) for row in rows], "item": [item_name(column) for column in columns]}
    titles = {item_name(row): f"The {'Quiet' if row % 2 else 'Loud'} Film {row}" for row in range(1, ITEMS)}
    given = {"factors": 4, "sweeps": 4, "opening": 2, "seed": seed, "threads": 1} | settings
    return Recommender(**given).fit(likes, titles=titles)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model in a file."""
    file: Path = tmp_path_factory.mktemp("service") / "model.safetensors"
    fitted().save(file)
    return file


@pytest.fixture(scope="module")
def model(path: Path) -> Recommender:
    return Recommender.load(path)


class Client(httpx.Client):
    """Requests to a service that runs. Certificates, which take 20 ms to load, are left out."""

    def __init__(self, **options: Any) -> None:
        super().__init__(verify=False, **options)

    def recommendations(self, user: str, **query: Any) -> Any:
        response = self.get("/v1/recommendations", params={"user": user, **query})
        assert response.status_code == 200, response.text
        return response.json()

    def post_events(self, *events: tuple[Any, ...]) -> Any:
        names = ("user", "item", "kind", "key")
        response = self.post("/v1/events", json={"events": [dict(zip(names, event)) for event in events]})
        assert response.status_code == 200, response.text
        return response.json()


class Hasty:
    """asyncio for uvicorn's server, which waits a tenth of a second here and there while it ends: ten times as fast."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / 10)


@contextmanager
def running(model: Path | str, headers: dict[str, str] | None = None, **settings: Any) -> Iterator[Client]:
    """A service on a free port, until the block ends."""
    import uvicorn.server

    from considerate.service.app import create_app
    from considerate.service.protocol import SERVER_OPTIONS
    from considerate.service.settings import ServiceSettings

    uvicorn.server.asyncio = Hasty()  # type: ignore[attr-defined]
    app = create_app(ServiceSettings(model=str(model), **{"poll": 0.02} | settings))
    server = uvicorn.Server(uvicorn.Config(app, port=0, **SERVER_OPTIONS))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the service did not start"
        time.sleep(0.005)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        with Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join()


def wait_for(condition: Any, seconds: float = 60.0) -> Any:
    """What a condition gives as soon as it is true."""
    until = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.01)
    return value


def same_items(items: list[dict[str, Any]], table: Any) -> None:
    """Assert that the items of an answer are the rows of `recommend_table`, to the last digit."""
    rows = table.to_pylist()
    names = ("rank", "item", "title", "p_like", "low", "high", "p_considered", "score")
    assert [[item[name] for name in names] for item in items] == [[row[name] for name in names] for row in rows]
    assert rows == [] or np.isfinite([row["score"] for row in rows]).all()


# --- Services in processes of their own ---


class Process:
    """A service in processes of its own."""

    def __init__(self, log: Path, *arguments: object) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.log, self.arguments = log, [*map(str, arguments), "--port", str(self.port)]

    def start(self) -> None:
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [*PROGRAM, "serve", *self.arguments],
                stderr=log,
                stdout=log,
                start_new_session=True,
                env=os.environ | {"TMPDIR": str(self.log.parent)},
            )  # a group of its own, which is killed as one
        wait_for(self.is_ready, 120)

    def is_ready(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        with suppress(httpx.HTTPError), self.client() as client:
            return client.get("/health/ready").status_code == 200
        return False

    def workers(self) -> list[int]:
        """Those that answer, by the log."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [line["process"] for line in lines if line["message"] == "Application startup complete."]

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def client(self) -> Client:
        return Client(base_url=f"http://127.0.0.1:{self.port}", timeout=60)


@contextmanager
def started(log: Path, *arguments: object) -> Iterator[Process]:
    service = Process(log, *arguments)
    try:
        service.start()
        yield service
    finally:
        service.kill()
