"""Quality against time: NDCG@20 and S_rank of held-out likes by the seconds of fitting, ours and peers.

    python -m benchmarks quality_time
    python -m benchmarks.quality_time --sets ml-1m --seeds 1 --only ours ALS

The clock runs from the call of fit and stands while the fit is looked at; reading is off it. One like of every user who
has two is held out, another for each seed. Ours is the plain constructor, ranked with its own weights and ended by its
own rule. The peers' settings come from quality_time.json, which `python -m benchmarks.quality_grid` writes. The target
of a metric is the better of what ALS and BPR end with, each with its settings for that metric.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import SETS, STUDIED, real
from benchmarks.quality_fits import FITS, METRICS, Curve, Settings, missing, ours, watch
from benchmarks.quality_grid import PATH
from benchmarks.report import THREADS, Row, Section, command
from considerate import Recommender
from considerate.evaluation.split import HeldOut, one_per_user
from considerate.study.fits import some_users

TESTED_ON = 10_000  # users at most, drawn by the seed
FOREVER = 10**9  # sweeps: ours ends by its own rule
TARGETED = ("ALS", "BPR")
OURS = "ours"
PICTURE = Path(__file__).parents[1] / "docs" / "quality_time.svg"
ONCE = (
    ("LightFM", "NDCG@20"),
    ("LightFM", "S_rank"),
    ("BPR", "NDCG@20"),
)  # with the first seed alone: slow, and far off


@dataclass(frozen=True)
class Entrant:
    """A fit that takes part in the race for one metric."""

    name: str
    metric: str
    settings: Settings
    iterations: int  # that it goes on for

    @property
    def fit(self) -> str:
        """Entrants with the same fit share its curve."""
        return json.dumps([self.name, self.settings], sort_keys=True)


@dataclass
class Race:
    """The entrants of one set for one metric, and the curves of each, a seed after the other."""

    folder: str
    metric: str
    curves: dict[str, list[Line]] = field(default_factory=dict)

    @property
    def targets(self) -> list[float]:
        """The better of what ALS and BPR end with, by seed."""
        ends = [[line.values[-1] for line in lines] for name, lines in self.curves.items() if name in TARGETED]
        return [max(several) for several in zip_longest(*ends, fillvalue=0.0)]

    def reached(self, name: str) -> list[float]:
        """Seconds to the target, by seed; infinite where it is never reached."""
        return [line.reaches(target) for line, target in zip(self.curves[name], self.targets)]

    def ratio(self) -> float | None:
        """How many times as long the first of ALS and BPR takes to the target as ours; 0 where ours never gets there.
        The median over seeds."""
        if OURS not in self.curves or not self.targets:
            return None
        peers = [self.reached(name) for name in TARGETED if name in self.curves]
        first = [min(several) for several in zip_longest(*peers, fillvalue=math.inf)]
        return median_of([them / us if math.isfinite(us) else 0.0 for them, us in zip(first, self.reached(OURS))])

    def rows(self) -> list[Row]:
        """Everyone's medians over seeds, the first to the target first."""
        ours = median_of(self.reached(OURS)) if self.targets and OURS in self.curves else math.inf
        found: list[Row] = []
        for name, lines in self.curves.items():
            reached = median_of(self.reached(name))
            at_work = median_of([line.reaches(target, line.cpu) for line, target in zip(lines, self.targets)])
            found.append(
                {
                    "set": SETS[self.folder][0],
                    "fit": name,
                    self.metric: median_of([line.values[-1] for line in lines]),
                    "s to it": reached if math.isfinite(reached) else None,
                    "/ ours": reached / ours if math.isfinite(reached) and math.isfinite(ours) else None,
                    "CPU s": at_work if math.isfinite(at_work) else None,
                    "s, all": median_of([line.in_all for line in lines]),
                }
            )
        return sorted(found, key=lambda row: (row["s to it"] is None, row["s to it"] or -row[self.metric]))


