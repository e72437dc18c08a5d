"""Covariances, the Normal-Wishart hyperprior and quadrature: the kernel against its specification, each update against
the bound that it climbs, and what a fit, a file and a prediction make of them."""

from __future__ import annotations

import math
from copy import copy
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import optimize, special, stats
from typer.testing import CliRunner

from considerate import Recommender
from considerate.cli import app
from considerate.data.graph import ITEMS, USERS, Adjacency, run_serially
from considerate.distributed import OutOfCore
from considerate.errors import UsageError
from considerate.inference import full as full_module
from considerate.inference.full import FullInMemory
from considerate.inference.hidden import Terms
from considerate.inference.posterior import Posterior, Side
from considerate.inference.sums import PassConstants, side_pass
from considerate.inference.sweep import State
from considerate.inference.wishart import NormalWishart, inverse_of, messages, unpack
from considerate.kernels import compiled, reference
from considerate.kernels.reference import FullRow
from considerate.model.predict import ItemColumns, logit_moments
from tests.engine.test_inference import BACKEND, planted, problem, start
from tests.helpers.likes import skewed

LIKES = skewed(120, 30)
NAMES = compiled.instruction_sets()
kinds = pytest.mark.parametrize("logistic", ["bound", "quadrature"])


# --- The kernel against the specification -------------------------------------------------------------------


def random_side(random: np.random.Generator, rows: int, factors: int, covariances: bool, bias: bool = True) -> Side:
    roots = 0.4 * random.standard_normal((rows, factors, factors))
    covariance = roots @ roots.transpose(0, 2, 1) + 0.05 * np.eye(factors)
    biases = (random.standard_normal(rows), random.uniform(0.05, 0.3, rows)) if bias else None
    variance = np.diagonal(covariance, axis1=1, axis2=2)
    side = Side.of(0.7 * random.standard_normal((rows, factors)), variance, biases)
    i, j = np.tril_indices(factors)
    return replace(side, covariance=np.ascontiguousarray(covariance[:, i, j], np.float32)) if covariances else side


def full_rows(side: Side) -> list[FullRow]:
    bias, bias_variance = side.biases
    rows = []
    for r in range(len(side)):
        packed = np.diag(side.variance[r]) if side.covariance is None else unpack(side.covariance[r], side.factors)
        mean = side.mean[r].astype(np.float64)
        rows.append(FullRow(mean, packed.astype(np.float64), float(bias[r]), float(bias_variance[r])))
    return rows


