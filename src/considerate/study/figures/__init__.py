"""Results to figures, each as SVG and PDF.

A figure is drawn only where the results have something to draw. matplotlib is imported when a figure is drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from considerate.storage.files import atomic_write
from considerate.study.figures.fits import draw_knobs, draw_times, draw_traces
from considerate.study.figures.graphs import draw_balance, draw_degrees, draw_hidden_degrees
from considerate.study.figures.likes import draw_errors, draw_histograms, draw_reliability
from considerate.study.figures.paired import draw_differences, draw_differences_by_degree
from considerate.study.figures.ranks import draw_mean_ranks, draw_percentiles
from considerate.study.figures.style import Looks, paper_style
from considerate.study.results import Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DRAWN: dict[str, Callable[[Results, Looks], Figure | None]] = {
    "differences": draw_differences,
    "differences-by-degree": draw_differences_by_degree,
    "mean-ranks": draw_mean_ranks,
    "percentiles": draw_percentiles,
    "errors": draw_errors,
    "histograms": draw_histograms,
    "reliability": draw_reliability,
    "knob": draw_knobs,
    "times": draw_times,
    "traces": draw_traces,
    "degrees": draw_degrees,
    "balance": draw_balance,
    "hidden-degrees": draw_hidden_degrees,
}
_METADATA: dict[str, dict[str, Any]] = {  # no dates: the same results give the same bytes
    "svg": {"Date": None, "Creator": "considerate"},
    "pdf": {"CreationDate": None, "Creator": "considerate"},
}


def draw_all(results: Results, folder: Path) -> dict[str, Path]:
    """Write `<name>.svg` and `<name>.pdf` of every figure that has data; name -> SVG, in the order of the page.

    The same results and matplotlib give the same bytes. UsageError where matplotlib is not installed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    looks = Looks.of(results)
    written: dict[str, Path] = {}
    with paper_style():
        for name, draw in DRAWN.items():
            figure = draw(results, looks)
            if figure is None:
                _forget(folder, name)
            else:
                figure.draw_without_rendering()
                figure.set_layout_engine("none")  # laid out once, for both files
                _save(figure, folder, name)
                written[name] = folder / f"{name}.svg"
    return written


def _forget(folder: Path, name: str) -> None:
    """What an earlier study drew there is not of these results."""
    for kind in _METADATA:
        (folder / f"{name}.{kind}").unlink(missing_ok=True)


def _save(figure: Figure, folder: Path, name: str) -> None:
    for kind, metadata in _METADATA.items():
        buffer = BytesIO()
        figure.savefig(buffer, format=kind, metadata=metadata)
        with atomic_write(folder / f"{name}.{kind}") as file:
            file.write(buffer.getvalue())
