"""Stages that are kept: what a stage found is stored under a hash of all that it depends on.

A key is made of the data, the stage's name, its version and its settings. Files are JSON, or NumPy's npz without
pickle, written whole or not at all; one that cannot be read is as good as none.
"""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from considerate.kernels import compiled
from considerate.storage.files import atomic_write

Arrays = dict[str, NDArray[Any]]
_BROKEN = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile)


@dataclass(frozen=True)
class Stage:
    """What one stage depends on, beside the data. Without a version it is made again each time."""

    name: str
    version: str | None
    settings: Mapping[str, Any]


class Cache:
    """A folder of stages of one data set; without a folder nothing is kept."""

    def __init__(self, folder: Path | None, data: str) -> None:
        self.folder, self.data = folder, data

    def arrays(self, stage: Stage, make: Callable[[], Arrays]) -> tuple[Arrays, bool]:
        """(arrays of a stage, whether they were there already)"""

        def read(path: Path) -> Arrays:
            with np.load(path, allow_pickle=False) as stored:
                return {name: stored[name] for name in stored.files}

        def write(file: IO[bytes], made: Arrays) -> None:
            np.savez(file, allow_pickle=False, **made)

        return self._kept(self._path(stage, "npz"), make, read, write)

    def values(self, stage: Stage, make: Callable[[], Any]) -> tuple[Any, bool]:
        """(plain values of a stage, those that JSON holds; whether they were there already)"""

        def read(path: Path) -> Any:
            return json.loads(path.read_text(encoding="utf-8"))

        def write(file: IO[bytes], made: Any) -> None:
            file.write(json.dumps(made).encode())

        return self._kept(self._path(stage, "json"), make, read, write)

    @staticmethod
    def _kept(
        path: Path | None,
        make: Callable[[], Any],
        read: Callable[[Path], Any],
        write: Callable[[IO[bytes], Any], None],
    ) -> tuple[Any, bool]:
        """What a file holds; where there is none, or a broken one, it is made and written."""
        if path is not None:
            try:
                return read(path), True
            except _BROKEN:
                pass
        made = make()
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(path) as file:
                write(file, made)
        return made, False

    def _path(self, stage: Stage, ending: str) -> Path | None:
        if self.folder is None or stage.version is None:
            return None
        parts = {"data": self.data, "stage": stage.name, "version": stage.version, "settings": dict(stage.settings)}
        key = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
        name = re.sub(r"[^a-z0-9]+", "-", stage.name.lower()).strip("-")
        return self.folder / f"{name}-{key[:24]}.{ending}"


def fingerprint(*arrays: NDArray[Any] | None) -> str:
    """A hash of arrays: their types, shapes and bytes."""
    digest = hashlib.sha256()
    for one in arrays:
        if one is None:
            digest.update(b"none;")
            continue
        digest.update(f"{one.dtype.str}{one.shape};".encode())
        digest.update(np.ascontiguousarray(one).data)
    return digest.hexdigest()


def code_version(*rooms: str) -> str:
    """A hash of the code of some rooms of this package, compiled kernels too: a fit is made again when it changes."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256(Path(compiled.__file__ or "").read_bytes())  # which an editable install keeps elsewhere
    for room in rooms:
        place = package / room
        files = sorted(place.rglob("*")) if place.is_dir() else [place]
        for file in files:
            if file.suffix == ".py":
                digest.update(f"{file.relative_to(package)};".encode())
                digest.update(file.read_bytes())
    return digest.hexdigest()
