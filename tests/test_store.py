"""The model file: round trips, refusals with their reasons, and saving that is whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from considerate.data import Titles
from considerate.data.vocabulary import Vocabulary
from considerate.errors import ModelFileError, OutputError, UsageError
from considerate.model.vocabularies import pack_vocabulary, unpack_vocabulary
from considerate.storage import container as store
from considerate.storage import files
from considerate.storage.container import StoredTensors, open_tensors, unpack_texts, write_tensors
from considerate.storage.files import atomic_write, check_writable

METADATA = {
    "factors": 20,
    "rate": 0.1,
    "title": "naïve 日本 🎬",
    "groups": [1, None, {"a": True}],
    "seed": 2**64 - 1,
}


def every_kind() -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(0)
    return {
        "f32": rng.normal(size=(3, 5)).astype(np.float32),
        "f64": np.array([[0.1, np.nan], [np.inf, -0.0]]),
        "i32": np.arange(-3, 4, dtype=np.int32),
        "i64": np.array([-(2**63), 2**63 - 1]),
        "u8": np.arange(5, dtype=np.uint8),
        "bool": np.array([True, False, True]),
        "u32": np.array([2**32 - 1], np.uint32),
        "u64": np.array([2**64 - 1], np.uint64),
        "scalar": np.array(3.5),
        "empty": np.zeros((0, 4), np.float32),
        "empty, too": np.zeros((3, 0), np.uint8),
        "ключ": np.ones(1, np.float32),
    }


def same(one: NDArray[Any], other: NDArray[Any]) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


def same_all(one: Any, other: Any) -> bool:
    return set(one) == set(other) and all(same(one[name], other[name]) for name in other)


def seal(header: dict[str, Any], data: bytes, pad: bytes = b" ") -> bytes:
    """A file with this header, its checksum made right: what somebody who means harm would send."""
    blank = "0" * 64
    header["__metadata__"]["header_sha256"] = blank
    raw = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    raw += pad * (-(8 + len(raw)) % 64)
    field = '"header_sha256":"{}"'
    digest = hashlib.sha256(raw).hexdigest()
    raw = raw.replace(field.format(blank).encode(), field.format(digest).encode(), 1)
    return len(raw).to_bytes(8, "little") + raw + data


def unseal(content: bytes) -> tuple[dict[str, Any], bytes]:
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length]), content[8 + length :]


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.model"
    write_tensors(path, {"a": np.arange(3.0), "b": np.array([True, False])}, {"k": 1})
    return path


def refusal(path: Path, **options: Any) -> str:
    with pytest.raises(ModelFileError) as caught:
        open_tensors(path, **options)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert re.search(r"; [a-z ]+\.$", message), message  # it says what to do, and ends there
    assert "\n" not in message
    return message.removeprefix(f"{path}: ")


# --- Round trips --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verify", [None, True, False])
def test_everything_comes_back(tmp_path: Path, verify: bool | None) -> None:
    path = tmp_path / "m"
    write_tensors(path, every_kind(), METADATA)
    stored = open_tensors(path, verify=verify)
    assert same_all(stored, every_kind())
    assert stored.metadata == METADATA
    assert stored.path == str(path)
    assert re.match(r"\d+\.\d+", stored.library_version)
    assert "f32" in stored
    assert "absent" not in stored
    with pytest.raises(KeyError):
        stored["absent"]


def test_arrays_are_aligned_read_only_views_of_the_mapping(tmp_path: Path) -> None:
    write_tensors(tmp_path / "m", every_kind(), {})
    stored = open_tensors(tmp_path / "m")
    assert type(stored["f32"]) is np.ndarray
    assert np.shares_memory(stored["f32"], stored["f32"])
    for array in stored.values():
        assert array.flags.aligned
        assert array.flags.c_contiguous
        assert not array.flags.writeable
    with pytest.raises(ValueError):
        stored["f32"].flags.writeable = True


def test_official_package_reads_the_file(tmp_path: Path) -> None:
    from safetensors import safe_open
    from safetensors.numpy import load_file

    write_tensors(tmp_path / "m", every_kind(), METADATA)
    assert same_all(load_file(tmp_path / "m"), every_kind())
    with safe_open(tmp_path / "m", "np") as opened:
        plain = opened.metadata()
        assert set(opened.keys()) == set(every_kind())
    assert plain["format"] == "considerate-model"
    assert plain["format_version"] == "1"
    assert json.loads(plain["considerate"]) == METADATA
    assert json.loads(plain["tensor_sha256"])["u8"] == hashlib.sha256(bytes(range(5))).hexdigest()


def test_same_content_gives_same_bytes(tmp_path: Path) -> None:
    tensors = every_kind()
    write_tensors(tmp_path / "one", tensors, METADATA)
    write_tensors(tmp_path / "two", dict(reversed(tensors.items())), dict(reversed(METADATA.items())))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_no_tensors_at_all(tmp_path: Path) -> None:
    write_tensors(tmp_path / "m", {}, {})
    assert len(open_tensors(tmp_path / "m")) == 0
    write_tensors(tmp_path / "m", {"none": np.zeros(0)}, {})
    assert open_tensors(tmp_path / "m")["none"].shape == (0,)


def test_strided_and_big_endian_arrays(tmp_path: Path) -> None:
    grid = np.arange(12.0).reshape(3, 4)
    tensors = {"transposed": grid.T, "strided": grid[:, ::2], "big": grid.astype(">f8")}
    write_tensors(tmp_path / "m", tensors, {})
    stored = open_tensors(tmp_path / "m")
    for name, array in tensors.items():
        np.testing.assert_array_equal(stored[name], array)
        assert stored[name].dtype == np.float64


def test_saving_over_the_file_that_is_mapped(small: Path) -> None:
    old = open_tensors(small)
    before = old["a"]
    write_tensors(small, {"a": before + 1, "same": before}, {})
    np.testing.assert_array_equal(before, np.arange(3.0))
    np.testing.assert_array_equal(open_tensors(small)["a"], np.arange(3.0) + 1)
    np.testing.assert_array_equal(open_tensors(small)["same"], before)


@pytest.mark.parametrize(
    "metadata",
    [{"x": float("nan")}, {"x": object()}, {"x": 10**200}, {"x": "\ud800"}, {1: "a", "1": "b"}],
    ids=["nan", "object", "huge", "surrogate", "key twice"],
)
def test_metadata_that_could_not_be_read_back_is_not_written(tmp_path: Path, metadata: dict[Any, Any]) -> None:
    with pytest.raises(UsageError, match="cannot be stored as JSON"):
        write_tensors(tmp_path / "m", {}, metadata)
    assert list(tmp_path.iterdir()) == []


def test_metadata_nested_too_deep_is_not_written(tmp_path: Path) -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(UsageError, match="cannot be stored"):
        write_tensors(tmp_path / "m", {}, {"deep": deep})
    while deep:  # taken apart by hand: an older Python's own way would recurse
        deep = deep.pop()


def test_tensors_that_have_no_place(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="dtype complex128; convert it"):
        write_tensors(tmp_path / "m", {"c": np.zeros(1, complex)}, {})
    with pytest.raises(UsageError, match="dtype object"):
        write_tensors(tmp_path / "m", {"o": np.array([None])}, {})
    for name in ("", "__metadata__", "\udcff"):
        with pytest.raises(UsageError, match="cannot name a tensor"):
            write_tensors(tmp_path / "m", {name: np.zeros(1)}, {})
    with pytest.raises(UsageError, match="store long lists as tensors"):
        write_tensors(tmp_path / "m", {}, {"long": "x" * (8 << 20)})
    assert list(tmp_path.iterdir()) == []


# --- When checksums are looked at ---------------------------------------------------------------------------


def damage_last_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1  # in "b", the boolean tensor: the smallest elements come last
    path.write_bytes(content)


def test_small_files_are_verified_whole_at_opening(small: Path) -> None:
    damage_last_byte(small)
    assert "tensor 'b' does not match its checksum" in refusal(small)
    assert "does not match" in refusal(small, verify=True)
    assert same(open_tensors(small, verify=False)["b"], np.array([True, True]))


def test_large_files_are_verified_tensor_by_tensor(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "VERIFY_WHOLE", 0)
    hashed: list[int] = []
    sha256 = hashlib.sha256

    def counting(data: Any) -> Any:
        hashed.append(len(data))
        return sha256(data)

    damage_last_byte(small)
    monkeypatch.setattr(store.hashlib, "sha256", counting)
    stored = open_tensors(small)
    assert len(hashed) == 1  # the header; no byte of data has been read
    assert "b" in stored
    np.testing.assert_array_equal(stored["a"], np.arange(3.0))
    assert hashed[1:] == [24]
    stored["a"]
    assert hashed[1:] == [24]  # once is enough
    for _ in range(2):
        with pytest.raises(ModelFileError, match="tensor 'b' does not match"):
            stored["b"]
    with pytest.raises(ModelFileError, match="tensor 'b' does not match"):
        stored.verify()
    assert "tensor 'b' does not match" in refusal(small, verify=True)


def test_truth_values_are_zero_or_one_even_where_the_checksum_agrees(small: Path) -> None:
    header, data = unseal(small.read_bytes())
    data = data[:-1] + b"\x02"
    checksums = json.loads(header["__metadata__"]["tensor_sha256"])
    checksums["b"] = hashlib.sha256(data[-2:]).hexdigest()
    header["__metadata__"]["tensor_sha256"] = json.dumps(checksums)
    small.write_bytes(seal(header, data))
    assert "truth value that is not 0 or 1" in refusal(small)
    with pytest.raises(ModelFileError, match="truth value"):
        open_tensors(small, verify=False)["b"]


# --- Damage -------------------------------------------------------------------------------------------------


def test_every_flipped_bit_is_refused(small: Path) -> None:
    content = small.read_bytes()
    for place in range(len(content)):
        for bit in range(8):
            flipped = bytearray(content)
            flipped[place] ^= 1 << bit
            small.write_bytes(flipped)
            with pytest.raises(ModelFileError):
                open_tensors(small)


def test_every_truncation_is_refused(small: Path) -> None:
    content = small.read_bytes()
    for length in range(len(content)):
        small.write_bytes(content[:length])
        with pytest.raises(ModelFileError):
            open_tensors(small)
    small.write_bytes(content[:-1])
    assert "it was cut short:" in refusal(small)
    small.write_bytes(content[:100])
    assert "it was cut short" in refusal(small)
    small.write_bytes(content + b"x")
    assert "has bytes added at its end" in refusal(small)


# --- Files that are something else --------------------------------------------------------------------------


def test_other_files_are_refused_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "other"
    assert refusal(path).startswith("no such file;")
    path.touch()
    assert refusal(path).startswith("is empty;")
    png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(100)
    for content in (
        b"x",
        bytes(8),
        bytes(100),
        png,
        b"PK\x03\x04" + bytes(50),
        b"hello, world\n" * 9,
        b"\x02" + bytes(7) + b"[]",
    ):
        path.write_bytes(content)
        assert refusal(path).startswith("is not a considerate model;")
    path.unlink()
    path.mkdir()
    assert refusal(path).startswith("is a folder;")


def test_safetensors_of_another_program(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    for metadata in (None, {"format": "pt"}):
        save_file({"weight": np.zeros(3, np.float32)}, tmp_path / "m", metadata=metadata)
        assert refusal(tmp_path / "m").startswith("is a safetensors file of another program")


def test_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert refusal(tmp_path / "pipe").startswith("is a device or a pipe;")
    assert refusal(Path("/dev/null")).startswith("is a device or a pipe;")


def test_path_that_is_none() -> None:
    with pytest.raises(ModelFileError, match="is not a path"):
        open_tensors("a\0b")
    with pytest.raises(OutputError, match="null character"):
        check_writable("a\0b")


def test_newer_format(small: Path) -> None:
    header, data = unseal(small.read_bytes())
    header["__metadata__"].update(format_version="2", library_version="9.1", something="new")
    small.write_bytes(seal(header, data))
    expected = "has model format 2, of considerate '9.1', and this library reads up to format 1; update considerate."
    assert refusal(small) == expected


def test_sealing_by_hand_gives_a_readable_file(small: Path) -> None:
    """The control for the tests that follow: what they change is the only thing wrong."""
    content = small.read_bytes()
    assert seal(*unseal(content)) == content


HOSTILE: dict[str, tuple[Any, str]] = {
    "dtype unknown": ({"dtype": "F16"}, "dtype 'F16', not one of"),
    "dtype no text": ({"dtype": ["F64"]}, "dtype"),
    "shape negative": ({"shape": [-3]}, "shape"),
    "shape twice negative": ({"shape": [-3, -1]}, "shape"),
    "shape real": ({"shape": [3.0]}, "shape"),
    "shape true": ({"shape": [True, 3]}, "shape"),
    "shape text": ({"shape": "3"}, "shape"),
    "shape nothing": ({"shape": None}, "shape"),
    "shape huge": ({"shape": [2**64]}, "shape"),
    "shape product huge": ({"shape": [2**40, 2**40]}, "shape"),
    "shape empty and huge": ({"shape": [0, 2**62, 2**62], "data_offsets": [0, 0]}, "shape"),
    "shape of many dimensions": ({"shape": [1] * 40 + [3]}, "shape"),
    "shape wrong": ({"shape": [4]}, r"shape \[4\] of F64 in 24 bytes"),
    "offsets reversed": ({"data_offsets": [24, 0]}, "in -24 bytes"),
    "offsets negative": ({"data_offsets": [-24, 0]}, "data_offsets"),
    "offsets three": ({"data_offsets": [0, 24, 26]}, "data_offsets"),
    "offsets far": ({"data_offsets": [2**40, 2**40 + 24]}, "overlaps another or leaves a hole"),
    "offsets overlap": ({"data_offsets": [8, 32]}, "overlaps another or leaves a hole"),
    "offsets crooked": ({"data_offsets": [1, 25]}, "not a multiple of its element's size"),
    "one field more": ({"strides": [8]}, "not described by"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_tensor_entries_that_lie(small: Path, case: str) -> None:
    change, expected = HOSTILE[case]
    header, data = unseal(small.read_bytes())
    header["a"].update(change)
    small.write_bytes(seal(header, data))
    assert re.search(expected, refusal(small))


def test_headers_that_lie(small: Path) -> None:
    header, data = unseal(small.read_bytes())

    def refused(change: dict[str, Any], pad: bytes = b" ") -> str:
        changed = {
            **header,
            **change,
            "__metadata__": {**header["__metadata__"], **change.get("__metadata__", {})},
        }
        small.write_bytes(seal(changed, data, pad))
        return refusal(small)

    assert "not described by" in refused({"a": None})
    assert "checksums are not those of its tensors" in refused({"c": header["a"]})
    assert "checksums are not those" in refused({"__metadata__": {"tensor_sha256": "[]"}})
    assert "no readable checksum" in refused({"__metadata__": {"tensor_sha256": '{"a":1,"b":"x"}'}})
    assert "lacks a key" in refused({"__metadata__": {"considerate": 3}})
    assert "lacks a key" in refused({"__metadata__": {"more": "x"}})
    assert "format version is '0'" in refused({"__metadata__": {"format_version": "0"}})
    assert "format version is 1" in refused({"__metadata__": {"format_version": 1}})
    assert "format version is" in refused({"__metadata__": {"format_version": "9" * 5000}})
    assert "format version is" in refused({"__metadata__": {"format_version": "²"}})
    assert "begin at a multiple of 64" in refused({}, pad=b"")
    for text, expected in {
        "[]": "not a JSON object",
        "{": "damaged",
        '{"x":NaN}': "NaN is not a JSON number",
        '{"x":-Infinity}': "-Infinity is not",
        '{"x":1e999}': "too large",
        '{"x":' + "9" * 5000 + "}": "an integer of 5000 digits",
        '{"x":1,"x":2}': "a key appears twice",
        '{"x":"\\ud800"}': "not Unicode",
        "[" * 200_000: "nested too deep",
        '{"a":' * 200_000: "nested too deep",
    }.items():
        assert expected in refused({"__metadata__": {"considerate": text}}), text[:20]


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (b'{"__metadata__":{},"a":1,"a":2}', "is not a considerate model"),
        (b"[" * 1_000_000, "is not a considerate model"),
        (b'{"a":' * 1_000_000, "is not a considerate model"),
        (b'{"a":' + b"1" * 1_000_000 + b"}", "is not a considerate model"),
        (b'{"a":"\xff"}', "is not a considerate model"),
        (b'{"a":NaN}', "is not a considerate model"),
        (b'{"__metadata__":{"format":"considerate-model","format_version":"1"', "not readable JSON"),
        (b'{"__metadata__":{"format":"considerate-model","format_version":"\xff"', "not readable JSON"),
        (b'{"__metadata__":{"format":"considerate-model","format_version":"1"}}', "lacks a key"),
        (b'{"__metadata__":3}', "another program"),
        (b'{"__metadata__":{"format":["considerate-model"]}}', "another program"),
    ],
)
def test_headers_that_are_no_headers(tmp_path: Path, header: bytes, expected: str) -> None:
    path = tmp_path / "m"
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    assert expected in refusal(path)


def test_header_longer_than_the_limit_is_not_read(tmp_path: Path, small: Path) -> None:
    header, data = unseal(small.read_bytes())
    header["__metadata__"]["considerate"] = "{" + " " * (8 << 20) + "}"
    small.write_bytes(seal(header, data))
    assert "is longer than the limit of 8388608" in refusal(small)
    path = tmp_path / "m"
    with path.open("wb") as file:
        file.write((2**30).to_bytes(8, "little") + b"{")
        file.truncate(2**30 + 8)  # sparse
    assert "is not a considerate model" in refusal(path)


def test_key_twice_in_a_sealed_header(small: Path) -> None:
    header, data = unseal(small.read_bytes())
    header["z"] = header["a"]
    content = seal(header, data).replace(b'"z":', b'"a":')
    small.write_bytes(content)
    assert "a key appears twice" in refusal(small)


def test_messages_show_strange_names_short_and_printable(small: Path) -> None:
    header, data = unseal(small.read_bytes())
    header["\x1b[31m" * 50] = header.pop("a")
    checksums = json.loads(header["__metadata__"]["tensor_sha256"])
    checksums["\x1b[31m" * 50] = checksums.pop("a")
    header["__metadata__"]["tensor_sha256"] = json.dumps(checksums)
    header["b"]["dtype"] = "x" * 10_000
    header["\x1b[31m" * 50]["dtype"] = "\x1b"
    small.write_bytes(seal(header, data))
    message = refusal(small)
    assert "\x1b" not in message
    assert len(message) < 400


# --- Vocabularies, titles and what a model expects ----------------------------------------------------------


@pytest.mark.parametrize(
    "vocabulary",
    [
        Vocabulary.range(7),
        Vocabulary.range(0),
        Vocabulary.of_integers(np.array([-5, 3, 2**62])),
        Vocabulary.of_integers(np.zeros(0, np.int64)),
        Vocabulary.of_strings(["b", "", "é", "日本", "🎬"]),
        Vocabulary.of_strings([]),
    ],
    ids=["range", "range 0", "integer", "integer 0", "string", "string 0"],
)
def test_vocabularies_come_back(tmp_path: Path, vocabulary: Vocabulary) -> None:
    tensors, description = pack_vocabulary("users", vocabulary)
    write_tensors(tmp_path / "m", tensors, {"users": description})
    stored = open_tensors(tmp_path / "m")
    again = unpack_vocabulary(stored, "users", stored.metadata["users"])
    assert (again.kind, len(again)) == (vocabulary.kind, len(vocabulary))
    ids = vocabulary.ids_of(range(len(vocabulary)))
    assert again.ids_of(range(len(again))) == ids
    assert again.rows_of(ids).tolist() == list(range(len(ids)))


def test_texts_come_back_in_their_order(tmp_path: Path) -> None:
    titles = ["Zardoz", "", "Amélie", "千と千尋の神隠し", "", "🎬", ""]
    tensors = {f"titles.{part}": array for part, array in Titles.of_strings(titles).tensors().items()}
    write_tensors(tmp_path / "m", tensors, {})
    again = Titles(*unpack_texts(open_tensors(tmp_path / "m"), "titles", 7))
    assert [again.of(row) or "" for row in range(7)] == titles


def opened(path: Path, **tensors: Any) -> StoredTensors:
    write_tensors(path, {name.replace("_", "."): np.asarray(array) for name, array in tensors.items()}, {})
    return open_tensors(path)


def test_expect_names_what_is_missing_or_wrong(tmp_path: Path) -> None:
    stored = opened(tmp_path / "m", mean=np.zeros((4, 2), np.float32))
    assert stored.expect("mean", np.float32, [4, None]).shape == (4, 2)
    for name, dtype, shape, expected in (
        ("variance", np.float32, [4, 2], "has no tensor 'variance'; save the model again."),
        ("mean", np.float64, [4, None], r"is float32 \[4, 2\] where float64 \[4, any\] is expected"),
        ("mean", np.float32, [4, 3], r"where float32 \[4, 3\] is expected"),
        ("mean", np.float32, [8], r"where float32 \[8\]"),
    ):
        with pytest.raises(ModelFileError, match=expected):
            stored.expect(name, dtype, shape)


@pytest.mark.parametrize(
    ("description", "tensors", "expected"),
    [
        (None, {}, "kind and size"),
        ({"kind": "range"}, {}, "kind and size"),
        ({"kind": ["range"], "size": 2}, {}, "the vocabulary 'v' is"),
        ({"kind": "range", "size": -1}, {}, "the vocabulary 'v' is"),
        ({"kind": "range", "size": True}, {}, "the vocabulary 'v' is"),
        ({"kind": "range", "size": 2**80}, {}, "the vocabulary 'v' is"),
        ({"kind": "integer", "size": 2}, {}, "no tensor 'v.integers'"),
        ({"kind": "integer", "size": 2}, {"v_integers": [1, 2, 3]}, r"where int64 \[2\]"),
        ({"kind": "integer", "size": 2}, {"v_integers": [2, 1]}, "ascending"),
        ({"kind": "integer", "size": 2}, {"v_integers": [1, 1]}, "ascending"),
        ({"kind": "string", "size": 2}, {"v_offsets": [0, 1, 2], "v_text": np.zeros(3, np.uint8)}, "divide"),
        ({"kind": "string", "size": 2}, {"v_offsets": [0, 4, 3], "v_text": np.zeros(3, np.uint8)}, "divide"),
        ({"kind": "string", "size": 2}, {"v_offsets": [1, 2, 3], "v_text": np.zeros(3, np.uint8)}, "divide"),
        ({"kind": "string", "size": 1}, {"v_offsets": [0, 1], "v_text": np.array([255], np.uint8)}, "UTF-8"),
        (
            {"kind": "string", "size": 2},
            {"v_offsets": [0, 1, 2], "v_text": np.frombuffer("é".encode(), np.uint8)},
            "cut a character in two",
        ),
        ({"kind": "string", "size": 2}, {"v_offsets": [0, 1, 2], "v_text": np.frombuffer(b"ba", np.uint8)}, "distinct"),
        ({"kind": "string", "size": 2}, {"v_offsets": [0, 1, 2], "v_text": np.frombuffer(b"aa", np.uint8)}, "distinct"),
        ({"kind": "string", "size": 2}, {"v_offsets": [0, 0, 0], "v_text": np.zeros(0, np.uint8)}, "distinct"),
    ],
)
def test_vocabularies_that_lie(tmp_path: Path, description: Any, tensors: dict[str, Any], expected: str) -> None:
    with pytest.raises(ModelFileError, match=expected):
        unpack_vocabulary(opened(tmp_path / "m", **tensors), "v", description)


def test_ascending_texts_as_python_compares_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short and long, with zeros inside and at the end, equal up to and beyond the 64 bytes that are vectorised."""
    monkeypatch.setattr(store, "_ROWS", 3)  # several chunks, and a pair across two of them
    random = np.random.default_rng(0)
    heads = [b"", b"user ", b"\0" * 9, b"x" * 63, b"x" * 64, b"x" * 70]
    seen = {True: 0, False: 0}
    for _ in range(3000):
        texts = [
            heads[random.integers(len(heads))] + bytes(random.integers(0, 3, random.integers(0, 4)).astype(np.uint8))
            for _ in range(random.integers(0, 9))
        ]
        if random.random() < 0.7:
            texts = sorted(set(texts) if random.random() < 0.7 else texts)
        offsets = np.cumsum([0, *map(len, texts)]).astype(np.int64)
        expected = all(a < b for a, b in pairwise(texts))
        assert store.ascending_texts(offsets, np.frombuffer(b"".join(texts), np.uint8)) is expected, texts
        seen[expected] += 1
    assert min(seen.values()) > 500


