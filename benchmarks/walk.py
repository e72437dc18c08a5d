"""The walk's table: seconds to make it, in memory and over the parts of a divided graph, and the memory that it takes.

    python -m benchmarks walk

Each row is a process of its own. The peak is that of the process while it makes the table (VmHWM), less what it held
before, the graph among it.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.report import THREADS, Row, Section, command, in_a_process

WAYS = ("in memory", "parts of users", "parts of items", "out of core")
BLOCK_BYTES = 1e8  # of the sums of parts of users that come at a time


def table(graph_name: str, share: float, way: str) -> Row:
    """In a fresh process: the table of a graph, made in one of the ways."""
    from benchmarks.memory import watched
    from considerate.inference.hidden.consideration import WalkSteps, pull_of
    from considerate.inference.plan import FitPlan

    graph, plan = graph_of(graph_name, share), FitPlan.of_paper(consideration="walk")
    degree = graph.by_item.degrees
    weights = degree.astype("float64")
    steps = int(WalkSteps(graph.by_user, graph.by_item, pull_of(weights, degree)).work().sum())
    with watched() as found:
        begun, at_work = time.perf_counter(), time.process_time()
        made = in_memory(graph, plan, weights) if way == "in memory" else over_parts(graph, plan, weights, way)
        seconds, at_work = time.perf_counter() - begun, time.process_time() - at_work
    return {
        "graph": graph_name if share == 1 else f"{share:g} of the {graph_name}",
        "likes": graph.edges,
        "items": graph.item_count,
        "made": way,
        "s": seconds,
        "s of processor": at_work,
        "steps of the walk": steps,
        "ns of processor a step": 1e9 * at_work / steps,
        "entries": len(made.items),
        "peak MB": found["peak"] / 1e6,
    }


def graph_of(name: str, share: float) -> Any:
    from benchmarks.data import movielens_or_simulated, xbox_like
    from considerate.data.graph import Graph
    from considerate.simulation.simulate import XBOX_SAMPLE

    if name != "Xbox sample":
        return movielens_or_simulated()[1]
    users = int(XBOX_SAMPLE.users * share)
    return Graph.from_pairs(*xbox_like(users), users, XBOX_SAMPLE.items)


def in_memory(graph: Any, plan: Any, weights: Any) -> Any:
    from considerate.inference.hidden import Consideration
    from considerate.kernels.threads import LocalBackend

    with LocalBackend(THREADS) as threads:
        return Consideration.of_graph(graph.by_user, graph.by_item, weights, plan.neighbours, plan.mixing, threads.map)


def over_parts(graph: Any, plan: Any, weights: Any, way: str) -> Any:
    from considerate.data.graph import ITEMS, USERS, divide
    from considerate.distributed.backends.out_of_core import DiskPool
    from considerate.distributed.messages import PartitionSetup
    from considerate.distributed.partitions import make_partition
    from considerate.distributed.pools import LocalPool
    from considerate.distributed.runners import consideration_over

    resident = ITEMS if way == "parts of items" else USERS
    outline, parts = divide(graph, resident)
    setup = PartitionSetup.of(outline, plan, resident, way == "out of core")
    with tempfile.TemporaryDirectory() as folder:
        if way == "out of core":
            pool: Any = DiskPool(Path(folder), make_partition, setup, iter(parts), THREADS)
        else:
            pool = LocalPool([make_partition(part, setup) for part in parts], THREADS)
        with pool:
            return consideration_over(pool, outline, plan, weights, BLOCK_BYTES)


def run(quick: bool = False) -> Section:
    section = Section("The walk's table: who considers what")
    graphs = [("MovieLens-1M or like it", 1.0), ("Xbox sample", 0.1)]
    cases = [(name, share / 10 if quick else share, way) for name, share in graphs for way in WAYS]
    if not quick:
        cases.append(("Xbox sample", 1.0, "in memory"))
    rows = section.tables["Seconds and memory to make it"] = [in_a_process("walk", "table", *case) for case in cases]
    section.notes = [
        f"{THREADS} threads, or {THREADS} parts at a time; 200 entries a row; pi is the degree.",
        "Parts of users send the sums of a block of rows, which are merged and cut: time in memory plus merging.",
    ]
    section.must("s to make the table of MovieLens-1M", None if quick else rows[0]["s"], most=2.0)
    section.must("s to make the table of the Xbox sample", None if quick else rows[-1]["s"], most=60.0)
    section.must("GB to make it, beside the graph", None if quick else rows[-1]["peak MB"] / 1e3, most=2.0)
    return section


def main() -> None:
    command("walk", run)


if __name__ == "__main__":
    main()
