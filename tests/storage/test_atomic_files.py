"""Files that appear whole or not at all: disks that fail, permissions, links, readers and writers at once."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from considerate.errors import OutputError
from considerate.storage import files
from considerate.storage.container import open_tensors, write_tensors
from considerate.storage.files import atomic_write, check_writable


@pytest.fixture
def old(tmp_path: Path) -> Iterator[Path]:
    """A file that must survive, alone in its folder."""
    path = tmp_path / "kept" / "model"
    path.parent.mkdir()
    path.write_bytes(b"old")
    yield path
    assert path.read_bytes() == b"old"
    assert [one.name for one in path.parent.iterdir()] == ["model"]


def in_child(code: str, *arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)


SAVE = """
import sys, numpy as np
from considerate.errors import OutputError
from considerate.storage.container import write_tensors
try:
    write_tensors(sys.argv[1], {"a": np.ones(int(sys.argv[2]))}, {})
except OutputError as error:
    print(error)
    sys.exit(7)
"""


@pytest.mark.parametrize("code", ["ENOSPC", "EDQUOT", "EIO"])
@pytest.mark.parametrize("moment", ["write", "fsync", "replace"])
def test_disk_failures(old: Path, monkeypatch: pytest.MonkeyPatch, code: str, moment: str) -> None:
    import errno

    def fail(*_: object) -> None:
        raise OSError(getattr(errno, code), os.strerror(getattr(errno, code)))

    if moment != "write":
        monkeypatch.setattr(files.os, moment, fail)

    def save() -> None:
        with atomic_write(old) as file:
            file.write(b"new")
            if moment == "write":
                fail()

    with pytest.raises(OutputError) as caught:
        save()
    expected = {"ENOSPC": "the disk is full;", "EDQUOT": "quota", "EIO": "(Input/output error)"}[code]
    assert str(caught.value).startswith(f"{old}: ")
    assert expected in str(caught.value)


def test_file_size_limit_for_real(old: Path) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))\n"
    done = in_child(limit + SAVE, old, 100_000)
    assert done.returncode == 7, done.stderr
    assert done.stdout == f"{old}: the file is larger than the system or `ulimit -f` allows; raise that limit.\n"


def test_full_disk_for_real(tmp_path: Path) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", folder], capture_output=True)
    except OSError:
        pytest.skip("no mount here")
    if mounted.returncode:
        pytest.skip("may not mount here")
    try:
        path = folder / "model"
        write_tensors(path, {"a": np.zeros(10)}, {})
        before = path.read_bytes()
        with pytest.raises(OutputError, match="the disk is full; free some space or save elsewhere"):
            write_tensors(path, {"a": np.ones(100_000)}, {})
        assert path.read_bytes() == before
        assert list(folder.iterdir()) == [path]
        write_tensors(path, {"a": np.ones(10)}, {})  # the space came back
    finally:
        subprocess.run(["umount", folder], check=True)


def test_exception_of_the_block_comes_out_as_it_is(old: Path) -> None:
    def save(error: BaseException) -> None:
        with atomic_write(old) as file:
            file.write(b"new" * 10_000)
            raise error

    for error in (ZeroDivisionError(), KeyboardInterrupt(), FileNotFoundError(2, "no", "another file")):
        with pytest.raises(type(error)) as caught:
            save(error)
        assert caught.value is error


def test_interrupt_in_the_middle_of_a_save(old: Path) -> None:
    code = """
import os, signal, sys, numpy as np
from considerate.storage import container as store
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs are started deaf to it
store._CHUNK = 1 << 16
original = store._bytes_of
class Data:
    def __init__(self, data): self.data = data
    def __len__(self): return len(self.data)
    def __getitem__(self, part):
        if part.start == 1 << 20: os.kill(os.getpid(), signal.SIGINT)
        return self.data[part]
header = store._header
def then_interrupt(*a):
    made = header(*a)
    store._bytes_of = lambda array: Data(original(array))
    return made
