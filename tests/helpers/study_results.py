"""A study's results with plausible values, as if MovieLens had been studied; nothing is fitted."""

from __future__ import annotations

import functools
import itertools
import math
import tempfile
import warnings
from pathlib import Path

import numpy as np

from considerate.study.results import (
    Balance,
    ConsideredByDegree,
    Data,
    Degrees,
    DifferenceByDegree,
    ErrorByDegree,
    Example,
    Interval,
    KnobCurve,
    LikeHistogram,
    RankByDegree,
    Reliability,
    Results,
    ScorerResult,
    Statement,
    TimeCurve,
    Trace,
)

SCORES = {  # score -> S_rank of its head, of its tail
    "considerate": (0.955, 0.66),
    "considerate, for the tail": (0.84, 0.81),
    "like, r = 1": (0.80, 0.83),
    "popularity x like, r = 1": (0.96, 0.45),
    "like, r = 1/2": (0.86, 0.80),
    "popularity x like, r = 1/2": (0.965, 0.40),
    "popularity": (0.95, 0.25),
    "BPR-uniform": (0.96, 0.52),
    "BPR-popularity": (0.85, 0.78),
    "ALS": (0.945, 0.55),
    "EASE": (0.95, 0.60),
}
MODELS = ["default", "the paper's, r = 1", "the paper's, r = 1/2"]
OURS = "considerate"
_FOLDER = tempfile.TemporaryDirectory(prefix="a report ")
PEERS = ("popularity", "BPR-uniform", "BPR-popularity", "ALS", "EASE")


@functools.cache
def drawn_once() -> dict[str, Path]:
    """The figures of `plausible_results`, in a folder that ends with the tests. A warning is an error: a layout that
    does not fit, a glyph that is missing."""
    from considerate.study.figures import draw_all

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return draw_all(plausible_results(), Path(_FOLDER.name) / "figures")


def empty_results(name: str = "nothing") -> Results:
    return Results(Data(name, "nothing.csv", None, 0, 0, 0, 0, [], "none", 0, 0, 0))


def plausible_results(name: str = "MovieLens 1M", items: int = 3500) -> Results:
    random = np.random.default_rng(4)
    data = Data(
        name=name,
        source="ml-1m/ratings.dat",
        rule="rating >= 4",
        users=6038,
        items=items,
        likes=575_281,
        duplicates=0,
        notes=["2 users without a like are left out"],
        split="one random like of each user held out",
        splits=5,
        held_out=6038,
        judged=81_434,
    )
    return Results(
        data=data,
        degrees=_degrees(random),
        balance=_balance(random, items),
        errors=_errors(random),
        histograms=_histograms(random),
        ranks=_ranks(random),
        reliability=_reliability(random),
        considered=_considered(),
        knobs=_knobs(),
        traces=_traces(random),
        times=_times(),
        comparisons=_comparisons(random),
        differences=_differences(random),
        statements=[
            Statement("an error of 16-19 % from ten to twenty items on", "17.2 % for users of 20 items on", True, ""),
            Statement("near 50 % for users of one item", "no user has one item", None, "each user rated 20 or more"),
            Statement("E[tau_u] = 2.0", "2.61", False, "fewer users, and each with more items"),
        ],
        examples=[
            Example(
                user="u 17",
                degree=12,
                liked=["Alien", "Brazil"],
                held_out=["Dune"],
                lists={"considerate, first places": ["Dune", "Solaris"], "most popular": ["Titanic", "Jaws"]},
                p_like=[0.81, 0.64],
            )
        ],
        seconds=734.2,
        reused_seconds=3000.0,
        versions={"considerate": "0.1.0", "numpy": "2.3.1", "python": "3.12.4"},
    )


def _bins(top: int) -> tuple[list[int], list[int]]:
    edges = np.unique(np.round(np.geomspace(1, top + 1, 13)).astype(int))
    return edges[:-1].tolist(), (edges[1:] - 1).tolist()


def _interval(value: float, width: float) -> Interval:
    return (value - width, value + width)


def _degrees(random: np.random.Generator) -> list[Degrees]:
    sides = []
    for side, exponent, cutoff, top in (("users", 0.4, 180.0, 2000), ("items", 0.77, 900.0, 3000)):
        for graph, factor in (("G", 1.0), ("H drawn", 2.0)):
            centre = np.geomspace(1, top * factor, 28)
            law = centre**-exponent * np.exp(-centre / (cutoff * factor)) * 300 / factor
            seen = law * np.exp(0.25 * random.standard_normal(28))
            words = f"d^-{exponent} exp(-d/{cutoff * factor:g}) on 1..{top * factor:g}"
            parts = [part.tolist() for part in (centre, seen, centre, law)]
            sides.append(Degrees(side, graph, parts[0], parts[1], words, parts[2], parts[3]))
    return sides


