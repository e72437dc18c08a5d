"""Folders on a local disk, or on any filesystem that pyarrow has an address for: s3://, gs://, hdfs://, abfs://.

A file that is there is replaced in one step, when the new one is whole. On a local disk a new file appears whole too.
Elsewhere it is written under its own name: an object store shows it when it is whole, other filesystems may show a
half. Who needs several files writes an index of sizes and checksums last.

Scratch folders hold what a fit writes on the way. They are removed when it ends; those of killed fits by the next one.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import socket
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from mmap import ACCESS_READ, mmap
from typing import Any, NoReturn
from urllib.parse import unquote, urlsplit

from considerate.errors import OutputError, UsageError
from considerate.storage.files import PathLike, atomic_write, make_folder, map_written, try_lock

Bytes = bytes | mmap
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_OWNER = re.compile(rb"process \d+ on [^\n]*\n *")
_OWNER_BYTES = 300
_S3_COPY = 5 << 30  # bytes; S3 copies no larger object by itself
SCRATCH, UNLOCKED = ".considerate-parts-", ".considerate-new-"  # how the names of scratch folders begin
LOCK, PURPOSE = "lock", "keeps its parts"
_REASON = 160  # letters of another program's message that are shown


@dataclass(frozen=True)
class Folder:
    """A folder by its address. It pickles, so that another machine can write into it."""

    address: str  # as it was given: a path, or scheme://...
    inner: str = ""  # a folder inside that, by names with slashes

    @classmethod
    def at(cls, address: PathLike) -> Folder:
        """The folder of a path or an address; UsageError where it is neither."""
        text = os.fspath(address)
        if not text or "\0" in text:
            raise UsageError(f"{text!r} does not name a folder; give a path or an address such as s3://bucket/name.")
        folder = cls(text)
        if folder.local is None:
            _filesystem(text)
        return folder

    @property
    def local(self) -> str | None:
        """Its path, where it is on a disk of this machine."""
        path = self.address
        if _ADDRESS.match(path):
            parts = urlsplit(path)
            if parts.scheme.lower() != "file":
                return None
            path = unquote(parts.path)
        return os.path.abspath(os.path.join(path, self.inner) if self.inner else path)

    @property
    def absolute(self) -> str:
        """Its address for processes that work in another folder: a local path from the root on."""
        return self.local or self.address

    def inside(self, name: str) -> Folder:
        """A folder inside this one, there or not."""
        return Folder(self.address, f"{self.inner}/{name}" if self.inner else name)

    def shown(self, name: str = "") -> str:
        """How messages name this folder, or a file in it."""
        return "/".join(part for part in (self.address.rstrip("/"), self.inner, name) if part) or "/"

    def _path(self, name: str = "") -> tuple[Any, str]:
        """pyarrow's filesystem, and the path of this folder or of a file in it."""
        filesystem, root = _filesystem(self.address)
        inner = "/".join(part for part in (self.inner, name) if part)
        return filesystem, f"{root.rstrip('/')}/{inner}" if root and inner else inner or root

    def make(self) -> None:
        """Make the folder where it is not there, and the ones above it."""
        if self.local is not None:
            make_folder(self.local)
            return
        filesystem, path = self._path()
        try:
            filesystem.create_dir(path, recursive=True)
        except OSError as error:
            _refuse(self.shown(), error)

    def names(self) -> list[str]:
        """The files and folders in it, sorted; none where there is no such folder."""
        try:
            if self.local is not None:
                return sorted(os.listdir(self.local))
            from pyarrow.fs import FileSelector

            filesystem, path = self._path()
            return sorted(info.base_name for info in filesystem.get_file_info(FileSelector(path, allow_not_found=True)))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            _refuse(self.shown(), error, "read")

    def size(self, name: str) -> int | None:
        """The bytes of a file, or None where there is no such file."""
        if self.local is not None:
            path = os.path.join(self.local, name)
            return os.path.getsize(path) if os.path.isfile(path) else None
        from pyarrow.fs import FileType

        filesystem, path = self._path(name)
        try:
            info = filesystem.get_file_info(path)
        except OSError as error:
            _refuse(self.shown(name), error, "read")
        return int(info.size) if info.type == FileType.File else None

    def read(self, name: str) -> Bytes:
        """A whole file: mapped on a local disk, copied from elsewhere. OSError where it cannot be read."""
        if self.local is not None:
            with open(os.path.join(self.local, name), "rb") as file:
                if os.fstat(file.fileno()).st_size == 0:
                    return b""
                return mmap(file.fileno(), 0, access=ACCESS_READ)
        filesystem, path = self._path(name)
        with filesystem.open_input_stream(path) as stream:
            return bytes(stream.read())

    def write(
        self, name: str, pieces: Iterable[bytes | memoryview], check: Callable[[Bytes], None] | None = None
    ) -> int:
        """Write a file from its pieces and return its size; OutputError where that is not possible.

        `check` is given what was written, before it replaces a file, and raises where it must not.

        Where `pieces` or the disk fails, the file that was there before stays as it is. A stream of pyarrow's commits
        what it has when it is closed, after a failure too: so what would replace a file is written aside and moved.
        """
        if self.local is not None:
            with atomic_write(os.path.join(self.local, name)) as file:
                size = sum(file.write(piece) for piece in pieces)
                if check is not None:
                    check(map_written(file))
                return size
        replaces = self.size(name) is not None
        filesystem, path = self._path(name)
        aside = self._path(f".considerate-{secrets.token_hex(8)}.tmp")[1] if replaces else path
        try:
            try:
                with filesystem.open_output_stream(aside) as stream:
                    size = sum(int(stream.write(piece)) for piece in pieces)
                if replaces:
                    if check is not None:
                        with filesystem.open_input_stream(aside) as written:
                            check(bytes(written.read()))
                    _move(filesystem, aside, path, size)
            except BaseException:
                with suppress(OSError):
                    filesystem.delete_file(aside)
                raise
        except OSError as error:
            _refuse(self.shown(name), error)
        return size

    def remove(self, name: str) -> str | None:
        """Remove a file, if it is there. Returns the reason if it is still there."""
        try:
            if self.local is not None:
                os.unlink(os.path.join(self.local, name))
            else:
                filesystem, path = self._path(name)
                filesystem.delete_file(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            return _reason(error)
        return None

    def remove_all(self) -> None:
        """Remove the folder with all that is in it, as far as that is possible."""
        if self.local is not None:
            shutil.rmtree(self.local, ignore_errors=True)
            return
        filesystem, path = self._path()
        with suppress(OSError):
            filesystem.delete_dir(path)

    @contextmanager
    def lock(self, name: str, purpose: str) -> Iterator[bool]:
        """Hold a lock on a file of a local folder; the system releases it when the process ends, however it ends.

        Yields whether the lock is held: there is none on a filesystem without locks, nor elsewhere than on a local
        disk. UsageError where another process, or this one, holds it. OutputError where the file is a link, or holds
        anything but the name of a lock's holder: such a file is never written to.
        """
        if self.local is None:
            yield False
            return
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
            descriptor = os.open(os.path.join(self.local, name), flags, 0o666)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EMLINK):
                raise OutputError(
                    f"{self.shown(name)}: is a symbolic link, not a lock; remove it or choose another folder."
                ) from error
            _refuse(self.shown(name), error)
        try:
            info = os.fstat(descriptor)
            owner = os.pread(descriptor, _OWNER_BYTES, 0) if stat.S_ISREG(info.st_mode) else b"?"
            if info.st_nlink > 1 or info.st_size > len(owner) or (owner and not _OWNER.fullmatch(owner)):
                raise OutputError(f"{self.shown(name)}: is not a lock of considerate's; choose another folder.")
            held = try_lock(descriptor)
            if held is False:
                holder = owner.decode(errors="replace").strip() or "unknown"
                raise UsageError(
                    f"{self.shown()}: another fit ({holder}) {purpose} there; wait for it, or choose another folder."
                )
            if held:
                text = f"process {os.getpid()} on {socket.gethostname()[:200]}\n"
                os.pwrite(descriptor, text.encode().ljust(len(owner)), 0)
            yield bool(held)
        finally:
            os.close(descriptor)