store._header = then_interrupt
store.write_tensors(sys.argv[1], {"a": np.ones(1 << 20)}, {})
"""
    done = in_child(code, old)
    assert done.returncode in (-signal.SIGINT, 130), done.stderr
    assert "KeyboardInterrupt" in done.stderr


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"kept")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    os.mkfifo(tmp_path / "pipe")
    for path, expected in (
        (tmp_path / "absent" / "model", "its folder does not exist; make the folder first."),
        (tmp_path / "file" / "model", "a file where a folder is needed"),
        (tmp_path, "is a folder; add a file name."),
        (f"{tmp_path}/model/", "is a folder; add a file name."),
        (tmp_path / "loop", "leads back to itself"),
        (tmp_path / "pipe", "is a device or a pipe"),
        (tmp_path / ("x" * 300), "too long"),
    ):
        with pytest.raises(OutputError, match=re.escape(expected)) as caught:
            write_tensors(path, {}, {})
        assert str(caught.value).startswith(f"{path}: ")
        with pytest.raises(OutputError, match=re.escape(expected)):
            check_writable(path)
    assert (tmp_path / "file").read_bytes() == b"kept"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["file", "loop", "pipe"]
    assert (tmp_path / "pipe").is_fifo()


NOBODY = """
import os, sys
from considerate.errors import ConsiderateError
from considerate.storage.files import atomic_write, check_writable
from considerate.storage.container import open_tensors
import considerate.data.vocabulary, json
if os.getuid() == 0:
    os.setgid(65534); os.setuid(65534)
def save(path):
    with atomic_write(path) as file: file.write(b"new")
for act in (check_writable, save, open_tensors):
    try: act(sys.argv[1])
    except ConsiderateError as error: print(error)
    else: print("done")
"""


def test_permissions_as_an_ordinary_user() -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name:  # pytest's own folders are closed to other users
        folder = Path(name)
        folder.chmod(0o755)
        path = folder / "closed" / "model"
        path.parent.mkdir()
        path.write_bytes(b"old")
        path.chmod(0o600 if os.getuid() == 0 else 0o000)
        path.parent.chmod(0o777)
        assert in_child(NOBODY, path).stdout.splitlines() == [
            f"{path}: the file there is read-only; make it writable or choose another name.",
            f"{path}: the file there is read-only; make it writable or choose another name.",
            f"{path}: no permission to read it; change its permissions.",
        ]
        new = path.with_name("new")
        path.parent.chmod(0o555)
        refused = f"{new}: no permission to write there; choose another folder or change its permissions."
        assert in_child(NOBODY, new).stdout.splitlines() == [
            refused,
            refused,
            f"{new}: no such file; check the path.",
        ]
        assert os.listdir(path.parent) == ["model"]
        path.chmod(0o600)
        assert path.read_bytes() == b"old"
        path.parent.chmod(0o777)
        assert in_child(NOBODY, new).stdout.splitlines()[:2] == ["done", "done"]
        path.parent.chmod(0o755)


def test_check_writable_leaves_no_trace(tmp_path: Path) -> None:
    check_writable(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "model").write_bytes(b"old")
    check_writable(tmp_path / "model")
    assert (tmp_path / "model").read_bytes() == b"old"


def test_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    check_writable("model")
    write_tensors("model", {"a": np.zeros(2)}, {})
    assert open_tensors("model").path == "model"


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_new_file_has_the_permissions_of_open(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        write_tensors(tmp_path / "ours", {}, {})
        (tmp_path / "plain").write_bytes(b"")
    finally:
        os.umask(before)
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_replaced_file_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.touch()
    path.chmod(0o640)
    write_tensors(path, {}, {})
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link, target = tmp_path / "link", tmp_path / "there" / "model"
    link.symlink_to(Path("there") / "model")
    for content in (b"into nothing", b"over the first"):
        with atomic_write(link) as file:
            file.write(content)
        assert link.is_symlink()
        assert target.read_bytes() == content
    assert os.listdir(tmp_path / "there") == ["model"]


def test_reader_sees_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "model"
    versions = [{"a": np.full(20_000, float(n)), "b": np.full(n + 1, n, np.int32)} for n in range(3)]
    write_tensors(path, versions[0], {"n": 0})
    stop = threading.Event()
    seen: set[int] = set()
    wrong: list[object] = []

    def read() -> None:
        while not stop.is_set():
            try:
                stored = open_tensors(path)
                n = stored.metadata["n"]
                seen.add(n)
                if not all(np.array_equal(stored[name], array) for name, array in versions[n].items()):
                    wrong.append(n)
            except Exception as error:
                wrong.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    rounds = 0
    while rounds < 100 or (len(seen) < 3 and rounds < 3000):
        rounds += 1
        write_tensors(path, versions[rounds % 3], {"n": rounds % 3})
    stop.set()
    for reader in readers:
        reader.join()
    assert wrong == []
    assert seen == {0, 1, 2}
    assert os.listdir(tmp_path) == ["model"]


def test_writers_at_once_leave_one_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "model"

    def save(n: int) -> None:
        for _ in range(20):
            write_tensors(path, {"a": np.full(1000, float(n))}, {"n": n})

    writers = [threading.Thread(target=save, args=(n,)) for n in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    stored = open_tensors(path)
    np.testing.assert_array_equal(stored["a"], np.full(1000, float(stored.metadata["n"])))
    assert os.listdir(tmp_path) == ["model"]
