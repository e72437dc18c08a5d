"""A column of ids -> row numbers of a sorted vocabulary.

Strings are the expensive case. Batches are put together to groups of five million rows; each group goes
through one hash table (Arrow's dictionary_encode on a chunked array), and the small dictionaries of the
groups through another. Memory then holds one group of strings, the codes (4 bytes a row) and the distinct
ids.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.vocabulary import Vocabulary
from considerate.errors import DataError

MOST_ROWS = 2**31 - 1
EXACT = 2**53  # whole numbers up to here are exact in double precision
_CANONICAL = r"^(0|-?[1-9][0-9]{0,18})$"


@dataclass
class Encoder:
    """Takes a column in pieces, gives its codes and its vocabulary at the end."""

    what: str  # "user" or "item"
    column: str
    source: str
    from_text: bool  # a text file has no types: ids that are all whole numbers become integers at the end
    quotes: bool = True  # quotes around a value were taken off when it was read
    missing: int = 0
    parts: list[NDArray[Any]] = field(default_factory=list)  # codes of a group, or its integers
    dictionaries: list[Any] = field(default_factory=list)  # distinct strings of a group; empty for integers

    def add(self, chunks: list[Any]) -> None:
        """Take the next rows: Arrow arrays of one type."""
        import pyarrow as pa
        import pyarrow.types as at

        kind = chunks[0].type
        if isinstance(kind, pa.BaseExtensionType):
            chunks, kind = [chunk.storage for chunk in chunks], kind.storage_type
        if at.is_dictionary(kind):
            kind = kind.value_type
            chunks = [chunk.dictionary_decode() for chunk in chunks]
        self.missing += sum(chunk.null_count for chunk in chunks)
        chunks = [chunk.drop_null() if chunk.null_count else chunk for chunk in chunks]
        if at.is_string(kind) or at.is_large_string(kind):
            self._add_strings(chunks)
        elif at.is_binary(kind) or at.is_large_binary(kind):
            self._add_strings([self._cast(chunk, pa.large_string()) for chunk in chunks])
        elif at.is_integer(kind) or at.is_floating(kind) or at.is_decimal(kind):
            self.parts.append(np.concatenate([self._whole(chunk) for chunk in chunks]))
        elif not at.is_null(kind):
            raise DataError(
                f"{self.source}: the {self.what}s in {self.column!r} are of type {kind}; "
                "ids are integers or strings: convert the column first."
            )

    def _cast(self, chunk: Any, kind: Any) -> Any:
        import pyarrow as pa

        try:
            return chunk.cast(kind)
        except (pa.ArrowException, ValueError) as error:
            raise DataError(
                f"{self.source}: the {self.what}s in {self.column!r} cannot be read as {kind} ({error}); "
                "ids are integers or strings: convert the column first."
            ) from error

    def _whole(self, chunk: Any) -> NDArray[Any]:
        """The integers of a chunk, in their own width where that is signed."""
        import pyarrow as pa

        if pa.types.is_decimal(chunk.type):
            chunk = self._cast(chunk, pa.int64())
        values: NDArray[Any] = chunk.to_numpy(zero_copy_only=False)
        if values.dtype.kind == "u":
            if values.dtype.itemsize == 8 and len(values) and int(values.max()) >= 2**63:
                raise DataError(
                    f"{self.source}: the {self.what} {int(values.max())} in {self.column!r} is 2^63 or more; "
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
                f"{self.source}: the {self.what}s in {self.column!r} are floating-point numbers, and "
                f"{values[wrong][0]!s} is not a whole number that such a number holds exactly; "
                "ids are integers or strings: convert the column first."
            )
        return values.astype(np.int64)

    def _add_strings(self, chunks: list[Any]) -> None:
        import pyarrow as pa

        dictionary, codes = distinct(chunks)
        self.dictionaries.append(dictionary.cast(pa.large_string()))
        self.parts.append(codes)

    def finish(self) -> tuple[NDArray[np.int32], Vocabulary]:
        """The row number of every id that was added, and the vocabulary that it points into."""
        check_missing(self.source, self.what, self.column, self.missing)
        return self._finish_strings() if self.dictionaries else self._finish_integers()

    def _finish_integers(self) -> tuple[NDArray[np.int32], Vocabulary]:
        low = min((int(part.min()) for part in self.parts if len(part)), default=0)
        high = max((int(part.max()) for part in self.parts if len(part)), default=-1)
        if high - low < 4 * sum(map(len, self.parts)) + 65_536:  # ids lie close: look them up in a table
            seen = np.zeros(high - low + 1, bool)
            for part in self.parts:
                seen[_above(part, low)] = True
            check_size(self.source, self.what, int(seen.sum()))
            rank = np.cumsum(seen, dtype=np.int32) - np.int32(1)
            codes = self._mapped([rank] * len(self.parts), lambda part: _above(part, low))
            return codes, Vocabulary.of_integers(np.flatnonzero(seen) + low)
        import pyarrow as pa

        dictionary, codes = distinct([pa.array(part.astype(np.int64, copy=False)) for part in self.parts])
        self.parts = []
        check_size(self.source, self.what, len(dictionary))
        integers = dictionary.to_numpy()
        order = np.argsort(integers)
        return inverse(order)[codes], Vocabulary.of_integers(integers[order])

    def _finish_strings(self) -> tuple[NDArray[np.int32], Vocabulary]:
        import pyarrow as pa
        import pyarrow.compute as pc

        if len(self.dictionaries) == 1:
            dictionary, merged = self.dictionaries[0], np.arange(len(self.dictionaries[0]), dtype=np.int32)
        else:
            dictionary, merged = distinct(self.dictionaries)
        sizes = np.cumsum([len(one) for one in self.dictionaries])[:-1]
        self.dictionaries = []
        check_size(self.source, self.what, len(dictionary))
        try:
            dictionary.validate(full=True)
        except pa.ArrowInvalid as error:
            raise DataError(
                f"{self.source}: the {self.what}s in {self.column!r} are not valid UTF-8 text; "
                "the file may be damaged: write it again."
            ) from error
        if self.from_text:
            self._check_text(dictionary)
        integers = _as_integers(dictionary) if self.from_text else None
        if integers is None:
            order = pc.sort_indices(dictionary).to_numpy()
            ids = dictionary.take(pa.array(order))
            vocabulary = Vocabulary.of_bytes(*string_bytes(ids))
        else:
            order = np.argsort(integers)
            vocabulary = Vocabulary.of_integers(integers[order])
        rank = inverse(order)
        return self._mapped([rank[one] for one in np.split(merged, sizes)]), vocabulary

    def _check_text(self, dictionary: Any) -> None:
        """Refuse ids that only a misplaced quote can have made."""
        import pyarrow.compute as pc

        broken = dictionary.filter(pc.match_substring_regex(dictionary, r"[\r\n]"))
        if len(broken):
            raise DataError(
                f"{self.source}: the {self.what} {_shown(broken[0])} in {self.column!r} goes over several lines, so a "
                "quote before it may not be closed; close or double that quote: an id is on one line."
            )
        kept = (
            dictionary.slice(0, 0)
            if self.quotes
            else dictionary.filter(pc.match_substring_regex(dictionary, r'(?s)^".*"$'))
        )
        if len(kept):
            raise DataError(
                f"{self.source}: the {self.what} {_shown(kept[0])} in {self.column!r} is in quotes, and quotes are not "
                "parsed in this file; take them off, or write it with commas between the fields."
            )

    def _mapped(self, ranks: list[NDArray[np.int32]], place: Any = None) -> NDArray[np.int32]:
        """All codes after each part went through its ranks; the parts are let go one by one."""
        out = np.empty(sum(map(len, self.parts)), np.int32)
        at, parts, self.parts = 0, self.parts[::-1], []
        for rank in ranks:
            part = parts.pop()
            np.take(rank, part if place is None else place(part), out=out[at : at + len(part)])
            at += len(part)
        return out


def check_missing(source: str, what: str, column: str, missing: int) -> None:
    """Refuse rows without an id."""
    if missing:
        raise DataError(
            f"{source}: {missing} rows have no {what} in the column {column!r}; "
            f'drop or fill them, or leave them out with --where "{quoted(column)} is not null".'
        )


def check_size(source: str, what: str, size: int) -> None:
    """Refuse more ids than rows can be numbered."""
    if size > MOST_ROWS:
        raise DataError(f"{source}: {size} distinct {what}s; at most {MOST_ROWS} fit: take a sample.")


def _shown(text: Any) -> str:
    """The start of an id for a message."""
    whole = str(text.as_py())
    return repr(whole if len(whole) <= 60 else whole[:60] + "...")


def quoted(column: str) -> str:
    """A column's name as a rule writes it."""
    return column if column.isidentifier() else f"`{column}`"


def string_bytes(strings: Any) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Offsets and bytes of an Arrow large_string array that begins at the start of its buffers."""
    _, offsets, text = strings.buffers()
    places = np.frombuffer(offsets, np.int64, len(strings) + 1) if len(strings) else np.zeros(1, np.int64)
    return places, np.frombuffer(text or b"", np.uint8, int(places[-1]))


def distinct(chunks: list[Any]) -> tuple[Any, NDArray[np.int32]]:
    """The distinct values of arrays in the order they come, and the place of every value among them."""
    import pyarrow as pa

    encoded = pa.chunked_array(chunks).dictionary_encode().chunks
    if not encoded:  # there were empty arrays only
        return chunks[0], np.empty(0, np.int32)
    codes = [one.indices.to_numpy(zero_copy_only=False) for one in encoded]
    return encoded[-1].dictionary, np.concatenate(codes)


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


def _above(part: NDArray[Any], low: int) -> NDArray[np.int64]:
    """Distance of integers from the lowest one."""
    return part.astype(np.int64) - low


def inverse(order: NDArray[Any]) -> NDArray[np.int32]:
    """The place at which each row stands after sorting."""
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    return rank
