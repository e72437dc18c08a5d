"""Calibration of p(like) on pairs that users considered, liked or not, and on simulated data with a known truth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.errors import DataError, UsageError
from considerate.evaluation.bootstrap import Stratum, strata
from considerate.kernels.arrays import add_in_order
from considerate.model.liking import INTERVAL, sigmoid
from considerate.model.reliability import EACH, EQUAL, LikeReliability, ReliabilityBin

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ReliabilityTable:
    """Predicted p(like) and observed share of likes in bins of equal width; NaN in an empty bin."""

    edges: Floats  # [bins + 1]
    predicted: Floats  # [bins] weighted mean of p(like)
    observed: Floats  # [bins] weighted share of likes
    count: NDArray[np.int64]  # [bins] pairs
    weight: Floats  # [bins] share of the total weight
    calibration_error: float  # sum over bins of weight * |observed - predicted|
    brier: float  # weighted mean of (p - liked)^2
    log_loss: float  # weighted mean of -log p(outcome)
    auc: float  # chance that a liked pair has a higher p than a considered pair that was not liked; ties count half


def reliability(
    p: NDArray[Any], liked: NDArray[Any], weights: str | NDArray[Any] | None = EQUAL, bins: int = 10
) -> ReliabilityTable:
    """Compare probabilities of considered pairs with their outcomes, `liked` or not.

    weights   "equal classes": the liked pairs weigh as much in total as the others, as in the model's fair coin;
              None: every pair weighs the same; or one weight for each pair
    bins      number of bins of equal width over [0, 1]; the last one includes 1

    The denominator of every mean is the sum of the weights. The AUC has no weights: it is over pairs of pairs.
    """
    p, liked = check_judged(p, liked)
    w = class_weights(liked, weights)
    if bins < 1:
        raise UsageError(f"bins is {bins}; give at least 1.")
    edges = np.linspace(0.0, 1.0, bins + 1)
    bin = np.minimum((p * bins).astype(np.int64), bins - 1)
    mass = np.bincount(bin, w, minlength=bins)
    predicted, observed = np.full((2, bins), np.nan)
    np.divide(np.bincount(bin, w * p, minlength=bins), mass, out=predicted, where=mass > 0)
    np.divide(np.bincount(bin, w * liked, minlength=bins), mass, out=observed, where=mass > 0)
    gaps = np.where(mass > 0, np.abs(observed - predicted), 0.0)
    seen = np.clip(np.where(liked, p, 1.0 - p), 1e-15, None)
    total = w.sum()
    return ReliabilityTable(
        edges,
        predicted,
        observed,
        np.bincount(bin, minlength=bins).astype(np.int64),
        mass / total,
        float((mass * gaps).sum() / total),
        float((w * (p - liked) ** 2).sum() / total),
        float(-(w * np.log(seen)).sum() / total),
        auc(p, liked),
    )


def reliability_bins(
    p: NDArray[Any], liked: NDArray[Any], weights: str | None = EQUAL, bins: int = 10
) -> LikeReliability:
    """The reliability table for readers: the bins that have pairs, each share with its 90 % interval.

    The interval is Wilson's, from the unweighted pairs of the bin. If classes weigh the same, its ends are moved as the
    share is: weights multiply the odds of a like.
    """
    p, liked = check_judged(p, liked)
    table, w = reliability(p, liked, weights, bins), class_weights(liked, weights)
    bin = np.minimum((p * bins).astype(np.int64), bins - 1)
    factor = 1.0 if weights is None else float(w[liked][0] / w[~liked][0])
    found = []
    for k in np.flatnonzero(table.count).tolist():
        low, high = (
            end * factor / (end * factor + (1.0 - end))
            for end in wilson_interval(int(liked[bin == k].sum()), int(table.count[k]))
        )
        share = float(np.clip(table.observed[k], low, high))  # to the last digit
        predicted = float(np.clip(table.predicted[k], 0.0, 1.0))
        found.append(ReliabilityBin(predicted, share, low, high, int(table.count[k])))
    return LikeReliability(EACH if weights is None else EQUAL, table.calibration_error, tuple(found))


def wilson_interval(successes: int, trials: int) -> tuple[float, float]:
    """Wilson's 90 % interval of a share s of n trials: all q with |s - q| <= z sqrt(q (1 - q) / n)."""
    n, s, z = trials, successes / trials, INTERVAL
    centre = (s + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * np.sqrt(s * (1 - s) / n + z * z / (4 * n * n))
    return max(0.0, float(centre - half)), min(1.0, float(centre + half))


def auc(p: NDArray[Any], liked: NDArray[Any]) -> float:
    """Share of (liked, not liked) pairs of pairs in which the liked one has the higher p; ties count half.

    Denominator: liked pairs times pairs that were not liked. NaN if that is 0.
    """
    p, liked = np.asarray(p), np.asarray(liked, bool)
    positives, negatives = np.sort(p[liked]), np.sort(p[~liked])
    if len(positives) == 0 or len(negatives) == 0:
        return float("nan")
    below = np.searchsorted(negatives, positives, side="left").sum()
    ties = np.searchsorted(negatives, positives, side="right").sum() - below
    return float((below + 0.5 * ties) / (len(positives) * len(negatives)))


def class_weights(liked: NDArray[Any], weights: str | NDArray[Any] | None = EQUAL) -> Floats:
    """Weights of the pairs; with "equal classes" each class weighs 1/2 in total."""
    liked = np.asarray(liked, bool)
    if weights is None:
        return np.ones(len(liked))
    if isinstance(weights, str):
        if weights != EQUAL:
            raise UsageError(f"weights is {weights!r}; it may be {EQUAL!r}, None or one weight for each pair.")
        positives = int(liked.sum())
        if positives == 0 or positives == len(liked):
            raise DataError(
                f"{positives} of {len(liked)} pairs are liked; equal class weights need both liked and not liked ones."
            )
        return np.where(liked, 0.5 / positives, 0.5 / (len(liked) - positives))
    given = np.asarray(weights, np.float64)
    if given.shape != liked.shape or not (np.isfinite(given) & (given >= 0)).all() or not given.sum() > 0:
        raise UsageError("weights must be one finite number of at least 0 for each pair, and not all 0.")
    return given


def errors_by_degree(
    p_like: NDArray[Any], user_degree: NDArray[Any], users: NDArray[Any] | None = None, **options: Any
) -> list[Stratum]:
    """Classification error on held-out likes by the user's degree in training (the paper's figure 4).

    It is the share with p(like) < 1/2, and half of those at exactly 1/2. Denominator: the stratum's held-out likes.
    """
    p = np.asarray(p_like, np.float64)
    return strata((p < 0.5) + 0.5 * (p == 0.5), user_degree, users, **options)


def check_judged(p: NDArray[Any], liked: NDArray[Any]) -> tuple[Floats, NDArray[np.bool_]]:
    """Check probabilities and outcomes, and return them as arrays."""
    p, liked = np.asarray(p, np.float64), np.asarray(liked)
    if p.shape != liked.shape or p.ndim != 1 or len(p) == 0:
        raise UsageError(f"p has the shape {p.shape} and liked {liked.shape}; expected one row of each, and not empty.")
    if not ((p >= 0.0) & (p <= 1.0)).all():
        raise DataError("a probability is NaN or outside 0 to 1.")
    if liked.dtype != bool and not np.isin(liked, (0, 1)).all():
        raise DataError("liked must be true or false, or 1 or 0, for each pair.")
    return p, liked.astype(bool)


# --- Comparison with a known truth, in simulated data ---


@dataclass(frozen=True)
class CalibrationBin:
    """Pairs whose inferred p(like) is between low and high."""

    low: float
    high: float
    pairs: int
    predicted: float  # mean inferred p(like)
    true: float  # mean of the true probability
    liked: float  # share of likes


@dataclass(frozen=True)
class Recovery:
    """Comparison of inferred and true logits, over the considered pairs of a simulated sample."""

    pairs: int
    correlation: float  # of true and inferred logits
    rmse: float  # of the inferred logit
    spread: float  # standard deviation of the true logit
    coverage: float  # share of true logits inside their 90 % interval
    calibration_error: float  # mean over pairs of |inferred - true p(like)| of their bin
    bins: tuple[CalibrationBin, ...]


def recovery(
    true_logit: NDArray[Any],
    liked: NDArray[Any],
    logit: NDArray[Any],
    deviation: NDArray[Any],
    probability: NDArray[Any],
) -> Recovery:
    """Compare the true logit and outcome of every pair with the inferred logit, its deviation and p(like)."""
    bins = calibration_bins(probability, np.asarray(sigmoid(true_logit)), liked)
    return Recovery(
        pairs=len(true_logit),
        correlation=float(np.corrcoef(true_logit, logit)[0, 1]),
        rmse=float(np.sqrt(np.mean((true_logit - logit) ** 2))),
        spread=float(true_logit.std()),
        coverage=float(np.mean(np.abs(true_logit - logit) <= INTERVAL * deviation)),
        calibration_error=add_in_order(bin.pairs * abs(bin.predicted - bin.true) for bin in bins)
        / max(1, len(true_logit)),
        bins=bins,
    )


def calibration_bins(
    predicted: NDArray[Any], true: NDArray[Any], liked: NDArray[Any], bins: int = 10
) -> tuple[CalibrationBin, ...]:
    """Mean predicted and true probabilities in bins of equal width; empty bins are left out."""
    which = np.minimum((predicted * bins).astype(np.int64), bins - 1)
    pairs = np.bincount(which, minlength=bins)
    means = [np.bincount(which, values, bins) / np.maximum(pairs, 1) for values in (predicted, true, liked)]
    return tuple(
        CalibrationBin(k / bins, (k + 1) / bins, int(pairs[k]), *(float(mean[k]) for mean in means))
        for k in np.flatnonzero(pairs).tolist()
    )
