"""A model of a graph behind HTTP: the answers of `GraphRecommender`, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from considerate import GraphRecommender
from considerate.cli import app as shell
from considerate.service.events import EventStore, NewEvent
from considerate.service.metrics import Metrics
from tests.helpers.browsers import PATIENCE
from tests.helpers.service_fixtures import Client, running

VERTICES = 36


def friends() -> dict[str, list[str]]:
    """Edges of three groups with a few between them."""
    random = np.random.default_rng(4)
    group = np.arange(VERTICES) % 3
    first, second = np.triu_indices(VERTICES, 1)
    linked = random.random(len(first)) < np.where(group[first] == group[second], 0.5, 0.04)
    return {"src": [f"v{row}" for row in first[linked]], "dst": [f"v{row}" for row in second[linked]]}


@pytest.fixture(scope="module", params=[False, True], ids=["friends", "signed"])
def graph(request: pytest.FixtureRequest) -> GraphRecommender:
    return GraphRecommender(factors=4, sweeps=4, signed=request.param, threads=1).fit(friends())


@pytest.fixture(scope="module")
def client(graph: GraphRecommender, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    path = tmp_path_factory.mktemp("graph") / "model"
    graph.save(path)
    events = EventStore(str(path.with_name("events.db")), Metrics())  # from a time when another model was served
    done = Event()
    events.append([NewEvent("v3", str(graph.recommend("v3").ids[0]), "like", None)], lambda *_: done.set())
    assert done.wait(60)
    events.close()
    with running(path, events=events.path) as client:
        yield client


@pytest.mark.parametrize(
    "options", [{}, {"popularity": 0, "lift": 0}, {"n": VERTICES}, {"deny": ["v1", "v2"]}], ids=str
)
def test_lists_are_those_of_python(client: Client, graph: GraphRecommender, options: dict[str, object]) -> None:
    python = {name: value for name, value in options.items() if name != "n"}
    count = options.get("n", 10)
    for vertex in ("v3", "v7"):
        expected = graph.recommend_table([vertex], count, **python)
        same = client.recommendations(vertex, **options)["items"]
        assert [item | {"title": None} for item in same] == [
            {name: row.get(name) for name in same[0]} for row in expected.to_pylist()
        ]
        assert vertex not in [item["item"] for item in same]
        (entry,) = client.post("/v1/recommendations:batch", json={"users": [vertex], **options}).json()["results"]
        assert entry["items"] == same
    answer = client.post("/v1/recommendations", json={"likes": ["v3", "v6"], **options}).json()
    ids, _ = graph.recommend("v3", count, **python)
    assert ids.tolist() == [item["item"] for item in client.recommendations("v3", **options)["items"]]
    rows = graph.recommend_for(["v3", "v6"], count, **python).to_pylist()
    assert [item["score"] for item in answer["items"]] == [row["score"] for row in rows]


def test_neighbours_reasons_and_the_landscape(client: Client, graph: GraphRecommender) -> None:
    similar = client.get("/v1/items/v3/similar", params={"n": 5}).json()["items"]
    ids, cosines = graph.similar("v3", 6)
    assert ([item["item"] for item in similar], [item["cosine"] for item in similar]) == (
        ids[1:].tolist(),
        cosines[1:].tolist(),
    )
    answer = client.post("/v1/explanations", json={"user": "v3", "item": "v8"}).json()
    why = graph.explain("v3", "v8")
    assert (answer["p_like"], answer["p_considered"]) == (why.p_like, why.p_considered)
    assert [(reason["item"], reason["logit"]) for reason in answer["because"]] == why.liked_because
    land = client.post("/v1/landscape", json={"user": "v3", "n": 3}).json()
    linked = {b if a == "v3" else a for a, b in zip(*friends().values()) if "v3" in (a, b)}
    assert set(land["item"]) == {f"v{row}" for row in range(VERTICES)} - linked - {"v3"}
    best = client.recommendations("v3", n=3, popularity=0.5, lift=0.5)["items"]
    scores = np.array([land["logit"], land["log_popularity"], land["log_lift"]]).T @ [1, 0.5, 0.5]
    assert [land["item"][place] for place in np.argsort(-scores)[:3]] == [item["item"] for item in best]


def test_a_graph_takes_no_events_and_has_no_reliability(client: Client, graph: GraphRecommender) -> None:
    """An event would be a link of both its ends; what is stored from another model does not count."""
    model = client.get("/v1/model").json()
    assert (model["graph"], model["takes_events"]) == (True, False)
    assert model["likes"] == 2 * len(friends()["src"])
    response = client.post("/v1/events", json={"events": [{"user": "v3", "item": "v8"}]})
    assert (response.status_code, response.json()["type"]) == (422, "/docs#invalid")
    assert "graph of vertices" in response.json()["detail"]
    assert client.recommendations("v3")["events"] == 0
    assert client.get("/v1/reliability").json()["pairs"] == 0
    assert len(client.get("/v1/users/v3/events").json()["events"]) == 1  # what was stored can be seen, and erased
    assert client.request("DELETE", "/v1/users/v3/events").json()["erased"] == 1
    assert client.get("/v1/users/nobody/recommendations").json()["type"] == "/docs#unknown-user"


def test_a_refit_is_refused(graph: GraphRecommender, tmp_path: Path) -> None:
    graph.save(tmp_path / "model")
    before = (tmp_path / "model").read_bytes()
    EventStore(str(tmp_path / "events.db"), Metrics()).close()
    result = CliRunner().invoke(shell, ["refit", str(tmp_path / "model"), "--events", str(tmp_path / "events.db")])
    assert result.exit_code == 2
    assert "graph of vertices" in " ".join(result.output.split())
    assert (tmp_path / "model").read_bytes() == before


def test_the_page(browser: Any, client: Client) -> None:
    page, problems = browser.new_page(), list[str]()
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(f"{client.base_url}/#user=v3", timeout=PATIENCE)
    page.wait_for_selector("#list li", timeout=PATIENCE)
    assert f"{VERTICES} vertices, {len(friends()['src'])} links" in page.text_content("#about")
    assert "GraphRecommender.load" in page.text_content("#python")
    first = page.eval_on_selector("#list li", "row => row.dataset.item")
    assert first == client.recommendations("v3")["items"][0]["item"]
    page.close()
    assert problems == []
