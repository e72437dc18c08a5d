"""Recalibration by judged pairs: the fit, structural variance, its way through the model, its file and the shell."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import optimize, special
from typer.testing import CliRunner

from considerate import Recommender
from considerate.cli import app
from considerate.errors import DataError, ModelFileError, UsageError
from considerate.evaluation.calibration import EQUAL, class_weights, reliability
from considerate.evaluation.recalibration import (
    MOST_SHARED,
    PRIOR_VARIANCE,
    Ends,
    JudgedPairs,
    chosen_fit,
    fit_covariates,
    fit_line,
    fit_recalibration,
    held_out_logits,
    recalibrate,
    structural_variance,
)
from considerate.inference.posterior import Side
from considerate.model.liking import (
    LEAST_SLOPE,
    MOST_SLOPE,
    STRUCTURE,
    UNCHANGED,
    Covariate,
    Recalibration,
    like_interval,
    like_probability,
    logit,
)
from considerate.storage.container import open_tensors, write_tensors
from tests.helpers.likes import as_table, skewed


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


def test_recalibration_mends_bent_probabilities() -> None:
    random = np.random.default_rng(3)
    honest = random.random(20_000) * 0.96 + 0.02
    liked = random.random(20_000) < honest
    bent = special.expit(2.5 * logit(honest) + 0.7)
    line = fit_recalibration(bent, liked, None)
    assert line.apply(bent) == pytest.approx(honest, abs=0.02)
    assert reliability(line.apply(bent), liked, None).calibration_error < 0.01


@pytest.mark.parametrize("far", [1e-3, 30.0])
def test_the_line_is_found_from_a_start_far_away(far: float) -> None:
    random = np.random.default_rng(4)
    a = random.normal(size=2000)
    liked = random.random(2000) < special.expit(a)
    line = fit_recalibration(special.expit(np.clip(far * a, -34, 34)), liked, None)
    expected = fit_recalibration(special.expit(a), liked, None)
    assert line.slope == (MOST_SLOPE if far < 1 else pytest.approx(LEAST_SLOPE, abs=0.1))
    assert abs(np.mean(line.apply(special.expit(np.clip(far * a, -34, 34)))) - liked.mean()) < 1e-6
    assert expected.slope == pytest.approx(1.0, abs=0.2)


def test_judged_pairs_that_fit_no_line_are_refused() -> None:
    p, liked = np.linspace(0.1, 0.9, 20), np.arange(20) >= 10
    with pytest.raises(DataError, match="check which pairs are liked"):
        fit_recalibration(np.tile(p, 10), ~np.tile(liked, 10) ^ (np.arange(200) % 9 == 0))
    with pytest.raises(DataError, match="the same for all"):
        fit_recalibration(np.full(20, 0.3), liked)
    with pytest.raises(DataError, match="are liked"):
        fit_recalibration(p, np.ones(20, bool))


def test_a_slope_has_bounds_and_the_shift_is_best_for_it() -> None:
    """Pairs that are told apart without error, and pairs of which p(like) says nothing."""
    p, liked = np.linspace(0.1, 0.9, 20), np.arange(20) >= 10
    assert fit_recalibration(p, liked).slope == MOST_SLOPE
    random = np.random.default_rng(0)
    nothing = fit_recalibration(p, random.random(20) < 0.5 - 0.1 * (p - 0.5), None)
    assert nothing.slope >= LEAST_SLOPE
    for found, truth in ((fit_recalibration(p, liked, None), liked),):
        assert found.apply(p).mean() == pytest.approx(truth.mean(), abs=1e-9), "the most likely shift"


@pytest.mark.parametrize(("slope", "shift"), [(0.0, 0.0), (-1.0, 0.0), (np.nan, 0.0), (1.0, np.inf)])
def test_a_line_that_is_none(slope: float, shift: float) -> None:
    with pytest.raises(UsageError, match="slope above 0"):
        Recalibration(slope, shift)


# --- Covariates ---


def judged(count: int = 400, seed: int = 0, weights: tuple[float, ...] = (0.8, -0.5, 0.0)) -> JudgedPairs:
    """Pairs of 40 users and 30 items whose true logit is half of x, a shift, and terms of covariates."""
    random = np.random.default_rng(seed)
    x, numbers = random.normal(0, 1, count), random.normal([3.0, 0.0, -1.0], [1.0, 2.0, 0.5], (count, 3))
    logits = 0.5 * x - 0.4 + (numbers - [3.0, 0.0, -1.0]) @ np.array(weights)
    liked = random.random(count) < special.expit(logits)
    covariates = dict(zip(("log_popularity", "lift", "log_likes"), numbers.T))
    return JudgedPairs(random.integers(0, 40, count), random.integers(0, 30, count), liked, x, covariates)


@pytest.mark.parametrize("weights", [EQUAL, None])
def test_covariates_are_the_numeric_optimum_under_the_prior(weights) -> None:
    pairs = judged()
    found, line = fit_covariates(pairs, weights), fit_line(pairs, weights)
    columns = np.stack([pairs.x, *pairs.covariates.values()], axis=1)
    centre, scale = columns.mean(axis=0), columns.std(axis=0)
    w = class_weights(pairs.liked, weights)
    w *= len(w) / w.sum()

    def loss(at):
        a = (columns - centre) / scale @ at[:-1] + at[-1]
        prior = np.sum((at[:-1] - [line.slope * scale[0], 0, 0, 0]) ** 2) / PRIOR_VARIANCE
        return -(w * special.log_expit(np.where(pairs.liked, 1, -1) * a)).sum() + 0.5 * prior

    best = optimize.minimize(loss, np.zeros(5), method="BFGS", options={"gtol": 1e-9}).x
    assert found.slope == pytest.approx(best[0] / scale[0], abs=1e-5)
    for name, weight in zip(pairs.covariates, best[1:4] / scale[1:]):
        assert found.covariates[name].weight == pytest.approx(weight, abs=1e-5)
    wanted = (columns - centre) / scale @ best[:-1] + best[-1]
    np.testing.assert_allclose(found.line(pairs.x, pairs.covariates), wanted, atol=1e-4)


def test_many_pairs_give_the_truth_and_few_change_little() -> None:
    many, few = fit_covariates(judged(40_000)), fit_covariates(judged(12))
    assert many.slope == pytest.approx(0.5, abs=0.05)
    found = [many.covariates[name].weight for name in ("log_popularity", "lift", "log_likes")]
    assert found == pytest.approx([0.8, -0.5, 0.0], abs=0.06)
    line = fit_line(judged(12))
    moved = [few.covariates[name].weight * std for name, std in (("log_popularity", 1.0), ("lift", 2.0))]
    assert np.abs(moved).max() < 3.0 * np.sqrt(PRIOR_VARIANCE)
    assert few.slope == pytest.approx(line.slope, abs=3.0 * np.sqrt(PRIOR_VARIANCE))


@pytest.mark.parametrize(("slope", "bound"), [(12.0, MOST_SLOPE), (-2.0, LEAST_SLOPE)])
def test_weights_and_shift_are_best_for_a_bounded_slope(slope: float, bound: float) -> None:
    """The shift has no prior, so at the most probable one the mean of p' is that of what was seen."""
    pairs = judged(4000)
    random, lift = np.random.default_rng(1), pairs.covariates["lift"]
    x = 0.3 * pairs.x + 0.2 * lift + 0.5
    pairs = replace(pairs, x=x, liked=random.random(4000) < special.expit(1.5 + slope * x + lift))
    found = fit_covariates(pairs)
    assert found.slope == bound
    assert found.apply(special.expit(x), pairs.covariates).mean() == pytest.approx(pairs.liked.mean(), abs=1e-6)


