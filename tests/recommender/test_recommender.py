"""fit and what comes of it: seeds, sweeps, stopping, Ctrl-C, settings, odd data."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import considerate
from considerate import Recommender, read_interactions
from considerate.errors import DataError, DivergedError, UsageError
from considerate.fitting.stopping import WINDOW, has_converged
from considerate.inference.sweep import InMemory
from considerate.settings import described_range
from tests.helpers.likes import as_table, checkerboard, interrupted, planted, skewed

BOTH = pytest.mark.parametrize("hidden", ["sampled", "expected"])


def small(**settings: Any) -> Recommender:
    return Recommender(**{"factors": 3, "sweeps": 6, **settings})


def same_posterior(one: Recommender, other: Recommender) -> bool:
    pairs = [
        (one.posterior_.users, other.posterior_.users),
        (one.posterior_.items, other.posterior_.items),
    ]
    return (
        all(np.array_equal(a.rows, b.rows) and np.array_equal(a.biases, b.biases) for a, b in pairs)
        and one.precisions_ == other.precisions_
    )


def test_the_public_names() -> None:
    assert set(considerate.__all__) == {
        "GraphRecommender",
        "Impossible",
        "Interactions",
        "RankingOptions",
        "Recommender",
        "__version__",
        "evaluate",
        "plot",
        "read_features",
        "read_interactions",
        "scorer",
    }
    assert set(dir(considerate)) == set(considerate.__all__)
    assert all(getattr(considerate, name) is not None for name in considerate.__all__)
    with pytest.raises(AttributeError, match="no attribute 'recommender_of'"):
        considerate.recommender_of  # noqa: B018
    methods = (
        *("fit", "predict_proba", "predict_logit", "recommend", "recommend_table", "similar_items", "similar_users"),
        *("fold_in", "explain", "partial_fit_users", "partial_fit_items", "save", "load", "score", "export_vectors"),
    )
    assert all(callable(getattr(Recommender, name)) for name in methods)
    fitted = small().fit(planted())
    assert fitted.user_factors.shape == (200, 3)
    assert fitted.item_factors.shape == (40, 3)
    assert fitted.popularity_.dtype == np.float64


# --- Seeds and order ---


@BOTH
def test_the_same_seed_gives_the_same_bits_and_another_does_not(hidden: str) -> None:
    likes = planted()
    one = small(hidden=hidden, seed=4).fit(likes)
    assert same_posterior(one, small(hidden=hidden, seed=4).fit(likes))
    assert same_posterior(one, small(hidden=hidden, seed=4, threads=1).fit(likes))
    assert not same_posterior(one, small(hidden=hidden, seed=5).fit(likes))
    assert np.array_equal(one.bound_, small(hidden=hidden, seed=4).fit(likes).bound_)


@BOTH
def test_fit_twice_is_fit_once(hidden: str) -> None:
    recommender = small(hidden=hidden).fit(skewed())
    assert same_posterior(recommender.fit(planted()), small(hidden=hidden).fit(planted()))


def test_the_order_of_the_rows_does_not_matter(tmp_path: Path) -> None:
    """Of a table, whose ids are sorted; and of a matrix's stored values. Repeated pairs are folded."""
    table = as_table(planted())
    shuffled = table.take(np.random.default_rng(1).permutation(table.num_rows))
    expected = small().fit(table)
    assert same_posterior(small().fit(shuffled), expected)
    twice = table.take(np.concatenate([np.arange(table.num_rows), np.arange(50)]))
    assert same_posterior(small().fit(twice), expected)
    likes = sp.coo_matrix(planted())
    order = np.random.default_rng(2).permutation(likes.nnz)
    other = sp.coo_matrix((likes.data[order], (likes.row[order], likes.col[order])), likes.shape)
    assert same_posterior(small().fit(other), small().fit(likes))


@pytest.mark.parametrize(
    "kind", [sp.csr_matrix, sp.csc_matrix, sp.coo_matrix, sp.lil_matrix, sp.csr_array, sp.coo_array]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8, np.int64, bool])
