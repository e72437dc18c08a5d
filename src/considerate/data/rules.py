"""The small language of `where`: which rows of the data are likes.

    rule        = conjunction { "or" conjunction }
    conjunction = term { "and" term }
    term        = "not" term | "(" rule ")" | comparison
    comparison  = column ( ">=" | ">" | "<=" | "<" | "==" | "=" | "!=" ) literal
                | column [ "not" ] "in" "(" literal { "," literal } ")"
                | column "is" [ "not" ] "null"
    column      = a word, or anything in "double quotes" or `backticks`
    literal     = a number, true, false, or 'text' in single quotes; dates are ISO text: '2024-05-01'

A rule is parsed here and compiled to an Arrow expression; nothing is ever evaluated as Python. A row whose
value is missing satisfies no comparison, as in SQL.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from operator import and_, eq, ge, gt, le, lt, ne, or_
from typing import Any

from considerate.data.inputs import value_type
from considerate.errors import UsageError

Literal = bool | int | float | str

LONGEST = 20_000  # characters of a rule
DEEPEST = 50  # parentheses and nots inside each other
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
_EXAMPLE = """a rule looks like: rating >= 4 and genre in ('Comedy', 'Drama')"""


@dataclass(frozen=True)
class Comparison:
    """`column op values`, with op one of the six comparisons, "in" or "null"."""

    column: str
    op: str
    values: tuple[Literal, ...] = ()


@dataclass(frozen=True)
class Joined:
    """Terms joined by "and" or by "or", or one under "not"."""

    word: str
    terms: tuple[Node, ...]


Node = Comparison | Joined


@dataclass(frozen=True)
class Rule:
    """A parsed rule: its tree and the columns that it names."""

    root: Node
    columns: tuple[str, ...]


def parse(text: str) -> Rule:
    """The rule that a text states."""
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
    """Recursive descent over the tokens of one rule."""

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
        """The next token; words in lower case."""
        if self.at + ahead >= len(self.tokens):
            return "end", "the end"
        kind, token = self.tokens[self.at + ahead]
        return kind, token.lower() if kind == "word" else token

    def take(self, token: str) -> bool:
        """Step over a word or a sign if it is the next token."""
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
            return int(token) if re.fullmatch(r"[-+]?\d{1,19}", token) else float(token)
        if kind == "text":
            return token[1:-1].replace("''", "'")
        if kind == "word" and token in ("true", "false"):
            return token == "true"
        if kind in ("word", "quoted"):
            raise self.wrong(f"found {token} where a value belongs; text goes in 'single quotes'")
        raise self.wrong(f"expected a value and found {token!r}")


@dataclass(frozen=True)
class Compiled:
    """A rule as an Arrow expression, and one that is true where a number it looks at is NaN (None: never)."""

    keep: Any
    nan: Any | None
    columns: tuple[str, ...]  # by their names in the data
    parsed: tuple[tuple[str, str], ...] = ()  # texts read as numbers: the column and a literal it is compared with


def compile_rule(rule: Rule, types: Mapping[str, tuple[str, Any]]) -> Compiled:
    """The Arrow expression of a rule given the real name and the type of each column that it names."""
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
        field, values = _bind(name, kind, node) if node.op != "null" else (pc.field(name), [])
        numbers = bool(values) and is_floating(values[0].type)
        if numbers or is_floating(kind):
            doubtful.append(pc.is_nan(as_number(pc.field(name), kind)))
        if numbers and value_type(kind) in (pa.string(), pa.large_string()):
            parsed.setdefault(name, str(node.values[0]))
        if node.op == "null":
            return field.is_null()
        if node.op == "in":
            among = field.isin(pa.array([value.as_py() for value in values], values[0].type))
            return pc.if_else(field.is_valid(), among, pa.scalar(None, pa.bool_()))
        return _COMPARE[node.op](field, values[0])

    keep = build(rule.root)
    nan = reduce(or_, doubtful) if doubtful else None
    return Compiled(keep, nan, tuple(name for name, _ in types.values()), tuple(parsed.items()))


def _balanced(terms: list[Any], join: Callable[[Any, Any], Any]) -> Any:
    """Terms joined two by two, so that a long chain does not become a deep tree."""
    while len(terms) > 1:
        terms = [reduce(join, terms[at : at + 2]) for at in range(0, len(terms), 2)]
    return terms[0]


def as_number(field: Any, kind: Any) -> Any:
    """A column as double precision, through its text where it is a dictionary of texts."""
    import pyarrow as pa
    import pyarrow.compute as pc

    value = value_type(kind)
    field = field if value == kind else field.cast(value)
    field = pc.utf8_trim_whitespace(field) if value in (pa.string(), pa.large_string()) else field
    return field if value == pa.float64() else field.cast(pa.float64())


def _bind(name: str, kind: Any, node: Comparison) -> tuple[Any, list[Any]]:
    """A column and the literals it is compared with, brought to one type."""
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
        return field, [pa.scalar(bool(value)) for value in values]
    if at.is_integer(kind) and numbers and all(_fits(value, kind) for value in values):
        return field, [pa.scalar(int(value), kind) for value in values]
    is_text = kind in (pa.string(), pa.large_string())
    field = pc.utf8_trim_whitespace(field) if is_text else field
    if at.is_integer(kind) or at.is_floating(kind) or at.is_decimal(kind) or (is_text and numbers):
        if not numbers:
            raise refuse("compare it with a number, without quotes")
        return field.cast(pa.float64()), [pa.scalar(float(value), pa.float64()) for value in values]
    if is_text:
        if not texts:
            raise refuse("compare it with 'text' in single quotes or with a number")
        return field, [pa.scalar(value, kind) for value in values]
    if at.is_date(kind) or at.is_timestamp(kind):
        if not texts:
            raise refuse("compare it with a date in single quotes such as '2024-05-01'")
        zone = kind.tz if at.is_timestamp(kind) else None
        moment = pa.timestamp("us", zone)
        return field.cast(moment), [pa.scalar(_moment(str(value), zone, node), moment) for value in values]
    raise refuse("which no comparison is defined for; only 'is null' and 'is not null' work on it")


def _fits(value: object, kind: Any) -> bool:
    """Whether a literal is a whole number within the range of an integer type."""
    import numpy as np

    limits = np.iinfo(str(kind))
    return isinstance(value, int) and limits.min <= value <= limits.max


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
    return moment.replace(tzinfo=UTC) if zone is not None and moment.tzinfo is None else moment
