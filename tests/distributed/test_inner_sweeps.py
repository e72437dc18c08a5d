"""Inner sweeps of one part while the others' messages are held (eq. 21): the bound rises after every visit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from considerate.data.graph import Graph, divide
from considerate.distributed.backends.base import PartitionedBackend
from considerate.distributed.backends.out_of_core import DiskPool
from considerate.distributed.messages import PartitionSetup, merge_replies
from considerate.distributed.partitions import make_partition
from considerate.distributed.pools import LocalPool
from considerate.distributed.runners import gather, inner, make_runner
from considerate.distributed.runners.inner import InnerBroadcast
from considerate.errors import UsageError
from considerate.inference.hidden import Sampled, popularity_weights, user_offset
from considerate.inference.plan import FitPlan
from considerate.inference.posterior import Gamma
from considerate.inference.sweep import State
from tests.helpers import naive
from tests.helpers.divided_fits import with_residents

NEGATIVES = 1.5


def planted(users: int, items: int, block_edges: int) -> Graph:
    """Two clusters; some users like more than others do."""
    random = np.random.default_rng(0)
    same = np.arange(users)[:, None] % 2 == np.arange(items) % 2
    liked = random.random((users, items)) < np.where(same, random.uniform(0.3, 0.9, (users, 1)), 0.06)
    liked[np.arange(users), np.arange(users) % items] = True
    user, item = (one.astype(np.int32) for one in np.nonzero(liked))
    return Graph.from_pairs(user, item, users, items, block_edges=block_edges)


SMALL, LARGE = planted(24, 12, 30), planted(400, 40, 400)


def settings_of(user_bias: bool = False, factors: int = 3) -> FitPlan:
    return FitPlan.of_paper(
        factors=factors,
        negatives=NEGATIVES,
        likelihood_weight=1.3,
        user_bias=user_bias,
        step_delay=100,
        precision_delay=2,
        seed=3,
    )


@contextmanager
def divided(
    kind: str, settings: FitPlan, graph: Graph, threads: int = 1, folder: Path | None = None, **options: Any
) -> Iterator[tuple[Any, Any]]:
    outline, parts = divide(graph)
    setup = PartitionSetup.of(outline, replace(settings, hidden=kind, groups=8))
    if folder is None:
        pool: Any = LocalPool([make_partition(part, setup) for part in parts], threads)
    else:
        pool = DiskPool(folder, make_partition, setup, parts, threads)
    with pool:
        weights = popularity_weights(graph.by_item.degrees, 1.0)
        yield make_runner(outline, setup, weights, pool, PartitionedBackend(**options)), pool


def begun(runner: Any) -> State:
    """The start, with precisions of 1: at 10, so small a graph is pruned before anything is learned."""
    state = runner.begin()
    taus = state.posterior.precisions
    user, item = (Gamma(one.shape, one.shape) for one in (taus.user, taus.item))
    return replace(state, posterior=replace(state.posterior, precisions=replace(taus, user=user, item=item)))


class Visits:
    """Parts that are visited one after the other on one H, and the bound between the visits."""

    def __init__(self, kind: str, graph: Graph, user_bias: bool, epsilon: float) -> None:
        self.settings, self.epsilon, self.graph = settings_of(user_bias), epsilon, graph
        outline, parts = divide(graph)
        setup = PartitionSetup.of(outline, replace(self.settings, hidden=kind, groups=8))
        self.parts: list[Any] = [make_partition(part, setup) for part in parts]
        self.pool = LocalPool(self.parts)
        weights = popularity_weights(graph.by_item.degrees, 1.0)
        self.runner: Any = make_runner(outline, setup, weights, self.pool, PartitionedBackend(inner_sweeps=2))
        self.state = begun(self.runner)
        self.runner.broadcast(self.state, epsilon)  # which makes the groups
        if self.runner.grouping is not None:
            self.runner.grouping.moves = lambda sweep: False
        self.total: Any = None

    def send_messages(self) -> None:
        """All parts' messages, anew."""
        down = self.runner.broadcast(self.state, self.epsilon)
        replies = [inner.make_message(part, self.runner.hidden, down) for part in self.parts]
        self.total = reduce(merge_replies, replies).root().message

    def visit(self, number: int, rounds: int) -> None:
        down = self.runner.broadcast(self.state, self.epsilon)
        taus = self.state.posterior.precisions
        given = InnerBroadcast(down, self.total, taus.item.mean, taus.item_bias.mean, rounds)
        made = inner.sweep_alone(self.parts[number], self.runner.hidden, given)
        self.total = made.total
        self.state = replace(self.state, posterior=replace(self.state.posterior, items=made.items))

    def bound(self) -> float:
        """L_xi at the best xi; the precisions are held, and leave the rest to be summed from the rows."""
        q = with_residents(self.state, gather(self.pool, self.settings.factors)).posterior
        edges = self.runner.evaluate_bound(self.state).edges
        nothing = np.zeros((self.graph.user_count, self.graph.item_count))
        return edges + naive.bound(q, nothing, nothing, self.prior)

    @property
    def prior(self) -> naive.Prior:
        s, graph = self.settings, self.graph
        extra = user_offset(graph.by_user, popularity_weights(graph.by_item.degrees, 1.0), s)
        offset = s.offset + (np.zeros(graph.user_count) if extra is None else extra.astype(float))
        return naive.Prior(offset, s.likelihood_weight, s.prior_shape, s.prior_rate)


