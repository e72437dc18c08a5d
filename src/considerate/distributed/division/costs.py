"""One division on one cluster: what a sweep takes, what is sent, what is held."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from considerate.data.graph import ITEMS, USERS, Range
from considerate.data.pieces import MOST_SHARDS, PIECE_BYTES
from considerate.distributed.division.sizes import Sizes

BANDWIDTH = 1.25e9  # bytes a second of a machine's link: 10 Gbit/s
LOCAL_BANDWIDTH = 2e9  # bytes a second from process to process of one machine, by its object store
LATENCY = 2e-3  # seconds of a call or a transfer, however small
ADD_NS = 1.0  # of a float of a part's sums: written, and added to those of the part beside it
KEPT = 5  # messages down that the head keeps, to give them again to a worker that replaces a lost one
PROCESS = 2e8  # bytes of a process that has done nothing yet
PARQUET = 5  # bytes of a like on disk


@dataclass(frozen=True)
class Cluster:
    """Where it runs."""

    workers: int
    threads: int = 1  # of each worker
    nodes: int = 1  # machines that have workers
    bandwidth: float = BANDWIDTH
    latency: float = LATENCY
    alone: bool = False  # out of core: one process, parts on its disk, as many in memory as there are threads

    def shares(self, parts: int) -> list[Range]:
        """The parts of each worker, consecutive, as a crew deals them out."""
        cuts = np.linspace(0, parts, min(self.workers, parts) + 1).round().astype(int).tolist()
        return list(itertools.pairwise(cuts))


def tree_nodes(first: int, last: int, parts: int) -> int:
    """Nodes of the tree over parts that parts first .. last - 1 make up: what they cannot merge among themselves."""
    found = 0
    while first < last:
        size = first & -first or 1 << parts.bit_length()
        while min(first + size, parts) > last:
            size //= 2
        first, found = first + size, found + 1
    return found


def tree_moves(shares: list[Range], parts: int) -> tuple[int, int, int]:
    """(nodes that move in all, those that move one after the other, steps) where pairs of workers merge their answers,
    then pairs of pairs, and the last goes to the head."""
    moved = path = steps = 0
    level = shares
    while len(level) > 1:
        pairs = list(zip(level[::2], level[1::2]))
        sizes = [tree_nodes(*right, parts) for _, right in pairs]
        moved, path, steps = moved + sum(sizes), path + max(sizes), steps + 1
        level = [(left[0], right[1]) for left, right in pairs] + level[2 * len(pairs) :]
    return moved + 1, path + 1, steps + 1


@dataclass(frozen=True)
class Costs:
    """A division: what a sweep of it takes and what it holds."""

    resident: str
    item_shards: int
    parts: int
    workers: int  # that have a part
    edge_sums: float  # edges summed over, for both sides
    solves: int
    draws: float  # unliked edges drawn, by all workers together
    compute: float  # seconds of the slowest worker
    head: float  # seconds of the head
    network: float  # seconds
    down: float  # bytes to each node
    up: float  # bytes of sums that reach the head
    moved_down: float  # bytes to all nodes
    moved_up: float  # bytes from worker to worker and to the head
    disk: float  # bytes read and written, out of core
    worker_sums: float  # bytes of sums on a worker, of its memory
    worker_memory: float
    head_memory: float
    reading_memory: float  # bytes of a worker while the data is read

    @property
    def seconds(self) -> float:
        """Of a sweep."""
        return self.compute + self.head + self.network


def division_costs(sizes: Sizes, cluster: Cluster, resident: str, item_shards: int = 1) -> Costs:
    """What a sweep costs where one side is resident and the other travels."""
    one = _Division(sizes, cluster, resident, item_shards)
    moved, path, steps = tree_moves(one.shares, one.parts)
    bandwidth = LOCAL_BANDWIDTH if cluster.nodes == 1 else cluster.bandwidth
    network = (one.down * cluster.nodes + one.up * path) / bandwidth + one.calls * (steps + 1) * cluster.latency
    return Costs(
        resident=resident,
        item_shards=item_shards,
        parts=one.parts,
        workers=len(one.shares),
        edge_sums=2 * (sizes.edges + sizes.drawn),
        solves=sizes.users + sizes.items,
        draws=sizes.drawn * one.drawings,
        compute=one.compute(),
        head=one.head(),
        network=0.0 if cluster.alone else network,
        down=one.down,
        up=one.up,
        moved_down=0.0 if cluster.alone else one.down * cluster.nodes,
        moved_up=0.0 if cluster.alone else one.up * moved,
        disk=one.disk() if cluster.alone else 0.0,
        worker_sums=one.sums(),
        worker_memory=PROCESS + one.down + one.sums() + one.graph() + one.hidden(),
        head_memory=PROCESS
        + (2 if cluster.alone else KEPT + 2) * one.down
        + 2 * one.up / item_shards
        + 48 * sizes.items,
        reading_memory=PROCESS + one.reading(),
    )


@dataclass(frozen=True)
class _Division:
    """The arithmetic of one division."""

    sizes: Sizes
    cluster: Cluster
    resident: str
    item_shards: int

    @property
    def by_users(self) -> bool:
        return self.resident == USERS

    @property
    def other(self) -> str:
        """The side that travels."""
        return ITEMS if self.by_users else USERS

    @cached_property
    def parts(self) -> int:
        return self.sizes.parts(self.resident)

    @cached_property
    def shares(self) -> list[Range]:
        return self.cluster.shares(self.parts)

    @cached_property
    def most(self) -> int:
        """Parts of the worker that has most."""
        return max(last - first for first, last in self.shares)

    @property
    def running(self) -> int:
        """Of these, at work at a time."""
        return min(self.cluster.threads, self.most)

    @property
    def held(self) -> int:
        """Of these, in memory at a time."""
        return self.running if self.cluster.alone else self.most

    @property
    def blocks(self) -> int:
        return len(self.sizes.coordinates)

    @property
    def calls(self) -> int:
        """Calls to the parts. By items alpha needs one of its own in expected mode."""
        return self.blocks * (self.item_shards if self.by_users else 1 + self.sizes.expected)

    @property
    def drawings(self) -> int:
        """How often each unliked edge is drawn. By items every worker draws for everyone. A part that was not kept in
        memory draws again: in every call, or by items for both of its steps."""
        if self.by_users:
            return self.calls if self.cluster.alone else 1
        return 2 * self.parts * self.blocks if self.cluster.alone else len(self.shares)

    # --- Messages ---

    @cached_property
    def down(self) -> float:
        """The side that travels, and more of it for each further block of coordinates."""
        sizes, further = self.sizes, self.blocks - 1
        side = sizes.side_bytes(self.other, sizes.rows(self.other))
        if self.by_users:
            return side * (1 + further) + sizes.item_groups_bytes()
        if not sizes.expected:
            return side * (1 + 2 * further)
        closed = sizes.closed_bytes()
        return (2 * side + 2 * closed + sizes.alpha_bytes() * 2 + sizes.user_groups_bytes()) + further * (
            3 * side + 2 * closed + sizes.alpha_bytes()
        )

    @cached_property
    def up(self) -> float:
        """Its sums: one node of the tree."""
        sums = self.sizes.sums_bytes(self.sizes.rows(self.other))
        if self.by_users:
            return sums + self.sizes.user_groups_bytes()
        return sums + self.blocks * (self.sizes.item_sums_bytes() + self.sizes.liked_bytes())

    # --- Seconds ---

    def compute(self) -> float:
        """Of the slowest worker. Its threads take its parts one after the other."""
        sizes = self.sizes
        work = 2 * (sizes.edges + sizes.drawn) * sizes.edge_ns() + sizes.rows(self.resident) * sizes.solve_ns()
        drawing, alone = sizes.drawn * sizes.draw_ns(), 0.0
        if self.by_users:
            work += drawing * self.drawings + sizes.users * sizes.groups_ns()
        elif self.cluster.alone:
            work += drawing * self.drawings
        else:
            alone = drawing  # one thread of each worker, before the others
        part = work / self.parts + ADD_NS * self.up / 4
        return 1e-9 * (math.ceil(self.most / self.cluster.threads) * part + alone)

    def head(self) -> float:
        sizes = self.sizes
        groups = 0.0 if self.by_users else sizes.users * sizes.groups_ns()
        return 1e-9 * (sizes.rows(self.other) * sizes.solve_ns() + groups) / self.cluster.threads

    # --- Memory ---

    def graph(self) -> float:
        """Likes by user and by item, and the residents before and after a step."""
        sizes, share = self.sizes, self.held / self.parts
        rows = sizes.rows(self.resident) * share
        likes = 8 * sizes.edges * share + 8 * rows + 8 * sizes.rows(self.other) * self.held
        all_user_likes = 0.0 if self.by_users or self.cluster.alone else 4 * sizes.edges + 8 * sizes.users
        return likes + all_user_likes + 2 * sizes.side_bytes(self.resident, rows)

    def hidden(self) -> float:
        """H, or what stands for it."""
        sizes, part = self.sizes, 1 / self.parts
        if sizes.expected:
            # By users: temperatures, and alpha and l of the parts that are at work or wait for the next call.
            waiting = self.running if self.calls == 1 or self.cluster.alone else self.most
            return (8 * sizes.users * self.held + sizes.alpha_bytes() * waiting) * part if self.by_users else 0.0
        turned = 8 * sizes.rows(self.other)  # where each row begins
        if self.by_users:
            waiting = self.running if self.calls == 1 or self.cluster.alone else self.most
            return 4 * sizes.drawn * part * (self.running + waiting) + turned * waiting
        if self.cluster.alone:
            return self.running * (8 * sizes.drawn * part + turned)
        # Everyone's: as drawn, by item, and by item of the sweep before; and of a part at work by user again.
        return 12 * sizes.drawn + 8 * sizes.users + self.running * (4 * sizes.drawn * part + turned)

    def sums(self) -> float:
        """Nodes of sums: those that threads make, answers that wait, the tree's that wait for others, and those of an
        answer that is sent and of another that is merged with it."""
        waiting = self.running > 1
        sent = 0 if self.cluster.alone else 2 * max(tree_nodes(*share, self.parts) for share in self.shares)
        return (self.running + waiting + self.most.bit_length() + sent) * self.up / self.item_shards

    def reading(self) -> float:
        """While the likes of pieces become those of shards of users: three copies of all likes in the object stores, or
        on disk, and as many shards being sorted as there are threads."""
        sizes, workers = self.sizes, self.cluster.workers
        shards = min(max(1, math.ceil(PARQUET * sizes.edges / PIECE_BYTES)), MOST_SHARDS)
        sorting = min(self.cluster.threads, math.ceil(shards / workers)) / shards
        stored = 0.0 if self.cluster.alone else (12 * sizes.edges + 40 * sizes.users) / workers
        return stored + 16 * sizes.edges * sorting

    def disk(self) -> float:
        """Each call reads the graph and the residents, and the step writes these."""
        sizes = self.sizes
        graph = 4 * sizes.edges + 8 * sizes.rows(self.resident)
        graph += 0 if self.by_users else (4 * sizes.edges + 8 * sizes.users) * self.parts
        side = sizes.side_bytes(self.resident, sizes.rows(self.resident))
        return self.calls * (graph + side) + side
