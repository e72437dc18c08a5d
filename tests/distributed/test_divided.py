"""A fit over the parts of a graph (eq. 21): the bits of the fit in memory, however the parts are hosted and merged."""

from __future__ import annotations

import math
import pickle
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial, reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from considerate.data.graph import (
    FEW_PARTS,
    ITEMS,
    MOST_BLOCKS,
    PART_BLOCKS,
    USERS,
    Graph,
    block_ends,
    divide,
    part_ranges,
    ranges,
    run_serially,
)
from considerate.distributed.backends.base import PartitionedBackend
from considerate.distributed.backends.out_of_core import DiskPool
from considerate.distributed.fans import LIKE_BYTES, LISTED_BYTES, Fans
from considerate.distributed.messages import Broadcast, PartitionSetup, Reply, SumsRequest, merge_replies
from considerate.distributed.partitions import make_partition
from considerate.distributed.pools import LocalPool
from considerate.distributed.runners import (
    PartitionedRunner,
    consideration_over,
    correct_head_over,
    gather,
    make_runner,
)
from considerate.distributed.runners import runner as runner_module
from considerate.errors import DivergedError
from considerate.inference.hidden import (
    Consideration,
    Draws,
    Expected,
    Sampled,
    correct_head,
    popularity_weights,
    user_offset,
)
from considerate.inference.hidden import consideration as walk_part
from considerate.inference.hidden.consideration import WalkSteps
from considerate.inference.plan import FitPlan
from considerate.inference.sweep import InMemory, State, initial_side, initial_state
from considerate.inference.updates import CHUNK, Moments, RowClasses, heavy_rows
from considerate.kernels import compiled
from considerate.kernels.threads import LocalBackend
from tests.helpers.divided_fits import same_table, small_leaves, with_residents

NEGATIVES, GROUPS, SWEEPS = 1.5, 16, 5
SIZES = {USERS: (700, 80), ITEMS: (80, 700)}  # users and items, where the one or the other side is divided
BLOCK_EDGES = {USERS: 60, ITEMS: 250}


@pytest.fixture(scope="module", autouse=True)
def few_edges_to_a_leaf() -> Iterator[None]:
    """So small a graph has light items and others if a leaf has two edges."""
    with small_leaves(2):
        yield


@cache
def graph_of(resident: str = USERS) -> Graph:
    """Three clusters, a side of few rows with one that nearly everyone has an edge to, and rows without edges."""
    random = np.random.default_rng(0)
    many, few = max(SIZES[resident]), min(SIZES[resident])
    same = np.arange(many)[:, None] % 3 == np.arange(few) % 3
    liked = random.random((many, few)) < np.clip(3.0 / np.arange(1, few + 1), 0.03, 0.2) * (0.1 + 2.5 * same)
    liked[:, 7] = random.random(many) < 0.97
    liked[:, -9:] &= random.random((many, 9)) < 0.1
    liked[5] = liked[:, 11] = False
    rows, columns = (one.astype(np.int32) for one in np.nonzero(liked))
    users, items = (rows, columns) if resident == USERS else (columns, rows)
    return Graph.from_pairs(users, items, *SIZES[resident], block_edges=BLOCK_EDGES[resident])


def settings_of(factors: int = 8, user_bias: bool = False) -> FitPlan:
    c, rho = NEGATIVES, 1.3
    return FitPlan.of_paper(
        factors=factors,
        negatives=c,
        likelihood_weight=rho,
        user_bias=user_bias,
        step_delay=1,
        precision_delay=1,
        seed=3,
    )


def pi(graph: Graph) -> np.ndarray:
    return popularity_weights(graph.by_item.degrees, 0.9)


@contextmanager
def in_process(setup: PartitionSetup, parts: list[Any], threads: int = 1) -> Iterator[LocalPool]:
    with LocalPool([make_partition(part, setup) for part in parts], threads) as pool:
        yield pool


