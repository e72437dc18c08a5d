"""What a division costs: formulas against tables worked by hand and against the messages themselves; the choice."""

from __future__ import annotations

import itertools
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from considerate.data.graph import ITEMS, USERS, Graph, divide
from considerate.distributed.division import Cluster, Sizes, choose_division, division_costs
from considerate.distributed.division.choose import SUMS_MOST, SUMS_SHARE, WORTH, shards_needed, size_words
from considerate.distributed.division.costs import KEPT, LATENCY, PROCESS, tree_moves, tree_nodes
from considerate.distributed.division.inner import inner_costs
from considerate.distributed.messages import PartitionSetup, Reply, Sums, merge_replies
from considerate.distributed.partitions import make_partition
from considerate.distributed.pools.host import size_of
from considerate.distributed.pools.local import LocalPool
from considerate.distributed.runners import make_runner
from considerate.errors import MemoryLimitError, UsageError
from considerate.inference.hidden import popularity_weights
from considerate.inference.hidden.groups import FREEZE_AFTER
from considerate.kernels import compiled
from considerate.parameters import FitPlan
from likes import skewed
from studies import scaling

XBOX = Sizes(6_200_000, 12_000, 45_488_997, 20, 1.0)
LARGE = Sizes(50_000_000, 100_000, 10**10, 64, 1.0)
FEW_USERS = Sizes(5_000, 1_000_000, 10**8, 20, 3.0)


def chosen(sizes: Sizes, workers: int = 4, threads: int = 1, **options: Any) -> Any:
    given = (sizes.users, sizes.items, sizes.edges, sizes.factors, sizes.negatives, sizes.hidden)
    return choose_division(*given, workers, threads, **options)


# --- Bytes, worked by hand ---


def test_a_row_is_two_padded_vectors_and_its_biases() -> None:
    assert XBOX.side_bytes(ITEMS, 12_000) == 12_000 * (2 * 24 * 4 + 2 * 4) == 2_400_000
    assert XBOX.side_bytes(USERS, 10) == 10 * 2 * 24 * 4
    assert replace(XBOX, user_bias=True).side_bytes(USERS, 10) == 10 * (2 * 24 * 4 + 2 * 4)


def test_sums_are_a_triangle_a_vector_and_two_numbers() -> None:
    assert XBOX.sums_bytes(12_000) == 12_000 * (210 + 20 + 2) * 4 == 11_136_000
    assert LARGE.sums_bytes(1) == (2080 + 64 + 2) * 4


def test_many_factors_are_summed_in_blocks_of_coordinates() -> None:
    sizes = replace(XBOX, factors=128)
    assert compiled.coordinate_blocks(128) == [64, 64]
    assert sizes.sums_bytes(1) == 2 * (2080 + 64 + 2) * 4
    costs = division_costs(sizes, Cluster(2), USERS)
    assert costs.down == 2 * 12_000 * (2 * 128 * 4 + 8)  # the items, and once more as the first block left them


def test_the_xbox_sample_on_two_workers_by_hand() -> None:
    costs = division_costs(XBOX, Cluster(workers=2, nodes=2), USERS)
    assert (costs.parts, costs.workers) == (64, 2)  # 256 blocks, four a part
    assert costs.down == 2_400_000
    assert costs.up == 11_136_000
    assert costs.moved_down == 2 * 2_400_000
    assert costs.moved_up == 2 * 11_136_000  # from one worker to the other, and to the head
    assert costs.network == pytest.approx((2 * 2_400_000 + 2 * 11_136_000) / 1.25e9 + 3 * LATENCY)
    assert costs.edge_sums == 4 * XBOX.edges
    assert costs.draws == XBOX.edges
    assert costs.solves == 6_212_000
    assert costs.head == pytest.approx(12_000 * XBOX.solve_ns() * 1e-9)
    half = XBOX.edges / 2
    graph = 8 * half + 8 * 3_100_000 + 32 * 8 * 12_000  # both ways
    drawn = 2 * 4 * XBOX.edges / 64 + 8 * 12_000  # of one part at a time, both ways
    rows = 2 * 3_100_000 * 192
    sums = (1 + 6 + 2) * 11_136_000
    assert costs.worker_memory == pytest.approx(PROCESS + 2_400_000 + graph + drawn + rows + sums)
    assert costs.head_memory == PROCESS + (KEPT + 2) * 2_400_000 + 2 * 11_136_000 + 48 * 12_000