def test_expect_leaves_the_large_tensors_of_a_large_file_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m"
    write_tensors(path, {"large": np.arange(100.0), "little": np.arange(4.0)}, {})
    content = bytearray(path.read_bytes())
    content[-40] ^= 1  # the last of "large"; "little" has 32 bytes
    path.write_bytes(content)
    monkeypatch.setattr(store, "VERIFY_WHOLE", 0)
    monkeypatch.setattr(store, "HASH_AT_ONCE", 32)
    stored = open_tensors(path)
    assert not stored.thorough
    assert len(stored.expect("large", np.float64, [100])) == 100
    assert not stored._verified
    stored.expect("little", np.float64, [4])
    assert stored._verified == {"little"}
    with pytest.raises(ModelFileError, match=r"float64 \[100\] where"):
        stored.expect("large", np.float64, [99])
    with pytest.raises(ModelFileError, match="'large' does not match its checksum"):
        stored["large"]
    with pytest.raises(ModelFileError, match="'large' does not match its checksum"):
        open_tensors(path, verify=True)
    monkeypatch.setattr(store, "VERIFY_WHOLE", 10**6)
    assert open_tensors(path, verify=False).thorough
    with pytest.raises(ModelFileError, match="'large' does not match its checksum"):
        open_tensors(path)


