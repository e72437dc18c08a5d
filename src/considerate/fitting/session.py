"""Request of a fit, and the session in which its sweeps run."""

from __future__ import annotations

import logging
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from considerate.data import Interactions, ReaderOptions, Titles
from considerate.data.features import Features
from considerate.data.fingerprint import plain_value
from considerate.data.graph import Graph, check_sizes
from considerate.data.known import Known
from considerate.data.known_tables import likes_span
from considerate.data.side_information import SideInformation
from considerate.data.vocabulary import Vocabulary
from considerate.errors import UsageError
from considerate.fitting.checkpoint import Checkpoint, Checkpoints, FileEntry
from considerate.fitting.resume import CheckpointOptions
from considerate.fitting.stopping import FitProgress
from considerate.inference.hidden import (
    Consideration,
    Draws,
    Estimator,
    Expected,
    Observed,
    Opening,
    correct_head,
    popularity_exponent,
    popularity_weights,
)
from considerate.inference.hidden.drawers import drawer_of
from considerate.inference.hidden.groups import FREEZE_AFTER, Grouping
from considerate.inference.parts import PARTS
from considerate.inference.plan import SETTINGS, FitPlan
from considerate.inference.posterior import Side
from considerate.inference.sweep import Runner, State
from considerate.kernels.threads import Backend
from considerate.model.changes import with_cold_items, with_cold_users
from considerate.model.features import LearnedFeatures
from considerate.model.model import Model
from considerate.model.users import Users

logger = logging.getLogger("considerate")


OPENING_GROUPS = 8  # groups of items in an opening
MOST_NEGATIVES = SETTINGS["negatives"].metadata["high"]


@dataclass(frozen=True)
class FitRequest:
    """Request of a fit: the data, the settings, and the destinations of results and messages."""

    source: Any
    plan: FitPlan
    reader: ReaderOptions = field(default_factory=ReaderOptions)
    parameters: dict[str, Any] = field(default_factory=dict)  # the estimator's settings, as given
    side: SideInformation = field(default_factory=SideInformation)  # known pairs and features
    checkpoint: CheckpointOptions | None = None
    model_folder: str | None = None  # for the shards of a partitioned fit; None: a temporary one
    likes: bool = True  # True if a partitioned fit writes them to its shards
    keep_unfinished: bool = True  # True if a stopped fit ends with the model of its last finished sweep
    say: Callable[[str], None] = lambda text: logger.info("%s", text)
    on_read_progress: Callable[[str, int, int], None] | None = None  # (stage, done, total)

    def settings(self) -> dict[str, Any]:
        """Settings that decide the posterior and its ranking, for the fingerprint of a checkpoint."""
        plan, found = self.plan, {}
        for name, value in self.parameters.items():
            about = SETTINGS[name].metadata if name in SETTINGS else {}
            idle = about.get("idle")
            if about.get("free") or (idle is not None and idle(plan, value)):
                continue
            if about.get("resolve") and name not in plan.tuned:
                value = getattr(plan, name)
            found[name] = plain_value(plan.criterion if name == "popularity" and name in plan.tuned else value)
        return found


@dataclass(frozen=True)
class Histogram:
    """Popularity histogram pi, and its exponent."""

    weights: NDArray[np.float64]  # [items]
    gamma: float

    @classmethod
    def of(cls, degree: NDArray[np.int64], plan: FitPlan, correct: Callable[[Any], Any]) -> Histogram:
        """Compute pi (eq. 7-9), corrected for popular items if the plan says so."""
        gamma = popularity_exponent(degree, plan.rate) if plan.gamma is None else plan.gamma
        weights = popularity_weights(degree, gamma)
        for part in PARTS:
            weights = part.reweigh(plan, weights, correct)
        return cls(weights, gamma)


class FitBackend(Protocol):
    """Place where a fit runs."""

    def start(self, request: FitRequest) -> AbstractContextManager[FitSession]:
        """Read the data and prepare to sweep over it; leaving the context frees all resources."""
        ...


