"""The reader: every kind of source, every rule, every refusal."""

from __future__ import annotations

import gzip
import subprocess
import sys
import warnings
from dataclasses import fields
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from considerate.data import ReaderOptions, Titles, read_interactions, read_judged
from considerate.data import read as reader
from considerate.data.options import ReaderKeywords
from considerate.data.vocabulary import Vocabulary
from considerate.errors import DataError, UsageError
from tests.helpers.reader_cases import PAIRS, check, pairs, table

RATED = {"rating": [5, 4, 3, 2, 1]}


# Sources


def test_nothing_heavy_is_imported() -> None:
    code = "import sys, considerate.data.read; print([m for m in ('pyarrow', 'scipy', 'pandas') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


@pytest.mark.parametrize("text", [" 10", "10 ", "1_0", "+10", "010", "١٠", "1" * 5000, "10.0", "-0", "10\n"])
def test_only_canonical_texts_find_integers(text: str) -> None:
    for ids in (Vocabulary.of_integers(np.array([-7, 0, 10])), Vocabulary.range(11)):
        assert ids.row_of(text) == -1
        assert ids.id_of(ids.row_of("10")) == 10
        assert ids.id_of(ids.row_of("0")) == 0
    assert Vocabulary.of_integers(np.array([-7, 0, 10])).row_of("-7") == 0


def test_arrow_sources() -> None:
    check(read_interactions(table()))
    check(read_interactions(table().to_reader(max_chunksize=2)))
    check(read_interactions(table().combine_chunks().to_batches()[0]))
    check(read_interactions(table().to_reader(), where="user != 'zz'"))


def test_frames() -> None:
    frame = table().to_pandas()
    check(read_interactions(frame))
    frame.index = [9, 8, 7, 6, 5]
    check(read_interactions(frame))
    check(read_interactions(frame.astype("category")))
    check(read_interactions(pl.from_arrow(table())))
    categories = pl.from_arrow(table()).with_columns(pl.all().cast(pl.Categorical))  # type: ignore[union-attr]
    check(read_interactions(categories))


def test_interactions_come_back_as_they_are() -> None:
    got = read_interactions(table())
    assert read_interactions(got) is got
    with pytest.raises(UsageError, match="already"):
        read_interactions(got, where="rating > 3")


@pytest.mark.parametrize("kind", ["string", "large_string", "string_view", "dictionary", "large_dictionary", "binary"])
def test_types_of_strings(kind: str, tmp_path: Path) -> None:
    types = {
        "string": pa.string(),
        "large_string": pa.large_string(),
        "string_view": pa.string_view(),
        "dictionary": pa.dictionary(pa.int8(), pa.string()),
        "large_dictionary": pa.dictionary(pa.uint32(), pa.large_string()),
        "binary": pa.binary(),
    }
    columns = {name: table()[name].cast(pa.string()).combine_chunks() for name in ("user", "item")}
    if "dictionary" in kind:
        columns = {name: one.dictionary_encode().cast(types[kind]) for name, one in columns.items()}
    else:
        columns = {name: one.cast(types[kind]) for name, one in columns.items()}
    check(read_interactions(pa.table(columns)))
    pq.write_table(pa.table(columns), tmp_path / "likes.parquet")
    check(read_interactions(tmp_path / "likes.parquet"))
    if kind != "binary":
        check(read_interactions(pa.table(columns), where="user == 'al'"), [PAIRS[1], PAIRS[2], PAIRS[4]])


def test_dictionaries_with_values_that_are_unused_repeated_or_null() -> None:
    users = pa.DictionaryArray.from_arrays(pa.array([2, 0, 1, 2, None]), ["al", "al", "bo", "nobody"])
    likes = pa.table({"user": users, "item": [1, 2, 3, 4, 5]})
    got = read_interactions(likes, where="user is not null")
    check(got, [("bo", 1), ("al", 2), ("al", 3), ("bo", 4)])
    assert len(got.user_ids) == 2
    with pytest.raises(DataError, match="1 rows have no user"):
        read_interactions(likes)
    nulls = pa.DictionaryArray.from_arrays(pa.array([0, 1, 1]), pa.array(["al", None]))
    with pytest.raises(DataError, match="2 rows have no user"):
        read_interactions(pa.table({"user": nulls, "item": [1, 2, 3]}))


