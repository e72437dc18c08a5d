"""The small language of `where`, which says which rows of the data are likes.

    rule        = conjunction { "or" conjunction }
    conjunction = term { "and" term }
    term        = "not" term | "(" rule ")" | comparison
    comparison  = column ( ">=" | ">" | "<=" | "<" | "==" | "=" | "!=" ) literal
                | column [ "not" ] "in" "(" literal { "," literal } ")"
                | column "is" [ "not" ] "null"
    column      = a word, or anything in "double quotes" or `backticks`
    literal     = a number, true, false, or 'text' in single quotes; dates are ISO text: '2024-05-01'

A rule is parsed here and compiled to an Arrow expression; nothing is evaluated as Python. A row with a missing value
satisfies no comparison, as in SQL. Values are compared in the type of the column: a number is rounded to the precision
of a floating-point column, and compared exactly with a column of integers, dates or moments.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import reduce
from operator import and_, eq, ge, gt, le, lt, ne, or_
from typing import Any

from considerate.data.inputs import value_type
from considerate.errors import UsageError

Literal = bool | int | float | str

LONGEST = 20_000  # most characters of a rule
DEEPEST = 50  # most parentheses and nots inside each other
MOST_COMPARISONS = 300

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w.]))
    | (?P<text>'(?:[^']|'')*')
    | (?P<quoted>"[^"]+"|`[^`]+`)
    | (?P<word>[^\W\d]\w*)
    | (?P<op>>=|<=|==|!=|<>|[<>=(),])
    )""",
    re.VERBOSE,
)
_COMPARE = {">=": ge, ">": gt, "<=": le, "<": lt, "==": eq, "!=": ne, "=": eq, "<>": ne}
_NANOSECONDS = {"day": 86_400_000_000_000, "s": 1_000_000_000, "ms": 1_000_000, "us": 1000, "ns": 1}
_MICROSECONDS = {name: Fraction(size, 1000) for name, size in _NANOSECONDS.items()}
_EXAMPLE = """a rule looks like: rating >= 4 and genre in ('Comedy', 'Drama')"""


@dataclass(frozen=True)
class Comparison:
    """A comparison `column op values`, where op is one of the six signs, "in" or "null"."""

    column: str
    op: str
    values: tuple[Literal, ...] = ()


@dataclass(frozen=True)
class Joined:
    """Terms joined by "and" or by "or", or a term after "not"."""

    word: str
    terms: tuple[Node, ...]


Node = Comparison | Joined


@dataclass(frozen=True)
class Rule:
    """A parsed rule: its tree and the columns that it names."""

    root: Node
    columns: tuple[str, ...]


def parse(text: str) -> Rule:
    """Parse a rule."""
    if not isinstance(text, str):
        raise UsageError(f'--where takes a text such as "rating >= 4", not {text!r}.')
    if len(text) > LONGEST:
        raise UsageError(f"--where: a rule of {len(text)} characters; the longest allowed has {LONGEST}.")
    parser = _Parser(text)
    root = parser.joined("or")
    if parser.at < len(parser.tokens):
        raise parser.wrong(f"expected 'and' or 'or' and found {parser.peek()[1]!r}")
    return Rule(root, tuple(parser.columns))


