"""The notebooks of docs/notebooks run from top to bottom, on simulated data and, where it is, on MovieLens-1M."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from notebooks import as_ipynb, cells, run_cell
from tests.helpers.paths import ROOT

FOLDER = ROOT / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.md"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("error::UserWarning")
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CONSIDERATE_DATA", raising=False)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    printed = [run_cell(cell.text, namespace, str(path), cell.line) for cell in cells(path.read_text()) if cell.code]
    assert sum(map(bool, printed)) >= 3
    assert len(pyplot.get_fignums()) >= 2
    pyplot.close("all")


def test_cells_and_what_they_print() -> None:
    text = "---\na: b\n---\n\n# Title\n\n```{code-cell} ipython3\nx = 2\nprint(x)\nx + 1\n```\n\nMore.\n"
    prose, code, more = cells(text)
    assert (prose.text, more.text, code.code, code.line) == ("# Title", "More.", True, 7)
    assert run_cell(code.text, {}) == "2\n3\n"
    with pytest.raises(ZeroDivisionError) as error:
        run_cell("1 / 0", {}, "page.md", 6)
    assert error.traceback[-1].lineno == 6  # counted from 0: line 7 of the page


def test_the_notebook_for_jupyter_has_the_same_cells() -> None:
    notebook = json.loads(as_ipynb(NOTEBOOKS[0].read_text()))
    kinds = ["code" if cell.code else "markdown" for cell in cells(NOTEBOOKS[0].read_text())]
    assert [cell["cell_type"] for cell in notebook["cells"]] == kinds
    assert all(cell["outputs"] == [] for cell in notebook["cells"] if cell["cell_type"] == "code")
    assert notebook["nbformat"] == 4
