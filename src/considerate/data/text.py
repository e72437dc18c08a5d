"""CSV and its relatives: the delimiter, the header and the types are found out from the first lines.

Ids are always read as strings and become integers at the end, if all of them are: '007' and '7' stay two
users, and an ISBN that ends in X does not come as a surprise in row one million.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from considerate.data.columns import is_known, plain
from considerate.data.inputs import StreamInput, reading
from considerate.errors import DataError

SAMPLE = 1 << 18  # bytes from which the layout is found out
BLOCK = 1 << 23
DELIMITERS = ("::", "\t", ";", "|", ",", " ")  # of equally good ones the first; " " is any white space
# Of numbers, dates and texts of a rule; of ids only the empty text. NaN is a number that a rule must refuse.
MISSING = ["", "NULL", "null", "NA", "N/A", "\\N"]


@dataclass
class TextInput:
    """A file of delimited lines."""

    name: str
    path: Path
    gzipped: bool
    delimiter: str
    header: bool
    names: list[str]
    inferred: dict[str, Any]
    quotes: bool
    notes: list[str] = field(default_factory=list)
    from_text: bool = True
    rows: int = 0
    quoted: bool = False  # a quote was seen, once the scan is over

    def types(self, ids: Sequence[str]) -> dict[str, Any]:
        import pyarrow as pa

        return {name: pa.string() if name in ids else kind for name, kind in self.inferred.items()}

    def scan(self, needed: Sequence[str], ids: Sequence[str], columns: Mapping[str, Any], keep: Any) -> Iterator[Any]:
        import pyarrow as pa

        types = {name: kind for name, kind in self.types(ids).items() if name in needed}
        stream = StreamInput(self.name, pa.schema(list(types.items())), self._batches(types, ids))
        yield from stream.scan(needed, ids, columns, keep)
        self.rows = stream.rows
        if self.quotes and self.quoted:
            self._check_quotes()

    def _batches(self, types: Mapping[str, Any], ids: Sequence[str]) -> Iterator[Any]:
        import pyarrow as pa
        import pyarrow.csv as pc

        gaps = {
            at: [""] if name in ids else MISSING
            for at, (name, kind) in enumerate(types.items())
            if pa.types.is_string(kind)
        }
        try:
            with self._open() as file:
                for batch in pc.open_csv(
                    file,
                    pc.ReadOptions(block_size=BLOCK, column_names=self.names, skip_rows=1 if self.header else 0),
                    _parse_options(self.delimiter, self.quotes),
                    _convert_options(types),
                ):
                    yield _without(batch, gaps)
        except pa.ArrowInvalid as error:
            if "straddling" not in str(error):
                raise
            raise DataError(f"{self.name}: {_UNCLOSED.format(f'a line longer than {BLOCK} bytes')}") from error

    def _check_quotes(self) -> None:
        """A quote that is not closed takes the lines after it for one value: refuse that, and tell of long values.

        Only where quotes were seen and there are fewer rows than lines is the file looked at with a strict parser.
        """
        with self._bytes() as file:
            ends = np.zeros(2, np.int64)
            for block in iter(lambda: file.read(1 << 20), b""):
                ends += block.count(b"\n"), block.count(b"\r")
                last = block[-1:]
        lines = int(ends.max()) + (last not in b"\r\n")
        if lines <= self.rows + self.header:
            return
        with io.TextIOWrapper(self._bytes(), "utf-8-sig", errors="replace", newline="") as text:
            parser = csv.reader(text, delimiter=self.delimiter, strict=True)
            long = before = 0
            try:
                for row in parser:
                    if parser.line_num > before + 1:
                        long += 1
                        if self.delimiter not in _ALWAYS_QUOTED and _swallowed(row, self.delimiter):
                            raise csv.Error
                    before = parser.line_num
            except csv.Error as error:
                raise DataError(f"{self.name}: {_UNCLOSED.format(f'line {before + 1}')}") from error
        if long:
            self.notes.append(f"{long:,} rows go over several lines, as values in quotes may")

    def _bytes(self) -> Any:
        return gzip.open(self.path) if self.gzipped else self.path.open("rb")

    def _open(self) -> Any:
        """The bytes of the file with a delimiter of one letter."""
        import pyarrow as pa

        if self.delimiter in _TRANSLATED:
            return pa.PythonFile(io.BufferedReader(_Translated(self._bytes(), self.delimiter), 1 << 20), mode="r")
        file = pa.input_stream(str(self.path), compression="gzip" if self.gzipped else None)
        return pa.PythonFile(_Watched(file, self), mode="r")


_TRANSLATED = {"::": "\x1f", " ": "\x1f"}  # what Arrow is given for a delimiter that it does not know


_ALWAYS_QUOTED = (",", ";")  # elsewhere a quote may be a letter as any other
_UNCLOSED = "at {} a quote is opened that is not closed as it should be, so rows may be lost; close or double it."


class _Watched:
    """A file that notes whether a quote was in it, for less than a thousandth of what parsing takes."""

    def __init__(self, file: Any, owner: TextInput) -> None:
        self.file, self.owner = file, owner

    @property
    def closed(self) -> bool:
        return bool(self.file.closed)

    def close(self) -> None:
        self.file.close()

    def read(self, size: int = -1) -> Any:
        block = self.file.read(size)
        self.owner.quoted = self.owner.quoted or b'"' in block
        return block


def _without(batch: Any, gaps: Mapping[int, list[str]]) -> Any:
    """A batch with null where a column of texts has one of those that stand for nothing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for at, words in gaps.items():
        column = batch.column(at)
        empty = pc.equal(column, "") if words == [""] else pc.is_in(column, pa.array(words))
        if empty.true_count:
            column = pc.if_else(empty, pa.scalar(None, column.type), column)
            batch = batch.set_column(at, batch.schema.field(at), column)
    return batch


