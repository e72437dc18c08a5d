"""Ray: started and stopped, tasks, and calls to parts that live with workers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from considerate.distributed.backends.ray import RayBackend
from considerate.distributed.pools import PerPart, size_of
from considerate.errors import ClusterError, DataError, UsageError
from tests.helpers import ray_cluster
from tests.helpers.paths import ROOT
from tests.helpers.ray_cluster import Tally, alive, downs, expected_tally, start_shared_ray, together

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
def pool(session: RaySession) -> Iterator[Any]:
    made = session.make_pool(Tally, {"parts": PARTS}, [session.tasks.put(0), *range(1, PARTS)])
    yield made
    made.close()


# --- Starting and stopping ---


def test_settings_are_checked() -> None:
    for wrong in ({"workers": 0}, {"threads": 1.5}, {"max_restarts": -1}, {"patience": "long"}, {"division": "half"}):
        with pytest.raises(UsageError, match=f"^{next(iter(wrong))} is .*; it must be .*"):
            RayBackend(**wrong)
    assert RayBackend("auto", 3, patience=0).workers == 3
    with pytest.raises(UsageError, match="not that of a Ray Client"):
        RayBackend(address="ray://head:10001")


def test_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"pip install 'considerate\[ray\]'"):
        RayBackend().open()


def test_too_few_processors_are_said_in_one_sentence_and_a_ray_in_use_is_left_alone(session: RaySession) -> None:
    with pytest.raises(ClusterError) as caught:
        RayBackend(workers=50, threads=2, patience=0.1).open()
    assert str(caught.value) == (
        "50 workers of 2 threads found no room within 0.1 s on 1 node with 6 processors, 6 on the largest and 3 free "
        "in all; ask for fewer workers or threads, or add nodes."
    )
    assert session.tasks.get(session.tasks.submit(abs, -3)) == 3


SESSION = """
import json, os, ray, signal, sys, time
from considerate.distributed.backends.ray import RayBackend
from considerate.storage.files import folder_beside

def kill(name):
    os.kill(ray._private.worker._global_node.all_processes[name][0].process.pid, signal.SIGKILL)
    while True:
        session.tasks.put(bytes(10**6))

with folder_beside(sys.argv[1]) as folder:
    os.mkdir(folder)
    session = RayBackend(workers=1, threads=1).open()
    pid = session.tasks.get(session.tasks.submit(os.getpid))
    told = {"worker": pid, "session": session._session, "described": session.describe()}
    print(json.dumps(told | {"address": ray.nodes()[0]["NodeManagerAddress"]}), flush=True)
    END
