"""`considerate.evaluate`: every kind of split and of recommender, against rankings made by hand."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp

import considerate
from considerate import Recommender, evaluate, read_interactions
from considerate.data.graph import Adjacency
from considerate.data.vocabulary import Vocabulary, match_rows, union_ids
from considerate.errors import DataError, UsageError
from considerate.evaluation.metrics import rank_score
from considerate.evaluation.protocol import make_protocol
from considerate.evaluation.ranks import held_ranks
from considerate.evaluation.result import Evaluation
from considerate.evaluation.scorer import ModelScorer
from considerate.study.peers import ease_weights
from tests.helpers.likes import skewed

pytestmark = pytest.mark.filterwarnings("ignore:OpenBLAS")


def dated(seed: int = 0) -> pd.DataFrame:
    """Likes with ids that are no row numbers, and times; some users come late."""
    users, items = skewed(users=120, items=30, seed=seed).nonzero()
    random = np.random.default_rng(seed)
    day = random.integers(0, 100, len(users)) + np.where(users >= 100, 100, 0)
    when = pd.Timestamp("2024-01-01") + pd.to_timedelta(day, unit="D")
    return pd.DataFrame({"user": [f"u{user:03d}" for user in users], "item": 1000 - 7 * items, "when": when})


def small(**settings: Any) -> Recommender:
    return Recommender(**{"factors": 3, "sweeps": 4, "threads": 1, **settings})


def by_hand(
    earlier: dict[str, set[int]], held: dict[str, list[int]], catalogue: list[int], score: dict[tuple[str, int], float]
) -> dict[str, float]:
    """S_rank of each user, from sets."""
    answer = {}
    for user, items in held.items():
        scores = np.array([score[user, item] for item in catalogue])
        seen = [catalogue.index(item) for item in earlier[user] if item in catalogue]
        answer[user] = float(np.mean([rank_score(scores, catalogue.index(item), seen) for item in items]))
    return answer


def sets(frame: pd.DataFrame) -> dict[str, set[int]]:
    found: dict[str, set[int]] = defaultdict(set)
    for user, item in zip(frame.user, frame.item):
        found[user].add(int(item))
    return found


def table_of(frame: pd.DataFrame, seed: int = 0) -> tuple[Any, dict[tuple[str, int], float]]:
    """A random scorer of one's own, by ids; and its scores."""
    items = sorted(set(frame.item))
    users = sorted(set(frame.user))
    numbers = np.random.default_rng(seed).normal(size=(len(users), len(items)))

    def own(asked: Any) -> Any:
        return numbers[[users.index(user) for user in asked]]

    return own, {(user, item): numbers[m, n] for m, user in enumerate(users) for n, item in enumerate(items)}


def per_user(result: Evaluation, name: str) -> dict[str, float]:
    return dict(zip(map(str, result.users), result[name].per_user["S_rank"]))


def test_a_date_divides_training_from_test_and_new_users_are_folded_in() -> None:
    frame = dated()
    cut = pd.Timestamp("2024-03-11")
    own, score = table_of(frame)
    result = evaluate(own, frame, "2024-03-11", time_column="when", resamples=20)
    train, later = frame[frame.when < cut], frame[frame.when >= cut]
    earlier, held = sets(train), defaultdict(list)
    catalogue = sorted(set(train.item))
    alone = unknown = new = 0
    for user, rows in later.groupby("user"):
        unknown += sum(item not in catalogue for item in rows.item)
        rows = rows[rows.item.isin(catalogue)].sort_values("when")
        if user in earlier:
            held[user] = list(rows.item)
        elif len(rows) == 1:
            alone += 1
        elif len(rows) > 1:
            assert rows.when.iloc[-1] > rows.when.iloc[-2], "the data leaves no choice"
            held[user], earlier[user] = [rows.item.iloc[-1]], set(map(int, rows.item.iloc[:-1]))
            new += 1
    held = {user: items for user, items in held.items() if items}
    assert per_user(result, "own") == pytest.approx(by_hand(earlier, held, catalogue, score))
    assert new > 5
    assert result.left_out["of new users with no earlier like"] == alone
    assert result.left_out["of items without a like in training"] == unknown
    assert result["popularity"].new_users == 0  # it needs no training
    same = evaluate(own, frame, date(2024, 3, 11), time_column="when", resamples=20)
    assert per_user(same, "own") == per_user(result, "own")


