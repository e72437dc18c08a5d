"""Data moves one way: each room imports only from rooms above it. And the docs name what the code has."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from considerate._moved import MOVED

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "considerate"

# Rooms from the top down: each imports only from those above it.
ROOMS = [
    "_version",
    "_moved",
    "errors",
    "kernels",
    "storage",
    "parameters",
    "data",
    "simulation",
    "inference",
    "model",
    "evaluation",
    "fitting",
    "distributed",
    "recommender",
    "study",
    "cli",
]
LEVEL = {room: level for level, room in enumerate(ROOMS)}


def room_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).parts
    return parts[0].removesuffix(".py") if len(parts) == 1 else parts[0]


def imported_rooms(path: Path) -> set[str]:
    """The rooms of this package that a file imports, for types only or not."""
    found = set()
    package = ["considerate", *path.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join(base + ([node.module] if node.module else []))
            names = [module] if module != "considerate" else [f"considerate.{alias.name}" for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("considerate.")}
    return found


FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_room_imports_only_from_rooms_above(path: Path) -> None:
    own = room_of(path)
    assert own in LEVEL, f"{own} is a new room: give it its place in ROOMS and in docs/architecture.md"
    for other in imported_rooms(path) - {own, "__version__"}:
        assert other in LEVEL, f"{path} imports {other}, which has no place"
        assert LEVEL[other] < LEVEL[own], f"{own} imports {other}, which is not above it"


def test_the_import_reader_sees_relative_and_absolute_imports(tmp_path: Path) -> None:
    assert "data" in imported_rooms(PACKAGE / "recommender.py")
    assert "errors" in imported_rooms(PACKAGE / "data" / "read.py")


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
    missing = [room for room in LEVEL if not re.search(rf"\b{room}(\.py|/)", text)]
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
    tests = "".join(test.read_text() for test in (ROOT / "tests").glob("test_*.py"))
    assert re.search(rf"\b{name}\b", tests), f"eq. {number}: no test calls {name}"


def test_the_equation_reader() -> None:
    assert equations_in("(eq. 15-18), eq. 3 and 5, see eq. 20. eqs. 1, 2") == {15, 16, 17, 18, 3, 5, 20, 1, 2}


@pytest.mark.parametrize("statement", ["import considerate", "from considerate import Recommender, read_interactions"])
def test_importing_loads_nothing_heavy(statement: str) -> None:
    heavy = ("pyarrow", "scipy", "matplotlib", "pandas", "ray")
    code = f"{statement}; import sys; print([n for n in {heavy} if n in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize(("old", "new"), MOVED.items())
def test_an_old_module_name_is_the_new_module(old: str, new: str) -> None:
    code = f"import importlib, {new}; assert importlib.import_module({old!r}) is importlib.import_module({new!r})"
    found = subprocess.run([sys.executable, "-W", "always", "-c", code], capture_output=True, text=True, check=True)
    assert "DeprecationWarning" in found.stderr
