"""The study on MovieLens-1M, one split of it: what the README's table promises has not been lost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from considerate import Recommender, read_interactions
from considerate.data.graph import Graph
from considerate.evaluation.split import one_per_user
from considerate.study.peers import training_matrix
from studies.movielens import MODELS, USER_BINS, evaluate, mean_by_bin


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "least"), [("sampled, r = 1, c = 1", 0.940), ("sampled, c = 3", 0.944), ("expected, c = 3", 0.942)]
)
def test_held_out_likes_are_ranked_high(data_dir: Path, name: str, least: float) -> None:
    likes = read_interactions(data_dir / "ml-1m" / "ratings.parquet", where="rating >= 4")
    graph = Graph.from_pairs(likes.users, likes.items, len(likes.user_ids), len(likes.item_ids))
    split = one_per_user(graph, 0)
    pairs = set(zip(*(side.tolist() for side in split.train.pairs())))
    assert not pairs & set(zip(split.users.tolist(), split.items.tolist()))
    assert len(pairs) + len(split.users) == graph.edges
    found = evaluate(Recommender(**MODELS[name]).fit(training_matrix(split.train)), split)
    assert found["knob 0.5"].mean() >= least
    assert found["knob 0.5"].mean() > found["popularity"].mean() + 0.05  # popularity alone validates the evaluator
    tail = split.train.by_item.degrees[split.items] < 32
    assert found["knob 0"][tail].mean() > found["knob 1"][tail].mean() + 0.2  # the knob does what it says
    if name == "sampled, r = 1, c = 1":
        degree = split.train.by_user.degrees[split.users]
        errors = mean_by_bin((found["p_like"] < 0.5).astype(float), degree, USER_BINS)[0]
        assert 0.15 <= errors[2] <= 0.19
    assert np.isfinite(found["p_like"]).all()
