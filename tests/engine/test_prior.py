"""Priors of single rows: each step against the bound that it climbs, on every path and with any number of threads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from considerate.data.graph import Adjacency, Graph, run_serially
from considerate.inference import sweep as sweep_module
from considerate.inference.hidden import Sampled, popularity_weights
from considerate.inference.plan import FitPlan
from considerate.inference.posterior import Posterior
from considerate.inference.prior import Prior, Priors
from considerate.inference.sweep import InMemory, State, initial_state
from considerate.kernels import reference
from considerate.kernels.threads import LocalBackend
from considerate.model.predict import FoldIn, Passing
from tests.engine.test_inference import (
    Problem,
    as_rows,
    check_row,
    kinds,
    planted,
    problem,
    start,
    states,
    update_items,
)
from tests.helpers import naive


def prior_of(rows: int, factors: int, precisions: bool, seed: int = 0) -> Prior:
    random = np.random.default_rng(seed)
    mean, bias_mean = random.normal(0, 0.8, (rows, factors)), random.normal(0, 0.8, rows)
    precision, bias_precision = random.uniform(0.5, 4.0, (rows, factors)), random.uniform(0.5, 4.0, rows)
    return Prior.of(mean, precision, bias_mean, bias_precision) if precisions else Prior.of(mean, bias_mean=bias_mean)


class WithPriors(Problem):
    """A problem whose users and items have priors of their own."""

    precisions = True

    @property
    def priors(self) -> Priors:
        factors = self.settings.factors
        return Priors(
            prior_of(self.graph.user_count, factors, self.precisions, 1),
            prior_of(self.graph.item_count, factors, self.precisions, 2),
        )

    @property
    def runner(self) -> InMemory:
        return replace(super().runner, priors=self.priors)

    def terms(self, q: Posterior, users: naive.Factor, items: naive.Factor, xi: np.ndarray) -> dict[str, float]:
        terms = naive.bound_terms(users, items, q.precisions, self.g, self.considered, self.prior, xi)
        for name, factor, own in (("user", users, self.priors.users), ("item", items, self.priors.items)):
            K = factor.mean.shape[1]
            if not self.precisions:
                tau, tau_bias = getattr(q.precisions, name), getattr(q.precisions, f"{name}_bias")
                terms[f"{name}s"] = naive.gaussian_term(factor.mean - own.mean[:, :K], factor.variance, tau)
                terms[f"{name}_biases"] = naive.gaussian_term(
                    factor.bias - own.bias_mean, factor.bias_variance, tau_bias
                )
                continue
            arrays = (own.mean[:, :K], own.precision[:, :K])
            terms[f"{name}s"] = naive.own_gaussian_term(factor.mean, factor.variance, *arrays)
            terms[f"{name}_biases"] = naive.own_gaussian_term(
                factor.bias, factor.bias_variance, own.bias_mean, own.bias_precision
            )
        return terms


class WithMeans(WithPriors):
    precisions = False


def with_priors(kind: str, precisions: bool, graph: Graph | None = None) -> WithPriors:
    p = problem(kind, True, 1.5, graph=graph)
    return (WithPriors if precisions else WithMeans)(p.graph, p.estimator, p.settings, p.user_offset)


def begin(p: WithPriors) -> State:
    """As `start` has it, with the moments around the priors' means."""
    return replace(initial_state(p.graph, p.settings, priors=p.priors), posterior=start(Problem(**vars(p))).posterior)


given = pytest.mark.parametrize("precisions", [False, True])


@kinds
@given
def test_the_bound_equals_brute_force_term_by_term(kind, precisions):
    p = with_priors(kind, precisions)
    for state in states(p, 8, state=begin(p))[::4]:
        ours, q = p.runner.evaluate_bound(state), state.posterior
        users, items = naive.Factor.of(q.users), naive.Factor.of(q.items)
        brute = p.terms(q, users, items, p.xi(users, items))
        for name, value in brute.items():
            assert ours.terms()[name] == pytest.approx(value, rel=1e-5, abs=1e-4), name
        assert next(p.runner.sweeps(state)).bound == ours


@given
@pytest.mark.parametrize("epsilon", [1.0, 0.3])
def test_with_h_fixed_the_bound_never_falls(precisions, epsilon):
    p = with_priors("sampled", precisions)
    found = states(p, 40, epsilon, begin(p))
    bounds = np.array([p.runner.evaluate_bound(state).total for state in found])
    assert np.diff(bounds).min() > -2e-6 * abs(bounds[-1])
    assert bounds[-1] > bounds[0] + 3.0
    held = found[0].posterior.precisions == found[-1].posterior.precisions
    assert held == precisions, "what the rows' own precisions say, tau need not learn"


