"""The memory that a fit needs, and the memory that this process may still take."""

from __future__ import annotations

import os
from dataclasses import replace

from considerate.data.graph import Graph
from considerate.errors import MemoryLimitError
from considerate.inference.posterior import padded
from considerate.parameters import FitPlan


def needed_memory(users: int, items: int, edges: int, plan: FitPlan) -> int:
    """Bytes that a fit will hold at its peak, about: G and H in both orientations, and each side twice."""
    side = 2 * 2 * padded(plan.factors) * 4
    graph = 2 * 4 * edges + 8 * (users + items) * 2
    drawn = 2 * 4 * plan.negatives * edges if plan.hidden == "sampled" else 8.0 * plan.groups * users
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


def check_memory(graph: Graph, plan: FitPlan, available: int | None = None) -> None:
    """Refuse a fit that would not fit, before it starts, and say what would."""
    available = available_memory() if available is None else available
    sizes = (graph.user_count, graph.item_count, graph.edges)
    needed = needed_memory(*sizes, plan)
    if available is None or needed <= available:
        return
    fitting = [k for k in range(8, plan.factors, 8) if needed_memory(*sizes, replace(plan, factors=k)) <= available]
    would = f"factors={fitting[-1]} would fit" if fitting else "fewer users or a machine with more memory is needed"
    raise MemoryLimitError(
        f"This fit needs about {needed / 1e9:.1f} GB and {available / 1e9:.1f} GB are free; {would}."
    )