def _balance(random: np.random.Generator, items: int) -> list[Balance]:
    degree = np.minimum(np.ceil(random.pareto(0.7, items) * 4), 3000).astype(int)
    balances = []
    for r, words in ((1.0, "r = 1"), (0.5, "r = 1/2")):
        for corrected in (False, True):
            expected = degree**r * degree.sum() / (degree**r).sum()
            if not corrected:
                expected = expected * (1 - 0.8 * (degree / 3000) ** 1.5)
            negatives = random.poisson(expected)
            edges = np.geomspace(1, 3001, 13)
            inside = [(degree >= low) & (degree < high) for low, high in itertools.pairwise(edges)]
            ratio = [float(degree[each].sum() / max(negatives[each].sum(), 1)) for each in inside]
            name = words + (", head corrected" if corrected else "")
            centre = np.sqrt(edges[1:] * edges[:-1]).tolist()
            balances.append(Balance(name, degree.tolist(), negatives.astype(float).tolist(), centre, ratio))
    return balances


def _errors(random: np.random.Generator) -> list[ErrorByDegree]:
    low, high = _bins(1200)
    count = [int(2000 / (1 + (i - 7) ** 2)) + 3 for i in range(len(low))]
    found = []
    for place, name in enumerate(MODELS):
        error = [0.17 + 0.02 * place + 0.33 / d**0.7 + 0.005 * float(random.standard_normal()) for d in low]
        interval = [_interval(value, 0.5 / math.sqrt(n)) for value, n in zip(error, count)]
        found.append(ErrorByDegree(name, low, high, error, interval, count))
    return found


def _histograms(random: np.random.Generator) -> list[LikeHistogram]:
    edges = np.linspace(0, 1, 21)
    low = [1, 2, 3, 4, 5, 7, 9, 11, 14, 17, 21, 26, 31, 36]
    high = [*(each - 1 for each in low[1:]), 40]
    found = []
    for place, name in enumerate(MODELS):
        share, count = [], []
        for degree in low:
            n = int(60 + 40 * degree)
            mean = 0.5 + (0.26 + 0.05 * place) * (1 - 1 / degree**0.6)
            p = random.beta(12 * mean, 12 * (1 - mean), n)
            share.append((np.histogram(p, edges)[0] / n).tolist())
            count.append(n)
        found.append(LikeHistogram(name, edges.tolist(), low, high, share, count))
    return found


def _ranks(random: np.random.Generator) -> list[RankByDegree]:
    found = []
    for score, (head, tail) in SCORES.items():
        for by, top in (("user", 1200), ("item", 3000)):
            low, high = _bins(top)
            if by == "item":
                low, high = [0, *low], [0, *high]  # held-out items that no one else likes
            along = np.linspace(0, 1, len(low))
            if by == "item":
                mean = tail + (head - tail) * along**0.8
                count = [int(12 * 1.9**i) for i in range(len(low))]
            else:
                mean = 0.3 * tail + 0.7 * head + 0.03 - 0.03 * (along - 0.5) ** 2 - 0.08 * along**3
                count = [int(2000 / (1 + (i - 7) ** 2)) + 3 for i in range(len(low))]
            mean = np.minimum(mean + 0.004 * random.standard_normal(len(low)), 0.99)
            room = 1 - mean
            percentiles = {
                "5": mean - 2.2 * room,
                "25": mean - 0.5 * room,
                "50": mean + 0.35 * room,
                "75": mean + 0.7 * room,
                "95": mean + 0.95 * room,
            }
            interval = [_interval(float(m), float(0.5 * r / math.sqrt(n))) for m, r, n in zip(mean, room, count)]
            plain = {key: np.clip(values, 0, 1).tolist() for key, values in percentiles.items()}
            found.append(RankByDegree(score, by, low, high, mean.tolist(), interval, plain, count))
    return found


def _reliability(random: np.random.Generator) -> list[Reliability]:
    edges = np.linspace(0, 1, 11)
    middle = 0.5 * (edges[1:] + edges[:-1])
    found = []
    for name, slope, error in (
        ("the paper's, r = 1/2", 0.4, 0.112),
        ("default", 0.55, 0.084),
        ("default, recalibrated", 1.0, 0.012),
    ):
        observed = np.clip(0.5 + slope * (middle - 0.5) + 0.01 * random.standard_normal(10), 0, 1)
        count = [int(16000 * math.exp(-(((m - 0.6) / 0.2) ** 2))) for m in middle]
        found.append(
            Reliability(name, edges.tolist(), middle.tolist(), observed.tolist(), count, error, 0.221, 0.634, 0.688)
        )
    return found


def _considered() -> list[ConsideredByDegree]:
    low, high, count = [10, 32, 100, 317], [31, 99, 316, 999], [900, 2600, 1900, 600]
    found = []
    for name, auc in (("pi", 0.794), ("w", 0.828), ("a", 0.801), ("a + log w", 0.875)):
        mean = [auc + step for step in (0.02, 0.01, -0.02, -0.05)]
        intervals = [_interval(value, 0.004) for value in mean]
        found.append(ConsideredByDegree(name, auc, _interval(auc, 0.002), low, high, mean, intervals, count))
    return found


