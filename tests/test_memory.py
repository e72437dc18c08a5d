"""A fit that would not fit in memory is refused before it starts, with what would fit."""

from __future__ import annotations

import re

import pytest

from considerate import Recommender
from considerate.data import read_interactions
from considerate.data.graph import Graph
from considerate.errors import MemoryLimitError
from considerate.fitting.memory import available_memory, check_memory, needed_memory
from considerate.fitting.training import make_graph
from considerate.parameters import FitPlan
from likes import planted


@pytest.fixture(scope="module")
def graph() -> Graph:
    return make_graph(read_interactions(planted(users=4000)))


def plan(factors: int, hidden: str = "sampled", negatives: float = 3.0, groups: int = 32) -> FitPlan:
    return FitPlan(factors, hidden, negatives, groups=groups)


def test_what_is_needed_grows_with_everything() -> None:
    base = needed_memory(10**6, 10**5, 10**8, plan(20))
    assert needed_memory(2 * 10**6, 10**5, 10**8, plan(20)) > base
    assert needed_memory(10**6, 2 * 10**5, 10**8, plan(20)) > base
    assert needed_memory(10**6, 10**5, 2 * 10**8, plan(20)) > base
    assert needed_memory(10**6, 10**5, 10**8, plan(40)) > base
    assert needed_memory(10**6, 10**5, 10**8, plan(20, negatives=6.0)) > base
    expected = needed_memory(10**6, 10**5, 10**8, plan(20, "expected"))
    assert needed_memory(10**6, 10**5, 10**8, plan(20, "expected", negatives=900.0)) == expected
    assert needed_memory(10**6, 10**5, 10**8, plan(20, "expected", groups=64)) > expected
    assert base > (4 + 3 * 4) * 10**8  # G and H are in memory at once


def test_refused_with_what_would_fit(graph: Graph) -> None:
    needed = needed_memory(graph.user_count, graph.item_count, graph.edges, plan(1024))
    check_memory(graph, plan(1024), available=needed)
    with pytest.raises(MemoryLimitError, match=r"needs about 0\.\d GB and 0\.\d GB are free; factors=\d+ would fit"):
        check_memory(graph, plan(1024), available=needed - 1)
    with pytest.raises(MemoryLimitError) as caught:
        check_memory(graph, plan(1024), available=needed * 3 // 4)
    fitting = re.search(r"factors=(\d+) would fit", str(caught.value))
    assert fitting is not None
    factors = int(fitting.group(1))
    check_memory(graph, plan(factors), available=needed * 3 // 4)
    with pytest.raises(MemoryLimitError):
        check_memory(graph, plan(factors + 8), available=needed * 3 // 4)


def test_where_nothing_would_fit(graph: Graph) -> None:
    with pytest.raises(MemoryLimitError, match="a machine with more memory is needed"):
        check_memory(graph, plan(20), available=1000)
    assert issubclass(MemoryLimitError, MemoryError)


def test_fit_asks_before_it_starts_and_keeps_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    recommender = Recommender(factors=4, sweeps=3).fit(planted())
    monkeypatch.setattr("considerate.fitting.memory.available_memory", lambda: 10_000)
    with pytest.raises(MemoryLimitError, match="GB are free"):
        recommender.fit(planted(seed=1))
    assert recommender.recommend(0)[0].shape == (10,)
    monkeypatch.setattr("considerate.fitting.memory.available_memory", lambda: None)
    recommender.fit(planted(seed=1))  # a system that does not say is not refused


def test_the_system_is_asked() -> None:
    available = available_memory()
    assert available is None or 10**6 < available < 10**15
