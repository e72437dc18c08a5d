"""What the tests of features share: features of rows, and fits that are given some."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from considerate import Recommender
from considerate.data.features import Features, FeatureTable
from considerate.data.side_information import SideInformation
from considerate.fitting.resume import CheckpointOptions
from tests.helpers.divided_fits import made


def features_of(matrix: np.ndarray) -> Features:
    starts = np.concatenate([[0], np.cumsum((matrix != 0).sum(axis=1))]).astype(np.int64)
    rows, columns = np.nonzero(matrix)
    names = tuple(f"feature {i}" for i in range(matrix.shape[1]))
    return Features(starts, columns.astype(np.int32), matrix[rows, columns].astype(np.float32), names)


def random_features(rows: int, count: int, seed: int = 0) -> np.ndarray:
    """The first tells the two halves of the rows apart."""
    random = np.random.default_rng(seed)
    matrix = (random.random((rows, count)) < 0.4) * random.uniform(0.5, 2.0, (rows, count))
    matrix[:, 0] = np.where(np.arange(rows) < rows // 2, -1.0, 1.0)
    return matrix


def side_of(likes: Path) -> SideInformation:
    """Four features of each user and item of a file."""
    model = made(sweeps=1).fit(likes).model_
    tables = [
        FeatureTable(features_of(random_features(len(ids), 4, seed)), ids)
        for seed, ids in enumerate((model.users.whole().ids, model.item_ids))
    ]
    return SideInformation(item_features=tables[1], user_features=tables[0])


def fitted(likes: Path, side: SideInformation, backend: Any = None, **options: Any) -> Recommender:
    kept = options.pop("checkpoint", None)
    recommender = made(**{"user_bias": True, "precision_delay": 1} | options)
    request = replace(recommender.fit_request(likes), side=side)
    if kept is not None:
        request = replace(request, checkpoint=CheckpointOptions.parse(kept, 1, True))
    for _ in recommender.fit_steps(request, backend):
        pass
    return recommender
