"""Degree laws: power laws with and without an exponential cut-off, and their fit to degrees (section 2 of the paper).

    p(d) = d^-exponent exp(-d / cutoff) / Z        d = minimum .. maximum

Z is the exact sum over the support, so exponents of 1 and less are allowed: the paper's items have 0.77.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from considerate.errors import DataError, UsageError

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

LARGEST_SUPPORT = 200_000_000  # most degrees in one table: 1.6 GB of float64
STEEPEST = 20.0  # limit of fitted exponents and 1/cutoff: if all degrees are equal, there is no finite optimum
_NEGLIGIBLE = 45.0  # a tail below exp(-45) = 3e-20 of the peak is left out


@dataclass(frozen=True)
class PowerLaw:
    """Power law p(d) proportional to d^-exponent exp(-d / cutoff) on minimum..maximum.

    cutoff=inf is the pure power law. With maximum=None and a finite cut-off, the support ends where the tail is below
    rounding; a pure power law must first be `bounded`, as a degree cannot exceed the size of the other side.
    """

    exponent: float
    cutoff: float = math.inf
    minimum: int = 1
    maximum: int | None = None

    def __post_init__(self) -> None:
        if not math.isfinite(self.exponent):
            raise UsageError(f"exponent is {self.exponent}; give a finite number, e.g. 1.4.")
        if not self.cutoff > 0:
            raise UsageError(f"cutoff is {self.cutoff}; give a positive number, or inf for none.")
        if self.minimum < 1:
            raise UsageError(f"minimum degree is {self.minimum}; d^-{self.exponent:g} needs at least 1.")
        if self.maximum is not None and self.maximum < self.minimum:
            raise UsageError(f"maximum degree {self.maximum} is below the minimum {self.minimum}.")

    def bounded(self, maximum: int) -> PowerLaw:
        """Leave out degrees above `maximum`."""
        if maximum < self.minimum:
            raise UsageError(
                f"degrees start at {self.minimum}, but only {maximum} vertices are on the other side: "
                "lower the law's minimum or add vertices."
            )
        return replace(self, maximum=maximum if self.maximum is None else min(self.maximum, maximum))

    def support(self) -> Ints:
        """All degrees of the law, ascending."""
        return np.arange(self.minimum, self._last() + 1, dtype=np.int64)

    def probabilities(self) -> Floats:
        """p(d) for each degree of the support."""
        weight = np.exp(self._log_weights())
        probability: Floats = weight / weight.sum()
        return probability

    def cumulative(self) -> Floats:
        """P(degree <= d) for each degree of the support; the last is 1 exactly."""
        cumulative = np.cumsum(self.probabilities())
        cumulative /= cumulative[-1]
        return cumulative

    def mean(self) -> float:
        return float(self.probabilities() @ self.support())

    def variance(self) -> float:
        probability, degree = self.probabilities(), self.support()
        return float(probability @ (degree - probability @ degree) ** 2)

    def log_probability(self, d: ArrayLike) -> Floats:
        """log p(d), and -inf outside the support."""
        d = np.asarray(d)
        inside = (d >= self.minimum) & (d == np.floor(d))
        if self.maximum is not None:
            inside &= d <= self.maximum
        log_weight = self._log_weights()
        log_total = math.log(np.exp(log_weight).sum()) + self._peak()
        degree = np.where(inside, d, self.minimum).astype(np.float64)
        log_p = -self.exponent * np.log(degree) - degree / self.cutoff - log_total
        out: Floats = np.where(inside, log_p, -np.inf)
        return out

    def sample(self, size: int, seed: int | list[int] | np.random.Generator) -> Ints:
        """Degrees drawn by inversion of the cumulative distribution."""
        uniform = np.random.default_rng(seed).random(size)
        return self.minimum + np.searchsorted(self.cumulative(), uniform, side="right").astype(np.int64)

    def describe(self) -> str:
        """Formula of the law, such as `d^-1.4 exp(-d/70) on 1..12000`."""
        cutoff = "" if math.isinf(self.cutoff) else f" exp(-d/{self.cutoff:.6g})"
        return f"d^{-self.exponent:.6g}{cutoff} on {self.minimum}..{self.maximum or ''}"

    def _log_weight(self, d: float) -> float:
        return -self.exponent * math.log(d) - d / self.cutoff

    def _peak(self) -> float:
        """The largest log weight, at an end of the support or at the mode -exponent * cutoff."""
        top = math.inf if self.maximum is None else self.maximum
        mode: float = self.minimum
        if self.exponent < 0:
            mode = min(max(-self.exponent * self.cutoff, mode), top)
        if math.isinf(mode):
            raise UsageError(self._endless())
        return self._log_weight(mode)

    def _last(self) -> int:
        """The last degree of the support: the maximum, or less if an exponential tail is negligible."""
        if math.isinf(self.cutoff):
            if self.maximum is None:
                raise UsageError(self._endless())
            last = self.maximum
        else:
            # The weight falls above the mode; the tail from d on is at most about cutoff times that of d.
            floor = self._peak() - _NEGLIGIBLE - max(0.0, math.log(self.cutoff))
            last = self.minimum + math.ceil(max(0.0, -self.exponent * self.cutoff)) + 1
            while self._log_weight(last) > floor and (self.maximum is None or last < self.maximum):
                last *= 2
            if self.maximum is not None:
                last = min(last, self.maximum)
        if last - self.minimum >= LARGEST_SUPPORT:
            raise UsageError(f"the law {self.describe()} has over {LARGEST_SUPPORT:,} degrees: give a lower maximum.")
        return last

    def _endless(self) -> str:
        return f"the law {self.describe()} has no largest degree: give a maximum, e.g. the other side's size."

    def _log_weights(self) -> Floats:
        """Log weight less its peak, over the support."""
        degree = self.support().astype(np.float64)
        log_weight = -self.exponent * np.log(degree)
        if math.isfinite(self.cutoff):
            log_weight -= degree / self.cutoff
        log_weight -= self._peak()
        return log_weight


class MeanConstraint(NamedTuple):
    """Both sides of eq. 1; they are equal if a graph with these means can exist."""

    user_side: float  # mu / N
    item_side: float  # nu / M


def mean_constraint(mu: float, nu: float, users: int, items: int) -> MeanConstraint:
    """Both sides of the mean-degree constraint mu / N = nu / M (eq. 1), which are |G| / (M N).

    mu and nu are the mean degrees of users and of items; there are M users and N items.
    """
    if users < 1 or items < 1:
        raise UsageError(f"{users} users and {items} items: eq. 1 needs at least one of each.")
    if not (mu > 0 and nu > 0):
        raise UsageError(f"mean degrees are {mu:g} and {nu:g}; eq. 1 needs positive means.")
    return MeanConstraint(mu / items, nu / users)


@dataclass(frozen=True)
class DegreeFit:
    """A law fitted to degrees by maximum likelihood."""

    law: PowerLaw
    log_likelihood: float
    vertices: int  # vertices with an edge, which were fitted
    zeros: int  # vertices without an edge, which were left out
    at_limit: bool  # the likelihood still rose at the limit of the search (|exponent| or 1/cutoff = STEEPEST)

    def expected(self, histogram: DegreeHistogram) -> Floats:
        """[bins] expected number of vertices in each bin of a histogram."""
        cumulative = np.concatenate([[0.0], self.law.cumulative()])
        last = len(cumulative) - 1
        upto, before = np.minimum(histogram.last, last), np.minimum(histogram.first - 1, last)
        return np.asarray(self.vertices * (cumulative[upto] - cumulative[before]))


def fit_power_law(degrees: ArrayLike, *, maximum: int | None = None) -> DegreeFit:
    """Fit the exponent of d^-exponent on 1..maximum (default: the largest degree) by maximum likelihood."""
    return _fit(degrees, maximum, cutoff=False)


def fit_power_law_cutoff(degrees: ArrayLike, *, maximum: int | None = None) -> DegreeFit:
    """Fit exponent and cut-off of d^-exponent exp(-d / cutoff) on 1..maximum (default: the largest degree).

    cutoff=inf if the likelihood is highest without a cut-off.
    """
    return _fit(degrees, maximum, cutoff=True)


def _fit(degrees: ArrayLike, maximum: int | None, *, cutoff: bool) -> DegreeFit:
    values, counts, zeros = _counted(degrees)
    maximum = int(values[-1]) if maximum is None else maximum
    if maximum < values[-1]:
        raise UsageError(f"maximum is {maximum}, but a vertex has degree {values[-1]}.")
    if maximum > LARGEST_SUPPORT:
        raise UsageError(f"maximum is {maximum:,}; degrees above {LARGEST_SUPPORT:,} cannot be fitted.")
    vertices = int(counts.sum())
    # An exponential family: natural parameters (-exponent, -1/cutoff), statistics (log d, d).
    degree = np.arange(1, maximum + 1, dtype=np.float64)
    statistics = np.stack([np.log(degree), degree][: 2 if cutoff else 1])
    seen = np.stack([np.log(values), values.astype(np.float64)])[: len(statistics)] @ counts / vertices
    upper = np.array([STEEPEST, STEEPEST])[: len(seen)]
    lower = np.array([-STEEPEST, 0.0])[: len(seen)]
    theta, loss, at_limit = _minimise(statistics, seen, lower, upper)
    decay = float(theta[1]) if cutoff else 0.0
    law = PowerLaw(float(theta[0]), 1 / decay if decay > 0 else math.inf, maximum=maximum)
    return DegreeFit(law, -vertices * loss, vertices, zeros, at_limit)


def _minimise(statistics: Floats, seen: Floats, lower: Floats, upper: Floats) -> tuple[Floats, float, bool]:
    """Minimise the mean of -log p by Newton's method in a box.

        loss(theta) = log sum_d exp(-theta's(d)) + theta's_mean
        gradient    = s_mean - E[s]          Hessian = Cov[s]

    The loss is convex. A parameter stays at its limit if the loss falls outwards.
    """

    def evaluate(theta: Floats) -> tuple[float, Floats]:
        log_weight = -(theta @ statistics)
        peak = log_weight.max()
        weight = np.exp(log_weight - peak)
        total = weight.sum()
        return float(math.log(total) + peak + theta @ seen), weight / total

    theta = np.clip(np.array([1.0, 0.0])[: len(seen)], lower, upper)
    loss, probability = evaluate(theta)
    resting = np.zeros(len(theta), dtype=bool)
    for _ in range(200):
        mean = statistics @ probability
        gradient = seen - mean
        centred = statistics - mean[:, None]
        hessian = (centred * probability) @ centred.T
        resting = ((theta <= lower) & (gradient >= 0)) | ((theta >= upper) & (gradient <= 0))
        free = ~resting
        step = np.zeros_like(theta)
        # Pseudo-inverse after scaling: on one or two degrees the statistics are collinear.
        scale = np.sqrt(np.maximum(hessian.diagonal(), 1e-300))[free]
        scaled = hessian[np.ix_(free, free)] / np.outer(scale, scale)
        step[free] = -(np.linalg.pinv(scaled, rcond=1e-12, hermitian=True) @ (gradient[free] / scale)) / scale
        if -(gradient @ step) < 1e-12:  # the gain of the step is below rounding: take it unchecked
            theta = np.clip(theta + step, lower, upper)
            loss = evaluate(theta)[0]
            break
        size, moved = 1.0, False
        while size > 1e-10 and not moved:
            candidate = np.clip(theta + size * step, lower, upper)
            new_loss, new_probability = evaluate(candidate)
            moved = new_loss < loss + 1e-4 * float(gradient @ (candidate - theta)) and new_loss < loss
            size /= 2
        if not moved:
            break
        theta, loss, probability = candidate, new_loss, new_probability
    return theta, loss, bool(np.any(resting & (np.abs(theta) == STEEPEST)))


@dataclass(frozen=True)
class DegreeHistogram:
    """Counts in logarithmic bins: bin k has the degrees first[k]..last[k]."""

    first: Ints
    last: Ints
    counts: Ints
    zeros: int  # vertices of degree 0, which are in no bin

    @property
    def centre(self) -> Floats:
        """[bins] geometric mean of the ends of each bin, for plots."""
        return np.sqrt(self.first.astype(np.float64) * self.last)

    def bin_of(self, degrees: ArrayLike) -> NDArray[np.int64]:
        """The bin of each degree, counted from 1; 0 for degree 0."""
        return np.searchsorted(self.first, np.asarray(degrees), side="right")

    @property
    def density(self) -> Floats:
        """[bins] estimate of p(d), among vertices of degree 1 and more."""
        out: Floats = self.counts / (self.counts.sum() * (self.last - self.first + 1.0))
        return out


def log_starts(largest: int, per_decade: int) -> Ints:
    """First degrees of bins from 1 to `largest`, in equal steps of log degree, rounded up to whole degrees.

    If steps are below 1, bins are single degrees.
    """
    if per_decade < 1:
        raise UsageError(f"there are {per_decade} bins a decade; give at least 1.")
    steps = np.arange(math.floor(math.log10(largest) * per_decade) + 2)
    starts = np.unique(np.ceil(10.0 ** (steps / per_decade) - 1e-9).astype(np.int64))
    return starts[starts <= largest]


def degree_histogram(degrees: ArrayLike, *, bins_per_decade: int = 10) -> DegreeHistogram:
    """Count degrees in logarithmic bins with integer ends, for log-log plots."""
    values, counts, zeros = _counted(degrees)
    starts = log_starts(int(values[-1]), bins_per_decade)
    last = np.append(starts[1:] - 1, values[-1])
    which = np.searchsorted(starts, values, side="right") - 1
    binned = np.bincount(which, weights=counts, minlength=len(starts)).astype(np.int64)
    return DegreeHistogram(starts, last, binned, zeros)


def _counted(degrees: ArrayLike | Iterable[int]) -> tuple[Ints, Ints, int]:
    """(distinct positive degrees, their counts, number of zeros)."""
    array: NDArray[Any] = np.asarray(degrees)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise DataError(f"degrees are {array.ndim}-dimensional {array.dtype}; expected one row of integers.")
    if array.size and array.min() < 0:
        raise DataError(f"a degree is {array.min()}; degrees cannot be negative.")
    values, counts = np.unique(array, return_counts=True)
    zeros = int(counts[0]) if len(values) and values[0] == 0 else 0
    if zeros:
        values, counts = values[1:], counts[1:]
    if len(values) == 0:
        raise DataError(f"no vertex has an edge (of {zeros} vertices): a degree law needs at least one.")
    return values.astype(np.int64), counts.astype(np.int64), zeros
