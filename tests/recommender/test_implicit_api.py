"""implicit's signatures, order of arguments and returns: its user changes the import and the constructor."""

from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from considerate import Recommender
from considerate.errors import UnknownIdError, UsageError
from considerate.inference.posterior import Side
from tests.helpers.likes import checkerboard, planted, skewed

# inspect.signature of implicit 0.7.3's AlternatingLeastSquares, without self; None of its own is written "None" here
IMPLICIT = {
    "fit": "user_items, show_progress=, callback=None",  # its show_progress is True; ours is silent unless asked
    "recommend": (
        "userid, user_items=, N=10, filter_already_liked_items=True, filter_items=None, recalculate_user=False, "
        "items=None"  # its user_items has no default
    ),
    "similar_items": "itemid, N=10, recalculate_item=False, item_users=None, filter_items=None, items=None",
    "similar_users": "userid, N=10, filter_users=None, users=None",
    "partial_fit_users": "userids, user_items",
    "partial_fit_items": "itemids, item_users",
    "save": "fileobj_or_path",
    "load": "fileobj_or_path",
}


@pytest.fixture(scope="module")
def fitted() -> Recommender:
    return Recommender(factors=4, sweeps=15, consideration="popularity").fit(planted())


@pytest.fixture(scope="module")
def on_skewed() -> Recommender:
    return Recommender(factors=4, sweeps=15, consideration="popularity").fit(skewed())


@pytest.mark.parametrize("name", IMPLICIT)
def test_arguments_have_implicits_names_and_order(name: str) -> None:
    ours = inspect.signature(getattr(Recommender, name)).parameters.values()
    positional = [one for one in ours if one.kind is one.POSITIONAL_OR_KEYWORD and one.name != "self"]
    expected = IMPLICIT[name].split(", ")
    for one, theirs in zip(positional, expected):
        default = "" if one.default is one.empty else f"={one.default}"
        assert f"{one.name}{default}".startswith(theirs)
        assert theirs.endswith("=") or theirs == f"{one.name}{default}"
    assert len(positional) >= len(expected)
    for one in positional[len(expected) :]:  # what is ours comes after, and may be left out
        assert one.default is not one.empty


ESTIMATORS = [
    {"hidden": "sampled"},
    {"hidden": "expected"},
    {"hidden": "sampled", "user_bias": True},
    {"hidden": "expected", "user_bias": True},
    {"hidden": "sampled", "negatives": 0.5},
    {"hidden": "sampled", "likelihood_weight": 2.0},
]


@pytest.mark.parametrize("settings", ESTIMATORS, ids=str)
@pytest.mark.parametrize("knob", [0.0, 0.5, 1.0])
def test_checkerboard(settings: dict[str, Any], knob: float) -> None:
    """The one item that all users of one's own kind like, but oneself, comes first: for each of the fifty users."""
    likes = checkerboard(50)
    recommender = Recommender(factors=3, **settings).fit(likes)
    ids, scores = recommender.recommend(np.arange(50), likes, N=1, popularity=knob)
    assert np.array_equal(ids[:, 0], np.arange(50))
    for user in range(0, 50, 7):
        one, score = recommender.recommend(user, likes[user], N=1, popularity=knob)
        assert one.tolist() == [user]
        assert score[0] == pytest.approx(scores[user, 0], rel=1e-5)
    similar = recommender.similar_items(4, N=25)[0]
    assert similar[0] == 4
    assert np.all(similar % 2 == 0)
    assert np.all(recommender.similar_users(7, N=25)[0] % 2 == 1)


def test_one_in_one_dimension_out_several_in_two_out(fitted: Recommender) -> None:
    for ask in (fitted.recommend, fitted.similar_items, fitted.similar_users):
        ids, scores = ask(3, N=4)
        assert ids.shape == scores.shape == (4,)
        assert (ids.dtype, scores.dtype) == (np.int32, np.float32)
        for several in ([3, 1, 3], np.array([3, 1, 3]), (3, 1, 3), np.array([3, 1, 3], np.uint8)):
            all_ids, all_scores = ask(several, N=4)
            assert all_ids.shape == all_scores.shape == (3, 4)
            assert (all_ids.dtype, all_scores.dtype) == (np.int32, np.float32)
            assert np.array_equal(all_ids[[0, 2]], [ids, ids])
            np.testing.assert_allclose(all_scores[[0, 2]], [scores, scores], rtol=1e-5)
        assert ask([], N=4)[0].shape == (0, 4)
        assert ask(np.int64(3), N=4)[0].shape == (4,)
        assert ask([3], N=4)[0].shape == (1, 4)


