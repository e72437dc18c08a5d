"""Ten million likes with string ids become G: how long it takes and how much memory, from CSV and from Parquet.

    python -m benchmarks reader

Each read runs in a process of its own, so that the peak is that of the read. To beat: 8 seconds, 2 GB.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.report import Section, command, median

READ = """
import json, sys, time
start = time.perf_counter()
from considerate.data import read_interactions
likes = read_interactions(sys.argv[1])
read = time.perf_counter() - start
from considerate.data.graph import Graph
graph = Graph.from_pairs(likes.users, likes.items, len(likes.user_ids), len(likes.item_ids))
seconds = time.perf_counter() - start
from benchmarks.report import peak_bytes
print(json.dumps([seconds, peak_bytes(), likes.rows_kept, graph.user_count, graph.item_count, read]))
"""


def make_files(folder: Path, rows: int, users: int, items: int) -> list[Path]:
    """The same likes as CSV and as Parquet; items are drawn with a head, users evenly."""
    import pyarrow as pa
    import pyarrow.csv as csv
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    user_names = pa.array([f"user-{number:07d}" for number in range(users)])
    item_names = pa.array([f"item-{number:05d}" for number in range(items)])
    table = pa.table(
        {
            "user_id": user_names.take(pa.array(rng.integers(0, users, rows))),
            "item_id": item_names.take(pa.array((rng.random(rows) ** 2 * items).astype(np.int64))),
        }
    )
    paths = [folder / "likes.csv", folder / "likes.parquet"]
    csv.write_csv(table, paths[0])
    pq.write_table(table, paths[1])
    return paths


def measure(path: Path) -> tuple[float, float, int, int, int, float]:
    """Seconds to G (with the imports), peak bytes, the sizes, and the seconds of the read, in a fresh process."""
    out = subprocess.run([sys.executable, "-c", READ, str(path)], check=True, capture_output=True, text=True)
    seconds, peak, rows, users, items, read = json.loads(out.stdout)
    return seconds, peak, rows, users, items, read


def run(quick: bool = False) -> Section:
    rows, users, items, repeats = (200_000, 20_000, 1_000, 1) if quick else (10_000_000, 1_000_000, 50_000, 3)
    section = Section(f"Reader: {rows:,} likes with string ids")
    lines = section.tables[f"Medians of {repeats} interleaved fresh processes, imports counted"] = []
    with tempfile.TemporaryDirectory() as folder:
        paths = make_files(Path(folder), rows, users, items)
        found = [[measure(path) for path in paths] for _ in range(repeats)]
    for path, runs in zip(paths, zip(*found)):
        seconds, peak = median([run[0] for run in runs]), max(run[1] for run in runs) / 1e9
        lines.append(
            {
                "format": path.suffix[1:],
                "rows": runs[0][2],
                "users": runs[0][3],
                "items": runs[0][4],
                "s to read": median([run[5] for run in runs]),
                "s to G": seconds,
                "most s to G": max(run[0] for run in runs),
                "peak GB": peak,
            }
        )
        section.must(f"{path.suffix[1:]}: s to G", seconds, most=8)
        section.must(f"{path.suffix[1:]}: GB at the peak", peak, most=2)
    section.raw = {"seconds and bytes": found}
    return section


def main() -> None:
    command("reader", run)


if __name__ == "__main__":
    main()
