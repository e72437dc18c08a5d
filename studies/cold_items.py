"""Items that nobody has liked yet, ranked by their features: the tables of docs/features.md.

    python -m studies.cold_items [--set anime-5k-users] [--split 0] [--data FOLDER]

A tenth of the items that have features is hidden: none of their likes is in training. Each user's likes among them are
then ranked among the hidden items alone, and among all items. Beside ours: how many likes the items that share features
have on average; content cosine (a user is the mean of the features of what they like); and LightFM, where it is
installed (`pip install rectools-lightfm`; WARP, features beside an item's own vector, 100 epochs). The intervals are of
the paired differences, by bootstrap over users. The last lines are about the other items: one like of each user held
out, with features and without. `--set coat` has these lines alone, for features of items, of users and of both.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy.sparse import csr_array, csr_matrix, diags_array, hstack

from considerate import Recommender
from considerate.data import read_interactions
from considerate.data.features import Features
from considerate.data.graph import Adjacency, Graph
from considerate.data.read_features import read_features
from considerate.evaluation.bootstrap import paired_interval
from considerate.evaluation.metrics import ndcg, rank_scores
from considerate.evaluation.protocol import graph_of
from considerate.evaluation.ranks import Ranks, held_ranks
from considerate.evaluation.scorer import ModelScorer, likes_matrix
from considerate.evaluation.split import one_per_user
from considerate.kernels import compiled
from considerate.model.model import Model
from considerate.study.fits import some_users
from considerate.study.peers import ALS, BPR, fit_peer
from studies.options import study_parser

SHARE, STREAM = 0.1, 0xC01D  # of the items, hidden
USERS_AT_ONCE = 512
SETS: dict[str, tuple[str, str | None, str, list[str]]] = {  # likes, rule, items, columns of features
    "anime-5k-users": ("ratings.parquet", "rating >= 8", "items.parquet", ["genres"]),
    "goodbooks-10k-v1": ("ratings.parquet", "rating >= 4", "items.parquet", ["authors"]),
    "hetrec2011-lastfm-2k": ("plays.parquet", None, "tags_applied.parquet", ["tagID"]),
}
Score = Callable[[NDArray[np.int64]], NDArray[Any]]  # users -> scores of all items


@dataclass(frozen=True)
class Hidden:
    """Likes without those of hidden items; and these, of users who liked another item, too."""

    train: Graph  # it has all items, the hidden ones without likes
    hidden: NDArray[np.int64]  # rows of items, ascending
    features: Features  # of all items
    users: NDArray[np.int64]  # of the hidden likes, ascending
    items: NDArray[np.int64]

    @classmethod
    def of(cls, graph: Graph, features: Features, seed: int) -> Hidden:
        """Which items are hidden is a function of the seed."""
        random = np.random.Generator(np.random.Philox(key=[seed, STREAM]))
        possible = np.flatnonzero((graph.item_degree > 0) & features.are_known)
        hidden = np.sort(random.choice(possible, round(SHARE * len(possible)), replace=False))
        users, items = graph.pairs()
        away = np.isin(items, hidden)
        train = Graph.from_pairs(users[~away], items[~away], graph.user_count, graph.item_count)
        test = away & (train.by_user.degrees > 0)[users]
        return cls(train, hidden, features, users[test].astype(np.int64), items[test].astype(np.int64))

    @cached_property
    def matrix(self) -> Any:
        """[items, F]"""
        return matrix_of(self.features)

    @cached_property
    def likes(self) -> Any:
        """[users, items]"""
        return likes_matrix(self.train.by_user, self.train.item_count)


def matrix_of(features: Features) -> Any:
    """[items, F], without the intercept, which a fit adds."""
    whole = csr_array((features.values, features.indices, features.starts), (features.rows, features.count))
    return whole[:, :-1]


def load(folder: Path, name: str) -> tuple[Graph, Features]:
    likes_file, where, items_file, columns = SETS[name]
    likes = read_interactions(folder / name / likes_file, where=where)
    graph = graph_of(likes)
    return graph, read_features(folder / name / items_file, "item", columns=columns).align(likes.item_ids)


# --- What is compared ---


def fit_ours(likes: Any, features: Any = None) -> Model:
    """With the defaults."""
    return Recommender().fit(likes, item_features=features).model_


def degree_of_alike(split: Hidden) -> Score:
    """The mean over an item's features of the mean degree of the items in training that have it."""
    shared = (split.matrix > 0).astype(np.float64)
    warm = diags_array((split.train.item_degree > 0).astype(np.float64)) @ shared
    of_feature = (warm.T @ split.train.item_degree) / np.maximum(warm.sum(axis=0), 1)
    mean = (shared @ of_feature) / np.maximum(shared.sum(axis=1), 1)
    return lambda users: np.tile(mean, (len(users), 1))


