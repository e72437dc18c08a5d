"""The cost model of a divided fit: held against what was measured, and projected to sizes that nobody has run here.

    python -m studies.scaling [--fit] [--users 5e7] [--items 1e5] [--edges 1e10] [--negatives 1]

Prints the tables of docs/scaling.md. The measured figures are those of benchmarks/results.json; with --fit the
constants of considerate/division/sizes.py are fitted to them again, to be compared with those that are there.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from considerate.data.graph import ITEMS, MOST_PARTS, USERS
from considerate.distributed.division import Cluster, Costs, Sizes, division_costs
from considerate.distributed.division import sizes as constants
from considerate.distributed.division.choose import SUMS_MOST, shards_needed, size_words
from considerate.distributed.division.inner import inner_costs
from considerate.inference.posterior import padded

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results.json"
MOVIELENS, SIMULATED, XBOX_ITEMS = (6038, 3533), (6000, 3500), 12_000
FLEETS = ((4, 16), (8, 8), (16, 4), (64, 1), (16, 16))  # (workers, threads of each)
NETWORKS = {"10 Gbit/s": 1.25e9, "1 Gbit/s": 1.25e8, "100 Mbit/s": 1.25e7}


@dataclass(frozen=True)
class Measured:
    """A sweep that a benchmark has timed."""

    name: str
    sizes: Sizes
    threads: int
    seconds: float  # of all processors together


def measured(path: Path) -> list[Measured]:
    """Sweeps in the sections `fit` and `growth` of the benchmarks' results."""
    sections = json.loads(path.read_text())["sections"]
    found = []
    for row in next(iter(sections["fit"]["tables"].values())):
        users, items = MOVIELENS if row["graph"] == "MovieLens-1M" else SIMULATED
        sizes = Sizes(users, items, row["edges"], row["K"], row["c"], row["estimator"])
        seconds = 2e-9 * row["CPU ns/edge/side"] * (1 + row["c"]) * row["edges"]
        found.append(Measured(row["graph"], sizes, row["threads"], seconds))
    by_size, by_factors = list(sections["growth"]["tables"].values())[:2]
    for row in [*by_size, *by_factors]:
        sizes = Sizes(row["users"], XBOX_ITEMS, row["edges"], row["K"], 1.0)
        name = row.get("graph", "10^6")
        found.append(Measured(name, sizes, 2, 4e-9 * row["CPU ns/edge/side"] * row["edges"]))
    return found