# --- Saving: the old file or the new one --------------------------------------------------------------------


@pytest.fixture
def old(tmp_path: Path) -> Iterator[Path]:
    """A file that must survive, alone in its folder."""
    path = tmp_path / "kept" / "model"
    path.parent.mkdir()
    path.write_bytes(b"old")
    yield path
    assert path.read_bytes() == b"old"
    assert [one.name for one in path.parent.iterdir()] == ["model"]


def in_child(code: str, *arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)


SAVE = """
import sys, numpy as np
from considerate.errors import OutputError
from considerate.storage.container import write_tensors
try:
    write_tensors(sys.argv[1], {"a": np.ones(int(sys.argv[2]))}, {})
except OutputError as error:
    print(error)
    sys.exit(7)
"""


@pytest.mark.parametrize("code", ["ENOSPC", "EDQUOT", "EIO"])
@pytest.mark.parametrize("moment", ["write", "fsync", "replace"])
def test_disk_failures(old: Path, monkeypatch: pytest.MonkeyPatch, code: str, moment: str) -> None:
    import errno

    def fail(*_: object) -> None:
        raise OSError(getattr(errno, code), os.strerror(getattr(errno, code)))

    if moment != "write":
        monkeypatch.setattr(files.os, moment, fail)

    def save() -> None:
        with atomic_write(old) as file:
            file.write(b"new")
            if moment == "write":
                fail()

    with pytest.raises(OutputError) as caught:
        save()
    expected = {"ENOSPC": "the disk is full;", "EDQUOT": "quota", "EIO": "(Input/output error)"}[code]
    assert str(caught.value).startswith(f"{old}: ")
    assert expected in str(caught.value)