@contextmanager
def on_disk(folder: Path, setup: PartitionSetup, parts: list[Any], threads: int = 1) -> Iterator[DiskPool]:
    with DiskPool(folder, make_partition, setup, iter(parts), threads) as pool:
        yield pool
    assert not list(folder.iterdir())


def posted(value: Any) -> Any:
    """A value as it arrives from elsewhere: another object, its arrays read-only."""
    buffers: list[pickle.PickleBuffer] = []
    text = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return pickle.loads(text, buffers=[bytes(buffer.raw()) for buffer in buffers])


class ByPost(LocalPool):
    """All that goes to the parts and comes from them is pickled, as between machines."""

    def share(self, value: Any, keep: bool = False) -> Any:
        return posted(value)

    def call(self, method: Any, *arguments: Any, merge: Any = None, changes: bool = False) -> Any:
        answers = super().call(method, *posted(arguments), changes=changes)
        return [posted(one) for one in answers] if merge is None else reduce(merge, [posted(one) for one in answers])


@contextmanager
def by_post(setup: PartitionSetup, parts: list[Any]) -> Iterator[LocalPool]:
    with ByPost([make_partition(posted(part), posted(setup)) for part in parts]) as pool:
        yield pool


@contextmanager
def divided(
    kind: str,
    settings: FitPlan,
    pool_of: Callable[[PartitionSetup, list[Any]], Any],
    resident: str = USERS,
    **options: Any,
) -> Iterator[tuple[PartitionedRunner, Any]]:
    graph = graph_of(resident)
    outline, parts = divide(graph, resident)
    setup = PartitionSetup.of(
        outline, replace(settings, hidden=kind, groups=GROUPS), resident, options.pop("out_of_core", False)
    )
    table = options.pop("consideration", None)
    with pool_of(setup, parts) as pool:
        backend = PartitionedBackend(**options)
        yield make_runner(outline, setup, pi(graph), pool, backend, consideration=table), pool


Fitted = tuple[State, list[dict[str, float]]]


def swept(runner: Any, pool: Any = None, sweeps: int = SWEEPS, state: State | None = None) -> Fitted:
    """The state with the rows of both sides, and the bounds of all sweeps and of what they end with."""
    bounds = []
    for done in runner.sweeps(state):
        bounds.append(done.bound.terms())
        if done.state.sweep == sweeps:
            break
    bounds.append(runner.evaluate_bound(done.state).terms())
    return (
        done.state if pool is None else with_residents(done.state, gather(pool, done.state.posterior.factors))
    ), bounds


@cache
def in_memory(kind: str, settings: FitPlan, resident: str = USERS) -> Fitted:
    graph, settings = graph_of(resident), replace(settings, hidden=kind)
    with LocalBackend(1) as backend:
        args = (graph.by_user, graph.user_blocks, pi(graph), NEGATIVES)
        extra = user_offset(graph.by_user, pi(graph), settings)
        if kind == "sampled":
            estimator: Any = Sampled(*args, settings.seed)
        else:
            estimator = Expected(*args, settings.offset, GROUPS, run_serially, user_offset=extra)
        return swept(InMemory(graph, estimator, settings, backend, user_offset=extra))


def assert_same(one: Fitted, two: Fitted) -> None:
    p, q = one[0].posterior, two[0].posterior
    for mine, other in ((p.users, q.users), (p.items, q.items)):
        np.testing.assert_array_equal(mine.rows, other.rows)
        np.testing.assert_array_equal(mine.biases, other.biases)
    assert p.precisions == q.precisions
    assert (one[0].user_moments, one[0].item_moments) == (two[0].user_moments, two[0].item_moments)
    assert one[1] == two[1]


kinds = pytest.mark.parametrize("kind", ["sampled", "expected"])
residents = pytest.mark.parametrize("resident", [USERS, ITEMS])


# --- The graph in parts ---


