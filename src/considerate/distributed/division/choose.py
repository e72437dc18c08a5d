"""The division of a fit: the fastest of those that fit in memory, or the one that was asked for."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from considerate.data.graph import ITEMS, USERS
from considerate.distributed.division.costs import BANDWIDTH, PROCESS, Cluster, Costs, division_costs
from considerate.distributed.division.sizes import Sizes
from considerate.errors import MemoryLimitError, UsageError

SUMS_MOST = 1e9  # bytes of sums on a worker, where nothing is known of its memory
SUMS_SHARE = 1 / 8  # of its memory, where it is known
WORTH = 0.9  # by items only in less than this of the time: by users the bits are those of one machine

Limits = tuple[float | None, float | None]  # bytes of a worker, of the head; None: not checked


@dataclass(frozen=True)
class Choice:
    """The division of a fit, and what all candidates would cost."""

    resident: str
    item_shards: int
    costs: tuple[Costs, ...]  # of all candidates, the chosen one first
    reason: str
    alone: bool = False  # out of core

    def text(self) -> str:
        """The paragraph that is printed before the fit."""
        one, *others = self.costs
        if self.alone:
            return self._text_alone()
        said = [
            f"Divided by {one.resident} over {_count(one.workers, 'worker')} ({_count(one.parts, 'part')}), "
            f"{self.reason}: each sweep sends {size_words(one.down)} down to each node and {size_words(one.up)} up a "
            f"tree of workers, and takes about {_time(one.seconds)}, {_time(one.network)} of it on the way; "
            f"{size_words(one.worker_memory)} per worker, {size_words(one.head_memory)} at the head."
        ]
        if one.item_shards > 1:
            said.append(
                f"The items' sums come in {one.item_shards} shards: at most {size_words(one.worker_sums)} of them are "
                "on a worker at once."
            )
        said += [
            f"By {other.resident} it would send {size_words(other.down)} down and {size_words(other.up)} up and take "
            f"about {_time(other.seconds)}; {size_words(other.worker_memory)} per worker, "
            f"{size_words(other.head_memory)} at the head."
            for other in others
        ]
        return " ".join(said)

    def _text_alone(self) -> str:
        one, *others = self.costs
        said = [
            f"Divided by {one.resident} into {_count(one.parts, 'part')} on disk, {self.reason}: each sweep takes "
            f"about {_time(one.seconds)} and reads and writes {size_words(one.disk)}, in {size_words(_both(one))} of "
            "memory."
        ]
        if one.item_shards > 1:
            said.append(f"The items' sums come in {one.item_shards} shards.")
        said += [
            f"By {other.resident} it would take about {_time(other.seconds)} and read and write "
            f"{size_words(other.disk)}, in {size_words(_both(other))} of memory."
            for other in others
        ]
        return " ".join(said)


def choose_division(
    users: int,
    items: int,
    edges: int,
    factors: int,
    negatives: float,
    hidden: str,
    workers: int,
    threads: int,
    memory: float | None = None,
    bandwidth: float = BANDWIDTH,
    *,
    resident: str | None = None,
    item_shards: int | None = None,
    nodes: int | None = None,
    head_memory: float | None = None,
    groups: int = 32,
    user_bias: bool = False,
    item_bias: bool = True,
    alone: bool = False,
) -> Choice:
    """By users, or by items; and in how many shards the items' sums are asked for.

    `memory` is what each worker may take, and the head too if `head_memory` does not say otherwise; None is not
    checked. `nodes` are the machines, as many as workers if not given. `resident` and `item_shards` force the choice.
    `alone` is out of core: one process, whose parts are on its disk.
    """
    _check(resident, item_shards)
    sizes = Sizes(users, items, edges, factors, negatives, hidden, min(groups, items), user_bias, item_bias)
    cluster = Cluster(workers, threads, workers if nodes is None else nodes, bandwidth, alone=alone)
    limits = (memory, memory if head_memory is None else head_memory)
    by_users = division_costs(sizes, cluster, USERS, item_shards or shards_needed(sizes, cluster, memory))
    by_items = division_costs(sizes, cluster, ITEMS)
    if resident is None and (item_shards or 1) > 1:
        resident = USERS
    if resident is not None:
        best, other = (by_users, by_items) if resident == USERS else (by_items, by_users)
        if not _fits(best, limits):
            raise too_large(sizes, cluster, best, limits, item_shards, other)
        return Choice(best.resident, best.item_shards, (best, other), "as was asked", alone)
    fitting = [one for one in (by_users, by_items) if _fits(one, limits)]
    if not fitting:
        least = min(by_users, by_items, key=lambda one: one.worker_memory)
        raise too_large(sizes, cluster, least, limits, item_shards)
    best, reason = fitting[0], "the one that fits in memory"
    if len(fitting) == 2:
        best = by_items if by_items.seconds < WORTH * by_users.seconds else by_users
        faster = best.seconds <= min(by_users.seconds, by_items.seconds)
        reason = "the faster way" if faster else "about as fast, with the bits of one machine"
    others = tuple(one for one in (by_users, by_items) if one is not best)
    return Choice(best.resident, best.item_shards, (best, *others), reason, alone)


def shards_needed(sizes: Sizes, cluster: Cluster, memory: float | None) -> int:
    """The fewest shards of items with which the sums on a worker stay within bounds; each is a block of items at
    least."""
    most = SUMS_MOST if memory is None else SUMS_SHARE * memory
    whole = division_costs(sizes, cluster, USERS).worker_sums
    return min(max(1, math.ceil(whole / most)), sizes.blocks(ITEMS))


def too_large(
    sizes: Sizes,
    cluster: Cluster,
    costs: Costs,
    limits: Limits,
    item_shards: int | None = None,
    other: Costs | None = None,
) -> MemoryLimitError:
    """What is needed, what there is, and what would fit."""

    def fits(sizes: Sizes, cluster: Cluster) -> bool:
        shards = item_shards or shards_needed(sizes, cluster, limits[0])
        return _fits(division_costs(sizes, cluster, costs.resident, shards if costs.resident == USERS else 1), limits)

    worker, head = limits
    needed, free, where = costs.head_memory, head, "at the head"
    if worker is not None and costs.worker_memory > worker:
        needed, free, where = costs.worker_memory, worker, "per worker"
    assert free is not None
    per_node = cluster.workers / cluster.nodes
    more = range(cluster.workers + 1, costs.parts + 1)
    enough = (n for n in more if fits(sizes, replace(cluster, workers=n, nodes=math.ceil(n / per_node))))
    fewer = (
        k for k in range(sizes.factors - 1 - (sizes.factors - 1) % 8, 0, -8) if fits(replace(sizes, factors=k), cluster)
    )
    would = "machines with more memory are needed"
    if other is not None and _fits(other, limits):
        would = f"a division by {other.resident} would fit"
    elif (workers := next(enough, None)) is not None:
        would = f"{workers} workers would fit"
    elif (factors := next(fewer, None)) is not None:
        would = f"factors={factors} would fit"
    return MemoryLimitError(
        f"Divided by {costs.resident} over {_count(costs.workers, 'worker')} this fit needs about "
        f"{size_words(needed)} {where} and {size_words(free)} are free; {would}."
    )


def _check(resident: str | None, item_shards: int | None) -> None:
    if resident not in (None, USERS, ITEMS):
        raise UsageError(f"The division is {resident!r}; it must be 'auto', 'users' or 'items'.")
    if item_shards is not None and item_shards < 1:
        raise UsageError(f"item_shards is {item_shards}; it must be at least 1.")
    if resident == ITEMS and (item_shards or 1) > 1:
        raise UsageError(f"item_shards is {item_shards} and the division is by items; shards need a division by users.")


def _fits(costs: Costs, limits: Limits) -> bool:
    worker, head = limits
    return (worker is None or costs.worker_memory <= worker) and (head is None or costs.head_memory <= head)


def _both(costs: Costs) -> float:
    """Memory of a process that is head and worker."""
    return costs.worker_memory + costs.head_memory - PROCESS


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def size_words(size: float) -> str:
    """Bytes with two digits: 0.62 MB, 14 GB."""
    unit, scale = next(((unit, scale) for unit, scale in _UNITS if size >= 0.1 * scale), _UNITS[-1])
    return f"{size / scale:.0f} {unit}" if size >= 10 * scale else f"{size / scale:.2g} {unit}"


_UNITS = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.2g} s"