def _swallowed(row: list[str], delimiter: str) -> bool:
    """Whether a value has both line ends and delimiters, as one has that began with a stray quote."""
    return any(delimiter in value and ("\n" in value or "\r" in value) for value in row)


def _are_quotes(sample: str, delimiter: str, cut: bool) -> bool:
    """Whether quotes enclose values. With tabs and bars only if each that begins a value has its pair at the end."""
    if delimiter in _TRANSLATED:
        return False
    if delimiter in _ALWAYS_QUOTED:
        return True
    if '"' not in sample:
        return False
    for text in (sample, sample + '"\n') if cut else (sample,):  # the sample may end within a value
        try:
            rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
            if not any(_swallowed(row, delimiter) for row in rows):
                return True
        except csv.Error:
            continue
    return False


def _translate(lines: bytes, delimiter: str) -> bytes:
    if delimiter == "::":
        return lines.replace(b"::", b"\x1f")
    return re.sub(rb"[ \t]+", b"\x1f", re.sub(rb"(?m)^[ \t]+|[ \t]+(?=\r?$)", b"", lines))


class _Translated(io.RawIOBase):
    """A file whose delimiter of several letters is replaced, line by line."""

    def __init__(self, file: Any, delimiter: str) -> None:
        self.file, self.delimiter, self.rest, self.ready = file, delimiter, b"", b""

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self.file.close()
        super().close()

    def readinto(self, buffer: Any) -> int:
        while not self.ready:
            block = self.file.read(1 << 22)
            lines, newline, rest = (self.rest + block).rpartition(b"\n")
            if not block:
                lines, newline, rest = self.rest, b"", b""
            self.rest = rest
            self.ready = _translate(lines + newline, self.delimiter)
            if not block:
                break
        size = min(len(buffer), len(self.ready))
        buffer[:size], self.ready = self.ready[:size], self.ready[size:]
        return size


def open_text(path: Path, gzipped: bool, headers: Sequence[str]) -> TextInput:
    """The input in a text file; `headers` are names that its first line is expected to have."""
    name = str(path)
    with gzip.open(path) if gzipped else path.open("rb") as file:
        start = file.read(SAMPLE)
    sample = _decoded(start, name)
    cut = len(start) == SAMPLE
    delimiter, rows = _find_delimiter(sample, path, name, cut)
    width = len(rows[0])
    header = _has_header(rows, headers)
    names = _unique(rows[0] if header else [""] * width)
    if width < 2:
        raise DataError(f"{name}: one column in each line; expected at least two, the users and the items.")
    quotes = _are_quotes(sample, delimiter, cut)
    notes = [] if header else [f"the first line is taken for data, so the columns are {names[0]} to {names[-1]}"]
    inferred = _infer(sample, delimiter, header, names, quotes, name)
    return TextInput(name, path, gzipped, delimiter, header, names, inferred, quotes, notes)


def _decoded(start: bytes, name: str) -> str:
    """The whole lines of the first bytes as text."""
    if not start.strip():
        raise DataError(f"{name}: the file has no rows; expected lines with users and items.")
    if len(start) == SAMPLE:
        start, newline, _ = start.rpartition(b"\n")
        if not newline:
            raise DataError(f"{name}: no line end in the first {SAMPLE} bytes; expected one like per line.")
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{name}: holds UTF-16 text; convert it: iconv -f UTF-16 -t UTF-8.")
    if b"\0" in start:
        raise DataError(f"{name}: holds binary data; expected Parquet or delimited text.")
    try:
        return start.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{name}: is not UTF-8 text (byte {error.start}); convert it: iconv -f LATIN1 -t UTF-8."
        ) from error


