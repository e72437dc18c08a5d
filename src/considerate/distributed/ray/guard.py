"""Guard of a program that uses Ray: a process that reports why the program ended, and cleans up after it.

Ray's C++ code ends a program at once and silently if the Ray process of its machine (the raylet) or the head of the
cluster (the GCS) is gone. The guard runs this file as a script, so it imports the standard library alone.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress


class CrashGuard:
    """Child process that waits for this one to end. Closing it ends it silently."""

    def __init__(self, raylet: str, head: str, logs: str, folders: Iterable[str]) -> None:
        """`raylet` and `head` are addresses of Ray; unfinished `folders` are removed after a crash."""
        command = [sys.executable, "-I", "-S", __file__]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, start_new_session=True)
        assert self._process.stdin is not None
        setup = {"raylet": raylet, "head": head, "logs": logs, "folders": list(folders)}
        self._process.stdin.write(json.dumps(setup) + "\n")
        self._process.stdin.flush()

    def close(self) -> None:
        with suppress(OSError, subprocess.TimeoutExpired):
            self._process.communicate("closed\n", timeout=10)


def answers(address: str) -> bool:
    """True if a process listens at a path of a Unix socket, or at HOST:PORT."""
    try:
        if address.startswith("/"):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(address)
        else:
            host, _, port = address.rpartition(":")
            socket.create_connection((host.strip("[]"), int(port)), timeout=2).close()
    except OSError:
        return False
    return True


def watch() -> None:
    """Wait until the program closes its guard, or ends without closing it."""
    setup = json.loads(sys.stdin.readline())
    if sys.stdin.readline():
        return
    for folder in setup["folders"]:
        shutil.rmtree(folder, ignore_errors=True)
    if not answers(setup["raylet"]) or not answers(setup["head"]):
        print(
            "considerate: Ray no longer answers (its raylet on this machine, or its head at "
            f"{setup['head']}, is gone), which ends the program; its logs are in {setup['logs']}. Go on from the last "
            "checkpoint with --resume, where there is one.",
            file=sys.stderr,
        )


if __name__ == "__main__":
    watch()
