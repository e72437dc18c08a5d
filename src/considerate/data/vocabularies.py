"""Sorted vocabularies cut, joined, merged and searched: what ids that are spread over machines need."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.encode import distinct, inverse, string_bytes
from considerate.data.titles import Titles
from considerate.data.vocabulary import Vocabulary

Keys = list[int] | list[bytes]  # integers, or strings as UTF-8: ids that compare as a vocabulary sorts


def keys_of(ids: Vocabulary, rows: NDArray[np.int64]) -> Keys:
    """The ids of some rows, in the form that compares."""
    if ids.integers is not None:
        numbers: list[int] = ids.integers[rows].tolist()
        return numbers
    return [_text(ids, int(row)) for row in rows]


def _text(ids: Vocabulary, row: int) -> bytes:
    assert ids.offsets is not None
    assert ids.text is not None
    return ids.text[int(ids.offsets[row]) : int(ids.offsets[row + 1])].tobytes()


def places_of(keys: Keys, ids: Vocabulary) -> list[int]:
    """The first row of a vocabulary at or after each of the keys."""
    if not len(ids):
        return [0] * len(keys)
    if ids.integers is not None:
        return [int(row) for row in np.searchsorted(ids.integers, np.array(keys, np.int64))]
    return [bisect_left(range(len(ids)), key, key=lambda row: _text(ids, row)) for key in keys]


def slice_ids(ids: Vocabulary, first: int, last: int) -> Vocabulary:
    """Rows first..last as a vocabulary of their own, which shares no memory with the whole unless it is all of it."""
    if (first, last) == (0, len(ids)):
        return ids
    if ids.kind == "range":
        return Vocabulary.range(last - first, ids.first + first)
    if ids.integers is not None:
        return Vocabulary.of_integers(ids.integers[first:last].copy())
    assert ids.offsets is not None
    assert ids.text is not None
    offsets = ids.offsets[first : last + 1]
    return Vocabulary.of_bytes(offsets - offsets[0], ids.text[int(offsets[0]) : int(offsets[-1])].copy())


def join_ids(vocabularies: Sequence[Vocabulary]) -> Vocabulary:
    """Vocabularies, each of ids above all of the one before it, as one."""
    full = [ids for ids in vocabularies if len(ids)] or list(vocabularies[:1])
    if len(full) == 1:
        return full[0]
    if full[0].kind == "integer":
        return Vocabulary.of_integers(np.concatenate([ids.integers for ids in full if ids.integers is not None]))
    offsets, texts, end = [np.zeros(1, np.int64)], [], 0
    for ids in full:
        assert ids.offsets is not None
        assert ids.text is not None
        offsets.append(ids.offsets[1:] + end)
        texts.append(ids.text)
        end += int(ids.offsets[-1])
    return Vocabulary.of_bytes(np.concatenate(offsets), np.concatenate(texts))


def merge_ids(vocabularies: Sequence[Vocabulary]) -> tuple[Vocabulary, list[NDArray[np.int32]]]:
    """All ids of several vocabularies, each once; and per vocabulary the rows of its ids among them."""
    full = [ids for ids in vocabularies if len(ids)]
    if not full:
        return vocabularies[0], [np.empty(0, np.int32) for _ in vocabularies]
    ids, ranks = _merge_integers(full) if full[0].kind == "integer" else _merge_strings(full)
    of = iter(ranks)
    return ids, [next(of) if len(one) else np.empty(0, np.int32) for one in vocabularies]


def _merge_integers(vocabularies: list[Vocabulary]) -> tuple[Vocabulary, list[NDArray[np.int32]]]:
    arrays = [ids.integers for ids in vocabularies if ids.integers is not None]
    low, high = min(int(one[0]) for one in arrays), max(int(one[-1]) for one in arrays)
    if high - low < 4 * sum(map(len, arrays)) + 65_536:  # ids lie close: look them up in a table
        seen = np.zeros(high - low + 1, bool)
        for one in arrays:
            seen[one - low] = True
        rank = np.cumsum(seen, dtype=np.int32) - np.int32(1)
        return Vocabulary.of_integers(np.flatnonzero(seen) + low), [rank[one - low] for one in arrays]
    every = np.unique(np.concatenate(arrays))
    return Vocabulary.of_integers(every), [np.searchsorted(every, one).astype(np.int32) for one in arrays]


def _merge_strings(vocabularies: list[Vocabulary]) -> tuple[Vocabulary, list[NDArray[np.int32]]]:
    import pyarrow as pa
    import pyarrow.compute as pc

    dictionary, codes = distinct([string_array(ids) for ids in vocabularies])
    order = pc.sort_indices(dictionary).to_numpy()
    ranks = inverse(order)[codes]
    ends = np.cumsum([len(ids) for ids in vocabularies])[:-1]
    return Vocabulary.of_bytes(*string_bytes(dictionary.take(pa.array(order)))), np.split(ranks, ends)


def string_array(texts: Vocabulary | Titles) -> Any:
    """Strings laid end to end as an Arrow array, without copying."""
    import pyarrow as pa

    assert texts.offsets is not None
    assert texts.text is not None
    offsets, text = np.ascontiguousarray(texts.offsets), np.ascontiguousarray(texts.text)
    return pa.LargeStringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(text))


def id_array(ids: Vocabulary, rows: NDArray[Any]) -> Any:
    """The ids of rows as an Arrow array."""
    import pyarrow as pa

    if ids.kind == "string":
        return string_array(ids).take(pa.array(rows)).cast(pa.string())
    return pa.array(ids.first + np.asarray(rows, np.int64) if ids.integers is None else ids.integers[rows])


def find_rows(ids: Vocabulary, among: Vocabulary) -> NDArray[np.int32]:
    """The rows of ids in a vocabulary that has all of them."""
    if ids.integers is not None and among.integers is not None:
        return np.searchsorted(among.integers, ids.integers).astype(np.int32)
    if not len(ids):
        return np.empty(0, np.int32)
    import pyarrow.compute as pc

    found: NDArray[np.int32] = pc.index_in(string_array(ids), string_array(among)).to_numpy(zero_copy_only=False)
    return found
