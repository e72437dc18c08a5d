"""A title per item, from a table of items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.columns import TITLES, find, guess, listed, plain
from considerate.data.encode import Encoder, check_length, string_bytes
from considerate.data.inputs import Input, translate_errors
from considerate.data.options import ReaderOptions
from considerate.data.sources import open_input
from considerate.data.vocabulary import Vocabulary
from considerate.errors import DataError


@dataclass(frozen=True)
class Titles:
    """Row number -> title; the empty text stands for one that is not known."""

    offsets: NDArray[np.int64]  # [items + 1]
    text: NDArray[np.uint8]  # [offsets[-1]], UTF-8

    @classmethod
    def of_strings(cls, titles: Sequence[str | None]) -> Titles:
        """Titles from Python strings."""
        encoded = [(title or "").encode() for title in titles]
        offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(title) for title in encoded], out=offsets[1:])
        return cls(offsets, np.frombuffer(b"".join(encoded), np.uint8))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def of(self, row: int) -> str | None:
        """The title of one item, None where it is not known."""
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of {len(self)} titles")
        return self.text[int(self.offsets[row]) : int(self.offsets[row + 1])].tobytes().decode() or None

    def tensors(self) -> dict[str, NDArray[Any]]:
        """The arrays that a file keeps; `from_tensors` is the way back."""
        return {"offsets": self.offsets, "text": self.text}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, NDArray[Any]]) -> Titles:
        """Titles from what `tensors` gave."""
        return cls(tensors["offsets"], tensors["text"])


def find_titles(items: Vocabulary, options: ReaderOptions) -> tuple[Titles | None, list[str]]:
    """Titles of the items of a vocabulary and notes for the user; of several titles of an item the first counts."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if options.titles is None:
        return None, []
    with closing(open_input(options.titles, None, options.title_headers)) as table:
        id_column, title_column = _pick(table, options)
        both = list(dict.fromkeys((id_column, title_column)))
        encoder = Encoder("item", id_column, table.types(both)[id_column], table)
        fields = {"item": pc.field(id_column), "title": pc.field(title_column).cast(pa.large_string())}
        parts = []
        with translate_errors(table.name):
            for batch in table.scan(both, both, fields, pc.field(id_column).is_valid()):
                if batch.num_rows:
                    check_length(f"{table.name}: a title", title_column, batch.column(1))
                    encoder.add([batch.column(0)])
                    parts.append(batch.column(1).dictionary_encode())  # a repeated title takes no room
    with translate_errors(table.name):
        titles = pa.chunked_array(parts, pa.dictionary(pa.int32(), pa.large_string())).combine_chunks()
        titles.validate(full=True)
        codes, ids = encoder.finish()
        rows = items.rows_of(ids.ids_of(range(len(ids))))[codes]  # -1: not in the data; '7' and 7 are the same
        has_title = pc.not_equal(pc.binary_length(titles.dictionary), 0).take(titles.indices).fill_null(False)
        known = np.flatnonzero((rows >= 0) & has_title.to_numpy(zero_copy_only=False))
        if not len(known):
            raise DataError(
                f"{table.name}: none of its {len(ids)} ids in {id_column!r}{_such_as(ids)}, has a title and "
                f"is an item of the data{_such_as(items)}; name the right column with --title-id-column."
            )
        first = np.full(len(items), -1, np.int64)
        first[rows[known[::-1]]] = known[::-1]  # backwards, so that the first one stays
        chosen = titles.take(pa.array(first, mask=first < 0)).dictionary_decode().fill_null("")
    note = f"titles for {len(np.unique(rows[known])):,} of {len(items):,} items, from {title_column!r} by {id_column!r}"
    return Titles(*string_bytes(chosen)), [note]


def _pick(table: Input, options: ReaderOptions) -> tuple[str, str]:
    """The columns of ids and titles: named, else the name in the data, `item`, `id`, the usual ones."""
    words = {plain(name): name for name in reversed(table.names)}
    id_column, title_column = options.title_id_column, options.title_column
    if id_column is not None:
        id_column = find(id_column, table.names, table.name, "--title-id-column")
    else:
        likely = (plain(str(options.item_column)), "item", "itemid", "iid", "id")
        id_column = next((words[word] for word in likely if word in words), None)
        id_column = id_column or guess("item", table.names, table.name)
    if title_column is not None:
        title_column = find(title_column, table.names, table.name, "--title-column")
    else:
        title_column = next((words[word] for word in TITLES if word in words and words[word] != id_column), None)
    for what, name, option in (("item ids", id_column, "title-id"), ("titles", title_column, "title")):
        if name is None:
            raise DataError(
                f"{table.name}: no column looks like the {what}; it has {listed(table.names)}. "
                f"Name one with --{option}-column ({option.replace('-', '_')}_column= in Python)."
            )
    return str(id_column), str(title_column)


def _such_as(ids: Vocabulary) -> str:
    return f", such as {ids.id_of(0)!r}" if len(ids) else ""