def test_covariates_are_clipped_to_the_range_seen_and_unknown_ones_count_as_the_mean() -> None:
    recalibration = Recalibration(1.0, 0.0, {"lift": Covariate(0.5, 1.0, -1.0, 2.0)})
    found = recalibration.line(np.zeros(4), {"lift": np.array([-9.0, 2.0, 9.0, np.nan])})
    assert found.tolist() == [0.5 * (-1.0 - 1.0), 0.5, 0.5, 0.0]


def test_covariates_go_where_they_harm_held_out_users() -> None:
    """A number that tells every user of the judged pairs apart, and nothing of others."""
    random = np.random.default_rng(1)
    users = np.repeat(np.arange(12), 60)
    effect = random.normal(0, 3, 12)
    liked = random.random(720) < special.expit(effect[users])
    x = random.normal(0, 1, 720)
    pairs = JudgedPairs(
        users, random.integers(0, 3, 720), liked, x, {"log_likes": 50.0 * random.normal(0, 1, 12)[users]}
    )
    harmful, helpful = chosen_fit(pairs, None, 0), chosen_fit(judged(600), None, 0)
    assert helpful is fit_covariates
    held = [held_out_logits(fit, pairs, users, None, 0) for fit in (fit_line, fit_covariates)]
    losses = [-special.log_expit(np.where(liked, 1, -1) * a).mean() for a in held]
    assert (harmful is fit_line) == (losses[1] > losses[0] + 0.01)
    assert chosen_fit(JudgedPairs(users, users, liked, x), None, 0) is fit_line


