"""What goes wrong around files: no locks, links that lead astray, writers that fail, saves that are killed."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.fs as fs
import pytest
from typer.testing import CliRunner

from considerate import Recommender
from considerate.cli import app
from considerate.distributed.backends.out_of_core import OutOfCore
from considerate.errors import OutputError, UsageError
from considerate.fitting.checkpoint import Checkpoints
from considerate.storage import filesystems
from considerate.storage.files import atomic_write, check_writable
from considerate.storage.filesystems import Folder
from tests.helpers.likes import fit_steps, planted

# --- Filesystems without locks ---


@pytest.mark.parametrize("code", [errno.ENOTSUP, errno.ENOLCK, errno.ENOSYS])
def test_without_locks_no_fit_removes_the_parts_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with OutOfCore(folder=tmp_path).open() as first, OutOfCore(folder=tmp_path).open() as second:
        folders = {first._folder, second._folder}
        assert {str(path) for path in tmp_path.iterdir()} == folders
        assert all(os.path.isdir(folder) for folder in folders)
    assert list(tmp_path.iterdir()) == []
    with Checkpoints(str(tmp_path / "kept"), {}).lock() as held:
        assert not held


# --- Links ---


def test_a_lock_that_is_a_link_is_refused_and_its_target_untouched(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(b"years of work")
    folder = tmp_path / "shared"
    folder.mkdir()
    (folder / "lock").symlink_to(precious)
    with pytest.raises(OutputError, match="is a symbolic link"), Checkpoints(str(folder), {}).lock():
        pytest.fail("the lock was taken")
    (folder / "lock").unlink()
    (folder / "lock").hardlink_to(precious)
    with pytest.raises(OutputError, match="is not a lock"), Checkpoints(str(folder), {}).lock():
        pytest.fail("the lock was taken")
    assert precious.read_bytes() == b"years of work"


def test_a_users_own_file_named_lock_is_kept(tmp_path: Path) -> None:
    for content in (b"content-hash = 1\n", b"process " + b"x" * 1000, bytes(3)):
        (tmp_path / "lock").write_bytes(content)
        with pytest.raises(OutputError, match="is not a lock"), Folder.at(tmp_path).lock("lock", "writes"):
            pytest.fail("the lock was taken")
        assert (tmp_path / "lock").read_bytes() == content


def test_a_lock_of_the_release_before_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("process 123456789 on a-machine-with-a-name-longer-than-this-one-has-it\n")
    with Folder.at(tmp_path).lock("lock", "writes") as held:
        assert held
        assert (tmp_path / "lock").read_text().split("\n")[0].rstrip().startswith(f"process {os.getpid()} on ")
        assert "longer-than" not in (tmp_path / "lock").read_text()


def test_links_in_a_shared_temporary_folder_do_no_harm(tmp_path: Path) -> None:
    """What another user of /tmp may leave there: a folder named as ours whose lock, or which itself, is a link."""
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "lock").write_bytes(b"mine")
    shared = tmp_path / "shared"
    trap = shared / ".considerate-parts-trap"
    trap.mkdir(parents=True)
    (trap / "lock").symlink_to(precious / "lock")
    (shared / ".considerate-parts-link").symlink_to(precious)
    with OutOfCore(folder=shared).open():
        pass
    assert (precious / "lock").read_bytes() == b"mine"
    assert sorted(path.name for path in shared.iterdir()) == [".considerate-parts-link", ".considerate-parts-trap"]


# --- Remote writers that fail ---


def failing_pieces() -> Iterator[bytes]:
    yield b"half"
    raise KeyboardInterrupt


@pytest.mark.parametrize("before", [b"a good model", None])
def test_a_remote_file_is_replaced_whole_or_not_at_all(monkeypatch: pytest.MonkeyPatch, before: bytes | None) -> None:
    memory = fs._MockFileSystem()
    monkeypatch.setattr(filesystems, "_filesystem", lambda address: (memory, "bucket"))
    folder = Folder.at("memory://bucket")
    folder.make()
    if before is not None:
        folder.write("model", [before])
    with pytest.raises(KeyboardInterrupt):
        folder.write("model", failing_pieces())
    assert folder.names() == ([] if before is None else ["model"])
    assert folder.size("model") == (None if before is None else len(before))
    assert folder.write("model", [b"whole"]) == 5
    assert bytes(folder.read("model")) == b"whole"
    assert folder.names() == ["model"]


# --- A network that hiccups, a name that is too long ---


class Hiccups:
    """A filesystem whose questions fail once in a while, as a network does."""

    def __init__(self, inner: Any, operation: str) -> None:
        self.inner, self.operation, self.fails = inner, operation, False

    def __getattr__(self, name: str) -> Any:
        if self.fails and name == self.operation:
            raise OSError(errno.ETIMEDOUT, "Connection timed out")
        return getattr(self.inner, name)


@pytest.mark.parametrize("operation", ["get_file_info", "open_output_stream", "create_dir"])
def test_a_network_hiccup_at_a_checkpoint_does_not_end_the_fit(monkeypatch: pytest.MonkeyPatch, operation: str) -> None:
    network = Hiccups(fs._MockFileSystem(), operation)
    monkeypatch.setattr(filesystems, "_filesystem", lambda address: (network, "bucket"))
    recommender = Recommender(factors=2, sweeps=4, tolerance=0, threads=1)

    def fit() -> None:
        for step in fit_steps(recommender, planted(), checkpoint="memory://bucket", every=1):
            network.fails = step.sweep == 1

    with pytest.warns(UserWarning, match=r"checkpoint of sweep 2 was not written .*Connection timed out.*goes on"):
        fit()
    assert recommender.n_iter_ == 4
    assert Checkpoints("memory://bucket", {}).complete() == [3, 4]
    whole = Recommender(factors=2, sweeps=4, tolerance=0, threads=1).fit(planted())
    assert np.array_equal(recommender.user_factors, whole.user_factors)


def test_an_output_whose_name_is_too_long_is_refused_before_the_fit(tmp_path: Path) -> None:
    (tmp_path / "likes.csv").write_text("user,item\n" + "".join(f"u{n % 9},i{n % 7}\n" for n in range(60)))
    for name in ("x" * 300, os.path.join(*["x" * 200] * 30)):
        with pytest.raises(OutputError, match="too long"):
            check_writable(tmp_path / name)
        for options in ((), ("--out-of-core", "--sharded")):
            done = CliRunner().invoke(
                app, ["fit", str(tmp_path / "likes.csv"), "-o", str(tmp_path / name), "--sweeps", "2", *options]
            )
            assert done.exit_code in (1, 2)
            assert "too long" in done.stderr
            assert "sweep" not in done.stderr
    assert os.listdir(tmp_path) == ["likes.csv"]


# --- Saves that were killed ---

KILLED = """
import sys, time
from considerate.storage.files import atomic_write
with atomic_write(sys.argv[1]) as file:
    file.write(b"half")
    file.flush()
    print("writing", flush=True)
    time.sleep(60)
