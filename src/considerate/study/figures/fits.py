"""Figures of the graphs and the fit: degrees and their laws (fig. 1), a drawn H (fig. 3), the knob, the bound and
E[tau] by sweep, quality against time."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from considerate.study.figures.style import (
    BLUE,
    INK,
    SOFT,
    VERMILION,
    Floats,
    Look,
    Looks,
    Sheet,
    degree_axis,
    drawn_from,
    floats,
    panel_grid,
    plain,
    plain_log_axis,
    shared_legend,
)
from considerate.study.names import rounded
from considerate.study.results import PAPER_TAUS, Balance, Degrees, KnobCurve, TimeCurve, Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SIDE_COLOURS = {"users": BLUE, "items": VERMILION}
_GRAPH_WORDS = {"H drawn": "a drawn H"}
_CELLS_PER_DECADE = 36  # items on the same dot are drawn once, so a catalogue of 10^5 items gives a small file


@drawn_from("degrees", "density")
def draw_degrees(sides: list[Degrees], looks: Looks, sheet: Sheet) -> Figure | None:
    """Draw the degree distributions of users and items with the fitted laws (fig. 1)."""
    return _degree_panels([side for side in sides if side.graph == "G"], sheet)


@drawn_from("degrees", "density")
def draw_hidden_degrees(sides: list[Degrees], looks: Looks, sheet: Sheet) -> Figure | None:
    """Draw the degrees of a drawn H with the fitted laws, and the degrees of G."""
    drawn = {side.side for side in sides if side.graph != "G"}
    return _degree_panels([side for side in sides if side.side in drawn], sheet, law_of_g=False)


def _degree_panels(sides: list[Degrees], sheet: Sheet, law_of_g: bool = True) -> Figure | None:
    """Draw a panel for the users and one for the items, with the degrees of one or more graphs."""
    if not sides:
        return None
    names = list(dict.fromkeys(side.side for side in sides))
    figure = sheet.figure(0.35 + 1.6 * len(names), 2.5)
    shape = (1, len(names)) if sheet.wide else (len(names), 1)
    panels = dict(zip(names, figure.subplots(*shape, squeeze=False).flat))
    for side in sides:
        ax, of_g = panels[side.side], side.graph == "G"
        colour = _SIDE_COLOURS[side.side] if of_g else INK
        face, text = "#ffffff" if of_g else colour, f"{side.side} of {_GRAPH_WORDS.get(side.graph, side.graph)}"
        look: Any = {"color": colour, "markerfacecolor": face, "markersize": 3.2, "label": plain(text), "zorder": 3}
        ax.plot(side.centre, side.density, "o" if of_g else "^", **look)
        if law_of_g or not of_g:
            ax.plot(side.law_degree, side.law_density, color=INK, linewidth=1.0, label=_law(side.law), zorder=4)
    for name, ax in panels.items():
        ax.set_yscale("log")
        _few_decades(ax)
        degree_axis(ax, [1], None)
        ax.set_ylabel(f"{name} per degree")
        ax.legend(loc="lower left")
        if sheet.wide or name == names[-1]:
            ax.set_xlabel("degree")
    return figure


def _law(words: str) -> str:
    """Format a law, with three-digit numbers and a raised exponent in place of d^-1.4."""
    return re.sub(r"d\^(-?[\d.]+)", r"$d^{\1}$", plain(rounded(words.replace("..", " to "))))


def _few_decades(ax: Axes) -> None:
    """Use labels such as 0.5 and 20 instead of powers of ten if the axis spans less than two decades."""
    low, high = ax.get_ylim()
    if high < 100 * low:
        plain_log_axis(ax.yaxis)


@drawn_from("balance", "degree")
def draw_balance(balances: list[Balance], looks: Looks, sheet: Sheet) -> Figure:
    """Draw positives to negatives per item against the item's degree (fig. 3)."""
    columns = min(4 if sheet.wide else 2, len(balances))
    figure = sheet.figure(0.5 + 1.35 * math.ceil(len(balances) / columns))
    panels = panel_grid(figure, balances, columns, ("item's degree", "positives / negatives"), sharey=True)
    low, high = _ratio_limits(balances)
    for ax, balance in zip(panels, balances):
        _balance_panel(ax, balance, low, high)
    return figure


