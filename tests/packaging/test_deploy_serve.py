"""deploy/serve: what it runs is what the command takes, what it asks is what the service has, and it writes little."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml
from typer.main import get_command

from considerate.cli import app
from considerate.service.metrics import Metrics
from considerate.service.routes import ROUTES
from tests.helpers.paths import ROOT

FOLDER = ROOT / "deploy" / "serve"
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
CLAIM, DEPLOYMENT, SERVICE = yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text())
POD: dict[str, Any] = DEPLOYMENT["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]
DOCKERFILE = (FOLDER / "Dockerfile").read_text()


def parsed(arguments: list[str]) -> dict[str, Any]:
    """The options that the command makes of its arguments."""
    command = get_command(app).commands[arguments[0]]  # type: ignore[attr-defined]
    options: dict[str, Any] = command.make_context(arguments[0], arguments[1:]).params
    return options


def test_the_page_of_serving_names_the_files() -> None:
    page = (FOLDER.parents[1] / "docs" / "serving.md").read_text()
    named = set(re.findall(r"\]\(\.\./deploy/serve/([\w.]+)\)", page))
    assert named == {path.name for path in FOLDER.iterdir()}


def test_the_commands_are_taken() -> None:
    image = json.loads(re.search(r"^CMD (.*)$", DOCKERFILE, re.M)[1])  # type: ignore[index]
    for arguments in (image, COMPOSE["services"]["serve"]["command"], CONTAINER["args"]):
        options = parsed(arguments)
        assert (options["model"], options["events"], options["host"]) == (
            "/data/model.safetensors",
            "/data/events.db",
            "0.0.0.0",
        )
    assert parsed(COMPOSE["services"]["serve"]["command"])["api_key_file"] == "/run/secrets/key"
    assert parsed(CONTAINER["args"])["api_key_file"] == "/secrets/key"
    again = parsed(COMPOSE["services"]["refit"]["command"])
    assert (again["model"], again["events"], again["every"]) == ("/data/model.safetensors", "/data/events.db", 3600)


def test_probes_ask_what_needs_no_key() -> None:
    is_open = {route.path for route in ROUTES if route.needs == "nothing" and route.method == "GET"}
    asked = {CONTAINER[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "readiness", "liveness")}
    asked |= set(re.findall(r"http://127\.0\.0\.1:8000(/[\w/]+)", DOCKERFILE))
    assert asked == {"/health/ready", "/health/live"}
    assert asked <= is_open
    assert "/metrics" in {route.path for route in ROUTES}


def test_little_may_be_written_and_nothing_as_root() -> None:
    assert "\nUSER 1000\n" in DOCKERFILE
    for service in COMPOSE["services"].values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["tmpfs"] == ["/tmp"]
        assert service["volumes"] == ["state:/data"]
    assert all(port.startswith("127.0.0.1:") for port in COMPOSE["services"]["serve"]["ports"])
    assert CONTAINER["securityContext"]["readOnlyRootFilesystem"] is True
    assert POD["securityContext"]["runAsNonRoot"] is True
    assert {mount["name"] for mount in CONTAINER["volumeMounts"]} == {volume["name"] for volume in POD["volumes"]}
    assert DEPLOYMENT["spec"]["strategy"]["type"] == "Recreate"
    assert CLAIM["metadata"]["name"] == POD["volumes"][0]["persistentVolumeClaim"]["claimName"]
    assert SERVICE["spec"]["selector"] == DEPLOYMENT["spec"]["template"]["metadata"]["labels"]


def test_the_dashboard_draws_metrics_that_there_are() -> None:
    board = json.loads((FOLDER / "grafana.json").read_text())
    drawn = {name for panel in board["panels"] for target in panel["targets"] for name in _metrics(target["expr"])}
    there = {metric.name for metric in Metrics().registry.collect()}
    assert {re.sub(r"_(total|bucket|sum|count)$", "", name) for name in drawn} == there


def _metrics(expression: str) -> set[str]:
    return set(re.findall(r"\bconsiderate_\w+", expression))
