"""Who considers what: the walk's table against exact arithmetic, the law of the draws, and graphs at the edge."""

from __future__ import annotations

import logging
from fractions import Fraction
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from numpy.typing import NDArray

from considerate import Recommender
from considerate.data.graph import Adjacency, Graph, ranges, transpose
from considerate.distributed import OutOfCore
from considerate.errors import DataError
from considerate.inference.hidden import Consideration, Draws, Sampled, popularity_weights, positives_to_negatives
from considerate.inference.hidden import consideration as module
from considerate.inference.hidden.consideration import WalkSteps, pull_of, row_cuts, row_length
from considerate.kernels import compiled
from considerate.kernels.threads import LocalBackend
from considerate.model.changes import with_items, with_users
from considerate.model.file import load_model, save_model
from considerate.simulation.simulate import simulate_from_model
from tests.engine.test_hidden import chi_square, graph_of, law_of_sequences, law_of_sets
from tests.helpers import naive_draws
from tests.helpers.likes import planted
from tests.helpers.randomised import examples

UNIT = 2**32
Table = list[list[Fraction]]


def graph_from(likes: Any) -> Graph:
    users, items = np.nonzero(likes)
    return Graph.from_pairs(users.astype(np.int32), items.astype(np.int32), *np.shape(likes))


def table_of(graph: Graph, *, gamma: float = 1.0, neighbours: int = 10**5, mix: float = 0.0) -> Consideration:
    weights = popularity_weights(graph.by_item.degrees, gamma)
    return Consideration.of_graph(graph.by_user, graph.by_item, weights, neighbours, mix)


def dense(table: Consideration) -> NDArray[np.float64]:
    """W, the entries that were cut at zero."""
    rows = sp.csr_matrix((table.shares, table.items, table.starts), (table.item_count, table.item_count))
    return np.asarray(rows.toarray(), np.float64)


def exact_walk(likes: NDArray[np.bool_], pull: NDArray[np.float64]) -> Table:
    """W_n'n = (1 / d_n') sum over m of g_mn' g_mn a_n / A_m, in fractions; a row of zeros where nobody liked n'."""
    users, items = likes.shape
    a = [Fraction(float(x)) for x in pull]
    total = [sum((a[n] for n in range(items) if likes[m, n]), Fraction(0)) for m in range(users)]
    table = [[Fraction(0)] * items for _ in range(items)]
    for m in range(users):
        liked = np.flatnonzero(likes[m])
        for source in liked:
            for n in liked:
                table[source][n] += a[n] / total[m] / int(likes[:, source].sum())
    return table


SMALL = npst.arrays(np.bool_, st.tuples(st.integers(1, 7), st.integers(1, 7))).filter(lambda likes: likes.any())


# --- The table ---


@examples(200, 40)
@given(likes=SMALL)
def test_the_walk_keeps_the_degrees_of_g_in_exact_arithmetic(likes: NDArray[np.bool_]) -> None:
    """sum over m of d_m walk_mn = d_n; compiled, to the last digits of its fixed point."""
    users, items = likes.shape
    walk = exact_walk(likes, np.ones(items))
    for n in range(items):
        met = sum(walk[source][n] for m in range(users) for source in np.flatnonzero(likes[m]))
        assert met == int(likes[:, n].sum())  # d_m walk_mn is the sum of W over the likes of m
    table = table_of(graph_from(likes))
    np.testing.assert_allclose(likes.sum(axis=0) @ dense(table), likes.sum(axis=0), rtol=1e-6)


@examples(200, 40)
@given(likes=SMALL, gamma=st.sampled_from([1.0, 0.5, 0.0, -0.7]))
def test_the_compiled_table_is_the_exact_one(likes: NDArray[np.bool_], gamma: float) -> None:
    """With pi = d^gamma each like pulls by pi / d. Sums are rounded to 2^-32 a user, shares to float32."""
    graph = graph_from(likes)
    degree, items = graph.by_item.degrees, likes.shape[1]
    weights = popularity_weights(degree, gamma)
    table = table_of(graph, gamma=gamma)
    exact = np.array(exact_walk(likes, pull_of(weights, degree)), np.float64)
    np.testing.assert_allclose(dense(table), exact, rtol=2**-23, atol=(items + 1) / UNIT)
    np.testing.assert_array_equal(table.rest, (degree == 0).astype(np.float32))
    assert (np.diff(table.starts)[degree == 0] == 0).all()


