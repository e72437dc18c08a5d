"""A fixed share of the inputs of `make fuzz`, without coverage: all targets, and oracles that can fail."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from considerate.kernels import reference
from considerate.kernels.reference import logistic_curvature, logit_moments
from fuzz.__main__ import NAMES
from fuzz.base import Place, share
from fuzz.targets import ALL
from tests.helpers import naive_draws, naive_ranking
from tests.helpers.naive_draws import draw_negatives
from tests.helpers.naive_ranking import count_ranks
from tests.helpers.randomised import LONG

INPUTS = {
    "where": 300,
    "model": 150,
    "container": 60,
    "csv": 40,
    "features": 40,
    "impossible": 40,
    "kernels": 84,
}  # 100 of others


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with ExitStack() as exits:
        yield Place(tmp_path, exits)


def test_every_target_is_listed() -> None:
    assert list(ALL) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_share_of_inputs(name: str, place: Place) -> None:
    logging.disable()
    place.exits.callback(logging.disable, logging.NOTSET)
    check, count = ALL[name].prepare(place), INPUTS.get(name, 100) * (20 if LONG else 1)
    outcomes = Counter(check(data) for data in share(ALL[name], count))
    assert set(outcomes) == {"read", "refused"}, outcomes  # neither nothing nor everything is refused


def _curvature(xi: Any) -> Any:
    return logistic_curvature(xi) * (1.0 + 1e-4)


def _moments(*arguments: Any) -> tuple[Any, Any]:
    mean, square = logit_moments(*arguments)
    return mean, square * (1.0 + 1e-3)


def _draws(*arguments: Any) -> list[int]:
    return draw_negatives(*arguments)[::-1]


def _ranks(*arguments: Any) -> tuple[Any, Any, int]:
    above, ties, bad = count_ranks(*arguments)
    return above, ties + 1, bad


@pytest.mark.parametrize(
    ("kind", "module", "name", "fault"),
    [
        (0, reference, "logit_moments", _moments),
        (2, reference, "logistic_curvature", _curvature),
        (3, naive_draws, "draw_negatives", _draws),
        (5, naive_ranking, "count_ranks", _ranks),
    ],
)
def test_a_small_fault_of_a_twin_is_found(
    kind: int, module: Any, name: str, fault: Any, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, name, fault)
    check, seeds = ALL["kernels"].prepare(place), [seed for seed in ALL["kernels"].seeds() if seed[0] == kind]
    with pytest.raises(AssertionError):
        Counter(map(check, seeds))
