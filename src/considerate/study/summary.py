"""From what was measured on every split to the tables of the results: pooled over splits, users resampled whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.errors import DataError
from considerate.evaluation.bootstrap import intervals, paired_interval
from considerate.evaluation.calibration import errors_by_degree, fit_recalibration, reliability
from considerate.evaluation.metrics import user_metrics
from considerate.evaluation.report import TAIL
from considerate.evaluation.split import HeldOut
from considerate.evaluation.strata import log_bins, strata
from considerate.study.fits import K, Measured
from considerate.study.results import (
    DifferenceByDegree,
    ErrorByDegree,
    Interval,
    LikeHistogram,
    RankByDegree,
    Reliability,
    ScorerResult,
)

Floats = NDArray[np.float64]
ERROR_BINS_PER_DECADE = 8
CELLS = 20  # of a histogram of p(like)
HISTOGRAM_ROWS = (
    *((1, 1), (2, 2), (3, 3), (4, 4), (5, 6), (7, 8), (9, 10)),
    *((11, 13), (14, 16), (17, 20), (21, 25), (26, 30), (31, 35), (36, 40)),
)
PAIRED = ("S_rank", f"Recall@{K}", f"NDCG@{K}", "MRR", f"MAP@{K}", f"hit rate@{K}")
HALVES = 0x4A1F


@dataclass(frozen=True)
class Contender:
    """One scorer in the comparison."""

    name: str
    settings: str  # in words
    trials: int
    splits: list[Measured]


def edges_of(splits: Sequence[HeldOut]) -> dict[str, NDArray[np.int64]]:
    """User, its degree in training and the item's, of the held-out likes of all splits."""
    return {
        "user": np.concatenate([held.users for held in splits]),
        "user degree": np.concatenate([held.train.by_user.degrees[held.users] for held in splits]),
        "item degree": np.concatenate([held.train.by_item.degrees[held.items] for held in splits]),
    }


def pooled_ranks(contender: Contender) -> Floats:
    """S_rank of every held-out like of all splits."""
    return np.concatenate([one.ranks.scores for one in contender.splits])


def ranks_by_degree(contender: Contender, splits: Sequence[HeldOut], seed: int, resamples: int) -> list[RankByDegree]:
    """S_rank by the user's and by the item's degree (fig. 6 and 7)."""
    edges, values, found = edges_of(splits), pooled_ranks(contender), []
    for by in ("user", "item"):
        rows = strata(values, edges[f"{by} degree"], edges["user"], seed=seed, resamples=resamples)
        found.append(
            RankByDegree(
                contender.name,
                by,
                [row.low for row in rows],
                [row.high for row in rows],
                [row.mean for row in rows],
                [row.interval for row in rows],
                {cut: [row.percentiles[cut] for row in rows] for cut in rows[0].percentiles},
                [row.count for row in rows],
            )
        )
    return found


def errors(name: str, p: Sequence[Floats], splits: Sequence[HeldOut], seed: int, resamples: int) -> ErrorByDegree:
    """Share of held-out likes with p(like) < 1/2 by the user's degree (fig. 4)."""
    edges = edges_of(splits)
    starts = log_bins(int(edges["user degree"].max()), ERROR_BINS_PER_DECADE)
    rows = errors_by_degree(
        np.concatenate(p), edges["user degree"], edges["user"], starts=starts, seed=seed, resamples=resamples
    )
    return ErrorByDegree(
        name,
        [row.low for row in rows],
        [row.high for row in rows],
        [row.mean for row in rows],
        [row.interval for row in rows],
        [row.count for row in rows],
    )


def histogram(name: str, p: Sequence[Floats], splits: Sequence[HeldOut]) -> LikeHistogram:
    """p(like) of held-out likes by the user's degree, from one item to forty (fig. 5)."""
    degree, values = edges_of(splits)["user degree"], np.concatenate(p)
    edges = np.linspace(0.0, 1.0, CELLS + 1)
    low, high, share, count = [], [], [], []
    for first, last in HISTOGRAM_ROWS:
        inside = (degree >= first) & (degree <= last)
        if inside.any():
            cells = np.histogram(values[inside], edges)[0]
            low.append(first)
            high.append(last)
            share.append((cells / cells.sum()).tolist())
            count.append(int(inside.sum()))
    return LikeHistogram(name, edges.tolist(), low, high, share, count)


