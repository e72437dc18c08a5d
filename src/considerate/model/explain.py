"""Reasons of a recommendation, and the users and items most alike.

The reasons are the user's likes that moved the logit of the item, and the likes that lead to it by the walk. Users or
items are alike if the cosine of their mean vectors is large.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.features import INTERCEPT
from considerate.data.graph import Adjacency
from considerate.data.vocabulary import Id
from considerate.errors import UsageError
from considerate.inference.hidden import Consideration
from considerate.inference.plan import FitPlan
from considerate.inference.posterior import Posterior, Side
from considerate.inference.wishart import unpack
from considerate.kernels.reference import logistic_curvature, logistic_expectations
from considerate.model.changes import folded_items
from considerate.model.considered import consideration_weights, logit_offset
from considerate.model.liking import moderated_logit
from considerate.model.model import Model
from considerate.model.names import By, Lists, Names, Ranked, check_count
from considerate.model.pairs import Pairs, UserBatch
from considerate.model.predict import logit_moments
from considerate.model.ranking import best

Reasons = list[tuple[Id, float]]  # (item, share), the largest first
FeatureReasons = list[tuple[str, float]]  # (feature, share of the logit), the largest first


class Explanation(tuple[float, Reasons]):
    """Pair (p(like), liked items with their shares of the logit); attributes explain why the item is considered."""

    p_considered: float | None  # None: the user likes nothing
    considered_because: Reasons  # liked items with their shares of w, the chance to meet the item
    by_popularity: float  # popularity's share of w; all shares add up to 1
    because_of: FeatureReasons  # features of the item with the terms that they add to the logit: ("genre: sport", 0.4)
    recalibrated_by: FeatureReasons  # terms that judged pairs add to the logit of p(like): ("log popularity", 0.3)

    def __new__(
        cls,
        p_like: float,
        liked_because: Reasons,
        p_considered: float | None,
        considered_because: Reasons,
        by_popularity: float,
        because_of: FeatureReasons | None = None,
        recalibrated_by: FeatureReasons | None = None,
    ) -> Explanation:
        self = super().__new__(cls, (p_like, liked_because))
        self.p_considered, self.considered_because, self.by_popularity = p_considered, considered_because, by_popularity
        self.because_of, self.recalibrated_by = because_of or [], recalibrated_by or []
        return self

    def __getnewargs__(self) -> tuple[Any, ...]:
        return *self, *(getattr(self, name) for name in Explanation.__annotations__)

    def to_dict(self, model: Model) -> dict[str, Any]:
        """Reasons as plain values, with the titles of the items and the ids of the data."""
        names = model.item_names()

        def listed(kind: str, reasons: Reasons) -> list[dict[str, Any]]:
            return [{"item": item, "title": model.title(names.row(item)), kind: share} for item, share in reasons]

        features = [{"feature": name, "logit": share} for name, share in self.because_of]
        judged = [{"number": name, "logit": share} for name, share in self.recalibrated_by]
        return {
            "because": listed("logit", self.liked_because),
            "considered_because": listed("share", self.considered_because),
            "by_popularity": self.by_popularity,
            **({"because_of": features} if features else {}),
            **({"recalibrated_by": judged} if judged else {}),
        }

    @property
    def p_like(self) -> float:
        return self[0]

    @property
    def liked_because(self) -> Reasons:
        return self[1]


def explain(model: Model, userid: Any, itemid: Any, user_items: Any, N: int, by: By = "id") -> Explanation:
    """Explain one pair by the N liked items that moved its logit most, and the N that lead to the item most."""
    names = model.item_names(by)
    if user_items is None:
        keys = np.array([model.user_names(by).row(userid)])
        users, rows = model.users.some(keys)
        user = UserBatch(users.side, rows, keys, users.liked.take(rows), None, model.limits_of(keys), folded=True)
        if user.likes.edges < users.degree[rows[0]]:
            raise UsageError("this model was saved without the likes; give the user's as user_items.")
    else:
        likes, row = names.likes(user_items), np.zeros(1, np.int64)
        user = UserBatch(model.fold_in.users(likes), row, row, likes, folded=True)
    return explain_item(model, user, names.row(itemid), N, names)


def explain_item(model: Model, user: UserBatch, item: int, N: int, names: Names) -> Explanation:
    """Explain an item to the one user of a batch, whose likes are known."""
    side, likes, ids = user.side.take(user.rows), user.likes, np.array([[item]], np.int32)
    weights = consideration_weights(model, likes, ids, user.limits)
    pair = Pairs(model, user, ids, weights)
    liked, offset = likes.indices, float(logit_offset(model, likes, user.limits)[0])
    shares = share_of_update(liked.astype(np.int64), side, model.shared, item, model.plan, likes.weights, offset)
    led = share_of_walk(liked, model.consideration, item)

    def largest(shares: NDArray[np.float64]) -> Reasons:
        """Items with the largest absolute shares; of a tie, the lower row."""
        order = np.lexsort((liked, -np.abs(shares)))[:N]
        return [(names.name(liked[i]), float(shares[i])) for i in order]

    x = float(moderated_logit(pair.mean, pair.variance)[0])
    covariates = pair.covariates and {name: values[0] for name, values in pair.covariates.items()}
    return Explanation(
        float(pair.liking.p_like[0]),
        largest(shares),
        float(pair.p_considered[0]) if len(liked) and not np.isnan(weights[0]) else None,
        [(name, share) for name, share in largest(led) if share > 0.0],
        1.0 - float(led.sum()),
        share_of_features(model, side, item)[:N],
        list(model.recalibration.parts(x, covariates).items()),
    )


def share_of_features(model: Model, users: Side, item: int) -> FeatureReasons:
    """Term of each feature of an item in the logit of the first of these users: f_j (A_j'u + beta_j).

    For an item without likes they add up to the logit, but for the user's bias and the terms that all items share.
    """
    learned = model.item_features
    if learned is None:
        return []
    features = learned.features.take(np.array([item]))
    which, vectors = features.indices, learned.weights.vectors.mean
    shares = features.values * (vectors[which] @ users.mean[0].astype(np.float64) + learned.bias_mean[which])
    order = np.lexsort((which, -np.abs(shares)))
    return [(learned.names[which[i]], float(shares[i])) for i in order if learned.names[which[i]] != INTERCEPT]


def share_of_walk(liked: NDArray[Any], table: Consideration | None, item: int) -> NDArray[np.float64]:
    """Share of each liked item n' in w_mn: (1 - eps) W_n'n / (d w_mn). The rest is popularity's."""
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
    liked: NDArray[Any],
    users: Side,
    posterior: Posterior,
    item: int,
    plan: FitPlan,
    weights: NDArray[Any] | None = None,
    offset: float | None = None,
) -> NDArray[np.float64]:
    """Share of each liked item in the logit of `item`, by its part in the user's update (eq. 15).

    The user's mean is P^-1 z, and z is a sum over items; so u'v_item = sum over n of v_item' P^-1 z_n. The diagonal of
    P is the posterior's, and the liked items alone make the rest; if covariances of users are kept, all of P is the
    posterior's. The offset of the user's logits is -log c if not given.
    """
    v, vs = posterior.items.mean[liked].astype(np.float64), posterior.items.variance[liked].astype(np.float64)
    offset = plan.offset if offset is None else offset
    bias = posterior.items.biases[0][liked].astype(np.float64) + float(users.biases[0][0]) + offset
    rows = np.zeros(len(liked), np.int64)
    mean, variance = logit_moments(users, posterior.items, rows, liked)
    logit = mean.astype(np.float64) + offset
    if plan.logistic == "quadrature":
        _, sigma, curvature = logistic_expectations(logit, variance.astype(np.float64))
        pull = 1.0 - sigma + curvature * logit
    else:
        curvature, pull = 2.0 * logistic_curvature(np.sqrt(logit**2 + variance)), np.full(len(liked), 0.5)
    weight = plan.likelihood_weight * (1.0 if weights is None else weights.astype(np.float64))  # rho kappa
    curvature, pull = weight * curvature, weight * pull
    if users.covariance is not None:
        P = np.linalg.inv(unpack(users.covariance[0], users.factors))
    else:
        P = np.einsum("n,nk,nl->kl", curvature, v, v) + np.diag((curvature[:, None] * vs).sum(axis=0))
        P += np.diag(1.0 / users.variance[0].astype(np.float64) - np.diag(P)).clip(min=0.0)
    pull = (pull - curvature * bias)[:, None] * v
    return np.asarray(pull @ np.linalg.solve(P, posterior.items.mean[item].astype(np.float64)))


