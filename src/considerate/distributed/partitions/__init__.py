"""The parts of a divided graph, as a pool hosts them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from considerate.data.graph import ITEMS, USERS, GraphPart
from considerate.distributed.messages import PartitionSetup
from considerate.distributed.partitions.items import ItemPartition
from considerate.distributed.partitions.partition import Partition
from considerate.distributed.partitions.users import UserPartition

__all__ = ["Partition", "make_partition"]

PARTITIONS: dict[str, type[Partition]] = {USERS: UserPartition, ITEMS: ItemPartition}


def make_partition(
    graph: GraphPart,
    setup: PartitionSetup,
    state: Mapping[str, NDArray[Any]] | None = None,
    before: Mapping[str, NDArray[Any]] | None = None,
) -> Partition:
    """Make a part as it is before the first sweep, or in a given state."""
    part = PARTITIONS[setup.resident](graph, setup)
    if state is None:
        part.begin()
    else:
        part.restore(state, before)
    return part
