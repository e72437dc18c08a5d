"""Likes that several tests use: graphs whose right answer is known, and small random ones."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp

from considerate import Recommender
from considerate.fitting.resume import CheckpointOptions
from considerate.fitting.stopping import FitStep
from considerate.model import schema


def checkerboard(size: int) -> sp.csr_matrix:
    """User m likes the items of m's parity, all but item m: which is then the one to recommend (implicit's idea)."""
    rows = np.arange(size)
    likes = (rows[:, None] - rows[None, :]) % 2 == 0
    np.fill_diagonal(likes, False)
    return sp.csr_matrix(likes.astype(np.float32))


def planted(
    users: int = 200, items: int = 40, clusters: int = 2, inside: float = 0.5, across: float = 0.03, seed: int = 0
) -> sp.csr_matrix:
    """User m and item n are of the clusters m and n modulo `clusters`; most likes are inside one cluster."""
    random = np.random.default_rng(seed)
    same = np.arange(users)[:, None] % clusters == np.arange(items)[None, :] % clusters
    return sp.csr_matrix((random.random((users, items)) < np.where(same, inside, across)).astype(np.float32))


def skewed(users: int = 300, items: int = 60, seed: int = 0) -> sp.csr_matrix:
    """Two clusters, and items whose degrees differ by a factor of thirty; everyone likes at least two items."""
    random = np.random.default_rng(seed)
    same = np.arange(users)[:, None] % 2 == np.arange(items)[None, :] % 2
    appeal = 0.9 / (1.0 + np.arange(items)[None, :] // 2)
    likes = random.random((users, items)) < np.where(same, appeal, 0.2 * appeal)
    likes[np.arange(users), np.arange(users) % 2] = True
    likes[np.arange(users), 2 + np.arange(users) % 2] = True
    likes[np.arange(items), np.arange(items)] = True
    return sp.csr_matrix(likes.astype(np.float32))


def as_table(likes: Any, user: str = "u{}", item: str = "i{}") -> pa.Table:
    """A matrix as a table of ids; without letters in the patterns the ids are integers."""
    rows, columns = likes.nonzero()

    def ids(pattern: str, numbers: Any) -> list[Any]:
        texts = [pattern.format(int(number)) for number in numbers]
        return texts if any(letter.isalpha() for letter in pattern) else [int(text) for text in texts]

    return pa.table({"user": ids(user, rows), "item": ids(item, columns)})


def fit_steps(model: Recommender, likes: Any, backend: Any = None, **changes: Any) -> Generator[FitStep]:
    """The steps of a fit; `checkpoint`, `every` and `resume` are of its checkpoints, other changes of its request."""
    options = {name: changes.pop(name) for name in ("every", "resume") if name in changes}
    checkpoint = CheckpointOptions.parse(changes.pop("checkpoint", None), **options)
    return model.fit_steps(replace(model.fit_request(likes), checkpoint=checkpoint, **changes), backend)


def interrupted(model: Recommender, *arguments: Any, **options: Any) -> Recommender:
    """The model after a fit that Ctrl-C ends: the interrupt comes out, and what was fitted is kept."""
    with pytest.raises(KeyboardInterrupt):
        model.fit(*arguments, **options)
    return model


def stored_settings(model: Recommender) -> dict[str, Any]:
    """The settings that a model file holds."""
    return schema.stored_settings(model.model_.plan)