@pytest.mark.parametrize("name", NAMES)
@kinds
@pytest.mark.parametrize(("own_full", "other_full"), [(True, True), (True, False), (False, True), (False, False)])
@pytest.mark.parametrize(("factors", "epsilon"), [(1, 1.0), (3, 0.4), (11, 0.7), (20, 1.0)])
@pytest.mark.parametrize("own_is_user", [True, False])
def test_rows_equal_the_reference(name, logistic, own_full, other_full, factors, epsilon, own_is_user):
    random = np.random.default_rng(factors)
    graph = planted(9, 14, seed=factors)
    own, other = random_side(random, 9, factors, own_full), random_side(random, 14, factors, other_full)
    h = [np.flatnonzero(random.random(14) < 0.4) for _ in range(9)]
    unliked = [np.setdiff1d(row, graph.by_user.row(m)).astype(np.int32) for m, row in enumerate(h)]
    extra, other_extra = random.uniform(-1, 1, 9).astype(np.float32), random.uniform(-1, 1, 14).astype(np.float32)
    (other_extra if own_is_user else extra)[:] = 0.0
    kappa = random.uniform(0.5, 2.0, graph.edges).astype(np.float32)
    root = random.standard_normal((factors, factors))
    precision, pull = root @ root.T + np.eye(factors), random.standard_normal(factors)
    before = compiled.instruction_set()
    compiled.use_instruction_set(name)
    try:
        user_offset = extra if own_is_user else other_extra
        constants = PassConstants(-0.4, 1.3, tau_bias=0.8, epsilon=epsilon, user_offset=user_offset)
        liked, terms = replace(graph.by_user, weights=kappa), Terms(Adjacency.of_rows(unliked))
        kernel_pass = compiled.FullPass(
            side_pass(own, other, liked, terms, constants, own_is_user=own_is_user),
            precision[np.tril_indices(factors)].astype(np.float32),
            pull.astype(np.float32),
            quadrature=logistic == "quadrature",
        )
        new = own.empty_like()
        bound, bad, moments = compiled.update_full_rows(kernel_pass, 0, 9, *new.arrays(), new.covariance)
        alone = compiled.update_full_rows(kernel_pass, 0, 9)[0]
    finally:
        compiled.use_instruction_set(before)
    assert bad == -1
    assert alone == bound
    total, log_determinant = 0.0, 0.0
    for m, row in enumerate(full_rows(own)):
        edges = [*graph.by_user.row(m), *unliked[m]]
        likes = [True] * len(graph.by_user.row(m)) + [False] * len(unliked[m])
        others = full_rows(other)
        weights = [*kappa[slice(*graph.by_user.starts[m : m + 2])], *np.ones(len(unliked[m]))]
        quadrature = logistic == "quadrature"
        parts = [
            reference.full_row_sums(
                row,
                [others[n]],
                [like],
                offset=-0.4 + float(extra[m] + other_extra[n]),
                likelihood_weight=1.3 * weight,
                quadrature=quadrature,
            )
            for n, like, weight in zip(edges, likes, weights)
        ]
        sums = reference.RowSums(*(sum(getattr(part, f.name) for part in parts) for f in fields(reference.RowSums)))
        P, z = reference.full_step(row, sums, precision, pull, epsilon)
        covariance = np.linalg.inv(P)
        np.testing.assert_allclose(new.mean[m], covariance @ z, rtol=2e-4, atol=2e-4)
        if own_full:
            np.testing.assert_allclose(unpack(new.covariance[m], factors), covariance, rtol=2e-4, atol=1e-5)
        np.testing.assert_allclose(new.variance[m], np.diag(covariance) if own_full else 1 / np.diag(P), rtol=2e-4)
        old = 1 / row.bias_variance
        bias_P = epsilon * (sums.bias_P + 0.8) + (1 - epsilon) * old
        assert new.bias_variance[m] == pytest.approx(1 / bias_P, rel=1e-4)
        mean = (epsilon * sums.bias_z + (1 - epsilon) * old * row.bias) / bias_P
        assert new.bias_mean[m] == pytest.approx(mean, rel=1e-3, abs=1e-4)
        total += sums.bound
        log_determinant -= np.linalg.slogdet(P)[1] if own_full else np.log(np.diag(P)).sum()
    assert bound == pytest.approx(total, rel=1e-5)
    assert moments[0] == pytest.approx(float((new.mean.astype(float) ** 2 + new.variance).sum()), rel=1e-5)
    assert moments[1] == pytest.approx(log_determinant, rel=1e-4, abs=1e-3)


def test_ten_nodes_are_enough():
    """Against a hundred, at deviations of a logit as fits have them, and wider."""
    mean, deviation = np.meshgrid(np.linspace(-8, 8, 33), [0.1, 0.7, 1.5, 2.0])
    ten, hundred = (reference.logistic_expectations(mean, deviation**2, nodes) for nodes in (10, 100))
    for few, many in zip(ten, hundred):
        assert np.abs(few - many).max() < 1e-3
    assert np.abs(reference.logistic_expectations(mean, deviation**2, 2)[2] - hundred[2]).max() > 0.01


# --- The bound, by brute force ------------------------------------------------------------------------------


