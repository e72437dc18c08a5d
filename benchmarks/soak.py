"""Ten minutes of the HTTP service at half of what it can answer: does memory grow, do answers slow down?

    python -m benchmarks soak

The model of `serve`, two workers. Of a hundred requests 94 are lists of users, 5 fold someone new in, and one sends an
event. Latency is counted from the scheduled time; memory is what the processes hold and no file does.
"""

from __future__ import annotations

import tempfile
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
    handles = sum(map(len, server.handles().values()))
    return row | {"memory MB": server.memory() / 1e6, "file handles": handles}


def run(quick: bool = False) -> Section:
    allow_connections()
    users, items, seconds = (2_000, 1_000, 1.0) if quick else (100_000, 12_000, 60.0)
    section, request = Section("The HTTP service for ten minutes"), mixed(users, items)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        recommender(with_walk(random_model(users, items, K))).save(folder / "model")
        arguments = [str(folder / "model"), "--events", str(folder / "events.db"), "--workers", "2"]
        with Server(SERVE.format(arguments), folder) as server:
            answers, _ = uvloop.run(closed_loop(server.port, request, seconds / 6))
            rate = answers / (seconds / 6) / 2
            minutes = [{"minute": n} | minute(server, request, rate, seconds) for n in range(1, MINUTES + 1)]
    section.tables[f"At {rate:,.0f} requests a second, half of what it answered before"] = minutes
    first, last = ([row for row in minutes if row["minute"] in some] for some in ((2, 3, 4), (8, 9, 10)))
    for what, name, most in (("memory", "memory MB", 1.05), ("p99", "p99 ms", 1.2), ("handles", "file handles", 1.05)):
        ratio = median([row[name] for row in last]) / median([row[name] for row in first])
        section.must(f"{what}: median of minutes 8 to 10, over that of 2 to 4", ratio, most=most)
    section.must("failed", sum(row["failed"] for row in minutes), most=0)
    return section


if __name__ == "__main__":
    command("soak", run)
