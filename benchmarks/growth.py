"""Growth: ns an edge and peak memory as the graph grows to the paper's Xbox sample, and as K grows.

    python -m benchmarks growth

Graphs have the laws and the items of the Xbox sample and fewer users, the items' cut-off rebalanced. Each fit runs in
a process of its own that reads the pairs from a file and goes the public way: Recommender(...).fit_steps(...).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import movielens_or_simulated, xbox_like
from benchmarks.item_pass import Sweeps
from benchmarks.quality import KNOB, our_rank
from benchmarks.report import THREADS, Row, Section, command, median, peak_bytes
from considerate import Interactions, Recommender
from considerate.data.graph import Graph
from considerate.data.vocabulary import Vocabulary
from considerate.evaluation.split import HeldOut, one_per_user
from considerate.kernels import compiled
from considerate.simulation.simulate import XBOX_SAMPLE
from considerate.study.peers import training_matrix

USERS = {"10^5": 13_600, "10^6": 136_000, "10^7": 1_360_000, "Xbox sample": XBOX_SAMPLE.users}
SWEEPS = {"10^5": 12, "10^6": 12, "10^7": 4, "Xbox sample": 3}  # short ones more often
FIT = """
import json, sys
from benchmarks.growth import fit_file
print(json.dumps(fit_file(*json.loads(sys.argv[1]))))
"""
FACTORS = (8, 16, 20, 32, 64, 128)
WIDE = (32, 64, 128, 256)


def fit_file(path: str, factors: int, sweeps: int) -> Row:
    """In a fresh process: a few sweeps, sampled c = 1. The first sweep pays for memory and is not in the median."""
    with np.load(path) as file:
        users, items = file["users"], file["items"]
        shape = [int(size) for size in file["shape"]]
    likes = Interactions(
        users,
        items,
        Vocabulary.range(shape[0]),
        Vocabulary.range(shape[1]),
        None,
        path,
        len(users),
        len(users),
        (),
    )
    read = peak_bytes()
    cpu = time.process_time()
    model = Recommender(factors=factors, negatives=1.0, sweeps=sweeps, tolerance=0.0, threads=THREADS)
    seconds, cpus = [], []
    begun = time.perf_counter()
    for step in model.fit_steps(likes):
        cpus.append(time.process_time() - cpu)
        seconds.append(step.seconds)
        cpu = time.process_time()
    edges = 2 * 2 * len(users)  # |H| = 2 |G|, and both sides
    return {
        "users": shape[0],
        "edges": len(users),
        "K": factors,
        "s/sweep": median(seconds[1:]),
        "ns/edge/side": 1e9 * median(seconds[1:]) / edges,
        "CPU ns/edge/side": 1e9 * median(cpus[1:]) / edges,
        "first sweep s": seconds[0],
        "graph, fit and bound s": time.perf_counter() - begun,
        "peak GB": peak_bytes() / 1e9,
        "of that before the fit": read / 1e9,
        "sweeps": seconds,
    }


def measure(path: Path, factors: int, sweeps: int) -> Row:
    """`fit_file` in a process of its own."""
    arguments = json.dumps([str(path), factors, sweeps])
    done = subprocess.run([sys.executable, "-c", FIT, arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the fit of {path.name} at K = {factors} failed:\n{done.stderr}")
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def learned(split: HeldOut, factors: int, sweeps: int) -> Row:
    """Seconds a sweep and S_rank at some K, sampled c = 1."""
    model = Recommender(factors=factors, negatives=1.0, sweeps=sweeps, tolerance=0.0, threads=THREADS)
    seconds = median([step.seconds for step in model.fit_steps(training_matrix(split.train))][1:])
    return {
        "K": factors,
        "s/sweep": seconds,
        "ns/edge/side": 1e9 * seconds / (4 * split.train.edges),
        f"S_rank at knob {KNOB}": our_rank(split, model),
    }


def together_or_not(graph: Graph, factors: int, sweeps: int, splits: int) -> list[Row]:
    """S_rank of rows stepped by blocks of coordinates and of rows stepped whole, on the same splits."""
    rows = []
    for seed in range(splits):
        split = one_per_user(graph, seed=seed)
        row: Row = {"split": seed, "K": factors}
        for name, most in (("in blocks", 64), ("together", factors)):
            before = compiled.step_together(most)
            try:
                done = learned(split, factors, sweeps)
            finally:
                compiled.step_together(before)
            row |= {f"s/sweep, {name}": done["s/sweep"], f"S_rank, {name}": done[f"S_rank at knob {KNOB}"]}
        rows.append(row)
    return rows


def by_factors(graph: Graph, count: int) -> list[Row]:
    """CPU ns per edge of H of either side's pass, one thread, by K: medians of sweeps in turn, and times K = 64."""
    rows: list[Row] = []
    for consideration in ("popularity", "walk"):
        fits = {K: Sweeps(graph, consideration, K) for K in WIDE}
        for fit in fits.values():
            fit.sweep()  # the first pays for memory
        turns = [{K: fit.sweep() for K, fit in fits.items()} for _ in range(count)]
        for K, fit in fits.items():
            row: Row = {"H by": consideration, "K": K}
            row |= {side: 1e9 * median([turn[K][side] for turn in turns]) / fit.edges for side in ("users", "items")}
            both = [{k: parts["users"] + parts["items"] for k, parts in turn.items()} for turn in turns]
            rows.append(row | {"both / K = 64": median([turn[K] / turn[64] for turn in both])})
    return rows


