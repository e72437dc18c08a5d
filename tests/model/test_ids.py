"""One rule for every method: a model speaks the ids of its data, a model of a matrix row numbers, by="row" row numbers.

Relabelling a fitted model relabels every answer and changes nothing else. Public methods are found by introspection, so
that one without the rule fails here.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp

from considerate import Recommender, read_interactions
from considerate.data.read_features import read_features
from considerate.data.vocabulary import Titles, Vocabulary
from considerate.errors import UnknownIdError, UsageError
from considerate.inference.features import FeatureWeights, Regression
from considerate.inference.posterior import Gamma
from considerate.model.features import LearnedFeatures
from considerate.model.liking import INTERVALS
from tests.helpers.likes import skewed

USERS, ITEMS = 60, 25
LIKES = skewed(USERS, ITEMS)
TITLES = [f"Title {n}" if n % 5 else None for n in range(ITEMS)]
Ids = dict[int, Any]  # what each row of the base model is called


@dataclass(frozen=True)
class Names:
    """How the rows of the base model are named when another is asked."""

    users: Ids = field(default_factory=lambda: {m: m for m in range(USERS + 1)})
    items: Ids = field(default_factory=lambda: {n: n for n in range(ITEMS + 1)})
    by: dict[str, str] = field(default_factory=dict)

    def u(self, rows: Any) -> Any:
        return self.users[rows] if isinstance(rows, int) else [self.users[row] for row in rows]

    def i(self, rows: Any) -> Any:
        return self.items[rows] if isinstance(rows, int) else [self.items[row] for row in rows]

    def relabelled(self, kind: str, answer: Any) -> Any:
        """An answer of the base model as this one should give it; what fills short rows stays."""
        names = {"user": self.users, "item": self.items}.get(kind)
        texts = names is not None and isinstance(names[0], str)
        return (
            answer if names is None else [names.get(row, None if texts else row) for row in np.ravel(answer).tolist()]
        )


def fitted(likes: Any, titles: list[str | None] = TITLES) -> Recommender:
    interactions = replace(read_interactions(likes), titles=Titles.of_strings(titles))
    return Recommender(factors=3, sweeps=4, threads=1).fit(interactions)


@pytest.fixture(scope="module")
def base() -> Recommender:
    """Of a matrix: it speaks rows."""
    return fitted(LIKES)


# --- What can be asked ---

Answer = list[tuple[str, Any]]  # ("user", "item" or "value", what came back)


def ranked(kind: str, found: Any) -> Answer:
    return [(kind, found.ids), ("value", found.scores)]


def columns(found: pa.Table) -> Answer:
    return [(name if name in ("user", "item") else "value", values) for name, values in found.to_pydict().items()]


def reasons(why: Any) -> Answer:
    pairs = [*why.liked_because, *why.considered_because]
    values = [why.p_like, why.p_considered, why.by_popularity, *(share for _, share in pairs)]
    return [("item", [item for item, _ in pairs]), ("value", values)]


def ask_recommend(model: Recommender, n: Names) -> Answer:
    one, several = n.u(7), n.u([3, 9, 3, 50])
    likes, kinds = [n.i([5]), n.i([6, 7]), n.i([]), n.i([1, 0])], {n.i(row): "AB"[row % 2] for row in range(ITEMS)}
    return [
        *ranked("item", model.recommend(one, **n.by)),
        *ranked("item", model.recommend(several, N=ITEMS, **n.by)),  # with short rows
        *ranked("item", model.recommend(several, N=4, items=n.i([0, 4, 9, 11, 24]), filter_items=n.i([4]), **n.by)),
        *ranked("item", model.recommend(one, n.i([1, 2, 3]), **n.by)),
        *ranked("item", model.recommend(several, likes, recalculate_user=True, **n.by)),
        *ranked("item", model.recommend(one, categories=kinds, most_per_category=2, **n.by)),
    ]


def ask_recommend_table(model: Recommender, n: Names) -> Answer:
    everyone = model.recommend_table(N=2, **n.by).to_pylist()
    return [
        *columns(model.recommend_table(n.u([3, 9]), 4, **n.by)),
        *columns(model.recommend_table(n.u(5), ITEMS, allow=n.i([1, 2, 3, 4, 5]), deny=n.i([2]), **n.by)),
        ("item", [row["item"] for name in n.u(range(USERS)) for row in everyone if row["user"] == name]),
    ]


def ask_recommend_batches(model: Recommender, n: Names) -> Answer:
    return columns(pa.Table.from_batches(model.recommend_batches(n.u([3, 9, 40]), 4, batch=2, **n.by)))


def ask_recommend_for(model: Recommender, n: Names) -> Answer:
    return columns(model.recommend_for(n.i([1, 5, 6]), 5, deny=n.i([7]), **n.by))[1:]  # the user is null


def ask_similar_items(model: Recommender, n: Names) -> Answer:
    return [
        *ranked("item", model.similar_items(n.i([3, 20]), N=5, **n.by)),
        *ranked("item", model.similar_items(n.i(3), 5, filter_items=n.i([5, 6]), items=n.i(range(20)), **n.by)),
        *ranked("item", model.similar_items(n.i(3), 6, True, n.u([1, 2, 30]), **n.by)),
    ]


def ask_similar_users(model: Recommender, n: Names) -> Answer:
    narrowed = model.similar_users(n.u(3), N=5, filter_users=n.u([5, 6]), users=n.u(range(20)), **n.by)
    return [*ranked("user", model.similar_users(n.u([3, 20]), N=5, **n.by)), *ranked("user", narrowed)]


def ask_explain(model: Recommender, n: Names) -> Answer:
    new_user = model.explain(n.u(4), n.i(9), n.i([1, 2, 8]), **n.by)
    return [*reasons(model.explain(n.u(4), n.i(9), N=30, **n.by)), *reasons(new_user)]


def ask_predict_proba(model: Recommender, n: Names) -> Answer:
    return [
        ("value", model.predict_proba(n.u(3), n.i(5), **n.by)),
        ("value", model.predict_proba(n.u([3, 4]), n.i([5, 6]), **n.by)),
        ("value", model.predict_proba(n.u(3), n.i(range(ITEMS)), **n.by)),
    ]


def ask_predict_logit(model: Recommender, n: Names) -> Answer:
    pairs = model.predict_logit(n.u([3, 4]), n.i([5, 6]), **n.by)
    return [("value", model.predict_logit(n.u(3), n.i(5), **n.by)), *(("value", values) for values in pairs)]


def ask_predict_interval(model: Recommender, n: Names) -> Answer:
    kinds = [model.predict_interval(n.u([3, 4]), n.i([5, 6]), interval=kind, **n.by) for kind in INTERVALS]
    one = model.predict_interval(n.u(3), n.i(5), **n.by)
    return [("value", one), *(("value", values) for ends in kinds for values in ends)]


def ask_recalibrate(model: Recommender, n: Names) -> Answer:
    """All pairs of some users: likes of the training are among them and left out."""
    rows = np.repeat(np.arange(12), ITEMS).tolist(), np.tile(np.arange(ITEMS), 12).tolist()
    pairs = n.u(rows[0]), n.i(rows[1])
    rank = np.argsort(np.argsort(model.predict_proba(*pairs, **n.by)))
    line = model.recalibrate(*pairs, rank % 10 >= 9 - 9 * rank // len(rank), **n.by).recalibration_
    assert 0 < line.training < len(rank) == line.training + line.pairs
    numbers = [value for covariate in line.covariates.values() for value in covariate]
    return [
        ("value", [line.slope, line.shift, line.training, *numbers]),
        ("value", model.predict_proba(n.u(3), n.i(range(ITEMS)), **n.by)),
    ]


def ask_fold_in(model: Recommender, n: Names) -> Answer:
    one, two = model.fold_in(n.i([1, 2, 9]), **n.by), model.fold_in([n.i([1]), n.i([2])], **n.by)
    return [("value", one.mean), ("value", two.mean)]


def ask_score(model: Recommender, n: Names) -> Answer:
    """It reads data, which speaks ids."""
    new = pa.table({"user": n.u([3, 3, 9, 40]), "item": n.i([20, 21, 22, 24])})
    return [("value", model.score(new))]


def ask_titles(model: Recommender, n: Names) -> Answer:
    titles = model.titles(n.i(range(ITEMS)), **n.by)
    missing = [row for row in range(ITEMS) if not titles[row].startswith("Title")]
    assert n.by or [titles[row] for row in missing] == [str(n.i(row)) for row in missing]
    return [("value", [title for title in titles if title.startswith("Title")]), ("value", missing)]


def ask_find(model: Recommender, n: Names) -> Answer:
    found = model.find("title 1", **n.by)
    return [("item", [match.item for match in found]), ("value", [list(match[1:]) for match in found])]


def ask_partial_fit_users(model: Recommender, n: Names) -> Answer:
    """Two who are known, and one who is not."""
    new = [] if n.by else [USERS]
    model.partial_fit_users(n.u([4, 2, *new]), [n.i([1, 2, 3]), n.i([7]), *([n.i([8, 9])] if new else [])], **n.by)
    return [*ranked("item", model.recommend(n.u([2, 4, 5, *new]), N=5, **n.by)), *ask_similar_users(model, n)]


def ask_partial_fit_items(model: Recommender, n: Names) -> Answer:
    new = [] if n.by else [ITEMS]
    model.partial_fit_items(n.i([8, *new]), [n.u([1, 2, 3]), *([n.u([8, 9, 30])] if new else [])], **n.by)
    return [*ask_similar_items(model, n), *ask_recommend_table(model, n), *ask_explain(model, n)]


def ask_update(model: Recommender, n: Names) -> Answer:
    """It reads data, which speaks ids: likes of users and items that are known, and of one each that is not."""
    new = pa.table({"user": n.u([3, 9, USERS, USERS, 9]), "item": n.i([20, ITEMS, 4, 7, 21])})
    model.update(new, removed=pa.table({"user": n.u([5, 6]), "item": n.i([5, 6])}))
    return [*ranked("item", model.recommend(n.u([3, 5, 9, 40, USERS]), N=5)), *ask_similar_users(model, n)]


def ask_forget(model: Recommender, n: Names) -> Answer:
    """The last ones: where ids are row numbers, rows stay."""
    model.forget(n.u([USERS - 2, USERS - 1]), **n.by)
    return [*ask_recommend_batches(model, n), *ask_predict_proba(model, n), *ask_explain(model, n)]


def ask_add_items(model: Recommender, n: Names) -> Answer:
    """An item that is cold, by its id; one that is not stays as it is."""
    features = read_features({"item": n.i(range(ITEMS)), "half": [str(row % 2) for row in range(ITEMS)]})
    matrix = np.ones((features.features.count, model.model_.factors))
    weights = [Regression(mean, np.eye(len(mean)), Gamma(1.0, 1.0), 0.0) for mean in (matrix, matrix[:, :1])]
    learned = LearnedFeatures(features.align(model.model_.item_ids), FeatureWeights(*weights))
    model._model = replace(model.model_, item_features=learned)
    model.add_items({"item": n.i([2, ITEMS]), "half": ["0", "1"]})
    assert model.cold_items_.tolist() == n.i([ITEMS])
    return [*ranked("item", model.recommend(n.u([2, 4]), N=ITEMS + 1)), *ask_similar_items(model, replace(n, by={}))]


ASK: dict[str, Callable[[Recommender, Names], Answer]] = {
    name.removeprefix("ask_"): value for name, value in globals().copy().items() if name.startswith("ask_")
}
NO_BY = {"score", "update", "add_items"}
ROWS_AND_IDS = {"item_ids", "item_rows", "user_ids", "user_rows"}  # tested by themselves
NO_NAMES = {  # neither take nor give some users or items
    *(
        "build_index",
        "check",
        "expected_likes",
        "export_vectors",
        "feature_importance",
        "fit",
        "fit_request",
        "fit_steps",
    ),
    *("get_params", "load", "load_index", "plan", "save", "set_params"),
}


def test_every_public_method_is_asked() -> None:
    """A new method belongs to ASK, or to NO_NAMES if it is about no user and no item."""
    public = {name for name, _ in inspect.getmembers(Recommender, callable) if not name.startswith("_")}
    assert public == {*ASK, *ROWS_AND_IDS, *NO_NAMES}
    for name in ASK.keys() - NO_BY:
        by = inspect.signature(getattr(Recommender, name)).parameters["by"]
        assert (by.default, by.kind) == ("id", by.KEYWORD_ONLY), name
    for name in NO_NAMES - {"fit", "fit_request", "fit_steps"}:
        named = [
            word for word in inspect.signature(getattr(Recommender, name)).parameters if word[:4] in ("user", "item")
        ]
        assert not named, f"{name} takes {named}"


# --- Relabelling ---


LABELS = {
    "texts": ([f"u{m:03}" for m in range(USERS + 1)], [f"item {n:03} é" for n in range(ITEMS + 1)]),
    "integers": ([1000 + 7 * m for m in range(USERS + 1)], [-40 + 2 * n for n in range(ITEMS + 1)]),
    "the row numbers of others": ([m + 3 for m in range(USERS + 1)], [2 * n for n in range(ITEMS + 1)]),
    "mixed": ([f"u{m:03}" for m in range(USERS + 1)], [1000 + n for n in range(ITEMS + 1)]),
}


def relabel(base: Recommender, ids: tuple[list[Any], list[Any]]) -> tuple[Recommender, Names]:
    """The model with ascending ids in place of row numbers."""

    def vocabulary(ids: list[Any]) -> Vocabulary:
        return Vocabulary.of_strings(ids) if isinstance(ids[0], str) else Vocabulary.of_integers(np.array(ids))

    model, (users, items) = copy.copy(base), ids
    named = replace(base.model_.users.whole(), ids=vocabulary(users[:USERS]))
    model._model = replace(base.model_, users=named, item_ids=vocabulary(items[:ITEMS]))
    return model, Names(dict(enumerate(users)), dict(enumerate(items)))


def check(rows: Answer, found: Answer, names: Names) -> None:
    """The answer of a model that speaks rows and the same by other names."""
    assert len(rows) == len(found)
    for (kind, wanted), (_, given) in zip(rows, found):
        if kind == "value":
            np.testing.assert_array_equal(np.asarray(given), np.asarray(wanted))
        else:
            assert np.ravel(np.array(given, object)).tolist() == names.relabelled(kind, wanted)


@pytest.mark.parametrize("method", ASK)
def test_relabelling_a_fitted_model_relabels_every_answer(base: Recommender, method: str) -> None:
    rows = ASK[method](copy.copy(base), Names())
    for ids in LABELS.values():
        model, names = relabel(base, ids)
        check(rows, ASK[method](model, names), names)


@pytest.mark.parametrize("method", [name for name in ASK if name not in NO_BY])
def test_by_row_speaks_rows_of_any_model(base: Recommender, method: str) -> None:
    by_row = Names(by={"by": "row"})
    wanted = ASK[method](copy.copy(base), by_row)
    for ids in LABELS.values():
        check(wanted, ASK[method](relabel(base, ids)[0], by_row), by_row)
    with pytest.raises(UsageError, match=r"by is 'id number'; it must be 'id', .* or 'row'"):
        ASK[method](copy.copy(base), Names(by={"by": "id number"}))


def shuffled(pattern: str, count: int, seed: int) -> list[Any]:
    """Ids in no order, and one that is above them all."""
    texts = [pattern.format(number) for number in [*np.random.default_rng(seed).permutation(count), 9999]]
    return texts if pattern[0].isalpha() else [int(text) for text in texts]


BEFORE = LABELS | {
    "shuffled integers": (shuffled("1{:03}", USERS, 0), shuffled("1{:03}", ITEMS, 1)),
    "shuffled row numbers": (shuffled("{}", USERS, 2), shuffled("{}", ITEMS, 3)),
    "shuffled texts": (shuffled("u{:04}", USERS, 4), shuffled("i{:04}", ITEMS, 5)),
}


@pytest.mark.parametrize("ids", BEFORE)
def test_a_fit_to_relabelled_data_is_the_fit_to_its_matrix(ids: str) -> None:
    """To the matrix with its rows in the order of the ids, bit for bit, and so is every answer; where the relabelling
    keeps the order it is the fit to the data before."""
    users, items = BEFORE[ids]
    m, n = LIKES.nonzero()
    user_order, item_order = np.argsort(users[:USERS]), np.argsort(items[:ITEMS])
    likes, titles = LIKES[user_order][:, item_order], [TITLES[row] for row in item_order]
    by_id = fitted(pa.table({"user": [users[row] for row in m], "item": [items[row] for row in n]}), titles)
    by_row = fitted(likes, titles)
    assert by_id.posterior_.users.rows.tobytes() == by_row.posterior_.users.rows.tobytes()
    assert by_id.posterior_.items.rows.tobytes() == by_row.posterior_.items.rows.tobytes()
    names = Names(dict(enumerate(sorted(users))), dict(enumerate(sorted(items))))
    for ask in ASK.values():
        check(ask(copy.copy(by_row), Names()), ask(copy.copy(by_id), names), names)
    if ids in LABELS:
        assert (user_order == np.arange(USERS)).all()


# --- Rows to ids and back ---


def test_rows_and_ids(base: Recommender) -> None:
    model, names = relabel(base, LABELS["mixed"])
    assert model.user_ids().tolist() == names.u(range(USERS))
    assert model.item_ids([3, 0]).tolist() == [1003, 1000]
    assert model.item_ids().dtype == np.int64
    assert (model.item_rows([1003, 1000]).tolist(), model.user_rows("u007")) == ([3, 0], 7)
    assert base.item_ids([[1, 2]]).tolist() == base.item_rows([[1, 2]]).tolist() == [[1, 2]]
    for ask in (lambda: model.item_ids([ITEMS]), lambda: base.item_rows([ITEMS])):
        with pytest.raises(UnknownIdError, match="item 25 is not in the model, which has items 0 to 24"):
            ask()


def test_ids_come_in_whatever_holds_them(base: Recommender) -> None:
    texts, integers = relabel(base, LABELS["texts"])[0], relabel(base, LABELS["integers"])[0]
    for model, ids in ((texts, ["u003", "u009"]), (integers, [1021, 1063]), (base, [3, 9])):
        wanted = model.similar_users(ids, N=4)
        kinds = (tuple, np.array, pd.Series, pd.Index, pa.array, pd.Categorical, iter)
        for several in (*(kind(ids) for kind in kinds), np.array(ids, object), (name for name in ids)):
            found = model.similar_users(several, N=4)
            assert found.ids.tolist() == wanted.ids.tolist()
    assert integers.similar_users("1021").ids.tolist() == integers.similar_users(np.uint16(1021)).ids.tolist()
    assert texts.recommend(["u003"], N=ITEMS).ids[0, -1] is None  # the end of a short row
    assert np.isnan(texts.recommend(["u003"], N=ITEMS).scores[0, -1])
    assert integers.recommend([1021], N=ITEMS).ids[0, -1] == -1


def test_likes_are_lists_of_ids_or_a_matrix_in_the_order_of_the_rows(base: Recommender) -> None:
    model, names = relabel(base, LABELS["texts"])
    both = model.fold_in([names.i([1, 2]), names.i([9])]).mean
    np.testing.assert_allclose(model.fold_in(names.i([2, 1])).mean[0], both[0], atol=1e-3)
    matrix = sp.csr_matrix(([1.0] * 3, ([0, 0, 1], [1, 2, 9])), (2, ITEMS))
    assert np.array_equal(model.fold_in(matrix).mean, both)
    with pytest.raises(UsageError, match=r"24 columns and the model knows 25 items, in the order of item_ids\(\)"):
        model.fold_in(matrix[:, : ITEMS - 1])
    with pytest.raises(UsageError, match="user_items has 1 rows for 2 users"):
        model.recommend(names.u([1, 2]), names.i([1, 2]))


# --- What cannot be what it claims ---

QUESTIONS: dict[str, list[Callable[[Recommender, Names, Any], object]]] = {
    "user": [
        lambda m, n, bad: m.recommend(bad),
        lambda m, n, bad: m.recommend([n.u(1), bad]),
        lambda m, n, bad: m.recommend_table([n.u(1), bad]),
        lambda m, n, bad: list(m.recommend_batches([bad])),
        lambda m, n, bad: m.predict_proba(bad, n.i(1)),
        lambda m, n, bad: m.predict_logit([bad], n.i([1])),
        lambda m, n, bad: m.predict_interval(bad, n.i(1)),
        lambda m, n, bad: m.explain(bad, n.i(1)),
        lambda m, n, bad: m.similar_users(bad),
        lambda m, n, bad: m.similar_users(n.u(1), users=[bad]),
        lambda m, n, bad: m.similar_users(n.u(1), filter_users=[bad]),
        lambda m, n, bad: m.similar_items(n.i(1), recalculate_item=True, item_users=[bad]),
        lambda m, n, bad: m.partial_fit_items(n.i([1]), [[bad]]),
        lambda m, n, bad: m.recalibrate([bad], n.i([1]), [1]),
        lambda m, n, bad: m.user_rows(bad),
        lambda m, n, bad: m.forget([n.u(1), bad]),
    ],
    "item": [
        lambda m, n, bad: m.recommend(n.u(1), items=[bad]),
        lambda m, n, bad: m.recommend(n.u(1), filter_items=[bad]),
        lambda m, n, bad: m.recommend(n.u(1), [bad]),
        lambda m, n, bad: m.recommend_table(n.u(1), allow=[bad]),
        lambda m, n, bad: m.recommend_table(n.u(1), deny=[bad]),
        lambda m, n, bad: m.recommend_for([bad]),
        lambda m, n, bad: m.predict_proba(n.u(1), bad),
        lambda m, n, bad: m.predict_interval([n.u(1)], [bad]),
        lambda m, n, bad: m.explain(n.u(1), bad),
        lambda m, n, bad: m.explain(n.u(1), n.i(1), [bad]),
        lambda m, n, bad: m.similar_items(bad),
        lambda m, n, bad: m.similar_items(n.i(1), items=[bad]),
        lambda m, n, bad: m.similar_items(n.i(1), filter_items=[bad]),
        lambda m, n, bad: m.fold_in([bad]),
        lambda m, n, bad: m.partial_fit_users(n.u([1]), [[bad]]),
        lambda m, n, bad: m.recalibrate(n.u([1]), [bad], [1]),
        lambda m, n, bad: m.titles(bad),
        lambda m, n, bad: m.item_rows(bad),
    ],
}


@pytest.mark.parametrize("what", QUESTIONS)
def test_what_cannot_be_a_name_is_one_error_that_names_the_other_form(base: Recommender, what: str) -> None:
    texts, by_text = relabel(base, LABELS["texts"])
    integers, by_integer = relabel(base, LABELS["integers"])
    a_float, no_rows = (
        rf"{what}s are named by their ids, such as .*, and 1\.0 \(float\) .* by='row' takes",
        "row numbers here",
    )
    cases: list[tuple[Recommender, Names, Any, type[Exception], str]] = [
        (base, Names(), "u001", UsageError, rf"{what}s are {no_rows}, .* 'u001' \(str\) .* a matrix; .* takes ids"),
        (base, Names(), 1.0, UsageError, rf"{what}s are {no_rows}, .* 1\.0 \(float\)"),
        (base, Names(), 777, UnknownIdError, rf"{what} 777 is not in the model, which has {what}s 0 to"),
        (base, Names(), -1, UnknownIdError, rf"{what} -1 is not in the model"),
        (texts, by_text, 7, UnknownIdError, rf"{what} 7 is not in the model, .* 7 .* row number: give by='row'"),
        (texts, by_text, "x", UnknownIdError, rf"{what} 'x' is not in the model, which knows"),
        (texts, by_text, 1.0, UsageError, a_float),
        (integers, by_integer, 7, UnknownIdError, rf"{what} 7 is not in the model, .* give by='row'"),
        (integers, by_integer, 777, UnknownIdError, rf"{what} 777 is not in the model, which knows \d+ {what}s\b"),
        (integers, by_integer, "x", UnknownIdError, rf"{what} 'x' is not in the model, which knows"),
        (integers, by_integer, 1.0, UsageError, a_float),
    ]
    for model, names, bad, error, message in cases:
        for ask in QUESTIONS[what]:
            with pytest.raises(error, match=message) as caught:
                ask(copy.copy(model), names, bad)
            assert str(caught.value).endswith(".")
            assert "\n" not in str(caught.value)
    with pytest.raises(
        UsageError, match=r"row numbers here, 0 to 59, and 'u001' .*: by='row' takes them; leave it out"
    ):
        texts.recommend("u001", by="row")


def test_unknown_users_come_back_under_the_id_they_were_asked_by(base: Recommender) -> None:
    texts, integers = relabel(base, LABELS["texts"])[0], relabel(base, LABELS["integers"])[0]
    assert texts.recommend_table(["who", "u001", 7], 1, cold="popular")["user"].to_pylist() == ["who", "u001", "7"]
    assert integers.recommend_table([5, 1007], 1, cold="popular")["user"].to_pylist() == [5, 1007]
    assert integers.recommend_table([1007, "who"], 1, cold="popular")["user"].to_pylist() == ["1007", "who"]
    assert base.recommend_table([777], 1, cold="popular")["user"].to_pylist() == [777]


def test_a_draw_for_someone_new_is_theirs(base: Recommender) -> None:
    """Thompson draws of users who are folded in go by the id, whoever else is asked for."""
    model, names = relabel(base, LABELS["texts"])
    likes, draw = names.i([1, 2]), {"recalculate_user": True, "thompson_seed": 3}
    ann, bob = (model.recommend(name, likes, **draw).scores for name in ("ann", "bob"))  # type: ignore[arg-type]
    assert not np.array_equal(ann, bob)
    both = model.recommend(["bob", "ann"], [likes, likes], **draw).scores  # type: ignore[arg-type]
    np.testing.assert_allclose(both, [bob, ann], atol=1e-3)
    again = model.recommend(iter(["bob", "ann"]), [likes, likes], **draw).scores  # type: ignore[arg-type]
    assert np.array_equal(again, both)
    for user in ("ann", -1):
        with pytest.raises((UsageError, UnknownIdError), match=r"row numbers here|user -1 is not in the model"):
            base.recommend(user, [1, 2], recalculate_user=True)


# --- Users and items that are added ---


@pytest.mark.parametrize("kind", ["integers", "texts"])
def test_new_ids_are_sorted_in_and_saved(base: Recommender, kind: str, tmp_path: Path) -> None:
    """Among others: the rows after them move, and everyone is still who they were."""
    model, names = relabel(base, LABELS[kind])
    asked: dict[str, Any] = {"N": ITEMS, "popularity": 0.0, "lift": 0.0}  # pi follows the likes of all
    before = model.recommend_table(**asked).drop_columns("p_considered").to_pylist()
    users = {"integers": [1, 1001, 10**6], "texts": ["a", "u0005", "z"]}[kind]
    likes = [names.i([1, 2]), names.i([3]), names.i([4, 5, 6])]
    model.partial_fit_users([users[1], names.u(9), users[0], users[2]], [likes[1], names.i([7]), likes[0], likes[2]])
    assert model.user_ids().tolist() == sorted([*names.u(range(USERS)), *users])
    for user, liked in zip(users, likes):
        row = model.user_rows(user)
        np.testing.assert_allclose(model.user_factors[row], model.fold_in(liked).mean[0], atol=1e-3)
        assert not {*liked} & {*model.recommend(user, N=ITEMS).ids.tolist()}
    after = model.recommend_table(**asked).drop_columns("p_considered").to_pylist()
    others = [row for row in after if row["user"] not in (names.u(9), *users)]
    assert others == [row for row in before if row["user"] != names.u(9)]

    items = {"integers": [-39, 10**6], "texts": ["a", "z"]}[kind]
    fans = [[users[0], names.u(3)], names.u([5, 6, 7])]
    degree = dict(zip(model.item_ids().tolist(), model.model_.item_degree.tolist()))
    model.partial_fit_items(items, fans)
    assert model.item_ids().tolist() == sorted([*names.i(range(ITEMS)), *items])
    assert model.titles([*names.i([3, 21]), items[0]]) == ["Title 3", "Title 21", str(items[0])]
    new_degree = dict(zip(model.item_ids().tolist(), model.model_.item_degree.tolist()))
    assert new_degree == degree | {items[0]: 2, items[1]: 3}
    for item, who in zip(items, fans):
        assert all(item not in model.recommend(user, N=ITEMS + 2).ids.tolist() for user in who)
        assert item in model.recommend(names.u(40), N=ITEMS + 2).ids.tolist()
        assert model.similar_items(item).ids[0] == item
    model.save(tmp_path / "model", shards=3)
    again = Recommender.load(tmp_path / "model")
    assert again.recommend_table(N=5).equals(model.recommend_table(N=5))
    assert again.item_ids().tolist() == model.item_ids().tolist()


def test_new_items_of_a_model_without_likes_move_the_walk_too(base: Recommender, tmp_path: Path) -> None:
    """A new first id moves the row of every other item; what leads where stays."""
    model, names = relabel(base, LABELS["integers"])
    model.save(tmp_path / "model", likes=False)
    for new in (-1000, 10**6):
        loaded = Recommender.load(tmp_path / "model")
        loaded.partial_fit_items([new], [names.u([3, 4])])
        found = loaded.recommend(names.u(7), names.i([1, 2]), N=ITEMS + 1, popularity=0.0, lift=1.0)
        wanted = model.recommend(names.u(7), names.i([1, 2]), N=ITEMS, popularity=0.0, lift=1.0)
        scores = dict(zip(found.ids.tolist(), found.scores.tolist()))
        assert new in scores
        np.testing.assert_allclose([scores[item] for item in wanted.ids.tolist()], wanted.scores, rtol=0.05, atol=0.02)


def test_ids_that_cannot_be_added(base: Recommender) -> None:
    texts, by_text = relabel(base, LABELS["texts"])
    integers, by_integer = relabel(base, LABELS["integers"])
    one = [by_text.i([1])]
    for model, ids, likes, message in (
        (texts, [7], one, "user 7 is not in the model, whose ids are texts; give '7' to add it, or by='row'"),
        (integers, ["bob"], [by_integer.i([1])], "user 'bob' cannot be added: the ids of this model are integers"),
        (texts, ["bob", "bob"], one * 2, "userids must be distinct ids"),
        (texts, ["u001", "u001"], one * 2, "userids must be distinct ids"),
        (texts, ["bob", "ann"], one, "userids has 2 entries for 1 rows"),
        (texts, [1.5], one, "named by their ids"),
        (texts, [" "], one, "user ' ' cannot be added: an id has a letter that is not white space"),
    ):
        with pytest.raises(UsageError, match=message):
            model.partial_fit_users(ids, likes)
    with pytest.raises(
        UsageError, match=r"new users cannot be added by row number .* give their ids, without by='row'"
    ):
        texts.partial_fit_users([USERS], [[1]], by="row")
    with pytest.raises(UsageError, match="new items cannot be added by row number"):
        texts.partial_fit_items([ITEMS], [[1]], by="row")
    assert len(texts.user_ids()) == USERS


def test_an_id_that_ends_with_a_null_character_is_found() -> None:
    model = Recommender(factors=2, sweeps=1).fit({"user": ["a", "a\0", "b"], "item": ["x", "x\0", "x"]})
    for user in model.user_ids():
        assert len(model.recommend(user, N=1)[0]) <= 1
    assert model.similar_items("x\0", 1)[0][0] == "x\0"
