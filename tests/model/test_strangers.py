"""Rows that no likelihood has narrowed: predictions multiply variances by rho, and must not widen these."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from considerate import GraphRecommender, Recommender
from considerate.data.graph import Adjacency
from considerate.evaluation.links import edge_pairs
from considerate.model.predict import strangers
from considerate.model.removal import without_users
from tests.graphs.test_merged import hubs, matrix
from tests.helpers.likes import as_table, planted

RHO = 3.0
NOTHING = Adjacency(np.zeros(2, np.int64), np.empty(0, np.int32))


@pytest.fixture(scope="module")
def fitted() -> Recommender:
    settings = {"factors": 4, "sweeps": 6, "user_bias": True, "likelihood_weight": RHO}
    return Recommender(**settings).fit(as_table(planted(users=80)))


def prior_variance(fitted: Recommender, item: int) -> float:
    """Variance of the logit of a user at the prior with an item."""
    model, items = fitted.model_, fitted.model_.items
    assert model.precisions.user_bias is not None
    tau, tau_bias = model.precisions.user.mean, model.precisions.user_bias.mean
    mean, variance = items.mean[item].astype(float), items.variance[item].astype(float)
    return float((mean**2 + variance).sum() / tau + 1 / tau_bias + RHO * items.biases[1][item])


def interval_variance(low: float, high: float) -> float:
    return float(((np.log(high / (1 - high)) - np.log(low / (1 - low))) / (2 * 1.6448536)) ** 2)


def test_a_user_nobody_knows_has_the_variance_of_the_prior(fitted: Recommender) -> None:
    table = fitted.recommend_table(["nobody"], N=5, cold="popular", interval="posterior")
    for row in table.to_pylist():
        item = int(fitted.model_.item_names().row(row["item"]))
        assert interval_variance(row["low"], row["high"]) == pytest.approx(prior_variance(fitted, item), rel=1e-3)


def test_a_user_folded_in_from_nothing_has_the_variance_of_the_prior(fitted: Recommender) -> None:
    model = fitted.model_
    assert model.precisions.user_bias is not None
    for side in (model.fold_in.users(NOTHING), strangers(1, model.shared, RHO)):
        np.testing.assert_allclose(RHO * side.variance, 1 / model.precisions.user.mean, rtol=1e-5)
        np.testing.assert_allclose(RHO * side.biases[1], 1 / model.precisions.user_bias.mean, rtol=1e-5)
    one = Adjacency(np.array([0, 1, 1]), np.zeros(1, np.int32))
    both = model.fold_in.users(one)
    assert (RHO * both.variance[0] < 1.5 / model.precisions.user.mean).all()
    np.testing.assert_allclose(RHO * both.variance[1], 1 / model.precisions.user.mean, rtol=1e-5)
    np.testing.assert_array_equal(both.rows[0], model.fold_in.users(one.between(0, 1)).rows[0])


def test_one_known_by_what_was_considered_alone_is_narrowed(fitted: Recommender) -> None:
    """The likelihood of what was considered narrows as that of a like does: rho belongs in its variance."""
    model, considered = fitted.model_, Adjacency(np.array([0, 3]), np.arange(3, dtype=np.int32))
    side = model.fold_in.users(NOTHING, considered=considered)
    assert (side.variance < 1 / model.precisions.user.mean).all()
    assert side.mean.any()


def test_an_item_without_likes_has_the_variance_of_its_prior(fitted: Recommender) -> None:
    model = fitted.model_
    side = model.fold_in.items(NOTHING, model.users.whole().side, model.passing, np.zeros(1))
    np.testing.assert_allclose(RHO * side.variance, 1 / model.precisions.item.mean, rtol=1e-5)


def test_a_forgotten_row_is_at_the_prior(fitted: Recommender) -> None:
    X = sp.csr_matrix(np.random.default_rng(0).random((40, 20)) < 0.3)
    model = Recommender(factors=3, sweeps=4, likelihood_weight=RHO).fit(X).model_
    left = without_users(model, np.array([4])).users.whole()
    np.testing.assert_allclose(RHO * left.side.variance[4], 1 / model.precisions.user.mean, rtol=1e-5)


def test_a_vertex_without_links_has_the_variance_of_the_prior() -> None:
    edges = hubs()
    lonely = int(np.flatnonzero(edges.degrees == 0)[0])
    settings = {"factors": 4, "sweeps": 8, "likelihood_weight": RHO, "threads": 1}
    for signed in (False, True):
        model = GraphRecommender(**settings, signed=signed).fit(matrix(edges)).model_
        assert model.precisions.item_bias is not None
        # the precision was learned once more after the last step
        np.testing.assert_allclose(RHO * model.items.variance[lonely], 1 / model.precisions.item.mean, rtol=0.1)
        other = int(edge_pairs(edges)[0][0])
        mean, variance = model.items.mean[other].astype(float), model.items.variance[other].astype(float)
        tau, tau_bias = model.precisions.item.mean, model.precisions.item_bias.mean
        wanted = (mean**2 + variance).sum() / tau + 1 / tau_bias + RHO * model.items.biases[1][other]
        for pair in ((lonely, other), (other, lonely)):
            assert model.pair_logits(*map(np.array, pair))[1] ** 2 == pytest.approx(wanted, rel=0.1)
