"""Large model files: mapped, and checked as far as they are used."""

from __future__ import annotations

import json
import pickle
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from considerate import Recommender
from considerate.cli import app
from considerate.errors import ModelFileError
from considerate.model import tensors as tensors_module
from considerate.model.file import load_model, save_model
from considerate.storage import container as store
from considerate.storage.container import open_tensors, write_tensors
from tests.helpers.model_files import parts_of, save_everything
from tests.helpers.models import assert_same, random_model


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_everything(tmp_path_factory.mktemp("model") / "model.safetensors")


@pytest.fixture
def as_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file is as one of more than 64 MB: tensors above 200 bytes have checksums of blocks of 64 bytes."""
    for name, size in (("VERIFY_WHOLE", 0), ("BLOCKWISE", 200), ("BLOCK", 64)):
        monkeypatch.setattr(store, name, size)
    monkeypatch.setattr(tensors_module, "_AT_ONCE", {"user": 4, "walk": 4})


def offset_in(path: Path, name: str, byte: int) -> int:
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    return 8 + length + json.loads(content[8 : 8 + length])[name]["data_offsets"][0] + byte


def flip(path: Path, place: int, bit: int = 6) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1 << bit
    path.write_bytes(content)


@pytest.fixture(params=["blocks", "whole"])
def large(request: pytest.FixtureRequest, saved: Path, tmp_path: Path, as_large: None) -> Path:
    """A large file, with checksums of blocks and as the release before wrote it."""
    path = tmp_path / "large"
    if request.param == "whole":
        path.write_bytes(saved.read_bytes())
    else:
        Recommender.load(saved).save(path)
    return path


@pytest.mark.parametrize("name", ["user_ids.text", "item_ids.text", "titles.text", "item_features.names.text"])
@pytest.mark.parametrize("verify", [None, False])
@pytest.mark.parametrize("shards", [None, 2])
def test_a_text_that_is_not_utf8_is_never_decoded(
    saved: Path, tmp_path: Path, as_large: None, name: str, verify: bool | None, shards: int | None
) -> None:
    """Its checksums are right: whoever wrote it meant it."""
    path = tmp_path / "hostile"
    if name.startswith("item_features"):
        table = {"item": ["a", "b", "c"], "kind": ["one", "two", "one"]}
        likes = {"user": ["u", "v", "v"], "item": ["a", "b", "c"]}
        Recommender(factors=2, sweeps=1).fit(likes, item_features=table).save(path, shards=shards)
    else:
        Recommender.load(saved).save(path, shards=shards)
    for file in [path] if shards is None else sorted(path.iterdir()):
        stored = open_tensors(file, verify=False)
        tensors, about = {key: np.array(array) for key, array in stored.items()}, stored.metadata
        if name in tensors:
            tensors[name][len(tensors[name]) // 2] = 0xFF
        if shards is None or file.name == "index.safetensors":
            write_tensors(file, tensors, about)
            continue
        raw = stored.header_sha256.encode()  # the index names a shard by its checksum
        write_tensors(file, tensors, about)
        new = open_tensors(file, verify=False).header_sha256
        index = open_tensors(path / "index.safetensors", verify=False)
        listed = {key: np.array(array) for key, array in index.items()}
        row = [bytes(entry).hex() for entry in listed["shards.sha256"]].index(raw.decode())
        listed["shards.sha256"][row] = list(bytes.fromhex(new))
        write_tensors(path / "index.safetensors", listed, index.metadata)
        file.rename(file.with_name(file.name.replace(raw.decode()[:8], new[:8])))

    def read() -> None:
        loaded = Recommender.load(path, verify=verify)
        loaded.titles(loaded.item_ids())
        loaded.user_ids()
        assert loaded.model_.item_features is not None

    with pytest.raises(ModelFileError, match=r"is not UTF-8 text|its ids are out of their range"):
        read()


def test_a_large_file_gives_the_same_answers(saved: Path, large: Path) -> None:
    assert_same(Recommender.load(large), Recommender.load(saved))
    assert_same(pickle.loads(pickle.dumps(Recommender.load(large))), Recommender.load(saved))
    Recommender.load(large).save(large.with_name("again"))
    again = open_tensors(large.with_name("again"), verify=True)
    assert {name: array.tobytes() for name, array in again.items()} == {
        name: array.tobytes() for name, array in open_tensors(saved).items()
    }


@pytest.mark.parametrize("name", ["user.rows", "user.bias_mean", "user_degree", "likes.items", "user_ids.text"])
def test_a_flipped_bit_of_a_user_is_never_shown(saved: Path, large: Path, name: str) -> None:
    """Users who are in other blocks are served. (Where the file has no blocks nobody is.)"""
    sizes = {key: array.nbytes for key, array in open_tensors(saved).items()}
    flip(large, offset_in(large, name, sizes[name] // 2), bit=0)
    loaded = Recommender.load(large)
    everything: list[Callable[[], Any]] = [
        lambda: loaded.recommend(np.arange(60), N=3, by="row"),
        lambda: loaded.recommend(30, N=3, by="row"),
        lambda: loaded.recommend_table([f"u{n}" for n in range(60)], N=3),
        lambda: loaded.export_vectors(),
        lambda: loaded.model_.users.whole(),
        lambda: loaded.save(large.with_name("copy")),
        lambda: loaded.model_.user_ids.ids_of(range(60)) if name.startswith("user_ids") else loaded.user_factors,
    ]
    for use in everything:
        with pytest.raises(ModelFileError, match=f"tensor '{name}' does not match its checksum"):
            use()
    if b"__crc32__" in large.read_bytes() and sizes[name] > store.BLOCKWISE:
        for row in (0, 59):
            np.testing.assert_array_equal(
                loaded.recommend(row, by="row")[0], Recommender.load(saved).recommend(row, by="row")[0]
            )
    with pytest.raises(ModelFileError):
        Recommender.load(large, verify=True)


@pytest.mark.parametrize(
    "name",
    [
        "item.rows",
        "item.bias_mean",
        "popularity",
        "item_ids.text",
        "titles.text",
        "walk.starts",
        "walk.items",
        "walk.shares",
        "walk.rest",
    ],
)
def test_a_flipped_bit_of_an_item_is_never_shown(large: Path, name: str) -> None:
    flip(large, offset_in(large, name, 60), bit=0)
    loaded, damaged = Recommender.load(large), f"tensor '{name}' does not match its checksum"
    everything: list[Callable[[], Any]] = [
        lambda: loaded.recommend_table(N=40),
        lambda: loaded.save(large.with_name("copy")),
        lambda: pickle.dumps(loaded),
        lambda: Recommender.load(large, verify=True),
    ]
    for use in everything:
        with pytest.raises(ModelFileError, match=damaged):
            use()


def test_rows_of_the_walk_that_nobody_asks_for_are_not_read(saved: Path, tmp_path: Path, as_large: None) -> None:
    """One damaged row: who likes its item is refused, and served without lift; who likes none beside it is served."""
    Recommender.load(saved).save(tmp_path / "large")
    whole = Recommender.load(saved)
    walk, likes = whole.model_.consideration, whole.model_.users.whole().liked
    assert walk is not None
    row = int(np.argmax(np.diff(walk.starts)))
    flip(
        tmp_path / "large",
        offset_in(tmp_path / "large", "walk.items", 4 * int(walk.starts[row] + walk.starts[row + 1]) // 2),
    )
    loaded, fans = Recommender.load(tmp_path / "large"), [row in likes.row(user) for user in range(60)]
    assert 0 < sum(fans) < 60
    with pytest.raises(ModelFileError, match=r"tensor 'walk.items' does not match its checksum"):
        loaded.recommend(fans.index(True), by="row")
    assert loaded.recommend(fans.index(True), lift=0.0, by="row")[0].size
    apart = [user for user in range(60) if (np.abs(likes.row(user) // 4 - row // 4) > 1).all()]
    assert apart
    for user in apart:
        np.testing.assert_array_equal(loaded.recommend(user, by="row")[0], whole.recommend(user, by="row")[0])


def test_a_flipped_bit_of_the_blocks_checksums_is_seen(saved: Path, tmp_path: Path, as_large: None) -> None:
    Recommender.load(saved).save(tmp_path / "large")
    flip(tmp_path / "large", offset_in(tmp_path / "large", "__crc32__", 9))
    with pytest.raises(ModelFileError, match="'__crc32__' does not match its checksum"):
        load_model(tmp_path / "large")


def test_only_what_is_asked_for_is_verified(
    saved: Path, tmp_path: Path, as_large: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    Recommender.load(saved).save(tmp_path / "large")
    read: list[int] = []
    crc32 = zlib.crc32
    monkeypatch.setattr(store.zlib, "crc32", lambda data: read.append(len(data)) or crc32(data))
    loaded = Recommender.load(tmp_path / "large")
    size = (tmp_path / "large").stat().st_size
    assert not read
    loaded.recommend(30, by="row")
    assert 0 < sum(read) < size / 2
    first = len(read)
    loaded.recommend(10, by="row")
    once = len(read)
    assert 0 < sum(read[first:]) < size / 5
    loaded.recommend(30, by="row")
    assert len(read) == once
    load_model(tmp_path / "large", verify=False).users.whole()
    assert len(read) == once


def test_a_real_large_file(tmp_path: Path) -> None:
    """More than 64 MB, by the shell: a flipped bit in the last user's vector."""
    model, path = random_model(360_000, factors=20), tmp_path / "model.safetensors"
    save_model(model, path)
    assert path.stat().st_size > 64_000_000
    flip(path, offset_in(path, "user.rows", model.posterior.users.rows.nbytes - 130))
    likes = tmp_path / "likes.csv"
    likes.write_text("user,item\n1,2\n")
    run = CliRunner().invoke
    assert run(app, ["recommend", str(path), "0", "--json"]).exit_code == 0
    done = run(app, ["recommend", str(path), "359999", "--json"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert "the model file is damaged, tensor 'user.rows' does not match its checksum; copy" in done.stderr
    for command in ("recommend", "inspect", "evaluate"):
        others = {"recommend": ["0"], "evaluate": [str(likes)], "inspect": []}[command]
        done = run(app, [command, str(path), *others, "--verify"])
        assert done.exit_code == 2
        assert "'user.rows' does not match its checksum" in done.stderr


def test_what_keeps_a_large_file_safe_is_checked_before_it_is_used(saved: Path, tmp_path: Path, as_large: None) -> None:
    """Some of it waits for verify=True. With or without checksums."""

    def with_change(change: Callable[[dict[str, Any]], Any]) -> Path:
        tensors, metadata = parts_of(saved)
        change(tensors)
        write_tensors(tmp_path / "large", tensors, metadata)
        return tmp_path / "large"

    expensive: dict[str, Callable[[dict[str, Any]], Any]] = {
        "not finite": lambda tensors: tensors["user.rows"].__setitem__((5, 0), np.nan),
        "variance": lambda tensors: tensors["item.rows"].__setitem__((5, 8), 0.0),
        "the likes of a user": lambda tensors: tensors["likes.items"].__setitem__(slice(0, 2), 39),
        "the ids of 'item_ids'": lambda tensors: tensors["item_ids.text"].__setitem__(slice(None), ord("z")),
        "not UTF-8": lambda tensors: tensors["titles.text"].__setitem__(3, 255),
        "add up to 1": lambda tensors: tensors["walk.rest"].__setitem__(5, 0.0),
        "nobody liked": lambda tensors: tensors["popularity"].__setitem__(5, 0.0),
    }
    for message, change in expensive.items():
        path = with_change(change)
        load_model(path)
        with pytest.raises(ModelFileError, match=message):
            load_model(path, verify=True)
    cheap: dict[str, Callable[[dict[str, Any]], Any]] = {
        "popularities": lambda tensors: tensors["popularity"].__setitem__(5, 5e-324),
        "not as many": lambda tensors: tensors["user_degree"].__setitem__(5, 39),
        "not there": lambda tensors: tensors["likes.items"].__setitem__(5, 40),
        "not divided": lambda tensors: tensors["likes.starts"].__setitem__(5, 2**50),
        "do not divide": lambda tensors: tensors["titles.offsets"].__setitem__(5, 2**50),
        "bias_mean": lambda tensors: tensors["item.bias_mean"].__setitem__(5, np.nan),
        "distinct items": lambda tensors: tensors["walk.items"].__setitem__(slice(0, 2), 39),
        "walk names": lambda tensors: tensors["walk.items"].__setitem__(5, 40),
        "divided into items": lambda tensors: tensors["walk.starts"].__setitem__(5, 2**50),
        "has a share": lambda tensors: tensors["walk.shares"].__setitem__(5, np.nan),
        "has a rest": lambda tensors: tensors["walk.rest"].__setitem__(5, -1.0),
    }
    for message, change in cheap.items():
        for verify in (None, False):
            loaded = Recommender.load(with_change(change), verify=verify)
            with pytest.raises(ModelFileError, match=message):
                loaded.recommend_table(N=40)
            with pytest.raises(ModelFileError, match=message):
                loaded.save(tmp_path / "copy")
    for name in (
        "likes.starts",
        "walk.starts",
    ):  # both ends of some rows are outside, and as far apart as they should be

        def far(tensors: dict[str, Any], name: str = name) -> None:
            tensors[name][1:-1] += 2**40

        with pytest.raises(ModelFileError, match=r"are not inside it|are not divided|is not divided"):
            Recommender.load(with_change(far)).recommend_table(N=40)
