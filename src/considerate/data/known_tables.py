"""Constraints on H by id, as they are read: considered pairs, impossible pairs, and tables of rules.

`KnownTables.rows` matches them with the ids of the likes, which decide who and what has a row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.encode import read_columns, times_of
from considerate.data.fingerprint import combine_digests, digest_ids, digest_likes
from considerate.data.graph import Adjacency
from considerate.data.inputs import Input
from considerate.data.known import ALWAYS, Known, Rules
from considerate.data.options import ReaderOptions, find, guess, listed, plain, quoted, usual_name
from considerate.data.read import Interactions, collect, finish_pairs, read_likes, resolve_columns
from considerate.data.sources import is_sparse, open_input
from considerate.data.vocabulary import Ids, Vocabulary, match_rows
from considerate.errors import DataError, UsageError

FROM = ("from", "start", "begin", "since", "availablefrom", "activefrom", "startdate")
UNTIL = ("until", "to", "end", "availableuntil", "availableto", "activeuntil", "enddate")
MOST_CLASSES = 1 << 14  # most classes of users, and of items: distinct sets of groups


@dataclass(frozen=True)
class Impossible:
    """Pairs that cannot be considered, as a list and by rules.

    `available` is a table of items with the moments `from` and `until` which each is available; a missing moment is no
    limit. It is compared with the time of each user, which is from the first to the last like by the time column, or is
    given by a table `active` of users with the same columns. `item_groups` is a table of items and the groups that they
    are for, `user_groups` a table of users and their groups. An item in the table is for its groups alone; an item that
    is not in the table is for everyone.
    """

    pairs: Any = None  #: user, item
    available: Any = None  #: item, from, until
    active: Any = None  #: user, from, until
    user_groups: Any = None  #: user, group
    item_groups: Any = None  #: item, group

    def __post_init__(self) -> None:
        if (self.user_groups is None) != (self.item_groups is None):
            raise UsageError(
                "user_groups and item_groups go together: the groups of each user, and the groups that items are for."
            )
        if self.active is not None and self.available is None:
            raise UsageError("active goes with available, the times of the items that it is compared with.")


@dataclass(frozen=True)
class TimeTable:
    """First and last moment of users or items, by id; infinite if there is no limit."""

    ids: Vocabulary
    times: NDArray[np.float64]  # [ids, 2]

    def of(self, ids: Ids) -> NDArray[np.float64]:
        """[ids, 2] times of these ids; an id that is not in the table is always there."""
        rows = match_rows(ids, self.ids)
        return np.where(rows[:, None] >= 0, self.times[rows], ALWAYS)

    def digest(self) -> str:
        return combine_digests(
            [digest_ids(self.ids), hashlib.sha256(np.ascontiguousarray(self.times).data).hexdigest()]
        )


@dataclass(frozen=True)
class PairTable:
    """Pairs by id: of users and items, or of one of these and groups."""

    left: NDArray[np.int32]  # [pairs] rows of left_ids
    right: NDArray[np.int32]
    left_ids: Vocabulary
    right_ids: Vocabulary
    source: str

    @classmethod
    def of(cls, pairs: Interactions) -> PairTable:
        return cls(pairs.users, pairs.items, pairs.user_ids, pairs.item_ids, pairs.source)

    def interactions(self) -> Interactions:
        """The pairs in the form of likes."""
        count = len(self.left)
        return Interactions(self.left, self.right, self.left_ids, self.right_ids, None, self.source, count, count, ())

    def without(self, likes: Interactions) -> PairTable:
        """Remove the pairs that are likes, by their ids."""
        users, items = self._rows(likes.user_ids, likes.item_ids)
        width = len(likes.item_ids)
        liked = np.isin(users * width + items, likes.users.astype(np.int64) * width + likes.items)
        kept = ~((users >= 0) & (items >= 0) & liked)
        return replace(self, left=self.left[kept], right=self.right[kept])

    def _rows(self, left: Ids, right: Ids) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """[pairs] the rows of both ids among these, -1 if unknown."""
        return match_rows(self.left_ids, left)[self.left], match_rows(self.right_ids, right)[self.right]

    def by_left(self) -> Adjacency:
        return Adjacency.of_pairs(self.left, self.right, len(self.left_ids), len(self.right_ids))

    def keys(self, left: Ids, right: Ids) -> NDArray[np.int64]:
        """Keys row * len(right) + row of the pairs whose two ids are among these, each once, ascending."""
        for mine, theirs in ((self.left_ids, left), (self.right_ids, right)):
            if mine.kind == "range" and theirs.kind != "range":
                raise UsageError(
                    f"{self.source}: a matrix of pairs goes with a matrix of likes; give a table with ids."
                )
        a, b = self._rows(left, right)
        known = (a >= 0) & (b >= 0)
        return np.unique(a[known] * len(right) + b[known])

    def digest(self) -> str:
        return combine_digests([digest_likes(self.by_left()), digest_ids(self.left_ids), digest_ids(self.right_ids)])


@dataclass(frozen=True)
class ImpossibleTables:
    """The tables of an `Impossible`, as they were read."""

    pairs: PairTable | None = None
    available: TimeTable | None = None
    active: TimeTable | None = None
    user_groups: PairTable | None = None
    item_groups: PairTable | None = None

    @property
    def needs_times(self) -> bool:
        """True if the users' times must come from the likes."""
        return self.available is not None and self.active is None

    def rules(self, user_ids: Ids, item_ids: Ids, user_times: NDArray[np.float64] | None) -> Rules | None:
        """The rules of these users and items, None if there are none; `user_times` come from the likes."""
        rules: dict[str, NDArray[Any]] = {}
        if self.available is not None:
            times = user_times if self.active is None else self.active.of(user_ids)
            if times is None:
                raise UsageError(
                    "the times of items are compared with the times of users: name the time of each "
                    "like with --time-column (time_column=), or give a table of users with from and until as active."
                )
            rules |= {"user_times": times, "item_times": self.available.of(item_ids)}
        if self.user_groups is not None and self.item_groups is not None:
            groups = self.item_groups.right_ids
            user_class, user_sets = _classes(self.user_groups, user_ids, groups)
            item_class, item_sets = _classes(self.item_groups, item_ids, groups)
            allowed = _allowed(user_sets, item_sets)
            rules |= {"user_class": user_class, "item_class": item_class, "allowed": allowed}
        return Rules(**rules) if rules else None

    def digest(self) -> str:
        tables = {field.name: getattr(self, field.name) for field in fields(self)}
        return combine_digests([f"{name} {table.digest()}" for name, table in tables.items() if table is not None])


