"""Graphs whose vertices are of one kind: each step against brute force, the blocks, the draws, the truth come back."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import optimize

from considerate.data.edges import symmetric
from considerate.data.graph import Adjacency, Graph, row_blocks
from considerate.data.known import Known
from considerate.inference.hidden import Draws, Sampled
from considerate.inference.hidden.paths import vertex_consideration
from considerate.inference.plan import FitPlan
from considerate.inference.posterior import Gamma, Posterior, Side, mirrored
from considerate.inference.vertices import VertexBlocks, VertexSweeps, initial_vertices
from considerate.kernels.threads import LocalBackend
from tests.helpers import naive

BACKEND = LocalBackend(1)
PLAN = FitPlan.of_paper(factors=3, negatives=2.0, user_bias=True, signed=False, precision_delay=2)
signs = pytest.mark.parametrize("signed", [False, True], ids=["u'u", "u'Su"])


def graph_of(edges: Adjacency) -> Graph:
    return Graph(edges, edges, row_blocks(edges.starts), row_blocks(edges.starts))


def planted(vertices: int = 14, seed: int = 0, within: float = 0.8, across: float = 0.1) -> Graph:
    """Two groups, with links within them, or across."""
    random = np.random.default_rng(seed)
    low, high = np.triu_indices(vertices, 1)
    chance = np.where(low % 2 == high % 2, within, across)
    linked = random.random(len(low)) < chance
    return graph_of(symmetric(low[linked].astype(np.int32), high[linked].astype(np.int32), vertices))


def sweeps_over(graph: Graph, plan: FitPlan = PLAN, walk: bool = False) -> VertexSweeps:
    edges = graph.by_item
    table = vertex_consideration(edges, 500, None) if walk else None
    draws = Draws.of(edges.degrees.astype(float), table)
    itself = Known(impossible=Adjacency(np.arange(edges.rows + 1), np.arange(edges.rows, dtype=np.int32)))
    sampled = Sampled(edges, graph.user_blocks, draws, plan.negatives / 2, plan.seed, known=itself)
    return VertexSweeps(graph, sampled, plan, BACKEND)


class Brute:
    """L_xi of one side of vertices, over the pairs m < n that `weights` has."""

    def __init__(self, runner: VertexSweeps, hidden: Adjacency, partition: VertexBlocks | None = None) -> None:
        plan, edges = runner.settings, runner.graph.by_item
        self.g = naive.dense(edges, edges.rows)
        self.weights = np.triu(self.g + naive.dense(hidden, edges.rows), 1)
        if partition is not None:
            apart = partition.block_of[:, None] != partition.block_of
            pairs = np.triu(np.ones_like(self.g), 1)
            self.weights *= apart * pairs.sum() / (pairs * apart).sum()
        self.prior = naive.Prior(plan.offset, plan.likelihood_weight, plan.prior_shape, plan.prior_rate)
        self.signs = np.where(np.arange(plan.factors) < (plan.factors + 1) // 2, 1.0, -1.0 if plan.signed else 1.0)

    def best_xi(self, f: naive.Factor) -> np.ndarray:
        return naive.best_xi(naive.logit_moments(replace(f, mean=f.mean * self.signs), f, self.prior.offset)[1])

    def bound(self, f: naive.Factor, taus: tuple[Gamma, Gamma], xi: np.ndarray | None = None) -> float:
        seen = replace(f, mean=f.mean * self.signs)
        edges = naive.edges_term(seen, f, self.g, self.weights, self.prior, xi)
        vectors = naive.gaussian_term(f.mean, f.variance, taus[0])
        biases = naive.gaussian_term(f.bias, f.bias_variance, taus[1])
        return edges + vectors + biases + sum(naive.gamma_term(tau, self.prior) for tau in taus)


def started(runner: VertexSweeps) -> Posterior:
    """The library's start, with precisions of 1: so small a graph is pruned otherwise."""
    q = initial_vertices(runner.graph.item_count, runner.settings).posterior
    taus = replace(q.precisions, item=Gamma(9.0, 9.0), user=Gamma(9.0, 9.0))
    return replace(q, precisions=taus)


def taus_of(q: Posterior) -> tuple[Gamma, Gamma]:
    assert q.precisions.item_bias is not None
    return q.precisions.item, q.precisions.item_bias


def with_side(q: Posterior, side: Side, plan: FitPlan) -> Posterior:
    return replace(q, items=side, users=mirrored(side, bool(plan.signed)))


# --- The step ---


def numeric_argmax(value, start: np.ndarray) -> np.ndarray:
    for _ in range(2):
        start = optimize.minimize(lambda x: -value(x), start, method="BFGS", jac="3-point", options={"gtol": 1e-7}).x
    return start


