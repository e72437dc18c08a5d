"""Bars and sparklines."""

from __future__ import annotations

import math

from considerate.cli.screen import bar, sparkline


def test_bars_grow_with_their_values() -> None:
    assert bar(10, 10, 4) == "████"
    assert bar(5, 10, 4) == "██"
    assert bar(0, 10, 4) == ""
    assert bar(1e-9, 10, 4) == "▏"
    assert bar(3, 0, 4) == ""
    assert [len(bar(value, 8, 8)) for value in range(9)] == list(range(9))


def test_sparklines_follow_the_values() -> None:
    assert sparkline([0, 7, 3.4]) == "▁█▄"
    assert sparkline([5, 5]) == "▁▁"
    assert sparkline([]) == ""
    assert sparkline([1, math.inf, 2]) == "▁█"
    long = sparkline(list(range(1000)), width=8)
    assert long == "▁▂▃▄▅▆▇█"
