"""Folders on a disk and elsewhere: whole files in, whole files out, one sentence where that is not possible."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.fs as fs
import pytest

from considerate.errors import OutputError, UsageError
from considerate.storage import filesystems
from considerate.storage.filesystems import Folder

KINDS = ("path", "file", "remote", "memory")


@pytest.fixture(params=KINDS)
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """A folder that is not there yet: by its path, by a file:// address, and on two of pyarrow's filesystems."""
    if request.param in ("path", "file"):
        place = tmp_path / "a folder" / "inner"
        return Folder.at(place if request.param == "path" else place.as_uri())
    memory = fs._MockFileSystem()
    opened = {
        "remote://store/a/b": (fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), "a/b"),
        "memory://store/a/b": (memory, "a/b"),
    }
    monkeypatch.setattr(filesystems, "_filesystem", opened.__getitem__)
    return Folder.at(f"{request.param}://store/a/b")


def test_a_written_file_is_read_back(folder: Folder) -> None:
    assert folder.names() == []
    assert folder.size("one") is None
    folder.make()
    folder.make()
    assert folder.write("one", [b"abc", memoryview(b"def")]) == 6
    folder.write("empty", [])
    inner = folder.inside("deep").inside("deeper")
    inner.make()
    inner.write("two", [b"2"])
    assert folder.names() == ["deep", "empty", "one"]
    assert (folder.size("one"), folder.size("empty"), folder.size("deep"), inner.size("two")) == (6, 0, None, 1)
    assert (bytes(folder.read("one")), bytes(folder.read("empty")), bytes(inner.read("two"))) == (b"abcdef", b"", b"2")
    folder.write("one", [b"again"])
    assert bytes(folder.read("one")) == b"again"
    assert inner.shown("two") == f"{folder.address}/deep/deeper/two"


def test_a_removed_file_is_gone(folder: Folder) -> None:
    inner = folder.inside("deep")
    inner.make()
    inner.write("two", [b"2"])
    inner.write("three", [b"3"])
    inner.remove("two")
    inner.remove("never there")
    assert inner.names() == ["three"]
    inner.remove_all()
    inner.remove_all()
    assert folder.names() == []
    with pytest.raises(OSError):
        inner.read("three")


def test_a_folder_goes_to_another_process(folder: Folder) -> None:
    assert pickle.loads(pickle.dumps(folder.inside("deep"))) == folder.inside("deep")


def pieces_that_fail() -> Iterator[bytes]:
    yield b"some"
    raise RuntimeError("the source broke")


def test_a_local_file_is_whole_or_not_there(tmp_path: Path) -> None:
    folder = Folder.at(tmp_path)
    folder.write("one", [b"before"])
    for name in ("one", "two"):
        with pytest.raises(RuntimeError, match="the source broke"):
            folder.write(name, pieces_that_fail())
    assert folder.names() == ["one"]
    assert bytes(folder.read("one")) == b"before"


def test_paths_are_taken_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Folder.at("a b/c%20d")
    assert folder.local == str(tmp_path / "a b" / "c%20d")
    assert folder.absolute == folder.local
    assert Folder.at("file:///a%20b/c").local == "/a b/c"
    assert Folder.at("/").inside("x").local == "/x"


@pytest.mark.parametrize("address", ["", "a\0b", "nothing://here/x", "http://host/x"])
def test_an_address_that_is_no_folder_is_one_sentence(address: str) -> None:
    with pytest.raises(UsageError) as caught:
        Folder.at(address)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_where_nothing_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"")
    for place in (Folder.at(tmp_path / "file"), Folder.at(tmp_path / "file" / "inner")):
        with pytest.raises(OutputError, match="file"):
            place.make()
    with pytest.raises(OutputError, match="does not exist"):
        Folder.at(tmp_path / "nowhere").write("one", [b"1"])
    store = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    monkeypatch.setattr(filesystems, "_filesystem", lambda address: (store, "file"))
    remote = Folder.at("remote://store/file")
    for attempt in (remote.make, lambda: remote.write("one", [b"1"])):
        with pytest.raises(OutputError, match=r"remote://store/file.* cannot be written \(") as caught:
            attempt()
        assert "\n" not in str(caught.value)


HOLD = """
import sys, time
from considerate.storage.filesystems import Folder
with Folder.at(sys.argv[1]).lock("lock", "writes"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_lock_keeps_others_out_until_its_process_ends(tmp_path: Path) -> None:
    folder = Folder.at(tmp_path)
    mine = rf"another fit \(process {os.getpid()} on .*\) writes there"
    with folder.lock("lock", "writes"), pytest.raises(UsageError, match=mine), folder.lock("lock", "writes"):
        pytest.fail("two have the lock")
    with folder.lock("lock", "writes"):
        pass
    other: Any = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(UsageError, match=f"process {other.pid} "), folder.lock("lock", "writes"):
            pytest.fail("two have the lock")
    finally:
        other.send_signal(signal.SIGKILL)
        other.wait()
        other.stdout.close()
    with folder.lock("lock", "writes"):  # of a process that is dead
        pass
