"""What is in memory is read as it is, or refused with what to do; texts are trimmed; weights are mentioned."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from considerate import Recommender, read_interactions
from considerate.data import Interactions
from considerate.data.vocabulary import Vocabulary
from considerate.distributed import OutOfCore
from considerate.errors import ConsiderateError, DataError, UsageError

USERS, ITEMS = np.array([30, 30, 10, 20]), np.array([7, 8, 8, 9])
FRAME = pd.DataFrame({"user": USERS, "item": ITEMS, "rating": [5, 4, 4, 1]})


def likes_of(likes: Interactions) -> set[tuple[Any, Any]]:
    return set(zip(likes.user_ids.ids_of(likes.users), likes.item_ids.ids_of(likes.items)))


EXPECTED = {(30, 7), (30, 8), (10, 8), (20, 9)}


@pytest.mark.parametrize(
    "source",
    [
        {"user": USERS, "item": ITEMS},
        {"item": ITEMS.tolist(), "user": pd.Series(USERS)},
        {"user": pa.array(USERS), "item": pl.Series(ITEMS)},
        np.stack([USERS, ITEMS], axis=1),
        np.stack([USERS, ITEMS], axis=1).astype(float),
        np.array([*zip(USERS.tolist(), ITEMS.tolist())], object),
        np.rec.fromarrays([ITEMS, USERS], names="item,user"),
        (USERS, ITEMS),
        pl.from_pandas(FRAME[["user", "item"]]).lazy(),
    ],
    ids=[
        "dict",
        "dict, any order",
        "dict of arrays",
        "array",
        "floats",
        "objects",
        "record array",
        "tuple",
        "lazy frame",
    ],
)
def test_memory_is_read(source: Any) -> None:
    assert likes_of(read_interactions(source)) == EXPECTED


def test_texts_in_an_array_stay_texts() -> None:
    likes = read_interactions(np.array([["7", "a"], ["8", "b"]]))
    assert likes_of(likes) == {("7", "a"), ("8", "b")}


def test_a_lazy_frame_reads_what_is_needed() -> None:
    """The column that would fail is not collected, and a rule takes its own along."""
    frame = (
        pl.from_pandas(FRAME)
        .lazy()
        .with_columns(bad=pl.col("item").cast(pl.String).str.replace("9", "?").cast(pl.Int64))
    )
    assert likes_of(read_interactions(frame, where="rating >= 4")) == EXPECTED - {(20, 9)}
    with pytest.raises(DataError, match="the given LazyFrame: cannot be collected"):
        read_interactions(frame, user_column="bad", item_column="item", where="rating >= 4")


@pytest.mark.parametrize(
    ("source", "advice"),
    [
        (np.ones((3, 4)), r"scipy.sparse.csr_array\(array\), and other columns in a dict"),
        (np.arange(4), "an array of shape"),
        ({"user": [1, 2], "item": [3]}, "'user' has 2, 'item' has 1 values; expected a dict of columns of one length"),
        ({"ann": "dune"}, "'ann' is no list of values; expected a dict of columns"),
        ({"user": [1], "item": [[1, 2]]}, "the items in 'item' are of type list.*; ids are integers"),
        ({"user": [1], "item": np.ones((1, 2, 2))}, "'item' is no list of values"),
        ({}, "there are no values; expected a dict of columns"),
        ({"user": [1, "a"], "item": [1, 2]}, r"'user': a column has values of more than one type .*\.astype\(str\)"),
        (pd.DataFrame({"user": [1, "a"], "item": [1, 2]}), r"column user with type object\); make them one, such as"),
        (FRAME.groupby(["user", "item"]).size(), r"such as series.reset_index\(\)"),
        ([(1, 2)], "cannot read likes from 'list'; give a path, a data frame .* a dict of columns"),
        (
            type("Bag", (), {"compute": None})(),
            r"cannot read likes from 'Bag' as it is; give what its compute\(\) returns",
        ),
        (pl.DataFrame({"user": pl.Series([uuid.uuid4()], dtype=pl.Object), "item": [1]}), "such as to strings"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else type(value).__name__,
)
def test_objects_that_are_not_read_are_refused_with_what_to_do(source: Any, advice: str) -> None:
    with pytest.raises(ConsiderateError, match=advice) as refusal:
        read_interactions(source)
    assert "\n" not in str(refusal.value)


# --- UUIDs ---

UUIDS = [uuid.UUID(int=number << 64 | 0xABCDEF) for number in (30, 30, 10, 20)]


@pytest.mark.parametrize(
    "column",
    [
        lambda: UUIDS,
        lambda: pa.array([one.bytes for one in UUIDS], pa.binary(16)),
        lambda: pa.array([b"x" * 16, *(one.bytes for one in UUIDS)], pa.uuid())[1:],
        lambda: pa.array([one.bytes for one in UUIDS], pa.binary(16)).dictionary_encode(),
        lambda: [str(one) for one in UUIDS],
    ],
    ids=["objects", "bytes", "Arrow's", "dictionary", "texts"],
)
def test_uuids_are_texts(column: Callable[[], Any], tmp_path: Path) -> None:
    expected = {(str(user), item) for user, item in zip(UUIDS, ITEMS.tolist())}
    table = pa.table({"user": column(), "item": ITEMS})
    pq.write_table(table, tmp_path / "likes.parquet")
    for source in (table, {"user": column(), "item": ITEMS}, tmp_path / "likes.parquet"):
        likes = read_interactions(source)
        assert likes_of(likes) == expected
        assert likes.user_ids.row_of(UUIDS[2]) == 0


# --- White space ---


def test_texts_are_trimmed(tmp_path: Path) -> None:
    """As headers are: in ids, in titles and in columns of a rule, of any source."""
    columns = {
        " user ": [" ann", "ann ", "bob\u00a0", "cy"],
        "item": ["x", "y\t", " x", "z"],
        "kind": [" like ", "like", "like\n", "no"],
        "stars": [" 5", "4 ", "4", "1"],
    }
    frame = pd.DataFrame(columns)
    frame.to_parquet(tmp_path / "likes.parquet")
    titles = {"x": " Dune ", "y": "\tSolaris"}
    for source in (frame, tmp_path / "likes.parquet"):
        for rule in ("kind = 'like'", "kind in ('like')", "stars >= 4"):
            likes = read_interactions(source, where=rule, titles=titles, user_column="user")
            assert likes_of(likes) == {("ann", "x"), ("ann", "y"), ("bob", "x")}
            assert likes.titles is not None
            assert [likes.titles.of(row) for row in range(2)] == ["Dune", "Solaris"]
            assert "white space around 3 users in ' user ' is removed" in likes.notes


def test_what_was_trimmed_is_found_as_it_was(tmp_path: Path) -> None:
    ids = Vocabulary.of_strings(["ann", " old"])  # a model file of an earlier release may have spaces
    assert ids.rows_of([" ann ", "ann", " old", "old", "\tnobody"]).tolist() == [1, 1, 0, -1, -1]
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"user": [f" u{n} " for n in rng.integers(9, size=200)], "item": rng.integers(9, size=200)})
    model = Recommender(factors=2, sweeps=1, seed=0).fit(frame)
    model.save(tmp_path / "shards", shards=3)
    for fitted in (model, Recommender.load(tmp_path / "shards")):
        assert fitted.model_.user_ids.rows_of([" u3 ", "u3", " nobody "]).tolist() == [3, 3, -1]


# --- Counts and weights ---


@pytest.mark.parametrize(
    ("column", "options", "mentioned"),
    [
        ("plays", {}, True),
        ("Play Count", {}, True),
        ("playCount", {}, True),
        ("weight", {"where": "kind = 'a'"}, True),
        ("weight", {"where": "weight > 1"}, False),
        ("Weight", {"where": "weight > 1"}, False),
        ("count", {"time_column": "count"}, False),
        ("rating", {"where": "kind = 'a'"}, True),
        ("rating", {"where": "rating > 1"}, False),
        ("hours", {"where": "rating > 1", "rating_column": "hours"}, False),
        ("discount", {}, False),
        ("account", {"user_column": "user"}, False),
    ],
)
def test_a_weight_that_is_not_used_is_mentioned(
    column: str, options: dict[str, Any], mentioned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    table = {"user": USERS, "item": ITEMS, column: [2, 3, 4, 5], "kind": ["a", "a", "a", "b"]}
    with caplog.at_level(logging.WARNING, "considerate"):
        read_interactions(table, **options)
    assert [f"whatever it has in {column!r}, which is not used" in text for text in caplog.messages] == [
        True
    ] * mentioned


def test_a_fit_in_parts_mentions_it_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """And has the bits of the fit in memory, of ids with spaces and of UUIDs."""
    rng = np.random.default_rng(0)
    users = [f"{' ' * (n % 2)}u{user}" for n, user in enumerate(rng.integers(20, size=400))]
    items = pa.array([uuid.UUID(int=int(item)).bytes for item in rng.integers(15, size=400)], pa.binary(16))
    table = pa.table({"user": users, "item": items, "plays": [2] * 400})
    pq.write_table(table, tmp_path / "likes.parquet", row_group_size=90)
    fits = []
    for backend in (None, OutOfCore(folder=tmp_path)):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "considerate"):
            model = Recommender(factors=2, sweeps=1, seed=0).fit(tmp_path / "likes.parquet", backend=backend)
        assert sum("'plays', which is not used" in text for text in caplog.messages) == 1
        assert len(model.model_.user_ids) == 20
        fits.append(model.model_)
    np.testing.assert_array_equal(fits[0].items.mean, fits[1].items.mean)


# --- Comments ---

ROWS = "".join(f"{user},{item}\n" for user in range(20) for item in range(user))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("# made by a program\nuser,item\n" + ROWS, 1),
        ("# made by a program, on Monday\nuser,item\n" + ROWS, 1),
        ("# one, two\n# three, four\n" + ROWS, 1),
        ("\n\n# made by a program, on Monday\n" + ROWS, 3),
        ("user,item\n" + ROWS + "# the end\n", 192),
        ("user,item\n" + ROWS * 300 + "# the end\n" + ROWS, 57002),
        ("user,item\n#1,2\n#1,3\n" + ROWS + "# a, b, c\n", 194),
        ("% sym unweighted\n% 3 4\n" + ROWS.replace(",", " "), 1),
        ("#1 2\n" + ROWS.replace(",", "\t"), 1),
    ],
)
def test_comments_are_named(text: str, line: int, tmp_path: Path) -> None:
    path = tmp_path / "likes.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=rf"line {line} looks like a comment \('[#%].*remove such lines") as refusal:
        read_interactions(path)
    assert "\n" not in str(refusal.value)


def test_a_header_and_ids_may_begin_with_a_hash(tmp_path: Path) -> None:
    path = tmp_path / "likes.csv"
    for text, users in (
        ("#user,item\n1,2\n3,4\n", [1, 3]),
        ("#a,x\n#b,y\n", ["#a", "#b"]),
        ("user,item\n#a,x\nb,y\n", ["#a", "b"]),
    ):
        path.write_text(text)
        assert read_interactions(path).user_ids.ids_of(range(2)) == users
    path.write_text("user,item\n" + ROWS + "# so far, so good\n")
    assert "'# so far' in 'user' is taken for the id of a user, not for a comment" in read_interactions(path).notes


# --- fit ---


def test_fit_takes_the_options_of_the_reader(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    rated = pd.DataFrame({"user": rng.integers(40, size=600), "item": rng.integers(30, size=600)})
    rated["rating"] = rng.integers(1, 6, size=600)
    path = tmp_path / "ratings.csv"
    rated.to_csv(path, index=False)
    titles = {int(item): f"title {item}" for item in range(30)}
    settings: dict[str, Any] = {"factors": 3, "sweeps": 2, "seed": 0}
    expected = Recommender(**settings).fit(read_interactions(rated, where="rating >= 4", titles=titles))
    columns = {"who": rated["user"], "item": rated["item"], "rating": rated["rating"]}
    for source, named in (
        (rated, {}),
        (path, {}),
        (pl.from_pandas(rated).lazy(), {}),
        (columns, {"user_column": "who"}),
    ):
        model = Recommender(**settings).fit(source, where="rating >= 4", titles=titles, **named)  # type: ignore[arg-type]
        np.testing.assert_array_equal(model.model_.items.mean, expected.model_.items.mean)
        assert model.model_.title(3) == "title 3"
    matrix = sp.csr_matrix((np.ones(600), (rated["user"], rated["item"])), shape=(40, 30))
    matrix.data[:] = 1
    assert Recommender(**settings).fit(matrix, titles=titles).model_.title(3) == "title 3"


def test_fit_refuses_options_that_are_none() -> None:
    model, likes = Recommender(factors=2, sweeps=1), read_interactions(FRAME, where="rating >= 1")
    with pytest.raises(UsageError, match="'rule' is no option of the reader; it takes user_column, "):
        model.fit(FRAME, rule="rating >= 4")  # type: ignore[call-arg]
    with pytest.raises(UsageError, match="reader came with where; put them all into reader, or leave it out"):
        model.fit(FRAME, where="rating >= 4", reader={"user_column": "user"})
    with pytest.raises(UsageError, match="have been read already"):
        model.fit(likes, titles=pd.DataFrame({"item": ITEMS, "title": ["a", "b", "c", "d"]}))
