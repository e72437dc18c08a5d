"""Files of an earlier release load and answer as they did. golden/release-0.1 was written by considerate 0.1.0."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from considerate import Recommender, read_interactions
from likes import as_table, planted

RELEASE = Path(__file__).parent / "golden" / "release-0.1"
SETTINGS: dict[str, Any] = {
    "factors": 3,
    "user_bias": True,
    "seed": 7,
    "threads": 1,
    "consideration": "popularity",
}


@pytest.mark.parametrize("name", ["model.safetensors", "sharded"])
@pytest.mark.parametrize("verify", [None, True])
def test_a_model_of_an_earlier_release_answers_as_it_did(name: str, verify: bool | None) -> None:
    expected = json.loads((RELEASE / "answers.json").read_text())
    loaded = Recommender.load(RELEASE / name, verify=verify)
    assert (
        loaded.get_params()
        == Recommender(**SETTINGS, sweeps=4, step_delay=10, popularity=0.5, likelihood_weight=1.5).get_params()
    )
    items, scores = loaded.recommend(np.arange(30), N=4, by="row")
    np.testing.assert_array_equal(items, expected["items"])
    np.testing.assert_allclose(scores, expected["scores"], rtol=1e-6)
    np.testing.assert_array_equal(loaded.bound_, expected["bound"])
    table = loaded.recommend_table(N=2).to_pydict()
    assert (table["user"], table["title"]) == (expected["users"], expected["titles"])


def test_a_checkpoint_of_an_earlier_release_is_resumed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shutil.copytree(RELEASE / "checkpoint", tmp_path / "checkpoint")
    titles = pa.table({"item": [f"i{n}" for n in range(12)], "title": [f"Title {n}" for n in range(12)]})
    likes = read_interactions(as_table(planted(users=30, items=12)), titles=titles)
    with caplog.at_level(logging.WARNING, "considerate"):
        resumed = Recommender(**SETTINGS, sweeps=4, tolerance=0).fit(
            likes, checkpoint=tmp_path / "checkpoint", resume=True
        )
    assert "the fit goes on after sweep 2" in caplog.text
    # -log c for everyone, as that release had it; written with AVX-512: elsewhere the last bits differ
    whole = Recommender.load(RELEASE / "model.safetensors")
    np.testing.assert_allclose(resumed.user_factors, whole.user_factors, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(resumed.bound_, whole.bound_, rtol=1e-6)
    anew = Recommender(**SETTINGS, sweeps=4, tolerance=0).fit(likes)
    assert not np.allclose(anew.bound_, whole.bound_, rtol=1e-3), "a new fit has the offsets of now"