@pytest.mark.parametrize("gamma", [1.0, 0.4])
def test_likes_of_items_of_weight_0_lead_nowhere(gamma: float) -> None:
    """The table is that of the likes without them, of users who like nothing else too."""
    likes = planted(users=60, seed=3).toarray() > 0
    likes[7], likes[7, [2, 5]] = False, True
    weights = popularity_weights(graph_from(likes).by_item.degrees, gamma)
    weights[[2, 5]] = 0.0
    graph, others = graph_from(likes), graph_from(np.where(weights > 0, likes, False))
    table = Consideration.of_graph(graph.by_user, graph.by_item, weights, 9, 0.1)
    wanted = Consideration.of_graph(others.by_user, others.by_item, weights, 9, 0.1)
    assert not np.isin(table.items, [2, 5]).any()
    assert (table.rest[[2, 5]] == 1.0).all()
    np.testing.assert_allclose(dense(table).sum(axis=1) + table.rest, 1.0, rtol=1e-5)
    for name in ("starts", "items", "shares", "rest"):
        np.testing.assert_array_equal(getattr(table, name), getattr(wanted, name))


@pytest.mark.parametrize("gamma", [1.0, 0.4])
def test_parts_of_the_users_add_up_to_the_same_bits(monkeypatch: pytest.MonkeyPatch, gamma: float) -> None:
    monkeypatch.setattr(module, "MOST_LIKES", 9)  # most users are sampled by a window
    graph = graph_from(planted(users=90, seed=1).toarray())
    degree, users, items = graph.by_item.degrees, graph.user_count, graph.item_count
    assert (graph.by_user.degrees > 9).sum() > 40
    pull = pull_of(popularity_weights(degree, gamma), degree)
    whole = WalkSteps(graph.by_user, graph.by_item, pull).sums((0, items))
    parts = []
    for first, last in ranges(np.array([0, 7, 50, users])):
        some = graph.by_user.between(first, last)
        by_item = transpose(some, items)
        parts.append(WalkSteps(some, by_item, pull, first_user=first).sums((0, items)))
    for order in permutations(parts):
        added = compiled.add_walk_sums(*compiled.add_walk_sums(*order[0], *order[1]), *order[2])
        for one, other in zip(added, whole, strict=True):
            np.testing.assert_array_equal(one, other)


def test_blocks_of_rows_and_threads_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = graph_from(planted(users=300, seed=2).toarray())
    whole = table_of(graph, neighbours=15, mix=0.1)
    monkeypatch.setattr(module, "BLOCK_STEPS", 1000)
    assert len(row_cuts(WalkSteps(graph.by_user, graph.by_item, np.ones(40)).work())) > 20
    with LocalBackend(3) as threads:
        cut = Consideration.of_graph(graph.by_user, graph.by_item, whole.weights, 15, 0.1, threads.map)
    for name in ("starts", "items", "shares", "rest"):
        np.testing.assert_array_equal(getattr(cut, name), getattr(whole, name))


@pytest.mark.parametrize("keep", [1, 3, 8, 40])
def test_rows_are_cut_to_what_tells_most(keep: int) -> None:
    """The entries of largest W log(W / p); the mass of the others is the rest."""
    graph = graph_from(planted(users=60, seed=3).toarray())
    whole, cut = table_of(graph), table_of(graph, neighbours=keep)
    sums = WalkSteps(graph.by_user, graph.by_item, np.ones(40)).sums((0, 40))
    starts, items, units = sums
    for row in range(40):
        entries = slice(starts[row], starts[row + 1])
        share = units[entries] / units[entries].sum()
        value = share * np.log(share / whole.p[items[entries]])
        order = np.lexsort((items[entries], -value))[:keep]
        kept = slice(cut.starts[row], cut.starts[row + 1])
        np.testing.assert_array_equal(cut.items[kept], np.sort(items[entries][order]))
        assert cut.rest[row] == pytest.approx(1 - share[order].sum(), abs=1e-6)
    np.testing.assert_allclose(dense(cut).sum(axis=1) + cut.rest, 1, atol=1e-6)


