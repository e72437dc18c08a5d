"""What inner sweeps cost (eq. 21): several local sweeps of each part between two messages, all parts at once.

A message then has another K numbers an item, so that it can be held while the items change; all messages together go
down to every machine, and a part steps the items by itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from considerate.data.graph import ITEMS, USERS
from considerate.distributed.division.costs import LOCAL_BANDWIDTH, Cluster, tree_moves
from considerate.distributed.division.sizes import Sizes

PASSES = 3  # over the edges in an inner sweep: the users', and the items' sums and their slope


@dataclass(frozen=True)
class InnerCosts:
    """One sweep with inner sweeps."""

    compute: float  # seconds of the slowest worker
    network: float  # seconds
    down: float  # bytes to each node
    up: float  # bytes that reach the head

    @property
    def seconds(self) -> float:
        return self.compute + self.network


def inner_costs(sizes: Sizes, cluster: Cluster, rounds: int) -> InnerCosts:
    """A division by users: messages are made and gathered, sent to all, and after the inner sweeps gathered again."""
    parts = sizes.parts(USERS)
    shares = cluster.shares(parts)
    most = max(last - first for first, last in shares)
    _, path, steps = tree_moves(shares, parts)
    message = sizes.sums_bytes(sizes.items) + 4 * sizes.factors * sizes.items + sizes.user_groups_bytes()
    items = sizes.side_bytes(ITEMS, sizes.items) + sizes.item_groups_bytes()
    down, up = 2 * items + message, 2 * message
    bandwidth = LOCAL_BANDWIDTH if cluster.nodes == 1 else cluster.bandwidth
    network = (down * cluster.nodes + up * path) / bandwidth + 2 * (steps + 1) * cluster.latency
    edges = (sizes.edges + sizes.drawn) / parts * sizes.edge_ns()
    solves = (sizes.users / parts + sizes.items) * sizes.solve_ns()
    part = (rounds + 1) * PASSES * edges + rounds * (solves + sizes.users / parts * sizes.groups_ns())
    part += 2 * sizes.drawn / parts * sizes.draw_ns()
    return InnerCosts(1e-9 * math.ceil(most / cluster.threads) * part, network, down, up)