@pytest.mark.parametrize("split", ["random", "latest", 0.3, "users"])
def test_every_split_is_ranked_as_by_hand(split: Any) -> None:
    frame = dated(1)
    own, score = table_of(frame)
    asked: dict[str, Any] = {"time_column": "when"} if split != "random" else {}
    result = evaluate(own, frame, split, resamples=20, **asked)
    protocol = make_protocol(read_interactions(frame, **asked), split)
    whole, earlier, held = sets(frame), defaultdict(set), defaultdict(list)
    for user, item in zip(protocol.held.users, protocol.held.items):
        held[str(protocol.user_ids.id_of(int(user)))].append(int(protocol.item_ids.id_of(int(item))))
    catalogue = [int(protocol.item_ids.id_of(row)) for row in range(len(protocol.item_ids))]
    for user, likes in whole.items():
        earlier[user] = likes - set(held.get(user, []))
    assert per_user(result, "own") == pytest.approx(by_hand(earlier, held, catalogue, score))
    latest = frame.sort_values("when").groupby("user").tail(1).set_index("user").when
    times = {(user, int(item)): when for user, item, when in zip(frame.user, frame.item, frame.when)}
    sizes = {user: len(items) for user, items in held.items()}
    assert protocol.train is not None
    trained = {str(one) for one in protocol.train.user_ids.ids_of(range(len(protocol.train.user_ids)))}
    if split == "random":
        assert set(sizes.values()) == {1}
    elif split == 0.3:
        wanted = sum(int(np.clip(round(0.3 * len(likes)), 1, len(likes) - 1)) for likes in whole.values())
        assert sum(sizes.values()) + result.left_out["of items without a like in training"] == wanted
    else:
        assert all(times[user, items[0]] == latest[user] for user, items in held.items())
    assert bool(set(held) & trained) == (split != "users")


def test_an_estimator_is_fitted_to_the_training_part_and_left_alone() -> None:
    frame, estimator = dated(), small()
    result = evaluate({"ours": estimator, "EASE": "EASE"}, frame, "latest", time_column="when", resamples=50)
    assert not estimator.__sklearn_is_fitted__()
    train = frame.drop(frame.sort_values("when", kind="stable").groupby("user").tail(1).index)
    protocol = make_protocol(read_interactions(frame, time_column="when"), "latest")
    pairs = {(str(user), int(item)) for user, items in sets(train).items() for item in items}
    likes = protocol.train
    assert likes is not None
    read = set(zip(map(str, likes.user_ids.ids_of(likes.users)), map(int, likes.item_ids.ids_of(likes.items))))
    assert len(read) == len(pairs)
    fitted = small().fit(likes)
    assert result["ours"].fit_seconds is not None
    assert np.array_equal(result["ours"].model.item_factors, fitted.item_factors)
    ranks = held_ranks(ModelScorer(fitted.model_), protocol.held)  # every user and item has a like in training
    assert result["ours"].per_user["S_rank"] == pytest.approx(ranks.scores)
    assert result["ours"].difference == {}
    for name in ("EASE", "popularity"):
        for metric, figure in result[name].difference.items():
            gap = result[name].metrics[metric].mean - result["ours"].metrics[metric].mean
            assert figure.mean == pytest.approx(gap)
            assert figure.low <= figure.mean <= figure.high


def test_a_fitted_model_is_tested_on_likes_that_it_was_not_fitted_to(tmp_path: Path) -> None:
    """Users that it does not know are folded in from all likes but the last."""
    frame = dated()
    old, new = frame[frame.user < "u080"], frame[frame.user >= "u070"]
    model = small().fit(old[["user", "item"]])
    result = evaluate(model, new, time_column="when", resamples=20)
    both = {user for user in set(new.user) if user < "u080"}
    assert not both & set(result.users), "all their likes are in training"
    assert result.left_out["that are also in training"] == sum(user in both for user in new.user)
    assert result["considerate"].new_users == len(result.users) > 20
    assert result["considerate"].new_users_scored == "folded in"
    assert f"new to considerate: {len(result.users)} users (100%), folded in" in str(result)
    user = result.users[3]
    likes = new[new.user == user].sort_values("when")
    known = [item for item in likes.item.iloc[:-1] if item in set(old.item)]
    inner = model.model_
    adjacency = Adjacency.of_rows([np.sort(inner.item_ids.rows_of(known)).astype(np.int32)])
    scores = ModelScorer(inner, users=inner.fold_in.users(adjacency), liked=adjacency).scores(np.zeros(1, np.int64))[0]
    expected = rank_score(scores, inner.item_ids.row_of(likes.item.iloc[-1]), adjacency.indices)
    assert result["considerate"].per_user["S_rank"][3] == pytest.approx(expected, abs=1e-6)
    model.save(tmp_path / "model.safetensors")
    model.save(tmp_path / "shards", shards=3)
    for name in ("model.safetensors", "shards"):
        again = evaluate(tmp_path / name, new, time_column="when", resamples=20)
        assert again[name.split(".")[0]].per_user["S_rank"] == pytest.approx(result["considerate"].per_user["S_rank"])