def test_by_items_the_users_travel() -> None:
    costs = division_costs(FEW_USERS, Cluster(4, nodes=4), ITEMS)
    assert costs.down == 5_000 * 2 * 24 * 4
    assert costs.up == 5_000 * 232 * 4
    assert costs.draws == 4 * 3 * 10**8  # each worker draws for everyone


def test_expected_mode_sends_groups_and_draws_nothing() -> None:
    sampled, expected = XBOX, replace(XBOX, hidden="expected")
    with_groups = division_costs(expected, Cluster(2), USERS)
    without = division_costs(sampled, Cluster(2), USERS)
    assert with_groups.draws == 0
    assert with_groups.up - without.up == 8 * 32 * (210 + 60 + 3)
    more = with_groups.down - without.down - 12 * 12_000 - 32 * 16 * expected.grid
    assert more == 8 * 32 * (210 + 40 + 5)
    assert with_groups.edge_sums == 2 * XBOX.edges


def test_expected_by_items_sends_what_users_weigh_the_groups_by() -> None:
    sampled = division_costs(FEW_USERS, Cluster(4, nodes=4), ITEMS)
    expected = division_costs(replace(FEW_USERS, hidden="expected"), Cluster(4, nodes=4), ITEMS)
    users, items, groups = 5_000, 1_000_000, 32
    once = users * 192 + 4 * items + 8 * users + 8 * groups * users
    assert expected.down == 2 * once + 8 * groups * (210 + 60 + 3)
    assert expected.up - sampled.up == 8 * groups * (210 + 40 + 5) + 40 * groups * users
    assert expected.draws == 0


class Recorder:
    """A crew in this process that knows the sizes of what would be sent."""

    def __init__(self, parts: Any) -> None:
        self.pool, self.parts = LocalPool(parts), len(parts)
        self.down, self.up = 0, 0

    def share(self, value: Any) -> Any:
        self.down += size_of(value)
        return self.pool.share(value)

    def call(self, method: Any, *arguments: Any, merge: Any = None, changes: bool = False) -> Any:
        answer = self.pool.call(method, *arguments, merge=merge, changes=changes)
        self.up += size_of(answer) if merge is not None else 0
        return answer


@pytest.mark.parametrize("resident", [USERS, ITEMS])
@pytest.mark.parametrize("hidden", ["sampled", "expected"])
@pytest.mark.parametrize(("factors", "shards"), [(8, 1), (8, 3), (72, 1)])
def test_the_formulas_are_those_of_the_messages(resident: str, hidden: str, factors: int, shards: int) -> None:
    """A sweep of a divided fit, its messages measured as Ray's crew measures them."""
    users, items = 600, 120
    likes = skewed(users, items).nonzero()
    graph = Graph.from_pairs(*(one.astype(np.int32) for one in likes), users, items, block_edges=512)
    outline, parts = divide(graph, resident)
    settings = FitPlan(factors=factors, user_bias=True)
    setup = PartitionSetup(settings, hidden, 2.0, len(parts), users, items, resident)
    pool = Recorder([make_partition(part, setup) for part in parts])
    runner = make_runner(outline, setup, popularity_weights(outline.item_degree, 1.0), pool, item_shards=shards)
    sweeps = runner.sweeps()
    for _ in range(FREEZE_AFTER + 1):  # in the first ones groups move
        next(sweeps)
    pool.down = pool.up = 0
    next(sweeps)
    sizes = Sizes(users, items, graph.edges, factors, 2.0, hidden, user_bias=True)
    costs = division_costs(sizes, Cluster(2), resident, shards if resident == USERS else 1)
    table = 16 * 32 * (sizes.grid - _grid_of(runner)) if hidden == "expected" and resident == USERS else 0
    about = 1_500 * (shards + 4)  # what pickles have beside their arrays
    assert costs.down - table <= pool.down <= costs.down - table + about
    assert costs.up <= pool.up <= costs.up + about


