"""scikit-learn's habits: parameters, clone, GridSearchCV, NotFittedError, pickles."""

from __future__ import annotations

import copy
import pickle
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pyarrow as pa
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import NotFittedError as SklearnNotFittedError
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, cross_val_score, cross_validate
from sklearn.utils.validation import check_is_fitted

from considerate import Recommender, evaluate, read_interactions, scorer
from considerate.data.graph import Graph
from considerate.errors import NotFittedError, UsageError
from considerate.evaluation.fitted import HIDDEN_LIKES
from considerate.evaluation.metrics import ndcg
from considerate.evaluation.ranks import held_ranks
from considerate.evaluation.scorer import ModelScorer
from considerate.evaluation.split import one_per_user
from considerate.inference.sweep import InMemory
from tests.helpers.likes import as_table, planted

PARAMETERS = (
    *(
        "factors",
        "hidden",
        "negatives",
        "considered_are",
        "rate",
        "gamma",
        "consideration",
        "neighbours",
        "mixing",
        "tilt",
        "head_correction",
        "opening",
        "groups",
        "likelihood_weight",
        "popularity",
        "lift",
        "sharpness",
    ),
    *(
        "user_bias",
        "posterior",
        "prior",
        "logistic",
        "sweeps",
        "tolerance",
        "step_delay",
        "precision_delay",
        "prior_shape",
        "prior_rate",
        "seed",
        "threads",
    ),
)


def small(**settings: object) -> Recommender:
    return Recommender(**{"factors": 3, "sweeps": 6, "threads": 1, **settings})  # type: ignore[arg-type]


def test_parameters_are_stored_as_given() -> None:
    """Even impossible ones: the check comes with fit, as scikit-learn has it."""
    given = {name: object() for name in PARAMETERS}
    recommender = Recommender(**given)  # type: ignore[arg-type]
    assert tuple(one.name for one in fields(recommender)) == PARAMETERS
    for name, value in given.items():
        assert getattr(recommender, name) is value
        assert recommender.get_params()[name] is value


def test_get_and_set_params() -> None:
    recommender = Recommender()
    assert tuple(recommender.get_params()) == PARAMETERS
    assert recommender.get_params(deep=False) == recommender.get_params()
    assert recommender.set_params(factors=7, gamma=0.5) is recommender
    assert (recommender.factors, recommender.gamma) == (7, 0.5)
    with pytest.raises(ValueError, match=r"no setting 'alpha'; the settings are factors, hidden"):
        recommender.set_params(alpha=1.0)


def test_clone_copies_the_parameters_and_not_the_fit() -> None:
    fitted = small(negatives=2, gamma=np.float64(0.75)).fit(planted())
    copied = clone(fitted)
    assert copied.get_params() == fitted.get_params()
    assert copied is not fitted
    with pytest.raises(SklearnNotFittedError):
        check_is_fitted(copied)


def test_repr_shows_the_settings() -> None:
    text = repr(Recommender(factors=12, hidden="expected"))
    assert text.startswith("Recommender(factors=12, hidden='expected', negatives=5.0")
    assert repr(small().fit(planted())) == repr(small())


def test_fit_returns_self_and_sets_what_ends_in_an_underscore() -> None:
    recommender = small()
    before = recommender.get_params()
    assert recommender.fit(planted()) is recommender
    assert recommender.get_params() == before
    assert recommender.posterior_.users.mean.shape == (200, 3)
    assert recommender.popularity_.shape == (40,)
    assert set(recommender.precisions_) == {"user", "item", "item_bias"}
    assert recommender.bound_.shape == (recommender.n_iter_ + 1,)
    assert recommender.converged_ in (False, True)
    check_is_fitted(recommender)


def test_before_the_fit_everything_says_so(tmp_path: Path) -> None:
    recommender = small()
    likes = planted()
    questions = {
        "recommend": lambda: recommender.recommend(0, by="row"),
        "recommend_table": lambda: recommender.recommend_table([0]),
        "predict_proba": lambda: recommender.predict_proba(0, 0, by="row"),
        "predict_logit": lambda: recommender.predict_logit(0, 0, by="row"),
        "similar_items": lambda: recommender.similar_items(0, by="row"),
        "similar_users": lambda: recommender.similar_users(0, by="row"),
        "explain": lambda: recommender.explain(0, 0, by="row"),
        "fold_in": lambda: recommender.fold_in([0], by="row"),
        "score": lambda: recommender.score(likes),
        "export_vectors": lambda: recommender.export_vectors(),
        "partial_fit_users": lambda: recommender.partial_fit_users([0], likes[:1], by="row"),
        "partial_fit_items": lambda: recommender.partial_fit_items([0], likes[:1], by="row"),
        "save": lambda: recommender.save(tmp_path / "model"),
        "user_factors": lambda: recommender.user_factors,
        "item_factors": lambda: recommender.item_factors,
        "posterior_": lambda: recommender.posterior_,
        "popularity_": lambda: recommender.popularity_,
        "precisions_": lambda: recommender.precisions_,
        "bound_": lambda: recommender.bound_,
        "n_iter_": lambda: recommender.n_iter_,
        "converged_": lambda: recommender.converged_,
    }
    for name, ask in questions.items():
        with pytest.raises(NotFittedError, match=r"not fitted yet; call fit"):
            ask()
        assert not name.endswith("_") or not hasattr(recommender, name), name
    assert issubclass(NotFittedError, ValueError)  # as scikit-learn's own
    assert issubclass(NotFittedError, AttributeError)
    with pytest.raises(SklearnNotFittedError):
        check_is_fitted(recommender)