def test_others_recalibrate_each() -> None:
    """A pair's p' does not depend on its own user's truth."""
    pairs = judged(1000)
    own = pairs.users == 7
    turned = JudgedPairs(pairs.users, pairs.items, pairs.liked ^ own, pairs.x, pairs.covariates)
    for fit in (fit_line, fit_covariates):
        found, again = (held_out_logits(fit, some, some.users, None, 0) for some in (pairs, turned))
        assert np.array_equal(found[own], again[own])
        assert not np.array_equal(found, again)
    with pytest.raises(UsageError, match="at least two"):
        held_out_logits(fit_line, pairs, np.zeros(1000, int), None, 0)


# --- Structural variance ---


def with_effects(
    users: int, items: int, each: int, s_user: float, s_item: float, seed: int = 0, shift: float = 0.0
) -> JudgedPairs:
    """Pairs whose true logits differ from x by an amount of each user and one of each item."""
    random = np.random.default_rng(seed)
    user, item = np.repeat(np.arange(users), each), random.integers(0, items, users * each)
    x = random.normal(0, 0.5, users * each)
    difference = random.normal(0, np.sqrt(s_user), users)[user] + random.normal(0, np.sqrt(s_item), items)[item]
    return JudgedPairs(user, item, random.random(len(x)) < special.expit(x + difference + shift), x)


@pytest.mark.parametrize(("s_user", "s_item"), [(0.5, 0.1), (0.1, 0.5), (0.9, 0.7), (2.0, 0.4)])
def test_structural_variance_is_found_where_pairs_are_many(s_user: float, s_item: float) -> None:
    pairs = with_effects(3000, 400, 30, s_user, s_item)
    found = structural_variance(pairs, fit_line(pairs))
    assert found.user == pytest.approx(s_user, rel=0.12, abs=0.03)
    assert found.item == pytest.approx(s_item, rel=0.15, abs=0.03)
    assert found.total == pytest.approx(max(STRUCTURE.total, found.user + found.item)), "the rest stays with the pairs"


def test_items_of_very_many_pairs_do_not_speak_for_the_others() -> None:
    """Three items of 3,000 pairs differ by nothing, 297 of 20 pairs by a variance of one."""
    random = np.random.default_rng(4)
    sizes = np.where(np.arange(300) < 3, 3000, 20)
    item = np.repeat(np.arange(300), sizes)
    difference = np.where(sizes > 20, 0.0, random.standard_normal(300))[item]
    pairs = JudgedPairs(
        np.arange(len(item)), item, random.random(len(item)) < special.expit(difference), np.zeros(len(item))
    )
    assert structural_variance(pairs, UNCHANGED).item > 0.6


def test_structural_variance_does_not_depend_on_the_weighting() -> None:
    """Where one pair in seven is liked p' of equal classes is far from the share, which is no difference of users."""
    pairs = with_effects(1500, 300, 30, 0.3, 0.1, shift=-2.2)
    assert 0.1 < pairs.liked.mean() < 0.2
    each, equal = (recalibrate(pairs, equal_classes=equal).structure for equal in (False, True))
    assert each.user == pytest.approx(0.3, abs=0.07)
    assert (equal.user, equal.item) == pytest.approx((each.user, each.item), abs=0.02)