@dataclass(frozen=True)
class StoredLimits:
    """Impossible pairs and rules of an earlier fit, by the rows of its users and items.

    They replace `ImpossibleTables`. New users are in no group, new items are for everyone, and both are always there.
    """

    limits: Known
    user_ids: Vocabulary
    item_ids: Vocabulary
    needs_times = False

    @property
    def pairs(self) -> PairTable | None:
        pairs = self.limits.impossible
        if pairs is None:
            return None
        return PairTable(pairs.edge_rows.astype(np.int32), pairs.indices, self.user_ids, self.item_ids, "the model")

    def rules(self, user_ids: Ids, item_ids: Ids, user_times: NDArray[np.float64] | None) -> Rules | None:
        """The rules of these users and items, None if there are none; the times of users do not change."""
        rules = self.limits.rules
        if rules is None:
            return None
        return rules.take(match_rows(user_ids, self.user_ids)).take(match_rows(item_ids, self.item_ids), "item")


# --- Reading ---


def read_pairs(source: Any, options: ReaderOptions, where: str | None = None) -> PairTable:
    """Read pairs of users and items from any source of likes, by the columns of the likes if the source has them.

    Each row that the rule keeps is a pair; without a rule, each row. A database is (address, query).
    """
    if isinstance(source, PairTable | Interactions):
        return source if isinstance(source, PairTable) else PairTable.of(source)
    if is_sparse(source):
        return PairTable.of(read_likes(source, ReaderOptions()))
    if isinstance(source, tuple) and len(source) == 2 and all(isinstance(part, str) for part in source):
        source, options = source[0], replace(options, query=source[1])
    with closing(open_input(source, options.query, options.headers)) as table:
        named = {name: getattr(options, name) for name in ("user_column", "item_column", "rating_column")}
        named = {name: column for name, column in named.items() if column in table.names}
        resolved, _ = resolve_columns(table, ReaderOptions(**named))
        resolved = replace(resolved, where=where or f"{quoted(str(resolved.user_column))} is not null")
        return PairTable.of(finish_pairs(table, resolved, collect(table, resolved)))


