"""The weights of features: their updates against the bound, on simulated data, and the same bits wherever they run."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from considerate import Recommender
from considerate.data.graph import Graph, leaf_splits, ranges, run_serially
from considerate.data.side_information import SideInformation
from considerate.distributed.backends.out_of_core import OutOfCore
from considerate.errors import DataError, UsageError
from considerate.fitting.session import make_estimator, make_popularity
from considerate.inference import features as module
from considerate.inference.features import (
    FeatureRows,
    FeatureWeights,
    FitFeatures,
    Gram,
    Regression,
    SideFeatures,
    step_weights,
)
from considerate.inference.plan import FitPlan
from considerate.inference.posterior import Gamma, Posterior
from considerate.inference.sweep import InMemory, State, begin_features
from considerate.kernels import compiled
from considerate.kernels.threads import LocalBackend
from tests.engine.test_inference import Problem, kinds, numeric_argmax, planted, problem, start, states
from tests.helpers import naive
from tests.helpers.divided_fits import Here, assert_same, several_parts, write_likes
from tests.helpers.feature_fits import features_of, fitted, random_features, side_of

dense_or_not = pytest.mark.parametrize("dense", [1024, 1], ids=["full", "factorised"])


class WithFeatures(Problem):
    """A problem whose users have two features and whose items have three."""

    @property
    def matrices(self) -> tuple[np.ndarray, np.ndarray]:
        return random_features(self.graph.user_count, 2, 1), random_features(self.graph.item_count, 3, 2)

    @property
    def runner(self) -> InMemory:
        blocks = self.graph.user_blocks, self.graph.item_blocks
        sides = [
            SideFeatures.of(features_of(one), ranges(leaf_splits(cut)), run_serially)
            for one, cut in zip(self.matrices, blocks)
        ]
        return replace(super().runner, features=FitFeatures(*sides))

    def side_terms(self, q: Posterior, names: tuple[str, ...] = ("user", "item")) -> dict[str, float]:
        """What the bound has of vectors, biases, weights of features and precisions, by brute force."""
        terms = {"precisions": sum(naive.gamma_term(one, self.prior) for one in vars(q.precisions).values() if one)}
        sides = (("user", q.users, q.user_weights), ("item", q.items, q.item_weights))
        for (name, side, weights), matrix in zip(sides, self.matrices):
            if name not in names:
                continue
            factor = naive.Factor.of(side)
            for ending, part, mean, variance in (
                ("", weights.vectors, factor.mean, factor.variance),
                ("_bias", weights.biases, factor.bias[:, None], factor.bias_variance[:, None]),
            ):
                key = {"": f"{name}s", "_bias": f"{name}_biases"}[ending]
                tau, columns = getattr(q.precisions, name + ending), mean.shape[1]
                covariance = covariance_of(part)
                terms[key] = naive.gaussian_term(mean - matrix @ part.mean, variance, tau)
                terms[key] -= 0.5 * tau.mean * columns * np.trace(matrix.T @ matrix @ covariance)
                log_tau = part.tau.mean_log
                energy = len(covariance) * (log_tau - math.log(2 * math.pi)) - part.tau.mean * np.trace(covariance)
                entropy = np.linalg.slogdet(2 * math.pi * math.e * covariance)[1]
                terms[key] += 0.5 * (columns * (energy + entropy) - part.tau.mean * (part.mean**2).sum())
                terms["precisions"] += naive.gamma_term(part.tau, self.prior)
        return terms


def covariance_of(part: Regression) -> np.ndarray:
    return np.diag(part.spread) if part.factorised else part.spread.T @ part.spread


def with_features(kind: str, graph: Graph | None = None, **changes: Any) -> WithFeatures:
    p = problem(kind, True, 1.5, graph=graph, **{"precision_delay": 2, **changes})
    return WithFeatures(p.graph, p.estimator, p.settings)


def begin(p: WithFeatures) -> State:
    state = start(Problem(p.graph, p.estimator, p.settings))
    return begin_features(state, p.runner.features.begin(state.posterior, p.settings))


@pytest.fixture
def full_up_to(monkeypatch: pytest.MonkeyPatch, dense: int) -> None:
    monkeypatch.setattr(module, "DENSE", dense)


# --- The bound, and the updates that climb it ---


@pytest.mark.usefixtures("full_up_to")
@dense_or_not
@kinds
def test_the_bound_equals_brute_force_term_by_term(kind, dense):
    p = with_features(kind)
    for state in states(p, 8, state=begin(p))[::4]:
        ours, q = p.runner.evaluate_bound(state), state.posterior
        assert q.item_weights.vectors.factorised == (dense == 1)
        for name, value in p.side_terms(q).items():
            assert ours.terms()[name] == pytest.approx(value, rel=1e-5, abs=1e-4), name
        assert next(p.runner.sweeps(state)).bound == ours
    assert np.abs(q.item_weights.vectors.mean).max() > 0.1


@pytest.mark.usefixtures("full_up_to")
@dense_or_not
def test_with_h_fixed_the_bound_never_falls(dense):
    for epsilon in (1.0, 0.3):
        p = with_features("sampled")
        bounds = np.array([p.runner.evaluate_bound(state).total for state in states(p, 40, epsilon, begin(p))])
        assert np.diff(bounds).min() > -2e-6 * abs(bounds[-1])
        assert bounds[-1] > bounds[0] + 3.0


@pytest.mark.parametrize(
    "wrong",
    [
        lambda new: replace(new, mean=1.5 * new.mean),
        lambda new: replace(new, mean=new.mean[::-1]),
        lambda new: replace(new, spread=0.3 * new.spread, trace=0.09 * new.trace),
    ],
    ids=["longer", "exchanged", "narrower"],
)
def test_wrong_updates_are_caught(wrong, monkeypatch):
    right = Gram.posterior
    p = with_features("sampled", planted(40, 30))
    state = states(p, 12, state=begin(p))[-1]
    monkeypatch.setattr(Gram, "posterior", lambda *arguments: wrong(right(*arguments)))
    bounds = np.array([p.runner.evaluate_bound(one).total for one in states(p, 2, state=state)])
    assert np.diff(bounds).min() < -1e-3


@pytest.mark.usefixtures("full_up_to")
@dense_or_not
def test_the_weights_update_is_the_argmax_of_the_bound(dense, monkeypatch):
    p = with_features("sampled", planted(8, 6))
    q = states(p, 6, state=begin(p))[-1].posterior
    side, old, taus = p.runner.features.items, q.item_weights, q.precisions.means_of("items")
    monkeypatch.setattr(module, "RELAXATION", 1.0)
    new = step_weights(old, side.gram, side.sums(q.items, run_serially), taus, p.settings)
    for name in ("vectors", "biases"):
        part, updated = getattr(old, name), getattr(new, name)
        F, C = part.mean.shape

        def given(x: np.ndarray, part: Regression = part, name: str = name, F: int = F, C: int = C) -> float:
            """Of means, of the logarithms of L's diagonal (or of the variances), and of what is below it."""
            if part.factorised:
                spread = np.exp(x[F * C :])
            else:
                spread = np.diag(np.exp(x[F * C : F * C + F]))
                spread[np.tril_indices(F, -1)] = x[F * C + F :]
            weights = replace(old, **{name: replace(part, mean=x[: F * C].reshape(F, C), spread=spread)})
            return sum(p.side_terms(replace(q, item_weights=weights), ("item",)).values())

        below = np.empty(0) if part.factorised else np.zeros(F * (F - 1) // 2)
        best = numeric_argmax(given, np.concatenate([part.mean.ravel(), np.zeros(F), below]))
        np.testing.assert_allclose(updated.mean.ravel(), best[: F * C], rtol=2e-3, atol=3e-4)
        spread = np.exp(best[F * C : F * C + F])
        if not part.factorised:
            spread = np.diag(spread)
            spread[np.tril_indices(F, -1)] = best[F * C + F :]
        np.testing.assert_allclose(
            covariance_of(updated), covariance_of(replace(part, spread=spread)), rtol=5e-3, atol=1e-4
        )

        def of_tau(x: np.ndarray, updated: Regression = updated, name: str = name) -> float:
            weights = replace(new, **{name: replace(updated, tau=Gamma(*np.exp(x)))})
            return sum(p.side_terms(replace(q, item_weights=weights), ("item",)).values())

        shape_and_rate = np.exp(numeric_argmax(of_tau, np.log([updated.tau.shape, updated.tau.rate]) + 0.2))
        np.testing.assert_allclose([updated.tau.shape, updated.tau.rate], shape_and_rate, rtol=2e-3)


def test_where_no_two_features_meet_a_factorised_q_is_the_full_one(monkeypatch):
    one_each = np.eye(5)[np.random.default_rng(0).integers(0, 5, 12)]
    found = []
    for dense in (1024, 1):
        monkeypatch.setattr(module, "DENSE", dense)
        p = with_features("expected")
        runner = replace(
            p.runner, features=FitFeatures(None, SideFeatures.of(features_of(one_each), [(0, 12)], run_serially))
        )
        for swept in runner.sweeps():
            if swept.state.sweep == 8:
                break
        found.append(swept.state.posterior)
    full, factorised = (q.item_weights.vectors for q in found)
    assert factorised.factorised
    assert not full.factorised
    np.testing.assert_allclose(factorised.mean, full.mean, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(np.diag(factorised.spread), covariance_of(full), rtol=1e-5, atol=1e-12)
    np.testing.assert_allclose(found[0].items.mean, found[1].items.mean, rtol=1e-4, atol=1e-6)


def test_conjugate_gradients_find_the_mean_of_the_full_q():
    matrix = random_features(300, 40)
    rows, sums = FeatureRows(features_of(matrix)), np.random.default_rng(1).normal(size=(40, 3))
    start_at = Regression(np.zeros((40, 3)), np.empty(0), Gamma(2.0, 3.0), 0.0)
    full, sparse = Gram(rows.gram().toarray()), Gram(rows.gram())
    exact = full.posterior(start_at, sums, 1.7)
    wanted = np.linalg.solve(2 / 3 * np.eye(40) + 1.7 * matrix.T @ matrix, 1.7 * sums)
    np.testing.assert_allclose(exact.mean, wanted, rtol=1e-5, atol=1e-9)
    assert exact.trace == pytest.approx(np.trace(matrix.T @ matrix @ covariance_of(exact)), rel=1e-6)
    found = start_at
    for _ in range(3):  # sweeps
        found = sparse.posterior(found, sums, 1.7)
    np.testing.assert_allclose(found.mean, wanted, rtol=1e-4, atol=1e-7)
    with pytest.raises(ValueError, match="positive definite"):
        compiled.inverse_factor(-np.eye(3))


def test_a_cold_row_has_the_prior_of_its_features():
    p = with_features("expected")
    q = states(p, 8, state=begin(p))[-1].posterior
    weights, rows = q.item_weights, FeatureRows(features_of(np.array([[0.0, 0.0, 0.0], [1.0, 0.5, 2.0]])))
    prior = weights.cold_prior(rows, (2.0, 3.0))
    assert not prior.mean[0].any()
    assert prior.precision[0, 0] == pytest.approx(2.0)
    f = np.array([1.0, 0.5, 2.0])
    np.testing.assert_allclose(prior.mean[1, :2], f @ weights.vectors.mean, rtol=1e-6)
    variance = 1 / 2.0 + f @ covariance_of(weights.vectors) @ f
    np.testing.assert_allclose(prior.precision[1, :2], 1 / variance, rtol=1e-6)
    assert prior.bias_precision[1] == pytest.approx(1 / (1 / 3.0 + f @ covariance_of(weights.biases) @ f))
    alone = replace(weights, biases=None)
    assert alone.cold_prior(rows, (2.0, 3.0)).bias_mean is None
    assert FeatureWeights(alone.vectors).parts == [alone.vectors]


def test_more_pairs_of_features_than_can_be_held_are_refused(monkeypatch):
    monkeypatch.setattr(module, "MOST_PAIRS", 10)
    monkeypatch.setattr(module, "DENSE", 1)
    with pytest.raises(UsageError, match="keep fewer features to a row"):
        FeatureRows(features_of(np.ones((3, 3)))).gram()


# --- Simulated data ---


@kinds
def test_the_weights_that_made_the_data_are_recovered(kind):
    random = np.random.default_rng(0)
    users, items, factors, count = 1500, 500, 2, 8
    matrix = (random.random((items, count)) < 0.3).astype(float)
    A, beta = random.normal(0, 1.0, (count, factors)), random.normal(0, 0.8, count)
    v = matrix @ A + random.normal(0, 0.3, (items, factors))
    b = matrix @ beta + random.normal(0, 0.3, items) - 1.0
    logit = random.normal(0, 1.0, (users, factors)) @ v.T + b
    liked = (random.random((users, items)) < 0.3) & (random.random((users, items)) < 1 / (1 + np.exp(-logit)))
    m, n = np.nonzero(liked)
    graph = Graph.from_pairs(m.astype(np.int32), n.astype(np.int32), users, items)
    plan = FitPlan.of_paper(factors=factors, hidden=kind, negatives=1.0, opening=0, gamma=0.0)  # all consider alike
    with LocalBackend(1) as backend:
        estimator = make_estimator(graph, plan, make_popularity(graph, plan, backend).weights, backend)
        side = SideFeatures.of(features_of(matrix), ranges(leaf_splits(graph.item_blocks)), run_serially)
        for swept in InMemory(graph, estimator, plan, backend, features=FitFeatures(None, side)).sweeps():
            if swept.state.sweep == 25:
                break
    q = swept.state.posterior
    turn = np.linalg.lstsq(q.items.mean, v, rcond=None)[0]  # vectors are known up to a rotation
    found = matrix @ q.item_weights.vectors.mean @ turn
    assert np.corrcoef(found.ravel(), (matrix @ A).ravel())[0, 1] > 0.95
    assert np.corrcoef(matrix @ q.item_weights.biases.mean[:, 0], matrix @ beta)[0, 1] > 0.9
    spread = 1 / q.precisions.item.mean
    assert spread < 0.5 * q.items.mean.var(), "the features say most of what there is"


# --- The same bits wherever a fit runs ---


@pytest.fixture(scope="module")
def likes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_likes(tmp_path_factory.mktemp("data") / "likes.parquet")


@pytest.fixture(scope="module")
def side(likes: Path) -> SideInformation:
    return side_of(likes)


@pytest.mark.usefixtures("full_up_to")
@pytest.mark.parametrize(("kind", "dense"), [("sampled", 1), ("expected", 1024), ("opening", 1024)])
def test_a_fit_gives_the_same_bits_anywhere(kind, dense, likes, side, tmp_path):
    settings = {
        "sampled": {"opening": 0},
        "expected": {"hidden": "expected", "groups": 12},
        "opening": {"consideration": "walk", "neighbours": 12, "mixing": 0.2, "opening": 2, "precision_delay": 2},
    }[kind]
    wanted = fitted(likes, side, **settings)
    assert_same(fitted(likes, side, threads=3, **settings), wanted)
    assert_same(fitted(likes, side, OutOfCore(tmp_path / "parts"), **settings), wanted)
    assert_same(fitted(likes, side, Here(), **settings), wanted)
    for sweeps, backend in ((2, None), (4, Here()), (5, None)):
        resumed = fitted(likes, side, backend, checkpoint=tmp_path / "kept", sweeps=sweeps, **settings)
    assert_same(resumed, wanted)
    without = fitted(likes, SideInformation(), **settings)
    assert not np.array_equal(without.posterior_.items.rows, wanted.posterior_.items.rows)


def test_divisions_that_cannot_learn_them_are_refused(likes, side):
    for how in ({"division": "items"}, {"inner_sweeps": 2}):
        with pytest.raises(UsageError, match="divide by users, with inner_sweeps=1"):
            fitted(likes, side, Here(**how))
    assert several_parts().shape[1] == len(side.item_features.ids)


@pytest.mark.parametrize("size", [1e8, 1e15, 1e38])
def test_features_that_rounding_leaves_equal_are_refused(size: float) -> None:
    likes = sp.csr_array(np.eye(6) + np.eye(6, k=1))
    column = np.linspace(-1.0, 1.0, 6)[:, None] * size
    with pytest.raises(DataError, match="cannot be told apart; leave out those that repeat others"):
        Recommender(sweeps=1, factors=2).fit(likes, item_features=np.hstack([column, column]))
    Recommender(sweeps=1, factors=2).fit(likes, item_features=np.hstack([column, column]) / size)
