"""The paper's other scheme for H: half-edges of users and items, joined at random (section 4.1).

    python -m studies.half_edges [--negatives 1] [--data FOLDER]

On MovieLens-1M, ratings of 4 and 5: unliked edges per like by the item's degree, in one H of each scheme and in closed
form; then a fit by each, with the correlation of the items' biases with their log degrees, and p(like) of held-out
likes against ratings of 1 to 3 as in `studies.considered`.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from considerate.fitting.session import make_popularity
from considerate.inference.hidden.saturation import Saturation
from considerate.inference.plan import FitPlan
from considerate.kernels.threads import LocalBackend
from considerate.study.material import drawn_hidden
from studies.considered import load, run
from studies.options import study_parser

BINS = np.array([1, 5, 10, 32, 100, 316, 1000, 10**9])
SCHEMES = {"half-edges": "half-edges", "drawn by popularity": "sampled", "closed form": "expected"}


def main() -> None:
    parser = study_parser(__doc__)
    parser.add_argument("--negatives", type=float, default=1.0)
    arguments = parser.parse_args()
    held, users, items = load(arguments.data, "ml-1m", 0)
    graph, plan = held.train, FitPlan.of_paper(negatives=arguments.negatives)
    degree = graph.by_item.degrees
    with LocalBackend() as backend:
        inclusion = Saturation(make_popularity(graph, plan, backend).weights).inclusion
        masses = inclusion.masses(graph.by_user, graph.user_blocks, plan.negatives, backend.map)
        unliked = {"closed form": inclusion.expected_per_item(masses)}
        for name, hidden in list(SCHEMES.items())[:2]:
            drawn = drawn_hidden(graph, replace(plan, hidden=hidden), backend)
            unliked[name] = np.bincount(drawn.indices, minlength=graph.item_count)
    print("| degree of the item | " + " | ".join(SCHEMES) + " |")
    for low, high in pairwise(BINS):
        some = (degree >= low) & (degree < high)
        cells = [f"{unliked[name][some].sum() / degree[some].sum():.2f}" for name in SCHEMES]
        print(f"| {low:,} to {high - 1:,} | " + " | ".join(cells) + " |")
    for name, hidden in SCHEMES.items():
        settings = {"hidden": hidden, "consideration": "popularity", "negatives": arguments.negatives}
        model, some = run(name, settings, held, users, items, 0), degree > 0
        correlation = np.corrcoef(model.items.biases[0][some], np.log(degree[some]))[0, 1]
        print(f"{'':16} correlation of biases and log degrees {correlation:.2f}", flush=True)


if __name__ == "__main__":
    main()