def instruction_sets(graph: Graph, count: int) -> list[Row]:
    """CPU ns per edge and side of the passes by the build of the kernels, one thread: medians of sweeps in turn."""
    rows: list[Row] = []
    before = compiled.instruction_set()
    try:
        for K in (20, 32, 64, 128):
            fit, found = Sweeps(graph, "popularity", K), dict[str, list[float]]()
            fit.sweep()
            for _ in range(count):
                for name in compiled.instruction_sets():
                    compiled.use_instruction_set(name)
                    parts = fit.sweep()
                    found.setdefault(name, []).append(5e8 * (parts["users"] + parts["items"]) / fit.edges)
            rows.append({"K": K} | {name: median(values) for name, values in found.items()})
    finally:
        compiled.use_instruction_set(before)
    return rows


def plot(section: Section, folder: Path) -> str:
    """growth.svg and factors.svg, or why there are none."""
    try:
        import matplotlib

        matplotlib.use("svg")
        import matplotlib.pyplot as plt
    except ImportError:
        return "no plots: matplotlib is not installed"
    sizes, factors = list(section.tables.values())[:2]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    edges = [row["edges"] for row in sizes]
    left.semilogx(edges, [row["ns/edge/side"] for row in sizes], "o-")
    left.set(xlabel="edges", ylabel="ns an edge and side", ylim=(0, None), title=f"K = 20, {THREADS} threads")
    right.loglog(edges, [row["peak GB"] for row in sizes], "o-")
    right.set(xlabel="edges", ylabel="peak memory, GB")
    figure.savefig(folder / "growth.svg", metadata={"Date": None})
    plt.close(figure)
    figure, axes = plt.subplots(figsize=(4.5, 3.4), layout="constrained")
    axes.loglog([row["K"] for row in factors], [row["ns/edge/side"] for row in factors], "o-", base=2)
    axes.set(xlabel="K", ylabel="ns an edge and side", title=f"{factors[0]['edges']:,} edges, {THREADS} threads")
    figure.savefig(folder / "factors.svg", metadata={"Date": None})
    plt.close(figure)
    return "Plots: benchmarks/growth.svg, benchmarks/factors.svg"


