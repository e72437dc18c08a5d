"""Updates: yesterday's posterior as today's prior. Each step against the bound that it climbs, what is merged, and what
stays as it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp

from considerate import Recommender, read_interactions
from considerate.data.graph import Adjacency, transpose
from considerate.data.known_tables import Impossible
from considerate.errors import UsageError
from considerate.fitting import update as update_module
from considerate.fitting.update import NewEdges, Owed, Redrawn, prior_of
from considerate.inference.hidden import Consideration
from considerate.inference.posterior import Posterior
from considerate.inference.prior import SHARED, Priors
from considerate.inference.schedule import StepSize
from considerate.inference.sweep import InMemory, State
from considerate.inference.updates import Moments
from considerate.kernels.threads import LocalBackend
from considerate.model.liking import Recalibration
from considerate.model.merge import with_likes
from considerate.model.model import NO_UPDATES
from tests.engine.test_inference import check_row
from tests.helpers import naive
from tests.helpers.likes import as_table, skewed

BACKEND = LocalBackend(1)
LIKES = skewed(80, 30, seed=4)


def split(likes: sp.csr_matrix = LIKES, users: int = 70, items: int = 27) -> tuple[pa.Table, pa.Table]:
    """Likes of before and new ones: a tenth of those of known users and items, and all of the others."""
    m, n = likes.nonzero()
    new = (m >= users) | (n >= items) | (np.random.default_rng(0).random(len(m)) < 0.1)
    whole = as_table(likes, "u{:03}", "i{:03}")
    return whole.filter(pa.array(~new)), whole.filter(pa.array(new))


def fitted(likes: Any, **settings: Any) -> Recommender:
    return Recommender(**{"factors": 2, "sweeps": 8, "threads": 1, "negatives": 2.0} | settings).fit(likes)


OLD, NEW = split()


@pytest.fixture(scope="module")
def base() -> Recommender:
    return fitted(OLD)


def again(recommender: Recommender) -> Recommender:
    """One that may be changed."""
    other = Recommender(**recommender.get_params())
    other._model = recommender.model_
    return other


def arrays(recommender: Recommender) -> list[np.ndarray]:
    q = recommender.posterior_
    return [array for side in (q.users, q.items) for array in side.arrays() if array is not None]


def same(one: Recommender, other: Recommender) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(arrays(one), arrays(other), strict=True))


# --- The step ---


class Problem:
    """The new edges of an update with one draw of H held, and their bound by brute force."""

    def __init__(self, user_bias: bool = False, variance: float = 0.02) -> None:
        likes = skewed(9, 6, seed=2)
        before, after = split(likes, 7, 5)
        merged = with_likes(fitted(before, user_bias=user_bias, likelihood_weight=1.5).model_, read_interactions(after))
        self.model, self.edges = merged.model, NewEdges.of(merged, BACKEND)
        self.drawn = Redrawn((self.edges.drawn[0],) * 60, self.edges.active)
        users, items = self.model.users.whole().side.take(self.edges.users), self.model.items.take(self.edges.items)
        self.start = Posterior(users, items, self.model.precisions)
        moves = np.where(np.arange(len(users)) < self.edges.active, variance, 0.0)
        self.priors = Priors(prior_of(users, moves), prior_of(items, np.full(len(items), variance)))
        plan = self.model.plan
        self.given = naive.Prior(plan.offset, plan.likelihood_weight, plan.prior_shape, plan.prior_rate)
        self.g = naive.dense(self.edges.graph.by_user, len(items))
        self.considered = self.g + naive.dense(self.edges.drawn[0], len(items))

    def runner(self, priors: Priors | None = None) -> InMemory:
        return InMemory(self.edges.graph, self.drawn, self.model.plan, BACKEND, priors or self.priors)

    def states(self, count: int, epsilon: float = 1.0, priors: Priors | None = None) -> list[Posterior]:
        own = priors or self.priors
        moments = Moments.of(self.start.users, own.users), Moments.of(self.start.items, own.items)
        state = State(0, self.start, StepSize(10**9, epsilon=epsilon), *moments)
        found = [self.start]
        for sweep, _ in zip(self.runner(priors).sweeps(state), range(count)):
            found.append(sweep.state.posterior)
        return found

    def value(self, users: naive.Factor, items: naive.Factor, xi: np.ndarray | None = None) -> float:
        """The bound: all edges, those of users who are held too, and the priors of yesterday."""
        if xi is None:
            xi = self.xi(users, items)
        total = naive.edges_term(users, items, self.g, self.considered, self.given, xi)
        for factor, own in ((users, self.priors.users), (items, self.priors.items)):
            K = factor.mean.shape[1]
            total += naive.own_gaussian_term(factor.mean, factor.variance, own.mean[:, :K], own.precision[:, :K])
            if own.bias_mean is not None:
                bias = (factor.bias, factor.bias_variance, own.bias_mean, own.bias_precision)
                total += naive.own_gaussian_term(*bias)
        return total

    def xi(self, users: naive.Factor, items: naive.Factor) -> np.ndarray:
        return naive.best_xi(naive.logit_moments(users, items, self.given.offset)[1])

    def bounds(self, found: list[Posterior]) -> np.ndarray:
        return np.array([self.value(naive.Factor.of(q.users), naive.Factor.of(q.items)) for q in found])


def test_the_prior_is_yesterdays_posterior_with_what_it_may_have_moved() -> None:
    side = Problem(user_bias=True).start.users
    own = prior_of(side, np.linspace(0.0, 0.5, len(side)))
    np.testing.assert_array_equal(own.mean[:, :2], side.mean)
    expected = 1.0 / (side.variance + np.linspace(0.0, 0.5, len(side))[:, None])
    np.testing.assert_allclose(own.precision[:, :2], expected, rtol=1e-6)
    np.testing.assert_allclose(own.bias_precision, 1.0 / (side.biases[1] + np.linspace(0.0, 0.5, len(side))), rtol=1e-6)


@pytest.mark.parametrize("user_bias", [False, True])
def test_each_step_is_the_argmax_of_the_bound(user_bias: bool) -> None:
    p = Problem(user_bias)
    q = p.states(2)[-1]
    users, items = naive.Factor.of(q.users), naive.Factor.of(q.items)
    stepped = p.runner().update_users(p.drawn.user_terms(1, q, map), q).side
    new_users, xi = naive.Factor.of(stepped), p.xi(users, items)
    check_row(users, new_users, 1, lambda f: p.value(f, items, xi), user_bias)
    q, held = replace(q, users=stepped), slice(p.edges.active, None)
    np.testing.assert_allclose(new_users.mean[held], users.mean[held], rtol=1e-6)
    np.testing.assert_allclose(new_users.variance[held], users.variance[held], rtol=1e-6)
    assert len(new_users.mean[held]), "there are users who owe edges and have no new like"
    runner = p.runner()
    terms = p.drawn.item_terms(1, q, map)
    new_items = runner.items_pass(terms, q).update(q.items, runner.item_classes(), BACKEND.map).side
    xi = p.xi(new_users, items)
    check_row(items, naive.Factor.of(new_items), 2, lambda f: p.value(new_users, f, xi), True)


@pytest.mark.parametrize("epsilon", [1.0, 0.4])
def test_with_h_held_the_bound_never_falls(epsilon: float) -> None:
    p = Problem()
    bounds = p.bounds(p.states(25, epsilon))
    assert np.diff(bounds).min() > -2e-6 * abs(bounds[-1])
    assert bounds[-1] > bounds[0] + 1.0


def test_wrong_priors_are_caught() -> None:
    """That of the fit for all rows; yesterday's mean without its precision; and users of before not anchored."""
    p = Problem()
    right = p.bounds(p.states(25))
    own = p.priors
    users = replace(own.users, precision=None)
    for wrong in (Priors(), Priors(users, replace(own.items, precision=None)), Priors(SHARED, own.items)):
        bounds = p.bounds(p.states(25, priors=wrong))
        assert bounds[-1] < right[-1] - 0.2
        assert np.diff(bounds).min() < -0.05


