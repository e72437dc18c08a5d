"""Checkpoints: the state of a fit after a sweep, in a folder on any filesystem.

    FOLDER/sweep-000012/part-0007.safetensors    the rows that one part of the graph holds
    FOLDER/sweep-000012/head.safetensors         the rest of the state, and the fingerprint of the fit
    FOLDER/sweep-000012/index.json               names, sizes and checksums of these; written last

A checkpoint without an index, or with files that differ from the index, is refused, and the one before it is used. The
two newest are kept. They contain no code and no pickle.
"""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from numpy.typing import DTypeLike, NDArray

from considerate.data.fingerprint import differences
from considerate.errors import CheckpointError, ModelFileError, OutputError, UsageError
from considerate.storage.container import StoredTensors, encode_tensors, parse_json, read_tensors
from considerate.storage.filesystems import Folder

FORMAT, FORMAT_VERSION = "considerate-checkpoint", 2
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
class FileEntry:
    """Name, size and checksum of a written file."""

    name: str
    size: int
    sha256: str  # of its header, which has the checksums of its tensors; in an index of format 1 of the whole file


@dataclass(frozen=True)
class CheckpointPart:
    """File of a part. It can be pickled, as the worker that will hold the part reads it."""

    folder: Folder  # of the sweep
    sweep: int
    number: int
    file: FileEntry | str  # entry of the index, or the name before there is an index
    version: int = FORMAT_VERSION  # of the index

    def read(self) -> StoredTensors:
        """Read and verify the tensors. Raise CheckpointError if the file is not as it was written."""
        stored = _read(self.folder, self.file, self.version)
        if stored.metadata != _part_metadata(self.sweep, self.number):
            raise CheckpointError(f"{stored.path}: is not part {self.number} of sweep {self.sweep}.")
        return stored

    def damage(self) -> str:
        """Reason why this file cannot be used; empty if it can."""
        try:
            self.read()
        except CheckpointError as error:
            return str(error)
        return ""


@dataclass(frozen=True)
class Checkpoint:
    """Checkpoint with a verified index and head."""

    sweep: int
    head: StoredTensors
    metadata: dict[str, Any]
    parts: tuple[CheckpointPart, ...]
    _read_parts: dict[int, StoredTensors] = field(default_factory=dict, compare=False, repr=False)

    def part(self, number: int) -> StoredTensors:
        """Tensors of one part, read and verified once."""
        if number not in self._read_parts:
            self._read_parts[number] = self.parts[number].read()
        return self._read_parts[number]

    def check_parts(self, run: Callable[..., Iterable[str]] | None = None) -> None:
        """Read every part; raise CheckpointError if one is not as it was written. `run` maps a function over the parts,
        on the machines that will hold them."""
        if run is None:
            for number in range(len(self.parts)):
                self.part(number)
            return
        for damage in run(CheckpointPart.damage, self.parts):
            if damage:
                raise CheckpointError(damage)


