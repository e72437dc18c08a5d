"""Judged pairs for tests: liked inside the clusters of `skewed` and, against p(like), where few like the item."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy import special

from considerate import Recommender
from tests.helpers.likes import as_table, skewed

USERS, ITEMS = 300, 60
SETTINGS: dict[str, Any] = {"factors": 3, "sweeps": 4, "threads": 1}


def fitted() -> Recommender:
    titles = {f"i{item}": f"Title {item}" for item in range(ITEMS)}
    return Recommender(**SETTINGS).fit(as_table(skewed()), titles=titles)


def judged_rows(
    count: int = 900, seed: int = 0, liked: sp.csr_matrix | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """(users, items, liked), each pair once; those of `liked` are left out."""
    random = np.random.default_rng(seed)
    keys = random.permutation(USERS * ITEMS)
    if liked is not None:
        users, items = liked.nonzero()
        keys = keys[~np.isin(keys, users * ITEMS + items)]
    users, items = np.divmod(keys[:count], ITEMS)
    same = users % 2 == items % 2
    return users, items, random.random(len(users)) < special.expit(0.05 * (items - 30.0) + np.where(same, 2.0, -2.0))


def judged_table(count: int = 900, seed: int = 0) -> pa.Table:
    """As a table of ids with a column `liked`, without likes of the training."""
    users, items, liked = judged_rows(count, seed, skewed())
    ids = [f"u{user}" for user in users], [f"i{item}" for item in items]
    return pa.table({"user": ids[0], "item": ids[1], "liked": liked})
