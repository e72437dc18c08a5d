"""Session of a fit over the parts of a graph: it reads and divides the data, and writes the model in shards.

The head's memory grows with the items, not with the users or their likes: users stay with their parts, which write
them to the model's shards.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from considerate.data import Interactions
from considerate.data.features import FeatureTable
from considerate.data.fingerprint import describe_data, digest_ids, digest_likes
from considerate.data.graph import ITEMS, USERS, Adjacency, GraphOutline, GraphPart, Run, leaf_splits, ranges
from considerate.data.known import Known
from considerate.data.known_tables import KnownTables
from considerate.data.read import open_parquet_likes, read_likes
from considerate.data.sources import open_input
from considerate.data.vocabulary import Vocabulary
from considerate.distributed.disk_division import DiskDivision
from considerate.distributed.division import Division, plan_division
from considerate.distributed.exchange import DividedData, from_interactions, read_divided
from considerate.distributed.messages import PartitionSetup
from considerate.distributed.options import BackendSession, DivisionOptions
from considerate.distributed.partitions import Partition, make_partition
from considerate.distributed.pools import PerPart, WorkerPool
from considerate.distributed.runners import (
    PartitionedRunner,
    consideration_over,
    correct_head_over,
    gather,
    make_runner,
)
from considerate.errors import OutputError, UsageError
from considerate.fitting.checkpoint import Checkpoint, Checkpoints, FileEntry
from considerate.fitting.session import FitRequest, FitSession, Histogram, warn_of_factors
from considerate.fitting.stopping import FitProgress
from considerate.inference.features import SideFeatures
from considerate.inference.plan import FitPlan
from considerate.inference.posterior import Side
from considerate.inference.sweep import State
from considerate.kernels.threads import LocalBackend
from considerate.model.file import load_model
from considerate.model.model import Model
from considerate.model.shards import ShardEntry, check_folder, write_index, write_user_shard
from considerate.model.users import UserRows
from considerate.storage.files import PathLike
from considerate.storage.filesystems import Folder

SHARD = "users-"  # prefix of shards
UNFINISHED = ".considerate-"  # prefix of files that are being written, or were when a worker was killed


@contextmanager
def start_session(backend: DivisionOptions, request: FitRequest) -> Iterator[PartitionedSession]:
    """Read and divide the data where the backend runs; frees the backend at the end."""
    folder, temporary = room_for_shards(request.model_folder)
    if request.checkpoint is not None and request.checkpoint.folder == folder:
        raise UsageError(f"{folder}: is the folder of the model and of the checkpoints; give each a folder of its own.")
    with ExitStack() as stack:
        session = PartitionedSession(backend, request, folder, stack)
        if temporary:
            stack.callback(session.discard_unwritten)
        stack.enter_context(tidied(folder, lambda: session.written))
        session.open()
        yield session


# --- The folder of the model ---


def room_for_shards(folder: PathLike | None) -> tuple[str, bool]:
    """(folder of the shards, whether it is temporary). Raise UsageError if a model cannot be written there."""
    if folder is None:
        return tempfile.mkdtemp(prefix="considerate-model-"), True
    place = Folder.at(folder)
    if place.local is not None:
        above = place.local
        while not os.path.lexists(above):
            above = os.path.dirname(above)
        if not os.path.isdir(above):
            raise UsageError(f"{above}: is a file where a folder is needed; choose another name.")
        if not os.access(above, os.W_OK | os.X_OK):
            raise UsageError(f"{above}: no permission to write there; choose another folder or change its permissions.")
    try:
        check_folder(place)
    except OutputError as error:
        raise UsageError(str(error)) from error
    return place.absolute, False


@contextmanager
def tidied(folder: str, written: Callable[[], bool]) -> Iterator[None]:
    """Leave the folder as it was if no model is written, without stray shards."""
    place = Folder.at(folder)
    was_there = place.local is None or os.path.isdir(place.local)
    before = set(place.names())

    try:
        yield
    finally:
        with suppress(OSError):
            strays = (UNFINISHED,) if written() else (SHARD, UNFINISHED)
            for name in place.names():
                if name not in before and name.startswith(strays):
                    place.remove(name)
            if not was_there and place.local is not None and not written():
                os.rmdir(place.local)


def check_seen(folder: str, pool: WorkerPool) -> None:
    """Raise UsageError early if a part is on a machine that does not see the folder."""
    place = Folder.at(folder)
    if place.local is None:
        return
    was_there = os.path.isdir(place.local)
    place.make()
    name = UNFINISHED + secrets.token_hex(8)
    place.write(name, [b"seen"])
    seen: Sequence[bool] = pool.call(partial(file_exists, folder=folder, name=name))
    place.remove(name)
    if not was_there:
        os.rmdir(place.local)
    if not all(seen):
        raise UsageError(
            f"{folder}: workers on other machines do not see this folder, and the users' vectors are written there; "
            "give one on a disk that all machines share, or with --sharded an address such as s3://bucket/name."
        )


# --- The session ---


class PartitionedSession(FitSession):
    """A fit whose resident side lives with the parts of a pool. It writes the model at its end."""

    def __init__(self, backend: DivisionOptions, request: FitRequest, folder: str, stack: ExitStack) -> None:
        self.backend, self.request, self.folder, self._stack = backend, request, folder, stack
        self.written = False  # whether the model is written
        self.division: Division
        self.pool: WorkerPool
        self._runner: PartitionedRunner

    def open(self) -> None:
        """Start the backend, read the data and divide it."""
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
        for note in (*data.notes, *request.side.notes):
            request.say(note)
        if request.side.known is not None:
            self._add_known(request.side.known)

    def _add_known(self, tables: KnownTables) -> None:
        """Give known pairs to the parts of their users."""
        data, tasks = self.data, self.cluster.tasks
        given = tasks.put(tables), tasks.put(data.item_ids)
        refs = [tasks.submit(with_known, part, ids, *given, returns=3) for part, ids in zip(data.parts, data.user_ids)]
        parts, counts, limits = zip(*refs)
        self.data = replace(data, parts=list(parts))
        self.known_per_like = sum(tasks.get(list(counts))) / data.outline.edges
        self.limits = Known.joined(tasks.get(list(limits))).limits(len(self.item_ids))

    def _read_here(self) -> Interactions | None:
        """Likes of a source other than Parquet. Tasks read Parquet; here its options are checked."""
        source, options = self.request.source, self.request.reader
        if options.time_column is not None and options.half_life is None:
            raise UsageError("time_column is for splits by time; leave it out where the graph is divided.")
        if open_parquet_likes(source, options) is None:
            return read_likes(source, options)
        if isinstance(options.titles, str | os.PathLike):
            open_input(options.titles)
        return None

    def _choose_side(self, outline: GraphOutline) -> str:
        """Choose the resident side, and say before the fit how the graph is divided."""
        plan, resident, checkpoint = self.request.plan, self.backend.resident, self.request.checkpoint
        if resident is None and (self.request.side.has_features or self.request.side.known is not None):
            resident = USERS  # features and known pairs stay with their users
        if resident is None and checkpoint is not None and checkpoint.resume:
            saved = Checkpoints(checkpoint.folder, {}).division()  # a checkpoint by items is resumed by items
            resident = saved if saved in (USERS, ITEMS) else None
        warn_of_factors(plan.factors, outline.user_count, outline.item_count)
        item_shards = 1 if self.backend.inner_sweeps > 1 else self.backend.item_shards
        kind = DiskDivision if self.cluster.out_of_core else Division
        known = self.request.side.pair_count
        self.division = plan_division(plan, outline, self.cluster, resident, item_shards, kind, known)
        self.request.say(self.division.text())
        return self.division.resident

    def fingerprint(self) -> dict[str, Any]:
        data, tasks = self.data, self.cluster.tasks
        likes = tasks.get([tasks.submit(digest_part, part) for part in data.parts])
        user_ids = tasks.get([tasks.submit(digest_ids, ids) for ids in data.user_ids])
        ids = {USERS: user_ids, ITEMS: [digest_ids(data.item_ids)]}
        resident_ids = ids.pop(data.resident)
        (other_ids,) = ids.popitem()[1]
        described = describe_data(
            data.outline, resident=data.resident, likes=likes, resident_ids=resident_ids, other_ids=other_ids
        )
        settings = self.request.settings()
        if self.backend.inner_sweeps > 1:
            settings |= {"inner_sweeps": self.backend.inner_sweeps, "inner": self.backend.inner}
        return {"data": described | self.request.side.describe(), "settings": settings}

    def check_checkpoint(self, saved: Checkpoint) -> None:
        tasks = self.cluster.tasks
        saved.check_parts(lambda damage, parts: tasks.get([tasks.submit(damage, part) for part in parts]))

    def runner(self, plan: FitPlan) -> PartitionedRunner:
        outline, cluster = self.data.outline, self.cluster
        setup = PartitionSetup.of(outline, plan, self.data.resident, cluster.out_of_core)
        parts, likes = self.data.parts, self.data.all_user_likes
        edges = self.data.part_edges
        self.pool = cluster.make_pool(make_partition, setup, parts, all_user_likes=likes, edges=edges)
        self.data = replace(self.data, parts=[])  # the pool has them
        self._stack.callback(self.pool.close)
        if not cluster.out_of_core:
            check_seen(self.folder, self.pool)
        correct = partial(correct_head_over, self.pool, outline, negatives=plan.negatives)
        self.histogram = Histogram.of(self.item_degree, plan, correct)
        options = replace(self.backend, item_shards=self.division.item_shards)
        run = self._stack.enter_context(LocalBackend(plan.threads)).map
        weights = self.histogram.weights
        if plan.consideration == "walk":
            room, here = self.division.sums_room(cluster.memory), cluster.out_of_core
            block_bytes = room if here else room / self.division.walk_nodes
            walk_run = run if here else None
            self.consideration = consideration_over(self.pool, outline, plan, weights, block_bytes, walk_run)
        runner = make_runner(outline, setup, weights, self.pool, options, run, self.consideration)
        runner.use_features(*self._features(run))
        self.resident, self.counts = setup.resident, runner.counts
        self.grouping = runner.grouping if runner.deterministic else None
        self.part_count = self.pool.parts
        self._runner = runner
        return runner

    def _features(self, run: Run[Any, Any]) -> tuple[PerPart | None, SideFeatures | None]:
        """(features of the users of each part, features of all items)."""
        side, tasks, users, items = self.request.side, self.cluster.tasks, None, None
        if side.user_features is not None:
            table = tasks.put(side.user_features)
            users = PerPart([tasks.submit(FeatureTable.align, table, ids) for ids in self.data.user_ids])
        if side.item_features is not None:
            blocks = ranges(leaf_splits(self.data.outline.item_blocks))
            items = SideFeatures.of(side.item_features.of_liked(self.item_ids, self.item_degree), blocks, run)
        return users, items

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
        return str(self.pool.report())

    def fallen_back(self) -> float:
        return self._runner.fallen_back

    def finish(self, plan: FitPlan, progress: FitProgress) -> Model:
        """Write each shard of users where the users are, then the index that joins them into one model."""
        data, tasks, state = self.data, self.cluster.tasks, progress.state
        assert state is not None
        if set(self.pool.call(sweep_of)) != {state.sweep}:
            raise RuntimeError("the parts are at another sweep than the head")
        q, likes = state.posterior, self.request.likes
        if data.resident == USERS:
            items = q.items
            entries = self.pool.call(partial(write_part_users, folder=self.folder, likes=likes), PerPart(data.user_ids))
        else:
            items = gather(self.pool, q.factors)
            args = (self.folder, tasks.put(q.users), data.all_user_likes, data.user_ids[0], likes)
            entries = [tasks.get(tasks.submit(write_all_users, *args))]
        model = self.with_cold_rows(self._model(plan, progress, no_users(q.users), items), grow=False)
        write_index(self.folder, model, [entry for entry in entries if entry is not None])
        self.written = True
        self.data = replace(data, all_user_likes=None, user_ids=[])  # frees the values of tasks
        model = load_model(self.folder)
        if self.request.model_folder is None:
            weakref.finalize(model.users, shutil.rmtree, self.folder, ignore_errors=True)
        return model

    def discard_unwritten(self) -> None:
        """Remove a temporary folder that holds no model."""
        if not self.written:
            shutil.rmtree(self.folder, ignore_errors=True)


def with_known(
    part: GraphPart, ids: Vocabulary, tables: KnownTables, item_ids: Vocabulary
) -> tuple[GraphPart, int, Known]:
    """(part with the known pairs of its users, number of considered pairs, impossible pairs)."""
    known = tables.rows(ids, item_ids, part.likes)
    count = 0 if known.considered is None else known.considered.edges
    return replace(part, known=known), count, replace(known, considered=None)


def digest_part(part: GraphPart) -> str:
    return digest_likes(part.likes)


# --- Functions that run where the parts are ---


def file_exists(part: Partition, *, folder: str, name: str) -> bool:
    return Folder.at(folder).size(name) is not None


def sweep_of(part: Partition) -> int:
    return part.sweep


def write_part_users(part: Partition, ids: Vocabulary, *, folder: str, likes: bool) -> ShardEntry | None:
    """Write the users of a part to their shard; None if it has no users."""
    if not part.graph.rows:
        return None
    users = UserRows(part.side, part.graph.likes.degrees, part.graph.likes, ids)
    return write_user_shard(folder, part.number, part.graph.first, users, likes=likes)


def write_all_users(folder: str, users: Side, all_user_likes: Adjacency, ids: Vocabulary, likes: bool) -> ShardEntry:
    """Write all users to one shard, if the graph is divided by items."""
    rows = UserRows(users, all_user_likes.degrees, all_user_likes, ids)
    return write_user_shard(folder, 0, 0, rows, likes=likes)


def no_users(users: Side) -> UserRows:
    """Empty users, for a model with its users in shards."""
    empty = np.zeros(1, np.int64)
    side = Side.constant(0, users.factors, 1.0, 1.0 if users.has_bias else None)
    return UserRows(side, empty[:0], Adjacency(empty, np.empty(0, np.int32)), Vocabulary.range(0))
