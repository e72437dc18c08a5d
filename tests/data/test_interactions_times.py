"""A time for each like, and rows that were considered and not liked."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from considerate import read_interactions
from considerate.data import read_judged
from considerate.errors import DataError, UsageError

HOUR = 3600.0


def read(times, **options):
    count = len(times)
    table = pa.table({"user": [f"u{m}" for m in range(count)][::-1], "item": [0] * count, "when": times})
    return read_interactions(table, time_column="when", **options)


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (pa.array([3, 1, 2]), [3.0, 1.0, 2.0]),
        (pa.array([3, 1, 2], pa.uint8()), [3.0, 1.0, 2.0]),
        (pa.array([0.5, -1.0, 2e9]), [0.5, -1.0, 2e9]),
        (pa.array([date(1970, 1, 2), date(1969, 12, 31), date(1970, 1, 1)]), [24 * HOUR, -24 * HOUR, 0.0]),
        (pa.array([1, 2, 3], pa.timestamp("s")), [1.0, 2.0, 3.0]),
        (pa.array([1_500, 2_000, 3_000], pa.timestamp("ms", "Europe/Paris")), [1.5, 2.0, 3.0]),
        (pa.array([10**9, 2 * 10**9, 3 * 10**9], pa.timestamp("ns")), [1.0, 2.0, 3.0]),
        (pa.array(["7", "8.5", "9"]), [7.0, 8.5, 9.0]),
        (pa.array(["1970-01-01T01:00:00", "1970-01-02 00:00:00", "1970-01-01"]), [HOUR, 24 * HOUR, 0.0]),
        (
            pa.array(["1970-01-01T01:00:00+01:00", "1970-01-01T01:00:00Z", "1970-01-01T00:00:00-01:00"]),
            [0.0, HOUR, HOUR],
        ),
        (pa.array(["1", "2", "3"]).dictionary_encode(), [1.0, 2.0, 3.0]),
    ],
    ids=lambda one: str(getattr(one, "type", "")),
)
def test_times_of_every_kind(times, expected) -> None:
    assert read(times).times.tolist() == expected


def test_times_stay_beside_their_likes() -> None:
    """Also where the rule leaves rows out, and over many batches."""
    random = np.random.default_rng(0)
    users, rating = random.integers(0, 500, 300_000), random.integers(1, 6, 300_000)
    when = np.arange(300_000.0)
    table = pa.table({"user": users, "item": users % 7, "rating": rating, "when": when})
    likes = read_interactions(table, where="rating >= 4", time_column="WHEN")
    assert np.array_equal(likes.times, when[rating >= 4])
    assert np.array_equal(likes.user_ids.integers[likes.users], users[rating >= 4])


def test_a_missing_time_is_nan_and_said() -> None:
    likes = read(pa.array([None, 5.0, np.nan]))
    assert np.isnan(likes.times).tolist() == [True, False, True]
    assert any("2 likes have no time" in note for note in likes.notes)
    moments = read(pa.array([datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=2))), None, None])).times
    assert moments[0] == 1704060000.0


def test_the_rule_may_look_at_the_times_too() -> None:
    likes = read(pa.array([1, 2, 3], pa.timestamp("s")), where="when >= '1970-01-01T00:00:02'")
    assert likes.times.tolist() == [2.0, 3.0]


@pytest.mark.parametrize(
    ("times", "what"),
    [
        (pa.array(["soon", "1970-01-01", "2"]), "cannot be read"),
        (pa.array([True, False, True]), "its type is bool"),
        (pa.array([None, None, None], pa.float64()), "no time at all"),
        (pa.array([None, None, None]), "no time at all"),
        (pa.array([1.0, np.inf, 2.0]), "infinite"),
    ],
)
def test_times_that_are_none(times, what: str) -> None:
    with pytest.raises(DataError, match=what):
        read(times)


def test_a_column_that_is_not_there_and_a_matrix_that_has_none() -> None:
    import scipy.sparse

    with pytest.raises(DataError, match="--time-column"):
        read_interactions(pa.table({"user": [1], "item": [2]}), time_column="when")
    with pytest.raises(UsageError, match="no columns"):
        read_interactions(scipy.sparse.eye(3, format="csr"), time_column="when")


def test_from_text(tmp_path: Path) -> None:
    (tmp_path / "likes.csv").write_text("user,item,when\n1,2,2024-05-01\n1,3,2024-05-02\n2,2,\n")
    likes = read_interactions(tmp_path / "likes.csv", time_column="when")
    assert likes.times[:2].tolist() == [1714521600.0, 1714608000.0]
    assert np.isnan(likes.times[2])
    (tmp_path / "u.data").write_text("1\t2\t5\t881250949\n1\t3\t4\t891717742\n")
    likes = read_interactions(
        tmp_path / "u.data", user_column="column1", item_column="column2", where="column3 > 0", time_column="column4"
    )
    assert likes.times.tolist() == [881250949.0, 891717742.0]


# --- Considered and not liked ---


def test_rows_that_fail_the_rule_were_considered(tmp_path: Path) -> None:
    table = pa.table({"user": [1, 1, 2, 2, 3], "item": [1, 2, 1, 3, 1], "rating": [5, 2, 4, None, 1]})
    pyarrow.parquet.write_table(table, tmp_path / "r.parquet")
    for source in (table, tmp_path / "r.parquet", str(tmp_path / "r.parquet")):
        liked, not_liked = read_judged(source, where="rating >= 4")
        assert (liked.rows_kept, not_liked.rows_kept) == (2, 2)
        ids = {
            (not_liked.user_ids.id_of(m), not_liked.item_ids.id_of(n)) for m, n in zip(not_liked.users, not_liked.items)
        }
        assert ids == {(1, 2), (3, 1)}, "a row without a rating is in neither"


def test_a_rule_of_several_terms_is_denied_as_a_whole() -> None:
    table = pa.table({"user": [1, 2, 3, 4], "item": [1, 1, 1, 1], "rating": [5, 5, 1, 1], "age": [20, 70, 20, 70]})
    liked, not_liked = read_judged(table, where="rating >= 4 and age < 50 or rating = 99")
    assert liked.user_ids.ids_of(range(1)) == [1]
    assert sorted(not_liked.user_ids.ids_of(not_liked.users)) == [2, 3, 4]


def test_where_every_row_is_a_like_or_none_can_be_told() -> None:
    table = pa.table({"user": [1, 2], "item": [1, 1], "rating": [5, None]})
    assert read_judged(table, where="rating >= 4")[1] is None
    assert read_judged(table.slice(0, 1), where="rating >= 4")[1] is None
    with pytest.raises(DataError, match="keeps none"):
        read_judged(table, where="rating > 5")