def test_the_order_and_the_scores(fitted: Recommender) -> None:
    """Scores fall, and equal mean logit + popularity * log pi of the items."""
    ids, scores = fitted.recommend(5, N=40)
    assert np.all(np.diff(scores) <= 0)
    mean, _ = fitted.predict_logit(5, ids)
    for knob, given in ((0.5, None), (0.0, 0.0), (1.0, 1.0), (-0.5, -0.5)):
        ids, scores = fitted.recommend(5, N=40, popularity=given)
        mean, _ = fitted.predict_logit(5, ids)
        np.testing.assert_allclose(scores, mean + knob * np.log(fitted.popularity_[ids]), rtol=1e-4, atol=1e-4)


def test_probabilities_and_logits_of_pairs(fitted: Recommender) -> None:
    mean, deviation = fitted.predict_logit(2, 3)
    assert isinstance(mean, float)
    expected = fitted.user_factors[2] @ fitted.item_factors[3] + fitted.posterior_.items.biases[0][3]
    assert mean == pytest.approx(expected, rel=1e-5)
    assert deviation > 0
    moderated = 1 / (1 + np.exp(-mean / np.sqrt(1 + np.pi * deviation**2 / 8)))  # eq. 22
    assert fitted.predict_proba(2, 3) == pytest.approx(moderated, rel=1e-5)
    assert fitted.predict_proba([2, 4], 3).shape == (2,)
    table = fitted.predict_proba(np.arange(5)[:, None], np.arange(7)[None, :])
    assert table.shape == (5, 7)
    assert table[2, 3] == pytest.approx(moderated, rel=1e-5)
    with pytest.raises(UnknownIdError, match="item 40 is not in the model, which has items 0 to 39"):
        fitted.predict_proba(0, 40)


def test_filters(fitted: Recommender) -> None:
    likes = planted()
    liked = set(likes[8].indices)
    ids, _ = fitted.recommend(8, N=40)
    assert liked.isdisjoint(ids)
    assert len(ids) == 40 - len(liked)  # fewer than N, and no filler
    everything, _ = fitted.recommend(8, N=40, filter_already_liked_items=False)
    assert sorted(everything) == list(range(40))
    assert set(fitted.recommend(8, N=40, filter_items=[0, 2, 4])[0]) == set(ids) - {0, 2, 4}
    assert list(fitted.recommend(8, N=40, items=[9, 1, 7], filter_already_liked_items=False)[0]) == [
        one for one in everything if one in (1, 7, 9)
    ]
    assert set(fitted.recommend(8, N=40, items=list(ids[:5]), filter_items=ids[:2])[0]) == set(ids[2:5])
    assert fitted.recommend(8, items=[])[0].shape == (0,)
    assert set(fitted.recommend(8, N=40, filter_items=[])[0]) == set(ids)
    assert fitted.recommend(8, N=400)[0].shape == ids.shape


def test_user_items_are_what_is_filtered(fitted: Recommender) -> None:
    """They need not be those of training; a matrix, an array or a row of one, or a list of items for one user."""
    other = sp.csr_matrix(([1.0, 1.0], ([0, 0], [3, 30])), shape=(1, 40))
    wanted = set(range(40)) - {3, 30}
    row_of_array = sp.csr_array(other)[0] if hasattr(sp, "csr_array") else other  # one dimension in recent scipy
    for given in (other, sp.coo_matrix(other), sp.csr_array(other), row_of_array, [3, 30], np.array([30, 3, 3])):
        assert set(fitted.recommend(8, given, N=40)[0]) == wanted
    with pytest.raises(UsageError, match="user_items has 1 rows for 2 users"):
        fitted.recommend([8, 9], other)
    with pytest.raises(UsageError, match="the matrix has 41 columns and the model knows 40"):
        fitted.recommend(8, sp.csr_matrix((1, 41)))
    with pytest.raises(UsageError, match="zero, negative or NaN"):
        fitted.recommend(8, -other)
    with pytest.raises(UsageError, match="a scipy sparse matrix"):
        fitted.recommend(8, other.toarray().astype(int))
    with pytest.raises(UnknownIdError, match="item 40"):
        fitted.recommend(8, [40])