def test_parts_are_runs_of_as_many_blocks():
    for blocks in (1, 2, 63, 64, 65, 117, 128, 129, 256, 257, 1000, MOST_BLOCKS):
        parts = part_ranges(blocks)
        size = parts[0][1]
        assert size in (1, 2, PART_BLOCKS)
        assert len(parts) <= FEW_PARTS or size == PART_BLOCKS
        assert blocks <= FEW_PARTS or len(parts) > FEW_PARTS // 2
        assert [first for first, _ in parts] == list(range(0, blocks, size))
        assert parts[-1][1] == blocks
    assert len(part_ranges(MOST_BLOCKS)) == 1024


@pytest.mark.parametrize(
    ("edges", "parts"),
    [(1, 1), (10**6, 31), (8 * 10**6, 62), (9 * 10**6, 64), (268 * 10**6, 64), (269 * 10**6, 128)]
    + [(10**9, 256), (3 * 10**9, 1024), (10**11, 1024)],
)
def test_the_number_of_parts_follows_the_likes(edges, parts):
    """At most 64, until one of them would have more than four million likes; then twice as many, and so on."""
    assert len(part_ranges(len(block_ends(edges)) + 1)) == parts


@residents
def test_parts_hold_every_edge_once(resident):
    graph = graph_of(resident)
    outline, parts = divide(graph, resident)
    edges = graph.by_user if resident == USERS else graph.by_item
    assert len(parts) > 10
    np.testing.assert_array_equal(np.concatenate([part.likes.indices for part in parts]), edges.indices)
    np.testing.assert_array_equal(np.concatenate([part.likes.degrees for part in parts]), edges.degrees)
    boundaries = np.concatenate([part.first + part.blocks[:-1] for part in parts])
    np.testing.assert_array_equal(boundaries, outline.blocks_of(resident)[:-1])
    assert sum(part.rows for part in parts) == edges.rows
    assert outline.edges == graph.edges


def test_some_users_draw_what_they_would_draw_among_all():
    graph = graph_of()
    whole = Sampled(graph.by_user, graph.user_blocks, pi(graph), NEGATIVES, 5).draw(4)
    for part in divide(graph)[1][::7]:
        mine = Sampled(part.likes, part.blocks, pi(graph), NEGATIVES, 5, first_user=part.first).draw(4)
        other = whole.between(part.first, part.first + part.rows)
        np.testing.assert_array_equal(mine.starts, other.starts)
        np.testing.assert_array_equal(mine.indices, other.indices)


def test_moments_of_rows_that_are_alike():
    settings = settings_of(8, True)
    for rows in (1, 700, CHUNK, 2 * CHUNK + 3):
        assert Moments.of_alike(rows, lambda n: initial_side(n, settings, USERS)) == Moments.of(
            initial_side(rows, settings, USERS)
        )


# --- Division by users: the bits of the fit in memory ---


def test_the_graph_has_all_kinds_of_items_and_parts():
    """Parts of several blocks, a heavy item, light ones and ones between, items and users without edges: where sums
    could go other ways."""
    graph = graph_of()
    blocks = len(graph.user_blocks) - 1
    assert part_ranges(blocks)[0][1] > 1
    assert 7 in heavy_rows(graph.by_item.degrees, graph.item_blocks)
    for edges_per_like in (1.0, 1.0 + NEGATIVES):
        classes = RowClasses.of_items(graph, edges_per_like)
        assert classes.heavy.tolist() == [7]
        assert len(classes.light) > 2
        assert len(classes.blocks) > 2
        assert classes.is_light[11]
    assert graph.by_item.degrees[11] == graph.by_user.degrees[5] == 0
    for factors in (8, 80):
        mean = in_memory("sampled", settings_of(factors))[0].posterior.items.mean
        assert np.abs(mean).max() > 0.05, "something was learned"


@kinds
@pytest.mark.parametrize("user_bias", [False, True])
@pytest.mark.parametrize("factors", [8, 20, 80])
def test_users_divided_have_the_bits_of_the_fit_in_memory(kind, user_bias, factors):
    settings = settings_of(factors, user_bias)
    with divided(kind, settings, partial(in_process, threads=2)) as (runner, pool):
        assert_same(swept(runner, pool), in_memory(kind, settings))


