"""Session and backend of a fit in this process's memory."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data import Interactions, read_dated_likes, read_likes
from considerate.data.features import Features
from considerate.data.fingerprint import describe_data, digest_ids, digest_likes
from considerate.data.graph import Graph, Range, leaf_splits, part_ranges, ranges
from considerate.fitting.checkpoint import Checkpoint, Checkpoints, FileEntry, tensor
from considerate.fitting.memory import check_memory
from considerate.fitting.resume import side_tensors
from considerate.fitting.session import (
    FitRequest,
    FitSession,
    make_consideration,
    make_estimator,
    make_graph,
    make_known,
    make_popularity,
    warn_of_factors,
)
from considerate.fitting.stopping import FitProgress
from considerate.inference.features import FitFeatures, SideFeatures
from considerate.inference.full import FullInMemory
from considerate.inference.hidden import Expected, Opening, Sampled, user_offset
from considerate.inference.plan import FitPlan
from considerate.inference.posterior import Side
from considerate.inference.sweep import InMemory, State
from considerate.kernels.threads import LocalBackend
from considerate.model.model import Model
from considerate.model.users import UserRows

WRITERS = 8  # files written at once, as writers wait for the disk


class InMemoryBackend:
    """Backend of threads in this process."""

    @contextmanager
    def start(self, request: FitRequest) -> Iterator[InMemorySession]:
        with LocalBackend(request.plan.threads) as threads:
            yield InMemorySession(request, threads)


class InMemorySession(FitSession):
    """Session of a fit in this process, whose model costs nothing after any sweep. Checkpoints hold the users in the
    parts of a partitioned graph."""

    resident = "users"

    def __init__(self, request: FitRequest, threads: LocalBackend) -> None:
        self.request, self.threads = request, threads
        check_memory(request.source, request.plan, side=request.side)
        read = read_dated_likes if request.plan.tuned else read_likes  # settings are chosen on the latest likes
        data = read(request.source, request.reader)
        check_memory(data, request.plan, side=request.side)
        for note in (*data.notes, *request.side.notes):
            request.say(note)
        self.item_ids, self.titles = data.item_ids, data.titles
        self.graph = make_graph(data)
        self.times = likes_times(self.graph, data) if request.plan.tuned else None
        self.known = make_known(request.side, data, self.graph, request.say)
        self.limits = None if self.known is None else self.known.limits(self.graph.item_count)
        if self.known is not None and self.known.considered is not None:
            self.known_per_like = self.known.considered.edges / self.graph.edges
        self.data: Interactions = data.without_pairs()
        del data
        self.item_degree = self.graph.by_item.degrees
        check_memory(self.graph, request.plan, known=self.known, side=request.side)
        warn_of_factors(request.plan.factors, self.graph.user_count, self.graph.item_count)

    def fingerprint(self) -> dict[str, Any]:
        graph, parts = self.graph, user_parts(self.graph)
        data = describe_data(
            graph,
            resident="users",
            likes=[digest_likes(graph.by_user, *part) for part in parts],
            resident_ids=[digest_ids(self.data.user_ids, *part) for part in parts],
            other_ids=digest_ids(self.item_ids),
        )
        return {"data": data | self.request.side.describe(), "settings": self.request.settings()}

    def tune(self, plan: FitPlan) -> FitPlan:
        from considerate.fitting.tuning import tune  # slow to import, because of evaluation

        plan = tune(self.graph, self.resolve(plan), self.threads, self.times, self.known)
        self.times = None
        if plan.chosen is not None and plan.chosen.likes:
            self.request.say(plan.chosen.told())
        return plan

    def runner(self, plan: FitPlan) -> InMemory:
        self.histogram = make_popularity(self.graph, plan, self.threads)
        weights = self.histogram.weights
        self.consideration = make_consideration(self.graph, plan, weights, self.threads)
        known = self.known
        extra = user_offset(self.graph.by_user, weights, plan, known)
        estimator = make_estimator(self.graph, plan, weights, self.threads, self.consideration, known, extra)
        self.estimator, features = estimator, self._features()
        runs = FullInMemory if plan.is_full else InMemory
        runner = runs(self.graph, estimator, plan, self.threads, features=features, user_offset=extra)
        self.ranges = user_parts(self.graph)
        self.counts, self.part_count = (self.graph.user_count, self.graph.item_count), len(self.ranges)
        self.grouping = estimator.grouping if isinstance(estimator, Expected) else None
        return runner

    def _features(self) -> FitFeatures:
        """Features of users and items, in the order of their rows."""
        side, graph = self.request.side, self.graph

        def of(features: Features, blocks: NDArray[np.int64]) -> SideFeatures:
            return SideFeatures.of(features, ranges(leaf_splits(blocks)), self.threads.map)

        users, items = side.user_features, side.item_features
        return FitFeatures(
            None if users is None else of(users.align(self.data.user_ids), graph.user_blocks),
            None if items is None else of(items.of_liked(self.item_ids, self.item_degree), graph.item_blocks),
        )

    def write_parts(self, checkpoints: Checkpoints, state: State) -> list[FileEntry]:
        def write(number: int) -> FileEntry:
            tensors = side_tensors(state.posterior.users, *self.ranges[number])
            tensors["sweep"] = np.array([state.sweep], np.int64)  # as in parts of other processes
            return checkpoints.write_part(state.sweep, number, tensors)

        with ThreadPoolExecutor(WRITERS, "considerate-checkpoint") as pool:
            return list(pool.map(write, range(len(self.ranges))))

    def read_parts(self, checkpoints: Checkpoints, saved: Checkpoint, state: State) -> State:
        q = state.posterior
        users = Side.constant(self.counts[0], q.factors, 0.0, 0.0 if q.users.has_bias else None)
        users = users if q.users.covariance is None else users.with_covariance()
        for number, (first, last) in enumerate(self.ranges):
            stored = saved.part(number)
            for name, rows in side_tensors(users, first, last).items():
                rows[:] = tensor(stored, name, np.float32, rows.shape)
        return replace(state, posterior=replace(q, users=users))

    def fallen_back(self) -> float:
        drawn = self.estimator.sampled if isinstance(self.estimator, Opening) else self.estimator
        return drawn.fallbacks / max(1, drawn.drawn) if isinstance(drawn, Sampled) else 0.0

    def snapshot(self, plan: FitPlan, progress: FitProgress) -> Model:
        assert progress.state is not None
        q, likes = progress.state.posterior, self.graph.by_user
        return self._model(plan, progress, UserRows(q.users, likes.degrees, likes, self.data.user_ids), q.items)

    def finish(self, plan: FitPlan, progress: FitProgress) -> Model:
        return self.with_cold_rows(self.snapshot(plan, progress))


def likes_times(graph: Graph, data: Interactions) -> NDArray[np.float64] | None:
    """Time of each edge of the graph; None if the data has no times."""
    from considerate.evaluation.split import edge_times  # evaluation is slow to import

    return None if data.times is None else edge_times(graph, data)


def user_parts(graph: Graph) -> list[Range]:
    """Rows of users of each part."""
    blocks = graph.user_blocks
    return [(int(blocks[first]), int(blocks[last])) for first, last in part_ranges(len(blocks) - 1)]
