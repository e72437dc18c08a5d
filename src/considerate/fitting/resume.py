"""Writing of a fit's checkpoints, and resumption from them with the same bits.

A sweep reads the state, the data and the settings and, in *expected* mode, the groups of items, which are frozen after
a few sweeps. The stopping rule reads the last bounds, and the model has them all. Draws are a function of (seed, sweep,
user), and the users' pass computes alpha before anything reads it, so neither is saved.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from considerate._version import __version__
from considerate.data.features import FeatureTable
from considerate.data.side_information import SideInformation
from considerate.errors import CheckpointError, UsageError
from considerate.fitting.checkpoint import Checkpoint, Checkpoints, tensor
from considerate.fitting.stopping import FitProgress
from considerate.inference.bound import Bound
from considerate.inference.features import FeatureWeights, Regression, spread_shape
from considerate.inference.plan import Chosen, FitPlan
from considerate.inference.posterior import Gamma, Posterior, Precisions, Side
from considerate.inference.schedule import StepSize
from considerate.inference.sweep import State
from considerate.inference.updates import Moments
from considerate.inference.wishart import NormalWishart
from considerate.kernels import compiled
from considerate.model.schema import GAMMAS
from considerate.storage.container import StoredTensors
from considerate.storage.files import PathLike
from considerate.storage.filesystems import Folder

if TYPE_CHECKING:
    from considerate.fitting.session import FitSession

logger = logging.getLogger("considerate")

TERMS = [term.name for term in fields(Bound)]


@dataclass(frozen=True)
class CheckpointOptions:
    """Options of checkpoints: their folder, their interval, and whether the fit resumes from the last."""

    folder: str
    every: int = 5  # sweeps
    resume: bool = False

    @classmethod
    def parse(cls, folder: PathLike | None, every: int = 5, resume: bool = False) -> CheckpointOptions | None:
        """Check the options; None without a folder. A folder that another fit has used is refused before the fit."""
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
    """Lock the folder of the checkpoints, and find the one to resume from."""
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
    """Writer of a fit's checkpoints."""

    def __init__(self, checkpoints: Checkpoints, every: int, saved: Checkpoint | None) -> None:
        self.checkpoints, self.every, self.saved = checkpoints, every, saved
        self.written = saved.sweep if saved is not None else 0  # sweep of the newest checkpoint

    def restore(self, plan: FitPlan, session: FitSession) -> FitProgress:
        """Progress to start from: of the last checkpoint, or of a new fit."""
        if self.saved is None:
            return FitProgress()
        progress = restore(self.checkpoints, self.saved, plan, session)
        logger.warning("%s: the fit goes on after sweep %d", self.checkpoints.folder, self.saved.sweep)
        here, there = program(), self.saved.metadata.get("program")
        if here != there:
            logger.warning("the checkpoint is of %s and this is %s; the last bits may differ", there, here)
        self.saved = None  # its file is no longer needed
        session.after_checkpoint(self.checkpoints.folder)
        return progress

    def is_due(self, plan: FitPlan, progress: FitProgress) -> bool:
        """True every few sweeps, and after the last."""
        return progress.converged or progress.sweep >= plan.sweeps or progress.sweep % self.every == 0

    def write(self, plan: FitPlan, progress: FitProgress, session: FitSession) -> None:
        """Write the state, unless it is written already. If the disk is full, warn and go on."""
        sweep, state = progress.sweep, progress.state
        if state is None or sweep <= self.written:
            return
        try:
            try:
                files = session.write_parts(self.checkpoints, state)
            except OSError:
                self.checkpoints.discard(sweep)
                raise
            head, metadata = pack_head(plan, progress, session)
            self.checkpoints.finish(sweep, head, metadata, files)
        except OSError as error:
            warnings.warn(f"the checkpoint of sweep {sweep} was not written ({error}) The fit goes on.", stacklevel=2)
            return
        self.written = sweep
        session.after_checkpoint(self.checkpoints.folder)
        logger.info("%s: checkpoint of sweep %d", self.checkpoints.folder, sweep)


# --- State to and from tensors --------------------------------------------------------------------------------


