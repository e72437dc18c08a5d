"""Memory of a fit: its peak, measured in fresh processes, beside the estimate that the check before a fit uses.

    python -m benchmarks memory

Likes by power laws, from a matrix, or out of core from a Parquet file; `walk` is *sampled* with draws by the walk.

The peak is that of anonymous memory while the process fits, less what it held before: pages of files, which the system
drops when it needs room, do not count. Out of core it counts from when the likes are read.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import drawn_likes
from benchmarks.report import THREADS, Row, Section, command, in_a_process
from considerate import Recommender
from considerate.data.graph import Graph
from considerate.fitting.memory import WalkSize, available_memory, needed_memory
from considerate.inference.plan import FitPlan

# users, items, likes, factors, estimator, negatives
CASES = (
    (20_000, 5_000, 100_000, 16, "sampled", 3.0),
    (100_000, 10_000, 6_000_000, 32, "sampled", 5.0),
    (1_000_000, 1_000_000, 5_000_000, 8, "sampled", 5.0),
    (200_000, 50_000, 20_000_000, 20, "sampled", 1.0),
    (50_000, 2_000_000, 3_000_000, 64, "sampled", 2.0),
    (1_000_000, 20_000, 5_000_000, 32, "expected", 5.0),
    (50_000, 1_000_000, 3_000_000, 32, "expected", 5.0),
    (100_000, 10_000, 3_000_000, 16, "walk", 2.0),
    (500_000, 200_000, 3_000_000, 8, "walk", 1.0),
    (300_000, 20_000, 10_000_000, 32, "sampled", 3.0),
)
# the same, out of core
CASES_ON_DISK = (
    (100_000, 10_000, 6_000_000, 64, "sampled", 3.0),
    (250_000, 10_000, 5_000_000, 32, "walk", 5.0),
    (1_000_000, 1_000_000, 5_000_000, 16, "sampled", 3.0),
    (1_000_000, 20_000, 5_000_000, 32, "expected", 5.0),
    (500_000, 200_000, 10_000_000, 20, "walk", 1.0),
    (300_000, 20_000, 10_000_000, 20, "sampled", 5.0),
)
WATCH = """
import os, select, sys
page, peak = os.sysconf("SC_PAGE_SIZE"), 0
with open(f"/proc/{sys.argv[1]}/statm") as file:
    while True:
        file.seek(0)
        resident, of_files = map(int, file.read().split()[1:3])
        peak = max(peak, resident - of_files)
        if select.select([sys.stdin], [], [], 0.002)[0]:
            break
