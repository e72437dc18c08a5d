"""A model in shards: a folder with one index and a file for each range of users (docs/model-file.md).

A shard's name ends in digits of its checksum. So a new model is written beside the old one in the same folder, takes
its place when the index is replaced, and what the index does not name is removed then.
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
from considerate.model.description import Description
from considerate.model.model import Model
from considerate.model.tensors import read_users, shared_tensors, user_tensors
from considerate.model.users import UserRows
from considerate.model.vocabularies import pack_vocabulary, unpack_vocabulary
from considerate.storage.container import INDEX, SHARD, StoredTensors, encode_tensors, read_tensors
from considerate.storage.filesystems import Folder

INDEX_NAME = "index.safetensors"
_SHARD_NAME = re.compile(r"users-\d{5,}-[0-9a-f]{8}\.safetensors")
_MOST = 2**40  # users, edges


def shard_name(number: int, sha256: str) -> str:
    return f"users-{number:05d}-{sha256[:8]}.safetensors"


# --- Writing ---


@dataclass(frozen=True)
class ShardEntry:
    """A shard as it was written: what the index needs to know of it."""

    number: int
    first: int  # row number of its first user
    rows: int
    edges: int
    factors: int
    likes: bool
    bias: bool
    kind: str  # of its ids
    ids: tuple[Id, Id]  # the first and the last
    size: int  # bytes
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
    place = folder if isinstance(folder, Folder) else Folder.at(folder)
    count = len(users)
    if count == 0 or not len(degree) == len(ids) == count or (likes is not None and likes.rows != count):
        raise UsageError(f"shard {number} has {count} users, {len(degree)} degrees and {len(ids)} ids; give as many.")
    liked = Adjacency(np.zeros(count + 1, np.int64), np.empty(0, np.int32)) if likes is None else likes
    rows = UserRows(users, np.asarray(degree, np.int64), liked, ids)
    if likes is not None and not np.array_equal(likes.degrees, rows.degree):
        raise UsageError(f"shard {number}: the likes of a user are not as many as its degree says.")
    tensors, said = user_tensors(rows, users.factors, likes is not None)
    encoded = encode_tensors(tensors, said | {"kind": SHARD, "first": first, "factors": users.factors})
    place.make()
    size = place.write(shard_name(number, encoded.sha256), encoded.pieces())
    ends = (first, first + count - 1) if ids.kind == "range" else (ids.id_of(0), ids.id_of(count - 1))
    about = users.factors, likes is not None, users.has_bias, ids.kind, ends
    return ShardEntry(number, first, count, rows.edges, *about, size, encoded.sha256)


def write_index(folder: str | Folder, model: Model, entries: Sequence[ShardEntry]) -> None:
    """Write the index, which makes the shards a model, and remove the shards of the model that was there before.

    Of `model` all is taken but its users: they are in the shards.
    """
    place = folder if isinstance(folder, Folder) else Folder.at(folder)
    shards = sorted(entries, key=lambda one: one.first)
    _check_entries(place, model, shards)
    users, edges, kind = sum(one.rows for one in shards), sum(one.edges for one in shards), shards[0].kind
    tensors, said = shared_tensors(model)
    tensors |= {
        f"shards.{name}": np.array([getattr(one, of) for one in shards], np.int64)
        for name, of in (
            ("number", "number"),
            ("first", "first"),
            ("rows", "rows"),
            ("edges", "edges"),
            ("bytes", "size"),
        )
    }
    tensors["shards.sha256"] = np.array([list(bytes.fromhex(one.sha256)) for one in shards], np.uint8)
    if kind == "integer":
        tensors |= pack_vocabulary("shards.ids", Vocabulary.of_integers(np.array([one.ids[0] for one in shards])))[0]
    elif kind == "string":
        tensors |= pack_vocabulary("shards.ids", Vocabulary.of_strings(str(one.ids[0]) for one in shards))[0]
    about = {"users": users, "edges": edges, "user_ids": {"kind": kind, "size": users}, "likes": shards[0].likes}
    encoded = encode_tensors(tensors, said | about | {"kind": INDEX, "shards": len(shards)})
    place.write(INDEX_NAME, encoded.pieces())
    named = {one.name for one in shards}
    for name in place.names():
        if _SHARD_NAME.fullmatch(name) and name not in named:
            place.remove(name)


def _check_entries(place: Folder, model: Model, shards: Sequence[ShardEntry]) -> None:
    """UsageError where shards do not make a model together, OutputError where they are not in the folder."""
    if not shards:
        raise UsageError("a model in shards has at least one; none was given.")
    for one, after in pairwise(shards):
        if one.first + one.rows != after.first:
            raise UsageError(
                f"shard {one.number} ends before row {one.first + one.rows}, the next begins at {after.first}."
            )
        if (one.kind, one.likes, one.bias, one.factors) != (after.kind, after.likes, after.bias, after.factors):
            raise UsageError(f"shards {one.number} and {after.number} are not of one model: their forms differ.")
        if _ordered(one.ids[1]) >= _ordered(after.ids[0]):
            raise UsageError(f"the ids of shard {after.number} do not come after those of shard {one.number}.")
    if shards[0].first != 0 or len({one.number for one in shards}) != len(shards):
        raise UsageError("shards are numbered each by its own number, and the first begins at row 0.")
    if (shards[0].factors, shards[0].bias) != (model.factors, model.precisions.user_bias is not None):
        raise UsageError(f"the shards are not of a model of {model.factors} factors and these precisions.")
    for one in shards:
        if place.size(one.name) != one.size:
            raise OutputError(
                f"{place.shown(one.name)}: is not there as it was written; give a folder that all machines share."
            )


def _ordered(one: Id) -> Any:
    return one.encode() if isinstance(one, str) else one


def check_folder(place: Folder) -> None:
    """OutputError where a folder holds other things than a model of ours."""
    names = [name for name in place.names() if not _SHARD_NAME.fullmatch(name) and not name.startswith(".considerate-")]
    if names and INDEX_NAME not in names:
        raise OutputError(f"{place.shown()}: is a folder with other files in it ({names[0]}); give a new one.")


# --- Reading ---


@dataclass(frozen=True)
class Shards:
    """The shards of a model as its index has them, checked against one another."""

    folder: Folder
    number: NDArray[np.int64]
    first: NDArray[np.int64]  # [shards + 1], the last is the count of users
    edges: NDArray[np.int64]
    bytes: NDArray[np.int64]
    sha256: NDArray[np.uint8]  # [shards, 32]
    ids: Vocabulary  # the first of each shard
    kind: str  # of ids
    likes: bool
    factors: int
    bias: bool
    items: int
    verify: bool | None

    def __len__(self) -> int:
        return len(self.number)

    def name(self, place: int) -> str:
        return shard_name(int(self.number[place]), self.sha256[place].tobytes().hex())

    def read(self, place: int) -> UserRows:
        """The users of one shard, mapped or copied; ModelFileError where it is not the one that the index names."""
        name = self.name(place)
        shown = self.folder.shown(name)
        stored = read_tensors(self._bytes(name, shown), shown, verify=self.verify)
        if stored.header_sha256 != self.sha256[place].tobytes().hex() or stored.metadata.get("kind") != SHARD:
            raise ModelFileError(f"{shown}: is not the shard that the index names; copy or save the whole model again.")
        about = Description(stored)
        first, last = int(self.first[place]), int(self.first[place + 1])
        edges, likes = about.whole("edges", 0), about.get("likes", bool)
        if about.whole("first", 0) != first or about.whole("users", 0) != last - first or edges != self.edges[place]:
            raise stored.refusal("its users are not those that the index says")
        if likes != self.likes or about.get("user_ids", dict).get("kind") != self.kind:
            raise stored.refusal("its form is not that of the index")
        rows = read_users(stored, about, self.factors, self.bias, self.items)
        if rows.edges != edges:
            raise stored.refusal("its degrees are not those that the index says")
        if self.kind == "range":
            return UserRows(rows.side, rows.degree, rows.liked, Vocabulary.range(last - first, first))
        if not self._in_order(rows.ids, place):
            raise stored.refusal("its ids are not between those that the index says")
        return rows

    def _in_order(self, ids: Vocabulary, place: int) -> bool:
        """Whether they begin with the id that the index has for this shard, and end before that of the next."""
        try:
            first, last = ids.id_of(0), ids.id_of(len(ids) - 1)
        except UnicodeDecodeError:
            return False
        return self.ids.row_of(first) == place == self.ids.last_up_to(last)

    def _bytes(self, name: str, shown: str) -> Any:
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
        return data


def read_shards(stored: StoredTensors, about: Description, folder: Folder, verify: bool | None) -> Shards:
    """What an index says of the shards; none of them is opened."""
    count, users, edges = about.whole("shards", 1), about.whole("users", 1), about.whole("edges", 0)
    named = ("number", "first", "rows", "edges", "bytes")
    number, first, rows, liked, sizes = (stored.expect(f"shards.{one}", np.int64, [count]) for one in named)
    sha256 = stored.expect("shards.sha256", np.uint8, [count, 32])
    for one in (number, first, rows, liked, sizes):
        if not (one >= 0).all() or not (one < _MOST).all():
            raise stored.refusal("its list of shards has a number out of range")
    if not (rows > 0).all() or first[0] != 0 or bool((first[1:] != (first + rows)[:-1]).any()):
        raise stored.refusal("its shards overlap, or leave users out")
    if int(first[-1] + rows[-1]) != users or sum(liked.tolist()) != edges:
        raise stored.refusal("its shards do not have the users and likes that it says")
    said = about.get("user_ids", dict)
    kind = said.get("kind")
    if kind not in ("range", "integer", "string") or said != {"kind": kind, "size": users}:
        raise stored.refusal("the vocabularies are of another size than the posterior")
    size = users if kind == "range" else count
    ids = unpack_vocabulary(stored, "shards.ids", {"kind": kind, "size": size})
    return Shards(
        folder=folder,
        number=number,
        first=np.append(first, users),
        edges=liked,
        bytes=sizes,
        sha256=sha256,
        ids=ids,
        kind=kind,
        likes=about.get("likes", bool),
        factors=about.whole("factors", 1),
        bias=about.precisions().user_bias is not None,
        items=about.whole("items", 0),
        verify=verify,
    )
