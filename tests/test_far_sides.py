"""Rows whose other side is larger than the cache are summed together, a block of the other side at a time: the same
leaves along the same trees, and so the same bits as a row that is summed alone."""

from __future__ import annotations

import numpy as np
import pytest

from considerate.data.graph import Graph, ranges, run_serially
from considerate.inference.hidden import Expected, Sampled
from considerate.inference.sums import CoordinateBlock, PassConstants, add_blocks, edge_sums, side_pass
from considerate.inference.sweep import initial_state
from considerate.inference.updates import update_side
from considerate.kernels import compiled
from considerate.parameters import FitPlan

FACTORS = 20
USERS = 24_000  # x 192 bytes: more than the kernels call near
ITEMS = 150


@pytest.fixture(scope="module", params=[3000, 20000], ids=["many blocks", "long leaves"])
def graph(request) -> Graph:
    random = np.random.default_rng(5)
    degree = np.concatenate([[5000], random.integers(0, 400, ITEMS - 2), [0]])
    items = np.repeat(np.arange(ITEMS, dtype=np.int32), degree)
    users = np.concatenate([random.choice(USERS, d, replace=False) for d in degree]).astype(np.int32)
    return Graph.from_pairs(users, items, USERS, ITEMS, block_edges=request.param)


@pytest.mark.usefixtures("each_instruction_set")
@pytest.mark.parametrize("kind", ["sampled", "expected"])
@pytest.mark.parametrize("pieces", [1, 7])
def test_rows_summed_together_have_the_bits_of_rows_summed_alone(graph, kind, pieces):
    weights = np.maximum(graph.by_item.degrees, 0).astype(np.float64)
    q = initial_state(graph, FitPlan(factors=FACTORS)).posterior
    random = np.random.default_rng(1)
    q.users.mean[:] = 0.3 * random.standard_normal(q.users.mean.shape)
    args = (graph.by_user, graph.user_blocks, weights, 1.0)
    estimator = Sampled(*args, 3) if kind == "sampled" else Expected(*args, 0.0, 8, run_serially)
    user_terms = estimator.user_terms(1, q, run_serially)
    step = PassConstants(0.0, 1.0, 10.0, 1.0, 0.7)
    if kind == "expected":  # the users' pass makes alpha
        users_pass = side_pass(q.users, q.items, graph.by_user, user_terms, step, own_is_user=True)
        update_side(users_pass, q.users, graph.user_blocks, run_serially)
    terms = estimator.item_terms(1, q, run_serially)
    kernel_pass = side_pass(q.items, q.users, graph.by_item, terms, step, own_is_user=False, splits=graph.user_blocks)
    together = update_side(kernel_pass, q.items, np.linspace(0, ITEMS, pieces + 1).astype(np.int64), run_serially).side

    rows = np.arange(ITEMS, dtype=np.int32)
    closed = kind == "expected"
    sums = add_blocks(
        [edge_sums(kernel_pass, rows, CoordinateBlock.of(FACTORS), block) for block in ranges(graph.user_blocks)]
    )
    if closed:
        sums = sums.merge(edge_sums(kernel_pass, rows, CoordinateBlock.of(FACTORS), (0, 0), closed_form=True))
    alone = q.items.empty_like()
    compiled.solve_rows(kernel_pass, rows, *sums.arrays(), *alone.arrays())
    np.testing.assert_array_equal(together.rows, alone.rows)
    np.testing.assert_array_equal(together.biases, alone.biases)
