"""The HTTP service under load while models are swapped, processes are killed and the disk is full.

    python -m benchmarks serve_faults

The models and the load of `serve`: 1,000 lists a second, each compared with what `Recommender.recommend_table` gives
for the model that the answer names. Half of the swaps are to damaged files. Events are sent by clients that repeat a
request with the same key until it is acknowledged; at the end everything that is stored is read and compared. Batches
that are too large, or as large as may be, are sent all the time while others ask (hostile.py), and SIGTERM while they
are made.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np
import uvloop
from numpy.typing import NDArray

from benchmarks import hostile
from benchmarks.data import random_model, recommender, with_walk
from benchmarks.http_load import (
    SERVE,
    Answer,
    Connection,
    Server,
    allow_connections,
    asked,
    connect,
    get,
    open_loop,
    post,
)
from benchmarks.report import Row, Section, command
from considerate import Recommender
from considerate.model.file import open_model

K, LIST = 64, 10
RATE = 1_000.0  # lists a second
POLL = 0.1  # seconds between the service's looks at the path
SENDERS = 16  # clients that send events
BROKEN = (OSError, asyncio.IncompleteReadError)  # what a client sees of a server that was killed


class Listed(msgspec.Struct):
    item: int
    score: float


class ListBody(msgspec.Struct):
    model: str
    items: list[Listed]


@dataclass
class Models:
    """Two models, and the lists of everyone by both: [user, place]."""

    paths: list[Path]
    digests: list[str]
    items: list[NDArray[np.int64]]
    scores: list[NDArray[np.float64]]

    @classmethod
    def made(cls, folder: Path, users: int, items: int) -> Models:
        models = cls([], [], [], [])
        first = random_model(users, items, K)
        for number in range(2):
            path = folder / f"model-{number}"
            model = replace(first, items=first.items.copy())
            model.items.mean[:] *= 1 + number / 10
            recommender(with_walk(model)).save(path)
            table = Recommender.load(path).recommend_table(None, LIST)
            models.paths.append(path)
            models.digests.append(open_model(str(path))[0].header_sha256)
            models.items.append(np.array(table["item"]).reshape(users, LIST))
            models.scores.append(np.array(table["score"]).reshape(users, LIST))
        return models

    def are_right(self, user: int, body: ListBody) -> bool:
        """Whether a list is that of the model it names, to the last digit."""
        if body.model not in self.digests:
            return False
        number = self.digests.index(body.model)
        return [entry.item for entry in body.items] == self.items[number][user].tolist() and [
            entry.score for entry in body.items
        ] == self.scores[number][user].tolist()


class Asking:
    """Requests for lists, whose answers are looked at."""

    def __init__(self, models: Models) -> None:
        self.models, self.users = models, len(models.items[0])
        self.serving: str | None = None  # the digest that every worker has by now; None while it changes
        self.changes = 0  # of it
        self._decoder = msgspec.json.Decoder(ListBody)

    def now_serving(self, digest: str | None) -> None:
        self.serving = digest
        self.changes += 1

    async def ask(self, connection: Connection, random: np.random.Generator) -> bool:
        user, expected, changes = int(random.integers(self.users)), self.serving, self.changes
        answer = await asked(connection, get(f"/v1/users/{user}/recommendations?n={LIST}"))
        if answer.status != 200:
            return False
        body = self._decoder.decode(answer.body)
        is_serving = expected is None or changes != self.changes or body.model == expected
        return is_serving and self.models.are_right(user, body)


# --- Swaps ---


def put(source: Path, target: Path, damage: Callable[[Path], None] | None = None) -> None:
    """A model, or a damaged one, at the served path: written beside it, then renamed."""
    beside = target.with_name("beside")
    shutil.copyfile(source, beside)
    if damage is not None:
        damage(beside)
    os.replace(beside, target)


def damaged(swap: int, swaps: int) -> Callable[[Path], None]:
    """Cut short, or one bit changed, each time elsewhere."""

    def damage(path: Path) -> None:
        at = path.stat().st_size * swap // (swaps + 1)
        if swap % 3:
            os.truncate(path, at)
            return
        with open(path, "r+b") as file:
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 1]))

    return damage


async def metrics(port: int) -> str:
    connection = await connect(port)
    answer = await asked(connection, get("/metrics"))
    connection[1].close()
    return answer.body.decode()


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not await condition():
        if time.monotonic() > end:
            raise RuntimeError("it did not happen within a minute")
        await asyncio.sleep(POLL / 2)


async def swapped(server: Server, asking: Asking, path: Path, swaps: int) -> None:
    """Swap there and back, with a damaged file before each."""
    models = asking.models
    for swap in range(1, swaps // 2 + 1):
        old, new = (swap - 1) % 2, swap % 2
        refused = server.workers * swap

        async def all_refused(refused: int = refused) -> bool:
            found = re.search(r'model_reloads_total{result="refused"} (\d+)', await metrics(server.port))
            return found is not None and int(found[1]) >= refused

        async def all_swapped(old: int = old, new: int = new) -> bool:
            text = await metrics(server.port)
            return (
                f'model_info{{digest="{models.digests[new]}"}} 1.0' in text
                and f'model_info{{digest="{models.digests[old]}"}} 1.0' not in text
            )

        await asyncio.to_thread(put, models.paths[new], path, damaged(swap, swaps // 2))
        await until(all_refused)
        asking.now_serving(None)
        await asyncio.to_thread(put, models.paths[new], path)
        await until(all_swapped)
        asking.now_serving(models.digests[new])


async def swaps_under_load(server: Server, asking: Asking, path: Path, swaps: int, rate: float) -> Row:
    asking.now_serving(asking.models.digests[0])
    swapping = asyncio.create_task(swapped(server, asking, path, swaps))
    latency, wrong = list[float](), 0
    while not swapping.done():
        found, failed = await open_loop(asking.ask, server.port, rate, 2.0)
        latency, wrong = latency + found, wrong + failed
    await swapping
    row: Row = {"swaps": swaps, "of them to damaged files": swaps // 2, "answers": len(latency)}
    return row | {"failed or wrong": wrong, "p99 ms": 1e3 * float(np.quantile(latency, 0.99))}


# --- Kills ---


@dataclass(frozen=True)
class Sent:
    """An event that was acknowledged."""

    user: str
    item: str
    sequence: int


class Sending:
    """Clients that send events until they are acknowledged."""

    def __init__(self, port: int) -> None:
        self.port, self.sent, self.repeated, self.ended = port, list[Sent](), 0, False

    async def send(self, client: int) -> None:
        number, connection = 0, None
        while not self.ended:
            user, item = f"client {client}", f"item {number}"
            event = {"user": user, "item": item, "key": f"{client}-{number}"}
            answer = None
            with suppress(*BROKEN):
                connection = connection or await connect(self.port)
                answer = await asked(connection, post("/v1/events", {"events": [event]}))
            if answer is None or answer.status != 200:
                self.repeated += 1
                connection = None if answer is None else connection
                await asyncio.sleep(0.02)
                continue
            self.sent.append(Sent(user, item, msgspec.json.decode(answer.body)["events"][0]["sequence"]))
            number += 1
            await asyncio.sleep(0.02)

    async def stored(self) -> list[Sent]:
        """What the service has of these clients."""
        connection, found = await connect(self.port), list[Sent]()
        for user in (f"client {client}" for client in range(SENDERS)):
            after, more = 0, True
            while more:
                path = f"/v1/events?user={user.replace(' ', '%20')}&after={after}&n=1000"
                page = msgspec.json.decode((await asked(connection, get(path))).body)
                found += [Sent(user, event["item"], event["sequence"]) for event in page["events"]]
                after, more = (page["events"][-1]["sequence"] if page["events"] else after), page["more"]
        connection[1].close()
        return found


def compared(sent: list[Sent], stored: list[Sent]) -> Row:
    """Of events: those that were acknowledged and are not there, and those that are there twice."""
    pairs = [(event.user, event.item) for event in stored]
    lost, twice = len(set(sent) - set(stored)), len(pairs) - len(set(pairs))
    return {"events acknowledged": len(sent), "lost": lost, "twice": twice}


async def killed(server: Server, kills: int) -> None:
    for kill in range(kills):
        await asyncio.sleep(0.3 + 0.1 * (kill % 5))
        if kill % 2:
            server.kill()
            await asyncio.to_thread(server.start)
        else:
            worker = server.listening()[0]
            os.kill(worker, signal.SIGKILL)

            async def another(worker: int = worker) -> bool:
                listening = server.listening()
                return worker not in listening and len(listening) == server.workers

            await until(another)


async def kills_under_load(server: Server, asking: Asking, kills: int) -> Row:
    """Lists as fast as eight clients ask, who connect again where they are cut off, and events."""
    sending, answers, wrong = Sending(server.port), 0, 0
    asking.now_serving(None)

    async def ask(client: int) -> None:
        nonlocal answers, wrong
        random, connection = np.random.default_rng(client), None
        while not sending.ended:
            try:
                connection = connection or await connect(server.port)
                wrong += not await asking.ask(connection, random)
                answers += 1
            except BROKEN:
                connection = None
                await asyncio.sleep(0.02)

    async with asyncio.TaskGroup() as clients:
        for client in range(SENDERS):
            clients.create_task(sending.send(client))
        for client in range(8):
            clients.create_task(ask(client))
        await killed(server, kills)
        sending.ended = True
    row: Row = {"kills": kills, "lists": answers, "wrong": wrong}
    return row | compared(sending.sent, await sending.stored()) | {"requests repeated": sending.repeated}


# --- A full disk ---


async def full_disk(server: Server, disk: Path) -> Row:
    """Events until the disk is full, then with room again. `ballast` on it is what is removed."""
    sending, refused = Sending(server.port), 0
    connection = await connect(server.port)

    async def send(number: int) -> Answer:
        events = [
            {"user": "client 0", "item": f"item {number} {place} {'x' * 200}", "key": f"{number}-{place}"}
            for place in range(50)
        ]
        answer = await asked(connection, post("/v1/events", {"events": events}))
        if answer.status == 200:
            stored = msgspec.json.decode(answer.body)["events"]
            sending.sent.extend(Sent("client 0", event["item"], got["sequence"]) for event, got in zip(events, stored))
        return answer

    number = 0
    while (answer := await send(number)).status == 200:
        number += 1
    statuses = {answer.status}
    for _ in range(20):
        statuses.add((await send(number)).status)
        refused += 1
    (disk / "ballast").unlink()
    recovered = (await send(number)).status == 200
    connection[1].close()
    row: Row = {"refused with": ", ".join(map(str, sorted(statuses))), "requests refused": refused + 1}
    return row | compared(sending.sent, await sending.stored()) | {"stores again": "yes" if recovered else "no"}


def small_disk(folder: Path) -> Path | None:
    """A file system of 8 MB in memory, half of it taken; None where this user may not mount one."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        return None
    (folder / "ballast").write_bytes(bytes(4 << 20))
    return folder


