"""Models that several tests use, and all that can be asked of one."""

from __future__ import annotations

from typing import Any

import numpy as np

from considerate import Recommender
from considerate.data.graph import Adjacency
from considerate.data.vocabulary import Vocabulary
from considerate.inference.plan import FitPlan
from considerate.inference.posterior import Gamma, Precisions, Side
from considerate.model.model import Model
from considerate.model.users import UserRows
from tests.helpers.likes import planted, stored_settings


def answers(recommender: Recommender) -> list[Any]:
    """Everything that a model of at least 30 users by 40 items can be asked."""
    likes = planted(seed=3)[:20]
    return [
        *recommender.recommend(np.arange(30), N=12, by="row"),
        *recommender.recommend(np.arange(20), likes, recalculate_user=True, by="row"),
        *recommender.recommend(4, thompson_seed=5, by="row"),
        recommender.predict_proba(np.arange(30)[:, None], np.arange(40)[None, :], by="row"),
        *recommender.predict_logit(3, 4, by="row"),
        *recommender.similar_items(np.arange(5), by="row"),
        *recommender.similar_users(7, by="row"),
        *recommender.export_vectors(),
        np.array(recommender.explain(2, 3, by="row")[1]),
        recommender.recommend_table(N=3, cold="popular").to_pydict(),
        recommender.popularity_,
        recommender.bound_,
        recommender.precisions_,
        recommender.n_iter_,
        recommender.converged_,
        recommender.get_params(),
        recommender.score(likes),
        recommender.model_.plan,
    ]


def assert_same(one: Recommender, other: Recommender) -> None:
    for a, b in zip(answers(one), answers(other), strict=True):
        if isinstance(a, np.ndarray):
            np.testing.assert_array_equal(a, b)
        else:
            assert a == b


def assert_same_fit(found: Recommender, wanted: Recommender) -> None:
    """To the last bit: the posterior, all bounds, how it ended, and what the model was told."""
    one, two = found.posterior_, wanted.posterior_
    for mine, theirs in ((one.users, two.users), (one.items, two.items)):
        assert np.array_equal(mine.rows, theirs.rows)
        assert all(np.array_equal(a, b) for a, b in zip(mine.biases, theirs.biases))
    assert one.precisions == two.precisions
    assert found.model_.bounds == wanted.model_.bounds
    assert (found.converged_, found.n_iter_) == (wanted.converged_, wanted.n_iter_)
    assert stored_settings(found) == stored_settings(wanted)


def random_model(users: int, items: int = 40, factors: int = 5, ids: str = "range", bias: bool = False) -> Model:
    """A model with a random posterior, as if it had been fitted. Everyone liked up to three items, some nothing."""
    random = np.random.default_rng(users)

    def side(rows: int, biased: bool) -> Side:
        made = Side.constant(rows, factors, 0.05, 0.05 if biased else None)
        made.mean[:] = random.standard_normal((rows, factors), np.float32)
        if made.bias_mean is not None:
            made.bias_mean[:] = random.standard_normal(rows, np.float32)
        return made

    degree = random.integers(0, 4, users)
    starts = np.concatenate([[0], np.cumsum(degree)])
    ranks = np.arange(starts[-1]) - np.repeat(starts[:-1], degree)
    liked = Adjacency(starts, (np.repeat(random.integers(0, items - 4, users), degree) + ranks).astype(np.int32))
    gammas = Gamma(2.0, 1.0), Gamma(3.5, 1.0), Gamma(1.5, 1.0) if bias else None, Gamma(1.0, 1.0)
    named = {
        "range": Vocabulary.range(users),
        "integers": Vocabulary.of_integers(np.arange(users) * 7 - 1000),
        "strings": Vocabulary.of_strings(f"u{m}" for m in range(users)),
    }
    return Model(
        users=UserRows(side(users, bias), liked.degrees, liked, named[ids]),
        items=side(items, True),
        precisions=Precisions(*gammas),
        popularity=random.integers(1, 50, items).astype(np.float64),
        gamma=1.0,
        item_degree=np.bincount(liked.indices, minlength=items).astype(np.int64),
        item_ids=Vocabulary.range(items),
        titles=None,
        plan=FitPlan.of_paper(factors=factors, negatives=5.0, user_bias=bias, groups=8),
        bounds=(),
        parameters={"factors": factors, "threads": 1, "user_bias": bias},
    )