@examples(60, 15)
@given(seed=st.integers(0, 2**32 - 1), items=st.sampled_from([30, 700, 5000]), levels=st.sampled_from([2, 9, 10**6]))
def test_the_exact_value_decides_about_entries_that_are_close(seed: int, items: int, levels: int) -> None:
    """Sums and popularities of few levels, and so many ties, or of any size: the entries kept are those of NumPy."""
    random = np.random.default_rng(seed)
    count, keep = int(random.integers(1, items)), int(random.integers(0, 400))
    row = np.sort(random.choice(items, count, replace=False)).astype(np.int32)
    sums = random.integers(1, levels + 1, count).astype(np.uint64) ** int(random.integers(1, 4))
    p = random.integers(1, levels + 1, items) / random.choice([1.0, 1e4, 1e9])
    _, found, shares, rest = compiled.cut_walk(np.array([0, count]), row, sums, p, keep)
    share = sums / sums.sum()
    order = np.sort(np.lexsort((row, -share * np.log(share / p[row])))[:keep])
    np.testing.assert_array_equal(found, row[order])
    np.testing.assert_array_equal(shares, share[order].astype(np.float32))
    assert rest[0] == pytest.approx(1 - share[order].sum(), abs=1e-6)


def test_rows_are_shorter_where_the_table_would_outgrow_the_likes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The longest rows that keep the sum of min(steps, length) within the room; parts of a graph agree."""
    graph = graph_from(planted(users=60, seed=3).toarray())
    work = WalkSteps(graph.by_user, graph.by_item, np.ones(40)).work()
    assert row_length(work, 500, graph.edges) == 500
    monkeypatch.setattr(module, "ROOM", 0)
    monkeypatch.setattr(module, "ENTRIES_A_LIKE", 1)
    length = row_length(work, 500, graph.edges)
    assert np.minimum(work, length).sum() <= graph.edges < np.minimum(work, length + 1).sum()
    assert row_length(work, 3, graph.edges) == 3
    assert row_length(np.array([10, 10]), 500, 0) == 1
    table, wanted = table_of(graph), table_of(graph, neighbours=length)
    assert len(table.items) <= graph.edges
    for name in ("starts", "items", "shares", "rest"):
        np.testing.assert_array_equal(getattr(table, name), getattr(wanted, name))


def test_ties_are_cut_by_the_items_number() -> None:
    """Everyone likes everything: all entries are alike."""
    table = table_of(graph_from(np.ones((4, 9))), neighbours=4)
    np.testing.assert_array_equal(table.items.reshape(9, 4), np.tile(np.arange(4), (9, 1)))
    np.testing.assert_allclose(table.rest, 5 / 9, rtol=1e-6)


def test_the_window_of_a_very_active_user_is_right_on_average() -> None:
    """Seven likes, of which each step takes three neighbours: any of seven windows, equally often."""
    by_user, by_item = graph_of([list(range(7))], 7).by_user, graph_of([list(range(7))], 7).by_item
    both = (by_item.starts, by_item.indices, by_user.starts, by_user.indices)
    windows = {tuple(sorted((first + k) % 7 for k in range(3))): Fraction(1, 7) for first in range(7)}
    pull = np.arange(1.0, 8.0)
    seen, mean = [], np.zeros(7)
    for user in range(3500):
        _, items, sums = compiled.WalkGraph(*both, pull, 3, first_user=user).sums(2, 3)
        seen.append(tuple(items.tolist()))
        np.testing.assert_allclose(sums, pull[items] / pull.sum() * 7 / 3 * UNIT, rtol=1e-9)
    assert chi_square(seen, {window: float(chance) for window, chance in windows.items()}) > 1e-3
    for window in windows:
        mean[list(window)] += pull[list(window)] / pull.sum() * 7 / 3 / 7
    np.testing.assert_allclose(mean, pull / pull.sum())


# --- The draws ---

LIKES = np.array(
    [
        [1, 1, 0, 0, 0, 0, 0],
        [1, 0, 1, 1, 0, 0, 0],
        [0, 1, 1, 0, 1, 0, 0],
        [0, 0, 0, 1, 1, 1, 0],
        [1, 1, 0, 0, 0, 1, 0],
        [0, 1, 0, 1, 0, 0, 0],
    ]
)  # nobody likes the last item


def alike(table: Consideration, liked: list[int], negatives: float, users: int = 30_000, sweep: int = 1) -> Sampled:
    """The draws of one user, many times over."""
    by_user = graph_of([liked] * users, table.item_count).by_user
    blocks = np.linspace(0, users, 4).astype(np.int64)
    return Sampled(by_user, blocks, Draws.of(table.weights, table), negatives, seed=3)


def drawn_rows(estimator: Sampled, sweep: int = 1) -> list[tuple[int, ...]]:
    drawn = estimator.draw(sweep)
    return [tuple(drawn.row(m).tolist()) for m in range(drawn.rows)]


def chances(table: Consideration, liked: list[int]) -> dict[int, float]:
    """w of what a user may be drawn: not liked, and of a weight at all."""
    w = table.p * table.ratios(np.array(liked))
    assert w.sum() == pytest.approx(1, abs=1e-6)
    return {n: float(w[n]) for n in range(table.item_count) if n not in liked and w[n] > 0}


@pytest.mark.parametrize(("neighbours", "mix", "gamma"), [(7, 0.0, 1.0), (4, 0.0, 1.0), (4, 0.2, 0.5), (3, 1.0, 1.0)])
def test_draws_have_the_law_of_the_walk(neighbours: int, mix: float, gamma: float) -> None:
    """Two of four items without replacement, in the order of drawing, against every outcome's chance."""
    table = table_of(graph_from(LIKES), neighbours=neighbours, mix=mix, gamma=gamma)
    outcomes = drawn_rows(alike(table, [0, 1], 1.0))
    law = law_of_sequences(chances(table, [0, 1]), 2)
    assert len(law) == 12
    assert chi_square(outcomes, law) > 1e-3
    assert chi_square([frozenset(pair) for pair in outcomes], law_of_sets(chances(table, [0, 1]), 2)) > 1e-3
    by_pi = law_of_sequences({n: float(table.weights[n]) for n in range(2, 6)}, 2)
    if mix == 1.0:
        assert chi_square(outcomes, by_pi) > 1e-3
    else:
        assert chi_square(outcomes, by_pi) < 1e-6


