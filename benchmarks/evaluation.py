"""Full rankings: how long it takes to rank the held-out likes of everyone, by every score of ours.

    python -m benchmarks evaluation

Models are random and of the sizes of MovieLens-1M (one held-out like per user) and of Gowalla (a fifth of each user's).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.data import random_model
from benchmarks.report import THREADS, Section, command, interleaved, median
from considerate.data.graph import Graph
from considerate.evaluation.ranks import held_ranks, ranks_and_lists
from considerate.evaluation.report import evaluate
from considerate.evaluation.scorer import ModelScorer
from considerate.evaluation.split import HeldOut, one_per_user, share_per_user
from considerate.kernels.threads import LocalBackend
from considerate.model.model import Model

SIZES = {"MovieLens-1M": (6_038, 3_533, 20, 95), "Gowalla": (29_858, 40_981, 64, 34)}  # users, items, K, likes


def split_of(name: str, model: Model) -> HeldOut:
    graph = Graph.from_adjacency(model.users.whole().liked, model.item_count)
    return one_per_user(graph, 0) if name == "MovieLens-1M" else share_per_user(graph, 0, 0.2)


def workloads(model: Model, held: HeldOut, backend: LocalBackend) -> dict[str, Callable[[], Any]]:
    """Ranks by each score, then ranks with lists, then everything."""
    found: dict[str, Callable[[], Any]] = {}
    for score in (None, "like", "popularity", "popularity_x_like"):
        scorer = ModelScorer(model, score=score)
        found[scorer.name] = partial(held_ranks, scorer, held, backend.map)
    ours = ModelScorer(model)
    found["with lists of 20"] = partial(ranks_and_lists, ours, held, 20, backend.map)
    found["whole report"] = partial(evaluate, ours, held, run=backend.map)
    return found


def run(quick: bool = False) -> Section:
    section = Section("Full rankings of held-out likes")
    for name, (users, items, factors, likes) in SIZES.items():
        model = random_model(users // 20 if quick else users, items, factors, likes)
        held = split_of(name, model)
        with LocalBackend(THREADS) as backend:
            functions = workloads(model, held, backend)
            found = interleaved(functions, 1 if quick or name == "Gowalla" else 3, warm=0 if name == "Gowalla" else 1)
        tested = len(np.unique(held.users))
        heading = f"{name}: {tested:,} users x {items:,} items, {len(held.users):,} held-out likes, K = {factors}"
        section.tables[heading] = [{"score": what, "s": median(seconds)} for what, seconds in found.items()]
        section.raw[name] = found
        slowest = max(median(found[what]) for what in list(functions)[:4])
        section.must(f"{name}, the slowest score, s", slowest, most=1.0 if name == "MovieLens-1M" else 10.0)
    return section


def main() -> None:
    command("evaluation", run)


if __name__ == "__main__":
    main()
