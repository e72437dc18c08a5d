"""Honesty of p(like): reliability against brute force, the fit of a recalibration, its way through the model's file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, special
from sklearn import metrics as sklearn_metrics
from typer.testing import CliRunner

from considerate import Recommender
from considerate.cli import app
from considerate.errors import DataError, ModelFileError, UsageError
from considerate.evaluation.calibration import (
    EQUAL,
    Recalibration,
    auc,
    class_weights,
    errors_by_degree,
    fit_recalibration,
    recalibrated_by_others,
    reliability,
    reliability_bins,
    wilson_interval,
)
from considerate.model.liking import like_interval, like_probability, logit
from considerate.storage.container import open_tensors, write_tensors
from likes import as_table, skewed
from randomised import examples


@st.composite
def judgements(draw):
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count = draw(st.integers(2, 60))
    p = random.choice([random.random(count), np.round(random.random(count), 1)][draw(st.integers(0, 1))], count)
    liked = random.random(count) < draw(st.sampled_from([0.1, 0.5, 0.9]))
    liked[:2] = True, False
    return p, liked


@examples(100)
@given(judgements(), st.integers(1, 12), st.sampled_from([EQUAL, None, "own"]))
def test_reliability_against_brute_force(case, bins: int, kind) -> None:
    p, liked = case
    own = np.random.default_rng(0).random(len(p)) + 0.1
    table = reliability(p, liked, own if kind == "own" else kind, bins)
    if kind is None:
        weights = [1.0] * len(p)
    elif kind == "own":
        weights = own.tolist()
    else:
        weights = [1 / liked.sum() if one else 1 / (~liked).sum() for one in liked]
    error = 0.0
    for at in range(bins):
        inside = [i for i in range(len(p)) if min(int(p[i] * bins), bins - 1) == at]
        assert table.count[at] == len(inside)
        if not inside:
            assert np.isnan(table.observed[at])
            assert np.isnan(table.predicted[at])
            continue
        mass = sum(weights[i] for i in inside)
        predicted = sum(weights[i] * p[i] for i in inside) / mass
        observed = sum(weights[i] for i in inside if liked[i]) / mass
        assert table.predicted[at] == pytest.approx(predicted)
        assert table.observed[at] == pytest.approx(observed)
        assert table.weight[at] == pytest.approx(mass / sum(weights))
        error += mass / sum(weights) * abs(predicted - observed)
    assert table.calibration_error == pytest.approx(error)
    assert table.brier == pytest.approx(np.average((p - liked) ** 2, weights=weights))
    seen = np.where(liked, p, 1 - p)
    assert table.log_loss == pytest.approx(np.average(-np.log(np.maximum(seen, 1e-15)), weights=weights))
    pairs = [(1.0 if a > b else 0.5 if a == b else 0.0) for a in p[liked] for b in p[~liked]]
    assert table.auc == pytest.approx(np.mean(pairs))


def test_against_scikit_learn() -> None:
    random = np.random.default_rng(0)
    p = np.round(random.random(500), 2) * 0.98 + 0.01
    liked = random.random(500) < p**2
    table = reliability(p, liked, None)
    assert table.auc == pytest.approx(sklearn_metrics.roc_auc_score(liked, p))
    assert table.brier == pytest.approx(sklearn_metrics.brier_score_loss(liked, p))
    assert table.log_loss == pytest.approx(sklearn_metrics.log_loss(liked, p))


def test_equal_classes_weigh_the_same() -> None:
    weights = class_weights(np.array([True, False, False, False]))
    assert weights.tolist() == pytest.approx([0.5, 1 / 6, 1 / 6, 1 / 6])
    with pytest.raises(DataError, match="both liked and not liked"):
        class_weights(np.ones(3, bool))
    with pytest.raises(UsageError):
        class_weights(np.array([True, False]), "fair")
    with pytest.raises(UsageError):
        class_weights(np.array([True, False]), np.array([1.0, -1.0]))
    assert np.isnan(auc(np.ones(3), np.ones(3, bool)))


def test_an_honest_p_is_found_honest_and_another_is_not() -> None:
    random = np.random.default_rng(1)
    p = random.random(40_000)
    liked = random.random(40_000) < p
    assert reliability(p, liked, None).calibration_error < 0.01
    assert reliability(special.expit(3 * logit(p)), liked, None).calibration_error > 0.1


@pytest.mark.parametrize("weights", [EQUAL, None])
def test_the_recalibration_is_the_numeric_optimum(weights) -> None:
    random = np.random.default_rng(2)
    a = random.normal(1.0, 1.5, 3000)
    liked = random.random(3000) < special.expit(0.4 * a - 0.9)
    p = special.expit(a)
    found = fit_recalibration(p, liked, weights)
    w = class_weights(liked, weights)

    def loss(line):
        return -(w * special.log_expit(np.where(liked, 1, -1) * (line[0] * a + line[1]))).sum() / w.sum()

    best = optimize.minimize(loss, [1.0, 0.0], method="BFGS", options={"gtol": 1e-10})
    assert (found.slope, found.shift) == pytest.approx(tuple(best.x), abs=1e-5)
    if weights is None:
        assert (found.slope, found.shift) == pytest.approx((0.4, -0.9), abs=0.12)


def test_it_mends_what_was_bent() -> None:
    random = np.random.default_rng(3)
    honest = random.random(20_000) * 0.96 + 0.02
    liked = random.random(20_000) < honest
    bent = special.expit(2.5 * logit(honest) + 0.7)
    line = fit_recalibration(bent, liked, None)
    assert line.apply(bent) == pytest.approx(honest, abs=0.02)
    assert reliability(line.apply(bent), liked, None).calibration_error < 0.01


@pytest.mark.parametrize("far", [1e-3, 30.0])
def test_it_is_found_from_far_away(far: float) -> None:
    random = np.random.default_rng(4)
    a = random.normal(size=2000)
    liked = random.random(2000) < special.expit(a)
    line = fit_recalibration(special.expit(np.clip(far * a, -34, 34)), liked, None)
    expected = fit_recalibration(special.expit(a), liked, None)
    if far < 1:
        assert line.slope * far == pytest.approx(expected.slope, rel=1e-3)
    assert np.isfinite(line.slope)


def test_what_cannot_be_fitted_is_refused() -> None:
    p, liked = np.linspace(0.1, 0.9, 20), np.arange(20) >= 10
    with pytest.raises(DataError, match="without error"):
        fit_recalibration(p, liked)
    with pytest.raises(DataError, match="check which pairs are liked"):
        fit_recalibration(p, np.arange(20) % 7 < 4 - np.arange(20) / 8)
    with pytest.raises(DataError, match="the same for all"):
        fit_recalibration(np.full(20, 0.3), liked)
    with pytest.raises(DataError, match="both"):
        fit_recalibration(p, np.ones(20, bool))
    for wrong in (np.array([0.5, np.nan]), np.array([0.5, 1.5])):
        with pytest.raises(DataError, match="outside"):
            reliability(wrong, np.array([True, False]))
    with pytest.raises(DataError, match="true or false"):
        reliability(np.array([0.5, 0.5]), np.array([5, 1]))
    with pytest.raises(UsageError):
        reliability(np.array([0.5]), np.array([True, False]))


@pytest.mark.parametrize(("slope", "shift"), [(0.0, 0.0), (-1.0, 0.0), (np.nan, 0.0), (1.0, np.inf)])
def test_a_line_that_is_none(slope: float, shift: float) -> None:
    with pytest.raises(UsageError, match="slope above 0"):
        Recalibration(slope, shift)


def test_others_recalibrate_each() -> None:
    """A pair's p' does not depend on its own user's truth."""
    random = np.random.default_rng(5)
    users = np.repeat(np.arange(40), 25)
    p = random.random(1000) * 0.9 + 0.05
    liked = random.random(1000) < special.expit(0.5 * logit(p) - 1)
    found = recalibrated_by_others(p, liked, users)
    turned = np.where(users == 7, ~liked, liked)
    again = recalibrated_by_others(p, turned, users)
    assert np.array_equal(found[users == 7], again[users == 7])
    assert not np.array_equal(found, again)
    assert reliability(found, liked).calibration_error < 0.5 * reliability(p, liked).calibration_error
    with pytest.raises(UsageError, match="folds"):
        recalibrated_by_others(p, liked, np.zeros(1000))