class _Parser:
    """Recursive-descent parser of a rule."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, str]] = []
        self.at = 0
        self.depth = 0
        self.columns: dict[str, None] = {}
        self.comparisons = 0
        start, end = 0, len(text.rstrip())
        while start < end:
            match = _TOKEN.match(text, start)
            if match is None:
                raise self.wrong(f"{text[start:].strip()[:20]!r} is not understood")
            self.tokens.append((str(match.lastgroup), match.group(str(match.lastgroup))))
            start = match.end()
        if not self.tokens:
            raise self.wrong("the rule is empty")

    def wrong(self, what: str) -> UsageError:
        return UsageError(f"--where {self.text[:200]!r}: {what}; {_EXAMPLE}.")

    def peek(self, ahead: int = 0) -> tuple[str, str]:
        """The kind and text of a next token; words are in lower case."""
        if self.at + ahead >= len(self.tokens):
            return "end", "the end"
        kind, token = self.tokens[self.at + ahead]
        return kind, token.lower() if kind == "word" else token

    def take(self, token: str) -> bool:
        """Skip a word or a sign if it is the next token, and return True if it was."""
        if self.peek()[1] == token and self.peek()[0] in ("word", "op"):
            self.at += 1
            return True
        return False

    def expect(self, token: str) -> None:
        if not self.take(token):
            raise self.wrong(f"expected {token!r} and found {self.peek()[1]!r}")

    def joined(self, word: str) -> Node:
        part: Callable[[], Node] = (lambda: self.joined("and")) if word == "or" else self.term
        terms = [part()]
        while self.take(word):
            terms.append(part())
        return terms[0] if len(terms) == 1 else Joined(word, tuple(terms))

    def term(self) -> Node:
        self.depth += 1
        if self.depth > DEEPEST:
            raise self.wrong(f"more than {DEEPEST} parentheses or nots inside each other")
        node: Node
        if self.take("not"):
            node = Joined("not", (self.term(),))
        elif self.take("("):
            node = self.joined("or")
            self.expect(")")
        else:
            node = self.comparison()
        self.depth -= 1
        return node

    def comparison(self) -> Node:
        self.comparisons += 1
        if self.comparisons > MOST_COMPARISONS:
            raise self.wrong(f"more than {MOST_COMPARISONS} comparisons; use: column in (...)")
        kind, _ = self.peek()
        if kind not in ("word", "quoted"):
            raise self.wrong(f"expected a column and found {self.peek()[1]!r}")
        column = self.tokens[self.at][1]
        column = column[1:-1] if kind == "quoted" else column
        self.at += 1
        self.columns[column] = None
        if self.take("is"):
            without = self.take("not")
            self.expect("null")
            node = Comparison(column, "null")
            return Joined("not", (node,)) if without else node
        without = self.peek()[1] == "not" and self.peek(1)[1] == "in" and self.take("not")
        if self.take("in"):
            self.expect("(")
            values = [self.literal()]
            while self.take(","):
                values.append(self.literal())
            self.expect(")")
            node = Comparison(column, "in", tuple(values))
            return Joined("not", (node,)) if without else node
        sign = self.peek()[1]
        if self.peek()[0] != "op" or sign not in _COMPARE:
            raise self.wrong(f"expected a comparison such as >= after {column!r} and found {sign!r}")
        self.at += 1
        return Comparison(column, sign, (self.literal(),))

    def literal(self) -> Literal:
        kind, token = self.peek()
        self.at += 1
        if kind == "number":
            return int(token) if re.fullmatch(r"[-+]?\d{1,30}", token) else float(token)
        if kind == "text":
            return token[1:-1].replace("''", "'")
        if kind == "word" and token in ("true", "false"):
            return token == "true"
        if kind in ("word", "quoted"):
            raise self.wrong(f"found {token} where a value belongs; text goes in 'single quotes'")
        raise self.wrong(f"expected a value and found {token!r}")


@dataclass(frozen=True)
class Compiled:
    """A rule as Arrow expressions."""

    keep: Any  # true for a row that satisfies the rule
    nan: Any | None  # true if a number in the rule is NaN; None: never
    columns: tuple[str, ...]  # names in the data
    parsed: tuple[tuple[str, str], ...] = ()  # texts read as numbers: the column, and a literal it is compared with


def compile_rule(rule: Rule, types: Mapping[str, tuple[str, Any]]) -> Compiled:
    """Compile a rule, given the real name and the type of each column that it names."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow.types import is_floating

    doubtful: list[Any] = []
    parsed: dict[str, str] = {}

    def build(node: Node) -> Any:
        if isinstance(node, Joined) and node.word == "not":
            return ~build(node.terms[0])
        if isinstance(node, Joined):
            return _balanced([build(term) for term in node.terms], and_ if node.word == "and" else or_)
        name, kind = types[node.column]
        operands = None if node.op == "null" else _bind(name, kind, node)
        read = (
            operands is not None and is_floating(operands.kind) and value_type(kind) in (pa.string(), pa.large_string())
        )
        if read or is_floating(value_type(kind)):
            doubtful.append(pc.is_nan(as_number(pc.field(name), kind)))
        if read:
            parsed.setdefault(name, str(node.values[0]))
        return pc.field(name).is_null() if operands is None else operands.compared(node.op)

    keep = build(rule.root)
    nan = reduce(or_, doubtful) if doubtful else None
    return Compiled(keep, nan, tuple(name for name, _ in types.values()), tuple(parsed.items()))


def _balanced(terms: list[Any], join: Callable[[Any, Any], Any]) -> Any:
    """Join terms pairwise, so that a long chain does not become a deep tree."""
    while len(terms) > 1:
        terms = [reduce(join, terms[at : at + 2]) for at in range(0, len(terms), 2)]
    return terms[0]


def as_number(field: Any, kind: Any) -> Any:
    """Cast a column to double precision; a dictionary is cast to its values first."""
    import pyarrow as pa
    import pyarrow.compute as pc

    value = value_type(kind)
    field = field if value == kind else field.cast(value)
    field = pc.utf8_trim_whitespace(field) if value in (pa.string(), pa.large_string()) else field
    return field if value == pa.float64() else field.cast(pa.float64())