def test_file_size_limit_for_real(old: Path) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))\n"
    done = in_child(limit + SAVE, old, 100_000)
    assert done.returncode == 7, done.stderr
    assert done.stdout == f"{old}: the file is larger than the system or `ulimit -f` allows; raise that limit.\n"


def test_full_disk_for_real(tmp_path: Path) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", folder], capture_output=True)
    except OSError:
        pytest.skip("no mount here")
    if mounted.returncode:
        pytest.skip("may not mount here")
    try:
        path = folder / "model"
        write_tensors(path, {"a": np.zeros(10)}, {})
        before = path.read_bytes()
        with pytest.raises(OutputError, match="the disk is full; free some space or save elsewhere"):
            write_tensors(path, {"a": np.ones(100_000)}, {})
        assert path.read_bytes() == before
        assert list(folder.iterdir()) == [path]
        write_tensors(path, {"a": np.ones(10)}, {})  # the space came back
    finally:
        subprocess.run(["umount", folder], check=True)


def test_exception_of_the_block_comes_out_as_it_is(old: Path) -> None:
    def save(error: BaseException) -> None:
        with atomic_write(old) as file:
            file.write(b"new" * 10_000)
            raise error

    for error in (ZeroDivisionError(), KeyboardInterrupt(), FileNotFoundError(2, "no", "another file")):
        with pytest.raises(type(error)) as caught:
            save(error)
        assert caught.value is error


