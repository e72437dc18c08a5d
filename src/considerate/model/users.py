"""The users of a model by row: q, degrees, likes and ids. In memory here, in shards in shards.py."""

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
    """All users of a model, in memory or in shards. Only `whole` has all of them in memory."""

    def __len__(self) -> int: ...
    @property
    def edges(self) -> int: ...  # likes in the data
    @property
    def knows_likes(self) -> bool: ...  # whether the likes are here, or were left out of the file
    @property
    def has_bias(self) -> bool: ...
    @property
    def has_covariance(self) -> bool: ...  # whether q of a user is not factorised
    @property
    def ids(self) -> Ids: ...
    def some(self, rows: Rows) -> tuple[UserRows, Rows]:
        """Users among whom these are, and the row of each among them."""

    def pieces(self) -> Iterator[tuple[int, UserRows]]:
        """All users in order, some at a time, each time with the row number of the first."""

    def whole(self) -> UserRows:
        """All of them, in memory."""


@dataclass(frozen=True)
class UserRows:
    """Users in memory, or in one mapped file."""

    side: Side
    degree: NDArray[np.int64]  # [users], also where the likes themselves were left out of a file
    liked: Adjacency  # what each liked in training; nothing where that was left out
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
        """Some of them; their row numbers ascend, as the ids must."""
        return UserRows(self.side.take(rows), self.degree[rows], self.liked.take(rows), self.ids.take(rows))