@pytest.mark.parametrize("kind", ["sampled", "expected"])
@pytest.mark.parametrize("user_bias", [False, True])
@pytest.mark.parametrize("epsilon", [1.0, 0.4])
def test_the_bound_rises_after_each_parts_visit(kind, user_bias, epsilon):
    """On a fixed H, several inner sweeps from messages that have just been made."""
    visits = Visits(kind, SMALL, user_bias, epsilon)
    assert len(visits.parts) >= 4
    bounds = [visits.bound()]
    for _ in range(3):
        for number in range(len(visits.parts)):
            visits.send_messages()
            visits.visit(number, rounds=3)
            bounds.append(visits.bound())
    assert np.diff(bounds).min() > -1e-5 * abs(bounds[-1])
    assert bounds[-1] - bounds[0] > 10


def rises_at_the_messages_xi(user_bias: bool) -> np.ndarray:
    """By brute force: L_xi at the xi of the messages, which stay as old as the parts' last visits."""
    visits = Visits("sampled", SMALL, user_bias, 1.0)
    graph, prior = SMALL, visits.prior
    weights = popularity_weights(graph.by_item.degrees, 1.0)
    drawn = Sampled(graph.by_user, graph.user_blocks, weights, NEGATIVES, visits.settings.seed).draw(1)
    considered = naive.likes(graph) + naive.dense(drawn, graph.item_count)

    def posterior() -> Any:
        return with_residents(visits.state, gather(visits.pool, visits.settings.factors)).posterior

    def best_xi() -> np.ndarray:
        q = posterior()
        users, items = naive.Factor.of(q.users), naive.Factor.of(q.items)
        return naive.best_xi(naive.logit_moments(users, items, prior.offset)[1])

    visits.send_messages()
    xi, bounds = best_xi(), []
    for _ in range(3):
        for number, part in enumerate(visits.parts):
            rows = slice(part.graph.first, part.graph.first + part.graph.rows)
            items = visits.state.posterior.items
            bounds.append(naive.bound(posterior(), naive.likes(graph), considered, prior, xi))
            visits.visit(number, rounds=1)
            q = replace(posterior(), items=items)  # the message was made before the items' step
            square = naive.logit_moments(naive.Factor.of(q.users), naive.Factor.of(q.items), prior.offset)[1]
            xi[rows] = naive.best_xi(square)[rows]
            part.kept = part_message(visits, part, items)
    return np.diff(bounds)


def part_message(visits: Visits, part: Any, items: Any) -> Any:
    """The message that a visit has left in the total, for the next visit of the same part to take out."""
    down = replace(visits.runner.broadcast(visits.state, 1.0), other=items)
    part.turn(part.unliked(visits.runner.hidden, down))
    return inner.message_at(part, part.side, down)


@pytest.mark.parametrize("user_bias", [False, True])
def test_the_bound_at_the_messages_xi_rises_however_old_they_are(user_bias):
    rises = rises_at_the_messages_xi(user_bias)
    assert rises.min() > -1e-3
    assert rises.sum() > 10


def test_messages_that_are_counted_twice_are_caught(monkeypatch):
    """The control: a part that does not take its own message out of the sum."""
    monkeypatch.setattr(inner, "subtract_message", lambda total, own: total)
    assert rises_at_the_messages_xi(False).min() < -0.1


