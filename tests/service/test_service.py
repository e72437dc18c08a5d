"""The HTTP service: its answers are those of Python and the shell, and its errors say what to do."""

from __future__ import annotations

import gzip
import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from considerate import Recommender
from considerate.cli import app as shell
from considerate.service import protocol
from considerate.service.landscape import reachable
from considerate.service.problems import KINDS
from tests.helpers.service_fixtures import (
    ITEMS,
    STRANGE,
    USERS,
    Client,
    fitted,
    model,
    path,
    running,
    same_items,
    user_name,
)

__all__ = ["model", "path"]  # pytest's fixtures


@pytest.fixture(scope="module")
def client(path: Path) -> Iterator[Client]:
    with running(path, events=str(path.with_name("events.db"))) as service:
        yield service


# --- The same answers everywhere ---


@pytest.mark.parametrize("user", STRANGE)
def test_any_id_in_the_path_and_in_the_query(client: Client, model: Recommender, user: str) -> None:
    expected = model.recommend_table([user], 5)
    same_items(client.recommendations(user, n=5)["items"], expected)
    if user != "..":  # which clients resolve before they send it
        response = client.get(f"/v1/users/{quote(user, safe='')}/recommendations?n=5")
        assert response.json()["user"] == user
        same_items(response.json()["items"], expected)


def test_the_shell_python_and_http_agree_to_the_last_digit(client: Client, model: Recommender, path: Path) -> None:
    result = CliRunner().invoke(
        shell, ["recommend", str(path), "u20", "--explain", "--popularity", "0.7", "--lift", "0.4", "--json"]
    )
    answer = client.recommendations("u20", popularity=0.7, lift=0.4, explain=True)
    assert (answer["popularity"], answer["lift"]) == (0.7, 0.4)
    for item, row in zip(answer["items"], json.loads(result.output), strict=True):
        why = item.pop("why")
        assert why == {name: row.pop(name) for name in why}
        assert item == {name: row[name] for name in item}
    same_items(answer["items"], model.recommend_table(["u20"], popularity=0.7, lift=0.4))


@pytest.mark.parametrize(
    "options",
    [{}, {"popularity": 0, "lift": 0}, {"diversity": 0.5}, {"n": 1000}, {"deny": ["i20", "a/b"]}, {"allow": ["i30"]}],
    ids=str,
)
def test_options(client: Client, model: Recommender, options: dict[str, Any]) -> None:
    python = {name: value for name, value in options.items() if name != "n"}
    expected = model.recommend_table(["u30"], options.get("n", 10), **python)
    same_items(client.recommendations("u30", **options)["items"], expected)
    (entry,) = client.post("/v1/recommendations:batch", json={"users": ["u30"], **options}).json()["results"]
    same_items(entry["items"], expected)
    likes = ["i21", "i23", "a/b"]
    answer = client.post("/v1/recommendations", json={"likes": [*likes, "unheard of", 7], **options}).json()
    assert answer["ignored"] == ["unheard of", 7]
    same_items(answer["items"], model.recommend_for(likes, options.get("n", 10), **python))


@pytest.mark.filterwarnings("ignore:factors=64 is more")
@pytest.mark.parametrize("options", [{}, {"tilt": 0.5}], ids=str)
def test_of_many_at_once_all_get_what_each_gets_alone(tmp_path: Path, options: dict[str, Any]) -> None:
    """In the shell and Python, too, and by scores that BLAS would add in an order that depends on the batch."""
    model = fitted(factors=64, **options)
    model.save(tmp_path / "model")
    users = [user_name(row) for row in range(64)]
    scores: list[dict[str, Any]] = [{}, {"score": "like"}, {"explore_kappa": 1.0}, {"thompson_seed": 3}]
    for keywords in scores:
        alone = [model.recommend_table([user], **keywords).to_pylist() for user in users]
        for count in (7, 64):
            together = model.recommend_table(users[:count], **keywords).to_pylist()
            assert together == [row for rows in alone[:count] for row in rows]
    with running(tmp_path / "model") as client:
        entries = client.post("/v1/recommendations:batch", json={"users": users}).json()["results"]
    for user, entry in zip(users, entries):
        same_items(entry["items"], model.recommend_table([user]))


