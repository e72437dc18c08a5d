"""Checkpoints of a fit: asked for, written as it goes, and gone on from."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from considerate.errors import UsageError
from considerate.fitting.checkpoint import Checkpoint, Checkpoints
from considerate.fitting.saved_state import pack_head, program, restore
from considerate.fitting.stopping import FitProgress
from considerate.parameters import FitPlan
from considerate.storage.files import PathLike
from considerate.storage.filesystems import Folder

if TYPE_CHECKING:
    from considerate.fitting.session import FitSession

logger = logging.getLogger("considerate")


@dataclass(frozen=True)
class CheckpointOptions:
    """Where a fit keeps checkpoints, how often, and whether it goes on from the last."""

    folder: str
    every: int = 5  # sweeps
    resume: bool = False

    @classmethod
    def parse(cls, folder: PathLike | None, every: int = 5, resume: bool = False) -> CheckpointOptions | None:
        """None where no checkpoints are asked for. A folder that another fit has used is refused now, before hours."""
        if isinstance(every, bool) or not isinstance(every, int | np.integer) or every < 1:
            raise UsageError(f"checkpoint_every is {every!r}; it must be a whole number of sweeps, at least 1.")
        if folder is None:
            if resume:
                raise UsageError("resume needs the folder of the checkpoints to go on from; give it as checkpoint.")
            return None
        address = Folder.at(folder).absolute
        complete = [] if resume else Checkpoints(address, {}).complete()
        if complete:
            raise UsageError(
                f"{address}: holds checkpoints of a fit, the last of sweep {complete[-1]}; go on with that by resume "
                "(--resume), or choose another folder."
            )
        return cls(address, int(every), bool(resume))


@contextmanager
def open_checkpoints(options: CheckpointOptions | None, session: FitSession) -> Iterator[CheckpointWriter | None]:
    """Hold the folder of the checkpoints, and find the one to go on from."""
    if options is None:
        yield None
        return
    checkpoints = Checkpoints(options.folder, session.fingerprint())
    with checkpoints.lock():
        saved = checkpoints.latest(session.check_checkpoint) if options.resume else None
        if options.resume and saved is None:
            logger.warning("%s: there is no checkpoint yet; the fit starts from the beginning", options.folder)
        yield CheckpointWriter(checkpoints, options.every, saved)


class CheckpointWriter:
    """Writes the checkpoints of a fit as it goes."""

    def __init__(self, checkpoints: Checkpoints, every: int, saved: Checkpoint | None) -> None:
        self.checkpoints, self.every, self.saved = checkpoints, every, saved
        self.written = saved.sweep if saved is not None else 0  # the sweep of the newest one

    def restore(self, plan: FitPlan, session: FitSession) -> FitProgress:
        """Where the fit goes on from: its last checkpoint, or the beginning."""
        if self.saved is None:
            return FitProgress()
        progress = restore(self.checkpoints, self.saved, plan, session.parts)
        logger.warning("%s: the fit goes on after sweep %d", self.checkpoints.folder, self.saved.sweep)
        here, there = program(), self.saved.metadata.get("program")
        if here != there:
            logger.warning("the checkpoint is of %s and this is %s; the last bits may differ", there, here)
        self.saved = None  # its file is no longer needed
        session.after_checkpoint(self.checkpoints.folder)
        return progress

    def is_due(self, plan: FitPlan, progress: FitProgress) -> bool:
        """Every few sweeps, and after the last."""
        return progress.converged or progress.sweep >= plan.sweeps or progress.sweep % self.every == 0

    def write(self, plan: FitPlan, progress: FitProgress, session: FitSession) -> None:
        """Write the state, unless it is written already. A disk that is full ends no fit: it goes on without."""
        sweep, state = progress.sweep, progress.state
        if state is None or sweep <= self.written:
            return
        try:
            try:
                files = session.parts.write(self.checkpoints, state)
            except OSError:
                self.checkpoints.discard(sweep)
                raise
            head, metadata = pack_head(plan, progress, session.parts)
            self.checkpoints.finish(sweep, head, metadata, files)
        except OSError as error:
            warnings.warn(f"the checkpoint of sweep {sweep} was not written ({error}) The fit goes on.", stacklevel=2)
            return
        self.written = sweep
        session.after_checkpoint(self.checkpoints.folder)
        logger.info("%s: checkpoint of sweep %d", self.checkpoints.folder, sweep)
