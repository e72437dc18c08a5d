"""Random graphs with given degree laws, and data drawn from the model."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from considerate.errors import UsageError
from considerate.kernels import compiled
from considerate.simulation import simulate
from considerate.simulation.catalogue import GENRES, readable_titles
from considerate.simulation.degrees import PowerLaw
from considerate.simulation.simulate import (
    ModelSample,
    RandomGraph,
    balanced_item_law,
    is_graphical,
    random_graph,
    simulate_from_model,
)
from tests.helpers import simulate_reference
from tests.helpers.randomised import examples


def check(graph: RandomGraph) -> None:
    pairs = graph.users.astype(np.int64) * graph.item_count + graph.items
    assert np.all(np.diff(pairs) > 0)  # sorted by user then item, none twice
    assert graph.users.dtype == graph.items.dtype == np.int32
    for ends, count, law in (
        (graph.users, graph.user_count, graph.user_law),
        (graph.items, graph.item_count, graph.item_law),
    ):
        degrees = np.bincount(ends, minlength=count)
        assert len(degrees) == count
        assert degrees.min() >= law.minimum
        assert degrees.max() <= (law.maximum or 0)


def goodness(degrees: np.ndarray, law: PowerLaw) -> float:
    """The chi-square p-value of degrees, in bins of at least 20 expected."""
    expected = len(degrees) * law.probabilities()
    bins = np.minimum((np.cumsum(expected) / 20).astype(int), int(expected.sum() / 20) - 1)
    seen = np.bincount(bins[degrees - law.minimum], minlength=bins[-1] + 1)
    want = np.bincount(bins, weights=expected)
    seen, want = seen[want > 0], want[want > 0]
    return float(stats.chisquare(seen, want * seen.sum() / want.sum()).pvalue)


@pytest.mark.parametrize("cut", ["exponential", "maximum"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_degrees_follow_the_laws(cut, seed) -> None:  # type: ignore[no-untyped-def]
    user_law = PowerLaw(1.4, cutoff=70.0)
    item_law = balanced_item_law(user_law, PowerLaw(0.77), users=40_000, items=3000, cut=cut)
    graph = random_graph(40_000, 3000, user_law, item_law, seed=seed)
    check(graph)
    assert not graph.rebuilt
    assert goodness(np.bincount(graph.users), graph.user_law) > 1e-3
    assert goodness(np.bincount(graph.items), graph.item_law) > 1e-3


@given(
    users=st.integers(1, 30),
    items=st.integers(1, 30),
    exponent=st.floats(-2, 3),
    cutoff=st.sampled_from([np.inf, 3.0, 30.0]),
    item_exponent=st.floats(-2, 3),
    minimum=st.integers(1, 30),
    seed=st.integers(0, 2**64 - 1),
)
@examples(200)
def test_small_graphs_of_any_density(users, items, exponent, cutoff, item_exponent, minimum, seed) -> None:  # type: ignore[no-untyped-def]
    assume(minimum <= items)
    user_law = PowerLaw(exponent, cutoff, minimum)
    target = users * user_law.bounded(items).mean() / items
    bare = PowerLaw(item_exponent)
    if not 1 <= target <= bare.bounded(users).mean():
        # some item needs a minimum of its own
        bare = PowerLaw(item_exponent, minimum=max(1, int(target)))
    feasible = bare.minimum * (1 + 1e-8) < target < bare.bounded(users).mean() * (1 - 1e-8)
    assume(feasible)
    item_law = balanced_item_law(user_law, bare, users=users, items=items)
    assert items * item_law.mean() == pytest.approx(users * user_law.bounded(items).mean(), rel=1e-8)
    try:
        graph = random_graph(users, items, user_law, item_law, seed=seed)
    except UsageError as error:
        assert "50 draws" in str(error)  # noqa: PT017 - the one refusal allowed here
        # only where almost no sequence has a graph: the laws leave next to no freedom
        assert target > 0.5 * users or users <= 3 or items <= 3
        return
    check(graph)
    again = random_graph(users, items, user_law, item_law, seed=seed)
    assert np.array_equal(graph.users, again.users)
    assert np.array_equal(graph.items, again.items)


@pytest.mark.parametrize(("users", "items"), [(1, 1), (1, 9), (9, 1), (5, 7), (300, 200)])
def test_everyone_likes_everything(users: int, items: int) -> None:
    everything, everyone = PowerLaw(1.0, minimum=items), PowerLaw(1.0, minimum=users)
    graph = random_graph(users, items, everything, everyone)
    check(graph)
    assert len(graph.users) == users * items
    cut = balanced_item_law(everything, PowerLaw(1.0, minimum=users), users=users, items=items)
    assert cut.mean() == users


def test_seeds_differ_and_repeat() -> None:
    user_law = PowerLaw(1.4, cutoff=20.0)
    item_law = balanced_item_law(user_law, PowerLaw(0.77), users=500, items=100)
    a, b, c = (random_graph(500, 100, user_law, item_law, seed=s) for s in (3, 3, 4))
    assert np.array_equal(a.items, b.items)
    assert not (len(a.items) == len(c.items) and np.array_equal(a.items, c.items))


def test_means_that_cannot_agree_are_refused_before_drawing() -> None:
    with pytest.raises(UsageError) as caught:
        random_graph(1000, 50, PowerLaw(1.4, cutoff=70.0), PowerLaw(2.0))
    for part in ("M = 1000", "N = 50", "mu = ", "nu = ", "mu/N = nu/M", "balanced_item_law"):
        assert part in str(caught.value)


@pytest.mark.parametrize("cut", ["exponential", "maximum"])
def test_no_cut_can_help(cut) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageError, match=r"eq\. 1"):  # items would need a mean degree below 1
        balanced_item_law(PowerLaw(3.0), PowerLaw(0.77), users=10, items=1000, cut=cut)
    with pytest.raises(UsageError, match=r"eq\. 1"):  # and here more than the law has at its widest
        balanced_item_law(PowerLaw(1.0, minimum=20), PowerLaw(2.5), users=1000, items=30, cut=cut)


def test_a_maximum_close_to_eq_1_has_hardly_a_cutoff() -> None:
    user_law = PowerLaw(1.4, cutoff=70.0)
    law = balanced_item_law(user_law, PowerLaw(0.77), users=100_000, items=2000, cut="maximum")
    assert law.maximum is not None
    assert law.cutoff > 10 * law.maximum
    assert 2000 * law.mean() == pytest.approx(100_000 * user_law.bounded(2000).mean(), rel=1e-9)


def test_the_sums_meet_even_when_every_redraw_is_guided() -> None:
    law = PowerLaw(0.5, maximum=60)
    rng = np.random.default_rng(0)
    users, items = rng.integers(1, 5, 300).astype(np.int32), rng.integers(40, 60, 200).astype(np.int32)
    cdf = law.cumulative()
    u, i, _, gap = compiled.equalise_degrees(users, items, cdf, 1, cdf, 1, 0, 0, 0, 10**6)
    assert gap == 0
    assert u.sum() == i.sum()
    assert users.sum() != items.sum()  # the input is left alone


def test_running_out_of_redraws_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = compiled.equalise_degrees

    class Capped:
        @staticmethod
        def equalise_degrees(*args: object) -> object:
            return kernel(*args[:-2], 1, 0)

    monkeypatch.setattr(simulate, "compiled", Capped)
    user_law = PowerLaw(1.0, maximum=90)
    item_law = balanced_item_law(user_law, PowerLaw(0.5), users=1000, items=300)
    with pytest.raises(UsageError, match="apart"):
        random_graph(1000, 300, user_law, item_law)


# Gale and Ryser, and joining


def graphs_with(user_degrees: list[int], item_degrees: list[int]) -> set[tuple[tuple[int, ...], ...]]:
    """Every graph with these degrees, by enumeration."""
    rows = [itertools.combinations(range(len(item_degrees)), d) for d in user_degrees]
    return {
        graph
        for graph in itertools.product(*rows)
        if [sum(n in row for row in graph) for n in range(len(item_degrees))] == item_degrees
    }


def test_graphical_against_enumeration() -> None:
    for users in itertools.product(range(4), repeat=3):
        for items in itertools.product(range(4), repeat=3):
            assert is_graphical(users, items) == bool(graphs_with(list(users), list(items)))
    assert not is_graphical([4, 0], [1, 1, 2])


def test_degrees_without_a_graph_are_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([False, False, True])
    monkeypatch.setattr(simulate, "is_graphical", lambda *_: next(answers))
    law = PowerLaw(1.0, maximum=3)
    check(random_graph(40, 40, law, law))
    monkeypatch.setattr(simulate, "is_graphical", lambda *_: False)
    with pytest.raises(UsageError, match="no graph without double edges"):
        random_graph(40, 40, law, law)


@pytest.mark.parametrize(
    ("user_degrees", "item_degrees"),
    [([2, 1, 1, 1], [2, 2, 1]), ([1, 1, 2], [1, 1, 1, 1]), ([2, 2], [1, 1, 1, 1])],
)
def test_every_graph_is_about_equally_likely(user_degrees: list[int], item_degrees: list[int]) -> None:
    graphs = graphs_with(user_degrees, item_degrees)
    u, i = np.array(user_degrees, np.int32), np.array(item_degrees, np.int32)
    cuts = np.cumsum(user_degrees)[:-1]
    seen: Counter[tuple[tuple[int, ...], ...]] = Counter()
    for seed in range(6000):
        rows = np.split(compiled.join_half_edges(u, i, seed, 0)[1], cuts)
        seen[tuple(tuple(int(n) for n in row) for row in rows)] += 1
    assert set(seen) == graphs
    assert stats.chisquare([seen[g] for g in graphs]).pvalue > 1e-4


@given(st.data())
@examples(150)
def test_join_equals_the_reference(data: st.DataObject) -> None:
    users, items = data.draw(st.integers(1, 25)), data.draw(st.integers(1, 25))
    density = data.draw(st.sampled_from([0.02, 0.1, 0.3, 0.6, 0.95, 1.0]))
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    matrix = rng.random((users, items)) < density * (rng.random(items) if data.draw(st.booleans()) else 1)
    u, i = matrix.sum(1).astype(np.int32), matrix.sum(0).astype(np.int32)
    seed = data.draw(st.integers(0, 2**64 - 1))
    ours, twin = compiled.join_half_edges(u, i, seed, 3), simulate_reference.join_half_edges(u, i, seed, 3)
    assert np.array_equal(ours[0], twin[0])
    assert np.array_equal(ours[1], twin[1])
    assert ours[2:] == twin[2:]
    assert np.array_equal(np.bincount(ours[0], minlength=users), u)
    assert np.array_equal(np.bincount(ours[1], minlength=items), i)
    assert len(set(zip(ours[0].tolist(), ours[1].tolist(), strict=True))) == u.sum()


def test_both_ways_of_joining_half_edges_are_taken() -> None:
    """The twin test above is worth nothing for a branch that small graphs never take."""
    sparse, dense = np.full(200, 3, np.int32), np.full(20, 15, np.int32)
    _, _, repairs, rebuilt = compiled.join_half_edges(sparse, sparse, 1, 0)
    assert repairs > 0
    assert not rebuilt
    twin = simulate_reference.join_half_edges(sparse, sparse, 1, 0)
    assert np.array_equal(compiled.join_half_edges(sparse, sparse, 1, 0)[1], twin[1])
    assert compiled.join_half_edges(dense, dense, 1, 0)[3]


def test_a_repair_that_no_swap_can_make(monkeypatch: pytest.MonkeyPatch) -> None:
    """User 0 has item 0 twice; another has both it and what user 0 lacks, the third has nothing to offer."""
    repair, given_up = simulate_reference._repair, []

    def spy(*args: object) -> tuple[bool, int]:
        done = repair(*args)  # type: ignore[arg-type]
        given_up.append(not done[0])
        return done

    monkeypatch.setattr(simulate_reference, "_repair", spy)
    u = np.array([10, 3, 3], np.int32)
    i = np.array([3, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1], np.int32)
    for seed in range(1000):
        ours, twin = (
            compiled.join_half_edges(u, i, seed, 0),
            simulate_reference.join_half_edges(u, i, seed, 0),
        )
        assert np.array_equal(ours[1], twin[1])
        assert ours[2:] == twin[2:]
        assert np.array_equal(np.bincount(ours[1]), i)
    assert any(given_up)
    assert not all(given_up)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 30), st.integers(0, 2**64 - 1), st.integers(0, 60))
@examples(60)
def test_equalise_equals_the_reference(users: int, items: int, top: int, seed: int, free: int) -> None:
    law = PowerLaw(0.8, maximum=top)
    other = PowerLaw(1.5, cutoff=9.0, minimum=2, maximum=40)
    u = law.sample(users, seed).astype(np.int32)
    i = other.sample(items, seed + 1 if seed < 2**64 - 1 else 0).astype(np.int32)
    args = (u, i, law.cumulative(), 1, other.cumulative(), 2, seed, 1, free, 200)
    ours, twin = compiled.equalise_degrees(*args), simulate_reference.equalise_degrees(*args)
    assert np.array_equal(ours[0], twin[0])
    assert np.array_equal(ours[1], twin[1])
    assert ours[2:] == twin[2:]
    assert ours[3] == int(ours[0].sum()) - int(ours[1].sum())


def test_kernels_refuse_what_would_write_outside() -> None:
    two = np.full(2, 2, np.int32)
    with pytest.raises(ValueError):
        compiled.join_half_edges(two, np.ones(2, np.int32), 0, 0)
    with pytest.raises(ValueError):
        compiled.join_half_edges(np.array([3, 1], np.int32), two, 0, 0)
    with pytest.raises(ValueError):
        compiled.draw_considered(two, np.array([1.0, 0.0]), 0)


# Considered items by popularity


@given(st.data())
@examples(100)
def test_considered_equals_the_reference(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    weights = rng.pareto(0.5, data.draw(st.integers(1, 40))) + 0.01
    weights[rng.random(len(weights)) < 0.2] = 0.0
    most = int((weights > 0).sum())
    counts = rng.integers(0, most + 1, data.draw(st.integers(1, 20))).astype(np.int32)
    seed = data.draw(st.integers(0, 2**64 - 1))
    ours, twin = (
        compiled.draw_considered(counts, weights, seed),
        simulate_reference.draw_considered(counts, weights, seed),
    )
    assert np.array_equal(ours[0], twin[0])
    assert np.array_equal(ours[1], twin[1])
    assert np.all(weights[ours[1]] > 0)
    assert np.array_equal(np.bincount(ours[0], minlength=len(counts)), counts)
    assert len(set(zip(ours[0].tolist(), ours[1].tolist(), strict=True))) == counts.sum()


@pytest.mark.parametrize("weights", [[4.0, 2.0, 1.0, 1.0], [1e9, 1e-3, 2e-3, 1e-3]])
def test_considered_sets_have_the_right_probabilities(weights: list[float]) -> None:
    """Two of four items without replacement; the second weights make rejection give up."""
    draws = 40_000
    items = compiled.draw_considered(np.full(draws, 2, np.int32), np.array(weights), 0)[1].reshape(-1, 2)
    total = sum(weights)
    pairs = list(itertools.combinations(range(4), 2))
    p = [
        weights[a] / total * weights[b] / (total - weights[a]) + weights[b] / total * weights[a] / (total - weights[b])
        for a, b in pairs
    ]
    seen = np.array([np.sum((items[:, 0] == a) & (items[:, 1] == b)) for a, b in pairs])
    expected = draws * np.array(p) / sum(p)
    likely = expected > 1
    assert seen[~likely].sum() <= 3
    scaled = expected[likely] * seen[likely].sum() / expected[likely].sum()
    assert stats.chisquare(seen[likely], scaled).pvalue > 1e-4


# Data from the model


def like_rate_by_logit(sample: ModelSample) -> float:
    """The p-value of likes against sigma(a), in ten groups of logits."""
    p = 1 / (1 + np.exp(-sample.logit))
    groups = np.searchsorted(np.quantile(p, np.linspace(0, 1, 11)[1:-1]), p)
    z = [
        (sample.liked[groups == g].sum() - p[groups == g].sum())
        / np.sqrt((p[groups == g] * (1 - p[groups == g])).sum())
        for g in range(10)
    ]
    return float(stats.chi2.sf(np.square(z).sum(), 10))


@pytest.mark.parametrize("hidden", ["popularity", "random_graph"])
def test_coins_have_the_logits_probability(hidden) -> None:  # type: ignore[no-untyped-def]
    s = simulate_from_model(
        3000, 500, 8, tau_user=3.0, tau_item=2.0, tau_item_bias=0.5, tau_user_bias=4.0, hidden=hidden, seed=2
    )
    dots = (s.user_vectors[s.hidden_users] * s.item_vectors[s.hidden_items]).sum(1)
    np.testing.assert_allclose(s.logit, dots + s.user_bias[s.hidden_users] + s.item_bias[s.hidden_items], atol=1e-12)
    np.testing.assert_array_equal(s.true_logit(s.hidden_users, s.hidden_items), s.logit)
    assert like_rate_by_logit(s) > 1e-3
    assert np.array_equal(s.users, s.hidden_users[s.liked])
    assert np.array_equal(s.items, s.hidden_items[s.liked])
    assert np.all(np.diff(s.hidden_users.astype(np.int64) * 500 + s.hidden_items) > 0)
    for values, tau in (
        (s.user_vectors, 3.0),
        (s.item_vectors, 2.0),
        (s.item_bias, 0.5),
        (s.user_bias, 4.0),
    ):
        assert stats.kstest(values.ravel() * np.sqrt(tau), "norm").pvalue > 1e-3
    assert (s.popularity is None) == (hidden == "random_graph")


def test_popularity_makes_the_negatives_that_q_of_h_supposes() -> None:
    """Without biases half of H is liked, item by item, and H's degrees grow with the weights."""
    s = simulate_from_model(5000, 1000, 20, seed=1)
    assert not s.item_bias.any()
    assert not s.user_bias.any()
    assert s.liked.mean() == pytest.approx(0.5, abs=0.01)
    assert s.popularity is not None
    considered = np.bincount(s.hidden_items, minlength=1000)
    negatives = np.bincount(s.hidden_items[~s.liked], minlength=1000)
    assert goodness(np.bincount(s.hidden_users), PowerLaw(1.4, 70.0, 8).bounded(1000)) > 1e-3
    share = considered / considered.sum()
    pi = s.popularity / s.popularity.sum()
    assert np.abs(share - pi).sum() / 2 < 0.12  # drawing without replacement flattens the head a little
    assert np.corrcoef(negatives, s.popularity)[0, 1] > 0.95