@pytest.mark.parametrize("at_once", [1, 7, 64])
def test_nobody_s_answer_depends_on_who_else_asks(client: Client, model: Recommender, at_once: int) -> None:
    users = [user_name(row) for row in range(USERS)][-at_once:]
    with ThreadPoolExecutor(min(at_once, 16)) as pool:
        answers = list(pool.map(client.recommendations, users))
    for user, answer in zip(users, answers):
        same_items(answer["items"], model.recommend_table([user]))


def test_a_batch_has_a_result_or_an_error_for_each(client: Client, model: Recommender) -> None:
    users = ["u20", "nobody", "a/b"]
    answer = client.post("/v1/recommendations:batch", json={"users": users, "n": 3}).json()
    assert [entry["user"] for entry in answer["results"]] == users
    assert answer["results"][1]["error"]["status"] == 404
    assert "items" not in answer["results"][1]
    same_items(answer["results"][2]["items"], model.recommend_table(["a/b"], 3))
    arrow = {"Accept": "application/vnd.apache.arrow.stream"}
    response = client.post("/v1/recommendations:batch", json={"users": users, "n": 3}, headers=arrow)
    table = pa.ipc.open_stream(response.content).read_all()
    assert table.replace_schema_metadata(None).equals(model.recommend_table(["u20", "a/b"], 3).to_arrow())
    assert [error["user"] for error in json.loads(table.schema.metadata[b"errors"])] == ["nobody"]


def test_users_of_whom_nothing_is_known(client: Client, model: Recommender) -> None:
    response = client.get("/v1/users/nobody/recommendations")
    assert (response.status_code, response.json()["type"]) == (404, "/docs#unknown-user")
    answer = client.recommendations("nobody", cold="popular")
    assert answer["cold"]
    same_items(answer["items"], model.recommend_table(["nobody"], cold="popular"))


def test_items(client: Client, model: Recommender) -> None:
    found = client.get("/v1/items", params={"q": "quiet film 2", "n": 4}).json()["items"]
    assert [tuple(item.values()) for item in found] == [tuple(match) for match in model.find("quiet film 2", 4)]
    most_liked = client.get("/v1/items", params={"n": ITEMS}).json()["items"]
    assert [item["likes"] for item in most_liked] == sorted(model.model_.item_degree.tolist(), reverse=True)
    for name in ("a%2Fb", "i20"):
        assert client.get(f"/v1/items/{name}").json()["item"] == name.replace("%2F", "/")
        similar = client.get(f"/v1/items/{name}/similar", params={"n": 5}).json()["items"]
        ids, cosines = model.similar_items(name.replace("%2F", "/"), 6)
        assert [item["item"] for item in similar] == ids[1:].tolist()
        assert [item["cosine"] for item in similar] == cosines[1:].tolist()
    assert client.get("/v1/items/%E2%82%AC").json()["type"] == "/docs#unknown-item"


def test_explanations(client: Client, model: Recommender) -> None:
    answer = client.post("/v1/explanations", json={"user": "u20", "item": "i21", "n": 4}).json()
    why = model.explain("u20", "i21", N=4)
    assert (answer["p_like"], answer["p_considered"]) == (why.p_like, why.p_considered)
    assert [(reason["item"], reason["logit"]) for reason in answer["because"]] == why.liked_because
    answer = client.post("/v1/explanations", json={"likes": ["i22", "i24"], "item": "i21"}).json()
    assert answer["p_like"] == model.explain("u20", "i21", ["i22", "i24"]).p_like
    for wrong in ({"item": "i21"}, {"item": "i21", "user": "u20", "likes": ["i22"]}):
        assert client.post("/v1/explanations", json=wrong).status_code == 422


