"""Load: imports in fresh processes, opening a model of 1 GB, the first recommendation after opening, and what it takes
to verify the model: the blocks of one user, of everyone, and the whole file.

python -m benchmarks load
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.data import random_model, recommender
from benchmarks.report import Row, Section, command, median
from benchmarks.serving import large_model
from considerate.storage import container

HEAVY = ("pyarrow", "scipy", "matplotlib")
STATEMENTS = ("pass", "import numpy", "import considerate", "from considerate import Recommender", "import implicit")
IMPORT = """
import json, sys, time
begun = time.perf_counter()
exec(sys.argv[1])
seconds = time.perf_counter() - begun
print(json.dumps([seconds, sorted({name.partition(".")[0] for name in sys.modules})]))
"""
OPEN = """
import json, sys, time
start = time.perf_counter()
from considerate import Recommender
imported = time.perf_counter()
model = Recommender.load(sys.argv[1], verify={"whole": True, "never": False}.get(sys.argv[2]))
opened = time.perf_counter()
model.recommend(1234)
first = time.perf_counter()
model.recommend(4321)
second = time.perf_counter()
model.model_.users.whole()
whole = time.perf_counter()
from benchmarks.report import peak_bytes
print(json.dumps([imported - start, opened - imported, first - opened, second - first, whole - second, peak_bytes()]))
"""


def fresh(code: str, *arguments: str) -> Any:
    """The JSON that a fresh interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code, *arguments], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def run(quick: bool = False) -> Section:
    repeats = 3 if quick else 11
    seconds: dict[str, list[float]] = {}
    loaded: dict[str, list[str]] = {}
    for repeat in range(repeats + 1):
        for statement in STATEMENTS:
            took, loaded[statement] = fresh(IMPORT, statement)
            if repeat:
                seconds.setdefault(statement, []).append(took)
    section = Section("Load and import, in fresh processes")
    section.raw = {"import": seconds}
    section.tables[f"Imports, medians of {repeats} interleaved processes"] = [
        {
            "statement": statement,
            "ms": 1e3 * median(seconds[statement]),
            "best ms": 1e3 * min(seconds[statement]),
            "loads of " + ", ".join(HEAVY): ", ".join(one for one in HEAVY if one in loaded[statement]) or "none",
        }
        for statement in STATEMENTS
    ]
    users = 400_000 if quick else 3_900_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        model = recommender(random_model(users, 12_000, likes=10))
        model.save(path)
        size = path.stat().st_size
        repeats = 3 if quick else 5
        runs = {how: [fresh(OPEN, str(path), how) for _ in range(repeats)] for how in ("used", "whole", "never")}
        with mock.patch.object(container, "VERIFY_WHOLE", 1 << 62):
            model.save(path)  # as release 0.1 did, without checksums of blocks
        runs["0.1"] = [fresh(OPEN, str(path), "used") for _ in range(repeats)]
        large = Path(folder) / "large.safetensors"
        sides = (20_000, 20_000) if quick else (1_000_000, 1_000_000)
        recommender(large_model(*sides, 32, 20)).save(large)
        large_size = large.stat().st_size
        runs["large"] = [fresh(OPEN, str(large), "used") for _ in range(repeats)]
    section.raw["open"] = runs
    names = ("import s", "open s", "first recommendation s", "second s", "everyone verified s", "peak bytes")
    labels = {
        "used": "what is used, the default",
        "whole": "all at once, verify=True",
        "never": "nothing, verify=False",
        "0.1": "what is used, a file of 0.1",
    }
    table: list[Row] = []
    for how, label in labels.items():
        row: Row = {name: median([one[i] for one in runs[how]]) for i, name in enumerate(names)}
        row["peak GB"] = row.pop("peak bytes") / 1e9
        table.append({"verified": label, **row})
    section.tables[f"A model file of {users:,} users, 12,000 items, K = 20: {size / 1e9:.3g} GB"] = table
    row = {name: median([one[i] for one in runs["large"]]) for i, name in enumerate(names)}
    row["peak GB"] = row.pop("peak bytes") / 1e9
    section.tables[f"{sides[0]:,} users x {sides[1]:,} items, K = 32, with the walk: {large_size / 1e9:.3g} GB"] = [row]
    section.must(f"opening {sides[0]:,} users x {sides[1]:,} items, ms", 1e3 * row["open s"], most=50)
    section.notes = ["The model file has just been written, so it is read from the system's cache, not from a disk."]
    for name in HEAVY:
        section.must(f"`import considerate` loads {name} (0 is no)", int(name in loaded["import considerate"]), most=0)
    return section


def main() -> None:
    command("load", run)


if __name__ == "__main__":
    main()
