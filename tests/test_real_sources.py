"""The reader against real servers: PostgreSQL, and S3 over HTTP."""

from __future__ import annotations

import io
from pathlib import Path

import adbc_driver_postgresql.dbapi as dbapi
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from considerate.data import read_interactions
from considerate.errors import DataError
from servers import Bucket

LIKES = [("bo", "x"), ("al", "y"), ("al", "x"), ("cy", "z"), ("al", "y")]
TABLE = pa.table({"user": [u for u, _ in LIKES], "item": [i for _, i in LIKES], "rating": [5, 4, 3, 2, 1]})


def test_postgresql(postgres: str) -> None:
    with dbapi.connect(postgres) as connection, connection.cursor() as cursor:
        cursor.execute("create schema shop")
        cursor.execute("create table shop.likes (user_id text, item_id text, rating smallint)")
        for rating, (user, item) in zip((5, 4, 3, 2, 1), LIKES):
            cursor.execute("insert into shop.likes values ($1, $2, $3)", (user, item, rating))
        connection.commit()
    for address, query in (
        (f"{postgres}&table=shop.likes", None),
        (postgres, "select user_id, item_id, rating from shop.likes order by rating desc"),
    ):
        likes = read_interactions(address, query=query, where="rating >= 3")
        assert list(zip(likes.user_ids.ids_of(likes.users), likes.item_ids.ids_of(likes.items))) == LIKES[:3]
        assert likes.rows_read == 5
    numbers = "select k::bigint as user_id, (k % 7)::smallint as item_id from generate_series(1, 100000) as k"
    likes = read_interactions(postgres, query=numbers)
    assert (len(likes.user_ids), len(likes.item_ids), likes.rows_kept) == (100_000, 7, 100_000)
    with pytest.raises(DataError, match="the database says"):
        read_interactions(f"{postgres}&table=no_such_table")


def test_s3(s3_bucket: Bucket, tmp_path: Path) -> None:
    file = io.BytesIO()
    pq.write_table(TABLE, file)
    address = s3_bucket.write("likes.parquet", file.getvalue())
    likes = read_interactions(address, where="rating >= 3")
    assert list(zip(likes.user_ids.ids_of(likes.users), likes.item_ids.ids_of(likes.items))) == LIKES[:3]
    year = TABLE.append_column("year", pa.array([2019, 2019, 2020, 2020, 2021]))
    parting = ds.partitioning(pa.schema([("year", pa.int32())]), flavor="hive")
    ds.write_dataset(year, tmp_path / "likes", format="parquet", partitioning=parting)
    (tmp_path / "likes" / "_SUCCESS").touch()
    address = s3_bucket.upload(tmp_path / "likes", "folder")
    likes = read_interactions(address, where="rating >= 1 and year >= 2020")
    assert sorted(zip(likes.user_ids.ids_of(likes.users), likes.item_ids.ids_of(likes.items))) == sorted(LIKES[2:])
    assert likes.rows_read == 5
    titles = io.BytesIO()
    pq.write_table(pa.table({"item": ["x", "y"], "title": ["Ex", "Why"]}), titles)
    named = read_interactions(address, where="rating >= 1", titles=s3_bucket.write("titles.parquet", titles.getvalue()))
    assert named.titles is not None
    assert [named.titles.of(row) for row in range(3)] == ["Ex", "Why", None]
    with pytest.raises(DataError, match=r"likes\.csv: holds text; only Parquet is read from there"):
        read_interactions(s3_bucket.write("likes.csv", b"user,item\na,b\n"))
    with pytest.raises(DataError, match="nowhere: there is no such file or folder"):
        read_interactions(f"{s3_bucket.address}/nowhere")
