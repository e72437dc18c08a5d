"""p(like) against quadrature and Monte Carlo, ranking against brute force, and fold-in against training."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from considerate.data.graph import Adjacency, Graph, run_serially
from considerate.data.vocabulary import Vocabulary
from considerate.errors import UsageError
from considerate.evaluation.metrics import rank_score
from considerate.inference.hidden import Expected, Sampled, groups, popularity_weights
from considerate.inference.hidden.groups import taste_clusters
from considerate.inference.hidden.saturation import Saturation
from considerate.inference.plan import FitPlan
from considerate.inference.posterior import Side
from considerate.inference.sweep import InMemory
from considerate.kernels import compiled
from considerate.kernels.threads import LocalBackend
from considerate.model.liking import like_interval, like_probability, sigmoid
from considerate.model.predict import FoldIn, ItemColumns, logit_moments
from considerate.model.ranking import best, explore, log_popularity, paper_score, utility
from considerate.model.users import UserRows
from tests.helpers.randomised import examples

# --- p(like) ---


def test_eq_22_against_quadrature():
    """MacKay's approximation is within 0.015 of the integral for logits of any size and deviations to 4 (within 0.005
    for deviations to 1); without the moderation it would be off by 0.2."""
    nodes, weights = special.roots_hermitenorm(150)
    weights = weights / weights.sum()
    mean, deviation = np.meshgrid(np.linspace(-8, 8, 81), np.linspace(0, 4, 41))
    exact = (special.expit(mean[..., None] + deviation[..., None] * nodes) * weights).sum(axis=-1)
    error = np.abs(like_probability(mean, deviation**2) - exact)
    assert error.max() < 0.015
    assert error[deviation <= 1].max() < 0.005
    assert np.abs(sigmoid(mean) - exact).max() > 0.15
    np.testing.assert_allclose(like_probability(mean, 0 * mean), special.expit(mean), rtol=1e-12)


def random_side(random: np.random.Generator, rows: int, factors: int, bias: bool) -> Side:
    biases = (random.normal(0, 1, rows), random.uniform(0.05, 0.5, rows)) if bias else None
    return Side.of(random.normal(0, 0.8, (rows, factors)), random.uniform(0.05, 0.6, (rows, factors)), biases)


@pytest.mark.parametrize("user_bias", [False, True])
def test_logit_moments_against_monte_carlo(user_bias):
    random = np.random.default_rng(0)
    users, items = random_side(random, 4, 3, user_bias), random_side(random, 5, 3, True)
    mean, variance = logit_moments(users, items, np.repeat(np.arange(4), 5), np.tile(np.arange(5), 4))
    draws = 200_000
    for pair in (0, 7, 19):
        m, n = divmod(pair, 5)
        u = random.normal(users.mean[m], np.sqrt(users.variance[m]), (draws, 3))
        v = random.normal(items.mean[n], np.sqrt(items.variance[n]), (draws, 3))
        a = (u * v).sum(axis=1)
        for side, row in ((users, m), (items, n)):
            a += random.normal(side.biases[0][row], np.sqrt(side.biases[1][row]), draws)
        assert mean[pair] == pytest.approx(a.mean(), abs=5 * a.std() / math.sqrt(draws))
        assert variance[pair] == pytest.approx(a.var(), rel=0.03)


@pytest.mark.parametrize("user_bias", [False, True])
@pytest.mark.parametrize("factors", [1, 7, 20])
def test_products_with_all_items_equal_pairs(user_bias, factors):
    random = np.random.default_rng(1)
    users, items = random_side(random, 6, factors, user_bias), random_side(random, 9, factors, True)
    columns, rows = ItemColumns(items), np.array([4, 0, 4])
    unknown = logit_moments(users, items, np.zeros(1, np.int64), np.array([-1]))
    assert np.isnan(unknown).all(), "an item that is not known"
    mean, variance = logit_moments(users, items, np.repeat(rows, 9), np.tile(np.arange(9), 3))
    np.testing.assert_allclose(columns.means(users, rows).ravel(), mean, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(columns.variances(users, rows).ravel(), variance, rtol=1e-5)


def test_like_interval_holds_90_percent():
    random = np.random.default_rng(2)
    low, high = like_interval(np.array([0.7]), np.array([2.0]))
    drawn = special.expit(random.normal(0.7, math.sqrt(2.0), 100_000))
    assert ((drawn > low) & (drawn < high)).mean() == pytest.approx(0.9, abs=0.004)


def test_sigmoid_does_not_overflow():
    np.testing.assert_allclose(sigmoid(np.array([-1e4, 0.0, 1e4])), [0.0, 0.5, 1.0], atol=1e-12)


# --- Ranking ---


@examples(300)
@given(
    scores=st.lists(st.sampled_from([-2.0, 0.0, 0.5, 1.0, 3.25]), min_size=1, max_size=30),
    k=st.integers(0, 35),
    excluded=st.lists(st.booleans(), min_size=30, max_size=30),
    exclude=st.booleans(),
)
def test_best_against_brute_force(scores, k, excluded, exclude):
    """Many ties, exclusions, and fewer left than asked for."""
    mask = np.array(excluded[: len(scores)]) if exclude else None
    allowed = [n for n in range(len(scores)) if mask is None or not mask[n]]
    expected = sorted(allowed, key=lambda n: (-scores[n], n))[:k]
    assert best(np.array(scores), k, mask).tolist() == expected


def test_best_of_nothing_is_nothing():
    assert best(np.ones(3), 2, np.ones(3, bool)).tolist() == []


def test_paper_scores_against_a_table():
    """Two items of popularity 9 and 4, logits 0 and log 3 that are certain: p(like) is 1/2 and 3/4."""
    mean, variance, pi = np.array([0.0, math.log(3.0)]), np.zeros(2), np.array([9.0, 4.0])
    np.testing.assert_allclose(paper_score("like", mean, variance, pi), [0.5, 0.75])
    np.testing.assert_allclose(paper_score("popularity", mean, variance, pi), [9.0, 4.0])
    np.testing.assert_allclose(paper_score("popularity_x_like", mean, variance, pi), [4.5, 3.0])
    moderated = paper_score("like", np.array([1.0]), np.array([8.0 / math.pi]), np.array([1.0]))
    np.testing.assert_allclose(moderated, special.expit(1 / math.sqrt(2)))
    with pytest.raises(UsageError, match="popularity_x_like"):
        paper_score("odds", mean, variance, pi)


def test_popularity_against_a_table_worked_by_hand():
    """Items liked 4, 1, 0 and 2 times."""
    graph = Graph.from_pairs(np.array([0, 1, 2, 3, 0, 1, 2], np.int32), np.array([0, 0, 0, 0, 1, 3, 3], np.int32), 4, 4)
    np.testing.assert_array_equal(graph.by_item.degrees, [4, 1, 0, 2])
    weights = popularity_weights(graph.by_item.degrees, 0.5)
    np.testing.assert_allclose(weights, [2.0, 1.0, 0.0, math.sqrt(2.0)])
    log_pi = log_popularity(weights, 0.5)
    np.testing.assert_allclose(log_pi, [math.log(2), 0.0, -0.5 * math.log(2), 0.5 * math.log(2)], atol=1e-7)
    scores = utility(np.zeros(4, np.float32), log_pi, 1.0)
    assert best(scores, 4).tolist() == [0, 3, 1, 2]
    np.testing.assert_allclose(utility(np.arange(4.0), log_pi, 0.5), np.arange(4.0) + 0.5 * log_pi, rtol=1e-6)


@pytest.mark.parametrize("gamma", [1.0, 0.3, 0.0, -0.7])
def test_log_popularity_has_no_nan(gamma):
    weights = popularity_weights(np.array([0, 1, 10, 500, 0]), gamma)
    log_pi = log_popularity(weights, gamma)
    assert np.isfinite(log_pi).all()
    assert log_pi[0] == log_pi.min(), "an item nobody liked is last, or level with the last"
    with np.errstate(all="raise"):
        scores = utility(np.zeros(5, np.float32), log_pi, 0.0)
    np.testing.assert_array_equal(scores, 0.0)


def test_exploration_is_a_function_of_seed_and_user():
    scores, variance = np.zeros((3, 400), np.float32), np.full((3, 400), 4.0, np.float32)
    np.testing.assert_allclose(explore(scores, variance, 1.5, None, np.arange(3)), 3.0)
    drawn = explore(scores, variance, 0.0, 7, np.array([5, 6, 5]))
    np.testing.assert_array_equal(drawn[0], drawn[2])
    assert not np.array_equal(drawn[0], drawn[1])
    assert drawn.std() == pytest.approx(2.0, rel=0.1)
    np.testing.assert_array_equal(explore(scores[:1], variance[:1], 0.0, 7, np.array([6]))[0], drawn[1])


# --- S_rank ---


@examples(200)
@given(seed=st.integers(0, 10**6), items=st.integers(2, 25))
def test_rank_score_against_brute_force(seed, items):
    """Eq. 23: the items not seen that score below, over all items not seen with the held-out one; ties count half."""
    random = np.random.default_rng(seed)
    scores = random.integers(0, 6, items).astype(float)
    order = random.permutation(items)
    held_out, seen = int(order[0]), order[1 : 1 + random.integers(0, items - 1)]
    free = [n for n in range(items) if n not in set(seen.tolist())]
    won = sum(1.0 if scores[n] < scores[held_out] else 0.5 * (scores[n] == scores[held_out]) for n in free)
    won -= 0.5  # itself
    assert rank_score(scores, held_out, seen) == pytest.approx(won / len(free))


def test_rank_score_by_hand():
    scores = np.array([5.0, 1.0, 3.0, 3.0, 9.0])
    assert rank_score(scores, 2, np.array([4])) == pytest.approx((1 + 0.5) / 4)
    assert rank_score(scores, 0, np.array([4])) == pytest.approx(3 / 4)
    assert rank_score(scores, 1, np.array([], np.int64)) == 0.0
    assert rank_score(scores, 0, np.array([0, 4])) == pytest.approx(3 / 4), "it is in its own denominator, seen or not"


@pytest.mark.usefixtures("each_instruction_set")
@pytest.mark.parametrize("k", [1, 2, 7, 39, 40, 199, 200, 203])
def test_the_kernels_best_of_many_that_tie(k: int) -> None:
    """Short and long lists, few distinct scores: the lower index first, as `best` has it."""
    random = np.random.default_rng(k)
    items, users = 203, 6 + k % 6  # the kernel scores six users at a time, then the rest
    side = Side.constant(items, 3, 1.0, 0.0)
    side.rows[:, :3] = random.integers(-2, 3, (items, 3))
    side.bias_mean[:] = random.integers(-1, 2, items)
    vectors = random.integers(-1, 2, (users, 3)).astype(np.float32)
    base = np.full(-(-items // 16) * 16, -np.inf, np.float32)
    base[:items] = np.where(random.random(items) < 0.1, -np.inf, side.bias_mean)
    seen = [np.sort(random.choice(items, 5, replace=False)).astype(np.int32) for _ in range(users)]
    ids, scores = compiled.top_items(
        3,
        vectors,
        3,
        np.arange(users),
        ItemColumns(side).strips,
        base,
        k,
        np.arange(users + 1) * 5,
        np.concatenate(seen),
    )
    for user in range(users):
        values = vectors[user] @ side.mean.T + base[:items]
        excluded = np.zeros(items, bool)
        excluded[seen[user]] = True
        expected = best(values, k, excluded)
        assert ids[user, : len(expected)].tolist() == expected.tolist()
        assert scores[user, : len(expected)].tolist() == values[expected].tolist()
        assert (ids[user, len(expected) :] == -1).all()
        assert np.isnan(scores[user, len(expected) :]).all()


# --- Fold-in ---


def clustered(users: int = 300, items: int = 60) -> Graph:
    random = np.random.default_rng(3)
    same = (np.arange(users)[:, None] % 3) == (np.arange(items) % 3)
    liked = random.random((users, items)) < np.where(same, 0.5, 0.05)
    user, item = np.nonzero(liked)
    return Graph.from_pairs(user.astype(np.int32), item.astype(np.int32), users, items)


@pytest.fixture(scope="module", params=["sampled", "expected"])
def trained(request):
    """A graph, its posterior after 40 sweeps, and a fold-in of it."""
    graph, negatives = clustered(), 2.0
    fit_settings = FitPlan.of_paper(factors=4, negatives=negatives, step_delay=5, user_bias=request.param == "expected")
    weights = popularity_weights(graph.by_item.degrees, 1.0)
    common = (graph.by_user, graph.user_blocks, weights, negatives)
    if request.param == "sampled":
        estimator = Sampled(*common, 1)
    else:
        estimator = Expected(*common, fit_settings.offset, 16, run_serially)
    with LocalBackend(1) as backend:
        for done in InMemory(graph, estimator, fit_settings, backend).sweeps():
            if done.state.sweep == 40:
                break
    posterior = done.state.posterior
    return graph, posterior, FoldIn(posterior, weights, replace(fit_settings, groups=16))


def test_fold_in_of_a_training_user_is_close_to_training(trained):
    graph, posterior, fold_in = trained
    folded = fold_in.users(graph.by_user)
    rows = np.arange(graph.user_count)
    columns = ItemColumns(posterior.items)
    mine, theirs = columns.means(folded, rows), columns.means(posterior.users, rows)
    correlation = [np.corrcoef(a, b)[0, 1] for a, b in zip(mine, theirs)]
    assert np.std(theirs) > 0.3, "something was learned"
    assert min(correlation) > 0.8
    assert np.median(correlation) > 0.97
    np.testing.assert_allclose(folded.variance.mean(), posterior.users.variance.mean(), rtol=0.1)
    assert np.corrcoef(mine[0], theirs[1])[0, 1] < 0.8, "users differ, or this would say nothing"


def test_fold_in_does_not_depend_on_the_others_of_the_batch(trained):
    graph, _, fold_in = trained
    together = fold_in.users(graph.by_user)
    for user in (0, 17, 299):
        row = graph.by_user.row(user)
        alone = fold_in.users(Adjacency(np.array([0, len(row)], np.int64), row.copy()))
        np.testing.assert_allclose(alone.mean[0], together.mean[user], atol=2e-4)
        np.testing.assert_allclose(alone.variance[0], together.variance[user], rtol=2e-4)


def test_fold_in_makes_the_items_tables_once(trained, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, _, trained_fold_in = trained
    calls, tabulate = [], Saturation.tabulate
    fold_in = replace(trained_fold_in)
    monkeypatch.setattr(groups, "taste_clusters", lambda *args: calls.append(1) or taste_clusters(*args))
    monkeypatch.setattr(Saturation, "tabulate", lambda *args: calls.append(2) or tabulate(*args))
    first = fold_in.users(graph.by_user)
    made = len(calls)
    assert {*calls} == {1, 2}
    np.testing.assert_array_equal(fold_in.users(graph.by_user).rows, first.rows)
    assert len(calls) == made


def test_fold_in_of_nothing_is_the_prior(trained):
    _, posterior, fold_in = trained
    nobody = fold_in.users(Adjacency(np.zeros(2, np.int64), np.empty(0, np.int32)))
    assert not nobody.mean.any()
    np.testing.assert_allclose(nobody.variance, 1.0 / posterior.precisions.user.mean, rtol=1e-6)
    if nobody.has_bias:
        assert nobody.biases[0][0] == 0.0
        assert nobody.biases[1][0] == pytest.approx(1.0 / posterior.precisions.user_bias.mean)


def test_fold_in_of_a_training_item_is_close_to_training(trained):
    graph, posterior, fold_in = trained
    chosen = np.arange(0, 60, 10)
    starts = np.concatenate([[0], np.cumsum(graph.by_item.degrees[chosen])]).astype(np.int64)
    liked_by = Adjacency(starts, np.concatenate([graph.by_item.row(n) for n in chosen]))
    users = UserRows(posterior.users, graph.by_user.degrees, graph.by_user, Vocabulary.range(graph.user_count))
    temperature = fold_in.passing(users)
    folded = fold_in.items(liked_by, posterior.users, temperature, liked_by.degrees.astype(float))
    np.testing.assert_allclose(folded.biases[0], posterior.items.biases[0][chosen], atol=0.1)
    for i, n in enumerate(chosen):
        assert np.corrcoef(posterior.users.mean @ folded.mean[i], posterior.users.mean @ posterior.items.mean[n])[
            0, 1
        ] == pytest.approx(1.0, abs=0.15)
