"""FitPlan chosen on likes held out: what is chosen is what ranks them best, and nothing else changes."""

from __future__ import annotations

import itertools
import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from typer.testing import CliRunner

from considerate import Recommender
from considerate.cli import app
from considerate.cli.screen import library_messages
from considerate.data.graph import Graph
from considerate.errors import UsageError
from considerate.evaluation.metrics import rank_score
from considerate.fitting.tuning import KNOBS, held_out, knob_curve, mean_rank, short_fit, top_score, tune
from considerate.kernels.threads import LocalBackend
from likes import as_table, planted, skewed


def small(**settings: object) -> Recommender:
    return Recommender(**{"factors": 3, "sweeps": 6, "threads": 1, **settings})  # type: ignore[arg-type]


def only_popular(users: int = 400, items: int = 60, seed: int = 0) -> sp.csr_matrix:
    """Likes that follow popularity and nothing else."""
    random = np.random.default_rng(seed)
    chance = 0.8 / (1.0 + np.arange(items)) ** 0.7
    likes = random.random((users, items)) < chance
    likes[:, :2] |= ~likes.any(axis=1)[:, None]
    return sp.csr_matrix(likes.astype(np.float32))


def graph_of(likes: sp.csr_matrix) -> Graph:
    users, items = likes.nonzero()
    return Graph.from_pairs(users, items, *likes.shape)


def test_the_knob_follows_what_the_likes_follow() -> None:
    """Where likes are popularity alone the knob is higher than where they are taste alone."""
    by_popularity = small(popularity="auto").fit(only_popular()).model_.plan.popularity_weight
    by_taste = small(popularity="auto").fit(planted(400, 40, clusters=2, inside=0.6, across=0.02)).model_
    assert by_popularity >= 0.5
    assert by_taste.plan.popularity_weight < by_popularity


def test_the_posterior_is_that_of_the_same_settings_written_down() -> None:
    likes = skewed()
    chosen = small(popularity="auto", likelihood_weight="auto").fit(likes)
    weight = chosen.model_.plan.weight
    given = small(likelihood_weight=weight, popularity=chosen.model_.plan.popularity_weight).fit(likes)
    assert np.array_equal(chosen.item_factors, given.item_factors)
    assert np.array_equal(chosen.user_factors, given.user_factors)
    assert np.array_equal(chosen.recommend(3)[0], given.recommend(3)[0])
    assert np.array_equal(chosen.recommend(3)[1], given.recommend(3)[1])


def test_the_curve_is_the_mean_rank_of_what_was_held_out() -> None:
    graph = graph_of(skewed())
    recommender = small()
    plan = recommender.plan()
    with LocalBackend(2) as backend:
        held = held_out(graph, 0)
        posterior, log_pi = short_fit(held.train, plan, backend)
        curve = knob_curve(posterior, log_pi, held, mean_rank, backend.map)
        top = knob_curve(posterior, log_pi, held, top_score, backend.map, 0.5)
        tuned, _ = tune(graph, replace(plan, popularity="auto"), backend)
    for knob in (0.0, 0.5, 1.5):
        slow = []
        for user, item in zip(held.users, held.items):
            u, v = posterior.users.mean[user], posterior.items.mean
            scores = v @ u + posterior.items.biases[0] + np.float32(knob) * log_pi
            slow.append(rank_score(scores, int(item), held.train.by_user.row(int(user))))
        assert curve[knob] == pytest.approx(np.mean(slow), abs=2e-3)
    assert set(KNOBS) <= set(curve)
    assert len(curve) > len(KNOBS)
    assert curve[tuned.popularity_weight] == max(curve.values())
    assert list(top) == [0.5]
    assert 0 < top[0.5] < 1


def test_weights_are_doubled_while_that_helps() -> None:
    graph = graph_of(skewed())
    recommender = small()
    with LocalBackend(1) as backend:
        tuned, trials = tune(graph, replace(recommender.plan(), likelihood_weight="auto"), backend)
    tried = [trial.weight for trial in trials]
    assert tried == [1.0, 2.0, 4.0, 8.0][: len(tried)]
    assert len(tried) >= 2
    scores = [trial.score for trial in trials]
    assert all(later > earlier for earlier, later in itertools.pairwise(scores[:-1]))  # only the last may be worse
    assert tuned.weight == tried[int(np.argmax(scores))]
    assert tuned.popularity_weight == 0.5


def test_a_sample_is_ranked_where_there_is_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = graph_of(skewed())
    monkeypatch.setattr("considerate.fitting.tuning.MOST_SCORES", 150 * graph.item_count)
    held = held_out(graph, 0)
    assert len(held.users) == 150
    assert np.all(np.diff(held.users) > 0)


def test_too_few_users_keep_the_default(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="considerate"):
        fitted = small(popularity="auto", likelihood_weight="auto").fit(planted(50, 10))
    assert fitted.model_.plan.popularity_weight == 0.5
    assert fitted.model_.plan.weight == 1.5
    assert "too few to choose settings by" in caplog.text


def test_the_knob_is_in_the_file_and_in_the_shell(tmp_path: Path) -> None:
    data, path = tmp_path / "likes.parquet", tmp_path / "model.safetensors"
    pq.write_table(as_table(only_popular()), data)
    options = ["--factors", "3", "--sweeps", "6", "--threads", "1", "--quiet"]
    done = CliRunner().invoke(app, ["fit", str(data), "-o", str(path), "--popularity", "auto", *options])
    assert done.exit_code == 0, done.output
    stored = Recommender.load(path)
    assert stored.model_.plan.popularity_weight == small(popularity="auto").fit(data).model_.plan.popularity_weight
    assert stored.popularity == "auto"
    bad = CliRunner().invoke(app, ["fit", str(data), "-o", str(path), "--popularity", "best", *options])
    assert bad.exit_code == 2


def test_a_wrong_word_is_said() -> None:
    with pytest.raises(UsageError, match=r"popularity is 'best'; it must be .* or 'auto' or 'auto-top'"):
        small(popularity="best").fit(planted())
    with pytest.raises(UsageError, match="likelihood_weight is 'auto-top'"):
        small(likelihood_weight="auto-top").fit(planted())


def test_a_given_knob_is_the_models_own() -> None:
    fitted = small(popularity=1.25).fit(skewed())
    assert fitted.model_.plan.popularity_weight == 1.25
    assert np.array_equal(fitted.recommend(0)[0], fitted.recommend(0, popularity=1.25)[0])


def test_collapse_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """Likes without any taste prune the vectors; planted clusters do not."""
    noise = sp.csr_matrix((np.random.default_rng(0).random((300, 80)) < 0.05).astype(np.float32))
    with caplog.at_level(logging.WARNING, logger="considerate"):
        small(sweeps=30).fit(planted(300, 40, inside=0.6, across=0.02))
        assert "collapsed" not in caplog.text
        small(sweeps=30).fit(noise)
        assert "the vectors have all but collapsed" in caplog.text


def test_advice_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    noise = sp.csr_matrix((np.random.default_rng(0).random((300, 80)) < 0.05).astype(np.float32))
    with library_messages():
        small(sweeps=30).fit(noise)
        small(sweeps=30, seed=1).fit(noise)
    assert capsys.readouterr().err.count("collapsed") == 1
