"""Columns of recommendations are declared once, in considerate/model/columns.py."""

from __future__ import annotations

import json
import subprocess
import sys
import typing
from pathlib import Path

from considerate.model.columns import COLUMNS
from considerate.model.tables import Recommendation, Recommendations
from considerate.service.openapi import document
from considerate.service.schemas import ITEM_COLUMNS
from tests.helpers.paths import ROOT


def test_a_recommendation_has_the_columns_with_their_types_and_help() -> None:
    assert typing.get_type_hints(Recommendation) == {column.name: column.python for column in COLUMNS}
    assert len({column.name for column in COLUMNS}) == len(COLUMNS)
    for column in COLUMNS:
        assert getattr(Recommendation, column.name).__doc__ == column.help
        assert f"- {column.name} ({column.type_name}): {column.help}" in (Recommendations.__doc__ or "")


def test_the_document_of_the_service_has_the_columns_with_their_help() -> None:
    fields = document()["components"]["schemas"]["RecommendedItem"]["properties"]
    assert [*fields] == [*(column.name for column in ITEM_COLUMNS), "why"]
    assert [fields[column.name]["description"] for column in ITEM_COLUMNS] == [column.help for column in ITEM_COLUMNS]


def test_the_tutorial_has_the_columns() -> None:
    page = (ROOT / "docs" / "quickstart.md").read_text()
    assert "\n".join(f"| `{column.name}` | {column.help} |" for column in COLUMNS) in page


def test_one_declaration_adds_a_column_everywhere(tmp_path: Path) -> None:
    """Python, the shell, files, HTTP as JSON and as Arrow, the OpenAPI document and the page."""
    command = [sys.executable, "-m", "tests.helpers.toy_column", tmp_path / "model"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    toys = found["table"]
    assert {*toys} <= {0.5, None}
    assert toys == found["batch"] == found["json"] == found["http"] == found["arrow"]
    assert toys == [found["landscape"][item] for item in found["items"]]
    assert found["new user"][-2:] == ["toy", "cold"]
    assert found["csv"].split(",")[-2:] == ['"toy"', '"cold"']
    assert "Toy" in found["shell"]
    assert found["shell"].count("0.500") == toys.count(0.5)
    assert found["openapi"] == {"anyOf": [{"type": "number"}, {"type": "null"}], "description": "a toy"}
    assert found["page"] == {"name": "toy", "heading": "Toy", "cell": "{toy}", "format": "decimals", "help": "a toy"}
