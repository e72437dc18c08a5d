"""CSV and its relatives: the delimiter, the header and the types are found from the first lines.

Ids are always read as strings, and become integers at the end if all of them are whole numbers: '007' and '7' stay two
users, and an ISBN that ends in X in row one million is no problem.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import dropwhile
from pathlib import Path
from typing import Any, NamedTuple

from considerate.data.inputs import Input, translate_errors
from considerate.data.options import is_known, plain
from considerate.errors import DataError

SAMPLE = 1 << 18  # bytes at the start from which the layout is found
SAMPLE_ROWS = 200
BLOCK = 1 << 23
DELIMITERS = ("::", "\t", ";", "|", ",", " ")  # the first of equally good ones is taken; " " is any white space
# Texts for a missing value. An id may be NA (Namibia). In a number, NaN is a value, which a rule must refuse.
MISSING = ["", "NULL", "null", "NA", "N/A", "\\N"]
MISSING_IDS = ["", "NULL", "null", "NaN", "nan", "None", "N/A", "<NA>", "\\N"]
_TRANSLATED = {"::": "\x1f", " ": "\x1f"}  # replacements of delimiters that Arrow does not know
_ALWAYS_QUOTED = (",", ";")  # with other delimiters, a quote may be an ordinary character
_COMMENT = ("#", "%")  # the first character of a comment, if other lines begin otherwise
_UNCLOSED = "a quote is opened that is not closed as it should be, so rows may be lost; close or double it"


@dataclass
class TextInput(Input):
    """A file of delimited lines."""

    path: Path
    gzipped: bool
    delimiter: str
    skip: int  # lines before the first row: blank ones and the header
    from_text = True
    quoted: bool = False  # a quote was seen, after the scan

    def types(self, ids: Sequence[str]) -> dict[str, Any]:
        import pyarrow as pa

        return {name: pa.string() if name in ids else kind for name, kind in super().types(ids).items()}

    def batches(self, needed: Sequence[str], ids: Sequence[str]) -> Iterator[Any]:
        import pyarrow as pa
        import pyarrow.csv as pc

        types = {name: kind for name, kind in self.types(ids).items() if name in needed}
        texts = {name: MISSING_IDS if name in ids else MISSING for name in types if pa.types.is_string(types[name])}
        with self._refusing_rows(), self._bytes() as file:
            for batch in pc.open_csv(pa.PythonFile(_ReadInBlocks(file, self), mode="r"), *self._options(types)):
                yield self._clean(batch, texts)
        if self.quotes and self.quoted:
            self._check_quotes()

    def infer_types(self, sample: str) -> None:
        """Infer the types of columns for a rule: numbers are double precision, dates stay, the rest is text."""
        import pyarrow as pa
        import pyarrow.csv as pc

        def wider(kind: Any) -> Any:
            if pa.types.is_integer(kind) or pa.types.is_floating(kind):
                return pa.float64()
            if pa.types.is_timestamp(kind):
                return pa.timestamp("us", kind.tz)
            return kind if pa.types.is_date(kind) or pa.types.is_boolean(kind) else pa.string()

        data = sample.encode()
        data = _translate(data, self.delimiter) if self.delimiter in _TRANSLATED else data
        with translate_errors(self.name), self._refusing_rows():
            schema = pc.read_csv(io.BytesIO(data), *self._options(None)).schema
        self.schema = pa.schema([(column.name, wider(column.type)) for column in schema])

    def _options(self, types: Mapping[str, Any] | None) -> tuple[Any, Any, Any]:
        """Options of Arrow's reader, which guesses types if they are not given."""
        import pyarrow.csv as pc

        delimiter = _TRANSLATED.get(self.delimiter, self.delimiter)
        return (
            pc.ReadOptions(block_size=BLOCK, column_names=self.names, skip_rows=self.skip, use_threads=bool(types)),
            pc.ParseOptions(
                delimiter=delimiter, quote_char='"' if self.quotes else False, newlines_in_values=self.quotes
            ),
            pc.ConvertOptions(
                column_types=types,
                include_columns=None if types is None else list(types),
                null_values=MISSING,
                strings_can_be_null=types is None,  # with given types, `_clean` makes the nulls
                quoted_strings_can_be_null=False,
            ),
        )

    def _clean(self, batch: Any, texts: Mapping[str, list[str]]) -> Any:
        """Remove white space around texts, and make texts for a missing value null."""
        import pyarrow as pa
        import pyarrow.compute as pc

        for name, missing in texts.items():
            at = batch.schema.get_field_index(name)
            column = pc.utf8_trim_whitespace(batch.column(at))
            if column.nbytes != batch.column(at).nbytes and self.quotes:
                stray = batch.column(at).filter(pc.match_substring_regex(batch.column(at), r'^\s+"'))
                if len(stray):
                    raise DataError(
                        f"{self.name}: the value {stray[0].as_py()[:60]!r} in {name!r} has a space before its quote, "
                        "so the quotes belong to the value; write the quote right after the delimiter."
                    )
            empty = pc.is_in(column, pa.array(missing))
            if empty.true_count:
                column = pc.if_else(empty, pa.scalar(None, column.type), column)
            batch = batch.set_column(at, batch.schema.field(at), column)
        return batch

    def _too_long(self) -> DataError:
        """Explain why a row does not fit into a block: a long line, or an open quote that swallows lines."""
        with self._bytes() as file:
            for at, line in enumerate(iter(lambda: file.readline(BLOCK), b""), 1):
                if len(line) == BLOCK:
                    return DataError(f"{self.name}: line {at} has more than {BLOCK} bytes; expected one like per line.")
        return DataError(f"{self.name}: at a value longer than {BLOCK} bytes {_UNCLOSED}.")

    @contextmanager
    def _refusing_rows(self) -> Iterator[None]:
        """Explain the error of a row with the wrong number of fields, if it is too long or looks like a comment."""
        import pyarrow as pa

        try:
            yield
        except pa.ArrowInvalid as error:
            if "straddling" in str(error):
                raise self._too_long() from error
            comment = re.search(r"got \d+: *([#%][^\x1f]{,60})", str(error))
            if comment is None:
                raise
            with self._bytes() as file:
                texts = (line.decode(errors="replace").lstrip() for line in file)
                first = next((at for at, text in enumerate(texts, 1) if text.startswith(comment[1])), 0)
            raise _refuse_comment(self.name, first, comment[1]) from error

    def _check_quotes(self) -> None:
        """Refuse a quote that is not closed, which swallows the lines after it; note values over several lines.

        If there are fewer rows than lines, the file is read again with a strict parser.
        """
        newlines = returns = 0
        last = b""
        with self._bytes() as file:
            for block in iter(lambda: file.read(1 << 20), b""):
                newlines, returns, last = newlines + block.count(b"\n"), returns + block.count(b"\r"), block[-1:]
        if max(newlines, returns) + (last not in b"\r\n") <= self.rows + self.skip:
            return
        long = before = 0
        with io.TextIOWrapper(self._bytes(), "utf-8-sig", errors="replace", newline="") as text, _long_fields():
            parser = csv.reader(text, delimiter=self.delimiter, strict=True)
            try:
                for row in parser:
                    if parser.line_num > before + 1:
                        long += 1
                        if self.delimiter not in _ALWAYS_QUOTED and _swallowed(row, self.delimiter):
                            raise csv.Error
                    before = parser.line_num
            except csv.Error as error:
                raise DataError(f"{self.name}: at line {before + 1} {_UNCLOSED}.") from error
        if long:
            self.notes.append(f"{long:,} rows go over several lines, as values in quotes may")

    def _bytes(self) -> Any:
        return gzip.open(self.path) if self.gzipped else self.path.open("rb")


