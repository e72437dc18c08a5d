"""Recommendations as Arrow batches, in the data's own ids."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.vocabulary import Vocabulary
from considerate.errors import UnknownIdError, UsageError
from considerate.inference.posterior import Side
from considerate.kernels.threads import LocalBackend
from considerate.model.model import Model
from considerate.model.predict import logit_moments, strangers
from considerate.model.serving import BLOCK, Choice, Ranked, check_count, cold_message, item_rows
from considerate.model.users import rows_of

if TYPE_CHECKING:
    import pyarrow


class RecommendationTable:
    """Columns: user, rank, item, title (where there are any), p_like, low, high, score, cold."""

    def __init__(self, model: Model) -> None:
        import pyarrow as pa

        self.model = model
        kinds = {"string": pa.string(), "integer": pa.int64(), "range": pa.int64()}
        self.item_type = kinds[model.item_ids.kind]
        self.user_type = kinds[model.user_ids.kind]
        columns = [("user", self.user_type), ("rank", pa.int32()), ("item", self.item_type)]
        if model.titles is not None:
            columns.append(("title", pa.string()))
        columns += [(name, pa.float32()) for name in ("p_like", "low", "high", "score")]
        self.schema = pa.schema([*columns, ("cold", pa.bool_())])

    def batch(
        self,
        names: Sequence[Any] | pyarrow.Array,
        users: Side,
        rows: NDArray[np.int64],
        ranked: Ranked,
        warm: NDArray[np.bool_],
    ) -> pyarrow.RecordBatch:
        """One batch: names as they were given or as Arrow has them, and rows among `users`."""
        import pyarrow as pa
        import pyarrow.compute as pc

        model = self.model
        there = ranked.ids >= 0
        counts = there.sum(axis=1)
        items = ranked.ids[there]
        of = np.repeat(np.arange(len(rows)), counts)
        is_warm = warm[of]
        mean, variance = logit_moments(users, model.items, rows[of], items)
        if not is_warm.all():
            nobody = np.zeros(len(items), np.int64)
            cold = logit_moments(strangers(1, model.shared), model.items, nobody, items)
            mean, variance = np.where(is_warm, mean, cold[0]), np.where(is_warm, variance, cold[1])
        variance = model.variance_scale * variance
        low, high = model.like_interval(mean, variance)
        if not isinstance(names, pa.Array):
            names = pa.array([self._user(one) for one in names], self.user_type)
        columns: dict[str, Any] = {
            "user": names.take(pa.array(of)),
            "rank": np.broadcast_to(np.arange(1, there.shape[1] + 1, dtype=np.int32), there.shape)[there],
            "item": _ids(model.item_ids, items),
            "p_like": model.like_probability(mean, variance).astype(np.float32),
            "low": low.astype(np.float32),
            "high": high.astype(np.float32),
            "score": ranked.scores[there],
            "cold": ~is_warm,
        }
        if model.titles is not None:
            texts = _strings(model.titles.offsets, model.titles.text).take(pa.array(items)).cast(pa.string())
            columns["title"] = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
        return pa.RecordBatch.from_pydict(columns, schema=self.schema)

    def _user(self, name: Any) -> Any:
        if name is None:
            return None
        if self.model.user_ids.kind == "string":
            return str(name)
        try:
            number = int(name) if isinstance(name, str) else operator.index(name)
        except (TypeError, ValueError, OverflowError):
            return None
        canonical = not isinstance(name, str) or str(number) == name
        return number if canonical and -(2**63) <= number < 2**63 else None


def recommendation_batches(
    model: Model,
    users: range | Sequence[Any],
    N: int,
    *,
    popularity: float | None = None,
    score: str | None = None,
    cold: str = "error",
    filter_already_liked_items: bool = True,
    allow: Sequence[Any] | None = None,
    deny: Sequence[Any] | None = None,
    explore_kappa: float = 0.0,
    thompson_seed: int | None = None,
    batch: int = 16_384,
    threads: int | None = None,
) -> Iterator[pyarrow.RecordBatch]:
    """The best items of users, `batch` of them at a time. A range is of row numbers, a list is of the data's own ids.

    Whoever is unknown or liked nothing is an error, or left out where users come by row number, or with
    cold="popular" gets popular items.
    """
    check_count(N)
    if not isinstance(batch, int) or batch < 1:
        raise UsageError(f"batch is {batch!r}; it must be a whole number at least 1.")
    if cold not in ("error", "popular"):
        raise UsageError(f"cold is {cold!r}; it must be 'error' or 'popular'.")
    plan = Choice(
        model,
        popularity=popularity,
        score=score,
        kappa=explore_kappa,
        thompson=thompson_seed,
        denied=None if deny is None else item_rows(model, deny),
        allowed=None if allow is None else item_rows(model, allow),
    )
    return _batches(model, plan, users, N, cold, filter_already_liked_items, batch, threads)


def _batches(
    model: Model,
    plan: Choice,
    users: range | Sequence[Any],
    count: int,
    cold: str,
    filter_liked: bool,
    batch: int,
    threads: int | None,
) -> Iterator[pyarrow.RecordBatch]:
    table = RecommendationTable(model)
    by_row = isinstance(users, range)
    for start in range(0, max(1, len(users)), batch):
        part = users[start : start + batch]
        rows = np.asarray(part, np.int64) if by_row else model.user_ids.rows_of(part)
        known = rows >= 0
        some, places = model.users.some(rows[known])
        warm, local = known.copy(), np.full(len(rows), -1)
        warm[known], local[known] = some.degree[places] > 0, places
        if by_row and cold == "error":
            rows, local, warm = rows[warm], local[warm], warm[warm]
        elif cold == "error" and not warm.all():
            first = int(np.flatnonzero(~warm)[0])
            raise UnknownIdError(cold_message(part[first], bool(known[first]), model))
        names: Any = _ids(some.ids, local) if by_row else list(part)
        liked = rows_of(some.liked, local) if filter_liked else None
        side = some.side if len(some) else strangers(1, model.shared)  # which is looked at, and not used
        user_rows = np.maximum(local, 0)
        with LocalBackend(threads if len(rows) > BLOCK else 1) as backend:
            ranked = plan.rank(side, user_rows, liked, count, rows, warm, backend.map)
        yield table.batch(names, side, user_rows, ranked, warm)


def _strings(offsets: NDArray[np.int64], text: NDArray[np.uint8]) -> pyarrow.StringArray:
    """Texts laid end to end as an Arrow array, without a copy."""
    import pyarrow as pa

    places, letters = (pa.py_buffer(np.ascontiguousarray(one)) for one in (offsets, text))
    return pa.LargeStringArray.from_buffers(len(offsets) - 1, places, letters)


def _ids(vocabulary: Vocabulary, rows: NDArray[Any]) -> pyarrow.Array:
    """The ids of rows as an Arrow array."""
    import pyarrow as pa

    if vocabulary.kind == "range":
        return pa.array(vocabulary.first + np.asarray(rows, np.int64))
    if vocabulary.kind == "integer":
        assert vocabulary.integers is not None
        return pa.array(vocabulary.integers[rows])
    assert vocabulary.offsets is not None
    assert vocabulary.text is not None
    return _strings(vocabulary.offsets, vocabulary.text).take(pa.array(rows)).cast(pa.string())
