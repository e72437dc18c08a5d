"""Tables of the results, from the measurements on all splits; intervals resample whole users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.errors import DataError
from considerate.evaluation.bootstrap import Stratum, interval, intervals, log_bins, paired_interval, strata
from considerate.evaluation.calibration import errors_by_degree, reliability
from considerate.evaluation.metrics import user_metrics
from considerate.evaluation.recalibration import recalibrate_by_fold
from considerate.evaluation.report import TAIL
from considerate.evaluation.split import HeldOut
from considerate.study.fits import K, SplitResult
from considerate.study.results import (
    ConsideredByDegree,
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
TAIL_RANK, FIRST = "S_rank tail", (f"Recall@{K}", f"NDCG@{K}")
PAIRED = ("S_rank", f"Recall@{K}", f"NDCG@{K}", "MRR", f"MAP@{K}", f"hit rate@{K}")
HALVES = 0x4A1F


@dataclass(frozen=True)
class Contender:
    """A scorer in the comparison."""

    name: str
    settings: str  # in words
    trials: int
    splits: list[SplitResult]

    @property
    def ranks(self) -> Floats:
        """S_rank of every held-out like of all splits."""
        return np.concatenate([split.ranks.scores for split in self.splits])

    def user_metrics(self) -> dict[str, Floats]:
        """All metrics of lists, with one value per tested user and split."""
        parts = [
            user_metrics(split.ranks, (K,)) | {f"mean popularity@{K}": split.popularity, f"novelty@{K}": split.novelty}
            for split in self.splits
        ]
        return {metric: np.concatenate([part[metric] for part in parts]) for metric in parts[0]}

    def mean(self, field: str) -> float:
        return float(np.mean([getattr(split, field) for split in self.splits]))


class Summary:
    """Statistics over the held-out likes of all splits, with their users and degrees in training."""

    def __init__(self, splits: Sequence[HeldOut], seed: int = 0, resamples: int = 1) -> None:
        self.users = np.concatenate([held.users for held in splits])
        self.user_degree = np.concatenate([held.train.by_user.degrees[held.users] for held in splits])
        self.item_degree = np.concatenate([held.train.by_item.degrees[held.items] for held in splits])
        self.tail = self.item_degree < TAIL
        self.bootstrap: dict[str, Any] = {"seed": seed, "resamples": resamples}

    def ranks_by_degree(self, contender: Contender) -> list[RankByDegree]:
        """S_rank by the user's and by the item's degree (fig. 6 and 7)."""
        results = []
        for by, degree in (("user", self.user_degree), ("item", self.item_degree)):
            rows = strata(contender.ranks, degree, self.users, **self.bootstrap)
            low, high, mean, interval, count = _columns(rows)
            percentiles = {cut: [row.percentiles[cut] for row in rows] for cut in rows[0].percentiles}
            results.append(RankByDegree(contender.name, by, low, high, mean, interval, percentiles, count))
        return results

    def errors(self, name: str, p: Sequence[Floats]) -> ErrorByDegree:
        """Share of held-out likes with p(like) < 1/2 by the user's degree (fig. 4)."""
        starts = log_bins(int(self.user_degree.max()), ERROR_BINS_PER_DECADE)
        rows = errors_by_degree(np.concatenate(p), self.user_degree, self.users, starts=starts, **self.bootstrap)
        return ErrorByDegree(name, *_columns(rows))

    def histogram(self, name: str, p: Sequence[Floats]) -> LikeHistogram:
        """p(like) of held-out likes by the user's degree, from one item to forty (fig. 5)."""
        values, edges = np.concatenate(p), np.linspace(0.0, 1.0, CELLS + 1)
        rows = []
        for low, high in HISTOGRAM_ROWS:
            inside = (self.user_degree >= low) & (self.user_degree <= high)
            if inside.any():
                cells = np.histogram(values[inside], edges)[0]
                rows.append((low, high, (cells / cells.sum()).tolist(), int(inside.sum())))
        return LikeHistogram(name, edges.tolist(), *map(list, zip(*rows) if rows else [[]] * 4))

    def compare(
        self, contenders: Sequence[Contender], ours: str, first_places: str, for_tail: str
    ) -> list[ScorerResult]:
        """Compute every contender's metrics with intervals, and the differences of ours minus the contender.

        `ours` is compared by all metrics, and with other weights by the metrics that these were chosen for. Users are
        resampled with all their splits. All contenders get the same resamples, so differences are paired.
        """
        tables = {contender.name: contender.user_metrics() for contender in contenders}
        tails = {contender.name: {TAIL_RANK: contender.ranks[self.tail]} for contender in contenders}
        people = np.concatenate([split.ranks.people for split in contenders[0].splits])
        means: dict[tuple[str, str, str], float] = {}  # (contender, version of ours minus it or "", metric)
        bounds: dict[tuple[str, str, str], Interval] = {}
        for values, groups in ((tables, people), (tails, self.users[self.tail])):
            if not len(groups):
                continue
            columns: dict[tuple[str, str, str], Floats] = {}
            for name, table in values.items():
                columns |= {(name, "", metric): table[metric] for metric in table}
                rivals = {ours: (*PAIRED, TAIL_RANK), first_places: FIRST, for_tail: (PAIRED[0], TAIL_RANK)}
                for rival, paired in rivals.items():
                    compared = [metric for metric in paired if metric in table and rival != name]
                    columns |= {(name, rival, metric): values[rival][metric] - table[metric] for metric in compared}
            means |= {key: float(column.mean()) for key, column in columns.items()}
            bounds |= intervals(columns, groups=groups, **self.bootstrap)
        results = []
        for contender in contenders:
            own = {key[2]: key for key in means if key[:2] == (contender.name, "")}
            differs = {key[2]: key for key in means if key[:2] == (contender.name, ours)}
            for rival in (first_places, for_tail):  # "NDCG@20, first places"
                words = rival.removeprefix(f"{ours}, ")
                differs |= {f"{key[2]}, {words}": key for key in means if key[:2] == (contender.name, rival)}
            lists = {f"coverage@{K}": contender.mean("coverage"), f"Gini@{K}": contender.mean("gini")}
            results.append(
                ScorerResult(
                    contender.name,
                    contender.settings,
                    contender.trials,
                    contender.mean("seconds"),
                    {metric: means[key] for metric, key in own.items()} | lists,
                    {metric: bounds[key] for metric, key in own.items()},
                    {metric: means[key] for metric, key in differs.items()},
                    {metric: bounds[key] for metric, key in differs.items()},
                )
            )
        return results

    def differences(self, ours: Contender, peer: Contender) -> DifferenceByDegree:
        """S_rank of ours minus the peer's by the item's degree; the last row is all of the tail."""
        values, degree = ours.ranks - peer.ranks, self.item_degree
        starts = np.array([0, *log_bins(max(int(degree.max()), 10))[3:]])  # 0-9, 10-31, 32-99, ...
        rows = strata(values, degree, self.users, starts, **self.bootstrap)
        if self.tail.any():
            own, users = values[self.tail], self.users[self.tail]
            within = paired_interval(own, np.zeros(len(own)), groups=users, **self.bootstrap)
            rows.append(Stratum(0, TAIL - 1, len(own), float(own.mean()), within, {}))
        return DifferenceByDegree(ours.name, peer.name, "item", *_columns(rows))


