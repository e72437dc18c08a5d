"""Sorted vocabularies cut, joined, merged and searched: what ids that are spread over machines need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.encode import distinct, inverse, rank_integers, string_bytes
from considerate.data.titles import Titles
from considerate.data.vocabulary import Vocabulary


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
    import pyarrow as pa
    import pyarrow.compute as pc

    full = [ids for ids in vocabularies if len(ids)]
    if not full:
        return vocabularies[0], [np.empty(0, np.int32) for _ in vocabularies]
    if full[0].kind == "integer":
        integers, rows = rank_integers([ids.integers for ids in full if ids.integers is not None])
        merged = Vocabulary.of_integers(integers)
    else:
        dictionary, codes = distinct([string_array(ids) for ids in full])
        order = pc.sort_indices(dictionary).to_numpy()
        merged = Vocabulary.of_bytes(*string_bytes(dictionary.take(pa.array(order))))
        rows = inverse(order)[codes]
    return merged, np.split(rows, np.cumsum([len(ids) for ids in vocabularies])[:-1])


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

    rows: NDArray[np.int32] = pc.index_in(string_array(ids), string_array(among)).to_numpy(zero_copy_only=False)
    return rows
