"""What a divided fit would take at sizes that nobody has run here; and the formula for its seconds beside measurements.

    python -m studies.scaling [--users 5e7] [--items 1e5] [--edges 1e10] [--negatives 1] [--hidden expected]

Prints the tables of docs/scaling.md. Bytes are those of `considerate.distributed.division`. The nanoseconds were fitted
to the sweeps in benchmarks/results.json, beside which the formula is printed.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from considerate.data.graph import ITEMS
from considerate.distributed.assignment import MOST_LOAD, assign_parts, in_runs, sent_nodes
from considerate.distributed.division import Division, bytes_text
from considerate.inference.plan import FitPlan
from considerate.inference.posterior import padded

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results.json"
MOVIELENS, SIMULATED, XBOX_ITEMS = (6038, 3533), (6000, 3500), 12_000
FLEETS = ((4, 16), (8, 8), (16, 4), (64, 1), (64, 16))  # (workers, threads of each)
ODD, ODD_PARTS, MOST_LOADS = (3, 5, 6, 7), (25, 64), (1.05, MOST_LOAD, 1.25, 1.35)  # of the frontier
NETWORKS = {"10 Gbit/s": 1.25e9, "1 Gbit/s": 1.25e8, "100 Mbit/s": 1.25e7}
LATENCY = 2e-3  # seconds of a call or a transfer, however small


def sweep_seconds(division: Division) -> float:
    """Seconds of a sweep of one thread: edges, draws, steps of rows, groups of users."""
    plan, drawn = division.plan, division.drawn
    sizes = [padded(k) for k in division.coordinate_blocks]
    edge = 22 + 0.0163 * sum(k**2 + 5 * k + 6 * sum(sizes) for k in sizes)
    draw = 25 + 2e-4 * division.items
    step = 400 + sum(0.2 * k**2 + 0.025 * k**3 for k in sizes)
    group = 120 + 0.44 * len(sizes) * plan.factors * (plan.factors + 1) // 2
    groups = division.users * plan.groups * group if division.expected else 0.0
    rows = (division.users + division.items) * step
    return 1e-9 * (2 * (division.edges + drawn) * edge + drawn * draw + rows + groups)


def network_seconds(division: Division, bandwidth: float) -> float:
    """The message to every machine over the head's one link; then sums from worker to worker, level by level."""
    sent = sent_nodes(division.shares, division.parts)
    path = sum(max(nodes) for nodes in sent)
    calls = division.item_shards * len(division.coordinate_blocks)
    moved = division.down * division.workers + division.up * path + division.up_light
    return moved / bandwidth + calls * (len(sent) + 1) * LATENCY


def work_seconds(division: Division) -> float:
    """Of the slowest worker, whose threads take its parts one after the other."""
    return math.ceil(division.most_parts / division.threads) * sweep_seconds(division) / division.parts


def measured(path: Path) -> list[tuple[str, Division, float]]:
    """(graph, what was fitted, CPU seconds of a sweep) of the sections `fit` and `growth` of the benchmarks."""
    sections = json.loads(path.read_text())["sections"]
    found = []
    for row in next(iter(sections["fit"]["tables"].values())):
        counts = MOVIELENS if row["graph"] == "MovieLens-1M" else SIMULATED
        plan = FitPlan.of_paper(factors=row["K"], negatives=row["c"], hidden=row["estimator"])
        division = Division(plan, *counts, row["edges"], threads=row["threads"])
        found.append((row["graph"], division, 2e-9 * row["CPU ns/edge/side"] * (1 + row["c"]) * row["edges"]))
    by_size, by_factors = list(sections["growth"]["tables"].values())[:2]
    for row in [*by_size, *by_factors]:
        division = Division(FitPlan.of_paper(factors=row["K"]), row["users"], XBOX_ITEMS, row["edges"], threads=2)
        found.append((row.get("graph", "10^6"), division, 4e-9 * row["CPU ns/edge/side"] * row["edges"]))
    return found