def test_one_considered_item_each_is_drawn_by_popularity() -> None:
    s = simulate_from_model(60_000, 50, 1, user_law=PowerLaw(1.0, maximum=1), item_law=PowerLaw(0.3, maximum=40))
    assert s.popularity is not None
    considered = np.bincount(s.hidden_items, minlength=50)
    assert considered.sum() == 60_000
    assert stats.chisquare(considered, 60_000 * s.popularity / s.popularity.sum()).pvalue > 1e-3


def test_genres_keep_the_prior_and_gather_the_items() -> None:
    s = simulate_from_model(50, 4000, 60, genres=6, seed=4)
    assert s.genres is not None
    assert set(s.genres.tolist()) == set(range(6))
    assert s.item_vectors.var() == pytest.approx(1 / 3.5, rel=0.15)
    unit = s.item_vectors / np.linalg.norm(s.item_vectors, axis=1, keepdims=True)
    cosine = unit[:400] @ unit[:400].T
    same = s.genres[:400, None] == s.genres[None, :400]
    np.fill_diagonal(same, False)
    assert cosine[same].mean() > 0.6
    assert abs(cosine[s.genres[:400, None] != s.genres[None, :400]].mean()) < 0.2
    assert simulate_from_model(5, 9, 2, seed=4).genres is None


