"""Update of a fitted model with new likes: yesterday's posterior is today's prior.

    t = 1 / (1 / omega + drift x days),    m = eta

for every row that has a new like or an unliked edge drawn for one. Only these edges are summed, and only these rows are
stepped. Priors hold both users and items, so the axes of the vectors do not turn. The taus are held. omega is used as
it is: rho, which has narrowed it, multiplies the new sums too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data import Interactions
from considerate.data.graph import Adjacency, Graph, row_blocks, transpose
from considerate.data.known import Known
from considerate.errors import UsageError
from considerate.inference.hidden import Consideration, Draws, Sampled, Terms, user_offset
from considerate.inference.hidden.saturation import Saturation
from considerate.inference.plan import DRIFT
from considerate.inference.posterior import Posterior, Side
from considerate.inference.prior import Prior, Priors
from considerate.inference.schedule import StepSize
from considerate.inference.sweep import InMemory, State
from considerate.inference.updates import Moments
from considerate.kernels.arrays import take_lists
from considerate.kernels.threads import Backend, LocalBackend
from considerate.model.likes import popularity_at, renewed_walk
from considerate.model.merge import Merged, with_likes
from considerate.model.model import Model, renewed
from considerate.model.removal import with_rows, without_likes

PASSES = 4  # passes over the new edges, users and items in turn; each draws H afresh and takes a smaller step
GROWN = 1.1  # growth of an item's likes after which its row of the walk's table is computed again


@dataclass(frozen=True)
class UpdateOptions:
    """Options of an update: the time since the fit or the last update, and the drift per day."""

    days: float = 1.0  # days since then
    drift: float = DRIFT

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise UsageError(f"{name} is {value!r}; it must be a number, 0 or larger.")

    @property
    def variance(self) -> float:
        """Variance that is added to every variance before it is a prior's."""
        return self.drift * self.days


def updated(
    model: Model, likes: Interactions | None, removed: Interactions | None, options: UpdateOptions, threads: int | None
) -> Model:
    """Merge new likes into a model and learn from them, and take others out. Without either, nothing changes."""
    model.check_two_kinds()
    with LocalBackend(model.plan.threads if threads is None else threads) as backend:
        if removed is not None:
            model = without_likes(model, removed, backend.map)
        merged = None if likes is None else with_likes(model, likes)
        if merged is None or merged.new.edges == 0:
            return model
        merged = replace(merged, model=_walk_again(merged.model, backend))
        problem = NewEdges.of(merged, backend)
        posterior = problem.inferred(merged.model, options.variance, backend)
        return _published(merged, problem, posterior, options)


def _walk_again(model: Model, backend: Backend) -> Model:
    """Recompute the rows of the walk's table whose items have a tenth more likes than when the row was computed. So the
    cost of an update is in proportion to the new likes, not to the table."""
    if model.walk_degree is None:
        return model
    return renewed_walk(model, np.flatnonzero(model.item_degree > GROWN * model.walk_degree), backend.map)


