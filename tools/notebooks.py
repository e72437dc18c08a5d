"""Notebooks in MyST text (docs/notebooks): their cells, run in order, and the same as .ipynb.

python tools/notebooks.py docs/notebooks/*.md -o FOLDER     writes FOLDER/<name>.ipynb, without outputs
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CELL = re.compile(r"^```\{code-cell\}[^\n]*\n(.*?)^```\n?", re.M | re.S)
FRONT = re.compile(r"\A---\n.*?^---\n", re.M | re.S)


@dataclass(frozen=True)
class Cell:
    code: bool
    text: str
    line: int = 0  # of the file, where its text begins


def cells(text: str) -> list[Cell]:
    """Prose and code, in order."""
    front = FRONT.match(text)
    found, end = [], front.end() if front else 0
    for match in CELL.finditer(text):
        found += [
            Cell(False, text[end : match.start()].strip()),
            Cell(True, match[1], text[: match.start(1)].count("\n")),
        ]
        end = match.end()
    return [cell for cell in [*found, Cell(False, text[end:].strip())] if cell.text]


def run_cell(code: str, namespace: dict[str, Any], name: str = "<cell>", line: int = 0) -> str:
    """Run a cell as a notebook does; returns what it prints, and its last value where that is no plot."""
    tree = ast.parse("\n" * line + code, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    out = io.StringIO()
    with redirect_stdout(out):
        exec(compile(tree, name, "exec"), namespace)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), name, "eval"), namespace)
            if value is not None and not hasattr(value, "get_figure"):
                print(value)
    return out.getvalue()


def as_ipynb(text: str) -> str:
    """The notebook as JSON, without outputs."""
    rows = [
        {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": cell.text.rstrip()}
        if cell.code
        else {"cell_type": "markdown", "metadata": {}, "source": cell.text}
        for cell in cells(text)
    ]
    rows = [row | {"id": f"cell-{number}"} for number, row in enumerate(rows)]
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return json.dumps({"cells": rows, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebooks", nargs="+", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=Path())
    given = parser.parse_args()
    for path in given.notebooks:
        (given.output / f"{path.stem}.ipynb").write_text(as_ipynb(path.read_text()))


if __name__ == "__main__":
    main()
