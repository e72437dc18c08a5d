"""Data simulated from the model gives back its like-probabilities, where H is as q(H) assumes (studies/recovery.py).

The fit sees likes alone. Calibration is held against the known coins of every considered edge; beside it are printed
the RMSE of the logit and how often its 90 % interval holds the truth.
"""

from __future__ import annotations

import numpy as np
import pytest

from considerate import Recommender
from studies import coverage, intervals, recovery, totals

LARGEST_ERROR = 0.03


def show(capsys, case: str, hidden: str, found: recovery.Figures) -> None:
    with capsys.disabled():
        print(f"\n{recovery.header()}\n{recovery.line(case, hidden, found)}", end="")


@pytest.fixture(scope="module")
def samples():
    """A smaller catalogue than the study's, of which users considered nine tenths; and the sparse opposite."""
    law = recovery.NEARLY_ALL
    cases = {
        "no biases": recovery.Case("no biases", users=2500, user_law=law),
        "item biases": recovery.Case("item biases", users=2500, user_law=law, tau_item_bias=2.0),
        "sparse": recovery.Case("sparse", items=500),
        "sparse, item biases": recovery.Case("sparse, item biases", items=500, tau_item_bias=2.0),
    }
    return {name: case.sample() for name, case in cases.items()}


@pytest.mark.parametrize("hidden", ["sampled", "expected"])
def test_like_probabilities_are_calibrated(samples, hidden, capsys):
    found = recovery.fit_drawn(samples["no biases"], hidden=hidden)
    show(capsys, "no biases", hidden, found)
    assert found.ece_coins < LARGEST_ERROR
    assert found.ece_truth < LARGEST_ERROR
    # p = 1/2 for all would be calibrated too: the logits themselves must have been found
    assert found.auc > 0.78
    assert found.rmse < 0.45 * found.spread
    assert 0.5 < found.coverage < 0.9, "mean-field intervals are too narrow, as expected; wider would be news"


def test_with_the_true_h_inference_is_calibrated_on_sparse_data_too(samples, capsys):
    """What is lost on sparse data is due to q(H), not to the updates."""
    found = recovery.fit_known(samples["sparse"])
    show(capsys, "sparse", "known", found)
    assert found.ece_truth < LARGEST_ERROR
    assert found.auc > 0.8


def test_with_the_true_h_intervals_of_a_full_posterior_hold_what_they_say(samples, capsys):
    """The logistic bound makes them too narrow, whether q is factorised or full; quadrature does not."""
    factorised = recovery.fit_known(samples["sparse"])
    bound = recovery.fit_known(samples["sparse"], posterior="full")
    full = recovery.fit_known(samples["sparse"], posterior="full", logistic="quadrature")
    show(capsys, "sparse, full", "known", full)
    assert factorised.coverage < 0.82
    assert bound.coverage < 0.82
    assert 0.85 < full.coverage < 0.93
    assert full.rmse < 0.95 * factorised.rmse


def test_without_the_true_h_it_is_not(samples, capsys):
    """q(H) knows nothing of taste: pi_n = d_n cannot tell a liked item from a much-considered one."""
    found = recovery.fit_drawn(samples["sparse"])
    show(capsys, "sparse", "sampled", found)
    assert found.ece_truth > LARGEST_ERROR
    assert found.auc > 0.75


def test_the_calibration_error_itself(samples):
    random = np.random.default_rng(0)
    p = random.random(200_000)
    assert recovery.calibration_error(p, random.random(len(p)) < p) < 0.006
    assert recovery.calibration_error(np.full(4, 0.7), np.array([1, 1, 0, 0])) == pytest.approx(0.2)
    sample = samples["no biases"]
    exact = recovery.figures(sample, sample.logit, np.full(len(sample.logit), 1e-3))
    assert exact.ece_coins < 0.005
    for wrong in (sample.logit + 0.3, 0.6 * sample.logit, 1.6 * sample.logit):
        off = recovery.figures(sample, wrong, np.full(len(sample.logit), 1e-3))
        assert off.ece_coins > LARGEST_ERROR, "a shift or a wrong scale of the logit is caught"


def intervals_of(**case) -> dict[str, intervals.Held]:
    """Intervals at the defaults on a small catalogue, by kind of pairs."""
    sample = recovery.Case("small", users=1000, **case).sample(3)
    fitted = Recommender(seed=3, threads=1).fit(recovery.likes_of(sample))
    return intervals.measure(fitted, sample, 3)


