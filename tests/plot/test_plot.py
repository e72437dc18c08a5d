"""considerate.plot: each function draws what the model and the evaluation say, on the Axes that it is given."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from matplotlib.figure import Figure

from considerate import Recommender, evaluate, plot, read_interactions
from considerate.data import read_judged
from considerate.errors import DataError, UsageError
from considerate.evaluation.calibration import reliability
from considerate.evaluation.fitted import considered
from considerate.simulation.degrees import fit_power_law
from considerate.study.results import results_to_json
from studies.picture import draw
from tests.helpers.likes import skewed
from tests.helpers.study_results import plausible_results


@pytest.fixture(scope="module")
def tables() -> tuple[pa.Table, pa.Table]:
    """Ratings of 1 to 5, in train and in test."""
    users, items = skewed(users=200, items=50).nonzero()
    random = np.random.default_rng(0)
    rating = random.integers(1, 6, len(users))
    table = pa.table({"user": [f"u{m}" for m in users], "item": [f"i{n}" for n in items], "rating": rating})
    tested = random.random(len(users)) < 0.3
    return table.filter(pa.array(~tested)), table.filter(pa.array(tested))


@pytest.fixture(scope="module")
def model(tables: tuple[pa.Table, pa.Table]) -> Recommender:
    return Recommender(factors=4, sweeps=6).fit(read_interactions(tables[0], where="rating >= 3"))


def new_axes() -> Any:
    return Figure().subplots()


def points(ax: Any, label: str) -> tuple[np.ndarray, np.ndarray]:
    (line,) = [line for line in ax.get_lines() if line.get_label() == label]
    return np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)


def test_reliability_draws_the_table_of_the_evaluation(model: Recommender, tables: Any) -> None:
    ax = new_axes()
    assert plot.reliability(model, tables[1], where="rating >= 3", bins=5, ax=ax) is ax
    users, items, truth = considered(model.model_, *read_judged(tables[1], where="rating >= 3"))
    expected = reliability(model.model_.pair_probabilities(users, items, True), truth, bins=5)
    some = expected.count > 0
    drawn = np.ma.getdata(ax.collections[0].get_offsets())
    np.testing.assert_allclose(drawn, np.stack([expected.predicted[some], expected.observed[some]], 1))
    assert f"calibration error {expected.calibration_error:.3f}" in ax.get_legend_handles_labels()[1][1]


def test_reliability_needs_pairs_that_were_not_liked(model: Recommender, tables: Any) -> None:
    with pytest.raises(DataError, match="every row is a like"):
        plot.reliability(model, tables[1], where="rating >= 1", ax=new_axes())


def test_the_knobs_curve_at_the_models_weight_is_the_evaluation(model: Recommender, tables: Any) -> None:
    test = read_interactions(tables[1], where="rating >= 3")
    ax = plot.knob_curve(model, test, show=["mean_rank", "recall"], weights=[0, 1], ax=new_axes())
    weights, ranks = points(ax, "S_rank")
    assert weights.tolist() == [0, 0.3, 1]
    metrics = evaluate(model, test, k=20, resamples=1)["considerate"].metrics
    assert ranks[1] == pytest.approx(metrics["S_rank"].mean)
    assert points(ax, "Recall@20")[1][1] == pytest.approx(metrics["Recall@20"].mean)
    assert len(set(ranks)) == 3
    with pytest.raises(UsageError, match="show is"):
        plot.knob_curve(model, test, show=["accuracy"], ax=new_axes())


def test_the_plane_has_every_item_that_was_not_liked_and_marks_the_lists(model: Recommender) -> None:
    ax = plot.popularity_against_p_like(model, "u3", N=4, ax=new_axes())
    everything = model.recommend_table(["u3"], N=50)
    assert len(points(ax, "items not liked yet")[0]) == everything.num_rows
    likes, p = points(ax, "by liking alone")
    best = model.recommend_table(["u3"], N=4, popularity=0.0, lift=0.0)
    np.testing.assert_allclose(p, best["p_like"].to_numpy())
    rows = model.model_.item_ids.rows_of(best["item"].to_pylist())
    np.testing.assert_array_equal(likes, model.model_.item_degree[rows])
    assert p.min() > np.sort(everything["p_like"].to_numpy())[-6]  # the logit's order is nearly that of p(like)
    assert not np.array_equal(points(ax, "the model's weights")[0], likes)
    only = plot.popularity_against_p_like(model, "u3", rankings={"popular": {"score": "popularity"}}, ax=new_axes())
    assert {line.get_label() for line in only.get_lines()} == {"items not liked yet", "popular"}


def test_degree_laws_of_a_model_and_of_its_data_are_the_same(model: Recommender, tables: Any) -> None:
    ax = plot.degree_laws(model, ax=new_axes())
    other = plot.degree_laws(tables[0], where="rating >= 3", ax=new_axes())
    for label in ("users", "items"):
        np.testing.assert_array_equal(points(ax, label), points(other, label))
    law = fit_power_law(model.model_.item_degree).law
    assert any(label.startswith(f"d^-{law.exponent:.3g}") for label in ax.get_legend_handles_labels()[1])


def test_without_axes_a_figure_is_made_and_without_matplotlib_the_extra_is_named(
    model: Recommender, monkeypatch: pytest.MonkeyPatch
) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    ax = plot.degree_laws(model)
    assert ax.figure is pyplot.gcf()
    pyplot.close("all")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError, match=r"considerate\[plot\]"):
        plot.degree_laws(model)


def test_the_picture_of_the_readme_has_the_curve_and_the_rivals_of_a_study(tmp_path: Path) -> None:
    results = json.loads(results_to_json(plausible_results()))
    draw(results, tmp_path / "one.svg")
    first = (tmp_path / "one.svg").read_bytes()
    draw(results, tmp_path / "one.svg")
    assert (tmp_path / "one.svg").read_bytes() == first
    results["comparisons"] = [row for row in results["comparisons"] if row["name"] != "EASE"]
    draw(results, tmp_path / "one.svg")
    assert (tmp_path / "one.svg").read_bytes() != first