def _balance_panel(ax: Axes, balance: Balance, low: float, high: float) -> None:
    degree, negatives = floats(balance.degree), floats(balance.negatives)
    some = negatives > 0
    ax.set_yscale("log")
    x, y = _distinct(degree[some], degree[some] / negatives[some])
    ax.plot(x, y, "o", color=BLUE, alpha=0.35, markersize=1.3, markeredgewidth=0, zorder=2)
    x, y = _distinct(degree[~some], np.full((~some).sum(), high / 1.12))
    ax.plot(x, y, "^", color=BLUE, markersize=2, markeredgewidth=0, zorder=2)
    ax.axhline(1, color=SOFT, linewidth=0.8, linestyle=(0, (3, 2)), zorder=1)
    ax.plot(balance.bin_centre, balance.bin_ratio, "s-", color=VERMILION, markersize=2.6, linewidth=1.1, zorder=4)
    ax.set_ylim(low, high)
    _few_decades(ax)
    ax.set_title(plain(balance.name))
    degree_axis(ax, [1], None)


def _ratio_limits(balances: list[Balance]) -> tuple[float, float]:
    parts = []
    for balance in balances:
        degree, negatives = floats(balance.degree), floats(balance.negatives)
        parts.append(degree[negatives > 0] / negatives[negatives > 0])
        ratio = floats(balance.bin_ratio)
        parts.append(ratio[np.isfinite(ratio) & (ratio > 0)])
    ratios = np.concatenate([*parts, [0.5, 2.0]])
    return float(ratios.min() / 1.3), float(ratios.max() * 1.6)


