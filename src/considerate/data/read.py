"""read_interactions: any source -> pairs of row numbers and the vocabularies that they point into."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.encode import Encoder, TimeColumn, check_length
from considerate.data.inputs import Input, translate_errors
from considerate.data.options import (
    GUESS,
    TITLES,
    ReaderOptions,
    find,
    guess,
    guess_rating,
    guess_time,
    listed,
    pick_pair,
    plain,
    quoted,
    refuse_column,
    unused_weights,
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
    """A rule that no row satisfies."""


@dataclass(frozen=True)
class Interactions:
    """Who liked what, as row numbers; a pair that comes twice in the data is here twice. Where a graph has the pairs,
    there may be none of them here."""

    users: NDArray[np.int32]  #: [likes]
    items: NDArray[np.int32]  #: [likes]
    user_ids: Vocabulary
    item_ids: Vocabulary
    titles: Titles | None
    source: str  #: where it came from, for messages
    rows_read: int
    rows_kept: int  #: after the rule
    notes: tuple[str, ...]  #: for the user: which columns were guessed, how many titles were found
    times: NDArray[np.float64] | None = (
        None  #: [likes] seconds since 1970 UTC, or the column's numbers; NaN if not known
    )
    amounts: Amounts | None = None  #: [likes] what their rows say of weights, if they have them

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
        """What is known of the likes, without the likes."""
        return replace(self, users=self.users[:0].copy(), items=self.items[:0].copy(), times=None, amounts=None)


def read_interactions(
    source: Any,
    *,
    user_column: str | None = None,
    item_column: str | None = None,
    rating_column: str | None = None,
    where: str | None = None,
    titles: Any = None,
    title_id_column: str | None = None,
    title_column: str | None = None,
    query: str | None = None,
    time_column: str | None = None,
    weight_column: str | None = None,
    weight: str | None = None,
    weight_scale: str | None = None,
    half_life: str | float | None = None,
    signals: Any = None,
) -> Interactions:
    """Likes from any source.

    source           path of a Parquet file or folder or of delimited text (.gz too); data frame, lazy frame of
                     polars, Arrow table or reader, dict of columns, array of two columns or a tuple of two arrays,
                     users and items; scipy sparse matrix; sqlite:/// or postgresql:// address; Interactions.
                     Parquet also at an s3://, gs://, hdfs:// or abfs:// address
    user_column      column names; guessed from the usual ones if not given
    item_column
    rating_column    a column that holds ratings under an unusual name; `rating` in the rule means it
    where            which rows are likes, such as "rating >= 4"; needed if there are ratings (see rules.py)
    titles           a source of item ids and titles, or a dict {id: title}
    title_id_column  its columns, guessed if not given
    title_column
    query            what to ask a database
    time_column      when each like was: dates, moments or numbers; for splits by time (see encode.py)
    weight_column    how much a like counts, such as plays; rows of one pair are added (see weights.py)
    weight           what that sum becomes: "raw", "log1p" or "sqrt". Of a matrix the stored values are taken
    weight_scale     "mean": weights have a mean of 1; "user": those of each user have; "none": they stay as they are
    half_life        the age at which a like counts half, such as "90d", or in the unit of the time column
    signals          {rule: weight}: the rows that are likes, and what one of each counts

    Vocabularies are sorted and hold the ids that the rule keeps, so that row numbers do not depend on the
    order of the rows.
    """
    columns = (user_column, item_column, rating_column, where, titles, title_id_column, title_column, query)
    return read_likes(
        source, ReaderOptions(*columns, time_column, weight_column, weight, weight_scale, half_life, signals)
    )


def read_likes(source: Any, options: ReaderOptions) -> Interactions:
    """`read_interactions` by options."""
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
    """What a scan has collected, as row numbers and vocabularies, without titles."""
    check_rows(table.name, options.rule, scan.rows, scan.kept, scan.nan)
    with translate_errors(table.name), ThreadPoolExecutor(2) as pool:
        (users, user_ids), (items, item_ids) = pool.map(Encoder.finish, (scan.users, scan.items))
    times = None if scan.times is None else scan.times.finish()
    notes = (*scan.users.notes, *scan.items.notes, *(scan.times.notes if scan.times else []))
    return Interactions(users, items, user_ids, item_ids, None, table.name, scan.rows, len(users), notes, times)


def make_amounts(
    scan: Collected, options: ReaderOptions, times: NDArray[np.float64] | None, source: str, latest: float | None = None
) -> Amounts | None:
    """What the rows of a scan say of the weights of their likes. `latest` is the time of the latest like, where these
    are only some."""
    if options.weighting is None:
        return None
    values = np.ones(scan.kept) if scan.amounts is None else scan.amounts.finish()
    if options.half_life is not None:
        assert times is not None
        last = float(np.nanmax(times)) if latest is None else latest
        values *= HalfLife.of(options.half_life).decay(times, last, source, str(options.time_column))
    return Amounts(whole_amounts(values), options.weighting)


def read_dated_likes(source: Any, options: ReaderOptions) -> Interactions:
    """`read_likes`, with times where a column of them is named or has one of the usual names."""
    if options.time_column is None and not isinstance(source, Interactions) and not is_sparse(source):
        options = replace(options, time_column=GUESS)
    return read_likes(source, options)


def read_judged(
    source: Any, options: ReaderOptions | None = None, **named: Any
) -> tuple[Interactions, Interactions | None]:
    """(liked, not liked): the rows that satisfy the rule, and those that fail it, which were considered and not liked.

    The options are those of `read_interactions`, `where` among them. A row without a value that the rule needs is in
    neither. None where no row fails. The source is read twice: a path, a table or a data frame, not a stream.
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
    """The options with the columns' names as the table has them, and notes on what was guessed."""
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
    """One line where a column looks like counts or weights and is not used, by resolved options."""
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
    """(input, resolved options, notes) of Parquet, which tasks can share out; None of any other source.

    What a look at the schema shows to be wrong is refused: columns, the rule.
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
    """The rule over the columns of a table, by resolved options; ratings without a rule are refused."""
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
    """A rule over the columns of a table."""
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
    """What a scan found: the rows it read, those it kept, those with NaN in the rule, and the ids of the kept ones."""

    users: Encoder
    items: Encoder
    times: TimeColumn | None
    amounts: AmountColumn | None
    rows: int
    kept: int
    nan: int


def collect(table: Input, options: ReaderOptions) -> Collected:
    """The ids of the rows that the rule keeps, by resolved options, read once; each column has its own thread."""
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
    """The amount of a row as an expression, and the columns that it reads: the weight of its first signal, times the
    weight column."""
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
    """Refuse rows of which the rule cannot tell, and data that leaves none."""
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
    """A rule that compares text with a number where the text is none, as a sentence about the rule."""
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
    """Batches in lists of about GROUP_ROWS rows."""
    group: list[Any] = []
    rows = size = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        group.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= GROUP_ROWS or size >= GROUP_BYTES:
            yield group
            group, rows, size = [], 0, 0
    if group:
        yield group


# --- Titles ---


def find_titles(items: Vocabulary, options: ReaderOptions) -> tuple[Titles | None, list[str]]:
    """Titles of the items of a vocabulary and notes for the user; of several titles of an item the first counts."""
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
                if batch.num_rows:
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
        first[rows[known[::-1]]] = known[::-1]  # backwards, so that the first one stays
        chosen = titles.take(pa.array(first, mask=first < 0)).dictionary_decode().fill_null("")
    note = f"titles for {len(np.unique(rows[known])):,} of {len(items):,} items, from {title_column!r} by {id_column!r}"
    return Titles(*string_bytes(chosen)), [note]


def _pick(table: Input, options: ReaderOptions) -> tuple[str, str]:
    """The columns of ids and titles: named, else the name in the data, `item`, `id`, the usual ones."""
    id_column = _named(table, options.title_id_column, "--title-id-column")
    id_column = id_column or pick_item(table, plain(str(options.item_column)))
    title_column = _named(table, options.title_column, "--title-column")
    if title_column is None:
        words = {plain(name): name for name in reversed(table.names)}
        title_column = next((words[word] for word in TITLES if word in words and words[word] != id_column), None)
    if id_column is None:
        raise refuse_column("item ids", "title-id", table.names, table.name)
    if title_column is None:
        raise refuse_column("titles", "title", table.names, table.name)
    return id_column, title_column


def pick_item(table: Input, *likely: str) -> str | None:
    """The column of items in a table about items: a likely name, `item`, `id`, or a usual one."""
    words = {plain(name): name for name in reversed(table.names)}
    named = next((words[word] for word in (*likely, "item", "itemid", "iid", "id") if word in words), None)
    return named or guess("item", table.names, table.name)
