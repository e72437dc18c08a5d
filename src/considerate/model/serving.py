"""The best items for users: scores, exclusion and choice, many users at a time."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency
from considerate.errors import UsageError
from considerate.inference.posterior import Side
from considerate.kernels import compiled
from considerate.kernels.threads import LocalBackend
from considerate.model.model import Model
from considerate.model.predict import STRIP
from considerate.model.ranking import RankingOptions, best, explore, finite, paper_score, tilt_term, utility
from considerate.model.rows import Lists, check_count, checked_rows, excluded_rows, item_rows, likes_adjacency

BLOCK = 192  # users ranked in one task, at most; a multiple of the kernel's tile
TILE = 6  # users that the kernel scores side by side
WORTH_THREADS = 1 << 24  # scores of a block of users; fewer are made before a pool of threads has started


@dataclass(frozen=True)
class UserBatch:
    """Users to recommend to."""

    side: Side
    rows: NDArray[np.int64]  # [users] of the side
    keys: NDArray[np.int64]  # [users] tell users apart in Thompson draws
    liked: Adjacency | None = None  # row i is what user i liked, for the filter and for lift; None: nobody asks
    warm: NDArray[np.bool_] | None = None  # [users] the others get popular items; None: all are warm

    def part(self, first: int, last: int) -> UserBatch:
        cut = slice(first, last)
        liked = None if self.liked is None else self.liked.between(first, min(last, len(self.rows)))
        warm = None if self.warm is None else self.warm[cut]
        return UserBatch(self.side, self.rows[cut], self.keys[cut], liked, warm)


class Ranker:
    """The `count` best items of any users under one set of options. All that threads share is made here.

    `excluded` marks items that are never recommended; they follow from the options where it is not given.
    """

    def __init__(
        self, model: Model, options: RankingOptions, count: int, excluded: NDArray[np.bool_] | None = None
    ) -> None:
        self.model, self.options = model, options
        self.count = min(check_count(count), model.item_count)
        self.popularity = model.plan.popularity_weight if options.popularity is None else options.popularity
        self.lift = 0.0 if options.score is not None else model.lift_weight(options.lift)
        if excluded is None:
            allow, deny = (
                None if ids is None else item_rows(model.item_ids, ids) for ids in (options.allow, options.deny)
            )
            excluded = excluded_rows(model.item_count, allow, deny, "item")
        self.excluded = excluded
        explores = options.explore_kappa != 0.0 or options.thompson_seed is not None
        self.by_logit = options.score is None and not explores and model.plan.tilt == 0.0
        if self.by_logit:  # an item's part of every score, by strips: bias and popularity, -infinity if excluded
            self._base = np.full(model.columns.strips.shape[0] * STRIP, -np.inf, np.float32)
            scores = self._base[: model.item_count]
            scores[:] = utility(model.items.biases[0], model.log_popularity, self.popularity)
            if excluded is not None:
                scores[excluded] = -np.inf

    def check_likes_known(self) -> None:
        """A warning, or an error if lift was asked for, where the model was saved without the likes that it needs."""
        if self.lift != 0.0:
            self.model.lift_weight(self.options.lift, self.model.users.knows_likes)

    def rank(self, users: UserBatch, threads: int | None = 1) -> Lists:
        """(ids, scores) of the best items, highest first; of a user who is not warm, the popular ones."""
        rank_block = self._best_by_logit if self.by_logit else self._best_by_any
        count = len(users.rows)
        if 0 < count <= BLOCK and (threads == 1 or count * self.model.item_count < WORTH_THREADS):
            ids, scores = rank_block(users)
        else:
            with LocalBackend(threads) as backend:
                size = min(BLOCK, -(-count // (TILE * backend.threads)) * TILE or BLOCK)
                blocks = [users.part(first, first + size) for first in range(0, count, size)]
                lists = backend.map(rank_block, blocks)
            nobody = np.empty((0, self.count), np.int32), np.empty((0, self.count), np.float32)
            ids, scores = map(np.concatenate, zip(nobody, *lists))
        if users.warm is not None and not users.warm.all():
            ids[~users.warm], scores[~users.warm] = self._fill(self.model.log_popularity, self._excluded_mask())
        return ids, scores

    def _best_by_logit(self, users: UserBatch) -> Lists:
        """By the mean logit + popularity * log pi + lift * log(w / pi): scored and chosen in one pass."""
        side, liked = users.side, users.liked
        seen = liked if self.options.filter_already_liked_items else None
        walk = None if self.lift == 0.0 else self.model.consideration
        table = None if walk is None or liked is None else walk.lift_table(liked.indices)
        ids, scores = compiled.top_items(
            side.factors,
            side.rows,
            side.rows.shape[1],
            users.rows,
            self.model.columns.strips,
            self._base,
            self.count,
            None if seen is None else seen.starts,
            None if seen is None else seen.indices,
            *(() if liked is None or table is None else (table, self.lift, liked.starts, liked.indices)),
        )
        if side.bias_mean is not None:
            scores += side.bias_mean[users.rows][:, None]
        return ids, scores

    def _best_by_any(self, users: UserBatch) -> Lists:
        """By the paper's scores, exploring, or tilted: from whole rows of means and variances."""
        model, options = self.model, self.options
        mean = model.columns.means(users.side, users.rows)
        variance = model.variance_scale * model.columns.variances(users.side, users.rows)
        if options.score is None:
            values = utility(mean, model.log_popularity, self.popularity)
            if self.lift != 0.0 and users.liked is not None and model.consideration is not None:
                values = values + np.float32(self.lift) * model.consideration.log_ratios(users.liked)
            if model.plan.tilt != 0.0:
                values = values + tilt_term(mean, model.plan)
            values = explore(values, variance, options.explore_kappa, options.thompson_seed, users.keys)
        else:
            values = paper_score(options.score, mean, variance, model.popularity)
        lists = []
        for row in range(len(values)):
            excluded = self._excluded_mask()
            if users.liked is not None and options.filter_already_liked_items:
                excluded[users.liked.row(row)] = True
            lists.append(self._fill(values[row], excluded))
        ids, scores = map(np.stack, zip(*lists))
        return ids, scores

    def _excluded_mask(self) -> NDArray[np.bool_]:
        return np.zeros(self.model.item_count, bool) if self.excluded is None else self.excluded.copy()

    def _fill(self, values: NDArray[Any], excluded: NDArray[np.bool_]) -> Lists:
        """One row of (ids, scores)."""
        chosen = best(values, self.count, excluded)
        ids, scores = np.full(self.count, -1, np.int32), np.full(self.count, np.nan, np.float32)
        ids[: len(chosen)], scores[: len(chosen)] = chosen, values[chosen]
        return ids, scores