def _knobs() -> list[KnobCurve]:
    knob = np.linspace(0, 1.5, 16)
    found = []
    for name, best in ((OURS, 0.55),):
        mean, tail = 0.925 - 0.06 * (knob - best) ** 2, 0.76 - 0.28 * knob
        recall, coverage = 0.28 - 0.12 * (knob - best) ** 2, 0.8 * np.exp(-1.4 * knob) + 0.08
        popularity = 300 + 900 * (1 - np.exp(-1.6 * knob))
        series = [values.tolist() for values in (knob, mean, tail, recall, coverage, popularity)]
        found.append(KnobCurve(name, *series, chosen=best))
    return found


def _traces(random: np.random.Generator) -> list[Trace]:
    sweep = np.arange(1, 21)
    found = []
    for place, name in enumerate([OURS, *MODELS[1:]]):
        settle = 1 - np.exp(-sweep / (3 + place))
        bound = -6.9e5 + 1.2e5 * settle - 2e4 * place + 300 * random.standard_normal(20)
        taus = {"user": 1 + (1.6 - 0.3 * place) * settle, "item": 1 + 3 * settle, "item_bias": 1 - 0.55 * settle}
        spread = np.sqrt(20 / (taus["user"] * taus["item"]))
        rank = 0.7 + 0.22 * settle
        found.append(
            Trace(
                name,
                sweep.tolist(),
                bound.tolist(),
                {key: values.tolist() for key, values in taus.items()},
                spread.tolist(),
                rank.tolist(),
            )
        )
    return found


def _times() -> list[TimeCurve]:
    found = []
    for name, step, best in ((OURS, 0.6, 0.93), ("BPR-uniform", 2.0, 0.928), ("BPR-popularity", 2.1, 0.83)):
        seconds = step * np.arange(1, 13)
        quality = 1 - np.exp(-np.arange(1, 13) / 3)
        curves = [seconds.tolist(), (0.7 + (best - 0.7) * quality).tolist(), (0.3 * best * quality).tolist()]
        found.append(TimeCurve(name, *curves))
    found.append(TimeCurve("ALS", [0.3, 0.6, 1.2, 2.4], [0.86, 0.9, 0.91, 0.911], [0.2, 0.25, 0.27, 0.272]))
    found.append(TimeCurve("EASE", [3.1], [0.915], [0.31]))
    found.append(TimeCurve("popularity", [0.002], [0.86], [0.12]))
    return found


def _comparisons(random: np.random.Generator) -> list[ScorerResult]:
    values = {
        OURS: (0.931, 0.71, 0.291),
        "considerate, for the tail": (0.884, 0.79, 0.221),
        "like, r = 1": (0.85, 0.78, 0.16),
        "popularity": (0.861, 0.28, 0.118),
        "BPR-uniform": (0.924, 0.60, 0.271),
        "BPR-popularity": (0.846, 0.72, 0.180),
        "ALS": (0.912, 0.62, 0.285),
        "EASE": (0.921, 0.66, 0.312),
    }
    found = []
    for name, (rank, tail, recall) in values.items():
        metrics = {"S_rank": rank, "Recall@20": recall, "NDCG@20": 0.42 * recall, "MRR": 0.3 * recall}
        metrics |= {"S_rank tail": tail, "coverage@20": 0.4, "Gini@20": 0.9}
        difference: dict[str, float] = {}
        if name != OURS:
            best = values[OURS]
            difference = {"S_rank": best[0] - rank, "Recall@20": best[2] - recall, "NDCG@20": 0.42 * (best[2] - recall)}
            difference["S_rank tail"] = best[1] - tail
        if name != "considerate, for the tail":
            without = values["considerate, for the tail"]
            difference |= {"S_rank, for the tail": without[0] - rank, "S_rank tail, for the tail": without[1] - tail}
        found.append(
            ScorerResult(
                name,
                "64 factors" if name != "popularity" else "nothing to tune",
                6 if name != "popularity" else 0,
                float(random.uniform(0.5, 30)),
                metrics,
                {key: _interval(value, 0.004) for key, value in metrics.items()},
                difference,
                {key: _interval(value, float(random.uniform(0.002, 0.005))) for key, value in difference.items()},
            )
        )
    return found


def _differences(random: np.random.Generator) -> list[DifferenceByDegree]:
    low, high = [0, 10, 32, 100, 317, 1000, 0], [9, 31, 99, 316, 999, 3000, 99]
    count = [200, 900, 3100, 8000, 11_000, 7000, 4200]
    found = []
    for name in (OURS, "considerate, for the tail"):
        for peer in PEERS:
            (our_head, our_tail), (head, tail) = SCORES[name], SCORES[peer]
            along = np.array([0, 0.2, 0.4, 0.6, 0.8, 1.0, 0.3])
            mean = (our_tail - tail) * (1 - along) + (our_head - head) * along + 0.003 * random.standard_normal(7)
            within = [_interval(float(value), 0.4 / math.sqrt(n)) for value, n in zip(mean, count)]
            found.append(DifferenceByDegree(name, peer, "item", low, high, mean.tolist(), within, count))
    return found
