"""The race of benchmarks/quality_time.py: when a target is reached, by whom first, and with which settings."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks.quality_fits import METRICS, Curve, watch
from benchmarks.quality_grid import Search, Trial
from benchmarks.quality_time import Line, Race, both_targets
from considerate.data.graph import Graph
from considerate.evaluation.split import HeldOut, one_per_user


@pytest.fixture
def held() -> HeldOut:
    random = np.random.default_rng(0)
    users, items = np.nonzero(random.random((40, 20)) < 0.3)
    return one_per_user(Graph.from_pairs(users.astype(np.int32), items.astype(np.int32), 40, 20), 0)


def line(*points: tuple[float, float]) -> Line:
    seconds, values = zip(*points)
    return Line([*seconds], [2 * second for second in seconds], [*values], seconds[-1])


def race() -> Race:
    """The target is BPR's .3 with the first seed and ALS's .4 with the second."""
    curves = {
        "ours": [line((1.0, 0.2), (2.0, 0.3), (3.0, 0.5)), line((1.0, 0.1), (2.0, 0.4))],
        "ALS": [line((1.0, 0.1), (9.0, 0.2)), line((1.0, 0.1), (6.0, 0.4))],
        "BPR": [
            line((1.0, 0.1), (8.0, 0.3)),
            line(
                (5.0, 0.39),
            ),
        ],
        "EASE": [line((0.5, 0.9))] * 2,
    }
    return Race("ml-1m", "NDCG@20", curves)


def test_target_is_the_better_end_of_als_and_bpr_and_the_ratio_is_to_the_first_of_them() -> None:
    assert race().targets == [0.3, 0.4]
    assert race().reached("ours") == [2.0, 2.0]
    assert race().reached("BPR") == [8.0, math.inf]
    assert race().ratio() == pytest.approx(np.median([8 / 2, 6 / 2]))
    assert [row["fit"] for row in race().rows()] == ["EASE", "ours", "BPR", "ALS"]
    assert [row["CPU s"] for row in race().rows()] == [1.0, 4.0, None, None]
    assert [row["/ ours"] for row in race().rows()] == [0.25, 1.0, None, None]


def test_a_fit_reaches_both_targets_when_the_later_of_them_is_reached() -> None:
    ndcg, rank = race(), Race("ml-1m", "S_rank", {"ALS": [line((1.0, 0.8), (9.0, 0.9))] * 2})
    both = [{"NDCG@20": line((1.0, 0.5), (2.0, 0.5)), "S_rank": line((1.0, 0.8), (2.0, 0.9))}] * 2
    never = [{"NDCG@20": line((1.0, 0.9)), "S_rank": line((1.0, 0.8))}]
    rows = both_targets([ndcg, rank], {"never": never, "ours": both})
    assert [(row["fit"], row["s to both"]) for row in rows] == [("ours", 2.0), ("never", None)]


def test_ours_that_never_gets_there_has_ratio_zero() -> None:
    late = race()
    late.curves["ours"] = [line((1.0, 0.0))] * 2
    assert late.ratio() == 0.0
    assert {row["fit"]: row["s to it"] for row in late.rows()}["ours"] is None


def test_a_line_ends_where_its_metric_says() -> None:
    curve: Any = SimpleNamespace(iterations=[1, 2, 5], seconds=[1.0, 2.0, 5.0], cpu=[2.0, 4.0, 9.0])
    curve.values = {"S_rank": [0.1, 0.2, 0.3]}
    curve.in_all = 6.0
    assert Line.of(curve, "S_rank", 4) == Line([1.0, 2.0], [2.0, 4.0], [0.1, 0.2], 2.0)
    assert Line.of(curve, "S_rank", 5).in_all == 6.0


def test_the_clock_of_a_curve_stands_while_it_is_looked_at(held: HeldOut, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("benchmarks.quality_fits.time.perf_counter", lambda: now[0])

    def fit(train: Graph, settings: Any, seed: int, curve: Curve) -> None:
        curve.start()
        while True:
            now[0] += 1.0

            def scorer() -> Any:
                now[0] += 100.0
                return SimpleNamespace(name="even", scores=lambda users: np.zeros((len(users), train.item_count)))

            curve.mark(scorer)

    curve = watch(fit, held.train, {}, 0, Curve(held, 40))
    assert curve.iterations[:10] == list(range(1, 11))
    assert curve.iterations[-1] == 40
    assert len(curve.iterations) < 40
    assert curve.seconds == [float(at) for at in curve.iterations]
    assert curve.in_all == 40.0
    assert curve.values["S_rank"][0] == pytest.approx(0.5, abs=0.05)


def test_the_fastest_within_a_hair_of_the_best_is_chosen(held: HeldOut, tmp_path: Path) -> None:
    search = Search("ALS", held, tmp_path / "none.jsonl")
    search.trials = [
        Trial({"factors": 64}, [1, 2], [1.0, 2.0], {"S_rank": [0.8, 0.9]}),
        Trial({"factors": 32}, [1, 2], [0.5, 1.0], {"S_rank": [0.7, 0.8999]}),
        Trial({"factors": 16}, [1, 2], [0.1, 0.2], {"S_rank": [0.6, 0.89]}),
    ]
    assert search.choose("S_rank") == {"settings": {"factors": 32}, "iterations": 2, "validation": 0.8999}


def test_a_search_resumes_from_the_trials_that_are_over(held: HeldOut, tmp_path: Path) -> None:
    kept = tmp_path / "trials.jsonl"
    first = Search("EASE", held, kept).run()
    lines = kept.read_text()
    assert Search("EASE", held, kept).run() == first
    assert kept.read_text() == lines
    assert {metric: first[metric]["iterations"] for metric in METRICS} == dict.fromkeys(METRICS, 1)