def recommend_rows(
    ranker: Ranker, userid: Any, user_items: Any, N: int, recalculate_user: bool, threads: int | None
) -> Lists:
    """The best items of users by row number, as implicit gives them: short rows of several users are filled up to N."""
    model = ranker.model
    liked = None if user_items is None else likes_adjacency(user_items, model.item_count)
    rows = checked_rows(userid, 2**62 if recalculate_user else model.user_count, "user")
    keys = rows.reshape(-1)
    if liked is not None and liked.rows != len(keys):
        raise UsageError(
            f"user_items has {liked.rows} rows for {len(keys)} users; give one row of likes for each user."
        )
    if recalculate_user:
        if liked is None:
            raise UsageError("recalculate_user needs user_items, the likes to fold in.")
        side, local = model.fold_in.users(liked), np.arange(len(keys))
    else:
        users, local = model.users.some(keys)
        side = users.side
        if liked is None:
            ranker.check_likes_known()
            if ranker.options.filter_already_liked_items and not model.users.knows_likes:
                warnings.warn(
                    "this model was saved without likes, so what a user has liked is not filtered; give user_items.",
                    stacklevel=3,
                )
            liked = users.liked.take(local) if ranker.lift or ranker.options.filter_already_liked_items else None
    ids, scores = ranker.rank(UserBatch(side, local, keys, liked), threads)
    if rows.ndim == 0:
        length = int((ids[0] >= 0).sum())
        return ids[0, :length], scores[0, :length]
    if ranker.count == N:
        return ids, scores
    missing = ((0, 0), (0, N - ranker.count))
    return np.pad(ids, missing, constant_values=-1), np.pad(scores, missing, constant_values=np.nan)


def user_vectors(users: Side) -> NDArray[np.float32]:
    """[users, K + 2] for a vector store: against `item_vectors` the inner product is the score without lift."""
    parts = [users.mean, np.ones((len(users), 2), np.float32)]
    return np.concatenate([*parts, users.biases[0][:, None]] if users.has_bias else parts, axis=1)


def item_vectors(model: Model, popularity: float | None) -> NDArray[np.float32]:
    """[items, K + 2]: the bias and `popularity` * log pi are the last two, against ones of the user; with user biases
    there is a third, which is 1, against them."""
    weight = model.plan.popularity_weight if popularity is None else finite("popularity", popularity)
    items = model.items
    parts = [items.mean, items.biases[0][:, None], (np.float32(weight) * model.log_popularity)[:, None]]
    return np.concatenate([*parts, np.ones((len(items), 1), np.float32)] if model.users.has_bias else parts, axis=1)
