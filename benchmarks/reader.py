"""Ten million likes with string ids: how long the reader takes and how much memory, from CSV and from Parquet.

    python -m benchmarks.reader

Each read runs in a process of its own, so that the peak is that of the read. To beat: 6 seconds, 2 GB.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

READ = """
import json, resource, sys, time
start = time.perf_counter()
from considerate.interactions import read_interactions
likes = read_interactions(sys.argv[1])
seconds = time.perf_counter() - start
unit = 1 if sys.platform == "darwin" else 1024
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
print(json.dumps([seconds, peak, likes.rows_kept, len(likes.user_ids), len(likes.item_ids)]))
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


def measure(path: Path) -> tuple[float, float, int, int, int]:
    """Seconds (with the imports), peak bytes, and the sizes of what was read, in a fresh process."""
    out = subprocess.run([sys.executable, "-c", READ, str(path)], check=True, capture_output=True, text=True)
    seconds, peak, rows, users, items = json.loads(out.stdout)
    return seconds, peak, rows, users, items


def main() -> None:
    """Print one line per format."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--users", type=int, default=1_000_000)
    parser.add_argument("--items", type=int, default=50_000)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for path in make_files(Path(folder), options.rows, options.users, options.items):
            runs = [measure(path) for _ in range(options.repeat)]
            _, _, rows, users, items = runs[0]
            seconds = ", ".join(f"{run[0]:.2f}" for run in runs)
            print(
                f"{path.suffix[1:]:8} {rows:,} rows, {users:,} users, {items:,} items: "
                f"{seconds} s, peak {max(run[1] for run in runs) / 2**20:,.0f} MB",
                flush=True,
            )


if __name__ == "__main__":
    main()