@pytest.fixture(scope="module")
def held():
    """Intervals where a tenth of the catalogue is considered."""
    return intervals_of(items=150, user_law=recovery.PowerLaw(1.4, 70.0, minimum=12))


def test_structural_variance_holds_what_the_posterior_misses(held):
    for kind in intervals.KINDS:
        assert held[kind].coverage["structural"] > held[kind].coverage["posterior"] + 0.1
    considered = held[intervals.CONSIDERED]
    assert considered.coverage["posterior"] < 0.75
    assert considered.coverage["structural"] > intervals.LEAST_COVERAGE[intervals.CONSIDERED]
    assert considered.score["structural"] < considered.score["posterior"], "wider, and still the better interval"


def test_logits_have_no_bias_where_most_is_considered():
    """Each user's offset is that of the unliked edges that there are, -log(k / d); with -log c it was 1.5."""
    considered = intervals_of(items=100, user_law=recovery.PowerLaw(0.5, minimum=90))[intervals.CONSIDERED]
    assert abs(considered.bias) < intervals.MOST_BIAS
    assert considered.coverage["structural"] > intervals.LEAST_COVERAGE[intervals.CONSIDERED]


def test_pairs_never_considered_are_not_in_h(samples):
    sample = samples["sparse"]
    users, items = intervals.never_considered(sample, 0)
    hidden = set(zip(sample.hidden_users.tolist(), sample.hidden_items.tolist()))
    assert len(users) > 0.9 * len(hidden)
    assert not hidden & set(zip(users.tolist(), items.tolist()))


def test_the_interval_score_is_lowest_at_the_quantiles():
    truth = np.random.default_rng(0).standard_normal(100_000)

    def score(end: float) -> float:
        return intervals.interval_score(np.full(len(truth), -end), np.full(len(truth), end), truth)

    assert score(1.645) < min(score(1.4), score(1.9))
    one = intervals.interval_score(np.array([0.2]), np.array([0.4]), np.array([0.5]))
    assert one == pytest.approx(0.2 + 20 * 0.1)


def test_targets_name_the_cases_that_miss_them(held, tmp_path):
    rows = [intervals.Row("most considered", intervals.SHIPPED, held), intervals.Row("case", "other", held)]
    intervals.write_rows(rows, tmp_path / "rows.json")
    assert intervals.read_rows(tmp_path / "rows.json") == rows
    assert not any(missed for _, missed in intervals.targets(rows[1:])), "only the defaults have targets"
    narrow = intervals.Held(0.4, {"structural": 0.5, "posterior": 0.4}, {"structural": 2.0, "posterior": 1.0}, {})
    missed = intervals.targets([intervals.Row("most considered", intervals.SHIPPED, dict.fromkeys(held, narrow))])
    assert all(cases for _, cases in missed)


def test_the_picture_has_a_bar_for_each_case_and_each_count(held, tmp_path):
    rows = [intervals.Row("one", intervals.SHIPPED, held), intervals.Row("one", "other", held)]
    counts = [totals.Totals(9, share, share, 1.0) for share in (0.6, 0.7, 0.8, 0.9)]
    lines = [
        totals.Line("coat", "posterior", 9, *counts[:2], 0.0, 0.0),
        totals.Line("coat", "structural", 9, *counts[2:], 0.9, 0.7),
        totals.Line("ml-1m", "structural", 9, *counts[2:], 0.9, 0.7),
    ]
    considered = held[intervals.CONSIDERED].coverage
    assert coverage.simulated_bars(rows) == [("one", considered["posterior"], considered["structural"])]
    assert [bar[1:] for bar in coverage.total_bars(lines)] == [(0.6, 0.8), (0.7, 0.9)]
    for name in ("one.svg", "two.svg"):
        coverage.draw(rows, lines, tmp_path / name)
    one, two = ((tmp_path / name).read_text() for name in ("one.svg", "two.svg"))
    assert one == two
    for text in ("Coat, randomly shown: likes of items", "60 to 80", "the posterior alone", "with structural variance"):
        assert f"<!-- {text} -->" in one
    coverage.draw(rows, [], tmp_path / "alone.svg")
    assert "Real" not in (tmp_path / "alone.svg").read_text()
