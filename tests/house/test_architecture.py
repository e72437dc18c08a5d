"""Data moves one way: each room imports only from rooms above it. And the docs name what the code has."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from considerate._moved import MOVED
from house import Tree, cyclic, drawing, file_imports, imported_rooms, levels, parameters, repeated_classes
from tests.helpers.paths import ROOT

PACKAGE = ROOT / "src" / "considerate"

# Rooms from the top down: each imports only from those above it.
ROOMS = [
    "_version",
    "_moved",
    "errors",
    "settings",
    "kernels",
    "storage",
    "data",
    "simulation",
    "inference",
    "model",
    "evaluation",
    "fitting",
    "distributed",
    "recommender",
    "graph_recommender",
    "study",
    "plot",
    "service",
    "cli",
    "__init__",
]
TREE = Tree.at(PACKAGE)
FILES = sorted(PACKAGE.rglob("*.py"))


def test_every_room_has_its_place() -> None:
    assert sorted(ROOMS) == TREE.rooms(), "give each room its place in ROOMS and in docs/architecture.md"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_room_imports_only_from_rooms_above(path: Path) -> None:
    own = TREE.room(path)
    above = ROOMS[: ROOMS.index(own) + 1]
    assert imported_rooms(PACKAGE, path) <= set(above), f"{own} may import from {', '.join(above)}"


# Files of a room that import themselves over others; a room that is not listed has none.
IN_CYCLES = {"cli": 2, "data": 2, "fitting": 2, "inference": 2, "model": 4}


def test_files_form_no_cycles_of_imports() -> None:
    found = Counter(name.split(".")[1] for name in cyclic(file_imports(TREE)))
    assert all(count <= IN_CYCLES.get(room, 0) for room, count in found.items()), found


def test_a_class_name_means_one_thing() -> None:
    assert repeated_classes(TREE) == []


def test_the_import_reader_sees_relative_and_absolute_imports(tmp_path: Path) -> None:
    path = tmp_path / "considerate" / "model" / "file.py"
    path.parent.mkdir(parents=True)
    path.write_text(
        "from ..storage import a\nfrom .. import data\nfrom considerate import cli\nimport considerate.study.page\n"
        "import numpy\nfrom . import rows\ndef late():\n    from considerate.errors import E\n"
    )
    expected = {"storage", "data", "cli", "study", "model", "errors"}
    assert imported_rooms(tmp_path / "considerate", path) == expected


def test_the_measures_of_the_house(tmp_path: Path) -> None:
    """tools/house.py on a package whose answers are known."""
    package = tmp_path / "considerate"
    (package / "low").mkdir(parents=True)
    (package / "__init__.py").write_text("from considerate.high import f\n")
    (package / "low" / "__init__.py").write_text("class Same: ...\n")
    (package / "middle.py").write_text("from considerate import low\nclass Same:\n    def m(self, a, *, b): ...\n")
    (package / "high.py").write_text("from considerate import low, middle\ndef f(a, b, /, c, *d, e, g, h, **i): ...\n")
    tree = Tree.at(tmp_path)
    imports = tree.imports()
    assert imports == {"__init__": {"high"}, "low": set(), "middle": {"low"}, "high": {"low", "middle"}}
    assert levels(imports) == 4
    assert levels(imports | {"low": {"high"}}) == 0
    files = file_imports(tree)
    assert files["considerate.high"] == {"considerate.low", "considerate.middle"}
    assert cyclic(files) == set()
    assert cyclic(files | {"considerate.low": {"considerate.high"}}) == {
        "considerate.high",
        "considerate.low",
        "considerate.middle",
    }
    assert repeated_classes(tree) == ["Same"]
    assert sorted(parameters(node) for node in tree.nodes(ast.FunctionDef)) == [2, 8]
    drawn = drawing(imports)
    assert "high --> middle" in drawn
    assert "high --> low" not in drawn  # it follows from the others
    assert "| high | low, middle |" in drawn


def test_inference_does_not_know_its_backend() -> None:
    for path in (PACKAGE / "inference").glob("*.py"):
        text = path.read_text()
        assert "import ray" not in text
        assert "considerate.distributed" not in text
        assert "LocalBackend" not in text
        assert "ThreadPool" not in text


def test_only_the_ray_backend_imports_ray() -> None:
    importing = re.compile(r"^\s*(import ray\b|from ray\b)", re.M)
    found = {str(path.relative_to(PACKAGE)) for path in FILES if importing.search(path.read_text())}
    assert found
    assert all(re.fullmatch(r"distributed/(backends/ray|ray/\w+)\.py", name) for name in found), found


def test_every_room_is_described() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    missing = [room for room in ROOMS[:-1] if not re.search(rf"\b{room}(\.py|/)", text)]
    assert not missing, f"docs/architecture.md says nothing of {missing}"


# --- The equation map ---

EQUATION = re.compile(r"\beqs?\. ((?:\d+(?:-\d+)?)(?:(?:, | and )\d+(?:-\d+)?)*)")


def equations_in(text: str) -> set[int]:
    found: set[int] = set()
    for listed in EQUATION.findall(text):
        for part in re.split(r", | and ", listed):
            low, _, high = part.partition("-")
            found |= set(range(int(low), int(high or low) + 1))
    return found


def equation_map() -> dict[int, str]:
    """Equation number -> `module.function`, from the table in docs/model.md."""
    rows = re.findall(r"^\| (\d+) \| .*? \| `([\w./]+)` \|", (ROOT / "docs" / "model.md").read_text(), re.M)
    return {int(number): place for number, place in rows}


def test_each_equation_in_the_code_is_on_the_map_and_back() -> None:
    sources = [*FILES, *(ROOT / "src" / "core").glob("*.[hc]pp")]
    used = set().union(*(equations_in(path.read_text()) for path in sources))
    assert used == set(equation_map()), "the map in docs/model.md and the `eq. N` in the code differ"


@pytest.mark.parametrize("number", range(1, 24))
def test_the_map_names_a_function_that_cites_its_equation_and_is_tested(number: int) -> None:
    place = equation_map()[number]
    file, _, name = place.rpartition(".")
    path = PACKAGE / (file.replace(".", "/") + ".py")
    assert path.exists(), f"eq. {number}: {path} is not there"
    definitions = {
        node.name: ast.get_docstring(node) or ""
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    assert name in definitions, f"eq. {number}: {place} is not there"
    assert number in equations_in(definitions[name]), f"eq. {number}: the docstring of {place} does not name it"
    tests = "".join(test.read_text() for test in (ROOT / "tests").rglob("test_*.py"))
    assert re.search(rf"\b{name}\b", tests), f"eq. {number}: no test calls {name}"


def test_the_equation_reader() -> None:
    assert equations_in("(eq. 15-18), eq. 3 and 5, see eq. 20. eqs. 1, 2") == {15, 16, 17, 18, 3, 5, 20, 1, 2}


@pytest.mark.parametrize("statement", ["import considerate", "from considerate import Recommender, read_interactions"])
def test_importing_loads_nothing_heavy(statement: str) -> None:
    heavy = ("pyarrow", "scipy", "matplotlib", "pandas", "ray")
    code = f"{statement}; import sys; print([n for n in {heavy} if n in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


OLD_NAMES = """
import json, sys, warnings
from functools import cache
from importlib import import_module
found = {}
for old, new in json.loads(sys.argv[1]).items():
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        same = import_module(old) is import_module(new)
    found[old] = [same, [str(one.message) for one in warned if one.category is DeprecationWarning]]
print(json.dumps(found))
"""


@cache
def modules_by_old_names() -> Any:
    """Old name -> whether it is the new module, and the warnings; in a process that has imported neither."""
    command = [sys.executable, "-c", OLD_NAMES, json.dumps(MOVED)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.parametrize(("old", "new"), MOVED.items())
def test_an_old_module_name_is_the_new_module(old: str, new: str) -> None:
    same, warned = modules_by_old_names()[old]
    assert same
    assert any(f"{old} is now {new}" in message for message in warned)


@pytest.mark.parametrize("folder", ["benchmarks", "studies"])
def test_scripts_import_what_there_is(folder: str) -> None:
    """Also inside functions, which nothing runs until a benchmark does."""
    for path in (ROOT / folder).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            module = node.module if isinstance(node, ast.ImportFrom) else None
            if module is None or module.partition(".")[0] not in ("benchmarks", "considerate", "studies"):
                continue
            for name in (alias.name for alias in node.names):
                found = hasattr(import_module(module), name) or find_spec(f"{module}.{name}") is not None
                assert found, f"{path.name} imports {name} from {module}"
