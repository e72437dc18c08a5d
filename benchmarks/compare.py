"""Two checkouts on one machine: the same sections of the benchmarks in turn, and the ratios of what both measured.

    python -m benchmarks.compare BEFORE [--repeats 3] [--quick] section ...

BEFORE is another checkout with an environment of its own (`make .venv/.dev` there). Each repeat runs a section there
and here, so that both meet the same noise. A ratio is here / there, of medians over the repeats: of times, below 1 is
faster.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import median

HERE = Path(__file__).parents[1]
Measured = dict[tuple[str, ...], list[float]]  # (table, row, column) -> one value a repeat


def measure(tree: Path, python: str, section: str, quick: bool, into: Measured) -> None:
    """Run one section in its checkout, and add every figure that is a real number to `into`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "section.json"
        command = [python, "-m", f"benchmarks.{section}", "--json", str(path), *["--quick"] * quick]
        subprocess.run(command, cwd=tree, check=True, stdout=subprocess.DEVNULL)
        tables = json.loads(path.read_text())["tables"]
    for table, rows in tables.items():
        for row in rows:
            name = " ".join(f"{value}" for value in row.values() if not isinstance(value, float))
            for column, value in row.items():
                if isinstance(value, float):
                    into[table, name, column].append(value)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__.splitlines()[0])
    parser.add_argument("before", type=Path, help="the other checkout")
    parser.add_argument("sections", nargs="+")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    other = options.before / ".venv" / "bin" / "python"
    for section in options.sections:
        before: Measured = defaultdict(list)
        after: Measured = defaultdict(list)
        for _ in range(options.repeats):
            measure(options.before, str(other), section, options.quick, before)
            measure(HERE, sys.executable, section, options.quick, after)
        print(f"## {section}: here / {options.before}, medians of {options.repeats} interleaved repeats\n")
        ratios = {
            key: median(after[key]) / median(before[key]) for key in before if key in after and median(before[key])
        }
        for key, ratio in ratios.items():
            print(f"{ratio:7.3f}  {median(before[key]):12.4g} -> {median(after[key]):<12.4g} {' | '.join(key)}")
        print(f"\nmedian ratio {median(ratios.values()):.3f}\n" if ratios else "nothing that both measured\n")


if __name__ == "__main__":
    main()