@dataclass(frozen=True)
class NewEdges:
    """New likes, the unliked edges drawn for them, and the rows at their ends. Edges number these rows: users with new
    likes first, then other users, whose rows stay as they are."""

    users: NDArray[np.int64]  # rows of the model
    active: int  # number of users with new likes
    items: NDArray[np.int64]
    graph: Graph  # new likes
    drawn: tuple[Adjacency, ...]  # unliked edges of each pass, by user

    @classmethod
    def of(cls, merged: Merged, backend: Backend) -> NewEdges:
        """Draw the unliked edges of the passes: c for each new like, around all likes of its user, and `Owed` edges of
        old likes to items that have become more popular."""
        model, active = merged.model, np.flatnonzero(merged.new.degrees)
        users, new = model.users.whole(), merged.new.take(active)
        liked, first = users.liked.take(active), model.updates.count * PASSES
        known = model.limits_of(active)
        sampled, owed = _sampled(model, new, liked, known), Owed.of(merged)
        drawn = [
            sampled.draw(first + number, backend.map, (users.side.take(active), model.items))
            for number in range(1, PASSES + 1)
        ]
        more = [owed.draw(first + number) for number in range(1, PASSES + 1)]
        place = np.full(len(users), -1, np.int64)
        place[np.concatenate([fans for fans, _ in more])] = 0
        place[active] = -1
        rows = np.concatenate([active, np.flatnonzero(place == 0)])
        place[rows] = np.arange(len(rows))
        touched = np.zeros(model.item_count, np.bool_)
        touched[np.concatenate([new.indices, *(one.indices for one in drawn), *(items for _, items in more)])] = True
        number, items = np.cumsum(touched) - 1, np.flatnonzero(touched)

        def local(edges: Adjacency, more: tuple[Any, Any]) -> Adjacency:
            fans = np.concatenate([edges.edge_rows, place[more[0]]])
            return Adjacency.of_pairs(fans, number[np.append(edges.indices, more[1])], len(rows), len(items))

        starts = np.append(new.starts, np.full(len(rows) - len(active), new.edges))
        likes = Adjacency(starts, number[new.indices].astype(np.int32), new.weights)
        graph = Graph.from_adjacency(likes, len(items))
        return cls(rows, len(active), items, graph, tuple(map(local, drawn, more)))

    def inferred(self, model: Model, variance: float, backend: Backend) -> Posterior:
        """q of these rows after the passes, with the old q of each row as its prior."""
        taken = model.users.whole().side.take(self.users), model.items.take(self.items)
        users, items = (replace(side, covariance=None) for side in taken)  # updates are factorised
        moves = np.where(np.arange(len(users)) < self.active, variance, 0.0)
        priors = Priors(prior_of(users, moves), prior_of(items, np.full(len(items), variance)))
        limits = model.limits_of(self.users)
        offset = user_offset(model.users.whole().liked.take(self.users), model.popularity, model.plan, limits)
        redrawn = Redrawn(self.drawn, self.active)
        runner = InMemory(self.graph, redrawn, model.plan, backend, priors, user_offset=offset)
        start = Posterior(users, items, model.precisions)
        moments = Moments.of(users, priors.users), Moments.of(items, priors.items)
        for sweep in runner.sweeps(State(0, start, StepSize(0), *moments)):
            if sweep.state.sweep == PASSES:
                break
        return sweep.state.posterior


def _sampled(model: Model, new: Adjacency, liked: Adjacency, known: Known | None) -> Sampled:
    """Make the estimator that draws for new likes, given all likes of their users and the known pairs. Draws are by
    pi alone if the H of the fit was: in closed form, or of half-edges."""
    plan, walk = model.plan, model.consideration
    walk = None if walk is None or plan.hidden != "sampled" else _rows_of_walk(walk, liked)
    draws = Draws.of(model.popularity, walk, plan.tilt)
    blocks = row_blocks(liked.starts)
    counts = [Sampled(likes, blocks, draws, plan.negatives, plan.seed, known=known).counts(1) for likes in (new, liked)]
    offset = user_offset(liked, model.popularity, plan, known) if plan.tilt else None
    how: dict[str, Any] = {"known": known, "counts": np.minimum(*counts), "user_offset": offset}
    return Sampled(liked, blocks, draws, plan.negatives, plan.seed, **how)


def _rows_of_walk(walk: Consideration, liked: Adjacency) -> Consideration:
    """Rows of the walk's table where draws for these users begin; the others are empty."""
    which = np.full(walk.item_count, -1, np.int64)
    which[liked.indices] = liked.indices
    starts, items = take_lists(walk.starts, walk.items, which)
    _, shares = take_lists(walk.starts, walk.shares, which)
    return Consideration(starts, items, shares, walk.rest, walk.weights, walk.mix)


