"""A guard of a program that uses Ray: a process that says why the program ended, and clears up after it.

Ray's C++ code ends a program at once, without a word, where the Ray process of its machine (the raylet) or the head of
the cluster (the GCS) is gone. This file is also what the guard runs, so it imports the standard library alone.
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
    """A child process that waits for this one to end. Closing it ends it without a word."""

    def __init__(self, raylet: str, head: str, logs: str, folders: Iterable[str]) -> None:
        """`raylet` and `head` are addresses where Ray answers; unfinished `folders` are removed after a crash."""
        command = [sys.executable, "-I", "-S", __file__]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, start_new_session=True)
        assert self._process.stdin is not None
        told = {"raylet": raylet, "head": head, "logs": logs, "folders": list(folders)}
        self._process.stdin.write(json.dumps(told) + "\n")
        self._process.stdin.flush()

    def close(self) -> None:
        with suppress(OSError, subprocess.TimeoutExpired):
            self._process.communicate("closed\n", timeout=10)


def answers(address: str) -> bool:
    """Whether something listens at a path of a Unix socket, or at HOST:PORT."""
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
    """Wait until the program closes its guard, or ends without."""
    told = json.loads(sys.stdin.readline())
    if sys.stdin.readline():
        return
    for folder in told["folders"]:
        shutil.rmtree(folder, ignore_errors=True)
    if not answers(told["raylet"]) or not answers(told["head"]):
        print(
            f"considerate: Ray no longer answers (its raylet on this machine, or its head at {told['head']}, is gone), "
            f"which ends the program; its logs are in {told['logs']}. Go on from the last checkpoint with --resume, "
            "where there is one.",
            file=sys.stderr,
        )


if __name__ == "__main__":
    watch()
