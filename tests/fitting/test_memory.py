"""A fit that would not fit in memory is refused before it starts, with what would fit."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from considerate import Recommender
from considerate.data import read_interactions
from considerate.data.features import Features, FeatureTable
from considerate.data.graph import Graph
from considerate.data.side_information import SideInformation
from considerate.errors import MemoryLimitError, UsageError
from considerate.fitting.memory import WalkSize, available_memory, check_memory, feature_memory, needed_memory
from considerate.fitting.session import make_graph
from considerate.inference.plan import FitPlan
from tests.helpers.likes import planted
from tests.helpers.paths import ROOT

GB = 10**9
MIB = 2**20
PLAN = FitPlan.of_paper(factors=1024, negatives=3.0)


@pytest.fixture(scope="module")
def graph() -> Graph:
    return make_graph(read_interactions(planted(users=4000)))


# --- What a fit needs ---


def test_what_is_needed_grows_with_everything() -> None:
    plan = replace(PLAN, factors=20)
    base = needed_memory(10**6, 10**5, 10**8, plan)
    assert base > (4 + 3 * 4) * 10**8  # G and H are in memory at once
    assert needed_memory(2 * 10**6, 10**5, 10**8, plan) > base
    assert needed_memory(10**6, 2 * 10**5, 10**8, plan) > base
    assert needed_memory(10**6, 10**5, 2 * 10**8, plan) > base
    assert needed_memory(10**6, 10**5, 10**8, replace(plan, factors=40)) > base
    assert needed_memory(10**6, 10**5, 10**8, replace(plan, negatives=6.0)) > base
    assert needed_memory(1000, 50, 20_000, replace(plan, negatives=1000.0)) < 50e6  # no more than there are pairs
    closed = replace(plan, hidden="expected")
    expected = needed_memory(10**6, 10**5, 10**8, closed)
    assert needed_memory(10**6, 10**5, 10**8, replace(closed, negatives=900.0)) == expected
    assert needed_memory(10**6, 10**5, 10**8, replace(closed, groups=64)) > expected
    walk = replace(plan, consideration="walk")
    walked = needed_memory(10**6, 10**5, 10**8, walk)
    assert walked - base == pytest.approx(1.05 * 20 * 500 * 10**5, rel=0.02)  # of an entry: 8 bytes, 12 for its slot
    assert needed_memory(10**6, 10**5, 10**8, replace(walk, neighbours=600)) > walked
    small = WalkSize(steps=10**6, entries=10**6, items=10**5)
    assert needed_memory(10**6, 10**5, 10**8, walk, small) - base == pytest.approx(20 * 10**6, rel=0.2)
    assert needed_memory(10**6, 10**5, 10**8, replace(closed, consideration="walk")) > expected


CASES = {
    "sampled": (60_000, 80_000, 600_000, 16, "sampled", 2.0),
    "expected": (60_000, 20_000, 600_000, 16, "expected", 2.0),
    "walk": (20_000, 30_000, 300_000, 8, "walk", 2.0),
}


def test_features_count() -> None:
    """Above 1,024 there is no matrix of F x F."""
    plan = FitPlan.of_paper(factors=20)

    def of(rows: int, count: int) -> SideInformation:
        table = Features(np.arange(rows + 1), np.zeros(rows, np.int32), np.ones(rows, np.float32), ("",) * count)
        return SideInformation(item_features=FeatureTable(table, None))

    base = feature_memory(of(1000, 100), 10**6, 10**5, plan)
    assert feature_memory(SideInformation(), 10**6, 10**5, plan) == 0
    assert base < feature_memory(of(1000, 100), 10**6, 10**6, plan)
    full, factorised = (feature_memory(of(1000, count), 10**6, 10**5, plan) for count in (1024, 1025))
    assert full > factorised + 20e6
    check_memory(scipy.sparse.csr_matrix(np.eye(3)), plan, available=10**9)
    with pytest.raises(MemoryLimitError, match="This fit needs about"):
        check_memory(scipy.sparse.csr_matrix(np.eye(3)), plan, 10**9, side=of(3, 10**7))


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the memory of a process is Linux's to say")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_estimate_is_near_the_peak_of_a_fit(case: tuple[Any, ...]) -> None:
    """Of a process, above what it held before; `python -m benchmarks memory` has larger sizes."""
    code = f"from benchmarks.memory import fit; print(fit(*{case}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    row = ast.literal_eval(done.stdout)
    assert 0.9 < row["estimate MB"] / row["peak MB"] < 1.2


def test_the_walks_steps_are_counted_where_the_graph_is_known() -> None:
    """One very active user: the walk's rows cost what that user's likes do."""
    plan = FitPlan.of_paper(factors=1, consideration="walk", neighbours=10_000, threads=1)
    rows = np.append(np.zeros(3000, np.int32), np.arange(1, 3001, dtype=np.int32))
    active = Graph.from_pairs(rows, np.tile(np.arange(3000, dtype=np.int32), 2), 3001, 3000)
    free = needed_memory(3001, 3000, 6000, plan)  # as if the likes were spread over all users
    check_memory(active, replace(plan, consideration="popularity"), available=free)
    with pytest.raises(MemoryLimitError):
        check_memory(active, plan, available=free)


def test_refused_with_what_would_fit(graph: Graph) -> None:
    sizes = graph.user_count, graph.item_count, graph.edges
    needed, held = needed_memory(*sizes, PLAN), 8 * graph.edges + 16 * (graph.user_count + graph.item_count)
    check_memory(graph, PLAN, available=needed - held)
    with pytest.raises(MemoryLimitError, match=r"needs about 0\.\d GB and 0\.\d GB are free; factors=\d+ would fit"):
        check_memory(graph, PLAN, available=needed - held - 1)
    with pytest.raises(MemoryLimitError) as caught:
        check_memory(graph, PLAN, available=needed * 3 // 4)
    fitting = re.search(r"factors=(\d+) would fit", str(caught.value))
    assert fitting is not None
    factors = int(fitting.group(1))
    check_memory(graph, replace(PLAN, factors=factors), available=needed * 3 // 4)
    with pytest.raises(MemoryLimitError):
        check_memory(graph, replace(PLAN, factors=factors + 8), available=needed * 3 // 4)
    with pytest.raises(MemoryLimitError, match="a machine with more memory is needed"):
        check_memory(graph, replace(PLAN, factors=20), available=1000)
    many = replace(PLAN, factors=8, negatives=50.0, groups=1)
    with pytest.raises(MemoryLimitError, match="hidden='expected' would fit"):
        check_memory(graph, many, available=needed_memory(*sizes, replace(many, hidden="expected")) - held)


def test_sources_of_unknown_size_are_checked_when_they_are_read() -> None:
    check_memory("likes.csv", PLAN, available=0)
    with pytest.raises(MemoryLimitError):
        check_memory(read_interactions(planted()), PLAN, available=0)


@pytest.mark.parametrize("shape", [(300_000_000, 10), (10**9, 10**9)])
def test_a_matrix_too_large_is_refused_before_it_is_read(
    shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONSIDERATE_MEMORY", "8GB")
    matrix = scipy.sparse.coo_matrix(([1.0, 1.0], ([0, 1], [0, 1])), shape)
    tracemalloc.start()
    with pytest.raises(MemoryLimitError, match=r"needs about \d+\.\d GB and 8\.0 GB are free"):
        Recommender(factors=8).fit(matrix)
    assert tracemalloc.get_traced_memory()[1] < 10**7
    tracemalloc.stop()


def test_a_refused_fit_keeps_the_model_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    recommender = Recommender(factors=4, sweeps=3).fit(planted())
    monkeypatch.setattr("considerate.fitting.memory.available_memory", lambda: 10_000)
    with pytest.raises(MemoryLimitError, match="GB are free"):
        recommender.fit(planted(seed=1))
    assert recommender.recommend(0)[0].shape == (10,)
    monkeypatch.setattr("considerate.fitting.memory.available_memory", lambda: None)
    recommender.fit(planted(seed=1))  # a system that does not say is not refused


def test_memory_that_runs_out_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*_: object) -> None:
        raise MemoryError("std::bad_alloc")

    monkeypatch.setattr("considerate.kernels.compiled.sort_pairs", no_room)
    with pytest.raises(MemoryLimitError, match=r"ran out of memory \(std::bad_alloc\); fewer factors"):
        Recommender(factors=4).fit(planted())


# --- What there is ---


class Machine:
    """A fake /proc and /sys."""

    def __init__(self, root: Path, available: int = 64 * GB) -> None:
        self.root = root
        self.write("proc/meminfo", f"MemTotal: 99999999 kB\nMemAvailable: {available // 1024} kB\n")

    def write(self, path: str, text: object) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")

    def cgroup(self, own: str, *mounts: str) -> None:
        self.write("proc/self/cgroup", own)
        self.write("proc/self/mountinfo", "\n".join(mounts))

    def v2(self, folder: str, limit: object, used: int, cache: int = 0, high: object = "max") -> None:
        for name, value in (("max", limit), ("high", high), ("current", used)):
            self.write(f"sys/fs/cgroup{folder}/memory.{name}", value)
        self.write(
            f"sys/fs/cgroup{folder}/memory.stat",
            f"anon 5\ninactive_file {cache - cache // 4}\nactive_file {cache // 4}",
        )

    def v1(self, folder: str, limit: int, used: int, cache: int = 0) -> None:
        self.write(f"sys/fs/cgroup/memory{folder}/memory.limit_in_bytes", limit)
        self.write(f"sys/fs/cgroup/memory{folder}/memory.usage_in_bytes", used)
        self.write(
            f"sys/fs/cgroup/memory{folder}/memory.stat",
            f"inactive_file 1\ntotal_inactive_file {cache - cache // 4}\ntotal_active_file {cache // 4}",
        )

    def free(self) -> int | None:
        return available_memory(self.root)


V2 = "31 23 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate"
V1 = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory"
UNLIMITED_V1 = 9223372036854771712


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.delenv("CONSIDERATE_MEMORY", raising=False)
    return Machine(tmp_path)


def test_without_limits_it_is_what_the_machine_has(machine: Machine) -> None:
    assert machine.free() == 64 * GB
    machine.cgroup("0::/user.slice", V2)
    machine.v2("/user.slice", "max", 3 * GB)
    assert machine.free() == 64 * GB


def test_pages_of_files_do_not_count_as_used(machine: Machine) -> None:
    machine.cgroup("0::/", V2)
    machine.v2("", 8 * GB, 7 * GB, cache=5 * GB)
    assert machine.free() == 6 * GB
    machine.v2("", 8 * GB, 7 * GB, cache=5 * GB, high=4 * GB)
    assert machine.free() == 2 * GB


@pytest.mark.parametrize("tightest", ["", "/pods", "/pods/one"])
def test_the_tightest_of_nested_cgroups_counts(machine: Machine, tightest: str) -> None:
    machine.cgroup("0::/pods/one", V2)
    for folder in ("", "/pods", "/pods/one"):
        machine.v2(folder, 5 * GB if folder == tightest else 9 * GB, 2 * GB)
    machine.v2("/pods/other", 1, 1)  # not ours
    assert machine.free() == 3 * GB


def test_version_1_and_the_path_of_a_container(machine: Machine) -> None:
    machine.cgroup("4:memory:/docker/abc\n0::/", V1, V1.replace("memory", "cpu"))
    machine.v1("", UNLIMITED_V1, 9 * GB)
    machine.v1("/docker", 7 * GB, 5 * GB, cache=1 * GB)
    machine.v1("/docker/abc", 6 * GB, 1 * GB)
    assert machine.free() == 3 * GB
    # Inside the container its own folder is mounted, and the path is still the host's.
    inside = V1.replace(" / /sys", " /docker/abc /sys")
    machine.cgroup("4:memory:/docker/abc", inside)
    machine.v1("", 6 * GB, 2 * GB)
    assert machine.free() == 4 * GB
    machine.cgroup("4:memory:/elsewhere", inside)
    assert machine.free() == 4 * GB


def test_a_limit_that_is_exceeded_leaves_nothing(machine: Machine) -> None:
    machine.cgroup("0::/", V2)
    machine.v2("", 2 * GB, 3 * GB)
    assert machine.free() == 0


def test_the_variable_overrides_the_system(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    for text, size in (("12GB", 12 * GB), ("1.5 gib", 1536 * MIB), ("1000", 1000), ("unlimited", None)):
        monkeypatch.setenv("CONSIDERATE_MEMORY", text)
        assert machine.free() == size
    monkeypatch.setenv("CONSIDERATE_MEMORY", "plenty")
    with pytest.raises(UsageError, match="'plenty'; it must be a size such as 12GB"):
        machine.free()


def test_the_memory_of_this_machine_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CONSIDERATE_MEMORY", raising=False)
    available = available_memory()
    assert available is None or 10**6 < available < 10**15


@pytest.mark.skipif(shutil.which("prlimit") is None, reason="prlimit is a tool of Linux")
def test_a_limit_of_the_process_is_respected() -> None:
    code = """
import os, scipy.sparse
from considerate import Recommender
from considerate.errors import MemoryLimitError
from considerate.fitting.memory import available_memory
matrix = scipy.sparse.coo_matrix(([1.0] * 50, (range(50), [i % 7 for i in range(50)])), (2_000_000, 10))
print(available_memory())
for variable in ("", "unlimited"):
    os.environ["CONSIDERATE_MEMORY"] = variable
    try:
        Recommender(factors=64, sweeps=1, threads=1).fit(matrix)
    except MemoryLimitError as error:
        print(error)
"""
    limited = ["prlimit", f"--data={900 * MIB}", sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(limited, capture_output=True, text=True, check=True, timeout=120)
    available, refused, stopped = done.stdout.splitlines()
    assert 0 < int(available) < 900 * MIB
    assert "GB are free" in refused
    assert "ran out of memory" in stopped
