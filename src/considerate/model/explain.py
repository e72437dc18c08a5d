"""Why an item is recommended, by the user's likes that moved its logit and those that lead to it; and what is most
alike, by the cosine of mean vectors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency
from considerate.errors import UsageError
from considerate.inference.hidden import Consideration
from considerate.inference.posterior import Posterior, Side
from considerate.kernels.reference import logistic_curvature
from considerate.model.changes import folded_items
from considerate.model.considered import considered_probability, inclusion_probabilities
from considerate.model.model import Model
from considerate.model.predict import like_probability, logit_moments
from considerate.model.ranking import best
from considerate.model.rows import Lists, check_count, checked_rows, excluded_rows, likes_adjacency
from considerate.parameters import FitPlan

Reasons = list[tuple[int, float]]  # (item, share), the largest first


class Explanation(tuple[float, Reasons]):
    """The pair (p(like), liked items with their shares of the logit), and beside it why the item is considered."""

    p_considered: float | None  # None: the user likes nothing
    considered_because: Reasons  # liked items with their shares of w, the chance to meet the item
    by_popularity: float  # the share of w that is popularity's; all shares add up to 1

    def __new__(
        cls,
        p_like: float,
        liked_because: Reasons,
        p_considered: float | None,
        considered_because: Reasons,
        by_popularity: float,
    ) -> Explanation:
        self = super().__new__(cls, (p_like, liked_because))
        self.p_considered, self.considered_because, self.by_popularity = p_considered, considered_because, by_popularity
        return self

    def __getnewargs__(self) -> tuple[Any, ...]:
        return *self, self.p_considered, self.considered_because, self.by_popularity

    @property
    def p_like(self) -> float:
        return self[0]

    @property
    def liked_because(self) -> Reasons:
        return self[1]


def explain(model: Model, userid: Any, itemid: Any, user_items: Any, N: int) -> Explanation:
    """p(like), and the N liked items that moved the logit most, each with its share; by row numbers. Beside it,
    p(considered) and the N that lead to the item most."""
    if user_items is None:
        users, rows = model.users.some(checked_rows(userid, model.user_count, "user").reshape(1))
        liked, user = users.liked.row(int(rows[0])), users.side.take(rows)
        if len(liked) < users.degree[rows[0]]:
            raise UsageError("this model was saved without the likes; give the user's as user_items.")
    else:
        adjacency = likes_adjacency(user_items, model.item_count)
        liked, user = adjacency.row(0), model.fold_in.users(adjacency)
    item = int(checked_rows(itemid, model.item_count, "item"))
    mean, variance = logit_moments(user, model.items, np.zeros(1, np.int64), np.array([item]))
    shares = share_of_update(liked.astype(np.int64), user, model.shared, item, model.plan)
    probability = like_probability(mean, model.variance_scale * variance, model.recalibration)
    inclusion = inclusion_probabilities(model, Adjacency.of_rows([liked]), np.array([[item]], np.int32))
    considered = float(considered_probability(inclusion, mean)[0]) if len(liked) else None
    led = share_of_walk(liked, model.consideration, item)
    because = [(one, share) for one, share in _largest(liked, led, N) if share > 0.0]
    return Explanation(float(probability[0]), _largest(liked, shares, N), considered, because, 1.0 - float(led.sum()))


def _largest(items: NDArray[Any], shares: NDArray[np.float64], count: int) -> Reasons:
    """The items of the largest shares, up or down, the lower item where they tie."""
    order = np.lexsort((items, -np.abs(shares)))[:count]
    return [(int(items[i]), float(shares[i])) for i in order]


def share_of_walk(liked: NDArray[Any], table: Consideration | None, item: int) -> NDArray[np.float64]:
    """The share of w_mn that each liked item n' leads to `item` by: (1 - eps) W_n'n / (d w_mn). The rest is pi's."""
    led = np.zeros(len(liked))
    if table is None or len(liked) == 0 or table.weights[item] == 0.0:
        return led
    for i, row in enumerate(liked):
        items, shares = table.row(row)
        led[i] = shares[items == item].sum(dtype=np.float64)
    led *= (1.0 - table.mix) / len(liked)
    background = table.mix + (1.0 - table.mix) * float(table.rest[liked].mean(dtype=np.float64))
    return np.asarray(led / (led.sum() + background * table.p[item]))


