"""Tasks whose large results lie in files: their pages may leave the memory."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from functools import wraps
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.distributed.tasks import LocalTasks
from considerate.errors import OutputError

LEAST = 1 << 16  # bytes of an array that is worth being in a file
ALIGNED = 64


class SpillingTasks(LocalTasks):
    """Threads of this process. What they give is in files of a folder, which nobody else sees and which go when nobody
    holds the result any more."""

    def __init__(self, folder: str, threads: int | None = None) -> None:
        super().__init__(threads)
        self._folder = folder

    def put(self, value: Any) -> Any:
        return super().put(spilled(value, self._folder))

    def submit(self, function: Callable[..., Any], *arguments: Any, returns: int = 1) -> Any:
        @wraps(function)
        def run(*given: Any) -> Any:
            return spilled(function(*given), self._folder)

        return super().submit(run, *arguments, returns=returns)


def spilled(value: Any, folder: str) -> Any:
    """The same value with its large arrays in one file, mapped."""
    found: list[NDArray[Any]] = []

    def noted(array: NDArray[Any]) -> NDArray[Any]:
        found.append(array)
        return array

    _changed(value, noted)
    if not found:
        return value
    mapped = iter(_in_file(found, folder))
    return _changed(value, lambda _: next(mapped))


def _changed(value: Any, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Any:
    """The value with change(array) for its large arrays: in dataclasses, lists, tuples and dictionaries."""
    if isinstance(value, np.ndarray):
        return change(value) if value.nbytes >= LEAST and not value.dtype.hasobject else value
    if is_dataclass(value) and not isinstance(value, type):
        found = {one.name: getattr(value, one.name) for one in fields(value) if one.init}
        made = {name: _changed(one, change) for name, one in found.items()}
        other = {name: one for name, one in made.items() if one is not found[name]}
        return replace(value, **other) if other else value
    if type(value) in (list, tuple):
        return type(value)(_changed(one, change) for one in value)
    if type(value) is dict:
        return {key: _changed(one, change) for key, one in value.items()}
    return value


def _in_file(arrays: list[NDArray[Any]], folder: str) -> list[NDArray[Any]]:
    """Arrays written to a file and mapped, read-only. The file is open for no longer than that, as there may be more of
    them than a process may have open; without its name it is gone when the last array is."""
    import pyarrow as pa

    places: list[int] = []
    try:
        descriptor, path = tempfile.mkstemp(prefix="result-", dir=folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                for array in arrays:
                    file.seek(-(-file.tell() // ALIGNED) * ALIGNED)
                    places.append(file.tell())
                    file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
            with pa.memory_map(path) as whole:
                memory = whole.read_buffer()
        finally:
            os.unlink(path)
    except OSError as error:
        raise OutputError(
            f"{folder}: {sum(one.nbytes for one in arrays) / 1e6:.1f} MB of what was read cannot be written there "
            f"({error.strerror or error}); free some space, or choose a folder on another disk."
        ) from error
    return [np.frombuffer(memory, one.dtype, one.size, place).reshape(one.shape) for one, place in zip(arrays, places)]
