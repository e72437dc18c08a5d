"""The sentences under the figures follow from the numbers: other numbers, other sentences."""

from __future__ import annotations

from dataclasses import replace

import pytest

from considerate.study.captions import make_captions
from considerate.study.figures import DRAWN
from considerate.study.results import KnobCurve, RankByDegree, Reliability, Results, ScorerResult
from tests.helpers.study_results import empty_results, plausible_results


def said(results: Results, figure: str) -> str:
    return " ".join(make_captions(results).get(figure, []))


def test_every_figure_has_sentences_and_an_empty_study_has_none() -> None:
    assert list(make_captions(plausible_results())) == list(DRAWN)
    assert make_captions(empty_results()) == {}


def knob_results(mean: list[float], coverage: list[float]) -> Results:
    curve = KnobCurve("considerate", [0.0, 0.5, 1.0], mean, [0.5, 0.6, 0.7], [0.3, 0.2, 0.1], coverage, [9, 8, 7], 0.5)
    return replace(empty_results(), knobs=[curve])


def test_the_knob_is_described_as_it_turned_out() -> None:
    rising = said(knob_results([0.7, 0.8, 0.9], [0.4, 0.3, 0.2]), "knob")
    assert "mean rank is highest at 1, mean rank in the tail is highest at 1 and Recall@20 is highest at 0;" in rising
    assert "goes from 40 % to 20 % and the mean degree in lists from 9 to 7" in rising.replace("\xa0", " ")
    falling = said(knob_results([0.9, 0.8, 0.7], [0.2, 0.3, 0.4]), "knob")
    assert "mean rank is highest at 0, " in falling
    assert "from 20 % to 40 %" in falling.replace("\xa0", " ")


def ranks(score: str, mean: list[float], count: list[int]) -> RankByDegree:
    return RankByDegree(score, "user", [1, 10, 100], [9, 99, 999], mean, [(0, 1)] * 3, {"5": mean}, count)


def test_a_rank_is_best_and_worst_where_the_figure_shows_it() -> None:
    ours = ScorerResult("considerate", "", 0, 0.0, {"S_rank": 0.8}, {})
    rows = [ranks("considerate", [0.9, 0.7, 0.8], [50, 50, 50]), ranks("ALS", [0.5, 0.75, 0.6], [50, 50, 50])]
    results = replace(empty_results(), comparisons=[ours], ranks=rows)
    assert said(results, "mean-ranks") == (
        "By the user's degree, ours is best at 1-9 likes (0.900) and worst at 10-99 (0.700), where ALS is best (0.750)."
    )
    few = replace(results, ranks=[ranks("considerate", [0.9, 0.7, 0.8], [50, 9, 50])])  # left to the table
    assert "worst at 100-999 (0.800), still the best there." in said(few, "mean-ranks")
    hidden = replace(results, ranks=[rows[0], ranks("considerate, default", [0.9, 0.9, 0.9], [50, 50, 50])])
    assert "still the best there" in said(hidden, "mean-ranks")  # the figure leaves that line out


@pytest.mark.parametrize(("after", "words"), [(0.02, "lowers the error"), (0.09, "does not lower the error")])
def test_recalibration_is_praised_only_where_it_helps(after: float, words: str) -> None:
    def table(name: str, error: float) -> Reliability:
        return Reliability(name, [0, 0.5, 1], [0.2, 0.9], [0.1, 0.6], [50, 50], error, 0, 0, 0)

    results = replace(empty_results(), reliability=[table("default", 0.05), table("default, recalibrated", after)])
    text = said(results, "reliability").replace("\xa0", " ")
    assert f"{words}: 0.050 before, {after:.3f} after." in text
    assert (
        "default: furthest off where it predicts 90 % and 60 % liked; closest where it predicts 20 % and 10 %" in text
    )


@pytest.mark.parametrize(("gap", "words"), [(0.02, "No peer is ahead"), (-0.02, "By Recall@20 it is behind EASE.")])
def test_a_peer_that_is_ahead_is_named(gap: float, words: str) -> None:
    ours = ScorerResult("considerate", "", 0, 0.0, {"S_rank": 0.9}, {})
    gaps, within = {"S_rank": 0.1, "Recall@20": gap}, {"S_rank": (0.09, 0.11), "Recall@20": (gap - 0.01, gap + 0.01)}
    peer = ScorerResult("EASE", "", 0, 0.0, {"S_rank": 0.8}, {}, gaps, within)
    text = said(replace(empty_results(), comparisons=[ours, peer]), "differences")
    assert words in text
    assert ("No peer is ahead" in text) == (gap > 0)


def test_the_worst_stratum_against_a_peer_is_named() -> None:
    full = plausible_results()
    rows = [replace(row, difference=[-value for value in row.difference]) for row in full.differences]
    as_is, mirrored = (said(each, "differences-by-degree") for each in (full, replace(full, differences=rows)))
    best = as_is.split("considerate: best +")[1].split(" likes,")[0]  # "0.415 against popularity on items of 0-9"
    assert f"worst −{best}." in mirrored
    assert "items of 0-99" not in as_is  # all of the tail is no point of the figure
