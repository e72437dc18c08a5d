"""Fits over partitions of the graph, on a disk or on a Ray cluster (eq. 21).

    backends/     OutOfCore and RayBackend: the options of a fit, and sessions that run it; base: options.py
    pools.py      worker pools: partitions in this process; partitions in files are in backends/out_of_core.py
    ray/          a session, tasks and a worker pool on Ray
    tasks.py      functions that run elsewhere and leave their results there
    exchange.py   Parquet read by tasks, exchanged once into the partitions; its stages are in stages.py
    partitions/   one partition: it steps its residents, and sums for the travelling side
    runners/      the sweep: messages down, sums up, the travelling side stepped at the head (travelling.py)
    division.py   bytes and memory of a division; out of core: disk_division.py
    fans.py       out of core: the users of some items, gathered for the walk's table

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
    """Import a backend when it is first used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "ray" if name == "RayBackend" else "out_of_core"
    return getattr(import_module(f"considerate.distributed.backends.{module}"), name)
