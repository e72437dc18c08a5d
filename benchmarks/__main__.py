"""All benchmarks, each in a process of its own: `make bench`.

    python -m benchmarks [--quick] [section ...]

Prints every section and writes results.md and results.json beside this file. Where only some sections are named, the
others stay in the files as they were measured before.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.report import Section, machine, markdown, table

FOLDER = Path(__file__).parent
NAMES = (
    "kernel",
    "draws",
    "walk",
    "fit",
    "item_pass",
    "peers_fit",
    "quality_time",
    "growth",
    "memory",
    "scale",
    "xbox",
    "million",
    "hundred_million",
    "recommend",
    "ann",
    "serve",
    "serve_faults",
    "soak",
    "evaluation",
    "load",
    "startup",
    "checksums",
    "reader",
    "simulation",
)


def measure(name: str, quick: bool) -> Section | None:
    """One section in a fresh process, which prints it; None where it failed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "section.json"
        arguments = [sys.executable, "-m", f"benchmarks.{name}", "--json", str(path)]
        done = subprocess.run(arguments + ["--quick"] * quick, cwd=FOLDER.parent, check=False)
        return Section.load(path) if done.returncode == 0 and path.exists() else None


def write(results: dict[str, Any], folder: Path) -> None:
    """results.json, and results.md for people."""
    folder.mkdir(parents=True, exist_ok=True)
    sections = {name: Section(**section) for name, section in results["sections"].items()}
    where = results["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in where["versions"].items())
    about = [f"{name.replace('_', ' ')}: {value}" for name, value in where.items() if name != "versions"]
    shown = [row for section in sections.values() for row in section.must_show]
    parts = [
        "# Benchmarks",
        "Written by `python -m benchmarks` (`make bench`); what the figures mean is in "
        "[docs/performance.md](../docs/performance.md). "
        "Times are medians of interleaved repeats unless a table says otherwise.",
        "\n".join(f"- {line}" for line in [*about, versions]),
        "## Targets",
        table(shown) if shown else "none measured",
        *(markdown(name, section) for name, section in sections.items()),
    ]
    (folder / "results.md").write_text("\n\n".join(part.rstrip() for part in parts) + "\n")
    (folder / "results.json").write_text(json.dumps(results, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("sections", nargs="*", metavar="section", help=f"of {', '.join(NAMES)}; all if none is named")
    parser.add_argument("--quick", action="store_true", help="a smoke run of a minute or two; writes into build/quick")
    options = parser.parse_args()
    unknown = [name for name in options.sections if name not in NAMES]
    if unknown:
        parser.error(f"there is no section {unknown[0]!r}; there are {', '.join(NAMES)}.")
    folder = FOLDER.parent / "build" / "quick" if options.quick else FOLDER
    results: dict[str, Any] = {"machine": machine(), "sections": {}}
    before = folder / "results.json"
    if options.sections and before.exists():
        results["sections"] = json.loads(before.read_text())["sections"]
    begun, failed = time.perf_counter(), []
    for name in options.sections or NAMES:
        section = measure(name, options.quick)
        if section is None:
            failed.append(name)
            continue
        results["sections"][name] = asdict(section)
        order = {name: results["sections"][name] for name in NAMES if name in results["sections"]}
        write(results | {"sections": order}, folder)
    print(f"{time.perf_counter() - begun:.0f} s; written to {folder / 'results.md'} and .json")
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
