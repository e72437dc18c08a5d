"""Weights of likes: the amounts of rows are summed by pair, shaped and scaled.

    amount of a row     its signal's weight x the value of the weight column x 2^-(age / half-life); each 1 if not given
    weight of a pair    shape(sum of the amounts of its rows) / scale

Sums are of whole numbers, so the order of the rows and the division of the data into pieces do not change a bit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from considerate.data.rules import parse
from considerate.errors import DataError, UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

AMOUNT_UNIT = 1 << 32  # amounts are whole numbers of 2^-32
MOST_AMOUNT = float(1 << 30)
UNIT = 1 << 24  # shaped amounts are whole numbers of 2^-24
LEAST_AMOUNT = 1 / UNIT  # a smaller amount would be shaped to zero
SHAPES = ("raw", "log1p", "sqrt")
SCALES = ("mean", "user", "none")
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800, "y": 31_557_600}
MILLISECONDS = 1e11  # larger times are not in seconds: that would be the year 5138

Signals = tuple[tuple[str, float], ...]  # (rule, weight)


@dataclass(frozen=True)
class Weighting:
    """Rule that turns the summed amounts of pairs into weights; checked when made."""

    shape: str = "raw"
    scale: str = "mean"

    def __post_init__(self) -> None:
        for name, value, known in (("weight", self.shape, SHAPES), ("weight_scale", self.scale, SCALES)):
            if value not in known:
                raise UsageError(f"{name} is {value!r}; expected one of {', '.join(known)}.")

    def shaped(self, amounts: NDArray[np.int64]) -> NDArray[np.int64]:
        """[pairs] shaped amounts, in units of 2^-24."""
        import numpy as np

        sums = amounts / AMOUNT_UNIT
        sums = np.log1p(sums) if self.shape == "log1p" else np.sqrt(sums) if self.shape == "sqrt" else sums
        return np.rint(sums * UNIT).astype(np.int64)

    def weights(
        self, shaped: NDArray[np.int64], starts: NDArray[np.int64], whole: tuple[int, int] | None = None
    ) -> NDArray[np.float32]:
        """[pairs] weights of pairs by user.

        `whole` is (number of all pairs, sum of their shaped amounts) if these pairs are a part. If the mean is to be 1
        and all likes are too old to count, weights are 1.
        """
        import numpy as np

        if self.scale == "none":
            return (shaped / UNIT).astype(np.float32)
        if self.scale == "mean":
            count, total = whole or (len(shaped), int(shaped.sum()))
            if not total:
                return np.ones(len(shaped), np.float32)
            return (shaped * (count / total)).astype(np.float32)
        degrees = np.diff(starts)
        totals = np.diff(np.append(0, np.cumsum(shaped))[starts])
        none = totals == 0
        factors = np.divide(degrees, totals, out=np.zeros(len(degrees)), where=~none)
        return (np.where(np.repeat(none, degrees), 1.0, shaped * np.repeat(factors, degrees))).astype(np.float32)


@dataclass(frozen=True)
class Amounts:
    """Amounts of the rows of the data."""

    values: NDArray[np.int64]  # [rows] in units of 2^-32
    weighting: Weighting

    def followed_by(self, other: Amounts | None, rows: int) -> Amounts:
        """Append the amounts of more rows; rows without amounts count once."""
        import numpy as np

        more = np.full(rows, AMOUNT_UNIT, np.int64) if other is None else other.values
        return Amounts(np.concatenate([self.values, more]), self.weighting)


@dataclass(frozen=True)
class Scaling:
    """Rule that makes the weights of a part of the pairs, with totals of all pairs."""

    weighting: Weighting
    whole: tuple[int, int]  # number of all pairs, sum of their shaped amounts

    def weights(self, amounts: NDArray[np.int64], starts: NDArray[np.int64]) -> NDArray[np.float32]:
        return self.weighting.weights(self.weighting.shaped(amounts), starts, self.whole)


def whole_amounts(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Amounts in units of 2^-32."""
    import numpy as np

    return np.rint(values * AMOUNT_UNIT).astype(np.int64)


