"""Splits: what is held out, what is trained on, never both; seeds, times, held-out users, given files."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given as cases
from hypothesis import strategies as st

from considerate import Recommender, read_interactions
from considerate.data.graph import Adjacency, Graph
from considerate.errors import DataError, UsageError
from considerate.evaluation.ranks import held_ranks
from considerate.evaluation.scorer import ModelScorer
from considerate.evaluation.split import (
    HeldOut,
    edge_times,
    given,
    given_likes,
    last_per_user,
    moment,
    one_per_user,
    only_users,
    share_per_user,
    validation,
)
from tests.helpers.likes import as_table, planted, skewed
from tests.helpers.randomised import examples


def graph_of(likes) -> Graph:
    users, items = likes.nonzero()
    return Graph.from_pairs(users.astype(np.int32), items.astype(np.int32), *likes.shape)


def edges_of(graph: Graph) -> set[tuple[int, int]]:
    users, items = graph.pairs()
    return set(zip(users.tolist(), items.tolist()))


def held_edges(held: HeldOut) -> list[tuple[int, int]]:
    return list(zip(held.users.tolist(), held.items.tolist()))


def assert_divides(held: HeldOut, graph: Graph) -> None:
    """Train and test are disjoint and make up the graph."""
    test = held_edges(held)
    assert len(set(test)) == len(test)
    assert not set(test) & edges_of(held.train)
    assert set(test) | edges_of(held.train) == edges_of(graph)
    assert (held.train.user_count, held.train.item_count) == (graph.user_count, graph.item_count)
    assert edges_of(held.train) == {(m, n) for n in range(graph.item_count) for m in held.train.by_item.row(n).tolist()}


@st.composite
def graphs(draw) -> Graph:
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    likes = random.random((draw(st.integers(1, 12)), draw(st.integers(2, 9)))) < draw(st.sampled_from([0.2, 0.6, 1.0]))
    likes[0, :2] = True
    users, items = likes.nonzero()
    return Graph.from_pairs(users.astype(np.int32), items.astype(np.int32), *likes.shape)


@examples(60)
@cases(graphs(), st.integers(0, 5))
def test_one_per_user(graph: Graph, seed: int) -> None:
    held = one_per_user(graph, seed)
    assert_divides(held, graph)
    assert held.users.tolist() == [m for m in range(graph.user_count) if graph.by_user.degrees[m] >= 2]


def test_the_papers_split_is_the_same_as_ever() -> None:
    """By the formula that figures were published with."""
    held = one_per_user(graph_of(planted(users=12, items=10, seed=4)), 0)
    random = np.random.Generator(np.random.Philox(key=[0, 0x591F]))
    graph = graph_of(planted(users=12, items=10, seed=4))
    users = np.flatnonzero(graph.by_user.degrees >= 2)
    places = (random.random(len(users)) * graph.by_user.degrees[users]).astype(int)
    assert held.users.tolist() == users.tolist()
    assert held.items.tolist() == [int(graph.by_user.row(int(m))[at]) for m, at in zip(users, places)]


def test_seeds_make_the_split() -> None:
    graph = graph_of(skewed())
    assert np.array_equal(one_per_user(graph, 1).items, one_per_user(graph, 1).items)
    assert not np.array_equal(one_per_user(graph, 1).items, one_per_user(graph, 2).items)


def test_each_edge_is_as_likely() -> None:
    graph = Graph.from_pairs(np.zeros(5, np.int32), np.arange(5, dtype=np.int32), 1, 5)
    counts = np.bincount([int(one_per_user(graph, seed).items[0]) for seed in range(2000)], minlength=5)
    assert (np.abs(counts - 400) < 5 * np.sqrt(400 * 0.8)).all()


def test_validation_takes_from_training_alone_and_by_a_draw_of_its_own() -> None:
    graph = graph_of(skewed())
    test = one_per_user(graph, 0)
    tuning = validation(test, 0)
    assert_divides(tuning, test.train)
    assert not set(held_edges(test)) & (set(held_edges(tuning)) | edges_of(tuning.train))
    again = one_per_user(test.train, 0)
    assert not np.array_equal(again.items, tuning.items), "the same draw would hold out the neighbour of the test item"
    assert_divides(validation(test, 0, share=0.3), test.train)


@examples(60)
@cases(graphs(), st.integers(0, 3), st.floats(0.05, 0.95))
def test_a_share_per_user(graph: Graph, seed: int, share: float) -> None:
    held = share_per_user(graph, seed, share)
    assert_divides(held, graph)
    counts = np.bincount(held.users, minlength=graph.user_count)
    for degree, count in zip(graph.by_user.degrees, counts):
        assert count == (0 if degree < 2 else min(max(round(share * float(degree)), 1), degree - 1))


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, float("nan")])
def test_shares_out_of_range(share: float) -> None:
    with pytest.raises(UsageError, match="between 0 and 1"):
        share_per_user(graph_of(skewed()), 0, share)


# --- Time ---


def timed(rows) -> tuple[Graph, np.ndarray]:
    """Graph and edge times of (user, item, time) rows."""
    users, items, times = zip(*rows)
    table = pa.table({"user": users, "item": items, "when": pa.array(times, pa.float64())})
    likes = read_interactions(table, time_column="when")
    graph = Graph.from_pairs(likes.users, likes.items, len(likes.user_ids), len(likes.item_ids))
    return graph, edge_times(graph, likes)


def test_edge_times_are_the_earliest_known_of_each_pair() -> None:
    graph, times = timed([(0, 1, 5.0), (0, 0, 7.0), (0, 1, 3.0), (1, 0, None), (1, 1, None), (1, 1, 4.0), (0, 1, None)])
    assert edges_of(graph) == {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert times[[0, 1, 3]].tolist() == [7.0, 3.0, 4.0]
    assert np.isnan(times[2])


@examples(60)
@cases(graphs(), st.integers(0, 2**32 - 1))
def test_last_per_user_against_brute_force(graph: Graph, seed: int) -> None:
    random = np.random.default_rng(seed)
    times = random.choice([1.0, 2.0, 3.0, np.nan], graph.edges)
    users, items = graph.pairs()
    able = [m for m in range(graph.user_count) if (users == m).sum() >= 2 and not np.isnan(times[users == m]).all()]
    if not able:
        return
    held = last_per_user(graph, times)
    assert_divides(held, graph)
    assert held.users.tolist() == able
    when = {(int(m), int(n)): t for m, n, t in zip(users, items, times)}
    for m, n in held_edges(held):
        assert when[m, n] == np.nanmax(times[users == m])


def test_likes_of_the_same_last_moment_are_held_out_alike() -> None:
    graph, times = timed([(0, 0, 1.0), (0, 1, 2.0), (0, 2, 2.0), (0, 3, 2.0)])
    counts = np.bincount([int(last_per_user(graph, times, seed).items[0]) for seed in range(900)], minlength=4)
    assert counts[0] == 0
    assert (np.abs(counts[1:] - 300) < 75).all()


def test_dates_in_words() -> None:
    assert moment("1970-01-02") == 86400.0
    assert moment("1970-01-01T01:00:00+01:00") == 0.0
    assert moment(datetime(1970, 1, 1, 0, 1, tzinfo=UTC)) == 60.0
    assert moment(7) == 7.0
    for wrong in ("yesterday", float("nan")):
        with pytest.raises(UsageError):
            moment(wrong)


def test_times_that_were_not_read() -> None:
    likes = read_interactions(as_table(skewed()))
    graph = Graph.from_pairs(likes.users, likes.items, len(likes.user_ids), len(likes.item_ids))
    with pytest.raises(UsageError, match="time_column"):
        edge_times(graph, likes)


# --- Held-out users ---


def test_held_out_users_are_folded_in_and_ranked() -> None:
    likes = planted(users=300, items=30, inside=0.6, across=0.02, seed=1)
    train, others = (only_users(graph_of(likes), np.arange(*rows)) for rows in ((0, 210), (210, 300)))
    fold = share_per_user(others, 0, 0.5)
    model = Recommender(factors=3, sweeps=8).fit(as_matrix(*train.pairs(), train)).model_
    scorer = ModelScorer(model, users=model.fold_in.users(fold.train.by_user))
    assert held_ranks(scorer, fold).scores.mean() > 0.6
    strangers = ModelScorer(model, users=model.fold_in.users(Adjacency(np.zeros(91, np.int64), np.empty(0, np.int32))))
    assert held_ranks(strangers, fold).scores.mean() < held_ranks(scorer, fold).scores.mean() - 0.1


def as_matrix(rows, columns, graph: Graph):
    import scipy.sparse

    return scipy.sparse.csr_matrix(
        (np.ones(len(rows), np.float32), (rows, columns)), (graph.user_count, graph.item_count)
    )


# --- A given train and test ---


def test_given_pairs() -> None:
    held = given(([0, 0, 1, 1], [0, 1, 0, 0]), ([0, 2, 0], [2, 3, 2]))
    assert (held.train.user_count, held.train.item_count) == (3, 4)
    assert held_edges(held) == [(0, 2), (2, 3)]
    with pytest.raises(DataError, match="1 of 2 held-out likes are also in training"):
        given(([0, 0], [0, 1]), ([0, 0], [1, 2]))
    with pytest.raises(DataError, match="not among"):
        given(([0, 0], [0, 1]), ([0, 0], [2, 3]), item_count=3)


def test_given_files_meet_by_their_ids() -> None:
    train = read_interactions(pa.table({"user": ["b", "a", "b"], "item": [30, 10, 20]}))
    test = read_interactions(pa.table({"user": ["a", "c", "b", "a", "a"], "item": [20, 10, 99, 30, 20]}))
    held = given_likes(train, test)
    ids = {(train.user_ids.id_of(m), train.item_ids.id_of(n)) for m, n in held_edges(held)}
    assert ids == {("a", 20), ("a", 30)}
    assert held.left_out == 2
    with pytest.raises(DataError, match="none of its likes"):
        given_likes(train, read_interactions(pa.table({"user": ["x"], "item": [10]})))
    with pytest.raises(DataError, match="also in training"):
        given_likes(train, read_interactions(pa.table({"user": ["a", "a"], "item": [10, 20]})))


@pytest.mark.parametrize(
    ("users", "items", "what"),
    [
        ([0], [1], "also in training"),
        ([0, 0], [2, 2], "twice"),
        ([5], [2], "user"),
        ([0], [-1], "item"),
        ([], [], "at least one"),
    ],
)
def test_a_split_is_checked_when_it_is_made(users, items, what) -> None:
    graph = Graph.from_pairs(np.array([0, 1], np.int32), np.array([1, 0], np.int32), 2, 3)
    with pytest.raises(DataError, match=what):
        HeldOut(graph, np.array(users, np.int64), np.array(items, np.int64))
