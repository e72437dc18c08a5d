"""The study: its numbers against brute force, its stages kept and made again, its truth, and its report."""

from __future__ import annotations

import itertools
import json
import math
import re
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from considerate import Recommender, read_interactions
from considerate.cli import app
from considerate.data import ReaderOptions
from considerate.data.graph import Graph, run_serially
from considerate.errors import DataError, OutputError, UsageError
from considerate.evaluation.calibration import reliability
from considerate.evaluation.metrics import ndcg, rank_score
from considerate.evaluation.ranks import held_ranks
from considerate.evaluation.scorer import FunctionScorer
from considerate.evaluation.split import HeldOut, edge_keys, one_per_user, validation
from considerate.fitting.tuning import Weights
from considerate.model.model import Model
from considerate.simulation.degrees import PowerLaw
from considerate.simulation.simulate import simulate_from_model
from considerate.study import fits
from considerate.study.cache import Cache, Stage, code_version
from considerate.study.experiment import Study, StudyOptions, run_study
from considerate.study.fits import (
    TIE,
    Compute,
    Ranking,
    SplitResult,
    best_trial,
    consider_ours,
    fit_ours,
    our_trials,
    some_users,
    try_ours,
)
from considerate.study.material import Material, make_material, read_material
from considerate.study.page import missing_parts, open_report, write_report
from considerate.study.peers import Own, Snapshot
from considerate.study.results import Results, results_from_json, results_to_json
from considerate.study.statements import make_statements
from considerate.study.summary import Contender, Judgement, considered_by_degree, recalibrate_on_others

SMALL = {"factors": 3, "sweeps": 8}


