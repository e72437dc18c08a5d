"""Features of items or users: a sparse matrix beside the rows of a side, and the table by id that it comes from."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from considerate.data.fingerprint import digest_ids, together
from considerate.data.vocabulary import Ids, Vocabulary, match_rows
from considerate.errors import DataError, UsageError
from considerate.kernels.arrays import take_lists


@dataclass(frozen=True)
class FeatureColumn:
    """How a column of a table became features, so that others are read in the same way."""

    name: str
    kind: str  # "category", "tags", "number", "embedding" or "flag"
    mark: str = ""  # what parts the tags of a text; none: a text is one value
    means: tuple[float, ...] = ()  # of numbers: what is taken off them, and what they are then divided by
    deviations: tuple[float, ...] = ()


@dataclass(frozen=True)
class Features:
    """F features of some rows: row m has values[starts[m] : starts[m + 1]] in the columns of `indices`, ascending."""

    starts: NDArray[np.int64]  # [rows + 1]
    indices: NDArray[np.int32]  # [entries]
    values: NDArray[np.float32]  # [entries]
    names: tuple[str, ...]  # [F], such as "genre: sport"
    columns: tuple[FeatureColumn, ...] = ()  # of the table that they come from; none: a matrix

    @property
    def rows(self) -> int:
        return len(self.starts) - 1

    @property
    def count(self) -> int:
        """F."""
        return len(self.names)

    def take(self, rows: NDArray[np.int64]) -> Features:
        """Some rows, in the order of their numbers here; row -1 has no features."""
        starts, indices = take_lists(self.starts, self.indices, rows)
        return replace(self, starts=starts, indices=indices, values=take_lists(self.starts, self.values, rows)[1])

    def digest(self) -> str:
        """What tells two apart."""
        digest = hashlib.sha256("\0".join(self.names).encode())
        for array, kind in ((np.diff(self.starts), "<i8"), (self.indices, "<i4"), (self.values, "<f4")):
            digest.update(np.ascontiguousarray(array, kind).data)
        return digest.hexdigest()


@dataclass(frozen=True)
class FeatureTable:
    """Features by id. Without ids, row n is row n of the matrix of likes."""

    features: Features
    ids: Vocabulary | None
    source: str = "the features"  # for messages
    notes: tuple[str, ...] = ()  # for the user

    def align(self, ids: Ids) -> Features:
        """The features of these ids, in their order; an id that is not in the table has none."""
        if self.ids is not None:
            return self.features.take(match_rows(ids, self.ids))
        if ids.kind != "range":
            raise UsageError(f"{self.source}: a matrix of features goes with a matrix of likes; give a table with ids.")
        if len(ids) != self.features.rows:
            raise DataError(f"{self.source}: {self.features.rows} rows of features for {len(ids)} rows of the matrix.")
        return self.features

    def of_liked(self, ids: Ids, degree: NDArray[np.int64]) -> Features:
        """What a fit reads: the features of these ids, none of those without likes. A row without likes says nothing of
        A, but would be counted as if it did; it gets its posterior from A when the fit is done."""
        return self.align(ids).take(np.where(degree > 0, np.arange(len(ids)), -1))

    def digest(self) -> str:
        """What tells two tables apart."""
        digests = [self.features.digest(), *([] if self.ids is None else [digest_ids(self.ids)])]
        return together(digests)
