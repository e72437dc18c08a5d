"""Recommendations as Arrow batches, in the data's own ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from considerate.data.result import TableResult
from considerate.data.vocabulary import Id, id_array, integer_id, string_array
from considerate.errors import UnknownIdError, UsageError
from considerate.model import serving
from considerate.model.changes import folded_users
from considerate.model.considered import consideration_weights, considered_probability
from considerate.model.covariates import pair_covariates
from considerate.model.model import Model
from considerate.model.names import By, Lists, id_list
from considerate.model.predict import logit_moments, strangers
from considerate.model.serving import Ranker, UserBatch
from considerate.model.users import UserRows

if TYPE_CHECKING:
    import pyarrow


SHOWN = 20  # rows that are printed
MOST_ENTRIES = 2_000_000  # of lists made at once, unless one block of users has more


class Recommendation(NamedTuple):
    """One item for one user: a row of `Recommendations`."""

    user: Id | None  # None: someone who was not in training, `recommend_for`
    rank: int  # from 1
    item: Id
    title: str | None  # None: it has none, or the model has no titles
    p_like: float  # p(like | considered)
    low: float  # its 90 % interval
    high: float
    p_considered: float | None  # None: nothing says how much the user considers
    score: float  # what the rank was made by
    cold: bool  # whether the user was unknown and got popular items


class Recommendations(TableResult):
    """Recommendations as a table, the best first for each user: `for row in table` gives a `Recommendation` each.

    Columns: user and item (int64, or string where the ids are texts), rank (int32), title (string, where there are
    any), p_like, low, high, p_considered and score (float32), cold (bool); see `Recommendation`. `table["item"]` is
    Arrow's column. What else is asked of it, such as `filter` or `schema`, is the Arrow table's.
    """

    def __init__(self, table: pyarrow.Table) -> None:
        self._table = table

    def to_arrow(self) -> pyarrow.Table:
        """The recommendations as an Arrow table."""
        return self._table

    @property
    def num_rows(self) -> int:
        """How many recommendations there are, of all users together."""
        return int(self._table.num_rows)

    @property
    def column_names(self) -> list[str]:
        """The names of the columns."""
        return list(self._table.column_names)

    def to_pylist(self) -> list[dict[str, object]]:
        """A dict for each row."""
        return list(self._table.to_pylist())

    def to_pydict(self) -> dict[str, list[object]]:
        """A list for each column."""
        return dict(self._table.to_pydict())

    def equals(self, other: object) -> bool:
        """Whether another table has the same columns and values."""
        return bool(self._table.equals(other.to_arrow() if isinstance(other, Recommendations) else other))

    def __len__(self) -> int:
        return self.num_rows

    def __getitem__(self, column: str) -> pyarrow.ChunkedArray:
        return self._table[column]

    def __iter__(self) -> Iterator[Recommendation]:
        for row in self._table.to_pylist():
            yield Recommendation(**({"title": None} | row))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Recommendations | type(self._table)) and self.equals(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """The first rows, in columns."""
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


class RecommendationTable:
    """Columns: user, rank, item, title (where there are any), p_like, low, high, p_considered, score, cold.

    p_considered times sigma(mean logit) is p(g = 1) (eq. 4). It is null where nothing says how much a user considers:
    of those without likes, and where the model was saved without the likes. A tilt of the draws is not in it.

    The users are integers where the model's are, unless an id that is asked for is no integer: then all are texts.
    """

    def __init__(self, model: Model, users: Sequence[Any] = (), by: By = "id") -> None:
        import pyarrow as pa

        self.model, self.items = model, model.item_names(by)
        texts = any(integer_id(name) is None for name in users)
        self.user_type = pa.string() if texts or model.user_names(by).ids.kind == "string" else pa.int64()
        item_type = pa.string() if self.items.ids.kind == "string" else pa.int64()
        titles = [] if model.titles is None else [("title", pa.string())]
        numbers = [(name, pa.float32()) for name in ("p_like", "low", "high", "p_considered", "score")]
        keys = [("user", self.user_type), ("rank", pa.int32()), ("item", item_type)]
        self.schema = pa.schema([*keys, *titles, *numbers, ("cold", pa.bool_())])

    def batch(self, names: Sequence[Any] | pyarrow.Array, columns: dict[str, Any]) -> pyarrow.RecordBatch:
        """One batch: the users' names as they were given or as Arrow has them, and their `recommendation_columns`."""
        import pyarrow as pa
        import pyarrow.compute as pc

        model, user, items = self.model, columns["user"], columns["item"]
        if not isinstance(names, pa.Array):
            convert = str if self.user_type == pa.string() else integer_id
            names = pa.array([None if name is None else convert(name) for name in names], self.user_type)
        columns = columns | {
            "user": names.take(pa.array(user)),
            "item": id_array(self.items.ids, items),
            "p_considered": pa.array(columns["p_considered"], from_pandas=True),
        }
        if model.titles is not None:
            texts = string_array(model.titles).take(pa.array(items)).cast(pa.string())
            columns["title"] = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
        return pa.RecordBatch.from_pydict(columns, schema=self.schema)


