"""New users and items: drawn as in training, and from what is made of the catalogue once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from considerate import Recommender
from considerate.data.graph import Graph
from considerate.data.vocabulary import Vocabulary
from considerate.inference.hidden import Sampled
from considerate.inference.hidden.groups import Grouping
from considerate.inference.hidden.saturation import Saturation
from considerate.inference.posterior import Side
from considerate.model.model import Model
from considerate.model.names import Names

USERS, ITEMS, SWEEPS = 300, 120, 60


def matrix() -> sp.csr_matrix:
    """Few very popular items and many rare ones, users of few likes and of many."""
    random = np.random.default_rng(5)
    appeal = 1.0 / (1.0 + np.arange(ITEMS)) ** 0.8
    liked = random.random((USERS, ITEMS)) < np.outer(random.uniform(0.1, 1.0, USERS), appeal)
    liked[np.arange(USERS), np.arange(USERS) % ITEMS] = True
    return sp.csr_matrix(liked.astype(np.float32))


def fitted(**settings: Any) -> Recommender:
    return Recommender(**{"factors": 3, "sweeps": 3, "tolerance": 0.0, "threads": 1} | settings).fit(matrix())


def loaded(folder: Path, likes: bool = True, **settings: Any) -> Recommender:
    fitted(**settings).save(folder / "model", likes=likes)
    return Recommender.load(folder / "model")


@pytest.mark.parametrize("negatives", [1.0, 5.0])
@pytest.mark.parametrize("likes", [True, False])
def test_new_items_are_passed_over_as_often_as_training_draws_them(
    tmp_path: Path, negatives: float, likes: bool
) -> None:
    model = loaded(tmp_path, likes, negatives=negatives).model_
    assert model.users.knows_likes == likes
    users, items = matrix().nonzero()
    graph = Graph.from_pairs(users.astype(np.int32), items.astype(np.int32), USERS, ITEMS)
    sampled = Sampled(graph.by_user, graph.user_blocks, model.popularity, negatives, 3)
    drawn = sum(np.bincount(sampled.draw(sweep).indices, minlength=ITEMS) for sweep in range(1, SWEEPS + 1)) / SWEEPS
    chance = -np.expm1(-model.passing.temperature[:, None] * model.popularity)
    found = (chance * (1.0 - matrix().toarray())).sum(axis=0)
    order = np.argsort(graph.by_item.degrees, kind="stable")
    for some in np.split(order, 6):  # from the rarest to the most popular
        assert found[some].sum() == pytest.approx(drawn[some].sum(), rel=0.03 if likes else 0.06)


@pytest.mark.parametrize("likes", [True, False])
def test_a_user_who_likes_everything_passes_nothing_over(tmp_path: Path, likes: bool) -> None:
    whole = matrix().tolil()
    whole[0] = 1.0
    Recommender(factors=2, sweeps=1, threads=1).fit(whole.tocsr()).save(tmp_path / "model", likes=likes)
    temperature = Recommender.load(tmp_path / "model").model_.passing.temperature
    assert (np.isfinite(temperature) & (temperature >= 0)).all()
    assert temperature[0] == pytest.approx(0.0, abs=1e-9)


def arrays(side: Side) -> list[np.ndarray]:
    return [array for array in side.arrays() if array is not None]


def same(model: Model, other: Model) -> bool:
    """Whether both fold a user in alike, to the bit."""
    rows = [model.fold_in.users(likes_of([2, 5, 40])), other.fold_in.users(likes_of([2, 5, 40]))]
    return all(np.array_equal(a, b) for a, b in zip(*map(arrays, rows)))


def likes_of(items: list[int]) -> Any:
    return Names("item", Vocabulary.range(ITEMS)).likes(items)


@pytest.mark.parametrize("hidden", ["sampled", "expected"])
@pytest.mark.parametrize("from_file", [False, True])
def test_what_is_made_of_the_items_is_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hidden: str, from_file: bool
) -> None:
    model = loaded(tmp_path, hidden=hidden) if from_file else fitted(hidden=hidden)
    made: list[str] = []
    regroup, table = Grouping.regroup, Saturation.__init__
    monkeypatch.setattr(Grouping, "regroup", lambda *args: (made.append("groups"), regroup(*args))[1])
    monkeypatch.setattr(Saturation, "__init__", lambda *args: (made.append("table"), table(*args))[1])
    row, column = sp.csr_matrix(matrix()[7]), sp.csr_matrix(matrix()[:, 9].T)
    others = matrix()[:4].toarray().argmin(axis=1)  # an item of each that was not liked
    for _ in range(2):
        model.fold_in([3, 4])
        model.recommend_for([3, 4])
        model.recommend(0, row, recalculate_user=True)
        model.explain(0, 1, row)
        model.partial_fit_users([7], row)
        model.recalibrate([0, 1, 2, 3], others, [1, 0, 1, 0])
        model.similar_items(9, recalculate_item=True, item_users=column)
    assert sorted(made) == ["groups", "table"]
    assert same(model.model_, replace(model.model_))


def test_new_users_read_items_that_were_folded_in() -> None:
    model = fitted()
    before = model.model_
    model.fold_in([3, 4])
    model.partial_fit_items([5], sp.csr_matrix(matrix()[:, 0].T))
    assert not same(model.model_, before)
    assert same(model.model_, replace(model.model_))


def test_users_that_are_folded_in_replace_their_likes_and_leave_the_others() -> None:
    model, new = fitted(), sp.csr_matrix(([1.0, 1.0, 1.0], [8, 3, 50], [0, 3]), (1, ITEMS))
    model.partial_fit_users([USERS], new)
    model.partial_fit_users([7], new)
    want = sp.vstack([matrix(), new]).tolil()
    want[7] = new
    liked = model.model_.users.whole().liked
    found = sp.csr_matrix((np.ones(liked.edges), liked.indices, liked.starts), want.shape)
    np.testing.assert_array_equal(found.toarray(), want.toarray())
    np.testing.assert_array_equal(model.model_.users.whole().degree, want.toarray().sum(axis=1))
