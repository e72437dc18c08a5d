"""Speed of a fit: CPU nanoseconds per edge of H and side, everything in a sweep counted.

    python -m benchmarks fit

CPU seconds / (2 |H| sweeps): draws, both sides, biases, precisions and the bound. MovieLens-1M where it is found, and a
random graph of the same size.
"""

from __future__ import annotations

import time

from benchmarks.data import movielens, simulated
from benchmarks.report import Section, command, median
from considerate.data.graph import Graph
from considerate.fitting.session import make_estimator, make_popularity
from considerate.inference.plan import FitPlan
from considerate.inference.sweep import InMemory
from considerate.kernels.threads import LocalBackend

MODELS = (("sampled", 1, 20), ("sampled", 3, 20), ("expected", 3, 20), ("sampled", 1, 64))


def measure(graph: Graph, kind: str, negatives: float, factors: int, count: int, threads: int) -> tuple[float, float]:
    """(CPU nanoseconds per edge of H and side, wall seconds a sweep)."""
    plan = FitPlan.of_paper(factors=factors, hidden=kind, negatives=negatives)
    with LocalBackend(threads) as backend:
        estimator = make_estimator(graph, plan, make_popularity(graph, plan, backend).weights, backend)
        fit = InMemory(graph, estimator, plan, backend).sweeps()
        next(fit)  # the first sweep pays for memory
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(count):
            next(fit)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    edges = (1 + negatives) * graph.edges
    return 1e9 * cpu / (2 * edges * count), wall / count


def run(quick: bool = False) -> Section:
    count, repeats = (2, 1) if quick else (10, 3)
    graphs = {"MovieLens-1M": movielens(), "simulated": simulated()}
    section = Section("A sweep of a fit: CPU ns per edge of H and side")
    cases = [
        (name, *model, threads)
        for name, graph in graphs.items()
        if graph is not None
        for model in MODELS
        for threads in (1, 2)
        if name == "MovieLens-1M" or model == MODELS[0]
    ]
    found: dict[str, list[tuple[float, float]]] = {}
    for _ in range(repeats):
        for case in cases:
            name, kind, negatives, factors, threads = case
            measured = measure(graphs[name], kind, negatives, factors, count, threads)
            found.setdefault(" ".join(map(str, case)), []).append(measured)
    section.raw = {"CPU ns and wall s": found}
    rows = section.tables[f"Medians of {repeats} interleaved repeats of {count} sweeps"] = []
    for case, several in zip(cases, found.values()):
        name, kind, negatives, factors, threads = case
        cpu, wall = (median(values) for values in zip(*several))
        rows.append(
            {
                "graph": name,
                "edges": graphs[name].edges,
                "estimator": kind,
                "c": negatives,
                "K": factors,
                "threads": threads,
                "CPU ns/edge/side": cpu,
                "s/sweep": wall,
            }
        )
    section.notes = ["Draws, both sides, biases, precisions and the bound are counted; reading and the graph are not."]
    if graphs["MovieLens-1M"] is None:
        section.notes.append("MovieLens-1M was not found: set CONSIDERATE_DATA.")
    mine = [row["CPU ns/edge/side"] for row in rows if row["graph"] == "MovieLens-1M"]
    section.must("MovieLens-1M, K = 20, c = 1: CPU ns an edge and side", max(mine[:2]) if mine else None, most=100)
    return section


def main() -> None:
    command("fit", run)


if __name__ == "__main__":
    main()