@pytest.mark.parametrize("hidden", ["sampled", "expected"])
def test_the_formulas_of_inner_sweeps_are_those_of_their_messages(hidden: str) -> None:
    users, items = 600, 120
    likes = skewed(users, items).nonzero()
    graph = Graph.from_pairs(*(one.astype(np.int32) for one in likes), users, items, block_edges=512)
    outline, parts = divide(graph, USERS)
    setup = PartitionSetup(FitPlan(factors=8), hidden, 2.0, len(parts), users, items)
    pool = Recorder([make_partition(part, setup) for part in parts])
    weights = popularity_weights(outline.item_degree, 1.0)
    runner = make_runner(outline, setup, weights, pool, inner_sweeps=2, inner="all")
    sweeps = runner.sweeps()
    next(sweeps)
    pool.down = pool.up = 0
    next(sweeps)
    sizes = Sizes(users, items, graph.edges, 8, 2.0, hidden)
    costs = inner_costs(sizes, Cluster(2), 2)
    table = 2 * 16 * 32 * (sizes.grid - _grid_of(runner)) if hidden == "expected" else 0
    assert costs.down - table <= pool.down <= costs.down - table + 8_000
    assert costs.up <= pool.up <= costs.up + 8_000


def test_inner_sweeps_save_messages_and_cost_passes() -> None:
    """Per plain sweep: with more of them less is sent; a slow network and many of them are needed to win."""
    few, many = (inner_costs(LARGE, Cluster(16, 4, 16), rounds) for rounds in (4, 16))
    assert (few.network, few.down, few.up) == (many.network, many.down, many.up)
    plain = division_costs(LARGE, Cluster(16, 4, 16), USERS)
    assert many.compute > 16 * plain.compute
    assert few.network > plain.network
    slow = Cluster(16, 4, 16, 1.25e7)
    assert inner_costs(LARGE, slow, 16).seconds < 16 * division_costs(LARGE, slow, USERS).seconds
    assert inner_costs(LARGE, slow, 2).seconds > 2 * division_costs(LARGE, slow, USERS).seconds


def _grid_of(runner: Any) -> int:
    return len(runner.grouping.saturation.grid)


@pytest.mark.parametrize(("edges", "parts"), [(1, 1), (32_768, 1), (32_769, 2), (65 * 32_768, 33), (10**10, 64)])
def test_parts_are_those_of_the_graph(edges: int, parts: int) -> None:
    assert Sizes(10**8, 10**6, edges, 20, 1.0).parts(USERS) == parts


def test_parts_of_a_real_graph() -> None:
    likes = skewed(users=400, items=50).nonzero()
    graph = Graph.from_pairs(likes[0].astype(np.int32), likes[1].astype(np.int32), 400, 50)
    sizes = Sizes(400, 50, graph.edges, 4, 1.0)
    assert sizes.parts(USERS) == len(divide(graph, USERS)[1])
    assert sizes.parts(ITEMS) == len(divide(graph, ITEMS)[1])


# --- The tree ---


def answers(first: int, last: int, parts: int) -> Reply:
    """The merged answer of some parts."""
    ups = [Reply.of(number, parts, np.zeros((1, 6)), Sums()) for number in range(first, last)]
    merged = ups[0]
    for one in ups[1:]:
        merged = merge_replies(merged, one)
    return merged


@pytest.mark.parametrize("parts", [1, 2, 3, 5, 8, 13, 21, 64])
def test_nodes_that_remain_are_those_of_the_messages(parts: int) -> None:
    for first in range(parts):
        for last in range(first + 1, parts + 1, 1 if parts < 64 else 7):
            assert tree_nodes(first, last, parts) == len(answers(first, last, parts).nodes), (first, last)


@pytest.mark.parametrize(("workers", "parts"), [(1, 1), (1, 64), (2, 64), (3, 64), (5, 13), (64, 64), (7, 5)])
def test_what_moves_is_what_workers_would_send(workers: int, parts: int) -> None:
    """As backends.ray_crew does it: the right one of a pair sends its answer to the left one, the last to the head."""
    shares = Cluster(workers).shares(parts)
    assert [one for share in shares for one in range(*share)] == list(range(parts))
    level, moved, path = [answers(*share, parts) for share in shares], 0, 0
    while len(level) > 1:
        sent = [len(right.nodes) for right in level[1::2]]
        moved, path = moved + sum(sent), path + max(sent)
        merged = [merge_replies(left, right) for left, right in zip(level[::2], level[1::2])]
        level = merged + level[2 * len(merged) :]
    assert len(level[0].nodes) == 1
    assert tree_moves(shares, parts)[:2] == (moved + 1, path + 1)