def test_a_model_that_was_fitted_to_what_is_held_out_is_refused() -> None:
    frame = dated()
    model = small().fit(frame[["user", "item"]])
    with pytest.raises(UsageError, match=r"fitted to 120 of the 120 likes that are held out; give it unfitted"):
        evaluate([model, "EASE"], frame, "random")
    with pytest.raises(DataError, match=r"none of its .* likes can be held out .* also in training"):
        evaluate(model, frame)


def test_a_given_test_is_ranked_after_training_on_the_rest() -> None:
    frame = dated()
    late = frame.when >= pd.Timestamp("2024-03-11")
    options: dict[str, Any] = {"time_column": "when", "resamples": 20}
    models = ["EASE", "popularity"]
    own, _ = table_of(frame)  # its columns are those of all items, which both parts have
    assert set(frame[~late].item) == set(frame.item)
    given = evaluate([*models, own], frame[~late], frame[late], **options)
    cut = evaluate([*models, own], frame, "2024-03-11", **options)
    assert given.left_out == cut.left_out
    for name in (*models, "own"):
        assert per_user(given, name) == pytest.approx(per_user(cut, name))
    assert given["own"].new_users == 0
    assert [result.name for result in given] == [*models, "own"], "popularity is there once"
    repeated = evaluate("EASE", frame[~late], pd.concat([frame[late], frame[~late].head(3)]), **options)
    assert repeated.left_out["that are also in training"] == 3
    assert per_user(repeated, "EASE") == pytest.approx(per_user(given, "EASE"))


def test_new_users_are_folded_in_by_peers_that_can() -> None:
    pytest.importorskip("implicit")
    pytest.importorskip("cornac")
    from cornac.models import BPR
    from implicit.als import AlternatingLeastSquares
    from implicit.nearest_neighbours import CosineRecommender

    frame = dated()
    models = {
        "EASE": "EASE",
        "GF-CF": "GF-CF",
        "walk": "walk",
        "ALS": "ALS",
        "own ALS": AlternatingLeastSquares(factors=4, random_state=0),
        "cosine": CosineRecommender(),
        "BPR": BPR(k=3, max_iter=2, seed=1),
    }
    result = evaluate(models, frame, "users", time_column="when", resamples=20)
    assert {result[name].new_users for name in models} == {12}
    assert {name for name in models if result[name].new_users_scored == "by popularity"} == {"BPR"}
    assert per_user(result, "BPR") == per_user(result, "popularity")
    assert "new to BPR: 12 users (100%), by popularity, as it cannot fold them in" in str(result)
    protocol = make_protocol(read_interactions(frame, time_column="when"), "users")
    train = protocol.train
    assert train is not None
    likes = sp.csr_matrix((np.ones(len(train.users), np.float32), (train.users, train.items)))
    weights = ease_weights(likes, 300.0)
    seen = protocol.held.seen
    for row, user, item in zip(result["EASE"].per_user["S_rank"], protocol.held.users, protocol.held.items):
        scores = weights[seen.row(int(user))].sum(axis=0)
        assert row == pytest.approx(rank_score(scores, int(item), seen.row(int(user))), abs=1e-6)


def test_fitted_peers_are_scored_as_they_are() -> None:
    """implicit's by the rows of the data, cornac's by its own ids, a function by ids and by likes."""
    pytest.importorskip("implicit")
    pytest.importorskip("cornac")
    from cornac.data import Dataset
    from cornac.models import MF
    from implicit.als import AlternatingLeastSquares

    matrix = skewed(users=60, items=20).tocsr()
    als = AlternatingLeastSquares(factors=4, random_state=0)
    als.fit(matrix, show_progress=False)
    users, items = matrix.nonzero()
    names = [(str(user), str(item), 1.0) for user, item in zip(users, items)]
    mf = MF(k=3, verbose=False, seed=1).fit(Dataset.from_uir(names))
    by_likes: list[Any] = []

    def own(ids: Any, likes: Any) -> Any:
        by_likes.append((ids, likes))
        return als.user_factors[ids] @ als.item_factors.T

    result = evaluate([als, mf, own], matrix, "random", resamples=20)
    assert [entry.name for entry in result] == ["AlternatingLeastSquares", "MF", "own", "popularity"]
    assert per_user(result, "own") == pytest.approx(per_user(result, "AlternatingLeastSquares"))
    held = make_protocol(read_interactions(matrix), "random").held
    for ids, likes in by_likes:
        assert np.array_equal(
            likes.toarray() > 0, np.stack([np.isin(np.arange(20), held.seen.row(int(m))) for m in ids])
        )
    row = result.users.index(7)
    scores = np.array([mf.score(mf.uid_map["7"])[mf.iid_map[str(item)]] for item in range(20)])
    place = int(np.flatnonzero(held.users == 7)[0])
    assert result["MF"].per_user["S_rank"][row] == pytest.approx(
        rank_score(scores, int(held.items[place]), held.seen.row(7))
    )