@signs
@pytest.mark.parametrize("weight", [1.0, 1.7])
def test_each_step_is_the_argmax_of_the_bound_on_the_weighted_edges_between_blocks(signed, weight):
    plan = replace(PLAN, signed=signed, likelihood_weight=weight, factors=2)
    runner = sweeps_over(planted(10), plan)
    hidden, whole = runner.draw(1), VertexBlocks.draw(10, 0, 1, 3)
    q = started(runner)
    for sweep in range(2, 5):
        q = with_side(q, runner.step_blocks(q, hidden, VertexBlocks.draw(10, 0, sweep, 3))[0], plan)
    first_alone = replace(whole, count=1)  # only block 0 is stepped
    old, new = naive.Factor.of(q.items), naive.Factor.of(runner.step_blocks(q, hidden, first_alone)[0])
    brute, taus = Brute(runner, hidden, whole), taus_of(q)
    xi, still = brute.best_xi(old), whole.block_of != 0
    assert np.array_equal(old.mean[still], new.mean[still])
    for row in np.flatnonzero(~still)[:2]:

        def of_vector(x: np.ndarray, row: int = row) -> float:
            return brute.bound(old.with_row(row, mean=x[:2], variance=np.exp(x[2:])), taus, xi)

        def of_bias(x: np.ndarray, row: int = row) -> float:
            return brute.bound(old.with_row(row, bias=x[0], bias_variance=math.exp(x[1])), taus, xi)

        best = numeric_argmax(of_vector, np.concatenate([old.mean[row], np.log(old.variance[row])]))
        np.testing.assert_allclose(new.mean[row], best[:2], rtol=2e-3, atol=3e-4)
        np.testing.assert_allclose(new.variance[row], np.exp(best[2:]), rtol=2e-3)
        best = numeric_argmax(of_bias, np.array([old.bias[row], math.log(old.bias_variance[row])]))
        np.testing.assert_allclose(new.bias[row], best[0], rtol=2e-3, atol=3e-4)
        np.testing.assert_allclose(new.bias_variance[row], math.exp(best[1]), rtol=2e-3)


def falls(bounds: list[float]) -> float:
    """The largest fall of the bound from one step to the next."""
    return max(0.0, -float(np.diff(bounds).min()))


def bounds_of(
    plan: FitPlan, blocks: int, epsilon: float, at_once: bool = False, graph: Graph | None = None
) -> list[float]:
    """The bound on the weighted edges of one H and one partition, after each block's step; or with all blocks stepped
    from the same start."""
    runner = sweeps_over(graph or planted(), plan)
    hidden, whole = runner.draw(1), VertexBlocks.draw(14, 0, 1, blocks)
    q, brute = started(runner), Brute(runner, hidden, whole)
    bounds = [brute.bound(naive.Factor.of(q.items), taus_of(q))]
    for _ in range(8):
        start = q
        for block in range(blocks):
            only = VertexBlocks(np.where(whole.block_of == block, 0, 1 + whole.block_of).astype(np.int32), 1)
            stepped = runner.step_blocks(start if at_once else q, hidden, only, epsilon)[0]
            side, mine = q.items.copy(), np.flatnonzero(whole.block_of == block)
            side.put(mine, stepped.take(mine))
            q = with_side(q, side, plan)
            if not at_once or block == blocks - 1:
                bounds.append(brute.bound(naive.Factor.of(q.items), taus_of(q)))
    return bounds


@signs
@pytest.mark.parametrize("epsilon", [1.0, 0.4])
@pytest.mark.parametrize("blocks", [2, 5])
def test_a_blocks_step_never_lowers_the_bound(signed, epsilon, blocks):
    bounds = bounds_of(replace(PLAN, signed=signed, likelihood_weight=1.5), blocks, epsilon)
    assert falls(bounds) < 1e-4
    assert bounds[-1] > bounds[0] + 1.0


@signs
def test_stepping_both_ends_of_edges_at_once_is_caught(signed):
    plan, graph = replace(PLAN, signed=signed, likelihood_weight=1.5), planted(within=0.1, across=0.8)
    assert falls(bounds_of(plan, 2, 1.0, graph=graph)) < 1e-4
    assert falls(bounds_of(plan, 2, 1.0, at_once=True, graph=graph)) > 1.0


@signs
def test_the_reported_bound_is_brute_force_on_all_edges(signed):
    runner = sweeps_over(planted(), replace(PLAN, signed=signed, likelihood_weight=1.5), walk=True)
    states, bounds = [], []
    for sweep in runner.sweeps():
        states.append(sweep.state)
        bounds.append(sweep.bound.total)
        if sweep.state.sweep == 4:
            break
    for number in (2, 3):  # the bound of a sweep is of the posterior before it
        brute, q = Brute(runner, runner.draw(number)), states[number - 2].posterior
        assert bounds[number - 1] == pytest.approx(brute.bound(naive.Factor.of(q.items), taus_of(q)), rel=1e-5)
    assert runner.evaluate_bound(states[-1]).total == pytest.approx(
        Brute(runner, runner.draw(5)).bound(naive.Factor.of(states[-1].posterior.items), taus_of(states[-1].posterior)),
        rel=1e-5,
    )