@kinds
@given
def test_each_update_is_the_argmax_of_the_bound(kind, precisions):
    p = with_priors(kind, precisions, planted(8, 6))
    q = states(p, 6, state=begin(p))[-1].posterior
    users, items = naive.Factor.of(q.users), naive.Factor.of(q.items)
    stepped = p.runner.update_users(p.estimator.user_terms(20, q, run_serially), q).side
    new_users, xi = naive.Factor.of(stepped), p.xi(users, items)
    check_row(users, new_users, 5, lambda f: sum(p.terms(q, f, items, xi).values()), True)
    q = replace(q, users=stepped)
    new_items, shared = naive.Factor.of(update_items(p, q).side), xi
    xi = p.xi(new_users, items)
    if kind == "expected":
        xi = np.where(p.g > 0, xi, shared)
    check_row(items, new_items, 4, lambda f: sum(p.terms(q, new_users, f, xi).values()), True)


def test_a_wrong_step_is_caught():
    """t m left out of z, or added with tau in place of t."""
    p = with_priors("sampled", True)
    q = begin(p).posterior

    def bounds(pull: Callable[[np.ndarray, np.ndarray], Any]) -> np.ndarray:
        """Of steps of the users alone, with this for t m in z."""
        users, items, other, found = as_rows(q.users), naive.Factor.of(q.items), as_rows(q.items), []
        for _ in range(6):
            for row, mine in enumerate(users):
                edges = np.flatnonzero(p.considered[row])
                others, liked = [other[n] for n in edges], [bool(p.g[row, n]) for n in edges]
                sums = reference.row_sums(
                    mine, others, liked, offset=p.settings.offset, likelihood_weight=p.settings.likelihood_weight
                )
                m, t = p.priors.users.mean[row, :2].astype(float), p.priors.users.precision[row, :2].astype(float)
                P, z = reference.natural_step(mine, sums, t, 1.0)
                mean, variance = reference.recover_factorised(P, z + pull(t, m))
                users[row] = replace(mine, mean=mean, variance=variance)
            names = ("mean", "variance", "bias", "bias_variance")
            factor = naive.Factor(*(np.array([getattr(row, name) for row in users]) for name in names))
            found.append(sum(p.terms(q, factor, items, p.xi(factor, items)).values()))
        return np.array(found)

    right = bounds(lambda t, m: t * m)
    assert np.diff(right).min() > -1e-9
    assert bounds(lambda t, m: 0.0)[-1] < right[-1] - 0.5
    assert bounds(lambda t, m: q.precisions.user.mean * m)[-1] < right[-1] - 0.5


def test_every_path_and_any_threads_give_the_same_bits(monkeypatch):
    """Light items, heavy ones, items by parts of far users, and blocks of coordinates."""
    random = np.random.default_rng(3)
    chance = np.concatenate([[0.95], random.uniform(0.002, 0.05, 60), random.uniform(0.2, 0.3, 10)])
    m, n = np.nonzero(random.random((900, 71)) < chance)
    graph = Graph.from_pairs(m.astype(np.int32), n.astype(np.int32), 900, 71, block_edges=250)
    weights = popularity_weights(graph.by_item.degrees, 1.0)
    for factors in (5, 70):
        settings = FitPlan.of_paper(factors=factors, negatives=1.0, user_bias=True, precision_delay=1)
        priors = Priors(prior_of(900, factors, True), prior_of(71, factors, False))
        found = []
        for threads, near in ((1, 1 << 30), (3, 1 << 30), (2, 0)):
            monkeypatch.setattr(sweep_module, "NEAR_BYTES", near)
            with LocalBackend(threads) as backend:
                estimator = Sampled(graph.by_user, graph.user_blocks, weights, 1.0, 5)
                runner = InMemory(graph, estimator, settings, backend, priors)
                classes = runner.item_classes()
                assert min(len(classes.heavy), len(classes.light), len(classes.blocks)) > 0
                sweeps = runner.sweeps()
                found.append([next(sweeps) for _ in range(3)][-1])
        for other in found[1:]:
            assert other.bound == found[0].bound
            assert other.state.item_moments == found[0].state.item_moments
            for one, same in zip(found[0].state.posterior.items.arrays(), other.state.posterior.items.arrays()):
                np.testing.assert_array_equal(one, same)


def test_a_new_row_without_likes_has_its_own_prior():
    p = problem("expected", True)
    q = states(p, 10)[-1].posterior
    fold_in = FoldIn(q, p.estimator.weights, p.settings)
    own, nothing = prior_of(3, 2, True), Adjacency(np.zeros(4, np.int64), np.empty(0, np.int32))
    nobody_passes = Passing(np.zeros(len(q.users)))
    for side in (fold_in.users(nothing, own), fold_in.items(nothing, q.users, nobody_passes, np.ones(3), own)):
        np.testing.assert_allclose(side.mean, own.mean[:, :2], rtol=1e-5)
        np.testing.assert_allclose(side.variance, 1 / own.precision[:, :2], rtol=1e-5)
        np.testing.assert_allclose(side.biases, (own.bias_mean, 1 / own.bias_precision), rtol=1e-5)
    one_like = Adjacency(np.array([0, 1, 1, 1], np.int64), np.zeros(1, np.int32))
    side = fold_in.users(one_like, own)
    np.testing.assert_allclose(side.mean[1:], own.mean[1:, :2], rtol=1e-5)
    assert np.abs(side.mean[0] - own.mean[0, :2]).max() > 0.01
