"""Draws: nanoseconds a negative on one core, against a pass over the same output that memory alone bounds.

python -m benchmarks draws
"""

from __future__ import annotations

import numpy as np

from benchmarks.data import drawn_likes, movielens_or_simulated
from benchmarks.report import Section, command, interleaved, median
from considerate.data.graph import row_blocks, transpose
from considerate.inference.hidden import Sampled, popularity_weights
from considerate.simulation.degrees import PowerLaw

ITEMS = {"4k": 4_000, "40k": 40_000, "1M": 1_000_000}
TARGETS = {"4k": 25.0, "40k": 40.0}


def run(quick: bool = False) -> Section:
    edges, repeats = (200_000, 2) if quick else (2_000_000, 7)
    section = Section("Draws: ns a negative, one thread")
    rows = section.tables["Time"] = []
    worst: dict[str, float] = {}
    random = np.random.default_rng(0)
    for name, items in ITEMS.items():
        popularity = PowerLaw(0.77, maximum=max(10_000, items // 10)).sample(items, 0).astype(np.float64)
        degrees = PowerLaw(0.9, cutoff=150.0, minimum=5, maximum=500).sample(edges // 55, random)
        likes = drawn_likes(degrees, popularity)
        blocks = row_blocks(likes.starts)
        for negatives in (1.0, 3.0):
            sampled = Sampled(likes, blocks, popularity, negatives, seed=0)
            drawn = sampled.draw(0)
            found = interleaved(
                {
                    "draw": lambda sampled=sampled: sampled.draw(1),
                    "copy": lambda drawn=drawn: np.copy(drawn.indices),
                    "by item": lambda d=drawn, n=items: transpose(d, n),
                },
                repeats,
            )
            section.raw[f"{name}, c = {negatives:g}"] = found
            ns = {what: 1e9 * median(values) / drawn.edges for what, values in found.items()}
            best = 1e9 * min(found["draw"]) / drawn.edges
            worst[name] = max(worst.get(name, 0.0), ns["draw"])
            rows.append(
                {
                    "items": name,
                    "c": negatives,
                    "users": likes.rows,
                    "negatives": drawn.edges,
                    "ns/negative": ns["draw"],
                    "best": best,
                    "np.copy ns": ns["copy"],
                    "draw / copy": ns["draw"] / ns["copy"],
                    "ns/negative to turn by item": ns["by item"],
                    "rejections/negative": sampled.rejections / drawn.edges,
                    "tree draws": sampled.tree_draws,
                }
            )
    name, graph = movielens_or_simulated()
    weights = popularity_weights(graph.by_item.degrees, 1.0)
    heaviest = np.argsort(-graph.by_user.degrees)[:5].astype(np.int64)
    rejected = section.tables["The heaviest users' rejections, c = 3"] = []
    for who, users in [*((f"user {user}", np.array([user])) for user in heaviest), ("everyone", None)]:
        likes = graph.by_user if users is None else graph.by_user.take(users)
        sampled = Sampled(likes, row_blocks(likes.starts), weights, 3.0, seed=0)
        drawn = sampled.draw(1)
        rejected.append(
            {
                "who": who,
                "likes": likes.edges,
                "negatives": drawn.edges,
                "rejections": sampled.rejections,
                "per negative": sampled.rejections / max(1, drawn.edges),
                "tree draws": sampled.tree_draws,
            }
        )
    section.notes = [
        "Likes and negatives follow a power law of popularity (exponent 0.77); users have 5 to 500 likes.",
        "The table of aliases is built once a fit and not counted; the output's memory is allocated in both.",
        f"Rejections: {name}; a draw is rejected that hits something liked, or drawn already.",
    ]
    for name, most in TARGETS.items():
        section.must(f"ns a negative at N = {name} (the slower of c = 1 and 3)", worst[name], most=most)
    return section


def main() -> None:
    command("draws", run)


if __name__ == "__main__":
    main()
