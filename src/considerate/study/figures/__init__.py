"""Results to figures, each as SVG and PDF.

A figure is drawn only where the results have something to draw. matplotlib is imported when a figure is drawn.
"""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from considerate.storage.files import atomic_write
from considerate.study.figures import fits, held_out
from considerate.study.figures.style import Looks, paper_style
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
    """Write `<name>.svg` and `<name>.pdf` of every figure that has data; name -> SVG, in the order of the page.

    Figures of an earlier study that have no data now are removed. The same results and matplotlib give the same bytes.
    UsageError where matplotlib is not installed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    looks = Looks.of(results)
    written: dict[str, Path] = {}
    with paper_style():
        from matplotlib.backends.backend_pdf import FigureCanvasPdf
        from matplotlib.backends.backend_svg import FigureCanvasSVG

        for name, draw in DRAWN.items():
            files = [folder / f"{name}.{kind}" for kind in ("svg", "pdf")]
            figure = draw(results, looks)
            if figure is None:
                for path in files:
                    path.unlink(missing_ok=True)
                continue
            figure.draw_without_rendering()
            figure.set_layout_engine("none")  # laid out once, for both files
            printed: list[Any] = [FigureCanvasSVG(figure).print_svg, FigureCanvasPdf(figure).print_pdf]
            for path, save, date in zip(files, printed, ("Date", "CreationDate")):
                buffer = BytesIO()
                save(buffer, metadata={date: None, "Creator": "considerate"})  # no dates
                with atomic_write(path) as file:
                    file.write(buffer.getvalue())
            written[name] = files[0]
    return written
