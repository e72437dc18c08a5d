"""Memory of a fit out of core: one process, whose parts are files that a few threads open in turn.

The estimate is the largest of some phases, without the memory that the process held before, pages of files, and
reading. `python -m benchmarks memory` compares it with measured peaks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from considerate.data.graph import FEW_COLUMNS
from considerate.distributed.division import OTHER, Division, count_of
from considerate.distributed.fans import LISTED_BYTES, WHOLE_BYTES
from considerate.fitting.memory import WalkSize
from considerate.fitting.session import closed_form_groups
from considerate.storage.container import VERIFY_WHOLE

PROCESS = 8e7  # bytes of small objects, and of memory that allocators keep after reading
SLACK = 1.05  # for freed memory that the allocator keeps


@dataclass(frozen=True)
class DiskDivision(Division):
    """A division whose parts are on a disk, with one part a thread in memory."""

    most_workers = 1

    @property
    def worker_nodes(self) -> int:
        """Nodes of sums: made by threads, waiting for their turn, and in the tree after some parts."""
        made = self.running + (self.running > 1)
        return max(merged.bit_count() + min(made, self.parts - merged) for merged in range(self.parts))

    @cached_property
    def walk(self) -> WalkSize:
        return WalkSize.at_random(self.users, self.items, self.edges, self.plan)

    @property
    def walks(self) -> bool:
        return self.plan.consideration == "walk"

    @property
    def head(self) -> float:
        """Bytes of the travelling side before and after its step; of an item its degree, class and pi; of the walk."""
        side = OTHER[self.resident]
        return 2 * self.side_bytes(side, self.travelling_rows) + 64 * self.items + self.walk.table * self.walks

    @property
    def part(self) -> float:
        """Bytes of a running part: its likes and H by the other side, H by its own, and its new rows."""
        rows, likes, drawn = (size / self.parts for size in (self.rows(self.resident), self.edges, self.drawn))
        low = 2 * (self.travelling_rows > FEW_COLUMNS)  # bytes an edge during a transposition
        turned = (4 + low + 4 * self.weighted) * likes + 8 * self.travelling_rows
        hidden = ((8 + low) * drawn + 8 * rows + 8 * self.travelling_rows) * (drawn > 0)
        closed = 0.0
        if self.plan.opens_closed:
            users = rows if self.by_users else self.users
            closed = 12 * closed_form_groups(self.plan, self.items)[0] * users + 8 * users
        return self.side_bytes(self.resident, rows) + turned + max(hidden, closed)

    @property
    def sweep_memory(self) -> float:
        """Bytes in a sweep: running parts and the sums and light items' edges that wait, or these joined."""
        slots = 12 * (self.walk.entries + self.items) * (self.walks and not self.expected)
        checked = self.walk.table if self.walks and self.walk.table <= VERIFY_WHOLE else 0  # as the model is opened
        light = 10 * self.light_edges + 16 * self.items * (self.light_items > 0)
        running = self.running * self.part + self.worker_sums + self.up_light
        joined = self.up / self.item_shards + self.up_light + max(self.up_light, light)
        return self.head + slots + max(running, joined) + checked

    def walk_memory(self, memory: float | None) -> float:
        """Bytes while the walk's table is made: the gathered users of some items, and rows that wait."""
        if not self.walks:
            return 0.0
        whole = WHOLE_BYTES * self.edges <= self.sums_room(memory)
        gathered = LISTED_BYTES * self.edges if whole else self.sums_room(memory)
        return self.head + self.walk.waiting + gathered

    def peak(self, memory: float | None) -> float:
        """Bytes at the peak of the fit."""
        return PROCESS + SLACK * max(self.sweep_memory, self.walk_memory(memory))

    def needed(self, memory: float) -> list[tuple[float, str]]:
        return [(self.peak(memory), "")]

    @property
    def place(self) -> str:
        return f"into {count_of(self.parts, 'part')} on a disk"

    def text(self) -> str:
        held = min(self.threads, self.parts)
        parts = f"into {count_of(self.parts, 'part')}, {held} of them in memory at a time"
        return f"Divided by {self.resident} {parts}.{self._shards_text()}"
