"""recommend_table, recommend_for and explain: the data's own ids in, an Arrow table out."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pyarrow as pa
import pytest

from considerate import RankingOptions, Recommender, read_interactions
from considerate.errors import UnknownIdError, UsageError
from considerate.model import serving, tables
from tests.helpers.likes import as_table, planted, skewed

PATTERNS = {"strings": ("u{}", "i{}"), "integers": ("7{}", "-3{}"), "mixed": ("user {} é", "{}")}
COLUMNS = ["user", "rank", "item", "p_like", "low", "high", "p_considered", "score", "cold"]


def small(**settings: object) -> Recommender:
    return Recommender(**{"factors": 4, "sweeps": 10, **settings})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def fitted() -> Recommender:
    return small().fit(as_table(planted()))


@pytest.fixture(scope="module")
def with_gaps() -> Recommender:
    """From a matrix: users 0 to 2 like nothing, and ids are the row numbers."""
    likes = planted().tolil()
    likes[:3] = 0
    return small().fit(likes.tocsr())


@pytest.mark.parametrize("kind", PATTERNS)
def test_columns_types_and_values(kind: str) -> None:
    """The rows of `recommend`, by the ids of the data; p(like) is that of the logit, and its 90 % interval has the
    variance of a user and an item about the model beside the posterior's, or that alone."""
    user, item = PATTERNS[kind]
    recommender = small().fit(as_table(planted(), user, item))
    ids = recommender.model_.user_ids.ids_of([5, 0, 17])
    table = recommender.recommend_table(ids, N=4)
    assert table.column_names == COLUMNS
    integers = {"strings": (False, False), "integers": (True, True), "mixed": (False, True)}[kind]
    types = [pa.int64() if one else pa.string() for one in integers]
    assert table.schema.types == [types[0], pa.int32(), types[1], *[pa.float32()] * 5, pa.bool_()]
    assert table["user"].to_pylist() == [one for one in ids for _ in range(4)]
    assert table["rank"].to_pylist() == [1, 2, 3, 4] * 3
    assert not any(table["cold"].to_pylist())
    items, scores = recommender.recommend(ids, N=4)
    assert table["item"].to_pylist() == items.ravel().tolist()
    np.testing.assert_allclose(table["score"].to_numpy(), scores.ravel(), rtol=1e-5)
    users = np.repeat(np.array(ids, object), 4)
    np.testing.assert_allclose(table["p_like"], recommender.predict_proba(users, items.ravel()), rtol=1e-5)
    mean, deviation = recommender.predict_logit(users, items.ravel())
    centre = mean / np.sqrt(1.0 + np.pi / 8.0 * deviation**2)  # p(like) is moderated by the posterior's variance alone
    posterior = recommender.recommend_table(ids, N=4, interval="posterior")
    ends = ((table, centre, np.sqrt(deviation**2 + 0.9 + 0.7)), (posterior, mean, deviation))
    for found, middle, width in ends:
        np.testing.assert_allclose(found["low"], 1 / (1 + np.exp(-(middle - 1.644854 * width))), rtol=1e-4)
        np.testing.assert_allclose(found["high"], 1 / (1 + np.exp(-(middle + 1.644854 * width))), rtol=1e-4)
        assert found["p_like"] == table["p_like"]
        assert np.all(found["low"].to_numpy() < found["p_like"].to_numpy())
        assert np.all(found["p_like"].to_numpy() < found["high"].to_numpy())


def test_one_user_several_and_all(fitted: Recommender) -> None:
    assert fitted.recommend_table("u5", N=3)["user"].to_pylist() == ["u5"] * 3
    expected = fitted.recommend_table(["u5", "u0"], N=3)
    for users in (("u5", "u0"), np.array(["u5", "u0"]), pa.array(["u5", "u0"]), iter(["u5", "u0"])):
        assert fitted.recommend_table(users, N=3) == expected
    everyone = fitted.recommend_table(N=3)
    assert everyone.num_rows == 600
    assert everyone["user"].to_pylist()[::3] == fitted.model_.user_ids.ids_of(range(200))
    assert everyone.filter(pa.compute.equal(everyone["user"], "u5")) == fitted.recommend_table("u5", N=3)
    batches = list(fitted.recommend_batches(N=3, batch=64))
    assert [batch.num_rows for batch in batches] == [192, 192, 192, 24]
    np.testing.assert_allclose(pa.Table.from_batches(batches)["score"], everyone["score"], rtol=1e-5)
    nobody = fitted.recommend_table([], N=3)
    assert (nobody.num_rows, nobody.column_names) == (0, COLUMNS)


