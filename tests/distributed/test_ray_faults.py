"""Workers that are killed: replaced, brought back to where they were, with the same bits in the end."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from considerate.distributed.backends.ray import RayBackend
from considerate.distributed.pools import SinglePartCall
from considerate.errors import ClusterError
from tests.helpers import ray_cluster
from tests.helpers.ray_cluster import Tally, downs, expected_tally, kill_worker, start_shared_ray, together

if TYPE_CHECKING:
    from considerate.distributed.ray.session import RaySession

ray = pytest.importorskip("ray")

PARTS = 7


@pytest.fixture(scope="module")
def session() -> Iterator[RaySession]:
    start_shared_ray(ray_cluster, sys.modules[__name__])
    with RayBackend(workers=3, threads=1).open() as made:
        yield made


@pytest.fixture(scope="module")
def one_pool(session: RaySession) -> Iterator[Any]:
    made = session.make_pool(Tally, {"parts": PARTS}, list(range(PARTS)))
    yield made
    made.close()


@pytest.fixture
def pool(one_pool: Any) -> Any:
    """As it is made, as far as parts can tell."""
    one_pool.call("reset", changes=True)
    one_pool.report()
    return one_pool


def write(folder: Path, number: int, state: Mapping[str, np.ndarray]) -> str:
    np.save(folder / f"{number}.npy", state["values"])
    return f"{number}.npy"


def read(folder: Path, number: int) -> dict[str, np.ndarray]:
    return {"values": np.load(folder / f"{number}.npy")}


# --- Toy parts: what is done when ---


@pytest.mark.parametrize("how", ["ray", "system"])
def test_a_worker_that_is_killed_is_replaced_and_replays(pool: Any, how: str, caplog: Any) -> None:
    sent = downs(4)
    with caplog.at_level(logging.WARNING, "considerate"):
        for i, down in enumerate(sent):
            if i == 2:
                before = pool.workers.all[1].location
                kill_worker(pool.workers.all[1], how)
            answer = pool.call("visit", pool.share(down), merge=together, changes=True)
    np.testing.assert_array_equal(answer, expected_tally(PARTS, sent))
    assert pool.workers.all[1].location.pid != before.pid
    assert pool.report().replaced == 1
    assert [record.getMessage() for record in caplog.records] == [
        "worker 2 of 3 was lost (its process was killed); it is replaced"
        if how == "ray"
        else "worker 2 of 3 was lost (its process died: killed, out of memory or crashed); it is replaced"
    ]


def test_after_a_snapshot_only_later_changes_are_replayed(pool: Any, tmp_path: Path) -> None:
    sent = downs(6)
    for i, down in enumerate(sent):
        if i == 3:
            names = pool.snapshot(partial(write, tmp_path), partial(read, tmp_path))
            assert names == [f"{number}.npy" for number in range(PARTS)]
        if i == 5:
            kill_worker(pool.workers.all[2], "ray")
        answer = pool.call("visit", down, merge=together, changes=True)
    np.testing.assert_array_equal(answer, expected_tally(PARTS, sent))
    assert pool.call("visited") == [6, 6, 6, 6, 3, 3, 6]  # two replayed and the one that was interrupted


def test_a_worker_killed_while_a_snapshot_is_taken(pool: Any, tmp_path: Path) -> None:
    sent = downs(2)
    pool.call("visit", sent[0], merge=together, changes=True)
    kill_worker(pool.workers.all[0], "ray")
    pool.snapshot(partial(write, tmp_path), partial(read, tmp_path))
    kill_worker(pool.workers.all[1], "ray")
    answer = pool.call("visit", sent[1], merge=together, changes=True)
    np.testing.assert_array_equal(answer, expected_tally(PARTS, sent))
    assert pool.call("visited") == [2, 2, 1, 1, 2, 2, 2]


def test_a_pool_starts_from_given_states(session: RaySession, pool: Any, tmp_path: Path) -> None:
    sent = downs(3)
    pool.call("visit", sent[0], merge=together, changes=True)
    pool.snapshot(partial(write, tmp_path))
    other = session.make_pool(Tally, {"parts": PARTS}, list(range(PARTS)), read=partial(read, tmp_path))
    for down in sent[1:]:
        answer = other.call("visit", down, merge=together, changes=True)
        kill_worker(other.workers.all[1], "ray")
    np.testing.assert_array_equal(answer, expected_tally(PARTS, sent))
    np.testing.assert_array_equal(other.call("look", merge=together), answer)
    other.close()


def test_a_call_of_one_part_alone(pool: Any) -> None:
    sent, shared = downs(2), pool.share(np.zeros(1000))
    pool.call("visit", sent[0], merge=together, changes=True)
    answers = pool.call(SinglePartCall(3, "visit"), sent[1], changes=True)
    assert [one is not None for one in answers] == [number == 3 for number in range(PARTS)]
    pool.report()
    pool.call(SinglePartCall(3, "ignore"), shared)
    assert pool.report().down == shared.size
    kill_worker(pool.workers.all[1], "ray")
    kill_worker(pool.workers.all[2], "ray")
    expected = expected_tally(PARTS, sent[:1])
    expected[3] = expected_tally(PARTS, sent)[3]
    np.testing.assert_array_equal(pool.call("look", merge=together), expected)


def test_answers_that_are_lost_before_they_are_merged_are_made_again(pool: Any, monkeypatch: Any) -> None:
    sent = downs(2)
    pool.call("visit", sent[0], merge=together, changes=True)
    merged, kills = pool._merged, [0, 0]  # the one that merges

    def kill_first(*arguments: Any) -> Any:
        if kills:
            kill_worker(pool.workers.all[kills.pop()], "ray")
        return merged(*arguments)

    monkeypatch.setattr(pool, "_merged", kill_first)
    answer = pool.call("visit", sent[1], merge=together, changes=True)
    np.testing.assert_array_equal(answer, expected_tally(PARTS, sent))
    assert kills == []
    assert pool.report().replaced == 2


def test_a_worker_that_dies_a_few_times_is_forgiven(pool: Any, tmp_path: Path) -> None:
    flag, sent = tmp_path / "deaths", downs(2)
    for down in sent:
        flag.write_bytes(b"xxx")  # as often as a worker is restarted
        answer = pool.call("die_while", str(flag), down, merge=together, changes=True)
    np.testing.assert_array_equal(answer, expected_tally(PARTS, sent))
    assert pool.report().replaced == 6


def test_a_worker_that_keeps_dying_ends_with_one_sentence(pool: Any, tmp_path: Path) -> None:
    flag, sent = tmp_path / "deaths", downs(2)
    pool.call("visit", sent[0], merge=together, changes=True)
    flag.write_bytes(b"xxxx")
    with pytest.raises(ClusterError) as caught:
        pool.call("die_while", str(flag), sent[1], merge=together, changes=True)
    assert str(caught.value) == (
        "Worker 1 of 3 was lost 4 times in a row (its process died: killed, out of memory or crashed), so the fit "
        "cannot go on; there is no checkpoint to go on from, --checkpoint FOLDER would keep one."
    )
    answer = pool.call("die_while", str(flag), sent[1], merge=together, changes=True)  # whatever it was is over
    np.testing.assert_array_equal(answer, expected_tally(PARTS, sent))
    flag.write_bytes(b"x")
    pool.workers.all[0].deaths = 3  # it holds the last part
    pool.name_checkpoint("/data/kept/sweep-000012")
    with pytest.raises(
        ClusterError, match="the last checkpoint is /data/kept/sweep-000012, go on from it with --resume"
    ):
        pool.call("die_while", str(flag), sent[1], merge=together, changes=True)
