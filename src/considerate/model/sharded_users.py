"""Users in shards, behind the protocol of users.py: a shard is opened when one of its users is asked for."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency
from considerate.data.vocabulary import Id, Vocabulary
from considerate.inference.posterior import Side, padded
from considerate.kernels.arrays import empty
from considerate.model.shards import ShardIndex
from considerate.model.users import Rows, UserRows, Users

MAPPED = 64  # shards that are kept open; each is a file
COPIED = 4  # the same where they are copied into memory


class ShardedUsers:
    """The users of a model in shards. They may be asked for from several threads."""

    def __init__(self, shards: ShardIndex) -> None:
        self.shards = shards
        self._open: OrderedDict[int, Users] = OrderedDict()
        self._lock = Lock()
        self._most = MAPPED if shards.folder.local is not None else COPIED

    def __reduce__(self) -> tuple[Any, ...]:
        return ShardedUsers, (self.shards,)  # it pickles as an address: the shards stay where they are

    def __len__(self) -> int:
        return int(self.shards.first[-1])

    @cached_property
    def edges(self) -> int:
        return int(self.shards.edges.sum())

    @property
    def knows_likes(self) -> bool:
        return self.shards.likes or self.edges == 0

    @property
    def has_bias(self) -> bool:
        return "user_bias" in self.shards.form.flags

    @property
    def ids(self) -> ShardedIds:
        return ShardedIds(self)

    @property
    def factors(self) -> int:
        return self.shards.form.sizes["factors"]

    def shard(self, number: int) -> Users:
        """The users of one shard, which stays open for a while."""
        with self._lock:
            users = self._open.pop(number, None)
            if users is None:
                users = self.shards.read(number)
            self._open[number] = users
            if len(self._open) > self._most:
                self._open.popitem(last=False)
        return users

    def shard_of(self, rows: Rows) -> NDArray[np.int64]:
        """Which shards rows are in."""
        return np.searchsorted(self.shards.first, rows, side="right") - 1

    def some(self, rows: Rows) -> tuple[UserRows, Rows]:
        if not len(rows):
            return self._joined([], 0, 0), rows
        first = self.shards.first
        low, high = self.shard_of(np.array([rows.min(), rows.max()])).tolist()
        if low == high:
            return self.shard(low).some(rows - first[low])
        wanted, places = np.unique(rows, return_inverse=True)
        cuts = np.searchsorted(wanted, first[low : high + 2])
        pieces = []
        for number, (start, stop) in enumerate(pairwise(cuts), low):
            if start < stop:
                users, inside = self.shard(number).some(wanted[start:stop] - first[number])
                pieces.append(users.take(inside))
        return self._joined(pieces, len(wanted), sum(piece.liked.edges for piece in pieces)), places

    def pieces(self) -> Iterator[tuple[int, UserRows]]:
        for number in range(len(self.shards)):
            yield int(self.shards.first[number]), self.shard(number).whole()

    def whole(self) -> UserRows:
        return self._whole

    @cached_property
    def _whole(self) -> UserRows:
        pieces = (piece for _, piece in self.pieces())
        joined = self._joined(pieces, len(self), self.edges if self.shards.likes else 0)
        return replace(joined, ids=Vocabulary.range(len(self))) if self.shards.kind == "range" else joined

    def _joined(self, pieces: Iterable[UserRows], count: int, edges: int) -> UserRows:
        """Users of several shards in arrays of their own, in order."""
        rows = empty((count, 2 * padded(self.factors)), np.float32)
        biases = np.empty((2, count), np.float32) if self.has_bias else None
        degree, starts, liked = np.empty(count, np.int64), np.zeros(count + 1, np.int64), np.empty(edges, np.int32)
        ids, end = list[Vocabulary](), 0
        for piece in pieces:
            part = slice(end, end + len(piece))
            rows[part], degree[part] = piece.side.rows, piece.degree
            if biases is not None:
                biases[0, part], biases[1, part] = piece.side.biases
            starts[part.start + 1 : part.stop + 1] = piece.liked.starts[1:] + starts[end]
            liked[starts[part.start] : starts[part.stop]] = piece.liked.indices
            ids.append(piece.ids.take(np.arange(len(piece))))  # a copy: the shard need not stay open
            end = part.stop
        side = Side(self.factors, rows, *(() if biases is None else biases))
        return UserRows(side, degree, Adjacency(starts, liked), _joined_ids(self.shards.kind, ids))


def _joined_ids(kind: str, parts: Sequence[Vocabulary]) -> Vocabulary:
    """The ids of several shards, end to end."""
    if kind != "string":
        return Vocabulary.of_integers(
            np.concatenate([np.empty(0, np.int64), *(ids.tensors()["integers"] for ids in parts)])
        )
    texts = [ids.tensors() for ids in parts]
    lengths = np.concatenate([np.zeros(1, np.int64), *(np.diff(text["offsets"]) for text in texts)])
    return Vocabulary.of_bytes(np.cumsum(lengths), np.concatenate([np.empty(0, np.uint8), *(t["text"] for t in texts)]))


class ShardedIds:
    """The ids of users in shards."""

    def __init__(self, users: ShardedUsers) -> None:
        self._users = users

    @property
    def kind(self) -> str:
        return self._users.shards.kind

    def __len__(self) -> int:
        return len(self._users)

    def id_of(self, row: int) -> Id:
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of a vocabulary of {len(self)}")
        return self.ids_of([row])[0]

    def ids_of(self, rows: Sequence[int] | NDArray[Any]) -> list[Id]:
        wanted = np.asarray(rows, np.int64)
        if self.kind == "range":
            return list(wanted.tolist())
        users, inside = self._users.some(wanted)
        return users.ids.ids_of(inside)

    def row_of(self, one: object) -> int:
        return int(self.rows_of([one])[0])

    def rows_of(self, ids: Iterable[object]) -> NDArray[np.int64]:
        shards, wanted = self._users.shards, list(ids)
        if self.kind == "range":
            return shards.ids.rows_of(wanted)
        rows = np.full(len(wanted), -1, np.int64)
        numbers = np.array([shards.ids.last_up_to(user_id) for user_id in wanted], np.int64)
        for number in np.unique(numbers[numbers >= 0]).tolist():  # a shard is opened once, however many ids it has
            here = np.flatnonzero(numbers == number)
            inside = self._users.shard(number).ids.rows_of([wanted[i] for i in here])
            rows[here] = np.where(inside >= 0, inside + shards.first[number], -1)
        return rows