def test_the_model(client: Client, model: Recommender) -> None:
    answer = client.get("/v1/model").json()
    assert (answer["users"], answer["items"], answer["likes"]) == (USERS, ITEMS, model.model_.users.edges)
    assert answer["settings"]["factors"] == 4
    assert answer["digest"] == client.recommendations("u20")["model"]


# --- The landscape ---


def test_the_landscape_has_all_that_the_knobs_bring_up(client: Client) -> None:
    body = {"user": "u20", "n": 3, "popularity": [0, 1], "lift": [0, 2], "points": 1000}
    answer = client.post("/v1/landscape", json=body).json()
    reached = set(answer["item"][: answer["reached"]])
    assert answer["complete"]
    assert len(answer["item"]) == answer["total"]
    seen = set()
    for popularity in np.linspace(0, 1, 9):
        for lift in np.linspace(0, 2, 9):
            items = client.recommendations("u20", n=3, popularity=popularity, lift=lift)["items"]
            seen |= {item["item"] for item in items}
            place = answer["item"].index(items[0]["item"])
            parts = (answer[name][place] for name in ("logit", "log_popularity", "log_lift"))
            score = np.dot(list(parts), [1, popularity, lift])
            assert score == pytest.approx(items[0]["score"], rel=1e-5)
            assert answer["p_like"][place] == items[0]["p_like"]
            assert answer["p_considered"][place] == items[0]["p_considered"]
    assert seen <= reached
    assert len(reached) < answer["total"]
    few = client.post("/v1/landscape", json=body | {"points": 2}).json()
    assert (few["complete"], len(few["item"])) == (False, 2)


@pytest.mark.parametrize("count", [1, 5])
def test_reachable_items_against_a_fine_grid(count: int) -> None:
    random = np.random.default_rng(count)
    base, *terms = random.standard_normal((3, 500))
    reached = reachable(base, terms, [(-1, 1), (0, 2)], count)
    grid = [(a, b) for a in np.linspace(-1, 1, 60) for b in np.linspace(0, 2, 60)]
    best = {int(item) for a, b in grid for item in np.argsort(-(base + a * terms[0] + b * terms[1]))[:count]}
    assert best <= set(reached.tolist())
    assert len(reached) <= 2 * len(best)
    assert reachable(base, terms, [(0.5, 0.5), (1, 1)], count).tolist() == sorted(
        np.argsort(-(base + 0.5 * terms[0] + terms[1]))[:count].tolist()
    )


# --- HTTP ---


def test_an_answer_that_the_client_has_is_not_sent_again(client: Client) -> None:
    first = client.get("/v1/users/u20/recommendations")
    tag = {"If-None-Match": first.headers["etag"]}
    again = client.get("/v1/users/u20/recommendations", headers=tag)
    assert (again.status_code, again.content) == (304, b"")
    client.post_events(("u20", "i20", "considered"))
    assert client.get("/v1/users/u20/recommendations", headers=tag).status_code == 200


def test_gzip_request_ids_and_no_cors(client: Client) -> None:
    response = client.get("/v1/items?n=40", headers={"X-Request-ID": "abc-1", "Origin": "https://elsewhere.example"})
    assert response.headers["content-encoding"] == "gzip"
    assert response.headers["x-request-id"] == "abc-1"
    assert "access-control-allow-origin" not in response.headers
    strange = client.get("/health/live", headers={"X-Request-ID": "a b\tc"})
    assert strange.headers["x-request-id"] not in ("a b\tc", "")
    with client.stream("GET", "/v1/items?n=40", headers={"Accept-Encoding": "gzip"}) as raw:
        assert len(json.loads(gzip.decompress(b"".join(raw.iter_raw())))["items"]) == 40
    for asked, packed in (
        ("identity", False),
        ("gzip;q=0, br", False),
        ("br, gzip;q=0.5", True),
        ("gzip; q=0.001", True),
    ):
        answer = client.get("/v1/items?n=40", headers={"Accept-Encoding": asked})
        assert ("content-encoding" in answer.headers) == packed, asked
        assert answer.headers["vary"] == "Accept-Encoding"


