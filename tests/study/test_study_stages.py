"""The stages of a study: stored, reused and computed again; Ctrl-C."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from considerate import Recommender
from considerate.errors import UsageError
from considerate.study.cache import Cache, Stage, code_version
from considerate.study.experiment import Study, StudyOptions
from considerate.study.material import Material
from considerate.study.peers import Own
from considerate.study.results import Results, results_from_json
from tests.helpers.shell import run as shell
from tests.helpers.study_fixtures import SMALL, studied, without_seconds

# --- Stages that are kept ---


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
    assert first.reused_seconds == 0
    assert 0 < again.reused_seconds < first.seconds  # parts of the first run, one after the other
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
    assert cache.get(stage)[1] is None
    stored, seconds = cache.get(replace(stage, compute=lambda: pytest.fail("computed again")))
    assert seconds is not None
    assert set(stored) == {"x"}
    assert np.array_equal(stored["x"], np.arange(3))
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    pickled = BytesIO()
    np.savez(pickled, x=np.array([{"an": "object"}], dtype=object))  # a pickle is never opened
    for damaged in (b"", b"nonsense", whole[: len(whole) // 2], whole[:-30] + b"\0" * 30, pickled.getvalue()):
        file.write_bytes(damaged)
        again, seconds = cache.get(stage)
        assert seconds is None
        assert np.array_equal(again["x"], np.arange(3))
        assert cache.get(stage)[1] is not None


def test_a_stage_is_stored_under_all_that_it_depends_on(tmp_path: Path) -> None:
    cache, stage = Cache(tmp_path, "data"), Stage("A", "1", {"a": 1.5}, lambda: [1, "b"])
    assert cache.get(stage) == ([1, "b"], None)
    again, seconds = cache.get(replace(stage, compute=lambda: pytest.fail("computed again")))
    assert again == [1, "b"]
    assert seconds is not None
    assert 0 <= seconds < 60
    for other in (replace(stage, version="2"), replace(stage, settings={"a": 2}), replace(stage, name="B")):
        assert cache.get(other) == ([1, "b"], None)
    assert cache.get(replace(stage, version=None)) == ([1, "b"], None)
    assert Cache(tmp_path, "other data").get(stage) == ([1, "b"], None)
    assert Cache(None, "data").get(stage) == ([1, "b"], None)


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
