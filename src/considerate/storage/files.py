"""Files that are written whole or not at all.

A new file is written next to the target, synced to the disk, and renamed to the target in one step: a reader sees the
old file or the new one, and a failure leaves the old one as it was.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from mmap import ACCESS_READ, mmap
from typing import BinaryIO

from considerate.errors import OutputError

PathLike = str | os.PathLike[str]

_TEMPORARY = re.compile(r"\.considerate-[0-9a-f]{16}\.tmp")
_ABANDONED = 86_400  # seconds without a write after which an unlocked temporary file is removed
_ADVICE = {
    errno.ENOSPC: "the disk is full; free some space or save elsewhere",
    errno.EDQUOT: "the disk quota is used up; free some space or save elsewhere",
    errno.EFBIG: "the file is larger than the system or `ulimit -f` allows; raise that limit",
    errno.EACCES: "no permission to write there; choose another folder or change its permissions",
    errno.EPERM: "no permission to write there; choose another folder or change its permissions",
    errno.EROFS: "the file system is read-only; save elsewhere",
    errno.ENOENT: "its folder does not exist; make the folder first",
    errno.ENOTDIR: "a part of its path is a file where a folder is needed; correct the path",
    errno.EISDIR: "is a folder; add a file name",
    errno.ENAMETOOLONG: "the name is too long for this file system; choose a shorter one",
}


def check_writable(path: PathLike) -> None:
    """Raise OutputError if `atomic_write(path)` could not begin; call this before hours of work."""
    target = _target(path)
    folder = os.path.dirname(target)
    try:
        mode = os.stat(folder).st_mode
    except OSError as error:
        raise _refusal(path, error.errno, error.strerror) from error
    if not stat.S_ISDIR(mode):
        raise _refusal(path, errno.ENOTDIR)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _refusal(path, errno.EACCES)


def make_folder(path: PathLike) -> None:
    """Make a folder and those above it, and sync its name to the disk; OutputError if that is impossible."""
    try:
        if not os.path.isdir(path):
            os.makedirs(path, exist_ok=True)
            sync_folder(os.path.dirname(os.path.abspath(path)))
    except FileExistsError as error:
        raise OutputError(f"{os.fspath(path)}: is a file where a folder is needed; choose another name.") from error
    except OSError as error:
        raise _refusal(path, error.errno, error.strerror) from error


UNFINISHED_FOLDERS: set[str] = set()  # folders of this process, which a process that outlives it removes


@contextmanager
def folder_beside(path: PathLike) -> Iterator[str]:
    """Choose a name for a folder next to a file that will be written; the folder is removed when the block ends."""
    name = os.path.join(os.path.dirname(os.path.abspath(path)), f".considerate-{secrets.token_hex(8)}")
    UNFINISHED_FOLDERS.add(name)
    try:
        yield name
    finally:
        shutil.rmtree(name, ignore_errors=True)
        UNFINISHED_FOLDERS.discard(name)


@contextmanager
def atomic_write(path: PathLike, *, durable: bool = True) -> Iterator[BinaryIO]:
    """Open a binary file to write to, which becomes `path` when the block ends without an error.

    A symbolic link is followed, and its target replaced. A new file has the permissions that open() would give it; a
    replaced one keeps its own. If the disk fails, OutputError is raised; if the block fails, or is stopped by Ctrl-C,
    its own exception. Then no temporary file is left, and the old file is unchanged. With durable=False the file is not
    synced to the disk, for files of no use after the machine stops.
    """
    target = _target(path)
    folder = os.path.dirname(target)
    temporary = os.path.join(folder, f".considerate-{secrets.token_hex(8)}.tmp")
    if durable:
        _remove_abandoned(folder)
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        file = os.fdopen(os.open(temporary, flags, 0o666), "wb")
        try:
            try_lock(file.fileno())  # as long as this process lives, the file is not abandoned
            yield file
            file.flush()
            _keep_permissions(file.fileno(), target)
            if durable:
                os.fsync(file.fileno())
        except BaseException:
            with suppress(OSError):
                file.close()
            raise
        file.close()
        os.replace(temporary, target)
    except OutputError:
        raise
    except OSError as error:
        if error.filename not in (None, temporary, target):
            raise  # the block's own trouble with another file
        raise _refusal(path, error.errno, error.strerror) from error
    finally:
        with suppress(OSError):
            os.unlink(temporary)  # after a success the name is already gone
    if durable:
        sync_folder(folder)


def map_written(file: BinaryIO) -> mmap:
    """Map the bytes that were written to a file that is still open."""
    file.flush()
    return mmap(file.fileno(), 0, access=ACCESS_READ)


def try_lock(descriptor: int) -> bool | None:
    """Lock an open file until it is closed or the process ends.

    True if it is locked now, False if another process has the lock, None if the filesystem has no locks (Lustre without
    flock, some NFS).
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return False if error.errno in (errno.EWOULDBLOCK, errno.EACCES) else None
    return True