def show(heading: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    print(f"\n{heading}\n\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |")


def compare(path: Path) -> None:
    """The formula beside the measurements."""
    rows, errors = [], []
    for graph, division, seconds in measured(path):
        formula, plan = sweep_seconds(division), division.plan
        errors.append(math.log(formula / seconds))
        rows.append(
            [graph, f"{division.users:,}", f"{division.edges:,}", f"{plan.hidden}, c = {plan.negatives:g}"]
            + [plan.factors, division.threads, f"{seconds:.3g}", f"{formula:.3g}", f"{formula / seconds:.2f}"]
        )
    columns = ["graph", "users", "edges", "H", "K", "threads", "CPU s a sweep", "formula", "ratio"]
    show("Seconds of a sweep that is not divided", columns, rows)
    spread, worst = math.exp(math.sqrt(np.mean(np.square(errors)))), math.exp(max(errors, key=abs))
    print(f"\nRoot mean square of the ratio's logarithm: a factor of {spread:.2f}; largest {worst:.2f}.")


def project(users: int, items: int, edges: int, hidden: str, negatives: float) -> None:
    """Divisions by users over some fleets and networks, and by items for comparison."""
    fleets, slower = [], []
    for factors in (20, 64):
        plan = FitPlan.of_paper(factors=factors, hidden=hidden, negatives=negatives)
        for workers, threads in FLEETS:
            one = Division(plan, users, items, edges, workers, threads).with_shards(None)
            seconds = [work_seconds(one), network_seconds(one, NETWORKS["10 Gbit/s"])]
            fleets.append(
                [factors, f"{workers} x {threads}", bytes_text(one.down), bytes_text(one.up)]
                + [f"{seconds[0]:.0f}", f"{seconds[1]:.1f}", one.item_shards]
                + [bytes_text(one.worker_memory), bytes_text(one.head_memory)]
            )
        one = Division(plan, users, items, edges, 16, 4).with_shards(None)
        slower += [
            [factors, name, f"{network_seconds(one, bandwidth):.1f}", f"{work_seconds(one):.0f}"]
            for name, bandwidth in NETWORKS.items()
        ]
    columns = [
        "K",
        "workers x threads",
        "down",
        "up",
        "s at work",
        "s on the way",
        "item shards",
        "a worker",
        "the head",
    ]
    size = f"{users:,} users x {items:,} items x {edges:.3g} edges, {hidden}, c = {negatives:g}"
    show(f"{size}: by users, 10 Gbit/s", columns, fleets)
    show("16 x 4 on slower networks", ["K", "network", "s on the way", "s at work"], slower)
    other = Division(
        FitPlan.of_paper(factors=20, hidden=hidden, negatives=negatives), users, items, edges, 16, 4, resident=ITEMS
    )
    print(
        f"\nBy items, K = 20, 16 x 4: {bytes_text(other.down)} down, {bytes_text(other.up)} up, "
        f"{bytes_text(other.worker_memory)} a worker, {bytes_text(other.head_memory)} at the head."
    )


def frontier() -> None:
    """Nodes of sums that move in a sweep, by the load that a worker may have."""

    def cell(shares: Sequence[Sequence[int]], parts: int) -> str:
        nodes, load = sum(map(sum, sent_nodes(shares, parts))), max(map(len, shares)) * len(shares) / parts
        return f"{nodes} ({load:.2f})"

    rows = [
        [parts, workers, cell(in_runs(parts, workers), parts)]
        + [cell(assign_parts([1.0] * parts, workers, load), parts) for load in MOST_LOADS]
        for parts in ODD_PARTS
        for workers in ODD
    ]
    columns = ["parts", "workers", "runs of parts", *(f"at most {load:g}" for load in MOST_LOADS)]
    show("Nodes of sums that move in a sweep (the largest share of a worker, of the mean)", columns, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--results", type=Path, default=RESULTS, help="the benchmarks' results.json")
    parser.add_argument("--users", type=float, default=5e7)
    parser.add_argument("--items", type=float, default=1e5)
    parser.add_argument("--edges", type=float, default=1e10)
    parser.add_argument("--negatives", type=float, default=1.0)
    parser.add_argument("--hidden", choices=("sampled", "expected"), default="sampled")
    options = parser.parse_args()
    compare(options.results)
    frontier()
    project(int(options.users), int(options.items), int(options.edges), options.hidden, options.negatives)


if __name__ == "__main__":
    main()
