"""The reader against databases and servers: SQLite, PostgreSQL, and S3 over HTTP."""

from __future__ import annotations

import io
import sqlite3
import sys
from pathlib import Path
from typing import Any

import adbc_driver_postgresql.dbapi as dbapi
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from considerate.data import read_interactions
from considerate.errors import DataError, UsageError
from tests.helpers.reader_cases import PAIRS, check, pairs, table
from tests.helpers.servers import Bucket

TABLE = table(rating=[5, 4, 3, 2, 1])


def test_postgresql(postgres: str) -> None:
    with dbapi.connect(postgres) as connection, connection.cursor() as cursor:
        cursor.execute("create schema shop")
        cursor.execute("create table shop.likes (user_id text, item_id text, rating smallint)")
        for rating, (user, item) in zip((5, 4, 3, 2, 1), PAIRS):
            cursor.execute("insert into shop.likes values ($1, $2, $3)", (user, item, rating))
        connection.commit()
    for address, query in (
        (f"{postgres}&table=shop.likes", None),
        (postgres, "select user_id, item_id, rating from shop.likes order by rating desc"),
    ):
        likes = read_interactions(address, query=query, where="rating >= 3")
        check(likes, PAIRS[:3])  # type: ignore[arg-type]
        assert likes.rows_read == 5
    numbers = "select k::bigint as user_id, (k % 7)::smallint as item_id from generate_series(1, 100000) as k"
    likes = read_interactions(postgres, query=numbers)
    assert (len(likes.user_ids), len(likes.item_ids), likes.rows_kept) == (100_000, 7, 100_000)
    with pytest.raises(DataError, match="the database says"):
        read_interactions(f"{postgres}&table=no_such_table")


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "my likes.db"
    with sqlite3.connect(path) as connection:
        connection.execute("create table likes (user text, item text, rating integer)")
        rows = [(u, i, r) for (u, i), r in zip(PAIRS, (5, 4, 3, 2, 1))]
        connection.executemany("insert into likes values (?, ?, ?)", rows)
    connection.close()
    return path


