"""A fit over the parts of a graph, wherever a backend keeps them: read, divided, swept, and written in shards.

What the head holds grows with the items, not with the users or their likes: users stay with their parts, and are
written to the model's shards from there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from considerate.data import ReaderOptions
from considerate.data.graph import ITEMS, USERS, GraphOutline
from considerate.distributed.backends.dividing import BackendSession, PartitionedBackend
from considerate.distributed.divided_shards import (
    check_seen,
    nobody,
    sweep_of,
    tidied,
    write_all_users,
    write_part_users,
)
from considerate.distributed.divided_source import describe_divided, read_here
from considerate.distributed.division import Division, plan_division
from considerate.distributed.exchange import DividedData, from_interactions, read_divided
from considerate.distributed.messages import PartitionSetup
from considerate.distributed.partitions import make_partition
from considerate.distributed.pools.host import PerPart
from considerate.distributed.pools.pool import WorkerPool
from considerate.distributed.runners import PartitionedRunner, correct_head_over, gather, make_runner
from considerate.errors import DivergedError, UsageError
from considerate.fitting.checkpoint import Checkpoint, Checkpoints
from considerate.fitting.interrupts import held_interrupts
from considerate.fitting.resume import Keeper, Keeping
from considerate.fitting.saved_state import PartsOfPool, Tuned
from considerate.fitting.training import (
    FitStep,
    Histogram,
    at_rest,
    describe,
    fit_steps,
    warn_of_collapse,
    warn_of_factors,
)
from considerate.inference.hidden import popularity_exponent, popularity_weights
from considerate.inference.sweep import State
from considerate.kernels import compiled
from considerate.kernels.threads import LocalBackend
from considerate.model.model import Model
from considerate.model.shards import write_index
from considerate.parameters import FitPlan

logger = logging.getLogger("considerate")


@dataclass(frozen=True)
class Asked:
    """What a divided fit is asked for."""

    plan: FitPlan
    parameters: dict[str, Any]  # as the estimator was given them
    described: dict[str, Any]  # the settings that decide the posterior, for the fingerprint
    folder: str  # of the shards of the model
    likes: bool = True  # whether they are written with the users


@dataclass
class Reached:
    """How far a fit has come: where its parts are too, between two sweeps."""

    state: State | None = None
    bounds: list[dict[str, float]] = field(default_factory=list)
    converged: bool = False

    def followed(self, steps: Iterator[FitStep]) -> Generator[FitStep]:
        for step in steps:
            self.state, self.converged = step.state, step.converged
            self.bounds.append(step.bound.terms())
            yield step


def check_backend(backend: Any, plan: FitPlan) -> None:
    """UsageError where a fit cannot be divided as it is asked for."""
    if not isinstance(backend, PartitionedBackend):
        raise UsageError(f"backend is {backend!r}; it must be None, RayBackend(...) or OutOfCore(...).")
    if plan.to_be_tuned:
        raise UsageError(
            "popularity and likelihood_weight are chosen on likes held out only where the graph is in memory; give "
            "numbers, such as those that a fit to a sample of the users chooses."
        )
    if backend.inner_sweeps > 1 and len(compiled.coordinate_blocks(plan.factors)) > 1:
        raise UsageError(
            f"inner_sweeps is {backend.inner_sweeps} and factors is {plan.factors}; "
            "inner sweeps need at most 64 factors."
        )


class DividedFit:
    """One fit: `steps` makes it, and leaves the model in its folder."""

    def __init__(
        self,
        asked: Asked,
        source: Any,
        reader: ReaderOptions,
        backend: PartitionedBackend,
        keeping: Keeping | None = None,
        say: Callable[[str], None] | None = None,
        reading: Callable[[str, int, int], None] | None = None,
    ) -> None:
        self.asked, self.source, self.reader = asked, source, reader
        self.backend, self.keeping = backend, keeping
        self._say = say or (lambda text: logger.info("%s", text))
        self._reading = reading  # told (stage, done, total) while Parquet is read
        self.data: DividedData
        self.division: Division
        self.written = False  # whether there is a model

    def steps(self) -> Generator[FitStep]:
        """Sweep after sweep; a step's note says what the workers took. When it ends, or is ended, the model of the last
        finished sweep is written."""
        here = [read_here(self.source, self.reader)]
        with tidied(self.asked.folder, lambda: self.written), self.backend.open() as session:
            self._say(f"Running on {session.describe()}.")
            choose, likes = partial(self._choose, session), here.pop()
            if likes is not None:
                self.data = from_interactions(likes, session.tasks, choose)
            else:
                self.data = read_divided(self.source, session.tasks, choose, self.reader, progress=self._reading)
            del likes
            for note in self.data.notes:
                self._say(note)
            with (
                self._keeper(session) as keeper,
                self._pool(session) as pool,
                LocalBackend(self.asked.plan.threads) as solvers,
            ):
                yield from self._sweep(session, pool, keeper, solvers.map)

    def _choose(self, session: BackendSession, outline: GraphOutline) -> str:
        """The side that stays with its parts; the division is said before the fit starts."""
        plan, resident = self.asked.plan, self.backend.resident
        if resident is None and self.keeping is not None and self.keeping.resume:
            kept = Checkpoints(self.keeping.folder, {}).division()  # a checkpoint by items is resumed by items
            resident = kept if kept in (USERS, ITEMS) else None
        warn_of_factors(plan.factors, outline.user_count, outline.item_count)
        item_shards = 1 if self.backend.inner_sweeps > 1 else self.backend.item_shards
        self.division = plan_division(plan, outline, session, resident, item_shards)
        self._say(self.division.text())
        return self.division.resident

    @contextmanager
    def _keeper(self, session: BackendSession) -> Iterator[Keeper | None]:
        if self.keeping is None:
            yield None
            return
        settings = dict(self.asked.described)
        if self.backend.inner_sweeps > 1:
            settings |= {"inner_sweeps": self.backend.inner_sweeps, "inner": self.backend.inner}
        tasks = session.tasks
        fingerprint = {"data": describe_divided(self.data, tasks), "settings": settings}

        def check(saved: Checkpoint) -> None:
            saved.check_parts(lambda damage, parts: tasks.get([tasks.submit(damage, one) for one in parts]))

        with self.keeping.begin(fingerprint, check) as keeper:
            yield keeper

    @contextmanager
    def _pool(self, session: BackendSession) -> Iterator[WorkerPool]:
        data, asked = self.data, self.asked
        self._setup = PartitionSetup.of(
            data.outline, asked.plan, asked.plan.hidden, asked.plan.negatives, data.resident, session.out_of_core
        )
        pool = session.make_pool(make_partition, self._setup, data.parts, all_user_likes=data.all_user_likes)
        self.data = replace(data, parts=[])  # the pool has them
        del data
        try:
            if not session.out_of_core:
                check_seen(asked.folder, pool)
            yield pool
        finally:
            pool.close()

    def _sweep(self, session: BackendSession, pool: WorkerPool, keeper: Keeper | None, run: Any) -> Generator[FitStep]:
        asked, outline = self.asked, self.data.outline
        popularity = self._popularity(pool)
        runner = make_runner(
            outline,
            self._setup,
            popularity.weights,
            pool,
            groups=min(asked.plan.groups, max(1, outline.item_count)),
            item_shards=self.division.item_shards,
            inner_sweeps=self.backend.inner_sweeps,
            inner=self.backend.inner,
            run=run,
        )
        parts = PartsOfPool(runner, pool)
        counts = (outline.user_count, outline.item_count)
        start = None if keeper is None else keeper.start(asked.plan, counts, parts)
        reached = Reached()
        if start is not None:
            reached = Reached(start.state, [*start.bounds], at_rest(runner, start, asked.plan.tolerance))
        steps = fit_steps(runner, most_sweeps=asked.plan.sweeps, tolerance=asked.plan.tolerance, start=start)
        steps = reached.followed(steps)
        if keeper is not None:
            steps = keeper.keep(
                steps, parts, Tuned(asked.plan.popularity_weight, asked.plan.weight), asked.plan.sweeps, start
            )
        try:
            _name_checkpoint(pool, keeper)
            for step in steps:
                _name_checkpoint(pool, keeper)
                logger.info("%s", describe(step))
                yield replace(step, note=session.sweep_report(pool))
            if reached.state is not None:
                warn_of_collapse(reached.state.posterior, asked.plan.weight)
        except (KeyboardInterrupt, GeneratorExit, DivergedError):
            with held_interrupts():
                steps.close()  # which writes a checkpoint of a fit that was stopped
                if reached.state is not None:
                    pool.call("go_back", reached.state.sweep, changes=True)
                    self._end(session, pool, runner, reached, popularity)
            raise
        self._end(session, pool, runner, reached, popularity)

    def _popularity(self, pool: WorkerPool) -> Histogram:
        """As training.make_popularity, over the parts."""
        plan, outline = self.asked.plan, self.data.outline
        gamma = popularity_exponent(outline.item_degree, plan.rate) if plan.gamma is None else plan.gamma
        weights = popularity_weights(outline.item_degree, gamma)
        if plan.head_correction:
            weights = correct_head_over(pool, outline, weights, plan.negatives)
        return Histogram(weights, gamma)

    def _end(
        self,
        session: BackendSession,
        pool: WorkerPool,
        runner: PartitionedRunner,
        reached: Reached,
        popularity: Histogram,
    ) -> None:
        """The model in shards, each written where its users are; then the index, which makes them one."""
        asked, data, state = self.asked, self.data, reached.state
        assert state is not None
        if set(pool.call(sweep_of)) != {state.sweep}:
            raise RuntimeError("the parts are not where the head is")
        q, last = state.posterior, runner.evaluate_bound(state)
        if data.resident == USERS:
            items = q.items
            write = partial(write_part_users, folder=asked.folder, likes=asked.likes)
            entries = pool.call(write, PerPart(data.user_ids))
        else:
            items, tasks = gather(pool, q.factors), session.tasks
            given = (asked.folder, tasks.put(q.users), data.all_user_likes, data.user_ids[0], asked.likes)
            entries = [tasks.get(tasks.submit(write_all_users, *given))]
        model = Model(
            users=nobody(q.users),
            items=items,
            precisions=q.precisions,
            popularity=popularity.weights,
            gamma=popularity.gamma,
            item_degree=data.outline.item_degree,
            item_ids=data.item_ids,
            titles=data.titles,
            settings=asked.plan,
            negatives=asked.plan.negatives,
            groups=asked.plan.groups,
            bounds=(*reached.bounds, last.terms()),
            popularity_weight=asked.plan.popularity_weight,
            converged=reached.converged,
            parameters=asked.parameters,
        )
        write_index(asked.folder, model, [one for one in entries if one is not None])
        self.written = True


def _name_checkpoint(pool: WorkerPool, keeper: Keeper | None) -> None:
    if keeper is not None and keeper.written:
        pool.name_checkpoint(keeper.checkpoints.folder)
