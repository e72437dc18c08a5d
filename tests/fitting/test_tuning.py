"""FitPlan chosen on likes held out: what is chosen is what ranks them best, and nothing else changes."""

from __future__ import annotations

import itertools
import json
import logging
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from typer.testing import CliRunner

from considerate import Recommender, read_interactions
from considerate.cli import app
from considerate.cli.screen import library_messages
from considerate.data.graph import Graph
from considerate.errors import MemoryLimitError, UsageError
from considerate.evaluation.metrics import rank_score
from considerate.evaluation.ranks import held_ranks
from considerate.evaluation.scorer import FunctionScorer
from considerate.evaluation.split import HeldOut
from considerate.fitting.driver import COLLAPSED
from considerate.fitting.tuning import (
    KNOBS,
    ScoreParts,
    best_weights,
    held_out,
    known_times,
    mean_rank,
    short_fit,
    top_score,
    tune,
    weight_curve,
)
from considerate.inference.hidden import Consideration
from considerate.inference.plan import SETTINGS, Chosen, FitPlan
from considerate.kernels.threads import LocalBackend
from tests.helpers.likes import as_table, planted, skewed


def tries(name: str, **settings: Any) -> tuple[float, ...]:
    """The values of a setting that "auto" compares."""
    return tuple(SETTINGS[name].metadata["tries"](FitPlan.of_paper(**settings)))


def small(**settings: object) -> Recommender:
    return Recommender(**{"factors": 3, "sweeps": 6, "threads": 1, **settings})  # type: ignore[arg-type]


def only_popular(users: int = 400, items: int = 60, seed: int = 0) -> sp.csr_matrix:
    """Likes that follow popularity and nothing else."""
    random = np.random.default_rng(seed)
    chance = 0.8 / (1.0 + np.arange(items)) ** 0.7
    likes = random.random((users, items)) < chance
    likes[:, :2] |= ~likes.any(axis=1)[:, None]
    return sp.csr_matrix(likes.astype(np.float32))


def knob_curve(parts: ScoreParts, held: HeldOut, criterion: Any, run: Any, given: float | None = None) -> Any:
    """The curve of popularity alone, without lift."""
    curve = weight_curve(ScoreParts(parts.posterior, parts.log_pi), held, criterion, run, given)
    return {weights.popularity: value for weights, value in curve.items()}


def graph_of(likes: sp.csr_matrix) -> Graph:
    users, items = likes.nonzero()
    return Graph.from_pairs(users, items, *likes.shape)


def test_the_posterior_is_that_of_the_same_settings_written_down() -> None:
    likes = skewed()
    chosen = small(popularity="auto", likelihood_weight="auto").fit(likes)
    weight = chosen.model_.plan.likelihood_weight
    weights = {"popularity": chosen.model_.plan.popularity, "lift": chosen.model_.plan.lift}
    given = small(likelihood_weight=weight, **weights).fit(likes)
    assert np.array_equal(chosen.item_factors, given.item_factors)
    assert np.array_equal(chosen.user_factors, given.user_factors)
    assert np.array_equal(chosen.recommend(3)[0], given.recommend(3)[0])
    assert np.array_equal(chosen.recommend(3)[1], given.recommend(3)[1])


def test_with_the_walk_too_the_posterior_is_that_of_the_settings_written_down() -> None:
    walk = {"consideration": "walk", "neighbours": 20}
    chosen = small(popularity="auto-top", **walk).fit(near())
    plan = chosen.model_.plan
    given = small(popularity=plan.popularity, lift=plan.lift, **walk).fit(near())
    assert given.model_.plan == plan
    assert np.array_equal(chosen.item_factors, given.item_factors)
    assert np.array_equal(chosen.user_factors, given.user_factors)