# --- What is merged ---


def test_likes_ids_degrees_and_popularity_are_those_of_all(base: Recommender) -> None:
    model, whole = again(base).update(NEW).model_, fitted(pa.concat_tables([OLD, NEW]), sweeps=1).model_
    users = model.users.whole()
    assert model.user_ids.ids_of(range(80)) == whole.user_ids.ids_of(range(80))
    assert model.item_ids.ids_of(range(30)) == whole.item_ids.ids_of(range(30))
    np.testing.assert_array_equal(users.liked.starts, whole.users.whole().liked.starts)
    np.testing.assert_array_equal(users.liked.indices, whole.users.whole().liked.indices)
    np.testing.assert_array_equal(users.degree, whole.users.whole().degree)
    np.testing.assert_array_equal(model.item_degree, whole.item_degree)
    np.testing.assert_allclose(model.popularity, model.item_degree.astype(float) ** base.model_.gamma)
    assert (model.plan, model.gamma, model.precisions) == (base.model_.plan, base.model_.gamma, base.model_.precisions)


def test_ids_are_merged_in_their_order() -> None:
    """A new id goes between the others, and their rows with it."""
    before = pa.table({"user": ["b", "b", "d", "d"], "item": [10, 30, 10, 30]})
    after = pa.table({"user": ["c", "a", "d"], "item": [20, 30, 40]})
    model = fitted(before, factors=1)
    vectors = {name: model.user_factors[row].copy() for row, name in enumerate("bd")}
    model.update(after, drift=0.0)
    assert model.user_ids().tolist() == list("abcd")
    assert model.item_ids().tolist() == [10, 20, 30, 40]
    np.testing.assert_array_equal(model.user_factors[1], vectors["b"])
    liked = model.model_.users.whole().liked
    assert [model.item_ids(liked.row(row)).tolist() for row in range(4)] == [[30], [10, 30], [20], [10, 30, 40]]
    with pytest.raises(UsageError, match="item 'x' cannot be added: the ids of this model are integers"):
        model.update(pa.table({"user": ["a"], "item": ["x"]}))
    model.update(pa.table({"user": [7, 7], "item": ["20", "50"]}))  # as texts, and as integers
    assert model.user_ids().tolist() == ["7", *"abcd"]
    assert model.item_ids().tolist() == [10, 20, 30, 40, 50]