class Dense:
    """q in float64 and L by loops over pairs: nothing of the library's own arithmetic."""

    def __init__(self, p: Any, q: Posterior) -> None:
        self.p, self.q = p, q
        self.sides = [full_rows(q.users), full_rows(q.items)]

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        users, items = self.sides
        mean, variance = np.empty((2, len(users), len(items)))
        for m, u in enumerate(users):
            for n, v in enumerate(items):
                U, V = np.outer(u.mean, u.mean) + u.covariance, np.outer(v.mean, v.mean) + v.covariance
                dot = u.mean @ v.mean
                mean[m, n] = dot + u.bias + v.bias + self.p.settings.offset
                variance[m, n] = (
                    (U * V).sum() - dot**2 + u.bias_variance + v.bias_variance
                )  # E[(u'v)^2] = <E[uu'], E[vv']>
        return mean, variance

    def edges(self, logistic: str, xi: np.ndarray | None = None) -> float:
        mean, variance = self.moments()
        g, h = self.p.g, self.p.considered
        if logistic == "quadrature":
            nodes, weights = np.polynomial.hermite_e.hermegauss(60)
            a = mean[..., None] + np.sqrt(variance)[..., None] * nodes
            log_sigma = special.log_expit(a) @ weights / weights.sum()
            height = log_sigma + (g - 1) * mean
        else:
            xi = np.sqrt(mean**2 + variance) if xi is None else xi
            curvature = (special.expit(xi) - 0.5) / (2 * xi)
            height = g * mean + special.log_expit(xi) - (mean + xi) / 2 - curvature * (mean**2 + variance - xi**2)
        return self.p.settings.likelihood_weight * float((h * height).sum())

    def gaussians(self) -> float:
        """-KL of all vectors and biases from N(0, 1 / E[tau]), without what depends on tau alone."""
        total, taus = 0.0, self.q.precisions
        for rows, tau, tau_bias in zip(self.sides, (taus.user, taus.item), (taus.user_bias, taus.item_bias)):
            for row in rows:
                second = np.outer(row.mean, row.mean) + row.covariance
                total += 0.5 * np.linalg.slogdet(row.covariance)[1] - 0.5 * tau.mean * np.trace(second)
                if tau_bias is not None:
                    total += 0.5 * math.log(row.bias_variance)
                    total -= 0.5 * tau_bias.mean * (row.bias**2 + row.bias_variance)
        return total


def full_problem(users: int = 8, items: int = 6, **settings: Any) -> Any:
    return problem("sampled", graph=planted(users, items), **{"posterior": "full", "logistic": "bound", **settings})


def runner(p: Any) -> FullInMemory:
    return FullInMemory(p.graph, p.estimator, p.settings, BACKEND)


def swept(p: Any, count: int) -> list[State]:
    state = start(p)
    state = replace(state, posterior=runner(p).with_covariances(state.posterior))
    found = [state]
    for sweep in runner(p).sweeps(state):
        found.append(replace(sweep.state, step_size=state.step_size))
        if len(found) > count:
            return found
    raise AssertionError


@kinds
@pytest.mark.parametrize("weight", [1.0, 2.0])
def test_the_bound_equals_brute_force(logistic, weight):
    p = full_problem(logistic=logistic, likelihood_weight=weight, precision_delay=99)
    states = swept(p, 6)
    bounds = [runner(p).evaluate_bound(state) for state in states]
    for state, bound in zip(states, bounds):
        dense = Dense(p, state.posterior)
        assert bound.edges == pytest.approx(dense.edges(logistic), rel=1e-4)
    ours = np.array([bound.users + bound.items + bound.item_biases for bound in bounds])
    theirs = np.array([Dense(p, state.posterior).gaussians() for state in states])
    np.testing.assert_allclose(np.diff(ours), np.diff(theirs), rtol=1e-3, atol=1e-3)  # the rest is constant here


# --- Each update is the argmax ------------------------------------------------------------------------------


