"""Checkpoints: what a fit has come to after a sweep, in a folder on any filesystem.

    FOLDER/sweep-000012/part-0007.safetensors    the rows that one part of the graph holds
    FOLDER/sweep-000012/head.safetensors         the rest of the state, and what the fit is made of
    FOLDER/sweep-000012/index.json               names, sizes and sha256 of these; written last

One without an index, or whose files are not as the index says, is refused, and the one before it is used. The two
newest are kept. Nothing in them is code; no pickle.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from numpy.typing import DTypeLike, NDArray

from considerate.data.fingerprint import differences
from considerate.errors import CheckpointError, ModelFileError, OutputError, UsageError
from considerate.storage.container import StoredTensors, encode_tensors, parse_json, read_tensors
from considerate.storage.filesystems import Folder, Written

logger = logging.getLogger("considerate")

FORMAT, FORMAT_VERSION = "considerate-checkpoint", 1
HEAD, INDEX, LOCK = "head.safetensors", "index.json", "lock"
KEPT = 2
_SWEEP = re.compile(r"sweep-([0-9]{6,9})")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MOST_INDEX = 16 << 20  # bytes


def sweep_folder(sweep: int) -> str:
    return f"sweep-{sweep:06d}"


def part_file(number: int) -> str:
    return f"part-{number:04d}.safetensors"


@dataclass(frozen=True)
class SavedPart:
    """A part's file. It pickles: whoever is to hold the part reads it, where it is."""

    folder: Folder  # of the sweep
    sweep: int
    number: int
    written: Written

    def read(self) -> StoredTensors:
        """Its tensors, once the file is known to be the one that was written; CheckpointError if it is not."""
        stored = _read(self.folder, self.written)
        if stored.metadata != _part_metadata(self.sweep, self.number):
            raise CheckpointError(f"{self.folder.shown(self.written.name)}: is not part {self.number} of its sweep.")
        return stored

    def damage(self) -> str:
        """Why this file cannot be used, or nothing."""
        try:
            self.read()
        except CheckpointError as error:
            return str(error)
        return ""


