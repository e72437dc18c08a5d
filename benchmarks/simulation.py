"""A random graph of the size of the paper's Xbox sample: `python -m benchmarks.simulation`."""

from __future__ import annotations

import resource
import sys
import time

from considerate.simulate import XBOX_SAMPLE, balanced_item_law, random_graph


def main() -> None:
    size = XBOX_SAMPLE
    start = time.perf_counter()
    item_law = balanced_item_law(size.user_law, size.item_law, users=size.users, items=size.items)
    solved = time.perf_counter()
    graph = random_graph(size.users, size.items, size.user_law, item_law, seed=0)
    end = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    print(f"users     {graph.user_count:>12,}  {graph.user_law.describe()}")
    print(f"items     {graph.item_count:>12,}  {graph.item_law.describe()}")
    print(f"edges     {len(graph.users):>12,}")
    print(f"redraws   {graph.redraws:>12,}")
    print(f"repairs   {graph.repairs:>12,}")
    print(f"seconds   {end - start:>12.1f}  ({solved - start:.1f} of them for the item law's cut-off)")
    print(f"peak RSS  {peak / 2**20:>12,.0f}  MiB")


if __name__ == "__main__":
    main()