def test_interrupt_in_the_middle_of_a_save(old: Path) -> None:
    code = """
import os, signal, sys, numpy as np
from considerate.storage import container as store
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs are started deaf to it
store._CHUNK = 1 << 16
original = store._bytes_of
class Data:
    def __init__(self, data): self.data = data
    def __len__(self): return len(self.data)
    def __getitem__(self, part):
        if part.start == 1 << 20: os.kill(os.getpid(), signal.SIGINT)
        return self.data[part]
header = store._header
def then_interrupt(*a):
    made = header(*a)
    store._bytes_of = lambda array: Data(original(array))
    return made
store._header = then_interrupt
store.write_tensors(sys.argv[1], {"a": np.ones(1 << 20)}, {})
"""
    done = in_child(code, old)
    assert done.returncode in (-signal.SIGINT, 130), done.stderr
    assert "KeyboardInterrupt" in done.stderr


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"kept")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    os.mkfifo(tmp_path / "pipe")
    for path, expected in (
        (tmp_path / "absent" / "model", "its folder does not exist; make the folder first."),
        (tmp_path / "file" / "model", "a file where a folder is needed"),
        (tmp_path, "is a folder; add a file name."),
        (f"{tmp_path}/model/", "is a folder; add a file name."),
        (tmp_path / "loop", "leads back to itself"),
        (tmp_path / "pipe", "is a device or a pipe"),
        (tmp_path / ("x" * 300), "too long"),
    ):
        with pytest.raises(OutputError, match=re.escape(expected)) as caught:
            write_tensors(path, {}, {})
        assert str(caught.value).startswith(f"{path}: ")
        if "too long" not in expected:
            with pytest.raises(OutputError, match=re.escape(expected)):
                check_writable(path)
    assert (tmp_path / "file").read_bytes() == b"kept"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["file", "loop", "pipe"]
    assert (tmp_path / "pipe").is_fifo()


