"""A vocabulary to and from a model file's tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.vocabulary import Vocabulary
from considerate.storage.container import StoredTensors, ascending_texts, shown, unpack_texts


def pack_vocabulary(prefix: str, vocabulary: Vocabulary) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """A vocabulary's tensors, named `<prefix>.<part>`, and the description that `unpack_vocabulary` needs."""
    tensors = {f"{prefix}.{part}": array for part, array in vocabulary.tensors().items()}
    return tensors, {"kind": vocabulary.kind, "size": vocabulary.size}


def unpack_vocabulary(stored: StoredTensors, prefix: str, description: object) -> Vocabulary:
    """The vocabulary that `pack_vocabulary` stored, its ids distinct and ascending.

    Of strings that is checked where the file is read thoroughly; in a larger one no string is read here.
    """
    if not isinstance(description, dict) or description.keys() != {"kind", "size"}:
        raise stored.refusal(f"the vocabulary {shown(prefix)} is not described by kind and size")
    kind, size = description["kind"], description["size"]
    if kind not in ("range", "integer", "string") or type(size) is not int or not 0 <= size < 2**62:
        raise stored.refusal(f"the vocabulary {shown(prefix)} is {shown(description)}")
    tensors: dict[str, NDArray[Any]] = {}
    if kind == "integer":
        ids = stored.expect(f"{prefix}.integers", np.int64, [size])
        if bool(np.any(ids[1:] <= ids[:-1])):
            raise stored.refusal(f"the ids of {shown(prefix)} are not distinct and in ascending order")
        tensors = {"integers": ids}
    elif kind == "string":
        offsets, text = unpack_texts(stored, prefix, size)
        if stored.thorough and not ascending_texts(offsets, text):
            raise stored.refusal(f"the ids of {shown(prefix)} are not distinct and in ascending order")
        tensors = {"offsets": offsets, "text": text}
    return Vocabulary.from_tensors(kind, size, tensors)
