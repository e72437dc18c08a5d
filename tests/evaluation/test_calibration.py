"""Reliability of p(like) against brute force, and its way through the model's file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special
from sklearn import metrics as sklearn_metrics

from considerate import Recommender
from considerate.errors import DataError, ModelFileError, UsageError
from considerate.evaluation.calibration import (
    EQUAL,
    auc,
    class_weights,
    errors_by_degree,
    reliability,
    reliability_bins,
    wilson_interval,
)
from considerate.model.liking import logit
from considerate.model.reliability import LikeReliability
from considerate.storage.container import open_tensors, write_tensors
from tests.helpers.likes import as_table, skewed
from tests.helpers.randomised import examples


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


def test_bad_input_is_refused() -> None:
    for wrong in (np.array([0.5, np.nan]), np.array([0.5, 1.5])):
        with pytest.raises(DataError, match="outside"):
            reliability(wrong, np.array([True, False]))
    with pytest.raises(DataError, match="true or false"):
        reliability(np.array([0.5, 0.5]), np.array([5, 1]))
    with pytest.raises(UsageError):
        reliability(np.array([0.5]), np.array([True, False]))


def test_errors_by_degree() -> None:
    rows = errors_by_degree(np.array([0.4, 0.6, 0.5, 0.9]), np.array([1, 1, 20, 20]), resamples=10)
    assert [(row.low, row.high, row.mean, row.count) for row in rows] == [(1, 3, 0.5, 2), (10, 20, 0.25, 2)]


# --- What is stored of it ---


@pytest.fixture(scope="module")
def fitted() -> Recommender:
    return Recommender(factors=3, sweeps=4).fit(as_table(skewed()))


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
def test_a_file_with_an_impossible_reliability_is_refused(fitted: Recommender, tmp_path: Path, given) -> None:
    fitted.save(tmp_path / "model")
    stored = open_tensors(tmp_path / "model")
    arrays, metadata = {name: np.array(stored[name]) for name in stored}, json.loads(json.dumps(stored.metadata))
    write_tensors(tmp_path / "right", arrays, metadata | {"reliability": TABLE})
    assert Recommender.load(tmp_path / "right").reliability_.to_dict() == TABLE
    write_tensors(tmp_path / "wrong", arrays, metadata | {"reliability": given})
    with pytest.raises(ModelFileError, match="reliability"):
        Recommender.load(tmp_path / "wrong")


def test_bins_of_any_pairs_can_be_read_again() -> None:
    """Of equal classes a bin where all were liked has 1 for its upper end, and no more."""
    random = np.random.default_rng(0)
    for _ in range(200):
        count = random.integers(20, 200)
        p = random.random(count) ** random.choice([0.1, 1.0, 4.0])
        liked = random.random(count) < p
        liked[:2] = True, False
        for weights in (None, EQUAL):
            found = reliability_bins(p, liked, weights)
            assert LikeReliability.parse(found.to_dict()) == found