def share_of_update(
    liked: NDArray[Any], users: Side, posterior: Posterior, item: int, plan: FitPlan
) -> NDArray[np.float64]:
    """How much each liked item moves the logit of `item`, by its share of the user's update (eq. 15).

    The user's mean is P^-1 z, and z is a sum over items; so u'v_item = sum over n of v_item' P^-1 z_n. Given are the
    shares of the liked items, with P's diagonal that of the posterior and off it the liked items' part alone.
    """
    v, vs = posterior.items.mean[liked].astype(np.float64), posterior.items.variance[liked].astype(np.float64)
    bias = posterior.items.biases[0][liked].astype(np.float64) + float(users.biases[0][0]) + plan.offset
    rows = np.zeros(len(liked), np.int64)
    mean, variance = logit_moments(users, posterior.items, rows, liked)
    xi = np.sqrt((mean.astype(np.float64) + plan.offset) ** 2 + variance)
    curvature = 2.0 * plan.weight * logistic_curvature(xi)
    P = np.einsum("n,nk,nl->kl", curvature, v, v) + np.diag((curvature[:, None] * vs).sum(axis=0))
    P += np.diag(1.0 / users.variance[0].astype(np.float64) - np.diag(P)).clip(min=0.0)
    pull = (plan.weight * 0.5 - curvature * bias)[:, None] * v
    return np.asarray(pull @ np.linalg.solve(P, posterior.items.mean[item].astype(np.float64)))


def similar_items(
    model: Model, itemid: Any, N: int, recalculate: bool, item_users: Any, allowed: Any, denied: Any
) -> Lists:
    """The items most like each of `itemid`, itself first; to recalculate, those like items liked by `item_users`."""
    excluded = excluded_rows(model.item_count, allowed, denied, "row")
    pieces = [(0, model.items.mean)]
    if not recalculate:
        rows = checked_rows(itemid, model.item_count, "item")
        return most_similar(pieces, rows, model.items.mean[np.atleast_1d(rows)], N, excluded)
    if item_users is None:
        raise UsageError("recalculate_item needs item_users, the users who liked each item, one row an item.")
    rows, liked_by = checked_rows(itemid, 2**62, "item"), likes_adjacency(item_users, model.user_count)
    if liked_by.rows != rows.size:
        raise UsageError(
            f"item_users has {liked_by.rows} rows for {rows.size} items; give one row of likes for each item."
        )
    return most_similar(pieces, rows, folded_items(model, liked_by)[0].mean, N, excluded, itself=False)


def similar_users(model: Model, userid: Any, N: int, allowed: Any, denied: Any) -> Lists:
    """The users most like each of `userid`, itself first."""
    rows = checked_rows(userid, model.user_count, "user")
    users, local = model.users.some(np.atleast_1d(rows))
    pieces = ((first, piece.side.mean) for first, piece in model.users.pieces())
    excluded = excluded_rows(model.user_count, allowed, denied, "row")
    return most_similar(pieces, rows, users.side.mean[local], N, excluded)


def most_similar(
    pieces: Iterable[tuple[int, NDArray[Any]]],
    rows: NDArray[np.int64],
    queries: NDArray[Any],
    count: int,
    excluded: NDArray[np.bool_] | None,
    itself: bool = True,
) -> Lists:
    """The rows whose vectors have the largest cosine with each query, the lower row where they tie.

    `pieces` gives all vectors in order, some at a time, each time with the row number of the first; the answer does not
    depend on where they are cut. With `itself`, query i is row i of `rows`, which then comes first.
    """
    check_count(count)
    lengths = np.sqrt(np.einsum("nk,nk->n", queries, queries))
    nearest = [(np.empty(0, np.int64), np.empty(0, np.float32)) for _ in queries]
    for first, vectors in pieces:
        last = first + len(vectors)
        norms = np.sqrt(np.einsum("nk,nk->n", vectors, vectors))
        for i, row in enumerate(np.atleast_1d(rows)):
            cosine = np.minimum(np.einsum("nk,k->n", vectors, queries[i]) / np.maximum(norms * lengths[i], 1e-30), 1.0)
            if itself and first <= row < last:
                cosine[row - first] = 2.0  # itself first, whatever rounding says of its equals
            here = best(cosine, count, None if excluded is None else excluded[first:last])
            joined = np.append(nearest[i][0], here + first), np.append(nearest[i][1], cosine[here])
            order = best(joined[1], count)  # earlier rows come first, so the lower of two that tie stays first
            nearest[i] = joined[0][order], joined[1][order]
    if rows.ndim == 0:
        return nearest[0][0].astype(np.int32), np.minimum(nearest[0][1], 1.0)
    ids, cosines = np.full((len(rows), count), -1, np.int32), np.full((len(rows), count), np.nan, np.float32)
    for i, (chosen, values) in enumerate(nearest):
        ids[i, : len(chosen)], cosines[i, : len(chosen)] = chosen, np.minimum(values, 1.0)
    return ids, cosines