def test_short_rows_end_in_minus_one_and_nan() -> None:
    likes = planted(users=30, items=8)
    recommender = Recommender(factors=2, sweeps=5).fit(likes)
    ids, scores = recommender.recommend(np.arange(30), likes, N=8)
    for user in range(30):
        count = 8 - likes[user].nnz
        assert np.all(ids[user, :count] >= 0)
        assert np.all(ids[user, count:] == -1)
        assert np.all(np.isfinite(scores[user, :count]))
        assert np.all(np.isnan(scores[user, count:]))
        assert np.array_equal(ids[user, :count], recommender.recommend(user, N=8)[0])
    assert recommender.recommend([0, 1], items=[], N=2)[0].tolist() == [[-1, -1], [-1, -1]]


def test_ties_go_to_the_lower_row() -> None:
    """Items with the same likes are the same to the closed form up to the start; nobody's items are exact ties."""
    likes = sp.csr_matrix(sp.hstack([planted(), sp.csr_matrix((200, 6))]))
    recommender = Recommender(factors=2, sweeps=5).fit(likes)
    ids, scores = recommender.recommend(0, N=46)
    assert ids[-6:].tolist() == [40, 41, 42, 43, 44, 45]
    assert len(set(scores[-6:].tolist())) == 1
    ids, _ = recommender.recommend(np.arange(10), items=[45, 41, 44], N=2)
    assert np.array_equal(ids, np.tile([41, 44], (10, 1)))


def test_rows_that_are_not_there(fitted: Recommender) -> None:
    for ask, what in ((fitted.recommend, "user"), (fitted.similar_users, "user"), (fitted.similar_items, "item")):
        with pytest.raises(UnknownIdError, match=rf"{what} 777 is not in the model, which has {what}s 0 to"):
            ask([0, 777])
        with pytest.raises(UnknownIdError, match=rf"{what} -1 is not in the model"):
            ask(-1)
        for wrong in ("u1", 1.0, [0.5], True):
            with pytest.raises(UsageError, match="row numbers"):
                ask(wrong)
        for count in (0, -1, 2.5, "3", None, True):
            with pytest.raises(UsageError, match="N is"):
                ask(0, N=count)
    assert issubclass(UnknownIdError, LookupError)
    for wrong in ([40], [-1]):
        with pytest.raises(UnknownIdError):
            fitted.recommend(0, filter_items=wrong)
        with pytest.raises(UnknownIdError):
            fitted.recommend(0, items=wrong)


def test_similar(fitted: Recommender) -> None:
    """The cosine of the means, brute force."""
    for ask, vectors in ((fitted.similar_items, fitted.item_factors), (fitted.similar_users, fitted.user_factors)):
        cosine = vectors @ vectors[3] / np.linalg.norm(vectors, axis=1) / np.linalg.norm(vectors[3])
        ids, scores = ask(3, N=len(vectors))
        assert ids[0] == 3
        assert scores[0] == pytest.approx(1, abs=1e-5)
        assert sorted(ids) == list(range(len(vectors)))
        np.testing.assert_allclose(scores, cosine[ids], atol=1e-5)
        assert np.all(np.diff(scores) <= 0)
        assert np.mean(ids[:10] % 2) == 1  # all from the planted cluster of 3
    assert 5 not in fitted.similar_items(3, N=40, filter_items=[5])[0]
    assert set(fitted.similar_items(3, N=40, items=[5, 6])[0]) == {5, 6}
    assert 5 not in fitted.similar_users(3, N=200, filter_users=[5])[0]
    assert set(fitted.similar_users([3, 4], N=2, users=[5, 6])[0].ravel()) == {5, 6}
    assert fitted.similar_users([3, 4], N=3, users=[5, 6])[0][:, 2].tolist() == [-1, -1]


def test_similar_items_recalculated(fitted: Recommender) -> None:
    item_users = planted().T.tocsr()
    ids, cosines = fitted.similar_items(999, 10, True, item_users[3])  # an item that is not there, from its users
    assert np.mean(ids % 2) == 1
    assert fitted.similar_items([999, 3], recalculate_item=True, item_users=item_users[[3, 4]])[0].shape == (2, 10)
    assert np.all(np.isfinite(cosines))
    with pytest.raises(UsageError, match="needs item_users"):
        fitted.similar_items(3, recalculate_item=True)
    with pytest.raises(UsageError, match="item_users has 1 rows for 2 items"):
        fitted.similar_items([3, 4], recalculate_item=True, item_users=item_users[3])


