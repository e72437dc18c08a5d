"""The terms of L_xi against numeric integration, and the logistic bound below the likelihood it bounds."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats

from considerate.data.graph import Graph
from considerate.inference.bound import Bound, gamma_term, gaussian_term
from considerate.inference.plan import FitPlan
from considerate.inference.posterior import Gamma
from considerate.inference.sweep import bound_of, initial_state
from considerate.inference.updates import Moments
from considerate.kernels.reference import log_likelihood, log_logistic_bound


@pytest.mark.parametrize("g", [0.0, 1.0])
def test_the_logistic_bound_is_below_the_likelihood_and_touches_it_at_xi(g: float) -> None:
    a, xi = np.meshgrid(np.linspace(-8, 8, 81), np.linspace(0, 8, 41))
    bound, exact = log_logistic_bound(a, a**2, g, xi), log_likelihood(g, a, 1.0)
    assert (bound <= exact + 1e-12).all()
    touching = np.isclose(np.abs(a), xi)
    assert touching.sum() > 50
    np.testing.assert_allclose(bound[touching], exact[touching], atol=1e-12)
    assert (exact - bound)[~touching].max() > 0.1  # it is a bound, not the thing itself


def test_what_was_not_considered_says_nothing() -> None:
    assert log_likelihood(0.0, 3.0, 0.0) == 0.0
    assert log_likelihood(1.0, 0.7, 1.0) == pytest.approx(np.log(1 / (1 + np.exp(-0.7))))


def test_the_gaussian_term_is_an_integral() -> None:
    tau, mean, variance = Gamma(3.0, 2.0), 0.4, 0.3
    nodes, weights = np.polynomial.hermite_e.hermegauss(10)  # exact: the integrand is a polynomial in x
    x = mean + np.sqrt(variance) * nodes[:, None]
    t = np.linspace(1e-9, 30, 20_001)
    integrand = stats.norm.logpdf(x, 0, 1 / np.sqrt(t)) - stats.norm.logpdf(x, mean, np.sqrt(variance))
    inner = weights @ integrand / weights.sum()
    exact = integrate.simpson(inner * stats.gamma.pdf(t, tau.shape, scale=1 / tau.rate), x=t)
    assert gaussian_term(1, mean**2 + variance, np.log(variance), tau) == pytest.approx(exact, abs=1e-6)


def test_the_gamma_term_is_an_integral() -> None:
    tau, prior = Gamma(3.0, 2.0), stats.gamma(0.7, scale=1 / 0.4)
    q = stats.gamma(tau.shape, scale=1 / tau.rate)
    exact = integrate.quad(lambda t: q.pdf(t) * (prior.logpdf(t) - q.logpdf(t)), 1e-12, 60, limit=400)[0]
    assert gamma_term(tau, 0.7, 0.4) == pytest.approx(exact, abs=1e-6)


@pytest.mark.parametrize("user_bias", [False, True])
def test_the_bound_is_the_sum_of_its_terms(user_bias: bool) -> None:
    graph = Graph.from_pairs(np.array([0, 1, 1, 2], np.int32), np.array([0, 0, 1, 1], np.int32), 3, 2)
    settings = FitPlan.of_paper(factors=2, user_bias=user_bias, prior_shape=0.7, prior_rate=0.4)
    state = initial_state(graph, settings)
    bound, taus = bound_of(state, -5.0, settings), state.posterior.precisions
    users = Moments.of(state.posterior.users)
    assert isinstance(bound, Bound)
    assert bound.edges == -5.0
    assert bound.users == pytest.approx(gaussian_term(6, users.square, users.log_variance, taus.user))
    assert (bound.user_biases != 0.0) == user_bias
    gammas = [one for one in (taus.user, taus.item, taus.user_bias, taus.item_bias) if one is not None]
    assert len(gammas) == 3 + user_bias
    assert bound.precisions == pytest.approx(sum(gamma_term(one, 0.7, 0.4) for one in gammas))
    assert bound.total == pytest.approx(sum(bound.terms().values()))
