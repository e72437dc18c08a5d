"""A few likes, and what the tests of the reader expect of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from considerate.data import Interactions

PAIRS = [("bo", "x"), ("al", "y"), ("al", "x"), ("cy", "z"), ("al", "y")]


def pairs(got: Interactions) -> list[tuple[object, object]]:
    """The likes in the data's own ids."""
    return list(zip(got.user_ids.ids_of(got.users), got.item_ids.ids_of(got.items)))


def table(**columns: Any) -> pa.Table:
    base = {"user": [u for u, _ in PAIRS], "item": [i for _, i in PAIRS]}
    return pa.table({**base, **columns})


def check(got: Interactions, wanted: list[tuple[object, object]] = PAIRS) -> None:  # type: ignore[assignment]
    assert pairs(got) == wanted
    assert got.users.dtype == got.items.dtype == np.int32
    assert got.rows_kept == len(wanted)
