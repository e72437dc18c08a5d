"""Model in shards: a folder with one index and a file for each range of users (docs/model-file.md).

A shard's name ends in digits of its checksum. So a new model can be written to the folder of an old one. It takes the
old one's place when the index is replaced; then the shards that the index does not name are removed.
"""

from __future__ import annotations

import logging
import os
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency
from considerate.data.vocabulary import Id, Vocabulary, join_ids
from considerate.errors import ModelFileError, OutputError, UsageError
from considerate.inference.posterior import Side, padded
from considerate.kernels.arrays import empty
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
from considerate.model.tensors import read_model, shared_tensors, user_tensors, users_in
from considerate.model.users import Rows, UserRows, Users
from considerate.model.written import check_of
from considerate.storage.container import INDEX, SHARD, StoredTensors, encode_tensors, read_tensors
from considerate.storage.files import sync_folder
from considerate.storage.filesystems import Folder
from considerate.storage.layout import Arrays

logger = logging.getLogger("considerate")
INDEX_NAME = "index.safetensors"
MAPPED = 64  # shards that are kept open; each is a file
COPIED = 4  # shards that are kept open if they are copied into memory
_SHARD_NAME = re.compile(r"users-\d{5,}-[0-9a-f]{8}\.safetensors")


def shard_name(number: int, sha256: str) -> str:
    return f"users-{number:05d}-{sha256[:8]}.safetensors"


# --- Writing ---


@dataclass(frozen=True)
class ShardEntry:
    """Entry of a written shard in the index."""

    number: int
    first: int  # row number of its first user
    rows: int
    edges: int
    factors: int
    likes: bool
    bias: bool
    kind: str  # of its ids
    ids: tuple[Id, Id]  # first and last id
    bytes: int
    sha256: str  # of the header, which has the checksums of the tensors

    @property
    def name(self) -> str:
        return shard_name(self.number, self.sha256)


def write_user_shard(
    folder: str | Folder, number: int, first: int, users: UserRows, *, likes: bool = True
) -> ShardEntry:
    """Write the users from row `first` on to a new file of the folder, which the index does not name yet.

    Without `likes` the model does not know what a user has seen. For ids that are row numbers, pass
    Vocabulary.range(rows).
    """
    folder = folder if isinstance(folder, Folder) else Folder.at(folder)
    side, degree, ids, count = users.side, users.degree, users.ids, len(users)
    if not 0 < count == len(degree) == len(ids):
        raise UsageError(f"shard {number} has {count} users, {len(degree)} degrees and {len(ids)} ids; give as many.")
    if users.has_covariance:
        raise UsageError("posterior is 'full', and covariances of users are kept in one file; save without shards.")
    if likes and not np.array_equal(users.liked.degrees, degree):
        raise UsageError(f"shard {number}: the likes of a user are not as many as its degree says.")
    tensors, about = user_tensors(users, side.factors, likes)
    encoded = encode_tensors(tensors, about | {"kind": SHARD, "first": first, "factors": side.factors})
    folder.make()
    name, items = shard_name(number, encoded.sha256), int(users.liked.indices.max(initial=-1)) + 1
    size = folder.write(
        name, encoded.pieces(), check_of(folder.shown(name), lambda shard: _users_of(shard, items, users.has_bias))
    )
    ends = (first, first + count - 1) if ids.kind == "range" else (ids.id_of(0), ids.id_of(count - 1))
    form = side.factors, likes, side.has_bias, ids.kind
    return ShardEntry(number, first, count, users.edges, *form, ends, size, encoded.sha256)


