"""What the tests of the study share: simulated ratings, one study of them, and the shell."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from considerate.data import ReaderOptions
from considerate.simulation.degrees import PowerLaw
from considerate.simulation.simulate import simulate_from_model
from considerate.study.experiment import Study, StudyOptions
from considerate.study.material import Material, read_material
from considerate.study.results import Results, results_to_json

SMALL = {"factors": 3, "sweeps": 8}


@pytest.fixture(scope="session")
def ratings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What people considered: 5 stars where the coin of the model showed a like, 2 where it did not."""
    sample = simulate_from_model(
        300, 80, 3, tau_user=0.5, tau_item=1.0, user_law=PowerLaw(0.5, cutoff=60.0, minimum=25), seed=3
    )
    table = pa.table({"user": sample.hidden_users, "item": sample.hidden_items, "rating": np.where(sample.liked, 5, 2)})
    path = tmp_path_factory.mktemp("study") / "ratings.parquet"
    pq.write_table(table, path)
    return path


@pytest.fixture(scope="session")
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


@pytest.fixture(scope="session")
def stored(material: Material, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Results, dict[str, bool]]:
    """A study whose stages are stored: (folder, results, what was reused)."""
    folder = tmp_path_factory.mktemp("stages")
    return folder, *studied(material, folder)


@pytest.fixture
def folder(stored: tuple[Path, Results, dict[str, bool]], tmp_path: Path) -> Path:
    """A copy of its folder."""
    return Path(shutil.copytree(stored[0], tmp_path / "stages"))


@pytest.fixture(scope="session")
def results(stored: tuple[Path, Results, dict[str, bool]]) -> Results:
    return stored[1]


def without_seconds(results: Results) -> str:
    """What must be the same when a study is repeated."""
    plain = json.loads(results_to_json(results))
    plain.pop("seconds")
    plain.pop("reused_seconds")
    plain.pop("times")
    for one in plain["comparisons"]:
        one.pop("fit_seconds")
    return json.dumps(plain)


def table(path: Path, **columns: Any) -> str:
    pq.write_table(pa.table(columns), path)
    return str(path)


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where matplotlib is not installed: drawing is slow, and tested elsewhere."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