class _ReadInBlocks:
    """The bytes of a file with a delimiter of one character, as Arrow needs it. Notes whether there is a quote."""

    def __init__(self, file: Any, owner: TextInput) -> None:
        self.file, self.owner, self.ready, self.rest = file, owner, b"", b""
        self.closed = False

    def close(self) -> None:
        self.closed = True

    def read(self, size: int) -> bytes:
        while not self.ready:
            block = self.file.read(size)
            self.owner.quoted = self.owner.quoted or b'"' in block
            if self.owner.delimiter not in _TRANSLATED:
                return bytes(block)
            lines, newline, rest = (self.rest + block).rpartition(b"\n")  # whole lines, so that no delimiter is cut
            self.rest = rest if block else b""
            self.ready = _translate(lines + newline if block else rest, self.owner.delimiter)
            if not block:
                break
        ready, self.ready = self.ready[:size], self.ready[size:]
        return ready


def _translate(lines: bytes, delimiter: str) -> bytes:
    if delimiter == "::":
        return lines.replace(b"::", b"\x1f")
    return re.sub(rb"[ \t]+", b"\x1f", re.sub(rb"(?m)^[ \t]+|[ \t]+(?=\r?$)", b"", lines))


@contextmanager
def _long_fields() -> Iterator[None]:
    """Lift the csv module's limit of 128 KB a field."""
    limit = csv.field_size_limit(1 << 30)
    try:
        yield
    finally:
        csv.field_size_limit(limit)