def write_index(folder: str | Folder, model: Model, entries: Sequence[ShardEntry]) -> None:
    """Write the index, which makes the shards a model, and remove the shards of the old model.

    The index has all of `model` but its users, who are in the shards. A shard that cannot be removed causes a warning;
    the new model is whole.
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
    pieces = encode_tensors(tensors | form.select(SHARDS, listed), about).pieces()
    folder.write(INDEX_NAME, pieces, check_of(folder.shown(INDEX_NAME), lambda index: read_index(index, folder, None)))
    _keep_only(folder, {entry.name for entry in shards})


def _keep_only(folder: Folder, named: set[str]) -> None:
    """Remove all other shards; warn of one that cannot be removed."""
    reasons = {name: folder.remove(name) for name in _shards_besides(folder, named)}
    left = [f"{name} ({reason})" for name, reason in reasons.items() if reason is not None]
    if left:
        logger.warning("%s: %s of a former model cannot be removed; remove them", folder.shown(), ", ".join(left))
    if folder.local is not None and reasons:
        sync_folder(folder.local)


def _shards_besides(folder: Folder, named: set[str]) -> list[str]:
    """Shards in a folder other than these."""
    return [name for name in folder.names() if _SHARD_NAME.fullmatch(name) and name not in named]


def remove_former_shards(folder: Folder) -> None:
    """Remove the shards that the index does not name, which have users from before a change; raise OutputError if one
    is left."""
    stored = read_stored(folder, INDEX_NAME, None)
    users = read_index(stored, folder, None).users
    assert isinstance(users, ShardedUsers)
    named = {users.name(number) for number in range(len(users.first) - 1)}
    _keep_only(folder, named)
    left = _shards_besides(folder, named)
    if left:
        raise OutputError(
            f"{folder.shown(left[0])}: still holds users as they were before, and cannot be removed; remove it, or "
            "correct the rights of the folder and forget them again. The model itself is whole."
        )


@contextmanager
def removed_unless_published(folder: Folder, entries: list[ShardEntry]) -> Iterator[None]:
    """Remove the new shards among these entries if the block fails and has not replaced the index."""
    before, index = set(folder.names()), _index_of(folder)
    try:
        yield
    except BaseException:
        if _index_of(folder) == index:
            for entry in entries:
                if entry.name not in before:
                    folder.remove(entry.name)
        raise


def _index_of(folder: Folder) -> bytes | None:
    """Content of the index; None without an index."""
    return None if folder.size(INDEX_NAME) is None else bytes(folder.read(INDEX_NAME))


def replace_shards(beside: str, path: str, publish: Callable[[Callable[[], None]], None]) -> None:
    """Replace a model in shards by another in a folder on the same disk. `publish` gets the one step that does it, and
    calls it or raises. Then the shards of the model that is not in use are removed."""
    folder, index = Folder.at(path), os.path.join(beside, INDEX_NAME)
    before, new = set(folder.names()), {name for name in Folder.at(beside).names() if _SHARD_NAME.fullmatch(name)}
    try:
        for name in new:
            os.replace(os.path.join(beside, name), os.path.join(path, name))
        sync_folder(path)
        publish(lambda: os.replace(index, os.path.join(path, INDEX_NAME)))
        sync_folder(path)
    finally:
        _keep_only(folder, before if os.path.exists(index) else new)  # also after an error at any time


def rewrite_shards(users: ShardedUsers, left: Model, gone: NDArray[np.int64]) -> None:
    """Replace a model in shards by `left`, without the users of these rows. Shards with such users are written
    again and the old ones removed; the others stay."""
    folder, entries, first = users.folder, list[ShardEntry](), 0
    shards = np.searchsorted(users.first, gone, side="right") - 1
    whole = left.users.whole()
    with removed_unless_published(folder, entries):
        for number in range(len(users.first) - 1):
            entry = users.entry(number)
            lost = int((shards == number).sum()) if users.kind != "range" else 0
            rows = slice(first, first + entry.rows - lost)
            if number not in shards:
                entries.append(replace(entry, first=first))
            elif entry.rows > lost:
                mine = whole.take(np.arange(rows.start, rows.stop))
                mine = replace(mine, ids=Vocabulary.range(len(mine))) if users.kind == "range" else mine
                entries.append(write_user_shard(folder, entry.number, first, mine, likes=entry.likes))
            first = rows.stop
        write_index(folder, left, entries)


def _form(about: dict[str, Any], user_bias: bool) -> Form:
    """Form of the list of shards, which has the first id of each."""
    return Form.of(about | {"shards.ids": about["user_ids"]}, user_bias=user_bias, item_bias=True)


def _check_entries(folder: Folder, model: Model, shards: Sequence[ShardEntry]) -> None:
    """Raise UsageError if shards do not make a model together, OutputError if one is missing in the folder."""
    if not shards:
        raise UsageError("a model in shards has at least one; none was given.")
    for entry, after in pairwise(shards):
        if entry.first + entry.rows != after.first:
            raise UsageError(
                f"shard {entry.number} ends before row {entry.first + entry.rows}, the next begins at {after.first}."
            )
        if (entry.kind, entry.likes, entry.bias, entry.factors) != (after.kind, after.likes, after.bias, after.factors):
            raise UsageError(f"shards {entry.number} and {after.number} are not of one model: their forms differ.")
        if entry.ids[1] >= after.ids[0]:  # type: ignore[operator]  # of one kind; UTF-8 has the order of texts
            raise UsageError(f"the ids of shard {after.number} do not come after those of shard {entry.number}.")
    if shards[0].first != 0 or len({entry.number for entry in shards}) != len(shards):
        raise UsageError("shards are numbered each by its own number, and the first begins at row 0.")
    if (shards[0].factors, shards[0].bias) != (model.factors, model.precisions.user_bias is not None):
        raise UsageError(f"the shards are not of a model of {model.factors} factors and these precisions.")
    for entry in shards:
        if folder.size(entry.name) != entry.bytes:
            raise OutputError(
                f"{folder.shown(entry.name)}: is missing or has changed; give a folder that all machines share."
            )


def check_folder(folder: Folder) -> None:
    """Raise OutputError if a folder has files that do not belong to a model of this library."""
    names = [name for name in folder.names() if not (_SHARD_NAME.fullmatch(name) or name.startswith(".considerate-"))]
    if names and INDEX_NAME not in names:
        raise OutputError(f"{folder.shown()}: is a folder with other files in it ({names[0]}); give a new one.")


# --- Reading ---


@dataclass(eq=False)
class ShardedUsers:
    """Users of a model in shards, with the protocol of users.py. A shard is opened when one of its users is read, from
    any thread."""

    folder: Folder
    about: dict[str, Any]  # description in the index
    arrays: Arrays  # list of shards
    form: Form  # of the model
    verify: bool | None

    def __post_init__(self) -> None:
        about = self.about
        self.kind, self.edges, self.factors = about["user_ids"]["kind"], about["edges"], about["factors"]
        self.knows_likes, self.has_bias = about["likes"] or not self.edges, "user_bias" in self.form.flags
        self.has_covariance = False
        self.first = np.append(self.arrays["shards.first"], about["users"])  # [shards + 1]
        size = about["users" if self.kind == "range" else "shards"]
        self.first_ids = vocabulary("shards.ids", {"kind": self.kind, "size": size}, self.arrays)
        self._open: OrderedDict[int, Users] = OrderedDict()
        self._lock = Lock()
        self._most = MAPPED if self.folder.local is not None else COPIED

    def __reduce__(self) -> tuple[Any, ...]:
        return ShardedUsers, (
            self.folder,
            self.about,
            self.arrays,
            self.form,
            self.verify,
        )  # the shards stay where they are

    def __len__(self) -> int:
        return int(self.first[-1])

    @property
    def ids(self) -> ShardedIds:
        return ShardedIds(self)

    def entry(self, number: int) -> ShardEntry:
        """Entry of one shard in the index."""
        about, (first, last) = self.about, self.first[number : number + 2].tolist()
        low, high = first, last - 1
        if self.kind != "range":
            some, rows = self.shard(number).some(np.array([0, last - first - 1]))
            low, high = some.ids.ids_of(rows)
        own, edges, size = (int(self.arrays[f"shards.{name}"][number]) for name in ("number", "edges", "bytes"))
        form = self.factors, about["likes"], self.has_bias, self.kind
        sha256 = self.arrays["shards.sha256"][number].tobytes().hex()
        return ShardEntry(own, first, last - first, edges, *form, (low, high), size, sha256)

    def name(self, number: int) -> str:
        """File name of one shard."""
        sha256 = self.arrays["shards.sha256"][number].tobytes().hex()
        return shard_name(int(self.arrays["shards.number"][number]), sha256)

    def shard(self, number: int) -> Users:
        """Users of one shard, which stays open for a while."""
        with self._lock:
            users = self._open.pop(number, None)
            if users is None:
                users = self._read(number)
            self._open[number] = users
            if len(self._open) > self._most:
                self._open.popitem(last=False)
        return users

    def keep_open(self) -> None:
        """Open all shards, and keep them open, as saving another model in the folder removes their files."""
        self._most = max(self._most, len(self.first) - 1)
        for number in range(len(self.first) - 1):
            self.shard(number)

    def _read(self, shard: int) -> Users:
        """Read the users of one shard, mapped or copied; raise ModelFileError if it is not the shard in the index."""
        sha256 = self.arrays["shards.sha256"][shard].tobytes().hex()
        stored = read_stored(
            self.folder,
            self.name(shard),
            self.verify,
            "is missing, and the index names it; copy the whole folder, or load again if the model was saved again "
            "meanwhile",
        )
        if stored.header_sha256 != sha256 or stored.metadata.get("kind") != SHARD:
            raise ModelFileError(
                f"{stored.path}: is not the shard that the index names; copy or save the whole model again."
            )
        about = parse(stored, SHARD_FIELDS)
        first, last = int(self.first[shard]), int(self.first[shard + 1])
        edges = self.arrays["shards.edges"][shard]
        moved = about["first"] - first  # not 0 if users of an earlier shard were forgotten
        said = (about["users"], about["edges"]) == (last - first, edges)
        if not (said and 0 <= moved <= self.about["updates"].forgotten):
            raise stored.refusal("its users are not as in the index")
        form = about["likes"], about["user_ids"]["kind"], about["factors"]
        if form != (self.about["likes"], self.kind, self.factors):
            raise stored.refusal("its form is not as in the index")
        ids = Vocabulary.range(last - first, first) if self.kind == "range" else None
        users = _users_of(stored, self.form.sizes["items"], self.has_bias, ids)
        if ids is None and not self._in_order(users, shard):
            raise stored.refusal("its ids are out of their range in the index")
        return users

    def _in_order(self, users: Users, shard: int) -> bool:
        """True if users begin with the id that the index has for this shard, and end before the next shard's."""
        some, rows = users.some(np.array([0, len(users) - 1]))
        try:
            first, last = some.ids.ids_of(rows)
        except UnicodeDecodeError:
            return False
        return self.first_ids.row_of(first) == shard == self.first_ids.last_up_to(last)

    def some(self, rows: Rows) -> tuple[UserRows, Rows]:
        if not len(rows):
            return self._joined([], 0, 0), rows
        low, high = (np.searchsorted(self.first, [rows.min(), rows.max()], side="right") - 1).tolist()
        if low == high:
            return self.shard(low).some(rows - self.first[low])
        wanted, places = np.unique(rows, return_inverse=True)
        cuts = np.searchsorted(wanted, self.first[low : high + 2])
        pieces = []
        for number, (start, stop) in enumerate(pairwise(cuts), low):
            if start < stop:
                users, inside = self.shard(number).some(wanted[start:stop] - self.first[number])
                pieces.append(users.take(inside))
        return self._joined(pieces, len(wanted), sum(piece.liked.edges for piece in pieces)), places

    def pieces(self) -> Iterator[tuple[int, UserRows]]:
        for number, first in enumerate(self.first[:-1].tolist()):
            yield first, self.shard(number).whole()

    def whole(self) -> UserRows:
        return self._whole

    @cached_property
    def _whole(self) -> UserRows:
        pieces = (piece for _, piece in self.pieces())
        joined = self._joined(pieces, len(self), self.edges if self.about["likes"] else 0)
        return replace(joined, ids=Vocabulary.range(len(self))) if self.kind == "range" else joined

    def _joined(self, pieces: Iterable[UserRows], count: int, edges: int) -> UserRows:
        """Copy users of several shards, in order, into arrays of their own."""
        biases = np.empty((2, count), np.float32) if self.has_bias else ()
        side = Side(self.factors, empty((count, 2 * padded(self.factors)), np.float32), *biases)
        degree, starts, liked = np.empty(count, np.int64), np.zeros(count + 1, np.int64), np.empty(edges, np.int32)
        weights: list[NDArray[np.float32]] = []
        ids, end = [Vocabulary.of_strings([]) if self.kind == "string" else Vocabulary.of_integers(degree[:0])], 0
        for piece in pieces:
            part = slice(end, end + len(piece))
            degree[part] = piece.degree
            for values, rows in zip(side.between(part.start, part.stop).arrays(), piece.side.arrays()):
                if values is not None:
                    values[:] = rows
            starts[part.start + 1 : part.stop + 1] = piece.liked.starts[1:] + starts[end]
            liked[starts[part.start] : starts[part.stop]] = piece.liked.indices
            weights += [] if piece.liked.weights is None else [piece.liked.weights]
            ids.append(piece.ids.take(np.arange(len(piece))))  # a copy: the shard need not stay open
            end = part.stop
        kappa = np.concatenate(weights) if weights else None
        return UserRows(side, degree, Adjacency(starts, liked, kappa), join_ids(ids))


