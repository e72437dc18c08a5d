"""Ranks of held-out likes: the kernel against its NumPy twin, blocks and threads, NaN, lists, and the scorers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from considerate import Recommender
from considerate.data.graph import Graph
from considerate.errors import DataError, UsageError
from considerate.evaluation import ranks as ranks_module
from considerate.evaluation.ranks import held_ranks, ranks_and_lists
from considerate.evaluation.scorer import FunctionScorer, ModelScorer, Scorer, as_scorer
from considerate.evaluation.split import HeldOut, one_per_user, share_per_user
from considerate.kernels import compiled
from considerate.kernels.threads import LocalBackend
from considerate.model.ranking import paper_score, utility
from tests.helpers import naive_ranking as naive
from tests.helpers.likes import planted, skewed
from tests.helpers.randomised import examples


def graph_of(likes) -> Graph:
    users, items = likes.nonzero()
    return Graph.from_pairs(users.astype(np.int32), items.astype(np.int32), *likes.shape)


@st.composite
def rows_of_scores(draw, most_items=40):
    """Scores with many ties and infinities, what each row has seen, and held-out items that it has not."""
    rows, items = draw(st.integers(0, 5)), draw(st.integers(1, most_items))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scores = random.choice([-np.inf, -1.5, 0.0, 0.25, 3.0, np.inf], (rows, items))
    smooth = random.random((rows, items)) < draw(st.sampled_from([0.0, 0.5, 1.0]))
    scores = np.where(smooth, random.normal(size=(rows, items)), scores)
    scores = scores.astype(draw(st.sampled_from([np.float32, np.float64])))
    seen, held = [], []
    for _ in range(rows):
        order = random.permutation(items)
        cut = int(random.integers(0, items + 1))
        seen.append(np.sort(order[:cut]).astype(np.int32))
        held.append(order[cut : cut + int(random.integers(0, 12))].astype(np.int32))
    return scores, held, seen


def laid_out(lists):
    starts = np.concatenate([[0], np.cumsum([len(one) for one in lists])]).astype(np.int64)
    return starts, np.concatenate([np.empty(0, np.int32), *lists]).astype(np.int32)


@pytest.mark.usefixtures("each_instruction_set")
def test_compiled_ranks_are_the_references() -> None:
    @examples(150)
    @given(rows_of_scores())
    def check(case) -> None:
        scores, held, seen = case
        arguments = (scores, *laid_out(held), *laid_out(seen))
        above, ties, bad = compiled.count_ranks(*arguments)
        expected = naive.count_ranks(*arguments)
        assert bad == expected[2] == -1
        assert np.array_equal(above, expected[0])
        assert np.array_equal(ties, expected[1])

    check()


@st.composite
def weighted_rows(draw):
    """Logits, log pi and lifts of few values, so that scores tie and no sum is rounded, and pairs of weights."""
    rows, held, seen = draw(rows_of_scores(most_items=1100))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    logits, lifts = random.integers(-4, 5, (2, *rows.shape)).astype(np.float32)
    weights = random.choice([-1.0, 0.0, 0.25, 1.0, 1.5, 16.0], (draw(st.integers(0, 5)), 2)).astype(np.float32)
    lifts = draw(st.sampled_from([lifts, None]))
    return logits, random.integers(-4, 5, rows.shape[1]).astype(np.float32), lifts, weights, held, seen


@pytest.mark.usefixtures("each_instruction_set")
def test_ranks_for_many_weights_are_those_of_each() -> None:
    @examples(60)
    @given(weighted_rows())
    def check(case) -> None:
        logits, log_pi, lifts, weights, held, seen = case
        rows = (*laid_out(held), *laid_out(seen))
        above, ties, bad = compiled.count_weighted_ranks(logits, log_pi, lifts, weights, *rows)
        assert bad == -1
        assert above.shape == ties.shape == (len(weights), len(rows[1]))
        for pair, (k, theta) in enumerate(weights):
            expected = naive.count_ranks(logits + k * log_pi + (0 if lifts is None else theta * lifts), *rows)
            assert np.array_equal(above[pair], expected[0])
            assert np.array_equal(ties[pair], expected[1])

    check()


@pytest.mark.usefixtures("each_instruction_set")
def test_items_alike_tie_wherever_they_stand() -> None:
    """A score is made by the same operations for the held item, for those seen and for the others."""
    random = np.random.default_rng(0)
    logit, log_pi, lift = random.normal(size=3).astype(np.float32)
    for items in (7, 8, 1031):
        logits, lifts = np.full((1, items), logit), np.full((1, items), lift)
        seen = np.arange(1, items, 2, dtype=np.int32)
        weights = random.normal(size=(40, 2)).astype(np.float32)
        rows = (*laid_out([np.array([0, 4], np.int32)]), *laid_out([seen]))
        above, ties, _ = compiled.count_weighted_ranks(logits, np.full(items, log_pi), lifts, weights, *rows)
        assert not above.any()
        assert (ties == items - len(seen) - 1).all()


def test_weights_and_rows_that_are_wrong_are_refused() -> None:
    rows = np.array([0, 1]), np.array([0], np.int32), np.array([0, 0]), np.empty(0, np.int32)
    logits, log_pi, weights = np.zeros((1, 5), np.float32), np.zeros(5, np.float32), np.zeros((1, 2), np.float32)
    wrong = np.full((1, 5), np.nan, np.float32)
    assert compiled.count_weighted_ranks(wrong, log_pi, None, weights, *rows)[2] == 0
    assert compiled.count_weighted_ranks(logits, log_pi, wrong, weights, *rows)[2] == 0
    for arguments in (
        (logits, log_pi[1:], None, weights),
        (logits, log_pi, logits[:, 1:].copy(), weights),
        (logits, log_pi, None, weights[:, :1].copy()),
        (logits, log_pi, None, weights + np.float32(np.inf)),
        (logits, wrong[0], None, weights),
    ):
        with pytest.raises(ValueError):
            compiled.count_weighted_ranks(*arguments, *rows)


@pytest.mark.usefixtures("each_instruction_set")
def test_compiled_lists_are_the_references() -> None:
    @examples(150)
    @given(rows_of_scores(), st.integers(1, 50))
    def check(case, k) -> None:
        scores, _, seen = case
        ids, bad = compiled.best_of_rows(scores, k, *laid_out(seen))
        expected = naive.best_of_rows(scores, k, *laid_out(seen))
        assert bad == expected[1] == -1
        assert np.array_equal(ids, expected[0])

    check()


@examples(100)
@given(rows_of_scores(most_items=12))
def test_the_reference_counts_as_brute_force_does(case) -> None:
    scores, held, seen = case
    above, ties, _ = naive.count_ranks(scores, *laid_out(held), *laid_out(seen))
    edge = 0
    for row in range(len(scores)):
        for item in held[row]:
            candidates = scores.shape[1] - len(seen[row])
            got = (candidates - 1 - above[edge] - 0.5 * ties[edge]) / candidates
            assert got == pytest.approx(naive.rank_score(list(scores[row]), list(seen[row]), int(item)))
            edge += 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_nan_is_found_wherever_it_is(dtype) -> None:
    starts, held, nothing = np.array([0, 1, 2]), np.array([0, 0], np.int32), np.zeros(3, np.int64)
    for place in (0, 7, 18):
        scores = np.zeros((2, 19), dtype)
        scores[1, place] = np.nan
        assert compiled.count_ranks(scores, starts, held, nothing, np.empty(0, np.int32))[2] == 1
        assert compiled.best_of_rows(scores, 3, nothing, np.empty(0, np.int32))[1] == 1


@pytest.mark.parametrize(
    ("held", "seen_starts", "seen"),
    [([5], [0, 0], []), ([-1], [0, 0], []), ([0], [0, 1], [5]), ([0], [0, 2], [1]), ([0], [1, 0], [1]), ([0], [0], [])],
)
def test_the_kernels_refuse_what_would_be_read_out_of_bounds(held, seen_starts, seen) -> None:
    scores = np.zeros((1, 5), np.float32)
    rows = np.array(seen_starts, np.int64), np.array(seen, np.int32)
    with pytest.raises(ValueError):
        compiled.count_ranks(scores, np.array([0, 1]), np.array(held, np.int32), *rows)
    if held == [0]:
        with pytest.raises(ValueError):
            compiled.best_of_rows(scores, 2, *rows)


def test_scores_of_another_type_are_refused_by_the_kernel_and_another_layout_is_not_misread() -> None:
    nothing = np.zeros(3, np.int64), np.empty(0, np.int32)
    with pytest.raises((TypeError, ValueError)):
        compiled.best_of_rows(np.zeros((2, 5), np.int64), 2, *nothing)
    turned = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32).T
    assert np.array_equal(compiled.best_of_rows(turned, 2, *nothing)[0], naive.best_of_rows(turned, 2, *nothing)[0])


# --- From a scorer ---


@pytest.fixture(scope="module")
def held() -> HeldOut:
    return share_per_user(graph_of(skewed()), 3, 0.3)


def table_scorer(held: HeldOut, seed: int = 0, levels: int = 9) -> FunctionScorer:
    table = np.random.default_rng(seed).integers(0, levels, (held.train.user_count, held.train.item_count))
    return FunctionScorer(lambda users: table[users], "table")


def test_every_rank_against_brute_force(held: HeldOut) -> None:
    scorer = table_scorer(held)
    found = held_ranks(scorer, held)
    assert np.array_equal(found.users, held.users)
    assert np.array_equal(found.items, held.items)
    for edge, (user, item) in enumerate(zip(held.users, held.items)):
        scores = list(scorer.scores(np.array([user]))[0])
        expected = naive.rank_score(scores, held.train.by_user.row(int(user)).tolist(), int(item))
        assert found.scores[edge] == pytest.approx(expected)


def test_held_out_edges_come_back_in_their_own_order(held: HeldOut) -> None:
    order = np.random.default_rng(0).permutation(len(held.users))
    shuffled = HeldOut(held.train, held.users[order], held.items[order])
    scorer = table_scorer(held)
    assert np.array_equal(held_ranks(scorer, shuffled).above, held_ranks(scorer, held).above[order])
    assert np.array_equal(held_ranks(scorer, shuffled).ties, held_ranks(scorer, held).ties[order])


def test_blocks_and_threads_change_nothing(held: HeldOut, monkeypatch) -> None:
    scorer = table_scorer(held)
    whole, lists = ranks_and_lists(scorer, held, 7)
    monkeypatch.setattr(
        ranks_module, "_blocks", lambda users, items: [slice(a, min(a + 7, users)) for a in range(0, users, 7)]
    )
    with LocalBackend(2) as backend:
        parts, part_lists = ranks_and_lists(scorer, held, 7, backend.map)
    assert np.array_equal(whole.above, parts.above)
    assert np.array_equal(whole.ties, parts.ties)
    assert np.array_equal(lists, part_lists)


def test_lists_are_the_best_of_each_user_without_the_seen(held: HeldOut) -> None:
    scorer = table_scorer(held)
    ranks, lists = ranks_and_lists(scorer, held, 5)
    for row, user in enumerate(ranks.people):
        scores, seen = scorer.scores(np.array([user]))[0], set(held.seen.row(int(user)).tolist())
        free = [n for n in range(held.train.item_count) if n not in seen]
        assert lists[row].tolist() == sorted(free, key=lambda n: (-scores[n], n))[:5]


def test_a_list_ends_where_nothing_is_left() -> None:
    train = Graph.from_pairs(np.array([0, 0], np.int32), np.array([0, 2], np.int32), 2, 3)
    held = HeldOut(train, np.array([0, 1]), np.array([1, 0]))
    _, lists = ranks_and_lists(FunctionScorer(lambda users: np.zeros((len(users), 3)), "flat"), held, 4)
    assert lists is not None
    assert lists.tolist() == [[1, -1, -1, -1], [0, 1, 2, -1]]


def test_nan_is_refused_with_the_scorers_name(held: HeldOut) -> None:
    def scores(users):
        found = np.zeros((len(users), held.train.item_count))
        found[users == 11, 4] = np.nan
        return found

    with pytest.raises(DataError, match=r"holey.*NaN"):
        held_ranks(FunctionScorer(scores, "holey"), held)
    with pytest.raises(DataError, match="NaN"):
        ranks_and_lists(FunctionScorer(scores, "holey"), held, 3)


def test_scores_of_another_shape_are_refused(held: HeldOut) -> None:
    with pytest.raises(DataError, match=r"short.*expected"):
        held_ranks(FunctionScorer(lambda users: np.zeros((len(users), 3)), "short"), held)
    with pytest.raises(UsageError):
        ranks_and_lists(table_scorer(held), held, 0)


def test_float64_scores_that_float32_cannot_tell_apart_do_not_tie() -> None:
    held = one_per_user(graph_of(planted(users=20, items=30)), 0)
    base = 1.0 + 1e-12 * np.arange(30)
    found = held_ranks(FunctionScorer(lambda users: np.tile(base, (len(users), 1)), "fine"), held)
    assert found.ties.max() == 0


# --- Scorers ---


@pytest.fixture(scope="module")
def fitted() -> Recommender:
    return Recommender(factors=4, sweeps=4, user_bias=True).fit(skewed())


@pytest.mark.parametrize("knob", [None, 0.0, 0.5, 1.0])
def test_the_models_scorer_gives_the_scores_of_recommend(fitted: Recommender, knob) -> None:
    users = np.array([5, 0, 17])
    scores = ModelScorer(fitted.model_, knob, lift=0.0).scores(users)
    model = fitted.model_
    weight = model.plan.popularity if knob is None else knob
    mean = model.columns.means(model.posterior.users, users)
    assert scores == pytest.approx(utility(mean, model.log_popularity, weight), abs=1e-5)
    ids, given_scores = fitted.recommend(users, N=5, popularity=knob, lift=0.0)
    assert np.take_along_axis(scores, ids.astype(np.int64), 1) == pytest.approx(given_scores, abs=1e-5)


@pytest.mark.parametrize("score", ["like", "popularity", "popularity_x_like"])
def test_the_papers_scores_are_ranked_alike(fitted: Recommender, score: str) -> None:
    model, users = fitted.model_, np.arange(40)
    found = ModelScorer(model, score=score).scores(users)
    mean = model.columns.means(model.posterior.users, users).astype(float)
    variance = model.variance_scale * model.columns.variances(model.posterior.users, users).astype(float)
    expected = paper_score(score, mean, variance, model.popularity)
    for own, wanted in zip(found, expected):
        order = np.argsort(own, kind="stable")
        assert (np.diff(wanted[order]) >= -1e-5 * np.abs(wanted).max()).all()


def test_scores_and_knob_do_not_go_together(fitted: Recommender) -> None:
    with pytest.raises(UsageError):
        ModelScorer(fitted.model_, 0.5, "like")
    with pytest.raises(UsageError):
        ModelScorer(fitted.model_, score="best")


class OddRecommender:
    """implicit's signature: the even items by falling number, and nothing else."""

    def __init__(self) -> None:
        self.given = None

    def recommend(self, userid, user_items, N=10, filter_already_liked_items=True):
        self.given = user_items
        order = np.arange(18, -1, -2)
        ids = np.concatenate([order, [-1] * (N - len(order))])
        return np.tile(ids, (len(userid), 1)), np.zeros((len(userid), N))