"""


def run_session(end: str, folder: Path) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """What a process of its own printed that session a Ray, beside an unfinished folder, and ended in some way."""
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", SESSION.replace("END", end), str(folder / "model")],
        capture_output=True,
        text=True,
        timeout=250,
        env=os.environ | {"RAY_gcs_rpc_server_reconnect_timeout_s": "1"},
        check=False,
    )
    assert done.stdout, done.stderr
    return done, json.loads(done.stdout.splitlines()[0])


def test_a_ray_that_was_started_is_stopped_even_where_nobody_closes_it(tmp_path: Path) -> None:
    done, told = run_session("raise SystemExit(3)", tmp_path / "out")
    assert done.returncode == 3
    assert done.stderr == ""  # not a word of Ray's own
    assert len(done.stdout.splitlines()) == 1
    assert not alive(told["worker"])
    assert not Path(told["session"]).exists()
    assert told["described"] == f"a local Ray {ray.__version__}: 1 worker of 1 thread"
    if sys.platform == "linux":
        assert told["address"] == "127.0.0.2"


@pytest.mark.parametrize("process", ["raylet", "gcs_server"])
def test_a_ray_that_dies_ends_the_program_with_one_sentence_and_nothing_left(process: str, tmp_path: Path) -> None:
    done, _ = run_session(f"kill({process!r})", tmp_path / "out")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("considerate: Ray no longer answers (its raylet on this machine, or")
    assert done.stderr.count("considerate: ") == 1
    assert os.listdir(tmp_path / "out") == []


# --- Tasks ---


def both(numbers: list[int], one: int) -> tuple[int, int]:
    return sum(numbers), one


def refuse() -> None:
    raise DataError("no column 'user'.")


def test_tasks_are_given_what_references_stand_for(session: RaySession) -> None:
    tasks = session.tasks
    seven = tasks.put(7)
    first, second = tasks.submit(both, [seven, 2, tasks.submit(abs, -1)], seven, returns=2)
    assert tasks.get(first) == 10
    assert tasks.get([second, seven]) == [7, 7]
    assert tasks.get([]) == []
    assert tasks.get(tasks.submit(both, [], 3)) == (0, 3)
    with pytest.raises(ValueError, match="gave 2 results; 3 were announced"):
        tasks.get(tasks.submit(both, [], 3, returns=3))


def test_tasks_raise_what_the_function_raised(session: RaySession) -> None:
    ref = session.tasks.submit(refuse)
    with pytest.raises(DataError, match=r"^no column 'user'\.$"):
        session.tasks.get(ref)
    finished, others = session.tasks.wait([ref])
    assert (finished, others) == ([ref], [])


def test_waiting_for_the_first(session: RaySession) -> None:
    tasks = session.tasks
    slow, quick = tasks.submit(time.sleep, 300.0), tasks.submit(abs, -1)
    assert tasks.wait([slow, quick]) == ([quick], [slow])
    assert tasks.wait([]) == ([], [])
    ray.cancel(slow, force=True)


# --- Calls ---


def test_parts_are_spread_over_workers_in_subtrees(pool: Any) -> None:
    assert [handle.parts for handle in pool.workers.all] == [(0, 1, 6), (2, 3), (4, 5)]
    pids = pool.call("pid")
    assert len(set(pids)) == 3
    assert pids == [pool.workers.all[worker].location.pid for worker in (0, 0, 1, 1, 2, 2, 0)]
    assert os.getpid() not in pids


def own_number(part: Tally, amount: int, own: int) -> tuple[int, int]:
    return part.number + amount, own


def test_each_part_is_given_its_own(session: RaySession, pool: Any) -> None:
    each = PerPart([session.tasks.put(-i) if i % 2 else -i for i in range(PARTS)])
    assert pool.call(own_number, 10, each) == [(10 + i, -i) for i in range(PARTS)]


def test_changes_have_the_bits_of_one_process(pool: Any) -> None:
    sent = downs(4)
    for down in sent:
        answer = pool.call("visit", pool.share(down), merge=together, changes=True)
    np.testing.assert_array_equal(answer, expected_tally(PARTS, sent))
    np.testing.assert_array_equal(pool.call("look", merge=together), answer)
    with pytest.raises(ZeroDivisionError, match="part 4"):
        pool.call("fail", 4, changes=True)
    np.testing.assert_array_equal(pool.call("look", merge=together), answer)


def one_answer(part: Tally, size: int) -> np.ndarray:
    return np.zeros(size)


def larger(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return np.zeros(max(len(one), len(other)))


def test_bytes_are_counted_from_what_is_sent(pool: Any) -> None:
    pool.report()
    message = np.zeros(5000)
    shared = pool.share(message)
    for _ in range(2):
        pool.call(lambda part, message: None, shared, merge=lambda a, b: None)
    report = pool.report()
    assert report.down == size_of(message)  # once for the one node there is
    pool.call(one_answer, 1000, merge=larger)
    report = pool.report()
    answer = size_of(np.zeros(1000))
    assert report.up == 3 * answer  # two go from worker to worker, and the merged one to the head
    assert report.down == 3 * size_of(1000)
    pool.call(one_answer, 1000)
    assert pool.report().up == pytest.approx(PARTS * answer, rel=0.02)
    assert pool.report().up == 0


def slow_part(part: Tally) -> None:
    time.sleep(0.3 if part.number == 5 else 0.0)


def test_the_slowest_is_reported(pool: Any) -> None:
    pool.report()
    pool.call(slow_part)
    report = pool.report()
    assert (np.argmax(report.workers), np.argmax(report.parts)) == (2, 5)
    assert str(report).startswith(f"slowest block 5 {report.parts[5]:.2f} s, worker 3 ")
    assert report.seconds >= report.workers[2] >= report.parts[5] >= 0.3
    assert report.workers[0] < 0.3
    assert report.replaced == 0


# --- Ctrl-C ---

INTERRUPTED = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import logging, threading
logging.basicConfig(level=logging.INFO)
import numpy as np
from tests.helpers import ray_cluster
from ray import cloudpickle
from tests.helpers.ray_cluster import Tally, downs, expected_tally, together
from considerate.distributed.backends.ray import RayBackend
cloudpickle.register_pickle_by_value(ray_cluster)
with RayBackend(workers=2).open() as session:
    pool = session.make_pool(Tally, {{"parts": 4}}, list(range(4)))
    sent = downs(3)
    pool.call("visit", sent[0], merge=together, changes=True)
    pids = pool.call("pid")
    print("ready", flush=True)
    try:
        threading.Timer(0.3, print, ("visiting",), {{"flush": True}}).start()
        pool.call("slow_visit", sent[2], 5.0, merge=together, changes=True)
    except KeyboardInterrupt:
        print("interrupted")
    same = np.array_equal(pool.call("look", merge=together), expected_tally(4, sent[:1]))
    answer = pool.call("visit", sent[1], merge=together, changes=True)
    print(same, np.array_equal(answer, expected_tally(4, sent[:2])), pool.call("pid") == pids)
"""


def test_ctrl_c_leaves_the_parts_as_after_the_last_finished_call() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    assert process.stdout.readline() == "visiting\n"
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to Ray's processes too
    said, errors = process.communicate(timeout=250)
    assert said.splitlines() == ["interrupted", "True True True"]
    assert (process.returncode, errors) == (0, "")