@pytest.mark.parametrize("user_bias", [False, True])
def test_a_message_gives_the_sums_at_any_vector_and_bias(user_bias):
    """By brute force: the xi are those of when it was made, the item's own values those of now."""
    visits = Visits("sampled", SMALL, user_bias, 1.0)
    visits.send_messages()
    for number in range(len(visits.parts)):
        visits.visit(number, rounds=2)
    visits.send_messages()
    made_at = with_residents(visits.state, gather(visits.pool, 3)).posterior
    random = np.random.default_rng(4)
    moved = made_at.items.between(0, len(made_at.items))
    moved = replace(moved, rows=moved.rows.copy(), bias_mean=moved.bias_mean + 0.7)
    moved.mean[:] += random.normal(0, 0.5, moved.mean.shape)
    prior, graph = visits.prior, SMALL
    users, before, now = (naive.Factor.of(one) for one in (made_at.users, made_at.items, moved))
    weights = popularity_weights(graph.by_item.degrees, 1.0)
    drawn = Sampled(graph.by_user, graph.user_blocks, weights, NEGATIVES, visits.settings.seed).draw(1)
    g, considered = naive.likes(graph), naive.likes(graph) + naive.dense(drawn, graph.item_count)
    xi = naive.best_xi(naive.logit_moments(users, before, prior.offset)[1])
    rows = np.arange(graph.item_count, dtype=np.int32)
    sums = inner.sums_at(visits.total, moved, rows)
    for n in rows:
        P, z, bias_P, bias_z = naive.row_sums(users, now, g, considered, prior, xi, n, of_user=False)
        np.testing.assert_allclose(sums.second[n], P[np.tril_indices(3)], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(sums.first[n], z, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(sums.bias[n], [bias_P, bias_z], rtol=1e-4, atol=1e-4)


def fitted(kind: str, sweeps: int, **options: Any) -> tuple[State, list[float]]:
    settings = settings_of(True, 8)
    with divided(kind, settings, LARGE, **options) as (runner, pool):
        bounds = []
        for done in runner.sweeps(begun(runner)):
            bounds.append(done.bound.total)
            if done.state.sweep == sweeps:
                bounds.append(runner.evaluate_bound(done.state).total)
                return with_residents(done.state, gather(pool, 8)), bounds
    raise AssertionError


@pytest.mark.parametrize("kind", ["sampled", "expected"])
@pytest.mark.parametrize("how", ["one", "all"])
def test_inner_sweeps_have_the_same_bits_wherever_parts_are(kind, how, tmp_path):
    one, bounds = fitted(kind, 4, inner_sweeps=2, inner=how)
    for options in ({"threads": 2}, {"folder": tmp_path, "threads": 2}):
        other, others = fitted(kind, 4, inner_sweeps=2, inner=how, **options)
        np.testing.assert_array_equal(one.posterior.users.rows, other.posterior.users.rows)
        np.testing.assert_array_equal(one.posterior.items.rows, other.posterior.items.rows)
        assert one.posterior.precisions == other.posterior.precisions
        assert bounds == others


def test_inner_sweeps_need_fewer_sweeps_and_end_at_the_same_bound():
    """In expected mode, whose bound is exact: one part at a time is ahead after a few sweeps, and all end alike."""
    few = {how: fitted("expected", 4, **options)[1][-1] for how, options in HOW.items()}
    assert few["one"] > few["plain"]
    many = {how: fitted("expected", 60, **options)[1][-1] for how, options in HOW.items()}
    assert many["one"] == pytest.approx(many["plain"], rel=2e-3)
    assert many["all"] == pytest.approx(many["plain"], rel=2e-3)


HOW: dict[str, dict[str, Any]] = {
    "plain": {},
    "one": {"inner_sweeps": 3},
    "all": {"inner_sweeps": 3, "inner": "all"},
}


def test_what_inner_sweeps_cannot_do_is_said():
    for options in ({"factors": 80}, {"item_shards": 2}):
        settings = settings_of(factors=options.pop("factors", 8))
        with (
            pytest.raises(UsageError, match="inner_sweeps is 2"),
            divided("sampled", settings, LARGE, inner_sweeps=2, **options),
        ):
            pass