def test_errors_by_degree() -> None:
    rows = errors_by_degree(np.array([0.4, 0.6, 0.5, 0.9]), np.array([1, 1, 20, 20]), resamples=10)
    assert [(row.low, row.high, row.mean, row.count) for row in rows] == [(1, 3, 0.5, 2), (10, 20, 0.25, 2)]


# --- In the model ---


@pytest.fixture(scope="module")
def fitted() -> Recommender:
    return Recommender(factors=3, sweeps=4).fit(as_table(skewed()))


@pytest.fixture
def fresh(fitted: Recommender) -> Recommender:
    made = Recommender(**fitted.get_params())
    made._model = fitted.model_
    return made


def pairs(count: int = 800):
    random = np.random.default_rng(6)
    return random.integers(0, 300, count), random.integers(0, 60, count), random


def test_predictions_are_recalibrated(fresh: Recommender) -> None:
    users, items, random = pairs()
    raw = fresh.predict_proba(users, items, by="row")
    liked = random.random(len(raw)) < special.expit(0.5 * special.logit(raw) - 0.4)
    assert fresh.recalibrate(users, items, liked, by="row") is fresh
    line = fresh.recalibration_
    assert line == fit_recalibration(raw, liked)
    p = fresh.predict_proba(users, items, by="row")
    assert p == pytest.approx(special.expit(line.slope * special.logit(raw) + line.shift), abs=1e-5)
    assert np.array_equal(fresh.predict_proba(users, items, recalibrated=False, by="row"), raw)
    assert isinstance(fresh.predict_proba(3, 4, by="row"), float)
    assert fresh.predict_proba(3, 4, by="row") == pytest.approx(
        float(fresh.predict_proba([3], [4], by="row")[0]), abs=1e-6
    )
    again = fresh.recalibration_
    assert fresh.recalibrate(users, items, liked, by="row").recalibration_ == again, "it starts from the raw p(like)"
    assert fresh.recalibrate(users, items, liked, equal_classes=False, by="row").recalibration_ != again