@dataclass(frozen=True)
class Checkpoints:
    """Checkpoints of one fit. It can be pickled: other machines may write parts, into a folder that all see."""

    folder: str
    fingerprint: dict[str, Any]  # of the data and the settings: {"data": ..., "settings": ...}

    @property
    def _root(self) -> Folder:
        return Folder.at(self.folder)

    def _of(self, sweep: int) -> Folder:
        return self._root.inside(sweep_folder(sweep))

    def lock(self) -> AbstractContextManager[bool]:
        """Make the folder and lock it against other fits of this machine. Yields True if it is locked."""
        self._root.make()
        return self._root.lock(LOCK, "writes its checkpoints")

    def write_part(self, sweep: int, number: int, tensors: Mapping[str, NDArray[Any]]) -> FileEntry:
        """Write the file of one part."""
        self._of(sweep).make()
        return _write(self._of(sweep), part_file(number), tensors, _part_metadata(sweep, number))

    def read_part(self, sweep: int, number: int) -> StoredTensors:
        """Read one part, verified by the file's own checksums, so no index is needed."""
        return CheckpointPart(self._of(sweep), sweep, number, part_file(number)).read()

    def finish(
        self, sweep: int, head: Mapping[str, NDArray[Any]], metadata: Mapping[str, Any], parts: Sequence[FileEntry]
    ) -> None:
        """Write the head, then the index, which completes the checkpoint; then remove older ones."""
        folder = self._of(sweep)
        folder.make()
        for number, part in enumerate(parts):
            if part.name != part_file(number):
                raise UsageError(f"{part.name} is given as part {number} of a checkpoint; give all parts in order.")
            if folder.size(part.name) != part.size:
                raise OutputError(
                    f"{folder.shown(part.name)}: a worker wrote it and this process does not see it; choose a folder "
                    "that all machines share."
                )
        about = dict(metadata) | {"kind": "checkpoint", "sweep": sweep, "fingerprint": self.fingerprint}
        files = [_write(folder, HEAD, head, about), *parts]
        content = {"format": FORMAT, "format_version": FORMAT_VERSION, "sweep": sweep}
        content["files"] = [asdict(file) for file in files]
        folder.write(INDEX, [json.dumps(content | {"sha256": _digest(content)}, indent=1).encode() + b"\n"])
        with suppress(OSError):  # the checkpoint is complete; the next one removes old files that remain
            keep = [other for other in self.complete() if other <= sweep][-KEPT:]
            for other in self._sweeps():
                if other not in keep:  # an older one, or a later one that was refused
                    self.discard(other)

    def discard(self, sweep: int) -> None:
        """Remove a checkpoint, half-written or whole."""
        self._of(sweep).remove(INDEX)  # first, so that a half-removed checkpoint is incomplete, not damaged
        self._of(sweep).remove_all()

    def remove(self) -> None:
        """Remove all checkpoints."""
        for sweep in self._sweeps():
            self.discard(sweep)

    def complete(self) -> list[int]:
        """Sweeps whose checkpoint has an index, sound or not."""
        return [sweep for sweep in self._sweeps() if self._of(sweep).size(INDEX) is not None]

    def _sweeps(self) -> list[int]:
        return sorted(int(match[1]) for name in self._root.names() if (match := _SWEEP.fullmatch(name)))

    def latest(self, check: Callable[[Checkpoint], None] = Checkpoint.check_parts) -> Checkpoint | None:
        """Find the newest whole checkpoint; None before the first one.

        `check` reads the parts and raises CheckpointError; on a cluster the machines that will use the parts read them.
        Damaged checkpoints are skipped with a warning. Raises CheckpointError if one belongs to another fit, or if all
        are damaged.
        """
        damaged = False
        for sweep in reversed(self._sweeps()):
            try:
                checkpoint = self._open(sweep)
                fingerprint = checkpoint.metadata.get("fingerprint")
                if fingerprint == json.loads(json.dumps(self.fingerprint)):
                    check(checkpoint)
                    return checkpoint
            except CheckpointError as error:
                folder = self._of(sweep)
                damaged = damaged or folder.size(INDEX) is not None
                reason = str(error).rstrip(".")
                warnings.warn(f"{folder.shown()}: this checkpoint is not used: {reason}.", stacklevel=2)
                continue
            found = fingerprint if isinstance(fingerprint, dict) else {}
            others = differences(found, self.fingerprint) or ["other settings"]
            raise CheckpointError(
                f"{self.folder}: holds checkpoints of a fit with {'; '.join(others)}. Resume with the data and "
                "settings of that fit, or choose another folder."
            )
        if damaged:
            raise CheckpointError(
                f"{self.folder}: none of its checkpoints is whole; fit from the beginning, into another folder."
            )
        return None

    def division(self) -> str | None:
        """Side that the fit of these checkpoints divides; None if unknown."""
        for sweep in reversed(self.complete()):
            with suppress(CheckpointError, LookupError, TypeError):  # `latest` reports the error
                return str(self._open(sweep).metadata["fingerprint"]["data"]["division"])
        return None

    def _open(self, sweep: int) -> Checkpoint:
        """Open the checkpoint of a sweep and verify its index and head; raise CheckpointError if they are damaged."""
        folder = self._of(sweep)
        size = folder.size(INDEX)
        if size is None:
            raise CheckpointError("it is incomplete, as a fit leaves it that is stopped while it writes")
        try:
            raw = bytes(folder.read(INDEX)) if size <= _MOST_INDEX else b""
        except OSError as error:
            raise CheckpointError(f"{INDEX} cannot be read ({error.strerror or error})") from error
        version, files = _parse_index(raw, sweep)
        for file in files:
            if (size := folder.size(file.name)) != file.size:
                wrong = "is missing" if size is None else f"has {size} bytes, not {file.size}"
                raise CheckpointError(f"{file.name} {wrong}")
        head = _read(folder, files[0], version)
        if head.metadata.get("kind") != "checkpoint" or head.metadata.get("sweep") != sweep:
            raise CheckpointError(f"{HEAD} is not that of sweep {sweep}")
        parts = (CheckpointPart(folder, sweep, number, file, version) for number, file in enumerate(files[1:]))
        return Checkpoint(sweep, head, head.metadata, tuple(parts))


