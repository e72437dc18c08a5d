"""Predicted counts of likes, where the distribution of all logits is known (studies/totals.py)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from considerate.evaluation.recalibration import Ends, JudgedPairs
from considerate.inference.posterior import Side
from considerate.model.liking import STRUCTURE, StructuralVariance, sigmoid
from considerate.model.predict import logit_moments
from studies import totals

USERS, ITEMS, EACH = 600, 200, 30


@pytest.fixture(scope="module")
def judged() -> totals.Judged:
    """Coins of logits drawn from a posterior, with the constants' differences of users and items, at a level of -1."""
    random = np.random.default_rng(5)
    people, things = (
        Side.of(
            random.normal(0, 0.7, (rows, 4)), np.full((rows, 4), 0.1), [random.normal(0, 0.3, rows), np.full(rows, 0.2)]
        )
        for rows in (USERS, ITEMS)
    )
    m, n = np.repeat(np.arange(USERS), EACH), random.integers(0, ITEMS, USERS * EACH)
    mean, variance = (moment.astype(np.float64) for moment in logit_moments(people, things, m, n))
    pairs = JudgedPairs(m, n, np.zeros(len(m), bool), mean, ends=(Ends(people, m), Ends(things, n)))
    unjudged: Any = totals.Judged(None, pairs, mean, variance, m % totals.FOLDS)  # type: ignore[arg-type]
    deviation = next(totals.deviations(unjudged, 1, 99))
    user, item = (
        np.sqrt(s) * random.standard_normal(rows) for s, rows in ((STRUCTURE.user, USERS), (STRUCTURE.item, ITEMS))
    )
    liked = random.random(len(m)) < sigmoid(mean - 1.0 + deviation + user[m] + item[n])
    return totals.Judged(unjudged.model, JudgedPairs(m, n, liked, mean, ends=pairs.ends), mean, variance, unjudged.fold)


def test_the_level_gives_as_many_likes_as_there_are(judged):
    centre, liked = judged.mean, judged.pairs.liked
    shift = totals.level(centre, np.full(len(centre), 1.6), liked)
    noise = np.sqrt(1.6) * np.random.default_rng(0).standard_normal((200, len(centre)))
    assert sigmoid(centre + shift + noise).mean() == pytest.approx(liked.mean(), abs=0.003)
    assert totals.level(centre, np.zeros(len(centre)), liked) > shift, "noise pulls the mean towards one half"


def test_deviations_vary_as_the_posterior_says(judged):
    found = np.array(list(totals.deviations(judged, 300, 1)))
    assert np.abs(found.mean()) < 0.02
    assert (found.var(axis=0) / judged.variance).mean() == pytest.approx(1.0, abs=0.03)


def test_a_right_model_holds_what_it_says_and_the_posterior_alone_does_not(judged):
    predictives = {"right": totals.structural(judged, STRUCTURE), "narrow": totals.posterior(judged)}
    found = totals.totals(judged, predictives, 300)
    for side, groups in (("user", USERS), ("item", ITEMS)):
        right, narrow = found["right"][side], found["narrow"][side]
        assert right.groups == groups
        assert right.exact == pytest.approx(0.9, abs=0.06)
        assert right.held >= right.exact
        assert right.excess == pytest.approx(1.0, abs=0.25)
        assert narrow.exact < 0.8
        assert narrow.excess > 1.4


def test_the_variances_are_found(judged):
    found = totals.chosen(judged, 40)
    assert found.user == pytest.approx(STRUCTURE.user, abs=0.25)
    assert found.item == pytest.approx(STRUCTURE.item, abs=0.25)


def test_few_pairs_are_no_group():
    groups = totals.Groups(np.repeat([3, 5], [9, 10]), np.ones(19, bool))
    assert groups.actual.tolist() == [10]


def test_targets_are_of_sets_that_did_not_choose_the_constants():
    def line(of: str, name: str, held: float) -> totals.Line:
        one = totals.Totals(100, held, held, 1.0)
        return totals.Line(of, name, 1000, one, one, 0.9, 0.7)

    rows = [line(of, totals.STRUCTURAL, 0.86) for of in ("coat", "ml-1m")] + [
        line("coat", "recalibrated", held) for held in (0.7, 0.84, 0.95)
    ]
    assert [met for _, met in totals.targets(rows)] == [True, False, True, True]
    assert [met for _, met in totals.targets([line("coat", totals.STRUCTURAL, 0.84)])] == [False]
    mean = totals.mean_of([StructuralVariance(1.0, 0.2), StructuralVariance(0.5, 0.4)])
    assert (mean.user, mean.item) == pytest.approx((0.75, 0.3))
