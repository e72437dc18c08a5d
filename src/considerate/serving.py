"""Which items, for whom: scores, exclusion and the best of them, many users at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.errors import UsageError
from considerate.graph import Adjacency
from considerate.model import Model
from considerate.posterior import Side
from considerate.ranking import best, explore, paper_score, utility
from considerate.rows import checked_rows


class Choice:
    """One way to score and choose, for any users."""

    def __init__(
        self,
        model: Model,
        *,
        popularity: float | None,
        score: str | None,
        kappa: float,
        thompson: int | None,
        denied: Any,
        allowed: Any,
    ) -> None:
        self.model = model
        self.knob = model.popularity_weight if popularity is None else finite("popularity", popularity)
        if score is not None and popularity is not None:
            raise UsageError("score and popularity do not go together: the paper's scores have no knob.")
        if score is not None and (kappa or thompson is not None):
            raise UsageError("score does not go with explore_kappa or thompson_seed: exploring is about the logit.")
        if thompson is not None and (not isinstance(thompson, int | np.integer) or isinstance(thompson, bool)):
            raise UsageError(f"thompson_seed is {thompson!r}; it must be None or a whole number.")
        self.score, self.kappa, self.thompson = score, finite("explore_kappa", kappa), thompson
        self.excluded = np.zeros(model.item_count, bool)
        if allowed is not None:
            self.excluded[:] = True
            self.excluded[checked_rows(allowed, model.item_count, "item")] = False
        if denied is not None:
            self.excluded[checked_rows(denied, model.item_count, "item")] = True

    def rank(
        self,
        users: Side,
        rows: NDArray[np.int64],
        liked: Adjacency | None,
        count: int,
        keys: NDArray[np.int64],
        warm: NDArray[np.bool_] | None = None,
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[Any], int]]:
        """(item rows, scores, row) of every user; of one who is not warm, the popular items."""
        model = self.model
        width = max(1, (1 << 22) // max(1, model.item_count))
        for start in range(0, len(rows), width):
            part = rows[start : start + width]
            mean = model.columns.means(users, part)
            needs_variance = (
                self.score in ("like", "popularity_x_like") or self.kappa != 0.0 or self.thompson is not None
            )
            variance = model.variance_scale * model.columns.variances(users, part) if needs_variance else mean
            if self.score is None:
                scores = utility(mean, model.log_popularity, self.knob)
            else:
                scores = paper_score(self.score, mean, variance, model.popularity)
            if needs_variance and (self.kappa != 0.0 or self.thompson is not None):
                scores = explore(
                    scores,
                    variance,
                    kappa=self.kappa,
                    thompson=self.thompson,
                    rows=keys[start : start + width],
                )
            for i in range(len(part)):
                excluded = self.excluded
                if liked is not None:
                    excluded = excluded.copy()
                    excluded[liked.row(start + i)] = True
                values = scores[i] if warm is None or warm[start + i] else model.log_popularity
                ids = best(values, count, excluded)
                yield ids, values[ids], int(part[i])


def check_count(count: Any) -> None:
    if not isinstance(count, int | np.integer) or isinstance(count, bool) or count < 1:
        raise UsageError(f"N is {count!r}; it must be a whole number at least 1.")


def finite(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise UsageError(f"{name} is {value!r}; it must be a finite number.")
    return number


def cold_message(user: Any, known: bool, model: Model) -> str:
    what = "liked nothing in training" if known else f"is not in the model, which knows {model.user_count} users"
    return f"user {user!r} {what}; recommend popular items with cold='popular' (--cold popular), or fold in some likes."


def most_similar(
    vectors: NDArray[Any],
    rows: NDArray[np.int64],
    count: int,
    query: NDArray[Any] | None,
    denied: Any,
    allowed: Any,
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    check_count(count)
    norms = np.sqrt(np.einsum("nk,nk->n", vectors, vectors))
    excluded = np.zeros(len(vectors), bool)
    if allowed is not None:
        excluded[:] = True
        excluded[checked_rows(allowed, len(vectors), "row")] = False
    if denied is not None:
        excluded[checked_rows(denied, len(vectors), "row")] = True
    scalar = rows.ndim == 0
    rows = np.atleast_1d(rows)
    queries = vectors[rows] if query is None else query
    if len(queries) != len(rows):
        raise UsageError(
            f"item_users has {len(queries)} rows for {len(rows)} items; give one row of likes for each item."
        )
    ids = np.full((len(rows), count), -1, np.int32)
    cosines = np.full((len(rows), count), np.nan, np.float32)
    for i in range(len(rows)):
        length = float(np.sqrt((queries[i] ** 2).sum()))
        cosine = np.minimum(vectors @ queries[i] / np.maximum(norms * length, 1e-30), 1.0)
        if query is None:
            cosine[rows[i]] = 2.0  # itself first, whatever rounding says of its equals
        found = best(cosine, count, excluded)
        ids[i, : len(found)], cosines[i, : len(found)] = found, np.minimum(cosine[found], 1.0)
    if scalar:
        size = int((ids[0] >= 0).sum())
        return ids[0, :size], cosines[0, :size]
    return ids, cosines