@pytest.mark.parametrize(
    "kind", [pa.int8(), pa.uint8(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64(), pa.float64()]
)
def test_types_of_integers(kind: pa.DataType) -> None:
    likes = [(3, 100), (1, 7), (3, 7)]
    source = pa.table({"u": pa.array([u for u, _ in likes], kind), "i": pa.array([i for _, i in likes], kind)})
    got = read_interactions(source)
    check(got, likes)  # type: ignore[arg-type]
    assert got.user_ids.kind == "integer"


def test_integers_far_apart() -> None:
    users = np.array([2**62, -(2**62), 5, 2**62], np.int64)
    got = read_interactions(pa.table({"user": users, "item": [1, 2, 3, 4]}))
    check(got, [(int(u), i) for u, i in zip(users, (1, 2, 3, 4))])
    assert got.users.tolist() == [2, 0, 1, 2]


def test_decimals_and_floats() -> None:
    source = pa.table({"user": [Decimal(7), Decimal(8)], "item": [1.0, 2.0]})
    check(read_interactions(source), [(7, 1), (8, 2)])
    for wrong in ([1.5, 2.0], [float("inf"), 1.0], [1e300, 1.0]):
        with pytest.raises(DataError, match=r"'item'.*whole number"):
            read_interactions(pa.table({"user": [1, 2], "item": wrong}))


def test_ids_that_cannot_be() -> None:
    with pytest.raises(DataError, match=r"18446744073709551615.*2\^63"):
        read_interactions(pa.table({"user": pa.array([2**64 - 1], pa.uint64()), "item": [1]}))
    with pytest.raises(DataError, match="type bool"):
        read_interactions(pa.table({"user": [True], "item": [1]}))
    with pytest.raises(DataError, match="type list"):
        read_interactions(pa.table({"user": [[1]], "item": [1]}))
    with pytest.raises(DataError, match="cannot be read as"):
        read_interactions(pa.table({"user": [b"\xff"], "item": [1]}))
    bad = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(np.array([0, 1], np.int32)), pa.py_buffer(b"\xff")])
    with pytest.raises(DataError, match="UTF-8"):
        read_interactions(pa.table({"user": bad, "item": [1]}))


def test_missing_ids_are_counted(tmp_path: Path) -> None:
    for column in (["a", None, None], [1, None, None], [1.0, float("nan"), None]):
        with pytest.raises(DataError, match=r"2 rows have no user.*is not null"):
            read_interactions(pa.table({"user": column, "item": [1, 2, 3]}))
    for kind in (pa.string(), pa.int64(), pa.dictionary(pa.int32(), pa.string())):
        with pytest.raises(DataError, match="2 rows have no user"):
            read_interactions(pa.table({"user": pa.nulls(2, kind), "item": [1, 2]}))
    with pytest.raises(DataError, match="3 rows have no item"):
        read_interactions(pa.table({"user": [1, 2, 3], "item": pa.nulls(3)}))
    with pytest.raises(DataError, match="1 rows have no user"):
        read_interactions(pd.DataFrame({"user": [1, np.nan], "item": [1, 2]}))
    path = tmp_path / "likes.csv"
    path.write_text("user,item\na,1\n,2\n")
    with pytest.raises(DataError, match="1 rows have no user"):
        read_interactions(path)
    check(read_interactions(path, where="user is not null"), [("a", 1)])


