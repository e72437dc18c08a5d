"""The paper's inner loops on a slow network: what several local sweeps between two messages buy (eq. 21).

    python -m studies.inner [--data FOLDER] [--workers 8]

MovieLens-1M, *expected* mode, whose bound is exact. Parts are in this process, so the messages' bytes are counted and
not sent: the seconds of a network are the bytes over its bandwidth, and those of the work are this machine's, shared
out among the workers.
"""

from __future__ import annotations

import time
from typing import Any

from considerate import read_interactions
from considerate.data.graph import Graph, divide
from considerate.distributed.backends.base import PartitionedBackend
from considerate.distributed.messages import PartitionSetup
from considerate.distributed.partitions import make_partition
from considerate.distributed.pools import LocalPool, size_of
from considerate.distributed.runners import make_runner
from considerate.evaluation.protocol import graph_of
from considerate.inference.hidden import popularity_weights
from considerate.inference.plan import FitPlan
from studies.options import study_parser

WAYS = {
    "plain": {},
    "all, L = 2": {"inner_sweeps": 2, "inner": "all"},
    "all, L = 4": {"inner_sweeps": 4, "inner": "all"},
    "one, L = 2": {"inner_sweeps": 2, "inner": "one"},
    "one, L = 4": {"inner_sweeps": 4, "inner": "one"},
}
NETWORKS = {"1 Gbit/s": 1.25e8, "100 Mbit/s": 1.25e7, "10 Mbit/s": 1.25e6}
SWEEPS, TARGET = 12, 8  # the target is the bound that plain sweeps have reached after so many


class Counting(LocalPool):
    """A pool that counts what it would send to each of `workers` machines, and what they would send up."""

    def __init__(self, parts: list[Any], workers: int) -> None:
        super().__init__(parts, 2)
        self.workers, self.bytes = workers, 0

    def share(self, value: Any, keep: bool = False) -> Any:
        self.bytes += size_of(value) * self.workers
        return super().share(value, keep)

    def call(self, method: Any, *arguments: Any, **options: Any) -> Any:
        answer = super().call(method, *arguments, **options)
        merged = options.get("merge") is not None
        self.bytes += size_of(answer) * (self.workers if merged else 1)  # a node of sums from every worker
        return answer


def run(graph: Graph, way: str, workers: int) -> list[tuple[float, float, float]]:
    """(bound, seconds of work, bytes) by sweep: the bound before it, and what the sweeps before it took."""
    settings = FitPlan.of_paper(precision_delay=2, hidden="expected")
    outline, parts = divide(graph)
    setup = PartitionSetup.of(outline, settings)
    pool = Counting([make_partition(part, setup) for part in parts], workers)
    weights = popularity_weights(graph.by_item.degrees, 1.0)
    runner = make_runner(outline, setup, weights, pool, PartitionedBackend(**WAYS[way]))
    found, spent, sent = [], 0.0, 0.0
    begun, sweeps = time.perf_counter(), runner.sweeps()
    for _ in range(SWEEPS + 1):
        done = next(sweeps)
        found.append((done.bound.total, spent, sent))
        spent, sent = time.perf_counter() - begun, float(pool.bytes)
    pool.close()
    return found


def main() -> None:
    parser = study_parser(__doc__)
    parser.add_argument("--workers", type=int, default=8)
    options = parser.parse_args()
    graph = graph_of(read_interactions(options.data / "ml-1m" / "ratings.parquet", where="rating >= 4"))
    runs = {way: run(graph, way, options.workers) for way in WAYS}
    target = runs["plain"][TARGET][0]
    print(f"MovieLens-1M, K = 20, c = 1, expected; {options.workers} workers of one thread. Until the bound is that of")
    print(f"{TARGET} plain sweeps, {target:,.0f}:")
    names = "".join(f" {f's, {name}':>16}" for name in NETWORKS)
    print(f"{'':12} {'sweeps':>7} {'s at work':>10} {'MB moved':>9}{names}   bound after {SWEEPS}")
    for way, found in runs.items():
        reached = next((at for at, one in enumerate(found) if one[0] >= target), None)
        last = f"{found[-1][0]:,.0f}"
        if reached is None:
            print(f"{way:12} {'never':>7} {'':10} {'':9}{'':{17 * len(NETWORKS)}}   {last}")
            continue
        _, spent, sent = found[reached]
        alone = way.startswith("one")  # all others wait
        work = 2 * spent / (1 if alone else options.workers)
        times = "".join(f" {work + sent / rate:16.1f}" for rate in NETWORKS.values())
        print(f"{way:12} {reached:7} {work:10.2f} {sent / 1e6:9.1f}{times}   {last}")


if __name__ == "__main__":
    main()
