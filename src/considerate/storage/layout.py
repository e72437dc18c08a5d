"""Layout of a file of tensors: which there are, the rules that they obey, and the description's fields.

The same tables write a file, read it, and refuse one that does not hold what it claims. A shape names its sizes:
`users`, `items`, `edges`, ... `n+1` is one more than n, None is any length. A tensor is in a file if its flag is set.
"""

from __future__ import annotations

import codecs
import math
from collections.abc import Callable
from dataclasses import Field, dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from considerate.errors import UsageError
from considerate.settings import check_setting

Sizes = dict[str, int]
Arrays = dict[str, NDArray[Any]]
_ROWS = 1 << 14  # that are checked at once


@dataclass(frozen=True)
class Tensor:
    """A tensor of a model."""

    name: str
    dtype: DTypeLike
    shape: tuple[str | int | None, ...]
    flag: str | None = None


def text_tensors(name: str, rows: str, flag: str) -> tuple[Tensor, ...]:
    return (
        Tensor(f"{name}.offsets", np.int64, (f"{rows}+1",), flag),
        Tensor(f"{name}.text", np.uint8, (None,), flag),
    )


@dataclass(frozen=True)
class Check:
    """A rule for the values of some tensors.

    A `deep` rule is for thorough reading only; without the others a file would not be safe to use."""

    tensors: tuple[str, ...]
    reason: str
    holds: Callable[..., Any]  # (*arrays, sizes)
    deep: bool = False


def each(test: Callable[..., Any]) -> Callable[..., bool]:
    """A rule of every row, some rows at a time."""
    return lambda array, n: all(test(array[first : first + _ROWS], n) for first in range(0, len(array), _ROWS))


def divides(starts: NDArray[Any], parts: NDArray[Any], _: Sizes) -> bool:
    return bool(starts[0] == 0 and starts[-1] == len(parts) and not np.any(starts[1:] < starts[:-1]))


def utf8(offsets: NDArray[Any], text: NDArray[Any], _: Sizes) -> bool:
    """True of text that is UTF-8, with no character cut in two: 10xxxxxx continues one. A part at a time: a large file
    may be nearly all text."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for first in range(0, len(text), 64 * _ROWS):
            decoder.decode(text[first : first + 64 * _ROWS].tobytes())
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    cuts = (offsets[first : first + _ROWS] for first in range(0, len(offsets) - 1, _ROWS))
    return not any(np.any((text[cut[cut < len(text)]] & 0xC0) == 0x80) for cut in cuts)


def ascending_texts(offsets: NDArray[np.int64], text: NDArray[np.uint8], _: Sizes | None = None) -> bool:
    """True if each string is above the one before it by its bytes: `all(a < b for a, b in pairwise(strings))`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    buffers = [None, *(pa.py_buffer(np.ascontiguousarray(array)) for array in (offsets, text))]
    texts = pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)
    return bool(pc.all(pc.less(texts[:-1], texts[1:]), min_count=0).as_py())


def as_many(starts: NDArray[Any], degree: NDArray[Any], _: Sizes) -> bool:
    cuts = range(0, len(degree), _ROWS)
    return all(np.array_equal(np.diff(starts[cut : cut + _ROWS + 1]), degree[cut : cut + _ROWS]) for cut in cuts)


def rising(starts: NDArray[Any], items: NDArray[Any], _: Sizes) -> bool:
    rises = items[1:] > items[:-1]
    rises[starts[(starts > 0) & (starts < len(items))] - 1] = True  # the last of a row and the first of the next
    return bool(rises.all())


are_finite = each(lambda part, _: np.isfinite(part).all())
are_positive = each(lambda part, _: ((part > 0) & np.isfinite(part)).all())
are_weights = each(lambda part, _: ((part >= 0) & (part <= 1e30)).all())


def below(limit: int | str) -> Callable[..., bool]:
    """A rule of whole numbers from 0 up to a limit, which may be a size."""

    def holds(numbers: NDArray[Any], n: Sizes) -> bool:
        most = n[limit] if isinstance(limit, str) else limit
        return not len(numbers) or 0 <= int(numbers.min()) <= int(numbers.max()) < most

    return holds


def text_rules(name: str) -> tuple[Check, ...]:
    both = (f"{name}.offsets", f"{name}.text")
    return (
        Check(both, f"the offsets of {name!r} do not divide its text", divides),
        Check(both, f"{name!r} is not UTF-8 text", utf8),
    )


MISSING = object()
COUNT, WEIGHT = (int, 0, 2**40), (float, -1e6, 1e6)
Fields = dict[str, Any]  # a type; (int or float, lowest, highest); the field of a parameter; or a function that parses


def is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 1e300 and math.isfinite(value)


def parse_field(name: str, spec: Any, value: Any, label: str) -> Any:
    """A value of the description; ValueError says what is wrong with it."""
    if isinstance(spec, type):
        if type(value) is not spec:
            raise ValueError(f"its description has no {name!r} of the right kind")
        return value
    if not isinstance(spec, tuple | Field):
        return spec(value)
    if not is_number(value) or (isinstance(spec, tuple) and spec[0] is int and type(value) is not int):
        raise ValueError(f"its description has no number {name!r}")
    if isinstance(spec, Field):
        try:
            check_setting(spec, value)
        except UsageError as error:
            raise ValueError(f"{label} is out of range ({str(error).removesuffix('.')})") from error
    elif not spec[1] <= value <= spec[2]:
        raise ValueError(f"{label} is out of range")
    return value if isinstance(spec, Field) else spec[0](value)


def described_fields(given: Any, expected: Fields, what: str) -> dict[str, Any]:
    """The fields of a part of the description."""
    if not isinstance(given, dict) or given.keys() != expected.keys():
        raise ValueError(f"{what} is not described by {', '.join(expected)}")
    return {name: parse_field(name, spec, given[name], f"its {name!r} of {what}") for name, spec in expected.items()}


def parse_flag(given: Any) -> bool:
    """A flag that older files do not have."""
    return False if given is MISSING else bool(parse_field("flag", bool, given, ""))
