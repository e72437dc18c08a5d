"""The HTTP service under load, the generator on the same processors.

    python -m benchmarks serve

A model of 100,000 users and 12,000 items with a random posterior, K = 64 and lift, everyone with about 20 likes; two
workers, events on, lists of ten, users uniform, no If-None-Match. Beside it the same server with an application that
answers nothing but as many bytes, and with implicit's vectors behind the same kind of application. Latency is counted
from the time when a request should have been sent, at a fixed rate: a generator that waits for answers hides queues.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.data import random_model, recommender, with_walk
from benchmarks.report import Row, Section, command

K, CONNECTIONS = 64, 32
TICKS = os.sysconf("SC_CLK_TCK")
WRK = """
math.randomseed(os.time())
request = function() return wrk.format("GET", "/v1/users/" .. math.random(0, {users} - 1) .. "/recommendations") end
"""
Request = Callable[[np.random.Generator], bytes]


class Server(NamedTuple):
    """A server in processes of its own."""

    port: int
    group: int  # of processes

    def cpu(self) -> float:
        """Seconds that its processes have taken."""
        total = 0
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended
            if int(fields[2]) == self.group:
                total += int(fields[11]) + int(fields[12])
        return total / TICKS


@contextmanager
def served(application: list[str], environment: dict[str, str], folder: Path) -> Iterator[Server]:
    """A server, once it answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with open(folder / "log", "ab") as log:
        started = subprocess.Popen(
            [sys.executable, "-c", *application, str(port)],
            env=os.environ | environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        until = time.monotonic() + 120
        while True:
            try:
                asyncio.run(closed_loop(port, get("/health/ready"), 1, 0.0))
                break
            except OSError:
                if started.poll() is not None or time.monotonic() > until:
                    raise RuntimeError((folder / "log").read_text()) from None
                time.sleep(0.1)
        yield Server(port, started.pid)
    finally:
        os.killpg(started.pid, signal.SIGKILL)
        started.wait()


# --- Requests and generators ---


def get(path: str) -> Request:
    return lambda _: f"GET {path} HTTP/1.1\r\nHost: here\r\n\r\n".encode()


def user_request(users: int) -> Request:
    return lambda random: get(f"/v1/users/{random.integers(users)}/recommendations")(random)


def likes_request(items: int) -> Request:
    def make(random: np.random.Generator) -> bytes:
        body = json.dumps({"likes": random.integers(items, size=20).tolist()})
        head = f"POST /v1/recommendations HTTP/1.1\r\nHost: here\r\nContent-Length: {len(body)}\r\n"
        return f"{head}Content-Type: application/json\r\n\r\n{body}".encode()

    return make


async def answer(reader: asyncio.StreamReader) -> int:
    """Read one answer; its status."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head, re.I)
    await reader.readexactly(int(length[1]) if length else 0)
    return int(head[9:12])


async def closed_loop(port: int, request: Request, connections: int, seconds: float) -> tuple[int, int]:
    """(answers, those that were not 200) of connections that each ask again when they are answered; at least one."""

    async def ask(seed: int) -> tuple[int, int]:
        random, asked, wrong = np.random.default_rng(seed), 0, 0
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        until = time.monotonic() + seconds
        while asked == 0 or time.monotonic() < until:
            writer.write(request(random))
            wrong += await answer(reader) != 200
            asked += 1
        writer.close()
        return asked, wrong

    counts = await asyncio.gather(*map(ask, range(connections)))
    return sum(asked for asked, _ in counts), sum(wrong for _, wrong in counts)


async def open_loop(port: int, request: Request, rate: float, seconds: float) -> tuple[list[float], int]:
    """(seconds from the scheduled time to the answer, those that were not 200), at a fixed rate."""
    idle: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
    for _ in range(CONNECTIONS):
        idle.put_nowait(await asyncio.open_connection("127.0.0.1", port))
    random, latency, wrong = np.random.default_rng(0), list[float](), 0

    async def ask(scheduled: float, content: bytes) -> None:
        nonlocal wrong
        connection = await idle.get()
        connection[1].write(content)
        wrong += await answer(connection[0]) != 200
        latency.append(time.perf_counter() - scheduled)
        idle.put_nowait(connection)

    begun, tasks = time.perf_counter(), []
    for number in range(int(rate * seconds)):
        scheduled = begun + number / rate
        await asyncio.sleep(max(0.0, scheduled - time.perf_counter()))
        tasks.append(asyncio.create_task(ask(scheduled, request(random))))
    await asyncio.gather(*tasks)
    while not idle.empty():
        idle.get_nowait()[1].close()
    return latency, wrong


async def dawdlers(port: int, request: Request, many: int, seconds: float) -> Row:
    """Connections that send a byte every ten seconds, and what others wait meanwhile."""
    content = request(np.random.default_rng(0))
    closed: list[float] = []

    async def dawdle() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        begun, number = time.perf_counter(), 0
        ended = asyncio.create_task(reader.read(1))
        while not ended.done() and time.perf_counter() - begun < 60:
            writer.write(content[number : number + 1])
            number += 1
            await asyncio.wait([ended], timeout=10.0)
        if ended.done():
            ended.exception()
            closed.append(time.perf_counter() - begun)
        else:
            ended.cancel()
        writer.close()

    tasks = [asyncio.create_task(dawdle()) for _ in range(many)]
    await asyncio.sleep(1.0)  # they are there
    found, wrong = await open_loop(port, request, 100.0, seconds)
    await asyncio.gather(*tasks)
    row: Row = {"slow connections": many, "closed": len(closed), "the last after s": max(closed, default=None)}
    return row | {"others: p99 ms": 1e3 * float(np.quantile(found, 0.99)), "others failed": wrong}


def throughput(server: Server, request: Request, users: int, seconds: float, folder: Path) -> Row:
    """Requests a second, and CPU of the server for each: by wrk where there is one, else by a generator of our own."""
    before = server.cpu()
    if shutil.which("wrk") is None:
        begun = time.perf_counter()
        asked, wrong = asyncio.run(closed_loop(server.port, request, CONNECTIONS, seconds))
        rate = asked / (time.perf_counter() - begun)
    else:
        (folder / "wrk.lua").write_text(WRK.format(users=users))
        options = ["-t1", f"-c{CONNECTIONS}", f"-d{seconds:g}s", "-s", str(folder / "wrk.lua")]
        said = subprocess.run(
            ["wrk", *options, f"http://127.0.0.1:{server.port}"], capture_output=True, text=True, check=True
        ).stdout
        asked, rate = (float(re.findall(what, said)[0]) for what in (r"(\d+) requests in", r"Requests/sec: +(\S+)"))
        refused = re.search(r"Non-2xx or 3xx responses: (\d+)", said)
        wrong = int(refused[1]) if refused else 0
    return {"requests a second": rate, "CPU us a request": 1e6 * (server.cpu() - before) / asked, "failed": wrong}


def latency(server: Server, request: Request, rate: float, seconds: float) -> Row:
    found, wrong = asyncio.run(open_loop(server.port, request, rate, seconds))
    p50, p99 = np.quantile(found, [0.5, 0.99])
    return {"requests a second": rate, "p50 ms": 1e3 * p50, "p99 ms": 1e3 * p99, "failed": wrong}


# --- What is served beside it ---

RUN = "import sys, uvicorn; from considerate.service.protocol import SERVER_OPTIONS as options; "
RUN += "uvicorn.run('benchmarks.serve:{}', factory=True, port=int(sys.argv[1]), workers=2, **options)"
OURS = "import sys; from considerate.cli import main; sys.argv = ['considerate', 'serve', {}, '--port', sys.argv[1]]; "
OURS += "main()"


def hello() -> Any:
    """An application that answers 2,000 bytes and does nothing."""
    from starlette.responses import Response
    from starlette.routing import Router

    content = b'"' + b"x" * 1998 + b'"'

    async def say(scope: Any, receive: Any, send: Any) -> None:
        await Response(content, media_type="application/json")(scope, receive, send)

    return Router(default=say)


def with_implicit() -> Any:
    """implicit's best items for a user, by the same vectors, as JSON."""
    import msgspec
    from starlette.responses import Response
    from starlette.routing import Router

    from benchmarks.recommend import implicit_model
    from considerate import Recommender

    peer, liked = implicit_model(Recommender.load(os.environ["BENCHMARK_MODEL"]).model_)

    async def recommend(scope: Any, receive: Any, send: Any) -> None:
        name = scope["path"].split("/")[3:4]
        user = int(name[0]) if name else 0
        ids, scores = peer.recommend(user, liked[user], N=10)
        items = [{"item": item, "score": score} for item, score in zip(ids.tolist(), scores.tolist())]
        await Response(msgspec.json.encode(items), media_type="application/json")(scope, receive, send)

    return Router(default=recommend)


def run(quick: bool = False) -> Section:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # a file handle a connection
    users, items, seconds = (2_000, 1_000, 1.0) if quick else (100_000, 12_000, 10.0)
    section = Section("The HTTP service")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        recommender(with_walk(random_model(users, items, K))).save(folder / "model")
        arguments = [str(folder / "model"), "--events", str(folder / "events.db"), "--workers", "2"]
        ours = OURS.format(", ".join(map(repr, arguments)))
        environment = {"BENCHMARK_MODEL": str(folder / "model"), "OPENBLAS_NUM_THREADS": "1"}
        of_user, rows = user_request(users), list[Row]()
        for what, code in (
            ("nothing but bytes", RUN.format("hello")),
            ("considerate", ours),
            ("implicit", RUN.format("with_implicit")),
        ):
            with served([code], environment, folder) as server:
                throughput(server, of_user, users, seconds / 5, folder)  # warm
                rows.append({"application": what} | throughput(server, of_user, users, seconds, folder))
                if what == "considerate":
                    requests = {"a user's list": of_user, "fold-in of 20 likes": likes_request(items)}
                    rates = {"a user's list": 100.0 if quick else 1_000.0, "fold-in of 20 likes": 100.0}
                    timed = [
                        {"request": what} | latency(server, request, rates[what], seconds)
                        for what, request in requests.items()
                    ]
                    slow = asyncio.run(dawdlers(server.port, of_user, 200 if quick else 10_000, seconds))
    section.tables["As many as it can answer"] = rows
    section.tables["At a fixed rate, from the scheduled time"] = timed
    section.tables["A byte every ten seconds, and others at 100 a second"] = [slow]
    least = 5_000.0 if rows[0]["requests a second"] >= 12_000 else 0.4 * rows[0]["requests a second"]
    section.must("requests a second, two workers", rows[1]["requests a second"], least=least)
    section.must("p99 in ms at 1,000 a second", None if quick else timed[0]["p99 ms"], most=5)
    section.must("p99 in ms of fold-in", timed[1]["p99 ms"], most=10)
    section.must("p99 in ms beside 10,000 slow connections", None if quick else slow["others: p99 ms"], most=50)
    section.must("seconds until the last of them is closed", slow["the last after s"], most=30)
    section.must("slow connections that are closed, share", slow["closed"] / slow["slow connections"], least=1)
    section.notes.append("by wrk" if shutil.which("wrk") else "by a generator of ours, in Python: wrk is not installed")
    return section


if __name__ == "__main__":
    command("serve", run)