@pytest.mark.parametrize("items", [8, 70_000])
def test_the_tree_has_the_same_law(items: int) -> None:
    """The walk stays among the likes all but always: rejection stalls, and the exact draw takes over. In a large
    catalogue, here of items that nobody likes, it is a tree of what the walk leads to beside pi."""
    likes = np.zeros((9, items), int)
    likes[:5, :3] = 1
    likes[5:, 3:8] = np.array([[1, 1, 0, 0, 1], [1, 0, 1, 0, 0], [0, 1, 1, 1, 0], [1, 0, 0, 0, 0]])
    likes[4, 3] = 1
    table = table_of(graph_from(likes), mix=1e-3)
    estimator = alike(table, [0, 1, 2], 2 / 3)
    outcomes = drawn_rows(estimator)
    assert 10_000 < estimator.tree_draws < 60_000
    assert estimator.fallbacks == 0
    assert chi_square(outcomes, law_of_sequences(chances(table, [0, 1, 2]), 2)) > 1e-3


def test_draws_are_a_function_of_seed_sweep_and_user() -> None:
    graph = graph_from(planted(users=150, seed=4).toarray())
    table = table_of(graph, neighbours=10, mix=0.1)

    def sampler(by_user: Adjacency, first_user: int = 0, seed: int = 5, blocks: int = 7) -> Sampled:
        cuts = np.linspace(0, by_user.rows, blocks + 1).astype(np.int64)
        return Sampled(by_user, cuts, Draws.of(table.weights, table), 1.5, seed, first_user=first_user)

    whole = sampler(graph.by_user).draw(2)
    for user in range(150):
        row = whole.row(user).tolist()
        assert len(set(row)) == len(row)
        assert not set(row) & set(graph.by_user.row(user).tolist())
    part = sampler(graph.by_user.between(40, 90), first_user=40, blocks=2).draw(2)
    np.testing.assert_array_equal(part.indices, whole.indices[whole.starts[40] : whole.starts[90]])
    for count in (2, 3, 4):
        with LocalBackend(count) as threads:
            np.testing.assert_array_equal(sampler(graph.by_user, blocks=23).draw(2, threads.map).indices, whole.indices)
    assert not np.array_equal(sampler(graph.by_user).draw(3).indices[:500], whole.indices[:500])
    assert not np.array_equal(sampler(graph.by_user, seed=6).draw(2).indices[:500], whole.indices[:500])