def test_integer_ids_as_they_come() -> None:
    recommender = small().fit(as_table(planted(), "7{}", "3{}"))
    expected = recommender.recommend_table([75, 719], N=2)
    for users in (np.array([75, 719]), pa.array([75, 719]), ["75", "719"], [np.int32(75), np.uint64(719)]):
        assert recommender.recommend_table(users, N=2) == expected
    assert recommender.recommend_table(75, N=2)["user"].to_pylist() == [75, 75]
    assert recommender.recommend_table(np.int64(75), N=2)["user"].to_pylist() == [75, 75]


def test_titles_are_shown_where_they_are_known() -> None:
    titles = pa.table({"item": [f"i{n}" for n in range(39)], "title": [f"Title {n} ü" for n in range(39)]})
    recommender = small().fit(read_interactions(as_table(planted()), titles=titles))
    table = recommender.recommend_table(["u1"], N=40, filter_already_liked_items=False)
    assert table.column_names == ["user", "rank", "item", "title", *COLUMNS[3:]]
    for item, title in zip(table["item"].to_pylist(), table["title"].to_pylist()):
        assert title == (None if item == "i39" else f"Title {item[1:]} ü")


def test_unknown_users_are_an_error_that_says_what_to_do(fitted: Recommender, with_gaps: Recommender) -> None:
    with pytest.raises(
        UnknownIdError, match=r"user 'nobody' is not in the model, which knows 200 users; .*cold='popular'"
    ):
        fitted.recommend_table(["u1", "nobody"])
    with pytest.raises(UnknownIdError, match=r"user 1 liked nothing in training; .*cold='popular'"):
        with_gaps.recommend_table([5, 1])
    with pytest.raises(UsageError, match="cold is 'ignore'; it must be 'error' or 'popular'"):
        fitted.recommend_table(["u1"], cold="ignore")
    for wrong in ("", "U1", "u 1", 2**70):
        with pytest.raises(UnknownIdError):
            fitted.recommend_table([wrong])
    for no_id in (None, 1.5, np.nan, b"u1", True):
        with pytest.raises(UsageError, match=r"named by their ids, such as 'u0', and .* was given"):
            fitted.recommend_table([no_id], cold="popular")
    for no_list in (1.5, [["u1"]], [("u1",)]):
        with pytest.raises(UsageError, match="give an id or a list of ids"):
            fitted.recommend_table(no_list)


def test_cold_users_get_popular_items_marked_as_such(fitted: Recommender) -> None:
    """Mixed with known ones, whose rows are as without them; the prior's p(like)."""
    table = fitted.recommend_table(["u1", "nobody", "u2", "nowhere"], N=5, cold="popular")
    assert table["user"].to_pylist()[::5] == ["u1", "nobody", "u2", "nowhere"]
    assert table["cold"].to_pylist() == [False] * 5 + [True] * 5 + [False] * 5 + [True] * 5
    np.testing.assert_allclose(
        table["score"].to_numpy()[[*range(5), *range(10, 15)]],
        fitted.recommend_table(["u1", "u2"], N=5)["score"].to_numpy(),
        rtol=1e-5,
    )
    order = np.lexsort((np.arange(40), -fitted.popularity_))[:5]
    popular = fitted.model_.item_ids.ids_of(order)
    assert table["item"].to_pylist()[5:10] == table["item"].to_pylist()[15:] == popular
    np.testing.assert_allclose(table["score"].to_numpy()[5:10], np.log(fitted.popularity_[order]), rtol=1e-5)
    bias = fitted.posterior_.items.biases[0][order]
    assert np.all((table["p_like"].to_numpy()[5:10] > 0.5) == (bias > 0))
    assert fitted.recommend_table(["u1"], cold="popular") == fitted.recommend_table(["u1"])


