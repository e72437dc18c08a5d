"""The four questions of a study, answered in words from its numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from considerate.study.results import Comparison, KnobCurve, RankByDegree, Reliability, Results

SHOWN_FROM = 30  # likes in a stratum that is worth a sentence
COMPARED = {  # metric -> in words
    "S_rank": "mean S_rank",
    "S_rank tail": "S_rank in the tail",
    "S_rank tail, knob 0": "S_rank in the tail with our knob at 0",
    "Recall@20": "Recall@20",
    "NDCG@20": "NDCG@20",
}


@dataclass(frozen=True)
class Answer:
    """A question and what the numbers say to it."""

    question: str
    short: str  # a figure to remember
    sentences: list[str]


def answers(results: Results) -> list[Answer]:
    """How well it ranks, for whom and where; whether p(like) is honest; what the knob does; how it compares."""
    return [_ranking(results), _honesty(results), _knob(results), _comparison(results)]


def ours(results: Results) -> Comparison | None:
    """The scorer that the others are compared with: the first that has no difference to itself."""
    return next((scorer for scorer in results.comparisons if "S_rank" not in scorer.difference), None)


def peers_of(results: Results) -> list[Comparison]:
    """What others would use: not our model in another setting, nor the paper's scores."""
    own = re.compile(r"^(considerate|like|popularity [x×] like)\b")
    return [peer for peer in results.comparisons if peer is not ours(results) and not own.search(peer.name)]


def our_ranks(results: Results, by: str) -> RankByDegree | None:
    """The strata of our scorer, or of the knob under another name."""
    strata = [rank for rank in results.ranks if rank.by == by]
    scorer = ours(results)
    named = [rank for rank in strata if scorer is not None and rank.score == scorer.name]
    alike = [rank for rank in strata if re.search(r"knob|considerate|\bours?\b|default", rank.score.lower())]
    return next(iter([*named, *alike, *strata]), None)


def degree_words(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,}-{high:,}"


# --- How well does it rank ---


def _ranking(results: Results) -> Answer:
    question = "How well does it rank, for whom and in which part of the catalogue?"
    scorer, sentences, short = ours(results), [], ""
    if scorer is not None and math.isfinite(scorer.metrics.get("S_rank", math.nan)):
        rank = scorer.metrics["S_rank"]
        short = f"S_rank {rank:.3f}"
        low, high = scorer.intervals.get("S_rank", (rank, rank))
        sentences.append(
            f"A held-out like stands above {100 * rank:.1f} % of the items that are new to its user "
            f"(95 % interval {100 * low:.1f} to {100 * high:.1f}); guessing gives 50 %."
        )
        if math.isfinite(scorer.metrics.get("Recall@20", math.nan)):
            sentences.append(f"Recall@20 is {scorer.metrics['Recall@20']:.3f}.")
    sentences += _extremes(
        our_ranks(results, "user"), "For whom: best for users of {} likes ({}), weakest for {} ({})."
    )
    sentences += _ends(our_ranks(results, "item"))
    return Answer(question, short, sentences or ["This study ranked nothing."])


def _large(rank: RankByDegree | None) -> list[int]:
    """The strata with likes enough, and a finite mean."""
    if rank is None:
        return []
    return [place for place, n in enumerate(rank.count) if n >= SHOWN_FROM and math.isfinite(rank.mean[place])]


def _extremes(rank: RankByDegree | None, sentence: str) -> list[str]:
    large = _large(rank)
    if rank is None or len(large) < 2:
        return []
    best, worst = max(large, key=lambda i: rank.mean[i]), min(large, key=lambda i: rank.mean[i])
    parts = [(degree_words(rank.low[i], rank.high[i]), f"{rank.mean[i]:.3f}") for i in (best, worst)]
    return [sentence.format(*parts[0], *parts[1])]


def _ends(rank: RankByDegree | None) -> list[str]:
    large = _large(rank)
    if rank is None or len(large) < 2:
        return []
    tail, head = large[0], large[-1]
    return [
        f"Where: {rank.mean[tail]:.3f} in the tail (items of {degree_words(rank.low[tail], rank.high[tail])} likes), "
        f"{rank.mean[head]:.3f} in the head ({degree_words(rank.low[head], rank.high[head])})."
    ]


# --- Is p(like) honest ---


def _honesty(results: Results) -> Answer:
    tables = [table for table in results.reliability if math.isfinite(table.calibration_error)]
    sentences = []
    if tables:
        offs = [f"{table.calibration_error:.3f} ({table.name}{_boldness(table)})" for table in tables]
        aucs = [f"{100 * table.auc:.0f} % ({table.name})" for table in tables if "recalibrated" not in table.name]
        sentences.append(f"Against pairs whose truth is known, p(like) is off by {_listed(offs)} on average.")
        if aucs:
            sentences.append(
                f"A like is above a pair that was considered and not liked in {_listed(aucs)} of cases (AUC)."
            )
    else:
        sentences.append(
            "The data do not say who considered an item and did not like it, so p(like) can be checked on likes only."
        )
    return Answer("Is p(like) honest?", _honesty_in_short(tables), sentences + _error_words(results))


