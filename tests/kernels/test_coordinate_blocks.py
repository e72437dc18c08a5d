"""Above 64 factors a row is stepped in blocks of coordinates (the paper's kappa), each an exact step given the rest and
xi, which is that of the row before its first block."""

from __future__ import annotations

import numpy as np
import pytest

from considerate.data.graph import Graph, run_serially
from considerate.inference.hidden import Expected, Sampled, Terms, popularity_weights
from considerate.inference.plan import FitPlan
from considerate.inference.posterior import Side
from considerate.inference.prior import Prior
from considerate.inference.sums import PassConstants, side_pass
from considerate.inference.sweep import InMemory, State, initial_state
from considerate.inference.updates import heavy_rows, update_side
from considerate.kernels import compiled
from considerate.kernels.reference import Row, bias_step, logit_moments, natural_step, recover_factorised, row_sums
from considerate.kernels.threads import LocalBackend

FEW_EDGES = 16  # up to so many, a row is stepped in all coordinates at once (few.hpp)


def planted(users: int = 240, items: int = 120, seed: int = 0) -> Graph:
    """Three clusters, and one item that nearly everybody likes."""
    random = np.random.default_rng(seed)
    chance = np.where(np.arange(users)[:, None] % 3 == np.arange(items)[None, :] % 3, 0.35, 0.02)
    chance[:, 0] = 0.95
    m, n = np.nonzero(random.random((users, items)) < chance)
    return Graph.from_pairs(m.astype(np.int32), n.astype(np.int32), users, items, block_edges=80)


@pytest.mark.parametrize(
    ("factors", "sizes"),
    [(1, [1]), (64, [64]), (65, [24, 24, 17]), (96, [32] * 3), (128, [32] * 4), (200, [32] * 6 + [8])],
)
def test_blocks_cover_the_coordinates(factors: int, sizes: list[int]) -> None:
    assert compiled.coordinate_blocks(factors) == sizes


def logit_size(own: Row, other: Row, offset: float) -> float:
    """xi = sqrt(E[a^2]) of an edge (eq. 16)."""
    bias, variance = own.bias + other.bias + offset, own.bias_variance + other.bias_variance
    _, square = logit_moments(own.mean, own.variance, other.mean, other.variance, bias, variance)
    return float(np.sqrt(square))


@pytest.mark.usefixtures("each_instruction_set")
@pytest.mark.parametrize("epsilon", [1.0, 0.4])
@pytest.mark.parametrize(("factors", "own_priors"), [(70, False), (96, False), (70, True)])
def test_a_row_is_stepped_block_by_block_as_the_reference_would(epsilon: float, factors: int, own_priors: bool) -> None:
    random = np.random.default_rng(1)
    graph = planted(60, 50)

    def side(rows: int) -> Side:
        mean = 0.2 * random.standard_normal((rows, factors))
        variance = random.uniform(0.05, 0.2, (rows, factors))
        return Side.of(mean, variance, (0.3 * random.standard_normal(rows), random.uniform(0.1, 0.3, rows)))

    users, items = side(60), side(50)
    unliked = Sampled(graph.by_user, graph.user_blocks, popularity_weights(graph.by_item.degrees, 1.0), 1.0, 0).draw(1)
    centre, precision = np.zeros((60, factors)), np.full((60, factors), 2.0)
    if own_priors:
        centre, precision = random.normal(0, 0.5, (60, factors)), random.uniform(1.0, 4.0, (60, factors))
    prior = Prior.of(centre, precision) if own_priors else Prior()
    step = PassConstants(-0.5, 1.5, 2.0, 1.3, epsilon, prior)
    kernel_pass = side_pass(users, items, graph.by_user, Terms(unliked=unliked), step, own_is_user=True)
    new = update_side(kernel_pass, users, graph.user_blocks, run_serially)

    def row(side: Side, i: int) -> Row:
        return Row(
            side.mean[i].astype(float),
            side.variance[i].astype(float),
            float(side.biases[0][i]),
            float(side.biases[1][i]),
        )

    degrees = graph.by_user.degrees + unliked.degrees
    light, heavy = (np.flatnonzero(chosen)[:3] for chosen in (degrees <= FEW_EDGES, degrees > FEW_EDGES))
    assert len(light) == len(heavy) == 3
    for user in [*light, *heavy]:
        own = row(users, user)
        ends = [*graph.by_user.row(user), *unliked.row(user)]
        liked = [True] * len(graph.by_user.row(user)) + [False] * len(unliked.row(user))
        others, first = [row(items, n) for n in ends], 0
        xi = [logit_size(own, other, -0.5) for other in others]
        for number, size in enumerate(compiled.coordinate_blocks(factors) if user in heavy else [factors]):
            sums = row_sums(own, others, liked, offset=-0.5, likelihood_weight=1.5, xi=xi)
            block = slice(first, first + size)
            rest = np.r_[0:first, first + size : factors]
            P, z = natural_step(own, sums, precision[user], epsilon, centre[user])
            z = z[block] - epsilon * sums.P[block][:, rest] @ own.mean[rest]
            mean, variance = own.mean.copy(), own.variance.copy()
            mean[block], variance[block] = recover_factorised(P[block, block], z)
            bias = bias_step(own, sums, 1.3, epsilon) if number == 0 else (own.bias, own.bias_variance)
            own, first = Row(mean, variance, *bias), first + size
        np.testing.assert_allclose(new.side.mean[user], own.mean, rtol=2e-3, atol=2e-5)
        np.testing.assert_allclose(new.side.variance[user], own.variance, rtol=2e-5)
        np.testing.assert_allclose(new.side.biases[0][user], own.bias, rtol=1e-3, atol=1e-5)
    square = (new.side.mean.astype(float) - (centre if own_priors else 0)) ** 2 + new.side.variance.astype(float)
    square = (square * (precision if own_priors else 1)).sum()
    assert new.moments.square == pytest.approx(square, rel=1e-5)
    assert new.moments.log_variance == pytest.approx(np.log(new.side.variance.astype(float)).sum(), rel=1e-5)


