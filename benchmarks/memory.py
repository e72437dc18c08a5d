"""Memory of a fit: its peak, measured in fresh processes, beside the estimate that the check before a fit uses.

    python -m benchmarks memory

Matrices of uniform random likes; `walk` is *sampled* with draws by the walk.

The peak is that of the process while it fits (VmHWM), less what it held before.
"""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np

from benchmarks.report import THREADS, Row, Section, command, in_a_process, peak_bytes

# users, items, likes, factors, estimator, negatives
CASES = (
    (100_000, 10_000, 6_000_000, 32, "sampled", 5.0),
    (1_000_000, 1_000_000, 5_000_000, 8, "sampled", 5.0),
    (1_000_000, 10_000, 4_000_000, 20, "sampled", 1.0),
    (50_000, 50_000, 10_000_000, 20, "sampled", 0.5),
    (50_000, 2_000_000, 3_000_000, 16, "sampled", 2.0),
    (500_000, 50_000, 1_500_000, 64, "sampled", 1.0),
    (1_000_000, 20_000, 5_000_000, 32, "expected", 5.0),
    (50_000, 1_000_000, 3_000_000, 32, "expected", 5.0),
    (100_000, 10_000, 3_000_000, 16, "walk", 2.0),
    (500_000, 200_000, 3_000_000, 8, "walk", 1.0),
)


def resident_bytes() -> int:
    """The memory that this process has resident now; its peak counts from here."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    return peak_bytes()


def fit(users: int, items: int, likes: int, factors: int, kind: str, negatives: float) -> Row:
    """In a fresh process: the peak of two sweeps, above what there was before."""
    import scipy.sparse

    from considerate import Recommender
    from considerate.fitting.memory import needed_memory

    settings = {"hidden": "sampled", "consideration": "walk"} if kind == "walk" else {"hidden": kind}
    settings = {"consideration": "popularity", "factors": factors, "threads": THREADS} | settings
    Recommender(**settings, sweeps=1).fit(scipy.sparse.identity(100, format="csr"))  # imports
    random = np.random.default_rng(0)
    rows, columns = (random.integers(count, size=likes, dtype=np.int32) for count in (users, items))
    matrix = scipy.sparse.csr_matrix((np.ones(likes, np.float32), (rows, columns)), (users, items))
    matrix.data[:] = 1
    del rows, columns
    before = resident_bytes()
    model = Recommender(**settings, negatives=negatives, sweeps=2, tolerance=0)
    model.fit(matrix)
    return {
        "users": users,
        "items": items,
        "likes": matrix.nnz,
        "K": factors,
        "estimator": kind,
        "c": negatives,
        "peak MB": (peak_bytes() - before) / 1e6,
        "estimate MB": needed_memory(users, items, matrix.nnz, model.plan()) / 1e6,
    }


def run(quick: bool = False) -> Section:
    section = Section("Memory of a fit")
    cases = [(u // 20, i // 20, e // 20, *rest) for u, i, e, *rest in CASES] if quick else CASES
    rows = section.tables["Peak of two sweeps, and the estimate before them"] = []
    for case in cases:
        row = in_a_process("memory", "fit", *case)
        rows.append(row | {"estimate / peak": row["estimate MB"] / row["peak MB"]})
    section.notes = ["What the process held before the fit, the matrix among it, is not counted."]
    off = max(abs(row["estimate / peak"] - 1) for row in rows)
    section.must("estimate of the memory: its largest relative error", None if quick else off, most=0.2)
    return section


def main() -> None:
    command("memory", run)


if __name__ == "__main__":
    main()