@dataclass(frozen=True)
class Saved:
    """A checkpoint that was found whole."""

    sweep: int
    head: StoredTensors
    metadata: dict[str, Any]
    parts: tuple[SavedPart, ...]

    def part(self, number: int) -> StoredTensors:
        """The tensors of one part, verified."""
        return self.parts[number].read()

    def check_parts(self, run: Callable[..., Iterable[str]] = map) -> None:
        """Read every part; CheckpointError if one is not as it was written. `run` maps a function over the parts."""
        for damage in run(SavedPart.damage, self.parts):
            if damage:
                raise CheckpointError(damage)


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one fit. It pickles: parts may be written by other machines, into a folder that all see."""

    folder: str
    fingerprint: dict[str, Any]  # what the fit is made of: {"data": ..., "settings": ...}

    @property
    def _root(self) -> Folder:
        return Folder.at(self.folder)

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Make the folder, and keep other fits of this machine out of it for as long as this lasts."""
        self._root.make()
        with self._root.locked(LOCK, "writes its checkpoints"):
            yield

    def write_part(self, sweep: int, number: int, tensors: Mapping[str, NDArray[Any]]) -> Written:
        """Write the file of one part."""
        place = self._root.inside(sweep_folder(sweep))
        place.make()
        return place.write(part_file(number), encode_tensors(tensors, _part_metadata(sweep, number)).pieces())

    def read_part(self, sweep: int, number: int) -> StoredTensors:
        """The tensors of one part, by the file's own checksums: also before there is an index."""
        name = part_file(number)
        place = self._root.inside(sweep_folder(sweep))
        try:
            stored = read_tensors(place.read(name), place.shown(name), verify=True)
        except (OSError, ModelFileError) as error:
            raise CheckpointError(f"{place.shown(name)}: cannot be read or is damaged ({error})") from error
        if stored.metadata != _part_metadata(sweep, number):
            raise CheckpointError(f"{place.shown(name)}: is not part {number} of sweep {sweep}.")
        return stored

    def finish(
        self, sweep: int, head: Mapping[str, NDArray[Any]], metadata: Mapping[str, Any], parts: Sequence[Written]
    ) -> None:
        """Write the head, then the index, which makes the checkpoint one; then remove what is no longer needed."""
        place = self._root.inside(sweep_folder(sweep))
        place.make()
        for number, part in enumerate(parts):
            if part.name != part_file(number):
                raise UsageError(f"{part.name} is given as part {number} of a checkpoint; give all parts in order.")
            if place.size(part.name) != part.size:
                raise OutputError(
                    f"{place.shown(part.name)}: was written by a worker and is not to be seen here; choose a folder "
                    "that all machines share."
                )
        about = dict(metadata) | {"kind": "checkpoint", "sweep": sweep, "fingerprint": self.fingerprint}
        written = place.write(HEAD, encode_tensors(head, about).pieces())
        place.write(INDEX, [_index(sweep, [written, *parts])])
        self._tidy(sweep)

    def discard(self, sweep: int) -> None:
        """Remove a checkpoint, half-written or whole."""
        place = self._root.inside(sweep_folder(sweep))
        place.remove(INDEX)  # first: what is half-removed is then incomplete, not damaged
        place.remove_all()

    def remove(self) -> None:
        """Remove all checkpoints."""
        for sweep in self._sweeps():
            self.discard(sweep)

    def complete(self) -> list[int]:
        """The sweeps whose checkpoint has an index, sound or not."""
        return [sweep for sweep in self._sweeps() if self._root.inside(sweep_folder(sweep)).size(INDEX) is not None]

    def _sweeps(self) -> list[int]:
        found = (_SWEEP.fullmatch(name) for name in self._root.names())
        return sorted(int(one[1]) for one in found if one is not None)

    def _tidy(self, newest: int) -> None:
        """Those older than the two newest; and later ones, which were refused, or the fit would be past them."""
        keep = [sweep for sweep in self.complete() if sweep <= newest][-KEPT:]
        for sweep in self._sweeps():
            if sweep not in keep:
                self.discard(sweep)

    def latest(self, check: Callable[[Saved], None] = Saved.check_parts) -> Saved | None:
        """The newest checkpoint that is whole, or None where there is none yet.

        `check` reads the parts and raises CheckpointError; on a cluster it has them read where they will be used. What
        is not whole is refused with a warning. CheckpointError if one is of another fit, or if all are damaged.
        """
        damaged = False
        for sweep in reversed(self._sweeps()):
            place = self._root.inside(sweep_folder(sweep))
            saved, reason = self._open(place, sweep)
            if saved is not None:
                try:
                    check(saved)
                    return saved
                except CheckpointError as error:
                    reason = str(error).rstrip(".")
            damaged = damaged or place.size(INDEX) is not None
            warnings.warn(f"{place.shown()}: this checkpoint is not used: {reason}.", stacklevel=2)
        if damaged:
            raise CheckpointError(
                f"{self.folder}: none of its checkpoints is whole; fit from the beginning, into another folder."
            )
        return None

    def division(self) -> str | None:
        """The side that stays with its parts in the fit whose checkpoints these are; None where that is not known."""
        for sweep in reversed(self.complete()):
            place = self._root.inside(sweep_folder(sweep))
            try:
                said = _read(place, _read_index(bytes(place.read(INDEX)), sweep)[0]).metadata["fingerprint"]["data"]
                return str(said["division"])
            except (OSError, ValueError, RecursionError, LookupError, TypeError):
                continue  # `latest` says what is wrong with it
        return None

    def _open(self, place: Folder, sweep: int) -> tuple[Saved | None, str]:
        """The checkpoint of a sweep with its head verified, or why there is none."""
        size = place.size(INDEX)
        if size is None:
            return None, "it is incomplete, as a fit leaves it that is stopped while it writes"
        try:
            head, *parts = _read_index(bytes(place.read(INDEX)) if size <= _MOST_INDEX else b"", sweep)
            for one in (head, *parts):
                if (size := place.size(one.name)) != one.size:
                    wrong = "is missing" if size is None else f"has {size} bytes, not {one.size}"
                    raise ValueError(f"{one.name} {wrong}")
            stored = _read(place, head)
        except (OSError, ValueError, RecursionError) as error:  # CheckpointError is a ValueError
            return None, str(error).rstrip(".") or INDEX
        metadata = stored.metadata
        if metadata.get("kind") != "checkpoint" or metadata.get("sweep") != sweep:
            return None, f"{HEAD} is not that of sweep {sweep}"
        self._check_same_fit(metadata.get("fingerprint"))
        found = (SavedPart(place, sweep, number, one) for number, one in enumerate(parts))
        return Saved(sweep, stored, metadata, tuple(found)), ""

    def _check_same_fit(self, saved: Any) -> None:
        if saved == json.loads(json.dumps(self.fingerprint)):
            return
        found = differences(saved if isinstance(saved, dict) else {}, self.fingerprint)
        raise CheckpointError(
            f"{self.folder}: holds checkpoints of a fit with {'; '.join(found) or 'other settings'}. Resume with the "
            "data and settings of that fit, or choose another folder."
        )