def test_recalculate_user(fitted: Recommender) -> None:
    """From what is given and nothing else: the row number may even be unknown."""
    likes = planted()
    other = likes[5]
    ids, scores = fitted.recommend(99_999, other, N=5, recalculate_user=True)
    again, same = fitted.recommend(8, other, N=5, recalculate_user=True)
    assert np.array_equal(ids, again)
    assert np.array_equal(scores, same)
    assert np.mean(ids % 2) == 1
    side = fitted.fold_in(other)
    expected = side.mean[0] @ fitted.item_factors[ids].T + fitted.posterior_.items.biases[0][ids]
    np.testing.assert_allclose(scores, expected + 0.5 * np.log(fitted.popularity_[ids]), rtol=1e-4)
    several, _ = fitted.recommend([8, 9], likes[5:7], N=5, recalculate_user=True)
    assert np.array_equal(several[0], ids)
    assert np.mean(several[1] % 2) == 0
    with pytest.raises(UsageError, match="needs user_items"):
        fitted.recommend(8, recalculate_user=True)


def test_a_folded_user_is_close_to_the_fitted_one(fitted: Recommender) -> None:
    likes = planted()
    folded = fitted.fold_in(likes)
    assert len(folded) == 200
    agreement = np.corrcoef(
        (folded.mean @ fitted.item_factors.T).ravel(), (fitted.user_factors @ fitted.item_factors.T).ravel()
    )
    assert agreement[0, 1] > 0.97
    assert np.array_equal(fitted.fold_in(likes[3].indices).mean[0], fitted.fold_in(likes[3]).mean[0])
    nothing = fitted.fold_in([])
    assert not nothing.mean.any()  # the prior
    rho = fitted.model_.plan.likelihood_weight  # predictions multiply by it
    assert rho * nothing.variance[0, 0] == pytest.approx(1 / fitted.precisions_["user"], rel=1e-5)


# --- The knob, the paper's scores, exploration ---


def test_the_knob_moves_recommendations_to_popular_items(on_skewed: Recommender) -> None:
    degree = np.asarray(skewed().sum(axis=0)).ravel()
    means = []
    for knob in (-1.0, 0.0, 0.25, 0.5, 1.0, 4.0):
        ids, _ = on_skewed.recommend(np.arange(300), N=5, popularity=knob)
        means.append(degree[ids].mean())
    assert means == sorted(means)
    assert means[1] < 0.8 * means[4]
    default, _ = on_skewed.recommend(np.arange(300), N=5)
    assert np.array_equal(default, on_skewed.recommend(np.arange(300), N=5, popularity=0.5)[0])
    # implicit's order of arguments ends with items; the knob is the eighth
    assert np.array_equal(
        on_skewed.recommend(7, None, 5, True, None, False, None, 1.0)[0], on_skewed.recommend(7, N=5, popularity=1.0)[0]
    )
    for wrong in (np.nan, np.inf, "much", [0.5]):
        with pytest.raises(UsageError, match="popularity is"):
            on_skewed.recommend(0, popularity=wrong)  # type: ignore[arg-type]


def test_the_papers_scores(on_skewed: Recommender) -> None:
    everything = np.arange(60)
    like = on_skewed.predict_proba(np.full(60, 3), everything)
    pi = on_skewed.popularity_
    for name, expected in (("like", like), ("popularity", pi), ("popularity_x_like", pi * like)):
        ids, scores = on_skewed.recommend(3, N=60, score=name, filter_already_liked_items=False)
        np.testing.assert_allclose(scores, expected[ids], rtol=1e-4)
        np.testing.assert_allclose(scores, np.sort(expected)[::-1], rtol=1e-4)
    with pytest.raises(UsageError, match="score is 'best'; it may be one of like, popularity, popularity_x_like"):
        on_skewed.recommend(3, score="best")
    with pytest.raises(UsageError, match="do not go together"):
        on_skewed.recommend(3, score="like", popularity=1.0)
    with pytest.raises(UsageError, match="does not go with explore_kappa"):
        on_skewed.recommend(3, score="like", explore_kappa=1.0)
    with pytest.raises(UsageError, match="does not go with explore_kappa"):
        on_skewed.recommend(3, score="like", thompson_seed=1)


def test_explore_by_standard_deviations(on_skewed: Recommender) -> None:
    ids, scores = on_skewed.recommend(3, N=60, popularity=0.0, explore_kappa=1.5)
    mean, deviation = on_skewed.predict_logit(3, ids)
    np.testing.assert_allclose(scores, mean + 1.5 * deviation, rtol=1e-4)
    spread = [
        on_skewed.predict_logit(3, on_skewed.recommend(3, N=5, popularity=0.0, explore_kappa=kappa)[0])[1].mean()
        for kappa in (-4.0, 0.0, 4.0)
    ]
    assert spread[0] < spread[1] + 1e-5 < spread[2] + 2e-5
    assert spread[0] < spread[2]
    with pytest.raises(UsageError, match="explore_kappa is"):
        on_skewed.recommend(3, explore_kappa=np.nan)


