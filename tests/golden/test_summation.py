"""The same bits on every Python: the builtin sum() of floats compensates for rounding since 3.12."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from considerate import GraphRecommender, Recommender
from considerate.distributed.backends.out_of_core import OutOfCore
from considerate.evaluation.recalibration import JudgedPairs, recalibrate
from considerate.kernels.arrays import add_in_order
from tests.helpers.divided_fits import several_parts

TENTHS = [0.1] * 10  # from left to right 0.9999999999999999, compensated 1.0


def plain_sum(values: Iterable[Any], /, start: Any = 0) -> Any:
    """sum() as it was up to Python 3.11."""
    for value in values:
        start = start + value
    return start


def another_sum(values: Iterable[Any], /, start: Any = 0) -> Any:
    """sum() that rounds floats in yet another way, so that every use of it shows."""
    values = list(values)
    total = plain_sum(values, start)
    return total * (1.0 + 2.0**-40) if any(type(value) is float for value in values) else total


def recommender(path: Path, **settings: Any) -> Any:
    return Recommender(factors=3, sweeps=4, tolerance=0.0, threads=2, seed=3, **settings)


def divided(path: Path, division: str, **settings: Any) -> Any:
    return recommender(path, **settings).fit(several_parts(), backend=OutOfCore(path, 2, division=division))


def of_features(path: Path) -> Any:
    likes = several_parts()
    features = np.random.default_rng(2).normal(size=(likes.shape[1], 4))
    return recommender(path, hidden="expected").fit(likes, item_features=features)


def of_a_graph(path: Path) -> Any:
    random = np.random.default_rng(4)
    edges = {"a": random.integers(0, 400, 40_000), "b": random.integers(0, 400, 40_000)}
    return GraphRecommender(factors=3, sweeps=4, tolerance=0.0, threads=2, seed=3).fit(edges)


FITS: dict[str, Callable[[Path], Any]] = {
    "sampled": lambda path: recommender(path, opening=0).fit(several_parts()),
    "expected": lambda path: recommender(path, hidden="expected", user_bias=True).fit(several_parts()),
    "covariances": lambda path: recommender(path, posterior="full").fit(several_parts()),
    "features": of_features,
    "vertices of one kind": of_a_graph,
    "users divided": lambda path: divided(path, "users", hidden="expected"),
    "items divided": lambda path: divided(path, "items", hidden="expected"),
}


def bits(fitted: Any) -> list[bytes]:
    """The posterior and all terms of all bounds."""
    q = fitted.model_.posterior
    bounds = [value for terms in fitted.model_.bounds for value in terms.values()]
    return [q.users.rows.tobytes(), q.items.rows.tobytes(), np.array(bounds).tobytes()]


def test_numbers_are_added_from_left_to_right() -> None:
    assert add_in_order(TENTHS) == plain_sum(TENTHS) != math.fsum(TENTHS)
    assert add_in_order([]) == 0.0


@pytest.mark.parametrize("kind", FITS)
def test_a_fit_has_the_same_bits_whatever_sum_does(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for number, total in enumerate((plain_sum, another_sum)):
        folder = tmp_path / str(number)
        folder.mkdir()
        monkeypatch.setattr(builtins, "sum", total)
        found.append(bits(FITS[kind](folder)))
    assert found[0] == found[1]


def test_so_has_a_recalibration(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(5)
    users, items, x = random.integers(0, 40, 900), random.integers(0, 30, 900), random.normal(size=900)
    logits = x + random.normal(size=40)[users] + random.normal(size=30)[items]
    judged = JudgedPairs(users, items, random.random(900) < 1.0 / (1.0 + np.exp(-logits)), x)
    found = []
    for total in (plain_sum, another_sum):
        monkeypatch.setattr(builtins, "sum", total)
        found.append(recalibrate(judged))
    assert found[0].structure.item > 0.0
    assert found[0] == found[1]
