"""Who may ask for what: scopes of keys, names of the service, and pages of other origins."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from considerate.errors import UsageError
from considerate.service.access import SCOPES, Callers, Keys
from considerate.service.problems import Problem
from considerate.service.routes import ROUTES
from tests.helpers.browsers import PATIENCE, launched
from tests.helpers.service_fixtures import Client, path, running

__all__ = ["path"]  # pytest's fixtures
EVENT = {"events": [{"user": "u20", "item": "i20"}]}
LIKES = {"likes": ["i20"]}

# --- Keys ---

SCOPED = {scope: f"key-of-{scope}-0123456789" for scope in SCOPES}
ASKED: list[tuple[str, str, Any, str]] = [
    ("GET", "/v1/users/u20/recommendations", None, "serve"),
    ("GET", "/v1/recommendations?user=u20", None, "serve"),
    ("POST", "/v1/recommendations", LIKES, "serve"),
    ("POST", "/v1/recommendations:batch", {"users": ["u20"]}, "serve"),
    ("POST", "/v1/landscape", LIKES, "serve"),
    ("GET", "/v1/items", None, "serve"),
    ("GET", "/v1/items/i20", None, "serve"),
    ("GET", "/v1/items/i20/similar", None, "serve"),
    ("POST", "/v1/explanations", LIKES | {"item": "i21"}, "serve"),
    ("GET", "/v1/model", None, "serve"),
    ("GET", "/v1/reliability", None, "serve"),
    ("POST", "/v1/events", EVENT, "serve"),
    ("GET", "/v1/users/u20/events", None, "history"),
    ("GET", "/v1/events?user=u20", None, "history"),
    ("DELETE", "/v1/users/u20/events", None, "history"),
    ("DELETE", "/v1/events?user=u20", None, "history"),
    ("POST", "/admin/reload", None, "admin"),
    ("GET", "/metrics", None, "any key"),
]


@pytest.fixture(scope="module")
def guarded(path: Path) -> Iterator[Client]:
    """A service with a key for each scope."""
    file = path.with_name("keys")
    file.write_text("".join(f"{scope}:{key}\n" for scope, key in SCOPED.items()))
    with running(path, events=str(path.with_name("guarded.db")), api_key_file=str(file)) as service:
        yield service


def test_every_address_that_needs_a_key_is_asked_here() -> None:
    assert len(ASKED) == sum(route.needs != "nothing" for route in ROUTES)


@pytest.mark.parametrize(("method", "address", "body", "needed"), ASKED, ids=lambda value: str(value)[:50])
def test_a_key_does_what_its_scope_says(guarded: Client, method: str, address: str, body: Any, needed: str) -> None:
    assert guarded.request(method, address, json=body).status_code == 401
    for scope, key in SCOPED.items():
        response = guarded.request(method, address, json=body, headers={"Authorization": f"Bearer {key}"})
        if needed in (scope, "any key"):
            assert response.status_code == 200, response.text
        else:
            assert (response.status_code, response.json()["type"]) == (403, "/docs#wrong-scope")
            assert f"needs a key with the scope {needed}" in response.json()["detail"]


def test_one_key_alone_has_all_scopes_and_one_may_have_several(tmp_path: Path) -> None:
    file, key = tmp_path / "keys", "0:23456789abcdef"
    for content, may in ((f"{key}\n", set(SCOPES)), (f"serve:{key}\nhistory:{key}\n", {"serve", "history"})):
        file.write_text(content)
        keys = Keys.read(str(file))
        for scope in SCOPES:
            refusal = nullcontext() if scope in may else pytest.raises(Problem, match="wrong-scope")
            with refusal:
                keys.check({b"x-api-key": key.encode()}, scope)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "no key has the scope serve"),
        ("short", "16 or more"),
        ("admin:short", "16 or more"),
        ("admin:0123456789abcdef", "no key has the scope serve"),
        ("serve:0123456789abcdef\n0123456789abcdef", "a line has no scope"),
        ("serve:0123456789abcdef\nroot:0123456789abcdef", "a line has no scope"),
    ],
)
def test_files_of_keys_that_are_refused(tmp_path: Path, content: str, reason: str) -> None:
    (tmp_path / "keys").write_text(content)
    with pytest.raises(UsageError, match=reason) as refused:
        Keys.read(str(tmp_path / "keys"))
    assert "0123456789" not in str(refused.value)


# --- Names and origins, where there is no key ---


def refused(callers: Callers, host: str, method: str = "GET", origin: str | None = None) -> str | None:
    """The kind of the problem."""
    headers = {b"host": host.encode()} | ({} if origin is None else {b"origin": origin.encode()})
    try:
        callers.check(method, headers)
    except Problem as problem:
        return problem.kind
    return None


def test_names_that_the_service_answers_to() -> None:
    callers = Callers(["Shop.example"])
    for host in (
        "localhost",
        "LOCALHOST:8000",
        "localhost.:1",
        "127.0.0.1:8000",
        "10.1.2.3",
        "[::1]:8000",
        "[fe80::1]",
    ):
        assert refused(callers, host) is None, host
    assert refused(callers, "shop.example:80") is None
    for host in ("evil.example", "evil.example:8000", "", "localhost.evil.example", "127.0.0.1.evil.example", "[evil]"):
        assert refused(callers, host) == "wrong-host", host
    assert refused(callers, "a.shop.example") == "wrong-host"


def test_origins_that_may_write() -> None:
    callers, host = Callers(["shop.example"], ["https://other.example"]), "shop.example:8000"
    for origin in (None, "http://shop.example:8000", "https://other.example"):
        assert refused(callers, host, "POST", origin) is None
    for origin in ("null", "http://evil.example", "http://shop.example", "https://other.example:1", "http://[", ""):
        for method in ("POST", "DELETE"):
            assert refused(callers, host, method, origin) == "wrong-origin", origin
        assert refused(callers, host, "GET", origin) is None
    assert refused(Callers((), ["*"]), "localhost", "POST", "http://evil.example") is None


@pytest.fixture(scope="module")
def keyless(path: Path) -> Iterator[Client]:
    with running(path, events=str(path.with_name("keyless.db"))) as service:
        yield service


@pytest.mark.parametrize(("method", "address", "body", "needed"), ASKED, ids=lambda value: str(value)[:50])
def test_another_name_gets_nothing(keyless: Client, method: str, address: str, body: Any, needed: str) -> None:
    response = keyless.request(method, address, json=body, headers={"Host": "evil.example"})
    assert (response.status_code, response.json()["type"]) == (421, "/docs#wrong-host")
    assert "--allow-host" in response.json()["detail"]


def test_a_balancer_may_ask_by_any_name_how_the_service_is(keyless: Client) -> None:
    for address in ("/health/live", "/health/ready"):
        assert keyless.get(address, headers={"Host": "pod.example"}).status_code == 200


def test_with_a_key_any_name_goes(guarded: Client) -> None:
    headers = {"Host": "shop.example", "Origin": "https://shop.example", "X-API-Key": SCOPED["serve"]}
    assert guarded.post("/v1/recommendations", json=LIKES, headers=headers).status_code == 200


# --- In a real browser ---

ATTACK = """async () => {
  const json = { "content-type": "application/json" };
  const event = JSON.stringify({ events: [{ user: "victim", item: "i21", key: "attack" }] });
  const asked = [["/v1/users/victim/events"], ["/v1/recommendations?user=u20"],
    ["/v1/events", { method: "POST", headers: json, body: event }], ["/v1/users/victim/events", { method: "DELETE" }]];
  const found = [];
  for (const request of asked) found.push((await fetch(...request)).status);
  return found;
}"""


def stored(client: Client) -> list[str]:
    return [event["item"] for event in client.get("/v1/users/victim/events").json()["events"]]


def attacked(browser: Any, client: Client) -> list[int]:
    """Statuses of what a page of evil.example asks from its own origin, after its name points to the service."""
    page, origin = browser.new_page(), f"http://evil.example:{client.base_url.port}"
    page.goto(f"{origin}/health/live", timeout=PATIENCE)  # stands for the page that its own server sent before
    assert page.evaluate("location.origin") == origin
    statuses = list(page.evaluate(ATTACK))
    page.close()
    return statuses


def test_a_page_that_rebinds_its_name_is_refused(path: Path, tmp_path: Path) -> None:
    with (
        launched("--host-resolver-rules=MAP evil.example 127.0.0.1") as browser,
        running(path, events=str(tmp_path / "events.db")) as client,
    ):
        client.post_events(("victim", "i20"))
        assert attacked(browser, client) == [421] * 4
        assert stored(client) == ["i20"]
        with running(path, events=str(tmp_path / "other.db"), allowed_hosts=("evil.example",)) as open_one:
            assert attacked(browser, open_one) == [200] * 4  # the attack would work


def test_a_page_of_another_origin_changes_nothing(path: Path, tmp_path: Path) -> None:
    """Two names for one address are two origins; a form's request is sent without asking first."""
    with launched() as browser, running(path, events=str(tmp_path / "events.db")) as client:
        page, port = browser.new_context(bypass_csp=True).new_page(), client.base_url.port
        send = "address => fetch(address, { method: 'POST', mode: 'no-cors', body: '{}' }).then(answer => answer.type)"
        page.goto(f"http://localhost:{port}/docs", timeout=PATIENCE)
        assert page.evaluate(send, f"http://127.0.0.1:{port}/v1/events") == "opaque"
        refusals = 'considerate_requests_total{method="POST",route="/v1/events",status="403"} 1.0'
        assert refusals in client.get("/metrics").text
        assert (
            page.evaluate(send, f"http://localhost:{port}/v1/events") == "basic"
        )  # its own: the body is what is wrong
        assert 'method="POST",route="/v1/events",status="415"} 1.0' in client.get("/metrics").text