class ShardedIds:
    """Ids of users in shards."""

    def __init__(self, users: ShardedUsers) -> None:
        self._users, self.kind = users, users.kind

    def __len__(self) -> int:
        return len(self._users)

    def id_of(self, row: int) -> Id:
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of a vocabulary of {len(self)}")
        return self.ids_of([row])[0]

    def ids_of(self, rows: Sequence[int] | NDArray[Any]) -> list[Id]:
        wanted = np.asarray(rows, np.int64)
        if self.kind == "range":
            return list(wanted.tolist())
        users, inside = self._users.some(wanted)
        return users.ids.ids_of(inside)

    def row_of(self, value: object) -> int:
        return int(self.rows_of([value])[0])

    def rows_of(self, ids: Iterable[object]) -> NDArray[np.int64]:
        users, wanted = self._users, list(ids)
        if self.kind == "range":
            return users.first_ids.rows_of(wanted)
        rows = np.full(len(wanted), -1, np.int64)
        numbers = np.array([users.first_ids.last_up_to(user_id) for user_id in wanted], np.int64)
        for number in np.unique(numbers[numbers >= 0]).tolist():  # each shard is opened once
            here = np.flatnonzero(numbers == number)
            inside = users.shard(number).ids.rows_of([wanted[i] for i in here])
            rows[here] = np.where(inside >= 0, inside + users.first[number], -1)
        spaced = [i for i in np.flatnonzero(rows < 0) if isinstance(text := wanted[i], str) and text != text.strip()]
        if spaced:
            rows[spaced] = self.rows_of([str(wanted[i]).strip() for i in spaced])
        return rows


