"""Data read by tasks in pieces: the same parts as from one reading of the whole, and the same refusals."""

from __future__ import annotations

import logging
import pickle
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from considerate.data import Interactions, ReaderOptions, parquet, pieces, read_interactions, read_likes
from considerate.data.graph import Graph, block_ends, divide, row_blocks
from considerate.data.vocabulary import Vocabulary, join_ids, merge_ids, slice_ids
from considerate.distributed import stages
from considerate.distributed.exchange import DividedData, from_graph, read_divided
from considerate.distributed.tasks import LocalTasks, Tasks
from considerate.errors import ConsiderateError, DataError, UsageError
from considerate.fitting.session import make_graph
from tests.helpers.servers import Bucket

BLOCK_EDGES = 16  # so that small data has many blocks and parts


@pytest.fixture
def tasks() -> Iterator[LocalTasks]:
    with LocalTasks(2) as made:
        yield made


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "block_ends", partial(block_ends, block_edges=BLOCK_EDGES))
    monkeypatch.setattr(stages, "row_blocks", partial(row_blocks, block_edges=BLOCK_EDGES))


class SentTasks(LocalTasks):
    """Threads that get what another process would get: everything through pickles, arrays read-only."""

    def put(self, value: Any) -> Any:
        return super().put(sent(value))

    def submit(self, function: Callable[..., Any], *arguments: Any, returns: int = 1) -> Any:
        return super().submit(run_sent, pickle.dumps(function), returns, *arguments, returns=returns)


def sent(value: Any) -> Any:
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return pickle.loads(data, buffers=[bytes(buffer.raw()) for buffer in buffers])


def run_sent(function: bytes, returns: int, *arguments: Any) -> Any:
    results = pickle.loads(function)(*map(sent, arguments))
    return sent(results) if returns == 1 else [sent(one) for one in results]


def rows_equal(a: Vocabulary, b: Vocabulary) -> bool:
    same = (a.kind, len(a)) == (b.kind, len(b)) and a.tensors().keys() == b.tensors().keys()
    return same and all(np.array_equal(one, b.tensors()[name]) for name, one in a.tensors().items())


def check(got: DividedData, wanted: Interactions, tasks: Tasks, block_edges: int = BLOCK_EDGES) -> None:
    """Everything is what `divide` makes of the graph of the whole, to the last bit."""
    sizes = len(wanted.user_ids), len(wanted.item_ids)
    graph = Graph.from_pairs(wanted.users, wanted.items, *sizes, block_edges=block_edges)
    outline, parts = divide(graph, got.resident)
    for name in ("user_count", "item_count", "edges", "duplicates"):
        assert getattr(got.outline, name) == getattr(outline, name), name
    for name in ("item_degree", "user_blocks", "item_blocks"):
        made = getattr(got.outline, name)
        assert made.dtype == np.int64
        assert np.array_equal(made, getattr(outline, name)), name
    found = tasks.get(got.parts)
    assert len(found) == len(parts)
    if got.all_user_likes is not None:
        everyone = tasks.get(got.all_user_likes)
        found = [replace(part, all_user_likes=everyone) for part in found]
    for one, part in zip(found, parts):
        assert (one.number, one.first) == (part.number, part.first)
        assert np.array_equal(one.blocks, part.blocks)
        assert np.array_equal(one.likes.starts, part.likes.starts)
        assert np.array_equal(one.likes.indices, part.likes.indices)
        assert (one.likes.starts.dtype, one.likes.indices.dtype) == (np.int64, np.int32)
        assert (one.all_user_likes is None) == (part.all_user_likes is None) == (got.resident == "users")
        if part.all_user_likes is not None:
            assert np.array_equal(one.all_user_likes.starts, part.all_user_likes.starts)
            assert np.array_equal(one.all_user_likes.indices, part.all_user_likes.indices)
    ids = tasks.get(got.user_ids)
    if got.resident == "users":
        assert [len(one) for one in ids] == [part.rows for part in parts]
    assert rows_equal(join_ids(ids), wanted.user_ids)
    assert rows_equal(got.item_ids, wanted.item_ids)
    assert (got.source, got.rows_read, got.rows_kept) == (wanted.source, wanted.rows_read, wanted.rows_kept)
    assert got.notes == wanted.notes
    assert (got.titles is None) == (wanted.titles is None)
    if got.titles is not None and wanted.titles is not None:
        assert all(np.array_equal(one, wanted.titles.tensors()[key]) for key, one in got.titles.tensors().items())