def test_users_who_like_all_or_nothing_have_an_end() -> None:
    users = np.repeat(np.arange(4000), 30)
    pairs = JudgedPairs(users, users, users % 2 == 0, np.zeros(len(users)))
    assert 5.0 < structural_variance(pairs, UNCHANGED).user <= MOST_SHARED


def test_few_pairs_leave_the_constants() -> None:
    found = structural_variance(with_effects(30, 30, 2, 0.0, 0.0), UNCHANGED)
    assert (found.user, found.item) == pytest.approx((STRUCTURE.user, STRUCTURE.item), abs=0.15)
    alone = structural_variance(with_effects(30, 10**6, 1, 0.0, 0.0), UNCHANGED)
    assert alone.user == STRUCTURE.user


@pytest.mark.parametrize("full", [False, True])
def test_what_the_posterior_knows_of_is_not_structure(full: bool) -> None:
    """Users' vectors and biases drawn from their posterior: with it no variance is left, without it much is."""
    random = np.random.default_rng(3)
    users, items, each = 4000, 50, 20
    root = np.array([[0.5, 0.0, 0.0], [0.5 * full, 0.5, 0.0], [0.5 * full, 0.5 * full, 0.5]])
    side = Side.of(
        np.zeros((users, 3)), np.tile(np.diag(root @ root.T), (users, 1)), [np.zeros(users), np.full(users, 0.3)]
    )
    if full:
        side = replace(side, covariance=np.tile((root @ root.T)[np.tril_indices(3)].astype(np.float32), (users, 1)))
    other = Side.of(random.normal(0.6, 0.6, (items, 3)), np.full((items, 3), 1e-9))
    user, item = np.repeat(np.arange(users), each), random.integers(0, items, users * each)
    vectors, bias = random.normal(size=(users, 3)) @ root.T, random.normal(0, np.sqrt(0.3), users)
    liked = random.random(len(user)) < special.expit((vectors[user] * other.mean[item]).sum(axis=1) + bias[user])
    pairs = JudgedPairs(user, item, liked, np.zeros(len(user)), ends=(Ends(side, user), Ends(other, item)))
    known = structural_variance(pairs, UNCHANGED)
    unknown = structural_variance(replace(pairs, ends=None), UNCHANGED)
    assert known.user < 0.12
    assert unknown.user > 0.3


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


def known_numbers(fitted: Recommender, users, items) -> dict[str, np.ndarray]:
    """Covariates of pairs, one at a time."""
    model = fitted.model_
    liked = model.users.whole().liked
    lift = [model.log_lift(liked.take(np.array([m])))[0, n] for m, n in zip(users, items)]
    return {
        "log_popularity": np.log(model.popularity[items]),
        "lift": np.array(lift),
        "log_likes": np.log1p(liked.degrees[users]),
    }


