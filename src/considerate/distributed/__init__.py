"""The same sweep over partitions of the graph, on a disk or on a Ray cluster (eq. 21).

    backends/     OutOfCore and RayBackend: the options of a fit, and sessions that run it
    pools.py      worker pools: partitions in this process; those in files are in backends/out_of_core.py
    ray/          a session, tasks and a worker pool on Ray
    tasks.py      functions that run somewhere and leave their results there
    exchange.py   Parquet read by tasks, exchanged once into the partitions; its stages are in stages.py
    partitions/   what one partition does with a message
    runners/      the sweep: messages down, sums up, the travelling side stepped at the head
    division.py   which side is partitioned, and the memory that needs; out of core: disk_division.py
    likers.py     out of core: the users of some items, gathered for the walk's table

The *resident* side (users or items) lives with the partitions; the *travelling* side is at the head, goes to every
partition once a sweep and comes back as sums. A *part* is a partition's share of the graph.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from considerate.distributed.backends.out_of_core import OutOfCore
    from considerate.distributed.backends.ray import RayBackend

__all__ = ["OutOfCore", "RayBackend"]


def __getattr__(name: str) -> Any:
    """Backends are imported when they are first used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "ray" if name == "RayBackend" else "out_of_core"
    return getattr(import_module(f"considerate.distributed.backends.{module}"), name)
