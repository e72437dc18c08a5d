"""Captions: sentences about each figure of a study, computed from the numbers in the figure.

A sentence names values and their bins. It claims no trend, so it cannot contradict its figure. Like the figures, it
skips bins of few likes, which are in the tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from considerate.study.figures.style import IN_THE_TABLE, enough
from considerate.study.names import METRICS, plain_name, rounded
from considerate.study.results import RankByDegree, Results, degree_range

RECALIBRATED = ", recalibrated"


def make_captions(results: Results) -> dict[str, list[str]]:
    """Return figure -> its sentences, for every figure that has sentences."""
    captions = {name: list(make(results)) for name, make in _SENTENCES.items()}
    return {name: sentences for name, sentences in captions.items() if sentences}


def number(value: float, digits: int = 3) -> str:
    """Format a number, with a true minus sign; a dash if it is not finite."""
    return f"{value:,.{digits}f}".replace("-", "\N{MINUS SIGN}") if math.isfinite(value) else "\N{EN DASH}"


def signed(value: float, digits: int = 3) -> str:
    return ("+" if value > 0 else "") + number(value, digits)


def percent(share: float, digits: int = 0) -> str:
    return f"{number(100 * share, digits)}\N{NO-BREAK SPACE}%"


def listed(names: Sequence[str]) -> str:
    """Join names with commas and an "and"."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)


@dataclass(frozen=True)
class Bin:
    """Value of one bin of degrees."""

    degrees: str  # "10-31"
    value: float
    place: int  # its index in the lists of the table


def shown_bins(table: Any, values: Sequence[float]) -> list[Bin]:
    """Return the bins that a figure shows: those with enough likes."""
    kept = enough(values, table.count)
    return [
        Bin(degree_range(low, high), float(value), place)
        for place, (low, high, value) in enumerate(zip(table.low, table.high, kept))
        if math.isfinite(value)
    ]


def extremes(bins: Sequence[Bin]) -> tuple[Bin, Bin]:
    """Return the bins with the (highest, lowest) value."""
    return max(bins, key=lambda each: each.value), min(bins, key=lambda each: each.value)


def our_ranks(results: Results, side: str) -> RankByDegree | None:
    """Find the ranks of our scorer by the degree of users or items."""
    ours = results.ours.name if results.ours else None
    return next((rank for rank in results.ranks if rank.by == side and rank.score == ours), None)


def standings(results: Results) -> dict[str, dict[str, list[str]]]:
    """Return metric -> the peers that ours is ahead of, level with and behind, by the paired intervals."""
    standings: dict[str, dict[str, list[str]]] = {}
    for metric in METRICS:
        sides: dict[str, list[str]] = {"ahead of": [], "level with": [], "behind": []}
        for peer in results.peers:
            if metric in peer.difference_intervals:
                sides[standing(peer.difference_intervals[metric])].append(plain_name(peer.name))
        if any(sides.values()):
            standings[metric] = sides
    return standings


def standing(interval: tuple[float, float]) -> str:
    """Compare ours with a peer, by the interval of ours minus the peer."""
    return "ahead of" if interval[0] > 0 else "behind" if interval[1] < 0 else "level with"


# --- Sentences of each figure ---


def _differences(results: Results) -> Iterator[str]:
    gaps = [
        (peer.difference[metric], f"{name}, {plain_name(peer.name)}")
        for metric, name in METRICS.items()
        for peer in results.peers
        if math.isfinite(peer.difference.get(metric, math.nan))
    ]
    if gaps:
        best, worst = max(gaps), min(gaps)
        yield f"Ours does best at {signed(best[0])} ({best[1]}) and worst at {signed(worst[0])} ({worst[1]})."
    behind = {METRICS[metric]: sides["behind"] for metric, sides in standings(results).items() if sides["behind"]}
    for metric, names in behind.items():
        yield f"By {metric} it is behind {listed(names)}."
    if gaps and not behind:
        yield "No peer is ahead of it beyond the 95 % interval."


def _differences_by_degree(results: Results) -> Iterator[str]:
    for version in dict.fromkeys(row.ours for row in results.differences):
        strata = [
            (each.value, row.peer, each.degrees, row.interval[each.place])
            for row in results.differences
            if row.ours == version
            for each in shown_bins(row, row.difference)
            if each.place in row.separate_bins()
        ]
        if not strata:
            continue
        best, worst = max(strata), min(strata)
        behind = sum(standing(interval) == "behind" for *_, interval in strata)
        yield (
            f"{plain_name(version)}: best {signed(best[0])} against {plain_name(best[1])} on items of {best[2]} likes, "
            f"worst {signed(worst[0])} against {plain_name(worst[1])} on items of {worst[2]}. Of {len(strata)} points, "
            f"{behind} are below zero beyond their interval."
        )