def _swallowed(row: list[str], delimiter: str) -> bool:
    """True if a value has both line ends and delimiters, as happens after a stray quote."""
    return any(delimiter in value and ("\n" in value or "\r" in value) for value in row)


def _are_quotes(sample: str, delimiter: str, cut: bool) -> bool:
    """True if quotes enclose values. With tabs and bars, each opening quote must have its pair at the end."""
    if delimiter in _TRANSLATED or delimiter in _ALWAYS_QUOTED:
        return delimiter in _ALWAYS_QUOTED
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


def _refuse_comment(name: str, line: int, text: str, otherwise: str = "") -> DataError:
    return DataError(
        f"{name}: line {line} looks like a comment ({text.strip()[:60]!r}), and comments are not read; remove "
        f"such lines, e.g. grep -v '^{text.strip()[:1]}' in.csv > out.csv{otherwise}."
    )


class _Row(NamedTuple):
    fields: list[str]
    first_line: int  # lines before it
    last_line: int  # lines up to its end


def open_text(path: Path, gzipped: bool, headers: Sequence[str]) -> TextInput:
    """Open a text file; `headers` are names that its first line may have."""
    import pyarrow as pa

    name = str(path)
    with gzip.open(path) if gzipped else path.open("rb") as file:
        start = file.read(SAMPLE)
    sample, cut = _decode(start, name), len(start) == SAMPLE
    with _long_fields():
        delimiter, quotes, rows = _find_delimiter(sample, path, name, cut)
    _check_comments(rows, headers, name)
    first, header = rows[0], _has_header([row.fields for row in rows], headers)
    names = _unique(first.fields if header else [""] * len(first.fields))
    skip = first.last_line if header else first.first_line
    notes = [] if header else [f"the first line is taken for data, so the columns are {names[0]} to {names[-1]}"]
    schema = pa.schema([(column, pa.string()) for column in names])
    table = TextInput(name, schema, path, gzipped, delimiter, skip, quotes=quotes, notes=notes)
    table.infer_types(sample)
    return table


def _decode(start: bytes, name: str) -> str:
    """Decode the whole lines of the first bytes."""
    for encoding, marks in (
        ("UTF-32", (b"\xff\xfe\0\0", b"\0\0\xfe\xff")),
        ("UTF-16", (b"\xff\xfe", b"\xfe\xff")),
    ):
        if start.startswith(marks):
            raise DataError(f"{name}: holds {encoding} text; convert it: iconv -f {encoding} -t UTF-8.")
    if not start.strip():
        raise DataError(f"{name}: the file has no rows; expected lines with users and items.")
    if len(start) == SAMPLE:
        start, newline, _ = start.rpartition(b"\n")
        if not newline:
            raise DataError(f"{name}: no line end in the first {SAMPLE} bytes; expected one like per line.")
    if b"\0" in start:
        raise DataError(f"{name}: holds binary data; expected Parquet or delimited text.")
    try:
        return start.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{name}: is not UTF-8 text (byte {error.start}); convert it: iconv -f LATIN1 -t UTF-8."
        ) from error


