"""A column of ids -> row numbers of a sorted vocabulary.

Strings are the expensive case. Batches are put together to groups of five million rows; each group goes
through one hash table (Arrow's dictionary_encode on a chunked array), and the small dictionaries of the
groups through another. Memory then holds one group of strings, the codes (4 bytes a row) and the distinct
ids.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.inputs import Input
from considerate.data.vocabulary import Vocabulary
from considerate.errors import DataError

MOST_ROWS = 2**31 - 1
LONGEST_TEXT = 1 << 16  # bytes of an id or of a title
EXACT = 2**53  # whole numbers up to here are exact in double precision
_CANONICAL = r"^(0|-?[1-9][0-9]{0,18})$"


class Encoder:
    """Takes a column of ids in pieces, gives its codes and its vocabulary at the end.

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
        if not (texts or numbers or at.is_null(kind)):
            raise DataError(f"{self.where} are of type {kind}; ids are integers or strings: convert the column first.")

    def add(self, chunks: list[Any]) -> None:
        """Take the next rows: Arrow arrays of one type."""
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
            if at.is_binary(kind) or at.is_large_binary(kind):
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
        """The integers of a chunk, in their own width where that is signed."""
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
        """The row number of every id that was added, and the vocabulary that it points into."""
        check_missing(self.table.name, self.side, self.column, self.missing)
        if self.dictionaries:
            return self._finish_strings()
        integers, codes = rank_integers(self.parts)
        check_size(self.table.name, self.side, len(integers))
        return codes, Vocabulary.of_integers(integers)

    def _finish_strings(self) -> tuple[NDArray[np.int32], Vocabulary]:
        import pyarrow as pa
        import pyarrow.compute as pc

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
        integers = None
        if self.table.from_text:
            self._check_text(dictionary)
            integers = _as_integers(dictionary)
        if integers is None:
            order = pc.sort_indices(dictionary).to_numpy()
            vocabulary = Vocabulary.of_bytes(*string_bytes(dictionary.take(pa.array(order))))
        else:
            order = np.argsort(integers)
            vocabulary = Vocabulary.of_integers(integers[order])
        rank = inverse(order)
        return _look_up([rank[codes] for codes in np.split(merged, sizes)], self.parts), vocabulary

    def _check_text(self, dictionary: Any) -> None:
        """Refuse ids that only a misplaced quote can have made; note one that may stand for a missing value."""
        import pyarrow as pa
        import pyarrow.compute as pc

        def refuse(pattern: str, reason: str) -> None:
            wrong = dictionary.filter(pc.match_substring_regex(dictionary, pattern))
            if len(wrong):
                raise DataError(
                    f"{self.table.name}: the {self.side} {wrong[0].as_py()[:60]!r} in {self.column!r} {reason}."
                )

        refuse(
            r"[\r\n]",
            "goes over several lines, so a quote before it may not be closed; close or double that quote: an id is on "
            "one line",
        )
        if not self.table.quotes:
            refuse(
                r'(?s)^".*"$',
                "is in quotes, and quotes are not parsed in this file; take them off, or write it with commas between "
                "the fields",
            )
        if pc.index(dictionary, pa.scalar("NA", dictionary.type)).as_py() >= 0:
            self.notes.append(f"NA in {self.column!r} is taken for the id of a {self.side}, not for a missing value")


def _storage(kind: Any) -> Any:
    """The type that values of an extension or a dictionary are stored in."""
    import pyarrow as pa

    kind = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def check_missing(source: str, side: str, column: str, missing: int) -> None:
    """Refuse rows without an id."""
    if missing:
        raise DataError(
            f"{source}: {missing} rows have no {side} in the column {column!r}; "
            f'drop or fill them, or leave them out with --where "{quoted(column)} is not null".'
        )


def check_size(source: str, side: str, size: int) -> None:
    """Refuse more ids than rows can be numbered."""
    if size > MOST_ROWS:
        raise DataError(f"{source}: {size} distinct {side}s; at most {MOST_ROWS} fit: take a sample.")