def best_row(dense: Dense, side: int, row: int, value: Any) -> FullRow:
    """The mean and covariance of one row that make `value(dense)` largest, by BFGS from where they are."""
    old = dense.sides[side][row]
    factors = len(old.mean)
    tril = np.tril_indices(factors)

    def with_row(x: np.ndarray) -> FullRow:
        root = np.zeros((factors, factors))
        root[tril] = x[factors:]
        return replace(old, mean=x[:factors], covariance=root @ root.T)

    def loss(x: np.ndarray) -> float:
        dense.sides[side][row] = with_row(x)
        return -value(dense)

    x = np.concatenate([old.mean, np.linalg.cholesky(old.covariance)[tril]])
    for _ in range(2):
        x = optimize.minimize(loss, x, method="BFGS", jac="3-point", options={"gtol": 1e-7}).x
    dense.sides[side][row] = old
    return with_row(x)


def stepped(p: Any, q: Posterior, side: str, times: int) -> Side:
    """A side after so many full steps, the other held."""
    for _ in range(times):
        terms = (
            p.estimator.user_terms(1, q, run_serially) if side == USERS else p.estimator.item_terms(1, q, run_serially)
        )
        if side == USERS:
            q = replace(q, users=runner(p).update_users(terms, q).side)
        else:
            q = replace(
                q, items=runner(p).items_pass(terms, q).update(q.items, runner(p).item_classes(), run_serially).side
            )
    return q.users if side == USERS else q.items


@pytest.mark.parametrize(("side", "row"), [(USERS, 5), (ITEMS, 4)])
def test_each_update_is_the_argmax_of_the_bound_given_xi(side, row):
    p = full_problem(likelihood_weight=2.0)
    q = swept(p, 6)[-1].posterior
    dense = Dense(p, q)
    mean, variance = dense.moments()
    xi = np.sqrt(mean**2 + variance)
    best = best_row(dense, int(side == ITEMS), row, lambda d: d.edges("bound", xi) + d.gaussians())
    new = stepped(p, q, side, 1)
    np.testing.assert_allclose(new.mean[row], best.mean, rtol=2e-3, atol=3e-4)
    np.testing.assert_allclose(unpack(new.covariance[row], 2), best.covariance, rtol=3e-3, atol=3e-4)
    # the control: eq. 18 in place of the covariance is not the argmax
    wrong = stepped(p, replace(q, **{f"{side}": replace(getattr(q, side), covariance=None)}), side, 1)
    assert np.abs(wrong.variance[row] / np.diag(best.covariance) - 1).max() > 0.02
    # nor is a step that reads only the diagonals of the other side's covariances
    other = USERS if side == ITEMS else ITEMS
    wrong = stepped(p, replace(q, **{other: replace(getattr(q, other), covariance=None)}), side, 1)
    assert np.abs(unpack(wrong.covariance[row], 2) - best.covariance).max() > 2e-3


@pytest.mark.parametrize(("side", "row"), [(USERS, 5), (ITEMS, 4)])
def test_by_quadrature_steps_end_where_the_objective_is_largest(side, row):
    p = full_problem(logistic="quadrature", user_bias=False)
    q = swept(p, 6)[-1].posterior
    new = stepped(p, q, side, 40)  # all rows of the side, and its biases
    dense = Dense(p, replace(q, **{side: new}))
    best = best_row(dense, int(side == ITEMS), row, lambda d: d.edges("quadrature") + d.gaussians())
    np.testing.assert_allclose(new.mean[row], best.mean, rtol=3e-3, atol=1e-3)
    np.testing.assert_allclose(unpack(new.covariance[row], 2), best.covariance, rtol=5e-3, atol=1e-3)
    by_bound = best_row(dense, int(side == ITEMS), row, lambda d: d.edges("bound") + d.gaussians())
    assert np.trace(by_bound.covariance) < 0.98 * np.trace(best.covariance)  # what quadrature is for


# --- The bound never falls ----------------------------------------------------------------------------------