def test_the_precisions_are_the_argmax_of_the_bound():
    runner = sweeps_over(planted())
    for sweep in runner.sweeps():
        if sweep.state.sweep == 3:
            break
    q, moments = sweep.state.posterior, sweep.state.item_moments
    brute, f = Brute(runner, runner.draw(4)), naive.Factor.of(q.items)
    new = runner.update_precisions(taus_of(q), moments, 1.0)

    def value(x: np.ndarray) -> float:
        return brute.bound(f, (Gamma(*np.exp(x[:2])), Gamma(*np.exp(x[2:]))))

    start = np.log([number for tau in taus_of(q) for number in (tau.shape, tau.rate)])
    found = [number for tau in new for number in (tau.shape, tau.rate)]
    np.testing.assert_allclose(found, np.exp(numeric_argmax(value, start)), rtol=2e-3)


# --- Blocks and draws ---


@pytest.mark.parametrize(("vertices", "blocks"), [(3, 16), (14, 2), (15, 2), (50, 16)])
def test_blocks_are_equal_and_their_weight_is_right_on_average(vertices, blocks):
    partition = VertexBlocks.draw(vertices, 7, 3, blocks)
    sizes = np.bincount(partition.block_of, minlength=partition.count)
    assert partition.count == min(blocks, vertices)
    assert sizes.max() - sizes.min() <= 1
    apart = partition.block_of[:, None] != partition.block_of  # over all pairs, as each is as likely as any other
    assert partition.weight * apart.sum() == pytest.approx(vertices * (vertices - 1))
    again, other = VertexBlocks.draw(vertices, 7, 3, blocks), VertexBlocks.draw(vertices, 7, 4, blocks)
    assert np.array_equal(partition.block_of, again.block_of)
    assert blocks >= vertices or not np.array_equal(partition.block_of, other.block_of)


@pytest.mark.parametrize("walk", [False, True])
def test_draws_are_symmetric_and_never_a_link_or_the_vertex_itself(walk):
    graph = planted(60, within=0.2, across=0.02)
    runner = sweeps_over(graph, replace(PLAN, negatives=2.0), walk=walk)
    drawn = [naive.dense(runner.draw(sweep), 60) for sweep in range(1, 9)]
    linked = naive.dense(graph.by_item, 60)
    for one in drawn:
        assert np.array_equal(one, one.T)
        assert not (one * linked).any()
        assert not np.diagonal(one).any()
    assert not np.array_equal(drawn[0], drawn[1])
    assert 1.4 < np.mean([one.sum() for one in drawn]) / linked.sum() <= 2.0  # pairs that both ends drew count once


def test_the_walks_table_is_the_mean_of_three_powers_and_keeps_the_degrees():
    edges = planted(30, within=0.3, across=0.05).by_item
    step = naive.dense(edges, 30) / np.maximum(edges.degrees, 1)[:, None]
    walk = vertex_consideration(edges, 500, 0.1)
    table = np.zeros((30, 30))
    for row in range(30):
        others, shares = walk.row(row)
        table[row, others] = shares
    np.testing.assert_allclose(table, (step + step @ step + step @ step @ step) / 3, atol=1e-6)
    met = (step @ table * edges.degrees[:, None]).sum(axis=0)  # by d_m walks from each m
    np.testing.assert_allclose(met, edges.degrees, rtol=1e-5)


# --- Truth ---


def truth(signed: bool, vertices: int = 240, factors: int = 2, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """(logits, links) where every pair was considered. With signs, unlike vertices link."""
    random = np.random.default_rng(seed)
    u = random.normal(0, 1.2, (vertices, factors))
    bias = random.normal(0, 0.5, vertices)
    logits = (-1 if signed else 1) * u @ u.T + bias[:, None] + bias - 2.0
    links = np.triu(random.random(logits.shape) < 1 / (1 + np.exp(-logits)), 1)
    return logits, links


def correlation(signed_truth: bool, signed_model: bool) -> float:
    """Between the true logits and those of a fit that is given every pair without a link, as H."""
    logits, links = truth(signed_truth)
    low, high = np.nonzero(links)
    edges = symmetric(low.astype(np.int32), high.astype(np.int32), len(logits))
    others = ~(links | links.T) & ~np.eye(len(logits), dtype=bool)
    hidden = symmetric(*(ends.astype(np.int32) for ends in np.nonzero(np.triu(others))), len(logits))
    plan = FitPlan.of_paper(factors=4, negatives=1.0, user_bias=True, signed=signed_model, precision_delay=2)
    runner = sweeps_over(graph_of(edges), plan)
    q = initial_vertices(len(logits), plan).posterior
    for sweep in range(1, 9):
        q = with_side(q, runner.step_blocks(q, hidden, VertexBlocks.draw(len(logits), 0, sweep))[0], plan)
    found = q.users.mean @ q.items.mean.T + q.items.biases[0][:, None] + q.items.biases[0]
    pairs = np.triu_indices(len(logits), 1)
    return float(np.corrcoef(found[pairs], logits[pairs])[0, 1])


def test_true_logits_come_back():
    assert correlation(False, False) > 0.92


def test_links_between_unlike_vertices_come_back_with_signs_and_not_without():
    with_signs, without = correlation(True, True), correlation(True, False)
    assert with_signs > 0.92
    assert without < 0.75
