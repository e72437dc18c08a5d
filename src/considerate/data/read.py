"""Reading of likes: any source -> pairs of row numbers, and the vocabularies of these rows."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from considerate.data.encode import Encoder, TimeColumn, check_length
from considerate.data.inputs import Input, translate_errors
from considerate.data.options import (
    GUESS,
    TITLES,
    ReaderKeywords,
    ReaderOptions,
    find,
    guess_rating,
    guess_time,
    listed,
    pick_id,
    pick_pair,
    plain,
    quoted,
    refuse_column,
    unused_weights,
    usual_name,
)
from considerate.data.parquet import ParquetInput
from considerate.data.rules import Compiled, as_number, compile_rule, parse
from considerate.data.sources import is_database, is_sparse, matrix_pairs, open_input
from considerate.data.vocabulary import Titles, Vocabulary, string_bytes
from considerate.data.weights import AmountColumn, Amounts, HalfLife, whole_amounts
from considerate.errors import DataError, UsageError

logger = logging.getLogger("considerate")

GROUP_ROWS = 5_000_000  # rows that go through one hash table
GROUP_BYTES = 1 << 28


class NothingKeptError(DataError):
    """Error: a rule that no row satisfies."""


@dataclass(frozen=True)
class Interactions:
    """Likes as pairs of row numbers, with the vocabularies of users and items.

    A pair that is in the data twice is here twice. There are no pairs if a graph has them.
    """

    users: NDArray[np.int32]  #: [likes]
    items: NDArray[np.int32]  #: [likes]
    user_ids: Vocabulary
    item_ids: Vocabulary
    titles: Titles | None
    source: str  #: name of the source, for messages
    rows_read: int
    rows_kept: int  #: after the rule
    notes: tuple[str, ...]  #: notes for the user, such as guessed columns and the number of titles
    times: NDArray[np.float64] | None = None  #: [likes] seconds since 1970 UTC, or the column's numbers; NaN if missing
    amounts: Amounts | None = None  #: [likes] amounts of the rows, if likes have weights

    def __post_init__(self) -> None:
        pairs = self.rows_kept if len(self.users) else 0
        if not len(self.users) == len(self.items) == pairs or not self.rows_kept <= self.rows_read:
            raise DataError(
                f"{self.source}: {len(self.users)} users and {len(self.items)} items in {self.rows_kept} "
                f"kept of {self.rows_read} rows; expected one of each per row."
            )
        if self.times is not None and len(self.times) != self.rows_kept:
            raise DataError(f"{self.source}: {len(self.times)} times for {self.rows_kept} likes; expected one each.")
        if self.titles is not None and len(self.titles) != len(self.item_ids):
            raise DataError(f"{self.source}: {len(self.titles)} titles for {len(self.item_ids)} items.")

    def without_pairs(self) -> Interactions:
        """A copy without the pairs, with the vocabularies, titles, counts and notes."""
        return replace(self, users=self.users[:0].copy(), items=self.items[:0].copy(), times=None, amounts=None)


def read_interactions(source: Any, **options: Unpack[ReaderKeywords]) -> Interactions:
    """Read likes from any source.

    source           path of a Parquet file or folder or of delimited text (.gz too); data frame, lazy frame of
                     polars, Arrow table or reader, dict of columns, array of two columns or a tuple of two arrays,
                     users and items; scipy sparse matrix; sqlite:/// or postgresql:// address; Interactions.
                     Parquet also at an s3://, gs://, hdfs:// or abfs:// address
    user_column      column names; guessed from the usual ones if not given
    item_column
    rating_column    a column that holds ratings under an unusual name; `rating` in the rule means it
    where            rule for the rows that are likes, such as "rating >= 4"; needed if there are ratings (see rules.py)
    titles           a source of item ids and titles, or a dict {id: title}
    title_id_column  its columns; guessed if not given
    title_column
    query            query for a database
    time_column      times of the likes: dates, moments or numbers; for splits by time (see encode.py)
    weight_column    weights of likes, such as plays; the rows of one pair are added (see weights.py)
    weight           shape of that sum: "raw", "log1p" or "sqrt"; for a matrix, the stored values are used
    weight_scale     "mean": all weights have a mean of 1; "user": those of each user; "none": weights stay as they are
    half_life        the age at which a like counts half, such as "90d", or in the unit of the time column
    signals          {rule: weight}: the rows that are likes, and the weight of each kind

    Vocabularies are sorted and have the ids that the rule keeps, so row numbers do not depend on the order of rows.
    """
    if "considered_where" in options:
        raise UsageError("considered_where is for fits; where says which rows are likes, and read_judged reads both.")
    return read_likes(source, ReaderOptions.of(options))


def read_likes(source: Any, options: ReaderOptions) -> Interactions:
    """Read likes from any source; see `read_interactions`."""
    if isinstance(source, Interactions):
        if not options.is_default:
            raise UsageError("these likes have been read already; give the options to the first reading.")
        return source
    if is_sparse(source):
        if not replace(options.untitled(), weight=None, weight_scale=None).is_default:
            raise UsageError("a matrix has no columns to name and no rows to choose; leave these options out.")
        users, items, values = matrix_pairs(source, options.weighting is not None)
        amounts = None if options.weighting is None else Amounts(whole_amounts(values), options.weighting)
        user_ids, item_ids = (Vocabulary.range(size) for size in source.shape)
        titles, notes = find_titles(item_ids, replace(options, item_column="item"))
        source_name, rows = "the given matrix", len(users)
        return Interactions(
            users, items, user_ids, item_ids, titles, source_name, rows, rows, tuple(notes), None, amounts
        )
    with closing(open_input(source, options.query, options.headers)) as table:
        options, notes = resolve_columns(table, options)
        mention_weights(table, options)
        scan = collect(table, options)
    likes = finish_pairs(table, options, scan)
    amounts = make_amounts(scan, options, likes.times, table.name)
    titles, more = find_titles(likes.item_ids, options)
    return replace(likes, titles=titles, amounts=amounts, notes=(*table.notes, *notes, *likes.notes, *more))


def finish_pairs(table: Input, options: ReaderOptions, scan: Collected) -> Interactions:
    """Make the likes of a scan: row numbers and vocabularies, without titles."""
    check_rows(table.name, options.rule, scan.rows, scan.kept, scan.nan)
    with translate_errors(table.name), ThreadPoolExecutor(2) as pool:
        (users, user_ids), (items, item_ids) = pool.map(Encoder.finish, (scan.users, scan.items))
    times = None if scan.times is None else scan.times.finish()
    notes = (*scan.users.notes, *scan.items.notes, *(scan.times.notes if scan.times else []))
    return Interactions(users, items, user_ids, item_ids, None, table.name, scan.rows, len(users), notes, times)


def make_amounts(
    scan: Collected, options: ReaderOptions, times: NDArray[np.float64] | None, source: str, latest: float | None = None
) -> Amounts | None:
    """The amounts of the rows of a scan, or None without weights.

    `latest` is the time of the latest like of all, if the scan has a part of the likes.
    """
    if options.weighting is None:
        return None
    values = np.ones(scan.kept) if scan.amounts is None else scan.amounts.finish()
    if options.half_life is not None:
        assert times is not None
        last = float(np.nanmax(times)) if latest is None else latest
        values *= HalfLife.of(options.half_life).decay(times, last, source, str(options.time_column))
    return Amounts(whole_amounts(values), options.weighting)


def read_dated_likes(source: Any, options: ReaderOptions) -> Interactions:
    """Read likes, with times if a time column is named or has a usual name."""
    if options.time_column is None and not isinstance(source, Interactions) and not is_sparse(source):
        options = replace(options, time_column=GUESS)
    return read_likes(source, options)


def read_judged(
    source: Any, options: ReaderOptions | None = None, **named: Any
) -> tuple[Interactions, Interactions | None]:
    """Read judged pairs: (liked, not liked), the rows that satisfy the rule and those that fail it.

    The options are those of `read_interactions`; `where` is needed. A row without a value that the rule needs is in
    neither part. `not liked` is None if no row fails. The source is read twice, so it cannot be a stream.
    """
    options = ReaderOptions.of(named) if options is None else options
    if options.where is None:
        raise UsageError('read_judged needs a rule that tells likes from others, such as where="rating >= 4".')
    liked = read_likes(source, options)
    if liked.rows_kept == liked.rows_read:
        return liked, None
    try:
        unliked = replace(options.untitled(), where=f"not ({options.where})", weight_column=None, weight=None)
        return liked, read_likes(source, replace(unliked, weight_scale=None, half_life=None))
    except NothingKeptError:
        return liked, None


def resolve_columns(table: Input, options: ReaderOptions) -> tuple[ReaderOptions, list[str]]:
    """Resolve the columns: the options with the names that the table has, and notes on guessed columns."""
    user, item, notes = pick_pair(table.names, options.user_column, options.item_column, table.name)
    rating = _named(table, options.rating_column, "--rating-column")
    wanted = GUESS if options.time_column is None and options.half_life is not None else options.time_column
    if wanted == GUESS and GUESS not in table.names:
        time = guess_time(table.types((user, item)))
        notes += [] if time is None else [f"times are taken from the column {time!r}"]
    else:
        time = _named(table, wanted, "--time-column")
    if time is None and options.half_life is not None:
        raise refuse_column("times", "time", table.names, table.name)
    weight = _named(table, options.weight_column, "--weight-column")
    if weight is None and options.weighting is not None and not options.has_weights:
        raise refuse_column("weights", "weight", table.names, table.name)
    options = replace(options, user_column=user, item_column=item, rating_column=rating)
    return replace(options, time_column=time, weight_column=weight), notes


def mention_weights(table: Input, options: ReaderOptions) -> None:
    """Log a warning if a column looks like counts or weights and is not used, by resolved options."""
    if unused := unused_weights(table.names, options):
        logger.warning(
            "%s: every row is one like, whatever it has in %s, which is not used as a weight. A rule says which rows "
            'are likes, such as where="%s >= 2" (--where); weight_column="%s" (--weight-column) makes it their weight',
            table.name,
            listed(unused),
            quoted(unused[0]),
            unused[0],
            extra={"once": True},
        )


def _named(table: Input, column: str | None, option: str) -> str | None:
    return None if column is None else find(column, table.names, table.name, option)


def open_parquet_likes(source: Any, options: ReaderOptions) -> tuple[ParquetInput, ReaderOptions, list[str]] | None:
    """Open a Parquet source, which tasks can read in pieces: (input, resolved options, notes); None for others.

    The columns and the rule are checked against the schema.
    """
    if not isinstance(source, str | os.PathLike) or is_database(source):
        return None
    table = open_input(source, options.query, options.headers)
    if not isinstance(table, ParquetInput):
        return None
    options, notes = resolve_columns(table, options)
    choose_rule(table, options)
    return table, options, notes


def choose_rule(table: Input, options: ReaderOptions) -> Compiled | None:
    """The rule of the likes over the columns of a table, by resolved options; ratings without a rule are refused."""
    ids, rating = (str(options.user_column), str(options.item_column)), options.rating_column
    if options.rule is None:
        rating = rating or guess_rating([name for name in table.names if name not in (*ids, options.weight_column)])
        if rating is None:
            return None
        name = quoted(rating)
        raise DataError(
            f"{table.name}: the column {rating!r} holds ratings, and not every rating is a like; say which "
            f'rows are likes, e.g. --where "{name} >= 4" (where="{name} >= 4" in Python), or keep all that '
            f'have one: --where "{name} is not null".'
        )
    return bind_rule(options.rule, table, options)


def bind_rule(text: str, table: Input, options: ReaderOptions) -> Compiled:
    """Compile a rule over the columns of a table."""
    rule, rating = parse(text), options.rating_column
    types = table.types((str(options.user_column), str(options.item_column)))
    used = {}
    for column in rule.columns:
        if rating is not None and column.lower() == "rating" and column not in table.names:
            real = rating
        else:
            real = find(column, table.names, table.name, "--where")
        used[column] = (real, types[real])
    return compile_rule(rule, used)


@dataclass(frozen=True)
class Collected:
    """Result of a scan: counts of rows, and the columns of those that were kept."""

    users: Encoder
    items: Encoder
    times: TimeColumn | None
    amounts: AmountColumn | None
    rows: int  # read
    kept: int
    nan: int  # with NaN in a column of the rule


def collect(table: Input, options: ReaderOptions) -> Collected:
    """Scan a table once and collect the rows that the rule keeps, by resolved options; each id column has a thread."""
    import pyarrow.compute as pc

    user, item, rule = str(options.user_column), str(options.item_column), choose_rule(table, options)
    fields, keep, needed = {"user": pc.field(user), "item": pc.field(item)}, None, [user, item]
    if rule is not None:
        keep = rule.keep
        needed += rule.columns
        if rule.nan is not None:  # rows with NaN come along to be counted
            fields["nan"], keep = rule.nan, rule.keep | rule.nan
    times = None if options.time_column is None else TimeColumn(options.time_column, table.name)
    if times is not None:
        fields["time"] = pc.field(times.column)
        needed.append(times.column)
    amounts = None
    if options.weight_column is not None or options.signals is not None:
        amounts = AmountColumn(options.weight_column, table.name)
        fields["amount"], more = amount_field(table, options)
        needed += more
    needed = list(dict.fromkeys(needed))
    types = table.types((user, item))
    encoders = [Encoder(kind, column, types[column], table) for kind, column in (("user", user), ("item", item))]
    kept = nan = 0
    with translate_errors(table.name), _comparing(table.name, rule, options.rule), ThreadPoolExecutor(2) as pool:
        waiting: list[Future[None]] = []
        for group in _groups(table.scan(needed, [user, item], fields, keep)):
            kept += sum(batch.num_rows for batch in group)
            if "nan" in fields:
                nan += sum(pc.sum(batch.column("nan")).as_py() or 0 for batch in group)
            for future in waiting:
                future.result()
            waiting = [
                pool.submit(encoder.add, [batch.column(at) for batch in group]) for at, encoder in enumerate(encoders)
            ]
            if times is not None:
                times.add([batch.column("time") for batch in group])
            if amounts is not None:
                amounts.add([batch.column("amount") for batch in group])
        for future in waiting:
            future.result()
    return Collected(encoders[0], encoders[1], times, amounts, table.rows, kept, nan)


def amount_field(table: Input, options: ReaderOptions) -> tuple[Any, list[str]]:
    """(expression, its columns) of the amount of a row: the weight of its first signal times the weight column."""
    import pyarrow as pa
    import pyarrow.compute as pc

    amount, needed = pc.scalar(1.0), list[str]()
    for text, weight in reversed(options.signals or ()):
        rule = bind_rule(text, table, options)
        amount = pc.if_else(pc.coalesce(rule.keep, pa.scalar(False)), pc.scalar(weight), amount)
        needed += rule.columns
    if options.weight_column is not None:
        column = options.weight_column
        kind = table.types((str(options.user_column), str(options.item_column)))[column]
        amount = amount * as_number(pc.field(column), kind)
        needed.append(column)
    return amount, needed


def check_rows(name: str, where: str | None, rows: int, kept: int, nan: int) -> None:
    """Refuse rows with NaN in the rule, and data that keeps no row."""
    if nan:
        raise DataError(
            f"{name}: {nan} rows have NaN in a column of the rule {where!r}; "
            "a NaN is neither a like nor none: drop or fill these rows first."
        )
    if not rows:
        raise DataError(f"{name}: no rows; expected at least one like.")
    if not kept:
        raise NothingKeptError(f"{name}: the rule {where!r} keeps none of its {rows} rows; relax it.")


@contextmanager
def _comparing(name: str, rule: Compiled | None, where: str | None) -> Iterator[None]:
    """Explain the error of a rule that compares a number with text that is not a number."""
    import pyarrow as pa

    try:
        yield
    except pa.ArrowInvalid as error:
        seen = re.match(r"Failed to parse string: '(.*)' as a scalar of type double", str(error), re.DOTALL)
        if seen is None or rule is None or not rule.parsed:
            raise
        column, literal = rule.parsed[0]
        columns = " or ".join(repr(parsed) for parsed, _ in rule.parsed)
        raise DataError(
            f"{name}: the rule {where!r} compares {columns} with a number, but finds the text "
            f"{seen[1][:100]!r}; compare text with quoted text, such as {quoted(column)} = '{literal}'."
        ) from error


def _groups(batches: Iterator[Any]) -> Iterator[list[Any]]:
    """Group batches in lists of about GROUP_ROWS rows."""
    group: list[Any] = []
    rows = size = 0
    for batch in batches:
        group.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= GROUP_ROWS or size >= GROUP_BYTES:
            yield group
            group, rows, size = [], 0, 0
    if group:
        yield group


# --- Titles ---


def find_titles(items: Vocabulary, options: ReaderOptions) -> tuple[Titles | None, list[str]]:
    """Find the titles of the items of a vocabulary, and notes for the user; an item's first title counts."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if options.titles is None:
        return None, []
    source = options.titles
    if isinstance(source, Mapping) and all(isinstance(title, str | None) for title in source.values()):
        source = {"item": list(source), "title": list(source.values())}
    with closing(open_input(source, None, options.title_headers)) as table:
        id_column, title_column = _pick(table, options)
        both = list(dict.fromkeys((id_column, title_column)))
        encoder = Encoder("item", id_column, table.types(both)[id_column], table)
        text = pc.utf8_trim_whitespace(pc.field(title_column).cast(pa.large_string()))
        fields = {"item": pc.field(id_column), "title": text}
        parts = []
        with translate_errors(table.name):
            for batch in table.scan(both, both, fields, pc.field(id_column).is_valid()):
                check_length(f"{table.name}: a title", title_column, batch.column(1))
                encoder.add([batch.column(0)])
                parts.append(batch.column(1).dictionary_encode())  # a repeated title takes no room
    with translate_errors(table.name):
        titles = pa.chunked_array(parts, pa.dictionary(pa.int32(), pa.large_string())).combine_chunks()
        titles.validate(full=True)
        codes, ids = encoder.finish()
        rows = items.rows_of(ids.ids_of(range(len(ids))))[codes]  # -1: not in the data; '7' and 7 are the same
        has_title = pc.not_equal(pc.binary_length(titles.dictionary), 0).take(titles.indices).fill_null(False)
        known = np.flatnonzero((rows >= 0) & has_title.to_numpy(zero_copy_only=False))
        if not len(known):
            here, there = (f", such as {some.id_of(0)!r}" if len(some) else "" for some in (ids, items))
            raise DataError(
                f"{table.name}: none of its {len(ids)} ids in {id_column!r}{here}, has a title and "
                f"is an item of the data{there}; name the right column with --title-id-column."
            )
        first = np.full(len(items), -1, np.int64)
        first[rows[known[::-1]]] = known[::-1]  # backwards, so that the first title stays
        chosen = titles.take(pa.array(first, mask=first < 0)).dictionary_decode().fill_null("")
    note = f"titles for {len(np.unique(rows[known])):,} of {len(items):,} items, from {title_column!r} by {id_column!r}"
    return Titles(*string_bytes(chosen)), [note]


def _pick(table: Input, options: ReaderOptions) -> tuple[str, str]:
    """The columns of ids and titles: the named ones, else the usual ones, first the item column of the likes."""
    id_column = _named(table, options.title_id_column, "--title-id-column")
    id_column = id_column or pick_id("item", table.names, table.name, plain(str(options.item_column)))
    title_column = _named(table, options.title_column, "--title-column")
    title_column = title_column or usual_name([name for name in table.names if name != id_column], TITLES)
    if id_column is None:
        raise refuse_column("item ids", "title-id", table.names, table.name)
    if title_column is None:
        raise refuse_column("titles", "title", table.names, table.name)
    return id_column, title_column
