"""Checkpoints: what is written is found again, what is damaged is refused and the one before it used."""

from __future__ import annotations

import json
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.fs as fs
import pytest

from considerate.data.fingerprint import (
    combine_digests,
    describe_data,
    differences,
    digest_ids,
    digest_likes,
)
from considerate.data.graph import Adjacency, Graph
from considerate.data.vocabulary import Vocabulary
from considerate.errors import CheckpointError, OutputError, UsageError
from considerate.fitting import checkpoint as module
from considerate.fitting.checkpoint import HEAD, INDEX, Checkpoints, part_file, sweep_folder, tensor
from considerate.fitting.session import FitRequest
from considerate.inference.plan import FitPlan
from considerate.storage import filesystems

FINGERPRINT = {
    "data": {"users": 3, "items": 2, "edges": 4, "division": "users"},
    "settings": {"factors": 2, "rate": 0.1},
}
PARTS = 3


def rows(sweep: int, number: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng([sweep, number])
    return {"rows": random.random((2 + number, 4), np.float32)}


def write(checkpoints: Checkpoints, sweep: int) -> None:
    written = [checkpoints.write_part(sweep, number, rows(sweep, number)) for number in range(PARTS)]
    checkpoints.finish(sweep, {"bounds": np.arange(sweep) / 3}, {"knob": 0.1 + sweep}, written)


def check(checkpoints: Checkpoints, sweep: int, warned: int = 0) -> list[str]:
    """The newest sound checkpoint is this one, with its own content; what was said of the others."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        saved = checkpoints.latest()
    assert saved is not None
    assert saved.sweep == sweep
    assert np.array_equal(saved.head["bounds"], np.arange(sweep) / 3)
    assert saved.metadata["knob"] == 0.1 + sweep
    assert len(saved.parts) == PARTS
    for number in range(PARTS):
        for stored in (saved.part(number), checkpoints.read_part(sweep, number)):
            assert np.array_equal(stored["rows"], rows(sweep, number)["rows"])
    assert len(caught) == warned
    return [str(one.message) for one in caught]


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    """Two of them, of the sweeps 5 and 10."""
    made = Checkpoints(str(tmp_path / "kept"), FINGERPRINT)
    for sweep in (5, 10):
        write(made, sweep)
    return made


def place(checkpoints: Checkpoints, sweep: int = 10) -> Path:
    return Path(checkpoints.folder) / sweep_folder(sweep)


def flip(path: Path, byte: int, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[byte] ^= 1 << bit
    path.write_bytes(content)


# --- Writing and finding ---


def test_the_newest_is_found_and_two_are_kept(checkpoints: Checkpoints) -> None:
    check(checkpoints, 10)
    for sweep in (11, 15, 1_000_000):
        write(checkpoints, sweep)
        check(checkpoints, sweep)
    names = sorted(path.name for path in Path(checkpoints.folder).iterdir())
    assert names == ["sweep-000015", "sweep-1000000"]
    assert sorted(path.name for path in place(checkpoints, 15).iterdir()) == [
        HEAD,
        INDEX,
        *(part_file(number) for number in range(PARTS)),
    ]


def test_nothing_there_is_no_checkpoint(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path / "kept"), FINGERPRINT)
    assert checkpoints.latest() is None
    assert checkpoints.complete() == []
    with checkpoints.lock():
        assert checkpoints.latest() is None
    (tmp_path / "kept" / "sweep-nine").mkdir()
    (tmp_path / "kept" / "notes.txt").write_text("mine")
    write(checkpoints, 1)
    check(checkpoints, 1)
    checkpoints.remove()
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["lock", "notes.txt", "sweep-nine"]


def test_parts_may_be_written_and_read_by_others(checkpoints: Checkpoints) -> None:
    other = pickle.loads(pickle.dumps(checkpoints))
    assert other == checkpoints
    saved = checkpoints.latest()
    assert saved is not None
    part = pickle.loads(pickle.dumps(saved.parts[2]))
    assert np.array_equal(part.read()["rows"], rows(10, 2)["rows"])


def test_a_folder_that_not_all_see_is_refused(checkpoints: Checkpoints, tmp_path: Path) -> None:
    elsewhere = Checkpoints(str(tmp_path / "another machine"), FINGERPRINT)
    written = [elsewhere.write_part(15, 0, rows(15, 0))]
    with pytest.raises(OutputError, match="a folder that all machines share"):
        checkpoints.finish(15, {}, {}, written)
    with pytest.raises(UsageError, match="all parts in order"):
        checkpoints.finish(15, {}, {}, [checkpoints.write_part(15, 1, rows(15, 1))])
    assert "incomplete" in check(checkpoints, 10, warned=1)[0]


def test_any_filesystem_of_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = fs._MockFileSystem()
    monkeypatch.setattr(filesystems, "_filesystem", lambda address: (memory, "bucket/fits"))
    checkpoints = Checkpoints("memory://bucket/fits", FINGERPRINT)
    with checkpoints.lock():
        for sweep in (5, 10, 15):
            write(checkpoints, sweep)
    check(checkpoints, 15)
    assert checkpoints.complete() == [10, 15]
    with memory.open_output_stream("bucket/fits/sweep-000015/part-0001.safetensors") as stream:
        stream.write(b"half")
    assert check(checkpoints, 10, warned=1)[0].startswith("memory://bucket/fits/sweep-000015: ")


# --- Damage ---

DAMAGES: dict[str, Callable[[Path], Any]] = {
    "a part is missing": lambda folder: (folder / part_file(1)).unlink(),
    "a part is cut short": lambda folder: (folder / part_file(1)).write_bytes(
        (folder / part_file(1)).read_bytes()[:-1]
    ),
    "a part is longer": lambda folder: (folder / part_file(1)).write_bytes((folder / part_file(1)).read_bytes() + b"0"),
    "a part is empty": lambda folder: (folder / part_file(1)).write_bytes(b""),
    "a part is of another sweep": lambda folder: (folder.parent / sweep_folder(5) / part_file(1)).replace(
        folder / part_file(1)
    ),
    "a part is a folder": lambda folder: ((folder / part_file(1)).unlink(), (folder / part_file(1)).mkdir()),
    "the head is missing": lambda folder: (folder / HEAD).unlink(),
    "the head is cut short": lambda folder: (folder / HEAD).write_bytes((folder / HEAD).read_bytes()[:100]),
    "the index is missing": lambda folder: (folder / INDEX).unlink(),
    "the index is empty": lambda folder: (folder / INDEX).write_bytes(b""),
    "the index is cut short": lambda folder: (folder / INDEX).write_bytes((folder / INDEX).read_bytes()[:-9]),
    "the index is that of another sweep": lambda folder: (folder / INDEX).write_bytes(
        (folder.parent / sweep_folder(5) / INDEX).read_bytes()
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_one_is_refused_and_the_one_before_it_used(damage: str, checkpoints: Checkpoints) -> None:
    before = {path.name: path.read_bytes() for path in place(checkpoints, 5).iterdir()}
    DAMAGES[damage](place(checkpoints))
    for name, content in before.items():
        (place(checkpoints, 5) / name).write_bytes(content)
    said = check(checkpoints, 5, warned=1)[0]
    assert said.startswith(f"{place(checkpoints)}: this checkpoint is not used: ")
    assert said.count(".\n") == 0
    write(checkpoints, 8)  # the fit goes on from 5, and what was refused goes away
    check(checkpoints, 8)
    assert checkpoints.complete() == [5, 8]


@pytest.mark.parametrize("name", [HEAD, part_file(0), part_file(2)])
def test_a_flipped_bit_is_found_wherever_it_is(name: str, checkpoints: Checkpoints) -> None:
    path = place(checkpoints) / name
    random = np.random.default_rng(7)
    size = path.stat().st_size
    for byte in [0, 8, size - 1, *random.integers(0, size, 60).tolist()]:
        bit = int(random.integers(8))
        flip(path, byte, bit)
        assert f"{name} does not match its checksum" in check(checkpoints, 5, warned=1)[0]
        if name != HEAD:
            with pytest.raises(CheckpointError):
                checkpoints.read_part(10, int(name[5:9]))
        flip(path, byte, bit)
    check(checkpoints, 10)


def test_any_flipped_bit_of_an_index_is_found(checkpoints: Checkpoints) -> None:
    path = place(checkpoints) / INDEX
    whole = path.read_bytes()
    assert len(module._parse_index(whole, 10)[1]) == 1 + PARTS
    for byte in range(len(whole)):
        for bit in range(8):
            content = bytearray(whole)
            content[byte] ^= 1 << bit
            with pytest.raises(CheckpointError, match="damaged"):
                module._parse_index(bytes(content), 10)
    flip(path, 30, 2)
    assert "index.json is damaged" in check(checkpoints, 5, warned=1)[0]


def hostile(content: dict[str, Any]) -> bytes:
    """An index whose own checksum is right."""
    content = {key: value for key, value in content.items() if key != "sha256"}
    return json.dumps(content | {"sha256": module._digest(content)}).encode()


@pytest.mark.parametrize(
    "change",
    [
        {"files": [{"name": "../../../etc/passwd", "size": 1, "sha256": "0" * 64}]},
        {"files": []},
        {"files": None},
        {"files": [[]]},
        {"files": [{"name": HEAD}]},
        {"files": [{"name": HEAD, "size": -1, "sha256": "0" * 64, "more": 1}]},
        {"files": [{"name": HEAD, "size": "1", "sha256": "0" * 64}]},
        {"files": [{"name": HEAD, "size": 1, "sha256": 5}]},
        {"format": "another"},
        {"format_version": "1"},
        {"format_version": 0},
        {"format_version": 3},
        {"sweep": 11},
        {"sweep": None},
    ],
    ids=str,
)
def test_an_index_that_lies_is_refused(change: dict[str, Any], checkpoints: Checkpoints) -> None:
    path = place(checkpoints) / INDEX
    path.write_bytes(hostile(json.loads(path.read_text()) | change))
    said = check(checkpoints, 5, warned=1)[0]
    assert ("format 3" in said) == (change == {"format_version": 3})


@pytest.mark.parametrize(
    "content", [b"[" * 100_000, b"[]", b"null", b"\xff", b'{"a": 1, "a": 2}', b'{"a": NaN}', b" " * (17 << 20)]
)
def test_an_index_that_is_no_index_is_refused(content: bytes, checkpoints: Checkpoints) -> None:
    (place(checkpoints) / INDEX).write_bytes(content)
    check(checkpoints, 5, warned=1)


def test_where_none_is_whole_one_sentence_says_so(checkpoints: Checkpoints) -> None:
    flip(place(checkpoints, 5) / HEAD, 200, 3)
    (place(checkpoints, 10) / INDEX).unlink()
    with (
        pytest.warns(UserWarning, match="incomplete"),
        pytest.warns(UserWarning, match="checksum"),
        pytest.raises(CheckpointError, match="none of its checkpoints is whole"),
    ):
        checkpoints.latest()


def test_a_first_one_that_was_never_finished_is_as_none(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path), FINGERPRINT)
    checkpoints.write_part(5, 0, rows(5, 0))
    with pytest.warns(UserWarning, match="incomplete"):
        assert checkpoints.latest() is None
    assert checkpoints.complete() == []


def test_what_is_removed_is_never_seen_as_damaged(checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index goes first: killed in between, the rest is incomplete."""
    removed = []
    monkeypatch.setattr(filesystems.Folder, "remove", lambda self, name: removed.append(name))
    monkeypatch.setattr(filesystems.Folder, "remove_all", lambda self: removed.append("all"))
    checkpoints.discard(10)
    assert removed == [INDEX, "all"]


def test_a_tensor_must_be_as_it_is_expected(checkpoints: Checkpoints) -> None:
    saved = checkpoints.latest()
    assert saved is not None
    assert len(tensor(saved.head, "bounds", np.float64, [None])) == 10
    for name, dtype, shape in (("bounds", np.float64, [9]), ("bounds", np.float32, [10]), ("other", np.float64, [10])):
        with pytest.raises(CheckpointError, match="not a checkpoint that can be resumed"):
            tensor(saved.head, name, dtype, shape)


# --- Of which fit ---


def changed(part: str, **values: Any) -> dict[str, Any]:
    return FINGERPRINT | {part: FINGERPRINT[part] | values}


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (changed("data", users=4), r"with 3 users \(4 here\)\."),
        (changed("data", likes="b"), r"with other data: the likes differ\."),
        (changed("data", user_ids="b"), r"with other data: the users' ids differ\."),
        (changed("data", item_ids="b"), r"with other data: the items' ids differ\."),
        (changed("data", division="items"), r"with a division by users \(by items here\)\."),
        (changed("settings", factors=3), r"with factors 2 \(3 here\)\."),
        (changed("settings", factors=3, rate=0.2), r"with factors 2 \(3 here\); rate 0\.1 \(0\.2 here\)\."),
        (changed("settings", gamma=0.5), r"with gamma not given \(0\.5 here\)\."),
        (changed("data", users=4, likes="b"), r"with 3 users \(4 here\)\."),
    ],
)
def test_a_checkpoint_of_another_fit_is_refused_by_what_differs(
    other: dict[str, Any], named: str, checkpoints: Checkpoints
) -> None:
    with pytest.raises(CheckpointError, match=named) as caught:
        Checkpoints(checkpoints.folder, other).latest()
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)


