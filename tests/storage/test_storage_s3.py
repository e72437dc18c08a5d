"""Models, shards and checkpoints on S3 over HTTP: written, read, resumed, and whole after a failure in the middle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from considerate import Recommender
from considerate.cli import app
from considerate.errors import ModelFileError, OutputError
from considerate.fitting.checkpoint import HEAD, INDEX, Checkpoints, part_file, sweep_folder
from considerate.storage import filesystems
from considerate.storage.container import Encoded
from considerate.storage.filesystems import Folder
from tests.helpers.likes import as_table, fit_steps, planted
from tests.helpers.models import assert_same
from tests.helpers.servers import Bucket

SETTINGS: dict[str, Any] = {"factors": 3, "tolerance": 0, "threads": 1}


@pytest.fixture(scope="module")
def fitted() -> Recommender:
    return Recommender(**SETTINGS, sweeps=3, user_bias=True).fit(as_table(planted()))


def broken(self: Encoded) -> Iterator[bytes | memoryview]:
    """A writer that fails after its first pieces."""
    yield len(self.header).to_bytes(8, "little")
    yield self.header
    raise KeyboardInterrupt


def test_a_model_is_saved_loaded_and_replaced_whole(
    s3_bucket: Bucket, fitted: Recommender, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"{s3_bucket.address}/models/one.safetensors"
    for _ in range(2):  # new, and over itself
        fitted.save(address)
        assert_same(Recommender.load(address, verify=True), fitted)
        assert s3_bucket.paths() == ["models/one.safetensors"]
    before = s3_bucket.read("models/one.safetensors")
    with monkeypatch.context() as patched:
        patched.setattr(Encoded, "pieces", broken)
        for name in (address, f"{s3_bucket.address}/models/two.safetensors"):
            with pytest.raises(KeyboardInterrupt):
                fitted.save(name)
    assert s3_bucket.paths() == ["models/one.safetensors"]
    assert s3_bucket.read("models/one.safetensors") == before
    monkeypatch.setattr(filesystems, "_S3_COPY", 100)  # as if it were larger than S3 copies by itself
    fitted.save(address)
    assert s3_bucket.paths() == ["models/one.safetensors"]
    assert s3_bucket.read("models/one.safetensors") == before


def test_shards_are_read_when_they_are_needed_and_replaced_with_the_index(
    s3_bucket: Bucket, fitted: Recommender, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"{s3_bucket.address}/sharded"
    fitted.save(address, shards=4)
    assert len(s3_bucket.paths()) == 5
    loaded = Recommender.load(address)
    assert_same(loaded, fitted)
    done = CliRunner().invoke(app, ["recommend", address, "u3", "--verify", "--json"])
    assert done.exit_code == 0
    with monkeypatch.context() as patched:
        patched.setattr(Encoded, "pieces", broken)
        with pytest.raises(KeyboardInterrupt):
            Recommender(**SETTINGS, sweeps=1).fit(planted()).save(address, shards=2)
    assert_same(Recommender.load(address), fitted)
    assert len(s3_bucket.paths()) == 5
    fitted.save(address, shards=2)
    assert len(s3_bucket.paths()) == 3
    assert_same(Recommender.load(address, verify=True), fitted)
    shard = next(path for path in s3_bucket.paths() if "users-00001" in path)
    content = bytearray(s3_bucket.read(shard))
    content[-1] ^= 1
    s3_bucket.write(shard, bytes(content))
    damaged = Recommender.load(address)
    damaged.recommend(0, by="row")
    with pytest.raises(ModelFileError, match=r"users-00001-.*does not match its checksum"):
        damaged.recommend(199, by="row")


def test_checkpoints_are_written_resumed_and_removed(s3_bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"{s3_bucket.address}/checkpoints"
    likes = as_table(planted())
    whole = Recommender(**SETTINGS, sweeps=6).fit(likes)
    for step in fit_steps(Recommender(**SETTINGS, sweeps=6), likes, checkpoint=address, every=1):
        if step.sweep == 3:
            break
    kept = [f"checkpoints/{sweep_folder(sweep)}" for sweep in (2, 3)]
    assert s3_bucket.paths() == [f"{folder}/{name}" for folder in kept for name in (HEAD, INDEX, part_file(0))]
    part = f"{kept[1]}/{part_file(0)}"
    content = s3_bucket.read(part)
    s3_bucket.write(part, content[:-1] + bytes([content[-1] ^ 1]))  # sweep 3 is damaged, and 2 is resumed
    with pytest.warns(UserWarning, match="sweep-000003: this checkpoint is not used"):
        resumed = Recommender(**SETTINGS, sweeps=6).fit(likes, checkpoint=address, resume=True, checkpoint_every=2)
    assert_same_fit(resumed, whole)
    assert Checkpoints(address, {}).complete() == [4, 6]
    Checkpoints(address, {}).remove()
    assert [path for path in s3_bucket.paths() if "sweep" in path] == []


def test_a_checkpoint_that_fails_in_the_middle_is_not_taken_for_one(
    s3_bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"{s3_bucket.address}/checkpoints"
    write, calls = Folder.write, 0

    def failing(self: Folder, name: str, pieces: Any) -> int:
        nonlocal calls
        calls += name == HEAD
        if name == HEAD and calls == 2:
            raise OutputError(f"{self.shown(name)}: cannot be written (AWS Error SLOW_DOWN); check the address.")
        return write(self, name, pieces)

    monkeypatch.setattr(Folder, "write", failing)
    with pytest.warns(UserWarning, match="the checkpoint of sweep 2 was not written .*SLOW_DOWN.* The fit goes on"):
        fitted = Recommender(**SETTINGS, sweeps=2).fit(planted(), checkpoint=address, checkpoint_every=1)
    assert fitted.n_iter_ == 2
    assert Checkpoints(address, {}).complete() == [1]
    resumed = Recommender(**SETTINGS, sweeps=4).fit(planted(), checkpoint=address, resume=True)
    assert_same_fit(resumed, Recommender(**SETTINGS, sweeps=4).fit(planted()))


def assert_same_fit(one: Recommender, other: Recommender) -> None:
    np.testing.assert_array_equal(one.user_factors, other.user_factors)
    np.testing.assert_array_equal(one.item_factors, other.item_factors)
    np.testing.assert_array_equal(one.bound_, other.bound_)


def test_a_bucket_that_is_not_there_is_one_sentence(s3_bucket: Bucket, fitted: Recommender) -> None:
    for attempt in (
        lambda: fitted.save("s3://no-such-bucket-anywhere/model.safetensors"),
        lambda: fitted.save("s3://no-such-bucket-anywhere/model", shards=2),
    ):
        with pytest.raises(OutputError, match=r"no-such-bucket-anywhere.* cannot be written \(") as caught:
            attempt()
        assert "\n" not in str(caught.value)
    with pytest.raises(ModelFileError, match="no-such-bucket-anywhere"):
        Recommender.load("s3://no-such-bucket-anywhere/model.safetensors")