TYPE = {"headers": {"Content-Type": "application/json"}}
WRONG = [
    ("GET", "/v1/nothing", {}, 404, "unknown-route"),
    ("GET", "/v1/users/u20/recommendations/", {}, 404, "unknown-route"),
    ("GET", "/v1/users//recommendations", {}, 422, "invalid"),
    ("GET", "/v1/recommendations", {}, 422, "invalid"),
    ("PATCH", "/v1/model", {}, 405, "wrong-method"),
    ("GET", "/v1/users/%ff/recommendations", {}, 400, "unreadable"),
    ("GET", "/v1/recommendations?user=%ff", {}, 400, "unreadable"),
    ("GET", "/v1/users/u20/recommendations?n=0", {}, 422, "invalid"),
    ("GET", "/v1/users/u20/recommendations?n=ten", {}, 422, "invalid"),
    ("GET", "/v1/users/u20/recommendations?n=1&n=2", {}, 422, "invalid"),
    ("GET", "/v1/users/u20/recommendations?popularity=nan", {}, 422, "invalid"),
    ("GET", "/v1/users/u20/recommendations?popularity=1e9", {}, 422, "invalid"),
    ("GET", "/v1/users/u20/recommendations?speed=1", {}, 422, "invalid"),
    ("GET", "/v1/users/u20/recommendations?deny=nothing", {}, 404, "unknown-item"),
    ("GET", "/v1/items?q=%2E", {}, 422, "invalid"),
    ("POST", "/v1/recommendations", {"content": b"{", **TYPE}, 400, "unreadable"),
    ("POST", "/v1/recommendations", {"content": b'{"likes": ["\xff"]}', **TYPE}, 400, "unreadable"),
    ("POST", "/v1/recommendations", {"content": b"[" * 100_000, **TYPE}, 422, "invalid"),
    ("POST", "/v1/recommendations", {"json": {"likes": []}}, 422, "invalid"),
    ("POST", "/v1/recommendations", {"json": {"likes": [1.5]}}, 422, "invalid"),
    ("POST", "/v1/recommendations", {"json": {"likes": ["i20"], "speed": 1}}, 422, "invalid"),
    ("POST", "/v1/recommendations", {"data": {"likes": "i20"}}, 415, "wrong-type"),
    ("POST", "/v1/recommendations", {"content": b" " * 1_000_001, **TYPE}, 413, "too-large"),
    ("POST", "/v1/recommendations", {"content": b'{"likes": ["i20"]}'}, 415, "wrong-type"),
    ("POST", "/v1/recommendations:batch", {"json": {"users": ["u20"] * 300, "n": 1000}}, 422, "invalid"),
    ("POST", "/v1/landscape", {"json": {"user": "u20", "lift": [2, 1]}}, 422, "invalid"),
    ("POST", "/v1/events", {"json": {"events": []}}, 422, "invalid"),
    ("POST", "/v1/events", {"json": {"events": [{"user": "u", "item": "i", "kind": "hate"}]}}, 422, "invalid"),
    ("GET", "/v1/users/u20/events?after=18446744073709551616", {}, 422, "invalid"),
    ("POST", "/admin/reload", {}, 403, "no-admin"),
]


@pytest.mark.parametrize(("method", "address", "sent", "status", "kind"), WRONG, ids=lambda value: str(value)[:50])
def test_errors_say_what_to_do(
    client: Client, path: Path, method: str, address: str, sent: dict[str, Any], status: int, kind: str
) -> None:
    response = client.request(method, address, **sent)
    problem = response.json()
    assert (response.status_code, problem["status"], problem["type"]) == (status, status, f"/docs#{kind}")
    assert response.headers["content-type"] == "application/problem+json"
    assert problem["title"] == KINDS[kind][1]
    assert problem["detail"].endswith(".")
    assert problem["request"] == response.headers["x-request-id"]
    assert str(path.parent) not in response.text
    assert "Traceback" not in response.text