def similar_items(
    model: Model, itemid: Any, N: int, liked_by: Adjacency | None, allowed: Any, denied: Any, by: By = "id"
) -> Ranked:
    """Find the items most like each of `itemid`, itself first. New or changed items are folded in from `liked_by`."""
    names, pieces = model.item_names(by), [(0, model.items.mean)]
    rows = names.rows(itemid, unknown=liked_by is not None)
    if liked_by is None:
        queries = model.items.mean[np.atleast_1d(rows)]
    elif liked_by.rows == rows.size:
        queries = folded_items(model, liked_by)[0].mean
    else:
        raise UsageError(
            f"item_users has {liked_by.rows} rows for {rows.size} items; give one row of likes for each item."
        )
    excluded = names.excluded(allowed, denied)
    return names.ranked(most_similar(pieces, rows, queries, N, excluded, itself=liked_by is None))


def similar_users(model: Model, userid: Any, N: int, allowed: Any, denied: Any, by: By = "id") -> Ranked:
    """Find the users most like each of `userid`, itself first."""
    names = model.user_names(by)
    rows = names.rows(userid)
    users, local = model.users.some(np.atleast_1d(rows))
    pieces = ((first, piece.side.mean) for first, piece in model.users.pieces())
    return names.ranked(most_similar(pieces, rows, users.side.mean[local], N, names.excluded(allowed, denied)))


def most_similar(
    pieces: Iterable[tuple[int, NDArray[Any]]],
    rows: NDArray[np.int64],
    queries: NDArray[Any],
    count: int,
    excluded: NDArray[np.bool_] | None,
    itself: bool = True,
) -> Lists:
    """Find the rows whose vectors have the largest cosine with each query; of a tie, the lower row.

    `pieces` has all vectors in order, some at a time, with the row number of the first; the answer does not depend on
    the cuts. With `itself`, query i is row i of `rows`, which then comes first.
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
                cosine[row - first] = 2.0  # itself first, whatever the rounding of its equals
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
