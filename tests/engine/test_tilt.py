"""The tilt: draws that lean away from what the user would like, their law, their bits and the bound that they raise."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import special, stats

from considerate import Recommender
from considerate.data.graph import Graph
from considerate.distributed.backends.out_of_core import OutOfCore
from considerate.errors import UsageError
from considerate.evaluation.scorer import ModelScorer
from considerate.fitting.session import FitRequest
from considerate.inference.hidden import Consideration, Draws, Sampled, user_offset
from considerate.inference.hidden.offsets import UNBOUNDED
from considerate.inference.plan import FitPlan, Parameters
from considerate.inference.posterior import Gamma, Precisions, Side
from considerate.kernels import reference
from considerate.kernels.threads import LocalBackend
from considerate.model.ranking import tilt_term
from studies import tilt as study
from tests.helpers import naive
from tests.helpers.divided_fits import Here, assert_same, made, several_parts

PI = np.array([2.0, 1.0, 4.0, 0.0, 0.3, 2.5, 1.5])
ALIKE = 30_000  # users with the same likes and the same q


def side(random: np.random.Generator, rows: int, scale: float, mean_bias: float = 0.0) -> Side:
    bias = (mean_bias + 0.5 * random.standard_normal(rows), random.uniform(0.05, 0.3, rows))
    return Side.of(scale * random.standard_normal((rows, 3)), random.uniform(0.05, 0.5, (rows, 3)), bias)


def log_chances(users: Side, items: Side, offset: float, liked: float = 0.0) -> np.ndarray:
    """B- of every pair: the logistic bound of log sigma(-a) at its best xi, from the specification; B+ if liked."""
    mean, square = naive.logit_moments(naive.Factor.of(users), naive.Factor.of(items), offset)
    return reference.log_logistic_bound(mean, square, liked, np.sqrt(square))


def one_user_many_times(
    tilt: float, walk: bool, mean_bias: float = 0.0, negatives: float = 1.5
) -> tuple[list[tuple[int, ...]], np.ndarray, Sampled]:
    """(draws of a user who likes items 0 and 2, the weights that they should follow, the estimator)."""
    random, liked = np.random.default_rng(4), [0, 2]
    user, items = side(random, 1, 1.0), side(random, len(PI), 1.0, mean_bias)
    users = user.take(np.zeros(ALIKE, np.int64))
    rows = np.repeat(np.arange(ALIKE), 2).astype(np.int32)
    graph = Graph.from_pairs(rows, np.tile(liked, ALIKE).astype(np.int32), ALIKE, len(PI))
    pairs = np.array([[0, 0], [0, 2], [0, 5], [1, 0], [1, 1], [2, 2], [2, 4], [2, 5], [3, 6], [3, 0]], np.int32)
    small = Graph.from_pairs(pairs[:, 0].copy(), pairs[:, 1].copy(), 4, len(PI))
    table = Consideration.of_graph(small.by_user, small.by_item, PI, 3, 0.2) if walk else None
    draws = Draws.of(PI, table, tilt)
    estimator = Sampled(graph.by_user, graph.user_blocks, draws, negatives, 5)
    drawn = estimator.draw(1, sides=(users, items))
    own = PI if table is None else table.ratios(np.array(liked)) * table.p
    chances = np.exp(abs(tilt) * log_chances(user, items, -math.log(negatives), float(tilt < 0))[0])
    return [tuple(drawn.row(m).tolist()) for m in range(ALIKE)], own * chances, estimator


def p_value(outcomes: list[tuple[int, ...]], weights: np.ndarray, count: int) -> float:
    """Chi-square of ordered draws without replacement."""
    free = {n: float(weights[n]) for n in range(len(weights)) if weights[n] > 0 and n not in (0, 2)}
    law = {}
    for sequence in permutations(free, count):
        left, chance = sum(free.values()), 1.0
        for n in sequence:
            chance *= free[n] / left
            left -= free[n]
        law[sequence] = chance
    counts = dict.fromkeys(law, 0)
    for outcome in outcomes:
        counts[outcome] += 1  # a KeyError: it cannot happen
    expected = np.array(list(law.values())) * len(outcomes)
    return float(stats.chisquare(list(counts.values()), expected).pvalue)


@pytest.mark.parametrize("walk", [False, True], ids=["popularity", "walk"])
@pytest.mark.parametrize("tilt", [0.5, 1.0, -0.7])
def test_draws_follow_the_weights_times_the_chance(tilt: float, walk: bool) -> None:
    outcomes, weights, _ = one_user_many_times(tilt, walk)
    assert p_value(outcomes, weights, 3) > 1e-3
    untilted = one_user_many_times(0.0, walk)[1]
    assert p_value(outcomes, untilted, 3) < 1e-12
    assert p_value(outcomes, untilted * (weights / untilted.clip(1e-300)) ** 0.8, 3) < 1e-3


@pytest.mark.parametrize("walk", [False, True], ids=["popularity", "walk"])
@pytest.mark.parametrize("mean_bias", [8.0, 900.0])
def test_a_user_who_would_like_everything_ends(walk: bool, mean_bias: float) -> None:
    """Hardly a draw stands, so that all come from the tree; with 900 no chance is above zero in float64."""
    outcomes, weights, estimator = one_user_many_times(1.0, walk, mean_bias)
    assert estimator.tree_draws > 2.9 * ALIKE
    assert estimator.fallbacks == 0
    assert all(len(set(drawn)) == 3 for drawn in outcomes)
    if mean_bias == 8.0:
        assert p_value(outcomes, weights, 3) > 1e-3


def test_draws_are_a_function_of_seed_sweep_user_and_posterior() -> None:
    random = np.random.default_rng(0)
    liked = random.random((700, 60)) < 0.12
    users, items = (part.astype(np.int32) for part in np.nonzero(liked))
    graph = Graph.from_pairs(users, items, 700, 60, block_edges=400)
    assert len(graph.user_blocks) > 8
    sides = side(random, 700, 1.0), side(random, 60, 1.0)
    weights = graph.by_item.degrees.astype(float)
    draws = Draws.of(weights, tilt=0.7)
    base = Sampled(graph.by_user, graph.user_blocks, draws, 2.0, 3).draw(4, sides=sides)
    with LocalBackend(3) as backend:
        threads = Sampled(graph.by_user, graph.user_blocks, draws, 2.0, 3).draw(4, backend.map, sides)
    np.testing.assert_array_equal(threads.indices, base.indices)
    some = graph.by_user.between(300, 500)
    part = Sampled(some, np.array([0, 200]), draws, 2.0, 3, first_user=300)
    own = part.draw(4, sides=(sides[0].between(300, 500), sides[1]))
    np.testing.assert_array_equal(own.indices, base.indices[base.starts[300] : base.starts[500]])
    for m in range(700):
        assert not set(base.row(m).tolist()) & set(graph.by_user.row(m).tolist())
        assert len(set(base.row(m).tolist())) == len(base.row(m))
    other = Sampled(graph.by_user, graph.user_blocks, draws, 2.0, 3).draw(4, sides=(sides[0], side(random, 60, 1.0)))
    assert (other.indices != base.indices).any()
    plain = Sampled(graph.by_user, graph.user_blocks, weights, 2.0, 3).draw(4)
    np.testing.assert_array_equal(other.starts, plain.starts)  # as many as without a tilt


@pytest.mark.parametrize("consideration", ["popularity", "walk"])
def test_bits_of_a_fit_for_any_number_of_threads(consideration: str) -> None:
    settings = {"tilt": 1.0, "consideration": consideration, "sweeps": 4, "seed": 3, "opening": 0}
    one, two = (made(**settings, threads=threads).fit(several_parts()) for threads in (1, 2))
    assert_same(one, two)
    assert not np.array_equal(
        one.posterior_.items.rows, made(**settings | {"tilt": 0.0}).fit(several_parts()).posterior_.items.rows
    )


def test_bits_of_a_fit_in_parts_of_users(tmp_path: Path) -> None:
    """Further shards of items ask for the H of a sweep again, when the users are already stepped."""
    matrix = several_parts()
    wanted = made(tilt=1.0, sweeps=3).fit(matrix)
    assert_same(made(tilt=1.0, sweeps=3).fit(matrix, backend=Here()), wanted)
    assert_same(made(tilt=1.0, sweeps=3).fit(matrix, backend=OutOfCore(tmp_path, item_shards=3)), wanted)


@pytest.mark.parametrize("tilt", [1.0, 0.4, -0.6])
def test_draws_without_replacement_tilt_the_complementary_log_log(tilt: float) -> None:
    """Its slope on the tilt is 1 however much is drawn; that of the logit is near 1 only where little is."""
    logits = []
    for share in (0.09, 0.33, 0.71):
        log_log, logit = study.slopes(share, tilt, seed=1)
        assert log_log == pytest.approx(1.0, abs=0.04)
        logits.append(logit)
    assert 1.0 < logits[0] < 1.1
    assert logits[0] + 0.08 < logits[1] < logits[2] - 0.1


# --- The bound ---


class Dense:
    """A tiny graph with H as an expectation: E[h] = 1 of likes, r of the rest; float64, everything written out."""

    def __init__(self, tilt: float, weight: float) -> None:
        random = np.random.default_rng(2)
        self.g = (random.random((6, 7)) < 0.35).astype(float)
        self.w = random.uniform(0.05, 0.6, (6, 7))
        self.tilt, self.prior = tilt, naive.Prior(offset=-math.log(2.0), weight=weight)
        self.taus = Precisions(Gamma(2.0, 2.0), Gamma(3.0, 2.0), None, Gamma(1.0, 1.0))
        users, items = side(random, 6, 0.6), side(random, 7, 0.6)
        self.users, self.items = naive.Factor.of(Side(3, users.rows)), naive.Factor.of(items)
        self.r = self.w.copy()

    def considered(self) -> np.ndarray:
        return np.where(self.g > 0, 1.0, self.r)

    def bound(self) -> float:
        """L_xi - (rho / t) KL(r || w): with t = rho = 1 that of the model with q(h) = Bernoulli(r)."""
        terms = naive.bound_terms(self.users, self.items, self.taus, self.g, self.considered(), self.prior)
        kl = special.rel_entr(self.r, self.w) + special.rel_entr(1 - self.r, 1 - self.w)
        return math.fsum(terms.values()) - self.prior.weight / self.tilt * float(kl[self.g == 0].sum())

    def update_r(self, sign: float = 1.0) -> None:
        mean, square = naive.logit_moments(self.users, self.items, self.prior.offset)
        self.r = special.expit(
            special.logit(self.w) + sign * self.tilt * reference.log_logistic_bound(mean, square, 0.0, np.sqrt(square))
        )

    def update_row(self, row: int, of_user: bool) -> None:
        """Eq. 13-18 with E[h] = r."""
        _, square = naive.logit_moments(self.users, self.items, self.prior.offset)
        sums = naive.row_sums(
            self.users, self.items, self.g, self.considered(), self.prior, np.sqrt(square), row, of_user=of_user
        )
        tau = self.taus.user if of_user else self.taus.item
        P = sums[0] + tau.mean * np.eye(3)
        new = {"mean": np.linalg.solve(P, sums[1]), "variance": 1.0 / np.diag(P)}
        if of_user:
            self.users = self.users.with_row(row, **new)
        else:
            self.items = self.items.with_row(row, **new)


@pytest.mark.parametrize(("tilt", "weight"), [(1.0, 1.0), (0.4, 1.0), (1.0, 1.5)])
def test_every_step_is_an_ascent_of_the_bound(tilt: float, weight: float) -> None:
    dense = Dense(tilt, weight)
    bounds = [dense.bound()]
    for _ in range(6):
        dense.update_r()
        bounds.append(dense.bound())
        for row in range(6):
            dense.update_row(row, True)
        bounds.append(dense.bound())
        for row in range(7):
            dense.update_row(row, False)
        bounds.append(dense.bound())
    assert (np.diff(bounds) > -1e-10).all()
    assert bounds[-1] > bounds[0] + 0.5
    best = dense.bound()
    dense.update_r(-1.0)  # towards what is liked
    assert dense.bound() < best - 1e-3


def test_r_is_the_argmax_of_the_bound_and_its_offset_is_that_of_the_edges() -> None:
    dense = Dense(0.7, 1.5)
    dense.update_r()
    best = dense.bound()
    free = np.argwhere(dense.g == 0)
    for m, n in free[::3]:
        for factor in (0.97, 1.03):
            moved = dense.r.copy()
            moved[m, n] *= factor
            changed = Dense(0.7, 1.5)
            changed.r = moved
            assert changed.bound() < best
    other = Dense(0.7, 1.5)
    other.prior = replace(other.prior, offset=0.0)  # fair-coin logits in r, the offset in the likelihood
    other.update_r()
    other.prior = dense.prior
    assert other.bound() < best - 1e-4


# --- The score ---


def test_a_user_who_likes_all_has_scores_that_tell_items_apart() -> None:
    """The offset of such a user stands for infinity; nothing was drawn for them."""
    mean, offset = np.array([[-1.0, 0.0, 2.0]], np.float32), np.array([UNBOUNDED - np.log(2.0)])
    plan = FitPlan.of_paper(negatives=2.0, tilt=1.0)
    wanted = tilt_term(mean, plan, np.array([plan.offset]))
    np.testing.assert_array_equal(tilt_term(mean, plan, offset), wanted)
    assert np.ptp(wanted) > 1.0


@pytest.mark.parametrize("consideration", ["popularity", "walk"])
@pytest.mark.parametrize("tilt", [1.0, 0.5, -0.5])
def test_the_score_follows_what_is_drawn(tilt: float, consideration: str) -> None:
    """logit p(g = 1) = a + log r; with r proportional to w exp(t B-) and t = 1 that is log(w s) up to a constant."""
    fitted = made(tilt=tilt, consideration=consideration, sharpness=1, sweeps=6).fit(several_parts()[:400, :120])
    model, users = fitted.model_, np.arange(0, 400, 7)
    liked = model.users.whole().liked
    mean = model.columns.means(model.posterior.users, users).astype(np.float64)
    log_w = model.log_popularity + 0.0 * mean
    if model.consideration is not None:
        log_w += model.consideration.log_ratios(liked.take(users))
    extra = user_offset(liked, model.fold_in.weights, model.plan)
    assert extra is not None, "some users run out of items"
    s = special.expit(mean + model.plan.offset + extra[users, None])
    wanted = mean + log_w + (tilt * np.log(1 - s) if tilt > 0 else -tilt * np.log(s))
    weights = {"popularity": 1.0, "lift": None if model.consideration is None else 1.0}
    scorer = ModelScorer(model, **weights)
    np.testing.assert_allclose(scorer.scores(users), wanted, atol=2e-5)
    if tilt == 1.0:
        np.testing.assert_allclose(np.ptp(wanted - log_w - np.log(s), axis=1), 0.0, atol=1e-9)
    ids, scores = fitted.recommend(users, N=5, **weights, filter_already_liked_items=False)
    np.testing.assert_allclose(scores, np.take_along_axis(scorer.scores(users), ids, axis=1), atol=1e-5)
    np.testing.assert_allclose(scores, -np.sort(-wanted, axis=1)[:, :5], atol=2e-5)


# --- Settings ---


def test_a_tilt_is_refused_where_it_cannot_be() -> None:
    matrix = several_parts()
    for tilt in (-1.1, 1.1, math.nan, "auto"):
        with pytest.raises(UsageError, match=r"tilt is .*; it must be a number at least -1 and at most 1"):
            Parameters(tilt=tilt).plan()  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"tilt is 0\.5 and hidden is 'expected'; only draws are tilted"):
        made(tilt=0.5, hidden="expected").fit(matrix)
    how: dict[str, Any]
    for how in ({"division": "items"}, {"inner_sweeps": 2}):
        with pytest.raises(UsageError, match="divide by users, with inner_sweeps=1, or set tilt=0"):
            made(tilt=0.5).fit(matrix, backend=Here(**how))


def test_the_fingerprint_of_a_checkpoint_has_a_tilt_only_where_there_is_one() -> None:
    def settings(**given: Any) -> dict[str, Any]:
        parameters = Parameters(**given)
        return FitRequest(None, parameters.plan(), parameters=vars(parameters)).settings()

    assert "tilt" not in settings()
    assert settings(tilt=0.5)["tilt"] == 0.5


def test_the_model_file_keeps_the_tilt(tmp_path: Path) -> None:
    matrix = several_parts()[:, :40]
    model = made(tilt=0.25, sweeps=2).fit(matrix)
    model.save(tmp_path / "model.safetensors")
    loaded = Recommender.load(tmp_path / "model.safetensors")
    assert loaded.model_.plan.tilt == loaded.tilt == 0.25
