"""Data simulated from the model gives back its like-probabilities, where H is as q(H) assumes (studies/recovery.py).

The fit sees likes alone. Calibration is held against the known coins of every considered edge; beside it are printed
the RMSE of the logit and how often its 90 % interval holds the truth.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from studies import recovery

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
