"""p(like) of a pair and its interval, from the mean and the variance of its logit.

    x    = mu / sqrt(1 + pi sigma^2 / 8)                                            eq. 22
    x'   = slope x + shift + sum over covariates of weight (clip(z, low, high) - centre)
    p    = sigma(x')
    low, high = sigma(x' -+ 1.645 sqrt(slope^2 sigma^2 + s_user + s_item + s_pair))

Judged pairs give slope, shift and the weights of covariates; without any, x' = x. s_user, s_item and s_pair are
structural variances: the true logit differs from the model's by an amount for each user, for each item and for each
pair that no likes can tell. They widen the interval and do not moderate p.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from considerate.errors import UsageError
from considerate.model.reliability import EACH, EQUAL

INTERVAL = 1.6448536269514722  # standard deviations on either side that hold 90 %
STRUCTURAL, POSTERIOR = "structural", "posterior"
INTERVALS = (STRUCTURAL, POSTERIOR)  # kinds of interval
LEAST_SLOPE, MOST_SLOPE = 0.01, 4.0  # of a recalibration; separable pairs would have an infinite slope
COVARIATES = {"log_popularity": "log popularity", "lift": "lift", "log_likes": "log(1 + likes of the user)"}  # in words

Floats = NDArray[np.float64]
Known = Mapping[str, NDArray[Any]] | None  # covariates of pairs, by name


def sigmoid(a: NDArray[Any]) -> NDArray[Any]:
    """sigma(a) = 1 / (1 + exp(-a)), the chance that a coin of the model shows a like (eq. 2); without overflow."""
    return 0.5 * (1.0 + np.tanh(0.5 * np.asarray(a)))


def logit(p: NDArray[Any]) -> Floats:
    """log(p / (1 - p)), the inverse of `sigmoid`; 0 and 1 count as the nearest numbers between them."""
    inside = np.clip(np.asarray(p, np.float64), 1e-15, 1.0 - 1e-15)
    return np.asarray(np.log(inside) - np.log1p(-inside))


def moderated_logit(mean: NDArray[Any], variance: NDArray[Any]) -> NDArray[Any]:
    """mu / sqrt(1 + pi sigma^2 / 8), the logit of p(like) (eq. 22)."""
    return np.asarray(mean / np.sqrt(1.0 + (math.pi / 8.0) * variance))


@dataclass(frozen=True)
class StructuralVariance:
    """Variances of the true logits about the model's."""

    user: float = 0.9  # of a difference that all pairs of a user share
    item: float = 0.7  # of a difference that all pairs of an item share
    pair: float = 0.0  # of a difference that a pair has alone

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not (math.isfinite(value) and value >= 0.0):
                raise UsageError(f"the structural variance of a {name} is {value}; it must be a number of at least 0.")

    @property
    def total(self) -> float:
        return self.user + self.item + self.pair


def check_interval(kind: str) -> None:
    """Raise UsageError for an unknown kind of interval."""
    if kind not in INTERVALS:
        raise UsageError(f"interval is {kind!r}; it may be one of {', '.join(INTERVALS)}.")


STRUCTURE = StructuralVariance()  # constants that need no judged pairs (docs/what-p-means.md)


class Covariate(NamedTuple):
    """Number known of every pair, in the form that a recalibration reads."""

    weight: float
    centre: float  # mean over the judged pairs, also used for unknown numbers
    low: float  # range over the judged pairs; numbers outside count as its ends
    high: float

    def term(self, values: NDArray[Any]) -> Floats:
        """Term that it adds to the logit."""
        inside = np.clip(np.asarray(values, np.float64), self.low, self.high) - self.centre
        return np.where(np.isnan(inside), 0.0, self.weight * inside)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= 1e300  # not NaN either