def side_tensors(side: Side, first: int = 0, last: int | None = None) -> dict[str, NDArray[Any]]:
    """Arrays of some rows of a side, by their names in checkpoints."""
    named = zip(("rows", "bias_mean", "bias_variance", "covariance"), (*side.arrays(), side.covariance))
    return {name: array[first:last] for name, array in named if array is not None}


def pack_head(
    plan: FitPlan, progress: FitProgress, session: FitSession
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Tensors and description of a checkpoint's head."""
    state = progress.state
    assert state is not None
    q = state.posterior
    side, travelling = ("item", q.items) if session.resident == "users" else ("user", q.users)
    tensors = {f"{side}.{name}": array for name, array in side_tensors(travelling).items()}
    for name in GAMMAS:
        gamma = getattr(q.precisions, name)
        if gamma is not None:
            tensors[f"precisions.{name}"] = np.array([gamma.shape, gamma.rate])
    for name, hyperprior in zip(("user", "item"), q.hyperpriors or ()):
        tensors |= {f"hyperprior.{name}.first": hyperprior.first, f"hyperprior.{name}.second": hyperprior.second}
    tensors["moments.user"] = np.array(astuple(state.user_moments))
    tensors["moments.item"] = np.array(astuple(state.item_moments))
    tensors |= weights_tensors(q)
    tensors["step_size"] = np.array([state.step_size.accumulator, state.step_size.epsilon])
    tensors["bounds"] = np.array([[terms[name] for name in TERMS] for terms in progress.bounds]).reshape(-1, len(TERMS))
    tensors["recent"] = np.array(progress.recent, np.float64)
    if session.grouping is not None:
        tensors["memory.groups"] = session.grouping.group_of_item
    weights = {"knob": plan.popularity, "lift": plan.lift, "weight": plan.likelihood_weight}
    weights |= {"expected_offsets": plan.expected_offsets}
    chosen = None if plan.chosen is None else asdict(plan.chosen)
    return tensors, {"bound_terms": TERMS, "program": program(), "chosen": chosen} | weights


def chosen_settings(saved: Checkpoint, plan: FitPlan) -> FitPlan:
    """Replace settings to choose by those that the checkpoint's fit had chosen, or was given."""
    # A checkpoint from before the walk has no lift, and one of 0.3 or before has no offsets.
    found: dict[str, Any] = {"knob": None, "weight": None, "lift": plan.lift, "chosen": None} | saved.metadata
    knob, weight, lift = (found[name] for name in ("knob", "weight", "lift"))
    try:
        chosen = Chosen.parse(found["chosen"])
        if not all(isinstance(value, int | float) for value in (knob, weight, lift)) or not 0 < weight < 1e6:
            raise ValueError("it is not known which settings its fit had chosen")
    except ValueError as error:
        raise CheckpointError(f"{saved.head.path}: {error}.") from error
    values: dict[str, Any] = {"popularity": float(knob), "likelihood_weight": float(weight)}
    values |= {"expected_offsets": saved.metadata.get("expected_offsets") is True}
    values |= {"lift": float(lift)} if plan.consideration == "walk" else {}
    values |= {} if chosen is None else chosen.settings
    return replace(plan, **values, tuned=frozenset(), chosen=chosen)


def restore(checkpoints: Checkpoints, saved: Checkpoint, plan: FitPlan, session: FitSession) -> FitProgress:
    """Restore the parts of a checkpoint, and return the progress of its fit."""
    head, (users, items) = saved.head, session.counts
    if len(saved.parts) != session.part_count:
        raise CheckpointError(
            f"{head.path}: there are {len(saved.parts)} parts where {session.part_count} are expected."
        )

    def numbers(name: str, count: int | None) -> list[float]:
        return [float(number) for number in tensor(head, name, np.float64, [count])]

    sides: dict[str, Side] = {}
    gammas = ["user", "item"]
    for name, rows, bias in (("user", users, plan.user_bias), ("item", items, plan.item_bias)):
        travels = session.resident != f"{name}s"
        sides[f"{name}s"] = Side.constant(rows if travels else 0, plan.factors, 0.0, 0.0 if bias else None)
        if plan.keeps_covariance(f"{name}s", saved.sweep):
            sides[f"{name}s"] = sides[f"{name}s"].with_covariance()
        if travels:
            for field, values in side_tensors(sides[f"{name}s"]).items():
                values[:] = tensor(head, f"{name}.{field}", np.float32, values.shape)
        gammas += [f"{name}_bias"] if bias else []
    precisions = Precisions(**{name: Gamma(*numbers(f"precisions.{name}", 2)) for name in gammas})
    state = State(
        saved.sweep,
        Posterior(
            sides["users"],
            sides["items"],
            precisions,
            *read_weights(head, session.request.side),
            _hyperpriors(saved, plan, session.counts),
        ),
        StepSize(plan.step_delay, *numbers("step_size", 2)),
        Moments(*numbers("moments.user", 4)),
        Moments(*numbers("moments.item", 4)),
    )
    state = session.read_parts(checkpoints, saved, state)
    if session.grouping is not None:
        groups = tensor(head, "memory.groups", np.int32, [items])
        if groups.min() < 0 or groups.max() >= session.grouping.groups:  # kernels index by it without checks
            raise CheckpointError("the checkpoint does not have the items' groups that the fit goes on with.")
        session.grouping.use(np.array(groups))
    if saved.metadata.get("bound_terms") != TERMS:
        raise CheckpointError(f"{head.path}: its bounds have other terms than this library's.")
    bounds = tensor(head, "bounds", np.float64, [saved.sweep, len(TERMS)])
    return FitProgress(state, tuple(dict(zip(TERMS, row)) for row in bounds.tolist()), tuple(numbers("recent", None)))


def weights_tensors(q: Posterior) -> dict[str, NDArray[Any]]:
    """Tensors of the weights of features, by their names in checkpoints."""
    tensors: dict[str, NDArray[Any]] = {}
    for side, weights in (("user", q.user_weights), ("item", q.item_weights)):
        for name, part in zip(("vectors", "biases"), () if weights is None else weights.parts):
            numbers = np.array([part.tau.shape, part.tau.rate, part.trace])
            arrays = {"mean": part.mean, "spread": part.spread, "numbers": numbers}
            tensors |= {f"weights.{side}.{name}.{field}": array for field, array in arrays.items()}
    return tensors


def read_weights(head: StoredTensors, side: SideInformation) -> tuple[FeatureWeights | None, FeatureWeights | None]:
    """Read the weights of users' and of items' features; None for a side without features."""

    def part(name: str, count: int) -> Regression:
        spread = spread_shape(count)
        mean = tensor(head, f"{name}.mean", np.float64, [count, None])
        shape, rate, trace = tensor(head, f"{name}.numbers", np.float64, [3]).tolist()
        return Regression(mean, tensor(head, f"{name}.spread", np.float64, spread), Gamma(shape, rate), trace)

    def of(name: str, table: FeatureTable | None) -> FeatureWeights | None:
        if table is None:
            return None
        count, name_of = table.features.count, f"weights.{name}"
        biases = part(f"{name_of}.biases", count) if f"precisions.{name}_bias" in head else None
        return FeatureWeights(part(f"{name_of}.vectors", count), biases)

    return of("user", side.user_features), of("item", side.item_features)


def _hyperpriors(
    saved: Checkpoint, plan: FitPlan, counts: tuple[int, int]
) -> tuple[NormalWishart, NormalWishart] | None:
    if plan.prior != "wishart" or saved.sweep <= max(plan.opening, plan.precision_delay):
        return None

    def read(name: str, count: int) -> NormalWishart:
        first = tensor(saved.head, f"hyperprior.{name}.first", np.float64, [plan.factors])
        second = tensor(saved.head, f"hyperprior.{name}.second", np.float64, [plan.factors, plan.factors])
        return NormalWishart(count, np.array(first), np.array(second), plan.prior_rate)

    return read("user", counts[0]), read("item", counts[1])


def program() -> str:
    """Version and instruction set, which the last bits depend on besides the data and the settings."""
    return f"considerate {__version__} ({compiled.instruction_set()})"
