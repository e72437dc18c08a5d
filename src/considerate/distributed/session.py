"""A fit over the parts of a graph, wherever a backend keeps them: read, partitioned, and written in shards.

What the head holds grows with the items, not with the users or their likes: users stay with their parts, and are
written to the model's shards from there.
"""

from __future__ import annotations

import os
import shutil
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from considerate.data import Interactions
from considerate.data.fingerprint import describe_data, digest_ids, digest_likes
from considerate.data.graph import ITEMS, USERS, GraphOutline, GraphPart
from considerate.data.read import open_parquet_likes, read_likes
from considerate.data.sources import open_input
from considerate.distributed.backends.base import BackendSession, PartitionedBackend
from considerate.distributed.division import Division, plan_division
from considerate.distributed.exchange import DividedData, from_interactions, read_divided
from considerate.distributed.messages import PartitionSetup
from considerate.distributed.model_folder import (
    check_seen,
    nobody,
    room_for_shards,
    sweep_of,
    tidied,
    write_all_users,
    write_part_users,
)
from considerate.distributed.partitions import make_partition
from considerate.distributed.pools import PerPart, WorkerPool
from considerate.distributed.runners import PartitionedRunner, correct_head_over, gather, make_runner
from considerate.errors import UsageError
from considerate.fitting.checkpoint import Checkpoint, Checkpoints, FileEntry
from considerate.fitting.session import FitRequest, FitSession, Histogram, warn_of_factors
from considerate.fitting.stopping import FitProgress
from considerate.inference.sweep import State
from considerate.kernels import compiled
from considerate.kernels.threads import LocalBackend
from considerate.model.file import load_model
from considerate.model.model import Model
from considerate.model.shards import write_index
from considerate.parameters import FitPlan


@contextmanager
def start_session(backend: PartitionedBackend, request: FitRequest) -> Iterator[PartitionedSession]:
    """Read and partition the data where the backend runs; what the backend took is freed at the end."""
    check_request(backend, request)
    folder, temporary = room_for_shards(request.model_folder)
    if request.checkpoint is not None and request.checkpoint.folder == folder:
        raise UsageError(f"{folder}: is to hold the model and the checkpoints; give each a folder of its own.")
    with ExitStack() as stack:
        session = PartitionedSession(backend, request, folder, stack)
        if temporary:
            stack.callback(session.discard_unwritten)
        stack.enter_context(tidied(folder, lambda: session.written))
        session.open()
        yield session


def check_request(backend: PartitionedBackend, request: FitRequest) -> None:
    """UsageError where a fit cannot be partitioned as it is asked for."""
    plan = request.plan
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


