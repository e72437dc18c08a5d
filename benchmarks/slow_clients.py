"""Connections that send a byte of a request every ten seconds: a process of its own for `serve`.

    python -m benchmarks.slow_clients PORT headers|body CONNECTIONS

It prints a line one second after all are connected, and then, as JSON, after how many seconds each was closed.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

import uvloop

from benchmarks.http_load import allow_connections, connect, get, post

EVERY = 10.0  # seconds between two bytes
PATIENCE = 60.0  # seconds after which a connection counts as never closed


def first_bytes(kind: str) -> tuple[bytes, bytes]:
    """(what is sent at once, what comes byte by byte)."""
    if kind == "headers":
        request = get("/v1/users/17/recommendations")
        return request[:1], request[1:]
    head, _, body = post("/v1/recommendations", {"likes": list(range(1_000))}).partition(b"\r\n\r\n")
    return head + b"\r\n\r\n", body


async def dawdle(port: int, kind: str, connected: asyncio.Semaphore) -> float | None:
    """Seconds until the server closes the connection."""
    at_once, rest = first_bytes(kind)
    reader, writer = await connect(port)
    writer.write(at_once)
    connected.release()
    begun, ended, sent = time.perf_counter(), asyncio.create_task(reader.read()), 0  # to the end: a 408 may come first
    while time.perf_counter() - begun < PATIENCE:
        await asyncio.wait([ended], timeout=EVERY)
        if ended.done():
            ended.exception()
            return time.perf_counter() - begun
        writer.write(rest[sent : sent + 1])
        sent += 1
    ended.cancel()
    return None


async def main(port: int, kind: str, many: int) -> None:
    allow_connections()
    connected = asyncio.Semaphore(0)
    tasks = [asyncio.create_task(dawdle(port, kind, connected)) for _ in range(many)]
    for _ in range(many):
        await connected.acquire()
    await asyncio.sleep(1.0)  # the server has taken what waited in the kernel
    print("connected", flush=True)
    print(json.dumps(await asyncio.gather(*tasks)))


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
