"""Folders on a local disk, or on any filesystem that pyarrow has an address for: s3://, gs://, hdfs://, abfs://.

An existing file is replaced in one step, when the new one is complete. On a local disk, a new file appears complete,
too. Elsewhere it is written under its own name: an object store shows it when it is complete, other filesystems may
show a part. A writer of several files writes an index of sizes and checksums last.

Scratch folders have the temporary files of a fit. They are removed when it ends; those of killed fits by the next fit.
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
SCRATCH, UNLOCKED = ".considerate-parts-", ".considerate-new-"  # prefixes of the names of scratch folders
LOCK, PURPOSE = "lock", "keeps its parts"
_REASON = 160  # most characters of another program's message that are shown


@dataclass(frozen=True)
class Folder:
    """A folder by its address. It can be pickled, so that another machine can write into it."""

    address: str  # the given path or scheme://...
    inner: str = ""  # path of a folder inside that

    @classmethod
    def at(cls, address: PathLike) -> Folder:
        """The folder of a path or an address; UsageError if it is neither."""
        text = os.fspath(address)
        if not text or "\0" in text:
            raise UsageError(f"{text!r} does not name a folder; give a path or an address such as s3://bucket/name.")
        folder = cls(text)
        if folder.local is None:
            _filesystem(text)
        return folder

    @property
    def local(self) -> str | None:
        """Path of the folder if it is on a disk of this machine, else None."""
        path = self.address
        if _ADDRESS.match(path):
            parts = urlsplit(path)
            if parts.scheme.lower() != "file":
                return None
            path = unquote(parts.path)
        return os.path.abspath(os.path.join(path, self.inner) if self.inner else path)

    @property
    def absolute(self) -> str:
        """Address of the folder for processes that work in another folder: a local path is absolute."""
        return self.local or self.address

    def inside(self, name: str) -> Folder:
        """A folder inside this one, which may not exist."""
        return Folder(self.address, f"{self.inner}/{name}" if self.inner else name)

    def shown(self, name: str = "") -> str:
        """Name of this folder, or of a file in it, for messages."""
        return "/".join(part for part in (self.address.rstrip("/"), self.inner, name) if part) or "/"

    def _path(self, name: str = "") -> tuple[Any, str]:
        """(filesystem of pyarrow, path of this folder or of a file in it)."""
        filesystem, root = _filesystem(self.address)
        inner = "/".join(part for part in (self.inner, name) if part)
        return filesystem, f"{root.rstrip('/')}/{inner}" if root and inner else inner or root

    def make(self) -> None:
        """Make the folder, and the ones above it, if they do not exist."""
        if self.local is not None:
            make_folder(self.local)
            return
        filesystem, path = self._path()
        try:
            filesystem.create_dir(path, recursive=True)
        except OSError as error:
            _refuse(self.shown(), error)

    def names(self) -> list[str]:
        """Names of the files and folders in it, sorted; none if the folder does not exist."""
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
        """Size of a file in bytes, None if it does not exist."""
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
        """Read a whole file: mapped from a local disk, copied from elsewhere. OSError if it cannot be read."""
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
        """Write a file from its pieces and return its size; OutputError if that is impossible.

        `check` gets the written bytes before they replace a file, and raises an error if they must not.

        If `pieces` or the disk fails, the old file stays as it is. A stream of pyarrow commits its bytes when it is
        closed, even after a failure, so a file that replaces another is written under another name and moved.
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
        """Remove a file if it exists; return the reason if it could not be removed."""
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
        """Remove the folder with everything in it, as far as that is possible."""
        if self.local is not None:
            shutil.rmtree(self.local, ignore_errors=True)
            return
        filesystem, path = self._path()
        with suppress(OSError):
            filesystem.delete_dir(path)

    @contextmanager
    def lock(self, name: str, purpose: str) -> Iterator[bool]:
        """Hold a lock on a file of a local folder; the system releases it when the process ends, however it ends.

        Yields True if the lock is held, False if the folder is not local or its filesystem has no locks. UsageError if
        another process, or this one, holds it. OutputError if the file is a link, or has other content than the name of
        a lock's holder: such a file is never written to.
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
    """Make a new folder that only this user may enter, in `parent` or in the system's temporary folder.

    The folder gets its final name after it is locked. The system releases the lock when the process ends.
    """
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
    """Remove this user's scratch folders that are not locked. Without locks, all are left."""
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
    """(filesystem of pyarrow, path there) for an address."""
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
