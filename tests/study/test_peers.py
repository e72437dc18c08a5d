"""Peers: each fits what its name says, goes on from where it was, and is a function of its seed."""

from __future__ import annotations

import itertools
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from considerate.data.graph import Graph
from considerate.errors import UsageError
from considerate.evaluation.ranks import held_ranks
from considerate.evaluation.split import HeldOut, one_per_user
from considerate.study.peers import (
    ALS,
    BPR,
    EASE,
    EASE_ITEMS,
    GFCF,
    MIXING,
    MostLiked,
    Own,
    Peer,
    Walk,
    as_peer,
    ease_weights,
    epochs_at_most,
    fit_peer,
    standard_peers,
    top_right_vectors,
    training_matrix,
)
from tests.helpers.likes import planted, skewed


def graph_of(matrix: Any) -> Graph:
    users, items = matrix.nonzero()
    return Graph.from_pairs(users.astype(np.int32), items.astype(np.int32), *matrix.shape)


@pytest.fixture(scope="module")
def held() -> HeldOut:
    return one_per_user(graph_of(planted(users=300, items=60, clusters=3)), 0)


def mean_rank(peer: Peer, held: HeldOut, settings: dict[str, Any], **more: Any) -> float:
    return float(held_ranks(fit_peer(peer, held.train, settings, **more).scorer, held).scores.mean())


def test_ease_is_the_ridge_regression_of_every_item_on_the_others() -> None:
    matrix = skewed(users=60, items=12)
    X, ridge = matrix.toarray().astype(np.float64), 3.0
    weights = ease_weights(matrix, ridge)
    for item in range(X.shape[1]):
        others = np.delete(np.arange(X.shape[1]), item)
        A = X[:, others]
        expected = np.linalg.solve(A.T @ A + ridge * np.eye(len(others)), A.T @ X[:, item])
        np.testing.assert_allclose(weights[others, item], expected, atol=1e-5)
        assert weights[item, item] == 0.0


def with_empty_rows(seed: int = 0) -> Any:
    """Likes of two disconnected pieces; the last user likes nothing, and nobody likes the last item."""
    likes = np.zeros((25, 14), np.float32)
    likes[:15, :8] = skewed(users=15, items=8, seed=seed).toarray()
    likes[15:24, 8:13] = skewed(users=9, items=5, seed=seed).toarray()
    return sp.csr_matrix(likes)


def test_the_walk_counts_every_path() -> None:
    likes = with_empty_rows()
    X = likes.toarray().astype(np.float64)
    d_user, d_item = X.sum(axis=1), X.sum(axis=0)
    walk = np.zeros_like(X)
    for user, item in zip(*likes.nonzero()):  # a like, one who likes it, one of that user's likes
        for other in np.flatnonzero(X[:, item]):
            walk[user, X[other] > 0] += 1.0 / (d_user[user] * d_item[item] * d_user[other])
    expected = (1 - MIXING) * walk + MIXING * d_item / d_item.sum()
    scores = fit_peer(Walk(), graph_of(likes), Walk.trials[0]).scorer.scores(np.arange(25))
    np.testing.assert_allclose(scores, expected, rtol=2e-6)
    np.testing.assert_allclose(d_user @ walk, d_item, rtol=1e-12)  # it keeps the degrees


@pytest.mark.parametrize("settings", Walk.trials)
def test_the_exponents_of_the_walk_are_of_the_degrees(settings: dict[str, float]) -> None:
    likes = with_empty_rows()
    X = likes.toarray().astype(np.float64)
    users, items = (np.maximum(X.sum(axis=axis), 1.0) for axis in (1, 0))
    inner = np.diag(items ** -settings["first"]) @ X.T @ np.diag(users ** -settings["user"]) @ X
    met = X @ inner @ np.diag(items ** -settings["last"])
    anyone = X.sum(axis=0) * items ** -settings["last"]
    rows = np.arange(24)
    expected = (1 - MIXING) * met[rows] / met[rows].sum(axis=1, keepdims=True) + MIXING * anyone / anyone.sum()
    scores = fit_peer(Walk(), graph_of(likes), settings).scorer.scores(rows)
    np.testing.assert_allclose(scores, expected, rtol=5e-6)