@dataclass(frozen=True)
class Line:
    """The curve of one metric, up to where its fit ends."""

    seconds: list[float]
    cpu: list[float]  # seconds of processor, all threads
    values: list[float]
    in_all: float

    @classmethod
    def of(cls, curve: Curve, metric: str, iterations: int) -> Line:
        count = sum(at <= iterations for at in curve.iterations)
        in_all = curve.in_all if count == len(curve.iterations) else curve.seconds[count - 1]
        return cls(curve.seconds[:count], curve.cpu[:count], curve.values[metric][:count], in_all)

    def reaches(self, target: float, clock: list[float] | None = None) -> float:
        """When the value is first that of the target, by the wall or by another clock; infinite where it never is."""
        return next((at for at, value in zip(clock or self.seconds, self.values) if value >= target), math.inf)


def median_of(values: Sequence[float]) -> float:
    """The median, which may be infinite; infinite of none."""
    return float(np.median(values)) if values else math.inf


def entrants(folder: str) -> Iterator[Entrant]:
    """Ours, by default and with either estimator where that differs, and the peers with their chosen settings."""
    default = Recommender().get_params()
    kinds: dict[str, Settings] = {OURS: {}} | {f"ours, {kind}": {"hidden": kind} for kind in ("expected", "sampled")}
    for name, settings in kinds.items():
        if name == OURS or Recommender(**settings).get_params() != default:
            for metric in METRICS:
                yield Entrant(name, metric, settings, FOREVER)
    chosen = json.loads(PATH.read_text())["sets"].get(folder, {})
    chosen["popularity"] = {metric: {"settings": {}, "iterations": 1} for metric in METRICS}
    for peer in FITS:
        for metric in METRICS:
            if (of := chosen.get(peer, {}).get(metric)) is not None:
                yield Entrant(peer, metric, of["settings"], of["iterations"])


def curve_of(entrant: Entrant, most: int, held: HeldOut, seed: int) -> Curve:
    """One fit, looked at after every sweep of ours, and as `Curve` says for the others."""
    mine = entrant.name.startswith(OURS)
    curve = Curve(held, most, growth=0.01 if mine else 0.08)
    return watch(ours if mine else FITS[entrant.name], held.train, entrant.settings, seed, curve)


def race(
    folder: str, held: dict[int, HeldOut], entered: Sequence[Entrant], quick: bool
) -> tuple[list[Race], list[Row]]:
    """All fits of one set, everyone taking turns within a seed; and when one fit reaches the targets of all metrics."""
    most: dict[str, int] = {}
    for entrant in entered:
        most[entrant.fit] = 2 if quick else max(most.get(entrant.fit, 0), entrant.iterations)
    races = {metric: Race(folder, metric) for metric in METRICS}
    whole: dict[str, list[dict[str, Line]]] = {}  # of each fit, by seed: its curves to the end
    for seed, split in held.items():
        curves: dict[str, Curve] = {}
        for entrant in entered:
            if seed and (entrant.name, entrant.metric) in ONCE:
                continue
            if entrant.fit not in curves:
                curve = curves[entrant.fit] = curve_of(entrant, most[entrant.fit], split, seed)
                print(f"{folder}, seed {seed}, {entrant.name}: {curve.in_all:.2f} s", file=sys.stderr, flush=True)
                label = entrant.name if entrant.name.startswith(OURS) else f"{entrant.name}, as for {entrant.metric}"
                lines = {metric: Line.of(curve, metric, most[entrant.fit]) for metric in METRICS}
                whole.setdefault(label, []).append(lines)
            line = Line.of(curves[entrant.fit], entrant.metric, entrant.iterations)
            races[entrant.metric].curves.setdefault(entrant.name, []).append(line)
    return list(races.values()), both_targets(list(races.values()), whole)