"""
DAY = 86_400


def test_what_a_killed_save_left_is_removed_and_that_of_a_live_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "model"
    saves: list[Any] = [
        subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    try:
        for save in saves:
            assert save.stdout.readline() == "writing\n"
        (tmp_path / ".considerate-notes.tmp").write_text("not of ours")
        (tmp_path / f".considerate-{'0' * 16}.tmp").symlink_to(tmp_path / ".considerate-notes.tmp")
        old = time.time() - 2 * DAY
        for name in os.listdir(tmp_path):
            os.utime(tmp_path / name, (old, old), follow_symlinks=False)
        saves[0].send_signal(signal.SIGKILL)
        saves[0].wait()
        (tmp_path / f".considerate-{'1' * 16}.tmp").write_text("new, and of a release that held no lock")
        assert len(os.listdir(tmp_path)) == 5
        with atomic_write(path) as file:
            file.write(b"whole")
        assert len(os.listdir(tmp_path)) == 5
        assert (
            len([one for one in tmp_path.iterdir() if one.name.endswith(".tmp") and one.read_bytes() == b"half"]) == 1
        )
    finally:
        for save in saves:
            save.kill()
            save.wait()
            save.stdout.close()
    assert path.read_bytes() == b"whole"


def test_a_lock_names_its_holder(tmp_path: Path) -> None:
    with (
        Folder.at(tmp_path).lock("lock", "writes"),
        pytest.raises(UsageError, match=rf"another fit \(process {os.getpid()} on [^ )]+\) writes there"),
        Folder.at(tmp_path).lock("lock", "writes"),
    ):
        pytest.fail("two have the lock")
