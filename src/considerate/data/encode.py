"""Encoding of columns: ids -> row numbers of a sorted vocabulary, times -> numbers.

Strings are the expensive case. Batches are joined to groups of five million rows. Each group goes through one hash
table (Arrow's dictionary_encode on a chunked array), and the small dictionaries of the groups through another. So one
group of strings, the codes (4 bytes a row) and the distinct ids are in memory.

Dates and moments become seconds since 1970 UTC; a moment without a zone is in UTC. Numbers stay as they are, in any
unit: only their order and the date that they are compared with matter. Text is read as numbers, or else as ISO dates.
A missing time becomes NaN: such a like is trained on, and never held out by its time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.inputs import Input, translate_errors, value_type
from considerate.data.options import quoted
from considerate.data.vocabulary import MOST_ROWS, Vocabulary, distinct, inverse, look_up, rank_integers, sort_strings
from considerate.errors import DataError

LONGEST_TEXT = 1 << 16  # most bytes of an id or of a title
EXACT = 2**53  # whole numbers up to here are exact in double precision
_UUID_DIGITS = [at for at in range(36) if at not in (8, 13, 18, 23)]  # the others are hyphens
_CANONICAL = r"^(0|-?[1-9][0-9]{0,18})$"


class Encoder:
    """Encoder of a column of ids: takes it in pieces, and returns its codes and its vocabulary at the end.

    A text file has no types: its ids become integers at the end if all of them are whole numbers.
    """

    def __init__(self, side: str, column: str, kind: Any, table: Input) -> None:
        import pyarrow.types as at

        self.side, self.column, self.table = side, column, table  # side: "user" or "item"
        self.where = f"{table.name}: the {side}s in {column!r}"
        self.missing = 0
        self.notes: list[str] = []
        self.parts: list[NDArray[Any]] = []  # codes of a group, or its integers
        self.dictionaries: list[Any] = []  # distinct strings of a group; empty for integers
        kind = _storage(kind)
        texts = at.is_string(kind) or at.is_large_string(kind) or at.is_binary(kind) or at.is_large_binary(kind)
        numbers = at.is_integer(kind) or at.is_floating(kind) or at.is_decimal(kind)
        uuids = at.is_fixed_size_binary(kind) and kind.byte_width == 16
        if not (texts or numbers or uuids or at.is_null(kind)):
            raise DataError(
                f"{self.where} are of type {kind}; ids are integers, strings or UUIDs: convert the column first, such "
                "as to strings."
            )

    def add(self, chunks: list[Any]) -> None:
        """Add the next rows: Arrow arrays of one type."""
        import pyarrow as pa
        import pyarrow.types as at

        chunks = [chunk.storage if isinstance(chunk.type, pa.BaseExtensionType) else chunk for chunk in chunks]
        kind = _storage(chunks[0].type)
        if any(at.is_dictionary(chunk.type) and chunk.dictionary.null_count for chunk in chunks):
            chunks = [chunk.dictionary_decode() for chunk in chunks]
        self.missing += sum(chunk.null_count for chunk in chunks)
        chunks = [chunk.drop_null() if chunk.null_count else chunk for chunk in chunks]
        if at.is_integer(kind) or at.is_floating(kind) or at.is_decimal(kind):
            chunks = [chunk.dictionary_decode() if at.is_dictionary(chunk.type) else chunk for chunk in chunks]
            self.parts.append(np.concatenate([self._integers(chunk) for chunk in chunks]))
        elif not at.is_null(kind):
            dictionary, codes = distinct(chunks)
            if at.is_fixed_size_binary(kind):
                dictionary = _uuid_texts(dictionary)
            elif at.is_binary(kind) or at.is_large_binary(kind):
                dictionary = self._cast(dictionary, pa.large_string())
            check_length(f"{self.table.name}: the {self.side}", self.column, dictionary)
            self.dictionaries.append(dictionary.cast(pa.large_string()))
            self.parts.append(codes)

    def _cast(self, chunk: Any, kind: Any) -> Any:
        import pyarrow as pa

        try:
            return chunk.cast(kind)
        except (pa.ArrowException, ValueError) as error:
            raise DataError(
                f"{self.where} cannot be read as {kind} ({error}); "
                "ids are integers or strings: convert the column first."
            ) from error

    def _integers(self, chunk: Any) -> NDArray[Any]:
        """The integers of a chunk, in their own width if that is signed."""
        import pyarrow as pa

        if pa.types.is_decimal(chunk.type):
            chunk = self._cast(chunk, pa.int64())
        values: NDArray[Any] = chunk.to_numpy(zero_copy_only=False)
        if values.dtype.kind == "u":
            if values.dtype.itemsize == 8 and len(values) and int(values.max()) >= 2**63:
                raise DataError(
                    f"{self.table.name}: the {self.side} {int(values.max())} in {self.column!r} is 2^63 or more; "
                    "integer ids must be less: read them as strings."
                )
            return values.astype(np.int64)
        if values.dtype.kind == "i":
            return values
        nan = np.isnan(values)
        self.missing += int(nan.sum())
        values = values[~nan].astype(np.float64)
        wrong = ~np.isfinite(values) | (np.trunc(values) != values) | (np.abs(values) > EXACT)
        if wrong.any():
            raise DataError(
                f"{self.where} are floating-point numbers, and {values[wrong][0]!s} is not a whole number that such a "
                "number holds exactly; ids are integers or strings: convert the column first."
            )
        return values.astype(np.int64)

    def finish(self) -> tuple[NDArray[np.int32], Vocabulary]:
        """(codes, vocabulary): the row number of every id that was added, and the ids by row."""
        import pyarrow as pa

        check_missing(self.table.name, self.side, self.column, self.missing)
        if not self.dictionaries:
            distinct_ids, codes = rank_integers(self.parts)
            check_size(self.table.name, self.side, len(distinct_ids))
            return codes, Vocabulary.of_integers(distinct_ids)
        if len(self.dictionaries) == 1:
            dictionary, merged = self.dictionaries[0], np.arange(len(self.dictionaries[0]), dtype=np.int32)
        else:
            dictionary, merged = distinct(self.dictionaries)
        sizes = np.cumsum([len(part) for part in self.dictionaries])[:-1]
        self.dictionaries = []
        check_size(self.table.name, self.side, len(dictionary))
        try:
            dictionary.validate(full=True)
        except pa.ArrowInvalid as error:
            raise DataError(
                f"{self.where} are not valid UTF-8 text; the file may be damaged: write it again."
            ) from error
        dictionary, merged = self._trimmed(dictionary, merged)
        integers = None
        if self.table.from_text:
            self._check_text(dictionary)
            integers = _as_integers(dictionary)
        if integers is None:
            vocabulary, rank = sort_strings(dictionary)
        else:
            order = np.argsort(integers)
            vocabulary, rank = Vocabulary.of_integers(integers[order]), inverse(order)
        return look_up([rank[codes] for codes in np.split(merged, sizes)], self.parts), vocabulary

    def _trimmed(self, dictionary: Any, codes: NDArray[np.int32]) -> tuple[Any, NDArray[np.int32]]:
        """Distinct ids without white space around them, and codes that point to these."""
        import pyarrow.compute as pc

        trimmed = pc.utf8_trim_whitespace(dictionary)
        changed = int(pc.sum(pc.not_equal(trimmed, dictionary)).as_py() or 0)
        if not changed:
            return dictionary, codes
        self.notes.append(f"white space around {changed:,} {self.side}s in {self.column!r} is removed")
        dictionary, places = distinct([trimmed])
        return dictionary, places[codes]

    def _check_text(self, dictionary: Any) -> None:
        """Refuse ids that come from a misplaced quote; note an id that may stand for a missing value."""
        import pyarrow as pa
        import pyarrow.compute as pc

        refused = {
            r"[\r\n]": "goes over several lines, so a quote before it may not be closed; close or double that quote: "
            "an id is on one line"
        }
        if not self.table.quotes:
            refused[r'(?s)^".*"$'] = (
                "is in quotes, and quotes are not parsed in this file; take them off, or write it with commas between "
                "the fields"
            )
        for pattern, reason in refused.items():
            for wrong in dictionary.filter(pc.match_substring_regex(dictionary, pattern)):
                id_text = f"the {self.side} {wrong.as_py()[:60]!r} in {self.column!r}"
                raise DataError(f"{self.table.name}: {id_text} {reason}.")
        comments = dictionary.filter(pc.match_substring_regex(dictionary, "^# "))
        if len(comments) and self.column == self.table.names[0]:
            seen = f"{comments[0].as_py()[:60]!r} in {self.column!r}"
            self.notes.append(f"{seen} is taken for the id of a {self.side}, not for a comment")
        if pc.index(dictionary, pa.scalar("NA", dictionary.type)).as_py() >= 0:
            self.notes.append(f"NA in {self.column!r} is taken for the id of a {self.side}, not for a missing value")


def read_columns(
    table: Input, side: str, id_column: str | None, names: Sequence[str], *, what: str = "", skip: bool = True
) -> tuple[Vocabulary, NDArray[np.int32], list[Any]]:
    """Read columns of a table about items or users: (ids, row of each entry's id among them, columns).

    Rows without an id are skipped, or refused with skip=False. Without a column of ids, the ids are row numbers. If
    `what` names the content of the table, a table without rows is refused.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    own = [] if id_column is None else [id_column]
    needed, types = [*names, *own], table.types(own)
    encoder = None if id_column is None else Encoder(side, id_column, types[id_column], table)
    keep = pc.field(id_column).is_valid() if id_column is not None and skip else None
    parts: list[list[Any]] = [[] for _ in names]
    count = 0
    with translate_errors(table.name):
        fields = {str(at): pc.field(name) for at, name in enumerate(needed)}
        for batch in table.scan(list(dict.fromkeys(needed)), own, fields, keep):
            count += batch.num_rows
            if encoder is not None:
                encoder.add([batch.column(len(names))])
            for at, part in enumerate(parts):
                part.append(batch.column(at))
        if what and not count:
            raise DataError(f"{table.name}: no rows; expected {what} of at least one {side}.")
        rows, ids = (np.arange(count, dtype=np.int32), Vocabulary.range(count)) if encoder is None else encoder.finish()
        columns = [pa.chunked_array(part, types[name]) for part, name in zip(parts, names)]
        return ids, rows, [column.combine_chunks() if column.num_chunks != 1 else column.chunk(0) for column in columns]


def _storage(kind: Any) -> Any:
    """The storage type of the values of an extension or a dictionary."""
    import pyarrow as pa

    return value_type(kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind)


def _uuid_texts(values: Any) -> Any:
    """UUIDs of 16 bytes as Python prints them, in hexadecimal with hyphens."""
    import pyarrow as pa

    raw = np.frombuffer(values.buffers()[1], np.uint8)[16 * values.offset :][: 16 * len(values)].reshape(-1, 16)
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    texts = np.full((len(raw), 36), ord("-"), np.uint8)
    texts[:, _UUID_DIGITS] = digits[np.stack([raw >> 4, raw & 15], axis=2).reshape(-1, 32)]
    offsets = np.arange(len(raw) + 1, dtype=np.int64) * 36
    return pa.LargeStringArray.from_buffers(len(raw), pa.py_buffer(offsets), pa.py_buffer(texts))


def check_missing(source: str, side: str, column: str, missing: int) -> None:
    """Refuse rows without an id."""
    if missing:
        raise DataError(
            f"{source}: {missing} rows have no {side} in the column {column!r}; "
            f'drop or fill them, or leave them out with --where "{quoted(column)} is not null".'
        )


def check_size(source: str, side: str, size: int) -> None:
    """Refuse more ids than there are row numbers."""
    if size > MOST_ROWS:
        raise DataError(f"{source}: {size} distinct {side}s; at most {MOST_ROWS} fit: take a sample.")


def check_length(what: str, column: str, texts: Any) -> None:
    """Refuse ids and titles that are too long."""
    import pyarrow.compute as pc

    longest = pc.max(pc.binary_length(texts)).as_py() or 0
    if longest > LONGEST_TEXT:
        raise DataError(
            f"{what} of {longest:,} bytes in {column!r} is too long; at most {LONGEST_TEXT:,} are read: is this the "
            "right column?"
        )


def _as_integers(dictionary: Any) -> NDArray[np.int64] | None:
    """Texts as integers if each is one as Python prints it (all may end in .0), else None."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if len(dictionary) and dictionary[0].as_py().endswith(".0") and pc.all(pc.ends_with(dictionary, ".0")).as_py():
        dictionary = pc.utf8_slice_codeunits(dictionary, 0, -2)
    for some in (dictionary.slice(0, 1000), dictionary):
        if not pc.all(pc.match_substring_regex(some, _CANONICAL)).as_py():
            return None
    try:
        integers: NDArray[np.int64] = dictionary.cast(pa.int64()).to_numpy()
    except pa.ArrowInvalid:  # nineteen digits, beyond 2^63
        return None
    return integers


# --- Times ---


@dataclass
class TimeColumn:
    """Column of times: takes it in pieces, and returns numbers at the end."""

    column: str
    source: str
    parts: list[NDArray[np.float64]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, chunks: list[Any]) -> None:
        """Add the next rows: Arrow arrays of one type."""
        self.parts += [times_of(chunk, self.source, self.column) for chunk in chunks]

    def finish(self) -> NDArray[np.float64]:
        """The time of every like that was added, NaN if it has none."""
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


def times_of(chunk: Any, source: str, column: str) -> NDArray[np.float64]:
    """Read an Arrow array of times as numbers, null as NaN; DataError if that is impossible."""
    import pyarrow as pa

    try:
        return read_numbers(chunk)
    except (pa.ArrowInvalid, TypeError) as error:
        raise DataError(
            f"{source}: the times in {column!r} cannot be read ({str(error).splitlines()[0][:200]}); "
            "expected dates, moments, numbers, or texts such as 2024-05-01T18:30:00."
        ) from error


def read_numbers(chunk: Any) -> NDArray[np.float64]:
    """Read an Arrow array of numbers, dates or moments as numbers, null as NaN."""
    import pyarrow as pa
    import pyarrow.types as at

    kind = chunk.type
    if at.is_dictionary(kind):
        return read_numbers(chunk.dictionary_decode())
    if at.is_string(kind) or at.is_large_string(kind):
        for kind in (pa.float64(), pa.timestamp("us")):
            try:
                return read_numbers(chunk.cast(kind))
            except pa.ArrowInvalid:
                continue
        return read_numbers(chunk.cast(pa.timestamp("us", "UTC")))  # texts that name a zone
    if at.is_date(kind):
        return read_numbers(chunk.cast(pa.timestamp("s")))
    if at.is_timestamp(kind):
        return read_numbers(chunk.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())) / 1e6
    if not (at.is_integer(kind) or at.is_floating(kind) or at.is_decimal(kind) or at.is_null(kind)):
        raise TypeError(f"its type is {kind}")
    return np.array(chunk.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), np.float64)
