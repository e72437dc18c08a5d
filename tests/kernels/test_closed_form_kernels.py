"""The kernels of the closed form against their plain statement: temperatures, tables of the groups, the bound alone."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from considerate.data.graph import Graph, run_serially
from considerate.inference.hidden import Expected, Sampled, Shares, Terms
from considerate.inference.hidden.saturation import Saturation
from considerate.inference.plan import FitPlan
from considerate.inference.sums import PassConstants, side_pass
from considerate.inference.sweep import InMemory, initial_state
from considerate.inference.updates import update_side
from considerate.kernels import compiled
from considerate.kernels.threads import LocalBackend
from tests.helpers import naive_draws

USERS, ITEMS = 60, 90


@pytest.fixture(scope="module")
def graph() -> Graph:
    random = np.random.default_rng(3)
    likes = random.random((USERS, ITEMS)) < random.beta(0.5, 3, USERS)[:, None]
    likes[0] = False  # nothing liked
    likes[1] = True  # nothing left
    users, items = np.nonzero(likes)
    return Graph.from_pairs(users.astype(np.int32), items.astype(np.int32), USERS, ITEMS, block_edges=200)


@pytest.mark.parametrize(("negatives", "error"), [(1e-7, 1e-4), (0.3, 1e-5), (1.0, 1e-5), (3.0, 1e-5)])
def test_temperatures_equal_the_reference(graph, negatives, error):  # 1e-7: below the table F is a chord
    weights = np.random.default_rng(0).gamma(0.7, 3.0, ITEMS)
    weights[::7] = 0.0
    found = Saturation(weights).inclusion.temperatures(graph.by_user, graph.user_blocks, negatives, run_serially)
    for user in range(USERS):
        liked = graph.by_user.row(user)
        available = (np.delete(weights, liked) > 0).sum()
        count = negatives * len(liked)
        if 0 < count < available:
            assert found[user] == pytest.approx(naive_draws.temperature(weights, liked, count), rel=error)
        elif count == 0 or available == 0:
            assert found[user] < 1e-200
        else:
            assert (1 - np.exp(-found[user] * weights[weights > 0]) > 0.999).all()


def test_temperatures_of_who_likes_nearly_all_of_the_mass():
    """What is left of pi is below rounding of its sum, so the first guess is as high as can be."""
    weights = np.array([1e100, 1e100, *np.geomspace(1e-60, 1.0, 20)])
    likes = Graph.from_pairs(np.zeros(2, np.int32), np.arange(2, dtype=np.int32), 1, len(weights))
    found = Saturation(weights).inclusion.temperatures(likes.by_user, likes.user_blocks, 3.5, run_serially)
    assert found[0] == pytest.approx(naive_draws.temperature(weights, [0, 1], 7.0), rel=1e-5)


@pytest.mark.parametrize("kept", [True, False])
def test_tables_of_groups_are_sums_over_their_items(monkeypatch, kept):
    if not kept:
        monkeypatch.setattr("considerate.inference.hidden.saturation.MOST_TERMS", 0)
    random = np.random.default_rng(1)
    weights = np.round(random.gamma(0.7, 3.0, ITEMS), 1)
    group = random.integers(0, 5, ITEMS)
    saturation = Saturation(weights)
    table = saturation.tabulate(group, 6)
    temperature = np.exp(saturation.grid)[:, None]
    for b in range(6):
        product = temperature * weights[group == b]
        np.testing.assert_allclose(table[b, :, 0], -np.expm1(-product).sum(axis=1), rtol=1e-10, atol=1e-13)
        np.testing.assert_allclose(table[b, :, 1], (product * np.exp(-product)).sum(axis=1), rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("factors", [5, 20, 70])
@pytest.mark.parametrize("user_bias", [False, True])
@pytest.mark.parametrize("kind", ["sampled", "expected"])
def test_the_bound_alone_is_that_of_the_pass(graph, kind, user_bias, factors):
    settings = FitPlan.of_paper(factors=factors, user_bias=user_bias, negatives=math.exp(0.5), likelihood_weight=1.3)
    q = initial_state(graph, settings).posterior
    q.users.mean[:] = 0.3 * np.random.default_rng(1).standard_normal(q.users.mean.shape)
    args = (graph.by_user, graph.user_blocks, graph.by_item.degrees.astype(np.float64), 1.0)
    estimator = Sampled(*args, 3) if kind == "sampled" else Expected(*args, -0.5, 9, run_serially)
    terms = estimator.user_terms(1, q, run_serially)

    class Serial:
        map = staticmethod(run_serially)

    whole = InMemory(graph, estimator, settings, Serial).update_users(terms, q, 1.0).edge_bound
    alone = compiled.edge_bound(InMemory(graph, estimator, settings, Serial).users_pass(terms, q, 1.0), 0, USERS)
    assert alone == pytest.approx(whole, rel=1e-6)


def test_corrections_of_edges_are_what_a_pass_would_take_from_alpha(graph):
    """E[h] and E[h] l of each liked edge, in NumPy's float64; a pass that is given them has the bits of one that makes
    them, and is one over items in one leaf."""
    settings = FitPlan.of_paper(factors=5, negatives=math.exp(0.5))
    q, weights = initial_state(graph, settings).posterior, graph.by_item.degrees.astype(np.float64)
    weights[3] = 0.0  # an item that is never drawn
    estimator = Expected(graph.by_user, graph.user_blocks, weights, 1.0, -0.5, 9, run_serially)
    terms = estimator.user_terms(1, q, run_serially)
    q = replace(q, users=InMemory(graph, estimator, settings, LocalBackend(1)).update_users(terms, q, 1.0).side)
    counts, items = graph.by_user.degrees.astype(np.int32), graph.by_user.indices
    found = compiled.edge_corrections(terms.expected, counts, items)
    at = np.repeat(np.arange(USERS), counts), estimator.grouping.group_of_item[items]
    alpha, floor, curvature = (array[at].astype(np.float64) for array in estimator.shares.arrays().values())
    chance = np.where(weights[items] > 0, alpha * weights[items] + floor, 0.0)
    np.testing.assert_allclose(found, np.stack([chance, chance * curvature], axis=1), rtol=1e-6)
    assert (found[items == 3] == 0).all()
    assert found.max() > 0.01
    users = estimator.shares.add_up(q.users, graph.user_blocks, run_serially)
    edges = np.lexsort((at[0], items))  # by item
    nobody = Shares.empty(np.empty(0), 9)
    groups = estimator.grouping.of(q.items)
    steps = []
    for shares, corrections in ((estimator.shares, None), (nobody, found[edges])):
        closed = Terms(expected=shares.read(groups, users, corrections=corrections))
        kernel_pass = side_pass(q.items, q.users, graph.by_item, closed, PassConstants(-0.5, 1.3), own_is_user=False)
        steps.append(update_side(kernel_pass, q.items, graph.item_blocks, run_serially).side.rows)
    np.testing.assert_array_equal(*steps)
    with pytest.raises(ValueError, match="in one leaf"):
        side_pass(q.users, q.items, graph.by_user, closed, PassConstants(0.0, 1.0), own_is_user=True)
    for wrong in (counts[1:], counts + 1):
        with pytest.raises(ValueError, match="counts"):
            compiled.edge_corrections(terms.expected, wrong, items)
    with pytest.raises(ValueError, match="out of range"):
        compiled.edge_corrections(terms.expected, counts, items + ITEMS)