def test_a_matrix_grows() -> None:
    model = fitted(LIKES[:60, :25])
    model.update(LIKES)
    assert (model.model_.user_count, model.model_.item_count, model.model_.users.edges) == (80, 30, LIKES.nnz)
    with pytest.raises(UsageError, match="users of this model are row numbers, as it was fitted on a matrix, and 'u0"):
        model.update(NEW)


def test_titles_of_new_items_come_with_the_likes() -> None:
    known = {f"i{n:03}": f"Title {n}" for n in range(0, 30, 2)}
    model = fitted(OLD, sweeps=1)
    model._model = replace(model.model_, titles=fitted_titles(OLD, known))
    model.update(NEW, titles=known | {"i001": "New title", "i029": "The last"})
    found = dict(zip(model.item_ids(), model.titles(model.item_ids())))
    assert (found["i004"], found["i028"], found["i029"]) == ("Title 4", "Title 28", "The last")


def fitted_titles(likes: pa.Table, titles: dict[str, str]) -> Any:
    return read_interactions(likes, titles=titles).titles


def test_rows_of_the_walk_are_made_again_as_their_items_grow(base: Recommender) -> None:
    model = again(base).update(NEW).model_
    liked = model.users.whole().liked
    whole = Consideration.of_graph(
        liked, transpose(liked, 30), model.popularity, model.plan.neighbours, model.plan.mixing
    )
    before = dict(zip(base.item_ids(), base.model_.item_degree))
    grown = [
        model.item_degree[row] > 1.1 * before.get(name, 0) for row, name in enumerate(model.item_ids.ids_of(range(30)))
    ]
    assert 3 < sum(grown) < 27
    for row in np.flatnonzero(grown):
        for mine, all_of_it in zip(model.consideration.row(row), whole.row(row)):
            np.testing.assert_array_equal(mine, all_of_it)
    assert not np.array_equal(model.consideration.items, whole.items)
    np.testing.assert_array_equal(model.walk_degree[grown], model.item_degree[grown])
    stale = ~np.array(grown)
    assert (model.walk_degree[stale] <= model.item_degree[stale]).all()
    shares = np.add.reduceat(model.consideration.shares, model.consideration.starts[:-1]) + model.consideration.rest
    np.testing.assert_allclose(shares, 1.0, atol=1e-5)


# --- What stays ---