class PartitionedSession(FitSession):
    """A fit whose rows of one side live with the parts of a pool. Its model is written when it ends."""

    def __init__(self, backend: PartitionedBackend, request: FitRequest, folder: str, stack: ExitStack) -> None:
        self.backend, self.request, self.folder, self._stack = backend, request, folder, stack
        self.written = False  # whether there is a model
        self.division: Division
        self.pool: WorkerPool

    def open(self) -> None:
        """Start the backend, read the data and partition it."""
        request = self.request
        likes = [self._read_here()]  # popped below: the graph replaces it in memory
        self.cluster: BackendSession = self._stack.enter_context(self.backend.open())
        request.say(f"Running on {self.cluster.describe()}.")
        tasks, here = self.cluster.tasks, likes.pop()
        if here is not None:
            data = from_interactions(here, tasks, self._choose_side)
        else:
            progress = request.on_read_progress
            data = read_divided(request.source, tasks, self._choose_side, request.reader, progress=progress)
        self.data: DividedData = data
        self.item_ids, self.titles, self.item_degree = data.item_ids, data.titles, data.outline.item_degree
        for note in data.notes:
            request.say(note)

    def _read_here(self) -> Interactions | None:
        """The likes of a source that is not Parquet. Tasks read Parquet: what can be seen of it here is checked."""
        source, options = self.request.source, self.request.reader
        if options.time_column is not None:
            raise UsageError("time_column is for splits by time; leave it out where the graph is divided.")
        if open_parquet_likes(source, options) is None:
            return read_likes(source, options)
        if isinstance(options.titles, str | os.PathLike):
            open_input(options.titles)
        return None

    def _choose_side(self, outline: GraphOutline) -> str:
        """The side that stays with its parts; how the graph is partitioned is said before the fit starts."""
        plan, resident, checkpoint = self.request.plan, self.backend.resident, self.request.checkpoint
        if resident is None and checkpoint is not None and checkpoint.resume:
            saved = Checkpoints(checkpoint.folder, {}).division()  # a checkpoint by items is resumed by items
            resident = saved if saved in (USERS, ITEMS) else None
        warn_of_factors(plan.factors, outline.user_count, outline.item_count)
        item_shards = 1 if self.backend.inner_sweeps > 1 else self.backend.item_shards
        self.division = plan_division(plan, outline, self.cluster, resident, item_shards)
        self.request.say(self.division.text())
        return self.division.resident

    def fingerprint(self) -> dict[str, Any]:
        data, tasks = self.data, self.cluster.tasks
        likes = tasks.get([tasks.submit(digest_part, part) for part in data.parts])
        user_ids = tasks.get([tasks.submit(digest_ids, ids) for ids in data.user_ids])
        item_ids = digest_ids(data.item_ids)
        described = describe_data(
            data.outline,
            resident=data.resident,
            likes=likes,
            resident_ids=user_ids if data.resident == USERS else [item_ids],
            other_ids=item_ids if data.resident == USERS else user_ids[0],
        )
        settings = self.request.settings()
        if self.backend.inner_sweeps > 1:
            settings |= {"inner_sweeps": self.backend.inner_sweeps, "inner": self.backend.inner}
        return {"data": described, "settings": settings}

    def check_checkpoint(self, saved: Checkpoint) -> None:
        tasks = self.cluster.tasks
        saved.check_parts(lambda damage, parts: tasks.get([tasks.submit(damage, part) for part in parts]))

    def runner(self, plan: FitPlan) -> PartitionedRunner:
        outline, cluster = self.data.outline, self.cluster
        setup = PartitionSetup.of(outline, plan, self.data.resident, cluster.out_of_core)
        parts, likes = self.data.parts, self.data.all_user_likes
        self.pool = cluster.make_pool(make_partition, setup, parts, all_user_likes=likes)
        self.data = replace(self.data, parts=[])  # the pool has them
        self._stack.callback(self.pool.close)
        if not cluster.out_of_core:
            check_seen(self.folder, self.pool)
        correct = partial(correct_head_over, self.pool, outline, negatives=plan.negatives)
        self.histogram = Histogram.of(self.item_degree, plan, correct)
        options = replace(self.backend, item_shards=self.division.item_shards)
        run = self._stack.enter_context(LocalBackend(plan.threads)).map
        runner = make_runner(outline, setup, self.histogram.weights, self.pool, options, run)
        self.resident, self.counts, self.grouping = setup.resident, runner.counts, runner.grouping
        self.part_count = self.pool.parts
        return runner

    def write_parts(self, checkpoints: Checkpoints, state: State) -> list[FileEntry]:
        write, read = (partial(method, state.sweep) for method in (checkpoints.write_part, checkpoints.read_part))
        written: list[FileEntry] = self.pool.snapshot(write, read)
        return written

    def read_parts(self, checkpoints: Checkpoints, saved: Checkpoint, state: State) -> State:
        self.pool.call("take", partial(checkpoints.read_part, saved.sweep), changes=True)
        return state

    def rewind(self, sweep: int) -> None:
        self.pool.call("go_back", sweep, changes=True)

    def after_checkpoint(self, folder: str) -> None:
        self.pool.name_checkpoint(folder)

    def note(self) -> str:
        return self.cluster.sweep_report(self.pool)

    def finish(self, plan: FitPlan, progress: FitProgress) -> Model:
        """Each shard of users is written where they are; then the index, which makes them one model."""
        data, tasks, state = self.data, self.cluster.tasks, progress.state
        assert state is not None
        if set(self.pool.call(sweep_of)) != {state.sweep}:
            raise RuntimeError("the parts are not where the head is")
        q, likes = state.posterior, self.request.likes
        if data.resident == USERS:
            items = q.items
            entries = self.pool.call(partial(write_part_users, folder=self.folder, likes=likes), PerPart(data.user_ids))
        else:
            items = gather(self.pool, q.factors)
            args = (self.folder, tasks.put(q.users), data.all_user_likes, data.user_ids[0], likes)
            entries = [tasks.get(tasks.submit(write_all_users, *args))]
        model = self._model(plan, progress, nobody(q.users), items)
        write_index(self.folder, model, [entry for entry in entries if entry is not None])
        self.written = True
        self.data = replace(data, all_user_likes=None, user_ids=[])  # what tasks hold goes with them
        model = load_model(self.folder)
        if self.request.model_folder is None:
            weakref.finalize(model.users, shutil.rmtree, self.folder, ignore_errors=True)
        return model

    def discard_unwritten(self) -> None:
        """Remove a temporary folder that holds no model."""
        if not self.written:
            shutil.rmtree(self.folder, ignore_errors=True)


def digest_part(part: GraphPart) -> str:
    return digest_likes(part.likes)
