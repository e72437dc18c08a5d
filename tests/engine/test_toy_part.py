"""A part in one file (toy_part.py) is a whole feature: nothing else of the package names it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BEGIN = "from considerate.inference import parts; from tests.engine.toy_part import ToyPart; parts.add(ToyPart())\n"
FITS = """
import hashlib, json, sys
import numpy as np
import scipy.sparse as sp
from considerate import Recommender
from considerate.distributed import OutOfCore, RayBackend
from considerate.errors import CheckpointError, UsageError

folder = sys.argv[1]
likes = sp.csr_matrix((np.random.default_rng(0).random((60, 24)) < 0.2).astype(float))
settings = {"factors": 4, "sweeps": 4, "tolerance": 0.0, "opening": 1, "threads": 1}


def digest(model):
    items = np.ascontiguousarray(model.posterior_.items.rows)
    return hashlib.sha256(items.tobytes() + np.asarray(model.popularity_).tobytes()).hexdigest()


def refused(call):
    try:
        call()
    except (CheckpointError, UsageError) as error:
        return str(error)


found = {}
plain = Recommender(**settings).fit(likes)
toy = Recommender(**settings, oddness=0.5).fit(likes)
found["plain"], found["toy"] = digest(plain), digest(toy)
found["plain_kept"] = list(plain.model_.kept)
found["out_of_core"] = digest(Recommender(**settings, oddness=0.5).fit(likes, backend=OutOfCore()))
toy.save(folder + "/toy.safetensors")
loaded = Recommender.load(folder + "/toy.safetensors")
found["loaded"], found["loaded_oddness"] = digest(loaded), loaded.model_.plan.oddness
mapped = Recommender.load(folder + "/toy.safetensors", verify=False)
found["kept"] = np.asarray(mapped.model_.kept["toy"]).tolist()
short = {**settings, "sweeps": 2}
Recommender(**short, oddness=0.5).fit(likes, checkpoint=folder + "/checkpoints", checkpoint_every=1)
found["resumed"] = digest(
    Recommender(**settings, oddness=0.5).fit(likes, checkpoint=folder + "/checkpoints", resume=True)
)
found["other"] = refused(
    lambda: Recommender(**settings, oddness=0.25).fit(likes, checkpoint=folder + "/checkpoints", resume=True)
)
found["ray"] = refused(lambda: Recommender(**settings, oddness=0.5).fit(likes, backend=RayBackend()))
found["half_edges"] = refused(lambda: Recommender(**settings, hidden="half-edges", oddness=0.5).fit(likes))
found["range"] = refused(lambda: Recommender(**settings, oddness=2).fit(likes))
found["changed"] = refused(lambda: toy.update(None, removed=likes[:1]))
table = loaded.recommend_table([3], N=5)
found["items"], found["column"] = table["item"].to_pylist(), table["kept"].to_pylist()
found["plain_column"] = plain.recommend_table([3], N=2)["kept"].to_pylist()
found["help"] = Recommender.__doc__
print(json.dumps(found))
"""
SHELL = "import sys; from considerate.cli import main; sys.argv = ['considerate', *sys.argv[1:]]; main()"


def run(code: str, *arguments: str) -> str:
    """Output of a new process that has the toy part."""
    command = [sys.executable, "-c", BEGIN + code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    printed = run(FITS, str(tmp_path_factory.mktemp("toy")))
    return dict(json.loads(printed.splitlines()[-1]))


def test_it_changes_the_draws_and_a_setting_of_zero_changes_nothing(found: dict[str, Any]) -> None:
    from considerate import Recommender

    assert found["toy"] != found["plain"]
    assert found["plain_kept"] == []
    assert "oddness" not in (Recommender.__doc__ or "")  # this process has no such part


def test_it_fits_out_of_core_loads_and_resumes_to_the_same_bits(found: dict[str, Any]) -> None:
    assert found["out_of_core"] == found["toy"]
    assert found["loaded"] == found["toy"]
    assert found["resumed"] == found["toy"]
    assert found["loaded_oddness"] == 0.5
    assert found["kept"] == [1.0, 0.5] * 12
    assert "oddness 0.5 (0.25 here)" in found["other"]


def test_what_it_cannot_do_is_one_sentence(found: dict[str, Any]) -> None:
    assert found["ray"] == "oddness is 0.5, which is not for Ray; leave it out, or fit on this machine."
    assert found["half_edges"] == "oddness changes draws from pi, and half-edges are none: leave oddness out."
    assert found["range"] == "oddness is 2; it must be a number at least 0 and at most 1."
    assert found["changed"] == "a model fitted with 'toy' cannot be changed; fit again to all likes."


def test_its_column_is_in_the_table(found: dict[str, Any]) -> None:
    assert found["column"] == [0.5 if item % 2 else 1.0 for item in found["items"]]
    assert found["plain_column"] == [None, None]


def test_its_setting_is_in_the_help_of_python_and_of_the_shell(found: dict[str, Any]) -> None:
    assert "oddness : float, default 0.0\n    How far draws avoid items of odd rows." in found["help"]
    shown = run(SHELL, "fit", "--help")
    assert "--oddness" in shown
    assert "How far draws avoid items of odd rows" in " ".join(shown.replace("│", " ").split())