def tensor(stored: StoredTensors, name: str, dtype: DTypeLike, shape: Sequence[int | None]) -> NDArray[Any]:
    """Get a tensor of a checkpoint; raise CheckpointError without this type and shape (None: any length)."""
    try:
        return stored.expect(name, dtype, shape)
    except ModelFileError as error:
        raise CheckpointError(f"{str(error).partition(';')[0]}; it is not a checkpoint that can be resumed.") from error


# --- Files --------------------------------------------------------------------------------------------------


def _part_metadata(sweep: int, number: int) -> dict[str, Any]:
    return {"kind": "checkpoint part", "sweep": sweep, "number": number}


def _write(folder: Folder, name: str, tensors: Mapping[str, NDArray[Any]], about: Mapping[str, Any]) -> FileEntry:
    encoded = encode_tensors(tensors, about)
    return FileEntry(name, folder.write(name, encoded.pieces()), encoded.sha256)


def _read(folder: Folder, file: FileEntry | str, version: int = FORMAT_VERSION) -> StoredTensors:
    """Read a file of tensors and verify it, also against the entry of the index if given."""
    name = file if isinstance(file, str) else file.name
    try:
        content = folder.read(name)
    except OSError as error:
        raise CheckpointError(f"{name} cannot be read ({error.strerror or error})") from error
    whole = version == 1  # the index has the checksum of the whole file
    try:
        stored = read_tensors(content, folder.shown(name), verify=not whole)
        sha256 = hashlib.sha256(content).hexdigest() if whole else stored.header_sha256
    except ModelFileError as error:
        raise CheckpointError(f"{name} does not match its checksum") from error
    if isinstance(file, FileEntry) and (len(content), sha256) != (file.size, file.sha256):
        raise CheckpointError(f"{name} does not match its checksum")
    return stored


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _parse_index(raw: bytes, sweep: int) -> tuple[int, list[FileEntry]]:
    """Parse the format and the files of a checkpoint, head first. Raise CheckpointError if the index is damaged."""
    try:
        content = parse_json(raw.decode())
        sha256, version = content.pop("sha256"), content["format_version"]
        ours = content["format"] == FORMAT and sha256 == _digest(content) and content["sweep"] == sweep
        if not ours or type(version) is not int or version < 1:
            raise ValueError
        if version > FORMAT_VERSION:
            raise CheckpointError(f"it has format {version}, and this library reads up to {FORMAT_VERSION}")
        files = [FileEntry(**entry) for entry in content["files"]]
        names = [HEAD, *(part_file(number) for number in range(len(files) - 1))]
        sound = all(type(file.size) is int and _SHA256.fullmatch(file.sha256) for file in files)
        if not sound or [file.name for file in files] != names:
            raise ValueError
    except CheckpointError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{INDEX} is damaged") from error
    return version, files
