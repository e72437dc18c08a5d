"""The folder of a divided fit's model, and its users, written to shards where they are."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

import numpy as np

from considerate.data.graph import Adjacency
from considerate.data.vocabulary import Vocabulary
from considerate.distributed.partitions import Partition
from considerate.distributed.pools import WorkerPool
from considerate.errors import OutputError, UsageError
from considerate.inference.posterior import Side
from considerate.model.shards import ShardEntry, check_folder, write_user_shard
from considerate.model.users import UserRows
from considerate.storage.files import PathLike
from considerate.storage.filesystems import Folder

SHARD = "users-"  # how the names of shards begin
UNFINISHED = ".considerate-"  # and of a file that is being written, or was when a worker was killed


def room_for_shards(folder: PathLike | None) -> tuple[str, bool]:
    """(folder of the shards, whether it is temporary); UsageError where a model cannot be written to the one given."""
    if folder is None:
        return tempfile.mkdtemp(prefix="considerate-model-"), True
    place = Folder.at(folder)
    if place.local is not None:
        above = place.local
        while not os.path.lexists(above):
            above = os.path.dirname(above)
        if not os.path.isdir(above):
            raise UsageError(f"{above}: is a file where a folder is needed; choose another name.")
        if not os.access(above, os.W_OK | os.X_OK):
            raise UsageError(f"{above}: no permission to write there; choose another folder or change its permissions.")
    try:
        check_folder(place)
    except OutputError as error:
        raise UsageError(str(error)) from error
    return place.absolute, False


@contextmanager
def tidied(folder: str, written: Callable[[], bool]) -> Iterator[None]:
    """Where no model is written, the folder is left as it was: no shards that no index names."""
    place = Folder.at(folder)
    was_there = place.local is None or os.path.isdir(place.local)
    before = set(place.names())

    try:
        yield
    finally:
        with suppress(OSError):
            strays = (UNFINISHED,) if written() else (SHARD, UNFINISHED)
            for name in place.names():
                if name not in before and name.startswith(strays):
                    place.remove(name)
            if not was_there and place.local is not None and not written():
                os.rmdir(place.local)


def check_seen(folder: str, pool: WorkerPool) -> None:
    """UsageError, now and not after hours, where a part is on a machine that does not see the folder."""
    place = Folder.at(folder)
    if place.local is None:
        return
    was_there = os.path.isdir(place.local)
    place.make()
    name = UNFINISHED + secrets.token_hex(8)
    place.write(name, [b"seen"])
    seen: Sequence[bool] = pool.call(partial(sees, folder=folder, name=name))
    place.remove(name)
    if not was_there:
        os.rmdir(place.local)
    if not all(seen):
        raise UsageError(
            f"{folder}: workers on other machines do not see this folder, and the users' vectors are written there; "
            "give one on a disk that all machines share, or with --sharded an address such as s3://bucket/name."
        )


# --- What runs where the parts are ---


def sees(part: Partition, *, folder: str, name: str) -> bool:
    return Folder.at(folder).size(name) is not None


def sweep_of(part: Partition) -> int:
    return part.sweep


def write_part_users(part: Partition, ids: Vocabulary, *, folder: str, likes: bool) -> ShardEntry | None:
    """The users of a part to their shard; a part without any has none."""
    if not part.graph.rows:
        return None
    users = UserRows(part.side, part.graph.likes.degrees, part.graph.likes, ids)
    return write_user_shard(folder, part.number, part.graph.first, users, likes=likes)


def write_all_users(folder: str, users: Side, all_user_likes: Adjacency, ids: Vocabulary, likes: bool) -> ShardEntry:
    """All users to one shard, where the items are the side that was divided."""
    rows = UserRows(users, all_user_likes.degrees, all_user_likes, ids)
    return write_user_shard(folder, 0, 0, rows, likes=likes)


def nobody(users: Side) -> UserRows:
    """No user, in the form of a model's users."""
    empty = np.zeros(1, np.int64)
    side = Side.constant(0, users.factors, 1.0, 1.0 if users.has_bias else None)
    return UserRows(side, empty[:0], Adjacency(empty, np.empty(0, np.int32)), Vocabulary.range(0))
