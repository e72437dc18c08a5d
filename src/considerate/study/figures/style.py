"""Style of the figures: two widths, one look per score in all of them, and the axes.

The colours are Okabe and Ito's, for all kinds of colour vision. Lines and markers differ too, for grey prints. Each
colour has a partner for a dark page. Text is drawn as outlines in SVG and embedded in PDF, in a font of matplotlib, so
a figure looks the same everywhere, and the same results give the same bytes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.resources import as_file, files
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from considerate.errors import UsageError
from considerate.study.names import plain_name
from considerate.study.results import Results

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

    Draw = Callable[..., Figure | None]  # of the results, the looks and a sheet

Floats = NDArray[np.float64]

FEW = 10  # bins of fewer likes are only in the tables: their wide intervals would hide the others
IN_THE_TABLE = {"considerate, default"}  # not drawn: it is close to ours, and in the page's table
INK, SOFT, PALE = "#222222", "#767676", "#d9d9d9"
BLUE, VERMILION, ORANGE, GREEN, PURPLE, SKY = "#0072B2", "#D55E00", "#E69F00", "#009E73", "#CC79A7", "#56B4E9"
OTHERS = ("#882255", "#999933", "#332288", "#AA4466", "#117733", "#661100")  # Paul Tol's, for other scorers
_DARK_OTHERS = ("#d4679c", "#c9c960", "#9d8df0", "#e07f9c", "#5dbb7a", "#d08a70")
DARK = {  # each colour of a figure -> the same on a dark page
    "#ffffff": "#1d2125",
    "#e6e6e6": "#2f353b",
    PALE: "#454d55",
    SOFT: "#9aa2ab",
    INK: "#e8eaed",
    BLUE: "#4aa8e8",
    VERMILION: "#f28b46",
    ORANGE: "#f2b233",
    GREEN: "#35c79b",
    PURPLE: "#e39ac4",
    SKY: "#8fe0f0",
    **dict(zip(OTHERS, _DARK_OTHERS)),
}


@contextmanager
def paper_style() -> Iterator[None]:
    """Block in which figures are drawn and saved; the user's matplotlib settings do not count and do not change."""
    try:
        import matplotlib
    except ImportError as error:
        raise UsageError("the figures need matplotlib; install it: pip install 'considerate[study]'.") from error
    with as_file(files(__package__).joinpath("paper.mplstyle")) as path, matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(matplotlib.rc_params_from_file(path, use_default_template=False))
        yield