@kinds
@pytest.mark.parametrize(("factors", "shards", "threads"), [(8, 1, 1), (8, 3, 2), (80, 3, 2)])
def test_users_divided_on_disk_and_by_shards_of_items_have_the_bits_in_memory(kind, factors, shards, threads, tmp_path):
    settings = settings_of(factors)
    with divided(kind, settings, partial(on_disk, tmp_path, threads=threads), item_shards=shards) as (runner, pool):
        assert len(runner.shards) == shards
        assert_same(swept(runner, pool), in_memory(kind, settings))


def test_users_divided_in_more_parts_than_64_have_the_bits_in_memory(monkeypatch):
    """As graphs of several hundred million likes are divided."""
    monkeypatch.setattr("considerate.data.graph.LARGE_BLOCK", 1)
    graph, settings = Graph.from_adjacency(graph_of().by_user, graph_of().item_count, block_edges=9), settings_of()
    outline, parts = divide(graph)
    assert len(parts) > 100
    assert RowClasses.of_items(graph, settings.edges_per_like).is_light.sum() > 10
    setup = PartitionSetup.of(outline, settings)
    with LocalBackend(2) as backend, in_process(setup, parts, threads=2) as pool:
        estimator = Sampled(graph.by_user, graph.user_blocks, pi(graph), NEGATIVES, settings.seed)
        runner = make_runner(outline, setup, pi(graph), pool)
        assert_same(swept(runner, pool, 2), swept(InMemory(graph, estimator, settings, backend), sweeps=2))


@kinds
@residents
@pytest.mark.parametrize("factors", [8, 80])
def test_messages_may_come_from_elsewhere(kind, resident, factors):
    """Pickled, and read-only when they arrive: nothing is written into what was passed in."""
    settings = settings_of(factors)
    with divided(kind, settings, by_post, resident) as (runner, pool):
        there = swept(runner, pool, 4)
    with divided(kind, settings, in_process, resident) as (runner, pool):
        assert_same(swept(runner, pool, 4), there)


def first_answers(kind: str = "sampled") -> list[Reply]:
    """The answers of all parts of the first sweep."""
    with divided(kind, settings_of(), in_process) as (runner, pool):
        down = runner.broadcast(runner.begin(), 1.0)
        return pool.call("visit", runner.hidden, down, SumsRequest(0, runner.outline.item_count), changes=True)


def copied(up: Reply) -> Reply:
    return pickle.loads(pickle.dumps(up))


def same_sums(one: Reply, two: Reply) -> bool:
    pairs = zip(one.root().edges.arrays(), two.root().edges.arrays())
    users = zip(*(up.root().users.arrays() if up.root().users else () for up in (one, two)))
    return all(np.array_equal(a, b) for a, b in [*pairs, *users])


@kinds
def test_answers_merge_in_any_grouping_to_the_same_bits(kind):
    ups = first_answers(kind)
    in_order = reduce(merge_replies, map(copied, ups))
    random = np.random.default_rng(2)
    for _ in range(5):
        waiting = [copied(ups[i]) for i in random.permutation(len(ups))]
        while len(waiting) > 1:
            a, b = waiting.pop(random.integers(len(waiting))), waiting.pop(random.integers(len(waiting)))
            waiting.append(merge_replies(a, b))
        assert same_sums(waiting[0], in_order)
        np.testing.assert_array_equal(waiting[0].in_order(), in_order.in_order())


def test_nodes_put_elsewhere_in_the_tree_change_bits():
    """The control: parts that are added in another order, or one after the other, give other sums."""
    ups = first_answers()
    in_order = reduce(merge_replies, map(copied, ups))
    order = np.random.default_rng(3).permutation(len(ups))
    moved = [Reply.of(i, len(ups), ups[j].in_order(), copied(ups[j]).nodes.popitem()[1]) for i, j in enumerate(order)]
    assert not same_sums(reduce(merge_replies, moved), in_order)
    sums = [copied(up).nodes.popitem()[1] for up in ups]
    one_by_one = reduce(lambda a, b: a.take_in(b), sums)
    assert not np.array_equal(one_by_one.edges.second, in_order.root().edges.second)
    np.testing.assert_allclose(one_by_one.edges.second, in_order.root().edges.second, rtol=1e-4, atol=1e-5)