def test_a_number_is_the_same_number_in_any_type() -> None:
    given = {"factors": np.int64(20), "rate": np.float32(0.5), "user_bias": np.bool_(True), "gamma": None, "seed": 2.0}
    given |= {"threads": 3, "sweeps": 9, "tolerance": 0.0, "precision_delay": None}
    described = FitRequest(None, FitPlan.of_paper(), parameters=given).settings()
    assert described == {
        "factors": 20,
        "rate": 0.5,
        "user_bias": True,
        "gamma": None,
        "seed": 2,
        "precision_delay": 5,
    }
    assert json.loads(json.dumps(described)) == described
    assert differences({"settings": described}, {"settings": dict(described)}) == []


def test_digests_by_parts_are_those_of_slices() -> None:
    starts = np.array([0, 2, 2, 3, 6], np.int64)
    likes = Adjacency(starts, np.array([1, 4, 0, 2, 3, 4], np.int32))
    part = Adjacency(starts[2:] - 2, likes.indices[2:])
    assert digest_likes(likes, 2, 4) == digest_likes(part)
    assert digest_likes(likes) == digest_likes(likes, 0, 4)
    others = [
        Adjacency(starts, np.array([1, 4, 0, 2, 3, 5], np.int32)),
        Adjacency(np.array([0, 2, 3, 3, 6], np.int64), likes.indices),
    ]
    assert len({digest_likes(one) for one in (likes, *others)}) == 3
    words = ["a", "b\u00e9", "c", "long one"]
    for ids in (Vocabulary.of_strings(words), Vocabulary.of_integers(np.array([-5, 2, 3, 9])), Vocabulary.range(4)):
        assert digest_ids(ids, 1, 3) == digest_ids(ids.take(np.array([1, 2])))
        assert digest_ids(ids) == digest_ids(ids, 0, 4) != digest_ids(ids, 1, 4)
    assert digest_ids(Vocabulary.of_strings(["ab", "c"])) != digest_ids(Vocabulary.of_strings(["a", "bc"]))
    assert digest_ids(Vocabulary.of_strings(["1", "2"])) != digest_ids(Vocabulary.of_integers(np.array([1, 2])))
    assert digest_ids(Vocabulary.range(2)) == digest_ids(Vocabulary.of_integers(np.array([0, 1])))


def test_data_are_described_by_either_division() -> None:
    graph = Graph.from_pairs(np.array([0, 0, 1, 1], np.int32), np.array([0, 1, 1, 2], np.int32), 2, 3)
    by_users = describe_data(graph, resident="users", likes=["a"], resident_ids=["b", "c"], other_ids="d")
    assert by_users["user_ids"] == combine_digests(["b", "c"]) != combine_digests(["c", "b"])
    assert by_users["item_ids"] == "d"
    by_items = describe_data(graph, resident="items", likes=["a"], resident_ids=["b", "c"], other_ids="d")
    assert (by_items["user_ids"], by_items["item_ids"]) == ("d", by_users["user_ids"])
