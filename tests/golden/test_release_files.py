"""Files of earlier releases load and answer as they did. golden/release-0.1 was written by considerate 0.1.0."""

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
from tests.helpers.likes import as_table, planted
from tests.helpers.paths import GOLDEN

RELEASE = GOLDEN / "release-0.1"
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


# --- Releases 0.2 and 0.3, whose files golden/write_release.py wrote ---

LATER = {"0.2": ["model.safetensors", "sharded"], "0.3": ["model.safetensors", "sharded", "updated.safetensors"]}
LATER["0.3"].append("refitted.safetensors")
MODELS = [(release, name) for release, names in LATER.items() for name in names]


def golden(release: str) -> Path:
    return GOLDEN / f"release-{release}"


def recorded(release: str) -> Any:
    return json.loads((golden(release) / "answers.json").read_text())


def check_answers(model: Recommender, expected: dict[str, Any]) -> None:
    table = model.recommend_table([f"u{user}" for user in range(6, 16)], N=4).to_pydict()
    for name, values in expected["table"].items():
        if name in ("user", "item", "title"):
            assert table[name] == values
        else:
            np.testing.assert_allclose(table[name], values, rtol=1e-5, atol=1e-6)
    assert [str(item) for item in model.similar_items("i3", 5)[0]] == expected["similar"]
    np.testing.assert_array_equal(model.bound_, expected["bound"])
    assert expected["params"].items() <= model.get_params().items()


@pytest.mark.parametrize(("release", "name"), MODELS)
@pytest.mark.parametrize("verify", [None, True])
def test_a_model_of_a_later_release_answers_as_it_did(
    tmp_path: Path, release: str, name: str, verify: bool | None
) -> None:
    model, expected = Recommender.load(golden(release) / name, verify=verify), recorded(release)[name]
    check_answers(model, expected)
    model.save(tmp_path / "again")
    check_answers(Recommender.load(tmp_path / "again"), expected)
    model.save(tmp_path / "shards", shards=3)
    check_answers(Recommender.load(tmp_path / "shards"), expected)


@pytest.mark.parametrize(("release", "name"), MODELS)
def test_a_model_of_a_later_release_can_be_changed(tmp_path: Path, release: str, name: str) -> None:
    model = Recommender.load(golden(release) / name)
    if model.model_.item_features is None:  # an update knows of no features
        model.update({"user": ["u1", "later"], "item": ["i2", "i3"]})
    model.partial_fit_users(["newest"], [["i1", "i3"]]).forget(["u2"]).save(tmp_path / "model")
    again = Recommender.load(tmp_path / "model", verify=True)
    assert again.recommend_table(N=4).equals(model.recommend_table(N=4))
    assert "newest" in again.user_ids()
    assert "u2" not in again.user_ids()


@pytest.mark.parametrize("release", LATER)
def test_a_checkpoint_of_a_later_release_is_resumed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, release: str
) -> None:
    shutil.copytree(golden(release) / "checkpoint", tmp_path / "checkpoint")
    titles = pa.table({"item": [f"i{n}" for n in range(12)], "title": [f"Title {n}" for n in range(12)]})
    settings = recorded(release)["sharded"]["params"]
    with caplog.at_level(logging.WARNING, "considerate"):
        resumed = Recommender(**settings).fit(
            as_table(planted(users=30, items=12)), titles=titles, checkpoint=tmp_path / "checkpoint", resume=True
        )
    assert "the fit goes on after sweep 2" in caplog.text
    assert len(resumed.bound_) == 1 + settings["sweeps"]


def test_a_service_takes_over_the_events_of_the_release_before(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn")
    from considerate.service.events import EventStore
    from considerate.service.metrics import Metrics
    from tests.helpers.service_fixtures import running

    shutil.copy(golden("0.3") / "events.db", tmp_path / "events.db")
    shutil.copy(golden("0.3") / "refitted.safetensors", tmp_path / "model")
    expected = recorded("0.3")["events"]
    store = EventStore(str(tmp_path / "events.db"), Metrics())
    log = store.everything()
    assert (store.identity, list(store.mark())) == (expected["identity"], expected["mark"])
    assert [list(row[:4]) for row in log.rows] == expected["rows"]
    assert log.erased == {bytes.fromhex(expected["gone"])}
    assert store.is_among(log.erased, "gone")
    store.close()
    with running(tmp_path / "model", events=str(tmp_path / "events.db")) as client:
        assert client.get("/v1/model").json()["event_sequence"] == expected["mark"][0]
        assert [event["item"] for event in client.get("/v1/users/ann/events").json()["events"]] == ["i2", "i4"]
        again = client.post_events(("u1", "i7", "like", "first"), ("gone", "i4", "like", "k"), ("ann", "i6"))["events"]
        assert [(event["sequence"], event["duplicate"]) for event in again] == [(1, True), (6, True), (7, False)]
        assert "i2" not in [entry["item"] for entry in client.recommendations("ann")["items"]]
