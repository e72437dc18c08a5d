"""How long `considerate --help` takes: the median of five warm runs. To beat: 0.4 seconds.

python -m benchmarks.startup
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

COMMAND = [
    sys.executable,
    "-c",
    "import sys; sys.argv = ['considerate', '--help']; import considerate.cli as c; c.main()",
]


def measure(runs: int = 5) -> list[float]:
    """Seconds of each run, after one that warms the caches."""
    seconds = []
    for run in range(runs + 1):
        start = time.perf_counter()
        subprocess.run(COMMAND, check=True, capture_output=True)
        if run:
            seconds.append(time.perf_counter() - start)
    return seconds


def main() -> None:
    """Print one line."""
    seconds = measure()
    print(f"considerate --help  {statistics.median(seconds):.2f} s (median of {len(seconds)}; at most 0.4)")


if __name__ == "__main__":
    main()