KINDS = ["dense", "sparse", "strings", "mixed"]


def ids_of(kind: str, numbers: np.ndarray, rng: np.random.Generator) -> pa.Array:
    """Ids of numbers: integers close together or far apart, or strings of different lengths and alphabets."""
    most = int(numbers.max()) + 1
    if kind == "dense":
        return pa.array(numbers - 7)
    if kind == "sparse":
        return pa.array(np.unique(rng.integers(-(2**62), 2**62, 4 * most))[: most * 2 : 2][numbers])
    return pa.array([f"{'üu日'[k % 3]}{k * 7919 % 10_007}{'x' * (k % 11)}" for k in numbers.tolist()])


def random_table(kind: str, seed: int, rows: int = 1500) -> pa.Table:
    """Likes with duplicates, a user of many and many of few, in no order."""
    rng = np.random.default_rng(seed)
    users = np.minimum(rng.geometric(0.02, rows), rng.integers(1, 200, rows))
    users[rng.random(rows) < 0.1] = 3
    items = rng.integers(0, 40, rows) * rng.integers(0, 2, rows) + rng.integers(0, 5, rows)
    kinds = ("strings", "sparse") if kind == "mixed" else (kind, kind)
    return pa.table(
        {
            "user": ids_of(kinds[0], users, rng),
            "item": ids_of(kinds[1], items, rng),
            "rating": rng.integers(1, 6, rows).astype(float),
        }
    )


def write(table: pa.Table, folder: Path, files: int, seed: int = 0, group: int = 100) -> Path:
    """A table in files of random lengths, some empty, some of several row groups."""
    folder.mkdir()
    places = np.sort(np.random.default_rng(seed).integers(0, len(table) + 1, files - 1))
    for number, (first, last) in enumerate(zip([0, *places], [*places, len(table)])):
        pq.write_table(table.slice(first, last - first), folder / f"part-{number:03}.parquet", row_group_size=group)
    return folder


# --- The same as one reading ---


@pytest.mark.parametrize("resident", ["users", "items"])
@pytest.mark.parametrize("kind", KINDS)
def test_pieces_and_shards_do_not_matter(
    kind: str, resident: str, tmp_path: Path, small_blocks: None, tasks: LocalTasks
) -> None:
    for seed, files, where in ((0, 1, "rating is not null"), (1, 6, "rating >= 2")):
        folder = write(random_table(kind, seed), tmp_path / str(files), files, seed)
        wanted = read_interactions(folder, where=where)
        for most_bytes, shards in ((None, None), (1, 1), (1, 9), (3000, 4), (8000, 64)):
            got = read_divided(
                folder, tasks, resident, options=ReaderOptions(where=where), most_bytes=most_bytes, shards=shards
            )
            check(got, wanted, tasks)


def test_pieces_and_shards_are_there(tmp_path: Path, small_blocks: None, tasks: LocalTasks) -> None:
    """What the test above varies does vary: pieces, shards, parts of several blocks."""
    folder = write(random_table("strings", 0), tmp_path / "likes", 3)
    seen: dict[str, int] = {}
    got = read_divided(
        folder,
        tasks,
        options=ReaderOptions(where="rating > 0"),
        most_bytes=1,
        shards=9,
        progress=lambda stage, done, total: seen.update({stage: total}),
    )
    assert seen["looking at files"] == 3
    assert seen["reading"] >= 15
    assert seen["exchanging"] == 9
    assert seen["dividing"] == len(got.parts) > 10
    assert max(len(part.blocks) for part in tasks.get(got.parts)) >= 2


@pytest.mark.parametrize("resident", ["users", "items"])
def test_reading_by_other_processes_gives_the_same_parts(resident: str, tmp_path: Path, small_blocks: None) -> None:
    with SentTasks(2) as tasks:
        for kind in KINDS:
            folder = write(random_table(kind, 5), tmp_path / kind, 4, group=200)
            wanted = read_interactions(folder, where="rating >= 3")
            got = read_divided(
                folder, tasks, resident, options=ReaderOptions(where="rating >= 3"), most_bytes=4000, shards=3
            )
            check(got, wanted, tasks)


