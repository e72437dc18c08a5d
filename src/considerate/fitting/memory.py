"""The memory that a fit needs, and the memory that this process may still take."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from considerate.data.graph import Graph
from considerate.errors import MemoryLimitError
from considerate.inference.posterior import padded

if TYPE_CHECKING:
    from considerate.fitting.training import Hidden


def needed_memory(users: int, items: int, edges: int, hidden: Hidden, factors: int) -> int:
    """Bytes that a fit will hold at its peak, about: G and H in both orientations, and each side twice."""
    side = 2 * 2 * padded(factors) * 4
    graph = 2 * 4 * edges + 8 * (users + items) * 2
    drawn = 2 * 4 * hidden.negatives * edges if hidden.kind == "sampled" else 8.0 * hidden.groups * users
    return int(graph + drawn + (users + items) * (side + 32) + 64e6)


def available_memory() -> int | None:
    """Bytes that this process may still take, or None where the system does not say."""
    found = []
    try:
        with open("/proc/meminfo") as file:
            found += [int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable:")]
    except OSError:
        pass
    try:
        with open("/sys/fs/cgroup/memory.max") as most, open("/sys/fs/cgroup/memory.current") as current:
            found.append(int(most.read()) - int(current.read()))
    except (OSError, ValueError):
        pass
    if not found and hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(found) if found else None


def check_memory(graph: Graph, hidden: Hidden, factors: int, available: int | None = None) -> None:
    """Refuse a fit that would not fit, before it starts, and say what would."""
    available = available_memory() if available is None else available
    sizes = (graph.user_count, graph.item_count, graph.edges)
    needed = needed_memory(*sizes, hidden, factors)
    if available is None or needed <= available:
        return
    fitting = [k for k in range(8, factors, 8) if needed_memory(*sizes, hidden, k) <= available]
    would = f"factors={fitting[-1]} would fit" if fitting else "fewer users or a machine with more memory is needed"
    raise MemoryLimitError(
        f"This fit needs about {needed / 1e9:.1f} GB and {available / 1e9:.1f} GB are free; {would}."
    )
