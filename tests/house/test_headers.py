"""Each header of the core compiles alone: it includes all that it uses."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.helpers.paths import ROOT

CORE = ROOT / "src" / "core"
HEADERS = sorted(path.name for path in CORE.glob("*.hpp"))
OF_BINDINGS = {"arrays.hpp", "lists.hpp"}  # the headers that need nanobind


def nanobind() -> list[str]:
    """Folders with the headers of nanobind and Python; none if nanobind is not installed."""
    found = find_spec("nanobind")
    if found is None or found.origin is None:
        return []
    return [str(Path(found.origin).parent / "include"), sysconfig.get_path("include")]


def errors(headers: list[str], folders: list[str]) -> str:
    """Messages of the compiler about each header by itself."""
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    command = [compiler, "-std=gnu++20", "-fsyntax-only", "-w", "-x", "c++", *(f"-I{folder}" for folder in folders)]

    def compile_alone(header: str) -> str:
        done = subprocess.run([*command, str(CORE / header)], capture_output=True, text=True, check=False)
        return done.stderr if done.returncode else ""

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return "".join(pool.map(compile_alone, headers))


def test_each_header_compiles_alone() -> None:
    assert not errors([header for header in HEADERS if header not in OF_BINDINGS], [])


def test_each_header_of_the_bindings_compiles_alone() -> None:
    folders = nanobind()
    if not folders:
        pytest.skip("nanobind is not installed: pip install nanobind")
    assert not errors(sorted(OF_BINDINGS), folders)


def test_a_header_that_uses_more_than_it_includes_is_found(tmp_path: Path) -> None:
    path = tmp_path / "wrong.hpp"
    path.write_text("inline std::size_t size(const std::vector<int>& all) { return all.size(); }\n")
    assert "wrong.hpp" in errors([str(path)], [])