def read_index(stored: StoredTensors, folder: Folder, verify: bool | None) -> Model:
    """Make a model in shards from its index; no shard is opened."""
    return read_model(stored, lambda stored, _, form: read_sharded_users(stored, form, folder, verify))


def _users_of(stored: StoredTensors, items: int, has_bias: bool, ids: Vocabulary | None = None) -> Users:
    """Read the users of one shard, who like some of `items` items."""
    about = parse(stored, SHARD_FIELDS) | {"items": items}
    if ids is None and about["user_ids"]["kind"] == "range":
        ids = Vocabulary.range(about["users"])
    return users_in(stored, about, Form.of(about, user_bias=has_bias, item_bias=True), ids)


def read_sharded_users(stored: StoredTensors, form: Form, folder: Folder, verify: bool | None) -> ShardedUsers:
    """Make users from the list of shards in an index, after a check; no shard is opened."""
    about = parse(stored, INDEX_FIELDS)
    arrays = _form(about, user_bias=False).read(stored, SHARDS)
    first, rows, edges = (arrays[f"shards.{name}"] for name in ("first", "rows", "edges"))
    if not (rows > 0).all() or first[0] != 0 or bool((first[1:] != (first + rows)[:-1]).any()):
        raise stored.refusal("its shards overlap, or leave users out")
    if int(first[-1] + rows[-1]) != about["users"] or sum(edges.tolist()) != about["edges"]:
        raise stored.refusal("its shards do not have its numbers of users and likes")
    if about["user_ids"]["size"] != about["users"]:
        raise stored.refusal("the vocabularies are of another size than the posterior")
    return ShardedUsers(folder, about, arrays, form, verify)


def read_stored(
    folder: Folder, name: str, verify: bool | None, missing: str = "no such file; check the path"
) -> StoredTensors:
    """Open the tensors of a file, mapped from a local disk or copied from a remote address."""
    shown = folder.shown(name)
    try:
        data = folder.read(name)
    except FileNotFoundError as error:
        raise ModelFileError(f"{shown}: {missing}.") from error
    except OSError as error:
        reason = error.strerror or error
        raise ModelFileError(f"{shown}: cannot be read ({reason}); check the address and its rights.") from error
    if not len(data):
        raise ModelFileError(f"{shown}: is empty; copy or save the model again.")
    return read_tensors(data, shown, verify=verify)
