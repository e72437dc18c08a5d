"""Model files that tests of them share: how they are made, taken apart and refused."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from considerate import Recommender, read_interactions
from considerate.errors import ModelFileError
from considerate.storage.container import open_tensors, write_tensors
from tests.helpers.likes import as_table, planted

Parts = tuple[dict[str, Any], dict[str, Any]]


def small(**settings: Any) -> Recommender:
    return Recommender(**{"factors": 3, "sweeps": 5, **settings})


def save_everything(path: Path) -> Path:
    """A model with everything that a file can hold: string ids, titles, user biases, likes, the walk's table."""
    titles = pa.table({"item": [f"i{n}" for n in range(40)], "title": [f"Title {n}" for n in range(40)]})
    likes = read_interactions(as_table(planted(users=60)), titles=titles)
    Recommender(factors=3, sweeps=3, user_bias=True, consideration="walk", neighbours=12).fit(likes).save(path)
    return path


def parts_of(path: Path) -> Parts:
    stored = open_tensors(path)
    return {name: stored[name].copy() for name in stored}, copy.deepcopy(stored.metadata)


def refused(path: Path, parts: Parts) -> str:
    """The reason why a valid container with these parts is no model."""
    write_tensors(path, *parts)
    with pytest.raises(ModelFileError) as caught:
        Recommender.load(path)
    return str(caught.value)
