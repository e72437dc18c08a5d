"""Private folders for what a fit writes on the way, removed when it ends; what killed fits left is removed by the next.

A folder has its name from the moment on that its lock is held, and the system releases that when a process ends.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from considerate.errors import OutputError, UsageError
from considerate.storage.files import PathLike
from considerate.storage.filesystems import Folder

PREFIX, UNLOCKED = ".considerate-parts-", ".considerate-new-"
LOCK, PURPOSE = "lock", "keeps its parts"


@contextmanager
def scratch_folder(parent: PathLike | None) -> Iterator[str]:
    """A new folder that only this user may enter, in `parent` or in the system's temporary folder."""
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
            named = os.path.join(above, PREFIX + os.path.basename(folder).removeprefix(UNLOCKED))
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
            if not entry.name.startswith(PREFIX) or not entry.is_dir(follow_symlinks=False):
                continue
            with suppress(OSError, UsageError):
                if entry.stat(follow_symlinks=False).st_uid != os.geteuid():
                    continue
                if not stat.S_ISREG(os.lstat(os.path.join(entry.path, LOCK)).st_mode):
                    continue
                with Folder.at(entry.path).lock(LOCK, PURPOSE) as held:
                    if held:
                        shutil.rmtree(entry.path, ignore_errors=True)
