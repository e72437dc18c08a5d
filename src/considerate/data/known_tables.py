"""What is known of H beside the likes, by id, as it is read: considered pairs, impossible pairs, and tables of rules.

The tables are matched with the ids of the likes (`known_rows`), which decide who and what has a row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.encode import Encoder, times_of
from considerate.data.fingerprint import digest_ids, digest_likes, together
from considerate.data.graph import Adjacency
from considerate.data.inputs import Input, translate_errors
from considerate.data.known import Known, Rules
from considerate.data.options import ReaderOptions, find, guess, listed, plain, quoted
from considerate.data.read import Interactions, collect, finish_pairs, read_likes, resolve_columns
from considerate.data.sources import is_sparse, open_input
from considerate.data.vocabulary import Ids, Vocabulary, match_rows
from considerate.errors import DataError, UsageError

FROM = ("from", "start", "begin", "since", "availablefrom", "activefrom", "startdate")
UNTIL = ("until", "to", "end", "availableuntil", "availableto", "activeuntil", "enddate")
MOST_CLASSES = 1 << 14  # of users, and of items: distinct sets of groups


@dataclass(frozen=True)
class Impossible:
    """What cannot be considered: pairs, and rules that stand for many.

    `available` is a table of items with a moment `from` and one `until` which each is there; one that is missing is
    open. It is held against the time of each user: from the first to the last of the likes by the time column, or what
    a table `active` of users says, with the same columns. `item_groups` is a table of items and the groups that they
    are for, `user_groups` one of users and their groups. An item that is not in the table is for everyone; one that is,
    is for nobody else.
    """

    pairs: Any = None  #: of users and items
    available: Any = None  #: item, from, until
    active: Any = None  #: user, from, until
    user_groups: Any = None  #: user, group
    item_groups: Any = None  #: item, group

    def __post_init__(self) -> None:
        if (self.user_groups is None) != (self.item_groups is None):
            raise UsageError(
                "user_groups and item_groups go together: whose group each user is, and whom items are for."
            )
        if self.active is not None and self.available is None:
            raise UsageError("active goes with available, the times of the items that it is held against.")


@dataclass(frozen=True)
class TimeTable:
    """The first and the last moment of users or of items, by id; infinite where it is open."""

    ids: Vocabulary
    times: NDArray[np.float64]  # [ids, 2]

    def of(self, ids: Ids) -> NDArray[np.float64]:
        """[ids, 2] of these; one that is not in the table is always there."""
        rows = match_rows(ids, self.ids)
        return np.where(rows[:, None] >= 0, self.times[rows], [-np.inf, np.inf])

    def digest(self) -> str:
        return together([digest_ids(self.ids), hashlib.sha256(np.ascontiguousarray(self.times).data).hexdigest()])


@dataclass(frozen=True)
class PairTable:
    """Pairs by id: of users and items, or of either and groups."""

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
        """The pairs that are no likes, by their ids."""
        users, items = match_rows(self.left_ids, likes.user_ids), match_rows(self.right_ids, likes.item_ids)
        width = len(likes.item_ids)
        keys = users[self.left] * width + items[self.right]
        known = (users[self.left] >= 0) & (items[self.right] >= 0)
        kept = ~(known & np.isin(keys, likes.users.astype(np.int64) * width + likes.items))
        return replace(self, left=self.left[kept], right=self.right[kept])

    def by_left(self) -> Adjacency:
        return Adjacency.of_pairs(self.left, self.right, len(self.left_ids), len(self.right_ids))

    def keys(self, left: Ids, right: Ids) -> NDArray[np.int64]:
        """row * len(right) + row of the pairs whose two ids are among these, each once, ascending."""
        for mine, theirs in ((self.left_ids, left), (self.right_ids, right)):
            if mine.kind == "range" and theirs.kind != "range":
                raise UsageError(
                    f"{self.source}: a matrix of pairs goes with a matrix of likes; give a table with ids."
                )
        a, b = match_rows(self.left_ids, left)[self.left], match_rows(self.right_ids, right)[self.right]
        known = (a >= 0) & (b >= 0)
        return np.unique(a[known] * len(right) + b[known])

    def digest(self) -> str:
        return together([digest_likes(self.by_left()), digest_ids(self.left_ids), digest_ids(self.right_ids)])


@dataclass(frozen=True)
class ImpossibleTables:
    """`Impossible`, read."""

    pairs: PairTable | None = None
    available: TimeTable | None = None
    active: TimeTable | None = None
    user_groups: PairTable | None = None
    item_groups: PairTable | None = None

    @property
    def needs_times(self) -> bool:
        """Whether the users' times must come from the likes."""
        return self.available is not None and self.active is None

    def rules(self, user_ids: Ids, item_ids: Ids, user_times: NDArray[np.float64] | None) -> Rules | None:
        """The rules of these users and items; None where there are none. The times are those of the likes."""
        rules: dict[str, NDArray[Any]] = {}
        if self.available is not None:
            times = user_times if self.active is None else self.active.of(user_ids)
            if times is None:
                raise UsageError(
                    "the times at which items are available are held against those of the users: name the time of each "
                    "like with --time-column (time_column=), or give a table of users with from and until as active."
                )
            rules |= {"user_times": times, "item_times": self.available.of(item_ids)}
        if self.user_groups is not None and self.item_groups is not None:
            groups = self.item_groups.right_ids
            user_class, user_sets = _classes(self.user_groups, user_ids, groups)
            item_class, item_sets = _classes(self.item_groups, item_ids, groups)
            bits = (user_sets.astype(np.float32) @ item_sets.T.astype(np.float32)) > 0
            bits[:, 0] = True  # of items that are not in the table
            words = -(-bits.shape[1] // 64)
            padded = np.zeros((len(bits), 64 * words), np.bool_)
            padded[:, : bits.shape[1]] = bits
            allowed = np.packbits(padded, axis=1, bitorder="little").view(np.uint64)
            rules |= {"user_class": user_class, "item_class": item_class, "allowed": allowed}
        return Rules(**rules) if rules else None

    def digest(self) -> str:
        tables = {field.name: getattr(self, field.name) for field in fields(self)}
        return together([f"{name} {table.digest()}" for name, table in tables.items() if table is not None])


@dataclass(frozen=True)
class StoredLimits:
    """What was impossible in an earlier fit, by the rows of its users and items, in place of `ImpossibleTables`. Users
    who are new are in no group, new items are for everyone, and both are always there."""

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
        """As those of `ImpossibleTables`; the times of users stay what they were."""
        rules = self.limits.rules
        if rules is None:
            return None
        return rules.take(match_rows(user_ids, self.user_ids)).take_items(match_rows(item_ids, self.item_ids))


# --- Reading ---


def read_pairs(source: Any, options: ReaderOptions, where: str | None = None) -> PairTable:
    """Pairs of users and items from any source that likes are read from, by the likes' columns where the source has
    them. Each row is a pair, or each that the rule keeps. A database is (address, query)."""
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
    """Pairs of users, or items, and groups: a column of either and one of groups."""
    with closing(open_input(_table(source, (side, "group")))) as table:
        column = _id_column(table, side)
        rest = [name for name in table.names if name != column]
        group = rest[0] if len(rest) == 1 else find("group", table.names, table.name, "group")
        resolved = ReaderOptions(user_column=column, item_column=group, where=f"{quoted(column)} is not null")
        return PairTable.of(finish_pairs(table, resolved, collect(table, resolved)))


def read_times(source: Any, side: str) -> TimeTable:
    """The times of items or users: a column of either, one of the first moment and one of the last, or one of the two.
    Of several rows of an id the earliest and the latest count."""
    import pyarrow.compute as pc

    with closing(open_input(_table(source, (side, "from", "until")))) as table:
        column, words = _id_column(table, side), {plain(name): name for name in reversed(table.names)}
        ends = [next((words[word] for word in names if word in words), None) for names in (FROM, UNTIL)]
        if not any(ends):
            raise DataError(
                f"{table.name}: no column 'from' and none 'until'; it has {listed(table.names)}. Rename those that say "
                f"from when and until when each {side} is there."
            )
        needed = [column, *(name for name in ends if name is not None)]
        encoder, parts = Encoder(side, column, table.types([column])[column], table), []
        with translate_errors(table.name):
            for batch in table.scan(needed, [column], {name: pc.field(name) for name in needed}, None):
                if batch.num_rows:
                    encoder.add([batch.column(column)])
                    nothing = np.full(batch.num_rows, np.nan)
                    columns = {name: times_of(batch.column(name), table.name, name) for name in needed[1:]}
                    parts.append([nothing if name is None else columns[name] for name in ends])
            if not parts:
                raise DataError(f"{table.name}: no rows; expected the times of at least one {side}.")
            codes, ids = encoder.finish()
    times = np.tile([np.inf, -np.inf], (len(ids), 1))
    for end, (extreme, open_) in enumerate(((np.minimum, -np.inf), (np.maximum, np.inf))):
        given = np.concatenate([np.empty(0), *(part[end] for part in parts)])
        extreme.at(times[:, end], codes, np.where(np.isnan(given), open_, given))
    if (times[:, 0] > times[:, 1]).any():
        wrong = ids.id_of(int(np.flatnonzero(times[:, 0] > times[:, 1])[0]))
        raise DataError(f"{table.name}: {side} {wrong!r} is there from later than until; exchange the two columns.")
    return TimeTable(ids, times)


def read_impossible(given: Any, options: ReaderOptions) -> ImpossibleTables | StoredLimits | None:
    """`Impossible`, or a source of pairs, as tables."""
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
    """A dict of one value for each id is a table of two columns."""
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
    """All of it, by id."""

    considered: PairTable | None
    impossible: ImpossibleTables | StoredLimits | None

    def rows(
        self, user_ids: Ids, item_ids: Ids, likes: Adjacency, user_times: NDArray[np.float64] | None = None
    ) -> Known:
        """What is known of these users, whose likes are given: a like is a like whatever else is said of its pair, and
        what was considered is possible. Pairs of users and items without rows are left out."""
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
    """Pairs by their ascending keys, user * items + item."""
    starts = np.searchsorted(keys, np.arange(users + 1) * items)
    return Adjacency(starts.astype(np.int64), (keys % max(1, items)).astype(np.int32))


def _classes(table: PairTable, ids: Ids, groups: Vocabulary) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """(the class of each id, the groups of each class [classes, groups]). Class 0 is of those not in the table."""
    rows, columns = match_rows(ids, table.left_ids), match_rows(table.right_ids, groups)
    sets, names = table.by_left(), dict[bytes, int]({b"": 0})
    class_of = np.zeros(len(table.left_ids) + 1, np.int32)  # the last is of those not there
    members = [np.zeros(len(groups), np.bool_)]
    for row in range(sets.rows):
        own = columns[sets.row(row)]
        own = np.sort(own[own >= 0])
        key = b"in" + own.tobytes()
        if key not in names:
            if len(names) > MOST_CLASSES:
                raise UsageError(
                    f"{table.source}: more than {MOST_CLASSES:,} distinct sets of groups; use fewer groups, or give "
                    "the pairs."
                )
            names[key] = len(names)
            members.append(np.isin(np.arange(len(groups)), own))
        class_of[row] = names[key]
    return class_of[rows], np.array(members)


def likes_span(users: NDArray[Any], times: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """[users, 2] the first and the last of each user's likes; open where none has a time."""
    dated = ~np.isnan(times)
    spans = np.tile([np.inf, -np.inf], (count, 1))
    np.minimum.at(spans[:, 0], users[dated], times[dated])
    np.maximum.at(spans[:, 1], users[dated], times[dated])
    spans[spans[:, 0] > spans[:, 1]] = [-np.inf, np.inf]
    return spans
