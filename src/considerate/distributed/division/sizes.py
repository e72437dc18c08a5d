"""What is fitted: bytes of its rows and messages, nanoseconds of its kernels.

Bytes follow from the arrays that are held and sent. The nanoseconds' constants were fitted to the benchmarks:
`python -m studies.scaling` prints what they say beside what was measured, and fits them again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from considerate.data.graph import MOST_BLOCKS, MOST_ITEM_BLOCKS, USERS, block_ends, part_ranges
from considerate.inference.posterior import padded
from considerate.kernels import compiled

# Nanoseconds of a thread, others of the same machine being at work too.
EDGE_NS = (22.0, 0.0163)  # of an edge and side: a constant, and per multiply and add
SOLVE_NS = (400.0, 0.2, 0.025)  # of a row: a constant, and per K^2 and K^3 of a block of coordinates
GROUP_NS = (120.0, 0.44)  # of a user and group, expected mode: a constant, and per entry of the triangle
DRAW_NS = (25.0, 2e-4)  # of an unliked edge, drawn and turned: a constant, and per item of the catalogue


@dataclass(frozen=True)
class Sizes:
    """The data and the settings, as far as they cost something."""

    users: int  # M
    items: int  # N
    edges: int  # |G|
    factors: int  # K
    negatives: float  # c
    hidden: str = "sampled"  # or "expected"
    groups: int = 32
    user_bias: bool = False
    item_bias: bool = True

    def rows(self, side: str) -> int:
        return self.users if side == USERS else self.items

    def blocks(self, side: str) -> int:
        """Blocks of rows, about; the data alone decides."""
        most = MOST_BLOCKS if side == USERS else MOST_ITEM_BLOCKS
        return min(len(block_ends(self.edges, most=most)) + 1, self.rows(side))

    def parts(self, resident: str) -> int:
        """Parts of a division."""
        return len(part_ranges(self.blocks(resident)))

    @property
    def coordinates(self) -> list[int]:
        """Blocks of coordinates that a row is stepped in."""
        return compiled.coordinate_blocks(self.factors)

    @property
    def triangle(self) -> int:
        return self.factors * (self.factors + 1) // 2

    @property
    def expected(self) -> bool:
        return self.hidden == "expected"

    @property
    def drawn(self) -> float:
        """Unliked edges of H that are drawn."""
        return 0.0 if self.expected else self.negatives * self.edges

    # --- Bytes ---

    def side_bytes(self, side: str, rows: float) -> float:
        """Rows of a side: means and variances, each padded to a multiple of eight floats; and biases."""
        bias = self.user_bias if side == USERS else self.item_bias
        return rows * (2 * padded(self.factors) * 4 + 8 * bias)

    def sums_bytes(self, rows: float) -> float:
        """Natural-gradient sums of some rows (EdgeSums): k (k + 1) / 2 + k + 2 floats per block of k coordinates."""
        return rows * 4 * sum(k * (k + 1) // 2 + k + 2 for k in self.coordinates)

    def item_sums_bytes(self) -> float:
        """What users read of the items by group (ItemSums), in float64."""
        return 8.0 * self.groups * (self.triangle + 2 * self.factors + 5) if self.expected else 0.0

    def item_groups_bytes(self) -> float:
        """The same with groups and weights of the items, and the table of inclusion probabilities (ItemGroups)."""
        return self.item_sums_bytes() + 16 * self.groups * self.grid + 12 * self.items if self.expected else 0.0

    def user_groups_bytes(self) -> float:
        """What items read of the users by group (UserGroups), in float64."""
        return 8.0 * self.groups * (self.triangle + 3 * self.factors + 3) if self.expected else 0.0

    def alpha_bytes(self) -> float:
        """alpha and alpha l of all users (Shares)."""
        return 8.0 * self.groups * self.users if self.expected else 0.0

    def closed_bytes(self) -> float:
        """The groups of all items and the temperatures of all users (ClosedForm)."""
        return 4.0 * self.items + 8.0 * self.users if self.expected else 0.0

    def liked_bytes(self) -> float:
        """What the groups hold of the items that each user liked: five numbers in float64."""
        return 40.0 * self.groups * self.users if self.expected else 0.0

    @property
    def grid(self) -> int:
        """Points of that table, where the rarest item was liked once and the commonest by everyone."""
        return math.ceil((math.log(4e5) + math.log(max(self.users, 2))) / 0.05) + 2

    # --- Nanoseconds ---

    def edge_ns(self) -> float:
        """An edge's part of its row's sums: per block of k coordinates k^2 + 5 k + 6 K multiplies and adds."""
        sizes = [padded(k) for k in self.coordinates]
        return EDGE_NS[0] + EDGE_NS[1] * sum(k**2 + 5 * k + 6 * sum(sizes) for k in sizes)

    def solve_ns(self) -> float:
        """A row's step."""
        sizes = [padded(k) for k in self.coordinates]
        return SOLVE_NS[0] + sum(SOLVE_NS[1] * k**2 + SOLVE_NS[2] * k**3 for k in sizes)

    def groups_ns(self) -> float:
        """All groups of one user. Each block of coordinates makes the whole triangle."""
        entries = len(self.coordinates) * self.triangle
        return self.groups * (GROUP_NS[0] + GROUP_NS[1] * entries) if self.expected else 0.0

    def draw_ns(self) -> float:
        """An unliked edge, drawn and turned to be by item."""
        return DRAW_NS[0] + DRAW_NS[1] * self.items

    def sweep_seconds(self) -> float:
        """A sweep of one thread, not divided."""
        edges = 2 * (self.edges + self.drawn) * self.edge_ns() + self.drawn * self.draw_ns()
        return 1e-9 * (edges + (self.users + self.items) * self.solve_ns() + self.users * self.groups_ns())
