"""Known H: draws around what is known, updates with it against the bound, and the truth that it helps to find."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from considerate.data.graph import Adjacency, Graph, run_serially
from considerate.data.known import Known, Rules
from considerate.inference.hidden import Consideration, Draws, Expected, Sampled, user_offset
from considerate.inference.hidden.saturation import Saturation
from considerate.inference.plan import FitPlan
from considerate.inference.posterior import Side
from tests.engine.test_inference import (
    FixedDraw,
    Problem,
    biases,
    check_row,
    kinds,
    planted,
    states,
    update_items,
    weights,
)
from tests.helpers import naive, naive_draws


def rows_of(matrix: np.ndarray) -> Adjacency:
    return Adjacency.of_rows([np.flatnonzero(row).astype(np.int32) for row in matrix])


def random_known(random: np.random.Generator, likes: np.ndarray, share: float = 0.2) -> tuple[np.ndarray, np.ndarray]:
    """(considered, impossible), which overlap neither each other nor the likes."""
    kind = random.choice(3, likes.shape, p=[1 - 2 * share, share, share])
    return (kind == 1) & ~likes, (kind == 2) & ~likes


def random_rules(random: np.random.Generator, users: int, items: int, classes: bool, times: bool) -> Rules:
    rules = Rules()
    if classes:
        bits = np.zeros((3, 128), np.bool_)
        bits[:, :70] = random.random((3, 70)) < 0.6
        rules = replace(
            rules,
            user_class=random.integers(0, 3, users).astype(np.int32),
            item_class=random.integers(0, 70, items).astype(np.int32),
            allowed=np.packbits(bits, axis=1, bitorder="little").view(np.uint64),
        )
    if times:
        spans = [np.sort(random.integers(0, 10, (rows, 2)).astype(np.float64), axis=1) for rows in (users, items)]
        rules = replace(rules, user_times=spans[0], item_times=spans[1])
    return rules


def forbidden_by(rules: Rules | None, users: int, items: int) -> np.ndarray:
    """[M, N], told pair by pair from what the rules mean."""
    found = np.zeros((users, items), np.bool_)
    for m in range(users) if rules is not None else ():
        for n in range(items):
            if rules.allowed is not None:
                word = int(rules.allowed[rules.user_class[m], rules.item_class[n] // 64])
                found[m, n] |= not word >> int(rules.item_class[n] % 64) & 1
            if rules.item_times is not None:
                found[m, n] |= max(rules.user_times[m, 0], rules.item_times[n, 0]) > min(
                    rules.user_times[m, 1], rules.item_times[n, 1]
                )
    return found


# --- Draws ---


@given(
    seed=st.integers(0, 2**32 - 1),
    items=st.integers(2, 30),
    negatives=st.sampled_from([0.3, 1.0, 2.5, 20.0]),
    walk=st.booleans(),
    tilt=st.sampled_from([0.0, 0.0, 1.0]),
    rules=st.sampled_from(["none", "classes", "times", "both"]),
)
@settings(max_examples=150, deadline=None)
def test_what_is_known_is_in_every_h_and_what_is_impossible_in_none(seed, items, negatives, walk, tilt, rules):
    random, users = np.random.default_rng(seed), 12
    likes = random.random((users, items)) < random.uniform(0.05, 0.5)
    likes[0, 0] = True
    considered, impossible = random_known(random, likes, random.uniform(0.0, 0.4))
    made = None
    if rules != "none":
        made = random_rules(random, users, items, rules in ("classes", "both"), rules in ("times", "both"))
    graph = Graph.from_adjacency(rows_of(likes), items)
    pi = np.where(random.random(items) < 0.8, random.gamma(1.0, 2.0, items), 0.0)
    pi[likes.any(axis=0).argmax()] = 1.0
    table = Consideration.of_graph(graph.by_user, graph.by_item, pi, 50, 0.1) if walk else None
    known = Known(rows_of(considered), rows_of(impossible), made)
    sides = tuple(Side.constant(count, 3, 0.5, None) for count in (users, items))
    sampled = Sampled(graph.by_user, graph.user_blocks, Draws.of(pi, table, tilt), negatives, seed % 1000, known=known)
    drawn = sampled.draw(1, sides=sides)
    closed = likes | considered | impossible | forbidden_by(made, users, items) | (pi == 0)
    wanted = known.wanted(graph.by_user.degrees, negatives)
    for user in range(users):
        row, shown = drawn.row(user), considered[user].sum()
        assert set(row[:shown]) == set(np.flatnonzero(considered[user]))
        assert len(set(row)) == len(row)
        assert not closed[user, row[shown:]].any()
        most = min(math.ceil(wanted[user]), (~closed[user]).sum())
        assert min(math.floor(wanted[user]), (~closed[user]).sum()) <= len(row) - shown <= most


def test_rules_forbid_what_they_say():
    random = np.random.default_rng(0)
    rules = random_rules(random, 9, 40, True, True)
    expected = forbidden_by(rules, 9, 40)
    np.testing.assert_array_equal([rules.forbid(user, slice(None)) for user in range(9)], expected)
    np.testing.assert_array_equal([rules.between(3, 7).forbid(user, slice(None)) for user in range(4)], expected[3:7])
    assert (rules.most_forbidden(np.ones(40, bool)) >= expected.sum(axis=1)).all()
    assert 0.1 < expected.mean() < 0.9


def test_with_nothing_known_the_draws_are_as_ever():
    graph, pi = planted(60, 40), np.arange(1.0, 41.0)
    plain, known = (
        Sampled(graph.by_user, graph.user_blocks, pi, 2.3, 7, known=known).draw(3)
        for known in (None, Known(rows_of(np.zeros((60, 40), bool))))
    )
    np.testing.assert_array_equal(plain.indices, known.indices)


@pytest.mark.parametrize("rules", [False, True])
def test_what_is_drawn_follows_pi_among_what_is_open(rules):
    """4,000 users who like item 0, know item 1, cannot have 2 (nor 3, by a rule): one draw each from the others."""
    users, items, pi = 4000, 8, np.arange(1.0, 9.0)
    column = np.arange(items)
    likes, considered, impossible = (np.tile(column == item, (users, 1)) for item in (0, 1, 2))
    made = None
    if rules:
        times = np.where(column[:, None] == 3, [5.0, 6.0], [0.0, 9.0])
        made = Rules(user_times=np.tile([1.0, 2.0], (users, 1)), item_times=times)
    known = Known(rows_of(considered), rows_of(impossible), made)
    drawn = Sampled(rows_of(likes), np.array([0, users]), pi, 2.0, 5, known=known).draw(1)
    assert (drawn.degrees == 2).all()
    found = np.bincount(drawn.indices[1::2], minlength=items)
    left = np.where(column >= 3 + rules, pi, 0.0)
    expected = users * left / left.sum()
    assert (found[expected == 0] == 0).all()
    assert ((found - expected)[expected > 0] ** 2 / expected[expected > 0]).sum() < 25  # of 4 degrees of freedom


def test_in_a_large_catalogue_the_walk_leaves_out_what_is_impossible():
    """Where what the walk leads to is kept apart from pi: the walk leads to likes and impossible items as a rule."""
    items, users = 70_000, 30
    likes = np.zeros((users, 60), bool)
    likes[:, :40] = np.random.default_rng(0).random((users, 40)) < 0.7
    graph = Graph.from_adjacency(rows_of(likes), items)
    pi = np.where(np.arange(items) < 40, 1e6, 1.0)
    table = Consideration.of_graph(graph.by_user, graph.by_item, pi, 50, 0.01)
    unliked = [np.flatnonzero(~row[:40]).astype(np.int32) for row in likes]
    known = Known(Adjacency.of_rows([row[:2] for row in unliked]), Adjacency.of_rows([row[2:] for row in unliked]))
    sampled = Sampled(graph.by_user, graph.user_blocks, Draws.of(pi, table), 1.0, 3, known=known)
    drawn = sampled.draw(1)
    assert sampled.tree_draws > users, "many draws are discarded"
    for user in range(users):
        row = drawn.row(user)
        np.testing.assert_array_equal(row[:2], unliked[user][:2])
        assert (row[2:] >= 40).all()
        assert len(set(row)) == len(row) == likes[user].sum()


def test_temperatures_leave_out_what_is_known():
    random = np.random.default_rng(1)
    likes = random.random((20, 30)) < 0.2
    considered, impossible = random_known(random, likes, 0.1)
    pi, known = random.gamma(1.0, 2.0, 30), Known(rows_of(considered), rows_of(impossible))
    found = Saturation(pi).inclusion.temperatures(rows_of(likes), np.array([0, 20]), 1.5, run_serially, known)
    wanted = 1.5 * likes.sum(axis=1) - considered.sum(axis=1)
    assert (wanted > 0).sum() > 10
    assert (wanted <= 0).any()
    for user in range(20):
        closed = np.flatnonzero(likes[user] | considered[user] | impossible[user])
        if wanted[user] <= 0:
            assert found[user] < 1e-200
        else:
            assert found[user] == pytest.approx(naive_draws.temperature(pi, closed, wanted[user]), rel=1e-5)


# --- Updates and the bound ---


@dataclass(frozen=True)
class KnownProblem(Problem):
    """With what is known of H."""

    known: Known = field(default_factory=Known)

    @property
    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        return tuple(naive.dense(pairs, self.graph.item_count) for pairs in vars(self.known).values() if pairs)

    @property
    def considered(self) -> np.ndarray:
        if not isinstance(self.estimator, Expected):
            return super().considered
        considered, impossible = self.pairs
        return np.where(considered > 0, 1.0, np.where(impossible > 0, 0.0, super().considered))

    def xi(self, users: naive.Factor, items: naive.Factor) -> np.ndarray:
        _, square = naive.logit_moments(users, items, self.offsets)
        if not isinstance(self.estimator, Expected):
            return naive.best_xi(square)
        own = self.g + self.pairs[0]  # those known keep a xi of their own, as likes do
        return naive.shared_xi(square, own, self.considered, self.estimator.grouping.group_of_item)


def known_problem(kind: str, user_bias: bool, weight: float, users: int = 16, items: int = 12) -> KnownProblem:
    graph, random = planted(users, items), np.random.default_rng(2)
    considered, impossible = random_known(random, naive.likes(graph) > 0, 0.15)
    many = int(graph.by_user.degrees.argmin())
    considered[many] = naive.likes(graph)[many] == 0  # more than c d_m
    impossible[many] = False
    known = Known(rows_of(considered), rows_of(impossible))
    plan = FitPlan.of_paper(factors=2, negatives=1.5, likelihood_weight=weight, user_bias=user_bias, precision_delay=3)
    pi = graph.by_item.degrees.astype(np.float64)
    extra = user_offset(graph.by_user, pi, plan, known)
    assert extra is not None
    assert extra.min() < 0.0 < extra.max(), "users of whom more than c d_m is known, and others who run out of items"
    if kind == "expected":
        likes = (graph.by_user, graph.user_blocks)
        estimator = Expected(*likes, pi, 1.5, plan.offset, 3, run_serially, known=known, user_offset=extra)
    else:
        drawn = Sampled(graph.by_user, graph.user_blocks, pi, 1.5, 5, known=known).draw(1)
        drawn = Adjacency(drawn.starts, np.concatenate([np.sort(drawn.row(m)) for m in range(users)]))
        estimator = FixedDraw(drawn, graph.item_count, run_serially)
    return KnownProblem(graph, estimator, plan, extra, known)


@kinds
@biases
@weights
def test_the_bound_with_what_is_known_equals_brute_force(kind, user_bias, weight):
    p = known_problem(kind, user_bias, weight)
    for state in states(p, 6)[1:]:
        assert p.runner.evaluate_bound(state).total == pytest.approx(p.bound(state.posterior), rel=2e-6)


@kinds
@biases
@weights
def test_the_bound_with_what_is_known_never_falls(kind, user_bias, weight):
    p = known_problem(kind, user_bias, weight)
    bounds = np.array([p.runner.evaluate_bound(state).total for state in states(p, 25)])
    rising = np.diff(bounds[4:] if kind == "expected" else bounds)  # once the groups are frozen
    assert rising.min() > -2e-6 * abs(bounds[-1])
    assert bounds[-1] > bounds[5]


@kinds
@biases
@weights
def test_each_update_with_what_is_known_is_the_argmax_of_the_bound(kind, user_bias, weight):
    p = known_problem(kind, user_bias, weight, 8, 6)
    q = states(p, 10)[-1].posterior
    taus, (users, items) = q.precisions, (naive.Factor.of(side) for side in (q.users, q.items))
    terms = p.estimator.user_terms(20, q, run_serially)
    stepped = p.runner.update_users(terms, q, 1.0).side
    xi, g, h = p.xi(users, items), p.g, p.considered
    new = naive.Factor.of(stepped)
    for row in (int(p.user_offset.argmin()), 5):
        value = lambda f: sum(naive.bound_terms(f, items, taus, g, h, p.prior, xi).values())  # noqa: E731
        check_row(users, new, row, value, user_bias)
    q = replace(q, users=stepped)
    new_items, own = naive.Factor.of(update_items(p, q).side), p.xi(new, items)
    if kind == "expected":
        own = np.where(g + p.pairs[0] > 0, own, xi)
    for row in (1, 4):
        value = lambda f: sum(naive.bound_terms(new, f, taus, g, h, p.prior, own).values())  # noqa: E731
        check_row(items, new_items, row, value, True)


def test_an_update_that_counts_known_pairs_in_the_groups_too_is_caught():
    """The control: the same check refuses the step of a pass whose sums over groups keep the known pairs, one that
    counts impossible pairs, and one without the users' own offset."""
    p = known_problem("expected", False, 1.0, 8, 6)
    q = states(p, 10)[-1].posterior
    users, items = (naive.Factor.of(side) for side in (q.users, q.items))
    p.estimator.user_terms(20, q, run_serially)
    p.runner.evaluate_bound(states(p, 10)[-1])
    xi, g, h, tau = p.xi(users, items), p.g, p.considered, q.precisions.user
    considered, impossible = p.pairs
    line = np.where(p.g > 0, 0.0, naive.expected_considered(p.estimator))  # what the groups hold of each pair
    twice, counted = ((line * pairs).sum(axis=1).argmax() for pairs in (considered, impossible))
    wrong = {
        "known twice": (h + considered * line, p.prior, twice),
        "impossible counted": (h + impossible * line, p.prior, counted),
        "one offset": (h, replace(p.prior, offset=p.settings.offset), p.user_offset.argmin()),
    }
    for name, (wrong_h, prior, row) in {"right": (h, p.prior, twice), **wrong}.items():
        offset = np.broadcast_to(prior.offset, len(g))[row]
        P, z, _, _ = naive.row_sums(
            users, items, g, wrong_h, replace(prior, offset=float(offset)), xi, row, of_user=True
        )
        P = P + tau.shape / tau.rate * np.eye(2)
        new = users.with_row(row, mean=np.linalg.solve(P, z), variance=1 / np.diag(P))
        value = lambda f: sum(naive.bound_terms(f, items, q.precisions, g, h, p.prior, xi).values())  # noqa: E731
        if name == "right":
            check_row(users, new, row, value, False)
        else:
            with pytest.raises(AssertionError):
                check_row(users, new, row, value, False)