def read_groups(source: Any, side: str) -> PairTable:
    """Read pairs of users, or items, and groups: a column of ids and one of groups."""
    with closing(open_input(_table(source, (side, "group")))) as table:
        column = _id_column(table, side)
        rest = [name for name in table.names if name != column]
        group = rest[0] if len(rest) == 1 else find("group", table.names, table.name, "group")
        resolved = ReaderOptions(user_column=column, item_column=group, where=f"{quoted(column)} is not null")
        return PairTable.of(finish_pairs(table, resolved, collect(table, resolved)))


def read_times(source: Any, side: str) -> TimeTable:
    """Read the times of items or users: a column of ids, and columns of the first and the last moment, or one of them.

    If an id has several rows, the earliest and the latest moment count.
    """
    with closing(open_input(_table(source, (side, "from", "until")))) as table:
        column = _id_column(table, side)
        ends = [usual_name(table.names, words) for words in (FROM, UNTIL)]
        names = [name for name in ends if name is not None]
        if not names:
            raise DataError(
                f"{table.name}: no column 'from' and none 'until'; it has {listed(table.names)}. Rename those that say "
                f"from when and until when each {side} is there."
            )
        ids, codes, columns = read_columns(table, side, column, names, what="the times", skip=False)
        given = {name: times_of(array, table.name, name) for name, array in zip(names, columns)}
    times = np.tile([np.inf, -np.inf], (len(ids), 1))
    for end, (name, extreme, unlimited) in enumerate(zip(ends, (np.minimum, np.maximum), ALWAYS)):
        moments = np.full(len(codes), np.nan) if name is None else given[name]
        extreme.at(times[:, end], codes, np.where(np.isnan(moments), unlimited, moments))
    if (times[:, 0] > times[:, 1]).any():
        wrong = ids.id_of(int(np.flatnonzero(times[:, 0] > times[:, 1])[0]))
        raise DataError(f"{table.name}: {side} {wrong!r} is there from later than until; exchange the two columns.")
    return TimeTable(ids, times)


def read_impossible(given: Any, options: ReaderOptions) -> ImpossibleTables | StoredLimits | None:
    """Read the tables of an `Impossible`, or of a source of pairs."""
    if given is None or isinstance(given, ImpossibleTables | StoredLimits):
        return given
    given = given if isinstance(given, Impossible) else Impossible(given)
    return ImpossibleTables(
        None if given.pairs is None else read_pairs(given.pairs, options),
        None if given.available is None else read_times(given.available, "item"),
        None if given.active is None else read_times(given.active, "user"),
        None if given.user_groups is None else read_groups(given.user_groups, "user"),
        None if given.item_groups is None else read_groups(given.item_groups, "item"),
    )


def _table(source: Any, columns: Sequence[str]) -> Any:
    """Turn a dict with one value for each id into a table of two columns."""
    if isinstance(source, dict) and not set(map(plain, map(str, source))) & {*columns, f"{columns[0]}id"}:
        return {columns[0]: list(source), columns[1]: list(source.values())}
    return source