def test_tables_and_explanations_are_recalibrated_and_rankings_are_not(fresh: Recommender) -> None:
    users, items, random = pairs()
    before = fresh.recommend_table(["u1", "u5"], 6)
    explained, _ = fresh.explain(1, 3, by="row")
    fresh.recalibrate(
        users, items, random.random(len(users)) < fresh.predict_proba(users, items, by="row") ** 2, by="row"
    )
    line, after = fresh.recalibration_, fresh.recommend_table(["u1", "u5"], 6)
    assert after["item"].to_pylist() == before["item"].to_pylist()
    assert after["score"].to_pylist() == before["score"].to_pylist()
    for name in ("p_like", "low", "high"):
        old = np.array(before[name].to_pylist())
        assert after[name].to_pylist() == pytest.approx(
            special.expit(line.slope * special.logit(old) + line.shift), abs=1e-4
        )
        assert after[name].to_pylist() != pytest.approx(old, abs=1e-3)
    bounds = [after[name].to_numpy() for name in ("low", "p_like", "high")]
    assert (bounds[0] < bounds[1]).all()
    assert (bounds[1] < bounds[2]).all()
    assert fresh.explain(1, 3, by="row")[0] == pytest.approx(float(line.apply(np.array(explained))), abs=1e-5)
    new = fresh.recommend_for(["i1", "i2"], 3)["p_like"].to_pylist()
    fresh.recalibrate(
        users, items, random.random(len(users)) < 0.1 + 0.5 * fresh.predict_proba(users, items, by="row"), by="row"
    )
    assert fresh.recommend_for(["i1", "i2"], 3)["p_like"].to_pylist() != new


def test_a_line_of_one_and_zero_changes_no_bit(fitted: Recommender) -> None:
    mean, variance = np.linspace(-9, 9, 50, dtype=np.float32), np.linspace(0, 5, 50, dtype=np.float32)
    assert np.array_equal(like_probability(mean, variance), like_probability(mean, variance, Recalibration(1.0, 0.0)))
    low, high = like_interval(mean, variance, Recalibration(2.0, 1.0))
    assert low == pytest.approx(special.expit(2 * (mean - 1.6448536 * np.sqrt(variance)) + 1), abs=1e-6)
    assert (low <= high).all()
    assert fitted.recalibration_ == Recalibration()