def test_few_nodes_wait_while_parts_are_merged_in_order():
    """A worker never holds all parts' sums: as many nodes as a binary counter has digits."""
    merged, most = None, 0
    for up in first_answers():
        merged = up if merged is None else merge_replies(merged, up)
        most = max(most, len(merged.nodes))
    assert len(merged.nodes) == 1
    assert most <= 6


def test_pi_is_corrected_at_the_head_over_parts(tmp_path):
    graph = graph_of()
    here = correct_head(pi(graph), graph.by_user, graph.user_blocks, NEGATIVES)
    assert not np.allclose(here, pi(graph), rtol=0.01)
    for pool_of in (partial(in_process, threads=2), partial(on_disk, tmp_path)):
        with divided("sampled", settings_of(), pool_of) as (runner, pool):
            np.testing.assert_array_equal(correct_head_over(pool, runner.outline, pi(graph), NEGATIVES), here)


# --- Division by items ---


@kinds
@pytest.mark.parametrize(("factors", "user_bias"), [(8, True), (80, False)])
def test_items_divided_have_the_same_bits_wherever_they_are(kind, factors, user_bias, tmp_path):
    """And the bounds of the fit in memory, in another order of adding."""
    settings = settings_of(factors, user_bias)
    with divided(kind, settings, in_process, ITEMS) as (runner, pool):
        one = swept(runner, pool)
    pools = [
        (partial(in_process, threads=2), False),
        (partial(on_disk, tmp_path, threads=2), False),
        (partial(on_disk, tmp_path), True),
    ]
    for pool_of, out_of_core in pools:
        with divided(kind, settings, pool_of, ITEMS, out_of_core=out_of_core) as (runner, pool):
            assert_same(swept(runner, pool), one)
    other = in_memory(kind, settings, ITEMS)
    for mine, theirs in zip(one[1], other[1], strict=True):
        assert math.fsum(mine.values()) == pytest.approx(math.fsum(theirs.values()), rel=1e-5)
    np.testing.assert_allclose(one[0].posterior.users.rows, other[0].posterior.users.rows, atol=5e-3)
    assert not np.array_equal(one[0].posterior.users.rows, other[0].posterior.users.rows)


def test_pi_is_corrected_at_the_head_over_parts_of_items():
    graph = graph_of(ITEMS)
    here = correct_head(pi(graph), graph.by_user, graph.user_blocks, NEGATIVES)
    with divided("sampled", settings_of(), in_process, ITEMS) as (runner, pool):
        np.testing.assert_allclose(correct_head_over(pool, runner.outline, pi(graph), NEGATIVES), here, rtol=1e-9)


# --- The walk ---


def table_of(graph: Graph, plan: FitPlan, threads: int = 1) -> Consideration:
    with LocalBackend(threads) as backend:
        return Consideration.of_graph(
            graph.by_user, graph.by_item, pi(graph), plan.neighbours, plan.mixing, backend.map
        )


@residents
def test_the_table_of_the_walk_has_the_same_bits_wherever_it_is_made(resident, monkeypatch, tmp_path):
    """With windows of very active users, which are drawn by their number and the item's; in blocks of a few rows."""
    graph, plan = graph_of(resident), replace(settings_of(), neighbours=20, mixing=0.2)
    without_windows = table_of(graph, plan)
    monkeypatch.setattr(walk_part, "MOST_LIKES", 6)
    monkeypatch.setattr(walk_part, "BLOCK_STEPS", 500)
    wanted = table_of(graph, plan)
    assert not np.array_equal(wanted.shares, without_windows.shares)
    assert wanted.rest[graph.by_item.degrees == 0].tolist() == [1.0] * int((graph.by_item.degrees == 0).sum())
    for threads in (2, 3):
        same_table(table_of(graph, plan, threads), wanted)
    pools = [partial(in_process, threads=threads) for threads in (1, 2, 3)]
    for pool_of in [*pools, by_post, partial(on_disk, tmp_path, threads=2)]:
        for block_bytes in (5_000, 1e9):
            with divided("sampled", plan, pool_of, resident) as (runner, pool):
                same_table(consideration_over(pool, runner.outline, plan, pi(graph), block_bytes), wanted)