def test_every_kind_of_matrix_is_the_same(kind: Any, dtype: Any) -> None:
    assert same_posterior(small(sweeps=2).fit(kind(planted().astype(dtype))), small(sweeps=2).fit(planted()))


def test_interactions_a_file_or_a_table(tmp_path: Path) -> None:
    table = as_table(planted())
    path = tmp_path / "likes.csv"
    path.write_text("user,item\n" + "\n".join(f"{a},{b}" for a, b in zip(*table.to_pydict().values())))
    expected = small().fit(table)
    assert same_posterior(small().fit(path), expected)
    assert same_posterior(small().fit(str(path)), expected)
    assert same_posterior(small().fit(read_interactions(path)), expected)
    assert same_posterior(small().fit(table.to_pandas()), expected)


# --- Sweeps, the bound, stopping ---


@BOTH
@pytest.mark.parametrize("user_bias", [False, True])
def test_the_bound_has_one_entry_per_sweep_and_rises(hidden: str, user_bias: bool) -> None:
    recommender = small(hidden=hidden, sweeps=40, tolerance=0, user_bias=user_bias).fit(planted())
    bound = recommender.bound_
    assert recommender.n_iter_ == 40
    assert bound.shape == (41,)
    assert np.all(np.isfinite(bound))
    assert bound[-10:].mean() > bound[:10].mean()
    if hidden == "expected":  # exact, and monotone once the groups are frozen
        assert np.all(np.diff(bound[9:]) >= -1e-6 * np.abs(bound[9:-1]))
    assert set(recommender.precisions_) == {"user", "item", "item_bias"} | ({"user_bias"} if user_bias else set())


@BOTH
def test_stopping(hidden: str) -> None:
    likes = planted()
    loose = small(hidden=hidden, sweeps=100, tolerance=1e-2).fit(likes)
    tight = small(hidden=hidden, sweeps=100, tolerance=1e-4).fit(likes)
    never = small(hidden=hidden, sweeps=35, tolerance=0).fit(likes)
    assert loose.converged_
    assert tight.converged_
    assert loose.n_iter_ < tight.n_iter_ < 100
    assert (never.n_iter_, never.converged_) == (35, False)
    few = small(hidden=hidden, sweeps=3).fit(likes)
    assert (few.n_iter_, few.converged_) == (3, False)


def test_the_rule_of_stopping() -> None:
    assert not has_converged([-100.0], 1, 0.1)
    assert not has_converged([-100.0, -80.0], 1, 0.1)
    assert has_converged([-100.0, -99.0], 1, 0.1)
    assert has_converged([-100.0, -101.0], 1, 0.1)
    assert not has_converged([-100.0, -100.0], 1, 0.0)
    noisy = [-100.0, -98.0, -101.0, -99.0, -100.0]
    assert not has_converged(noisy, WINDOW, 0.1)  # one window is not two
    assert has_converged([*noisy, *noisy], WINDOW, 1e-6)
    assert not has_converged([*(value - 50 for value in noisy), *noisy], WINDOW, 0.01)