def test_rows_do_not_depend_on_order_nor_on_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    users = np.array([f"ü{k}" if k % 3 else f"u{k}" for k in rng.integers(0, 500, 5000)])
    items = rng.integers(-50, 10**12, 5000)
    whole = read_interactions(pa.table({"user": users, "item": items}))
    order = rng.permutation(5000)
    monkeypatch.setattr(reader, "GROUP_ROWS", 700)
    shuffled = read_interactions(pa.table({"user": users[order], "item": items[order]}).to_reader(max_chunksize=90))
    assert np.array_equal(whole.users[order], shuffled.users)
    assert np.array_equal(whole.items[order], shuffled.items)
    everyone = whole.user_ids.ids_of(range(len(whole.user_ids)))
    assert everyone == sorted(set(users.tolist()), key=str.encode)
    assert everyone == shuffled.user_ids.ids_of(range(len(shuffled.user_ids)))


# Options


def test_reader_options() -> None:
    options = ReaderOptions.of({"where": "rating >= 4", "user_column": "user"})
    assert options == ReaderOptions(where="rating >= 4", user_column="user")
    assert ReaderOptions.of(options) is options
    assert ReaderOptions.of(None) == ReaderOptions.of({}) == ReaderOptions()
    assert [*ReaderKeywords.__annotations__] == [option.name for option in fields(ReaderOptions)]
    with pytest.raises(UsageError, match="considered_where is for fits"):
        read_interactions(table(**RATED), where="rating >= 4", considered_where="rating < 3")
    with pytest.raises(UsageError, match="'user' is no option of the reader; it takes user_column, "):
        ReaderOptions.of({"user": "a"})
    with pytest.raises(UsageError, match="reader is 'rating >= 4'; expected a mapping"):
        ReaderOptions.of("rating >= 4")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="--where"):
        ReaderOptions(where="rating >>= 4")
    with pytest.raises(UsageError, match="needs a rule that tells likes from others"):
        read_judged(table(**RATED))


# Matrices


def test_sparse_matrix() -> None:
    dense = np.array([[0, 1, 0], [1, 0, 1], [0, 0, 0]])
    for form in (sp.csr_matrix, sp.csc_array, sp.coo_matrix, sp.lil_matrix):
        got = read_interactions(form(dense))
        assert sorted(zip(got.users.tolist(), got.items.tolist())) == [(0, 1), (1, 0), (1, 2)]
        assert (got.user_ids.kind, len(got.user_ids), len(got.item_ids)) == ("range", 3, 3)
    with pytest.warns(UserWarning, match="weights"):
        read_interactions(sp.csr_matrix(dense * 2.5 + dense.cumsum(axis=1) * dense))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_interactions(sp.csr_matrix(dense))


def test_sparse_matrix_with_values_that_are_no_likes() -> None:
    for value in (0.0, -1.0, np.nan):
        matrix = sp.csr_matrix(([1.0, value], ([0, 1], [1, 0])), shape=(2, 2))
        with pytest.raises(DataError, match="1 of the 2 stored values"):
            read_interactions(matrix)
    with pytest.raises(DataError, match="stores no values"):
        read_interactions(sp.csr_matrix((3, 4)))
    with pytest.raises(DataError, match="complex"):
        read_interactions(sp.csr_matrix(np.array([[1j]])))
    with pytest.raises(UsageError, match="no columns"):
        read_interactions(sp.csr_matrix(np.eye(2)), user_column="user")
    with pytest.raises(DataError, match="4294967296 x 2; at most 2147483647 rows fit"):
        read_interactions(sp.coo_matrix(([1.0], ([0], [1])), (2**32, 2)))


# Columns


@pytest.mark.parametrize(
    ("user", "item"),
    [("userId", "movieId"), ("User-ID", "ISBN"), ("customer_id", "product_id"), ("uid", "iid"), ("MEMBER", "anime_id")],
)
def test_usual_names(user: str, item: str) -> None:
    source = pa.table({"timestamp": [1, 2], item: ["x", "y"], user: ["a", "b"]})
    check(read_interactions(source), [("a", "x"), ("b", "y")])


