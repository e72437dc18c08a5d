"""Commands of the shell: run in this process, or as a program."""

from __future__ import annotations

import json
import sys
from typing import Any

from typer.testing import CliRunner

from considerate.cli import app

PROGRAM = [sys.executable, "-c", "from considerate.cli import main; main()"]  # where the process is the point


def run(*arguments: object, columns: int = 200) -> Any:
    return CliRunner(env={"COLUMNS": str(columns)}).invoke(
        app, [str(one) for one in arguments], prog_name="considerate"
    )


def answer(*arguments: object) -> Any:
    """What a command that works prints as JSON."""
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)
