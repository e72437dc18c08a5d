"""Tasks: functions that run somewhere and leave their results there, known to the caller by references.

A function that is submitted is of a module, its arguments and results are plain data, NumPy or Arrow: it may run in
another process. It must not change its arguments, and the same arguments give the same results, so that it can be run
again where a result was lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from typing import Any, Protocol, Self

from considerate.kernels.threads import available_threads


class ClosedAtEnd:
    """A context manager that closes itself."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Tasks(Protocol):
    """Where functions run. A result is kept for as long as someone holds its reference."""

    def put(self, value: Any) -> Any:
        """A reference to a value that is here; many tasks may be given it."""

    def submit(self, function: Callable[..., Any], *arguments: Any, returns: int = 1) -> Any:
        """Run a function later; a reference to its result, or a list of `returns` of them, one per value it gives.

        Arguments may be references, or lists of references; the function is given what they stand for.
        """

    def get(self, refs: Any) -> Any:
        """What a reference stands for, or a list of what several do; raises what the function raised."""

    def wait(self, refs: Sequence[Any], count: int = 1) -> tuple[list[Any], list[Any]]:
        """(finished, others), when at least `count` of the references are finished, well or not."""


class LocalTasks(ClosedAtEnd):
    """Threads of this process. Results are shared, not copied."""

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads or available_threads()
        # First in, first out: what a task waits for was submitted before it, so some task can always go on.
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
        """Drop what has not begun; what has is finished."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def _run(function: Callable[..., Any], arguments: tuple[Any, ...], refs: Sequence[Future[Any]]) -> None:
    """Run a function on what its arguments stand for; each of its results goes to its own reference."""
    try:
        given = [[_value(one) for one in some] if isinstance(some, list) else _value(some) for some in arguments]
        results = function(*given)
        if len(refs) == 1:
            results = [results]
        elif len(results) != len(refs):
            raise ValueError(f"{function.__name__} gave {len(results)} results; {len(refs)} were announced")
    except BaseException as error:  # whoever asks for a result meets it
        for ref in refs:
            ref.set_exception(error)
    else:
        for ref, result in zip(refs, results):
            ref.set_result(result)


def _value(argument: Any) -> Any:
    return argument.result() if isinstance(argument, Future) else argument
