"""The service by what is on the wire: requests that are none, clients that do not read, tags, and limits."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from considerate.service import protocol
from tests.helpers.service_fixtures import Client, path, running, wait_for

__all__ = ["path"]  # pytest's fixtures


@pytest.fixture(scope="module")
def client(path: Path) -> Iterator[Client]:
    with running(path, events=str(path.with_name("events.db"))) as service:
        yield service


def connected(client: Client) -> socket.socket:
    connection = socket.create_connection((client.base_url.host, client.base_url.port or 0))
    connection.settimeout(60)
    return connection


def sent(client: Client, *parts: bytes) -> bytes:
    """What comes back until the service closes the connection, or has answered a request that asks it to."""
    with connected(client) as connection:
        connection.sendall(b"".join(parts))
        return b"".join(iter(lambda: connection.recv(65_536), b""))


POST = b"POST /v1/recommendations HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
BODY = b'{"likes":["i21"],"n":1}'
HIDDEN = b"GET /v1/model HTTP/1.1\r\nHost: localhost\r\n\r\n"  # a request in the body of another


@pytest.mark.parametrize(
    "request_",
    [
        b"hello\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /health/live HTTP/1.1\r\n\r\n",
        b"GET /health/live HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET /health/live HTTP/1.1\r\nHost : a\r\n\r\n",
        b"GET /v1/items/\xc3\xa9 HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
        POST + b"Content-Length: -1\r\n\r\n",
        POST + b"Content-Length: 23\r\nContent-Length: 4\r\n\r\n" + BODY,
        POST + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n" + HIDDEN,
        POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    ],
    ids=lambda request: str(request[:60]),
)
def test_what_is_no_request_gets_one_problem(client: Client, request_: bytes) -> None:
    answer = sent(client, request_)
    head, _, content = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"\r\nContent-Type: application/problem+json\r\n" in head
    problem = json.loads(content)  # one answer, and nothing behind it
    assert (problem["status"], problem["type"]) == (400, "/docs#unreadable")
    assert "Content-Length or chunks" in problem["detail"]


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /health/live HTTP/1.0\r\n\r\n",
        b"GET http://elsewhere/health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nUpgrade: h2c\r\nConnection: Upgrade, close\r\n\r\n",
        POST + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n17\r\n" + BODY + b"\r\n0\r\n\r\n",
        POST + b"Connection: close\r\nExpect: 100-continue\r\nContent-Length: 23\r\n\r\n" + BODY,
    ],
    ids=lambda request: str(request[:60]),
)
def test_other_requests_that_are(client: Client, request_: bytes) -> None:
    assert b"HTTP/1.1 200 OK" in sent(client, request_)


def test_requests_in_a_row_are_answered_in_their_order(client: Client) -> None:
    last = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    answer = sent(client, HIDDEN, b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n", last)
    assert [line[:12] for line in answer.split(b"HTTP/1.1 ")[1:]] == [
        b"200 OK\r\ndate",
        b"404 Not Foun",
        b"200 OK\r\ndate",
    ]


def test_who_does_not_read_is_cut_off(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []

    class Watched(protocol.DeadlineProtocol):
        def _check_reading(self, before: int) -> None:
            super()._check_reading(before)
            looks.append(self.transport.is_closing())

    monkeypatch.setattr(protocol, "SECONDS", 0.1)
    monkeypatch.setitem(protocol.SERVER_OPTIONS, "http", Watched)
    body = json.dumps({"users": ["u20"] * 1_000, "n": 40}).encode()
    head = POST.replace(b"recommendations", b"recommendations:batch") + b"Content-Length: %d\r\n\r\n" % len(body)
    with running(path) as client:
        with connected(client) as connection:
            connection.sendall(head + body)
            assert connection.recv(1_000).startswith(b"HTTP/1.1 200 OK")
            assert wait_for(lambda: looks)[-1] is True
        assert client.get("/health/live").status_code == 200


def test_tags_are_compared_as_weak_ones(client: Client) -> None:
    for address in ("/v1/users/u30/recommendations", "/page/main.js"):
        tag = client.get(address).headers["etag"]
        for known in (tag, tag.removeprefix("W/"), f'"another", {tag}', "*"):
            assert client.get(address, headers={"If-None-Match": known}).status_code == 304
        assert client.get(address, headers={"If-None-Match": '"another"'}).status_code == 200


def test_the_limit_of_requests_is_of_the_address_that_is_seen(path: Path) -> None:
    with running(path, rate=0.001) as client:
        assert client.get("/nothing").status_code == 404
        for number in range(3):  # nor does it help to say who one is
            refused = client.get("/nothing", headers={"X-Forwarded-For": f"10.0.0.{number}"})
            assert refused.status_code == 429


def test_a_user_is_named_once(client: Client) -> None:
    for method in ("GET", "DELETE"):
        problem = client.request(method, "/v1/users/u20/events?user=u21").json()
        assert "name one once" in problem["detail"]


def test_an_item_of_an_event_is_known_without_its_white_space(client: Client) -> None:
    assert client.post_events(("u40", " i21 "), ("u40", "unheard of"))["unknown_items"] == ["unheard of"]