def tensor(stored: StoredTensors, name: str, dtype: DTypeLike, shape: Sequence[int | None]) -> NDArray[Any]:
    """A tensor of a checkpoint that must be there with this type and shape (None: any length)."""
    try:
        return stored.expect(name, dtype, shape)
    except ModelFileError as error:
        raise CheckpointError(f"{str(error).partition(';')[0]}; it is not a checkpoint that can be resumed.") from error


# --- Files --------------------------------------------------------------------------------------------------


def _part_metadata(sweep: int, number: int) -> dict[str, Any]:
    return {"kind": "checkpoint part", "sweep": sweep, "number": number}


def _read(place: Folder, written: Written) -> StoredTensors:
    """A file of tensors whose size and sha256 are as they were written."""
    try:
        content = place.read(written.name)
    except OSError as error:
        raise CheckpointError(f"{written.name} cannot be read ({error.strerror or error})") from error
    if len(content) != written.size or hashlib.sha256(content).hexdigest() != written.sha256:
        raise CheckpointError(f"{written.name} does not match its checksum")
    try:
        return read_tensors(content, place.shown(written.name), verify=False)
    except ModelFileError as error:
        raise CheckpointError(f"{written.name} is not a file of tensors") from error


def _index(sweep: int, files: Sequence[Written]) -> bytes:
    content = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "sweep": sweep,
        "files": [asdict(one) for one in files],
    }
    return json.dumps(content | {"sha256": _digest(content)}, indent=1).encode() + b"\n"


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _read_index(raw: bytes, sweep: int) -> list[Written]:
    """The files of a checkpoint, head first; ValueError where the index is not one of ours, undamaged."""
    try:
        content = parse_json(raw.decode())
        version = content["format_version"]
        sha256 = content.pop("sha256")
        whole = content["format"] == FORMAT and sha256 == _digest(content) and content["sweep"] == sweep
        if not whole or type(version) is not int:
            raise ValueError
        if version > FORMAT_VERSION:
            raise CheckpointError(f"it has format {version}, and this library reads up to {FORMAT_VERSION}")
        files = [Written(**one) for one in content["files"]]
        names = [HEAD, *(part_file(number) for number in range(len(files) - 1))]
        sound = all(type(one.size) is int and _SHA256.fullmatch(one.sha256) for one in files)
        if [one.name for one in files] != names or not sound:
            raise ValueError
    except CheckpointError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{INDEX} is damaged") from error
    return files
