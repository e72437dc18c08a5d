"""Degree laws: exact probabilities, draws that follow them, fits that recover them."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from considerate.errors import DataError, UsageError
from considerate.simulation.degrees import (
    STEEPEST,
    PowerLaw,
    degree_histogram,
    fit_power_law,
    fit_power_law_cutoff,
    mean_constraint,
)
from tests.helpers.randomised import examples

LAWS = [
    PowerLaw(0.77, maximum=500),
    PowerLaw(1.4, cutoff=70.0),
    PowerLaw(1.4, cutoff=70.0, minimum=3, maximum=50),
    PowerLaw(-2.0, cutoff=4.0),
    PowerLaw(2.5, maximum=1000),
    PowerLaw(1.0, minimum=7, maximum=7),
]


@pytest.mark.parametrize("law", LAWS, ids=PowerLaw.describe)
def test_probabilities_against_the_formula(law: PowerLaw) -> None:
    last = law.maximum or 2000
    d = np.arange(law.minimum, last + 1)
    weight = [float(x) ** -law.exponent * math.exp(-x / law.cutoff) for x in d]
    p = np.array(weight) / math.fsum(weight)
    np.testing.assert_allclose(np.exp(law.log_probability(d)), p, rtol=1e-12)
    assert law.mean() == pytest.approx(math.fsum(p * d), rel=1e-12)
    assert law.variance() == pytest.approx(math.fsum(p * (d - math.fsum(p * d)) ** 2), rel=1e-10, abs=1e-12)
    assert law.cumulative()[-1] == 1.0
    outside = law.log_probability([law.minimum - 1, 1.5, (law.maximum or 10**9) + 1])
    assert np.all(outside[:2] == -np.inf)
    assert outside[2] < -1e6 if law.maximum is None else outside[2] == -np.inf


@pytest.mark.parametrize("law", LAWS, ids=PowerLaw.describe)
def test_draws_follow_the_law(law: PowerLaw) -> None:
    d = law.sample(50_000, seed=5)
    assert d.min() >= law.minimum
    assert d.max() <= (law.maximum or 10**6)
    assert np.array_equal(d, law.sample(50_000, seed=5))
    expected = 50_000 * law.probabilities()
    likely = expected >= 10
    seen = np.bincount(d - law.minimum, minlength=len(expected))
    table = np.array([[*seen[likely], seen[~likely].sum()], [*expected[likely], expected[~likely].sum()]])
    table = table[:, table[1] > 5]
    if table.shape[1] > 1:
        table[1] *= table[0].sum() / table[1].sum()
        assert stats.chisquare(table[0], table[1]).pvalue > 1e-3


def test_the_papers_user_law() -> None:
    assert PowerLaw(1.4, cutoff=70.0).bounded(12_000).mean() == pytest.approx(7.34, abs=0.01)
    assert PowerLaw(1.4, cutoff=70.0, maximum=12_000).describe() == "d^-1.4 exp(-d/70) on 1..12000"


def test_extreme_parameters_stay_finite() -> None:
    for law in (PowerLaw(50.0, maximum=10**5), PowerLaw(-50.0, maximum=10**5), PowerLaw(0.5, cutoff=1e-3)):
        assert math.isfinite(law.mean())
        assert np.isfinite(law.log_probability(1))


@pytest.mark.parametrize(
    "bad",
    [
        {"exponent": math.nan},
        {"exponent": 1.0, "cutoff": 0.0},
        {"exponent": 1.0, "minimum": 0},
        {"exponent": 1.0, "minimum": 5, "maximum": 4},
    ],
)
def test_bad_parameters_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        PowerLaw(**bad)  # type: ignore[arg-type]


def test_a_law_without_end_must_be_bounded() -> None:
    for law in (PowerLaw(0.77), PowerLaw(-1.0)):
        with pytest.raises(UsageError, match="no largest degree"):
            law.mean()
        with pytest.raises(UsageError, match="no largest degree"):
            law.log_probability(3)
    with pytest.raises(UsageError, match="lower maximum"):
        PowerLaw(1.0, maximum=10**12).mean()
    with pytest.raises(UsageError, match="only 3 vertices"):
        PowerLaw(1.0, minimum=5).bounded(3)
    assert PowerLaw(0.77).bounded(10).maximum == 10
    assert PowerLaw(0.77, maximum=4).bounded(10).maximum == 4


@pytest.mark.parametrize("exponent", [0.3, 0.77, 1.0, 1.8, 3.0])
def test_fit_recovers_the_exponent(exponent: float) -> None:
    degrees = PowerLaw(exponent, maximum=3000).sample(20_000, seed=1)
    fit = fit_power_law(degrees, maximum=3000)
    # asymptotic error: 1 / sqrt(n Var[log d])
    p, log_d = PowerLaw(exponent, maximum=3000).probabilities(), np.log(np.arange(1, 3001))
    error = 1 / math.sqrt(20_000 * (p @ log_d**2 - (p @ log_d) ** 2))
    assert abs(fit.law.exponent - exponent) < 4 * error
    assert not fit.at_limit


def test_fit_recovers_exponent_and_cutoff() -> None:
    fit = fit_power_law_cutoff(PowerLaw(1.4, cutoff=70.0).sample(200_000, seed=2), maximum=12_000)
    assert fit.law.exponent == pytest.approx(1.4, abs=0.02)
    assert fit.law.cutoff == pytest.approx(70.0, rel=0.04)


def test_a_pure_power_law_needs_no_cutoff() -> None:
    degrees = PowerLaw(0.77, maximum=20_000).sample(5_000, seed=1)
    with_cutoff, without = fit_power_law_cutoff(degrees), fit_power_law(degrees)
    assert with_cutoff.log_likelihood >= without.log_likelihood - 1e-9
    assert with_cutoff.law.cutoff > 1e5


@given(st.lists(st.integers(0, 40), min_size=1, max_size=30).filter(any), st.integers(0, 5))
@examples(60)
def test_no_grid_point_beats_the_fit(degrees: list[int], room: int) -> None:
    positive = [d for d in degrees if d]
    maximum = max(positive) + room
    pure, cut = fit_power_law(degrees, maximum=maximum), fit_power_law_cutoff(degrees, maximum=maximum)
    assert pure.vertices == len(positive)
    assert pure.zeros == degrees.count(0)
    for fit in (pure, cut):
        total = float(fit.law.log_probability(positive).sum())
        assert fit.log_likelihood == pytest.approx(total, rel=1e-9, abs=1e-7)
        assert abs(fit.law.exponent) <= STEEPEST
    for exponent in np.linspace(-STEEPEST, STEEPEST, 21):
        law = PowerLaw(float(exponent), maximum=maximum)
        assert law.log_probability(positive).sum() <= pure.log_likelihood + 1e-7
        for rate in (0.0, 0.01, 0.1, 1.0, 5.0, STEEPEST):
            law = PowerLaw(float(exponent), 1 / rate if rate else math.inf, maximum=maximum)
            assert law.log_probability(positive).sum() <= cut.log_likelihood + 1e-7


def test_at_the_optimum_the_moments_agree() -> None:
    degrees = PowerLaw(1.1, cutoff=30.0).sample(3000, seed=9)
    law = fit_power_law_cutoff(degrees, maximum=500).law
    assert law.mean() == pytest.approx(degrees.mean(), rel=1e-8)
    assert law.probabilities() @ np.log(law.support()) == pytest.approx(np.log(degrees).mean(), rel=1e-8)


@pytest.mark.parametrize("degrees", [[1], [5], [5] * 100, [1] * 9, [0, 0, 3], [10**6]])
@pytest.mark.parametrize("fit_law", [fit_power_law, fit_power_law_cutoff])
def test_equal_degrees_give_something_finite(degrees: list[int], fit_law) -> None:  # type: ignore[no-untyped-def]
    fit = fit_law(degrees)
    assert math.isfinite(fit.law.exponent)
    assert math.isfinite(fit.log_likelihood)
    assert math.isfinite(fit.law.mean())
    assert fit.at_limit == (max(degrees) > 1)
    assert fit.zeros == degrees.count(0)


@pytest.mark.parametrize("bad", [[], [0, 0], [-1, 2], [1.5], [[1, 2]], ["a"]])
def test_what_is_not_degrees_is_refused(bad: list[object]) -> None:
    for function in (fit_power_law, fit_power_law_cutoff, degree_histogram):
        with pytest.raises(DataError):
            function(bad)  # type: ignore[arg-type]


def test_a_maximum_below_the_data_is_refused() -> None:
    with pytest.raises(UsageError, match="degree 7"):
        fit_power_law([1, 7], maximum=6)


def test_eq_1() -> None:
    sides = mean_constraint(7.1, 3780, users=6_200_000, items=12_000)  # the numbers of section 2
    assert sides.user_side == pytest.approx(0.0006, abs=5e-5)
    assert sides.item_side == pytest.approx(0.0006, abs=5e-5)
    assert mean_constraint(2.0, 4.0, users=10, items=5) == (0.4, 0.4)
    assert mean_constraint(4.0, 4.0, users=10, items=5) == (0.8, 0.4)
    with pytest.raises(UsageError):
        mean_constraint(1.0, 1.0, users=0, items=3)
    with pytest.raises(UsageError):
        mean_constraint(0.0, 1.0, users=3, items=3)


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=50).filter(any), st.integers(1, 20))
@examples(100)
def test_histogram_holds_every_vertex_once(degrees: list[int], bins: int) -> None:
    h = degree_histogram(degrees, bins_per_decade=bins)
    assert h.first[0] == 1
    assert h.last[-1] == max(degrees)
    assert np.array_equal(h.first[1:], h.last[:-1] + 1)
    brute = [sum(a <= d <= b for d in degrees) for a, b in zip(h.first, h.last, strict=True)]
    assert h.counts.tolist() == brute
    assert h.zeros == degrees.count(0)
    assert h.density @ (h.last - h.first + 1) == pytest.approx(1)
    assert np.all((h.first <= h.centre) & (h.centre <= h.last))


def test_histogram_refuses_no_bins() -> None:
    with pytest.raises(UsageError):
        degree_histogram([1], bins_per_decade=0)


def test_importing_stays_light() -> None:
    code = "import sys, considerate.simulation.simulate; print([m for m in ('scipy', 'pyarrow') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