def test_a_sample_repeats_for_a_seed() -> None:
    a, b, c = (simulate_from_model(200, 80, 3, seed=s) for s in (1, 1, 2))
    assert np.array_equal(a.hidden_items, b.hidden_items)
    assert np.array_equal(a.liked, b.liked)
    assert not np.array_equal(a.user_vectors, c.user_vectors)


@pytest.mark.parametrize(("users", "items"), [(1, 1), (1, 20), (20, 1), (3, 3)])
def test_tiny_samples(users: int, items: int) -> None:
    s = simulate_from_model(users, items, 1)
    assert np.bincount(s.hidden_users, minlength=users).min() >= 1
    assert len(s.users) == s.liked.sum()


@pytest.mark.parametrize(
    "bad",
    [
        {"users": 0},
        {"items": 0},
        {"factors": 0},
        {"tau_user": 0.0},
        {"tau_item_bias": -1.0},
        {"hidden": "else"},
        {"genres": 1},
        {"genres": len(GENRES) + 1},
        {"seed": -1},
        {"user_law": PowerLaw(1.0, minimum=99)},
        {"user_law": PowerLaw(3.0), "users": 3, "hidden": "random_graph"},
    ],
)
def test_bad_settings_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        simulate_from_model(**{"users": 30, "items": 30, "factors": 2, **bad})  # type: ignore[arg-type]


# Titles


def test_titles_are_distinct_and_hint_at_the_genre() -> None:
    genres = np.arange(1500) % len(GENRES)
    titles = readable_titles(1500, 3, genres=genres)
    assert len(set(titles)) == 1500
    assert titles == readable_titles(1500, 3, genres=genres)
    assert titles != readable_titles(1500, 4, genres=genres)
    for title, g in zip(titles, genres, strict=True):
        assert any(noun in title for noun in GENRES[g].nouns)
    every_noun = [noun for genre in GENRES for noun in genre.nouns]
    assert len(set(every_noun)) == len(every_noun)  # a noun gives its genre away


def test_titles_never_run_out() -> None:
    titles = readable_titles(3000, 0, genres=np.zeros(3000, dtype=int))
    assert len(set(titles)) == 3000
    assert readable_titles(0, 0) == []
    with pytest.raises(UsageError):
        readable_titles(-1, 0)
    with pytest.raises(UsageError):
        readable_titles(2, 0, genres=[0, 99])
    with pytest.raises(UsageError):
        readable_titles(2, 0, genres=[0])
