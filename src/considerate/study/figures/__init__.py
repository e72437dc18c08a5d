"""Figures of a study, each as SVG and PDF of one column, and as SVG of a page's width.

A figure without data is not drawn. matplotlib is imported when a figure is drawn.
"""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from considerate.storage.files import atomic_write
from considerate.study.figures import fits, held_out
from considerate.study.figures.style import COLUMN, PAGE, Looks, paper_style
from considerate.study.results import Results

if TYPE_CHECKING:
    from considerate.study.figures.style import Draw

DRAWN: dict[str, Draw] = {
    "differences": held_out.draw_differences,
    "differences-by-degree": held_out.draw_differences_by_degree,
    "mean-ranks": held_out.draw_mean_ranks,
    "percentiles": held_out.draw_percentiles,
    "errors": held_out.draw_errors,
    "histograms": held_out.draw_histograms,
    "reliability": held_out.draw_reliability,
    "considered": held_out.draw_considered,
    "knob": fits.draw_knobs,
    "times": fits.draw_times,
    "traces": fits.draw_traces,
    "degrees": fits.draw_degrees,
    "balance": fits.draw_balance,
    "hidden-degrees": fits.draw_hidden_degrees,
}


def draw_all(results: Results, folder: Path) -> dict[str, Path]:
    """Write `<name>.svg`, `<name>.pdf` and `<name>-wide.svg` of every figure with data.

    Return name -> SVG, in the order of the page. Remove figures of an earlier study that have no data now. The same
    results and matplotlib give the same bytes. Raise UsageError without matplotlib.
    """
    folder.mkdir(parents=True, exist_ok=True)
    looks = Looks.of(results)
    written: dict[str, Path] = {}
    with paper_style():
        from matplotlib.backends.backend_pdf import FigureCanvasPdf
        from matplotlib.backends.backend_svg import FigureCanvasSVG

        svg, pdf = (FigureCanvasSVG, "print_svg", "Date"), (FigureCanvasPdf, "print_pdf", "CreationDate")
        formats = ((COLUMN, ".svg", svg), (COLUMN, ".pdf", pdf), (PAGE, "-wide.svg", svg))
        for name, draw in DRAWN.items():
            figures = {sheet: draw(results, looks, sheet) for sheet in (COLUMN, PAGE)}
            for drawn in filter(None, figures.values()):  # the layout is the same in all files
                drawn.draw_without_rendering()
                drawn.set_layout_engine("none")
            for sheet, end, (canvas, method, date) in formats:
                path, figure = folder / f"{name}{end}", figures[sheet]
                if figure is None:
                    path.unlink(missing_ok=True)
                    continue
                buffer = BytesIO()
                save: Any = getattr(canvas(figure), method)
                save(buffer, metadata={date: None, "Creator": "considerate"})  # no dates
                with atomic_write(path) as file:
                    file.write(buffer.getvalue())
                written.setdefault(name, path)
    return written
