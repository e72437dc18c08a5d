"""Which parts each worker holds: every part once, loads within bounds, and as few nodes of sums to send as can be."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest

from considerate.distributed.assignment import (
    MOST_LOAD,
    assign_parts,
    in_runs,
    merge_rounds,
    sent_nodes,
    tree_nodes,
)
from considerate.distributed.messages import Reply, Sums, merge_replies


def nodes_moved(shares: list[tuple[int, ...]], parts: int) -> int:
    return sum(map(sum, sent_nodes(shares, parts)))


@pytest.mark.parametrize(
    ("workers", "sizes", "nodes", "before"),
    [(2, [32, 32], 2, 2), (3, [16, 24, 24], 4, 10), (4, [16] * 4, 4, 4), (5, [12, 12, 12, 14, 14], 10, 17)]
    + [(7, [8, 8, 8, 10, 10, 10, 10], 11, 24), (8, [8] * 8, 8, 8)],
)
def test_shares_and_nodes_of_64_equal_parts(workers: int, sizes: list[int], nodes: int, before: int) -> None:
    """`before`: of runs of consecutive parts."""
    shares = assign_parts([1.0] * 64, workers)
    assert sorted(map(len, shares)) == sizes
    assert nodes_moved(shares, 64) == nodes
    assert nodes_moved(in_runs(64, workers), 64) == before


def test_each_part_once_and_no_worker_far_above_the_mean() -> None:
    random = np.random.default_rng(0)
    for parts in (1, 2, 3, 18, 25, 33, 64, 100, 256):
        edges = random.uniform(0.8, 1.2, parts)
        edges[-1] /= 2  # the last part may have fewer blocks
        for workers in (1, 2, 3, 5, 6, 7, 16, 300):
            shares = assign_parts(edges.tolist(), workers)
            assert sorted(part for share in shares for part in share) == list(range(parts))
            assert len(shares) == min(workers, parts)
            assert all(list(share) == sorted(share) for share in shares)
            runs = in_runs(parts, len(shares))
            loads = [
                max(edges[list(share)].sum() for share in each) * len(shares) / edges.sum() for each in (shares, runs)
            ]
            assert loads[0] <= max(MOST_LOAD, loads[1]) + 1e-9
            if loads[1] <= MOST_LOAD:
                assert nodes_moved(shares, parts) <= nodes_moved(runs, parts)
            if parts >= 8 * workers:
                assert loads[0] <= MOST_LOAD


def test_a_heavy_part_is_alone() -> None:
    shares = assign_parts([1.0, 1.0, 6.0, 1.0, 1.0, 1.0, 1.0], 2)
    assert sorted(shares, key=len) == [(2,), (0, 1, 3, 4, 5, 6)]


def test_more_room_never_sends_more() -> None:
    for parts, workers in ((64, 5), (64, 7), (25, 5), (18, 3)):
        moved = [nodes_moved(assign_parts([1.0] * parts, workers, load), parts) for load in (1.05, 1.15, 1.25, 1.35)]
        assert moved == sorted(moved, reverse=True)
        assert moved[-1] < moved[0]


def test_answers_have_so_many_nodes() -> None:
    """As the workers of a pool merge them."""
    for parts, workers in ((64, 5), (25, 3), (25, 6), (1, 1), (7, 3)):
        shares = assign_parts([1.0] * parts, workers)
        replies = [
            reduce(merge_replies, (Reply.of(part, parts, np.empty((0, 6)), Sums()) for part in share))
            for share in shares
        ]
        assert [len(reply.nodes) for reply in replies] == [tree_nodes(share, parts) for share in shares]
        sent = []
        for pairs in merge_rounds(len(shares)):
            sent.append([len(replies[sender].nodes) for _, sender in pairs])
            for merger, sender in pairs:
                replies[merger] = merge_replies(replies[merger], replies[sender])
        assert [*sent, [1]] == sent_nodes(shares, parts)
        assert replies[0].root() == Sums()


def test_neighbours_merge_then_pairs_of_pairs() -> None:
    assert merge_rounds(1) == []
    assert merge_rounds(5) == [[(0, 1), (2, 3)], [(0, 2)], [(0, 4)]]
