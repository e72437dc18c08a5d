"""Rows whose other side is larger than the cache are summed together, a part of the other side at a time: the same
leaves along the same trees, and so the same bits as a row that is summed alone."""

from __future__ import annotations

import numpy as np
import pytest

from considerate.data.graph import Graph, leaf_splits, run_serially
from considerate.inference.hidden import Expected, Sampled
from considerate.inference.plan import FitPlan
from considerate.inference.sums import PassConstants, side_pass
from considerate.inference.sweep import initial_state
from considerate.inference.updates import RowClasses, TreePass, update_side

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
    q = initial_state(graph, FitPlan.of_paper(factors=FACTORS)).posterior
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
    leaves = leaf_splits(graph.user_blocks)
    kernel_pass = side_pass(q.items, q.users, graph.by_item, terms, step, own_is_user=False, splits=leaves)
    everyone = np.arange(ITEMS, dtype=np.int32)
    classes = RowClasses(np.array_split(everyone, pieces), everyone[:0], [])
    alone, by_parts = (
        TreePass(kernel_pass, kernel_pass, leaves, kind == "expected", far).update(q.items, classes, run_serially)
        for far in (False, True)
    )
    np.testing.assert_array_equal(by_parts.side.rows, alone.side.rows)
    np.testing.assert_array_equal(by_parts.side.biases, alone.side.biases)
    assert by_parts.moments == alone.moments
