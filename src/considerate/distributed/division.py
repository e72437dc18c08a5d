"""Size of a division: bytes that a sweep sends, and memory of the workers and the head.

Bytes are those of the arrays that are held and sent; docs/scaling.md has them in tables.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from considerate.data.graph import ITEMS, MOST_ITEM_BLOCKS, USERS, GraphOutline, block_ends, part_ranges
from considerate.distributed.assignment import Parts, assign_parts, tree_nodes
from considerate.distributed.options import BackendSession
from considerate.errors import MemoryLimitError
from considerate.fitting.session import closed_form_groups
from considerate.inference.hidden.consideration import BLOCK_STEPS, ENTRIES_A_LIKE, MOST_LIKES, ROOM
from considerate.inference.plan import FitPlan
from considerate.inference.posterior import padded
from considerate.inference.updates import RowClasses
from considerate.kernels import compiled

PROCESS = 2e8  # bytes of an idle process
REPLAYED = 5  # broadcasts that the head keeps for a worker that replaces a lost one
MOST_SUMS = 1e9  # bytes of sums on a worker of unknown memory
SUMS_SHARE = 1 / 8  # of a worker's known memory
WALK_ENTRY = 12  # bytes of an entry of the walk's sums: an item and a whole number
OTHER = {USERS: ITEMS, ITEMS: USERS}


@dataclass(frozen=True)
class Division:
    """One side of the graph in parts over workers."""

    plan: FitPlan
    users: int  # M
    items: int  # N
    edges: int  # |G|
    workers: int = 1
    threads: int = 1  # of each worker
    resident: str = USERS
    item_shards: int = 1  # by users: calls in which the items' sums come
    light_items: int = 0  # by users: items whose edges travel in place of sums
    light_likes: int = 0  # their likes
    weighted: bool = False  # likes have weights, 4 bytes each way
    known: int = 0  # considered and impossible pairs, which are with their users

    @classmethod
    def of(cls, plan: FitPlan, outline: GraphOutline, workers: int = 1, threads: int = 1, **options: Any) -> Division:
        """Division of a graph, with its light items. options: further fields."""
        light = RowClasses.of_items(outline, plan.edges_per_like).is_light
        options["weighted"] = outline.weighted
        options |= {"light_items": int(light.sum()), "light_likes": int(outline.item_degree[light].sum())}
        return cls(plan, outline.user_count, outline.item_count, outline.edges, workers, threads, **options)

    # --- Sizes ---

    @property
    def by_users(self) -> bool:
        return self.resident == USERS

    def rows(self, side: str) -> int:
        return {USERS: self.users, ITEMS: self.items}[side]

    @property
    def travelling_rows(self) -> int:
        return self.rows(OTHER[self.resident])

    @property
    def expected(self) -> bool:
        return self.plan.hidden == "expected"

    @property
    def groups(self) -> int:
        return min(self.plan.groups, self.items)

    @property
    def drawn(self) -> float:
        """Unliked edges of H: drawn or known."""
        return float(self.known) if self.expected else self.plan.negatives * self.edges + self.known

    @property
    def coordinate_blocks(self) -> list[int]:
        """Sizes of the blocks of coordinates that a row is stepped in."""
        return compiled.coordinate_blocks(self.plan.factors)

    def blocks(self, side: str) -> int:
        """Number of blocks of rows, about."""
        most = {USERS: None, ITEMS: MOST_ITEM_BLOCKS}[side]
        return min(len(block_ends(self.edges, most=most)) + 1, self.rows(side))

    @cached_property
    def parts(self) -> int:
        return len(part_ranges(self.blocks(self.resident)))

    @cached_property
    def shares(self) -> list[Parts]:
        """Parts of each worker."""
        blocks = [float(last - first) for first, last in part_ranges(self.blocks(self.resident))]
        return assign_parts(blocks, self.workers)

    @cached_property
    def most_parts(self) -> int:
        """Parts of the worker with most parts."""
        return max(map(len, self.shares))

    @property
    def running(self) -> int:
        """Parts of a worker that run at a time."""
        return min(self.threads, self.most_parts)

    @property
    def held_rows(self) -> float:
        """Residents of a worker."""
        return self.rows(self.resident) * self.most_parts / self.parts

    # --- Messages ---

    def side_bytes(self, side: str, rows: float) -> float:
        """Bytes of rows: means and variances, each padded to a multiple of eight floats, and biases."""
        bias = {USERS: self.plan.user_bias, ITEMS: self.plan.item_bias}[side]
        return rows * (2 * padded(self.plan.factors) * 4 + 8 * bias)

    def group_bytes(self, vectors: int, scalars: int) -> float:
        """Bytes of sums by group in the closed form, in float64 with two weights: a triangle, vectors and scalars."""
        K = self.plan.factors
        return 16.0 * self.groups * (K * (K + 1) // 2 + vectors * K + scalars) * self.expected

    @property
    def table_points(self) -> int:
        """Points of the table of inclusion probabilities, from an item with one like to one that all users like."""
        return math.ceil((math.log(4e5) + math.log(max(self.users, 2))) / 0.05) + 2

    @cached_property
    def down(self) -> float:
        """Bytes to each node: the travelling side, and more of it for each further block of coordinates."""
        side = self.side_bytes(OTHER[self.resident], self.travelling_rows)
        further = len(self.coordinate_blocks) - 1
        if self.by_users:
            table = 16 * self.groups * self.table_points + 12 * self.items
            return side * (1 + further) + self.group_bytes(2, 4) + table * self.expected
        alpha, closed = 12.0 * self.groups * self.users, 4.0 * self.items + 8.0 * self.users
        if not self.expected:
            return side * (1 + 2 * further)
        return 2 * (side + closed + alpha) + self.group_bytes(3, 3) + further * (3 * side + 2 * closed + alpha)

    @cached_property
    def up(self) -> float:
        """Bytes of a node of sums: k (k + 1) / 2 + k + 2 floats a row for each block of k coordinates, and sums by
        group. Light items have none."""
        rows = self.travelling_rows - self.by_users * self.light_items
        edges = rows * 4.0 * sum(k * (k + 1) // 2 + k + 2 for k in self.coordinate_blocks)
        if self.by_users:
            return edges + self.group_bytes(3, 3)
        liked = 56.0 * self.groups * self.users * self.expected
        return edges + len(self.coordinate_blocks) * (self.group_bytes(2, 4) + liked)

    @property
    def light_edges(self) -> float:
        """Edges of H to light items, if they are drawn as often as liked."""
        return self.light_likes * self.plan.edges_per_like * self.by_users

    @cached_property
    def up_light(self) -> float:
        """Bytes of light items' edges and their users, of all parts: 4 an edge, and 8 more for corrections in the
        closed form; a user's row, and counts of liked and drawn edges."""
        touched = min(float(self.users), self.light_edges)
        edge, counts = (12, 4) if self.expected else (4, 8)
        return self.side_bytes(USERS, touched) + counts * touched + edge * self.light_edges

    # --- Memory ---

    @property
    def worker_nodes(self) -> int:
        """Nodes of sums on a worker: made by threads, waiting in the tree, and two replies being merged."""
        sent = 2 * max(tree_nodes(share, self.parts) for share in self.shares)
        return self.running + (self.running > 1) + self.most_parts.bit_length() + sent

    @property
    def worker_sums(self) -> float:
        """Bytes of sums on a worker."""
        return self.worker_nodes * self.up / self.item_shards

    def walk_bytes(self, each: int) -> float:
        """Bytes of the walk's table, with `each` bytes an entry."""
        entries = min(self.items * min(self.plan.neighbours, self.items), max(ROOM, ENTRIES_A_LIKE * self.edges))
        return float(each) * entries * (self.plan.consideration == "walk")

    @property
    def worker_memory(self) -> float:
        """Bytes of a worker in a sweep: the broadcast, sums, light items' edges, its likes both ways, its rows before
        and after a step, H, and the walk's table with an alias table for each row."""
        rows = 2 * self.side_bytes(self.resident, self.held_rows)
        light = self.up_light * (1 + (self.workers > 1))  # one worker merges the edges of all
        walk = 0.0 if self.expected else self.walk_bytes(8 + 12)
        return PROCESS + self.down + self.worker_sums + light + self.graph_bytes + rows + self._hidden_bytes + walk

    @property
    def walk_nodes(self) -> int:
        """Most nodes of the walk's sums on a worker. The size of a row is known when it is done, so a thread holds
        three, and a merge of two uses new memory."""
        return self.worker_nodes + 2 * self.running + 2

    def walk_memory(self, memory: float | None) -> float:
        """Bytes of a worker while the walk's table is made: its likes both ways, and the sums of some rows."""
        if self.plan.consideration != "walk":
            return 0.0
        room = self.sums_room(memory) if self.by_users else WALK_ENTRY * 3.0 * BLOCK_STEPS * self.running
        sums = room + WALK_ENTRY * self.items * self.walk_nodes  # a row of each node may exceed the room
        every = WALK_ENTRY * min(self.items**2, self.edges * min(self.items, MOST_LIKES)) * self.walk_nodes
        return PROCESS + self.graph_bytes + min(sums, every)

    @property
    def graph_bytes(self) -> float:
        """Bytes of a worker's likes, both ways."""
        pairs = (16 if self.weighted else 8) * self.edges + 4 * self.known
        starts = 8 * self.held_rows + 8 * self.travelling_rows * self.most_parts
        all_users = 0 if self.by_users else 4 * self.edges + 8 * self.users
        return pairs * self.most_parts / self.parts + starts + all_users

    @property
    def _hidden_bytes(self) -> float:
        """Bytes of H on a worker, or of its closed form: of the parts that run, and of those that keep it for a further
        call. By items, H of all users as drawn, by item, and by item of the sweep before."""
        closed, edges, starts = 0.0, 4 * self.drawn / self.parts, 8 * self.travelling_rows
        if not self.by_users:
            return 0.0 if self.expected else 12 * self.drawn + 8 * self.users + self.running * (edges + starts)
        kept = self.most_parts if self.item_shards * len(self.coordinate_blocks) > 1 else self.running
        if self.plan.opens_closed:
            shares = 12.0 * closed_form_groups(self.plan, self.items)[0] * kept
            closed = (8 * self.most_parts + shares) * self.users / self.parts
        return closed if self.expected else max(closed, edges * (self.running + kept) + starts * kept)

    @property
    def head_memory(self) -> float:
        """Bytes of the head: the travelling side, broadcasts kept for a replay, two nodes of sums, light items' edges
        as sent, joined and by item, 48 bytes an item, and twice the walk's table while it is joined and sent."""
        messages = (REPLAYED + 2) * self.down
        light = 2 * self.up_light + 12 * self.light_edges
        sums = 2 * self.up / self.item_shards
        return PROCESS + messages + sums + light + 48 * self.items + self.walk_bytes(2 * 8)

    def with_shards(self, memory: float | None) -> Division:
        """The division with the fewest item shards, of a block at least, that keep a worker's sums within bounds."""
        if not self.by_users:
            return self
        shards = math.ceil(replace(self, item_shards=1).worker_sums / self.sums_room(memory))
        return replace(self, item_shards=min(max(1, shards), self.blocks(ITEMS)))

    @staticmethod
    def sums_room(memory: float | None) -> float:
        """Bytes that a worker's sums may take, in a sweep or for the walk."""
        return MOST_SUMS if memory is None else SUMS_SHARE * memory

    # --- Checks ---

    def needed(self, memory: float) -> list[tuple[float, str]]:
        """(bytes, place) of the memory that is needed, given the memory that there is."""
        worker = max(self.worker_memory, self.walk_memory(memory))
        return [(worker, " per worker"), (self.head_memory, " at the head")]

    def fits(self, memory: float | None) -> bool:
        """True if workers and the head each need at most `memory` bytes; None is unlimited."""
        return memory is None or all(needed <= memory for needed, _ in self.needed(memory))

    def check(self, memory: float | None) -> None:
        """Raise MemoryLimitError with the needed and the free memory, and a division that would fit."""
        if memory is None or self.fits(memory):
            return
        needed, where = next((needed, where) for needed, where in self.needed(memory) if needed > memory)
        more = range(self.workers + 1, self.most_workers + 1)
        enough = bisect_left(more, True, key=lambda workers: self._fits_as(memory, workers=workers))
        fewer = range(8 * ((self.plan.factors - 1) // 8), 0, -8)
        factors = next((k for k in fewer if self._fits_as(memory, plan=replace(self.plan, factors=k))), None)
        would = "machines with more memory are needed"
        if self._fits_as(memory, resident=OTHER[self.resident], item_shards=1):
            would = f"a division by {OTHER[self.resident]} would fit"
        elif enough < len(more):
            would = f"{more[enough]} workers would fit"
        elif factors is not None:
            would = f"factors={factors} would fit"
        raise MemoryLimitError(
            f"Divided by {self.resident} {self.place} this fit needs about {bytes_text(needed)}{where} and "
            f"{bytes_text(memory)} are free; {would}."
        )

    def _fits_as(self, memory: float, **changes: Any) -> bool:
        return replace(self, **changes).with_shards(memory).fits(memory)

    @property
    def most_workers(self) -> int:
        return self.parts

    @property
    def place(self) -> str:
        return f"over {count_of(self.workers, 'worker')}"

    def text(self) -> str:
        """Line before the fit: the division, and the bytes of a sweep."""
        light = f" and {bytes_text(self.up_light)} of edges of items of few likes" if self.up_light else ""
        return (
            f"Divided by {self.resident} over {count_of(min(self.workers, self.parts), 'worker')} "
            f"({count_of(self.parts, 'part')}): a sweep sends {bytes_text(self.down)} to each node and "
            f"{bytes_text(self.up)} of sums{light} up a tree of workers; about {bytes_text(self.worker_memory)} per "
            f"worker and {bytes_text(self.head_memory)} at the head.{self._shards_text()}"
        )

    def _shards_text(self) -> str:
        return f" The items' sums come in {self.item_shards} shards." if self.item_shards > 1 else ""


def plan_division(
    plan: FitPlan,
    outline: GraphOutline,
    session: BackendSession,
    resident: str | None,
    item_shards: int | None,
    kind: type[Division] = Division,
    known: int = 0,
) -> Division:
    """Division of a fit, by users by default, with as many item shards as memory needs; checks the memory."""
    division = kind.of(plan, outline, session.workers, session.threads, resident=resident or USERS, known=known)
    if item_shards is None:
        division = division.with_shards(session.memory)
    else:
        division = replace(division, item_shards=item_shards)
    division.check(session.memory)
    return division


def count_of(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def bytes_text(size: float) -> str:
    """Bytes with two digits: 0.62 MB, 14 GB."""
    unit, scale = next(((unit, scale) for unit, scale in _UNITS if size >= 0.1 * scale), _UNITS[-1])
    return f"{size / scale:.0f} {unit}" if size >= 10 * scale else f"{size / scale:.2g} {unit}"


_UNITS = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