@pytest.mark.parametrize("dense_side", [0, 1024])
@pytest.mark.parametrize("transposed", [False, True])
def test_gf_cf_is_the_filter_of_its_paper(dense_side: int, transposed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("considerate.study.peers.DENSE_SIDE", dense_side)
    likes = with_empty_rows()
    likes = likes.T.tocsr() if transposed else likes
    X = likes.toarray().astype(np.float64)
    users, items = (np.maximum(X.sum(axis=axis), 1.0) for axis in (1, 0))
    R = X / np.sqrt(users)[:, None] / np.sqrt(items)
    V = np.linalg.svd(R)[2][:5].T
    low = np.diag(items**-0.5) @ V @ V.T @ np.diag(items**0.5)
    rows = np.arange(len(X))
    scores = fit_peer(GFCF(), graph_of(likes), {"alpha": 0.3, "rank": 5}).scorer.scores(rows)
    np.testing.assert_allclose(scores, X @ (R.T @ R + 0.3 * low), atol=2e-6)


@pytest.mark.parametrize("dense_side", [0, 1024])
def test_vectors_of_no_value_are_left_out(dense_side: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("considerate.study.peers.DENSE_SIDE", dense_side)
    likes = sp.csr_matrix(np.kron(np.eye(3), np.ones((4, 2))))  # three pieces, so three values
    vectors = top_right_vectors(likes / np.sqrt(8.0), 5)
    np.testing.assert_allclose(vectors.T @ vectors, np.kron(np.eye(3), np.full((2, 2), 0.5)), atol=1e-12)


def test_the_matrix_holds_the_likes_of_the_graph() -> None:
    likes = skewed(users=40, items=10)
    assert (training_matrix(graph_of(likes)) != likes).nnz == 0


def test_popularity_is_the_number_of_likes(held: HeldOut) -> None:
    scores = fit_peer(MostLiked(), held.train, {}).scorer.scores(np.array([0, 5]))
    assert np.array_equal(scores, np.stack([held.train.by_item.degrees] * 2))


@pytest.mark.parametrize(
    ("peer", "settings"),
    [
        (BPR("BPR-uniform", 4), {"learning_rate": 0.05, "lambda_reg": 0.01, "iterations": 60}),
        (BPR("BPR-popularity", 4, weighted=True), {"learning_rate": 0.05, "lambda_reg": 0.01, "iterations": 60}),
        (ALS(factors=4), {"alpha": 10.0, "regularization": 1.0, "iterations": 6}),
        (EASE(), {"ridge": 50.0}),
        (Walk(), Walk.trials[0]),
        (GFCF(), {"alpha": 0.3, "rank": 3}),
    ],
    ids=lambda one: getattr(one, "name", ""),
)
def test_a_peer_finds_planted_taste(peer: Peer, settings: dict[str, Any], held: HeldOut) -> None:
    why = peer.unavailable(held.train)
    if why is not None:
        pytest.skip(why)
    learned = mean_rank(peer, held, settings)
    assert learned > mean_rank(MostLiked(), held, {}) + 0.15
    assert learned == mean_rank(peer, held, settings)  # a function of the seed


@pytest.mark.parametrize("weighted", [False, True])
def test_bpr_goes_on_from_one_snapshot_to_the_next(
    weighted: bool, held: HeldOut, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cornac")
    clock = itertools.count()  # a second passes whenever it is read
    monkeypatch.setattr("considerate.study.peers.time", SimpleNamespace(perf_counter=clock.__next__))
    settings = {"learning_rate": 0.05, "lambda_reg": 0.01, "iterations": 40}
    seen, scores = [], []
    for one in BPR("BPR", 4, weighted).snapshots(held.train, settings, 0, 1):
        seen.append(one)
        scores.append(one.scorer.scores(np.arange(5)))
        next(clock)  # the clock stands while a snapshot is looked at
    assert [one.iterations for one in seen] == [5, 10, 15, 20, 25, 31, 39, 40]
    assert [one.seconds for one in seen] == list(range(1, 9))
    for one, then in zip(seen, scores):
        assert np.array_equal(one.scorer.scores(np.arange(5)), then), "a snapshot changed after it was taken"
    ranks = [float(held_ranks(one.scorer, held).scores.mean()) for one in seen]
    assert ranks[-1] > ranks[0] + 0.05


def test_als_stops_after_the_given_iterations(held: HeldOut) -> None:
    pytest.importorskip("implicit")
    marks = [one.iterations for one in ALS(factors=4).snapshots(held.train, {"iterations": 5}, 0, 1)]
    assert marks == [2, 4, 5]
    assert [one.iterations for one in ALS(factors=4).snapshots(held.train, {}, 0, 1)][-1] == 20


def test_every_peer_has_at_most_six_trials_and_none_twice() -> None:
    for peer in standard_peers():
        trials = [tuple(sorted(one.items())) for one in peer.trials]
        assert 1 <= len(trials) <= 6
        assert len(set(trials)) == len(trials)
    assert [peer.name for peer in standard_peers()] == [
        "popularity",
        "BPR-uniform",
        "BPR-popularity",
        "ALS",
        "EASE",
        "walk",
        "GF-CF",
    ]
    assert [len(peer.trials) for peer in standard_peers()] == [1, 6, 6, 6, 6, 6, 6]


def test_small_data_gets_more_epochs() -> None:
    assert epochs_at_most(10**7) == 200
    assert epochs_at_most(50_000) == 600
    assert epochs_at_most(10) == 1000


def test_a_fit_that_diverges_is_refused(held: HeldOut) -> None:
    pytest.importorskip("cornac")
    with pytest.raises(UsageError, match="diverged"):
        fit_peer(BPR("BPR", 4), held.train, {"learning_rate": 1e6, "lambda_reg": 0.5})


def test_ease_leaves_large_catalogues_alone() -> None:
    few = Graph.from_pairs(np.zeros(1, np.int32), np.zeros(1, np.int32), 1, EASE_ITEMS - 1)
    many = Graph.from_pairs(np.zeros(1, np.int32), np.zeros(1, np.int32), 1, EASE_ITEMS)
    assert EASE().unavailable(few) is None
    assert "10,000" in str(EASE().unavailable(many))


def test_a_package_that_is_missing_is_named(held: HeldOut, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cornac", None)  # what Python does where it is not installed: ImportError
    monkeypatch.setitem(sys.modules, "implicit", None)
    assert "considerate[study]" in str(BPR("BPR").unavailable(held.train))
    assert "implicit" in str(ALS().unavailable(held.train))
    assert MostLiked().unavailable(held.train) is None


class Degrees:
    """As implicit's models are: fit, then recommend."""

    def __init__(self) -> None:
        self.degree: Any = None

    def fit(self, matrix: Any) -> None:
        self.degree = np.asarray(matrix.sum(axis=0)).ravel()

    def recommend(self, users: Any, likes: Any, N: int = 10, filter_already_liked_items: bool = True) -> Any:
        order = np.argsort(-self.degree, kind="stable")[:N]
        return np.tile(order, (len(users), 1)), np.zeros((len(users), N))


def test_own_recommenders_join(held: HeldOut) -> None:
    model = Degrees()
    peer = as_peer(model)
    order = held_ranks(fit_peer(peer, held.train, {}).scorer, held)
    popularity = held_ranks(fit_peer(MostLiked(), held.train, {}).scorer, held)
    assert np.all(order.above >= popularity.above)
    assert np.all(order.above <= popularity.above + popularity.ties)
    assert peer.name == "Degrees"
    assert model.degree is None, "the object that was given was fitted itself"

    def by_likes(matrix: Any) -> Any:
        degree = np.asarray(matrix.sum(axis=0)).ravel()
        return lambda users: np.tile(degree, (len(users), 1))

    assert as_peer(by_likes).name == "by_likes"
    assert mean_rank(as_peer(by_likes), held, {}) == mean_rank(MostLiked(), held, {})
    own = Own("mine", by_likes, version="1")
    assert as_peer(own) is own
    with pytest.raises(UsageError, match="cannot join"):
        as_peer(3)
