"""A random graph of the size of the paper's Xbox sample: `python -m benchmarks simulation`."""

from __future__ import annotations

import time
from dataclasses import replace

from benchmarks.report import Section, command, peak_bytes
from considerate.simulation.simulate import XBOX_SAMPLE, balanced_item_law, random_graph


def run(quick: bool = False) -> Section:
    size = replace(XBOX_SAMPLE, users=100_000) if quick else XBOX_SAMPLE
    start = time.perf_counter()
    item_law = balanced_item_law(size.user_law, size.item_law, users=size.users, items=size.items)
    solved = time.perf_counter()
    graph = random_graph(size.users, size.items, size.user_law, item_law, seed=0)
    end = time.perf_counter()
    row = {
        "users": graph.user_count,
        "items": graph.item_count,
        "edges": len(graph.users),
        "redraws": graph.redraws,
        "repairs": graph.repairs,
        "s": end - start,
        "of that the item law's cut-off": solved - start,
        "peak GB": peak_bytes() / 1e9,
    }
    notes = [f"users {graph.user_law.describe()}; items {graph.item_law.describe()}"]
    return Section("Simulation: a random graph of the size of the Xbox sample", {"One run": [row]}, notes)


def main() -> None:
    command("simulation", run)


if __name__ == "__main__":
    main()
