"""docs/walkthrough.md has the calls that are made, by tracing; the shell is near the kernel."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import considerate
from house import Stacks, Tree, trace
from tests.helpers.paths import ROOT

PAGE = (ROOT / "docs" / "walkthrough.md").read_text()
MOST = {"fit": 13, "recommend": 9}
KERNEL = {"fit": "update_rows", "recommend": "top_items"}


@pytest.fixture(scope="module")
def stacks() -> Stacks:
    found = trace(Tree.at(Path(considerate.__file__).parent))
    assert found, "house.py could not trace the program"
    return found


@pytest.mark.parametrize("command", MOST)
def test_the_kernels_are_near_the_shell(stacks: Stacks, command: str) -> None:
    deep = {name: stack for name, stack in stacks[command].items() if len(stack) > MOST[command]}
    assert not deep


@pytest.mark.parametrize("command", MOST)
def test_the_page_has_the_calls_in_order(stacks: Stacks, command: str) -> None:
    section = PAGE.partition(f"## considerate {command} ")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\d+) \| \[`([\w.]+)`\]\(\.\./src/considerate/([\w/.]+)\) \|", section, re.M)
    written = [(file, name) for _, name, file in rows]
    traced = [re.fullmatch(r"(.+):\d+ (.+)", frame) for frame in stacks[command][KERNEL[command]]]
    assert written == [(call[1], call[2].replace(".<locals>", "")) for call in traced if call]
    assert [int(number) for number, _, _ in rows] == list(range(1, len(rows) + 1))
    assert f"`{KERNEL[command]}`" in section


LINKS = re.findall(r"\[((?:`\w[\w.]*`(?: and )?)+)\]\(\.\./(src/[\w/.]+\.py)\)", PAGE)


@pytest.mark.parametrize(("names", "file"), LINKS)
def test_links_name_what_is_in_the_file(names: str, file: str) -> None:
    """A function or class of that name is in the file, or is imported into it."""
    tree = ast.parse((ROOT / file).read_text())
    defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    for name in re.findall(r"`([\w.]+)`", names):
        assert set(name.split(".")) <= defined, f"{file} has no {name}"
