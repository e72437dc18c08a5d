"""A column of times -> one number per like.

Dates and moments become seconds since 1970 UTC; one without a zone is taken for UTC. Numbers stay as they are, in
whatever unit: only their order and the date that they are compared with matter. Text is read as numbers, or else as
ISO dates. A like whose time is missing has NaN: it is trained on, and never held out by its time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.errors import DataError


@dataclass
class TimeColumn:
    """Takes a column of times in pieces, gives numbers at the end."""

    column: str
    source: str
    parts: list[NDArray[np.float64]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, chunks: list[Any]) -> None:
        """Take the next rows: Arrow arrays of one type."""
        import pyarrow as pa

        for chunk in chunks:
            try:
                self.parts.append(_numbers(chunk))
            except (pa.ArrowInvalid, TypeError) as error:
                raise DataError(
                    f"{self.source}: the times in {self.column!r} cannot be read ({str(error).splitlines()[0][:200]}); "
                    "expected dates, moments, numbers, or texts such as 2024-05-01T18:30:00."
                ) from error

    def finish(self) -> NDArray[np.float64]:
        """The time of every like that was added, NaN where it has none."""
        times = np.concatenate([np.empty(0), *self.parts])
        self.parts = []
        missing = int(np.isnan(times).sum())
        if missing == len(times):
            raise DataError(f"{self.source}: the column {self.column!r} has no time at all; name another column.")
        if np.isinf(times).any():
            raise DataError(f"{self.source}: the column {self.column!r} has an infinite time; drop or mend these rows.")
        if missing:
            self.notes.append(f"{missing:,} likes have no time in {self.column!r}; they are never held out by time")
        return times


def _numbers(chunk: Any) -> NDArray[np.float64]:
    """An Arrow array of times as numbers, null as NaN."""
    import pyarrow as pa
    import pyarrow.types as at

    kind = chunk.type
    if at.is_dictionary(kind):
        return _numbers(chunk.dictionary_decode())
    if at.is_string(kind) or at.is_large_string(kind):
        for kind in (pa.float64(), pa.timestamp("us")):
            try:
                return _numbers(chunk.cast(kind))
            except pa.ArrowInvalid:
                continue
        return _numbers(chunk.cast(pa.timestamp("us", "UTC")))  # texts that name a zone
    if at.is_date(kind):
        return _numbers(chunk.cast(pa.timestamp("s")))
    if at.is_timestamp(kind):
        return _numbers(chunk.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())) / 1e6
    if not (at.is_integer(kind) or at.is_floating(kind) or at.is_decimal(kind) or at.is_null(kind)):
        raise TypeError(f"its type is {kind}")
    return np.array(chunk.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), np.float64)
