"""Metrics against brute force over every order of ties, and against tables worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from considerate.data.graph import Adjacency, Graph
from considerate.errors import UsageError
from considerate.evaluation import metrics
from considerate.evaluation.metrics import (
    coverage,
    gini,
    mean_popularity,
    novelty,
    rank_scores,
    user_metrics,
)
from considerate.evaluation.ranks import Ranks, held_ranks
from considerate.evaluation.scorer import FunctionScorer
from considerate.evaluation.split import HeldOut
from studies.movielens import mean_by_bin
from tests.helpers import naive_ranking as naive
from tests.helpers.randomised import examples


def tiny(scores, seen, held) -> tuple[FunctionScorer, HeldOut]:
    """A split of a few users from lists."""
    starts = np.concatenate([[0], np.cumsum([len(one) for one in seen])]).astype(np.int64)
    indices = np.concatenate([np.empty(0, np.int32), *[np.sort(one) for one in seen]]).astype(np.int32)
    graph = Graph.from_adjacency(Adjacency(starts, indices), scores.shape[1])
    users = np.repeat(np.arange(len(held)), [len(one) for one in held])
    items = np.concatenate([np.asarray(one, np.int64) for one in held])
    return FunctionScorer(lambda rows: scores[rows], "given"), HeldOut(graph, users.astype(np.int64), items)


@st.composite
def small_cases(draw):
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    users, items, levels = draw(st.integers(1, 3)), draw(st.integers(2, 7)), draw(st.integers(1, 7))
    scores = random.integers(0, levels, (users, items)).astype(np.float64)
    seen, held = [], []
    for _ in range(users):
        order = random.permutation(items)
        cut = int(random.integers(0, items - 1))
        seen.append(order[:cut].tolist())
        held.append(order[cut : cut + 1 + int(random.integers(0, items - cut))].tolist())
    return scores, seen, held


@examples(150)
@given(small_cases(), st.integers(1, 8))
def test_every_metric_is_its_mean_over_all_orders_of_ties(case, k) -> None:
    scores, seen, held = case
    ranks = held_ranks(*tiny(scores, seen, held))
    assert ranks.people.tolist() == list(range(len(held)))
    for name in naive.METRICS:
        expected = [naive.expected(name, scores[m].tolist(), seen[m], held[m], k) for m in range(len(held))]
        assert getattr(metrics, name)(ranks, k) == pytest.approx(expected, abs=1e-12), name
    whole = [naive.expected("mrr", scores[m].tolist(), seen[m], held[m], 99) for m in range(len(held))]
    assert metrics.mrr(ranks) == pytest.approx(whole, abs=1e-12)
    of_users = [np.mean([naive.rank_score(scores[m].tolist(), seen[m], n) for n in held[m]]) for m in range(len(held))]
    assert rank_scores(ranks) == pytest.approx(of_users)


def test_by_hand() -> None:
    """Six candidates in the order 3 0 5 1 4 2; held out are 0 and 4, at the positions 2 and 5."""
    scores = np.array([[5.0, 3.0, 1.0, 6.0, 2.0, 4.0, 9.0]])
    ranks = held_ranks(*tiny(scores, [[6]], [[0, 4]]))
    assert ranks.above.tolist() == [1, 4]
    assert ranks.candidates.tolist() == [6, 6]
    assert ranks.scores == pytest.approx([4 / 6, 1 / 6])
    ideal = 1 + 1 / math.log2(3)
    by_hand = {
        "S_rank": 5 / 12,
        "MRR": 1 / 2,
        "Recall@1": 0.0,
        "NDCG@1": 0.0,
        "MAP@1": 0.0,
        "hit rate@1": 0.0,
        "Recall@3": 1 / 2,
        "NDCG@3": (1 / math.log2(3)) / ideal,
        "MAP@3": (1 / 2) / 2,
        "hit rate@3": 1.0,
        "Recall@5": 1.0,
        "NDCG@5": (1 / math.log2(3) + 1 / math.log2(6)) / ideal,
        "MAP@5": (1 / 2 + 2 / 5) / 2,
        "hit rate@5": 1.0,
    }
    found = user_metrics(ranks, (1, 3, 5))
    assert {name: float(values[0]) for name, values in found.items()} == pytest.approx(by_hand)


def test_recall_divides_by_all_that_is_held_out_and_map_and_ndcg_by_what_fits() -> None:
    """Four held out, all on top: a list of two holds half of them, and could not be better."""
    ranks = held_ranks(*tiny(np.array([[9.0, 8.0, 7.0, 6.0, 1.0]]), [[4]], [[0, 1, 2, 3]]))
    assert metrics.recall(ranks, 2)[0] == pytest.approx(0.5)
    assert metrics.ndcg(ranks, 2)[0] == pytest.approx(1.0)
    assert metrics.mean_average_precision(ranks, 2)[0] == pytest.approx(1.0)


def test_a_constant_score_gets_what_guessing_gets_whatever_the_numbering() -> None:
    scorer, held = tiny(np.zeros((2, 10)), [[0], []], [[9], [0]])
    ranks = held_ranks(scorer, held)
    assert metrics.recall(ranks, 3) == pytest.approx([3 / 9, 3 / 10])
    assert metrics.hit_rate(ranks, 3) == pytest.approx([3 / 9, 3 / 10])
    assert rank_scores(ranks) == pytest.approx([4 / 9, 4.5 / 10])


def test_the_popularity_score_against_a_table_worked_by_hand() -> None:
    """Likes of four users; popularity 3 2 2 1 0, held out are items 1, 3 and 4 of users 0, 1 and 3."""
    seen = [[0, 2], [0, 1], [0, 1, 2, 3], []]
    popularity = np.array([3.0, 2.0, 2.0, 1.0, 0.0])
    scorer, held = tiny(np.tile(popularity, (4, 1)), seen, [[1], [3], [], [4]])
    assert held.train.by_item.degrees.tolist() == popularity.tolist()
    ranks = held_ranks(scorer, held)
    assert ranks.people.tolist() == [0, 1, 3]
    # user 0 has 1 3 4 left: 1 is first of 3. User 1 has 2 3 4: 3 is second. User 3 has all: 4 is last of five.
    assert rank_scores(ranks) == pytest.approx([2 / 3, 1 / 3, 0.0])
    assert metrics.recall(ranks, 1).tolist() == [1.0, 0.0, 0.0]
    assert metrics.mrr(ranks) == pytest.approx([1.0, 1 / 2, 1 / 5])


@pytest.mark.parametrize("k", [0, -1, 2.0, True, None])
def test_a_list_of_no_length_is_refused(k) -> None:
    ranks = Ranks(*(np.zeros(1, np.int64),) * 4, np.ones(1, np.int64))
    with pytest.raises(UsageError, match="whole number at least 1"):
        metrics.recall(ranks, k)


# --- Lists ---


@examples(60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 8), st.integers(1, 5))
def test_lists_against_brute_force(seed: int, items: int, k: int) -> None:
    random = np.random.default_rng(seed)
    lists = random.integers(-1, items, (4, k))
    lists[0, 0] = 0
    shown = [n for row in lists.tolist() for n in row if n >= 0]
    assert coverage(lists, items) == pytest.approx(len(set(shown)) / items)
    assert gini(lists, items) == pytest.approx(naive.gini([shown.count(n) for n in range(items)]))
    degree = random.integers(0, 50, items)
    for m, row in enumerate(lists.tolist()):
        there = [n for n in row if n >= 0]
        if there:
            assert mean_popularity(lists, degree)[m] == pytest.approx(np.mean([degree[n] for n in there]))
            bits = [-math.log2(max(degree[n], 0.5) / 60) for n in there]
            assert novelty(lists, degree, 60)[m] == pytest.approx(np.mean(bits))
        else:
            assert np.isnan(mean_popularity(lists, degree)[m])


def test_gini_at_its_ends() -> None:
    assert gini(np.arange(10).reshape(5, 2), 10) == pytest.approx(0.0)
    assert gini(np.zeros((5, 1), int), 10) == pytest.approx(0.9)
    with pytest.raises(UsageError):
        gini(np.full((3, 2), -1), 10)


def test_mean_by_bin() -> None:
    means, counts = mean_by_bin(np.array([1.0, 3.0, 5.0, 7.0]), np.array([1, 1, 4, 99]), np.array([1, 2, 3, 10]))
    assert counts.tolist() == [2, 0, 1]
    assert means[0] == 2.0
    assert np.isnan(means[1])
    assert means[2] == 5.0
