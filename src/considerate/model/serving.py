"""The best items for users: scores, exclusion and choice, many users at a time."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency
from considerate.data.known import Known
from considerate.errors import UsageError
from considerate.inference.posterior import Side
from considerate.kernels import compiled
from considerate.kernels.threads import LocalBackend, locked_cached_property
from considerate.model.considered import consideration_weights, logit_offset
from considerate.model.covariates import pair_covariates
from considerate.model.diversity import Diversity
from considerate.model.liking import moderated_logit, sigmoid
from considerate.model.model import Model
from considerate.model.names import By, Lists, Ranked, check_count
from considerate.model.pairs import Pairs, UserBatch
from considerate.model.predict import STRIP, strips_of
from considerate.model.ranking import RankingOptions, best, explore, finite, paper_score, tilt_term, utility

BLOCK = 192  # users ranked in one task, at most; a multiple of the kernel's tile
TILE = 6  # users that the kernel scores side by side
WORTH_THREADS = 1 << 24  # scores of a block of users; fewer are made before a pool of threads has started
MOST_CANDIDATES = 0.1  # of all items: with more of them, all are scored
SPARE = 200  # items that are asked of an index beyond the list's length and the user's likes


class Ranker:
    """The `count` best items of any users under one set of options. All that threads share is made here.

    `users` and `items` are how these are named in the options, in what is asked and in tables of answers.
    """

    def __init__(self, model: Model, options: RankingOptions, count: int, by: By = "id") -> None:
        self.model, self.options, self.by = model, options, by
        self.users, self.items = model.user_names(by), model.item_names(by)
        self.count = self.candidates = min(check_count(count), model.item_count)
        self.diversity = Diversity.of(options, model, self.items)
        if self.diversity is not None:
            self.candidates = min(self.diversity.candidates(self.count), model.item_count)
        self.popularity = model.plan.popularity if options.popularity is None else options.popularity
        self.lift = 0.0 if options.score is not None else model.lift_weight(options.lift)
        self.excluded = self.items.excluded(options.allow, options.deny)
        explores = options.explore_kappa != 0.0 or options.thompson_seed is not None
        self.by_logit = options.score is None and not explores and model.plan.tilt == 0.0
        if options.index is not None and not self.by_logit:
            raise UsageError("this model was fitted with a tilt, and no index holds its scores; leave index out.")
        if options.index is not None and options.index.digest != model.items_digest:
            raise UsageError("index is that of another model; make one of this model with build_index().")

    @locked_cached_property
    def _base(self) -> NDArray[np.float32]:
        """Of all items, up to whole strips: bias and popularity, an item's part of every score.

        The model keeps the last one that excludes nothing: of a million items it takes a fifth of a request to make.
        """
        columns = self.model.columns
        popularity, kept = columns.base
        if self.excluded is None and popularity == self.popularity:
            return kept
        base = np.full(columns.strips.shape[0] * STRIP, -np.inf, np.float32)
        base[: self.model.item_count] = self._base_of(slice(None))
        if self.excluded is None:
            columns.base = self.popularity, base
        return base

    def _base_of(self, items: NDArray[np.int32] | slice) -> NDArray[np.float32]:
        """-infinity if excluded."""
        base = utility(self.model.items.biases[0][items], self.model.log_popularity[items], self.popularity)
        return base if self.excluded is None else np.where(self.excluded[items], np.float32(-np.inf), base)

    @property
    def reads_likes(self) -> bool:
        """True if the users' likes have a part in their lists."""
        options = self.options
        by_likes = bool(self.lift) or options.filter_already_liked_items or self.model.plan.tilt != 0.0
        return by_likes or options.score == "p_like"

    def check_likes_known(self) -> None:
        """A warning, or an error if lift was asked for, where the model was saved without the likes that it needs."""
        if self.lift != 0.0:
            self.model.lift_weight(self.options.lift, self.model.users.knows_likes)

    def answer(self, users: UserBatch, threads: int | None = 1) -> Pairs:
        """The best items of users, with the probabilities and all else that columns are computed from."""
        ids, scores = self.rank(users, threads)
        weights = consideration_weights(self.model, users.known_likes(self.model), ids, users.limits, threads)
        return Pairs(self.model, users, ids, weights, scores, self.options.interval)

    def rank(self, users: UserBatch, threads: int | None = 1) -> Lists:
        """(ids, scores) of the best items, highest first; of a user who is not warm, the popular ones."""
        rank_block: Callable[[UserBatch], Lists] = self._best_by_logit
        if self.options.index is not None or not self.by_logit:
            rank_block = self._one_by_one
        if self.diversity is not None:
            rank_block = self._diverse(rank_block)
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
            cold = ~users.warm
            if self._limits(users) is None:
                ids[cold], scores[cold] = self._popular(self._excluded_mask())
            else:
                for user in np.flatnonzero(cold).tolist():
                    ids[user], scores[user] = self._popular(self._excluded_mask(users, user))
        return ids, scores

    def _limits(self, users: UserBatch) -> Known | None:
        """Impossible pairs that are left out; None if there are none or they are allowed."""
        return None if self.options.allow_impossible else users.limits

    def _popular(self, excluded: NDArray[np.bool_]) -> Lists:
        ids, scores = self._fill(self.model.log_popularity, excluded)
        return (ids, scores) if self.diversity is None else self.diversity.choose(ids[None], scores[None], self.count)

    def _seen(self, users: UserBatch) -> Adjacency | None:
        """What is not recommended to each of these users: likes, unless asked for, and what is impossible."""
        liked = users.liked if self.options.filter_already_liked_items else None
        limits = self._limits(users)
        if limits is None:
            return liked
        items, rows = self.model.item_count, []
        for user in range(len(users.rows)):
            mask = limits.impossible_items(user, items)
            if liked is not None:
                mask[liked.row(user)] = True
            rows.append(np.flatnonzero(mask).astype(np.int32))
        return Adjacency.of_rows(rows)

    def _diverse(self, rank_block: Callable[[UserBatch], Lists]) -> Callable[[UserBatch], Lists]:
        """Lists chosen from the candidates that `rank_block` ranks."""
        assert self.diversity is not None
        choose = self.diversity.choose
        return lambda users: choose(*rank_block(users), self.count)

    def _best_by_logit(self, users: UserBatch) -> Lists:
        """By the mean logit + popularity * log pi + lift * log(w / pi): scored and chosen in one pass."""
        side, liked = users.side, users.liked
        seen = self._seen(users)
        walk = None if self.lift == 0.0 else self.model.consideration
        table = None if walk is None or liked is None else walk.lift_table(liked.indices, self.model.plan.sharpness)
        ids, scores = compiled.top_items(
            side.factors,
            side.rows,
            side.rows.shape[1],
            users.rows,
            self.model.columns.strips,
            self._base,
            self.candidates,
            None if seen is None else seen.starts,
            None if seen is None else seen.indices,
            *(() if liked is None or table is None else (table, self.lift, liked.starts, liked.indices)),
        )
        if side.bias_mean is not None:
            scores += side.bias_mean[users.rows][:, None]
        return ids, scores

    def _one_by_one(self, users: UserBatch) -> Lists:
        """Lists that are made for one user at a time, so that they do not depend on who else asks: BLAS adds in another
        order for each number of rows."""
        rank_one = self._best_by_any if self.options.index is None else self._best_of_near
        lists = [rank_one(users.part(i, i + 1)) for i in range(len(users.rows))]
        ids, scores = map(np.concatenate, zip(*lists))
        return ids, scores

    def _best_of_near(self, user: UserBatch) -> Lists:
        """By the same score, of the items that the index has near a user and of those that the likes lead to. The
        kernel sees a catalogue of the candidates, in the order of the whole one.

        Where the index finds too few that may be recommended, or there are many candidates, all items are scored.
        """
        model, index = self.model, self.options.index
        assert index is not None
        side, liked = user.side, np.empty(0, np.int32) if user.liked is None else user.liked.indices
        walk = None if self.lift == 0.0 or user.liked is None else model.consideration
        rows = [] if walk is None else [walk.row(int(item)) for item in liked]
        led = np.concatenate([liked[:0], *(items for items, _ in rows)])
        unseen = self._seen(user)
        seen = liked[:0] if unseen is None else unseen.indices
        found = index.near(side.mean[user.rows[0]], self.popularity, self.candidates + len(seen) + SPARE)
        allowed = found if self.excluded is None else found[~self.excluded[found]]
        too_few = np.isin(allowed, seen, invert=True).sum() < self.candidates
        if too_few or len(found) + len(led) > MOST_CANDIDATES * model.item_count:
            return self._best_by_logit(user)
        candidates = np.unique(np.concatenate([found, liked, led]))
        strips = strips_of(model.items.mean[candidates])
        base = np.full(len(strips) * STRIP, -np.inf, np.float32)
        base[: len(candidates)] = self._base_of(candidates)
        seen = np.searchsorted(candidates, np.intersect1d(candidates, seen)).astype(np.int32)
        lift: tuple[Any, ...] = ()
        if walk is not None:  # row i is of like i
            lengths, rest = np.zeros(len(candidates), np.int64), np.ones(len(candidates), np.float32)
            lengths[: len(liked)], rest[: len(liked)] = [len(items) for items, _ in rows], walk.rest[liked]
            inverse = np.zeros(len(base), np.float32)
            inverse[: len(candidates)] = walk.inverse[candidates]
            shares = np.concatenate([rest[:0], *(shares for _, shares in rows)])
            places = np.searchsorted(candidates, led).astype(np.int32)
            starts = np.append(0, np.cumsum(lengths))
            unknown = np.flatnonzero(inverse < 0).astype(np.int32)
            table = compiled.LiftTable(starts, places, shares, rest, inverse, walk.mix, model.plan.sharpness, unknown)
            lift = table, self.lift, np.array([0, len(liked)]), np.arange(len(liked), dtype=np.int32)
        seen_starts = np.array([0, len(seen)])
        scoring = side.factors, side.rows, side.rows.shape[1], user.rows, strips, base, self.candidates
        ids, scores = compiled.top_items(*scoring, seen_starts, seen, *lift)
        if side.bias_mean is not None:
            scores += side.bias_mean[user.rows][:, None]
        return np.where(ids < 0, np.int32(-1), candidates[ids]), scores

    def _best_by_any(self, user: UserBatch) -> Lists:
        """By the paper's scores, exploring, or tilted: from means and variances of all items."""
        model, options = self.model, self.options
        mean = model.columns.means(user.side, user.rows)
        variance = model.variance_scale * model.columns.variances(user.side, user.rows)
        if options.score is None:
            values = utility(mean, model.log_popularity, self.popularity)
            if self.lift != 0.0 and user.liked is not None and model.consideration is not None:
                values = values + np.float32(self.lift) * model.log_lift(user.liked)
            if model.plan.tilt != 0.0:
                values = values + tilt_term(mean, model.plan, self._offset_of(user))
            values = explore(values, variance, options.explore_kappa, options.thompson_seed, user.keys)
        elif options.score == "p_like":
            values = self._logits_of_p_like(user, mean, variance)
        else:
            values = paper_score(options.score, mean, variance, model.popularity)
        ids, scores = self._fill(values[0], self._excluded_mask(user))
        return ids[None], (sigmoid(scores) if options.score == "p_like" else scores)[None]

    def _logits_of_p_like(self, user: UserBatch, mean: NDArray[Any], variance: NDArray[Any]) -> NDArray[Any]:
        """The logit of p(like), recalibrated, of one user against all items."""
        model, items = self.model, np.arange(self.model.item_count)
        covariates = pair_covariates(model, user.known_likes(model), user.keys, np.zeros_like(items), items)
        return model.recalibration.line(moderated_logit(mean, variance), covariates)

    def _offset_of(self, user: UserBatch) -> NDArray[np.float64]:
        """The offset of the user's logits; -log c where the likes are not known."""
        if user.liked is None:
            return np.array([self.model.plan.offset])
        return logit_offset(self.model, user.liked, user.limits)

    def _excluded_mask(self, users: UserBatch | None = None, row: int = 0) -> NDArray[np.bool_]:
        """[items] what nobody is recommended, or what one of these users is not."""
        mask = np.zeros(self.model.item_count, bool) if self.excluded is None else self.excluded.copy()
        if users is not None and (seen := self._seen(users.part(row, row + 1))) is not None:
            mask[seen.indices] = True
        return mask

    def _fill(self, values: NDArray[Any], excluded: NDArray[np.bool_]) -> Lists:
        """One row of (ids, scores)."""
        chosen = best(values, self.candidates, excluded)
        ids, scores = np.full(self.candidates, -1, np.int32), np.full(self.candidates, np.nan, np.float32)
        ids[: len(chosen)], scores[: len(chosen)] = chosen, values[chosen]
        return ids, scores


