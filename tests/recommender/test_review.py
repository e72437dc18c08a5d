"""What a reader with fresh eyes broke, so that it stays mended."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from considerate import Recommender
from considerate.data.graph import Adjacency
from considerate.data.vocabulary import Vocabulary
from considerate.errors import UsageError
from considerate.inference.hidden.saturation import Saturation
from considerate.inference.plan import FitPlan
from considerate.inference.posterior import Gamma, Posterior, Precisions, Side
from considerate.kernels import compiled
from considerate.model.predict import FoldIn
from considerate.model.users import UserRows


@pytest.fixture
def likes() -> scipy.sparse.csr_matrix:
    random = np.random.default_rng(0)
    return scipy.sparse.csr_matrix((random.random((40, 25)) < 0.2).astype(np.float32))


def small(**settings: object) -> Recommender:
    return Recommender(factors=3, sweeps=3, **settings)


def test_a_refit_interrupted_while_reading_does_not_pass_for_a_fit(likes: scipy.sparse.csr_matrix) -> None:
    model = small().fit(likes)

    class Interrupted:
        def __arrow_c_stream__(self, schema: object = None) -> object:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.fit(Interrupted())


def test_a_forgotten_generator_does_not_overwrite_a_later_fit(likes: scipy.sparse.csr_matrix) -> None:
    model = small()
    forgotten = model.fit_steps(likes)
    next(forgotten)
    model.fit(likes[:, :11])
    forgotten.close()
    assert len(model.item_factors) == 11


def test_users_of_few_likes_pass_over_few_items_in_a_large_flat_catalogue() -> None:
    side = Side.constant(1, 2, 1.0, 1.0)
    posterior = Posterior(side, side, Precisions(Gamma(1, 1), Gamma(1, 1), None, Gamma(1, 1)))
    weights, degrees = np.ones(200_000), np.array([1, 2, 5, 10, 100])
    no_likes = Adjacency(np.zeros(6, np.int64), np.empty(0, np.int32))
    users = UserRows(Side.constant(5, 2, 1.0, 1.0), degrees, no_likes, Vocabulary.range(5))
    temperature = FoldIn(posterior, weights, FitPlan.of_paper(negatives=3.0)).passing(users).temperature
    considered = -np.expm1(-temperature[:, None] * weights[None, :3]).mean(axis=1) * len(weights)
    np.testing.assert_allclose(considered, 3.0 * degrees, rtol=0.01)
    assert Saturation(weights).table[0, 0] > 15  # the smallest of them are below the table, where it used to clamp


def test_questions_that_make_no_sense_are_refused_in_words(likes: scipy.sparse.csr_matrix) -> None:
    model = small().fit(likes)
    with pytest.raises(UsageError, match="do not make pairs"):
        model.predict_proba([0, 1, 2], [0, 1])
    with pytest.raises(UsageError, match="give an id or a list"):
        model.recommend_table(5.0)
    with pytest.raises(UsageError, match="give an id or a list"):
        model.recommend_for([1], allow=3.5)
    with pytest.raises(UsageError, match="from 1 to"):
        model.recommend(0, N=10**20)
    for knob in (1e38, float("nan"), float("inf")):
        with pytest.raises(UsageError, match="popularity"):
            model.recommend(0, popularity=knob)
    with pytest.raises(UsageError, match="explore_kappa"):
        model.recommend(0, explore_kappa=1e300)
    with pytest.raises(UsageError, match="score"):
        model.recommend([], score="bogus")
    with pytest.raises(UsageError, match="batch"):
        list(model.recommend_batches([0], batch=0))
    with pytest.raises(UsageError, match="rate"):
        small(rate=1e-310).fit(likes)
    with pytest.raises(UsageError, match="hidden"):
        small(hidden=np.array(["sampled", "expected"])).fit(likes)


def test_a_text_is_one_id_not_a_list_of_letters(likes: scipy.sparse.csr_matrix) -> None:
    model = small().fit(likes)
    one, same = model.recommend_for("12"), model.recommend_for(["12"])
    assert one.equals(same)


def test_degrees_stay_as_they_are_where_likes_are_not_known(likes: scipy.sparse.csr_matrix, tmp_path) -> None:
    small().fit(likes).save(tmp_path / "m.safetensors", likes=False)
    model = Recommender.load(tmp_path / "m.safetensors")
    before = model.model_.users.whole().degree.copy()
    model.partial_fit_items([0], likes.T.tocsr()[:1])
    np.testing.assert_array_equal(model.model_.users.whole().degree, before)


def test_results_are_never_written_to_a_copy() -> None:
    with pytest.raises(TypeError):
        compiled.count_columns(np.zeros(3, np.int32), np.zeros(3, np.int32))
    with pytest.raises(TypeError):
        compiled.count_columns(np.zeros(3, np.int32), np.zeros(6, np.int64)[::2])
    counts = np.zeros(3, np.int64)
    compiled.count_columns(np.zeros(3, np.int32), counts)
    assert counts.tolist() == [3, 0, 0]
