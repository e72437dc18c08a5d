"""Figures of S_rank by degree: its mean for every score (fig. 6), its percentiles (fig. 7)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from considerate.study.figures.style import (
    COLUMN,
    SOFT,
    Looks,
    any_finite,
    band,
    bin_centre,
    count_strip,
    degree_axis,
    enough,
    new_figure,
    plain,
    shared_legend,
)
from considerate.study.results import RankByDegree, Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SIDES = ("user", "item")
_IN_THE_TABLE = {"considerate, default"}  # one line fewer: it is close to ours, and the page's table has it


def draw_mean_ranks(results: Results, looks: Looks) -> Figure | None:
    """Mean S_rank of held-out likes by the degree of their user and of their item (fig. 6)."""
    shown = [rank for rank in results.ranks if any_finite(rank.mean) and rank.score not in _IN_THE_TABLE]
    by_side = {side: [rank for rank in shown if rank.by == side] for side in _SIDES}
    sides = [side for side in _SIDES if by_side[side]]
    if not sides:
        return None
    names = [rank.score for side in sides for rank in by_side[side]]
    figure = new_figure(0.2 + 0.07 * len(set(names)) + 2.75 * len(sides))
    panels = figure.subplots(2 * len(sides), 1, squeeze=False, height_ratios=[4.6, 1] * len(sides))[:, 0]
    for place, side in enumerate(sides):
        ax, strip = panels[2 * place : 2 * place + 2]
        for rank in by_side[side]:
            look, x = looks[rank.score], bin_centre(rank.low, rank.high)
            low, high = (enough([pair[end] for pair in rank.interval], rank.count) for end in (0, 1))
            band(ax, x, low, high, look, alpha=0.1)
            ax.plot(x, enough(rank.mean, rank.count), **look.drawn())
        first = by_side[side][0]
        count_strip(strip, first.low, first.high, first.count)
        strip.sharex(ax)
        _chance(ax)
        ax.set_ylabel(r"mean $S_\mathrm{rank}$")
        ax.xaxis.set_tick_params(labelbottom=False)
        degree_axis(strip, first.low, f"{side}'s degree")
    shared_legend(figure, looks, names)
    return figure


def _chance(ax: Axes) -> None:
    """The line of random guessing, where it is near what is shown."""
    low, high = ax.get_ylim()
    if low < 0.56:
        ax.axhline(0.5, color=SOFT, linewidth=0.8, linestyle=(0, (3, 2)), zorder=1)
    ax.set_ylim(low, min(high, 1.005))


def draw_percentiles(results: Results, looks: Looks) -> Figure | None:
    """Percentile bands of S_rank for like, popularity x like and the knob (fig. 7)."""
    scores = _banded([rank for rank in results.ranks if any_finite(*rank.percentiles.values())])
    if not scores:
        return None
    sides = [side for side in _SIDES if any((score, side) in scores for score, _ in scores)]
    names = list(dict.fromkeys(score for score, _ in scores))
    figure = new_figure(0.55 + 1.25 * len(names), COLUMN)
    panels = figure.subplots(len(names), len(sides), squeeze=False, sharey=True, sharex="col")
    for row, name in enumerate(names):
        for column, side in enumerate(sides):
            ax = panels[row, column]
            if (name, side) in scores:
                _percentile_panel(ax, scores[name, side], looks)
            if column == 0:
                ax.set_title(plain(name))
                ax.set_ylabel(r"$S_\mathrm{rank}$")
            if row == len(names) - 1:
                ax.set_xlabel(f"{side}'s degree")
    panels[0, 0].set_ylim(0, 1.02)
    _band_legend(figure)
    return figure


def _banded(ranks: list[RankByDegree]) -> dict[tuple[str, str], RankByDegree]:
    """The paper's two scores, at r = 1/2 if there is a choice, and the knob: (score, side) -> ranks."""
    found: dict[tuple[str, str], RankByDegree] = {}
    for pattern in (r"^like", r"^popularity [x×*] like", r"knob|considerate|\bours?\b|^default"):
        names = [rank.score for rank in ranks if re.search(pattern, rank.score.lower())]
        if names:
            name = next((name for name in names if "1/2" in name), names[0])
            found |= {(name, rank.by): rank for rank in ranks if rank.score == name}
    return found


def _percentile_panel(ax: Axes, rank: RankByDegree, looks: Looks) -> None:
    colour, x = looks[rank.score].colour, bin_centre(rank.low, rank.high)
    at = {key: enough(values, rank.count) for key, values in rank.percentiles.items()}
    for low, high, alpha in (("5", "95", 0.18), ("25", "75", 0.38)):
        if low in at and high in at:
            ax.fill_between(x, at[low], at[high], color=colour, alpha=alpha, linewidth=0)
    if "50" in at:
        ax.plot(x, at["50"], color=colour, linewidth=1.3)
    ax.plot(x, enough(rank.mean, rank.count), color="black", linewidth=1.0, linestyle=(0, (3, 1.5)))
    degree_axis(ax, rank.low, None)


def _band_legend(figure: Figure) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles = [
        Line2D([], [], color=SOFT, linewidth=1.3, label="median"),
        Line2D([], [], color="black", linewidth=1.0, linestyle=(0, (3, 1.5)), label="mean"),
        Patch(color=SOFT, alpha=0.45, linewidth=0, label="25-75 %"),
        Patch(color=SOFT, alpha=0.2, linewidth=0, label="5-95 %"),
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=4, handlelength=1.8)
