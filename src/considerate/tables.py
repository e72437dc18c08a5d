"""Recommendations as Arrow batches, in the data's own ids."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from considerate.model import Model
from considerate.posterior import Side
from considerate.predict import like_interval, like_probability, logit_moments, strangers

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
        names: Sequence[Any],
        found: Iterable[tuple[NDArray[np.int64], NDArray[Any], int]],
        warm: NDArray[np.bool_],
        users: Side | None = None,
    ) -> pyarrow.RecordBatch:
        """One batch, `found` in the order of the names; `users` are those of the model if not given."""
        import pyarrow as pa

        model = self.model
        lists = list(found)
        counts = [len(ids) for ids, _, _ in lists]
        items = np.concatenate([ids for ids, _, _ in lists]) if lists else np.empty(0, np.int64)
        scores = np.concatenate([values for _, values, _ in lists]) if lists else np.empty(0)
        rows = np.repeat([row for _, _, row in lists], counts).astype(np.int64)
        is_warm = np.repeat(warm, counts)
        mean, variance = logit_moments(
            model.posterior.users if users is None else users, model.posterior.items, rows, items
        )
        if not is_warm.all():
            nobody = np.zeros(len(items), np.int64)
            cold = logit_moments(strangers(1, model.posterior), model.posterior.items, nobody, items)
            mean, variance = np.where(is_warm, mean, cold[0]), np.where(is_warm, variance, cold[1])
        variance = model.variance_scale * variance
        low, high = like_interval(mean, variance)
        ranks = np.concatenate([np.arange(1, count + 1) for count in counts]) if lists else np.empty(0)
        user_of = [name for name, count in zip(names, counts) for _ in range(count)]
        columns: dict[str, Any] = {
            "user": pa.array([self._user(one) for one in user_of], self.user_type),
            "rank": ranks.astype(np.int32),
            "item": pa.array(model.item_ids.ids_of(items), self.item_type),
            "p_like": like_probability(mean, variance).astype(np.float32),
            "low": low.astype(np.float32),
            "high": high.astype(np.float32),
            "score": scores.astype(np.float32),
            "cold": ~is_warm,
        }
        if model.titles is not None:
            columns["title"] = pa.array([model.titles.of(int(item)) for item in items], pa.string())
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
        return number if -(2**63) <= number < 2**63 else None
