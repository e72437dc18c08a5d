"""What the tests of divided fits share: data of several parts, small fits, and a backend in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from considerate import Recommender
from considerate.data import graph, read_interactions
from considerate.data.graph import part_ranges
from considerate.distributed.backends.base import PartitionedBackend
from considerate.distributed.pools import LocalPool, PerPart
from considerate.distributed.tasks import LocalTasks
from considerate.fitting.session import make_graph
from considerate.inference.hidden import Consideration
from considerate.inference.posterior import Side
from considerate.inference.sweep import State
from tests.helpers.likes import as_table, skewed
from tests.helpers.models import assert_same_fit

SETTINGS: dict[str, dict[str, Any]] = {
    "sampled": {"opening": 0},
    "expected": {
        "hidden": "expected",
        "groups": 12,
        "user_bias": True,
        "head_correction": True,
        "consideration": "walk",  # for the ranking alone
    },
    "walk": {"consideration": "walk", "neighbours": 12, "mixing": 0.2, "gamma": 0.8, "opening": 2},
}


@contextmanager
def small_leaves(edges: int) -> Iterator[None]:
    """A leaf of the tree of sums is so few edges, and any number of users may travel for a light item."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph, "LEAF_EDGES", edges)
        patch.setattr(graph, "LIGHT_SHARE", 1000)
        yield


def several_parts() -> sp.csr_matrix:
    """Some of everything, and so many likes that there are three parts of users and of items."""
    random = np.random.default_rng(1)
    many = sp.csr_matrix((random.random((1500, 90)) < 0.62).astype(np.float32))
    found = sp.csr_matrix(sp.block_diag([skewed(), many]).astype(np.float32))
    made = make_graph(read_interactions(found))
    assert [len(part_ranges(len(blocks) - 1)) for blocks in (made.user_blocks, made.item_blocks)] == [3, 3]
    return found


def write_likes(path: Path) -> Path:
    """The same in a Parquet file, with strings for ids."""
    pq.write_table(as_table(several_parts()), path)
    return path


def made(**settings: Any) -> Recommender:
    return Recommender(**({"factors": 3, "sweeps": 5, "tolerance": 0.0, "threads": 1, "seed": 3} | settings))


def assert_same(found: Recommender, wanted: Recommender) -> None:
    """To the last bit: the posterior, all bounds, and how it ended; and the ids and likes that go with it."""
    assert_same_fit(found, wanted)
    assert np.array_equal(found.model_.popularity, wanted.model_.popularity)
    same_table(found.model_.consideration, wanted.model_.consideration)
    assert np.array_equal(found.model_.users.whole().liked.indices, wanted.model_.users.whole().liked.indices)
    assert np.array_equal(found.model_.users.whole().liked.starts, wanted.model_.users.whole().liked.starts)
    rows = [0, 1, found.model_.user_count - 1]
    assert found.model_.user_ids.ids_of(rows) == wanted.model_.user_ids.ids_of(rows)


def same_table(found: Consideration | None, wanted: Consideration | None) -> None:
    """To the last bit, or none at all."""
    assert (found is None) == (wanted is None)
    if found is not None:
        for name, array in vars(wanted).items():
            if name in Consideration.__dataclass_fields__:  # what follows from them may not be made yet
                assert np.array_equal(getattr(found, name), array), name


@dataclass(frozen=True)
class Here(PartitionedBackend):
    """Parts in this process, which are called as if they were elsewhere. `meddle(method, call)` may do anything in
    place of a call."""

    meddle: Callable[[Any, Callable[[], Any]], Any] = lambda method, call: call()
    session: Callable[[], None] = lambda: None
    pools: list[Any] = field(default_factory=list)

    @contextmanager
    def open(self) -> Iterator[Any]:
        self.session()
        with LocalTasks(2) as tasks:
            yield OpenedHere(self, tasks)


class OpenedHere:
    workers, threads, memory, out_of_core = 2, 1, None, False

    def __init__(self, options: Here, tasks: LocalTasks) -> None:
        self.options, self.tasks = options, tasks

    def make_pool(self, build: Any, setup: Any, parts: Any, *, all_user_likes: Any, edges: list[int]) -> HerePool:
        assert edges == [self.tasks.get(one).likes.edges for one in parts]
        liked = None if all_user_likes is None else self.tasks.get(all_user_likes)
        built = [build(replace(self.tasks.get(one), all_user_likes=liked), setup) for one in parts]
        self.options.pools.append(HerePool(built, self))
        return self.options.pools[-1]

    def describe(self) -> str:
        return "two workers in this process"


class HerePool(LocalPool):
    def __init__(self, parts: list[Any], session: OpenedHere) -> None:
        super().__init__(parts)
        self._opened, self.named = session, list[Any]()

    def call(self, method: Any, *arguments: Any, merge: Any = None, changes: bool = False) -> Any:
        get = self._opened.tasks.get
        given = [PerPart([get(ref) for ref in one.values]) if isinstance(one, PerPart) else one for one in arguments]
        call = super().call
        return self._opened.options.meddle(method, lambda: call(method, *given, merge=merge, changes=changes))

    def report(self) -> str:
        return "slowest block 1 0.01 s  2 MB down, 3 MB up"

    def name_checkpoint(self, name: str | None) -> None:
        self.named.append(name)


def with_residents(state: State, side: Side) -> State:
    """The state with the residents' rows in it, where they were gathered."""
    q = state.posterior
    return replace(state, posterior=replace(q, users=side) if not len(q.users) else replace(q, items=side))