def check_length(what: str, column: str, texts: Any) -> None:
    """Refuse ids and titles that are too long to be any."""
    import pyarrow.compute as pc

    longest = pc.max(pc.binary_length(texts)).as_py() or 0
    if longest > LONGEST_TEXT:
        raise DataError(
            f"{what} of {longest:,} bytes in {column!r} is too long; at most {LONGEST_TEXT:,} are read: is this the "
            "right column?"
        )


def quoted(column: str) -> str:
    """A column's name as a rule writes it."""
    return column if column.isidentifier() else f"`{column}`"


def string_bytes(strings: Any) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Offsets and bytes of an Arrow large_string array that begins at the start of its buffers."""
    _, offsets, text = strings.buffers()
    starts = np.frombuffer(offsets, np.int64, len(strings) + 1) if len(strings) else np.zeros(1, np.int64)
    return starts, np.frombuffer(text or b"", np.uint8, int(starts[-1]))


def distinct(chunks: list[Any]) -> tuple[Any, NDArray[np.int32]]:
    """The distinct values of arrays, and the index of every value among them. Dictionaries are not decoded."""
    import pyarrow as pa

    if pa.types.is_dictionary(chunks[0].type):
        values, codes = distinct([chunk.dictionary for chunk in chunks])
        parts = np.split(codes, np.cumsum([len(chunk.dictionary) for chunk in chunks])[:-1])
        codes = np.concatenate([part[chunk.indices.to_numpy()] for part, chunk in zip(parts, chunks)])
        used = np.zeros(len(values), bool)
        used[codes] = True
        return values.filter(pa.array(used)), (np.cumsum(used, dtype=np.int32) - np.int32(1))[codes]
    encoded = pa.chunked_array(chunks).dictionary_encode().chunks
    if not encoded:  # there were empty arrays only
        return chunks[0], np.empty(0, np.int32)
    codes = np.concatenate([chunk.indices.to_numpy(zero_copy_only=False) for chunk in encoded])
    return encoded[-1].dictionary, codes


def rank_integers(arrays: list[NDArray[Any]]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The distinct integers of arrays, ascending, and the row of each integer among them. Empties the list."""
    low = min((int(array.min()) for array in arrays if len(array)), default=0)
    high = max((int(array.max()) for array in arrays if len(array)), default=-1)
    if high - low < 4 * sum(map(len, arrays)) + 65_536:  # they lie close: look them up in a table
        seen = np.zeros(high - low + 1, bool)
        for array in arrays:
            seen[array.astype(np.int64) - low] = True
        rank = np.cumsum(seen, dtype=np.int32) - np.int32(1)
        return np.flatnonzero(seen) + low, _look_up([rank] * len(arrays), arrays, low)
    import pyarrow as pa

    dictionary, codes = distinct([pa.array(array.astype(np.int64, copy=False)) for array in arrays])
    arrays.clear()
    integers = dictionary.to_numpy()
    order = np.argsort(integers)
    return integers[order], inverse(order)[codes]


def _look_up(tables: list[NDArray[np.int32]], parts: list[NDArray[Any]], low: int = 0) -> NDArray[np.int32]:
    """The values of parts, from `low` on, in a table each. Empties the list, so that parts are let go one by one."""
    out = np.empty(sum(map(len, parts)), np.int32)
    start = 0
    for table in tables:
        part = parts.pop(0)
        np.take(table, part.astype(np.int64) - low if low else part, out=out[start : start + len(part)])
        start += len(part)
    return out


def _as_integers(dictionary: Any) -> NDArray[np.int64] | None:
    """Texts as integers if each is one the way Python prints it (all may end in .0), else None."""
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


def inverse(order: NDArray[Any]) -> NDArray[np.int32]:
    """The position of each row after sorting."""
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    return rank
