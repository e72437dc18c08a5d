"""What a new user does first: every thing of newcomer.py, and all of them against a wheel without extras."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.paths import ROOT
from tests.helpers.randomised import LONG
from tests.recommender import newcomer
from tests.recommender.newcomer import MOST_LINES, Thing, do, names, things, write_files


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The names of one session in a folder with the files; each thing goes on from those before it."""
    before = Path.cwd()
    os.chdir(tmp_path_factory.mktemp("newcomer"))
    write_files()
    yield names()
    os.chdir(before)


@pytest.mark.slow
@pytest.mark.parametrize("thing", [pytest.param(thing, id=thing.what) for thing in things()])
def test_a_thing_that_a_newcomer_does_works(thing: Thing, known: dict[str, Any]) -> None:
    assert 1 <= len(thing.lines) <= MOST_LINES
    do(thing, known)


def test_a_newcomer_does_thirty_things() -> None:
    assert len(things()) == 30


@pytest.mark.skipif(not LONG, reason="builds a wheel and an environment; `make test-long` runs it")
def test_all_things_work_with_a_wheel_and_no_extras(tmp_path: Path) -> None:
    wheels, environment = tmp_path / "wheels", tmp_path / "environment"
    run = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(wheels), str(ROOT)]
    subprocess.run(run, check=True)
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    python = environment / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", *wheels.glob("considerate-*.whl")], check=True)
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([python, newcomer.__file__], capture_output=True, text=True, cwd=tmp_path, env=clean)
    assert done.returncode == 0, done.stderr
    assert "get it as a data frame of pandas (needs pandas): not installed" in done.stdout
    frame = "from considerate import Recommender; Recommender(factors=2).fit({'user': [1, 2], 'item': [1, 2]})"
    done = subprocess.run(
        [python, "-c", f"{frame}.recommend_table([1], N=1).to_pandas()"], capture_output=True, text=True, env=clean
    )
    assert done.returncode != 0
    assert "pandas" in done.stderr