NOBODY = """
import os, sys
from considerate.errors import ConsiderateError
from considerate.storage.files import atomic_write, check_writable
from considerate.storage.container import open_tensors
import considerate.data.vocabulary, json
if os.getuid() == 0:
    os.setgid(65534); os.setuid(65534)
def save(path):
    with atomic_write(path) as file: file.write(b"new")
for act in (check_writable, save, open_tensors):
    try: act(sys.argv[1])
    except ConsiderateError as error: print(error)
    else: print("done")
"""


def test_permissions_as_an_ordinary_user() -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name:  # pytest's own folders are closed to other users
        folder = Path(name)
        folder.chmod(0o755)
        path = folder / "closed" / "model"
        path.parent.mkdir()
        path.write_bytes(b"old")
        path.chmod(0o600 if os.getuid() == 0 else 0o000)
        path.parent.chmod(0o777)
        assert in_child(NOBODY, path).stdout.splitlines() == [
            f"{path}: the file there is read-only; make it writable or choose another name.",
            f"{path}: the file there is read-only; make it writable or choose another name.",
            f"{path}: no permission to read it; change its permissions.",
        ]
        new = path.with_name("new")
        path.parent.chmod(0o555)
        refused = f"{new}: no permission to write there; choose another folder or change its permissions."
        assert in_child(NOBODY, new).stdout.splitlines() == [
            refused,
            refused,
            f"{new}: no such file; check the path.",
        ]
        assert os.listdir(path.parent) == ["model"]
        path.chmod(0o600)
        assert path.read_bytes() == b"old"
        path.parent.chmod(0o777)
        assert in_child(NOBODY, new).stdout.splitlines()[:2] == ["done", "done"]
        path.parent.chmod(0o755)