def test_blocks_of_their_usual_size(tmp_path: Path, tasks: LocalTasks) -> None:
    rng = np.random.default_rng(0)
    rows = 400_000
    table = pa.table({"user": rng.integers(0, 30_000, rows) ** 2, "item": rng.integers(0, 900, rows)})
    folder = write(table, tmp_path / "likes", 5, group=50_000)
    wanted = read_interactions(folder)
    _, parts = divide(make_graph(wanted), "users")
    assert len(parts) > 10
    for resident in ("users", "items"):
        got = read_divided(folder, tasks, resident, most_bytes=1 << 19, shards=5)
        check(got, wanted, tasks, block_edges=32_768)


def test_folders_whose_names_are_columns(tmp_path: Path, small_blocks: None, tasks: LocalTasks) -> None:
    rng = np.random.default_rng(1)
    table = random_table("strings", 1).append_column("year", pa.array(rng.integers(2019, 2023, 1500)))
    table = table.append_column("land", pa.array(rng.choice(["de", "at"], 1500)))
    folder = tmp_path / "hive"
    parting = ds.partitioning(pa.schema([("year", pa.int32()), ("land", pa.string())]), flavor="hive")
    ds.write_dataset(table, folder, format="parquet", partitioning=parting)
    (folder / "_SUCCESS").touch()
    for where in ("year >= 2021 and land = 'de'", "rating >= 4 and year != 2020", "rating > 0"):
        wanted = read_interactions(folder, where=where)
        for most_bytes in (1, 10_000):
            check(
                read_divided(folder, tasks, options=ReaderOptions(where=where), most_bytes=most_bytes, shards=3),
                wanted,
                tasks,
            )
    by_year = read_interactions(folder, user_column="user", item_column="year", where="rating > 0")
    got = read_divided(
        folder, tasks, options=ReaderOptions(user_column="user", item_column="year", where="rating > 0"), most_bytes=1
    )
    check(got, by_year, tasks)


def test_skewed_and_sorted_pieces(tmp_path: Path, small_blocks: None, tasks: LocalTasks) -> None:
    """A file of one user, one whose rows the rule drops, one without rows, one sorted by user, one of another type."""
    folder = tmp_path / "likes"
    folder.mkdir()
    table = random_table("strings", 2)
    one = pa.table({"user": ["nobody else"] * 700, "item": table["item"][:700], "rating": [5.0] * 700})
    none = table.slice(0, 50).set_column(2, "rating", pa.array([0.0] * 50))
    for number, part in enumerate((one, none, table.slice(0, 0), table.sort_by("user"))):
        pq.write_table(part, folder / f"{number}.parquet", row_group_size=100)
    large = table.slice(0, 90).cast(
        pa.schema([("user", pa.large_string()), ("item", pa.dictionary(pa.int32(), pa.string())), ("rating", "f4")])
    )
    pq.write_table(large, folder / "4.parquet")
    wanted = read_interactions(folder, where="rating >= 1")
    for most_bytes, shards in ((1, 5), (5000, 2), (1, 64)):
        got = read_divided(
            folder, tasks, options=ReaderOptions(where="rating >= 1"), most_bytes=most_bytes, shards=shards
        )
        check(got, wanted, tasks)


def test_one_file_titles_and_notes(tmp_path: Path, small_blocks: None, tasks: LocalTasks) -> None:
    table = random_table("dense", 3)
    pq.write_table(table, tmp_path / "likes.parquet", row_group_size=150)
    items = table["item"].unique()
    titles = pa.table({"item": items, "title": [f"t{k}" for k in range(len(items))]})
    options: dict[str, Any] = {"where": "rating >= 3", "titles": titles}
    wanted = read_interactions(tmp_path / "likes.parquet", **options)
    got = read_divided(tmp_path / "likes.parquet", tasks, options=ReaderOptions(**options), most_bytes=2000, shards=3)
    check(got, wanted, tasks)
    assert len(got.notes) == 2
    with pytest.raises(UsageError, match="--titles"):
        read_divided(
            tmp_path / "likes.parquet", tasks, options=ReaderOptions(where="rating >= 3", title_column="title")
        )