def test_a_known_user_without_likes_is_cold(with_gaps: Recommender) -> None:
    table = with_gaps.recommend_table([4, 1, 999], N=3, cold="popular")
    assert table["cold"].to_pylist() == [False] * 3 + [True] * 6
    assert table["item"].to_pylist()[3:6] == table["item"].to_pylist()[6:]
    everyone = with_gaps.recommend_table(N=2)
    assert sorted(set(everyone["user"].to_pylist())) == list(range(3, 200))  # the cold are left out
    everyone = with_gaps.recommend_table(N=2, cold="popular")
    assert everyone["user"].to_pylist()[::2] == list(range(200))
    assert everyone["cold"].to_pylist()[::2] == [True] * 3 + [False] * 197


def test_cold_users_whose_ids_an_integer_column_cannot_hold_are_named_as_text(with_gaps: Recommender) -> None:
    given = [7, "bob", 2**70, "1.5", 12_345]
    table = with_gaps.recommend_table(given, N=1, cold="popular")
    assert table["user"].to_pylist() == ["7", "bob", str(2**70), "1.5", "12345"]
    assert table["cold"].to_pylist() == [False, True, True, True, True]
    batches = list(with_gaps.recommend_batches(given, N=1, cold="popular", batch=1))
    assert pa.Table.from_batches(batches) == table  # one schema, whichever batch such an id is in
    assert with_gaps.recommend_table([7, "12345"], N=1, cold="popular")["user"].to_pylist() == [7, 12_345]


def test_lists_are_no_longer_than_the_items(fitted: Recommender) -> None:
    tracemalloc.start()
    table = fitted.recommend_table(N=100_000, cold="popular")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert table.num_rows == 200 * 40 - fitted.model_.users.edges
    assert peak < 20e6


@pytest.mark.parametrize("score", [None, "like"])
def test_long_lists_are_ranked_and_written_some_users_at_a_time(
    fitted: Recommender, monkeypatch: pytest.MonkeyPatch, score: str | None
) -> None:
    whole = fitted.recommend_table(N=40, score=score)
    monkeypatch.setattr(serving, "BLOCK", 6)
    together = fitted.recommend_table(N=40, score=score)
    monkeypatch.setattr(tables, "MOST_ENTRIES", 40 * 20)
    batches = list(fitted.recommend_batches(N=40, score=score))
    assert len(batches) == 12  # of 18 users: three blocks of 6
    assert pa.Table.from_batches(batches) == together
    assert together["item"] == whole["item"]


@pytest.mark.parametrize("seed", [0, -1, 2**64 - 1])
def test_thompson_draws_with_cold_users(fitted: Recommender, seed: int) -> None:
    table = fitted.recommend_table(["nobody", "u1"], N=3, cold="popular", thompson_seed=seed)
    again = fitted.recommend_table(["u1"], N=3, thompson_seed=seed)
    assert table["item"].to_pylist()[3:] == again["item"].to_pylist()
    assert table["item"].to_pylist()[:3] == fitted.recommend_table(["nobody"], N=3, cold="popular")["item"].to_pylist()


def test_lists_of_items(fitted: Recommender) -> None:
    table = fitted.recommend_table(["u1", "nobody"], N=40, cold="popular", allow=["i3", "i4", "i5"], deny=["i4"])
    assert set(table["item"].to_pylist()) <= {"i3", "i5"}
    assert table["item"].to_pylist()[-2:] in (["i3", "i5"], ["i5", "i3"])
    for name in ("allow", "deny"):
        with pytest.raises(UnknownIdError, match="item 'i40' is not in the model, which knows 40 items"):
            fitted.recommend_table(["u1"], **{name: ["i1", "i40"]})
    liked = set(planted()[1].indices)
    everything = fitted.recommend_table(["u1"], N=40, filter_already_liked_items=False)
    assert len(everything) == 40
    assert {f"i{n}" for n in range(40)} - set(fitted.recommend_table(["u1"], N=40)["item"].to_pylist()) == {
        f"i{n}" for n in liked
    }
    with pytest.raises(UsageError, match="N is 0"):
        fitted.recommend_table(["u1"], N=0)


def test_options_are_those_of_recommend(fitted: Recommender) -> None:
    for options in ({"popularity": 1.0}, {"score": "like"}, {"explore_kappa": 2.0}, {"thompson_seed": 3}):
        ids, scores = fitted.recommend("u9", N=5, **options)  # type: ignore[arg-type]
        table = fitted.recommend_table("u9", N=5, **options)  # type: ignore[arg-type]
        assert table["item"].to_pylist() == ids.tolist()
        np.testing.assert_allclose(table["score"], scores, rtol=1e-4)


