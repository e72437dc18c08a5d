"""The n-th write, fsync, rename, open, unlink or large allocation fails: the old or the new model is whole, one
sentence is printed, and nothing is left behind. `make test` takes some n, `make test-long` all."""

from __future__ import annotations

import builtins
import hashlib
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from considerate import Recommender, cli
from considerate.errors import ConsiderateError
from considerate.service.events import EventStore, NewEvent
from considerate.service.metrics import Metrics
from tests.helpers.likes import as_table, planted
from tests.helpers.randomised import LONG
from tests.storage.faults.driver import CALLS

HERE = Path(__file__).parent / "faults"
FIT = ("fit", "WORK/likes.parquet", "-o", "WORK/model", "--factors", "3", "--sweeps", "4", "--threads", "1")
OPERATIONS: dict[str, tuple[str, ...]] = {
    "save": FIT,
    "checkpoint": (*FIT, "--checkpoint", "WORK/kept", "--checkpoint-every", "2"),
    "update": ("update", "WORK/model", "WORK/new.csv", "-o", "WORK/model"),
    "forget": ("forget", "WORK/model", "u1", "-o", "WORK/model"),
    "forget-shards": ("forget", "WORK/shards", "u1", "-o", "WORK/shards"),
    "refit": ("refit", "WORK/model", "--events", "WORK/events.db", "--how", "update"),
    "events": ("events",),
}
Run = dict[str, Any]  # name, number, code, whether a call failed, what was printed


@dataclass(frozen=True)
class Series:
    """An operation, and the calls of one kind that fail in it, run by run; None: each of them."""

    operation: str
    call: str
    numbers: list[int] | None = None
    for_good: bool = False  # whether all later calls fail too

    @property
    def name(self) -> str:
        return f"{self.operation}-{self.call}{'-on' if self.for_good else ''}"


SHARE = [Series("save", "write", [0, 3]), Series("forget-shards", "write", [0, 4]), Series("events", "fsync", [2])]


@dataclass(frozen=True)
class Faults:
    """The shim, and a folder with a model, its shards, likes and events."""

    shim: Path
    pristine: Path
    results: Path

    def runs(self, series: list[Series]) -> list[Run]:
        """All runs of some series, in order."""
        shutil.rmtree(self.results, ignore_errors=True)
        self.results.mkdir()
        folders = {"pristine": self.pristine, "work": self.results.parent / "work", "results": self.results}
        request: dict[str, Any] = {name: str(path) for name, path in folders.items()}
        request["series"] = [vars(one) | {"name": one.name, "operation": OPERATIONS[one.operation]} for one in series]
        environment = {"LD_PRELOAD": str(self.shim), "ARROW_DEFAULT_MEMORY_POOL": "system", "COLUMNS": "1000"}
        done = subprocess.run(
            [sys.executable, str(HERE / "driver.py"), json.dumps(request)],
            env=os.environ | environment | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=1700,
        )
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Faults:
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("failing calls need Linux and a C compiler")
    folder = tmp_path_factory.mktemp("faults")
    shim, pristine = folder / "failing.so", folder / "pristine"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", shim, HERE / "failing.c", "-ldl"], check=True)
    pristine.mkdir()
    likes = as_table(planted(users=40, items=25))
    import pyarrow.parquet as pq

    pq.write_table(likes, pristine / "likes.parquet")
    model = Recommender(factors=3, sweeps=2, seed=9, threads=1).fit(likes)
    model.save(pristine / "model")
    model.save(pristine / "shards", shards=3)
    (pristine / "new.csv").write_text("user,item\nu2,i3\nnew,i4\nnew,i5\n")
    store = EventStore(str(pristine / "events.db"), Metrics())
    store.append([NewEvent(f"u{k % 7}", f"i{k % 9}", "like", None) for k in range(40)], lambda result, error: None)
    store.close()
    return Faults(shim, pristine, folder / "results")


