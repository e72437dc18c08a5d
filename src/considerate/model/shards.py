"""A model in shards: a folder with one index and a file for each range of users (docs/model-file.md).

A shard's name ends in digits of its checksum. So a new model is written beside the old one in the same folder, takes
its place when the index is replaced, and the shards that the index does not name are removed then.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency
from considerate.data.vocabulary import Id, Vocabulary
from considerate.errors import ModelFileError, OutputError, UsageError
from considerate.inference.posterior import Side
from considerate.model.model import Model
from considerate.model.schema import (
    INDEX_FIELDS,
    SHARD_FIELDS,
    SHARD_NUMBERS,
    SHARDS,
    Form,
    parse,
    vocabulary,
    vocabulary_tensors,
)
from considerate.model.tensors import shared_tensors, user_tensors, users_in
from considerate.model.users import UserRows, Users
from considerate.storage.container import INDEX, SHARD, StoredTensors, encode_tensors, read_tensors
from considerate.storage.filesystems import Folder

INDEX_NAME = "index.safetensors"
_SHARD_NAME = re.compile(r"users-\d{5,}-[0-9a-f]{8}\.safetensors")


def shard_name(number: int, sha256: str) -> str:
    return f"users-{number:05d}-{sha256[:8]}.safetensors"


# --- Writing ---


@dataclass(frozen=True)
class ShardEntry:
    """A shard as it was written, for the index."""

    number: int
    first: int  # row number of its first user
    rows: int
    edges: int
    factors: int
    likes: bool
    bias: bool
    kind: str  # of its ids
    ids: tuple[Id, Id]  # the first and the last
    bytes: int
    sha256: str  # of the header, which holds those of the tensors

    @property
    def name(self) -> str:
        return shard_name(self.number, self.sha256)


def write_user_shard(
    folder: str | Folder,
    number: int,
    first: int,
    users: Side,
    degree: NDArray[np.int64],
    likes: Adjacency | None,
    ids: Vocabulary,
) -> ShardEntry:
    """Write the users from row `first` on to a file of the folder, where the index does not name it yet.

    Without `likes` it cannot be told what a user has seen. Of ids that are row numbers, Vocabulary.range(rows) will do.
    """
    folder = folder if isinstance(folder, Folder) else Folder.at(folder)
    count = len(users)
    if count == 0 or not len(degree) == len(ids) == count or (likes is not None and likes.rows != count):
        raise UsageError(f"shard {number} has {count} users, {len(degree)} degrees and {len(ids)} ids; give as many.")
    liked = Adjacency(np.zeros(count + 1, np.int64), np.empty(0, np.int32)) if likes is None else likes
    rows = UserRows(users, np.asarray(degree, np.int64), liked, ids)
    if likes is not None and not np.array_equal(likes.degrees, rows.degree):
        raise UsageError(f"shard {number}: the likes of a user are not as many as its degree says.")
    tensors, about = user_tensors(rows, users.factors, likes is not None)
    encoded = encode_tensors(tensors, about | {"kind": SHARD, "first": first, "factors": users.factors})
    folder.make()
    size = folder.write(shard_name(number, encoded.sha256), encoded.pieces())
    ends = (first, first + count - 1) if ids.kind == "range" else (ids.id_of(0), ids.id_of(count - 1))
    form = users.factors, likes is not None, users.has_bias, ids.kind
    return ShardEntry(number, first, count, rows.edges, *form, ends, size, encoded.sha256)


def write_index(folder: str | Folder, model: Model, entries: Sequence[ShardEntry]) -> None:
    """Write the index, which makes the shards a model, and remove the shards of the model that was there before.

    Of `model` all is taken but its users: they are in the shards.
    """
    folder = folder if isinstance(folder, Folder) else Folder.at(folder)
    shards = sorted(entries, key=lambda entry: entry.first)
    _check_entries(folder, model, shards)
    users, kind, first_ids = sum(entry.rows for entry in shards), shards[0].kind, [entry.ids[0] for entry in shards]
    tensors, about = shared_tensors(model)
    about |= {
        "kind": INDEX,
        "shards": len(shards),
        "users": users,
        "edges": sum(entry.edges for entry in shards),
        "user_ids": {"kind": kind, "size": users},
        "likes": shards[0].likes,
    }
    listed: dict[str, Any] = {
        f"shards.{name}": np.array([getattr(entry, name) for entry in shards], np.int64) for name in SHARD_NUMBERS
    }
    listed["shards.sha256"] = np.array([list(bytes.fromhex(entry.sha256)) for entry in shards], np.uint8)
    if kind == "integer":
        listed |= vocabulary_tensors("shards.ids", Vocabulary.of_integers(np.array(first_ids)))
    elif kind == "string":
        listed |= vocabulary_tensors("shards.ids", Vocabulary.of_strings(map(str, first_ids)))
    form = _form(about, shards[0].bias)
    folder.write(INDEX_NAME, encode_tensors(tensors | form.select(SHARDS, listed), about).pieces())
    named = {entry.name for entry in shards}
    for name in folder.names():
        if _SHARD_NAME.fullmatch(name) and name not in named:
            folder.remove(name)


def _form(about: dict[str, Any], user_bias: bool) -> Form:
    """The form of the list of shards, which has the first id of each."""
    return Form.of(about | {"shards.ids": about["user_ids"]}, user_bias=user_bias, item_bias=True)


def _check_entries(folder: Folder, model: Model, shards: Sequence[ShardEntry]) -> None:
    """UsageError where shards do not make a model together, OutputError where they are not in the folder."""
    if not shards:
        raise UsageError("a model in shards has at least one; none was given.")
    for entry, after in pairwise(shards):
        if entry.first + entry.rows != after.first:
            raise UsageError(
                f"shard {entry.number} ends before row {entry.first + entry.rows}, the next begins at {after.first}."
            )
        if (entry.kind, entry.likes, entry.bias, entry.factors) != (after.kind, after.likes, after.bias, after.factors):
            raise UsageError(f"shards {entry.number} and {after.number} are not of one model: their forms differ.")
        if _ordered(entry.ids[1]) >= _ordered(after.ids[0]):
            raise UsageError(f"the ids of shard {after.number} do not come after those of shard {entry.number}.")
    if shards[0].first != 0 or len({entry.number for entry in shards}) != len(shards):
        raise UsageError("shards are numbered each by its own number, and the first begins at row 0.")
    if (shards[0].factors, shards[0].bias) != (model.factors, model.precisions.user_bias is not None):
        raise UsageError(f"the shards are not of a model of {model.factors} factors and these precisions.")
    for entry in shards:
        if folder.size(entry.name) != entry.bytes:
            raise OutputError(
                f"{folder.shown(entry.name)}: is not there as it was written; give a folder that all machines share."
            )


def _ordered(user_id: Id) -> Any:
    return user_id.encode() if isinstance(user_id, str) else user_id


def check_folder(folder: Folder) -> None:
    """OutputError where a folder holds other things than a model of ours."""
    ours = (_SHARD_NAME.fullmatch(name) or name.startswith(".considerate-") for name in folder.names())
    names = [name for name, known in zip(folder.names(), ours) if not known]
    if names and INDEX_NAME not in names:
        raise OutputError(f"{folder.shown()}: is a folder with other files in it ({names[0]}); give a new one.")


# --- Reading ---


@dataclass(frozen=True)
class ShardIndex:
    """The shards of a model as its index lists them, checked against one another."""

    folder: Folder
    number: NDArray[np.int64]
    first: NDArray[np.int64]  # [shards + 1], the last is the count of users
    edges: NDArray[np.int64]
    bytes: NDArray[np.int64]
    sha256: NDArray[np.uint8]  # [shards, 32]
    ids: Vocabulary  # the first of each shard
    kind: str  # of ids
    likes: bool
    form: Form  # of the model
    verify: bool | None

    def __len__(self) -> int:
        return len(self.number)

    def name(self, shard: int) -> str:
        return shard_name(int(self.number[shard]), self.sha256[shard].tobytes().hex())

    def read(self, shard: int) -> Users:
        """The users of one shard, mapped or copied; ModelFileError where it is not the one that the index names."""
        name = self.name(shard)
        stored = self._open(name, self.folder.shown(name))
        if stored.header_sha256 != self.sha256[shard].tobytes().hex() or stored.metadata.get("kind") != SHARD:
            raise ModelFileError(
                f"{stored.path}: is not the shard that the index names; copy or save the whole model again."
            )
        about = parse(stored, SHARD_FIELDS)
        first, last = int(self.first[shard]), int(self.first[shard + 1])
        if (about["first"], about["users"], about["edges"]) != (first, last - first, self.edges[shard]):
            raise stored.refusal("its users are not those that the index says")
        sizes = self.form.sizes
        if (about["likes"], about["user_ids"]["kind"], about["factors"]) != (self.likes, self.kind, sizes["factors"]):
            raise stored.refusal("its form is not that of the index")
        form = Form.of(about | {"items": sizes["items"]}, user_bias="user_bias" in self.form.flags, item_bias=True)
        ids = Vocabulary.range(last - first, first) if self.kind == "range" else None
        users = users_in(stored, about, form, ids)
        if ids is None and not self._in_order(users, shard):
            raise stored.refusal("its ids are not between those that the index says")
        return users

    def _in_order(self, users: Users, shard: int) -> bool:
        """Whether they begin with the id that the index has for this shard, and end before that of the next."""
        ends = np.array([0, len(users) - 1])
        some, rows = users.some(ends)
        try:
            first, last = some.ids.ids_of(rows)
        except UnicodeDecodeError:
            return False
        return self.ids.row_of(first) == shard == self.ids.last_up_to(last)

    def _open(self, name: str, shown: str) -> StoredTensors:
        try:
            data = self.folder.read(name)
        except FileNotFoundError as error:
            raise ModelFileError(
                f"{shown}: is not there, and the index names it; copy the whole folder, or load again if the model was "
                "saved anew meanwhile."
            ) from error
        except OSError as error:
            raise ModelFileError(f"{shown}: cannot be read ({error.strerror or error}); check the path.") from error
        if not len(data):
            raise ModelFileError(f"{shown}: is empty; copy or save the model again.")
        return read_tensors(data, shown, verify=self.verify)


def read_index(stored: StoredTensors, model_form: Form, folder: Folder, verify: bool | None) -> ShardIndex:
    """The list of shards in an index; none of them is opened."""
    about = parse(stored, INDEX_FIELDS)
    users, kind = about["users"], about["user_ids"]["kind"]
    arrays = _form(about, user_bias=False).read(stored, SHARDS)
    number, first, rows, edges, size = (arrays[f"shards.{name}"] for name in SHARD_NUMBERS)
    if not (rows > 0).all() or first[0] != 0 or bool((first[1:] != (first + rows)[:-1]).any()):
        raise stored.refusal("its shards overlap, or leave users out")
    if int(first[-1] + rows[-1]) != users or sum(edges.tolist()) != about["edges"]:
        raise stored.refusal("its shards do not have the users and likes that it says")
    if about["user_ids"]["size"] != users:
        raise stored.refusal("the vocabularies are of another size than the posterior")
    ids = vocabulary("shards.ids", {"kind": kind, "size": users if kind == "range" else about["shards"]}, arrays)
    return ShardIndex(
        folder=folder,
        number=number,
        first=np.append(first, users),
        edges=edges,
        bytes=size,
        sha256=arrays["shards.sha256"],
        ids=ids,
        kind=kind,
        likes=about["likes"],
        form=model_form,
        verify=verify,
    )
