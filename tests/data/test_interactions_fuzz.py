"""Whatever comes in, only our own errors come out. Seeded, so that a failure can be repeated."""

from __future__ import annotations

import gzip
import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from considerate.data import Interactions, read_interactions
from considerate.data.rules import parse
from considerate.errors import ConsiderateError
from tests.helpers.randomised import count

TABLE = pa.table(
    {
        "user": [f"u{k % 40}" for k in range(200)],
        "item": [k % 17 for k in range(200)],
        "rating": [k % 5 + 0.5 for k in range(200)],
        "day": pa.array(range(200), pa.date32()),
    }
)
WORDS = [
    *("user", "item", "rating", "day", "and", "or", "not", "in", "is", "null", "true", "(", ")", ",", ">=", ">"),
    *("<=", "<", "==", "=", "!=", "4", "-1", "1e9", "'u1'", "'2020-01-01'", '"user"', "`day`", "'", '"', "`", "\\"),
    *("99999999999999999999999", "1e999", ".", "..", "é", "\0", "#", "__class__", "rating >= 3", "user = 'u1'"),
]


def survives(source: Any, **options: Any) -> bool:
    """True if it was read, False if it was refused; anything else fails the test."""
    try:
        got = read_interactions(source, **options)
    except ConsiderateError:
        return False
    assert isinstance(got, Interactions)
    assert got.users.min() >= 0
    assert got.users.max() < len(got.user_ids)
    assert got.items.max() < len(got.item_ids)
    got.user_ids.ids_of(range(len(got.user_ids)))  # every id can be had
    got.item_ids.ids_of(range(len(got.item_ids)))
    return True


def flipped(data: bytes, rng: np.random.Generator, most: int = 6) -> bytes:
    """The same bytes with a few bits turned."""
    out = bytearray(data)
    for at in rng.integers(0, len(out), rng.integers(1, most)):
        out[at] ^= 1 << int(rng.integers(8))
    return bytes(out)


def mangled(data: bytes, rng: np.random.Generator) -> bytes:
    """Cut, repeated, overwritten or bit-flipped bytes."""
    low, high = sorted(rng.integers(0, len(data), 2).tolist())
    how = rng.integers(5)
    if how == 0:
        return data[:high]
    if how == 1:
        return data[:low] + data[high:]
    if how == 2:
        return data[:high] + data[low:]
    if how == 3:
        return data[:low] + rng.bytes(min(high - low, 9)) + data[low:]
    return flipped(data, rng)


@pytest.mark.parametrize("ending", ["parquet", "csv", "tsv", "dat", "csv.gz", "db"])
def test_random_bytes(tmp_path: Path, ending: str) -> None:
    rng = np.random.default_rng(len(ending))
    path = tmp_path / f"file.{ending}"
    starts = [b"", b"PAR1", b"user,item\n", b"\x1f\x8b\x08", b"SQLite format 3\0", b"\xef\xbb\xbf", b"1::2\n"]
    for case in range(count(70)):
        path.write_bytes(starts[case % len(starts)] + rng.bytes(int(rng.integers(1, 300))))
        survives(path)
        survives(f"sqlite:///{path}?table=likes")


