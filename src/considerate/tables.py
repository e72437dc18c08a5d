"""Recommendations as Arrow batches, in the data's own ids."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from considerate.model import Model
from considerate.posterior import Side
from considerate.predict import logit_moments, strangers
from considerate.serving import Ranked
from considerate.vocabulary import Vocabulary

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
        names: Sequence[Any] | NDArray[np.int64],
        rows: NDArray[np.int64],
        ranked: Ranked,
        warm: NDArray[np.bool_],
        users: Side | None = None,
    ) -> pyarrow.RecordBatch:
        """One batch: names (or an array of row numbers), rows among `users`, which are the model's if not given."""
        import pyarrow as pa
        import pyarrow.compute as pc

        model = self.model
        there = ranked.ids >= 0
        counts = there.sum(axis=1)
        items = ranked.ids[there]
        of = np.repeat(np.arange(len(rows)), counts)
        is_warm = warm[of]
        mean, variance = logit_moments(
            model.posterior.users if users is None else users, model.posterior.items, rows[of], items
        )
        if not is_warm.all():
            nobody = np.zeros(len(items), np.int64)
            cold = logit_moments(strangers(1, model.posterior), model.posterior.items, nobody, items)
            mean, variance = np.where(is_warm, mean, cold[0]), np.where(is_warm, variance, cold[1])
        variance = model.variance_scale * variance
        low, high = model.like_interval(mean, variance)
        if isinstance(names, np.ndarray):
            user_ids = _ids(model.user_ids, names)
        else:
            user_ids = pa.array([self._user(one) for one in names], self.user_type)
        columns: dict[str, Any] = {
            "user": user_ids.take(pa.array(of)),
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


def _strings(offsets: NDArray[np.int64], text: NDArray[np.uint8]) -> pyarrow.StringArray:
    """Texts laid end to end as an Arrow array, without a copy."""
    import pyarrow as pa

    places, letters = (pa.py_buffer(np.ascontiguousarray(one)) for one in (offsets, text))
    return pa.LargeStringArray.from_buffers(len(offsets) - 1, places, letters)


def _ids(vocabulary: Vocabulary, rows: NDArray[Any]) -> pyarrow.Array:
    """The ids of rows as an Arrow array."""
    import pyarrow as pa

    if vocabulary.kind == "range":
        return pa.array(np.asarray(rows, np.int64))
    if vocabulary.kind == "integer":
        assert vocabulary.integers is not None
        return pa.array(vocabulary.integers[rows])
    assert vocabulary.offsets is not None
    assert vocabulary.text is not None
    return _strings(vocabulary.offsets, vocabulary.text).take(pa.array(rows)).cast(pa.string())
