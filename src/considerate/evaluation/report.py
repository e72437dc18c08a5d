"""Report of a scorer on held-out likes, as plain values for the shell and JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Run, run_serially
from considerate.evaluation.bootstrap import RESAMPLES, Stratum, interval, intervals, strata
from considerate.evaluation.calibration import ReliabilityTable, errors_by_degree
from considerate.evaluation.metrics import coverage, gini, list_metrics, user_metrics
from considerate.evaluation.ranks import ranks_and_lists
from considerate.evaluation.scorer import Scorer
from considerate.evaluation.split import HeldOut

TAIL = 100  # items of a lower degree are the tail


def evaluate(
    scorer: Scorer,
    held: HeldOut,
    k: tuple[int, ...] = (10, 20),
    *,
    p_like: NDArray[Any] | None = None,
    seed: int = 0,
    resamples: int = RESAMPLES,
    run: Run[Any, Any] = run_serially,
) -> dict[str, Any]:
    """Report metrics with their intervals, statistics of the lists, and S_rank in strata of degree.

    With `p_like` of the held-out likes, the report also has the classification error by the user's degree. Lists have
    the largest k; degrees are those of training. Every metric is {"mean", "low", "high", "users"}: a mean over users
    and its 95 % interval by bootstrap over users.
    """
    ranks, lists = ranks_and_lists(scorer, held, max(k), run)
    assert lists is not None
    user_degree, item_degree = held.degrees or (held.train.by_user.degrees, held.train.by_item.degrees)
    per_user = user_metrics(ranks, k) | list_metrics(lists, item_degree, held.training_users)
    per_user = {name: values for name, values in per_user.items() if np.isfinite(values).all()}
    metrics = mean_figures(per_user, seed, resamples)
    tail = item_degree[held.items] < TAIL
    if tail.any():
        own, users = ranks.scores[tail], held.users[tail]
        bounds_of_tail = interval(own, seed, resamples=resamples, groups=users)
        metrics["S_rank tail"] = mean_figure(own, bounds_of_tail) | {"users": len(np.unique(users))}
    report: dict[str, Any] = {
        "name": scorer.name,
        "users": len(ranks.people),
        "held_out": len(ranks.users),
        "items": held.train.item_count,
        "mean_candidates": float(ranks.candidates.mean()),
        "metrics": metrics,
        "lists": {
            "k": max(k),
            "coverage": coverage(lists, held.train.item_count),
            "gini": gini(lists, held.train.item_count) if (lists >= 0).any() else None,
        },
        "strata": {
            side: _plain(strata(ranks.scores, degrees, held.users, seed=seed, resamples=resamples))
            for side, degrees in (("user", user_degree[held.users]), ("item", item_degree[held.items]))
        },
    }
    if p_like is not None:
        rows = errors_by_degree(p_like, user_degree[held.users], held.users, seed=seed, resamples=resamples)
        report["errors"] = _plain(rows)
    return report


def _plain(rows: Sequence[Stratum]) -> list[dict[str, Any]]:
    return [asdict(row) | {"interval": list(row.interval)} for row in rows]


def plain_table(table: ReliabilityTable) -> dict[str, Any]:
    """A reliability table as lists and numbers; None for NaN."""

    def plain(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return [plain(part) for part in value.tolist()]
        return None if isinstance(value, float) and np.isnan(value) else value

    return {name: plain(value) for name, value in vars(table).items()}


def mean_figures(values: Mapping[str, NDArray[Any]], seed: int, resamples: int) -> dict[str, dict[str, Any]]:
    """Means over the same users by name, each with its 95 % bootstrap interval and the number of users."""
    bounds = intervals(values, seed, resamples=resamples)
    return {name: mean_figure(own, bounds[name]) for name, own in values.items()}


def mean_figure(values: NDArray[Any], bounds: tuple[float, float]) -> dict[str, Any]:
    """A mean over users with its interval and the number of users."""
    return {"mean": float(np.mean(values)), "low": bounds[0], "high": bounds[1], "users": len(values)}
