"""Fingerprints of fits: two fits with the same fingerprint have the same posterior.

The digests of likes and ids are made part by part, where the parts are, and then combined.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency, Graph, GraphOutline
from considerate.data.vocabulary import Vocabulary

COUNTS = ("users", "items", "edges")
DIGESTS = {
    "likes": "the likes",
    "user_ids": "the users' ids",
    "item_ids": "the items' ids",
    "item_features": "the items' features",
    "user_features": "the users' features",
    "considered": "the considered pairs",
    "impossible": "the impossible pairs and rules",
}
_ROWS = 1 << 20  # rows that are hashed at once


def digest_likes(likes: Adjacency, first: int = 0, last: int | None = None) -> str:
    """Digest of some rows of likes: the number in each row, the indices, and the weights if there are any."""
    last = likes.rows if last is None else last
    starts = likes.starts
    digest = hashlib.sha256()
    for start in range(first, last, _ROWS):
        digest.update(_bytes(np.diff(starts[start : min(start + _ROWS, last) + 1]), np.int64))
    edges = slice(int(starts[first]), int(starts[last]))
    digest.update(_bytes(likes.indices[edges], np.int32))
    if likes.weights is not None:
        digest.update(_bytes(likes.weights[edges], np.float32))
    return digest.hexdigest()


def digest_ids(ids: Vocabulary, first: int = 0, last: int | None = None) -> str:
    """Digest of the ids of some rows.

    A slice of a vocabulary has the same digest as these rows of the whole, and a range of numbers the same as the
    integers in it.
    """
    last = len(ids) if last is None else last
    digest = hashlib.sha256(b"strings" if ids.kind == "string" else b"integers")
    for start in range(first, last, _ROWS):
        stop = min(start + _ROWS, last)
        if ids.offsets is not None:
            digest.update(_bytes(np.diff(ids.offsets[start : stop + 1]), np.int64))
        else:
            numbers = ids.first + np.arange(start, stop) if ids.integers is None else ids.integers[start:stop]
            digest.update(_bytes(numbers, np.int64))
    if ids.offsets is not None and ids.text is not None:
        digest.update(_bytes(ids.text[int(ids.offsets[first]) : int(ids.offsets[last])], np.uint8))
    return digest.hexdigest()


def combine_digests(digests: Iterable[str]) -> str:
    """Combine the digests of all parts, in the order of the parts."""
    return hashlib.sha256(" ".join(digests).encode()).hexdigest()


def _bytes(array: NDArray[Any], dtype: Any) -> memoryview:
    return np.ascontiguousarray(array, np.dtype(dtype).newbyteorder("<")).view(np.uint8).data


def describe_data(
    graph: Graph | GraphOutline, resident: str, likes: Sequence[str], resident_ids: Sequence[str], other_ids: str
) -> dict[str, Any]:
    """Describe the data of a fit that is divided by its `resident` side, users or items.

    The digests of the resident side come from its parts; the other side has one digest of the whole.
    """
    ids = {resident: combine_digests(resident_ids), "items" if resident == "users" else "users": other_ids}
    return {
        "users": graph.user_count,
        "items": graph.item_count,
        "edges": graph.edges,
        "division": resident,
        "likes": combine_digests(likes),
        "user_ids": ids["users"],
        "item_ids": ids["items"],
    }


def plain_value(value: Any) -> Any:
    """Make equal numbers of different types the same: 20, 20.0 and np.int64(20)."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    return int(value) if int(value) == value else float(value)


def differences(saved: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """List the differences between two fits, each in a few words, with the saved value first."""
    old, new = _part(saved, "data"), _part(here, "data")
    differ = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    data = [f"{old.get(name)} {name} ({new.get(name)} here)" for name in COUNTS if name in differ]
    data = data or [f"other data: {text} differ" for name, text in DIGESTS.items() if name in differ][:1]
    if "division" in differ:
        data = [f"a division by {old.get('division')} (by {new.get('division')} here)"]
    old, new = _part(saved, "settings"), _part(here, "settings")
    differ = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    return data + [f"{name} {_shown(old.get(name))} ({_shown(new.get(name))} here)" for name in differ]


def _part(fingerprint: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = fingerprint.get(name)
    return part if isinstance(part, Mapping) else {}


def _shown(value: Any) -> str:
    text = "not given" if value is None else str(value)
    return text if len(text) <= 40 and text.isprintable() else ascii(text)[:40]