class FitSession(ABC):
    """Data of one fit at the place of its sweeps: in this process, on its disk, on a cluster."""

    request: FitRequest
    data: Any  # Interactions, or the same facts of a graph in parts
    item_ids: Vocabulary
    titles: Titles | None
    item_degree: NDArray[np.int64]
    histogram: Histogram  # once there is a runner
    consideration: Consideration | None = None
    resident: str  # side whose rows are in parts, "users" or "items"
    counts: tuple[int, int]  # of users and items; this and the following once there is a runner
    part_count: int
    grouping: Grouping | None  # of *expected* mode
    known_per_like: float = 0.0  # known considered pairs per like
    limits: Known | None = None  # impossible pairs by the rows of all users, in the process that makes the model

    @abstractmethod
    def fingerprint(self) -> dict[str, Any]:
        """Fingerprint of all that the posterior depends on: digests of the data, and the settings."""

    def check_checkpoint(self, saved: Any) -> None:
        """Read the parts of a checkpoint in the processes that will use them; raise if one is damaged."""
        saved.check_parts()

    @abstractmethod
    def write_parts(self, checkpoints: Checkpoints, state: State) -> list[FileEntry]:
        """Write the file of each part to a checkpoint."""

    @abstractmethod
    def read_parts(self, checkpoints: Checkpoints, saved: Checkpoint, state: State) -> State:
        """Restore the parts. `state` has no rows of the resident side; the result is as the runner expects it."""

    def tune(self, plan: FitPlan) -> FitPlan:
        """Choose the settings that the plan leaves open."""
        raise NotImplementedError

    def resolve(self, plan: FitPlan) -> FitPlan:
        """Set the c that the data decides. If all unliked edges are given, c is their number per like; if these are all
        considered pairs, the logit has no offset."""
        if not plan.observed:
            return plan
        if not self.known_per_like:
            raise UsageError(
                f"considered_are is {plan.considered_are!r}, and there is no considered pair among the users and items "
                "of the likes; give some as considered=, or leave considered_are out."
            )
        negatives = 1.0 if plan.considered_are == "all" else self.known_per_like
        if negatives > MOST_NEGATIVES:
            raise UsageError(
                f"there are {negatives:,.0f} considered pairs to a like, and a sample has at most {MOST_NEGATIVES:,}; "
                "give fewer of them."
            )
        return replace(plan, negatives=negatives)

    @abstractmethod
    def runner(self, plan: FitPlan) -> Runner:
        """Runner of sweeps over the data, before the first sweep."""

    def rewind(self, sweep: int) -> None:  # noqa: B027
        """Restore the rows at the end of this sweep after a later one was interrupted."""

    def after_checkpoint(self, folder: str) -> None:  # noqa: B027
        """Remember the newest checkpoint, for the message of a failure."""

    def note(self) -> str:
        """Cost of the last sweep, for the progress line."""
        return ""

    def fallen_back(self) -> float:
        """Share of the last sweep's draws by pi, because the walk had no item left."""
        return 0.0

    @property
    def mixing(self) -> float | None:
        """eps of the walk's table."""
        return None if self.consideration is None else self.consideration.mix

    def snapshot(self, plan: FitPlan, progress: FitProgress) -> Model | None:
        """Model so far, if it costs nothing; else None."""
        return None

    @abstractmethod
    def finish(self, plan: FitPlan, progress: FitProgress) -> Model:
        """Make the model of the last finished sweep. `progress` ends with the bound after it."""

    def _model(self, plan: FitPlan, progress: FitProgress, users: Users, items: Side) -> Model:
        assert progress.state is not None
        q = progress.state.posterior
        return Model(
            users=users,
            items=items,
            precisions=q.precisions,
            popularity=self.histogram.weights,
            gamma=self.histogram.gamma,
            item_degree=self.item_degree,
            item_ids=self.item_ids,
            titles=self.titles,
            plan=replace(plan, mixing=self.mixing),
            bounds=progress.bounds,
            converged=progress.converged,
            parameters=self.request.parameters,
            consideration=self.consideration,
            limits=self.limits,
            item_features=None if q.item_weights is None else LearnedFeatures(self._item_features, q.item_weights),
            user_features=None if q.user_weights is None else LearnedFeatures(self._user_features, q.user_weights),
            kept={part.name: kept for part in PARTS if (kept := part.learned(plan, self)) is not None},
        )

    @property
    def _user_features(self) -> Features:
        """Names of the users' features without rows, as users may be in other processes."""
        table = self.request.side.user_features
        assert table is not None
        return table.features.take(np.empty(0, np.int64))

    @cached_property
    def _item_features(self) -> Features:
        """Features of items in the order of the rows. Warns of items without features."""
        table = self.request.side.item_features
        assert table is not None
        features = table.align(self.item_ids)
        without = int(np.count_nonzero(~features.are_known & (self.item_degree > 0)))
        if without:
            logger.warning("%s: %d items have likes and no features", table.source, without)
        return features

    def with_cold_rows(self, model: Model, grow: bool = True) -> Model:
        """Add the items and users with features but without likes to the model. With users in other processes, no rows
        are added, as their likes are by row, and no user is predicted."""
        side, options = self.request.side, replace(self.request.reader, item_column="item")
        if side.item_features is not None:
            table = side.item_features.by_id()
            if not grow:
                rows, table = table.features.rows, table.only(model.item_ids)
                if table.features.rows < rows:
                    text = "items of the features have no likes; `considerate add-items`, or add_items, adds them"
                    self.request.say(f"{rows - table.features.rows:,} {text}")
            model = with_cold_items(model, table, options)
        if side.user_features is None or not grow:
            return model
        return with_cold_users(model, side.user_features.by_id())


