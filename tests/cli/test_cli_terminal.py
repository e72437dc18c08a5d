"""What reaches a terminal or a pipe: no control characters of the data, no traceback, something at any width."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from considerate.cli import app
from tests.helpers.likes import planted

EVIL = "\x1b]0;owned\x07\x1b[31mred\x9b1m\x7f"  # sets the title, turns red; 0x9b begins a sequence too
RAW = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
PROGRAM = "from considerate.cli import main; main()"
INTERRUPTED_IMPORT = """
import os, signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == MODULE:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
"""


def run(*arguments: object, columns: int = 200) -> Any:
    runner = CliRunner(env={"COLUMNS": str(columns), "TERM": "dumb"})
    return runner.invoke(app, [str(argument) for argument in arguments], prog_name="considerate")


def program(code: str, *arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *(str(argument) for argument in arguments)]
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, **options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder, a file, ids and titles whose names hold escape sequences, and a model of them."""
    folder = tmp_path_factory.mktemp(f"x{EVIL.replace('/', '')}")
    users, items = planted(40, 12, seed=1).nonzero()
    pq.write_table(
        pa.table({"user": [f"u{user}{EVIL}" for user in users], "item": [f"i{item}{EVIL}" for item in items]}),
        folder / "likes.parquet",
    )
    titles = pa.table({"item": [f"i{n}{EVIL}" for n in range(12)], "title": [f"Film {n} {EVIL}" for n in range(12)]})
    pq.write_table(titles, folder / "titles.parquet")
    result = run("fit", *fit_options(folder), "-o", folder / "model.safetensors")
    assert result.exit_code == 0, result.output
    return folder


def fit_options(folder: Path) -> list[object]:
    return [folder / "likes.parquet", "--titles", folder / "titles.parquet", "--factors", 2, "--sweeps", 3]


def test_no_control_character_of_the_data_reaches_the_terminal(folder: Path, tmp_path: Path) -> None:
    model, user, item = folder / "model.safetensors", f"u1{EVIL}", f"i1{EVIL}"
    test = folder / "test.parquet"
    pq.write_table(pa.table({"user": [f"u{n}{EVIL}" for n in range(40)], "item": [item] * 40}), test)
    commands: list[tuple[int, list[object]]] = [
        (0, ["fit", *fit_options(folder), "-o", folder / "model.safetensors"]),
        (0, ["recommend", model, user, "--explain"]),
        (0, ["recommend", model, "--items", item, "--explain"]),
        (0, ["recommend", model, user, "-o", folder / "out.csv"]),
        (0, ["recommend", model, "--export-vectors", folder / "out.parquet"]),
        (0, ["inspect", model]),
        (0, ["inspect", folder / "likes.parquet", "--hidden"]),
        (0, ["evaluate", model, test]),
        (0, ["simulate", "--users", 50, "--items", 20, "-o", folder / "simulated.csv"]),
        (2, ["recommend", model, f"nobody{EVIL}"]),
        (2, ["recommend", folder / f"none{EVIL}", 1]),
        (2, ["inspect", folder / "likes.parquet", "--user-column", EVIL]),
        (2, [f"comm{EVIL}and"]),
        (2, ["recommend", model, f"--opt{EVIL}ion"]),
    ]
    for code, arguments in commands:
        result = run(*arguments)
        assert result.exit_code == code, result.output
        assert "red" in result.output or arguments[0] == "evaluate", arguments  # the text itself is shown
        assert not RAW.search(result.output), arguments


def test_brackets_are_no_markup(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "a[bold]b[" / "x].parquet"
    path.parent.mkdir()
    path.write_bytes((folder / "likes.parquet").read_bytes())
    result = run("inspect", path)
    assert result.exit_code == 0
    assert "a[bold]b[/x].parquet" in result.stdout


def test_json_escapes_control_characters(folder: Path) -> None:
    result = run("recommend", folder / "model.safetensors", f"u1{EVIL}", "-n", 1, "--json")
    assert not RAW.search(result.stdout)
    assert json.loads(result.stdout)[0]["user"] == f"u1{EVIL}"


@pytest.mark.parametrize(("arguments", "code"), [(["--json"], 141), ([], 141), (["--help"], 1)])
def test_an_output_that_nobody_reads_ends_quietly(folder: Path, arguments: list[str], code: int) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = program(PROGRAM, "inspect", folder / "model.safetensors", *arguments, stdout=writer)
    finally:
        os.close(writer)
    assert done.stderr == ""
    assert done.returncode == code  # 141 as of a program that SIGPIPE ended; rich ends the help itself


@pytest.mark.parametrize("columns", [0, 20, 80])
def test_there_is_an_answer_at_any_width(folder: Path, columns: int) -> None:
    for arguments in (["inspect", folder / "model.safetensors"], ["--help"], ["recommend", "--help"]):
        result = run(*arguments, columns=columns)
        assert result.exit_code == 0, result.output
        assert len(result.stdout.split()) > 20
        if columns >= 80:
            assert max(len(line) for line in result.stdout.splitlines()[1:]) <= 80  # the first is a path


@pytest.mark.parametrize("module", ["typer", "considerate.cli.fit", "numpy", "considerate.recommender"])
def test_ctrl_c_while_modules_are_imported_is_one_line(folder: Path, tmp_path: Path, module: str) -> None:
    code = INTERRUPTED_IMPORT.replace("MODULE", repr(module)) + PROGRAM
    done = program(code, "fit", *fit_options(folder), "-o", tmp_path / "m", stdout=subprocess.PIPE)
    assert done.returncode == 130, done.stderr
    assert done.stderr == "considerate: interrupted; no file was left half-written.\n"
    assert done.stdout == ""
    assert os.listdir(tmp_path) == []


def test_ctrl_c_while_options_are_parsed_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("considerate.cli.program.Program.parse_args", interrupted)
    result = run("fit")
    assert result.exit_code == 130
    assert result.stderr == "considerate: interrupted; no file was left half-written.\n"