def test_grid_search_over_users() -> None:
    """The folds are of users, who are then strangers to the model and folded in by `score`. Three clusters need more
    than one factor."""
    likes = planted(users=300, clusters=3, across=0.02)
    grid = {"factors": [1, 4], "likelihood_weight": np.array([1e-6, 1.0])}
    search = GridSearchCV(small(sweeps=30, consideration="popularity"), grid, cv=3, error_score="raise")
    search.fit(likes)
    assert search.best_params_["likelihood_weight"] == 1.0
    assert search.best_params_["factors"] == 4
    worst, best = search.cv_results_["mean_test_score"].min(), search.best_score_
    assert 0.4 < worst < 0.65  # the likelihood switched off: the popularity alone, which clusters do not follow
    assert best > 0.75
    check_is_fitted(search.best_estimator_)
    assert search.best_estimator_.recommend(0, by="row")[0].shape == (10,)
    assert search.score(likes) == search.best_estimator_.score(likes)


def test_cross_val_score_repeats() -> None:
    likes = planted()
    assert np.array_equal(cross_val_score(small(), likes, cv=2), cross_val_score(small(), likes, cv=2))


@pytest.mark.parametrize("frames", ["pandas", "polars"])
def test_a_data_frame_is_cross_validated(frames: str) -> None:
    """Folds are of likes, by the data's ids. Known users are ranked as they are, new ones folded in: no NaN."""
    table = as_table(planted(), user="9{}", item="7{}")  # integers that are no rows
    table = table.append_column("rating", pa.array(np.where(np.arange(table.num_rows) % 5, 5, 2)))
    likes = table.to_pandas() if frames == "pandas" else polars.DataFrame(table)
    folds = KFold(3, shuffle=True, random_state=0)
    scoring = {name: scorer(name) for name in ("ndcg@20", "Recall@10", "s_rank", "mrr", "hit rate@5", "map@3")}
    params = {"where": "rating >= 4"} if frames == "pandas" else {"reader": {"where": "rating >= 4"}}
    found = cross_validate(small(), likes, cv=folds, scoring=scoring, params=params, error_score="raise")
    for name in scoring:
        assert found[f"test_{name}"].shape == (3,)
        assert ((found[f"test_{name}"] > 0) & (found[f"test_{name}"] < 1)).all()
    train, test = next(folds.split(likes))
    rule = "rating >= 4"
    fitted = small().fit(read_interactions(table.take(train), where=rule))
    held_out = read_interactions(table.take(test), where=rule)
    assert fitted.score(held_out) == found["test_s_rank"][0]
    assert fitted.score(table.take(test), where=rule) == found["test_s_rank"][0]
    assert evaluate(fitted, held_out, resamples=2)["considerate"].metrics["NDCG@20"].mean == pytest.approx(
        found["test_ndcg@20"][0]
    )


def test_grid_search_on_a_data_frame() -> None:
    likes = as_table(planted(users=300, clusters=3, across=0.02)).to_pandas()
    grid = {"likelihood_weight": [1e-6, 1.0]}
    estimator = small(factors=4, sweeps=30, consideration="popularity")
    groups = GroupKFold(2).split(likes, groups=likes.user)  # folds of users: all are new to the model
    search = GridSearchCV(estimator, grid, scoring=scorer("ndcg@10"), cv=groups, error_score="raise").fit(likes)
    assert search.best_params_ == {"likelihood_weight": 1.0}
    assert search.best_score_ > 1.5 * search.cv_results_["mean_test_score"].min()
    assert search.score(likes.head(0).assign(user=["new", "new"], item=["i0", "i3"])) > 0