def _mean_ranks(results: Results) -> Iterator[str]:
    for side in ("user", "item"):
        ours = our_ranks(results, side)
        bins = shown_bins(ours, ours.mean) if ours else []
        if ours is None or not bins:
            continue
        best, worst = extremes(bins)
        text = f"By the {side}'s degree, ours is best at {best.degrees} likes ({number(best.value)})"
        text += f" and worst at {worst.degrees} ({number(worst.value)})"
        others = [
            (rank.mean[worst.place], plain_name(rank.score))
            for rank in results.ranks
            if rank.by == side and rank.low == ours.low and rank.mean[worst.place] > worst.value
            if rank.score not in IN_THE_TABLE
        ]
        there = f"where {max(others)[1]} is best ({number(max(others)[0])})" if others else "still the best there"
        yield f"{text}, {there}."


def _percentiles(results: Results) -> Iterator[str]:
    for side in ("user", "item"):
        rank = our_ranks(results, side)
        bins = shown_bins(rank, rank.percentiles["5"]) if rank and "5" in rank.percentiles else []
        if rank and bins:
            best, worst = extremes(bins)
            yield (
                f"Ours, by the {side}'s degree: one held-out like in twenty ranks below {number(worst.value, 2)} at "
                f"{worst.degrees} likes, its worst, and below {number(best.value, 2)} at {best.degrees}, its best."
            )


def _errors(results: Results) -> Iterator[str]:
    for table in results.errors:
        bins = shown_bins(table, table.error)
        if bins:
            highest, lowest = extremes(bins)
            yield (
                f"{table.name}: lowest {percent(lowest.value, 1)} (users of {lowest.degrees} likes), highest "
                f"{percent(highest.value, 1)} ({highest.degrees})."
            )


def _histograms(results: Results) -> Iterator[str]:
    for model in results.histograms:
        middle = 0.5 * (np.array(model.edges[1:]) + np.array(model.edges[:-1]))
        means = [float(np.dot(share, middle) / max(sum(share), 1e-12)) for share in model.share]
        bins = shown_bins(model, means)
        if bins:
            first, last = bins[0], bins[-1]
            yield (
                f"{model.name}: mean p(like) is {number(first.value, 2)} for users of {first.degrees} likes and "
                f"{number(last.value, 2)} for {last.degrees}."
            )


def _reliability(results: Results) -> Iterator[str]:
    errors = {table.name: table.calibration_error for table in results.reliability}
    for table in results.reliability:
        worst, best = worst_and_best_bin(table)
        if worst is not None:
            yield f"{table.name}: furthest off where it {worst}; closest where it {best}."
    for name, error in errors.items():
        raw = errors.get(name.removesuffix(RECALIBRATED), math.nan) if name.endswith(RECALIBRATED) else math.nan
        if math.isfinite(raw) and math.isfinite(error):
            verb = "lowers" if error < raw else "does not lower"
            yield f"Recalibration on other users {verb} the error: {number(raw)} before, {number(error)} after."


def worst_and_best_bin(table: Any) -> tuple[str | None, str | None]:
    """Describe the bins of a reliability curve that are furthest from the diagonal and closest to it."""
    kept = enough(table.observed, table.count)
    pairs = [(p, seen) for p, seen in zip(table.predicted, kept) if math.isfinite(p) and math.isfinite(seen)]
    pairs.sort(key=lambda pair: abs(pair[0] - pair[1]))
    words = [f"predicts {percent(p)} and {percent(seen)} liked" for p, seen in pairs]
    return (words[-1], words[0]) if words else (None, None)


def _considered(results: Results) -> Iterator[str]:
    scores = [score for score in results.considered if math.isfinite(score.auc)]
    if scores:
        best, worst = max(scores, key=lambda score: score.auc), min(scores, key=lambda score: score.auc)
        yield (
            f"Over all users {plain_name(best.name)} separates the two kinds best (AUC {number(best.auc)}), "
            f"{plain_name(worst.name)} worst ({number(worst.auc)})."
        )
        bins = shown_bins(best, best.mean)
        if bins:
            high, low = extremes(bins)
            yield (
                f"{plain_name(best.name)}: best for users of {high.degrees} likes ({number(high.value)}), worst for "
                f"{low.degrees} ({number(low.value)})."
            )


