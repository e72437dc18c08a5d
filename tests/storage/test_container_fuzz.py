"""Files from strangers: whatever the bytes, a model file opens whole or ModelFileError comes out."""

from __future__ import annotations

import copy
import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from considerate.errors import ModelFileError
from considerate.storage.container import DTYPES, open_tensors, write_tensors
from tests.helpers.randomised import count, examples
from tests.model.test_schema import read_ids

Outcome = Counter[str]


def fuzz(number: int, at_least: int = 50) -> settings:
    checks = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    return examples(number, at_least, database=None, suppress_health_check=checks)


def seal(header: Any, data: bytes) -> bytes:
    """A file with this header and its checksum made right, as far as it still has a place for one."""
    blank = b'"header_sha256":"' + b"0" * 64 + b'"'
    raw = json.dumps(header, separators=(",", ":")).encode()
    raw += b" " * (-(8 + len(raw)) % 64)
    digest = hashlib.sha256(raw).hexdigest().encode()
    return len(raw).to_bytes(8, "little") + raw.replace(blank, blank.replace(b"0" * 64, digest), 1) + data


def template() -> tuple[dict[str, Any], bytes]:
    """The parts of a small valid file: a matrix, a vocabulary, truth values and an empty tensor."""
    tensors = {
        "mean": np.arange(6, dtype=np.float32).reshape(2, 3),
        "item_ids.offsets": np.array([0, 1, 3]),
        "item_ids.text": np.frombuffer("aé".encode(), np.uint8),
        "flags": np.array([True, False]),
        "none": np.zeros((0, 2)),
    }
    arrays = dict(sorted(tensors.items(), key=lambda item: -item[1].itemsize))
    metadata = {
        "format": "considerate-model",
        "format_version": "1",
        "library_version": "0",
        "header_sha256": "0" * 64,
        "tensor_sha256": {name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in arrays.items()},
        "considerate": {"item_ids": {"kind": "string", "size": 2}, "k": [1, {"x": None}]},
    }
    header: dict[str, Any] = {"__metadata__": metadata}
    start = 0
    for name, array in arrays.items():
        dtype = next(key for key, value in DTYPES.items() if value == array.dtype)
        stop = start + array.nbytes
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [start, stop]}
        start = stop
    return header, b"".join(array.tobytes() for array in arrays.values())


def as_text(header: Any) -> Any:
    """The two values of `__metadata__` that are JSON texts within the JSON, written as such."""
    meta = header.get("__metadata__") if isinstance(header, dict) else None
    if isinstance(meta, dict):
        for key in ("tensor_sha256", "considerate"):
            if key in meta and not isinstance(meta[key], str):
                meta[key] = json.dumps(meta[key])
    return header


HEADER, DATA = template()
VALID = seal(as_text(copy.deepcopy(HEADER)), DATA)


def attempt(path: Path, content: bytes) -> str:
    """Open and use the file in every way; the kind of outcome, or whatever should not come out."""
    path.write_bytes(content)
    outcome = ""
    for verify in (False, True, None):
        try:
            stored = open_tensors(path, verify=verify)
            for name, array in stored.items():
                assert array.size == 0 or isinstance(array.reshape(-1)[-1].item(), int | float), name
                array.tobytes()
            outcome = "opened"
            json.dumps(stored.metadata, ensure_ascii=False).encode()
            vocabulary = read_ids(path)
            vocabulary.ids_of(range(min(len(vocabulary), 100)))
            outcome = "used"
        except ModelFileError as error:
            message = str(error)
            assert message.startswith(str(path))
            assert len(message) < len(str(path)) + 600
            message.encode()
            outcome = outcome or message.removeprefix(str(path))
    return outcome


def test_template_is_valid(tmp_path: Path) -> None:
    """The control: unchanged, the file opens; and the library writes the same layout."""
    assert attempt(tmp_path / "m", VALID) == "used"
    stored = open_tensors(tmp_path / "m")
    write_tensors(tmp_path / "again", stored, stored.metadata)
    again = open_tensors(tmp_path / "again")
    assert {name: array.tobytes() for name, array in again.items()} == {
        name: array.tobytes() for name, array in stored.items()
    }


@fuzz(500)
@given(content=st.binary(max_size=300), length=st.none() | st.integers(0, 2**64 - 1) | st.integers(0, 300))
def test_random_bytes(tmp_path: Path, content: bytes, length: int | None) -> None:
    content = content if length is None else length.to_bytes(8, "little") + content
    assert attempt(tmp_path / "m", content) not in ("opened", "used")


