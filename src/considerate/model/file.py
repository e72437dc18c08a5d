"""Files of models: saving, loading and forgetting users, in one file or a folder of shards."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields, replace
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from considerate.data.vocabulary import Vocabulary
from considerate.errors import ModelFileError, UsageError
from considerate.inference.parts.vertices import GraphParameters
from considerate.inference.plan import Parameters
from considerate.model.model import Model
from considerate.model.removal import without_users
from considerate.model.shards import (
    INDEX_NAME,
    ShardedUsers,
    ShardEntry,
    check_folder,
    read_index,
    read_stored,
    remove_former_shards,
    removed_unless_published,
    rewrite_shards,
    write_index,
    write_user_shard,
)
from considerate.model.tensors import read_model, shared_tensors, user_tensors
from considerate.model.written import check_of
from considerate.storage.container import (
    INDEX,
    SHARD,
    TRUTH,
    StoredTensors,
    encode_tensors,
    open_tensors,
    write_tensors,
)
from considerate.storage.filesystems import Folder

PathLike = str | os.PathLike[str]
Fitted = TypeVar("Fitted", bound=Parameters | GraphParameters)


def model_path(path: object) -> PathLike:
    """Check that a model file is given by its path; raise UsageError for an open file."""
    if not isinstance(path, str | os.PathLike):
        raise UsageError(
            f"a model file is named by its path, not by {type(path).__name__}: it is mapped, not streamed."
        )
    return path


def with_parameters(kind: type[Fitted], parameters: Mapping[str, Any], path: PathLike) -> Fitted:
    """Make a recommender with the settings among the parameters of its model file."""
    known = {field.name: parameters[field.name] for field in fields(kind) if field.name in parameters}
    recommender = kind(**known)
    try:
        recommender.check()
    except UsageError as error:
        raise ModelFileError(f"{path}: its parameters are not possible ({error})") from error
    return recommender


def save_model(model: Model, path: PathLike, *, likes: bool = True) -> None:
    """Write a model to one file, whole or not at all. Without the likes it does not know what a user has seen.

    Users in shards are copied a shard at a time.
    """
    likes = likes and model.users.knows_likes
    if model.one_kind and not likes:
        raise UsageError("the model of a graph of vertices needs its links; save it with them (likes=True).")
    shared, about = shared_tensors(model)
    of_users, about_users = user_tensors(model.users, model.factors, likes, model.plan.signed)
    tensors, metadata = shared | of_users, about | about_users
    folder, name = _remote(path)
    if folder is None:
        write_tensors(path, tensors, metadata, check_of(os.fspath(path), read_model))
    else:
        folder.write(name, encode_tensors(tensors, metadata).pieces(), check_of(folder.shown(name), read_model))


def save_sharded(model: Model, path: PathLike, shards: int, *, likes: bool = True) -> None:
    """Write a model to a folder, with its users in `shards` files. A model in the folder is replaced in one step."""
    if isinstance(shards, bool) or not isinstance(shards, int | np.integer) or not 1 <= shards <= model.user_count:
        raise UsageError(f"shards is {shards!r}; it must be a whole number from 1 to the {model.user_count} users.")
    if model.one_kind:
        raise UsageError("a model of a graph of vertices is one file; leave shards out.")
    likes = likes and model.users.knows_likes
    folder = Folder.at(path)
    check_folder(folder)
    folder.make()
    entries = list[ShardEntry]()
    cuts = [model.user_count * i // shards for i in range(shards + 1)]
    with removed_unless_published(folder, entries):
        for number, (first, last) in enumerate(pairwise(cuts)):
            users, places = model.users.some(np.arange(first, last))
            rows = users.take(places)
            if model.user_ids.kind == "range":
                rows = replace(rows, ids=Vocabulary.range(len(rows)))
            entries.append(write_user_shard(folder, number, first, rows, likes=likes))
        write_index(folder, model, entries)


def forget_users(path: PathLike, userids: Any, output: PathLike, *, verify: bool | None = None) -> Model:
    """Write the model of a file or a folder without these users. If a folder is its own output, only the shards with
    these users are written again. All users are read.

    The old shards are removed when the index names the new ones. Raises OutputError if that fails. After an interrupted
    call, the next call removes them first, and fails if it cannot.
    """
    target = shards_at(output)
    if target is not None:
        remove_former_shards(target)
    model = load_model(path, verify=verify)
    rows = np.unique(model.user_names().rows(userids))
    left = without_users(model, rows)
    if not isinstance(model.users, ShardedUsers):
        save_model(left, output)
        return left
    if target is not None and target.address == model.users.folder.address:
        rewrite_shards(model.users, left, rows)
    else:
        save_sharded(left, output, min(len(model.users.first) - 1, left.user_count))
    remove_former_shards(Folder.at(output))
    return left


def load_model(path: PathLike, *, verify: bool | None = None) -> Model:
    """Load a model from its file or its folder, mapped into memory. Raises ModelFileError if it is not a whole model.

    A file of up to 64 MB is checked whole. In a larger file the header is checked, with all types and shapes; tensors
    are checked when they are first read, for checksums and safe use (docs/model-file.md). verify=True checks it whole
    too: every checksum, every row of the posterior, the order of the likes and of string ids. verify=False reads no
    tensor's checksum.

    The index of a folder is read like a file, and each shard on demand; with verify=True all shards are read now.
    """
    return open_model(path, verify=verify)[1]


def open_model(path: PathLike, *, verify: bool | None = None) -> tuple[StoredTensors, Model]:
    """Open a model; return its file too, which for shards is the index."""
    folder = shards_at(path)
    if folder is not None:
        stored = read_stored(folder, INDEX_NAME, verify)
        if stored.metadata.get("kind") != INDEX:
            raise ModelFileError(
                f"{stored.path}: is not the index of a model in shards; copy or save the whole model again."
            )
        model = read_index(stored, folder, verify)
        if verify:
            for _ in model.users.pieces():
                pass
        return stored, model
    remote, name = _remote(path)
    stored = open_tensors(path, verify=verify) if remote is None else read_stored(remote, name, verify)
    kind = stored.metadata.get("kind")
    if kind == TRUTH:
        raise ModelFileError(
            f"{stored.path}: is the truth of a simulation, not a model; give a file that a model was saved to, such as "
            "one that `considerate fit` writes from the simulated likes."
        )
    if kind in (INDEX, SHARD):
        raise ModelFileError(f"{stored.path}: is a part of a model in shards; give the folder that it is in.")
    return stored, read_model(stored)


def shards_at(path: PathLike) -> Folder | None:
    """Folder of a model in shards; None if there is none at the path."""
    address = os.fspath(path)
    if not address or "\0" in address:
        return None
    folder = Folder.at(address)
    if folder.local is not None:
        folder = Folder.at(folder.local)  # absolute, as shards are opened later, maybe from another working folder
    try:
        return folder if folder.size(INDEX_NAME) is not None else None
    except OSError:
        return None


def is_model_file(path: PathLike) -> bool:
    """True if a path should be read as a model: by its ending, because it begins like a safetensors file, or because it
    is a folder with an index."""
    if os.fspath(path).endswith(".safetensors"):
        return True
    try:
        if shards_at(path) is not None:
            return True
    except UsageError:  # another kind of address, such as a database
        return False
    try:
        with open(path, "rb") as file:
            start = file.read(9)
            size = os.fstat(file.fileno()).st_size
    except OSError:
        return False
    return len(start) == 9 and start[8:] == b"{" and int.from_bytes(start[:8], "little") < size


def _remote(path: PathLike) -> tuple[Folder | None, str]:
    """Folder and name of a remote address; (None, "") for a local path."""
    address, question, options = os.fspath(path).partition("?")
    if "://" not in address or Folder(os.fspath(path)).local is not None:
        return None, ""
    parent, _, name = address.rstrip("/").rpartition("/")
    return Folder.at(parent + question + options), name