def check_amounts(source: str, column: str, values: NDArray[np.float64]) -> None:
    """Refuse amounts that are not above zero, too small to count, or too large to be summed as whole numbers."""
    import numpy as np

    wrong = int(len(values) - np.count_nonzero(values > 0))  # NaN is not above zero
    if wrong:
        raise DataError(
            f"{source}: {wrong} rows have no number above zero in the weight column {column!r}; leave them out with "
            f'where="{column} > 0" (--where), or fill them.'
        )
    if len(values) and values.max() > MOST_AMOUNT:
        raise DataError(
            f"{source}: the weight column {column!r} has {values.max():g}; at most {MOST_AMOUNT:g} is read: give it in "
            "a larger unit."
        )
    if len(values) and values.min() < LEAST_AMOUNT:
        small = int(np.count_nonzero(values < LEAST_AMOUNT))
        raise DataError(
            f"{source}: {small} rows have less than {LEAST_AMOUNT:g} in the weight column {column!r}, such as "
            f"{values.min():g}, and would count nothing; give it in a smaller unit, or leave them out."
        )


# --- Signals ---


def parse_signals(given: Mapping[str, float] | Sequence[str] | None) -> Signals | None:
    """Parse {rule: weight}, or texts "rule : weight", in order."""
    if not given:
        return None
    pairs: list[tuple[str, Any]] = []
    if isinstance(given, Mapping):
        pairs = list(given.items())
    elif isinstance(given, str):
        raise UsageError(f"signals is {given!r}; expected a mapping such as {{\"event = 'buy'\": 3}}.")
    else:
        for text in given:
            pairs.append(text if isinstance(text, tuple) else text.rpartition(":")[::2])
    signals = []
    for rule, weight in pairs:
        try:
            number = float(weight)
        except (TypeError, ValueError):
            number = math.nan
        if not LEAST_AMOUNT <= number <= MOST_AMOUNT or not str(rule).strip():
            raise UsageError(
                f"the signal {str(rule).strip()!r} has the weight {str(weight).strip()!r}; expected a rule, a colon "
                f"and a number from {LEAST_AMOUNT:g} to {MOST_AMOUNT:g}, such as --signal \"event = 'buy' : 3\"."
            )
        parse(str(rule))
        signals.append((str(rule).strip(), number))
    return tuple(signals)


def any_of(signals: Signals | None, where: str | None) -> str | None:
    """The rule of the rows that satisfy `where` and the rule of any signal."""
    if signals is None:
        return where
    some = " or ".join(f"({rule})" for rule, _ in signals)
    return some if where is None else f"({where}) and ({some})"


# --- Recency ---


@dataclass(frozen=True)
class HalfLife:
    """Age at which a like counts half: in seconds if it was given with a unit, else in the unit of the times."""

    age: float
    seconds: bool

    @classmethod
    def of(cls, given: Any) -> HalfLife:
        """Parse 90, "90" or "90d"; the units are s, m, h, d, w and y."""
        match = re.fullmatch(r"\s*([0-9.eE+-]+)\s*([a-zA-Z]*)\s*", str(given))
        try:
            number, unit = (float(match[1]), match[2].lower()) if match else (math.nan, "")
        except ValueError:
            number, unit = math.nan, ""
        if isinstance(given, bool) or not 0.0 < number < math.inf or unit not in ("", *SECONDS):
            raise UsageError(
                f"half_life is {given!r}; expected a time such as 90d (s, m, h, d, w or y), or a number in the unit of "
                "the time column."
            )
        return cls(number * SECONDS.get(unit, 1), bool(unit))

    def decay(self, times: NDArray[np.float64], latest: float, source: str, column: str) -> NDArray[np.float64]:
        """[likes] 2^-(age / half-life)."""
        import numpy as np

        missing = int(np.isnan(times).sum())
        if missing:
            raise DataError(
                f"{source}: {missing} likes have no time in {column!r}, and half_life needs that of each; leave them "
                f'out with where="{column} is not null" (--where).'
            )
        if self.seconds and latest > MILLISECONDS:
            raise DataError(
                f"{source}: the latest time in {column!r} is {latest:g}, which are no seconds; give half_life as a "
                "number in the unit of that column."
            )
        return np.asarray(np.exp2((times - latest) / self.age))


@dataclass
class AmountColumn:
    """Column of amounts, which is read in pieces."""

    column: str | None  # for messages
    source: str
    parts: list[NDArray[np.float64]] = field(default_factory=list)

    def add(self, chunks: list[Any]) -> None:
        """Add the next rows: Arrow arrays of numbers."""
        import numpy as np

        self.parts += [np.array(chunk.to_numpy(zero_copy_only=False), np.float64) for chunk in chunks]

    def finish(self) -> NDArray[np.float64]:
        import numpy as np

        values = np.concatenate([np.empty(0), *self.parts])
        self.parts = []
        check_amounts(self.source, str(self.column), values)
        return values