def show(heading: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    print(f"\n{heading}\n\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |")


def compare(found: Sequence[Measured]) -> None:
    """The formula beside the measurements."""
    errors, rows = [], []
    for one in found:
        said, sizes = one.sizes.sweep_seconds(), one.sizes
        errors.append(math.log(said / one.seconds))
        kind = f"{sizes.hidden}, c = {sizes.negatives:g}"
        rows.append(
            [one.name, f"{sizes.users:,}", f"{sizes.edges:,}", kind, sizes.factors, one.threads]
            + [f"{one.seconds:.3g}", f"{said:.3g}", f"{said / one.seconds:.2f}"]
        )
    columns = ["graph", "users", "edges", "H", "K", "threads", "CPU s a sweep", "formula", "ratio"]
    show("Seconds of a sweep that is not divided", columns, rows)
    spread = math.exp(math.sqrt(np.mean(np.square(errors))))
    print(f"\nRoot mean square of the ratio's logarithm: a factor of {spread:.2f}; largest {_largest(errors):.2f}.")


def _largest(errors: Sequence[float]) -> float:
    return math.exp(max(errors, key=abs))


def fit_constants(found: Sequence[Measured]) -> None:
    """EDGE_NS and SOLVE_NS by least squares on the logarithms, of the sampled fits."""
    from scipy.optimize import least_squares

    sampled = [one for one in found if not one.sizes.expected]

    def seconds(one: Sizes, guess: np.ndarray) -> float:
        blocks = [padded(k) for k in one.coordinates]
        edge = guess[0] + guess[1] * sum(k**2 + 5 * k + 6 * sum(blocks) for k in blocks)
        solve = guess[2] + sum(guess[3] * k**2 + guess[4] * k**3 for k in blocks)
        edges = 2 * (one.edges + one.drawn) * edge + one.drawn * one.draw_ns()
        return float(1e-9 * (edges + (one.users + one.items) * solve))

    def errors(logs: np.ndarray) -> list[float]:
        return [math.log(seconds(one.sizes, np.exp(logs)) / one.seconds) for one in sampled]

    start = np.log([*constants.EDGE_NS, *constants.SOLVE_NS])
    best = np.exp(least_squares(errors, start).x)
    print("\nFitted again: " + ", ".join(f"{value:.3g}" for value in best))
    print("In the code:  " + ", ".join(f"{value:.3g}" for value in (*constants.EDGE_NS, *constants.SOLVE_NS)))


def costs_of(sizes: Sizes, cluster: Cluster) -> Costs:
    return division_costs(sizes, cluster, USERS, shards_needed(sizes, cluster, None))


def project(sizes: Sizes) -> None:
    """A division by users over some fleets, and by items for comparison."""
    rows = []
    for factors in (20, 64):
        for workers, threads in FLEETS:
            cluster = Cluster(workers, threads, nodes=workers)
            one = costs_of(replace(sizes, factors=factors), cluster)
            rows.append(
                [factors, f"{workers} x {threads}", size_words(one.down), size_words(one.up)]
                + [size_words(one.moved_down + one.moved_up)]
                + [f"{one.compute:.0f}", f"{one.head:.2f}", f"{one.network:.1f}", f"{one.seconds:.0f}"]
                + [one.item_shards, size_words(one.worker_memory), size_words(one.head_memory)]
                + [size_words(one.reading_memory)]
            )
    columns = ["K", "workers x threads", "down", "up", "moved in all", "s at work", "s at the head", "s on the way"]
    columns += ["s a sweep", "item shards", "a worker", "the head", "a worker, reading"]
    show(f"{_words(sizes)}: by users, {next(iter(NETWORKS))}", columns, rows)
    other = division_costs(replace(sizes, factors=20), Cluster(16, 4, 16), ITEMS)
    print(
        f"\nBy items, K = 20, 16 x 4: {size_words(other.down)} down, {size_words(other.up)} up, {other.seconds:.0f} s "
        f"a sweep, {size_words(other.worker_memory)} a worker, {size_words(other.head_memory)} at the head."
    )


def slow_networks(sizes: Sizes) -> None:
    rows = []
    for factors in (20, 64):
        for name, bandwidth in NETWORKS.items():
            one = costs_of(replace(sizes, factors=factors), Cluster(16, 4, 16, bandwidth))
            share = 100 * one.network / one.seconds
            rows.append([factors, name, f"{one.network:.1f}", f"{one.seconds:.0f}", f"{share:.0f} %"])
    show("16 x 4 on slower networks", ["K", "network", "s on the way", "s a sweep", "share"], rows)


def inner_sweeps(sizes: Sizes) -> None:
    """As many plain sweeps beside one sweep with inner ones."""
    rows = []
    for workers in (2, 16):
        for name, bandwidth in NETWORKS.items():
            cluster = Cluster(workers, 4, workers, bandwidth)
            plain = costs_of(replace(sizes, factors=64), cluster)
            for rounds in (4, 16):
                inner = inner_costs(replace(sizes, factors=64), cluster, rounds)
                rows.append(
                    [f"{workers} x 4", name, rounds, f"{rounds * plain.network:.0f}", f"{rounds * plain.seconds:.0f}"]
                    + [f"{inner.network:.0f}", f"{inner.seconds:.0f}"]
                )
    columns = ["workers x threads", "network", "L", "L plain sweeps: s on the way", "in all"]
    show("Inner sweeps, all parts at once, K = 64", [*columns, "L inner sweeps: s on the way", "in all"], rows)


def breaking(sizes: Sizes) -> None:
    """What gives way first as the data grows."""
    sizes = replace(sizes, factors=64)
    cluster = Cluster(16, 4, 16)
    one = costs_of(sizes, cluster)
    rows: list[list[Any]] = [
        ["threads that have a part", MOST_PARTS, f"{16 * 16} threads take as long as {MOST_PARTS}"],
        ["edges of a part, 10^6", f"{sizes.edges / one.parts / 1e6:.0f}", "it is read, held and replaced as a whole"],
    ]
    items = _first(lambda n: _network_rules(replace(sizes, items=n), cluster))
    rows.append(["items where the way takes longer than the work", f"{items:,}", f"{sizes.users:,} users, K = 64"])
    items = _first(lambda n: _sums_too_large(replace(sizes, items=n), cluster))
    rows.append(["items where the most shards are too few", f"{items:,}", f"{size_words(SUMS_MOST)} of sums a worker"])
    rows.append(["users, items", f"{2**31 - 1:,}", "row numbers are int32"])
    checkpoint = sizes.side_bytes(USERS, sizes.users)
    rows.append(["a checkpoint", size_words(checkpoint), "two are kept"])
    show("Where it gives way, K = 64, 16 x 4", ["what", "at", "why"], rows)


def _network_rules(sizes: Sizes, cluster: Cluster) -> bool:
    one = costs_of(sizes, cluster)
    return one.network > one.compute


def _sums_too_large(sizes: Sizes, cluster: Cluster) -> bool:
    return costs_of(sizes, cluster).worker_sums > SUMS_MOST


def _first(test: Any, low: int = 10_000) -> int:
    """The first of 1, 2, 5, 10, ... times `low` that passes."""
    return next(n for step in range(40) if test(n := low * (1, 2, 5)[step % 3] * 10 ** (step // 3)))


def _words(sizes: Sizes) -> str:
    size = f"{sizes.users:,} users x {sizes.items:,} items x {sizes.edges:.3g} edges"
    return f"{size}, {sizes.hidden}, c = {sizes.negatives:g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--results", type=Path, default=RESULTS, help="the benchmarks' results.json")
    parser.add_argument("--fit", action="store_true", help="fit the constants again")
    parser.add_argument("--users", type=float, default=5e7)
    parser.add_argument("--items", type=float, default=1e5)
    parser.add_argument("--edges", type=float, default=1e10)
    parser.add_argument("--negatives", type=float, default=1.0)
    parser.add_argument("--hidden", choices=("sampled", "expected"), default="sampled")
    options = parser.parse_args()
    found = measured(options.results)
    compare(found)
    if options.fit:
        fit_constants(found)
    sizes = Sizes(int(options.users), int(options.items), int(options.edges), 20, options.negatives, options.hidden)
    project(sizes)
    slow_networks(sizes)
    inner_sweeps(sizes)
    breaking(sizes)


if __name__ == "__main__":
    main()
