"""Intervals by bootstrap over users, and values in strata of degree.

Users are drawn with replacement, each with all its values. Strata are logarithmic bins, as in the paper's figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from considerate.errors import UsageError
from considerate.simulation.degrees import log_starts

RESAMPLES = 1000
STREAM = 0xB007
CHUNK = 1 << 22  # weights held at a time
PERCENTILES = (5, 25, 50, 75, 95)  # of a stratum
PER_DECADE = 2  # strata

Interval = tuple[float, float]
Key = TypeVar("Key")
Floats = NDArray[np.float64]


def interval(
    values: NDArray[Any],
    seed: int = 0,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    groups: NDArray[Any] | None = None,
) -> Interval:
    """Percentile interval of the mean of one value per user, a function of the values and the seed.

    `groups` has the user of each value if users have several (edges of a stratum, several splits): users are then
    resampled with all their values, and the mean is over values. A single user gives an interval of no width.
    """
    return intervals({"": np.asarray(values)}, seed, level, resamples, groups)[""]


def paired_interval(
    a: NDArray[Any],
    b: NDArray[Any],
    seed: int = 0,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    groups: NDArray[Any] | None = None,
) -> Interval:
    """Interval of the mean of a - b, where a[i] and b[i] belong to the same user: above zero, a is better."""
    if np.shape(a) != np.shape(b):
        raise UsageError(f"{np.shape(a)} and {np.shape(b)} values do not make pairs; evaluate both on the same split.")
    return interval(np.asarray(a, np.float64) - np.asarray(b, np.float64), seed, level, resamples, groups)


def intervals(
    values: Mapping[Key, NDArray[Any]],
    seed: int = 0,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    groups: NDArray[Any] | None = None,
) -> dict[Key, Interval]:
    """Intervals of several means over the same users, from the same resamples."""
    if not values:
        return {}
    if not 0.0 < level < 1.0:
        raise UsageError(f"level is {level!r}; it must be between 0 and 1.")
    means = resampled_means(
        np.stack([np.asarray(column, np.float64) for column in values.values()], 1), seed, resamples, groups
    )
    low, high = np.quantile(means, [(1.0 - level) / 2.0, (1.0 + level) / 2.0], axis=0)
    return {name: (float(low[at]), float(high[at])) for at, name in enumerate(values)}


def resampled_means(table: Floats, seed: int, resamples: int = RESAMPLES, groups: NDArray[Any] | None = None) -> Floats:
    """[resamples, columns] means of the columns of `table` [values, columns] over users drawn with replacement."""
    if len(table) == 0 or resamples < 1:
        raise UsageError(
            f"a bootstrap of {len(table)} values and {resamples} resamples; expected at least one of each."
        )
    if not np.isfinite(table).all():
        raise UsageError("a bootstrap needs finite values; leave out users without one.")
    sums = np.concatenate([table, np.ones((len(table), 1))], axis=1)
    if groups is not None:
        if np.shape(groups) != (len(table),):
            raise UsageError(f"groups has {np.size(groups)} entries for {len(table)} values; expected one each.")
        _, user = np.unique(groups, return_inverse=True)
        sums = np.stack([np.bincount(user, column) for column in sums.T], axis=1)
    users = len(sums)
    random = np.random.Generator(np.random.Philox(key=[seed, STREAM]))
    totals = np.empty((resamples, sums.shape[1]))
    step = max(1, CHUNK // users)
    for first in range(0, resamples, step):
        drawn = random.integers(0, users, (min(step, resamples - first), users), dtype=np.int32)
        weights = np.stack([np.bincount(row, minlength=users) for row in drawn]).astype(np.float64)
        totals[first : first + step] = weights @ sums
    return np.asarray(totals[:, :-1] / totals[:, -1:])


@dataclass(frozen=True)
class Stratum:
    """Summary of the values in one bin of degrees."""

    low: int  # lowest degree
    high: int  # highest degree
    count: int
    mean: float
    interval: Interval  # of the mean, by bootstrap over users
    percentiles: dict[str, float]  # "5", "25", "50", "75", "95"


def log_bins(largest: int, per_decade: int = PER_DECADE) -> NDArray[np.int64]:
    """First degrees of bins up to `largest`: 0, 1, then equal steps of log degree, rounded up to whole degrees.

    With two bins a decade: 0, 1, 4, 10, 32, 100, 317, 1000, ... Degree 0 is a bin by itself.
    """
    return np.concatenate([[0], log_starts(max(largest, 1), per_decade)])


def strata(
    values: NDArray[Any],
    degrees: NDArray[Any],
    users: NDArray[Any] | None = None,
    starts: NDArray[Any] | None = None,
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> list[Stratum]:
    """Summarise values by the bins of their degrees; bins without a value are left out.

    `users` has the user of each value, for the intervals; without it each value is of another user. `starts` are the
    first degrees of the bins, `log_bins` if not given; the last bin ends with the largest degree.
    """
    values, degrees = np.asarray(values, np.float64), np.asarray(degrees, np.int64)
    if values.shape != degrees.shape:
        raise UsageError(f"{len(values)} values and {len(degrees)} degrees; expected one degree for each value.")
    if len(values) == 0:
        return []
    largest = int(degrees.max())
    starts = log_bins(largest) if starts is None else np.asarray(starts, np.int64)
    bin_of = np.searchsorted(starts, degrees, side="right") - 1
    if bin_of.min() < 0:
        raise UsageError(f"a degree of {degrees.min()} is below the first bin, which begins at {starts[0]}.")
    rows = []
    for at, low in enumerate(starts):
        inside = bin_of == at
        if not inside.any():
            continue
        own = values[inside]
        high = int(starts[at + 1]) - 1 if at + 1 < len(starts) else largest
        bounds = interval(own, seed, resamples=resamples, groups=None if users is None else np.asarray(users)[inside])
        cuts = np.percentile(own, PERCENTILES)
        percentiles = {f"{q}": float(cut) for q, cut in zip(PERCENTILES, cuts)}
        rows.append(Stratum(int(low), high, int(inside.sum()), float(own.mean()), bounds, percentiles))
    return rows