def content_cosine(split: Hidden) -> Score:
    """The cosine of an item's features with the mean of those of the user's likes."""
    length = np.sqrt((split.matrix**2).sum(axis=1))
    items = csr_array(diags_array(1.0 / np.maximum(length, 1e-12)) @ split.matrix)
    profiles = csr_array(split.likes) @ items
    return lambda users: (profiles[users] @ items.T).toarray()


def lightfm(split: Hidden, epochs: int = 100, factors: int = 64) -> Score:
    """Each item's own vector and those of its features, rows normalised as LightFM's `Dataset` does; of hidden items
    the features alone."""
    from lightfm import LightFM

    own = diags_array((split.train.item_degree > 0).astype(np.float32))
    both = hstack([own, (split.matrix > 0).astype(np.float32)])
    features = csr_matrix(diags_array((1.0 / np.maximum(both.sum(axis=1), 1e-12)).astype(np.float32)) @ both)
    features.indices, features.indptr = features.indices.astype(np.int32), features.indptr.astype(np.int32)
    model = LightFM(factors, loss="warp", random_state=0)
    model.fit(split.likes.tocoo(), item_features=features, epochs=epochs, num_threads=os.cpu_count() or 1)
    bias, items = model.get_item_representations(features)
    users_vectors = model.get_user_representations()[1]
    return lambda users: users_vectors[users] @ items.T + bias


# --- How hidden likes are ranked ---


def among_hidden(score: Score, split: Hidden) -> Ranks:
    """Among the hidden items, none of which anybody has liked."""
    nothing = Adjacency(np.zeros(split.train.user_count + 1, np.int64), np.empty(0, np.int32))
    items = np.searchsorted(split.hidden, split.items)
    return _ranks(lambda users: score(users)[:, split.hidden], split.users, items, nothing)


def among_all(score: Score, split: Hidden) -> Ranks:
    """Among all items that the user did not like in training."""
    return _ranks(score, split.users, split.items, split.train.by_user)


def _ranks(score: Score, users: NDArray[np.int64], items: NDArray[np.int64], seen: Adjacency) -> Ranks:
    people, parts, columns = np.unique(users), [], 0
    for first in range(0, len(people), USERS_AT_ONCE):
        some = people[first : first + USERS_AT_ONCE]
        scores = np.ascontiguousarray(score(some), np.float64)
        ends = np.searchsorted(users, [*some, some[-1] + 1])
        liked = seen.take(some)
        held = items[ends[0] : ends[-1]].astype(np.int32)
        parts.append(compiled.count_ranks(scores, ends - ends[0], held, liked.starts, liked.indices)[:2])
        columns = scores.shape[1]
    above, ties = (np.concatenate(part) for part in zip(*parts))
    return Ranks(users, items, above, ties, columns - seen.degrees[users])