def _knob(results: Results) -> Iterator[str]:
    for knob in results.knobs:
        curves = {"mean rank": knob.mean_rank, "mean rank in the tail": knob.tail_rank, "Recall@20": knob.recall}
        tops = [
            f"{name} is highest at {knob.knob[int(np.nanargmax(values))]:g}"
            for name, values in curves.items()
            if np.isfinite(values).any()
        ]
        if tops:
            yield f"Of the weights shown, {listed(tops)}; validation chose {knob.chosen:.2f}."
        first, last = knob.knob[0], knob.knob[-1]
        yield (
            f"From {first:g} to {last:g}, the share of the catalogue in lists goes from {percent(knob.coverage[0])} to "
            f"{percent(knob.coverage[-1])} and the mean degree in lists from {number(knob.popularity[0], 0)} to "
            f"{number(knob.popularity[-1], 0)}."
        )


def _times(results: Results) -> Iterator[str]:
    ends = [(time.mean_rank[-1], time.seconds[-1], plain_name(time.name)) for time in results.times if time.seconds]
    if ends:
        best, worst = max(ends), min(ends)
        yield (
            f"At the end of the fit, {best[2]} has the best mean rank ({number(best[0])} after {number(best[1], 1)} s) "
            f"and {worst[2]} the worst ({number(worst[0])} after {number(worst[1], 1)} s)."
        )


def _traces(results: Results) -> Iterator[str]:
    for trace in results.traces:
        if len(trace.bound) > 1:
            change = (trace.bound[-1] - trace.bound[-2]) / max(abs(trace.bound[-1]), 1e-12)
            yield (
                f"{trace.name}: {len(trace.sweep)} sweeps; the last one changed the bound by "
                f"{number(100 * change, 3)} %; the spread ended at {number(trace.spread[-1], 2)}, mean rank at "
                f"{number(trace.rank[-1])}."
            )


def _degrees(results: Results, graphs: Sequence[str] = ("G",)) -> Iterator[str]:
    for side in results.degrees:
        if side.graph not in graphs or len(side.law_degree) < 2:
            continue
        centre, seen = np.array(side.centre), np.array(side.density)
        inside = (centre >= side.law_degree[0]) & (centre <= side.law_degree[-1]) & (seen > 0)
        if not inside.any():
            continue
        law = np.interp(np.log(centre[inside]), np.log(side.law_degree), np.log(np.maximum(side.law_density, 1e-300)))
        gap = np.log(seen[inside]) - law
        at = int(np.argmax(np.abs(gap)))
        more = "above" if gap[at] > 0 else "below"
        graph, law_text = "" if side.graph == "G" else " of the drawn H", rounded(side.law.replace("..", " to "))
        yield (
            f"{side.side.capitalize()}{graph}: the fitted law is {law_text}; the points are furthest from it at degree "
            f"{number(centre[inside][at], 0)}, {math.exp(abs(gap[at])):.1f} times {more}."
        )


def _hidden_degrees(results: Results) -> Iterator[str]:
    return _degrees(results, [side.graph for side in results.degrees if side.graph != "G"])


def _balance(results: Results) -> Iterator[str]:
    for balance in results.balance:
        bins = [pair for pair in zip(balance.bin_centre, balance.bin_ratio) if math.isfinite(pair[1])]
        if bins:
            (low, first), (high, last) = bins[0], bins[-1]
            yield (
                f"{balance.name}: {number(first, 2)} likes to a negative at degree {number(low, 0)}, "
                f"{number(last, 2)} at degree {number(high, 0)}."
            )


_SENTENCES: dict[str, Callable[[Results], Iterator[str]]] = {
    "differences": _differences,
    "differences-by-degree": _differences_by_degree,
    "mean-ranks": _mean_ranks,
    "percentiles": _percentiles,
    "errors": _errors,
    "histograms": _histograms,
    "reliability": _reliability,
    "considered": _considered,
    "knob": _knob,
    "times": _times,
    "traces": _traces,
    "degrees": _degrees,
    "balance": _balance,
    "hidden-degrees": _hidden_degrees,
}