@dataclass(frozen=True)
class Owed:
    """Unliked edges that old likes owe to items whose share of pi has grown since they drew theirs.

    In a fit to all likes, user m would pass over item n with the chance 1 - exp(-T_m pi_n) (saturation.py). With the
    item's smaller share of pi before, this chance was less, 0 for a new item. The difference is drawn now. Without
    these edges hardly anyone would have passed over new items, and their biases would be far too high.
    """

    liked: Adjacency  # all likes, by user
    items: NDArray[np.int64]  # items whose share has grown
    users: NDArray[np.int64]  # all users, in classes of about as many old likes
    starts: NDArray[np.int64]  # [classes + 1] boundaries of the classes in `users`
    rates: NDArray[np.float64]  # [items x classes] edges from an item to the users of a class, cumulated
    limits: Known | None  # impossible pairs, which are never passed over
    seed: int

    @classmethod
    def of(cls, merged: Merged) -> Owed:
        model, new = merged.model, merged.new
        liked, pi = model.users.whole().liked, model.popularity
        gained = np.bincount(new.indices, minlength=len(pi))
        before = popularity_at(model, pi, model.item_degree, model.item_degree - gained)
        before *= pi.sum() / before.sum()
        items = np.flatnonzero(pi > before * (1.0 + 1e-9))
        degree = liked.degrees - new.degrees
        _, which, counts = np.unique(_rounded(degree), return_inverse=True, return_counts=True)
        mean = np.bincount(which, degree) / counts
        saturation, c = Saturation(pi), model.plan.negatives
        likes, both = (saturation.temperature_of(times * mean) for times in (1.0, 1.0 + c))
        chance = np.exp(-np.outer(before[items], both - likes)) - np.exp(-np.outer(pi[items], both - likes))
        rates = np.cumsum(
            -np.log1p(-np.minimum(chance, 0.999)) * counts
        )  # so that a pair comes at least once by chance
        starts = np.append(0, np.cumsum(counts))
        users = np.argsort(which, kind="stable")
        return cls(liked, items, users, starts, rates, model.limits, model.plan.seed)

    def draw(self, number: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Draw (users, items), each pair once."""
        if not len(self.items):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        random = np.random.Generator(np.random.Philox(key=[self.seed, number]))
        total = self.rates[-1]
        cells = np.searchsorted(self.rates, total * random.random(random.poisson(total)), side="right")
        which, chosen = np.divmod(np.minimum(cells, len(self.rates) - 1), len(self.starts) - 1)
        places = random.random(len(cells)) * np.diff(self.starts)[chosen]
        users = self.users[self.starts[chosen] + places.astype(np.int64)]
        users, which = np.divmod(np.unique(users * len(self.items) + which), len(self.items))
        unliked = ~self.liked.find(users, self.items[which])[1]
        if self.limits is not None:
            unliked &= ~self.limits.are_impossible(users, self.items[which])
        return users[unliked], self.items[which[unliked]]


def _rounded(degree: NDArray[np.int64]) -> NDArray[np.int64]:
    """Round degrees to within some five per cent, on a scale of whole numbers."""
    return np.rint(20.0 * np.log(np.maximum(degree, 0.5))).astype(np.int64)


def prior_of(side: Side, variance: NDArray[np.float64]) -> Prior:
    """Make a prior of a side's rows: the same means, with added variance."""
    bias_mean, bias_variance = side.biases if side.has_bias else (None, None)
    bias_precision = None if bias_variance is None else 1.0 / (bias_variance + variance)
    return Prior.of(side.mean, 1.0 / (side.variance + variance[:, None]), bias_mean, bias_precision)


@dataclass(frozen=True)
class Redrawn:
    """Estimator with unliked edges that were drawn before: pass t has the edges of drawn[t - 1]. Only the first
    `active` users read them; the rows of others are held."""

    drawn: Sequence[Adjacency]
    active: int
    deterministic = False

    def user_terms(self, sweep: int, posterior: Posterior, run: Any) -> Terms:
        edges = self.drawn[sweep - 1]
        end = edges.starts[self.active]
        return Terms(unliked=Adjacency(np.minimum(edges.starts, end), edges.indices[:end]))

    def item_terms(self, sweep: int, posterior: Posterior, run: Any) -> Terms:
        return Terms(unliked=transpose(self.drawn[sweep - 1], len(posterior.items), run))

    def settled(self, sweep: int) -> bool:
        return True


def _published(merged: Merged, problem: NewEdges, posterior: Posterior, options: UpdateOptions) -> Model:
    """Put the inferred rows into the model, with a record of the update."""
    model = merged.model
    users, active = model.users.whole(), problem.active
    return renewed(
        replace(
            model,
            users=replace(
                users, side=with_rows(users.side, problem.users[:active], posterior.users.between(0, active))
            ),
            items=with_rows(model.items, problem.items, posterior.items),
            updates=model.updates.after(count=1, likes=merged.new.edges, days=options.days, passes=PASSES),
        )
    )
