"""Parquet that is damaged, or that decodes to far more than it takes on disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from considerate.data import ReaderOptions, parquet, read_interactions
from considerate.data.pieces import read_piece
from considerate.data.read import open_parquet_likes
from considerate.errors import DataError
from tests.helpers.reader_cases import PAIRS, check, pairs, table
from tests.helpers.servers import Bucket


def test_parquet_file(tmp_path: Path) -> None:
    pq.write_table(table(), tmp_path / "likes.parquet")
    got = read_interactions(tmp_path / "likes.parquet")
    check(got)
    assert got.user_ids.ids_of(range(3)) == ["al", "bo", "cy"]
    assert got.source.endswith("likes.parquet")
    assert got.rows_read == 5
    assert "'user'" in got.notes[0]
    check(read_interactions(str(tmp_path / "likes.parquet"), user_column="user", item_column="item"))


def test_parquet_folder_plain_and_hive(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    pq.write_table(table().slice(0, 2), plain / "a.parquet")
    pq.write_table(table().slice(2), plain / "b.parquet")
    (plain / "_SUCCESS").touch()
    (plain / "readme.txt").write_text("hello")
    check(read_interactions(plain))
    hive = tmp_path / "hive"
    ds.write_dataset(
        table(year=[2020, 2020, 2021, 2021, 2021]),
        hive,
        format="parquet",
        partitioning=ds.partitioning(pa.schema([("year", pa.int32())]), flavor="hive"),
    )
    assert sorted(pairs(read_interactions(hive))) == sorted(PAIRS)
    got = read_interactions(hive, where="year >= 2021")
    assert sorted(pairs(got)) == sorted(PAIRS[2:])
    assert got.rows_read == 5


def damaged(path: Path, value: bytes) -> None:
    """Flip a bit of a value, which leaves a file that can be read."""
    data = bytearray(path.read_bytes())
    assert data.count(value) >= 1
    data[data.index(value)] ^= 1
    path.write_bytes(data)


def test_page_checksums_are_verified(tmp_path: Path, s3_bucket: Bucket) -> None:
    options: dict[str, Any] = {"write_page_checksum": True, "compression": None, "write_statistics": False}
    likes = tmp_path / "folder" / "likes.parquet"
    likes.parent.mkdir()
    pq.write_table(pa.table({"user": ["ann", "bob"] * 50, "item": ["xyz", "uvw"] * 50}), likes, **options)
    check(read_interactions(likes), [("ann", "xyz"), ("bob", "uvw")] * 50)
    damaged(likes, b"ann")
    assert "`nn" in pq.read_table(likes)["user"].to_pylist()  # silent, unless the checksum is looked at
    address = s3_bucket.upload(likes.parent, "folder")
    opened = open_parquet_likes(likes, ReaderOptions())
    assert opened is not None
    for read in (
        lambda: read_interactions(likes),
        lambda: read_interactions(likes.parent),
        lambda: read_interactions(address),
        lambda: read_interactions(f"{address}/likes.parquet"),
        lambda: read_piece(opened[0], opened[1]),
    ):
        with pytest.raises(DataError, match="CRC"):
            read()
    titles = tmp_path / "titles.parquet"
    pq.write_table(pa.table({"item": ["x", "y"], "title": ["Example", "Why"]}), titles, **options)
    damaged(titles, b"Example")
    with pytest.raises(DataError, match=r"titles\.parquet.*CRC"):
        read_interactions(table(), titles=titles)


POOLS: list[Any] = []


@pytest.fixture
def pool() -> Iterator[Any]:
    """A memory pool of its own, which knows the most that was allocated at once."""
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    POOLS.append(pool)  # memory of a pool must not outlive it
    pa.set_memory_pool(pool)
    yield pool
    pa.set_memory_pool(before)


@pytest.mark.parametrize("stored", ["string", "dictionary", "binary"])
def test_repeated_long_texts_do_not_fill_the_memory(
    tmp_path: Path, stored: str, monkeypatch: pytest.MonkeyPatch, pool: Any
) -> None:
    """A dictionary page has a text once that many rows repeat: 400 MB of texts in a small file."""
    monkeypatch.setattr(parquet, "BATCH_BYTES", 1 << 24)
    monkeypatch.setattr("considerate.data.read.GROUP_BYTES", 1 << 25)
    rows, path = 400, tmp_path / "likes.parquet"
    kind = pa.binary() if stored == "binary" else pa.string()
    long = pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), pa.array(["x" * (1 << 20)], kind))
    likes = pa.table({"user": np.arange(rows) % 7, "item": np.arange(rows) % 9, "text": long})
    schema = None if stored == "dictionary" else pa.schema([("user", pa.int64()), ("item", pa.int64()), ("text", kind)])
    with pq.ParquetWriter(path, schema or likes.schema, compression="zstd", use_dictionary=True) as writer:
        for start in range(0, rows, 100):  # one row group, written without decoding all
            part = likes.slice(start, 100)
            writer.write_table(part if schema is None else part.cast(schema), row_group_size=rows)
    assert path.stat().st_size < (1 << 20)
    for column in ("user_column", "item_column"):
        with pytest.raises(DataError, match=r"of 1,048,576 bytes in 'text' is too long; at most 65,536 are read"):
            read_interactions(path, **{column: "text"})
    with pytest.raises(DataError, match="a title of 1,048,576 bytes in 'text' is too long"):
        read_interactions(table(), titles=path, title_id_column="item", title_column="text")
    if stored != "binary":
        assert read_interactions(path, where="text != 'y'").rows_kept == rows
    assert read_interactions(path, where="text is not null").rows_kept == rows
    assert pool.max_memory() < 200 << 20