@kinds
@pytest.mark.parametrize("posterior", ["factorised", "full-items", "full"])
@pytest.mark.parametrize("prior", ["gamma", "wishart"])
def test_with_h_fixed_the_bound_never_falls(logistic, posterior, prior):
    p = full_problem(16, 12, logistic=logistic, posterior=posterior, prior=prior, user_bias=True)
    bounds = np.array([runner(p).evaluate_bound(state).total for state in swept(p, 40)])
    bounds = np.delete(bounds, slice(3, 4)) if prior == "wishart" else bounds  # the hyperprior changes with sweep 4
    rises = np.diff(bounds[4:] if prior == "wishart" else bounds)
    assert rises.min() > -2e-6 * abs(bounds[-1])
    assert bounds[-1] > bounds[0] + 3.0


@pytest.mark.parametrize("wrong", ["variance left out", "both sides at once"])
def test_wrong_updates_are_caught(wrong, monkeypatch):
    p = full_problem(16, 12)

    def side_pass(own: Side, other: Side, *rest: Any, **more: Any) -> Any:
        if wrong == "variance left out":
            assert other.covariance is not None
            other = replace(other, covariance=np.zeros_like(other.covariance))
        return right(own, other, *rest, **more)

    right, once = full_module.side_pass, FullInMemory.items_pass
    before: list[Posterior] = []

    def update_users(self: FullInMemory, terms: Any, q: Posterior, *rest: Any) -> Any:
        before[:] = [q]
        return at_once(self, terms, q, *rest)

    def items_pass(self: FullInMemory, terms: Any, q: Posterior, *rest: Any) -> Any:
        return once(self, terms, before[0], *rest)

    at_once = FullInMemory.update_users
    monkeypatch.setattr(full_module, "side_pass", side_pass)
    if wrong == "both sides at once":
        monkeypatch.setattr(FullInMemory, "update_users", update_users)
        monkeypatch.setattr(FullInMemory, "items_pass", items_pass)
    states = swept(p, 40)
    monkeypatch.undo()
    bounds = [runner(p).evaluate_bound(state).total for state in states]
    assert np.diff(bounds).min() < -1e-3


# --- Normal-Wishart -----------------------------------------------------------------------------------------


def wishart_objective(count: int, first: np.ndarray, second: np.ndarray, rate: float, q: Any) -> float:
    """E[log p(x, mu, Lambda)] + H[q(mu, Lambda)] of q = (m, beta, W, nu), with scipy's entropy of the Wishart."""
    m, beta, W, nu = q
    K = len(m)
    log_det = special.digamma(0.5 * (nu - np.arange(K))).sum() + K * math.log(2) + np.linalg.slogdet(W)[1]
    precision, square = nu * W, K / beta + nu * m @ W @ m
    rows = 0.5 * count * (log_det - K * math.log(2 * math.pi))
    rows -= 0.5 * ((precision * second).sum() - 2 * first @ precision @ m + count * square)
    prior = 0.5 * (log_det - K * math.log(2 * math.pi)) - 0.5 * square  # beta0 = 1
    prior += -0.5 * log_det - 0.5 * 2 * rate * np.trace(precision)  # nu0 = K: (nu0 - K - 1) / 2 = -1/2
    W0_log_det = -K * math.log(2 * rate)
    prior -= 0.5 * K * (K * math.log(2) + W0_log_det) + special.multigammaln(0.5 * K, K)
    entropy = -0.5 * log_det + 0.5 * K * (math.log(2 * math.pi) - math.log(beta) + 1)
    return float(rows + prior + entropy + stats.wishart(nu, W).entropy())