def test_general_names_win_and_ids_win_over_names() -> None:
    check(read_interactions(pa.table({"movie": ["T"], "movieId": [3], "user": [1], "x": [0]})), [(1, 3)])
    check(read_interactions(pa.table({"artist_id": [9], "item": [3], "user": [1], "x": [0]})), [(1, 3)])
    with pytest.raises(DataError, match=r"'artist_id', 'track_id' could hold the items"):
        read_interactions(pa.table({"artist_id": [9], "track_id": [3], "user": [1]}))


def test_two_columns_in_order() -> None:
    got = read_interactions(pa.table({"src": [1], "dst": [2]}))
    check(got, [(1, 2)])
    assert "'src'" in got.notes[0]
    check(read_interactions(pa.table({"src": [1], "dst": [2]}), user_column="dst"), [(2, 1)])


def test_columns_that_are_not_there() -> None:
    with pytest.raises(DataError, match=r"no column 'who'; it has 'user', 'item'.*--user-column"):
        read_interactions(table(), user_column="who")
    with pytest.raises(DataError, match=r"looks like the users; it has 'a', 'b', 'c'"):
        read_interactions(pa.table({"a": [1], "b": [2], "c": [3]}))
    with pytest.raises(UsageError, match="both"):
        read_interactions(table(), user_column="item", item_column="item")
    with pytest.raises(DataError, match="2 columns are called 'user'"):
        read_interactions(pa.table([[1], [2], [3]], names=["user", "user", "item"]))
    check(read_interactions(table(), user_column="USER"))


# Rules


def test_ratings_need_a_rule() -> None:
    with pytest.raises(DataError, match=r'--where "rating >= 4".*where="rating >= 4"'):
        read_interactions(table(**RATED))
    with pytest.raises(DataError, match="`Book-Rating` >= 4"):
        read_interactions(table(**{"Book-Rating": [1] * 5}))
    with pytest.raises(DataError, match="plays"):
        read_interactions(table(plays=[1] * 5), rating_column="plays")
    check(read_interactions(table(**RATED), where="rating is not null"))


EXTRA = {
    "rating": [5, 4, 3, 2, None],
    "Star Sign": ["leo", "leo", "it's", None, "aries"],
    "day": pa.array([0, 10, 20, 30, 40], pa.date32()),
    "seen": pa.array([0, 1, 2, 3, 4], pa.timestamp("s", "UTC")),
    "score": [0.5, 1.5, 2.5, 3.5, 4.5],
    "text": ["1", "2", "10", "20", None],
    "small": pa.array([1, 2, 3, 4, 5], pa.int8()),
    "big": pa.array([1, 2, 3, 4, 5], pa.uint64()),
    "flag": [True, False, True, False, None],
    "cat": pa.array(["a", "b", "a", "b", "c"]).dictionary_encode(),
    "price": [Decimal("1.50"), Decimal("2.50"), Decimal("3.50"), Decimal("4.50"), Decimal("5.50")],
}


