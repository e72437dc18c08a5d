"""Recommendations for all users: tasks write a slice of users each into a folder of Parquet files."""

from __future__ import annotations

import json
import os
import secrets
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

from considerate.distributed.tasks import Tasks
from considerate.errors import ModelFileError, OutputError, UsageError
from considerate.model.file import open_model
from considerate.model.model import Model
from considerate.model.ranking import RankingOptions
from considerate.model.serving import Ranker
from considerate.model.tables import RecommendationTable, recommendation_batches
from considerate.storage.files import PathLike, sync_folder
from considerate.storage.filesystems import Folder

BATCH = 4096  # users ranked together; fixed, so that the batches do not depend on the slices
SLICE = 16 * BATCH  # users of a task
SUCCESS = "_SUCCESS"  # written last; readers of a folder of Parquet files skip names that begin with _


@dataclass(frozen=True)
class UserSlice:
    """Users of one task. It pickles."""

    model: str
    sha256: str  # of the model, so that all slices come from the same one
    folder: Folder
    number: int
    first: int
    last: int  # the row after the last
    count: int  # of items for each user
    options: RankingOptions

    @property
    def name(self) -> str:
        return f"part-{self.number:05d}.parquet"


@dataclass(frozen=True)
class WrittenSlice:
    """File that a task wrote."""

    name: str
    users: int
    rows: int
    size: int


def recommend_all(
    model: PathLike,
    output: PathLike,
    tasks: Tasks,
    N: int = 10,
    options: RankingOptions | None = None,
    *,
    slice_users: int = SLICE,
    progress: Callable[[int], object] | None = None,
) -> int:
    """Write `recommend_table` for all users to files part-00000.parquet ... in a folder; returns the number of rows.

    `model` and `output` are paths that every machine of `tasks` has, or addresses. On a disk the folder appears when it
    is complete; elsewhere it is complete when it has _SUCCESS. The rows and their order do not depend on the number of
    tasks. `progress` is called with the number of users since the last call.
    """
    if not isinstance(slice_users, int) or slice_users < 1:
        raise UsageError(f"slice_users is {slice_users!r}; it must be a whole number at least 1.")
    options = options or RankingOptions()
    local = Folder.at(model).local
    path = os.fspath(model) if local is None else os.path.abspath(local)
    stored, loaded = open_model(path)
    Ranker(loaded, options, N)  # raises now any error that every task would raise
    check_output(output)
    target = Folder.at(output)
    staged = _stage(target)
    users, size = loaded.user_count, -(-slice_users // BATCH) * BATCH
    slices = [
        UserSlice(path, stored.header_sha256, staged, number, first, min(first + size, users), N, options)
        for number, first in enumerate(range(0, users, size))
    ]
    try:
        waiting = refs = [tasks.submit(write_slice, part) for part in slices]
        while waiting:
            finished, waiting = tasks.wait(waiting)
            written = sum(part.users for part in tasks.get(finished))
            if progress is not None:
                progress(written)
        parts = list(tasks.get(refs))
        _finish(staged, target, parts)
    except BaseException:
        _discard(staged, target, slices)
        raise
    return sum(part.rows for part in parts)


def write_slice(part: UserSlice) -> WrittenSlice:
    """Task: write the recommendations of one slice."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    model = _cached_model(part.model, part.sha256)
    ranker, users = Ranker(model, part.options, part.count), range(part.first, part.last)
    stream, rows = pa.BufferOutputStream(), 0
    with pq.ParquetWriter(stream, RecommendationTable(model).schema) as writer:
        for batch in recommendation_batches(ranker, rows=users, batch=BATCH, threads=1):
            writer.write_batch(batch)
            rows += batch.num_rows
    size = part.folder.write(part.name, [memoryview(stream.getvalue())])
    return WrittenSlice(part.name, len(users), rows, size)


_loading = threading.Lock()


def _cached_model(path: str, sha256: str) -> Model:
    """Model, loaded once in a process."""
    with _loading:
        return _load(path, sha256)


@lru_cache(maxsize=1)
def _load(path: str, sha256: str) -> Model:
    stored, model = open_model(path)
    if stored.header_sha256 != sha256:
        raise ModelFileError(f"{path}: was replaced by another model meanwhile; start again.")
    return model


# --- The folder ---


def check_output(output: PathLike) -> None:
    """Raise OutputError if a folder of this name cannot be created."""
    target = Folder.at(output)
    if target.local is not None and os.path.exists(target.local) and not os.path.isdir(target.local):
        raise OutputError(f"{target.shown()}: is a file where a folder is needed; choose another name.")
    if target.names():
        raise OutputError(f"{target.shown()}: is a folder that is not empty; remove it or choose another name.")
    if target.local is not None and not os.path.isdir(_parent(target.local)):
        raise OutputError(f"{target.shown()}: its folder does not exist; make the folder first.")


def _parent(path: str) -> str:
    return os.path.dirname(path.rstrip(os.sep))


def _stage(target: Folder) -> Folder:
    """Folder that parts are written to: next to the target on a disk, else the target itself."""
    staged = target
    if target.local is not None:
        staged = Folder.at(os.path.join(_parent(target.local), f".considerate-{secrets.token_hex(8)}.tmp"))
    staged.make()
    return staged


def _finish(staged: Folder, target: Folder, parts: Sequence[WrittenSlice]) -> None:
    for part in parts:
        if staged.size(part.name) != part.size:
            raise OutputError(
                f"{target.shown(part.name)}: was written and is missing; give a folder that all machines share."
            )
    summary = {"rows": sum(part.rows for part in parts), "parts": [part.name for part in parts]}
    staged.write(SUCCESS, [json.dumps(summary).encode()])
    if target.local is not None and staged.local is not None:
        try:
            os.rename(staged.local, target.local.rstrip(os.sep))  # replaces an empty folder
        except OSError as error:
            raise OutputError(
                f"{target.shown()}: cannot be put in its place ({error.strerror}); choose another name."
            ) from error
        sync_folder(_parent(target.local))


def _discard(staged: Folder, target: Folder, slices: Sequence[UserSlice]) -> None:
    """Remove all files; a task that still runs finds no folder to write to."""
    if staged.local is None:
        for name in (*(part.name for part in slices), SUCCESS):
            target.remove(name)
        return
    away = staged.local + ".gone"
    with suppress(OSError):
        os.rename(staged.local, away)
    Folder.at(away).remove_all()
