"""10^8 likes of five million users and 200,000 items, from a folder of Parquet files: in memory and out of core.

    python -m benchmarks hundred_million

Each fit is a process of its own. Its peak is VmHWM, which has pages of files in it, and beside it is the memory that is
not of files: what a machine must have. There is no opening: both sweeps draw.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.million import FACTORS, FEW_SWEEPS
from benchmarks.report import THREADS, Section, command, in_a_process

USERS, ITEMS, FILES, NEGATIVES = 5_000_000, 200_000, 20, 5.0


def run(quick: bool = False) -> Section:
    users, items = (USERS // 200, ITEMS // 200) if quick else (USERS, ITEMS)
    section = Section(f"10^8 likes: K = {FACTORS}, c = {NEGATIVES:g}, {THREADS} threads, {FEW_SWEEPS} sweeps")
    with tempfile.TemporaryDirectory() as name:
        likes = Path(name) / "likes"
        likes.mkdir()
        written = in_a_process("million", "write_likes", str(likes), users, items, FILES)
        count = written["likes"]
        fits = [
            in_a_process("million", "fit", str(likes), "", way, count, FEW_SWEEPS, NEGATIVES, 0)
            for way in ("in memory", "out of core")
        ]
    section.tables[f"{count:,} likes of {users:,} users and {items:,} items"] = [written, *fits]
    section.notes = [f"{FILES} files of consecutive users. The laws are those of `million`."]
    same = int(fits[0]["bits"] == fits[1]["bits"])
    section.must("out of core: the bits of the fit in memory (1 is yes)", same, least=1)
    fitted = None if quick else fits[0]["not of files"]
    section.must("GB in memory, not of files", fitted, most=24.0)
    return section


def main() -> None:
    command("hundred_million", run)


if __name__ == "__main__":
    main()
