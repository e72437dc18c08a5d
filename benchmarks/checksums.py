"""How fast one core hashes: the checksum of the model file, and what it was chosen over.

python -m benchmarks.checksums
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.report import Section, command, interleaved, median
from considerate.storage.container import VERIFY_WHOLE

CHECKSUMS: dict[str, Callable[[bytes], Any]] = {
    "sha256": hashlib.sha256,
    "blake2b": hashlib.blake2b,
    "crc32": zlib.crc32,
}


def run(quick: bool = False) -> Section:
    size = VERIFY_WHOLE // 64 if quick else VERIFY_WHOLE
    data = np.random.default_rng(0).bytes(size)
    repeats = 3 if quick else 11
    seconds = interleaved({name: partial(function, data) for name, function in CHECKSUMS.items()}, repeats)
    section = Section("Checksums of the model file, on one core", raw={"bytes": size, "seconds": seconds})
    section.tables[f"{size / 1e6:g} MB, medians of {repeats} interleaved repeats"] = [
        {"checksum": name, "ms": 1e3 * median(took), "GB/s": size / median(took) / 1e9}
        for name, took in seconds.items()
    ]
    return section


def main() -> None:
    command("checksums", run)


if __name__ == "__main__":
    main()
