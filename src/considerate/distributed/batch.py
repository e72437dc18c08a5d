"""Recommendations for all users as tasks: a slice of users each, into a folder of Parquet files."""

from __future__ import annotations

import json
import os
import secrets
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from considerate.distributed.tasks import Tasks
from considerate.errors import ModelFileError, OutputError, UsageError
from considerate.model.file import open_model
from considerate.model.model import Model
from considerate.model.ranking import RankingOptions
from considerate.model.serving import Ranker
from considerate.model.tables import RecommendationTable, recommendation_batches
from considerate.storage.files import sync_folder
from considerate.storage.filesystems import Folder

PathLike = str | os.PathLike[str]
BATCH = 4096  # users at a time; the same for any number of slices, so that the same users are ranked together
SLICE = 16 * BATCH  # users of a task
SUCCESS = "_SUCCESS"  # written last; what begins with _ is no data to those who read a folder of Parquet files


@dataclass(frozen=True)
class Slice:
    """What one task does. It pickles."""

    model: str
    sha256: str  # of the model, so that all slices are of one
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
class Part:
    """A file as a task wrote it."""

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
    **fields: Any,
) -> int:
    """`recommend_table` for everyone, into a folder `output` of files part-00000.parquet and so on; gives its rows.

    `model` and `output` are paths that every machine of `tasks` has, or addresses. On a disk the folder appears when it
    is complete; elsewhere it is when _SUCCESS is there. The rows and their order are the same however many tasks there
    are. `progress` is called with the number of users that were done since it was called last. `fields` are those of
    RankingOptions, in place of `options`.
    """
    if not isinstance(slice_users, int) or slice_users < 1:
        raise UsageError(f"slice_users is {slice_users!r}; it must be a whole number at least 1.")
    target, place = Folder.at(output), os.fspath(model)
    if Folder.at(place).local is not None:
        place = os.path.abspath(Folder.at(place).local or place)
    options = RankingOptions.choose(options, **fields)
    stored, loaded = open_model(place)
    Ranker(loaded, options, N)  # which refuses what would be refused in every task
    users = loaded.user_count
    size = -(-slice_users // BATCH) * BATCH
    check_output(output)
    staged = _stage(target)
    slices = [
        Slice(place, stored.header_sha256, staged, number, first, min(first + size, users), N, options)
        for number, first in enumerate(range(0, users, size))
    ]
    try:
        parts = _collect(tasks, [tasks.submit(write_slice, one) for one in slices], progress)
        _finish(staged, target, parts)
    except BaseException:
        _discard(staged, target, slices)
        raise
    return sum(part.rows for part in parts)


def write_slice(one: Slice) -> Part:
    """Write one slice; a task."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    model = _kept(one.model, one.sha256)
    stream, rows = pa.BufferOutputStream(), 0
    with pq.ParquetWriter(stream, RecommendationTable(model).schema) as writer:
        ranker, users = Ranker(model, one.options, one.count), range(one.first, one.last)
        for batch in recommendation_batches(ranker, rows=users, batch=BATCH, threads=1):
            writer.write_batch(batch)
            rows += batch.num_rows
    size = one.folder.write(one.name, [memoryview(stream.getvalue())])
    return Part(one.name, one.last - one.first, rows, size)


def _collect(tasks: Tasks, refs: list[Any], progress: Callable[[int], object] | None) -> list[Part]:
    """What the tasks wrote, in the order of the slices."""
    waiting = list(refs)
    while waiting:
        finished, waiting = tasks.wait(waiting)
        done = sum(part.users for part in tasks.get(finished))
        if progress is not None:
            progress(done)
    return list(tasks.get(refs))


# --- The folder ---


def check_output(output: PathLike) -> None:
    """OutputError where a folder of this name could not be put in its place."""
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
    """Where parts are written: beside the target on a disk, in it elsewhere."""
    if target.local is None:
        target.make()
        return target
    staged = Folder.at(os.path.join(_parent(target.local), f".considerate-{secrets.token_hex(8)}.tmp"))
    staged.make()
    return staged


def _finish(staged: Folder, target: Folder, parts: Sequence[Part]) -> None:
    for part in parts:
        if staged.size(part.name) != part.size:
            raise OutputError(
                f"{target.shown(part.name)}: was written and is not there; give a folder that all machines share."
            )
    said = {"rows": sum(part.rows for part in parts), "parts": [part.name for part in parts]}
    staged.write(SUCCESS, [json.dumps(said).encode()])
    if target.local is not None and staged.local is not None:
        try:
            os.rename(staged.local, target.local.rstrip(os.sep))  # over an empty folder, where there is one
        except OSError as error:
            raise OutputError(
                f"{target.shown()}: cannot be put in its place ({error.strerror}); choose another name."
            ) from error
        sync_folder(_parent(target.local))


def _discard(staged: Folder, target: Folder, slices: Sequence[Slice]) -> None:
    """Leave nothing behind; a task that is still running finds no folder to write to."""
    if target.local is None:
        for one in slices:
            target.remove(one.name)
        target.remove(SUCCESS)
        return
    assert staged.local is not None
    away = Folder.at(staged.local + ".gone")
    with suppress(OSError):
        os.rename(staged.local, away.local or "")
    away.remove_all()


# --- The model, loaded once in a process ---

_lock = threading.Lock()
_last: dict[tuple[str, str], Model] = {}


def _kept(place: str, sha256: str) -> Model:
    with _lock:
        found = _last.get((place, sha256))
        if found is None:
            stored, found = open_model(place)
            if stored.header_sha256 != sha256:
                raise ModelFileError(f"{place}: was replaced by another model meanwhile; start again.")
            _last.clear()
            _last[place, sha256] = found
    return found
