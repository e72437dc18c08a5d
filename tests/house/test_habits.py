"""The files around the code: workflows, templates, hooks and the Makefile speak of what there is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.paths import ROOT

yaml = pytest.importorskip("yaml")
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))


def read(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text())


@pytest.mark.parametrize("path", [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *ROOT.glob(".github/**/*.*")])
def test_make_targets_that_are_named_are_there(path: Path) -> None:
    named = set(re.findall(r"(?:`|run: |^    )make ([a-z-]+)", path.read_text(), re.M))
    assert named <= TARGETS, path.name


def test_ci_runs_all_tests_on_linux_and_macos() -> None:
    job = read(".github/workflows/ci.yml")["jobs"]["test"]
    matrix = job["strategy"]["matrix"]
    systems = {*matrix["os"], *(entry["os"] for entry in matrix["include"])}
    assert systems == {"ubuntu-latest", "macos-latest"}
    supported = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    assert set(matrix["python"]) <= set(supported)
    assert min(matrix["python"]) == min(supported)
    assert any(step.get("run", "").startswith("make test") for step in job["steps"])


def test_workflows_pin_their_actions_and_may_only_read() -> None:
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        workflow = read(str(path.relative_to(ROOT)))
        assert workflow["permissions"] == {"contents": "read"}
        for job in workflow["jobs"].values():
            uses = [step["uses"] for step in job["steps"] if "uses" in step]
            assert all(re.search(r"[@:]v?\d", name) for name in uses), uses


def test_the_hooks_run_the_tools_of_make_check() -> None:
    [repository] = read(".pre-commit-config.yaml")["repos"]
    tools = {hook["entry"].split()[0].removeprefix(".venv/bin/") for hook in repository["hooks"]} - {"python"}
    check = (ROOT / "Makefile").read_text().partition("\ncheck:")[2].partition("\n\n")[0]
    assert tools == set(re.findall(r"\$\(BIN\)/([\w-]+)", check)) - {"python"}


def test_templates_are_whole() -> None:
    forms = [path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml"]
    assert forms
    for path in forms:
        form = read(str(path.relative_to(ROOT)))
        assert {"name", "description", "body"} <= form.keys()
        names = [field["id"] for field in form["body"]]
        assert len(set(names)) == len(names)


def test_the_version_is_in_one_place() -> None:
    assert 'dynamic = ["version"]' in (ROOT / "pyproject.toml").read_text()
    files = [path for path in (ROOT / "src").rglob("*.py") if re.search(r"^__version__ = ", path.read_text(), re.M)]
    assert [path.name for path in files] == ["_version.py"]