def test_a_p_that_rounds_to_one_is_recalibrated_by_its_logit() -> None:
    """In float32 sigma(40) is 1, whose logit says nothing; sigma(0.1 * 40) is not."""
    assert like_probability(np.float32([40.0]), np.float32([0.0]), Recalibration(0.1, 0.0))[0] == pytest.approx(
        special.expit(4.0)
    )


def test_round_trip(fresh: Recommender, tmp_path: Path) -> None:
    users, items, random = pairs()
    fresh.save(tmp_path / "raw")
    fresh.recalibrate(
        users, items, random.random(len(users)) < fresh.predict_proba(users, items, by="row") ** 2, by="row"
    )
    fresh.save(tmp_path / "model")
    loaded = Recommender.load(tmp_path / "model")
    assert loaded.recalibration_ == fresh.recalibration_ != Recalibration()
    assert np.array_equal(loaded.predict_proba(users, items, by="row"), fresh.predict_proba(users, items, by="row"))
    assert loaded.recommend_table(["u3"]).equals(fresh.recommend_table(["u3"]))
    assert Recommender.load(tmp_path / "raw").recalibration_ == Recalibration()
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "model").read_bytes()
    assert loaded.partial_fit_users([0], skewed()[0], by="row").recalibration_ == fresh.recalibration_
    assert loaded.fit(as_table(skewed())).recalibration_ == Recalibration(), "a new fit is another model"


@pytest.mark.parametrize(
    "given",
    [
        {"slope": 0.0, "shift": 0.0},
        {"slope": -1.0, "shift": 0.0},
        {"slope": "1", "shift": 0.0},
        {"slope": True, "shift": 0.0},
        {"slope": 1.0},
        {"slope": 1.0, "shift": None},
        {"slope": 1.0, "shift": 1e301},
        {"slope": 1.0, "shift": 0.0, "bend": 1.0},
        [1.0, 0.0],
        None,
    ],
)
def test_a_file_with_another_line_is_refused(fresh: Recommender, tmp_path: Path, given) -> None:
    fresh.save(tmp_path / "model")
    stored = open_tensors(tmp_path / "model")
    metadata = json.loads(json.dumps(stored.metadata)) | {"recalibration": given}
    write_tensors(tmp_path / "bent", {name: np.array(stored[name]) for name in stored}, metadata)
    with pytest.raises(ModelFileError, match="recalibration"):
        Recommender.load(tmp_path / "bent")


# --- What is stored of it ---


def test_bins_for_readers_have_the_numbers_of_the_table() -> None:
    random = np.random.default_rng(3)
    p = random.random(4000) ** 2
    liked = random.random(4000) < p
    for weights in (None, "equal classes"):
        table, told = reliability(p, liked, weights), reliability_bins(p, liked, weights)
        assert (told.pairs, told.error) == (4000, table.calibration_error)
        for name, values in (("predicted", table.predicted), ("liked", table.observed), ("pairs", table.count)):
            assert [getattr(bin, name) for bin in told.bins] == pytest.approx(values[table.count > 0].tolist())
    few = reliability_bins(np.array([0.11, 0.12, 0.95]), np.array([False, False, True]), None)
    assert [bin.pairs for bin in few.bins] == [2, 1]


def test_the_interval_of_a_share_is_wilson_s() -> None:
    """Its ends are where the score test just does not reject: |s - q| = z sqrt(q (1 - q) / n)."""
    for likes, pairs in ((0, 7), (3, 7), (7, 7), (40, 200)):
        for end in wilson_interval(likes, pairs):
            expected = 1.6448536 * np.sqrt(end * (1 - end) / pairs)
            assert abs(likes / pairs - end) == pytest.approx(expected, abs=1e-7)
    weighed = reliability_bins(np.full(40, 0.5), np.arange(40) < 10).bins[0]
    assert weighed.liked == pytest.approx(0.5)
    odds = np.array([end / (1 - end) for end in wilson_interval(10, 40)]) * 3  # as a like weighs three times as much
    assert (weighed.low, weighed.high) == pytest.approx(tuple(odds / (1 + odds)))