@dataclass(frozen=True)
class _Operands:
    """A column and the values that it is compared with, of one type.

    If that is a type of whole numbers, the values may be any numbers.
    """

    field: Any
    kind: Any
    values: Sequence[Any]

    def compared(self, op: str) -> Any:
        """The comparison as an Arrow expression; it is missing if the column's value is."""
        import pyarrow as pa

        whole = _whole_range(self.kind)
        if op == "in":
            return self._among([value for value in self.values if whole is None or _is_whole(value, *whole)])
        value = self.values[0]
        if whole is not None:
            answer = _as_whole(op, value, *whole)
            if isinstance(answer, bool):
                never = self._among([])
                return ~never if answer else never
            op, value = answer
        return _COMPARE[op](self.field, pa.scalar(value, self.kind))

    def _among(self, values: Sequence[Any]) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        among = self.field.isin(pa.array(values, self.kind))
        return pc.if_else(self.field.is_valid(), among, pa.scalar(None, pa.bool_()))


def _whole_range(kind: Any) -> tuple[int, int] | None:
    """The least and the largest value of a type of whole numbers, dates or moments; None for other types."""
    import pyarrow.types as at

    if not (at.is_integer(kind) or at.is_date(kind) or at.is_timestamp(kind)):
        return None
    if at.is_unsigned_integer(kind):
        return 0, 2**kind.bit_width - 1
    return -(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1


def _is_whole(value: float | Fraction, least: int, most: int) -> bool:
    return least <= value <= most and math.floor(value) == value


def _as_whole(op: str, value: float | Fraction, least: int, most: int) -> tuple[str, int] | bool:
    """Replace a value by a whole number that has the same result for all numbers of a range, or give that result."""
    if value > most:
        return op in ("<", "<=", "!=", "<>")
    if value < least:
        return op in (">", ">=", "!=", "<>")
    below = math.floor(value)
    if below == value:
        return op, below
    if op in ("<", "<="):
        return "<=", below
    return (">", below) if op in (">", ">=") else op in ("!=", "<>")


def _bind(name: str, kind: Any, node: Comparison) -> _Operands:
    """Convert a column and the literals that it is compared with to one type."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as at

    field, values = pc.field(name), list(node.values)
    if at.is_dictionary(kind):
        kind = kind.value_type
        field = field.cast(kind)
    if at.is_null(kind):
        kind = pa.string()
        field = field.cast(kind)

    def refuse(expected: str) -> UsageError:
        return UsageError(f"--where: the column {node.column!r} holds {kind}, {expected}; found {values[0]!r}.")

    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    texts = all(isinstance(value, str) for value in values)
    if at.is_boolean(kind):
        if not all(value in (0, 1) and not isinstance(value, str) for value in values):
            raise refuse("compare it with true or false")
        return _Operands(field, kind, [bool(value) for value in values])
    is_text = kind in (pa.string(), pa.large_string())
    field = pc.utf8_trim_whitespace(field) if is_text else field
    if at.is_integer(kind) or at.is_floating(kind) or at.is_decimal(kind) or (is_text and numbers):
        if not numbers:
            raise refuse("compare it with a number, without quotes")
        if at.is_integer(kind):
            return _Operands(field, kind, values)
        bounds = [_rounded(float(value), kind) if at.is_floating(kind) else float(value) for value in values]
        bounds += [-value for value in bounds if value == 0]  # Arrow's "in" tells -0.0 from 0.0
        return _Operands(field.cast(pa.float64()), pa.float64(), bounds)
    if is_text:
        if not texts:
            raise refuse("compare it with 'text' in single quotes or with a number")
        return _Operands(field, kind, values)
    if at.is_date(kind) or at.is_timestamp(kind):
        if not texts:
            raise refuse("compare it with a date in single quotes such as '2024-05-01'")
        zone = kind.tz if at.is_timestamp(kind) else None
        unit = "day" if at.is_date32(kind) else "ms" if at.is_date64(kind) else kind.unit
        moments = [_moment(str(value), zone, node) for value in values]
        return _Operands(field, kind, [_since_1970(moment) / _MICROSECONDS[unit] for moment in moments])
    raise refuse("which no comparison is defined for; only 'is null' and 'is not null' work on it")


def _rounded(value: float, kind: Any) -> float:
    """Round a number to a floating-point type: 4.1 is another number in single precision than in double.

    A number beyond the range of the type, or too near to zero for its precision, stays.
    """
    import numpy as np

    held = np.dtype(kind.to_pandas_dtype()).type
    with np.errstate(over="ignore", under="ignore"):
        nearest = float(held(value))
    limits = np.finfo(held)
    return nearest if value == 0 or float(limits.tiny) <= abs(nearest) <= float(limits.max) else value


def _since_1970(moment: datetime) -> Fraction:
    """Microseconds since 1970 UTC; a moment without a zone is taken for UTC."""
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return Fraction(since // timedelta(microseconds=1))


def _moment(text: str, zone: str | None, node: Comparison) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"--where: the column {node.column!r} holds dates, and {text!r} is not one; "
            "write it as '2024-05-01' or '2024-05-01T18:30:00'."
        ) from None
    if zone is None and moment.tzinfo is not None:
        raise UsageError(f"--where: the times in {node.column!r} have no time zone; leave it out of {text!r}.")
    return moment