def test_a_relative_path_is_read_from_elsewhere(
    tmp_path: Path, small_blocks: None, tasks: LocalTasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(random_table("dense", 3), tmp_path / "likes", 3)
    monkeypatch.chdir(tmp_path)
    wanted = read_interactions("likes", where="rating > 1")

    def elsewhere(stage: str, done: int, total: int) -> None:
        monkeypatch.chdir("/")

    got = read_divided("likes", tasks, options=ReaderOptions(where="rating > 1"), most_bytes=1, progress=elsewhere)
    check(got, wanted, tasks)


@pytest.mark.parametrize("resident", ["users", "items"])
def test_other_sources_are_read_here(resident: str, tmp_path: Path, tasks: LocalTasks) -> None:
    table = random_table("strings", 4).drop_columns("rating")
    (tmp_path / "likes.csv").write_text("user,item\n" + "\n".join(f"{u},{k % 7}" for k, u in enumerate("abcdef" * 5)))
    matrix = sp.csr_matrix(np.random.default_rng(0).random((30, 20)) < 0.4)
    for source in (table, tmp_path / "likes.csv", matrix, read_interactions(table)):
        check(read_divided(source, tasks, resident), read_interactions(source), tasks, block_edges=32_768)


def test_a_graph_that_is_here(tasks: LocalTasks) -> None:
    likes = read_interactions(random_table("strings", 4).drop_columns("rating"))
    graph = Graph.from_pairs(
        likes.users, likes.items, len(likes.user_ids), len(likes.item_ids), block_edges=BLOCK_EDGES
    )
    for resident in ("users", "items"):
        check(from_graph(graph, likes, tasks, resident), likes, tasks)
    matrix = read_interactions(sp.csr_matrix(np.ones((40, 30))))
    graph = Graph.from_pairs(matrix.users, matrix.items, 40, 30, block_edges=BLOCK_EDGES)
    slices = tasks.get(from_graph(graph, matrix, tasks).user_ids)
    assert [one for ids in slices for one in ids.ids_of(range(len(ids)))] == list(range(40))


def test_the_division_can_be_chosen_when_the_size_is_known(tmp_path: Path, tasks: LocalTasks) -> None:
    folder = write(random_table("dense", 0), tmp_path / "likes", 2)
    wanted = read_interactions(folder, where="rating > 2")
    graph = make_graph(wanted)

    def choose(outline: Any) -> str:
        assert (outline.user_count, outline.edges) == (graph.user_count, graph.edges)
        return "items"

    for source, options in ((folder, {"where": "rating > 2"}), (wanted, {})):
        got = read_divided(source, tasks, choose, options=ReaderOptions(**options))  # type: ignore[arg-type]
        assert got.resident == "items"
        check(got, wanted, tasks, block_edges=32_768)
    with pytest.raises(UsageError, match="resident is 'both'"):
        read_divided(folder, tasks, "both", options=ReaderOptions(where="rating > 2"))


# --- The head ---


def test_the_head_gets_nothing_that_grows_with_users(tmp_path: Path) -> None:
    class Counted(SentTasks):
        got = 0

        def get(self, refs: Any) -> Any:
            values = super().get(refs)
            self.got += len(pickle.dumps(values))
            return values

    got = []
    for times in (1, 30):
        rows = 3_000 * times
        users = np.arange(rows) % (1_000 * times)
        table = pa.table({"user": users, "item": (users * 7 + np.arange(rows) // len(users)) % 50})
        folder = write(table, tmp_path / str(times), 6, group=500 * times)
        with Counted(2) as tasks:
            size = sum(file.stat().st_size for file in folder.iterdir())
            read_divided(folder, tasks, most_bytes=size // 10, shards=4)
        got.append(tasks.got)
    assert got[1] < 1.5 * got[0] + 20_000  # the users' numbers alone would be 240 000 bytes


def test_progress_is_reported(tmp_path: Path, tasks: LocalTasks) -> None:
    folder = write(random_table("dense", 0), tmp_path / "likes", 4)
    said: list[tuple[str, int, int]] = []
    read_divided(
        folder,
        tasks,
        options=ReaderOptions(where="rating > 0"),
        progress=lambda *told: said.append(told),
        most_bytes=20_000,
    )
    assert list(dict.fromkeys(stage for stage, _, _ in said)) == ["reading", "exchanging", "dividing"]
    for stage in ("reading", "exchanging", "dividing"):
        steps = [(done, total) for name, done, total in said if name == stage]
        assert steps[0][0] == 0
        assert steps[-1][0] == steps[-1][1] > 0
        assert [done for done, _ in steps] == sorted(done for done, _ in steps)


def test_pieces_are_of_about_one_size() -> None:
    table = parquet.ParquetInput("likes", pa.schema([]), [], "s3://x")
    small = [parquet.Fragment(f"{k}", 10) for k in range(20)]
    large = [parquet.Fragment("large", 30, groups=(k,)) for k in range(10)]
    made = pieces.plan_pieces(table, [*small, parquet.Fragment("huge", 500), *large, *small], 100)
    assert [sum(one.size for one in piece.fragments) for piece in made] == [100, 100, 500, 90, 90, 90, 100, 100, 30]
    assert [one.groups for one in made[3].fragments] == [(0, 1, 2)]
    assert [len(piece.fragments) for piece in made[5:7]] == [1, 8]
    assert pieces.piece_bytes(10 << 20) == 32 << 20
    assert pieces.piece_bytes(10 << 40) == 256 << 20
    assert (pieces.shard_count(1), pieces.shard_count(100 << 20), pieces.shard_count(10 << 40)) == (1, 4, 64)


def test_shards_have_about_as_many_likes_each() -> None:
    rng = np.random.default_rng(0)
    summaries, degrees = [], np.zeros(5_000)
    for piece in range(8):
        users = np.minimum(rng.geometric(0.002, 4_000 * (1 + piece)), 4_999)
        degrees += np.bincount(users, minlength=5_000)
        sample = np.sort(users)[:: max(1, len(users) // 256)][:256].tolist()
        summaries.append(pieces.PieceSummary(len(users), len(users), 0, (0, 0), sample))
    cuts = pieces.choose_cuts(summaries, 6)
    sizes = [one.sum() for one in np.split(degrees, cuts)]
    assert len(sizes) == 6
    assert max(sizes) < 1.5 * min(sizes)


def test_vocabularies_are_merged_and_sliced() -> None:
    words = [Vocabulary.of_strings(one) for one in (["b", "日", "a"], [], ["c", "a", "", "ü"])]
    merged, rows = merge_ids(words)
    assert merged.ids_of(range(len(merged))) == ["", "a", "b", "c", "ü", "日"]
    for ids, own in zip(words, rows):
        assert merged.ids_of(own) == ids.ids_of(range(len(ids)))
    for first in range(4):
        for last in range(first, 7):
            assert slice_ids(merged, first, last).ids_of(range(last - first)) == merged.ids_of(range(first, last))
    halves = [slice_ids(merged, 0, 2), slice_ids(merged, 2, 2), slice_ids(merged, 2, 6)]
    assert rows_equal(join_ids(halves), merged)


# --- The same refusals ---


def tables(*columns: dict[str, Any]) -> list[pa.Table]:
    return [pa.table(one) for one in columns]


GOOD = {"user": [1, 2, 3], "item": [1, 2, 2]}
NAN = float("nan")
REFUSED: dict[str, tuple[list[pa.Table], dict[str, Any]]] = {
    "missing users": (
        tables({"user": [1, None], "item": [1, 2]}, GOOD, {"user": [None, None, 4], "item": [1, 2, 3]}),
        {},
    ),
    "missing items": (tables({"user": ["a", "b"], "item": ["x", None]}, {"user": ["a"], "item": [None]}), {}),
    "missing both": (tables(GOOD, {"user": [1, None], "item": [None, 2]}), {}),
    "no column in a file": (tables(GOOD, {"user": [1, 2], "other": [1, 2]}), {}),
    "ratings": (tables({**GOOD, "rating": [1, 2, 3]}, {**GOOD, "rating": [1, 2, 3]}), {}),
    "NaN": (
        tables({**GOOD, "rating": [1.0, NAN, 5.0]}, {**GOOD, "rating": [NAN, NAN, 5.0]}),
        {"where": "rating >= 4"},
    ),
    "no rows": (tables({"user": pa.array([], "i8"), "item": pa.array([], "i8")}) * 2, {}),
    "none kept": (tables({**GOOD, "rating": [1, 2, 3]}) * 2, {"where": "rating > 9"}),
    "one user": (tables({"user": [1, 1], "item": [1, 2]}) * 2, {}),
    "one item": (tables({"user": [1, 2], "item": [1, 1]}) * 2, {}),
    "bool": (tables({"user": [True, False], "item": [1, 2]}) * 2, {}),
    "not whole": (tables({"user": [1.0, 2.0], "item": [1, 2]}, {"user": [1.5, 2.0], "item": [1, 2]}), {}),
    "too large": (
        tables(
            {"user": pa.array([1, 2], "u8"), "item": [1, 2]}, {"user": pa.array([1, 2**64 - 1], "u8"), "item": [1, 2]}
        ),
        {},
    ),
    "another type": (tables(GOOD, {"user": ["a", "b"], "item": [1, 2]}), {}),
    "another type of the rule": (
        tables({**GOOD, "rating": [1, 2, 3]}, {**GOOD, "rating": ["a", "b", "c"]}),
        {"where": "rating >= 2"},
    ),
    "text and a number": (
        tables({**GOOD, "genre": ["7", "8", "9"]}, {**GOOD, "genre": ["7", "Drama", "9"]}),
        {"where": "genre >= 2"},
    ),
    "no such column": (tables(GOOD) * 2, {"user_column": "who"}),
    "no such column in the rule": (tables(GOOD) * 2, {"where": "stars > 1"}),
    "no rule": (tables({**GOOD, "rating": [1, 2, 3]}), {"where": "rating >"}),
    "columns not known": (tables({"a": [1], "b": [2], "c": [3]}), {}),
    "a query": (tables(GOOD), {"query": "select 1"}),
    "titles of others": (tables(GOOD) * 2, {"titles": pa.table({"item": [77], "title": ["x"]})}),
    "not UTF-8": (tables({"user": [b"\xff", b"a"], "item": [1, 2]}) * 2, {}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_data_are_refused_in_the_same_words(name: str, tmp_path: Path, tasks: LocalTasks) -> None:
    made, options = REFUSED[name]
    for number, table in enumerate(made):
        pq.write_table(table, tmp_path / f"{number}.parquet")
    with pytest.raises(ConsiderateError) as wanted:
        make_graph(read_interactions(tmp_path, **options))
    for most_bytes in (None, 1):
        with pytest.raises(ConsiderateError) as got:
            read_divided(tmp_path, tasks, options=ReaderOptions(**options), most_bytes=most_bytes)
        assert (type(got.value), str(got.value)) == (type(wanted.value), str(wanted.value))


def test_files_that_cannot_be_read(tmp_path: Path, tasks: LocalTasks) -> None:
    folder = write(random_table("dense", 0), tmp_path / "likes", 3)
    good = (folder / "part-001.parquet").read_bytes()
    for bad in (good[:-40], b"", b"PAR1 nothing of the kind", good[:300] + bytes(200) + good[500:]):
        (folder / "part-001.parquet").write_bytes(bad)
        with pytest.raises(DataError) as wanted:
            read_interactions(folder, where="rating > 1")
        for most_bytes in (None, 1):
            with pytest.raises(DataError) as got:
                read_divided(folder, tasks, options=ReaderOptions(where="rating > 1"), most_bytes=most_bytes)
            assert str(got.value) == str(wanted.value)
    (tmp_path / "none").mkdir()
    for source in (tmp_path / "none", tmp_path / "nowhere"):
        with pytest.raises(DataError) as wanted:
            read_interactions(source)
        with pytest.raises(DataError) as got:
            read_divided(source, tasks)
        assert str(got.value) == str(wanted.value)


def test_odd_data_are_warned_of(tmp_path: Path, tasks: LocalTasks, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "likes").mkdir()
    table = pa.table({"user": [1, 2] * 600, "item": [k % 1100 for k in range(1200)]})
    for number, first in enumerate((0, 500)):
        pq.write_table(table.slice(first, 700 - 500 * (number == 0)), tmp_path / "likes" / f"{number}.parquet")
    pq.write_table(table, tmp_path / "likes" / "2.parquet")
    said, warned = [], []
    for read in (
        lambda: make_graph(read_interactions(tmp_path / "likes")),
        lambda: read_divided(tmp_path / "likes", tasks),
    ):
        caplog.clear()
        with caplog.at_level(logging.WARNING), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            read()
        said.append([record.getMessage() for record in caplog.records])
        warned.append([str(one.message) for one in caught])
    assert said[0] == said[1]
    assert "duplicate pairs" in said[0][0]
    assert warned[0] == warned[1]
    assert "swapped" in warned[0][0]


# --- Addresses ---


def test_folders_elsewhere(s3_bucket: Bucket, tmp_path: Path, tasks: LocalTasks, small_blocks: None) -> None:
    table = random_table("strings", 6).append_column("year", pa.array([2019 + k % 3 for k in range(1500)]))
    parting = ds.partitioning(pa.schema([("year", pa.int32())]), flavor="hive")
    folder = tmp_path / "likes"
    ds.write_dataset(table, folder, format="parquet", partitioning=parting)
    (folder / "_SUCCESS").touch()
    (folder / ".hidden.parquet").write_text("no")
    options = ReaderOptions(where="rating > 1 and year > 2019")
    local = read_likes(folder, options)
    address = s3_bucket.upload(folder, "likes")
    wanted = read_likes(address, options)
    assert wanted.source == address
    assert np.array_equal(wanted.users, local.users)
    assert rows_equal(wanted.item_ids, local.item_ids)
    for most_bytes in (None, 1):
        check(read_divided(address, tasks, options=options, most_bytes=most_bytes, shards=3), wanted, tasks)


def test_files_elsewhere(s3_bucket: Bucket, tmp_path: Path, tasks: LocalTasks) -> None:
    pq.write_table(random_table("dense", 6), tmp_path / "likes.parquet")
    wanted = read_interactions(tmp_path / "likes.parquet", where="rating > 1")
    address = s3_bucket.write("likes.parquet", (tmp_path / "likes.parquet").read_bytes())
    assert np.array_equal(read_interactions(address, where="rating > 1").users, wanted.users)
    s3_bucket.write("likes.csv", b"user,item\na,b\n")
    s3_bucket.write("none/_SUCCESS", b"")
    s3_bucket.write("empty/a.parquet", b"")
    for read in (read_interactions, lambda source: read_divided(source, tasks)):
        for path, reason in (
            ("likes.csv", r"likes\.csv: holds text; only Parquet is read from there"),
            ("nowhere", "nowhere: there is no such file or folder"),
            ("none", r"without Parquet files \(it has _SUCCESS\)"),
            ("empty", r"a\.parquet: the file is empty"),
        ):
            with pytest.raises(DataError, match=reason):
                read(f"{s3_bucket.address}/{path}")
        with pytest.raises(DataError, match="nowhere") as caught:
            read(f"s3://key:secret@{s3_bucket.name}/nowhere")
        assert "secret" not in str(caught.value)


def test_addresses_of_local_files(tmp_path: Path, tasks: LocalTasks, small_blocks: None) -> None:
    folder = write(random_table("mixed", 7), tmp_path / "my likes", 3)
    address = folder.as_uri()
    assert "%20" in address
    wanted = read_interactions(folder, where="rating > 1")
    assert np.array_equal(read_interactions(address, where="rating > 1").users, wanted.users)
    check(read_divided(address, tasks, options=ReaderOptions(where="rating > 1")), wanted, tasks)
    (tmp_path / "likes.csv").write_text("user,item\na,b\nb,c\n")
    assert read_interactions((tmp_path / "likes.csv").as_uri()).rows_kept == 2
    with pytest.raises(UsageError, match="three slashes"):
        read_interactions("file://likes")
    with pytest.raises(UsageError, match="--query goes with a database"):
        read_interactions(address, query="select 1")
