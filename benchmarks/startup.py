"""How long `considerate --help` takes: the median of five warm runs. To beat: 0.4 seconds.

python -m benchmarks startup
"""

from __future__ import annotations

import subprocess
import sys

from benchmarks.report import Section, command, interleaved, median

COMMAND = [
    sys.executable,
    "-c",
    "import sys; sys.argv = ['considerate', '--help']; import considerate.cli as c; c.main()",
]


def run(quick: bool = False) -> Section:
    repeats = 2 if quick else 5
    found = interleaved({"help": lambda: subprocess.run(COMMAND, check=True, capture_output=True)}, repeats)["help"]
    section = Section("Start of the shell: `considerate --help`", raw={"seconds": found})
    section.tables["Warm runs"] = [{"runs": repeats, "median s": median(found), "best s": min(found)}]
    section.must("`considerate --help`, s", median(found), most=0.4)
    return section


def main() -> None:
    command("startup", run)


if __name__ == "__main__":
    main()
