"""Scale: what Ray adds to a sweep, the bytes that it sends, and the memory of the head as the users grow.

    python -m benchmarks scale

Graphs have the laws of the paper's Xbox sample and 4,000 items. Sweeps of the plain fit and of a divided one take
turns, so that a disturbance hits both. The head's memory is measured in a process of its own that fits, the public
way, from a folder of Parquet files.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import real
from benchmarks.report import THREADS, Row, Section, command, in_a_process, median, peak_bytes
from considerate import Recommender
from considerate.data.graph import Graph, divide
from considerate.distributed.assignment import assign_parts, in_runs, merge_rounds, sent_nodes
from considerate.distributed.backends.ray import RayBackend
from considerate.distributed.division import Division
from considerate.distributed.messages import PartitionSetup
from considerate.distributed.partitions import make_partition
from considerate.distributed.pools import LocalPool, size_of
from considerate.distributed.runners import make_runner
from considerate.fitting.session import make_estimator
from considerate.inference.hidden import popularity_weights
from considerate.inference.plan import FitPlan
from considerate.inference.sweep import InMemory, Sweep
from considerate.kernels.threads import LocalBackend
from considerate.simulation.simulate import XBOX_SAMPLE, balanced_item_law, random_graph

ITEM_COUNT, FACTORS, NEGATIVES, GROUPS = 4000, 20, 1.0, 32
MEASURED_USERS = (200_000, 600_000, 2_000_000)
FILES = 16  # of the Parquet folder
GOWALLA = "gowalla-lightgcn"


def draw_pairs(users: int) -> tuple[np.ndarray, np.ndarray]:
    size = replace(XBOX_SAMPLE, users=users, items=ITEM_COUNT)
    law = balanced_item_law(size.user_law, size.item_law, users=users, items=ITEM_COUNT)
    drawn = random_graph(users, ITEM_COUNT, size.user_law, law, seed=0)
    return drawn.users, drawn.items


# --- What a sweep takes and sends ---


def one_graph(users: int, kind: str, workers: int, repeats: int) -> dict[str, Any]:
    """Sweeps of the plain fit with two threads, of parts in this process with two threads, and of Ray, by turns."""
    graph = Graph.from_pairs(*draw_pairs(users), users, ITEM_COUNT)
    settings = FitPlan.of_paper(factors=FACTORS, negatives=NEGATIVES)
    weights = popularity_weights(graph.by_item.degrees, 1.0)
    outline, parts = divide(graph)
    setup = PartitionSetup.of(outline, replace(settings, hidden=kind, groups=GROUPS))
    seconds: dict[str, list[float]] = {"plain": [], "parts in one process": [], "Ray": []}
    with LocalBackend(THREADS) as backend, RayBackend(workers=workers, threads=1).open() as session:
        plan = replace(settings, hidden=kind, groups=GROUPS)
        estimator = make_estimator(graph, plan, weights, backend)
        begun = time.perf_counter()
        pool = session.make_pool(make_partition, setup, parts)
        made = time.perf_counter() - begun

        def divided(one: Any) -> Iterator[Sweep]:
            return make_runner(outline, setup, weights, one, run=backend.map).sweeps()

        local = LocalPool([make_partition(part, setup) for part in parts], THREADS)
        fits = dict(
            zip(
                seconds,
                (InMemory(graph, estimator, plan, backend).sweeps(), divided(local), divided(pool)),
                strict=True,
            )
        )
        same = True  # the items after every sweep, which read all users
        for repeat in range(repeats + 1):
            rows = []
            for name, fit in fits.items():
                pool.report()
                begun = time.perf_counter()
                done = next(fit)
                took = time.perf_counter() - begun
                rows.append(done.state.posterior.items.rows)
                if repeat:
                    seconds[name].append(took)
            report = pool.report()
            same = same and all(np.array_equal(rows[0], other) for other in rows[1:])
        local.close()
    division = Division.of(plan, outline, workers)
    return {
        "users": users,
        "edges": graph.edges,
        "estimator": kind,
        "workers": workers,
        "parts": len(parts),
        "seconds": seconds,
        "same bits": same,
        "workers made in s": made,
        "down": report.down,
        "up": report.up,
        "formula down": division.down,
        "formula up": moved_up(division),
        "slowest worker s": max(report.workers),
        "head and messages s": report.seconds - max(report.workers),
    }


def moved_up(division: Division) -> float:
    """Bytes that move from worker to worker and to the head: nodes of sums, and light items' edges each time."""
    nodes = sum(map(sum, sent_nodes(division.shares, division.parts)))
    held = [len(share) for share in division.shares]
    light = sum(held)
    for pairs in merge_rounds(len(held)):
        for merger, sender in pairs:
            light += held[sender]
            held[merger] += held[sender]
    return nodes * division.up + division.up_light * light / division.parts


