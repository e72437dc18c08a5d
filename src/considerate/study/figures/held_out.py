"""Figures over the held-out likes: S_rank by degree (fig. 6 and 7), paired differences, p(like) (fig. 4 and 5); and
over judged pairs: whether p(like) is honest, and whether H is right."""

from __future__ import annotations

import math
import re
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np

from considerate.study.figures.style import (
    INK,
    PALE,
    SOFT,
    Floats,
    Looks,
    banded_line,
    bin_centre,
    count_strip,
    degree_axis,
    drawn_from,
    enough,
    floats,
    new_figure,
    panel_grid,
    plain,
    shared_legend,
)
from considerate.study.results import (
    ConsideredByDegree,
    DifferenceByDegree,
    ErrorByDegree,
    LikeHistogram,
    RankByDegree,
    Reliability,
    Results,
    ScorerResult,
    degree_range,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh
    from matplotlib.figure import Figure

_SIDES = ("user", "item")
_IN_THE_TABLE = {"considerate, default"}  # one line fewer: it is close to ours, and the page's table has it


@drawn_from("ranks", "mean")
def draw_mean_ranks(ranks: list[RankByDegree], looks: Looks) -> Figure | None:
    """Mean S_rank of held-out likes by the degree of their user and of their item (fig. 6)."""
    shown = [rank for rank in ranks if rank.score not in _IN_THE_TABLE]
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
            banded_line(ax, rank, rank.mean, looks[rank.score], alpha=0.1)
        first = by_side[side][0]
        count_strip(strip, first.low, first.high, first.count)
        strip.sharex(ax)
        bottom, top = ax.get_ylim()
        if bottom < 0.56:  # the line of random guessing, where it is near what is shown
            ax.axhline(0.5, color=SOFT, linewidth=0.8, linestyle=(0, (3, 2)), zorder=1)
        ax.set_ylim(bottom, min(top, 1.005))
        ax.set_ylabel(r"mean $S_\mathrm{rank}$")
        ax.xaxis.set_tick_params(labelbottom=False)
        degree_axis(strip, first.low, f"{side}'s degree")
    shared_legend(figure, looks, names)
    return figure


@drawn_from("ranks", "percentiles")
def draw_percentiles(ranks: list[RankByDegree], looks: Looks) -> Figure | None:
    """Percentile bands of S_rank for like, popularity x like and the knob (fig. 7)."""
    scores = _banded(ranks)
    if not scores:
        return None
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    sides = [side for side in _SIDES if any((score, side) in scores for score, _ in scores)]
    names = list(dict.fromkeys(score for score, _ in scores))
    figure = new_figure(0.55 + 1.25 * len(names))
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
    handles = [
        Line2D([], [], color=SOFT, linewidth=1.3, label="median"),
        Line2D([], [], color="black", linewidth=1.0, linestyle=(0, (3, 1.5)), label="mean"),
        Patch(color=SOFT, alpha=0.45, linewidth=0, label="25-75 %"),
        Patch(color=SOFT, alpha=0.2, linewidth=0, label="5-95 %"),
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=4, handlelength=1.8)
    return figure


def _banded(ranks: list[RankByDegree]) -> dict[tuple[str, str], RankByDegree]:
    """The paper's two scores, at r = 1/2 if there is a choice, and the knob: (score, side) -> ranks."""
    banded: dict[tuple[str, str], RankByDegree] = {}
    for pattern in (r"^like", r"^popularity [x×*] like", r"knob|considerate|\bours?\b|^default"):
        names = [rank.score for rank in ranks if re.search(pattern, rank.score.lower())]
        if names:
            name = next((name for name in names if "1/2" in name), names[0])
            banded |= {(name, rank.by): rank for rank in ranks if rank.score == name}
    return banded


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


_TITLES = {  # of the metrics shown; more is better in each
    "S_rank": r"$S_\mathrm{rank}$",
    "S_rank tail": r"$S_\mathrm{rank}$, items of degree under 100",
    "S_rank tail, for the tail": r"$S_\mathrm{rank}$, items of degree under 100, our weights chosen for it",
    "Recall@20": "Recall@20",
    "NDCG@20": "NDCG@20",
    "NDCG@20, first places": "NDCG@20, our weights chosen for it",
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
        ax.plot([value], [row], look.marker, color=look.colour, markerfacecolor=look.face, markersize=3.4, zorder=4)
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


@drawn_from("differences", "difference")
def draw_differences_by_degree(differences: list[DifferenceByDegree], looks: Looks) -> Figure:
    """Mean S_rank of ours minus each peer's, by the item's degree, with the weights chosen for all and for the tail."""
    versions = list(dict.fromkeys(each.ours for each in differences))
    figure = new_figure(0.4 + 1.75 * len(versions))
    panels = figure.subplots(len(versions), 1, squeeze=False, sharex=True, sharey=True)[:, 0]
    for ax, version in zip(panels, versions):
        lines = [each for each in differences if each.ours == version]
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
    shared_legend(figure, looks, [each.peer for each in differences])
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


PAPER_ERROR = (16.0, 19.0)  # per cent, from ten to twenty items on


@drawn_from("errors", "error")
def draw_errors(errors: list[ErrorByDegree], looks: Looks) -> Figure:
    """Classification error on held-out likes by the user's degree (fig. 4)."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    figure = new_figure(2.85)
    top, strip = figure.subplots(2, 1, sharex=True, height_ratios=[4.2, 1])
    for error in errors:
        banded_line(top, error, error.error, looks[error.name], alpha=0.14, scale=100)
    count_strip(strip, errors[0].low, errors[0].high, errors[0].count)
    top.axhspan(*PAPER_ERROR, color=PALE, alpha=0.5, linewidth=0, zorder=0)
    top.axhline(50, color=SOFT, linewidth=0.8, linestyle=(0, (3, 2)), zorder=1)
    top.set_ylim(0, max(56.0, top.get_ylim()[1]))
    top.set_ylabel("held-out likes with\np(like) < 1/2 (%)")
    degree_axis(strip, errors[0].low, "user's degree")
    paper = Patch(facecolor=PALE, alpha=0.5, linewidth=0, label="16-19 %, as the paper says")
    coin = Line2D([], [], color=SOFT, linewidth=0.8, linestyle=(0, (3, 2)), label="a coin")
    shared_legend(figure, looks, [error.name for error in errors], [paper, coin])
    return figure


@drawn_from("histograms", "share")
def draw_histograms(models: list[LikeHistogram], looks: Looks) -> Figure:
    """Histograms of p(like) of held-out likes, a row per user degree (fig. 5)."""
    columns = min(3, len(models))
    figure = new_figure(0.6 + 2.2 * math.ceil(len(models) / columns))
    panels = panel_grid(figure, models, columns, ("p(like)", "user's degree"))
    shares = [100 * np.array(model.share, np.float64) for model in models]  # [rows, cells] in per cent
    for model, share in zip(models, shares):
        share[np.isnan(enough([0.0] * len(model.count), model.count))] = np.nan  # rows of few likes are blank
    top = float(np.nanquantile(np.concatenate([share.ravel() for share in shares]), 0.995))
    for ax, model, share in zip(panels, models, shares):
        shown = _heat(ax, model, share, top)
        ax.set_title("\n".join(wrap(plain(model.name), 28 // columns + 4)))
    bar: Any = figure.colorbar(
        shown, ax=panels, orientation="horizontal", aspect=40, pad=0.02, extend="max", fraction=0.05
    )
    bar.set_label("share of the row's held-out likes (%)")
    bar.outline.set_visible(False)
    bar.solids.set(rasterized=False, edgecolor="face", linewidth=0.2)
    return figure


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
    ax.set_yticks(ticks, labels=[degree_range(model.low[row], model.high[row]) for row in ticks])
    return cells


@drawn_from("reliability", "observed")
def draw_reliability(tables: list[Reliability], looks: Looks) -> Figure:
    """p(like) against the share that did like, where both are known; how many pairs each bin holds, below."""
    figure = new_figure(3.55 + 0.15 * len(tables))
    top, strip = figure.subplots(2, 1, sharex=True, height_ratios=[4.6, 1])
    top.plot([0, 1], [0, 1], color=SOFT, linewidth=0.8, linestyle=(0, (3, 2)), zorder=1)
    handles = []
    for table in tables:
        look = looks[table.name]
        label = f"{table.name}: error {table.calibration_error:.3f}"
        observed = enough(table.observed, table.count)
        handles += top.plot(table.predicted, observed, label=plain(label), **look.drawn())
        pairs, line = np.maximum(floats(table.count), 0.7), {"color": look.colour, "linestyle": look.line}
        strip.stairs(pairs, table.edges, linewidth=1.0, baseline=None, **line)
    top.set_xlim(0, 1)
    top.set_ylim(0, 1)
    top.set_ylabel("share that liked")
    strip.set_yscale("log")
    strip.set_ylabel("pairs")
    strip.set_xlabel("predicted p(like | considered)")
    figure.legend(handles=handles, loc="outside upper left", ncols=1)
    return figure


@drawn_from("considered", "mean")
def draw_considered(scores: list[ConsideredByDegree], looks: Looks) -> Figure:
    """AUC of pairs considered and not liked against pairs never rated, by the user's degree."""
    from matplotlib.lines import Line2D

    figure = new_figure(2.85 + 0.15 * len(scores))
    top, strip = figure.subplots(2, 1, sharex=True, height_ratios=[4.2, 1])
    for score in scores:
        banded_line(top, score, score.mean, looks[score.name], alpha=0.14)
    first = scores[0]
    count_strip(strip, first.low, first.high, first.count)
    strip.set_ylabel("users")
    top.set_ylabel("AUC, mean over users")
    degree_axis(strip, first.low, "user's degree")
    labels = [f"{score.name}: {score.auc:.3f}" for score in scores]
    handles = [Line2D([], [], label=plain(text), **looks[row.name].drawn()) for text, row in zip(labels, scores)]
    figure.legend(handles=handles, loc="outside upper left", ncols=2)
    return figure