def test_a_new_user_from_ids(fitted: Recommender) -> None:
    """recommend_for is recommend with recalculate_user, in the data's own ids; `user` is null."""
    table = fitted.recommend_for(["i1", "i3", "i5"], N=4)
    assert table.column_names == COLUMNS
    ids, scores = fitted.recommend("someone", ["i1", "i3", "i5"], N=4, recalculate_user=True)
    assert table["item"].to_pylist() == ids.tolist()
    np.testing.assert_allclose(table["score"], scores, rtol=1e-5)
    assert table["user"].null_count == 4
    assert not any(table["cold"].to_pylist())
    with pytest.raises(UsageError, match="at least one liked item"):
        fitted.recommend_for([])
    with pytest.raises(UnknownIdError, match="item 'x'"):
        fitted.recommend_for(["x"])


# --- Why ---


@pytest.mark.parametrize("hidden", ["sampled", "expected"])
def test_explain_points_to_the_users_own_cluster(hidden: str) -> None:
    """Every like pushes up the logits of items of its own cluster and down those of the other; those of the user's own
    cluster together push more than the others, whose likes are rare and none the weaker for it. All are most of u'v."""
    likes = planted(across=0.06)
    recommender = small(hidden=hidden, opening=0, sweeps=30, negatives=3.0, likelihood_weight=1.0).fit(likes)
    for user in range(0, 200, 9):
        kind = user % 2
        liked = likes[user].indices
        inside = recommender.recommend(user, N=1, items=[n for n in range(40) if n % 2 == kind])[0][0]
        probability, why = recommender.explain(user, int(inside))
        assert probability == pytest.approx(recommender.predict_proba(user, inside), rel=1e-4)
        assert {one for one, _ in why} <= set(liked)
        sizes = [abs(share) for _, share in why]
        assert sizes == sorted(sizes, reverse=True)
        _, everything = recommender.explain(user, int(inside), N=40)
        assert len(everything) == len(liked)
        total = sum(share for _, share in everything)
        product = float(recommender.user_factors[user] @ recommender.item_factors[inside])
        assert 0.3 * product < total < 1.7 * product
        _, against = recommender.explain(user, 1 - kind, N=40)
        for shares, sign in ((everything, 1), (against, -1)):
            assert all((sign * share > 0) == (one % 2 == kind) for one, share in shares)
            assert sign * sum(share for _, share in shares) > 0


def test_explain_with_likes_that_are_given() -> None:
    likes = skewed()
    recommender = small().fit(likes)
    probability, why = recommender.explain(0, 5, user_items=[1, 3, 7], N=2)
    assert 0 < probability < 1
    assert len(why) == 2
    assert {one for one, _ in why} <= {1, 3, 7}
    assert recommender.explain(0, 5, user_items=likes[0])[1] == recommender.explain(99_999, 5, user_items=likes[0])[1]
    assert recommender.explain(0, 5, user_items=[])[1] == []
    with pytest.raises(UnknownIdError, match="user 300"):
        recommender.explain(300, 5)
    with pytest.raises(UnknownIdError, match="item 60"):
        recommender.explain(0, 60)


# --- RankingOptions ---


def test_options_in_place_of_keywords(fitted: Recommender) -> None:
    keywords: dict[str, object] = {"popularity": 0.0, "deny": np.array(["i1", "i3"]), "explore_kappa": 0.5}
    options = RankingOptions(**keywords)  # type: ignore[arg-type]
    assert options == RankingOptions(popularity=0, deny=("i1", "i3"), explore_kappa=0.5)
    assert fitted.recommend_table(["u1", "u5"], 4, options=options).equals(
        fitted.recommend_table(["u1", "u5"], 4, **keywords)
    )
    assert fitted.recommend_for(["i2"], 4, options=options).equals(fitted.recommend_for(["i2"], 4, **keywords))
    assert not fitted.recommend_table(["u1"], 4, options=options).equals(fitted.recommend_table(["u1"], 4))
    with pytest.raises(UsageError, match="put them all into options"):
        fitted.recommend_table(["u1"], popularity=0.5, options=options)