# --- What goes up with odd numbers of workers ---


class CountingPool(LocalPool):
    """Parts in this process; their answers are merged as workers on Ray would merge them, and what moves is counted."""

    def __init__(self, parts: list[Any], shares: list[Any]) -> None:
        super().__init__(parts, THREADS)
        self.shares, self.up = shares, 0

    def call(self, method: Any, *arguments: Any, merge: Any = None, changes: bool = False) -> Any:
        answers = super().call(method, *arguments, changes=changes)
        if merge is None:
            return answers
        merged = [reduce(merge, [answers[part] for part in share]) for share in self.shares]
        for pairs in merge_rounds(len(merged)):
            for merger, sender in pairs:
                self.up += size_of(merged[sender])
                merged[merger] = merge(merged[merger], merged[sender])
        self.up += size_of(merged[0])
        return merged[0]


def up_bytes(name: str, factors: int, negatives: float, users: int) -> list[Row]:
    """Bytes up of a sweep with some workers, beside those of release 0.1: sums of all items, runs of parts."""
    graph = real(GOWALLA) if name == "Gowalla" else Graph.from_pairs(*draw_pairs(users), users, ITEM_COUNT)
    plan = FitPlan.of_paper(factors=factors, negatives=negatives)
    outline, parts = divide(graph)
    setup, weights = PartitionSetup.of(outline, plan), popularity_weights(outline.item_degree, 1.0)
    edges, rows = [part.likes.edges for part in parts], []
    for workers in (2, 3, 5):
        shares = assign_parts(edges, workers)
        with CountingPool([make_partition(part, setup) for part in parts], shares) as pool:
            next(make_runner(outline, setup, weights, pool).sweeps())
            up = pool.up
        division = Division.of(plan, outline, workers)
        before = replace(division, light_items=0).up * sum(
            map(sum, sent_nodes(in_runs(len(parts), workers), len(parts)))
        )
        rows.append(
            {
                "graph": name,
                "K": factors,
                "c": negatives,
                "items": graph.item_count,
                "light": division.light_items,
                "parts": len(parts),
                "workers": workers,
                "MB up": up / 1e6,
                "by formula": moved_up(division) / 1e6,
                "MB up, release 0.1": before / 1e6,
                "times": up / before,
                "largest load": max(sum(edges[part] for part in share) for share in shares) * workers / graph.edges,
            }
        )
    return rows


# --- The head's memory ---


