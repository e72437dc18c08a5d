"""Tasks: functions that run elsewhere and leave their results there; the caller holds references.

A task is a function of a module, with plain data, NumPy or Arrow as arguments and results: it may run in another
process. It must not change its arguments and must be deterministic, so that it can run again if its result is lost.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import fields, is_dataclass, replace
from functools import wraps
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from considerate.errors import OutputError
from considerate.kernels.threads import available_threads

LEAST = 1 << 16  # bytes; smaller arrays stay out of files
ALIGNED = 64


class ClosedAtEnd:
    """Context manager that closes itself."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Tasks(Protocol):
    """A place where functions run. A result is kept while someone holds its reference."""

    def put(self, value: Any) -> Any:
        """Reference to a value, as an argument of many tasks."""

    def submit(self, function: Callable[..., Any], *arguments: Any, returns: int = 1) -> Any:
        """Run a function later; returns a reference to its result, or a list of `returns` references to its results.

        Arguments may be references or lists of references; the function gets their values.
        """

    def get(self, refs: Any) -> Any:
        """Value of a reference, or values of a list of them; raises the error of the function."""

    def wait(self, refs: Sequence[Any], count: int = 1) -> tuple[list[Any], list[Any]]:
        """(finished, others), once at least `count` references have finished or failed."""


class LocalTasks(ClosedAtEnd):
    """Tasks on threads of this process. Results are shared, not copied."""

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads or available_threads()
        # First in, first out: a task waits for earlier tasks alone, so some task can always run.
        self._pool = ThreadPoolExecutor(self.threads, "considerate-tasks")

    def put(self, value: Any) -> Any:
        ref: Future[Any] = Future()
        ref.set_result(value)
        return ref

    def submit(self, function: Callable[..., Any], *arguments: Any, returns: int = 1) -> Any:
        refs: tuple[Future[Any], ...] = tuple(Future() for _ in range(returns))

        def cancelled(task: Future[None]) -> None:
            for ref in refs if task.cancelled() else []:
                ref.cancel()

        self._pool.submit(_run, function, arguments, refs).add_done_callback(cancelled)
        return refs[0] if returns == 1 else list(refs)

    def get(self, refs: Any) -> Any:
        return [ref.result() for ref in refs] if isinstance(refs, list | tuple) else refs.result()

    def wait(self, refs: Sequence[Any], count: int = 1) -> tuple[list[Any], list[Any]]:
        finished = {ref for ref in refs if ref.done()}
        while len(finished) < min(count, len(refs)):
            finished |= wait_for([ref for ref in refs if ref not in finished], return_when=FIRST_COMPLETED).done
        return [ref for ref in refs if ref in finished], [ref for ref in refs if ref not in finished]

    def close(self) -> None:
        """Drop tasks that have not begun, and finish the others."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def _run(function: Callable[..., Any], arguments: tuple[Any, ...], refs: Sequence[Future[Any]]) -> None:
    """Run a function on the values of its arguments; each of its results goes to its own reference."""
    try:
        values = [[_value(ref) for ref in given] if isinstance(given, list) else _value(given) for given in arguments]
        results = function(*values)
        if len(refs) == 1:
            results = [results]
        elif len(results) != len(refs):
            raise ValueError(f"{function.__name__} gave {len(results)} results; {len(refs)} were announced")
    except BaseException as error:  # raised again by `get`
        for ref in refs:
            ref.set_exception(error)
    else:
        for ref, result in zip(refs, results):
            ref.set_result(result)


def _value(argument: Any) -> Any:
    return argument.result() if isinstance(argument, Future) else argument


# --- Large results in files, whose pages may leave the memory ---


class SpillingTasks(LocalTasks):
    """Tasks on threads of this process, with results in files of a folder. A file is removed with its result."""

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
    """Copy of a value with its large arrays in one mapped file."""
    large: list[NDArray[Any]] = []

    def note(array: NDArray[Any]) -> NDArray[Any]:
        large.append(array)
        return array

    _changed(value, note)
    if not large:
        return value
    mapped = iter(_in_file(large, folder))
    return _changed(value, lambda _: next(mapped))


def _changed(value: Any, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Any:
    """Apply `change` to the large arrays in dataclasses, lists, tuples and dictionaries."""
    if isinstance(value, np.ndarray):
        return change(value) if value.nbytes >= LEAST and not value.dtype.hasobject else value
    if is_dataclass(value) and not isinstance(value, type):
        before = {field.name: getattr(value, field.name) for field in fields(value) if field.init}
        after = {name: _changed(field, change) for name, field in before.items()}
        other = {name: field for name, field in after.items() if field is not before[name]}
        return replace(value, **other) if other else value
    if type(value) in (list, tuple):
        return type(value)(_changed(entry, change) for entry in value)
    if type(value) is dict:
        return {key: _changed(entry, change) for key, entry in value.items()}
    return value


def _in_file(arrays: list[NDArray[Any]], folder: str) -> list[NDArray[Any]]:
    """Write arrays to a file and map them read-only. The file is closed and unlinked at once: a process may hold more
    results than open files, and the file disappears with its last array."""
    import pyarrow as pa

    starts: list[int] = []
    try:
        descriptor, path = tempfile.mkstemp(prefix="result-", dir=folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                for array in arrays:
                    file.seek(-(-file.tell() // ALIGNED) * ALIGNED)
                    starts.append(file.tell())
                    file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
            with pa.memory_map(path) as whole:
                memory = whole.read_buffer()
        finally:
            os.unlink(path)
    except OSError as error:
        raise OutputError(
            f"{folder}: {sum(array.nbytes for array in arrays) / 1e6:.1f} MB of what was read cannot be written there "
            f"({error.strerror or error}); free some space, or choose a folder on another disk."
        ) from error
    return [
        np.frombuffer(memory, array.dtype, array.size, at).reshape(array.shape) for array, at in zip(arrays, starts)
    ]