def run(quick: bool = False) -> Section:
    allow_connections()
    users, items, swaps, kills = (10_000, 1_000, 4, 2) if quick else (100_000, 12_000, 200, 50)
    rate = 100.0 if quick else RATE
    section, full = Section("The HTTP service when things go wrong"), list[Row]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path, models = folder / "served", Models.made(folder, users, items)
        asking = Asking(models)

        def serve(events: Path) -> str:
            return SERVE.format([str(path), "--events", str(events), "--workers", "2", "--poll", str(POLL)])

        put(models.paths[0], path)
        with Server(serve(folder / "events.db"), folder) as server:
            swap = uvloop.run(swaps_under_load(server, asking, path, swaps, rate))
            kill = uvloop.run(kills_under_load(server, asking, kills))
        beside = list[Row]()
        for kind in hostile.KINDS:
            with Server(serve(folder / "events.db"), folder) as server:
                row = uvloop.run(hostile.beside(server, kind, 5 if quick else 60))
                beside.append(row | {"SIGTERM to the end s": uvloop.run(hostile.ended_by_sigterm(server, kind))})
        disk = small_disk(folder / "disk")
        if disk is not None:
            try:
                with Server(serve(disk / "events.db"), folder) as server:
                    full = [uvloop.run(full_disk(server, disk))]
            finally:
                subprocess.run(["umount", str(disk)], check=True)
    section.tables[f"Swaps under {rate:g} lists a second"] = [swap]
    section.tables["kill -9, of a worker and of the whole service in turn"] = [kill]
    section.tables[f"{hostile.RATE:g} requests a second of others, beside batches"] = beside
    section.tables["A full disk"] = full
    section.must("failed or wrong answers during swaps", swap["failed or wrong"], most=0)
    section.must("acknowledged events lost, or stored twice, by kills", kill["lost"] + kill["twice"], most=0)
    section.must("wrong lists between kills", kill["wrong"], most=0)
    slowest, last = (max(row[name] for row in beside[1:]) for name in ("others: p99 ms", "SIGTERM to the end s"))
    section.must("p99 in ms of others beside hostile batches", slowest, most=100)
    section.must("seconds from SIGTERM, beside hostile batches, to the end", last, most=10)
    lost = full[0]["lost"] + full[0]["twice"] + (full[0]["stores again"] == "no") if full else None
    section.must("events lost or stored twice by a full disk, or that it did not recover", lost, most=0)
    return section


if __name__ == "__main__":
    command("serve_faults", run)
