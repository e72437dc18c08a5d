"""Rules of `where` on a table of awkward values, against a three-valued evaluator in plain Python."""

from __future__ import annotations

import math
import operator
import random
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from considerate.data.rules import compile_rule, parse
from considerate.errors import UsageError
from fuzz.base import Check, Choices, Place, Target

SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge,
    ">": operator.gt,
    "<=": operator.le,
    "<": operator.lt,
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<>": operator.ne,
}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ROWS = 24
HALF, SINGLE = struct.Struct("<e"), struct.Struct("<f")
NORMAL = {"half": 2.0**-14, "single": 2.0**-126}  # numbers nearer to zero have fewer digits


def single(value: float) -> float:
    """The nearest number of single precision."""
    return float(SINGLE.unpack(SINGLE.pack(value))[0])


@dataclass(frozen=True)
class Column:
    """A column of the table: how rules name it, what literals go with it, and its values as Python compares them."""

    name: str
    literals: str  # "number", "text", "moment" or "flag"
    array: Any
    values: list[Any]
    precision: str = ""  # "half" or "single", of numbers


def _column(name: str, literals: str, values: list[Any], kind: Any, plain: Any = None, precision: str = "") -> Column:
    """Values repeated to ROWS with a step of their own, and `plain(value)` of each for the oracle."""
    step = len(values) + 1
    repeated = [([*values, None])[k * 5 % step if step % 5 else k % step] for k in range(ROWS)]
    plain = plain or (lambda value: value)
    return Column(
        name, literals, pa.array(repeated, kind), [None if v is None else plain(v) for v in repeated], precision
    )


def nanoseconds(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1) * 1000


I64 = [0, -1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 1_500_000_000_000_000_000, 7]
U64 = [0, 1, 2**63, 2**64 - 1, 2**53 + 1, 7]
DOUBLES = [0.0, -0.0, 4.1, single(4.1), 1e300, -math.inf, math.inf, 5e-324, 0.5]
SINGLES = [0.0, -0.0, single(4.1), 4.0, single(1e38), math.inf, single(1e-45), single(16777217), single(0.1)]
HALVES = [HALF.unpack(HALF.pack(value))[0] for value in (0.0, 4.1, 65504.0, 6e-8, -2.0, 0.1)]
NANOS = [0, 1, -1, 10**18 + 1, 2**63 - 1, -(2**62)]
SECONDS = [0, 1, -(10**15), 10**15, 1_700_000_000]
DAYS = [0, 1, -(2**31), 2**31 - 1, 19_800]
MICROS = [0, 999, 1_700_000_000_000_000, -5]
WORDS = ["a", "b", "it's", "", "  a ", "é"]
DAY = 86_400_000_000_000
COLUMNS = [
    _column("i8", "number", [-128, 127, 0, 5], pa.int8()),
    _column("i64", "number", I64, pa.int64()),
    _column("u64", "number", U64, pa.uint64()),
    _column("f64", "number", DOUBLES, pa.float64()),
    _column("f32", "number", SINGLES, pa.float32(), precision="single"),
    _column("f16", "number", HALVES, pa.float16(), precision="half"),
    _column("broken", "number", [math.nan, 1.0, 4.0], pa.float64()),
    _column("dec", "number", [Decimal("4.10"), Decimal("-0.05"), Decimal("1000")], pa.decimal128(12, 2), float),
    _column("digits", "number", ["4.1", " 7 ", "1e5", "-3"], pa.string(), float),
    _column("flag", "flag", [True, False], pa.bool_()),
    _column("word", "text", WORDS, pa.string(), str.strip),
    _column("Star Sign", "text", WORDS, pa.dictionary(pa.int32(), pa.string()), str.strip),
    _column("day", "moment", DAYS, pa.date32(), lambda value: value * DAY),
    _column("ns", "moment", NANOS, pa.timestamp("ns")),
    _column("seen", "moment", SECONDS, pa.timestamp("s"), lambda value: value * 10**9),
    _column("zoned", "moment", MICROS, pa.timestamp("us", "Europe/Berlin"), lambda value: value * 1000),
]
TABLE = pa.table({column.name: column.array for column in COLUMNS} | {"row": range(ROWS)})
TYPES = {column.name: (column.name, column.array.type) for column in COLUMNS}
NUMBERS = [
    *("0", "-0.0", "4", "4.1", "+4.10", "1.5e18", "-1", "0.5", ".5", "1e300", "-1e999", "1e-300", "16777217", "1e38"),
    *("9007199254740993", "9007199254740992.0", "18446744073709551615", "18446744073709551616", "1e-45", "127", "128"),
    *("9223372036854775807", "-9223372036854775808", "99999999999999999999999999", "65519", "6e-8", "0.1", "65504"),
]
MOMENTS = [
    "1970-01-01",
    "2024-05-01T18:30:00",
    "0001-01-01",
    "9999-12-31T23:59:59.999999",
    "2001-09-09T01:46:40",
    "1969-12-31",
]


