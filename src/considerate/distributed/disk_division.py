"""The memory of a fit out of core: one process, whose parts are files that a few threads open in turn.

Like the estimate of a fit in memory it is the largest of some phases, above what the process held before. Pages of
files are not counted, nor what reading takes. `python -m benchmarks memory` holds it against measured peaks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from considerate.data.graph import FEW_COLUMNS, ITEMS, USERS
from considerate.distributed.division import Division, count_of
from considerate.distributed.likers import LISTED_BYTES, WHOLE_BYTES
from considerate.fitting.memory import WalkSize
from considerate.fitting.session import closed_form_groups
from considerate.storage.container import VERIFY_WHOLE

PROCESS = 8e7  # bytes of small things, and of what allocators keep after reading
SLACK = 1.05  # what the allocator keeps of memory that was given back


@dataclass(frozen=True)
class DiskDivision(Division):
    """A division whose parts are on a disk, as many of them in memory as there are threads."""

    most_workers = 1

    @property
    def worker_nodes(self) -> int:
        """Those that threads make, one that waits for its turn, and those of the tree after some parts."""
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
        """The travelling side before and after its step; of an item its degree, class, pi and a column of it."""
        side = ITEMS if self.by_users else USERS
        return 2 * self.side_bytes(side, self.travelling_rows) + 64 * self.items + self.walk.table * self.walks

    @property
    def part(self) -> float:
        """A part at work: its likes and H by the other side, H by its own, and its new rows."""
        rows = (self.users if self.by_users else self.items) / self.parts
        low = 2 * (self.travelling_rows > FEW_COLUMNS)  # bytes an edge while it is transposed
        likes, drawn = self.edges / self.parts, self.drawn / self.parts
        turned = (4 + low + 4 * self.weighted) * likes + 8 * self.travelling_rows
        hidden = (8 + low) * drawn + 8 * rows + 8 * self.travelling_rows if drawn else 0.0
        closed = 0.0
        if self.plan.opens_closed:
            users = self.users / self.parts if self.by_users else self.users
            closed = 12 * closed_form_groups(self.plan, self.items)[0] * users + 8 * users
        return self.side_bytes(self.resident, rows) + turned + max(hidden, closed)

    @property
    def sweep_memory(self) -> float:
        """Parts at work and sums on their way, with the edges to light items that wait; or these edges put together."""
        slots = 12 * (self.walk.entries + self.items) * (self.walks and not self.expected)
        checked = self.walk.table if self.walks and self.walk.table <= VERIFY_WHOLE else 0  # when the model is opened
        light = 10 * self.light_edges + 16 * self.items * (self.light_items > 0)
        at_work = self.running * self.part + self.worker_sums + self.up_light
        together = self.up / self.item_shards + self.up_light + max(self.up_light, light)
        return self.head + slots + max(at_work, together) + checked

    def walk_memory(self, memory: float | None) -> float:
        """The users who like some items, gathered, and rows of the table that wait to be put into it."""
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
    def over(self) -> str:
        return f"into {count_of(self.parts, 'part')} on a disk"

    def text(self) -> str:
        shards = f" The items' sums come in {self.item_shards} shards." if self.item_shards > 1 else ""
        held = min(self.threads, self.parts)
        parts = f"into {count_of(self.parts, 'part')}, {held} of them in memory at a time"
        return f"Divided by {self.resident} {parts}.{shards}"