@pytest.mark.parametrize(
    ("rule", "kept"),
    [
        ("rating >= 4", "01"),
        ("rating > 4", "0"),
        ("rating<=3", "23"),
        ("RATING < 3", "3"),
        ("rating = 4", "1"),
        ("rating == 4.0", "1"),
        ("rating != 4", "023"),
        ("rating <> 4", "023"),
        ("rating >= 3.5", "01"),
        ("rating in (2, 5)", "03"),
        ("rating not in (2, 5)", "12"),
        ("not rating in (2, 5)", "12"),
        ("rating is null", "4"),
        ("rating is not null", "0123"),
        ("NOT (rating >= 4)", "23"),
        ("rating >= 4 and small > 1 or small = 5", "14"),
        ("rating >= 4 and (small > 1 or small = 5)", "1"),
        ("`Star Sign` = 'it''s'", "2"),
        ("\"Star Sign\" != 'leo'", "24"),
        ("\"Star Sign\" in ('leo', 'aries')", "014"),
        ("day >= '1970-01-21'", "234"),
        ("day < '1970-01-11T00:00:00'", "0"),
        ("seen >= '1970-01-01T00:00:02'", "234"),
        ("seen >= '1970-01-01T01:00:02+01:00'", "234"),
        ("score > 2", "234"),
        ("text >= 10", "23"),
        ("text >= '2'", "13"),
        ("small <= 1000", "01234"),
        ("small > -1000", "01234"),
        ("big > -1", "01234"),
        ("big < 3e0", "01"),
        ("flag = true", "02"),
        ("flag != true", "13"),
        ("cat = 'a'", "02"),
        ("cat in ('c', 'b')", "134"),
        ("price >= 3.5", "234"),
        ("user = 'al'", "124"),
    ],
)
@pytest.mark.parametrize("form", ["table", "parquet"])
def test_rules(rule: str, kept: str, form: str, tmp_path: Path) -> None:
    source: Any = table(**EXTRA)
    if form == "parquet":
        pq.write_table(source, tmp_path / "likes.parquet", row_group_size=2)
        source = tmp_path / "likes.parquet"
    got = read_interactions(source, where=rule)
    check(got, [PAIRS[int(one)] for one in kept])  # type: ignore[misc]
    assert got.rows_read == 5
    assert len(got.user_ids) == len({PAIRS[int(one)][0] for one in kept})  # only ids that the rule keeps


SINGLE = pa.array([4.1, 4.0, 4.2, -0.0, None], pa.float32())
NEXT = pa.array([2**53 + 1, 2**53, -(2**62), 1_500_000_000_000_000_000, None], pa.int64())
LARGE = pa.array([0, 1, 2**63, 2**64 - 1, None], pa.uint64())
NANO = pa.array([1, 0, -1, 10**18 + 1, None], pa.timestamp("ns"))
FAR = pa.array([1, -(10**15), 10**15, 0, None], pa.timestamp("s"))
DAYS = pa.array([-(2**31), 0, 1, 2**31 - 1, None], pa.date32())


@pytest.mark.parametrize(
    ("values", "rule", "kept"),
    [
        (SINGLE, "x >= 4.1", "02"),
        (SINGLE, "x > 4.1", "2"),
        (SINGLE, "x = 4.1", "0"),
        (SINGLE, "x in (4.1, 0)", "03"),
        (SINGLE, "x < 1e300 and x > -1e300", "0123"),
        (SINGLE, "x < 1e-300 and x >= 0", "3"),
        (SINGLE.cast(pa.float16()), "x >= 4.1", "02"),
        (SINGLE.dictionary_encode(), "x >= 4.1", "02"),
        (NEXT, "x < 1.5e18", "012"),
        (NEXT, "x >= 1.5e18", "3"),
        (NEXT, "x > 9007199254740992", "03"),
        (NEXT, "x > 9007199254740992.0", "03"),
        (NEXT, "x > 0.5 and x <= 1e999", "013"),
        (NEXT, "x not in (9007199254740993, 1e30, 0.5)", "123"),
        (NEXT, "not x = 0.5", "0123"),
        (LARGE, "x > -1", "0123"),
        (LARGE, "x <= -1 or x = 18446744073709551615", "3"),
        (LARGE, "x < 9223372036854775808", "01"),
        (NANO, "x > '1970-01-01'", "03"),
        (NANO, "x < '9000-01-01' and x != '1970-01-01'", "023"),
        (NANO, "x in ('1970-01-01', '9000-01-01')", "1"),
        (FAR, "x > '1970-01-01'", "02"),
        (DAYS, "x >= '1970-01-01T12:00'", "23"),
        (DAYS, "x < '1970-01-01T12:00'", "01"),
    ],
)
@pytest.mark.parametrize("form", ["table", "parquet"])
def test_rules_compare_in_the_type_of_the_column(values: Any, rule: str, kept: str, form: str, tmp_path: Path) -> None:
    source: Any = table(x=values)
    if form == "parquet":
        pq.write_table(source, tmp_path / "likes.parquet", row_group_size=2, version="2.6")
        source = tmp_path / "likes.parquet"
    check(read_interactions(source, where=rule), [PAIRS[int(one)] for one in kept])  # type: ignore[misc]