class Writer:
    """Writes a rule by choices, with the answer of each part for each row: True, False or None (missing)."""

    def __init__(self, choices: Choices) -> None:
        self.choices = choices
        self.used: set[str] = set()

    def rule(self, depth: int = 0) -> tuple[str, list[bool | None]]:
        how = self.choices.below(8) if depth < 6 else 7
        if how in (0, 1):
            parts = [self.rule(depth + 1) for _ in range(2 + self.choices.below(3))]
            text = self.choices.pick([" and ", "\tAND "] if how else [" or ", " OR\n"]).join(
                f"({part})" for part, _ in parts
            )
            return text, [_joined([answers[row] for _, answers in parts], bool(how)) for row in range(ROWS)]
        if how == 2:
            text, answers = self.rule(depth + 1)
            return f"not ({text})", [None if answer is None else not answer for answer in answers]
        return self.comparison()

    def comparison(self) -> tuple[str, list[bool | None]]:
        column, how = self.choices.pick(COLUMNS), self.choices.below(8)
        self.used.add(column.name)
        name = self.choices.pick([f'"{column.name}"', f"`{column.name}`"]) if " " in column.name else column.name
        if how == 0:
            without = self.choices.below(2)
            return f"{name} is {'not ' if without else ''}null", [(value is None) != without for value in column.values]
        if how == 1:
            without, literals = self.choices.below(2), [self.literal(column) for _ in range(1 + self.choices.below(4))]
            text = f"{name} {'not ' if without else ''}in ({', '.join(text for text, _ in literals)})"
            known = [value for _, value in literals]
            return text, [None if value is None else (value in known) != without for value in column.values]
        sign, (text, known_value) = self.choices.pick([*SIGNS]), self.literal(column)
        compare = SIGNS[sign]
        return f"{name}{sign}{text}", [
            None if value is None else compare(value, known_value) for value in column.values
        ]

    def literal(self, column: Column) -> tuple[str, Any]:
        if column.literals == "flag":
            return self.choices.pick([("true", True), ("FALSE", False), ("1", True), ("0", False)])
        if column.literals == "text":
            text = self.choices.pick(["a", "b", "it's", "", "é", "z"])
            return "'" + text.replace("'", "''") + "'", text
        if column.literals == "moment":
            text = self.choices.pick(MOMENTS)
            return f"'{text}'", nanoseconds(datetime.fromisoformat(text).replace(tzinfo=UTC))
        how = self.choices.below(4)
        text = self.choices.pick(NUMBERS) if how < 3 else str(self.choices.integer())
        if how == 2:
            text = f"{self.choices.integer()}e{self.choices.below(60) - 30}"
        value: float = int(text) if re.fullmatch(r"[-+]?\d+", text) else float(text)
        return text, _in_precision(value, column) if pa.types.is_floating(column.array.type) else value


def _in_precision(value: float, column: Column) -> float:
    """A literal as a floating-point column compares it."""
    value = float(value)
    if not column.precision or not math.isfinite(value):
        return value
    packing = HALF if column.precision == "half" else SINGLE
    try:
        nearest = float(packing.unpack(packing.pack(value))[0])
    except OverflowError:
        return value
    return nearest if abs(nearest) >= NORMAL[column.precision] or value == 0 else value


def _joined(answers: list[bool | None], all_of: bool) -> bool | None:
    """Kleene's "and" and "or"."""
    if (not all_of) in answers:
        return not all_of
    return None if None in answers else all_of


def kept_rows(text: str) -> tuple[list[int], list[int]]:
    """(rows that a rule keeps, rows that it cannot tell because of NaN) of the table."""
    rule = parse(text)
    compiled = compile_rule(rule, {name: TYPES[name] for name in rule.columns})
    doubtful = [] if compiled.nan is None else TABLE.filter(compiled.nan)["row"].to_pylist()
    return TABLE.filter(compiled.keep)["row"].to_pylist(), doubtful


def prepare(_: Place) -> Check:
    """Inputs with an even first byte write a valid rule; others are the text of a rule."""

    def check(data: bytes) -> str:
        choices = Choices(data)
        if choices.below(2):
            return _as_text(choices.rest().decode("utf-8", "replace"))
        writer = Writer(choices)
        text, answers = writer.rule()
        kept, doubtful = kept_rows(text)
        broken = [row for row in range(ROWS) if "broken" in writer.used and _is_nan(COLUMNS[6].values[row])]
        expected = [row for row in range(ROWS) if answers[row] and row not in broken]
        assert doubtful == broken, (text, doubtful, broken)
        assert [row for row in kept if row not in broken] == expected, (text, kept, expected)
        return "read"

    return check


def _is_nan(value: Any) -> bool:
    return value is not None and math.isnan(value)


def _as_text(text: str) -> str:
    """A text that is refused in a sentence, or that compares."""
    try:
        rule = parse(text)
        if not set(rule.columns) <= set(TYPES):
            return "refused"
        kept_rows(text)
    except UsageError:
        return "refused"
    except pa.ArrowInvalid as error:  # a word that is compared with a number; the reader makes a sentence of it
        if "Failed to parse string" not in str(error):
            raise
        return "refused"
    return "read"


def seeds() -> list[bytes]:
    texts = [
        "i64 >= 4 and not (word in ('a', 'it''s') or flag = true)",
        '"Star Sign" is not null',
        "day < '2024-05-01'",
    ]
    choice = random.Random(0)
    return [*(b"\1" + text.encode() for text in texts), *(b"\0" + choice.randbytes(40) for _ in range(60))]


TARGET = Target("where", seeds, prepare)
