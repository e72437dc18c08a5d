"""The state of a fit to and from a checkpoint, so that it goes on with the same bits.

A sweep reads the state, the data and the settings, and of *expected* mode the groups of items, which are frozen after
a few sweeps. The rule that ends a fit reads the last bounds, and the model has them all. Draws are a function of (seed,
sweep, user), and alpha is made anew by the users' pass before anything reads it: neither is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from considerate._version import __version__
from considerate.data.fingerprint import describe_data, digest_ids, digest_likes
from considerate.data.graph import Graph, Range, part_ranges
from considerate.data.vocabulary import Vocabulary
from considerate.errors import CheckpointError
from considerate.fitting.checkpoint import Checkpoint, Checkpoints, FileEntry, tensor
from considerate.fitting.training import Start
from considerate.inference.bound import Bound
from considerate.inference.hidden import Expected
from considerate.inference.posterior import Gamma, Posterior, Precisions, Side
from considerate.inference.schedule import StepSize
from considerate.inference.sweep import InMemory, State
from considerate.inference.updates import Moments
from considerate.kernels import compiled
from considerate.parameters import FitPlan
from considerate.storage.container import StoredTensors

GAMMAS = ("user", "item", "user_bias", "item_bias")
WRITERS = 8  # files written at once: they wait for the disk
TERMS = [one.name for one in fields(Bound)]


# --- What the parts hold ------------------------------------------------------------------------------------


class Parts(Protocol):
    """Where the rows of the resident side are, and what else the runner remembers."""

    resident: str  # "users" or "items"

    def write(self, checkpoints: Checkpoints, state: State) -> list[FileEntry]:
        """Write the file of each part."""
        ...

    def read(self, checkpoints: Checkpoints, saved: Checkpoint, state: State) -> State:
        """Put the parts back; the state comes with no row of the resident side, and leaves as the runner wants it."""
        ...

    def memory(self) -> dict[str, NDArray[Any]]:
        """What the next sweep reads beside the state."""
        ...

    def recall(self, memory: Mapping[str, NDArray[Any]]) -> None:
        """Put that back."""
        ...


def user_parts(graph: Graph) -> list[Range]:
    """The rows of users of each part."""
    blocks = graph.user_blocks
    return [(int(blocks[first]), int(blocks[last])) for first, last in part_ranges(len(blocks) - 1)]


def side_tensors(side: Side, first: int = 0, last: int | None = None) -> dict[str, NDArray[Any]]:
    """Some rows of a side by the names that checkpoints have for them."""
    found = {"rows": side.rows[first:last]}
    if side.bias_mean is not None and side.bias_variance is not None:
        found |= {"bias_mean": side.bias_mean[first:last], "bias_variance": side.bias_variance[first:last]}
    return found


class PartsInMemory:
    """Users that are here whole, cut where the parts are."""

    resident = "users"

    def __init__(self, runner: InMemory) -> None:
        self.runner = runner
        self.ranges = user_parts(runner.graph)

    def write(self, checkpoints: Checkpoints, state: State) -> list[FileEntry]:
        def write(number: int) -> FileEntry:
            tensors = side_tensors(state.posterior.users, *self.ranges[number])
            tensors["sweep"] = np.array([state.sweep], np.int64)  # as parts that live elsewhere have it
            return checkpoints.write_part(state.sweep, number, tensors)

        with ThreadPoolExecutor(WRITERS, "considerate-checkpoint") as pool:
            return list(pool.map(write, range(len(self.ranges))))

    def read(self, checkpoints: Checkpoints, saved: Checkpoint, state: State) -> State:
        q, graph = state.posterior, self.runner.graph
        _check_parts(saved, len(self.ranges))
        users = Side.constant(graph.user_count, q.factors, 0.0, 0.0 if q.users.has_bias else None)
        for number, (first, last) in enumerate(self.ranges):
            stored = saved.part(number)
            for name, room in side_tensors(users, first, last).items():
                room[:] = tensor(stored, name, np.float32, room.shape)
        return replace(state, posterior=replace(q, users=users))

    def memory(self) -> dict[str, NDArray[Any]]:
        estimator = self.runner.estimator
        return {"groups": estimator.group_of_item} if isinstance(estimator, Expected) else {}

    def recall(self, memory: Mapping[str, NDArray[Any]]) -> None:
        estimator = self.runner.estimator
        if isinstance(estimator, Expected):
            estimator.use_groups(checked_groups(memory, self.runner.graph.item_count, estimator.groups))


class PartsOfPool:
    """Residents that live with the parts of a worker pool, each of which writes and reads its own file."""

    def __init__(self, runner: Any, pool: Any) -> None:
        self.pool, self.grouping, self.items = pool, runner.grouping, runner.outline.item_count
        self.resident: str = runner.setup.resident

    def write(self, checkpoints: Checkpoints, state: State) -> list[FileEntry]:
        write, read = (partial(one, state.sweep) for one in (checkpoints.write_part, checkpoints.read_part))
        written: list[FileEntry] = self.pool.snapshot(write, read)
        return written

    def read(self, checkpoints: Checkpoints, saved: Checkpoint, state: State) -> State:
        _check_parts(saved, self.pool.parts)
        self.pool.call("take", partial(checkpoints.read_part, saved.sweep), changes=True)
        return state

    def memory(self) -> dict[str, NDArray[Any]]:
        return {} if self.grouping is None else {"groups": self.grouping.group_of_item}

    def recall(self, memory: Mapping[str, NDArray[Any]]) -> None:
        if self.grouping is not None:
            self.grouping.use(checked_groups(memory, self.items, self.grouping.groups))


def _check_parts(saved: Checkpoint, expected: int) -> None:
    if len(saved.parts) != expected:
        raise CheckpointError(f"{saved.head.path}: there are {len(saved.parts)} parts where {expected} are expected.")


def checked_groups(memory: Mapping[str, NDArray[Any]], items: int, groups: int) -> NDArray[np.int32]:
    """The group of each item; kernels read where it says."""
    found = memory.get("groups")
    if found is None or found.dtype != np.int32 or found.shape != (items,) or found.min() < 0 or found.max() >= groups:
        raise CheckpointError("the checkpoint does not have the items' groups that the fit goes on with.")
    return np.array(found)


def describe_graph(graph: Graph, user_ids: Vocabulary, item_ids: Vocabulary) -> dict[str, Any]:
    """The data of a fit whose graph is here whole, as it would be described by parts of users."""
    parts = user_parts(graph)
    return describe_data(
        graph.user_count,
        graph.item_count,
        graph.edges,
        resident="users",
        likes=[digest_likes(graph.by_user, *part) for part in parts],
        resident_ids=[digest_ids(user_ids, *part) for part in parts],
        other_ids=digest_ids(item_ids),
    )


# --- The state, without the rows of the resident side ---------------------------------------------------------


@dataclass(frozen=True)
class Tuned:
    """FitPlan that were chosen on likes held out, or given: they are not chosen again."""

    knob: float
    weight: float


def pack_head(
    state: State, parts: Parts, bounds: Sequence[Mapping[str, float]], recent: Sequence[float], tuned: Tuned
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """The tensors and the description of a checkpoint's head."""
    q = state.posterior
    side, travelling = ("item", q.items) if parts.resident == "users" else ("user", q.users)
    tensors: dict[str, NDArray[Any]] = {f"{side}.{name}": one for name, one in side_tensors(travelling).items()}
    for name in GAMMAS:
        gamma = getattr(q.precisions, name)
        if gamma is not None:
            tensors[f"precisions.{name}"] = np.array([gamma.shape, gamma.rate])
    for name, moments in (("user", state.user_moments), ("item", state.item_moments)):
        tensors[f"moments.{name}"] = np.array([getattr(moments, one.name) for one in fields(Moments)])
    tensors["step_size"] = np.array([state.step_size.accumulator, state.step_size.epsilon])
    tensors["bounds"] = np.array([[terms[name] for name in TERMS] for terms in bounds]).reshape(-1, len(TERMS))
    tensors["recent"] = np.array(recent, np.float64)
    tensors |= {f"memory.{name}": one for name, one in parts.memory().items()}
    return tensors, {"bound_terms": TERMS, "program": program(), "knob": tuned.knob, "weight": tuned.weight}