def _first_rows(sample: str, delimiter: str, quotes: bool) -> list[_Row]:
    """The first rows that have a value."""
    lines: Any = io.StringIO(sample, newline="")
    if delimiter in _TRANSLATED:
        lines = re.split(r"\r\n|\r|\n", sample)
        parsed: Any = (line.split(delimiter if delimiter == "::" else None) for line in lines)
    else:
        parsed = csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE)
    rows: list[_Row] = []
    before = 0
    try:
        for fields in parsed:
            after = getattr(parsed, "line_num", before + 1)
            if any(value.strip() for value in fields):
                rows.append(_Row(fields, before, after))
            before = after
            if len(rows) == SAMPLE_ROWS:
                break
    except csv.Error:
        return []
    return rows


def _find_delimiter(sample: str, path: Path, name: str, cut: bool) -> tuple[str, bool, list[_Row]]:
    """Find the delimiter that cuts most of the first lines to the same number of fields, two at least."""
    endings = [ending.lower() for ending in path.suffixes if ending.lower() != ".gz"]
    usual = {".csv": ",", ".tsv": "\t", ".tab": "\t"}.get(endings[-1] if endings else "", "")
    best: tuple[float, str, bool, list[_Row]] = (0.5, "", False, [])
    for delimiter in sorted(DELIMITERS, key=lambda letter: letter != usual):
        quotes = _are_quotes(sample, delimiter, cut)
        rows = _first_rows(sample, delimiter, quotes)
        width, count = Counter(len(row.fields) for row in rows).most_common(1)[0] if rows else (0, 0)
        if width >= 2 and count / len(rows) > best[0] and len(rows[0].fields) == width:
            best = (count / len(rows), delimiter, quotes, rows)
    if not best[3]:
        for at, line in enumerate(re.split(r"\r\n|\r|\n", sample), 1):
            if line.lstrip().startswith(_COMMENT):
                raise _refuse_comment(name, at, line)
        raise DataError(
            f"{name}: its lines do not have the same number of fields with any of comma, tab, semicolon, "
            "bar, :: or white space between them; expected one like per line, at least a user and an item."
        )
    return best[1:]


def _check_comments(rows: list[_Row], headers: Sequence[str], name: str) -> None:
    """Refuse a file whose first rows, and no others, look like comments. A header may look so, and so may all ids."""
    begins = [row.fields[0].lstrip().startswith(_COMMENT) for row in rows]
    others = list(dropwhile(bool, begins))
    if begins[0] and others and not any(others) and not _has_names(rows[0].fields, headers):
        otherwise = ", or if it is a like, put a line with the names of the columns before it"
        raise _refuse_comment(name, rows[0].first_line + 1, rows[0].fields[0], otherwise)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _has_names(fields: list[str], headers: Sequence[str]) -> bool:
    """True if one of the fields is a usual name, or one of `headers`."""
    wanted = {plain(name) for name in headers}
    return any(is_known(field) or plain(field) in wanted for field in fields if field)


def _has_header(rows: list[list[str]], headers: Sequence[str]) -> bool:
    """True if the first line has the names of columns: usual names, or words above numbers."""
    if _has_names(rows[0], headers):
        return True
    below = [row for row in rows[1:] if len(row) == len(rows[0])]
    return bool(below) and any(
        bool(word) and not _is_number(word) and all(_is_number(row[at]) for row in below)
        for at, word in enumerate(rows[0])
    )


def _unique(names: list[str]) -> list[str]:
    """Make the names of columns unique, and name those without a name."""
    unique: dict[str, None] = {}
    for at, name in enumerate(names, 1):
        name = name.strip() or f"column{at}"
        while name in unique:
            name = f"{name} ({at})"
        unique[name] = None
    return list(unique)