@pytest.mark.parametrize(
    "rule",
    [
        *("", "  ", "rating", "rating >=", ">= 4", "4 <= rating", "rating >= 4 and", "rating >= 4 rating < 5"),
        *("(rating >= 4", "rating >= 4)", "rating in 4", "rating in ()", "rating in (4", "rating is 4"),
        *("rating >= four", 'cat == "a"', "rating >= 'a", "rating => 4", "rating ~ 4", "__import__('os')"),
        *("rating >= 4; drop", "rating not 4", "rating >= 4abc", "(" * 60 + "rating > 1" + ")" * 60),
        *("not " * 60 + "rating > 1", " or ".join(["rating > 1"] * 400), "rating > 1" + " " * 30_000),
        *("rating >= '4'", "day > 3", "day > 'soon'", "flag > 7", "cat == true", "day = '2020-01-01T00:00:00Z'"),
    ],
)
def test_rules_that_are_none(rule: str) -> None:
    with pytest.raises(UsageError, match="--where"):
        read_interactions(table(**EXTRA), where=rule)


def test_rules_that_fail_on_the_data() -> None:
    with pytest.raises(DataError, match="keeps none of its 5 rows"):
        read_interactions(table(**EXTRA), where="rating > 100")
    with pytest.raises(DataError, match="no column 'stars'"):
        read_interactions(table(**EXTRA), where="stars > 100")
    with pytest.raises(DataError, match=r"'Star Sign' with a number.*text '.+'; compare.*`Star Sign` = '100'"):
        read_interactions(table(**EXTRA), where="`Star Sign` > 100")
    with pytest.raises(DataError, match=r"compares 'cat' with a number.*compare text with quoted text"):
        read_interactions(table(**EXTRA), where="rating > 1 and cat in (1, 2)")
    with pytest.raises(UsageError, match="text such as"):
        read_interactions(table(**EXTRA), where=4)  # type: ignore[arg-type]


def test_a_process_that_refused_large_data_ends_well(tmp_path: Path) -> None:
    """No thread goes on reading after a failure: at the end of the process that would abort it."""
    rows = np.arange(1_000_000)
    likes = pa.table({"user": rows, "item": pa.array([f"x{k}" for k in range(50)]).take(pa.array(rows % 50))})
    pq.write_table(likes, tmp_path / "likes.parquet")
    code = (
        "import sys; from considerate.errors import DataError; from considerate.data import read_interactions\n"
        "try: read_interactions(sys.argv[1], where='item > 5')\n"
        "except DataError: print('refused')"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "likes.parquet")]
    out = subprocess.run(command, capture_output=True, text=True)
    assert (out.stdout, out.returncode) == ("refused\n", 0), out.stderr


def test_long_chains_of_a_rule() -> None:
    check(read_interactions(table(**RATED), where=" or ".join(["rating >= 4"] * 300)), PAIRS[:2])  # type: ignore[arg-type]
    many = ", ".join(str(k) for k in range(4, 3000))
    check(read_interactions(table(**RATED), where=f"rating in ({many})"), PAIRS[:2])  # type: ignore[arg-type]


def test_nan_in_the_rule_is_refused(tmp_path: Path) -> None:
    nan = float("nan")
    source = table(rating=[5.0, nan, 1.0, nan, 4.0], other=[nan] * 5)
    pq.write_table(source, tmp_path / "likes.parquet")
    (tmp_path / "likes.csv").write_text("user,item,rating\na,x,5\nb,y,nan\nc,z,NaN\n")
    frame = source.to_pandas()
    for one in (source, tmp_path / "likes.parquet", tmp_path / "likes.csv", frame, pl.from_arrow(source)):
        for rule in ("rating >= 4", "not rating >= 4", "rating in (4, 5)", "user != 'q' and rating < 9"):
            with pytest.raises(DataError, match="2 rows have NaN"):
                read_interactions(one, where=rule)
    check(read_interactions(source, where="user != 'q'"))


