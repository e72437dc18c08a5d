"""Batches that are far too large, or as large as may be, sent to the HTTP service all the time, and what others wait.

A part of `python -m benchmarks serve_faults`. The others ask at a fixed rate for lists, searches, neighbours, metrics
and the health, and store events; latency is counted from the time when a request should have been sent.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from contextlib import suppress

import numpy as np

from benchmarks.http_load import Connection, Server, asked, connect, get, open_loop, post
from benchmarks.report import Row

USERS, LIST = 10_000, 20  # of a hostile batch
RATE = 100.0  # requests a second of all others together
WARM = 5.0  # seconds of requests that are not counted: each worker makes some things once
AGAIN = 0.1  # seconds from the answer to a batch to the next
BATCH = "/v1/recommendations:batch"
KINDS = {
    "none": [],
    "two of 10,000 users, explained": [{"users": list(range(USERS)), "n": LIST, "explain": True}] * 2,
    "four that are as large as may be": [
        {"users": list(range(USERS)), "n": LIST},
        {"users": list(range(200)), "n": LIST, "explain": True},
    ]
    * 2,
}


async def other(connection: Connection, random: np.random.Generator) -> bool:
    """A request of someone else; whether it was answered."""
    user, item = random.integers(1_000, size=2).tolist()
    requests = (
        get(f"/v1/users/{user}/recommendations"),
        get("/v1/items?q=1&n=10"),
        get(f"/v1/items/{item}/similar"),
        get("/metrics"),
        get("/health/ready"),
        post("/v1/events", {"events": [{"user": f"hostile {user}", "item": str(item)}]}),
    )
    return (await asked(connection, requests[int(random.integers(len(requests)))])).status == 200


async def send(port: int, kind: str, seconds: float) -> Counter[int]:
    """Send each batch of a kind again and again; returns how often it was answered with each status."""
    statuses, until = Counter[int](), time.monotonic() + seconds

    async def again(batch: object) -> None:
        content = post(BATCH, batch)
        with suppress(OSError, asyncio.IncompleteReadError):  # the service has ended
            connection = await connect(port)
            while time.monotonic() < until:
                statuses[(await asked(connection, content)).status] += 1
                await asyncio.sleep(AGAIN)
            connection[1].close()

    await asyncio.gather(*map(again, KINDS[kind]))
    return statuses


async def sending(port: int, kind: str, seconds: float) -> asyncio.subprocess.Process:
    """A process that sends: the answers are large, and reading them would hold up the clock of the others."""
    command = [sys.executable, "-m", "benchmarks.hostile", str(port), kind, str(seconds)]
    return await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)


async def beside(server: Server, kind: str, seconds: float) -> Row:
    """Latency of others, beside clients that send batches."""
    await open_loop(other, server.port, RATE, WARM)
    sender = await sending(server.port, kind, seconds + 2)
    await asyncio.sleep(1)
    latency, wrong = await open_loop(other, server.port, RATE, seconds)
    statuses = Counter({int(status): count for status, count in json.loads((await sender.communicate())[0]).items()})
    p50, p99 = 1e3 * np.quantile(latency, [0.5, 0.99])
    row: Row = {"batches": kind, "answered": statuses.pop(200, 0), "too large": statuses.pop(422, 0)}
    return row | {"busy": statuses.total(), "others: p50 ms": p50, "others: p99 ms": p99, "others failed": wrong}


async def ended_by_sigterm(server: Server, kind: str) -> float:
    """Seconds from SIGTERM, while batches are sent, to the end of all processes."""
    sender = await sending(server.port, kind, 60.0)
    await asyncio.sleep(2)
    begun = time.perf_counter()
    await asyncio.to_thread(server.end)
    seconds = time.perf_counter() - begun
    await sender.communicate()
    return seconds


if __name__ == "__main__":
    given, sort, long = sys.argv[1:]
    print(json.dumps(asyncio.run(send(int(given), sort, float(long)))))
