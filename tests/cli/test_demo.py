"""The demonstration: quick, the same every time, and its figures are what they say."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from considerate.cli import app
from considerate.cli import demo_catalogue as demo
from considerate.evaluation.calibration import Recovery, calibration_bins, recovery
from considerate.recommender import Recommender


@pytest.fixture(scope="module")
def small() -> tuple[demo.Catalogue, Recommender]:
    catalogue = demo.make_catalogue(1500, 200, seed=3)
    return catalogue, demo.make_recommender(seed=3).fit(catalogue.interactions)


def test_the_demo_shows_all_that_it_should(
    small: tuple[demo.Catalogue, Recommender], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "make_catalogue", lambda seed: small[0])
    result = CliRunner(env={"COLUMNS": "100"}).invoke(app, ["demo"])
    assert result.exit_code == 0, result.output
    for words in ("knob 0:", "knob 0.5:", "knob 1:", "p(like)", "90 % interval", "coverage", "calibration", "genre"):
        assert words in result.stdout
    assert max(len(line) for line in result.stdout.splitlines()) <= 100


def test_the_demo_as_json_recovers_the_truth() -> None:
    result = CliRunner().invoke(app, ["demo", "--json"])
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert set(said["recommendations"]) == {"0", "0.5", "1"}
    found = said["recovery"]
    assert found["correlation"] > 0.7
    assert found["calibration_error"] < 0.03
    assert found["rmse"] < found["spread"]
    assert 0.3 < found["coverage"] < 0.9  # mean-field is too narrow, and the demo says so


def test_the_same_seed_makes_the_same_catalogue() -> None:
    one, two, other = (demo.make_catalogue(100, 80, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.interactions.items, two.interactions.items)
    assert not np.array_equal(one.interactions.items, other.interactions.items)
    assert one.interactions.titles is not None
    assert one.interactions.titles.of(0)


def test_recovery_of_known_predictions(small: tuple[demo.Catalogue, Recommender]) -> None:
    sample = small[0].sample
    sure = np.full(len(sample.logit), 1e-6)

    def predicted(factor: float) -> Recovery:
        logit = factor * sample.logit
        return recovery(sample.logit, sample.liked, logit, sure, 1 / (1 + np.exp(-logit)))

    truth, bold = predicted(1.0), predicted(3.0)
    assert truth.correlation == pytest.approx(1)
    assert truth.rmse == pytest.approx(0, abs=1e-9)
    assert truth.coverage == 1
    assert truth.calibration_error == pytest.approx(0, abs=1e-9)
    assert bold.correlation == pytest.approx(1)
    assert bold.calibration_error > 0.05  # too high above a half and too low below: the gaps do not cancel
    assert bold.coverage < 0.01


def test_calibration_bins_by_hand() -> None:
    predicted = np.array([0.05, 0.15, 0.12, 0.95, 1.0])
    true = np.array([0.1, 0.2, 0.4, 0.9, 0.7])
    liked = np.array([False, True, False, True, True])
    bins = calibration_bins(predicted, true, liked)
    assert [(one.low, one.pairs) for one in bins] == [(0.0, 1), (0.1, 2), (0.9, 2)]
    assert bins[1].predicted == pytest.approx(0.135)
    assert bins[1].true == pytest.approx(0.3)
    assert [one.liked for one in bins] == [0.0, 0.5, 1.0]


def test_recommendations_are_those_of_the_recommender(small: tuple[demo.Catalogue, Recommender]) -> None:
    catalogue, recommender = small
    user = demo.instructive_user(recommender, catalogue)
    for knob in (0.0, 1.0):
        rows = demo.recommendations(recommender, catalogue, user, knob, 4)
        ids, _ = recommender.recommend(user, N=4, popularity=knob)
        assert [row["item"] for row in rows] == ids.tolist()
        for row in rows:
            logit = catalogue.sample.true_logit([user], [row["item"]])[0]
            assert row["true"] == pytest.approx(1 / (1 + np.exp(-logit)))
    liked = sum(len(titles) for titles in demo.tastes(recommender, catalogue, user).values())
    assert liked == recommender.model_.users.whole().degree[user]


def test_what_is_seen_later_is_not_in_the_likes(small: tuple[demo.Catalogue, Recommender]) -> None:
    catalogue, _ = small
    likes, later = demo.seen_later(catalogue, people=50)
    early = set(zip(likes.users.tolist(), likes.items.tolist()))
    liked = {(user, item) for user, item, is_liked in later if is_liked}
    assert len({user for user, _, _ in later}) == 50
    assert early | liked == set(zip(catalogue.sample.users.tolist(), catalogue.sample.items.tolist()))
    assert not early & {(user, item) for user, item, _ in later}
    assert 0.3 < len(liked) / len(later) < 0.7  # a fair coin
