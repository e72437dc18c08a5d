"""The HTTP service under load, the generator on the same processors.

    python -m benchmarks serve

A model of 100,000 users and 12,000 items with a random posterior, K = 64 and lift, everyone with about 20 likes; two
workers, events on, lists of ten, users uniform, no If-None-Match. Beside it the same server with an application that
answers nothing but as many bytes, and with implicit's vectors behind the same kind of application. Latency is counted
from the time when a request should have been sent, at a fixed rate: a generator that waits for answers hides queues.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import uvloop

from benchmarks.data import random_model, recommender, with_walk
from benchmarks.http_load import (
    APPLICATION,
    CONNECTIONS,
    SERVE,
    Request,
    Server,
    allow_connections,
    answered,
    closed_loop,
    likes_request,
    open_loop,
    user_request,
)
from benchmarks.report import Row, Section, command

K = 64
WRK = """
math.randomseed(os.time())
request = function() return wrk.format("GET", "/v1/users/" .. math.random(0, {users} - 1) .. "/recommendations") end
"""


def throughput(server: Server, users: int, seconds: float, folder: Path) -> Row:
    """Requests a second, and CPU of the server for each: by wrk where there is one, else by a generator of our own."""
    before = server.cpu()
    if shutil.which("wrk") is None:
        begun = time.perf_counter()
        answers, wrong = uvloop.run(closed_loop(server.port, user_request(users), seconds))
        rate = answers / (time.perf_counter() - begun)
    else:
        (folder / "wrk.lua").write_text(WRK.format(users=users))
        options = ["-t1", f"-c{CONNECTIONS}", f"-d{math.ceil(seconds)}s", "-s", str(folder / "wrk.lua")]
        said = subprocess.run(
            ["wrk", *options, f"http://127.0.0.1:{server.port}"], capture_output=True, text=True, check=True
        ).stdout
        answers, rate = (float(re.findall(what, said)[0]) for what in (r"(\d+) requests in", r"Requests/sec: +(\S+)"))
        refused = re.search(r"Non-2xx or 3xx responses: (\d+)", said)
        wrong = int(refused[1]) if refused else 0
    return {"requests a second": rate, "CPU us a request": 1e6 * (server.cpu() - before) / answers, "failed": wrong}


def latency(server: Server, request: Request, rate: float, seconds: float) -> Row:
    found, wrong = uvloop.run(open_loop(answered(request), server.port, rate, seconds))
    p50, p99 = np.quantile(found, [0.5, 0.99])
    return {"requests a second": rate, "p50 ms": 1e3 * p50, "p99 ms": 1e3 * p99, "failed": wrong}


def beside_slow(server: Server, kind: str, many: int, request: Request, seconds: float) -> Row:
    """Connections that send a byte every ten seconds, and what others wait meanwhile."""
    command = [sys.executable, "-m", "benchmarks.slow_clients", str(server.port), kind, str(many)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as slow:
        assert slow.stdout is not None
        slow.stdout.readline()  # all are connected
        found, wrong = uvloop.run(open_loop(answered(request), server.port, 100.0, seconds))
        closed = [after for after in json.loads(slow.stdout.readline()) if after is not None]
    row: Row = {"slow": kind, "connections": many, "closed": len(closed), "the last after s": max(closed, default=None)}
    return row | {"others: p99 ms": 1e3 * float(np.quantile(found, 0.99)), "others failed": wrong}


# --- What is served beside it ---


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
    allow_connections()
    users, items, seconds = (2_000, 1_000, 1.0) if quick else (100_000, 12_000, 10.0)
    section, rows = Section("The HTTP service"), list[Row]()
    of_user, of_likes = user_request(users), likes_request(items)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = str(folder / "model")
        recommender(with_walk(random_model(users, items, K))).save(model)
        for what, code in (
            ("nothing but bytes", APPLICATION.format("benchmarks.serve:hello")),
            ("considerate", SERVE.format([model, "--events", str(folder / "events.db"), "--workers", "2"])),
            ("implicit", APPLICATION.format("benchmarks.serve:with_implicit")),
        ):
            with Server(code, folder, {"BENCHMARK_MODEL": model}) as server:
                throughput(server, users, seconds / 5, folder)  # warm
                rows.append({"application": what} | throughput(server, users, seconds, folder))
                if what != "considerate":
                    continue
                timed = [
                    {"request": what} | latency(server, request, 100.0 if quick else rate, seconds)
                    for what, request, rate in (
                        ("a user's list", of_user, 1_000.0),
                        ("fold-in of 20 likes", of_likes, 100.0),
                    )
                ]
                slow = [
                    beside_slow(server, kind, 200 if quick else 10_000, of_user, 2 * seconds)
                    for kind in ("headers", "body")
                ]
    section.tables["As many as it can answer"] = rows
    section.tables["At a fixed rate, from the scheduled time"] = timed
    section.tables["A byte every ten seconds, and others at 100 a second"] = slow
    least = 5_000.0 if rows[0]["requests a second"] >= 12_000 else 0.4 * rows[0]["requests a second"]
    section.must("requests a second, two workers", rows[1]["requests a second"], least=least)
    section.must("p99 in ms at 1,000 a second", None if quick else timed[0]["p99 ms"], most=5)
    section.must("p99 in ms of fold-in", timed[1]["p99 ms"], most=10)
    slowest = max(row["others: p99 ms"] for row in slow)
    section.must("p99 in ms beside 10,000 slow connections", None if quick else slowest, most=50)
    section.must("seconds until the last of them is closed", max(row["the last after s"] for row in slow), most=30)
    section.must("slow connections that are closed, share", min(r["closed"] / r["connections"] for r in slow), least=1)
    section.notes.append("by wrk" if shutil.which("wrk") else "by a generator of ours, in Python: wrk is not installed")
    return section


if __name__ == "__main__":
    command("serve", run)
