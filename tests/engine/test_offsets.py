"""Offsets of logits: k_m by brute force, users who run out of items, users who like all, and files of before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse

from considerate import Recommender
from considerate.data.graph import Adjacency, Graph, row_blocks, run_serially, transpose
from considerate.data.known import Known, Rules
from considerate.distributed.backends.out_of_core import OutOfCore
from considerate.fitting.resume import chosen_settings
from considerate.inference.full import FullInMemory
from considerate.inference.hidden import Observed, Sampled, Terms, expected_unliked, user_offset
from considerate.inference.hidden.offsets import UNBOUNDED
from considerate.inference.hidden.saturation import Saturation
from considerate.inference.plan import FitPlan
from considerate.inference.posterior import Side
from considerate.inference.sums import CoordinateBlock, PassConstants, edge_sums, side_pass
from considerate.inference.updates import update_side
from considerate.kernels.threads import LocalBackend
from tests.helpers.paths import GOLDEN


def likes(users: int = 60, items: int = 30, seed: int = 0) -> Adjacency:
    """Users of nothing, of all, of nearly all, and of any number between."""
    random = np.random.default_rng(seed)
    liked = random.random((users, items)) < random.random((users, 1))
    liked[0], liked[1], liked[2] = False, True, np.arange(items) != 4
    return Adjacency.of_rows([np.flatnonzero(row).astype(np.int32) for row in liked])


def pairs_of(likes: Adjacency, items: int, share: float, seed: int) -> Adjacency:
    """Some of the pairs that are not liked."""
    random, rows = np.random.default_rng(seed), []
    for user in range(likes.rows):
        others = np.setdiff1d(np.arange(items), likes.row(user))
        rows.append(others[random.random(len(others)) < share].astype(np.int32))
    return Adjacency.of_rows(rows)


@pytest.mark.parametrize("negatives", [0.5, 1.0, 2.7, 10.0])
def test_k_is_what_is_wanted_or_what_is_left(negatives: float) -> None:
    liked, items = likes(), 30
    weights = np.where(np.arange(items) % 7 == 3, 0.0, 1.0 + np.arange(items))
    considered = pairs_of(liked, items, 0.3, 1)
    impossible = pairs_of(liked, items, 0.3, 2).without(considered, items)
    classes = np.arange(items, dtype=np.int32) % 2
    rules = Rules(np.arange(60, dtype=np.int32) % 2, classes, np.array([[1], [3]], np.uint64))
    plan = FitPlan.of_paper(negatives=negatives)
    for known in (None, Known(considered), Known(considered, impossible), Known(None, impossible, rules)):
        found = expected_unliked(liked, weights, plan, known)
        for user in range(60):
            closed = set(liked.row(user).tolist())
            seen: set[int] = set()
            if known is not None and known.considered is not None:
                seen = set(known.considered.row(user).tolist())
            if known is not None:
                closed |= set(np.flatnonzero(known.impossible_items(user, items)).tolist())
            left = [n for n in range(items) if weights[n] > 0 and n not in closed | seen]
            wanted = max(0.0, negatives * len(liked.row(user)) - len(seen))
            assert found[user] == len(seen) + min(wanted, len(left))


@pytest.mark.parametrize("negatives", [0.7, 2.3])
def test_k_is_the_mean_of_the_draws_and_the_mass_of_the_closed_form(negatives: float) -> None:
    liked, weights, plan = likes(), 1.0 + np.arange(30), FitPlan.of_paper(negatives=negatives)
    k, blocks = expected_unliked(liked, weights, plan), row_blocks(liked.starts)
    sampled = Sampled(liked, blocks, weights, negatives, 3)
    drawn = np.mean([sampled.draw(sweep).degrees for sweep in range(400)], axis=0)
    np.testing.assert_allclose(drawn, k, atol=0.12)
    temperature = Saturation(weights).inclusion.temperatures(liked, blocks, negatives)
    chance = -np.expm1(-temperature[:, None] * weights)
    mass = [chance[user, np.setdiff1d(np.arange(30), liked.row(user))].sum() for user in range(60)]
    np.testing.assert_allclose(mass, k, rtol=1e-6, atol=1e-9)


def test_k_of_half_edges_is_the_mean_of_their_number() -> None:
    """The number of half-edges, some of which find no partner in so small a graph."""
    liked, plan = likes(), FitPlan.of_paper(negatives=1.5, hidden="half-edges")
    k, room = expected_unliked(liked, np.ones(30), plan), 30 - liked.degrees
    random = np.random.default_rng(0)
    drawn = np.minimum(random.poisson(1.5 * liked.degrees, (20_000, 60)), room).mean(axis=0)
    np.testing.assert_allclose(k, drawn, atol=0.1)
    assert k[1] == 0.0
    far = Adjacency(np.array([0, 4], np.int64), np.arange(4, dtype=np.int32))
    assert expected_unliked(far, np.ones(1000), plan)[0] == 6.0, "the bits of c d where the limit is out of reach"


def test_the_offset_is_log_k_over_d_and_nothing_where_all_have_c_d() -> None:
    liked, weights = likes(), np.ones(30)
    plan = FitPlan.of_paper(negatives=2.0)
    offset = user_offset(liked, weights, plan)
    assert offset is not None
    k, d = np.minimum(2.0 * liked.degrees, 30 - liked.degrees), liked.degrees
    some = (k > 0) & (d > 0)
    np.testing.assert_allclose(plan.offset + offset[some], -np.log(k[some] / d[some]), rtol=1e-6, atol=1e-6)
    assert (offset[k == 2.0 * d] == 0.0).all()
    assert not np.signbit(offset[k == 2.0 * d]).any()
    assert offset[0] == 0.0, "a user without likes"
    assert offset[1] == UNBOUNDED
    few = liked.take(np.flatnonzero(liked.degrees <= 10))
    assert user_offset(few, weights, plan) is None
    assert user_offset(liked, weights, replace(plan, considered_are="all")) is None
    assert user_offset(liked, weights, replace(plan, expected_offsets=False)) is None


def test_fractional_c_does_not_make_the_offset_random() -> None:
    """k is the expected number: the coin of a draw does not move it."""
    liked = Adjacency.of_rows([np.arange(1, dtype=np.int32)])
    assert expected_unliked(liked, np.ones(10), FitPlan.of_paper(negatives=0.3))[0] == 0.3


# --- Likes that say nothing ---


def sides(users: int, items: int, factors: int, seed: int = 0, bias: bool = True) -> tuple[Side, Side]:
    random, made = np.random.default_rng(seed), []
    for rows in (users, items):
        side = Side.constant(rows, factors, 0.5, 0.3 if bias else None)
        side.mean[:] = random.normal(0, 0.7, (rows, factors))
        if side.bias_mean is not None:
            side.bias_mean[:] = random.normal(0, 0.7, rows)
        made.append(side)
    return made[0], made[1]


@pytest.mark.parametrize("factors", [5, 20, 70])
@pytest.mark.parametrize("many", [False, True])
def test_the_likes_of_a_user_who_likes_everything_add_nothing(factors: int, many: bool) -> None:
    """To the items, to the bound, and to the user: as if they were not there."""
    liked = likes(90 if many else 12, 60)
    without = Adjacency.of_rows([liked.row(user) if user != 1 else np.empty(0, np.int32) for user in range(liked.rows)])
    users, items = sides(liked.rows, 60, factors)
    offset = user_offset(liked, np.ones(60), FitPlan.of_paper(negatives=2.0, likelihood_weight=1.5))
    assert offset is not None
    assert offset[1] == UNBOUNDED
    constants = PassConstants(-np.log(2.0), 1.5, user_offset=offset)
    unliked = Sampled(liked, row_blocks(liked.starts), np.ones(60), 2.0, 0).draw(1)
    found = []
    for edges in (liked, without):
        by_item, out_by_item = transpose(edges, 60), transpose(unliked, 60)
        of_items = side_pass(items, users, by_item, Terms(out_by_item), constants, own_is_user=False)
        sums = edge_sums(of_items, np.arange(60, dtype=np.int32), CoordinateBlock.of(factors), (0, liked.rows))
        of_users = side_pass(users, items, edges, Terms(unliked), constants, own_is_user=True)
        step = update_side(of_users, users, row_blocks(liked.starts), run_serially)
        found.append((sums, step))
    (sums, step), (sums_without, step_without) = found
    for one, other in zip(sums.arrays(), sums_without.arrays()):
        np.testing.assert_allclose(one, other, rtol=3e-6, atol=3e-6)
    for one, other in zip(step.side.arrays(), step_without.side.arrays()):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)
    assert step.edge_bound == pytest.approx(step_without.edge_bound, rel=1e-7)
    assert np.abs(step.side.mean[1]).max() < 1e-9  # 0 but where many factors are solved in floats


@pytest.mark.parametrize("logistic", ["bound", "quadrature"])
def test_the_offset_with_covariances_and_by_quadrature(logistic: str) -> None:
    """Items' steps with and without the edges of that user, whose own step is the prior."""
    liked = likes(12, 60)
    without = Adjacency.of_rows([liked.row(user) if user != 1 else np.empty(0, np.int32) for user in range(12)])
    plan = FitPlan.of_paper(factors=4, negatives=2.0, posterior="full", logistic=logistic)
    offset, users = user_offset(liked, np.ones(60), plan), sides(12, 60, 4, bias=False)[0]
    items = sides(12, 60, 4)[1]
    unliked, found = Sampled(liked, row_blocks(liked.starts), np.ones(60), 2.0, 0).draw(1), []
    for edges in (liked, without):
        graph = Graph.from_adjacency(edges, 60)
        given = Observed(unliked, 60, run_serially)
        runner = FullInMemory(graph, given, plan, LocalBackend(1), user_offset=offset)
        start = runner.begin()
        q = runner.with_covariances(replace(start.posterior, users=users, items=items))
        step = runner.update_users(Terms(unliked), q)
        stepped = runner.items_pass(Terms(given.by_item), q).update(q.items, runner.item_classes(), run_serially)
        found.append((step, stepped.side))
    (step, stepped), (step_without, stepped_without) = found
    np.testing.assert_allclose(stepped.rows, stepped_without.rows, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(step.side.rows, step_without.side.rows, rtol=1e-5, atol=1e-6)
    assert step.edge_bound == pytest.approx(step_without.edge_bound, rel=1e-6)


# --- The same in all backends, and in what a model answers ---


def matrix(seed: int = 0) -> sparse.csr_matrix:
    """Some users who run out of items, one who likes all."""
    liked = likes(240, 40, seed)
    return sparse.csr_matrix((np.ones(liked.edges), liked.indices, liked.starts), (240, 40))


SETTINGS = {"factors": 4, "sweeps": 4, "tolerance": 0, "seed": 3, "neighbours": 20}


def bits(fitted: Recommender) -> tuple[bytes, ...]:
    q = fitted.posterior_
    return tuple(array.tobytes() for array in (q.users.rows, q.items.rows, q.items.biases[0]))


@pytest.mark.parametrize("division", ["users", "items"])
@pytest.mark.parametrize("hidden", ["sampled", "expected"])
def test_a_divided_fit_is_the_plain_one(division: str, hidden: str, tmp_path: Path) -> None:
    settings = SETTINGS | {"hidden": hidden, "consideration": "walk" if hidden == "sampled" else "popularity"}
    X = matrix()
    plain = Recommender(**settings, threads=2).fit(X)
    divided = Recommender(**settings).fit(X, backend=OutOfCore(tmp_path, 2, division=division))
    if division == "users":
        assert bits(plain) == bits(divided)
        return
    q, other = plain.posterior_, divided.posterior_  # the sums of users are added in another order
    np.testing.assert_allclose(q.users.rows, other.users.rows, atol=5e-3)
    np.testing.assert_allclose(q.items.bias_mean, other.items.bias_mean, atol=5e-3)


def test_a_fit_with_offsets_is_resumed_with_the_same_bits(tmp_path: Path) -> None:
    X = matrix()
    Recommender(**SETTINGS | {"sweeps": 2}).fit(X, checkpoint=tmp_path, checkpoint_every=1)
    assert bits(Recommender(**SETTINGS).fit(X, checkpoint=tmp_path, resume=True)) == bits(
        Recommender(**SETTINGS).fit(X)
    )


def test_a_checkpoint_of_before_goes_on_by_its_own_rule() -> None:
    about = {"knob": 0.5, "weight": 1.0}
    for metadata, rule in ((about, False), (about | {"expected_offsets": True}, True)):
        saved = SimpleNamespace(metadata=metadata, head=SimpleNamespace(path="checkpoint"))
        assert chosen_settings(saved, FitPlan.of_paper()).expected_offsets is rule


def test_a_file_of_before_keeps_its_rule_and_a_new_one_the_new(tmp_path: Path) -> None:
    old = next(GOLDEN.glob("release-0.1/**/*.safetensors"))
    assert not Recommender.load(old).model_.plan.expected_offsets
    fitted = Recommender(**SETTINGS).fit(matrix())
    fitted.save(tmp_path / "model.safetensors")
    assert Recommender.load(tmp_path / "model.safetensors").model_.plan.expected_offsets


def with_rule(fitted: Recommender, expected_offsets: bool) -> Recommender:
    """The same model with or without offsets by expected numbers."""
    other = Recommender(**SETTINGS)
    other._model = replace(fitted.model_, plan=replace(fitted.model_.plan, expected_offsets=expected_offsets))
    return other


def test_fold_in_reads_the_offsets_too() -> None:
    """A user who likes all is as good as one who likes nothing; others come out near their training row."""
    X = matrix()
    settings = SETTINGS | {"sweeps": 40, "consideration": "popularity", "hidden": "expected"}
    fitted = Recommender(**settings, likelihood_weight=6.0, negatives=2.0).fit(X)
    users = np.flatnonzero(np.diff(X.indptr) > 20)  # who have fewer than 2 d items left
    trained = fitted.posterior_.users.mean[users]
    folded, before = fitted.fold_in(X[users]).mean, with_rule(fitted, False).fold_in(X[users]).mean
    assert np.abs(trained).max() > 0.3, "a model that has learned something"
    assert np.abs(folded[users == 1]).max() == 0.0
    assert np.abs(folded - trained).max() < 0.15 * np.abs(trained).max()
    assert np.square(before - trained).sum() > 2.0 * np.square(folded - trained).sum()


def test_new_items_and_updates_read_them_as_well() -> None:
    """With the offsets taken away the answers are others."""
    X = matrix()
    fitted = Recommender(**SETTINGS).fit(X)
    found = []
    for rule in (True, False):
        other = with_rule(fitted, rule)
        other.partial_fit_items([40], [[3, 5, 100, 101]])
        new = other.model_.items.bias_mean[40]
        updated = with_rule(fitted, rule)
        open_items = np.flatnonzero(X[200].toarray()[0] == 0)
        updated.update({"user": [200], "item": [int(open_items[0])]})
        found.append((float(new), updated.posterior_.users.mean[200].tobytes()))
    assert found[0][0] < found[1][0], "the logits of users who run out were too high"
    assert found[0][1] != found[1][1]
