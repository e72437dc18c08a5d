"""Messages between the head and the parts of a divided graph (eq. 21).

Down goes the travelling side before its step, with constants. Up come natural-gradient sums as nodes of the fixed tree
over parts, the edges of light items, and numbers per block. Messages are dataclasses of arrays: they may arrive
read-only, and nobody writes to them.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import USERS, GraphOutline, Range, part_ranges
from considerate.distributed.assignment import Place, risen
from considerate.distributed.light import LightEdges
from considerate.inference.features import FeatureWeights
from considerate.inference.hidden import Draws, Inclusion, ItemGroups, ItemSums, Masses, Shares, UserGroups
from considerate.inference.plan import FitPlan
from considerate.inference.posterior import Side
from considerate.inference.sums import EdgeSums
from considerate.inference.updates import RowClasses
from considerate.kernels import compiled
from considerate.kernels.arrays import add_in_order, added

Value = TypeVar("Value")
HiddenForm = Draws | Inclusion | None  # form of q(H) over pi, the same for a whole fit; None: H is given


@dataclass(frozen=True)
class PartitionSetup:
    """Constants of all parts."""

    plan: FitPlan
    parts: int
    user_count: int
    item_count: int
    resident: str = USERS  # the side that lives with the parts
    out_of_core: bool = False  # parts are loaded one at a time, so they share no results
    items: RowClasses | None = None  # by users: classes of items by how they are summed

    @classmethod
    def of(
        cls, outline: GraphOutline, plan: FitPlan, resident: str = USERS, out_of_core: bool = False
    ) -> PartitionSetup:
        parts = len(part_ranges(len(outline.blocks_of(resident)) - 1))
        items = RowClasses.of_items(outline, plan.edges_per_like) if resident == USERS else None
        return cls(plan, parts, outline.user_count, outline.item_count, resident, out_of_core, items)

    @property
    def by_users(self) -> bool:
        return self.resident == USERS

    @property
    def travelling_rows(self) -> int:
        return self.item_count if self.by_users else self.user_count


class SharedCache:
    """Results that all parts of one process share, made by the first that asks. It does not travel."""

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
    """Message of one sweep to all parts."""

    sweep: int
    other: Side  # the travelling side, whole
    epsilon: float = 1.0
    tau: float = 1.0  # E[tau] of the residents' vectors
    tau_bias: float = 1.0  # E[tau] of the residents' biases
    closed: ItemGroups | ClosedForm | None = None  # closed form of q(H): groups to parts of users, or to parts of items
    weights: FeatureWeights | None = None  # means of the feature weights of resident users
    once: SharedCache = field(default_factory=SharedCache, compare=False)


@dataclass(frozen=True)
class ClosedForm:
    """Closed form of q(H) as parts of items read it."""

    group_of_item: NDArray[np.int32]  # [items], of all items
    groups: int
    temperature: NDArray[np.float64]  # [users]
    shares: Shares | None = None  # of all users, once alpha is known
    users: UserGroups | None = None  # sums over users, once these are stepped


@dataclass(frozen=True)
class SumsRequest:
    """Request for sums: rows first .. last - 1 of the travelling side but light ones, and one block of coordinates."""

    first: int
    last: int
    block: int = 0
    keep: bool = False  # whether a later call reads the same H

    @property
    def range(self) -> Range:
        return self.first, self.last

    @property
    def rows(self) -> slice:
        return slice(self.first, self.last)


@dataclass(frozen=True)
class Sums:
    """Sums over some parts for the travelling side: a node of the tree over parts."""

    edges: EdgeSums | None = None
    users: UserGroups | None = None  # by users: sums over the users by group of item
    items: ItemSums | None = None  # by items: sums over the items by group
    liked: NDArray[np.float64] | None = None  # by items: [users, groups, 7], see compiled.liked_sums
    masses: Masses | None = None  # for the correction of pi
    message: dict[str, NDArray[Any]] | None = None  # inner sweeps: see runners.inner
    walk: compiled.WalkSums | None = None  # some rows of the walk from item to item
    features: NDArray[np.float64] | None = None  # F'E[U] of the residents
    gram: Any = None  # F'F of the residents, sparse

    def take_in(self, other: Sums) -> Sums:
        """Sums over both. Neither may be used afterwards, as their memory is used again."""
        return Sums(*(_both(add, getattr(self, name), getattr(other, name)) for name, add in ADDITIONS.items()))


ADDITIONS: dict[str, Callable[[Any, Any], Any]] = {
    "edges": EdgeSums.take_in,
    "users": UserGroups.merge,
    "items": ItemSums.merge,
    "liked": added,
    "masses": Masses.merge,
    "message": lambda mine, theirs: {name: added(array, theirs[name]) for name, array in mine.items()},
    "walk": lambda mine, theirs: compiled.add_walk_sums(*mine, *theirs),
    "features": added,
    "gram": operator.add,
}  # of each field of Sums, in order


def _both(add: Callable[[Any, Any], Any], mine: Any, other: Any) -> Any:
    return None if mine is None or other is None else add(mine, other)


@dataclass(frozen=True)
class Reply:
    """Reply of one or more parts.

    Numbers per block of residents: [the edges' part of the bound before the step, a bad row or -1, the four moments].
    """

    parts: int  # in the whole division
    blocks: dict[int, NDArray[np.float64]]  # by part: [blocks, 6]
    nodes: dict[Place, Sums]
    light: dict[int, LightEdges] = field(default_factory=dict)  # by part
    drawn: int = 0  # unliked edges drawn for the reply
    fallbacks: int = 0  # of them drawn from pi, as the walk had no item left

    @classmethod
    def of(
        cls, number: int, parts: int, blocks: NDArray[np.float64], sums: Sums, light: LightEdges | None = None
    ) -> Reply:
        """Reply of one part."""
        return cls(parts, {number: blocks}, {risen(parts, (0, number)): sums}, {} if light is None else {number: light})

    def in_order(self) -> NDArray[np.float64]:
        """Numbers of all blocks, in order."""
        return np.concatenate([self.blocks[number] for number in sorted(self.blocks)])

    def root(self) -> Sums:
        """Sums over all parts."""
        assert len(self.nodes) == 1
        assert len(self.blocks) == self.parts
        return next(iter(self.nodes.values()))

    def edges(self) -> EdgeSums:
        """Sums over the edges of all parts."""
        edges = self.root().edges
        assert edges is not None
        return edges

    def bound(self) -> float:
        """Edges' part of the bound, added in the order of the blocks."""
        return add_in_order(self.in_order()[:, 0].tolist())

    def light_edges(self) -> LightEdges | None:
        """Edges to light items of all parts, in the order of users; the parts' own are freed."""
        if not self.light:
            return None
        joined = LightEdges.joined([self.light[number] for number in sorted(self.light)])
        self.light.clear()
        return joined


def merge_replies(a: Reply, b: Reply) -> Reply:
    """Merge the replies of two sets of parts. Nodes are added along the fixed tree, so any order of merging gives the
    same bits. Neither reply may be read afterwards, as their memory is used again."""
    nodes = dict(a.nodes)
    for place, sums in b.nodes.items():
        while (sibling := (place[0], place[1] ^ 1)) in nodes:
            other = nodes.pop(sibling)
            sums = other.take_in(sums) if place[1] % 2 else sums.take_in(other)
            place = risen(a.parts, (place[0] + 1, place[1] // 2))
        nodes[place] = sums
    counts = a.drawn + b.drawn, a.fallbacks + b.fallbacks
    return Reply(a.parts, a.blocks | b.blocks, nodes, a.light | b.light, *counts)