def compare(
    contenders: Sequence[Contender], ours: str, without: str, splits: Sequence[HeldOut], seed: int, resamples: int
) -> list[ScorerResult]:
    """Every contender's metrics with intervals, and what `ours` (and `without`, at knob 0) is better by.

    Users are resampled with all their splits; the same resamples serve all, so that differences are paired.
    """
    people = np.concatenate([one.ranks.people for one in contenders[0].splits])
    tables = {one.name: _per_user(one) for one in contenders}
    columns: dict[str, Floats] = {}
    for name, table in tables.items():
        columns |= {f"{name}|{metric}": values for metric, values in table.items()}
        columns |= {f"{name}|-{metric}": tables[ours][metric] - table[metric] for metric in PAIRED}
        columns[f"{name}|0S_rank"] = tables[without]["S_rank"] - table["S_rank"]
    bounds = intervals(columns, seed, resamples=resamples, groups=people)
    edges = edges_of(splits)
    tail = edges["item degree"] < TAIL
    tails = {one.name: pooled_ranks(one)[tail] for one in contenders}
    tail_bounds: dict[str, Interval] = {}
    if tail.any():
        columns_of_tail: dict[str, Floats] = {}
        for name, values in tails.items():
            columns_of_tail |= {name: values, f"{name}|-": tails[ours] - values, f"{name}|0": tails[without] - values}
        tail_bounds = intervals(columns_of_tail, seed, resamples=resamples, groups=edges["user"][tail])
    found = []
    for one in contenders:
        table = tables[one.name]
        metrics = {metric: float(values.mean()) for metric, values in table.items()}
        within = {metric: bounds[f"{one.name}|{metric}"] for metric in table}
        difference, apart = {}, {}
        for label, key, rival in (("", "-", ours), (", knob 0", "0", without)):
            if rival == one.name:
                continue
            for metric in PAIRED if rival == ours else ("S_rank",):
                difference[metric + label] = float(columns[f"{one.name}|{key}{metric}"].mean())
                apart[metric + label] = bounds[f"{one.name}|{key}{metric}"]
            if tail_bounds:
                difference["S_rank tail" + label] = float((tails[rival] - tails[one.name]).mean())
                apart["S_rank tail" + label] = tail_bounds[f"{one.name}|{key}"]
        if tail_bounds:
            metrics["S_rank tail"] = float(tails[one.name].mean())
            within["S_rank tail"] = tail_bounds[one.name]
        metrics[f"coverage@{K}"] = float(np.mean([split.coverage for split in one.splits]))
        metrics[f"Gini@{K}"] = float(np.mean([split.gini for split in one.splits]))
        seconds = float(np.mean([split.seconds for split in one.splits]))
        found.append(ScorerResult(one.name, one.settings, one.trials, seconds, metrics, within, difference, apart))
    return found


def _per_user(contender: Contender) -> dict[str, Floats]:
    """Every metric of lists, one value for each tested user of each split."""
    parts = [
        user_metrics(one.ranks, (K,)) | {f"mean popularity@{K}": one.popularity, f"novelty@{K}": one.novelty}
        for one in contender.splits
    ]
    return {metric: np.concatenate([part[metric] for part in parts]) for metric in parts[0]}


def differences(
    ours: Contender, peer: Contender, splits: Sequence[HeldOut], seed: int, resamples: int
) -> DifferenceByDegree:
    """S_rank of ours less the peer's by the item's degree; the last row is all of the tail."""
    edges = edges_of(splits)
    values, degree = pooled_ranks(ours) - pooled_ranks(peer), edges["item degree"]
    starts = np.array([0, *log_bins(max(int(degree.max()), 10))[3:]])  # 0-9, 10-31, 32-99, ...
    rows = strata(values, degree, edges["user"], starts, seed=seed, resamples=resamples)
    low, high = [row.low for row in rows], [row.high for row in rows]
    mean, within, count = [row.mean for row in rows], [row.interval for row in rows], [row.count for row in rows]
    tail = degree < TAIL
    if tail.any():
        users = edges["user"][tail]
        zero = np.zeros(int(tail.sum()))
        low, high, count = [*low, 0], [*high, TAIL - 1], [*count, int(tail.sum())]
        mean.append(float(values[tail].mean()))
        within.append(paired_interval(values[tail], zero, seed, resamples=resamples, groups=users))
    return DifferenceByDegree(ours.name, peer.name, "item", low, high, mean, within, count)


@dataclass(frozen=True)
class Truth:
    """p(like) of pairs that are known to have been considered."""

    users: NDArray[np.int64]
    p: Floats
    liked: NDArray[np.bool_]

    @classmethod
    def of(cls, liked: Sequence[tuple[Any, Any]], others: Sequence[tuple[Any, Any]]) -> Truth:
        """From (users, p) of likes and of pairs that were not liked."""
        both = [*liked, *others]
        kinds = [np.full(len(users), True) for users, _ in liked] + [np.full(len(users), False) for users, _ in others]
        return cls(
            np.concatenate([users for users, _ in both]),
            np.concatenate([np.asarray(p, np.float64) for _, p in both]),
            np.concatenate(kinds),
        )


def reliabilities(truths: Mapping[str, Truth], recalibrated: str, seed: int, notes: list[str]) -> list[Reliability]:
    """The reliability of each model, and of one of them recalibrated on other users."""
    found = [_reliability(name, truth.p, truth.liked) for name, truth in truths.items()]
    truth = truths[recalibrated]
    try:
        corrected = recalibrate_on_others(truth, seed)
    except DataError as error:
        notes.append(f"p(like) was not recalibrated: {error}")
    else:
        found.append(_reliability(f"{recalibrated}, recalibrated", corrected, truth.liked))
    return found


def recalibrate_on_others(truth: Truth, seed: int) -> Floats:
    """p(like) recalibrated: users fall into two halves by the seed, and each half is corrected by a line fitted to the
    other. DataError where a half will not do."""
    people = np.unique(truth.users)
    random = np.random.Generator(np.random.Philox(key=[seed, HALVES]))
    first = np.isin(truth.users, random.permutation(people)[: len(people) // 2])
    corrected = np.empty_like(truth.p)
    for own in (first, ~first):
        if own.any():
            corrected[own] = fit_recalibration(truth.p[~own], truth.liked[~own]).apply(truth.p[own])
    return corrected


def _reliability(name: str, p: Floats, liked: NDArray[np.bool_]) -> Reliability:
    table = reliability(p, liked)
    return Reliability(
        name,
        table.edges.tolist(),
        table.predicted.tolist(),
        table.observed.tolist(),
        table.count.tolist(),
        table.calibration_error,
        table.brier,
        table.log_loss,
        table.auc,
    )