@pytest.mark.parametrize(("neighbours", "mix"), [(40, 0.0), (6, 0.3)])
def test_draws_equal_the_reference_bit_for_bit(neighbours: int, mix: float) -> None:
    graph = graph_from(planted(users=80, inside=0.25, seed=6).toarray())
    table = table_of(graph, neighbours=neighbours, mix=mix, gamma=0.8)
    rows = (table.starts, table.items, table.shares, table.rest)
    estimator = Sampled(graph.by_user, graph.user_blocks, Draws.of(table.weights, table), 1.0, seed=9)
    drawn = estimator.draw(4)
    assert estimator.tree_draws == 0
    for user in range(80):
        liked = graph.by_user.row(user).tolist()
        random = naive_draws.SplitMix64(naive_draws.key64(9, 8, user))
        pi = estimator.draws.thresholds, estimator.draws.aliases
        stream = naive_draws.WalkStream(random, table, compiled.walk_slots(*rows, table.mix), pi, liked)
        expected: list[int] = []
        while len(expected) < len(liked):
            item = stream.next(len(liked) - len(expected))
            if item not in liked and item not in expected:
                expected.append(item)
        assert drawn.row(user).tolist() == expected


def simulated() -> Graph:
    """Degrees by power laws, taste in four genres."""
    sample = simulate_from_model(3000, 500, 4, tau_user=0.3, tau_item=0.5, genres=4, seed=1)
    return Graph.from_pairs(sample.users, sample.items, sample.user_count, sample.item_count)


@pytest.mark.parametrize("negatives", [1.0, 5.0])
def test_draws_per_like_by_degree_are_near_those_of_pi(negatives: float) -> None:
    """The walk discards more draws, which hit likes more often; by degree the draws that are left are those of pi."""
    graph = simulated()
    table, degree = table_of(graph, neighbours=100, mix=0.1), graph.by_item.degrees
    stratum = np.digitize(degree, [1, 5, 10, 32, 100])
    per_like, discarded = [], []
    for walk in (table, None):
        estimator = Sampled(graph.by_user, graph.user_blocks, Draws.of(table.weights, walk), negatives, seed=1)
        draws = sum(positives_to_negatives(graph, estimator.draw(sweep))[1] for sweep in range(4)) / 4
        per_like.append((np.bincount(stratum, draws) / np.bincount(stratum, degree).clip(1))[1:])
        discarded.append(estimator.rejections / estimator.drawn)
    by_walk, by_pi = per_like
    np.testing.assert_allclose(by_walk, by_pi, rtol=0.1)
    assert (np.diff(by_walk) < 0).all()  # a user's likes are popular items: the head loses most to them, as with pi
    assert discarded[0] > 1.1 * discarded[1]


