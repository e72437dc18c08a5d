"""How a source is read: the reader's options, one object all the way from the caller to the tasks.

The shell's options and their help are made from the fields of `ReaderOptions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from considerate.data.rules import parse
from considerate.errors import UsageError


@dataclass(frozen=True)
class ReaderOptions:
    """Which columns and rows of a source are likes, and where titles come from; checked when made."""

    user_column: str | None = field(
        default=None, metadata={"text": "Column of the users; guessed from the usual names if not given."}
    )
    item_column: str | None = field(default=None, metadata={"text": "Column of the items; guessed if not given."})
    rating_column: str | None = field(
        default=None, metadata={"text": "Column of ratings under an unusual name; `rating` in the rule means it."}
    )
    where: str | None = field(
        default=None, metadata={"text": 'Which rows are likes, such as "rating >= 4"; needed where there are ratings.'}
    )
    titles: Any = field(default=None, metadata={"text": "A file of item ids and titles."})
    title_id_column: str | None = field(
        default=None, metadata={"text": "Its column of item ids; guessed if not given."}
    )
    title_column: str | None = field(default=None, metadata={"text": "Its column of titles; guessed if not given."})
    query: str | None = field(default=None, metadata={"text": "What to ask a database, such as sqlite:///likes.db."})
    time_column: str | None = field(
        default=None, metadata={"text": "Column of the times of the likes, for splits by time."}
    )

    def __post_init__(self) -> None:
        if self.titles is None and (self.title_id_column is not None or self.title_column is not None):
            raise UsageError("--title-id-column and --title-column go with --titles, a table of items and titles.")
        if self.where is not None:
            parse(self.where)

    @classmethod
    def of(cls, options: ReaderOptions | Mapping[str, Any] | None) -> ReaderOptions:
        """Options from a mapping of their names; UsageError names one that is unknown."""
        if isinstance(options, ReaderOptions):
            return options
        if not isinstance(options, Mapping | None):
            raise UsageError(f"reader is {options!r}; expected a mapping such as {{'where': 'rating >= 4'}}.")
        names = [option.name for option in fields(cls)]
        for name in options or {}:
            if name not in names:
                raise UsageError(f"reader has {name!r}, which is no option of the reader; it takes {', '.join(names)}.")
        return cls(**(options or {}))

    @property
    def headers(self) -> list[str]:
        """The named columns of the likes: the first line of a text file that has one of them is a header."""
        names = (self.user_column, self.item_column, self.rating_column, self.time_column)
        return [name for name in names if isinstance(name, str)]

    @property
    def title_headers(self) -> list[str]:
        """The named columns of the titles."""
        return [name for name in (self.title_id_column, self.title_column) if isinstance(name, str)]

    @property
    def choose_rows(self) -> bool:
        """Whether columns or rows are chosen, which only a table has."""
        return self.untitled() != ReaderOptions()

    def untitled(self) -> ReaderOptions:
        """The same options without titles."""
        return replace(self, titles=None, title_id_column=None, title_column=None)