@dataclass(frozen=True)
class Sheet:
    """Paper of a figure: one column, or a page's width with panels side by side."""

    width: float  # inches
    wide: bool

    def figure(self, column: float, wide: float | None = None, labels: Sequence[str] = ()) -> Figure:
        """Make a figure with room for a legend of these labels above; `wide` is the height on a wide sheet."""
        from matplotlib.figure import Figure

        rows = -(-len(labels) // self.legend_columns(labels)) if labels else 0
        height = (wide if self.wide and wide is not None else column) + 0.145 * rows
        return Figure(figsize=(self.width, height), layout="constrained")

    def legend_columns(self, labels: Sequence[str]) -> int:
        return max(1, min(len(labels), int(self.width / (0.42 + 0.053 * max(map(len, labels))))))


COLUMN = Sheet(3.4, False)  # also legible on a phone
PAGE = Sheet(7.2, True)


# --- One look per name ---


@dataclass(frozen=True)
class Look:
    """Colour, line and marker of a score or a model in all figures."""

    colour: str
    line: Any = "-"
    marker: str = "o"
    hollow: bool = False
    width: float = 1.1
    layer: float = 3.0

    @property
    def face(self) -> str:
        return "#ffffff" if self.hollow else self.colour

    def drawn(self) -> dict[str, Any]:
        """Keywords of `Axes.plot`."""
        return {
            "color": self.colour,
            "linestyle": self.line,
            "marker": self.marker,
            "markerfacecolor": self.face,
            "linewidth": self.width,
            "zorder": self.layer,
        }


_FAMILIES: list[tuple[str, Look]] = [  # the first pattern found in a name decides
    (r"bpr.*pop|wbpr", Look(GREEN, (0, (4, 1.5)), "v")),
    (r"bpr", Look(ORANGE, (0, (4, 1.5)), "^")),
    (r"\bi?als\b", Look(PURPLE, (0, (5, 1, 1, 1)), "P")),
    (r"\bease\b", Look(SKY, (0, (5, 1, 1, 1)), "X")),
    (r"knob|considerate|\bours?\b", Look(INK, "-", "D", width=1.6, layer=4.0)),
    (r"\bdefault\b", Look(INK, "-", "D", width=1.6, layer=4.0)),
    (r"popularity x like", Look(VERMILION, "-", "s")),
    (r"^(most )?popular", Look(SOFT, (0, (1, 1)), "x")),
    (r"^pi$", Look(SOFT, (0, (1, 1)), "x")),
    (r"^w$", Look(GREEN, (0, (4, 1.5)), "v")),
    (r"^a$", Look(BLUE, "-", "o")),
    (r"^a \+ log w$", Look(INK, "-", "D", width=1.6, layer=4.0)),
    (r"paper", Look(BLUE, "-", "o")),
    (r"\blike", Look(BLUE, "-", "o")),
]
_VARIANT_LINES: list[Any] = ["-", (0, (3, 1)), (0, (1, 1)), (0, (6, 1, 1, 1))]
_OTHER_MARKERS = "<>phd*"


class Looks:
    """Looks of all names in a study.

    Names of one family have the same colour, and other lines and markers: `like, r = 1` is solid and filled,
    `like, r = 1/2` dashed and hollow, both blue.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._looks: dict[str, Look] = {}
        seen: dict[int, int] = {}
        others = 0
        for name in dict.fromkeys(names):
            plain_name = name.lower().replace("×", "x").replace("*", "x")
            family = next((i for i, (pattern, _) in enumerate(_FAMILIES) if re.search(pattern, plain_name)), None)
            if family is None:
                line, marker = _VARIANT_LINES[(others + 1) % 4], _OTHER_MARKERS[others % len(_OTHER_MARKERS)]
                self._looks[name] = Look(OTHERS[others % len(OTHERS)], line, marker)
                others += 1
                continue
            look, variant = _FAMILIES[family][1], seen.get(family, 0)
            seen[family] = variant + 1
            if variant:
                look = replace(look, line=_VARIANT_LINES[variant % 4], hollow=variant % 2 == 1, width=1.1)
            self._looks[name] = look

    @classmethod
    def of(cls, results: Results) -> Looks:
        named: list[Any] = [*results.comparisons, *results.times, *results.knobs, *results.traces]
        named += [*results.errors, *results.histograms, *results.reliability, *results.considered]
        peers = [each.peer for each in results.differences]
        return cls([rank.score for rank in results.ranks] + [each.name for each in named] + peers)

    def __getitem__(self, name: str) -> Look:
        return self._looks[name]


# --- Axes ---


def drawn_from(field: str, values: str) -> Callable[[Callable[..., Figure | None]], Draw]:
    """Decorate a function that draws rows: pass it those rows of a field of the results that have finite values."""

    def decorate(draw: Callable[..., Figure | None]) -> Draw:
        def of_results(results: Results, looks: Looks, sheet: Sheet = COLUMN) -> Figure | None:
            rows = [row for row in getattr(results, field) if any_finite(getattr(row, values))]
            return draw(rows, looks, sheet) if rows else None

        return of_results

    return decorate


def panel_grid(figure: Figure, models: Sequence[Any], columns: int, labels: Sequence[str], **shared: Any) -> list[Axes]:
    """Make a panel for each model, row by row, with (x, y) labels at the outer panels only."""
    panels = figure.subplots(-(-len(models) // columns), columns, squeeze=False, sharex=True, **shared)
    for place, ax in enumerate(panels.flat):
        ax.set_visible(place < len(models))
        if place % columns == 0:
            ax.set_ylabel(labels[1])
        if place + columns >= len(models):
            ax.set_xlabel(labels[0])
            ax.xaxis.set_tick_params(labelbottom=True)
    return list(panels.flat)


def plain(text: str) -> str:
    """Escape text from the data, so that matplotlib does not read it as mathematics."""
    return text.replace("$", r"\$")


def label(name: str) -> str:
    """Name of a score or a model in a figure."""
    return plain(plain_name(name))


def floats(values: Sequence[float]) -> Floats:
    return np.asarray(values, np.float64)


def enough(values: Sequence[float], count: Sequence[int]) -> Floats:
    """Replace values of small bins by NaN, unless all bins are small."""
    kept, few = floats(values).copy(), np.asarray(count) < FEW
    if not few.all():
        kept[few] = np.nan
    return kept


def any_finite(values: Any) -> bool:
    """Return whether a list, a list of lists or a dictionary of lists has a finite value."""
    return bool(np.isfinite(np.array(list(values.values()) if isinstance(values, dict) else values, np.float64)).any())


def bin_centre(low: Sequence[int], high: Sequence[int]) -> Floats:
    """Geometric centre of bins of degree; degree 0 is at 1/2 of a logarithmic axis."""
    centre: Floats = np.sqrt(np.maximum(floats(low), 0.5) * np.maximum(floats(high), 0.5))
    return centre


def degree_axis(ax: Axes, low: Sequence[int], label: str | None) -> None:
    """Make a logarithmic axis of degrees that can show degree 0."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter

    ax.set_xscale("log")
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: degree_text(0 if value == 0.5 else value)))
    ax.xaxis.set_minor_formatter(NullFormatter())
    left, right = ax.get_xlim()
    decades = 10.0 ** np.arange(8)
    ax.xaxis.set_minor_locator(FixedLocator(list(np.outer(decades, np.arange(2.0, 10.0)).ravel())))
    if min(low, default=1) == 0:
        ax.xaxis.set_major_locator(FixedLocator([0.5, *decades]))
        ax.set_xlim(0.36, right)
    elif right / left < 30:
        ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    else:
        ax.xaxis.set_major_locator(FixedLocator(list(decades)))
    if label:
        ax.set_xlabel(label)


