"""What diversity costs: NDCG@20 beside how unlike each other the items of a list are.

    python -m studies.diversity [--set ml-1m] [--set anime-5k-users] [--seed 0] [--data FOLDER]

A tenth of each user's likes is held out, and the default model is fitted to the rest. Every user with held-out likes
gets a list of twenty by `recommend(..., diversity=d)`, and in the last rows one with at most six items of a genre. An
item of several genres counts for each. Columns:

    NDCG@20    of the held-out likes
    distance   within a list: 1 - cosine of item vectors, the mean over pairs of its items
    genres     different genres in a list, which no choice of the first rows looks at
    coverage   the share of all items that are in at least one list
    items      in a list, where caps leave fewer than twenty of the candidates
    us         processor time of a user's list, in microseconds, on one thread
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate import Recommender, read_interactions
from considerate.data.categories import Categories, read_categories
from considerate.evaluation.protocol import graph_of
from considerate.evaluation.split import HeldOut, share_per_user
from considerate.study.peers import training_matrix
from studies.options import study_parser
from studies.quality import SETS

LENGTH = 20
COLUMNS = {"NDCG@20": ".4f", "distance": ".3f", "genres": ".2f", "coverage": ".3f", "items": ".2f", "us": ".0f"}
TRIED: dict[str, dict[str, Any]] = {f"diversity {d:g}": {"diversity": d} for d in (0.0, 0.1, 0.3, 0.5)}
CAPPED: dict[str, dict[str, Any]] = {
    f"{d:g}, 6 of a genre": {"diversity": d, "most_per_category": 6} for d in (0.0, 0.3)
}


def ndcg_of_lists(lists: NDArray[np.int32], held: list[NDArray[np.int32]]) -> float:
    """Mean NDCG of lists of items against what was held out of each user's likes."""
    discount = 1.0 / np.log2(2.0 + np.arange(lists.shape[1]))
    gains = [float(discount[np.isin(row, some)].sum()) for row, some in zip(lists, held)]
    ideal = [float(discount[: len(some)].sum()) for some in held]
    return float(np.mean(np.array(gains) / ideal))


def distance_within(lists: NDArray[np.int32], vectors: NDArray[np.float32]) -> float:
    """1 - cosine, the mean over the pairs of items of a list, then over lists."""
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-30)
    distances = []
    for row in lists:
        cosines = unit[row[row >= 0]] @ unit[row[row >= 0]].T
        distances.append(1.0 - cosines[np.triu_indices(len(cosines), 1)].mean())
    return float(np.mean(distances))


def measure(model: Recommender, split: HeldOut, genres: Categories, **ranking: Any) -> dict[str, float]:
    """The columns of the table; items are row numbers, of `genres` too."""
    users = np.unique(split.users)
    held = [split.items[split.users == user].astype(np.int32) for user in users]
    if "most_per_category" in ranking:
        ranking["categories"] = genres
    begun = time.process_time()
    lists = np.asarray(model.recommend(users, N=LENGTH, **ranking)[0], np.int32)
    seconds = time.process_time() - begun
    return {
        "NDCG@20": ndcg_of_lists(lists, held),
        "distance": distance_within(lists, model.model_.items.mean),
        "genres": float(np.mean([len({name for item in row[row >= 0] for name in genres[item]}) for row in lists])),
        "coverage": len(np.unique(lists[lists >= 0])) / model.model_.item_count,
        "items": float((lists >= 0).sum(axis=1).mean()),
        "us": 1e6 * seconds / len(users),
    }


def main() -> None:
    parser = study_parser(__doc__, ["ml-1m", "anime-5k-users"])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for name in options.set or ["ml-1m", "anime-5k-users"]:
        likes = read_interactions(options.data / name / "ratings.parquet", where=SETS[name])
        graph = graph_of(likes)
        known = read_categories(options.data / name / "items.parquet")
        genres: Categories = {row: known.get(likes.item_ids.id_of(row), ()) for row in range(len(likes.item_ids))}
        split = share_per_user(graph, options.seed, 0.1)
        model = Recommender(seed=options.seed, threads=1).fit(training_matrix(split.train))
        print(f"{name}: {split.train.edges:,} likes, {len(split.users):,} held out")
        print(f"{'':18}" + "".join(f"{column:>10}" for column in COLUMNS))
        model.recommend(0)  # what is made once
        for label, ranking in (TRIED | CAPPED).items():
            row = measure(model, split, genres, **ranking)
            print(f"{label:18}" + "".join(f"{row[column]:10{form}}" for column, form in COLUMNS.items()), flush=True)


if __name__ == "__main__":
    main()