@pytest.mark.parametrize(("room", "passes"), [(5_000, (10, 80)), (50_000, (2, 30)), (1e9, (1, 1))])
def test_out_of_core_the_table_is_made_of_the_users_of_some_items_at_a_time(room, passes, monkeypatch, tmp_path):
    """The same bits; what is gathered is within its room, and an item that has too many users is summed by parts."""
    graph, plan, sizes, calls = graph_of(), replace(settings_of(), neighbours=20, mixing=0.2), [], []
    real = Fans.steps

    def steps(pieces: list[Fans], *rest: Any) -> WalkSteps:
        sizes.append(sum(LIKE_BYTES * piece.likes.edges + LISTED_BYTES * len(piece.listed.items) for piece in pieces))
        return real(pieces, *rest)

    monkeypatch.setattr(Fans, "steps", steps)
    with divided("sampled", plan, partial(on_disk, tmp_path, threads=2)) as (runner, pool), LocalBackend(2) as threads:
        call = pool.call
        monkeypatch.setattr(
            pool, "call", lambda method, *given, **more: calls.append(method) or call(method, *given, **more)
        )
        for most in (walk_part.MOST_LIKES, 6):
            monkeypatch.setattr(walk_part, "MOST_LIKES", most)
            made = consideration_over(pool, runner.outline, plan, pi(graph), room, threads.map)
            same_table(made, table_of(graph, plan))
            if most > 6:  # the room is for users of no more likes than that
                assert max(sizes) <= room
                assert passes[0] <= len(sizes) + calls.count("walk_sums") <= passes[1]
    print(room, len(sizes), {name: calls.count(name) for name in set(calls)})
    assert ("walk_sums" in calls) == (room < 1e9)


def test_sums_of_the_walk_come_in_blocks_of_so_many_bytes(monkeypatch):
    """No node of sums is larger; and a row that is larger than that comes alone."""
    plan, sizes = settings_of(), []

    def seen(a: Reply, b: Reply) -> Reply:
        merged = merge_replies(a, b)
        sizes.append(max(sum(one.nbytes for one in node.walk[1:]) for node in merged.nodes.values()))
        return merged

    monkeypatch.setattr("considerate.distributed.runners.preparation.merge_replies", seen)
    with divided("sampled", plan, in_process) as (runner, pool):
        row = 12 * runner.outline.item_count
        for block_bytes in (1, 3 * row, 1e9):
            sizes.clear()
            consideration_over(pool, runner.outline, plan, pi(graph_of()), block_bytes)
            assert max(sizes) <= block_bytes + row
            assert max(sizes) > min(block_bytes, 40 * row) / 2


@residents
def test_draws_by_the_walk_over_parts(resident, monkeypatch, tmp_path):
    """The bits of the fit in memory, or by items of one process; the alias tables are made once for all parts."""
    graph, plan = graph_of(resident), replace(settings_of(), consideration="walk", neighbours=20)
    table, made = table_of(graph, plan), []
    real = compiled.walk_slots
    monkeypatch.setattr(compiled, "walk_slots", lambda *rows: made.append(rows) or real(*rows))
    found = []
    pools = [(partial(in_process, threads=3), False), (partial(on_disk, tmp_path, threads=2), True)]
    for pool_of, out_of_core in pools:
        with divided("sampled", plan, pool_of, resident, out_of_core=out_of_core, consideration=posted(table)) as (
            runner,
            pool,
        ):
            found.append(swept(runner, pool))
        assert len(made) == len(found)
    assert_same(*found)
    assert not np.array_equal(
        found[0][0].posterior.users.rows, in_memory("sampled", plan, resident)[0].posterior.users.rows
    )
    if resident == USERS:
        estimator = Sampled(graph.by_user, graph.user_blocks, Draws.of(pi(graph), table), NEGATIVES, plan.seed)
        with LocalBackend(2) as backend:
            assert_same(found[0], swept(InMemory(graph, estimator, plan, backend)))


