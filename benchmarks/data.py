"""Graphs to measure on: real ones where they are found, and simulated ones so that everything runs anywhere."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.report import THREADS
from considerate import Recommender, read_interactions
from considerate.data.graph import Adjacency, Graph
from considerate.data.vocabulary import Vocabulary
from considerate.evaluation.protocol import graph_of
from considerate.inference.hidden import Consideration
from considerate.inference.plan import FitPlan
from considerate.inference.posterior import Gamma, Precisions, Side
from considerate.kernels import compiled
from considerate.model.model import Model
from considerate.model.users import UserRows
from considerate.simulation.degrees import PowerLaw
from considerate.simulation.simulate import XBOX_SAMPLE, balanced_item_law, random_graph, simulate_from_model

SETS = {  # by folder: its name, its file and what is a like
    "ml-1m": ("MovieLens-1M", "ratings.parquet", "rating >= 4"),
    "anime-5k-users": ("anime", "ratings.parquet", "rating >= 8"),
    "goodbooks-10k-v1": ("goodbooks", "ratings.parquet", "rating >= 4"),
    "gowalla-lightgcn": ("Gowalla", "train.parquet", None),
}
STUDIED = ("ml-1m", "anime-5k-users", "goodbooks-10k-v1")  # of them, those that the study is about


def real(folder: str) -> Graph | None:
    """The likes of a data set, or None where the data is not."""
    data = Path(os.environ.get("CONSIDERATE_DATA", Path(__file__).parents[1] / ".." / "shared" / "data"))
    _, file, rule = SETS[folder]
    path = data / folder / file
    if not path.exists():
        return None
    return graph_of(read_interactions(path, where=rule))


def movielens() -> Graph | None:
    """MovieLens-1M, likes of 4 and 5, or None where the data is not."""
    return real("ml-1m")


def simulated(users: int = 6000, items: int = 3500) -> Graph:
    """A random graph of about the size of MovieLens-1M."""
    user_law = PowerLaw(0.5, cutoff=250.0, minimum=10, maximum=items // 2)
    item_law = balanced_item_law(user_law, PowerLaw(0.7, maximum=users // 2), users=users, items=items)
    drawn = random_graph(users, items, user_law, item_law, seed=1)
    return Graph.from_pairs(drawn.users, drawn.items, users, items)


def tasteful(users: int = 6000, items: int = 3500) -> Graph:
    """Data drawn from the model, of about the size of MovieLens-1M: there is something to learn."""
    sample = simulate_from_model(
        users,
        items,
        8,
        user_law=PowerLaw(0.5, cutoff=400.0, minimum=20, maximum=items // 2),
        item_law=PowerLaw(0.7, maximum=users // 2),
        seed=1,
    )
    return Graph.from_pairs(sample.users, sample.items, users, items)


def movielens_or_simulated() -> tuple[str, Graph]:
    """(name, graph) to learn from: MovieLens-1M, else data drawn from the model."""
    graph = movielens()
    if graph is not None:
        return "MovieLens-1M (rated 4 or 5)", graph
    return "simulated from the model (MovieLens-1M not found: set CONSIDERATE_DATA)", tasteful()


def xbox_like(users: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """(users, items) of likes by the laws and the items of the paper's Xbox sample; the item cut-off is rebalanced
    for the number of users."""
    size = replace(XBOX_SAMPLE, users=users)
    law = balanced_item_law(size.user_law, size.item_law, users=users, items=size.items)
    drawn = random_graph(users, size.items, size.user_law, law, seed=0)
    return drawn.users, drawn.items


def drawn_likes(degrees: NDArray[Any], popularity: NDArray[np.float64], seed: int = 0) -> Adjacency:
    """Users of these degrees who drew their items by popularity, none twice."""
    users, items = compiled.draw_considered(np.asarray(degrees, np.int32), popularity, seed)
    starts = np.zeros(len(degrees) + 1, np.int64)
    np.cumsum(np.bincount(users, minlength=len(degrees)), out=starts[1:])
    return Adjacency(starts, np.ascontiguousarray(items, np.int32))


def random_model(
    users: int, items: int, factors: int = 20, likes: int = 20, popularity: NDArray[np.float64] | None = None
) -> Model:
    """A model with a random posterior, as if it had been fitted; everyone liked about so many items."""
    random = np.random.default_rng(0)

    def side(rows: int, spread: float, bias: bool) -> Side:
        made = Side.constant(rows, factors, 0.05, 0.05 if bias else None)
        made.mean[:] = np.float32(spread) * random.standard_normal((rows, factors), np.float32)
        if made.bias_mean is not None:
            made.bias_mean[:] = random.standard_normal(rows, np.float32)
        return made

    if popularity is None:
        popularity = PowerLaw(0.77, maximum=max(1000, items)).sample(items, 0).astype(np.float64)
    liked = drawn_likes(random.integers(1, 2 * likes, users), popularity)
    return Model(
        users=UserRows(side(users, 0.7, False), liked.degrees, liked, Vocabulary.range(users)),
        items=side(items, 0.5, True),
        precisions=Precisions(Gamma(2.0, 1.0), Gamma(3.5, 1.0), None, Gamma(1.0, 1.0)),
        popularity=popularity,
        gamma=1.0,
        item_degree=np.bincount(liked.indices, minlength=items).astype(np.int64),
        item_ids=Vocabulary.range(items),
        titles=None,
        plan=FitPlan.of_paper(factors=factors, negatives=3.0),
        bounds=(),
    )


def with_walk(model: Model, neighbours: int = 200) -> Model:
    """The model as if it had been fitted with consideration="walk"."""
    graph = Graph.from_adjacency(model.users.whole().liked, model.item_count)
    table = Consideration.of_graph(graph.by_user, graph.by_item, model.popularity, neighbours, 0.1)
    return replace(model, consideration=table)


def recommender(model: Model) -> Recommender:
    """A recommender with this model, as if it had been loaded."""
    made = Recommender(factors=model.posterior.factors, threads=THREADS)
    made._model = model
    return made