def _honesty_in_short(tables: list[Reliability]) -> str:
    raw = [table for table in tables if "recalibrated" not in table.name]
    again = [table.calibration_error for table in tables if "recalibrated" in table.name]
    raw.sort(key=lambda table: "default" not in table.name.lower())
    parts = [f"off by {table.calibration_error:.3f}" for table in raw[:1]]
    if again:
        parts.append(f"{min(again):.3f} recalibrated")
    return "; ".join(parts)


def _boldness(table: Reliability) -> str:
    """Whether the reliability curve is flatter or steeper than the diagonal, by weighted least squares."""
    predicted, observed, weight = (
        np.asarray(part, np.float64) for part in (table.predicted, table.observed, table.count)
    )
    seen = np.isfinite(predicted) & np.isfinite(observed) & (weight > 0)
    if seen.sum() < 3 or table.calibration_error < 0.02:
        return ""
    predicted, observed, weight = predicted[seen], observed[seen], weight[seen]
    along = predicted - np.average(predicted, weights=weight)
    variance = float(np.average(along**2, weights=weight))
    slope = float(np.average(along * observed, weights=weight)) / max(variance, 1e-12)
    if slope < 0.85:
        return ", too bold"
    if slope > 1.15:
        return ", too timid"
    return ""


def _error_words(results: Results) -> list[str]:
    known, alone = [], []
    for error in results.errors:
        bins = [
            (low, high, value, n)
            for low, high, value, n in zip(error.low, error.high, error.error, error.count)
            if n > 0 and math.isfinite(value)
        ]
        tens = [(value, n) for low, _, value, n in bins if low >= 10]
        if tens:
            mean = sum(value * n for value, n in tens) / sum(n for _, n in tens)
            known.append(f"{100 * mean:.1f} % ({error.name})")
        alone += [f"{100 * value:.0f} % ({error.name})" for _, high, value, _ in bins if high == 1]
    words = []
    if known:
        words.append(
            f"Of the held-out likes of users with ten likes or more, {_listed(known)} have p(like) below one half."
        )
    if alone:
        words.append(f"For users of one like it is {_listed(alone)}.")
    return words


# --- What does the knob do ---


def _knob(results: Results) -> Answer:
    question = "What does the knob do?"
    knob = next(iter(sorted(results.knobs, key=lambda curve: "default" not in curve.name.lower())), None)
    if knob is None or not knob.knob:
        return Answer(question, "", ["This study did not turn the knob."])
    return Answer(question, f"weight {knob.chosen:.2f}", _knob_words(knob))


def _knob_words(knob: KnobCurve) -> list[str]:
    def at(values: list[float], weight: float) -> float:
        return float(np.interp(weight, knob.knob, values))

    start = min(knob.knob)
    words = [f"Validation chose a popularity weight of {knob.chosen:.2f}."]
    changes = [
        f"mean S_rank goes from {at(knob.mean_rank, start):.3f} to {at(knob.mean_rank, knob.chosen):.3f}",
        f"that of the tail from {at(knob.tail_rank, start):.3f} to {at(knob.tail_rank, knob.chosen):.3f}",
        f"the share of the catalogue in someone's first 20 from {100 * at(knob.coverage, start):.0f} % to "
        f"{100 * at(knob.coverage, knob.chosen):.0f} %",
        f"the mean degree of what is recommended from {at(knob.popularity, start):,.0f} to "
        f"{at(knob.popularity, knob.chosen):,.0f}",
    ]
    changes = [change for change in changes if "nan" not in change]
    if knob.chosen > start and changes:
        words.append(f"From {start:g} to there {_listed(changes)}.")
    return words


# --- How does it compare ---


def _comparison(results: Results) -> Answer:
    question = "How does it compare with what I use now?"
    peers = peers_of(results)
    sentences, wins = [], 0
    for metric, words in COMPARED.items():
        sides: dict[str, list[str]] = {"ahead of": [], "level with": [], "behind": []}
        for peer in peers:
            if metric in peer.difference_intervals:
                low, high = peer.difference_intervals[metric]
                sides["ahead of" if low > 0 else "behind" if high < 0 else "level with"].append(peer.name)
        if any(sides.values()):
            said = [f"{side} {_listed(names)}" for side, names in sides.items() if names]
            sentences.append(f"{words[0].upper()}{words[1:]}: {', '.join(said)}.")
        if metric == "S_rank":
            wins = len(sides["ahead of"])
    if not sentences:
        return Answer(question, "", ["No peer was compared with."])
    sentences.append("Ahead and behind are meant beyond the paired 95 % interval.")
    return Answer(question, f"ahead of {wins} of {len(peers)}", sentences)


def _listed(words: Iterable[str]) -> str:
    words = list(words)
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
