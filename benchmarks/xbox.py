"""The Xbox-sized graph from a folder of Parquet files: fitted by threads, on Ray and out of core; the same bits.

    python -m benchmarks xbox

44 million edges, 6.2 million users, 12,000 items, as simulated from the paper's laws, K = 20, c = 1. Each fit is in a
process of its own and leaves its model in a file; the models are then held against one another, tensor by tensor.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import THREADS, Row, Section, command, in_a_process, peak_bytes
from considerate import Recommender
from considerate.distributed.backends.out_of_core import OutOfCore
from considerate.distributed.backends.ray import RayBackend
from considerate.simulation.simulate import XBOX_SAMPLE, balanced_item_law, random_graph
from considerate.storage.container import open_tensors

FACTORS, NEGATIVES, SWEEPS, FILES = 20, 1.0, 5, 32
BACKENDS: dict[str, Callable[[str], Any]] = {
    "two threads": lambda folder: None,
    "Ray, two workers": lambda folder: RayBackend(workers=THREADS, threads=1),
    "out of core, two threads": lambda folder: OutOfCore(folder=Path(folder).parent, threads=THREADS),
}


def write_likes(folder: str, users: int) -> Row:
    """The simulated likes, in no order, as a folder of Parquet files."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    size = replace(XBOX_SAMPLE, users=users)
    law = balanced_item_law(size.user_law, size.item_law, users=users, items=size.items)
    drawn = random_graph(users, size.items, size.user_law, law, seed=0)
    order = np.random.default_rng(0).permutation(len(drawn.users))
    for number, rows in enumerate(np.array_split(order, FILES)):
        rows_of = {"user": drawn.users[rows], "item": drawn.items[rows]}
        pq.write_table(pa.table(rows_of), Path(folder) / f"part-{number:03}.parquet")
    return {"users": users, "items": size.items, "edges": len(order)}


class Anonymous(threading.Thread):
    """Looks again and again at the memory of this process that is not of files, and keeps the most that it saw."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most = 0

    def run(self) -> None:
        while True:
            with open("/proc/self/status") as file:
                now = next((int(line.split()[1]) * 1024 for line in file if line.startswith("RssAnon:")), 0)
            self.most = max(self.most, now)
            time.sleep(0.05)


def fit(folder: str, output: str, way: str) -> Row:
    """One fit, from the folder to the model file; seconds of reading and starting, of sweeps, of writing."""
    model = Recommender(factors=FACTORS, negatives=NEGATIVES, sweeps=SWEEPS, tolerance=0.0, threads=THREADS)
    watch = Anonymous()
    watch.start()
    begun = time.perf_counter()
    sweeps = [step.seconds for step in model.fit_steps(folder, backend=BACKENDS[way](folder))]
    fitted = time.perf_counter() - begun
    model.save(output)
    return {
        "fit": way,
        "s to read and begin": fitted - sum(sweeps),
        "s a sweep": float(np.median(sweeps[1:])),
        "s in all": time.perf_counter() - begun,
        "peak GB of this process": peak_bytes() / 1e9,
        "not of files": watch.most / 1e9,
        "bound": float(model.bound_[-1]),
    }


def same_model(one: str, other: str) -> bool:
    """Whether two model files have the same tensors, to the last bit."""
    first, second = (open_tensors(path, verify=False) for path in (one, other))
    return set(first) == set(second) and all(np.array_equal(first[name], second[name]) for name in first)


def run(quick: bool = False) -> Section:
    section = Section(f"Xbox size on Ray: from a folder of {FILES} Parquet files, K = {FACTORS}, c = {NEGATIVES:g}")
    with tempfile.TemporaryDirectory() as folder:
        likes = Path(folder) / "likes"
        likes.mkdir()
        graph = in_a_process("xbox", "write_likes", str(likes), 20_000 if quick else XBOX_SAMPLE.users)
        paths = [str(Path(folder) / f"{number}.model") for number in range(len(BACKENDS))]
        rows = [in_a_process("xbox", "fit", str(likes), path, way) for path, way in zip(paths, BACKENDS)]
        same = all(same_model(paths[0], other) for other in paths[1:])
    section.tables[f"{graph['edges']:,} edges, {graph['users']:,} users, {graph['items']:,} items; {SWEEPS} sweeps"] = (
        rows
    )
    section.notes = [
        "Each fit is in a process of its own, one after the other. On Ray the peak is the head's alone: workers and "
        "the object store are other processes; the model is assembled there from the workers' shards, mapped.",
    ]
    section.must("the model files of Ray and of files have the bits of that of threads (1 is yes)", int(same), least=1)
    section.must("a sweep on Ray, times that of threads", rows[1]["s a sweep"] / rows[0]["s a sweep"], most=1.5)
    return section


def main() -> None:
    command("xbox", run)


if __name__ == "__main__":
    main()
