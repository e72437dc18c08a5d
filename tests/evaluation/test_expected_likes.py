"""Expected over observed likes: by brute force on small graphs, by the shell, and on real likes."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from typer.testing import CliRunner

from considerate import GraphRecommender, Recommender, cli
from considerate.cli import describe
from considerate.errors import UsageError
from considerate.evaluation.expected_likes import ExpectedLikes, ExpectedLikesRow, expected_likes
from considerate.model.considered import consideration_weights, logit_offset, weights_of_all
from considerate.model.model import Model
from studies import expected_likes as study
from tests.helpers.likes import skewed
from tests.helpers.naive_draws import temperature

STARTS = (1, 5, 10, 32, 100, 316, 1000)


def fitted(likes: sp.csr_matrix, given: dict[str, Any] | None = None, **settings: Any) -> Recommender:
    options = {"factors": 4, "sweeps": 6, "negatives": 2.0, "neighbours": 12, "threads": 1, "mixing": 0.1}
    return Recommender(**(options | settings)).fit(likes, **(given or {}))


def dense_weights(model: Model, closed: np.ndarray) -> np.ndarray:
    """w' of all pairs by its definition, one user after the other."""
    liked, plan = model.users.whole().liked, model.plan
    weights = np.where(np.isin(np.arange(model.item_count), model.cold_items), 0.0, model.popularity)
    answer = np.zeros((liked.rows, model.item_count))
    walk = model.consideration if plan.hidden == "sampled" else None
    for user in range(liked.rows):
        mine = liked.row(user)
        w = weights / weights.sum()
        if walk is not None:
            w = w * walk.ratios(mine)
        others = np.where(closed[user], 0.0, w)
        others[mine] = 0.0
        left = int((others > 0).sum())
        drawn = min(plan.negatives * len(mine), left)
        shut = np.flatnonzero(others == 0.0).tolist()
        chance = (w > 0).astype(float)
        if drawn < left:
            chance = -np.expm1(-temperature(w, shut, drawn) * w)
        chance[closed[user] & ~np.isin(np.arange(len(w)), mine)] = 0.0
        answer[user] = chance * len(mine) / drawn
    return answer


def dense_rows(model: Model, closed: np.ndarray) -> list[tuple[str, str, float, float]]:
    """(side, degree, likes, expected) of every bin; one without likes joins the next."""
    liked = model.users.whole().liked
    seen = np.zeros((liked.rows, model.item_count))
    seen[liked.edge_rows, liked.indices] = 1.0
    mean = model.posterior.users.mean.astype(float) @ model.items.mean.T.astype(float) + model.items.biases[0]
    if model.users.has_bias:
        mean = mean + model.posterior.users.biases[0][:, None]
    odds = dense_weights(model, closed) * np.exp(mean)
    p = odds / (1.0 + odds)
    p[:, model.item_degree == 0] = 0.0
    found = []
    for side, degree, axis in (("items", seen.sum(axis=0), 0), ("users", seen.sum(axis=1), 1)):
        low = 1
        for above in (*STARTS[1:], 3162):
            inside = (degree >= low) & (degree < above)
            if inside.any():
                found.append((side, f"{low}-{above - 1}", seen.sum(axis)[inside].sum(), p.sum(axis)[inside].sum()))
                low = above
    return found


def check(model: Model, closed: np.ndarray | None, monkeypatch: pytest.MonkeyPatch) -> ExpectedLikes:
    monkeypatch.setattr("considerate.evaluation.expected_likes.LEAST_LIKES", 1)
    nothing = np.zeros((model.user_count, model.item_count), bool)
    wanted = dense_rows(model, nothing if closed is None else closed)
    found = expected_likes(model, threads=1)
    assert [(row.side, row.degree, row.likes) for row in found.rows] == [row[:3] for row in wanted]
    np.testing.assert_allclose([row.expected for row in found.rows], [row[3] for row in wanted], rtol=2e-5)
    assert all(row.ratio == row.expected / row.likes and row.error == 0.0 for row in found.rows)
    return found


