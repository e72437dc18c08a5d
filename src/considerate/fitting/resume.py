"""A fit that writes checkpoints as it goes, and goes on from the last one."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from considerate.errors import UsageError
from considerate.fitting.checkpoint import Checkpoint, Checkpoints
from considerate.fitting.saved_state import Parts, Tuned, pack_head, program, restore
from considerate.fitting.training import FitStep, Start
from considerate.parameters import FitPlan
from considerate.storage.files import PathLike
from considerate.storage.filesystems import Folder

logger = logging.getLogger("considerate")


@dataclass(frozen=True)
class Keeping:
    """How a fit is asked to keep checkpoints."""

    folder: str
    every: int
    resume: bool

    @classmethod
    def asked(cls, checkpoint: PathLike | None, every: int, resume: bool) -> Keeping | None:
        """None where no checkpoints are asked for. A folder that another fit has used is refused now, before hours."""
        if isinstance(every, bool) or not isinstance(every, int | np.integer) or every < 1:
            raise UsageError(f"checkpoint_every is {every!r}; it must be a whole number of sweeps, at least 1.")
        if checkpoint is None:
            if resume:
                raise UsageError("resume needs the folder of the checkpoints to go on from; give it as checkpoint.")
            return None
        folder = Folder.at(checkpoint).absolute
        done = [] if resume else Checkpoints(folder, {}).complete()
        if done:
            raise UsageError(
                f"{folder}: holds checkpoints of a fit, the last of sweep {done[-1]}; go on with that by resume "
                "(--resume), or choose another folder."
            )
        return cls(folder, int(every), bool(resume))

    @contextmanager
    def begin(
        self, fingerprint: dict[str, Any], check: Callable[[Checkpoint], None] = Checkpoint.check_parts
    ) -> Iterator[Keeper]:
        """Hold the folder, and find the checkpoint to go on from; `check` reads its parts."""
        checkpoints = Checkpoints(self.folder, fingerprint)
        with checkpoints.lock():
            saved = checkpoints.latest(check) if self.resume else None
            if self.resume and saved is None:
                logger.warning("%s: there is no checkpoint yet; the fit starts from the beginning", self.folder)
            yield Keeper(checkpoints, self.every, saved)


class Keeper:
    """Writes the checkpoints of a fit as it goes."""

    def __init__(self, checkpoints: Checkpoints, every: int, saved: Checkpoint | None) -> None:
        self.checkpoints, self.every, self.saved = checkpoints, every, saved
        self.written = saved.sweep if saved is not None else 0  # the sweep of the newest one

    def start(self, settings: FitPlan, counts: tuple[int, int], parts: Parts) -> Start | None:
        """Where the fit goes on from, if there is a checkpoint."""
        if self.saved is None:
            return None
        start = restore(self.checkpoints, self.saved, settings, counts, parts)
        logger.warning("%s: the fit goes on after sweep %d", self.checkpoints.folder, self.saved.sweep)
        here, there = program(), self.saved.metadata.get("program")
        if here != there:
            logger.warning("the checkpoint is of %s and this is %s; the last bits may differ", there, here)
        self.saved = None  # its file is no longer needed
        return start

    def keep(
        self, steps: Iterator[FitStep], parts: Parts, tuned: Tuned, most_sweeps: int, start: Start | None
    ) -> Generator[FitStep]:
        """The same steps. A checkpoint is written every few sweeps, after the last one, and where the fit is ended
        early by Ctrl-C or by whoever asks for the steps."""
        bounds = list(start.bounds) if start is not None else []
        step = None
        try:
            for step in steps:
                bounds.append(step.bound.terms())
                if step.converged or step.sweep >= most_sweeps or step.sweep % self.every == 0:
                    self._write(step, parts, tuned, bounds)
                yield step
        except (KeyboardInterrupt, GeneratorExit):
            if step is not None and step.sweep > self.written:
                self._write(step, parts, tuned, bounds)
            raise

    def _write(self, step: FitStep, parts: Parts, tuned: Tuned, bounds: Sequence[Mapping[str, float]]) -> None:
        """A disk that is full ends no fit: it goes on without this checkpoint."""
        try:
            try:
                written = parts.write(self.checkpoints, step.state)
            except OSError:
                self.checkpoints.discard(step.sweep)
                raise
            head, metadata = pack_head(step.state, parts, bounds, step.recent, tuned)
            self.checkpoints.finish(step.sweep, head, metadata, written)
        except OSError as error:
            warnings.warn(
                f"the checkpoint of sweep {step.sweep} was not written ({error}) The fit goes on.", stacklevel=2
            )
            return
        self.written = step.sweep
        logger.info("%s: checkpoint of sweep %d", self.checkpoints.folder, step.sweep)
