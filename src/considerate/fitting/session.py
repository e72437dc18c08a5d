"""What the driver of a fit works with: the request, and the session in which its sweeps run."""

from __future__ import annotations

import logging
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from considerate.data import ReaderOptions, Titles
from considerate.data.fingerprint import describe_settings
from considerate.data.vocabulary import Vocabulary
from considerate.fitting.checkpoint import Checkpoint, Checkpoints, FileEntry
from considerate.fitting.prepare import Histogram
from considerate.fitting.resume import CheckpointOptions
from considerate.fitting.stopping import FitProgress
from considerate.inference.hidden.groups import Grouping
from considerate.inference.posterior import Side
from considerate.inference.sweep import Runner, State
from considerate.model.model import Model
from considerate.model.users import Users
from considerate.parameters import FitPlan

logger = logging.getLogger("considerate")


@dataclass(frozen=True)
class FitRequest:
    """What a fit is asked for: the data, the settings, and where results and messages go."""

    source: Any
    plan: FitPlan
    reader: ReaderOptions = field(default_factory=ReaderOptions)
    parameters: dict[str, Any] = field(default_factory=dict)  # as the estimator was given them
    checkpoint: CheckpointOptions | None = None
    model_folder: str | None = None  # for the shards of a partitioned fit; None: a temporary one
    likes: bool = True  # whether a partitioned fit writes them to its shards
    keep_unfinished: bool = True  # whether a fit that is stopped ends with the model of its last finished sweep
    say: Callable[[str], None] = lambda text: logger.info("%s", text)
    on_read_progress: Callable[[str, int, int], None] | None = None  # (stage, done, total)

    def settings(self) -> dict[str, Any]:
        """The settings that decide the posterior, for the fingerprint of a checkpoint."""
        return describe_settings(self.parameters, precision_delay=self.plan.precision_delay)


class FitBackend(Protocol):
    """Where a fit runs."""

    def start(self, request: FitRequest) -> AbstractContextManager[FitSession]:
        """Read the data and get ready to sweep over it; leaving the context frees what was taken."""
        ...


class FitSession(ABC):
    """The data of one fit where its sweeps run: in this process, on its disk, on a cluster."""

    request: FitRequest
    data: Any  # Interactions, or what is known of a graph in parts
    item_ids: Vocabulary
    titles: Titles | None
    item_degree: NDArray[np.int64]
    histogram: Histogram  # once there is a runner
    resident: str  # the side whose rows are in parts, "users" or "items"
    counts: tuple[int, int]  # of users and items; this and the following once there is a runner
    part_count: int
    grouping: Grouping | None  # of *expected* mode

    @abstractmethod
    def fingerprint(self) -> dict[str, Any]:
        """What the posterior depends on: digests of the data, and the settings."""

    def check_checkpoint(self, saved: Any) -> None:
        """Read the parts of a checkpoint where they will be used; raise if one is damaged."""
        saved.check_parts()

    @abstractmethod
    def write_parts(self, checkpoints: Checkpoints, state: State) -> list[FileEntry]:
        """Write the file of each part to a checkpoint."""

    @abstractmethod
    def read_parts(self, checkpoints: Checkpoints, saved: Checkpoint, state: State) -> State:
        """Put the parts back; the state comes with no row of the resident side, and leaves as the runner wants it."""

    def tune(self, plan: FitPlan) -> FitPlan:
        """The plan with the settings chosen that are still words."""
        raise NotImplementedError

    @abstractmethod
    def runner(self, plan: FitPlan) -> Runner:
        """What sweeps over the data, at its beginning."""

    def rewind(self, sweep: int) -> None:  # noqa: B027
        """Put the rows back to the end of this sweep, where a later one was cut off."""

    def after_checkpoint(self, folder: str) -> None:  # noqa: B027
        """Remember the newest checkpoint, for the message of a failure."""

    def note(self) -> str:
        """What the last sweep took, for the progress line."""
        return ""

    def snapshot(self, plan: FitPlan, progress: FitProgress) -> Model | None:
        """The model so far, where that costs nothing."""
        return None

    @abstractmethod
    def finish(self, plan: FitPlan, progress: FitProgress) -> Model:
        """The model of the last finished sweep. `progress` ends with the bound after it."""

    def _model(self, plan: FitPlan, progress: FitProgress, users: Users, items: Side) -> Model:
        assert progress.state is not None
        return Model(
            users=users,
            items=items,
            precisions=progress.state.posterior.precisions,
            popularity=self.histogram.weights,
            gamma=self.histogram.gamma,
            item_degree=self.item_degree,
            item_ids=self.item_ids,
            titles=self.titles,
            plan=plan,
            bounds=progress.bounds,
            converged=progress.converged,
            parameters=self.request.parameters,
        )


def warn_of_factors(factors: int, users: int, items: int) -> None:
    """Warn where there are more factors than data for them."""
    if factors > min(users, items):
        warnings.warn(
            f"factors={factors} is more than the {min(users, items)} users or items there are; the posterior is "
            "proper, but fewer factors would say as much.",
            stacklevel=3,
        )
