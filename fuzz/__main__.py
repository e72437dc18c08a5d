"""All targets in turn: `python -m fuzz --minutes 10 [TARGET ...]`. Exits with 1 if anything was found."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = [
    *("container", "model", "checkpoint", "where", "csv", "features", "impossible", "events-body", "events-file"),
    "kernels",
]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(NAMES))
    parser.add_argument("--minutes", type=float, default=10.0, help="for all targets together")
    parser.add_argument("--folder", type=Path, default=Path("build/fuzz"), help="for corpora and findings")
    given = parser.parse_args()
    names = given.targets or NAMES
    seconds, found = max(1, round(60 * given.minutes / len(names))), 0
    print(f"{'target':<12} {'inputs':>9} {'findings':>8}")
    for name in names:
        inputs, findings = run(name, given.folder / name, seconds)
        found += len(findings)
        print(f"{name:<12} {inputs:>9,} {len(findings):>8}", *findings, flush=True)
    return 1 if found else 0


def run(name: str, folder: Path, seconds: int) -> tuple[int, list[str]]:
    """(number of inputs, files of findings) of one target."""
    shutil.rmtree(folder / "findings", ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "log"
    with open(log, "wb") as output:
        command = [sys.executable, "-m", "fuzz.run", name, str(folder), str(seconds)]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        code = subprocess.run(command, stdout=output, stderr=output, env=environment).returncode
    text = log.read_text(errors="replace")
    counts = [int(count) for count in re.findall(r"^(?:Done |#)(\d+)", text, re.MULTILINE)]
    findings = sorted(str(path) for path in (folder / "findings").glob("*") if path.suffix != ".txt")
    if code and not findings:
        findings = [str(log)]
    return max(counts, default=0), findings


if __name__ == "__main__":
    sys.exit(main())