def test_damaged_parquet(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    path, read = tmp_path / "likes.parquet", 0
    originals = []
    for compression, dictionary in (("none", True), ("zstd", True), ("snappy", False)):
        buffer = io.BytesIO()
        pq.write_table(TABLE, buffer, compression=compression, use_dictionary=dictionary, row_group_size=64)
        originals.append(buffer.getvalue())
    cases = count(900)
    for case in range(cases):
        data = originals[case % 3]
        path.write_bytes(mangled(data, rng) if case % 2 else flipped(data, rng, 3))
        read += survives(path, where="rating >= 3" if case % 4 < 2 else "user is not null")
    assert 0 < read < cases


def test_mangled_text(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    read = 0
    cases = count(700)
    for case in range(cases):
        delimiter = [",", "\t", ";", "::", " ", "|"][case % 6]
        rows = zip(*(TABLE[name].to_pylist() for name in TABLE.column_names))
        lines = [list(TABLE.column_names), *([str(one) for one in row] for row in rows)]
        data = mangled("\n".join(delimiter.join(line) for line in lines).encode(), rng)
        gzipped = case % 7 == 0
        path = tmp_path / ("likes.csv.gz" if gzipped else "likes.csv")
        path.write_bytes(
            mangled(gzip.compress(data), rng) if gzipped and case % 2 else gzip.compress(data) if gzipped else data
        )
        read += survives(path, where="rating >= 3")
    assert 0 < read < cases


def test_random_rules() -> None:
    rng = np.random.default_rng(3)
    parsed = 0
    for _ in range(3000):
        rule = " ".join(rng.choice(WORDS, rng.integers(1, 9)))
        try:
            parse(rule)
        except ConsiderateError:
            continue
        parsed += 1
        survives(TABLE, where=rule)
    assert parsed > 20


def test_random_sentences_of_the_grammar() -> None:
    rng = np.random.default_rng(4)
    columns = ["user", "item", "rating", "day", "`user`", "nobody"]
    values = ["3", "-2.5", "'u1'", "'1970-02-01'", "true", "1e400", "123456789012345678901234567890"]

    def sentence(depth: int) -> str:
        kind = rng.integers(6) if depth else rng.integers(3)
        column, value = rng.choice(columns), rng.choice(values)
        if kind == 0:
            return f"{column} {rng.choice(['>=', '>', '<=', '<', '==', '=', '!='])} {value}"
        if kind == 1:
            return f"{column} {rng.choice(['', 'not'])} in ({value}, {rng.choice(values)})"
        if kind == 2:
            return f"{column} is {rng.choice(['', 'not'])} null"
        if kind == 3:
            return f"not {sentence(depth - 1)}"
        return f"({sentence(depth - 1)}) {rng.choice(['and', 'or'])} {sentence(depth - 1)}"

    assert sum(survives(TABLE, where=sentence(2)) for _ in range(count(600))) > 20


def test_random_text_as_rule_and_address() -> None:
    rng = np.random.default_rng(5)
    for _ in range(count(300)):
        text = rng.bytes(int(rng.integers(1, 30))).decode("latin1")
        survives(TABLE, where=text)
        survives("sqlite:///" + text, query="select 1")
        survives("x" + text + "://" + text)


def test_random_columns() -> None:
    rng = np.random.default_rng(6)
    makers = [
        lambda n: pa.array(rng.integers(-(2**63), 2**63 - 1, n)),
        lambda n: pa.array(rng.integers(0, 2**64 - 1, n, np.uint64)),
        lambda n: pa.array(rng.standard_normal(n)),
        lambda n: pa.array(rng.integers(0, 9, n).astype(np.float16)),
        lambda n: pa.nulls(n),
        lambda n: pa.array([rng.bytes(2) for _ in range(n)], pa.binary()),
        lambda n: pa.array([rng.bytes(2) for _ in range(n)], pa.binary(2)),
        lambda n: pa.array(["", "é", "a" * 50][: n % 4] * n).slice(0, n),
        lambda n: pa.array([{"a": 1}] * n),
        lambda n: pa.array([[1]] * n),
        lambda n: pa.array(rng.integers(0, 99, n), pa.timestamp("ns")),
        lambda n: pa.array([None if k % 3 else k for k in range(n)]),
        lambda n: pa.array([str(k % 4) for k in range(n)]).dictionary_encode(),
        lambda n: pa.array([str(k % 4) for k in range(n)], pa.string_view()),
        lambda n: pa.array([rng.bytes(16) for _ in range(n)], pa.uuid()),
    ]
    read = 0
    for _ in range(count(500, at_least=200)):
        size = int(rng.integers(0, 6))
        columns = [makers[int(which)](size) for which in rng.integers(0, len(makers), 3)]
        length = min(map(len, columns))
        source = pa.table([one.slice(0, length) for one in columns], names=["user", "item", "extra"])
        rule = [None, "extra > 3", "extra = 'a'", "extra is not null", "user != 0"][int(rng.integers(5))]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            read += survives(source, where=rule)
    assert read > 10
