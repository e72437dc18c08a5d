"""Figures of p(like): the error on held-out likes (fig. 4), its histograms (fig. 5), and whether it is honest."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np

from considerate.study.figures.style import (
    COLUMN,
    INK,
    PALE,
    SOFT,
    Floats,
    Look,
    Looks,
    any_finite,
    band,
    bin_centre,
    count_strip,
    degree_axis,
    enough,
    floats,
    new_figure,
    plain,
    shared_legend,
)
from considerate.study.results import LikeHistogram, Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh
    from matplotlib.figure import Figure

PAPER_ERROR = (16.0, 19.0)  # per cent, from ten to twenty items on


def draw_errors(results: Results, looks: Looks) -> Figure | None:
    """Classification error on held-out likes by the user's degree (fig. 4)."""
    errors = [error for error in results.errors if any_finite(error.error)]
    if not errors:
        return None
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    figure = new_figure(2.85)
    top, strip = figure.subplots(2, 1, sharex=True, height_ratios=[4.2, 1])
    for error in errors:
        look, x = looks[error.name], bin_centre(error.low, error.high)
        low, high = (enough([pair[end] for pair in error.interval], error.count) for end in (0, 1))
        band(top, x, 100 * low, 100 * high, look)
        top.plot(x, 100 * enough(error.error, error.count), **look.drawn())
    count_strip(strip, errors[0].low, errors[0].high, errors[0].count)
    top.axhspan(*PAPER_ERROR, color=PALE, alpha=0.5, linewidth=0, zorder=0)
    top.axhline(50, color=SOFT, linewidth=0.8, linestyle=(0, (3, 2)), zorder=1)
    top.set_ylim(0, max(56.0, top.get_ylim()[1]))
    top.set_ylabel("held-out likes with\np(like) < 1/2 (%)")
    degree_axis(strip, errors[0].low, "user's degree")
    said = Patch(facecolor=PALE, alpha=0.5, linewidth=0, label="16-19 %, as the paper says")
    coin = Line2D([], [], color=SOFT, linewidth=0.8, linestyle=(0, (3, 2)), label="a coin")
    shared_legend(figure, looks, [error.name for error in errors], [said, coin])
    return figure


def draw_histograms(results: Results, looks: Looks) -> Figure | None:
    """Histograms of p(like) of held-out likes, a row per user degree (fig. 5)."""
    models = [model for model in results.histograms if any_finite(*model.share)]
    if not models:
        return None
    columns = min(3, len(models))
    rows = -(-len(models) // columns)
    figure = new_figure(0.6 + 2.2 * rows, COLUMN)
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True)
    shares = [_shares(model) for model in models]
    top = float(np.nanquantile(np.concatenate([share.ravel() for share in shares]), 0.995))
    shown: Any = None
    for place, ax in enumerate(panels.flat):
        if place >= len(models):
            ax.set_visible(False)
            continue
        shown = _heat(ax, models[place], shares[place], top)
        ax.set_title("\n".join(wrap(plain(models[place].name), 28 // columns + 4)))
        if place % columns == 0:
            ax.set_ylabel("user's degree")
        if place + columns >= len(models):
            ax.set_xlabel("p(like)")
            ax.xaxis.set_tick_params(labelbottom=True)
    bar: Any = figure.colorbar(
        shown, ax=list(panels.flat), orientation="horizontal", aspect=40, pad=0.02, extend="max", fraction=0.05
    )
    bar.set_label("share of the row's held-out likes (%)")
    bar.outline.set_visible(False)
    bar.solids.set(rasterized=False, edgecolor="face", linewidth=0.2)
    return figure


def _shares(model: LikeHistogram) -> Floats:
    """[rows, cells] in per cent, rows of few likes blank."""
    shares: Floats = 100 * floats([value for row in model.share for value in row]).reshape(len(model.share), -1)
    shares[np.isnan(enough([0.0] * len(model.count), model.count))] = np.nan
    return shares


def _heat(ax: Axes, model: LikeHistogram, share: Floats, top: float) -> QuadMesh:
    edges, rows = floats(model.edges), np.arange(len(model.share) + 1) - 0.5
    cells = ax.pcolormesh(
        edges, rows, np.ma.masked_invalid(share), cmap="Blues", vmin=0, vmax=top, edgecolors="face", linewidth=0.2
    )
    middle = 0.5 * (edges[1:] + edges[:-1])
    mean = share @ middle / np.maximum(share.sum(1), 1e-12)
    mean[share.sum(1) <= 0] = np.nan
    ax.plot(mean, np.arange(len(share)), color=INK, linewidth=1.0)
    ax.axvline(0.5, color=SOFT, linewidth=0.8, linestyle=(0, (3, 2)))
    ax.grid(False)
    ax.set_xlim(edges[0], edges[-1])
    ax.set_xticks([0, 0.5, 1], labels=["0", "0.5", "1"])
    last = len(model.low) - 1
    ticks = list(range(last + 1)) if last < 16 else sorted({0, 4, *range(9, last, 10), last})
    ax.set_yticks(ticks, labels=[_row_label(model.low[row], model.high[row]) for row in ticks])
    return cells


def _row_label(low: int, high: int) -> str:
    return f"{low}" if low == high else f"{low}-{high}"


def draw_reliability(results: Results, looks: Looks) -> Figure | None:
    """p(like) against the share that did like, where both are known; how many pairs each bin holds, below."""
    tables = [table for table in results.reliability if any_finite(table.observed)]
    if not tables:
        return None
    figure = new_figure(3.55 + 0.15 * len(tables))
    top, strip = figure.subplots(2, 1, sharex=True, height_ratios=[4.6, 1])
    top.plot([0, 1], [0, 1], color=SOFT, linewidth=0.8, linestyle=(0, (3, 2)), zorder=1)
    handles = []
    for table in tables:
        look = looks[table.name]
        label = f"{table.name}: error {table.calibration_error:.3f}"
        observed = enough(table.observed, table.count)
        handles += top.plot(table.predicted, observed, label=plain(label), **look.drawn())
        _steps(strip, table.edges, table.count, look)
    top.set_xlim(0, 1)
    top.set_ylim(0, 1)
    top.set_ylabel("share that liked")
    strip.set_yscale("log")
    strip.set_ylabel("pairs")
    strip.set_xlabel("predicted p(like | considered)")
    figure.legend(handles=handles, loc="outside upper left", ncols=1)
    return figure


def _steps(ax: Axes, edges: list[float], count: list[int], look: Look) -> None:
    ax.stairs(
        np.maximum(floats(count), 0.7), edges, color=look.colour, linestyle=look.line, linewidth=1.0, baseline=None
    )
