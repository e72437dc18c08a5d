"""Intervals over users and strata of degree."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from considerate.errors import UsageError
from considerate.evaluation import bootstrap
from considerate.evaluation.bootstrap import interval, intervals, log_bins, paired_interval, resampled_means, strata
from tests.helpers.randomised import examples


def test_the_interval_of_a_mean_is_that_of_the_normal_law() -> None:
    values = np.random.default_rng(0).normal(3.0, 2.0, 4000)
    low, high = interval(values, resamples=4000)
    error = values.std() / np.sqrt(4000)
    assert low == pytest.approx(values.mean() - 1.96 * error, abs=0.15 * error)
    assert high == pytest.approx(values.mean() + 1.96 * error, abs=0.15 * error)
    narrow = interval(values, level=0.5, resamples=4000)
    assert narrow[1] - narrow[0] == pytest.approx(2 * 0.6745 * error, rel=0.1)


def test_the_interval_covers_as_often_as_it_says() -> None:
    random = np.random.default_rng(1)
    covered = [low < 0.0 < high for low, high in (interval(random.normal(size=60), seed) for seed in range(300))]
    assert 0.90 < np.mean(covered) < 0.98


def test_values_of_one_user_stay_together() -> None:
    """Ten equal values of each of 50 users are no more than 50 values."""
    values = np.random.default_rng(2).normal(size=50)
    alone = interval(values, 3)
    together = interval(np.repeat(values, 10), 3, groups=np.repeat(np.arange(50), 10))
    assert together == pytest.approx(alone)
    careless = interval(np.repeat(values, 10), 3)
    assert careless[1] - careless[0] < 0.5 * (alone[1] - alone[0])


def test_resamples_against_brute_force() -> None:
    random = np.random.default_rng(0)
    table, groups = random.normal(size=(12, 2)), random.integers(0, 5, 12)
    people = np.unique(groups)
    found = resampled_means(table, 7, 20, groups)
    drawn = np.random.Generator(np.random.Philox(key=[7, bootstrap.STREAM])).integers(
        0, len(people), (20, len(people)), dtype=np.int32
    )
    for row, users in zip(found, drawn):
        rows = [at for user in users for at in np.flatnonzero(groups == people[user])]
        assert row == pytest.approx(table[rows].mean(axis=0))


def test_the_seed_decides_and_chunks_do_not(monkeypatch) -> None:
    values = np.random.default_rng(0).normal(size=(400, 1))
    whole = resampled_means(values, 5, 100)
    assert np.array_equal(whole, resampled_means(values, 5, 100))
    assert not np.array_equal(whole, resampled_means(values, 6, 100))
    monkeypatch.setattr(bootstrap, "CHUNK", 4000)
    assert resampled_means(values, 5, 100) == pytest.approx(whole)


def test_pairs_are_told_apart_where_the_two_alone_overlap() -> None:
    random = np.random.default_rng(3)
    ease = random.normal(size=500)
    a, b = ease + 0.05 + 0.1 * random.normal(size=500), ease + 0.1 * random.normal(size=500)
    assert interval(a)[0] < interval(b)[1]
    low, high = paired_interval(a, b)
    assert 0.0 < low < 0.05 < high < 0.1
    assert paired_interval(b, a) == pytest.approx((-high, -low), abs=0.003)
    with pytest.raises(UsageError, match="pairs"):
        paired_interval(a, b[:-1])


def test_several_at_once_are_the_same_as_each() -> None:
    random = np.random.default_rng(4)
    values = {"a": random.normal(size=80), "b": random.random(80)}
    together = intervals(values, 9)
    assert {name: pytest.approx(interval(one, 9)) for name, one in values.items()} == together
    assert intervals({}) == {}


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: interval(np.array([])),
        lambda: interval(np.array([1.0, np.nan])),
        lambda: interval(np.ones(3), level=1.0),
        lambda: interval(np.ones(3), resamples=0),
        lambda: interval(np.ones(3), groups=np.zeros(2)),
    ],
)
def test_samples_without_an_interval_are_refused(wrong) -> None:
    with pytest.raises(UsageError):
        wrong()


# --- Strata ---


def test_logarithmic_bins() -> None:
    assert log_bins(1000).tolist() == [0, 1, 4, 10, 32, 100, 317, 1000]
    assert log_bins(999).tolist() == [0, 1, 4, 10, 32, 100, 317]
    assert log_bins(30, per_decade=3).tolist() == [0, 1, 3, 5, 10, 22]
    assert log_bins(0).tolist() == [0, 1]
    with pytest.raises(UsageError):
        log_bins(10, per_decade=0)


@examples(40)
@given(st.integers(0, 2**32 - 1), st.integers(1, 60))
def test_strata_against_brute_force(seed: int, count: int) -> None:
    random = np.random.default_rng(seed)
    values, degrees = random.random(count), (10 ** (3 * random.random(count)) - 1).astype(int)
    users = random.integers(0, 20, count)
    rows = strata(values, degrees, users, resamples=50)
    assert sum(row.count for row in rows) == count
    for row, following in zip(rows, [*rows[1:], None]):
        own = values[(degrees >= row.low) & (degrees <= row.high)]
        assert row.count == len(own) > 0
        assert row.mean == pytest.approx(own.mean())
        assert row.percentiles == {str(q): pytest.approx(np.percentile(own, q)) for q in (5, 25, 50, 75, 95)}
        inside = users[(degrees >= row.low) & (degrees <= row.high)]
        assert row.interval == pytest.approx(interval(own, resamples=50, groups=inside))
        assert following is None or row.high < following.low
    assert rows[-1].high >= degrees.max()


def test_bins_can_be_given() -> None:
    rows = strata(np.arange(4.0), np.array([1, 2, 3, 50]), starts=np.array([1, 3]), resamples=10)
    assert [(row.low, row.high, row.count) for row in rows] == [(1, 2, 2), (3, 50, 2)]
    with pytest.raises(UsageError, match="below the first bin"):
        strata(np.ones(1), np.zeros(1, int), starts=np.array([1]))
    with pytest.raises(UsageError):
        strata(np.ones(2), np.ones(3, int))
    assert strata(np.ones(0), np.ones(0, int)) == []