def test_check_writable_leaves_no_trace(tmp_path: Path) -> None:
    check_writable(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "model").write_bytes(b"old")
    check_writable(tmp_path / "model")
    assert (tmp_path / "model").read_bytes() == b"old"


def test_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    check_writable("model")
    write_tensors("model", {"a": np.zeros(2)}, {})
    assert open_tensors("model").path == "model"


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_new_file_has_the_permissions_of_open(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        write_tensors(tmp_path / "ours", {}, {})
        (tmp_path / "plain").write_bytes(b"")
    finally:
        os.umask(before)
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_replaced_file_keeps_its_permissions(small: Path) -> None:
    small.chmod(0o640)
    write_tensors(small, {}, {})
    assert stat.S_IMODE(small.stat().st_mode) == 0o640


def test_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link, target = tmp_path / "link", tmp_path / "there" / "model"
    link.symlink_to(Path("there") / "model")
    for content in (b"into nothing", b"over the first"):
        with atomic_write(link) as file:
            file.write(content)
        assert link.is_symlink()
        assert target.read_bytes() == content
    assert os.listdir(tmp_path / "there") == ["model"]


def test_reader_sees_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "model"
    versions = [{"a": np.full(20_000, float(n)), "b": np.full(n + 1, n, np.int32)} for n in range(3)]
    write_tensors(path, versions[0], {"n": 0})
    stop = threading.Event()
    seen: set[int] = set()
    wrong: list[object] = []

    def read() -> None:
        while not stop.is_set():
            try:
                stored = open_tensors(path)
                n = stored.metadata["n"]
                seen.add(n)
                if not same_all(stored, versions[n]):
                    wrong.append(n)
            except Exception as error:
                wrong.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    rounds = 0
    while rounds < 100 or (len(seen) < 3 and rounds < 3000):
        rounds += 1
        write_tensors(path, versions[rounds % 3], {"n": rounds % 3})
    stop.set()
    for reader in readers:
        reader.join()
    assert wrong == []
    assert seen == {0, 1, 2}
    assert os.listdir(tmp_path) == ["model"]


def test_writers_at_once_leave_one_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "model"

    def save(n: int) -> None:
        for _ in range(20):
            write_tensors(path, {"a": np.full(1000, float(n))}, {"n": n})

    writers = [threading.Thread(target=save, args=(n,)) for n in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    stored = open_tensors(path)
    np.testing.assert_array_equal(stored["a"], np.full(1000, float(stored.metadata["n"])))
    assert os.listdir(tmp_path) == ["model"]