def test_sqlite(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    got = read_interactions(f"sqlite:///{database}", query="select user, item from likes where rating >= 3")
    check(got, PAIRS[:3])  # type: ignore[arg-type]
    got = read_interactions(f"sqlite:///{database}?table=likes", where="rating >= 3")
    check(got, PAIRS[:3])  # type: ignore[arg-type]
    assert got.rows_read == 5
    monkeypatch.chdir(database.parent)
    check(read_interactions("sqlite:///my%20likes.db?table=main.likes", where="rating > 0"))


def test_databases_that_cannot_be_read(database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"sqlite:///{database}"
    with pytest.raises(UsageError, match=r"--query.*\?table="):
        read_interactions(address)
    with pytest.raises(UsageError, match="not both"):
        read_interactions(address + "?table=likes", query="select 1")
    with pytest.raises(DataError, match=r"the database says.*nothing"):
        read_interactions(address, query="select * from nothing")
    with pytest.raises(DataError, match="there is no file"):
        read_interactions(f"sqlite:///{tmp_path}/none.db?table=likes")
    assert not (tmp_path / "none.db").exists()
    (tmp_path / "text.db").write_text("hello")
    with pytest.raises(DataError, match="not an SQLite database"):
        read_interactions(f"sqlite:///{tmp_path}/text.db?table=likes")
    with pytest.raises(UsageError, match="mysql:// is not read"):
        read_interactions("mysql://host/db", query="select 1")
    with pytest.raises(UsageError, match="--query goes with a database"):
        read_interactions(table(), query="select 1")
    monkeypatch.setitem(sys.modules, "adbc_driver_sqlite.dbapi", None)
    with pytest.raises(UsageError, match=r"considerate\[sql\]"):
        read_interactions(address, query="select 1")


@pytest.mark.parametrize(
    "query",
    [
        *("attach 'new.db' as new", "ATTACH DATABASE 'new.db' AS new", "vacuum into 'new.db'", "drop table likes"),
        *("pragma journal_mode = wal", "/* select */ attach 'new.db' as new", "-- select\nattach 'new.db' as new"),
        *("create table more (a)", "", "selection", "delete from likes"),
    ],
)
def test_a_query_only_reads(database: Path, query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(database.parent)
    before = database.read_bytes()
    with pytest.raises(UsageError, match="does not only read; it must begin with select"):
        read_interactions(f"sqlite:///{database}", query=query)
    assert [file.name for file in database.parent.iterdir()] == [database.name]
    assert database.read_bytes() == before


def test_what_follows_a_query_is_not_run(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(database.parent)
    before = database.read_bytes()
    check(read_interactions(f"sqlite:///{database}", query="select user, item from likes; attach 'new.db' as new"))
    with pytest.raises(DataError, match=r"the database says.*readonly"):
        read_interactions(f"sqlite:///{database}", query="with a as (select 1) delete from likes")
    assert [file.name for file in database.parent.iterdir()] == [database.name]
    assert database.read_bytes() == before


def test_queries_that_read(database: Path) -> None:
    for query in (
        "-- all\n select user, item from likes",
        "/* a */ WITH l AS (SELECT * FROM likes) SELECT user, item FROM l",
    ):
        check(read_interactions(f"sqlite:///{database}", query=query))


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        (
            "postgresql://me:secret@127.0.0.1:1/x?connect_timeout=2",
            "postgresql://me:...@127.0.0.1:1/x?connect_timeout=2",
        ),
        ("postgresql://me:se@cret@127.0.0.1:1/x", "postgresql://me:...@127.0.0.1:1/x"),
        ("postgresql://127.0.0.1:1/x?password=secret&user=me", "postgresql://127.0.0.1:1/x?password=...&user=me"),
        ("postgresql://127.0.0.1:1/x?PassWord=secret", "postgresql://127.0.0.1:1/x?PassWord=..."),
        ("postgresql://127.0.0.1:1/x?p%61ssword=secret", "postgresql://127.0.0.1:1/x?p%61ssword=..."),
        ("postgresql://127.0.0.1:1/x?sslpassword=secret", "postgresql://127.0.0.1:1/x?sslpassword=..."),
        ("postgresql://me:secret@[bad/x", "postgresql://me:...@[bad/x"),
        ("mysql://me:secret@host/x?password=secret", "mysql://me:...@host/x?password=..."),
        ("s3://key:secret@/nothing?scheme=http&endpoint_override=127.0.0.1:1", "s3://key:...@/nothing?"),
    ],
)
def test_passwords_are_not_shown(address: str, shown: str) -> None:
    with pytest.raises((DataError, UsageError)) as caught:
        read_interactions(address, query=None if address.startswith("s3") else "select 1")
    assert "secret" not in str(caught.value)
    assert "cret@" not in str(caught.value)
    assert str(caught.value).lstrip("'").startswith(shown)


def test_a_connection_is_closed_whether_it_is_read_or_not(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import adbc_driver_sqlite.dbapi as driver

    opened: list[Any] = []
    closed: list[Any] = []

    class Connection(driver.Connection):
        def close(self) -> None:
            closed.append(self)
            super().close()

    def counted(*args: Any) -> Any:
        opened.append(connect(*args))
        opened[-1].__class__ = Connection
        return opened[-1]

    connect = driver.connect
    monkeypatch.setattr(driver, "connect", counted)
    address = f"sqlite:///{database}"
    read_interactions(address, query="select user, item from likes")
    for query, options in (
        ("select user, item, rating from likes", {}),  # refused before the scan: ratings need a rule
        ("select user, item from likes", {"user_column": "nobody"}),
        ("select user, item from likes", {"where": "nothing > 3"}),
        ("select nothing from likes", {}),
        ("select user, null as item from likes", {}),  # refused after the scan
    ):
        with pytest.raises(DataError):
            read_interactions(address, query=query, **options)
    with pytest.raises(DataError, match="looks like the titles"):
        read_interactions(table(), titles=f"{address}?table=likes", title_id_column="item")
    assert len(opened) == 7
    assert closed == opened


def test_s3(s3_bucket: Bucket, tmp_path: Path) -> None:
    file = io.BytesIO()
    pq.write_table(TABLE, file)
    address = s3_bucket.write("likes.parquet", file.getvalue())
    likes = read_interactions(address, where="rating >= 3")
    check(likes, PAIRS[:3])  # type: ignore[arg-type]
    year = TABLE.append_column("year", pa.array([2019, 2019, 2020, 2020, 2021]))
    parting = ds.partitioning(pa.schema([("year", pa.int32())]), flavor="hive")
    ds.write_dataset(year, tmp_path / "likes", format="parquet", partitioning=parting)
    (tmp_path / "likes" / "_SUCCESS").touch()
    address = s3_bucket.upload(tmp_path / "likes", "folder")
    likes = read_interactions(address, where="rating >= 1 and year >= 2020")
    assert sorted(pairs(likes)) == sorted(PAIRS[2:])
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
