"""A column of an answer: name, type, meaning, format, and the function that computes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from considerate.data.vocabulary import Id


class Kind(NamedTuple):
    """Type of the values of a column."""

    python: Any
    name: str  # in Arrow; the type of ids is that of the data
    numpy: type[np.generic]


NUMBER, COUNT, FLAG = Kind(float, "float32", np.float32), Kind(int, "int32", np.int32), Kind(bool, "bool", np.bool_)
TEXT, ID = Kind(str, "string", np.object_), Kind(Id, "id", np.object_)


class Format(NamedTuple):
    """Format of a value for readers."""

    shell: str  # format specification
    page: str  # name of a function in FORMATS of service/page/plane.js


PLAIN, DECIMALS, PROBABILITY = Format("", "plain"), Format(".3f", "decimals"), Format(".2f", "percent")


@dataclass(frozen=True, eq=False)
class Column:
    """A column of recommendations.

    `values` takes `Pairs` (model/pairs.py) and returns an array with an entry for each pair; NaN is null. It is None
    for the columns user, item and title, which are looked up in the names of the model.
    """

    name: str
    kind: Kind
    help: str
    values: Callable[[Any], NDArray[Any]] | None
    nullable: bool = False
    of: Literal["user", "place", "pair"] = "pair"  #: it depends on the user alone, on the list, or on the pair alone
    heading: str = ""  #: in the tables of the shell and the page; a column without one is hidden
    format: Format = PLAIN
    shown: str = ""  #: the cell, such as "{low} – {high}"; if not given, the value

    @property
    def python(self) -> Any:
        """Type of a value in Python."""
        return self.kind.python | None if self.nullable else self.kind.python

    @property
    def type_name(self) -> str:
        """Type of the values, in words."""
        return "int64 or string" if self.kind is ID else self.kind.name

    @property
    def is_number(self) -> bool:
        return self.kind not in (TEXT, ID)

    @property
    def cell(self) -> str:
        """Template of a cell, by names of columns."""
        return self.shown or f"{{{self.name}}}"

    def array(self, pairs: Any) -> NDArray[Any]:
        """Value of each pair, in the column's type."""
        assert self.values is not None, f"{self.name} is looked up in the names of the model"
        return np.asarray(self.values(pairs), self.kind.numpy)

    def to_list(self, pairs: Any) -> list[Any]:
        """Value of each pair as a Python value; None where it is missing."""
        values: list[Any] = self.array(pairs).tolist()
        return [value if value == value else None for value in values] if self.nullable else values

    def text(self, value: Any) -> str:
        """A value for the shell."""
        return "" if value is None else format(value, self.format.shell)
