"""A fit over a divided graph: the runner for each division, and what else is asked of the parts."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import USERS, GraphOutline, Range, Run, ranges, run_serially
from considerate.distributed.division import WALK_ENTRY
from considerate.distributed.likers import Likers, item_ranges
from considerate.distributed.messages import PartitionSetup, merge_replies
from considerate.distributed.options import DivisionOptions
from considerate.distributed.pools import WorkerPool
from considerate.distributed.runners.base import PartitionedRunner
from considerate.distributed.runners.by_items import ByItemsRunner
from considerate.distributed.runners.by_users import ByUsersRunner, InnerSweepsRunner
from considerate.errors import UsageError
from considerate.inference.hidden import Consideration, Inclusion, Masses, correct_head_by
from considerate.inference.hidden.consideration import Rows, pull_of, row_cuts, row_length
from considerate.inference.plan import FitPlan
from considerate.inference.posterior import Side
from considerate.kernels import compiled
from considerate.kernels.arrays import added

__all__ = ["ByUsersRunner", "PartitionedRunner", "consideration_over", "correct_head_over", "gather", "make_runner"]


def make_runner(
    outline: GraphOutline,
    setup: PartitionSetup,
    weights: NDArray[np.float64],
    pool: WorkerPool,
    options: DivisionOptions | None = None,
    run: Run[Any, Any] = run_serially,
    consideration: Consideration | None = None,
) -> PartitionedRunner:
    """The runner over a pool of `make_partition(part, setup)`. weights: pi; run: maps the rows of the head."""
    options = options or DivisionOptions()
    kind: type[PartitionedRunner] = ByUsersRunner if setup.resident == USERS else ByItemsRunner
    if options.inner_sweeps > 1:
        kind = InnerSweepsRunner
        blocks = len(compiled.coordinate_blocks(setup.plan.factors))
        if setup.resident != USERS or blocks > 1 or (options.item_shards or 1) > 1:
            raise UsageError(
                f"inner_sweeps is {options.inner_sweeps}; above 1 it needs a division by users, at most 64 factors and "
                "one item shard: set it to 1 for this fit."
            )
    return kind(outline, setup, weights, pool, options, run, consideration)


def correct_head_over(
    pool: WorkerPool, outline: GraphOutline, weights: NDArray[np.float64], negatives: float
) -> NDArray[np.float64]:
    """hidden.correct_head over the parts, before the first sweep."""
    resident = pool.call("resident")[0]

    def masses(inclusion: Inclusion) -> Masses:
        if resident != USERS:
            shared = pool.share(inclusion)
            temperature = np.concatenate(pool.call("temperatures", shared))
            liked = np.concatenate(pool.call("liked_masses", shared, pool.share(temperature)))
            return inclusion.masses_at(temperature, liked)
        total: Masses | None = pool.call("masses", pool.share(inclusion), merge=merge_replies).root().masses
        assert total is not None
        return total

    return correct_head_by(weights, outline.item_degree, outline.user_count, negatives, masses)


def consideration_over(
    pool: WorkerPool,
    outline: GraphOutline,
    plan: FitPlan,
    weights: NDArray[np.float64],
    block_bytes: float,
    run: Run[Any, Any] | None = None,
) -> Consideration:
    """Consideration.of_graph over the parts, before the first sweep, with the same bits.

    Parts of items have whole rows and cut them. Those of users have a sum for each row: the sums of some rows at a
    time, about `block_bytes` of them or fewer, come up the tree of workers and are cut here. Where parts come from a
    disk of this machine, `run` is given and maps blocks of rows: the users who like some items at a time are gathered
    here, within `block_bytes`, and the rows of these items are made as in memory.
    """
    pull = pool.share(pull_of(weights, outline.item_degree))
    by_users = pool.call("resident")[0] == USERS
    work: NDArray[np.int64] = (
        pool.call("walk_work", pull, merge=added) if by_users else np.concatenate(pool.call("walk_work", pull))
    )
    length = row_length(work, plan.neighbours, outline.edges)
    p = weights / weights.sum()

    def cut(items: Range) -> Rows:
        sums: compiled.WalkSums = pool.call("walk_sums", pull, items, merge=merge_replies).root().walk
        return compiled.cut_walk(*sums, p, length)

    def gathered(items: Range) -> Iterable[Rows]:
        if items[1] - items[0] == 1:  # perhaps one of too many users
            return [cut(items)]
        steps = Likers.steps(pool.call("likers", items), pull, items, run)
        return steps.rows(weights, length, run)

    blocks: Iterable[Rows]
    if by_users and run is not None:
        blocks = chain.from_iterable(map(gathered, item_ranges(work, outline, block_bytes)))
    elif by_users:
        entries = np.minimum(work, outline.item_count)  # of each row's sums, at most
        blocks = map(cut, ranges(row_cuts(entries, max(1, int(block_bytes / WALK_ENTRY)))))
    else:
        blocks = chain.from_iterable(pool.call("walk_rows", pull, pool.share(weights), length))
    return Consideration.of_rows(blocks, int(np.minimum(work, length).sum()), weights, plan.mixing)


def gather(pool: WorkerPool, factors: int) -> Side:
    """The residents' rows of all parts, in one place."""
    states = pool.call("state")
    names = [name for name in ("rows", "bias_mean", "bias_variance") if name in states[0]]
    return Side(factors, *(np.concatenate([state[name] for state in states]) for name in names))
