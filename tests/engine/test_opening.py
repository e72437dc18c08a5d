"""The opening: sweeps in closed form, then draws; where it begins, and how much of the walk is mixed in."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from considerate import Recommender
from considerate.data.graph import Graph
from considerate.errors import UsageError
from considerate.fitting.session import closed_form_groups, make_consideration, make_estimator, make_popularity
from considerate.inference.hidden import Consideration, Expected
from considerate.inference.hidden.consideration import LEAST_MIXING, NATS, mixing_of, nats_of
from considerate.inference.parts.closed_form import OPENING
from considerate.inference.plan import FitPlan
from considerate.inference.sweep import InMemory, State, initial_state
from considerate.kernels.threads import LocalBackend
from tests.helpers.likes import planted, skewed


def graph_of(likes: sp.csr_matrix) -> Graph:
    return Graph.from_pairs(*likes.nonzero(), *likes.shape)


def plan_of(**settings: Any) -> FitPlan:
    return Recommender(**({"factors": 3, "neighbours": 12, "threads": 1} | settings)).plan()


def states(graph: Graph, plan: FitPlan, count: int, estimator: Any = None, state: State | None = None) -> list[State]:
    with LocalBackend(1) as backend:
        if estimator is None:
            pi = make_popularity(graph, plan, backend).weights
            estimator = make_estimator(graph, plan, pi, backend, make_consideration(graph, plan, pi, backend))
        sweeps = InMemory(graph, estimator, plan, backend).sweeps(state)
        return [next(sweeps).state for _ in range(count)]


def test_the_opening_is_the_closed_form_and_then_the_draws() -> None:
    """Two sweeps are those of `Expected` whose groups still move; the third is the first that draws, from there."""
    graph, plan = graph_of(skewed()), plan_of(opening=2)
    opened = states(graph, plan, 3)
    with LocalBackend(1) as backend:
        pi = make_popularity(graph, plan, backend).weights
        groups, freeze_after = closed_form_groups(plan, graph.item_count)
        likes = (graph.by_user, graph.user_blocks)
        closed = Expected(*likes, pi, plan.negatives, plan.offset, groups, backend.map, freeze_after)
    for mine, wanted in zip(opened, states(graph, plan, 2, closed, initial_state(graph, plan))):
        assert np.array_equal(mine.posterior.items.rows, wanted.posterior.items.rows)
    drawn = states(graph, plan_of(opening=0, step_delay=2), 1, None, opened[1])[0]
    assert np.array_equal(opened[2].posterior.items.rows, drawn.posterior.items.rows)
    assert not np.array_equal(
        opened[2].posterior.items.rows, states(graph, plan_of(opening=3), 3)[2].posterior.items.rows
    )


def test_the_bits_of_the_default_fit_for_any_number_of_threads() -> None:
    one, two = (Recommender(factors=4, sweeps=8, threads=threads).fit(skewed()).model_ for threads in (1, 2))
    assert np.array_equal(one.items.rows, two.items.rows)
    assert one.bounds == two.bounds
    assert one.plan.mixing == two.plan.mixing == one.consideration.mix


def test_where_it_begins() -> None:
    graph = graph_of(skewed())
    opened = initial_state(graph, plan_of(factors=32, opening=5)).posterior
    assert opened.prior_spread() == pytest.approx(math.sqrt(2))
    assert float(opened.items.mean.std()) == pytest.approx(0.3, rel=0.05)
    plain = initial_state(graph, plan_of(factors=32, opening=0)).posterior
    assert (plain.precisions.user.mean, plain.precisions.item.mean) == pytest.approx((10.0, 10.0))
    assert float(plain.items.mean.std()) == pytest.approx(0.1, rel=0.05)


def test_the_opening_sets_the_delay_and_the_tolerance() -> None:
    default, popularity, short = plan_of(), plan_of(consideration="popularity"), plan_of(opening=2)
    assert (default.opening, default.step_delay, default.tolerance) == (OPENING, OPENING, 2e-3)
    assert (popularity.opening, popularity.step_delay, popularity.tolerance) == (0, 10, 5e-4)
    assert (short.opening, short.step_delay) == (2, 2)
    assert plan_of(hidden="expected").opening == 0
    with pytest.raises(UsageError, match="opening is 3 and hidden is 'expected'"):
        plan_of(hidden="expected", opening=3)


def test_a_fit_does_not_stop_within_it() -> None:
    fitted = Recommender(factors=2, opening=4, sweeps=60, tolerance=0.5, threads=1).fit(planted())
    assert fitted.converged_
    assert fitted.n_iter_ > 4 + 2


def test_how_much_the_walk_tells() -> None:
    """Against sums written out; of which blocks the rows come does not matter."""
    starts, p = np.array([0, 2, 3, 3]), np.array([0.5, 0.3, 0.2])
    items, shares = np.array([0, 2, 1], np.int32), np.array([0.25, 0.75, 0.5], np.float32)
    rows = [0.25 * math.log(0.25 / 0.5) + 0.75 * math.log(0.75 / 0.2), 0.5 * math.log(0.5 / 0.3), 0.0]
    np.testing.assert_allclose(nats_of(starts, items, shares, p), rows, rtol=1e-6)
    parts = [nats_of(starts[:2], items[:2], shares[:2], p), nats_of(starts[1:] - 2, items[2:], shares[2:], p)]
    assert np.array_equal(np.concatenate(parts), nats_of(starts, items, shares, p))
    told = float(np.dot(p, rows))
    assert mixing_of(np.array(rows), p) == max(LEAST_MIXING, round(1 - NATS / told, 2))
    assert mixing_of(10 * np.array(rows), p) == round(1 - NATS / (10 * told), 2)
    assert mixing_of(np.zeros(3), p) == LEAST_MIXING


def test_sparse_data_gets_less_of_the_walk() -> None:
    random = np.random.default_rng(0)

    def mixing(density: float) -> float:
        graph = graph_of(sp.csr_matrix(random.random((400, 200)) < density))
        weights = graph.by_item.degrees.astype(np.float64)
        return Consideration.of_graph(graph.by_user, graph.by_item, weights, 100, None).mix

    assert mixing(0.3) == LEAST_MIXING
    assert mixing(0.01) > 0.5
