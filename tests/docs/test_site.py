"""The site builds without a warning, its API page has every public name, and help() is enough to use a Recommender."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

import considerate
from considerate import GraphRecommender, Recommender
from considerate.settings import described_range
from tests.helpers.paths import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it where there is no real data, on which its notebook fits for half a minute."""
    pytest.importorskip("sphinx")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-E", "-c", "docs", ".", str(folder)]
    environment = os.environ | {"MPLBACKEND": "agg", "CONSIDERATE_DATA": ""}
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def public_names() -> Iterator[str]:
    for name in considerate.__all__:
        value = getattr(considerate, name)
        if callable(value):
            yield f"considerate.{name}"
        if inspect.ismodule(value):
            yield from (f"considerate.{name}.{member}" for member in value.__all__)
        if inspect.isclass(value):
            own = [cls for cls in value.__mro__ if cls.__module__.startswith("considerate")]
            members = {member for cls in own for member in vars(cls) if not member.startswith("_")}
            settings = (
                {field.name for field in fields(value)} if value in (Recommender, GraphRecommender) else set()
            )  # in its docstring
            yield from (f"considerate.{name}.{member}" for member in sorted(members - settings))


def test_the_api_page_has_every_public_name(site: Path) -> None:
    page = (site / "docs" / "api.html").read_text()
    missing = [name for name in public_names() if f'id="{name}"' not in page]
    assert not missing, "docs/api.md leaves these out, or they have no docstring"


def test_every_link_between_pages_leads_somewhere(site: Path) -> None:
    anchors = {page: set(re.findall(r'\bid="([^"]+)"', page.read_text())) for page in site.rglob("*.html")}
    for page in anchors:
        body = page.read_text().partition("<article")[2].partition("</article>")[0]
        for href in re.findall(r'<a [^>]*href="([^"]+)"', body):
            if not href.startswith(("http://", "https://", "mailto:")):
                file, _, anchor = href.partition("#")
                target = (page.parent / file).resolve() if file else page
                assert target.exists(), f"{page.relative_to(site)}: {href}"
                assert not anchor or target.suffix != ".html" or anchor in anchors[target], f"{page.name}: {href}"


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = re.findall(r'<(?:script|link|img)[^>]* (?:src|href)="(https?://[^"]+)"', page.read_text())
        assert not loaded, f"{page.relative_to(site)} loads {loaded}"


@pytest.mark.parametrize("kind", [Recommender, GraphRecommender])
def test_help_lists_every_parameter_with_its_range_and_reason(kind: type[Recommender | GraphRecommender]) -> None:
    text = " ".join((kind.__doc__ or "").split())
    for parameter in fields(kind):
        kinds = parameter.type.__name__ if isinstance(parameter.type, type) else parameter.type
        assert f"{parameter.name} : {kinds}, default {parameter.default!r}" in text
        assert f"Range: {' '.join(described_range(parameter).split())}." in text
        assert f"Default: {parameter.metadata['reason']}." in text
        assert not parameter.metadata["text"].endswith(".")
