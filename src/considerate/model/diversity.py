"""Diverse lists: maximal marginal relevance over item vectors, and caps by category.

Carbonell & Goldstein (1998). Of the C best items of a user, with scores s_1 >= ... >= s_C, items are chosen one by one;
the next is the one with the largest

    (1 - d) r_n - d max over the chosen m of cos(v_n, v_m),    r_n = (s_n - s_C) / (s_1 - s_C)

among those whose categories are not full; of a tie, the better ranked. The first is the best of all. v are the
posterior means of the item vectors. At d = 0 the order follows the scores.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from considerate.data.categories import Categories
from considerate.errors import UsageError
from considerate.model.model import Model
from considerate.model.names import Names
from considerate.model.ranking import RankingOptions

CANDIDATES = 200  # items of a user that a list is chosen from, or
PER_PLACE = 5  # so many for each place of the list, if that is more
MOST_VALUES = 1 << 22  # coordinates of candidates in memory


@dataclass(frozen=True)
class Diversity:
    """Choice of diverse lists from candidates, for all users of a model."""

    weight: float  # d
    vectors: NDArray[np.float32]  # [items, K] posterior means
    categories: NDArray[np.int32] | None = None  # [items, most of an item] numbers; -1 for none
    most: int = 0  # items of one category in a list

    @classmethod
    def of(cls, options: RankingOptions, model: Model, items: Names) -> Diversity | None:
        """Make the choice from options whose items have these names; None if lists follow the scores alone."""
        named: Categories | None = options.categories
        if named is None or options.most_per_category is None:
            return cls(options.diversity, model.items.mean) if options.diversity else None
        rows = items.rows(list(named), unknown=True)
        if not (rows >= 0).any():
            seen = f", such as {next(iter(named))!r}" if named else ""
            raise UsageError(
                f"categories has {len(rows)} items{seen}, and none of them is in the model, which has items such as "
                f"{items.name(0)!r}; name items in it as the model does."
            )
        numbers: dict[str, int] = {}
        table = np.full((model.item_count, max(map(len, named.values()))), -1, np.int32)
        for row, names in zip(rows, named.values()):
            if row >= 0:
                table[row, : len(names)] = [numbers.setdefault(name, len(numbers)) for name in names]
        return cls(options.diversity, model.items.mean, table, options.most_per_category)

    @staticmethod
    def candidates(count: int) -> int:
        """Items that a list of `count` is chosen from."""
        return max(CANDIDATES, PER_PLACE * count)

    def choose(
        self, ids: NDArray[np.int32], scores: NDArray[np.float32], count: int
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Choose (ids, scores), [users, count], from those of candidates, which are best first and end in -1."""
        some = max(1, MOST_VALUES // max(1, ids.shape[1] * self.vectors.shape[1]))
        parts = [self._choose(ids[at : at + some], scores[at : at + some], count) for at in range(0, len(ids), some)]
        places = np.concatenate([np.empty((0, count), np.int64), *parts])
        chosen = np.take_along_axis(ids, places, axis=1), np.take_along_axis(scores, places, axis=1)
        return np.where(places < 0, np.int32(-1), chosen[0]), np.where(places < 0, np.float32(np.nan), chosen[1])

    def _choose(self, ids: NDArray[np.int32], scores: NDArray[np.float32], count: int) -> NDArray[np.int64]:
        """Choose places among the candidates, [users, count]; -1 if none is left."""
        users, left = np.arange(len(ids)), ids >= 0  # left: candidates that may still be chosen
        relevance = _relevance(scores, left)
        vectors = _unit(self.vectors[np.maximum(ids, 0)])  # [users, C, K]
        nearest = np.zeros(ids.shape)
        if self.categories is not None:
            held = self.categories[np.maximum(ids, 0)]  # [users, C, most of an item]
            numbers = int(self.categories.max(initial=-1)) + 2  # the last stands for no category
            counts = np.zeros((len(ids), numbers), np.int64)
        places = np.full((len(ids), count), -1, np.int64)
        for place in range(min(count, ids.shape[1])):
            value = np.where(left, (1.0 - self.weight) * relevance - self.weight * nearest, -np.inf)
            chosen = value.argmax(axis=1)
            places[:, place] = np.where(left[users, chosen], chosen, -1)
            left[users, chosen] = False
            if self.weight:
                cosine = np.einsum("uck,uk->uc", vectors, vectors[users, chosen])
                nearest = cosine.astype(np.float64) if place == 0 else np.maximum(nearest, cosine)
            if self.categories is not None:
                np.add.at(counts, (users[:, None], held[users, chosen]), 1)
                full = counts >= self.most
                full[:, -1] = False
                left &= ~full[users[:, None, None], held].any(axis=2)
        return places


def _relevance(scores: NDArray[np.float32], there: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Relevance r: 1 for the best candidate, 0 for the last; 1 for all if their scores are equal."""
    values = scores.astype(np.float64)
    best, worst = (np.where(there, values, fill) for fill in (-np.inf, np.inf))
    high, low = best.max(axis=1, initial=-np.inf)[:, None], worst.min(axis=1, initial=np.inf)[:, None]
    spread = np.where(high > low, high - low, 1.0)
    return np.asarray(np.where(high > low, (values - low) / spread, 1.0))


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scale vectors to length 1; zeros stay zeros."""
    lengths = np.sqrt(np.einsum("uck,uck->uc", vectors, vectors))
    return np.asarray(vectors / np.maximum(lengths, np.float32(1e-30))[:, :, None], np.float32)