def saved_tuning(saved: Checkpoint) -> Tuned:
    """The settings that were chosen before the fit began."""
    knob, weight = (saved.metadata.get(name) for name in ("knob", "weight"))
    if not isinstance(knob, int | float) or not isinstance(weight, int | float) or not 0 < weight < 1e6:
        raise CheckpointError(f"{saved.head.path}: it is not known which settings its fit had chosen.")
    return Tuned(float(knob), float(weight))


def unpack_head(saved: Checkpoint, settings: FitPlan, counts: tuple[int, int], resident: str) -> State:
    """The state of a checkpoint, its resident side without rows. counts: (users, items)."""
    head, factors = saved.head, settings.factors
    sides: dict[str, Side] = {}
    for name, rows, bias in (("user", counts[0], settings.user_bias), ("item", counts[1], settings.item_bias)):
        side = Side.constant(0 if resident == f"{name}s" else rows, factors, 0.0, 0.0 if bias else None)
        if resident != f"{name}s":
            for one, room in side_tensors(side).items():
                room[:] = tensor(head, f"{name}.{one}", np.float32, room.shape)
        sides[name] = side

    def gamma(name: str) -> Gamma:
        return Gamma(*_numbers(head, f"precisions.{name}", 2))

    precisions = Precisions(
        gamma("user"),
        gamma("item"),
        gamma("user_bias") if settings.user_bias else None,
        gamma("item_bias") if settings.item_bias else None,
    )
    return State(
        saved.sweep,
        Posterior(sides["user"], sides["item"], precisions),
        StepSize(settings.step_delay, *_numbers(head, "step_size", 2)),
        Moments(*_numbers(head, "moments.user", 4)),
        Moments(*_numbers(head, "moments.item", 4)),
    )


def _numbers(stored: StoredTensors, name: str, count: int) -> list[float]:
    return [float(one) for one in tensor(stored, name, np.float64, [count])]


def restore(
    checkpoints: Checkpoints, saved: Checkpoint, settings: FitPlan, counts: tuple[int, int], parts: Parts
) -> Start:
    """Where a fit goes on from; the parts are as they were then."""
    state = parts.read(checkpoints, saved, unpack_head(saved, settings, counts, parts.resident))
    prefix = "memory."
    parts.recall({name.removeprefix(prefix): saved.head[name] for name in saved.head if name.startswith(prefix)})
    if saved.metadata.get("bound_terms") != TERMS:
        raise CheckpointError(f"{saved.head.path}: its bounds have other terms than this library's.")
    bounds = tensor(saved.head, "bounds", np.float64, [saved.sweep, len(TERMS)])
    recent = tensor(saved.head, "recent", np.float64, [None])
    return Start(state, tuple(dict(zip(TERMS, row)) for row in bounds.tolist()), tuple(recent.tolist()))


def program() -> str:
    """What the last bits depend on, beside the data and the settings."""
    return f"considerate {__version__} ({compiled.instruction_set()})"
