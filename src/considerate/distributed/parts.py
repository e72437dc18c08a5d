"""The parts of a divided graph, as a crew hosts them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from considerate.data.graph import USERS, GraphPart
from considerate.distributed.inner import InnerPart
from considerate.distributed.item_parts import ItemPart
from considerate.distributed.messages import Setup
from considerate.distributed.residents import Part

__all__ = ["Part", "make_part"]


def make_part(
    graph: GraphPart,
    setup: Setup,
    state: Mapping[str, NDArray[Any]] | None = None,
    before: Mapping[str, NDArray[Any]] | None = None,
) -> Part:
    """The part that a crew hosts: as it is before the first sweep, or in a state that it had."""
    part = InnerPart(graph, setup) if setup.resident == USERS else ItemPart(graph, setup)
    if state is None:
        part.begin()
    else:
        part.restore(state, before)
    return part