def _remove_abandoned(folder: str) -> None:
    """Remove the temporary files of killed processes: they are not locked, and had no write for a day.

    The day is for machines that share a folder but not its locks.
    """
    with suppress(OSError):
        for entry in os.scandir(folder):
            if not _TEMPORARY.fullmatch(entry.name) or not entry.is_file(follow_symlinks=False):
                continue
            if time.time() - entry.stat(follow_symlinks=False).st_mtime < _ABANDONED:
                continue
            with suppress(OSError):
                descriptor = os.open(entry.path, os.O_RDWR | os.O_NOFOLLOW)
                try:
                    if try_lock(descriptor):
                        os.unlink(entry.path)
                finally:
                    os.close(descriptor)


def _target(path: PathLike) -> str:
    """The file that open(path, "wb") would write; OutputError if it may not be replaced."""
    name = os.fspath(path)
    if "\0" in name:
        raise OutputError(f"{name!r}: the path holds a null character; correct the path.")
    target = os.path.realpath(name)
    try:
        mode = os.lstat(target).st_mode
    except FileNotFoundError:
        mode = None
    except OSError as error:  # the name is too long, a part of the path is no folder or may not be searched
        raise _refusal(path, error.errno, error.strerror) from error
    if not os.path.basename(name) or (mode is not None and stat.S_ISDIR(mode)):
        raise _refusal(path, errno.EISDIR)
    if mode is None:
        return target
    if stat.S_ISLNK(mode):
        raise OutputError(f"{name}: is a symbolic link that leads back to itself; remove the link.")
    if not stat.S_ISREG(mode):
        raise OutputError(f"{name}: is a device or a pipe, which cannot be replaced; give a file name.")
    if not os.access(target, os.W_OK):
        raise OutputError(f"{name}: the file there is read-only; make it writable or choose another name.")
    return target


def _keep_permissions(descriptor: int, target: str) -> None:
    """Copy the owner and the mode of the file that is replaced, as writing in place would keep them."""
    try:
        old = os.stat(target)
    except FileNotFoundError:
        return
    new = os.fstat(descriptor)
    if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
        with suppress(OSError):  # only root may give a file away
            os.fchown(descriptor, old.st_uid, old.st_gid)
    if stat.S_IMODE(old.st_mode) != stat.S_IMODE(new.st_mode):
        with suppress(OSError):  # some network file systems have no modes
            os.fchmod(descriptor, stat.S_IMODE(old.st_mode) & 0o777)


def sync_folder(folder: str) -> None:
    """Sync the names in a folder to the disk, if the file system can; the file itself is in place already."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _refusal(path: PathLike, code: int | None, otherwise: str | None = None) -> OutputError:
    reason = _ADVICE.get(code or 0) or f"cannot be written ({otherwise or 'unknown error'}); save elsewhere"
    return OutputError(f"{os.fspath(path)}: {reason}.")