@pytest.fixture(scope="module")
def ratings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What people considered: 5 stars where the coin of the model showed a like, 2 where it did not."""
    sample = simulate_from_model(
        300, 80, 3, tau_user=0.5, tau_item=1.0, user_law=PowerLaw(0.5, cutoff=60.0, minimum=25), seed=3
    )
    table = pa.table({"user": sample.hidden_users, "item": sample.hidden_items, "rating": np.where(sample.liked, 5, 2)})
    path = tmp_path_factory.mktemp("study") / "ratings.parquet"
    pq.write_table(table, path)
    return path


@pytest.fixture(scope="module")
def material(ratings: Path) -> Material:
    return read_material(str(ratings), ReaderOptions(where="rating >= 4"))


def studied(material: Material, folder: Path | None = None, scorers: Any = (), **options: Any) -> tuple[Results, Any]:
    """(results, the steps by stage: whether each was reused)"""
    settings = SMALL | options.pop("settings", {})
    given: dict[str, Any] = {"splits": 2, "peers": False, "resamples": 50} | options
    study = Study(material, StudyOptions(settings=settings, **given), scorers, folder)
    steps = [step for step in study.steps() if step.reused is not None]
    assert [step.done for step in steps] == list(range(1, len(steps) + 1))
    assert steps[-1].total == len(steps)
    return study.results, {step.stage: step.reused for step in steps}


@pytest.fixture(scope="module")
def stored(material: Material, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Results, dict[str, bool]]:
    """A study whose stages are stored: (folder, results, what was reused)."""
    folder = tmp_path_factory.mktemp("stages")
    return folder, *studied(material, folder)


@pytest.fixture
def folder(stored: tuple[Path, Results, dict[str, bool]], tmp_path: Path) -> Path:
    """A copy of its folder."""
    return Path(shutil.copytree(stored[0], tmp_path / "stages"))


@pytest.fixture(scope="module")
def results(stored: tuple[Path, Results, dict[str, bool]]) -> Results:
    return stored[1]


def without_seconds(results: Results) -> str:
    """What must be the same when a study is repeated."""
    plain = json.loads(results_to_json(results))
    plain.pop("seconds")
    plain.pop("times")
    for one in plain["comparisons"]:
        one.pop("fit_seconds")
    return json.dumps(plain)


# --- The numbers ---


def test_the_popularity_row_is_what_brute_force_says(material: Material, results: Results) -> None:
    values, tail, hits = [], [], []
    for seed in range(2):
        held = one_per_user(material.graph, seed)
        degree = held.train.by_item.degrees.astype(float)
        for user, item in zip(held.users, held.items):
            seen = held.train.by_user.row(int(user))
            values.append(rank_score(degree, int(item), seen))
            tail.append(degree[item] < 100)
            free = np.setdiff1d(np.arange(len(degree)), seen)
            above, ties = (degree[free] > degree[item]).sum(), (degree[free] == degree[item]).sum()
            hits.append(np.clip((20 - above) / ties, 0, 1))
    row = next(one for one in results.comparisons if one.name == "popularity")
    assert row.metrics["S_rank"] == pytest.approx(np.mean(values))
    assert row.metrics["S_rank tail"] == pytest.approx(np.mean(np.array(values)[tail]))
    assert row.metrics["Recall@20"] == pytest.approx(np.mean(hits))
    low, high = row.intervals["S_rank"]
    assert low < row.metrics["S_rank"] < high
    assert results.data.held_out == len(one_per_user(material.graph, 0).users)


def test_differences_are_ours_less_theirs(results: Results) -> None:
    rows = {one.name: one for one in results.comparisons}
    ours, liking = rows["considerate"], rows["considerate, for the tail"]
    for one in results.comparisons:
        if one.name != "considerate":
            for metric in ("S_rank", "S_rank tail", "NDCG@20"):
                assert one.difference[metric] == pytest.approx(ours.metrics[metric] - one.metrics[metric], abs=1e-12)
                low, high = one.difference_intervals[metric]
                assert low <= one.difference[metric] + 1e-9
                assert one.difference[metric] <= high + 1e-9
        if one.name != "considerate, for the tail":
            expected = liking.metrics["S_rank tail"] - one.metrics["S_rank tail"]
            assert one.difference["S_rank tail, for the tail"] == pytest.approx(expected, abs=1e-12)
    assert "S_rank" not in ours.difference
    assert rows["popularity"].difference_intervals["S_rank"][0] > 0  # taste was planted


def test_strata_hold_every_held_out_like(results: Results) -> None:
    held_out = results.data.held_out * results.data.splits
    rows = {one.name: one.metrics["S_rank"] for one in results.comparisons}
    for one in results.ranks:
        assert sum(one.count) == held_out
        assert np.average(one.mean, weights=one.count) == pytest.approx(rows[one.score])
    for gap in results.differences:
        assert sum(gap.count[:-1]) == held_out
        assert (gap.low[-1], gap.high[-1]) == (0, 99)
        tail = next(one for one in results.comparisons if one.name == gap.peer)
        key = "S_rank tail" if gap.ours == "considerate" else "S_rank tail, for the tail"
        assert gap.difference[-1] == pytest.approx(tail.difference[key])
    for table in (*results.errors, *results.histograms):
        assert sum(table.count) <= held_out
    for histogram in results.histograms:
        assert all(sum(row) == pytest.approx(1.0) for row in histogram.share)


def test_every_figure_has_its_data(results: Results) -> None:
    assert [(one.side, one.graph) for one in results.degrees] == [
        ("users", "G"),
        ("items", "G"),
        ("users", "H drawn"),
        ("items", "H drawn"),
    ]
    assert [one.name for one in results.balance] == [
        "r = 1",
        "r = 1, head corrected",
        "r = 1/2",
        "r = 1/2, head corrected",
    ]
    models = ["default", "the paper's, r = 1", "the paper's, r = 1/2"]
    assert [one.name for one in results.errors] == models
    assert [one.name for one in results.histograms] == models
    assert [one.name for one in results.reliability] == [*models, "default, recalibrated"]
    assert [one.name for one in results.traces] == ["considerate", *models[1:]]
    assert [one.name for one in results.times] == ["considerate", *models[1:], "popularity"]
    assert len(results.statements) == 9
    (knob,) = results.knobs
    assert knob.chosen in knob.knob
    assert np.all(np.diff(knob.popularity) > -1e-9)  # more weight, more popular lists
    for trace in results.traces:
        lengths = {len(trace.sweep), len(trace.bound), len(trace.rank), *map(len, trace.taus.values())}
        assert lengths == {trace.sweep[-1]}


def test_the_weights_are_the_best_of_validation(material: Material, results: Results) -> None:
    """And validation is part of the first split's training likes: it shares nothing with the test."""
    held = one_per_user(material.graph, 0)
    valid = validation(held, 0)
    tested = held.users * material.graph.item_count + held.items
    validated = valid.users * material.graph.item_count + valid.items
    assert not np.isin(tested, np.concatenate([validated, edge_keys(valid.train)])).any()
    in_tail = valid.train.by_item.degrees[valid.items] < 100

    def ranks(model: Model, weights: Weights) -> Any:
        return held_ranks(Ranking("any", weights).scorer(model), valid)

    trials = [try_ours(valid, settings, Compute(0, 1, run_serially)) for settings in our_trials(SMALL)]
    best = next(at for at, trial in enumerate(trials) if trial["rank"] >= max(one["rank"] for one in trials) - TIE)
    model, _ = fit_ours(valid.train, our_trials(SMALL)[best], Compute(0, 1, run_serially))
    for name, mean in (
        ("rank", lambda ranks: float(ranks.scores.mean())),
        ("top", lambda ranks: float(ndcg(ranks, 20).mean())),
        ("tail", lambda ranks: float(ranks.scores[in_tail].mean())),
    ):
        chosen = mean(ranks(model, Weights(*trials[best][f"{name} weights"])))
        assert trials[best][name] == pytest.approx(chosen, abs=1e-3)
        others = [mean(ranks(model, Weights(knob, lift))) for knob in (0.0, 0.5, 1.0) for lift in (0.0, 1.0, 2.0)]
        assert chosen >= max(others) - 1e-3
    assert results.knobs[0].chosen == trials[best]["rank weights"][0]


def test_trials_that_cannot_be_told_apart_are_told_by_the_tail() -> None:
    def trial(rank: float, tail: float) -> dict[str, float]:
        return {"rank": rank, "tail": tail}

    assert best_trial([trial(0.95, 0.8), trial(0.94, 0.9)]) == 0
    assert best_trial([trial(0.95, 0.8), trial(0.9496, 0.9)]) == 1
    assert best_trial([trial(0.9496, 0.9), trial(0.95, 0.9)]) == 0
    assert best_trial([trial(0.9, 0.95), trial(0.95, 0.8), trial(0.9497, 0.7)]) == 1