def compare(split: Hidden) -> None:
    """The table of one data set: each by S_rank and NDCG@20, and ours less the other with its interval."""
    model = fit_ours(split.likes, split.matrix)
    degree = np.bincount(split.items, minlength=split.train.item_count)[split.hidden]
    logs = model.log_popularity[split.hidden], np.log(degree.clip(min=1))
    print(f"log pi of the hidden items, predicted: correlation {np.corrcoef(*logs)[0, 1]:.2f} with log degree\n")
    scores: dict[str, Score] = {
        "ours": ModelScorer(model).scores,
        "degree of items alike": degree_of_alike(split),
        "content cosine": content_cosine(split),
    }
    if find_spec("lightfm"):
        scores["LightFM"] = lightfm(split)
    else:
        print("LightFM is left out: pip install rectools-lightfm.")
    print("| | S_rank, hidden | NDCG@20, hidden | S_rank, all | NDCG@20, all |")
    print("|---|---|---|---|---|")
    mine: list[NDArray[np.float64]] = []
    for name, score in scores.items():
        near, far = among_hidden(score, split), among_all(score, split)
        values = [rank_scores(near), ndcg(near, 20), rank_scores(far), ndcg(far, 20)]
        mine = mine or values
        cells = [f"{value.mean():.4f}" + ahead(own, value) for own, value in zip(mine, values)]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def ahead(own: NDArray[np.float64], other: NDArray[np.float64]) -> str:
    """How far ours is ahead, with the 95 % interval."""
    if own is other:
        return ""
    low, high = paired_interval(own, other)
    return f" ({(own - other).mean():+.4f}, {low:+.4f} to {high:+.4f})"


def compare_warm(graph: Graph, features: Features, seed: int) -> None:
    """Held-out likes of items that are in training, with features and without."""
    held = some_users(one_per_user(graph, seed), seed)
    likes = likes_matrix(held.train.by_user, graph.item_count)
    ranks = [held_ranks(ModelScorer(fit_ours(likes, given)), held) for given in (matrix_of(features), None)]
    for name, metric in (("S_rank", rank_scores), ("NDCG@20", lambda ranks: ndcg(ranks, 20))):
        given, without = (metric(rank) for rank in ranks)
        gain = ahead(given, without)
        print(f"other items, {name}: {given.mean():.4f} with features, {without.mean():.4f} without{gain}")


def compare_coat(folder: Path, splits: int = 5) -> None:
    """Coat's likes, one of each user held out, with the features of both sides; beside ALS with its usual settings."""
    likes = read_interactions(folder / "coat" / "train.parquet", where="rating >= 4")
    graph = graph_of(likes)
    tables = {}
    for side, ids in (("item", likes.item_ids), ("user", likes.user_ids)):
        table = pq.read_table(folder / "coat" / f"{side}_features.parquet")
        table = table.append_column(side, pa.array(range(table.num_rows)))
        tables[f"{side}_features"] = matrix_of(read_features(table, side).align(ids))
    given = {"none": {}, "items": {"item_features": tables["item_features"]}, "both": tables}
    values: dict[str, list[float]] = {}
    for seed in range(splits):
        held = one_per_user(graph, seed)
        matrix = likes_matrix(held.train.by_user, graph.item_count)
        for name, features in given.items():
            model = Recommender(likelihood_weight=3.0, seed=seed).fit(matrix, **features).model_
            ranks = held_ranks(ModelScorer(model), held)
            values.setdefault(f"ours, features of {name}", []).append(float(rank_scores(ranks).mean()))
        for peer in (ALS(factors=20), BPR("BPR-uniform", 20)):
            scorer = fit_peer(peer, held.train, peer.usual, seed).scorer
            values.setdefault(peer.name, []).append(float(rank_scores(held_ranks(scorer, held)).mean()))
    for name, scores in values.items():
        print(
            f"coat, {name}: S_rank {np.mean(scores):.4f} (of {splits} splits, {min(scores):.4f} to {max(scores):.4f})"
        )


def main() -> None:
    parser = study_parser(__doc__, [*SETS, "coat"])
    parser.add_argument("--split", type=int, default=0)
    options = parser.parse_args()
    for name in options.set or [*SETS, "coat"]:
        if name == "coat":
            compare_coat(options.data)
            continue
        graph, features = load(options.data, name)
        split = Hidden.of(graph, features, options.split)
        print(f"\n{name}: {len(split.hidden):,} of {graph.item_count:,} items hidden, {features.count - 1:,} features,")
        print(f"{len(split.users):,} hidden likes of {len(np.unique(split.users)):,} users\n")
        compare(split)
        compare_warm(graph, features, options.split)


if __name__ == "__main__":
    main()