def test_nothing_new_changes_no_bit(base: Recommender) -> None:
    model = again(base)
    model.update(OLD.slice(0, 40), days=30.0)
    assert model.model_ is base.model_
    model.update(None)
    model.update(None, removed=pa.table({"user": ["u001", "nobody"], "item": ["i999", "i001"]}))
    assert model.model_ is base.model_


def test_users_without_a_new_like_keep_their_rows(base: Recommender) -> None:
    model = again(base).update(NEW)
    active = set(NEW["user"].to_pylist())
    kept = [name for name in base.user_ids() if name not in active]
    assert len(kept) > 5
    for mine, before in zip(model.posterior_.users.arrays(), base.posterior_.users.arrays()):
        if before is not None:
            np.testing.assert_array_equal(mine[model.user_rows(kept)], before[base.user_rows(kept)])
    assert np.abs(model.user_factors[model.user_rows("u070")]).max() > 0.01


@pytest.mark.parametrize("settings", [{}, {"hidden": "expected"}, {"tilt": 0.5}, {"consideration": "popularity"}])
def test_the_same_bits_for_any_threads(settings: dict[str, Any]) -> None:
    model = fitted(OLD, **settings)
    first, second = again(model), again(model)
    second.threads = 3
    assert same(first.update(NEW), second.update(NEW))
    twice = [again(model).update(NEW.slice(0, 30)).update(NEW.slice(30)) for _ in range(2)]
    assert same(*twice)
    assert not same(first, twice[0])