class Watched:
    """A peer that keeps what it was given to learn from; of its two trials the second scores the better, at the end."""

    name, version, one_thread, factors = "watched", None, False, 7
    trials = ({"sign": -1.0}, {"sign": 1.0})

    def __init__(self) -> None:
        self.given: list[tuple[float, Graph]] = []

    def unavailable(self, train: Graph) -> str | None:
        return None

    def snapshots(self, train: Graph, settings: Any, seed: int | None, threads: int) -> Iterator[Snapshot]:
        self.given.append((settings["sign"], train))
        for iterations, sign in ((1, 0.0), (3, settings["sign"])):
            degree = sign * train.by_item.degrees
            scorer = FunctionScorer(lambda users, degree=degree: np.tile(degree, (len(users), 1)), self.name)
            yield Snapshot(scorer, iterations, 0.1 * iterations)


def test_trials_never_see_a_test_edge_and_the_better_one_is_used(material: Material) -> None:
    peer = Watched()
    found, _ = studied(material, scorers=[peer])
    splits = [one_per_user(material.graph, seed) for seed in range(2)]
    tested = splits[0].users * material.graph.item_count + splits[0].items
    trials, rest = peer.given[:2], peer.given[2:]
    for _, train in trials:
        assert not np.isin(tested, edge_keys(train)).any()
        assert train.edges < splits[0].train.edges
    assert [sign for sign, _ in rest] == [1.0] * 3  # both splits, and quality against time
    assert [train.edges for _, train in rest[:2]] == [split.train.edges for split in splits]
    row = next(one for one in found.comparisons if one.name == "watched")
    assert row.settings == "sign 1, iterations 3, 7 factors"
    assert row.trials == 2
    popular = next(one for one in found.comparisons if one.name == "popularity")
    assert row.metrics["S_rank"] == pytest.approx(popular.metrics["S_rank"])
    assert any("watched was best at its last iteration, 3: more might help it" in note for note in found.data.notes)


def test_our_trials_are_six_and_differ() -> None:
    trials = our_trials({"factors": 5, "likelihood_weight": 2.0})
    assert trials[0] == {"factors": 5, "likelihood_weight": 2.0}
    assert len({json.dumps(one, sort_keys=True) for one in trials}) == 6
    assert all(one["factors"] == 5 for one in trials)
    assert len({json.dumps(one, sort_keys=True) for one in our_trials({"likelihood_weight": "auto"})}) == 6


def test_threads_do_not_change_a_figure(material: Material, results: Results) -> None:
    assert without_seconds(studied(material, threads=1)[0]) == without_seconds(results)


def test_some_users_are_a_function_of_the_seed(material: Material) -> None:
    held = one_per_user(material.graph, 0)
    few = some_users(held, 1, 50)
    assert len(np.unique(few.users)) == 50
    assert np.array_equal(few.users, some_users(held, 1, 50).users)
    assert not np.array_equal(few.users, some_users(held, 2, 50).users)
    assert some_users(held, 1) is held


# --- Stages that are kept ---