def warn_of_factors(factors: int, users: int, items: int) -> None:
    """Warn if there are more factors than users or items."""
    if factors > min(users, items):
        warnings.warn(
            f"factors={factors} is more than the {min(users, items)} users or items there are; the posterior is "
            "proper, but fewer factors would do as well.",
            stacklevel=3,
        )


# --- Preparation of the first sweep: the graph, the popularity histogram pi, the estimator of q(H) ---


def make_graph(interactions: Interactions) -> Graph:
    """Make G, with warnings of duplicates, of a single user or item, and of users and items that look swapped."""
    sizes = len(interactions.user_ids), len(interactions.item_ids)
    graph = Graph.from_pairs(interactions.users, interactions.items, *sizes, amounts=interactions.amounts)
    active = (int((graph.by_user.degrees > 0).sum()), int((graph.by_item.degrees > 0).sum()))
    check_sizes(interactions.source, graph.user_count, graph.item_count, graph.duplicates, active)
    return graph


def make_known(
    side: SideInformation, data: Interactions, graph: Graph, say: Callable[[str], None] = lambda text: None
) -> Known | None:
    """Known pairs of H besides the likes, by the rows of the graph."""
    if (tables := side.known) is None:
        return None
    times = None
    if side.impossible is not None and side.impossible.needs_times and data.times is not None:
        times = likes_span(data.users, data.times, graph.user_count)
    known = tables.rows(data.user_ids, data.item_ids, graph.by_user, times)
    for name, pairs in (("considered", known.considered), ("impossible", known.impossible)):
        if pairs is not None:
            say(f"{pairs.edges:,} {name} pairs of users and items of the likes; others are left out")
            if pairs.edges == 0 and not (name == "impossible" and known.liked is not None and known.liked.edges):
                warnings.warn(
                    f"no {name} pair is of a user and an item of the likes; are its ids those of the likes?",
                    stacklevel=2,
                )
    return known


def make_popularity(graph: Graph, plan: FitPlan, backend: Backend) -> Histogram:
    """Compute pi of a graph in memory."""

    def correct(weights: NDArray[np.float64]) -> NDArray[np.float64]:
        return correct_head(weights, graph.by_user, graph.user_blocks, plan.negatives, run=backend.map)

    return Histogram.of(graph.by_item.degrees, plan, correct)


def make_consideration(
    graph: Graph, plan: FitPlan, weights: NDArray[np.float64], backend: Backend
) -> Consideration | None:
    """Make the table of the walk; None if H is drawn by popularity alone."""
    if plan.consideration != "walk":
        return None
    return Consideration.of_graph(graph.by_user, graph.by_item, weights, plan.neighbours, plan.mixing, backend.map)


def make_estimator(
    graph: Graph,
    plan: FitPlan,
    weights: NDArray[np.float64],
    backend: Backend,
    consideration: Consideration | None = None,
    known: Known | None = None,
    user_offset: NDArray[np.float32] | None = None,
) -> Estimator:
    """Make the estimator of the expectation over q(H). The closed form uses pi, also if there is a walk."""

    likes = (graph.by_user, graph.user_blocks)

    def expected() -> Expected:
        groups, freeze_after = closed_form_groups(plan, graph.item_count)
        expanded = None if known is None else known.expanded(graph.by_user)
        c, offset, run = plan.negatives, plan.offset, backend.map
        return Expected(*likes, weights, c, offset, groups, run, freeze_after, expanded, user_offset)

    if plan.observed:
        assert known is not None
        assert known.considered is not None
        return Observed(known.considered, graph.item_count, backend.map)

    if plan.hidden == "expected":
        return expected()
    draws = Draws.of(weights, consideration, plan.tilt)
    sampled = drawer_of(plan.hidden)(*likes, draws, plan.negatives, plan.seed, known=known, user_offset=user_offset)
    return Opening(plan.opening, expected(), sampled) if plan.opening else sampled


def closed_form_groups(plan: FitPlan, items: int) -> tuple[int, int]:
    """Number of groups of items of the closed form, and the sweep after which they stay. An opening has few groups,
    which follow the vectors to its end: they are a function of the posterior, so checkpoints do not keep them."""
    groups = min(plan.groups, max(1, items))
    return (groups, FREEZE_AFTER) if plan.hidden == "expected" else (min(groups, OPENING_GROUPS), plan.opening)