def recommend_lists(
    ranker: Ranker, userid: Any, user_items: Any, N: int, recalculate_user: bool, threads: int | None
) -> Ranked:
    """The best items of users, as implicit gives them: short rows of several users are filled up to N."""
    model = ranker.model
    liked = None if user_items is None else ranker.items.likes(user_items)
    rows = ranker.users.keys(userid) if recalculate_user else ranker.users.rows(userid)
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
            liked = users.liked.take(local) if ranker.reads_likes else None
    limits = None
    if model.limits is not None:
        limits = model.limits_of(ranker.users.rows(userid, unknown=True).reshape(-1))
    batch = UserBatch(side, local, keys, liked, limits=limits, folded=user_items is not None)
    ids, scores = ranker.rank(batch, threads)
    if rows.ndim == 0:
        length = int((ids[0] >= 0).sum())
        return ranker.items.ranked((ids[0, :length], scores[0, :length]))
    missing = ((0, 0), (0, N - ranker.count))
    padded = np.pad(ids, missing, constant_values=-1), np.pad(scores, missing, constant_values=np.nan)
    return ranker.items.ranked(padded)


def user_vectors(users: Side) -> NDArray[np.float32]:
    """[users, K + 2] for a vector store: against `item_vectors` the inner product is the score without lift."""
    parts = [users.mean, np.ones((len(users), 2), np.float32)]
    return np.concatenate([*parts, users.biases[0][:, None]] if users.has_bias else parts, axis=1)


def item_vectors(model: Model, popularity: float | None) -> NDArray[np.float32]:
    """[items, K + 2]: the bias and `popularity` * log pi are the last two, against ones of the user; with user biases
    there is a third, which is 1, against them."""
    weight = model.plan.popularity if popularity is None else finite("popularity", popularity)
    items = model.items
    parts = [items.mean, items.biases[0][:, None], (np.float32(weight) * model.log_popularity)[:, None]]
    return np.concatenate([*parts, np.ones((len(items), 1), np.float32)] if model.users.has_bias else parts, axis=1)
