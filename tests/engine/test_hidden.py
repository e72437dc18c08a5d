"""q(H): the exact law of the draws, popularity, saturation, and the expectation in closed form."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
from scipy import stats

from considerate.data.graph import Adjacency, Graph, run_serially
from considerate.inference.hidden import (
    Expected,
    Sampled,
    correct_head,
    popularity_exponent,
    popularity_weights,
    positives_to_negatives,
)
from considerate.inference.hidden.groups import FREEZE_AFTER
from considerate.inference.hidden.saturation import Saturation
from considerate.inference.plan import FitPlan
from considerate.inference.posterior import Posterior, Side
from considerate.inference.sums import CoordinateBlock, PassConstants, edge_sums, side_pass
from considerate.inference.sweep import InMemory, initial_state
from considerate.kernels.threads import LocalBackend
from tests.helpers import naive


def graph_of(rows: list[list[int]], items: int, block_edges: int = 32_768) -> Graph:
    users = np.repeat(np.arange(len(rows)), [len(row) for row in rows]).astype(np.int32)
    return Graph.from_pairs(users, np.concatenate(rows).astype(np.int32), len(rows), items, block_edges=block_edges)


def sampler(graph: Graph, weights: np.ndarray, negatives: float, seed: int = 3) -> Sampled:
    return Sampled(graph.by_user, graph.user_blocks, weights, negatives, seed)


def skewed_graph(users: int = 1500, items: int = 120, seed: int = 0, block_edges: int = 1000, shift: int = 0) -> Graph:
    """Likes in proportion to a steep popularity; the head is liked by most, with a `shift` by fewer."""
    random = np.random.default_rng(seed)
    popularity = 1.0 / np.arange(1 + shift, items + 1 + shift)
    keys = np.log(random.random((users, items))) / popularity
    degree = random.integers(3, 25, users)
    chosen = np.argsort(-keys, axis=1)
    return graph_of([chosen[m, : degree[m]].tolist() for m in range(users)], items, block_edges)


# --- The law of the draws ---


def law_of_sequences(weights: dict[int, float], count: int) -> dict[tuple[int, ...], float]:
    """Draws one after the other without replacement: the chance of every ordered outcome."""
    law = {}
    for sequence in permutations(weights, count):
        left, chance = sum(weights.values()), 1.0
        for n in sequence:
            chance *= weights[n] / left
            left -= weights[n]
        law[sequence] = chance
    return law


def law_of_sets(weights: dict[int, float], count: int) -> dict[frozenset[int], float]:
    law: dict[frozenset[int], float] = {}
    for sequence, chance in law_of_sequences(weights, count).items():
        law[frozenset(sequence)] = law.get(frozenset(sequence), 0.0) + chance
    return law


def chi_square(outcomes: list, law: dict) -> float:
    """p-value of outcomes under a law; an outcome outside the law fails at once."""
    counts = dict.fromkeys(law, 0)
    for outcome in outcomes:
        assert outcome in counts, f"{outcome} cannot happen"
        counts[outcome] += 1
    expected = np.array(list(law.values())) * len(outcomes)
    assert expected.sum() == pytest.approx(len(outcomes))
    return float(stats.chisquare(list(counts.values()), expected).pvalue)


def test_every_hidden_graph_of_two_users_and_three_items():
    """c = 1.5 with one like each: one or two of the other two items, at even odds. Nine graphs H."""
    weights = np.array([3.0, 1.0, 0.5])
    graph = graph_of([[0], [2]], 3)
    laws = []
    for liked in (0, 2):
        rest = {n: weights[n] for n in range(3) if n != liked}
        laws.append({s: p / 2 for count in (1, 2) for s, p in law_of_sets(rest, count).items()})
    law = {(a, b): laws[0][a] * laws[1][b] for a, b in product(*laws)}
    assert len(law) == 9
    estimator = sampler(graph, weights, 1.5)
    outcomes = []
    for sweep in range(20_000):
        drawn = estimator.draw(sweep)
        outcomes.append((frozenset(drawn.row(0).tolist()), frozenset(drawn.row(1).tolist())))
    assert chi_square(outcomes, law) > 1e-3
    wrong = dict.fromkeys(law, 1 / 9)
    assert chi_square(outcomes, wrong) < 1e-12


def many_alike(liked: list[int], weights: np.ndarray, negatives: float, users: int = 40_000) -> tuple[list, Sampled]:
    """The same user many times over, in the order of drawing."""
    estimator = sampler(graph_of([liked] * users, len(weights)), weights, negatives)
    drawn = estimator.draw(1)
    return [tuple(drawn.row(m).tolist()) for m in range(users)], estimator


def test_the_order_of_one_users_draws():
    """Three of five items, one item of weight zero beside them: 60 sequences."""
    weights = np.array([2.0, 1.0, 4.0, 0.0, 0.3, 2.5, 1.5, 7.0, 0.9])
    outcomes, estimator = many_alike([2, 7, 8], weights, 1.0)
    law = law_of_sequences({n: weights[n] for n in (0, 1, 4, 5, 6)}, 3)
    assert len(law) == 60
    assert estimator.tree_draws == 0
    assert chi_square(outcomes, law) > 1e-3


@pytest.mark.parametrize("heavy", [40.0, 1e7])
def test_the_tree_has_the_same_law(heavy):
    """Positives that hold most of the mass: with 40 some leave rejection half-way, with 1e7 all do at once."""
    weights = np.array([heavy, heavy, 1.0, 2.0, 0.5, 0.0, 3.0, 0.2])
    outcomes, estimator = many_alike([0, 1], weights, 1.5)
    assert estimator.tree_draws > 1000
    if heavy == 40.0:
        assert estimator.tree_draws < 2 * 40_000, "some draws were made without the tree"
    assert chi_square(outcomes, law_of_sequences({n: weights[n] for n in (2, 3, 4, 6, 7)}, 3)) > 1e-3


def test_g_is_inside_h_and_no_draw_is_liked_or_repeated():
    graph = skewed_graph()
    for negatives in (0.4, 1.0, 3.0, 20.0):
        estimator = sampler(graph, popularity_weights(graph.by_item.degrees, 1.0), negatives)
        drawn = estimator.draw(7)
        wanted = negatives * graph.by_user.degrees
        support = int((graph.by_item.degrees > 0).sum())
        for m in range(graph.user_count):
            row, liked = drawn.row(m), graph.by_user.row(m)
            assert len(set(row.tolist())) == len(row)
            assert not set(row.tolist()) & set(liked.tolist())
            most = support - len(liked)
            assert len(row) in {min(int(wanted[m]), most), min(int(np.ceil(wanted[m])), most)}
        if negatives < 1:
            assert drawn.edges == pytest.approx(wanted.sum(), abs=4 * np.sqrt(graph.user_count))


def test_a_user_who_likes_everything_ends_and_fewer_are_drawn_than_asked():
    items = 50
    everything, most, head = list(range(items)), list(range(48)), list(range(30))
    weights = np.concatenate([np.full(30, 1e12), np.full(20, 1e-6)])
    drawn = sampler(graph_of([everything, most, head], items), weights, 2.0).draw(1)
    assert drawn.row(0).tolist() == []
    assert drawn.row(1).tolist() == [48, 49]
    assert drawn.row(2).tolist() == list(range(30, 50))


def test_items_without_weight_are_never_drawn():
    weights = np.array([1.0, 0.0, 1.0, 0.0, 1.0])
    drawn = sampler(graph_of([[0], [1, 3]], 5), weights, 50.0).draw(1)
    assert drawn.row(0).tolist() == [2, 4]
    assert drawn.row(1).tolist() == [0, 2, 4]


def test_draws_are_a_function_of_seed_sweep_and_user():
    graph = skewed_graph()
    weights = popularity_weights(graph.by_item.degrees, 1.0)
    base = sampler(graph, weights, 1.5).draw(4)
    assert len(graph.user_blocks) > 16

    whole = Sampled(graph.by_user, np.array([0, graph.user_count]), weights, 1.5, 3).draw(4)
    with LocalBackend(3) as backend:
        threads = sampler(graph, weights, 1.5).draw(4, backend.map)
    for other in (whole, threads):
        np.testing.assert_array_equal(other.indices, base.indices)
        np.testing.assert_array_equal(other.starts, base.starts)

    users, items = graph.pairs()  # other users' likes change; those of the even ones do not
    moved = np.where(users % 2 == 1, (items + 11) % graph.item_count, items).astype(np.int32)
    changed = sampler(Graph.from_pairs(users, moved, graph.user_count, graph.item_count), weights, 1.5).draw(4)
    for m in range(0, graph.user_count, 2):
        np.testing.assert_array_equal(changed.row(m), base.row(m))

    for different in (sampler(graph, weights, 1.5, seed=4).draw(4), sampler(graph, weights, 1.5).draw(5)):
        assert (different.starts != base.starts).any() or (different.indices != base.indices).any()
    same_likes, _ = many_alike([0, 1], np.ones(40), 4.0, users=50)
    assert len(set(same_likes)) > 45, "users draw apart from one another"


# --- Popularity ---


def test_popularity_exponent_gives_the_head_its_rate():
    degrees = np.array([0, 1, 7, 250, 30])
    for rate in (1.0, 0.5, 0.1):
        gamma = popularity_exponent(degrees, rate)
        weights = popularity_weights(degrees, gamma)
        assert weights.max() == pytest.approx(rate * 250)  # eq. 8
        np.testing.assert_allclose(weights[1:], degrees[1:].astype(float) ** gamma)  # eq. 7
        assert weights[0] == 0.0
    assert popularity_exponent(degrees, 1.0) == 1.0
    assert popularity_exponent(degrees, 0.5) == pytest.approx(1 + np.log(0.5) / np.log(250))  # eq. 9


@pytest.mark.parametrize("gamma", [-1.5, 0.0, 0.7, 2.0])
def test_popularity_where_powers_go_wrong(gamma):
    """0^0 is 1, 0^-1 is infinite, and log d_max = 0 divides by zero: none of it may show."""
    assert popularity_exponent(np.array([1, 1, 0]), 0.3) == 1.0
    assert popularity_exponent(np.array([0, 0]), 0.3) == 1.0
    np.testing.assert_array_equal(popularity_weights(np.array([1, 0, 1]), gamma), [1.0, 0.0, 1.0])


def negatives_to_positives(graph: Graph, weights: np.ndarray, sweeps: int = 20) -> tuple[float, float]:
    """Drawn negatives per positive: of the five most liked items, and of the rest."""
    head = np.argsort(-graph.by_item.degrees)[:5]
    liked = unliked = 0
    estimator = sampler(graph, weights, 1.0)
    for sweep in range(sweeps):
        ups, downs = positives_to_negatives(graph, estimator.draw(sweep))
        liked, unliked = liked + ups, unliked + downs
    rest = np.setdiff1d(np.arange(graph.item_count), head)
    return float(unliked[head].sum() / liked[head].sum()), float(unliked[rest].sum() / liked[rest].sum())


def test_head_correction_makes_positives_to_negatives_flat():
    graph = skewed_graph(shift=7)
    weights = popularity_weights(graph.by_item.degrees, 1.0)
    # an item that more than half of the users like cannot have as many that passed it over
    assert graph.by_item.degrees.max() < 0.95 * (graph.user_count - graph.by_item.degrees.max())
    head, rest = negatives_to_positives(graph, weights)
    assert head < 0.85
    assert rest > 1.05
    corrected = correct_head(weights, graph.by_user, graph.user_blocks, 1.0)
    assert corrected.sum() == pytest.approx(weights.sum())
    head, rest = negatives_to_positives(graph, corrected)
    assert head == pytest.approx(1.0, abs=0.03)
    assert rest == pytest.approx(1.0, abs=0.03)


# --- Saturation ---


def test_inclusion_probabilities_match_draws(capsys):
    """model.md: matched to about 0.011. A plain alpha pi is much further off, and above 1."""
    random = np.random.default_rng(0)
    weights = np.floor(1000.0 / np.arange(1, 61) ** 0.8)
    liked = np.sort(random.choice(60, 8, replace=False))
    graph = graph_of([liked.tolist()] * 60_000, 60)
    worst = {}
    for negatives in (1.0, 3.0, 5.0):
        saturation = Saturation(weights)
        one = Adjacency(graph.by_user.starts[:2], graph.by_user.indices[: len(liked)])
        temperature = saturation.inclusion.temperatures(one, np.array([0, 1]), negatives, run_serially)[0]
        inclusion = -np.expm1(-temperature * weights)
        inclusion[liked] = 0.0
        assert inclusion.sum() == pytest.approx(negatives * 8, rel=1e-8)
        drawn = sampler(graph, weights, negatives).draw(1)
        frequency = np.bincount(drawn.indices, minlength=60) / graph.user_count
        worst[negatives] = float(np.abs(frequency - inclusion).max())
        plain = np.where(np.isin(np.arange(60), liked), 0.0, weights)
        plain *= negatives * 8 / plain.sum()
        assert np.abs(frequency - plain).max() > 3 * worst[negatives]
    with capsys.disabled():
        print(f"\ninclusion probabilities, largest error at c = 1, 3, 5: {[round(e, 4) for e in worst.values()]}")
    assert max(worst.values()) < 0.02


@pytest.mark.parametrize("negatives", [0.2, 1.0, 3.0, 30.0])
def test_temperatures_meet_their_targets(negatives):
    graph = skewed_graph(users=300)
    for gamma in (1.0, 0.0, -0.5):
        weights = popularity_weights(graph.by_item.degrees, gamma)
        saturation = Saturation(weights)
        temperature = saturation.inclusion.temperatures(graph.by_user, graph.user_blocks, negatives, run_serially)
        for m in range(graph.user_count):
            chance = -np.expm1(-temperature[m] * weights)
            chance[graph.by_user.row(m)] = 0.0
            assert (chance <= 1).all()
            available = int((weights > 0).sum() - (weights[graph.by_user.row(m)] > 0).sum())
            target = min(negatives * len(graph.by_user.row(m)), available)
            assert chance.sum() == pytest.approx(target, rel=2e-5)


def test_expected_per_item_is_the_sum_over_users():
    graph = skewed_graph(users=1500)
    weights = popularity_weights(graph.by_item.degrees, 1.0)
    saturation = Saturation(weights)
    temperature = saturation.inclusion.temperatures(graph.by_user, graph.user_blocks, 1.0, run_serially)
    exact = -np.expm1(-temperature[:, None] * weights)
    exact[naive.likes(graph) > 0] = 0.0
    inclusion = saturation.inclusion
    found = inclusion.expected_per_item(inclusion.masses(graph.by_user, graph.user_blocks, 1.0))
    np.testing.assert_allclose(found, exact.sum(axis=0), rtol=2e-3)


# --- The expectation in closed form ---


def expected_state(graph: Graph, settings: FitPlan, negatives: float, groups: int, seed: int = 0):
    """An estimator, a posterior with structure in it, and E[h] after a pass over the users."""
    random = np.random.default_rng(seed)
    weights = popularity_weights(graph.by_item.degrees, 1.0)
    estimator = Expected(graph.by_user, graph.user_blocks, weights, negatives, settings.offset, groups, run_serially)
    start = initial_state(graph, settings).posterior

    def side(rows: int, bias: bool) -> Side:
        shape = (rows, settings.factors)
        biases = (random.normal(0, 0.5, rows), random.uniform(0.05, 0.3, rows)) if bias else None
        return Side.of(random.normal(0, 0.6, shape), random.uniform(0.05, 0.4, shape), biases)

    q = Posterior(
        side(graph.user_count, settings.user_bias), side(graph.item_count, settings.item_bias), start.precisions
    )
    terms = estimator.user_terms(1, q, run_serially)
    with LocalBackend(1) as backend:
        updated = InMemory(graph, estimator, settings, backend).update_users(terms, q, 1.0)
    considered = naive.expected_considered(estimator)
    return estimator, q, terms, updated, considered


@pytest.mark.parametrize("negatives", [0.5, 1.0, 3.0, 8.0])
@pytest.mark.parametrize("groups", [1, 5, 32])
def test_considered_is_a_probability_and_its_mass_is_c_d(negatives, groups):
    graph = skewed_graph(users=400)
    settings = FitPlan.of_paper(factors=3, negatives=negatives)
    estimator, _, _, _, considered = expected_state(graph, settings, negatives, groups)
    assert considered.min() >= 0.0
    assert considered.max() <= 1.0 + 1e-6
    g = naive.likes(graph)
    assert (considered[g > 0] == 1.0).all()
    target = np.minimum(negatives * graph.by_user.degrees, (graph.by_item.degrees > 0).sum() - graph.by_user.degrees)
    np.testing.assert_allclose((considered * (1 - g)).sum(axis=1), target, rtol=1e-5)
    # So it is in each group: the mass of draws without replacement.
    inclusion = -np.expm1(-estimator.shares.temperature[:, None] * estimator.weights)
    for group in range(estimator.grouping.groups):
        unliked = (1 - g) * (estimator.grouping.group_of_item == group)
        np.testing.assert_allclose((considered * unliked).sum(axis=1), (inclusion * unliked).sum(axis=1), atol=2e-4)
    floored = (estimator.shares.floor > 0).any(axis=1)
    assert floored.any() or groups == 32, "one group for all popularities must need floors, or this checks nothing"
    assert not floored.all() or negatives >= 3.0


def test_a_user_who_likes_everything_has_no_mass_in_closed_form():
    graph = graph_of([list(range(6)), [0, 1], [2, 5]], 6)
    for negatives in (1.0, 10.0):
        *_, considered = expected_state(graph, FitPlan.of_paper(factors=2), negatives, 2)
        np.testing.assert_array_equal(considered[0], 1.0)
        assert (considered <= 1 + 1e-6).all()


@pytest.mark.usefixtures("each_instruction_set")
@pytest.mark.parametrize("user_bias", [False, True])
@pytest.mark.parametrize("weight", [1.0, 2.0])
@pytest.mark.parametrize("groups", [1, 8])
def test_closed_form_sums_equal_brute_force(user_bias, weight, groups):
    graph = skewed_graph(users=40, items=30, block_edges=90)
    assert len(graph.user_blocks) - 1 >= 5, "sums over users are added over several blocks"
    settings = FitPlan.of_paper(factors=3, negatives=2.0, likelihood_weight=weight, user_bias=user_bias)
    estimator, q, user_terms, updated, considered = expected_state(graph, settings, 2.0, groups)
    assert 0 < (estimator.shares.floor > 0).mean() < 1, "with floors and without"
    prior = naive.Prior(settings.offset, weight)
    users, items, g = naive.Factor.of(q.users), naive.Factor.of(q.items), naive.likes(graph)
    _, square = naive.logit_moments(users, items, settings.offset)
    xi = naive.shared_xi(square, g, considered, estimator.grouping.group_of_item)
    assert updated.edge_bound == pytest.approx(naive.edges_term(users, items, g, considered, prior, xi), rel=1e-5)

    step = PassConstants(settings.offset, weight, 1.0, 1.0, 1.0)
    kernel_pass = side_pass(q.users, q.items, graph.by_user, user_terms, step, own_is_user=True)
    compare_sums(kernel_pass, users, items, g, considered, prior, xi, of_user=True)

    q = Posterior(updated.side, q.items, q.precisions)
    item_terms = estimator.item_terms(1, q, run_serially)
    kernel_pass = side_pass(q.items, q.users, graph.by_item, item_terms, step, own_is_user=False)
    users = naive.Factor.of(q.users)
    _, square = naive.logit_moments(users, items, settings.offset)
    xi = np.where(g > 0, np.sqrt(square), xi)  # liked pairs have a new xi, groups keep the users' last
    compare_sums(kernel_pass, users, items, g, considered, prior, xi, of_user=False)


def test_groups_separate_popularity_and_taste_and_freeze_after_a_few_sweeps():
    graph = skewed_graph(users=100)
    settings = FitPlan.of_paper(factors=2)
    estimator, q, *_ = expected_state(graph, settings, 1.0, 32)
    assert (estimator.grouping.bins, estimator.grouping.tastes) == (8, 4)
    directions = np.array([[1.0, 0.1], [0.1, 1.0], [-1.0, -0.1], [-0.1, -1.0]])

    def items(shift: int) -> Posterior:
        mean = directions[(np.arange(graph.item_count) // 2 + shift * np.arange(graph.item_count)) % 4]
        return Posterior(q.users, Side.of(mean, np.full(mean.shape, 0.1), q.items.biases), q.precisions)

    estimator.user_terms(FREEZE_AFTER, items(0), run_serially)
    taste = np.arange(graph.item_count) // 2 % 4
    found = estimator.grouping.group_of_item % 4
    assert len({(a, b) for a, b in zip(taste.tolist(), found.tolist())}) == 4, "one cluster for each direction"
    for low, high in zip(range(8), range(1, 8)):
        of = estimator.grouping.group_of_item // 4
        if (of == low).any() and (of == high).any():
            assert estimator.weights[of == low].max() <= estimator.weights[of == high].min()
    before = estimator.grouping.group_of_item.copy()
    estimator.user_terms(FREEZE_AFTER + 1, items(1), run_serially)
    np.testing.assert_array_equal(estimator.grouping.group_of_item, before)
    estimator.user_terms(FREEZE_AFTER, items(1), run_serially)
    assert (estimator.grouping.group_of_item != before).any()


def compare_sums(kernel_pass, users, items, g, considered, prior, xi, *, of_user):
    factors, rows = users.mean.shape[1], len(users.mean) if of_user else len(items.mean)
    sums = edge_sums(
        kernel_pass, np.arange(rows, dtype=np.int32), CoordinateBlock.of(factors), (0, 2**31 - 1), closed_form=True
    )
    for row in range(rows):
        P, z, bias_P, bias_z = naive.row_sums(users, items, g, considered, prior, xi, row, of_user=of_user)
        scale = np.abs(P).max() + 1e-3
        np.testing.assert_allclose(sums.second[row], P[np.tril_indices(factors)], rtol=1e-5, atol=1e-5 * scale)
        np.testing.assert_allclose(sums.first[row], z, rtol=1e-5, atol=1e-5 * scale)
        np.testing.assert_allclose(sums.bias[row], [bias_P, bias_z], rtol=1e-5, atol=1e-5 * scale)