# Files that are not what they should be


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(name: str, content: bytes) -> Path:
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    pq.write_table(table(), tmp_path / "good.parquet")
    good = (tmp_path / "good.parquet").read_bytes()
    csv = b"user,item\na,x\n"
    for path, message in [
        (tmp_path / "none.csv", "no such file"),
        (write("empty.csv", b""), "empty"),
        (write("empty.parquet", b""), "empty"),
        (write("blank.csv", b"\n \n"), "no rows"),
        (write("header.csv", b"user,item\n"), "no rows"),
        (write("text.parquet", csv), r"ends in \.parquet but holds text"),
        (write("binary.csv", good), r"ends in \.csv but holds Parquet"),
        (write("a.csv.gz", csv), "not gzip"),
        (write("b.csv", gzip.compress(csv)), r"rename it to end in \.csv\.gz"),
        (write("cut.csv.gz", gzip.compress(csv * 100)[:-20]), "cannot be read"),
        (write("cut.parquet", good[:-30]), "cannot be read"),
        (write("latin.csv", "user,item\né,x\n".encode("latin1")), r"not UTF-8.*iconv"),
        (write("utf16.csv", "user,item\na,x\n".encode("utf16")), "UTF-16"),
        (write("utf32.csv", "user,item\na,x\n".encode("utf32")), "holds UTF-32 text.*iconv -f UTF-32"),
        (write("zero.dat", b"\1\2\0\0abc"), "binary"),
        (write("one.csv", b"user\na\nb\n"), "same number of fields"),
        (write("ragged.csv", b"user,item\n" + b"a,b\n" * 50 + b"a,b,c\n" + b"a,b\n" * 50), "Expected 2 columns, got 3"),
        (write("zip.csv", b"PK\x03\x04abc"), "zip archive"),
        (write("a.db", b"SQLite format 3\0abc"), "sqlite:///"),
        (write("long.csv", b"a," * 200_000), "no line end"),
        (write("x.arrow", b"ARROW1\0\0"), "Arrow file"),
    ]:
        with pytest.raises(DataError, match=message) as caught:
            read_interactions(path)
        assert "\n" not in str(caught.value)
    (tmp_path / "folder").mkdir()
    with pytest.raises(DataError, match=r"without Parquet files \(it has nothing\)"):
        read_interactions(tmp_path / "folder")
    write("folder/likes.csv", csv)
    with pytest.raises(DataError, match=r"it has likes\.csv"):
        read_interactions(tmp_path / "folder")
    write("folder/x.parquet", b"")
    with pytest.raises(DataError, match=r"x\.parquet: the file is empty"):
        read_interactions(tmp_path / "folder")
    with pytest.raises(DataError, match="neither a file"):
        read_interactions("/dev/null")
    with pytest.raises(DataError, match="no such file"):
        read_interactions("a\0b")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(DataError, match="no permission"):
        read_interactions(tmp_path / "good.parquet")


def test_things_that_are_no_source() -> None:
    for thing in (7, None, [(1, 2)], iter([])):
        with pytest.raises(UsageError, match="cannot read likes from"):
            read_interactions(thing)
    with pytest.raises(DataError, match="no rows"):
        read_interactions(table().slice(0, 0))
    with pytest.raises(DataError, match="no rows"):
        read_interactions(table().slice(0, 0), where="user = 'a'")


# Titles


def test_titles(tmp_path: Path) -> None:
    catalogue = pa.table({"item": ["z", "x", "q", "x"], "title": ["Zed", "Ex", "Queue", "Second"]})
    got = read_interactions(table(), titles=catalogue)
    assert got.titles is not None
    assert [got.titles.of(row) for row in range(3)] == ["Ex", None, "Zed"]
    assert "titles for 2 of 3 items" in got.notes[-1]
    again = Titles(**got.titles.tensors())
    assert [again.of(row) for row in range(len(again))] == ["Ex", None, "Zed"]
    assert Titles.of_strings(["é", None]).of(0) == "é"
    with pytest.raises(IndexError):
        again.of(3)
    path = tmp_path / "movies.csv"
    path.write_text('id;name\nx;"Ex; or why"\ny;\n')
    got = read_interactions(table(), titles=path)
    assert got.titles is not None
    assert [got.titles.of(row) for row in range(3)] == ["Ex; or why", None, None]


