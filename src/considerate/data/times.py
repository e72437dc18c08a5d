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
        self.parts += [self._numbers(chunk) for chunk in chunks]

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

    def _numbers(self, chunk: Any) -> NDArray[np.float64]:
        import pyarrow as pa
        import pyarrow.types as at

        kind = chunk.type
        if at.is_dictionary(kind):
            chunk, kind = chunk.dictionary_decode(), kind.value_type
        try:
            if at.is_date(kind):
                chunk, kind = chunk.cast(pa.timestamp("s")), pa.timestamp("s")
            if at.is_timestamp(kind):
                return self._seconds(chunk)
            if at.is_string(kind) or at.is_large_string(kind):
                return self._from_text(chunk)
            if at.is_integer(kind) or at.is_floating(kind) or at.is_decimal(kind) or at.is_null(kind):
                return self._floats(chunk)
        except pa.ArrowInvalid as error:
            raise self._wrong(str(error).splitlines()[0][:200]) from error
        raise self._wrong(f"its type is {kind}")

    def _from_text(self, chunk: Any) -> NDArray[np.float64]:
        import pyarrow as pa

        for kind in (pa.float64(), pa.timestamp("us")):
            try:
                return self._floats(chunk.cast(kind)) if kind == pa.float64() else self._seconds(chunk.cast(kind))
            except pa.ArrowInvalid:
                continue
        return self._seconds(chunk.cast(pa.timestamp("us", "UTC")))  # texts that name a zone

    def _seconds(self, chunk: Any) -> NDArray[np.float64]:
        import pyarrow as pa

        return self._floats(chunk.cast(pa.timestamp("us", chunk.type.tz)).cast(pa.int64())) / 1e6

    def _floats(self, chunk: Any) -> NDArray[np.float64]:
        import pyarrow as pa

        numbers = chunk.cast(pa.float64(), safe=False)
        return np.array(numbers.to_numpy(zero_copy_only=False), np.float64)  # null becomes NaN

    def _wrong(self, what: str) -> DataError:
        return DataError(
            f"{self.source}: the times in {self.column!r} cannot be read ({what}); "
            "expected dates, moments, numbers, or texts such as 2024-05-01T18:30:00."
        )