def considered_by_degree(
    names: Sequence[str], aucs: Floats, degree: NDArray[Any], **bootstrap: Any
) -> list[ConsideredByDegree]:
    """Summarise the AUC of users [scores, users], over all users and by their degree."""
    results = []
    for name, values in zip(names, aucs):
        overall = float(values.mean()), interval(values, **bootstrap)
        results.append(ConsideredByDegree(name, *overall, *_columns(strata(values, degree, **bootstrap))))
    return results


def _columns(rows: Sequence[Stratum]) -> list[list[Any]]:
    return [[getattr(row, name) for row in rows] for name in ("low", "high", "mean", "interval", "count")]


@dataclass(frozen=True)
class Judgement:
    """p(like) of pairs that are known to be considered."""

    users: NDArray[np.int64]
    p: Floats
    liked: NDArray[np.bool_]

    @classmethod
    def of(cls, liked: Sequence[tuple[Any, Any]], others: Sequence[tuple[Any, Any]]) -> Judgement:
        """Join (users, p) of liked pairs and of pairs that were not liked."""
        users, p = (np.concatenate(parts) for parts in zip(*liked, *others))
        return cls(users, p.astype(np.float64), np.arange(len(users)) < sum(len(users) for users, _ in liked))


def reliabilities(
    judgements: Mapping[str, Judgement], recalibrated: str, seed: int, notes: list[str]
) -> list[Reliability]:
    """Compute the reliability of each model, and of one model recalibrated on other users."""
    results = [_reliability(name, each.p, each.liked) for name, each in judgements.items()]
    judgement = judgements[recalibrated]
    try:
        corrected = recalibrate_on_others(judgement, seed)
    except DataError as error:
        notes.append(f"p(like) was not recalibrated: {error}")
    else:
        results.append(_reliability(f"{recalibrated}, recalibrated", corrected, judgement.liked))
    return results


def recalibrate_on_others(judgement: Judgement, seed: int) -> Floats:
    """Recalibrate p(like) of each half of the users, drawn by the seed, by a line fitted to the other half."""
    people = np.unique(judgement.users)
    random = np.random.Generator(np.random.Philox(key=[seed, HALVES]))
    first = np.isin(judgement.users, random.permutation(people)[: len(people) // 2])
    return recalibrate_by_fold(judgement.p, judgement.liked, first)


def _reliability(name: str, p: Floats, liked: NDArray[np.bool_]) -> Reliability:
    table = {field: np.asarray(value).tolist() for field, value in vars(reliability(p, liked)).items()}
    del table["weight"]
    return Reliability(name, **table)
