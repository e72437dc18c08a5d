"""Folders that tests read."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]  # the repository
GOLDEN = ROOT / "tests" / "golden"
