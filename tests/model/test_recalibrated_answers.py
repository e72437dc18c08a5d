"""A recalibrated model gives one answer by every way to ask: tables, fold-in, shards, HTTP, and files of before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from considerate import GraphRecommender, Recommender
from considerate.evaluation.recalibration import JudgedPairs, recalibrate, structural_variance
from considerate.evaluation.scorer import ModelScorer
from considerate.model.liking import (
    COVARIATES,
    INTERVAL,
    MOST_SLOPE,
    STRUCTURE,
    Covariate,
    Recalibration,
    StructuralVariance,
    like_interval,
    like_probability,
    logit,
)
from considerate.storage.container import open_tensors, write_tensors
from tests.helpers.judged import ITEMS, fitted, judged_rows
from tests.helpers.likes import skewed
from tests.helpers.randomised import examples
from tests.helpers.service_fixtures import Client, running, same_items


@pytest.fixture(scope="module")
def raw() -> Recommender:
    return fitted()


@pytest.fixture(scope="module")
def model(raw: Recommender) -> Recommender:
    made = Recommender(**raw.get_params())
    made._model = raw.model_
    made.recalibrate(*judged_rows(), by="row")
    assert set(made.recalibration_.covariates) == set(COVARIATES)
    assert made.model_.structure != STRUCTURE
    return made


@pytest.fixture(scope="module")
def client(model: Recommender, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    path = tmp_path_factory.mktemp("recalibrated") / "model"
    model.save(path)
    with running(path) as service:
        yield service


def known(raw: Recommender, likes: Any, items: Any) -> dict[str, Any]:
    """The covariates of one user with these likes, by their definitions; all are rows."""
    table = raw.model_.consideration
    assert table is not None
    ratios = table.ratios(np.array(likes), raw.model_.plan.sharpness)
    return {
        "log_popularity": np.log(raw.model_.popularity[items]),
        "lift": np.log(np.maximum(ratios[items], 2.0**-60)),
        "log_likes": np.full(len(items), np.log(1.0 + len(likes))),
    }


# --- HTTP ---


@pytest.mark.parametrize("options", [{}, {"popularity": 0.3, "lift": 1.5}, {"score": "p_like"}], ids=str)
def test_lists_over_http_are_those_of_python(client: Client, model: Recommender, options: dict[str, Any]) -> None:
    """p_like, low and high to the last digit: of known users, alone and in a batch, and of likes that are sent."""
    for user in ("u1", "u250"):
        expected = model.recommend_table([user], 12, **options)
        same_items(client.recommendations(user, n=12, **options)["items"], expected)
        (entry,) = client.post("/v1/recommendations:batch", json={"users": [user], "n": 12, **options}).json()[
            "results"
        ]
        same_items(entry["items"], expected)
    answer = client.post("/v1/recommendations", json={"likes": ["i2", "i40"], "n": 12, **options}).json()
    same_items(answer["items"], model.recommend_for(["i2", "i40"], 12, **options))


def test_reasons_and_the_model_over_http(client: Client, model: Recommender) -> None:
    for item in client.recommendations("u5", n=4, explain=True)["items"]:
        reasons = model.explain("u5", item["item"])
        found = [(one["number"], one["logit"]) for one in item["why"]["recalibrated_by"]]
        assert found == reasons.recalibrated_by
        x = model.predict_proba("u5", item["item"], recalibrated=False)
        assert special.logit(reasons[0]) == pytest.approx(special.logit(x) + sum(a for _, a in found), abs=1e-4)
    told = client.get("/v1/model").json()
    line = model.recalibration_
    assert told["calibration"]["covariates"] == {name: one._asdict() for name, one in line.covariates.items()}
    assert (told["calibration"]["slope"], told["calibration"]["pairs"]) == (line.slope, line.pairs)
    assert (told["calibration"]["weights"], told["calibration"]["stale"]) == ("each pair", False)
    assert told["structure"] == vars(model.model_.structure)


# --- New users ---


@pytest.mark.parametrize("likes", [[2, 40], list(range(0, 40, 2)), [59]], ids=len)
def test_new_users_have_the_covariates_of_their_likes(raw: Recommender, model: Recommender, likes: list[int]) -> None:
    names = [f"i{item}" for item in likes]
    before, after = (one.recommend_for(names, ITEMS) for one in (raw, model))
    assert after["item"].to_pylist() == before["item"].to_pylist()
    items = raw.item_rows(after["item"].to_pylist())
    expected = model.recalibration_.apply(before["p_like"].to_numpy(), known(raw, raw.item_rows(names), items))
    assert after["p_like"].to_numpy() == pytest.approx(expected, abs=2e-5)


def test_users_who_join_have_covariates(raw: Recommender, model: Recommender) -> None:
    likes, items, joined = skewed()[[7]], np.arange(ITEMS), Recommender(**raw.get_params())
    joined._model = model.model_
    joined.partial_fit_users(["new"], likes)
    users = np.full(ITEMS, joined.user_rows("new"))
    unmoved = joined.predict_proba(users, items, recalibrated=False, by="row")
    expected = model.recalibration_.apply(unmoved, known(joined, likes.indices, items))
    assert joined.predict_proba(users, items, by="row") == pytest.approx(expected, abs=2e-5)


# --- Files ---


def test_shards_answer_with_the_same_bits(model: Recommender, tmp_path: Path) -> None:
    model.save(tmp_path / "shards", shards=4)
    loaded = Recommender.load(tmp_path / "shards")
    users, items = np.arange(300)[:, None], np.arange(ITEMS)[None, :]
    pairs = np.broadcast_arrays(users, items)
    assert np.array_equal(loaded.predict_proba(*pairs, by="row"), model.predict_proba(*pairs, by="row"))
    some = ["u0", "u99", "u299"]
    assert loaded.recommend_table(some).to_pylist() == model.recommend_table(some).to_pylist()


def test_a_model_saved_without_likes_takes_lift_for_its_mean(
    raw: Recommender, model: Recommender, tmp_path: Path
) -> None:
    model.save(tmp_path / "model", likes=False)
    loaded = Recommender.load(tmp_path / "model")
    users, items = np.arange(60), np.arange(60)
    numbers = {
        "log_popularity": np.log(raw.model_.popularity[items]),
        "lift": np.full(60, np.nan),
        "log_likes": np.log1p(raw.model_.users.whole().degree[users]),
    }
    expected = model.recalibration_.apply(raw.predict_proba(users, items, by="row"), numbers)
    assert loaded.predict_proba(users, items, by="row") == pytest.approx(expected, abs=2e-5)


@pytest.mark.parametrize("stored", [{"slope": 0.4, "shift": -0.3}, {"slope": 1.0, "shift": 0.0}, None], ids=str)
def test_a_file_of_0_3_answers_as_it_did(raw: Recommender, tmp_path: Path, stored: Any) -> None:
    """A line, or none, and no structural variance: p and its interval are the recalibrated ones of the posterior."""
    raw.save(tmp_path / "model")
    tensors = open_tensors(tmp_path / "model")
    left = ("recalibration", "structure")
    about = {name: value for name, value in tensors.metadata.items() if name not in left}
    about |= {} if stored is None else {"recalibration": stored}
    write_tensors(tmp_path / "old", {name: np.array(tensors[name]) for name in tensors}, about)
    old = Recommender.load(tmp_path / "old")
    slope, shift = (stored or {"slope": 1.0, "shift": 0.0}).values()
    table = old.recommend_table(["u3"], 20)
    mean, deviation = raw.predict_logit(
        np.full(20, raw.user_rows("u3")), raw.item_rows(table["item"].to_pylist()), by="row"
    )
    moderated = mean / np.sqrt(1.0 + np.pi / 8.0 * deviation**2)
    width = INTERVAL * deviation
    for name, x in (("p_like", moderated), ("low", mean - width), ("high", mean + width)):
        assert table[name].to_numpy() == pytest.approx(special.expit(slope * x + shift), abs=2e-6)
    assert old.model_.structure is None
    old.save(tmp_path / "again")
    assert Recommender.load(tmp_path / "again").recommend_table(["u3"], 20).to_pylist() == table.to_pylist()


# --- Rankings and intervals ---


def test_only_score_p_like_ranks_otherwise(raw: Recommender, model: Recommender) -> None:
    users = np.arange(300)
    for options in ({}, {"popularity": 0.7, "lift": 0.2}, {"score": "like"}, {"score": "popularity_x_like"}):
        before, after = (one.recommend(users, N=10, by="row", **options) for one in (raw, model))
        np.testing.assert_array_equal(before.ids, after.ids)
        np.testing.assert_array_equal(before.scores, after.scores)
    before, after = (one.recommend(users, N=10, score="p_like", by="row") for one in (raw, model))
    assert not np.array_equal(before.ids, after.ids)
    rows = np.broadcast_to(users[:, None], after.ids.shape)
    p = model.predict_proba(rows, after.ids, by="row")
    assert (np.diff(p, axis=1) <= 1e-6).all()
    logits = ModelScorer(model.model_, score="p_like").scores(users[:20])
    every = model.predict_proba(*np.broadcast_arrays(users[:20, None], np.arange(ITEMS)), by="row")
    assert special.expit(logits) == pytest.approx(every, abs=1e-5)


numbers = st.floats(-30, 30)
covariate = st.tuples(st.floats(-5, 5), numbers, numbers, st.floats(0, 40)).map(
    lambda given: Covariate(given[0], given[1], given[2], given[2] + given[3])
)


@examples(500)
@given(
    mean=st.lists(st.floats(-60, 60), min_size=3, max_size=3),
    variance=st.lists(st.floats(0, 50), min_size=3, max_size=3),
    slope=st.floats(0.01, MOST_SLOPE),
    shift=numbers,
    covariates=st.dictionaries(st.sampled_from(sorted(COVARIATES)), covariate),
    values=st.lists(st.one_of(numbers, st.just(float("nan"))), min_size=3, max_size=3),
    structure=st.tuples(*[st.floats(0, 10)] * 3).map(lambda given: StructuralVariance(*given)),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_p_is_within_its_interval(
    mean: list[float],
    variance: list[float],
    slope: float,
    shift: float,
    covariates: dict[str, Covariate],
    values: list[float],
    structure: StructuralVariance,
    dtype: Any,
) -> None:
    line = Recalibration(slope, shift, covariates)
    known = dict.fromkeys(COVARIATES, np.array(values))
    moments = np.array(mean, dtype), np.array(variance, dtype)
    p = like_probability(*moments, line, known)
    low, high = like_interval(*moments, line, known, structure)
    assert ((low >= 0.0) & (low <= p) & (p <= high) & (high <= 1.0)).all()
    inside = (np.abs(logit(p)) < 12) & (structure.total > 1e-3)
    assert ((low < p) & (p < high))[inside].all()


# --- Graphs ---


@pytest.mark.parametrize("signed", [False, True])
def test_a_graph_is_recalibrated_by_a_line_from_either_end(signed: bool) -> None:
    random = np.random.default_rng(4)
    first, second = np.triu_indices(60, 1)
    linked = random.random(len(first)) < np.where((first % 3 == second % 3) ^ signed, 0.4, 0.03)
    held = random.random(len(first)) < 0.3
    edges = {"src": first[linked & ~held], "dst": second[linked & ~held]}
    graph = GraphRecommender(factors=4, sweeps=6, signed=signed, threads=1).fit(edges)
    a, b, truth = first[held], second[held], linked[held]
    turned = random.random(len(a)) < 0.5
    found = []
    for ends in ((a, b), (np.where(turned, a, b), np.where(turned, b, a))):
        judged = JudgedPairs.of(graph.model_, *ends, truth)
        assert judged.one_kind
        done = recalibrate(judged)
        assert not done.recalibration.covariates
        found.append([done.recalibration.slope, done.recalibration.shift, *vars(done.structure).values()])
    assert found[0] == pytest.approx(found[1], rel=1e-6), "a pair has no first end"
    graph.recalibrate(a, b, truth)
    assert np.array_equal(graph.predict_proba(a, b), graph.predict_proba(b, a))


def test_vertices_share_one_variance() -> None:
    """Each vertex has an amount of its own, at whichever end of a pair it is."""
    random = np.random.default_rng(0)
    amounts, ends = random.normal(0, 0.7, 800), random.integers(0, 800, (2, 16_000))
    linked = random.random(16_000) < special.expit(amounts[ends].sum(axis=0))
    judged = JudgedPairs(*ends, linked, np.zeros(16_000), one_kind=True)
    found = structural_variance(judged, Recalibration())
    assert (found.user, found.item) == pytest.approx((0.49, 0.49), abs=0.06)