def test_the_normal_wishart_is_the_argmax_and_its_terms_are_the_bound():
    random = np.random.default_rng(0)
    side = random_side(random, 30, 2, True)
    first, second = messages(side)
    np.testing.assert_allclose(second, sum(np.outer(r.mean, r.mean) + r.covariance for r in full_rows(side)), rtol=1e-5)
    found = NormalWishart.of(side, 0.3)
    W = found.precision / found.degrees
    best = (found.mean, found.beta, W, found.degrees)
    entropy = 2.5 + 0.5 * 30 * 2 * (1 + math.log(2 * math.pi))
    ours = found.rows_term((first, second), 5.0) + found.own_term()
    assert ours == pytest.approx(wishart_objective(30, first, second, 0.3, best) + entropy, rel=1e-9)
    highest = wishart_objective(30, first, second, 0.3, best)
    for mean in (0.05, -0.05):
        assert wishart_objective(30, first, second, 0.3, (found.mean + mean, *best[1:])) < highest
    for times in (0.9, 1.1):
        assert wishart_objective(30, first, second, 0.3, (best[0], times * found.beta, *best[2:])) < highest
        assert wishart_objective(30, first, second, 0.3, (*best[:2], times * W, best[3])) < highest
        assert wishart_objective(30, first, second, 0.3, (*best[:3], times * found.degrees)) < highest
        turned = W * np.array([[1.0, times], [times, 1.0]])
        assert wishart_objective(30, first, second, 0.3, (*best[:2], turned, best[3])) < highest


def test_the_normal_wishart_finds_the_mean_and_the_covariance_of_vectors():
    random = np.random.default_rng(1)
    covariance, mean = np.array([[1.0, 0.6], [0.6, 0.8]]), np.array([0.5, -1.0])
    side = Side.of(random.multivariate_normal(mean, covariance, 5000), np.full((5000, 2), 1e-4))
    found = NormalWishart.of(side, 0.01)
    np.testing.assert_allclose(found.mean, mean, atol=0.05)
    np.testing.assert_allclose(np.linalg.inv(found.precision), covariance, atol=0.05)
    np.testing.assert_allclose(found.pull, found.precision @ found.mean)


def test_the_inverse_without_blas():
    root = np.random.default_rng(2).standard_normal((9, 9))
    matrix = root @ root.T + np.eye(9)
    inverse, log_determinant = inverse_of(matrix)
    np.testing.assert_allclose(inverse, np.linalg.inv(matrix), rtol=1e-8, atol=1e-10)
    assert log_determinant == pytest.approx(-np.linalg.slogdet(matrix)[1])


# --- Fits, files, predictions -------------------------------------------------------------------------------

SETTINGS = {"factors": 4, "sweeps": 9, "tolerance": 0, "posterior": "full", "prior": "wishart"}


@pytest.fixture(scope="module")
def fitted() -> Recommender:
    return Recommender(**SETTINGS, threads=1).fit(LIKES)


def same(left: Recommender, right: Recommender) -> bool:
    a, b = left.model_.posterior, right.model_.posterior
    arrays = [
        [side.rows, side.bias_mean, side.covariance] if side.has_bias else [side.rows, side.covariance]
        for q in (a, b)
        for side in (q.users, q.items)
    ]
    return all(np.array_equal(x, y) for x, y in zip(arrays[0] + arrays[1], arrays[2] + arrays[3]))


def test_threads_give_the_same_bits(fitted):
    assert same(fitted, Recommender(**SETTINGS, threads=2).fit(LIKES))
    assert not same(fitted, Recommender(**SETTINGS, threads=1, seed=1).fit(LIKES))


@pytest.mark.parametrize("stop", [3, 7])
def test_a_fit_goes_on_from_a_checkpoint(fitted, stop, tmp_path):
    """In the opening and after it, where covariances and hyperpriors are kept."""
    Recommender(**SETTINGS | {"sweeps": stop}, threads=1).fit(LIKES, checkpoint=tmp_path, checkpoint_every=1)
    for folder in tmp_path.glob("sweep-*"):
        assert folder.name <= f"sweep-{stop:06d}"
    # the folder is of a fit of other length: the number of sweeps is no part of its fingerprint
    again = Recommender(**SETTINGS, threads=1).fit(LIKES, checkpoint=tmp_path, resume=True)
    assert same(fitted, again)


