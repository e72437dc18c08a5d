"""Recommendations as Arrow batches, in the data's own ids."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.column import Column
from considerate.data.result import TableResult
from considerate.data.vocabulary import id_array, integer_id, string_array
from considerate.errors import UnknownIdError, UsageError
from considerate.model import serving
from considerate.model.changes import folded_users
from considerate.model.columns import Recommendation as Recommendation  # its name of earlier releases
from considerate.model.columns import columns_of, described
from considerate.model.model import Model
from considerate.model.names import By, id_list
from considerate.model.pairs import Pairs, UserBatch
from considerate.model.predict import strangers
from considerate.model.serving import Ranker
from considerate.model.users import UserRows

if TYPE_CHECKING:
    import pyarrow


SHOWN = 20  # rows that are printed
MOST_ENTRIES = 2_000_000  # most entries of lists made at once, unless one block of users has more


class Recommendations(TableResult):
    """Recommendations as a table, the best first for each user: `for row in table` gives a `Recommendation` each.

    `table["item"]` is Arrow's column. All other methods, such as `filter`, come from the Arrow table. The title is
    missing if the model has no titles. Columns:
    """

    def __init__(self, table: pyarrow.Table) -> None:
        self._table = table

    def to_arrow(self) -> pyarrow.Table:
        """Recommendations as an Arrow table."""
        return self._table

    @property
    def num_rows(self) -> int:
        """Number of recommendations, of all users together."""
        return int(self._table.num_rows)

    @property
    def column_names(self) -> list[str]:
        """Names of the columns."""
        return list(self._table.column_names)

    def to_pylist(self) -> list[dict[str, object]]:
        """List with a dict for each row."""
        return list(self._table.to_pylist())

    def to_pydict(self) -> dict[str, list[object]]:
        """Dict with a list for each column."""
        return dict(self._table.to_pydict())

    def equals(self, other: object) -> bool:
        """True if another table has the same columns and values."""
        return bool(self._table.equals(other.to_arrow() if isinstance(other, Recommendations) else other))

    def __len__(self) -> int:
        return self.num_rows

    def __getitem__(self, column: str) -> pyarrow.ChunkedArray:
        return self._table[column]

    def __iter__(self) -> Iterator[Recommendation]:
        for row in self._table.to_pylist():
            yield Recommendation(**{name: row.get(name) for name in Recommendation._fields})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Recommendations | type(self._table)) and self.equals(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """First rows, in columns."""
        rows = [
            [f"{value:.3f}" if isinstance(value, float) else "" if value is None else str(value) for value in row]
            for row in zip(*self._table.slice(0, SHOWN).to_pydict().values())
        ]
        lines = [self.column_names, *rows]
        widths = [max(map(len, column)) for column in zip(*lines)]
        more = [f"... {len(self) - SHOWN:,} rows more"] if len(self) > SHOWN else []
        return "\n".join([*("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines), *more])

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            if name.startswith("_"):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            return getattr(self._table, name)


Recommendations.__doc__ = f"{inspect.cleandoc(Recommendations.__doc__ or '')}\n\n{described()}"


class RecommendationTable:
    """Columns of a model's tables, and batches of them.

    Users are integers if the model's ids are, unless a given id is no integer: then all are texts.
    """

    def __init__(self, model: Model, users: Sequence[Any] = (), by: By = "id") -> None:
        self.model, self.items, self.columns = model, model.item_names(by), columns_of(model)
        texts = any(integer_id(name) is None for name in users)
        self.user_type = "string" if texts or model.user_names(by).ids.kind == "string" else "int64"
        item_type = "string" if self.items.ids.kind == "string" else "int64"
        self.schema = _schema(self.columns, self.user_type, item_type)

    def batch(self, pairs: Pairs) -> pyarrow.RecordBatch:
        """One batch of pairs."""
        import pyarrow as pa

        names = pairs.users.names
        if not isinstance(names, pa.Array):
            convert = str if self.user_type == "string" else integer_id
            names = pa.array([None if name is None else convert(name) for name in names], self.user_type)
        arrays: dict[str, Any] = {
            "user": names.take(pa.array(pairs.user)),
            "item": id_array(self.items.ids, pairs.item),
        }
        if self.model.titles is not None:
            arrays["title"] = self._titles(pairs)
        for column in self.columns:
            if column.values is not None:
                values = column.array(pairs)
                arrays[column.name] = pa.array(values, from_pandas=True) if column.nullable else values
        return pa.RecordBatch.from_pydict(arrays, schema=self.schema)

    def _titles(self, pairs: Pairs) -> pyarrow.Array:
        import pyarrow as pa
        import pyarrow.compute as pc

        assert self.model.titles is not None
        texts = string_array(self.model.titles).take(pa.array(pairs.item)).cast(pa.string())
        return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)


@lru_cache(maxsize=64)
def _schema(columns: tuple[Column, ...], user_type: str, item_type: str) -> pyarrow.Schema:
    """Schema of a table with these columns."""
    import pyarrow as pa

    ids = {"user": user_type, "item": item_type}
    return pa.schema([(one.name, pa.type_for_alias(ids.get(one.name, one.kind.name))) for one in columns])


def recommendation_batches(
    ranker: Ranker, users: Any = None, rows: range | None = None, *, batch: int = 16_384, threads: int | None = None
) -> Iterator[pyarrow.RecordBatch]:
    """Yield the best items of users by the data's own ids, or by row numbers, or of all; `batch` of them at a time.

    A user who is unknown or liked nothing raises an error, or is left out if no ids are given. With cold="popular" such
    users get popular items.
    """
    if not isinstance(batch, int) or batch < 1:
        raise UsageError(f"batch is {batch!r}; it must be a whole number at least 1.")
    ranker.check_likes_known()
    all_rows = range(ranker.model.user_count) if rows is None else rows
    asked = all_rows if users is None else id_list(users, "users")
    table = RecommendationTable(ranker.model, () if isinstance(asked, range) else asked, ranker.by)
    return map(table.batch, map(partial(ranker.answer, threads=threads), _user_batches(ranker, asked, batch)))


def _user_batches(ranker: Ranker, users: range | list[Any], batch: int) -> Iterator[UserBatch]:
    """Users by row numbers or by names, some at a time."""
    import pyarrow as pa

    model, options = ranker.model, ranker.options
    all_users = isinstance(users, range)
    at_once = max(1, MOST_ENTRIES // max(1, ranker.count * serving.BLOCK)) * serving.BLOCK
    for start in range(0, max(1, len(users)), batch):
        part = users[start : start + batch]
        rows = np.asarray(part, np.int64) if all_users else ranker.users.rows(part, unknown=True)
        known = rows >= 0
        some, local_rows = model.users.some(rows[known])
        warm, local = known.copy(), np.full(len(rows), -1)
        warm[known], local[known] = _is_warm(model, some, local_rows), local_rows
        if all_users and options.cold == "error":
            rows, local, warm = rows[warm], local[warm], warm[warm]
        elif options.cold == "error" and not warm.all():
            first = int(np.flatnonzero(~warm)[0])
            advice = "; recommend popular items with cold='popular' (--cold popular), or fold in some likes"
            if not known[first]:
                raise ranker.users.refusal(part[first], advice)
            raise UnknownIdError(f"user {part[first]!r} liked nothing in training{advice}.")
        names: Any = list(part)
        if all_users:
            names = pa.array(rows) if ranker.users.are_rows else id_array(some.ids, local)
        # The kernels need a row, though nothing reads it.
        side = some.side if len(some) else strangers(1, model.shared, model.variance_scale)
        liked, limits = some.liked.take(local), model.limits_of(rows)
        together = UserBatch(side, np.maximum(local, 0), rows, liked, warm, limits, names=names)
        for first in range(0, max(1, len(rows)), at_once):
            yield together.part(first, first + at_once)


def _is_warm(model: Model, users: UserRows, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Mask of the users with likes or features; features move a user's vector off zero."""
    liked: NDArray[np.bool_] = users.degree[rows] > 0
    if model.user_features is None or liked.all():
        return liked
    return np.asarray(liked | users.side.mean[rows].any(axis=1))


def recommendations_for_likes(
    ranker: Ranker, likes: Sequence[Any], considered: Sequence[Any] = (), user_features: Any = None
) -> Recommendations:
    """Find the best items of a user who was not in training, from ids of liked items, ids of items that were considered
    and not liked, and features; `user` is null."""
    import pyarrow as pa

    model = ranker.model
    liked = ranker.items.likes([id_list(likes, "likes")])
    if liked.edges == 0 and user_features is None:
        raise UsageError("a new user is folded in from at least one liked item, or from features; none was given.")
    row = np.zeros(1, np.int64)
    shown = id_list(considered, "considered")
    folded = folded_users(model, liked, ranker.items.likes([shown]) if shown else None, user_features)
    pairs = ranker.answer(UserBatch(folded, row, row, liked, folded=True, names=[None]))
    batch = RecommendationTable(model, by=ranker.by).batch(pairs)
    return Recommendations(pa.Table.from_batches([batch]))
