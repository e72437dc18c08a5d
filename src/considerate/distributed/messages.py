"""What goes to the parts of a divided graph and what comes back (eq. 21).

Down goes the travelling side as it is before its step, and the constants. Up come natural-gradient sums, as nodes of
the fixed tree over parts, the edges of light items, and what is per block. Messages are plain dataclasses of arrays:
they may arrive read-only, and are never written to.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import USERS, GraphOutline, part_ranges
from considerate.distributed.assignment import Place, risen
from considerate.distributed.light import LightEdges
from considerate.inference.features import FeatureWeights
from considerate.inference.hidden import ItemGroups, ItemSums, Masses, Shares, UserGroups
from considerate.inference.plan import FitPlan
from considerate.inference.posterior import Side
from considerate.inference.sums import EdgeSums
from considerate.inference.updates import RowClasses
from considerate.kernels import compiled
from considerate.kernels.arrays import added

Value = TypeVar("Value")


@dataclass(frozen=True)
class PartitionSetup:
    """What a part must know beside its graph, for as long as it lives."""

    plan: FitPlan
    parts: int
    user_count: int
    item_count: int
    resident: str = USERS  # the side that lives with the parts
    out_of_core: bool = False  # whether parts come one at a time: nothing is then made for all of them
    items: RowClasses | None = None  # by users: the items by how they are summed

    @classmethod
    def of(
        cls, outline: GraphOutline, plan: FitPlan, resident: str = USERS, out_of_core: bool = False
    ) -> PartitionSetup:
        parts = len(part_ranges(len(outline.blocks_of(resident)) - 1))
        items = RowClasses.of_items(outline, plan.edges_per_like) if resident == USERS else None
        return cls(plan, parts, outline.user_count, outline.item_count, resident, out_of_core, items)


class SharedCache:
    """What all parts of one process need of a message, made by the first that asks. It does not travel."""

    def __init__(self) -> None:
        self._lock, self._made = threading.Lock(), dict[Any, Any]()

    def get(self, key: Any, make: Callable[[], Value]) -> Value:
        with self._lock:
            if key not in self._made:
                self._made[key] = make()
            made: Value = self._made[key]
            return made

    def __reduce__(self) -> tuple[type[SharedCache], tuple[()]]:
        return SharedCache, ()


@dataclass(frozen=True)
class Broadcast:
    """One sweep's message to the parts."""

    sweep: int
    other: Side  # the travelling side, whole
    epsilon: float
    tau: float  # E[tau] of the residents' vectors
    tau_bias: float  # and of their biases
    groups: ItemGroups | None = None  # expected mode, to parts of users
    closed: ClosedForm | None = None  # expected mode, to parts of items
    weights: FeatureWeights | None = None  # means of the residents' feature weights, to parts of users
    once: SharedCache = field(default_factory=SharedCache, compare=False)


@dataclass(frozen=True)
class ClosedForm:
    """What parts of items read in expected mode."""

    group_of_item: NDArray[np.int32]  # [items], of all
    groups: int
    temperature: NDArray[np.float64]  # [users]
    shares: Shares | None = None  # of all users, once alpha is made
    users: UserGroups | None = None  # once the users are stepped


@dataclass(frozen=True)
class SumsRequest:
    """Which sums: rows first .. last - 1 of the travelling side, of which light ones have none, and one block of their
    coordinates."""

    first: int
    last: int
    block: int = 0
    ends: bool = True  # whether nothing more is asked of this sweep

    @property
    def rows(self) -> slice:
        return slice(self.first, self.last)


@dataclass(frozen=True)
class Sums:
    """What some parts say of the travelling side: a node of the tree over parts."""

    edges: EdgeSums | None = None
    users: UserGroups | None = None  # expected mode: what items read of the users
    items: ItemSums | None = None  # expected mode, by items: what users read of the items
    liked: NDArray[np.float64] | None = None  # expected mode, by items: [users, groups, 7], as compiled.liked_sums
    masses: Masses | None = None  # for the correction of pi at the head
    slope: NDArray[np.float32] | None = None  # inner sweeps: [items, K] the sum of 2 lambda(xi) E[u]
    walk: compiled.WalkSums | None = None  # some rows of the walk from item to item
    features: NDArray[np.float64] | None = None  # F'E[U] of the residents
    gram: Any = None  # F'F of the residents, sparse

    def take_in(self, other: Sums) -> Sums:
        """The sums over both. It may use the memory of either, which are not to be used afterwards."""
        return Sums(
            _both(self.edges, other.edges, EdgeSums.take_in),
            _both(self.users, other.users, UserGroups.merge),
            _both(self.items, other.items, ItemSums.merge),
            _both(self.liked, other.liked, added),
            _both(self.masses, other.masses, Masses.merge),
            _both(self.slope, other.slope, added),
            _both(self.walk, other.walk, lambda mine, theirs: compiled.add_walk_sums(*mine, *theirs)),
            _both(self.features, other.features, added),
            _both(self.gram, other.gram, operator.add),
        )


def _both(mine: Value | None, other: Value | None, add: Callable[[Value, Value], Value]) -> Value | None:
    return None if mine is None or other is None else add(mine, other)


@dataclass(frozen=True)
class Reply:
    """What one or more parts answer.

    Per block of residents: [the edges' part of the bound before the step, a bad row or -1, the four moments].
    """

    parts: int  # of the whole division
    blocks: dict[int, NDArray[np.float64]]  # by part: [blocks, 6]
    nodes: dict[Place, Sums]
    light: dict[int, LightEdges] = field(default_factory=dict)  # by part
    drawn: int = 0  # unliked edges that were drawn for the answer
    fallbacks: int = 0  # of them from pi, as the walk had no item left

    @classmethod
    def of(
        cls, number: int, parts: int, blocks: NDArray[np.float64], sums: Sums, light: LightEdges | None = None
    ) -> Reply:
        """The answer of one part."""
        return cls(parts, {number: blocks}, {risen(parts, (0, number)): sums}, {} if light is None else {number: light})

    def in_order(self) -> NDArray[np.float64]:
        """What is per block, in the order of the blocks."""
        return np.concatenate([self.blocks[number] for number in sorted(self.blocks)])

    def root(self) -> Sums:
        """The sums over all parts."""
        assert len(self.nodes) == 1
        assert len(self.blocks) == self.parts
        return next(iter(self.nodes.values()))

    def light_edges(self) -> LightEdges | None:
        """The edges to light items of all parts, in the order of their users; the parts' own are let go."""
        if not self.light:
            return None
        joined = LightEdges.joined([self.light[number] for number in sorted(self.light)])
        self.light.clear()
        return joined


def merge_replies(a: Reply, b: Reply) -> Reply:
    """The answers of both sets of parts. Nodes are added along the one tree, whatever the order of merging: in any
    grouping the same bits. The memory of a and b may be used again: they are not to be read afterwards."""
    nodes = dict(a.nodes)
    for place, sums in b.nodes.items():
        while (sibling := (place[0], place[1] ^ 1)) in nodes:
            other = nodes.pop(sibling)
            sums = other.take_in(sums) if place[1] % 2 else sums.take_in(other)
            place = risen(a.parts, (place[0] + 1, place[1] // 2))
        nodes[place] = sums
    counts = a.drawn + b.drawn, a.fallbacks + b.fallbacks
    return Reply(a.parts, a.blocks | b.blocks, nodes, a.light | b.light, *counts)
