"""Lists by maximal marginal relevance and caps by category, against brute force."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

from considerate import Recommender, read_interactions
from considerate.cli import app
from considerate.data.categories import read_categories
from considerate.data.graph import Graph
from considerate.errors import DataError, UsageError
from considerate.evaluation.metrics import ndcg
from considerate.evaluation.ranks import held_ranks
from considerate.evaluation.scorer import ModelScorer
from considerate.evaluation.split import share_per_user
from considerate.model import diversity as module
from considerate.model.diversity import Diversity
from considerate.model.ranking import RankingOptions
from considerate.study.peers import training_matrix
from studies import diversity as study


def naive(
    ids: list[int], scores: list[float], count: int, d: float, vectors: NDArray[Any], categories: Any, most: int
) -> list[int]:
    """One list, item by item, as the definition has it."""
    high, low = scores[0], scores[-1]
    relevance = {n: (s - low) / (high - low) if high > low else 1.0 for n, s in zip(ids, scores)}
    chosen: list[int] = []
    while len(chosen) < count:
        best, best_value = -1, -np.inf
        for n in ids:
            full = any(sum(c in categories[m] for m in chosen) >= most for c in categories[n]) if categories else False
            if n in chosen or full:
                continue
            cosines = [
                vectors[n] @ vectors[m] / max(np.linalg.norm(vectors[n]) * np.linalg.norm(vectors[m]), 1e-30)
                for m in chosen
            ]
            value = (1.0 - d) * relevance[n] - d * max(cosines, default=0.0)
            if value > best_value + 1e-9:
                best, best_value = n, value
        if best < 0:
            break
        chosen.append(best)
    return chosen


@pytest.mark.parametrize("d", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("most", [0, 1, 3])
def test_lists_are_those_of_the_definition(d: float, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_VALUES", 500)  # some users at a time
    rng = np.random.default_rng(0)
    items, users, candidates, count = 50, 12, 30, 9
    vectors = rng.normal(size=(items, 4)).astype(np.float32)
    vectors[7] = 0.0
    held = [[*rng.choice(6, rng.integers(3), replace=False)] for _ in range(items)]
    table = np.full((items, 2), -1, np.int32)
    for row, some in zip(table, held):
        row[: len(some)] = some
    ids = np.stack([rng.permutation(items)[:candidates] for _ in range(users)]).astype(np.int32)
    scores = -np.sort(-rng.normal(size=ids.shape).astype(np.float32), axis=1)
    scores[1] = 1.0  # all alike
    ids[2, 5:], scores[2, 5:] = -1, np.nan  # few are left
    ids[3], scores[3] = -1, np.nan  # none is
    chosen, values = Diversity(d, vectors, table if most else None, most).choose(ids, scores, count)
    for user in range(users):
        there = ids[user] >= 0
        own = ids[user][there].tolist()
        wanted = (
            naive(own, scores[user][there].tolist(), count, d, vectors, held if most else None, most) if own else []
        )
        length = len(wanted)
        assert chosen[user].tolist() == wanted + [-1] * (count - length)
        score_of = dict(zip(own, scores[user].tolist()))
        assert values[user, :length].tolist() == [score_of[item] for item in wanted]
        assert np.isnan(values[user, length:]).all()


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    """Three tastes of twenty items; users like mostly one of them."""
    rng = np.random.default_rng(3)
    user = np.repeat(np.arange(120), 12)
    taste = np.where(rng.random(len(user)) < 0.8, user % 3, rng.integers(3, size=len(user)))
    return pd.DataFrame({"user": 1000 + user, "item": 500 + 20 * taste + rng.integers(20, size=len(user))})


@pytest.fixture(scope="module")
def model(frame: pd.DataFrame) -> Recommender:
    return Recommender(factors=4, sweeps=6, seed=0).fit(frame)


GENRES = {500 + n: ("early", "middle", "late")[n // 20] for n in range(60)}


def lists(table: pa.Table, N: int = 10) -> NDArray[Any]:
    return np.array(table["item"].to_pylist()).reshape(-1, N)


def test_no_diversity_changes_nothing(model: Recommender) -> None:
    table = model.recommend_table()
    assert model.recommend_table(diversity=0.0).equals(table)
    many = model.recommend_table(categories=GENRES, most_per_category=10)  # a cap that never holds
    assert many.equals(table)


def test_lists_are_less_alike_and_begin_with_the_best(model: Recommender) -> None:
    vectors = model.model_.items.mean
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    alike = []
    for d in (0.0, 0.3, 0.8):
        chosen = lists(model.recommend_table(diversity=d)) - 500
        assert (chosen[:, 0] == lists(model.recommend_table())[:, 0] - 500).all()
        assert all(len(set(row)) == 10 for row in chosen.tolist())
        alike.append(np.mean([unit[row] @ unit[row].T for row in chosen]))
    assert alike[0] > alike[1] > alike[2]


def test_a_list_does_not_depend_on_the_batch(model: Recommender) -> None:
    whole = lists(model.recommend_table(diversity=0.4, categories=GENRES, most_per_category=4))
    for row, user in ((0, 1000), (77, 1077)):
        alone = model.recommend_table(user, diversity=0.4, categories=GENRES, most_per_category=4)
        assert lists(alone)[0].tolist() == whole[row].tolist()
    two = Recommender(**{**model.get_params(), "threads": 2})
    two._model = model.model_
    assert lists(two.recommend_table(diversity=0.4, categories=GENRES, most_per_category=4)).tolist() == whole.tolist()


def test_caps_hold_for_every_way_of_asking(model: Recommender) -> None:
    options = RankingOptions(diversity=0.2, categories=GENRES, most_per_category=2, cold="popular")
    assert pickle.loads(pickle.dumps(options)) == options
    liked = model.recommend_for([501, 502, 541], N=6, options=options)
    cold = model.recommend_table("nobody", N=6, options=options)
    explored = model.recommend_table(1000, N=6, options=RankingOptions(**{**vars(options), "explore_kappa": 0.5}))
    for table in (liked, cold, explored, model.recommend_table(1003, N=6, options=options)):
        genres = [GENRES[item] for item in table["item"].to_pylist()]
        assert sorted(genres) == ["early"] * 2 + ["late"] * 2 + ["middle"] * 2
    short = model.recommend_table(1000, N=10, options=options)
    assert short.num_rows == 6  # no more fit


def test_categories_from_anywhere(tmp_path: Path) -> None:
    wanted = {7: ("a", "b"), 8: ("c",), 9: ()}
    text = pd.DataFrame({"item": [7, 8, 9], "genres": ["a| b", "c", None]})
    text.to_csv(tmp_path / "items.csv", index=False)
    rows = pd.DataFrame({"movieId": [7, 7, 8, 9], "category": ["a", "b", "c", None]})
    arrow = pa.table({"id": [7, 8, 9], "tags": [["a", "b"], ["c"], None]})
    commas = pl.DataFrame({"item": [7, 8, 9], "genres": ["a, b", "c", ""]})
    for source in (wanted, {7: ["a", "b"], 8: "c", 9: None}, text, tmp_path / "items.csv", rows, arrow, commas.lazy()):
        assert read_categories(source) == wanted
    assert read_categories(pd.DataFrame({"item": [7], "author": ["Le Guin, Ursula"]})) == {7: ("Le Guin, Ursula",)}
    with pytest.raises(DataError, match="it has 'item', 'colour', and no column looks like the categories; call it"):
        read_categories(pd.DataFrame({"item": [7], "colour": ["red"]}))


def test_ids_rows_and_the_shell_agree(model: Recommender, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    pd.DataFrame({"item": GENRES.keys(), "genre": GENRES.values()}).to_csv(tmp_path / "genres.csv", index=False)
    asked: dict[str, Any] = {"diversity": 0.3, "categories": GENRES, "most_per_category": 3}
    wanted = model.recommend_table(1005, N=8, **asked)["item"].to_pylist()
    assert model.recommend(1005, N=8, **asked).ids.tolist() == wanted
    by_row = asked | {"categories": {item - 500: genre for item, genre in GENRES.items()}}
    assert (model.recommend(5, N=8, by="row", **by_row).ids + 500).tolist() == wanted
    line = ["recommend", str(tmp_path / "model"), "1005", "--diversity", "0.3", "--most-per-category", "3", "--json"]
    line += ["--categories", str(tmp_path / "genres.csv"), "-n", "8"]
    shown = CliRunner().invoke(app, line)
    assert [row["item"] for row in json.loads(shown.stdout)] == wanted
    refused = CliRunner().invoke(app, [*line[:-4], "--categories", str(tmp_path / "none.csv")])
    assert (refused.exit_code, "there is no such file" in refused.stderr) == (2, True)


def test_the_study_measures_what_it_says(frame: pd.DataFrame) -> None:
    """NDCG of the lists without diversity is that of the ranks; with it, the items of a list are farther apart."""
    likes = read_interactions(frame)
    graph = Graph.from_pairs(likes.users, likes.items, len(likes.user_ids), len(likes.item_ids))
    split = share_per_user(graph, 0, 0.2)
    fitted = Recommender(factors=4, sweeps=6, seed=0).fit(training_matrix(split.train))
    genres = {row: (GENRES[500 + row],) for row in range(60)}
    ranks = held_ranks(ModelScorer(fitted.model_), split)
    plain = study.measure(fitted, split, genres, diversity=0.0)
    assert plain["NDCG@20"] == pytest.approx(ndcg(ranks, 20).mean())
    diverse = study.measure(fitted, split, genres, diversity=0.7)
    assert diverse["distance"] > plain["distance"]
    capped = study.measure(fitted, split, genres, diversity=0.0, most_per_category=2)
    assert (capped["items"], capped["genres"]) == (6.0, 3.0)


def test_impossible_options_of_diversity_are_refused(model: Recommender) -> None:
    for wrong in (-0.1, 1.1, float("nan"), "much"):
        with pytest.raises(UsageError, match=r"diversity is .*; it must be a number from 0 to 1\."):
            RankingOptions(diversity=wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="categories and most_per_category go together"):
        RankingOptions(most_per_category=2)
    with pytest.raises(UsageError, match="categories and most_per_category go together"):
        RankingOptions(categories=GENRES)
    with pytest.raises(UsageError, match=r"most_per_category is 0; it must be a whole number from 1"):
        RankingOptions(categories=GENRES, most_per_category=0)
    with pytest.raises(UsageError, match="categories has 1 items, such as 3, and none of them is in the model"):
        model.recommend_table(categories={3: "a"}, most_per_category=1)
