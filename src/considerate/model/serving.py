"""The best items of users: scores, exclusion and choice, many users at a time."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency
from considerate.data.known import Known
from considerate.errors import UsageError
from considerate.inference.hidden.consideration import Lift
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

BLOCK = 192  # most users of a task; a multiple of the kernel's tile
TILE = 6  # users that the kernel scores side by side
WORTH_THREADS = 1 << 24  # scores of a block of users; fewer take less time than the start of a pool of threads
MOST_CANDIDATES = 0.1  # share of all items; with more candidates, all items are scored
SPARE = 200  # items that an index returns beyond the list's length and the user's likes


class ScoredItems(NamedTuple):
    """Items that the kernel scores for some users."""

    strips: NDArray[np.float32]  # mean vectors, as `strips_of` lays them out
    base: NDArray[np.float32]  # bias and popularity of each item, up to whole strips; -infinity if excluded
    seen: Adjacency | None  # row i has the items that user i does not get
    lift: tuple[Any, ...] = ()  # table, weight, and the likes by users: (starts, rows of the table)


class Ranker:
    """Ranker of the `count` best items of any users under one set of options. Threads share it.

    `users` and `items` are their names in the options, in questions and in tables of answers.
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
        self.by_logit = options.score is None and not options.explores and model.plan.tilt == 0.0
        if options.index is not None and not self.by_logit:
            raise UsageError("this model was fitted with a tilt, and no index holds its scores; leave index out.")
        if options.index is not None and options.index.digest != model.items_digest:
            raise UsageError("index is that of another model; make one of this model with build_index().")

    @property
    def reads_likes(self) -> bool:
        """True if the users' likes have a part in their lists."""
        options = self.options
        by_likes = bool(self.lift) or options.filter_already_liked_items or self.model.plan.tilt != 0.0
        return by_likes or options.score == "p_like"

    def check_likes_known(self) -> None:
        """Warn if lift needs likes that the file does not have; raise UsageError if a lift weight was given."""
        if self.lift != 0.0:
            self.model.lift_weight(self.options.lift, self.model.users.knows_likes)

    def answer(self, users: UserBatch, threads: int | None = 1) -> Pairs:
        """Find the best items of users, with the probabilities and all else that columns are computed from."""
        ids, scores = self.rank(users, threads)
        weights = consideration_weights(self.model, users.known_likes(self.model), ids, users.limits, threads)
        return Pairs(self.model, users, ids, weights, scores, self.options.interval)

    def rank(self, users: UserBatch, threads: int | None = 1) -> Lists:
        """Find (ids, scores) of the best items, highest first; cold users get the popular ones."""
        all_scored = self.by_logit and self.options.index is None
        rank_block: Callable[[UserBatch], Lists] = self._best_by_logit if all_scored else self._one_by_one
        if self.diversity is not None:
            rank_block = partial(self._diverse, rank_block)
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
        cold = [] if users.warm is None else np.flatnonzero(~users.warm).tolist()
        if cold and self._limits(users) is None:
            ids[cold], scores[cold] = self._popular(self._excluded_mask())
        else:
            for user in cold:
                ids[user], scores[user] = self._popular(self._excluded_mask(users.part(user, user + 1)))
        return ids, scores

    # --- Items that are left out ---

    def _limits(self, users: UserBatch) -> Known | None:
        """Impossible pairs that are left out; None if there are none or they are allowed."""
        return None if self.options.allow_impossible else users.limits

    def _seen(self, users: UserBatch) -> Adjacency | None:
        """Items that each of these users does not get: impossible ones, and likes unless the options include them."""
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

    def _excluded_mask(self, user: UserBatch | None = None) -> NDArray[np.bool_]:
        """Mask of the items that nobody gets, or that this one user does not get."""
        mask = np.zeros(self.model.item_count, bool) if self.excluded is None else self.excluded.copy()
        if user is not None and (seen := self._seen(user)) is not None:
            mask[seen.indices] = True
        return mask

    # --- By the logit, many users at a time ---

    def _best_by_logit(self, users: UserBatch, scored: ScoredItems | None = None) -> Lists:
        """Rank by the mean logit + popularity * log pi + lift * log(w / pi), in one pass over items."""
        strips, base, seen, lift = scored or self._all_items(users)
        side = users.side
        ids, scores = compiled.top_items(
            side.factors,
            side.rows,
            side.rows.shape[1],
            users.rows,
            strips,
            base,
            self.candidates,
            None if seen is None else seen.starts,
            None if seen is None else seen.indices,
            *lift,
        )
        if side.bias_mean is not None:
            scores += side.bias_mean[users.rows][:, None]
        return ids, scores

    def _all_items(self, users: UserBatch) -> ScoredItems:
        lift, liked, terms = self._lift_of(users), users.liked, tuple[Any, ...]()
        if lift is not None and liked is not None:
            terms = lift.table(liked.indices), self.lift, liked.starts, liked.indices
        return ScoredItems(self.model.columns.strips, self._base, self._seen(users), terms)

    def _lift_of(self, users: UserBatch) -> Lift | None:
        """Lift of the lists of these users; None if it has no part in them."""
        return None if self.lift == 0.0 or users.liked is None else self.model.lift

    @locked_cached_property
    def _base(self) -> NDArray[np.float32]:
        """`ScoredItems.base` of all items.

        The model keeps the last one that excludes nothing: for a million items it takes a fifth of a request to make.
        """
        columns = self.model.columns
        popularity, kept = columns.base
        if self.excluded is None and popularity == self.popularity:
            return kept
        base = self._base_of(slice(None), len(columns.strips))
        if self.excluded is None:
            columns.base = self.popularity, base
        return base

    def _base_of(self, items: NDArray[np.int32] | slice, strips: int) -> NDArray[np.float32]:
        """`ScoredItems.base` of some items, over so many strips."""
        values = utility(self.model.items.biases[0][items], self.model.log_popularity[items], self.popularity)
        base = np.full(strips * STRIP, -np.inf, np.float32)
        base[: len(values)] = values
        if self.excluded is not None:
            base[: len(values)][self.excluded[items]] = -np.inf
        return base

    # --- From an index, one user at a time ---

    def _best_near(self, user: UserBatch) -> Lists:
        """Rank by the same score the items that the index has near a user, and the items that the likes lead to.

        The kernel reads a catalogue of these candidates alone, in the order of the whole one. All items are scored if
        the index finds too few items that may be recommended, or if the candidates are many.
        """
        index, none = self.options.index, np.empty(0, np.int32)
        assert index is not None
        seen = none if (pairs := self._seen(user)) is None else pairs.indices
        found = index.near(user.side.mean[user.rows[0]], self.popularity, self.candidates + len(seen) + SPARE)
        allowed = found if self.excluded is None else found[~self.excluded[found]]
        liked, lift = none if user.liked is None else user.liked.indices, self._lift_of(user)
        steps = [] if lift is None else [lift.walk.row(int(item)) for item in liked]
        few = np.isin(allowed, seen, invert=True).sum() < self.candidates
        if few or len(found) + sum(len(to) for to, _ in steps) > MOST_CANDIDATES * self.model.item_count:
            return self._best_by_logit(user)
        items = np.unique(np.concatenate([found, liked, *(to for to, _ in steps)]))
        strips = strips_of(self.model.items.mean[items])
        terms = () if lift is None else self._lift_among(items, len(strips), lift, liked, steps)
        hidden = Adjacency.of_rows([places_among(items, np.intersect1d(items, seen))])
        scored = ScoredItems(strips, self._base_of(items, len(strips)), hidden, terms)
        ids, scores = self._best_by_logit(user, scored)
        return np.where(ids < 0, np.int32(-1), items[ids]), scores

    def _lift_among(
        self, items: NDArray[np.int32], strips: int, lift: Lift, liked: NDArray[np.int32], steps: list[Any]
    ) -> tuple[Any, ...]:
        """`ScoredItems.lift` of one user among some items; `steps` are rows of the walk's table, one a like."""
        count = len(liked)  # row i of the new table is of like i
        lengths, rest = np.zeros(len(items), np.int64), np.ones(len(items), np.float32)
        lengths[:count], rest[:count] = [len(to) for to, _ in steps], lift.walk.rest[liked]
        inverse = np.zeros(strips * STRIP, np.float32)
        inverse[: len(items)] = lift.walk.inverse[items]
        rows = (
            np.append(0, np.cumsum(lengths)),
            places_among(items, np.concatenate([liked[:0], *(to for to, _ in steps)])),
            np.concatenate([rest[:0], *(shares for _, shares in steps)]),
            rest,
        )
        table = lift.table_of(rows, inverse)
        return table, self.lift, np.array([0, count]), np.arange(count, dtype=np.int32)

    # --- Others, one user at a time ---

    def _one_by_one(self, users: UserBatch) -> Lists:
        """Make lists for one user at a time, so that they do not depend on the other users: BLAS adds in another order
        for each number of rows."""
        rank_one = self._best_by_moments if self.options.index is None else self._best_near
        lists = [rank_one(users.part(i, i + 1)) for i in range(len(users.rows))]
        ids, scores = map(np.concatenate, zip(*lists))
        return ids, scores

    def _best_by_moments(self, user: UserBatch) -> Lists:
        """Rank by the paper's scores, with exploration, or with a tilt, from means and variances of all items."""
        model, options = self.model, self.options
        mean = model.columns.means(user.side, user.rows)
        variance = model.variance_scale * model.columns.variances(user.side, user.rows)
        if options.score is None:
            values = utility(mean, model.log_popularity, self.popularity)
            if user.liked is not None and self._lift_of(user) is not None:
                values = values + np.float32(self.lift) * model.log_lift(user.liked)
            if model.plan.tilt != 0.0:
                values = values + tilt_term(mean, model.plan, self._offset_of(user))
            values = explore(values, variance, options.explore_kappa, options.thompson_seed, user.keys)
        elif options.score == "p_like":
            items = np.arange(model.item_count)
            known = pair_covariates(model, user.known_likes(model), user.keys, np.zeros_like(items), items)
            values = model.recalibration.line(moderated_logit(mean, variance), known)
        else:
            values = paper_score(options.score, mean, variance, model.popularity)
        ids, scores = self._best(values[0], self._excluded_mask(user))
        return ids[None], (sigmoid(scores) if options.score == "p_like" else scores)[None]

    def _offset_of(self, user: UserBatch) -> NDArray[np.float64]:
        """Offset of the user's logits; -log c if the likes are not known."""
        if user.liked is None:
            return np.array([self.model.plan.offset])
        return logit_offset(self.model, user.liked, user.limits)

    def _popular(self, excluded: NDArray[np.bool_]) -> Lists:
        """List of a cold user."""
        ids, scores = self._best(self.model.log_popularity, excluded)
        return (ids, scores) if self.diversity is None else self.diversity.choose(ids[None], scores[None], self.count)

    def _diverse(self, rank_block: Callable[[UserBatch], Lists], users: UserBatch) -> Lists:
        """Lists chosen from the candidates that `rank_block` ranks."""
        assert self.diversity is not None
        return self.diversity.choose(*rank_block(users), self.count)

    def _best(self, values: NDArray[Any], excluded: NDArray[np.bool_]) -> Lists:
        """Choose one row of (ids, scores) from the values of all items."""
        chosen = best(values, self.candidates, excluded)
        ids, scores = np.full(self.candidates, -1, np.int32), np.full(self.candidates, np.nan, np.float32)
        ids[: len(chosen)], scores[: len(chosen)] = chosen, values[chosen]
        return ids, scores