def test_predictions_are_recalibrated(fresh: Recommender) -> None:
    users, items, random = pairs()
    raw = fresh.predict_proba(users, items, by="row")
    liked = random.random(len(raw)) < special.expit(0.5 * special.logit(raw) - 0.4)
    assert fresh.recalibrate(users, items, liked, by="row") is fresh
    line, trained = fresh.recalibration_, fresh.model_.users.whole().liked
    assert line.pairs + line.training == len(users)
    assert line.training == sum(n in trained.row(m) for m, n in zip(users, items)) > 0
    p = fresh.predict_proba(users, items, by="row")
    known = known_numbers(fresh, users, items)
    assert p == pytest.approx(line.apply(raw, known), abs=1e-5)
    assert np.array_equal(fresh.predict_proba(users, items, recalibrated=False, by="row"), raw)
    assert isinstance(fresh.predict_proba(3, 4, by="row"), float)
    assert fresh.predict_proba(3, 4, by="row") == pytest.approx(
        float(fresh.predict_proba([3], [4], by="row")[0]), abs=1e-6
    )
    again = fresh.recalibration_
    assert fresh.recalibrate(users, items, liked, by="row").recalibration_ == again, "it starts from the raw p(like)"
    assert fresh.recalibrate(users, items, liked, equal_classes=True, by="row").recalibration_ != again


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
    rows = fresh.user_rows(after["user"].to_pylist()), fresh.item_rows(after["item"].to_pylist())
    known = known_numbers(fresh, *rows)
    wanted = line.apply(np.array(before["p_like"].to_pylist(), np.float64), known)
    assert after["p_like"].to_pylist() == pytest.approx(wanted, abs=1e-4)
    assert after["p_like"].to_pylist() != pytest.approx(before["p_like"].to_pylist(), abs=1e-3)
    bounds = [after[name].to_numpy() for name in ("low", "p_like", "high")]
    assert (bounds[0] < bounds[1]).all()
    assert (bounds[1] < bounds[2]).all()
    one = {name: value[0] for name, value in known_numbers(fresh, [1], [3]).items()}
    why = fresh.explain(1, 3, by="row")
    assert why[0] == pytest.approx(float(line.apply(np.array(explained), one)), abs=1e-5)
    parts = sum(amount for _, amount in why.recalibrated_by)
    assert special.logit(why[0]) == pytest.approx(special.logit(explained) + parts, abs=1e-4)
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


GIVEN = Recalibration(1.0, 0.0, {"lift": Covariate(0.5, 1.0, -1.0, 2.0)}).to_dict()


@pytest.mark.parametrize(
    "given",
    [
        GIVEN | {"pairs": -1},
        GIVEN | {"stale": 1},
        GIVEN | {"covariates": []},
        GIVEN | {"covariates": {"age": GIVEN["covariates"]["lift"]}},
        GIVEN | {"covariates": {"lift": {"weight": 1.0}}},
        GIVEN | {"covariates": {"lift": GIVEN["covariates"]["lift"] | {"low": 3.0}}},
        GIVEN | {"covariates": {"lift": GIVEN["covariates"]["lift"] | {"weight": "1"}}},
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


def test_reliability_is_stored_with_the_recalibration(fresh: Recommender, tmp_path: Path) -> None:
    users, items, random = pairs(3000)
    raw = fresh.predict_proba(users, items, by="row")
    liked = random.random(len(raw)) < special.expit(0.5 * special.logit(raw) - 0.4)
    fresh.save(tmp_path / "raw")
    assert fresh.reliability_ is None
    assert "reliability" not in open_tensors(tmp_path / "raw").metadata
    for equal in (True, False):
        fresh.recalibrate(users, items, liked, equal, by="row")
        known = JudgedPairs.of(fresh.model_, users, items, liked)
        assert (fresh.reliability_.weights == "equal classes") == equal
        assert fresh.reliability_.pairs == len(known) == fresh.recalibration_.pairs
        assert fresh.reliability_.error < 0.06
    for shards, path in ((None, tmp_path / "model"), (2, tmp_path / "shards")):
        fresh.save(path, shards=shards)
        loaded = Recommender.load(path)
        assert loaded.reliability_ == fresh.reliability_
    result = CliRunner().invoke(app, ["inspect", str(tmp_path / "model")], env={"COLUMNS": "80"})
    assert f"{fresh.reliability_.bins[0].liked:.1%}" in result.output
    assert max(map(len, result.output.splitlines())) <= 80
    fresh.recalibrate(np.zeros(len(items), int), items, liked, by="row")
    assert fresh.reliability_ is None, "one user cannot be judged by others"


def test_a_file_from_before_there_was_any_is_read(fresh: Recommender, tmp_path: Path) -> None:
    fresh.save(tmp_path / "model")
    stored = open_tensors(tmp_path / "model")
    metadata = {name: value for name, value in stored.metadata.items() if name != "recalibration"}
    write_tensors(tmp_path / "old", {name: np.array(stored[name]) for name in stored}, metadata)
    assert Recommender.load(tmp_path / "old").recalibration_ == Recalibration()
