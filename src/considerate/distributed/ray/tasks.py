"""Tasks on Ray: functions that run in the room that was reserved for a fit, their results in the object store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from considerate.distributed.ray.failures import losses, reason, reraise
from considerate.errors import ClusterError


class RayTasks:
    """See tasks.Tasks. A task that is lost with its process or its node is run again."""

    def __init__(self, group: Any) -> None:
        import ray

        self._run = ray.remote(_run)
        self._options = {"num_cpus": 1, "scheduling_strategy": in_group(group), "max_retries": 3}

    def put(self, value: Any) -> Any:
        import ray

        try:
            return ray.put(value)
        except ray.exceptions.RayError as error:
            reraise(error)

    def submit(self, function: Callable[..., Any], *arguments: Any, returns: int = 1) -> Any:
        layout, given = flatten(arguments)
        run = self._run.options(num_returns=returns, name=getattr(function, "__name__", "task"), **self._options)
        return run.remote(function, layout, returns, *given)

    def get(self, refs: Any) -> Any:
        import ray

        try:
            return ray.get(list(refs) if isinstance(refs, list | tuple) else refs)
        except losses() as error:
            raise ClusterError(
                f"A task was lost on the cluster more often than it is repeated: {reason(error)}."
            ) from error
        except ray.exceptions.RayError as error:
            reraise(error)

    def wait(self, refs: Sequence[Any], count: int = 1) -> tuple[list[Any], list[Any]]:
        import ray

        finished: list[Any] = []
        waiting = list(refs)
        if waiting:
            finished, _ = ray.wait(waiting, num_returns=min(max(count, 1), len(waiting)), fetch_local=False)
        known = set(finished)
        return [ref for ref in refs if ref in known], [ref for ref in refs if ref not in known]


def flatten(arguments: Sequence[Any]) -> tuple[list[int], list[Any]]:
    """(layout, arguments in a row): Ray resolves references only where they are arguments themselves, not in lists."""
    layout, given = [], []
    for argument in arguments:
        layout.append(len(argument) if isinstance(argument, list) else -1)
        given += argument if isinstance(argument, list) else [argument]
    return layout, given


def unflatten(layout: Sequence[int], given: Sequence[Any]) -> list[Any]:
    """The arguments as they were, references resolved."""
    left = iter(given)
    return [next(left) if size < 0 else [next(left) for _ in range(size)] for size in layout]


def _run(function: Callable[..., Any], layout: list[int], returns: int, *given: Any) -> Any:
    results = function(*unflatten(layout, given))
    if returns > 1 and len(results) != returns:
        raise ValueError(f"{function.__name__} gave {len(results)} results; {returns} were announced")
    return results


def in_group(group: Any, bundle: int = -1) -> Any:
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    return PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=bundle)
