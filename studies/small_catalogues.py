"""Do structural variances vanish where users have considered most of a catalogue?

    python -m studies.small_catalogues [--set ml-1m] [--items 200] [--data FOLDER]

In simulated data they do: the unliked edges of a user who considered everything are known, so nothing is left that
likes cannot tell. Here the catalogue is the items with most ratings alone, and users are grouped by f = likes / (items
that they do not like): from f = 1 on, H has every pair of theirs. Of each group: the share of the catalogue that its
users rated, the variances that its judged pairs choose, and the share of items and of users whose count of likes is
held, with the constants and with the posterior alone (studies/totals.py says how).
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from considerate.data import read_interactions, read_judged
from considerate.data.graph import Graph
from considerate.evaluation.split import rows_in, share_per_user
from considerate.model.liking import STRUCTURE
from considerate.study.peers import training_matrix
from studies.options import study_parser
from studies.totals import SETS, Judged, chosen, posterior, structural, totals

EDGES = (0.0, 0.1, 0.2, 0.35, 0.6, 1.0, np.inf)  # of f
DRAWS = 60
NAMES = ("ml-1m", "anime-5k-users")


def ratings(folder: Path, name: str, size: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_]]:
    """(users, items, liked or not) of all ratings of the items with most ratings."""
    path = folder / name / "ratings.parquet"
    rated = read_interactions(path, where="rating is not null")
    liked, others = read_judged(path, where=SETS[name])
    assert others is not None
    (m, n), (m2, n2) = rows_in(rated, liked), rows_in(rated, others)
    users, items, truth = np.append(m, m2), np.append(n, n2), np.repeat([True, False], [len(m), len(m2)])
    place = np.full(len(rated.item_ids), -1)
    place[np.argsort(-np.bincount(items), kind="stable")[:size]] = np.arange(size)
    kept = place[items] >= 0
    return np.unique(users[kept], return_inverse=True)[1], place[items[kept]], truth[kept]


def run(folder: Path, name: str, size: int) -> None:
    users, items, liked = ratings(folder, name, size)
    shape = int(users.max()) + 1, size
    graph = Graph.from_pairs(users[liked].astype(np.int32), items[liked].astype(np.int32), *shape)
    held = share_per_user(graph, 0, 0.1)
    judged = Judged.of(
        training_matrix(held.train),
        np.append(held.users, users[~liked]),
        np.append(held.items, items[~liked]),
        np.repeat([True, False], [len(held.users), int((~liked).sum())]),
    )
    considered = sparse.csr_matrix((np.ones(len(users)), (users, items)), shape).getnnz(axis=1) / size
    degrees = held.train.by_user.degrees
    ratio = degrees / (size - degrees)
    for low, high in pairwise(EDGES):
        some = (ratio >= low) & (ratio < high)
        group = judged.take(some[judged.pairs.users])
        own = chosen(group, DRAWS)
        found = totals(group, {"posterior": posterior(group), "constants": structural(group, STRUCTURE)}, DRAWS)
        cells = " | ".join(f"{one['item'].held:.2f}, {one['user'].held:.2f}" for one in found.values())
        share = f"{considered[some].mean():.2f} | {some.sum()} | {own.user:.2f}, {own.item:.2f}"
        print(f"| {name} | {low:g} to {high:g} | {share} | {cells} |", flush=True)


def main() -> None:
    parser = study_parser(__doc__, NAMES)
    parser.add_argument("--items", type=int, default=200)
    options = parser.parse_args()
    print(
        "| set | f | share rated | users | s_u, s_i chosen | held by the posterior: items, users | by the constants |"
    )
    print("|---|---|---|---|---|---|---|")
    for name in options.set or NAMES:
        run(options.data, name, options.items)


if __name__ == "__main__":
    main()
