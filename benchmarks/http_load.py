"""A server in processes of its own, requests to it, and generators of load."""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

CONNECTIONS = 32
TICKS = os.sysconf("SC_CLK_TCK")
Request = Callable[[np.random.Generator], bytes]
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]

# What Python runs with the port as its argument: any ASGI application, or the service with some arguments.
APPLICATION = "import sys; from considerate.service.workers import run_workers; "
APPLICATION += "run_workers('127.0.0.1', int(sys.argv[1]), 2, {!r})"
SERVE = "import sys; from considerate.cli import main; "
SERVE += "sys.argv = ['considerate', 'serve', *{!r}, '--port', sys.argv[1]]; main()"


class Server:
    """Two workers and their parent, one group of processes. Linux alone tells what they use."""

    workers = 2

    def __init__(self, code: str, folder: Path, environment: dict[str, str] | None = None) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._command, self._log = [sys.executable, "-c", code, str(self.port)], folder / "log"
        self._environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"} | (environment or {})

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Returns when all workers listen."""
        with open(self._log, "ab") as log:
            self._parent = subprocess.Popen(
                self._command, env=self._environment, stdout=log, stderr=log, start_new_session=True
            )
        until = time.monotonic() + 120
        while len(self.listening()) < self.workers:
            if self._parent.poll() is not None or time.monotonic() > until:
                raise RuntimeError(self._log.read_text())
            time.sleep(0.05)

    def kill(self) -> None:
        with suppress(ProcessLookupError):  # they have ended
            os.killpg(self._parent.pid, signal.SIGKILL)
        self._parent.wait()
        while any(fields[0] != "Z" for fields in self.processes().values()):  # workers hold files until they end
            time.sleep(0.01)

    def end(self) -> None:
        """SIGTERM; returns when all processes have ended."""
        self._parent.send_signal(signal.SIGTERM)
        self._parent.wait()

    def processes(self) -> dict[int, list[str]]:
        """Their numbers, and the fields of /proc/N/stat after the name."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended
            if int(fields[2]) == self._parent.pid:
                found[int(folder.name)] = fields
        return found

    def handles(self) -> dict[int, list[str]]:
        """What each process has open."""
        found: dict[int, list[str]] = {}
        for process in self.processes():
            try:
                handles = list(Path(f"/proc/{process}/fd").iterdir())
                found[process] = [os.readlink(handle) for handle in handles if handle.is_symlink()]
            except OSError:
                continue
        return found

    def listening(self) -> list[int]:
        """The workers that take connections."""
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        sockets = {f"socket:[{row[9]}]" for row in rows if row[3] == "0A" and row[1].endswith(f":{self.port:04X}")}
        return [process for process, handles in self.handles().items() if sockets.intersection(handles)]

    def cpu(self) -> float:
        """Seconds that they have taken."""
        return sum(int(fields[11]) + int(fields[12]) for fields in self.processes().values()) / TICKS

    def memory(self) -> int:
        """Bytes that they hold and no file does."""
        total = 0
        for process in self.processes():
            text = Path(f"/proc/{process}/smaps_rollup").read_text()
            total += 1_024 * sum(map(int, re.findall(r"^Pss_Anon: +(\d+)", text, re.M)))
        return total


def allow_connections() -> None:
    """As many handles as the system lets this process and its children have."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


# --- Requests ---


class Answer(NamedTuple):
    status: int
    body: bytes


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()


def post(path: str, body: object) -> bytes:
    text = json.dumps(body)
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(text)}\r\n"
    return f"{head}Content-Type: application/json\r\n\r\n{text}".encode()


def user_request(users: int) -> Request:
    return lambda random: get(f"/v1/users/{random.integers(users)}/recommendations")


def likes_request(items: int) -> Request:
    return lambda random: post("/v1/recommendations", {"likes": random.integers(items, size=20).tolist()})


async def connect(port: int) -> Connection:
    return await asyncio.open_connection("127.0.0.1", port)


async def asked(connection: Connection, content: bytes) -> Answer:
    """The answer to one request."""
    reader, writer = connection
    writer.write(content)
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head, re.I)
    return Answer(int(head[9:12]), await reader.readexactly(int(length[1]) if length else 0))


# --- Load ---


async def closed_loop(port: int, request: Request, seconds: float) -> tuple[int, int]:
    """(answers, those that were not 200) of connections that each ask again when they are answered."""

    async def ask(seed: int) -> tuple[int, int]:
        random, answers, wrong = np.random.default_rng(seed), 0, 0
        connection = await connect(port)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            wrong += (await asked(connection, request(random))).status != 200
            answers += 1
        connection[1].close()
        return answers, wrong

    counts = await asyncio.gather(*map(ask, range(CONNECTIONS)))
    return sum(answers for answers, _ in counts), sum(wrong for _, wrong in counts)


async def open_loop(
    ask: Callable[[Connection, np.random.Generator], Awaitable[bool]], port: int, rate: float, seconds: float
) -> tuple[list[float], int]:
    """(seconds from the scheduled time to the answer, how many were wrong), at a fixed rate."""
    idle: asyncio.Queue[Connection] = asyncio.Queue()
    for _ in range(CONNECTIONS):
        idle.put_nowait(await connect(port))
    random, latency, wrong = np.random.default_rng(0), list[float](), 0

    async def one(scheduled: float) -> None:
        nonlocal wrong
        connection = await idle.get()
        wrong += not await ask(connection, random)
        latency.append(time.perf_counter() - scheduled)
        idle.put_nowait(connection)

    begun, tasks = time.perf_counter(), set[asyncio.Task[None]]()
    for number in range(int(rate * seconds)):
        scheduled = begun + number / rate
        await asyncio.sleep(max(0.0, scheduled - time.perf_counter()))
        task = asyncio.create_task(one(scheduled))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)
    while not idle.empty():
        idle.get_nowait()[1].close()
    return latency, wrong


def answered(request: Request) -> Callable[[Connection, np.random.Generator], Awaitable[bool]]:
    """Whether a request is answered with 200."""

    async def ask(connection: Connection, random: np.random.Generator) -> bool:
        return (await asked(connection, request(random))).status == 200

    return ask
