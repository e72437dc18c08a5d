"""What `recommend` measures at a million items, each function in a process of its own: vectors and walk are random.

Of the products and passes that ours is held against, the fastest way is taken.
"""

from __future__ import annotations

import os

from benchmarks.report import THREADS

os.environ["OPENBLAS_NUM_THREADS"] = str(THREADS)  # before NumPy is loaded

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.data import random_model, recommender
from benchmarks.report import Row, interleaved, median, peak_bytes
from considerate.data.graph import Adjacency, Graph
from considerate.evaluation.ranks import ranks_and_lists
from considerate.evaluation.scorer import ModelScorer
from considerate.evaluation.split import one_per_user
from considerate.inference.hidden import Consideration
from considerate.kernels.threads import LocalBackend
from considerate.model.model import Model
from considerate.model.users import UserRows

TOGETHER, N = 256, 20


def power_law(items: int) -> Any:
    """Popularities of a long tail, none above 50,000."""
    uniform = np.random.default_rng(7).random(items)
    return np.floor(np.minimum((1.0 - uniform) ** (-1.0 / 1.1), 50_000.0))


def large_model(users: int, items: int, factors: int, neighbours: int) -> Model:
    """A random model. Vectors have few strong coordinates, and are longer where an item is popular. Everyone's likes
    lead to `neighbours` items each, half of them popular ones."""
    model = random_model(users, items, factors, likes=20, popularity=power_law(items))
    weight = (1.0 + np.arange(factors)) ** -0.5
    model.items.mean[:] *= weight * (0.6 + 0.5 * np.log1p(model.popularity))[:, None]
    model.users.whole().side.mean[:] *= 2.0 * weight
    random, liked = np.random.default_rng(1), np.unique(model.users.whole().liked.indices)
    counts = np.zeros(items, np.int64)
    counts[liked] = neighbours
    drawn = random.integers(0, items, (len(liked), neighbours), np.int32)
    popular = np.argsort(-model.popularity, kind="stable")[: max(neighbours, items // 50)].astype(np.int32)
    drawn[:, ::2] = popular[random.integers(0, len(popular), drawn[:, ::2].shape)]
    drawn.sort(axis=1)
    for place in range(1, neighbours):  # distinct, and ascending
        np.maximum(drawn[:, place], drawn[:, place - 1] + 1, out=drawn[:, place])
    np.minimum(drawn, np.arange(items - neighbours, items, dtype=np.int32), out=drawn)
    shares = random.random(drawn.shape, np.float32)
    shares *= 0.7 / shares.sum(axis=1, keepdims=True)
    rest = np.ones(items, np.float32)
    rest[liked] = 1.0 - shares.sum(axis=1)
    starts = np.append(0, np.cumsum(counts))
    walk = Consideration(starts, drawn.reshape(-1), shares.reshape(-1), rest, model.popularity, 0.05)
    return replace(model, consideration=walk, plan=replace(model.plan, consideration="walk", lift=1.5))


def exact(items: int, factors: int, repeats: int) -> list[Row]:
    """A batch of users against the product alone; one user against a pass over the items' means."""
    ours = recommender(large_model(1_000, items, factors, 500))
    model, batch = ours.model_, np.arange(TOGETHER)
    vectors, users = np.ascontiguousarray(model.items.mean), model.users.whole().side.mean[:TOGETHER].copy()
    whole, room = np.empty((TOGETHER, items), np.float32), np.empty((TOGETHER, 8192), np.float32)
    plain = {"lift": 0.0, "N": N}

    def product_by_blocks() -> None:
        for first in range(0, items, 8192):
            part = vectors[first : first + 8192]
            np.matmul(users, part.T, out=room[:, : len(part)])

    functions: dict[str, Callable[[], Any]] = {
        "product": lambda: np.matmul(users, vectors.T, out=whole),
        "product, 8,192 items at a time": product_by_blocks,
        "batch": lambda: ours.recommend(batch, **plain),
        "batch, likes not left out": lambda: ours.recommend(batch, filter_already_liked_items=False, **plain),
        "batch, with lift": lambda: ours.recommend(batch, N=N),
        "pass": vectors.sum,
        "pass, largest": vectors.max,
        "one": lambda: ours.recommend(3, **plain),
        "one, with lift": lambda: ours.recommend(3, N=N),
    }
    seconds = {name: median(found) for name, found in interleaved(functions, repeats).items()}
    product = min(value for name, value in seconds.items() if name.startswith("product"))
    read = min(value for name, value in seconds.items() if name.startswith("pass"))
    return [
        {
            "K": factors,
            "": name,
            "ms": 1e3 * value,
            "times": value / (read if "one" in name or "pass" in name else product),
        }
        for name, value in seconds.items()
    ]


def many(items: int, factors: int, users: int) -> list[Row]:
    """Everything else that is asked of a large model, timed once; the peak after each."""
    rows: list[Row] = []

    def timed(what: str, count: int, function: Callable[[], Any]) -> Any:
        begun = time.perf_counter()
        answer = function()
        taken = time.perf_counter() - begun
        rows.append({"": what, "s": taken, "ms each": 1e3 * taken / count, "peak GB": peak_bytes() / 1e9})
        return answer

    ours = timed("the random model", 1, lambda: recommender(large_model(users, items, factors, 50)))
    model = ours.model_
    timed("first recommendation", 1, lambda: ours.recommend(0, N=N))
    timed("first of a table: p(considered)", 1, lambda: ours.recommend_table([0], N=N))
    timed(f"recommend, {users:,} users", users, lambda: ours.recommend(np.arange(users), N=N))
    timed(
        f"recommend_batches, {users:,} users", users, lambda: sum(len(batch) for batch in ours.recommend_batches(N=N))
    )
    likes = model.users.whole().liked
    timed("first fold-in", 1, lambda: ours.fold_in(likes.row(0)))
    folded = min(1_000, users)
    timed(f"fold-in, {folded:,} users one by one", folded, lambda: [ours.fold_in(likes.row(i)) for i in range(folded)])
    timed("similar_items, 10 items", 10, lambda: [ours.similar_items(i) for i in range(10)])
    timed("explain, 100 pairs", 100, lambda: [ours.explain(i, 2 * i) for i in range(100)])
    tested = min(500, users)
    known = Adjacency(likes.starts[: tested + 1], likes.indices[: likes.starts[tested]])
    held = one_per_user(Graph.from_adjacency(known, items), 0)
    some = replace(
        model, users=UserRows(model.users.whole().side.between(0, tested), known.degrees, known, model.user_ids)
    )
    with LocalBackend(THREADS) as backend:
        timed(
            f"evaluation: ranks and lists, {tested:,} users",
            tested,
            lambda: ranks_and_lists(ModelScorer(some), held, N, backend.map),
        )
    return rows