def write_likes(folder: str, users: int) -> int:
    """The likes of so many users as a folder of Parquet files; the bytes on disk."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    drawn, items = draw_pairs(users)
    size = 0
    for number, rows in enumerate(np.array_split(np.arange(len(drawn)), FILES)):
        path = Path(folder) / f"part-{number:03}.parquet"
        pq.write_table(pa.table({"user": drawn[rows], "item": items[rows]}), path)
        size += path.stat().st_size
    return size


def fit_folder(folder: str, output: str, kind: str) -> Row:
    """In a fresh process, the head: a fit on Ray from the folder, its model left in shards."""
    begun = time.perf_counter()
    model = Recommender(factors=FACTORS, negatives=NEGATIVES, hidden=kind, sweeps=3, tolerance=0.0)
    backend = RayBackend(workers=2, threads=1)
    steps = list(model.fit_steps(folder, backend=backend, model_folder=output))
    return {
        "sweeps": len(steps),
        "s in all": time.perf_counter() - begun,
        "peak MB": peak_bytes() / 1e6,
    }


def head_memory(quick: bool) -> list[Row]:
    rows = []
    for users in (70_000, 140_000) if quick else MEASURED_USERS:
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as output:
            size = in_a_process("scale", "write_likes", folder, users)
            found = in_a_process("scale", "fit_folder", folder, str(Path(output) / "model"), "sampled")
        rows.append({"users": users, "MB of Parquet": size / 1e6, **found})
    first = rows[0]
    for row in rows[1:]:
        more = row["users"] - first["users"]
        row["bytes a user more"] = 1e6 * (row["peak MB"] - first["peak MB"]) / more
    return rows


def run(quick: bool = False) -> Section:
    section = Section(f"Scale: Ray with two workers beside {THREADS} threads, K = {FACTORS}, c = {NEGATIVES:g}")
    users, repeats = (20_000, 2) if quick else (1_360_000, 5)
    small = 20_000 if quick else 136_000
    asked = [(users, "sampled", 2), (small, "sampled", 3), (small, "expected", 2)]
    found = [in_a_process("scale", "one_graph", *one, repeats) for one in asked]
    section.raw = {"sweeps": found}
    section.tables[f"A sweep, medians of {repeats} by turns"] = [
        {
            "users": one["users"],
            "edges": one["edges"],
            "estimator": one["estimator"],
            "workers": one["workers"],
            **{f"{name}, s": median(seconds) for name, seconds in one["seconds"].items()},
            "Ray / plain": median(one["seconds"]["Ray"]) / median(one["seconds"]["plain"]),
            "not at work, s": one["head and messages s"],
            "same bits": one["same bits"],
        }
        for one in found
    ]
    section.tables["Bytes of a sweep on one node, counted from the objects sent, beside the formula"] = [
        {
            "users": one["users"],
            "estimator": one["estimator"],
            "workers": one["workers"],
            "MB down": one["down"] / 1e6,
            "by formula": one["formula down"] / 1e6,
            "MB up": one["up"] / 1e6,
            "by formula up": one["formula up"] / 1e6,
        }
        for one in found
    ]
    shapes = [("Gowalla", 64, 3.0, 0), ("Gowalla", 20, 3.0, 0)] if real(GOWALLA) is not None else []
    shapes.append(("Xbox laws", FACTORS, NEGATIVES, users))
    sent = [row for shape in shapes for row in in_a_process("scale", "up_bytes", *shape)]
    section.tables["Bytes up of a sweep, counted, beside release 0.1's: sums of all items, of runs of parts"] = sent
    memory = head_memory(quick)
    section.raw["memory"] = memory
    section.tables["The head's peak memory, fitting from Parquet on Ray"] = memory
    section.notes = [
        f"Graphs by the laws of the paper's Xbox sample with {ITEM_COUNT:,} items. A first sweep, which pays for "
        "memory, is not in the medians. The plain fit, the parts in one process and Ray sweep in turn.",
        "Bytes: down once per node, up from worker to worker and to the head. The formula is that of "
        "considerate.distributed.division, which docs/scaling.md explains.",
        "The peak is VmHWM of the process that starts the fit, Ray's client in it; pages of the object store that it "
        "has touched are counted.",
        "Bytes up with five workers and no light item: half of release 0.1's would take a worker with 1.25 times the "
        "mean likes, so 0.6 is asked; `python -m studies.scaling` prints the bytes by the load that a worker may have.",
    ]
    first = found[0]
    ratio = median(first["seconds"]["Ray"]) / median(first["seconds"]["plain"])
    section.must(f"{first['edges']:,} edges: a sweep on Ray, times that of {THREADS} threads", ratio, most=1.5)
    section.must(
        "every posterior array_equal to the plain fit (1 is yes)", int(all(o["same bits"] for o in found)), least=1
    )
    gap = max(abs(one[way] / one[f"formula {way}"] - 1) for one in found for way in ("down", "up"))
    section.must("bytes counted and by formula differ by, at most, a share of", gap, most=0.05)
    for row in sent:
        if row["workers"] > 2:
            where = f"{row['graph']}, K = {row['K']}, {row['workers']} workers"
            half = row["light"] > 0 or row["workers"] == 3
            section.must(f"{where}: bytes up, times those of release 0.1", row["times"], most=0.5 if half else 0.6)
            section.must(f"{where}: the largest load of a worker, times the mean", row["largest load"], most=1.15)
    section.must("head: bytes of memory for each further user", memory[-1]["bytes a user more"], most=8)
    return section


def main() -> None:
    command("scale", run)


if __name__ == "__main__":
    main()