# --- Graphs at the edge ---

PIECES = np.kron(np.eye(2, dtype=int), np.ones((3, 2), int))  # two pieces; in each, everyone likes everything


def sampler_of(likes: NDArray[Any], negatives: float, *, mix: float) -> Sampled:
    graph = graph_from(likes)
    table = table_of(graph, mix=mix)
    return Sampled(graph.by_user, graph.user_blocks, Draws.of(table.weights, table), negatives, seed=1)


def test_users_whose_whole_neighbourhood_is_liked_are_drawn_from_pi_and_counted() -> None:
    """Their walk ends where it began. Without any mixing pi chooses, by its own law."""
    likes = np.kron(np.diag([1, 1, 1]), np.ones((1, 2), int))
    likes = np.vstack([likes, np.array([[0, 0, 1, 0, 0, 0]] * 3)])  # item 2 is liked by four
    table = table_of(graph_from(likes))
    estimator = alike(table, [0, 1], 1.0)
    outcomes = drawn_rows(estimator)
    assert estimator.fallbacks == estimator.drawn == 60_000
    assert chi_square(outcomes, law_of_sequences({2: 4.0, 3: 1.0, 4: 1.0, 5: 1.0}, 2)) > 1e-3
    mixed = alike(table_of(graph_from(likes), mix=0.01), [0, 1], 1.0)
    assert chi_square(drawn_rows(mixed), law_of_sequences({2: 4.0, 3: 1.0, 4: 1.0, 5: 1.0}, 2)) > 1e-3
    assert mixed.fallbacks == 0


def test_disconnected_pieces_without_mixing_are_not_left_while_an_item_is() -> None:
    random = np.random.default_rng(3)
    likes = np.zeros((60, 30), int)
    likes[:30, :15], likes[30:, 15:] = random.random((2, 30, 15)) < 0.15
    likes[:, [0, 15]] = 0
    likes[:30, 0] = likes[30:, 15] = 1  # everyone in a piece is connected
    estimator = sampler_of(likes, 1.0, mix=0.0)
    drawn = estimator.draw(0)
    assert estimator.fallbacks == 0
    for user in range(60):
        assert ((drawn.row(user) < 15) == (user < 30)).all()
    estimator.negatives = 4.0  # of some users more than the piece has
    drawn, support, beyond = estimator.draw(0), likes.sum(axis=0) > 0, 0
    for user in range(60):
        row, own = drawn.row(user), likes[user].sum()
        left = int(support[:15].sum() if user < 30 else support[15:].sum()) - own
        assert len(row) == min(4 * own, support.sum() - own)
        if len(row) < support.sum() - own:  # else all are taken, in the order of the items
            assert ((row[:left] < 15) == (user < 30)).all()
            assert ((row[left:] < 15) != (user < 30)).all()
            beyond += max(0, len(row) - left)
    assert estimator.fallbacks == beyond > 0


def test_items_nobody_liked_are_never_met() -> None:
    table = table_of(graph_from(LIKES), mix=0.1, neighbours=2)
    assert (table.rest[6], np.diff(table.starts)[6]) == (1.0, 0)
    assert 6 not in table.items
    ratios = table.ratios(np.array([0, 3]))
    assert ratios[6] == pytest.approx(0.1 + 0.9 * table.rest[[0, 3]].mean())
    assert np.isfinite(table.log_ratios(Adjacency.of_rows([np.arange(7, dtype=np.int32), np.empty(0, np.int32)]))).all()
    estimator = sampler_of(LIKES, 3.0, mix=0.1)
    assert 6 not in estimator.draw(0).indices


def test_users_of_nothing_and_of_everything_are_drawn_nothing() -> None:
    likes = np.vstack([PIECES, np.zeros((1, 4), int), np.ones((1, 4), int)])
    estimator = sampler_of(likes, 2.0, mix=0.0)
    np.testing.assert_array_equal(np.diff(estimator.draw(0).starts), [2, 2, 2, 2, 2, 2, 0, 0])


