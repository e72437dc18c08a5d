"""Features of items or users: a sparse matrix by row, and a table by id."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from considerate.data.fingerprint import combine_digests, digest_ids
from considerate.data.vocabulary import Vocabulary, match_rows
from considerate.errors import DataError, UsageError
from considerate.kernels.arrays import take_lists

INTERCEPT = "(every row)"  # the last feature: the mean of vectors and biases, which the others would otherwise fit


@dataclass(frozen=True)
class FeatureColumn:
    """Encoding of a column of a table as features, kept so that other tables are read in the same way."""

    name: str
    kind: str  # "category", "tags", "number", "embedding" or "flag"
    mark: str = ""  # separator of the tags in a text; empty: a text is one value
    means: tuple[float, ...] = ()  # subtracted from numbers
    deviations: tuple[float, ...] = ()  # numbers are then divided by these


@dataclass(frozen=True)
class Features:
    """F features of some rows: row m has values[starts[m] : starts[m + 1]] in the columns of `indices`, ascending."""

    starts: NDArray[np.int64]  # [rows + 1]
    indices: NDArray[np.int32]  # [entries]
    values: NDArray[np.float32]  # [entries]
    names: tuple[str, ...]  # [F], such as "genre: sport"
    columns: tuple[FeatureColumn, ...] = ()  # columns of the table; empty for a matrix

    @property
    def rows(self) -> int:
        return len(self.starts) - 1

    @property
    def count(self) -> int:
        """Number of features, F."""
        return len(self.names)

    @property
    def has_intercept(self) -> bool:
        return self.names[-1:] == (INTERCEPT,)

    @property
    def are_known(self) -> NDArray[np.bool_]:
        """[rows] True for a row with a feature of its own."""
        return np.asarray(np.diff(self.starts) > self.has_intercept)

    def with_intercept(self) -> Features:
        """Add a feature that is 1 in every row."""
        at = self.starts[1:]
        return replace(
            self,
            starts=self.starts + np.arange(self.rows + 1),
            indices=np.insert(self.indices, at, self.count).astype(np.int32),
            values=np.insert(self.values, at, 1.0).astype(np.float32),
            names=(*self.names, INTERCEPT),
        )

    def take(self, rows: NDArray[np.int64]) -> Features:
        """Select rows, in this order; row -1 has no features."""
        starts, indices = take_lists(self.starts, self.indices, rows)
        return replace(self, starts=starts, indices=indices, values=take_lists(self.starts, self.values, rows)[1])

    def joined(self, other: Features) -> Features:
        """Append the rows of another with the same features."""
        return replace(
            self,
            starts=np.concatenate([self.starts, self.starts[-1] + other.starts[1:]]),
            indices=np.concatenate([self.indices, other.indices]),
            values=np.concatenate([self.values, other.values]),
        )

    def digest(self) -> str:
        """Content hash."""
        digest = hashlib.sha256("\0".join(self.names).encode())
        for array, kind in ((np.diff(self.starts), "<i8"), (self.indices, "<i4"), (self.values, "<f4")):
            digest.update(np.ascontiguousarray(array, kind).data)
        return digest.hexdigest()


@dataclass(frozen=True)
class FeatureTable:
    """Features by id. Without ids, row n belongs to row n of the matrix of likes."""

    features: Features
    ids: Vocabulary | None
    source: str = "the features"  # for messages
    notes: tuple[str, ...] = ()  # for the user

    def align(self, ids: Vocabulary) -> Features:
        """Select the features of these ids, in this order; an id that is not in the table has the intercept alone."""
        features = self.features
        if self.ids is not None:
            rows = match_rows(ids, self.ids)
            if not features.has_intercept:
                return features.take(rows)
            last = np.array([features.count - 1], np.int32)
            unknown = replace(features, starts=np.arange(2), indices=last, values=np.ones(1, np.float32))
            return features.joined(unknown).take(np.where(rows < 0, features.rows, rows))
        if ids.kind != "range":
            raise UsageError(f"{self.source}: a matrix of features goes with a matrix of likes; give a table with ids.")
        end = ids.first + len(ids)
        if end > features.rows:
            raise DataError(f"{self.source}: {features.rows} rows of features for {end} rows of the matrix.")
        return features.take(np.arange(ids.first, end))

    def of_liked(self, ids: Vocabulary, degree: NDArray[np.int64]) -> Features:
        """The features of these ids for a fit: ids without likes have none.

        A row without likes has no information on A, but would count as if it had. It gets its posterior from A after
        the fit.
        """
        return self.align(ids).take(np.where(degree > 0, np.arange(len(ids)), -1))

    def only(self, ids: Vocabulary) -> FeatureTable:
        """Keep the rows of these ids, in a table that has ids."""
        assert self.ids is not None
        rows = np.flatnonzero(match_rows(self.ids, ids) >= 0)
        return replace(self, features=self.features.take(rows), ids=self.ids.take(rows))

    def by_id(self) -> FeatureTable:
        """Use row numbers as ids if there are none."""
        return self if self.ids is not None else replace(self, ids=Vocabulary.range(self.features.rows))

    def digest(self) -> str:
        """Content hash."""
        return combine_digests([self.features.digest(), *([] if self.ids is None else [digest_ids(self.ids)])])