def recommendation_columns(
    ranker: Ranker, users: UserBatch, lists: Lists, weights: NDArray[np.float64]
) -> dict[str, Any]:
    """Columns of the lists of `Ranker.rank`, an array each, one user after the other: `user` is a place in the batch,
    `item` a row number. `weights` are the `consideration_weights` of the lists; p_considered is NaN where they are."""
    model, (ids, scores) = ranker.model, lists
    filled = ids >= 0
    items = ids[filled]
    user = np.repeat(np.arange(len(users.rows)), filled.sum(axis=1))
    is_warm = np.ones(len(user), bool) if users.warm is None else users.warm[user]
    mean, variance = logit_moments(users.side, model.items, users.rows[user], items)
    if not is_warm.all():
        nobody = np.zeros(len(items), np.int64)
        cold = logit_moments(strangers(1, model.shared, model.plan.weight), model.items, nobody, items)
        mean, variance = np.where(is_warm, mean, cold[0]), np.where(is_warm, variance, cold[1])
    covariates = pair_covariates(model, users.known_likes(model), users.keys, user, items)
    liking = model.liking(mean, model.variance_scale * variance, covariates, ranker.options.interval)
    return {
        "user": user,
        "rank": np.broadcast_to(np.arange(1, ids.shape[1] + 1, dtype=np.int32), ids.shape)[filled],
        "item": items,
        **{name: values.astype(np.float32) for name, values in liking._asdict().items()},
        "p_considered": considered_probability(weights, mean).astype(np.float32),
        "score": scores[filled],
        "cold": ~is_warm,
    }


def recommendation_batches(
    ranker: Ranker, users: Any = None, rows: range | None = None, *, batch: int = 16_384, threads: int | None = None
) -> Iterator[pyarrow.RecordBatch]:
    """The best items of users by the data's own ids, or by row numbers, or of all; `batch` of them at a time.

    A user who is unknown or liked nothing is an error, or left out where no ids are given; with cold="popular" they
    get popular items.
    """
    if not isinstance(batch, int) or batch < 1:
        raise UsageError(f"batch is {batch!r}; it must be a whole number at least 1.")
    ranker.check_likes_known()
    all_rows = range(ranker.model.user_count) if rows is None else rows
    return _batches(ranker, all_rows if users is None else id_list(users, "users"), batch, threads)


def _batches(
    ranker: Ranker, users: range | list[Any], batch: int, threads: int | None
) -> Iterator[pyarrow.RecordBatch]:
    import pyarrow as pa

    model, options = ranker.model, ranker.options
    all_users = isinstance(users, range)
    table = RecommendationTable(model, () if isinstance(users, range) else users, ranker.by)
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
        # The kernels want a row, though nobody reads it.
        side = some.side if len(some) else strangers(1, model.shared, model.plan.weight)
        limits = ranker.limits_of(rows)
        all_of_batch = UserBatch(side, np.maximum(local, 0), rows, some.liked.take(local), warm, limits)
        for first in range(0, max(1, len(rows)), at_once):
            last = min(first + at_once, len(rows))
            batch_part = all_of_batch.part(first, last)
            lists, impossible = ranker.rank(batch_part, threads), model.limits_of(batch_part.keys)
            weights = consideration_weights(model, batch_part.known_likes(model), lists[0], impossible, threads)
            yield table.batch(names[first:last], recommendation_columns(ranker, batch_part, lists, weights))


def _is_warm(model: Model, users: UserRows, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether something is known of users: likes, or features, which move the vector of a user off zero."""
    liked: NDArray[np.bool_] = users.degree[rows] > 0
    if model.user_features is None or liked.all():
        return liked
    return np.asarray(liked | users.side.mean[rows].any(axis=1))


def recommendations_for_likes(
    ranker: Ranker, likes: Sequence[Any], considered: Sequence[Any] = (), user_features: Any = None
) -> Recommendations:
    """The best items of someone who was not in training, from the ids of what they like, of what they considered and
    did not like, and from features; `user` is null."""
    import pyarrow as pa

    model = ranker.model
    liked = ranker.items.likes([id_list(likes, "likes")])
    if liked.edges == 0 and user_features is None:
        raise UsageError("a new user is folded in from at least one liked item, or from features; none was given.")
    row = np.zeros(1, np.int64)
    shown = id_list(considered, "considered")
    folded = folded_users(model, liked, ranker.items.likes([shown]) if shown else None, user_features)
    user = UserBatch(folded, row, row, liked, folded=True)
    lists = ranker.rank(user)
    columns = recommendation_columns(ranker, user, lists, consideration_weights(model, liked, lists[0]))
    batch = RecommendationTable(model, by=ranker.by).batch([None], columns)
    return Recommendations(pa.Table.from_batches([batch]))
