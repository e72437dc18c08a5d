"""A fit over a divided graph: the runner for each division, and what else is asked of the parts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import USERS, GraphOutline, Run, run_serially
from considerate.distributed.messages import PartitionSetup, merge_replies
from considerate.distributed.pools.pool import WorkerPool
from considerate.distributed.runners.base import PartitionedRunner
from considerate.distributed.runners.by_items import ByItemsRunner
from considerate.distributed.runners.by_users import ByUsersRunner
from considerate.distributed.runners.inner import InnerSweepsRunner
from considerate.errors import UsageError
from considerate.inference.hidden import Inclusion, Masses, correct_head_by
from considerate.inference.posterior import Side
from considerate.inference.sweep import State
from considerate.kernels import compiled

__all__ = ["ByUsersRunner", "PartitionedRunner", "correct_head_over", "gather", "make_runner", "with_residents"]


def make_runner(
    outline: GraphOutline,
    setup: PartitionSetup,
    weights: NDArray[np.float64],
    pool: WorkerPool,
    *,
    item_shards: int = 1,
    inner_sweeps: int = 1,
    inner: str = "one",
    run: Run[Any, Any] = run_serially,
) -> PartitionedRunner:
    """The runner over a pool of `make_partition(part, setup)`. weights: pi; run: maps the rows of the head."""
    if inner_sweeps > 1:
        if setup.resident != USERS or len(compiled.coordinate_blocks(setup.plan.factors)) > 1 or item_shards > 1:
            raise UsageError(
                f"inner_sweeps is {inner_sweeps}; above 1 it needs a division by users, at most 64 factors and one "
                "item shard: set it to 1 for this fit."
            )
        return InnerSweepsRunner(outline, setup, weights, pool, inner_sweeps=inner_sweeps, inner=inner, run=run)
    if setup.resident == USERS:
        return ByUsersRunner(outline, setup, weights, pool, item_shards=item_shards, run=run)
    return ByItemsRunner(outline, setup, weights, pool, run=run)


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
        found: Masses | None = pool.call("masses", pool.share(inclusion), merge=merge_replies).root().masses
        assert found is not None
        return found

    return correct_head_by(weights, outline.item_degree, outline.user_count, negatives, masses)


def with_residents(state: State, side: Side) -> State:
    """The state with the residents' rows in it, where they were gathered."""
    q = state.posterior
    return replace(state, posterior=replace(q, users=side) if not len(q.users) else replace(q, items=side))


def gather(pool: WorkerPool, factors: int) -> Side:
    """The residents' rows of all parts, in one place."""
    states = pool.call("state")
    joined = {
        name: np.concatenate([one[name] for one in states]) for name in ("rows", "bias_mean") if name in states[0]
    }
    variance = np.concatenate([one["bias_variance"] for one in states]) if "bias_mean" in joined else None
    return Side(factors, joined["rows"], joined.get("bias_mean"), variance)
