"""A service that answers for long: its memory and its file handles stay. The benchmark `soak` has the times, too."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.soak import growth, soaked
from tests.helpers.randomised import LONG


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells what processes hold")
def test_memory_and_handles_stay(tmp_path: Path) -> None:
    minutes = soaked(tmp_path, 2_000, 500, 60.0 if LONG else 0.2, rate=1_000.0 if LONG else 500.0)
    assert sum(row["failed"] for row in minutes) == 0
    assert all(row["answers"] >= 100 for row in minutes)
    assert growth(minutes, "memory MB") < 1.05
    assert growth(minutes, "file handles") < 1.05