def test_reliability_is_stored_with_the_recalibration(fresh: Recommender, tmp_path: Path) -> None:
    users, items, random = pairs(3000)
    raw = fresh.predict_proba(users, items, by="row")
    liked = random.random(len(raw)) < special.expit(0.5 * special.logit(raw) - 0.4)
    fresh.save(tmp_path / "raw")
    assert fresh.reliability_ is None
    assert "reliability" not in open_tensors(tmp_path / "raw").metadata
    for equal in (True, False):
        fresh.recalibrate(users, items, liked, equal, by="row")
        weights = "equal classes" if equal else None
        crossed = recalibrated_by_others(raw, liked, users, weights=weights)
        assert fresh.reliability_ == reliability_bins(crossed, liked, weights)
        assert fresh.reliability_ != reliability_bins(fresh.recalibration_.apply(raw), liked, weights), "out of fold"
        assert fresh.reliability_.error < 0.05
    for shards, path in ((None, tmp_path / "model"), (2, tmp_path / "shards")):
        fresh.save(path, shards=shards)
        loaded = Recommender.load(path)
        assert loaded.reliability_ == fresh.reliability_
    result = CliRunner().invoke(app, ["inspect", str(tmp_path / "model")], env={"COLUMNS": "80"})
    assert f"{fresh.reliability_.bins[0].liked:.1%}" in result.output
    assert max(map(len, result.output.splitlines())) <= 80
    fresh.recalibrate(np.zeros(len(items), int), items, liked, by="row")
    assert fresh.reliability_ is None, "one user cannot be judged by others"


BIN = {"predicted": 0.2, "liked": 0.3, "low": 0.1, "high": 0.5, "pairs": 9}
TABLE = {"weights": "each pair", "error": 0.1, "bins": [BIN]}


@pytest.mark.parametrize(
    "given",
    [
        None,
        [],
        {"weights": "each pair", "error": 0.1},
        TABLE | {"weights": "none"},
        TABLE | {"weights": ["each pair"]},
        TABLE | {"error": 1.5},
        TABLE | {"error": True},
        TABLE | {"bins": []},
        TABLE | {"bins": [BIN] * 101},
        TABLE | {"bins": {}},
        TABLE | {"bins": [BIN | {"more": 1}]},
        TABLE | {"bins": [BIN | {"predicted": -0.1}]},
        TABLE | {"bins": [BIN | {"high": "1"}]},
        TABLE | {"bins": [BIN | {"low": 0.4}]},
        TABLE | {"bins": [BIN | {"pairs": 0}]},
        TABLE | {"bins": [BIN | {"pairs": 9.0}]},
        TABLE | {"bins": [BIN | {"pairs": 2**60}]},
        TABLE | {"bins": [[0.2, 0.3, 0.1, 0.5, 9]]},
    ],
    ids=str,
)
def test_a_file_with_an_impossible_reliability_is_refused(fresh: Recommender, tmp_path: Path, given) -> None:
    fresh.save(tmp_path / "model")
    stored = open_tensors(tmp_path / "model")
    arrays, metadata = {name: np.array(stored[name]) for name in stored}, json.loads(json.dumps(stored.metadata))
    write_tensors(tmp_path / "right", arrays, metadata | {"reliability": TABLE})
    assert Recommender.load(tmp_path / "right").reliability_.to_dict() == TABLE
    write_tensors(tmp_path / "wrong", arrays, metadata | {"reliability": given})
    with pytest.raises(ModelFileError, match="reliability"):
        Recommender.load(tmp_path / "wrong")


def test_a_file_from_before_there_was_any_is_read(fresh: Recommender, tmp_path: Path) -> None:
    fresh.save(tmp_path / "model")
    stored = open_tensors(tmp_path / "model")
    metadata = {name: value for name, value in stored.metadata.items() if name != "recalibration"}
    write_tensors(tmp_path / "old", {name: np.array(stored[name]) for name in stored}, metadata)
    assert Recommender.load(tmp_path / "old").recalibration_ == Recalibration()
