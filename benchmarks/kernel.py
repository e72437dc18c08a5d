"""The kernel of a side's pass: nanoseconds an edge, and the share of the core's peak.

    python -m benchmarks kernel

Rows of degree 40, half of it liked; one thread. Flops are the useful ones
(docs/performance.md): lower triangle, K as given.
"""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.report import Section, command, median
from considerate.data.graph import Adjacency
from considerate.inference.hidden import Terms
from considerate.inference.posterior import Side
from considerate.inference.sums import EdgeSums, PassConstants, side_pass
from considerate.kernels import compiled

FACTORS = (8, 16, 20, 32, 64, 128)
DEGREE = 40
CACHE = 256 * 1024  # bytes of sums at a time
ROUND_FLOPS = 192  # of compiled.fma_loop


def sum_flops(K: int) -> int:
    """Of an edge: the three dot products of xi 6 K; for each block of k coordinates (one, unless K is large) the
    triangle k (k + 1), z 2 k, the variances' diagonal 2 k; and from the second on the means of two blocks."""
    sizes = compiled.coordinate_blocks(K)
    return 6 * K + sum(k * (k + 1) + 4 * k for k in sizes) + sum(2 * (a + b) for a, b in pairwise(sizes))


def solve_flops(K: int) -> float:
    """Of a row: for each block of k coordinates the Cholesky factor k^3 / 3 and the two triangular solves 2 k^2."""
    return sum(k**3 / 3 + 2 * k**2 for k in compiled.coordinate_blocks(K))


class Bench:
    """One K: its pass, and the three calls that are timed."""

    def __init__(self, K: int, rows: int, others: int) -> None:
        random = np.random.default_rng(K)

        def side(count: int, bias: bool) -> Side:
            made = Side.constant(count, K, 0.1, 0.1 if bias else None)
            made.mean[:] = np.float32(0.3) * random.standard_normal((count, K), np.float32)
            return made

        def edges() -> Adjacency:
            picked = random.integers(0, others, (rows, DEGREE // 2), np.int32)
            return Adjacency(np.arange(rows + 1, dtype=np.int64) * (DEGREE // 2), np.sort(picked, axis=1).reshape(-1))

        self.rows, self.others = rows, others
        self.own, other = side(rows, False), side(others, True)
        step = PassConstants(offset=0.0, likelihood_weight=1.0, tau=10.0, tau_bias=1.0, epsilon=1.0)
        self.kernel_pass = side_pass(self.own, other, edges(), Terms(unliked=edges()), step, own_is_user=True)
        self.out = np.zeros_like(self.own.rows)
        # sums alone and solve alone go through memory; so few rows at a time that it is the cache
        sizes = compiled.coordinate_blocks(K)
        chunk = 2 ** int(np.log2(min(rows, CACHE / (2 * max(sizes) * (max(sizes) + 1)))))
        self.chunks = np.arange(rows, dtype=np.int32).reshape(-1, chunk)
        self.sums = [EdgeSums.empty(chunk, size) for size in sizes]

    def update(self) -> None:
        compiled.update_rows(self.kernel_pass, 0, self.rows, self.out)

    def sum(self) -> None:
        end, kernel_pass, out = self.others, self.kernel_pass, self.out
        for which in self.chunks:
            for block, s in enumerate(self.sums):
                compiled.sum_rows(kernel_pass, which, 0, end, False, s.second, s.first, s.bias, block=block, rows=out)

    def solve(self) -> None:
        for which in self.chunks:
            for block, s in enumerate(self.sums):
                compiled.solve_rows(self.kernel_pass, which, s.second, s.first, s.bias, self.out, block=block)


def fma(rounds: int) -> tuple[float, float]:
    """(flops a second of the FMA loop, ticks a second x 32)."""
    begun = time.perf_counter()
    _, ticks = compiled.fma_loop(rounds)
    seconds = time.perf_counter() - begun
    return ROUND_FLOPS * rounds / seconds, 32 * ticks / seconds


def run(quick: bool = False) -> Section:
    rows, others, repeats = (512, 3500, 3) if quick else (4096, 3500, 15)
    benches = {K: Bench(K, rows, others) for K in FACTORS}
    seconds: dict[str, list[float]] = {}
    peaks, clocks = [], []
    for repeat in range(repeats + 1):
        for K, bench in benches.items():
            flops, ticks = fma(1_000_000 if quick else 5_000_000)
            for name in ("update", "sum", "solve"):
                begun = time.perf_counter()
                getattr(bench, name)()
                elapsed = time.perf_counter() - begun
                if repeat:  # the first one warms
                    seconds.setdefault(f"{name} {K}", []).append(elapsed)
            if repeat:
                peaks.append(flops)
                clocks.append(ticks)
    section = Section("Kernel: a side's pass at degree 40, one thread")
    section.raw = {"seconds": seconds, "fma_flops": peaks, "ticks_x_32": clocks, "rows": rows, "others": others}
    section.tables["FMA peak of the core, in the same process"] = [
        {"": name, "FMA loop GFLOP/s": f(peaks) / 1e9, "ticks/s x 32, GFLOP/s": f(clocks) / 1e9}
        for name, f in (("best", max), ("median", median))
    ]
    shares: dict[int, Any] = {}
    for name, best, peak in (("best", min, max(peaks)), ("median", median, median(peaks))):
        section.tables[f"{name.capitalize()} of {repeats} interleaved repeats"] = lines = []
        for K in FACTORS:
            update, alone, solve = (best(seconds[f"{what} {K}"]) / rows for what in ("update", "sum", "solve"))
            flops = DEGREE * sum_flops(K)
            share = {
                "all": (flops + solve_flops(K)) / update / peak,
                "sums": flops / max(update - solve, 1e-12) / peak,
                "sums alone": flops / alone / peak,
                "solve": solve_flops(K) / solve / peak,
            }
            shares[K] = shares.get(K, share)  # of the best
            lines.append(
                {
                    "K": K,
                    "blocks": "+".join(map(str, compiled.coordinate_blocks(K))),
                    "ns/edge with solve": 1e9 * update / DEGREE,
                    "ns/edge without": 1e9 * (update - solve) / DEGREE,
                    "ns/edge sum_rows": 1e9 * alone / DEGREE,
                    "ns/row solve": 1e9 * solve,
                    "flops/edge sums": sum_flops(K),
                    "flops/row solve": solve_flops(K),
                    "% peak all": 100 * share["all"],
                    "% sums (update - solve)": 100 * share["sums"],
                    "% sum_rows": 100 * share["sums alone"],
                    "% solve": 100 * share["solve"],
                }
            )
    section.notes = [
        f"{rows} rows of {DEGREE // 2} liked and {DEGREE // 2} unliked edges to {others} other rows drawn evenly.",
        "`update_rows` does all of it; `sum_rows` also copies the sums out and `solve_rows` copies them in, a chunk of "
        "rows at a time that the cache holds. 'without' is update - solve.",
        "xi and its gathers are in the sums' time; their flops are the three dot products (6 K).",
    ]
    section.must("K = 20: xi, sums and solve, % of FMA peak", 100 * shares[20]["all"], least=25)
    section.must("K = 64: sums (update - solve), % of FMA peak", 100 * shares[64]["sums"], least=55)
    section.must("K = 64: sums (sum_rows), % of FMA peak", 100 * shares[64]["sums alone"], least=55)
    section.must("K = 64: solve, % of FMA peak", 100 * shares[64]["solve"], least=20)
    section.must("K = 64: together, % of FMA peak", 100 * shares[64]["all"], least=35)
    return section


def main() -> None:
    command("kernel", run)


if __name__ == "__main__":
    main()