def test_callback_and_progress(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[tuple[int, float, float]] = []
    recommender = small(sweeps=4).fit(planted(), callback=lambda *step: seen.append(step))
    assert [sweep for sweep, _, _ in seen] == [1, 2, 3, 4]
    assert [bound for _, _, bound in seen] == recommender.bound_[:-1].tolist()
    seconds = [second for _, second, _ in seen]
    assert seconds == sorted(seconds)
    assert capsys.readouterr().out == ""  # silent unless asked
    small(sweeps=4).fit(planted(), True, lambda *step: seen.append(step))
    assert len(seen) == 8
    assert "4/4" in capsys.readouterr().out


def test_fit_steps_is_fitted_as_far_as_it_got() -> None:
    recommender = small()
    steps = recommender.fit_steps(planted())
    for step in steps:
        assert recommender.recommend(0)[0].shape == (10,)
        assert recommender.posterior_.users is step.state.posterior.users
        if step.sweep == 3:
            break
    steps.close()
    assert recommender.n_iter_ == 3
    assert same_posterior(recommender, small(sweeps=3).fit(planted()))


# --- Ctrl-C ---


class Interrupt:
    """A callback that presses Ctrl-C, or fails, after a sweep."""

    def __init__(self, after: int, error: type[BaseException] = KeyboardInterrupt) -> None:
        self.after, self.error = after, error

    def __call__(self, sweep: int, seconds: float, bound: float) -> None:
        if sweep == self.after:
            raise self.error


@BOTH
@pytest.mark.parametrize("show_progress", [False, True])
def test_an_interrupt_keeps_the_last_finished_sweep(hidden: str, show_progress: bool, tmp_path: Path) -> None:
    recommender = small(hidden=hidden, sweeps=50)
    interrupted(recommender, planted(), show_progress, Interrupt(4))
    finished = small(hidden=hidden, sweeps=4).fit(planted())
    assert recommender.n_iter_ == 4
    assert same_posterior(recommender, finished)
    assert np.array_equal(recommender.bound_, finished.bound_)
    recommender.save(tmp_path / "model")
    assert np.array_equal(Recommender.load(tmp_path / "model").recommend(0)[0], finished.recommend(0)[0])


def test_another_exception_comes_out_and_keeps_the_posterior_too() -> None:
    recommender = small(sweeps=50)
    with pytest.raises(ZeroDivisionError) as caught:
        recommender.fit(planted(), callback=Interrupt(4, ZeroDivisionError))
    assert recommender.n_iter_ == 4, caught  # while the traceback still holds the generator
    assert same_posterior(recommender, small(sweeps=4).fit(planted()))


def test_an_interrupt_before_the_first_sweep_comes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def press_ctrl_c(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("considerate.fitting.in_memory.make_estimator", press_ctrl_c)
    recommender = small()
    with pytest.raises(KeyboardInterrupt):
        recommender.fit(planted())
    assert not hasattr(recommender, "posterior_")


CHILD = """
import sys
import numpy as np, scipy.sparse as sp
from considerate import Recommender
random = np.random.default_rng(0)
likes = sp.csr_matrix((random.random((3000, 400)) < 0.05).astype(np.float32))
recommender = Recommender(factors=8, sweeps=100_000, tolerance=0, hidden=sys.argv[1])
def callback(sweep, seconds, bound):
    if sweep == 3:
        print("ready", flush=True)
try:
    recommender.fit(likes, callback=callback)
except KeyboardInterrupt:
    print("interrupted", flush=True)
again = Recommender(factors=8, sweeps=recommender.n_iter_, tolerance=0, hidden=sys.argv[1]).fit(likes)
print(recommender.n_iter_, len(recommender.bound_), np.array_equal(recommender.user_factors, again.user_factors))
print(len(recommender.recommend(0)[0]))
"""


@pytest.mark.slow
@BOTH
def test_a_real_interrupt_in_the_middle_of_a_sweep(hidden: str) -> None:
    """SIGINT to a process that would never end: it goes on with the posterior of the last finished sweep."""
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, hidden], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        os.kill(child.pid, signal.SIGINT)
        out, err = child.communicate(timeout=60)
    finally:
        child.kill()
    assert child.returncode == 0, err
    said, numbers, count = out.splitlines()
    assert said == "interrupted"
    sweeps, bounds, same = numbers.split()
    assert int(sweeps) >= 3
    assert int(bounds) == int(sweeps) + 1
    assert same == "True"
    assert count == "10"


def test_divergence_says_why_and_keeps_the_last_state(monkeypatch: pytest.MonkeyPatch) -> None:
    original = InMemory.update_users
    calls = 0

    def poisoned(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        updated = original(*arguments)
        if calls == 4:
            from dataclasses import replace

            return replace(updated, bad_row=7)
        return updated

    monkeypatch.setattr(InMemory, "update_users", poisoned)
    recommender = small()
    with pytest.raises(DivergedError, match=r"Sweep 4 gave user row 7 a value that is not finite; .* sweep 3 is kept"):
        recommender.fit(planted())
    monkeypatch.undo()
    assert recommender.n_iter_ == 3
    assert same_posterior(recommender, small(sweeps=3).fit(planted()))


# --- FitPlan ---


def outside(name: str) -> list[Any]:
    """Values outside the range of a setting."""
    one = next(one for one in fields(Recommender) if one.name == name)
    meta = one.metadata
    if meta["choices"]:
        return ["none", 1, [], b"sampled", *([] if meta["optional"] else [None])]
    if isinstance(one.default, bool):
        return [1, 0, "yes", None, np.nan]
    wrong: list[Any] = ["3", True, [1], np.nan, np.inf, -np.inf, 1 + 2j, {}, 10**400, object()]
    if not meta["optional"]:
        wrong.append(None)
    if meta["integer"]:
        wrong.append(meta["low"] + 0.5)
    if meta["low"] is not None:
        wrong.append(meta["low"] - (1 if meta["integer"] else 1e-9))
    if meta["above"] is not None:
        wrong += [meta["above"], meta["above"] - 1e-9]
    wrong.append(meta["high"] * 2)
    return wrong


@pytest.mark.parametrize("name", [one.name for one in fields(Recommender)])
def test_a_setting_outside_its_range_is_named_with_its_range(name: str) -> None:
    one = next(one for one in fields(Recommender) if one.name == name)
    for value in outside(name):
        with pytest.raises(UsageError) as caught:
            Recommender(**{name: value}).fit(planted())
        message = str(caught.value)
        assert message.startswith(f"{name} is "), value
        assert message.endswith(f"it must be {described_range(one)}.")
    assert any(word in described_range(one) for word in ("one of", "True or False", "a whole number", "a number"))


def test_ranges_are_in_words() -> None:
    words = {one.name: described_range(one) for one in fields(Recommender)}
    assert words["factors"] == "a whole number at least 1 and at most 4096"
    assert words["negatives"] == "a number above 0 and at most 1000 or 'auto'"
    assert words["gamma"] == "None or a number at least -2 and at most 2 or 'auto'"
    assert words["hidden"] == "one of sampled, expected, half-edges"
    assert words["logistic"] == "None or one of bound, quadrature"
    assert words["user_bias"] == "True or False"


@BOTH
@pytest.mark.parametrize(
    "settings",
    [
        {"negatives": 0.01},
        {"negatives": 0.5},
        {"negatives": 2.5},
        {"negatives": 1000},
        {"rate": 0.5},
        {"rate": 1e-9},
        {"gamma": 0.0},
        {"gamma": -2.0},
        {"gamma": 2.0},
        {"head_correction": True},
        {"head_correction": True, "gamma": 0.5, "negatives": 1},
        {"likelihood_weight": 4.0},
        {"likelihood_weight": 0.01},
        {"groups": 1},
        {"groups": 4096},
        {"factors": 1},
        {"factors": 9},
        {"prior_shape": 1.0, "prior_rate": 2.0},
        {"step_delay": 0, "precision_delay": 0},
        {"user_bias": True},
        {"seed": 2**63 - 1},
    ],
    ids=str,
)
def test_every_setting_gives_a_proper_posterior(hidden: str, settings: dict[str, Any]) -> None:
    recommender = small(hidden=hidden, **settings).fit(skewed())
    for side in (recommender.posterior_.users, recommender.posterior_.items):
        assert np.all(np.isfinite(side.mean))
        assert np.all(side.variance > 0)
        assert np.all(np.isfinite(side.variance))
    probability = recommender.predict_proba(np.arange(300)[:, None], np.arange(60)[None, :])
    assert np.all((probability > 0) & (probability < 1))
    assert np.all(np.isfinite(recommender.recommend(np.arange(300), N=10)[1]))
    assert np.all(np.isfinite(recommender.bound_))
    assert 0 <= recommender.score(skewed(seed=1)) <= 1


def test_popularity_follows_the_settings() -> None:
    """eq. 7-9: pi = d^gamma, with gamma such that the most popular item has r d_max."""
    likes = skewed()
    degree = np.asarray(likes.sum(axis=0)).ravel().astype(float)
    assert np.array_equal(small().fit(likes).popularity_, degree)
    halved = small(rate=0.5).fit(likes).popularity_
    assert halved.max() == pytest.approx(0.5 * degree.max())
    assert np.all(np.diff(halved[np.argsort(degree)]) >= -1e-12)
    np.testing.assert_allclose(small(gamma=0.5, rate=0.1).fit(likes).popularity_, np.sqrt(degree))
    np.testing.assert_allclose(small(gamma=0).fit(likes).popularity_, 1.0)
    corrected = small(head_correction=True).fit(likes).popularity_
    assert corrected[np.argmax(degree)] / corrected.sum() > degree.max() / degree.sum()


def test_likelihood_weight_sharpens_and_predictions_widen_it_back() -> None:
    likes = planted()
    one, four = (small(sweeps=20, likelihood_weight=rho).fit(likes) for rho in (1.0, 4.0))
    assert four.posterior_.items.variance.mean() < one.posterior_.items.variance.mean()
    assert (
        np.abs(four.predict_logit(np.arange(40), np.arange(40))[0]).mean()
        > np.abs(one.predict_logit(np.arange(40), np.arange(40))[0]).mean()
    )
    _, deviation = four.predict_logit(3, 5)
    u, v = four.posterior_.users, four.posterior_.items
    variance = (u.mean[3] ** 2 * v.variance[5] + v.mean[5] ** 2 * u.variance[3] + u.variance[3] * v.variance[5]).sum()
    assert deviation == pytest.approx(np.sqrt(4.0 * (variance + v.biases[1][5])), rel=1e-4)


def test_probabilities_are_on_the_fair_coin_scale() -> None:
    """Whatever c is, a random pair of a graph without structure is about as likely to be liked as not."""
    random = np.random.default_rng(0)
    likes = sp.csr_matrix((random.random((400, 50)) < 0.1).astype(np.float32))
    for negatives in (0.5, 1.0, 3.0, 5.0):
        fitted = small(negatives=negatives, sweeps=15).fit(likes)
        probability = fitted.predict_proba(np.arange(400)[:, None], np.arange(50)[None, :])
        assert 0.42 < probability.mean() < 0.58, negatives


# --- Odd data ---


@BOTH
def test_items_with_no_likes(hidden: str) -> None:
    """p(like) is a half, nothing is NaN, and they come last unless popularity does not count."""
    likes = sp.csr_matrix(sp.hstack([sp.csr_matrix((200, 2)), planted(), sp.csr_matrix((200, 3))]))
    recommender = small(hidden=hidden, sweeps=15).fit(likes)
    empty = np.array([0, 1, 42, 43, 44])
    probability = recommender.predict_proba(np.arange(200)[:, None], empty[None, :])
    np.testing.assert_allclose(probability, 0.5, atol=0.02)
    assert not recommender.popularity_[empty].any()
    for knob in (0.0, 0.5, 1.0):
        ids, scores = recommender.recommend(np.arange(200), N=45, popularity=knob, filter_already_liked_items=False)
        assert np.array_equal(np.sort(ids, axis=1), np.tile(np.arange(45), (200, 1)))
        assert np.all(np.isfinite(scores))
    assert np.all(
        np.sort(
            recommender.recommend(np.arange(200), N=45, popularity=4.0, filter_already_liked_items=False)[0][:, -5:],
            axis=1,
        )
        == empty
    )
    for score in ("like", "popularity", "popularity_x_like"):
        assert np.all(np.isfinite(recommender.recommend(0, N=45, score=score)[1]))
    assert np.all(np.isfinite(recommender.similar_items(empty, N=45)[1]))
    assert recommender.similar_items(42, N=3)[0][0] == 42


@BOTH
@pytest.mark.parametrize("user_bias", [False, True])
def test_users_of_every_degree(hidden: str, user_bias: bool) -> None:
    """One who likes everything, one who likes all but one, and some who like nothing."""
    likes = planted().tolil()
    likes[0] = 1
    likes[1] = 1
    likes[1, 17] = 0
    likes[2:5] = 0
    recommender = small(hidden=hidden, user_bias=user_bias, sweeps=10).fit(likes.tocsr())
    assert recommender.recommend(0)[0].shape == (0,)
    assert recommender.recommend(1)[0].tolist() == [17]
    assert recommender.recommend([0, 1], N=2)[0].tolist() == [[-1, -1], [17, -1]]
    assert recommender.recommend(2)[0].shape == (10,)
    assert np.all(np.isfinite(recommender.user_factors))
    assert not recommender.user_factors[2:5].any()
    assert len(recommender.fold_in(np.arange(40))) == 1
    assert recommender.recommend(0, np.arange(40), recalculate_user=True)[0].shape == (0,)


@BOTH
def test_one_like_per_user(hidden: str) -> None:
    likes = sp.csr_matrix((np.ones(300), (np.arange(300), np.arange(300) % 7)), shape=(300, 7))
    recommender = small(hidden=hidden).fit(likes)
    assert np.all(np.isfinite(recommender.recommend(np.arange(300), N=6)[1]))
    with pytest.raises(DataError, match="one user with two likes"):
        recommender.score(likes)


@BOTH
def test_everyone_likes_everything(hidden: str) -> None:
    recommender = small(hidden=hidden, factors=2).fit(sp.csr_matrix(np.ones((6, 4), np.float32)))
    assert recommender.recommend(3)[0].shape == (0,)
    assert np.all(recommender.predict_proba(np.arange(6)[:, None], np.arange(4)[None, :]) > 0.4)


@BOTH
def test_the_smallest_graph(hidden: str) -> None:
    recommender = small(hidden=hidden, factors=1).fit(sp.csr_matrix(np.eye(2, dtype=np.float32)))
    assert recommender.recommend(0)[0].tolist() == [1]


def test_more_factors_than_items_warns_and_works() -> None:
    with pytest.warns(UserWarning, match="factors=30 is more than the 20 users or items there are"):
        recommender = Recommender(factors=30, sweeps=10).fit(checkerboard(20))
    assert recommender.recommend(0)[0].shape == (10,)


def test_likes_that_look_swapped_warn() -> None:
    wide = sp.csr_matrix((np.ones(2000), (np.arange(2000) % 20, np.arange(2000))), shape=(20, 2000))
    with pytest.warns(UserWarning, match=r"2000 items for 20 users.*swapped.*considerate inspect"):
        small(sweeps=1).fit(wide)


def test_weights_that_vary_warn_and_are_not_used() -> None:
    weighted = planted()
    weighted.data = np.random.default_rng(0).uniform(0.1, 9, weighted.nnz).astype(np.float32)
    with pytest.warns(UserWarning, match="not used as weights, each is one like"):
        recommender = small().fit(weighted)
    assert same_posterior(recommender, small().fit(planted()))
    assert same_posterior(small().fit(5 * planted()), small().fit(planted()))  # one weight for all is no warning


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan])
def test_stored_values_that_are_no_likes(value: float) -> None:
    likes = planted()
    likes.data[3] = value
    with pytest.raises(DataError, match=r"1 of the \d+ stored values of the matrix are zero, negative or NaN"):
        small().fit(likes)


@pytest.mark.parametrize(
    ("likes", "message"),
    [
        (sp.csr_matrix((5, 4)), "5 x 4 matrix stores no values"),
        (sp.csr_matrix((0, 0)), "stores no values"),
        (sp.csr_matrix(np.ones((1, 5))), "only one user with likes"),
        (sp.csr_matrix(np.ones((5, 1))), "only one item with likes"),
        (sp.csr_matrix(np.eye(5) * (1 + 2j)), "the matrix holds complex"),
        (np.ones((5, 5)), r"an array of shape \(5, 5\) is not read"),
        (None, "cannot read likes from 'NoneType'"),
        ("nowhere.csv", "there is no such file"),
    ],
    ids=str,
)
def test_data_that_makes_no_graph(likes: Any, message: str) -> None:
    recommender = small().fit(planted())
    with pytest.raises((DataError, UsageError), match=message):
        recommender.fit(likes)
    assert recommender.recommend(0)[0].shape == (10,)  # what was there before is not lost