# --- Monotonicity ---


@pytest.mark.parametrize("hidden", ["sampled", "expected"])
@pytest.mark.parametrize("resident", [USERS, ITEMS])
def test_more_work_costs_more(hidden: str, resident: str) -> None:
    cluster = Cluster(4, 2, 4)
    base = replace(LARGE, hidden=hidden)
    costs = division_costs(base, cluster, resident)
    for larger in (
        replace(base, users=2 * base.users),
        replace(base, items=2 * base.items),
        replace(base, edges=2 * base.edges),
        replace(base, factors=2 * base.factors),
    ):
        other = division_costs(larger, cluster, resident)
        assert other.seconds > costs.seconds, larger
        assert other.worker_memory > costs.worker_memory, larger
        assert other.down >= costs.down
        assert other.up >= costs.up


def test_more_workers_have_less_each_and_send_more() -> None:
    found = [division_costs(LARGE, Cluster(n, 1, n), USERS, 4) for n in (1, 2, 4, 8, 16, 32, 64)]
    for one, more in itertools.pairwise(found):
        assert more.compute < one.compute
        assert more.worker_memory < one.worker_memory
        assert more.network > one.network
        assert more.moved_up + more.moved_down > one.moved_up + one.moved_down
        assert (more.down, more.up) == (one.down, one.up)


def test_a_part_is_the_least_that_a_thread_can_have() -> None:
    enough = division_costs(LARGE, Cluster(64, 1, 64), USERS)
    assert division_costs(LARGE, Cluster(128, 1, 128), USERS).compute == enough.compute
    assert division_costs(LARGE, Cluster(64, 4, 64), USERS).compute == enough.compute
    assert division_costs(LARGE, Cluster(16, 4, 16), USERS).compute == pytest.approx(enough.compute)


def test_a_slower_network_costs_seconds_alone() -> None:
    fast, slow = (division_costs(LARGE, Cluster(8, 4, 8, bandwidth), USERS) for bandwidth in (1.25e9, 1.25e8))
    assert slow.network - 4 * LATENCY - LATENCY > 9 * (fast.network - 5 * LATENCY)
    assert (slow.compute, slow.worker_memory, slow.moved_up) == (fast.compute, fast.worker_memory, fast.moved_up)


# --- The choice ---


def test_the_smaller_side_travels() -> None:
    assert chosen(XBOX).resident == USERS
    few_users = replace(FEW_USERS, hidden="expected")
    assert chosen(few_users).resident == ITEMS
    assert chosen(replace(few_users, users=few_users.items, items=few_users.users)).resident == USERS