def _distinct(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Keep one point per small cell of a logarithmic plane."""
    cells = np.round(np.log10(np.stack([x, y])) * _CELLS_PER_DECADE)
    _, first = np.unique(cells, axis=1, return_index=True)
    first.sort()
    return x[first], y[first]


_TAU_WORDS = {"user": r"$\tau_u$", "item": r"$\tau_v$", "item_bias": r"$\tau_{b_v}$", "user_bias": r"$\tau_{b_u}$"}
_KNOB_TITLES = {  # field of the curve -> title
    "mean_rank": "mean rank (dashed: tail)",
    "recall": "Recall@20",
    "coverage": "catalogue in lists (%)",
    "popularity": "mean degree in lists",
}
_TAU_MARKERS = {"user": "o", "item": "s", "item_bias": "^", "user_bias": "v"}


@drawn_from("knobs", "mean_rank")
def draw_knobs(knobs: list[KnobCurve], looks: Looks, sheet: Sheet) -> Figure:
    """Draw mean rank, tail rank, Recall@20, coverage and popularity of the lists against the popularity weight."""
    from matplotlib.lines import Line2D

    labels = [f"{knob.name}: {knob.chosen:.2f} chosen" for knob in knobs]
    figure = sheet.figure(3.35, 2.0, labels)
    panels = figure.subplots(*((1, 4) if sheet.wide else (2, 2)), sharex=True, squeeze=False)
    for ax, (name, title) in zip(panels.flat, _KNOB_TITLES.items()):
        for knob in knobs:
            _knob_line(ax, knob, (100 if name == "coverage" else 1) * floats(getattr(knob, name)), looks[knob.name])
            if name == "mean_rank":
                _knob_line(ax, knob, floats(knob.tail_rank), looks[knob.name], (0, (3, 1.2)))
        ax.set_title(title)
    for ax in panels.flat[2:]:
        ax.set_ylim(bottom=0)
    for ax in panels[-1]:
        ax.set_xlabel("popularity weight")
    handles = []
    for knob, text in zip(knobs, labels):
        style = {**looks[knob.name].drawn(), "linestyle": "-", "linewidth": 1.1}
        handles.append(Line2D([], [], label=plain(text), **style))
    figure.legend(handles=handles, loc="outside upper left", ncols=sheet.legend_columns(labels))
    return figure


def _knob_line(ax: Axes, knob: KnobCurve, values: Floats, look: Look, line: Any = "-") -> None:
    ax.plot(knob.knob, values, color=look.colour, linestyle=line, linewidth=1.1)
    chosen = np.interp(knob.chosen, knob.knob, values)
    marker: Any = {"color": look.colour, "markerfacecolor": look.face, "markersize": 4.5, "zorder": 5, "clip_on": False}
    ax.plot([knob.chosen], [chosen], look.marker, **marker)


@drawn_from("traces", "bound")
def draw_traces(traces: list[Trace], looks: Looks, sheet: Sheet) -> Figure:
    """Draw the bound, the precisions, the spread of the logits and the rank on validation, by sweep."""
    from matplotlib.ticker import MaxNLocator

    names = [trace.name for trace in traces]
    figure = sheet.figure(4.1, 3.6, names)
    if sheet.wide:
        (bound, tau), (spread, rank) = figure.subplots(2, 2)
    else:
        bound, tau, spread, rank = figure.subplot_mosaic("aa;bb;cd", height_ratios=[1, 1.15, 1]).values()
    for trace in traces:
        look = looks[trace.name]
        line: Any = {"color": look.colour, "linestyle": look.line, "linewidth": 1.1}
        bound.plot(trace.sweep, _below_best(trace), **line)
        spread.plot(trace.sweep, trace.spread, **line)
        rank.plot(trace.sweep, trace.rank, **line)
        for kind, values in trace.taus.items():
            every = max(1, len(values) // 6)
            marks: Any = {"marker": _TAU_MARKERS.get(kind, "o"), "markevery": (every // 2, every), "markersize": 3}
            tau.plot(trace.sweep, values, **{**line, "linewidth": 0.9}, **marks, markerfacecolor="#ffffff")
    _bound_limits(bound, traces)
    bound.set_title("bound (% below its own best)")
    tau.set_yscale("log")
    _paper_taus(tau, traces)
    plain_log_axis(tau.yaxis)
    spread.set_title(r"spread $\sqrt{K/(\tau_u \tau_v)}$")
    spread.set_ylim(bottom=0)
    rank.set_title("mean rank on validation")
    for ax in (bound, tau, spread, rank):
        ax.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 5, 10], integer=True))
    for ax in (spread, rank):
        ax.set_xlabel("sweep")
    if not sheet.wide:
        bound.xaxis.set_tick_params(labelbottom=False)
    shared_legend(figure, sheet, looks, names)
    return figure


def _paper_taus(ax: Axes, traces: list[Trace]) -> None:
    """Add a legend of the markers, and the paper's values as filled markers at the right edge."""
    from matplotlib.lines import Line2D

    edge: Any = {"transform": ax.get_yaxis_transform(), "clip_on": False, "zorder": 5, "color": INK, "markersize": 4}
    handles = []
    for kind in dict.fromkeys(kind for trace in traces for kind in trace.taus):
        marker, text = _TAU_MARKERS.get(kind, "o"), _TAU_WORDS.get(kind, plain(kind))
        if kind in PAPER_TAUS:
            ax.plot([1.0], [PAPER_TAUS[kind]], marker, **edge)
            text += f" (paper: {PAPER_TAUS[kind]})"
        handles.append(Line2D([], [], color=SOFT, marker=marker, linestyle="", markerfacecolor="#ffffff", label=text))
    tight: Any = {"handlelength": 1.0, "handletextpad": 0.3, "columnspacing": 0.8, "borderaxespad": 0.0}
    ax.legend(handles=handles, ncols=len(handles), loc="lower left", bbox_to_anchor=(-0.02, 1.0), **tight)
    ax.set_ylabel(r"E[$\tau$]")


def _below_best(trace: Trace) -> Floats:
    """Bound in per cent below its best; bounds of different settings have different scales."""
    bound = floats(trace.bound)
    best = float(np.nanmax(bound))
    return 100 * (bound - best) / max(abs(best), 1e-12)


def _bound_limits(ax: Axes, traces: list[Trace]) -> None:
    """Show the rise after the first sweeps; the random start may lie far below."""
    low = min(float(np.nanmin(_below_best(trace)[min(2, len(trace.bound) // 4) :])) for trace in traces)
    ax.set_ylim(1.15 * min(low, -1e-3), -0.08 * min(low, -1e-3))


@drawn_from("times", "mean_rank")
def draw_times(times: list[TimeCurve], looks: Looks, sheet: Sheet) -> Figure:
    """Draw mean S_rank and Recall@20 against seconds of fitting, for every scorer."""
    names = [time.name for time in times]
    figure = sheet.figure(3.5, 2.3, names)
    rank, recall = figure.subplots(*((1, 2) if sheet.wide else (2, 1)), sharex=True)
    first = max(min(time.seconds) for time in times)
    for time in times:
        style, at_once = looks[time.name].drawn(), max(time.seconds) < 0.02 * first
        for ax, values in ((rank, time.mean_rank), (recall, time.recall)):
            if at_once:  # popularity needs no fit: a level to compare with
                ax.axhline(values[-1], **{**style, "marker": ""})
            else:
                ax.plot(np.maximum(floats(time.seconds), 1e-3), values, **style)
    rank.set_xscale("log")
    plain_log_axis(rank.xaxis)
    rank.set_ylabel("mean rank")
    recall.set_ylabel("Recall@20")
    for ax in (rank, recall) if sheet.wide else (recall,):
        ax.set_xlabel("seconds of fitting")
    shared_legend(figure, sheet, looks, names)
    return figure
