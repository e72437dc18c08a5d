"""Session of a fit to a graph whose vertices are of one kind, in this process's memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from considerate.data import Interactions
from considerate.data.edges import read_edges, symmetric_graph
from considerate.data.graph import Adjacency, Graph
from considerate.data.known import Known
from considerate.errors import UsageError
from considerate.fitting.in_memory import InMemorySession, user_parts
from considerate.fitting.memory import check_memory
from considerate.fitting.session import FitRequest, Histogram, warn_of_factors
from considerate.fitting.stopping import FitProgress, sweep_until_settled
from considerate.inference.hidden import Draws, Sampled
from considerate.inference.hidden.merged import VertexDraws
from considerate.inference.hidden.pair_chances import PairChances
from considerate.inference.hidden.paths import vertex_consideration
from considerate.inference.hidden.saturation import Saturation
from considerate.inference.plan import Chosen, FitPlan
from considerate.inference.posterior import mirrored
from considerate.inference.vertices import VertexSweeps
from considerate.kernels.threads import LocalBackend
from considerate.model.model import Model
from considerate.model.predict import not_narrowed
from considerate.settings import AUTO_TOP

HELD_OUT = 0.1  # share of the edges that is held out to choose weights
PAIRS = 100_000  # pairs without an edge to compare them with
POPULARITIES, LIFTS = (0.0, 0.15, 0.3, 0.6, 1.0), (0.0, 0.3, 0.6, 1.2, 2.0, 3.0, 5.0)  # weights to try


class VertexBackend:
    """Backend of threads in this process."""

    @contextmanager
    def start(self, request: FitRequest) -> Iterator[VertexSession]:
        with LocalBackend(request.plan.threads) as threads:
            edges = read_edges(request.source, request.reader)
            for note in edges.notes:
                request.say(note)
            yield VertexSession(request, threads, edges, symmetric_graph(edges))


class VertexSession(InMemorySession):
    """Session of a fit in memory whose users and items are the same vertices. A checkpoint holds both."""

    def __init__(self, request: FitRequest, threads: LocalBackend, edges: Interactions, graph: Graph) -> None:
        self.request, self.threads, self.graph = request, threads, graph
        self.item_ids, self.titles, self.data = edges.item_ids, edges.titles, edges.without_pairs()
        self.item_degree, vertices = graph.by_item.degrees, graph.item_count
        itself = Adjacency(np.arange(vertices + 1), np.arange(vertices, dtype=np.int32))
        self.known = self.limits = Known(impossible=itself)  # never drawn, never recommended
        check_memory(graph, request.plan)
        warn_of_factors(request.plan.factors, graph.user_count, graph.item_count)

    def resolve(self, plan: FitPlan) -> FitPlan:
        """Set `unlinked`, the pairs without a link that the draws of both ends make for each link. A fit that 0.3 began
        goes on with c."""
        edges = self.graph.by_item
        self.histogram = Histogram(edges.degrees.astype(float), 1.0)
        self.consideration = None
        if plan.consideration == "walk":
            self.consideration = vertex_consideration(edges, plan.neighbours, plan.mixing, self.threads.map)
        if not plan.expected_offsets:
            return plan
        assert self.known is not None
        chances = PairChances(Saturation(self.histogram.weights), self.consideration)
        draws = VertexDraws(edges, chances, plan.negatives, self.known)
        return replace(plan, unlinked=draws.unlinked_per_link(plan.seed, self.threads.map))

    def runner(self, plan: FitPlan) -> VertexSweeps:  # type: ignore[override]
        edges = self.graph.by_item
        draws = Draws.of(self.histogram.weights, self.consideration)
        self.estimator = Sampled(edges, self.graph.user_blocks, draws, plan.negatives / 2, plan.seed, known=self.known)
        self.ranges, self.grouping = user_parts(self.graph), None
        self.counts, self.part_count = (self.graph.user_count, self.graph.item_count), len(self.ranges)
        return VertexSweeps(self.graph, self.estimator, plan, self.threads)

    def snapshot(self, plan: FitPlan, progress: FitProgress) -> Model:
        model, alone = super().snapshot(plan, progress), np.flatnonzero(self.item_degree == 0)
        vertices = not_narrowed(model.items, alone, model.variance_scale)
        seen = mirrored(vertices, bool(plan.signed))
        return replace(model, items=vertices, users=replace(model.users.whole(), side=seen)) if len(alone) else model

    def tune(self, plan: FitPlan) -> FitPlan:
        """Choose the weights of the score that rank a held-out tenth of the edges best, by a fit to the others."""
        from considerate.evaluation.links import LinkTest, hide_edges  # evaluation is slow to import
        from considerate.model.links import link_parts

        whole, metric = self.graph.by_item, "hits@50" if plan.criterion == AUTO_TOP else "auc"
        if self.graph.edges < 40:
            raise UsageError(
                f"there are {self.graph.edges // 2} edges, too few to hold some out; give popularity as a number."
            )
        kept, hidden = hide_edges(whole, HELD_OUT, plan.seed)
        edges = replace(self.data, users=kept[0].astype("int32"), items=kept[1].astype("int32"), rows_kept=len(kept[0]))
        short = replace(plan, tuned=frozenset())
        model = VertexSession(self.request, self.threads, edges, symmetric_graph(edges)).fitted(short)
        test = LinkTest.of(hidden, whole, plan.seed, PAIRS)
        logit, log_pi, log_lift = link_parts(model, test.first, test.second)
        trials: list[dict[str, float]] = []
        for popularity, lift in product(POPULARITIES, LIFTS if "lift" in plan.tuned else (0.0,)):
            value = test.value(logit + popularity * log_pi + lift * log_lift, metric)
            trials.append({"popularity": popularity, "lift": lift, metric: value})
        best = max(trials, key=lambda trial: trial[metric])  # the first of a tie
        settings: dict[str, Any] = {name: best[name] for name in sorted(plan.tuned)}
        chosen = Chosen(settings, dict.fromkeys(settings, metric), len(hidden[0]), False, (best,))
        self.request.say(
            f"{', '.join(f'{name} {value:g}' for name, value in settings.items())}, chosen by {metric} "
            f"{best[metric]:.4f} of {len(hidden[0]):,} edges held out"
        )
        return replace(short, **settings, chosen=chosen)

    def fitted(self, plan: FitPlan) -> Model:
        """Model of a whole fit."""
        plan = self.resolve(plan)
        runner, progress = self.runner(plan), FitProgress()
        for step in sweep_until_settled(runner, plan, progress):
            progress.add(step)
        return self.finish(plan, progress)
