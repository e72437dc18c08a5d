"""The container of models: round trips, checksums, and refusals with their reasons."""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from considerate.errors import ModelFileError, OutputError, UsageError
from considerate.storage import container
from considerate.storage.container import BLOCKS, StoredTensors, open_tensors, write_scratch, write_tensors
from considerate.storage.files import check_writable

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
    monkeypatch.setattr(container, "VERIFY_WHOLE", 0)
    hashed: list[int] = []
    sha256 = hashlib.sha256

    def counting(data: Any) -> Any:
        hashed.append(len(data))
        return sha256(data)

    damage_last_byte(small)
    monkeypatch.setattr(container.hashlib, "sha256", counting)
    stored = open_tensors(small)
    assert len(hashed) == 1  # the header; no byte of data has been read
    assert "b" in stored
    for _ in range(2):  # once is enough
        np.testing.assert_array_equal(stored["a"], np.arange(3.0))
        assert hashed[1:] == [24]
    for _ in range(2):
        with pytest.raises(ModelFileError, match="tensor 'b' does not match"):
            stored["b"]
    assert "tensor 'b' does not match" in refusal(small, verify=True)


def test_rows_of_a_large_tensor_are_verified_by_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (("VERIFY_WHOLE", 0), ("BLOCKWISE", 64), ("BLOCK", 80)):
        monkeypatch.setattr(container, name, size)
    path, tensors = tmp_path / "m", {"large": np.arange(100.0).reshape(50, 2), "little": np.arange(4.0)}
    write_tensors(path, tensors, {})
    assert same_all(open_tensors(path, verify=True), tensors)
    content = path.read_bytes()
    offset = content.index(np.arange(100.0).tobytes())
    for row in range(50):
        damaged = bytearray(content)
        damaged[offset + 16 * row + 7] ^= 1
        path.write_bytes(damaged)
        stored = open_tensors(path)
        large = stored.expect("large", np.float64, [50, 2], lazy=True)
        stored.expect("little", np.float64, [4])
        stored.verify_rows("large", 0, row - row % 5)  # a block has five rows
        stored.verify_rows("large", row - row % 5 + 5, 50)
        stored.verify_rows("large", row, row)
        np.testing.assert_array_equal(np.delete(large, row, 0), np.delete(tensors["large"], row, 0))
        for first, last in ((row, row + 1), (0, None), (row - row % 5 + 4, 50)):
            with pytest.raises(ModelFileError, match="'large' does not match its checksum"):
                stored.verify_rows("large", first, last)
        with pytest.raises(ModelFileError, match="'large' does not match its checksum"):
            stored["large"]
        open_tensors(path, verify=False).verify_rows("large")
    header, data = unseal(content)
    header["__crc32__"]["shape"] = [9]
    header["little"]["data_offsets"][1] += 4
    path.write_bytes(seal(header, data))
    assert "damaged" in refusal(path)
    assert BLOCKS not in open_tensors_of(content, path)


def open_tensors_of(content: bytes, path: Path) -> StoredTensors:
    path.write_bytes(content)
    return open_tensors(path)


def test_scratch_files_have_no_checksums(tmp_path: Path) -> None:
    write_scratch(tmp_path / "m", every_kind())
    assert same_all(open_tensors(tmp_path / "m", verify=False), every_kind())
    with pytest.raises(ModelFileError, match="does not match its checksum"):
        open_tensors(tmp_path / "m")


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
    assert "a key of the format is missing" in refused({"__metadata__": {"considerate": 3}})
    assert "a key of the format is missing" in refused({"__metadata__": {"more": "x"}})
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
        (b'{"__metadata__":{"format":"considerate-model","format_version":"1"}}', "a key of the format is missing"),
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


def test_expect_names_what_is_missing_or_wrong(tmp_path: Path) -> None:
    write_tensors(tmp_path / "m", {"mean": np.zeros((4, 2), np.float32)}, {})
    stored = open_tensors(tmp_path / "m")
    assert stored.expect("mean", np.float32, [4, None]).shape == (4, 2)
    for name, dtype, shape, expected in (
        ("variance", np.float32, [4, 2], "has no tensor 'variance'; save the model again."),
        ("mean", np.float64, [4, None], r"is float32 \[4, 2\] where float64 \[4, any\] is expected"),
        ("mean", np.float32, [4, 3], r"where float32 \[4, 3\] is expected"),
        ("mean", np.float32, [8], r"where float32 \[8\]"),
    ):
        with pytest.raises(ModelFileError, match=expected):
            stored.expect(name, dtype, shape)