def plain_log_axis(axis: Axis) -> None:
    """Label a logarithmic axis with numbers such as 0.4, 1 and 20; more of them for few decades."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1.0,) if high > 30 * low else (1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: degree_text(value)))
    axis.set_minor_formatter(NullFormatter())


def degree_text(value: float) -> str:
    if value >= 10_000 and math.log10(value) % 1 == 0:
        return f"$10^{{{round(math.log10(value))}}}$"
    return f"{value:g}"


def count_strip(ax: Axes, low: Sequence[int], high: Sequence[int], count: Sequence[int]) -> None:
    """Draw bars of the bins' counts on a logarithmic scale: estimates above a short bar are noisy."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    left = np.sqrt(np.maximum(floats(low) - 1, 0.5) * np.maximum(floats(low), 0.36))
    right = np.sqrt(np.maximum(floats(high), 0.5) * (floats(high) + 1))
    ax.bar(left, floats(count), right - left, align="edge", color=PALE, edgecolor="#ffffff", linewidth=0.4)
    ax.set_yscale("log")
    ax.set_ylim(0.7, max([*count, 10]) * 2)
    top = 10 ** int(math.log10(max([*count, 10])))
    ax.set_yticks([1, top])
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: degree_text(value)))
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.minorticks_off()
    ax.set_ylabel("likes")


def shared_legend(
    figure: Figure, sheet: Sheet, looks: Looks, names: Sequence[str], more: Sequence[Artist] = ()
) -> None:
    """Add one legend for all panels, above them."""
    from matplotlib.lines import Line2D

    unique = list(dict.fromkeys(names))
    handles = [*(Line2D([], [], label=label(name), **looks[name].drawn()) for name in unique), *more]
    columns = sheet.legend_columns([str(handle.get_label()) for handle in handles])
    figure.legend(handles=handles, loc="outside upper left", ncols=columns)


def banded_line(ax: Axes, row: Any, values: Sequence[float], look: Look, alpha: float, scale: float = 1.0) -> None:
    """Draw values by degree, with their intervals as a band."""
    x = bin_centre(row.low, row.high)
    low, high = (scale * enough([pair[end] for pair in row.interval], row.count) for end in (0, 1))
    ax.fill_between(x, low, high, color=look.colour, alpha=alpha, linewidth=0, zorder=look.layer - 1)
    ax.plot(x, scale * enough(values, row.count), **look.drawn())