def test_a_mixing_of_one_is_popularity() -> None:
    table = table_of(graph_from(LIKES), mix=1.0)
    for liked in ([0], [1, 4], []):
        np.testing.assert_array_equal(table.ratios(np.array(liked, int)), 1.0)


EDGES: dict[str, NDArray[Any]] = {
    "items nobody liked": np.hstack([planted(users=30, items=12).toarray(), np.zeros((30, 3))]),
    "whole neighbourhoods liked": PIECES,
    "disconnected pieces": np.kron(np.eye(3), planted(users=10, items=6, clusters=1).toarray()),
    "a user of everything": np.vstack([np.ones((1, 12)), planted(users=20, items=12).toarray()]),
    "a user of nothing": np.vstack([np.zeros((1, 12)), planted(users=20, items=12).toarray()]),
}


@pytest.mark.parametrize("likes", [np.ones((1, 1)), np.ones((5, 1)), np.array([[1, 1, 0, 1]])], ids=str)
def test_one_user_or_one_item(likes: NDArray[Any]) -> None:
    """A table and draws, but no fit, whatever is considered."""
    estimator = sampler_of(likes, 2.0, mix=0.0)
    assert estimator.draw(0).edges == estimator.drawn == 0
    table = table_of(graph_from(likes))
    np.testing.assert_allclose(dense(table)[:, likes.any(axis=0)].sum(axis=1), likes.any(axis=0))
    with pytest.raises(DataError, match="there is only one"):
        Recommender(consideration="walk").fit(sp.csr_matrix(likes))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mixing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("name", EDGES)
def test_a_fit_by_the_walk_has_an_answer(name: str, mixing: float, tmp_path: Any) -> None:
    likes = EDGES[name]
    users, items = likes.shape
    fitted = Recommender(factors=2, sweeps=3, consideration="walk", mixing=mixing, neighbours=4, threads=1)
    fitted.fit(sp.csr_matrix(likes.astype(np.float32)))
    fitted.save(tmp_path / "model")
    for recommender in (fitted, Recommender.load(tmp_path / "model")):
        for user in range(users):
            ids, scores = recommender.recommend(user, N=items, filter_already_liked_items=True)
            unliked = np.flatnonzero(likes[user] == 0)
            np.testing.assert_array_equal(np.sort(ids[: len(unliked)]), unliked)
            assert np.isfinite(scores[: len(unliked)]).all()
        ids, scores = recommender.recommend(0, sp.csr_matrix(likes[:1]), N=items, recalculate_user=True)
        assert np.isfinite(scores[: int((likes[0] == 0).sum())]).all()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("mixing", "level"), [(0.0, logging.WARNING), (0.1, None)])
def test_fallbacks_are_reported(mixing: float, level: int | None, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "considerate")
    settings: dict[str, Any] = {"factors": 1, "sweeps": 2, "negatives": 0.5, "consideration": "walk", "opening": 1}
    Recommender(**settings, mixing=mixing).fit(sp.csr_matrix(PIECES))
    said = [record for record in caplog.records if "the walk had no item left" in record.getMessage()]
    assert [record.levelno for record in said] == ([] if level is None else [level])
    if level is not None:
        assert "for 100 % of the unliked edges" in said[0].getMessage()


@pytest.mark.parametrize("backend", [None, OutOfCore(), OutOfCore(division="items")], ids=["memory", "users", "items"])
def test_a_few_fallbacks_are_only_noted(backend: OutOfCore | None, caplog: pytest.LogCaptureFixture) -> None:
    """One user of two likes in a corner of their own among many; in parts too, where each counts its own."""
    likes = sp.block_diag([planted(users=300), np.ones((1, 2))]).tocsr()
    caplog.set_level(logging.INFO, "considerate")
    settings: dict[str, Any] = {"factors": 1, "sweeps": 2, "negatives": 1.0, "consideration": "walk", "opening": 1}
    Recommender(**settings, mixing=0.0).fit(likes, backend=backend)
    said = [record for record in caplog.records if "the walk had no item left" in record.getMessage()]
    assert [record.levelno for record in said] == [logging.INFO]
    assert f"for {100 * 2 / likes.nnz:.3g} % of the unliked edges" in said[0].getMessage()


