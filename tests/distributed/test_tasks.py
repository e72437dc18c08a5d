"""Functions that run elsewhere: references, dependencies, failures, and results that are let go."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterator

import pytest

from considerate.distributed.tasks import LocalTasks


@pytest.fixture(params=[1, 3])
def tasks(request: pytest.FixtureRequest) -> Iterator[LocalTasks]:
    with LocalTasks(request.param) as made:
        yield made


class Thing:
    """Something that can be seen to be gone."""


def add(*numbers: int) -> int:
    return sum(numbers)


def total(numbers: list[int], more: int = 0) -> int:
    return sum(numbers) + more


def halves(number: int) -> tuple[int, int]:
    return number // 2, number - number // 2


def refuse(*_: object) -> None:
    raise LookupError("no")


def test_arguments_may_be_references_and_lists_of_them(tasks: LocalTasks) -> None:
    one, two = tasks.put(1), tasks.submit(add, 1, 1)
    assert tasks.get(tasks.submit(add, one, two, 3)) == 6
    assert tasks.get(tasks.submit(total, [one, two, 3], tasks.put(10))) == 16
    assert tasks.get([one, two]) == [1, 2]
    assert tasks.get([]) == []


def test_each_result_has_its_reference(tasks: LocalTasks) -> None:
    low, high = tasks.submit(halves, 7, returns=2)
    assert tasks.get([low, high]) == [3, 4]
    refs = tasks.submit(halves, tasks.submit(add, 3, 4), returns=2)
    assert [tasks.get(refs.pop(0)) for _ in range(2)] == [3, 4]  # the list is the caller's
    with pytest.raises(ValueError, match="halves gave 2 results; 3 were announced"):
        tasks.get(tasks.submit(halves, 7, returns=3)[0])


def test_long_chains_come_to_an_end(tasks: LocalTasks) -> None:
    last = tasks.put(0)
    many = []
    for _ in range(200):
        last = tasks.submit(add, last, 1)
        many.append(last)
    assert tasks.get(tasks.submit(total, many)) == 200 * 201 // 2


def test_a_failure_comes_out_of_whatever_depends_on_it(tasks: LocalTasks) -> None:
    failed = tasks.submit(refuse, 1, returns=2)
    for ref in (*failed, tasks.submit(add, failed[1], 1), tasks.submit(total, [failed[0], 1])):
        with pytest.raises(LookupError, match="no"):
            tasks.get(ref)
    assert tasks.get(tasks.submit(add, 1)) == 1  # the thread lives on


def test_wait_tells_what_is_finished() -> None:
    go = threading.Event()

    def held(number: int) -> int:
        go.wait(30)
        return number

    with LocalTasks(2) as tasks:
        slow, quick, wrong = tasks.submit(held, 1), tasks.submit(add, 2), tasks.submit(refuse)
        finished, others = tasks.wait([slow, quick, wrong], count=2)
        assert (finished, others) == ([quick, wrong], [slow])
        go.set()
        assert tasks.wait([slow, quick], count=2) == ([slow, quick], [])
        assert tasks.wait([], count=1) == ([], [])
        assert tasks.wait([quick], count=9) == ([quick], [])


def gone(seen: list[weakref.ref[Thing]], wanted: list[bool]) -> bool:
    """Whether these things are gone, when the threads have put away what they did last."""
    for _ in range(500):
        if [one() is None for one in seen] == wanted:
            return True
        time.sleep(0.01)
    return False


def test_results_are_let_go_with_their_references(tasks: LocalTasks) -> None:
    seen: list[weakref.ref[Thing]] = []

    def make() -> tuple[Thing, Thing]:
        things = Thing(), Thing()
        seen.extend(weakref.ref(thing) for thing in things)
        return things

    first, second = tasks.submit(make, returns=2)
    used = tasks.submit(lambda thing: type(thing).__name__, second)
    assert tasks.get(used) == "Thing"
    del second
    assert gone(seen, [False, True])
    del first
    assert gone(seen, [True, True])


def test_closing_drops_what_has_not_begun() -> None:
    go, begun = threading.Event(), threading.Event()
    ran: list[int] = []

    def held() -> int:
        begun.set()
        go.wait(30)
        return 1

    tasks = LocalTasks(1)
    first, second = tasks.submit(held), tasks.submit(ran.append, 2)
    begun.wait(30)
    threading.Timer(0.05, go.set).start()
    tasks.close()
    assert first.result() == 1
    assert second.cancelled()
    assert ran == []
