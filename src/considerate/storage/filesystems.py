"""Folders on a local disk, or on any filesystem that pyarrow has an address for: s3://, gs://, hdfs://, abfs://.

On a local disk a file is written beside its place, reaches the disk and is renamed. Elsewhere it is written in place:
an object store shows it when it is whole, other filesystems may show a half. Whoever needs several files, or whole
ones, writes an index of sizes and checksums last.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from mmap import ACCESS_READ, mmap
from typing import Any, NoReturn
from urllib.parse import unquote, urlsplit

from considerate.errors import OutputError, UsageError
from considerate.storage.files import PathLike, atomic_write, make_folder

Bytes = bytes | mmap
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_REASON = 160  # letters of another program's message that are shown


@dataclass(frozen=True)
class Written:
    """A file as it was written."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Folder:
    """A folder by its address. It pickles, so that another machine can write into it."""

    address: str  # as it was given: a path, or scheme://...
    inner: str = ""  # a folder inside that, by names with slashes

    @classmethod
    def at(cls, place: PathLike) -> Folder:
        """The folder of a path or an address; UsageError where it is neither."""
        address = os.fspath(place)
        if not address or "\0" in address:
            raise UsageError(f"{address!r} does not name a folder; give a path or an address such as s3://bucket/name.")
        folder = cls(address)
        if folder.local is None:
            _opened(address)
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
    def settled(self) -> str:
        """Its address for processes that work in another folder: a local path from the root on."""
        return self.local or self.address

    def inside(self, name: str) -> Folder:
        """A folder inside this one, there or not."""
        return Folder(self.address, f"{self.inner}/{name}" if self.inner else name)

    def shown(self, name: str = "") -> str:
        """How this folder, or a file in it, is named to people."""
        return "/".join(part for part in (self.address.rstrip("/"), self.inner, name) if part) or "/"

    def _path(self, name: str = "") -> tuple[Any, str]:
        filesystem, root = _opened(self.address)
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
        if self.local is not None:
            try:
                return sorted(os.listdir(self.local))
            except (FileNotFoundError, NotADirectoryError):
                return []
        from pyarrow.fs import FileSelector

        filesystem, path = self._path()
        found = filesystem.get_file_info(FileSelector(path, allow_not_found=True))
        return sorted(one.base_name for one in found)

    def size(self, name: str) -> int | None:
        """The bytes of a file, or None where there is no such file."""
        if self.local is not None:
            path = os.path.join(self.local, name)
            return os.path.getsize(path) if os.path.isfile(path) else None
        from pyarrow.fs import FileType

        filesystem, path = self._path(name)
        info = filesystem.get_file_info(path)
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

    def write(self, name: str, pieces: Iterable[bytes | memoryview]) -> Written:
        """Write a file from its pieces; OutputError where that is not possible."""
        digest, size = hashlib.sha256(), 0

        def write_to(file: Any) -> None:
            nonlocal size
            for piece in pieces:
                file.write(piece)
                digest.update(piece)
                size += len(piece)

        if self.local is not None:
            with atomic_write(os.path.join(self.local, name)) as local_file:
                write_to(local_file)
            return Written(name, size, digest.hexdigest())
        filesystem, path = self._path(name)
        try:
            with filesystem.open_output_stream(path) as stream:
                write_to(stream)
        except OSError as error:
            _refuse(self.shown(name), error)
        return Written(name, size, digest.hexdigest())

    def remove(self, name: str) -> None:
        """Remove a file; one that is not there, or cannot be removed, is left."""
        if self.local is not None:
            with suppress(OSError):
                os.unlink(os.path.join(self.local, name))
            return
        filesystem, path = self._path(name)
        with suppress(OSError):
            filesystem.delete_file(path)

    def remove_all(self) -> None:
        """Remove the folder with all that is in it, as far as that is possible."""
        if self.local is not None:
            shutil.rmtree(self.local, ignore_errors=True)
            return
        filesystem, path = self._path()
        with suppress(OSError):
            filesystem.delete_dir(path)

    @contextmanager
    def locked(self, name: str, doing: str) -> Iterator[None]:
        """Hold a lock on a file of a local folder, which the system lets go of when the process ends, however it ends.

        UsageError where another process, or this one, holds it. Elsewhere than on a local disk there is no lock.
        """
        if self.local is None:
            yield
            return
        try:
            descriptor = os.open(os.path.join(self.local, name), os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            _refuse(self.shown(name), error)
        try:
            if not _lock(descriptor):
                holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
                raise UsageError(
                    f"{self.shown()}: another fit ({holder or 'unknown'}) {doing} there; wait for it, or choose "
                    "another folder."
                )
            yield
        finally:
            os.close(descriptor)


def _lock(descriptor: int) -> bool:
    """Lock a file and say in it by whom; False where another has it."""
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EWOULDBLOCK, errno.EACCES)  # else a filesystem that has no locks
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
    return True


@lru_cache(maxsize=16)
def _opened(address: str) -> tuple[Any, str]:
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


def _refuse(shown: str, error: BaseException) -> NoReturn:
    raise OutputError(f"{shown}: cannot be written ({_reason(error)}); check the address and its rights.") from error


def _reason(error: BaseException) -> str:
    text = getattr(error, "strerror", None) or str(error).strip() or type(error).__name__
    text = text.splitlines()[0]
    return text if len(text) <= _REASON else text[: _REASON - 3] + "..."