def test_the_result_prints_in_eighty_columns_and_makes_tables() -> None:
    frame = dated()
    long = "a model of one's own with a long name"
    models = {long: table_of(frame)[0], "EASE": "EASE"}
    result = evaluate(models, frame, "2024-03-11", time_column="when", k=5, resamples=50)
    text = str(result)
    assert max(map(len, text.splitlines())) <= 80
    assert repr(result) == text
    for words in ("held out: likes from 2024-03-11 on", "new to EASE", "NDCG@5", "popularity", "paired by user"):
        assert words in text
    gap = result["EASE"].difference["NDCG@5"]
    assert f"{gap.low:+.4f} to {gap.high:+.4f}{'*' if gap.low > 0 or gap.high < 0 else ' '}" in text
    table = result.to_arrow()
    assert table.column_names == [
        *("model", "metric", "mean", "low", "high"),
        *("difference", "difference_low", "difference_high", "users"),
    ]
    assert result.to_pandas().equals(table.to_pandas())
    assert result.to_polars().to_dicts() == table.to_pylist()
    ease = result.to_pandas().set_index(["model", "metric"]).loc["EASE", "NDCG@5"]
    assert (ease["mean"], ease["difference_high"]) == (
        result["EASE"].metrics["NDCG@5"].mean,
        result["EASE"].difference["NDCG@5"].high,
    )
    assert pa.compute.is_null(table["difference"]).to_pylist()[0]
    plain = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert [entry["name"] for entry in plain["models"]] == [long, "EASE", "popularity"]
    with pytest.raises(KeyError, match="no model is called 'BPR'; there are"):
        result["BPR"]


def test_the_seed_decides() -> None:
    frame = dated()
    own, _ = table_of(frame)
    first, same, other = (evaluate([own, own], frame[["user", "item"]], seed=seed, resamples=20) for seed in (0, 0, 1))
    assert str(first) == str(same) != str(other)
    assert [entry.name for entry in first] == ["own", "own 2", "popularity"]
    assert first.split == "one random like of each user"
    assert evaluate(own, frame, resamples=5).split == "each user's latest like", "times are found by their name"


@pytest.mark.parametrize(
    ("split", "options", "message"),
    [
        ("sometimes", {}, "sometimes"),
        ("latest", {}, "time_column"),
        (1.5, {"time_column": "when"}, "every like is from 1.5 on"),
        ("test", {}, "leaves no likes for training"),
        ("random", {"k": 0}, "at least 1"),
    ],
)
def test_mistakes_say_what_to_do(split: Any, options: dict[str, Any], message: str) -> None:
    frame = dated() if options.get("time_column") else dated()[["user", "item"]]
    with pytest.raises((UsageError, DataError), match=message):
        evaluate("EASE", frame, split, **options)


def test_evaluate_is_exported_next_to_the_package_evaluation() -> None:
    assert considerate.evaluate is evaluate
    assert "evaluate" in dir(considerate)
    from considerate.evaluation import report

    assert callable(report.evaluate)


@pytest.mark.filterwarnings("ignore:this model was saved without likes")
def test_a_model_without_likes_cannot_be_checked_and_the_result_says_so(tmp_path: Path) -> None:
    frame = dated()[["user", "item"]]
    small().fit(frame).save(tmp_path / "bare", likes=False)
    result = evaluate([tmp_path / "bare", "EASE"], frame, "random", resamples=5)
    assert "bare has no likes in its file: it may have been fitted to what is held out" in str(result)


@pytest.mark.parametrize("kinds", [*itertools.product(("range", "integer", "string"), repeat=2)], ids="-".join)
def test_vocabularies_meet_by_id(kinds: tuple[str, str]) -> None:
    """'7' and 7 are the same, whichever side has which."""
    random = np.random.default_rng(0)

    def vocabulary(kind: str) -> Vocabulary:
        some = np.unique(random.integers(-3, 30, 12))
        if kind == "string":
            return Vocabulary.of_strings([*map(str, some), "x", f"y{len(some)}"])
        return Vocabulary.range(9) if kind == "range" else Vocabulary.of_integers(some)

    for _ in range(20):
        a, b = (vocabulary(kind) for kind in kinds)
        there = {str(one): row for row, one in enumerate(b.ids_of(range(len(b))))}
        assert match_rows(a, b).tolist() == [there.get(str(one), -1) for one in a.ids_of(range(len(a)))]
        both = union_ids([a, b])
        assert {str(one) for one in both.ids_of(range(len(both)))} == there.keys() | {
            str(one) for one in a.ids_of(range(len(a)))
        }
        for part in (a, b):
            rows = match_rows(part, both)
            assert (rows >= 0).all()
            assert len(set(rows.tolist())) == len(part)
