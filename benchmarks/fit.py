"""Speed of a fit: CPU nanoseconds per edge of H and side, everything in a sweep counted.

    python -m benchmarks.fit [--sweeps 20] [--repeats 3]

CPU seconds / (2 |H| sweeps): draws, both sides, biases, precisions and the bound. MovieLens-1M where it is found, and a
random graph of the same size.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import time
from pathlib import Path

import numpy as np

from considerate.backends.local import LocalBackend
from considerate.degrees import PowerLaw
from considerate.graph import Graph
from considerate.inference.fit import Settings, sweeps
from considerate.kernels import compiled
from considerate.simulate import balanced_item_law, random_graph
from considerate.training import Hidden, make_estimator, make_popularity


def movielens() -> Graph | None:
    """MovieLens-1M, likes of 4 and 5, or None where the data is not."""
    from considerate import read_interactions

    folder = Path(os.environ.get("CONSIDERATE_DATA", Path(__file__).parents[1] / ".." / "shared" / "data"))
    path = folder / "ml-1m" / "ratings.parquet"
    if not path.exists():
        return None
    likes = read_interactions(path, where="rating >= 4")
    return Graph.from_pairs(likes.users, likes.items, len(likes.user_ids), len(likes.item_ids))


def simulated(users: int = 6000, items: int = 3500) -> Graph:
    """A random graph of about the same size."""
    user_law = PowerLaw(0.5, cutoff=250.0, minimum=10, maximum=items // 2)
    item_law = balanced_item_law(user_law, PowerLaw(0.7, maximum=users // 2), users=users, items=items)
    drawn = random_graph(users, items, user_law, item_law, seed=1)
    return Graph.from_pairs(drawn.users, drawn.items, users, items)


def measure(graph: Graph, kind: str, negatives: float, factors: int, count: int, threads: int) -> tuple[float, float]:
    """(CPU nanoseconds per edge of H and side, wall seconds a sweep)."""
    hidden = Hidden(kind, negatives, 1.0, None, False, 32)
    settings = Settings(factors=factors, offset=-math.log(negatives))
    with LocalBackend(threads) as backend:
        estimator = make_estimator(graph, hidden, make_popularity(graph, hidden, backend), 0, backend)
        fit = sweeps(graph, estimator, settings, backend)
        next(fit)  # the first sweep pays for memory
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(count):
            next(fit)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    edges = (1 + negatives) * graph.edges
    return 1e9 * cpu / (2 * edges * count), wall / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sweeps", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    print(f"instruction set {compiled.instruction_set()}, {os.cpu_count()} processors, numpy {np.__version__}")
    graphs = {"MovieLens-1M": movielens(), "simulated": simulated()}
    print("graph              edges estimator    c    K threads  CPU ns/edge/side  s/sweep")
    for name, graph in graphs.items():
        if graph is None:
            print(f"{name:14} not found: set CONSIDERATE_DATA")
            continue
        for kind, negatives, factors in (
            ("sampled", 1, 20),
            ("sampled", 3, 20),
            ("expected", 3, 20),
            ("sampled", 1, 64),
        ):
            for threads in (1, 2):
                found = [
                    measure(graph, kind, negatives, factors, options.sweeps, threads) for _ in range(options.repeats)
                ]
                nanoseconds, seconds = (statistics.median(values) for values in zip(*found))
                print(
                    f"{name:14} {graph.edges:9,} {kind:10} {negatives:3} {factors:4} {threads:7} "
                    f"{nanoseconds:17.1f} {seconds:8.3f}"
                )


if __name__ == "__main__":
    main()
