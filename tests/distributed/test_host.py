"""A host: parts of one process, called together; changes taken back where the caller does not know of them."""

from __future__ import annotations

import signal
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from considerate.distributed.pools import PartitionHost, PerPart, in_order, size_of
from considerate.fitting.stopping import held_interrupts
from tests.helpers.ray_cluster import Tally, downs, expected_tally, together

PARTS = 5


def host(threads: int = 1, first: int = 0, last: int = PARTS) -> PartitionHost:
    return PartitionHost.built(Tally, {"parts": PARTS}, {number: number for number in range(first, last)}, threads)


def add_number(part: Tally, amount: float, own: float) -> float:
    return part.number + amount + own


threaded = pytest.mark.parametrize("threads", [1, 3])


@threaded
def test_calls_reach_every_part_in_order(threads: int) -> None:
    made = host(threads)
    answer, work = made.call(0, "look")
    assert [int(np.nanmax(one)) for one in answer] == list(range(PARTS))
    assert sorted(work.parts) == list(range(PARTS))
    assert work.seconds >= max(work.parts.values()) > 0
    answer, _ = made.call(0, add_number, (100.0, PerPart([0.0, 0.1, 0.2, 0.3, 0.4])))
    np.testing.assert_allclose(answer, 100.0 + 1.1 * np.arange(PARTS))
    made.close()


@threaded
def test_changes_are_counted_and_merged(threads: int) -> None:
    made, sent = host(threads), downs(3)
    for position, down in enumerate(sent):
        answer, _ = made.call(position, "visit", (down,), together, changes=True)
    np.testing.assert_array_equal(answer, expected_tally(PARTS, sent))
    assert made.position == 3
    made.close()


@threaded
def test_a_change_that_the_caller_does_not_know_of_is_taken_back(threads: int) -> None:
    made, sent = host(threads), downs(3)
    made.call(0, "visit", (sent[0],), together, changes=True)
    made.call(1, "visit", (sent[2],), together, changes=True)  # of which the caller never hears
    answer, _ = made.call(1, "look", (), together)
    np.testing.assert_array_equal(answer, expected_tally(PARTS, sent[:1]))
    made.call(1, "visit", (sent[2],), together, changes=True)
    answer, _ = made.call(1, "visit", (sent[1],), together, changes=True)
    np.testing.assert_array_equal(answer, expected_tally(PARTS, sent[:2]))
    with pytest.raises(RuntimeError, match="have seen 2 changes, not 0"):
        made.call(0, "look")
    with pytest.raises(RuntimeError, match="have seen 2 changes, not 3"):
        made.call(3, "look")
    made.close()


@threaded
def test_where_a_part_fails_none_has_changed(threads: int) -> None:
    made, sent = host(threads), downs(2)
    made.call(0, "visit", (sent[0],), together, changes=True)
    for number in (0, 2, PARTS - 1):
        with pytest.raises(ZeroDivisionError, match=f"part {number}"):
            made.call(1, "fail", (number,), changes=True)
        answer, _ = made.call(1, "look", (), together)
        np.testing.assert_array_equal(answer, expected_tally(PARTS, sent[:1]))

    def refuse(one: Any, other: Any) -> Any:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        made.call(1, "visit", (sent[1],), refuse, changes=True)
    answer, _ = made.call(1, "look", (), together)
    np.testing.assert_array_equal(answer, expected_tally(PARTS, sent[:1]))
    made.close()


@threaded
def test_snapshots_come_back_at_their_position(threads: int) -> None:
    made, sent = host(threads), downs(3)
    kept: dict[int, Any] = {}

    def write(number: int, state: Any) -> str:
        kept[number] = {name: array.copy() for name, array in state.items()}
        return f"part-{number}"

    made.call(0, "visit", (sent[0],), together, changes=True)
    made.call(1, "visit", (sent[2],), together, changes=True)
    assert made.snapshot(1, write) == [f"part-{number}" for number in range(PARTS)]  # the second was taken back
    other = host(threads)
    other.restore(1, kept.__getitem__)
    answer, _ = other.call(1, "visit", (sent[1],), together, changes=True)
    np.testing.assert_array_equal(answer, expected_tally(PARTS, sent[:2]))
    made.close()
    other.close()


def test_few_answers_are_held_at_once() -> None:
    class Large:
        held = most = 0

        def __init__(self) -> None:
            Large.held += 1
            Large.most = max(Large.most, Large.held)

        def __del__(self) -> None:
            Large.held -= 1

    def slow_first(part: Tally) -> Large:
        time.sleep(0.2 if part.number == 0 else 0.0)
        return Large()

    made = PartitionHost.built(Tally, {"parts": 64}, {number: number for number in range(64)}, 2)
    made.call(0, slow_first, (), lambda one, other: one)
    assert Large.most <= 6
    made.close()


def test_sizes_are_those_of_what_is_sent() -> None:
    array = np.zeros((1000, 7), np.float32)
    assert array.nbytes < size_of(array) < array.nbytes + 500
    assert size_of({"a": array, "b": array[:10]}) >= array.nbytes + array[:10].nbytes
    assert size_of(np.asfortranarray(array)) >= array.nbytes
    assert size_of(3) < 20


# --- Ctrl-C ---


def press_ctrl_c() -> None:
    ident = threading.main_thread().ident
    assert ident is not None
    signal.pthread_kill(ident, signal.SIGINT)


def test_a_second_ctrl_c_waits_for_what_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    winding_down, ended = threading.Event(), []
    cancel = Future.cancel

    def told(future: Future[Any]) -> bool:
        winding_down.set()
        return cancel(future)

    monkeypatch.setattr(Future, "cancel", told)

    started = threading.Barrier(2)

    def work(number: int) -> None:
        started.wait(60)
        while number == 0 and not winding_down.wait(0.05):
            press_ctrl_c()  # again: one that comes just before the main thread waits is seen only when it wakes
        assert winding_down.wait(60)
        press_ctrl_c()
        ended.append(number)

    with ThreadPoolExecutor(2) as pool:
        with pytest.raises(KeyboardInterrupt), closing(in_order(pool, 2, work, range(2))) as answers:
            list(answers)
        assert sorted(ended) == [0, 1]


def test_ctrl_c_is_held_back_to_the_end_of_a_block() -> None:
    reached = []

    def interrupted_twice() -> None:
        with held_interrupts():
            press_ctrl_c()
            press_ctrl_c()
            reached.append(1)

    with pytest.raises(KeyboardInterrupt):
        interrupted_twice()
    assert reached == [1]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