def _id_column(table: Input, side: str) -> str:
    column = guess(side, table.names, table.name) or ("id" if "id" in table.names else None)
    if column is None:
        raise DataError(
            f"{table.name}: no column looks like the {side}s; it has {listed(table.names)}. Call it {side!r}."
        )
    return column


# --- From ids to rows ---


@dataclass(frozen=True)
class KnownTables:
    """Constraints on H by id."""

    considered: PairTable | None
    impossible: ImpossibleTables | StoredLimits | None

    def rows(
        self, user_ids: Ids, item_ids: Ids, likes: Adjacency, user_times: NDArray[np.float64] | None = None
    ) -> Known:
        """Match the constraints with the rows of these users, whose likes are given.

        A liked pair is a like only, and a considered pair is not impossible. Pairs without rows are left out.
        """
        items, tables = len(item_ids), self.impossible
        closed = likes.edge_rows * items + likes.indices
        lists: dict[str, Adjacency] = {}
        for name, table in (("considered", self.considered), ("impossible", None if tables is None else tables.pairs)):
            if table is not None:
                given = table.keys(user_ids, item_ids)
                keys = np.setdiff1d(given, closed, assume_unique=True)
                closed = np.concatenate([closed, keys])
                lists[name] = _rows_of(keys, likes.rows, items)
                if name == "impossible":
                    liked = np.isin(given, likes.edge_rows * items + likes.indices)
                    lists["liked"] = _rows_of(given[liked], likes.rows, items)
        rules = None if tables is None else tables.rules(user_ids, item_ids, user_times)
        return Known(**lists, rules=rules)


def _rows_of(keys: NDArray[np.int64], users: int, items: int) -> Adjacency:
    """Pairs from their ascending keys, user * items + item."""
    starts = np.searchsorted(keys, np.arange(users + 1) * items)
    return Adjacency(starts.astype(np.int64), (keys % max(1, items)).astype(np.int32))


def _classes(table: PairTable, ids: Ids, groups: Vocabulary) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """(class of each id, groups of each class [classes, groups]): ids with the same groups are in one class.

    Classes are numbered as they come up in the table. Class 0 is for ids that are not in it.
    """
    columns = match_rows(table.right_ids, groups)[table.right]
    known = columns >= 0
    sets = Adjacency.of_pairs(table.left[known], columns[known], len(table.left_ids), len(groups))
    numbers: dict[bytes, int] = {}
    classes = [numbers.setdefault(sets.row(row).tobytes(), len(numbers) + 1) for row in range(sets.rows)]
    if len(numbers) > MOST_CLASSES:
        raise UsageError(
            f"{table.source}: more than {MOST_CLASSES:,} distinct sets of groups; use fewer groups, or give the pairs."
        )
    members = np.zeros((len(numbers) + 1, len(groups)), np.bool_)
    for key, number in numbers.items():
        members[number, np.frombuffer(key, np.int32)] = True
    return np.append(classes, 0).astype(np.int32)[match_rows(ids, table.left_ids)], members


def _allowed(user_sets: NDArray[np.bool_], item_sets: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """[user classes, words] a bit for each class of items, set if the classes share a group."""
    bits = (user_sets.astype(np.float32) @ item_sets.T.astype(np.float32)) > 0
    bits[:, 0] = True  # items that are not in the table
    padded = np.pad(bits, ((0, 0), (0, -bits.shape[1] % 64)))
    return np.packbits(padded, axis=1, bitorder="little").view(np.uint64)


def likes_span(users: NDArray[Any], times: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """[users, 2] times of each user's first and last like; infinite if no like has a time."""
    dated = ~np.isnan(times)
    spans = np.tile([np.inf, -np.inf], (count, 1))
    np.minimum.at(spans[:, 0], users[dated], times[dated])
    np.maximum.at(spans[:, 1], users[dated], times[dated])
    spans[spans[:, 0] > spans[:, 1]] = ALWAYS
    return spans
