"""Ten minutes of the HTTP service at half of what it can answer: does memory grow, do answers slow down?

    python -m benchmarks soak

The model of `serve`, two workers. Of a hundred requests 94 are lists of users, 5 fold someone new in, and one sends an
event. Latency is counted from the scheduled time; memory is what the processes hold and no file does.
"""

from __future__ import annotations

import tempfile
import time
from itertools import count
from pathlib import Path

import numpy as np
import uvloop

from benchmarks.data import random_model, recommender, with_walk
from benchmarks.http_load import (
    SERVE,
    Request,
    Server,
    allow_connections,
    answered,
    closed_loop,
    likes_request,
    open_loop,
    post,
    user_request,
)
from benchmarks.report import Row, Section, command, median

K, MINUTES = 64, 10


def mixed(users: int, items: int) -> Request:
    """Lists, people who are folded in, and events; an event of someone else each time, of a thousand people."""
    of_user, of_likes, events = user_request(users), likes_request(items), count()

    def make(random: np.random.Generator) -> bytes:
        kind = random.random()
        if kind < 0.01:
            number = next(events)
            event = {"user": f"new {number % 1_000}", "item": int(random.integers(items)), "key": str(number)}
            return post("/v1/events", {"events": [event]})
        return of_likes(random) if kind < 0.06 else of_user(random)

    return make


def minute(server: Server, request: Request, rate: float, seconds: float) -> Row:
    latency, wrong = uvloop.run(open_loop(answered(request), server.port, rate, seconds))
    p50, p99 = 1e3 * np.quantile(latency, [0.5, 0.99])
    row: Row = {"answers": len(latency), "failed": wrong, "p50 ms": p50, "p99 ms": p99}
    return row | {"memory MB": server.memory() / 1e6, "file handles": idle_handles(server)}


def idle_handles(server: Server) -> int:
    """What it has open when the connections of before are closed: the fewest of some looks."""
    looks = []
    for _ in range(5):
        looks.append(sum(map(len, server.handles().values())))
        time.sleep(0.02)
    return min(looks)


def soaked(folder: Path, users: int, items: int, seconds: float, rate: float | None = None) -> list[Row]:
    """Ten parts of so many seconds, at a rate, or at half of what is answered before."""
    request = mixed(users, items)
    recommender(with_walk(random_model(users, items, K))).save(folder / "model")
    arguments = [str(folder / "model"), "--events", str(folder / "events.db"), "--workers", "2"]
    with Server(SERVE.format(arguments), folder) as server:
        if rate is None:
            answers, _ = uvloop.run(closed_loop(server.port, request, seconds / 6))
            rate = answers / (seconds / 6) / 2
        return [{"minute": part} | minute(server, request, rate, seconds) for part in range(1, MINUTES + 1)]


def growth(minutes: list[Row], name: str) -> float:
    """The median of minutes 8 to 10 over that of 2 to 4."""
    first, last = (median([row[name] for row in minutes if row["minute"] in some]) for some in ((2, 3, 4), (8, 9, 10)))
    return last / first


def run(quick: bool = False) -> Section:
    allow_connections()
    users, items, seconds = (2_000, 1_000, 1.0) if quick else (100_000, 12_000, 60.0)
    section = Section("The HTTP service for ten minutes")
    with tempfile.TemporaryDirectory() as name:
        minutes = soaked(Path(name), users, items, seconds)
    rate = minutes[0]["answers"] / seconds
    section.tables[f"At {rate:,.0f} requests a second, half of what it answered before"] = minutes
    for what, name, most in (("memory", "memory MB", 1.05), ("p99", "p99 ms", 1.2), ("handles", "file handles", 1.05)):
        section.must(f"{what}: median of minutes 8 to 10, over that of 2 to 4", growth(minutes, name), most=most)
    section.must("failed", sum(row["failed"] for row in minutes), most=0)
    return section


if __name__ == "__main__":
    command("soak", run)