SETTINGS: dict[str, dict[str, Any]] = {
    "walk": {},
    "walk, c 1": {"negatives": 1.0},
    "walk, all drawn": {"negatives": 40.0},
    "popularity": {"consideration": "popularity"},
    "popularity, all drawn": {"consideration": "popularity", "negatives": 40.0},
    "expected, the walk in the ranking alone": {"hidden": "expected"},
    "expected, popularity": {"hidden": "expected", "consideration": "popularity"},
    "user biases": {"user_bias": True},
    "covariances": {"posterior": "full", "opening": 0},
    "flat popularity": {"gamma": 0.5},
    "tilt": {"tilt": 0.5, "opening": 0},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_expected_likes_are_the_sum_over_all_pairs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check(fitted(skewed(120, 40), **SETTINGS[name]).model_, None, monkeypatch)


@pytest.mark.parametrize("consideration", ["walk", "popularity"])
def test_impossible_pairs_are_in_no_sum(consideration: str, monkeypatch: pytest.MonkeyPatch) -> None:
    likes = skewed(120, 40)
    closed = (np.random.default_rng(1).random(likes.shape) < 0.3) & (likes.toarray() == 0)
    given = {"impossible": sp.csr_matrix(closed.astype(np.float32))}
    check(fitted(likes, given, consideration=consideration).model_, closed, monkeypatch)


def test_items_without_likes_are_in_no_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Items that features alone predict: nobody could like them in training."""
    likes = skewed(120, 40).tolil()
    likes[:, 35:] = 0
    features = sp.csr_matrix(np.arange(40)[:, None] % 2 == np.arange(2)[None, :], dtype=np.float32)
    model = fitted(sp.csr_matrix(likes), {"item_features": features}).model_
    assert len(model.cold_items) == 5
    check(model, None, monkeypatch)


@pytest.mark.parametrize("settings", [{}, {"consideration": "popularity"}, {"hidden": "expected"}])
def test_open_pairs_have_the_weights_of_p_considered(settings: dict[str, Any]) -> None:
    model = fitted(skewed(120, 40), **settings).model_
    liked = model.users.whole().liked
    ids = np.tile(np.arange(model.item_count, dtype=np.int32), (liked.rows, 1))
    pairs = consideration_weights(model, liked, ids).reshape(ids.shape)
    every, mine = weights_of_all(model, liked), np.zeros(ids.shape, bool)
    mine[liked.edge_rows, liked.indices] = True
    np.testing.assert_allclose(every[~mine], pairs[~mine], rtol=2e-5, atol=1e-12)
    assert (pairs[mine] == 1.0).all()
    assert (every[mine] > 0.0).all()


def test_the_closed_form_has_no_walk_in_w() -> None:
    """H of *expected* is by popularity, whatever ranks: p(considered) is the same with the walk's table and without."""
    models = [fitted(skewed(), hidden="expected", consideration=kind).model_ for kind in ("walk", "popularity")]
    liked = models[0].users.whole().liked
    np.testing.assert_array_equal(*(weights_of_all(model, liked) for model in models))


def test_bins_of_few_likes_join_a_neighbour() -> None:
    model = fitted(skewed()).model_
    found = expected_likes(model)
    for side in ("items", "users"):
        rows = [row for row in found.rows if row.side == side]
        assert sum(row.likes for row in rows) == model.users.edges
        assert all(row.likes >= 200 for row in rows)
        ends = [tuple(map(int, row.degree.split("-"))) for row in rows]
        assert ends[0][0] == 1
        assert all(before[1] + 1 == after[0] for before, after in pairwise(ends))
    few = expected_likes(fitted(skewed(50, 40)).model_)
    assert [row.side for row in few.rows] == ["items", "users"]


def test_a_sample_of_users_is_within_its_standard_error() -> None:
    """Over many samples: the differences from all users are as large as the errors say."""
    model = fitted(skewed(2000, 60)).model_
    whole = {(row.side, row.degree): row for row in expected_likes(model).rows}
    off = []
    for seed in range(40):
        some = expected_likes(model, most=400 * model.item_count, seed=seed)
        assert (some.users, some.population) == (400, 2000)
        rows = [(row, whole[row.side, row.degree]) for row in some.rows if (row.side, row.degree) in whole]
        assert len(rows) >= 2
        assert all(0.0 < row.error < 0.2 for row, _ in rows)
        off += [(row.ratio - all_users.ratio) / row.error for row, all_users in rows]
    assert 0.8 < np.sqrt(np.mean(np.square(off))) < 1.25
    assert abs(np.mean(off)) < 0.3
    again, other = (expected_likes(model, most=400 * model.item_count, seed=seed) for seed in (39, 0))
    assert again == some != other


def test_threads_and_shards_give_the_same_numbers(tmp_path: Path) -> None:
    recommender = fitted(skewed())
    once = recommender.expected_likes()
    assert expected_likes(recommender.model_, threads=3) == once
    recommender.save(tmp_path / "shards", shards=3)
    assert Recommender.load(tmp_path / "shards").expected_likes() == once
    assert "not evidence that H is right" in str(once)


def test_a_model_without_such_a_number_says_why(tmp_path: Path) -> None:
    recommender = fitted(skewed())
    recommender.save(tmp_path / "model.safetensors", likes=False)
    with pytest.raises(UsageError, match="saved without likes"):
        Recommender.load(tmp_path / "model.safetensors").expected_likes()
    shown = sp.csr_matrix((skewed(seed=1).toarray() > skewed().toarray()).astype(np.float32))
    with pytest.raises(UsageError, match="considered_are is 'all'"):
        fitted(skewed(), {"considered": shown}, considered_are="all").expected_likes()
    edges = pa.table({"a": [0, 1, 2, 3, 0], "b": [1, 2, 3, 0, 2]})
    with pytest.raises(UsageError, match="graph of vertices"):
        expected_likes(GraphRecommender(factors=2, sweeps=2).fit(edges).model_)
    with pytest.raises(UsageError, match="most is 0"):
        expected_likes(recommender.model_, most=0)


def test_recalibration_changes_nothing() -> None:
    recommender = fitted(skewed())
    before = recommender.expected_likes()
    model = recommender.model_
    recommender._model = replace(model, recalibration=replace(model.recalibration, slope=0.5, shift=1.0))
    assert recommender.expected_likes() == before


# --- In the shell ---


def run(*arguments: object, columns: int = 80) -> str:
    environment = {"COLUMNS": str(columns), "TERM": "dumb"}
    result = CliRunner().invoke(cli.app, [str(one) for one in arguments], env=environment)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_inspect_and_evaluate_show_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recommender, path = fitted(skewed()), tmp_path / "model.safetensors"
    recommender.save(path)
    wanted = recommender.expected_likes().to_list()
    told = json.loads(run("inspect", path, "--json"))
    assert told["expected_likes"] == wanted
    assert told["expected_likes_reason"] is None
    assert set(wanted[0]) == {"side", "degree", "likes", "expected", "ratio", "error"}
    new = pa.table({"user": [0, 1, 2, 3], "item": [55, 56, 57, 58]})
    pq.write_table(new, tmp_path / "new.parquet")
    assert json.loads(run("evaluate", path, tmp_path / "new.parquet", "--json"))["expected_likes"] == wanted
    for shown in (run("inspect", path), run("evaluate", path, tmp_path / "new.parquet")):
        assert "likes that the model expects" in shown
        assert "not evidence that H is right" in " ".join(shown.split())
        assert max(map(len, shown.splitlines()[1:])) <= 80
        assert any(line.split()[:2] == ["items", wanted[0]["degree"]] for line in shown.splitlines())
    monkeypatch.setattr(describe, "QUICK_PAIRS", 100 * 60)
    assert "of 100 users, drawn from 300" in " ".join(run("inspect", path).split())
    recommender.save(path, likes=False)
    without = json.loads(run("inspect", path, "--json"))
    assert (without["expected_likes"], without["expected_likes_reason"]) == (None, "this model was saved without likes")
    assert "no expected likes: this model was saved without likes" in run("inspect", path)


# --- On real likes ---


@pytest.mark.data
@pytest.mark.slow
def test_the_default_fit_expects_as_many_likes_as_there_are(data_dir: Path) -> None:
    """But for the two users who like more than a sixth of all items: they need biases of users."""
    ratings, last = data_dir / "ml-100k" / "ratings.parquet", ("users", "316-999")
    rows = Recommender(threads=2).fit(ratings, where="rating >= 4").expected_likes().rows
    assert len(rows) == 11
    assert {(row.side, row.degree) for row in rows if not 0.9 <= row.ratio <= 1.15} == {last}
    rows = Recommender(threads=2, user_bias=True).fit(ratings, where="rating >= 4").expected_likes().rows
    assert [0.9 <= row.ratio <= 1.15 for row in rows if (row.side, row.degree) == last] == [True]


# --- The study ---


@pytest.mark.parametrize("name", ["walk", "popularity", "popularity, all drawn", "expected, popularity"])
def test_the_sums_of_the_study_are_those_over_all_pairs(name: str) -> None:
    """On H: likes, and w of a coin at each other pair. Averaged: by the mean over many draws of each logit."""
    model = fitted(skewed(120, 40), **SETTINGS[name]).model_
    liked, nothing = model.users.whole().liked, np.zeros((120, 40), bool)
    mean = model.posterior.users.mean.astype(float) @ model.items.mean.T.astype(float) + model.items.biases[0]
    weights, offset = dense_weights(model, nothing), logit_offset(model, liked)[:, None]
    drawn = weights / np.exp(offset)
    drawn[liked.edge_rows, liked.indices] = 1.0
    found = expected_likes(model, chances=study.on_h).rows[0]
    assert found.expected == pytest.approx((drawn / (1.0 + np.exp(-mean - offset)))[:, found_items(model, found)].sum())
    deviation = np.sqrt(model.columns.variances(model.posterior.users, np.arange(120)).astype(float))
    logits = mean + np.random.default_rng(0).standard_normal((400, 120, 40)) * deviation
    odds = weights * np.exp(logits)
    found = expected_likes(model, chances=study.averaged).rows[0]
    wanted = (odds / (1.0 + odds)).mean(axis=0)[:, found_items(model, found)].sum()
    assert found.expected == pytest.approx(wanted, rel=0.01)
    assert abs(found.expected / expected_likes(model).rows[0].expected - 1.0) > 0.02


def found_items(model: Model, row: ExpectedLikesRow) -> np.ndarray:
    """Items of the degrees of a row."""
    low, high = map(int, row.degree.split("-"))
    return (model.item_degree >= low) & (model.item_degree <= high)


def test_the_study_marks_what_is_outside() -> None:
    rows = tuple(ExpectedLikesRow("items", f"{at}-{at}", 200, 200 * at, at, 0.0) for at in (0.89, 0.9, 1.15, 1.16))
    rows += (ExpectedLikesRow("users", "1-9", 200, 200.0, 1.0, 0.0),)
    text = study.cells(ExpectedLikes(rows, 10, 10), "items")
    assert text == "0.89-0.89 0.89*, 0.9-0.9 0.90, 1.15-1.15 1.15, 1.16-1.16 1.16*"
    assert len(study.FITS) * len(study.SETS) == 36
