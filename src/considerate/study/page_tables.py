"""The page's tables: rows of plain values to HTML, every text escaped."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TypeVar

from considerate.study.answers import COMPARED, degree_words, ours
from considerate.study.figures.fits import PAPER_TAUS
from considerate.study.results import ErrorByDegree, Interval, RankByDegree, Results

Strata = TypeVar("Strata", RankByDegree, ErrorByDegree)
NOTHING = "\N{EN DASH}"


@dataclass(frozen=True)
class Cell:
    """What is shown, what it is sorted by (None: by its text), and a smaller line below."""

    text: str
    value: float | None = None
    below: str = ""
    kind: str = ""  # a class of the style sheet


def words(text: str) -> Cell:
    return Cell(text, kind="text")


def prose(text: str) -> Cell:
    return Cell(text, kind="text wide")


def number(value: float, digits: int = 3, interval: Interval | None = None) -> Cell:
    below = ""
    if interval is not None and all(map(math.isfinite, interval)):
        below = f"{interval[0]:.{digits}f} to {interval[1]:.{digits}f}"
    text = f"{value:,.{digits}f}" if math.isfinite(value) else NOTHING
    return Cell(text.replace("-", "\N{MINUS SIGN}"), value, below.replace("-", "\N{MINUS SIGN}"))


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """A table in a box of its own, which scrolls sideways on a narrow screen; headers sort it."""
    rows = list(rows)
    kinds = [cell.kind.split(" ")[0] for cell in rows[0]] if rows else [""] * len(head)
    heads = "".join(f'<th scope="col" class="{kind}">{escape(name)}</th>' for name, kind in zip(head, kinds))
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>\n" for row in rows)
    label = escape(caption, quote=True)
    return (
        f'<div class="table" tabindex="0" role="region" aria-label="{label}">\n'
        f"<table><caption>{escape(caption)}</caption><thead><tr>{heads}</tr></thead>\n<tbody>{body}</tbody></table></div>\n"
    )


def _cell(cell: Cell) -> str:
    value = ""
    if cell.value is not None:
        value = f' data-value="{cell.value!r}"' if math.isfinite(cell.value) else ' data-value=""'
    below = f"<small>{escape(cell.below)}</small>" if cell.below else ""
    return f'<td class="{escape(cell.kind, quote=True)}"{value}>{escape(cell.text)}{below}</td>'


# --- One table, or a few, for each section ---


def comparison_tables(results: Results) -> str:
    scorers = results.comparisons
    if not scorers:
        return ""
    metrics = _ordered(metric for scorer in scorers for metric in scorer.metrics)
    rows = [
        [
            words(scorer.name),
            *(number(scorer.metrics.get(name, math.nan), 3, scorer.intervals.get(name)) for name in metrics),
            number(scorer.fit_seconds, 1),
            number(scorer.trials, 0),
            prose(scorer.settings),
        ]
        for scorer in scorers
    ]
    text = table(
        "All scorers on the same held-out likes; below each figure its 95 % interval",
        ["scorer", *metrics, "fit (s)", "trials", "chosen on validation"],
        rows,
    )
    peers = [peer for peer in scorers if peer is not ours(results) and peer.difference]
    if peers:
        metrics = _ordered(metric for peer in peers for metric in peer.difference)
        differences = [
            [
                words(peer.name),
                *(number(peer.difference.get(m, math.nan), 4, peer.difference_intervals.get(m)) for m in metrics),
            ]
            for peer in peers
        ]
        text += table("Ours minus each peer, paired by user", ["peer", *metrics], differences)
    return text


def _ordered(metrics: Iterable[str]) -> list[str]:
    """Each metric once, those of the summary first."""
    seen = dict.fromkeys(metrics)
    return [name for name in COMPARED if name in seen] + [name for name in seen if name not in COMPARED]


def difference_tables(results: Results) -> str:
    rows = [
        [
            words(each.ours),
            words(each.peer),
            Cell(degree_words(each.low[at], each.high[at]), each.low[at]),
            number(each.difference[at], 4, each.interval[at]),
            number(each.count[at], 0),
        ]
        for each in results.differences
        for at in range(len(each.low))
    ]
    head = ["ours", "peer", "item's degree", "difference in S_rank", "likes"]
    return table("Ours minus each peer by the item's degree", head, rows) if rows else ""


def rank_tables(results: Results) -> str:
    return "".join(
        _by_degree(
            f"Mean S_rank by the {side}'s degree",
            [(rank.score, rank) for rank in results.ranks if rank.by == side],
            lambda rank, place: number(rank.mean[place], 3, rank.interval[place]),
        )
        for side in ("user", "item")
    )


def median_tables(results: Results) -> str:
    return "".join(
        _by_degree(
            f"Median of S_rank by the {side}'s degree; below it, the 5th to the 95th percentile",
            [(r.score, r) for r in results.ranks if r.by == side and {"5", "50", "95"} <= set(r.percentiles)],
            lambda r, place: number(
                r.percentiles["50"][place], 3, (r.percentiles["5"][place], r.percentiles["95"][place])
            ),
        )
        for side in ("user", "item")
    )


def error_tables(results: Results) -> str:
    return _by_degree(
        "Held-out likes with p(like) under 1/2 (%), by the user's degree",
        [(error.name, error) for error in results.errors],
        lambda error, place: number(
            100 * error.error[place], 1, (100 * error.interval[place][0], 100 * error.interval[place][1])
        ),
    )


def _by_degree(caption: str, named: list[tuple[str, Strata]], cell: Callable[[Strata, int], Cell]) -> str:
    """A row per bin of degree and a column per name; the bins of the first count."""
    if not named:
        return ""
    bins = sorted({(low, high) for _, each in named for low, high in zip(each.low, each.high)})
    rows = []
    for low, high in bins:
        count = 0
        cells: list[Cell] = []
        for _, each in named:
            at = list(zip(each.low, each.high))
            place = at.index((low, high)) if (low, high) in at else None
            cells.append(number(math.nan) if place is None else cell(each, place))
            count = count or (0 if place is None else each.count[place])
        rows.append([Cell(degree_words(low, high), low, kind="text"), number(count, 0), *cells])
    return table(caption, ["degree", "likes", *(name for name, _ in named)], rows)


def reliability_tables(results: Results) -> str:
    if not results.reliability:
        return ""
    rows = [
        [
            words(each.name),
            number(each.calibration_error, 4),
            number(each.brier, 4),
            number(each.log_loss, 4),
            number(each.auc, 4),
            number(sum(each.count), 0),
        ]
        for each in results.reliability
    ]
    text = table(
        "Honesty of p(like), both classes weighed equally",
        ["model", "calibration error", "Brier score", "log loss", "AUC", "pairs"],
        rows,
    )
    bins = [
        [words(each.name), Cell(f"{low:g}-{high:g}", low), *map(number, (predicted, observed)), number(count, 0)]
        for each in results.reliability
        for low, high, predicted, observed, count in zip(
            each.edges[:-1], each.edges[1:], each.predicted, each.observed, each.count
        )
    ]
    return text + table("By bin", ["model", "bin", "predicted", "liked", "pairs"], bins)


def knob_tables(results: Results) -> str:
    rows = []
    for knob in results.knobs:
        for place, weight in enumerate(knob.knob):
            chosen = " (chosen)" if math.isclose(weight, knob.chosen) else ""
            rows.append(
                [
                    words(knob.name),
                    Cell(f"{weight:.2f}{chosen}", weight),
                    number(knob.mean_rank[place]),
                    number(knob.tail_rank[place]),
                    number(knob.recall[place]),
                    number(100 * knob.coverage[place], 1),
                    number(knob.popularity[place], 0),
                ]
            )
    head = ["model", "weight", "S_rank", "S_rank tail", "Recall@20", "catalogue in lists (%)", "mean degree in lists"]
    return table("By the popularity weight", head, rows) if rows else ""


def trace_tables(results: Results) -> str:
    if not results.traces:
        return ""
    kinds = list(dict.fromkeys(kind for trace in results.traces for kind in trace.taus))
    rows = [
        [
            words(trace.name),
            number(len(trace.sweep), 0),
            number(_last(trace.bound), 0),
            *(number(_last(trace.taus.get(kind, [])), 2) for kind in kinds),
            number(_last(trace.spread), 2),
            number(_last(trace.rank)),
        ]
        for trace in results.traces
    ]
    nan, papers = number(math.nan), [number(PAPER_TAUS.get(kind, math.nan), 1) for kind in kinds]
    rows.append([words("in the paper, on other data"), nan, nan, *papers, nan, nan])
    names = [f"E[tau {kind.replace('_', ' ')}]" for kind in kinds]
    return table("After the last sweep", ["model", "sweeps", "bound", *names, "spread", "S_rank, validation"], rows)


def time_tables(results: Results) -> str:
    rows = [
        [words(time.name), number(_last(time.seconds), 2), number(_last(time.mean_rank)), number(_last(time.recall))]
        for time in results.times
    ]
    return table("At the end of the fit", ["scorer", "seconds", "S_rank", "Recall@20"], rows) if rows else ""


def law_tables(results: Results) -> str:
    rows = [[words(each.side), words(each.graph), words(each.law)] for each in results.degrees]
    return table("Fitted laws", ["side", "graph", "law"], rows) if rows else ""


def statement_tables(results: Results) -> str:
    verdicts = {True: ("agrees", "text yes"), False: ("differs", "text no"), None: ("cannot say", "text")}
    rows = [
        [
            prose(said.paper),
            prose(said.here),
            Cell(verdicts[said.agrees][0], kind=verdicts[said.agrees][1]),
            prose(said.why),
        ]
        for said in results.statements
    ]
    return table("What the paper says, and what was seen here", ["the paper", "here", "", "why"], rows) if rows else ""


def _last(values: Sequence[float]) -> float:
    return values[-1] if values else math.nan