def test_parts_count_the_draws_that_the_walk_had_no_item_left_for():
    """Rows of three entries and nothing cut: a user of few likes has soon drawn all that the walk leads to."""
    graph, plan = graph_of(), replace(settings_of(), consideration="walk", neighbours=3, mixing=0.0)
    table = replace(table_of(graph, plan), rest=np.zeros(graph.item_count, np.float32))
    estimator = Sampled(graph.by_user, graph.user_blocks, Draws.of(pi(graph), table), NEGATIVES, plan.seed)
    estimator.draw(1)
    assert 0 < estimator.fallbacks < estimator.drawn
    with divided("sampled", plan, in_process, consideration=table) as (runner, pool):
        assert pool.parts > 3
        next(runner.sweeps())
        assert runner.fallen_back == estimator.fallbacks / estimator.drawn


# --- States ---


@kinds
@residents
def test_a_state_that_is_put_back_goes_on_to_the_same_bits(kind, resident):
    settings = settings_of(8, True)
    with divided(kind, settings, in_process, resident) as (runner, pool):
        whole = swept(runner, pool)
    with divided(kind, settings, in_process, resident) as (runner, pool):
        head = next(done.state for done in runner.sweeps() if done.state.sweep == 3)
        states = [{name: one.copy() for name, one in state.items()} for state in pool.call("state")]
        group_of_item = None if runner.grouping is None else runner.grouping.group_of_item.copy()
    for kept in (states, [{k: v for k, v in one.items() if k not in ("temperature", "sweep")} for one in states]):
        with divided(kind, settings, partial(in_process, threads=2), resident) as (runner, pool):
            pool.call("take", kept.__getitem__, changes=True)
            if group_of_item is not None:
                runner.grouping.use(group_of_item)
            on = swept(runner, pool, state=head)
            assert_same(on, (whole[0], whole[1][3:]))


@residents
@pytest.mark.parametrize("error", [KeyboardInterrupt, DivergedError])
def test_a_sweep_that_ends_badly_is_undone(resident, error, monkeypatch, tmp_path):
    """The parts are stepped by then: they go back, and the bound and the next sweeps are those of before."""
    settings = settings_of(8, True)
    with divided("sampled", settings, in_process, resident) as (runner, pool):
        whole = swept(runner, pool, 4)
    check = runner_module.check_bound

    def fail(bound, number, state):
        if number == 3:
            raise error("enough", state)
        return check(bound, number, state)

    for pool_of in (in_process, partial(on_disk, tmp_path)):
        with divided("sampled", settings, pool_of, resident) as (runner, pool):
            monkeypatch.setattr(runner_module, "check_bound", fail)
            steps = runner.sweeps()
            done = [next(steps) for _ in range(2)][-1]
            before = gather(pool, settings.factors).rows.copy()
            with pytest.raises(error):
                next(steps)
            np.testing.assert_array_equal(gather(pool, settings.factors).rows, before)
            assert runner.evaluate_bound(done.state).total == pytest.approx(math.fsum(whole[1][2].values()), rel=1e-8)
            monkeypatch.setattr(runner_module, "check_bound", check)
            assert_same(swept(runner, pool, 4, done.state), (whole[0], whole[1][2:]))


