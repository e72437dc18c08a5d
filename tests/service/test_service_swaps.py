"""Models are swapped under load: no failed request, no mixed answer, and what is damaged is refused."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from considerate import Recommender
from considerate.errors import ModelFileError
from considerate.model.file import open_model
from considerate.service.metrics import Metrics
from considerate.service.state import ModelHolder, ServedModel
from tests.helpers.randomised import count
from tests.helpers.service_fixtures import Client, fitted, running, wait_for

USERS = ["u20", "a/b", "u31", "u44"]


class Models:
    """Two models, their digests, and what each answers."""

    def __init__(self, folder: Path, shards: int | None) -> None:
        self.paths, self.answers = [], {}
        for seed in range(2):
            path = folder / f"model-{seed}"
            fitted(seed).save(path, shards=shards)
            self.paths.append(path)
            digest, model = open_model(path)[0].header_sha256, Recommender.load(path)
            scores = {user: model.recommend_table([user])["score"].to_pylist() for user in USERS}
            self.answers[digest] = scores
        self.digests = list(self.answers)


def served(client: Client) -> str:
    return str(client.get("/v1/model").json()["digest"])


def replace(source: Path, target: Path) -> None:
    """Written whole beside it, then renamed."""
    beside = target.with_name("beside")
    shutil.copyfile(source, beside)
    os.replace(beside, target)


def load(client: Client, models: Models, stop: Event) -> int:
    """Ask until told to stop; every answer is one of a whole model."""
    asked = 0
    while not stop.is_set():
        user = USERS[asked % len(USERS)]
        answer = client.recommendations(user)
        assert [item["score"] for item in answer["items"]] == models.answers[answer["model"]][user]
        asked += 1
    return asked


def test_swaps_under_load_half_of_them_to_damaged_files(tmp_path: Path) -> None:
    models, path = Models(tmp_path, None), tmp_path / "served"
    replace(models.paths[0], path)
    swaps, stop = count(200, 12), Event()
    with running(path) as client, ThreadPoolExecutor(2) as pool:
        clients = [pool.submit(load, client, models, stop) for _ in range(2)]
        try:
            for swap in range(1, swaps // 2 + 1):
                whole = models.paths[swap % 2].read_bytes()
                damaged = tmp_path / "damaged"
                cut = len(whole) * swap // (swaps // 2 + 1)
                damaged.write_bytes(
                    whole[:cut] if swap % 3 else whole[:cut] + bytes([whole[cut] ^ 1]) + whole[cut + 1 :]
                )
                replace(damaged, path)
                refused = f'considerate_model_reloads_total{{result="refused"}} {swap}.0'
                wait_for(lambda refused=refused: refused in client.get("/metrics").text)
                assert "considerate_model_refused 1.0" in client.get("/metrics").text
                assert served(client) == models.digests[(swap - 1) % 2]
                replace(models.paths[swap % 2], path)
                wait_for(lambda swap=swap: served(client) == models.digests[swap % 2])
                assert "considerate_model_refused 0.0" in client.get("/metrics").text
        finally:
            stop.set()
        assert all(client.result() > 0 for client in clients)


def test_a_model_in_shards_is_saved_anew_in_its_folder(tmp_path: Path) -> None:
    models, path = Models(tmp_path, 3), tmp_path / "served"
    fitted(0).save(path, shards=3)
    stop = Event()
    with running(path) as client, ThreadPoolExecutor(2) as pool:
        clients = [pool.submit(load, client, models, stop) for _ in range(2)]
        try:
            for swap in range(1, count(40, 6) + 1):
                fitted(swap % 2).save(path, shards=3)  # which removes the shards of the other
                wait_for(lambda swap=swap: served(client) == models.digests[swap % 2])
        finally:
            stop.set()
        assert all(client.result() > 0 for client in clients)


def test_reload_by_hand(tmp_path: Path) -> None:
    models, path = Models(tmp_path, None), tmp_path / "served"
    replace(models.paths[0], path)
    (tmp_path / "key").write_text("k" * 32)
    headers = {"Authorization": f"Bearer {'k' * 32}"}
    with running(path, headers, api_key_file=str(tmp_path / "key"), poll=3600) as client:
        replace(models.paths[1], path)
        assert served(client) == models.digests[0]
        assert client.post("/admin/reload").json() == {"model": models.digests[1], "changed": True}
        (tmp_path / "short").write_bytes(models.paths[0].read_bytes()[:-1])
        replace(tmp_path / "short", path)
        refused = client.post("/admin/reload", json={"model": str(models.paths[0])})  # a client names no path
        assert (refused.status_code, refused.json()["type"]) == (409, "/docs#refused-model")
        assert str(tmp_path) not in refused.text
        path.unlink()
        assert client.post("/admin/reload").status_code == 409
        assert served(client) == models.digests[1]


def test_a_file_that_changes_while_it_is_read_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models, path = Models(tmp_path, None), tmp_path / "served"
    replace(models.paths[0], path)
    holder = ModelHolder(str(path), Metrics())
    holder.load()
    tried = []

    def swap(holder: ModelHolder) -> bool:
        tried.append(1)
        if len(tried) == 1:
            replace(models.paths[1], path)
            raise ModelFileError("parts of two models")
        return original(holder)

    original: Any = ModelHolder._swap
    monkeypatch.setattr(ModelHolder, "_swap", swap)
    replace(models.paths[0], path)
    assert holder.load()
    assert len(tried) == 2
    assert holder.current is not None
    assert holder.current.digest == models.digests[1]
    assert not holder.load()  # the same file is not read again
    assert len(tried) == 2


def test_a_model_that_cannot_answer_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models, path = Models(tmp_path, None), tmp_path / "served"
    replace(models.paths[0], path)
    with running(path) as client:
        with monkeypatch.context() as patch:
            patch.setattr(ServedModel, "warm", lambda self: [][0])
            replace(models.paths[1], path)
            wait_for(lambda: "considerate_model_refused 1.0" in client.get("/metrics").text)
            assert served(client) == models.digests[0]
        replace(models.paths[1], path)  # the watcher goes on
        wait_for(lambda: served(client) == models.digests[1])
