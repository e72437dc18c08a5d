"""Memory that a fit needs, and memory that this process may still take.

A fit that needs more than is free is refused before it starts. CONSIDERATE_MEMORY, such as `12GB` or `unlimited`, or
`considerate fit --memory`, replaces the system's value.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data import Interactions
from considerate.data.features import FeatureTable
from considerate.data.graph import FEW_COLUMNS, LEAF_EDGES, LIGHT_SHARE, Graph, block_ends, part_ranges, ranges
from considerate.data.known import Known
from considerate.data.side_information import SideInformation
from considerate.data.sources import is_sparse
from considerate.errors import MemoryLimitError, UsageError
from considerate.fitting.session import closed_form_groups
from considerate.inference.features import spread_shape
from considerate.inference.hidden.consideration import (
    BLOCK_STEPS,
    ENTRIES_A_LIKE,
    MOST_LIKES,
    ROOM,
    WAVE,
    row_length,
)
from considerate.inference.hidden.drawers import drawer_of
from considerate.inference.plan import FitPlan
from considerate.inference.posterior import padded
from considerate.inference.sweep import NEAR_BYTES
from considerate.inference.updates import NODE_BYTES

VARIABLE = "CONSIDERATE_MEMORY"
PROCESS, SLACK = 3e6, 1.05  # bytes of small things; factor for freed memory that the allocator keeps
UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


# --- What a fit needs ---


def needed_memory(users: int, items: int, edges: int, plan: FitPlan, walk: WalkSize | None = None) -> int:
    """Bytes that a fit in memory takes at its peak, above the memory of the process before it.

    The peak is the largest of the phases: the graph made of pairs, the walk's table, a sweep. A pair counts as two
    whole numbers of 32 bits; the reader's memory is not counted. `walk` is the size of the walk; if it is not known,
    users are assumed to like equally many items at random. `python -m benchmarks memory` compares this with measured
    peaks.
    """
    low = 2 * (items > FEW_COLUMNS)  # bytes per edge while edges are transposed
    graph = 8 * edges + 16 * (users + items)  # both ways, and degrees
    rows = 8 * padded(plan.factors)  # of a row: means and variances
    sides = users * (rows + 8 * plan.user_bias) + items * (rows + 8 * plan.item_bias)
    covariances = sum(rows for side, rows in (("users", users), ("items", items)) if plan.keeps_covariance(side))
    sides += 2 * plan.factors * (plan.factors + 1) * covariances
    sweep: float = graph + 2 * sides + 48 * items  # before and after a step; pi, its alias table, classes of items
    hidden = 0.0
    if plan.opens_closed:
        hidden = 12 * closed_form_groups(plan, items)[0] * users + 8 * users  # alpha, floor, l; T
    if plan.hidden != "expected":
        drawn = min(plan.negatives * edges, users * items - edges)
        hidden += (8 + low) * drawn + 8 * (users + items)  # H by user and by item, besides memory of an opening
        hidden += drawer_of(plan.hidden).edge_bytes * (drawn + edges)
    sweep += hidden
    if users * rows > NEAR_BYTES:
        sweep += _sums_memory(users, items, edges, plan)
    phases: list[float] = [graph + (8 + low) * edges]  # with the pairs
    if plan.consideration == "walk":
        walk = walk or WalkSize.at_random(users, items, edges, plan)
        sweep += walk.table + (12 * (walk.entries + items) if plan.hidden == "sampled" else 0)  # alias tables of rows
        phases.append(graph + walk.table + walk.waiting)
    return int(SLACK * max(*phases, sweep) + PROCESS)


def feature_memory(side: SideInformation, users: int, items: int, plan: FitPlan) -> int:
    """Bytes that features take at their peak: their rows, twice; the rows' prior means and the inputs of these; the
    weights and, if their q has a full covariance, three matrices of F x F."""

    def of(table: FeatureTable | None, rows: int) -> float:
        if table is None:
            return 0.0
        features, K = table.features, plan.factors
        full = 24 * features.count**2 if len(spread_shape(features.count)) == 2 else 0
        entries = 24 * len(features.indices) * rows / max(1, features.rows)
        return entries + rows * (4 * padded(K) + 16 * (K + 1)) + 40 * features.count * (K + 1) + full

    return int(of(side.user_features, users) + of(side.item_features, items))


def _sums_memory(users: int, items: int, edges: int, plan: FitPlan) -> float:
    """Bytes of the sums of some items over parts of the users, if items are summed part by part (`TreePass`).

    Light items are not summed so. The others are assumed to have half of the edges, each twice as many as the largest
    light item."""
    parts = len(part_ranges(len(block_ends(edges)) + 1))
    summed = items if users > LIGHT_SHARE * items else edges * plan.edges_per_like / (4 * LEAF_EDGES * parts)
    return (8 + -(-parts // 8)) * min(NODE_BYTES, 2 * plan.factors * (plan.factors + 3) * min(summed, items))


@dataclass(frozen=True)
class WalkSize:
    """Upper limits of the work and the size of the walk's table."""

    steps: int
    entries: int
    items: int

    @classmethod
    def of(cls, graph: Graph, plan: FitPlan) -> WalkSize:
        """Compute the limits of a graph, as a row has at most as many entries as steps."""
        degrees = np.minimum(graph.by_user.degrees, MOST_LIKES)
        work: NDArray[Any] = np.zeros(graph.item_count, np.int64)
        for first, last in ranges(graph.user_blocks):
            liked = graph.by_user.indices[graph.by_user.starts[first] : graph.by_user.starts[last]]
            each = np.repeat(degrees[first:last], graph.by_user.degrees[first:last])
            np.add.at(work, liked, each)
        length = row_length(work, plan.neighbours, graph.edges)
        return cls(int(work.sum()), int(np.minimum(work, min(length, graph.item_count)).sum()), graph.item_count)

    @classmethod
    def at_random(cls, users: int, items: int, edges: int, plan: FitPlan) -> WalkSize:
        """Estimate the limits for users who like equally many items at random."""
        steps = edges * (1 + edges // max(1, users))
        room = max(ROOM, ENTRIES_A_LIKE * edges)
        return cls(steps, min(items * min(plan.neighbours, items), steps, room), items)

    @property
    def table(self) -> int:
        """Bytes of the table."""
        return 8 * self.entries + 12 * self.items

    @property
    def waiting(self) -> int:
        """Bytes of the blocks of rows that are not in the table yet."""
        return int(8 * self.entries * min(1.0, WAVE * BLOCK_STEPS / max(1, self.steps)))


def known_memory(edges: int, known: Known | None, plan: FitPlan) -> int:
    """Bytes that known pairs take in a fit to so many likes: the considered pairs in H, by user and by item; in closed
    form all pairs with their weights, both ways, and once together with the likes."""
    if known is None:
        return 0
    considered, impossible = (0 if pairs is None else pairs.edges for pairs in (known.considered, known.impossible))
    closed = 16 * (considered + impossible) + 12 * (edges + considered + impossible) if plan.opens_closed else 0
    return 10 * considered + closed


def check_memory(
    source: Any,
    plan: FitPlan,
    available: int | None = None,
    known: Known | None = None,
    side: SideInformation | None = None,
) -> None:
    """Raise UsageError, with advice, if a fit needs more memory than is free.

    The source is a sparse matrix, Interactions or the graph itself; the memory that these hold already is not
    needed again. The size of other sources is not known before they are read. `known` are pairs known besides the
    likes.
    """
    held, walk = 0, None
    if isinstance(source, Graph):
        sizes = source.user_count, source.item_count, source.edges
        held = 8 * sizes[2] + 16 * (sizes[0] + sizes[1])
        walk = WalkSize.of(source, plan) if plan.consideration == "walk" else None
    elif isinstance(source, Interactions):
        sizes = len(source.user_ids), len(source.item_ids), len(source.users)
        held = (8 if source.amounts is None else 0) * sizes[2]  # weights are 8 bytes a like, both ways
    elif is_sparse(source) and len(source.shape) == 2:
        sizes = *source.shape, source.nnz
    else:
        return
    available = available_memory() if available is None else available
    if available is not None:
        available -= known_memory(sizes[2], known, plan)
    side = side or SideInformation()

    def needs(plan: FitPlan) -> int:
        return needed_memory(*sizes, plan, walk) + feature_memory(side, *sizes[:2], plan)

    needed = needs(plan)
    if available is None or needed - held <= available:
        return
    room = available + held

    def fits(**changes: Any) -> bool:
        return needs(replace(plan, **changes)) <= room

    factors = [k for k in range(8, plan.factors, 8) if fits(factors=k)]
    advice = "a fit out of core or a machine with more memory is needed"
    if factors:
        advice = f"factors={factors[-1]} would fit"
    elif plan.hidden != "expected" and fits(hidden="expected"):
        advice = "hidden='expected' would fit"
    raise MemoryLimitError(
        f"This fit needs about {needed / 1e9:.1f} GB and {room / 1e9:.1f} GB are free; {advice} "
        f"({VARIABLE}=unlimited skips this check)."
    )


@contextmanager
def translate_memory_errors() -> Iterator[None]:
    """Turn errors of memory that runs out during a fit into one sentence."""
    try:
        yield
    except MemoryLimitError:
        raise
    except MemoryError as error:
        cause = str(error) or type(error).__name__
        raise MemoryLimitError(
            f"The fit ran out of memory ({cause}); fewer factors or negatives, or a fit out of core, needs less."
        ) from error


# --- What there is ---


def available_memory(root: Path = Path("/")) -> int | None:
    """Bytes that this process may still take, the smallest of all limits; None if the system has no such value.

    The limits are the machine's free memory, those of the process's cgroup and of all above it, and the process's own
    (ulimit -d, ulimit -v). `root` is where /proc and /sys are.
    """
    if override := os.environ.get(VARIABLE, "").strip():
        return parse_memory(VARIABLE, override)
    free = [*_cgroup_memory(root), *_process_memory(root)]
    if (machine := _numbers(root / "proc/meminfo").get("MemAvailable")) is not None:
        free.append(machine * 1024)
    if not free and hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        free.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return max(0, min(free)) if free else None


def parse_memory(name: str, text: str) -> int | None:
    """Parse a size such as 12GB or 8GiB to bytes; None is unlimited. Error messages use `name`."""
    number = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?", text.strip().lower())
    if text.strip().lower() == "unlimited":
        return None
    if number is None or number[2] not in UNITS:
        raise UsageError(f"{name} is {text!r}; it must be a size such as 12GB or 8GiB, or unlimited.")
    return int(float(number[1]) * UNITS[number[2]])


@contextmanager
def memory_override(name: str, text: str) -> Iterator[None]:
    """Replace the system's free memory by a size in this process, like the variable does. Error messages use `name`."""
    parse_memory(name, text)
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = text
    try:
        yield
    finally:
        os.environ.pop(VARIABLE)
        if before is not None:
            os.environ[VARIABLE] = before


def _numbers(path: Path) -> dict[str, int]:
    """Parse a file of lines `name: number`, or with a single number, under the name ''; empty without the file."""
    try:
        lines = [line.replace(":", " ").split() for line in path.read_text().splitlines()]
    except (OSError, UnicodeDecodeError):
        return {}
    pairs = ((["", *fields] if len(fields) == 1 else fields)[:2] for fields in lines if fields)
    return {name: int(number) for name, number in pairs if number.isdigit()}


# Names of the limits, the use and the file pages that can be dropped, by the type of the mount: versions 2 and 1.
CGROUP_FILES = {
    "cgroup2": (("memory.max", "memory.high"), "memory.current", ("inactive_file", "active_file")),
    "cgroup": (("memory.limit_in_bytes",), "memory.usage_in_bytes", ("total_inactive_file", "total_active_file")),
}


def _cgroup_memory(root: Path) -> Iterator[int]:
    """Yield the free bytes of each cgroup of this process, from its own up to the mount's root. File pages, without
    those that exist only in memory (shmem), can be dropped and count as free. Swap does not."""
    for kind, folder, top in _cgroup_folders(root):
        names, use, cache = CGROUP_FILES[kind]
        for level in (folder, *folder.parents):
            limits = [limit for name in names for limit in _numbers(level / name).values()]
            used = _numbers(level / use).get("")
            if limits and used is not None:
                pages = _numbers(level / "memory.stat")
                yield min(limits) - max(0, used - sum(pages.get(name, 0) for name in cache))
            if level == top:
                break


def _cgroup_folders(root: Path) -> Iterator[tuple[str, Path, Path]]:
    """Yield (type of the mount, folder of this process's cgroup, folder where its hierarchy is mounted)."""
    try:
        groups = [line.split(":", 2) for line in (root / "proc/self/cgroup").read_text().splitlines()]
        mounts = [line.split() for line in (root / "proc/self/mountinfo").read_text().splitlines()]
    except (OSError, UnicodeDecodeError):
        return
    for mount in mounts:
        kind = mount[mount.index("-") + 1] if "-" in mount else ""
        if kind not in CGROUP_FILES or (kind == "cgroup" and "memory" not in mount[-1].split(",")):
            continue
        controller = "memory" if kind == "cgroup" else ""
        for path in (PurePosixPath(path) for _, names, path in groups if controller in names.split(",")):
            top = root / mount[4].lstrip("/")
            # A container may see the host's path; its own folder is then the mount itself.
            known = path.is_relative_to(mount[3]) and ".." not in path.parts
            yield kind, top / path.relative_to(mount[3]) if known else top, top


def _process_memory(root: Path) -> Iterator[int]:
    try:
        import resource
    except ImportError:  # not on Windows
        return
    used = _numbers(root / "proc/self/status")
    for limit, name in ((resource.RLIMIT_DATA, "VmData"), (resource.RLIMIT_AS, "VmSize")):
        soft = resource.getrlimit(limit)[0]
        if soft != resource.RLIM_INFINITY and name in used:
            yield soft - used[name] * 1024