def test_titles_of_another_type(tmp_path: Path) -> None:
    likes = pa.table({"user": [1, 1], "movieId": [7, 10]})
    for ids in (["7", "10"], [7.0, 10.0], pa.array([7, 10], pa.uint8()), pa.array(["7", "10"], pa.string_view())):
        got = read_interactions(likes, titles=pa.table({"movieId": ids, "title": ["a", "b"]}))
        assert got.titles is not None
        assert [got.titles.of(row) for row in range(2)] == ["a", "b"]
    strings = pa.table({"user": [1, 1], "movieId": ["7", "10"]})
    got = read_interactions(strings, titles=pa.table({"movieId": [7, 10], "title": ["a", "b"]}))
    assert got.titles is not None
    assert [got.titles.of(row) for row in range(2)] == ["b", "a"]
    matrix = read_interactions(sp.csr_matrix(np.eye(2)), titles=pa.table({"id": [1, 0], "title": ["b", "a"]}))
    assert matrix.titles is not None
    assert [matrix.titles.of(row) for row in range(2)] == ["a", "b"]


def test_titles_that_do_not_fit() -> None:
    with pytest.raises(DataError, match=r"none of its 1 ids.*'q'.*such as 'x'.*--title-id-column"):
        read_interactions(table(), titles=pa.table({"item": ["q"], "title": ["Q"]}))
    with pytest.raises(DataError, match=r"looks like the titles.*--title-column"):
        read_interactions(table(), titles=pa.table({"item": ["q"], "what": ["Q"]}))
    with pytest.raises(DataError, match=r"no column 'z'.*--title-column"):
        read_interactions(table(), titles=pa.table({"item": ["q"], "what": ["Q"]}), title_column="z")
    with pytest.raises(UsageError, match="--titles"):
        read_interactions(table(), title_column="z")
    named = pa.table({"key": ["x"], "what": ["Q"]})
    got = read_interactions(table(), titles=named, title_id_column="key", title_column="what")
    assert got.titles is not None
    assert got.titles.of(0) == "Q"


# Real data


@pytest.mark.data
def test_movielens(data_dir: Path) -> None:
    path = data_dir / "ml-100k" / "ratings.parquet"
    with pytest.raises(DataError, match="rating >= 4"):
        read_interactions(path)
    got = read_interactions(path, where="rating >= 4", titles=data_dir / "ml-100k" / "items.parquet")
    raw = pq.read_table(path).to_pandas()
    kept = raw[raw.rating >= 4]
    assert (got.rows_read, got.rows_kept) == (100_000, len(kept))
    assert pairs(got) == list(zip(kept.user, kept.item))
    assert got.titles is not None
    assert got.titles.of(got.item_ids.row_of(1)) == "Toy Story (1995)"


@pytest.mark.data
def test_goodbooks(data_dir: Path) -> None:
    folder = data_dir / "goodbooks-10k-v1"
    got = read_interactions(folder / "ratings.parquet", where="rating >= 4", titles=folder / "items.parquet")
    assert got.titles is not None
    assert len(got.item_ids) == 10_000
    assert "Hunger Games" in str(got.titles.of(got.item_ids.row_of(1)))


@pytest.mark.data
def test_every_other_set(data_dir: Path) -> None:
    assert len(read_interactions(data_dir / "gowalla-lightgcn" / "train.parquet").user_ids) == 29_858
    assert len(read_interactions(data_dir / "graphs" / "cora.parquet").users) == 5_278
    assert len(read_interactions(data_dir / "hetrec2011-lastfm-2k" / "plays.parquet").item_ids) == 17_632
