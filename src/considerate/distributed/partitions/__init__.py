"""The parts of a divided graph, as a pool hosts them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from considerate.data.graph import USERS, GraphPart
from considerate.distributed.messages import PartitionSetup
from considerate.distributed.partitions.base import Partition
from considerate.distributed.partitions.items import ItemPartition
from considerate.distributed.partitions.users import UserPartition

__all__ = ["Partition", "make_partition"]


def make_partition(
    graph: GraphPart,
    setup: PartitionSetup,
    state: Mapping[str, NDArray[Any]] | None = None,
    before: Mapping[str, NDArray[Any]] | None = None,
) -> Partition:
    """The part that a pool hosts: as it is before the first sweep, or in a state that it had."""
    part = UserPartition(graph, setup) if setup.resident == USERS else ItemPartition(graph, setup)
    if state is None:
        part.begin()
    else:
        part.restore(state, before)
    return part
