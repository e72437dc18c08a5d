"""The schema of a model's files: ids and texts come back, and what breaks a rule is refused."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from considerate.data import Titles
from considerate.data.vocabulary import Vocabulary
from considerate.errors import ModelFileError
from considerate.model import schema
from considerate.model.schema import SHARED, SHARED_FIELDS, Form, ascending_texts, parse, vocabulary_tensors
from considerate.storage.container import open_tensors, write_tensors


def read_ids(path: Path, name: str = "item_ids") -> Vocabulary:
    """The items' ids of a file that has nothing else of a model."""
    stored = open_tensors(path)
    about = parse(stored, {name: SHARED_FIELDS[name]})[name]
    form = Form({"items": about["size"], "items+1": about["size"] + 1}, {f"{name}={about['kind']}"})
    return schema.vocabulary(name, about, form.read(stored, SHARED))


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
    about = {"kind": vocabulary.kind, "size": len(vocabulary)}
    write_tensors(tmp_path / "m", vocabulary_tensors("item_ids", vocabulary), {"item_ids": about})
    again = read_ids(tmp_path / "m")
    assert (again.kind, len(again)) == (vocabulary.kind, len(vocabulary))
    ids = vocabulary.ids_of(range(len(vocabulary)))
    assert again.ids_of(range(len(again))) == ids
    assert again.rows_of(ids).tolist() == list(range(len(ids)))


def test_texts_come_back_in_their_order(tmp_path: Path) -> None:
    titles = ["Zardoz", "", "Amélie", "千と千尋の神隠し", "", "🎬", ""]
    tensors = {f"titles.{part}": array for part, array in Titles.of_strings(titles).tensors().items()}
    write_tensors(tmp_path / "m", tensors, {})
    form = Form({"items": 7, "items+1": 8}, {"titles"})
    again = Titles(*form.read(open_tensors(tmp_path / "m"), SHARED).values())
    assert [again.of(row) or "" for row in range(7)] == titles


@pytest.mark.parametrize(
    ("description", "tensors", "expected"),
    [
        (None, {}, "kind and size"),
        ({"kind": "range"}, {}, "kind and size"),
        ({"kind": ["range"], "size": 2}, {}, "the vocabulary 'item_ids' is"),
        ({"kind": "range", "size": -1}, {}, "the vocabulary 'item_ids' is"),
        ({"kind": "range", "size": True}, {}, "the vocabulary 'item_ids' is"),
        ({"kind": "range", "size": 2**80}, {}, "the vocabulary 'item_ids' is"),
        ({"kind": "integer", "size": 2}, {}, "no tensor 'item_ids.integers'"),
        ({"kind": "integer", "size": 2}, {"integers": [1, 2, 3]}, r"where int64 \[2\]"),
        ({"kind": "integer", "size": 2}, {"integers": [2, 1]}, "ascending"),
        ({"kind": "integer", "size": 2}, {"integers": [1, 1]}, "ascending"),
        ({"kind": "string", "size": 2}, {"offsets": [0, 1, 2], "text": np.zeros(3, np.uint8)}, "divide"),
        ({"kind": "string", "size": 2}, {"offsets": [0, 4, 3], "text": np.zeros(3, np.uint8)}, "divide"),
        ({"kind": "string", "size": 2}, {"offsets": [1, 2, 3], "text": np.zeros(3, np.uint8)}, "divide"),
        ({"kind": "string", "size": 1}, {"offsets": [0, 1], "text": np.array([255], np.uint8)}, "UTF-8"),
        (
            {"kind": "string", "size": 2},
            {"offsets": [0, 1, 2], "text": np.frombuffer("é".encode(), np.uint8)},
            "UTF-8",
        ),
        ({"kind": "string", "size": 2}, {"offsets": [0, 1, 2], "text": np.frombuffer(b"ba", np.uint8)}, "distinct"),
        ({"kind": "string", "size": 2}, {"offsets": [0, 1, 2], "text": np.frombuffer(b"aa", np.uint8)}, "distinct"),
        ({"kind": "string", "size": 2}, {"offsets": [0, 0, 0], "text": np.zeros(0, np.uint8)}, "distinct"),
    ],
)
def test_vocabularies_that_lie(tmp_path: Path, description: Any, tensors: dict[str, Any], expected: str) -> None:
    arrays = {f"item_ids.{name}": np.asarray(array) for name, array in tensors.items()}
    write_tensors(tmp_path / "m", arrays, {"item_ids": description})
    with pytest.raises(ModelFileError, match=expected):
        read_ids(tmp_path / "m")


def test_ascending_texts_as_python_compares_them() -> None:
    """Short and long, with zeros inside and at the end, equal up to and beyond 64 bytes."""
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
        assert ascending_texts(offsets, np.frombuffer(b"".join(texts), np.uint8)) is expected, texts
        seen[expected] += 1
    assert min(seen.values()) > 500


def test_every_rule_is_of_tensors_that_there_are() -> None:
    names = {tensor.name for tensor in (*schema.USERS, *schema.SHARED, *schema.SHARDS)}
    assert names == {name for rule in schema.RULES for name in rule.tensors} | {"shards.sha256"}
    for rule in schema.RULES:
        assert names.issuperset(rule.tensors)
