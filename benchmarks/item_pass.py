"""The items' pass beside the users': CPU ns per edge of H on one thread; and a sweep beside an iteration of ALS.

    python -m benchmarks item_pass

Gowalla and goodbooks have many items of few likes. *sampled*, c = 3, H drawn by popularity and by the walk. A sweep is
cut into its four parts where it asks the estimator for its terms: drawing H, the users' pass, turning H by item, the
items' pass; the bound and the precisions, which take next to nothing, are with the pass before them.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.data import SETS, real, simulated
from benchmarks.report import Row, Section, command, median
from considerate.data.graph import Graph
from considerate.fitting.session import make_consideration, make_estimator, make_popularity
from considerate.inference.plan import FitPlan
from considerate.inference.sweep import InMemory
from considerate.kernels.threads import LocalBackend
from considerate.study.peers import blas_threads, training_matrix

FACTORS = (20, 32, 64)
NEGATIVES = 3.0
ALS = {"alpha": 40.0, "regularization": 100.0}
PARTS = ("draw", "users", "turn", "items")


class Sweeps:
    """The sweeps of a fit on one thread, each with the CPU seconds of its parts."""

    def __init__(self, graph: Graph, consideration: str, factors: int) -> None:
        plan = FitPlan.of_paper(factors=factors, hidden="sampled", negatives=NEGATIVES, consideration=consideration)
        self.backend = LocalBackend(1)
        weights = make_popularity(graph, plan, self.backend).weights
        table = make_consideration(graph, plan, weights, self.backend)
        estimator = make_estimator(graph, plan, weights, self.backend, table)
        self.times: list[float] = []
        for name in ("user_terms", "item_terms"):
            setattr(estimator, name, self._timed(getattr(estimator, name)))
        self.edges = (1 + NEGATIVES) * graph.edges
        self._sweeps = InMemory(graph, estimator, plan, self.backend).sweeps()

    def _timed(self, terms: Any) -> Any:
        def timed(*arguments: Any) -> Any:
            self.times.append(time.process_time())
            made = terms(*arguments)
            self.times.append(time.process_time())
            return made

        return timed

    def sweep(self) -> dict[str, float]:
        """One more sweep: CPU seconds by part, and in all."""
        self.times.clear()
        begun = time.process_time()
        next(self._sweeps)
        ended = time.process_time()
        parts = dict(zip(PARTS, np.diff([*self.times, ended]).tolist()))
        return parts | {"all": ended - begun}


def passes(graph: Graph, name: str, consideration: str, factors: int, count: int) -> Row:
    """Medians over some sweeps, ns per edge of H."""
    fit = Sweeps(graph, consideration, factors)
    fit.sweep()  # the first pays for memory
    found = [fit.sweep() for _ in range(count)]
    row: Row = {"graph": name, "H by": consideration, "K": factors}
    row |= {part: 1e9 * median([sweep[part] for sweep in found]) / fit.edges for part in PARTS}
    return row | {"items / users": median([sweep["items"] / sweep["users"] for sweep in found])}


def against_als(graph: Graph, name: str, factors: int, rounds: int) -> list[Row]:
    """CPU seconds of a sweep and of an iteration of implicit's ALS (CG), in turn, one thread each."""
    from implicit.cpu.als import AlternatingLeastSquares

    matrix = training_matrix(graph)
    fits = {consideration: Sweeps(graph, consideration, factors) for consideration in ("popularity", "walk")}
    for fit in fits.values():
        fit.sweep()
    ours: dict[str, list[float]] = {consideration: [] for consideration in fits}
    theirs: list[float] = []
    marks: list[float] = []
    with blas_threads(1):
        model = AlternatingLeastSquares(factors=factors, iterations=2, num_threads=1, random_state=0, **ALS)
        for _ in range(rounds):
            marks.clear()
            model.fit(matrix, show_progress=False, callback=lambda *_: marks.append(time.process_time()))
            theirs.append(marks[1] - marks[0])  # the second iteration alone: the first has preparations
            for consideration, fit in fits.items():
                ours[consideration].append(fit.sweep()["all"])
    return [
        {
            "graph": name,
            "H by": consideration,
            "K": factors,
            "CPU s, sweep": median(seconds),
            "CPU s, ALS": median(theirs),
            "sweep / ALS": median([mine / its for mine, its in zip(seconds, theirs)]),
        }
        for consideration, seconds in ours.items()
    ]


def run(quick: bool = False) -> Section:
    section = Section("The items' pass: CPU ns per edge of H, one thread")
    graphs = {SETS[folder][0]: real(folder) for folder in ("gowalla-lightgcn", "goodbooks-10k-v1")}
    found = {name: graph for name, graph in graphs.items() if graph is not None}
    if quick or not found:
        found = {"simulated": simulated(3000, 4000)}
    count, sizes = (1, FACTORS[:1]) if quick else (3, FACTORS)
    rows = section.tables[f"ns per edge, medians of {count} sweeps"] = [
        passes(graph, name, consideration, factors, count)
        for name, graph in found.items()
        for factors in sizes
        for consideration in ("popularity", "walk")
    ]
    turns = section.tables["A sweep and an iteration of implicit's ALS (CG), in turn"] = [
        row for name, graph in found.items() for row in against_als(graph, name, sizes[-1], count)
    ]
    section.notes = [
        f"{name}: {graph.user_count:,} users, {graph.item_count:,} items, {graph.edges:,} likes"
        for name, graph in found.items()
    ]
    section.notes.append(f"*sampled*, c = {NEGATIVES:g}. ALS: alpha {ALS['alpha']:g}, float32, its second iteration.")
    measured = not quick and "simulated" not in found
    for name in graphs:
        of = [row["items / users"] for row in rows if row["graph"] == name]
        section.must(f"{name}: ns an edge, items / users, the worst", max(of) if measured else None, most=1.5)
        of = [row["sweep / ALS"] for row in turns if row["graph"] == name]
        section.must(f"{name}: a sweep of K = 64 / an iteration of ALS", max(of) if measured else None, most=4)
    return section


def main() -> None:
    command("item_pass", run)


if __name__ == "__main__":
    main()