def digest(path: Path) -> str:
    """Hash of what a model answers and knows."""
    model = Recommender.load(path, verify=True)
    content = hashlib.sha256(json.dumps([*map(str, model.user_ids()), *map(str, model.item_ids())]).encode())
    content.update(np.ascontiguousarray(model.recommend_table(model.user_ids(), 3)["score"].to_numpy()).data)
    return content.hexdigest()


def names(folder: Path) -> set[str]:
    """Names of all files, without the parts that differ from run to run."""
    files = (str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    return {re.sub("[0-9a-f]{16}", "*", name) for name in files if not name.endswith(("-wal", "-shm"))}


def state(folder: Path) -> dict[str, str]:
    return {name: digest(folder / name) for name in ("model", "shards")}


def check_events(path: Path, printed: str) -> None:
    """Check that what was acknowledged is so, and that the file is sound."""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
        users = [user for (user,) in connection.execute("select user from events")]
    assert users.count("new") in ((2,) if re.search("^stored", printed, re.MULTILINE) else (0, 2))
    if re.search("^erased", printed, re.MULTILINE):
        assert "u1" not in users


def check(faults: Faults, one: Series, run: Run, new: dict[str, str], fresh: set[str]) -> None:
    """One run whose call failed."""
    folder, printed = faults.results / run["name"], run["output"]
    context = f"{run['name']}: {run['code']}\n{printed}"
    assert "Traceback" not in printed, context
    assert run["code"] in (0, 1, 2), context  # 2: data that memory cannot hold may be damaged
    if one.operation == "events":
        check_events(folder / "events.db", printed)
        return
    now = state(folder)
    assert now in ([new] if run["code"] == 0 else [state(faults.pristine), new]), context
    if run["code"]:
        assert re.search("^considerate: .*[.]$", printed, re.MULTILINE), context
    kept = {name for name in names(folder) if name.startswith("kept")}
    before, after = names(faults.pristine), {name for name in fresh if not name.startswith("kept")}
    left = names(folder) - kept - after
    if one.call == "unlink":  # a scratch folder that cannot be removed now is removed by a later run
        left = {name for name in left if not name.startswith(".considerate-parts-")}
    said = run["code"] and left and all(Path(name).name in printed for name in left)  # what could not be removed
    assert said or not left or names(folder) - kept == before, context
    assert not [name for name in kept if name.endswith(".tmp")], context


def examine(faults: Faults, series: list[Series]) -> int:
    """Check all runs of an operation; the number of those in which a call failed."""
    failed, wrong = 0, list[str]()
    new, fresh = dict[str, str](), set[str]()
    for run in faults.runs(series):
        one = next(one for one in series if run["name"] == f"{one.name}-{run['number']}")
        if run["number"] == 0 and one.operation != "events":
            assert run["code"] == 0, run["output"]
            new, fresh = state(faults.results / run["name"]), names(faults.results / run["name"])
        elif run["happened"]:
            failed += 1
            try:
                check(faults, one, run, new, fresh)
            except (AssertionError, ConsiderateError) as error:
                wrong.append(f"{run['name']}: {error}"[:2000])
    assert not wrong, "\n\n".join(wrong)
    return failed


@pytest.mark.slow
def test_some_failing_calls(faults: Faults) -> None:
    assert examine(faults, SHARE) == len(SHARE)


@pytest.mark.skipif(not LONG, reason="every n is for make test-long")
@pytest.mark.parametrize("for_good", [False, True])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_failing_call(faults: Faults, operation: str, for_good: bool) -> None:
    assert examine(faults, [Series(operation, call, None, for_good) for call in CALLS]) > 0


def test_no_memory_while_the_shell_is_imported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    importing = builtins.__import__

    def failing(name: str, *arguments: Any) -> Any:
        if name == "considerate.cli.program":
            raise MemoryError
        return importing(name, *arguments)

    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(builtins, "__import__", failing)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1
    assert capsys.readouterr().err == f"considerate: {cli.NO_MEMORY}\n"
