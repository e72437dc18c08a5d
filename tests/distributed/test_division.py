"""What a division sends and holds: formulas against tables worked by hand and against the messages themselves."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from considerate.data.graph import ITEMS, USERS, Graph, divide
from considerate.distributed.assignment import tree_nodes
from considerate.distributed.backends.base import PartitionedBackend
from considerate.distributed.disk_division import DiskDivision
from considerate.distributed.division import (
    MOST_SUMS,
    PROCESS,
    REPLAYED,
    SUMS_SHARE,
    Division,
    bytes_text,
    plan_division,
)
from considerate.distributed.messages import PartitionSetup
from considerate.distributed.partitions import make_partition
from considerate.distributed.pools import LocalPool, size_of
from considerate.distributed.runners import make_runner
from considerate.errors import MemoryLimitError
from considerate.inference.hidden import popularity_weights
from considerate.inference.hidden.groups import FREEZE_AFTER
from considerate.inference.plan import FitPlan
from studies import scaling
from tests.helpers.likes import skewed
from tests.helpers.paths import ROOT

XBOX = Division(FitPlan.of_paper(factors=20), 6_200_000, 12_000, 45_488_997, workers=4)
LARGE = Division(FitPlan.of_paper(factors=64), 50_000_000, 100_000, 10**10, workers=4)
FEW_USERS = Division(FitPlan.of_paper(factors=20, negatives=3.0), 5_000, 1_000_000, 10**8, workers=4, resident=ITEMS)


def expected(division: Division) -> Division:
    return replace(division, plan=replace(division.plan, hidden="expected"))


# --- Bytes, worked by hand ---


def test_the_xbox_sample_on_two_workers_by_hand() -> None:
    division = replace(XBOX, workers=2)
    assert division.parts == 64  # 256 blocks, four a part
    assert division.side_bytes(USERS, 10) == 10 * 2 * 24 * 4
    assert division.down == 12_000 * (2 * 24 * 4 + 2 * 4) == 2_400_000
    assert division.up == 12_000 * (210 + 20 + 2) * 4 == 11_136_000
    half = XBOX.edges / 2
    graph = 8 * half + 8 * 3_100_000 + 32 * 8 * 12_000  # both ways
    drawn = 2 * 4 * XBOX.edges / 64 + 8 * 12_000  # of one part at a time, both ways
    rows = 2 * 3_100_000 * 192
    sums = (1 + 6 + 2) * 11_136_000
    assert division.worker_memory == pytest.approx(PROCESS + 2_400_000 + graph + drawn + rows + sums)
    assert division.head_memory == PROCESS + (REPLAYED + 2) * 2_400_000 + 2 * 11_136_000 + 48 * 12_000


def test_many_factors_are_summed_in_blocks_of_coordinates() -> None:
    division = replace(XBOX, plan=replace(XBOX.plan, factors=128, user_bias=True))
    assert division.up == 12_000 * 4 * (528 + 32 + 2) * 4
    assert division.down == 4 * 12_000 * (2 * 128 * 4 + 8)  # the items, and after each block but the last once more
    assert division.side_bytes(USERS, 10) == 10 * (2 * 128 * 4 + 2 * 4)


def test_by_items_the_users_travel() -> None:
    users, items, groups = 5_000, 1_000_000, 32
    assert FEW_USERS.down == users * 2 * 24 * 4
    assert FEW_USERS.up == users * 232 * 4
    closed = expected(FEW_USERS)
    once = users * 192 + 4 * items + 8 * users + 12 * groups * users
    assert closed.down == 2 * once + 16 * groups * (210 + 60 + 3)
    assert closed.up - FEW_USERS.up == 16 * groups * (210 + 40 + 4) + 56 * groups * users


def test_expected_mode_sends_groups_and_draws_nothing() -> None:
    closed = expected(XBOX)
    assert (closed.drawn, XBOX.drawn) == (0, XBOX.edges)
    assert closed.up - XBOX.up == 16 * 32 * (210 + 60 + 3)
    table = closed.down - XBOX.down - 12 * 12_000 - 16 * 32 * (210 + 40 + 4)
    assert 400 < table / (16 * 32) < 700  # points of the table of inclusion probabilities


@pytest.mark.parametrize("division", [XBOX, FEW_USERS])
def test_the_table_of_the_walk_is_held_by_the_workers_and_the_head(division: Division) -> None:
    entries = 500 * division.items
    walk = replace(division, plan=replace(division.plan, consideration="walk"))
    assert walk.worker_memory - division.worker_memory == pytest.approx((8 + 12) * entries)
    assert walk.head_memory - division.head_memory == pytest.approx(2 * 8 * entries)
    assert (walk.down, walk.up) == (division.down, division.up)  # it goes down once, not with every sweep
    assert expected(walk).worker_memory == expected(division).worker_memory  # the head ranks by it
    assert expected(walk).head_memory > expected(division).head_memory
    few = replace(walk, items=50)
    assert few.walk_bytes(1) == 50 * 50
    memory = 8e9
    assert walk.worker_nodes * walk.up / walk.item_shards == walk.worker_sums
    assert walk.sums_room(memory) == 1e9 == walk.sums_room(None)


def test_the_sums_of_the_walk_are_counted_while_its_table_is_made() -> None:
    """Within the room for sums, but for a row of each node; of a small catalogue all rows are less than that."""
    walk = replace(LARGE, workers=1024, plan=replace(LARGE.plan, consideration="walk"))
    likes = PROCESS + 8 * walk.edges / 1024 + 8 * walk.users / 1024 + 8 * walk.items
    assert walk.parts == 1024
    rows = walk.walk_nodes * 12 * walk.items
    assert walk.walk_memory(8e9) == pytest.approx(likes + 1e9 + rows)
    assert walk.walk_memory(4e9) == pytest.approx(likes + 5e8 + rows)
    assert walk.walk_memory(None) == walk.walk_memory(8e9)
    small = replace(walk, items=100)
    assert small.walk_memory(8e9) == pytest.approx(likes - 8 * (walk.items - 100) + small.walk_nodes * 12 * 100**2)
    assert replace(walk, plan=replace(walk.plan, consideration="popularity")).walk_memory(8e9) == 0.0
    plan = replace(walk.plan, factors=1, negatives=0.1, neighbours=1)
    flat, memory = replace(walk, plan=plan, users=10**6), 3.1e8
    assert max(flat.worker_memory, flat.head_memory) < memory
    with pytest.raises(MemoryLimitError, match="per worker"):
        planned(flat, memory)


class Recorder:
    """A pool in this process that counts the bytes that would be sent."""

    def __init__(self, parts: Any) -> None:
        self.pool, self.parts = LocalPool(parts), len(parts)
        self.down, self.up = 0, 0

    def share(self, value: Any, keep: bool = False) -> Any:
        self.down += size_of(value)
        return self.pool.share(value)

    def call(self, method: Any, *arguments: Any, merge: Any = None, changes: bool = False) -> Any:
        answer = self.pool.call(method, *arguments, merge=merge, changes=changes)
        self.up += size_of(answer) if merge is not None else 0
        return answer


@pytest.mark.parametrize(
    ("resident", "factors", "shards"), [(USERS, 8, 1), (USERS, 8, 3), (USERS, 72, 1), (ITEMS, 8, 1), (ITEMS, 72, 1)]
)
@pytest.mark.parametrize("hidden", ["sampled", "expected"])
def test_the_formulas_are_those_of_the_messages(hidden: str, resident: str, factors: int, shards: int) -> None:
    """A sweep of a divided fit, its messages measured as on Ray."""
    users, items = 600, 120
    likes = skewed(users, items).nonzero()
    graph = Graph.from_pairs(*(one.astype(np.int32) for one in likes), users, items, block_edges=512)
    outline, parts = divide(graph, resident)
    plan = FitPlan.of_paper(factors=factors, user_bias=True, hidden=hidden, negatives=2.0)
    setup = PartitionSetup.of(outline, plan, resident)
    pool = Recorder([make_partition(part, setup) for part in parts])
    runner = make_runner(
        outline, setup, popularity_weights(outline.item_degree, 1.0), pool, PartitionedBackend(item_shards=shards)
    )
    sweeps = runner.sweeps()
    for _ in range(FREEZE_AFTER + 1):  # in the first ones groups move
        next(sweeps)
    pool.down = pool.up = 0
    next(sweeps)
    division = Division.of(plan, outline, 2, resident=resident, item_shards=shards)
    pickles = 1_500 * (shards + 4) + 3_000 * len(parts) * (division.up_light > 0)  # beside their arrays
    down = division.down
    if runner.grouping is not None and resident == USERS:  # the formula has the longest table that may be needed
        down -= 16 * 32 * (division.table_points - len(runner.grouping.saturation.grid))
    assert down <= pool.down <= down + pickles
    up = division.up + division.up_light
    drawn = 4 * division.light_edges / 2 if hidden == "sampled" else 0  # the formula is of as many drawn as liked
    few = 0.03 * division.up_light  # of users without an edge to a light item
    assert up - drawn - few <= pool.up <= up + drawn + pickles
    assert (division.up_light > 0) == (resident == USERS)
    assert 0 < division.light_items < items


@pytest.mark.parametrize(
    ("edges", "parts"), [(1, 1), (32_768, 1), (32_769, 2), (65 * 32_768, 33), (2 * 10**8, 64), (10**10, 1024)]
)
def test_parts_are_those_of_the_graph(edges: int, parts: int) -> None:
    assert Division(FitPlan.of_paper(), 10**8, 10**6, edges).parts == parts


def test_parts_of_a_real_graph() -> None:
    likes = skewed(users=400, items=50).nonzero()
    graph = Graph.from_pairs(likes[0].astype(np.int32), likes[1].astype(np.int32), 400, 50)
    for resident in (USERS, ITEMS):
        assert Division(FitPlan.of_paper(), 400, 50, graph.edges, resident=resident).parts == len(
            divide(graph, resident)[1]
        )


@pytest.mark.parametrize(
    ("first", "last", "parts", "nodes"), [(0, 64, 64, 1), (0, 21, 64, 3), (21, 43, 64, 6), (4, 5, 5, 1)]
)
def test_nodes_that_parts_cannot_merge_among_themselves(first: int, last: int, parts: int, nodes: int) -> None:
    assert tree_nodes(range(first, last), parts) == nodes


# --- The plan ---


def planned(
    division: Division, memory: float | None = None, resident: str | None = None, shards: int | None = None
) -> Any:
    outline: Any = SimpleNamespace(
        user_count=division.users,
        item_count=division.items,
        edges=division.edges,
        weighted=division.weighted,
        item_degree=np.full(division.items, division.edges // division.items),
        user_blocks=np.arange(division.blocks(USERS) + 1),
        item_blocks=np.linspace(0, division.items, division.blocks(ITEMS) + 1).astype(np.int64),
    )
    session: Any = SimpleNamespace(memory=memory, workers=division.workers, threads=division.threads)
    return plan_division(division.plan, outline, session, resident, shards, type(division))


def test_by_users_unless_items_are_asked_for() -> None:
    for division in (XBOX, LARGE, FEW_USERS, expected(FEW_USERS)):
        assert planned(division).resident == USERS
    assert planned(XBOX, resident=ITEMS) == replace(XBOX, resident=ITEMS)
    assert planned(XBOX, shards=7) == replace(XBOX, item_shards=7)


def test_shards_keep_the_sums_of_a_worker_within_bounds() -> None:
    for base in (XBOX, LARGE, replace(LARGE, items=1_000_000)):
        for workers, threads in ((2, 8), (16, 4), (64, 1)):
            division = replace(base, workers=workers, threads=threads).with_shards(None)
            assert division.worker_sums <= MOST_SUMS or division.item_shards == division.blocks(ITEMS)
            if division.item_shards > 1:
                assert replace(division, item_shards=division.item_shards - 1).worker_sums > MOST_SUMS
    assert XBOX.with_shards(None).item_shards == 1
    assert replace(LARGE, workers=16, threads=4).with_shards(4e9).worker_sums <= SUMS_SHARE * 4e9
    assert FEW_USERS.with_shards(1e8).item_shards == 1  # by items


@pytest.mark.parametrize("base", [LARGE, expected(LARGE), replace(LARGE, resident=ITEMS)])
def test_larger_data_takes_more_and_more_workers_less_each(base: Division) -> None:
    for larger in (
        replace(base, users=2 * base.users),
        replace(base, items=2 * base.items),
        replace(base, edges=2 * base.edges),
        replace(base, plan=replace(base.plan, factors=2 * base.plan.factors)),
    ):
        assert larger.worker_memory > base.worker_memory, larger
        assert larger.down >= base.down
        assert larger.up >= base.up
    assert replace(base, workers=8).worker_memory < base.worker_memory


def on_disk(division: Division, **options: Any) -> DiskDivision:
    return DiskDivision(division.plan, division.users, division.items, division.edges, **options)


def test_out_of_core_holds_a_part_a_thread() -> None:
    one, two = (on_disk(XBOX, threads=threads) for threads in (1, 2))
    assert one.peak(None) < two.peak(None) < replace(XBOX, workers=1).worker_memory / 4
    assert two.text() == "Divided by users into 64 parts, 2 of them in memory at a time."
    likes, users = XBOX.edges / 64, XBOX.users / 64
    part = 192 * users + 4 * likes + 8 * 12_000 + 8 * likes + 8 * users + 8 * 12_000
    assert two.part == pytest.approx(part)
    assert two.worker_nodes == 5 + 3  # after 31 parts, or 47: five in the tree, two being made, one that waits
    head = 2 * 12_000 * 200 + 64 * 12_000
    assert two.sweep_memory == pytest.approx(head + 2 * part + 8 * 11_136_000)


def test_out_of_core_an_opening_and_the_walk_are_counted() -> None:
    opened = on_disk(replace(XBOX, plan=replace(XBOX.plan, negatives=0.01)))
    closed = replace(opened, plan=replace(opened.plan, opening=5))
    users = XBOX.users / 64
    assert closed.part - opened.part == pytest.approx(12 * 8 * users - 8 * 0.01 * XBOX.edges / 64 - 8 * 12_000)
    walk = on_disk(replace(XBOX, plan=replace(XBOX.plan, consideration="walk")))
    assert walk.sweep_memory - on_disk(XBOX).sweep_memory == pytest.approx(
        12_000 * (500 * (8 + 12) + 12 + 12) + 48e6 + 144_000
    )
    assert walk.walk_memory(8e9) - walk.walk_memory(8e8) == pytest.approx(10 * XBOX.edges - 1e8)
    with pytest.raises(
        MemoryLimitError, match=r"^Divided by users into 64 parts on a disk this fit needs about .* and"
    ):
        planned(walk, 3e8)
    with pytest.raises(MemoryLimitError, match="machines with more memory are needed"):
        planned(walk, 1e8)


# --- Memory ---


def test_too_little_memory_is_one_sentence_with_the_workers_that_would_fit() -> None:
    division = replace(LARGE, workers=16, threads=8)
    with pytest.raises(MemoryLimitError) as caught:
        planned(division, 8e9)
    found = re.fullmatch(
        r"Divided by users over 16 workers this fit needs about 1\d GB per worker and 8 GB are free; "
        r"(\d+) workers would fit\.",
        str(caught.value),
    )
    assert found is not None, str(caught.value)
    assert planned(replace(division, workers=int(found[1])), 8e9).worker_memory <= 8e9
    with pytest.raises(MemoryLimitError):
        planned(replace(division, workers=int(found[1]) - 1), 8e9)


def test_too_little_memory_names_factors_or_the_other_division() -> None:
    most = replace(LARGE, workers=1024)
    with pytest.raises(MemoryLimitError, match=r"; factors=\d+ would fit\.$") as caught:
        planned(most, 5e8)
    factors = int(re.findall(r"factors=(\d+)", str(caught.value))[0])
    assert planned(replace(most, plan=replace(most.plan, factors=factors)), 5e8)
    with pytest.raises(MemoryLimitError):
        planned(replace(most, plan=replace(most.plan, factors=factors + 8)), 5e8)
    with pytest.raises(MemoryLimitError, match="a division by users would fit"):
        planned(XBOX, 8e9, resident=ITEMS)
    with pytest.raises(MemoryLimitError, match="machines with more memory are needed"):
        planned(most, 1e8)
    with pytest.raises(MemoryLimitError, match="a division by items would fit"):
        planned(expected(FEW_USERS), 1.5e9)
    with pytest.raises(MemoryLimitError, match=r"at the head and 2\.2 GB are free"):
        planned(Division(FitPlan.of_paper(factors=1), 10**6, 4_000_000, 10**7, workers=64), 2.2e9)


# --- Words ---


def test_the_line_before_the_fit() -> None:
    division = replace(XBOX, workers=2)
    assert division.text() == (
        "Divided by users over 2 workers (64 parts): a sweep sends 2.4 MB to each node and 11 MB of sums up a tree of "
        "workers; about 1.7 GB per worker and 0.24 GB at the head."
    )
    assert replace(division, item_shards=3).text().endswith(" at the head. The items' sums come in 3 shards.")


@pytest.mark.parametrize(
    ("size", "words"),
    [(0, "0 kB"), (512, "0.51 kB"), (99_999, "100 kB"), (620_000, "0.62 MB"), (1.9e9, "1.9 GB"), (4.4e14, "440 TB")],
)
def test_sizes_in_words(size: float, words: str) -> None:
    assert bytes_text(size) == words


def test_the_projection_of_the_docs_is_what_the_study_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["scaling"])
    scaling.main()
    printed = capsys.readouterr().out
    page = (ROOT / "docs" / "scaling.md").read_text()
    tables = page.partition("## The projection")[2].partition("## Where it would break")[0]
    rows = [row for row in tables.splitlines() if row.startswith("| ")]
    assert len(rows) == 2 * (len(scaling.FLEETS) + len(scaling.NETWORKS)) + 2
    lines = re.findall(r"^(?:By items, K = |Root mean square ).*$", page, re.M)
    assert len(lines) == 2
    for line in [*rows, *lines]:
        assert line in printed, line
