"""The state of a fit to and from a checkpoint, so that it goes on with the same bits.

A sweep reads the state, the data and the settings, and of *expected* mode the groups of items, which are frozen after
a few sweeps. The rule that ends a fit reads the last bounds, and the model has them all. Draws are a function of (seed,
sweep, user), and alpha is made anew by the users' pass before anything reads it: neither is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from considerate._version import __version__
from considerate.errors import CheckpointError
from considerate.fitting.checkpoint import Checkpoint, Checkpoints, FileEntry, tensor
from considerate.fitting.stopping import FitProgress
from considerate.inference.bound import Bound
from considerate.inference.posterior import Gamma, Posterior, Precisions, Side
from considerate.inference.schedule import StepSize
from considerate.inference.sweep import State
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
    counts: tuple[int, int]  # of users and items

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


def side_tensors(side: Side, first: int = 0, last: int | None = None) -> dict[str, NDArray[Any]]:
    """Some rows of a side by the names that checkpoints have for them."""
    tensors = {"rows": side.rows[first:last]}
    if side.bias_mean is not None and side.bias_variance is not None:
        tensors |= {"bias_mean": side.bias_mean[first:last], "bias_variance": side.bias_variance[first:last]}
    return tensors


def check_part_count(saved: Checkpoint, expected: int) -> None:
    if len(saved.parts) != expected:
        raise CheckpointError(f"{saved.head.path}: there are {len(saved.parts)} parts where {expected} are expected.")


def checked_groups(memory: Mapping[str, NDArray[Any]], items: int, groups: int) -> NDArray[np.int32]:
    """The group of each item; kernels read where it says."""
    found = memory.get("groups")
    if found is None or found.dtype != np.int32 or found.shape != (items,) or found.min() < 0 or found.max() >= groups:
        raise CheckpointError("the checkpoint does not have the items' groups that the fit goes on with.")
    return np.array(found)


# --- The state, without the rows of the resident side ---------------------------------------------------------


def pack_head(plan: FitPlan, progress: FitProgress, parts: Parts) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """The tensors and the description of a checkpoint's head."""
    state = progress.state
    assert state is not None
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
    tensors["bounds"] = np.array([[terms[name] for name in TERMS] for terms in progress.bounds]).reshape(-1, len(TERMS))
    tensors["recent"] = np.array(progress.recent, np.float64)
    tensors |= {f"memory.{name}": one for name, one in parts.memory().items()}
    return tensors, {"bound_terms": TERMS, "program": program(), "knob": plan.popularity_weight, "weight": plan.weight}


def chosen_settings(saved: Checkpoint, plan: FitPlan) -> FitPlan:
    """The plan with the settings that the checkpoint's fit had chosen, or was given: they are not chosen again."""
    knob, weight = (saved.metadata.get(name) for name in ("knob", "weight"))
    if not isinstance(knob, int | float) or not isinstance(weight, int | float) or not 0 < weight < 1e6:
        raise CheckpointError(f"{saved.head.path}: it is not known which settings its fit had chosen.")
    return replace(plan, popularity=float(knob), likelihood_weight=float(weight))


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


def restore(checkpoints: Checkpoints, saved: Checkpoint, plan: FitPlan, parts: Parts) -> FitProgress:
    """Where a fit goes on from; the parts are as they were then."""
    state = parts.read(checkpoints, saved, unpack_head(saved, plan, parts.counts, parts.resident))
    prefix = "memory."
    parts.recall({name.removeprefix(prefix): saved.head[name] for name in saved.head if name.startswith(prefix)})
    if saved.metadata.get("bound_terms") != TERMS:
        raise CheckpointError(f"{saved.head.path}: its bounds have other terms than this library's.")
    bounds = tensor(saved.head, "bounds", np.float64, [saved.sweep, len(TERMS)])
    recent = tensor(saved.head, "recent", np.float64, [None])
    return FitProgress(state, tuple(dict(zip(TERMS, row)) for row in bounds.tolist()), tuple(recent.tolist()))


def program() -> str:
    """What the last bits depend on, beside the data and the settings."""
    return f"considerate {__version__} ({compiled.instruction_set()})"
