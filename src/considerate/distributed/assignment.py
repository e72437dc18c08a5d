"""Assignment of parts to workers, and the nodes of the tree over parts that they send.

Sums are merged along one fixed tree. A worker that holds whole subtrees sends one node for each; an arbitrary run of
parts would be many nodes. The posterior does not depend on the assignment.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

MOST_LOAD = 1.15  # edges of a worker over the mean, at most, if parts are small enough
LOADS = (1.0, 1.05, 1.1, 1.15)  # bounds that are tried

Place = tuple[int, int]  # (level, number) of the node over parts number * 2^level .. (number + 1) * 2^level - 1
Parts = tuple[int, ...]


def risen(parts: int, place: Place) -> Place:
    """Place of a node, raised to its highest ancestor that has no other parts."""
    level, number = place
    while number % 2 == 0 and (number + 1) << level >= parts and number > 0:
        level, number = level + 1, number // 2
    return level, number


def tree_nodes(held: Iterable[int], parts: int) -> int:
    """Number of nodes that these parts merge to."""
    nodes = set[Place]()
    for part in held:
        place = risen(parts, (0, part))
        while (sibling := (place[0], place[1] ^ 1)) in nodes:
            nodes.remove(sibling)
            place = risen(parts, (place[0] + 1, place[1] // 2))
        nodes.add(place)
    return len(nodes)


def merge_rounds(count: int) -> list[list[tuple[int, int]]]:
    """Rounds of pairs (merging worker, sending worker): neighbours, then pairs of pairs, up to one worker."""
    level, rounds = list(range(count)), []
    while len(level) > 1:
        rounds.append(list(zip(level[::2], level[1::2])))
        level = level[::2]
    return rounds


def sent_nodes(shares: Sequence[Parts], parts: int) -> list[list[int]]:
    """Numbers of nodes in the replies that are sent, by round; the last round goes to the head."""
    held, sent = [set(share) for share in shares], []
    for pairs in merge_rounds(len(shares)):
        sent.append([tree_nodes(sorted(held[sender]), parts) for _, sender in pairs])
        for merger, sender in pairs:
            held[merger] |= held[sender]
    return [*sent, [tree_nodes(sorted(held[0]), parts)]]


def assign_parts(edges: Sequence[float], workers: int, most_load: float = MOST_LOAD) -> list[Parts]:
    """Assign parts with these edges so that few nodes are sent and no worker has more than `most_load` times the mean;
    if parts are too large for that, as evenly as possible."""
    count, parts = min(workers, len(edges)), len(edges)
    mean = max(float(np.sum(edges)), 1e-9) / count
    found = [_deal(edges, count, load * mean) for load in (*LOADS, most_load) if load <= most_load]
    found.append(in_runs(parts, count))

    def cost(shares: list[Parts]) -> tuple[float, int, float]:
        load = max(sum(edges[part] for part in share) for share in shares) / mean
        return max(load, most_load), sum(map(sum, sent_nodes(shares, parts))), load

    return min((sorted(shares) for shares in found if all(shares)), key=cost)


def _deal(edges: Sequence[float], workers: int, room: float) -> list[Parts]:
    """Give subtrees, the largest first, to the worker with the most room; if that is not enough, or a worker would get
    none, give the halves."""
    before = np.concatenate([[0.0], np.cumsum(edges)])
    waiting = [(-float(before[-1]), 0, len(edges))]
    loads, idle = [(0.0, worker) for worker in range(workers)], workers
    shares: list[list[int]] = [[] for _ in range(workers)]
    while waiting:
        less, first, last = heapq.heappop(waiting)
        load, worker = loads[0]
        if (load - less <= room and len(waiting) + 1 >= idle) or last - first == 1:
            heapq.heapreplace(loads, (load - less, worker))
            idle -= load == 0.0 and less < 0.0
            shares[worker] += range(first, last)
            continue
        middle = first + (1 << (last - first - 1).bit_length() - 1)
        for low, high in ((first, middle), (middle, last)):
            heapq.heappush(waiting, (-float(before[high] - before[low]), low, high))
    return [tuple(sorted(share)) for share in shares]


def in_runs(parts: int, workers: int) -> list[Parts]:
    """Runs of consecutive parts, about equally many each."""
    cuts = np.linspace(0, parts, workers + 1).round().astype(int).tolist()
    return [tuple(range(first, last)) for first, last in pairwise(cuts)]
