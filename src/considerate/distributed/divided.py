"""A fit over a divided graph: the runner for each division, and what else is asked of the parts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import USERS, GraphOutline, Run, run_serially
from considerate.distributed.backends.calls import Crew
from considerate.distributed.by_items import DividedByItems
from considerate.distributed.by_users import DividedByUsers
from considerate.distributed.inner_sweeps import DividedInner
from considerate.distributed.messages import Setup, merge_ups
from considerate.distributed.runner import Divided
from considerate.errors import UsageError
from considerate.inference.hidden import Inclusion, Masses, correct_head_by
from considerate.inference.posterior import Side
from considerate.inference.sweep import State
from considerate.kernels import compiled

__all__ = ["Divided", "correct_head_over", "gather", "make_divided", "with_residents"]


def make_divided(
    outline: GraphOutline,
    setup: Setup,
    weights: NDArray[np.float64],
    crew: Crew,
    *,
    groups: int = 32,
    item_shards: int = 1,
    inner_sweeps: int = 1,
    inner: str = "one",
    run: Run[Any, Any] = run_serially,
) -> Divided:
    """The runner over a crew of `make_part(part, setup)`. weights: pi; run: how the travelling side's rows are mapped
    here, where they are solved."""
    if inner_sweeps > 1:
        if setup.resident != USERS or len(compiled.coordinate_blocks(setup.settings.factors)) > 1 or item_shards > 1:
            raise UsageError(
                f"inner_sweeps is {inner_sweeps}; above 1 it needs a division by users, at most 64 factors and one "
                "item shard: set it to 1 for this fit."
            )
        return DividedInner(
            outline, setup, weights, crew, groups=groups, inner_sweeps=inner_sweeps, inner=inner, run=run
        )
    if setup.resident == USERS:
        return DividedByUsers(outline, setup, weights, crew, groups=groups, item_shards=item_shards, run=run)
    return DividedByItems(outline, setup, weights, crew, groups=groups, run=run)


def correct_head_over(
    crew: Crew, outline: GraphOutline, weights: NDArray[np.float64], negatives: float
) -> NDArray[np.float64]:
    """hidden.correct_head over the parts, before the first sweep."""

    resident = crew.call("resident")[0]

    def masses(inclusion: Inclusion) -> Masses:
        if resident != USERS:
            shared = crew.share(inclusion)
            temperature = np.concatenate(crew.call("temperatures", shared))
            liked = np.concatenate(crew.call("liked_masses", shared, crew.share(temperature)))
            return inclusion.masses_at(temperature, liked)
        found: Masses | None = crew.call("masses", crew.share(inclusion), merge=merge_ups).root().masses
        assert found is not None
        return found

    return correct_head_by(weights, outline.item_degree, outline.user_count, negatives, masses)


def with_residents(state: State, side: Side) -> State:
    """The state with the residents' rows in it, where they were gathered."""
    q = state.posterior
    return replace(state, posterior=replace(q, users=side) if not len(q.users) else replace(q, items=side))


def gather(crew: Crew, factors: int) -> Side:
    """The residents' rows of all parts, in one place."""
    states = crew.call("state")
    joined = {
        name: np.concatenate([one[name] for one in states]) for name in ("rows", "bias_mean") if name in states[0]
    }
    variance = np.concatenate([one["bias_variance"] for one in states]) if "bias_mean" in joined else None
    return Side(factors, joined["rows"], joined.get("bias_mean"), variance)
