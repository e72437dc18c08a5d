"""Bodies of POST /v1/events: what is stored is what Python's json finds in the body, or nothing is."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from considerate import Recommender
from considerate.service.app import Service
from considerate.service.settings import ServiceSettings
from fuzz.base import Check, Choices, Place, Target

REFUSED = {400, 413, 415, 422}
TEXTS = ["u1", "i1", " u1 ", "", "é", "\u0000", "😀", "x" * 1025, "null", "like", "unlike", "considered", "key"]
VALUES: list[Any] = [*TEXTS, 0, 1, -1, 2**63 - 1, 2**63, -(2**63), 1.0, 1e308, None, True, [], {}, ["u1"]]
NAMES = ["user", "item", "kind", "key", "events", "extra"]


class Application:
    """A service in this process, without a network; requests one by one."""

    def __init__(self, folder: Path) -> None:
        users, items = np.nonzero(np.random.default_rng(0).random((10, 8)) < 0.4)
        likes = {"user": [f"u{row}" for row in users], "item": [f"i{row}" for row in items]}
        Recommender(factors=2, sweeps=2, threads=1).fit(likes).save(folder / "model")
        self.loop = asyncio.new_event_loop()
        self.service = Service(ServiceSettings(model=str(folder / "model"), events=str(folder / "events.db"), rate=0))
        self.lifespan = self.service.lifespan(None)
        self.loop.run_until_complete(self.lifespan.__aenter__())

    def close(self) -> None:
        self.loop.run_until_complete(self.lifespan.__aexit__(None, None, None))
        self.loop.close()

    def post(self, body: bytes) -> int:
        """The status of a request with a body."""
        return self.loop.run_until_complete(self._post(body))

    async def _post(self, body: bytes) -> int:
        path = "/v1/events"
        headers = [
            (b"host", b"127.0.0.1"),
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
        ]
        scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": headers,
        }
        scope |= {"client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80), "scheme": "http", "http_version": "1.1"}
        status, sent = 0, [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> dict[str, Any]:
            return sent.pop() if sent else await asyncio.Event().wait() or {}

        async def send(message: Any) -> None:
            nonlocal status
            status = message.get("status", status)

        await self.service.handle(scope, receive, send)
        return status


def _prepare(place: Place) -> Check:
    """Inputs with an even first byte make a body by choices; others are one."""
    application, known = Application(place.folder), set[str]()
    place.exits.callback(application.close)
    events = place.exits.enter_context(closing(sqlite3.connect(place.folder / "events.db")))
    last = 0

    def check(data: bytes) -> str:
        nonlocal last
        choices = Choices(data)
        body = choices.rest() if choices.below(2) else json.dumps(_body(choices)).encode()
        status = application.post(body)
        stored = events.execute("select sequence, user, item from events where sequence > ?", (last,)).fetchall()
        last = max([last, *(row[0] for row in stored)])
        if status != 200:
            assert status in REFUSED, (status, body)
            assert not stored, (status, body, stored)
            return "refused"
        wanted = []
        for event in json.loads(body)["events"]:
            user, item = (str(event[name]).strip() or str(event[name]) for name in ("user", "item"))
            name = None if event.get("key") is None else f"{len(user)} {user} {event['key']}"
            if name not in known:
                wanted.append((user, item))
            known.update([] if name is None else [name])
        assert [(row[1], row[2]) for row in stored] == wanted, (body, stored)
        return "read"

    return check


def _body(choices: Choices) -> Any:
    if choices.below(8) == 0:
        return choices.pick(VALUES)
    events = []
    for _ in range(choices.below(4)):
        event: dict[str, Any] = {"user": choices.pick(["u1", "u2", " u1 ", 7]), "item": choices.pick(["i1", "new", 3])}
        for _ in range(choices.below(3)):
            event[choices.pick(NAMES)] = choices.pick(VALUES) if choices.below(2) else choices.pick(TEXTS)
        events.append(event)
    return {"events": events} | ({choices.pick(NAMES): choices.pick(VALUES)} if choices.below(8) == 0 else {})


def _seeds() -> list[bytes]:
    bodies = [
        *(b'{"events":[{"user":"u1","item":"i1"}]}', b'{"events":[{"user":7,"item":"i1","kind":"unlike","key":"a"}]}'),
        *(b'{"events":[{"user":"\\ud800","item":"i1"}]}', b'{"events":[{"user":1e400,"item":"i1","user":"u2"}]}'),
    ]
    random = np.random.default_rng(4)
    return [*(b"\1" + body for body in bodies), *(b"\0" + random.bytes(40) for _ in range(40))]


TARGET = Target("events-body", _seeds, _prepare)