def test_an_object_with_recommend_is_scored_by_its_order() -> None:
    likes = planted(users=10, items=20)
    odd = OddRecommender()
    scorer = as_scorer(odd, 20, train=graph_of(likes).by_user)
    assert isinstance(scorer, Scorer)
    assert scorer.name == "OddRecommender"
    scores = scorer.scores(np.array([3, 1]))
    assert np.array_equal(odd.given.toarray(), likes[[3, 1]].toarray())
    assert np.argsort(-scores[0], kind="stable")[:10].tolist() == list(range(18, -1, -2))
    assert len(set(scores[0, 1::2])) == 1, "what it leaves out ties"
    assert scores[0, 1] < scores[0, 0]


def test_objects_that_can_be_scorers(fitted: Recommender) -> None:
    assert isinstance(as_scorer(fitted, 60), ModelScorer)
    assert isinstance(as_scorer(fitted.model_, 60, name="ours"), ModelScorer)
    scorer = table_scorer(one_per_user(graph_of(skewed()), 0))
    assert as_scorer(scorer, 60) is scorer
    assert as_scorer(lambda users: np.zeros((len(users), 60)), 60, name="flat").name == "flat"
    with pytest.raises(UsageError, match="cannot be evaluated"):
        as_scorer(3, 60)


def test_a_scorer_of_whole_numbers_is_ranked_as_any(held: HeldOut) -> None:
    """Neighbours above 2^24, which float32 cannot tell apart."""
    table = 2**25 + np.random.default_rng(0).permuted(np.tile(np.arange(60), (300, 1)), axis=1)

    class Whole:
        name = "whole"

        def scores(self, users):
            return table[users]

    found = held_ranks(Whole(), held)
    assert found.ties.max() == 0
    assert np.array_equal(
        found.above, held_ranks(FunctionScorer(lambda users: table[users] - 2.0**25, "same"), held).above
    )
