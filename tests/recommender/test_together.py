"""What goes together: every cell of the table of docs/beyond-the-paper.md is tried."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from considerate import GraphRecommender, Recommender, evaluate
from considerate.distributed import OutOfCore
from considerate.errors import UsageError
from tests.helpers.likes import planted
from tests.helpers.paths import ROOT

USERS, ITEMS = np.nonzero(planted(40, 15).toarray())
LIKES = pa.table({"user": [f"u{u}" for u in USERS], "item": [f"i{i}" for i in ITEMS], "hours": 1 + USERS % 3})
EDGES = pa.table({"from": [f"v{u % 30}" for u in USERS], "to": [f"v{15 + i}" for i in ITEMS]})
GENRES = pa.table({"item": [f"i{i}" for i in range(15)], "genre": [f"g{i % 3}" for i in range(15)]})
SMALL: dict[str, Any] = {"factors": 2, "sweeps": 3, "threads": 1}
Option = tuple[dict[str, Any], dict[str, Any]]  # settings, and what a fit is given
OPTIONS: dict[str, Option] = {
    "features": ({}, {"item_features": GENRES}),
    "known H": (
        {},
        {
            "considered": pa.table({"user": ["u0", "u1"], "item": ["i1", "i2"]}),
            "impossible": pa.table({"user": ["u3", "u4"], "item": ["i1", "i2"]}),
        },
    ),
    "weights of likes": ({}, {"weight_column": "hours"}),
    "full posteriors": ({"posterior": "full"}, {}),
    "Normal-Wishart": ({"prior": "wishart"}, {}),
    "half-edges": ({"hidden": "half-edges"}, {}),
    "`GraphRecommender`": ({}, {}),
}
PAGE = (ROOT / "docs" / "beyond-the-paper.md").read_text().partition("## Combinations")[2]
LINES = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("|")]
CELLS = {(row[0], way): cell for row in LINES[2:] for way, cell in zip(LINES[0][1:], row[1:], strict=True)}
APART = {tuple(pair.split(" + ")) for pair in re.findall(r"^- (.+ \+ .+)$", PAGE, re.MULTILINE)}


class Case:
    """An option, and the ways to use it."""

    def __init__(self, name: str, folder: Path) -> None:
        self.settings, self.given = OPTIONS[name]
        self.folder = folder
        self.is_graph = name == "`GraphRecommender`"

    def made(self, **settings: Any) -> Any:
        kind = GraphRecommender if self.is_graph else Recommender
        start = {} if self.is_graph else {"opening": 0}
        return kind(**SMALL | start | settings | self.settings)

    def fit(self, settings: dict[str, Any] | None = None, **options: Any) -> Any:
        return self.made(**settings or {}).fit(EDGES if self.is_graph else LIKES, **self.given, **options)

    def saved(self) -> Recommender:
        """A graph's model too may be opened so; it is refused where it cannot do what is asked."""
        self.fit().save(self.folder / "model")
        return Recommender.load(self.folder / "model")

    def closed_form(self) -> None:
        self.fit({"hidden": "expected"})

    def opening(self) -> None:
        self.fit({"opening": 1})

    def threads(self) -> None:
        one, two = (self.fit({"threads": threads}) for threads in (1, 2))
        assert np.array_equal(one.item_factors, two.item_factors)

    def out_of_core(self) -> None:
        divided = self.fit(backend=OutOfCore(threads=1), model_folder=self.folder / "parts")
        assert np.array_equal(divided.item_factors, self.fit().item_factors)

    def checkpoints(self) -> None:
        self.fit({"sweeps": 1}, checkpoint=self.folder / "checkpoint")
        resumed = self.fit(checkpoint=self.folder / "checkpoint", resume=True)
        assert np.array_equal(resumed.item_factors, self.fit().item_factors)

    def model_file(self) -> None:
        assert np.array_equal(self.saved().item_factors, self.fit().item_factors)

    def shards(self) -> None:
        self.saved().save(self.folder / "shards", shards=2)
        Recommender.load(self.folder / "shards").recommend("u0")

    def fold_in(self) -> None:
        item = "v1" if self.is_graph else "i1"
        assert len(self.fit().recommend_for([item], N=3)) == 3

    def evaluate(self) -> None:
        evaluate([self.made()], EDGES if self.is_graph else LIKES, split="random", **self.given)

    def update(self) -> None:
        model = self.saved()
        model.update(pa.table({"user": ["u0"], "item": ["i3"]}))
        model.forget("u0")


WAYS = {
    "`expected`": Case.closed_form,
    "`opening`": Case.opening,
    "threads": Case.threads,
    "out of core, Ray by users": Case.out_of_core,
    "checkpoints": Case.checkpoints,
    "model file": Case.model_file,
    "shards": Case.shards,
    "fold-in": Case.fold_in,
    "`evaluate`": Case.evaluate,
    "`update`, `forget`": Case.update,
}


def test_the_table_names_the_options_and_the_ways() -> None:
    assert [row[0] for row in LINES[2:]] == list(OPTIONS)
    assert LINES[0][1:] == list(WAYS)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("option", "way"), [pair for pair, cell in CELLS.items() if cell != "-"])
def test_each_cell_is_as_the_table_says(option: str, way: str, tmp_path: Path) -> None:
    case = Case(option, tmp_path)
    if CELLS[option, way].startswith("no"):
        with pytest.raises((UsageError, TypeError)):  # a TypeError: there is no such setting
            WAYS[way](case)
    else:
        WAYS[way](case)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("one", "other"), list(combinations([name for name in OPTIONS if name[0] != "`"], 2)))
def test_each_pair_of_options_is_as_the_list_says(one: str, other: str) -> None:
    (first, given), (second, more) = OPTIONS[one], OPTIONS[other]
    model = Recommender(**SMALL | {"opening": 1} | first | second)
    if (one, other) in APART:
        with pytest.raises(UsageError):
            model.fit(LIKES, **given, **more)
    else:
        model.fit(LIKES, **given, **more)
