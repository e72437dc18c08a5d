"""All benchmarks, one after the other: `make bench`."""

from __future__ import annotations

import importlib
import sys

NAMES = ("startup", "fit", "reader", "simulation")


def main() -> None:
    arguments, sys.argv = sys.argv[1:], sys.argv[:1]
    for name in arguments or NAMES:
        print(f"\n== {name} ==", flush=True)
        importlib.import_module(f"benchmarks.{name}").main()


if __name__ == "__main__":
    main()