def test_a_large_catalogue_is_judged_by_some_users(material: Material, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Study(material, StudyOptions(SMALL, splits=2))
    monkeypatch.setattr(fits, "MOST_SCORES", 40 * material.graph.item_count)
    study = Study(material, StudyOptions(SMALL, splits=2))
    for split, same in zip(study.splits, whole.splits, strict=True):
        assert len(np.unique(split.users)) == 40 < len(np.unique(same.users))
        assert split.train.edges == same.train.edges
    assert len(np.unique(study.valid.users)) <= 40
    assert any(note.startswith("40 of") for note in study.notes)
    assert not any("are judged" in note for note in whole.notes)


def first_steps(study: Study, count: int = 9) -> list[bool]:
    """Of the first stages, whether each was reused."""
    steps = (step.reused for step in study.steps() if step.reused is not None)
    return list(itertools.islice(steps, count))


def test_a_second_run_reuses_what_is_unchanged(
    material: Material, stored: tuple[Path, Results, dict[str, bool]], folder: Path
) -> None:
    _, first, made = stored
    assert not any(made.values())
    again, reused = studied(material, folder)
    assert all(was for stage, was in reused.items() if stage != "summary")
    assert without_seconds(again) == without_seconds(first)
    assert again.times == first.times  # of the first run: nothing was fitted
    more, reused = studied(material, folder, splits=3)
    fresh = {stage for stage, was in reused.items() if not was}
    assert fresh == {stage for stage in reused if stage.endswith("split 3")} | {"summary"}
    assert more.data.splits == 3
    _, reused = studied(material, folder, settings={"factors": 4})
    assert not any(was for stage, was in reused.items() if "considerate" in stage or "knob" in stage)
    assert all(was for stage, was in reused.items() if "popularity" in stage or "the paper's" in stage)
    same, seeded = (StudyOptions(settings=SMALL, splits=2, peers=False, resamples=50, seed=seed) for seed in (0, 5))
    assert all(first_steps(Study(material, same, folder=folder)))
    assert not any(first_steps(Study(material, seeded, folder=folder)))
    fewer = Study(replace(material, judged=None), same, folder=folder)
    assert not any(first_steps(fewer)), "other data, and its stages were reused"


def test_a_damaged_stage_is_computed_again(tmp_path: Path) -> None:
    def arrays() -> dict[str, Any]:
        return {"x": np.arange(3)}

    cache, stage = Cache(tmp_path, "data"), Stage("A stage!", "1", {"a": 1.5}, arrays)
    assert not cache.get(stage)[1]
    stored, reused = cache.get(replace(stage, compute=lambda: pytest.fail("computed again")))
    assert reused
    assert np.array_equal(stored["x"], np.arange(3))
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    pickled = BytesIO()
    np.savez(pickled, x=np.array([{"an": "object"}], dtype=object))  # a pickle is never opened
    for damaged in (b"", b"nonsense", whole[: len(whole) // 2], whole[:-30] + b"\0" * 30, pickled.getvalue()):
        file.write_bytes(damaged)
        again, reused = cache.get(stage)
        assert not reused
        assert np.array_equal(again["x"], np.arange(3))
        assert cache.get(stage)[1]


def test_a_stage_is_stored_under_all_that_it_depends_on(tmp_path: Path) -> None:
    cache, stage = Cache(tmp_path, "data"), Stage("A", "1", {"a": 1.5}, lambda: [1, "b"])
    assert cache.get(stage) == ([1, "b"], False)
    assert cache.get(replace(stage, compute=lambda: pytest.fail("computed again"))) == ([1, "b"], True)
    for other in (replace(stage, version="2"), replace(stage, settings={"a": 2}), replace(stage, name="B")):
        assert cache.get(other) == ([1, "b"], False)
    assert cache.get(replace(stage, version=None)) == ([1, "b"], False)
    assert Cache(tmp_path, "other data").get(stage) == ([1, "b"], False)
    assert Cache(None, "data").get(stage) == ([1, "b"], False)


def test_code_has_a_version() -> None:
    assert code_version("data/graph.py") == code_version("data/graph.py")
    assert code_version("data/graph.py") != code_version("simulation/degrees.py")
    assert code_version("inference/hidden") != code_version("inference")


def test_own_recommenders_are_stored_under_their_version(material: Material, folder: Path) -> None:
    calls: list[tuple[int, int]] = []

    def make(matrix: Any) -> Any:
        calls.append(matrix.shape)
        degree = np.asarray(matrix.sum(axis=0)).ravel()
        return lambda users: np.tile(degree, (len(users), 1))

    for version, expected in ((None, 6), ("1", 3), ("2", 6)):
        calls.clear()
        found = []
        for run in range(2):
            kept = version if run == 0 or version != "2" else "3"
            found.append(studied(material, folder, scorers=[Own("mine", make, kept)])[0])
        assert len(calls) == expected  # two splits and the curve, once or twice
        rows = {one.name: one for one in found[-1].comparisons}
        assert rows["mine"].metrics["S_rank"] == pytest.approx(rows["popularity"].metrics["S_rank"])
    with pytest.raises(UsageError, match="one name"):
        Study(material, StudyOptions(peers=False), [Own("popularity", make)])


# --- Ctrl-C ---


def interrupt_fit(monkeypatch: pytest.MonkeyPatch, number: int, sweep: int = 3) -> None:
    """Ctrl-C after some sweeps of the fit of this number, and no other."""
    whole, fits = Recommender.fit_steps, 0

    def fit_steps(self: Recommender, *given: Any, **options: Any) -> Iterator[Any]:
        nonlocal fits
        fits += 1
        mine = fits == number
        for step in whole(self, *given, **options):
            yield step
            if mine and step.sweep == sweep:
                raise KeyboardInterrupt

    monkeypatch.setattr(Recommender, "fit_steps", fit_steps)


@pytest.mark.parametrize("stage", ["trial of considerate 2", "fit of considerate, split 1", "knob curve"])
def test_an_interrupted_fit_is_never_taken_for_a_whole_one(
    material: Material, results: Results, folder: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    """Ctrl-C ends the study, finished stages are reused, and the next run's results are those of a run without it."""
    pattern = re.sub(r"[^a-z0-9]+", "-", stage) + "-*"
    (file,) = folder.glob(pattern)
    file.unlink()
    with monkeypatch.context() as patch:
        interrupt_fit(patch, 1)
        with pytest.raises(KeyboardInterrupt):
            studied(material, folder)
    assert not list(folder.glob(pattern))
    again, reused = studied(material, folder)
    assert {name for name, was in reused.items() if not was} == {stage, "summary"}
    assert without_seconds(again) == without_seconds(results)


def test_an_interrupted_recommender_of_the_users_own_is_not_stored(
    material: Material, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our own Recommender may join as a peer, too: Ctrl-C inside its `fit` ends the study."""

    def make(matrix: Any) -> Any:
        return Recommender(factors=2, sweeps=6, popularity=0.0).fit(matrix)

    own = [Own("mine", make, "1")]
    with monkeypatch.context() as patch:
        interrupt_fit(patch, 1)
        with pytest.raises(KeyboardInterrupt):
            studied(material, folder, scorers=own)
    assert not list(folder.glob("*mine*"))
    after, whole = studied(material, folder, scorers=own)[0], studied(material, scorers=[Own("mine", make)])[0]
    assert without_seconds(after) == without_seconds(whole)


@pytest.mark.usefixtures("no_figures")
def test_ctrl_c_in_the_shell_ends_with_130_and_the_next_run_goes_on(
    ratings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--no-peers", "--splits", 1, "--factors", 2, "--sweeps", 4, "--quiet")
    data = ("study", ratings, "--where", "rating >= 4")
    with monkeypatch.context() as patch:
        interrupt_fit(patch, 8, sweep=2)
        stopped = shell(*data, *options, "-o", tmp_path / "cut")
    assert stopped.exit_code == 130
    assert "interrupted" in stopped.stderr
    assert not (tmp_path / "cut" / "results.json").exists()
    for folder in ("cut", "whole"):
        assert shell(*data, *options, "-o", tmp_path / folder).exit_code == 0
    cut, whole = (results_from_json((tmp_path / name / "results.json").read_text()) for name in ("cut", "whole"))
    assert without_seconds(cut) == without_seconds(whole)


# --- Peers ---


@pytest.mark.slow
def test_the_peers_take_part(material: Material, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cornac")
    pytest.importorskip("implicit")
    monkeypatch.setattr("considerate.study.peers.MOST_EPOCHS", 60)
    found, _ = studied(material, splits=1, peers=True)
    rows = {one.name: one for one in found.comparisons}
    assert [name for name in rows if "considerate" not in name and "like" not in name] == [
        "popularity",
        "BPR-uniform",
        "BPR-popularity",
        *(["BPR-popularity, for the tail"] if "BPR-popularity, for the tail" in rows else []),
        "ALS",
        "EASE",
        "walk",
        "GF-CF",
    ]
    for name in ("BPR-uniform", "ALS", "EASE", "walk", "GF-CF"):
        assert rows[name].metrics["S_rank"] > rows["popularity"].metrics["S_rank"]
        assert rows[name].trials == 6
    assert "3 factors" in rows["ALS"].settings
    assert any("BPR-uniform" in note and "learning_rate" in note for note in found.data.notes)
    assert {(one.ours, one.peer) for one in found.differences} == {
        (ours, peer)
        for ours in ("considerate", "considerate, for the tail")
        for peer in rows
        if "considerate" not in peer and "like" not in peer
    }


def test_a_study_goes_on_without_the_extras(material: Material, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cornac", None)
    monkeypatch.setitem(sys.modules, "implicit", None)
    study = Study(material, StudyOptions(SMALL, splits=1, peers=True))
    assert [peer.name for peer in study.peers] == ["popularity", "EASE", "walk", "GF-CF"]
    said = [note for note in study.notes if "left out" in note and "considerate[study]" in note]
    assert [note.split(" ")[0] for note in said] == ["BPR-uniform", "BPR-popularity", "ALS"]


# --- The truth about p(like) ---


def table(path: Path, **columns: Any) -> str:
    pq.write_table(pa.table(columns), path)
    return str(path)


def test_rows_that_fail_the_rule_were_considered(tmp_path: Path) -> None:
    data = table(
        tmp_path / "ratings.parquet",
        user=["a", "a", "b", "b", "c", "c", "a", "d", "b", "c"],
        item=["x", "y", "x", "z", "y", "z", "z", "x", "w", "x"],
        rating=[5.0, 4.0, 4.0, 5.0, 5.0, 4.0, 1.0, 2.0, 2.0, None],
    )
    found = read_material(data, ReaderOptions(where="rating >= 4"))
    assert found.graph.edges == 6
    assert found.judged is not None
    assert list(zip(found.judged.users, found.judged.items)) == [
        (0, 2)
    ]  # a and z; d and w have no like, a null is none
    assert not found.judged.apart
    assert any("2 are of users or items without a like" in note for note in found.notes)
    assert read_material(data, ReaderOptions(where="rating >= 0 or rating is null")).judged is None  # no row fails
    assert read_material(data, ReaderOptions(where="rating >= 0")).judged is None  # nothing is known of the other row
    assert found.name == tmp_path.name


def test_a_pair_that_is_also_a_like_was_liked(tmp_path: Path) -> None:
    data = table(
        tmp_path / "twice.parquet",
        user=[0, 0, 1, 1, 0, 0, 1],
        item=[0, 1, 0, 1, 0, 2, 2],
        rating=[5, 5, 5, 5, 1, 5, 1],
    )
    found = read_material(data, ReaderOptions(where="rating >= 4"))
    assert found.judged is not None
    assert list(zip(found.judged.users, found.judged.items)) == [(1, 2)]
    assert found.name == "twice"


def test_truth_from_a_set_of_its_own(ratings: Path, tmp_path: Path) -> None:
    everything = pq.read_table(ratings).to_pandas()
    random = np.random.default_rng(0)
    apart = random.random(len(everything)) < 0.3
    train, judged = tmp_path / "train.parquet", tmp_path / "judged.parquet"
    pq.write_table(pa.Table.from_pandas(everything[~apart]), train)
    pq.write_table(pa.Table.from_pandas(everything[apart].rename(columns={"rating": "stars"})), judged)
    with pytest.raises(DataError):
        read_material(str(train), ReaderOptions(where="rating >= 4"), judged=str(judged))
    found = read_material(str(train), ReaderOptions(where="rating >= 4"), judged=str(judged), judged_where="stars >= 4")
    truth = found.judged
    assert truth is not None
    assert truth.apart
    liked = int((everything[apart]["rating"] == 5).sum())
    assert len(truth.liked_users) <= liked
    assert len(truth.liked_users) > 0.9 * liked
    keys = np.concatenate([truth.users, truth.liked_users]) * found.graph.item_count
    keys += np.concatenate([truth.items, truth.liked_items])
    assert len(np.unique(keys)) == len(keys)
    assert not np.isin(keys, edge_keys(found.graph)).any()
    weighted = SMALL | {"likelihood_weight": 2.0}  # with a weight of 1 the vectors collapse on so few likes
    results, steps = studied(found, splits=1, settings=weighted)
    assert [stage for stage in steps if stage.startswith("judged")]
    assert all(sum(one.count) == len(keys) for one in results.reliability)
    assert results.considered == []  # what was assigned says nothing of what people consider
    # by the data's own ids, through the public door
    likes = read_interactions(train, where="rating >= 4")
    model = Recommender(**weighted).fit(likes)
    pairs = everything[apart]
    users, items = likes.user_ids.rows_of(pairs["user"]), likes.item_ids.rows_of(pairs["item"])
    known = (users >= 0) & (items >= 0)
    p = model.predict_proba(users[known], items[known])
    expected = reliability(p, (pairs["rating"] == 5).to_numpy()[known])
    default = next(one for one in results.reliability if one.name == "default")
    assert default.auc == pytest.approx(expected.auc, abs=1e-6)
    assert default.calibration_error == pytest.approx(expected.calibration_error, abs=1e-5)
    assert default.auc > 0.7
    with pytest.raises(UsageError, match="--judged-where goes with --judged"):
        read_material(str(train), ReaderOptions(where="rating >= 4"), judged_where="stars >= 4")


def test_the_name_of_a_database_has_no_password(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "shop.db") as connection:
        connection.execute("create table likes as select 1 as user, 2 as item union select 2, 1 union select 2, 2")
    connection.close()
    material = read_material(f"sqlite:///{tmp_path}/shop.db?table=likes&password=se.cret", ReaderOptions())
    assert (material.name, "cret" in material.source) == ("shop", False)


def test_judged_pairs_need_a_rule(tmp_path: Path) -> None:
    data = table(tmp_path / "likes.parquet", user=[0, 0, 1, 1], item=[0, 1, 0, 1])
    with pytest.raises(UsageError, match="--judged needs a rule"):
        read_material(data, ReaderOptions(), judged=data)


def test_recalibration_is_fitted_on_other_users() -> None:
    """Where one half of the people are told the opposite of the truth, it is the other half that is misled."""
    random = np.random.default_rng(0)
    users = np.repeat(np.arange(400), 50)
    logit = random.normal(0, 1.5, len(users))
    liked = random.random(len(users)) < 1 / (1 + np.exp(-logit))
    bold = 1 / (1 + np.exp(-(2.5 * logit + 1.0)))
    before = reliability(bold, liked).calibration_error
    corrected = recalibrate_on_others(Judgement(users, bold, liked), 0)
    assert before > 0.1
    assert reliability(corrected, liked).calibration_error < 0.02
    people = np.unique(users)
    halves = [
        recalibrate_on_others(Judgement(users, bold, np.where(users == one, ~liked, liked)), 0) for one in people[:4]
    ]
    for one, changed in zip(people[:4], halves):
        same = changed == corrected
        assert same[users == one].all(), "a user's own truth changed the user's own correction"
        assert not same.all()
        assert same.sum() >= len(users) // 2


def test_the_reliability_of_simulated_coins(results: Results) -> None:
    tables = {one.name: one for one in results.reliability}
    assert tables["default"].auc > 0.7
    assert tables["default, recalibrated"].calibration_error < 0.05
    assert tables["default, recalibrated"].log_loss < tables["default"].log_loss + 1e-6


def test_who_considers_what_is_told_from_what_was_never_rated(material: Material, results: Results) -> None:
    held, judged = one_per_user(material.graph, 0), material.judged
    assert judged is not None
    found = consider_ours(judged, held, SMALL | {"consideration": "walk"}, Compute(0, 1, run_serially))
    assert found["names"].tolist() == ["pi", "w", "a", "a + log w"]
    popularity = held.train.by_item.degrees
    truth = np.zeros((held.train.user_count, held.train.item_count), np.int8)
    for pairs, kind in ((material.graph.pairs(), 1), ((judged.users, judged.items), 2)):
        truth[pairs] = kind
    people = [user for user, row in enumerate(truth) if (row == 2).any() and (row == 0).any()]
    assert found["degree"].tolist() == held.train.by_user.degrees[people].tolist()
    for at, user in enumerate(people):
        one, other = (popularity[truth[user] == kind] for kind in (2, 0))
        wins = (one[:, None] > other) + 0.5 * (one[:, None] == other)
        assert found["auc"][0, at] == pytest.approx(wins.mean())
    rows = considered_by_degree(found["names"].tolist(), found["auc"], found["degree"], resamples=20)
    for row, values in zip(rows, found["auc"]):
        assert row.auc == pytest.approx(values.mean())
        assert np.average(row.mean, weights=row.count) == pytest.approx(row.auc)
        assert row.auc_interval[0] <= row.auc <= row.auc_interval[1]
    pi = next(row for row in results.considered if row.name == "pi")  # of the whole study, the same users
    assert pi.auc == pytest.approx(rows[0].auc)
    assert {"a", "pi"} <= {row.name for row in results.considered}
    nobody = replace(judged, users=judged.users[:0], items=judged.items[:0])
    assert consider_ours(nobody, held, SMALL, Compute(0, 1, run_serially))["auc"].size == 0


# --- A given split, and what is refused ---


def test_a_given_split_is_used_as_it_is(ratings: Path, tmp_path: Path) -> None:
    likes = read_interactions(ratings, where="rating >= 4")
    random = np.random.default_rng(1)
    chosen = random.random(len(likes.users)) < 0.2
    both = [
        table(tmp_path / f"{name}.parquet", user=likes.users[part].astype(int), item=likes.items[part].astype(int))
        for name, part in (("train", ~chosen), ("test", chosen))
    ]
    found = read_material(both[0], ReaderOptions(), test=both[1])
    results, _ = studied(found)
    assert results.data.splits == 1
    assert results.data.split == "train and test as given"
    assert results.data.held_out > 0.15 * len(likes.users)
    held = found.test
    assert held is not None
    degree = held.train.by_item.degrees.astype(float)
    by_user: dict[int, list[float]] = {}
    for user, item in zip(held.users, held.items):
        seen = held.train.by_user.row(int(user))
        by_user.setdefault(int(user), []).append(rank_score(degree, int(item), seen))
    row = next(one for one in results.comparisons if one.name == "popularity")
    assert row.metrics["S_rank"] == pytest.approx(np.mean([np.mean(values) for values in by_user.values()]))
    assert results.reliability == []
    assert any("cannot be checked" in note for note in results.data.notes)


def test_from_python_with_what_the_reader_reads(ratings: Path) -> None:
    likes = read_interactions(ratings, where="rating >= 4")
    others = read_interactions(ratings, where="rating < 4")
    found = run_study(likes, not_liked=others, title="coins", splits=1, peers=False, **SMALL)
    assert found.data.name == "coins"
    assert found.data.judged > 100
    assert make_material(likes, not_liked=others).judged is not None


def test_options_are_checked() -> None:
    with pytest.raises(UsageError, match="splits is 0"):
        StudyOptions(splits=0)
    with pytest.raises(UsageError, match="factors is 0"):
        StudyOptions(settings={"factors": 0})


# --- The paper's statements ---


def test_statements_follow_the_numbers(material: Material) -> None:
    """The same machinery on numbers that agree with the paper, and on numbers that do not."""
    from considerate.evaluation.ranks import Ranks

    held = one_per_user(material.graph, 0)
    random = np.random.default_rng(0)
    edges = len(held.users)
    degree = held.train.by_item.degrees[held.items]
    user_degree = held.train.by_user.degrees[held.users]

    def contender(name: str, rank: Any) -> Contender:
        candidates = np.full(edges, 1001)
        above = np.clip(np.round((1 - np.broadcast_to(rank, edges)) * 1000), 0, 1000).astype(np.int64)
        ranks = Ranks(held.users, held.items, above, np.zeros(edges, np.int64), candidates)
        return Contender(name, "", 0, [SplitResult(ranks, np.zeros(edges), np.zeros(edges), 0.0, 0.0, 0.0)])

    noise = random.beta(5, 1, edges)
    head = degree >= np.quantile(degree, 0.75)
    like, product = 0.8 * noise, np.where(head, 0.95, 0.7) * noise
    ranks = {"like, r = 1": like, "like, r = 1/2": like, "popularity": 0.5 * product, "considerate": like + 0.01}
    ranks |= {f"popularity x like, {rate}": product for rate in ("r = 1", "r = 1/2")}
    ranks |= {"BPR-uniform": np.where(head, 0.99, 0.75), "BPR-popularity": 0.75 * noise}
    contenders = {name: contender(name, rank) for name, rank in ranks.items()}
    many = (user_degree >= 20) & (user_degree < 80)
    p = np.where(np.arange(edges) % 100 < 17, 0.4, 0.9)
    taus = {rate: np.array([[2.0, 3.5, 0.4]]) for rate in ("r = 1", "r = 1/2")}
    said = make_statements(contenders, {"r = 1": [p], "r = 1/2": [p]}, taus, [held])
    agree = {one.paper.split(" ")[0] + " " + one.paper.split(" ")[1]: one for one in said}
    assert agree["The classification"].agrees is (True if many.sum() >= 50 else None)
    assert agree["For users"].agrees is None  # too few have one item in training
    assert agree["In the"].paper.startswith("In the head")  # the later of the two
    assert agree["In the"].agrees is True
    assert agree["Over all"].agrees is True
    assert agree["E[tau] is"].agrees is True
    assert agree["The median"].agrees is True
    contenders["BPR-uniform"] = contender("BPR-uniform", 0.3 * noise)
    taus = {rate: np.array([[12.0, 12.0, 9.0]]) for rate in taus}
    said = make_statements(contenders, {"r = 1": [1 - p], "r = 1/2": [1 - p]}, taus, [held])
    other = {one.paper.split(" ")[0] + " " + one.paper.split(" ")[1]: one for one in said}
    assert other["The classification"].agrees is (False if many.sum() >= 50 else None)
    assert other["In the"].agrees is False
    assert other["Over all"].agrees is False
    assert other["E[tau] is"].agrees is False
    assert "over-shrinkage" in other["E[tau] is"].why
    assert math.isclose(0.17, np.mean(p < 0.5), abs_tol=0.01)


# --- The report and the shell ---


def test_the_report(results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    from considerate.study import figures
    from considerate.study.figures.style import Looks, paper_style

    with paper_style():
        drawn = [name for name, draw in figures.DRAWN.items() if draw(results, Looks.of(results)) is not None]
    assert drawn == list(figures.DRAWN)
    monkeypatch.setattr(figures, "DRAWN", {"knob": figures.DRAWN["knob"]})  # saving all is tested elsewhere
    with open_report(tmp_path / "new" / "report") as folder:
        written = write_report(results, folder)
    assert set(written) == {"numbers", "figures", "page"}
    assert without_seconds(results_from_json((folder / "results.json").read_text())) == without_seconds(results)
    assert "<html" in (folder / "index.html").read_text()
    assert sorted(file.name for file in (folder / "figures").iterdir()) == ["knob.pdf", "knob.svg"]
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="is a file"), open_report(tmp_path / "file"):
        pass


def test_a_report_without_matplotlib(results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with open_report(tmp_path) as folder:
        written = write_report(results, folder)
    assert "figures" not in written
    assert (tmp_path / "index.html").stat().st_size > 1000
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with open_report(tmp_path / "numbers") as folder:
        assert set(write_report(results, folder)) == {"numbers"}
    assert missing_parts() == {"figures": "matplotlib", "page": "jinja2"}


def test_bad_input_leaves_no_folder_behind(tmp_path: Path) -> None:
    report = tmp_path / "new" / "report"
    assert shell("study", tmp_path / "nowhere.parquet", "-o", report).exit_code == 2
    assert not report.parent.exists()
    (tmp_path / "kept").mkdir()
    assert shell("study", tmp_path / "nowhere.parquet", "-o", tmp_path / "kept").exit_code == 2
    assert (tmp_path / "kept").is_dir()


def shell(*arguments: Any) -> Any:
    return CliRunner().invoke(app, [str(one) for one in arguments])


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where matplotlib is not installed: drawing is slow, and tested elsewhere."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)


@pytest.mark.usefixtures("no_figures")
def test_study_in_the_shell(ratings: Path, tmp_path: Path) -> None:
    report = tmp_path / "report"
    common = (ratings, "--where", "rating >= 4", "--no-peers", "--splits", 1, "--factors", 3, "--sweeps", 5)
    done = shell("study", *common, "-o", report, "--title", "coins")
    assert done.exit_code == 0, done.output
    for word in ("coins", "considerate, for the", "popularity", "calibration error", "index.html"):
        assert word in done.stdout
    assert "matplotlib is not installed" in done.stderr
    stored = json.loads((report / "results.json").read_text())
    assert stored["data"]["rule"] == "rating >= 4"
    again = shell("study", *common, "-o", report, "--title", "coins", "--json")
    assert again.exit_code == 0, again.output
    plain = json.loads(again.stdout)
    assert plain["comparisons"] == stored["comparisons"]  # fit seconds too: nothing was fitted
    assert plain["times"] == stored["times"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--splits", "0"], "splits is 0"),
        (["--factors", "0"], "factors is 0"),
        (["--judged-where", "rating >= 4"], "--judged-where goes with --judged"),
        (["--test", "nowhere.parquet"], "no such file"),
        (["--judged", "nowhere.parquet"], "no such file"),
    ],
)
def test_study_refuses_what_makes_no_sense(ratings: Path, tmp_path: Path, arguments: list[str], words: str) -> None:
    done = shell("study", ratings, "--where", "rating >= 4", "-o", tmp_path / "report", *arguments)
    assert done.exit_code == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1 + done.stderr.count("note: ")


def test_study_needs_two_likes_of_someone(tmp_path: Path) -> None:
    data = table(tmp_path / "likes.parquet", user=[0, 1, 2], item=[0, 1, 0])
    done = shell("study", data, "-o", tmp_path / "report", "--no-peers")
    assert done.exit_code == 2
    assert "held out" in done.stderr


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.usefixtures("no_figures")
def test_coat_in_one_command(data_dir: Path, tmp_path: Path) -> None:
    """Its randomly assigned test is the truth about p(like)."""
    coat = data_dir / "coat"
    options = ("--judged", coat / "test.parquet", "--no-peers", "--splits", 2, "-o", tmp_path)
    done = shell("study", coat / "train.parquet", "--where", "rating >= 4", *options)
    assert done.exit_code == 0, done.output
    found = results_from_json((tmp_path / "results.json").read_text())
    assert found.data.judged > 3000
    tables = {one.name: one for one in found.reliability}
    assert tables["default"].auc > 0.5
    assert tables["default, recalibrated"].calibration_error < 0.03


def test_held_out_is_a_function_of_the_seed(material: Material) -> None:
    def items(seed: int) -> list[int]:
        held: HeldOut = Study(material, StudyOptions(SMALL, splits=1, seed=seed, peers=False)).splits[0]
        return held.items.tolist()

    assert items(0) == items(0) != items(1)