def test_a_key_is_asked_for_where_one_is_set(path: Path, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("0123456789abcdef\n")
    with running(path, api_key_file=str(key)) as client:
        for headers in ({}, {"Authorization": "Bearer 0123456789abcdeF"}, {"X-API-Key": ""}):
            for method, address in (("GET", "/v1/model"), ("GET", "/metrics"), ("POST", "/admin/reload")):
                response = client.request(method, address, headers=headers)
                assert (response.status_code, response.json()["type"]) == (401, "/docs#no-key")
        for address in ("/", "/docs", "/openapi.json", "/health/live", "/health/ready", "/page/main.js"):
            assert client.get(address).status_code == 200
        assert client.get("/v1/model", headers={"X-API-Key": "0123456789abcdef"}).status_code == 200
        reloaded = client.post("/admin/reload", headers={"Authorization": "Bearer 0123456789abcdef"})
        assert reloaded.json()["changed"] is False


def test_limits_of_rate_and_time_and_other_origins(path: Path) -> None:
    with running(path, rate=3, timeout=0.2, cors_origins=("https://shop.example",)) as client:
        origin = {"Origin": "https://shop.example"}
        statuses = [client.get("/v1/model", headers=origin).status_code for _ in range(20)]
        assert statuses[0] == 200
        refused = next(r for r in iter(lambda: client.get("/v1/model", headers=origin), None) if r.status_code == 429)
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.headers["access-control-allow-origin"] == "https://shop.example"
        assert client.get("/health/live").status_code == 200  # whatever the rate


def test_a_body_that_does_not_come(path: Path) -> None:
    head = b"POST /v1/recommendations HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20\r\n"
    head += b"Content-Type: application/json\r\n\r\n"
    with running(path, timeout=0.1) as client:
        address = client.base_url.host, client.base_url.port or 0
        with socket.create_connection(address) as connection:
            connection.sendall(head + b'{"likes"')
            answer = b"".join(iter(lambda: connection.recv(65_536), b""))  # until the service closes it
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"/docs#slow-body" in answer


@pytest.mark.parametrize(
    "pieces",
    [
        [],
        [b"G"],
        [b"GET / HTTP/1.1\r\n", b"X-A: 1\r\n"],
        [b"\r\n", b"\r\n"],
        [b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999\r\n\r\n", b"x"],
    ],
    ids=["nothing", "a letter", "headers", "empty lines", "a body"],
)
def test_who_dawdles_is_cut_off(path: Path, monkeypatch: pytest.MonkeyPatch, pieces: list[bytes]) -> None:
    """The first piece is sent once, the last of several again and again."""
    monkeypatch.setattr(protocol, "SECONDS", 0.3)
    with running(path) as client:
        assert client.get("/health/live").status_code == 200
        with socket.create_connection((client.base_url.host, client.base_url.port or 0)) as connection:
            connection.settimeout(0.02)
            for piece in pieces[:1]:
                connection.sendall(piece)
            closed = False
            while not closed:
                try:
                    closed = connection.recv(65_536) == b""
                    connection.sendall(b"".join(pieces[1:]))
                except TimeoutError:
                    connection.sendall(b"".join(pieces[1:]))
                except ConnectionError:
                    closed = True
        assert client.get("/health/live").status_code == 200  # by the connection that idled meanwhile, or another


def test_headers_without_an_end(client: Client) -> None:
    with socket.create_connection((client.base_url.host, client.base_url.port or 0)) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n")
        try:
            for number in range(2_000):
                connection.sendall(b"X-%d: %s\r\n" % (number, b"x" * 100))
        except ConnectionError:
            return
        answer = connection.recv(65_536)
    assert answer == b"" or b"/docs#unreadable" in answer


def test_the_page_the_document_and_health(client: Client) -> None:
    page = client.get("/")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert client.get("/", headers={"If-None-Match": page.headers["etag"]}).status_code == 304
    for name in ("main.js", "style.css"):
        assert f'"/page/{name}"' in page.text
        assert client.get(f"/page/{name}").status_code == 200
    assert "http" not in page.text  # nothing from elsewhere
    docs = client.get("/docs").text
    assert all(f"id='{kind}'" in docs for kind in KINDS)
    document = client.get("/openapi.json").json()
    assert set(document["paths"]) >= {"/v1/users/{user}/recommendations", "/v1/recommendations:batch", "/v1/landscape"}
    assert client.head("/health/ready").status_code == 200
    metrics = client.get("/metrics").text
    assert 'considerate_requests_total{method="GET",route="/",status="200"}' in metrics
    assert "u20" not in metrics


def test_models_of_other_kinds(tmp_path: Path) -> None:
    """Without lift, without titles, with row numbers for ids; and saved without likes."""
    from tests.helpers.likes import planted

    plain = Recommender(factors=3, sweeps=3, consideration="popularity", threads=1).fit(planted())
    plain.save(tmp_path / "plain")
    with running(tmp_path / "plain") as client:
        rows = plain.recommend_table([7]).to_pylist()
        answer = client.recommendations("7")
        assert [item["item"] for item in answer["items"]] == [row["item"] for row in rows]
        assert [item["p_considered"] for item in answer["items"]] == [row["p_considered"] for row in rows]
        assert answer["items"][0]["title"] is None
        assert client.post("/v1/recommendations", json={"likes": [1, "2"]}).json()["ignored"] == []
        refused = client.get("/v1/recommendations?user=7&lift=1").json()
        assert "this model has no walk" in refused["detail"]
        assert client.get("/v1/model").json()["lift"] is None
        assert client.post("/v1/landscape", json={"user": 7}).json()["log_lift"] is None
        off = client.post("/v1/events", json={"events": [{"user": 7, "item": 1}]})
        assert (off.status_code, off.json()["type"]) == (404, "/docs#events-off")  # a client that retries 503 goes on
    best = plain.recommend_table([7], 3)["item"].to_pylist()
    limited = Recommender(factors=3, sweeps=3, threads=1).fit(planted(), impossible={"user": [7, 7, 8], "item": best})
    limited.save(tmp_path / "limited")
    with running(tmp_path / "limited") as client:
        ids = [item["item"] for item in client.recommendations("7", n=40)["items"]]
        assert ids == limited.recommend_table([7], 40)["item"].to_pylist()
        assert not set(best[:2]) & {*ids, *client.post("/v1/landscape", json={"user": 7}).json()["item"]}
    model = fitted()
    model.save(tmp_path / "bare", likes=False)
    with running(tmp_path / "bare", events=str(tmp_path / "events.db")) as client:
        assert client.recommendations("u20")["items"][0]["p_considered"] is None
        assert client.get("/v1/recommendations?user=u20&lift=1").status_code == 422
        assert client.get("/v1/recommendations?user=u20&explain=true").status_code == 422
        first = client.recommendations("u20")["items"][0]["item"]
        client.post_events(("u20", first))
        assert first not in [item["item"] for item in client.recommendations("u20")["items"]]
        # Whom likes are known of does not depend on who else is in the call.
        client.post_events(("someone new", "i21"), ("someone new", "i23"))
        for options, statuses in (({}, [200, 200]), ({"lift": 0.5}, [200, 422])):
            users = ["someone new", "u20"]
            alone = [client.get("/v1/recommendations", params={"user": user, **options}) for user in users]
            assert [response.status_code for response in alone] == statuses
        request = {"users": users, "n": 10}
        both = client.post("/v1/recommendations:batch", json=request).json()["results"]
        assert [entry["items"] for entry in both] == [client.recommendations(user)["items"] for user in users]
