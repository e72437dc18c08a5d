"""How much of a randomised suite runs: a fixed share in `make test`, all of it in `make test-long`.

`make test` runs the same cases every time. `make test-long` sets CONSIDERATE_LONG=1, runs every case, and lets
hypothesis draw new examples; a failure prints the blob that reproduces it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, TypeVar

from hypothesis import settings

LONG = os.environ.get("CONSIDERATE_LONG") == "1"
SHARE = 5  # `make test` runs one case in five

Case = TypeVar("Case")


def count(cases: int, at_least: int = 20) -> int:
    """How many of this many random cases to run."""
    return cases if LONG else min(cases, max(at_least, cases // SHARE))


def share(cases: Sequence[Case], size: int | None = None) -> list[Case]:
    """`size` of these cases (else one in five), evenly spread, the first and the last among them; all in a long run."""
    size = count(len(cases), 1) if size is None else min(size, len(cases))
    if LONG or size == len(cases):
        return list(cases)
    last = len(cases) - 1
    return [cases[round(last * k / max(size - 1, 1))] for k in range(size)]


def examples(number: int, at_least: int = 20, **options: Any) -> settings:
    """Settings of hypothesis for a test that takes this many examples in a long run."""
    return settings(
        max_examples=count(number, at_least), deadline=None, derandomize=not LONG, print_blob=True, **options
    )
