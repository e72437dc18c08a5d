"""Requests that nobody would send: no answer is a 5xx, no memory and no file handle is lost."""

from __future__ import annotations

import asyncio
import gc
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from considerate.service.openapi import document
from tests.helpers.randomised import LONG
from tests.helpers.service_fixtures import STRANGE, Client, fitted, running

SEED = 7
CHECKS = {"not_a_server_error", "response_schema_conformance", "content_type_conformance", "status_code_conformance"}
VALUES: list[Any] = [None, True, 0, -1, 1e308, 2**70, "", "u20", "a/b", "\x00", "😀", [], {}, ["i20"], [[]], "x" * 2000]
TEXTS = ["1", "0", "-1", "nan", "1e400", "true", "", "u20", "%00", "%ff", "a%2Fb", "null", "[]", "x" * 300]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("fuzz")
    fitted().save(folder / "model")
    with running(folder / "model", events=str(folder / "events.db")) as service:
        yield service


def strange_request(choice: random.Random) -> tuple[str, str, dict[str, Any]]:
    """(method, address, what goes with it), made of the document and of what should not be there."""
    path, operations = choice.choice(list(document()["paths"].items()))
    method, operation = choice.choice(list(operations.items()))
    address = path
    for name in ("{user}", "{item}", "{name}"):
        address = address.replace(name, choice.choice([*TEXTS, "u20", "i20", *map(_quoted, STRANGE)]))
    query = []
    for parameter in operation.get("parameters", []):
        if parameter["in"] == "query" and choice.random() < 0.5:
            query.append(f"{parameter['name']}={choice.choice(TEXTS)}")
    if query:
        address += "?" + "&".join(query)
    sent: dict[str, Any] = {}
    if "requestBody" in operation:
        reference = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        names = [*document()["components"]["schemas"][reference]["properties"], "other"]
        body = {name: choice.choice(VALUES) for name in names if choice.random() < 0.4}
        if choice.random() < 0.5:
            body |= {"likes": ["i20", choice.choice(VALUES)], "n": choice.choice([1, 5, 1000])}
        if choice.random() < 0.3:
            body = {"events": [{"user": choice.choice(VALUES), "item": choice.choice(VALUES)}]}
        sent = {"json": body}
        if choice.random() < 0.1:
            sent = {"content": choice.randbytes(choice.randrange(200)), "headers": {"Content-Type": "application/json"}}
    if choice.random() < 0.05:
        method = choice.choice(["PUT", "TRACE", "OPTIONS", "HEAD"])
    return method.upper(), address, sent


def _quoted(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode())


def send(client: Client, choice: random.Random, requests: int) -> list[int]:
    statuses = []
    for _ in range(requests):
        method, address, sent = strange_request(choice)
        if "/admin/" in address:
            continue
        response = client.request(method, address, **sent)
        statuses.append(response.status_code)
        assert response.status_code < 500, (method, address, sent, response.text)
        assert response.status_code < 400 or method == "HEAD" or response.json()["detail"]
    return statuses


def resident() -> int:
    """Kilobytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def test_fuzzed_requests(client: Client) -> None:
    choice, requests = random.Random(SEED), 50_000 if LONG else 1_500
    statuses = send(client, choice, requests // 3)  # what is made once is made
    gc.collect()
    memory, handles = resident(), len(os.listdir("/proc/self/fd"))
    statuses += send(client, choice, requests - requests // 3)
    gc.collect()
    assert {200, 400, 404, 405, 422} <= set(statuses)
    assert len(os.listdir("/proc/self/fd")) <= handles + 2
    assert resident() <= memory + 20_000  # a leak of a kilobyte a request would be more in a long run
    assert client.recommendations("u20")["items"]


def test_bytes_that_are_no_requests(client: Client) -> None:
    choice = random.Random(SEED)
    lines = [
        b"GET",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
        b"GET /v1/users/\xff\xfe/recommendations HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET / HTTP/1.1\r\nX-Request-ID: \xff\r\nHost: localhost\r\n\r\n",
        *(choice.randbytes(100) for _ in range(20)),
    ]

    async def knock(line: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
        writer.write(line)
        writer.write_eof()
        answer = await reader.read(100_000)
        writer.close()
        return answer

    async def knock_all() -> list[bytes]:
        return await asyncio.gather(*map(knock, lines))

    for answer in asyncio.run(knock_all()):
        assert not answer.startswith(b"HTTP/1.1 5")
    assert client.get("/health/live").status_code == 200


def test_the_service_keeps_to_its_document(client: Client) -> None:
    """schemathesis makes requests of the document, and checks the answers against it."""
    schemathesis = pytest.importorskip("schemathesis")
    from hypothesis import HealthCheck, given, settings

    schema = schemathesis.openapi.from_dict(document())
    schema.config.update(base_url=str(client.base_url))
    checks = [check for check in schemathesis.checks.CHECKS.get_all() if check.__name__ in CHECKS]
    assert len(checks) == len(CHECKS)
    for operation in schema.get_all_operations():
        operation = operation.ok()
        if operation.path.startswith(("/admin", "/page")):
            continue

        @given(case=operation.as_strategy())
        @settings(
            max_examples=300 if LONG else 10,
            deadline=None,
            derandomize=not LONG,
            suppress_health_check=list(HealthCheck),
        )
        def keeps_to_it(case: Any) -> None:
            case.call_and_validate(base_url=str(client.base_url), checks=checks)

        keeps_to_it()
