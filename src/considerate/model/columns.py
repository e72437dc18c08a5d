"""Columns of recommendations. Tables, files, the shell, the service and its page all follow from this list.

To add a column, add a `Column` to `COLUMNS` and a field to `Recommendation`. A part declares its columns in its own
module.
"""

from __future__ import annotations

from operator import attrgetter
from typing import NamedTuple

from considerate.data.column import COUNT, DECIMALS, FLAG, ID, NUMBER, PROBABILITY, TEXT, Column
from considerate.data.vocabulary import Id
from considerate.inference.parts import PARTS
from considerate.model.model import Model

COLUMNS = (
    Column("user", ID, "who gets the recommendation; null for someone new", None, nullable=True, of="user"),
    Column("rank", COUNT, "place in the user's list, from 1", attrgetter("rank"), of="place", heading="#"),
    Column("item", ID, "the recommended item", None, heading="item"),
    Column("title", TEXT, "its title; null if it has none", None, nullable=True, heading="title"),
    Column(
        "p_like",
        NUMBER,
        "the probability that the user likes the item if they consider it",
        attrgetter("liking.p_like"),
        heading="p(like)",
        format=PROBABILITY,
    ),
    Column(
        "low",
        NUMBER,
        "lower end of the 90 % interval of p_like",
        attrgetter("liking.low"),
        heading="90 % interval",
        format=PROBABILITY,
        shown="{low} – {high}",
    ),
    Column("high", NUMBER, "upper end of the 90 % interval of p_like", attrgetter("liking.high"), format=PROBABILITY),
    Column(
        "p_considered",
        NUMBER,
        "the probability that the user considers the item at all, if they consider and do not like as many items as "
        "they like; a tilt is not in it. Null for users without likes, and in a model saved without the likes",
        attrgetter("p_considered"),
        nullable=True,
        heading="considered",
        format=PROBABILITY,
    ),
    Column(
        "score",
        NUMBER,
        "the number that the list is ranked by",
        attrgetter("score"),
        of="place",
        heading="score",
        format=DECIMALS,
    ),
    Column("cold", FLAG, "true if nothing is known of the user, who gets popular items", attrgetter("cold"), of="user"),
    *(column for part in PARTS for column in part.columns),
)


class Recommendation(NamedTuple):
    """One item for one user: a row of `Recommendations`."""

    user: Id | None
    rank: int
    item: Id
    title: str | None
    p_like: float
    low: float
    high: float
    p_considered: float | None
    score: float
    cold: bool


for _column in COLUMNS:
    if _column.name in Recommendation._fields:
        getattr(Recommendation, _column.name).__doc__ = _column.help


def described() -> str:
    """A line for each column: name, type and meaning."""
    return "\n".join(f"- {column.name} ({column.type_name}): {column.help}" for column in COLUMNS)


def columns_of(model: Model) -> tuple[Column, ...]:
    """Columns of the tables of a model: all, without the title if it has no titles."""
    return tuple(column for column in COLUMNS if column.name != "title" or model.titles is not None)