def test_a_scorer_pickles_and_refuses_what_it_does_not_know() -> None:
    assert pickle.loads(pickle.dumps(scorer("ndcg@20"))) == scorer("ndcg@20")
    for name in ("ndcg", "ndcg@0", "ndcg@x", "auc", "mrr@5", "s_rank@2"):
        with pytest.raises(UsageError, match=r"there is no metric .*; expected one such as 'recall@20'"):
            scorer(name)
    with pytest.raises(UsageError, match="no fitted Recommender"):
        scorer("mrr")(DummyClassifier(), planted())


def test_every_metric_of_a_matrix_is_that_of_new_users() -> None:
    fitted, likes = small().fit(planted()), planted(seed=1)
    held = one_per_user(Graph.from_pairs(*likes.nonzero(), *likes.shape), 0, HIDDEN_LIKES)
    folded = ModelScorer(fitted.model_, users=fitted.model_.fold_in.users(held.seen), liked=held.seen)
    ranks = held_ranks(folded, held)
    assert fitted.score(likes, metric="ndcg@7") == pytest.approx(float(ndcg(ranks, 7).mean()))
    assert fitted.score(likes) == pytest.approx(float(ranks.scores.mean()))


def test_score_leaves_out_users_of_one_like_and_refuses_where_none_is_left() -> None:
    recommender = small().fit(planted())
    one_each = sp.csr_matrix((np.ones(5), (np.arange(5), np.arange(5))), shape=(5, 40))
    likes = planted()
    assert recommender.score(sp.vstack([likes, one_each])) == recommender.score(likes)
    assert 0.5 < recommender.score(likes) < 1
    with pytest.raises(ValueError, match="at least one user with two likes"):
        recommender.score(one_each)


def _answers(recommender: Recommender) -> list[object]:
    return [
        *recommender.recommend(np.arange(20), by="row"),
        recommender.predict_proba(np.arange(10), np.arange(10), by="row"),
        *recommender.similar_items(3, by="row"),
        recommender.bound_,
        recommender.recommend_table(N=3).to_pydict(),
        repr(recommender),
    ]


def _same(one: Recommender, other: Recommender) -> None:
    for a, b in zip(_answers(one), _answers(other), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("used", [False, True], ids=["fresh", "used"])
@pytest.mark.parametrize("way", ["pickle", "deepcopy"])
@pytest.mark.parametrize("origin", ["fitted", "mapped"])
def test_estimators_pickle_like_any_object(tmp_path: Path, origin: str, way: str, used: bool) -> None:
    """Also after questions, which leave caches, and if the arrays are a mapped file's; ids are strings."""
    recommender = small().fit(as_table(planted()))
    if origin == "mapped":
        recommender.save(tmp_path / "model")
        recommender = Recommender.load(tmp_path / "model")
    if used:
        _answers(recommender)
        recommender.recommend_table(["u3", "u7"])
        recommender.fold_in([1, 2], by="row")
        recommender.explain(0, 1, by="row")
    copied = pickle.loads(pickle.dumps(recommender)) if way == "pickle" else copy.deepcopy(recommender)
    (tmp_path / "model").unlink(missing_ok=True)
    _same(recommender, copied)
    copied.fit(as_table(planted(seed=1)))
    assert not np.array_equal(copied.user_factors, recommender.user_factors)


def test_an_estimator_that_is_not_fitted_pickles_too() -> None:
    copied = pickle.loads(pickle.dumps(Recommender(factors=9)))
    assert copied.factors == 9
    with pytest.raises(UsageError, match="not fitted"):
        copied.recommend(0, by="row")


def test_numbers_of_numpy_and_whole_floats_are_as_good_as_pythons(tmp_path: Path) -> None:
    """A grid in NumPy gives NumPy's scalars; what fit and save make of them is the same."""
    likes = planted()
    plain = small(hidden="expected", groups=8, negatives=2.0, seed=3).fit(likes)
    other = small(
        hidden=np.str_("expected"),
        groups=np.float32(8),
        negatives=np.int64(2),
        seed=np.uint8(3),
        factors=3.0,
        sweeps=np.float64(6),
        threads=1.0,
    ).fit(likes)
    assert np.array_equal(plain.user_factors, other.user_factors)
    other.save(tmp_path / "model")
    assert Recommender.load(tmp_path / "model").get_params() == plain.get_params()


def test_cross_validation_ends_on_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fit that was cut short is no fold of it."""
    sweeps, folds = InMemory.sweeps, []

    def press_ctrl_c(runner: InMemory, state: Any = None) -> Any:
        folds.append(runner)
        for done in sweeps(runner, state):
            yield done
            if done.state.sweep == 3:
                raise KeyboardInterrupt

    monkeypatch.setattr(InMemory, "sweeps", press_ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        cross_val_score(small(), planted(), cv=3)
    assert len(folds) == 1
