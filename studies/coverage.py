"""The picture of coverage: what 90 % intervals hold by the posterior alone, and with structural variance."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from considerate.model.liking import POSTERIOR, STRUCTURAL
from considerate.study.figures.style import BLUE, INK, SOFT, VERMILION
from studies import totals
from studies.intervals import CONSIDERED, LEVEL, SHIPPED, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROW, HEADING = 0.36, 0.62  # inches
WIDTH = 4.1  # inches: 394 px, which a phone shows as it is
LABELS = {"anime-5k-users": "anime", "coat": "Coat, randomly shown"}


class Bar(NamedTuple):
    """Coverage before and after."""

    label: str
    posterior: float
    structural: float


def simulated_bars(rows: Sequence[Row]) -> list[Bar]:
    """Considered pairs of each case at the defaults."""
    found = {row.case: row.pairs[CONSIDERED].coverage for row in rows if row.setting == SHIPPED}
    return [Bar(case, coverage[POSTERIOR], coverage[STRUCTURAL]) for case, coverage in found.items()]


def total_bars(lines: Sequence[totals.Line]) -> list[Bar]:
    """Items and users of the sets that did not choose the constants."""
    found = {(line.set, line.name): line for line in lines if line.set not in totals.CHOSE}
    answer = []
    for name in dict.fromkeys(name for name, _ in found):
        before, after = found[name, POSTERIOR], found[name, STRUCTURAL]
        for side in ("item", "user"):
            held = (getattr(line, side).held for line in (before, after))
            answer.append(Bar(f"{LABELS.get(name, name)}: likes of {side}s", *held))
    return answer


def draw(rows: Sequence[Row], lines: Sequence[totals.Line], path: Path) -> None:
    """Draw both groups of bars; where there are no lines, the simulated cases alone."""
    import matplotlib
    from matplotlib.figure import Figure

    groups = {"Simulated: true p(like) of considered pairs": simulated_bars(rows)}
    if lines:
        groups["Real: likes of whole items and users"] = total_bars(lines)
    heights = [HEADING + ROW * len(bars) for bars in groups.values()]
    with matplotlib.rc_context({"svg.hashsalt": "considerate", "svg.fonttype": "path", "font.size": 10}):
        figure = Figure(figsize=(WIDTH, sum(heights) + 0.75), layout="constrained")
        axes = figure.subplots(len(groups), sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
        for ax, (title, bars) in zip(axes, groups.items()):
            _draw_bars(ax, title, bars)
        axes[-1].set_xlabel("held by the 90 % interval, %")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper left", frameon=False, ncols=2, columnspacing=1.0)
        figure.savefig(path, metadata={"Date": None, "Creator": "considerate"})


def _draw_bars(ax: Axes, title: str, bars: Sequence[Bar]) -> None:
    """One bar a row, its label above it, from an open circle to a filled one; a line where 90 % is."""
    ax.set_title(title, loc="left", fontsize=10, fontweight="bold", color=INK)
    ax.axvline(100 * LEVEL, color=SOFT, linewidth=1, linestyle=(0, (3, 2)), zorder=1)
    ends: dict[str, Any] = {"linestyle": "none", "marker": "o", "markersize": 7, "zorder": 3}
    for place, bar in enumerate(bars):
        before, after = 100 * bar.posterior, 100 * bar.structural
        ax.plot([before, after], [place, place], color=SOFT, linewidth=2, zorder=2)
        first = place == 0
        label = ("the posterior alone", "with structural variance") if first else (None, None)
        ax.plot([before], [place], color=VERMILION, markerfacecolor="white", markeredgewidth=2, label=label[0], **ends)
        ax.plot([after], [place], color=BLUE, label=label[1], **ends)
        ax.annotate(bar.label, (0, place), (1, 6), textcoords="offset points", color=INK, fontsize=9.5)
        ax.annotate(
            f"{before:.0f} to {after:.0f}", (0, place), (1, -6), textcoords="offset points", color=SOFT, fontsize=9
        )
    ax.set(xlim=(0, 102), ylim=(len(bars) - 0.5, -0.75), yticks=[], xticks=[0, 25, 50, 75, 90, 100])
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(color=SOFT)