@contextmanager
def scratch_folder(parent: PathLike | None) -> Iterator[str]:
    """A new folder that only this user may enter, in `parent` or in the system's temporary folder. It has its name once
    its lock is held, and the system releases that when a process ends."""
    above = tempfile.gettempdir() if parent is None else os.path.abspath(parent)
    try:
        os.makedirs(above, exist_ok=True)
        folder = tempfile.mkdtemp(prefix=UNLOCKED, dir=above)
    except OSError as error:
        raise OutputError(
            f"{above}: no folder can be made there for the parts ({error.strerror or error}); choose another."
        ) from error
    try:
        with Folder.at(folder).lock(LOCK, PURPOSE):
            named = os.path.join(above, SCRATCH + os.path.basename(folder).removeprefix(UNLOCKED))
            os.rename(folder, named)
            folder = named
            _remove_abandoned(above)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned(above: str) -> None:
    """Remove this user's folders whose lock nobody holds. Without locks nobody knows, and all are left."""
    with suppress(OSError):
        for entry in os.scandir(above):
            if not entry.name.startswith(SCRATCH) or not entry.is_dir(follow_symlinks=False):
                continue
            with suppress(OSError, UsageError):
                if entry.stat(follow_symlinks=False).st_uid != os.geteuid():
                    continue
                if not stat.S_ISREG(os.lstat(os.path.join(entry.path, LOCK)).st_mode):
                    continue
                with Folder.at(entry.path).lock(LOCK, PURPOSE) as held:
                    if held:
                        shutil.rmtree(entry.path, ignore_errors=True)


def _move(filesystem: Any, source: str, target: str, size: int) -> None:
    if filesystem.type_name == "s3" and size > _S3_COPY:
        from pyarrow.fs import copy_files

        copy_files(source, target, filesystem, filesystem)
        filesystem.delete_file(source)
    else:
        filesystem.move(source, target)


@lru_cache(maxsize=16)
def _filesystem(address: str) -> tuple[Any, str]:
    """pyarrow's filesystem of an address, and the path on it."""
    import pyarrow as pa
    from pyarrow.fs import FileSystem

    try:
        filesystem, path = FileSystem.from_uri(address)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UsageError(
            f"{address}: no filesystem answers to this address ({_reason(error)}); give a path, or an address that "
            "pyarrow knows, such as s3://bucket/name."
        ) from error
    return filesystem, path


def _refuse(shown: str, error: OSError, verb: str = "written") -> NoReturn:
    if isinstance(error, OutputError):
        raise error
    raise OutputError(f"{shown}: cannot be {verb} ({_reason(error)}); check the address and its rights.") from error


def _reason(error: BaseException) -> str:
    text = getattr(error, "strerror", None) or str(error).strip() or type(error).__name__
    text = text.splitlines()[0]
    return text if len(text) <= _REASON else text[: _REASON - 3] + "..."