@pytest.mark.parametrize(("hidden", "by_walk"), [("sampled", True), ("expected", False), ("half-edges", False)])
def test_new_likes_draw_by_the_walk_only_if_the_fit_did(
    hidden: str, by_walk: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[bool] = []
    draws_of = update_module.Draws.of

    def seen(weights: Any, walk: Any, tilt: float) -> Any:
        used.append(walk is not None)
        return draws_of(weights, walk, tilt)

    before, after = split(skewed(60, 20), 50, 20)
    model = fitted(before, hidden=hidden, consideration="walk")
    monkeypatch.setattr(update_module.Draws, "of", seen)
    model.update(after)
    assert used
    assert all(walk == by_walk for walk in used)


def test_new_likes_are_filtered_and_new_users_are_known(base: Recommender) -> None:
    model = again(base).update(NEW)
    for name in ("u001", "u075"):
        liked = {row["item"] for row in pa.concat_tables([OLD, NEW]).to_pylist() if row["user"] == name}
        assert not liked & set(model.recommend(name, N=30).ids)
        assert len(model.recommend(name, N=30).ids) == 30 - len(liked)


def test_the_knobs_and_the_recalibration_stay(base: Recommender) -> None:
    model = again(base)
    line = Recalibration(0.7, 0.2)
    model._model = model.model_.with_same_items(recalibration=line)
    model.update(NEW)
    assert model.recalibration_ == line
    assert model.model_.plan.lift == base.model_.plan.lift


# --- What is learned ---


def test_what_old_likes_owe_to_new_items_is_what_a_fit_would_draw(base: Recommender) -> None:
    merged = with_likes(base.model_, read_interactions(NEW))
    owed = Owed.of(merged)
    model = merged.model
    item = int(model.item_ids.row_of("i028"))
    drawn = np.mean([np.bincount(owed.draw(number)[1], minlength=30)[item] for number in range(300)])
    old = model.users.whole().liked.degrees - merged.new.degrees
    before = Adjacency(np.append(0, np.cumsum(old)), np.zeros(int(old.sum()), np.int32))
    assert before.edges == base.model_.users.edges
    temperature = model.fold_in.saturation.temperature_of(3.0 * old) - model.fold_in.saturation.temperature_of(
        1.0 * old
    )
    chance = -np.expm1(-temperature * model.popularity[item])
    fans = transpose(model.users.whole().liked, 30).row(item)
    chance[fans] = 0.0
    assert drawn == pytest.approx(chance.sum(), rel=0.06)
    users, items = owed.draw(7)
    assert not model.users.whole().liked.find(users, items)[1].any()
    assert len(set(zip(users.tolist(), items.tolist()))) == len(users)


def test_what_is_impossible_is_never_drawn_and_moves_with_its_rows() -> None:
    pairs = {(f"u{m:03}", f"i{n:03}") for m in range(0, 70, 3) for n in (1, 4, 9, 14)}
    pairs -= set(zip(*(pa.concat_tables([OLD, NEW])[name].to_pylist() for name in ("user", "item"))))
    rule = {"item": ["i003"], "until": [5.0]}
    table = pa.table({"user": [user for user, _ in pairs], "item": [item for _, item in pairs]})
    times = OLD.append_column("time", pa.array(np.full(OLD.num_rows, 9.0)))
    impossible = Impossible(table, rule)
    old = Recommender(factors=2, sweeps=4, threads=1, negatives=2.0).fit(
        times, time_column="time", impossible=impossible
    )
    merged = with_likes(old.model_, read_interactions(NEW))
    edges, names = NewEdges.of(merged, BACKEND), merged.model.item_ids
    everyone = merged.model.user_ids
    found = set()
    for drawn in edges.drawn:
        fans = np.repeat(edges.users, drawn.degrees)
        found |= set(zip(everyone.ids_of(fans), names.ids_of(edges.items[drawn.indices])))
    assert len(found) > 200
    assert not found & pairs
    assert not [pair for pair in found if pair[1] == "i003" and pair[0] < "u070"], "users of before were there too late"
    updated = old.update(NEW)
    for user, item in sorted(pairs)[:20]:
        assert item not in updated.recommend(user, N=30).ids
    assert updated.forget("u000").model_.limits.impossible.rows == 79


def test_new_items_do_not_look_better_than_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their biases are near those of a fit to everything; without the edges that old likes owe them they are not."""
    likes = skewed(400, 40, seed=1)
    random = np.random.default_rng(2)
    order = random.permutation(40)
    likes = likes[:, order]
    before, after = split(likes, 380, 30)
    whole = fitted(pa.concat_tables([before, after]))
    new = np.arange(30, 40)

    def excess() -> float:
        model = fitted(before).update(after, drift=0.0)
        return float((model.model_.items.biases[0] - whole.model_.items.biases[0])[new].mean())

    with_them = excess()
    monkeypatch.setattr(Owed, "draw", lambda self, number: (np.empty(0, np.int64), np.empty(0, np.int64)))
    assert abs(with_them) < 0.25
    assert excess() > with_them + 0.4


def test_an_update_ranks_like_a_fit_to_everything() -> None:
    likes = skewed(300, 60, seed=3)
    held = np.random.default_rng(5).random(likes.nnz) < 0.1
    m, n = likes.nonzero()
    out = (m[held], n[held])
    train = sp.csr_matrix((np.ones(int((~held).sum())), (m[~held], n[~held])), likes.shape)
    keep = np.random.default_rng(6).random(train.nnz) < 0.6
    rows, columns = train.nonzero()
    before = sp.csr_matrix((np.ones(int(keep.sum())), (rows[keep], columns[keep])), likes.shape)
    old, whole = fitted(before, factors=4, sweeps=20), fitted(train, factors=4, sweeps=20)
    stale = old.score(out)
    updated = old.update(train, drift=0.0).score(out)
    assert updated > stale + 0.2 * (whole.score(out) - stale)
    assert updated > whole.score(out) - 0.01


def test_a_like_of_more_weight_moves_its_user_further(base: Recommender) -> None:
    def moved(*plays: int) -> float:
        new = pa.table({"user": ["u001", "u002"], "item": ["i020", "i021"], "plays": plays})
        model = again(base).update(new, weight_column="plays", weight_scale="none", drift=0.0)
        row = int(base.user_rows("u001"))
        return float(np.abs(model.user_factors[row] - base.user_factors[row]).max())

    assert moved(5, 1) > 1.5 * moved(1, 1)
    new = pa.table({"user": ["u001", "u002"], "item": ["i020", "i021"]})
    once = again(base).update(new, drift=0.0)
    row = int(base.user_rows("u001"))
    assert moved(1, 1) == float(np.abs(once.user_factors[row] - base.user_factors[row]).max())


# --- Options, files ---


def test_updates_that_cannot_be_are_refused(base: Recommender, tmp_path: Path) -> None:
    for wrong in ({"days": -1.0}, {"drift": float("nan")}, {"drift": "much"}, {"days": True}):
        with pytest.raises(UsageError, match=rf"{next(iter(wrong))} is .*; it must be a number, 0 or larger"):
            again(base).update(NEW, **wrong)
    base.save(tmp_path / "bare", likes=False)
    for ask in (lambda m: m.update(NEW), lambda m: m.forget("u001"), lambda m: m.update(None, removed=NEW)):
        with pytest.raises(UsageError, match=r"this model was saved without likes, and .* needs them"):
            ask(Recommender.load(tmp_path / "bare"))


def test_a_model_of_a_graph_is_refused(base: Recommender) -> None:
    model = again(base)
    model._model = replace(base.model_, plan=replace(base.model_.plan, signed=False))
    for ask in (lambda: model.update(NEW), lambda: model.forget("u001")):
        with pytest.raises(UsageError, match="this model is of a graph of vertices; to change it, fit again"):
            ask()


@pytest.mark.parametrize("shards", [None, 3])
def test_a_loaded_model_is_updated_to_the_same_bits_and_the_file_says_how_often(
    base: Recommender, tmp_path: Path, shards: int | None
) -> None:
    base.save(tmp_path / "model", shards=shards)
    loaded = Recommender.load(tmp_path / "model").update(NEW, days=2.0)
    expected = again(base).update(NEW, days=2.0)
    assert same(loaded, expected)
    loaded.save(tmp_path / "next", shards=shards)
    final = (
        Recommender.load(tmp_path / "next").update(NEW.slice(0, 3)).update(pa.table({"user": ["x"], "item": ["i001"]}))
    )
    updates = final.model_.updates
    assert (updates.count, updates.likes, updates.days) == (2, NEW.num_rows + 1, 3.0)
    assert updates.passes == 2 * update_module.PASSES
    assert base.model_.updates == NO_UPDATES
    assert same(final, expected.update(pa.table({"user": ["x"], "item": ["i001"]})))


def test_a_model_that_was_not_updated_has_the_file_of_before(base: Recommender, tmp_path: Path) -> None:
    base.save(tmp_path / "model")
    raw = (tmp_path / "model").read_bytes()
    assert b"walk_degree" not in raw
    assert b"updates" not in raw


def followed(step: float, share: float, seed: int, drifts: tuple[float, ...]) -> list[float]:
    """How well items whose appeal walks by `step` a day are known after twenty days, for each drift: the correlation of
    their vectors with the appeal that they have then. A share of all pairs is considered each day."""
    random = np.random.default_rng(seed)
    taste, appeal, likes = np.where(np.arange(400) % 2, 1.0, -1.0), random.normal(0, 1.0, 30), []
    for day in range(21):
        appeal = appeal + random.normal(0, step, 30) * (day > 0)
        seen = random.random((400, 30)) < (share if day else 0.4)
        liked = seen & (random.random((400, 30)) < 1 / (1 + np.exp(-2 * np.outer(taste, appeal))))
        likes.append(np.nonzero(liked))
    first, found = fitted(likes[0], factors=1, sweeps=15, negatives=1.0, consideration="popularity"), []
    for drift in drifts:
        model = again(first)
        for day in likes[1:]:
            model.update(day, drift=drift)
        found.append(abs(float(np.corrcoef(model.item_factors[:, 0], appeal[model.item_ids()])[0, 1])))
    return found


def test_the_best_drift_is_that_of_the_data() -> None:
    still, near, far, wild = followed(0.2, 0.015, 1, (0.0, 0.03, 0.3, 10.0))
    assert near > max(still, wild) + 0.1
    assert near > far > still
    still, near, far = followed(0.05, 0.03, 0, (0.0, 0.01, 0.3))
    assert near > still > far + 0.02, "what helps to follow items that move fast harms where they hardly move"


def test_an_update_where_one_item_alone_is_liked() -> None:
    """Its share of pi is all there is, before and after: nobody owes it an edge."""
    model = Recommender(factors=2, sweeps=2, threads=1).fit({"user": ["a", "b", "c"], "item": ["x", "x", "y"]})
    model.update(None, removed={"user": ["c"], "item": ["y"]})
    model.update({"user": ["d"], "item": ["x"]})
    assert model.model_.item_degree.tolist() == [3, 0]
    assert np.isfinite(model.user_factors).all()