@dataclass(frozen=True)
class Recalibration:
    """Correction of the logit of p(like), fitted to pairs that are known to have been considered.

        x' = slope x + shift + sum over covariates of weight (clip(z, low, high) - centre),    p' = sigma(x')

    1, 0 and no covariates change nothing. An extension, not in the paper.
    """

    slope: float = 1.0
    shift: float = 0.0
    covariates: Mapping[str, Covariate] = field(default_factory=dict)  #: by name, of COVARIATES
    pairs: int = 0  #: judged pairs that it was fitted to; 0: not known
    training: int = 0  #: judged pairs that were left out because the model was trained on them
    equal_classes: bool = True  #: True if liked and not liked pairs had the same total weight
    stale: bool = False  #: True if the model was fitted again since

    def __post_init__(self) -> None:
        object.__setattr__(self, "covariates", dict(sorted(self.covariates.items())))  # a sum has one order
        if not (math.isfinite(self.slope) and math.isfinite(self.shift) and self.slope > 0.0):
            raise UsageError(
                f"a recalibration of slope {self.slope} and shift {self.shift}; both must be finite, the slope above 0."
            )
        for name, covariate in self.covariates.items():
            if name not in COVARIATES or not all(map(math.isfinite, covariate)) or covariate.low > covariate.high:
                raise UsageError(
                    f"a recalibration by {name!r} with {tuple(covariate)}; expected finite numbers of one of "
                    f"{', '.join(COVARIATES)}."
                )

    @property
    def weighting(self) -> str:
        """Weighting of the judged pairs, in words."""
        return EQUAL if self.equal_classes else EACH

    def to_dict(self) -> dict[str, Any]:
        """Plain values for a model file."""
        covariates = {name: covariate._asdict() for name, covariate in self.covariates.items()}
        return {field.name: getattr(self, field.name) for field in fields(self)} | {"covariates": covariates}

    @classmethod
    def parse(cls, given: Any) -> Recalibration:
        """Parse the result of `to_dict`, of this release or of 0.3; raise ValueError if it is wrong."""
        if isinstance(given, dict) and given.keys() == {"slope", "shift"}:
            given = cls(1.0, 0.0).to_dict() | given
        if not isinstance(given, dict) or given.keys() != {field.name for field in fields(cls)}:
            raise ValueError("its recalibration is not described by a slope, a shift and covariates")
        numbers = {name: given[name] for name in ("slope", "shift")}
        counts = {name: given[name] for name in ("pairs", "training")}
        flags = {name: given[name] for name in ("equal_classes", "stale")}
        if not all(map(_is_number, numbers.values())) or not given["slope"] > 0:
            raise ValueError("its recalibration is not a finite shift and a slope above zero")
        if not all(type(count) is int and 0 <= count <= 2**53 for count in counts.values()):
            raise ValueError("its recalibration has a number of pairs that is not possible")
        if not all(type(flag) is bool for flag in flags.values()):
            raise ValueError("its recalibration has a flag that is neither true nor false")
        covariates = {}
        if not isinstance(given["covariates"], dict):
            raise ValueError("its recalibration's covariates are not described by name")
        for name, covariate in given["covariates"].items():
            if not isinstance(covariate, dict) or covariate.keys() != set(Covariate._fields):
                raise ValueError(f"the covariate {name!r} of its recalibration is not described by {Covariate._fields}")
            if not all(map(_is_number, covariate.values())):
                raise ValueError(f"the covariate {name!r} of its recalibration is not of finite numbers")
            covariates[name] = Covariate(**{key: float(value) for key, value in covariate.items()})
        try:
            return cls(float(given["slope"]), float(given["shift"]), covariates, **counts, **flags)
        except UsageError as error:
            raise ValueError(f"it has {error}") from error

    @property
    def changes_nothing(self) -> bool:
        return self.slope == 1.0 and self.shift == 0.0 and not self.covariates

    def line(self, x: NDArray[Any], covariates: Mapping[str, NDArray[Any]] | None = None) -> NDArray[Any]:
        """Compute x' of logits; bits stay if it changes nothing. `covariates` has the numbers of the pairs by name."""
        if self.changes_nothing:
            return x
        answer = self.slope * x + self.shift
        if self.covariates:
            assert covariates is not None, "a recalibration by covariates needs those of the pairs"
            for name, covariate in self.covariates.items():
                answer = answer + covariate.term(covariates[name])
        return np.asarray(answer)

    def parts(self, x: float, covariates: Known = None) -> dict[str, float]:
        """Terms that slope and shift, and each covariate, add to the logit of one pair; none if nothing changes."""
        if self.changes_nothing:
            return {}
        terms = {COVARIATES[name]: float(one.term((covariates or {})[name])) for name, one in self.covariates.items()}
        return {"slope and shift": self.slope * x + self.shift - x} | terms

    def sentence(self) -> str:
        """Correction in words."""
        if self.changes_nothing:
            return "as the likes alone give it"
        terms = "".join(f", {one.weight:+.3g} x {COVARIATES[name]}" for name, one in self.covariates.items())
        shift = self.shift - sum(one.weight * one.centre for one in self.covariates.values())
        pairs = f", by {self.pairs:,} judged pairs ({self.weighting})" if self.pairs else ""
        stale = "; stale, as the model was fitted anew since" if self.stale else ""
        return f"its logit x {self.slope:.3g}, {shift:+.3g}{terms}{pairs}{stale}"

    def apply(self, p: NDArray[Any], covariates: Mapping[str, NDArray[Any]] | None = None) -> Floats:
        """Correct probabilities."""
        return np.asarray(sigmoid(self.line(logit(p), covariates)))


UNCHANGED = Recalibration()


class Liking(NamedTuple):
    """p(like) of pairs, with its 90 % interval."""

    p_like: NDArray[Any]
    low: NDArray[Any]
    high: NDArray[Any]


def like_probability(
    mean: NDArray[Any], variance: NDArray[Any], recalibration: Recalibration = UNCHANGED, covariates: Known = None
) -> NDArray[Any]:
    """p(like | considered) (eq. 22): sigma(mu / sqrt(1 + pi sigma^2 / 8)), recalibrated."""
    return sigmoid(recalibration.line(moderated_logit(mean, variance), covariates))


def like_interval(
    mean: NDArray[Any],
    variance: NDArray[Any],
    recalibration: Recalibration = UNCHANGED,
    covariates: Known = None,
    structure: StructuralVariance | None = None,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The 90 % interval of p(like)."""
    return liking_of(mean, variance, recalibration, covariates, structure)[1:]


def liking_of(
    mean: NDArray[Any],
    variance: NDArray[Any],
    recalibration: Recalibration,
    covariates: Known,
    structure: StructuralVariance | None,
) -> Liking:
    """Compute p(like) with its interval.

    Without a `structure` the interval is the posterior's: the logit's interval, recalibrated, through the sigmoid. With
    one it is centred on the logit of p(like) and has the structural variance too.
    """
    centre = recalibration.line(moderated_logit(mean, variance), covariates)
    if structure is None:
        width = INTERVAL * np.sqrt(variance)
        low, high = (recalibration.line(end, covariates) for end in (mean - width, mean + width))
    else:
        width = INTERVAL * np.sqrt(recalibration.slope**2 * variance + structure.total)
        low, high = centre - width, centre + width
    return Liking(sigmoid(centre), sigmoid(low), sigmoid(high))
