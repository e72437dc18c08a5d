"""Users of a model by row: q, degrees, likes and ids. This module has them in memory, shards.py in shards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency
from considerate.data.vocabulary import Ids, Vocabulary
from considerate.inference.posterior import Side

Rows = NDArray[np.int64]


class Users(Protocol):
    """Users of a model, in memory or in shards. Only `whole` reads all of them into memory."""

    def __len__(self) -> int: ...
    @property
    def edges(self) -> int: ...  # likes in the data
    @property
    def knows_likes(self) -> bool: ...  # False if the file has no likes
    @property
    def has_bias(self) -> bool: ...
    @property
    def has_covariance(self) -> bool: ...  # False if q of users is factorised
    @property
    def ids(self) -> Ids: ...
    def some(self, rows: Rows) -> tuple[UserRows, Rows]:
        """Users that include these rows, and the row of each among them."""

    def pieces(self) -> Iterator[tuple[int, UserRows]]:
        """Yield all users in order, some at a time, each time with the row number of the first."""

    def whole(self) -> UserRows:
        """Read all users into memory."""


@dataclass(frozen=True)
class UserRows:
    """Users in memory, or in one mapped file."""

    side: Side
    degree: NDArray[np.int64]  # [users], also if the file has no likes
    liked: Adjacency  # likes of the training; empty if the file has no likes
    ids: Vocabulary

    def __len__(self) -> int:
        return len(self.side)

    @cached_property
    def edges(self) -> int:
        return int(self.degree.sum())

    @property
    def knows_likes(self) -> bool:
        return self.liked.edges == self.edges

    @property
    def has_bias(self) -> bool:
        return self.side.has_bias

    @property
    def has_covariance(self) -> bool:
        return self.side.covariance is not None

    def some(self, rows: Rows) -> tuple[UserRows, Rows]:
        return self, rows

    def pieces(self) -> Iterator[tuple[int, UserRows]]:
        yield 0, self

    def whole(self) -> UserRows:
        return self

    def take(self, rows: Rows) -> UserRows:
        """A subset of users; row numbers must ascend, like the ids."""
        return UserRows(self.side.take(rows), self.degree[rows], self.liked.take(rows), self.ids.take(rows))