def _split(sample: str, delimiter: str, cut: bool) -> list[list[str]]:
    if delimiter == "::":
        rows = [line.split("::") for line in sample.splitlines()]
    elif delimiter == " ":
        rows = [line.split() for line in sample.splitlines()]
    else:
        text = io.StringIO(sample, newline="")
        try:
            if _are_quotes(sample, delimiter, cut):
                rows = list(csv.reader(text, delimiter=delimiter))
            else:
                rows = list(csv.reader(text, delimiter=delimiter, quoting=csv.QUOTE_NONE))
        except csv.Error:
            return []
    return [row for row in rows if any(row)][:200]


def _find_delimiter(sample: str, path: Path, name: str, cut: bool) -> tuple[str, list[list[str]]]:
    """The delimiter that cuts most of the first lines to the same number of fields, two at least."""
    ending = [one.lower() for one in path.suffixes if one.lower() != ".gz"][-1:]
    first = {".csv": ",", ".tsv": "\t", ".tab": "\t"}.get(ending[0] if ending else "", "")
    best: tuple[float, str, list[list[str]]] = (0.0, "", [])
    for delimiter in sorted(DELIMITERS, key=lambda one: one != first):
        rows = _split(sample, delimiter, cut)
        width, count = Counter(map(len, rows)).most_common(1)[0] if rows else (0, 0)
        if width >= 2 and count / len(rows) > best[0] and len(rows[0]) == width:
            best = (count / len(rows), delimiter, rows)
    if best[0] <= 0.5:
        raise DataError(
            f"{name}: its lines do not have the same number of fields with any of comma, tab, semicolon, "
            "bar, :: or white space between them; expected one like per line, at least a user and an item."
        )
    return best[1], best[2]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _has_header(rows: list[list[str]], headers: Sequence[str]) -> bool:
    """Whether the first line names the columns: usual names, or words above numbers."""
    wanted = {plain(one) for one in headers}
    if any(is_known(one) or plain(one) in wanted for one in rows[0] if one):
        return True
    below = [row for row in rows[1:] if len(row) == len(rows[0])]
    return bool(below) and any(
        bool(word) and not _is_number(word) and all(_is_number(row[at]) for row in below)
        for at, word in enumerate(rows[0])
    )


def _unique(names: list[str]) -> list[str]:
    """Names of columns without gaps and repetitions."""
    out: list[str] = []
    for at, name in enumerate(names, 1):
        name = name.strip() or f"column{at}"
        out.append(name if name not in out else f"{name} ({at})")
    return out


def _parse_options(delimiter: str, quotes: bool) -> Any:
    import pyarrow.csv as pc

    single = _TRANSLATED.get(delimiter, delimiter)
    return pc.ParseOptions(delimiter=single, quote_char='"' if quotes else False, newlines_in_values=quotes)


def _convert_options(types: Mapping[str, Any] | None) -> Any:
    import pyarrow.csv as pc

    return pc.ConvertOptions(
        column_types=dict(types) if types is not None else None,
        include_columns=list(types) if types is not None else None,
        null_values=MISSING,
        strings_can_be_null=types is None,  # where there are types, `_without` makes them
        quoted_strings_can_be_null=False,
    )


def _infer(sample: str, delimiter: str, header: bool, names: list[str], quotes: bool, name: str) -> dict[str, Any]:
    """Types for the columns of a rule: numbers are double precision, dates stay, the rest is text."""
    import pyarrow as pa
    import pyarrow.csv as pc

    data = sample.encode()
    data = _translate(data, delimiter) if delimiter in _TRANSLATED else data
    with reading(name):
        table = pc.read_csv(
            io.BytesIO(data),
            pc.ReadOptions(column_names=names, skip_rows=1 if header else 0, use_threads=False),
            _parse_options(delimiter, quotes),
            _convert_options(None),
        )

    def wider(kind: Any) -> Any:
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            return pa.float64()
        if pa.types.is_timestamp(kind):
            return pa.timestamp("us", kind.tz)
        return kind if pa.types.is_date(kind) or pa.types.is_boolean(kind) else pa.string()

    return {name: wider(kind) for name, kind in zip(table.column_names, table.schema.types)}