def test_files_keep_covariances(fitted, tmp_path):
    fitted.save(tmp_path / "m.safetensors")
    for lazy in (False, True):
        loaded = Recommender.load(tmp_path / "m.safetensors", verify=not lazy)
        assert same(fitted, loaded)
        users, items = np.arange(5), np.arange(5)
        for ours, theirs in zip(
            fitted.predict_logit(users, items, by="row"), loaded.predict_logit(users, items, by="row")
        ):
            np.testing.assert_array_equal(ours, theirs)
    with pytest.raises(UsageError, match="covariances of users are kept in one file"):
        fitted.save(tmp_path / "sharded", shards=2)


def test_predictions_read_covariances(fitted):
    q = fitted.model_.posterior
    users, items = full_rows(q.users), full_rows(q.items)
    rows, columns = np.divmod(np.arange(60), 6)
    mean, variance = logit_moments(q.users, q.items, rows, columns)
    for m, n, a, s in zip(rows, columns, mean, variance):
        assert reference.full_logit_moments(users[m], items[n]) == pytest.approx((a, s), rel=1e-4, abs=1e-5)
    whole = ItemColumns(q.items).variances(q.users, np.arange(10))
    np.testing.assert_allclose(whole[rows, columns], variance, rtol=1e-4, atol=1e-6)
    factorised = logit_moments(replace(q.users, covariance=None), replace(q.items, covariance=None), rows, columns)[1]
    assert np.abs(factorised / variance - 1).max() > 0.01  # covariances do matter here
    half = logit_moments(replace(q.users, covariance=None), q.items, rows, columns)[1]
    assert not np.allclose(half, variance, rtol=1e-3)


def test_new_users_and_changed_users(fitted):
    folded = fitted.fold_in([0, 1, 2], by="row")
    assert folded.covariance is None
    assert np.isfinite(folded.mean).all()
    changed = copy(fitted)
    changed.partial_fit_users([2], LIKES[5], by="row")
    side = changed.model_.posterior.users
    assert side.covariance is not None
    assert not unpack(side.covariance[2], 4)[~np.eye(4, dtype=bool)].any()  # folded in: independent coordinates
    np.testing.assert_array_equal(side.covariance[3], fitted.model_.posterior.users.covariance[3])
    _, because = fitted.explain(0, 1, by="row")
    assert because
    assert np.isfinite([share for _, share in because]).all()


@pytest.mark.parametrize("given", [{"posterior": "full-items"}, {"prior": "wishart"}, {"logistic": "quadrature"}])
def test_settings_that_covariances_do_not_allow_are_refused(given, tmp_path):
    with pytest.raises(UsageError, match="closed form has the logistic bound"):
        Recommender(**given, hidden="expected").fit(LIKES)
    with pytest.raises(UsageError, match="fitted in memory alone"):
        Recommender(**given).fit(LIKES, backend=OutOfCore(tmp_path))


def test_the_shell_fits_and_evaluates(tmp_path: Path):
    likes = LIKES.tocoo()
    path = tmp_path / "likes.csv"
    path.write_text("user,item\n" + "".join(f"{u},{i}\n" for u, i in zip(likes.row, likes.col)))
    flags = ["--posterior", "full-items", "--prior", "wishart", "--logistic", "quadrature", "--factors", "3"]
    done = CliRunner().invoke(app, ["fit", str(path), "-o", str(tmp_path / "m.safetensors"), "--sweeps", "7", *flags])
    assert done.exit_code == 0, done.output
    model = Recommender.load(tmp_path / "m.safetensors").model_
    assert (model.plan.posterior, model.plan.prior, model.plan.logistic) == ("full-items", "wishart", "quadrature")
    assert model.items.covariance is not None
    assert model.posterior.users.covariance is None
