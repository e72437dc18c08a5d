"""Which items, for whom: scores, exclusion and the best of them, many users at a time."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency, Range, run_serially
from considerate.errors import UnknownIdError, UsageError
from considerate.inference.posterior import Side
from considerate.kernels import compiled
from considerate.model.model import Model
from considerate.model.predict import STRIP
from considerate.model.ranking import SCORES, best, explore, paper_score, utility
from considerate.model.rows import checked_rows, id_list

MOST = 10_000_000  # items in a list of recommendations
BLOCK = 192  # users ranked in one task; a multiple of the kernel's tile


@dataclass(frozen=True)
class Ranked:
    """The best items of some users, highest first; -1 and NaN where fewer remain."""

    ids: NDArray[np.int32]  # [users, count]
    scores: NDArray[np.float32]  # [users, count]


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
        if score is not None and score not in SCORES:
            raise UsageError(f"score is {score!r}; it may be one of {', '.join(SCORES)}.")
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
        run: Any = run_serially,
    ) -> Ranked:
        """The best items of every user; of one who is not warm, the popular ones. Row i of `liked` is left out for
        user i; `keys` tell users apart in Thompson draws; blocks of users are mapped by `run`."""
        ids = np.full((len(rows), count), -1, np.int32)
        scores = np.full((len(rows), count), np.nan, np.float32)
        plain = self.score is None and self.kappa == 0.0 and self.thompson is None
        width = min(count, self.model.item_count)

        def fill(block: Range) -> None:
            part = slice(*block)
            if plain:
                seen = (
                    None
                    if liked is None
                    else (np.ascontiguousarray(liked.starts[block[0] : block[1] + 1]), liked.indices)
                )
                ids[part, :width], scores[part, :width] = self._best_by_logit(users, rows[part], width, seen)
            else:
                self._best_by_any(users, rows[part], liked, keys, block, ids, scores)

        starts = range(0, len(rows), BLOCK)
        run(fill, [(start, min(start + BLOCK, len(rows))) for start in starts])
        for i in [] if warm is None else np.flatnonzero(~warm):
            found = best(self.model.log_popularity, count, self._excluded(liked, int(i)))
            ids[i], scores[i] = -1, np.nan
            ids[i, : len(found)], scores[i, : len(found)] = found, self.model.log_popularity[found]
        return Ranked(ids, scores)

    @cached_property
    def _base(self) -> NDArray[np.float32]:
        """What an item's score is for everyone: bias and popularity, -infinity where it is excluded; by strips."""
        items = self.model.items
        base = np.full(self.model.columns.strips.shape[0] * STRIP, -np.inf, np.float32)
        base[: len(items)] = utility(items.biases[0], self.model.log_popularity, self.knob)
        base[: len(items)][self.excluded] = -np.inf
        return base

    def _best_by_logit(
        self, users: Side, rows: NDArray[np.int64], count: int, seen: tuple[NDArray[Any], NDArray[Any]] | None
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The mean logit + popularity * log pi: scored and chosen in one pass."""
        starts, indices = (None, None) if seen is None else seen
        ids, scores = compiled.top_items(
            users.factors,
            users.rows,
            users.rows.shape[1],
            rows,
            self.model.columns.strips,
            self._base,
            count,
            starts,
            indices,
        )
        if users.bias_mean is not None:
            scores += users.bias_mean[rows][:, None]
        return ids, scores

    def _best_by_any(
        self,
        users: Side,
        rows: NDArray[np.int64],
        liked: Adjacency | None,
        keys: NDArray[np.int64],
        block: Range,
        ids: NDArray[np.int32],
        scores: NDArray[np.float32],
    ) -> None:
        """The paper's scores and exploration, from the whole rows of means and variances."""
        model = self.model
        mean = model.columns.means(users, rows)
        variance = model.variance_scale * model.columns.variances(users, rows)
        if self.score is None:
            values = utility(mean, model.log_popularity, self.knob)
            values = explore(values, variance, kappa=self.kappa, thompson=self.thompson, rows=keys[slice(*block)])
        else:
            values = paper_score(self.score, mean, variance, model.popularity)
        for i, row in enumerate(range(*block)):
            found = best(values[i], ids.shape[1], self._excluded(liked, row))
            ids[row, : len(found)], scores[row, : len(found)] = found, values[i][found]

    def _excluded(self, liked: Adjacency | None, row: int) -> NDArray[np.bool_]:
        if liked is None:
            return self.excluded
        excluded = self.excluded.copy()
        excluded[liked.row(row)] = True
        return excluded


def check_count(count: Any) -> None:
    if not isinstance(count, int | np.integer) or isinstance(count, bool) or not 1 <= count <= MOST:
        raise UsageError(f"N is {count!r}; it must be a whole number from 1 to {MOST}.")


def finite(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not abs(number) <= 1e6:
        raise UsageError(f"{name} is {value!r}; it must be a number from -1e6 to 1e6.")
    return number


def item_rows(model: Model, ids: Any) -> NDArray[np.int64]:
    """Row numbers of items by the data's own ids."""
    ids = id_list(ids, "items")
    rows = model.item_ids.rows_of(ids)
    if (rows < 0).any():
        unknown = ids[int(np.flatnonzero(rows < 0)[0])]
        raise UnknownIdError(f"item {unknown!r} is not in the model, which knows {model.item_count} items.")
    return rows


def user_vectors(users: Side) -> NDArray[np.float32]:
    """[users, K + 2] for a vector store: against `item_vectors` the inner product is the score of `recommend`."""
    parts = [users.mean, np.ones((len(users), 2), np.float32)]
    return np.concatenate([*parts, users.biases[0][:, None]] if users.has_bias else parts, axis=1)


def item_vectors(model: Model, popularity: float | None) -> NDArray[np.float32]:
    """[items, K + 2]: the bias and `popularity` * log pi are the last two, against ones of the user; with user biases
    there is a third, a one against them."""
    knob = model.popularity_weight if popularity is None else finite("popularity", popularity)
    items = model.items
    parts = [items.mean, items.biases[0][:, None], (np.float32(knob) * model.log_popularity)[:, None]]
    return np.concatenate([*parts, np.ones((len(items), 1), np.float32)] if model.users.has_bias else parts, axis=1)


def cold_message(user: Any, known: bool, model: Model) -> str:
    what = "liked nothing in training" if known else f"is not in the model, which knows {model.user_count} users"
    return f"user {user!r} {what}; recommend popular items with cold='popular' (--cold popular), or fold in some likes."


def most_similar(
    pieces: Iterable[tuple[int, NDArray[Any]]],
    total: int,
    rows: NDArray[np.int64],
    queries: NDArray[Any],
    count: int,
    *,
    itself: bool,
    denied: Any,
    allowed: Any,
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """The rows whose vectors have the largest cosine with each query: (ids, cosines), the lower row where they tie.

    `pieces` gives all `total` vectors in order, some at a time, each time with the row number of the first; the answer
    does not depend on where they are cut. With `itself`, query i is row i of `rows`, which then comes first.
    """
    check_count(count)
    named = [None if some is None else checked_rows(some, total, "row") for some in (allowed, denied)]
    scalar = rows.ndim == 0
    rows = np.atleast_1d(rows)
    if len(queries) != len(rows):
        raise UsageError(
            f"item_users has {len(queries)} rows for {len(rows)} items; give one row of likes for each item."
        )
    lengths = np.sqrt(np.einsum("nk,nk->n", queries, queries))
    found = [(np.empty(0, np.int64), np.empty(0, np.float32)) for _ in rows]
    for first, vectors in pieces:
        norms = np.sqrt(np.einsum("nk,nk->n", vectors, vectors))
        excluded = _named_in(first, len(vectors), *named)
        for i, row in enumerate(rows):
            cosine = np.minimum(np.einsum("nk,k->n", vectors, queries[i]) / np.maximum(norms * lengths[i], 1e-30), 1.0)
            if itself and first <= row < first + len(vectors):
                cosine[row - first] = 2.0  # itself first, whatever rounding says of its equals
            here = best(cosine, count, excluded)  # highest first, the lower row of two that tie: so also when joined
            both = np.append(found[i][0], here + first), np.append(found[i][1], cosine[here])
            kept = best(both[1], count)
            found[i] = both[0][kept], both[1][kept]
    ids = np.full((len(rows), count), -1, np.int32)
    cosines = np.full((len(rows), count), np.nan, np.float32)
    for i, (places, values) in enumerate(found):
        ids[i, : len(places)], cosines[i, : len(places)] = places, np.minimum(values, 1.0)
    if scalar:
        size = int((ids[0] >= 0).sum())
        return ids[0, :size], cosines[0, :size]
    return ids, cosines


def _named_in(
    first: int, count: int, allowed: NDArray[np.int64] | None, denied: NDArray[np.int64] | None
) -> NDArray[np.bool_]:
    """Which of the rows from `first` on are left out by the lists."""
    excluded = np.zeros(count, bool)
    if allowed is not None:
        excluded[:] = True
        excluded[_inside(allowed, first, count)] = False
    if denied is not None:
        excluded[_inside(denied, first, count)] = True
    return excluded


def _inside(rows: NDArray[np.int64], first: int, count: int) -> NDArray[np.int64]:
    return rows[(rows >= first) & (rows < first + count)] - first
