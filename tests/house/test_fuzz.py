"""A fixed share of the inputs of `make fuzz`, without coverage: all targets, and oracles that can fail."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from fuzz.__main__ import NAMES
from fuzz.base import Place, share
from fuzz.targets import ALL
from tests.helpers.randomised import LONG

INPUTS = {"where": 300, "model": 150, "container": 60, "csv": 40, "features": 40, "impossible": 40}  # 100 of others


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