# --- Changes to a fitted model ---


@pytest.fixture(scope="module")
def fitted() -> Recommender:
    settings: dict[str, Any] = {"factors": 2, "sweeps": 2, "consideration": "walk", "neighbours": 9, "mixing": 0.2}
    return Recommender(**settings, threads=1).fit(planted(users=120))


def test_the_table_follows_items_that_are_added(fitted: Recommender) -> None:
    model, added = fitted.model_, planted(users=120).T.tocsr()[[4, 5, 7]]
    grown = with_items(model, [40, 41, 3], added)  # item 3 has other fans now
    likes = planted(users=120).toarray()
    likes[:, 3] = added[2].toarray()
    likes = np.hstack([likes, added[:2].toarray().T])
    expected = table_of(graph_from(likes), neighbours=9, mix=0.2)
    assert grown.consideration is not None
    assert grown.consideration.weights is grown.popularity
    for name in ("starts", "items", "shares", "rest", "weights", "mix"):
        np.testing.assert_array_equal(getattr(grown.consideration, name), getattr(expected, name))


def test_without_likes_rows_are_kept_and_new_items_have_none(fitted: Recommender, tmp_path: Any) -> None:
    save_model(fitted.model_, tmp_path / "model", likes=False)
    model = load_model(tmp_path / "model")
    added = sp.vstack([planted(users=120).T.tocsr()[[4]], sp.csr_matrix((1, 120))])
    grown = with_items(model, [40, 6], added)  # nobody likes item 6 now
    table, before = grown.consideration, model.consideration
    assert table is not None
    assert before is not None
    assert table.item_count == 41
    assert (table.rest[40], np.diff(table.starts)[40]) == (1.0, 0)
    lost, kept = dense(before)[:, 6], np.delete(np.arange(40), 6)
    assert lost.any()
    np.testing.assert_array_equal(dense(table)[:40, kept], dense(before)[:, kept])
    assert not dense(table)[:, [6, 40]].any()
    np.testing.assert_allclose(table.rest[:40], before.rest + lost, rtol=1e-6)
    inverse = np.divide(1.0, table.p, out=np.zeros(len(table.p)), where=table.p > 0)
    np.testing.assert_allclose(table.inverse[: len(inverse)], inverse, rtol=1e-6)
    assert table.p.sum() == pytest.approx(1)
    save_model(grown, tmp_path / "grown")
    assert load_model(tmp_path / "grown").consideration is not None


def test_users_that_are_added_leave_the_rows_of_the_table(fitted: Recommender) -> None:
    """pi follows their likes."""
    before, grown = fitted.model_, with_users(fitted.model_, [120], planted(users=120)[:1])
    for name in ("starts", "items", "shares", "rest"):
        np.testing.assert_array_equal(getattr(grown.consideration, name), getattr(before.consideration, name))
    assert grown.consideration is not None
    np.testing.assert_array_equal(grown.consideration.weights, grown.popularity)
    assert (grown.popularity > before.popularity).sum() == planted(users=120)[:1].nnz


def test_a_new_users_like_of_an_item_nobody_liked_comes_into_the_table() -> None:
    likes = np.hstack([planted(users=60).toarray(), np.zeros((60, 1))])
    model = Recommender(factors=2, sweeps=2, consideration="walk", threads=1).fit(sp.csr_matrix(likes)).model_
    new = np.zeros((1, 41))
    new[0, [2, 40]] = 1
    grown = with_items(with_users(model, [60], sp.csr_matrix(new)), [3], sp.csr_matrix(np.ones((1, 61))))
    assert grown.consideration is not None
    assert 40 in grown.consideration.items
    assert grown.item_degree[40] == 1
    assert np.isfinite(grown.consideration.inverse).all()