def test_the_curve_is_the_mean_rank_of_what_was_held_out() -> None:
    graph = graph_of(skewed())
    plan = small(consideration="popularity").plan()
    with LocalBackend(2) as backend:
        held = held_out(graph, 0)
        parts = short_fit(held.train, plan, backend)
        posterior, log_pi = parts.posterior, parts.log_pi
        curve = knob_curve(parts, held, mean_rank, backend.map)
        top = knob_curve(parts, held, top_score, backend.map, 0.5)
        tuned = tune(graph, small(popularity="auto", consideration="popularity").plan(), backend)
    for knob in (0.0, 0.5, 1.5):
        slow = []
        for user, item in zip(held.users, held.items):
            u, v = posterior.users.mean[user], posterior.items.mean
            scores = v @ u + posterior.items.biases[0] + np.float32(knob) * log_pi
            slow.append(rank_score(scores, int(item), held.train.by_user.row(int(user))))
        assert curve[knob] == pytest.approx(np.mean(slow), abs=2e-3)
    assert set(KNOBS) <= set(curve)
    assert len(curve) > len(KNOBS)
    assert curve[tuned.popularity] == max(curve.values())
    assert list(top) == [0.5]
    assert 0 < top[0.5] < 1


def near(users: int = 400, items: int = 90, seed: int = 0) -> sp.csr_matrix:
    """Everyone likes a few neighbours on a ring of items, some of them more popular than others: what the walk finds,
    and three factors cannot."""
    random = np.random.default_rng(seed)
    far = np.abs(np.arange(users)[:, None] * items / users - np.arange(items)[None, :])
    chance = np.exp(-(np.minimum(far, items - far) / 4.0)) * (0.3 + 0.6 * random.random(items))
    likes = random.random((users, items)) < chance
    likes[np.arange(users), np.arange(users) * items // users] = True
    return sp.csr_matrix(likes.astype(np.float32))


def walk_score(parts: ScoreParts, held: HeldOut, criterion: Any, popularity: float, lift: float) -> float:
    """What a scorer that adds the three terms itself gives."""
    assert parts.lift is not None
    own, posterior = parts.lift, parts.posterior

    def scores(users: Any) -> Any:
        logits = posterior.users.mean[users] @ posterior.items.mean.T + posterior.items.biases[0]
        lifts = np.log([own.ratios(held.train.by_user.row(user)) for user in users])
        return logits + popularity * parts.log_pi + lift * lifts

    return float(criterion(held_ranks(FunctionScorer(scores, "by hand"), held)))


@pytest.mark.parametrize("criterion", [mean_rank, top_score])
def test_both_weights_are_as_good_as_the_best_of_a_grid(criterion: Any) -> None:
    graph = graph_of(near())
    with LocalBackend(1) as backend:
        held = held_out(graph, 0)
        assert held is not None
        parts = short_fit(held.train, small(consideration="walk", neighbours=20).plan(), backend)
        curve = weight_curve(parts, held, criterion, backend.map)
        alone = knob_curve(parts, held, criterion, backend.map)
    weights, score = best_weights(curve)
    assert weights.lift > 0
    assert score > max(alone.values())
    assert score == pytest.approx(walk_score(parts, held, criterion, *weights), abs=1e-4)
    for lift in (0.0, 1.0, 4.0, 16.0):
        for popularity in (0.0, 0.5, 1.0, 4.0, 16.0):
            assert score >= walk_score(parts, held, criterion, popularity, lift) - 1e-4


def test_a_number_stays_where_the_other_weight_is_chosen() -> None:
    graph = graph_of(near())

    def chosen(**settings: Any) -> FitPlan:
        with LocalBackend(1) as backend:
            return tune(graph, small(consideration="walk", neighbours=20, **settings).plan(), backend)

    both, lift, popularity = (
        chosen(popularity="auto"),
        chosen(popularity=0.3, lift="auto"),
        chosen(popularity="auto", lift=0.7),
    )
    assert lift.popularity == 0.3
    assert lift.lift > 0
    assert popularity.lift == 0.7
    assert both.lift > 0
    assert chosen(lift="auto-top").popularity == 0.3
    assert not any(plan.tuned for plan in (both, lift, popularity))


def test_what_is_held_out_is_not_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, seen = graph_of(near()), []
    of_graph = Consideration.of_graph

    def spy(by_user: Any, by_item: Any, *others: Any) -> Consideration:
        seen.append((by_user, by_item))
        return of_graph(by_user, by_item, *others)

    monkeypatch.setattr(Consideration, "of_graph", spy)
    with LocalBackend(1) as backend:
        tune(graph, small(consideration="walk", neighbours=20, popularity="auto").plan(), backend)
    held = held_out(graph, 0)
    assert held is not None
    ((by_user, by_item),) = seen
    assert np.array_equal(by_user.indices, held.train.by_user.indices)
    for user, item in zip(held.users, held.items):
        assert item not in by_user.row(user)
        assert user not in by_item.row(item)


@pytest.mark.parametrize("column", ["when", "moment"])
def test_the_latest_likes_are_held_out_where_there_are_times(column: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the column that is named, or the one that has a usual name."""
    table = as_table(near())
    when = np.random.default_rng(0).permutation(table.num_rows).astype(float)
    kept: list[HeldOut] = []

    def spy(*arguments: Any) -> HeldOut | None:
        kept.append(held_out(*arguments))  # type: ignore[arg-type]
        return kept[-1]

    monkeypatch.setattr("considerate.fitting.tuning.held_out", spy)
    data = table.append_column(column, pa.array(when))
    fitted = small(popularity="auto").fit(data, reader={"time_column": column} if column == "moment" else None)
    assert fitted.chosen_ is not None
    assert fitted.chosen_.latest
    users, items = (likes := read_interactions(data)).users, likes.items
    latest = {int(user): (-1.0, -1) for user in users}
    for user, item, time in zip(users.tolist(), items.tolist(), when):
        latest[user] = max(latest[user], (time, item))
    assert len(kept[0].users) >= 100
    assert [latest[user][1] for user in kept[0].users.tolist()] == kept[0].items.tolist()


def test_random_likes_are_held_out_where_few_have_times() -> None:
    graph = graph_of(near())
    times = np.full(graph.edges, np.nan)
    times[:50] = np.arange(50.0)
    assert known_times(graph, times) is None
    assert known_times(graph, np.arange(float(graph.edges))) is not None
    with LocalBackend(1) as backend:
        tuned = tune(graph, small(popularity="auto").plan(), backend, times)
    assert tuned.chosen is not None
    assert not tuned.chosen.latest


def test_weights_are_doubled_while_that_helps() -> None:
    graph = graph_of(skewed())
    with LocalBackend(1) as backend:
        tuned = tune(graph, small(likelihood_weight="auto").plan(), backend)
    assert tuned.chosen is not None
    trials = tuned.chosen.trials
    tried = [trial["likelihood_weight"] for trial in trials]
    assert tried == [1.0, 2.0, 4.0, 8.0][: len(tried)]
    assert len(tried) >= 2
    scores = [trial["score"] for trial in trials]
    assert all(later > earlier for earlier, later in itertools.pairwise(scores[:-1]))  # only the last may be worse
    assert tuned.likelihood_weight == tried[int(np.argmax(scores))]
    assert (tuned.popularity, tuned.lift) == (0.3, 1.2)


@pytest.mark.parametrize("hidden", ["sampled", "expected"])
def test_one_setting_of_the_fit_is_changed_at_a_time_as_far_as_it_helps(hidden: str) -> None:
    names = {
        "negatives": tries("negatives", hidden=hidden),
        "gamma": (1.0, 0.75, 0.5),
        "likelihood_weight": (1.0, 2.0, 4.0, 8.0),
    }
    fitted = small(hidden=hidden, **dict.fromkeys(names, "auto")).fit(skewed())
    chosen, plan = fitted.chosen_, fitted.model_.plan
    assert chosen is not None
    assert set(chosen.criteria.values()) == {"NDCG@20"}
    assert 4 <= len(chosen.trials) <= 8
    best, steps = chosen.trials[0], dict.fromkeys(names, 0)
    assert {name: best[name] for name in names} == {name: ladder[0] for name, ladder in names.items()}
    for trial in chosen.trials[1:]:
        (changed,) = (name for name in names if trial[name] != best[name])
        steps[changed] += 1
        assert trial[changed] == names[changed][steps[changed]]
        best = trial if trial["score"] > best["score"] else best
    assert all(steps.values())
    assert chosen.settings == {name: best[name] for name in names}
    assert chosen.settings == {name: getattr(plan, name) for name in names}
    given = small(hidden=hidden, **chosen.settings).fit(skewed())
    assert np.array_equal(fitted.item_factors, given.item_factors)
    assert np.array_equal(fitted.recommend(3)[1], given.recommend(3)[1])


def test_what_does_not_fit_into_memory_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Any, plan: FitPlan) -> None:
        if plan.negatives > 5:
            raise MemoryLimitError("too many")

    monkeypatch.setattr("considerate.fitting.tuning.check_memory", refuse)
    with LocalBackend(1) as backend:
        plan = tune(graph_of(skewed()), small(negatives="auto").plan(), backend)
    assert plan.chosen is not None
    assert [trial["negatives"] for trial in plan.chosen.trials] == [5.0]


def test_what_was_chosen_is_in_the_file_and_shown(tmp_path: Path) -> None:
    data, path = tmp_path / "likes.parquet", tmp_path / "model.safetensors"
    table = as_table(near())
    pq.write_table(table.append_column("when", pa.array(np.arange(table.num_rows))), data)
    options = ["--factors", "3", "--sweeps", "6", "--threads", "1", "--consideration", "walk"]
    options += ["--popularity", "auto-top", "--gamma", "auto", "--time-column", "when"]
    done = CliRunner().invoke(app, ["fit", str(data), "-o", str(path), *options])
    assert done.exit_code == 0, done.output
    stored = Recommender.load(path)
    chosen, plan = stored.chosen_, stored.model_.plan
    assert chosen is not None
    assert chosen.latest
    assert chosen.settings == {"gamma": plan.gamma, "popularity": plan.popularity, "lift": plan.lift}
    assert set(chosen.criteria) == set(chosen.settings)
    assert plan.tuned == frozenset()
    assert chosen.told() in " ".join(done.stderr.split())
    assert " ".join(done.stdout.split()).endswith(f"chosen {chosen.told()}"), "the last line says it"
    assert "by NDCG@20, chosen in 2 short fits on" in chosen.told()
    assert "(each user's latest)" in chosen.told()
    shown = CliRunner().invoke(app, ["inspect", str(path)]).output
    assert "by NDCG@20, chosen in 2 short fits on" in " ".join(shown.split())
    assert "score 0." in shown
    told = json.loads(CliRunner().invoke(app, ["inspect", str(path), "--json"]).output)
    assert told["chosen"]["trials"] == list(chosen.trials)
    assert small(popularity=1.0).fit(data, reader={"time_column": "when"}).chosen_ is None


def test_a_fit_with_progress_ends_with_what_was_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    fitted = small(popularity="auto").fit(near(), show_progress=True)
    assert fitted.chosen_ is not None
    assert capsys.readouterr().out.splitlines()[-1] == fitted.chosen_.told()
    assert fitted.chosen_.told().endswith("likes held out (one of each user)")
    small().fit(near(), show_progress=True)
    assert "held out" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "change",
    [
        {"settings": {"gamma": 99.0}},
        {"settings": {"factors": 3.0}},
        {"settings": {"gamma": "auto"}},
        {"settings": {"gamma": "0.5"}},
        {"trials": [{"score": 10**400}]},
        {"settings": 3},
        {"criteria": {"gamma": 3}},
        {"criteria": {}},
        {"likes": "many"},
        {"trials": [{"score": float("nan")}]},
        {"trials": [3]},
        {"another": 3},
    ],
)
def test_what_a_file_says_was_chosen_is_checked(change: dict[str, Any]) -> None:
    right = {"settings": {"gamma": 0.5}, "criteria": {"gamma": "S_rank"}, "likes": 3, "latest": False}
    right["trials"] = [{"gamma": 0.5, "score": 0.9}]
    chosen = Chosen.parse(right)
    assert chosen is not None
    assert Chosen.parse(json.loads(json.dumps(asdict(chosen)))) == chosen
    with pytest.raises(ValueError, match="settings that were chosen cannot be read"):
        Chosen.parse(right | change)
    with pytest.raises(ValueError, match="settings that were chosen cannot be read"):
        Chosen.parse([right])


def test_a_sample_is_ranked_where_there_is_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = graph_of(skewed())
    monkeypatch.setattr("considerate.fitting.tuning.MOST_SCORES", 150 * graph.item_count)
    held = held_out(graph, 0)
    assert len(held.users) == 150
    assert np.all(np.diff(held.users) > 0)


def test_too_few_users_keep_the_default(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="considerate"):
        by_popularity = {"consideration": "popularity", "likelihood_weight": "auto"}
        fitted = small(popularity="auto", **by_popularity).fit(planted(50, 10))
        walked = small(popularity="auto", consideration="walk").fit(planted(50, 10))
    assert fitted.model_.plan.popularity == 0.5
    assert fitted.model_.plan.likelihood_weight == 1.5
    assert (walked.model_.plan.popularity, walked.model_.plan.lift) == (0.3, 1.2)
    assert "too few to choose settings by: likelihood_weight 1.5, popularity 0.5 as by default" in caplog.text
    assert "too few to choose settings by: popularity 0.3, lift 1.2 as by default" in caplog.text


def test_the_knob_is_in_the_file_and_in_the_shell(tmp_path: Path) -> None:
    data, path = tmp_path / "likes.parquet", tmp_path / "model.safetensors"
    pq.write_table(as_table(only_popular()), data)
    options = ["--factors", "3", "--sweeps", "6", "--threads", "1", "--quiet"]
    done = CliRunner().invoke(app, ["fit", str(data), "-o", str(path), "--popularity", "auto", *options])
    assert done.exit_code == 0, done.output
    stored = Recommender.load(path)
    assert stored.model_.plan.popularity == small(popularity="auto").fit(data).model_.plan.popularity
    assert stored.popularity == "auto"
    bad = CliRunner().invoke(app, ["fit", str(data), "-o", str(path), "--popularity", "best", *options])
    assert bad.exit_code == 2


def test_a_wrong_word_is_said() -> None:
    with pytest.raises(UsageError, match=r"popularity is 'best'; it must be .* or 'auto' or 'auto-top'"):
        small(popularity="best").fit(planted())
    with pytest.raises(UsageError, match="likelihood_weight is 'auto-top'"):
        small(likelihood_weight="auto-top").fit(planted())
    with pytest.raises(UsageError, match="popularity is 'auto' and lift is 'auto-top'; they are chosen together"):
        small(popularity="auto", lift="auto-top", consideration="walk").fit(planted())
    with pytest.raises(UsageError, match="lift is 'auto' and consideration is 'popularity'; lift is of the walk"):
        small(lift="auto", consideration="popularity").fit(planted())


def test_a_given_knob_is_the_models_own() -> None:
    fitted = small(popularity=1.25).fit(skewed())
    assert fitted.model_.plan.popularity == 1.25
    assert np.array_equal(fitted.recommend(0)[0], fitted.recommend(0, popularity=1.25)[0])


def test_collapse_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """Likes without any taste prune the vectors; planted clusters do not. A few sweeps say nothing of it."""
    noise = sp.csr_matrix((np.random.default_rng(0).random((300, 80)) < 0.05).astype(np.float32))
    with caplog.at_level(logging.WARNING, logger="considerate"):
        small(sweeps=30).fit(planted(300, 40, inside=0.6, across=0.02))
        for sweeps in (1, 6, 9):  # near the first values, which are narrow
            short = small(sweeps=sweeps, consideration="popularity").fit(noise)
            assert short.model_.shared.prior_spread() < COLLAPSED
        assert "collapsed" not in caplog.text
        small(sweeps=30).fit(noise)
        assert "the vectors have all but collapsed" in caplog.text
        caplog.clear()
        small(sweeps=30, tolerance=0.0).fit(noise)  # never converges
        assert "the vectors have all but collapsed" in caplog.text


def test_advice_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    noise = sp.csr_matrix((np.random.default_rng(0).random((300, 80)) < 0.05).astype(np.float32))
    with library_messages():
        small(sweeps=30).fit(noise)
        small(sweeps=30, seed=1).fit(noise)
    assert capsys.readouterr().err.count("collapsed") == 1
