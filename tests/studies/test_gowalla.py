"""The study on Gowalla, its protocol: settings and weights by likes held out of the training part, the test once."""

from __future__ import annotations

from typing import Any

import pytest

from considerate.data.graph import Graph
from considerate.evaluation.split import share_per_user
from considerate.study.peers import Walk
from studies import gowalla
from tests.helpers.likes import planted

SMALL: dict[str, Any] = {
    "factors": 2,
    "sweeps": 3,
    "tolerance": 0.0,
    "consideration": "walk",
    "neighbours": 20,
    "mixing": 0.05,
}


@pytest.fixture
def graph() -> Graph:
    likes = planted(users=120, items=80, clusters=8, inside=0.6).tocoo()
    return Graph.from_pairs(likes.row, likes.col, 120, 80)


def test_weights_and_settings_are_those_of_the_best_trial(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    test = share_per_user(graph, seed=1, share=0.2)
    held = share_per_user(test.train, seed=0, share=0.1)
    fitted: list[tuple[int, Any]] = []
    fit = gowalla.fit_ours

    def recorded(train: Graph, settings: dict[str, Any]) -> Any:
        fitted.append((train.edges, settings["likelihood_weight"]))
        return fit(train, settings)

    trials = tuple(SMALL | {"likelihood_weight": rho} for rho in (1e-3, 2.0))
    monkeypatch.setattr(gowalla, "fit_ours", recorded)
    monkeypatch.setattr(gowalla, "TRIALS", trials)
    best = max((gowalla.try_ours(trial, held, 1) for trial in trials), key=lambda trial: trial.found.recall)
    gowalla.run_ours(2, held, test, 1)
    gowalla.run_peer(Walk(), held, test, 1)
    assert [edges for edges, _ in fitted] == [held.train.edges] * 4 + [test.train.edges]
    assert fitted[-1][1] == best.settings["likelihood_weight"]
    shown = capsys.readouterr().out
    assert shown.count("on the test:") == 1
    chosen = "popularity {:g}, lift {:g}".format(*best.weights)
    assert shown.count(chosen) == 3  # both times it is tried, and at the end
    assert "walk, first" in shown
    assert "the best" in shown


def test_a_trial_has_the_recall_of_its_weights(graph: Graph) -> None:
    held = share_per_user(graph, seed=0, share=0.1)
    trial = gowalla.try_ours(SMALL | {"likelihood_weight": 2.0}, held, 1)
    model = gowalla.fit_ours(held.train, trial.settings)[0].model_
    for popularity, lift in ((0.0, 0.0), (1.0, 1.0), (12.0, 16.0)):
        found = gowalla.measure(gowalla.ModelScorer(model, popularity, lift=lift), held, 1)
        assert trial.found.recall >= found.recall - 1e-6
    assert trial.found.recall > 0.5  # of ten items of the user's cluster that are left, twenty places