def test_the_bound_of_an_earlier_state_is_evaluated_where_it_was(tmp_path):
    """Whoever asks for one sweep more than is kept finds the parts where the kept state is."""
    for pool_of in (in_process, partial(on_disk, tmp_path)):
        with divided("expected", settings_of(), pool_of) as (runner, pool):
            steps = runner.sweeps()
            kept = [next(steps) for _ in range(4)][2]
            rows = gather(pool, 8).rows.copy()
            whole = in_memory("expected", settings_of())
            assert runner.evaluate_bound(kept.state).terms() == whole[1][3]
            assert not np.array_equal(gather(pool, 8).rows, rows)


def test_a_diverging_fit_names_the_row_among_all():
    settings = settings_of()
    with divided("sampled", settings, in_process) as (runner, _):
        state = runner.begin()
        state.posterior.items.rows[3, 0] = np.nan
        with pytest.raises(DivergedError, match="gave user row") as raised:
            next(runner.sweeps(state))
    graph = graph_of()
    whole = initial_state(graph, settings)
    whole.posterior.items.rows[3, 0] = np.nan
    with LocalBackend(1) as backend:
        estimator = Sampled(graph.by_user, graph.user_blocks, pi(graph), NEGATIVES, settings.seed)
        with pytest.raises(DivergedError) as expected:
            next(InMemory(graph, estimator, settings, backend).sweeps(whole))
    assert str(raised.value) == str(expected.value)


def test_on_disk_few_parts_are_in_memory_at_a_time(tmp_path):
    alive: weakref.WeakSet[Any] = weakref.WeakSet()
    most = 0

    def build(*arguments: Any) -> Any:
        nonlocal most
        part = make_partition(*arguments)
        alive.add(part)
        most = max(most, len(alive))
        return part

    outline, parts = divide(graph_of())
    setup = PartitionSetup.of(outline, settings_of())
    with DiskPool(tmp_path, build, setup, iter(parts), 2) as pool:
        swept(make_runner(outline, setup, pi(graph_of()), pool), pool, 2)
        files = [path.name for path in pool.folder.iterdir()]
        assert len([name for name in files if name.startswith("state")]) == 2 * len(parts), (
            "the state and the one before"
        )
    assert 1 <= most <= 4 < len(parts)


# --- Kernels ---


def test_sums_of_users_come_with_the_bound_of_their_edges():
    graph = graph_of(ITEMS)
    _, parts = divide(graph, ITEMS)
    settings = replace(settings_of(), user_bias=True)
    state = initial_state(graph, settings)
    setup = PartitionSetup.of(divide(graph, ITEMS)[0], settings, ITEMS)
    draws = Sampled(graph.by_user, graph.user_blocks, pi(graph), NEGATIVES, settings.seed).draws
    bound = 0.0
    for part in parts:
        made = make_partition(part, setup)
        made.begin(state.posterior.items)
        bound += made.sums(draws, Broadcast(1, state.posterior.users), SumsRequest(0, graph.user_count)).in_order()[
            0, 0
        ]
    assert bound == pytest.approx(in_memory("sampled", settings_of(8, True), ITEMS)[1][0]["edges"], rel=1e-6)


def test_alpha_that_is_given_is_not_written_to():
    """A pass over users that would write to it is refused."""
    graph = graph_of()
    args = (graph.by_user, graph.user_blocks, pi(graph), NEGATIVES)
    estimator = Expected(*args, 0.0, GROUPS, run_serially)
    q = initial_state(graph, settings_of()).posterior
    given = estimator.shares.given(estimator.grouping.group_of_item, pi(graph))
    kernel_pass = compiled.Pass(
        q.users.for_kernels(),
        q.items.for_kernels(),
        graph.by_user.for_kernels(),
        None,
        compiled.Constants(),
        expected=given,
        own_is_user=True,
    )
    new = q.users.empty_like()
    with pytest.raises(ValueError, match="sums alone"):
        compiled.update_rows(kernel_pass, 0, 10, new.rows)
    with pytest.raises(ValueError, match="bound"):
        compiled.edge_bound(kernel_pass, *ranges(graph.user_blocks)[0])
