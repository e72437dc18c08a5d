"""Values in strata of degree: logarithmic bins, as in the paper's figures, with counts and percentiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.errors import UsageError
from considerate.evaluation.bootstrap import RESAMPLES, Interval, interval
from considerate.simulation.degrees import log_starts

PERCENTILES = (5, 25, 50, 75, 95)
PER_DECADE = 2


@dataclass(frozen=True)
class Stratum:
    """The values of one bin of degrees."""

    low: int  # degrees from
    high: int  # to, inclusive
    count: int
    mean: float
    interval: Interval  # of the mean, by bootstrap over users
    percentiles: dict[str, float]  # "5", "25", "50", "75", "95"


def log_bins(largest: int, per_decade: int = PER_DECADE) -> NDArray[np.int64]:
    """The first degrees of bins up to `largest`: 0, 1, then equal steps of log degree, rounded up to whole degrees.

    With two a decade: 0, 1, 4, 10, 32, 100, 317, 1000, ... Degree 0 is a bin by itself.
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
    """Values by the bins of their degrees; bins without a value are left out.

    `users` says whose each value is, for the intervals; without it each is a user's own. `starts` are the bins' first
    degrees, `log_bins` if not given; the last bin has no end but the largest degree.
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