def test_thompson_draws(on_skewed: Recommender) -> None:
    """A function of seed and user: the same alone and among others. Their mean and spread are those of the logit."""
    one, scores = on_skewed.recommend(3, N=5, thompson_seed=11)
    again, same = on_skewed.recommend(3, N=5, thompson_seed=11)
    assert np.array_equal(one, again)
    assert np.array_equal(scores, same)
    assert np.array_equal(on_skewed.recommend([9, 3], N=5, thompson_seed=11)[0][1], one)
    others = [tuple(on_skewed.recommend(3, N=5, thompson_seed=seed)[0]) for seed in range(8)]
    assert len(set(others)) > 4
    users = on_skewed.recommend([3, 3], N=60, thompson_seed=11, filter_already_liked_items=False)[0]
    assert np.array_equal(users[0], users[1])
    draws = np.full((400, 60), np.nan)
    for seed in range(400):
        ids, scores = on_skewed.recommend(3, N=60, popularity=0.0, filter_already_liked_items=False, thompson_seed=seed)
        draws[seed, ids] = scores
    mean, deviation = on_skewed.predict_logit(3, np.arange(60))
    z = (draws.mean(axis=0) - mean) / (deviation / 20)
    assert np.abs(z).max() < 4.5
    np.testing.assert_allclose(draws.std(axis=0) / deviation, 1.0, atol=0.16)
    assert np.array_equal(
        on_skewed.recommend(3, thompson_seed=-1)[0], on_skewed.recommend(3, thompson_seed=2**64 - 1)[0]
    )
    for wrong in (1.5, "seed", True):
        with pytest.raises(UsageError, match="thompson_seed is"):
            on_skewed.recommend(3, thompson_seed=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("user_bias", [False, True])
@pytest.mark.parametrize("knob", [None, 0.0, 1.0])
def test_exported_vectors_give_the_scores(user_bias: bool, knob: float | None) -> None:
    recommender = Recommender(factors=4, sweeps=8, user_bias=user_bias, consideration="popularity").fit(skewed())
    users, items = recommender.export_vectors(knob)
    assert users.dtype == items.dtype == np.float32
    assert users.shape[1] == items.shape[1] == 6 + user_bias
    ids, scores = recommender.recommend(np.arange(300), N=10, popularity=knob)
    product = users @ items.T
    np.testing.assert_allclose(np.take_along_axis(product, ids.astype(np.int64), axis=1), scores, rtol=1e-4, atol=1e-4)


# --- Changes after the fit ---


def test_partial_fit_users_updates_and_adds() -> None:
    likes = planted()
    recommender = Recommender(factors=4, sweeps=15).fit(likes)
    before = recommender.user_factors.copy()
    assert recommender.partial_fit_users([3, 200, 201], likes[[4, 5, 4]]) is recommender
    assert len(recommender.user_factors) == 202
    untouched = np.delete(np.arange(200), 3)
    assert np.array_equal(recommender.user_factors[untouched], before[untouched])
    assert np.array_equal(recommender.user_factors[3], recommender.user_factors[201])
    assert np.array_equal(recommender.user_factors[3], recommender.fold_in(likes[4]).mean[0])
    assert np.mean(recommender.recommend(3, N=5)[0] % 2) == 0  # now of the other cluster
    assert np.mean(recommender.recommend(200, N=5)[0] % 2) == 1
    assert set(likes[5].indices).isdisjoint(recommender.recommend(200, N=40)[0])
    assert recommender.recommend_table([201], N=3).num_rows == 3
    recommender.partial_fit_users(202, likes[4])  # a scalar, as implicit takes it
    assert recommender.recommend(202)[0].shape == (10,)


def test_partial_fit_users_refuses_what_does_not_fit() -> None:
    likes = planted()
    recommender = Recommender(factors=2, sweeps=3).fit(likes)
    for userids, rows, message in (
        ([0, 1], likes[:1], "2 entries for 1 rows"),
        ([0, 0], likes[:2], "distinct row numbers"),
        ([-1], likes[:1], "distinct row numbers, 0 or larger"),
        ([205], likes[:1], "without likes; add them in order"),
        ([0.5], likes[:1], "row numbers"),
        (["u"], likes[:1], "row numbers"),
        ([0], sp.csr_matrix((1, 50)), "50 columns"),
    ):
        with pytest.raises(UsageError, match=message):
            recommender.partial_fit_users(userids, rows)
    assert len(recommender.user_factors) == 200


def test_partial_fit_items_updates_and_adds() -> None:
    likes = planted()
    recommender = Recommender(factors=4, sweeps=15).fit(likes)
    before = recommender.item_factors.copy()
    by_item = likes.T.tocsr()
    assert recommender.partial_fit_items([40, 41], by_item[[4, 5]]) is recommender
    assert recommender.item_factors.shape == (42, 4)
    assert np.array_equal(recommender.item_factors[:40], before)
    assert recommender.similar_items(40, N=5)[0].tolist()[0] == 40
    assert np.all(recommender.similar_items(40, N=10)[0] % 2 == 0)
    assert np.all(recommender.similar_items(41, N=10)[0] % 2 == 1)
    assert recommender.popularity_[40] == pytest.approx(recommender.popularity_[4])
    fans, others = by_item[4].indices, np.setdiff1d(np.arange(0, 200, 2), by_item[4].indices)
    assert 40 not in recommender.recommend(fans, N=42)[0]  # whoever liked it is not told again
    assert np.all((recommender.recommend(others, N=42)[0] == 40).sum(axis=1) == 1)
    recommender.partial_fit_items([40], by_item[5])  # and now it is of the other cluster
    assert np.all(recommender.similar_items(40, N=10)[0][1:] % 2 == 1)
    assert 40 in recommender.recommend(int(np.setdiff1d(fans, by_item[5].indices)[0]), N=42)[0]
    recommender.partial_fit_users([0], sp.csr_matrix(([1.0, 1.0], ([0, 0], [40, 41])), shape=(1, 42)))
    assert np.mean(recommender.recommend(0, N=5)[0] % 2) == 1


def test_items_that_are_added_get_the_corrected_popularity(tmp_path: Path) -> None:
    """An item given again with the likes it had, or a copy of it, has the pi that the fit solved for."""
    random = np.random.default_rng(0)
    likes = sp.csr_matrix((random.random((600, 300)) < 0.5 / (1.0 + np.arange(300)) ** 0.7).astype(np.float32))
    recommender = Recommender(factors=4, sweeps=3, head_correction=True).fit(likes)
    recommender.save(tmp_path / "model", likes=False)
    recommender = Recommender.load(tmp_path / "model")
    before, by_item = recommender.popularity_.copy(), likes.T.tocsr()
    uncorrected = by_item.getnnz(axis=1) ** recommender.model_.gamma
    assert np.abs(before / uncorrected - 1)[[0, 1, 2, 30]].min() > 0.5
    recommender.partial_fit_items([0, 1, 30, 300, 301], sp.vstack([by_item[[0, 1, 30, 2]], sp.csr_matrix((1, 600))]))
    corrected = recommender.popularity_[[0, 1, 30, 300, 301]]
    np.testing.assert_allclose(corrected, [*before[[0, 1, 30, 2]], 0.0], rtol=0.1)


def test_items_are_added_to_a_model_without_item_biases() -> None:
    recommender = Recommender(factors=4, sweeps=3).fit(planted())
    model = recommender.model_
    items, precisions = Side(4, model.items.rows), replace(model.precisions, item_bias=None)
    recommender._model = replace(model, items=items, precisions=precisions)
    recommender.partial_fit_items([40], planted().T.tocsr()[4])
    assert recommender.model_.items.bias_mean is None
    assert recommender.recommend(0, N=41)[0].size > 0


def test_requests_in_turn_do_not_answer_for_one_another(fitted: Recommender) -> None:
    """What a model keeps of the last request is for the same popularity weight and no exclusions."""
    kinds: list[dict[str, Any]] = [
        {"popularity": 0.0},
        {"popularity": 2.0},
        {"popularity": 2.0, "filter_items": [0, 1]},
    ]
    fresh = []
    for kind in kinds:
        other = Recommender(factors=4)
        other._model = replace(fitted.model_)
        fresh.append(other.recommend(0, N=50, **kind))
    assert not np.array_equal(fresh[0][1], fresh[1][1])
    for turn in (0, 0, 1, 2, 1, 0, 2):
        for answer, alone in zip(fitted.recommend(0, N=50, **kinds[turn]), fresh[turn], strict=True):
            np.testing.assert_array_equal(answer, alone)
