"""Search of items by title, without regard to case, accents and punctuation."""

from __future__ import annotations

from typing import NamedTuple

from considerate.data.vocabulary import Id, plain_text
from considerate.errors import UnknownIdError, UsageError
from considerate.model.model import Model
from considerate.model.names import By, check_count

LISTED = 10  # candidates that an error names


class FoundItem(NamedTuple):
    """Item with a title that has the text."""

    item: Id
    title: str  # its id if it has no title
    likes: int  # in training


def matching_rows(model: Model, text: str) -> list[tuple[int, int]]:
    """Find (quality, row) of the items whose title has the text: 0 is it, 1 begins with it, 2 has a word that begins
    with it, 3 has it somewhere. The best first, then the most liked."""
    if not isinstance(text, str) or not (wanted := plain_text(text)):
        raise UsageError(f"the text to find is {text!r}; give some letters or digits of a title.")
    inside = wanted[1:]
    found = []
    for row, title in enumerate(model.plain_titles):
        if inside in title:
            kind = 0 if title == wanted else 1 if title.startswith(wanted) else 2 if wanted in title else 3
            found.append((kind, row))
    return sorted(found, key=lambda match: (match[0], -int(model.item_degree[match[1]]), match[1]))


def find_items(model: Model, text: str, N: int, by: By = "id") -> list[FoundItem]:
    """Find the N best matches."""
    names = model.item_names(by)
    rows = [row for _, row in matching_rows(model, text)[: check_count(N)]]
    return [FoundItem(names.name(row), model.title(row), int(model.item_degree[row])) for row in rows]


def item_called(model: Model, text: str) -> Id:
    """Find the id of the one item that a text names: its id, its title, or a text that only its title has."""
    names = model.item_names()
    row = int(names.rows(text, unknown=True))
    if row >= 0:
        return names.name(row)
    matches = matching_rows(model, text) if plain_text(text) else []
    best = [row for kind, row in matches if kind == 0] or [row for _, row in matches]
    if len(best) == 1:
        return names.name(best[0])
    if not best:
        raise UnknownIdError(
            f"item {text!r} is not in the model, which knows {model.item_count} items, and no title has it; look for "
            "one with `considerate find`."
        )
    listed = ", ".join(f"{names.name(row)} ({model.title(row)})" for row in best[:LISTED])
    more = f", and {len(best) - LISTED} more" if len(best) > LISTED else ""
    raise UsageError(f"item {text!r} may be one of {len(best)}: {listed}{more}; give an id, or more of the title.")
