"""How much of a known truth a fit recovers, over the pairs that were considered in a simulated sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.model.predict import INTERVAL, sigmoid

BINS = 10  # of the calibration table


@dataclass(frozen=True)
class CalibrationBin:
    """Pairs whose inferred p(like) is between low and high."""

    low: float
    high: float
    pairs: int
    predicted: float  # mean inferred p(like)
    true: float  # mean of the true probability
    liked: float  # share whose coin came up as a like


@dataclass(frozen=True)
class Recovery:
    """Inferred against true logits."""

    pairs: int
    correlation: float  # of true and inferred logits
    rmse: float  # of the inferred logit
    spread: float  # standard deviation of the true logit
    coverage: float  # share of true logits inside their 90 % interval
    calibration_error: float  # mean over pairs of the gap between inferred and true p(like) of their bin
    bins: tuple[CalibrationBin, ...]


def recovery(
    true_logit: NDArray[Any],
    liked: NDArray[Any],
    logit: NDArray[Any],
    deviation: NDArray[Any],
    probability: NDArray[Any],
) -> Recovery:
    """The truth of every pair, its coin, and what was inferred: the logit's mean and standard deviation, p(like)."""
    bins = calibration_bins(probability, np.asarray(sigmoid(true_logit)), liked)
    return Recovery(
        pairs=len(true_logit),
        correlation=float(np.corrcoef(true_logit, logit)[0, 1]),
        rmse=float(np.sqrt(np.mean((true_logit - logit) ** 2))),
        spread=float(true_logit.std()),
        coverage=float(np.mean(np.abs(true_logit - logit) <= INTERVAL * deviation)),
        calibration_error=sum(bin.pairs * abs(bin.predicted - bin.true) for bin in bins) / max(1, len(true_logit)),
        bins=bins,
    )


def calibration_bins(
    predicted: NDArray[Any], true: NDArray[Any], liked: NDArray[Any], bins: int = BINS
) -> tuple[CalibrationBin, ...]:
    """Predicted beside true probabilities in bins of equal width; empty ones are left out."""
    which = np.minimum((predicted * bins).astype(np.int64), bins - 1)
    pairs = np.bincount(which, minlength=bins)
    means = [np.bincount(which, values, bins) / np.maximum(pairs, 1) for values in (predicted, true, liked)]
    return tuple(
        CalibrationBin(k / bins, (k + 1) / bins, int(pairs[k]), *(float(mean[k]) for mean in means))
        for k in np.flatnonzero(pairs).tolist()
    )