def both_targets(races: Sequence[Race], whole: dict[str, list[dict[str, Line]]]) -> list[Row]:
    """When each fit has reached the targets of all metrics at once, and how well it ranks in the end; medians."""
    rows: list[Row] = []
    for label, fits in whole.items():
        times = []
        for seed, lines in enumerate(fits):
            values = zip(*(lines[one.metric].values for one in races))
            targets = [one.targets[seed] for one in races]
            there = (all(value >= target for value, target in zip(now, targets)) for now in values)
            seconds = lines[races[0].metric].seconds
            times.append(next((at for at, reached in zip(seconds, there) if reached), math.inf))
        ends = {one.metric: median_of([lines[one.metric].values[-1] for lines in fits]) for one in races}
        reached = median_of(times)
        at = {"s to both": reached if math.isfinite(reached) else None}
        rows.append({"set": SETS[races[0].folder][0], "fit": label} | ends | at)
    return sorted(rows, key=lambda row: (row["s to both"] is None, row["s to both"] or -row[races[0].metric]))


def plot(races: Sequence[Race], path: Path) -> None:
    """A row of panels for each metric, a column for each set: medians over seeds. Readable on white and on black."""
    from considerate.study.figures.style import BLUE, GREEN, ORANGE, PURPLE, SKY, SOFT, VERMILION, paper_style

    looks = {
        OURS: (BLUE, "-", 2.2),
        "ours, expected": (SKY, "-", 1.2),
        "ours, sampled": (SKY, "--", 1.2),
        "ALS": (VERMILION, "-", 1.4),
        "BPR": (GREEN, "-", 1.4),
        "LightFM": (PURPLE, "-", 1.4),
        "EASE": (ORANGE, "", 1.0),
        "popularity": (SOFT, ":", 1.0),
    }
    folders = list(dict.fromkeys(race.folder for race in races))
    with paper_style():
        import matplotlib.pyplot as plt

        greys = ("text.color", "axes.labelcolor", "axes.edgecolor", "axes.titlecolor", "grid.color")
        ticks = (f"{axis}tick.{part}" for axis in "xy" for part in ("color", "labelcolor"))
        plt.rcParams.update(dict.fromkeys((*greys, *ticks), SOFT))
        plt.rcParams.update({"legend.frameon": False, "font.size": 8, "grid.alpha": 0.3})
        figure, axes = plt.subplots(
            len(METRICS), len(folders), figsize=(3 * len(folders), 4.8), layout="constrained", squeeze=False
        )
        for one in races:
            panel = axes[METRICS.index(one.metric), folders.index(one.folder)]
            panel.patch.set_alpha(0)
            highest = 0.0
            for name, lines in one.curves.items():
                colour, dash, width = looks[name]
                length = min(len(line.seconds) for line in lines)
                seconds, values = (
                    np.median([getattr(line, kind)[:length] for line in lines], axis=0)
                    for kind in ("seconds", "values")
                )
                highest = max(highest, float(values.max()))
                if name == "popularity":
                    panel.axhline(values[0], color=colour, linestyle=dash, linewidth=width, label=name)
                elif length == 1:
                    panel.plot(seconds, values, "D", color=colour, label=name, markersize=4)
                else:
                    panel.plot(seconds, values, color=colour, linestyle=dash, linewidth=width, label=name)
            target = float(np.median(one.targets))
            panel.axhline(target, color=SOFT, linewidth=0.7, linestyle=(0, (6, 3)), label="target")
            low = 0.5 * target if one.metric == "NDCG@20" else target - 0.04
            panel.set(xscale="log", ylim=(low, highest + 0.04 * (highest - low)))
            if one.metric == METRICS[0]:
                panel.set_title(SETS[one.folder][0])
            if one.metric == METRICS[-1]:
                panel.set_xlabel("seconds of fitting")
            if one.folder == folders[0]:
                panel.set_ylabel(one.metric)
        handles = {label: handle for panel in axes.flat for handle, label in zip(*panel.get_legend_handles_labels())}
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=len(handles))
        figure.savefig(path, transparent=True, metadata={"Date": None})
        plt.close(figure)


def settings_table(entered: Sequence[Entrant], folder: str) -> list[Row]:
    short = {"factors": "K", "regularization": "ridge", "lambda_reg": "ridge", "learning_rate": "rate"}
    return [
        {
            "set": SETS[folder][0],
            "fit": each.name,
            "for": each.metric,
            "settings": ", ".join(f"{short.get(name, name)} {value:.3g}" for name, value in each.settings.items()),
            "steps": each.iterations,
        }
        for each in entered
        if each.settings and each.iterations != FOREVER
    ]