@pytest.mark.parametrize("hidden", ["sampled", "expected"])
def test_the_choice_flips_where_the_formulas_say(hidden: str) -> None:
    cluster = Cluster(4, 1, 4)
    residents = []
    for users in (1_000, 10_000, 100_000, 1_000_000, 10_000_000):
        sizes = Sizes(users, 10_000_000_000 // users, 3 * 10**7, 20, 1.0, hidden)
        by_users = division_costs(sizes, cluster, USERS, shards_needed(sizes, cluster, None))
        by_items = division_costs(sizes, cluster, ITEMS)
        expected = ITEMS if by_items.seconds < WORTH * by_users.seconds else USERS
        choice = chosen(sizes)
        assert choice.resident == expected
        assert choice.costs[0] == (by_items if expected == ITEMS else by_users)
        assert set(choice.costs) == {by_users, by_items}
        residents.append(choice.resident)
    assert residents == sorted(residents)  # items first, then users: it flips once
    assert len(set(residents)) == 2


def test_users_stay_where_items_would_gain_little() -> None:
    """By users the bits are those of one machine, which a tenth of the time is not worth giving up."""
    found = 0
    for users in range(200_000, 400_000, 10_000):
        sizes = Sizes(users, 1_000_000, 10**8, 20, 1.0, "expected")
        choice = chosen(sizes)
        by_users, by_items = sorted(choice.costs, key=lambda one: one.resident, reverse=True)
        if WORTH * by_users.seconds <= by_items.seconds < by_users.seconds:
            found += 1
            assert (choice.resident, choice.reason) == (USERS, "about as fast, with the bits of one machine")
    assert found


def test_a_choice_may_be_forced() -> None:
    for resident in (USERS, ITEMS):
        choice = chosen(XBOX, resident=resident)
        assert (choice.resident, choice.costs[0].resident, choice.costs[1].resident) == (
            resident,
            resident,
            ITEMS if resident == USERS else USERS,
        )
        assert choice.reason == "as was asked"
    choice = chosen(replace(FEW_USERS, hidden="expected"), item_shards=7)
    assert (choice.resident, choice.item_shards) == (USERS, 7)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"resident": "both"}, "'auto', 'users' or 'items'"),
        ({"item_shards": 0}, "at least 1"),
        ({"resident": ITEMS, "item_shards": 2}, "shards need a division by users"),
    ],
)
def test_what_cannot_be_asked_for(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        chosen(XBOX, **options)


# --- Item shards ---


def test_shards_keep_the_sums_of_a_worker_within_bounds() -> None:
    for sizes in (XBOX, LARGE, replace(LARGE, items=1_000_000)):
        for workers, threads in ((2, 8), (16, 4), (64, 1)):
            cluster = Cluster(workers, threads, workers)
            shards = shards_needed(sizes, cluster, None)
            costs = division_costs(sizes, cluster, USERS, shards)
            assert costs.worker_sums <= SUMS_MOST or shards == sizes.blocks(ITEMS)
            if shards > 1:
                assert division_costs(sizes, cluster, USERS, shards - 1).worker_sums > SUMS_MOST
    assert shards_needed(XBOX, Cluster(2), None) == 1
    cluster = Cluster(16, 4, 16)
    assert division_costs(LARGE, cluster, USERS, shards_needed(LARGE, cluster, 4e9)).worker_sums <= SUMS_SHARE * 4e9


def test_shards_cost_calls_and_save_memory() -> None:
    one, eight = (division_costs(LARGE, Cluster(16, 4, 16), USERS, shards) for shards in (1, 8))
    assert eight.worker_sums == pytest.approx(one.worker_sums / 8)
    assert eight.network - one.network == pytest.approx(7 * 6 * LATENCY)
    assert (eight.up, eight.moved_up) == (one.up, one.moved_up)


# --- Memory ---


def test_only_what_fits_is_chosen() -> None:
    by_items, by_users = chosen(replace(FEW_USERS, hidden="expected")).costs
    assert by_items.worker_memory < by_users.worker_memory
    between = (by_items.worker_memory + by_users.worker_memory) / 2
    fits = chosen(replace(FEW_USERS, hidden="expected", items=1_000_000), memory=between)
    assert fits.resident == ITEMS
    assert chosen(XBOX, memory=8e9).reason == "the one that fits in memory"


def test_too_little_memory_is_one_sentence_with_what_would_fit() -> None:
    with pytest.raises(MemoryLimitError) as caught:
        chosen(LARGE, workers=16, threads=8, memory=8e9)
    found = re.fullmatch(
        r"Divided by users over 16 workers this fit needs about 1\d GB per worker and 8 GB are free; "
        r"(\d+) workers would fit\.",
        str(caught.value),
    )
    assert found is not None, str(caught.value)
    enough = int(found[1])
    assert chosen(LARGE, workers=enough, threads=8, memory=8e9).costs[0].worker_memory <= 8e9
    with pytest.raises(MemoryLimitError):
        chosen(LARGE, workers=enough - 1, threads=8, memory=8e9)


def test_too_little_memory_names_factors_or_the_other_division() -> None:
    with pytest.raises(MemoryLimitError, match=r"; factors=\d+ would fit\.$") as caught:
        chosen(LARGE, workers=64, memory=3.6e9, head_memory=1e12)
    factors = int(re.findall(r"factors=(\d+)", str(caught.value))[0])
    chosen(replace(LARGE, factors=factors), workers=64, memory=3.6e9, head_memory=1e12)
    with pytest.raises(MemoryLimitError):
        chosen(replace(LARGE, factors=factors + 8), workers=64, memory=3.6e9, head_memory=1e12)
    with pytest.raises(MemoryLimitError, match="a division by users would fit"):
        chosen(XBOX, memory=8e9, resident=ITEMS)
    with pytest.raises(MemoryLimitError, match="machines with more memory are needed"):
        chosen(LARGE, workers=64, memory=1e8)
    with pytest.raises(MemoryLimitError, match=r"at the head and 0\.1 GB are free"):
        chosen(LARGE, workers=64, memory=1e12, head_memory=1e8)


# --- Out of core ---


def test_out_of_core_holds_a_part_a_thread_and_sends_nothing() -> None:
    one, two = (division_costs(XBOX, Cluster(1, threads, alone=True), USERS) for threads in (1, 2))
    whole = division_costs(XBOX, Cluster(1, 1), USERS)
    assert one.worker_memory < two.worker_memory < whole.worker_memory / 4
    assert (one.network, one.moved_down, one.moved_up) == (0.0, 0.0, 0.0)
    likes, rows = 4 * XBOX.edges + 8 * XBOX.users, 192 * XBOX.users
    assert one.disk == likes + 2 * rows  # the vectors are read and written
    assert division_costs(XBOX, Cluster(1, 1, alone=True), USERS, 3).disk == 3 * (likes + rows) + rows
    assert whole.disk == 0


def test_out_of_core_has_words_of_its_own() -> None:
    choice = chosen(XBOX, workers=1, threads=2, alone=True)
    said = choice.text()
    assert said.startswith("Divided by users into 64 parts on disk, the faster way: each sweep takes about ")
    assert f"reads and writes {size_words(choice.costs[0].disk)}, in " in said
    assert "worker" not in said


# --- Words ---


def test_the_paragraph_before_the_fit() -> None:
    choice = chosen(XBOX, workers=2, nodes=1)
    one, other = choice.costs
    assert choice.text() == (
        "Divided by users over 2 workers (64 parts), the faster way: each sweep sends 2.4 MB down to each node and "
        f"11 MB up a tree of workers, and takes about {one.seconds:.2g} s, {one.network:.2g} s of it on the way; "
        f"{one.worker_memory / 1e9:.2g} GB per worker, 0.24 GB at the head. By items it would send 1.2 GB down and "
        f"5.8 GB up and take about {other.seconds:.0f} s; {other.worker_memory / 1e9:.0f} GB per worker, "
        f"{other.head_memory / 1e9:.0f} GB at the head."
    )


def test_the_paragraph_speaks_of_shards_where_there_are_some() -> None:
    choice = chosen(LARGE, workers=16, threads=4)
    said = f"come in {choice.item_shards} shards: at most {size_words(choice.costs[0].worker_sums)} of them"
    assert choice.item_shards > 1
    assert said in choice.text()


@pytest.mark.parametrize(
    ("size", "words"),
    [(0, "0 kB"), (512, "0.51 kB"), (99_999, "100 kB"), (620_000, "0.62 MB"), (1.9e9, "1.9 GB"), (4.4e14, "440 TB")],
)
def test_sizes_in_words(size: float, words: str) -> None:
    assert size_words(size) == words


# --- The study and the page ---


def test_the_projection_of_the_docs_is_what_the_study_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["scaling"])
    scaling.main()
    printed = capsys.readouterr().out
    page = (Path(__file__).parents[1] / "docs" / "scaling.md").read_text()
    tables = page.partition("## The projection")[2] + page.partition("## Inner sweeps")[2].partition("\n## ")[0]
    rows = [row for row in tables.splitlines() if row.startswith("| ")]
    assert len(rows) > 2 * (len(scaling.FLEETS) + len(scaling.NETWORKS)) + 12
    for row in rows:
        assert row in printed, row
    by_items = re.findall(r"^By items, K = .*$", page, re.M)
    assert by_items
    assert by_items[0] in printed