print(peak * page)
"""


def anonymous_bytes() -> int:
    """The memory of this process that is no file's."""
    gc.collect()
    resident, of_files = map(int, Path("/proc/self/statm").read_text().split()[1:3])
    return (resident - of_files) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def watched(before: int | None = None) -> Iterator[dict[str, int]]:
    """The peak of this process's anonymous memory, above what it has now or had before, as `peak` afterwards. Another
    process looks, which no kernel holds up."""
    found: dict[str, int] = {}
    before, asked = before or anonymous_bytes(), [sys.executable, "-c", WATCH, str(os.getpid())]
    with subprocess.Popen(asked, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as watcher:
        yield found
        found["peak"] = int(watcher.communicate("end")[0]) - before


def likes(users: int, items: int, count: int) -> Any:
    """A matrix of about so many likes: degrees of users and popularity of items by power laws."""
    import scipy.sparse

    random = np.random.default_rng(0)
    degrees = 1 + random.pareto(1.8, users)
    degrees = np.clip(degrees * (count / degrees.sum()), 1, items // 4).astype(np.int32)
    popularity = random.permutation(np.arange(1, items + 1) ** -0.7)
    liked = drawn_likes(degrees, popularity)
    return scipy.sparse.csr_matrix((np.ones(liked.edges, np.float32), liked.indices, liked.starts), (users, items))


def settings_of(kind: str, factors: int, negatives: float) -> dict[str, Any]:
    settings = {"hidden": "sampled", "consideration": "walk", "opening": 1} if kind == "walk" else {"hidden": kind}
    settings = {"consideration": "popularity", "factors": factors, "negatives": negatives} | settings
    return settings | {"threads": THREADS, "sweeps": 2, "tolerance": 0}


def estimated(matrix: Any, plan: FitPlan) -> int:
    """What the check before a fit finds when it has the graph."""
    rows, columns = matrix.nonzero()
    graph = Graph.from_pairs(rows, columns, *matrix.shape)
    walk = WalkSize.of(graph, plan) if plan.consideration == "walk" else None
    return needed_memory(*matrix.shape, graph.edges, plan, walk)


def fit(users: int, items: int, count: int, factors: int, kind: str, negatives: float) -> Row:
    """In a fresh process: the peak of two sweeps, above what there was before."""
    recommender = Recommender(**settings_of(kind, factors, negatives))
    matrix = likes(users, items, count)
    recommender.fit(likes(60, 40, 300))  # imports
    with watched() as found:
        recommender.fit(matrix)
    return row_of((users, items, matrix.nnz, factors, kind, negatives), found, estimated(matrix, recommender.plan()))


def row_of(case: tuple[Any, ...], found: dict[str, int], estimate: float) -> Row:
    named = dict(zip(("users", "items", "likes", "K", "estimator", "c"), case))
    return named | {"peak MB": found["peak"] / 1e6, "estimate MB": estimate / 1e6}


def write_matrix(path: str, users: int, items: int, count: int) -> int:
    """Likes as a Parquet file; how many."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pairs = likes(users, items, count).tocoo()
    pq.write_table(pa.table({"user": pairs.row, "item": pairs.col}), path)
    return int(pairs.nnz)


def estimated_on_disk(path: str, plan: FitPlan) -> float:
    """What the check before a fit out of core finds."""
    import pyarrow.parquet as pq

    from considerate.data.graph import USERS, divide
    from considerate.distributed.disk_division import DiskDivision

    users, items = (np.unique(column.to_numpy(), return_inverse=True)[1] for column in pq.read_table(path).columns)
    graph = Graph.from_pairs(users.astype(np.int32), items.astype(np.int32), int(users.max()) + 1, int(items.max()) + 1)
    memory = available_memory()
    return DiskDivision.of(plan, divide(graph, USERS)[0], threads=THREADS).with_shards(memory).peak(memory)


def fit_on_disk(path: str, users: int, items: int, count: int, factors: int, kind: str, negatives: float) -> Row:
    """The same out of core, from a file; what reading takes is not counted."""
    from considerate.distributed import OutOfCore

    recommender = Recommender(**settings_of(kind, factors, negatives))
    backend = OutOfCore(folder=os.path.dirname(path), threads=THREADS)
    recommender.fit(likes(60, 40, 300), backend=backend)  # imports
    before, found = anonymous_bytes(), []
    with ExitStack() as stack:

        def say(note: str) -> None:
            if note.startswith("Divided by"):
                found.append(stack.enter_context(watched(before)))

        for _ in recommender.fit_steps(replace(recommender.fit_request(path), say=say), backend):
            pass
    return row_of(
        (users, items, count, factors, kind, negatives), found[0], estimated_on_disk(path, recommender.plan())
    )


def on_disk(users: int, items: int, count: int, *rest: Any) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "likes.parquet")
        count = in_a_process("memory", "write_matrix", path, users, items, count)
        row: Row = in_a_process("memory", "fit_on_disk", path, users, items, count, *rest)
        return row


def run(quick: bool = False) -> Section:
    section = Section("Memory of a fit")
    cut, few = 20 if quick else 1, 2 if quick else None
    cases = [[(u // cut, i // cut, e // cut, *rest) for u, i, e, *rest in cases] for cases in (CASES, CASES_ON_DISK)]
    rows = [in_a_process("memory", "fit", *case) for case in cases[0]]
    disk = [on_disk(*case) for case in cases[1][:few]]
    for row in rows + disk:
        row["estimate / peak"] = row["estimate MB"] / row["peak MB"]
    section.tables["Peak of two sweeps, and the estimate before them"] = rows
    section.tables["Out of core, after reading"] = disk
    section.notes = ["What the process held before the fit, the matrix among it, is not counted."]
    ratios = [row["estimate / peak"] for row in rows]
    section.must("largest estimate / peak", None if quick else max(ratios), most=1.2)
    section.must("smallest estimate / peak", None if quick else min(ratios), least=0.9)
    ratios = [row["estimate / peak"] for row in disk]
    section.must("out of core: largest estimate / peak", None if quick else max(ratios), most=1.2)
    section.must("out of core: smallest estimate / peak", None if quick else min(ratios), least=0.9)
    return section


def main() -> None:
    command("memory", run)


if __name__ == "__main__":
    main()
