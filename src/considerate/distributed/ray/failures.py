"""What a cluster can lose, told apart from what the code itself raised."""

from __future__ import annotations

from typing import Any, NoReturn

from considerate.errors import ClusterError

SIGNS = {
    "running low on memory": "its machine ran out of memory",
    "its node has died": "its machine died",
    "node was terminated": "its machine died",
    "worker process has died": "its process died: killed, out of memory or crashed",
    "killed by `ray.kill`": "its process was killed",
}


def losses() -> tuple[type[Exception], ...]:
    """What Ray raises where a process, a node or an object is gone; the work can be done again elsewhere."""
    from ray import exceptions as ray

    return (
        ray.RayActorError,
        ray.WorkerCrashedError,
        ray.NodeDiedError,
        ray.OutOfMemoryError,
        ray.ObjectLostError,
        ray.PlasmaObjectNotAvailable,
    )


def reraise(error: Exception) -> NoReturn:
    """The error in the words of whoever raised it: ours from another process as it is, Ray's as one sentence."""
    from ray import exceptions as ray

    if isinstance(error, ray.ObjectStoreFullError | ray.OutOfDiskError):
        raise ClusterError(
            "A node's object store is full, in memory and on its disk; more or larger nodes, or a larger "
            "--object-store-memory where Ray is started, would hold the graph and the messages."
        ) from error
    if isinstance(error, ray.RayTaskError) and not isinstance(error.cause, ray.RayError):
        raise error.cause from error
    if "No module named" in str(error):
        why = reason(getattr(error, "cause", error)).removeprefix("System error: ")
        raise ClusterError(
            f"A machine of the cluster cannot load the code ({why}); considerate must be installed on all of them, in "
            "the same version."
        ) from error
    if isinstance(error, ray.RayError):
        raise ClusterError(f"Ray failed ({type(error).__name__}): {reason(error)}") from error
    raise error


def reason(error: Any) -> str:
    """Why something failed or was lost, in one line."""
    text = str(error)
    for sign, meaning in SIGNS.items():
        if sign in text:
            return meaning
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    last = getattr(error, "actor_init_failed", False)  # a traceback ends with what was raised
    return lines[-1 if last else 0].rstrip(".")[:300]
