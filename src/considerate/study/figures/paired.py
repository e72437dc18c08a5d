"""Paired differences: ours minus each peer, with intervals, over all and by the item's degree."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from considerate.study.figures.style import (
    SOFT,
    Looks,
    any_finite,
    bin_centre,
    degree_axis,
    enough,
    new_figure,
    plain,
    shared_legend,
)
from considerate.study.results import DifferenceByDegree, Results, ScorerResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TITLES = {  # of the metrics shown; more is better in each
    "S_rank": r"$S_\mathrm{rank}$",
    "S_rank tail": r"$S_\mathrm{rank}$, items of degree under 100",
    "S_rank tail, knob 0": r"$S_\mathrm{rank}$, items of degree under 100, our knob at 0",
    "Recall@20": "Recall@20",
    "NDCG@20": "NDCG@20",
}


def draw_differences(results: Results, looks: Looks) -> Figure | None:
    """Ours minus each peer, paired by user; right of the line, ours is better."""
    others = results.peers
    peers = {
        metric: [peer for peer in others if math.isfinite(peer.difference.get(metric, math.nan))] for metric in _TITLES
    }
    metrics = [metric for metric in _TITLES if peers[metric]]
    if not metrics:
        return None
    rows = [len(peers[metric]) for metric in metrics]
    figure = new_figure(0.15 + 0.42 * len(metrics) + 0.17 * sum(rows))
    panels = figure.subplots(len(metrics), 1, squeeze=False, height_ratios=[row + 0.6 for row in rows])[:, 0]
    for ax, metric in zip(panels, metrics):
        _forest(ax, metric, peers[metric], looks)
    panels[-1].set_xlabel("ours minus the peer; right of the line, ours is better")
    return figure


def _forest(ax: Axes, metric: str, peers: list[ScorerResult], looks: Looks) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    ax.axvline(0, color=SOFT, linewidth=0.8, zorder=1)
    right = ax.get_yaxis_transform()
    for row, peer in enumerate(peers):
        look, value = looks[peer.name], peer.difference[metric]
        low, high = peer.difference_intervals.get(metric, (value, value))
        ax.plot([low, high], [row, row], "|-", color=look.colour, linewidth=1.2, markersize=5, zorder=3)
        face = "white" if look.hollow else look.colour
        ax.plot([value], [row], look.marker, color=look.colour, markerfacecolor=face, markersize=3.4, zorder=4)
        ax.text(1.02, row, f"{value:+.3f}".replace("-", "\N{MINUS SIGN}"), transform=right, va="center", fontsize=6.5)
    ax.set_yticks(range(len(peers)), labels=[plain(peer.name) for peer in peers])
    ax.set_ylim(len(peers) - 0.4, -0.6)
    ax.grid(False, axis="y")
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    ax.set_title(_TITLES[metric])
    ax.xaxis.set_major_locator(MaxNLocator(5))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}".replace("-", "\N{MINUS SIGN}")))
    low, high = ax.get_xlim()
    ax.set_xlim(min(low, -0.04 * (high - low)), max(high, 0.04 * (high - low)))


def draw_differences_by_degree(results: Results, looks: Looks) -> Figure | None:
    """Mean S_rank of ours minus each peer's, by the item's degree, at the chosen knob and at 0."""
    found = [each for each in results.differences if any_finite(each.difference)]
    if not found:
        return None
    versions = list(dict.fromkeys(each.ours for each in found))
    figure = new_figure(0.4 + 1.75 * len(versions))
    panels = figure.subplots(len(versions), 1, squeeze=False, sharex=True, sharey=True)[:, 0]
    for ax, version in zip(panels, versions):
        lines = [each for each in found if each.ours == version]
        for place, each in enumerate(lines):
            _difference_line(ax, each, looks, 1.035 ** (place - len(lines) / 2))
        ax.axhline(0, color=SOFT, linewidth=0.8, zorder=1)
        ax.set_yscale("symlog", linthresh=0.02, linscale=0.8)
        ax.set_yticks(
            [-0.5, -0.1, -0.02, 0, 0.02, 0.1, 0.5], labels=["−0.5", "−0.1", "−0.02", "0", "0.02", "0.1", "0.5"]
        )
        ax.minorticks_off()
        ax.set_title(plain(version) + " minus the peer")
        ax.set_ylabel(r"in mean $S_\mathrm{rank}$")
        degree_axis(ax, [1], None)
    panels[-1].set_xlabel("item's degree")
    shared_legend(figure, looks, [each.peer for each in found])
    return figure


def _difference_line(ax: Axes, each: DifferenceByDegree, looks: Looks, shift: float) -> None:
    """The strata; those inside another one, such as all of the tail, are left to the table."""
    pairs = list(zip(each.low, each.high))
    own = [at for at, (low, high) in enumerate(pairs) if at == 0 or low > max(end for _, end in pairs[:at])]
    look = looks[each.peer]
    x = bin_centre([each.low[at] for at in own], [each.high[at] for at in own]) * shift
    count = [each.count[at] for at in own]
    low, high = (enough([each.interval[at][end] for at in own], count) for end in (0, 1))
    ax.vlines(x, low, high, color=look.colour, linewidth=1.0, zorder=look.layer)
    ax.plot(x, enough([each.difference[at] for at in own], count), **{**look.drawn(), "linewidth": 0.9})