def places_among(items: NDArray[np.int32], some: NDArray[np.int32]) -> NDArray[np.int32]:
    """Places of some items in an ascending list that has them."""
    return np.searchsorted(items, some).astype(np.int32)


def recommend_lists(
    ranker: Ranker, userid: Any, user_items: Any, N: int, recalculate_user: bool, threads: int | None
) -> Ranked:
    """Find the best items of users, in the form of implicit: short rows of several users are filled up to N."""
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
    ids, scores = ranker.rank(UserBatch(side, local, keys, liked, None, limits, user_items is not None), threads)
    if rows.ndim == 0:
        length = int((ids[0] >= 0).sum())
        return ranker.items.ranked((ids[0, :length], scores[0, :length]))
    missing = ((0, 0), (0, N - ranker.count))
    padded = np.pad(ids, missing, constant_values=-1), np.pad(scores, missing, constant_values=np.nan)
    return ranker.items.ranked(padded)


def user_vectors(users: Side) -> NDArray[np.float32]:
    """Vectors of users for a vector store, [users, K + 2]; times `item_vectors` they are the scores without lift."""
    parts = [users.mean, np.ones((len(users), 2), np.float32)]
    return np.concatenate([*parts, users.biases[0][:, None]] if users.has_bias else parts, axis=1)


def item_vectors(model: Model, popularity: float | None) -> NDArray[np.float32]:
    """Vectors of items for a vector store, [items, K + 2].

    The last two coordinates are the bias and `popularity` * log pi, against ones of the user. With user biases there is
    a third, a one against the user's bias.
    """
    weight = model.plan.popularity if popularity is None else finite("popularity", popularity)
    items = model.items
    parts = [items.mean, items.biases[0][:, None], (np.float32(weight) * model.log_popularity)[:, None]]
    return np.concatenate([*parts, np.ones((len(items), 1), np.float32)] if model.users.has_bias else parts, axis=1)
