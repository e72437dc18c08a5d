"""Tasks on Ray: functions that run in the room reserved for a fit, with results in the object store. Losses of a
cluster are told apart from errors of the code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import ray
from ray import exceptions
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from considerate.errors import ClusterError

# Errors of Ray for a lost process, node or object; the work can be done again elsewhere.
LOSSES = (
    exceptions.RayActorError,
    exceptions.WorkerCrashedError,
    exceptions.NodeDiedError,
    exceptions.OutOfMemoryError,
    exceptions.ObjectLostError,
    exceptions.PlasmaObjectNotAvailable,
)
SIGNS = {
    "running low on memory": "its machine ran out of memory",
    "its node has died": "its machine died",
    "node was terminated": "its machine died",
    "worker process has died": "its process died: killed, out of memory or crashed",
    "killed by `ray.kill`": "its process was killed",
}


class RayTasks:
    """Tasks on Ray, see tasks.Tasks. A task that is lost with its process or node runs again."""

    def __init__(self, group: Any) -> None:
        self._run = ray.remote(_run)
        self._options = {"num_cpus": 1, "scheduling_strategy": in_group(group), "max_retries": 3}

    def put(self, value: Any) -> Any:
        try:
            return ray.put(value)
        except exceptions.RayError as error:
            reraise(error)

    def submit(self, function: Callable[..., Any], *arguments: Any, returns: int = 1) -> Any:
        layout, given = flatten(arguments)
        run = self._run.options(num_returns=returns, name=getattr(function, "__name__", "task"), **self._options)
        return run.remote(function, layout, returns, *given)

    def get(self, refs: Any) -> Any:
        try:
            return ray.get(list(refs) if isinstance(refs, list | tuple) else refs)
        except LOSSES as error:
            raise ClusterError(
                f"A task was lost on the cluster more often than it may be repeated: {reason(error)}."
            ) from error
        except exceptions.RayError as error:
            reraise(error)

    def wait(self, refs: Sequence[Any], count: int = 1) -> tuple[list[Any], list[Any]]:
        finished: list[Any] = []
        waiting = list(refs)
        if waiting:
            finished, _ = ray.wait(waiting, num_returns=min(max(count, 1), len(waiting)), fetch_local=False)
        known = set(finished)
        return [ref for ref in refs if ref in known], [ref for ref in refs if ref not in known]


def flatten(arguments: Sequence[Any]) -> tuple[list[int], list[Any]]:
    """(layout, flat arguments). Ray resolves references that are arguments, but not those in lists."""
    layout, given = [], []
    for argument in arguments:
        layout.append(len(argument) if isinstance(argument, list) else -1)
        given += argument if isinstance(argument, list) else [argument]
    return layout, given


def unflatten(layout: Sequence[int], given: Sequence[Any]) -> list[Any]:
    """Arguments as they were before `flatten`, references resolved."""
    left = iter(given)
    return [next(left) if size < 0 else [next(left) for _ in range(size)] for size in layout]


def _run(function: Callable[..., Any], layout: list[int], returns: int, *given: Any) -> Any:
    results = function(*unflatten(layout, given))
    if returns > 1 and len(results) != returns:
        raise ValueError(f"{function.__name__} gave {len(results)} results; {returns} were announced")
    return results


def in_group(group: Any, bundle: int = -1) -> Any:
    return PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=bundle)


def reraise(error: Exception) -> NoReturn:
    """Raise our errors from another process as they are, and errors of Ray as one sentence."""
    if isinstance(error, exceptions.ObjectStoreFullError | exceptions.OutOfDiskError):
        raise ClusterError(
            "A node's object store is full, in memory and on its disk; more or larger nodes, or a larger "
            "--object-store-memory where Ray is started, would hold the graph and the messages."
        ) from error
    if isinstance(error, exceptions.RayTaskError) and not isinstance(error.cause, exceptions.RayError):
        raise error.cause from error
    if "No module named" in str(error):
        why = reason(getattr(error, "cause", error)).removeprefix("System error: ")
        raise ClusterError(
            f"A machine of the cluster cannot load the code ({why}); considerate must be installed on all of them, in "
            "the same version."
        ) from error
    if isinstance(error, exceptions.RayError):
        raise ClusterError(f"Ray failed ({type(error).__name__}): {reason(error)}") from error
    raise error


def reason(error: Any) -> str:
    """Reason of a failure or loss, in one line."""
    text = str(error)
    for sign, meaning in SIGNS.items():
        if sign in text:
            return meaning
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    last = getattr(error, "actor_init_failed", False)  # a traceback ends with the error
    return lines[-1 if last else 0].rstrip(".")[:300]
