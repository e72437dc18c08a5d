"""Figures of the graphs themselves: degrees and their laws (fig. 1), a drawn H (and fig. 3)."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

import numpy as np

from considerate.study.figures.style import (
    BLUE,
    COLUMN,
    INK,
    SOFT,
    VERMILION,
    Floats,
    Looks,
    any_finite,
    degree_axis,
    floats,
    new_figure,
    plain,
    plain_log_axis,
)
from considerate.study.results import Balance, Degrees, Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_GRAPH_WORDS = {"H drawn": "a drawn H"}
_CELLS_PER_DECADE = 36  # items that fall on the same dot are drawn once: a catalogue of 10^5 stays a small file


def draw_degrees(results: Results, looks: Looks) -> Figure | None:
    """Degree distributions of users and items with the fitted laws (fig. 1)."""
    sides = [side for side in results.degrees if side.graph == "G" and any_finite(side.density)]
    if not sides:
        return None
    figure = new_figure(0.35 + 1.6 * len(sides))
    panels = figure.subplots(len(sides), 1, squeeze=False)[:, 0]
    for ax, side in zip(panels, sides):
        colour = _side_colour(side)
        _points(ax, side, colour, "o", f"{side.side} of G", filled=False)
        ax.plot(side.law_degree, side.law_density, color=INK, linewidth=1.0, label=_law(side.law), zorder=4)
        _loglog(ax, side)
        ax.legend(loc="lower left")
    panels[-1].set_xlabel("degree")
    return figure


def draw_hidden_degrees(results: Results, looks: Looks) -> Figure | None:
    """Degrees of a drawn H beside those of G."""
    drawn = [side for side in results.degrees if side.graph != "G" and any_finite(side.density)]
    if not drawn:
        return None
    names = list(dict.fromkeys(side.side for side in drawn))
    figure = new_figure(0.35 + 1.6 * len(names))
    panels = figure.subplots(len(names), 1, squeeze=False)[:, 0]
    for ax, name in zip(panels, names):
        markers = iter("^vDs")
        for side in results.degrees:
            if side.side != name or not any_finite(side.density):
                continue
            if side.graph == "G":
                _points(ax, side, _side_colour(side), "o", f"{name} of G", filled=False)
            else:
                _points(
                    ax,
                    side,
                    INK,
                    next(markers, "x"),
                    f"{name} of {_GRAPH_WORDS.get(side.graph, side.graph)}",
                    filled=True,
                )
                ax.plot(side.law_degree, side.law_density, color=INK, linewidth=0.8, label=_law(side.law))
            _loglog(ax, side)
        ax.legend(loc="lower left")
    panels[-1].set_xlabel("degree")
    return figure


def _side_colour(side: Degrees) -> str:
    return BLUE if side.side == "users" else VERMILION


def _points(ax: Axes, side: Degrees, colour: str, marker: str, label: str, filled: bool) -> None:
    face = colour if filled else "white"
    ax.plot(
        side.centre,
        side.density,
        marker,
        color=colour,
        markerfacecolor=face,
        markersize=3.2,
        label=plain(label),
        zorder=3,
    )


def _law(words: str) -> str:
    """A law in words, with numbers of three digits and its power set as one: d^-1.4 becomes d with an exponent."""
    words = re.sub(r"\d+\.\d+", lambda number: f"{float(number.group()):.3g}", words.replace("..", " to "))
    return re.sub(r"d\^(-?[\d.]+)", r"$d^{\1}$", plain(words))


def _loglog(ax: Axes, side: Degrees) -> None:
    ax.set_yscale("log")
    _few_decades(ax)
    degree_axis(ax, [1], None)
    ax.set_ylabel(f"{side.side} per degree")


def _few_decades(ax: Axes) -> None:
    """Labels such as 0.5 and 20 rather than powers of ten, where the axis spans few of them."""
    low, high = ax.get_ylim()
    if high < 100 * low:
        plain_log_axis(ax.yaxis)


def draw_balance(results: Results, looks: Looks) -> Figure | None:
    """Positives to negatives per item against the item's degree (fig. 3)."""
    balances = [balance for balance in results.balance if balance.degree]
    if not balances:
        return None
    columns = min(2, len(balances))
    rows = math.ceil(len(balances) / columns)
    figure = new_figure(0.5 + 1.35 * rows, COLUMN)
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    low, high = _ratio_limits(balances)
    for place, ax in enumerate(panels.flat):
        if place >= len(balances):
            ax.set_visible(False)
            continue
        _balance_panel(ax, balances[place], low, high)
        if place % columns == 0:
            ax.set_ylabel("positives / negatives")
        if place + columns >= len(balances):
            ax.set_xlabel("item's degree")
            ax.xaxis.set_tick_params(labelbottom=True)
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
    """One point for all that fall into the same small cell of a logarithmic plane."""
    cells = np.round(np.log10(np.stack([x, y])) * _CELLS_PER_DECADE)
    _, first = np.unique(cells, axis=1, return_index=True)
    first.sort()
    return x[first], y[first]
