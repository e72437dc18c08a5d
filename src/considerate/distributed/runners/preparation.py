"""Calls to the parts before the first sweep: the correction of pi, and the table of the walk."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import ITEMS, USERS, GraphOutline, Range, Run, ranges
from considerate.distributed.division import WALK_ENTRY
from considerate.distributed.fans import Fans, item_ranges
from considerate.distributed.messages import merge_replies
from considerate.distributed.pools import WorkerPool
from considerate.inference.hidden import Consideration, Inclusion, Masses, correct_head_by
from considerate.inference.hidden.consideration import Rows, pull_of, row_cuts, row_length
from considerate.inference.plan import FitPlan
from considerate.inference.posterior import Side
from considerate.kernels import compiled
from considerate.kernels.arrays import added


def correct_head_over(
    pool: WorkerPool, outline: GraphOutline, weights: NDArray[np.float64], negatives: float
) -> NDArray[np.float64]:
    """hidden.correct_head over the parts."""

    def over_users(inclusion: Inclusion) -> Masses:
        total: Masses | None = pool.call("masses", pool.share(inclusion), merge=merge_replies).root().masses
        assert total is not None
        return total

    def over_items(inclusion: Inclusion) -> Masses:
        shared = pool.share(inclusion)
        temperature = np.concatenate(pool.call("temperatures", shared))
        liked = np.concatenate(pool.call("liked_masses", shared, pool.share(temperature)))
        return inclusion.masses_at(temperature, liked)

    masses = {USERS: over_users, ITEMS: over_items}[pool.call("resident")[0]]
    return correct_head_by(weights, outline.item_degree, outline.user_count, negatives, masses)


def consideration_over(
    pool: WorkerPool,
    outline: GraphOutline,
    plan: FitPlan,
    weights: NDArray[np.float64],
    block_bytes: float,
    run: Run[Any, Any] | None = None,
) -> Consideration:
    """Consideration.of_graph over the parts, with the same bits.

    Parts of items have whole rows and cut them. Parts of users have a partial sum for each row. The sums of some rows
    at a time, at most about `block_bytes`, come up the tree of workers and are cut here. Out of core, where `run` maps
    blocks of rows, the users who like some items at a time are gathered here instead, within `block_bytes`, and the
    rows of these items are made as in memory.
    """
    pull = pool.share(pull_of(weights, outline.item_degree))
    work: NDArray[np.int64] = pool.call("walk_work", pull, merge=added)
    length, p = row_length(work, plan.neighbours, outline.edges), weights / weights.sum()

    def summed(items: Range) -> Rows:
        sums: compiled.WalkSums = pool.call("walk_sums", pull, items, merge=merge_replies).root().walk
        return compiled.cut_walk(*sums, p, length)

    def gathered(items: Range) -> Iterable[Rows]:
        if items[1] - items[0] == 1:  # perhaps an item of too many users
            return [summed(items)]
        return Fans.steps(pool.call("fans", items), pull, items, run).rows(weights, length, run)

    blocks: Iterable[Rows]
    if pool.call("resident")[0] == ITEMS:
        blocks = chain.from_iterable(pool.call("walk_rows", pull, pool.share(weights), length))
    elif run is not None:
        blocks = chain.from_iterable(map(gathered, item_ranges(work, outline, block_bytes)))
    else:
        entries = np.minimum(work, outline.item_count)  # of each row's sums, at most
        blocks = map(summed, ranges(row_cuts(entries, max(1, int(block_bytes / WALK_ENTRY)))))
    return Consideration.of_rows(blocks, int(np.minimum(work, length).sum()), weights, plan.mixing)


def gather(pool: WorkerPool, factors: int) -> Side:
    """Rows of the residents of all parts."""
    states = pool.call("state")
    names = [name for name in ("rows", "bias_mean", "bias_variance") if name in states[0]]
    return Side(factors, *(np.concatenate([state[name] for state in states]) for name in names))
