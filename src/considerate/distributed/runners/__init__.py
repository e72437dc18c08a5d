"""Runners of a fit over a divided graph, and the calls to the parts before the first sweep."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import ITEMS, USERS, GraphOutline, Run, run_serially
from considerate.distributed.messages import PartitionSetup
from considerate.distributed.options import DivisionOptions
from considerate.distributed.pools import WorkerPool
from considerate.distributed.runners.by_items import ByItemsRunner
from considerate.distributed.runners.by_users import ByUsersRunner
from considerate.distributed.runners.inner import InnerSweepsRunner, check_inner_sweeps
from considerate.distributed.runners.preparation import consideration_over, correct_head_over, gather
from considerate.distributed.runners.runner import PartitionedRunner
from considerate.inference.hidden import Consideration

__all__ = [
    "PartitionedRunner",
    "check_inner_sweeps",
    "consideration_over",
    "correct_head_over",
    "gather",
    "make_runner",
]

RUNNERS: dict[str, type[PartitionedRunner]] = {USERS: ByUsersRunner, ITEMS: ByItemsRunner}


def make_runner(
    outline: GraphOutline,
    setup: PartitionSetup,
    weights: NDArray[np.float64],
    pool: WorkerPool,
    options: DivisionOptions | None = None,
    run: Run[Any, Any] = run_serially,
    consideration: Consideration | None = None,
) -> PartitionedRunner:
    """Make the runner over a pool of `make_partition(part, setup)`. weights: pi; run: maps the rows at the head."""
    options = options or DivisionOptions()
    kind = RUNNERS[setup.resident]
    if options.inner_sweeps > 1:
        kind = InnerSweepsRunner
        check_inner_sweeps(setup.plan, setup.resident, options)
    return kind(outline, setup, weights, pool, options, run, consideration)