def run(
    quick: bool = False, sets: Sequence[str] | None = None, seeds: int = 3, only: Sequence[str] | None = None
) -> Section:
    section = Section(f"Quality against time: {THREADS} threads")
    seeds = 1 if quick else seeds
    notes = [why for peer in FITS if (why := missing(peer)) is not None]
    races: list[Race] = []
    together: list[Row] = []
    chosen = section.tables["The peers' settings"] = []
    for folder in sets or (STUDIED[1:2] if quick else STUDIED):
        graph = real(folder)
        if graph is None:
            notes.append(f"{folder} was not found: set CONSIDERATE_DATA.")
            continue
        held = {seed: some_users(one_per_user(graph, seed), seed, TESTED_ON) for seed in range(seeds)}
        entered = [one for one in entrants(folder) if only is None or one.name in only]
        entered = [one for one in entered if missing(one.name) is None]
        chosen += settings_table(entered, folder)
        found, rows = race(folder, held, entered, quick)
        races += found
        together += rows
        about = f"{graph.user_count:,} users, {graph.item_count:,} items, {graph.edges:,} likes"
        notes.append(f"{SETS[folder][0]} ({folder}): {about}; tested on the likes of {len(held[0].users):,} users.")
    for metric in METRICS:
        section.tables[metric] = [row for one in races if one.metric == metric for row in one.rows()]
    section.tables["Both targets in one fit"] = together
    section.notes = [
        *notes,
        f"Medians of {seeds} seeds, each with a split of its own (LightFM, and BPR for NDCG@20: the first); '-' never "
        "gets there. The target is the better of what ALS and BPR end with, seed by seed. 's to it' is by the wall; "
        "'CPU s', of all threads, is the same in processor time, which a busy machine disturbs less; 's, all' is of "
        "the whole fit.",
        "ALS is implicit's with CG, float32 and one thread of BLAS; BPR is cornac's, which has no seed with two "
        "threads; LightFM is rectools-lightfm's WARP. Making the matrix and cornac's Dataset is off the clock; our "
        "graph, the walk's table and all else that `fit` does is on it.",
    ]
    section.raw = {
        f"{one.folder}, {one.metric}": {
            name: " ".join(f"{s:.3f}:{v:.4f}" for s, v in zip(lines[0].seconds, lines[0].values))
            for name, lines in one.curves.items()
        }
        for one in races
    }
    if not quick and {one.folder for one in races} == set(STUDIED) and only is None:
        plot(races, PICTURE)
        section.notes.append(f"Plot: docs/{PICTURE.name}. The JSON has the curves of the first seed, seconds:value.")
    judge(section, races)
    return section


def judge(section: Section, races: Sequence[Race]) -> None:
    """Ours first on every set, and well ahead on two."""
    slowest = []
    for folder in STUDIED:
        ratios = [one.ratio() for one in races if one.folder == folder]
        known = [ratio for ratio in ratios if ratio is not None]
        slowest.append(min(known) if known else None)
        section.must(f"{SETS[folder][0]}: s to target of the first of ALS and BPR / ours", slowest[-1], least=1)
    known = sorted(ratio for ratio in slowest if ratio is not None)
    section.must("the same, on the second best set", known[-2] if len(known) == len(STUDIED) else None, least=1.5)


def main() -> None:
    several: dict[str, Any] = {"nargs": "+", "metavar": "NAME"}
    command(
        "quality_time",
        run,
        sets=several | {"choices": STUDIED, "help": f"of {', '.join(STUDIED)}"},
        seeds={"type": int, "default": 3, "help": "splits, and starts of the fits"},
        only=several | {"help": f"of {OURS}, 'ours, expected', 'ours, sampled', {', '.join(FITS)}"},
    )


if __name__ == "__main__":
    main()
