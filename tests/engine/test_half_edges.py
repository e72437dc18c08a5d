"""H from half-edges of users and items: degrees as wanted, no pair twice and none of G; seed and sweep decide."""

from __future__ import annotations

import numpy as np
import pytest

from considerate import Recommender
from considerate.data.graph import Adjacency, Graph
from considerate.distributed import OutOfCore
from considerate.errors import UsageError
from considerate.inference.hidden import Sampled
from considerate.inference.hidden.half_edges import HalfEdges
from considerate.kernels import compiled
from tests.helpers.likes import skewed


@pytest.fixture(scope="module")
def graph() -> Graph:
    """Items of 1 to some 150 of 400 users."""
    random = np.random.default_rng(1)
    chance = np.minimum(0.4, 12.0 / np.arange(1, 301)) * random.uniform(0.2, 1.0, (400, 1))
    users, items = np.nonzero(random.random((400, 300)) < chance)
    return Graph.from_pairs(users.astype(np.int32), items.astype(np.int32), 400, 300)


def drawn(graph: Graph, negatives: float, seed: int = 0, sweep: int = 1) -> Adjacency:
    weights = graph.by_item.degrees.astype(float)
    return HalfEdges(graph.by_user, graph.user_blocks, weights, negatives, seed).draw(sweep)


def pairs(edges: Adjacency, columns: int) -> np.ndarray:
    return np.repeat(np.arange(edges.rows), edges.degrees) * columns + edges.indices


@pytest.mark.parametrize("negatives", [0.5, 1.0, 6.0])
def test_no_pair_is_drawn_twice_and_none_is_a_like(graph, negatives):
    edges, likes = pairs(drawn(graph, negatives), 300), pairs(graph.by_user, 300)
    assert len(np.unique(edges)) == len(edges) > 0.4 * negatives * len(likes)
    assert not np.isin(edges, likes).any()


@pytest.mark.parametrize("negatives", [0.5, 1.0])
def test_both_sides_have_the_degrees_that_are_wanted(graph, negatives):
    """Over many draws, users and items have c d unliked edges each, whatever d is; draws by popularity give the most
    popular items far fewer."""
    weights, draws = graph.by_item.degrees.astype(float), 60
    users, items, by_popularity = np.zeros(400), np.zeros(300), np.zeros(300)
    for sweep in range(draws):
        edges = drawn(graph, negatives, sweep=sweep)
        users += edges.degrees
        items += np.bincount(edges.indices, minlength=300)
        sampled = Sampled(graph.by_user, graph.user_blocks, weights, negatives, 0).draw(sweep)
        by_popularity += np.bincount(sampled.indices, minlength=300)
    for found, degrees in ((users, graph.by_user.degrees), (items, graph.by_item.degrees)):
        wanted = negatives * draws * degrees
        assert np.abs((found - wanted) / np.sqrt(wanted + 1)).mean() < 1.1  # Poisson's own is .8
        for some in np.array_split(np.argsort(degrees), 4):
            assert found[some].sum() == pytest.approx(wanted[some].sum(), rel=0.03)
    head = np.argsort(graph.by_item.degrees)[-10:]
    assert by_popularity[head].sum() < 0.85 * items[head].sum()


def test_where_there_is_no_room_half_edges_are_left_out(graph):
    estimator = HalfEdges(graph.by_user, graph.user_blocks, graph.by_item.degrees.astype(float), 6.0, 0)
    edges = estimator.draw(1)
    assert estimator.left_out > 0
    assert estimator.redraws > 0
    assert (np.bincount(edges.indices, minlength=300) + graph.by_item.degrees).max() <= 400
    everything = Adjacency.of_rows([np.arange(3, dtype=np.int32)] * 2)
    assert HalfEdges(everything, np.array([0, 2]), np.full(3, 2.0), 1.0, 0).draw(1).edges == 0


def test_every_pair_is_as_likely_as_its_degrees_say():
    """Two users of one half-edge, three items of which two have one: four graphs, drawn alike (chi-square)."""
    liked = (np.zeros(3, np.int64), np.empty(0, np.int32))
    counts = np.zeros(2)
    for sweep in range(4000):
        users, items, _, left_out = compiled.join_around(
            np.array([1, 1], np.int32), np.array([1, 0, 1], np.int32), *liked, 7, sweep, 50
        )
        assert left_out == 0
        counts[int(items[np.argsort(users)][0] == 2)] += 1
    assert ((counts - 2000) ** 2 / 2000).sum() < 10.8  # one in a thousand


def test_the_draws_are_a_function_of_seed_and_sweep(graph):
    first = drawn(graph, 1.0)
    np.testing.assert_array_equal(drawn(graph, 1.0).indices, first.indices)
    for other in (drawn(graph, 1.0, seed=1), drawn(graph, 1.0, sweep=2)):
        assert not np.array_equal(other.indices[: first.edges], first.indices[: other.edges])


def test_a_fit_by_half_edges_and_where_it_is_refused(tmp_path):
    likes = skewed()
    one, two = (Recommender(factors=3, sweeps=4, hidden="half-edges", threads=t).fit(likes) for t in (1, 2))
    np.testing.assert_array_equal(np.array(one.item_factors), np.array(two.item_factors))
    sampled = Recommender(factors=3, sweeps=4, opening=0, threads=1).fit(likes)
    assert not np.array_equal(np.array(one.item_factors), np.array(sampled.item_factors))
    with pytest.raises(UsageError, match="joined over the whole graph"):
        Recommender(factors=3, hidden="half-edges").fit(likes, backend=OutOfCore(folder=tmp_path))
    with pytest.raises(UsageError, match="only draws are tilted"):
        Recommender(hidden="half-edges", tilt=0.5).fit(likes)
