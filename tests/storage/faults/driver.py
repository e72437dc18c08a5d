"""Run operations again and again, each time with another call that fails: a process with failing.c preloaded.

    python driver.py '{"pristine": ..., "work": ..., "results": ..., "series": [{"name": "save", ...}]}'

For each number of a series the folder `work` is made anew from `pristine`, a fork runs the operation, and the folder is
kept as `results/<name>-<number>`. A line of JSON tells how the fork ended. No call fails for the number 0. A series
without numbers has 0, 1, ... until no call is left to fail.
"""

from __future__ import annotations

import ctypes
import errno
import importlib
import json
import mmap
import os
import queue
import shutil
import sys
import traceback
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow.compute

CALLS = ["write", "fsync", "rename", "open", "unlink", "allocate"]
CODES = {"write": errno.ENOSPC, "open": errno.EACCES, "allocate": errno.ENOMEM}  # EIO of others
LOADED = [
    *(f"considerate.cli.{name}" for name in ("program", "fit", "forget", "refit", "update", "screen")),
    *("considerate.recommender", "considerate.service.refit", "considerate.fitting.update"),
    *("pyarrow.csv", "pyarrow.compute", "pyarrow.dataset", "pyarrow.parquet", "scipy.special", "scipy.sparse"),
    *("considerate.fitting.driver", "considerate.fitting.in_memory", "considerate.model.answers"),
]


def main() -> None:
    asked = json.loads(sys.argv[1])
    for module in LOADED:
        importlib.import_module(module)
    pyarrow.compute.utf8_trim_whitespace(
        ""
    )  # makes Arrow's tables of letters, and where these find no room Arrow aborts
    for series in asked["series"]:
        for number in series["numbers"] or count():
            happened = one_run(asked, series, number)
            if number and not happened:
                break


def one_run(asked: dict[str, Any], series: dict[str, Any], number: int) -> bool:
    """Run an operation in a fork whose n-th call fails; whether there was such a call."""
    work, name = asked["work"], f"{series['name']}-{number}"
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(asked["pristine"], work)
    counter, log = ctypes.c_long.from_buffer(mmap.mmap(-1, 8)), Path(asked["results"], f"{name}.log")
    child = os.fork()
    if not child:
        code = 70
        try:
            output = os.open(log, os.O_WRONLY | os.O_CREAT)
            os.dup2(output, 1)
            os.dup2(output, 2)
            how = CODES.get(series["call"], errno.EIO), series["for_good"], f"{work}/".encode(), ctypes.byref(counter)
            ctypes.CDLL(None).faults_arm(CALLS.index(series["call"]), ctypes.c_long(number), *how)
            code = run(series["operation"], work)
            sys.stdout.flush()
            sys.stderr.flush()
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.rename(work, Path(asked["results"], name))
    happened = counter.value >= number > 0
    line = {"name": name, "number": number, "code": code, "happened": happened}
    print(json.dumps(line | {"output": log.read_text(errors="replace")}), flush=True)
    return happened


def run(operation: list[str], work: str) -> int:
    """The exit code of a command of the shell, or of what is done to a file of events."""
    if operation == ["events"]:
        return store_and_erase(f"{work}/events.db")
    from considerate.cli import main as considerate

    sys.argv = ["considerate", *(word.replace("WORK", work) for word in operation)]
    try:
        considerate()
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def store_and_erase(path: str) -> int:
    """Store two events and erase a user; prints what was acknowledged."""
    from considerate.errors import ConsiderateError
    from considerate.service.events import EventStore, NewEvent
    from considerate.service.metrics import Metrics

    try:
        store = EventStore(path, Metrics())
    except ConsiderateError as error:
        print(error, file=sys.stderr)
        return 1
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
    failed = False
    jobs = {
        "stored": lambda done: store.append([NewEvent("new", f"i{k}", "like", None) for k in range(2)], done),
        "erased": lambda done: store.erase("u1", done),
    }
    for name, job in jobs.items():
        job(lambda result, error: answers.put(error))
        error = answers.get(timeout=60)
        print(name if error is None else f"not {name}: {error}")
        failed = failed or error is not None
    store.close()
    return int(failed)


if __name__ == "__main__":
    main()
