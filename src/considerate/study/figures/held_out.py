"""Figures of the held-out likes: S_rank by degree (fig. 6 and 7), paired differences, p(like) (fig. 4 and 5); and two
figures of judged pairs: whether p(like) is honest, and whether H is right."""

from __future__ import annotations

import math
import re
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np

from considerate.study.figures.style import (
    BLUE,
    COLUMN,
    IN_THE_TABLE,
    INK,
    PALE,
    SOFT,
    Floats,
    Looks,
    Sheet,
    banded_line,
    bin_centre,
    count_strip,
    degree_axis,
    drawn_from,
    enough,
    floats,
    label,
    panel_grid,
    plain,
    shared_legend,
)
from considerate.study.names import METRICS, plain_name
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


@drawn_from("ranks", "mean")
def draw_mean_ranks(ranks: list[RankByDegree], looks: Looks, sheet: Sheet) -> Figure | None:
    """Draw the mean S_rank of held-out likes by the degree of their user and of their item (fig. 6)."""
    shown = [rank for rank in ranks if rank.score not in IN_THE_TABLE]
    by_side = {side: [rank for rank in shown if rank.by == side] for side in _SIDES}
    sides = [side for side in _SIDES if by_side[side]]
    if not sides:
        return None
    names = list(dict.fromkeys(rank.score for side in sides for rank in by_side[side]))
    figure = sheet.figure(2.75 * len(sides), 3.3, list(map(plain_name, names)))
    shape = (2, len(sides)) if sheet.wide else (2 * len(sides), 1)
    panels = figure.subplots(*shape, squeeze=False, height_ratios=[4.6, 1] * (shape[0] // 2))
    for (ax, strip), side in zip(panels.T.reshape(-1, 2), sides):
        for rank in by_side[side]:
            banded_line(ax, rank, rank.mean, looks[rank.score], alpha=0.1)
        first = by_side[side][0]
        count_strip(strip, first.low, first.high, first.count)
        strip.sharex(ax)
        bottom, top = ax.get_ylim()
        if bottom < 0.56:  # draw the line of random guessing if it is near the values
            ax.axhline(0.5, color=SOFT, linewidth=0.8, linestyle=(0, (3, 2)), zorder=1)
        ax.set_ylim(bottom, min(top, 1.005))
        ax.set_ylabel("mean rank")
        ax.xaxis.set_tick_params(labelbottom=False)
        degree_axis(strip, first.low, f"{side}'s degree")
    shared_legend(figure, sheet, looks, names)
    return figure


@drawn_from("ranks", "percentiles")
def draw_percentiles(ranks: list[RankByDegree], looks: Looks, sheet: Sheet) -> Figure | None:
    """Draw percentile bands of S_rank for like, popularity x like and the knob (fig. 7)."""
    scores = _banded(ranks)
    if not scores:
        return None
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    sides = [side for side in _SIDES if any((score, side) in scores for score, _ in scores)]
    names = list(dict.fromkeys(score for score, _ in scores))
    figure = sheet.figure(0.55 + 1.25 * len(names), 0.55 + 1.5 * len(sides))
    shape = (len(sides), len(names)) if sheet.wide else (len(names), len(sides))
    panels = figure.subplots(*shape, squeeze=False, sharey=True, sharex="row" if sheet.wide else "col")
    for row, name in enumerate(names):
        for column, side in enumerate(sides):
            ax = panels[column, row] if sheet.wide else panels[row, column]
            if (name, side) in scores:
                _percentile_panel(ax, scores[name, side], looks)
            if column == 0:
                ax.set_title(label(name))
            if sheet.wide or row == len(names) - 1:
                ax.set_xlabel(f"{side}'s degree")
    for ax in panels[:, 0]:
        ax.set_ylabel("rank")
    panels[0, 0].set_ylim(0, 1.02)
    handles = [
        Line2D([], [], color=SOFT, linewidth=1.3, label="median"),
        Line2D([], [], color=INK, linewidth=1.0, linestyle=(0, (3, 1.5)), label="mean"),
        Patch(color=SOFT, alpha=0.45, linewidth=0, label="25-75 %"),
        Patch(color=SOFT, alpha=0.2, linewidth=0, label="5-95 %"),
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=4, handlelength=1.8)
    return figure


def _banded(ranks: list[RankByDegree]) -> dict[tuple[str, str], RankByDegree]:
    """Return (score, side) -> ranks for the paper's two scores, at r = 1/2 if present, and for the knob."""
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
    ax.plot(x, enough(rank.mean, rank.count), color=INK, linewidth=1.0, linestyle=(0, (3, 1.5)))
    degree_axis(ax, rank.low, None)


def draw_differences(results: Results, looks: Looks, sheet: Sheet = COLUMN) -> Figure | None:
    """Draw ours minus each peer, paired by user; right of the line, ours is better."""
    others = results.peers
    peers = {
        metric: [peer for peer in others if math.isfinite(peer.difference.get(metric, math.nan))] for metric in METRICS
    }
    metrics = [metric for metric in METRICS if peers[metric]]
    if not metrics:
        return None
    columns = min(3, len(metrics)) if sheet.wide else 1
    grid = [metrics[at : at + columns] for at in range(0, len(metrics), columns)]
    heights = [max(len(peers[metric]) for metric in row) for row in grid]
    figure = sheet.figure(0.15 + 0.44 * len(grid) + 0.17 * sum(heights))
    panels = figure.subplots(len(grid), columns, squeeze=False, height_ratios=[each + 0.6 for each in heights])
    for place, ax in enumerate(panels.flat):
        ax.set_visible(place < len(metrics))
    for ax, metric in zip(panels.flat, metrics):
        _forest(ax, metric, peers[metric], looks)
    figure.supxlabel("ours minus the peer; right of the line, ours is better", fontsize="medium")
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
    ax.set_yticks(range(len(peers)), labels=[label(peer.name) for peer in peers])
    ax.set_ylim(len(peers) - 0.4, -0.6)
    ax.grid(False, axis="y")
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    ax.set_title(METRICS[metric].replace(" (", "\n("))
    ax.xaxis.set_major_locator(MaxNLocator(4))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}".replace("-", "\N{MINUS SIGN}")))
    low, high = ax.get_xlim()
    ax.set_xlim(min(low, -0.04 * (high - low)), max(high, 0.04 * (high - low)))


@drawn_from("differences", "difference")
def draw_differences_by_degree(differences: list[DifferenceByDegree], looks: Looks, sheet: Sheet) -> Figure:
    """Draw mean S_rank of ours minus each peer's, by the item's degree, for both choices of weights."""
    versions = list(dict.fromkeys(each.ours for each in differences))
    peers = list(dict.fromkeys(each.peer for each in differences))
    figure = sheet.figure(0.15 + 1.75 * len(versions), 2.6, list(map(plain_name, peers)))
    shape = (1, len(versions)) if sheet.wide else (len(versions), 1)
    panels = figure.subplots(*shape, squeeze=False, sharex=True, sharey=True)
    for ax, version in zip(panels.flat, versions):
        lines = [each for each in differences if each.ours == version]
        for place, each in enumerate(lines):
            _difference_line(ax, each, looks, 1.035 ** (place - len(lines) / 2))
        ax.axhline(0, color=SOFT, linewidth=0.8, zorder=1)
        ax.set_yscale("symlog", linthresh=0.02, linscale=0.8)
        ax.set_yticks(
            [-0.5, -0.1, -0.02, 0, 0.02, 0.1, 0.5], labels=["−0.5", "−0.1", "−0.02", "0", "0.02", "0.1", "0.5"]
        )
        ax.minorticks_off()
        ax.set_title(label(version) + ", minus the peer")
        degree_axis(ax, [1], None)
    for ax in panels[-1]:
        ax.set_xlabel("item's degree")
    for ax in panels[:, 0]:
        ax.set_ylabel("difference in mean rank")
    shared_legend(figure, sheet, looks, peers)
    return figure


def _difference_line(ax: Axes, each: DifferenceByDegree, looks: Looks, shift: float) -> None:
    """Draw the strata, without those that lie inside another one."""
    own, look = each.separate_bins(), looks[each.peer]
    x = bin_centre([each.low[at] for at in own], [each.high[at] for at in own]) * shift
    count = [each.count[at] for at in own]
    low, high = (enough([each.interval[at][end] for at in own], count) for end in (0, 1))
    ax.vlines(x, low, high, color=look.colour, linewidth=1.0, zorder=look.layer)
    ax.plot(x, enough([each.difference[at] for at in own], count), **{**look.drawn(), "linewidth": 0.9})


PAPER_ERROR = (16.0, 19.0)  # per cent, from ten to twenty items on


@drawn_from("errors", "error")
def draw_errors(errors: list[ErrorByDegree], looks: Looks, sheet: Sheet) -> Figure:
    """Draw the classification error on held-out likes by the user's degree (fig. 4)."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    names, more = [error.name for error in errors], ["16-19 %, as the paper says", "a coin"]
    figure = sheet.figure(2.4, 2.6, [*names, *more])
    top, strip = figure.subplots(2, 1, sharex=True, height_ratios=[4.2, 1])
    for error in errors:
        banded_line(top, error, error.error, looks[error.name], alpha=0.14, scale=100)
    count_strip(strip, errors[0].low, errors[0].high, errors[0].count)
    top.axhspan(*PAPER_ERROR, color=PALE, alpha=0.5, linewidth=0, zorder=0)
    top.axhline(50, color=SOFT, linewidth=0.8, linestyle=(0, (3, 2)), zorder=1)
    top.set_ylim(0, max(56.0, top.get_ylim()[1]))
    top.set_ylabel("held-out likes with\np(like) < 1/2 (%)")
    degree_axis(strip, errors[0].low, "user's degree")
    paper = Patch(facecolor=PALE, alpha=0.5, linewidth=0, label=more[0])
    coin = Line2D([], [], color=SOFT, linewidth=0.8, linestyle=(0, (3, 2)), label=more[1])
    shared_legend(figure, sheet, looks, names, [paper, coin])
    return figure


@drawn_from("histograms", "share")
def draw_histograms(models: list[LikeHistogram], looks: Looks, sheet: Sheet) -> Figure:
    """Draw histograms of p(like) of held-out likes, a row per user degree (fig. 5)."""
    columns = min(3, len(models))
    figure = sheet.figure(0.6 + 2.2 * math.ceil(len(models) / columns))
    panels = panel_grid(figure, models, columns, ("p(like)", "user's degree"))
    shares = [100 * np.array(model.share, np.float64) for model in models]  # [rows, cells] in per cent
    for model, share in zip(models, shares):
        share[np.isnan(enough([0.0] * len(model.count), model.count))] = np.nan  # rows of few likes are blank
    top = float(np.nanquantile(np.concatenate([share.ravel() for share in shares]), 0.995))
    for ax, model, share in zip(panels, models, shares):
        shown = _heat(ax, model, share, top)
        ax.set_title("\n".join(wrap(label(model.name), 40 if sheet.wide else 28 // columns + 4)))
    bar: Any = figure.colorbar(
        shown, ax=panels, orientation="horizontal", aspect=40, pad=0.02, extend="max", fraction=0.05
    )
    bar.set_label("share of the row's held-out likes (%)")
    bar.outline.set_visible(False)
    bar.solids.set(rasterized=False, edgecolor="none", antialiased=False)
    return figure


def _heat(ax: Axes, model: LikeHistogram, share: Floats, top: float) -> QuadMesh:
    edges, rows = floats(model.edges), np.arange(len(model.share) + 1) - 0.5
    from matplotlib.colors import LinearSegmentedColormap, to_rgb

    shades = LinearSegmentedColormap.from_list("shades", [(*to_rgb(BLUE), alpha) for alpha in (0.0, 1.0)])  # any ground
    cells = ax.pcolormesh(edges, rows, np.ma.masked_invalid(share), cmap=shades, vmin=0, vmax=top, antialiased=False)
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
def draw_reliability(tables: list[Reliability], looks: Looks, sheet: Sheet) -> Figure:
    """Draw p(like) against the share of likes among judged pairs, and the number of pairs in each bin."""
    labels = [f"{table.name}: error {table.calibration_error:.3f}" for table in tables]
    figure = sheet.figure(3.4, 2.9, labels)
    if sheet.wide:
        top, strip = figure.subplots(1, 2, width_ratios=[1.35, 1])
    else:
        top, strip = figure.subplots(2, 1, sharex=True, height_ratios=[4.6, 1])
    top.plot([0, 1], [0, 1], color=SOFT, linewidth=0.8, linestyle=(0, (3, 2)), zorder=1)
    handles = []
    for table, text in zip(tables, labels):
        look = looks[table.name]
        observed = enough(table.observed, table.count)
        handles += top.plot(table.predicted, observed, label=plain(text), **look.drawn())
        pairs, line = np.maximum(floats(table.count), 0.7), {"color": look.colour, "linestyle": look.line}
        strip.stairs(pairs, table.edges, linewidth=1.0, baseline=None, **line)
    top.set_xlim(0, 1)
    top.set_ylim(0, 1)
    top.set_ylabel("share that liked")
    strip.set_yscale("log")
    strip.set_ylabel("pairs")
    for ax in (top, strip) if sheet.wide else (strip,):
        ax.set_xlabel("predicted p(like | considered)")
    figure.legend(handles=handles, loc="outside upper left", ncols=sheet.legend_columns(labels))
    return figure


@drawn_from("considered", "mean")
def draw_considered(scores: list[ConsideredByDegree], looks: Looks, sheet: Sheet) -> Figure:
    """Draw the AUC of pairs considered and not liked against pairs never rated, by the user's degree."""
    from matplotlib.lines import Line2D

    labels = [f"{plain_name(score.name)}: {score.auc:.3f}" for score in scores]
    figure = sheet.figure(2.7, 2.6, labels)
    top, strip = figure.subplots(2, 1, sharex=True, height_ratios=[4.2, 1])
    for score in scores:
        banded_line(top, score, score.mean, looks[score.name], alpha=0.14)
    first = scores[0]
    count_strip(strip, first.low, first.high, first.count)
    strip.set_ylabel("users")
    top.set_ylabel("AUC, mean over users")
    degree_axis(strip, first.low, "user's degree")
    handles = [Line2D([], [], label=plain(text), **looks[row.name].drawn()) for text, row in zip(labels, scores)]
    figure.legend(handles=handles, loc="outside upper left", ncols=sheet.legend_columns(labels))
    return figure
