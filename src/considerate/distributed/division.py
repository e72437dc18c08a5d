"""How the graph is divided: the side that stays with its parts, what a sweep sends, and the memory that this takes.

Bytes follow from the arrays that are held and sent; docs/scaling.md has the formulas in tables.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from considerate.data.graph import ITEMS, MOST_ITEM_BLOCKS, USERS, GraphOutline, block_ends, part_ranges
from considerate.distributed.assignment import Parts, assign_parts, merge_rounds, sent_nodes, tree_nodes
from considerate.distributed.options import BackendSession
from considerate.errors import MemoryLimitError
from considerate.fitting.session import closed_form_groups
from considerate.inference.hidden.consideration import BLOCK_STEPS, ENTRIES_A_LIKE, MOST_LIKES, ROOM
from considerate.inference.plan import FitPlan
from considerate.inference.posterior import padded
from considerate.inference.updates import RowClasses
from considerate.kernels import compiled

PROCESS = 2e8  # bytes of a process that has done nothing yet
REPLAYED = 5  # messages down that the head keeps, to send them again to a worker that replaces a lost one
MOST_SUMS = 1e9  # bytes of sums on a worker, where its memory is not known
SUMS_SHARE = 1 / 8  # of its memory, where it is known
WALK_ENTRY = 12  # bytes of an entry of the walk's sums: an item and a whole number


@dataclass(frozen=True)
class Division:
    """One side of the graph in parts over workers: bytes that a sweep sends, and that workers and the head hold."""

    plan: FitPlan
    users: int  # M
    items: int  # N
    edges: int  # |G|
    workers: int = 1
    threads: int = 1  # of each worker
    resident: str = USERS
    item_shards: int = 1  # by users: the items' sums come in so many calls
    light_items: int = 0  # by users: items whose edges travel in place of sums
    light_likes: int = 0  # and their likes
    weighted: bool = False  # whether likes have weights, 4 bytes each way
    known: int = 0  # considered and impossible pairs, which are with their users

    @classmethod
    def of(cls, plan: FitPlan, outline: GraphOutline, workers: int = 1, threads: int = 1, **options: Any) -> Division:
        """That of a graph, with its light items. options: further fields."""
        light = RowClasses.of_items(outline, plan.edges_per_like).is_light
        options["weighted"] = outline.weighted
        options |= {"light_items": int(light.sum()), "light_likes": int(outline.item_degree[light].sum())}
        return cls(plan, outline.user_count, outline.item_count, outline.edges, workers, threads, **options)

    @property
    def by_users(self) -> bool:
        return self.resident == USERS

    @property
    def travelling_rows(self) -> int:
        return self.items if self.by_users else self.users

    @property
    def expected(self) -> bool:
        return self.plan.hidden == "expected"

    @property
    def drawn(self) -> float:
        """Unliked edges of H that are drawn, or known."""
        return float(self.known) if self.expected else self.plan.negatives * self.edges + self.known

    @property
    def coordinate_blocks(self) -> list[int]:
        """Blocks of coordinates that a row is stepped in."""
        return compiled.coordinate_blocks(self.plan.factors)

    def blocks(self, side: str) -> int:
        """Blocks of rows, about; the data alone decides."""
        most, rows = (None, self.users) if side == USERS else (MOST_ITEM_BLOCKS, self.items)
        return min(len(block_ends(self.edges, most=most)) + 1, rows)

    @cached_property
    def parts(self) -> int:
        return len(part_ranges(self.blocks(self.resident)))

    @cached_property
    def shares(self) -> list[Parts]:
        """The parts of each worker."""
        blocks = [float(last - first) for first, last in part_ranges(self.blocks(self.resident))]
        return assign_parts(blocks, self.workers)

    @cached_property
    def most_parts(self) -> int:
        """Parts of the worker that has most."""
        return max(map(len, self.shares))

    @property
    def running(self) -> int:
        """Parts of a worker that are at work at a time."""
        return min(self.threads, self.most_parts)

    # --- Messages ---

    def side_bytes(self, side: str, rows: float) -> float:
        """Rows of a side: means and variances, each padded to a multiple of eight floats; and biases."""
        bias = self.plan.user_bias if side == USERS else self.plan.item_bias
        return rows * (2 * padded(self.plan.factors) * 4 + 8 * bias)

    def group_bytes(self, vectors: int, scalars: int) -> float:
        """Expected mode: a triangle, some vectors and some scalars of each group, in float64, by either weight."""
        K, groups = self.plan.factors, min(self.plan.groups, self.items)
        return 16.0 * groups * (K * (K + 1) // 2 + vectors * K + scalars) if self.expected else 0.0

    @property
    def table_points(self) -> int:
        """Points of the table of inclusion probabilities, from an item liked once to one that all users like."""
        return math.ceil((math.log(4e5) + math.log(max(self.users, 2))) / 0.05) + 2

    @cached_property
    def down(self) -> float:
        """Bytes to each node: the travelling side, and more of it for each further block of coordinates."""
        further, groups = len(self.coordinate_blocks) - 1, min(self.plan.groups, self.items)
        if self.by_users:
            side = self.side_bytes(ITEMS, self.items) * (1 + further)
            table = 16 * groups * self.table_points + 12 * self.items if self.expected else 0.0
            return side + self.group_bytes(2, 4) + table
        side = self.side_bytes(USERS, self.users)
        if not self.expected:
            return side * (1 + 2 * further)
        alpha, closed = 12.0 * groups * self.users, 4.0 * self.items + 8.0 * self.users
        return 2 * (side + closed + alpha) + self.group_bytes(3, 3) + further * (3 * side + 2 * closed + alpha)

    @cached_property
    def up(self) -> float:
        """Bytes of all sums: k (k + 1) / 2 + k + 2 floats a row per block of k coordinates, and sums over groups. Light
        items have none."""
        rows = self.travelling_rows - self.light_items * self.by_users
        sums = rows * 4.0 * sum(k * (k + 1) // 2 + k + 2 for k in self.coordinate_blocks)
        if self.by_users:
            return sums + self.group_bytes(3, 3)
        liked = 56.0 * min(self.plan.groups, self.items) * self.users if self.expected else 0.0
        return sums + len(self.coordinate_blocks) * (self.group_bytes(2, 4) + liked)

    @property
    def light_edges(self) -> float:
        """Edges of H to light items, where these are drawn as often as they are liked."""
        return self.light_likes * self.plan.edges_per_like * self.by_users

    @cached_property
    def up_light(self) -> float:
        """Bytes of the edges to light items and of the users at their ends, of all parts: 4 an edge, and 8 for what
        expected mode takes back from it; a user's row, and how many of its edges are liked and drawn."""
        touched = min(float(self.users), self.light_edges)
        edge, counts = (12, 4) if self.expected else (4, 8)
        return self.side_bytes(USERS, touched) + counts * touched + edge * self.light_edges

    @cached_property
    def moved_up(self) -> float:
        """Bytes that move from worker to worker and to the head: nodes of sums, and edges to light items each time."""
        nodes = sum(map(sum, sent_nodes(self.shares, self.parts)))
        held = [len(share) for share in self.shares]
        light = sum(held)
        for pairs in merge_rounds(len(held)):
            for merger, sender in pairs:
                light += held[sender]
                held[merger] += held[sender]
        return nodes * self.up + self.up_light * light / self.parts

    # --- Memory ---

    @property
    def worker_nodes(self) -> int:
        """Nodes of sums on a worker: those that threads make, that wait in the tree, and two answers being merged."""
        sent = 2 * max(tree_nodes(share, self.parts) for share in self.shares)
        return self.running + (self.running > 1) + self.most_parts.bit_length() + sent

    @property
    def worker_sums(self) -> float:
        """Bytes of sums on a worker."""
        return self.worker_nodes * self.up / self.item_shards

    def walk_bytes(self, each: int) -> float:
        """The walk's table, of `each` bytes an entry."""
        entries = min(self.items * min(self.plan.neighbours, self.items), max(ROOM, ENTRIES_A_LIKE * self.edges))
        return float(each) * entries * (self.plan.consideration == "walk")

    @property
    def worker_memory(self) -> float:
        """Bytes of a worker in a sweep: the message, sums, edges to light items, its likes both ways, its rows before
        and after a step, H, and the walk's table with an alias table for each row."""
        rows = 2 * self.side_bytes(self.resident, self._held_rows)
        light = self.up_light * (1 + (self.workers > 1))  # one worker merges those of all, which are sent to it
        walk = 0.0 if self.expected else self.walk_bytes(8 + 12)
        return PROCESS + self.down + self.worker_sums + light + self._graph_bytes + rows + self._hidden_bytes + walk

    @property
    def walk_nodes(self) -> int:
        """Nodes of the walk's sums on a worker, at most: a row's entries are known when it is done, so that a thread
        holds three, and two that are merged go into new memory."""
        return self.worker_nodes + 2 * self.running + 2

    def walk_memory(self, memory: float | None) -> float:
        """Bytes of a worker while the walk's table is made: its likes both ways, and the sums of some rows at a time.
        By users these are within the room for sums, but for a row of each node; by items a thread has its own."""
        if self.plan.consideration != "walk":
            return 0.0
        room = self.sums_room(memory) if self.by_users else WALK_ENTRY * 3.0 * BLOCK_STEPS * self.running
        sums = room + WALK_ENTRY * self.items * self.walk_nodes
        every = WALK_ENTRY * min(self.items**2, self.edges * min(self.items, MOST_LIKES)) * self.walk_nodes
        return PROCESS + self._graph_bytes + min(sums, every)

    @property
    def _held_rows(self) -> float:
        return (self.users if self.by_users else self.items) * self.most_parts / self.parts

    @property
    def _graph_bytes(self) -> float:
        """The likes of the parts in memory, both ways."""
        held = self.most_parts
        graph = ((16 if self.weighted else 8) * self.edges + 4 * self.known) * held / self.parts
        graph += 8 * self._held_rows + 8 * self.travelling_rows * held
        if not self.by_users:
            graph += 4 * self.edges + 8 * self.users  # the likes of all users
        return graph

    @property
    def _hidden_bytes(self) -> float:
        """H of the parts at work and of those that wait for the next call, or what stands for it."""
        part, running, held = 1 / self.parts, self.running, self.most_parts
        waiting = held if self.item_shards * len(self.coordinate_blocks) > 1 else running
        closed = 0.0
        if self.plan.opens_closed and self.by_users:
            alpha = 12.0 * closed_form_groups(self.plan, self.items)[0] * self.users
            closed = (8 * self.users * held + alpha * waiting) * part
        if self.expected:
            return closed
        turned = 8 * self.travelling_rows  # where each row begins
        if self.by_users:
            return max(closed, 4 * self.drawn * part * (running + waiting) + turned * waiting)
        # All users' rows: as drawn, by item, and by item of the sweep before; and of a part at work by user again.
        return 12 * self.drawn + 8 * self.users + running * (4 * self.drawn * part + turned)

    @property
    def head_memory(self) -> float:
        """Bytes of the head: the travelling side, messages kept for a replay, two nodes of sums, the edges to light
        items as they came, put together and by item, 48 bytes an item, and the walk's table, twice while it is put
        together and sent."""
        messages = (REPLAYED + 2) * self.down
        light = 2 * self.up_light + 12 * self.light_edges
        sums = 2 * self.up / self.item_shards
        return PROCESS + messages + sums + light + 48 * self.items + self.walk_bytes(2 * 8)

    def with_shards(self, memory: float | None) -> Division:
        """The same with the fewest item shards that keep a worker's sums within bounds; a shard is a block at least."""
        if not self.by_users:
            return self
        shards = math.ceil(replace(self, item_shards=1).worker_sums / self.sums_room(memory))
        return replace(self, item_shards=min(max(1, shards), self.blocks(ITEMS)))

    @staticmethod
    def sums_room(memory: float | None) -> float:
        """Bytes that a worker's sums may take: those of a sweep, or before the first sweep those of the walk."""
        return MOST_SUMS if memory is None else SUMS_SHARE * memory

    def fits(self, memory: float | None) -> bool:
        """Whether workers, and the head, get by with so many bytes each; None is not checked."""
        return memory is None or all(needed <= memory for needed, _ in self.needed(memory))

    def needed(self, memory: float) -> list[tuple[float, str]]:
        """(bytes, where) of what is needed where there are so many bytes."""
        worker = max(self.worker_memory, self.walk_memory(memory))
        return [(worker, " per worker"), (self.head_memory, " at the head")]

    def check(self, memory: float | None) -> None:
        """MemoryLimitError with what is needed, what there is, and what would fit."""
        if memory is None or self.fits(memory):
            return
        needed, where = next((needed, where) for needed, where in self.needed(memory) if needed > memory)
        other = ITEMS if self.by_users else USERS
        more = range(self.workers + 1, self.most_workers + 1)
        enough = bisect_left(more, True, key=lambda workers: self._resized(memory, workers=workers))
        fewer = (k for k in range(8 * ((self.plan.factors - 1) // 8), 0, -8) if self._resized(memory, factors=k))
        would = "machines with more memory are needed"
        if replace(self, resident=other, item_shards=1).with_shards(memory).fits(memory):
            would = f"a division by {other} would fit"
        elif enough < len(more):
            would = f"{more[enough]} workers would fit"
        elif (factors := next(fewer, None)) is not None:
            would = f"factors={factors} would fit"
        raise MemoryLimitError(
            f"Divided by {self.resident} {self.over} this fit needs about {bytes_text(needed)}{where} and "
            f"{bytes_text(memory)} are free; {would}."
        )

    @property
    def most_workers(self) -> int:
        return self.parts

    @property
    def over(self) -> str:
        return f"over {count_of(self.workers, 'worker')}"

    def _resized(self, memory: float, workers: int | None = None, factors: int | None = None) -> bool:
        plan = self.plan if factors is None else replace(self.plan, factors=factors)
        return replace(self, plan=plan, workers=workers or self.workers).with_shards(memory).fits(memory)

    def text(self) -> str:
        """One line, said before the fit: how the graph is divided, and what a sweep sends."""
        shards = f" The items' sums come in {self.item_shards} shards." if self.item_shards > 1 else ""
        light = f" and {bytes_text(self.up_light)} of edges of items of few likes" if self.up_light else ""
        return (
            f"Divided by {self.resident} over {count_of(min(self.workers, self.parts), 'worker')} "
            f"({count_of(self.parts, 'part')}): a sweep sends {bytes_text(self.down)} to each node and "
            f"{bytes_text(self.up)} of sums{light} up a tree of workers; about {bytes_text(self.worker_memory)} per "
            f"worker and {bytes_text(self.head_memory)} at the head.{shards}"
        )


def plan_division(
    plan: FitPlan,
    outline: GraphOutline,
    session: BackendSession,
    resident: str | None,
    item_shards: int | None,
    kind: type[Division] = Division,
    known: int = 0,
) -> Division:
    """The division of a fit: by users unless items are asked for, in as many item shards as memory needs."""
    division = kind.of(plan, outline, session.workers, session.threads, resident=resident or USERS, known=known)
    division = (
        division.with_shards(session.memory) if item_shards is None else replace(division, item_shards=item_shards)
    )
    division.check(session.memory)
    return division


def count_of(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def bytes_text(size: float) -> str:
    """Bytes with two digits: 0.62 MB, 14 GB."""
    unit, scale = next(((unit, scale) for unit, scale in _UNITS if size >= 0.1 * scale), _UNITS[-1])
    return f"{size / scale:.0f} {unit}" if size >= 10 * scale else f"{size / scale:.2g} {unit}"


_UNITS = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