def run(quick: bool = False) -> Section:
    section = Section(f"Growth: sampled, c = 1, {THREADS} threads")
    names = ["10^5", "10^6"] if quick else list(USERS)
    repeats = 1 if quick else 2
    with tempfile.TemporaryDirectory() as folder:
        paths = {}
        for name in names:
            users, items = xbox_like(USERS[name])
            paths[name] = Path(folder) / f"{name.replace(' ', '-')}.npz"
            shape = np.array([USERS[name], XBOX_SAMPLE.items])
            np.savez(paths[name], users=users, items=items, shape=shape)
            del users, items
        found: dict[Any, list[Row]] = {}
        for _ in range(repeats):
            for name in names:
                found.setdefault(name, []).append(measure(paths[name], 20, 3 if quick else SWEEPS[name]))
            for K in FACTORS:
                found.setdefault(K, []).append(measure(paths["10^6"], K, 3 if quick else 5))
    section.raw = {str(key): rows for key, rows in found.items()}
    medians = {key: _median(rows) for key, rows in found.items()}
    section.tables[f"Edges, K = 20, medians of {repeats} fresh processes"] = [
        {"graph": name, **medians[name]} for name in names
    ]
    section.tables["K, 10^6 edges"] = [medians[K] for K in FACTORS]
    name, graph = movielens_or_simulated()
    count = 2 if quick else 15
    split = one_per_user(graph, seed=0)
    quality = [learned(split, K, count) for K in (20, 64, 128)]
    section.tables[f"K and S_rank after {count} sweeps on {name}"] = quality
    together = together_or_not(graph, 128, count, 1 if quick else 3)
    section.tables[f"K = 128 by blocks of coordinates and all together, {count} sweeps on {name}"] = together
    wide = by_factors(graph, 1 if quick else 7)
    section.tables[f"CPU ns per edge by K on {name}, one thread"] = wide
    section.tables[f"CPU ns per edge and side by instruction set on {name}, one thread"] = instruction_sets(
        graph, 1 if quick else 7
    )
    section.notes = [
        "Graphs by the laws of the paper's Xbox sample: 12,000 items, user law of exponent 1.4 cut off at 70, item law "
        "of exponent 0.77 with its cut-off rebalanced for the number of users. Simulating and reading are not counted.",
        "By K and by instruction set: *sampled*, c = 3, the two passes alone.",
        "ns/edge/side is wall time of a sweep / (2 |H|), |H| = 2 |G|; the first sweep, which pays for memory, is not "
        "in the median. The peak is of the whole process, with the pairs that were read.",
        plot(section, Path(__file__).parent) if not quick else "no plots in a quick run",
    ]
    xbox = medians.get("Xbox sample")
    section.must("Xbox size, K = 20: s a sweep", xbox and xbox["s/sweep"], most=6)
    section.must("Xbox size, K = 20: GB at the peak", xbox and xbox["peak GB"], most=4)
    ratio = xbox and xbox["ns/edge/side"] / medians["10^6"]["ns/edge/side"]
    section.must("Xbox size: ns an edge, times that of 10^6 edges", ratio, most=1.5)
    ratio = medians[128]["ns/edge/side"] / medians[64]["ns/edge/side"]
    section.must("K = 128: cost of an edge, times that of K = 64 (10^6 edges)", ratio, most=3)
    ratio = quality[2]["ns/edge/side"] / quality[1]["ns/edge/side"]
    section.must(f"K = 128: cost of an edge, times that of K = 64 ({name})", ratio, most=3)
    for K, most in ((128, 2.2), (256, 4)):
        worst = max(row["both / K = 64"] for row in wide if row["K"] == K)
        section.must(f"K = {K}: the passes' CPU ns per edge, times those of K = 64 ({name})", worst, most=most)
    gains = [row["S_rank, in blocks"] - row["S_rank, together"] for row in together]
    section.must("K = 128 in blocks: S_rank less that of all coordinates together", min(gains), least=-0.001)
    return section


def _median(rows: list[Row]) -> Row:
    """Medians of the figures; sizes are the same in every repeat."""
    kept = {key: value for key, value in rows[0].items() if not isinstance(value, list)}
    return {key: value if isinstance(value, int) else median([row[key] for row in rows]) for key, value in kept.items()}


def main() -> None:
    command("growth", run)


if __name__ == "__main__":
    main()
