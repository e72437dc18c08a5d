"""Gaussian priors of single rows, in place of the N(0, 1 / tau) that all rows of a side share.

    P = diag(t) + sums,    z = t m + sums                                  (eq. 17, 19)
    the bound has  1/2 sum log t - 1/2 sum t ((eta - m)^2 + 1 / omega)      (eq. 12)

If only means are given, t is E[tau], which is still learned: the squares in eq. 20 are then of eta - m.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.inference.posterior import Floats, padded
from considerate.kernels import compiled


@dataclass(frozen=True)
class Prior:
    """N(mean, 1 / precision) of each row of a side; None is 0 for a mean and E[tau] for a precision.

    Rows are padded like rows of a `Side`: means with 0, precisions with 1.
    """

    mean: Floats | None = None  # [rows, padded(K)], m
    precision: Floats | None = None  # [rows, padded(K)], t
    bias_mean: Floats | None = None  # [rows]
    bias_precision: Floats | None = None  # [rows]

    @classmethod
    def of(
        cls,
        mean: NDArray[Any] | None = None,
        precision: NDArray[Any] | None = None,
        bias_mean: NDArray[Any] | None = None,
        bias_precision: NDArray[Any] | None = None,
    ) -> Prior:
        """Make priors from [rows, K] means and precisions."""

        def flat(values: NDArray[Any] | None) -> Floats | None:
            return None if values is None else np.ascontiguousarray(values, np.float32)

        return cls(_padded(mean, 0.0), _padded(precision, 1.0), flat(bias_mean), flat(bias_precision))

    def take(self, rows: NDArray[Any] | slice) -> Prior:
        """Priors of some rows, by number."""
        return Prior(*(None if array is None else array[rows] for array in self.arrays()))

    def between(self, first: int, last: int) -> Prior:
        """Priors of rows first .. last - 1: views."""
        return self.take(slice(first, last))

    @classmethod
    def joined(cls, parts: Sequence[Prior]) -> Prior:
        """Concatenate the priors of consecutive rows."""

        def join(arrays: Sequence[Floats | None]) -> Floats | None:
            found = [array for array in arrays if array is not None]
            return np.concatenate(found) if found else None

        return cls(*(join(arrays) for arrays in zip(*(part.arrays() for part in parts))))

    def arrays(self) -> tuple[Floats | None, ...]:
        """(mean, precision, bias_mean, bias_precision)."""
        return self.mean, self.precision, self.bias_mean, self.bias_precision

    def for_kernels(self) -> compiled.Prior:
        """The priors as the kernels read them."""
        return compiled.Prior(*self.arrays())

    @cached_property
    def log_precision(self) -> float:
        """Sum of log t over rows and coordinates."""
        return 0.0 if self.precision is None else float(np.log(self.precision.astype(np.float64)).sum())

    @cached_property
    def bias_log_precision(self) -> float:
        """Sum of log t over the biases."""
        return 0.0 if self.bias_precision is None else float(np.log(self.bias_precision.astype(np.float64)).sum())


SHARED = Prior()  # N(0, 1 / tau) for all


@dataclass(frozen=True)
class Priors:
    """Priors of users and items."""

    users: Prior = SHARED
    items: Prior = SHARED


def _padded(values: NDArray[Any] | None, filler: float) -> Floats | None:
    if values is None:
        return None
    rows, factors = values.shape
    wide = np.full((rows, padded(factors)), filler, np.float32)
    wide[:, :factors] = values
    return wide