def test_mutated_files(tmp_path: Path) -> None:
    """Bytes changed, cut out, doubled and put in, at one to four places of a valid file."""
    rng = np.random.default_rng(2)
    outcomes = Outcome()
    for _ in range(count(2000)):
        content = bytearray(VALID)
        for _ in range(rng.integers(1, 5)):
            place = int(rng.integers(len(content)))
            span = int(rng.integers(1, 20))
            match rng.integers(5):
                case 0:
                    content[place] = int(rng.integers(256))
                case 1:
                    del content[place : place + span]
                case 2:
                    content[place:place] = content[place : place + span]
                case 3:
                    content[place:place] = rng.bytes(span)
                case _:
                    content[place] = int(rng.choice(list(b'{}[]",:0123456789-eE.\\ ')))
            if not content:
                break
        changed = bytes(content) != VALID
        path = tmp_path / "m"
        outcomes[attempt(path, bytes(content)).split(",")[0]] += 1
        if changed:
            with pytest.raises(ModelFileError):
                open_tensors(path, verify=True)
    assert len(outcomes) > 2, outcomes


SCALARS = (
    st.none()
    | st.booleans()
    | st.sampled_from([0, 1, -1, 2, 3, 8, 16, 24, 2**31, 2**53, 2**63 - 1, 2**63, 2**64, 10**99, 10**400])
    | st.floats()  # NaN and infinity too, which json writes as constants
    | st.sampled_from([*DTYPES, "F16", "BF16", "", "0" * 64, "string", "range", "integer", "\ud800", "\0"])
    | st.text(max_size=5)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, one in inner for place in places(one, (*path, key)))]


DEEP = [place for place in places(HEADER) if place]


@st.composite
def headers(draw: st.DrawFn) -> Any:
    """The valid header with one to three values replaced, removed, moved or doubled."""
    header = copy.deepcopy(HEADER)
    for _ in range(draw(st.integers(1, 3))):
        *way, last = draw(st.sampled_from(DEEP))
        owner: Any = header
        try:
            for key in way:
                owner = owner[key]
            match draw(st.integers(0, 5)):
                case 0:
                    del owner[last]
                case 1:
                    owner[draw(st.text(max_size=3))] = owner[last]
                case 2:
                    owner[last] = owner[last] + draw(st.integers(-9, 9))
                case _:
                    owner[last] = draw(VALUES)
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change took the place away
    return as_text(header)


@pytest.mark.slow
def test_structured_headers(tmp_path: Path) -> None:
    """Headers that are sealed with a right checksum, so that every later check is reached."""
    outcomes = Outcome()

    @fuzz(2500, at_least=1500)
    @given(header=headers(), data=st.just(DATA) | st.binary(max_size=60))
    def run(header: Any, data: bytes) -> None:
        outcomes[attempt(tmp_path / "m", seal(header, data))] += 1

    run()
    reached = " ".join(outcomes)
    for reason in (
        "used",
        "opened",
        "has shape",
        "has dtype",
        "has data_offsets",
        "not described by",
        "checksums are not those",
        "no readable checksum",
        "not a JSON object",
        "format version",
        "a key of the format is missing",
        "another program",
        "promises",
    ):
        assert reason in reached, f"no case came as far as {reason!r}: {outcomes.most_common(30)}"


@fuzz(300)
@given(text=st.text(alphabet='{}[]",:0123456789-+eE.\\untrfalsNIy \ud7ff\u00e9', max_size=60))
def test_json_texts(tmp_path: Path, text: str) -> None:
    header = as_text(copy.deepcopy(HEADER))
    header["__metadata__"]["considerate"] = text
    attempt(tmp_path / "m", seal(header, DATA))


ARRAYS = st.sampled_from(list(DTYPES.values())).flatmap(
    lambda dtype: npst.arrays(dtype, npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


@fuzz(200)
@given(tensors=st.dictionaries(NAMES, ARRAYS, max_size=5), metadata=st.dictionaries(NAMES, JSON, max_size=4))
def test_whatever_is_written_comes_back(tmp_path: Path, tensors: Any, metadata: Any) -> None:
    from safetensors.numpy import load_file

    write_tensors(tmp_path / "m", tensors, metadata)
    stored = open_tensors(tmp_path / "m")
    assert stored.metadata == metadata
    for again in (stored, load_file(tmp_path / "m")):
        assert set(again) == set(tensors)
        for name, array in tensors.items():
            assert again[name].dtype == array.dtype
            assert again[name].shape == array.shape
            assert again[name].tobytes() == array.tobytes()
