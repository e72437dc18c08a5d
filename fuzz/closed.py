"""The expectation over q(H) in closed form against dense matrices: E[h], the shared xi, and the sums of both sides.

What the sums over groups hold of liked items is taken back. An error is held against all that was added, liked items
too: where little is left of a group, little of its accuracy is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Graph, run_serially
from considerate.inference.hidden import Expected, user_offset
from considerate.inference.plan import FitPlan
from considerate.inference.posterior import Posterior, Side
from considerate.inference.sums import CoordinateBlock, EdgeSums, edge_sums
from considerate.inference.sweep import InMemory, initial_state
from considerate.kernels import compiled
from considerate.kernels.threads import LocalBackend
from fuzz.base import Choices
from fuzz.passes import near
from tests.helpers import naive

Array = NDArray[Any]
ERROR = 2e-5  # of what was added: sums in float32 over tens of edges, corrections among them
LEFT = 1e-3  # share of a group's sum that must be left for its xi to be compared


def check(choices: Choices) -> str:
    """One sweep of a small graph with every instruction set; "refused" if there is nothing to draw."""
    numbers = np.random.default_rng(choices.below(256))
    users, items, factors = 1 + choices.below(7), 1 + choices.below(14), choices.pick([1, 3, 8, 20, 33, 64])
    chance = numbers.choice([0.0, 0.1, 0.5, 0.9, 1.0], users)
    likes = numbers.random((users, items)) < chance[:, None]
    likes[:, 0] |= choices.below(2) == 1
    weights = numbers.choice([[1.0, 2.0, 7.0], [0.0, 1.0, 3.0], [1e-9, 1.0, 1e9]][choices.below(3)], items)
    if not likes.any() or not weights.any():
        return "refused"
    rows, columns = (part.astype(np.int32) for part in np.nonzero(likes))
    graph = Graph.from_pairs(rows, columns, users, items, block_edges=choices.pick([3, 10**6]))
    plan = FitPlan.of_paper(
        factors=factors,
        negatives=choices.pick([1.5, 0.3, 5.0, 1e-3, 1000.0]),
        likelihood_weight=choices.pick([1.5, 1.0, 0.01, 100.0]),
        user_bias=bool(choices.below(2)),
    )
    extra = user_offset(graph.by_user, weights, plan)
    scale = choices.pick([1.0, 1.0, 0.01, 100.0])
    sides = [_side(numbers, count, factors, scale, bias) for count, bias in ((users, plan.user_bias), (items, True))]
    posterior = replace(initial_state(graph, plan).posterior, users=sides[0], items=sides[1])
    groups = 1 + choices.below(4)
    for name in compiled.instruction_sets():
        compiled.use_instruction_set(name)
        how = weights, plan.negatives, plan.offset, groups, run_serially
        estimator = Expected(graph.by_user, graph.user_blocks, *how, user_offset=extra)
        with LocalBackend(1) as backend, np.errstate(all="ignore"):
            check_sweep(InMemory(graph, estimator, plan, backend, user_offset=extra), estimator, posterior)
    return "read"


def _side(numbers: np.random.Generator, rows: int, factors: int, scale: float, bias: bool) -> Side:
    mean, variance = numbers.normal(0, 0.7, (rows, factors)), numbers.uniform(0.02, 0.6, (rows, factors))
    biases = numbers.normal(0, 0.7, rows), numbers.uniform(0.02, 0.6, rows)
    return Side.of(scale * mean, scale * variance, biases if bias else None)


def check_sweep(runner: InMemory, estimator: Expected, q: Posterior) -> None:
    graph, plan = runner.graph, runner.settings
    extra = 0.0 if runner.user_offset is None else runner.user_offset.astype(np.float64)
    prior = naive.Prior(np.broadcast_to(plan.offset + extra, graph.user_count), plan.likelihood_weight)
    block, g = CoordinateBlock.of(q.factors), naive.likes(graph)

    def dense(q: Posterior) -> Dense:
        group, considered = estimator.grouping.group_of_item, naive.expected_considered(estimator)
        shared = estimator.shares.curvature[:, group].astype(np.float64)
        drawn = considered_everywhere(estimator)
        return Dense(naive.Factor.of(q.users), naive.Factor.of(q.items), g, considered, drawn, shared, prior)

    kernel_pass = runner.users_pass(estimator.user_terms(1, q, run_serially), q)
    everyone, every = (np.arange(count, dtype=np.int32) for count in g.shape)
    sums = edge_sums(kernel_pass, everyone, block, (0, graph.item_count), closed_form=True)
    pairs = dense(q)
    check_masses(estimator, pairs)
    for user in np.flatnonzero(check_shared(estimator, pairs)):
        pairs.check_row(sums, user, of_user=True)
    q = replace(q, users=runner.update_users(estimator.user_terms(1, q, run_serially), q).side)
    pairs = dense(q)
    item_pass: Any = runner.items_pass(estimator.item_terms(1, q, run_serially), q)
    for reading in (item_pass.in_one_go, item_pass.along_tree):
        sums = edge_sums(reading, every, block, (0, graph.user_count), closed_form=True)
        for item in every:
            pairs.check_row(sums, item, of_user=False)


def considered_everywhere(estimator: Expected) -> Array:
    """E[h] of all pairs, as the sums over groups have it."""
    group, shares, weights = estimator.grouping.group_of_item, estimator.shares, estimator.weights
    return np.where(weights > 0, shares.alpha[:, group].astype(float) * weights + shares.floor[:, group], 0.0)


def check_masses(estimator: Expected, pairs: Dense) -> None:
    """Every E[h] is a probability, and those of a group that were not liked add up to its mass."""
    considered, free = pairs.considered, 1.0 - pairs.g
    assert ((considered >= 0) & (considered <= 1 + 1e-5)).all(), considered
    chance = -np.expm1(-estimator.shares.temperature[:, None] * estimator.weights)
    for b in range(estimator.grouping.groups):
        mine = estimator.grouping.group_of_item == b
        found, mass, of_all = ((part * mine).sum(axis=1) for part in (considered * free, chance * free, chance))
        near(f"mass of group {b}", found, mass, 1e-3 * mass + ERROR * of_all + 1e-9)


def check_shared(estimator: Expected, pairs: Dense) -> Array:
    """Hold xi^2 of each group to the mean of its pairs. Returns a mask of the users whose groups could all be held."""
    square, sure = naive.logit_moments(pairs.users, pairs.items, pairs.prior.offset)[1], np.ones(len(pairs.g), np.bool_)
    left, of_all = pairs.considered * (1 - pairs.g), pairs.drawn
    for b in np.unique(estimator.grouping.group_of_item):
        mine = estimator.grouping.group_of_item == b
        mass, squares, all_mass, all_squares = (
            part[:, mine].sum(axis=1) for part in (left, left * square, of_all, of_all * square)
        )
        enough = (mass > LEFT * all_mass) & (squares > LEFT * all_squares)
        twice = 2.0 * naive.curvature(np.sqrt(np.divide(squares, mass, out=np.ones_like(mass), where=mass > 0)))[enough]
        near(f"l of group {b}", pairs.shared[enough, mine.argmax()], twice, ERROR / LEFT * twice)
        sure &= enough | (mass == 0)
    return sure


def xi_of(twice: Array) -> Array:
    """xi where 2 lambda(xi) is this, by bisection."""
    low, high = np.zeros(twice.shape), np.full(twice.shape, 1e12)
    for _ in range(200):
        middle = (low + high) / 2
        above = 2.0 * naive.curvature(middle) > twice
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return low


@dataclass(frozen=True)
class Dense:
    """Matrices over all pairs, as a pass reads them."""

    users: naive.Factor
    items: naive.Factor
    g: Array
    considered: Array  # E[h]; 1 of what is liked
    drawn: Array  # the same as the sums over groups have it, of liked pairs too
    shared: Array  # l = 2 lambda(xi) of each pair's group
    prior: naive.Prior

    @cached_property
    def xi(self) -> Array:
        """Liked pairs have their own, the others that of their group."""
        own = np.sqrt(naive.logit_moments(self.users, self.items, self.prior.offset)[1])
        return np.where(self.g > 0, own, xi_of(self.shared))

    def check_row(self, sums: EdgeSums, row: int, *, of_user: bool) -> None:
        matrices = self.g, self.considered, self.prior, self.xi
        P, z, bias_P, bias_z = naive.row_sums(self.users, self.items, *matrices, row, of_user=of_user)
        own, other = (self.users, self.items) if of_user else (self.items, self.users)
        considered, drawn, shared, p, offset = (
            ERROR * (part[row] if of_user else part[:, row])
            for part in (
                self.considered,
                self.drawn,
                self.drawn * self.shared,
                self.considered * 2.0 * naive.curvature(self.xi),
                np.broadcast_to(np.reshape(self.prior.offset, (-1, 1)), self.g.shape) / ERROR,
            )
        )
        size = np.abs(other.mean) @ np.abs(own.mean[row]) + abs(own.bias[row]) + np.abs(other.bias) + np.abs(offset)
        V, p, pull = np.abs(other.mean), self.prior.weight * (p + 2 * shared), self.prior.weight * (considered + drawn)
        P_slack = (V * p[:, None]).T @ V + np.diag(p @ other.variance)
        lower = np.tril_indices(len(z))
        near("second", sums.second[row], P[lower], P_slack[lower] + 1e-30)
        near("first", sums.first[row], z, (pull + p * size) @ V + 1e-30)
        slack = np.array([p.sum(), (pull + p * size).sum()])
        near("bias", sums.bias[row], np.array([bias_P, bias_z]), slack + 1e-30)
