"""Stages of a study: the result of each is read from the cache, or computed and stored.

A result is stored under a hash of the data and of the stage's name, version and settings. Files are JSON, or NumPy's
npz without pickle, written whole or not at all. A file that cannot be read counts as missing. An interrupted stage
stores nothing.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
import zipfile
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.kernels import compiled
from considerate.storage.files import atomic_write

Arrays = dict[str, NDArray[Any]]
UNREADABLE = (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile)
SECONDS = "stage seconds"  # stored with the result


@dataclass(frozen=True)
class Stage:
    """A part of a study: everything but the data that its result depends on, and the function that computes it.

    The result is a dictionary of arrays, or values for JSON. A stage without a version is computed each time.
    """

    name: str
    version: str | None
    settings: Mapping[str, Any]
    compute: Callable[[], Any]
    one_thread: bool = False  # whether it uses one thread, so that several stages may run in parallel


@dataclass(frozen=True)
class StudyStep:
    """Progress of a study. `reused` is None when a stage begins, then whether its result was in the cache."""

    stage: str
    done: int
    total: int
    reused: bool | None = None


class Cache:
    """Folder with the results of one data set; without a folder nothing is stored."""

    def __init__(self, folder: Path | None, data: str) -> None:
        self.folder, self.data = folder, data

    def get(self, stage: Stage) -> tuple[Any, float | None]:
        """Return (result of a stage, seconds of the run that stored it, or None if it was computed now)."""
        if self.folder is None or stage.version is None:
            return stage.compute(), None
        inputs = {"data": self.data, "stage": stage.name, "version": stage.version, "settings": dict(stage.settings)}
        key = hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()
        path = self.folder / f"{re.sub(r'[^a-z0-9]+', '-', stage.name.lower()).strip('-')}-{key[:24]}"
        arrays, values = path.with_suffix(".npz"), path.with_suffix(".json")
        try:
            if arrays.exists():
                with np.load(arrays, allow_pickle=False) as stored:
                    parts = {name: stored[name] for name in stored.files}
                return parts, float(parts.pop(SECONDS))
            stored = json.loads(values.read_text(encoding="utf-8"))
            return stored["result"], float(stored[SECONDS])
        except UNREADABLE:
            begun = time.perf_counter()
            result = stage.compute()
            seconds = time.perf_counter() - begun
        is_arrays = isinstance(result, dict) and all(isinstance(part, np.ndarray) for part in result.values())
        self.folder.mkdir(parents=True, exist_ok=True)
        with atomic_write(arrays if is_arrays else values) as file:
            if is_arrays:
                np.savez(file, allow_pickle=False, **result, **{SECONDS: np.array(seconds)})
            else:
                file.write(json.dumps({"result": result, SECONDS: seconds}).encode())
        return result, None


class StageRunner:
    """Runs stages, and counts the finished ones."""

    def __init__(self, cache: Cache, threads: int, total: int) -> None:
        self.cache, self.threads = cache, threads
        self.done, self.total = 0, total
        self.reused_seconds = 0.0  # spent by earlier runs on the reused stages

    def begin(self, stage: str) -> StudyStep:
        return StudyStep(stage, self.done, self.total)

    def end(self, stage: str, stored_seconds: float | None = None) -> StudyStep:
        self.done += 1
        self.reused_seconds += stored_seconds or 0.0
        return StudyStep(stage, self.done, self.total, stored_seconds is not None)

    def run(self, label: str, stages: Sequence[Stage]) -> Generator[StudyStep, None, list[Any]]:
        """Return the results of all stages, in order; stages of one thread run in parallel."""
        yield self.begin(label)
        results: dict[int, Any] = {}
        if self.threads > 1 and len(stages) > 1 and all(stage.one_thread for stage in stages):
            pool = ThreadPoolExecutor(self.threads)
            try:
                futures = {pool.submit(self.cache.get, stage): at for at, stage in enumerate(stages)}
                for future in as_completed(futures):
                    results[futures[future]], seconds = future.result()
                    yield self.end(stages[futures[future]].name, seconds)
            finally:
                pool.shutdown(cancel_futures=True)
        else:
            for at, stage in enumerate(stages):
                results[at], seconds = self.cache.get(stage)
                yield self.end(stage.name, seconds)
        return [results[at] for at in range(len(stages))]


def fingerprint(*arrays: NDArray[Any]) -> str:
    """Hash of the types, shapes and bytes of arrays."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape};".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def code_version(*rooms: str) -> str:
    """Hash of the code of some rooms and of the compiled kernels; a fit is repeated when it changes."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256(Path(compiled.__file__ or "").read_bytes())  # an editable install keeps it elsewhere
    for room in rooms:
        path = package / room
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(f"{file.relative_to(package)};".encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()