class Fixed:
    """A drawn H that stays."""

    deterministic = True

    def __init__(self, sampled: Sampled) -> None:
        self.sampled = sampled

    def user_terms(self, sweep, posterior, run):
        return self.sampled.user_terms(1, posterior, run)

    def item_terms(self, sweep, posterior, run):
        return self.sampled.item_terms(1, posterior, run)

    def settled(self, sweep):
        return True


def states(graph: Graph, estimator, settings: FitPlan, threads: int, count: int) -> list[State]:
    with LocalBackend(threads) as backend:
        found = [initial_state(graph, settings)]
        for done in InMemory(graph, estimator, settings, backend).sweeps():
            found.append(done.state)
            if done.state.sweep == count:
                return found
    raise AssertionError


@pytest.mark.parametrize("kind", ["fixed", "expected"])
def test_the_bound_never_falls(kind: str) -> None:
    graph, settings = planted(), FitPlan.of_paper(factors=100, negatives=2.0, precision_delay=0, user_bias=True)
    weights = popularity_weights(graph.by_item.degrees, 1.0)
    if kind == "fixed":
        estimator = Fixed(Sampled(graph.by_user, graph.user_blocks, weights, 2.0, 0))
    else:
        estimator = Expected(graph.by_user, graph.user_blocks, weights, 2.0, settings.offset, 8, run_serially)
        estimator.grouping.regroup(initial_state(graph, settings).posterior.items.mean)
        estimator.grouping.regroup = lambda means: None
    with LocalBackend(1) as backend:
        bounds = [
            InMemory(graph, estimator, settings, backend).evaluate_bound(state).total
            for state in states(graph, estimator, settings, 1, 12)
        ]
    rises = np.diff(bounds)
    assert rises.min() > -1e-5 * abs(bounds[-1])
    assert rises.sum() > 100


@pytest.mark.parametrize("kind", ["sampled", "expected"])
def test_the_same_bits_for_any_number_of_threads_and_for_a_split_row(kind: str) -> None:
    graph, settings = planted(), FitPlan.of_paper(factors=80, precision_delay=1)
    assert 0 in heavy_rows(graph.by_item.degrees, graph.item_blocks)
    weights = popularity_weights(graph.by_item.degrees, 1.0)

    def estimator():
        if kind == "sampled":
            return Sampled(graph.by_user, graph.user_blocks, weights, 1.0, 0)
        return Expected(graph.by_user, graph.user_blocks, weights, 1.0, 0.0, 8, run_serially)

    one, two = (states(graph, estimator(), settings, threads, 4)[-1].posterior for threads in (1, 2))
    np.testing.assert_array_equal(one.users.rows, two.users.rows)
    np.testing.assert_array_equal(one.items.rows, two.items.rows)
    assert one.precisions == two.precisions
    unsplit = Graph(graph.by_user, graph.by_item, graph.user_blocks, np.array([0, graph.item_count]))
    assert len(heavy_rows(unsplit.by_item.degrees, unsplit.item_blocks)) == 0
    whole = states(unsplit, estimator(), FitPlan.of_paper(factors=80, precision_delay=100), 1, 2)[-1].posterior
    split = states(graph, estimator(), FitPlan.of_paper(factors=80, precision_delay=100), 2, 2)[-1].posterior
    np.testing.assert_array_equal(whole.items.rows, split.items.rows)
    np.testing.assert_array_equal(whole.items.biases, split.items.biases)
