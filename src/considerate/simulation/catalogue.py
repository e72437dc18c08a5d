"""Made-up catalogue for demonstrations: distinct, readable titles that hint at their genre."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from considerate.errors import UsageError


class Genre(NamedTuple):
    name: str
    adjectives: list[str]
    nouns: list[str]
    places: list[str]


def _read_genres() -> tuple[Genre, ...]:
    genres = json.loads(files(__package__).joinpath("catalogue.json").read_text("utf-8"))
    return tuple(Genre(name, *(words[kind].split() for kind in Genre._fields[1:])) for name, words in genres.items())


GENRES = _read_genres()
_PATTERNS = ("The {a} {n}", "{a} {n}", "The {n} of {p}", "{n} in {p}", "The {a} {n} of {p}", "A {n} for {p}")


def readable_titles(count: int, seed: int, *, genres: ArrayLike | None = None) -> list[str]:
    """Make `count` distinct titles such as 'The Quiet Harbour', from the words of a genre.

    `genres[n]` is the index in GENRES of title n; without `genres` it is drawn. A repeated name becomes a sequel: 'The
    Quiet Harbour 2'.
    """
    if count < 0:
        raise UsageError(f"count is {count}; titles cannot be fewer than 0.")
    rng = np.random.default_rng([seed, 7])
    of = rng.integers(len(GENRES), size=count) if genres is None else np.asarray(genres)
    if of.shape != (count,) or (count and not (of.min() >= 0 and of.max() < len(GENRES))):
        raise UsageError(f"genres must be {count} numbers in 0..{len(GENRES) - 1}; its shape is {of.shape}.")
    seen: dict[str, int] = {}
    titles = []
    for g in of:
        title = _title(GENRES[int(g)], rng)
        for _ in range(5):
            if title not in seen:
                break
            title = _title(GENRES[int(g)], rng)
        seen[title] = seen.get(title, 0) + 1
        titles.append(title if seen[title] == 1 else f"{title} {seen[title]}")
    return titles


def _title(genre: Genre, rng: np.random.Generator) -> str:
    pattern = _PATTERNS[rng.integers(len(_PATTERNS))]
    words = [options[rng.integers(len(options))] for options in genre[1:]]
    title = pattern.format(a=words[0], n=words[1], p=words[2])
    return f"An {title[2:]}" if title[:2] == "A " and title[2] in "AEIOU" else title
